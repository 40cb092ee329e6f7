//! The certificates of hosts, and the listeners that show them.

use super::Notes;
use super::hosts::{self, Hosts};
use super::said::Said;
use oxigress_core::model::HostPattern;
use oxigress_objects::{Key, Name};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Most listeners of a Gateway, as the API has it, without the one of HTTP.
const MAX_LISTENERS: usize = 63;

/// What the Ingresses say in spec.tls.
#[derive(Default)]
pub struct Certificates<'w> {
    sections: BTreeMap<&'w Key, Sections>,
    /// The listeners that were asked for.
    found: BTreeMap<HostPattern, Option<Shown>>,
}

/// The sections of one Ingress.
#[derive(Default)]
struct Sections {
    by_host: BTreeMap<HostPattern, Key>,
    secrets: BTreeSet<Key>,
}

/// The listener that serves a host over TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// The host of the listener.
    pub host: HostPattern,
    /// Its Secret; the listener stands in the same namespace.
    pub secret: Key,
}

impl<'w> Certificates<'w> {
    /// Those of Ingresses.
    pub fn of(all: &[Said<'w>], notes: &mut Notes) -> Self {
        let mut certificates = Certificates::default();
        for said in all.iter().filter(|said| !said.is_canary) {
            for (place, tls) in said.ingress.tls.iter().enumerate() {
                if tls.secret.is_empty() || tls.hosts.is_empty() {
                    let what = if tls.hosts.is_empty() { "hosts" } else { "secretName" };
                    notes.lost(
                        said.key,
                        format!("spec.tls[{place}] has no {what}: a listener needs both, and shows no default certificate"),
                    );
                    continue;
                }
                let secret = Key::new(&said.key.namespace, tls.secret.as_str());
                let sections = certificates.sections.entry(said.key).or_default();
                for host in tls.hosts.iter().filter_map(|host| hosts::parse(host)) {
                    sections.by_host.entry(host).or_insert_with(|| secret.clone());
                }
                sections.secrets.insert(secret);
            }
        }
        certificates
    }

    /// The listener of a host: of the sections of its own Ingresses, those that name it come before those of the wildcard above
    /// it. Where they have none, the certificate of the wildcard's own Ingresses is shown.
    pub fn find(&mut self, hosts: &Hosts<'_>, host: &HostPattern) -> Option<Shown> {
        if let Some(found) = self.found.get(host) {
            return found.clone();
        }
        let found = self.own(hosts, host).or_else(|| {
            let above = host.wildcard_above()?;
            let shown = self.own(hosts, &above)?;
            let is_own = hosts.home(host) == hosts.home(&above);
            (is_own || hosts.of(host).inherits_certificate).then_some(shown)
        });
        self.found.insert(host.clone(), found.clone());
        found
    }

    /// As the Ingresses say whose settings hold for the host.
    fn own(&self, hosts: &Hosts<'_>, host: &HostPattern) -> Option<Shown> {
        let settled_by = &hosts.source(host).settled_by;
        let mut sections = settled_by.iter().filter_map(|by| self.sections.get(by));
        let shown = |secret: &Key| Shown { host: host.clone(), secret: secret.clone() };
        let above = host.wildcard_above();
        let named = sections.clone().find_map(|sections| {
            let star = above.as_ref().and_then(|above| sections.by_host.get(above));
            let own = sections.by_host.get(host);
            (own.is_some() || star.is_some()).then_some((own, star))
        });
        match (named, above) {
            (Some((Some(secret), _)), _) => Some(shown(secret)),
            // The wildcard's own listener shows the same.
            (Some((None, Some(secret))), Some(above)) => {
                let of_wildcard = self.own(hosts, &above).filter(|other| other.secret == *secret);
                Some(of_wildcard.unwrap_or_else(|| shown(secret)))
            }
            // Also a certificate that is valid for the host, and of a section that does not name it.
            _ => {
                let secret = hosts.of(host).secret.as_ref()?;
                let is_listed = sections.any(|sections| sections.secrets.contains(secret));
                is_listed.then(|| shown(secret))
            }
        }
    }

    /// Says which hosts of spec.tls have no listener by it.
    pub fn name_unused(&self, said: &Said<'w>, hosts: &Hosts<'_>, notes: &mut Notes) {
        let mut own = said.hosts();
        own.extend(said.aliases.iter().cloned());
        own.extend(own.iter().filter_map(hosts::counterpart).collect::<Vec<_>>());
        own.retain(|host| hosts.is_settled_by(host, said.key));
        own.extend(own.iter().filter_map(HostPattern::wildcard_above).collect::<Vec<_>>());
        for (place, tls) in said.ingress.tls.iter().enumerate() {
            let all = tls.hosts.iter().filter_map(|host| hosts::parse(host));
            for host in all.filter(|host| !own.contains(host)) {
                let whose = hosts.whose(&host, &said.key.namespace);
                let why = whose.unwrap_or_else(|| format!("no host of this Ingress is {host}"));
                notes.lost(said.key, format!("spec.tls[{place}]: no listener: {why}"));
            }
        }
    }
}

/// A listener over TLS: name, host and Secret.
pub type Https<'l> = (String, &'l HostPattern, &'l Key);

/// The listeners of one namespace.
#[derive(Default)]
pub struct Listeners {
    all: Vec<(HostPattern, Key)>,
    places: BTreeMap<HostPattern, usize>,
    /// The other namespaces whose routes attach to listeners, by the listener's name.
    guests: BTreeMap<String, BTreeSet<Name>>,
}

impl Listeners {
    /// The Gateway and the section of the listener of a host; `gateway` is the name of the first one.
    pub fn section(&mut self, gateway: &str, shown: Shown) -> (String, String) {
        let next = self.all.len();
        let place = *self.places.entry(shown.host.clone()).or_insert(next);
        if place == next {
            self.all.push((shown.host, shown.secret));
        }
        (name_of(gateway, place / MAX_LISTENERS), format!("https-{}", place + 1))
    }

    /// Lets routes of another namespace attach to a listener.
    pub fn admit(&mut self, section: &str, guest: &Name) {
        self.guests.entry(section.into()).or_default().insert(guest.clone());
    }

    /// The Gateways, each with its listeners over TLS.
    pub fn by_gateway(&self, gateway: &str) -> Vec<(String, Vec<Https<'_>>)> {
        let mut all = vec![(name_of(gateway, 0), Vec::new())];
        for (place, (host, secret)) in self.all.iter().enumerate() {
            let number = place / MAX_LISTENERS;
            if all.len() <= number {
                all.push((name_of(gateway, number), Vec::new()));
            }
            if let Some((_, listeners)) = all.last_mut() {
                listeners.push((format!("https-{}", place + 1), host, secret));
            }
        }
        all
    }

    /// Adds to a listener of `namespace` which namespaces' routes may attach, where others may.
    pub fn with_guests(&self, mut listener: Value, namespace: &Name) -> Value {
        let name = listener["name"].as_str().unwrap_or_default();
        if let Some(guests) = self.guests.get(name) {
            let all: BTreeSet<&str> =
                guests.iter().chain([namespace]).map(|name| name.as_str()).collect();
            let label = "kubernetes.io/metadata.name";
            let expression = json!({"key": label, "operator": "In", "values": all});
            let selector = json!({"matchExpressions": [expression]});
            listener["allowedRoutes"] =
                json!({"namespaces": {"from": "Selector", "selector": selector}});
        }
        listener
    }
}

fn name_of(gateway: &str, number: usize) -> String {
    match number {
        0 => gateway.into(),
        number => format!("{gateway}-{}", number + 1),
    }
}
