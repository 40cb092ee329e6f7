//! Keeps nginx's configuration equal to the snapshot: the whole first, then deltas.
//!
//! Shape:   [`Publisher`] decides what to send and what an answer means, without I/O or clock; [`client`] sends; the
//!          controller's loop lets one request be in flight. What is too much at once is sent in [`parts`].
//! Errors:  no answer or a busy nginx: sent again, for ever, soon at first ([`Backoff`]). Another generation is live: the
//!          whole is sent again. A record that nginx refuses (400) is [`withheld`] and all others are sent at once. No
//!          space (507): endpoints go first, records of the namespace with most bytes are withheld ([`room`]) until there is
//!          room ([`fitting`]), and a larger zone is asked for ([`Publisher::wanted_zone`]). A body that is too large (413), or refused without a reason that names a record,
//!          is halved until the halves are taken or single records are withheld.
//! Unread:  while a file could never be read, an nginx that serves something gets additions only ([`FirstWrite`]).
//! Knows:     the snapshot, its records, and nginx's answers.
//! Does not:  know the objects that the snapshot was made from, or when a request is sent.
#![forbid(unsafe_code)]

mod backoff;
pub mod client;
mod copies;
mod fitting;
mod item;
mod owners;
mod parts;
#[cfg(test)]
mod progress;
mod quota;
mod refusal;
mod room;
mod sizes;
#[cfg(test)]
mod tests;
mod withheld;

pub use item::Item;
pub use owners::{HostOwner, OwnedHost, View};
pub use oxigress_net::pause::LONGEST;
pub use withheld::Reason;

use backoff::{Backoff, QUICK};
use bytes::Bytes;
use client::{ClientError, Response};
use hyper::{Method, StatusCode};
use oxigress_core::model::Snapshot;
use oxigress_core::record::table::{Keys, TABLES};
use oxigress_core::wire::native::{Applied, Patch, Problem, Status, WireVersion};
use quota::Quota;
use serde::Serialize;
use sizes::Sizes;
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, SystemTime};
use withheld::Withheld;

/// A request to the configuration endpoint.
#[derive(Debug)]
pub struct Outgoing {
    /// PUT for the whole configuration, PATCH for a delta, GET for the status.
    pub method: Method,
    /// The generation it builds on.
    pub if_match: Option<String>,
    /// The JSON of the body.
    pub body: Bytes,
}

/// What became of writes to nginx; what the reference calls reloads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Writes {
    /// How many writes nginx has applied.
    pub applied: u64,
    /// How many writes nginx has refused.
    pub refused: u64,
    /// Records that nginx does not get: refused, without room, or beyond a namespace's limit.
    pub withheld: u64,
    /// The last one is live.
    pub is_last_applied: bool,
    /// When the last one became live.
    pub applied_at: Option<SystemTime>,
}

/// When the publisher is to be asked again.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// At once if there is something to send.
    Now,
    /// Not before this has passed.
    After(Duration),
    /// When something changed, or after the longest pause.
    OnChange,
}

/// What is written first to an nginx whose state is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FirstWrite {
    /// Everything is sent, and nothing else stays.
    Whole,
    /// The generation that nginx has decides, and is asked for.
    AfterStatus,
    /// What is known is added, and nothing is taken away.
    Additions,
}

/// `generation` is what nginx has, as far as it is known.
fn first_write(is_incomplete: bool, generation: Option<u64>) -> FirstWrite {
    match generation {
        _ if !is_incomplete => FirstWrite::Whole,
        None => FirstWrite::AfterStatus,
        Some(0) => FirstWrite::Whole,
        Some(_) => FirstWrite::Additions,
    }
}

enum Sent {
    /// A PUT of the whole configuration.
    Whole,
    /// A PATCH of what changed.
    Delta(Box<Patch>),
    StatusRequest,
}

/// What nginx has and what it should have.
#[derive(Default)]
pub struct Publisher {
    /// `epoch.generation` in quotes, as of the last answer.
    live: Option<String>,
    /// Entity tag and generation that nginx named last, in a status or in an answer to a write.
    last_known: Option<(String, u64)>,
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
    sizes: Sizes,
    quota: Quota,
    /// Bytes of the zone that would have taken everything, beyond those it has.
    lacking_bytes: u64,
    /// Bytes of the zone for records, as of the last status.
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
    /// `namespace_bytes_max`: bytes of the zone that one namespace may have; 0: any number.
    pub fn new(namespace_bytes_max: u64) -> Self {
        let quota = Quota::new(namespace_bytes_max);
        Publisher { needs_whole: true, quota, ..Publisher::default() }
    }

    /// Takes a change to be sent.
    pub fn change(&mut self, mut patch: Patch) {
        self.sizes.note_changed(&patch);
        if self.keeps_removed {
            patch.remove = Keys::default();
        }
        self.quota.changed(&patch);
        if self.withheld.note_changed(&mut patch) {
            self.quota.set_due();
        }
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

    /// nginx answers, if only with a refusal: a change may cure that, so it need not wait for the backoff.
    pub fn was_answered(&self) -> bool {
        !self.backoff.is_failing()
    }

    /// Results of all that was sent; the caller has the clock.
    pub fn writes(&self) -> Writes {
        Writes { withheld: self.withheld.len() as u64, ..self.writes }
    }

    /// What is withheld and why, if that has changed since this was last asked.
    pub fn take_withheld(&mut self) -> Option<BTreeMap<Item, Reason>> {
        self.withheld.take_news()
    }

    /// The size that the zone should have, in bytes; `None`: nothing lacks room.
    pub fn wanted_zone(&self) -> Option<u64> {
        // The same again, so that a cluster that grows does not ask at each Ingress.
        let bytes = (self.capacity_bytes + self.lacking_bytes).saturating_mul(2);
        (self.lacking_bytes > 0 && self.capacity_bytes > 0).then_some(bytes)
    }

    /// What to send now. `view` holds all changes taken so far.
    pub fn outgoing(&mut self, view: &View<'_>) -> serde_json::Result<Outgoing> {
        let snapshot = view.snapshot;
        self.keep_quota(view);
        if self.live.is_none() || self.needs_whole {
            let generation = self.last_known.as_ref().map(|(_, generation)| *generation);
            match first_write(self.is_incomplete, generation) {
                FirstWrite::AfterStatus => return Ok(self.request_status()),
                FirstWrite::Whole if !self.is_in_parts => return self.whole(snapshot),
                _ if self.last_known.is_none() => return Ok(self.request_status()),
                FirstWrite::Whole => self.queue_whole(snapshot),
                FirstWrite::Additions => self.queue_additions(snapshot),
            }
        }
        if self.parts.is_empty() && self.withheld.wants_room() {
            self.queue_fitting(view);
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
                "some manifests cannot be read: nginx keeps what it serves, and nothing is removed until all can \
                 be read"
            );
        }
        let mut patch = Patch::between(&Snapshot::default(), snapshot);
        // Its EndpointSlices may be what cannot be read.
        patch.upsert.endpoints.retain(|_, set| !set.as_slice().is_empty());
        self.begin_parts(patch);
    }

    fn begin_parts(&mut self, whole: Patch) {
        self.live = self.last_known.as_ref().map(|(live, _)| live.clone());
        self.needs_whole = false;
        self.pending = Patch::default();
        self.parts = match self.is_in_parts {
            true => parts::of(whole).into(),
            false => VecDeque::from([whole]),
        };
    }

    /// Asks for the status, to notice an nginx that has lost its configuration.
    pub fn request_status(&mut self) -> Outgoing {
        self.in_flight = Some(Sent::StatusRequest);
        Outgoing { method: Method::GET, if_match: None, body: Bytes::new() }
    }

    /// What an answer means. `took` is only logged.
    pub fn answered(
        &mut self,
        answer: Result<Response, ClientError>,
        took: Duration,
        view: &View<'_>,
    ) -> Next {
        let Some(sent) = self.in_flight.take() else { return Next::Now };
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => {
                self.requeue(sent);
                return Next::After(self.backoff.failed(&error.to_string()));
            }
        };
        match (answer.status, sent) {
            (StatusCode::OK | StatusCode::CREATED, Sent::StatusRequest) => {
                self.status_received(&answer, view)
            }
            (StatusCode::OK | StatusCode::CREATED, sent) => self.applied(&answer, sent, took),
            (
                StatusCode::CONFLICT
                | StatusCode::PRECONDITION_FAILED
                | StatusCode::PRECONDITION_REQUIRED,
                sent,
            ) => {
                let live = problem(&answer).live.unwrap_or_default();
                tracing::info!(
                    "nginx has generation {live}, which this controller did not write; sending the whole configuration"
                );
                self.needs_whole |= !matches!(sent, Sent::StatusRequest);
                self.live = None;
                self.last_known = None;
                Next::Now
            }
            (StatusCode::SERVICE_UNAVAILABLE | StatusCode::NOT_FOUND, sent) => {
                self.requeue(sent);
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
    fn requeue(&mut self, sent: Sent) {
        match sent {
            Sent::StatusRequest => {}
            Sent::Whole => self.needs_whole = true,
            Sent::Delta(mut patch) if self.parts.is_empty() && patch.retain.is_none() => {
                patch.follow(std::mem::take(&mut self.pending));
                self.pending = *patch;
            }
            Sent::Delta(patch) => self.parts.push_front(*patch),
        }
    }

    fn status_received(&mut self, answer: &Response, view: &View<'_>) -> Next {
        match serde_json::from_slice::<Status>(&answer.body) {
            Ok(status) => {
                self.backoff.succeeded();
                let live = etag(&status.epoch, status.generation);
                if self.live.as_ref().is_some_and(|known| *known != live) {
                    tracing::info!(
                        "nginx has generation {live}, which this controller did not write; sending the whole configuration"
                    );
                    self.needs_whole = true;
                }
                self.last_known = Some((live, status.generation));
                if status.capacity_bytes > self.capacity_bytes {
                    self.lacking_bytes = 0;
                }
                self.capacity_bytes = status.capacity_bytes;
                self.measure_changed(&status, view);
                self.withheld.status_received(&status);
                Next::Now
            }
            Err(error) => Next::After(self.backoff.failed(&format!("status: {error}"))),
        }
    }

    fn applied(&mut self, answer: &Response, sent: Sent, took: Duration) -> Next {
        let applied: Applied = match serde_json::from_slice(&answer.body) {
            Ok(applied) => applied,
            Err(error) => {
                // It was applied, but onto what the next delta builds is unknown.
                self.live = None;
                self.last_known = None;
                self.needs_whole = true;
                return Next::After(self.backoff.failed(&format!("answer: {error}")));
            }
        };
        self.backoff.succeeded();
        self.writes.applied += 1;
        self.writes.is_last_applied = true;
        let live = etag(&applied.epoch, applied.generation);
        self.last_known = Some((live.clone(), applied.generation));
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
                tracing::info!(
                    "applied generation {generation}: the whole configuration, {millis:.1} ms"
                );
            }
        }
        Next::Now
    }
}

fn etag(epoch: &str, generation: u64) -> String {
    format!("\"{epoch}.{generation}\"")
}

fn problem(answer: &Response) -> Problem {
    serde_json::from_slice(&answer.body).unwrap_or_default()
}

fn describe(answer: &Response) -> String {
    let problem = problem(answer);
    let mut text = format!("{}: {}", answer.status.as_u16(), problem.error);
    if let Some(pointer) = problem.pointer {
        text.push_str(&format!(" (at {pointer})"));
    }
    oxigress_core::text::line::one_line(&text)
}
