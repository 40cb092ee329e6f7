//! Which Secrets and ConfigMaps are kept, and how one comes that was not: only what something is served from is.
//!
//! Shape:   [`References`] decides. An Ingress (a class, the operator's ConfigMap) that wants a Secret which is not
//!          there waits until a GET is answered: a host never shows the default certificate because of us. An event of the
//!          watch wins over the answer to a GET, which may be older.

use super::watch::{self, WatchEvent, WatchUpdate, WatchedObject};
use k8s_openapi::api::core::v1 as core;
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Resource};
use oxigress_core::text::line::with_causes;
use oxigress_net::pause::{LONGEST, SHORTEST, jitter};
use oxigress_objects::{Kind, Object, ObjectRef, References, Seen};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::AbortHandle;

/// The most GETs at a time.
const AT_ONCE: usize = 16;

/// Which Secrets and ConfigMaps are kept, which are being fetched, and which objects wait for them.
pub struct Sparse {
    client: Client,
    references: Box<dyn References>,
    sender: mpsc::Sender<WatchUpdate>,
    slots: Arc<Semaphore>,
    /// Before that, a list brings everything.
    is_started: bool,
    questions: BTreeMap<ObjectRef, (u64, AbortHandle)>,
    asked: u64,
    waiting: BTreeMap<ObjectRef, WaitingObject>,
    /// What may no longer be wanted.
    doubtful: BTreeSet<ObjectRef>,
    /// Versions of objects that a GET brought.
    fetched: BTreeMap<ObjectRef, u64>,
    /// Those that came while their list did, by watch.
    fetched_meanwhile: BTreeSet<(usize, ObjectRef)>,
}

struct WaitingObject {
    object: Option<Object>,
    waits_for: BTreeSet<ObjectRef>,
}

impl Sparse {
    /// Nothing is known and nothing is asked.
    pub fn new(
        client: Client,
        references: Box<dyn References>,
        sender: mpsc::Sender<WatchUpdate>,
    ) -> Self {
        Sparse {
            client,
            references,
            sender,
            slots: Arc::new(Semaphore::new(AT_ONCE)),
            is_started: false,
            questions: BTreeMap::new(),
            asked: 0,
            waiting: BTreeMap::new(),
            doubtful: BTreeSet::new(),
            fetched: BTreeMap::new(),
            fetched_meanwhile: BTreeSet::new(),
        }
    }

    /// From here on, a referenced object that is missing is fetched by a GET.
    pub fn start(&mut self) {
        self.is_started = true;
    }

    /// Whether any object refers to this one, so that it is kept.
    pub fn wants(&self, id: &ObjectRef) -> bool {
        self.references.has(id)
    }

    /// Whether a GET is under way.
    pub fn is_waiting(&self) -> bool {
        !self.questions.is_empty()
    }

    /// What a GET brought is newer than this.
    pub fn is_older(&self, id: &ObjectRef, version: u64) -> bool {
        self.fetched.get(id).is_some_and(|fetched| version < *fetched)
    }

    /// Gives up the GET of an object, since its watch has seen it meanwhile.
    pub fn cancel_get(&mut self, id: &ObjectRef) {
        self.fetched.remove(id);
        if let Some((_, task)) = self.questions.remove(id) {
            task.abort();
        }
    }

    /// Whether this answers the GET that is under way for the object; it is over then.
    pub fn is_answer_to(&mut self, id: &ObjectRef, number: u64) -> bool {
        let is_open = self.questions.get(id).is_some_and(|(asked, _)| *asked == number);
        if is_open {
            self.questions.remove(id);
        }
        is_open
    }

    /// Remembers the version that a GET brought, so that an older one from the watch is passed over.
    pub fn fetched(&mut self, id: &ObjectRef, subject: usize, version: u64) {
        self.fetched.insert(id.clone(), version);
        self.fetched_meanwhile.insert((subject, id.clone()));
    }

    /// Begins to remember which objects a GET brings while the list of this watch comes.
    pub fn list_began(&mut self, subject: usize) {
        self.fetched_meanwhile.retain(|(watch, _)| *watch != subject);
    }

    /// Whether a GET decides if an object that the list lacks is gone.
    pub fn asks_again(&mut self, id: &ObjectRef, subject: usize) -> bool {
        let asks = self.fetched_meanwhile.remove(&(subject, id.clone()));
        if asks {
            self.ask(id, subject);
        }
        asks || self.questions.contains_key(id)
    }

    /// What may go on at once of an object that is as it says. `watch_of` knows the watch of an object, and whether it is in
    /// the world.
    pub fn hold_back(
        &mut self,
        (id, object): Seen,
        watch_of: &impl Fn(&ObjectRef) -> Option<(usize, bool)>,
    ) -> Option<Seen> {
        if !self.references.depends_on(&id) {
            return Some((id, object));
        }
        let (different, all) = self.references.apply((id.clone(), object.clone()));
        self.get_missing(different, watch_of);
        let waits_for: BTreeSet<_> =
            all.into_iter().filter(|wanted| self.questions.contains_key(wanted)).collect();
        if waits_for.is_empty() {
            self.waiting.remove(&id);
            return Some((id, object));
        }
        self.waiting.insert(id, WaitingObject { object, waits_for });
        None
    }

    /// Takes over whether IngressClasses can be seen.
    pub fn hide_classes(
        &mut self,
        hides: bool,
        watch_of: &impl Fn(&ObjectRef) -> Option<(usize, bool)>,
    ) {
        let different = self.references.hide_classes(hides);
        self.get_missing(different, watch_of);
    }

    fn get_missing(
        &mut self,
        different: BTreeSet<ObjectRef>,
        watch_of: &impl Fn(&ObjectRef) -> Option<(usize, bool)>,
    ) {
        for id in different {
            if !self.references.has(&id) {
                self.doubtful.insert(id);
            } else if self.is_started
                && let Some((subject, false)) = watch_of(&id)
            {
                self.ask(&id, subject);
            }
        }
    }

    /// Moves the objects whose references have all been answered to `seen`.
    pub fn release_ready(&mut self, seen: &mut Vec<Seen>) {
        if self.waiting.is_empty() {
            return;
        }
        let is_ready = |waiting: &WaitingObject| {
            !waiting.waits_for.iter().any(|id| self.questions.contains_key(id))
        };
        let ready =
            self.waiting.iter().filter(|(_, waiting)| is_ready(waiting)).map(|(id, _)| id.clone());
        for id in ready.collect::<Vec<_>>() {
            if let Some(waiting) = self.waiting.remove(&id) {
                seen.push((id, waiting.object));
            }
        }
    }

    /// What nothing is served from any more; not while somebody waits, who may still be served from it.
    pub fn take_unwanted(&mut self) -> Vec<ObjectRef> {
        if !self.waiting.is_empty() {
            return Vec::new();
        }
        let doubtful = std::mem::take(&mut self.doubtful);
        let unwanted: Vec<_> = doubtful.into_iter().filter(|id| !self.references.has(id)).collect();
        for id in &unwanted {
            self.cancel_get(id);
        }
        unwanted
    }

    fn ask(&mut self, id: &ObjectRef, subject: usize) {
        if self.questions.contains_key(id) {
            return;
        }
        self.asked = self.asked.wrapping_add(1);
        let question = ObjectGet {
            client: self.client.clone(),
            id: id.clone(),
            subject,
            number: self.asked,
            sender: self.sender.clone(),
            slots: self.slots.clone(),
        };
        let task = tokio::spawn(question.ask()).abort_handle();
        self.questions.insert(id.clone(), (self.asked, task));
    }
}

impl Drop for Sparse {
    fn drop(&mut self) {
        for (_, task) in self.questions.values() {
            task.abort();
        }
    }
}

/// A request for one object.
struct ObjectGet {
    client: Client,
    id: ObjectRef,
    subject: usize,
    number: u64,
    sender: mpsc::Sender<WatchUpdate>,
    slots: Arc<Semaphore>,
}

impl ObjectGet {
    async fn ask(self) {
        let mut failures = 0_u32;
        let found = loop {
            // It is never closed.
            let slot = self.slots.acquire().await;
            let answer = match self.id.kind {
                Kind::Secret => self.get::<core::Secret>().await,
                Kind::ConfigMap => self.get::<core::ConfigMap>().await,
                _ => Ok(None),
            };
            drop(slot);
            match answer {
                Ok(found) => break found,
                Err(kube::Error::Api(status)) if status.code == 403 => {
                    tracing::error!(
                        "{}: GET was denied (403), so it counts as missing; add the verb get for this resource \
                         to the role",
                        self.id
                    );
                    break None;
                }
                Err(error) => {
                    tracing::debug!("{}: {}: asking again", self.id, with_causes(&error));
                    let pause = SHORTEST.saturating_mul(1 << failures.min(10)).min(LONGEST);
                    tokio::time::sleep(pause.mul_f64(jitter())).await;
                    failures = failures.saturating_add(1);
                }
            }
        };
        let event = WatchEvent::Answer(self.id, self.number, found.map(Box::new));
        // Nobody is left to be told.
        let _ = self.sender.send(WatchUpdate { subject: self.subject, event }).await;
    }

    async fn get<K>(&self) -> kube::Result<Option<WatchedObject>>
    where
        K: watch::Watched + Resource<Scope = NamespaceResourceScope>,
    {
        let api: Api<K> = Api::namespaced(self.client.clone(), &self.id.key.namespace);
        let object = api.get_opt(&self.id.key.name).await?;
        // The API server gives every object a name.
        Ok(object.and_then(|object| watch::watched_object(object).ok()))
    }
}
