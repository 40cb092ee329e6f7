//! Words and bytes of the shared block, by granule.
//!
//! Every word is an atomic, also where only the writer looks: relaxed loads and stores cost nothing, and
//! with them the trie, the free lists and the batches are safe code. Every access is bounds-checked; a
//! number out of range panics, which the module's callbacks contain.

use crate::layout::Header;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// Blocks are multiples of this many bytes and begin at such a multiple.
pub(crate) const GRANULE: usize = 32;

/// A block, by the number of its first granule; 0 is none.
pub(crate) type Block = u32;

/// The shared block of memory.
#[derive(Clone, Copy)]
pub(crate) struct Memory {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the words are atomics, and bytes are only handed out while no process writes them.
unsafe impl Send for Memory {}
// SAFETY: atomics may be used by many at once, and so may bytes that no process writes.
unsafe impl Sync for Memory {}

impl Memory {
    /// # Safety
    /// As for `Store::create`: aligned, readable, writable, used by stores only.
    pub(crate) unsafe fn new(start: NonNull<u8>, bytes: usize) -> Self {
        assert!(start.as_ptr().addr().is_multiple_of(64), "a store begins at a multiple of 64");
        crate::fault_injection::planted::is_planted("");
        Memory { start, bytes }
    }

    #[inline]
    fn at(&self, block: Block, offset: usize, bytes: usize, align: usize) -> *mut u8 {
        let from = block as usize * GRANULE + offset;
        assert!(from.is_multiple_of(align) && from + bytes <= self.bytes, "outside of the store");
        // SAFETY: within the memory, checked above.
        unsafe { self.start.as_ptr().add(from) }
    }

    #[inline]
    pub(crate) fn header(&self) -> &Header {
        let at = self.at(0, 0, size_of::<Header>(), align_of::<Header>());
        // SAFETY: in bounds and aligned; a header consists of atomics, for which any bytes are a value.
        unsafe { &*at.cast::<Header>() }
    }

    /// The 32-bit word `offset` bytes into a block.
    #[inline]
    pub(crate) fn word(&self, block: Block, offset: usize) -> &AtomicU32 {
        let at = self.at(block, offset, 4, 4);
        // SAFETY: in bounds and aligned; any bytes are a value.
        unsafe { &*at.cast::<AtomicU32>() }
    }

    /// The 64-bit word `offset` bytes into a block.
    #[inline]
    pub(crate) fn long(&self, block: Block, offset: usize) -> &AtomicU64 {
        let at = self.at(block, offset, 8, 8);
        // SAFETY: in bounds and aligned; any bytes are a value.
        unsafe { &*at.cast::<AtomicU64>() }
    }

    /// `count` 64-bit words from `offset` bytes into a block.
    ///
    /// # Safety
    /// The block stays allocated for `'a`, and these bytes are only used as atomics.
    #[inline]
    pub(crate) unsafe fn longs<'a>(
        self,
        block: Block,
        offset: usize,
        count: usize,
    ) -> &'a [AtomicU64] {
        let at = self.at(block, offset, count * 8, 8);
        // SAFETY: in bounds and aligned, which `at` checks; the block is not freed during `'a`, as the contract says.
        unsafe { std::slice::from_raw_parts(at.cast::<AtomicU64>(), count) }
    }

    /// Bytes of a block.
    ///
    /// # Safety
    /// Nothing writes these bytes during `'a`.
    #[inline]
    pub(crate) unsafe fn bytes<'a>(self, block: Block, offset: usize, count: usize) -> &'a [u8] {
        let at = self.at(block, offset, count, 1);
        // SAFETY: in bounds, which `at` checks; nothing writes the bytes during `'a`, as the contract says.
        unsafe { std::slice::from_raw_parts(at, count) }
    }

    /// Writes bytes of a block.
    ///
    /// # Safety
    /// Nobody reads or writes these bytes at the same time: the block is not published yet.
    pub(crate) unsafe fn write(&self, block: Block, offset: usize, bytes: &[u8]) {
        let at = self.at(block, offset, bytes.len(), 1);
        if crate::fault_injection::planted::is_planted("overrun") {
            // SAFETY: none, that is the fault.
            unsafe { self.start.as_ptr().add(self.bytes).write(1) };
        }
        // SAFETY: in bounds; the source is a Rust slice that cannot overlap an unpublished block.
        unsafe { at.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) }
    }
}
