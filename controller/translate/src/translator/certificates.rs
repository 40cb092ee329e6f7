//! The certificates of hosts.

use super::{Translator, put};
use crate::HostOwnership;
use crate::age::Age;
use crate::host::certificate;
use crate::host::owner::{self, Holder};
use crate::notes::Part;
use oxigress_core::model::{Certificate, CertificateId, HostPattern, Snapshot};
use oxigress_objects::verdict::Note;
use oxigress_objects::{Key, Kind, ObjectRef, World};
use std::collections::BTreeSet;
use std::sync::Arc;

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
        let held = self.hold(host);
        let choose = |owner| certificate::choose(world, &self.options, host, owner);
        let mut chosen = match &held.holder {
            Holder::Claims(view) => choose(&view.owner),
            Holder::Alias { source, .. } => {
                let mut chosen = choose(&self.view_of(source).owner);
                chosen.restrict_to_valid();
                chosen
            }
        };
        if chosen.certificate.is_none() {
            chosen.certificate = self.certificate_by_gateway(host, &held, &mut chosen.notes);
        }
        if chosen.certificate.is_none() && self.is_below_foreign_certificate(host, &held) {
            chosen.certificate = Some(certificate::none());
        }
        if *host == HostPattern::default_host() {
            let default = certificate::default_certificate(world, &self.options);
            let by_gateway = self.gateways.certificates.get(host);
            chosen.certificate = default.or_else(|| by_gateway.map(|(id, _)| id.clone()));
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
        held: &owner::Held<'_>,
        notes: &mut Vec<(ObjectRef, Note)>,
    ) -> Option<CertificateId> {
        let (id, gateway) = self.gateways.certificates.get(host)?;
        let is_shared = self.options.host_ownership == HostOwnership::Shared;
        let by = held.by.as_ref().filter(|_| held.kind == Kind::Ingress && !is_shared);
        match by.filter(|by| by.key.namespace != gateway.key.namespace) {
            None => Some(id.clone()),
            Some(by) => {
                let message = format!(
                    "host {host} belongs to namespace {}, whose Ingress {} is the oldest that names it, so the listener's \
                     certificate is not shown there: name it in spec.tls of that Ingress",
                    by.key.namespace, by.key
                );
                let object = ObjectRef::new(Kind::Gateway, gateway.key.clone());
                notes.push((object, Note::rejected(message)));
                None
            }
        }
    }

    /// A wildcard of another namespace has a certificate, and came later: its certificate must not replace the default
    /// one, nor turn the redirect to HTTPS on.
    pub(super) fn is_below_foreign_certificate(
        &self,
        host: &HostPattern,
        held: &owner::Held<'_>,
    ) -> bool {
        let Some((wildcard, by)) = host.wildcard_above().zip(held.by.as_ref()) else {
            return false;
        };
        // What is shown for a host of routes alone is its listener's.
        if !self.is_named(host) {
            return false;
        }
        let above = self.hold(&wildcard);
        let is_foreign = |other: &Age| {
            self.options.host_ownership != HostOwnership::Shared
                && other.key.namespace != by.key.namespace
                && other > by
        };
        let by_gateway = self.gateways.certificates.get(&wildcard);
        by_gateway.is_some_and(|(_, gateway)| is_foreign(gateway))
            || above.by.as_ref().is_some_and(is_foreign)
                && match &above.holder {
                    Holder::Claims(view) => view.owner.has_tls(),
                    Holder::Alias { source, .. } => self.view_of(source).owner.has_tls(),
                }
    }

    /// Adds the hosts that are served below the wildcards among `hosts`, whose certificates may be theirs.
    pub(super) fn add_hosts_below(&self, hosts: &mut BTreeSet<HostPattern>) {
        let is_changed = |wildcard| hosts.contains(&wildcard);
        if hosts.iter().any(HostPattern::is_wildcard) {
            // Also those that are not served, and have a certificate or would.
            let Snapshot { servers, names, .. } = &self.snapshot;
            let all = servers.keys().chain(names.keys()).chain(self.claimants.keys());
            let below = all.filter(|host| host.wildcard_above().is_some_and(is_changed));
            let below: Vec<_> = below.cloned().collect();
            hosts.extend(below);
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
