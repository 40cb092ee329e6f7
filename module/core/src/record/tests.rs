//! The bytes of every kind of record, pinned: a journal that an older release wrote is read with today's views.

use super::{delta_records, snapshot_records};
use crate::model::Snapshot;
use crate::wire::native::Patch;

/// One snapshot that sets every field with a place of its own in a record.
const EVERYTHING: &str = r#"{
    "settings": {"default_backend": "n/fallback/80", "http_redirect_code": 301, "hsts": "max-age=5",
        "blocked_user_agents": ["Bad Agent", "~*^curl/"], "blocked_referers": ["~spam"]},
    "servers": {"shop.test": {"rules": [
        {"path": {"exact": "/a"}, "backend": "n/s/80",
         "origin": {"namespace": "n", "ingress": "i", "service": "s", "port": "http", "path": "/a"}},
        {"path": {"prefix": "/"}, "policy": {"https_redirect": "always"}},
        {"path": {"prefix": "/a/b"}, "backend": "n/s/80", "policies": "p", "policy": {"https_redirect": "with_certificate"}},
        {"path": {"regex": "/v[0-9]+/(.*)"}, "backend": "n/s/80", "policy": {"yields": true}},
        {"path": {"regex": "/V[0-9]/x"}, "backend": "n/s/80"},
        {"path": {"regex": "/"}, "backend": "n/t/80"}]}},
    "backends": {
        "n/s/80": {"name": "n-s-80", "algorithm": "p2c", "hash_by": {"key": "$request_uri", "subset_size": 2},
            "alternatives": ["n/t/80"], "slow_start_ms": 5, "max_in_flight": 6,
            "ejection": {"failures": 1, "connect_failures": 2, "base_ms": 3, "max_ms": 4, "panic_percent": 7},
            "compatible": "{}"},
        "n/t/80": {"affinity": {"mode": "persistent", "cookie": {"name": "route", "expires": -5, "max_age": 7200,
                "path": "/x", "domain": "a.test", "secure": false, "same_site": "Lax",
                "conditional_same_site_none": true, "change_on_failure": true,
                "locations": {"a.test": ["/", "/x"], "b.test": []}}},
            "split": {"weight": 5, "weight_total": 1000, "header": "x-canary", "header_value": "yes",
                "header_pattern": "^y", "cookie": "canary"}}},
    "endpoints": {
        "n/s/80": [{"address": "10.0.0.1", "port": 80}, {"address": "2001:db8::1", "port": 8080, "weight": 7, "draining": true}],
        "n/t/80": [{"address": "10.0.0.2", "port": 80}, {"address": "10.0.0.3", "port": 80}]},
    "certificates": {"c": {"chain": "CHAIN", "key": "KEY"}},
    "names": {"shop.test": "c"}, "passthrough": {"pass.test": "n/s/80"}, "ports": {"tcp/1": "n/s/80"},
    "sessions": {"tcp/443/**.test": {"way": "decrypt", "targets": [{"weight": 1, "backend": "n/s/80", "policies": "p"}]}},
    "bundles": {"0101010101010101010101010101010101010101010101010101010101010101": "PEM"},
    "policies": {"p": {"denied": 503}}, "tls": {"shop.test": {"denied": true}}, "specimens": {"p": 7}
}"#;

pub fn everything() -> Snapshot {
    serde_json::from_str(EVERYTHING).unwrap()
}

#[test]
fn the_bytes_of_records_stay_those_of_earlier_releases() {
    let found: Vec<_> = snapshot_records(everything())
        .iter()
        .map(|change| {
            let value = change.value.as_deref().unwrap();
            let key = String::from_utf8(change.key.clone()).unwrap();
            format!(
                "{} {key}: {} bytes, {:08x}",
                change.kind as u8,
                value.len(),
                crc32fast::hash(value)
            )
        })
        .collect();
    assert_eq!(found, PINNED);
}

#[test]
fn a_live_record_is_encoded_again_to_the_same_bytes() {
    let snapshot = everything();
    let whole = snapshot_records(snapshot.clone());
    let live = |kind, key: &[u8]| {
        whole.iter().find(|change| change.kind == kind && change.key == key)?.value.clone()
    };
    let backends = snapshot.backends.clone();
    let patch = Patch {
        upsert: crate::record::table::Upsert { backends, ..Default::default() },
        ..Patch::default()
    };
    for change in delta_records(&patch, live) {
        assert_eq!(change.value, live(change.kind, &change.key));
    }
}

/// Kind, key, length and CRC of each value. A change of a layout needs a new kind or a reader of both.
const PINNED: [&str; 15] = [
    "3 n/s/80: 1421 bytes, fbcb5cd0",
    "3 n/t/80: 206 bytes, bdca7063",
    "0 : 63 bytes, aa053d91",
    "2 n/s/80: 114 bytes, 73604689",
    "2 n/t/80: 260 bytes, f676d822",
    "4 c: 12 bytes, 3adab3a1",
    "11 0101010101010101010101010101010101010101010101010101010101010101: 3 bytes, 169e71cf",
    "9 p: 14 bytes, edb12661",
    "10 shop.test: 15 bytes, 646c8a80",
    "5 shop.test: 1 bytes, 06b9df6f",
    "7 pass.test: 6 bytes, bb70f5a4",
    "1 shop.test: 284 bytes, 5ad9ebe2",
    "8 tcp/1: 6 bytes, bb70f5a4",
    "13 tcp/443/**.test: 16 bytes, ca8d89e7",
    "14 p: 4 bytes, bc93e7a5",
];

/// Takes everything.
pub struct NoChecks;

impl crate::record::definition::Checks for NoChecks {
    fn pair(&self, _: &[u8], _: &[u8]) -> Result<(), String> {
        Ok(())
    }
    fn cipher_list(&self, _: &str) -> Result<(), String> {
        Ok(())
    }
    fn protocol(&self, _: &str) -> Result<(), String> {
        Ok(())
    }
    fn bundle(&self, _: &[u8]) -> Result<(), String> {
        Ok(())
    }
    fn bundle_id(&self, _: &str) -> crate::model::BundleId {
        crate::model::BundleId::of_digest([0; 32])
    }
}
