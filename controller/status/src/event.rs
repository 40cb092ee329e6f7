//! Verdicts and changes as Events of the objects they are about.
//!
//! Shape:   [`EventQueue`] decides what is said, and when; `written` is the Event itself, and asks the API server.
//! Limits:  what a verdict says is one Event, whichever replica says it and however often it begins to lead: the Event's name
//!          is a digest of what it says. Said again, it is counted. An object and all objects together may say so much
//!          at once and so much a minute; what has to wait is the latest word about an object, nothing older. Namespaces that
//!          wait take turns, so that one with a thousand mistakes does not keep the others from hearing of theirs.
//! Source:  ingress-nginx's controller; client-go's EventSourceObjectSpamFilter.
//! Rejected: kube's Recorder. It folds by reason, not by text: who mends one mistake and makes another would be told of the
//!          first one. It cannot know what another replica said. And it writes to events.k8s.io, for which an
//!          ingress-nginx installation grants no right.

mod waiting;
mod written;

pub use written::{event, outcome, report, uid};

use oxigress_core::text::line::one_line;
use oxigress_objects::bucket::{Bucket, Rate};
use oxigress_objects::verdict::acceptance::Acceptance;
use oxigress_objects::verdict::{ONE_TOLD, Severity, TOLD_OF_OBJECT, Verdict};
use oxigress_objects::{Key, Kind, ObjectRef};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::Instant;
use waiting::Waiting;

/// The longest message that the API server takes.
const MAX_BYTES: usize = 1_024;
/// Texts of one object that are known to have been said.
const MAX_SAID: usize = 8;
/// Between tries while the API server does not answer.
const UNREACHABLE: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(30)];

/// What all objects together may say.
const OF_ALL: Rate = Rate { full: 100 * ONE_TOLD, period: Duration::from_secs(10) };

/// An Event that is to be written.
#[derive(Clone, Debug, PartialEq)]
pub struct Draft {
    /// The object that the Event is about.
    pub object: ObjectRef,
    /// Which one of that name; empty: to be asked for.
    pub uid: String,
    /// Whether the Event is a warning; else it is normal.
    pub is_warning: bool,
    /// The reason in one word, as Kubernetes writes it.
    pub reason: &'static str,
    /// In a line, at most 1 KiB.
    pub message: String,
    /// So often it was said before, as far as is known.
    pub count: u32,
}

/// What became of an Event that was to be written.
#[derive(Debug)]
pub enum EventOutcome {
    /// The Event is written.
    Said,
    /// The object is gone, or the API server refuses.
    Refused(Option<String>),
    /// The API server does not answer; the text says why.
    Unreachable(String),
}

/// An object that has or had something to say.
struct Subject {
    verdict: Option<Verdict>,
    /// Its change is still to be told, under this reason.
    change: Option<&'static str>,
    /// What was said of which uid, oldest first, and how often.
    said: Vec<(String, u32)>,
    /// What of the verdict is still to be said.
    unsaid: Vec<(&'static str, String)>,
    bucket: Bucket,
}

impl Subject {
    fn is_waiting(&self) -> bool {
        self.change.is_some() || !self.unsaid.is_empty()
    }
}

/// Decides which Events are written.
pub struct EventQueue {
    is_on: bool,
    subjects: BTreeMap<ObjectRef, Subject>,
    waiting: Waiting,
    served: BTreeSet<Key>,
    all: Bucket,
    is_leader: bool,
    unreachable: Option<(Instant, u32)>,
}

impl EventQueue {
    /// Knows nothing. `is_on`: not --disable-sync-events.
    pub fn new(is_on: bool, now: Instant) -> Self {
        EventQueue {
            is_on,
            subjects: BTreeMap::new(),
            waiting: Waiting::default(),
            served: BTreeSet::new(),
            all: Bucket::full(OF_ALL, now.into_std()),
            is_leader: false,
            unreachable: None,
        }
    }

    /// From now on somebody else speaks, or we do: then also of what was decided before.
    pub fn lead(&mut self, is_leader: bool) {
        if !self.is_on || self.is_leader == is_leader {
            return;
        }
        self.is_leader = is_leader;
        self.waiting = Waiting::default();
        for (object, subject) in &mut self.subjects {
            subject.change = None;
            subject.unsaid = if is_leader { texts(subject.verdict.as_ref()) } else { Vec::new() };
            // What we said before still stands.
            subject.unsaid.retain(|(reason, text)| {
                !subject.said.iter().any(|(said, _)| *said == key_of(reason, text))
            });
            if subject.is_waiting() {
                self.waiting.insert(object.clone());
            }
        }
    }

    /// What an Ingress is to this controller: of others' there is nothing to say.
    pub fn set_acceptance(&mut self, key: Key, acceptance: Option<Acceptance>) {
        match acceptance {
            Some(_) => drop(self.served.insert(key)),
            None => {
                self.served.remove(&key);
                let object = ObjectRef::new(Kind::Ingress, key);
                self.subjects.remove(&object);
                self.waiting.remove(&object);
            }
        }
    }

    /// It was made anew under its old name: nothing was said of this one.
    pub fn forget(&mut self, object: &ObjectRef) {
        if let Some(subject) = self.subjects.get_mut(object) {
            subject.said.clear();
        }
    }

    /// What was decided about an object.
    pub fn set_verdict(&mut self, object: ObjectRef, verdict: Option<Verdict>, now: Instant) {
        let is_ours = object.kind != Kind::Ingress || self.served.contains(&object.key);
        if !self.is_on || object.key.namespace.is_empty() || !is_ours {
            return;
        }
        if verdict.is_none() && !self.subjects.contains_key(&object) {
            return;
        }
        let (is_leader, subject) = (self.is_leader, self.subject(&object, now));
        let before = texts(subject.verdict.as_ref());
        subject.verdict = verdict;
        let new = texts(subject.verdict.as_ref());
        if is_leader {
            // Half of a verdict that stays as it was is not said again.
            let unsaid = new.into_iter();
            let unsaid =
                unsaid.filter(|text| !before.contains(text) || subject.unsaid.contains(text));
            subject.unsaid = unsaid.collect();
        }
        self.queue(object);
    }

    /// An object of ours came or changed, and is taken up.
    pub fn change(&mut self, object: ObjectRef, reason: &'static str, now: Instant) {
        let is_ours = object.kind != Kind::Ingress || self.served.contains(&object.key);
        if self.is_on && self.is_leader && is_ours {
            self.subject(&object, now).change = Some(reason);
            self.queue(object);
        }
    }

    fn subject(&mut self, object: &ObjectRef, now: Instant) -> &mut Subject {
        self.subjects.entry(object.clone()).or_insert_with(|| Subject {
            verdict: None,
            change: None,
            said: Vec::new(),
            unsaid: Vec::new(),
            bucket: Bucket::full(TOLD_OF_OBJECT, now.into_std()),
        })
    }

    fn queue(&mut self, object: ObjectRef) {
        match self.subjects.get(&object).is_some_and(Subject::is_waiting) {
            true => self.waiting.insert(object),
            false => self.waiting.remove(&object),
        }
    }

    /// The next Event, or when there may be one. `uid_of` knows the uids of Ingresses.
    pub fn next(
        &mut self,
        now: Instant,
        uid_of: impl Fn(&Key) -> Option<String>,
    ) -> Result<Draft, Option<Instant>> {
        if self.waiting.is_empty() {
            return Err(None);
        }
        let unreachable = self.unreachable.map(|(until, _)| until);
        let free_at =
            unreachable.into_iter().chain([now + self.all.wait(ONE_TOLD, now.into_std())]).max();
        if let Some(free_at) = free_at.filter(|at| *at > now) {
            return Err(Some(free_at));
        }
        let mut earliest = None;
        let mut found = None;
        for object in self.waiting.in_turn() {
            let Some(subject) = self.subjects.get(object) else { continue };
            let uid = match object.kind {
                // The watch has not told of it yet: it will.
                Kind::Ingress => match uid_of(&object.key) {
                    Some(uid) => uid,
                    None => continue,
                },
                _ => String::new(),
            };
            let at = now + subject.bucket.wait(ONE_TOLD, now.into_std());
            if at <= now {
                found = Some((object.clone(), uid));
                break;
            }
            earliest = Some(earliest.map_or(at, |earliest: Instant| earliest.min(at)));
        }
        let Some((object, uid)) = found else { return Err(earliest) };
        let draft = self.draft(object, uid).ok_or(None)?;
        self.all.draw(ONE_TOLD, now.into_std());
        if let Some(subject) = self.subjects.get_mut(&draft.object) {
            subject.bucket.draw(ONE_TOLD, now.into_std());
        }
        self.waiting.has_spoken(&draft.object);
        Ok(draft)
    }

    /// Takes what is most important to say off the list.
    fn draft(&mut self, object: ObjectRef, uid: String) -> Option<Draft> {
        let subject = self.subjects.get_mut(&object)?;
        let (is_warning, reason, message) = match subject.unsaid.is_empty() {
            false => {
                let (reason, text) = subject.unsaid.remove(0);
                (true, reason, text)
            }
            true => {
                let reason = subject.change.take()?;
                let message = match object.kind {
                    Kind::Ingress => "Scheduled for sync".to_owned(),
                    kind => format!("{kind} {}", object.key),
                };
                (false, reason, message)
            }
        };
        let key = key_of(reason, &message);
        let count = subject.said.iter().find(|(said, _)| *said == key).map_or(0, |(_, n)| *n);
        self.queue(object.clone());
        Some(Draft { object, uid, is_warning, reason, message, count })
    }

    /// What became of a draft.
    pub fn apply(&mut self, draft: Draft, outcome: &EventOutcome, now: Instant) {
        match outcome {
            EventOutcome::Said | EventOutcome::Refused(_) => self.unreachable = None,
            EventOutcome::Unreachable(_) => {
                let failures = self.unreachable.map_or(0, |(_, failures)| failures + 1).min(10);
                let [shortest, longest] = UNREACHABLE;
                let pause = shortest.saturating_mul(1 << failures).min(longest);
                self.unreachable = Some((now + pause, failures));
            }
        }
        let is_leader = self.is_leader;
        let Some(subject) = self.subjects.get_mut(&draft.object) else { return };
        let key = key_of(draft.reason, &draft.message);
        match outcome {
            EventOutcome::Unreachable(_) if is_leader => {
                let text = (draft.reason, draft.message);
                // Meanwhile something else may have been decided.
                if !draft.is_warning {
                    subject.change.get_or_insert(draft.reason);
                } else if texts(subject.verdict.as_ref()).contains(&text) {
                    subject.unsaid.retain(|unsaid| *unsaid != text);
                    subject.unsaid.insert(0, text);
                }
            }
            EventOutcome::Unreachable(_) | EventOutcome::Refused(_) => {}
            EventOutcome::Said => {
                subject.said.retain(|(said, _)| *said != key);
                subject.said.push((key, draft.count.saturating_add(1)));
                if subject.said.len() > MAX_SAID {
                    subject.said.remove(0);
                }
            }
        }
        self.queue(draft.object);
        self.prune(now);
    }

    /// Who has nothing to say and may say as much as anybody need not be known.
    fn prune(&mut self, now: Instant) {
        if self.subjects.len() > 2 * self.waiting.count + 1_000 {
            self.subjects.retain(|_, subject| {
                let is_quiet = subject.verdict.is_none() && !subject.is_waiting();
                !is_quiet || !subject.bucket.is_full(now.into_std())
            });
        }
    }
}

fn key_of(reason: &str, message: &str) -> String {
    format!("{reason}\0{message}")
}

/// What an author has to know of a verdict: what concerns annotations has a reason of its own.
fn texts(verdict: Option<&Verdict>) -> Vec<(&'static str, String)> {
    let Some(verdict) = verdict.filter(|verdict| verdict.severity != Severity::Note) else {
        return Vec::new();
    };
    let of_others =
        if verdict.severity == Severity::Rejected { "Rejected" } else { "NotAsWritten" };
    let is_annotation = |message: &&String| message.starts_with("annotation ");
    let (annotations, others): (Vec<_>, Vec<_>) = verdict.messages.iter().partition(is_annotation);
    let join = |messages: Vec<&String>| {
        let messages: Vec<_> = messages.into_iter().map(|message| one_line(message)).collect();
        cut(messages.join("; "))
    };
    [(of_others, join(others)), ("AnnotationParsingFailed", join(annotations))]
        .into_iter()
        .filter(|(_, text)| !text.is_empty())
        .collect()
}

fn cut(mut text: String) -> String {
    if text.len() > MAX_BYTES {
        let end = MAX_BYTES - '…'.len_utf8();
        text.truncate(text.floor_char_boundary(end));
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests;
