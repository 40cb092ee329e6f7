//! What a refusal means: what is withheld, so that everything else goes on.

use super::client::Response;
use super::item::{self, Item, OVERHEAD, RuleRecords};
use super::owners::View;
use super::room::{self, CLOSED};
use super::withheld::{self, Reason, Room};
use super::{Next, Publisher, Sent, describe, parts, problem};
use hyper::StatusCode;
use oxigress_core::model::Snapshot;
use oxigress_core::record::table::{Operations, RecordRef};
use oxigress_core::wire::native::{Patch, Problem};
use std::collections::{BTreeMap, BTreeSet};

/// The records that an answer of nginx refuses, or the body as a whole.
enum Refused<'s> {
    /// The refused PUT had this snapshot.
    Whole(&'s Snapshot),
    /// The refused PATCH had this delta.
    Delta(Box<Patch>),
}

impl Refused<'_> {
    fn rules(&self) -> RuleRecords<'_> {
        match self {
            Refused::Delta(patch) => RuleRecords::from(&**patch),
            Refused::Whole(snapshot) => RuleRecords::from(*snapshot),
        }
    }

    /// Whether it wrote or removed the record.
    fn touches(&self, record: &RecordRef) -> bool {
        match self {
            Refused::Delta(patch) => withheld::touches(patch, record),
            Refused::Whole(snapshot) => match Operations::of_kind(record.kind) {
                Some(table) => (table.has)(snapshot, &record.key),
                None => true,
            },
        }
    }
}

/// What a write lacked in the zone.
struct Lack {
    bytes: u64,
    room: Room,
    /// Bytes for records that take no more than those that they replace.
    free_for_less: u64,
}

/// What takes records away that are live.
#[derive(Default)]
struct Eviction {
    /// Hosts that are closed for a moment first: there is no room for what is left of them beside what they are now.
    closing: Patch,
    /// What is left of the records, in parts, each with its bytes.
    parts: Vec<(u64, Patch)>,
}

impl Eviction {
    /// Adds what takes so many bytes until what it replaces is freed; a part has room for `room` of them.
    fn add(&mut self, bytes: u64, room: u64, write: impl FnOnce(&mut Patch)) {
        match self.parts.last_mut() {
            Some((taken, part)) if *taken + bytes <= room => {
                *taken += bytes;
                write(part);
            }
            _ => {
                let mut part = Patch::default();
                write(&mut part);
                self.parts.push((bytes, part));
            }
        }
    }

    fn into_parts(self) -> impl DoubleEndedIterator<Item = Patch> {
        let parts = self.parts.into_iter().map(|(_, part)| part);
        std::iter::once(self.closing).chain(parts).filter(|part| !part.is_empty())
    }
}

impl Publisher {
    /// Whatever nginx refuses, the rest of what was sent goes on.
    pub(super) fn refused(&mut self, answer: &Response, sent: Sent, view: &View<'_>) -> Next {
        let is_about_content = matches!(
            answer.status,
            StatusCode::BAD_REQUEST
                | StatusCode::PAYLOAD_TOO_LARGE
                | StatusCode::INSUFFICIENT_STORAGE
        );
        let refused = match sent {
            Sent::Whole if is_about_content => Refused::Whole(view.snapshot),
            Sent::Delta(patch) if is_about_content => Refused::Delta(patch),
            sent => {
                self.requeue(sent);
                tracing::error!(
                    "nginx refused the configuration: {}; the last one stays live until an object changes",
                    describe(answer)
                );
                return Next::OnChange;
            }
        };
        let problem = problem(answer);
        let is_full = answer.status == StatusCode::INSUFFICIENT_STORAGE;
        let (is_named, evicted) = match is_full {
            true => {
                let lack = self.note_lack(&problem, &refused);
                self.withhold_for_room(&refused, &lack, view)
            }
            false => (self.withhold_named(&refused, &problem, view), Default::default()),
        };
        let removals = self.withheld.take_removals(view.snapshot);
        self.pending.follow(removals);
        match refused {
            Refused::Whole(_) if is_named => self.needs_whole = true,
            Refused::Whole(_) => {
                tracing::warn!(
                    "nginx refused the whole configuration: {}; sending it in parts",
                    describe(answer)
                );
                (self.is_in_parts, self.needs_whole) = (true, true);
            }
            Refused::Delta(mut patch) if is_named => {
                let endpoints = parts::take_endpoints(&mut patch);
                self.requeue(Sent::Delta(patch));
                // They wait for no other record.
                if let Some(endpoints) = endpoints {
                    self.parts.push_front(endpoints);
                }
                // They make the room that the rest needs.
                for part in evicted.into_parts().rev() {
                    self.parts.push_front(part);
                }
            }
            Refused::Delta(patch) => return self.halve(*patch, answer, is_full, view),
        }
        Next::Now
    }

    fn note_lack(&mut self, problem: &Problem, refused: &Refused<'_>) -> Lack {
        let (needed, free) = (problem.needed_bytes, problem.free_bytes.unwrap_or(0));
        let bytes = needed.unwrap_or(0).saturating_sub(free).max(1);
        self.lacking_bytes = self.lacking_bytes.max(bytes);
        self.capacity_bytes = problem.capacity_bytes.unwrap_or(self.capacity_bytes);
        // Of an empty zone nobody knows yet what a smaller whole leaves free.
        let free = if matches!(refused, Refused::Whole(_)) { 0 } else { free };
        let free_for_less = problem.free_for_less_bytes.unwrap_or(free).max(free);
        Lack { bytes, room: Room { capacity: self.capacity_bytes, free }, free_for_less }
    }

    /// Withholds the records that the answer names.
    fn withhold_named(
        &mut self,
        refused: &Refused<'_>,
        problem: &Problem,
        view: &View<'_>,
    ) -> bool {
        let within = if matches!(refused, Refused::Whole(_)) { "snapshot" } else { "upsert" };
        let first = problem.pointer.as_deref().map(|pointer| (pointer, problem.error.as_str()));
        let others =
            problem.others.iter().map(|fault| (fault.pointer.as_str(), fault.error.as_str()));
        // Of one item the first fault says enough; a second one must not look like a refusal of its closed form.
        let mut faults: BTreeMap<Item, String> = BTreeMap::new();
        let mut is_named = false;
        for (pointer, error) in first.into_iter().chain(others) {
            let record = RecordRef::at(pointer, within);
            let Some(record) = record.filter(|record| refused.touches(record)) else { continue };
            if matches!(refused, Refused::Whole(_)) && withheld::touches(&self.pending, &record) {
                // It has changed since it was sent, and the whole is sent again as it is now.
                is_named = true;
                continue;
            }
            let text =
                oxigress_core::text::line::one_line(&format!("{error} (at {pointer})")).to_string();
            let item = self.blamed(refused.rules(), record, Some(pointer), view);
            faults.entry(item).or_insert(text);
        }
        for (item, text) in faults {
            if self.withheld.insert(item.clone(), Reason::Refused(text.clone())) {
                tracing::error!(
                    "nginx refused {item}: {text}; it is left out and the rest is published"
                );
                is_named = true;
            }
        }
        is_named
    }

    /// What to withhold of a refused record: of one with rules of guests the rules of the one that the pointer leads
    /// to; where it leads to none, the guests go one by one, the one with the most rules first, and the record last.
    /// `rules` are those of the request, but for what is withheld of them.
    fn blamed(
        &self,
        rules: RuleRecords<'_>,
        record: RecordRef,
        pointer: Option<&str>,
        view: &View<'_>,
    ) -> Item {
        let Some(server) = rules.get(&record) else { return record.into() };
        if self.withheld.contains(&record.clone().into()) {
            // It was sent closed.
            return record.into();
        }
        let owner = item::owner_of(view, &record).namespace;
        let absent = self.withheld.guests_of(&record);
        let sent = server.rules.iter().filter(|rule| !absent.contains(&*rule.origin.namespace));
        let index = pointer.and_then(|pointer| pointer.rsplit_once("/rules/"));
        let index = index.and_then(|(_, rest)| rest.split('/').next()?.parse::<usize>().ok());
        let guest = match index.and_then(|index| sent.clone().nth(index)) {
            Some(rule) => item::guest_of(owner, rule),
            None => {
                let guests = item::guests(owner, sent).into_iter();
                guests.max_by_key(|(_, rules)| rules.len()).map(|(guest, _)| guest)
            }
        };
        match guest {
            Some(guest) => Item::of_guest(record, guest),
            None => record.into(),
        }
    }

    /// Withholds as many records as the zone lacks bytes, of whichever namespace has most: those that are live already
    /// are answered, to be taken away first. Endpoints that are sent together with others are tried by themselves first.
    fn withhold_for_room(
        &mut self,
        refused: &Refused<'_>,
        lack: &Lack,
        view: &View<'_>,
    ) -> (bool, Eviction) {
        if matches!(refused, Refused::Delta(patch) if parts::is_divided_by_urgency(patch)) {
            return Default::default();
        }
        let mut eviction = Eviction::default();
        let chosen = self.choose_for_room(refused, lack, view);
        let (mut count, mut total) = (0, 0);
        let going: BTreeSet<Item> = chosen.iter().map(|(item, _)| item.clone()).collect();
        let mut left_of: BTreeMap<RecordRef, u64> = BTreeMap::new();
        for (item, bytes) in chosen {
            let table = Operations::of_kind(item.record.kind);
            let needs = self.sizes.bytes_of(&item).unwrap_or(bytes);
            let mut left = CLOSED;
            if item.guest.is_some() {
                // What is left of the server is written beside the old one; it is smaller.
                let of_record = left_of.entry(item.record.clone());
                left = *of_record.or_insert_with(|| self.bytes_left(&item.record, &going));
                if left > lack.free_for_less
                    && let Some(table) = table
                {
                    (table.withhold)(&mut eviction.closing, &item.record.key);
                }
            }
            let reason = Reason::NoRoom { bytes: needs };
            let is_withheld = match refused.touches(&item.record) {
                true => self.withheld.insert(item, reason),
                false => {
                    if let Some(table) = table {
                        eviction.add(left, lack.free_for_less, |part| {
                            (table.restore)(view.snapshot, part, &item.record.key);
                        });
                    }
                    self.withheld.evict(item, reason)
                }
            };
            if is_withheld {
                (count, total) = (count + 1, total + bytes);
            }
        }
        self.withheld.set_full(lack.room);
        if count > 0 {
            tracing::error!(
                "the shared memory zone is full: {} of {total} bytes unpublished until there is room",
                oxigress_core::text::count(count, "record")
            );
        }
        (count > 0, eviction)
    }

    fn choose_for_room(
        &mut self,
        refused: &Refused<'_>,
        lack: &Lack,
        view: &View<'_>,
    ) -> Vec<(Item, u64)> {
        self.sizes.measure(view.snapshot);
        let choose = |removals_only| {
            room::choose(view, &self.withheld, &self.sizes, lack.bytes, removals_only)
        };
        // What closes records needs a little room itself: removals make it.
        let chosen = match refused {
            Refused::Delta(patch) if self.withheld.has_all(patch) => choose(true),
            _ => Vec::new(),
        };
        if chosen.is_empty() { choose(false) } else { chosen }
    }

    /// Bytes of what is left of a server without the guests that are withheld of it, those that are `going` now among them.
    fn bytes_left(&self, record: &RecordRef, going: &BTreeSet<Item>) -> u64 {
        let Some(size) = self.sizes.get(record) else { return OVERHEAD };
        let absent = self.withheld.guests_of(record);
        // The owner's rules are no guest's, whose names alone are looked for.
        let gone = size.guests("").filter(|(guest, _)| {
            absent.contains(guest) || going.contains(&Item::of_guest(record.clone(), guest))
        });
        size.bytes.saturating_sub(gone.map(|(_, bytes)| bytes).sum()) + OVERHEAD
    }

    /// Sends a refused delta in two parts; a single record is withheld.
    fn halve(&mut self, patch: Patch, answer: &Response, is_full: bool, view: &View<'_>) -> Next {
        let single = match parts::halve(patch, is_full) {
            Ok((first, second)) => {
                self.parts.push_front(second);
                self.parts.push_front(first);
                return Next::Now;
            }
            Err(single) => *single,
        };
        let text = describe(answer);
        let is_withheld = single.record.is_some_and(|record| {
            let item = self.blamed(RuleRecords::from(&single.patch), record, None, view);
            tracing::error!(
                "nginx refused {item}: {text}; it is left out and the rest is published"
            );
            self.withheld.insert(item, Reason::Refused(text.clone()))
        });
        self.requeue(Sent::Delta(Box::new(single.patch)));
        if !is_withheld {
            // A removal, or what was to close a record: nothing smaller can be sent.
            tracing::error!(
                "nginx refused the configuration: {text}; the last one stays live until an object changes"
            );
            return Next::OnChange;
        }
        Next::Now
    }
}
