//! Sessions of TCP and UDP, and of TLS that is not terminated here: which port or server name leads
//! to which backend.

pub(super) mod passthrough;
pub(super) mod port;
pub(super) mod session;
