//! nginx's own names, as bindgen reads them from the headers of the nginx at hand, and the few that are macros there.
//!
//! One set for everything: structs with bitfields, functions, OpenSSL as far as nginx speaks it, and the structs that
//! some of nginx's modules keep to themselves. A test compares fields and bitfields with where the C compiler puts them.

#![allow(
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unsafe_op_in_unsafe_fn,
    improper_ctypes,
    unnecessary_transmutes,
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    clippy::missing_safety_doc,
    reason = "generated"
)]

include!(concat!(env!("OUT_DIR"), "/bindings.rs"));

/// Copies one of nginx's global variables, or a field of one.
macro_rules! global {
    ($($place:tt)+) => {{
        // SAFETY: a number or pointer that nginx sets when it starts, or writes on the event loop's thread; it is copied at
        // once, and a thread that reads it meanwhile gets the old or the new one.
        #[allow(unused_unsafe, reason = "some are copied within an unsafe block")]
        let copy = unsafe { (&raw const $crate::sys::$($place)+).read_volatile() };
        copy
    }};
}

pub(crate) use global;

mod event;
mod header_field;
mod values;

pub use event::{ngx_add_timer, ngx_del_timer, ngx_delete_posted_event, ngx_post_event};
pub use header_field::HeaderField;
pub use values::*;

#[cfg(test)]
mod tests;
