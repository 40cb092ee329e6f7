//! The words of the shared block: the processor's atomics, or loom's (feature `loom`).
//!
//! Shape:   `AtomicU32`, `AtomicU64` are used by several processes at once. `OrderedU32`, `OrderedU64` are
//!          not: something else, the publication or the writer's lock, orders every access to them. In the
//!          real block both are atomics; in a model the second kind fails the model when nothing orders it.

#[cfg(feature = "loom")]
pub(crate) mod words;

#[cfg(not(feature = "loom"))]
pub(crate) use std::sync::atomic::{
    AtomicU32, AtomicU32 as OrderedU32, AtomicU64, AtomicU64 as OrderedU64, fence,
};

#[cfg(feature = "loom")]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, fence};
#[cfg(feature = "loom")]
pub(crate) use words::{OrderedU32, OrderedU64};
