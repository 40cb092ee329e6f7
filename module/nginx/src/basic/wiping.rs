//! Memory that is overwritten before it is given back: what held a key or a password.

use std::alloc::{GlobalAlloc, Layout, System};

/// Overwrites memory with zeroes, also where the compiler sees that nobody reads it again.
///
/// # Safety
/// The memory may be written, and nothing else uses it.
pub(crate) unsafe fn wipe(start: *mut u8, length: usize) {
    // SAFETY: the caller has so many bytes to write.
    unsafe { libc::explicit_bzero(start.cast(), length) };
}

/// The system's allocator, which overwrites what is given back to it.
///
/// A text with a secret passes many hands: a parser's scratch space, strings, growing vectors that move. Whoever wipes each
/// of them by hand forgets one. All of them end here, so nothing of it stays in freed memory, where a core file or another
/// defect could show it.
pub struct WipingAllocator;

// SAFETY: the system's allocator, with the same layouts. `realloc` is the trait's own: a new block, a copy, and the old
// block through `dealloc`; the system's would leave a copy behind when it moves a block.
unsafe impl GlobalAlloc for WipingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller has a layout that is not empty.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller has a layout that is not empty.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller has a block of this allocator's, with its layout, and nobody uses it any more.
        unsafe {
            wipe(block, layout.size());
            System.dealloc(block, layout);
        }
    }
}
