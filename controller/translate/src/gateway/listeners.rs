//! The listeners of Gateways and ListenerSets: what each of them serves, on which port and address, and which of them has a host.
//!
//! [`super::gateways`] makes them from the objects. Nothing here reads a route.

pub(super) mod address;
pub(super) mod host;
pub(super) mod isolation;
pub(super) mod left;
pub(super) mod opened;
pub(super) mod ports;
pub(super) mod protocol;
pub(super) mod state;
