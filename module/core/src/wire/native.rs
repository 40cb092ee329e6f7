//! The native wire format: `PUT` a whole snapshot, `PATCH` a delta.
//!
//! ```json
//! {"version": 1, "snapshot": {"servers": {"shop.test": {"rules": [
//!     {"path": {"prefix": "/"}, "backend": "default/shop/80"}]}},
//!   "backends": {"default/shop/80": {}},
//!   "endpoints": {"default/shop/80": [{"address": "10.0.0.1", "port": 8080}]}}}
//! {"version": 1, "upsert": {"endpoints": {"default/shop/80": []}}, "remove": {"servers": ["old.test"]}}
//! ```

use crate::model::Snapshot;
use crate::record::table::TABLES;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

pub use crate::record::table::{Keys, Upsert};

crate::model::object::objects!(Whole, Patch);

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

/// The body of `PUT /configuration`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Whole {
    /// The version of the format, always [`VERSION`].
    pub version: WireVersion,
    /// The whole configuration after the write.
    #[serde(default)]
    pub snapshot: Snapshot,
}

/// Body of `PATCH /configuration`. A key that is both upserted and removed is refused.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Patch {
    /// The version of the format, always [`VERSION`].
    pub version: WireVersion,
    /// Records that are new or replaced.
    #[serde(default, skip_serializing_if = "Upsert::is_empty")]
    pub upsert: Upsert,
    /// Records to be removed. Removing an absent record is no error.
    #[serde(default, skip_serializing_if = "Keys::is_empty")]
    pub remove: Keys,
    /// Ends a snapshot that was sent in parts: records that are neither upserted nor listed here are removed. Absent:
    /// all other records stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retain: Option<Keys>,
}

impl Upsert {
    fn is_empty(&self) -> bool {
        *self == Upsert::default()
    }
}

impl Keys {
    fn is_empty(&self) -> bool {
        *self == Keys::default()
    }
}

impl Patch {
    /// The delta that turns `old` into `new`.
    pub fn between(old: &Snapshot, new: &Snapshot) -> Patch {
        let mut patch = Patch::default();
        if old.settings != new.settings {
            patch.upsert.settings = Some(new.settings.clone());
        }
        for table in &TABLES {
            (table.difference)(old, new, &mut patch);
        }
        patch
    }

    /// A delta that writes the whole snapshot.
    pub fn of_whole(mut snapshot: Snapshot) -> Patch {
        let mut patch = Patch::default();
        for table in &TABLES {
            (table.take)(&mut snapshot, &mut patch);
        }
        patch.upsert.settings = Some(snapshot.settings);
        patch
    }

    /// The snapshot that the upserts make; the inverse of [`Patch::of_whole`].
    pub fn into_whole(mut self) -> Snapshot {
        let mut snapshot = Snapshot::default();
        for table in &TABLES {
            (table.put_back)(&mut self, &mut snapshot);
        }
        snapshot.settings = self.upsert.settings.unwrap_or_default();
        snapshot
    }

    /// Whether the delta changes nothing.
    pub fn is_empty(&self) -> bool {
        self.upsert.is_empty() && self.remove.is_empty() && self.retain.is_none()
    }

    /// The numbers of records written and removed.
    pub fn count(&self) -> (usize, usize) {
        let settings = usize::from(self.upsert.settings.is_some());
        TABLES.iter().map(|table| (table.count)(self)).fold((settings, 0), |all, one| {
            let ((written, removed), (more, fewer)) = (all, one);
            (written + more, removed + fewer)
        })
    }

    /// Appends `later`: together they do what both do one after the other. A list of retained records belongs to the
    /// write that it ends and is dropped.
    pub fn follow(&mut self, mut later: Patch) {
        self.upsert.settings = later.upsert.settings.take().or(self.upsert.settings.take());
        for table in &TABLES {
            (table.follow)(self, &mut later);
        }
        self.retain = None;
    }

    /// Applies the delta to a snapshot, as the module does to its store.
    pub fn apply(mut self, snapshot: &mut Snapshot) {
        if let Some(settings) = self.upsert.settings.take() {
            snapshot.settings = settings;
        }
        for table in &TABLES {
            (table.apply)(&mut self, snapshot);
        }
    }

    /// The JSON pointer of the first key that is both upserted and removed.
    pub fn contradiction(&self) -> Option<String> {
        TABLES.iter().find_map(|table| {
            let key = (table.contradiction)(self)?;
            Some(format!("/upsert/{}/{}", table.name, super::pointer_step(&key)))
        })
    }
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

/// Most faults that one answer names.
pub const MAX_FAULTS: usize = 1_000;

/// A value that is wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// JSON pointer of the value.
    pub pointer: String,
    /// The problem and its remedy.
    pub error: String,
}

/// Answer to a write that was refused: nothing changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// What is wrong and what to do.
    pub error: String,
    /// JSON pointer of the value that is wrong, for status 400.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pointer: Option<String>,
    /// Further values that are wrong, one a record, at most [`MAX_FAULTS`] in all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<Fault>,
    /// The bytes that the write needs, for status 507.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needed_bytes: Option<u64>,
    /// Bytes there are, for status 507.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free_bytes: Option<u64>,
    /// Bytes there are for records that take no more than those that they replace, for status 507.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free_for_less_bytes: Option<u64>,
    /// Bytes of the zone that records can use, for status 507.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity_bytes: Option<u64>,
    /// The live `epoch.generation`, for status 409: the value for `If-Match`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub live: Option<String>,
}

/// The answer to `GET /configuration`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The identity of the line of generations, as in [`Applied`].
    pub epoch: String,
    /// The live generation; 0 before the first write.
    pub generation: u64,
    /// The number of records of each kind.
    pub counts: BTreeMap<String, u64>,
    /// Bytes of the zone that records can use.
    pub capacity_bytes: u64,
    /// Bytes of the zone that are free.
    pub free_bytes: u64,
    /// The configured number of workers; 0 if unknown.
    #[serde(default)]
    pub worker_processes: usize,
    /// The running workers, by process slot.
    pub workers: Vec<WorkerStatus>,
    /// The last generation in the journal; absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub journal_generation: Option<u64>,
    /// The last write that was refused.
    pub last_error: Option<String>,
}

/// A worker process and what it reads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerStatus {
    /// The worker's slot in nginx's process table.
    pub slot: usize,
    /// The process id of the worker.
    pub pid: u32,
    /// The oldest generation it may still be reading. It drives when memory is freed, nothing else.
    pub generation: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{BackendId, Endpoint, EndpointSet, HostPattern, Server};

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
