//! Records, and the counters attached to them.
//!
//! A record: `generation u64, hash u64, kind and key length u32, value length u32, attachment u32, 0`,
//! then the key, then the value at a multiple of 8. Immutable once published.
//!
//! An attachment: `count u32, 0`, then that many 64-bit counters. It belongs to the key and not to one
//! version of its value: a record that replaces another takes the attachment over.

use crate::WriteError;
use crate::arena::{self, HEAD};
use crate::memory::{Block, Memory};
use siphasher::sip::SipHasher13;
use std::marker::PhantomData;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

const GENERATION: usize = HEAD;
const HASH: usize = HEAD + 8;
const KIND_AND_KEY_LENGTH: usize = HEAD + 16;
const VALUE_LENGTH: usize = HEAD + 20;
const ATTACHMENT: usize = HEAD + 24;
const KEY: usize = HEAD + 32;

const COUNT: usize = HEAD;
const COUNTERS: usize = HEAD + 8;

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

    /// Its kind.
    #[inline]
    pub fn kind(&self) -> u8 {
        self.memory.word(self.block, KIND_AND_KEY_LENGTH).load(Relaxed) as u8
    }

    /// Its key.
    #[inline]
    pub fn key(&self) -> &'g [u8] {
        self.bytes(KEY, self.key_length())
    }

    /// Its value.
    #[inline]
    pub fn value(&self) -> &'g [u8] {
        let length = self.memory.word(self.block, VALUE_LENGTH).load(Relaxed) as usize;
        self.bytes(value_offset(self.key_length()), length)
    }

    /// The generation that wrote this value: with the key it names the value for ever.
    pub fn generation(&self) -> u64 {
        self.memory.long(self.block, GENERATION).load(Relaxed)
    }

    /// The counters of its key; empty if it has none.
    #[inline]
    pub fn counters(&self) -> &'g [AtomicU64] {
        let attachment = self.attachment();
        if attachment == 0 {
            return &[];
        }
        let count = self.memory.word(attachment, COUNT).load(Relaxed) as usize;
        // SAFETY: an attachment lives as long as a record that names it, and has only counters here.
        unsafe { self.memory.longs(attachment, COUNTERS, count) }
    }

    pub(crate) fn block(&self) -> Block {
        self.block
    }

    pub(crate) fn attachment(&self) -> Block {
        self.memory.word(self.block, ATTACHMENT).load(Relaxed)
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

/// Bytes a record takes, its head and rounding included.
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
    // SAFETY: as above.
    unsafe { memory.write(block, value_at, new.value) };
    Ok(block)
}

/// An attachment whose counters are zero.
pub(crate) fn attach(memory: Memory, counters: usize) -> Result<Block, WriteError> {
    let count = u32::try_from(counters).map_err(|_| WriteError::TooLong { bytes: counters })?;
    let block = arena::allocate(memory, COUNTERS - HEAD + counters * 8)?;
    memory.word(block, COUNT).store(count, Relaxed);
    for counter in 0..counters {
        memory.long(block, COUNTERS + counter * 8).store(0, Relaxed);
    }
    Ok(block)
}
