//! The Gateway API: routes that change alone are built again alone; where anything else changes by which something is served, all is
//! built again. The delta has what differs.

use super::certificates::oldest_ingress;
use super::{BundleSource, PolicyHolder, Translator, put, touched};
use crate::backend::spec::{BackendSpec, Override};
use crate::claim::age::Age;
use crate::gateway::{self, Beside, Built, Edited, HeldPorts, HostOwner, RouteBackend};
use crate::host::owner::{GatewayClaim, ServedFrom};
use crate::translator::notes::Part;
use oxigress_core::model::{BackendId, HostPattern, SessionPlace, SessionRoute, StreamPort};
use oxigress_core::wire::native::Patch;
use oxigress_objects::gateway as objects;
use oxigress_objects::gateway_status::Wanted;
use oxigress_objects::verdict::Note;
use oxigress_objects::{Changed, Key, Kind, Name, ObjectRef, World};
use oxigress_settings::conf_input::Listener;
use std::collections::{BTreeMap, BTreeSet};

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
            self.claimed_by.clear();
            return BTreeSet::new();
        }
        let routes = self.routes_alone(world, changed);
        if routes.is_none() {
            self.charge_build(world, changed);
        }
        let mut memo = std::mem::take(&mut self.gateway_memo);
        if is_new_settings {
            memo.forget_built();
        }
        let mut before = std::mem::take(&mut self.gateways);
        let owner = |host: &HostPattern| {
            let decided = self.decide_owner(host);
            let is_alias = matches!(decided.served_from, ServedFrom::Alias { .. });
            let heir = self.successor(host, decided.kind);
            Some(HostOwner { age: decided.by?, kind: decided.kind, is_alias, heir })
        };
        let servers = &self.snapshot.servers;
        let (named, passed) = (&self.gateway_claims, &self.passed_wildcards());
        let beside = Beside { servers, touched: hosts, named, passed, owner: &owner };
        let site = gateway::Site { world, options: &self.options, beside: &beside };
        let by_session = routes
            .as_ref()
            .and_then(|_| gateway::touched_session(site, &before, &self.claimed).cloned());
        let edited = routes.filter(|_| by_session.is_none()).and_then(|routes| {
            if touched::grants(changed).next().is_some() {
                memo.make_stale(&routes);
            }
            let touched = (&routes, &self.claimed);
            gateway::edit(site, &self.settings, &mut memo, &mut before, touched)
        });
        let built = edited.is_none().then(|| gateway::build(site, &self.settings, &mut memo));
        if let Some(host) = by_session {
            self.charge_session(world, changed, &host);
        }
        self.claimed_by.clear();
        let touched = memo.leads.take_touched();
        self.gateway_memo = memo;
        self.gateways = before;
        self.is_new_external_names |= !touched.urls.is_empty();
        backends.extend(touched.urls);
        match (edited, built) {
            (Some(edited), _) => {
                self.put_edited(edited, hosts, backends);
                BTreeSet::new()
            }
            (None, built) => self.put_gateways(built.unwrap_or_default(), backends),
        }
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
        for id in &changed.gateway_api {
            let note = self.too_many(world, id);
            self.notes.set(Part::Beyond(id.clone()), note.map(|note| (id.clone(), note)));
        }
        self.claimed = BTreeSet::new();
        let is_touched = self.concerns_gateways(world, changed)
            || self.is_of_services(changed)
            || !changed.namespaces.is_empty();
        if !is_touched {
            self.gateway_memo.left = None;
            return BTreeSet::new();
        }
        let routes = self.routes_alone(world, changed);
        let memo = &mut self.gateway_memo;
        let claims =
            routes.and_then(|routes| gateway::edited_claims(world, &self.options, memo, &routes));
        if let Some(claims) = claims {
            return self.edit_claims(claims);
        }
        let gateway::Claims { named: mut new, of_sets, unplaced } =
            gateway::claims(world, &self.options, &mut self.gateway_memo);
        self.hosts_of_sets = of_sets;
        self.unplaced = unplaced;
        // Who has requests without a host is decided for each listener.
        let unnamed = new.remove(&HostPattern::default_host());
        let is_new_unnamed = self.unnamed_route != unnamed;
        self.unnamed_route = unnamed;
        let old = std::mem::replace(&mut self.gateway_claims, new);
        let hosts = old.keys().chain(self.gateway_claims.keys());
        let is_new = |host: &&HostPattern| old.get(*host) != self.gateway_claims.get(*host);
        let mut hosts: BTreeSet<HostPattern> = hosts.filter(is_new).cloned().collect();
        hosts.extend(is_new_unnamed.then(HostPattern::default_host));
        self.divide(hosts)
    }

    /// Notes of which hosts another object makes somebody the owner; answers those whose Ingresses it concerns.
    fn edit_claims(
        &mut self,
        claims: BTreeMap<HostPattern, Option<GatewayClaim>>,
    ) -> BTreeSet<HostPattern> {
        let mut hosts = BTreeSet::new();
        for (host, claim) in claims {
            let is_unnamed = host == HostPattern::default_host();
            let old = match (is_unnamed, &claim) {
                (true, _) => std::mem::replace(&mut self.unnamed_route, claim.clone()),
                (false, Some(new)) => self.gateway_claims.insert(host.clone(), new.clone()),
                (false, None) => self.gateway_claims.remove(&host),
            };
            if old != claim {
                hosts.insert(host);
            }
        }
        self.divide(hosts)
    }

    /// Divides hosts that are named by others than before; answers those that Ingresses name.
    fn divide(&mut self, hosts: BTreeSet<HostPattern>) -> BTreeSet<HostPattern> {
        self.claimed.clone_from(&hosts);
        let (all, mut others): (BTreeSet<_>, BTreeSet<_>) =
            hosts.into_iter().partition(|host| self.is_named(host));
        // Who has requests without a host is told by no certificate.
        others.remove(&HostPattern::default_host());
        self.named_anew.extend(others);
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

    fn put_gateways(
        &mut self,
        mut built: Built,
        backends: &mut BTreeSet<BackendId>,
    ) -> BTreeSet<HostPattern> {
        let notes = std::mem::take(&mut built.notes);
        self.notes.set(Part::Gateways, notes);
        let old = std::mem::take(&mut self.gateways);
        self.put_sessions(std::mem::take(&mut built.sessions));
        let mut used = std::mem::take(&mut built.client_bundles);
        let policies = std::mem::take(&mut built.session_policies);
        used.extend(policies.values().flat_map(|policies| policies.bundles()).cloned());
        self.offer_bundles(BundleSource::Gateways, std::mem::take(&mut built.bundles));
        self.put_bundles(PolicyHolder::Gateways, used);
        self.put_policies(PolicyHolder::Gateways, policies);
        let hosts = std::mem::take(&mut built.hosts);
        let gone = hosts.iter().filter(|(_, merged)| merged.is_none());
        let gone: Vec<_> = gone.map(|(at, _)| at.host.clone()).collect();
        hosts.into_iter().for_each(|(at, merged)| self.put_listener_host(&at, merged));
        let served: BTreeSet<_> = self.places.hosts().cloned().chain(gone).collect();
        for (id, entry) in
            built.backends.iter().filter(|(id, entry)| old.backends.get(id) != Some(entry))
        {
            self.backend_specs.insert(id.clone(), spec_of(entry));
            backends.insert(id.clone());
        }
        backends.extend(old.backends.keys().filter(|id| !built.backends.contains_key(id)).cloned());
        self.is_new_conf_input |= old.opened != built.opened;
        let objects = old.statuses.keys().chain(built.statuses.keys());
        let objects = objects.chain(old.losses.keys()).chain(built.losses.keys());
        let is_new = |object: &&ObjectRef| {
            old.statuses.get(*object) != built.statuses.get(*object)
                || old.losses.get(*object) != built.losses.get(*object)
        };
        let objects: BTreeSet<_> = objects.filter(is_new).cloned().collect();
        let mut hosts = BTreeSet::new();
        for (host, id) in old.certificates.iter().chain(&built.certificates) {
            if old.certificates.get(host) != Some(id) || built.certificates.get(host) != Some(id) {
                hosts.insert(host.clone());
            }
        }
        self.gateways = built;
        for object in objects {
            self.put_status(&object, old.statuses.get(&object));
        }
        self.separate_tls(&served);
        hosts
    }

    /// Puts what routes came to that alone were built again; `touched`: the hosts of Ingresses that changed.
    fn put_edited(
        &mut self,
        edited: Edited,
        touched: &BTreeSet<HostPattern>,
        backends: &mut BTreeSet<BackendId>,
    ) {
        let mut hosts: BTreeSet<_> = edited.hosts.keys().map(|at| at.host.clone()).collect();
        if touched.iter().any(gateway::is_wide) {
            hosts.extend(self.places.hosts().cloned());
        }
        for (at, merged) in edited.hosts {
            self.put_listener_host(&at, merged);
        }
        for id in &edited.backends {
            if let Some(entry) = self.gateways.backends.get(id) {
                self.backend_specs.insert(id.clone(), spec_of(entry));
            }
        }
        backends.extend(edited.backends);
        for (object, before) in edited.statuses {
            self.put_status(&object, before.as_ref());
        }
        self.separate_tls(&hosts);
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

    /// The listeners of Gateways beside those of TCP and UDP services, which come first.
    pub(super) fn gateway_listeners(&self) -> impl Iterator<Item = (StreamPort, Listener)> {
        self.gateways.opened.iter().map(|(port, listener)| (*port, *listener))
    }
}

fn spec_of(backend: &RouteBackend) -> BackendSpec {
    let own = Override { balancing: backend.balancing.clone(), ..Override::default() };
    BackendSpec::own(&backend.backend_ref, own)
}

fn tcp(port: &StreamPort) -> Option<u16> {
    match port {
        StreamPort::Tcp(number) => Some(number.get()),
        StreamPort::Udp(_) => None,
    }
}
