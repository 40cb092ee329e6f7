//! The backends: of Services, of URLs, and the default one.

use super::{Translator, put};
use crate::annotation::balancing::Balancing;
use crate::backend::size::Sizes;
use crate::backend::spec::{self, BackendSpec, HostBackend};
use crate::backend::{self, Lack, Usage};
use crate::claim::backend_ref::{self, BackendRef};
use crate::gateway::{self, RouteBackend};
use crate::pace::price::endpoints;
use crate::translator::notes::Part;
use oxigress_core::model::policy::AuthHost;
use oxigress_core::model::{Backend, BackendId, EndpointSet};
use oxigress_core::wire::native::Patch;
use oxigress_objects::service::external_name::DnsName;
use oxigress_objects::verdict::Note;
use oxigress_objects::{Changed, Key, Kind, Name, ObjectRef, World};
use oxigress_settings::grammar::url;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What a namespace pays at most, in one update, for backends of others that are read because of it, in nanoseconds.
const MOST_FOR_OTHERS: u64 = 500_000_000;

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
        let users: Vec<_> = self.users_of_url(&id).collect();
        let url = url::behind(&id).filter(|_| !users.is_empty());
        let Some((external, port)) = url else { return self.drop_backend(id) };
        let resolved = backend::resolve_url(world, &self.options, &external, port);
        let notes: Vec<_> = users
            .into_iter()
            .flat_map(|object| {
                let effect =
                    self.effect_of_url(&object, &id, resolved.endpoints.as_slice().is_empty());
                resolved.notes.iter().map(move |note| {
                    let message = format!("{effect}, since {}", note.message);
                    (object.clone(), Note { message, ..note.clone() })
                })
            })
            .collect();
        self.notes.set(Part::Backend(id.clone()), notes);
        self.put_external_name(&id, resolved.name);
        self.put_backend(&id, Some((Backend::default(), resolved.endpoints)));
    }

    /// Where an object names a URL, and what becomes of requests if it has no endpoint, or lacks one of them.
    fn effect_of_url(&self, object: &ObjectRef, id: &BackendId, is_empty: bool) -> String {
        let policies = self.claims.get(&object.key).map(|claims| claims.annotated());
        let policies = policies.filter(|_| object.kind == Kind::Ingress);
        let is_named = |to: Option<&AuthHost>| to.and_then(AuthHost::known_backend) == Some(id);
        let is_auth = policies.is_some_and(|policies| {
            let access = policies.access.as_ref().and_then(|access| access.external.as_ref());
            is_named(access.map(|external| &external.to))
        });
        let is_mirror = policies
            .is_some_and(|policies| is_named(policies.mirror.as_ref().map(|mirror| &mirror.to)));
        let (place, lost) = match (is_auth, is_mirror) {
            (true, false) => ("annotation auth-url", "requests get 500"),
            (false, true) => ("annotation mirror-target", "nothing is copied"),
            _ => ("auth-url or mirror-target", "requests get 500, and nothing is copied"),
        };
        match is_empty {
            true => format!("{place}: {lost}"),
            false => format!("{place}: one of its addresses is not used"),
        }
    }

    /// The Ingresses and routes whose policies name a URL.
    fn users_of_url(&self, id: &BackendId) -> impl Iterator<Item = ObjectRef> {
        let users = self.urls.rights_from(&(id.clone(), Key::new("", "")));
        let users = users.take_while(move |(url, _)| url == id);
        let users = users.map(|(_, key)| ObjectRef::new(Kind::Ingress, key.clone()));
        users.chain(self.gateway_memo.leads.routes_with(id).cloned())
    }

    /// The DNS names that backends stand for, each with the namespace in whose turn it is looked up: of those that name it the
    /// one that names the fewest, so nobody makes the names of another one wait behind many of its own.
    pub(super) fn namespaces_of_names(&self) -> BTreeMap<DnsName, Name> {
        let mut counts: BTreeMap<Name, usize> = BTreeMap::new();
        let mut names = Vec::new();
        for name in self.external_names.rights() {
            let namespaces = self.users_of(name);
            namespaces.iter().for_each(|of| *counts.entry(of.clone()).or_default() += 1);
            names.push((name.clone(), namespaces));
        }
        let least = |namespaces: BTreeSet<Name>| {
            namespaces.into_iter().min_by_key(|namespace| counts.get(namespace).copied())
        };
        let names = names.into_iter();
        names.map(|(name, namespaces)| (name, least(namespaces).unwrap_or_default())).collect()
    }

    /// Reads the touched backends, and those that a namespace's limit newly excludes or admits.
    pub(super) fn resolve_backends(&mut self, world: &World, mut backends: BTreeSet<BackendId>) {
        let mut sizes = Sizes::default();
        let counted = backends.iter().filter(|id| url::behind(id).is_none());
        let counted: Vec<_> = counted
            .map(|id| match self.used(id) {
                Some(used) => {
                    let service = &used.spec.backend_ref.service;
                    (used.payer, id.clone(), sizes.of(world, service, used.usage))
                }
                None => (spec::payer_of(id), id.clone(), 0),
            })
            .collect();
        backends.extend(self.room.update(counted));
        for id in backends {
            match url::behind(&id) {
                Some(_) => self.resolve_url(world, id),
                None => self.resolve_backend(world, id, &mut sizes),
            }
        }
    }

    /// What leads to a backend, and how its endpoints are used; `None`: nothing leads to it.
    fn used(&self, id: &BackendId) -> Option<Used<'_>> {
        let of_routes = self.gateways.backends.get(id);
        let is_default = self.default_backend.as_ref().is_some_and(|of| of.backend == *id);
        let spec = self.backend_specs.get(id)?;
        let is_used = is_default
            || self.referrers_of(id).next().is_some()
            || of_routes.is_some_and(|backend| !backend.routes.is_empty());
        if !is_used {
            return None;
        }
        let balancing = self.spec_owners.balancing_of(id, spec);
        let service_upstream = balancing.service_upstream.unwrap_or(self.settings.service_upstream);
        // A backend of sessions is none of requests.
        let mut routes = of_routes.into_iter().flat_map(|backend| &backend.routes);
        let usage = match routes.find(|route| !route.kind.is_of_requests()) {
            Some(route) => Usage::Stream(gateway::protocol_of(route.kind)),
            None => Usage::Http { service_upstream },
        };
        let payer = spec::payer_of(id);
        Some(Used { spec, of_routes, is_default, balancing, usage, payer })
    }

    /// The rules of Ingresses that lead to a backend.
    fn referrers_of(&self, id: &BackendId) -> impl Iterator<Item = &HostBackend> {
        let all = self.host_backends.rights_from(&HostBackend::first_of(id));
        all.take_while(move |referrer| referrer.backend == *id)
    }

    fn resolve_backend(&mut self, world: &World, id: BackendId, sizes: &mut Sizes) {
        let Some(used) = self.used(&id) else { return self.drop_backend(id) };
        let service = &used.spec.backend_ref.service;
        let size = sizes.of(world, service, used.usage);
        let (resolved, size) = match self.room.is_over(&used.payer, &id) {
            true => {
                let lack = Some(Lack::of_room(&used.payer));
                // What DNS says of a name stays known, since its size is told from that.
                let known = world.services.get(service);
                let external_name = known.and_then(|service| service.dns_name()).cloned();
                (backend::Resolved { lack, external_name, ..backend::Resolved::default() }, 1)
            }
            false => {
                let to = &used.spec.backend_ref;
                (backend::resolve(world, &self.options, to, used.usage), size)
            }
        };
        let referrers: Vec<_> = self.referrers_of(&id).collect();
        let locations = self.locations_of(&used, &referrers);
        let record = used.spec.record(&used.balancing, &self.settings, locations);
        let mut notes = resolved.object_notes;
        notes.extend(used.notes(&referrers, &resolved.lack, &resolved.remark));
        let hashes = record.hash_by.is_some() || record.affinity.is_some();
        let payer = used.payer;
        self.note_work(payer, endpoints::price(size, (1, hashes.into())));
        self.notes.set(Part::Backend(id.clone()), notes);
        self.put_external_name(&id, resolved.external_name);
        self.put_backend(&id, Some((record, resolved.endpoints)));
    }

    /// The hosts and paths that give out the cookie of a backend.
    fn locations_of(
        &self,
        used: &Used<'_>,
        referrers: &[&HostBackend],
    ) -> BTreeMap<String, Vec<String>> {
        let mut locations: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
        for referrer in referrers.iter().filter(|referrer| !referrer.path.is_empty()) {
            for host in self.host_backends.by(referrer) {
                locations.entry(host.to_string()).or_default().insert(&referrer.path);
            }
        }
        for (host, paths) in used.of_routes.iter().flat_map(|backend| &backend.locations) {
            locations.entry(host.clone()).or_default().extend(paths.iter().map(String::as_str));
        }
        let texts = |paths: BTreeSet<&str>| paths.into_iter().map(Into::into).collect();
        locations.into_iter().map(|(host, paths)| (host, texts(paths))).collect()
    }

    pub(super) fn drop_backend(&mut self, id: BackendId) {
        self.backend_specs.remove(&id);
        self.notes.set(Part::Backend(id.clone()), []);
        self.put_external_name(&id, None);
        self.put_backend(&id, None);
    }

    /// The namespaces that pay for the backends whose endpoints come from a name, and those that name it in URLs.
    pub fn users_of(&self, name: &DnsName) -> BTreeSet<Name> {
        let users = |id: &BackendId| -> Vec<Name> {
            match url::behind(id) {
                None => vec![spec::payer_of(id)],
                Some(_) => self.users_of_url(id).map(|user| user.key.namespace).collect(),
            }
        };
        self.external_names.by(name).flat_map(users).collect()
    }

    pub(super) fn put_external_name(&mut self, id: &BackendId, name: Option<DnsName>) {
        let different = self.external_names.set(id, name.into_iter().collect());
        self.is_new_external_names |= !different.is_empty();
    }

    /// Counts what was looked at for a backend.
    pub(super) fn note_work(&mut self, payer: Name, price: u64) {
        if price == 0 {
            return;
        }
        let work = self.endpoint_work.entry(payer).or_default();
        *work = work.saturating_add(price);
    }

    /// Has those pay for what was read who had it read: the payer of a backend that has changed something itself, else, in
    /// equal parts and up to a limit, all that have changed something by which others' backends may be read.
    pub(super) fn charge(&mut self, before: BTreeMap<Name, u64>, changed: &Changed) {
        let causes = causes(changed);
        let own: BTreeSet<&Name> = changed.services.iter().map(|key| &key.namespace).collect();
        let mut left = MOST_FOR_OTHERS;
        for (payer, price) in std::mem::replace(&mut self.endpoint_work, before) {
            let is_own = causes.contains(&payer) || own.contains(&payer);
            let part = match causes.len() as u64 {
                0 => 0,
                _ if is_own => 0,
                count => (price / count).min(left),
            };
            left -= part;
            self.note_work(payer, price - part * causes.len() as u64);
            causes.iter().for_each(|cause| self.note_work((*cause).clone(), part));
        }
    }

    /// What the operator has had read again is nobody's doing.
    pub(super) fn forget_work(&mut self, is_operators: bool) {
        if is_operators {
            self.endpoint_work.clear();
        }
    }

    /// What reading endpoints has taken since this was last asked, in nanoseconds, by the namespace that pays for it.
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

/// The namespaces of the objects that have changed, but for Services and their endpoints: these have only the backends of their
/// own namespace read.
fn causes(changed: &Changed) -> BTreeSet<&Name> {
    let Changed { config_maps, gateway_api, ingresses, secrets, .. } = changed;
    let keys = [config_maps, ingresses, secrets].into_iter().flatten();
    let keys = keys.chain(gateway_api.iter().map(|object| &object.key));
    keys.map(|key| &key.namespace).filter(|namespace| !namespace.is_empty()).collect()
}

/// A backend that something leads to.
struct Used<'t> {
    spec: &'t BackendSpec,
    of_routes: Option<&'t RouteBackend>,
    is_default: bool,
    balancing: Arc<Balancing>,
    usage: Usage,
    payer: Name,
}

impl Used<'_> {
    /// What there is to say to those who lead there.
    fn notes(
        &self,
        referrers: &[&HostBackend],
        lack: &Option<Lack>,
        remark: &Option<Note>,
    ) -> Vec<(ObjectRef, Note)> {
        let what_follows = match self.usage {
            Usage::Stream(_) => "sessions are closed",
            _ if self.spec.is_canary() => "the main Ingress's Service gets all requests",
            _ => "requests get 503",
        };
        let note = lack.as_ref().map(|lack| lack.note(what_follows));
        let mut notes = Vec::new();
        for referrer in referrers {
            let object = ObjectRef::new(Kind::Ingress, referrer.ingress.clone());
            notes.extend(note.iter().chain(remark).map(|note| (object.clone(), note.clone())));
        }
        // Whatever is missing is told by the route's conditions.
        let routes = self.of_routes.into_iter().flat_map(|backend| &backend.routes);
        notes.extend(
            note.iter().flat_map(|note| routes.clone().map(|route| (route.clone(), note.clone()))),
        );
        if let (Some(lack), true) = (lack, self.is_default) {
            let object = ObjectRef::new(Kind::Service, self.spec.backend_ref.service.clone());
            notes.push((object, lack.note("requests that no Ingress takes get 404")));
        }
        notes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;
    use crate::tests::world;

    const CLASS: &str = "{apiVersion: networking.k8s.io/v1, kind: IngressClass, metadata: {name: nginx}, \
         spec: {controller: k8s.io/ingress-nginx}}\n";

    /// A Service that stands for a name, and an Ingress that leads to it and asks an auth server.
    fn external(namespace: &str, name: &str, server: &str) -> String {
        format!(
            "---\n{{apiVersion: v1, kind: Service, metadata: {{name: {name}, namespace: {namespace}}}, \
             spec: {{type: ExternalName, externalName: {name}.test, ports: [{{port: 80}}]}}}}\n---\n\
             {{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {{name: {name}, \
             namespace: {namespace}, annotations: {{nginx.ingress.kubernetes.io/auth-url: \
             'http://{server}.test'}}}}, spec: {{ingressClassName: nginx, rules: [\
             {{host: {name}.{namespace}, http: {{paths: [{{path: /, pathType: Prefix, backend: \
             {{service: {{name: {name}, port: {{number: 80}}}}}}}}]}}}}]}}}}\n"
        )
    }

    #[test]
    fn a_name_is_looked_up_in_the_turn_of_who_names_the_fewest() {
        let all = [
            CLASS.to_owned(),
            external("a", "shared", "auth"),
            external("a", "own", "auth"),
            external("b", "shared", "auth"),
        ];
        let world = world(&all.concat());
        let mut translator = Translator::new(Options::default());
        let mut changed = Changed::default();
        changed.ingresses.extend(world.ingresses.keys().cloned());
        changed.services.extend(world.services.keys().cloned());
        translator.update(&world, &changed);
        let names = translator.take_external_names().unwrap();
        let names: Vec<_> = names.iter().map(|(name, of)| (name.as_str(), of.as_str())).collect();
        assert_eq!(names, [("auth.test", "b"), ("own.test", "a"), ("shared.test", "b")]);
        assert!(translator.take_external_names().is_none());
    }
}
