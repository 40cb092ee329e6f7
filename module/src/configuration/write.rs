//! Writes: decode, check, change the store, publish.

use crate::configuration::StoreAccess;
use crate::configuration::answer::Answer;
use crate::configuration::answer::tag;
use crate::configuration::effort::{self, Effort, bytes_needed, new_value};
use crate::system::memory::monotonic_milliseconds;
use crate::system::memory::random;
use crate::zone::ZoneLock;
use crate::zone::endpoints::initialise_endpoints;
use crate::zone::endpoints::mark_endpoints_older;
use crate::zone::records::cells;
use crate::zone::retired::Keeping;
use nginx::ssl::clear_errors;
use oxigress_core::model::Snapshot;
use oxigress_core::record::table::{Keys, Operations, TABLES};
use oxigress_core::record::{Change, EndpointsView, Kind, delta_records, snapshot_records};
use oxigress_core::text::count;
use oxigress_core::wire::native::{MAX_FAULTS, Patch, Problem, Whole};
use oxigress_core::wire::patterns::Patterns;
use oxigress_core::wire::{DecodeError, compat, decode, faults, pointer_step};
use oxigress_store::{Role, Store, Transaction, WriteError, Written};
use oxigress_validate::{Fault, record as validate};
use std::borrow::Cow;
use std::collections::HashSet;
use std::time::{Duration, Instant};

/// Which live records a write removes although it does not name them.
#[derive(Clone, Copy)]
enum Replaces<'a> {
    /// None.
    Nothing,
    /// Those of these kinds.
    Kinds(&'a [Kind]),
    /// Those of all tables and the settings.
    Tables,
    /// Those of all tables but for these.
    TablesBut(&'a Keys),
}

const BACKENDS: &[Kind] = &[Kind::Backend, Kind::Endpoints];
const SERVERS: &[Kind] = &[Kind::Certificate, Kind::Name];

/// `PUT /configuration`
pub fn put(body: &[u8], expected: Option<&str>, shared: &StoreAccess<'_>) -> Option<Answer> {
    let (whole, ignored) = match decode::<Whole>(body) {
        Ok(decoded) => decoded,
        Err(error) => return Some(undecodable(error, body, "snapshot")),
    };
    let (tables, replaces) = ("/snapshot", Replaces::Tables);
    let faults = pattern_faults(&(&whole.snapshot).into(), tables, shared)?;
    if !faults.is_empty() {
        return Some(Answer::faulty(faults));
    }
    let source = Source::Whole(snapshot_records(whole.snapshot));
    let write = Write { source, replaces, expected, epoch: None, status: 200, tables };
    write.apply(shared, ignored)
}

/// `PATCH /configuration`
pub fn patch(body: &[u8], expected: Option<&str>, shared: &StoreAccess<'_>) -> Option<Answer> {
    let (patch, ignored) = match decode::<Patch>(body) {
        Ok(decoded) => decoded,
        Err(error) => return Some(undecodable(error, body, "upsert")),
    };
    if let Some(pointer) = patch.contradiction() {
        let error =
            DecodeError::new(pointer, "the key is both upserted and removed: send only one");
        return Some(Answer::undecodable(error));
    }
    let tables = "/upsert";
    let faults = pattern_faults(&(&patch.upsert).into(), tables, shared)?;
    if !faults.is_empty() {
        return Some(Answer::faulty(faults));
    }
    let retained = patch.retain.clone();
    let replaces = retained.as_ref().map_or(Replaces::Nothing, Replaces::TablesBut);
    let source = Source::Delta(Box::new(patch));
    let write = Write { source, replaces, expected, epoch: None, status: 200, tables };
    write.apply(shared, ignored)
}

/// Compiles the patterns of a document, to see which cannot be; `None`: there are some, and this is the event loop.
fn pattern_faults(
    patterns: &Patterns<'_>,
    tables: &str,
    shared: &StoreAccess<'_>,
) -> Option<Vec<DecodeError>> {
    let may_compile = patterns.is_empty() || shared.patience.is_any();
    may_compile.then(|| patterns.faults(tables).take(MAX_FAULTS).collect())
}

/// Names every record that is wrong, so that the writer can send all others at once.
fn undecodable(error: DecodeError, body: &[u8], within: &str) -> Answer {
    let mut all = match error.is_version() {
        true => Vec::new(),
        false => faults(body, within, MAX_FAULTS),
    };
    match all.iter().position(|fault| fault.pointer == error.pointer) {
        Some(place) => all.swap(0, place),
        None => all.insert(0, error),
    }
    match all.len() {
        1 => Answer::undecodable(all.remove(0)),
        _ => Answer::faulty(all),
    }
}

/// ingress-nginx's `POST /configuration/backends`
pub fn backends(body: &[u8], shared: &StoreAccess<'_>) -> Option<Answer> {
    let (elements, ignored) = match decode::<Vec<compat::Element>>(body) {
        Ok(decoded) => decoded,
        Err(error) => return Some(Answer::undecodable(error)),
    };
    let mut snapshot = Snapshot::default();
    let (mut unresolved, mut notes) = (Vec::new(), Vec::new());
    for (place, element) in elements.into_iter().enumerate() {
        match element.into_model() {
            // A name that stands twice: the last wins, as in the reference.
            Ok(compat::Converted { id, backend, endpoints, names, notes: more }) => {
                unresolved.extend(names.iter().map(|name| format!("{id}: {name}")));
                notes.extend(more.iter().map(|note| format!("{id}: {note}")));
                snapshot.backends.insert(id.clone(), backend);
                snapshot.endpoints.insert(id, endpoints);
            }
            Err(error) => {
                let error = DecodeError::new(format!("/{place}"), error.to_string());
                return Some(Answer::undecodable(error));
            }
        }
    }
    let mut answer = takeover(snapshot, BACKENDS).apply(shared, ignored)?;
    if let Some(first) = unresolved.first() {
        let names = count(unresolved.len(), "host name");
        answer.log.push(format!(
            "{names} among the endpoints left out, since the module resolves none: {first}, …"
        ));
    }
    if let Some(first) = notes.first() {
        let settings = count(notes.len(), "setting");
        answer.log.push(format!("{settings} not served as posted: {first}, …"));
    }
    Some(answer)
}

/// ingress-nginx's `POST /configuration/servers`
pub fn servers(body: &[u8], shared: &StoreAccess<'_>) -> Option<Answer> {
    let (servers, ignored) = match decode::<compat::Servers>(body) {
        Ok(decoded) => decoded,
        Err(error) => return Some(Answer::undecodable(error)),
    };
    let (certificates, names, left_out) = servers.into_model();
    let snapshot = Snapshot { certificates, names, ..Snapshot::default() };
    let mut answer = takeover(snapshot, SERVERS).apply(shared, ignored)?;
    if let Some(first) = left_out.first() {
        let (hosts, first) = (count(left_out.len(), "host"), first.escape_default());
        answer.log.push(format!("{hosts} left out for no DNS name: {first}, …"));
    }
    Some(answer)
}

/// ingress-nginx's `POST /configuration/general`: any JSON, kept as it is.
pub fn general(body: &[u8], shared: &StoreAccess<'_>) -> Option<Answer> {
    if let Err(error) = decode::<serde_json::Value>(body) {
        return Some(Answer::undecodable(error));
    }
    let source = Source::Whole(vec![Change::upsert(Kind::General, "", body.to_vec())]);
    Write { source, ..takeover(Snapshot::default(), &[]) }.apply(shared, 0)
}

/// A write in the compatible dialect begins a line of generations of its own: a native writer that was at
/// work before gets 409 and sends its whole again.
fn takeover(snapshot: Snapshot, replaces: &'static [Kind]) -> Write<'static> {
    let mut changes = snapshot_records(snapshot);
    changes.retain(|change| replaces.contains(&change.kind));
    Write {
        source: Source::Whole(changes),
        replaces: Replaces::Kinds(replaces),
        expected: None,
        epoch: Some(random()),
        status: 201,
        tables: "",
    }
}

/// Where the records come from.
enum Source {
    /// They are all there.
    Whole(Vec<Change>),
    /// Some depend on what is live.
    Delta(Box<Patch>),
}

struct Write<'a> {
    source: Source,
    replaces: Replaces<'a>,
    /// The `epoch.generation` that must be live.
    expected: Option<&'a str>,
    /// The epoch to begin if anything changes; `None`: the live one goes on.
    epoch: Option<u64>,
    /// Of the answer.
    status: u16,
    /// JSON pointer of the document's tables.
    tables: &'static str,
}

impl Write<'_> {
    /// `None`: another writer is at work, or what would make room is still held.
    fn apply(self, shared: &StoreAccess<'_>, ignored: usize) -> Option<Answer> {
        let start = Instant::now();
        loop {
            let mut answer = self.apply_as_writer(shared.write()?, shared, ignored, true)?;
            if answer.status == 507 {
                // What was kept of removed backends makes room.
                answer = self.apply_as_writer(shared.write()?, shared, ignored, false)?;
            }
            if answer.status != 507 || !shared.store.has_garbage() {
                return Some(answer);
            }
            // The workers' next ticks and the journal's next step let go of it.
            if !shared.patience.is_left(start) {
                return shared.patience.is_any().then_some(answer);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Checks the changes, makes them and commits. `None`: the write is too long for the event loop.
    fn apply_as_writer(
        &self,
        mut transaction: Transaction<'_, ZoneLock>,
        shared: &StoreAccess<'_>,
        ignored: usize,
        keeps_removed: bool,
    ) -> Option<Answer> {
        let store = shared.store;
        if store.role() == Role::Follower {
            return Some(Answer::taken_over());
        }
        let live = store.live();
        if self.expected.is_some_and(|expected| expected != tag(&live)) {
            return Some(Answer::conflict(&live));
        }
        let effort = Effort::new(shared.patience.is_any(), self.records_read(store));
        let changes = match &self.source {
            Source::Whole(changes) => Cow::Borrowed(changes),
            Source::Delta(patch) => Cow::Owned(delta_records(patch, |kind, key| {
                let record = transaction.get(kind as u8, key)?;
                effort.allows(record.value().len()).then(|| record.value().to_vec())
            })),
        };
        if !effort.is_enough_for(&changes, &transaction) {
            return None;
        }
        let faults = self.check(&changes, &transaction);
        if !faults.is_empty() {
            return Some(Answer::faulty(faults));
        }
        if !matches!(self.replaces, Replaces::Nothing) {
            // The last generation may still take its room beside this one.
            transaction.free_all();
        }
        let before = transaction.space().free_bytes;
        match self.change(&changes, &mut transaction, keeps_removed) {
            Ok(()) => {}
            Err((error, rest)) => {
                drop(transaction);
                return Some(refused(error, before, rest, store));
            }
        }
        Some(match transaction.commit() {
            Ok(live) => Answer::applied(self.status, &live, ignored),
            Err(error) => refused(error, before, 0, store),
        })
    }

    /// How many records it reads to find those that it replaces.
    fn records_read(&self, store: &Store) -> u64 {
        match self.replaces {
            Replaces::Nothing => 0,
            _ => effort::records(store),
        }
    }

    /// What is wrong with records that OpenSSL has to understand, where they are new or changed: what is live was
    /// checked when it came.
    fn check(
        &self,
        changes: &[Change],
        transaction: &Transaction<'_, ZoneLock>,
    ) -> Vec<DecodeError> {
        let faults = changes.iter().filter_map(|change| {
            let value = new_value(change, transaction)?;
            let Change { kind, key, .. } = change;
            let Fault { field, error } = validate::check(*kind, key, value).err()?;
            let key = pointer_step(&String::from_utf8_lossy(key));
            let table = Operations::of_kind(*kind)?.name;
            Some(DecodeError::new(format!("{}/{table}/{key}{field}", self.tables), error))
        });
        let faults = faults.take(MAX_FAULTS).collect();
        clear_errors();
        faults
    }

    /// Makes the changes. On an error: the bytes of the records after the one that did not fit.
    fn change(
        &self,
        changes: &[Change],
        transaction: &mut Transaction<'_, ZoneLock>,
        keeps_removed: bool,
    ) -> Result<(), (WriteError, usize)> {
        let now = monotonic_milliseconds();
        let mut keeping = Keeping::new(now, keeps_removed);
        for (kind, key) in self.stale(changes, transaction) {
            keeping
                .keep(transaction, kind, &key)
                .and_then(|()| transaction.remove(kind, &key))
                .map_err(|error| (error, bytes_needed(changes, transaction)))?;
        }
        for (place, Change { kind, key, value }) in changes.iter().enumerate() {
            let kind_number = *kind as u8;
            let written = match value {
                None => keeping
                    .keep(transaction, kind_number, key)
                    .and_then(|()| transaction.remove(kind_number, key))
                    .map(drop),
                Some(value) if is_empty_set(*kind, value) => keeping
                    .keep(transaction, kind_number, key)
                    .and_then(|()| transaction.upsert(kind_number, key, value, cells))
                    .map(drop),
                Some(value) if *kind == Kind::Endpoints => {
                    mark_endpoints_older(transaction.get(kind_number, key));
                    let written = transaction.upsert(kind_number, key, value, cells);
                    written.map(|written| {
                        if written == Written::Changed {
                            initialise_endpoints(transaction.get(kind_number, key), now);
                        }
                    })
                }
                Some(value) => transaction.upsert(kind_number, key, value, cells).map(drop),
            };
            if let Err(error) = written {
                let rest = changes.get(place + 1..).unwrap_or_default();
                return Err((error, bytes_needed(rest, transaction)));
            }
        }
        keeping.finish(transaction).map_err(|error| (error, 0))?;
        if let Some(epoch) = self.epoch.filter(|_| transaction.has_changed()) {
            transaction.set_epoch(epoch);
        }
        Ok(())
    }

    /// Keys of the replaced kinds that are not written again.
    fn stale(
        &self,
        changes: &[Change],
        transaction: &Transaction<'_, ZoneLock>,
    ) -> Vec<(u8, Vec<u8>)> {
        let mut written: HashSet<_> =
            changes.iter().map(|c| (c.kind as u8, Cow::Borrowed(c.key.as_slice()))).collect();
        let mut stale = Vec::new();
        let is_replaced: &dyn Fn(u8) -> bool = match &self.replaces {
            Replaces::Nothing => return stale,
            Replaces::Kinds(kinds) => &|number| kinds.iter().any(|kind| *kind as u8 == number),
            Replaces::Tables | Replaces::TablesBut(_) => {
                &|number| Kind::from_number(number).is_some_and(|kind| kind != Kind::General)
            }
        };
        if let Replaces::TablesBut(retained) = &self.replaces {
            let retained = Patch { remove: (*retained).clone(), ..Patch::default() };
            let mut keys = Vec::new();
            TABLES.iter().for_each(|table| (table.removals)(&retained, &mut keys));
            keys.push(Change::remove(Kind::Settings, ""));
            written.extend(keys.into_iter().map(|c| (c.kind as u8, Cow::Owned(c.key))));
        }
        transaction.for_each(|record| {
            let key = Cow::Borrowed(record.key());
            if is_replaced(record.kind()) && !written.contains(&(record.kind(), key)) {
                stale.push((record.kind(), record.key().to_vec()));
            }
        });
        stale
    }
}

fn is_empty_set(kind: Kind, value: &[u8]) -> bool {
    kind == Kind::Endpoints && EndpointsView::new(value).is_empty()
}

/// The answer to a write that began with `before` bytes free and was given up, `rest` bytes from its end.
fn refused(error: WriteError, before: usize, rest: usize, store: &Store) -> Answer {
    let WriteError::Full { needed_bytes, free_bytes } = error else {
        return Answer::problem(500, error.to_string());
    };
    // What there is for another try.
    let space = store.space();
    let free = space.free_bytes;
    // What it had taken, what it could not have, and the rest without its part of the index.
    let needed = before.saturating_sub(free_bytes) + needed_bytes + rest;
    // Free bytes may be scattered, which the figures alone would not tell.
    let scattered = match needed_bytes <= free_bytes {
        true => format!(", but not {needed_bytes} in one piece"),
        false => String::new(),
    };
    let problem = Problem {
        error: format!(
            "the zone is full: the write needs at least {needed} bytes and {free} are free{scattered}; make \
             ingress_zone larger"
        ),
        needed_bytes: Some(needed as u64),
        free_bytes: Some(free as u64),
        free_for_less_bytes: Some(space.free_for_less_bytes as u64),
        capacity_bytes: Some(space.capacity_bytes as u64),
        ..Problem::default()
    };
    Answer::refusal(507, problem)
}
