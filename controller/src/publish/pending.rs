//! What still has to be sent, and what is withheld because nginx refused it.

use oxigress_core::model::Snapshot;
use oxigress_core::wire::native::{Patch, Remove, Upsert};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Lets `later` follow `first`: together they do what both do one after the other.
pub fn follow(first: &mut Patch, later: Patch) {
    fn change<K: Ord + Clone, V>(
        (upsert, remove): (&mut BTreeMap<K, V>, &mut BTreeSet<K>),
        (more, fewer): (BTreeMap<K, V>, BTreeSet<K>),
    ) {
        for key in &fewer {
            upsert.remove(key);
        }
        for key in more.keys() {
            remove.remove(key);
        }
        remove.extend(fewer);
        upsert.extend(more);
    }
    // Without `..`: a table that is forgotten here would only ever be sent with the whole.
    let Patch { upsert: up, remove: down, .. } = first;
    let Patch { upsert, remove, .. } = later;
    let Upsert {
        settings,
        servers,
        backends,
        endpoints,
        certificates,
        names,
        passthrough,
        ports,
        policies,
        tls,
    } = upsert;
    up.settings = settings.or(up.settings.take());
    change((&mut up.servers, &mut down.servers), (servers, remove.servers));
    change((&mut up.backends, &mut down.backends), (backends, remove.backends));
    change((&mut up.endpoints, &mut down.endpoints), (endpoints, remove.endpoints));
    change((&mut up.certificates, &mut down.certificates), (certificates, remove.certificates));
    change((&mut up.names, &mut down.names), (names, remove.names));
    change((&mut up.passthrough, &mut down.passthrough), (passthrough, remove.passthrough));
    change((&mut up.ports, &mut down.ports), (ports, remove.ports));
    change((&mut up.policies, &mut down.policies), (policies, remove.policies));
    change((&mut up.tls, &mut down.tls), (tls, remove.tls));
}

/// Records a delta writes and removes.
pub fn count(patch: &Patch) -> (usize, usize) {
    let Upsert {
        settings,
        servers,
        backends,
        endpoints,
        certificates,
        names,
        passthrough,
        ports,
        policies,
        tls,
    } = &patch.upsert;
    let plus = [
        usize::from(settings.is_some()),
        servers.len(),
        backends.len(),
        endpoints.len(),
        certificates.len(),
        names.len(),
        passthrough.len(),
        ports.len(),
        policies.len(),
        tls.len(),
    ];
    let Remove {
        servers,
        backends,
        endpoints,
        certificates,
        names,
        passthrough,
        ports,
        policies,
        tls,
    } = &patch.remove;
    let minus = [
        servers.len(),
        backends.len(),
        endpoints.len(),
        certificates.len(),
        names.len(),
        passthrough.len(),
        ports.len(),
        policies.len(),
        tls.len(),
    ];
    (plus.iter().sum(), minus.iter().sum())
}

/// One record that nginx refused.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Record {
    /// `servers`, `backends`, …
    pub table: String,
    /// Its key.
    pub key: String,
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.table, self.key)
    }
}

impl Record {
    /// The record that a JSON pointer into a request leads to; `within` is `snapshot` or `upsert`.
    pub fn at(pointer: &str, within: &str) -> Option<Record> {
        let mut steps = pointer.strip_prefix('/')?.split('/');
        if steps.next()? != within {
            return None;
        }
        let table = steps.next()?.to_owned();
        let key = steps.next()?.replace("~1", "/").replace("~0", "~");
        Some(Record { table, key })
    }

    /// Takes the record out of what is sent. False if it is not in there.
    pub fn withhold(&self, patch: &mut Patch) -> bool {
        let upsert = &mut patch.upsert;
        match self.table.as_str() {
            "servers" => remove(&mut upsert.servers, &self.key),
            "backends" => remove(&mut upsert.backends, &self.key),
            "endpoints" => remove(&mut upsert.endpoints, &self.key),
            "certificates" => remove(&mut upsert.certificates, &self.key),
            "names" => remove(&mut upsert.names, &self.key),
            "passthrough" => remove(&mut upsert.passthrough, &self.key),
            "ports" => remove(&mut upsert.ports, &self.key),
            _ => false,
        }
    }

    /// The same for a whole snapshot.
    pub fn withhold_from(&self, snapshot: &mut Snapshot) -> bool {
        match self.table.as_str() {
            "servers" => remove(&mut snapshot.servers, &self.key),
            "backends" => remove(&mut snapshot.backends, &self.key),
            "endpoints" => remove(&mut snapshot.endpoints, &self.key),
            "certificates" => remove(&mut snapshot.certificates, &self.key),
            "names" => remove(&mut snapshot.names, &self.key),
            "passthrough" => remove(&mut snapshot.passthrough, &self.key),
            "ports" => remove(&mut snapshot.ports, &self.key),
            _ => false,
        }
    }

    /// Whether `patch` brings it anew, or takes it away.
    pub fn is_in(&self, patch: &Patch) -> bool {
        fn is_key<K: fmt::Display>(mut keys: impl Iterator<Item = K>, key: &str) -> bool {
            keys.any(|candidate| candidate.to_string() == key)
        }
        let (up, down, key) = (&patch.upsert, &patch.remove, self.key.as_str());
        match self.table.as_str() {
            "servers" => is_key(up.servers.keys().chain(&down.servers), key),
            "backends" => is_key(up.backends.keys().chain(&down.backends), key),
            "endpoints" => is_key(up.endpoints.keys().chain(&down.endpoints), key),
            "certificates" => is_key(up.certificates.keys().chain(&down.certificates), key),
            "names" => is_key(up.names.keys().chain(&down.names), key),
            "passthrough" => is_key(up.passthrough.keys().chain(&down.passthrough), key),
            "ports" => is_key(up.ports.keys().chain(&down.ports), key),
            _ => false,
        }
    }
}

fn remove<K: Ord + TryFrom<String>, V>(records: &mut BTreeMap<K, V>, key: &str) -> bool {
    K::try_from(key.to_owned()).is_ok_and(|key| records.remove(&key).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use oxigress_core::model::{Backend, BackendId, EndpointSet, HostPattern, Server};

    fn patch(upsert: &[&str], remove: &[&str]) -> Patch {
        let mut patch = Patch::default();
        for host in upsert {
            patch.upsert.servers.insert(HostPattern::parse(host).unwrap(), Server::default());
        }
        patch.remove.servers = remove.iter().map(|h| HostPattern::parse(h).unwrap()).collect();
        patch
    }

    #[test]
    fn a_later_delta_undoes_what_it_contradicts() {
        let mut first = patch(&["a", "b"], &["c"]);
        follow(&mut first, patch(&["c"], &["a"]));
        assert_eq!(first, patch(&["b", "c"], &["a"]));
        assert_eq!(first.contradiction(), None);
        assert_eq!(count(&first), (2, 1));
    }

    #[test]
    fn a_pointer_leads_to_its_record() {
        let id = BackendId::parse("a/b~c/80").unwrap();
        let mut patch = Patch::default();
        patch.upsert.backends.insert(id.clone(), Backend::default());
        patch.upsert.endpoints.insert(id, EndpointSet::default());
        let record = Record::at("/upsert/endpoints/a~1b~0c~180/0/port", "upsert").unwrap();
        assert_eq!(record.to_string(), "endpoints a/b~c/80");
        assert!(record.is_in(&patch));
        assert!(record.withhold(&mut patch));
        assert!(!record.withhold(&mut patch));
        assert_eq!(count(&patch), (1, 0));
        assert_eq!(Record::at("/version", "upsert"), None);
        assert_eq!(Record::at("", "upsert"), None);
    }
}
