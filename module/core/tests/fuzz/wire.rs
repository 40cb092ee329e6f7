//! The JSON of the configuration endpoint, in both wire formats.

use crate::ends_a_line;
use oxigress_core::model::{PathPattern, Snapshot};
use oxigress_core::patterns::Patterns;
use oxigress_core::record::{self, Kind, ServerView};
use oxigress_core::wire::compat::{Element, Servers};
use oxigress_core::wire::native::{Patch, Whole};
use oxigress_core::wire::{DecodeError, decode};
use oxigress_fuzz::{check, seeds};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

fn bytes(all: impl IntoIterator<Item = Value>) -> Vec<Vec<u8>> {
    all.into_iter().map(|value| value.to_string().into_bytes()).collect()
}

#[test]
fn fuzz_native() {
    let mut tables = seeds::of_blocks(|name| name.starts_with("snapshot"));
    tables.push(json!({
        "tls": {"shop.test": {"ciphers": "HIGH", "prefers_server_ciphers": true}},
        "names": {"shop.test": "c"}, "passthrough": {"*.x.test": "b"}, "ports": {"tcp/9000": "b"},
        "sessions": {"tcp/443@10.0.0.7/**.x.test": {"way": "decrypt", "targets": [{"weight": 1, "backend": "b"}, {"weight": 2}]}},
    }));
    let last = json!({"version": 1, "snapshot": tables.last()}).to_string();
    assert!(!decode::<Whole>(last.as_bytes()).unwrap().0.snapshot.tls.is_empty());
    let wholes = tables.iter().map(|table| json!({"version": 1, "snapshot": table}));
    let patches = tables.iter().map(|table| json!({"version": 1, "upsert": table}));
    let is_document = |name: &str| {
        ["configuration", "patch", "put /configuration"].iter().any(|n| name.starts_with(n))
    };
    let seeds = bytes(wholes.chain(patches).chain(seeds::of_blocks(is_document)));
    let taken =
        seeds.iter().filter(|seed| decode::<Whole>(seed).is_ok() || decode::<Patch>(seed).is_ok());
    assert!(taken.count() > 100, "the blocks' documents are not found any more");
    check("native", &seeds, |input| {
        if let Some(Whole { snapshot, .. }) = taken_again::<Whole>(input) {
            let mut patched = Snapshot::default();
            Patch::between(&patched, &snapshot).apply(&mut patched);
            assert_eq!(patched, snapshot, "a delta misses something");
            records_say_the_same(&snapshot);
        }
        if let Some(patch) = taken_again::<Patch>(input)
            && patch.contradiction().is_none()
        {
            let records = record::delta_records(&patch, |_, _| None);
            let mut snapshot = Snapshot::default();
            patch.apply(&mut snapshot);
            assert!(records.len() >= record::snapshot_records(snapshot).len() - 1);
        }
    });
}

/// An accepted document is written and read again as the same, without unknown fields.
fn taken_again<T: DeserializeOwned + Serialize + PartialEq + std::fmt::Debug>(
    input: &[u8],
) -> Option<T> {
    let (first, _) = match decode::<T>(input) {
        Ok(taken) => taken,
        Err(DecodeError { pointer, message, .. }) => {
            assert!(pointer.is_empty() || pointer.starts_with('/'), "{pointer}");
            assert!(!message.is_empty());
            return None;
        }
    };
    let written = serde_json::to_vec(&first).unwrap();
    let (again, unknown) = decode::<T>(&written).unwrap();
    assert_eq!((&again, unknown), (&first, 0));
    assert_eq!(serde_json::to_vec(&again).unwrap(), written);
    Some(first)
}

/// The module reads of the records what the controller wrote.
fn records_say_the_same(snapshot: &Snapshot) {
    for change in record::snapshot_records(snapshot.clone()) {
        let (key, value) = (str::from_utf8(&change.key).unwrap(), change.value.unwrap());
        match change.kind {
            Kind::Policies => {
                let (_, policies) =
                    snapshot.policies.iter().find(|(id, _)| id.as_str() == key).unwrap();
                assert_eq!(record::decode_policies(&value).as_ref(), Some(policies));
                for header in &policies.response_headers {
                    let name = header.name.as_str();
                    assert!(!name.is_empty() && !name.bytes().any(|b| b" :\t\r\n\0".contains(&b)));
                    assert!(!ends_a_line(header.value.as_str().as_bytes()));
                }
                for header in &policies.request_headers {
                    assert!(!ends_a_line(header.value.as_str().as_bytes()));
                }
            }
            Kind::Tls => {
                let (_, policy) =
                    snapshot.tls.iter().find(|(host, _)| host.as_str() == key).unwrap();
                assert_eq!(record::decode_tls(&value).as_ref(), Some(policy));
            }
            Kind::Server => {
                let (_, server) =
                    snapshot.servers.iter().find(|(host, _)| host.as_str() == key).unwrap();
                let (view, patterns) = (ServerView::new(&value), Patterns::default());
                assert_eq!(view.rules().count(), server.rules.len());
                assert_eq!(view.names().count(), server.rules.len());
                for rule in &server.rules {
                    if let PathPattern::Exact(path) = &rule.path {
                        let found = view
                            .rule(path.as_bytes(), &oxigress_core::record::NoParts, &patterns)
                            .unwrap()
                            .unwrap()
                            .rule;
                        let id = rule.policies.as_ref().map_or("", |id| id.as_str());
                        assert_eq!(found.policies(), id.as_bytes());
                        let backend = rule.backend.as_ref().map(|id| id.as_str().as_bytes());
                        assert_eq!(found.backend(), backend);
                    }
                }
            }
            _ => {}
        }
    }
}

#[test]
fn fuzz_compat() {
    let seeds = bytes(seeds::of_blocks(|name| name.starts_with("post /configuration/")));
    let taken = seeds.iter().filter(|seed| decode::<Vec<Element>>(seed).is_ok());
    assert!(taken.count() > 20, "the blocks' documents are not found any more");
    check("compat", &seeds, |input| {
        taken_again::<Servers>(input).map(Servers::into_model);
        for element in taken_again::<Vec<Element>>(input).unwrap_or_default() {
            let Ok(first) = element.into_model() else { continue };
            let element = Element::from_model(&first.id, &first.backend, &first.endpoints);
            let written = serde_json::to_vec(&element).unwrap();
            let again = decode::<Element>(&written).unwrap().0.into_model().unwrap();
            assert_eq!((&again.id, &again.endpoints), (&first.id, &first.endpoints));
            assert_eq!(again.backend, first.backend);
            let value = record::encode_backend(&first.id, &first.backend);
            assert_eq!(record::decode_backend(&value).as_ref(), Some(&first.backend));
        }
    });
}
