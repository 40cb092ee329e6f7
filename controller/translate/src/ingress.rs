//! One Ingress by itself: what it claims, before anybody else's claims are looked at.

pub mod class;
pub mod inspect;

use crate::Options;
use crate::annotation::balancing::{self, Balancing};
use crate::annotation::canary::Canary;
use crate::annotation::{self, Annotations, Place};
use crate::host::owner::{self, Age, HostSettings, Sealed};
use crate::patterns::Compiler;
use crate::translator::shared::SharedPolicies;
use class::Choice;
use oxigress_core::model::policy::{Access, Policies};
use oxigress_core::model::{
    BackendId, Bundle, BundleId, HostPattern, HttpsRedirect, MAX_RULES, Origin, PathPattern,
    Policy, shorten,
};
use oxigress_core::patterns::{is_plain, leading_text};
use oxigress_objects::ingress::{Ingress, PathType, Port, Target};
use oxigress_objects::small::SortedMap;
use oxigress_objects::verdict::Note;
use oxigress_objects::{Key, Kind, ObjectRef, World};
use oxigress_settings::Settings;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What an Ingress claims.
#[derive(Clone, Debug, PartialEq)]
pub struct Claims {
    /// Older claims win.
    pub created: i64,
    /// Whose they are.
    pub key: Key,
    /// Paths by host; a host without paths is a server all the same.
    pub hosts: SortedMap<HostPattern, Box<[Claim]>>,
    /// spec.defaultBackend, for the roots of hosts where this Ingress is the first.
    pub default_backend: Option<BackendRef>,
    /// What it says about its hosts as wholes.
    pub host_settings: Sealed,
    /// It has nothing but spec.defaultBackend, which then serves every host nobody names.
    pub is_catch_all: bool,
    annotations: Annotations,
    /// Its locations answer 503, whatever they lead to.
    closed: bool,
    /// One of its paths has captures.
    has_groups: bool,
}

/// A path of a host.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// Which paths.
    pub pattern: PathPattern,
    /// As written.
    pub path: String,
    /// Where it leads.
    pub leads: BackendRef,
    /// It can be a regular expression too, where another Ingress makes all paths of the host such.
    pub is_valid_regex: bool,
    /// Its regular expression is not served: what it begins with answers 503, where nobody else claims that.
    pub is_refused: bool,
    /// It may lead below `/.well-known/`.
    pub is_well_known: bool,
}

/// A Service's port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BackendRef {
    /// The Service.
    pub service: Key,
    /// The port as the Ingress writes it.
    pub port: Port,
    /// Both as one id.
    pub backend: BackendId,
}

/// What becomes of one Ingress.
#[derive(Debug, Default)]
pub struct Parsed {
    /// None: nothing of it is served.
    pub claims: Option<Claims>,
    /// Its class is ours, whatever becomes of it.
    pub is_ours: bool,
    /// What there is to say about it by itself.
    pub notes: Vec<Note>,
    /// The objects that its annotations name.
    pub referred: BTreeSet<ObjectRef>,
    /// The bundles that its claims name.
    pub bundles: BTreeMap<BundleId, Bundle>,
}

impl Parsed {
    /// The Secrets and ConfigMaps that it is served from.
    pub fn wants(self, key: &Key) -> BTreeSet<ObjectRef> {
        let mut wanted = self.referred;
        wanted.retain(|id| matches!(id.kind, Kind::ConfigMap | Kind::Secret));
        let secrets = self.claims.iter().flat_map(|claims| claims.host_settings.secrets());
        wanted.extend(
            secrets.map(|name| ObjectRef::new(Kind::Secret, Key::new(&key.namespace, name))),
        );
        wanted
    }
}

/// The paths of an Ingress by host, while they are read.
type Hosts = BTreeMap<HostPattern, Vec<Claim>>;

fn frozen(hosts: Hosts) -> SortedMap<HostPattern, Box<[Claim]>> {
    let hosts: BTreeMap<_, _> = hosts.into_iter().map(|(host, all)| (host, all.into())).collect();
    hosts.into()
}

/// Reads one Ingress.
pub fn parse(
    world: &World,
    options: &Options,
    settings: &Settings,
    (key, ingress): (&Key, &Ingress),
    mut compiler: Compiler<'_>,
) -> Parsed {
    match class::choose(world, options, key, ingress) {
        Choice::Ours => {}
        Choice::Foreign => return Parsed::default(),
        Choice::Nobodys(note) => return Parsed { notes: vec![note], ..Parsed::default() },
    }
    let refused = |notes| Parsed { is_ours: true, notes, ..Parsed::default() };
    let odd = refuse_catch_all(options, ingress).or_else(|| inspect::refuse(options, ingress));
    if let Some(note) = odd {
        return refused(vec![note]);
    }
    let place =
        Place { world, ingress: key, defaults: &settings.defaults, https_port: options.https_port };
    let annotation::Read { annotations, mut host, mut notes, referred, bundles } =
        annotation::parse(
            place,
            &ingress.annotations,
            &options.annotations_prefix,
            settings,
            &mut compiler,
        );
    if annotations.is_refused {
        return refused(notes);
    }
    if host.ssl_passthrough && !options.ssl_passthrough {
        notes.push(Note::warning(
            "annotation ssl-passthrough: TLS is not passed through unless the controller runs with \
             --enable-ssl-passthrough",
        ));
        host.ssl_passthrough = false;
    }
    let closed = annotations.closing.is_some() || settings.closing_key.is_some();
    let mut claims = Claims {
        created: ingress.created,
        key: key.clone(),
        hosts: SortedMap::default(),
        default_backend: None,
        host_settings: Sealed::new(HostSettings::default()),
        is_catch_all: ingress.rules.is_empty(),
        annotations,
        closed,
        has_groups: false,
    };
    let mut hosts = Hosts::new();
    if let Some(target) = &ingress.default_backend {
        claims.default_backend = leads(key, target, "spec.defaultBackend", &mut notes);
        if ingress.rules.is_empty() {
            hosts.entry(HostPattern::default_host()).or_default();
        }
    }
    claims.read_rules(ingress, compiler, options.regex_per_host, &mut hosts, &mut notes);
    if claims.canary().is_some() {
        claims.restrict_to_canary(&mut hosts);
    }
    claims.hosts = frozen(hosts);
    claims.check_captures(options.regex_per_host, &mut notes);
    if claims.canary().is_some() {
        return Parsed { claims: Some(claims), is_ours: true, notes, referred, bundles };
    }
    host.tls = ingress.tls.clone();
    for host in host.tls.iter_mut().flat_map(|tls| &mut tls.hosts) {
        host.make_ascii_lowercase();
    }
    claims.host_settings = Sealed::new(host);
    Parsed { claims: Some(claims), is_ours: true, notes, referred, bundles }
}

/// Why one with spec.defaultBackend is not served where the operator does not want it.
pub fn refuse_catch_all(options: &Options, ingress: &Ingress) -> Option<Note> {
    let is_refused = options.disable_catch_all && ingress.default_backend.is_some();
    is_refused.then(|| {
        Note::rejected(
            "spec.defaultBackend is switched off by --disable-catch-all, so the whole Ingress is not \
             served: remove the field",
        )
    })
}

impl Claim {
    fn root(leads: BackendRef) -> Self {
        let pattern = PathPattern::Prefix(String::new());
        let path = "/".into();
        Claim {
            pattern,
            path,
            leads,
            is_valid_regex: true,
            is_refused: false,
            is_well_known: false,
        }
    }
}

/// What closes a path that is not served: of an expression all that begins as it does, as nginx compares it, upper and
/// lower case alike; of any other path whole segments. Nothing closes a whole host.
fn closing(written: &str, is_regex: bool) -> Option<PathPattern> {
    let text = leading_text(written);
    let pattern = match is_regex {
        true => PathPattern::uncompiled(text),
        false => PathPattern::prefix(text),
    };
    pattern.ok().filter(|_| text.len() > 1)
}

impl Claims {
    fn read_rules(
        &self,
        ingress: &Ingress,
        mut compiler: Compiler<'_>,
        is_per_host: bool,
        hosts: &mut Hosts,
        notes: &mut Vec<Note>,
    ) {
        let mut paths = 0;
        for (r, rule) in ingress.rules.iter().enumerate() {
            let host = match parse_host(&rule.host) {
                Ok(host) => host,
                Err(why) => {
                    notes.push(Note::rejected(format!("spec.rules[{r}].host: {why}")));
                    continue;
                }
            };
            // A rule without paths names a host too.
            paths += usize::from(rule.paths.is_empty());
            if paths > MAX_RULES {
                notes.push(Note::rejected(format!(
                    "spec.rules[{r}] and what follows is not served: at most {MAX_RULES} paths and hosts in \
                     one Ingress, split it"
                )));
                return;
            }
            let claims = hosts.entry(host).or_default();
            for (p, path) in rule.paths.iter().enumerate() {
                let field = format!("spec.rules[{r}].http.paths[{p}]");
                paths += 1;
                if paths > MAX_RULES {
                    notes.push(Note::rejected(format!(
                        "{field} and what follows is not served: at most {MAX_RULES} paths in one \
                         Ingress, split it"
                    )));
                    return;
                }
                let written = if path.path.is_empty() { "/" } else { &path.path };
                let Some(leads) =
                    leads(&self.key, &path.target, &format!("{field}.backend"), notes)
                else {
                    continue;
                };
                let is_regex =
                    path.path_type != PathType::Exact && is_regex(&self.annotations, written);
                let pattern = match path.path_type {
                    PathType::Exact => PathPattern::exact(written),
                    _ if is_regex => compiler.path(written),
                    _ => PathPattern::prefix(written),
                };
                let may_close = path.path_type != PathType::Exact;
                let closed = may_close.then(|| closing(written, is_regex)).flatten();
                let (pattern, is_refused) = match (pattern, closed) {
                    (Ok(pattern), _) => (pattern, false),
                    (Err(why), Some(closed)) => {
                        let message = format!(
                            "{field}.path: {why}; requests that begin with {} get 503 where no longer path takes them and the \
                             host is this namespace's",
                            leading_text(written)
                        );
                        notes.push(Note::rejected(message));
                        (closed, true)
                    }
                    (Err(why), None) => {
                        notes.push(Note::rejected(format!("{field}.path: {why}")));
                        continue;
                    }
                };
                let is_valid_regex =
                    !is_refused && (is_regex || is_per_host && compiler.path(written).is_ok());
                let is_well_known = owner::is_well_known(&pattern)
                    || is_valid_regex
                        && PathPattern::uncompiled(written)
                            .is_ok_and(|as_regex| owner::is_well_known(&as_regex));
                let path = written.into();
                claims.push(Claim {
                    pattern,
                    path,
                    leads,
                    is_valid_regex,
                    is_refused,
                    is_well_known,
                });
            }
        }
    }

    /// What upstream-hash-by takes from paths: where none of them has groups, everybody would go to one endpoint. A canary's
    /// paths are those of main Ingresses.
    fn check_captures(&mut self, is_per_host: bool, notes: &mut Vec<Note>) {
        let has_groups = |claim: &&Claim| {
            let is_regex = matches!(claim.pattern, PathPattern::Regex(_))
                || is_per_host && claim.is_valid_regex;
            is_regex && claim.path.contains('(')
        };
        let claims = || self.hosts.values().flat_map(|claims| claims.iter());
        self.has_groups = claims().any(|claim| has_groups(&claim));
        let without = claims().find(|claim| !has_groups(claim));
        let balancing = self.balancing().filter(|_| self.canary().is_none());
        let Some(balancing) = balancing.cloned() else { return };
        let Some(hash_by) = &balancing.hash_by else { return };
        let (captures, is_alone) = balancing::captures_of(&hash_by.key);
        if captures.is_empty() {
            return;
        }
        let message = match without {
            Some(claim) if is_alone && self.has_groups => format!(
                "requests for path {} have no captures and all go to one endpoint: use groups in it, or a variable too",
                shorten(&claim.path)
            ),
            _ if self.has_groups => return,
            _ => format!(
                "no path of this Ingress is a regular expression with groups, so its captures {}: use groups and use-regex",
                if is_alone { "are nothing to hash and the default is used" } else { "are empty" }
            ),
        };
        notes.push(Note::warning(format!("annotation upstream-hash-by: {message}")));
        if is_alone && !self.has_groups {
            let rest = Balancing { hash_by: None, ..Balancing::clone(&balancing) };
            self.annotations.balancing = (!rest.is_silent()).then(|| Arc::new(rest));
        }
    }

    /// A canary is only ever asked for paths that a main Ingress has; spec.defaultBackend stands for the root
    /// of hosts that nobody names.
    fn restrict_to_canary(&mut self, hosts: &mut Hosts) {
        self.is_catch_all = false;
        if let Some(leads) = self.default_backend.take() {
            let claim = Claim::root(leads);
            hosts.entry(HostPattern::default_host()).or_default().push(claim);
        }
    }

    /// Its rules if it is a canary.
    pub fn canary(&self) -> Option<&Canary> {
        self.annotations.canary.as_deref()
    }

    /// Its paths of a host.
    pub fn claims_on(&self, host: &HostPattern) -> &[Claim] {
        self.hosts.get(host).map_or(&[], |claims| claims)
    }

    /// What it says about balancing.
    pub fn balancing(&self) -> Option<&Arc<Balancing>> {
        self.annotations.balancing.as_ref()
    }

    /// Which of two Ingresses decides.
    pub fn age(&self) -> Age {
        Age { created: self.created, key: self.key.clone() }
    }

    /// The Services' ports whose balancing it has a say in.
    pub fn ports(&self) -> BTreeSet<&BackendId> {
        let claims = self.hosts.values().flat_map(|claims| claims.iter()).map(|claim| &claim.leads);
        match self.canary() {
            Some(_) => BTreeSet::new(),
            None => claims.chain(&self.default_backend).map(|leads| &leads.backend).collect(),
        }
    }

    /// A backend that never exists, so that its locations answer 503. Its empty second part keeps it apart
    /// from the Services of a namespace `denied`.
    pub fn closed_backend(&self) -> BackendId {
        let named = BackendId::parse(format!("denied//{}/{}", self.key.namespace, self.key.name));
        // Names have at most 253 bytes each, or the source would not have let them in.
        named.unwrap_or_else(|_| self.anonymous_closed_backend())
    }

    fn anonymous_closed_backend(&self) -> BackendId {
        BackendId::parse("denied//").unwrap_or_else(|_| unreachable!("a fixed text is a valid id"))
    }

    /// All locations of this Ingress answer 503.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Policy of one of its paths, as configured.
    pub fn policy(&self, path: &str, settings: &Settings) -> Policy {
        let mut exempt = settings.no_tls_redirect_locations.iter();
        let https_redirect = if exempt.any(|beginning| path.starts_with(beginning.as_str())) {
            HttpsRedirect::Never
        } else if self.annotations.force_ssl_redirect {
            HttpsRedirect::Always
        } else if self.annotations.ssl_redirect {
            HttpsRedirect::WithCertificate
        } else {
            HttpsRedirect::Never
        };
        Policy { https_redirect, ..Policy::default() }
    }

    /// What is decided per request about one of its paths, beside [`Self::policy`].
    pub fn policies(&self, path: &str, settings: &Settings) -> Arc<Policies> {
        let all = &self.annotations.policies;
        let is_open = |beginning: &String| path.starts_with(beginning.as_str());
        let is_open =
            all.access.is_some() && settings.defaults.no_auth_locations.iter().any(is_open);
        let is_same = all.rewrite.as_ref().is_some_and(|rewrite| rewrite.target.as_str() == path);
        if !is_open && !is_same {
            return all.clone();
        }
        let mut own = Policies::clone(all);
        if is_same {
            own.rewrite = None;
        }
        if let Some(access) = own.access.as_mut().filter(|_| is_open) {
            access.basic = None;
            access.external = None;
        }
        own.access = own.access.filter(|access| *access != Access::default());
        Arc::new(own)
    }

    /// Has its policies in common with other Ingresses that say the same.
    pub fn share_policies(&mut self, shared: &mut SharedPolicies) {
        shared.share(&mut self.annotations.policies);
    }

    /// What its annotations say of requests, whatever the path.
    pub fn annotated(&self) -> &Policies {
        &self.annotations.policies
    }

    /// One of its paths has captures.
    pub fn has_groups(&self) -> bool {
        self.has_groups
    }

    /// Its proxy-ssl-* asks for verification and cannot be honoured.
    pub fn has_lost_upstream_tls(&self) -> bool {
        self.annotations.has_lost_upstream_tls
    }

    /// The Service of its annotation default-backend.
    pub fn fallback(&self) -> Option<&BackendRef> {
        self.annotations.default_backend.as_ref()
    }

    /// Names for logs; `leads` and `path` are what the rule comes from.
    pub fn origin(&self, leads: Option<&BackendRef>, path: &str) -> Origin {
        Origin {
            namespace: self.key.namespace.to_string(),
            ingress: self.key.name.to_string(),
            service: leads.map(|leads| leads.service.name.to_string()).unwrap_or_default(),
            port: leads.map(|leads| leads.port.to_string()).unwrap_or_default(),
            path: path.into(),
        }
    }
}

/// Backends of URLs that policies name.
pub fn urls(policies: &Policies) -> impl Iterator<Item = &BackendId> {
    let access = policies.access.as_ref().and_then(|access| access.external.as_ref());
    let access = access.map(|external| &external.to.backend);
    access.into_iter().chain(policies.mirror.as_ref().map(|mirror| &mirror.to.backend))
}

/// An Ingress that asks for it has regular expressions; one that rewrites has them where its path has letters that
/// no plain path has.
fn is_regex(annotations: &Annotations, path: &str) -> bool {
    annotations.use_regex || annotations.policies.rewrite.is_some() && !is_plain(path)
}

fn parse_host(written: &str) -> Result<HostPattern, String> {
    match written {
        "" => Ok(HostPattern::default_host()),
        // The wire's name of the default host, which nobody can mean by writing it.
        HostPattern::DEFAULT => {
            Err("`_` is no host: leave the field out to serve every host".into())
        }
        host => HostPattern::parse(host).map_err(|why| why.to_string()),
    }
}

fn leads(ingress: &Key, target: &Target, field: &str, notes: &mut Vec<Note>) -> Option<BackendRef> {
    match target {
        Target::Service { name, port } => {
            let service = Key::new(&ingress.namespace, name);
            if name.contains('/') {
                notes.push(Note::rejected(format!("{field}.service.name: {name:?} is not a name")));
                return None;
            }
            if matches!(port, Port::Name(name) if name.contains('/')) {
                notes.push(Note::rejected(format!("{field}.service.port: {port} is not a name")));
                return None;
            }
            match BackendId::parse(format!("{service}/{port}")) {
                Ok(backend) => Some(BackendRef { service, port: port.clone(), backend }),
                Err(why) => {
                    notes.push(Note::rejected(format!("{field}.service: {why}")));
                    None
                }
            }
        }
        Target::Resource(what) => {
            notes.push(Note::rejected(format!(
                "{field}.resource: {what} is not a Service and is not served: name a Service"
            )));
            None
        }
    }
}
