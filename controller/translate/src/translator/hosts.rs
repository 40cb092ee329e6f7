//! The hosts: who claims them, what follows them, their rules, policies and bundles.

use super::{BundleSource, PolicyHolder, Translator, put};
use crate::backend::spec::HostBackend;
use crate::claim::age::Age;
use crate::host::alias::Alias;
use crate::host::aliases;
use crate::host::owner::{self, GatewayClaim, HostView, ServedFrom};
use crate::host::{gate, merge};
use crate::ingress::Claims;
use crate::translator::notes::Part;
use oxigress_core::model::policy::{Definitions, Policies, PolicyId};
use oxigress_core::model::{BackendId, Bundle, BundleId, HostPattern};
use oxigress_core::wire::native::Patch;
use oxigress_objects::{Key, Kind, Name, ObjectRef};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Most canaries of a host that are looked at to tell whose a name is that is written in an object which is not in force.
const MOST_CANARIES: usize = 64;

impl Translator {
    /// The hosts that lead to a Service's port, by whichever of its backends.
    pub(super) fn hosts_of(&self, port: &BackendId) -> BTreeSet<HostPattern> {
        let is_of = |id: &BackendId| {
            id.as_str()
                .strip_prefix(port.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with("//"))
        };
        let backends = self.host_backends.rights_from(&HostBackend::first_of(port));
        let backends =
            backends.take_while(|backend| backend.backend.as_str().starts_with(port.as_str()));
        let backends = backends.filter(|backend| is_of(&backend.backend));
        backends.flat_map(|backend| self.host_backends.by(backend)).cloned().collect()
    }

    pub(crate) fn claims_on(&self, host: &HostPattern) -> Vec<&Claims> {
        let claimants = self.claimants.get(host).into_iter().flatten();
        claimants.filter_map(|(_, key)| self.claims.get(key).map(AsRef::as_ref)).collect()
    }

    /// The claims on a host, as the oldest of them lets them stand.
    pub(crate) fn view_of(&self, host: &HostPattern) -> HostView<'_> {
        let by_gateway = self.gateway_claims.get(host);
        HostView::of_claims(self.options.host_ownership, &self.claims_on(host), by_gateway)
    }

    /// Who wants `host` to follow another one, in their order, each with that one: of many, the first by name.
    pub(crate) fn aliases_onto(&self, host: &HostPattern) -> Vec<(&Alias, &HostPattern)> {
        let all = self.aliases.rights_from(&Alias::first_of(host));
        let all = all.take_while(|alias| alias.host == *host);
        all.filter_map(|alias| Some((alias, self.aliases.by(alias).next()?))).collect()
    }

    pub(crate) fn decide_owner(&self, host: &HostPattern) -> owner::OwnerDecision<'_> {
        let mode = self.options.host_ownership;
        let by_gateway = self.gateway_claims.get(host);
        owner::decide(mode, host, &self.claims_on(host), &self.aliases_onto(host), by_gateway)
    }

    /// Whether an Ingress names a host, or one that follows it.
    pub(crate) fn is_named(&self, host: &HostPattern) -> bool {
        self.claimants.contains_key(host) || !self.aliases_onto(host).is_empty()
    }

    /// The oldest route that names a host which no Ingress names.
    pub(crate) fn route_alone(&self, host: &HostPattern) -> Option<&Age> {
        let (route, _) = self.gateway_claims.get(host)?.route.as_ref()?;
        Some(route).filter(|_| !self.is_named(host))
    }

    /// The creation and the name of the oldest object that names a host: what [`Self::decide_owner`] decides by.
    pub(super) fn oldest<'a>(
        &'a self,
        host: &HostPattern,
        by_gateway: Option<&'a GatewayClaim>,
    ) -> Option<(i64, &'a Key)> {
        let (rule, alias) = (self.first_rule(host, usize::MAX), self.first_alias(host));
        owner::oldest(self.options.host_ownership, rule, alias, by_gateway).map(|(age, _)| age)
    }

    /// The namespace that [`Self::loser`] names, without a look at more than the oldest. It is not told where many canaries are older
    /// than all others.
    pub(super) fn namespace_with(&self, host: &HostPattern) -> Option<&Name> {
        let by_gateway = self.gateway_claims.get(host);
        let (rule, alias) = (self.first_rule(host, MOST_CANARIES), self.first_alias(host));
        let oldest = owner::oldest(self.options.host_ownership, rule, alias, by_gateway);
        let route = || by_gateway?.route.as_ref().map(|(age, _)| age.borrowed());
        let by = match oldest? {
            (_, Kind::Gateway) => rule.into_iter().chain(route()).min()?,
            (by, _) => by,
        };
        Some(&by.1.namespace)
    }

    /// The oldest Ingress that is no canary, among so many.
    fn first_rule(&self, host: &HostPattern, most: usize) -> Option<(i64, &Key)> {
        let is_main = |key: &Key| self.claims.get(key).is_some_and(|by| by.canary().is_none());
        let mut claimants = self.claimants.get(host).into_iter().flatten().take(most);
        claimants.find(|(_, key)| is_main(key)).map(|(created, key)| (*created, key))
    }

    fn first_alias(&self, host: &HostPattern) -> Option<(i64, &Key)> {
        let alias = self.aliases.rights_from(&Alias::first_of(host)).next()?;
        (alias.host == *host).then(|| alias.age.borrowed())
    }

    /// To whom a listener leaves a host that it names: the oldest Ingress or route that names it, too. `kind` is the owner's.
    pub(crate) fn successor(&self, host: &HostPattern, kind: Kind) -> Option<(Age, Kind)> {
        let route = self.gateway_claims.get(host).filter(|_| kind == Kind::Gateway)?.route.clone();
        let rule = self.first_rule(host, usize::MAX);
        let rule = rule.map(|(created, key)| (Age { created, key: key.clone() }, Kind::Ingress));
        rule.into_iter().chain(route).min_by(|a, b| a.0.cmp(&b.0))
    }

    /// Adds the hosts that follow one of `hosts`, or did.
    pub(super) fn find_aliases(&mut self, hosts: &mut BTreeSet<HostPattern>) {
        for host in hosts.clone() {
            let new = aliases::of(&host, &self.view_of(&host).owner);
            hosts.extend(new.iter().map(|alias| alias.host.clone()));
            let different = self.aliases.set(&host, new);
            hosts.extend(different.iter().map(|alias| alias.host.clone()));
        }
    }

    /// Decides who owns a host, merges the claims on it, and puts its records into the snapshot.
    pub(super) fn merge_host(&mut self, host: &HostPattern, backends: &mut BTreeSet<BackendId>) {
        let decided = self.decide_owner(host);
        let merge_as = |source: &HostPattern, view: &HostView<'_>| {
            let settings = (&self.settings, &self.common);
            let options = (&self.options, self.unnamed_route.as_ref());
            merge::merge(host, source, view, settings, &self.spec_owners, options)
        };
        let (mut merged, is_followed) = match &decided.served_from {
            ServedFrom::Alias { alias, source } if alias.is_redirected => {
                (merge::redirected(source, &alias.age.key, &self.settings), true)
            }
            ServedFrom::Alias { source, .. } => (merge_as(source, &self.view_of(source)), true),
            ServedFrom::Claims(view) => (merge_as(host, view), false),
        };
        gate::close_invalid(host, &mut merged, &self.snapshot);
        let bundles = merged.bundles();
        let about = |(key, note)| (ObjectRef::new(Kind::Ingress, key), note);
        let mut notes: Vec<_> = decided.notes.into_iter().map(about).collect();
        // What there is to say about another host's rules is said there.
        if !is_followed {
            notes.extend(merged.notes);
            notes.extend(merged.refusals.into_iter().map(about));
        }
        self.notes.set(Part::Host(host.clone()), notes);
        self.put_bundles(PolicyHolder::Host(host.clone()), bundles);
        for (id, spec) in merged.backend_specs {
            if self.backend_specs.get(&id) != Some(&spec) {
                self.backend_specs.insert(id.clone(), spec);
                backends.insert(id);
            }
        }
        let touched = self.host_backends.set(host, merged.backends);
        backends.extend(touched.iter().map(|backend| backend.backend.clone()));
        let urls = self.urls.set(host, merged.urls);
        backends.extend(urls.iter().map(|url| url.0.clone()));
        // Who names a URL decides in whose turn its name is looked up.
        self.is_new_external_names |= !urls.is_empty();
        self.put_policies(PolicyHolder::Host(host.clone()), merged.policies);
        let Patch { upsert, remove, .. } = &mut self.patch;
        let servers = &mut self.snapshot.servers;
        self.rules.set_host(host, merged.server.as_ref());
        put(servers, &mut upsert.servers, &mut remove.servers, host, merged.server);
        let (passthrough, to) = (&mut self.snapshot.passthrough, merged.passthrough);
        put(passthrough, &mut upsert.passthrough, &mut remove.passthrough, host, to);
        put(&mut self.snapshot.tls, &mut upsert.tls, &mut remove.tls, host, merged.tls);
    }

    pub(super) fn offer_bundles(&mut self, by: BundleSource, bundles: BTreeMap<BundleId, Bundle>) {
        let ids = bundles.keys().cloned().collect();
        self.bundle_texts.extend(bundles);
        for id in self.offered_bundles.set(&by, ids) {
            if !self.offered_bundles.has(&id) {
                self.bundle_texts.remove(&id);
            }
        }
    }

    /// A bundle stays as long as somebody names it.
    pub(super) fn put_bundles(&mut self, holder: PolicyHolder, ids: BTreeSet<BundleId>) {
        for id in self.bundles.set(&holder, ids) {
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

    /// The variables of `http-snippet`, under an id of their own: any text may have them.
    pub(super) fn put_definitions(&mut self) {
        let Ok(id) = PolicyId::parse(Definitions::ID) else { return };
        let record = self.common.definitions.as_deref().cloned();
        let Patch { upsert, remove, .. } = &mut self.patch;
        let all = &mut self.snapshot.policies;
        put(all, &mut upsert.policies, &mut remove.policies, &id, record);
    }

    /// A record stays as long as the rules of one host name it.
    pub(super) fn put_policies(
        &mut self,
        holder: PolicyHolder,
        policies: BTreeMap<PolicyId, Arc<Policies>>,
    ) {
        let touched = self.policies.set(&holder, policies.keys().cloned().collect());
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
}
