//! An Event as the API server has it.

use super::{Draft, EventOutcome};
use k8s_openapi::api::core::v1::{ConfigMap, Event, EventSource, ObjectReference, Secret, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Client, Error};
use oxigress_objects::{Key, Kind, ObjectRef};
use serde_json::json;

/// Who says it, as in ingress-nginx.
const SOURCE: &str = "nginx-ingress-controller";

/// Under which name an Event stands: another replica's Event of a verdict has the same one.
pub fn name(draft: &Draft, instance: &str) -> String {
    let instance = if draft.is_warning { "" } else { instance };
    let whole = [&draft.uid, instance, draft.reason, &draft.message].join("\0");
    let digest = openssl::sha::sha256(whole.as_bytes());
    let hex: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    // 253 bytes at most, of which the digest takes 17; names are ASCII.
    let object: String = draft.object.key.name.chars().take(236).collect();
    format!("{}.{hex}", object.trim_end_matches(['.', '-']))
}

/// The whole Event, by this replica.
pub fn event(draft: &Draft, instance: &str, wall: Timestamp) -> Event {
    let kind = draft.object.kind;
    let group = if kind == Kind::Ingress { "networking.k8s.io/v1" } else { "v1" };
    let text = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    Event {
        metadata: ObjectMeta {
            name: Some(name(draft, instance)),
            namespace: text(&draft.object.key.namespace),
            ..ObjectMeta::default()
        },
        involved_object: ObjectReference {
            api_version: text(group),
            kind: Some(kind.to_string()),
            name: text(&draft.object.key.name),
            namespace: text(&draft.object.key.namespace),
            uid: text(&draft.uid),
            ..ObjectReference::default()
        },
        type_: text(if draft.is_warning { "Warning" } else { "Normal" }),
        reason: text(draft.reason),
        message: text(&draft.message),
        count: Some(1),
        first_timestamp: Some(Time(wall)),
        last_timestamp: Some(Time(wall)),
        source: Some(EventSource { component: text(SOURCE), host: None }),
        reporting_component: text(SOURCE),
        reporting_instance: text(instance),
        ..Event::default()
    }
}

/// The uid of an object that is no Ingress; none: it is gone.
pub async fn uid(client: &Client, object: &ObjectRef) -> Result<Option<String>, Error> {
    async fn of<K>(client: &Client, key: &Key) -> Result<Option<String>, Error>
    where
        K: kube::Resource<Scope = kube::core::NamespaceResourceScope>,
        K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
        K::DynamicType: Default,
    {
        // Of a Secret nothing but its metadata is asked for.
        let api: Api<K> = Api::namespaced(client.clone(), &key.namespace);
        Ok(api.get_metadata_opt(&key.name).await?.and_then(|found| found.metadata.uid))
    }
    match object.kind {
        Kind::ConfigMap => of::<ConfigMap>(client, &object.key).await,
        Kind::Secret => of::<Secret>(client, &object.key).await,
        Kind::Service => of::<Service>(client, &object.key).await,
        // Of the Gateway API the status says it.
        Kind::BackendTLSPolicy
        | Kind::ClusterTrustBundle
        | Kind::EndpointSlice
        | Kind::Gateway
        | Kind::GatewayClass
        | Kind::GRPCRoute
        | Kind::HTTPRoute
        | Kind::Ingress
        | Kind::IngressClass
        | Kind::ListenerSet
        | Kind::Namespace
        | Kind::Policy
        | Kind::ReferenceGrant
        | Kind::TCPRoute
        | Kind::TLSRoute
        | Kind::UDPRoute => Ok(None),
    }
}

/// Writes an Event that was said `count` times before.
pub async fn report(client: &Client, event: &Event, count: u32) -> EventOutcome {
    let namespace = event.metadata.namespace.clone().unwrap_or_default();
    let name = event.metadata.name.clone().unwrap_or_default();
    let api: Api<Event> = Api::namespaced(client.clone(), &namespace);
    if count > 0 {
        let patch = json!({
            "count": count.saturating_add(1),
            "lastTimestamp": event.last_timestamp,
        });
        match api.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await {
            Ok(_) => return EventOutcome::Said,
            // It has expired.
            Err(Error::Api(status)) if status.is_not_found() => {}
            Err(error) => return outcome(&error),
        }
    }
    match api.create(&PostParams::default(), event).await {
        Ok(_) => EventOutcome::Said,
        // Another replica said so, or we did before we were started again.
        Err(Error::Api(status)) if status.is_already_exists() => EventOutcome::Said,
        Err(error) => outcome(&error),
    }
}

/// What an error of a write means.
pub fn outcome(error: &Error) -> EventOutcome {
    match error {
        Error::Api(status) if status.is_not_found() => EventOutcome::Refused(None),
        Error::Api(status) if status.code < 500 && status.code != 429 => {
            EventOutcome::Refused(Some(crate::explain::explain(error)))
        }
        error => EventOutcome::Unreachable(crate::explain::explain(error)),
    }
}
