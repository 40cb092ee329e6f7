//! The certificates of hosts, and the listeners that show them.

use super::Notes;
use super::said::Said;
use oxigress_objects::Key;
use std::collections::BTreeMap;

/// Most listeners of a Gateway, as the API has it, without the one of HTTP.
const MAX_LISTENERS: usize = 63;

/// The Secret of each host that an entry of spec.tls names, the oldest Ingress's.
#[derive(Default)]
pub struct Certificates(BTreeMap<String, Key>);

impl Certificates {
    /// Those of Ingresses, the oldest first.
    pub fn of(all: &[Said<'_>], notes: &mut Notes) -> Self {
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
                for host in &tls.hosts {
                    let secret = Key::new(&said.key.namespace, tls.secret.as_str());
                    certificates.0.entry(host.to_ascii_lowercase()).or_insert(secret);
                }
            }
        }
        certificates
    }

    /// The host of the listener that serves a host over TLS, and its Secret.
    pub fn find(&self, host: &str) -> Option<(&str, &Key)> {
        let above = host.split_once('.').map(|(_, parent)| format!("*.{parent}"));
        let found = self.0.get_key_value(host);
        let found = found.or_else(|| self.0.get_key_value(&above?));
        found.map(|(host, secret)| (host.as_str(), secret))
    }
}

/// A listener over TLS: name, host and Secret.
pub type Https<'l> = (String, &'l str, &'l Key);

/// The listeners over TLS of one namespace.
#[derive(Default)]
pub struct Listeners {
    all: Vec<(String, Key)>,
}

impl Listeners {
    /// The Gateway and the section of the listener of a host; `gateway` is the name of the first one.
    pub fn section(&mut self, gateway: &str, host: &str, secret: &Key) -> (String, String) {
        let found = self.all.iter().position(|(known, _)| known == host);
        let place = found.unwrap_or_else(|| {
            self.all.push((host.into(), secret.clone()));
            self.all.len() - 1
        });
        (name_of(gateway, place / MAX_LISTENERS), format!("https-{}", place + 1))
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
                listeners.push((format!("https-{}", place + 1), host.as_str(), secret));
            }
        }
        all
    }
}

fn name_of(gateway: &str, number: usize) -> String {
    match number {
        0 => gateway.into(),
        number => format!("{gateway}-{}", number + 1),
    }
}
