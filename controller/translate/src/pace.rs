//! How much of the controller's time each namespace has for what its changes cost.
//!
//! Shape:   a change is charged to its namespace before the world takes it over. What a namespace cannot pay waits, the
//!          latest form of each object only, and is taken over in the order in which it came; others' changes go on.
//!          Removals and what costs nothing never wait; what is merged again for a removal is taken from what is left of the
//!          share, so that later changes wait sooner. Endpoints have a share of their own, which pays for reading the endpoints of
//!          the namespace's Services. While it owes, its EndpointSlices, also removed ones, and answers of DNS ([`answers`])
//!          wait, and are then read together. A debt above a whole share delays all changes.
//!          What a host's guests have there is merged again when its owner changes something: the owner pays for some of that, the
//!          guests for the rest, as far as they can, and then the owner.
//! Cost:    [`price::Prices`], asked about a change when it is its turn, so that those that wait cost nothing.
//! Units:   nanoseconds, told from the objects, so every replica decides alike. What a removal brings back into the stock
//!          ([`crate::claim::age::stock`]) is not charged again: at most as much as was charged for what is removed.
//! Limit:   a change costs no more than a whole share: a namespace's Ingresses have no more paths than are read and merged
//!          again for that ([`crate::translator`]).
//! Exempt:  what is there at the start, which the caller does not ask about, and the operator's objects.

pub mod answers;
mod named;
pub mod price;
#[cfg(test)]
mod tests;

use crate::patterns::budget;
#[cfg(test)]
pub use named::take_hosts_read;
pub use named::{Named, created, hosts_of};
use oxigress_core::model::HostPattern;
use oxigress_objects::bucket::{Bucket, Rate};
use oxigress_objects::{Kind, Name, Object, ObjectRef, Seen};
use price::{ANY, Price, Prices};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// What the changes of a namespace may cost: all that it may serve, once a minute.
pub const OF_NAMESPACE: Rate = Rate { full: budget::OF_NAMESPACE, period: Duration::from_mins(1) };
/// What reading the endpoints of its Services may take beside that.
pub const OF_ENDPOINTS: Rate = Rate { full: 2_000_000_000, period: Duration::from_secs(40) };
/// How many shares may be added to twice [`Pace::swept`] before full ones are forgotten.
const MANY_SHARES: usize = 1_000;

/// Objects whose changes began to wait, with the least time that they wait, or wait no more.
pub type WaitingNews = BTreeMap<ObjectRef, Option<Duration>>;

/// The changes that wait, and what each namespace may ask for.
#[derive(Default)]
pub struct Pace {
    shares: BTreeMap<Payer, Share>,
    /// The shares with changes that wait, by the time when the first of them may be due.
    by_time: BTreeSet<(Instant, Payer)>,
    /// How many shares were left when full ones were last forgotten.
    swept: usize,
    news: WaitingNews,
    waiting: usize,
    delayed: u64,
    named: Named,
    /// What of the hosts of these another namespace had when it was written.
    parked: Named,
}

/// Whose share it is, and for what.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Payer {
    namespace: Name,
    is_for_endpoints: bool,
}

struct Share {
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
    /// `None`: it is removed, which waits where endpoints do.
    object: Option<Object>,
    due: Due,
}

enum Due {
    /// The price was not asked for.
    Untold,
    /// What telling the price costs.
    Reading(Price),
    /// The rest of the price.
    Rest(u64),
    Paid,
}

impl Pace {
    /// What is taken over now; `None`: it waits.
    pub fn admit(&mut self, seen: Seen, prices: &Prices<'_>, now: Instant) -> Option<Seen> {
        let (id, object) = seen;
        let payer = Payer::of(&id);
        let waits = |share: &Share| !share.order.is_empty() || share.bucket.owed(now) > 0;
        let is_free = match &object {
            Some(object) => prices.is_free(&id, object),
            None => !payer.is_for_endpoints || !self.shares.get(&payer).is_some_and(waits),
        };
        if is_free {
            self.forget(&payer, &id);
            if object.is_none() && !payer.is_for_endpoints {
                self.drain(&payer, &id, prices, now);
            }
            return Some((id, object));
        }
        self.sweep(now);
        let mut change = Change { id: id.clone(), object, due: Due::Untold };
        let share = self.share(&payer, now);
        // Whoever waits goes first.
        if share.order.is_empty() {
            if share.due_at <= now && self.pay(&payer, &mut change, prices, now) {
                return Some((id, change.object));
            }
            let due_at = self.share(&payer, now).due_at;
            self.by_time.insert((due_at, payer.clone()));
        }
        self.note_hosts(&payer, &change, prices, now);
        let share = self.share(&payer, now);
        let wait = share.due_at.saturating_duration_since(now);
        if share.put(change) {
            self.news.insert(id, Some(wait));
            self.waiting += 1;
            self.delayed += 1;
        }
        None
    }

    /// What has waited and is taken over now.
    pub fn due(&mut self, prices: &Prices<'_>, now: Instant) -> Vec<Seen> {
        let mut due = Vec::new();
        while self.by_time.first().is_some_and(|(at, _)| *at <= now) {
            let Some((_, payer)) = self.by_time.pop_first() else { break };
            while let Some((number, mut change)) = self.share(&payer, now).order.pop_first() {
                let is_paid = self.pay(&payer, &mut change, prices, now);
                let share = self.share(&payer, now);
                if !is_paid {
                    share.order.insert(number, change);
                    let due_at = share.due_at;
                    self.by_time.insert((due_at, payer));
                    break;
                }
                share.numbers.remove(&change.id);
                self.forget_hosts(&change.id);
                self.waiting -= 1;
                self.news.insert(change.id.clone(), None);
                due.push((change.id, change.object));
            }
        }
        due
    }

    /// Takes what reading endpoints has taken from the shares of the namespaces of their Services, but at the start, which is
    /// nobody's doing.
    pub fn spend(&mut self, work: BTreeMap<Name, u64>, is_change: bool, now: Instant) {
        self.owe(work, true, is_change, now);
    }

    /// Takes what building everything of the Gateway API has taken from the shares of those who had it built: once, however many
    /// changes it was for. No change is kept from being built for that, but later ones of the same namespaces wait sooner.
    pub fn spend_build(&mut self, work: BTreeMap<Name, u64>, is_change: bool, now: Instant) {
        self.owe(work, false, is_change, now);
    }

    fn owe(
        &mut self,
        work: BTreeMap<Name, u64>,
        is_for_endpoints: bool,
        is_change: bool,
        now: Instant,
    ) {
        for (namespace, amount) in work.into_iter().filter(|_| is_change) {
            let payer = Payer { namespace, is_for_endpoints };
            self.share(&payer, now).bucket.owe(amount, now);
        }
        self.sweep(now);
    }

    /// How long until a namespace owes nothing for the endpoints that it has had read.
    pub fn time_to_pay(&self, namespace: &Name, now: Instant) -> Duration {
        let payer = Payer { namespace: namespace.clone(), is_for_endpoints: true };
        self.shares.get(&payer).map_or(Duration::ZERO, |share| share.bucket.wait_to_owe(0, now))
    }

    /// When something may be due; `None`: nothing waits.
    pub fn due_at(&self) -> Option<Instant> {
        self.by_time.first().map(|(at, _)| *at)
    }

    /// The objects whose changes wait since this was last asked, or wait no more.
    pub fn take_news(&mut self) -> WaitingNews {
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

    /// Leaves nothing of the share of a namespace.
    #[cfg(test)]
    pub fn spend_share(&mut self, namespace: &str, now: Instant) {
        let payer = Payer { namespace: namespace.into(), is_for_endpoints: false };
        self.share(&payer, now).bucket.owe(OF_NAMESPACE.full, now);
    }

    fn share(&mut self, payer: &Payer, now: Instant) -> &mut Share {
        self.shares.entry(payer.clone()).or_insert_with(|| Share::full(payer, now))
    }

    /// Draws what a change costs, as far as there is; `false`: not all of it.
    fn pay(
        &mut self,
        payer: &Payer,
        change: &mut Change,
        prices: &Prices<'_>,
        now: Instant,
    ) -> bool {
        if let Some(wait) = self.deep_debt(payer, now) {
            self.share(payer, now).due_at = now + wait;
            return false;
        }
        loop {
            change.due = match &change.due {
                Due::Untold => Due::Reading(change.price(prices)),
                Due::Reading(price) if !self.draw(payer, price, now) => return false,
                Due::Reading(_) => Due::Rest(change.rest(prices)),
                Due::Rest(rest) if !self.draw(payer, &Price::own(*rest), now) => return false,
                Due::Rest(_) => Due::Paid,
                Due::Paid => return true,
            };
        }
    }

    /// How long all changes of a namespace wait because its endpoints were read too often.
    fn deep_debt(&self, payer: &Payer, now: Instant) -> Option<Duration> {
        let payer = Payer { is_for_endpoints: true, ..payer.clone() };
        let wait = self.shares.get(&payer)?.bucket.wait_to_owe(OF_ENDPOINTS.full, now);
        (!wait.is_zero()).then_some(wait)
    }

    /// Draws a price, of which no more than a whole share is its namespace's: it may have no more paths than that is for.
    fn draw(&mut self, payer: &Payer, price: &Price, now: Instant) -> bool {
        let (own, of_guests) = self.split(price, now);
        let share = self.share(payer, now);
        let own = own.min(share.bucket.rate().full);
        if !share.bucket.draw(own, now) {
            share.due_at = now + share.bucket.wait(own, now);
            return false;
        }
        self.draw_from(of_guests, now);
        true
    }

    /// Takes what a removal costs of what is left. Nothing is owed for it: who has removed much and makes it again, as an
    /// installation anew does, waits for what that costs.
    fn drain(&mut self, payer: &Payer, id: &ObjectRef, prices: &Prices<'_>, now: Instant) {
        let left = self.shares.get(payer).map_or(OF_NAMESPACE.full, |share| share.bucket.left(now));
        if left == 0 {
            return;
        }
        let price = prices.of_removal(id);
        if price == Price::default() {
            return;
        }
        self.sweep(now);
        let (own, of_guests) = self.split(&price, now);
        self.share(payer, now).bucket.draw(own.min(left), now);
        self.draw_from(of_guests, now);
    }

    /// What of a price its namespace pays, and what its guests do: these pay their part while they keep half of a share for
    /// their own changes.
    fn split(&mut self, price: &Price, now: Instant) -> (u64, Vec<(Payer, u64)>) {
        let (mut own, mut of_guests) = (price.own, Vec::new());
        for (guest, amount) in &price.of_guests {
            let guest = Payer { namespace: guest.clone(), is_for_endpoints: false };
            let bucket = self.share(&guest, now).bucket;
            let part = bucket.left(now).saturating_sub(bucket.rate().full / 2).min(*amount);
            own = own.saturating_add(amount - part);
            of_guests.push((guest, part));
        }
        (own, of_guests)
    }

    fn draw_from(&mut self, guests: Vec<(Payer, u64)>, now: Instant) {
        for (guest, amount) in guests {
            self.share(&guest, now).bucket.draw(amount, now);
        }
    }

    /// Takes note of the hosts of a change that is to wait, unless one of the same object that waits already writes the same.
    fn note_hosts(&mut self, payer: &Payer, change: &Change, prices: &Prices<'_>, now: Instant) {
        let (id, new) = (&change.id, change.object.as_ref());
        let old = self.shares.get(payer).and_then(|share| share.waiting(id)?.object.as_ref());
        if old.zip(new).is_some_and(|(old, new)| named::write_same(prices.prefix(), old, new)) {
            return;
        }
        let mut hosts = hosts_of(prices.translator, prices.world, (id, new));
        // Their reading is paid by who has it done again and again.
        let price = price::NAME.saturating_mul(hosts.len() as u64);
        let made = new.and_then(created).unwrap_or_default();
        let parks = |host: &HostPattern| prices.translator.parks(id, made, host, &self.parked);
        let parked = hosts.extract_if(.., |host| parks(host)).collect();
        self.named.set(id, made, hosts);
        self.parked.set(id, made, parked);
        self.share(payer, now).bucket.owe(price, now);
    }

    fn forget_hosts(&mut self, id: &ObjectRef) {
        self.named.set(id, 0, BTreeSet::new());
        self.parked.set(id, 0, BTreeSet::new());
    }

    fn forget(&mut self, payer: &Payer, id: &ObjectRef) {
        let Some(share) = self.shares.get_mut(payer) else { return };
        if !share.remove(id) {
            return;
        }
        if share.order.is_empty() {
            self.by_time.remove(&(share.due_at, payer.clone()));
        }
        self.waiting -= 1;
        self.forget_hosts(id);
        self.news.insert(id.clone(), None);
    }

    fn sweep(&mut self, now: Instant) {
        if self.shares.len() > 2 * self.swept + MANY_SHARES {
            self.shares.retain(|_, known| !known.order.is_empty() || !known.bucket.is_full(now));
            self.swept = self.shares.len();
        }
    }
}

impl Payer {
    fn of(id: &ObjectRef) -> Self {
        let is_for_endpoints = id.kind == Kind::EndpointSlice;
        Payer { namespace: id.key.namespace.clone(), is_for_endpoints }
    }
}

impl Share {
    fn full(of: &Payer, now: Instant) -> Self {
        let rate = if of.is_for_endpoints { OF_ENDPOINTS } else { OF_NAMESPACE };
        Share {
            bucket: Bucket::full(rate, now),
            order: BTreeMap::new(),
            numbers: BTreeMap::new(),
            next: 0,
            due_at: now,
        }
    }

    /// Lets a change wait; `false`: an older form of the object waited already.
    fn put(&mut self, change: Change) -> bool {
        if let Some(number) = self.numbers.get(&change.id) {
            self.order.insert(*number, change);
            return false;
        }
        self.numbers.insert(change.id.clone(), self.next);
        self.order.insert(self.next, change);
        self.next += 1;
        true
    }

    /// A change that waits.
    fn waiting(&self, id: &ObjectRef) -> Option<&Change> {
        self.order.get(self.numbers.get(id)?)
    }

    /// Forgets a change that waits; `false`: none does.
    fn remove(&mut self, id: &ObjectRef) -> bool {
        let number = self.numbers.remove(id);
        number.is_some_and(|number| self.order.remove(&number).is_some())
    }
}

impl Change {
    /// What telling its price costs.
    fn price(&self, prices: &Prices<'_>) -> Price {
        match &self.object {
            Some(object) => prices.of_reading(&self.id, object),
            None => Price::own(ANY),
        }
    }

    /// What taking it over costs beside that.
    fn rest(&self, prices: &Prices<'_>) -> u64 {
        self.object.as_ref().map_or(0, |object| prices.of_rest(&self.id, object))
    }
}
