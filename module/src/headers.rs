//! What policies say about heads: of requests as endpoints see them, and of responses as clients do.

pub mod requests;
pub mod responses;
