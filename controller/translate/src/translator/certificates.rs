//! The certificates of hosts.

use super::{Translator, put};
use crate::HostOwnership;
use crate::claim::age::Age;
use crate::gateway::Shown;
use crate::host::certificate;
use crate::host::owner::{OwnerDecision, ServedFrom};
use crate::translator::notes::Part;
use oxigress_core::model::{Certificate, CertificateId, HostPattern};
use oxigress_objects::verdict::Note;
use oxigress_objects::{Key, Kind, ObjectRef, World};
use std::collections::BTreeSet;
use std::sync::Arc;

#[cfg(test)]
thread_local! {
    /// How many hosts have chosen their certificates.
    static CHOICES: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Who shows a certificate for a wildcard: what the certificates of hosts below it depend on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CertificateAbove {
    by_gateway: Option<Age>,
    by_ingress: Option<Age>,
}

impl CertificateAbove {
    /// Whether an object of this age shows one.
    pub(crate) fn is_by(&self, age: &Age) -> bool {
        [&self.by_gateway, &self.by_ingress].into_iter().flatten().any(|by| by == age)
    }
}

impl Translator {
    pub(super) fn is_default_touched(&self, secrets: &BTreeSet<Key>) -> bool {
        self.options.default_ssl_certificate.as_ref().is_some_and(|key| secrets.contains(key))
    }

    pub(super) fn choose_certificate(
        &mut self,
        world: &World,
        host: &HostPattern,
        secrets: &mut BTreeSet<Key>,
        certificates: &mut BTreeSet<CertificateId>,
    ) {
        #[cfg(test)]
        CHOICES.set(CHOICES.get() + 1);
        self.note_below(host);
        let decided = self.decide_owner(host);
        let choose = |owner| certificate::choose(world, &self.options, host, owner);
        let mut chosen = match &decided.served_from {
            ServedFrom::Claims(view) => choose(&view.owner),
            ServedFrom::Alias { source, .. } => {
                let mut chosen = choose(&self.view_of(source).owner);
                chosen.restrict_to_valid();
                chosen
            }
        };
        if chosen.certificate.is_none() {
            chosen.certificate = self.certificate_by_gateway(host, &decided, &mut chosen.notes);
        }
        if chosen.certificate.is_none() && self.is_below_foreign_certificate(host, &decided) {
            chosen.certificate = Some(certificate::none());
        }
        if *host == HostPattern::default_host() {
            let default = certificate::default_certificate(world, &self.options);
            let by_gateway = self.gateways.certificates.get(host);
            chosen.certificate = default.or_else(|| by_gateway.map(|shown| shown.id.clone()));
        }
        self.notes.set(Part::Tls(host.clone()), chosen.notes);
        let different = self.secrets.set(host, chosen.secrets);
        secrets.extend(different.into_iter().map(Arc::unwrap_or_clone));
        let name = chosen.certificate;
        let different = self.names.set(host, name.iter().cloned().collect());
        certificates.extend(different.into_iter().map(Arc::unwrap_or_clone));
        let (upsert, remove) = (&mut self.patch.upsert.names, &mut self.patch.remove.names);
        put(&mut self.snapshot.names, upsert, remove, host, name);
    }

    /// The certificate that a Gateway shows for a host. Where the host is an Ingress's, only Gateways of its namespace set it:
    /// the certificate of a host turns the redirect to HTTPS on.
    fn certificate_by_gateway(
        &self,
        host: &HostPattern,
        decided: &OwnerDecision<'_>,
        notes: &mut Vec<(ObjectRef, Note)>,
    ) -> Option<CertificateId> {
        let Shown { id, age, kind } = self.gateways.certificates.get(host)?;
        let is_shared = self.options.host_ownership == HostOwnership::Shared;
        let by = decided.by.as_ref().filter(|_| decided.kind == Kind::Ingress && !is_shared);
        match by.filter(|by| by.key.namespace != age.key.namespace) {
            None => Some(id.clone()),
            Some(by) => {
                let message = format!(
                    "host {host} belongs to namespace {}, whose Ingress {} is the oldest that names it, so the listener's \
                     certificate is not shown there: name it in spec.tls of that Ingress",
                    by.key.namespace, by.key
                );
                let object = ObjectRef::new(*kind, age.key.clone());
                notes.push((object, Note::rejected(message)));
                None
            }
        }
    }

    /// A wildcard of another namespace has a certificate, and came later: its certificate must not replace the default
    /// one, nor turn the redirect to HTTPS on.
    fn is_below_foreign_certificate(
        &self,
        host: &HostPattern,
        decided: &OwnerDecision<'_>,
    ) -> bool {
        let Some(wildcard) = host.wildcard_above() else { return false };
        let Some(above) = self.above.get(&wildcard) else { return false };
        let is_foreign = |by: &Age, other: &Age| {
            self.options.host_ownership != HostOwnership::Shared && by.takes_from(other)
        };
        let all = [&above.by_gateway, &above.by_ingress];
        match (self.route_alone(host), &decided.by) {
            // What a listener shows for a host of routes alone is asked before.
            (Some(by), _) => above.by_ingress.iter().any(|other| is_foreign(by, other)),
            (None, Some(by)) if self.is_named(host) => {
                all.into_iter().flatten().any(|other| is_foreign(by, other))
            }
            _ => false,
        }
    }

    /// Looks who shows certificates for the wildcards among `hosts`, and adds the hosts below those for which that is somebody else
    /// than before: their own certificates depend on it. Adds those that routes alone name newly.
    pub(super) fn add_hosts_below(&mut self, hosts: &mut BTreeSet<HostPattern>) {
        hosts.extend(std::mem::take(&mut self.named_anew));
        let wildcards: Vec<_> = hosts.iter().filter(|host| host.is_wildcard()).cloned().collect();
        for wildcard in wildcards {
            let now = self.certificate_above(&wildcard);
            if self.above.get(&wildcard) != now.as_ref() {
                hosts.extend(self.below.get(&wildcard).into_iter().flatten().cloned());
                match now {
                    Some(now) => drop(self.above.insert(wildcard, now)),
                    None => drop(self.above.remove(&wildcard)),
                }
            }
        }
    }

    fn certificate_above(&self, wildcard: &HostPattern) -> Option<CertificateAbove> {
        let decided = self.decide_owner(wildcard);
        let has_tls = || match &decided.served_from {
            ServedFrom::Claims(view) => view.owner.has_tls(),
            ServedFrom::Alias { source, .. } => self.view_of(source).owner.has_tls(),
        };
        let by_gateway = self.gateways.certificates.get(wildcard);
        let by_gateway = by_gateway.map(|shown| shown.age.clone());
        let by_ingress = has_tls().then(|| oldest_ingress(&decided)).flatten();
        let is_there = by_gateway.is_some() || by_ingress.is_some();
        is_there.then_some(CertificateAbove { by_gateway, by_ingress })
    }

    /// Notes whether a host below a wildcard is one of an Ingress or of a route.
    fn note_below(&mut self, host: &HostPattern) {
        let Some(wildcard) = host.wildcard_above() else { return };
        if self.is_named(host) || self.route_alone(host).is_some() {
            self.below.entry(wildcard).or_default().insert(host.clone());
        } else if let Some(all) = self.below.get_mut(&wildcard) {
            all.remove(host);
            if all.is_empty() {
                self.below.remove(&wildcard);
            }
        }
    }

    pub(super) fn put_certificate(&mut self, world: &World, id: CertificateId) {
        let pair = self.names.has(&id).then(|| certificate::secret_behind(&id)).flatten();
        let pair = pair.and_then(|key| world.secrets.get(&key)?.last_good.as_ref());
        let certificate =
            pair.map(|pair| Certificate { chain: pair.chain.clone(), key: pair.key.clone() });
        let upsert = &mut self.patch.upsert.certificates;
        let remove = &mut self.patch.remove.certificates;
        put(&mut self.snapshot.certificates, upsert, remove, &id, certificate);
    }

    pub(super) fn review_secret(&mut self, world: &World, key: Key) {
        let is_default = self.options.default_ssl_certificate.as_ref() == Some(&key);
        let is_named = is_default || self.secrets.has(&key);
        let notes =
            if is_named { certificate::notes_on(world, &key, is_default) } else { Vec::new() };
        self.notes.set(Part::Secret(key), notes);
    }
}

/// The age of what Ingresses say about a host. A route that names it says nothing of that, and its age counts for none.
pub(super) fn oldest_ingress(decided: &OwnerDecision<'_>) -> Option<Age> {
    match (&decided.served_from, decided.kind) {
        (ServedFrom::Claims(view), kind) if kind != Kind::Ingress => {
            view.owner.first().map(|first| first.age())
        }
        _ => decided.by.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests;
    use oxigress_objects::Changed;
    use std::fmt::Write;

    /// An Ingress of namespace `n` on a wildcard.
    fn wildcard(path: &str, has_tls: bool) -> String {
        let tls = if has_tls { "[{ secretName: s }]" } else { "[]" };
        ingress("w", "n", "'*.test'", path, tls)
    }

    fn ingress(name: &str, namespace: &str, host: &str, path: &str, tls: &str) -> String {
        format!(
            "---\napiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata:\n  name: {name}\n  namespace: {namespace}\n  \
             annotations: {{ kubernetes.io/ingress.class: nginx }}\nspec:\n  tls: {tls}\n  rules:\n  - host: {host}\n    \
             http: {{ paths: [{{ path: {path}, pathType: Prefix, backend: {{ service: {{ name: s, port: {{ number: 80 }} }} }} }}] }}\n"
        )
    }

    #[test]
    fn hosts_below_a_wildcard_choose_again_only_where_somebody_else_shows_a_certificate() {
        let mut below = String::new();
        for number in 0..100 {
            let host = format!("h{number}.test");
            below.write_str(&ingress(&format!("i{number}"), "m", &host, "/", "[]")).unwrap();
        }
        let mut world = tests::world(&(below + &wildcard("/", true)));
        let mut translator = Translator::new(crate::Options::default());
        let key = Key::new("n", "w");
        let mut changed =
            Changed { ingresses: world.ingresses.keys().cloned().collect(), ..Changed::default() };
        let mut choices = |world: &World| {
            CHOICES.set(0);
            translator.update(world, &changed);
            changed.ingresses = [key.clone()].into();
            CHOICES.get()
        };
        assert!(choices(&world) > 100);
        for (path, has_tls, expected) in
            [("/x", true, 1), ("/x", false, 101), ("/y", false, 1), ("/y", true, 101)]
        {
            let new = tests::world(&wildcard(path, has_tls));
            world.ingresses.extend(new.ingresses);
            assert_eq!(choices(&world), expected, "{path} {has_tls}");
        }
    }
}
