//! One Ingress by itself: what it claims, before anybody else's claims are looked at.

mod captures;
mod claims;
pub mod class;
mod closing;
pub mod inspect;
mod unserved;

pub use claims::{Claim, Claims, is_of_closed};
use unserved::{Draft, Unserved};
pub use unserved::{Restriction, UnservedPath};

use crate::Options;
use crate::annotation::{self, Annotations, HostSettings, IngressContext};
use crate::claim::backend_ref::BackendRef;
use crate::claim::well_known::is_well_known;
use crate::host::owner::Sealed;
use crate::patterns::Compiler;
use class::Choice;
use oxigress_core::model::policy::Policies;
use oxigress_core::model::{
    BackendId, Bundle, BundleId, HostPattern, MAX_RULES, PathPattern, shorten,
};
use oxigress_core::patterns::is_plain;
use oxigress_objects::ingress::{Ingress, Path, PathType, Port, Target, Tls};
use oxigress_objects::small::SortedMap;
use oxigress_objects::verdict::Note;
use oxigress_objects::verdict::acceptance::Acceptance;
use oxigress_objects::{Key, Kind, ObjectRef, World};
use oxigress_settings::Settings;
use std::collections::{BTreeMap, BTreeSet};

/// What becomes of one Ingress.
#[derive(Debug, Default)]
pub struct Parsed {
    /// What it claims, its hosts at least if nothing of it is served; `None`: it is not ours, or may be a canary.
    pub claims: Option<Claims>,
    /// What it may have as other names of its hosts, whether they hold or not.
    pub other_names: BTreeSet<HostPattern>,
    /// What becomes of it; `None`: it is not ours.
    pub acceptance: Option<Acceptance>,
    /// What there is to say about it by itself.
    pub notes: Vec<Note>,
    /// The objects that its annotations name.
    pub referred: BTreeSet<ObjectRef>,
    /// The bundles that its claims name.
    pub bundles: BTreeMap<BundleId, Bundle>,
}

/// Most Secrets that spec.tls of one Ingress may name: each may have to be asked for.
const MAX_SECRETS: usize = 1_000;

/// The Secrets and ConfigMaps that an Ingress may be served from, without reading its rules.
pub fn references(
    world: &World,
    options: &Options,
    settings: &Settings,
    (key, ingress): (&Key, &Ingress),
) -> BTreeSet<ObjectRef> {
    if !matches!(class::choose(world, options, key, ingress), Choice::Ours) {
        return BTreeSet::new();
    }
    let context = context(world, options, settings, key);
    let (all, prefix) = (&ingress.annotations, &options.annotations_prefix);
    let read = annotation::parse(context, all, prefix, settings, &mut Compiler::over_budget());
    let mut named = read.referred;
    named.retain(|id| matches!(id.kind, Kind::ConfigMap | Kind::Secret));
    let tls = ingress.tls.iter().take(count_read(&ingress.tls));
    let secrets = tls.map(|tls| tls.secret.as_str()).filter(|name| !name.is_empty());
    let keys = secrets.map(|name| Key::new(&key.namespace, name));
    named.extend(keys.map(|key| ObjectRef::new(Kind::Secret, key)));
    named
}

/// How many entries of spec.tls there are before the first that names a Secret too many.
fn count_read(all: &[Tls]) -> usize {
    let mut named = BTreeSet::new();
    let first = all.iter().position(|tls| {
        named.extend(Some(tls.secret.as_str()).filter(|name| !name.is_empty()));
        named.len() > MAX_SECRETS
    });
    first.unwrap_or(all.len())
}

/// The entries of spec.tls as they are served.
fn read_tls(ingress: &Ingress, notes: &mut Vec<Note>) -> Vec<Tls> {
    let mut all = ingress.tls.clone();
    for host in all.iter_mut().flat_map(|tls| &mut tls.hosts) {
        host.make_ascii_lowercase();
    }
    let read = count_read(&all);
    if read < all.len() {
        notes.push(Note::rejected(format!(
            "the Secrets of spec.tls[{read}] and later entries count as missing: at most {MAX_SECRETS} Secrets in one \
             Ingress, split it"
        )));
        all.iter_mut().skip(read).for_each(|tls| tls.secret.clear());
    }
    all
}

/// The paths of an Ingress by host, while they are read.
type Hosts = BTreeMap<HostPattern, Vec<Claim>>;

fn frozen(hosts: Hosts) -> SortedMap<HostPattern, Box<[Claim]>> {
    let hosts: BTreeMap<_, _> = hosts.into_iter().map(|(host, all)| (host, all.into())).collect();
    hosts.into()
}

/// Reads one Ingress by itself.
pub fn parse(
    world: &World,
    options: &Options,
    settings: &Settings,
    (key, ingress): (&Key, &Ingress),
    mut compiler: Compiler<'_>,
) -> Parsed {
    if let Some(unread) = refuse(world, options, settings, (key, ingress)) {
        return unread;
    }
    let context = context(world, options, settings, key);
    let annotation::Read { annotations, mut host, mut notes, referred, bundles } =
        annotation::parse(
            context,
            &ingress.annotations,
            &options.annotations_prefix,
            settings,
            &mut compiler,
        );
    if annotations.is_refused {
        let acceptance = Some(Acceptance::Refused);
        return Parsed { acceptance, notes, ..Parsed::default() };
    }
    notes.extend(forbid_passthrough(options, &mut host));
    let mut claims = Claims {
        is_catch_all: ingress.rules.is_empty(),
        closed: annotations.closing.is_some() || settings.closing_key.is_some(),
        annotations,
        ..Claims::nothing(key, ingress.created)
    };
    let is_main = claims.canary().is_none();
    let restricts = is_main && (claims.restricts_access() || host.may_restrict_access());
    let draft = Draft::of(restricts, is_main);
    let per_host = options.regex_per_host;
    let mut hosts = claims.read_hosts(ingress, draft, compiler, per_host, &mut notes);
    if claims.canary().is_some() {
        claims.restrict_to_canary(&mut hosts);
    }
    claims.hosts = frozen(hosts);
    claims.check_captures(options.regex_per_host, &mut notes);
    claims.check_rewrite(&mut notes);
    let mut other_names = BTreeSet::new();
    if claims.canary().is_none() {
        other_names = host.hosts.other_names(claims.hosts.keys());
        host.tls = read_tls(ingress, &mut notes);
        claims.host_settings = Sealed::new(host);
    }
    let (claims, acceptance) = (Some(claims), Some(Acceptance::Served));
    Parsed { claims, other_names, acceptance, notes, referred, bundles }
}

/// What becomes of an Ingress that is another controller's, or whose whole is refused.
fn refuse(
    world: &World,
    options: &Options,
    settings: &Settings,
    (key, ingress): (&Key, &Ingress),
) -> Option<Parsed> {
    match class::choose(world, options, key, ingress) {
        Choice::Ours => {}
        Choice::Foreign => return Some(Parsed::default()),
        Choice::Nobodys(note) => return Some(Parsed { notes: vec![note], ..Parsed::default() }),
    }
    let odd = refuse_catch_all(options, ingress).or_else(|| inspect::refuse(options, ingress));
    odd.map(|note| refused(world, options, settings, (key, ingress), note))
}

/// Most aliases of the hosts of an Ingress of which nothing is served, each counted for each host: no limit of paths bounds them.
const MAX_ALIASES_OF_REFUSED: usize = 4_096;

/// What becomes of an Ingress of which nothing is served. Its hosts and their other names stay its own: else a mistake in it would
/// hand them, and the requests for them, to whoever names them next. One that is a canary, or may be one, has none.
pub fn refused(
    world: &World,
    options: &Options,
    settings: &Settings,
    (key, ingress): (&Key, &Ingress),
    note: Note,
) -> Parsed {
    let (acceptance, notes) = (Some(Acceptance::Refused), vec![note]);
    let context = context(world, options, settings, key);
    let names = annotation::names(context, &ingress.annotations, &options.annotations_prefix);
    let Some(mut names) = names else { return Parsed { acceptance, notes, ..Parsed::default() } };
    let restricts = unserved::may_restrict(ingress, &options.annotations_prefix, settings);
    let is_catch_all = ingress.rules.is_empty() && ingress.default_backend.is_some();
    let mut hosts = hosts_of(ingress);
    hosts.extend(
        (restricts && is_catch_all && !options.disable_catch_all).then(HostPattern::default_host),
    );
    let other_names = names.other_names(&hosts);
    if hosts.len().saturating_mul(names.aliases.len()) > MAX_ALIASES_OF_REFUSED {
        names.aliases.clear();
    }
    let hosts = hosts.into_iter().map(|host| (host, Vec::new())).collect();
    let closes_host = unserved::may_hold_for_hosts(ingress, &options.annotations_prefix);
    let host_settings = HostSettings { hosts: names, closes_host, ..HostSettings::default() };
    let claims = Claims {
        unserved: Unserved::unknown(restricts),
        hosts: frozen(hosts),
        host_settings: Sealed::new(host_settings),
        ..Claims::nothing(key, ingress.created)
    };
    Parsed { claims: Some(claims), other_names, acceptance, notes, ..Parsed::default() }
}

/// The hosts that an Ingress of ours would have, those that are other names of its hosts among them. A canary has none.
pub fn hosts_to_have(
    world: &World,
    options: &Options,
    settings: &Settings,
    (key, ingress): (&Key, &Ingress),
) -> BTreeSet<HostPattern> {
    let context = context(world, options, settings, key);
    let names = annotation::names(context, &ingress.annotations, &options.annotations_prefix);
    let Some(names) = names else { return BTreeSet::new() };
    let mut hosts = hosts_of(ingress);
    if ingress.rules.is_empty() && ingress.default_backend.is_some() {
        hosts.insert(HostPattern::default_host());
    }
    hosts.append(&mut names.other_names(&hosts));
    hosts
}

fn context<'a>(
    world: &'a World,
    options: &Options,
    settings: &'a Settings,
    ingress: &'a Key,
) -> IngressContext<'a> {
    let (defaults, https_port) = (&settings.defaults, options.https_port);
    IngressContext { world, ingress, defaults, https_port }
}

/// The hosts of the rules of an Ingress, and all hosts, if it may say something of these: more than it has.
pub fn named_hosts(ingress: &Ingress) -> BTreeSet<HostPattern> {
    let named = ingress.rules.iter().filter_map(|rule| HostPattern::parse(&rule.host).ok());
    let is_unnamed =
        ingress.default_backend.is_some() || ingress.rules.iter().any(|rule| rule.host.is_empty());
    named.chain(is_unnamed.then(HostPattern::default_host)).collect()
}

/// The hosts of the rules that are read, without their paths.
fn hosts_of(ingress: &Ingress) -> BTreeSet<HostPattern> {
    let rules = ingress.rules.iter().take(MAX_RULES);
    rules.filter_map(|rule| parse_host(&rule.host).ok()).collect()
}

/// Passthrough is the operator's to permit.
fn forbid_passthrough(options: &Options, host: &mut HostSettings) -> Option<Note> {
    let is_forbidden = host.ssl_passthrough && !options.ssl_passthrough;
    host.ssl_passthrough &= !is_forbidden;
    is_forbidden.then(|| {
        Note::warning(
            "annotation ssl-passthrough: TLS is not passed through unless the controller runs with \
             --enable-ssl-passthrough",
        )
    })
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

#[cfg(test)]
thread_local! {
    /// How many paths of rules have been read.
    static PATHS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// How many paths of rules have been read since this was last asked.
#[cfg(test)]
pub fn take_paths_read() -> usize {
    PATHS.take()
}

impl Claims {
    /// The paths by host, and the default backend.
    fn read_hosts(
        &mut self,
        ingress: &Ingress,
        mut unserved: Draft,
        compiler: Compiler<'_>,
        is_per_host: bool,
        notes: &mut Vec<Note>,
    ) -> Hosts {
        let mut hosts = Hosts::new();
        if let Some(target) = &ingress.default_backend {
            self.default_backend = backend_ref(&self.key, target, "spec.defaultBackend", notes);
            if ingress.rules.is_empty() {
                let claims = hosts.entry(HostPattern::default_host()).or_default();
                let is_closed = unserved.restricts && self.default_backend.is_none();
                claims.extend(is_closed.then(|| Claim::root(None)));
            }
        }
        self.read_rules(ingress, compiler, is_per_host, (&mut hosts, &mut unserved), notes);
        // Hosts behind the last path that is read are its own all the same.
        if unserved.is_unknown {
            for host in hosts_of(ingress) {
                hosts.entry(host).or_default();
            }
        }
        self.unserved = unserved.finish();
        hosts
    }

    fn read_rules(
        &self,
        ingress: &Ingress,
        mut compiler: Compiler<'_>,
        is_per_host: bool,
        (hosts, unserved): (&mut Hosts, &mut Draft),
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
                    "spec.rules[{r}] and later rules are not served: at most {MAX_RULES} paths and hosts in \
                     one Ingress, split it"
                )));
                unserved.is_unknown = true;
                return;
            }
            let claims = hosts.entry(host.clone()).or_default();
            for (p, path) in rule.paths.iter().enumerate() {
                let field = format!("spec.rules[{r}].http.paths[{p}]");
                paths += 1;
                if paths > MAX_RULES {
                    notes.push(Note::rejected(format!(
                        "{field} and later paths are not served: at most {MAX_RULES} paths in one \
                         Ingress, split it"
                    )));
                    unserved.is_unknown = true;
                    return;
                }
                let restricts = unserved.restricts;
                match self.read_path(path, (&field, restricts), &mut compiler, is_per_host, notes) {
                    Ok(claim) => claims.push(claim),
                    Err(path) => unserved.add(&host, path),
                }
            }
        }
    }

    /// A path that stands at `field`, of an Ingress that restricts access or of another one; an error: it is not served, and
    /// closes nothing by itself.
    fn read_path(
        &self,
        path: &Path,
        (field, restricts): (&str, bool),
        compiler: &mut Compiler<'_>,
        is_per_host: bool,
        notes: &mut Vec<Note>,
    ) -> Result<Claim, UnservedPath> {
        #[cfg(test)]
        PATHS.set(PATHS.get() + 1);
        let written = path.written();
        let backend_ref = backend_ref(&self.key, &path.target, &format!("{field}.backend"), notes);
        let is_regex = path.path_type != PathType::Exact && is_regex(&self.annotations, written);
        let pattern = match path.path_type {
            PathType::Exact => PathPattern::exact(written),
            _ if is_regex => compiler.path(written),
            _ => PathPattern::prefix(written),
        };
        let lost = || UnservedPath::of(written, is_regex);
        if backend_ref.is_none() && !restricts {
            return Err(lost());
        }
        let closed = closing::of(written, is_regex);
        let (pattern, is_refused) = match (pattern, closed) {
            (Ok(pattern), _) => (pattern, false),
            (Err(why), Some((closed, text))) => {
                let message = format!(
                    "{field}.path: {why}; requests whose path begins with {} are answered 503 unless the same or a longer \
                     path is served, if this namespace owns the host",
                    shorten(text)
                );
                notes.push(Note::rejected(message));
                (closed, true)
            }
            (Err(why), None) => {
                notes.push(Note::rejected(format!("{field}.path: {why}")));
                return Err(lost());
            }
        };
        let is_valid_regex =
            !is_refused && (is_regex || is_per_host && compiler.path(written).is_ok());
        let is_well_known = is_well_known(&pattern)
            || is_valid_regex
                && PathPattern::uncompiled(written).is_ok_and(|as_regex| is_well_known(&as_regex));
        let path = written.into();
        Ok(Claim { pattern, path, backend_ref, is_valid_regex, is_refused, is_well_known })
    }

    /// A canary is only ever asked for paths that a main Ingress has; spec.defaultBackend stands for the root
    /// of hosts that nobody names.
    fn restrict_to_canary(&mut self, hosts: &mut Hosts) {
        self.is_catch_all = false;
        if let Some(backend_ref) = self.default_backend.take() {
            let claim = Claim::root(Some(backend_ref));
            hosts.entry(HostPattern::default_host()).or_default().push(claim);
        }
    }
}

/// Backends of URLs that policies name.
pub fn urls(policies: &Policies) -> impl Iterator<Item = &BackendId> {
    let access = policies.access.as_ref().and_then(|access| access.external.as_ref());
    let access = access.map(|external| &external.to);
    let all = access.into_iter().chain(policies.mirror.as_ref().map(|mirror| &mirror.to));
    all.filter_map(|to| to.known_backend())
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

fn backend_ref(
    ingress: &Key,
    target: &Target,
    field: &str,
    notes: &mut Vec<Note>,
) -> Option<BackendRef> {
    match target {
        Target::Service { name, port } => {
            let service = Key::new(&ingress.namespace, name);
            if name.contains('/') {
                notes.push(Note::rejected(format!(
                    "{field}.service.name: {name:?} is not the name of a Service: correct it"
                )));
                return None;
            }
            if matches!(port, Port::Name(name) if name.contains('/')) {
                notes.push(Note::rejected(format!(
                    "{field}.service.port: {port} is not the name of a port: correct it"
                )));
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
