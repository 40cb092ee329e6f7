//! Chooses the endpoint of one attempt, among those that the backend has in the newest generation, by the backend's algorithm.
//!
//! An attempt goes to an endpoint that the request has not tried, that is not left out after failures and not busy
//! up to its limit; one that drains is taken only while all do, or when the others have failed.

use crate::request::route::EndpointSetRef;
use crate::route::live_endpoints;
use crate::system::memory::now_milliseconds;
use crate::system::memory::wall_clock_milliseconds;
use crate::worker::Worker;
use crate::zone::endpoints::{
    STATISTICS_OF_SET, TURN, is_drained, is_full, statistics, statistics_at,
};
use crate::zone::retired;
use oxigress_core::balancer::attempts::MAX_ATTEMPTS;
use oxigress_core::balancer::{Identity, cookie, pick, ring};
use oxigress_core::model::Ejection;
use oxigress_core::record::{Choice, EndpointView, EndpointsView, Kind};
use oxigress_store::{CellPlace, Guard, KeyHash, Record};
use std::cell::OnceCell;
use std::sync::atomic::Ordering::Relaxed;

/// An endpoint that another worker took up to its limit meanwhile is looked for again this often.
const MAX_TAKEN: u32 = 20;

/// What of the request selects its endpoint, beside the backend's algorithm.
#[derive(Clone, Copy, Debug, Default)]
pub enum SelectBy<'a> {
    /// Nothing in the request selects it: the backend's algorithm decides alone.
    #[default]
    None,
    /// The hash of the backend's hash key, as the request fills it in.
    Hash(u32),
    /// The key in the affinity cookie; `None`: the client sent none, or is to get another.
    Affinity(Option<&'a [u8]>),
}

/// The backend whose endpoint is wanted, and what the request says about the choice.
#[derive(Clone, Copy)]
pub struct Search<'a> {
    /// The id of the backend whose endpoint is wanted.
    pub backend: &'a [u8],
    /// Where its endpoint set was when the request was decided.
    pub endpoint_set: EndpointSetRef,
    /// The endpoints that this request has tried already, which are passed over.
    pub tried: &'a [Identity],
    /// What of the request selects the endpoint.
    pub key: SelectBy<'a>,
}

/// An attempt that counts as in flight at its endpoint, until [`outcome::end`](super::outcome::end) takes this value.
#[derive(Clone, Debug, Default)]
pub struct StartedAttempt {
    /// Hash of the backend's key.
    pub backend: u64,
    /// The endpoint's statistics.
    pub place: CellPlace,
    /// The set's algorithm chooses by latency.
    pub is_by_latency: bool,
    /// The endpoint's index in the set.
    pub index: u32,
    /// The number of the endpoint's statistics cell; another number there means that the endpoint was replaced.
    pub cell: u32,
    /// The key of the affinity cookie that the client is to get.
    pub new_key: Option<Box<[u8]>>,
}

/// Chooses an endpoint and counts the request as in flight there; `None` when none is left.
///
/// Looks the backend up anew, so that an attempt never goes to an endpoint that has left meanwhile. `copy`
/// takes what the attempt needs out of shared memory; it is told how many endpoints are left, this one
/// included.
#[inline]
pub fn endpoint<T>(
    worker: &Worker,
    search: &Search<'_>,
    copy: impl FnOnce(EndpointView<'_>, StartedAttempt, usize) -> T,
) -> Option<T> {
    let guard = worker.reader().read();
    let (record, hash) = newest_set(&guard, search.backend, search.endpoint_set)?;
    let view = retired::view(&record);
    let set = Set::new(view, record, search.tried, now_milliseconds());
    let started = set.begin(worker, &guard, &search.key, hash)?;
    let endpoint = view.get(started.index as usize)?;
    Some(copy(endpoint, started, set.untried()))
}

/// How many endpoints of the backend may still be tried, now.
pub fn untried(worker: &Worker, search: &Search<'_>) -> usize {
    let guard = worker.reader().read();
    let endpoint_set = newest_set(&guard, search.backend, search.endpoint_set);
    endpoint_set.map_or(0, |(record, _)| {
        let view = retired::view(&record);
        Set::new(view, record, search.tried, now_milliseconds()).untried()
    })
}

/// Whether an endpoint is open to an attempt, now.
pub fn is_any_open(worker: &Worker, search: &Search<'_>) -> bool {
    let guard = worker.reader().read();
    let Some((record, _)) = newest_set(&guard, search.backend, search.endpoint_set) else {
        return false;
    };
    let view = retired::view(&record);
    let set = Set::new(view, record, search.tried, now_milliseconds());
    (0..view.len()).any(|index| set.is_open(index))
}

/// The endpoints of a backend whose id is known by its hash only.
pub fn endpoints_by_hash<'g>(guard: &'g Guard<'_>, hash: u64) -> EndpointsView<'g> {
    let record = guard.find_hashed(KeyHash::from_bits(hash), Kind::Endpoints as u8);
    record.map_or_else(EndpointsView::default, |record| EndpointsView::new(record.value()))
}

/// The backend's newest endpoint set, with the hash of its key; one that was removed since for a request that was decided before.
#[inline]
fn newest_set<'g>(
    guard: &'g Guard<'_>,
    backend: &[u8],
    endpoint_set: EndpointSetRef,
) -> Option<(Record<'g>, u64)> {
    let kind = Kind::Endpoints as u8;
    let hash = endpoint_set.hash.unwrap_or_else(|| guard.hash(kind, backend));
    if let Some(record) = guard.at(endpoint_set.place) {
        return Some((record, hash.to_bits()));
    }
    let live = guard.get_hashed(hash, kind, backend);
    if let Some(record) = live.filter(|live| !EndpointsView::new(live.value()).is_empty()) {
        return Some((record, hash.to_bits()));
    }
    let removed = retired::endpoints(guard, backend, endpoint_set.place.generation());
    let (record, hash) = removed.or_else(|| Some((live?, hash)))?;
    Some((record, hash.to_bits()))
}

/// Whether an endpoint that the request has not tried is passed over because it is busy up to its limit.
pub fn is_limit_reached(search: &Search<'_>, worker: &Worker) -> bool {
    let guard = worker.reader().read();
    let Some((record, _)) = newest_set(&guard, search.backend, search.endpoint_set) else {
        return false;
    };
    let view = retired::view(&record);
    let set = Set::new(view, record, search.tried, now_milliseconds());
    (0..view.len()).any(|index| !set.is_tried(index) && set.is_full(index))
}

/// Updates `endpoint_set` from the newest generation. Returns whether the backend's record has an affinity cookie, a hash key
/// or alternatives.
#[inline]
pub fn refresh_endpoint_set(
    worker: &Worker,
    guard: &Guard<'_>,
    backend: &[u8],
    endpoint_set: &mut EndpointSetRef,
) -> bool {
    let known = match endpoint_set.hash {
        Some(_) => None,
        None => live_endpoints(worker, guard, backend)
            .filter(|live| !EndpointsView::new(live.value()).is_empty())
            .map(|live| (live, live.key_hash().to_bits())),
    };
    let Some((record, hash)) = known.or_else(|| newest_set(guard, backend, *endpoint_set)) else {
        return false;
    };
    let has_more = retired::view(&record).has_more();
    endpoint_set.is_plain = !has_more;
    if record.kind() == Kind::Endpoints as u8 {
        (endpoint_set.hash, endpoint_set.place) =
            (Some(KeyHash::from_bits(hash)), guard.place(&record));
    }
    has_more
}

/// The endpoints of a backend, with what decides which of them are open to this attempt.
struct Set<'g> {
    view: EndpointsView<'g>,
    record: Record<'g>,
    tried: &'g [Identity],
    now: u64,
    ejection: Option<Ejection>,
    limit: u32,
    slow_start_ms: u32,
    /// Whether any endpoint may be closed; otherwise all are open, without a look at each.
    is_checked: bool,
    is_panic: OnceCell<bool>,
}

impl<'g> Set<'g> {
    #[inline]
    fn new(view: EndpointsView<'g>, record: Record<'g>, tried: &'g [Identity], now: u64) -> Self {
        let (ejection, limit) = (view.ejection(), view.max_in_flight());
        let is_checked =
            !tried.is_empty() || limit != 0 || ejection.is_some() || view.is_draining();
        let slow_start_ms = view.slow_start_ms();
        let is_panic = OnceCell::new();
        Set { view, record, tried, now, ejection, limit, slow_start_ms, is_checked, is_panic }
    }

    #[inline]
    fn is_open(&self, index: usize) -> bool {
        !self.is_checked || self.is_open_on_closer_look(index)
    }

    fn is_open_on_closer_look(&self, index: usize) -> bool {
        !self.is_tried(index)
            && !self.is_drained(index)
            && !self.is_full(index)
            && (self.ejection.is_none() || !self.is_ejected(index) || self.is_panic())
    }

    fn is_full(&self, index: usize) -> bool {
        is_full(&self.record, index, self.limit)
    }

    fn is_ejected(&self, index: usize) -> bool {
        statistics(&self.record, index).is_some_and(|cell| cell.is_ejected(self.now))
    }

    fn is_tried(&self, index: usize) -> bool {
        let endpoint = self.view.get(index);
        !self.tried.is_empty() && endpoint.is_some_and(|e| self.tried.contains(e.identity()))
    }

    fn is_drained(&self, index: usize) -> bool {
        is_drained(self.view, index)
    }

    /// Whether the endpoint drains, and may take a request for which no other is left.
    fn is_last(&self, index: usize) -> bool {
        self.is_drained(index) && !self.is_tried(index) && !self.is_full(index)
    }

    #[cold]
    fn last(&self) -> Option<(usize, Option<Vec<u8>>)> {
        if self.tried.is_empty() {
            return None;
        }
        Some(((0..self.view.len()).find(|index| self.is_last(*index))?, None))
    }

    /// So many are left out that the rest could not bear it: then none is.
    fn is_panic(&self) -> bool {
        *self.is_panic.get_or_init(|| {
            let all = self.view.len();
            let left = (0..all).filter(|index| !self.is_ejected(*index)).count();
            let percent = self.ejection.map_or(0, |ejection| usize::from(ejection.panic_percent));
            left * 100 < percent * all
        })
    }

    /// How many may be tried; before the first attempt failed nobody counts which of them are closed.
    #[inline]
    fn untried(&self) -> usize {
        if self.tried.is_empty() {
            return self.view.len();
        }
        let may_be = |index: &usize| self.is_open_on_closer_look(*index) || self.is_last(*index);
        // No request makes more attempts.
        (0..self.view.len()).filter(may_be).take(MAX_ATTEMPTS + 1).count()
    }

    #[inline]
    fn begin(
        &self,
        worker: &Worker,
        guard: &'g Guard<'_>,
        key: &SelectBy<'_>,
        backend: u64,
    ) -> Option<StartedAttempt> {
        // Another worker may take the last place of the limit meanwhile.
        for _ in 0..=MAX_TAKEN {
            let (index, new_key) = self.pick(worker, key).or_else(|| self.last())?;
            let (place, cell) = statistics_at(guard, &self.record, index)?;
            if let Some(cell) = cell.begin(self.limit) {
                let index = u32::try_from(index).ok()?;
                let is_by_latency = matches!(self.view.choice(), Choice::Ewma | Choice::P2c);
                return Some(StartedAttempt {
                    backend,
                    place,
                    is_by_latency,
                    index,
                    cell,
                    new_key: new_key.map(Vec::into_boxed_slice),
                });
            }
        }
        None
    }

    #[inline]
    fn pick(&self, worker: &Worker, key: &SelectBy<'_>) -> Option<(usize, Option<Vec<u8>>)> {
        match (self.view.choice(), *key) {
            (Choice::Hash, SelectBy::Hash(hash)) => Some((self.by_ring(hash)?, None)),
            (Choice::Subset, SelectBy::Hash(hash)) => Some((self.by_subset(worker, hash)?, None)),
            (Choice::Balanced, SelectBy::Affinity(Some(key))) => {
                Some((self.by_ring(ring::hash(key))?, None))
            }
            (Choice::Balanced, SelectBy::Affinity(None)) => self.by_new_key(worker),
            (Choice::Persistent, SelectBy::Affinity(key)) => self.by_endpoint(worker, key),
            (choice, _) => {
                let index = self.by_algorithm(worker, choice).or_else(|| self.first_open());
                Some((index?, None))
            }
        }
    }

    #[inline]
    fn by_algorithm(&self, worker: &Worker, choice: Choice) -> Option<usize> {
        if self.slow_start_ms == 0 {
            return self.algorithm(worker, choice, self);
        }
        let fresh = Fresh { set: self, worker };
        self.algorithm(worker, choice, &fresh).or_else(|| self.algorithm(worker, choice, self))
    }

    /// What other workers count may change while an algorithm looks at it twice, so that it finds nobody where
    /// there is somebody.
    #[cold]
    fn first_open(&self) -> Option<usize> {
        (0..self.view.len()).find(|index| self.is_open(*index))
    }

    #[inline]
    fn algorithm(
        &self,
        worker: &Worker,
        choice: Choice,
        candidates: &impl pick::Candidates,
    ) -> Option<usize> {
        match choice {
            Choice::Ewma => pick::ewma(candidates, &mut || worker.random()),
            Choice::P2c => pick::p2c(candidates, &mut || worker.random()),
            Choice::LeastConn => pick::least_conn(candidates, self.turn()),
            _ => pick::round_robin(candidates, self.turn()),
        }
    }

    /// All workers count together: exact turns, for one add on a line that only this backend uses.
    #[inline]
    fn turn(&self) -> u64 {
        let words = self.record.cell(STATISTICS_OF_SET).and_then(|words| words.get(TURN));
        let Some(turn) = words else { return 0 };
        if self.tried.is_empty() {
            return turn.fetch_add(1, Relaxed);
        }
        // A retry takes no turn: beside one that is dead, each request would begin with it.
        turn.load(Relaxed).wrapping_sub(1)
    }

    fn by_ring(&self, hash: u32) -> Option<usize> {
        let nodes = self.view.len() as u32;
        let is_open = |index| self.is_open(index as usize);
        ring::find_open(self.view.ring(), hash, nodes, is_open).map(|index| index as usize)
    }

    fn by_subset(&self, worker: &Worker, hash: u32) -> Option<usize> {
        let (count, size) = (self.view.len(), self.view.subset_size().max(1));
        let set = ring::find(self.view.ring(), hash)? as usize;
        let start = pick::below(size as u64, worker.random()) as usize;
        let slots = (start..size).chain(0..start);
        let mut members = slots.map(|slot| ring::subset_member(set, slot, count, size));
        // A subset that is closed is no reason to fail.
        members.find(|index| self.is_open(*index)).or_else(|| self.at_random(worker))
    }

    fn at_random(&self, worker: &Worker) -> Option<usize> {
        pick::round_robin(self, worker.random())
    }

    /// A new key whose own endpoint is open.
    fn by_new_key(&self, worker: &Worker) -> Option<(usize, Option<Vec<u8>>)> {
        let mut random = || worker.random();
        let (now, pid) = (wall_clock_milliseconds(), std::process::id());
        let leads_to = |hash| {
            let index = ring::find(self.view.ring(), hash)? as usize;
            self.is_open(index).then_some(index)
        };
        if let Some((key, index)) = cookie::draw_balanced_key(now, pid, &mut random, leads_to) {
            return Some((index, Some(key.into_bytes())));
        }
        // Nearly all are closed: the key's own endpoint is not this one, which serves meanwhile.
        let key = cookie::balanced_key(now, 0, pid, worker.random());
        Some((self.by_ring(ring::hash(key.as_bytes()))?, Some(key.into_bytes())))
    }

    /// The endpoint that the key names; another one, and its key, if it is gone or drains.
    fn by_endpoint(&self, worker: &Worker, key: Option<&[u8]>) -> Option<(usize, Option<Vec<u8>>)> {
        let named = key.and_then(|key| self.view.by_affinity_key(key));
        match named {
            Some(index) if self.is_open(index) => Some((index, None)),
            // It failed or is busy: the client comes back to it.
            Some(index) if !self.is_drained(index) => Some((self.at_random(worker)?, None)),
            _ => {
                let index = self.at_random(worker)?;
                Some((index, self.view.affinity_key(index).map(<[u8]>::to_vec)))
            }
        }
    }
}

impl pick::Candidates for Set<'_> {
    #[inline]
    fn count(&self) -> usize {
        self.view.len()
    }

    #[inline]
    fn is_open(&self, index: usize) -> bool {
        Set::is_open(self, index)
    }

    fn weight(&self, index: usize) -> u32 {
        self.view.get(index).map_or(1, |endpoint| endpoint.weight())
    }

    fn in_flight(&self, index: usize) -> u32 {
        statistics(&self.record, index).map_or(0, |cell| cell.in_flight())
    }

    fn latency(&self, index: usize) -> f32 {
        statistics(&self.record, index).map_or(0.0, |cell| cell.latency(self.now))
    }

    #[inline]
    fn total_weight(&self) -> u64 {
        u64::from(self.view.total_weight())
    }
}

/// A [`Set`] whose new endpoints are open for a part of the requests only.
struct Fresh<'s, 'g> {
    set: &'s Set<'g>,
    worker: &'s Worker,
}

impl pick::Candidates for Fresh<'_, '_> {
    fn count(&self) -> usize {
        self.set.count()
    }

    fn is_open(&self, index: usize) -> bool {
        let share = statistics(&self.set.record, index)
            .map_or(1.0, |cell| cell.share(self.set.now, self.set.slow_start_ms));
        let is_lucky =
            share >= 1.0 || (self.worker.random() >> 40) as f32 / (1 << 24) as f32 <= share;
        is_lucky && self.set.is_open(index)
    }

    fn weight(&self, index: usize) -> u32 {
        self.set.weight(index)
    }

    fn in_flight(&self, index: usize) -> u32 {
        self.set.in_flight(index)
    }

    fn latency(&self, index: usize) -> f32 {
        self.set.latency(index)
    }

    fn total_weight(&self) -> u64 {
        self.set.total_weight()
    }
}
