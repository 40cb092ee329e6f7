//! Translates one change after the other: knows who depends on whom, and computes again only what a change touches.

mod backends;
mod certificates;
mod gateways;
mod hosts;
mod ingresses;
mod known;
pub mod notes;
mod places;
mod rules;
pub mod served_hosts;
mod stock;
mod streams;
mod touched;
pub mod withheld;
mod written;

use crate::annotation::{Common, snippet};
use crate::backend::room::Room;
use crate::backend::spec::{BackendSpec, HostBackend, SpecOwners};
use crate::backend::stream;
use crate::claim::age::Age;
use crate::claim::age::stock::Stock;
use crate::claim::backend_ref::BackendRef;
use crate::claim::policies::SharedPolicies;
use crate::gateway::{Built, Memo};
use crate::host::alias::Alias;
use crate::host::owner::GatewayClaim;
use crate::ingress::{Claims, class};
use crate::pace::Named;
use crate::patterns::budget::PatternBudget;
use crate::relation::Relation;
use crate::translator::certificates::CertificateAbove;
use crate::{Options, Translation};
use notes::{Notes, Part};
use oxigress_core::model::policy::PolicyId;
use oxigress_core::model::{
    BackendId, Bundle, BundleId, CertificateId, HostPattern, ListenerHost, Snapshot, StreamPort,
};
use oxigress_core::wire::native::Patch;
use oxigress_objects::gateway_status::Wanted;
use oxigress_objects::service::external_name::DnsName;
use oxigress_objects::small::{SmallSet, compact};
use oxigress_objects::verdict::acceptance::Acceptance;
use oxigress_objects::verdict::{Note, VerdictChanges, Verdicts};
use oxigress_objects::{Changed, Key, Kind, Name, ObjectRef, World};
use oxigress_settings::conf_input::ConfInput;
use oxigress_settings::grammar::url;
use oxigress_settings::tracing::Exporter;
use oxigress_settings::{self as settings, Settings};
use std::collections::{BTreeMap, BTreeSet};

/// What names policies: a host's rules or those of Gateways' listeners.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PolicyHolder {
    /// The rules of a host.
    Host(HostPattern),
    /// The rules of one host of Gateways' listeners.
    Listener(ListenerHost),
    /// What else Gateways name: the authorities of their clients, and the targets of sessions.
    Gateways,
}

/// Who says what is in bundles.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum BundleSource {
    /// What an Ingress names.
    Ingress(Key),
    /// What policies of backends name.
    Gateways,
}

/// Keeps the snapshot and what each part of it was made from, and brings it up to date with each change.
pub struct Translator {
    pub(crate) options: Options,
    pub(crate) settings: Settings,
    /// What the ConfigMap's snippets say about all Ingresses.
    pub(crate) common: Common,
    pub(crate) snapshot: Snapshot,
    /// What each Ingress asks for.
    pub(crate) claims: BTreeMap<Key, Box<Claims>>,
    pub(crate) pattern_budget: PatternBudget,
    /// How many paths the Ingresses of each namespace have.
    path_stock: Stock,
    shared_policies: SharedPolicies,
    /// Of the Ingresses that are ours.
    pub(crate) acceptances: BTreeMap<Key, Acceptance>,
    pub(crate) new_acceptances: BTreeMap<Key, Option<Acceptance>>,
    /// Who claims a host, oldest first.
    pub(crate) claimants: BTreeMap<HostPattern, SmallSet<(i64, Key)>>,
    pub(crate) spec_owners: SpecOwners,
    /// The backends that the rules of each host lead to.
    pub(crate) host_backends: Relation<HostPattern, HostBackend>,
    pub(crate) backend_specs: BTreeMap<BackendId, BackendSpec>,
    pub(crate) default_backend: Option<BackendRef>,
    /// What reading endpoints has taken, in nanoseconds, by the namespace that pays for it.
    pub(crate) endpoint_work: BTreeMap<Name, u64>,
    /// What building everything of the Gateway API has taken, by the namespace that had it built.
    build_work: BTreeMap<Name, u64>,
    /// The namespaces whose Ingresses have other paths or settings for a host since the Gateway API was built.
    claimed_by: BTreeMap<HostPattern, BTreeSet<Name>>,
    /// How many endpoints the backends of each namespace have.
    pub(crate) room: Room,
    pub(crate) secrets: Relation<HostPattern, Key>,
    pub(crate) names: Relation<HostPattern, CertificateId>,
    /// The certificates that are shown for wildcards, which hosts below them may be shown too.
    pub(crate) above: BTreeMap<HostPattern, CertificateAbove>,
    /// The hosts of Ingresses by the wildcard above them.
    pub(crate) below: BTreeMap<HostPattern, BTreeSet<HostPattern>>,
    /// Backends and the DNS names their addresses come from.
    pub(crate) external_names: Relation<BackendId, DnsName>,
    pub(crate) is_new_external_names: bool,
    /// Ingresses and the objects that their annotations name.
    pub(crate) referred: Relation<Key, ObjectRef>,
    /// The aliases of each host, which are served as that host is.
    pub(crate) aliases: Relation<HostPattern, Alias>,
    pub(crate) policies: Relation<PolicyHolder, PolicyId>,
    /// What is served of the Gateway API.
    pub(crate) gateways: Built,
    gateway_memo: Memo,
    /// The servers of listeners, and whose they are.
    pub(crate) places: places::Places,
    /// The hosts of which another object of the Gateway API makes somebody the owner in this update.
    claimed: BTreeSet<HostPattern>,
    /// Routes, whoever serves them, and what they name as their parents.
    pub(crate) route_parents: Relation<ObjectRef, ObjectRef>,
    /// The routes for which their namespaces have no places.
    pub(crate) unplaced: BTreeSet<ObjectRef>,
    /// Routes, ListenerSets that are not in force, and other names of hosts of Ingresses, with the hosts that are written in them.
    pub(crate) written: Named,
    /// What of these is kept from nobody.
    parked: Named,
    /// What of these was read in this update, with the time of creation of each.
    writing: BTreeMap<ObjectRef, (i64, BTreeSet<HostPattern>)>,
    pub(crate) rules: rules::RuleIndex,
    /// The hosts that routes and listeners of Gateways name.
    pub(crate) gateway_claims: BTreeMap<HostPattern, GatewayClaim>,
    /// The hosts of listeners of ListenerSets, each with the sets.
    pub(crate) hosts_of_sets: BTreeMap<HostPattern, BTreeSet<Age>>,
    /// The hosts that routes name, or no longer name, since certificates were last chosen.
    named_anew: BTreeSet<HostPattern>,
    /// The oldest route without host names: no younger Ingress says how TLS is spoken with clients that name no known host.
    pub(crate) unnamed_route: Option<GatewayClaim>,
    pub(crate) new_statuses: BTreeMap<ObjectRef, Option<Wanted>>,
    /// The bundles that Ingresses and policies of backends name.
    pub(crate) offered_bundles: Relation<BundleSource, BundleId>,
    /// The texts of the bundles that policies name.
    pub(crate) bundle_texts: BTreeMap<BundleId, Bundle>,
    /// Hosts, or listeners, and the bundles that their policies name.
    pub(crate) bundles: Relation<PolicyHolder, BundleId>,
    /// Hosts and the URLs that their policies name, with the Ingress that says so.
    pub(crate) urls: Relation<HostPattern, (BackendId, Key)>,
    pub(crate) streams: BTreeMap<StreamPort, stream::Entry>,
    pub(crate) is_new_conf_input: bool,
    pub(crate) notes: Notes,
    /// What has changed in the snapshot since [`Self::update`] began.
    pub(crate) patch: Patch,
    pub(crate) is_first: bool,
}

impl Translator {
    /// Makes a translator that has seen no object.
    pub fn new(options: Options) -> Self {
        Translator {
            options,
            settings: Settings::default(),
            common: Common::default(),
            snapshot: Snapshot::default(),
            claims: BTreeMap::new(),
            pattern_budget: PatternBudget::default(),
            path_stock: Stock::default(),
            shared_policies: SharedPolicies::default(),
            acceptances: BTreeMap::new(),
            new_acceptances: BTreeMap::new(),
            claimants: BTreeMap::new(),
            spec_owners: SpecOwners::default(),
            host_backends: Relation::default(),
            backend_specs: BTreeMap::new(),
            default_backend: None,
            endpoint_work: BTreeMap::new(),
            build_work: BTreeMap::new(),
            claimed_by: BTreeMap::new(),
            room: Room::default(),
            secrets: Relation::default(),
            names: Relation::default(),
            above: BTreeMap::new(),
            below: BTreeMap::new(),
            external_names: Relation::default(),
            referred: Relation::default(),
            aliases: Relation::default(),
            policies: Relation::default(),
            gateways: Built::default(),
            gateway_memo: Memo::default(),
            places: places::Places::default(),
            claimed: BTreeSet::new(),
            route_parents: Relation::default(),
            unplaced: BTreeSet::new(),
            written: Named::default(),
            parked: Named::default(),
            writing: BTreeMap::new(),
            rules: rules::RuleIndex::default(),
            gateway_claims: BTreeMap::new(),
            hosts_of_sets: BTreeMap::new(),
            named_anew: BTreeSet::new(),
            unnamed_route: None,
            new_statuses: BTreeMap::new(),
            offered_bundles: Relation::default(),
            bundle_texts: BTreeMap::new(),
            bundles: Relation::default(),
            urls: Relation::default(),
            is_new_external_names: false,
            streams: BTreeMap::new(),
            is_new_conf_input: true,
            notes: Notes::default(),
            patch: Patch::default(),
            is_first: true,
        }
    }

    /// All there is to serve and to say now.
    pub(crate) fn into_translation(self) -> Translation {
        let (verdicts, statuses) = (self.notes.verdicts().clone(), self.gateways.statuses);
        Translation { verdicts, statuses, snapshot: self.snapshot }
    }

    /// Gives back the memory that many first objects have left half used.
    pub fn compact(&mut self) {
        compact(&mut self.claims);
        compact(&mut self.acceptances);
        compact(&mut self.claimants);
        compact(&mut self.backend_specs);
        let Snapshot { servers, backends, endpoints, names, .. } = &mut self.snapshot;
        compact(servers);
        compact(backends);
        compact(endpoints);
        compact(names);
        self.host_backends.compact();
        self.secrets.compact();
        self.names.compact();
        self.policies.compact();
    }

    /// All there is to say now.
    pub fn verdicts(&self) -> &Verdicts {
        self.notes.verdicts()
    }

    /// Each thing there is to say now, with its object.
    pub fn notes(&self) -> impl Iterator<Item = (&ObjectRef, &Note)> {
        self.notes.all()
    }

    /// All there is to serve now.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// The DNS names that the snapshot depends on, each with the namespace that looks it up, if they are others than when this
    /// was last asked.
    pub fn take_external_names(&mut self) -> Option<BTreeMap<DnsName, Name>> {
        let is_new = std::mem::take(&mut self.is_new_external_names);
        is_new.then(|| self.namespaces_of_names())
    }

    /// The TCP and UDP listeners, if they are others than when this was last asked.
    pub fn take_conf_input(&mut self) -> Option<ConfInput> {
        let is_new = std::mem::take(&mut self.is_new_conf_input);
        let streams = self.streams.iter().map(|(port, entry)| (*port, entry.listener));
        let listeners = self.gateway_listeners().chain(streams);
        is_new.then(|| ConfInput {
            listeners: listeners.collect(),
            settings: self.settings.static_config.clone(),
            ..ConfInput::default()
        })
    }

    /// The Ingresses that came to something else since this was last asked; none: gone, or another controller's.
    pub fn take_acceptances(&mut self) -> BTreeMap<Key, Option<Acceptance>> {
        std::mem::take(&mut self.new_acceptances)
    }

    /// Whether an Ingress is served, or a part of it.
    pub(crate) fn is_served(&self, ingress: &Key) -> bool {
        self.acceptances.get(ingress) == Some(&Acceptance::Served)
    }

    /// Computes again what `changed` touches; answers what became different.
    pub fn update(&mut self, world: &World, changed: &Changed) -> (Patch, VerdictChanges) {
        let is_first = std::mem::take(&mut self.is_first);
        let work_before = std::mem::take(&mut self.endpoint_work);
        let is_new_settings = self.read_settings(world, changed, is_first);
        let (mut hosts, mut backends) = (self.read_gateway_claims(world, changed), BTreeSet::new());
        let mut ingresses = self.touched_ingresses(world, changed, is_new_settings);
        let turned = self.count_stock(world, &ingresses);
        ingresses.extend(turned);
        for key in ingresses {
            for port in self.read_ingress((world, changed), &key, &mut hosts) {
                hosts.extend(self.hosts_of(&port));
                backends.insert(port);
            }
        }
        if is_new_settings {
            self.put_definitions();
            hosts.extend(self.claimants.keys().cloned());
            backends.extend(self.backend_specs.keys().cloned());
        }
        self.find_aliases(&mut hosts);
        for host in &hosts {
            self.merge_host(host, &mut backends);
        }
        let certified = self.build_gateways(world, changed, is_new_settings, &hosts, &mut backends);
        self.note_grants(world, changed);
        self.note_written(world, changed, &hosts);
        hosts.extend(certified);
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
            self.review_secret(world, key);
        }

        for service in &changed.services {
            backends.extend(self.backends_of(service));
        }
        let names = changed.names.iter().flat_map(|name| self.external_names.by(name));
        backends.extend(names.filter(|id| url::behind(id).is_some()).cloned());
        self.read_streams(world, changed, is_first);
        self.choose_default_backend(world, changed, is_first, &mut backends);
        self.resolve_backends(world, backends);
        self.put_settings();
        self.charge(work_before, changed);
        self.forget_work(is_new_settings);
        (std::mem::take(&mut self.patch), self.notes.take_changes())
    }

    /// Where spans of requests go.
    pub fn exporter(&self) -> &Exporter {
        &self.settings.tracing.exporter
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
        let common = snippet::settings::read(&mut settings, &mut notes);
        if settings.use_port_in_redirects {
            settings.defaults.policies.redirect_port = Some(self.options.https_port);
        }
        if !world.config_maps.contains_key(&key) {
            let message = "does not exist, but --configmap names it: the defaults are used until it is created";
            notes.push(oxigress_objects::verdict::Note::warning(message));
        }
        let object = ObjectRef::new(Kind::ConfigMap, key);
        self.notes.set(Part::Settings, notes.into_iter().map(|note| (object.clone(), note)));
        let is_new = settings != self.settings || common != self.common;
        self.is_new_conf_input |= settings.static_config != self.settings.static_config;
        (self.settings, self.common) = (settings, common);
        is_new
    }

    fn touched_ingresses(&self, world: &World, changed: &Changed, all: bool) -> BTreeSet<Key> {
        let mut touched = changed.ingresses.clone();
        for (kind, keys) in [
            (Kind::ConfigMap, &changed.config_maps),
            (Kind::Secret, &changed.secrets),
            (Kind::Service, &changed.service_specs),
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
