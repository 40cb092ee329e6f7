//! What requests are sent to: backends, their endpoint sets, and the head of fixed length that both
//! have.

pub(super) mod backend;
pub(super) mod endpoints;
pub(super) mod framed;
