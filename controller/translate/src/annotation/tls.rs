//! Annotations about TLS, toward clients and toward endpoints.

pub(super) mod client;
pub(super) mod upstream;
