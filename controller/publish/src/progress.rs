//! The publisher always makes progress: whatever nginx refuses, everything else goes live.

use super::*;
use crate::item::RuleRecords;
use oxigress_core::model::policy::{PolicyId, TlsPolicy};
use oxigress_core::model::{Backend, BackendId, EndpointSet, HostPattern, ListenerHost, Server};
use oxigress_core::record::table::{Operations, RecordRef};
use oxigress_core::record::{Change, Kind, delta_records};
use oxigress_core::wire::native::{Applied, Fault, Keys, Whole};
use oxigress_core::wire::{decode, pointer_step};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU16;

mod full;
mod guests;
mod tenants;

const EPOCH: &str = "00000000000000aa";

/// A stand-in for the endpoint of the module, which keeps what it takes.
struct Endpoint {
    live: Snapshot,
    generation: u64,
    /// Records that it refuses.
    refused: BTreeSet<RecordRef>,
    /// Its answers name what is wrong.
    names_faults: bool,
    /// Most faults that an answer names.
    most_faults: usize,
    /// Longest body.
    body_limit: usize,
    /// Bytes that the zone has for records.
    capacity: u64,
    /// What is written needs room beside what it replaces, as in the module.
    is_beside: bool,
    /// Bytes beside the capacity for records that take no more than what they replace.
    kept: u64,
}

/// What is left of a snapshot when all goes that is not named.
fn retained(next: Snapshot, retain: Keys) -> Snapshot {
    let mut all = Patch { remove: retain, ..Patch::default() };
    let mut named = BTreeSet::new();
    let mut changes = Vec::new();
    TABLES.iter().for_each(|table| (table.removals)(&all, &mut changes));
    named.extend(changes.into_iter().map(|change| (change.kind, change.key)));
    all = Patch::of_whole(next);
    let mut stale = Vec::new();
    for table in &TABLES {
        let mut keys = Vec::new();
        (table.keys)(&all, &mut keys);
        stale.extend(
            keys.into_iter().filter(|k| !named.contains(&(k.kind, k.key.clone().into_bytes()))),
        );
    }
    for record in stale {
        remove(&mut all, &record);
    }
    all.into_whole()
}

impl Endpoint {
    /// An empty one with room for everything.
    fn refusing(refused: BTreeSet<RecordRef>, names_faults: bool) -> Self {
        Endpoint {
            live: Snapshot::default(),
            generation: 0,
            refused,
            names_faults,
            most_faults: 1_000,
            body_limit: 1 << 20,
            capacity: 1 << 30,
            is_beside: false,
            kept: 0,
        }
    }

    fn answer(&mut self, outgoing: &Outgoing) -> Response {
        let tag = |n: u64| format!("\"{EPOCH}.{n}\"");
        let (status, body) = match outgoing.method {
            Method::GET => (200, serde_json::to_value(self.status()).unwrap()),
            _ if outgoing.body.len() > self.body_limit => (413, serde_json::json!({})),
            _ if outgoing
                .if_match
                .as_ref()
                .is_some_and(|tagged| *tagged != tag(self.generation)) =>
            {
                (409, serde_json::json!({"error": "old"}))
            }
            _ => self.write(outgoing),
        };
        let status = StatusCode::from_u16(status).unwrap();
        Response { status, retry_after: None, body: body.to_string().into() }
    }

    fn write(&mut self, outgoing: &Outgoing) -> (u16, serde_json::Value) {
        let is_whole = outgoing.method == Method::PUT;
        let within = if is_whole { "snapshot" } else { "upsert" };
        let (mut next, patch) = match is_whole {
            true => {
                let whole = decode::<Whole>(&outgoing.body).unwrap().0.snapshot;
                (Snapshot::default(), Patch::of_whole(whole))
            }
            false => (self.live.clone(), decode::<Patch>(&outgoing.body).unwrap().0),
        };
        assert_eq!(patch.contradiction(), None);
        if let Some(problem) = self.problem(&patch, within) {
            return (400, problem);
        }
        let retain = patch.retain.clone();
        let written = match self.is_beside && !is_whole {
            true => size(&Patch { upsert: patch.upsert.clone(), ..Patch::default() }.into_whole()),
            false => 0,
        };
        let kept = if self.is_less(&patch) { self.kept } else { 0 };
        patch.apply(&mut next);
        if let Some(retain) = retain {
            next = retained(next, retain);
        }
        let needed = size(&next).max(size(&self.live) * u64::from(written > 0) + written);
        if needed > self.capacity + kept {
            let (live, capacity) = (size(&self.live), self.capacity);
            let free = if is_whole { capacity } else { capacity - live };
            let needed = needed - if is_whole { 0 } else { live };
            return (
                507,
                serde_json::json!({"error": "full", "needed_bytes": needed,
                "free_bytes": free, "free_for_less_bytes": free + self.kept, "capacity_bytes": capacity}),
            );
        }
        self.live = next;
        self.generation += 1;
        let applied =
            Applied { epoch: EPOCH.into(), generation: self.generation, ignored_fields: 0 };
        (200, serde_json::to_value(applied).unwrap())
    }

    /// What is said of a patch with records that are refused.
    fn problem(&self, patch: &Patch, within: &str) -> Option<serde_json::Value> {
        let faults: Vec<_> = self
            .refused
            .iter()
            .filter(|record| is_refused(patch, record))
            .take(self.most_faults)
            .map(|record| {
                let name = Operations::of_kind(record.kind).unwrap().name;
                let pointer = format!("/{within}/{name}/{}", pointer_step(&record.key));
                Fault { pointer, error: "refused".into() }
            })
            .collect();
        let (first, others) = faults.split_first()?;
        Some(match self.names_faults {
            true => {
                serde_json::json!({"error": "refused", "pointer": first.pointer, "others": others})
            }
            false => serde_json::json!({"error": "refused"}),
        })
    }

    /// Whether each record that is written takes no more than the one that it replaces.
    fn is_less(&self, patch: &Patch) -> bool {
        let records = |patch: &Patch| -> BTreeMap<_, usize> {
            let all = delta_records(patch, |_, _| None).into_iter();
            all.filter_map(|change| Some(((change.kind, change.key), change.value?.len())))
                .collect()
        };
        let live = records(&Patch::of_whole(self.live.clone()));
        records(patch).iter().all(|(key, bytes)| live.get(key).is_some_and(|old| bytes <= old))
    }

    fn status(&self) -> Status {
        Status {
            epoch: EPOCH.into(),
            generation: self.generation,
            capacity_bytes: self.capacity,
            free_bytes: self.capacity - size(&self.live),
            ..Status::default()
        }
    }
}

/// A record that stands in a delta as it is, not in its closed form.
fn is_refused(patch: &Patch, record: &RecordRef) -> bool {
    match record.kind {
        Kind::Tls => patch.upsert.tls.iter().any(|(k, v)| k.as_str() == record.key && !v.denied),
        Kind::Session => {
            let mut all = patch.upsert.sessions.iter();
            all.any(|(at, route)| at.to_string() == record.key && !route.targets.is_empty())
        }
        Kind::Server | Kind::Listener => RuleRecords::from(patch)
            .get(record)
            .is_some_and(|server| server.rules.first().is_none_or(|rule| rule.policies.is_none())),
        _ => {
            let mut keys = Vec::new();
            TABLES.iter().for_each(|table| (table.keys)(patch, &mut keys));
            keys.contains(record)
        }
    }
}

fn remove(patch: &mut Patch, record: &RecordRef) {
    let table = Operations::of_kind(record.kind).unwrap();
    (table.remove)(patch, &record.key);
}

fn size(snapshot: &Snapshot) -> u64 {
    let records = delta_records(&Patch::of_whole(snapshot.clone()), |_, _| None);
    let bytes = |Change { key, value, .. }: &Change| {
        (key.len() + value.as_ref().map_or(0, Vec::len)) as u64 + 100
    };
    records.iter().filter(|change| change.kind != Kind::Settings).map(bytes).sum()
}

/// A snapshot with the records of `numbers`, some of each kind in the list of kinds.
fn snapshot(numbers: impl IntoIterator<Item = usize>) -> Snapshot {
    let mut snapshot = Snapshot::default();
    for number in numbers {
        let host = HostPattern::parse(format!("h{number}.test").as_str()).unwrap();
        let id = BackendId::parse(format!("n{}/s{number}/80", number % 3)).unwrap();
        let name = format!("n{}/t{number}", number % 3);
        let all = &mut snapshot;
        match TABLES[number % TABLES.len()].kind {
            Kind::Server => drop(all.servers.insert(host, Server::default())),
            Kind::Backend => drop(all.backends.insert(id, Backend::default())),
            Kind::Endpoints => drop(all.endpoints.insert(id, EndpointSet::default())),
            Kind::Policies => {
                let id = PolicyId::parse(format!("p{number}")).unwrap();
                drop(all.policies.insert(id, Default::default()));
            }
            Kind::Tls => drop(all.tls.insert(host, TlsPolicy::default())),
            Kind::Certificate => {
                let pair = serde_json::json!({"chain": "x", "key": "y"});
                all.certificates.insert(parsed(&name), serde_json::from_value(pair).unwrap());
            }
            Kind::Name => drop(all.names.insert(host, parsed(&name))),
            Kind::Passthrough => drop(all.passthrough.insert(host, id)),
            Kind::Port => drop(all.ports.insert(parsed(&format!("tcp/{}", 1 + number)), id)),
            Kind::Session => {
                let route = serde_json::json!({"namespace": format!("n{}", number % 3), "targets": [{"weight": 1, "backend": id}]});
                let route = serde_json::from_value(route).unwrap();
                drop(all.sessions.insert(parsed(&format!("tcp/{}", 1 + number)), route));
            }
            Kind::Bundle => {
                drop(all.bundles.insert(parsed(&format!("{number:064x}")), parsed("text")))
            }
            Kind::Listener => {
                let at = ListenerHost::deep(NonZeroU16::MIN, None, host);
                drop(all.listener_servers.insert(at, Server::default()));
            }
            Kind::Settings | Kind::General => unreachable!("not tables of records"),
        }
    }
    snapshot
}

/// A value from its text on the wire.
fn parsed<T: serde::de::DeserializeOwned>(text: &str) -> T {
    serde_json::from_value(text.into()).unwrap()
}

fn records(snapshot: &Snapshot) -> Vec<RecordRef> {
    let mut keys = Vec::new();
    let patch = Patch::of_whole(snapshot.clone());
    TABLES.iter().for_each(|table| (table.keys)(&patch, &mut keys));
    keys
}

/// What has to be live: everything as it is, and of refused records their closed forms or nothing.
fn expected(snapshot: &Snapshot, refused: &BTreeSet<RecordRef>) -> Snapshot {
    let mut patch = Patch::of_whole(snapshot.clone());
    for record in refused.iter().filter(|record| records(snapshot).contains(record)) {
        (Operations::of_kind(record.kind).unwrap().withhold)(&mut patch, &record.key);
    }
    patch.into_whole()
}

/// Sends until there is nothing more to send; the number of requests it took.
fn drain(publisher: &mut Publisher, endpoint: &mut Endpoint, snapshot: &Snapshot) -> usize {
    drain_as(publisher, endpoint, &View { snapshot, owner: &|_| None }, &|_| {})
}

/// The same with owners; `check` sees what is live after each request.
fn drain_as(
    publisher: &mut Publisher,
    endpoint: &mut Endpoint,
    view: &View<'_>,
    check: &dyn Fn(&Snapshot),
) -> usize {
    let mut requests = 0;
    while publisher.is_behind() {
        let outgoing = publisher.outgoing(view).unwrap();
        let answer = endpoint.answer(&outgoing);
        check(&endpoint.live);
        let next = publisher.answered(Ok(answer), Duration::ZERO, view);
        assert!(matches!(next, Next::Now), "it waits: {next:?}");
        requests += 1;
        assert!(requests < 3_000, "no end");
    }
    requests
}

/// A few cases in `make test`; `PROPTEST_CASES` says another number, as `make soak` does.
fn config() -> ProptestConfig {
    let said = std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok());
    ProptestConfig {
        cases: said.unwrap_or(256),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

#[derive(Debug, Clone)]
struct Case {
    steps: Vec<BTreeSet<usize>>,
    refused: BTreeSet<usize>,
    names_faults: bool,
    most_faults: usize,
    body_limit: usize,
    /// Whether nginx loses everything before each step.
    restarts: Vec<bool>,
}

fn case() -> impl Strategy<Value = Case> {
    let numbers = || proptest::collection::btree_set(0..90_usize, 0..40);
    let steps = proptest::collection::vec(numbers(), 1..5);
    let restarts = proptest::collection::vec(any::<bool>(), 5);
    (
        steps,
        numbers(),
        any::<bool>(),
        1..5_usize,
        prop_oneof![Just(2_000_usize), Just(5_000), Just(1 << 20)],
        restarts,
    )
        .prop_map(|(steps, refused, names_faults, most_faults, body_limit, restarts)| Case {
            steps,
            refused,
            names_faults,
            most_faults,
            body_limit,
            restarts,
        })
}

fn run(case: &Case) {
    let refused: BTreeSet<_> =
        records(&snapshot(case.refused.iter().copied())).into_iter().collect();
    let mut endpoint = Endpoint {
        live: Snapshot::default(),
        generation: 0,
        refused,
        names_faults: case.names_faults,
        most_faults: case.most_faults,
        body_limit: case.body_limit,
        capacity: 1 << 30,
        is_beside: false,
        kept: 0,
    };
    let mut publisher = Publisher::new(0);
    let mut old = Snapshot::default();
    for (step, restarts) in case.steps.iter().zip(&case.restarts) {
        if *restarts {
            endpoint.live = Snapshot::default();
            endpoint.generation += 1;
        }
        let new = snapshot(step.iter().copied());
        publisher.change(Patch::between(&old, &new));
        drain(&mut publisher, &mut endpoint, &new);
        // An nginx that has lost its state is noticed by its status.
        let outgoing = publisher.request_status();
        let answer = endpoint.answer(&outgoing);
        publisher.answered(Ok(answer), Duration::ZERO, &View { snapshot: &new, owner: &|_| None });
        drain(&mut publisher, &mut endpoint, &new);
        assert_eq!(endpoint.live, expected(&new, &endpoint.refused));
        old = new;
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn exactly_the_refused_records_are_missing(case in case()) {
        run(&case);
    }

    #[test]
    fn a_full_zone_serves_what_fits_and_everything_when_it_has_grown(
        first in proptest::collection::btree_set(0..60_usize, 0..60),
        second in proptest::collection::btree_set(0..60_usize, 0..60),
        capacity in 500..8_000_u64,
    ) {
        let mut endpoint = Endpoint {
            live: Snapshot::default(),
            generation: 0,
            refused: BTreeSet::new(),
            names_faults: true,
            most_faults: 10,
            body_limit: 1 << 20,
            capacity,
            is_beside: false,
            kept: 0,
        };
        let mut publisher = Publisher::new(0);
        let mut old = Snapshot::default();
        for numbers in [&first, &second] {
            let new = snapshot(numbers.iter().copied());
            publisher.change(Patch::between(&old, &new));
            drain(&mut publisher, &mut endpoint, &new);
            old = new;
        }
        let refresh_status = |publisher: &mut Publisher, endpoint: &mut Endpoint| {
            let outgoing = publisher.request_status();
            let answer = endpoint.answer(&outgoing);
            publisher.answered(Ok(answer), Duration::ZERO, &View { snapshot: &old, owner: &|_| None });
        };
        refresh_status(&mut publisher, &mut endpoint);
        drain(&mut publisher, &mut endpoint, &old);
        endpoint.capacity = publisher.wanted_zone().unwrap_or(capacity).max(1 << 20);
        refresh_status(&mut publisher, &mut endpoint);
        drain(&mut publisher, &mut endpoint, &old);
        prop_assert_eq!(&endpoint.live, &old);
    }
}

#[test]
fn a_thousand_refused_records_take_few_requests() {
    let numbers = 0..2_000;
    let new = snapshot(numbers.clone());
    let refused: BTreeSet<_> = records(&new).into_iter().step_by(2).collect();
    assert_eq!(refused.len(), 1_000);
    let mut endpoint = Endpoint::refusing(refused, true);
    let mut publisher = Publisher::new(0);
    publisher.change(Patch::between(&Snapshot::default(), &new));
    let requests = drain(&mut publisher, &mut endpoint, &new);
    assert_eq!(endpoint.live, expected(&new, &endpoint.refused));
    assert!(requests <= 3, "{requests} requests");
    let left: BTreeMap<_, _> = publisher.take_withheld().unwrap();
    assert_eq!(left.len(), 1_000);
}

/// A change of endpoints is live with the second request, whether nginx names what it refuses or not.
#[test]
fn endpoints_do_not_wait_for_records_that_are_refused() {
    let old = snapshot(0..200);
    let id = old.endpoints.keys().next().unwrap().clone();
    let mut new = snapshot(0..300);
    let set = serde_json::json!([{"address": "10.0.0.1", "port": 80}]);
    new.endpoints.insert(id.clone(), serde_json::from_value(set).unwrap());
    let added = records(&new).into_iter().filter(|record| !records(&old).contains(record));
    let refused: BTreeSet<_> = added.filter(|record| record.kind != Kind::Endpoints).collect();
    assert!(refused.len() > 50);
    for names_faults in [true, false] {
        let mut endpoint =
            Endpoint { most_faults: 5, ..Endpoint::refusing(refused.clone(), names_faults) };
        let mut publisher = Publisher::new(0);
        publisher.change(Patch::between(&Snapshot::default(), &old));
        drain(&mut publisher, &mut endpoint, &old);
        publisher.change(Patch::between(&old, &new));
        let view = View { snapshot: &new, owner: &|_| None };
        let mut requests = 0;
        while endpoint.live.endpoints[&id] != new.endpoints[&id] {
            let outgoing = publisher.outgoing(&view).unwrap();
            let answer = endpoint.answer(&outgoing);
            publisher.answered(Ok(answer), Duration::ZERO, &view);
            requests += 1;
            assert!(requests < 100, "no end");
        }
        assert!(requests <= 2, "{requests} requests, names faults: {names_faults}");
    }
}
