//! How much of the controller's time each namespace has for what its changes cost.
//!
//! Shape:   a change is charged to its namespace before the world takes it over. What a namespace cannot pay waits, the
//!          latest form of each object only, and is taken over in the order in which it came; others' changes go on.
//!          Removals and what costs nothing never wait.
//! Cost:    [`price::Prices`], asked about a change when it is its turn, so that those that wait cost nothing.
//! Units:   nanoseconds, told from the objects, so every replica decides alike. What a removal brings back into the budget
//!          of the stock ([`crate::patterns::budget`]) is not charged again: at most as much as was charged for what is
//!          removed.
//! Exempt:  what is there at the start, which the caller does not ask about, and the operator's objects.

pub mod price;
#[cfg(test)]
mod tests;

use crate::patterns::budget;
use oxigress_objects::bucket::{Bucket, Rate};
use oxigress_objects::{Name, Object, ObjectRef, Seen};
use price::Prices;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// What the changes of a namespace may cost: all that it may serve, once a minute.
pub const OF_NAMESPACE: Rate = Rate { full: budget::OF_NAMESPACE, period: Duration::from_mins(1) };
/// Namespaces that are counted before those are forgotten that may ask for everything.
const MANY_NAMESPACES: usize = 1_000;

/// The changes that wait, and what each namespace may ask for.
#[derive(Default)]
pub struct Pace {
    namespaces: BTreeMap<Name, Namespace>,
    /// The namespaces with changes that wait, by the time when the first of them may be due.
    by_time: BTreeSet<(Instant, Name)>,
    /// As many namespaces as there were when those were last forgotten that may ask for everything.
    swept: usize,
    /// The objects that began to wait, or wait no more.
    news: BTreeMap<ObjectRef, bool>,
    waiting: usize,
    delayed: u64,
}

struct Namespace {
    bucket: Bucket,
    /// The changes that wait, by number.
    order: BTreeMap<u64, Change>,
    numbers: BTreeMap<ObjectRef, u64>,
    next: u64,
    /// Nothing can be paid before.
    due_at: Instant,
}

/// A change and what is not yet paid of it.
struct Change {
    id: ObjectRef,
    object: Object,
    due: Due,
}

#[derive(Clone, Copy)]
enum Due {
    /// The price was not asked for.
    Untold,
    /// What telling the price costs.
    Reading(u64),
    /// The rest of the price.
    Rest(u64),
}

impl Pace {
    /// What is taken over now; `None`: it waits.
    pub fn admit(&mut self, seen: Seen, prices: &Prices<'_>, now: Instant) -> Option<Seen> {
        let (id, object) = seen;
        let Some(object) = object else {
            self.forget(&id);
            return Some((id, None));
        };
        if prices.is_free(&id, &object) {
            self.forget(&id);
            return Some((id, Some(object)));
        }
        self.sweep(now);
        let name = id.key.namespace.clone();
        let namespace = self.namespaces.entry(name.clone()).or_insert_with(|| Namespace {
            bucket: Bucket::full(OF_NAMESPACE, now),
            order: BTreeMap::new(),
            numbers: BTreeMap::new(),
            next: 0,
            due_at: now,
        });
        let mut change = Change { id: id.clone(), object, due: Due::Untold };
        // Whoever waits goes first.
        if namespace.order.is_empty() {
            if namespace.due_at <= now {
                match change.pay(&mut namespace.bucket, prices, now) {
                    Ok(()) => return Some((id, Some(change.object))),
                    Err(lacks) => namespace.due_at = now + namespace.bucket.wait(lacks, now),
                }
            }
            self.by_time.insert((namespace.due_at, name));
        }
        if let Some(number) = namespace.numbers.get(&id) {
            namespace.order.insert(*number, change);
            return None;
        }
        namespace.order.insert(namespace.next, change);
        namespace.numbers.insert(id.clone(), namespace.next);
        namespace.next += 1;
        self.news.insert(id, true);
        self.waiting += 1;
        self.delayed += 1;
        None
    }

    /// What has waited and is taken over now.
    pub fn due(&mut self, prices: &Prices<'_>, now: Instant) -> Vec<Seen> {
        let mut due = Vec::new();
        while self.by_time.first().is_some_and(|(at, _)| *at <= now) {
            let Some((_, name)) = self.by_time.pop_first() else { break };
            let Some(namespace) = self.namespaces.get_mut(&name) else { continue };
            while let Some(mut first) = namespace.order.first_entry() {
                if let Err(lacks) = first.get_mut().pay(&mut namespace.bucket, prices, now) {
                    namespace.due_at = now + namespace.bucket.wait(lacks, now);
                    self.by_time.insert((namespace.due_at, name));
                    break;
                }
                let change = first.remove();
                namespace.numbers.remove(&change.id);
                self.waiting -= 1;
                self.news.insert(change.id.clone(), false);
                due.push((change.id, Some(change.object)));
            }
        }
        due
    }

    /// When something may be due; `None`: nothing waits.
    pub fn due_at(&self) -> Option<Instant> {
        self.by_time.first().map(|(at, _)| *at)
    }

    /// The objects whose changes wait since this was last asked, or wait no more.
    pub fn take_news(&mut self) -> BTreeMap<ObjectRef, bool> {
        std::mem::take(&mut self.news)
    }

    /// How many changes wait.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// How many changes have waited since the start, or wait.
    pub fn delayed(&self) -> u64 {
        self.delayed
    }

    fn forget(&mut self, id: &ObjectRef) {
        let Some(namespace) = self.namespaces.get_mut(&id.key.namespace) else { return };
        let Some(number) = namespace.numbers.remove(id) else { return };
        namespace.order.remove(&number);
        self.waiting -= 1;
        self.news.insert(id.clone(), false);
        if namespace.order.is_empty() {
            self.by_time.remove(&(namespace.due_at, id.key.namespace.clone()));
        }
    }

    fn sweep(&mut self, now: Instant) {
        if self.namespaces.len() > 2 * self.swept + MANY_NAMESPACES {
            self.namespaces
                .retain(|_, known| !known.order.is_empty() || !known.bucket.is_full(now));
            self.swept = self.namespaces.len();
        }
    }
}

impl Change {
    /// Draws what it costs, as far as there is; an error says what it waits for.
    fn pay(&mut self, from: &mut Bucket, prices: &Prices<'_>, now: Instant) -> Result<(), u64> {
        let mut draw = |amount: u64| from.draw(amount, now).then_some(()).ok_or(amount);
        if matches!(self.due, Due::Untold) {
            let reading = prices.of_reading(&self.id, &self.object);
            self.due = Due::Reading(reading.min(OF_NAMESPACE.full));
        }
        if let Due::Reading(reading) = self.due {
            draw(reading)?;
            let rest = prices.of_rest(&self.id, &self.object);
            self.due = Due::Rest(rest.min(OF_NAMESPACE.full));
        }
        match self.due {
            Due::Rest(rest) => draw(rest),
            Due::Untold | Due::Reading(_) => Ok(()),
        }
    }
}
