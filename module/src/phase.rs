//! One safe function a phase.

pub mod access;
pub mod error;
pub mod rewrite;
