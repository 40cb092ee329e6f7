//! Which of the differences that the table of annotations knows concern an Ingress among the others.
//!
//! A difference that only an invalid value shows has a note of its own; what is left depends on other Ingresses.

use super::assume::services_of;
use oxigress_objects::ingress::Ingress;
use oxigress_objects::{Key, World};
use oxigress_translate::annotation::table::{self, Group, Status};
use std::collections::{BTreeMap, BTreeSet};

/// Annotations whose regular expressions hold for a whole host in ingress-nginx.
const OF_HOST: [&str; 2] = ["rewrite-target", "use-regex"];

/// Who shares hosts and Services with whom.
#[derive(Default)]
pub struct Shared<'w> {
    hosts: BTreeMap<&'w str, BTreeSet<&'w Key>>,
    services: BTreeMap<Key, BTreeSet<&'w Key>>,
}

impl<'w> Shared<'w> {
    /// Finds the hosts and Services that several of these Ingresses have.
    pub fn among(ingresses: impl Iterator<Item = (&'w Key, &'w Ingress)>) -> Self {
        let mut shared = Shared::default();
        for (key, ingress) in ingresses {
            for rule in &ingress.rules {
                shared.hosts.entry(&rule.host).or_default().insert(key);
            }
            for service in services_of(key, ingress) {
                shared.services.entry(service).or_default().insert(key);
            }
        }
        shared
    }

    /// What is different about an Ingress's annotations; `prefix` begins their names.
    pub fn differences(
        &self,
        world: &World,
        (key, ingress): (&Key, &Ingress),
        prefix: &str,
    ) -> Vec<String> {
        let mut all = Vec::new();
        for name in names(ingress, prefix) {
            let Some(table::Row { status: Status::Different(how), group, .. }) = table::find(name)
            else {
                continue;
            };
            let others: Vec<&Key> = match group {
                _ if OF_HOST.contains(&name) => self.on_hosts_of(key, ingress).collect(),
                Group::Balancing => self.on_services_of(key, ingress).collect(),
                _ => continue,
            };
            // Where the others say the same, nothing is different.
            let value =
                |ingress: &Ingress| ingress.annotations.get(&format!("{prefix}/{name}")).cloned();
            let own = value(ingress);
            let differs =
                |other: &&Key| world.ingresses.get(*other).is_some_and(|other| value(other) != own);
            if let Some(other) = others.into_iter().find(differs) {
                all.push(format!(
                    "annotation {name}: {how}; Ingress {other} says otherwise: compare both"
                ));
            }
        }
        all
    }

    fn on_hosts_of(&self, key: &Key, ingress: &Ingress) -> impl Iterator<Item = &'w Key> {
        let hosts = ingress.rules.iter().filter_map(|rule| self.hosts.get(rule.host.as_str()));
        hosts.flatten().copied().filter(move |other| *other != key)
    }

    fn on_services_of(&self, key: &Key, ingress: &Ingress) -> impl Iterator<Item = &'w Key> {
        let services = services_of(key, ingress);
        let services = services.into_iter().filter_map(|service| self.services.get(&service));
        services.flatten().copied().filter(move |other| *other != key)
    }
}

fn names<'i>(ingress: &'i Ingress, prefix: &str) -> impl Iterator<Item = &'i str> {
    ingress.annotations.keys().filter_map(move |key| key.strip_prefix(prefix)?.strip_prefix('/'))
}
