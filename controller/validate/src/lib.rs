//! What a record may contain beyond its types: ciphers, protocols, key pairs, authorities, revocation lists.
//!
//! Shape:   [`tls`] has a function for each kind of text; [`record`] applies them to records, whose kinds define what is
//!          checked ([`oxigress_core::record::table::Record::validate`]). The controller checks what it translates, and the
//!          module checks what it receives, with this crate: OpenSSL can use whatever passes.
//! Errors:  texts that name the remedy, never a part of a key. [`Fault`] names the field of a record.
//! Rejected: separate checks in both programs, which differed: a cipher list of letters alone stopped all updates.
#![forbid(unsafe_code)]

pub mod record;
pub mod tls;

pub use oxigress_core::record::Fault;
