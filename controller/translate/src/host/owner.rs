//! Whose a host is, and what only its owner may say.
//!
//! Shape:   a host belongs to the namespace of the oldest object that names it: an Ingress by a rule, by `server-alias` or as
//!          the other name of `from-to-www-redirect`, or a route or listener of a Gateway. [`decide`] is the one place that decides this. What an Ingress says
//!          about whole hosts is [`Sealed`]: only an [`Owner`] opens it, so a new setting cannot forget to ask.
//! Errors:  none. What another namespace says about a host is ignored and noted; a setting that protects closes the
//!          paths of the Ingress that says it, and no others.
//! Source:  docs/differences/hosts.md. The reference takes the oldest value of any namespace.

use crate::annotation::{ClientTls, HostSettings, Hosts};
use crate::claim::age::Age;
use crate::host::alias::Alias;
use crate::ingress::{Claim, Claims};
use oxigress_core::model::HostPattern;
use oxigress_objects::ingress::Tls;
use oxigress_objects::verdict::Note;
use oxigress_objects::{Key, Kind};
use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

/// The modes of `--host-ownership`: what other namespaces than a host's owner may say about it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HostOwnership {
    /// Every namespace may set everything, as in ingress-nginx.
    Shared,
    /// Every namespace may add paths; settings of the host are its owner's.
    #[default]
    Settings,
    /// Paths of other namespaces are refused too.
    Strict,
}

/// Settings of whole hosts, which only the owner of a host can have effect on it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sealed(Arc<HostSettings>);

impl Sealed {
    /// Seals what one Ingress says; most say nothing, and share that.
    pub fn new(settings: HostSettings) -> Self {
        static NOTHING: LazyLock<Sealed> = LazyLock::new(Sealed::default);
        match settings == *NOTHING.0 {
            true => NOTHING.clone(),
            false => Sealed(Arc::new(settings)),
        }
    }
}

/// The Ingresses whose settings hold for a host, oldest first.
#[derive(Clone, Debug)]
pub struct Owner<'a> {
    /// The namespace that owns the host; `None`: with `--host-ownership=shared` every namespace does.
    namespace: Option<String>,
    mains: Vec<&'a Claims>,
}

impl<'a> Owner<'a> {
    /// What each of them says about the host.
    pub fn settings(&self) -> impl Iterator<Item = (&'a Claims, &'a HostSettings)> + Clone + '_ {
        self.mains.iter().map(|by| (*by, &*by.host_settings.0))
    }

    /// The namespace that owns the host; `None`: every namespace does.
    pub fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// The oldest, if any has a rule for the host.
    pub fn first(&self) -> Option<&'a Claims> {
        self.mains.first().copied()
    }

    /// Whether the settings of this Ingress are among those that hold.
    pub fn has(&self, by: &Claims) -> bool {
        self.namespace.as_ref().is_none_or(|namespace| *namespace == by.key.namespace)
    }

    /// The aliases that hold, and who gives them.
    pub fn aliases(&self) -> Option<(&'a Claims, &'a [HostPattern])> {
        let mut all = self.settings().map(|(by, settings)| (by, settings.hosts.aliases.as_slice()));
        all.find(|(_, aliases)| !aliases.is_empty())
    }

    /// Its paths, of all its Ingresses.
    pub fn paths(&self, host: &HostPattern) -> usize {
        self.mains.iter().map(|by| by.claims_on(host).len()).sum()
    }

    /// Whether a certificate was asked for.
    pub fn has_tls(&self) -> bool {
        self.settings().any(|(_, settings)| !settings.tls.is_empty())
    }

    /// All of them together, as far as another namespace could say the same.
    fn merged(&self) -> HostSettings {
        let mut merged = HostSettings::default();
        for (_, settings) in self.settings() {
            let HostSettings { hosts, client_tls, .. } = settings;
            merged.tls.extend(settings.tls.iter().cloned());
            merged.hosts.app_root = merged.hosts.app_root.or_else(|| hosts.app_root.clone());
            merged.hosts.from_to_www |= hosts.from_to_www;
            if merged.hosts.aliases.is_empty() {
                merged.hosts.aliases.clone_from(&hosts.aliases);
            }
            let tls = &mut merged.client_tls;
            tls.ciphers = tls.ciphers.take().or_else(|| client_tls.ciphers.clone());
            tls.prefers_server_ciphers =
                tls.prefers_server_ciphers.or(client_tls.prefers_server_ciphers);
            if !matches!(tls.client, Some(Ok(_))) && client_tls.client.is_some() {
                tls.client.clone_from(&client_tls.client);
            }
            merged.ssl_passthrough |= settings.ssl_passthrough;
        }
        merged
    }
}

/// The oldest route or listener of a Gateway that names a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayClaim {
    /// When the oldest object was created, and its name.
    pub age: Age,
    /// The kind of that object: one of the routes, or Gateway.
    pub kind: Kind,
    /// The oldest route that names the host, and its kind.
    pub route: Option<(Age, Kind)>,
}

impl GatewayClaim {
    /// The claim of a route that names the host.
    pub fn of_route(age: Age, kind: Kind) -> Self {
        GatewayClaim { route: Some((age.clone(), kind)), age, kind }
    }

    /// The claim of a Gateway that has a listener for the host.
    pub fn of_listener(age: Age) -> Self {
        GatewayClaim { age, kind: Kind::Gateway, route: None }
    }

    /// Adds the claim of another object.
    pub fn join(&mut self, other: GatewayClaim) {
        let route = self.route.iter().chain(&other.route).min().cloned();
        if (&other.age, other.kind) < (&self.age, self.kind) {
            *self = other;
        }
        self.route = route;
    }

    /// Whether it is older than the oldest Ingress, where that counts.
    pub fn is_older(&self, mode: HostOwnership, ingress: Option<(i64, &Key)>) -> bool {
        mode != HostOwnership::Shared && ingress.is_none_or(|oldest| self.age.borrowed() < oldest)
    }
}

/// The claims on a host, as its owner lets them stand; each list oldest first.
#[derive(Clone, Debug)]
pub struct HostView<'a> {
    mode: HostOwnership,
    /// The route or Gateway whose namespace owns the host; `None`: an Ingress is older.
    older_gateway: Option<&'a GatewayClaim>,
    /// The Ingresses whose settings hold.
    pub owner: Owner<'a>,
    /// The Ingresses whose paths are served, canaries aside.
    pub mains: Vec<&'a Claims>,
    /// The canaries, which want a part of the requests of these paths.
    pub canaries: Vec<&'a Claims>,
    /// Ingresses of other namespaces, with paths for the host; canaries only where they are refused.
    other_namespaces: Vec<&'a Claims>,
}

impl<'a> HostView<'a> {
    /// For the owner that the claims alone make.
    pub fn of_claims(
        mode: HostOwnership,
        claims: &[&'a Claims],
        by_gateway: Option<&'a GatewayClaim>,
    ) -> Self {
        let first = claims.iter().find(|by| by.canary().is_none());
        let oldest = first.map(|by| by.age());
        let older_gateway =
            by_gateway.filter(|claim| claim.is_older(mode, oldest.as_ref().map(Age::borrowed)));
        HostView::new(mode, claims, oldest.as_ref(), older_gateway)
    }

    /// The owner is the namespace of `older_gateway`, or else of the Ingress of this age.
    fn new(
        mode: HostOwnership,
        claims: &[&'a Claims],
        oldest: Option<&Age>,
        older_gateway: Option<&'a GatewayClaim>,
    ) -> Self {
        let by = older_gateway.map(|claim| &claim.age).or(oldest);
        let namespace = by.map_or("", |by| &*by.key.namespace);
        let is_owner = |by: &&Claims| by.key.namespace == namespace;
        let is_served = |by: &&Claims| mode != HostOwnership::Strict || is_owner(by);
        let (canaries, mains): (Vec<&Claims>, Vec<&Claims>) =
            claims.iter().partition(|by| by.canary().is_some());
        let of = |all: &[&'a Claims], keep: &dyn Fn(&&Claims) -> bool| -> Vec<&'a Claims> {
            all.iter().copied().filter(|by| keep(by)).collect()
        };
        let is_shared = mode == HostOwnership::Shared;
        let owner = Owner {
            namespace: (!is_shared).then(|| namespace.to_owned()),
            mains: of(&mains, &|by| is_shared || is_owner(by)),
        };
        HostView {
            mode,
            older_gateway,
            other_namespaces: of(claims, &|by| {
                !is_shared && !is_owner(by) && (by.canary().is_none() || !is_served(by))
            }),
            canaries: of(&canaries, &|by| is_served(by)),
            mains: of(&mains, &|by| is_served(by)),
            owner,
        }
    }

    /// Whether the owner is known: it has an Ingress here, or a route or listener.
    pub fn has_owner(&self) -> bool {
        self.older_gateway.is_some() || self.owner.first().is_some()
    }

    /// The name of the namespace that owns the host.
    pub fn owner_namespace(&self) -> &str {
        self.owner.namespace.as_deref().unwrap_or_default()
    }

    /// Whether a canary may take a part of the requests of a path that `main` has.
    pub fn may_split(&self, canary: &Claims, main: &Claims) -> bool {
        self.mode == HostOwnership::Shared || canary.key.namespace == main.key.namespace
    }

    /// Whether an Ingress may have a path of the host: what lies below `/.well-known` is the owner's.
    pub fn may_have(&self, by: &Claims, claim: &Claim) -> bool {
        self.owner.has(by) || !claim.is_well_known
    }

    /// Whether the owner is another namespace than this one, where that counts.
    pub fn is_foreign_to(&self, namespace: &str) -> bool {
        self.owner.namespace.as_ref().is_some_and(|owner| owner != namespace)
    }

    /// Whether `younger` may have a root that `older` gives by spec.defaultBackend.
    pub fn may_replace(&self, older: &Claims, younger: &Claims) -> bool {
        self.mode == HostOwnership::Shared
            || older.key.namespace == younger.key.namespace
            || older.age() > younger.age()
    }

    /// Ingresses of other namespaces that want client certificates which the owner does not ask for, or a server-snippet that may
    /// protect: nobody may see their paths without.
    pub fn unprotected(&self) -> BTreeSet<&'a Key> {
        let owner = self.owner.merged();
        let is_unprotected = |by: &&&Claims| {
            let said = &by.host_settings.0;
            lacks_client(said, &owner) || said.server.as_ref().is_some_and(|server| server.protects)
        };
        self.other_namespaces.iter().filter(is_unprotected).map(|by| &by.key).collect()
    }

    /// What there is to say to other namespaces about a host that is not theirs.
    pub fn refusals(&self, host: &HostPattern) -> Vec<(Key, Note)> {
        let whose = match (self.older_gateway, self.owner.first()) {
            (Some(older_gateway), _) => whose(host, older_gateway.kind, &older_gateway.age.key),
            (None, Some(first)) => whose(host, Kind::Ingress, &first.key),
            (None, None) => return Vec::new(),
        };
        let owner = self.owner.merged();
        let mut notes = Vec::new();
        for by in &self.other_namespaces {
            let mut say = |note| notes.push((by.key.clone(), note));
            if self.mode == HostOwnership::Strict {
                let message = format!(
                    "{whose}, and --host-ownership=strict lets only that namespace use it: its paths are not served: \
                     use a host of your own"
                );
                say(Note::rejected(message));
                continue;
            }
            ignored(host, &by.host_settings.0, &owner, &whose).into_iter().for_each(&mut say);
        }
        notes
    }
}

/// Whether the owner asks for other client certificates than an Ingress of another namespace, or for none.
fn lacks_client(said: &HostSettings, owner: &HostSettings) -> bool {
    match (&said.client_tls.client, &owner.client_tls.client) {
        (None, _) => false,
        (Some(Ok(said)), Some(Ok(owner))) => said != owner,
        (Some(_), _) => true,
    }
}

/// What has no effect of what another namespace says; what the owner says too has.
fn ignored(
    host: &HostPattern,
    said: &HostSettings,
    owner: &HostSettings,
    whose: &str,
) -> Vec<Note> {
    // Every field is named here: a new one has to be decided about.
    let HostSettings {
        tls,
        hosts,
        client_tls,
        ssl_passthrough,
        server,
        closes_host: _,
        has_regex: _,
    } = said;
    let Hosts { app_root, from_to_www, aliases } = hosts;
    let ClientTls { ciphers, prefers_server_ciphers, client: _ } = client_tls;
    let is_alias = |alias: &HostPattern| alias == host || owner.hosts.aliases.contains(alias);
    let all = [
        ("app-root", app_root.is_some() && *app_root != owner.hosts.app_root),
        ("from-to-www-redirect", *from_to_www && !owner.hosts.from_to_www),
        ("server-alias", !aliases.iter().all(is_alias)),
        ("ssl-ciphers", ciphers.is_some() && *ciphers != owner.client_tls.ciphers),
        (
            "ssl-prefer-server-ciphers",
            prefers_server_ciphers.is_some()
                && *prefers_server_ciphers != owner.client_tls.prefers_server_ciphers,
        ),
        ("ssl-passthrough", *ssl_passthrough && !owner.ssl_passthrough),
        ("server-snippet", server.as_ref().is_some_and(|server| !server.protects)),
    ];
    let remedy = "set it there, or use a host of your own";
    let ignored = all.into_iter().filter(|(_, is_ignored)| *is_ignored);
    let mut notes: Vec<_> = ignored
        .map(|(name, _)| {
            Note::rejected(format!("annotation {name}: {whose}, so it is ignored: {remedy}"))
        })
        .collect();
    notes.extend(closed(said, owner, whose, remedy));
    let names_host =
        |tls: &Tls| tls.hosts.iter().any(|name| name.trim_end_matches('.') == host.as_str());
    if tls.iter().any(names_host) {
        notes.push(match owner.tls.is_empty() {
            true => Note::rejected(format!("spec.tls: {whose}, so it is ignored: {remedy}")),
            false => Note::warning(format!(
                "spec.tls: {whose}: clients are shown the certificate of that namespace"
            )),
        });
    }
    notes
}

/// What may protect and has no effect, so that its paths are closed.
fn closed(said: &HostSettings, owner: &HostSettings, whose: &str, remedy: &str) -> Vec<Note> {
    let mut notes = Vec::new();
    if lacks_client(said, owner) {
        notes.push(Note::rejected(format!(
            "annotation auth-tls-secret: {whose}, which does not ask for these certificates, so its locations answer \
             503: {remedy}"
        )));
    }
    if said.server.as_ref().is_some_and(|server| server.protects) {
        notes.push(Note::rejected(format!(
            "annotation server-snippet: {whose}, so it is ignored, and its locations answer 503, because some of its directives \
             may restrict access: {remedy}"
        )));
    }
    notes
}

/// A host as messages name it.
pub fn words_of(host: &HostPattern) -> String {
    match host.as_str() {
        HostPattern::DEFAULT => "the default host".into(),
        host => format!("host {host}"),
    }
}

/// Whose a host is, as messages say it.
pub fn whose(host: &HostPattern, kind: Kind, by: &Key) -> String {
    let host = words_of(host);
    format!(
        "{host} belongs to namespace {}, whose {kind} {by} is the oldest that names it",
        by.namespace
    )
}

/// Whose rules are served for a host: those that name it, or those of a host that it is an alias of.
#[derive(Debug)]
pub enum ServedFrom<'a> {
    /// Its own claims; none of them: nobody names it, or canaries alone.
    Claims(HostView<'a>),
    /// The host is served as another host.
    Alias {
        /// The alias that says so.
        alias: &'a Alias,
        /// The host whose claims are served.
        source: &'a HostPattern,
    },
}

/// Who owns a host, and whose rules are served for it.
#[derive(Debug)]
pub struct OwnerDecision<'a> {
    /// Whose rules are served for the host.
    pub served_from: ServedFrom<'a>,
    /// The oldest object that names the host, which makes its namespace the owner; `None`: no object does.
    pub by: Option<Age>,
    /// The kind of that object.
    pub kind: Kind,
    /// Notes for Ingresses of other namespaces that name the host too.
    pub notes: Vec<(Key, Note)>,
}

/// The oldest object that names a host: creation and name, and its kind. `rule` is the oldest Ingress with a rule for it that is no
/// canary, `alias` the one whose alias of it comes first.
pub fn oldest<'a>(
    mode: HostOwnership,
    rule: Option<(i64, &'a Key)>,
    alias: Option<(i64, &'a Key)>,
    by_gateway: Option<&'a GatewayClaim>,
) -> Option<((i64, &'a Key), Kind)> {
    let by = match mode {
        HostOwnership::Shared => rule.or(alias),
        HostOwnership::Settings | HostOwnership::Strict => rule.into_iter().chain(alias).min(),
    };
    let older_gateway = by_gateway.filter(|claim| claim.is_older(mode, by));
    let older_gateway = older_gateway.map(|claim| (claim.age.borrowed(), claim.kind));
    older_gateway.or_else(|| by.map(|by| (by, Kind::Ingress)))
}

fn owned((created, key): (i64, &Key)) -> Age {
    Age { created, key: key.clone() }
}

/// Decides about one host. `claims` are oldest first; `aliases` in their order, each with the host that it follows.
///
/// The owner's own rules come before its aliases, as in ingress-nginx. A younger Ingress of another namespace takes no
/// alias away, and an alias takes no host from an older one.
pub fn decide<'a>(
    mode: HostOwnership,
    host: &HostPattern,
    claims: &[&'a Claims],
    aliases: &[(&'a Alias, &'a HostPattern)],
    by_gateway: Option<&'a GatewayClaim>,
) -> OwnerDecision<'a> {
    let mut mains = claims.iter().filter(|by| by.canary().is_none()).map(|by| by.age());
    let rule = mains.next();
    let alias = aliases.first().map(|(alias, _)| &alias.age);
    let (rule, alias) = (rule.as_ref().map(Age::borrowed), alias.map(Age::borrowed));
    let (by, kind) = oldest(mode, rule, alias, by_gateway).unzip();
    let (by, kind) = (by.map(owned), kind.unwrap_or(Kind::Ingress));
    let older_gateway = by_gateway.filter(|_| kind != Kind::Ingress);
    let view = HostView::new(mode, claims, by.as_ref(), older_gateway);
    let namespace = by.as_ref().map_or("", |by| by.key.namespace.as_str());
    let mut notes = Vec::new();
    if let (Some(by), true) = (&by, mode != HostOwnership::Shared) {
        let whose = whose(host, kind, &by.key);
        for (alias, source) in aliases.iter().filter(|(f, _)| f.age.key.namespace != namespace) {
            let name = alias.annotation();
            notes.push((
                alias.age.key.clone(),
                Note::rejected(format!(
                    "annotation {name}: {whose}, so it is not an alias of {source}: name another host"
                )),
            ));
        }
        if !view.has_owner() {
            notes.extend(view.other_namespaces.iter().map(|other| {
                let message = format!(
                    "{whose} as an alias of another host: its paths there are not served: use a host of your own"
                );
                (other.key.clone(), Note::rejected(message))
            }));
        }
    }
    // What a route or listener names follows another host only where its own namespace says so.
    let may_follow =
        |alias: &Alias| older_gateway.is_none() || alias.age.key.namespace == namespace;
    let served_from = match aliases.iter().find(|(alias, _)| may_follow(alias)) {
        Some((alias, source)) if view.owner.first().is_none() => {
            ServedFrom::Alias { alias, source }
        }
        _ => ServedFrom::Claims(view),
    };
    OwnerDecision { served_from, by, kind, notes }
}
