//! The backends: of Services, of URLs, and the default one.

use super::{Translator, put};
use crate::backend::spec::{BackendSpec, HostBackend};
use crate::backend::{self, Usage};
use crate::backend_ref::{self, BackendRef};
use crate::gateway;
use crate::notes::Part;
use crate::pace::price::endpoints;
use oxigress_core::model::{Backend, BackendId, EndpointSet};
use oxigress_core::wire::native::Patch;
use oxigress_objects::external_name::DnsName;
use oxigress_objects::{Changed, Key, Kind, Name, ObjectRef, World};
use oxigress_settings::grammar::url;
use std::collections::{BTreeMap, BTreeSet};

impl Translator {
    /// How many backends a Service has, one for each of its ports to which something leads, and how many of them hash.
    pub(crate) fn count_backends(&self, service: &Key) -> (usize, usize) {
        let hashes = |id: &&BackendId| {
            let backend = self.snapshot.backends.get(*id);
            backend.is_some_and(|backend| backend.hash_by.is_some() || backend.affinity.is_some())
        };
        (self.ids_of(service).count(), self.ids_of(service).filter(hashes).count())
    }

    pub(super) fn backends_of(&self, service: &Key) -> Vec<BackendId> {
        self.ids_of(service).cloned().collect()
    }

    /// The ids of the backends of a Service, one for each of its ports to which something leads.
    fn ids_of(&self, service: &Key) -> impl Iterator<Item = &BackendId> {
        let first = BackendId::parse(format!("{service}/")).ok();
        first.into_iter().flat_map(|first| {
            let ids = self.backend_specs.range(first.clone()..).map(|(id, _)| id);
            ids.take_while(move |id| id.as_str().starts_with(first.as_str()))
        })
    }

    pub(super) fn choose_default_backend(
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
        let port = world.services.get(key).and_then(|service| backend_ref::first_port(service));
        let port = port.unwrap_or(oxigress_objects::ingress::Port::Number(80));
        let backend = BackendId::parse(format!("{key}/{port}")).ok();
        let new = backend.map(|backend| BackendRef { service: key.clone(), port, backend });
        for backend_ref in [&self.default_backend, &new].into_iter().flatten() {
            backends.insert(backend_ref.backend.clone());
        }
        self.backend_specs
            .extend(new.iter().map(|backend_ref| {
                (backend_ref.backend.clone(), BackendSpec::shared(backend_ref))
            }));
        self.default_backend = new;
    }

    /// The server of a URL.
    pub(super) fn resolve_url(&mut self, world: &World, id: BackendId) {
        let users = self.urls.rights_from(&(id.clone(), Key::new("", "")));
        let users = users.take_while(|(url, _)| *url == id);
        let users = users.map(|(_, key)| ObjectRef::new(Kind::Ingress, key.clone()));
        let routes = self.gateways.urls.get(&id).into_iter().flatten().cloned();
        let users: Vec<_> = users.chain(routes).collect();
        let url = url::behind(&id).filter(|_| !users.is_empty());
        let Some((external, port)) = url else { return self.drop_backend(id) };
        let resolved = backend::resolve_url(world, &self.options, &external, port);
        let notes: Vec<_> = users
            .into_iter()
            .flat_map(|object| {
                resolved.notes.iter().map(move |note| (object.clone(), note.clone()))
            })
            .collect();
        self.notes.set(Part::Backend(id.clone()), notes);
        self.put_external_name(&id, resolved.name);
        self.put_backend(&id, Some((Backend::default(), resolved.endpoints)));
    }

    pub(super) fn resolve_backend(&mut self, world: &World, id: BackendId) {
        if url::behind(&id).is_some() {
            return self.resolve_url(world, id);
        }
        let referrers = self.host_backends.rights_from(&HostBackend::first_of(&id));
        let referrers: Vec<_> = referrers.take_while(|referrer| referrer.backend == id).collect();
        let of_routes = self.gateways.backends.get(&id);
        let routes = of_routes.map(|backend| backend.routes.clone()).unwrap_or_default();
        let is_default = self.default_backend.as_ref().is_some_and(|of| of.backend == id);
        let spec = match self.backend_specs.get(&id) {
            Some(spec) if is_default || !referrers.is_empty() || !routes.is_empty() => spec,
            _ => return self.drop_backend(id),
        };
        let balancing = self.spec_owners.balancing_of(&id, spec);
        let service_upstream = balancing.service_upstream.unwrap_or(self.settings.service_upstream);
        // A backend of sessions is none of requests.
        let of_sessions = routes.iter().find(|route| !route.kind.is_of_requests());
        let usage = match of_sessions {
            Some(route) => Usage::Stream(gateway::protocol_of(route.kind)),
            None => Usage::Http { service_upstream },
        };
        let resolved = backend::resolve(world, &self.options, &spec.backend_ref, usage);
        let what_follows = match usage {
            Usage::Stream(_) => "sessions are closed",
            _ if spec.is_canary() => "the main Ingress's Service gets all requests",
            _ => "requests get 503",
        };
        let mut notes = resolved.object_notes;
        let lack = resolved.lack.as_ref().map(|lack| lack.note(what_follows));
        for referrer in &referrers {
            let object = ObjectRef::new(Kind::Ingress, referrer.ingress.clone());
            let said = lack.iter().chain(&resolved.remark).cloned();
            notes.extend(said.map(|note| (object.clone(), note)));
        }
        let of_lack = lack.iter().flat_map(|lack| {
            // Whatever is missing is told by the route's conditions.
            routes.iter().map(|route| (route.clone(), lack.clone()))
        });
        notes.extend(of_lack);
        if let (Some(lack), true) = (&resolved.lack, is_default) {
            let object = ObjectRef::new(Kind::Service, spec.backend_ref.service.clone());
            notes.push((object, lack.note("requests that no Ingress takes get 404")));
        }
        let mut locations: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
        for referrer in referrers.iter().filter(|referrer| !referrer.path.is_empty()) {
            for host in self.host_backends.by(referrer) {
                locations.entry(host.to_string()).or_default().insert(&referrer.path);
            }
        }
        for (host, paths) in of_routes.iter().flat_map(|backend| &backend.locations) {
            locations.entry(host.clone()).or_default().extend(paths.iter().map(String::as_str));
        }
        let texts = |paths: BTreeSet<&str>| paths.into_iter().map(Into::into).collect();
        let locations = locations.into_iter().map(|(host, paths)| (host, texts(paths))).collect();
        let record = spec.record(&balancing, &self.settings, locations);
        self.note_work(world, (&id, spec.backend_ref.service.clone(), usage), &record);
        self.notes.set(Part::Backend(id.clone()), notes);
        self.put_external_name(&id, resolved.external_name);
        self.put_backend(&id, Some((record, resolved.endpoints)));
    }

    pub(super) fn drop_backend(&mut self, id: BackendId) {
        self.backend_specs.remove(&id);
        self.notes.set(Part::Backend(id.clone()), []);
        self.put_external_name(&id, None);
        self.put_backend(&id, None);
    }

    pub(super) fn put_external_name(&mut self, id: &BackendId, name: Option<DnsName>) {
        let different = self.external_names.set(id, name.into_iter().collect());
        self.is_new_external_names |= !different.is_empty();
    }

    /// Counts the endpoints that were looked at for whoever has the backend: the namespace of a Policy, or that of the Service.
    pub(super) fn note_work(
        &mut self,
        world: &World,
        (id, service, usage): (&BackendId, Key, Usage),
        backend: &Backend,
    ) {
        if usage == (Usage::Http { service_upstream: true }) {
            return;
        }
        let hashes = backend.hash_by.is_some() || backend.affinity.is_some();
        let price = endpoints::price(endpoints::count(world, &service), (1, hashes.into()));
        let of_policy = id.as_str().split_once("//route/").and_then(|(_, own)| own.split_once('/'));
        let namespace = of_policy.map_or(service.namespace, |(of, _)| of.into());
        let work = self.endpoint_work.entry(namespace).or_default();
        *work = work.saturating_add(price);
    }

    /// What the operator has had read again is nobody's doing.
    pub(super) fn forget_work(&mut self, is_operators: bool) {
        if is_operators {
            self.endpoint_work.clear();
        }
    }

    /// What reading endpoints has taken since this was last asked, in nanoseconds, by the namespace of their Service.
    pub fn take_endpoint_work(&mut self) -> BTreeMap<Name, u64> {
        std::mem::take(&mut self.endpoint_work)
    }

    pub(super) fn put_backend(&mut self, id: &BackendId, backend: Option<(Backend, EndpointSet)>) {
        let (backend, set) = backend.unzip();
        let Patch { upsert, remove, .. } = &mut self.patch;
        put(&mut self.snapshot.backends, &mut upsert.backends, &mut remove.backends, id, backend);
        put(&mut self.snapshot.endpoints, &mut upsert.endpoints, &mut remove.endpoints, id, set);
    }
}
