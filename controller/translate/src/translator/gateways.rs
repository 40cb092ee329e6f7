//! The Gateway API: built again as a whole when one of its objects, or what it depends on, changes; the delta has what differs.

use super::certificates::oldest_ingress;
use super::{BundleSource, PolicyHolder, Translator, put};
use crate::age::Age;
use crate::backend::spec::{BackendSpec, Override};
use crate::gateway::{self, Beside, Built, HeldPorts, HostOwner};
use crate::host::owner::ServedFrom;
use crate::notes::Part;
use oxigress_core::model::policy::{Policies, PolicyId, TlsPolicy};
use oxigress_core::model::{
    BackendId, HostPattern, ListenerHost, SessionPlace, SessionRoute, StreamPort,
};
use oxigress_core::wire::native::Patch;
use oxigress_objects::gateway as objects;
use oxigress_objects::gateway_status::Wanted;
use oxigress_objects::verdict::Note;
use oxigress_objects::{Changed, Key, Kind, Name, ObjectRef, World};
use oxigress_settings::conf_input::Listener;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

impl Translator {
    /// What the status of objects of the Gateway API is to say, where it is something else than when this was last asked; none:
    /// nothing any more.
    pub fn take_statuses(&mut self) -> BTreeMap<ObjectRef, Option<Wanted>> {
        std::mem::take(&mut self.new_statuses)
    }

    /// What the status of objects of the Gateway API is to say.
    pub fn statuses(&self) -> &BTreeMap<ObjectRef, Wanted> {
        &self.gateways.statuses
    }

    /// Whether ports that ListenerSets alone ask for wait for a reload.
    pub fn has_pending_ports(&self) -> bool {
        let Built { ports, opened, .. } = &self.gateways;
        ports.iter().any(|(port, asked)| opened.get(port) != Some(asked))
    }

    /// Says for the next update which of such ports have to wait.
    pub fn hold_ports(&mut self, held: HeldPorts) {
        self.gateway_memo.opened.held = held;
    }

    /// The namespaces for whose sets some were opened since this was last asked.
    pub fn take_opened_for_sets(&mut self) -> BTreeSet<Name> {
        std::mem::take(&mut self.gateway_memo.opened.for_sets_of)
    }

    /// Whether nginx has to reload for a listener's port.
    pub(crate) fn opens_port(&self, listener: &objects::Listener) -> bool {
        let port = gateway::Protocol::own_port(&self.options, listener);
        port.is_some_and(|port| !self.gateways.opened.contains_key(&port))
    }

    /// Builds what is served of the Gateway API, if `changed` or one of the `hosts` of Ingresses touches it. Adds the backends
    /// that have to be looked at; answers the hosts whose certificate may be another one.
    pub(super) fn build_gateways(
        &mut self,
        world: &World,
        changed: &Changed,
        is_new_settings: bool,
        hosts: &BTreeSet<HostPattern>,
        backends: &mut BTreeSet<BackendId>,
    ) -> BTreeSet<HostPattern> {
        if !self.touches_gateways(world, changed, is_new_settings, hosts) {
            return BTreeSet::new();
        }
        let mut memo = std::mem::take(&mut self.gateway_memo);
        if is_new_settings {
            memo.forget_built();
        }
        let owner = |host: &HostPattern| {
            let decided = self.decide_owner(host);
            let is_alias = matches!(decided.served_from, ServedFrom::Alias { .. });
            let heir = self.successor(host, decided.kind);
            Some(HostOwner { age: decided.by?, kind: decided.kind, is_alias, heir })
        };
        let servers = &self.snapshot.servers;
        let (named, passed) = (&self.gateway_claims, &self.passed_wildcards());
        let beside = Beside { servers, touched: hosts, named, passed, owner: &owner };
        let built = gateway::build(world, &self.options, &self.settings, &beside, &mut memo);
        let hosts = self.put_gateways(built, backends);
        self.gateway_memo = memo;
        hosts
    }

    /// The wildcards of which TLS is passed through as Ingresses say, each with the age of these.
    fn passed_wildcards(&self) -> BTreeMap<HostPattern, Age> {
        let all = self.snapshot.passthrough.keys().filter(|host| host.is_wildcard());
        let entry = |host: &HostPattern| {
            let since = oldest_ingress(&self.decide_owner(host))?;
            Some((host.clone(), since))
        };
        all.filter_map(entry).collect()
    }

    /// Reads which hosts routes and listeners name; answers those whose Ingresses it concerns.
    pub(super) fn read_gateway_claims(
        &mut self,
        world: &World,
        changed: &Changed,
    ) -> BTreeSet<HostPattern> {
        for id in changed.gateway_api.iter().filter(|id| id.kind.is_route()) {
            let route = world.gateway_api.routes.get(id).into_iter();
            let parents = route.flat_map(|route| &route.spec.parent_refs);
            let parents = parents.filter_map(|parent| parent.object(&id.key.namespace));
            self.route_parents.set(id, parents.collect());
        }
        self.note_unserved(world, changed.gateway_api.iter());
        for id in &changed.gateway_api {
            let note = self.too_many(world, id);
            self.notes.set(Part::Beyond(id.clone()), note.map(|note| (id.clone(), note)));
        }
        let is_touched = self.concerns_gateways(world, changed)
            || self.is_of_services(changed)
            || !changed.namespaces.is_empty();
        if !is_touched {
            self.gateway_memo.left = None;
            return BTreeSet::new();
        }
        let gateway::Claims { named: mut new, of_sets, unplaced } =
            gateway::claims(world, &self.options, &mut self.gateway_memo);
        self.hosts_of_sets = of_sets;
        let placed_before = std::mem::replace(&mut self.unplaced, unplaced);
        let turned = placed_before.symmetric_difference(&self.unplaced).cloned();
        let turned: Vec<_> = turned.collect();
        self.note_unserved(world, turned.iter());
        // Who has requests without a host is decided for each listener.
        let unnamed = new.remove(&HostPattern::default_host());
        let is_new_unnamed = self.unnamed_route != unnamed;
        self.unnamed_route = unnamed;
        let old = std::mem::replace(&mut self.gateway_claims, new);
        let hosts = old.keys().chain(self.gateway_claims.keys());
        let is_new = |host: &&HostPattern| old.get(*host) != self.gateway_claims.get(*host);
        let hosts: BTreeSet<HostPattern> = hosts.filter(is_new).cloned().collect();
        let (mut all, others): (BTreeSet<_>, BTreeSet<_>) =
            hosts.into_iter().partition(|host| self.is_named(host));
        self.named_anew.extend(others);
        all.extend(
            is_new_unnamed.then(HostPattern::default_host).filter(|host| self.is_named(host)),
        );
        all
    }

    /// What is said to a route or a ListenerSet that its namespace has too many of, if it names a Gateway of ours. One that names a
    /// Gateway which comes later is not told: nobody looks at what is beyond a limit.
    fn too_many(&self, world: &World, id: &ObjectRef) -> Option<Note> {
        let (api, namespace) = (&world.gateway_api, &id.key.namespace);
        if !api.is_beyond(id) || !gateway::is_watched(world, &self.options, namespace) {
            return None;
        }
        let is_ours = |gateway: Key| gateway::is_ours(&self.options, api, &gateway);
        let (names_ours, most, what) = match id.kind {
            Kind::ListenerSet => {
                let gateway = api.any_set(&id.key)?.spec.gateway(namespace);
                (gateway.is_some_and(is_ours), objects::MAX_SETS, "ListenerSets")
            }
            _ => {
                let parents = &api.any_route(id)?.spec.parent_refs;
                let parents = parents.iter().filter_map(|parent| parent.object(namespace));
                let mut gateways = parents.filter_map(|of| gateway::gateway_of(world, &of));
                (gateways.any(is_ours), objects::MAX_ROUTES, "routes")
            }
        };
        let message = format!(
            "namespace {namespace} has more than {most} {what}, of which the oldest are served, and this one is newer: nothing of \
             it is served: use fewer, or move some to another namespace"
        );
        names_ours.then(|| Note::rejected(message))
    }

    fn touches_gateways(
        &self,
        world: &World,
        changed: &Changed,
        is_new_settings: bool,
        hosts: &BTreeSet<HostPattern>,
    ) -> bool {
        let now = &self.gateways;
        if self.concerns_gateways(world, changed) || self.gateway_memo.opened.has_due() {
            return true;
        }
        if now.statuses.is_empty() {
            return false;
        }
        let is_beside = || {
            let is_above = |above: HostPattern| hosts.contains(&above);
            let served = self.snapshot.listener_servers.keys().map(|at| &at.host);
            let mut served = served.chain(&now.session_hosts);
            // What is kept from a wildcard that is passed through is so wherever its routes are.
            let mut passed = hosts.iter().filter(|_| self.options.ssl_passthrough);
            hosts.contains(&HostPattern::default_host())
                || passed.any(|host| {
                    self.below.contains_key(host) || self.gateway_claims.contains_key(host)
                })
                || served
                    .any(|host| hosts.contains(host) || host.wildcard_above().is_some_and(is_above))
        };
        is_new_settings
            || self.is_of_services(changed)
            || !changed.namespaces.is_empty()
            || changed.secrets.iter().any(|key| now.shown.contains_key(key))
            || self.names_one_of(world, &changed.config_maps)
            || self.policies_name_one_of(changed)
            || now.depends_on(world, &changed.services)
            || is_beside()
    }

    /// Whether TCP or UDP services may take other ports, which Gateways' listeners then do not have.
    fn is_of_services(&self, changed: &Changed) -> bool {
        let maps = [&self.options.tcp_services_configmap, &self.options.udp_services_configmap];
        maps.into_iter().flatten().any(|key| changed.config_maps.contains(key))
    }

    /// Whether something is served or told because of one of the objects of the Gateway API that changed. What is not may be
    /// edited without end: it is read as it is then when another object's change has it served.
    fn concerns_gateways(&self, world: &World, changed: &Changed) -> bool {
        changed.gateway_api.iter().any(|id| self.is_used(world, id))
    }

    /// Whether an object has a status, or is of something that has one; a Policy: whether a route at our Gateways names it.
    fn is_used(&self, world: &World, id: &ObjectRef) -> bool {
        let (statuses, api) = (&self.gateways.statuses, &world.gateway_api);
        let namespace = &id.key.namespace;
        let has_status = |kind, key| statuses.contains_key(&ObjectRef::new(kind, key));
        let is_of_ours = || match id.kind {
            Kind::Policy => self.asks_for(&id.key),
            Kind::ReferenceGrant => true,
            // What is in a namespace that nobody watches has no status, and neither does what attaches to it.
            kind if kind.is_namespaced()
                && !gateway::is_watched(world, &self.options, namespace) =>
            {
                false
            }
            Kind::Gateway => api.gateways.get(&id.key).is_some_and(|gateway| {
                let class = Key::new("", &gateway.spec.gateway_class_name);
                has_status(Kind::GatewayClass, class)
            }),
            Kind::ListenerSet => {
                gateway::gateway_of(world, id).is_some_and(|key| has_status(Kind::Gateway, key))
            }
            kind if kind.is_route() => {
                let route = api.routes.get(id).into_iter();
                let parents = route.flat_map(|route| &route.spec.parent_refs);
                let mut objects = parents.filter_map(|parent| parent.object(namespace));
                // One that comes together with the route is used itself.
                objects.any(|parent| statuses.contains_key(&parent))
            }
            _ => true,
        };
        statuses.contains_key(id) || is_of_ours()
    }

    /// Whether a Gateway or a policy names one of the ConfigMaps: what others write into theirs builds nothing again.
    fn names_one_of(&self, world: &World, maps: &BTreeSet<Key>) -> bool {
        let named = match maps.is_empty() {
            true => BTreeSet::new(),
            false => gateway::authorities(&self.options, &world.gateway_api),
        };
        maps.iter().any(|key| named.contains(&ObjectRef::new(Kind::ConfigMap, key.clone())))
    }

    /// Whether a Policy of a route names one of the objects that changed.
    fn policies_name_one_of(&self, changed: &Changed) -> bool {
        let all = [
            (Kind::ConfigMap, &changed.config_maps),
            (Kind::Secret, &changed.secrets),
            (Kind::Service, &changed.service_specs),
        ];
        let known = &self.gateway_memo.policies;
        all.into_iter().any(|(kind, objects)| known.name_one_of(kind, objects))
    }

    fn put_gateways(
        &mut self,
        mut built: Built,
        backends: &mut BTreeSet<BackendId>,
    ) -> BTreeSet<HostPattern> {
        let notes = std::mem::take(&mut built.notes);
        self.notes.set(Part::Gateways, notes);
        let old = std::mem::take(&mut self.gateways);
        let Patch { upsert, remove, .. } = &mut self.patch;
        let all = &mut self.snapshot.listener_servers;
        let (upserts, removals) = (&mut upsert.listener_servers, &mut remove.listener_servers);
        let servers = std::mem::take(&mut built.servers);
        let gone: Vec<_> = all.keys().filter(|at| !servers.contains_key(at)).cloned().collect();
        let rules = &mut self.rules;
        for at in &gone {
            rules.set_listener(at, all.get(at), None);
            put(all, upserts, removals, at, None);
        }
        for (at, server) in servers.into_iter().filter(|(_, server)| server.is_some()) {
            rules.set_listener(&at, all.get(&at), server.as_ref());
            put(all, upserts, removals, &at, server);
        }
        self.put_sessions(std::mem::take(&mut built.sessions));
        let policies =
            built.policies.iter().map(|(id, policies)| (id.clone(), Arc::clone(policies)));
        let policies: BTreeMap<PolicyId, Arc<Policies>> = policies.collect();
        let mut used = std::mem::take(&mut built.client_bundles);
        used.extend(policies.values().flat_map(|policies| policies.bundles()).cloned());
        self.offer_bundles(BundleSource::Gateways, std::mem::take(&mut built.bundles));
        self.put_bundles(PolicyHolder::Gateways, used);
        self.put_policies(PolicyHolder::Gateways, policies);
        for (id, entry) in
            built.backends.iter().filter(|(id, entry)| old.backends.get(id) != Some(entry))
        {
            let own = Override { balancing: entry.balancing.clone(), ..Override::default() };
            self.backend_specs.insert(id.clone(), BackendSpec::own(&entry.backend_ref, own));
            backends.insert(id.clone());
        }
        backends.extend(old.backends.keys().filter(|id| !built.backends.contains_key(id)).cloned());
        let urls = old.urls.keys().chain(built.urls.keys());
        let urls = urls.filter(|id| old.urls.get(*id) != built.urls.get(*id));
        let urls: Vec<_> = urls.cloned().collect();
        self.is_new_external_names |= !urls.is_empty();
        backends.extend(urls);
        self.is_new_conf_input |= old.opened != built.opened;
        self.put_statuses(&old, &built);
        self.separate_tls(&gone);
        let mut hosts = BTreeSet::new();
        for (host, id) in old.certificates.iter().chain(&built.certificates) {
            if old.certificates.get(host) != Some(id) || built.certificates.get(host) != Some(id) {
                hosts.insert(host.clone());
            }
        }
        self.gateways = built;
        hosts
    }

    fn put_sessions(&mut self, sessions: BTreeMap<SessionPlace, SessionRoute>) {
        let Patch { upsert, remove, .. } = &mut self.patch;
        let all = &mut self.snapshot.sessions;
        let (upserts, removals) = (&mut upsert.sessions, &mut remove.sessions);
        let closed: Vec<_> = all.keys().filter(|at| !sessions.contains_key(at)).cloned().collect();
        closed.iter().for_each(|at| put(all, upserts, removals, at, None));
        for (at, route) in sessions {
            put(all, upserts, removals, &at, Some(route));
        }
    }

    /// Publishes what holds for all requests: the default backend, and where Gateways listen.
    pub(super) fn put_settings(&mut self) {
        // Without endpoints it would answer 503; the reference answers 404 then.
        let default_backend = self.default_backend.as_ref().map(|backend_ref| &backend_ref.backend);
        let has_endpoints = |id: &&BackendId| {
            self.snapshot.endpoints.get(*id).is_some_and(|set| !set.as_slice().is_empty())
        };
        let settings = oxigress_core::model::Settings {
            default_backend: default_backend.filter(has_endpoints).cloned(),
            listener_ports: {
                let Built { ports, opened, .. } = &self.gateways;
                ports.keys().chain(opened.keys()).filter_map(tcp).collect()
            },
            listener_addresses: self.gateways.addresses.clone(),
            ..self.settings.published()
        };
        if settings != self.snapshot.settings {
            self.snapshot.settings = settings.clone();
            self.patch.upsert.settings = Some(settings);
        }
    }

    fn put_statuses(&mut self, old: &Built, built: &Built) {
        for object in old.statuses.keys().filter(|object| !built.statuses.contains_key(object)) {
            self.new_statuses.insert(object.clone(), None);
        }
        for (object, status) in &built.statuses {
            if old.statuses.get(object) != Some(status) {
                self.new_statuses.insert(object.clone(), Some(status.clone()));
            }
        }
    }

    /// A host that routes alone serve has a TLS policy that says nothing where one of a wildcard above it, or of the default
    /// host, would hold else: what an Ingress says about these is not about this host. Hosts of Ingresses have their own.
    fn separate_tls(&mut self, gone: &[ListenerHost]) {
        let host_of = |at: &ListenerHost| at.host.clone();
        let served: BTreeSet<_> = self.snapshot.listener_servers.keys().map(host_of).collect();
        let mut hosts = served.clone();
        hosts.extend(gone.iter().map(host_of));
        let default = HostPattern::default_host();
        for host in hosts.iter().filter(|host| !self.snapshot.servers.contains_key(host)) {
            let has = |pattern: &HostPattern| {
                pattern != host
                    && self.snapshot.tls.contains_key(pattern)
                    && self.snapshot.servers.contains_key(pattern)
            };
            let is_served = *host != default && served.contains(host);
            let is_below = has(&default) || host.wildcard_above().as_ref().is_some_and(has);
            let policy = (is_served && is_below).then(TlsPolicy::default);
            let Patch { upsert, remove, .. } = &mut self.patch;
            put(&mut self.snapshot.tls, &mut upsert.tls, &mut remove.tls, host, policy);
        }
    }

    /// The listeners of Gateways beside those of TCP and UDP services, which come first.
    pub(super) fn gateway_listeners(&self) -> impl Iterator<Item = (StreamPort, Listener)> {
        self.gateways.opened.iter().map(|(port, listener)| (*port, *listener))
    }
}

fn tcp(port: &StreamPort) -> Option<u16> {
    match port {
        StreamPort::Tcp(number) => Some(number.get()),
        StreamPort::Udp(_) => None,
    }
}
