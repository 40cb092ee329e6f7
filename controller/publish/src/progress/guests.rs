//! What one namespace adds to another one's host costs that host nothing: nginx may refuse it, or have no room for it.

use super::tenants::endpoint_of;
use super::*;
use crate::item::{self, Fate, Item};
use crate::owners::HostOwner;
use oxigress_core::model::{ListenerHost, Rule};
use oxigress_core::record::encode_server;
use std::num::NonZeroU16;

/// Rules of a host of the namespace `o`: each with its namespace, its bytes, and whether nginx refuses it.
type Rules = BTreeMap<u8, (&'static str, usize, bool)>;

fn server_of(rules: &Rules, is_kept: impl Fn(&str) -> bool) -> Server {
    let kept = rules.iter().filter(|(_, (namespace, ..))| is_kept(namespace));
    let rules: Vec<_> = kept
        .map(|(number, (namespace, bytes, is_bad))| {
            // Of the bad rules every third is refused in its closed form, too.
            let name = match (is_bad, number % 3) {
                (false, _) => "good",
                (true, 0) => "worse",
                (true, _) => "bad",
            };
            let path = format!("/{number}/{name}/{}", "x".repeat(*bytes));
            serde_json::json!({"path": {"prefix": path}, "origin": {"namespace": namespace}})
        })
        .collect();
    serde_json::from_value(serde_json::json!({ "rules": rules })).unwrap()
}

/// What becomes of a namespace's rules; `None`: nothing is refused of them.
fn fate_of(rules: &Rules, namespace: &str) -> Option<Fate> {
    let own = rules.iter().filter(|(_, (of, ..))| *of == namespace);
    let bad = own.filter(|(_, (_, _, is_bad))| *is_bad).map(|(number, _)| number % 3 == 0);
    let is_worse = bad.reduce(|a, b| a || b)?;
    Some(if is_worse { Fate::Absent } else { Fate::Closed })
}

/// What is served of rules of which nginx names the bad ones.
fn rest_of(rules: &Rules) -> Server {
    let mut rest = server_of(rules, |namespace| fate_of(rules, namespace) != Some(Fate::Absent));
    let is_closed = |rule: &&mut Rule| fate_of(rules, &rule.origin.namespace).is_some();
    rest.rules.iter_mut().filter(is_closed).for_each(item::close);
    rest
}

fn host(number: usize) -> HostPattern {
    HostPattern::parse(format!("h{number}.test").as_str()).unwrap()
}

fn snapshot_of(hosts: &[Rules], is_kept: impl Fn(&Rules, &str) -> bool) -> Snapshot {
    let servers = hosts.iter().enumerate();
    let servers =
        servers.map(|(number, rules)| (host(number), server_of(rules, |n| is_kept(rules, n))));
    Snapshot { servers: servers.collect(), ..Snapshot::default() }
}

fn listener(host: HostPattern) -> ListenerHost {
    ListenerHost::deep(NonZeroU16::MIN, None, host)
}

/// The same rules on listeners of one port.
fn on_listeners(snapshot: Snapshot) -> Snapshot {
    let servers = snapshot.servers.into_iter().map(|(host, server)| (listener(host), server));
    Snapshot { listener_servers: servers.collect(), ..Snapshot::default() }
}

fn view(snapshot: &Snapshot) -> View<'_> {
    View { snapshot, owner: &|_| Some(HostOwner { namespace: "o", created: 1 }) }
}

fn hosts(bytes: std::ops::Range<usize>, has_bad: bool) -> impl Strategy<Value = Vec<Rules>> {
    let namespace = proptest::sample::select(vec!["o", "g", "h"]);
    let is_bad = proptest::bool::weighted(if has_bad { 0.1 } else { 0.0 });
    let rules = proptest::collection::btree_map(0..40_u8, (namespace, bytes, is_bad), 0..12);
    proptest::collection::vec(rules, 1..8)
}

/// What the owner has in the zone, at least what the publisher counts.
fn bytes_of_owner(own: &Snapshot) -> u64 {
    size(own) + 100 * own.servers.len() as u64
}

/// Refuses bad rules by their places, up to ten in an answer.
fn refuse_rules(outgoing: &Outgoing, names_rules: bool) -> Option<Response> {
    let body: serde_json::Value = serde_json::from_slice(&outgoing.body).unwrap_or_default();
    let within = if outgoing.method == Method::PUT { "snapshot" } else { "upsert" };
    let tables = ["servers", "listener_servers"];
    let servers = tables.iter().flat_map(|table| {
        let all = body[within][table].as_object().into_iter().flatten();
        all.map(move |(key, server)| (format!("/{within}/{table}/{}", pointer_step(key)), server))
    });
    let faults = servers.flat_map(|(record, server)| {
        let rules = server["rules"].as_array().unwrap().iter().enumerate();
        let bad = rules.filter(|(_, rule)| {
            let path = rule["path"].to_string();
            path.contains("/worse/") || path.contains("/bad/") && rule["policies"].is_null()
        });
        bad.map(move |(place, _)| match names_rules {
            true => format!("{record}/rules/{place}/path"),
            false => format!("{record}/rules"),
        })
    });
    let mut faults = faults.take(10).map(|pointer| Fault { pointer, error: "bad".into() });
    let first = faults.next()?;
    let others: Vec<_> = faults.collect();
    let body = serde_json::json!({"error": "bad", "pointer": first.pointer, "others": others});
    let status = StatusCode::BAD_REQUEST;
    Some(Response { status, retry_after: None, body: body.to_string().into() })
}

fn send_all(
    publisher: &mut Publisher,
    endpoint: &mut Endpoint,
    view: &View<'_>,
    names_rules: bool,
    check: impl Fn(&Snapshot),
) {
    let mut requests = 0;
    while publisher.is_behind() {
        let outgoing = publisher.outgoing(view).unwrap();
        let answer = refuse_rules(&outgoing, names_rules);
        let answer = answer.unwrap_or_else(|| endpoint.answer(&outgoing));
        publisher.answered(Ok(answer), Duration::ZERO, view);
        requests += 1;
        assert!(requests < 1_000, "no end");
        check(&endpoint.live);
    }
}

/// What had no room for a moment comes back with the next status.
fn refresh_status(publisher: &mut Publisher, endpoint: &mut Endpoint, snapshot: &Snapshot) {
    let outgoing = publisher.request_status();
    let answer = endpoint.answer(&outgoing);
    publisher.answered(Ok(answer), Duration::ZERO, &view(snapshot));
    send_all(publisher, endpoint, &view(snapshot), true, |_| {});
}

/// Guests fill a zone in which the owner has less than its part: it loses nothing, not for a moment.
fn fills_the_zone(
    hosts: &[Rules],
    more: u64,
    is_new: bool,
    is_beside: bool,
    is_listener: bool,
) -> Result<(), TestCaseError> {
    let placed = |snapshot| if is_listener { on_listeners(snapshot) } else { snapshot };
    let own = snapshot_of(hosts, |_, namespace| namespace == "o");
    // The owner has less than a third of the zone; a sixth, where each write has its room beside what it replaces.
    let capacity = if is_beside { 6 } else { 3 } * bytes_of_owner(&own) + more;
    // The zone keeps room for what becomes smaller, as much as the largest host needs.
    let largest = own.servers.values().map(|server| encode_server(server).len() as u64 + 200);
    let kept = largest.max().unwrap_or(0);
    let mut endpoint = Endpoint { is_beside, kept, ..endpoint_of(capacity, 1 << 20) };
    let mut publisher = Publisher::new(0);
    let (own, new) = (placed(own), placed(snapshot_of(hosts, |_, _| true)));
    if !is_new {
        publisher.change(Patch::between(&Snapshot::default(), &own));
        send_all(&mut publisher, &mut endpoint, &view(&own), true, |_| {});
    }
    publisher.change(Patch::between(&own, &new));
    let is_closed = |rule: &Rule| rule.origin.namespace.is_empty() && rule.policies.is_some();
    send_all(&mut publisher, &mut endpoint, &view(&new), true, |live| {
        for (record, server) in RuleRecords::from(live).all() {
            assert!(!server.rules.iter().any(is_closed), "{record} is closed for a moment");
        }
    });
    // What had no room for a moment comes back with the next status.
    for _ in 0..3 {
        refresh_status(&mut publisher, &mut endpoint, &new);
    }
    for (record, server) in RuleRecords::from(&own).all() {
        let mut live = RuleRecords::from(&endpoint.live).get(&record).unwrap().clone();
        live.rules.retain(|rule| rule.origin.namespace == "o");
        prop_assert_eq!(&live, server, "{}", record);
    }
    // With room again, everything is served.
    endpoint.capacity = 1 << 30;
    refresh_status(&mut publisher, &mut endpoint, &new);
    prop_assert_eq!(&endpoint.live, &new);
    Ok(())
}

/// Without both guests the record is small, and has room beside what it was: no host is closed first.
#[test]
fn two_guests_that_go_at_once_close_no_host() {
    let rules = [("g", 226), ("g", 330), ("h", 235), ("g", 88), ("h", 298), ("h", 181)];
    let rules = (0..).zip(rules).map(|(place, (guest, bytes))| (place, (guest, bytes, false)));
    let hosts: [Rules; 1] = [rules.collect()];
    for is_listener in [false, true] {
        fills_the_zone(&hosts, 0, false, false, is_listener).unwrap();
    }
}

proptest! {
    #![proptest_config(config())]

    /// Exactly the rules of those guests are withheld who have a bad one, and the record is closed where its owner has one. A
    /// listener's host where the owner has no rule is never closed: there all are guests.
    #[test]
    fn exactly_the_guests_with_bad_rules_are_withheld(
        first in hosts(1..20, true),
        second in hosts(1..20, true),
        names_rules in any::<bool>(),
        is_listener in any::<bool>(),
    ) {
        let placed = |snapshot| if is_listener { on_listeners(snapshot) } else { snapshot };
        let mut endpoint = endpoint_of(1 << 30, 1 << 20);
        let mut publisher = Publisher::new(0);
        let mut old = Snapshot::default();
        for hosts in [&first, &second] {
            let new = placed(snapshot_of(hosts, |_, _| true));
            publisher.change(Patch::between(&old, &new));
            send_all(&mut publisher, &mut endpoint, &view(&new), names_rules, |_| {});
            for (number, rules) in hosts.iter().enumerate() {
                let live = match is_listener {
                    true => &endpoint.live.listener_servers[&listener(host(number))],
                    false => &endpoint.live.servers[&host(number)],
                };
                if fate_of(rules, "o").is_some() {
                    prop_assert!(live.rules[0].policies.is_some(), "it is not closed");
                    prop_assert_eq!(live.rules.len(), 1);
                } else if names_rules {
                    prop_assert_eq!(live, &rest_of(rules));
                } else {
                    let is_own = |rule: &&Rule| rule.origin.namespace == "o" && rule.policies.is_none();
                    prop_assert_eq!(
                        live.rules.iter().filter(is_own).count(),
                        rules.values().filter(|(namespace, ..)| *namespace == "o").count()
                    );
                }
            }
            old = new;
        }
    }

    /// A guest that fills the zone with rules on others' hosts, or on listeners that it shares, loses these, and nobody else
    /// loses any.
    #[test]
    fn a_guest_that_fills_the_zone_closes_no_host(
        hosts in hosts(10..400, false),
        more in 0..10_000_u64,
        is_new in any::<bool>(),
        is_beside in any::<bool>(),
        is_listener in any::<bool>(),
    ) {
        fills_the_zone(&hosts, more, is_new, is_beside, is_listener)?;
    }

    /// The limit of a namespace counts what it adds to others' hosts, and costs these nothing.
    #[test]
    fn a_limit_holds_for_what_guests_add(hosts in hosts(10..400, false), limit in 500..8_000_u64) {
        let mut endpoint = endpoint_of(1 << 30, 1 << 20);
        let mut publisher = Publisher::new(limit);
        let new = snapshot_of(&hosts, |_, _| true);
        publisher.change(Patch::between(&Snapshot::default(), &new));
        send_all(&mut publisher, &mut endpoint, &view(&new), true, |_| {});
        let withheld = publisher.take_withheld().unwrap_or_default();
        let own = snapshot_of(&hosts, |_, namespace| namespace == "o");
        if bytes_of_owner(&own) <= limit {
            for (host, server) in &own.servers {
                let mut live = endpoint.live.servers[host].clone();
                live.rules.retain(|rule| rule.origin.namespace == "o");
                prop_assert_eq!(&live, server, "{}", host);
            }
        }
        for guest in ["g", "h"] {
            let mut bytes = 0;
            for (number, rules) in hosts.iter().enumerate() {
                let live = &endpoint.live.servers[&host(number)];
                let of_guest = |rule: &&Rule| rule.origin.namespace == guest;
                let kept: Vec<_> = live.rules.iter().filter(of_guest).collect();
                bytes += crate::item::bytes_of(&kept) as u64;
                let wanted = rules.values().filter(|(namespace, ..)| *namespace == guest).count();
                let record = RecordRef { kind: Kind::Server, key: host(number).to_string() };
                let is_out = withheld.contains_key(&Item::of_guest(record.clone(), guest))
                    || withheld.contains_key(&Item::from(record));
                prop_assert_eq!(kept.len(), if is_out { 0 } else { wanted });
            }
            prop_assert!(bytes <= limit, "{} has {} of {}", guest, bytes, limit);
        }
    }
}

/// Where the zone is full to the last bytes, a guest's rules go without a moment in which the owner's host is closed: the zone
/// keeps room for what becomes smaller.
#[test]
fn a_guest_s_rules_go_without_closing_the_host() {
    let own = (0, ("o", 900, false));
    let guests = (1..11).map(|number| (number, ("g", 300, false)));
    let hosts = [std::iter::once(own).chain(guests).collect::<Rules>()];
    let more = [hosts[0].clone(), [(0, ("o", 500, false))].into()];
    let (first, second) = (snapshot_of(&hosts, |_, _| true), snapshot_of(&more, |_, _| true));
    let run = |kept: u64| {
        let mut endpoint = Endpoint { is_beside: true, kept, ..endpoint_of(1 << 20, 1 << 20) };
        let mut publisher = Publisher::new(0);
        publisher.change(Patch::between(&Snapshot::default(), &first));
        send_all(&mut publisher, &mut endpoint, &view(&first), true, |_| {});
        endpoint.capacity = size(&endpoint.live) + 50;
        publisher.change(Patch::between(&first, &second));
        let closed = std::cell::Cell::new(0);
        send_all(&mut publisher, &mut endpoint, &view(&second), true, |live| {
            let rules = live.servers.get(&host(0)).map(|server| &server.rules);
            let is_owners = |rule: &Rule| rule.origin.namespace == "o";
            let is_served = rules.is_some_and(|rules| rules.iter().any(is_owners));
            closed.set(closed.get() + usize::from(!is_served));
        });
        let own = snapshot_of(&more, |_, namespace| namespace == "o");
        (closed.get(), endpoint.live == own)
    };
    assert_eq!(run(2_000), (0, true), "the guest's rules alone make room");
    assert!(run(0).0 > 0, "without that room the host is closed");
}

/// The owner of a host edits it while a guest's rules there have no room: that is live with one write.
#[test]
fn an_owner_s_edit_does_not_wait_for_a_guest_s_room() {
    let own = |bytes| std::iter::once((0, ("o", bytes, false)));
    let guests = || (1..11).map(|number| (number, ("g", 300, false)));
    let snapshot = |bytes| snapshot_of(&[own(bytes).chain(guests()).collect()], |_, _| true);
    let mut old = snapshot(900);
    let mut endpoint = Endpoint { kept: 10_000, ..endpoint_of(3_000, 1 << 20) };
    let mut publisher = Publisher::new(0);
    send_all(&mut publisher, &mut endpoint, &view(&old), true, |_| {});
    for bytes in [500, 1_000, 700] {
        let new = snapshot(bytes);
        let writes = publisher.writes();
        publisher.change(Patch::between(&old, &new));
        send_all(&mut publisher, &mut endpoint, &view(&new), true, |_| {});
        let own = snapshot_of(&[own(bytes).collect()], |_, _| true);
        assert_eq!(endpoint.live, own);
        let (applied, refused) = (publisher.writes().applied, publisher.writes().refused);
        assert_eq!((applied - writes.applied, refused - writes.refused), (1, 0));
        old = new;
    }
}
