//! Policies as a worker uses them: read from their record once, and kept with each request that they hold for.
//!
//! A record is JSON, which nobody reads per request: the first request of a rule that names it makes a
//! [`Compiled`], later ones find that under the record's id and the generation that wrote it. A request holds its
//! compiled form from REWRITE to the end, so that it never mixes two.

use crate::worker::Worker;
use crate::worker::parts::{Features, Has, OfPolicies, Parts};
use crate::zone::records::GuardedRecords;
use crate::zone::records::IdentityHasher;
use oxigress_core::cache;
use oxigress_core::cache::recent::Recent;
use oxigress_core::decision::CompiledPolicies;
use oxigress_core::model::policy::Policies;
use oxigress_core::policy::cors::Origins;
use oxigress_core::record::{Kind, decode_policies, has_all};
use oxigress_store::{Guard, RecordPlace};
use std::cell::RefCell;
use std::hash::BuildHasherDefault;
use std::rc::Rc;

/// What one worker keeps compiled, about: records are small, and most rules share theirs.
const MAX_BYTES: usize = 32 * 1024 * 1024;

/// What the parts of one take beside its record, about: nginx's structs.
const PART_BYTES: usize = 4096;

/// Policies of a rule, with what is worked out of them once.
pub struct Compiled {
    /// As they were written.
    pub source: Policies,
    /// Who may read across origins; `None`: the policies do not say.
    origins: Option<Origins>,
    uses_definitions: bool,
    parts: OfPolicies,
}

impl Compiled {
    fn new(id: &[u8], source: Policies) -> Self {
        let origins = source.cors.as_ref().map(Origins::of);
        let parts = Features::of_policies(id, &source);
        let uses_definitions = source.uses_definitions();
        Compiled { source, origins, uses_definitions, parts }
    }

    /// What a feature has worked out of them.
    #[inline]
    pub fn part<P>(&self) -> &P
    where
        OfPolicies: Has<P>,
    {
        self.parts.part()
    }
}

impl CompiledPolicies for Compiled {
    fn source(&self) -> &Policies {
        &self.source
    }

    fn origins(&self) -> Option<&Origins> {
        self.origins.as_ref()
    }

    #[inline]
    fn uses_definitions(&self) -> bool {
        self.uses_definitions
    }
}

/// Compiled policies of one worker.
pub struct Cache {
    entries: RefCell<Entries>,
    /// Where the records of policies stand that were asked for lately.
    places: Recent<RecordPlace>,
    /// The last request that held them has ended, or they have left the cache. nginx still looks at a location's settings when
    /// it has freed the request (`ngx_http_set_keepalive`), so they stay until the event loop's next turn.
    ended: RefCell<Vec<Rc<Compiled>>>,
}

impl Default for Cache {
    fn default() -> Self {
        Cache {
            entries: RefCell::new(Entries::new(MAX_BYTES)),
            places: Recent::default(),
            ended: RefCell::default(),
        }
    }
}

impl Cache {
    /// A request has ended that held them.
    pub fn release(&self, policies: Rc<Compiled>) {
        // Others hold them, or the cache does, which brings them here when they leave it.
        if Rc::strong_count(&policies) > 1 {
            return;
        }
        self.keep_for_this_turn(policies);
    }

    fn keep_for_this_turn(&self, policies: Rc<Compiled>) {
        match self.ended.try_borrow_mut() {
            Ok(mut ended) => ended.push(policies),
            // Better kept for ever than freed too early.
            Err(_) => std::mem::forget(policies),
        }
    }

    /// Frees what nobody holds. Called by a timer, when nginx is done with the requests of earlier events.
    pub fn free_ended(&self) {
        let ended = self.ended.try_borrow_mut().map(|mut ended| std::mem::take(&mut *ended));
        drop(ended);
    }
}

/// Compiled policies by the keyed hash of their id.
type Entries = cache::Cache<Entry, u64, BuildHasherDefault<IdentityHasher>>;

struct Entry {
    id: Box<[u8]>,
    compiled: Rc<Compiled>,
}

/// The policies of this id; `None`: there are none, or none that can be read, or a bundle that they name is not there.
pub fn find(worker: &Worker, guard: &Guard<'_>, id: &[u8]) -> Option<Rc<Compiled>> {
    let cache = worker.part::<Cache>();
    let place = cache.places.find(guard.generation(), id, || {
        let record = guard.get(Kind::Policies as u8, id);
        record.map_or_else(RecordPlace::default, |record| guard.place(&record))
    });
    let record = guard.at(place)?;
    let hash = record.key_hash();
    let mut entries = cache.entries.try_borrow_mut().ok()?;
    let found = entries.find(&hash.to_bits(), record.generation());
    if let Some(entry) = found.filter(|entry| *entry.id == *id) {
        // A bundle may have gone since.
        let compiled = Some(entry.compiled.clone());
        return compiled
            .filter(|compiled| has_all(&GuardedRecords(guard), compiled.source.bundles()));
    }
    // It was checked before it was published.
    let source = decode_policies(record.value())?;
    if !has_all(&GuardedRecords(guard), source.bundles()) {
        return None;
    }
    let compiled = Rc::new(Compiled::new(id, source));
    // A bundle is shared, and there once at most.
    let bytes = 4 * record.value().len() + PART_BYTES;
    let entry = Entry { id: id.into(), compiled: compiled.clone() };
    entries.insert_and(hash.to_bits(), record.generation(), entry, bytes, |entry| {
        cache.keep_for_this_turn(entry.compiled);
    });
    Some(compiled)
}
