//! The controller role: source → pace → world → translate → publish, in one loop.
//!
//! A change is translated at once, or when its namespace has a share of time for it ([`Pace`]). While a request is in flight,
//! changes gather and go out together.

mod answers;
mod changes;
mod lines;
mod ports;
mod start;

pub use start::run;

use crate::metrics::{self, ChangeToLive, Scrape};
use changes::changes;
use lines::{Line, VerdictLines};
use oxigress_admission::ReviewRequest;
use oxigress_dashboard::DashboardQuery;
use oxigress_objects::service::external_name::DnsName;
use oxigress_objects::{Changed, Name, ObjectRef, World};
use oxigress_provider::Batch;
use oxigress_provider::dns::{Report, Resolver};
use oxigress_provider::kubernetes::WatchHealth;
use oxigress_publish::client::{Client, ClientError, Response};
use oxigress_publish::{
    HostOwner, Item, LONGEST, Next, Outgoing, OwnedHost, Publisher, Reason, View, Writes,
};
use oxigress_settings::conf_input::ConfInput;
use oxigress_status::{Reporter, Update};
use oxigress_supervisor::runtime::arrival::Arrival;
use oxigress_telemetry::Telemetry;
use oxigress_translate::pace::{Pace, answers::Answers, price::Prices};
use oxigress_translate::{Reviews, Translator, WithheldItem};
use ports::PortPace;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::mpsc;
use tokio::time::Instant;

/// How often nginx is asked which generation it has, to notice that it has lost what was sent.
const LOOK: Duration = Duration::from_secs(1);
/// Between two looks because a connection was closed: an nginx that is short of connections closes idle ones as
/// fast as they come.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// So long the first publication waits for what DNS says: without it names would answer 503 at first.
const FIRST_ANSWERS: Duration = Duration::from_secs(2);

/// So long the first publication waits for the ConfigMap's part of nginx.conf: before it, lists of trusted proxies
/// and of blocked clients do not hold. An nginx role that does not run writes nothing, and nobody waits for ever.
const FIRST_CONF: Duration = Duration::from_secs(5);

/// The namespace of a host, as the publisher counts what belongs to whom.
fn owner_of<'t>(translator: &'t Translator, place: OwnedHost<'_>) -> Option<HostOwner<'t>> {
    let (oldest, created) = match place {
        OwnedHost::Ingresses(host) => translator.owner_of(host),
        OwnedHost::Listener(at) => translator.owner_at(at),
    }?;
    Some(HostOwner { namespace: &oldest.namespace, created })
}

type Completion = (Client, Duration, Result<Response, ClientError>);

/// The connection to nginx's configuration endpoint, which has one request at a time.
enum Connection {
    Idle(Client),
    Busy(Pin<Box<dyn Future<Output = Completion> + Send>>),
}

impl Connection {
    async fn completion(&mut self) -> Completion {
        match self {
            Connection::Busy(request) => request.await,
            Connection::Idle(_) => std::future::pending().await,
        }
    }
}

struct Controller {
    world: World,
    /// Changes that wait for their namespaces' shares of time.
    pace: Pace,
    translator: Translator,
    /// What the admission webhook has compiled.
    reviews: Reviews,
    publisher: Publisher,
    connection: Connection,
    /// When nginx was last asked for its status.
    looked_at: Instant,
    /// The last request asked for the status: a write goes before the next such request.
    has_just_looked: bool,
    /// The time before which nothing is sent, unless something changes.
    wait_until: Instant,
    /// The provider has listed all objects at start: before that, nothing is published.
    has_all: bool,
    /// Something cannot be read and never could be.
    is_incomplete: bool,
    /// When nginx last took a configuration.
    applied_at: Option<SystemTime>,
    resolver: Resolver,
    external_names: BTreeMap<DnsName, Name>,
    /// What DNS says and is not taken over yet.
    answers: Answers,
    /// The file in which the nginx role finds listeners, ConfigMap and size of the zone.
    conf_input: PathBuf,
    /// Until then the first publication waits for the rest of DNS's answers.
    dns_answers_by: Option<Instant>,
    /// Whether the API server is heard; none: a folder is served.
    watch_health: Option<Arc<WatchHealth>>,
    /// The file in which the nginx role confirms what of it stands in nginx.conf.
    conf_served: PathBuf,
    /// Until then the first publication waits for that file.
    conf_by: Option<Instant>,
    /// When ports that ListenerSets alone ask for are opened.
    port_pace: PortPace,
    /// How long changes take from the provider until nginx serves them.
    live: ChangeToLive,
    /// The task that exports spans of requests.
    telemetry: Telemetry,
    /// Who writes status and Events; none: a folder, which has neither.
    reporter: Option<Reporter>,
    /// Which verdicts have a line in the log.
    lines: VerdictLines,
}

impl Controller {
    async fn run(
        &mut self,
        mut batches: mpsc::Receiver<(Instant, Batch)>,
        mut reports: mpsc::Receiver<Report>,
        (mut arrival, mut conf_arrival): (Arrival, Arrival),
        mut scrapes: mpsc::Receiver<Scrape>,
        mut reviews: mpsc::Receiver<ReviewRequest>,
        mut dashboard_queries: mpsc::Receiver<DashboardQuery>,
    ) {
        let mut look_at = Instant::now() + LOOK;
        let mut closed_at = None;
        let closed = match &self.connection {
            Connection::Idle(client) => client.closed(),
            Connection::Busy(_) => return,
        };
        loop {
            self.send_or_look(&mut look_at);
            let due_at = [self.pace.due_at(), self.answers.due_at()].into_iter().flatten().min();
            let due_at = due_at.map(Instant::from_std);
            tokio::select! {
                () = tokio::time::sleep_until(due_at.unwrap_or(look_at)), if due_at.is_some() => {
                    self.take_due();
                    self.take_dns_answers();
                }
                batch = batches.recv() => {
                    let Some(batch) = batch else { return };
                    let mut all = vec![batch];
                    while let Ok(more) = batches.try_recv() {
                        all.push(more);
                    }
                    self.take_batches(all);
                }
                Some(report) = reports.recv() => {
                    let mut all = vec![report];
                    while let Ok(more) = reports.try_recv() {
                        all.push(more);
                    }
                    self.take_reports(all);
                }
                () = tokio::time::sleep_until(self.dns_answers_by.unwrap_or(look_at)),
                    if self.dns_answers_by.is_some() => self.dns_answers_by = None,
                () = tokio::time::sleep_until(self.port_pace.due_at().unwrap_or(look_at)),
                    if self.translator.has_pending_ports() => self.update(&Changed::default()),
                () = conf_arrival.next(), if self.conf_by.is_some() => self.look_at_conf(),
                () = tokio::time::sleep_until(self.conf_by.unwrap_or(look_at)),
                    if self.conf_by.is_some() =>
                {
                    tracing::warn!("the nginx role has not confirmed nginx.conf in time; publishing anyway: check that the nginx role runs");
                    self.conf_by = None;
                }
                (client, took, answer) = self.connection.completion() => {
                    self.connection = Connection::Idle(client);
                    let now = Instant::now();
                    let before = self.publisher.writes().applied;
                    let next = self.take_response(answer, took);
                    let is_applied = self.publisher.writes().applied > before;
                    if is_applied {
                        self.applied_at = Some(SystemTime::now());
                    }
                    self.live.answered(is_applied, now);
                    (self.wait_until, look_at) = match next {
                        Next::Now => (now, now + LOOK),
                        Next::After(pause) => (now + pause, now + pause),
                        Next::OnChange => (now + LONGEST, now + LOOK),
                    };
                }
                Some(Scrape { constant, reply }) = scrapes.recv() => {
                    let writes = Writes { applied_at: self.applied_at, ..self.publisher.writes() };
                    let snapshot = self.translator.snapshot();
                    let mut text = metrics::text(&self.world, snapshot, &writes, &self.live, &constant);
                    text.push_str(&metrics::pace(&self.pace, &constant));
                    if let Some(watch_health) = &self.watch_health {
                        text.push_str(&metrics::source(watch_health, &constant));
                    }
                    // Whoever asked may have gone.
                    let _ = reply.send(text);
                }
                Some(query) = dashboard_queries.recv() => self.answer_dashboard(query),
                Some(review) = reviews.recv() => {
                    let served = (&self.translator, &self.pace);
                    review.answer(self.has_all, served, &mut self.world, &mut self.reviews);
                }
                () = arrival.next() => {
                    self.wait_until = Instant::now();
                    look_at = self.wait_until;
                }
                // nginx, or the worker that held the connection, is gone: look who is there now.
                () = closed.notified() => {
                    let now = Instant::now();
                    let last = closed_at.replace(now);
                    look_at = self.wait_until.max(last.map_or(now, |last| last + LOOK_AGAIN));
                }
                () = tokio::time::sleep_until(self.wait_until),
                    if self.wants_to_send() => {}
                () = tokio::time::sleep_until(look_at), if self.is_idle() => {}
            }
        }
    }

    /// Answers a query of the dashboard from what is served now.
    fn answer_dashboard(&self, query: DashboardQuery) {
        let writes = Writes { applied_at: self.applied_at, ..self.publisher.writes() };
        query.answer(&oxigress_dashboard::View {
            world: &self.world,
            snapshot: self.translator.snapshot(),
            verdicts: self.translator.verdicts(),
            writes: &writes,
            changes: &self.live.recent(Instant::now()),
        });
    }

    fn is_idle(&self) -> bool {
        matches!(self.connection, Connection::Idle(_))
    }

    fn wants_to_send(&self) -> bool {
        let has_all = self.has_all && self.dns_answers_by.is_none() && self.conf_by.is_none();
        self.is_idle() && has_all && self.publisher.is_behind()
    }

    /// Sends what there is to send, or looks when it is time.
    fn send_or_look(&mut self, look_at: &mut Instant) {
        let now = Instant::now();
        // What has no room waits for the status, however much there is to send.
        let is_time = !self.has_just_looked && now >= self.looked_at + LOOK;
        let is_asked_first = self.publisher.lacks_room() && is_time;
        let is_sending = self.wants_to_send() && now >= self.wait_until;
        let mut is_looking = false;
        let outgoing = if is_sending && !is_asked_first {
            let translator = &self.translator;
            let owner = |place: OwnedHost<'_>| owner_of(translator, place);
            let view = View { snapshot: translator.snapshot(), owner: &owner };
            match self.publisher.outgoing(&view) {
                Ok(outgoing) => {
                    self.live.sent();
                    outgoing
                }
                Err(error) => {
                    tracing::error!("the configuration cannot be written as JSON: {error}");
                    self.wait_until = now + LONGEST;
                    return;
                }
            }
        } else if self.is_idle() && (is_sending || now >= *look_at) {
            (self.looked_at, is_looking) = (now, true);
            self.publisher.request_status()
        } else {
            return;
        };
        self.has_just_looked = is_looking;
        *look_at = now + LOOK;
        let nothing = Connection::Busy(Box::pin(std::future::pending()));
        if let Connection::Idle(client) = std::mem::replace(&mut self.connection, nothing) {
            self.connection = Connection::Busy(Box::pin(send(client, outgoing)));
        }
    }

    /// Passes nginx's answer to the publisher, reports records that are withheld, and asks for a larger zone.
    fn take_response(&mut self, answer: Result<Response, ClientError>, took: Duration) -> Next {
        let translator = &self.translator;
        let owner = |place: OwnedHost<'_>| owner_of(translator, place);
        let view = View { snapshot: translator.snapshot(), owner: &owner };
        let next = self.publisher.answered(answer, took, &view);
        self.report_withheld();
        self.lines.due(Instant::now().into_std()).iter().for_each(Line::log);
        if let Some(bytes) = self.publisher.wanted_zone() {
            self.ask_for_zone(bytes);
        }
        next
    }

    /// Reports to the status of each object which of its records nginx does not get.
    fn report_withheld(&mut self) {
        if let Some(withheld) = self.publisher.take_withheld() {
            let item = |(item, reason): (Item, Reason)| WithheldItem {
                name: item.to_string(),
                reason: reason.to_string(),
                record: item.record,
                guest: item.guest,
            };
            let withheld = withheld.into_iter().map(item).collect();
            let verdicts = self.translator.set_withheld(withheld);
            self.report(Update { verdicts, ..Update::default() });
        }
    }

    /// Asks the nginx role for a larger zone.
    fn ask_for_zone(&self, bytes: u64) {
        let mut input = ConfInput::read(&self.conf_input).unwrap_or_default();
        if input.zone_bytes < bytes {
            input.zone_bytes = bytes;
            tracing::info!(
                "the shared memory zone is full; requested {} MiB from the nginx role (one reload)",
                bytes >> 20
            );
            self.write_conf_input(&input);
        }
    }

    fn write_conf_input(&self, input: &ConfInput) {
        if let Err(error) = input.write(&self.conf_input) {
            let file = self.conf_input.display();
            tracing::error!(
                "cannot write {file}: {error}; nginx keeps its ports, settings and zone size"
            );
        }
    }

    fn report(&mut self, update: Update) {
        let is_there = |object: &ObjectRef| self.world.has(object);
        let lines = match self.has_all {
            true => self.lines.of(&update.verdicts, is_there, Instant::now().into_std()),
            false => self.lines.of_start(&update.verdicts, is_there),
        };
        lines.iter().for_each(Line::log);
        if let Some(reporter) = &self.reporter {
            reporter.report(update);
        }
    }

    fn take_batches(&mut self, batches: Vec<(Instant, Batch)>) {
        let mut changed = Changed::default();
        let mut seen_at = Vec::new();
        for (at, batch) in batches {
            seen_at.push(at);
            self.publisher.set_incomplete(batch.is_incomplete);
            self.is_incomplete = batch.is_incomplete;
            self.world.hide_classes(batch.hides_classes, &mut changed);
            for problem in batch.problems {
                tracing::warn!("{problem}");
            }
            for mended in batch.mended {
                tracing::info!("{mended}");
            }
            for seen in batch.seen {
                // What there is at the start is served as a whole.
                let seen = match self.has_all {
                    true => {
                        let prices = Prices { translator: &self.translator, world: &self.world };
                        self.pace.admit(seen, &prices, Instant::now().into_std())
                    }
                    false => Some(seen),
                };
                seen.into_iter().for_each(|seen| self.world.apply(seen, &mut changed));
            }
            if let Some(reporter) = &self.reporter {
                let published = batch.published.into_iter().collect();
                let statuses = batch.statuses.into_iter().collect();
                reporter.report(Update { published, statuses, ..Update::default() });
            }
        }
        self.report_waiting();
        if self.has_all && changed.is_empty() {
            return;
        }
        self.update(&changed);
        // What there was at the start is no change, and what changes nothing in nginx never becomes live.
        if self.has_all && self.publisher.is_behind() {
            seen_at.into_iter().for_each(|at| self.live.saw(at));
        }
        if !self.has_all && self.lacks_dns_answers() {
            self.dns_answers_by = Some(Instant::now() + FIRST_ANSWERS);
        }
        if !self.has_all {
            self.world.compact();
            self.translator.compact();
            self.conf_by = Some(Instant::now() + FIRST_CONF);
            self.look_at_conf();
        }
        self.has_all = true;
        // A refused configuration may be accepted now.
        if self.publisher.was_answered() {
            self.wait_until = Instant::now();
        }
    }

    /// Takes over what has waited for its namespace's share of time.
    fn take_due(&mut self) {
        let mut changed = Changed::default();
        let prices = Prices { translator: &self.translator, world: &self.world };
        for seen in self.pace.due(&prices, Instant::now().into_std()) {
            self.world.apply(seen, &mut changed);
        }
        self.report_waiting();
        if !changed.is_empty() {
            self.update(&changed);
        }
    }

    /// Reports to the status of each object whose change waits for its namespace's share of time.
    fn report_waiting(&mut self) {
        let news = self.pace.take_news();
        if !news.is_empty() {
            let verdicts = self.translator.set_waiting(news);
            self.report(Update { verdicts, ..Update::default() });
        }
    }

    fn look_at_conf(&mut self) {
        if ConfInput::is_served(&self.conf_input, &self.conf_served) {
            self.conf_by = None;
        }
    }

    /// Translates, and again when more is known of names that were not wanted before.
    fn update(&mut self, changed: &Changed) {
        self.translate(changed);
        let work = self.translator.take_endpoint_work();
        let now = Instant::now().into_std();
        self.pace.spend(work, self.has_all, now);
        self.pace.spend_build(self.translator.take_build_work(), self.has_all, now);
        self.telemetry.apply(self.translator.exporter());
        let Some(names) = self.translator.take_external_names() else { return };
        self.world.retain_answers(|name| names.contains_key(name));
        let mut changed = Changed::default();
        for (name, answer) in self.resolver.want(&names) {
            self.world.answer(name, answer, &mut changed);
        }
        self.external_names = names;
        if !changed.is_empty() {
            self.translate(&changed);
        }
    }

    /// Writes what the nginx role renders nginx.conf from, if it has changed.
    fn send_conf_input(&self, mut input: ConfInput) {
        let old = ConfInput::read(&self.conf_input).unwrap_or_default();
        if self.is_incomplete {
            // What cannot be read may be what names them.
            for (port, listener) in &old.listeners {
                input.listeners.entry(*port).or_insert(*listener);
            }
        }
        input.zone_bytes = old.zone_bytes;
        if input != old {
            self.write_conf_input(&input);
        }
    }

    fn translate(&mut self, changed: &Changed) {
        let start = Instant::now();
        self.port_pace.hold(&mut self.translator);
        let (patch, verdicts) = self.translator.update(&self.world, changed);
        self.port_pace.note(&mut self.translator, !self.has_all);
        tracing::debug!("translated in {:.1} ms", start.elapsed().as_secs_f64() * 1e3);
        let acceptances = self.translator.take_acceptances();
        let wanted = self.translator.take_statuses();
        let changed = changes(changed, &self.world, self.has_all);
        self.report(Update { verdicts, acceptances, wanted, changed, ..Update::default() });
        if let Some(input) = self.translator.take_conf_input() {
            self.send_conf_input(input);
        }
        if !patch.is_empty() {
            self.publisher.change(patch);
        }
    }
}

async fn send(mut client: Client, outgoing: Outgoing) -> Completion {
    let start = Instant::now();
    let Outgoing { method, if_match, body } = outgoing;
    let answer = client.send(method, if_match.as_deref(), body).await;
    (client, start.elapsed(), answer)
}
