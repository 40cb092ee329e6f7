//! A panic must not unwind into C, where it would end the process with all its connections.

use crate::basic::log::{self, Level};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs the body of a callback. After a panic it says so in the error log and answers `fallback`.
///
/// Whatever the body was changing is left as it was at that moment, which is why callers choose a fallback that ends the
/// request. The reason of the panic is what the process's panic hook makes of it.
pub fn contain<T>(callback: &str, fallback: T, body: impl FnOnce() -> T) -> T {
    caught(body).unwrap_or_else(|| {
        let line = format_args!("{callback} panicked, which is a bug: see the line before");
        log::write(Level::Alert, line);
        fallback
    })
}

/// The same for a callback with an answer that says enough in place of a line; `None`: it panicked.
pub fn caught<T>(body: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(body)).ok()
}
