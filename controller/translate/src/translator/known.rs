//! What the prices of changes are told from ([`crate::pace::price`]).

use crate::Translator;
use crate::gateway::Asked;
use crate::host::aliases::MAX_COPIED_RULES;
use crate::ingress::named_hosts;
use oxigress_core::model::HostPattern;
use oxigress_objects::gateway::{ReferenceGrant, Route};
use oxigress_objects::ingress::Ingress;
#[cfg(test)]
use oxigress_objects::{Changed, World};
use oxigress_objects::{Key, Kind, Name, ObjectRef};
use std::collections::{BTreeMap, BTreeSet};

/// Most rules of others on a host that a namespace pays for when it changes something there.
const MOST_BESIDE: usize = 2_000;

/// Rules that are merged again because of a change.
#[derive(Debug, Default, PartialEq)]
pub struct Beside {
    /// Those that whoever makes it pays for.
    pub own: usize,
    /// What others pay for.
    pub guests: BTreeMap<Name, usize>,
}

impl Translator {
    /// The paths of an Ingress that were compiled and are known as patterns.
    pub(crate) fn expressions_of(&self, ingress: &Key) -> impl Iterator<Item = &str> {
        self.claims.get(ingress).into_iter().flat_map(|claims| claims.expressions())
    }

    /// Whether paths of an Ingress may be patterns.
    pub(crate) fn may_have_patterns(&self, ingress: &Ingress) -> bool {
        let prefix = &self.options.annotations_prefix;
        let has = |name| ingress.annotations.contains_key(&format!("{prefix}/{name}"));
        self.options.regex_per_host || has("use-regex") || has("rewrite-target")
    }

    /// The Ingresses that are read again when an object changes.
    pub(crate) fn readers_of(&self, object: &ObjectRef) -> impl Iterator<Item = &Key> {
        self.referred.by(object)
    }

    /// The routes that are read again when a Service changes.
    pub(crate) fn routes_of(&self, service: &Key) -> impl Iterator<Item = &ObjectRef> {
        self.gateway_memo.readers_of(service)
    }

    /// The routes that are read again when a Policy changes.
    pub(crate) fn routes_with(&self, policy: &Key) -> impl Iterator<Item = &ObjectRef> {
        self.gateway_memo.readers_of_policy(policy)
    }

    /// Whether a route at our Gateways asks for a Policy, which it may have no room for.
    pub(crate) fn asks_for(&self, policy: &Key) -> bool {
        self.gateway_memo.policies.is_asked(policy)
    }

    /// The bytes that a rule takes over of a Policy, as it was read.
    pub(crate) fn bytes_of_policy(&self, policy: &Key) -> u64 {
        self.gateway_memo.policies.get(policy).map_or(0, |known| known.bytes())
    }

    /// The Policies of routes that name an object.
    pub(crate) fn policies_naming(&self, object: &ObjectRef) -> impl Iterator<Item = &Key> {
        self.gateway_memo.policies.naming(object)
    }

    /// The routes that are read again when a grant of a namespace comes or goes.
    pub(crate) fn routes_by(
        &self,
        namespace: &Name,
        grant: &ReferenceGrant,
    ) -> BTreeSet<&ObjectRef> {
        self.gateway_memo.readers_by(namespace, grant)
    }

    /// The listeners that are looked at again when a Secret changes.
    pub(crate) fn listeners_with(&self, secret: &Key) -> usize {
        self.gateways.shown.get(secret).map_or(0, |(count, _)| *count)
    }

    /// The Gateways and ListenerSets that may show a Secret.
    pub(crate) fn gateways_with(&self, secret: &Key) -> impl Iterator<Item = &ObjectRef> {
        self.gateways.shown.get(secret).into_iter().flat_map(|(_, gateways)| gateways)
    }

    /// The routes that name an object as a parent.
    pub(crate) fn routes_at(&self, object: &ObjectRef) -> impl Iterator<Item = &ObjectRef> {
        self.route_parents.by(object)
    }

    /// A route, as it was last read.
    pub(crate) fn known_route(&self, id: &ObjectRef) -> Option<&Route> {
        self.gateway_memo.route(id)
    }

    /// What the rules of a route ask for that are served.
    pub(crate) fn served_of(&self, route: &ObjectRef) -> BTreeSet<Asked> {
        self.gateway_memo.served_of(route)
    }

    /// Whether another namespace has rules on a host.
    pub(crate) fn has_rules_of_others(&self, host: &HostPattern, namespace: &Name) -> bool {
        let mut listeners = self.rules.counts.get(host).into_iter().flat_map(BTreeMap::keys);
        let is_foreign = |of: &str| *of != **namespace;
        self.claimants_of(host).any(|of| is_foreign(&of.namespace))
            || listeners.any(|of| is_foreign(of))
    }

    /// Whether the rules of a route are known.
    pub(crate) fn has_rules_of(&self, route: &ObjectRef) -> bool {
        self.gateway_memo.has_rules_of(route)
    }

    /// How many rules listeners have on hosts that one of these names or covers.
    pub(crate) fn rules_under(&self, hosts: &BTreeSet<HostPattern>) -> usize {
        self.rules.under(hosts)
    }

    /// How many rules listeners have on a host.
    pub(crate) fn rules_at(&self, host: &HostPattern) -> usize {
        self.rules.at(host)
    }

    /// The objects that an Ingress named when it was last read.
    pub(crate) fn objects_of(&self, ingress: &Key) -> impl Iterator<Item = &ObjectRef> {
        self.referred.of(ingress)
    }

    /// The rules that are merged again on hosts, but those of one Ingress, and who pays for them: whoever changes something, but a
    /// host's owner no more than [`MOST_BESIDE`] of those of others on all these hosts, or whoever adds paths to them would leave
    /// the owner no changes.
    pub(crate) fn rules_beside(
        &self,
        hosts: &BTreeSet<HostPattern>,
        payer: &Name,
        but: Option<&Key>,
    ) -> Beside {
        let (mut beside, mut left) = (Beside::default(), MOST_BESIDE);
        for host in hosts {
            let claimed = but.and_then(|key| self.claims.get(key));
            let claimed = claimed.map_or(0, |claims| claims.claims_on(host).len());
            let owner = self.decide_owner(host).by;
            if owner.is_none_or(|owner| owner.key.namespace != *payer) {
                beside.own += self.rules_on(host).saturating_sub(claimed);
                continue;
            }
            for (namespace, count) in self.rules_by_namespace(host) {
                if *namespace == **payer {
                    beside.own += count.saturating_sub(claimed);
                    continue;
                }
                let paid = count.min(left);
                left -= paid;
                beside.own += paid;
                if count > paid {
                    *beside.guests.entry(namespace.into()).or_default() += count - paid;
                }
            }
        }
        beside
    }

    /// How many rules each namespace has on a host, those of listeners among them.
    fn rules_by_namespace(&self, host: &HostPattern) -> BTreeMap<&str, usize> {
        let of_listeners = self.rules.counts.get(host).into_iter().flatten();
        let mut all: BTreeMap<&str, usize> =
            of_listeners.map(|(namespace, count)| (namespace.as_str(), *count)).collect();
        let server = self.snapshot.servers.get(host).into_iter();
        for rule in server.flat_map(|server| &server.rules) {
            *all.entry(&rule.origin.namespace).or_default() += 1;
        }
        all
    }

    /// How many rules an Ingress adds to its aliases.
    pub(crate) fn rules_of_aliases(&self, ingress: &Ingress) -> usize {
        copies_of(&self.options.annotations_prefix, ingress)
    }

    /// The hosts that an Ingress names or named, and their aliases.
    pub(crate) fn hosts_named_by(&self, key: &Key, ingress: &Ingress) -> BTreeSet<HostPattern> {
        let claimed = self.claims.get(key).into_iter().flat_map(|claims| claims.hosts.keys());
        let mut hosts = named_hosts(ingress);
        hosts.extend(claimed.cloned());
        self.with_aliases(hosts)
    }

    /// Hosts and their aliases, which are merged with them.
    pub(crate) fn with_aliases(&self, mut hosts: BTreeSet<HostPattern>) -> BTreeSet<HostPattern> {
        let aliases = hosts.iter().flat_map(|host| self.aliases.of(host));
        let aliases: Vec<_> = aliases.map(|alias| alias.host.clone()).collect();
        hosts.extend(aliases);
        hosts
    }

    /// The Ingresses that claim a host.
    pub(crate) fn claimants_of(&self, host: &HostPattern) -> impl Iterator<Item = &Key> {
        self.claimants.get(host).into_iter().flat_map(|all| all.iter().map(|(_, key)| key))
    }

    /// How many rules a host has, those of listeners among them.
    pub(crate) fn rules_on(&self, host: &HostPattern) -> usize {
        let own = self.snapshot.servers.get(host).map_or(0, |server| server.rules.len());
        own + self.rules_at(host)
    }

    /// How many hosts choose a certificate again when a Secret changes.
    pub(crate) fn hosts_with(&self, secret: &Key) -> usize {
        self.secrets.by(secret).count()
    }

    /// How many hosts below wildcards choose a certificate again where these show another one, or none.
    pub(crate) fn hosts_below<'h>(&self, hosts: impl Iterator<Item = &'h HostPattern>) -> usize {
        hosts.filter_map(|host| self.below.get(host)).map(BTreeSet::len).sum()
    }

    /// The Ingresses that a change of objects has read again.
    #[cfg(test)]
    pub(crate) fn touched_by(&self, world: &World, changed: &Changed) -> BTreeSet<Key> {
        self.touched_ingresses(world, changed, false)
    }

    /// Whether flags or the main ConfigMap name an object.
    pub(crate) fn is_operators(&self, object: &ObjectRef) -> bool {
        let options = &self.options;
        let is = |named: &Option<Key>| named.as_ref() == Some(&object.key);
        match object.kind {
            Kind::ConfigMap => {
                let maps = [
                    &options.configmap,
                    &options.tcp_services_configmap,
                    &options.udp_services_configmap,
                ];
                maps.into_iter().any(is) || self.settings.sources().any(|key| *key == object.key)
            }
            Kind::Secret => is(&options.default_ssl_certificate),
            Kind::ClusterTrustBundle
            | Kind::GatewayClass
            | Kind::IngressClass
            | Kind::Namespace => true,
            Kind::BackendTLSPolicy
            | Kind::EndpointSlice
            | Kind::Gateway
            | Kind::GRPCRoute
            | Kind::HTTPRoute
            | Kind::Ingress
            | Kind::ListenerSet
            | Kind::Policy
            | Kind::ReferenceGrant
            | Kind::Service
            | Kind::TCPRoute
            | Kind::TLSRoute
            | Kind::UDPRoute => false,
        }
    }
}

/// How many rules an Ingress adds to its aliases, as its annotations say.
pub fn copies_of(prefix: &str, ingress: &Ingress) -> usize {
    let names = ingress.annotations.get(&format!("{prefix}/server-alias"));
    let names = names.map_or(0, |names| names.split(',').count());
    ingress.count_paths().saturating_mul(names).min(MAX_COPIED_RULES)
}
