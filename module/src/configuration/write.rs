//! Writes: decode, check, change the store, publish.

use super::answer::tag;
use super::{Answer, Shared};
use crate::client_certificate;
use crate::ffi::{ZoneLock, check_pair, check_upstream, monotonic_milliseconds, random};
use crate::records::{cells, settle, welcome};
use oxigress_core::model::Snapshot;
use oxigress_core::record::{
    CertificateView, Change, Kind, decode_policies, delta_records, snapshot_records,
};
use oxigress_core::wire::native::{Patch, Problem, Whole};
use oxigress_core::wire::{DecodeError, compat, decode, pointer_step};
use oxigress_store::{Role, Store, Transaction, WriteError, Written};
use std::borrow::Cow;
use std::collections::HashSet;
use std::time::{Duration, Instant};

/// What the whole of a dialect's documents replaces.
const NATIVE: &[Kind] = &[
    Kind::Settings,
    Kind::Server,
    Kind::Backend,
    Kind::Endpoints,
    Kind::Certificate,
    Kind::Name,
    Kind::Passthrough,
    Kind::Port,
    Kind::Policies,
    Kind::Tls,
];
const BACKENDS: &[Kind] = &[Kind::Backend, Kind::Endpoints];
const SERVERS: &[Kind] = &[Kind::Certificate, Kind::Name];

/// `PUT /configuration`
pub fn put(body: &[u8], expected: Option<&str>, shared: &Shared<'_>) -> Option<Answer> {
    let (whole, ignored) = match decode::<Whole>(body) {
        Ok(decoded) => decoded,
        Err(error) => return Some(Answer::undecodable(error)),
    };
    let source = Source::Whole(snapshot_records(whole.snapshot));
    let tables = "/snapshot";
    let write = Write { source, replaces: NATIVE, expected, epoch: None, status: 200, tables };
    write.apply(shared, ignored)
}

/// `PATCH /configuration`
pub fn patch(body: &[u8], expected: Option<&str>, shared: &Shared<'_>) -> Option<Answer> {
    let (patch, ignored) = match decode::<Patch>(body) {
        Ok(decoded) => decoded,
        Err(error) => return Some(Answer::undecodable(error)),
    };
    if let Some(pointer) = patch.contradiction() {
        let error = DecodeError::new(pointer, "upserted and removed in one delta: say one of them");
        return Some(Answer::undecodable(error));
    }
    let source = Source::Delta(Box::new(patch));
    let tables = "/upsert";
    let write = Write { source, replaces: &[], expected, epoch: None, status: 200, tables };
    write.apply(shared, ignored)
}

/// ingress-nginx's `POST /configuration/backends`
pub fn backends(body: &[u8], shared: &Shared<'_>) -> Option<Answer> {
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
        let count = unresolved.len();
        answer.log.push(format!(
            "{count} host names among the endpoints are left out, since the module resolves none: {first}, …"
        ));
    }
    if let Some(first) = notes.first() {
        answer.log.push(format!("{} settings are not served as posted: {first}, …", notes.len()));
    }
    Some(answer)
}

/// ingress-nginx's `POST /configuration/servers`
pub fn servers(body: &[u8], shared: &Shared<'_>) -> Option<Answer> {
    let (servers, ignored) = match decode::<compat::Servers>(body) {
        Ok(decoded) => decoded,
        Err(error) => return Some(Answer::undecodable(error)),
    };
    let (certificates, names, left_out) = servers.into_model();
    let snapshot = Snapshot { certificates, names, ..Snapshot::default() };
    let mut answer = takeover(snapshot, SERVERS).apply(shared, ignored)?;
    if let Some(first) = left_out.first() {
        let (count, first) = (left_out.len(), first.escape_default());
        answer.log.push(format!("{count} hosts are no DNS names and left out: {first}, …"));
    }
    Some(answer)
}

/// ingress-nginx's `POST /configuration/general`: any JSON, kept as it is.
pub fn general(body: &[u8], shared: &Shared<'_>) -> Option<Answer> {
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
        replaces,
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
    /// Records of these kinds that the source does not write are removed.
    replaces: &'static [Kind],
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
    fn apply(self, shared: &Shared<'_>, ignored: usize) -> Option<Answer> {
        let start = Instant::now();
        loop {
            let answer = self.apply_as_writer(shared.write()?, shared.store, ignored);
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

    fn apply_as_writer(
        &self,
        mut transaction: Transaction<'_, ZoneLock>,
        store: &Store,
        ignored: usize,
    ) -> Answer {
        if store.role() == Role::Follower {
            return Answer::taken_over();
        }
        let live = store.live();
        if self.expected.is_some_and(|expected| expected != tag(&live)) {
            return Answer::conflict(&live);
        }
        let changes = match &self.source {
            Source::Whole(changes) => Cow::Borrowed(changes),
            Source::Delta(patch) => Cow::Owned(delta_records(patch, |kind, key| {
                transaction.get(kind as u8, key).map(|record| record.value().to_vec())
            })),
        };
        if let Err(error) = self.check(&changes, &transaction) {
            return Answer::undecodable(error);
        }
        if !self.replaces.is_empty() {
            // The last generation may still take its room beside this one.
            transaction.free_all();
        }
        let before = transaction.space().free_bytes;
        match self.change(&changes, &mut transaction) {
            Ok(()) => {}
            Err((error, rest)) => {
                drop(transaction);
                return refused(error, before, rest, store);
            }
        }
        match transaction.commit() {
            Ok(live) => Answer::applied(self.status, &live, ignored),
            Err(error) => refused(error, before, 0, store),
        }
    }

    /// Checks what OpenSSL has to understand, where it is new or changed: what is live was checked when it came.
    fn check(
        &self,
        changes: &[Change],
        transaction: &Transaction<'_, ZoneLock>,
    ) -> Result<(), DecodeError> {
        for Change { kind, key, value } in changes {
            let Some(value) = value else { continue };
            if !matches!(kind, Kind::Certificate | Kind::Tls | Kind::Policies) {
                continue;
            }
            if transaction.get(*kind as u8, key).is_some_and(|live| live.value() == value) {
                continue;
            }
            let checked = match kind {
                Kind::Tls => client_certificate::check(value),
                Kind::Policies => check_policies(value),
                _ => check_certificate(CertificateView(value)),
            };
            checked.map_err(|(field, error)| {
                let key = pointer_step(&String::from_utf8_lossy(key));
                let (tables, table) = (self.tables, kind.label());
                DecodeError::new(format!("{tables}/{table}/{key}{field}"), error)
            })?;
        }
        Ok(())
    }

    /// When it fails, answers the bytes of the records behind the one that did not fit.
    fn change(
        &self,
        changes: &[Change],
        transaction: &mut Transaction<'_, ZoneLock>,
    ) -> Result<(), (WriteError, usize)> {
        for (kind, key) in self.stale(changes, transaction) {
            transaction
                .remove(kind, &key)
                .map_err(|error| (error, bytes_needed(changes, transaction)))?;
        }
        let now = monotonic_milliseconds();
        for (place, Change { kind, key, value }) in changes.iter().enumerate() {
            let kind_number = *kind as u8;
            let written = match value {
                None => transaction.remove(kind_number, key).map(drop),
                Some(value) if *kind == Kind::Endpoints => {
                    settle(transaction.get(kind_number, key));
                    let written = transaction.upsert(kind_number, key, value, cells);
                    written.map(|written| {
                        if written == Written::Changed {
                            welcome(transaction.get(kind_number, key), now);
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
        if self.replaces.is_empty() {
            return Vec::new();
        }
        let written: HashSet<_> =
            changes.iter().map(|c| (c.kind as u8, c.key.as_slice())).collect();
        let mut stale = Vec::new();
        transaction.for_each(|record| {
            let is_replaced = self.replaces.iter().any(|kind| *kind as u8 == record.kind());
            if is_replaced && !written.contains(&(record.kind(), record.key())) {
                stale.push((record.kind(), record.key().to_vec()));
            }
        });
        stale
    }
}

/// The reason of a failure comes with the JSON pointer of the field, from the record on.
fn check_certificate(view: CertificateView<'_>) -> Result<(), (&'static str, String)> {
    check_pair(view.chain().unwrap_or_default(), view.key().unwrap_or_default())
        .map_err(|error| ("", error))
}

/// As [`check_certificate`].
fn check_policies(value: &[u8]) -> Result<(), (&'static str, String)> {
    let policies = decode_policies(value).ok_or(("", "these are no policies".to_owned()))?;
    policies.proxy.and_then(|proxy| proxy.tls).map_or(Ok(()), |tls| check_upstream(&tls))
}

/// Bytes of the records among `changes` that are not live already.
fn bytes_needed(changes: &[Change], transaction: &Transaction<'_, ZoneLock>) -> usize {
    let needed = changes.iter().filter_map(|Change { kind, key, value }| {
        let value = value.as_ref()?;
        let is_live = |value| transaction.get(*kind as u8, key).is_some_and(|r| r.value() == value);
        (!is_live(value)).then(|| Transaction::<ZoneLock>::bytes_needed(key, value))
    });
    needed.sum()
}

/// The answer to a write that began with `before` bytes free and was given up, `rest` bytes from its end.
fn refused(error: WriteError, before: usize, rest: usize, store: &Store) -> Answer {
    let WriteError::Full { needed_bytes, free_bytes } = error else {
        return Answer::problem(500, error.to_string());
    };
    // What there is for another try.
    let free = store.space().free_bytes;
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
        ..Problem::default()
    };
    Answer::refusal(507, problem)
}
