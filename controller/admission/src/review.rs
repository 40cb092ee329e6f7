//! AdmissionReviews: JSON to an object, a outcome to JSON.
//!
//! Shape:   two passes over the bytes: the first skips the object and says whether this is one of ours, the second reads
//!          it. Neither makes a tree of the whole, which would take ten times its bytes.
//! Errors:  what is no review is a [`Refusal`]; an object that cannot be read is an answer, since its review can be.

use super::Refusal;
use k8s_openapi::api::networking::v1 as networking;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::Status;
use kube::core::admission::{AdmissionResponse, META_API_VERSION_V1, META_KIND};
use oxigress_core::model::shorten;
use oxigress_objects::convert;
use oxigress_objects::gateway::{self, ListenerSet, Route};
use oxigress_objects::ingress::Ingress;
use oxigress_objects::{Key, Kind, Object as WorldObject, ObjectRef, World};
use oxigress_translate::ReviewOutcome;
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::sync::Arc;

/// Longest warning: the API server may cut longer ones.
const MAX_WARNING_BYTES: usize = 256;
/// Longest reason of a denial.
const MAX_DENIAL_BYTES: usize = 4 * 1024;

/// An AdmissionReview, as far as it is read.
pub struct Review {
    /// Goes back as it came.
    pub uid: String,
    /// None: it is being removed. The error is for its author.
    pub object: Result<Option<Object>, String>,
}

/// An object as it would be stored.
pub struct Object {
    /// The namespace and name of the object.
    pub key: Key,
    /// The field metadata.uid.
    pub uid: String,
    /// metadata.deletionTimestamp is set.
    pub is_going: bool,
    /// As translate reads it.
    pub subject: Subject,
}

impl Object {
    /// The kind and the name of the object.
    pub fn id(&self) -> ObjectRef {
        ObjectRef::new(self.subject.kind(), self.key.clone())
    }
}

/// The object that is to be made or changed.
pub enum Subject {
    /// The review is about an Ingress.
    Ingress(Arc<Ingress>),
    /// A route, and its kind.
    Route(Kind, Arc<Route>),
    /// A ListenerSet.
    ListenerSet(Arc<ListenerSet>),
}

impl Subject {
    /// The kind of the object.
    pub fn kind(&self) -> Kind {
        match self {
            Subject::Ingress(_) => Kind::Ingress,
            Subject::Route(kind, _) => *kind,
            Subject::ListenerSet(_) => Kind::ListenerSet,
        }
    }

    /// The object as a world holds it.
    pub fn object(&self) -> WorldObject {
        match self {
            Subject::Ingress(ingress) => WorldObject::Ingress(ingress.clone()),
            Subject::Route(_, route) => WorldObject::Route(route.clone()),
            Subject::ListenerSet(set) => WorldObject::ListenerSet(set.clone()),
        }
    }

    /// Whether the object says what it says in the store, as far as it is read.
    pub fn is_stored(&self, key: &Key, world: &World) -> bool {
        let objects = &world.gateway_api;
        match self {
            Subject::Ingress(new) => world.ingresses.get(key).is_some_and(|old| **old == **new),
            Subject::Route(kind, new) => {
                let old = objects.any_route(&ObjectRef::new(*kind, key.clone()));
                old.is_some_and(|old| old.spec == new.spec)
            }
            Subject::ListenerSet(new) => {
                objects.any_set(key).is_some_and(|old| old.spec == new.spec)
            }
        }
    }
}

/// The part of an AdmissionReview that counts here. kube's own type wants fields that say nothing here, such as the
/// user, and holds the object it belongs to twice.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope<T> {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    request: Option<AdmissionRequest<T>>,
}

#[derive(Deserialize)]
struct AdmissionRequest<T> {
    #[serde(default)]
    uid: String,
    #[serde(default)]
    kind: GroupVersionKind,
    namespace: Option<String>,
    object: Option<T>,
}

#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct GroupVersionKind {
    group: String,
    version: String,
    kind: String,
}

/// Reads the AdmissionReview in a request's body.
pub fn read(body: &[u8]) -> Result<Review, Refusal> {
    // What is skipped is not looked at, and JSON is UTF-8 everywhere.
    let text = str::from_utf8(body).map_err(|error| Refusal::Unparsable(error.to_string()))?;
    let head: Result<Envelope<IgnoredAny>, _> = serde_json::from_str(text);
    let head = head.map_err(|error| Refusal::Unparsable(error.to_string()))?;
    if (head.api_version.as_str(), head.kind.as_str()) != (META_API_VERSION_V1, META_KIND) {
        let what = format!("{} {}", head.api_version, head.kind);
        return Err(Refusal::OtherKind(format!("{:?}", shorten(what.trim()))));
    }
    let Some(AdmissionRequest { uid, kind, .. }) = head.request else {
        return Err(Refusal::Unparsable("it has no request".into()));
    };
    let GroupVersionKind { group, version, kind } = kind;
    let object = match (group.as_str(), version.as_str(), kind.as_str()) {
        ("networking.k8s.io", "v1", "Ingress") => read_ingress(text),
        (gateway::GROUP, "v1", "HTTPRoute") => of_api(text, Kind::HTTPRoute, convert::http_route),
        (gateway::GROUP, "v1", "GRPCRoute") => of_api(text, Kind::GRPCRoute, convert::grpc_route),
        (gateway::GROUP, "v1", "TLSRoute") => of_api(text, Kind::TLSRoute, convert::tls_route),
        (gateway::GROUP, "v1", "TCPRoute") => of_api(text, Kind::TCPRoute, convert::port_route),
        (gateway::GROUP, "v1", "UDPRoute") => of_api(text, Kind::UDPRoute, convert::port_route),
        (gateway::GROUP, "v1", "ListenerSet") => {
            of_api(text, Kind::ListenerSet, convert::listener_set)
        }
        _ => {
            let what = format!("{group}/{version} {kind}");
            return Err(Refusal::OtherKind(format!("{:?}", shorten(&what))));
        }
    };
    Ok(Review { uid, object })
}

fn read_ingress(text: &str) -> Result<Option<Object>, String> {
    let Some((namespace, mut object)) = object_of::<networking::Ingress>(text)? else {
        return Ok(None);
    };
    let about = about(Kind::Ingress, &mut object.metadata, namespace)?;
    let WorldObject::Ingress(ingress) = convert::ingress(object).map_err(invalid)? else {
        return Ok(None);
    };
    Ok(Some(about(Subject::Ingress(ingress))))
}

/// Reads an object of the Gateway API.
fn of_api<S: Default + serde::de::DeserializeOwned>(
    text: &str,
    kind: Kind,
    convert: fn(convert::Custom<S>) -> Result<WorldObject, convert::WrongField>,
) -> Result<Option<Object>, String> {
    let found = object_of::<convert::Custom<S>>(text)?;
    let Some((namespace, mut object)) = found else { return Ok(None) };
    let about = about(kind, &mut object.metadata, namespace)?;
    let subject = match convert(object).map_err(invalid)? {
        WorldObject::Route(route) => Subject::Route(kind, route),
        WorldObject::ListenerSet(set) => Subject::ListenerSet(set),
        _ => return Ok(None),
    };
    Ok(Some(about(subject)))
}

/// What a review says about an object of whatever kind.
fn about(
    kind: Kind,
    meta: &mut ObjectMeta,
    namespace: Option<String>,
) -> Result<impl FnOnce(Subject) -> Object + use<>, String> {
    meta.namespace = meta.namespace.take().or(namespace);
    let (uid, is_going) = (meta.uid.take().unwrap_or_default(), meta.deletion_timestamp.is_some());
    let key = convert::identify(kind, meta).map_err(invalid)?.key;
    Ok(move |subject| Object { key, uid, is_going, subject })
}

fn invalid(error: convert::WrongField) -> String {
    format!("invalid object: {error}")
}

/// The object of a review, and the request's namespace; `None`: it is being removed.
fn object_of<T: serde::de::DeserializeOwned>(
    text: &str,
) -> Result<Option<(Option<String>, T)>, String> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let envelope: Result<Envelope<T>, _> = serde_path_to_error::deserialize(&mut reader);
    let envelope = envelope.map_err(|error| {
        let path = error.path().to_string();
        let path = path.strip_prefix("request.object.").unwrap_or(&path);
        format!("invalid object: {}: {}", shorten(path), error.inner())
    })?;
    Ok(envelope.request.and_then(|request| Some((request.namespace, request.object?))))
}

/// Writes the AdmissionReview that answers the request with this uid.
pub fn write(uid: &str, outcome: &ReviewOutcome) -> Vec<u8> {
    let mut response = AdmissionResponse::invalid("");
    response.uid = uid.into();
    response.allowed = outcome.denial.is_none();
    response.result = match &outcome.denial {
        None => Status::success().with_code(200),
        Some(denial) => Status::failure(cut(denial, MAX_DENIAL_BYTES), "BadRequest").with_code(400),
    };
    let warnings = outcome.warnings.iter().map(|warning| {
        cut(&oxigress_core::text::line::one_line(warning), MAX_WARNING_BYTES).to_owned()
    });
    response.warnings = Some(warnings.collect()).filter(|all: &Vec<_>| !all.is_empty());
    serde_json::to_vec(&response.into_review()).unwrap_or_default()
}

fn cut(text: &str, bytes: usize) -> &str {
    let mut end = text.len().min(bytes);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}
