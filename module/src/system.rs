//! What the module asks of the process and the kernel: memory, clocks, the error log.

pub mod allocator;
#[cfg(feature = "failpoints")]
pub mod failpoints;
pub mod guard;
pub mod log;
pub mod memory;
