//! The places of listeners: the servers of their hosts, whose they are, and what is said about the objects that bring them.

use super::{PolicyHolder, Translator, put};
use crate::claim::age::Age;
use crate::gateway::{self, Merged, PlaceOwner};
use crate::translator::notes::Part;
use oxigress_core::model::policy::TlsPolicy;
use oxigress_core::model::{HostPattern, ListenerHost, Server};
use oxigress_core::wire::native::Patch;
use oxigress_objects::gateway_status::Wanted;
use oxigress_objects::{Kind, ObjectRef};
use std::collections::{BTreeMap, BTreeSet};

/// The places where listeners have servers, and whose these are.
#[derive(Debug, Default, PartialEq)]
pub struct Places {
    owners: BTreeMap<ListenerHost, PlaceOwner>,
    by_host: BTreeMap<HostPattern, BTreeSet<ListenerHost>>,
}

impl Places {
    /// Notes whether there is a server, and whose.
    pub fn set(&mut self, at: &ListenerHost, is_served: bool, owner: Option<&PlaceOwner>) {
        match owner.filter(|_| is_served) {
            Some(owner) => drop(self.owners.insert(at.clone(), owner.clone())),
            None => drop(self.owners.remove(at)),
        }
        let of_host = self.by_host.entry(at.host.clone()).or_default();
        match is_served {
            true => of_host.insert(at.clone()),
            false => of_host.remove(at),
        };
        if of_host.is_empty() {
            self.by_host.remove(&at.host);
        }
    }

    /// Whose a place is, where anybody's.
    pub fn owner(&self, at: &ListenerHost) -> Option<&PlaceOwner> {
        self.owners.get(at)
    }

    /// The hosts that have a server on any port.
    pub fn hosts(&self) -> impl Iterator<Item = &HostPattern> {
        self.by_host.keys()
    }

    /// Whether a host has a server on any port.
    pub fn is_served(&self, host: &HostPattern) -> bool {
        self.by_host.contains_key(host)
    }

    /// The routes that have a host which they have not written.
    pub fn covering(&self, host: &HostPattern) -> impl Iterator<Item = (&Age, Kind)> {
        let all = self.by_host.get(host).into_iter().flatten();
        let owners = all.filter_map(|at| self.owners.get(at));
        let routes = owners.filter(|owner| owner.kind.is_route() && !owner.is_by_name);
        routes.map(|owner| (&owner.age, owner.kind))
    }
}

impl Translator {
    /// Puts a host of listeners that was put together, or removes one.
    pub(super) fn put_listener_host(&mut self, at: &ListenerHost, merged: Option<Merged>) {
        let Merged { servers, policies, notes, owner } = merged.unwrap_or_default();
        let mut servers: BTreeMap<ListenerHost, Server> = servers.into_iter().collect();
        self.notes.set(Part::Listener(at.clone()), notes);
        let holder = PolicyHolder::Listener(at.clone());
        let bundles = policies.values().flat_map(|policies| policies.bundles()).cloned().collect();
        self.put_bundles(holder.clone(), bundles);
        self.put_policies(holder, policies);
        let one_label = ListenerHost::of_one_label(at.port, at.host.clone());
        let places = [Some(one_label).filter(|_| at.is_deep && at.address.is_none())];
        for at in places.into_iter().flatten().chain([at.clone()]) {
            let server = servers.remove(&at);
            self.places.set(&at, server.is_some(), owner.as_ref());
            let Patch { upsert, remove, .. } = &mut self.patch;
            let all = &mut self.snapshot.listener_servers;
            let (upserts, removals) = (&mut upsert.listener_servers, &mut remove.listener_servers);
            self.rules.set_listener(&at, all.get(&at), server.as_ref());
            put(all, upserts, removals, &at, server);
        }
    }

    /// Notes that the status of an object is another one, and says what it says.
    pub(super) fn put_status(&mut self, object: &ObjectRef, before: Option<&Wanted>) {
        let now = self.gateways.statuses.get(object);
        let mut notes = now.map(|now| gateway::notes(&now.content)).unwrap_or_default();
        notes.extend(self.gateways.losses.get(object).into_iter().flatten().cloned());
        let notes = notes.into_iter().map(|note| (object.clone(), note));
        self.notes.set(Part::Status(object.clone()), notes);
        if now != before {
            self.new_statuses.insert(object.clone(), now.cloned());
        }
    }

    /// A host that routes alone serve has a TLS policy that says nothing where one of a wildcard above it, or of the default
    /// host, would hold else: what an Ingress says about these is not about this host. Hosts of Ingresses have their own.
    pub(super) fn separate_tls(&mut self, hosts: &BTreeSet<HostPattern>) {
        let default = HostPattern::default_host();
        for host in hosts.iter().filter(|host| !self.snapshot.servers.contains_key(host)) {
            let has = |pattern: &HostPattern| {
                pattern != host
                    && self.snapshot.tls.contains_key(pattern)
                    && self.snapshot.servers.contains_key(pattern)
            };
            let is_served = *host != default && self.places.is_served(host);
            let is_below = has(&default) || host.wildcard_above().as_ref().is_some_and(has);
            let policy = (is_served && is_below).then(TlsPolicy::default);
            let Patch { upsert, remove, .. } = &mut self.patch;
            put(&mut self.snapshot.tls, &mut upsert.tls, &mut remove.tls, host, policy);
        }
    }
}
