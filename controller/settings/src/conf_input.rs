//! What the nginx role renders nginx.conf from: listeners, the main ConfigMap's part, and the size of the zone, on their way
//! from the controller role, which knows the objects, to the nginx role, which writes nginx.conf: a file in the runtime folder.
//!
//! Shape:   JSON. A listener is a port and flags; where its requests and sessions go is data in the zone. Of the ConfigMap
//!          texts, which the nginx role reads with the same closed grammars as the controller role.

use crate::StaticConfig;
use oxigress_core::model::StreamPort;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

/// The name of the file in the runtime folder.
pub const FILE: &str = "streams.json";

/// The name of the copy that the nginx role writes once nginx has taken, or refused, what it read.
pub const SERVED: &str = "streams.served.json";

/// What the nginx role renders nginx.conf from, beside its own flags.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ConfInput {
    /// The listeners that have their own ports: of TCP and UDP services, and of Gateways.
    pub listeners: BTreeMap<StreamPort, Listener>,
    /// What of the main ConfigMap stands in nginx.conf.
    pub settings: StaticConfig,
    /// The size in bytes that the zone needs, as far as it is known; 0: what the flag says is enough.
    #[serde(skip_serializing_if = "is_zero")]
    pub zone_bytes: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A TCP or UDP listener.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Listener {
    /// Clients, or a load balancer before them, begin with the PROXY protocol.
    pub takes_proxy: bool,
    /// Endpoints are told the client's address with the PROXY protocol.
    pub sends_proxy: bool,
    /// The server name of TLS says where a session goes, and whether TLS ends here.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub has_server_names: bool,
    /// A listener of a Gateway, which http has; absent: stream has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpListener>,
}

/// What a listener of a Gateway speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "names of protocols")]
pub enum HttpListener {
    Http,
    Https,
}

impl ConfInput {
    /// Reads the file; without one there is nothing beside the flags.
    pub fn read(path: &Path) -> io::Result<Self> {
        match fs::read(path) {
            Ok(text) => Ok(serde_json::from_slice(&text)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(ConfInput::default()),
            Err(error) => Err(error),
        }
    }

    /// Whether nginx has by now what the controller role wrote into `wanted`.
    pub fn is_served(wanted: &Path, served: &Path) -> bool {
        // Without the second file nobody knows.
        let is_there = served.exists();
        let read = |path| ConfInput::read(path).ok();
        is_there && read(wanted).is_some_and(|wanted| read(served) == Some(wanted))
    }

    /// Replaces the file as a whole.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let fresh = path.with_extension("new");
        fs::write(&fresh, serde_json::to_vec_pretty(self)?)?;
        fs::rename(fresh, path)
    }
}
