//! The balancer: which endpoint gets a request or session, and what is known and kept of endpoints.

pub mod attempt;
pub mod choose;
pub mod destinations;
pub mod idle;
pub mod keepalive;
pub mod outcome;
pub mod peer;
pub mod selection;
