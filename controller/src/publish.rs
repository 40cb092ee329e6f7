//! Keeps nginx's configuration equal to the snapshot: the whole first, then deltas.
//!
//! Shape:   [`Publisher`] decides what to send and what an answer means, without I/O or clock;
//!          [`client`] sends; the controller's loop lets one request be in flight.
//! Errors:  no answer or a busy nginx: again, for ever, soon at first ([`Backoff`]). Another generation is
//!          live than we think: the whole again. A record that nginx refuses (400): sent without it. No
//!          space (507): as soon as something changes, or after the longest pause.
//! Files that never could be read: an nginx that serves something gets additions only ([`First`]).
//! Source:  design.md §3, security.md §3.

pub mod arrival;
pub mod backoff;
pub mod client;
pub mod pending;

use crate::metrics::Writes;
pub use backoff::LONGEST;
use backoff::{Backoff, QUICK};
use bytes::Bytes;
use client::{Answer, ClientError};
use hyper::{Method, StatusCode};
use oxigress_core::model::Snapshot;
use oxigress_core::wire::native::{Applied, Patch, Problem, Status, WireVersion};
use pending::Record;
use serde::Serialize;
use std::collections::BTreeSet;
use std::time::Duration;

/// What is sent.
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
    /// All, and nothing else stays.
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
    Whole,
    /// The known part of the whole.
    Additions,
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
    pending: Patch,
    needs_whole: bool,
    /// The snapshot may lack what cannot be read.
    is_incomplete: bool,
    /// Removals wait until everything is read.
    keeps_removed: bool,
    withheld: BTreeSet<Record>,
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
            patch.remove = Default::default();
        }
        self.withheld.retain(|record| !record.is_in(&patch));
        pending::follow(&mut self.pending, patch);
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
        self.needs_whole || !self.pending.is_empty()
    }

    /// The last answer was a refusal, which a change may cure; no answer at all is not cured by one.
    pub fn is_patient(&self) -> bool {
        !self.backoff.is_failing()
    }

    /// What became of all that was sent; the caller has the clock.
    pub fn writes(&self) -> Writes {
        self.writes
    }

    /// What to send now. `snapshot` holds all changes taken so far.
    pub fn outgoing(&mut self, snapshot: &Snapshot) -> serde_json::Result<Outgoing> {
        let is_whole = self.live.is_none() || self.needs_whole;
        let found = self.found.as_ref().map(|(_, generation)| *generation);
        match first(self.is_incomplete, found) {
            First::Look if is_whole => return Ok(self.look()),
            First::Additions if is_whole => return self.additions(snapshot),
            _ => {}
        }
        let (method, body, sent) = match is_whole {
            true => {
                self.keeps_removed = false;
                self.pending = Patch::default();
                (Method::PUT, self.whole(snapshot)?, Sent::Whole)
            }
            false => {
                let patch = std::mem::take(&mut self.pending);
                (Method::PATCH, serde_json::to_vec(&patch)?, Sent::Delta(Box::new(patch)))
            }
        };
        self.in_flight = Some(sent);
        let if_match = self.live.clone().filter(|_| method == Method::PATCH);
        Ok(Outgoing { method, if_match, body: body.into() })
    }

    fn additions(&mut self, snapshot: &Snapshot) -> serde_json::Result<Outgoing> {
        if !std::mem::replace(&mut self.keeps_removed, true) {
            tracing::warn!(
                "not every file can be read: what nginx serves from before stays, removals wait until \
                 every file can be read"
            );
        }
        self.pending = Patch::default();
        let mut patch = Patch::between(&Snapshot::default(), snapshot);
        // Its EndpointSlices may be what cannot be read.
        patch.upsert.endpoints.retain(|_, set| !set.as_slice().is_empty());
        for record in &self.withheld {
            record.withhold(&mut patch);
        }
        self.in_flight = Some(Sent::Additions);
        let if_match = self.found.as_ref().map(|(live, _)| live.clone());
        Ok(Outgoing { method: Method::PATCH, if_match, body: serde_json::to_vec(&patch)?.into() })
    }

    fn whole(&self, snapshot: &Snapshot) -> serde_json::Result<Vec<u8>> {
        let version = WireVersion;
        if self.withheld.is_empty() {
            return serde_json::to_vec(&WholeOf { version, snapshot });
        }
        let mut snapshot = snapshot.clone();
        for record in &self.withheld {
            record.withhold_from(&mut snapshot);
        }
        serde_json::to_vec(&WholeOf { version, snapshot: &snapshot })
    }

    /// A look at what is live, to notice an nginx that lost it.
    pub fn look(&mut self) -> Outgoing {
        self.in_flight = Some(Sent::Look);
        Outgoing { method: Method::GET, if_match: None, body: Bytes::new() }
    }

    /// What an answer means. `took` is only logged.
    pub fn answered(&mut self, answer: Result<Answer, ClientError>, took: Duration) -> Next {
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
            (StatusCode::BAD_REQUEST, sent) => {
                self.was_refused();
                self.refused(&answer, sent)
            }
            (_, sent) => {
                self.was_refused();
                self.unsend(sent);
                tracing::error!("nginx refuses the configuration: {}", describe(&answer));
                Next::OnChange
            }
        }
    }

    fn was_refused(&mut self) {
        self.writes.refused += 1;
        self.writes.is_last_applied = false;
    }

    /// What was sent has to be sent again, and what came later follows it.
    fn unsend(&mut self, sent: Sent) {
        match sent {
            Sent::Look => {}
            Sent::Whole | Sent::Additions => self.needs_whole = true,
            Sent::Delta(mut patch) => {
                pending::follow(&mut patch, std::mem::take(&mut self.pending));
                self.pending = *patch;
            }
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
                let (plus, minus) = pending::count(&patch);
                tracing::info!(
                    "applied generation {generation}: +{plus} −{minus} records, {millis:.1} ms"
                );
            }
            Sent::Additions => {
                // All may have become readable meanwhile.
                self.needs_whole = !self.keeps_removed;
                tracing::info!("applied generation {generation}: what can be read, {millis:.1} ms");
            }
            _ => {
                self.needs_whole = false;
                tracing::info!("applied generation {generation}: the whole, {millis:.1} ms");
            }
        }
        Next::Now
    }

    fn refused(&mut self, answer: &Answer, sent: Sent) -> Next {
        let pointer = problem(answer).pointer.unwrap_or_default();
        let within = if matches!(sent, Sent::Whole) { "snapshot" } else { "upsert" };
        let record = Record::at(&pointer, within);
        self.unsend(sent);
        match record.filter(|record| self.withheld.insert(record.clone())) {
            Some(record) => {
                tracing::error!("nginx refuses {record}, left out: {}", describe(answer));
                record.withhold(&mut self.pending);
                Next::Now
            }
            None => {
                tracing::error!("nginx refuses the configuration: {}", describe(answer));
                Next::OnChange
            }
        }
    }
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
    if let (Some(needed), Some(free)) = (problem.needed_bytes, problem.free_bytes) {
        text.push_str(&format!(
            " ({needed} bytes needed, {free} free: raise --zone-size and restart nginx)"
        ));
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
            self.publisher.answered(answer, Duration::ZERO)
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
    fn a_refused_record_is_left_out_and_the_rest_is_served() {
        let mut f = Fixture::new();
        f.host("a");
        f.host("b");
        f.send();
        let problem = serde_json::json!({"error": "bad", "pointer": "/upsert/servers/a/rules"});
        assert_eq!(f.answer(answer(400, problem)), Next::Now);
        let text = String::from_utf8_lossy(&f.send().body).into_owned();
        assert!(text.contains("\"b\"") && !text.contains("\"a\""), "{text}");
        f.answer(answer(409, serde_json::json!({})));
        let text = String::from_utf8_lossy(&f.send().body).into_owned();
        assert!(text.contains("\"b\"") && !text.contains("\"a\""), "{text}");
        f.answer(applied(3));
        f.host("a");
        assert!(String::from_utf8_lossy(&f.send().body).contains("\"a\""));
    }

    #[test]
    fn a_full_zone_waits_for_a_change_and_loses_nothing() {
        let mut f = Fixture::new();
        f.host("a");
        f.send();
        let problem = serde_json::json!({"error": "full", "needed_bytes": 2, "free_bytes": 1});
        assert_eq!(f.answer(answer(507, problem)), Next::OnChange);
        assert!(String::from_utf8_lossy(&f.send().body).contains("\"a\""));
    }
}
