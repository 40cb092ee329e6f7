//! Changing records and publishing the next generation.

use crate::arena;
use crate::fault_injection::failpoint::failpoint;
use crate::fault_injection::planted::is_planted;
use crate::index::{self, Editor, Visited};
use crate::memory::Block;
use crate::record::{self, Attached, Cells, NewRecord, Record};
use crate::{Live, Role, Space, Store, WriteError, WriterLock, reclaim};
use std::marker::PhantomData;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::compiler_fence;

/// Batches freed after each publication: more than a delta adds, so that garbage shrinks, and few enough that the callback
/// stays short (a batch is at most 1,000 blocks).
const FREED_PER_WRITE: usize = 4;

/// A write in progress. Dropped without [`Transaction::commit`], it leaves nothing behind.
pub struct Transaction<'l, L: WriterLock> {
    store: Store,
    lock: PhantomData<&'l L>,
    /// What a commit publishes: the number of the next generation, its epoch and its counts.
    next: Live,
    /// The live generation's block, replaced by a commit.
    current: Block,
    root: Block,
    replaced: Vec<Block>,
    has_changed: bool,
    is_finished: bool,
    /// The error of a change that failed half way: the new index must not be published.
    failure: Option<WriteError>,
    /// The lock. It is released last: fields are dropped after [`Transaction::drop`] has run.
    _held: L::Held,
}

struct Upsert<'a> {
    kind: u8,
    key: &'a [u8],
    value: &'a [u8],
    cells: Cells,
}

/// The effect of an upsert on the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// The record already had this value.
    Unchanged,
    /// It is new or replaced.
    Changed,
}

impl Store {
    /// Begins a write, unless another writer is at work. Never waits.
    ///
    /// If the last writer died at work, its remains are cleared away first: time in proportion to the
    /// records there are.
    pub fn try_write<'l, L: WriterLock>(&self, lock: &'l L) -> Option<Transaction<'l, L>> {
        let held = lock.try_lock()?;
        // From here on the lock is given back whatever happens.
        let mut transaction = Transaction {
            store: *self,
            lock: PhantomData,
            next: reclaim::live(self.memory, self.memory.header().current.load(Acquire)),
            current: 0,
            root: 0,
            replaced: Vec::new(),
            has_changed: false,
            is_finished: false,
            failure: None,
            _held: held,
        };
        transaction.begin();
        Some(transaction)
    }

    /// Frees replaced records that no worker reads any more, unless a writer is at work. Answers whether
    /// more could be freed at once.
    pub fn try_free<L: WriterLock>(&self, lock: &L) -> bool {
        match self.try_write(lock) {
            Some(mut transaction) => {
                let more = transaction.free();
                transaction.is_finished = true;
                more
            }
            None => false,
        }
    }
}

impl<L: WriterLock> Transaction<'_, L> {
    fn begin(&mut self) {
        let memory = self.store.memory;
        let header = memory.header();
        if header.unfinished.load(Acquire) != 0 && !is_planted("no-recovery") {
            reclaim::recover(memory);
        }
        header.unfinished.store(1, Release);
        // A kill must not find a change in memory before the mark.
        compiler_fence(SeqCst);
        self.current = header.current.load(Acquire);
        self.next = reclaim::live(memory, self.current);
        self.next.generation += 1;
        self.root = reclaim::root(memory, self.current).0;
        failpoint("update.begin");
    }

    /// The epoch and generation the write began on.
    pub fn base(&self) -> (u64, u64) {
        (self.next.epoch, self.next.generation - 1)
    }

    /// A record was written, replaced or removed.
    pub fn has_changed(&self) -> bool {
        self.has_changed
    }

    /// Sets whether the store accepts writes once this write is committed.
    pub fn set_role(&mut self, role: Role) {
        self.store.memory.header().journal.role.store(role as u32, Release);
    }

    /// Begins another line of generations with this write.
    pub fn set_epoch(&mut self, epoch: u64) {
        self.has_changed |= self.next.epoch != epoch;
        self.next.epoch = epoch;
    }

    /// Free and total bytes, including the changes of this write.
    pub fn space(&self) -> Space {
        self.store.space()
    }

    /// The bytes of a record, including rounding.
    pub fn bytes_needed(key: &[u8], value: &[u8]) -> usize {
        record::bytes_needed(key, value).unwrap_or(usize::MAX)
    }

    /// The record of a key, as this write has it.
    pub fn get(&self, kind: u8, key: &[u8]) -> Option<Record<'_>> {
        let memory = self.store.memory;
        index::find(memory, self.root, record::hash(memory, kind, key), kind, key)
    }

    /// Calls `visit` with every record, as this write has them.
    pub fn for_each(&self, mut visit: impl FnMut(Record<'_>)) {
        let memory = self.store.memory;
        index::walk(memory, self.root, &mut |visited| {
            if let Visited::Record(block) = visited {
                visit(Record::new(memory, block));
            }
        });
    }

    /// Writes a record. `cells` names its cells: those of the replaced record with the same names stay.
    ///
    /// After an error the write can only be given up.
    pub fn upsert(
        &mut self,
        kind: u8,
        key: &[u8],
        value: &[u8],
        cells: Cells,
    ) -> Result<Written, WriteError> {
        let written = self.try_upsert(&Upsert { kind, key, value, cells });
        self.failure = self.failure.or(written.err());
        written
    }

    fn try_upsert(&mut self, upsert: &Upsert<'_>) -> Result<Written, WriteError> {
        let Upsert { kind, key, value, cells } = *upsert;
        let memory = self.store.memory;
        let hash = record::hash(memory, kind, key);
        let old = index::find_block(memory, self.root, hash, kind, key);
        let replaced = old.map(|old| Record::new(memory, old));
        if replaced.is_some_and(|old| old.value() == value) {
            return Ok(Written::Unchanged);
        }
        let names = cells(kind, value);
        let mut needed_bytes = record::bytes_needed(key, value)?;
        let new_cells =
            names.names.len().saturating_sub(replaced.map_or(0, |old| old.cell_count()));
        if new_cells > 0 {
            needed_bytes += record::attachment_bytes(new_cells, names.words)?;
        }
        let is_less = replaced.is_some_and(|old| {
            record::bytes_needed(key, old.value()).is_ok_and(|before| needed_bytes <= before)
        });
        let space = self.space();
        let free_bytes = if is_less { space.free_for_less_bytes } else { space.free_bytes };
        if needed_bytes > free_bytes {
            return Err(WriteError::Full { needed_bytes, free_bytes });
        }
        self.has_changed = true;
        let before = replaced.map(|old| (old, cells(kind, old.value())));
        let before = before.as_ref().map(|(old, names)| (*old, names));
        let Attached { attachment, dropped } = record::attach(memory, &names, before)?;
        // Cells of this very write are treated the same: they wait for the next generation too.
        self.replaced.extend(dropped);
        let generation = self.next.generation;
        let new = NewRecord { generation, hash, kind, key, value, attachment };
        let new = record::write(memory, &new)?;
        failpoint("update.record");
        let mut editor = Editor { memory, generation, replaced: &mut self.replaced };
        self.root = editor.insert(self.root, new, old)?;
        match old {
            Some(old) => self.drop_record(old),
            None => self.next.counts[usize::from(kind).min(15)] += 1,
        }
        Ok(Written::Changed)
    }

    /// Removes a record; answers whether it was there. After an error the write can only be given up.
    pub fn remove(&mut self, kind: u8, key: &[u8]) -> Result<bool, WriteError> {
        let removed = self.try_remove(kind, key);
        self.failure = self.failure.or(removed.err());
        removed
    }

    fn try_remove(&mut self, kind: u8, key: &[u8]) -> Result<bool, WriteError> {
        let memory = self.store.memory;
        let hash = record::hash(memory, kind, key);
        let Some(old) = index::find_block(memory, self.root, hash, kind, key) else {
            return Ok(false);
        };
        self.has_changed = true;
        let generation = self.next.generation;
        let mut editor = Editor { memory, generation, replaced: &mut self.replaced };
        self.root = editor.remove(self.root, hash)?;
        self.next.counts[usize::from(kind).min(15)] -= 1;
        let record = Record::new(memory, old);
        self.replaced.extend(record.attachment_with_cells());
        self.drop_record(old);
        Ok(true)
    }

    /// Frees a record of this write at once, and lists an older one.
    fn drop_record(&mut self, block: Block) {
        if Record::new(self.store.memory, block).generation() == self.next.generation {
            arena::release(self.store.memory, block);
        } else {
            self.replaced.push(block);
        }
    }

    /// Publishes: from the moment this returns, every reader that begins sees what was written. A write
    /// that changed nothing publishes nothing.
    pub fn commit(mut self) -> Result<Live, WriteError> {
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        if !self.has_changed {
            self.is_finished = true;
            return Ok(Live { generation: self.next.generation - 1, ..self.next });
        }
        let memory = self.store.memory;
        let generation = reclaim::write_generation(memory, &self.next, self.root)?;
        self.replaced.push(self.current);
        if is_planted("retire-live") {
            self.replaced.push(self.root);
        }
        if is_planted("leak") {
            std::mem::forget(vec![1_u8; 100]);
        }
        reclaim::retire(memory, self.next.generation, &self.replaced)?;
        failpoint("publish.before");
        let order = if is_planted("relaxed-publish") { Relaxed } else { Release };
        memory.header().current.store(generation, order);
        failpoint("publish.after");
        self.free();
        self.is_finished = true;
        Ok(self.next)
    }

    /// Frees everything that no worker reads any more: makes room for a large write.
    pub fn free_all(&mut self) {
        while self.free() {}
    }

    fn free(&mut self) -> bool {
        reclaim::free_batches(self.store.memory, self.store.is_alive, FREED_PER_WRITE)
    }
}

impl<L: WriterLock> Drop for Transaction<'_, L> {
    fn drop(&mut self) {
        // After a panic the block is left as a killed process would leave it: the next writer recovers.
        if !std::thread::panicking() {
            if self.has_changed && !self.is_finished {
                reclaim::recover(self.store.memory);
            }
            self.store.memory.header().unfinished.store(0, Release);
        }
    }
}
