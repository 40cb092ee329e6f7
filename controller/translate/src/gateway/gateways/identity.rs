//! The certificates that Gateways show to endpoints over TLS: `spec.tls.backend`.
//!
//! Errors:  without a certificate that can be used none is shown, and the Gateway says so.
//! Tenancy: a Secret of another namespace needs a grant. It is shown to endpoints of the Gateway's routes that have a
//!          BackendTLSPolicy.
//! Source:  GatewayBackendTLS of Gateway API v1.7.

use crate::gateway::Built;
use crate::gateway::listeners::state::{GatewayState, Gateways};
use crate::gateway::routes::target::is_granted;
use oxigress_objects::gateway::{self, Gateway, GatewayObjects, ObjectName};
use oxigress_objects::gateway_status::Condition;
use oxigress_objects::secret::Pair;
use oxigress_objects::{Key, Kind, ObjectRef, World};
use std::sync::Arc;

/// The Secret that a Gateway names, and may.
pub fn secret_of(objects: &GatewayObjects, key: &Key, gateway: &Gateway) -> Option<Key> {
    let secret = name_in(gateway)?.key(&key.namespace);
    is_granted(objects, from(key), ("", "Secret"), &secret).then_some(secret)
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
        state.identity = Some(read);
    }
}

/// What a Gateway says about what it refers to; `None`: it refers to nothing of its own.
pub fn condition(state: &GatewayState<'_>) -> Option<Condition> {
    let own = state.identity.as_ref()?;
    let is_unresolved = state.listeners.iter().any(|listener| listener.unresolved.is_some());
    Some(match own {
        Err(why) => why.clone(),
        Ok(_) if is_unresolved => {
            let message = "not every listener has what it refers to";
            Condition::no("ResolvedRefs", "ListenersNotResolved", message)
        }
        Ok(_) => Condition::yes("ResolvedRefs", "ResolvedRefs"),
    })
}

fn read(world: &World, key: &Key, name: &ObjectName) -> Result<Arc<Pair>, Condition> {
    let field = "tls.backend.clientCertificateRef";
    let refuse =
        |reason, message| Condition::no("ResolvedRefs", reason, format!("{field}: {message}"));
    if !name.is_secret() {
        let message = format!("{} is no Secret", name.name);
        return Err(refuse("InvalidClientCertificateRef", message));
    }
    pair_of(world, from(key), &name.key(&key.namespace)).map_err(|bad| {
        refuse(bad.reason("InvalidClientCertificateRef"), bad.why).because_of(bad.absent)
    })
}

/// Why a Secret cannot be shown.
pub struct BadSecret {
    is_forbidden: bool,
    pub why: String,
    /// The Secret, if there is none.
    pub absent: Option<ObjectRef>,
}

impl BadSecret {
    /// The reason of the condition: without a grant the specification has one for all references.
    pub fn reason(&self, invalid: &'static str) -> &'static str {
        if self.is_forbidden { "RefNotPermitted" } else { invalid }
    }
}

/// The certificate and key in a Secret, for who refers to it from a kind and a namespace.
pub fn pair_of(
    world: &World,
    from: (&str, Kind, &str),
    secret: &Key,
) -> Result<Arc<Pair>, BadSecret> {
    if !is_granted(&world.gateway_api, from, ("", "Secret"), secret) {
        let why = format!("no ReferenceGrant in namespace {} allows it", secret.namespace);
        return Err(BadSecret { is_forbidden: true, why, absent: None });
    }
    let invalid = |why| BadSecret { is_forbidden: false, why, absent: None };
    let history = world.secrets.get(secret);
    let history = history.ok_or_else(|| BadSecret {
        absent: Some(ObjectRef::new(Kind::Secret, secret.clone())),
        ..invalid(format!("Secret {secret} does not exist"))
    })?;
    let pair = history.last_good.clone();
    pair.ok_or_else(|| invalid(format!("Secret {secret} has no pair of certificate and key")))
}

fn name_in(gateway: &Gateway) -> Option<&ObjectName> {
    gateway.spec.tls.as_ref()?.backend.as_ref()?.client_certificate_ref.as_ref()
}

/// A Gateway as one that refers to another object.
pub fn from(gateway: &Key) -> (&str, Kind, &str) {
    (gateway::GROUP, Kind::Gateway, &gateway.namespace)
}
