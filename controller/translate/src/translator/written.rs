//! The hosts that are written in what is not in force, or may not be ([`crate::review`]).
//!
//! Shape:   a name that is written while another namespace has the host is parked: it is kept from nobody, until its own namespace
//!          has the host.

use super::Translator;
use crate::pace::{Named, created, hosts_of};
use oxigress_core::model::HostPattern;
use oxigress_objects::{Changed, Kind, ObjectRef, World};
use std::collections::{BTreeMap, BTreeSet};

impl Translator {
    /// Whether another namespace has a host that an object names. A listener leaves its host to who names it, but to another
    /// listener.
    fn is_of_others(&self, id: &ObjectRef, host: &HostPattern) -> bool {
        let owner = match id.kind {
            Kind::Gateway => self.owner_of(host).map(|(owner, _)| &owner.namespace),
            _ => self.namespace_with(host),
        };
        owner.is_some_and(|owner| *owner != id.key.namespace)
    }

    /// Whether a name that an object writes, which was made then, is kept from nobody. One that is `parked` already stays so while
    /// nobody has the host: its owner makes its object again, perhaps.
    pub(crate) fn parks(
        &self,
        id: &ObjectRef,
        made: i64,
        host: &HostPattern,
        parked: &Named,
    ) -> bool {
        let is_parked =
            || [parked, &self.parked].into_iter().any(|all| all.names_since(id, made, host));
        id.kind != Kind::ListenerSet
            && (self.is_of_others(id, host) || self.namespace_with(host).is_none() && is_parked())
    }

    /// Whether an object has written a host before.
    pub(crate) fn has_named(&self, id: &ObjectRef, host: &HostPattern) -> bool {
        self.written.names(id, host) || self.parked.names(id, host)
    }

    /// Takes note of the hosts that routes name, and ListenerSets that are stored and not in force, and of other names of the hosts
    /// of Ingresses. `hosts`: those that may have another owner beside those that routes and listeners name, which is decided by now.
    pub(super) fn note_written(
        &mut self,
        world: &World,
        changed: &Changed,
        hosts: &BTreeSet<HostPattern>,
    ) {
        for id in &changed.gateway_api {
            let is_noted = match id.kind {
                Kind::ListenerSet => world.gateway_api.is_beyond(id),
                kind if kind.is_route() => true,
                _ => continue,
            };
            let object = is_noted.then(|| world.object(id)).flatten();
            let hosts = hosts_of(self, world, (id, object.as_ref()));
            let made = object.as_ref().and_then(created).unwrap_or_default();
            self.writing.insert(id.clone(), (made, hosts));
        }
        for (id, (made, mut kept)) in std::mem::take(&mut self.writing) {
            let is_parked = |host: &HostPattern| self.parks(&id, made, host, &self.parked);
            let parked: BTreeSet<_> = kept.extract_if(.., |host| is_parked(host)).collect();
            self.written.set(&id, made, kept);
            self.parked.set(&id, made, parked);
        }
        let claimed = std::mem::take(&mut self.claimed);
        self.keep_names_of_owners(hosts.iter().chain(&claimed));
    }

    /// What an owner has written before it had the host is kept from now on.
    fn keep_names_of_owners<'h>(&mut self, hosts: impl Iterator<Item = &'h HostPattern>) {
        let mut of_owners: BTreeMap<ObjectRef, BTreeSet<HostPattern>> = BTreeMap::new();
        for host in hosts.filter(|host| self.parked.has(host)) {
            let Some(owner) = self.namespace_with(host) else { continue };
            for id in self.parked.of_namespace(owner, host) {
                of_owners.entry(id).or_default().insert(host.clone());
            }
        }
        for (id, hosts) in of_owners {
            if let Some(created) = self.parked.remove(&id, &hosts) {
                self.written.add(&id, created, hosts);
            }
        }
    }
}
