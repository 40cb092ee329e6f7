//! What a record may contain beyond its types: ciphers, protocols, key pairs, authorities, revocation lists.
//!
//! Shape:   [`tls`] has a function for each kind of text; [`record`] checks the bytes of a record with them. The
//!          controller asks when it translates, and the module asks again when it is written to, so both give one
//!          answer: whatever passes here can be used by OpenSSL.
//! Errors:  texts that name the remedy, never a part of a key. [`Fault`] says which field of a record is wrong.
//! Rejected: checks of their own in both programs, which differed: a cipher list of letters alone stopped all updates.
#![forbid(unsafe_code)]

pub mod record;
pub mod tls;

/// What is wrong with a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// JSON pointer of the field, from the record on; empty for the whole record.
    pub field: &'static str,
    /// What is wrong and what to do.
    pub error: String,
}

impl Fault {
    /// A fault of a field.
    pub fn new(field: &'static str, error: impl Into<String>) -> Self {
        Fault { field, error: error.into() }
    }
}
