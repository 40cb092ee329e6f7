//! The way back to Kubernetes: status of Ingresses and Events, by one replica of many.
//!
//! Shape:   the controller loop leaves [`News`] at the [`Desk`] and never waits; one task takes them from there. [`lease`]
//!          says whether this replica writes, [`address`] what, [`write`] which Ingress next, [`event`] what is said.
//! Memory:  news of one object replace each other, so there are never more than there are objects.
//! Errors:  none ends it; each cause is logged once in ten seconds, and what failed is tried again.
//! Source:  ingress-nginx's controller.
//! Knows:     verdicts, whether Ingresses are accepted, what the API server says of them, and the API server.
//! Does not:  know why a verdict was given, or what is served.
#![forbid(unsafe_code)]

mod address;
mod event;
mod lease;
mod news;
mod options;
mod write;

pub use address::TwoSources;
pub use lease::Leadership;
pub use news::{Change, News};
pub use options::Options;

use address::{AddressError, Doorbell};
use event::{Draft, Speaker};
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use k8s_openapi::jiff::Timestamp;
use kube::{Api, Client};
use lease::{Election, Times};
use news::Desk;
use oxigress_objects::acceptance::Acceptance;
use oxigress_objects::{Key, Kind, ObjectRef};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use write::{Board, Outcome, Write};

/// Writes at a time.
const AT_ONCE: usize = 10;
/// So long an API server may take for one answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two looks at the addresses, however often it rings.
const RINGS: Duration = Duration::from_secs(1);
/// The least --status-update-interval.
const MIN_INTERVAL: Duration = Duration::from_secs(5);
/// So long emptying the status may take at the end.
const END: Duration = Duration::from_secs(60);
/// Lines about one cause.
const QUIET: Duration = Duration::from_secs(10);

/// The task that writes, as the controller sees it.
pub struct Status {
    desk: Arc<Desk>,
    leadership: Option<Leadership>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

/// What the controller loop has of it.
#[derive(Clone)]
pub struct Reporter(Arc<Desk>);

impl Reporter {
    /// Never waits.
    pub fn tell(&self, news: News) {
        self.0.leave(news);
    }
}

impl Status {
    /// Starts it for this pod. `maps` are the ConfigMaps that flags name.
    pub fn start(
        options: &Options,
        client: Client,
        pod: Key,
        maps: BTreeSet<Key>,
    ) -> Result<Self, address::TwoSources> {
        let (source, problems) = address::Source::of(options, &pod)?;
        for problem in problems {
            tracing::error!("{problem}");
        }
        let (stop, stopped) = oneshot::channel();
        let (give_back, given_back) = oneshot::channel::<()>();
        let (mut leadership, mut election) = (None, None);
        if options.has_election {
            let (held, receiver) = lease::channel();
            let times = Times::of(options.election_ttl);
            let part = Election::new(&pod.namespace, &options.election_id, &pod.name, times);
            let leases = Api::namespaced(client.clone(), &pod.namespace);
            let end = async { drop(given_back.await) };
            election = Some(tokio::spawn(lease::keep(part, leases, held, end)));
            leadership = Some(receiver);
        }
        let desk = Arc::new(Desk::default());
        let now = Instant::now();
        let mut speaker = Speaker::new(options.writes_events, now);
        // Without an election everybody speaks, as in ingress-nginx; nobody writes status.
        speaker.lead(leadership.is_none());
        let writer = Writer {
            desk: desk.clone(),
            client,
            source: options.writes_status.then_some(source),
            empties: options.empties_status,
            interval: options.update_interval.max(MIN_INTERVAL),
            pod,
            maps,
            known_maps: BTreeSet::new(),
            leadership: leadership.clone(),
            is_leader: false,
            board: Board::default(),
            speaker,
            writes: JoinSet::new(),
            speaking: None,
            speak_at: None,
            reading: None,
            read_at: None,
            last_read: now,
            failed_reads: 0,
            doorbell: None,
            is_ending: false,
            causes: Causes::default(),
        };
        let task = tokio::spawn(async move {
            writer.run(stopped).await;
            drop(give_back);
            if let Some(election) = election {
                let _ = election.await;
            }
        });
        Ok(Status { desk, leadership, stop, task })
    }

    /// For the controller loop.
    pub fn reporter(&self) -> Reporter {
        Reporter(self.desk.clone())
    }

    /// Whether this replica writes; none: there is no election.
    pub fn leadership(&self) -> Option<Leadership> {
        self.leadership.clone()
    }

    /// Empties the status if nobody stays who serves, and gives the Lease back.
    pub async fn end(self) {
        let _ = self.stop.send(());
        let _ = self.task.await;
    }
}

type Speech = BoxFuture<'static, (Draft, event::Outcome)>;
type Reading = BoxFuture<'static, Result<Vec<oxigress_objects::published::Address>, AddressError>>;

struct Writer {
    desk: Arc<Desk>,
    client: Client,
    /// None: no status is written.
    source: Option<address::Source>,
    /// The status, at the end.
    empties: bool,
    interval: Duration,
    pod: Key,
    maps: BTreeSet<Key>,
    known_maps: BTreeSet<Key>,
    leadership: Option<Leadership>,
    is_leader: bool,
    board: Board,
    speaker: Speaker,
    writes: JoinSet<(Write, Outcome)>,
    speaking: Option<Speech>,
    /// When something may be said.
    speak_at: Option<Instant>,
    reading: Option<Reading>,
    /// When the addresses are to be read next.
    read_at: Option<Instant>,
    last_read: Instant,
    failed_reads: u32,
    doorbell: Option<Doorbell>,
    /// What cannot be done now will not be done.
    is_ending: bool,
    causes: Causes,
}

impl Writer {
    async fn run(mut self, mut stop: oneshot::Receiver<()>) {
        loop {
            // The Lease may have ended while something else was done.
            self.lead();
            self.start_what_is_due();
            tokio::select! {
                () = self.step() => {}
                _ = &mut stop => break,
            }
        }
        if self.is_leader && self.empties && self.source.is_some() {
            let _ = timeout(END, self.empty()).await;
        }
    }

    /// Waits for the next thing to happen.
    async fn step(&mut self) {
        let wakes_at = self.wakes_at();
        tokio::select! {
            news = self.desk.take() => self.take(news),
            () = changed(&mut self.leadership) => self.lead(),
            Some(done) = self.writes.join_next() => {
                // One that panicked would be a fault of ours; the next pass writes its Ingress.
                if let Ok((write, outcome)) = done {
                    self.settle(write, outcome);
                }
            }
            (draft, outcome) = pending_unless(&mut self.speaking) => {
                self.speaking = None;
                if let event::Outcome::Refused(Some(why)) | event::Outcome::Unreachable(why) = &outcome {
                    self.causes.warn("event", format!("Event of {}: {why}", draft.object));
                }
                self.speaker.settle(draft, &outcome, Instant::now());
            }
            addresses = pending_unless(&mut self.reading) => {
                self.reading = None;
                self.was_read(addresses);
            }
            () = rung(&mut self.doorbell) => {
                let soon = (self.last_read + RINGS).max(Instant::now());
                self.read_at = Some(self.read_at.map_or(soon, |at| at.min(soon)));
            }
            () = sleep_until(wakes_at) => {}
        }
    }

    fn wakes_at(&mut self) -> Instant {
        let now = Instant::now();
        let mut at = vec![now + self.interval];
        // What a replica without the Lease may not do must not wake it.
        if self.may_write() {
            at.extend(self.read_at.filter(|_| self.reading.is_none()));
            at.extend(self.board.wakes_at().filter(|at| *at > now));
        }
        if self.speaking.is_none() && self.may_speak() {
            at.extend(self.speak_at);
        }
        at.into_iter().min().unwrap_or(now)
    }

    fn start_what_is_due(&mut self) {
        let now = Instant::now();
        if self.speaking.is_none() && self.may_speak() {
            self.speak_at = None;
            match self.speaker.next(now, |key| self.board.uid(key).map(Into::into)) {
                Ok(draft) => {
                    let speech = say(self.client.clone(), draft, self.pod.name.clone());
                    self.speaking = Some(Box::pin(speech));
                }
                Err(at) => self.speak_at = at,
            }
        }
        let Some(until) = self.leadership.as_ref().and_then(Leadership::until) else { return };
        if self.reading.is_none()
            && self.read_at.is_some_and(|at| at <= now)
            && let Some(source) = self.source.clone()
        {
            (self.read_at, self.last_read) = (None, now);
            let client = self.client.clone();
            self.reading = Some(Box::pin(async move {
                let late = |_| AddressError::Api("the API server does not answer".into());
                timeout(PATIENCE, source.read(&client)).await.map_err(late)?
            }));
        }
        while self.writes.len() < AT_ONCE
            && let Some(write) = self.board.next(now)
        {
            let client = self.client.clone();
            // Not after the end of the time in which nobody else begins.
            let until = until.min(now + PATIENCE);
            self.writes.spawn(async move {
                let late = || Outcome::Unreachable("the API server does not answer".into());
                let outcome = timeout_at(until, write::write(&client, &write)).await;
                (write, outcome.unwrap_or_else(|_| late()))
            });
        }
    }

    fn may_write(&self) -> bool {
        self.leadership.as_ref().is_some_and(Leadership::is_held)
    }

    fn may_speak(&self) -> bool {
        self.leadership.as_ref().is_none_or(Leadership::is_held)
    }

    fn take(&mut self, news: News) {
        let now = Instant::now();
        for (key, published) in news.published {
            if self.board.uid(&key) != published.as_ref().map(|published| published.uid.as_str()) {
                self.speaker.forget(&ObjectRef::new(Kind::Ingress, key.clone()));
            }
            self.board.publish(key, published, now);
        }
        for (key, standing) in news.standings {
            self.board.serve(key.clone(), standing == Some(Acceptance::Served), now);
            self.speaker.stand(key, standing);
        }
        for (object, verdict) in news.verdicts {
            self.speaker.judge(object, verdict, now);
        }
        for (object, change) in news.changed {
            let is_known = match (object.kind, change) {
                (Kind::ConfigMap, _) if !self.maps.contains(&object.key) => continue,
                (Kind::ConfigMap, Change::Gone) => self.known_maps.remove(&object.key),
                (Kind::ConfigMap, _) => !self.known_maps.insert(object.key.clone()),
                _ => true,
            };
            let reason = match object.kind {
                Kind::ConfigMap if is_known => "UPDATE",
                Kind::ConfigMap => "CREATE",
                _ => "Sync",
            };
            if change == Change::Taken {
                self.speaker.change(object, reason, now);
            }
        }
    }

    /// The Lease was gained, renewed or lost.
    fn lead(&mut self) {
        let is_leader = self.leadership.as_ref().is_some_and(Leadership::is_held);
        if is_leader == self.is_leader {
            return;
        }
        self.is_leader = is_leader;
        self.speaker.lead(is_leader);
        self.board.unwant();
        self.reading = None;
        self.failed_reads = 0;
        let source = self.source.as_ref().filter(|_| is_leader);
        self.read_at = source.map(|_| Instant::now());
        self.doorbell = source.map(|source| source.doorbell(&self.client));
    }

    fn was_read(
        &mut self,
        addresses: Result<Vec<oxigress_objects::published::Address>, AddressError>,
    ) {
        let now = Instant::now();
        let pause = match addresses {
            Ok(addresses) => {
                self.failed_reads = 0;
                if self.is_leader {
                    self.board.want(addresses, now);
                }
                self.interval
            }
            // The last ones known stay.
            Err(error) => {
                self.causes.warn("address", format!("the status stays as it is: {error}"));
                self.failed_reads = self.failed_reads.saturating_add(1).min(10);
                Duration::from_secs(1 << self.failed_reads).min(self.interval)
            }
        };
        let at = now + pause;
        self.read_at = Some(self.read_at.map_or(at, |ring| ring.min(at)));
    }

    fn settle(&mut self, write: Write, outcome: Outcome) {
        let key = &write.key;
        match &outcome {
            Outcome::Written(_) => tracing::debug!("Ingress {key}: status written"),
            Outcome::Refused(why) => {
                self.causes.warn("refused", format!("status of Ingress {key}: {why}"));
            }
            Outcome::Unreachable(why) => {
                self.causes.warn("unreachable", format!("status of Ingress {key}: {why}"));
            }
            Outcome::Conflict | Outcome::Gone => {}
        }
        let is_final = self.is_ending && matches!(outcome, Outcome::Refused(_));
        let (key, now) = (key.clone(), Instant::now());
        self.board.settle(write, outcome, now);
        if is_final {
            self.board.serve(key, false, now);
        }
    }

    /// Takes our address away, if nobody stays who serves at it.
    async fn empty(&mut self) {
        // While nobody knows what it should be, nobody knows that it should be nothing.
        if self.board.wanted().is_none_or(|addresses| addresses.len() > 1) {
            return;
        }
        match address::has_others(&self.client, &self.pod).await {
            Ok(false) => {}
            Ok(true) => return,
            Err(error) => {
                tracing::warn!("the status stays: whether other replicas stay is unknown: {error}");
                return;
            }
        }
        tracing::info!("the last replica ends: emptying the status");
        (self.source, self.doorbell, self.reading, self.read_at) = (None, None, None, None);
        self.is_ending = true;
        self.board.want(Vec::new(), Instant::now());
        loop {
            self.start_what_is_due();
            if self.board.is_done() || !self.is_leader || self.board.is_unreachable() {
                return;
            }
            self.step().await;
        }
    }
}

async fn say(client: Client, mut draft: Draft, instance: String) -> (Draft, event::Outcome) {
    let said = async {
        if draft.uid.is_empty() {
            match event::uid(&client, &draft.object).await {
                Ok(Some(uid)) => draft.uid = uid,
                Ok(None) => return event::Outcome::Refused(None),
                Err(error) => return event::outcome(&error),
            }
        }
        let event = event::event(&draft, &instance, Timestamp::now());
        event::say(&client, &event, draft.count).await
    };
    let late = |_| event::Outcome::Unreachable("the API server does not answer".into());
    let outcome = timeout(PATIENCE, said).await.unwrap_or_else(late);
    (draft, outcome)
}

async fn changed(leadership: &mut Option<Leadership>) {
    match leadership {
        Some(leadership) => leadership.changed().await,
        None => std::future::pending().await,
    }
}

async fn pending_unless<T>(future: &mut Option<BoxFuture<'static, T>>) -> T {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}

async fn rung(doorbell: &mut Option<Doorbell>) {
    if let Some(rings) = doorbell
        && rings.next().await.is_some()
    {
        return;
    }
    std::future::pending().await
}

/// What an API server or the way to it says, in one line.
fn explain(error: &kube::Error) -> String {
    let text = match error {
        kube::Error::Api(status) => format!("{}: {}", status.code, status.message),
        error => {
            let mut text = error.to_string();
            let mut source = std::error::Error::source(error);
            while let Some(cause) = source {
                let cause_text = cause.to_string();
                if !text.contains(&cause_text) {
                    text = format!("{text}: {cause_text}");
                }
                source = cause.source();
            }
            text
        }
    };
    oxigress_core::text::line::one_line(&text)
}

/// From 0 to 1.
fn jitter() -> f64 {
    let mut byte = [0];
    // Without a random byte all pauses are equal, which is no harm.
    let _ = rustix::rand::getrandom(&mut byte, rustix::rand::GetRandomFlags::NONBLOCK);
    f64::from(byte[0]) / 255.0
}

/// Log lines, few about one cause.
#[derive(Default)]
struct Causes(BTreeMap<&'static str, (Instant, u32)>);

impl Causes {
    fn warn(&mut self, cause: &'static str, line: String) {
        let now = Instant::now();
        if let Some(unsaid) = self.count(cause, now) {
            match unsaid {
                0 => tracing::warn!("{line}"),
                unsaid => tracing::warn!("{line} (and {unsaid} more of the kind)"),
            }
        }
    }

    /// How many lines about it were kept back; none: this one is, too.
    fn count(&mut self, cause: &'static str, now: Instant) -> Option<u32> {
        match self.0.get_mut(cause) {
            Some((at, unsaid)) if now < *at + QUIET => {
                *unsaid = unsaid.saturating_add(1);
                None
            }
            _ => self.0.insert(cause, (now, 0)).map_or(Some(0), |(_, unsaid)| Some(unsaid)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_has_one_line_in_ten_seconds_and_the_others_are_counted() {
        let (mut causes, now) = (Causes::default(), Instant::now());
        assert_eq!(causes.count("a", now), Some(0));
        assert_eq!(causes.count("a", now + QUIET / 2), None);
        assert_eq!(causes.count("b", now), Some(0));
        assert_eq!(causes.count("a", now + QUIET), Some(1));
        assert_eq!(causes.count("a", now + QUIET * 2), Some(0));
    }
}
