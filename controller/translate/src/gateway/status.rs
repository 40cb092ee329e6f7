//! What is said about the objects: their status, and verdicts for the log and `check`.

use super::Built;
use crate::Options;
use oxigress_objects::gateway_status::{Condition, Content, ParentStatus, Wanted};
use oxigress_objects::verdict::Note;
use oxigress_objects::{Key, Kind, ObjectRef};

/// The features of the conformance suite that are served, in the order of the API.
const FEATURES: &[&str] = &[
    "BackendTLSPolicy",
    "ClusterTrustBundle",
    "GRPCRoute",
    "GRPCRouteNamedRouteRule",
    "GRPCRouteRequestHeaderModifier",
    "Gateway",
    "GatewayAddressEmpty",
    "GatewayBackendClientCertificate",
    "GatewayFrontendClientCertificateValidation",
    "GatewayFrontendClientCertificateValidationInsecureFallback",
    "GatewayHTTPListenerIsolation",
    "GatewayHTTPSListenerDetectMisdirectedRequests",
    "GatewayPort8080",
    "GatewayRouteHostnameIntersectionPrecedence",
    "GatewayStaticAddresses",
    "HTTPRoute",
    "HTTPRoute303RedirectStatusCode",
    "HTTPRoute307RedirectStatusCode",
    "HTTPRoute308RedirectStatusCode",
    "HTTPRouteBackendProtocolH2C",
    "HTTPRouteBackendProtocolWebSocket",
    "HTTPRouteBackendRequestHeaderModification",
    "HTTPRouteBackendTimeout",
    "HTTPRouteBackendURLRewrite",
    "HTTPRouteCORS",
    "HTTPRouteHostRewrite",
    "HTTPRouteMethodMatching",
    "HTTPRouteNamedRouteRule",
    "HTTPRouteParentRefPort",
    "HTTPRoutePathRedirect",
    "HTTPRoutePathRewrite",
    "HTTPRoutePortRedirect",
    "HTTPRouteQueryParamMatching",
    "HTTPRouteRequestMirror",
    "HTTPRouteRequestMultipleMirrors",
    "HTTPRouteRequestPercentageMirror",
    "HTTPRouteRequestTimeout",
    "HTTPRouteResponseHeaderModification",
    "HTTPRouteRetryCodes",
    "HTTPRouteRetryConnectionError",
    "HTTPRouteSchemeRedirect",
    "ListenerSet",
    "ReferenceGrant",
    "TCPRoute",
    "TLSRoute",
    "TLSRouteModeMixed",
    "TLSRouteModeTerminate",
    "UDPRoute",
];

/// Those of [`FEATURES`] that this controller has.
pub fn features(options: &Options) -> Vec<&'static str> {
    let is_there = |name: &&str| match *name {
        "GatewayStaticAddresses" => !options.gateway_addresses.is_empty(),
        _ => true,
    };
    FEATURES.iter().copied().filter(is_there).collect()
}

pub fn accepted() -> Condition {
    Condition::yes("Accepted", "Accepted")
}

pub fn programmed() -> Condition {
    Condition::yes("Programmed", "Programmed")
}

/// Of a listener whose port is not open yet, and of a ListenerSet that has no other ones.
pub fn pending() -> Condition {
    let why = "ports that ListenerSets alone ask for are opened and closed once a minute, since nginx reloads for them";
    Condition::no("Programmed", "Pending", why)
}

/// Notes what a status is to say.
pub fn put(kind: Kind, key: &Key, generation: i64, content: Content, built: &mut Built) {
    let object = ObjectRef::new(kind, key.clone());
    built.statuses.insert(object, Wanted { generation, content });
}

/// The same for whoever reads the log: what a status says that is not as it should be.
pub fn notes(content: &Content) -> Vec<Note> {
    let about = |place: &str, conditions: &[Condition]| {
        let bad = conditions.iter().filter(|condition| {
            condition.holds == matches!(condition.name, "Conflicted" | "PartiallyInvalid")
        });
        let notes = bad.map(|condition| {
            let Condition { name, reason, message, .. } = condition;
            let not = if condition.holds { "" } else { "not " };
            let message = format!("{place}{not}{name}, {reason}: {message}");
            Note { cause: condition.cause.clone(), ..Note::rejected(message) }
        });
        notes.collect::<Vec<_>>()
    };
    match content {
        Content::Class { conditions, .. } => about("", conditions),
        Content::Gateway { conditions, listeners, .. }
        | Content::ListenerSet { conditions, listeners } => {
            let mut notes = about("", conditions);
            for listener in listeners {
                notes.extend(about(&format!("listener {}: ", listener.name), &listener.conditions));
            }
            notes
        }
        Content::Route { parents, .. } | Content::Policy { ancestors: parents, .. } => {
            let of_one = |one: &ParentStatus| {
                about(&format!("parent {}: ", one.parent.name), &one.conditions)
            };
            parents.iter().flat_map(of_one).collect()
        }
    }
}
