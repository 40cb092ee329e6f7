//! What all else stands on: handles, pools, texts, addresses, the log, and the guard around callbacks.

pub mod address;
pub(crate) mod callback;
pub mod chain;
pub mod clock;
pub mod code;
pub mod event_loop;
pub mod guard;
pub(crate) mod handle;
pub mod log;
pub mod pool;
pub mod text;
pub mod wiping;
