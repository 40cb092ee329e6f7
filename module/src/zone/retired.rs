//! Backends that a write removed, for the requests that were decided before it.
//!
//! REWRITE decides by one generation, and every attempt takes the newest endpoints. A request waits in between: for its
//! body, an auth server, an attempt that fails. So what a backend was when a write removed it, or its last endpoint, stays
//! under a kind of its own for [`KEPT_MS`]. Only attempts of requests whose decision is older than the removal find it.
//!
//! Shape:   a record a backend, and a queue of batches, one a write, so that later writes drop what is over without
//!          a search. No write is made for that alone: it would be a generation that no writer knows.
//! Units:   milliseconds of the monotonic clock.
//! Errors:  without room nothing is kept; [`LIMIT`] bounds what is.

use crate::zone::records::{RETIRED_ENDPOINTS, RETIRED_HEAD, cells, retired_value};
use oxigress_core::record::{BackendView, EndpointsView, Kind};
use oxigress_store::{Guard, KeyHash, Record, Transaction, WriteError, WriterLock};

const BACKEND: u8 = 14;
/// One kind with the backends: its keys are nothing, or a number that begins with a zero byte, and so never an id.
const QUEUE: u8 = BACKEND;
const _: () = assert!(Kind::ALL.len() <= BACKEND as usize, "these kinds are not the model's");

/// Longer than all attempts of a request take with nginx's own time-outs, shorter than addresses take to belong to
/// somebody else.
const KEPT_MS: u64 = 180_000;
/// What is kept takes at most this part of the zone.
const LIMIT: usize = 16;
/// Records that a write drops at most, beside as many as it keeps: a small write stays short.
const DROPPED: usize = 256;

fn head(value: &[u8]) -> Option<(u64, u64)> {
    let (generation, rest) = value.split_first_chunk()?;
    let (since, _) = rest.split_first_chunk()?;
    Some((u64::from_le_bytes(*generation), u64::from_le_bytes(*since)))
}

/// The endpoint set in a record, live or removed.
#[inline]
pub fn view<'g>(record: &Record<'g>) -> EndpointsView<'g> {
    match record.kind() {
        RETIRED_ENDPOINTS => EndpointsView::new(retired_value(record.value())),
        _ => EndpointsView::new(record.value()),
    }
}

fn find<'g>(guard: &'g Guard<'_>, kind: u8, id: &[u8], decided: u64) -> Option<Record<'g>> {
    // Asked first: mostly there is none.
    if decided == 0 || guard.count(kind) == 0 {
        return None;
    }
    let record = guard.get(kind, id)?;
    let (removed, _) = head(record.value())?;
    (decided < removed).then_some(record)
}

/// The endpoints of a backend that was removed after generation `decided`, and the hash of their record.
#[cold]
pub fn endpoints<'g>(
    guard: &'g Guard<'_>,
    id: &[u8],
    decided: u64,
) -> Option<(Record<'g>, KeyHash)> {
    Some((find(guard, RETIRED_ENDPOINTS, id, decided)?, guard.hash(RETIRED_ENDPOINTS, id)))
}

/// A backend that was removed after generation `decided`.
#[cold]
pub fn backend<'g>(guard: &'g Guard<'_>, id: &[u8], decided: u64) -> Option<BackendView<'g>> {
    let record = find(guard, BACKEND, id, decided)?;
    Some(BackendView::new(retired_value(record.value())))
}

/// What one write keeps.
pub struct Keeping {
    now: u64,
    is_kept: bool,
    kept: Vec<(u8, Vec<u8>)>,
    bytes: usize,
}

/// The batches there are, and the bytes of what they name.
#[derive(Default)]
struct Queue {
    first: u64,
    next: u64,
    bytes: u64,
}

impl Keeping {
    /// `is_kept` is false where there was no room: then all that was kept is dropped.
    pub fn new(now: u64, is_kept: bool) -> Self {
        Keeping { now, is_kept, kept: Vec::new(), bytes: 0 }
    }

    /// Called before a record is removed, or replaced by an empty one.
    pub fn keep<L: WriterLock>(
        &mut self,
        transaction: &mut Transaction<'_, L>,
        kind: u8,
        key: &[u8],
    ) -> Result<(), WriteError> {
        let to = match Kind::from_number(kind) {
            Some(Kind::Endpoints) => RETIRED_ENDPOINTS,
            Some(Kind::Backend) => BACKEND,
            _ => return Ok(()),
        };
        let Some(record) = transaction.get(kind, key).filter(|_| self.is_kept) else {
            return Ok(());
        };
        if to == RETIRED_ENDPOINTS && EndpointsView::new(record.value()).is_empty() {
            return Ok(());
        }
        let generation = transaction.base().1 + 1;
        let mut value = generation.to_le_bytes().to_vec();
        value.extend(self.now.to_le_bytes());
        value.extend(record.value());
        let before = transaction.space();
        if self.bytes + 2 * value.len() > before.capacity_bytes / LIMIT {
            return Ok(());
        }
        transaction.upsert(to, key, &value, cells)?;
        // With its cells and its part of the index.
        self.bytes += before.free_bytes.saturating_sub(transaction.space().free_bytes);
        self.kept.push((to, key.to_vec()));
        Ok(())
    }

    /// At the end of a write: drops what is over, and remembers what this one keeps.
    pub fn finish<L: WriterLock>(
        self,
        transaction: &mut Transaction<'_, L>,
    ) -> Result<(), WriteError> {
        let before = transaction.get(QUEUE, b"");
        if (before.is_none() && self.kept.is_empty()) || !transaction.has_changed() {
            return Ok(());
        }
        let mut queue = before.and_then(|it| Queue::decode(it.value())).unwrap_or_default();
        queue.drop_oldest(&self, transaction)?;
        if !self.kept.is_empty() {
            let batch = self.batch(transaction.base().1 + 1);
            transaction.upsert(QUEUE, &queue.next.to_be_bytes(), &batch, cells)?;
            queue.next += 1;
            queue.bytes += self.bytes as u64;
        }
        match queue.first == queue.next {
            true => transaction.remove(QUEUE, b"").map(drop),
            false => transaction.upsert(QUEUE, b"", &queue.encode(), cells).map(drop),
        }
    }

    /// Head, bytes, and then kind, length and key of each record.
    fn batch(&self, generation: u64) -> Vec<u8> {
        let mut batch = generation.to_le_bytes().to_vec();
        batch.extend(self.now.to_le_bytes());
        batch.extend((self.bytes as u64).to_le_bytes());
        for (kind, key) in &self.kept {
            batch.push(*kind);
            batch.extend((key.len() as u32).to_le_bytes());
            batch.extend(key);
        }
        batch
    }
}

impl Queue {
    fn decode(value: &[u8]) -> Option<Self> {
        let mut numbers = value.chunks_exact(8).filter_map(|it| it.try_into().ok());
        let mut number = || numbers.next().map(u64::from_le_bytes);
        Some(Queue { first: number()?, next: number()?, bytes: number()? })
    }

    fn encode(&self) -> Vec<u8> {
        [self.first, self.next, self.bytes].iter().flat_map(|it| it.to_le_bytes()).collect()
    }

    fn drop_oldest<L: WriterLock>(
        &mut self,
        write: &Keeping,
        transaction: &mut Transaction<'_, L>,
    ) -> Result<(), WriteError> {
        let limit = (transaction.space().capacity_bytes / LIMIT) as u64;
        let mut left = if write.is_kept { DROPPED + write.kept.len() } else { usize::MAX };
        while self.first < self.next && left > 0 {
            let key = self.first.to_be_bytes();
            let batch = transaction.get(QUEUE, &key).map(|it| it.value().to_vec());
            let batch = batch.unwrap_or_default();
            let (generation, since) = head(&batch).unwrap_or_default();
            let bytes = batch.get(RETIRED_HEAD..RETIRED_HEAD + 8).and_then(|it| it.try_into().ok());
            let bytes = bytes.map_or(0, u64::from_le_bytes);
            // A clock that began anew is another machine's start.
            let is_over = write.now < since || write.now - since >= KEPT_MS;
            let is_over = is_over || !write.is_kept || self.bytes + write.bytes as u64 > limit;
            if !is_over {
                return Ok(());
            }
            for (kind, key) in Names(batch.get(RETIRED_HEAD + 8..).unwrap_or_default()) {
                left = left.saturating_sub(1);
                // A later removal has a batch of its own.
                let kept = transaction.get(kind, key).and_then(|it| head(it.value()));
                if kept.is_some_and(|(removed, _)| removed == generation) {
                    transaction.remove(kind, key)?;
                }
            }
            transaction.remove(QUEUE, &key)?;
            self.first += 1;
            self.bytes = self.bytes.saturating_sub(bytes);
        }
        Ok(())
    }
}

/// The records that a batch names.
struct Names<'b>(&'b [u8]);

impl<'b> Iterator for Names<'b> {
    type Item = (u8, &'b [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (kind, rest) = self.0.split_first()?;
        let (length, rest) = rest.split_first_chunk()?;
        let (key, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        self.0 = rest;
        Some((*kind, key))
    }
}
