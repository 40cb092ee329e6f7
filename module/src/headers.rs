//! What policies say about heads: of requests as endpoints see them, and of responses as clients do; and bodies of responses.

pub mod compression;
pub mod directives;
pub mod draining;
pub mod fastcgi;
pub mod filter;
pub mod interim;
pub mod precontent;
pub mod requests;
pub mod responses;
pub mod reverse;
