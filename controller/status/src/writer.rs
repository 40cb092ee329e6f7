//! The task that writes: takes what is new, and does what is due.

use crate::address::{AddressError, Trigger};
use crate::event::{Draft, EventOutcome, EventQueue};
use crate::gateway::{self, GatewayOutcome, GatewayQueue, GatewayWrite};
use crate::lease::Leadership;
use crate::update::Mailbox;
use crate::write::{StatusQueue, Write, WriteOutcome};
use crate::{Change, Update, address, event, write};
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use oxigress_objects::verdict::acceptance::Acceptance;
use oxigress_objects::{Key, Kind, ObjectRef};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

/// How many status writes are under way at a time.
const AT_ONCE: usize = 10;
/// So long an API server may take for one answer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Between two looks at the addresses, however often it rings.
const RINGS: Duration = Duration::from_secs(1);
/// So long emptying the status may take at the end.
const END: Duration = Duration::from_secs(60);
/// The time between two log lines about one cause.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

pub type PendingEvent = BoxFuture<'static, (Draft, EventOutcome)>;
pub type Reading =
    BoxFuture<'static, Result<Vec<oxigress_objects::published::Address>, AddressError>>;

/// Writes status and Events as long as the program runs.
pub struct Writer {
    pub mailbox: Arc<Mailbox>,
    pub client: Client,
    /// None: no status is written.
    pub source: Option<address::Source>,
    /// The status, at the end.
    pub empties: bool,
    pub interval: Duration,
    pub pod: Key,
    pub maps: BTreeSet<Key>,
    pub known_maps: BTreeSet<Key>,
    pub leadership: Option<Leadership>,
    pub is_leader: bool,
    pub status_queue: StatusQueue,
    pub gateway_queue: GatewayQueue,
    pub gateway_writes: JoinSet<(GatewayWrite, GatewayOutcome)>,
    pub event_queue: EventQueue,
    pub writes: JoinSet<(Write, WriteOutcome)>,
    pub pending_event: Option<PendingEvent>,
    /// When something may be said.
    pub speak_at: Option<Instant>,
    pub reading: Option<Reading>,
    /// When the addresses are to be read next.
    pub read_at: Option<Instant>,
    pub last_read: Instant,
    pub failed_reads: u32,
    pub trigger: Option<Trigger>,
    /// What cannot be done now will not be done.
    pub is_ending: bool,
    pub causes: Causes,
}

impl Writer {
    pub async fn run(mut self, mut stop: oneshot::Receiver<()>) {
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
            news = self.mailbox.take() => self.take(news),
            () = changed(&mut self.leadership) => self.lead(),
            Some(done) = self.writes.join_next() => {
                // One that panicked would be a fault of ours; the next pass writes its Ingress.
                if let Ok((write, outcome)) = done {
                    self.apply(write, outcome);
                }
            }
            Some(done) = self.gateway_writes.join_next() => {
                if let Ok((write, outcome)) = done {
                    self.apply_gateway(write, outcome);
                }
            }
            (draft, outcome) = pending_unless(&mut self.pending_event) => {
                self.pending_event = None;
                if let EventOutcome::Refused(Some(why)) | EventOutcome::Unreachable(why) = &outcome {
                    self.causes.warn("event", format!("Event of {}: {why}", draft.object));
                }
                self.event_queue.apply(draft, &outcome, Instant::now());
            }
            addresses = pending_unless(&mut self.reading) => {
                self.reading = None;
                self.was_read(addresses);
            }
            () = rung(&mut self.trigger) => {
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
            at.extend(self.status_queue.wakes_at().filter(|at| *at > now));
            at.extend(self.gateway_queue.wakes_at(now));
        }
        if self.pending_event.is_none() && self.may_speak() {
            at.extend(self.speak_at);
        }
        at.into_iter().min().unwrap_or(now)
    }

    fn start_what_is_due(&mut self) {
        let now = Instant::now();
        if self.pending_event.is_none() && self.may_speak() {
            self.speak_at = None;
            match self.event_queue.next(now, |key| self.status_queue.uid(key).map(Into::into)) {
                Ok(draft) => {
                    let speech = report(self.client.clone(), draft, self.pod.name.to_string());
                    self.pending_event = Some(Box::pin(speech));
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
                timeout(TIMEOUT, source.read(&client)).await.map_err(late)?
            }));
        }
        while self.writes.len() < AT_ONCE
            && let Some(write) = self.status_queue.next(now)
        {
            let client = self.client.clone();
            // Not after the end of the time in which nobody else begins.
            let until = until.min(now + TIMEOUT);
            self.writes.spawn(async move {
                let late = || WriteOutcome::Unreachable("the API server does not answer".into());
                let outcome = timeout_at(until, write::write(&client, &write)).await;
                (write, outcome.unwrap_or_else(|_| late()))
            });
        }
        self.start_gateway_writes(until.min(now + TIMEOUT), now);
    }

    /// Writes of the Gateway API, as many at a time as of Ingresses.
    fn start_gateway_writes(&mut self, until: Instant, now: Instant) {
        while self.gateway_writes.len() < AT_ONCE
            && let Some(write) = self.gateway_queue.next(now)
        {
            let client = self.client.clone();
            self.gateway_writes.spawn(async move {
                let late = || WriteOutcome::Unreachable("the API server does not answer".into());
                let outcome = timeout_at(until, gateway::write(&client, &write)).await;
                (write, outcome.unwrap_or_else(|_| GatewayOutcome::Not(late())))
            });
        }
    }

    fn apply_gateway(&mut self, write: GatewayWrite, outcome: GatewayOutcome) {
        let object = &write.object;
        match &outcome {
            GatewayOutcome::Written(_) => tracing::debug!("{object}: status written"),
            GatewayOutcome::Not(WriteOutcome::Refused(why) | WriteOutcome::Unreachable(why)) => {
                self.causes.warn("gateway", format!("status of {object}: {why}"));
            }
            GatewayOutcome::Not(_) => {}
        }
        self.gateway_queue.apply(write, &outcome, Instant::now());
    }

    fn may_write(&self) -> bool {
        self.leadership.as_ref().is_some_and(Leadership::is_held)
    }

    fn may_speak(&self) -> bool {
        self.leadership.as_ref().is_none_or(Leadership::is_held)
    }

    fn take(&mut self, news: Update) {
        let now = Instant::now();
        for (key, published) in news.published {
            if self.status_queue.uid(&key)
                != published.as_ref().map(|published| published.uid.as_str())
            {
                self.event_queue.forget(&ObjectRef::new(Kind::Ingress, key.clone()));
            }
            self.status_queue.publish(key, published, now);
        }
        for (object, seen) in news.statuses {
            self.gateway_queue.publish(object, seen);
        }
        for (object, wanted) in news.wanted {
            self.gateway_queue.want(object, wanted);
        }
        for (key, acceptance) in news.acceptances {
            self.status_queue.serve(key.clone(), acceptance == Some(Acceptance::Served), now);
            self.event_queue.set_acceptance(key, acceptance);
        }
        for (object, verdict) in news.verdicts {
            self.event_queue.set_verdict(object, verdict, now);
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
                self.event_queue.change(object, reason, now);
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
        self.event_queue.lead(is_leader);
        self.status_queue.unwant();
        self.gateway_queue.reach(None);
        self.reading = None;
        self.failed_reads = 0;
        let source = self.source.as_ref().filter(|_| is_leader);
        self.read_at = source.map(|_| Instant::now());
        self.trigger = source.map(|source| source.trigger(&self.client));
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
                    self.gateway_queue.reach(Some(addresses.clone()));
                    self.status_queue.want(addresses, now);
                }
                self.interval
            }
            // The last ones known stay.
            Err(error) => {
                self.causes.warn(
                    "address",
                    format!("cannot read the addresses: {error}; the written status stays"),
                );
                self.failed_reads = self.failed_reads.saturating_add(1).min(10);
                Duration::from_secs(1 << self.failed_reads).min(self.interval)
            }
        };
        let at = now + pause;
        self.read_at = Some(self.read_at.map_or(at, |ring| ring.min(at)));
    }

    fn apply(&mut self, write: Write, outcome: WriteOutcome) {
        let key = &write.key;
        match &outcome {
            WriteOutcome::Written(_) => tracing::debug!("Ingress {key}: status written"),
            WriteOutcome::Refused(why) => {
                self.causes.warn("refused", format!("status of Ingress {key}: {why}"));
            }
            WriteOutcome::Unreachable(why) => {
                self.causes.warn("unreachable", format!("status of Ingress {key}: {why}"));
            }
            WriteOutcome::Conflict | WriteOutcome::Gone => {}
        }
        let is_final = self.is_ending && matches!(outcome, WriteOutcome::Refused(_));
        let (key, now) = (key.clone(), Instant::now());
        self.status_queue.apply(write, outcome, now);
        if is_final {
            self.status_queue.serve(key, false, now);
        }
    }

    /// Takes our address away, if nobody stays who serves at it.
    async fn empty(&mut self) {
        // While nobody knows what it should be, nobody knows that it should be nothing.
        if self.status_queue.wanted().is_none_or(|addresses| addresses.len() > 1) {
            return;
        }
        match address::has_others(&self.client, &self.pod).await {
            Ok(false) => {}
            Ok(true) => return,
            Err(error) => {
                tracing::warn!("cannot list other replicas: {error}; the status is not removed");
                return;
            }
        }
        tracing::info!("the last replica is stopping; removing its addresses from status");
        (self.source, self.trigger, self.reading, self.read_at) = (None, None, None, None);
        self.is_ending = true;
        self.status_queue.want(Vec::new(), Instant::now());
        loop {
            self.start_what_is_due();
            if self.status_queue.is_done() || !self.is_leader || self.status_queue.is_unreachable()
            {
                return;
            }
            self.step().await;
        }
    }
}

async fn report(client: Client, mut draft: Draft, instance: String) -> (Draft, EventOutcome) {
    let said = async {
        if draft.uid.is_empty() {
            match event::uid(&client, &draft.object).await {
                Ok(Some(uid)) => draft.uid = uid,
                Ok(None) => return EventOutcome::Refused(None),
                Err(error) => return event::outcome(&error),
            }
        }
        let event = event::event(&draft, &instance, Timestamp::now());
        event::report(&client, &event, draft.count).await
    };
    let late = |_| EventOutcome::Unreachable("the API server does not answer".into());
    let outcome = timeout(TIMEOUT, said).await.unwrap_or_else(late);
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

async fn rung(trigger: &mut Option<Trigger>) {
    if let Some(rings) = trigger
        && rings.next().await.is_some()
    {
        return;
    }
    std::future::pending().await
}

/// Log lines, few about one cause.
#[derive(Default)]
pub struct Causes(BTreeMap<&'static str, (Instant, u32)>);

impl Causes {
    pub fn warn(&mut self, cause: &'static str, line: String) {
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
            Some((at, unsaid)) if now < *at + LOG_INTERVAL => {
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
        assert_eq!(causes.count("a", now + LOG_INTERVAL / 2), None);
        assert_eq!(causes.count("b", now), Some(0));
        assert_eq!(causes.count("a", now + LOG_INTERVAL), Some(1));
        assert_eq!(causes.count("a", now + LOG_INTERVAL * 2), Some(0));
    }
}
