//! A panic must not unwind into C, where it would end the worker and all its connections.

use super::log;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Lets a panic say where and why in nginx's log, in one line. The standard hook would write to standard error, which
/// may block.
pub fn report_panics() {
    std::panic::set_hook(Box::new(|info| {
        let why = info.payload_as_str().unwrap_or("without a message");
        match info.location() {
            Some(at) => log::cycle(log::ALERT, format_args!("ingress: panicked at {at}: {why}")),
            None => log::cycle(log::ALERT, format_args!("ingress: panicked: {why}")),
        }
    }));
}

/// Runs a callback's body; after a panic, says so in the error log and answers `fallback`.
///
/// Unwind safety: request state lives in nginx's pool and is dropped with the request; a writer that
/// panics leaves the store marked, and the next one repairs it.
pub fn contain<T>(callback: &str, fallback: T, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| {
        log::cycle(
            log::ALERT,
            format_args!("ingress: {callback} panicked, which is a bug: see the line before"),
        );
        fallback
    })
}
