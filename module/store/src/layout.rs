//! The header of the block.

use crate::OpenError;
use crate::arena;
use crate::memory::{GRANULE, Memory};
use crate::record::WITH_CELLS;
use crate::sync;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};

/// The number of worker slots, nginx's `NGX_MAX_PROCESSES`.
pub const MAX_SLOTS: usize = if cfg!(feature = "loom") { 2 } else { 1024 };

/// "oxigress", and the number of the layout in its last byte. A change of any structure in the block
/// changes the number: two layouts never read each other.
const LAYOUT: u64 = u64::from_be_bytes(*b"oxigres\x03");

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
    pub free_lists: [AtomicU32; arena::CLASSES],
    pub free_classes: [AtomicU64; arena::CLASSES / 64],
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

pub(crate) fn initialise(memory: Memory, bytes: usize, seed: [u64; 2]) -> Result<(), OpenError> {
    let first = size_of::<Header>().div_ceil(GRANULE);
    // Room for a generation and a few records, and the last granule that ends the arena.
    let least = (first + 64) * GRANULE;
    // Granule numbers have 31 bits: 64 GiB. The highest bit is of batches.
    let end = u32::try_from(bytes / GRANULE).unwrap_or(WITH_CELLS).min(WITH_CELLS - 1);
    if bytes < least {
        return Err(OpenError::TooSmall { bytes, least });
    }
    let header = memory.header();
    header.seed[0].store(seed[0], Relaxed);
    header.seed[1].store(seed[1], Relaxed);
    header.first_block.store(first as u32, Relaxed);
    header.capacity.store(end - 1 - first as u32, Relaxed);
    header.bytes.store(bytes as u64, Relaxed);
    arena::rebuild(memory, &mut []);
    header.layout.store(LAYOUT, Release);
    Ok(())
}

pub(crate) fn check(memory: Memory, bytes: usize) -> Result<(), OpenError> {
    let least = size_of::<Header>();
    if bytes < least {
        return Err(OpenError::TooSmall { bytes, least });
    }
    let header = memory.header();
    let found = header.layout.load(Relaxed);
    if found != LAYOUT || header.bytes.load(Relaxed) != bytes as u64 {
        return Err(OpenError::Layout { found, known: LAYOUT });
    }
    Ok(())
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
