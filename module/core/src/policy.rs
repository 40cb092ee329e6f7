//! The decisions of policies about a request. Their settings are in [`crate::model::policy`].
//!
//! * [`access`]: who may come in, by the three below.
//! * [`networks`]: whether an address lies in one of many networks.
//! * [`passwords`]: entries of a password file and what it costs to check one; [`fair_queue`]: the queue of such checks,
//!   fair among tenants.
//! * [`auth`]: the subrequest to an external auth server, and its answer.
//! * [`cors`]: the headers of cross-origin responses.
//! * [`limits`]: rates and concurrent connections of a client, counted by all workers together.

pub mod access;
pub mod auth;
pub mod buffers;
pub mod cors;
pub mod fair_queue;
pub mod limits;
pub mod networks;
pub mod passwords;
