//! The hosts that objects name whose changes wait. The webhook looks at these too: else somebody is admitted for a host
//! meanwhile, and loses it as soon as the older object is taken over.

use super::{Pace, Payer};
use crate::Translator;
use crate::age::Age;
use crate::host::owner::HostOwnership;
use crate::relation::Relation;
use oxigress_core::model::{HostPattern, shorten};
use oxigress_objects::gateway::Listener;
use oxigress_objects::{Object, ObjectRef};
use std::collections::BTreeSet;

/// The objects that wait, and the hosts in them.
pub(super) type Named = Relation<ObjectRef, HostPattern>;

/// The hosts that an object names.
pub(super) fn hosts_of(object: Option<&Object>) -> BTreeSet<HostPattern> {
    let of_listeners =
        |all: &[Listener]| parsed(all.iter().filter_map(|one| one.hostname.as_deref()));
    match object {
        Some(Object::Ingress(ingress)) => parsed(ingress.rules.iter().map(|rule| &*rule.host)),
        Some(Object::Route(route)) => parsed(route.spec.hostnames.iter().map(String::as_str)),
        Some(Object::Gateway(gateway)) => of_listeners(&gateway.spec.listeners),
        Some(Object::ListenerSet(set)) => of_listeners(&set.spec.listeners),
        _ => BTreeSet::new(),
    }
}

fn parsed<'h>(hosts: impl Iterator<Item = &'h str>) -> BTreeSet<HostPattern> {
    hosts.filter_map(|host| HostPattern::parse(host).ok()).collect()
}

fn created(object: &Object) -> Option<i64> {
    match object {
        Object::Ingress(ingress) => Some(ingress.created),
        Object::Route(route) => Some(route.meta.created),
        Object::Gateway(gateway) => Some(gateway.meta.created),
        Object::ListenerSet(set) => Some(set.meta.created),
        _ => None,
    }
}

impl Pace {
    /// Why an object may not have its hosts yet: an older one of another namespace that waits names one that nobody has.
    pub fn denial(
        &self,
        translator: &Translator,
        id: &ObjectRef,
        object: &Object,
    ) -> Option<String> {
        if translator.options.host_ownership == HostOwnership::Shared {
            return None;
        }
        let age = Age { created: created(object)?, key: id.key.clone() };
        let older = |other: &&ObjectRef| {
            self.created(other)
                .is_some_and(|created| Age { created, key: other.key.clone() }.takes_from(&age))
        };
        let hosts = hosts_of(Some(object));
        let mut free = hosts.iter().filter(|host| translator.owner_of(host).is_none());
        free.find_map(|host| {
            let other = self.named.by(host).find(older)?;
            Some(format!(
                "host {:?} is named by {other} too, which is older and waits for its namespace's share of time: try again \
                 when it is served, or use another host",
                shorten(host.as_str())
            ))
        })
    }

    fn created(&self, id: &ObjectRef) -> Option<i64> {
        let share = self.shares.get(&Payer::of(id))?;
        created(share.order.get(share.numbers.get(id)?)?.object.as_ref()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;
    use crate::pace::price::Prices;
    use oxigress_objects::ingress::{Ingress, Rule};
    use oxigress_objects::{Key, Kind, World};
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    fn ingress(namespace: &str, created: i64, host: &str) -> (ObjectRef, Object) {
        let rule = Rule { host: host.into(), paths: Vec::new() };
        let mut ingress = Ingress { created, rules: vec![rule], ..Ingress::default() };
        ingress.annotations.insert("kubernetes.io/ingress.class".into(), "nginx".into());
        let id = ObjectRef::new(Kind::Ingress, Key::new(namespace, "i"));
        (id, Object::Ingress(Arc::new(ingress)))
    }

    #[test]
    fn a_host_that_an_older_object_names_which_waits_is_nobody_s_yet() {
        let (world, translator) = (World::default(), Translator::new(Options::default()));
        let (mut pace, now) = (Pace::default(), Instant::now());
        // Nothing is left of the share of the namespace.
        let spent = Payer { namespace: "evil".into(), is_for_endpoints: false };
        pace.share(&spent, now).bucket.owe(2_000_000_000, now);
        let prices = Prices { translator: &translator, world: &world };
        let (id, waiting) = ingress("evil", 5, "pay.test");
        assert!(pace.admit((id.clone(), Some(waiting)), &prices, now).is_none());
        let denial =
            |pace: &Pace, (id, object): (ObjectRef, Object)| pace.denial(&translator, &id, &object);
        let why = denial(&pace, ingress("shop", 9, "pay.test")).unwrap();
        assert!(why.contains("Ingress evil/i"), "{why}");
        for other in [
            ingress("shop", 9, "other.test"),
            ingress("shop", 1, "pay.test"),
            ingress("evil", 9, "pay.test"),
        ] {
            assert_eq!(denial(&pace, other), None);
        }
        // It names another host now, and then it is taken over.
        pace.admit(ingress_of(&id, "else.test"), &prices, now);
        assert_eq!(denial(&pace, ingress("shop", 9, "pay.test")), None);
        assert!(denial(&pace, ingress("shop", 9, "else.test")).is_some());
        assert_eq!(pace.due(&prices, now + Duration::from_mins(2)).len(), 1);
        assert_eq!(denial(&pace, ingress("shop", 9, "else.test")), None);
    }

    fn ingress_of(id: &ObjectRef, host: &str) -> oxigress_objects::Seen {
        let (_, object) = ingress(&id.key.namespace, 5, host);
        (id.clone(), Some(object))
    }
}
