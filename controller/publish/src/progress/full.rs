//! A zone without room: who edits what has none costs nobody time, and what there is room for is served.

use super::tenants::endpoint_of;
use super::*;
use crate::owners::{HostOwner, OwnedHost};
use crate::withheld::Reason;
use std::cell::Cell;

/// A tenant's hosts: of each its number, which is its age, and its bytes.
type Hosts = BTreeMap<u8, usize>;

/// A publisher and an nginx whose zone is full, and what namespaces want.
struct Full {
    publisher: Publisher,
    endpoint: Endpoint,
    wanted: BTreeMap<&'static str, Hosts>,
    snapshot: Snapshot,
    /// How often the owner of a host was asked for.
    asked: Cell<usize>,
}

fn host(namespace: &str, number: u8) -> HostPattern {
    HostPattern::parse(format!("{namespace}{number}.test").as_str()).unwrap()
}

fn server(namespace: &str, bytes: usize) -> Server {
    let rule = serde_json::json!({"path": {"prefix": format!("/{}", "x".repeat(bytes))},
        "origin": {"namespace": namespace}});
    serde_json::from_value(serde_json::json!({ "rules": [rule] })).unwrap()
}

/// Host names begin with the letter of their namespace, and end with their age.
fn owner(asked: &Cell<usize>, place: OwnedHost<'_>) -> Option<HostOwner<'static>> {
    asked.set(asked.get() + 1);
    let host = place.host().as_str();
    let namespace = ["a", "b", "e"].into_iter().find(|namespace| host.starts_with(*namespace))?;
    let created = host.get(1..)?.split('.').next()?.parse().ok()?;
    Some(HostOwner { namespace, created })
}

impl Full {
    fn new(capacity: u64) -> Self {
        let mut endpoint = endpoint_of(capacity, 1 << 20);
        endpoint.generation = 1;
        Full {
            publisher: Publisher::new(0),
            endpoint,
            wanted: BTreeMap::new(),
            snapshot: Snapshot::default(),
            asked: Cell::new(0),
        }
    }

    /// Takes over what namespaces want by now, and sends nothing.
    fn change(&mut self) {
        let mut new = Snapshot::default();
        for (namespace, hosts) in &self.wanted {
            let servers = hosts.iter();
            new.servers
                .extend(servers.map(|(n, bytes)| (host(namespace, *n), server(namespace, *bytes))));
        }
        self.publisher.change(Patch::between(&self.snapshot, &new));
        self.snapshot = new;
    }

    fn drain(&mut self) -> usize {
        let owner = |place: OwnedHost<'_>| owner(&self.asked, place);
        let view = View { snapshot: &self.snapshot, owner: &owner };
        drain_as(&mut self.publisher, &mut self.endpoint, &view, &|_| {})
    }

    fn look(&mut self) {
        let owner = |place: OwnedHost<'_>| owner(&self.asked, place);
        let view = View { snapshot: &self.snapshot, owner: &owner };
        let outgoing = self.publisher.request_status();
        let answer = self.endpoint.answer(&outgoing);
        self.publisher.answered(Ok(answer), Duration::ZERO, &view);
    }

    /// What happens within some seconds of a change.
    fn settle(&mut self) {
        self.change();
        self.drain();
        for _ in 0..3 {
            self.look();
            self.drain();
        }
    }

    fn is_served(&self, namespace: &str, number: u8) -> bool {
        let host = host(namespace, number);
        self.endpoint.live.servers.get(&host) == self.snapshot.servers.get(&host)
    }

    /// The numbers of a namespace's hosts that are not served.
    fn waiting(&self, namespace: &str) -> Vec<u8> {
        let all = self.wanted[namespace].keys().copied();
        all.filter(|number| !self.is_served(namespace, *number)).collect()
    }
}

/// Forty hosts of 4 KB, for which there is half the room, beside one small host of another namespace.
fn half_full() -> Full {
    let mut full = Full::new(80_000);
    full.wanted = [("e", (0..40).map(|n| (n, 4_000)).collect()), ("b", [(0, 400)].into())].into();
    full.settle();
    assert!((15..25).contains(&full.waiting("e").len()), "{:?}", full.waiting("e"));
    full
}

#[test]
fn edits_of_what_has_no_room_are_measured_once_a_second_and_not_sent() {
    let mut full = half_full();
    let last = *full.waiting("e").last().unwrap();
    let (writes, live) = (full.publisher.writes(), full.endpoint.live.clone());
    for second in 1..20 {
        let (encoded, asked) = (full.publisher.sizes.encoded, full.asked.get());
        for edit in 0..5 {
            full.wanted.get_mut("e").unwrap().insert(last, 4_000 + 4 * second + edit);
            full.change();
            assert!(!full.publisher.is_behind(), "it has something to send");
        }
        full.look();
        assert!(!full.publisher.is_behind(), "it tries again");
        assert_eq!(full.publisher.sizes.encoded - encoded, 1);
        assert!(full.asked.get() - asked <= 41, "{} owners asked for", full.asked.get() - asked);
    }
    assert_eq!((full.publisher.writes(), &full.endpoint.live), (writes, &live));
    let item = Item::from(RecordRef { kind: Kind::Server, key: host("e", last).to_string() });
    let bytes = full.publisher.sizes.bytes_of(&item).unwrap();
    assert!(bytes > 4_080, "{bytes}");
    let told = full.publisher.withheld.take_news().unwrap();
    assert_eq!(told[&item], Reason::NoRoom { bytes });
    full.endpoint.capacity = 1 << 30;
    full.look();
    full.drain();
    assert_eq!(full.endpoint.live, full.snapshot);
}

#[test]
fn a_write_that_lacks_room_measures_only_what_has_changed() {
    let mut full = half_full();
    let encoded = full.publisher.sizes.encoded;
    for number in 1..10 {
        let asked = full.asked.get();
        let refused = full.publisher.writes().refused;
        full.wanted.get_mut("b").unwrap().insert(number, 3_000);
        full.change();
        full.drain();
        assert!(full.is_served("b", number));
        let refused = (full.publisher.writes().refused - refused) as usize;
        assert!(refused <= 1, "{refused} writes without room");
        assert!(full.publisher.sizes.encoded - encoded <= usize::from(number));
        assert!(full.asked.get() - asked <= 2 * 50, "{} owners", full.asked.get() - asked);
    }
    assert!(full.publisher.writes().refused > 5);
}

#[test]
fn what_becomes_small_enough_is_served() {
    let mut full = half_full();
    let last = *full.waiting("e").last().unwrap();
    full.wanted.get_mut("e").unwrap().insert(last, 10);
    full.change();
    full.look();
    full.drain();
    assert!(full.is_served("e", last));
}

#[test]
fn the_oldest_that_fits_is_served_first_when_there_is_room() {
    let mut full = half_full();
    let first = full.waiting("e")[0];
    // The others are smaller, but not the oldest.
    let others: Vec<u8> = full.waiting("e")[1..].to_vec();
    for number in others {
        full.wanted.get_mut("e").unwrap().insert(number, 3_950);
    }
    full.change();
    full.look();
    full.endpoint.capacity += 5_000;
    full.look();
    full.drain();
    assert!(full.is_served("e", first));
}

/// Room that comes in small parts is counted together.
#[test]
fn what_fits_is_served_though_no_part_of_the_room_would_have_been_enough() {
    let mut full = Full::new(80_000);
    let small = (0..12).map(|n| (n, 400)).collect();
    full.wanted = [("e", (0..40).map(|n| (n, 4_000)).collect()), ("b", small)].into();
    full.settle();
    let waiting = full.waiting("e").len();
    let smallest = |full: &Full| {
        let all = full.waiting("e").into_iter().map(|n| {
            let record = RecordRef { kind: Kind::Server, key: host("e", n).to_string() };
            full.publisher.sizes.bytes_of(&Item::from(record)).unwrap()
        });
        all.min().unwrap()
    };
    for number in 0..12 {
        full.wanted.get_mut("b").unwrap().remove(&number);
        full.settle();
        let free = full.endpoint.status().free_bytes;
        assert!(free - free / 8 < smallest(&full), "{free} bytes are free and something fits");
    }
    assert!(full.waiting("e").len() < waiting);
}

/// A namespace that had the most has no longer: it gets its turn with its next edit, though there is no room.
#[test]
fn who_has_less_than_others_need_not_wait_for_room() {
    let mut full = Full::new(80_000);
    full.wanted = [("b", (0..30).map(|n| (n, 4_000)).collect()), ("e", Hosts::new())].into();
    full.settle();
    let last = *full.waiting("b").last().unwrap();
    full.wanted.get_mut("b").unwrap().retain(|number, _| [0, 1, last].contains(number));
    full.wanted.insert("e", (0..30).map(|n| (n, 4_000)).collect());
    full.settle();
    assert_eq!(full.waiting("b"), [last], "the others are older");
    full.wanted.get_mut("b").unwrap().insert(last, 4_001);
    full.settle();
    assert!(full.is_served("b", last));
    assert!(!full.waiting("e").is_empty());
}

/// The old record makes room for one that is no larger, though there is none beside it.
#[test]
fn what_nginx_has_in_an_older_form_is_tried_again_when_it_changes() {
    let id = BackendId::parse("a/s/80").unwrap();
    let endpoints = |net: u8, count: u8| {
        let address = |n| serde_json::json!({"address": format!("10.0.{net}.{n}"), "port": 80});
        serde_json::from_value::<EndpointSet>((0..count).map(address).collect()).unwrap()
    };
    let rule = serde_json::json!({"rules": [{"path": {"prefix": "/"}, "backend": id, "origin": {"namespace": "a"}}]});
    let mut old = Snapshot::default();
    old.servers.insert(host("a", 0), serde_json::from_value(rule).unwrap());
    old.endpoints.insert(id.clone(), endpoints(1, 200));
    let (mut publisher, mut endpoint) = (Publisher::new(0), endpoint_of(1 << 30, 1 << 20));
    drain(&mut publisher, &mut endpoint, &old);
    endpoint.capacity = size(&endpoint.live) + 100;
    for (net, count, served) in [(2, 220, 1), (3, 200, 3)] {
        let mut new = old.clone();
        new.endpoints.insert(id.clone(), endpoints(net, count));
        publisher.change(Patch::between(&old, &new));
        drain(&mut publisher, &mut endpoint, &new);
        let view = View { snapshot: &new, owner: &|_| None };
        let answer = endpoint.answer(&publisher.request_status());
        publisher.answered(Ok(answer), Duration::ZERO, &view);
        drain(&mut publisher, &mut endpoint, &new);
        assert_eq!(endpoint.live.endpoints.get(&id), Some(&endpoints(served, 200)), "{net}");
        old = new;
    }
}

/// Endpoints beyond the limit of their namespace stay so, whatever changes of them.
#[test]
fn what_is_beyond_a_limit_is_counted_when_it_changes() {
    let id = BackendId::parse("a/s/80").unwrap();
    let endpoints = |count: u8| {
        let all =
            (0..count).map(|n| serde_json::json!({"address": format!("10.0.0.{n}"), "port": 80}));
        serde_json::from_value::<EndpointSet>(all.collect()).unwrap()
    };
    let mut old = Snapshot::default();
    let rule = serde_json::json!({"rules": [{"path": {"prefix": "/"}, "backend": id, "origin": {"namespace": "a"}}]});
    let hash = serde_json::json!({"hash_by": {"key": "$uri"}});
    old.servers.insert(host("a", 0), serde_json::from_value(rule).unwrap());
    old.backends.insert(id.clone(), serde_json::from_value(hash).unwrap());
    old.endpoints.insert(id.clone(), endpoints(10));
    let (mut publisher, mut endpoint) = (Publisher::new(5_000), endpoint_of(1 << 30, 1 << 20));
    drain(&mut publisher, &mut endpoint, &old);
    for (count, is_served) in [(9, false), (8, false), (1, true), (2, true), (9, false)] {
        let mut new = old.clone();
        new.endpoints.insert(id.clone(), endpoints(count));
        publisher.change(Patch::between(&old, &new));
        drain(&mut publisher, &mut endpoint, &new);
        assert_eq!(endpoint.live.endpoints.contains_key(&id), is_served, "{count}");
        old = new;
    }
}

/// Of each namespace the bytes of some hosts by now; 0: it is gone.
fn edits() -> impl Strategy<Value = BTreeMap<(usize, u8), usize>> {
    let bytes = prop_oneof![1 => Just(0), 4 => 10..4_000_usize];
    proptest::collection::btree_map((0..3_usize, 0..8_u8), bytes, 0..8)
}

proptest! {
    #![proptest_config(config())]

    /// Whatever is edited while the zone is full: each host is served as it was written last, or closed.
    #[test]
    fn nothing_old_is_served_in_a_full_zone(
        steps in proptest::collection::vec(edits(), 1..8),
        capacity in 5_000..40_000_u64,
    ) {
        let mut full = Full::new(capacity);
        let closed = expected(
            &Snapshot { servers: [(host("x", 0), Server::default())].into(), ..Snapshot::default() },
            &[RecordRef { kind: Kind::Server, key: host("x", 0).to_string() }].into(),
        );
        let closed = &closed.servers[&host("x", 0)];
        for edits in steps {
            for ((namespace, number), bytes) in edits {
                let hosts = full.wanted.entry(["a", "b", "e"][namespace]).or_default();
                match bytes {
                    0 => hosts.remove(&number),
                    bytes => hosts.insert(number, bytes),
                };
            }
            full.settle();
            prop_assert!(full.endpoint.live.servers.keys().eq(full.snapshot.servers.keys()));
            for (host, server) in &full.endpoint.live.servers {
                prop_assert!(server == closed || *server == full.snapshot.servers[host], "{}", host);
            }
        }
        full.endpoint.capacity = 1 << 30;
        full.look();
        full.drain();
        prop_assert_eq!(&full.endpoint.live, &full.snapshot);
    }
}
