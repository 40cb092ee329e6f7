//! What a document says of itself: version, kind, name and namespace.

use super::{Found, type_message, unknown};
use crate::convert;
use crate::{Kind, ObjectRef};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde_json::Value;

/// The fields that all kinds have.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Head {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    pub kind: String,
    #[serde(default)]
    metadata: Value,
}

impl Head {
    /// The kind and the name; `within` and `metadata` are the places of the document and of its metadata. The error is what
    /// becomes of a document that is no object to read.
    pub fn identity(&self, within: &str, metadata: &str) -> Result<(Kind, ObjectRef), Found> {
        let kind = self.kind(within)?;
        Ok((kind, identity_of(kind, &self.metadata, metadata)?))
    }

    fn kind(&self, within: &str) -> Result<Kind, Found> {
        Ok(match (self.api_version.as_str(), self.kind.as_str()) {
            ("networking.k8s.io/v1", "Ingress") => Kind::Ingress,
            ("networking.k8s.io/v1", "IngressClass") => Kind::IngressClass,
            ("v1", "Namespace") => Kind::Namespace,
            ("v1", "Service") => Kind::Service,
            ("v1", "Secret") => Kind::Secret,
            ("v1", "ConfigMap") => Kind::ConfigMap,
            ("discovery.k8s.io/v1", "EndpointSlice") => Kind::EndpointSlice,
            ("gateway.networking.k8s.io/v1", "GatewayClass") => Kind::GatewayClass,
            ("gateway.networking.k8s.io/v1", "Gateway") => Kind::Gateway,
            ("gateway.networking.k8s.io/v1", "BackendTLSPolicy") => Kind::BackendTLSPolicy,
            ("certificates.k8s.io/v1beta1", "ClusterTrustBundle") => Kind::ClusterTrustBundle,
            ("oxigress.io/v1alpha1", "Policy") => Kind::Policy,
            ("gateway.networking.k8s.io/v1", "ListenerSet") => Kind::ListenerSet,
            ("gateway.networking.k8s.io/v1", "HTTPRoute") => Kind::HTTPRoute,
            ("gateway.networking.k8s.io/v1", "GRPCRoute") => Kind::GRPCRoute,
            ("gateway.networking.k8s.io/v1", "TLSRoute") => Kind::TLSRoute,
            ("gateway.networking.k8s.io/v1", "TCPRoute") => Kind::TCPRoute,
            ("gateway.networking.k8s.io/v1", "UDPRoute") => Kind::UDPRoute,
            (
                "gateway.networking.k8s.io/v1" | "gateway.networking.k8s.io/v1beta1",
                "ReferenceGrant",
            ) => Kind::ReferenceGrant,
            ("", _) | (_, "") => return Err(Found::Unusable(lacks_kind(within))),
            (version, kind) => {
                return Err(match unknown::gone(version, kind) {
                    Some(remedy) => Found::Unusable(outdated(self, remedy)),
                    None => Found::OtherKind(kind.into(), other_kind(within, version, kind)),
                });
            }
        })
    }
}

/// Which object it is, by its metadata, which stand at `place`.
fn identity_of(kind: Kind, metadata: &Value, place: &str) -> Result<ObjectRef, Found> {
    let meta: ObjectMeta = serde_path_to_error::deserialize(metadata).map_err(|error| {
        let message = type_message(place, &error);
        // What stands beside the wrong field may say which object it is: what it was before stays.
        let text = |field| metadata.get(field).and_then(Value::as_str).map(str::to_owned);
        let (name, namespace) = (text("name"), text("namespace"));
        let meta = ObjectMeta { name, namespace, ..ObjectMeta::default() };
        match convert::identify(kind, &meta) {
            Ok(id) => {
                let message = format!("{id}: {message}");
                Found::Broken(id, message)
            }
            Err(_) => Found::Unusable(message),
        }
    })?;
    convert::identify(kind, &meta).map_err(|error| Found::Unusable(format!("{kind} {error}")))
}

fn lacks_kind(within: &str) -> String {
    format!("{within} has no apiVersion or kind: write both").trim_start().into()
}

/// `remedy` says what replaced the version of the API that the object is of.
fn outdated(head: &Head, remedy: &str) -> String {
    let text = |field| head.metadata.get(field).and_then(Value::as_str);
    let namespace = text("namespace").unwrap_or("default");
    let name = text("name").unwrap_or("without a name");
    let Head { api_version, kind, .. } = head;
    format!("{kind} {namespace}/{name}: apiVersion {api_version} {remedy}")
}

fn other_kind(within: &str, version: &str, kind: &str) -> String {
    let prefix = if within.is_empty() { String::new() } else { format!("{within} ") };
    format!(
        "{prefix}kind {kind} of {version} is not read: move it elsewhere, or use Ingress, IngressClass \
         (networking.k8s.io/v1), Service, Secret, ConfigMap, Namespace (v1), EndpointSlice (discovery.k8s.io/v1), \
         GatewayClass, Gateway, ListenerSet, HTTPRoute, GRPCRoute, TLSRoute, TCPRoute, UDPRoute, ReferenceGrant, \
         BackendTLSPolicy (gateway.networking.k8s.io/v1), ClusterTrustBundle (certificates.k8s.io/v1beta1), Policy (oxigress.io/v1alpha1)"
    )
}
