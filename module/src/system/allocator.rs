//! What the module's Rust code gives back to the system's allocator is overwritten first.
//!
//! A document with private keys passes many hands: the text, the parser's scratch space, strings, records, growing
//! vectors that move. Whoever wipes each of them by hand forgets one. All of them end here, so nothing of a key stays
//! in freed memory, where a core file or another defect could show it.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};

#[global_allocator]
static ALLOCATOR: Wiping = Wiping;

struct Wiping;

// SAFETY: the system's allocator, with the same layouts. `realloc` is the trait's own: a new block, a copy, and the old
// block through `dealloc`; the system's would leave a copy behind when it moves a block.
unsafe impl GlobalAlloc for Wiping {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller has a block of this allocator's, with its layout.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller has a block of this allocator's, with its layout.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: a block of that size, which nobody uses any more.
        unsafe { wipe(block, layout.size()) };
        // SAFETY: the caller has a block of this allocator's, with its layout.
        unsafe { System.dealloc(block, layout) }
    }
}

/// Overwrites memory with zeroes, also where the compiler sees that nobody reads it again.
///
/// # Safety
/// The memory may be written, and nothing else uses it.
pub unsafe fn wipe(start: *mut u8, length: usize) {
    // SAFETY: the caller has a block of this allocator's, with its layout.
    unsafe { libc::explicit_bzero(start.cast(), length) };
}
