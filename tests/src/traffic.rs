//! Clients, endpoints and what stands between them and the product.

pub mod client;
pub mod crowd;
pub mod endpoint;
pub mod fake_dns;
pub mod forwarder;
pub mod load;
pub mod mutual;
pub mod pinned;
pub mod session;
