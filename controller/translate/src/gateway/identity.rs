//! The certificates that Gateways show to endpoints over TLS: `spec.tls.backend`.
//!
//! Errors:  without a certificate that can be used none is shown, and the Gateway says so.
//! Tenancy: a Secret of another namespace needs a grant. It is shown to endpoints of the Gateway's routes that have a
//!          BackendTLSPolicy.
//! Source:  GatewayBackendTLS of Gateway API v1.7.

use super::Built;
use super::state::{GatewayState, Gateways};
use super::target::is_granted;
use oxigress_objects::gateway::{self, Gateway, GatewayObjects, ObjectName};
use oxigress_objects::gateway_status::Condition;
use oxigress_objects::secret::Pair;
use oxigress_objects::{Key, Kind, ObjectRef, World};
use std::sync::Arc;

/// The Secret that a Gateway names, and may.
pub fn secret_of(objects: &GatewayObjects, key: &Key, gateway: &Gateway) -> Option<Key> {
    let secret = secret_key(key, name_in(gateway)?);
    is_allowed(objects, key, &secret).then_some(secret)
}

/// Notes what the listeners of each Gateway show to endpoints.
pub fn apply(world: &World, gateways: &mut Gateways<'_>, built: &mut Built) {
    for (key, state) in gateways.iter_mut() {
        let Some(name) = name_in(state.gateway) else { continue };
        if let Some(secret) = secret_of(&world.gateway_api, key, state.gateway) {
            let (count, objects) = built.shown.entry(secret).or_default();
            *count += 1;
            objects.insert(ObjectRef::new(Kind::Gateway, (*key).clone()));
        }
        let read = read(world, key, name);
        for listener in &mut state.listeners {
            listener.identity = read.as_ref().ok().cloned();
        }
        state.unresolved = Some(read.err());
    }
}

/// What a Gateway says about what it refers to; `None`: it refers to nothing of its own.
pub fn condition(state: &GatewayState<'_>) -> Option<Condition> {
    let own = state.unresolved.as_ref()?;
    let is_unresolved = state.listeners.iter().any(|listener| listener.unresolved.is_some());
    Some(match own {
        Some(why) => why.clone(),
        None if is_unresolved => {
            let message = "not every listener has what it refers to";
            Condition::no("ResolvedRefs", "ListenersNotResolved", message)
        }
        None => Condition::yes("ResolvedRefs", "ResolvedRefs"),
    })
}

fn read(world: &World, key: &Key, name: &ObjectName) -> Result<Arc<Pair>, Condition> {
    let field = "tls.backend.clientCertificateRef";
    let refuse =
        |reason, message| Condition::no("ResolvedRefs", reason, format!("{field}: {message}"));
    let invalid = |message| refuse("InvalidClientCertificateRef", message);
    let is_secret = name.group.as_deref().unwrap_or_default().is_empty()
        && name.kind.as_deref().is_none_or(|kind| kind == "Secret");
    if !is_secret {
        return Err(invalid(format!("{} is no Secret", name.name)));
    }
    let secret = secret_key(key, name);
    if !is_allowed(&world.gateway_api, key, &secret) {
        let message = format!("no ReferenceGrant in namespace {} allows it", secret.namespace);
        return Err(refuse("RefNotPermitted", message));
    }
    let Some(history) = world.secrets.get(&secret) else {
        return Err(invalid(format!("Secret {secret} does not exist")));
    };
    let pair = history.last_good.clone();
    pair.ok_or_else(|| invalid(format!("Secret {secret} has no pair of certificate and key")))
}

fn name_in(gateway: &Gateway) -> Option<&ObjectName> {
    gateway.spec.tls.as_ref()?.backend.as_ref()?.client_certificate_ref.as_ref()
}

fn secret_key(gateway: &Key, name: &ObjectName) -> Key {
    Key::new(name.namespace.as_deref().unwrap_or(&gateway.namespace), &name.name)
}

fn is_allowed(objects: &GatewayObjects, gateway: &Key, secret: &Key) -> bool {
    let from = (gateway::GROUP, Kind::Gateway, &*gateway.namespace);
    is_granted(objects, from, ("", "Secret"), secret)
}
