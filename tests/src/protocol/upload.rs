//! Large uploads: an HTTP/1.1 endpoint that tells how much has arrived, and clients that send at their own pace.

use super::{Listener, Stream, Tls};
use crate::certificate::Certificate;
use crate::client::{TIMEOUT, tcp};
use crate::wait;
use anyhow::{Context, Result, ensure};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use openssl::sha::Sha256;
use oxigress_fuzz::Random;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// An endpoint that reads bodies as they come. Its answer: the request's head, a line `body: LENGTH SHA256` and a
/// line `trailer: value` for each header behind it.
pub struct UploadEndpoint {
    /// Where it is, and what it counts.
    pub listener: Listener,
    seen: Arc<Seen>,
}

#[derive(Default)]
pub(super) struct Seen {
    requests: AtomicU64,
    bytes: AtomicU64,
    whole: AtomicU64,
    broken: AtomicU64,
}

impl UploadEndpoint {
    pub fn start(name: &str) -> Result<Self> {
        Self::with(name, Tls::Off)
    }

    pub fn tls(name: &str, certificate: &Certificate) -> Result<Self> {
        Self::with(name, Tls::On(certificate))
    }

    fn with(name: &str, tls: Tls<'_>) -> Result<Self> {
        let seen = Arc::new(Seen::default());
        let (name, count): (Arc<str>, _) = (name.into(), seen.clone());
        let listener =
            Listener::start(tls, move |stream| serve(stream, name.clone(), count.clone()))?;
        Ok(UploadEndpoint { listener, seen })
    }

    /// Requests whose head has arrived.
    pub fn requests(&self) -> u64 {
        self.seen.requests.load(Ordering::SeqCst)
    }

    /// Bytes of bodies that have arrived.
    pub fn bytes(&self) -> u64 {
        self.seen.bytes.load(Ordering::SeqCst)
    }

    /// Bodies that arrived as a whole.
    pub fn whole(&self) -> u64 {
        self.seen.whole.load(Ordering::SeqCst)
    }

    pub fn broken(&self) -> u64 {
        self.seen.broken.load(Ordering::SeqCst)
    }

    /// Waits until so many bytes have arrived.
    pub fn wait_for_bytes(&self, count: u64) -> Result<()> {
        wait::until("bytes at the endpoint", || {
            ensure!(self.bytes() >= count, "{} of {count}", self.bytes());
            Ok(())
        })
    }
}

pub(super) async fn serve(stream: Box<dyn Stream>, name: Arc<str>, seen: Arc<Seen>) -> Result<()> {
    let service = service_fn(|request| answer(request, &name, &seen));
    let connection = hyper::server::conn::http1::Builder::new();
    Ok(connection.serve_connection(TokioIo::new(stream), service).await?)
}

async fn answer(
    request: Request<Incoming>,
    name: &str,
    seen: &Seen,
) -> Result<Response<Full<Bytes>>> {
    seen.requests.fetch_add(1, Ordering::SeqCst);
    let (head, mut body) = request.into_parts();
    let mut text = format!("{} {} {:?}\n", head.method, head.uri, head.version);
    for (name, value) in &head.headers {
        text += &format!("{name}: {}\n", String::from_utf8_lossy(value.as_bytes()));
    }
    let (mut length, mut hash, mut trailers) = (0, Sha256::new(), String::new());
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else {
            seen.broken.fetch_add(1, Ordering::SeqCst);
            anyhow::bail!("the body broke off");
        };
        if let Some(bytes) = frame.data_ref() {
            length += bytes.len() as u64;
            hash.update(bytes);
            seen.bytes.fetch_add(bytes.len() as u64, Ordering::SeqCst);
        } else if let Some(more) = frame.trailers_ref() {
            for (name, value) in more {
                trailers += &format!("{name}: {}\n", String::from_utf8_lossy(value.as_bytes()));
            }
        }
    }
    seen.whole.fetch_add(1, Ordering::SeqCst);
    text += &format!("body: {length} {}\n{trailers}", hexadecimal(&hash.finish()));
    Ok(Response::builder().header("X-Endpoint", name).body(Full::new(text.into()))?)
}

/// The line that an endpoint says of this body.
pub fn fingerprint(body: &[u8]) -> String {
    format!("body: {} {}\n", body.len(), hexadecimal(&openssl::sha::sha256(body)))
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Bytes of which no two pieces are alike.
pub fn body(length: usize) -> Bytes {
    let mut random = Random::new(1);
    let mut all = Vec::with_capacity(length + 8);
    while all.len() < length {
        all.extend_from_slice(&random.number().to_le_bytes());
    }
    all.truncate(length);
    all.into()
}

/// A client that sends a request as a test wants it, byte for byte.
pub struct Sending(TcpStream);

impl Sending {
    /// Connects and sends a head; an empty line is added, and that the connection ends with the answer.
    pub async fn begin(address: SocketAddr, head: &[&str]) -> Result<Self> {
        let mut sending = Sending(tcp(address).await?);
        let head = format!("{}\r\nConnection: close\r\n\r\n", head.join("\r\n"));
        sending.send(head.as_bytes()).await?;
        Ok(sending)
    }

    /// Sends bytes of the body.
    pub async fn send(&mut self, bytes: &[u8]) -> Result<()> {
        Ok(timeout(TIMEOUT, self.0.write_all(bytes)).await.context("nobody reads")??)
    }

    /// What comes until the next empty line.
    pub async fn head(&mut self) -> Result<String> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(timeout(TIMEOUT, self.0.read_u8()).await.context("no answer")??);
        }
        Ok(String::from_utf8(head)?)
    }

    pub async fn answer(mut self) -> Result<String> {
        let mut answer = Vec::new();
        timeout(TIMEOUT, self.0.read_to_end(&mut answer)).await.context("no whole answer")??;
        Ok(String::from_utf8(answer)?)
    }
}
