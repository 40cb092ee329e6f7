//! What the claims on a host come to for TLS: toward clients, toward endpoints, and passed through.

use super::{Merge, Winner, root};
use crate::Options;
use crate::annotation::ClientTls;
use crate::claim::age::Age;
use crate::host::owner::{GatewayClaim, HostView};
use crate::host::upstream_tls::{HostUpstreamTls, PathUpstreamTls};
use oxigress_core::model::HostPattern;
use oxigress_core::model::policy::TlsPolicy;
use oxigress_objects::verdict::Note;
use oxigress_objects::{Kind, ObjectRef};
use std::collections::BTreeSet;

/// The namespace whose Ingresses alone may say how TLS is spoken with clients that name no known host: the operator's, if there
/// is a default certificate, or else that of a route without host names that is older than all of them.
pub(super) fn unnamed_owner<'a>(
    view: &HostView<'_>,
    options: &'a Options,
    unnamed_route: Option<&'a GatewayClaim>,
) -> Option<&'a str> {
    let operator = options.default_ssl_certificate.as_ref().map(|key| key.namespace.as_str());
    let oldest = view.mains.first().map(|by| by.age());
    let oldest = oldest.as_ref().map(Age::borrowed);
    let by_route = unnamed_route.filter(|claim| claim.is_older(options.host_ownership, oldest));
    operator.or(by_route.map(|claim| claim.age.key.namespace.as_str()))
}

impl<'a> Merge<'a> {
    /// The default host's settings would decide about every handshake without a known name, also those of clients who
    /// then ask for a host that has Ingresses.
    pub(super) fn refuse_tls_of_unnamed(&mut self, operator: &str) {
        for (by, settings) in self.view.owner.settings() {
            let ClientTls { ciphers, prefers_server_ciphers, client } = &settings.client_tls;
            let is_other = ciphers.is_some() || prefers_server_ciphers.is_some();
            let consequence = match (client, is_other) {
                (Some(_), _) => "its locations answer 503",
                (None, true) => "they are ignored",
                (None, false) => continue,
            };
            let message = format!(
                "annotations ssl-ciphers, ssl-prefer-server-ciphers, auth-tls-*: on rules without a host they would apply to \
                 every client without SNI, so only namespace {operator}, which has the default certificate or the oldest route \
                 without host names, may set them; \
                 {consequence}: name a host"
            );
            self.refuse(by, message);
        }
    }

    /// proxy-ssl-* of the oldest Ingress of a namespace hold for its other paths that are spoken to over TLS.
    pub(super) fn share_upstream_tls(&mut self) {
        if self.settings.proxy_ssl_location_only {
            return;
        }
        let mut shared = HostUpstreamTls::of(&self.view.mains);
        if shared.is_empty() {
            return;
        }
        let mut told = BTreeSet::new();
        for winner in self.winners.values_mut() {
            if winner.backend_ref.is_none() || winner.closer.is_some() {
                continue;
            }
            let note = match shared.for_path(winner.by, &winner.policies) {
                PathUpstreamTls::Override => continue,
                PathUpstreamTls::Shared(policies) => {
                    winner.policies = policies;
                    continue;
                }
                PathUpstreamTls::Lost(other) => {
                    winner.closer = Some(winner.by);
                    let cause = Some(ObjectRef::new(Kind::Ingress, other.key.clone()));
                    let message = format!(
                        "annotation backend-protocol: proxy-ssl-secret of Ingress {} holds for host {} and cannot be honoured, so \
                         its locations answer 503: correct that one, or set proxy-ssl-secret here",
                        other.key, self.host
                    );
                    Note { cause, ..Note::rejected(message) }
                }
                // Whoever adds an Ingress to a host says nothing to the others of it.
                PathUpstreamTls::Foreign(other) if !self.view.owner.has(other) => continue,
                PathUpstreamTls::Foreign(other) => Note::warning(format!(
                    "annotation backend-protocol: endpoints of host {} are shown no certificate and not verified. In \
                     ingress-nginx proxy-ssl-secret of Ingress {} holds for the whole host, here for its namespace alone: \
                     set proxy-ssl-secret",
                    self.host, other.key
                )),
            };
            if told.insert(&winner.by.key) {
                let object = ObjectRef::new(Kind::Ingress, winner.by.key.clone());
                self.merged.notes.push((object, note));
            }
        }
    }

    pub(super) fn about_tls(&mut self) {
        if let Some(operator) = self.tls_of {
            return self.refuse_tls_of_unnamed(operator);
        }
        let mut all = self.view.owner.settings().map(|(_, settings)| &settings.client_tls);
        let clients = || all.clone().filter_map(|tls| tls.client.as_ref());
        let client = clients().find_map(|client| client.as_ref().ok().cloned());
        let denied = client.is_none() && clients().next().is_some();
        let client = client.map(|mut client| {
            let is_path =
                client.error_page.as_ref().is_some_and(|page| page.as_str().starts_with('/'));
            // Where hosts are shared every namespace's rules may answer there.
            let owner = self.view.owner.namespace().filter(|_| is_path);
            client.error_page_of = owner.map(Into::into);
            client
        });
        let tls = TlsPolicy {
            ciphers: all.clone().find_map(|tls| tls.ciphers.clone()),
            prefers_server_ciphers: all.find_map(|tls| tls.prefers_server_ciphers),
            denied,
            client,
        };
        self.merged.tls = Some(tls).filter(|tls| *tls != TlsPolicy::default());
    }

    /// Only who has the root decides: passing TLS through takes away what protects its paths.
    pub(super) fn pass_through(&mut self) {
        let host = self.host;
        let refuse =
            |why: String| Note::rejected(format!("annotation ssl-passthrough: host {host}: {why}"));
        let view = self.view;
        let all = view.owner.settings().filter(|(_, settings)| settings.ssl_passthrough);
        for (by, _) in all {
            let lost = self.lost_protection(by);
            let note = match self.winners.get(&root()) {
                _ if *host == HostPattern::default_host() => {
                    refuse("it requires a host in spec.rules".into())
                }
                Some(winner) if winner.by.key != by.key => refuse(format!(
                    "path / belongs to Ingress {}, which alone can pass TLS through: annotate that \
                     one",
                    winner.by.key
                )),
                Some(_) if lost.is_some() => refuse(format!(
                    "{} of this host would have no effect: remove them, or ssl-passthrough",
                    lost.unwrap_or_default()
                )),
                Some(Winner { backend_ref: Some(backend_ref), by, closer: None, .. })
                    if !by.is_closed() =>
                {
                    let (backend_ref, by) = (*backend_ref, *by);
                    let (id, spec) = self.base(by, backend_ref);
                    self.add_backend(id.clone(), spec, by, "");
                    self.merged.passthrough = Some(id);
                    continue;
                }
                Some(Winner { backend_ref: Some(_), .. }) => {
                    refuse("its locations are closed".into())
                }
                _ => refuse("path / leads to no Service: add one".into()),
            };
            self.say(by, note);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::Translator;
    use crate::tests::{options, world};
    use oxigress_core::model::HostPattern;

    #[test]
    fn a_path_for_clients_without_certificates_is_the_owner_s_unless_hosts_are_shared() {
        let manifests = include_str!("../../../../testdata/owner_client_certificate.in.yaml");
        let page =
            "auth-tls-secret: evil/ca\n    nginx.ingress.kubernetes.io/auth-tls-error-page: /no";
        let manifests = manifests.replace("auth-tls-secret: \"evil/ca\"", page);
        let world = world(&manifests.replace("namespace: shop", "namespace: evil"));
        let host = HostPattern::parse("a.test").unwrap();
        for (flags, of) in [("", Some("evil")), ("--host-ownership=shared", None)] {
            let mut translator = Translator::new(options(flags));
            translator.update(&world, &world.all());
            let client = translator.snapshot().tls[&host].client.as_ref().unwrap();
            assert_eq!(client.error_page.as_ref().unwrap().as_str(), "/no");
            assert_eq!(client.error_page_of.as_deref(), of, "{flags}");
        }
    }
}
