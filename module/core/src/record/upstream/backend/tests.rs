use super::*;
use crate::balancer::cookie;
use crate::model::{Affinity, AffinityMode, Cookie, Ejection, HashBy, SameSite, Split};
use proptest::prelude::*;

fn id(text: &str) -> BackendId {
    BackendId::parse(text).unwrap()
}

fn full() -> Backend {
    Backend {
        name: Some("default-http-svc-80".into()),
        algorithm: Algorithm::P2c,
        hash_by: Some(HashBy { key: "$request_uri".into(), subset_size: 3 }),
        affinity: Some(Box::new(Affinity {
            mode: AffinityMode::Persistent,
            cookie: Cookie {
                name: "route".into(),
                expires: Some(-5),
                max_age: Some(7_200),
                path: Some("/x".into()),
                domain: Some("a.test".into()),
                secure: Some(false),
                same_site: Some(SameSite::None),
                conditional_same_site_none: true,
                change_on_failure: true,
                locations: [
                    ("a.test".into(), vec!["/".into(), "/x".into()]),
                    ("b.test".into(), vec![]),
                ]
                .into(),
            },
        })),
        alternatives: vec![id("canary"), id("second")],
        split: Some(Box::new(Split {
            weight: 5,
            weight_total: 1_000,
            header: "x-canary".into(),
            header_value: "yes".into(),
            header_pattern: "^y".into(),
            cookie: "canary".into(),
        })),
        ejection: Some(Ejection {
            failures: 1,
            connect_failures: 2,
            base_ms: 3,
            max_ms: 4,
            panic_percent: 5,
        }),
        slow_start_ms: 6,
        max_in_flight: 7,
        compatible: Some("{}".into()),
    }
}

#[test]
fn a_backend_is_read_as_it_was_written() {
    for backend in [full(), Backend::default()] {
        let value = encode_backend(&id("ns/svc/80"), &backend);
        assert_eq!(decode_backend(&value), Some(backend));
    }
}

#[test]
fn only_what_decides_beside_the_algorithm_is_special() {
    let is_plain = |backend: &Backend| {
        let value = encode_backend(&id("b"), backend);
        BackendView::new(&value).is_plain()
    };
    let plain = Backend { hash_by: None, affinity: None, alternatives: vec![], ..full() };
    assert!(is_plain(&plain));
    assert!(!is_plain(&Backend { hash_by: full().hash_by, ..plain.clone() }));
    assert!(!is_plain(&Backend { affinity: full().affinity, ..plain.clone() }));
    assert!(!is_plain(&Backend { alternatives: full().alternatives, ..plain }));
}

#[test]
fn the_tag_is_made_from_the_name_and_else_from_the_id() {
    let tag = |name: Option<&str>| {
        let backend = Backend { name: name.map(Into::into), ..full() };
        let value = encode_backend(&id("ns/svc/80"), &backend);
        *BackendView::new(&value).affinity().unwrap().tag()
    };
    assert_eq!(&tag(Some("default-http-svc-80")), b"5a881deec44117eee2efd3540198e203");
    assert_eq!(tag(None), cookie::tag(b"ns/svc/80"));
}

fn read_all(value: &[u8]) {
    let view = BackendView::new(value);
    let _ = (view.is_plain(), view.name(), view.algorithm(), view.hash_key(), view.subset_size());
    let _ = (view.ejection(), view.split(), view.slow_start_ms(), view.max_in_flight());
    view.alternatives().for_each(|id| drop(id.to_vec()));
    if let Some(affinity) = view.affinity() {
        let _ = (affinity.expires(), affinity.max_age(), affinity.path(), affinity.domain());
        let _ = (affinity.secure(), affinity.same_site(), affinity.tag(), affinity.mode());
        affinity.locations().for_each(|(host, paths)| drop((host.to_vec(), paths.count())));
    }
    decode_backend(value);
}

#[test]
fn cut_bytes_are_not_there_instead_of_panicking() {
    let value = encode_backend(&id("b"), &full());
    for cut in 0..value.len() {
        read_all(&value[..cut]);
        assert_eq!(decode_backend(&value[..cut]), None, "{cut}");
    }
}

proptest! {
    #[test]
    fn damaged_bytes_do_not_panic(damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20)) {
        let mut value = encode_backend(&id("b"), &full());
        for (at, byte) in damage {
            let at = at.index(value.len());
            value[at] = byte;
        }
        read_all(&value);
    }
}
