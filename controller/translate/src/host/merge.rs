//! The claims on one host to its rules: the oldest claim to a path wins, canaries join the winner.
//!
//! Source:  ingress-nginx's controller. Order: creationTimestamp, then namespace and name,
//!          both ascending (the reference sorts equal timestamps descending).

mod backends;
mod exposed;
mod ids;
mod paths;
mod server;
mod tls;

pub use ids::Ids;

use crate::Options;
use crate::annotation::Common;
use crate::backend::spec::{BackendSpec, HostBackend, SpecOwners};
use crate::claim::backend_ref::BackendRef;
use crate::host::aliases::{self, MAX_COPIED_RULES};
use crate::host::guests::{GuestRoom, MAX_BYTES, MAX_EXPRESSIONS, MAX_PATHS};
use crate::host::owner::{GatewayClaim, HostView};
use crate::ingress::{Claim, Claims};
use oxigress_core::model::policy::{Policies, PolicyId, Redirect, Template, TlsPolicy};
use oxigress_core::model::{
    BackendId, BundleId, HostPattern, MAX_RULES, Origin, PathPattern, Policy, Rule, Server,
    WELL_KNOWN,
};
use oxigress_objects::verdict::Note;
use oxigress_objects::{Key, Kind, ObjectRef};
use oxigress_settings::Settings;
use server::OfServer;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What becomes of one host.
#[derive(Debug, Default)]
pub struct MergedHost {
    /// Its rules; None if only canaries claim it.
    pub server: Option<Server>,
    /// Where its TLS connections go unread.
    pub passthrough: Option<BackendId>,
    /// Which backends its rules lead to.
    pub backends: BTreeSet<HostBackend>,
    /// The specifications of these backends.
    pub backend_specs: BTreeMap<BackendId, BackendSpec>,
    /// What is decided per request, by the ids that its rules name.
    pub policies: BTreeMap<PolicyId, Arc<Policies>>,
    /// How TLS is spoken with clients of the host.
    pub tls: Option<TlsPolicy>,
    /// Backends of URLs that its policies name, and the Ingresses that do.
    pub urls: BTreeSet<(BackendId, Key)>,
    /// What there is to say to those who lost.
    pub notes: Vec<(ObjectRef, Note)>,
    /// What there is to say to other namespaces than the owner's about what is not theirs.
    pub refusals: Vec<(Key, Note)>,
}

impl MergedHost {
    /// The bundles that its policies name.
    pub fn bundles(&self) -> BTreeSet<BundleId> {
        let policies = self.policies.values().flat_map(|policies| policies.bundles());
        let tls = self.tls.iter().flat_map(TlsPolicy::bundles);
        tls.chain(policies).cloned().collect()
    }
}

/// `view` are the claims on `source`; `host` is the same, or an alias of it. `unnamed_route`: the oldest route without host names.
pub fn merge(
    host: &HostPattern,
    source: &HostPattern,
    view: &HostView<'_>,
    (settings, common): (&Settings, &Common),
    spec_owners: &SpecOwners,
    (options, unnamed_route): (&Options, Option<&GatewayClaim>),
) -> MergedHost {
    let unnamed_owner = tls::unnamed_owner(view, options, unnamed_route);
    let is_unnamed = *host == HostPattern::default_host();
    let has_regex = || view.owner.settings().any(|(_, settings)| settings.has_regex);
    let mut merging = Merge {
        merged: MergedHost { refusals: view.refusals(host), ..MergedHost::default() },
        host,
        view,
        is_regex_host: options.regex_per_host && has_regex(),
        room: GuestRoom::of(room(source, view), source, view),
        lost_root: None,
        has_open_well_known: false,
        full: BTreeSet::new(),
        unclosed: BTreeMap::new(),
        crowded: BTreeSet::new(),
        closed: Arc::new(paths::closed()),
        has_lists: OfServer::new(&view.owner, common).has_lists(),
        unprotected: view.unprotected(),
        tls_of: unnamed_owner.filter(|namespace| is_unnamed && view.is_foreign_to(namespace)),
        winners: BTreeMap::new(),
        settings,
        common,
        spec_owners,
    };
    merging.claim_all(source);
    merging.name_aliases_left_out(source);
    if view.has_owner() {
        merging.complete(view.owner.first());
    }
    merging.close_exposed(source);
    for by in &view.canaries {
        // One that is refused would join a wider path than it means.
        let claims = by.claims_on(source);
        for claim in claims.iter().filter(|claim| !claim.is_refused) {
            merging.join(by, claim);
        }
    }
    merging.share_upstream_tls();
    merging.about_tls();
    if options.ssl_passthrough {
        merging.pass_through();
    }
    merging.finish(!view.mains.is_empty())
}

/// How many paths other namespaces may add: those of the owner are kept too, and each alias has all of them.
fn room(source: &HostPattern, view: &HostView<'_>) -> usize {
    let hosts = view.owner.aliases().map_or(0, |(_, all)| all.len()) + 1;
    let most = (MAX_RULES - KEPT_PLACES).min(MAX_COPIED_RULES / hosts);
    most.saturating_sub(view.owner.paths(source)).min(MAX_PATHS)
}

/// The server of a host that only sends its clients to `owner`, as the Ingress `by` says.
pub fn redirected(owner: &HostPattern, by: &Key, settings: &Settings) -> MergedHost {
    let mut merged = MergedHost::default();
    let Ok(location) = Template::parse(format!("$scheme://{owner}")) else { return merged };
    let code = settings.http_redirect_code.into();
    let redirect = Some(Redirect { code, location, appends_target: true });
    let policies = Arc::new(Policies { redirect, ..Policies::default() });
    let rule = Rule {
        path: root(),
        backend: None,
        origin: Origin {
            namespace: by.namespace.to_string(),
            ingress: by.name.to_string(),
            path: "/".into(),
            ..Origin::default()
        },
        policy: Policy::default(),
        policies: Ids::default().of(&policies),
        selection: None,
    };
    merged.policies.extend(rule.policies.clone().map(|id| (id, policies)));
    merged.server = Some(Server::of(vec![rule]));
    merged
}

pub fn root() -> PathPattern {
    PathPattern::Prefix(String::new())
}

/// What lies below [`WELL_KNOWN`] where the owner of a host serves nothing there: requests come to the default backend.
pub fn open_well_known() -> Rule {
    Rule {
        path: PathPattern::Prefix(WELL_KNOWN.into()),
        backend: None,
        origin: Origin { path: "/".into(), ..Origin::default() },
        policy: Policy { yields: true, ..Policy::default() },
        policies: None,
        selection: None,
    }
}

/// Rules that are no claims: the root, its redirect, and the owner's below [`WELL_KNOWN`].
const KEPT_PLACES: usize = 3;
#[cfg(test)]
thread_local! {
    /// Paths that were looked at.
    static WORK: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}
/// What stands for something else in an expression, but for the dot, which may as well be one.
const EXPRESSIONS: [char; 13] = ['\\', '^', '$', '*', '+', '?', '(', ')', '[', ']', '{', '}', '|'];

struct Merge<'a> {
    merged: MergedHost,
    host: &'a HostPattern,
    view: &'a HostView<'a>,
    is_regex_host: bool,
    /// What other namespaces may still add.
    room: GuestRoom<'a>,
    /// The owner's claim of the root where another namespace's is older.
    lost_root: Option<(&'a Claims, &'a Claim)>,
    /// Another namespace has the root of an owner that has no Ingress.
    has_open_well_known: bool,
    /// Ingresses for whose further paths there is no place.
    full: BTreeSet<&'a Key>,
    /// Paths that have no place, or only as far as their first letters go.
    unclosed: BTreeMap<&'a str, Vec<exposed::Lost<'a>>>,
    /// Ingresses that have more of these than are looked at one by one.
    crowded: BTreeSet<&'a Key>,
    /// What answers 503.
    closed: Arc<Policies>,
    /// Paths without lists of networks of their own have those of the host, or of all hosts.
    has_lists: bool,
    /// Ingresses of other namespaces that restrict whole hosts, which nothing of this one honours.
    unprotected: BTreeSet<&'a Key>,
    /// Only this namespace says how TLS is spoken with clients that name no host, or an unknown one.
    tls_of: Option<&'a str>,
    winners: BTreeMap<PathPattern, Winner<'a>>,
    settings: &'a Settings,
    common: &'a Common,
    spec_owners: &'a SpecOwners,
}

/// Who has a path, and the canaries that joined.
struct Winner<'a> {
    by: &'a Claims,
    backend_ref: Option<&'a BackendRef>,
    path: &'a str,
    policy: Policy,
    policies: Arc<Policies>,
    canaries: Vec<(&'a Claims, &'a BackendRef)>,
    /// The whole host is closed.
    closer: Option<&'a Claims>,
}

impl<'a> Merge<'a> {
    /// Takes what Ingresses claim on a host, and closes what claims begin with that are refused.
    fn claim_all(&mut self, source: &HostPattern) {
        let view = self.view;
        for is_refused in [false, true] {
            for by in &view.mains {
                let closes = view.owner.has(by) || self.restricts(by);
                let claims = by.claims_on(source).iter().filter(|_| !is_refused || closes);
                for claim in claims.filter(|claim| claim.is_refused == is_refused) {
                    match is_refused {
                        false => self.claim(by, claim),
                        true => self.refuse_below(by, claim),
                    }
                }
            }
        }
    }

    fn name_aliases_left_out(&mut self, source: &HostPattern) {
        let Some((by, aliases)) = self.view.owner.aliases() else { return };
        let left_out = aliases.len() - aliases::served(source, &self.view.owner).len();
        if left_out > 0 {
            let message = format!(
                "annotation server-alias: {left_out} of {} hosts left out, since each has all paths of {source} and all \
                 together have at most {MAX_COPIED_RULES}: name fewer hosts or paths",
                aliases.len()
            );
            self.say(by, Note::rejected(message));
        }
    }

    fn claim(&mut self, by: &'a Claims, claim: &'a Claim) {
        // Said once, at the path for which there was no place: what is refused costs nothing for each alias.
        if self.full.contains(&by.key) && claim.pattern != root() {
            return;
        }
        #[cfg(test)]
        WORK.set(WORK.get() + 1);
        let pattern = self.pattern(claim);
        let place = self.place(&pattern);
        if let Some(winner) = self.winners.get(&pattern) {
            let winner = winner.by;
            return self.lose(by, claim, &place, winner);
        }
        if !self.view.may_have(by, claim) {
            let message = format!(
                "{place} is reserved for namespace {}, which owns the host, because paths below {WELL_KNOWN}/ can be used to \
                 obtain certificates: use a host of your own",
                self.view.owner_namespace()
            );
            return self.refuse(by, message);
        }
        let is_owner = self.view.owner.has(by);
        if pattern != root() && self.is_full(by, &claim.path, &pattern) {
            self.note_lost(by, claim, 0);
            return self.say_full(by, is_owner, &place);
        }
        if let Some(older) = self.default_root().filter(|_| pattern == root())
            && !self.view.may_replace(older, by)
        {
            self.note_root((by, claim), older);
            let message = format!(
                "{place} is spec.defaultBackend of Ingress {}, which is older and of another namespace: use another \
                 path",
                older.key
            );
            return self.refuse(by, message);
        }
        if !is_owner {
            self.room.take(&by.key.namespace, claim.path.len(), &pattern);
        }
        let is_regex = matches!(pattern, PathPattern::Regex(_));
        let mut policy = by.policy(&claim.path, self.settings);
        policy.yields = !is_owner && is_regex;
        let policies = self.policies_of(by, claim);
        self.insert(by, pattern, claim.backend_ref.as_ref(), &claim.path, policy, policies);
    }

    /// Says that another claim, of `winner`, has the place already.
    fn lose(&mut self, by: &'a Claims, claim: &'a Claim, place: &str, winner: &'a Claims) {
        self.note_root((by, claim), winner);
        let message = match winner.key == by.key {
            true => format!("{place} is defined twice; the first one is served: remove the other"),
            false => format!(
                "{place} is served by Ingress {}, which is older or first by name: remove one of the two",
                winner.key
            ),
        };
        self.say(by, Note::rejected(message));
    }

    /// Remembers the owner's claim of the root where another namespace's Ingress keeps the root from it.
    fn note_root(&mut self, (by, claim): (&'a Claims, &'a Claim), other: &Claims) {
        let owner = &self.view.owner;
        if claim.pattern == root() && owner.has(by) && !owner.has(other) {
            self.lost_root.get_or_insert((by, claim));
        }
    }

    /// Whether the host has no place for one more path of the owner, or of another namespace.
    fn is_full(&self, by: &Claims, path: &str, pattern: &PathPattern) -> bool {
        match self.view.owner.has(by) {
            true => self.winners.len() + KEPT_PLACES >= MAX_RULES,
            false => !self.room.has(&by.key.namespace, path.len(), pattern),
        }
    }

    fn say_full(&mut self, by: &'a Claims, is_owner: bool, place: &str) {
        if is_owner || !self.room.has_paths(&by.key.namespace) {
            self.full.insert(&by.key);
        }
        let message = match is_owner {
            true => format!(
                "{place} and later paths are not served: a host has at most {MAX_RULES} paths"
            ),
            false => format!(
                "{place} and later paths are not served because the host is full: namespaces that do not own it may add at most \
                 {MAX_PATHS} paths, {MAX_RULES} with the owner's, {MAX_COPIED_RULES} with those of its aliases, {MAX_BYTES} bytes of \
                 paths and {MAX_EXPRESSIONS} regular expressions, each namespace its share of these"
            ),
        };
        self.say(by, Note::rejected(message));
    }

    /// Closes what a regular expression of the owner begins with that is not served, where nobody claims that. One of
    /// another namespace closes nothing: the owner's rules take its requests.
    fn refuse_below(&mut self, by: &'a Claims, claim: &'a Claim) {
        #[cfg(test)]
        WORK.set(WORK.get() + 1);
        let closed = self.stand_closed(by, claim);
        self.note_lost(by, claim, closed.unwrap_or(0));
    }

    /// Closes what a refused claim begins with, and answers how long the rule is that takes all its requests.
    fn stand_closed(&mut self, by: &'a Claims, claim: &'a Claim) -> Option<usize> {
        if !self.view.owner.has(by) {
            return None;
        }
        let as_prefix = match &claim.pattern {
            PathPattern::Regex(text) => PathPattern::Prefix(text.trim_end_matches('/').into()),
            other => other.clone(),
        };
        let stands = self.winners.get(&claim.pattern);
        let is_closed = stands.is_some_and(|it| Arc::ptr_eq(&it.policies, &self.closed));
        let is_taken = stands.is_some() || self.winners.contains_key(&as_prefix);
        if is_taken && !is_closed || self.is_full(by, &claim.path, &claim.pattern) {
            return None;
        }
        if !is_closed {
            self.insert_closed(by, claim.pattern.clone(), &claim.path);
        }
        match &claim.pattern {
            PathPattern::Regex(text) => Some(text.len()),
            // In one case only.
            PathPattern::Prefix(_) | PathPattern::Exact(_) => None,
        }
    }

    /// Where one Ingress of the host asks for regular expressions, the reference has nothing else there.
    fn pattern(&self, claim: &Claim) -> PathPattern {
        let regex = (self.is_regex_host && claim.is_valid_regex)
            .then(|| PathPattern::uncompiled(&claim.path).ok())
            .flatten();
        regex.unwrap_or_else(|| claim.pattern.clone())
    }

    /// The Ingress whose spec.defaultBackend is the root while no path is.
    fn default_root(&self) -> Option<&'a Claims> {
        match *self.host == HostPattern::default_host() {
            true => {
                let mut all = self.view.mains.iter();
                all.find(|by| by.is_catch_all && by.default_backend.is_some()).copied()
            }
            false => self.view.owner.first().filter(|by| by.default_backend.is_some()),
        }
    }

    fn finish(mut self, is_served: bool) -> MergedHost {
        let winners = std::mem::take(&mut self.winners);
        let denied = self.closed.clone();
        let mut ids = Ids::default();
        let mut server = OfServer::new(&self.view.owner, self.common);
        let rules = winners.iter().map(|(pattern, winner)| {
            let closer = winner.closer.or(winner.by.is_closed().then_some(winner.by));
            let policies = match closer.is_some() {
                true => denied.clone(),
                false => server.inherited(&winner.by.key, &winner.policies),
            };
            let id = ids.of(&policies);
            self.take_policies(winner, id.as_ref(), policies);
            let backend = match (closer, winner.backend_ref) {
                (Some(by), _) => Some(by.closed_backend()),
                (None, Some(backend_ref)) => Some(self.backend(winner.by, backend_ref, winner)),
                (None, None) => None,
            };
            let origin = winner.by.origin(winner.backend_ref, winner.path);
            let policy = winner.policy.clone();
            Rule { path: pattern.clone(), backend, origin, policy, policies: id, selection: None }
        });
        let mut rules: Vec<_> = rules.collect();
        self.take_server(&server);
        rules.extend(self.has_open_well_known.then(open_well_known));
        self.name_paths_without_canary(&winners);
        self.name_paths_without_cookie(&winners);
        self.merged.server = is_served.then_some(Server::of(rules));
        self.merged
    }

    fn place(&self, pattern: &PathPattern) -> String {
        match self.host.as_str() {
            HostPattern::DEFAULT => format!("path {pattern}"),
            host => format!("host {host} path {pattern}"),
        }
    }

    /// Says that something belongs to another namespace.
    fn refuse(&mut self, to: &Claims, message: String) {
        self.merged.refusals.push((to.key.clone(), Note::rejected(message)));
    }

    fn say(&mut self, to: &Claims, note: Note) {
        self.merged.notes.push((ObjectRef::new(Kind::Ingress, to.key.clone()), note));
    }
}

#[cfg(test)]
mod tests;
