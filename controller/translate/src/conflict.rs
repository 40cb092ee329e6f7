//! The claims on one host to its rules: the oldest claim to a path wins, canaries join the winner.
//!
//! Source:  ingress-nginx's controller. Order: creationTimestamp, then namespace and name,
//!          both ascending (the reference sorts equal timestamps descending).

use super::Options;
use super::annotation::ClientTls;
use super::follow;
use super::host_upstream_tls::{Held, HostUpstreamTls};
use super::ingress::{Claim, Claims, Leads};
use super::owner::HostView;
use super::passthrough;
use super::plan::{self, Lead, Own, Plan, Speakers};
use oxigress_core::model::policy::{Policies, PolicyId, Redirect, Template, TlsPolicy};
use oxigress_core::model::{
    BackendId, BundleId, Cookie, HostPattern, MAX_ALTERNATIVES, MAX_RULES, Origin, PathPattern,
    Policy, Rule, Server, WELL_KNOWN,
};
use oxigress_objects::verdict::Note;
use oxigress_objects::{Key, Kind, ObjectRef};
use oxigress_settings::Settings;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What becomes of one host.
#[derive(Debug, Default)]
pub struct Settled {
    /// Its rules; None if only canaries claim it.
    pub server: Option<Server>,
    /// Where its TLS connections go unread.
    pub passthrough: Option<BackendId>,
    /// Which backends its rules lead to.
    pub leads: BTreeSet<Lead>,
    /// What makes these backends.
    pub plans: BTreeMap<BackendId, Plan>,
    /// What is decided per request, by the ids that its rules name.
    pub policies: BTreeMap<PolicyId, Arc<Policies>>,
    /// How it speaks TLS.
    pub tls: Option<TlsPolicy>,
    /// Backends of URLs that its policies name, and the Ingresses that do.
    pub urls: BTreeSet<(BackendId, Key)>,
    /// What there is to say to those who lost.
    pub notes: Vec<(ObjectRef, Note)>,
    /// What there is to say to other namespaces than the owner's about what is not theirs.
    pub refusals: Vec<(Key, Note)>,
}

impl Settled {
    /// The bundles that its policies name.
    pub fn bundles(&self) -> BTreeSet<BundleId> {
        let policies = self.policies.values().flat_map(|policies| policies.bundles());
        let tls = self.tls.iter().flat_map(TlsPolicy::bundles);
        tls.chain(policies).cloned().collect()
    }
}

/// `view` are the claims on `source`; `host` is the same, or an alias of it.
pub fn settle(
    host: &HostPattern,
    source: &HostPattern,
    view: &HostView<'_>,
    settings: &Settings,
    speakers: &Speakers,
    options: &Options,
) -> Settled {
    let operator = options.default_ssl_certificate.as_ref().map(|key| key.namespace.as_str());
    let is_unnamed = *host == HostPattern::default_host();
    let has_regex = || view.owner.settings().any(|(_, settings)| settings.has_regex);
    let mut settling = Settling {
        settled: Settled { refusals: view.refusals(host), ..Settled::default() },
        host,
        view,
        is_regex_host: options.regex_per_host && has_regex(),
        // Those of the owner are kept too, and each alias has all of them.
        room: (MAX_RULES - KEPT_PLACES)
            .min(MAX_COPIED_RULES / (view.owner.aliases().map_or(0, |(_, all)| all.len()) + 1))
            .saturating_sub(view.owner.paths(source)),
        room_bytes: GUEST_BYTES,
        guests: 0,
        lost_root: None,
        full: BTreeSet::new(),
        tls_of: operator.filter(|namespace| is_unnamed && view.is_foreign_to(namespace)),
        winners: BTreeMap::new(),
        settings,
        speakers,
    };
    for by in &view.mains {
        for claim in by.hosts.get(source).into_iter().flatten() {
            if !claim.is_refused {
                settling.claim(by, claim);
            }
        }
    }
    for by in &view.mains {
        for claim in by.hosts.get(source).into_iter().flatten() {
            if claim.is_refused {
                settling.refuse_below(by, claim);
            }
        }
    }
    if let Some((by, aliases)) = view.owner.aliases()
        && let left_out @ 1.. = aliases.len() - follow::served(source, &view.owner).len()
    {
        let message = format!(
            "annotation server-alias: {left_out} of {} hosts are not served, since each has all paths of {source} and all \
             together have at most {MAX_COPIED_RULES}: name fewer hosts or paths",
            aliases.len()
        );
        settling.say(by, Note::rejected(message));
    }
    if let Some(first) = view.owner.first() {
        settling.complete(first);
    }
    for by in &view.canaries {
        // One that is refused would join a wider path than it means.
        let claims = by.hosts.get(source).into_iter().flatten();
        for claim in claims.filter(|claim| !claim.is_refused) {
            settling.join(by, claim);
        }
    }
    settling.share_upstream_tls();
    settling.about_tls();
    if options.ssl_passthrough {
        settling.pass_through();
    }
    settling.finish(!view.mains.is_empty())
}

/// The server of a host that only sends its clients to `owner`.
pub fn redirected(owner: &HostPattern, settings: &Settings) -> Settled {
    let mut settled = Settled::default();
    let Ok(location) = Template::parse(format!("$scheme://{owner}")) else { return settled };
    let code = settings.http_redirect_code.into();
    let redirect = Some(Redirect { code, location, appends_target: true });
    let policies = Arc::new(Policies { redirect, ..Policies::default() });
    let rule = Rule {
        path: root(),
        backend: None,
        origin: Origin { path: "/".into(), ..Origin::default() },
        policy: Policy::default(),
        policies: Ids::default().of(&policies),
    };
    settled.policies.extend(rule.policies.clone().map(|id| (id, policies)));
    settled.server = Some(Server { rules: vec![rule] });
    settled
}

/// Ids of policies: digests of what they say. Rules that share their policies do so by address.
#[derive(Default)]
struct Ids(BTreeMap<*const Policies, Option<PolicyId>>);

impl Ids {
    /// None: they say nothing.
    fn of(&mut self, policies: &Arc<Policies>) -> Option<PolicyId> {
        self.0.entry(Arc::as_ptr(policies)).or_insert_with(|| id_of(policies)).clone()
    }
}

fn id_of(policies: &Policies) -> Option<PolicyId> {
    if *policies == Policies::default() {
        return None;
    }
    let json = serde_json::to_vec(policies).unwrap_or_default();
    let digest = openssl::sha::sha256(&json);
    let digest: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    PolicyId::parse(digest).ok()
}

fn root() -> PathPattern {
    PathPattern::Prefix(String::new())
}

/// Rules that are no claims: the root, its redirect, and the owner's below [`WELL_KNOWN`].
const KEPT_PLACES: usize = 3;
/// Most rules of a host and its aliases together.
pub const MAX_COPIED_RULES: usize = 50_000;
#[cfg(test)]
thread_local! {
    /// Paths that were looked at.
    static WORK: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}
/// What stands for something else in an expression, but for the dot, which may as well be one.
const EXPRESSIONS: [char; 13] = ['\\', '^', '$', '*', '+', '?', '(', ')', '[', ']', '{', '}', '|'];
/// Most bytes of paths that other namespaces than the owner's add to a host.
const GUEST_BYTES: usize = 1 << 20;
/// Most regular expressions that they add.
const MAX_GUESTS: usize = 100;

struct Settling<'a> {
    settled: Settled,
    host: &'a HostPattern,
    view: &'a HostView<'a>,
    is_regex_host: bool,
    /// How many paths other namespaces may still add.
    room: usize,
    /// Bytes of paths that they may still add: all rules of a host are one record.
    room_bytes: usize,
    /// Regular expressions that they have added: every request of the host looks at them.
    guests: usize,
    /// The owner's claim of the root where another namespace's is older.
    lost_root: Option<(&'a Claims, &'a Claim)>,
    /// Ingresses for whose further paths there is no place.
    full: BTreeSet<&'a Key>,
    /// Only this namespace says how TLS is spoken with clients that name no host, or an unknown one.
    tls_of: Option<&'a str>,
    winners: BTreeMap<PathPattern, Winner<'a>>,
    settings: &'a Settings,
    speakers: &'a Speakers,
}

/// Who has a path, and the canaries that joined.
struct Winner<'a> {
    by: &'a Claims,
    leads: Option<&'a Leads>,
    path: &'a str,
    policy: Policy,
    policies: Arc<Policies>,
    canaries: Vec<(&'a Claims, &'a Leads)>,
    /// The whole host is closed.
    closer: Option<&'a Claims>,
}

impl<'a> Settling<'a> {
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
            let is_root = claim.pattern == root() && self.view.owner.has(by);
            if is_root && !self.view.owner.has(winner.by) {
                self.lost_root.get_or_insert((by, claim));
            }
            let message = match winner.by.key == by.key {
                true => format!("{place} stands twice, the first one is served: remove the other"),
                false => format!(
                    "{place} is served by Ingress {}, which is older or first by name: remove one \
                     of both",
                    winner.by.key
                ),
            };
            return self.say(by, Note::rejected(message));
        }
        if !self.view.may_have(by, claim) {
            let message = format!(
                "{place} is left to namespace {}, which owns the host: who answers below {WELL_KNOWN}/ has certificates \
                 issued for it: use a host of your own",
                self.view.owner.first().map_or("", |first| &first.key.namespace)
            );
            return self.refuse(by, message);
        }
        let is_owner = self.view.owner.has(by);
        let is_full = match is_owner {
            true => self.winners.len() + KEPT_PLACES >= MAX_RULES,
            false => {
                let is_long = self.room_bytes < claim.path.len();
                let is_regex = matches!(pattern, PathPattern::Regex(_));
                self.room == 0 || is_long || (is_regex && self.guests == MAX_GUESTS)
            }
        };
        if is_full && pattern != root() {
            if is_owner || self.room == 0 {
                self.full.insert(&by.key);
            }
            let message = match is_owner {
                true => {
                    format!(
                        "{place} and what follows is not served: at most {MAX_RULES} paths in one host"
                    )
                }
                false => format!(
                    "{place} and what finds no place after it is not served: other namespaces than the owner's may add to one host at most \
                     {MAX_RULES} paths with the owner's, {MAX_COPIED_RULES} with those of its aliases, {GUEST_BYTES} bytes of paths and {MAX_GUESTS} regular \
                     expressions"
                ),
            };
            return self.say(by, Note::rejected(message));
        }
        if let Some(older) = self.default_root().filter(|_| pattern == root())
            && !self.view.may_replace(older, by)
        {
            let message = format!(
                "{place} is spec.defaultBackend of Ingress {}, which is older and of another namespace: use another \
                 path",
                older.key
            );
            return self.refuse(by, message);
        }
        if !is_owner {
            self.room = self.room.saturating_sub(1);
            self.room_bytes = self.room_bytes.saturating_sub(claim.path.len());
            self.guests += usize::from(matches!(pattern, PathPattern::Regex(_)));
        }
        let is_regex = matches!(pattern, PathPattern::Regex(_));
        let mut policy = by.policy(&claim.path, self.settings);
        policy.yields = !is_owner && is_regex;
        let policies = by.policies(&claim.path, self.settings);
        self.insert(by, pattern, Some(&claim.leads), &claim.path, policy, policies);
    }

    /// Closes what a regular expression of the owner begins with that is not served, where nobody claims that. One of
    /// another namespace closes nothing: the owner's rules take its requests.
    fn refuse_below(&mut self, by: &'a Claims, claim: &'a Claim) {
        let as_prefix = match &claim.pattern {
            PathPattern::Regex(text) => PathPattern::Prefix(text.trim_end_matches('/').into()),
            other => other.clone(),
        };
        let is_taken =
            [&claim.pattern, &as_prefix].iter().any(|pattern| self.winners.contains_key(pattern));
        if is_taken || !self.view.owner.has(by) || self.winners.len() + KEPT_PLACES >= MAX_RULES {
            return;
        }
        let closed = Arc::new(Policies { denied: Some(503), ..Policies::default() });
        let pattern = claim.pattern.clone();
        self.insert(by, pattern, None, &claim.path, Policy::default(), closed);
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

    /// The root, which every host has, and what holds for the whole host.
    fn complete(&mut self, first: &'a Claims) {
        if *self.host == HostPattern::default_host() {
            for by in self.view.mains.iter().filter(|by| by.is_catch_all) {
                self.catch_all(by);
            }
        } else if !self.winners.contains_key(&root()) {
            // With the policies of the host's first Ingress: what nothing else takes is redirected,
            // closed or sent on as that one says.
            let policy = first.policy("/", self.settings);
            let policies = first.policies("/", self.settings);
            self.insert(first, root(), first.default_backend.as_ref(), "/", policy, policies);
        }
        self.keep_well_known(first);
        self.send_root_to_app();
        let mut unprotected = self.view.unprotected();
        if self.tls_of.is_some() {
            let all = self.view.owner.settings();
            let asking = all.filter(|(_, settings)| settings.client_tls.client.is_some());
            unprotected.extend(asking.map(|(by, _)| &by.key));
        }
        for winner in self.winners.values_mut() {
            winner.closer = unprotected.contains(&winner.by.key).then_some(winner.by);
        }
        // One client-certificate rule that can be honoured holds for the host, whatever others say.
        let all = || self.view.owner.settings();
        let clients = || all().map(|(by, settings)| (by, settings.client_tls.client.as_ref()));
        let is_client = clients().any(|(_, client)| matches!(client, Some(Ok(_))));
        let error = clients().find(|(_, client)| matches!(client, Some(Err(()))) && !is_client);
        let error = error.filter(|_| self.tls_of.is_none());
        let closing = all().find(|(_, settings)| settings.closes_host).map(|(by, _)| by);
        if let Some(by) = closing.or(error.map(|(by, _)| by)) {
            self.close(by);
        }
    }

    /// Where another namespace has the root, what lies below [`WELL_KNOWN`] is the owner's all the same: the request comes
    /// to the root that the owner would have.
    fn keep_well_known(&mut self, first: &'a Claims) {
        let owner = &self.view.owner;
        let is_foreign = self.winners.get(&root()).is_some_and(|winner| !owner.has(winner.by));
        let pattern = PathPattern::Prefix(WELL_KNOWN.into());
        if (!is_foreign && self.lost_root.is_none()) || self.winners.contains_key(&pattern) {
            return;
        }
        let is_default = *self.host == HostPattern::default_host();
        let (by, leads, policy) = match self.lost_root {
            Some((by, claim)) => (by, Some(&claim.leads), by.policy("/", self.settings)),
            // As the root that stands where nobody claims one.
            None if is_default => (first, first.default_backend.as_ref(), Policy::default()),
            None => (first, first.default_backend.as_ref(), first.policy("/", self.settings)),
        };
        let policy = Policy { yields: true, ..policy };
        let policies = by.policies("/", self.settings);
        self.insert(by, pattern, leads, "/", policy, policies);
    }

    /// The default host's settings would decide about every handshake without a known name, also those of clients who
    /// then ask for a host that has Ingresses.
    fn refuse_tls_of_unnamed(&mut self, operator: &str) {
        for (by, settings) in self.view.owner.settings() {
            let ClientTls { ciphers, prefers_server_ciphers, client } = &settings.client_tls;
            let is_other = ciphers.is_some() || prefers_server_ciphers.is_some();
            let consequence = match (client, is_other) {
                (Some(_), _) => "its locations answer 503",
                (None, true) => "they are ignored",
                (None, false) => continue,
            };
            let message = format!(
                "annotations ssl-ciphers, ssl-prefer-server-ciphers, auth-tls-*: without a host they hold for all clients that \
                 name none, so only namespace {operator}, which has the default certificate, sets them; {consequence}: name \
                 a host"
            );
            self.refuse(by, message);
        }
    }

    /// proxy-ssl-* of the oldest Ingress of a namespace hold for its other paths that are spoken to over TLS.
    fn share_upstream_tls(&mut self) {
        if self.settings.proxy_ssl_location_only {
            return;
        }
        let mut shared = HostUpstreamTls::of(&self.view.mains);
        if shared.is_empty() {
            return;
        }
        let mut told = BTreeSet::new();
        for winner in self.winners.values_mut() {
            if winner.leads.is_none() || winner.closer.is_some() {
                continue;
            }
            let note = match shared.for_path(winner.by, &winner.policies) {
                Held::Own => continue,
                Held::Shared(policies) => {
                    winner.policies = policies;
                    continue;
                }
                Held::Lost(other) => {
                    winner.closer = Some(winner.by);
                    let cause = Some(ObjectRef::new(Kind::Ingress, other.key.clone()));
                    let message = format!(
                        "annotation backend-protocol: proxy-ssl-secret of Ingress {} holds for host {} and cannot be honoured, so \
                         its locations answer 503: correct that one, or set proxy-ssl-secret here",
                        other.key, self.host
                    );
                    Note { cause, ..Note::rejected(message) }
                }
                // Whoever adds an Ingress to a host says nothing to the others of it.
                Held::Foreign(other) if !self.view.owner.has(other) => continue,
                Held::Foreign(other) => Note::warning(format!(
                    "annotation backend-protocol: endpoints of host {} are shown no certificate and not verified. In \
                     ingress-nginx proxy-ssl-secret of Ingress {} holds for the whole host, here for its namespace alone: \
                     set proxy-ssl-secret",
                    self.host, other.key
                )),
            };
            if told.insert(&winner.by.key) {
                let object = ObjectRef::new(Kind::Ingress, winner.by.key.clone());
                self.settled.notes.push((object, note));
            }
        }
    }

    fn about_tls(&mut self) {
        if let Some(operator) = self.tls_of {
            return self.refuse_tls_of_unnamed(operator);
        }
        let mut all = self.view.owner.settings().map(|(_, settings)| &settings.client_tls);
        let clients = || all.clone().filter_map(|tls| tls.client.as_ref());
        let client = clients().find_map(|client| client.as_ref().ok()).cloned();
        let denied = client.is_none() && clients().next().is_some();
        let tls = TlsPolicy {
            ciphers: all.clone().find_map(|tls| tls.ciphers.clone()),
            prefers_server_ciphers: all.find_map(|tls| tls.prefers_server_ciphers),
            denied,
            client,
        };
        self.settled.tls = Some(tls).filter(|tls| *tls != TlsPolicy::default());
    }

    fn catch_all(&mut self, by: &'a Claims) {
        if let Some(winner) = self.winners.get(&root()) {
            let message = format!(
                "spec.defaultBackend: requests that no host takes go to Ingress {}, which claims \
                 path / or is older: remove one of both",
                winner.by.key
            );
            return self.say(by, Note::rejected(message));
        }
        if let Some(leads) = &by.default_backend {
            // The reference applies no redirect to this root.
            let policy = Policy::default();
            let policies = by.policies("/", self.settings);
            self.insert(by, root(), Some(leads), "/", policy, policies);
        }
    }

    /// app-root, before whatever else `/` is; the oldest counts.
    fn send_root_to_app(&mut self) {
        let mut all = self.view.owner.settings();
        let app = all.find_map(|(by, settings)| Some((by, settings.hosts.app_root.clone()?)));
        let Some((by, location)) = app else { return };
        let redirect = Some(Redirect { code: 302, location, appends_target: false });
        let policies = Arc::new(Policies { redirect, ..Policies::default() });
        let pattern = PathPattern::Exact("/".into());
        if let Some(other) = self.winners.get(&pattern).map(|winner| winner.by)
            && other.key != by.key
        {
            let message = format!(
                "{} is app-root of Ingress {}: remove the path",
                self.place(&pattern),
                by.key
            );
            self.say(other, Note::rejected(message));
        }
        self.insert(by, pattern, None, "/", Policy::default(), policies);
    }

    fn insert(
        &mut self,
        by: &'a Claims,
        pattern: PathPattern,
        leads: Option<&'a Leads>,
        path: &'a str,
        policy: Policy,
        policies: Arc<Policies>,
    ) {
        let canaries = Vec::new();
        let winner = Winner { by, leads, path, policy, policies, canaries, closer: None };
        self.winners.insert(pattern, winner);
    }

    /// A client-certificate rule holds for the whole host; while it cannot be honoured, nothing of the
    /// host is open.
    fn close(&mut self, by: &'a Claims) {
        let mut told = BTreeSet::new();
        if !self.winners.contains_key(&root()) {
            let policies = by.policies("/", self.settings);
            self.insert(by, root(), None, "/", Policy::default(), policies);
        }
        for winner in self.winners.values_mut() {
            winner.closer = Some(by);
            if winner.by.key != by.key && told.insert(winner.by.key.clone()) {
                let message = format!(
                    "host {} is closed by annotations of Ingress {} that hold for the whole host: its \
                     locations are not served until that one is corrected",
                    self.host, by.key
                );
                let object = ObjectRef::new(Kind::Ingress, winner.by.key.clone());
                self.settled.notes.push((object, Note::rejected(message)));
            }
        }
    }

    /// A canary takes a part of the requests of a path that somebody has.
    fn join(&mut self, by: &'a Claims, claim: &'a Claim) {
        let pattern = self.pattern(claim);
        let place = self.place(&pattern);
        let refuse = |why: &str| Note::rejected(format!("canary: {place} {why}"));
        let Some(winner) = self.winners.get_mut(&pattern).filter(|w| w.leads.is_some()) else {
            let why = "has no main Ingress with this pathType, so no request goes to the canary: \
                       create one";
            return self.say(by, refuse(why));
        };
        if !self.view.may_split(by, winner.by) {
            let message = format!(
                "canary: {place} belongs to Ingress {} of another namespace, so no request goes to the canary: create it \
                 in that namespace",
                winner.by.key
            );
            return self.refuse(by, message);
        }
        let service = (&claim.leads.service, &claim.leads.port);
        let refused = if winner.canaries.iter().any(|(other, _)| other.key == by.key) {
            refuse("stands twice, the first one is served: remove the other")
        } else if winner.leads.is_some_and(|leads| (&leads.service, &leads.port) == service) {
            refuse("leads to the same Service and port as the main Ingress: name another")
        } else if winner.canaries.len() == MAX_ALTERNATIVES {
            refuse(&format!("has {MAX_ALTERNATIVES} older canaries already: remove some"))
        } else {
            return winner.canaries.push((by, &claim.leads));
        };
        self.say(by, refused);
    }

    /// What protects the host would have no effect; a path of another namespace leads elsewhere, and is not reached.
    fn lost_protection(&self, by: &Claims) -> Option<&'static str> {
        let winners = self.winners.values();
        let own = winners.filter(|winner| winner.by.key.namespace == by.key.namespace);
        passthrough::lost_protection(self.settled.tls.as_ref(), own.map(|winner| &*winner.policies))
    }

    /// Only who has the root decides: passing TLS through takes away what protects its paths.
    fn pass_through(&mut self) {
        let host = self.host;
        let refuse =
            |why: String| Note::rejected(format!("annotation ssl-passthrough: host {host}: {why}"));
        let view = self.view;
        let all = view.owner.settings().filter(|(_, settings)| settings.ssl_passthrough);
        for (by, _) in all {
            let lost = self.lost_protection(by);
            let note = match self.winners.get(&root()) {
                _ if *host == HostPattern::default_host() => refuse(
                    "TLS connections are told apart by their host: name one in spec.rules".into(),
                ),
                Some(winner) if winner.by.key != by.key => refuse(format!(
                    "path / belongs to Ingress {}, which alone can pass TLS through: annotate that \
                     one",
                    winner.by.key
                )),
                Some(_) if lost.is_some() => refuse(format!(
                    "{} of this host would have no effect: remove them, or ssl-passthrough",
                    lost.unwrap_or_default()
                )),
                Some(Winner { leads: Some(leads), by, closer: None, .. }) if !by.is_closed() => {
                    let (leads, by) = (*leads, *by);
                    let (id, plan) = self.base(by, leads);
                    self.lead(id.clone(), plan, by, "");
                    self.settled.passthrough = Some(id);
                    continue;
                }
                Some(Winner { leads: Some(_), .. }) => refuse("its locations are closed".into()),
                _ => refuse("path / leads to no Service: add one".into()),
            };
            self.say(by, note);
        }
    }

    fn finish(mut self, is_served: bool) -> Settled {
        let winners = std::mem::take(&mut self.winners);
        let denied = Arc::new(Policies { denied: Some(503), ..Policies::default() });
        let mut ids = Ids::default();
        let rules = winners.iter().map(|(pattern, winner)| {
            let closer = winner.closer.or(winner.by.is_closed().then_some(winner.by));
            let policies = match closer.is_some() {
                true => denied.clone(),
                false => winner.policies.clone(),
            };
            let id = ids.of(&policies);
            self.take_policies(winner, id.as_ref(), policies);
            let backend = match (closer, winner.leads) {
                (Some(by), _) => Some(by.closed_backend()),
                (None, Some(leads)) => Some(self.backend(winner.by, leads, winner)),
                (None, None) => None,
            };
            let origin = winner.by.origin(winner.leads, winner.path);
            let policy = winner.policy.clone();
            Rule { path: pattern.clone(), backend, origin, policy, policies: id }
        });
        let rules = rules.collect();
        self.name_paths_without_canary(&winners);
        self.name_paths_without_cookie(&winners);
        self.settled.server = is_served.then_some(Server { rules });
        self.settled
    }

    /// Policies of one rule, and the backends that they name.
    fn take_policies(
        &mut self,
        winner: &Winner<'a>,
        id: Option<&PolicyId>,
        policies: Arc<Policies>,
    ) {
        let Some(id) = id else { return };
        let urls = super::ingress::urls(&policies);
        self.settled.urls.extend(urls.map(|url| (url.clone(), winner.by.key.clone())));
        let errors = policies.errors.as_ref().and_then(|errors| errors.backend.as_ref());
        if (policies.fallback.is_some() || errors.is_some())
            && let Some(leads) = winner.by.fallback()
        {
            self.lead(leads.backend.clone(), Plan::shared(leads), winner.by, "");
        }
        self.settled.policies.insert(id.clone(), policies);
    }

    /// The backend of one rule.
    fn backend(&mut self, by: &'a Claims, leads: &'a Leads, winner: &Winner<'a>) -> BackendId {
        let (base, plan) = self.base(by, leads);
        let gives_cookie = by.balancing().is_some_and(|word| word.affinity.is_some());
        let path = if gives_cookie { winner.path } else { "" };
        let balancing = self.speakers.balancing_of(&base, &plan);
        let mut alternatives = Vec::new();
        for (canary, to) in &winner.canaries {
            let Some(rules) = canary.canary() else { continue };
            let affinity = balancing.affinity.clone().filter(|_| rules.is_sticky);
            let mut id = format!("{}//canary/{}", to.backend, canary.key.name);
            if affinity.is_some() {
                id = format!("{id}//{base}");
            }
            let id = match BackendId::parse(id) {
                Ok(id) => id,
                Err(why) => {
                    self.say(canary, Note::rejected(format!("canary: {why}: use shorter names")));
                    continue;
                }
            };
            let path = if affinity.is_some() { path } else { "" };
            let mut own = canary.balancing().map(|word| (**word).clone()).unwrap_or_default();
            own.affinity = affinity;
            let own = Own {
                balancing: Arc::new(own),
                split: Some(rules.split.clone()),
                ..Own::default()
            };
            self.lead(id.clone(), Plan::own(to, own), canary, path);
            alternatives.push(id);
        }
        let (id, plan) = match plan::split(&base, &alternatives) {
            _ if alternatives.is_empty() => (base, plan),
            Ok(id) => (id, Plan::own(leads, Own { balancing, alternatives, split: None })),
            Err(why) => {
                self.say(
                    by,
                    Note::warning(format!("no canary has a part: {why}: use shorter names")),
                );
                (base, plan)
            }
        };
        self.lead(id.clone(), plan, by, path);
        id
    }

    /// The backend of a Service's port for one Ingress, without canaries.
    fn base(&mut self, by: &'a Claims, leads: &Leads) -> (BackendId, Plan) {
        self.speakers.backend_of(by, leads).unwrap_or_else(|why| {
            self.say(by, Note::warning(format!(
                "its balancing annotations have no effect for Service {}: {why}: use shorter names",
                leads.service
            )));
            (leads.backend.clone(), Plan::shared(leads))
        })
    }

    fn lead(&mut self, backend: BackendId, plan: Plan, by: &Claims, path: &str) {
        self.settled.plans.insert(backend.clone(), plan);
        self.settled.leads.insert(Lead { backend, ingress: by.key.clone(), path: path.into() });
    }

    /// Where the reference would send a part of the requests to a canary that claims another path.
    fn name_paths_without_canary(&mut self, winners: &BTreeMap<PathPattern, Winner<'a>>) {
        let mut canaries: BTreeMap<&BackendId, BTreeMap<&Key, &Claims>> = BTreeMap::new();
        for winner in winners.values() {
            let Some(leads) = winner.leads else { continue };
            for (by, _) in &winner.canaries {
                canaries.entry(&leads.backend).or_default().insert(&by.key, by);
            }
        }
        for (pattern, winner) in winners {
            let Some(leads) = winner.leads else { continue };
            for by in canaries.get(&leads.backend).into_iter().flat_map(BTreeMap::values) {
                if winner.canaries.iter().any(|(here, _)| here.key == by.key) {
                    continue;
                }
                let message = format!(
                    "canary: {} leads to Service {} too and is not split, since the canary does not \
                     claim it; ingress-nginx splits it: add the path if that is meant",
                    self.place(pattern),
                    leads.service
                );
                self.say(by, Note::remark(message));
            }
        }
    }

    /// Where the affinity cookie's `Path` is the text of an expression, so that browsers keep the cookie to themselves.
    fn name_paths_without_cookie(&mut self, winners: &BTreeMap<PathPattern, Winner<'a>>) {
        let mut told = BTreeSet::new();
        for (pattern, winner) in winners {
            let Winner { by, path, leads, closer, .. } = winner;
            let affinity = by.balancing().and_then(|word| word.affinity.as_ref());
            let has_own_path = affinity.is_none_or(|affinity| affinity.cookie.path.is_some());
            let is_served = leads.is_some() && closer.is_none() && !by.is_closed();
            // One that no attribute can hold becomes `/`.
            let is_sent = Cookie::check_attribute(path).is_ok();
            let is_expression =
                matches!(pattern, PathPattern::Regex(_)) && path.contains(EXPRESSIONS);
            if is_expression && is_sent && is_served && !has_own_path && told.insert(&by.key) {
                let message = format!(
                    "annotation affinity: {}: the cookie's Path is the expression, so no browser sends it back and nothing \
                     is sticky: set session-cookie-path to what all requests begin with",
                    self.place(pattern)
                );
                self.say(by, Note::warning(message));
            }
        }
    }

    fn place(&self, pattern: &PathPattern) -> String {
        match self.host.as_str() {
            HostPattern::DEFAULT => format!("path {pattern}"),
            host => format!("host {host} path {pattern}"),
        }
    }

    /// Says that something belongs to another namespace.
    fn refuse(&mut self, to: &Claims, message: String) {
        self.settled.refusals.push((to.key.clone(), Note::rejected(message)));
    }

    fn say(&mut self, to: &Claims, note: Note) {
        self.settled.notes.push((ObjectRef::new(Kind::Ingress, to.key.clone()), note));
    }
}

#[cfg(test)]
mod tests {
    use super::super::Translator;
    use super::*;
    use oxigress_objects::ingress::{self, Ingress, PathType, Port, Target};
    use oxigress_objects::{Changed, Object, World};

    fn ingress(created: i64, paths: usize, aliases: usize) -> Object {
        let service = Target::Service { name: "web".into(), port: Port::Number(80) };
        let path = |number| ingress::Path {
            path: format!("/{created}/{number}"),
            path_type: PathType::Prefix,
            target: service.clone(),
        };
        let aliases: Vec<_> = (0..aliases).map(|number| format!("alias-{number}.test")).collect();
        let alias = ("nginx.ingress.kubernetes.io/server-alias".to_owned(), aliases.join(","));
        let paths = (0..paths).map(path).collect();
        Object::Ingress(Arc::new(Ingress {
            created,
            annotations: [alias].into(),
            class: None,
            default_backend: None,
            rules: vec![ingress::Rule { host: "shop.test".into(), paths }],
            tls: Vec::new(),
        }))
    }

    /// Rules that are served, and paths that were looked at for them.
    fn cost(ingresses: &[(&str, usize, usize)]) -> (usize, usize) {
        let (mut world, mut changed) = (World::default(), Changed::default());
        for (created, (namespace, paths, aliases)) in ingresses.iter().enumerate() {
            let id = ObjectRef::new(Kind::Ingress, Key::new(*namespace, "web"));
            let object = ingress(created as i64, *paths, *aliases);
            world.apply((id, Some(object)), &mut changed);
        }
        let options = Options { watch_ingress_without_class: true, ..Options::default() };
        let mut translator = Translator::new(options);
        WORK.set(0);
        translator.update(&world, &changed);
        let servers = translator.snapshot().servers.values();
        (servers.map(|server| server.rules.len()).sum(), WORK.get())
    }

    #[test]
    fn aliases_multiply_no_more_than_so_many_paths() {
        let (rules, work) = cost(&[("a", 100, 64)]);
        assert_eq!((rules, work), (65 * 101, 65 * 100), "all are served");
        for all in [
            &[("a", 9_000, 64)][..],
            &[("a", 10, 64), ("b", 9_000, 0)],
            &[("a", 700, 64), ("b", 9_000, 0), ("c", 9_000, 0)],
            &[("a", 1, 64), ("b", 10_000, 64), ("c", 10_000, 64)],
        ] {
            let (rules, work) = cost(all);
            let most = MAX_COPIED_RULES + 1_000;
            assert!(rules <= most && work <= most, "{rules} rules, {work} looked at");
            assert!(rules > 30_000, "{rules} rules");
        }
    }
}
