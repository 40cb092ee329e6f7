//! Which Secrets and ConfigMaps are kept, and how one comes that was not: only what something is served from is.
//!
//! Shape:   [`References`] decides. An Ingress (a class, the operator's ConfigMap) that wants a Secret which is not
//!          there waits until a GET is answered: a host never shows the default certificate because of us. An event of the
//!          watch wins over the answer to a GET, which may be older.
//! Shares:  the namespaces of what is asked for have turns. A GET whose answer nothing refers to any more is given up, whoever
//!          else waits, so no object waits for another one's references.

#[cfg(test)]
mod tests;

use super::watch::{self, WatchEvent, WatchUpdate, WatchedObject};
use k8s_openapi::api::core::v1 as core;
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Resource};
use oxigress_core::text::line::with_causes;
use oxigress_net::pause::{LONGEST, SHORTEST, jitter};
use oxigress_net::places::Places;
use oxigress_objects::service::external_name::MAX_NAME_BYTES;
use oxigress_objects::{Kind, Name, Object, ObjectRef, References, Seen};
use std::collections::{BTreeMap, BTreeSet};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

/// The most GETs at a time: of all namespaces, and of one.
const AT_ONCE: (usize, usize) = (16, 4);

/// Which Secrets and ConfigMaps are kept, which are being fetched, and which objects wait for them.
pub struct Sparse {
    client: Client,
    references: Box<dyn References>,
    sender: mpsc::Sender<WatchUpdate>,
    places: Places<Name>,
    /// Before that, a list brings everything.
    is_started: bool,
    /// All first lists are complete.
    is_listed: bool,
    questions: BTreeMap<ObjectRef, Question>,
    /// How many of these were asked for an object of a first list.
    of_lists: usize,
    asked: u64,
    waiting: BTreeMap<ObjectRef, WaitingObject>,
    /// Those of the waiting objects that wait for nothing any more.
    ready: BTreeSet<ObjectRef>,
    /// What may no longer be wanted, and something in the world may be served from it.
    doubtful: BTreeSet<ObjectRef>,
    /// What is no longer wanted, and nothing in the world is served from it.
    unwanted: BTreeSet<ObjectRef>,
    /// Versions of objects that a GET brought.
    fetched: BTreeMap<ObjectRef, u64>,
    /// Those that came while their list did, by watch.
    fetched_meanwhile: BTreeSet<(usize, ObjectRef)>,
}

/// A GET that is under way or waits for its turn.
struct Question {
    number: u64,
    task: AbortHandle,
    is_of_list: bool,
    /// The objects that wait for the answer.
    waiting: BTreeSet<ObjectRef>,
}

impl Question {
    /// Notes that an object of a first list needs the answer, if it is of one; answers 1 if that is new.
    fn count_for_list(&mut self, is_of_list: bool) -> usize {
        usize::from(is_of_list && !std::mem::replace(&mut self.is_of_list, true))
    }
}

struct WaitingObject {
    object: Option<Object>,
    /// Questions that are still open.
    waits_for: BTreeSet<ObjectRef>,
}

impl Sparse {
    /// Nothing is known and nothing is asked.
    pub fn new(
        client: Client,
        references: Box<dyn References>,
        sender: mpsc::Sender<WatchUpdate>,
    ) -> Self {
        let (all, of_namespace) = AT_ONCE;
        Sparse {
            client,
            references,
            sender,
            places: Places::new(all, of_namespace),
            is_started: false,
            is_listed: false,
            questions: BTreeMap::new(),
            of_lists: 0,
            asked: 0,
            waiting: BTreeMap::new(),
            ready: BTreeSet::new(),
            doubtful: BTreeSet::new(),
            unwanted: BTreeSet::new(),
            fetched: BTreeMap::new(),
            fetched_meanwhile: BTreeSet::new(),
        }
    }

    /// From here on, a referenced object that is missing is fetched by a GET.
    pub fn start(&mut self) {
        self.is_started = true;
    }

    /// From here on, the first lists are complete: no list brings what is in doubt.
    pub fn end_first_lists(&mut self) {
        self.is_listed = true;
    }

    /// Whether an object is kept: something refers to it, or what is in the world did and waits to be replaced.
    pub fn wants(&self, id: &ObjectRef) -> bool {
        self.references.has(id) || self.doubtful.contains(id)
    }

    /// Whether a GET is under way for an object of a first list. What was edited since then is not waited for: somebody may edit
    /// without end.
    pub fn is_waiting_for_lists(&self) -> bool {
        self.of_lists > 0
    }

    /// What a GET brought is newer than this.
    pub fn is_older(&self, id: &ObjectRef, version: u64) -> bool {
        self.fetched.get(id).is_some_and(|fetched| version < *fetched)
    }

    /// Gives up the GET of an object, since its watch has seen it meanwhile.
    pub fn cancel_get(&mut self, id: &ObjectRef) {
        self.fetched.remove(id);
        self.close(id);
    }

    /// Forgets an object that was deleted.
    pub fn forget(&mut self, id: &ObjectRef) {
        self.cancel_get(id);
        self.doubtful.remove(id);
    }

    /// Whether this answers the GET that is under way for the object; it is over then.
    pub fn is_answer_to(&mut self, id: &ObjectRef, number: u64) -> bool {
        let is_open = self.questions.get(id).is_some_and(|question| question.number == number);
        if is_open {
            self.close(id);
        }
        is_open
    }

    /// Ends a question: who waited for it waits for one less.
    fn close(&mut self, id: &ObjectRef) {
        let Some(question) = self.questions.remove(id) else { return };
        question.task.abort();
        self.of_lists -= usize::from(question.is_of_list);
        self.end_waiting(id, question.waiting);
    }

    /// Has nobody wait for the answer to a question any more, but asks on.
    fn let_go(&mut self, id: &ObjectRef) {
        let Some(question) = self.questions.get_mut(id) else { return };
        self.of_lists -= usize::from(std::mem::take(&mut question.is_of_list));
        let waiting = std::mem::take(&mut question.waiting);
        self.end_waiting(id, waiting);
    }

    fn end_waiting(&mut self, id: &ObjectRef, objects: BTreeSet<ObjectRef>) {
        for object in objects {
            let Some(waiting) = self.waiting.get_mut(&object) else { continue };
            waiting.waits_for.remove(id);
            if waiting.waits_for.is_empty() {
                self.ready.insert(object);
            }
        }
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
            self.ask(id, subject, true);
        }
        asks || self.questions.contains_key(id)
    }

    /// What may go on at once of an object that is as it says, and that came by a first list or later. `watch_of` knows the watch
    /// of an object, and whether it is in the world.
    pub fn hold_back(
        &mut self,
        (id, object): Seen,
        is_of_list: bool,
        watch_of: &impl Fn(&ObjectRef) -> Option<(usize, bool)>,
    ) -> Option<Seen> {
        if !self.references.depends_on(&id) {
            return Some((id, object));
        }
        let before = self.stop_waiting(&id);
        let (different, own) = self.references.apply((id.clone(), object.clone()));
        self.get_missing(&different, is_of_list, watch_of);
        // What it brought about before, a class its Ingresses' references, is not different now.
        let still = before.into_iter().filter(|_| object.is_some() && !names_all(id.kind));
        let mut waits_for: BTreeSet<_> = own.into_iter().chain(still).collect();
        waits_for.retain(|wanted| {
            let Some(question) = self.questions.get_mut(wanted) else { return false };
            self.of_lists += question.count_for_list(is_of_list);
            question.waiting.insert(id.clone())
        });
        if waits_for.is_empty() {
            return Some((id, object));
        }
        self.waiting.insert(id, WaitingObject { object, waits_for });
        None
    }

    /// Forgets that an object waits; answers for which open questions.
    fn stop_waiting(&mut self, id: &ObjectRef) -> BTreeSet<ObjectRef> {
        self.ready.remove(id);
        let Some(waiting) = self.waiting.remove(id) else { return BTreeSet::new() };
        for wanted in &waiting.waits_for {
            if let Some(question) = self.questions.get_mut(wanted) {
                question.waiting.remove(id);
            }
        }
        waiting.waits_for
    }

    /// Takes over whether IngressClasses can be seen.
    pub fn hide_classes(
        &mut self,
        hides: bool,
        watch_of: &impl Fn(&ObjectRef) -> Option<(usize, bool)>,
    ) {
        let different = self.references.hide_classes(hides);
        self.get_missing(&different, true, watch_of);
    }

    fn get_missing(
        &mut self,
        different: &BTreeSet<ObjectRef>,
        is_of_list: bool,
        watch_of: &impl Fn(&ObjectRef) -> Option<(usize, bool)>,
    ) {
        for id in different {
            let watch = watch_of(id);
            if self.references.has(id) {
                if let (true, Some((subject, false))) = (self.is_started, watch) {
                    self.ask(id, subject, is_of_list);
                }
                continue;
            }
            let is_there = watch.is_some_and(|(_, is_there)| is_there);
            // Of what is in the world a list lacked it. It may be referred to again while somebody waits, and no event would say
            // that it is gone.
            match is_there {
                true => self.let_go(id),
                false => self.close(id),
            }
            match !self.is_listed || is_there {
                true => self.doubtful.insert(id.clone()),
                false => self.unwanted.insert(id.clone()),
            };
        }
    }

    /// Moves the objects whose references have all been answered to `seen`.
    pub fn release_ready(&mut self, seen: &mut Vec<Seen>) {
        while let Some(id) = self.ready.pop_first() {
            if let Some(waiting) = self.waiting.remove(&id) {
                seen.push((id, waiting.object));
            }
        }
    }

    /// What nothing is served from any more. What is in the world stays while somebody waits, who may still be served from it.
    pub fn take_unwanted(&mut self) -> BTreeSet<ObjectRef> {
        let mut unwanted = std::mem::take(&mut self.unwanted);
        if self.waiting.is_empty() {
            unwanted.append(&mut self.doubtful);
        }
        unwanted.retain(|id| !self.references.has(id));
        for id in &unwanted {
            self.cancel_get(id);
        }
        unwanted
    }

    fn ask(&mut self, id: &ObjectRef, subject: usize, is_of_list: bool) {
        if let Some(question) = self.questions.get_mut(id) {
            self.of_lists += question.count_for_list(is_of_list);
            return;
        }
        if !is_name(&id.key.namespace) || !is_name(&id.key.name) {
            return;
        }
        self.asked = self.asked.wrapping_add(1);
        let get = ObjectGet {
            client: self.client.clone(),
            id: id.clone(),
            subject,
            number: self.asked,
            sender: self.sender.clone(),
            places: self.places.clone(),
        };
        let task = tokio::spawn(get.ask()).abort_handle();
        let (number, waiting) = (self.asked, BTreeSet::new());
        self.of_lists += usize::from(is_of_list);
        self.questions.insert(id.clone(), Question { number, task, is_of_list, waiting });
    }
}

/// Whether an object of the kind names all that it refers to; others decide about the references of those.
fn names_all(kind: Kind) -> bool {
    matches!(kind, Kind::Ingress | Kind::ListenerSet | Kind::BackendTLSPolicy | Kind::Policy)
}

/// Whether there can be an object of the name. Nothing else may stand in the path of a request, and the API server would not
/// answer it with what there is.
fn is_name(text: &str) -> bool {
    let is_plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-.".contains(&b);
    let is_end = |b: Option<&u8>| b.is_some_and(|b| *b != b'.' && *b != b'-');
    text.len() <= MAX_NAME_BYTES
        && text.bytes().all(is_plain)
        && is_end(text.as_bytes().first())
        && is_end(text.as_bytes().last())
}

impl Drop for Sparse {
    fn drop(&mut self) {
        self.questions.values().for_each(|question| question.task.abort());
    }
}

/// A request for one object.
struct ObjectGet {
    client: Client,
    id: ObjectRef,
    subject: usize,
    number: u64,
    sender: mpsc::Sender<WatchUpdate>,
    places: Places<Name>,
}

impl ObjectGet {
    async fn ask(self) {
        let mut failures = 0_u32;
        let found = loop {
            let place = self.places.take(self.id.key.namespace.clone()).await;
            // In a box, so that those that wait for their turn need little memory.
            let answer = match self.id.kind {
                Kind::Secret => Box::pin(self.get::<core::Secret>()).await,
                Kind::ConfigMap => Box::pin(self.get::<core::ConfigMap>()).await,
                _ => Ok(None),
            };
            drop(place);
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
