//! The ports of stream listeners and their backends.

use crate::model::{BackendId, StreamPort};
use crate::record::definition::Record;

/// The kind of record that holds the id of the backend of a stream listener's port.
pub enum Ports {}

impl Record for Ports {
    type Key = StreamPort;
    type Value = BackendId;

    fn encode(_: &StreamPort, id: &BackendId) -> Option<Vec<u8>> {
        Some(id.as_str().into())
    }
}
