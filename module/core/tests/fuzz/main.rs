//! Invariants of the parsers for any input: `oxigress_fuzz` makes the inputs.
//!
//! The name of a target is `fuzz_NAME`; docs/soak.md lists how long each ran.
#![allow(clippy::unwrap_used, reason = "a test")]

mod access;
mod cookies;
mod paths;
mod texts;
mod wire;

/// Text that would end a line, or a C string.
fn ends_a_line(text: &[u8]) -> bool {
    text.iter().any(|byte| b"\r\n\0".contains(byte))
}

/// What a request line cannot have within its target.
fn ends_a_target(text: &[u8]) -> bool {
    text.iter().any(|byte| byte.is_ascii_control() || *byte == b' ')
}
