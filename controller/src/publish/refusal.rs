//! What a refusal means: which records are withheld, so that everything else goes on.

use super::client::Answer;
use super::room::{self, View};
use super::withheld::{self, Reason, Room};
use super::{Next, Publisher, Sent, describe, parts, problem};
use hyper::StatusCode;
use oxigress_core::model::Snapshot;
use oxigress_core::table::{Operations, RecordRef};
use oxigress_core::wire::native::{Patch, Problem};

/// What nginx refused.
enum Refused<'s> {
    /// The whole snapshot.
    Whole(&'s Snapshot),
    /// A delta.
    Delta(Box<Patch>),
}

impl Refused<'_> {
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
}

impl Publisher {
    /// Whatever nginx refuses, the rest of what was sent goes on.
    pub(super) fn refused(&mut self, answer: &Answer, sent: Sent, view: &View<'_>) -> Next {
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
                self.unsend(sent);
                tracing::error!("nginx refuses the configuration: {}", describe(answer));
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
            false => (self.withhold_named(&refused, &problem), Patch::default()),
        };
        let removals = self.withheld.take_removals();
        self.pending.follow(removals);
        match refused {
            Refused::Whole(_) if is_named => self.needs_whole = true,
            Refused::Whole(_) => {
                tracing::warn!(
                    "nginx refuses the whole: {}: sending it in parts",
                    describe(answer)
                );
                (self.is_in_parts, self.needs_whole) = (true, true);
            }
            Refused::Delta(patch) if is_named => {
                self.unsend(Sent::Delta(patch));
                if !evicted.is_empty() {
                    // They make the room that the rest needs.
                    self.parts.push_front(evicted);
                }
            }
            Refused::Delta(patch) => return self.halve(*patch, answer, is_full),
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
        Lack { bytes, room: Room { capacity: self.capacity_bytes, free } }
    }

    /// Withholds the records that the answer names.
    fn withhold_named(&mut self, refused: &Refused<'_>, problem: &Problem) -> bool {
        let within = if matches!(refused, Refused::Whole(_)) { "snapshot" } else { "upsert" };
        let first = problem.pointer.as_deref().map(|pointer| (pointer, problem.error.as_str()));
        let others =
            problem.others.iter().map(|fault| (fault.pointer.as_str(), fault.error.as_str()));
        let mut is_named = false;
        for (pointer, error) in first.into_iter().chain(others) {
            let record = RecordRef::at(pointer, within);
            let Some(record) = record.filter(|record| refused.touches(record)) else { continue };
            let text = crate::log::one_line(&format!("{error} (at {pointer})")).to_string();
            if self.withheld.insert(record.clone(), Reason::Refused(text.clone())) {
                tracing::error!("nginx refuses {record}, which is withheld: {text}");
                is_named = true;
            }
        }
        is_named
    }

    /// Withholds as many records as the zone lacks bytes, of whichever namespace has most: those that are live already
    /// are answered, to be taken away first. Endpoints that are sent together with others are tried by themselves first.
    fn withhold_for_room(
        &mut self,
        refused: &Refused<'_>,
        lack: &Lack,
        view: &View<'_>,
    ) -> (bool, Patch) {
        let mut evicted = Patch::default();
        // What closes records needs a little room itself: removals make it.
        let removals_only = match refused {
            Refused::Delta(patch) if parts::is_divided_by_urgency(patch) => {
                return (false, evicted);
            }
            Refused::Delta(patch) => self.withheld.has_all(patch),
            Refused::Whole(_) => false,
        };
        let mut chosen = room::choose(view, &self.withheld, lack.bytes, removals_only);
        if chosen.is_empty() && removals_only {
            chosen = room::choose(view, &self.withheld, lack.bytes, false);
        }
        let (mut count, mut total) = (0, 0);
        for (record, bytes) in chosen {
            let reason = Reason::NoRoom { bytes };
            let is_withheld = match refused.touches(&record) {
                true => self.withheld.insert(record, reason),
                false => {
                    if let Some(table) = Operations::of_kind(record.kind) {
                        (table.restore)(view.snapshot, &mut evicted, &record.key);
                    }
                    self.withheld.evict(record, reason)
                }
            };
            if is_withheld {
                (count, total) = (count + 1, total + bytes);
            }
        }
        self.withheld.set_full(lack.room);
        if count > 0 {
            tracing::error!(
                "the zone is full: {count} records of {total} bytes are withheld until there is room"
            );
        }
        (count > 0, evicted)
    }

    /// Sends a refused delta in two parts; a single record is withheld.
    fn halve(&mut self, patch: Patch, answer: &Answer, is_full: bool) -> Next {
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
            tracing::error!("nginx refuses {record}, which is withheld: {text}");
            self.withheld.insert(record, Reason::Refused(text.clone()))
        });
        self.unsend(Sent::Delta(Box::new(single.patch)));
        if !is_withheld {
            // A removal, or what was to close a record: nothing smaller can be sent.
            tracing::error!("nginx refuses the configuration: {text}");
            return Next::OnChange;
        }
        Next::Now
    }
}
