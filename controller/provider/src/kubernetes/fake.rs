//! An API server as a tower service: objects, lists in pages, watches, and the faults that a test plans.

use http::{Request, Response, StatusCode};
use http_body_util::{Either, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use kube::Client;
use kube::client::Body;
use oxigress_objects::document;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::{Notify, mpsc};
use tokio_stream::wrappers::UnboundedReceiverStream;

type FakeResponse = Response<
    Either<Full<Bytes>, StreamBody<UnboundedReceiverStream<Result<Frame<Bytes>, Infallible>>>>,
>;

/// The server; clones are the same one.
#[derive(Clone, Default)]
pub struct Fake {
    state: Arc<Mutex<State>>,
    /// GETs wait while it is held.
    pub gets: Arc<Notify>,
}

/// A body that is being sent.
type Pieces = mpsc::UnboundedSender<Result<Frame<Bytes>, Infallible>>;

#[derive(Default)]
struct State {
    version: u64,
    /// By resource (`secrets`), then `namespace/name`.
    objects: BTreeMap<String, BTreeMap<String, Value>>,
    watches: Vec<(String, Pieces)>,
    /// What happened, for watches from the past.
    past: Vec<(u64, String, Value)>,
    /// Versions before this are forgotten.
    oldest: u64,
    requests: Vec<String>,
    is_down: bool,
    holds_gets: bool,
    /// GETs of objects there are never answered.
    silent: BTreeSet<String>,
    refused: BTreeSet<String>,
    /// Lists of it are empty so many times.
    empty_lists: BTreeMap<String, u32>,
    page: Option<usize>,
}

fn resource(kind: &str) -> &'static str {
    match kind {
        "Ingress" => "ingresses",
        "IngressClass" => "ingressclasses",
        "Service" => "services",
        "EndpointSlice" => "endpointslices",
        "Secret" => "secrets",
        "ConfigMap" => "configmaps",
        "Namespace" => "namespaces",
        "Gateway" => "gateways",
        "GatewayClass" => "gatewayclasses",
        "GRPCRoute" => "grpcroutes",
        "HTTPRoute" => "httproutes",
        "TCPRoute" => "tcproutes",
        "TLSRoute" => "tlsroutes",
        "UDPRoute" => "udproutes",
        "BackendTLSPolicy" => "backendtlspolicies",
        "ClusterTrustBundle" => "clustertrustbundles",
        "ListenerSet" => "listenersets",
        "Policy" => "policies",
        "ReferenceGrant" => "referencegrants",
        other => panic!("{other}"),
    }
}

impl Fake {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// A client of it.
    pub fn client(&self) -> Client {
        let fake = self.clone();
        let service = move |request: Request<Body>| {
            let fake = fake.clone();
            async move {
                fake.answer(request.uri().path(), request.uri().query().unwrap_or_default()).await
            }
        };
        Client::new(tower::service_fn(service), "default")
    }

    /// Creates or changes what manifests say.
    pub fn apply(&self, manifests: &str) {
        for value in document::values(manifests).unwrap() {
            self.put(value);
        }
    }

    fn put(&self, mut value: Value) {
        let kind = value["kind"].as_str().unwrap().to_owned();
        let resource = resource(&kind);
        let mut state = self.state();
        state.version += 1;
        let meta = value["metadata"].as_object_mut().unwrap();
        if !matches!(resource, "gatewayclasses" | "ingressclasses" | "namespaces") {
            meta.entry("namespace").or_insert_with(|| "default".into());
        }
        meta.insert("resourceVersion".into(), state.version.to_string().into());
        meta.insert("uid".into(), format!("uid-{}", state.version).into());
        encode_string_data(&mut value);
        let key = key(&value);
        let objects = state.objects.entry(resource.into()).or_default();
        let what = if objects.insert(key, value.clone()).is_some() { "MODIFIED" } else { "ADDED" };
        state.tell(resource, what, value);
    }

    /// Deletes an object, named as in a watch: `ingresses`, `default/a`.
    pub fn delete(&self, resource: &str, key: &str) {
        let mut state = self.state();
        state.version += 1;
        let version = state.version;
        let mut value = state.objects.get_mut(resource).unwrap().remove(key).unwrap();
        value["metadata"]["resourceVersion"] = version.to_string().into();
        state.tell(resource, "DELETED", value);
    }

    /// Ends every watch, as a restart does.
    pub fn hang_up(&self) {
        self.state().watches.clear();
    }

    /// Forgets the past: who asks for it gets 410.
    pub fn compact(&self) {
        let mut state = self.state();
        (state.oldest, state.past) = (state.version, Vec::new());
    }

    /// Answers nothing any more, or again.
    pub fn set_down(&self, is_down: bool) {
        self.state().is_down = is_down;
        if is_down {
            self.hang_up();
        }
    }

    /// Refuses a resource, or no more.
    pub fn refuse(&self, resource: &str, is_refused: bool) {
        let mut state = self.state();
        match is_refused {
            true => drop(state.refused.insert(resource.into())),
            false => drop(state.refused.remove(resource)),
        }
    }

    /// The next lists of it are empty, whatever there is.
    pub fn lose_lists(&self, resource: &str, times: u32) {
        self.state().empty_lists.insert(resource.into(), times);
    }

    /// Answers to GETs wait for [`Self::gets`].
    pub fn hold_gets(&self) {
        self.state().holds_gets = true;
    }

    /// GETs of objects of a namespace are never answered from now on.
    pub fn hold_gets_of(&self, namespace: &str) {
        self.state().silent.insert(namespace.into());
    }

    /// How many requests held this.
    pub fn asked(&self, what: &str) -> usize {
        self.state().requests.iter().filter(|request| request.contains(what)).count()
    }

    async fn answer(&self, path: &str, query: &str) -> Result<FakeResponse, std::io::Error> {
        let query: BTreeMap<_, _> =
            query.split('&').filter_map(|part| part.split_once('=')).collect();
        self.state().requests.push(format!("{path}?{query:?}"));
        if self.state().is_down {
            return Err(std::io::ErrorKind::ConnectionRefused.into());
        }
        let mut parts: Vec<_> = path.trim_start_matches('/').split('/').collect();
        parts.drain(..if parts[0] == "api" { 2 } else { 3 });
        let namespace = (parts[0] == "namespaces" && parts.len() > 2).then(|| parts[1]);
        if namespace.is_some() {
            parts.drain(..2);
        }
        let is_silent = namespace.is_some_and(|name| self.state().silent.contains(name));
        if is_silent && parts.len() == 2 {
            std::future::pending::<()>().await;
        }
        if self.state().refused.contains(parts[0]) {
            return Ok(failure(StatusCode::FORBIDDEN, "Forbidden"));
        }
        if let [resource, name] = parts[..] {
            let found = self.get(resource, &format!("{}/{name}", namespace.unwrap_or_default()));
            if self.state().holds_gets {
                self.gets.notified().await;
            }
            return Ok(match found {
                Some(value) => json_answer(StatusCode::OK, &value),
                None => failure(StatusCode::NOT_FOUND, "NotFound"),
            });
        }
        Ok(match query.get("watch") {
            Some(_) => self.watch(parts[0], query.get("resourceVersion").unwrap().parse().unwrap()),
            None => self.list(parts[0], namespace, &query),
        })
    }

    fn get(&self, resource: &str, key: &str) -> Option<Value> {
        self.state().objects.get(resource)?.get(key).cloned()
    }

    fn list(
        &self,
        resource: &str,
        namespace: Option<&str>,
        query: &BTreeMap<&str, &str>,
    ) -> FakeResponse {
        let mut state = self.state();
        let is_lost = state.empty_lists.get_mut(resource).is_some_and(|times| {
            let is_lost = *times > 0;
            *times = times.saturating_sub(1);
            is_lost
        });
        let within = |key: &str| namespace.is_none_or(|name| key.starts_with(&format!("{name}/")));
        let all = state.objects.get(resource).into_iter().flatten();
        let all: Vec<_> = all
            .filter(|(key, _)| within(key) && !is_lost)
            .map(|(_, value)| value.clone())
            .collect();
        let start = query.get("continue").map_or(0, |text| text.parse().unwrap());
        let page = state.page.unwrap_or(usize::MAX);
        let mut meta = json!({"resourceVersion": state.version.to_string()});
        if all.len() - start > page {
            meta["continue"] = (start + page).to_string().into();
        }
        let items: Vec<_> = all.into_iter().skip(start).take(page).collect();
        json_answer(
            StatusCode::OK,
            &json!({"kind": "List", "apiVersion": "v1", "metadata": meta, "items": items}),
        )
    }

    fn watch(&self, resource: &str, from: u64) -> FakeResponse {
        let mut state = self.state();
        let (sender, receiver) = mpsc::unbounded_channel();
        if from < state.oldest {
            let status = status(StatusCode::GONE, "Expired");
            sender.send(Ok(frame("ERROR", &status))).unwrap();
        } else {
            for (version, of, event) in &state.past {
                if *version > from && of == resource {
                    sender.send(Ok(line(event))).unwrap();
                }
            }
            state.watches.push((resource.into(), sender));
        }
        let body = StreamBody::new(UnboundedReceiverStream::new(receiver));
        Response::new(Either::Right(body))
    }

    /// Lists have so many objects an answer.
    pub fn page(&self, objects: usize) {
        self.state().page = Some(objects);
    }

    /// Tells an event again, with the version it had.
    pub fn repeat(&self, resource: &str, key: &str) {
        let value = self.get(resource, key).unwrap();
        self.state().send(resource, &json!({"type": "MODIFIED", "object": value}));
    }
}

impl State {
    fn tell(&mut self, resource: &str, what: &str, value: Value) {
        let event = json!({"type": what, "object": value});
        self.send(resource, &event);
        self.past.push((self.version, resource.into(), event));
    }

    fn send(&mut self, resource: &str, event: &Value) {
        self.watches.retain(|(of, sender)| of != resource || sender.send(Ok(line(event))).is_ok());
    }
}

fn key(value: &Value) -> String {
    let text = |field| value["metadata"][field].as_str().unwrap_or_default();
    format!("{}/{}", text("namespace"), text("name"))
}

/// As the API server stores it.
fn encode_string_data(value: &mut Value) {
    let Some(Value::Object(texts)) = value.as_object_mut().unwrap().remove("stringData") else {
        return;
    };
    for (name, text) in texts {
        let text = openssl::base64::encode_block(text.as_str().unwrap().as_bytes());
        value["data"][name] = text.into();
    }
}

fn line(event: &Value) -> Frame<Bytes> {
    Frame::data(format!("{event}\n").into())
}

fn frame(what: &str, object: &Value) -> Frame<Bytes> {
    line(&json!({"type": what, "object": object}))
}

fn status(code: StatusCode, reason: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": reason,
           "reason": reason, "code": code.as_u16()})
}

fn failure(code: StatusCode, reason: &str) -> FakeResponse {
    json_answer(code, &status(code, reason))
}

fn json_answer(code: StatusCode, value: &Value) -> FakeResponse {
    let body = Either::Left(Full::new(value.to_string().into()));
    Response::builder().status(code).body(body).unwrap()
}
