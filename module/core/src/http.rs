//! HTTP messages as bytes: which headers and paths of a client are accepted, and what changes on the way.
//!
//! * [`header`]: names and values that a header may have; [`head`]: which headers of a client are kept.
//! * [`paths`]: request targets that servers read in more than one way.
//! * [`forwarded`]: scheme, host and port as a trusted proxy reports them.
//! * [`fastcgi`]: the parameters of a FastCGI request.
//! * [`date`]: dates of headers.
//! * [`head_lines`]: how many lines the head of a response has.
//! * [`input`]: which of a client's headers a change is about.
//! * [`media`]: the type that a path names.
//! * [`interim`]: 1xx responses before the final one.
//! * [`reverse`]: `Location` and `Set-Cookie` of endpoints, translated for the client.

pub mod date;
pub mod encoding;
pub mod fastcgi;
pub mod forwarded;
pub mod head;
pub mod head_lines;
pub mod header;
pub mod input;
pub mod interim;
pub mod media;
pub mod paths;
pub mod reverse;
