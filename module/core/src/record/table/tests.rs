use super::*;
use crate::model::{Backend, BackendId, Bundle, BundleId, EndpointSet, HostPattern, Server};

fn patch(upsert: &[&str], remove: &[&str]) -> Patch {
    let mut patch = Patch::default();
    for host in upsert {
        patch.upsert.servers.insert(HostPattern::parse(host).unwrap(), Server::default());
    }
    patch.remove.servers = remove.iter().map(|h| HostPattern::parse(h).unwrap()).collect();
    patch
}

#[test]
fn every_kind_has_its_number_and_a_name_of_its_own() {
    for (number, kind) in Kind::ALL.into_iter().enumerate() {
        assert_eq!(kind as usize, number);
    }
    let labels: BTreeSet<_> = Kind::ALL.iter().map(|kind| kind.label()).collect();
    let names: BTreeSet<_> = TABLES.iter().map(|table| table.name).collect();
    assert_eq!((labels.len(), names.len()), (Kind::ALL.len(), TABLES.len()));
}

#[test]
fn a_later_delta_undoes_what_it_contradicts() {
    let mut first = patch(&["a", "b"], &["c"]);
    first.follow(patch(&["c"], &["a"]));
    assert_eq!(first, patch(&["b", "c"], &["a"]));
    assert_eq!(first.contradiction(), None);
    assert_eq!(first.count(), (2, 1));
}

#[test]
fn a_pointer_leads_to_its_record() {
    let id = BackendId::parse("a/b~c/80").unwrap();
    let mut patch = Patch::default();
    patch.upsert.backends.insert(id.clone(), Backend::default());
    patch.upsert.endpoints.insert(id, EndpointSet::default());
    let record = RecordRef::at("/upsert/endpoints/a~1b~0c~180/0/port", "upsert").unwrap();
    assert_eq!(record.to_string(), "endpoints a/b~c/80");
    let table = Operations::of_kind(record.kind).unwrap();
    assert!((table.touches)(&patch, &record.key));
    assert!((table.withhold)(&mut patch, &record.key));
    assert!((table.touches)(&patch, &record.key), "it is removed");
    assert_eq!(patch.count(), (1, 1));
    assert_eq!(RecordRef::at("/version", "upsert"), None);
    assert_eq!(RecordRef::at("", "upsert"), None);
    let settings = RecordRef::at("/upsert/settings/hsts", "upsert").unwrap();
    assert_eq!(settings.to_string(), "settings");
}

/// Has each kind once, so that an operation that forgets a kind is seen.
fn one_of_each() -> Snapshot {
    let body = br#"{"servers": {"a": {}}, "listener_servers": {"80/a": {}}, "backends": {"n/s/1": {}}, "endpoints": {"n/s/1": []},
        "certificates": {"c": {"chain": "x", "key": "y"}}, "names": {"a": "c"},
        "passthrough": {"a": "n/s/1"}, "ports": {"tcp/1": "n/s/1"}, "sessions": {"tcp/2": {"way": "http"}}, "policies": {"p": {}}, "tls": {"a": {}},
        "specimens": {"p": 7}}"#;
    let mut snapshot: Snapshot = serde_json::from_slice(body).unwrap();
    let bundle = Bundle::parse("x").unwrap();
    snapshot.bundles.insert(BundleId::of_digest([1; 32]), bundle);
    for table in &TABLES {
        let mut keys = Keys::default();
        (table.all_keys)(&snapshot, &mut keys);
        assert_ne!(keys, Keys::default(), "{} is not in the sample", table.name);
    }
    snapshot
}

#[test]
fn no_operation_forgets_a_kind() {
    let whole = one_of_each();
    let patch = Patch::between(&Snapshot::default(), &whole);
    assert_eq!(patch.count(), (TABLES.len(), 0));
    let mut applied = Snapshot::default();
    patch.clone().apply(&mut applied);
    assert_eq!(applied, whole);
    assert_eq!(Patch::of_whole(whole.clone()).into_whole(), whole);
    let gone = Patch::between(&whole, &Snapshot::default());
    assert_eq!(gone.count(), (0, TABLES.len()));
    let mut followed = patch.clone();
    followed.follow(gone.clone());
    assert_eq!(followed, gone);
    let records = crate::record::delta_records(&patch, |_, _| None);
    let kinds: BTreeSet<_> = records.iter().map(|change| change.kind).collect();
    assert_eq!(kinds, TABLES.iter().map(|table| table.kind).collect());
    assert_eq!(crate::record::delta_records(&gone, |_, _| None).len(), TABLES.len());
}

#[test]
fn what_is_withheld_closes() {
    let whole = one_of_each();
    for table in &TABLES {
        let mut patch = Patch::of_whole(whole.clone());
        let mut keys = Vec::new();
        (table.keys)(&patch, &mut keys);
        let key = &keys[0].key;
        assert!((table.has)(&whole, key) && !(table.has)(&Snapshot::default(), key));
        assert!((table.withhold)(&mut patch, key), "{}", table.name);
        assert!((table.touches)(&patch, key), "{}", table.name);
        assert_eq!(patch.contradiction(), None);
        // The record that was there is not sent, in whichever form it was.
        assert_ne!(patch.upsert, Patch::of_whole(whole.clone()).upsert, "{}", table.name);
        assert!((table.restore)(&whole, &mut patch, key));
        assert_eq!(patch.upsert.servers, whole.servers);
        assert_eq!(patch.remove, Keys::default(), "{}", table.name);
    }
    let mut patch = Patch::of_whole(whole);
    (Operations::of_kind(Kind::Tls).unwrap().withhold)(&mut patch, "a");
    assert!(patch.upsert.tls.values().all(|policy| policy.denied));
    (Operations::of_kind(Kind::Server).unwrap().withhold)(&mut patch, "a");
    assert!(patch.upsert.servers.values().all(|server| server.rules[0].policies.is_some()));
}
