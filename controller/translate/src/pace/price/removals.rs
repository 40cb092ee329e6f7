//! What removing an object costs: what is read and merged again for it.

use super::{HOST, INGRESS, Price, Prices};
use oxigress_objects::gateway::Listener;
use oxigress_objects::{Object, ObjectRef};
use std::collections::BTreeSet;

impl Prices<'_> {
    /// What removing an object costs, as when it changes, but no endpoints, since those that go are not read. An Ingress is not
    /// read, and its hosts are merged again.
    pub fn of_removal(&self, id: &ObjectRef) -> Price {
        let old = self.world.object(id);
        // Nothing is read or merged again for what is beyond a limit of its namespace.
        let is_beyond = self.world.gateway_api.is_beyond(id);
        let Some(old) = old.filter(|old| !is_beyond && !self.is_without_price(id, old)) else {
            return Price::default();
        };
        let listeners_gone =
            |old: &[Listener]| Price::own(self.price_of_listeners(id, false, (Some(old), &[])));
        match &old {
            Object::Ingress(old) if self.translator.claims.contains_key(&id.key) => {
                let hosts = self.translator.hosts_named_by(&id.key, old);
                let chosen = hosts.len() + self.translator.hosts_below(hosts.iter());
                let own = INGRESS + HOST * chosen as u64;
                self.with_turned(&id.key, None, hosts, own)
            }
            Object::Ingress(_) => self.with_turned(&id.key, None, BTreeSet::new(), INGRESS),
            // What is under the hosts of their listeners is merged again.
            Object::Gateway(old) => listeners_gone(&old.spec.listeners),
            Object::ListenerSet(old) => listeners_gone(&old.spec.listeners),
            Object::Service(_) => {
                let Price { own, of_guests } = self.of_reading(id, &old);
                Price { own: own.saturating_sub(self.of_endpoints(&id.key)), of_guests }
            }
            _ => self.of_reading(id, &old),
        }
    }
}
