//! How a worker looks records up in the newest generation.

use crate::memory::Block;
use crate::record::{self, KeyHash, Record};
use crate::{Store, index, reclaim};
use std::cell::Cell;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Acquire;

/// One worker's access to the store. Not `Sync`: it belongs to the thread that runs the event loop.
pub struct Reader {
    store: Store,
    slot: usize,
    /// Guards that are alive. nginx nests callbacks, so there may be several.
    depth: Cell<u32>,
    acknowledged: Cell<u64>,
}

impl Store {
    /// Takes worker slot `slot` for process `pid`; the reader gives it back when it is dropped.
    ///
    /// # Safety
    /// Whoever had the slot reads no more: two readers of one slot would acknowledge for each other, and
    /// records would be freed under one of them.
    ///
    /// # Panics
    /// If `slot` is not below [`crate::MAX_SLOTS`].
    pub unsafe fn attach(&self, slot: usize, pid: u32) -> Reader {
        reclaim::attach(self.memory, slot, pid);
        let reader = Reader { store: *self, slot, depth: Cell::new(0), acknowledged: Cell::new(0) };
        drop(reader.read());
        reader
    }
}

impl Reader {
    /// The newest generation, for as long as the guard lives. Never waits.
    ///
    /// If no other guard of this reader lives, everything older is given up: it may be freed.
    #[inline]
    pub fn read(&self) -> Guard<'_> {
        let current = self.store.memory.header().current.load(Acquire);
        let (root, generation) = reclaim::root(self.store.memory, current);
        if self.depth.get() == 0 && self.acknowledged.get() != generation {
            self.acknowledged.set(generation);
            reclaim::acknowledge(self.store.memory, self.slot, generation);
        }
        self.depth.set(self.depth.get() + 1);
        Guard { reader: self, block: current, root, generation }
    }

    /// The store that the reader belongs to.
    pub fn store(&self) -> Store {
        self.store
    }

    /// Replaced records wait to be freed: worth a [`Store::try_free`] now and then.
    pub fn has_garbage(&self) -> bool {
        self.store.has_garbage()
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        reclaim::detach(self.store.memory, self.slot);
    }
}

/// The place of a record in one generation. Zeroes are "nowhere".
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct RecordPlace {
    generation: u64,
    block: Block,
}

impl RecordPlace {
    /// Nowhere, as of this generation.
    pub fn nowhere(generation: u64) -> Self {
        RecordPlace { generation, block: 0 }
    }

    /// The generation; 0: none was looked at.
    pub fn generation(&self) -> u64 {
        self.generation
    }
}

/// The place of a cell in one generation. Zeroes are "nowhere".
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct CellPlace {
    generation: u64,
    block: Block,
    words: u32,
}

impl CellPlace {
    /// The generation; 0: none was looked at.
    pub fn generation(&self) -> u64 {
        self.generation
    }
}

/// One generation, held. Records borrow from it, so none can outlive it.
pub struct Guard<'r> {
    reader: &'r Reader,
    block: Block,
    root: Block,
    generation: u64,
}

impl Guard<'_> {
    /// The number of this generation.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The number of records of a kind, to skip look-ups of a kind without records.
    #[inline]
    pub fn count(&self, kind: u8) -> u32 {
        reclaim::count(self.reader.store.memory, self.block, usize::from(kind).min(15))
    }

    /// The record of a key.
    #[inline]
    pub fn get(&self, kind: u8, key: &[u8]) -> Option<Record<'_>> {
        self.get_hashed(self.hash(kind, key), kind, key)
    }

    /// The hash of a key, to look it up again later, in another generation too.
    #[inline]
    pub fn hash(&self, kind: u8, key: &[u8]) -> KeyHash {
        KeyHash::from_bits(record::hash(self.reader.store.memory, kind, key))
    }

    /// The record of a key whose hash is known. Another key's hash finds nothing.
    #[inline]
    pub fn get_hashed(&self, hash: KeyHash, kind: u8, key: &[u8]) -> Option<Record<'_>> {
        index::find(self.reader.store.memory, self.root, hash.to_bits(), kind, key)
    }

    /// The record of a hash, for a caller that did not keep the key.
    pub fn find_hashed(&self, hash: KeyHash, kind: u8) -> Option<Record<'_>> {
        index::find_hashed(self.reader.store.memory, self.root, hash.to_bits(), kind)
    }

    /// The place of a record of this guard, to find it again without a look-up.
    #[inline]
    pub fn place(&self, record: &Record<'_>) -> RecordPlace {
        RecordPlace { generation: self.generation, block: record.block() }
    }

    /// The record at a place, if the generation is still the same: after a write it is looked up anew.
    #[inline]
    pub fn at(&self, place: RecordPlace) -> Option<Record<'_>> {
        // The index of a generation never changes, and this guard holds it.
        let is_valid = place.block != 0 && place.generation == self.generation;
        is_valid.then(|| Record::new(self.reader.store.memory, place.block))
    }

    /// The place of a cell of this guard's records, to find it again without a look-up.
    #[inline]
    pub fn cell_place(&self, record: &Record<'_>, index: usize) -> Option<CellPlace> {
        let (block, words) = record.cell_block(index)?;
        Some(CellPlace { generation: self.generation, block, words })
    }

    /// The cell at a place, if the generation is still the same.
    #[inline]
    pub fn cell_at(&self, place: CellPlace) -> Option<&[AtomicU64]> {
        // A generation keeps its records and they keep their cells.
        let is_valid = place.block != 0 && place.generation == self.generation;
        is_valid.then(|| Record::cell_of(self.reader.store.memory, place.block, place.words))
    }

    /// Calls `visit` with every record, in no order that means anything.
    pub fn for_each(&self, mut visit: impl FnMut(Record<'_>)) {
        let memory = self.reader.store.memory;
        index::walk(memory, self.root, &mut |visited| {
            if let index::Visited::Record(block) = visited {
                visit(Record::new(memory, block));
            }
        });
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.reader.depth.set(self.reader.depth.get() - 1);
    }
}

/// One generation, held for longer than a callback by a process that looks for changes.
pub(crate) struct Pin {
    store: Store,
    root: Block,
    generation: u64,
}

/// What changed between two generations.
pub(crate) enum Changed<'g> {
    /// The record as it is now.
    Written(Record<'g>),
    /// The record as it was.
    Removed(Record<'g>),
}

impl Pin {
    /// Holds the live generation for process `pid`; `None` while another process has the pin.
    pub(crate) fn attach(store: Store, pid: u32) -> Option<Pin> {
        reclaim::attach_pin(store.memory, pid, store.is_alive).then(|| {
            let (root, generation) = newest(store);
            reclaim::acknowledge_pin(store.memory, generation);
            Pin { store, root, generation }
        })
    }

    /// The number of the generation that the pin holds.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// No newer generation is live.
    pub(crate) fn is_newest(&self) -> bool {
        newest(self.store).1 == self.generation
    }

    /// Calls `visit` with every record of the generation it holds.
    pub(crate) fn for_each(&self, mut visit: impl FnMut(Record<'_>)) {
        let memory = self.store.memory;
        index::walk(memory, self.root, &mut |visited| {
            if let index::Visited::Record(block) = visited {
                visit(Record::new(memory, block));
            }
        });
    }

    /// Calls `visit` with what changed since the generation it holds, and holds the newest from then on. Answers
    /// its number.
    pub(crate) fn advance(&mut self, mut visit: impl FnMut(Changed<'_>)) -> u64 {
        let memory = self.store.memory;
        let (root, generation) = newest(self.store);
        // Nothing of the newer one is freed either: that needs an acknowledgement of a later one.
        index::differences(memory, self.root, root, &mut |difference| match difference {
            index::Difference::Removed(block) => {
                visit(Changed::Removed(Record::new(memory, block)))
            }
            index::Difference::Written(block) => {
                visit(Changed::Written(Record::new(memory, block)))
            }
        });
        (self.root, self.generation) = (root, generation);
        reclaim::acknowledge_pin(memory, generation);
        generation
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        reclaim::detach_pin(self.store.memory);
    }
}

fn newest(store: Store) -> (Block, u64) {
    reclaim::root(store.memory, store.memory.header().current.load(Acquire))
}
