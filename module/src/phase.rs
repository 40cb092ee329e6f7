//! One safe function a phase.

pub mod error;
pub mod rewrite;
