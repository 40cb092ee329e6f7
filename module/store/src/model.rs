//! What loom tries: every order of the steps of readers and writers, and every value that the memory model
//! lets a load see (feature `loom`, `nginx-build/checks/sanitize loom`).
//!
//! Shape:   the code is the store's own, on a block that reports every access to loom. Only the words that
//!          several processes use at once (the live generation, the slots, the lock) are choices of loom's. All
//!          others must be ordered by those, and an access that is not fails the model, whatever the
//!          interleaving: that covers a record read while it is written or after it was freed. Freed blocks
//!          are overwritten (feature `poison`).
//! Bound:   `LOOM_MAX_PREEMPTIONS`, by default 2: how often a thread is preempted.
//! Missing: loom knows no SeqCst order but that of fences, which is what the store uses. Counters and notes
//!          are no part of it, nor are the bytes of a zone that is mapped elsewhere.

pub(crate) mod memory;

#[cfg(test)]
mod tests;
