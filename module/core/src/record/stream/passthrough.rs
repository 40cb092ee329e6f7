//! TLS connections that are passed through by their server name.

use crate::model::{BackendId, HostPattern};
use crate::record::definition::Record;

/// The kind of record that holds the id of the backend to which the TLS connections of a server name are passed through,
/// without being decrypted.
pub enum Passthroughs {}

impl Record for Passthroughs {
    type Key = HostPattern;
    type Value = BackendId;

    fn encode(_: &HostPattern, id: &BackendId) -> Option<Vec<u8>> {
        Some(id.as_str().into())
    }
}
