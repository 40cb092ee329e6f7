//! The block of a model: `memory.rs` with every access reported to loom.

use crate::layout::Header;
use crate::sync::words::Watch;
use std::ptr::NonNull;
use std::sync::atomic::Ordering::{self, Relaxed};
use std::sync::atomic::{AtomicU32, AtomicU64};

pub(crate) const GRANULE: usize = 32;

pub(crate) type Block = u32;

/// Stands where a store's bytes would.
pub(crate) struct Backing {
    header: Header,
    /// As in the real block, words, longs and bytes are views of the same memory.
    longs: Vec<AtomicU64>,
    /// One for each 32-bit word.
    watches: Vec<Watch>,
}

#[cfg(test)]
impl Backing {
    pub(crate) fn new(bytes: usize) -> Backing {
        Backing {
            header: Header::new(),
            longs: (0..bytes / 8).map(|_| AtomicU64::new(0)).collect(),
            watches: (0..bytes / 4).map(|_| Watch::default()).collect(),
        }
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Memory(NonNull<Backing>);

// SAFETY: loom runs the threads of a model on one thread of the system.
unsafe impl Send for Memory {}
// SAFETY: there is one thread of the system, so nobody uses it at the same time.
unsafe impl Sync for Memory {}

/// A word in a block.
pub(crate) struct Word<'m>(&'m AtomicU32, &'m Watch);

impl Word<'_> {
    #[track_caller]
    pub(crate) fn load(&self, _: Ordering) -> u32 {
        self.1.read();
        self.0.load(Relaxed)
    }

    #[track_caller]
    pub(crate) fn store(&self, value: u32, _: Ordering) {
        self.1.write();
        self.0.store(value, Relaxed);
    }
}

/// Two words in a block.
pub(crate) struct Long<'m>(&'m AtomicU64, &'m [Watch]);

impl Long<'_> {
    #[track_caller]
    pub(crate) fn load(&self, _: Ordering) -> u64 {
        self.1.iter().for_each(Watch::read);
        self.0.load(Relaxed)
    }

    #[track_caller]
    pub(crate) fn store(&self, value: u64, _: Ordering) {
        self.1.iter().for_each(Watch::write);
        self.0.store(value, Relaxed);
    }
}

impl Memory {
    /// # Safety
    /// `start` is a [`Backing`] of so many bytes that outlives every handle.
    pub(crate) unsafe fn new(start: NonNull<u8>, _bytes: usize) -> Self {
        Memory(start.cast())
    }

    fn backing<'a>(self) -> &'a Backing {
        // SAFETY: a `Backing` that outlives every handle, as `new` asks.
        unsafe { self.0.as_ref() }
    }

    pub(crate) fn header(&self) -> &Header {
        &self.backing().header
    }

    fn watches<'a>(self, block: Block, offset: usize, bytes: usize) -> &'a [Watch] {
        let from = block as usize * GRANULE + offset;
        &self.backing().watches[from / 4..(from + bytes).div_ceil(4)]
    }

    fn at(self, block: Block, offset: usize, bytes: usize) -> *mut u8 {
        let from = block as usize * GRANULE + offset;
        let longs = &self.backing().longs;
        assert!(from + bytes <= longs.len() * 8, "outside of the store");
        // SAFETY: within the vector, checked above.
        unsafe { longs.as_ptr().cast::<u8>().cast_mut().add(from) }
    }

    pub(crate) fn word(&self, block: Block, offset: usize) -> Word<'_> {
        let at = self.at(block, offset, 4);
        assert!(at.addr().is_multiple_of(4));
        // SAFETY: in bounds and aligned.
        Word(unsafe { &*at.cast::<AtomicU32>() }, &self.watches(block, offset, 4)[0])
    }

    pub(crate) fn long(&self, block: Block, offset: usize) -> Long<'_> {
        let at = self.at(block, offset, 8);
        assert!(at.addr().is_multiple_of(8));
        // SAFETY: in bounds and aligned.
        Long(unsafe { &*at.cast::<AtomicU64>() }, self.watches(block, offset, 8))
    }

    /// # Safety
    /// As in `memory.rs`. Counters are no part of any model.
    pub(crate) unsafe fn longs<'a>(
        self,
        block: Block,
        offset: usize,
        count: usize,
    ) -> &'a [AtomicU64] {
        let at = self.at(block, offset, count * 8);
        // SAFETY: in bounds and aligned, which `at` checks; loom has checked that the block is not freed.
        unsafe { std::slice::from_raw_parts(at.cast::<AtomicU64>(), count) }
    }

    /// # Safety
    /// As in `memory.rs`; loom checks it at the time of the call.
    #[track_caller]
    pub(crate) unsafe fn bytes<'a>(self, block: Block, offset: usize, count: usize) -> &'a [u8] {
        self.watches(block, offset, count).iter().for_each(Watch::read);
        let at = self.at(block, offset, count);
        // SAFETY: in bounds, which `at` checks; loom has checked that nothing writes the bytes.
        unsafe { std::slice::from_raw_parts(at, count) }
    }

    /// # Safety
    /// As in `memory.rs`; loom checks it.
    #[track_caller]
    pub(crate) unsafe fn write(&self, block: Block, offset: usize, bytes: &[u8]) {
        self.watches(block, offset, bytes.len()).iter().for_each(Watch::write);
        let at = self.at(block, offset, bytes.len());
        // SAFETY: in bounds; the source is a Rust slice that cannot overlap an unpublished block.
        unsafe { at.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) }
    }
}
