//! A panic must not unwind into C, where it would end the worker and all its connections.

use super::log;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs a callback's body; after a panic, says so in the error log and answers `fallback`.
///
/// Unwind safety: request state lives in nginx's pool and is dropped with the request; a writer that
/// panics leaves the store marked, and the next one repairs it.
pub fn contain<T>(callback: &str, fallback: T, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| {
        log::cycle(
            log::ALERT,
            format_args!("ingress: {callback} panicked, which is a bug: see stderr"),
        );
        fallback
    })
}
