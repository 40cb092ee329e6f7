//! TLS toward clients: the certificate of a server name, what a host asks of its clients, and the bundles of authorities that
//! hosts and policies share.

pub mod bundles;
pub mod certificate;
pub mod client_certificate;
