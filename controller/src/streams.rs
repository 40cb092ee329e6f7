//! The TCP and UDP listeners, on their way from the controller role, which knows the ConfigMaps, to the nginx
//! role, which writes nginx.conf: a file in the runtime folder.
//!
//! Shape:   JSON of numbers and flags alone, so nothing that a user wrote gets into nginx.conf. What the listeners
//!          lead to is data in the zone.

use oxigress_core::model::StreamPort;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

/// Its name in the runtime folder.
pub const FILE: &str = "streams.json";

/// All of them, and what holds for all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Streams {
    /// By protocol and port.
    pub listeners: BTreeMap<StreamPort, Listener>,
    /// From the main ConfigMap.
    pub settings: StreamSettings,
}

/// One listener.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Listener {
    /// Clients, or a load balancer before them, begin with the PROXY protocol.
    pub takes_proxy: bool,
    /// Endpoints are told the client's address with the PROXY protocol.
    pub sends_proxy: bool,
}

/// `proxy-stream-*` of the main ConfigMap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StreamSettings {
    /// A session without data ends.
    pub timeout_ms: u64,
    /// Another endpoint is tried when one cannot be connected to.
    pub next_upstream: bool,
    /// So long; 0: any time.
    pub next_upstream_timeout_ms: u64,
    /// So many; 0: all.
    pub next_upstream_tries: u32,
    /// Datagrams with which a UDP session ends.
    pub responses: u32,
}

impl Default for StreamSettings {
    fn default() -> Self {
        StreamSettings {
            timeout_ms: 600_000,
            next_upstream: true,
            next_upstream_timeout_ms: 600_000,
            next_upstream_tries: 3,
            responses: 1,
        }
    }
}

impl Streams {
    /// Reads the file; without one there are no listeners.
    pub fn read(path: &Path) -> io::Result<Self> {
        match fs::read(path) {
            Ok(text) => Ok(serde_json::from_slice(&text)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Streams::default()),
            Err(error) => Err(error),
        }
    }

    /// Replaces the file as a whole.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let fresh = path.with_extension("new");
        fs::write(&fresh, serde_json::to_vec_pretty(self)?)?;
        fs::rename(fresh, path)
    }
}
