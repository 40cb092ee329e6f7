//! Records, and the cells attached to them.
//!
//! A record: `generation u64, hash u64, kind and key length u32, value length u32, attachment u32, 0`,
//! then the key, then the value at a multiple of 8. Immutable once published.
//!
//! A cell: 64-bit counters that every process changes, under a name of the record's key. Its first word holds a
//! number in its upper half that no other cell of this store has, by which a later look-up can tell
//! whether it is still the same.
//!
//! An attachment: `cells u32, words u32`, then the block of each cell, in the order of their names. A record
//! that replaces another takes over the cells whose names it has too; what they count goes on.

use crate::WriteError;
use crate::arena::{self, HEAD};
use crate::memory::{Block, Memory};
use siphasher::sip::SipHasher13;
use std::collections::{HashMap, HashSet};
use std::marker::PhantomData;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

const GENERATION: usize = HEAD;
const HASH: usize = HEAD + 8;
const KIND_AND_KEY_LENGTH: usize = HEAD + 16;
const VALUE_LENGTH: usize = HEAD + 20;
const ATTACHMENT: usize = HEAD + 24;
const KEY: usize = HEAD + 32;

const CELLS: usize = HEAD;
const WORDS: usize = HEAD + 4;
const CELL_BLOCKS: usize = HEAD + 8;

/// Of a cell: its words.
const CELL_WORDS: usize = HEAD;

/// In a batch: an attachment, and all of its cells. A removal lists one block for them, so that it needs little memory
/// in a store that is full.
pub(crate) const WITH_CELLS: Block = 1 << 31;

/// The cells of a record: their names, each once, and the size of each.
#[derive(Debug, Default)]
pub struct CellNames<'v> {
    /// Parts of the record's value, or texts of the program.
    pub names: Vec<&'v [u8]>,
    /// 64-bit words of each cell, the numbered one included.
    pub words: usize,
}

/// Says which cells a record of this kind and value has.
pub type Cells = for<'v> fn(kind: u8, value: &'v [u8]) -> CellNames<'v>;

/// [`Cells`] of records that have none.
pub fn no_cells(_: u8, _: &[u8]) -> CellNames<'static> {
    CellNames::default()
}

/// The hash of a key in this store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyHash(u64);

impl KeyHash {
    /// As a number, to keep it in a C struct.
    #[inline]
    pub fn to_bits(self) -> u64 {
        self.0
    }

    /// What [`KeyHash::to_bits`] gave. Any other number finds nothing.
    #[inline]
    pub fn from_bits(bits: u64) -> Self {
        KeyHash(bits)
    }
}

/// A record of one generation, read in place.
#[derive(Clone, Copy)]
pub struct Record<'g> {
    memory: Memory,
    block: Block,
    generation: PhantomData<&'g ()>,
}

impl<'g> Record<'g> {
    /// `block` is a record that stays allocated and unchanged for `'g`.
    #[inline]
    pub(crate) fn new(memory: Memory, block: Block) -> Self {
        arena::check_alive(memory, block);
        Record { memory, block, generation: PhantomData }
    }

    /// The kind of the record, as the caller numbers them.
    #[inline]
    pub fn kind(&self) -> u8 {
        self.memory.word(self.block, KIND_AND_KEY_LENGTH).load(Relaxed) as u8
    }

    /// The key of the record within its kind.
    #[inline]
    pub fn key(&self) -> &'g [u8] {
        self.bytes(KEY, self.key_length())
    }

    /// The value of the record, as it was written.
    #[inline]
    pub fn value(&self) -> &'g [u8] {
        let length = self.memory.word(self.block, VALUE_LENGTH).load(Relaxed) as usize;
        self.bytes(value_offset(self.key_length()), length)
    }

    /// The generation that wrote this value: with the key it names the value for ever.
    pub fn generation(&self) -> u64 {
        self.memory.long(self.block, GENERATION).load(Relaxed)
    }

    /// How many cells it has.
    #[inline]
    pub fn cell_count(&self) -> usize {
        match self.attachment() {
            0 => 0,
            attachment => self.memory.word(attachment, CELLS).load(Relaxed) as usize,
        }
    }

    /// One of its cells; `None` if it has fewer.
    #[inline]
    pub fn cell(&self, index: usize) -> Option<&'g [AtomicU64]> {
        let (cell, words) = self.cell_block(index)?;
        Some(Record::cell_of(self.memory, cell, words))
    }

    /// The cell with this number: the one at `place`, if that is still it, else wherever it is now.
    #[inline]
    pub fn cell_numbered(&self, place: usize, number: u32) -> Option<&'g [AtomicU64]> {
        let is_it = |cell: &&[AtomicU64]| cell_number(cell) == Some(number);
        self.cell(place).filter(is_it).or_else(|| {
            // The record has other cells than it had.
            (0..self.cell_count()).filter_map(|place| self.cell(place)).find(is_it)
        })
    }

    /// The block of one of its cells, and how many words it has.
    #[inline]
    pub(crate) fn cell_block(&self, index: usize) -> Option<(Block, u32)> {
        let attachment = self.attachment();
        if attachment == 0 || index >= self.memory.word(attachment, CELLS).load(Relaxed) as usize {
            return None;
        }
        let words = self.memory.word(attachment, WORDS).load(Relaxed);
        Some((self.memory.word(attachment, CELL_BLOCKS + index * 4).load(Relaxed), words))
    }

    /// A cell of a record that stays allocated for `'g`.
    #[inline]
    pub(crate) fn cell_of(memory: Memory, cell: Block, words: u32) -> &'g [AtomicU64] {
        arena::check_alive(memory, cell);
        // SAFETY: a cell lives as long as a record that names it, and has only counters here.
        unsafe { memory.longs(cell, CELL_WORDS, words as usize) }
    }

    /// Its attachment, as a batch names it together with its cells.
    pub(crate) fn attachment_with_cells(&self) -> Option<Block> {
        Some(self.attachment()).filter(|block| *block != 0).map(|block| block | WITH_CELLS)
    }

    /// The blocks of its attachment and of its cells.
    pub(crate) fn attached(&self) -> Vec<Block> {
        match self.attachment() {
            0 => Vec::new(),
            attachment => {
                std::iter::once(attachment).chain(cells(self.memory, attachment)).collect()
            }
        }
    }

    pub(crate) fn block(&self) -> Block {
        self.block
    }

    pub(crate) fn attachment(&self) -> Block {
        self.memory.word(self.block, ATTACHMENT).load(Relaxed)
    }

    /// The hash of its key.
    #[inline]
    pub fn key_hash(&self) -> KeyHash {
        KeyHash::from_bits(self.hash())
    }

    pub(crate) fn hash(&self) -> u64 {
        self.memory.long(self.block, HASH).load(Relaxed)
    }

    #[inline]
    pub(crate) fn is(&self, hash: u64, kind: u8, key: &[u8]) -> bool {
        self.hash() == hash && self.kind() == kind && self.key() == key
    }

    fn key_length(&self) -> usize {
        (self.memory.word(self.block, KIND_AND_KEY_LENGTH).load(Relaxed) >> 8) as usize
    }

    #[inline]
    fn bytes(&self, offset: usize, count: usize) -> &'g [u8] {
        // SAFETY: key and value are written before the record is published and never after, and a block
        // that a guard can reach is not freed while the guard lives.
        unsafe { self.memory.bytes(self.block, offset, count) }
    }
}

fn value_offset(key_length: usize) -> usize {
    (KEY + key_length).next_multiple_of(8)
}

/// The hash of a key: keyed, so that a client cannot choose names that collide.
#[inline]
pub(crate) fn hash(memory: Memory, kind: u8, key: &[u8]) -> u64 {
    let seed = &memory.header().seed;
    let second = seed[1].load(Relaxed) ^ u64::from(kind);
    SipHasher13::new_with_keys(seed[0].load(Relaxed), second).hash(key)
}

/// The bytes of a record, including head and rounding.
pub(crate) fn bytes_needed(key: &[u8], value: &[u8]) -> Result<usize, WriteError> {
    let payload = value_offset(key.len()) + value.len() - HEAD;
    Ok(arena::granules_for(payload)? as usize * crate::memory::GRANULE)
}

/// What a record is made of.
pub(crate) struct NewRecord<'a> {
    pub generation: u64,
    pub hash: u64,
    pub kind: u8,
    pub key: &'a [u8],
    pub value: &'a [u8],
    pub attachment: Block,
}

/// A record that is not published yet.
pub(crate) fn write(memory: Memory, new: &NewRecord<'_>) -> Result<Block, WriteError> {
    let key_length = u32::try_from(new.key.len()).ok().filter(|length| *length < 1 << 24);
    let key_length = key_length.ok_or(WriteError::TooLong { bytes: new.key.len() })?;
    let value_length = u32::try_from(new.value.len())
        .map_err(|_| WriteError::TooLong { bytes: new.value.len() })?;
    let value_at = value_offset(new.key.len());
    let block = arena::allocate(memory, value_at + new.value.len() - HEAD)?;
    memory.long(block, GENERATION).store(new.generation, Relaxed);
    memory.long(block, HASH).store(new.hash, Relaxed);
    memory.word(block, KIND_AND_KEY_LENGTH).store(u32::from(new.kind) | key_length << 8, Relaxed);
    memory.word(block, VALUE_LENGTH).store(value_length, Relaxed);
    memory.word(block, ATTACHMENT).store(new.attachment, Relaxed);
    // SAFETY: the block was just allocated: only this writer knows it.
    unsafe { memory.write(block, KEY, new.key) };
    // SAFETY: this writer alone knows the block, which has room for the value behind the key.
    unsafe { memory.write(block, value_at, new.value) };
    Ok(block)
}

/// The number by which a cell differs from every other of the store.
#[inline]
pub fn cell_number(cell: &[AtomicU64]) -> Option<u32> {
    Some((cell.first()?.load(Relaxed) >> 32) as u32)
}

/// The blocks of an attachment's cells.
pub(crate) fn cells(memory: Memory, attachment: Block) -> impl Iterator<Item = Block> {
    let count = memory.word(attachment, CELLS).load(Relaxed) as usize;
    (0..count).map(move |place| memory.word(attachment, CELL_BLOCKS + place * 4).load(Relaxed))
}

/// The attachment of a record with this value.
pub(crate) struct Attached {
    /// 0: it has no cells.
    pub attachment: Block,
    /// What only the record that is replaced had.
    pub dropped: Vec<Block>,
}

/// Bytes of an attachment with so many cells of `words` words, all new.
pub(crate) fn attachment_bytes(cells: usize, words: usize) -> Result<usize, WriteError> {
    let table = arena::granules_for(CELL_BLOCKS - HEAD + cells * 4)?;
    let cell = arena::granules_for(words * 8)?;
    Ok((table as usize + cells * cell as usize) * crate::memory::GRANULE)
}

/// The attachment for a record that has `new` cells and replaces `old`, which has those of the second part.
/// Cells that are new are zero but for their number.
pub(crate) fn attach(
    memory: Memory,
    new: &CellNames<'_>,
    old: Option<(Record<'_>, &CellNames<'_>)>,
) -> Result<Attached, WriteError> {
    let had = old.map_or(0, |(old, _)| old.attachment());
    let is_same =
        old.is_some_and(|(_, names)| names.names == new.names && names.words == new.words);
    if is_same || new.names.is_empty() && had == 0 {
        return Ok(Attached { attachment: had, dropped: Vec::new() });
    }
    let mut left: HashMap<&[u8], Block> = HashMap::new();
    if let Some((old, names)) = old.filter(|(_, names)| names.words == new.words) {
        left = names.names.iter().copied().zip(old.attached().into_iter().skip(1)).collect();
    }
    let mut attachment = 0;
    if !new.names.is_empty() {
        let too_long = |_| WriteError::TooLong { bytes: new.names.len() };
        let count = u32::try_from(new.names.len()).map_err(too_long)?;
        attachment = arena::allocate(memory, CELL_BLOCKS - HEAD + new.names.len() * 4)?;
        memory.word(attachment, CELLS).store(count, Relaxed);
        memory.word(attachment, WORDS).store(new.words as u32, Relaxed);
        for (place, name) in new.names.iter().enumerate() {
            let cell = match left.remove(name) {
                Some(cell) => cell,
                None => new_cell(memory, new.words)?,
            };
            memory.word(attachment, CELL_BLOCKS + place * 4).store(cell, Relaxed);
        }
    }
    let kept: HashSet<Block> = match attachment {
        0 => HashSet::new(),
        attachment => cells(memory, attachment).collect(),
    };
    let mut dropped = old.map_or_else(Vec::new, |(old, _)| old.attached());
    dropped.retain(|block| !kept.contains(block));
    Ok(Attached { attachment, dropped })
}

fn new_cell(memory: Memory, words: usize) -> Result<Block, WriteError> {
    let cell = arena::allocate(memory, words * 8)?;
    let numbers = &memory.header().cell_numbers;
    let number = numbers.load(Relaxed).wrapping_add(1).max(1);
    numbers.store(number, Relaxed);
    for word in 0..words {
        let value = if word == 0 { u64::from(number) << 32 } else { 0 };
        memory.long(cell, CELL_WORDS + word * 8).store(value, Relaxed);
    }
    Ok(cell)
}
