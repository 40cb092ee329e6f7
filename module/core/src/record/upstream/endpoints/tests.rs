use super::*;
use crate::model::{Affinity, Ejection, Endpoint, HashBy};

fn endpoint(address: &str, port: u16) -> Endpoint {
    Endpoint::new(address.parse().unwrap(), port.try_into().unwrap())
}

#[test]
fn endpoints_are_read_as_they_were_written() {
    let set = EndpointSet::new([endpoint("10.0.0.1", 80), endpoint("2001:db8::1", 8080)]).unwrap();
    let value = encode_endpoints(&set, &Backend::default(), "x");
    let view = EndpointsView::new(&value);
    let read: Vec<_> =
        view.iter().map(|e| (e.socket_address().to_string(), e.name().to_vec())).collect();
    assert_eq!(read[0], ("10.0.0.1:80".into(), b"10.0.0.1:80".to_vec()));
    assert_eq!(read[1], ("[2001:db8::1]:8080".into(), b"[2001:db8::1]:8080".to_vec()));
    assert_eq!(read.len(), 2);
    assert!(view.get(2).is_none());
    let second = *view.get(1).unwrap().identity();
    assert!(view.contains(&second));
    assert!(
        !EndpointsView::new(&value[..size_of::<Header>() + size_of::<Entry>()]).contains(&second)
    );
}

#[test]
fn cut_bytes_end_the_list_instead_of_panicking() {
    let value = encode_endpoints(
        &EndpointSet::new([endpoint("10.0.0.1", 80)]).unwrap(),
        &Backend::default(),
        "x",
    );
    for cut in 0..value.len() {
        EndpointsView::new(&value[..cut]).iter().for_each(|e| drop(e.name().to_vec()));
    }
}

fn three() -> EndpointSet {
    let mut all = [1, 2, 3].map(|n| endpoint(&format!("10.0.0.{n}"), 8080));
    (all[1].weight, all[2].draining) = (7, true);
    EndpointSet::new(all).unwrap()
}

#[test]
fn a_set_is_decoded_as_it_was() {
    let value = encode_endpoints(&three(), &Backend::default(), "x");
    let view = EndpointsView::new(&value);
    assert_eq!(view.decode(), three());
    assert_eq!((view.total_weight(), view.is_even(), view.is_draining()), (9, false, true));
    assert!(view.ejection().is_none() && !view.has_more());
}

#[test]
fn the_header_says_how_to_choose() {
    let ejection = Ejection { failures: 3, panic_percent: 40, ..Ejection::default() };
    let backend = Backend {
        ejection: Some(ejection),
        slow_start_ms: 5,
        max_in_flight: 6,
        hash_by: Some(HashBy { key: "$uri".into(), subset_size: 2 }),
        ..Backend::default()
    };
    let value = encode_endpoints(&three(), &backend, "x");
    let view = EndpointsView::new(&value);
    assert_eq!(view.choice(), Choice::Subset);
    assert_eq!((view.slow_start_ms(), view.max_in_flight(), view.subset_size()), (5, 6, 2));
    assert_eq!(view.ejection(), Some(ejection));
    assert!(view.has_more());
    assert_eq!(view.ring().len(), 2 * 160 * 8);
}

#[test]
fn an_affinity_key_leads_to_its_endpoint() {
    let affinity = Affinity { mode: AffinityMode::Persistent, ..Affinity::default() };
    let backend = Backend {
        name: Some("default-http-svc-80".into()),
        affinity: Some(affinity.into()),
        ..Backend::default()
    };
    let value = encode_endpoints(&three(), &backend, "x");
    let view = EndpointsView::new(&value);
    // As in ingress-nginx's balancer.
    assert_eq!(view.affinity_key(0), Some(&b"5527bcca0bd221fcb9f44d85ffc6cc19"[..]));
    for index in 0..3 {
        assert_eq!(view.by_affinity_key(view.affinity_key(index).unwrap()), Some(index));
    }
    assert_eq!(view.by_affinity_key(b"5527bcca0bd221fcb9f44d85ffc6cc1"), None);
    assert_eq!(view.by_affinity_key(b""), None);
}

#[test]
fn the_length_is_told_without_a_table() {
    let hash = |subset_size| Some(HashBy { key: "$uri".into(), subset_size });
    let affinity = |mode| Some(Box::new(Affinity { mode, ..Affinity::default() }));
    let backends = [
        Backend::default(),
        Backend { hash_by: hash(0), ..Backend::default() },
        Backend { hash_by: hash(2), ..Backend::default() },
        Backend { affinity: affinity(AffinityMode::Balanced), ..Backend::default() },
        Backend { affinity: affinity(AffinityMode::Persistent), ..Backend::default() },
    ];
    let many = (0..500).map(|n| endpoint(&format!("10.0.{}.{}", n / 250, n % 250), 8080));
    let sets = [
        EndpointSet::default(),
        three(),
        EndpointSet::new([endpoint("2001:db8::1", 80)]).unwrap(),
        EndpointSet::new(many).unwrap(),
    ];
    for set in &sets {
        for backend in &backends {
            let value = encode_endpoints(set, backend, "x");
            assert_eq!(endpoints_bytes(set, backend), value.len(), "{backend:?}");
        }
    }
}
