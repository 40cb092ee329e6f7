//! Which Ingresses have another status than they should, and writing it.
//!
//! Shape:   [`StatusQueue`] knows what stands in each Ingress and what should; [`write`] asks the API server.
//! Safety:  a write names the uid and the version that was seen: it never lands on an Ingress that was made anew, nor on one
//!          that somebody changed meanwhile, such as the replica that leads by now.

use k8s_openapi::api::networking::v1::Ingress;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, Error};
use oxigress_net::pause::jitter;
use oxigress_objects::Key;
use oxigress_objects::published::{Address, Published};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::Instant;

/// After a conflict the watch is given so long to tell what is there now.
const CONFLICT: Duration = Duration::from_secs(1);
/// An Ingress whose status the API server refuses is left alone for so long.
const REFUSED: Duration = Duration::from_secs(60);
/// Between tries while the API server does not answer.
const UNREACHABLE: [Duration; 2] = [Duration::from_millis(800), Duration::from_secs(30)];
/// Who writes the same status again so soon has somebody else who writes another one.
const CONTEST: Duration = Duration::from_secs(300);
/// The longest pause while another writer changes the same status.
const CONTEST_PAUSE: Duration = Duration::from_secs(60);

/// A status that is to be written.
#[derive(Clone, Debug, PartialEq)]
pub struct Write {
    /// The Ingress whose status it is.
    pub key: Key,
    /// The status as it was seen.
    pub seen: Published,
    /// What is to be written.
    pub addresses: Vec<Address>,
}

/// What became of a write.
#[derive(Debug)]
pub enum WriteOutcome {
    /// The status was written and is this now.
    Written(Published),
    /// Somebody changed the Ingress meanwhile.
    Conflict,
    /// The Ingress is gone, so nothing is written.
    Gone,
    /// The API server refuses the write; it is tried again after a long pause.
    Refused(String),
    /// The API server does not answer; the text says why.
    Unreachable(String),
}

#[derive(Default)]
struct Entry {
    published: Option<Published>,
    is_served: bool,
    /// When we last wrote, and how often in a row somebody undid it.
    written: Option<(Instant, u32)>,
}

/// All Ingresses, as far as their status goes.
#[derive(Default)]
pub struct StatusQueue {
    ingresses: BTreeMap<Key, Entry>,
    wanted: Option<Vec<Address>>,
    /// The Ingresses whose status has to be written.
    ready: BTreeSet<Key>,
    under_way: BTreeSet<Key>,
    paused: BTreeMap<Key, Instant>,
    /// Nobody is asked before, and how often in a row nobody answered.
    unreachable: Option<(Instant, u32)>,
}

impl StatusQueue {
    /// What the API server says of an Ingress; none: it is gone.
    pub fn publish(&mut self, key: Key, published: Option<Published>, now: Instant) {
        self.paused.remove(&key);
        let entry = self.ingresses.entry(key.clone()).or_default();
        let uid = |published: &Option<Published>| published.as_ref().map(|p| p.uid.clone());
        if uid(&entry.published) != uid(&published) {
            entry.written = None;
        }
        entry.published = published;
        self.look_at(key, now);
    }

    /// Whether an Ingress is served.
    pub fn serve(&mut self, key: Key, is_served: bool, now: Instant) {
        self.ingresses.entry(key.clone()).or_default().is_served = is_served;
        self.look_at(key, now);
    }

    /// What every status should be.
    pub fn want(&mut self, addresses: Vec<Address>, now: Instant) {
        if self.wanted.as_ref() == Some(&addresses) {
            return;
        }
        self.wanted = Some(addresses);
        self.paused.clear();
        for entry in self.ingresses.values_mut() {
            entry.written = None;
        }
        for key in self.ingresses.keys().cloned().collect::<Vec<_>>() {
            self.look_at(key, now);
        }
    }

    /// Nobody knows what the status should be until it is looked at anew.
    pub fn unwant(&mut self) {
        self.wanted = None;
        self.ready.clear();
        self.paused.clear();
    }

    /// The addresses that were wanted last.
    pub fn wanted(&self) -> Option<&[Address]> {
        self.wanted.as_deref()
    }

    /// The uid of an Ingress.
    pub fn uid(&self, key: &Key) -> Option<&str> {
        Some(&self.ingresses.get(key)?.published.as_ref()?.uid)
    }

    fn look_at(&mut self, key: Key, now: Instant) {
        self.ready.remove(&key);
        let Some(entry) = self.ingresses.get(&key) else { return };
        if !entry.is_served && entry.published.is_none() {
            self.ingresses.remove(&key);
            self.paused.remove(&key);
            return;
        }
        let (Some(published), Some(wanted)) = (&entry.published, &self.wanted) else { return };
        let mut there = published.addresses.clone();
        there.sort();
        if !entry.is_served || there == *wanted || self.under_way.contains(&key) {
            return;
        }
        if self.paused.contains_key(&key) {
            return;
        }
        let pause = entry.written.map(|(at, undone)| at + contest_pause(undone));
        match pause.filter(|until| *until > now) {
            Some(until) => drop(self.paused.insert(key, until)),
            None => drop(self.ready.insert(key)),
        }
    }

    /// The next status to write now.
    pub fn next(&mut self, now: Instant) -> Option<Write> {
        if self.unreachable.is_some_and(|(until, _)| now < until) {
            return None;
        }
        let over: Vec<Key> =
            self.paused.iter().filter(|(_, until)| **until <= now).map(first).collect();
        for key in over {
            self.paused.remove(&key);
            self.look_at(key, now);
        }
        let key = self.ready.pop_first()?;
        let seen = self.ingresses.get(&key)?.published.clone()?;
        let addresses = self.wanted.clone()?;
        self.under_way.insert(key.clone());
        Some(Write { key, seen, addresses })
    }

    /// When to ask [`StatusQueue::next`] again if it had nothing.
    pub fn wakes_at(&self) -> Option<Instant> {
        let unreachable = self.unreachable.map(|(until, _)| until);
        match (unreachable, self.ready.is_empty()) {
            (Some(until), false) => Some(until),
            _ => self
                .paused
                .values()
                .min()
                .copied()
                .max(unreachable.filter(|_| !self.paused.is_empty())),
        }
    }

    /// The API server did not answer the last write.
    pub fn is_unreachable(&self) -> bool {
        self.unreachable.is_some()
    }

    /// Nothing is left to write, and nothing is under way.
    pub fn is_done(&self) -> bool {
        self.ready.is_empty() && self.under_way.is_empty() && self.paused.is_empty()
    }

    /// What became of the write of a key.
    pub fn apply(&mut self, write: Write, outcome: WriteOutcome, now: Instant) {
        let Write { key, seen, .. } = write;
        self.under_way.remove(&key);
        if !matches!(outcome, WriteOutcome::Unreachable(_)) {
            self.unreachable = None;
        }
        match outcome {
            WriteOutcome::Written(published) => {
                if let Some(entry) = self.ingresses.get_mut(&key) {
                    let undone = match entry.written {
                        Some((at, undone)) if now < at + CONTEST => undone.saturating_add(1),
                        _ => 0,
                    };
                    entry.written = Some((now, undone));
                    // The watch may have told more meanwhile.
                    if entry.published.as_ref() == Some(&seen) {
                        entry.published = Some(published);
                    }
                }
            }
            WriteOutcome::Conflict => drop(self.paused.insert(key.clone(), now + CONFLICT)),
            WriteOutcome::Gone => {
                if let Some(entry) = self.ingresses.get_mut(&key)
                    && entry.published.as_ref() == Some(&seen)
                {
                    entry.published = None;
                }
            }
            WriteOutcome::Refused(_) => drop(self.paused.insert(key.clone(), now + REFUSED)),
            WriteOutcome::Unreachable(_) => {
                // Ten writes fail together.
                let failures = match self.unreachable {
                    Some((until, failures)) if now < until => failures,
                    Some((_, failures)) => failures.saturating_add(1),
                    None => 0,
                };
                let [shortest, longest] = UNREACHABLE;
                let pause = shortest.saturating_mul(1 << failures.min(10)).min(longest);
                self.unreachable = Some((now + pause.mul_f64(jitter()), failures));
            }
        }
        self.look_at(key, now);
    }
}

fn first<V>((key, _): (&Key, V)) -> Key {
    key.clone()
}

/// None for the first time, then ever longer: two controllers that want different things must not race.
pub fn contest_pause(undone: u32) -> Duration {
    match undone {
        0 => Duration::ZERO,
        _ => Duration::from_secs(1).saturating_mul(1 << undone.min(10)).min(CONTEST_PAUSE),
    }
}

/// Asks the API server to replace the addresses of one Ingress.
pub async fn write(client: &Client, write: &Write) -> WriteOutcome {
    let api: Api<Ingress> = Api::namespaced(client.clone(), &write.key.namespace);
    let text = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    let entries: Vec<_> = write
        .addresses
        .iter()
        .map(|address| match (text(&address.hostname), text(&address.ip)) {
            (Some(hostname), Some(ip)) => json!({"hostname": hostname, "ip": ip}),
            (Some(hostname), None) => json!({"hostname": hostname}),
            (None, ip) => json!({"ip": ip}),
        })
        .collect();
    let patch = json!({
        "metadata": {"uid": write.seen.uid, "resourceVersion": write.seen.version},
        "status": {"loadBalancer": {"ingress": entries}},
    });
    let patch = Patch::Merge(patch);
    match api.patch_status(&write.key.name, &PatchParams::default(), &patch).await {
        Ok(ingress) => WriteOutcome::Written(published(&ingress)),
        Err(error) => outcome(&error),
    }
}

/// What an Ingress says of itself.
pub fn published(ingress: &Ingress) -> Published {
    let status = ingress.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    let entries = status.and_then(|status| status.ingress.as_ref()).into_iter().flatten();
    Published {
        uid: ingress.metadata.uid.clone().unwrap_or_default(),
        version: ingress.metadata.resource_version.clone().unwrap_or_default(),
        addresses: entries
            .map(|entry| Address {
                hostname: entry.hostname.clone().unwrap_or_default(),
                ip: entry.ip.clone().unwrap_or_default(),
            })
            .collect(),
    }
}

/// What an error is to a write.
pub fn outcome(error: &Error) -> WriteOutcome {
    let why = crate::explain::explain(error);
    match error {
        Error::Api(status) if status.is_not_found() => WriteOutcome::Gone,
        Error::Api(status) if status.is_conflict() => WriteOutcome::Conflict,
        Error::Api(status) if status.code < 500 && status.code != 429 => WriteOutcome::Refused(why),
        _ => WriteOutcome::Unreachable(why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(ip: &str) -> Address {
        Address { ip: ip.into(), ..Address::default() }
    }

    fn seen(uid: &str, version: u32, ips: &[&str]) -> Published {
        let addresses = ips.iter().map(|ip| address(ip)).collect();
        Published { uid: uid.into(), version: version.to_string(), addresses }
    }

    fn key(name: &str) -> Key {
        Key::new("shop", name)
    }

    fn status_queue(wanted: &str) -> (StatusQueue, Instant) {
        let (mut status_queue, now) = (StatusQueue::default(), Instant::now());
        status_queue.want(vec![address(wanted)], now);
        (status_queue, now)
    }

    fn add(status_queue: &mut StatusQueue, name: &str, published: Published, now: Instant) {
        status_queue.publish(key(name), Some(published), now);
        status_queue.serve(key(name), true, now);
    }

    #[tokio::test]
    async fn what_is_right_foreign_or_unknown_is_not_written() {
        let (mut status_queue, now) = status_queue("1");
        add(&mut status_queue, "right", seen("a", 1, &["1"]), now);
        status_queue.publish(key("foreign"), Some(seen("b", 1, &[])), now);
        status_queue.serve(key("unknown"), true, now);
        assert_eq!(status_queue.next(now), None);
        // It becomes ours.
        status_queue.serve(key("foreign"), true, now);
        let write = status_queue.next(now).unwrap();
        assert_eq!((&write.key, &*write.addresses), (&key("foreign"), &[address("1")][..]));
        assert_eq!(status_queue.next(now), None);
    }

    #[tokio::test]
    async fn nothing_is_written_while_nobody_knows_what() {
        let now = Instant::now();
        let mut status_queue = StatusQueue::default();
        add(&mut status_queue, "a", seen("a", 1, &["9"]), now);
        assert_eq!(status_queue.next(now), None);
        // No address is an answer too.
        status_queue.want(Vec::new(), now);
        assert_eq!(status_queue.next(now).unwrap().addresses, []);
    }

    #[tokio::test]
    async fn the_order_of_addresses_says_nothing() {
        let (mut status_queue, now) = status_queue("1");
        status_queue.want(vec![address("1"), address("2")], now);
        add(&mut status_queue, "a", seen("a", 1, &["2", "1"]), now);
        assert_eq!(status_queue.next(now), None);
    }

    #[tokio::test]
    async fn a_conflict_waits_for_news_or_a_moment() {
        let (mut status_queue, now) = status_queue("1");
        add(&mut status_queue, "a", seen("a", 1, &[]), now);
        let write = status_queue.next(now).unwrap();
        status_queue.apply(write, WriteOutcome::Conflict, now);
        assert_eq!(status_queue.next(now), None);
        assert_eq!(status_queue.wakes_at(), Some(now + CONFLICT));
        status_queue.publish(key("a"), Some(seen("a", 2, &[])), now);
        let write = status_queue.next(now).unwrap();
        assert_eq!(write.seen.version, "2");
        status_queue.apply(write, WriteOutcome::Conflict, now);
        let later = now + CONFLICT;
        assert!(status_queue.next(later).is_some());
    }

    #[tokio::test]
    async fn news_that_come_before_the_answer_are_not_forgotten() {
        let (mut status_queue, now) = status_queue("1");
        add(&mut status_queue, "a", seen("a", 1, &[]), now);
        let write = status_queue.next(now).unwrap();
        // Somebody undoes it, and the watch is faster than our answer.
        status_queue.publish(key("a"), Some(seen("a", 3, &["9"])), now);
        assert_eq!(status_queue.next(now), None);
        status_queue.apply(write, WriteOutcome::Written(seen("a", 2, &["1"])), now);
        assert_eq!(status_queue.next(now).unwrap().seen.version, "3");
    }

    #[tokio::test]
    async fn whoever_undoes_a_status_again_and_again_is_answered_ever_more_slowly() {
        let (mut status_queue, mut now) = status_queue("1");
        add(&mut status_queue, "a", seen("a", 0, &[]), now);
        let mut writes = 0;
        let end = now + Duration::from_secs(600);
        for version in 0.. {
            if now >= end {
                break;
            }
            if let Some(write) = status_queue.next(now) {
                writes += 1;
                status_queue.apply(
                    write,
                    WriteOutcome::Written(seen("a", 2 * version, &["1"])),
                    now,
                );
                status_queue.publish(key("a"), Some(seen("a", 2 * version + 1, &["9"])), now);
            }
            now += Duration::from_millis(100);
        }
        assert!((10..25).contains(&writes), "{writes}");
    }

    #[tokio::test]
    async fn an_api_server_that_is_away_is_asked_ever_more_seldom_and_nothing_is_lost() {
        let (mut status_queue, mut now) = status_queue("1");
        for name in ["a", "b", "c"] {
            add(&mut status_queue, name, seen(name, 1, &[]), now);
        }
        let mut pauses = Vec::new();
        for _ in 0..10 {
            let writes: Vec<_> = std::iter::from_fn(|| status_queue.next(now)).collect();
            assert_eq!(writes.len(), 3);
            for write in writes {
                status_queue.apply(write, WriteOutcome::Unreachable("x".into()), now);
            }
            assert_eq!(status_queue.next(now), None);
            let wakes_at = status_queue.wakes_at().unwrap();
            pauses.push(wakes_at - now);
            now = wakes_at;
        }
        assert!(pauses[0] < Duration::from_secs(1) && pauses[9] > Duration::from_secs(20));
        assert!(pauses[9] <= UNREACHABLE[1], "{pauses:?}");
    }

    #[tokio::test]
    async fn an_ingress_that_is_gone_leaves_nothing() {
        let (mut status_queue, now) = status_queue("1");
        add(&mut status_queue, "a", seen("a", 1, &[]), now);
        let write = status_queue.next(now).unwrap();
        status_queue.publish(key("a"), None, now);
        status_queue.serve(key("a"), false, now);
        status_queue.apply(write, WriteOutcome::Gone, now);
        assert!(status_queue.ingresses.is_empty() && status_queue.is_done());
    }

    #[tokio::test]
    async fn at_the_end_every_status_is_emptied_also_those_that_waited() {
        let (mut status_queue, now) = status_queue("1");
        add(&mut status_queue, "a", seen("a", 1, &["1"]), now);
        add(&mut status_queue, "b", seen("b", 1, &["9"]), now);
        let write = status_queue.next(now).unwrap();
        status_queue.apply(write, WriteOutcome::Refused("x".into()), now);
        status_queue.want(Vec::new(), now);
        let keys: Vec<_> =
            std::iter::from_fn(|| status_queue.next(now)).map(|write| write.key).collect();
        assert_eq!(keys, [key("a"), key("b")]);
    }
}
