//! What several parts of the controller need of the network: listeners whose connections are bounded, a GET over a unix
//! socket, changes of folders, pauses between attempts, places that are given out in turns.
//!
//! Knows:     bytes, connections and time.
//! Does not:  know objects, nginx's configuration, or what is served.
//!
//! A crate of its own, because health checks and admission bound their connections alike, because the publisher and the
//! provider wait alike, and because admission and the provider give turns alike; neither of two may depend on the other.
#![forbid(unsafe_code)]

pub mod changes;
pub mod connections;
pub mod pause;
pub mod places;
pub mod socket;
