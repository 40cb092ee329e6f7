//! Our own dialect: `PUT` a whole snapshot, `PATCH` a delta.
//!
//! ```json
//! {"version": 1, "snapshot": {"servers": {"shop.test": {"rules": [
//!     {"path": {"prefix": "/"}, "backend": "default/shop/80"}]}},
//!   "backends": {"default/shop/80": {}},
//!   "endpoints": {"default/shop/80": [{"address": "10.0.0.1", "port": 8080}]}}}
//! {"version": 1, "upsert": {"endpoints": {"default/shop/80": []}}, "remove": {"servers": ["old.test"]}}
//! ```

use crate::model::policy::{Policies, PolicyId, TlsPolicy};
use crate::model::{
    Backend, BackendId, Certificate, CertificateId, EndpointSet, HostPattern, Server, Settings,
    Snapshot, StreamPort,
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

super::objects!(Whole, Patch, Upsert, Remove);

/// The version of this format that this program reads and writes.
pub const VERSION: u32 = 1;

/// [`VERSION`] as a value: decoding any other number fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct WireVersion;

impl TryFrom<u32> for WireVersion {
    type Error = String;

    fn try_from(version: u32) -> Result<Self, String> {
        if version == VERSION {
            return Ok(WireVersion);
        }
        Err(format!(
            "wire version {version} is not understood, this module speaks {VERSION}: use one release"
        ))
    }
}

impl From<WireVersion> for u32 {
    fn from(_: WireVersion) -> u32 {
        VERSION
    }
}

/// Body of `PUT /configuration`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Whole {
    /// Always [`VERSION`].
    pub version: WireVersion,
    /// All there is afterwards.
    #[serde(default)]
    pub snapshot: Snapshot,
}

/// Body of `PATCH /configuration`. A key that is both upserted and removed is refused.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Patch {
    /// Always [`VERSION`].
    pub version: WireVersion,
    /// Records that are new or replaced.
    #[serde(default, skip_serializing_if = "Upsert::is_empty")]
    pub upsert: Upsert,
    /// Records that go. Removing what is not there is no error.
    #[serde(default, skip_serializing_if = "Remove::is_empty")]
    pub remove: Remove,
}

/// Records that are new or replaced, as in [`Snapshot`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the fields of Snapshot")]
#[serde(remote = "Self")]
pub struct Upsert {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settings: Option<Settings>,
    #[serde(deserialize_with = "super::unique_map", skip_serializing_if = "BTreeMap::is_empty")]
    pub servers: BTreeMap<HostPattern, Server>,
    #[serde(deserialize_with = "super::unique_map", skip_serializing_if = "BTreeMap::is_empty")]
    pub backends: BTreeMap<BackendId, Backend>,
    #[serde(deserialize_with = "super::unique_map", skip_serializing_if = "BTreeMap::is_empty")]
    pub endpoints: BTreeMap<BackendId, EndpointSet>,
    #[serde(deserialize_with = "super::unique_map", skip_serializing_if = "BTreeMap::is_empty")]
    pub certificates: BTreeMap<CertificateId, Certificate>,
    #[serde(deserialize_with = "super::unique_map", skip_serializing_if = "BTreeMap::is_empty")]
    pub names: BTreeMap<HostPattern, CertificateId>,
    #[serde(deserialize_with = "super::unique_map", skip_serializing_if = "BTreeMap::is_empty")]
    pub passthrough: BTreeMap<HostPattern, BackendId>,
    #[serde(deserialize_with = "super::unique_map", skip_serializing_if = "BTreeMap::is_empty")]
    pub ports: BTreeMap<StreamPort, BackendId>,
    #[serde(deserialize_with = "super::unique_map", skip_serializing_if = "BTreeMap::is_empty")]
    pub policies: BTreeMap<PolicyId, Policies>,
    #[serde(deserialize_with = "super::unique_map", skip_serializing_if = "BTreeMap::is_empty")]
    pub tls: BTreeMap<HostPattern, TlsPolicy>,
}

/// Keys of records that go.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the fields of Snapshot")]
#[serde(remote = "Self")]
pub struct Remove {
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub servers: BTreeSet<HostPattern>,
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub backends: BTreeSet<BackendId>,
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub endpoints: BTreeSet<BackendId>,
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub certificates: BTreeSet<CertificateId>,
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub names: BTreeSet<HostPattern>,
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub passthrough: BTreeSet<HostPattern>,
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub ports: BTreeSet<StreamPort>,
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub policies: BTreeSet<PolicyId>,
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub tls: BTreeSet<HostPattern>,
}

impl Upsert {
    fn is_empty(&self) -> bool {
        *self == Upsert::default()
    }
}

impl Remove {
    fn is_empty(&self) -> bool {
        *self == Remove::default()
    }
}

impl Patch {
    /// What turns `old` into `new`.
    pub fn between(old: &Snapshot, new: &Snapshot) -> Patch {
        let mut patch = Patch::default();
        if old.settings != new.settings {
            patch.upsert.settings = Some(new.settings.clone());
        }
        (patch.upsert.servers, patch.remove.servers) = difference(&old.servers, &new.servers);
        (patch.upsert.backends, patch.remove.backends) = difference(&old.backends, &new.backends);
        (patch.upsert.endpoints, patch.remove.endpoints) =
            difference(&old.endpoints, &new.endpoints);
        (patch.upsert.certificates, patch.remove.certificates) =
            difference(&old.certificates, &new.certificates);
        (patch.upsert.names, patch.remove.names) = difference(&old.names, &new.names);
        (patch.upsert.passthrough, patch.remove.passthrough) =
            difference(&old.passthrough, &new.passthrough);
        (patch.upsert.ports, patch.remove.ports) = difference(&old.ports, &new.ports);
        (patch.upsert.policies, patch.remove.policies) = difference(&old.policies, &new.policies);
        (patch.upsert.tls, patch.remove.tls) = difference(&old.tls, &new.tls);
        patch
    }

    /// Changes nothing.
    pub fn is_empty(&self) -> bool {
        self.upsert.is_empty() && self.remove.is_empty()
    }

    /// Does to `snapshot` what the module does to its store.
    pub fn apply(self, snapshot: &mut Snapshot) {
        fn change<K: Ord, V>(
            all: &mut BTreeMap<K, V>,
            upsert: BTreeMap<K, V>,
            remove: BTreeSet<K>,
        ) {
            all.extend(upsert);
            all.retain(|key, _| !remove.contains(key));
        }
        let Patch { upsert, remove, .. } = self;
        snapshot.settings =
            upsert.settings.unwrap_or_else(|| std::mem::take(&mut snapshot.settings));
        change(&mut snapshot.servers, upsert.servers, remove.servers);
        change(&mut snapshot.backends, upsert.backends, remove.backends);
        change(&mut snapshot.endpoints, upsert.endpoints, remove.endpoints);
        change(&mut snapshot.certificates, upsert.certificates, remove.certificates);
        change(&mut snapshot.names, upsert.names, remove.names);
        change(&mut snapshot.passthrough, upsert.passthrough, remove.passthrough);
        change(&mut snapshot.ports, upsert.ports, remove.ports);
        change(&mut snapshot.policies, upsert.policies, remove.policies);
        change(&mut snapshot.tls, upsert.tls, remove.tls);
    }

    /// The JSON pointer of the first key that is both upserted and removed.
    pub fn contradiction(&self) -> Option<String> {
        fn both<K: Ord + std::fmt::Display, V>(
            table: &str,
            upsert: &BTreeMap<K, V>,
            remove: &BTreeSet<K>,
        ) -> Option<String> {
            let key = remove.iter().find(|key| upsert.contains_key(key))?.to_string();
            Some(format!("/upsert/{table}/{}", super::pointer_step(&key)))
        }
        let (upsert, remove) = (&self.upsert, &self.remove);
        both("servers", &upsert.servers, &remove.servers)
            .or_else(|| both("backends", &upsert.backends, &remove.backends))
            .or_else(|| both("endpoints", &upsert.endpoints, &remove.endpoints))
            .or_else(|| both("certificates", &upsert.certificates, &remove.certificates))
            .or_else(|| both("names", &upsert.names, &remove.names))
            .or_else(|| both("passthrough", &upsert.passthrough, &remove.passthrough))
            .or_else(|| both("ports", &upsert.ports, &remove.ports))
            .or_else(|| both("policies", &upsert.policies, &remove.policies))
            .or_else(|| both("tls", &upsert.tls, &remove.tls))
    }
}

fn difference<K: Ord + Clone, V: PartialEq + Clone>(
    old: &BTreeMap<K, V>,
    new: &BTreeMap<K, V>,
) -> (BTreeMap<K, V>, BTreeSet<K>) {
    let upsert = new
        .iter()
        .filter(|&(key, value)| old.get(key) != Some(value))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    let remove = old.keys().filter(|&key| !new.contains_key(key)).cloned().collect();
    (upsert, remove)
}

/// Answer to a write that was applied: it is live for every request from now on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applied {
    /// Random identity of the writer's line of generations, 16 hex digits.
    pub epoch: String,
    /// Number of the generation that is live; it only grows.
    pub generation: u64,
    /// Fields of the body that this module does not know.
    #[serde(default)]
    pub ignored_fields: usize,
}

/// Answer to a write that was refused: nothing changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// What is wrong and what to do.
    pub error: String,
    /// JSON pointer of the value that is wrong, for status 400.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pointer: Option<String>,
    /// Bytes the write would take, for status 507.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needed_bytes: Option<u64>,
    /// Bytes there are, for status 507.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free_bytes: Option<u64>,
    /// The live `epoch.generation`, for status 409: the value for `If-Match`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub live: Option<String>,
}

/// Answer to `GET /configuration`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// As in [`Applied`].
    pub epoch: String,
    /// The live generation; 0 before the first write.
    pub generation: u64,
    /// Records by kind.
    pub counts: BTreeMap<String, u64>,
    /// Bytes of the zone that records can use.
    pub capacity_bytes: u64,
    /// Of these, free.
    pub free_bytes: u64,
    /// How many workers nginx is to have; 0 if it does not say.
    #[serde(default)]
    pub worker_processes: usize,
    /// Those that run, by process slot.
    pub workers: Vec<WorkerStatus>,
    /// The last generation in the journal; absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub journal_generation: Option<u64>,
    /// The last write that was refused.
    pub last_error: Option<String>,
}

/// One worker process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerStatus {
    /// nginx's process slot.
    pub slot: usize,
    /// Process id.
    pub pid: u32,
    /// The oldest generation it may still be reading. It drives when memory is freed, nothing else.
    pub generation: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Endpoint;

    fn snapshot(hosts: &[(&str, u16)]) -> Snapshot {
        let mut snapshot = Snapshot::default();
        for (host, port) in hosts {
            let id = BackendId::parse(format!("default/{host}/80")).unwrap();
            let endpoint = Endpoint::new("10.0.0.1".parse().unwrap(), (*port).try_into().unwrap());
            snapshot.servers.insert(HostPattern::parse(host).unwrap(), Server::default());
            snapshot.endpoints.insert(id, EndpointSet::new([endpoint]).unwrap());
        }
        snapshot
    }

    #[test]
    fn a_delta_turns_the_old_snapshot_into_the_new_one_and_holds_nothing_else() {
        let (old, new) = (snapshot(&[("a", 1), ("b", 2)]), snapshot(&[("b", 3), ("c", 4)]));
        let patch = Patch::between(&old, &new);
        assert_eq!(patch.upsert.servers.len(), 1);
        assert_eq!(patch.upsert.endpoints.len(), 2);
        assert_eq!(patch.remove.servers.len(), 1);
        let mut changed = old.clone();
        patch.apply(&mut changed);
        assert_eq!(changed, new);
        assert!(Patch::between(&new, &new).is_empty());
    }

    #[test]
    fn a_snapshot_survives_its_json() {
        let whole = Whole { snapshot: snapshot(&[("a", 1)]), ..Whole::default() };
        let text = serde_json::to_vec(&whole).unwrap();
        assert_eq!(crate::wire::decode::<Whole>(&text).unwrap(), (whole, 0));
    }

    #[test]
    fn upserting_and_removing_one_key_is_a_contradiction() {
        let body =
            br#"{"version":1,"upsert":{"backends":{"a/b":{}}},"remove":{"backends":["a/b"]}}"#;
        let (patch, _) = crate::wire::decode::<Patch>(body).unwrap();
        assert_eq!(patch.contradiction().unwrap(), "/upsert/backends/a~1b");
    }
}
