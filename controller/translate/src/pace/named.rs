//! The hosts that objects name whose changes wait.

use super::{Pace, Payer};
use crate::Translator;
use crate::ingress::hosts_to_have;
use crate::relation::Relation;
use oxigress_core::model::HostPattern;
use oxigress_objects::gateway::Listener;
use oxigress_objects::{Object, ObjectRef, World};
use std::collections::BTreeSet;

/// The objects that wait, and the hosts in them.
pub(super) type Named = Relation<ObjectRef, HostPattern>;

/// The hosts that an object names, an Ingress also as other names of its hosts. A canary's are others'.
pub fn hosts_of(
    translator: &Translator,
    world: &World,
    (id, object): (&ObjectRef, Option<&Object>),
) -> BTreeSet<HostPattern> {
    let of_listeners =
        |all: &[Listener]| parsed(all.iter().filter_map(|one| one.hostname.as_deref()));
    match object {
        Some(Object::Ingress(ingress)) => {
            let Translator { options, settings, .. } = translator;
            hosts_to_have(world, options, settings, (&id.key, ingress))
        }
        Some(Object::Route(route)) => parsed(route.spec.hostnames.iter().map(String::as_str)),
        Some(Object::Gateway(gateway)) => of_listeners(&gateway.spec.listeners),
        Some(Object::ListenerSet(set)) => of_listeners(&set.spec.listeners),
        _ => BTreeSet::new(),
    }
}

fn parsed<'h>(hosts: impl Iterator<Item = &'h str>) -> BTreeSet<HostPattern> {
    hosts.filter_map(|host| HostPattern::parse(host).ok()).collect()
}

/// When the object was made that names hosts, in seconds since 1970; `None`: it names none.
pub fn created(object: &Object) -> Option<i64> {
    match object {
        Object::Ingress(ingress) => Some(ingress.created),
        Object::Route(route) => Some(route.meta.created),
        Object::Gateway(gateway) => Some(gateway.meta.created),
        Object::ListenerSet(set) => Some(set.meta.created),
        _ => None,
    }
}

impl Pace {
    /// The objects that name a host and wait, as they are to be.
    pub(crate) fn waiting_for(
        &self,
        host: &HostPattern,
    ) -> impl Iterator<Item = (&ObjectRef, &Object)> {
        self.named.by(host).filter_map(|id| {
            let share = self.shares.get(&Payer::of(id))?;
            Some((id, share.order.get(share.numbers.get(id)?)?.object.as_ref()?))
        })
    }
}
