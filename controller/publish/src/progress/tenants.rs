//! Namespaces share the zone and each keeps its part of it; what is sent in parts is whole at each step.

use super::*;
use crate::owners::{HostOwner, OwnedHost};
use oxigress_core::model::{Bundle, BundleId};

/// A server of `namespace` with about so many bytes.
fn server_of(namespace: &str, bytes: usize) -> Server {
    let rule = serde_json::json!({"path": {"prefix": format!("/{}", "x".repeat(bytes.min(4_000)))},
        "origin": {"namespace": namespace}});
    serde_json::from_value(serde_json::json!({ "rules": [rule] })).unwrap()
}

/// What namespaces want: of each host its namespace, its age and its bytes.
#[derive(Debug, Clone)]
struct Tenants(BTreeMap<HostPattern, (String, i64, usize)>);

impl Tenants {
    fn snapshot(&self, namespaces: &[&str]) -> Snapshot {
        let mut snapshot = Snapshot::default();
        for (host, (namespace, _, bytes)) in &self.0 {
            if namespaces.contains(&namespace.as_str()) {
                snapshot.servers.insert(host.clone(), server_of(namespace, *bytes));
            }
        }
        snapshot
    }

    fn owner(&self, host: &HostPattern) -> Option<HostOwner<'_>> {
        let (namespace, created, _) = self.0.get(host)?;
        Some(HostOwner { namespace, created: *created })
    }

    fn drain(&self, publisher: &mut Publisher, endpoint: &mut Endpoint, snapshot: &Snapshot) {
        let owner = |place: OwnedHost<'_>| self.owner(place.host());
        let view = View { snapshot, owner: &owner };
        drain_as(publisher, endpoint, &view, &|_| {});
        // What garbage and statuses say comes later.
        for _ in 0..3 {
            let outgoing = publisher.request_status();
            let answer = endpoint.answer(&outgoing);
            publisher.answered(Ok(answer), Duration::ZERO, &view);
            drain_as(publisher, endpoint, &view, &|_| {});
        }
    }
}

fn tenants() -> impl Strategy<Value = Tenants> {
    let host = (0..3_usize, 0..50_i64, 10..4_000_usize);
    proptest::collection::vec(host, 1..80).prop_map(|hosts| {
        let all = hosts.into_iter().enumerate().map(|(number, (tenant, created, bytes))| {
            let namespace = ["a", "b", "c"][tenant];
            let host = HostPattern::parse(format!("{namespace}{number}.test").as_str()).unwrap();
            (host, (namespace.to_owned(), created, bytes))
        });
        Tenants(all.collect())
    })
}

pub(super) fn endpoint_of(capacity: u64, body_limit: usize) -> Endpoint {
    Endpoint {
        live: Snapshot::default(),
        generation: 0,
        refused: BTreeSet::new(),
        names_faults: true,
        most_faults: 10,
        body_limit,
        capacity,
        is_beside: false,
        kept: 0,
    }
}

proptest! {
    #![proptest_config(config())]

    /// Whoever comes first and fills the zone: a namespace that has no more than its part of it is served whole.
    #[test]
    fn a_namespace_with_less_than_its_part_of_the_zone_loses_nothing(
        tenants in tenants(),
        order in Just(["a", "b", "c"]).prop_shuffle(),
        capacity in 20_000..200_000_u64,
        restarts in any::<bool>(),
    ) {
        let mut endpoint = endpoint_of(capacity, 1 << 20);
        let mut publisher = Publisher::new(0);
        let mut old = Snapshot::default();
        for come in 1..=order.len() {
            let new = tenants.snapshot(&order[..come]);
            if restarts {
                publisher = Publisher::new(0);
            } else {
                publisher.change(Patch::between(&old, &new));
            }
            tenants.drain(&mut publisher, &mut endpoint, &new);
            old = new;
            // A namespace's bytes as the publisher counts them.
            for namespace in &order[..come] {
                let own = tenants.snapshot(&[namespace]);
                let bytes = size(&own) + 28 * own.servers.len() as u64;
                if bytes > capacity / come as u64 {
                    continue;
                }
                for (host, server) in &own.servers {
                    prop_assert_eq!(endpoint.live.servers.get(host), Some(server), "{} of {}", host, namespace);
                }
            }
            // Nobody is open who is not served.
            for host in old.servers.keys() {
                prop_assert!(endpoint.live.servers.contains_key(host), "{} is not closed", host);
            }
        }
    }

    /// The limit holds whatever room there is, the oldest stay, and what is below it is served.
    #[test]
    fn no_namespace_has_more_than_its_limit(
        tenants in tenants(),
        limit in 1_000..60_000_u64,
    ) {
        let mut endpoint = endpoint_of(1 << 30, 1 << 20);
        let mut publisher = Publisher::new(limit);
        let mut old = Snapshot::default();
        for namespaces in [&["a"][..], &["a", "b", "c"], &["b", "c"], &["a", "b", "c"]] {
            let new = tenants.snapshot(namespaces);
            publisher.change(Patch::between(&old, &new));
            tenants.drain(&mut publisher, &mut endpoint, &new);
            for namespace in namespaces {
                let own = tenants.snapshot(&[namespace]);
                let is_live = |host: &HostPattern| {
                    endpoint.live.servers.get(host) == own.servers.get(host)
                };
                let of = |host: &HostPattern| {
                    let one = Snapshot { servers: [(host.clone(), own.servers[host].clone())].into(),
                        ..Snapshot::default() };
                    size(&one) + 28
                };
                let (live, closed): (Vec<_>, Vec<_>) = own.servers.keys().partition(|host| is_live(host));
                let bytes: u64 = live.iter().map(|host| of(host)).sum();
                prop_assert!(bytes <= limit, "{} has {} of {}", namespace, bytes, limit);
                let age = |host: &HostPattern| tenants.0[host].1;
                let newest = live.iter().map(|host| age(host)).max();
                prop_assert!(closed.iter().all(|host| newest <= Some(age(host))), "an older one waits");
                if let Some(next) = closed.iter().map(|host| of(host)).max() {
                    prop_assert!(bytes + next > limit, "more than needed waits");
                }
            }
            old = new;
        }
    }

    /// Whatever the parts in which a change is sent: nothing live names a bundle or policies that are not there, and no
    /// host is live before its TLS policy.
    #[test]
    fn what_is_sent_in_parts_is_never_open_nor_closed_in_between(
        first in proptest::collection::btree_set(0..20_usize, 1..20),
        second in proptest::collection::btree_set(0..20_usize, 1..20),
        body_limit in 2_000..5_000_usize,
    ) {
        let mut endpoint = endpoint_of(1 << 30, body_limit);
        let mut publisher = Publisher::new(0);
        let mut old = Snapshot::default();
        for (generation, numbers) in [(1, &first), (2, &second)] {
            let new = protected(numbers, generation);
            publisher.change(Patch::between(&old, &new));
            let view = View { snapshot: &new, owner: &|_| None };
            drain_as(&mut publisher, &mut endpoint, &view, &|live| {
                for (host, server) in &live.servers {
                    assert!(live.tls.contains_key(host), "{host} is open");
                    let named = server.rules.iter().filter_map(|rule| rule.policies.as_ref());
                    assert!(named.into_iter().all(|id| live.policies.contains_key(id)), "{host} lacks policies");
                }
                for (host, policy) in &live.tls {
                    assert!(policy.bundles().all(|id| live.bundles.contains_key(id)), "{host} lacks a bundle");
                }
            });
            assert_eq!(endpoint.live, new);
            old = new;
        }
    }
}

/// Hosts with client certificates and policies, other ones in each generation.
fn protected(numbers: &BTreeSet<usize>, generation: u8) -> Snapshot {
    let mut snapshot = Snapshot::default();
    for number in numbers {
        let host = HostPattern::parse(format!("h{number}.test").as_str()).unwrap();
        let bundle = BundleId::of_digest([generation * 64 + (number % 8) as u8; 32]);
        let policies = PolicyId::parse(format!("p{}-{generation}", number % 4)).unwrap();
        let rules = serde_json::json!({"rules": [{"path": {"prefix": "/"}, "policies": policies}]});
        let tls =
            serde_json::json!({"client": {"authorities": bundle, "verify": "on", "depth": 1}});
        snapshot.bundles.insert(bundle, Bundle::parse("x".repeat(40)).unwrap());
        snapshot.policies.insert(policies, Default::default());
        snapshot.servers.insert(host.clone(), serde_json::from_value(rules).unwrap());
        snapshot.tls.insert(host, serde_json::from_value(tls).unwrap());
    }
    snapshot
}
