//! Policies as a worker uses them: read from their record once, and kept with each request that they hold for.
//!
//! A record is JSON, which nobody reads per request: the first request of a rule that names it makes a
//! [`Compiled`], later ones find that under the record's id and the generation that wrote it. A request holds its
//! compiled form from REWRITE to the end, so that it never mixes two.

use crate::access::Rules;
use crate::access::limits::Limiter;
use crate::headers::responses;
use crate::route::location::Locations;
use crate::system::log;
use crate::worker::Worker;
use crate::zone::records::Held;
use crate::zone::records::Identity;
use oxigress_core::cache;
use oxigress_core::gateway::CompiledPolicies;
use oxigress_core::model::policy::Policies;
use oxigress_core::policy::cors::Origins;
use oxigress_core::record::{Kind, decode_policies, has_all};
use oxigress_store::Guard;
use std::cell::{OnceCell, RefCell};
use std::hash::BuildHasherDefault;
use std::rc::Rc;

/// What one worker keeps compiled, about: records are small, and most rules share theirs.
const MAX_BYTES: usize = 32 * 1024 * 1024;

/// Policies of a rule, with what is worked out of them once.
pub struct Compiled {
    /// As they were written.
    pub source: Policies,
    /// nginx's own settings for requests, by what the endpoint speaks.
    pub locations: Locations,
    /// What responses say.
    pub responses: responses::Compiled,
    /// How its limits are counted, worked out when first asked for.
    pub limiter: OnceCell<Limiter>,
    /// Who may come in.
    pub access: Option<Rules>,
}

impl Compiled {
    fn new(source: Policies) -> Self {
        let responses = responses::Compiled::new(&source);
        let access = source.access.as_ref().map(Rules::new);
        let limiter = OnceCell::new();
        Compiled { source, locations: Locations::default(), responses, access, limiter }
    }
}

impl CompiledPolicies for Compiled {
    fn source(&self) -> &Policies {
        &self.source
    }

    fn origins(&self) -> Option<&Origins> {
        self.responses.origins()
    }
}

/// Compiled policies of one worker.
pub struct Cache {
    entries: RefCell<Entries>,
    /// Nobody holds them any more. nginx still looks at a location's settings when it has freed the request
    /// (`ngx_http_set_keepalive`), so they stay until the event loop's next turn.
    ended: RefCell<Vec<Rc<Compiled>>>,
}

impl Default for Cache {
    fn default() -> Self {
        Cache { entries: RefCell::new(Entries::new(MAX_BYTES)), ended: RefCell::default() }
    }
}

impl Cache {
    /// A request has ended that held them.
    pub fn release(&self, policies: Rc<Compiled>) {
        if Rc::strong_count(&policies) > 1 {
            return;
        }
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
type Entries = cache::Cache<Entry, u64, BuildHasherDefault<Identity>>;

struct Entry {
    id: Box<[u8]>,
    compiled: Rc<Compiled>,
}

/// The policies of this id; `None`: there are none, or none that can be read, or a bundle that they name is not there.
pub fn find(worker: &Worker, guard: &Guard<'_>, id: &[u8]) -> Option<Rc<Compiled>> {
    let kind = Kind::Policies as u8;
    let hash = guard.hash(kind, id);
    let record = guard.get_hashed(hash, kind, id)?;
    let mut entries = worker.policies().entries.try_borrow_mut().ok()?;
    let found = entries.find(&hash.to_bits(), record.generation());
    if let Some(entry) = found.filter(|entry| *entry.id == *id) {
        // A bundle may have gone since.
        let compiled = Some(entry.compiled.clone());
        return compiled.filter(|compiled| has_all(&Held(guard), compiled.source.bundles()));
    }
    // It was checked before it was published.
    let source = decode_policies(record.value())?;
    if !has_all(&Held(guard), source.bundles()) {
        return None;
    }
    let compiled = Rc::new(Compiled::new(source));
    let refused = compiled.access.as_ref().map_or(0, Rules::refused_passwords);
    if refused > 0 {
        let shown = id.escape_ascii();
        log::warn(format_args!(
            "ingress: {refused} entries of the password file of policies \"{shown}\" are left out: \
             their hash is unknown or costs too much"
        ));
    }
    // nginx's structs beside the record. A bundle is shared, and there once at most.
    let bytes = 4 * record.value().len() + Locations::BYTES;
    let entry = Entry { id: id.into(), compiled: compiled.clone() };
    entries.insert(hash.to_bits(), record.generation(), entry, bytes);
    Some(compiled)
}
