//! The header of the block.

use crate::sync;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};

/// The number of worker slots, nginx's `NGX_MAX_PROCESSES`.
pub const MAX_SLOTS: usize = if cfg!(feature = "loom") { 2 } else { 1024 };

/// Size classes: 32 exact ones, then 8 for each power of two up to 2^32 granules, rounded to words.
pub(crate) const CLASSES: usize = 256;

#[repr(C)]
pub(crate) struct Header {
    pub layout: sync::OrderedU64,
    pub bytes: sync::OrderedU64,
    pub seed: [sync::OrderedU64; 2],
    /// The generation that is live: the one word that publishes.
    pub current: sync::AtomicU32,
    /// A writer is at work; still set when the next one comes: it died.
    pub unfinished: sync::OrderedU32,
    /// Batches of replaced blocks, oldest first.
    pub oldest_batch: AtomicU32,
    pub newest_batch: sync::OrderedU32,
    /// One past the highest slot ever used.
    pub slots_used: sync::AtomicU32,
    pub first_block: AtomicU32,
    /// Granules that blocks can use, and how many are free.
    pub capacity: AtomicU32,
    pub free: AtomicU32,
    /// First free block of each size class, and which classes have one.
    pub free_lists: [AtomicU32; CLASSES],
    pub free_classes: [AtomicU64; CLASSES / 64],
    /// The last number that was given to a cell.
    pub cell_numbers: AtomicU32,
    /// A length and that many bytes of text for operators.
    pub note: [AtomicU8; 256],
    /// The state of the journal for this store ([`crate::journal`]).
    pub journal: Journal,
    /// The generation that the journal's step still needs; its process in `pid`.
    pub pin: Slot,
    pub slots: [Slot; MAX_SLOTS],
}

/// Who keeps this store's journal, and how far it is.
#[cfg_attr(feature = "loom", derive(Default))]
#[repr(C)]
pub(crate) struct Journal {
    /// The process that writes or follows the journal; 0: none yet.
    pub agent: AtomicU32,
    /// The role of this nginx as a number of [`crate::Role`].
    pub role: AtomicU32,
    /// The time when the store was created: a later store takes over from an earlier one.
    pub birth: AtomicU64,
    /// The last generation in the file.
    pub written: AtomicU64,
}

/// What one worker has seen. A cache line of its own, since its worker writes it.
#[cfg_attr(feature = "loom", derive(Default))]
#[repr(C, align(64))]
pub(crate) struct Slot {
    /// The process id of the worker; 0 if the slot is free.
    pub pid: sync::AtomicU32,
    /// The worker holds no reference to anything older than this generation.
    pub acknowledged: sync::AtomicU64,
}

#[cfg(all(test, feature = "loom"))]
impl Header {
    /// Zeroes: loom's words have to be made.
    pub(crate) fn new() -> Header {
        Header {
            layout: Default::default(),
            bytes: Default::default(),
            seed: Default::default(),
            current: Default::default(),
            unfinished: Default::default(),
            oldest_batch: Default::default(),
            newest_batch: Default::default(),
            slots_used: Default::default(),
            first_block: Default::default(),
            capacity: Default::default(),
            free: Default::default(),
            free_lists: std::array::from_fn(|_| Default::default()),
            free_classes: Default::default(),
            cell_numbers: Default::default(),
            note: std::array::from_fn(|_| Default::default()),
            journal: Default::default(),
            pin: Default::default(),
            slots: Default::default(),
        }
    }
}
