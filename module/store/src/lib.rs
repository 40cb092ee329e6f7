//! Generations of records in one block of shared memory.
//!
//! Shape:   a [`Store`] is a handle to the block; a [`Reader`] belongs to one worker and looks records up;
//!          a [`Transaction`] changes them and publishes the next generation. A record is a kind (one
//!          byte), a key and a value, all opaque here.
//! Reading: no lock, no read-modify-write, no copy: one acquire load finds the root of a persistent trie.
//! Writing: the trie is copied along the changed paths only, everything else is shared with the last
//!          generation; one release store publishes. One writer at a time, under a [`WriterLock`].
//! Freeing: quiescent-state based. What a generation replaced is listed in a batch; it is freed when every
//!          live worker has acknowledged that generation or a later one.
//! Dying:   a process may be killed anywhere. The block then holds the old generation or the new one,
//!          whole; the next writer sees that its predecessor did not finish, marks what the live
//!          generation and the batches reach, and frees the rest.
//!
//! | file | idea | unsafe |
//! |---|---|---|
//! | `memory` | words and bytes at an offset, bounds-checked | yes |
//! | `model` | the same under loom, and what loom tries | yes |
//! | `layout` | the header: root, free lists, worker slots | no |
//! | `arena` | blocks of 32-byte granules, first fit by size class | no |
//! | `index` | the persistent trie | no |
//! | `record` | records and their cells | yes |
//! | `reclaim` | worker slots, batches, recovery | no |
//! | `reader`, `transaction` | what callers use | no |
//! | `journal` | the records in a file, for the next start | no |
//!
//! Nothing in the block is a function pointer, a lock or a reference; links are granule numbers, so the
//! block may be mapped anywhere.

mod arena;
mod fault_injection;
mod format;
mod index;
pub mod journal;
mod layout;
#[cfg(not(feature = "loom"))]
mod memory;
#[cfg(feature = "loom")]
mod model;
mod reader;
mod reclaim;
mod record;
mod sync;
mod transaction;

pub use fault_injection::failpoint::FAILPOINTS;
#[cfg(feature = "failpoints")]
pub use fault_injection::failpoint::set_hook;
#[cfg(feature = "planted-faults")]
pub use fault_injection::planted::is_planted;
pub use journal::Role;
pub use layout::MAX_SLOTS;
pub use reader::{CellPlace, Guard, Reader, RecordPlace};
pub use record::{CellNames, Cells, KeyHash, Record, cell_number, no_cells};
pub use transaction::{Transaction, Written};

use memory::Memory;
#[cfg(feature = "loom")]
use model::memory;
use std::ptr::NonNull;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// The error of a block of memory that is not a store.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The block is smaller than the header and a few records.
    #[error("{bytes} bytes are too few for a store, at least {least} are needed")]
    TooSmall {
        /// The bytes of the block.
        bytes: usize,
        /// The bytes of the smallest store.
        least: usize,
    },
    /// Another version wrote the block.
    #[error("the memory holds layout {found:#x}, this program reads {known:#x}: restart nginx")]
    Layout {
        /// The layout number in the memory.
        found: u64,
        /// The layout number of this program.
        known: u64,
    },
}

/// Why a write was refused. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// No block of this size is free, or only what is kept for removals.
    #[error("the store is full: {needed_bytes} bytes needed, {free_bytes} free")]
    Full {
        /// Bytes of the block that could not be had.
        needed_bytes: usize,
        /// Bytes that were free at the time, in blocks of any size: as many as were needed, or more, if none of
        /// the blocks was large enough.
        free_bytes: usize,
    },
    /// A key or value exceeds the length fields of a record.
    #[error("a record of {bytes} bytes is too long")]
    TooLong {
        /// Bytes of the key or the value.
        bytes: usize,
    },
    /// Two keys with one keyed 64-bit hash: does not happen by chance.
    #[error("two keys have the same hash")]
    Collision,
}

/// Excludes other writers, also those in other processes.
///
/// # Safety
/// While what `try_lock` has answered lives, no other `try_lock` of a lock for the same store answers
/// anything, unless the holder's process has died; and what the last holder wrote is visible to the next.
pub unsafe trait WriterLock {
    /// The lock while it is held: dropping it gives it back.
    type Held;
    /// Acquires the lock if it is free; never waits.
    fn try_lock(&self) -> Option<Self::Held>;
}

/// A handle to the shared block. Cheap to copy; all handles to one block are the same store.
#[derive(Clone, Copy)]
pub struct Store {
    memory: Memory,
    is_alive: fn(pid: u32) -> bool,
}

impl Store {
    /// Creates an empty store in the `bytes` at `start`.
    ///
    /// `seed` keys the hash of the keys: random, so that keys cannot be chosen to collide. `is_alive` returns whether
    /// a worker process still runs.
    ///
    /// # Safety
    /// The bytes are zeroed or unused before, readable and writable as long as any handle, reader or guard
    /// is used, and only stores access them. `start` is aligned to 64.
    pub unsafe fn create(
        start: NonNull<u8>,
        bytes: usize,
        seed: [u64; 2],
        epoch: u64,
        is_alive: fn(u32) -> bool,
    ) -> Result<Store, OpenError> {
        // SAFETY: so many bytes from there are mapped and nobody else's, as `create` asks.
        let memory = unsafe { Memory::new(start, bytes) };
        format::initialise(memory, bytes, seed)?;
        let store = Store { memory, is_alive };
        reclaim::first_generation(memory, epoch);
        Ok(store)
    }

    /// A handle to a store that [`Store::create`] made, perhaps in another process.
    ///
    /// # Safety
    /// As for [`Store::create`], but the bytes hold whatever was left there.
    pub unsafe fn open(
        start: NonNull<u8>,
        bytes: usize,
        is_alive: fn(u32) -> bool,
    ) -> Result<Store, OpenError> {
        // SAFETY: so many bytes from there are mapped and hold a store or garbage, as `open` asks; `check` refuses garbage.
        let memory = unsafe { Memory::new(start, bytes) };
        format::check(memory, bytes)?;
        Ok(Store { memory, is_alive })
    }

    /// The live generation and its epoch.
    pub fn live(&self) -> Live {
        let current = self.memory.header().current.load(Acquire);
        reclaim::live(self.memory, current)
    }

    /// Bytes that records can use, and how many of them are free. Freed records count once they are
    /// reclaimed. What is kept for removals is in neither.
    pub fn space(&self) -> Space {
        Space {
            capacity_bytes: arena::capacity(self.memory) as usize * memory::GRANULE,
            free_bytes: arena::free(self.memory) as usize * memory::GRANULE,
            free_for_less_bytes: arena::free_for_less(self.memory) as usize * memory::GRANULE,
        }
    }

    /// Stores a note for the next call of [`Store::note`]: at most 255 bytes are kept. Notes that two workers store
    /// at the same time may mix.
    pub fn set_note(&self, text: &str) {
        let note = &self.memory.header().note;
        let length = text.floor_char_boundary(note.len() - 1);
        for (place, byte) in note[1..].iter().zip(text[..length].bytes()) {
            place.store(byte, Relaxed);
        }
        note[0].store(length as u8, Relaxed);
    }

    /// The last note; empty if there is none.
    pub fn note(&self) -> String {
        let note = &self.memory.header().note;
        let length = usize::from(note[0].load(Relaxed));
        let bytes: Vec<u8> = note[1..=length].iter().map(|byte| byte.load(Relaxed)).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Whether replaced records wait for workers, or for the journal, to move on from them.
    pub fn has_garbage(&self) -> bool {
        reclaim::has_batches(self.memory)
    }

    /// Whether the store accepts writes, as the last write left it.
    pub fn role(&self) -> Role {
        match self.memory.header().journal.role.load(Acquire) {
            0 => Role::Leader,
            _ => Role::Follower,
        }
    }

    /// The number of slots that were ever used.
    pub fn slots_used(&self) -> usize {
        (self.memory.header().slots_used.load(Acquire) as usize).min(MAX_SLOTS)
    }

    /// The workers attached: slot, process id and acknowledged generation.
    pub fn workers(&self) -> Vec<(usize, u32, u64)> {
        let mut workers = reclaim::workers(self.memory);
        workers.retain(|(_, pid, _)| (self.is_alive)(*pid));
        workers
    }
}

/// The live generation of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Live {
    /// Identity of a line of generations.
    pub epoch: u64,
    /// Number of the generation; it only grows.
    pub generation: u64,
    /// Records by kind; kinds from 15 on share the last place.
    pub counts: [u32; 16],
}

/// The memory of a store, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// All that records can use.
    pub capacity_bytes: usize,
    /// Bytes that no record uses.
    pub free_bytes: usize,
    /// Bytes that a record may use which takes no more than the one that it replaces: more than `free_bytes`.
    pub free_for_less_bytes: usize,
}

#[cfg(all(test, not(feature = "loom")))]
mod tests;
