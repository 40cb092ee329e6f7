//! One safe function a phase.

pub mod access;
