//! The hosts that are written in what is not in force, or may not be ([`crate::review`]).

use super::Translator;
use crate::pace::{created, hosts_of};
use oxigress_core::model::HostPattern;
use oxigress_objects::{Changed, Kind, ObjectRef, World};

impl Translator {
    /// Whether a host has an owner of another namespace. Who names it then, in what is not in force, keeps it from nobody: neither
    /// from its owner, who may make the object again, nor from who has it after that.
    pub(crate) fn is_of_others(&self, id: &ObjectRef, host: &HostPattern) -> bool {
        self.owner_of(host).is_some_and(|(owner, _)| owner.namespace != id.key.namespace)
    }

    /// Takes note of the hosts that routes name, and ListenerSets that are stored and not in force, and of other names of the hosts
    /// of Ingresses. Whose hosts are is decided by now.
    pub(super) fn note_written(&mut self, world: &World, changed: &Changed) {
        for id in changed.gateway_api.iter() {
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
        for (id, (made, mut hosts)) in std::mem::take(&mut self.writing) {
            if id.kind != Kind::ListenerSet {
                hosts.retain(|host| self.written.names(&id, host) || !self.is_of_others(&id, host));
            }
            self.written.set(&id, made, hosts);
        }
    }
}
