//! Which objects of the Gateway API have another status than they should, and writing it.
//!
//! Shape:   [`GatewayQueue`] knows what each status is to say and what it says; [`merge`] makes of both the status to be written, in
//!          which what others have written stays: conditions of other types, and other controllers' parents of a route.
//! Turns:   namespaces take turns, one status each, and so do the objects of each, so that one that changes all the time delays
//!          nobody else. What is in its pause is not looked at until that has passed.
//! Rest:    the status of a Gateway, a ListenerSet or a policy changes with each route that comes or goes. It is written at most once
//!          in [`REST`]: what routes ask for is not to wait for it.
//! Errors:  a conflict waits for the object's next version; whatever else is tried again, ever more slowly.
//! Source:  Gateway API v1.7.

mod merge;

use crate::write::{WriteOutcome, contest_pause, outcome};
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use kube::{Api, Client};
use oxigress_objects::gateway::GROUP;
use oxigress_objects::gateway_status::Wanted;
use oxigress_objects::published::{Address, ObjectStatus};
use oxigress_objects::{Kind, Name, ObjectRef};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::time::Duration;
use tokio::time::Instant;

/// After an answer that was none of use.
const AGAIN: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(30)];

/// Between two writes of the status of an object that others change.
const REST: Duration = Duration::from_millis(500);

/// What is known of one object.
#[derive(Default)]
struct Entry {
    seen: Option<ObjectStatus>,
    wanted: Option<Wanted>,
    /// Writes of the same content, one after the other.
    repeated: u32,
    failures: u32,
    /// The time before which nothing is tried.
    at: Option<Instant>,
    /// The time before which nothing is written, whatever there is to say.
    rests_until: Option<Instant>,
    is_under_way: bool,
}

/// A status that is to be written.
pub struct GatewayWrite {
    /// The object whose status it is.
    pub object: ObjectRef,
    version: String,
    status: Value,
}

/// The objects whose status is written, and what it is to say.
pub struct GatewayQueue {
    controller: String,
    addresses: Option<Vec<Address>>,
    entries: BTreeMap<ObjectRef, Entry>,
    /// Those to look at, by namespace.
    due: BTreeMap<Name, BTreeSet<ObjectRef>>,
    /// The namespace that had the last turn.
    last: Name,
    /// The object that had the last turn of each namespace with more of them.
    behind: BTreeMap<Name, ObjectRef>,
    /// Those in their pause, by its end.
    paused: BTreeSet<(Instant, ObjectRef)>,
}

impl GatewayQueue {
    /// For the controller of this name in GatewayClasses.
    pub fn new(controller: String) -> Self {
        GatewayQueue {
            controller,
            addresses: None,
            entries: BTreeMap::new(),
            due: BTreeMap::new(),
            last: Name::from(""),
            behind: BTreeMap::new(),
            paused: BTreeSet::new(),
        }
    }

    /// An object as it stands; none: it is gone.
    pub fn publish(&mut self, object: ObjectRef, seen: Option<ObjectStatus>) {
        match seen {
            None => {
                if let Some(entry) = self.entries.get_mut(&object) {
                    entry.seen = None;
                }
                self.forget(&object);
            }
            Some(seen) => {
                let entry = self.entries.entry(object.clone()).or_default();
                entry.seen = Some(seen);
                self.look_at(object);
            }
        }
    }

    /// What a status is to say; none: nothing of ours any more.
    pub fn want(&mut self, object: ObjectRef, wanted: Option<Wanted>) {
        let entry = self.entries.entry(object.clone()).or_default();
        (entry.wanted, entry.repeated, entry.at) = (wanted, 0, entry.rests_until);
        self.forget(&object);
        self.look_at(object);
    }

    fn look_at(&mut self, object: ObjectRef) {
        self.due.entry(object.key.namespace.clone()).or_default().insert(object);
    }

    /// Nothing is known of an object that is gone and about which nothing is to be said.
    fn forget(&mut self, object: &ObjectRef) {
        let is_over =
            |entry: &Entry| entry.seen.is_none() && entry.wanted.is_none() && !entry.is_under_way;
        if self.entries.get(object).is_some_and(is_over) {
            self.entries.remove(object);
        }
    }

    /// Where clients reach the Gateways; none: nobody knows, and nothing is written.
    pub fn reach(&mut self, addresses: Option<Vec<Address>>) {
        if self.addresses != addresses {
            self.addresses = addresses;
            let all: Vec<_> = self.entries.keys().cloned().collect();
            all.into_iter().for_each(|object| self.look_at(object));
        }
    }

    /// The next status to write.
    pub fn next(&mut self, now: Instant) -> Option<GatewayWrite> {
        self.addresses.as_ref()?;
        while let Some((at, _)) = self.paused.first()
            && *at <= now
            && let Some((_, object)) = self.paused.pop_first()
        {
            self.look_at(object);
        }
        while let Some(object) = self.take_due() {
            let found = self.different(object, now);
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// One object of the namespace whose turn it is.
    fn take_due(&mut self) -> Option<ObjectRef> {
        let after = (Bound::Excluded(&self.last), Bound::Unbounded);
        let next = self.due.range::<Name, _>(after).next().or_else(|| self.due.first_key_value());
        let namespace = next?.0.clone();
        let all = self.due.get_mut(&namespace)?;
        let behind = self.behind.remove(&namespace);
        let next = behind.and_then(|last| {
            let after = (Bound::Excluded(last), Bound::Unbounded);
            all.range(after).next().cloned()
        });
        let object = next.or_else(|| all.first().cloned());
        if let Some(object) = &object {
            all.remove(object);
        }
        if all.is_empty() {
            self.due.remove(&namespace);
        } else if let Some(object) = &object {
            self.behind.insert(namespace.clone(), object.clone());
        }
        self.last = namespace;
        object
    }

    /// The write that an object needs, if it needs one now. One that is under way is looked at again when it is over.
    fn different(&mut self, object: ObjectRef, now: Instant) -> Option<GatewayWrite> {
        let addresses = self.addresses.as_ref()?;
        let entry = self.entries.get_mut(&object).filter(|entry| !entry.is_under_way)?;
        if let Some(at) = entry.at.filter(|at| *at > now) {
            self.paused.insert((at, object));
            return None;
        }
        let seen = entry.seen.as_ref()?;
        let wanted = entry.wanted.as_ref();
        let status = merge::merge(object.kind, &seen.status, wanted, addresses, &self.controller);
        if status == seen.status {
            return None;
        }
        entry.is_under_way = true;
        Some(GatewayWrite { object, version: seen.version.clone(), status })
    }

    /// What became of a write.
    pub fn apply(&mut self, write: GatewayWrite, outcome: &GatewayOutcome, now: Instant) {
        let Some(entry) = self.entries.get_mut(&write.object) else { return };
        entry.is_under_way = false;
        match outcome {
            GatewayOutcome::Written(seen) => {
                entry.failures = 0;
                let pause = contest_pause(entry.repeated);
                entry.repeated = entry.repeated.saturating_add(1);
                entry.rests_until = (!write.object.kind.is_route()).then(|| now + REST);
                // What is wanted since it began has to wait as well.
                entry.at = Some(now + pause).max(entry.rests_until);
                if entry.seen.as_ref().is_some_and(|known| known.version == write.version) {
                    entry.seen = Some(seen.clone());
                }
            }
            GatewayOutcome::Not(WriteOutcome::Gone) => entry.seen = None,
            GatewayOutcome::Not(_) => {
                let pause = AGAIN[0].saturating_mul(1 << entry.failures.min(10)).min(AGAIN[1]);
                entry.failures = entry.failures.saturating_add(1);
                entry.at = Some(now + pause);
                entry.rests_until = entry.at.filter(|_| !write.object.kind.is_route());
            }
        }
        self.forget(&write.object);
        self.look_at(write.object);
    }

    /// When something is due that is not yet.
    pub fn wakes_at(&self, now: Instant) -> Option<Instant> {
        self.addresses.as_ref()?;
        self.paused.first().map(|(at, _)| *at).filter(|at| *at > now)
    }
}

/// What became of a write.
pub enum GatewayOutcome {
    /// It stands so.
    Written(ObjectStatus),
    /// It does not.
    Not(WriteOutcome),
}

fn resource(kind: Kind) -> ApiResource {
    let plural = match kind {
        Kind::GatewayClass => "gatewayclasses",
        Kind::Gateway => "gateways",
        Kind::BackendTLSPolicy => "backendtlspolicies",
        Kind::ListenerSet => "listenersets",
        Kind::GRPCRoute => "grpcroutes",
        Kind::TCPRoute => "tcproutes",
        Kind::TLSRoute => "tlsroutes",
        Kind::UDPRoute => "udproutes",
        _ => "httproutes",
    };
    ApiResource {
        group: GROUP.into(),
        version: "v1".into(),
        api_version: format!("{GROUP}/v1"),
        kind: kind.to_string(),
        plural: plural.into(),
    }
}

/// Asks the API server to replace a status.
pub async fn write(client: &Client, write: &GatewayWrite) -> GatewayOutcome {
    let resource = resource(write.object.kind);
    let api: Api<DynamicObject> = match &*write.object.key.namespace {
        "" => Api::all_with(client.clone(), &resource),
        namespace => Api::namespaced_with(client.clone(), namespace, &resource),
    };
    let patch = json!({"metadata": {"resourceVersion": write.version}, "status": write.status});
    let name = &write.object.key.name;
    match api.patch_status(name, &PatchParams::default(), &Patch::Merge(patch)).await {
        Ok(mut object) => GatewayOutcome::Written(ObjectStatus {
            version: object.metadata.resource_version.take().unwrap_or_default(),
            status: object.data.get_mut("status").map(Value::take).unwrap_or_default(),
        }),
        Err(error) => GatewayOutcome::Not(outcome(&error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use oxigress_objects::Key;
    use oxigress_objects::gateway_status::{Condition, Content};

    fn class(holds: bool) -> Option<Wanted> {
        let condition = Condition { holds, ..Condition::yes("Accepted", "r") };
        let content = Content::Class { conditions: vec![condition], features: vec!["A"] };
        Some(Wanted { generation: 1, content })
    }

    fn seen(version: u32, status: Value) -> Option<ObjectStatus> {
        Some(ObjectStatus { version: version.to_string(), status })
    }

    #[tokio::test]
    async fn a_status_is_written_once_and_again_only_when_it_differs() {
        let (mut queue, now) = (GatewayQueue::new("c".into()), Instant::now());
        let object = || ObjectRef::new(Kind::GatewayClass, Key::new("", "a"));
        queue.want(object(), class(true));
        queue.publish(object(), seen(1, Value::Null));
        assert!(queue.next(now).is_none(), "nobody knows where clients reach it");
        queue.reach(Some(Vec::new()));
        let write = queue.next(now).unwrap();
        assert_eq!(write.version, "1");
        assert!(queue.next(now).is_none(), "one write at a time");
        let status = write.status.clone();
        queue.apply(
            write,
            &GatewayOutcome::Written(ObjectStatus { version: "2".into(), status: status.clone() }),
            now,
        );
        assert!(queue.next(now).is_none());
        // Somebody undoes it, again and again.
        let mut writes = 0;
        for step in 0..600u32 {
            let now = now + Duration::from_secs(step.into());
            queue.publish(object(), seen(3 + step, Value::Null));
            if let Some(write) = queue.next(now) {
                writes += 1;
                let status = write.status.clone();
                let version = "x".into();
                queue.apply(write, &GatewayOutcome::Written(ObjectStatus { version, status }), now);
            }
        }
        assert!((5..20).contains(&writes), "{writes}");
        queue.want(object(), class(false));
        let later = now + Duration::from_secs(600);
        assert!(queue.next(later).is_some(), "something new is written without a pause");
    }

    #[tokio::test]
    async fn what_routes_change_rests_between_two_writes_and_a_route_does_not() {
        let (mut queue, now) = (GatewayQueue::new("c".into()), Instant::now());
        queue.reach(Some(Vec::new()));
        for (kind, rests) in [(Kind::GatewayClass, true), (Kind::HTTPRoute, false)] {
            let object = || ObjectRef::new(kind, Key::new("", "a"));
            queue.want(object(), class(true));
            queue.publish(object(), seen(1, Value::Null));
            let write = queue.next(now).unwrap();
            let (version, status) = ("2".into(), write.status.clone());
            // While it is written something else is wanted, and afterwards.
            queue.want(object(), class(false));
            queue.apply(write, &GatewayOutcome::Written(ObjectStatus { version, status }), now);
            assert_eq!(queue.next(now).is_none(), rests, "{kind}");
            if rests {
                queue.want(object(), class(false));
                assert!(queue.next(now).is_none());
            }
            if rests {
                assert_eq!(queue.wakes_at(now), Some(now + REST));
                assert!(queue.next(now + REST).is_some());
            }
        }
    }

    #[tokio::test]
    async fn namespaces_take_turns_and_what_is_gone_is_forgotten() {
        let (mut queue, now) = (GatewayQueue::new("c".into()), Instant::now());
        queue.reach(Some(Vec::new()));
        let object = |namespace: &str, name: usize| {
            ObjectRef::new(Kind::GatewayClass, Key::new(namespace, format!("o{name}")))
        };
        for name in 0..50 {
            queue.publish(object("a", name), seen(1, Value::Null));
            queue.want(object("a", name), class(true));
        }
        queue.publish(object("b", 0), seen(1, Value::Null));
        queue.want(object("b", 0), class(true));
        // The first namespace changes all the time.
        let turns = (0..4).map(|step| {
            let write = queue.next(now).unwrap();
            let namespace = write.object.key.namespace.to_string();
            let status = write.status.clone();
            let version = "2".into();
            queue.apply(write, &GatewayOutcome::Written(ObjectStatus { version, status }), now);
            (0..50).for_each(|name| queue.want(object("a", name), class(step % 2 == 1)));
            namespace
        });
        let turns: Vec<_> = turns.collect();
        assert!(turns[..2].contains(&"b".to_owned()), "{turns:?}");
        for (namespace, count) in [("a", 50), ("b", 1)] {
            for name in 0..count {
                queue.publish(object(namespace, name), None);
                queue.want(object(namespace, name), None);
            }
        }
        while queue.next(now + Duration::from_secs(60)).is_some() {}
        assert_eq!((queue.entries.len(), queue.due.len(), queue.paused.len()), (0, 0, 0));
        assert!(queue.behind.is_empty());
    }

    #[tokio::test]
    async fn objects_of_one_namespace_take_turns() {
        let (mut queue, now) = (GatewayQueue::new("c".into()), Instant::now());
        queue.reach(Some(Vec::new()));
        let object =
            |name: usize| ObjectRef::new(Kind::GatewayClass, Key::new("a", format!("o{name}")));
        for name in 0..4 {
            queue.publish(object(name), seen(1, Value::Null));
            queue.want(object(name), class(true));
        }
        // The first object changes all the time.
        let turns = (0..4).map(|step| {
            let write = queue.next(now).unwrap();
            let (name, status) = (write.object.key.name.to_string(), write.status.clone());
            let version = "2".into();
            queue.apply(write, &GatewayOutcome::Written(ObjectStatus { version, status }), now);
            queue.want(object(0), class(step % 2 == 1));
            name
        });
        let turns: Vec<_> = turns.collect();
        assert_eq!(turns, ["o0", "o1", "o2", "o3"], "{turns:?}");
    }

    #[tokio::test]
    async fn a_conflict_is_tried_again_with_the_next_version() {
        let (mut queue, now) = (GatewayQueue::new("c".into()), Instant::now());
        let object = || ObjectRef::new(Kind::GatewayClass, Key::new("", "a"));
        queue.reach(Some(Vec::new()));
        queue.want(object(), class(true));
        queue.publish(object(), seen(1, Value::Null));
        let write = queue.next(now).unwrap();
        queue.apply(write, &GatewayOutcome::Not(WriteOutcome::Conflict), now);
        assert!(queue.next(now).is_none());
        queue.publish(object(), seen(2, Value::Null));
        let at = queue.wakes_at(now).unwrap();
        assert_eq!(queue.next(at).unwrap().version, "2");
    }
}
