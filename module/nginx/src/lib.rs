//! A safe layer over nginx, for modules written in Rust.

mod guard;
pub mod log;
pub mod sys;

pub use guard::contain;
