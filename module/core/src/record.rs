//! Records: the bytes a generation keeps in shared memory, and views that read them in place.
//!
//! Shape:   a record has a [`Kind`], a key and a value. Values are flat, little-endian, without pointers and without
//!          alignment, so that a view needs no copy. Each kind has a file below; [`table`] lists them.
//! Units:   offsets count bytes from the beginning of the value.
//! Errors:  a view of damaged bytes has no content instead of panicking; encoding refuses nothing, since the model's
//!          types already did.
//! Source:  `zerocopy` checks the length once and then reads fields in place; offsets read by hand were the alternative.

mod check;
mod definition;
mod listener;
mod named;
mod policies;
mod server;
mod settings;
#[cfg(test)]
mod specimen;
mod stream;
pub mod table;
#[cfg(test)]
mod tests;
mod tls;
mod upstream;

pub use check::check;
pub use definition::{Checks, Fault};
pub use listener::{listener_of, listener_policy};
pub use named::{has_all, policies};
pub use policies::{check_policies, decode_policies};
pub use server::{
    Considered, MatchResult, MatchedRule, NoParts, RequestParts, RuleView, ServerView, closed_rule,
    encode_server,
};
pub use settings::SettingsView;
pub use stream::session::{ChosenTarget, SessionView};
pub use table::Kind;
pub use tls::certificate::CertificateView;
pub use tls::{check_tls_policy, decode_tls};
pub use upstream::backend::{AffinityView, BackendView, SplitView, decode_backend, encode_backend};
pub use upstream::endpoints::{
    Choice, EndpointView, EndpointsView, encode_endpoints, endpoints_bytes,
};

use crate::model::Snapshot;
use crate::wire::native::Patch;
use serde::de::DeserializeOwned;
use table::TABLES;

/// The records of one generation: the store, or a map in tests and in the controller.
pub trait Records<'g> {
    /// The value of a record; `None` if there is no such record.
    fn value(&self, kind: Kind, key: &[u8]) -> Option<&'g [u8]>;
}

impl<'g> Records<'g> for &'g std::collections::BTreeMap<(Kind, Vec<u8>), Vec<u8>> {
    fn value(&self, kind: Kind, key: &[u8]) -> Option<&'g [u8]> {
        self.get(&(kind, key.to_vec())).map(Vec::as_slice)
    }
}

/// A record to be written or removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The kind of the record.
    pub kind: Kind,
    /// The key of the record within its kind.
    pub key: Vec<u8>,
    /// The value to be written; `None` removes the record.
    pub value: Option<Vec<u8>>,
}

impl Change {
    /// A change that writes a record.
    pub fn upsert(kind: Kind, key: impl AsRef<[u8]>, value: Vec<u8>) -> Self {
        Change { kind, key: key.as_ref().to_vec(), value: Some(value) }
    }

    /// A change that removes a record.
    pub fn remove(kind: Kind, key: impl AsRef<[u8]>) -> Self {
        Change { kind, key: key.as_ref().to_vec(), value: None }
    }
}

/// The records of a whole snapshot.
pub fn snapshot_records(snapshot: Snapshot) -> Vec<Change> {
    delta_records(&Patch::of_whole(snapshot), |_, _| None)
}

/// The records that a delta writes and removes. `live` returns the value that a record has before the delta: the record of an
/// endpoint set depends on its backend too.
pub fn delta_records(patch: &Patch, live: impl Fn(Kind, &[u8]) -> Option<Vec<u8>>) -> Vec<Change> {
    let mut all = upstream::endpoints::changes(patch, live);
    let settings = patch.upsert.settings.iter();
    all.extend(settings.map(|s| Change::upsert(Kind::Settings, "", settings::encode_settings(s))));
    for table in &TABLES {
        (table.encode)(patch, &mut all);
    }
    for table in &TABLES {
        (table.removals)(patch, &mut all);
    }
    all
}

/// A record that workers read once and keep compiled is JSON, since nothing reads it per request.
fn encode_json(value: &(impl serde::Serialize + ?Sized)) -> Vec<u8> {
    // Strings, numbers and lists of them always have a JSON form.
    serde_json::to_vec(value).unwrap_or_default()
}

/// The value of such a record; `None` for damaged bytes.
fn decode_json<T: DeserializeOwned>(value: &[u8]) -> Option<T> {
    serde_json::from_slice(value).ok()
}

/// Checks such a record; `damaged` is the error of bytes that cannot be read.
fn check_json<T: DeserializeOwned>(
    value: &[u8],
    damaged: &'static str,
    check: impl FnOnce(&T) -> Result<(), Fault>,
) -> Result<(), Fault> {
    decode_json(value).map_or_else(|| Err(Fault::new("", damaged)), |value| check(&value))
}

/// A length as a record holds it; the model bounds every length far below 4 GiB.
fn length(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// The Kubernetes API bounds the texts of a rule far below 64 KiB; a longer one is cut, since it is only logged.
fn short(text: &str) -> &[u8] {
    let bytes = text.as_bytes();
    &bytes[..bytes.len().min(usize::from(u16::MAX))]
}

fn flag_if(is_set: bool, flag: u8) -> u8 {
    if is_set { flag } else { 0 }
}
