//! gRPC: calls of a client, and an endpoint that answers them. Messages are texts, not protocol buffers.

use super::http2::{self, Client};
use super::{Listener, Stream, Tls};
use crate::certificate::Certificate;
use anyhow::{Context, Result, ensure};
use h2::server::SendResponse;
use h2::{RecvStream, SendStream};
use hyper::body::Bytes;
use hyper::header::{HeaderMap, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, Request, Response};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const TYPE: &str = "application/grpc";

/// An endpoint with these methods:
/// * `/test.Echo/Unary`: `NAME: message`
/// * `/test.Echo/Head`: the request's head, a header a line
/// * `/test.Echo/Count`: how many messages the client sent
/// * `/test.Echo/List`: as many messages as the client's number says
/// * `/test.Echo/Chat`: each message at once, as `NAME: message`
/// * `/test.Echo/Missing`: status 5, without a message
/// * `/test.Echo/Late`: a message, then status 13
/// * `/test.Echo/Lines`: a head with as many empty `set-cookie` lines as the request's header `lines` says
pub struct GrpcEndpoint {
    /// Where it is, and what it counts.
    pub listener: Listener,
    calls: Arc<AtomicU64>,
}

impl GrpcEndpoint {
    pub fn start(name: &str) -> Result<Self> {
        Self::with(name, Tls::Off)
    }

    pub fn tls(name: &str, certificate: &Certificate) -> Result<Self> {
        Self::with(name, Tls::Http2(certificate))
    }

    fn with(name: &str, tls: Tls<'_>) -> Result<Self> {
        let calls = Arc::new(AtomicU64::new(0));
        let (name, count): (Arc<str>, _) = (name.into(), calls.clone());
        let listener =
            Listener::start(tls, move |stream| serve(stream, name.clone(), count.clone()))?;
        Ok(GrpcEndpoint { listener, calls })
    }

    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }
}

pub(super) async fn serve(
    stream: Box<dyn Stream>,
    name: Arc<str>,
    calls: Arc<AtomicU64>,
) -> Result<()> {
    let mut connection = h2::server::handshake(stream).await?;
    while let Some(accepted) = connection.accept().await {
        let (request, response) = accepted?;
        calls.fetch_add(1, Ordering::SeqCst);
        let name = name.clone();
        tokio::spawn(async move {
            // The client is told by the end of its stream.
            let _ = answer(request, response, &name).await;
        });
    }
    Ok(())
}

async fn answer(
    request: Request<RecvStream>,
    mut response: SendResponse<Bytes>,
    name: &str,
) -> Result<()> {
    let (head, body) = request.into_parts();
    let mut messages = Messages::new(body);
    let mut ok = Response::builder().header("content-type", TYPE).header("x-endpoint", name);
    for _ in 0..lines(&head) {
        ok = ok.header("set-cookie", "");
    }
    let method = head.uri.path().rsplit('/').next().unwrap_or_default().to_owned();
    if method == "Missing" {
        messages.skip().await?;
        let head = ok.header("grpc-status", "5").header("grpc-message", "no such thing");
        response.send_response(head.body(())?, true)?;
        return Ok(());
    }
    let mut sender = response.send_response(ok.body(())?, false)?;
    let mut status = "0";
    match method.as_str() {
        "Unary" => {
            let message = messages.next().await?.context("no message")?;
            messages.skip().await?;
            send(&mut sender, &format!("{name}: {message}")).await?;
        }
        "Head" => {
            messages.skip().await?;
            send(&mut sender, &written(&head)).await?;
        }
        "Count" => {
            let count = messages.count().await?;
            send(&mut sender, &count.to_string()).await?;
        }
        "List" => {
            let count: u32 = messages.next().await?.context("no message")?.parse()?;
            messages.skip().await?;
            for number in 0..count {
                send(&mut sender, &number.to_string()).await?;
            }
        }
        "Chat" => {
            while let Some(message) = messages.next().await? {
                send(&mut sender, &format!("{name}: {message}")).await?;
            }
        }
        "Lines" => messages.skip().await?,
        "Late" => {
            messages.skip().await?;
            send(&mut sender, "so far so good").await?;
            status = "13";
        }
        _ => status = "12",
    }
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static(status));
    trailers.insert("grpc-message", HeaderValue::from_static("told at the end"));
    sender.send_trailers(trailers)?;
    Ok(())
}

/// How many lines more the answer's head has.
fn lines(head: &Parts) -> usize {
    let lines = head.headers.get("lines").and_then(|value| value.to_str().ok()?.parse().ok());
    lines.unwrap_or(0)
}

fn written(head: &Parts) -> String {
    let mut text = format!("{} {} {:?}\n", head.method, head.uri, head.version);
    for (name, value) in &head.headers {
        text += &format!("{name}: {}\n", String::from_utf8_lossy(value.as_bytes()));
    }
    text
}

/// The messages of a stream.
struct Messages {
    stream: RecvStream,
    read: Vec<u8>,
}

impl Messages {
    fn new(stream: RecvStream) -> Self {
        Messages { stream, read: Vec::new() }
    }

    /// Waits for the end. A call that is answered before its connection is not kept.
    async fn skip(&mut self) -> Result<()> {
        self.count().await.map(drop)
    }

    async fn count(&mut self) -> Result<usize> {
        let mut count = 0;
        while self.next().await?.is_some() {
            count += 1;
        }
        Ok(count)
    }

    async fn next(&mut self) -> Result<Option<String>> {
        loop {
            if let Some(head) = self.read.first_chunk::<5>() {
                let [compressed, length @ ..] = *head;
                ensure!(compressed == 0, "a compressed message");
                let end = 5 + u32::from_be_bytes(length) as usize;
                if let Some(message) = self.read.get(5..end) {
                    let message = String::from_utf8(message.to_vec())?;
                    self.read.drain(..end);
                    return Ok(Some(message));
                }
            }
            match http2::receive(&mut self.stream).await? {
                Some(bytes) => self.read.extend_from_slice(&bytes),
                None => {
                    ensure!(self.read.is_empty(), "the stream ended within a message");
                    return Ok(None);
                }
            }
        }
    }
}

async fn send(stream: &mut SendStream<Bytes>, message: &str) -> Result<()> {
    let mut frame = vec![0];
    frame.extend_from_slice(&u32::try_from(message.len())?.to_be_bytes());
    frame.extend_from_slice(message.as_bytes());
    http2::send(stream, frame.into(), false).await
}

pub struct Channel(Client);

impl Channel {
    /// Over TLS when there is a server name.
    pub async fn connect(address: SocketAddr, name: Option<&str>) -> Result<Self> {
        Ok(Channel(Client::connect(address, name).await?))
    }

    /// Begins a call of a method of `test.Echo`, or of a whole path.
    pub async fn call(&self, host: &str, method: &str, headers: &[(&str, &str)]) -> Result<Call> {
        let mut all = vec![("content-type", TYPE), ("te", "trailers")];
        all.extend_from_slice(headers);
        let path = match method.starts_with('/') {
            true => method.to_owned(),
            false => format!("/test.Echo/{method}"),
        };
        let (answer, sender) = self.0.open(Method::POST, host, &path, &all, false).await?;
        Ok(Call { sender, answering: Some(answer), received: None })
    }

    pub async fn ask(&self, host: &str, method: &str, messages: &[&str]) -> Result<Outcome> {
        self.ask_with(host, method, &[], messages).await
    }

    pub async fn ask_with(
        &self,
        host: &str,
        method: &str,
        headers: &[(&str, &str)],
        messages: &[&str],
    ) -> Result<Outcome> {
        let mut call = self.call(host, method, headers).await?;
        for message in messages {
            // It may have been answered already; the outcome tells.
            if call.send(message).await.is_err() {
                break;
            }
        }
        call.end().await
    }
}

/// A call that goes on.
pub struct Call {
    sender: SendStream<Bytes>,
    answering: Option<http2::Answering>,
    received: Option<(HeaderMap, u16, Messages)>,
}

#[derive(Debug)]
pub struct Outcome {
    pub http_status: u16,
    /// `grpc-status`, where the server gave one.
    pub status: Option<u32>,
    /// The trailer `grpc-message`.
    pub message: Option<String>,
    /// Whether they came behind the messages.
    pub is_in_trailers: bool,
    /// Messages that were not received before.
    pub messages: Vec<String>,
    pub headers: HeaderMap,
}

impl Call {
    pub async fn send(&mut self, message: &str) -> Result<()> {
        send(&mut self.sender, message).await
    }

    /// The next message; `None`: there are no more.
    pub async fn receive(&mut self) -> Result<Option<String>> {
        if let Some(answering) = self.answering.take() {
            let (head, body) = answering.head().await?.into_parts();
            self.received = Some((head.headers, head.status.as_u16(), Messages::new(body)));
        }
        let (headers, _, messages) = self.received.as_mut().context("no answer")?;
        match headers.get("content-type").is_some_and(|value| value == TYPE) {
            true => messages.next().await,
            // An error page.
            false => Ok(None),
        }
    }

    /// Ends the client's side and waits for the outcome.
    pub async fn end(mut self) -> Result<Outcome> {
        // The server may have ended the call before.
        let _ = self.sender.send_data(Bytes::new(), true);
        let mut left = Vec::new();
        while let Some(message) = self.receive().await? {
            left.push(message);
        }
        let (headers, http_status, messages) = self.received.context("no answer")?;
        let mut stream = messages.stream;
        // Of an error page.
        while http2::receive(&mut stream).await?.is_some() {}
        let trailers = http2::trailers(&mut stream).await?;
        let is_in_trailers = trailers.contains_key("grpc-status");
        let from = if is_in_trailers { &trailers } else { &headers };
        let text = |name: &str| Some(from.get(name)?.to_str().ok()?.to_owned());
        let status = text("grpc-status").map(|status| status.parse()).transpose()?;
        let message = text("grpc-message");
        Ok(Outcome { http_status, status, message, is_in_trailers, messages: left, headers })
    }
}
