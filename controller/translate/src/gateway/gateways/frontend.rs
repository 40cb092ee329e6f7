//! What Gateways ask of the clients of their HTTPS listeners: `spec.tls.frontend`.
//!
//! Order:   of several Gateways' listeners on one port and host the one that comes first says what is asked for; one that says
//!          something else is not accepted.
//! Closed:  a listener whose authorities cannot be used keeps its hosts, and handshakes for them fail.
//! Tenancy: it holds for the listeners of ListenerSets too. ConfigMaps and grants are those of the Gateway.
//! Source:  FrontendTLSValidation of Gateway API v1.7.

use super::identity::from;
use crate::gateway::Built;
use crate::gateway::listeners::state::{Gateways, Home, ListenerState};
use crate::gateway::routes::target::is_granted;
use crate::gateway::routes::tls_policy::{
    Authorities, Refusal, absent, authorities_in, not_authorities,
};
use oxigress_core::model::policy::{ClientCertificates, TlsPolicy, VerifyClient};
use oxigress_core::model::{Bundle, HostPattern};
use oxigress_objects::gateway::{FrontendValidation, Gateway, GatewayObjects, GatewaySpec};
use oxigress_objects::gateway_status::Condition;
use oxigress_objects::{Key, Kind, ObjectRef, World};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::num::NonZeroU16;

/// Most certificates between a client's and its authority's.
const DEPTH: u32 = 5;

/// The ConfigMaps and ClusterTrustBundles that a Gateway names for its clients' authorities, and may.
pub fn authorities_of<'g>(
    objects: &'g GatewayObjects,
    key: &'g Key,
    gateway: &'g Gateway,
) -> impl Iterator<Item = ObjectRef> + 'g {
    let all = validations(&gateway.spec).flat_map(|validation| &validation.ca_certificate_refs);
    let named = all.filter_map(|name| name.authorities(&key.namespace));
    named.filter(move |source| may_name(objects, key, source))
}

/// Whether a Gateway may name authorities: a bundle of the cluster needs no grant.
fn may_name(objects: &GatewayObjects, gateway: &Key, source: &ObjectRef) -> bool {
    source.kind == Kind::ClusterTrustBundle
        || is_granted(objects, from(gateway), ("", "ConfigMap"), &source.key)
}

/// Some clients are let in whatever they show.
pub fn is_insecure(spec: &GatewaySpec) -> bool {
    validations(spec).any(|validation| validation.mode.as_deref() == Some("AllowInsecureFallback"))
}

fn validations(spec: &GatewaySpec) -> impl Iterator<Item = &FrontendValidation> {
    let frontend = spec.tls.iter().filter_map(|tls| tls.frontend.as_ref());
    let all = frontend.flat_map(|frontend| {
        let ports = frontend.per_port.iter().map(|port| &port.tls);
        ports.chain([&frontend.default])
    });
    all.filter_map(|config| config.validation.as_ref())
}

/// What is asked for on a port, as clients see it.
fn validation_at(spec: &GatewaySpec, port: i64) -> Option<&FrontendValidation> {
    let frontend = spec.tls.as_ref()?.frontend.as_ref()?;
    let own = frontend.per_port.iter().find(|own| own.port == port);
    own.map_or(&frontend.default, |own| &own.tls).validation.as_ref()
}

/// Notes at each HTTPS listener what its clients have to show, and closes those where that cannot be checked.
/// `known` has those that were read before, and then those that are named now.
pub fn apply(
    world: &World,
    gateways: &mut Gateways<'_>,
    known: &mut Authorities,
    built: &mut Built,
) {
    let old = std::mem::take(known);
    for (key, state) in gateways.iter_mut() {
        let spec = &state.gateway.spec;
        for listener in state.listeners.iter_mut().filter(|listener| listener.is_https()) {
            let Some(validation) = validation_at(spec, listener.spec.port) else { continue };
            match read(world, key, validation, (&old, known)) {
                Ok((policy, bundle)) => {
                    built.client_bundles.extend(policy.bundles().cloned());
                    built.bundles.extend(policy.bundles().cloned().map(|id| (id, bundle.clone())));
                    listener.clients = Some(policy);
                }
                Err(why) => {
                    let Refusal { accepted, resolved } = *why;
                    listener.clients = Some(TlsPolicy { denied: true, ..TlsPolicy::default() });
                    listener.closed = Some(accepted);
                    listener.unresolved = resolved.or(listener.unresolved.take());
                }
            }
        }
    }
    refuse_others(gateways);
}

fn read(
    world: &World,
    gateway: &Key,
    validation: &FrontendValidation,
    known: (&Authorities, &mut Authorities),
) -> Result<(TlsPolicy, Bundle), Box<Refusal>> {
    let field = "tls.frontend: caCertificateRefs";
    let refuse = |reason, message: String| {
        let accepted = Condition::no("Accepted", "NoValidCACertificate", message.clone());
        let resolved = Some(Condition::no("ResolvedRefs", reason, message));
        Box::new(Refusal { accepted, resolved })
    };
    let verify = match validation.mode.as_deref() {
        None | Some("" | "AllowValidOnly") => VerifyClient::Strict,
        Some("AllowInsecureFallback") => VerifyClient::Any,
        Some(other) => {
            let message = format!("tls.frontend: mode: {other:?} is not known");
            let accepted = Condition::no("Accepted", "UnsupportedValue", message);
            return Err(Box::new(Refusal { accepted, resolved: None }));
        }
    };
    let name = match &validation.ca_certificate_refs[..] {
        [one] => one,
        [] => {
            return Err(refuse(
                "InvalidCACertificateRef",
                format!("{field} is empty: name a ConfigMap or ClusterTrustBundle"),
            ));
        }
        _ => {
            let message = format!("{field}: one of them is served alone: join them");
            return Err(refuse("InvalidCACertificateRef", message));
        }
    };
    let Some(source) = name.authorities(&gateway.namespace) else {
        return Err(refuse("InvalidCACertificateKind", not_authorities(field, name)));
    };
    if !may_name(&world.gateway_api, gateway, &source) {
        let namespace = &source.key.namespace;
        let message = format!("{field}: no ReferenceGrant in namespace {namespace} allows it");
        return Err(refuse("RefNotPermitted", message));
    }
    let (id, bundle) = authorities_in(world, &source, known).map_err(|why| {
        let refusal = refuse("InvalidCACertificateRef", format!("{field}: {source} {why}"));
        refusal.because_of(absent(world, source.clone()))
    })?;
    let client = ClientCertificates {
        authorities: id,
        revoked: None,
        verify,
        depth: DEPTH,
        error_page: None,
        error_page_of: None,
        passes_certificate: false,
        subject: None,
    };
    Ok((TlsPolicy { client: Some(client), ..TlsPolicy::default() }, bundle))
}

/// Refuses listeners on the port and host of one that comes first and asks for something else.
fn refuse_others(gateways: &mut Gateways<'_>) {
    type Place = (NonZeroU16, Option<IpAddr>, HostPattern);
    let mut all: Vec<(Vec<Option<IpAddr>>, &mut ListenerState<'_>)> = Vec::new();
    for state in gateways.values_mut() {
        let addresses = state.addresses();
        let own = state.listeners.iter_mut();
        let own = own.filter(|listener| listener.is_https() && listener.stands());
        all.extend(own.map(|listener| (addresses.clone(), listener)));
    }
    all.sort_by_key(|(_, listener)| listener.home);
    let mut first: BTreeMap<Place, (Option<TlsPolicy>, Home<'_>)> = BTreeMap::new();
    for (addresses, listener) in all {
        let Some(port) = listener.port else { continue };
        for address in addresses {
            let place = (port, address, listener.host.clone());
            let asked = || (listener.clients.clone(), listener.home);
            let (clients, home) = first.entry(place).or_insert_with(asked);
            if *clients != listener.clients {
                let message = format!(
                    "{home}, which comes first, has host {} of port {} and asks for other client certificates: write another \
                     hostname, or give Gateways addresses of their own",
                    listener.host, listener.spec.port
                );
                listener.refusal = Some(Condition::no("Accepted", "UnsupportedValue", message));
            }
        }
    }
}
