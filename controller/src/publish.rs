//! Keeps nginx's configuration equal to the snapshot: the whole first, then deltas.
//!
//! Shape:   [`Publisher`] decides what to send and what an answer means, without I/O or clock; [`client`] sends; the
//!          controller's loop lets one request be in flight. What is too much at once is sent in [`parts`].
//! Errors:  no answer or a busy nginx: sent again, for ever, soon at first ([`Backoff`]). Another generation is live: the
//!          whole is sent again. A record that nginx refuses (400) is [`withheld`] and all others are sent at once. No
//!          space (507): endpoints go first, the records that do not fit are withheld, and a larger zone is asked for
//!          ([`Publisher::wanted_zone`]). A body that is too large (413), or refused without a reason that names a record,
//!          is halved until the halves are taken or single records are withheld.
//! Files that never could be read: an nginx that serves something gets additions only ([`First`]).

pub mod arrival;
pub mod backoff;
pub mod client;
mod parts;
#[cfg(test)]
mod progress;
pub mod room;
pub mod withheld;

use crate::metrics::Writes;
pub use backoff::LONGEST;
use backoff::{Backoff, QUICK};
use bytes::Bytes;
use client::{Answer, ClientError};
use hyper::{Method, StatusCode};
use oxigress_core::model::Snapshot;
use oxigress_core::table::{Keys, RecordRef, TABLES};
use oxigress_core::wire::native::{Applied, Patch, Problem, Status, WireVersion};
use room::View;
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use withheld::{Reason, Withheld};

/// A request to the configuration endpoint.
#[derive(Debug)]
pub struct Outgoing {
    /// PUT for the whole, PATCH for a delta, GET to look.
    pub method: Method,
    /// The generation it builds on.
    pub if_match: Option<String>,
    /// JSON.
    pub body: Bytes,
}

/// When to go on.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// At once if there is something to send.
    Now,
    /// Not before this has passed.
    After(Duration),
    /// When something changed, or after the longest pause.
    OnChange,
}

/// How the whole is brought to nginx.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum First {
    /// Everything is sent, and nothing else stays.
    Whole,
    /// What nginx has decides.
    Look,
    /// What is known is added, and nothing is taken away.
    Additions,
}

/// `found` is the generation that nginx has, as far as it is known.
fn first(is_incomplete: bool, found: Option<u64>) -> First {
    match found {
        _ if !is_incomplete => First::Whole,
        None => First::Look,
        Some(0) => First::Whole,
        Some(_) => First::Additions,
    }
}

enum Sent {
    /// A PUT.
    Whole,
    /// A PATCH.
    Delta(Box<Patch>),
    Look,
}

/// What nginx has and what it should have.
#[derive(Default)]
pub struct Publisher {
    /// `epoch.generation` in quotes, as of the last answer.
    live: Option<String>,
    /// The generation in `live`, or that a look found before anything was sent.
    found: Option<(String, u64)>,
    /// Deltas to be sent before `pending`, in this order.
    parts: VecDeque<Patch>,
    pending: Patch,
    needs_whole: bool,
    /// The whole was refused as one body: it is sent in parts.
    is_in_parts: bool,
    /// The snapshot may lack what cannot be read.
    is_incomplete: bool,
    /// Removals wait until everything is read.
    keeps_removed: bool,
    withheld: Withheld,
    /// Bytes of the zone that would have taken everything, beyond those it has.
    lacking_bytes: u64,
    /// Bytes of the zone for records, as of the last look.
    capacity_bytes: u64,
    in_flight: Option<Sent>,
    backoff: Backoff,
    writes: Writes,
}

#[derive(Serialize)]
struct WholeOf<'s> {
    version: WireVersion,
    snapshot: &'s Snapshot,
}

impl Publisher {
    /// nginx has nothing of ours yet.
    pub fn new() -> Self {
        Publisher { needs_whole: true, ..Publisher::default() }
    }

    /// Takes a change to be sent.
    pub fn change(&mut self, mut patch: Patch) {
        if self.keeps_removed {
            patch.remove = Keys::default();
        }
        self.withheld.forget_changed(&patch);
        self.pending.follow(patch);
    }

    /// Whether the snapshot may lack what cannot be read and never could be.
    pub fn set_incomplete(&mut self, is_incomplete: bool) {
        self.is_incomplete = is_incomplete;
        if !is_incomplete && std::mem::take(&mut self.keeps_removed) {
            self.needs_whole = true;
        }
    }

    /// Something waits to be sent.
    pub fn is_behind(&self) -> bool {
        let has_more = !self.parts.is_empty() || !self.pending.is_empty();
        self.needs_whole || has_more || self.withheld.wants_room()
    }

    /// The last answer was a refusal, which a change may cure; no answer at all is not cured by one.
    pub fn is_patient(&self) -> bool {
        !self.backoff.is_failing()
    }

    /// Results of all that was sent; the caller has the clock.
    pub fn writes(&self) -> Writes {
        Writes { withheld: self.withheld.len() as u64, ..self.writes }
    }

    /// Records that are withheld and why, if that has changed since this was last asked.
    pub fn take_withheld(&mut self) -> Option<BTreeMap<RecordRef, Reason>> {
        self.withheld.take_news()
    }

    /// The size that the zone should have, in bytes; `None`: nothing lacks room.
    pub fn wanted_zone(&self) -> Option<u64> {
        // The same again, so that a cluster that grows does not ask at each Ingress.
        let bytes = (self.capacity_bytes + self.lacking_bytes).saturating_mul(2);
        (self.lacking_bytes > 0 && self.capacity_bytes > 0).then_some(bytes)
    }

    /// What to send now. `snapshot` holds all changes taken so far.
    pub fn outgoing(&mut self, snapshot: &Snapshot) -> serde_json::Result<Outgoing> {
        if self.live.is_none() || self.needs_whole {
            let found = self.found.as_ref().map(|(_, generation)| *generation);
            match first(self.is_incomplete, found) {
                First::Look => return Ok(self.look()),
                First::Whole if !self.is_in_parts => return self.whole(snapshot),
                _ if self.found.is_none() => return Ok(self.look()),
                First::Whole => self.queue_whole(snapshot),
                First::Additions => self.queue_additions(snapshot),
            }
        }
        if self.parts.is_empty() && self.withheld.wants_room() {
            let fitting = self.withheld.take_fitting(snapshot);
            self.pending.follow(fitting);
        }
        let mut patch = match self.parts.pop_front() {
            Some(part) => part,
            None => std::mem::take(&mut self.pending),
        };
        self.withheld.apply(&mut patch);
        let body = serde_json::to_vec(&patch)?;
        self.in_flight = Some(Sent::Delta(Box::new(patch)));
        Ok(Outgoing { method: Method::PATCH, if_match: self.live.clone(), body: body.into() })
    }

    fn whole(&mut self, snapshot: &Snapshot) -> serde_json::Result<Outgoing> {
        self.keeps_removed = false;
        self.pending = Patch::default();
        self.parts.clear();
        let version = WireVersion;
        let body = match self.withheld.len() {
            0 => serde_json::to_vec(&WholeOf { version, snapshot })?,
            _ => {
                let mut patch = Patch::of_whole(snapshot.clone());
                self.withheld.apply(&mut patch);
                let snapshot = &patch.into_whole();
                serde_json::to_vec(&WholeOf { version, snapshot })?
            }
        };
        self.in_flight = Some(Sent::Whole);
        Ok(Outgoing { method: Method::PUT, if_match: None, body: body.into() })
    }

    /// The whole as deltas onto what nginx has, and last of all a list of what stays.
    fn queue_whole(&mut self, snapshot: &Snapshot) {
        self.begin_parts(Patch::of_whole(snapshot.clone()));
        let mut retained = Keys::default();
        for table in &TABLES {
            (table.all_keys)(snapshot, &mut retained);
        }
        self.parts.push_back(Patch { retain: Some(retained), ..Patch::default() });
    }

    fn queue_additions(&mut self, snapshot: &Snapshot) {
        if !std::mem::replace(&mut self.keeps_removed, true) {
            tracing::warn!(
                "not every file can be read: what nginx serves from before stays, removals wait until \
                 every file can be read"
            );
        }
        let mut patch = Patch::between(&Snapshot::default(), snapshot);
        // Its EndpointSlices may be what cannot be read.
        patch.upsert.endpoints.retain(|_, set| !set.as_slice().is_empty());
        self.begin_parts(patch);
    }

    fn begin_parts(&mut self, whole: Patch) {
        self.live = self.found.as_ref().map(|(live, _)| live.clone());
        self.needs_whole = false;
        self.pending = Patch::default();
        self.parts = match self.is_in_parts {
            true => parts::of(whole).into(),
            false => VecDeque::from([whole]),
        };
    }

    /// A look at what is live, to notice an nginx that lost it.
    pub fn look(&mut self) -> Outgoing {
        self.in_flight = Some(Sent::Look);
        Outgoing { method: Method::GET, if_match: None, body: Bytes::new() }
    }

    /// What an answer means. `took` is only logged.
    pub fn answered(
        &mut self,
        answer: Result<Answer, ClientError>,
        took: Duration,
        view: &View<'_>,
    ) -> Next {
        let Some(sent) = self.in_flight.take() else { return Next::Now };
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => {
                self.unsend(sent);
                return Next::After(self.backoff.failed(&error.to_string()));
            }
        };
        match (answer.status, sent) {
            (StatusCode::OK | StatusCode::CREATED, Sent::Look) => self.looked(&answer),
            (StatusCode::OK | StatusCode::CREATED, sent) => self.applied(&answer, sent, took),
            (
                StatusCode::CONFLICT
                | StatusCode::PRECONDITION_FAILED
                | StatusCode::PRECONDITION_REQUIRED,
                sent,
            ) => {
                let live = problem(&answer).live.unwrap_or_default();
                tracing::info!("nginx is at another generation ({live}): sending the whole");
                self.needs_whole |= !matches!(sent, Sent::Look);
                self.live = None;
                self.found = None;
                Next::Now
            }
            (StatusCode::SERVICE_UNAVAILABLE | StatusCode::NOT_FOUND, sent) => {
                self.unsend(sent);
                let pause = self.backoff.failed(&describe(&answer));
                // It is there and knows better than the backoff, which is for one that is not.
                Next::After(answer.retry_after.map_or(pause, |asked| pause.min(asked.max(QUICK))))
            }
            (_, sent) => {
                self.writes.refused += 1;
                self.writes.is_last_applied = false;
                self.refused(&answer, sent, view)
            }
        }
    }

    /// What was sent has to be sent again, and what came later follows it.
    fn unsend(&mut self, sent: Sent) {
        match sent {
            Sent::Look => {}
            Sent::Whole => self.needs_whole = true,
            Sent::Delta(mut patch) if self.parts.is_empty() && patch.retain.is_none() => {
                patch.follow(std::mem::take(&mut self.pending));
                self.pending = *patch;
            }
            Sent::Delta(patch) => self.parts.push_front(*patch),
        }
    }

    fn looked(&mut self, answer: &Answer) -> Next {
        match serde_json::from_slice::<Status>(&answer.body) {
            Ok(status) => {
                self.backoff.succeeded();
                let live = etag(&status.epoch, status.generation);
                if self.live.as_ref().is_some_and(|known| *known != live) {
                    tracing::info!("nginx is at generation {live} and not ours: sending the whole");
                    self.needs_whole = true;
                }
                self.found = Some((live, status.generation));
                if status.capacity_bytes > self.capacity_bytes {
                    self.lacking_bytes = 0;
                }
                self.capacity_bytes = status.capacity_bytes;
                self.withheld.look(&status);
                Next::Now
            }
            Err(error) => Next::After(self.backoff.failed(&format!("status: {error}"))),
        }
    }

    fn applied(&mut self, answer: &Answer, sent: Sent, took: Duration) -> Next {
        let applied: Applied = match serde_json::from_slice(&answer.body) {
            Ok(applied) => applied,
            Err(error) => {
                // It was applied, but onto what the next delta builds is unknown.
                self.live = None;
                self.found = None;
                self.needs_whole = true;
                return Next::After(self.backoff.failed(&format!("answer: {error}")));
            }
        };
        self.backoff.succeeded();
        self.writes.applied += 1;
        self.writes.is_last_applied = true;
        let live = etag(&applied.epoch, applied.generation);
        self.found = Some((live.clone(), applied.generation));
        self.live = Some(live);
        let millis = took.as_secs_f64() * 1e3;
        let generation = applied.generation;
        match sent {
            Sent::Delta(patch) => {
                let (plus, minus) = patch.count();
                tracing::info!(
                    "applied generation {generation}: +{plus} −{minus} records, {millis:.1} ms"
                );
            }
            _ => {
                self.needs_whole = false;
                tracing::info!("applied generation {generation}: the whole, {millis:.1} ms");
            }
        }
        Next::Now
    }

    /// Whatever nginx refuses, the rest of what was sent goes on.
    fn refused(&mut self, answer: &Answer, sent: Sent, view: &View<'_>) -> Next {
        let is_about_content = matches!(
            answer.status,
            StatusCode::BAD_REQUEST
                | StatusCode::PAYLOAD_TOO_LARGE
                | StatusCode::INSUFFICIENT_STORAGE
        );
        if !is_about_content || matches!(sent, Sent::Look) {
            self.unsend(sent);
            tracing::error!("nginx refuses the configuration: {}", describe(answer));
            return Next::OnChange;
        }
        let is_whole = matches!(sent, Sent::Whole);
        let mut patch = match sent {
            Sent::Delta(patch) => *patch,
            _ => Patch::of_whole(view.snapshot.clone()),
        };
        self.withheld.apply(&mut patch);
        let problem = problem(answer);
        let is_full = answer.status == StatusCode::INSUFFICIENT_STORAGE;
        if is_full {
            let (needed, free) = (problem.needed_bytes, problem.free_bytes);
            let deficit = needed.unwrap_or(0).saturating_sub(free.unwrap_or(0));
            self.lacking_bytes = self.lacking_bytes.max(deficit.max(1));
            self.capacity_bytes = problem.capacity_bytes.unwrap_or(self.capacity_bytes);
        }
        let named = match is_full {
            true => self.withhold_for_room(&patch, &problem, view, is_whole),
            false => self.withhold_named(&patch, &problem, is_whole),
        };
        let removals = self.withheld.take_removals();
        self.pending.follow(removals);
        match named {
            Named::Some if is_whole => self.needs_whole = true,
            Named::Some => self.unsend(Sent::Delta(Box::new(patch))),
            Named::None if is_whole => {
                tracing::warn!(
                    "nginx refuses the whole: {}: sending it in parts",
                    describe(answer)
                );
                (self.is_in_parts, self.needs_whole) = (true, true);
            }
            Named::None => return self.halve(patch, answer),
        }
        Next::Now
    }

    /// Withholds the records that the answer names.
    fn withhold_named(&mut self, patch: &Patch, problem: &Problem, is_whole: bool) -> Named {
        let within = if is_whole { "snapshot" } else { "upsert" };
        let first = problem.pointer.as_deref().map(|pointer| (pointer, problem.error.as_str()));
        let others =
            problem.others.iter().map(|fault| (fault.pointer.as_str(), fault.error.as_str()));
        let mut named = Named::None;
        for (pointer, error) in first.into_iter().chain(others) {
            let record = RecordRef::at(pointer, within);
            let Some(record) = record.filter(|record| withheld::touches(patch, record)) else {
                continue;
            };
            let text = crate::log::one_line(&format!("{error} (at {pointer})")).to_string();
            if self.withheld.insert(record.clone(), Reason::Refused(text.clone())) {
                tracing::error!("nginx refuses {record}, which is withheld: {text}");
                named = Named::Some;
            }
        }
        named
    }

    /// Withholds as many records as the zone lacks bytes. Endpoints that are sent together with others are tried by
    /// themselves first.
    fn withhold_for_room(
        &mut self,
        patch: &Patch,
        problem: &Problem,
        view: &View<'_>,
        is_whole: bool,
    ) -> Named {
        if !is_whole && parts::is_divided_by_urgency(patch) {
            return Named::None;
        }
        let lacking =
            problem.needed_bytes.unwrap_or(0).saturating_sub(problem.free_bytes.unwrap_or(0));
        let chosen = room::choose(patch, view, lacking.max(1), is_whole);
        let (mut count, mut total) = (0, 0);
        for (record, bytes) in chosen {
            if self.withheld.insert(record, Reason::NoRoom { bytes }) {
                (count, total) = (count + 1, total + bytes);
            }
        }
        match count {
            0 => Named::None,
            _ => {
                tracing::error!(
                    "the zone is full: {count} records of {total} bytes are withheld until there is room"
                );
                Named::Some
            }
        }
    }

    /// Sends a refused delta in two parts; a single record is withheld.
    fn halve(&mut self, patch: Patch, answer: &Answer) -> Next {
        let single = match parts::halve(patch) {
            Ok((first, second)) => {
                self.parts.push_front(second);
                self.parts.push_front(first);
                return Next::Now;
            }
            Err(single) => *single,
        };
        let text = describe(answer);
        let is_withheld = single.record.is_some_and(|record| {
            tracing::error!("nginx refuses {record}, which is withheld: {text}");
            self.withheld.insert(record, Reason::Refused(text.clone()))
        });
        self.unsend(Sent::Delta(Box::new(single.patch)));
        if !is_withheld {
            // A removal, or what was to close a record: nothing smaller can be sent.
            tracing::error!("nginx refuses the configuration: {text}");
            return Next::OnChange;
        }
        Next::Now
    }
}

/// Whether a refusal named records that can be withheld.
enum Named {
    Some,
    None,
}

fn etag(epoch: &str, generation: u64) -> String {
    format!("\"{epoch}.{generation}\"")
}

fn problem(answer: &Answer) -> Problem {
    serde_json::from_slice(&answer.body).unwrap_or_default()
}

fn describe(answer: &Answer) -> String {
    let problem = problem(answer);
    let mut text = format!("{}: {}", answer.status.as_u16(), problem.error);
    if let Some(pointer) = problem.pointer {
        text.push_str(&format!(" (at {pointer})"));
    }
    crate::log::one_line(&text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use oxigress_core::model::{HostPattern, Server};

    const EPOCH: &str = "00000000000000aa";

    fn answer(status: u16, body: serde_json::Value) -> Result<Answer, ClientError> {
        let status = StatusCode::from_u16(status).unwrap();
        Ok(Answer { status, retry_after: None, body: body.to_string().into() })
    }

    fn applied(generation: u64) -> Result<Answer, ClientError> {
        answer(200, serde_json::json!({"epoch": EPOCH, "generation": generation}))
    }

    struct Fixture {
        publisher: Publisher,
        snapshot: Snapshot,
    }

    impl Fixture {
        /// With one generation live.
        fn new() -> Self {
            let mut f = Fixture { publisher: Publisher::new(), snapshot: Snapshot::default() };
            assert_eq!(f.send().method, Method::PUT);
            assert_eq!(f.answer(applied(1)), Next::Now);
            assert!(!f.publisher.is_behind());
            f
        }

        fn host(&mut self, host: &str) {
            let host = HostPattern::parse(host).unwrap();
            self.snapshot.servers.insert(host.clone(), Server::default());
            let mut patch = Patch::default();
            patch.upsert.servers.insert(host, Server::default());
            self.publisher.change(patch);
        }

        fn send(&mut self) -> Outgoing {
            self.publisher.outgoing(&self.snapshot).unwrap()
        }

        fn answer(&mut self, answer: Result<Answer, ClientError>) -> Next {
            let view = View { snapshot: &self.snapshot, created: &|_| 0 };
            self.publisher.answered(answer, Duration::ZERO, &view)
        }
    }

    #[test]
    fn a_delta_builds_on_the_last_answer() {
        let mut f = Fixture::new();
        f.host("a");
        let sent = f.send();
        assert_eq!(sent.method, Method::PATCH);
        assert_eq!(sent.if_match.as_deref(), Some("\"00000000000000aa.1\""));
        f.host("b");
        f.answer(applied(2));
        let sent = f.send();
        assert_eq!(sent.if_match.as_deref(), Some("\"00000000000000aa.2\""));
        let text = String::from_utf8_lossy(&sent.body).into_owned();
        assert!(text.contains("\"b\"") && !text.contains("\"a\""), "{text}");
    }

    #[test]
    fn an_nginx_that_says_when_is_asked_then() {
        let mut f = Fixture::new();
        f.host("a");
        for asked in [0, 1] {
            let mut next = Next::Now;
            for _ in 0..120 {
                f.send();
                let mut busy = answer(503, serde_json::json!({"error": "busy"}));
                if let Ok(busy) = &mut busy {
                    busy.retry_after = Some(Duration::from_secs(asked));
                }
                next = f.answer(busy);
            }
            // The backoff alone would be at its longest.
            assert_eq!(next, Next::After(Duration::from_secs(asked).max(QUICK)));
        }
        f.send();
        assert_eq!(f.answer(applied(2)), Next::Now);
    }

    #[test]
    fn what_nginx_has_decides_while_something_cannot_be_read() {
        assert_eq!(first(false, None), First::Whole);
        assert_eq!(first(false, Some(7)), First::Whole);
        assert_eq!(first(true, None), First::Look);
        assert_eq!(first(true, Some(0)), First::Whole);
        assert_eq!(first(true, Some(7)), First::Additions);
    }

    #[test]
    fn a_restart_with_a_broken_file_only_adds_until_all_is_read() {
        let mut f = Fixture { publisher: Publisher::new(), snapshot: Snapshot::default() };
        f.publisher.set_incomplete(true);
        f.host("a");
        assert_eq!(f.send().method, Method::GET);
        let status = serde_json::json!({"epoch": EPOCH, "generation": 7, "counts": {},
            "capacity_bytes": 1, "free_bytes": 1, "workers": []});
        assert_eq!(f.answer(answer(200, status)), Next::Now);
        let sent = f.send();
        assert_eq!(sent.method, Method::PATCH);
        assert_eq!(sent.if_match.as_deref(), Some("\"00000000000000aa.7\""));
        let text = String::from_utf8_lossy(&sent.body).into_owned();
        assert!(text.contains("\"a\"") && !text.contains("remove"), "{text}");
        f.answer(applied(8));
        assert!(!f.publisher.is_behind());
        let mut patch = Patch::default();
        patch.remove.servers.insert(HostPattern::parse("a").unwrap());
        f.publisher.change(patch);
        assert!(!f.publisher.is_behind());
        f.publisher.set_incomplete(false);
        assert_eq!(f.send().method, Method::PUT);
        f.answer(applied(9));
        assert!(!f.publisher.is_behind());
    }

    #[test]
    fn a_conflict_sends_the_whole() {
        let mut f = Fixture::new();
        f.host("a");
        f.send();
        assert_eq!(f.answer(answer(409, serde_json::json!({"error": "older"}))), Next::Now);
        assert!(f.publisher.is_behind());
        assert_eq!(f.send().method, Method::PUT);
    }

    #[test]
    fn a_restarted_nginx_gets_the_whole() {
        let mut f = Fixture::new();
        f.publisher.look();
        f.answer(answer(
            200,
            serde_json::json!({"epoch": "bb", "generation": 0, "counts": {},
            "capacity_bytes": 1, "free_bytes": 1, "workers": []}),
        ));
        assert!(f.publisher.is_behind());
        assert_eq!(f.send().method, Method::PUT);
    }

    #[test]
    fn an_unanswered_delta_is_sent_again_together_with_what_came_later() {
        let mut f = Fixture::new();
        f.host("a");
        f.send();
        f.host("b");
        assert_eq!(f.answer(Err(ClientError::Timeout)), Next::After(backoff::QUICK));
        let text = String::from_utf8_lossy(&f.send().body).into_owned();
        assert!(text.contains("\"a\"") && text.contains("\"b\""), "{text}");
    }

    #[test]
    fn a_refused_record_is_withheld_and_the_rest_is_served() {
        let mut f = Fixture::new();
        f.host("a");
        f.host("b");
        f.send();
        let problem = serde_json::json!({"error": "bad", "pointer": "/upsert/servers/a/rules"});
        assert_eq!(f.answer(answer(400, problem)), Next::Now);
        // Without its server another one might answer for the host: a closed one takes its place.
        let text = String::from_utf8_lossy(&f.send().body).into_owned();
        assert!(text.contains("\"b\"") && text.contains("withheld"), "{text}");
        assert_eq!(f.publisher.take_withheld().map(|all| all.len()), Some(1));
        f.answer(answer(409, serde_json::json!({})));
        let text = String::from_utf8_lossy(&f.send().body).into_owned();
        assert!(text.contains("\"b\"") && text.contains("withheld"), "{text}");
        f.answer(applied(3));
        f.host("a");
        assert!(!String::from_utf8_lossy(&f.send().body).contains("withheld"));
    }

    #[test]
    fn a_refused_look_is_no_endless_loop() {
        let mut f = Fixture::new();
        f.publisher.look();
        assert_eq!(f.answer(answer(400, serde_json::json!({}))), Next::OnChange);
    }

    #[test]
    fn records_without_room_are_sent_when_the_zone_has_grown() {
        let mut f = Fixture::new();
        f.host("a");
        f.send();
        let problem = serde_json::json!({"error": "full", "needed_bytes": 2, "free_bytes": 1,
            "capacity_bytes": 100});
        assert_eq!(f.answer(answer(507, problem)), Next::Now);
        assert_eq!(f.publisher.wanted_zone(), Some(202));
        assert!(String::from_utf8_lossy(&f.send().body).contains("withheld"));
        f.answer(applied(2));
        let look = |f: &mut Fixture, capacity: u64, free: u64| {
            f.publisher.look();
            let status = serde_json::json!({"epoch": EPOCH, "generation": 2, "counts": {},
                "capacity_bytes": capacity, "free_bytes": free, "workers": []});
            f.answer(answer(200, status));
        };
        look(&mut f, 100, 50);
        assert!(!f.publisher.is_behind());
        look(&mut f, 10_000, 9_000);
        assert!(f.publisher.is_behind());
        let text = String::from_utf8_lossy(&f.send().body).into_owned();
        assert!(text.contains("\"a\"") && !text.contains("withheld"), "{text}");
        assert_eq!(f.publisher.wanted_zone(), None);
    }
}
