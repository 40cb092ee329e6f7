//! Connections and file descriptors kept back for the configuration endpoint ([`nginx::reserve`]): a write gets through
//! when clients have used everything else up.
//!
//! Rejected:  a margin within the router: a client that sends no request never comes to it.

use crate::conf::Http;
use nginx::Cycle;

/// Writes that get through at once to a worker that has nothing left: the controller has one under way, and
/// somebody may look at the status.
const KEPT: usize = 8;
/// And at most this part of the connections that are free at the start.
const PART: usize = 8;

/// Begins to keep, in a worker whose listeners are open.
pub fn start(cycle: &Cycle) {
    nginx::reserve::start(cycle, KEPT, PART, |server| server.conf::<Http>().has_configuration);
}
