//! Nothing: only the pinned version in Cargo.lock matters.
