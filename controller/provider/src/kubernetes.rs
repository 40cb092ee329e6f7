//! The objects of a Kubernetes API server, watched.
//!
//! Shape:   [`scope`] says what is watched, [`watch`] watches it, [`watch_health`] knows whether the server is heard,
//!          [`sparse`] which Secrets and ConfigMaps are kept; this file makes batches of what they tell. An object is
//!          converted when it comes and dropped: what is known of it is in the [`oxigress_objects::World`].
//! Errors:  a server that does not answer changes nothing: all is served as it was. An object that cannot be read keeps
//!          its last good version; what the credentials do not allow is told once, with the rule that is missing.
//! Rejected: kube's reflector store, which keeps whole objects; a metadata watch of Secrets with a GET for each change,
//!          which makes a rotation wait for one more answer.

mod custom;
#[cfg(test)]
mod fake;
mod scope;
mod sparse;
#[cfg(test)]
mod tests;
mod watch;
mod watch_health;

pub use scope::Options;
pub use watch_health::WatchHealth;

use super::{Batch, Problem, ProblemKind, ProblemPlace, Source};
use kube::Client;
use oxigress_objects::{Key, Kind, ObjectRef, References, Seen};
use scope::Subject;
use sparse::Sparse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use watch::{Failure, WatchEvent, WatchTask, WatchUpdate, WatchedObject};

/// How many updates of the watches may wait while a batch is taken.
const WAITING: usize = 1_024;

/// The objects of an API server.
pub struct Kubernetes {
    client: Client,
    watches: Vec<Watch>,
    watch_health: Arc<WatchHealth>,
    sender: mpsc::Sender<WatchUpdate>,
    updates: mpsc::Receiver<WatchUpdate>,
    tasks: JoinSet<()>,
    sparse: Sparse,
    /// Objects that cannot be read, and what was said of them.
    broken: BTreeMap<ObjectRef, String>,
    hides_classes: bool,
    outage: Option<Instant>,
    started: Instant,
    has_all: bool,
    batch: Batch,
    /// What the last batch said of it.
    was_incomplete: bool,
    was_hiding: bool,
    /// What is served depends on labels of namespaces, whether there are Gateways or not.
    needs_namespaces: bool,
}

/// What is known of one subject.
struct Watch {
    subject: Subject,
    is_started: bool,
    /// Whether a first list of the subject is complete.
    is_listed: bool,
    is_refused: bool,
    /// Its objects in the world.
    keys: BTreeSet<Key>,
    /// Those of the list that is coming.
    listing: Option<BTreeSet<Key>>,
}

impl Kubernetes {
    /// Begins to watch. Of Secrets and ConfigMaps those are kept that `references` has.
    pub fn watch(client: Client, options: &Options, references: Box<dyn References>) -> Self {
        let subjects = Subject::all(options);
        let watch_health = WatchHealth::new(subjects.len());
        let (sender, updates) = mpsc::channel(WAITING);
        let watch = |subject| Watch {
            subject,
            is_started: false,
            is_listed: false,
            is_refused: false,
            keys: BTreeSet::new(),
            listing: None,
        };
        let mut source = Kubernetes {
            sparse: Sparse::new(client.clone(), references, sender.clone()),
            client,
            watches: subjects.into_iter().map(watch).collect(),
            watch_health,
            sender,
            updates,
            tasks: JoinSet::new(),
            broken: BTreeMap::new(),
            hides_classes: false,
            outage: None,
            started: Instant::now(),
            has_all: false,
            batch: Batch::default(),
            was_incomplete: false,
            was_hiding: false,
            needs_namespaces: options.watches_namespaces,
        };
        let needs_namespaces = source.needs_namespaces;
        source.start(|subject| {
            !subject.is_sparse() && (needs_namespaces || subject.kind != Kind::Namespace)
        });
        source.report_watches_not_started();
        source
    }

    /// Knows whether the server is heard.
    pub fn watch_health(&self) -> Arc<WatchHealth> {
        self.watch_health.clone()
    }

    /// Tells the watch health of subjects that are not watched, so that they do not count as an outage.
    fn report_watches_not_started(&self) {
        for (number, watch) in self.watches.iter().enumerate() {
            if !watch.is_started && !watch.subject.is_sparse() {
                self.watch_health.refuse(number);
            }
        }
    }

    fn start(&mut self, which: impl Fn(&Subject) -> bool) {
        for (number, watch) in self.watches.iter_mut().enumerate() {
            if which(&watch.subject) && !std::mem::replace(&mut watch.is_started, true) {
                let task = WatchTask {
                    number,
                    subject: watch.subject.clone(),
                    client: self.client.clone(),
                    watch_health: self.watch_health.clone(),
                    updates: self.sender.clone(),
                };
                self.tasks.spawn(task.run());
            }
        }
    }

    fn handle_update(&mut self, WatchUpdate { subject, event }: WatchUpdate) {
        match event {
            WatchEvent::ListBegan => {
                if let Some(watch) = self.watches.get_mut(subject) {
                    watch.listing = Some(BTreeSet::new());
                }
                self.sparse.list_began(subject);
            }
            WatchEvent::Object(found) => self.observe_object(subject, *found),
            WatchEvent::Deleted(id) => self.delete_object(subject, id),
            WatchEvent::ListEnded => self.end_list(subject),
            WatchEvent::Failed(failure, why) => self.watch_failed(subject, failure, &why),
            WatchEvent::Answer(id, number, found) => {
                if !self.sparse.is_answer_to(&id, number) {
                    return;
                }
                match found {
                    Some(found) => {
                        self.sparse.fetched(&id, subject, found.version);
                        self.read_object(subject, *found);
                    }
                    None => self.remove_object(subject, id),
                }
            }
        }
        self.sparse.release_ready(&mut self.batch.seen);
        for id in self.sparse.take_unwanted() {
            let watch = self.watches.iter_mut().find(|watch| watch.subject.covers(&id));
            if watch.is_some_and(|watch| watch.keys.remove(&id.key)) {
                self.batch.seen.push((id.clone(), None));
            }
            self.broken.remove(&id);
        }
    }

    fn observe_object(&mut self, subject: usize, found: WatchedObject) {
        let Some(watch) = self.watches.get_mut(subject) else { return };
        if let Some(listing) = &mut watch.listing {
            listing.insert(found.id.key.clone());
        }
        let is_kept = || watch.keys.contains(&found.id.key) || self.sparse.wants(&found.id);
        if watch.subject.is_sparse()
            && (!is_kept() || self.sparse.is_older(&found.id, found.version))
        {
            return;
        }
        self.sparse.cancel_get(&found.id);
        self.read_object(subject, found);
    }

    fn read_object(&mut self, subject: usize, found: WatchedObject) {
        let WatchedObject { id, content, published, status, .. } = found;
        if let Some(status) = status {
            self.batch.statuses.push((id.clone(), Some(status)));
        }
        if let Some(published) = published {
            self.batch.published.push((id.key.clone(), Some(published)));
        }
        let Some(watch) = self.watches.get_mut(subject) else { return };
        match content.read() {
            Ok(object) => {
                watch.keys.insert(id.key.clone());
                if self.broken.remove(&id).is_some() {
                    self.batch.mended.push(format!("{id}: can be read again"));
                }
                let is_of_list = !watch.is_listed;
                self.add_seen((id, Some(object)), is_of_list);
            }
            Err(error) => {
                let until = super::until_mended(watch.keys.contains(&id.key));
                let message = format!("{error}; {until}");
                if self.broken.insert(id.clone(), message.clone()).as_ref() != Some(&message) {
                    let place = ProblemPlace::Object(id);
                    self.batch.problems.push(Problem {
                        place,
                        message,
                        kind: ProblemKind::Unusable,
                    });
                }
            }
        }
    }

    fn delete_object(&mut self, subject: usize, id: ObjectRef) {
        self.sparse.forget(&id);
        self.remove_object(subject, id);
    }

    fn remove_object(&mut self, subject: usize, id: ObjectRef) {
        if self.broken.remove(&id).is_some() {
            self.batch.mended.push(format!("{id}: deleted; its last version could not be read"));
        }
        if id.kind == Kind::Ingress {
            self.batch.published.push((id.key.clone(), None));
        }
        if id.kind.is_of_gateway_api() {
            self.batch.statuses.push((id.clone(), None));
        }
        let Some(watch) = self.watches.get_mut(subject) else { return };
        if watch.keys.remove(&id.key) {
            let is_of_list = !watch.is_listed;
            self.add_seen((id, None), is_of_list);
        }
    }

    /// Removes what a list lacks.
    fn end_list(&mut self, subject: usize) {
        let Some(watch) = self.watches.get_mut(subject) else { return };
        (watch.is_listed, watch.is_refused) = (true, false);
        let listing = watch.listing.take().unwrap_or_default();
        let (kind, covers) = (watch.subject.kind, watch.subject.clone());
        let broken = self.broken.keys().filter(|id| covers.covers(id)).map(|id| &id.key);
        let gone = watch.keys.iter().chain(broken).filter(|key| !listing.contains(*key));
        let gone: BTreeSet<_> = gone.cloned().collect();
        for key in gone {
            let id = ObjectRef::new(kind, key);
            // A GET that was answered while the list came may know better.
            if !self.sparse.asks_again(&id, subject) {
                self.remove_object(subject, id);
            }
        }
        if kind == Kind::IngressClass {
            self.hide_classes(false);
        }
        if kind == Kind::Gateway {
            // Their listeners may select namespaces by label.
            self.start(|subject| subject.kind == Kind::Namespace);
        }
        self.start_sparse_watches();
    }

    fn watch_failed(&mut self, subject: usize, failure: Failure, why: &str) {
        let Some(watch) = self.watches.get_mut(subject) else { return };
        let why = oxigress_core::text::line::one_line(why);
        match failure {
            Failure::Refused => {
                if !std::mem::replace(&mut watch.is_refused, true) {
                    let subject = &watch.subject;
                    if subject.kind.is_of_gateway_api() {
                        let what_follows = match subject.kind {
                            Kind::Policy => "rules of routes that name a Policy answer 500",
                            Kind::ClusterTrustBundle => {
                                "what names a ClusterTrustBundle for authorities is closed"
                            }
                            _ => "nothing of the Gateway API is served",
                        };
                        tracing::info!(
                            "{subject}: the API server refuses to list or watch it ({why}), so {what_follows}: {}; trying again",
                            subject.rule()
                        );
                        return self.start_sparse_watches();
                    }
                    tracing::error!(
                        "{subject}: the API server refuses to list or watch it ({why}): {}; trying again",
                        subject.rule()
                    );
                }
                if watch.subject.kind == Kind::IngressClass && !watch.is_listed {
                    self.hide_classes(true);
                }
                self.start_sparse_watches();
            }
            Failure::Unknown => {
                watch.is_refused = true;
                self.start_sparse_watches();
            }
            Failure::TooOld => {
                tracing::info!("{}: the resourceVersion has expired; listing again", watch.subject)
            }
            Failure::Broken => {
                // It may be back before this is read.
                if self.outage.is_none() && self.watch_health.has_lost() {
                    tracing::warn!(
                        "{}: the API server does not answer ({why}); the last configuration stays live; reconnecting",
                        watch.subject
                    );
                    self.outage = Some(Instant::now());
                }
            }
        }
    }

    fn hide_classes(&mut self, hides: bool) {
        if std::mem::replace(&mut self.hides_classes, hides) != hides {
            self.sparse.hide_classes(hides, &watch_of(&self.watches));
            if hides {
                tracing::warn!(
                    "IngressClasses cannot be read: only Ingresses whose spec.ingressClassName equals --ingress-class are served"
                );
            }
        }
    }

    /// Secrets are listed when it is known which ones are wanted.
    fn start_sparse_watches(&mut self) {
        if !self.has_all && self.are_listed(|subject| !subject.is_sparse()) {
            self.sparse.start();
            self.start(Subject::is_sparse);
        }
    }

    fn are_listed(&self, which: impl Fn(&Subject) -> bool) -> bool {
        let mut watches = self.watches.iter().filter(|watch| which(&watch.subject));
        let is_done = |watch: &Watch| {
            let is_unwanted = !watch.is_started && watch.subject.kind == Kind::Namespace;
            watch.is_listed || is_unwanted || watch.is_refused && watch.subject.is_dispensable()
        };
        watches.all(is_done)
    }

    fn add_seen(&mut self, seen: Seen, is_of_list: bool) {
        let seen = self.sparse.hold_back(seen, is_of_list, &watch_of(&self.watches));
        self.batch.seen.extend(seen);
    }

    fn end_outage(&mut self, answered: Option<Instant>) {
        let Some(began) = self.outage.take() else { return };
        tracing::info!(
            "the API server is back after {:.1} s; synchronised {:.2} s after its first answer",
            began.elapsed().as_secs_f64(),
            answered.map_or(0.0, |at| at.elapsed().as_secs_f64())
        );
    }

    /// Something that cannot be read, and never could be.
    fn is_incomplete(&self) -> bool {
        let is_known = |id: &ObjectRef| {
            let mut watches = self.watches.iter().filter(|watch| watch.subject.covers(id));
            watches.any(|watch| watch.keys.contains(&id.key))
        };
        let is_hidden = |watch: &Watch| {
            self.needs_namespaces && watch.subject.kind == Kind::Namespace && !watch.is_listed
        };
        self.broken.keys().any(|id| !is_known(id)) || self.watches.iter().any(is_hidden)
    }

    fn take_batch(&mut self) -> Option<Batch> {
        let is_first = !self.has_all;
        if is_first {
            if !self.are_listed(|_| true) || self.sparse.is_waiting_for_lists() {
                return None;
            }
            self.has_all = true;
            self.sparse.end_first_lists();
            tracing::info!("listed everything in {:.2} s", self.started.elapsed().as_secs_f64());
        }
        let is_incomplete = self.is_incomplete();
        let was_incomplete = std::mem::replace(&mut self.was_incomplete, is_incomplete);
        let hides_classes = self.hides_classes;
        let was_hiding = std::mem::replace(&mut self.was_hiding, hides_classes);
        let batch = std::mem::take(&mut self.batch);
        let is_news = !batch.seen.is_empty()
            || !batch.problems.is_empty()
            || !batch.mended.is_empty()
            || !batch.published.is_empty()
            || !batch.statuses.is_empty()
            || was_hiding != hides_classes
            || was_incomplete != is_incomplete;
        (is_first || is_news).then_some(Batch { is_incomplete, hides_classes, ..batch })
    }
}

/// Finds the watch that covers an object, by its index, and whether the object is in the world.
fn watch_of(watches: &[Watch]) -> impl Fn(&ObjectRef) -> Option<(usize, bool)> {
    |id| {
        let mut numbered = watches.iter().enumerate();
        let (number, watch) = numbered.find(|(_, watch)| watch.subject.covers(id))?;
        Some((number, watch.keys.contains(&id.key)))
    }
}

impl Source for Kubernetes {
    async fn next(&mut self) -> Batch {
        loop {
            tokio::select! {
                biased;
                answered = self.watch_health.whole_again() => self.end_outage(answered),
                // There is always a sender: our own.
                Some(update) = self.updates.recv() => {
                    self.handle_update(update);
                    // A watch that never stops sending must not hold back the batch.
                    for _ in 0..WAITING {
                        let Ok(update) = self.updates.try_recv() else { break };
                        self.handle_update(update);
                    }
                }
            }
            if let Some(batch) = self.take_batch() {
                return batch;
            }
        }
    }
}
