//! A hostile tenant at one attack: what it writes, sends and answers.

use super::objects::{Ingress, served};
use super::scene::Scene;
use crate::kubernetes::gateway::GROUP;
use anyhow::{Context, Result, bail, ensure};
use futures_util::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{ConfigMap, Event, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1;
use kube::Api;
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use openssl::ssl::{Ssl, SslContext, SslMethod, SslVerifyMode};
use oxigress_tests::client::{Request, Response, send, tcp};
use oxigress_tests::endpoint::{Behaviour, Endpoint};
use oxigress_tests::network::pod_address;
use oxigress_tests::wait::{block_on, until};
use serde_json::{Value, json};
use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio_openssl::SslStream;

/// Its Service with an endpoint that behaves.
pub const OWN: &str = "own";
/// The label of what an attack writes.
const LABEL: &str = "attack";
/// How many writes a villain sends at the same time.
const AT_ONCE: usize = 8;
/// A client of an attack waits no longer for anything.
const PATIENCE: Duration = Duration::from_secs(20);

pub struct Villain<'s> {
    pub scene: &'s Scene,
    pub namespace: String,
    /// The name of the attack.
    pub attack: &'static str,
    pub own: &'s Endpoint,
}

impl<'s> Villain<'s> {
    /// The namespace's well-behaved Service, once.
    pub fn prepare(scene: &'s Scene, namespace: &str) -> Result<Endpoint> {
        let own = Endpoint::with(namespace, Behaviour::Ok, pod_address().into())?;
        for object in served(OWN, own.address) {
            scene.cluster.apply_in(namespace, &object.to_string())?;
        }
        Ok(own)
    }

    /// A host of its own.
    pub fn host(&self) -> String {
        self.host_of("x")
    }

    /// Names one of several hosts of this villain.
    pub fn host_of(&self, name: impl std::fmt::Display) -> String {
        format!("{name}.{}.{}.test", self.attack, self.namespace)
    }

    /// A name of an object.
    pub fn name(&self, name: impl std::fmt::Display) -> String {
        format!("{}-{name}", self.attack)
    }

    pub fn bare(&self, name: impl std::fmt::Display) -> Ingress {
        Ingress::new(&self.scene.class, &self.name(name))
    }

    /// An Ingress of all of a host to [`OWN`].
    pub fn ingress(&self, name: impl std::fmt::Display, host: &str) -> Ingress {
        self.bare(name).with("ssl-redirect", "false").host(host).path("/", "Prefix", OWN)
    }

    /// One of blue's host, with a path of its own beside blue's.
    pub fn stranger(&self, host: &str) -> Ingress {
        let path = format!("/{}", self.name("path"));
        self.bare("stranger").with("ssl-redirect", "false").host(host).path(&path, "Prefix", OWN)
    }

    fn api(&self, kind: &str) -> Result<Api<DynamicObject>> {
        let resource = match kind {
            "Ingress" => ApiResource::erase::<v1::Ingress>(&()),
            "Service" => ApiResource::erase::<Service>(&()),
            "EndpointSlice" => ApiResource::erase::<EndpointSlice>(&()),
            "Secret" => ApiResource::erase::<Secret>(&()),
            "ConfigMap" => ApiResource::erase::<ConfigMap>(&()),
            "HTTPRoute" => ApiResource {
                group: GROUP.into(),
                version: "v1".into(),
                api_version: format!("{GROUP}/v1"),
                kind: kind.into(),
                plural: "httproutes".into(),
            },
            _ => bail!("a hostile tenant writes no {kind}"),
        };
        Ok(Api::namespaced_with(self.scene.cluster.client()?, &self.namespace, &resource))
    }

    /// Writes objects, several at once.
    pub fn apply(&self, objects: impl IntoIterator<Item = Value>) -> Result<()> {
        let mut writes = Vec::new();
        for mut object in objects {
            object["metadata"]["labels"][LABEL] = json!(self.attack);
            let kind = object["kind"].as_str().unwrap_or_default().to_owned();
            let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            let api = self.api(&kind)?;
            writes.push(async move {
                let parameters = PatchParams::apply("villain").force();
                let patch = Patch::Apply(&object);
                let written = again(|| api.patch(&name, &parameters, &patch)).await;
                written.map(drop).with_context(|| format!("apply {kind} {name}"))
            });
        }
        block_on(stream::iter(writes).buffer_unordered(AT_ONCE).try_collect::<()>())
    }

    pub fn delete(&self, kind: &str, name: &str) -> Result<()> {
        block_on(self.api(kind)?.delete(name, &DeleteParams::default()))?;
        Ok(())
    }

    /// Takes away all that the attack wrote of these kinds, those first that others refer to last.
    pub fn clean(&self) -> Result<()> {
        let (own, parameters) = (ListParams::default(), DeleteParams::default());
        let own = own.labels(&format!("{LABEL}={}", self.attack));
        for kind in ["Ingress", "HTTPRoute", "EndpointSlice", "Service", "Secret", "ConfigMap"] {
            let api = self.api(kind)?;
            let delete = again(|| api.delete_collection(&parameters, &own));
            block_on(delete).with_context(|| format!("delete every {kind} of {}", self.attack))?;
        }
        Ok(())
    }

    /// Returns when the Ingresses, Services and EndpointSlices that were written before are taken up.
    pub fn settle(&self) -> Result<()> {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let host = self.host_of(format!("settled{number}"));
        self.apply([self.ingress("settled", &host).object()])?;
        until("the objects to be taken up", || {
            let status = self.scene.get(&host, "/")?.status;
            ensure!(status == 200, "{host} answers {status}");
            Ok(())
        })
    }

    /// Writes objects and returns when they are taken up.
    pub fn apply_settled(&self, objects: impl IntoIterator<Item = Value>) -> Result<()> {
        self.apply(objects)?;
        self.settle()
    }

    /// Waits for an Event of an object of the attack with all these words.
    pub fn told(&self, kind: &str, name: &str, words: &[&str]) -> Result<()> {
        let api: Api<Event> = Api::namespaced(self.scene.cluster.client()?, &self.namespace);
        let fields = format!("involvedObject.kind={kind},involvedObject.name={name}");
        let fields = ListParams::default().fields(&fields);
        until("an Event", || {
            let events = block_on(api.list(&fields))?.items;
            let messages: Vec<_> = events.into_iter().filter_map(|event| event.message).collect();
            let is_told = messages.iter().any(|text| words.iter().all(|word| text.contains(word)));
            ensure!(is_told, "{kind} {name}, {words:?}: {messages:?}");
            Ok(())
        })
    }

    /// Runs clients where hostile clients live.
    pub fn run<F: Future>(&self, future: F) -> F::Output {
        self.scene.hostile.block_on(future)
    }

    /// Sends one request, whose answer must come in time.
    pub fn send(&self, request: &Request) -> Result<Response> {
        self.run(send(&self.scene.http(), request))
    }

    pub fn get(&self, host: &str, target: &str) -> Result<Response> {
        self.send(&Request::get(host, target))
    }

    /// Waits until a request has this status.
    pub fn wait_for(&self, host: &str, target: &str, status: u16) -> Result<()> {
        until("a status", || {
            let found = self.scene.get(host, target)?;
            ensure!(found.status == status, "{host}{target} is {found}");
            Ok(())
        })
    }

    /// Runs `count` clients, so many at once; how they end is theirs.
    pub fn clients<F>(&self, count: usize, at_once: usize, client: impl Fn(usize) -> F)
    where
        F: Future<Output = Result<()>>,
    {
        self.run(async {
            let all = stream::iter(0..count).map(|number| {
                let client = client(number);
                async move { drop(tokio::time::timeout(PATIENCE, client).await) }
            });
            all.buffer_unordered(at_once).collect::<()>().await;
        });
    }

    /// As [`Self::clients`] again and again for so long; how many there were.
    pub fn clients_for<F>(
        &self,
        time: Duration,
        at_once: usize,
        client: impl Fn(usize) -> F,
    ) -> usize
    where
        F: Future<Output = Result<()>>,
    {
        let (start, mut done) = (Instant::now(), 0);
        while start.elapsed() < time {
            self.clients(at_once, at_once, |number| client(done + number));
            done += at_once;
        }
        done
    }

    /// A server of its own at an address of a pod, where hostile clients live: not beside blue's, which would wait for it.
    pub fn server<F, S>(&self, serve: F) -> Result<Server>
    where
        F: Fn(TcpStream) -> S + Send + Sync + 'static,
        S: Future<Output = Result<()>> + Send + 'static,
    {
        let listener = std::net::TcpListener::bind((pod_address(), 0))?;
        listener.set_nonblocking(true)?;
        let _inside = self.scene.hostile.enter();
        let listener = TcpListener::from_std(listener)?;
        let address = listener.local_addr()?;
        let connections = Arc::new(AtomicU64::new(0));
        let count = connections.clone();
        let task = self.scene.hostile.spawn(async move {
            // Dropped with this task, so that connections end with the server.
            let mut all = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                let conversation = serve(stream);
                all.spawn(async move { drop(conversation.await) });
            }
        });
        Ok(Server { address, connections, task })
    }

    /// A server that says these bytes to each request and goes on, and an Ingress of a host to it.
    pub fn saying(&self, bytes: impl Into<Arc<[u8]>>) -> Result<Server> {
        let bytes = bytes.into();
        self.server(move |mut stream| {
            let bytes = bytes.clone();
            async move {
                loop {
                    head(&mut stream).await?;
                    tokio::io::AsyncWriteExt::write_all(&mut stream, &bytes).await?;
                }
            }
        })
    }

    /// Writes an Ingress of [`Self::host`] that leads to an address, and returns when it is taken up.
    pub fn serve_at(&self, to: SocketAddr, change: impl Fn(Ingress) -> Ingress) -> Result<String> {
        let (host, service) = (self.host(), self.name("service"));
        let ingress = self.bare("server").with("ssl-redirect", "false");
        let ingress = ingress.host(&host).path("/", "Prefix", &service);
        let mut objects = Vec::from(served(&service, to));
        objects.push(change(ingress).object());
        self.apply_settled(objects)?;
        Ok(host)
    }

    pub fn http(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.scene.controller.http_port).into()
    }

    pub fn https(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.scene.controller.https_port).into()
    }
}

/// A server of an attack; it ends when dropped.
pub struct Server {
    pub address: SocketAddr,
    connections: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl Server {
    pub fn connections(&self) -> u64 {
        self.connections.load(Ordering::SeqCst)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// An API server that is busy ends what takes it longer than ten seconds, and what it has done by then is done.
async fn again<T, F>(mut ask: impl FnMut() -> F) -> kube::Result<T>
where
    F: Future<Output = kube::Result<T>>,
{
    for _ in 0..5 {
        match ask().await {
            Err(kube::Error::Service(_)) => {}
            answer => return answer,
        }
    }
    ask().await
}

/// Reads to the end of a request's head.
pub async fn head(stream: &mut TcpStream) -> Result<Vec<u8>> {
    let mut read = Vec::new();
    while !read.windows(4).any(|four| four == b"\r\n\r\n") {
        ensure!(stream.read_buf(&mut read).await? > 0, "the connection ended");
    }
    Ok(read)
}

/// Trusts everybody; made once, since making one is dear.
static TLS: LazyLock<SslContext> = LazyLock::new(|| {
    let mut context = SslContext::builder(SslMethod::tls_client()).expect("a TLS context");
    context.set_verify(SslVerifyMode::NONE);
    context.build()
});

/// Connects, speaks TLS, and offers these protocols, as ALPN writes them.
pub async fn tls(
    to: SocketAddr,
    name: Option<&str>,
    protocols: &[u8],
) -> Result<SslStream<TcpStream>> {
    let mut ssl = Ssl::new(&TLS)?;
    if !protocols.is_empty() {
        ssl.set_alpn_protos(protocols)?;
    }
    if let Some(name) = name {
        ssl.set_hostname(name)?;
    }
    let mut stream = SslStream::new(ssl, tcp(to).await?)?;
    Pin::new(&mut stream).connect().await?;
    Ok(stream)
}

/// An address of a client that has not been one for long.
pub fn next_client() -> IpAddr {
    let [high, low] = next_number().to_be_bytes();
    Ipv4Addr::new(10, 96, high, low).into()
}

/// The same of IPv6, all of one /64.
pub fn next_client_v6() -> IpAddr {
    Ipv6Addr::new(0xfd00, 0x10, 0x96, 0, 0, 0, 0, next_number()).into()
}

/// Neither the first address of the network nor the last.
fn next_number() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed) % 60_000 + 1_000
}

/// A connection from this address.
pub async fn connect_from(from: IpAddr, to: SocketAddr) -> Result<TcpStream> {
    let socket = if from.is_ipv6() { TcpSocket::new_v6()? } else { TcpSocket::new_v4()? };
    socket.bind(SocketAddr::new(from, 0))?;
    Ok(socket.connect(to).await?)
}
