//! A host: who owns it, and what the claims of all Ingresses on it come to.

pub mod alias;
pub mod aliases;
pub mod certificate;
pub mod gate;
pub mod guests;
pub mod merge;
pub mod owner;
mod passthrough;
mod upstream_tls;
