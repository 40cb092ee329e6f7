//! World to Snapshot and Verdicts: values in, values out.
//!
//! Shape:   the translation is made of [`notes::Part`]s: an Ingress by itself, the rules of a host, its
//!          certificate, the endpoints of a backend. Each is a pure function in a file of its own;
//!          [`Translator`] knows who depends on whom and computes again only what a change touches.
//! Errors:  none; what is not served gets a note, everything else is served.
//! Source:  ingress-nginx's controller.
//! Rejected: computing all and comparing, which costs in proportion to the cluster.
//! Knows:    objects, the operator's options, the ConfigMap's settings, and the model of what is served.
//! Does not: know a client, a clock, the environment or a log; where objects come from; how the result gets to nginx.
#![forbid(unsafe_code)]

pub mod annotation;
mod backend;
mod class;
mod conflict;
mod follow;
#[cfg(test)]
mod fuzz;
mod gate;
mod host_upstream_tls;
mod ingress;
mod inspect;
mod judge;
mod notes;
mod options;
mod owner;
mod passthrough;
mod pattern_budget;
mod patterns;
mod plan;
#[cfg(test)]
mod properties;
mod relation;
mod review;
mod stream;
#[cfg(test)]
mod testing;
mod tls;
mod wants;
mod withheld;

pub use judge::{Candidate, Judgement};
pub use options::Options;
pub use owner::HostOwnership;
pub use review::Reviews;
pub use tls::secret_behind;
pub use wants::Wants;
pub use withheld::WithheldItem;

use oxigress_objects::acceptance::Acceptance;

use backend::Usage;
use follow::Follower;
use ingress::{Claims, Leads};
use notes::{Notes, Part};
use owner::{Holder, HostView};
use oxigress_core::model::policy::{Policies, PolicyId};
use oxigress_core::model::{
    Backend, BackendId, Bundle, BundleId, Certificate, CertificateId, EndpointSet, HostPattern,
    Snapshot, StreamPort,
};
use oxigress_core::wire::native::Patch;
use oxigress_objects::external_name::DnsName;
use oxigress_objects::service::Protocol;
use oxigress_objects::verdict::{VerdictChanges, Verdicts};
use oxigress_objects::{Changed, Key, Kind, ObjectRef, World};
use oxigress_settings::grammar::url;
use oxigress_settings::streams::Streams;
use oxigress_settings::{self as settings, Settings};
use pattern_budget::PatternBudget;
use patterns::Compiler;
use plan::{Lead, Plan, Speakers};
use relation::Relation;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What a world comes to.
#[derive(Clone, Debug, PartialEq)]
pub struct Translation {
    /// All there is to serve.
    pub snapshot: Snapshot,
    /// All there is to say.
    pub verdicts: Verdicts,
}

/// Translates a whole world.
pub fn translate(world: &World, options: &Options) -> Translation {
    let mut translator = Translator::new(options.clone());
    translator.update(world, &world.all());
    Translation { snapshot: translator.snapshot, verdicts: translator.notes.verdicts().clone() }
}

/// Translates one change after the other.
pub struct Translator {
    options: Options,
    settings: Settings,
    snapshot: Snapshot,
    claims: BTreeMap<Key, Claims>,
    pattern_budget: PatternBudget,
    /// Of the Ingresses that are ours.
    standings: BTreeMap<Key, Acceptance>,
    new_standings: BTreeMap<Key, Option<Acceptance>>,
    /// Who claims a host, oldest first.
    claimants: BTreeMap<HostPattern, BTreeSet<(i64, Key)>>,
    speakers: Speakers,
    /// Hosts and the backends they lead to.
    leads: Relation<HostPattern, Lead>,
    plans: BTreeMap<BackendId, Plan>,
    default_backend: Option<Leads>,
    secrets: Relation<HostPattern, Key>,
    names: Relation<HostPattern, CertificateId>,
    /// Backends and the DNS names their addresses come from.
    external_names: Relation<BackendId, DnsName>,
    is_new_external_names: bool,
    /// Ingresses and the objects that their annotations name.
    referred: Relation<Key, ObjectRef>,
    /// Hosts and those that follow them.
    followers: Relation<HostPattern, Follower>,
    policies: Relation<HostPattern, PolicyId>,
    /// Ingresses and the bundles that they name.
    offered_bundles: Relation<Key, BundleId>,
    /// What these say.
    bundle_texts: BTreeMap<BundleId, Bundle>,
    /// Hosts and the bundles that their policies name.
    bundles: Relation<HostPattern, BundleId>,
    /// Hosts and the URLs that their policies name, with the Ingress that says so.
    urls: Relation<HostPattern, (BackendId, Key)>,
    streams: BTreeMap<StreamPort, stream::Entry>,
    is_new_streams: bool,
    notes: Notes,
    patch: Patch,
    is_first: bool,
}

impl Translator {
    /// Knows nothing yet.
    pub fn new(options: Options) -> Self {
        Translator {
            options,
            settings: Settings::default(),
            snapshot: Snapshot::default(),
            claims: BTreeMap::new(),
            pattern_budget: PatternBudget::default(),
            standings: BTreeMap::new(),
            new_standings: BTreeMap::new(),
            claimants: BTreeMap::new(),
            speakers: Speakers::default(),
            leads: Relation::default(),
            plans: BTreeMap::new(),
            default_backend: None,
            secrets: Relation::default(),
            names: Relation::default(),
            external_names: Relation::default(),
            referred: Relation::default(),
            followers: Relation::default(),
            policies: Relation::default(),
            offered_bundles: Relation::default(),
            bundle_texts: BTreeMap::new(),
            bundles: Relation::default(),
            urls: Relation::default(),
            is_new_external_names: false,
            streams: BTreeMap::new(),
            is_new_streams: true,
            notes: Notes::default(),
            patch: Patch::default(),
            is_first: true,
        }
    }

    /// All there is to say now.
    pub fn verdicts(&self) -> &Verdicts {
        self.notes.verdicts()
    }

    /// All there is to serve now.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// The DNS names that the snapshot depends on, if they are others than when this was last asked.
    pub fn take_external_names(&mut self) -> Option<BTreeSet<DnsName>> {
        let is_new = std::mem::take(&mut self.is_new_external_names);
        is_new.then(|| self.external_names.rights().cloned().collect())
    }

    /// The TCP and UDP listeners, if they are others than when this was last asked.
    pub fn take_streams(&mut self) -> Option<Streams> {
        let is_new = std::mem::take(&mut self.is_new_streams);
        let listeners = self.streams.iter().map(|(port, entry)| (*port, entry.listener));
        is_new.then(|| Streams {
            listeners: listeners.collect(),
            settings: self.settings.skeleton.clone(),
            ..Streams::default()
        })
    }

    /// The Ingresses that came to something else since this was last asked; none: gone, or another controller's.
    pub fn take_standings(&mut self) -> BTreeMap<Key, Option<Acceptance>> {
        std::mem::take(&mut self.new_standings)
    }

    /// Computes again what `changed` touches; answers what became different.
    pub fn update(&mut self, world: &World, changed: &Changed) -> (Patch, VerdictChanges) {
        let is_first = std::mem::take(&mut self.is_first);
        let is_new_settings = self.read_settings(world, changed, is_first);
        let mut hosts = BTreeSet::new();
        let mut backends = BTreeSet::new();
        let mut ingresses = self.touched_ingresses(world, changed, is_new_settings);
        let ours = |key: &Key| {
            let ingress = world.ingresses.get(key).map(AsRef::as_ref);
            ingress.filter(|ingress| {
                let choice = class::choose(world, &self.options, key, ingress);
                matches!(choice, class::Choice::Ours)
            })
        };
        let prefix = &self.options.annotations_prefix;
        let turned =
            self.pattern_budget.update(prefix, ingresses.iter().map(|key| (key, ours(key))));
        ingresses.extend(turned);
        for key in ingresses {
            for port in self.read_ingress(world, &key, &mut hosts) {
                hosts.extend(self.hosts_of(&port));
                backends.insert(port);
            }
        }
        if is_new_settings {
            hosts.extend(self.claimants.keys().cloned());
            backends.extend(self.plans.keys().cloned());
        }
        self.find_followers(&mut hosts);
        for host in &hosts {
            self.settle_host(host, &mut backends);
        }
        self.add_hosts_below(&mut hosts);

        let mut secrets = changed.secrets.clone();
        hosts.extend(changed.secrets.iter().flat_map(|key| self.secrets.by(key)).cloned());
        if self.is_default_touched(&changed.secrets) || is_first {
            hosts.insert(HostPattern::default_host());
            secrets.extend(self.options.default_ssl_certificate.clone());
        }
        let mut certificates = BTreeSet::new();
        for host in &hosts {
            self.choose_certificate(world, host, &mut secrets, &mut certificates);
        }
        certificates.extend(secrets.iter().filter_map(|key| key.to_string().try_into().ok()));
        for id in certificates {
            self.put_certificate(world, id);
        }
        for key in secrets {
            self.judge_secret(world, key);
        }

        for service in &changed.services {
            backends.extend(self.backends_of(service));
        }
        let names = changed.names.iter().flat_map(|name| self.external_names.by(name));
        backends.extend(names.filter(|id| url::behind(id).is_some()).cloned());
        self.read_streams(world, changed, is_first);
        self.choose_default_backend(world, changed, is_first, &mut backends);
        for id in backends {
            self.resolve_backend(world, id);
        }
        self.put_settings();
        (std::mem::take(&mut self.patch), self.notes.take_changes())
    }

    /// Whether the settings are others than before.
    fn read_settings(&mut self, world: &World, changed: &Changed, is_first: bool) -> bool {
        let Some(key) = self.options.configmap.clone() else { return false };
        let maps = &changed.config_maps;
        if !is_first && !maps.contains(&key) && !self.settings.is_from(maps) {
            return false;
        }
        let map = world.config_maps.get(&key).map(AsRef::as_ref);
        let (mut settings, mut notes) = settings::parse(map, &world.config_maps);
        if settings.use_port_in_redirects {
            settings.defaults.policies.redirect_port = Some(self.options.https_port);
        }
        if !world.config_maps.contains_key(&key) {
            let message = "does not exist, but --configmap names it: the defaults are used";
            notes.push(oxigress_objects::verdict::Note::warning(message));
        }
        let object = ObjectRef::new(Kind::ConfigMap, key);
        self.notes.set(Part::Settings, notes.into_iter().map(|note| (object.clone(), note)));
        let is_new = settings != self.settings;
        self.is_new_streams |= settings.skeleton != self.settings.skeleton;
        self.settings = settings;
        is_new
    }

    fn touched_ingresses(&self, world: &World, changed: &Changed, all: bool) -> BTreeSet<Key> {
        let mut touched = changed.ingresses.clone();
        for (kind, keys) in [
            (Kind::ConfigMap, &changed.config_maps),
            (Kind::Secret, &changed.secrets),
            (Kind::Service, &changed.services),
        ] {
            let objects = keys.iter().map(|key| ObjectRef::new(kind, key.clone()));
            touched.extend(
                objects.flat_map(|object| self.referred.by(&object).cloned().collect::<Vec<_>>()),
            );
        }
        match all {
            true => touched.extend(world.ingresses.keys().cloned()),
            false => touched.extend(class::decided_anew(world, &self.options, changed)),
        }
        touched
    }

    /// Answers the Services' ports that balance otherwise by what the Ingress says now.
    fn read_ingress(
        &mut self,
        world: &World,
        key: &Key,
        hosts: &mut BTreeSet<HostPattern>,
    ) -> BTreeSet<BackendId> {
        let parsed = match world.ingresses.get(key) {
            Some(ingress) => {
                let compiler = match self.pattern_budget.is_over(key) {
                    true => Compiler::over_budget(),
                    false => Compiler::new(self.claims.get(key)),
                };
                let object = (key, &**ingress);
                ingress::parse(world, &self.options, &self.settings, object, compiler)
            }
            None => ingress::Parsed::default(),
        };
        let object = ObjectRef::new(Kind::Ingress, key.clone());
        let notes = parsed.notes.into_iter().map(|note| (object.clone(), note));
        self.notes.set(Part::Ingress(key.clone()), notes);
        self.referred.set(key, parsed.referred);
        self.offer_bundles(key, parsed.bundles);
        let standing = parsed.is_ours.then_some(match parsed.claims {
            Some(_) => Acceptance::Served,
            None => Acceptance::Refused,
        });
        if self.standings.get(key) != standing.as_ref() {
            match standing {
                Some(standing) => drop(self.standings.insert(key.clone(), standing)),
                None => drop(self.standings.remove(key)),
            }
            self.new_standings.insert(key.clone(), standing);
        }
        if self.claims.get(key) == parsed.claims.as_ref() {
            return BTreeSet::new();
        }
        let turned = self.speakers.replace(self.claims.get(key), parsed.claims.as_ref());
        if let Some(old) = self.claims.remove(key) {
            for host in old.hosts.into_keys() {
                if let Some(claimants) = self.claimants.get_mut(&host) {
                    claimants.remove(&(old.created, key.clone()));
                    if claimants.is_empty() {
                        self.claimants.remove(&host);
                    }
                }
                hosts.insert(host);
            }
        }
        if let Some(new) = parsed.claims {
            for host in new.hosts.keys() {
                let claimants = self.claimants.entry(host.clone()).or_default();
                claimants.insert((new.created, key.clone()));
                hosts.insert(host.clone());
            }
            self.claims.insert(key.clone(), new);
        }
        turned
    }

    /// The hosts that lead to a Service's port, by whichever of its backends.
    fn hosts_of(&self, port: &BackendId) -> BTreeSet<HostPattern> {
        let is_of = |id: &BackendId| {
            id.as_str()
                .strip_prefix(port.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with("//"))
        };
        let leads = self.leads.rights_from(&Lead::first_of(port));
        let leads = leads.take_while(|lead| lead.backend.as_str().starts_with(port.as_str()));
        let leads = leads.filter(|lead| is_of(&lead.backend));
        leads.flat_map(|lead| self.leads.by(lead)).cloned().collect()
    }

    fn claims_on(&self, host: &HostPattern) -> Vec<&Claims> {
        let claimants = self.claimants.get(host).into_iter().flatten();
        claimants.filter_map(|(_, key)| self.claims.get(key)).collect()
    }

    /// The claims on a host, as the oldest of them lets them stand.
    fn view_of(&self, host: &HostPattern) -> HostView<'_> {
        HostView::of_claims(self.options.host_ownership, &self.claims_on(host))
    }

    /// Who wants `host` to follow another one, in their order, each with that one: of many, the first by name.
    fn followers_onto(&self, host: &HostPattern) -> Vec<(&Follower, &HostPattern)> {
        let all = self.followers.rights_from(&Follower::first_of(host));
        let all = all.take_while(|follower| follower.host == *host);
        all.filter_map(|follower| Some((follower, self.followers.by(follower).next()?))).collect()
    }

    /// Whose the host is.
    fn hold(&self, host: &HostPattern) -> owner::Held<'_> {
        let mode = self.options.host_ownership;
        owner::hold(mode, host, &self.claims_on(host), &self.followers_onto(host))
    }

    /// Adds the hosts that follow one of `hosts`, or did.
    fn find_followers(&mut self, hosts: &mut BTreeSet<HostPattern>) {
        for host in hosts.clone() {
            let new = follow::of(&host, &self.view_of(&host).owner);
            hosts.extend(new.iter().map(|follower| follower.host.clone()));
            let different = self.followers.set(&host, new);
            hosts.extend(different.into_iter().map(|follower| follower.host));
        }
    }

    fn settle_host(&mut self, host: &HostPattern, backends: &mut BTreeSet<BackendId>) {
        let held = self.hold(host);
        let settle = |source: &HostPattern, view: &HostView<'_>| {
            let (settings, speakers) = (&self.settings, &self.speakers);
            conflict::settle(host, source, view, settings, speakers, &self.options)
        };
        let (mut settled, is_followed) = match &held.holder {
            Holder::Follower { follower, source } if follower.is_redirected => {
                (conflict::redirected(source, &self.settings), true)
            }
            Holder::Follower { source, .. } => (settle(source, &self.view_of(source)), true),
            Holder::Claims(view) => (settle(host, view), false),
        };
        gate::close_invalid(host, &mut settled, &self.snapshot);
        let bundles = settled.bundles();
        let about = |(key, note)| (ObjectRef::new(Kind::Ingress, key), note);
        let mut notes: Vec<_> = held.notes.into_iter().map(about).collect();
        // What there is to say about another host's rules is said there.
        if !is_followed {
            notes.extend(settled.notes);
            notes.extend(settled.refusals.into_iter().map(about));
        }
        self.notes.set(Part::Host(host.clone()), notes);
        self.put_bundles(host, bundles);
        for (id, plan) in settled.plans {
            if self.plans.get(&id) != Some(&plan) {
                self.plans.insert(id.clone(), plan);
                backends.insert(id);
            }
        }
        let touched = self.leads.set(host, settled.leads);
        backends.extend(touched.into_iter().map(|lead| lead.backend));
        let urls = self.urls.set(host, settled.urls);
        backends.extend(urls.into_iter().map(|(url, _)| url));
        self.put_policies(host, settled.policies);
        let Patch { upsert, remove, .. } = &mut self.patch;
        let servers = &mut self.snapshot.servers;
        put(servers, &mut upsert.servers, &mut remove.servers, host, settled.server);
        let (passthrough, to) = (&mut self.snapshot.passthrough, settled.passthrough);
        put(passthrough, &mut upsert.passthrough, &mut remove.passthrough, host, to);
        put(&mut self.snapshot.tls, &mut upsert.tls, &mut remove.tls, host, settled.tls);
    }

    fn offer_bundles(&mut self, ingress: &Key, bundles: BTreeMap<BundleId, Bundle>) {
        let ids = bundles.keys().cloned().collect();
        self.bundle_texts.extend(bundles);
        for id in self.offered_bundles.set(ingress, ids) {
            if !self.offered_bundles.has(&id) {
                self.bundle_texts.remove(&id);
            }
        }
    }

    /// A bundle stays as long as one host names it.
    fn put_bundles(&mut self, host: &HostPattern, ids: BTreeSet<BundleId>) {
        for id in self.bundles.set(host, ids) {
            let bundle = match self.bundles.has(&id) {
                // What an id says never changes.
                true if self.snapshot.bundles.contains_key(&id) => continue,
                true => self.bundle_texts.get(&id).cloned(),
                false => None,
            };
            let Patch { upsert, remove, .. } = &mut self.patch;
            let all = &mut self.snapshot.bundles;
            put(all, &mut upsert.bundles, &mut remove.bundles, &id, bundle);
        }
    }

    /// A record stays as long as the rules of one host name it.
    fn put_policies(&mut self, host: &HostPattern, policies: BTreeMap<PolicyId, Arc<Policies>>) {
        let touched = self.policies.set(host, policies.keys().cloned().collect());
        for id in touched {
            let is_known = self.snapshot.policies.contains_key(&id);
            let Patch { upsert, remove, .. } = &mut self.patch;
            let all = &mut self.snapshot.policies;
            match (self.policies.has(&id), policies.get(&id)) {
                (true, Some(record)) if !is_known => {
                    let record = Some(Policies::clone(record));
                    put(all, &mut upsert.policies, &mut remove.policies, &id, record);
                }
                // What an id says never changes.
                (true, _) => {}
                (false, _) => put(all, &mut upsert.policies, &mut remove.policies, &id, None),
            }
        }
    }

    fn is_default_touched(&self, secrets: &BTreeSet<Key>) -> bool {
        self.options.default_ssl_certificate.as_ref().is_some_and(|key| secrets.contains(key))
    }

    fn choose_certificate(
        &mut self,
        world: &World,
        host: &HostPattern,
        secrets: &mut BTreeSet<Key>,
        certificates: &mut BTreeSet<CertificateId>,
    ) {
        let held = self.hold(host);
        let choose = |owner| tls::choose(world, &self.options, host, owner);
        let mut chosen = match &held.holder {
            Holder::Claims(view) => choose(&view.owner),
            Holder::Follower { source, .. } => {
                let mut chosen = choose(&self.view_of(source).owner);
                chosen.restrict_to_valid();
                chosen
            }
        };
        if chosen.certificate.is_none() && self.is_below_foreign_certificate(host, &held) {
            chosen.certificate = Some(tls::none());
        }
        if *host == HostPattern::default_host() {
            chosen.certificate = tls::default_certificate(world, &self.options);
        }
        self.notes.set(Part::Tls(host.clone()), chosen.notes);
        secrets.extend(self.secrets.set(host, chosen.secrets));
        let name = chosen.certificate;
        certificates.extend(self.names.set(host, name.iter().cloned().collect()));
        let (upsert, remove) = (&mut self.patch.upsert.names, &mut self.patch.remove.names);
        put(&mut self.snapshot.names, upsert, remove, host, name);
    }

    /// A wildcard of another namespace has a certificate, and came later: its certificate must not replace the default
    /// one, nor turn the redirect to HTTPS on.
    fn is_below_foreign_certificate(&self, host: &HostPattern, held: &owner::Held<'_>) -> bool {
        let Some((wildcard, by)) = host.wildcard_above().zip(held.by.as_ref()) else {
            return false;
        };
        let above = self.hold(&wildcard);
        let is_foreign = |other: &owner::Age| {
            self.options.host_ownership != HostOwnership::Shared
                && other.key.namespace != by.key.namespace
                && other > by
        };
        above.by.as_ref().is_some_and(is_foreign)
            && match &above.holder {
                Holder::Claims(view) => view.owner.has_tls(),
                Holder::Follower { source, .. } => self.view_of(source).owner.has_tls(),
            }
    }

    /// Adds the hosts that are served below the wildcards among `hosts`, whose certificates may be theirs.
    fn add_hosts_below(&self, hosts: &mut BTreeSet<HostPattern>) {
        let is_changed = |wildcard| hosts.contains(&wildcard);
        if hosts.iter().any(HostPattern::is_wildcard) {
            let all = self.snapshot.servers.keys();
            let below = all.filter(|host| host.wildcard_above().is_some_and(is_changed));
            let below: Vec<_> = below.cloned().collect();
            hosts.extend(below);
        }
    }

    fn put_certificate(&mut self, world: &World, id: CertificateId) {
        let pair = self.names.has(&id).then(|| tls::secret_behind(&id)).flatten();
        let pair = pair.and_then(|key| world.secrets.get(&key)?.last_good.as_ref());
        let certificate =
            pair.map(|pair| Certificate { chain: pair.chain.clone(), key: pair.key.clone() });
        let upsert = &mut self.patch.upsert.certificates;
        let remove = &mut self.patch.remove.certificates;
        put(&mut self.snapshot.certificates, upsert, remove, &id, certificate);
    }

    fn judge_secret(&mut self, world: &World, key: Key) {
        let is_default = self.options.default_ssl_certificate.as_ref() == Some(&key);
        let is_named = is_default || self.secrets.has(&key);
        let notes = if is_named { tls::notes_on(world, &key, is_default) } else { Vec::new() };
        self.notes.set(Part::Secret(key), notes);
    }

    fn backends_of(&self, service: &Key) -> Vec<BackendId> {
        let Ok(first) = BackendId::parse(format!("{service}/")) else { return Vec::new() };
        let ids = self.plans.range(first.clone()..).map(|(id, _)| id);
        ids.take_while(|id| id.as_str().starts_with(first.as_str())).cloned().collect()
    }

    fn choose_default_backend(
        &mut self,
        world: &World,
        changed: &Changed,
        is_first: bool,
        backends: &mut BTreeSet<BackendId>,
    ) {
        let Some(key) = &self.options.default_backend_service else { return };
        if !is_first && !changed.services.contains(key) {
            return;
        }
        // Without a port there is still something to say about the Service: it is missing.
        let port = world.services.get(key).and_then(|service| backend::first_port(service));
        let port = port.unwrap_or(oxigress_objects::ingress::Port::Number(80));
        let backend = BackendId::parse(format!("{key}/{port}")).ok();
        let new = backend.map(|backend| Leads { service: key.clone(), port, backend });
        for leads in [&self.default_backend, &new].into_iter().flatten() {
            backends.insert(leads.backend.clone());
        }
        self.plans.extend(new.iter().map(|leads| (leads.backend.clone(), Plan::shared(leads))));
        self.default_backend = new;
    }

    /// The server of a URL.
    fn resolve_url(&mut self, world: &World, id: BackendId) {
        let users = self.urls.rights_from(&(id.clone(), Key::new("", "")));
        let users: Vec<_> = users.take_while(|(url, _)| *url == id).map(|(_, key)| key).collect();
        let url = url::behind(&id).filter(|_| !users.is_empty());
        let Some((external, port)) = url else { return self.drop_backend(id) };
        let resolved = backend::resolve_url(world, &self.options, &external, port);
        let objects = users.into_iter().map(|key| ObjectRef::new(Kind::Ingress, key.clone()));
        let notes: Vec<_> = objects
            .flat_map(|object| {
                resolved.notes.iter().map(move |note| (object.clone(), note.clone()))
            })
            .collect();
        self.notes.set(Part::Backend(id.clone()), notes);
        self.put_external_name(&id, resolved.name);
        self.put_backend(&id, Some((Backend::default(), resolved.endpoints)));
    }

    fn resolve_backend(&mut self, world: &World, id: BackendId) {
        if url::behind(&id).is_some() {
            return self.resolve_url(world, id);
        }
        let referrers = self.leads.rights_from(&Lead::first_of(&id));
        let referrers: Vec<_> = referrers.take_while(|lead| lead.backend == id).collect();
        let is_default = self.default_backend.as_ref().is_some_and(|leads| leads.backend == id);
        let plan = match self.plans.get(&id) {
            Some(plan) if is_default || !referrers.is_empty() => plan,
            _ => return self.drop_backend(id),
        };
        let balancing = self.speakers.balancing_of(&id, plan);
        let service_upstream = balancing.service_upstream.unwrap_or(self.settings.service_upstream);
        let resolved =
            backend::resolve(world, &self.options, &plan.leads, Usage::Http { service_upstream });
        let what_follows = match plan.is_canary() {
            true => "the main Ingress's Service gets all requests",
            false => "requests get 503",
        };
        let mut notes = resolved.object_notes;
        let lack = resolved.lack.as_ref().map(|lack| lack.note(what_follows));
        for lead in &referrers {
            let object = ObjectRef::new(Kind::Ingress, lead.ingress.clone());
            let said = lack.iter().chain(&resolved.remark).cloned();
            notes.extend(said.map(|note| (object.clone(), note)));
        }
        if let (Some(lack), true) = (&resolved.lack, is_default) {
            let object = ObjectRef::new(Kind::Service, plan.leads.service.clone());
            notes.push((object, lack.note("requests that no Ingress takes get 404")));
        }
        let mut locations: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
        for lead in referrers.iter().filter(|lead| !lead.path.is_empty()) {
            for host in self.leads.by(lead) {
                locations.entry(host.to_string()).or_default().insert(&lead.path);
            }
        }
        let texts = |paths: BTreeSet<&str>| paths.into_iter().map(Into::into).collect();
        let locations = locations.into_iter().map(|(host, paths)| (host, texts(paths))).collect();
        let record = plan.record(&balancing, &self.settings, locations);
        self.notes.set(Part::Backend(id.clone()), notes);
        self.put_external_name(&id, resolved.external_name);
        self.put_backend(&id, Some((record, resolved.endpoints)));
    }

    fn read_streams(&mut self, world: &World, changed: &Changed, is_first: bool) {
        let mut backends = BTreeSet::new();
        for protocol in [Protocol::Tcp, Protocol::Udp] {
            let map = match protocol {
                Protocol::Tcp => &self.options.tcp_services_configmap,
                Protocol::Udp => &self.options.udp_services_configmap,
            };
            if let Some(key) = map.clone()
                && (is_first || changed.config_maps.contains(&key))
            {
                self.read_stream_map(world, key, protocol, &mut backends);
            }
        }
        let entries = self.streams.iter();
        let touched = entries.filter(|(_, entry)| changed.services.contains(&entry.leads.service));
        backends.extend(touched.map(|(_, entry)| entry.leads.backend.clone()));
        for id in backends {
            self.resolve_stream(world, id);
        }
    }

    fn read_stream_map(
        &mut self,
        world: &World,
        key: Key,
        protocol: Protocol,
        backends: &mut BTreeSet<BackendId>,
    ) {
        let (entries, notes) = match world.config_maps.get(&key) {
            Some(map) => stream::parse(map, protocol, &self.options),
            None => {
                let message = "does not exist, but a flag names it: create it or remove the flag";
                (BTreeMap::new(), vec![oxigress_objects::verdict::Note::warning(message)])
            }
        };
        let object = ObjectRef::new(Kind::ConfigMap, key);
        let notes = notes.into_iter().map(|note| (object.clone(), note));
        self.notes.set(Part::Streams(protocol), notes);
        let old = std::mem::take(&mut self.streams);
        let (mut kept, old): (BTreeMap<_, _>, BTreeMap<_, _>) =
            old.into_iter().partition(|(port, _)| stream::protocol_of(port) != protocol);
        let listeners = |all: &BTreeMap<StreamPort, stream::Entry>| -> Vec<_> {
            all.iter().map(|(port, entry)| (*port, entry.listener)).collect()
        };
        self.is_new_streams |= listeners(&old) != listeners(&entries);
        for port in old.keys().chain(entries.keys()) {
            let backend = entries.get(port).map(|entry| entry.leads.backend.clone());
            let Patch { upsert, remove, .. } = &mut self.patch;
            put(&mut self.snapshot.ports, &mut upsert.ports, &mut remove.ports, port, backend);
        }
        let both = old.values().chain(entries.values());
        backends.extend(both.map(|entry| entry.leads.backend.clone()));
        kept.extend(entries);
        self.streams = kept;
    }

    fn resolve_stream(&mut self, world: &World, id: BackendId) {
        let uses = self.streams.iter().filter(|(_, entry)| entry.leads.backend == id);
        let ports: Vec<StreamPort> = uses.clone().map(|(port, _)| *port).collect();
        let Some((port, leads)) = uses.map(|(port, entry)| (port, &entry.leads)).next() else {
            return self.drop_backend(id);
        };
        let protocol = stream::protocol_of(port);
        let resolved = backend::resolve(world, &self.options, leads, Usage::Stream(protocol));
        let name = stream::upstream_name(protocol, leads);
        let mut notes = resolved.object_notes;
        let map = match protocol {
            Protocol::Tcp => &self.options.tcp_services_configmap,
            Protocol::Udp => &self.options.udp_services_configmap,
        };
        if let (Some(lack), Some(map)) = (&resolved.lack, map) {
            let object = ObjectRef::new(Kind::ConfigMap, map.clone());
            notes.extend(ports.iter().map(|port| {
                let number = port.to_string();
                let number = number.rsplit('/').next().unwrap_or_default();
                let mut note = lack.note("sessions are closed");
                note.message = format!("data.{number}: {}", note.message);
                (object.clone(), note)
            }));
        }
        self.notes.set(Part::Backend(id.clone()), notes);
        self.put_external_name(&id, resolved.external_name);
        let record = Backend { name: Some(name), ..Backend::default() };
        self.put_backend(&id, Some((record, resolved.endpoints)));
    }

    fn drop_backend(&mut self, id: BackendId) {
        self.plans.remove(&id);
        self.notes.set(Part::Backend(id.clone()), []);
        self.put_external_name(&id, None);
        self.put_backend(&id, None);
    }

    fn put_external_name(&mut self, id: &BackendId, name: Option<DnsName>) {
        let different = self.external_names.set(id, name.into_iter().collect());
        self.is_new_external_names |= !different.is_empty();
    }

    fn put_backend(&mut self, id: &BackendId, backend: Option<(Backend, EndpointSet)>) {
        let (backend, set) = backend.unzip();
        let Patch { upsert, remove, .. } = &mut self.patch;
        put(&mut self.snapshot.backends, &mut upsert.backends, &mut remove.backends, id, backend);
        put(&mut self.snapshot.endpoints, &mut upsert.endpoints, &mut remove.endpoints, id, set);
    }

    fn put_settings(&mut self) {
        // Without endpoints it would answer 503; the reference answers 404 then.
        let default_backend = self.default_backend.as_ref().map(|leads| &leads.backend);
        let has_endpoints = |id: &&BackendId| {
            self.snapshot.endpoints.get(*id).is_some_and(|set| !set.as_slice().is_empty())
        };
        let settings = oxigress_core::model::Settings {
            default_backend: default_backend.filter(has_endpoints).cloned(),
            ..self.settings.published()
        };
        if settings != self.snapshot.settings {
            self.snapshot.settings = settings.clone();
            self.patch.upsert.settings = Some(settings);
        }
    }
}

/// Sets or removes one record, and notes it in the delta if it became different.
fn put<K: Ord + Clone, V: PartialEq + Clone>(
    all: &mut BTreeMap<K, V>,
    upsert: &mut BTreeMap<K, V>,
    remove: &mut BTreeSet<K>,
    key: &K,
    value: Option<V>,
) {
    if all.get(key) == value.as_ref() {
        return;
    }
    match value {
        Some(value) => {
            all.insert(key.clone(), value.clone());
            upsert.insert(key.clone(), value);
            remove.remove(key);
        }
        None => {
            all.remove(key);
            upsert.remove(key);
            remove.insert(key.clone());
        }
    }
}
