//! One watch: list, then events, for ever.
//!
//! Errors:  none ends it. What goes wrong is told as [`WatchEvent::Failed`], then it tries again: after 0.8 to 30 s, or as soon as
//!          another watch gets an answer.
//! Source:  kube-rs's watcher pages lists, goes on after a broken connection where it stopped, lists again after 410,
//!          and gives up a watch that is silent for longer than the server would let it last.

use super::custom;
use super::scope::Subject;
use super::watch_health::WatchHealth;
use futures_util::StreamExt;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1 as networking;
use kube::api::ListParams;
use kube::core::NamespaceResourceScope;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource};
use oxigress_core::text::line::with_causes;
use oxigress_net::pause::{LONGEST, SHORTEST, jitter};
use oxigress_objects::convert::{self, WrongField};
use oxigress_objects::published::{Address, ObjectStatus, Published};
use oxigress_objects::{Kind, Object, ObjectRef};
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// The server ends a watch after so many seconds; kube's watcher gives one up 5 s later.
pub const WATCH: u32 = 45;
/// A watch that was open for so long was no failure: the next one is the first again.
const STEADY: Duration = Duration::from_secs(10);
/// Between two looks whether a kind has been defined.
const KINDS_AGAIN: Duration = Duration::from_secs(5);
/// Objects an answer of a list: large EndpointSlices make some 50 kB each.
const PAGE: u32 = 250;

/// An event of a watch.
pub struct WatchUpdate {
    /// The index of the watch.
    pub subject: usize,
    /// What the watch saw.
    pub event: WatchEvent,
}

/// What a watch saw of its objects.
pub enum WatchEvent {
    /// A list begins; objects that it does not name are gone once it has ended.
    ListBegan,
    /// An object of a list, or one that was made or changed.
    Object(Box<WatchedObject>),
    /// The object was deleted.
    Deleted(ObjectRef),
    /// The list is complete: objects that it did not name are gone.
    ListEnded,
    /// The watch failed and is tried again; the text says why.
    Failed(Failure, String),
    /// The answer to a GET of one object, with the number of the GET; `None`: the object does not exist.
    Answer(ObjectRef, u64, Option<Box<WatchedObject>>),
}

/// The reason for which a watch failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The credentials do not allow it.
    Refused,
    /// What it knew is too old to go on from: it lists again.
    TooOld,
    /// The server has no such kind.
    Unknown,
    /// No answer, or none of use.
    Broken,
}

/// An object as the API server has it.
pub struct WatchedObject {
    /// The kind, namespace and name of the object.
    pub id: ObjectRef,
    /// metadata.resourceVersion as a number: it grows with each change.
    pub version: u64,
    /// The object as the API server wrote it.
    pub content: Content,
    /// The status of an Ingress.
    pub published: Option<Published>,
    /// The status of an object of the Gateway API.
    pub status: Option<ObjectStatus>,
}

/// The object, converted or not yet: most Secrets and ConfigMaps are dropped before they are converted.
pub enum Content {
    /// An object, or why it cannot be one.
    Read(Result<Object, WrongField>),
    /// The object as it came, to be converted when it is wanted.
    Secret(Box<core::Secret>),
    /// The object as it came, to be converted when it is wanted.
    ConfigMap(Box<core::ConfigMap>),
}

impl Content {
    /// Converts the object to what translation reads.
    pub fn read(self) -> Result<Object, WrongField> {
        match self {
            Content::Read(object) => object,
            Content::Secret(secret) => convert::secret(*secret),
            Content::ConfigMap(map) => convert::config_map(*map),
        }
    }
}

/// A kind that is watched.
pub trait Watched:
    Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static
{
    /// The kind by which the World knows these objects.
    const KIND: Kind;
    /// What it is, and what is published of it.
    fn content(self) -> (Content, Option<Published>);
    /// Its status, where that is written and no [`Published`] says it.
    fn status(&mut self) -> Option<ObjectStatus> {
        None
    }
}

impl Watched for networking::Ingress {
    const KIND: Kind = Kind::Ingress;
    fn content(mut self) -> (Content, Option<Published>) {
        let published = Published {
            uid: self.metadata.uid.take().unwrap_or_default(),
            version: self.metadata.resource_version.clone().unwrap_or_default(),
            addresses: addresses(self.status.take()),
        };
        (Content::Read(convert::ingress(self)), Some(published))
    }
}

fn addresses(status: Option<networking::IngressStatus>) -> Vec<Address> {
    let written = status.and_then(|status| status.load_balancer?.ingress).unwrap_or_default();
    let address = |one: networking::IngressLoadBalancerIngress| Address {
        hostname: one.hostname.unwrap_or_default(),
        ip: one.ip.unwrap_or_default(),
    };
    written.into_iter().map(address).collect()
}

macro_rules! watched {
    ($type:ty, $kind:ident, $what:expr) => {
        impl Watched for $type {
            const KIND: Kind = Kind::$kind;
            fn content(self) -> (Content, Option<Published>) {
                ($what(self), None)
            }
        }
    };
}
watched!(networking::IngressClass, IngressClass, |it| Content::Read(convert::ingress_class(it)));
watched!(core::Service, Service, |it| Content::Read(convert::service(it)));
watched!(core::Namespace, Namespace, |it| Content::Read(convert::namespace(it)));
watched!(EndpointSlice, EndpointSlice, |it| Content::Read(convert::endpoint_slice(it)));
watched!(core::Secret, Secret, |it| Content::Secret(Box::new(it)));
watched!(core::ConfigMap, ConfigMap, |it| Content::ConfigMap(Box::new(it)));

macro_rules! watched_with_status {
    ($($name:ident $kind:ident $convert:ident;)*) => {$(
        impl Watched for custom::$name {
            const KIND: Kind = Kind::$kind;

            fn content(self) -> (Content, Option<Published>) {
                (Content::Read(convert::$convert(self.0)), None)
            }

            fn status(&mut self) -> Option<ObjectStatus> {
                let version = self.0.metadata.resource_version.clone().unwrap_or_default();
                Some(ObjectStatus { version, status: std::mem::take(&mut self.0.status) })
            }
        }
    )*};
}
watched_with_status! {
    Gateway Gateway gateway;
    GatewayClass GatewayClass gateway_class;
    GrpcRoute GRPCRoute grpc_route;
    HttpRoute HTTPRoute http_route;
    BackendTlsPolicy BackendTLSPolicy backend_tls_policy;
    ClusterTrustBundle ClusterTrustBundle cluster_trust_bundle;
    ListenerSet ListenerSet listener_set;
    Policy Policy policy;
    ReferenceGrant ReferenceGrant reference_grant;
    TcpRoute TCPRoute port_route;
    TlsRoute TLSRoute tls_route;
    UdpRoute UDPRoute port_route;
}

/// Names an object, reads its version and status, and converts it unless that waits until it is wanted.
pub fn watched_object<K: Watched>(mut object: K) -> Result<WatchedObject, WrongField> {
    // Written by every client and read by none of us.
    object.meta_mut().managed_fields = None;
    let id = convert::identify(K::KIND, object.meta())?;
    let version = object.meta().resource_version.as_ref().and_then(|text| text.parse().ok());
    let status = object.status();
    let (content, published) = object.content();
    Ok(WatchedObject { id, version: version.unwrap_or_default(), content, published, status })
}

/// One watch: what it lists and watches, and where its events go.
pub struct WatchTask {
    /// The number of the watch among all.
    pub number: usize,
    /// The objects that are asked for.
    pub subject: Subject,
    /// The client of the API server.
    pub client: Client,
    /// Knows whether the server answers.
    pub watch_health: Arc<WatchHealth>,
    /// The queue that events are sent to.
    pub updates: mpsc::Sender<WatchUpdate>,
}

impl WatchTask {
    /// Watches until nobody receives the events.
    pub async fn run(self) {
        match self.subject.kind {
            Kind::ConfigMap => self.watch::<core::ConfigMap>(self.namespaced()).await,
            Kind::EndpointSlice => self.watch::<EndpointSlice>(self.namespaced()).await,
            Kind::Gateway => self.watch::<custom::Gateway>(self.namespaced()).await,
            Kind::GatewayClass => self.watch::<custom::GatewayClass>(self.all()).await,
            Kind::GRPCRoute => self.watch::<custom::GrpcRoute>(self.namespaced()).await,
            Kind::HTTPRoute => self.watch::<custom::HttpRoute>(self.namespaced()).await,
            Kind::TCPRoute => self.watch::<custom::TcpRoute>(self.namespaced()).await,
            Kind::TLSRoute => self.watch::<custom::TlsRoute>(self.namespaced()).await,
            Kind::UDPRoute => self.watch::<custom::UdpRoute>(self.namespaced()).await,
            Kind::BackendTLSPolicy => {
                self.watch::<custom::BackendTlsPolicy>(self.namespaced()).await
            }
            Kind::ClusterTrustBundle => self.watch::<custom::ClusterTrustBundle>(self.all()).await,
            Kind::Policy => self.watch::<custom::Policy>(self.namespaced()).await,
            Kind::ListenerSet => self.watch::<custom::ListenerSet>(self.namespaced()).await,
            Kind::ReferenceGrant => self.watch::<custom::ReferenceGrant>(self.namespaced()).await,
            Kind::Ingress => self.watch::<networking::Ingress>(self.namespaced()).await,
            Kind::IngressClass => self.watch::<networking::IngressClass>(self.all()).await,
            Kind::Namespace => self.watch::<core::Namespace>(self.all()).await,
            Kind::Secret => self.watch::<core::Secret>(self.namespaced()).await,
            Kind::Service => self.watch::<core::Service>(self.namespaced()).await,
        }
    }

    fn all<K: Watched>(&self) -> Api<K> {
        Api::all(self.watch_health.listen(&self.client, self.number))
    }

    fn namespaced<K: Watched + Resource<Scope = NamespaceResourceScope>>(&self) -> Api<K> {
        let client = self.watch_health.listen(&self.client, self.number);
        match &self.subject.namespace {
            Some(namespace) => Api::namespaced(client, namespace),
            None => Api::all(client),
        }
    }

    async fn watch<K: Watched>(&self, api: Api<K>) {
        let config = watcher::Config {
            label_selector: self.subject.labels(),
            field_selector: self.subject.fields(),
            timeout: Some(WATCH),
            page_size: Some(PAGE),
            ..watcher::Config::default()
        };
        let (mut failures, mut was_filled) = (0, false);
        loop {
            let mut events = watcher(api.clone(), config.clone()).boxed();
            let mut listed = 0_usize;
            while let Some(event) = events.next().await {
                let update = match event {
                    Ok(Event::Init) => {
                        listed = 0;
                        WatchEvent::ListBegan
                    }
                    Ok(Event::InitApply(object) | Event::Apply(object)) => {
                        (listed, was_filled) = (listed.saturating_add(1), true);
                        self.object_event(object)
                    }
                    Ok(Event::Delete(object)) => match convert::identify(K::KIND, object.meta()) {
                        Ok(id) => WatchEvent::Deleted(id),
                        Err(_) => continue,
                    },
                    Ok(Event::InitDone) => {
                        if listed == 0 && was_filled {
                            if !self.is_really_empty(&api, &mut failures).await {
                                break;
                            }
                            was_filled = false;
                        }
                        WatchEvent::ListEnded
                    }
                    Err(error) => {
                        let failure = self.fail(&error, &mut failures).await;
                        match error {
                            // kube's watcher would ask for the same version for ever.
                            watcher::Error::WatchStartFailed(_) if failure == Failure::TooOld => {
                                break;
                            }
                            _ => continue,
                        }
                    }
                };
                if self.send(update).await.is_err() {
                    return;
                }
            }
        }
    }

    async fn send(&self, event: WatchEvent) -> Result<(), mpsc::error::SendError<WatchUpdate>> {
        self.updates.send(WatchUpdate { subject: self.number, event }).await
    }

    fn object_event<K: Watched>(&self, object: K) -> WatchEvent {
        match watched_object(object) {
            Ok(found) => WatchEvent::Object(Box::new(found)),
            // The API server gives every object a name.
            Err(error) => WatchEvent::Failed(Failure::Broken, error.to_string()),
        }
    }

    /// Lists again before an empty list counts, since an API server that has lost its data says the same.
    async fn is_really_empty<K: Watched>(&self, api: &Api<K>, failures: &mut u32) -> bool {
        tracing::warn!(
            "{}: the API server returned an empty list though objects existed; listing again before they are removed",
            self.subject
        );
        let parameters = ListParams {
            label_selector: self.subject.labels(),
            field_selector: self.subject.fields(),
            limit: Some(1),
            ..ListParams::default()
        };
        tokio::time::sleep(SHORTEST).await;
        loop {
            match api.list(&parameters).await {
                Ok(list) => return list.items.is_empty(),
                Err(error) => {
                    let error = watcher::Error::InitialListFailed(error);
                    self.fail(&error, failures).await;
                }
            }
        }
    }

    /// Tells, and waits until it is time to try again.
    async fn fail(&self, error: &watcher::Error, failures: &mut u32) -> Failure {
        let failure = match code(error) {
            Some(403) => Failure::Refused,
            Some(410) => Failure::TooOld,
            Some(404) if self.subject.kind.is_of_gateway_api() => Failure::Unknown,
            _ => Failure::Broken,
        };
        let was_open = match failure {
            Failure::Refused | Failure::Unknown => self.watch_health.refuse(self.number),
            Failure::TooOld | Failure::Broken => self.watch_health.lose(self.number),
        };
        if was_open >= STEADY {
            *failures = 0;
        }
        // If nobody listens, the next telling ends it.
        let _ = self.send(WatchEvent::Failed(failure, with_causes(error))).await;
        if failure == Failure::Unknown {
            // The kind may be defined any time.
            tokio::time::sleep(KINDS_AGAIN.mul_f64(jitter())).await;
            return failure;
        }
        let pause = match *failures {
            // Too old is what a watch becomes; the list is wanted at once.
            0 if failure == Failure::TooOld => Duration::ZERO,
            more => SHORTEST.saturating_mul(1 << more.min(10)).min(LONGEST).mul_f64(jitter()),
        };
        *failures = failures.saturating_add(1);
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = self.watch_health.any_answer() => {}
        }
        failure
    }
}

/// The status that the server answered with; `None`: it did not answer.
fn code(error: &watcher::Error) -> Option<u16> {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchFailed(kube::Error::Api(status))
        | watcher::Error::WatchError(status) => Some(status.code),
        _ => None,
    }
}
