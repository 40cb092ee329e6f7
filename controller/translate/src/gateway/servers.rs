//! What is served on each host of each listener: the rules of its routes and Ingresses put together, and which route has the
//! sessions of a port or a server name.
//!
//! [`memo`] keeps what was compiled and merged, for the next build.

pub(super) mod conflict;
pub(super) mod memo;
pub(super) mod merge;
pub(super) mod rank;
pub(super) mod serve;
pub(super) mod served;
pub(super) mod sessions;
pub(super) mod spots;
