//! An HTTP/1.1 client with control over its connections: hyper's, over TCP, unix sockets and TLS.

use crate::session;
use anyhow::{Context as _, Result, bail};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper_util::rt::TokioIo;
use std::fmt::{self, Display};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

/// An answer that takes longer is a failure of the test.
pub const TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    Tcp(SocketAddr),
    /// TCP with TLS and this server name; without one no SNI is sent.
    Tls(SocketAddr, Option<String>),
    Unix(PathBuf),
    /// A unix socket, connected to with this uid (needs root).
    UnixAs(PathBuf, u32),
}

impl Address {
    /// Plain HTTP on a loopback port.
    pub fn http(port: u16) -> Self {
        Address::Tcp((Ipv4Addr::LOCALHOST, port).into())
    }

    /// HTTPS on a loopback port.
    pub fn https(port: u16, server_name: impl Into<String>) -> Self {
        Address::Tls((Ipv4Addr::LOCALHOST, port).into(), Some(server_name.into()))
    }
}

/// A request; headers are sent as given, `Host` too.
#[derive(Clone, Debug, Default)]
pub struct Request {
    pub method: String,
    /// Request target: path and query.
    pub target: String,
    pub headers: Vec<(String, String)>,
    /// Body; `Content-Length` comes by itself.
    pub body: Bytes,
}

impl Request {
    pub fn new(method: &str, host: &str, target: &str) -> Self {
        Request { method: method.into(), target: target.into(), ..Self::default() }
            .header("Host", host)
    }

    pub fn get(host: &str, target: &str) -> Self {
        Self::new("GET", host, target)
    }

    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    /// Whether a header of this name, in any case, is set.
    pub fn has(&self, name: &str) -> bool {
        self.headers.iter().any(|(n, _)| n.eq_ignore_ascii_case(name))
    }
}

impl Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} {}", self.method, self.target)?;
        for (name, value) in &self.headers {
            writeln!(f, "{name}: {value}")?;
        }
        write_body(f, &self.body)
    }
}

#[derive(Clone, Debug)]
pub struct Response {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Response {
    /// A header's value; several of one name are joined by `, `.
    pub fn header(&self, name: &str) -> Option<String> {
        let all: Vec<_> = self
            .headers
            .get_all(name)
            .iter()
            .map(|v| String::from_utf8_lossy(v.as_bytes()))
            .collect();
        (!all.is_empty()).then(|| all.join(", "))
    }

    /// The name of the sample endpoint that answered.
    pub fn endpoint(&self) -> Option<String> {
        self.header("x-endpoint")
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn json<T: serde::de::DeserializeOwned>(&self) -> Result<T> {
        serde_json::from_slice(&self.body)
            .with_context(|| format!("not the JSON that was expected: {self}"))
    }
}

impl Display for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.status)?;
        for (name, value) in &self.headers {
            writeln!(f, "{name}: {}", String::from_utf8_lossy(value.as_bytes()))?;
        }
        write_body(f, &self.body)
    }
}

fn write_body(f: &mut fmt::Formatter<'_>, body: &[u8]) -> fmt::Result {
    const SHOWN: usize = 2_000;
    let text = String::from_utf8_lossy(body.get(..SHOWN).unwrap_or(body));
    writeln!(f, "\n{}", text.trim_end())?;
    if body.len() > SHOWN {
        writeln!(f, "[... {} bytes in all]", body.len())?;
    }
    Ok(())
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

struct Opened {
    stream: Box<dyn Stream>,
    certificate: Option<String>,
    local_port: Option<u16>,
}

/// Counts the bytes that arrive.
struct Counted {
    stream: Box<dyn Stream>,
    received: Arc<AtomicU64>,
}

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        self.received.fetch_add((buf.filled().len() - before) as u64, Ordering::SeqCst);
        read
    }
}

impl AsyncWrite for Counted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

async fn open(address: &Address) -> Result<Opened> {
    let plain = |stream| Opened { stream, certificate: None, local_port: None };
    match address {
        Address::Tcp(to) => {
            let stream = tcp(*to).await?;
            let local_port = Some(stream.local_addr()?.port());
            Ok(Opened { local_port, ..plain(Box::new(stream)) })
        }
        Address::Unix(path) => {
            let stream = UnixStream::connect(path)
                .await
                .with_context(|| format!("connect to {}", path.display()))?;
            Ok(plain(Box::new(stream)))
        }
        Address::UnixAs(path, uid) => Ok(plain(Box::new(connect_as(path, *uid)?))),
        Address::Tls(to, name) => {
            let stream = tcp(*to).await?;
            let local_port = Some(stream.local_addr()?.port());
            let connected = session::handshake(stream, name.as_deref()).await;
            let (stream, certificate) = connected.with_context(|| Handshake { local_port })?;
            let certificate = Some(certificate);
            Ok(Opened { stream: Box::new(stream), certificate, local_port })
        }
    }
}

pub async fn tcp(to: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect(to).await.with_context(|| format!("connect to {to}"))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Linux keeps the uid a thread: one that changes its own connects, and ends.
fn connect_as(path: &Path, uid: u32) -> Result<UnixStream> {
    let path = path.to_owned();
    let connect = move || -> Result<std::os::unix::net::UnixStream> {
        let uid = rustix::process::Uid::from_raw(uid);
        rustix::thread::set_thread_res_uid(uid, uid, uid).context("change the uid: needs root")?;
        Ok(std::os::unix::net::UnixStream::connect(&path)?)
    };
    let stream = std::thread::spawn(connect).join().ok().context("the thread panicked")??;
    stream.set_nonblocking(true)?;
    Ok(UnixStream::from_std(stream)?)
}

/// The common name of the certificate that a handshake with this server name gets.
pub async fn handshake(address: &Address) -> Result<String> {
    let opened = tokio::time::timeout(TIMEOUT, open(address)).await.context("handshake")??;
    opened.certificate.context("no certificate was presented")
}

/// A handshake that failed, as the error's context.
#[derive(Debug)]
pub struct Handshake {
    pub local_port: Option<u16>,
}

impl Display for Handshake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TLS handshake")
    }
}

/// One connection, kept alive until either side closes it.
pub struct Connection {
    sender: http1::SendRequest<Full<Bytes>>,
    certificate: Option<String>,
    received: Arc<AtomicU64>,
    /// This side's port, of a TCP connection.
    pub local_port: Option<u16>,
    /// Requests that were answered on it.
    pub answered: u64,
}

impl Connection {
    /// Connects, with the handshake if there is one.
    pub async fn open(address: &Address) -> Result<Self> {
        let connect = async {
            let Opened { stream, certificate, local_port } = open(address).await?;
            let received = Arc::new(AtomicU64::new(0));
            let stream = Counted { stream, received: received.clone() };
            let (sender, driver) = http1::handshake(TokioIo::new(stream)).await?;
            tokio::spawn(async move {
                // What went wrong is also told to the request in flight.
                let _ = driver.await;
            });
            anyhow::Ok(Connection { sender, certificate, received, local_port, answered: 0 })
        };
        tokio::time::timeout(TIMEOUT, connect)
            .await
            .with_context(|| format!("no connection to {address:?} in {TIMEOUT:?}"))?
    }

    /// The common name of the server's certificate.
    pub fn certificate(&self) -> Option<&str> {
        self.certificate.as_deref()
    }

    /// Bytes that arrived on it; inside TLS.
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::SeqCst)
    }

    /// Whether the other side, or an error, closed it.
    pub fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Sends one request and reads the whole answer.
    pub async fn send(&mut self, request: &Request) -> Result<Response> {
        self.send_within(request, TIMEOUT).await
    }

    /// As [`Self::send`], with a deadline of its own.
    pub async fn send_within(&mut self, request: &Request, within: Duration) -> Result<Response> {
        let exchange = async {
            self.sender.ready().await.context("the connection is closed")?;
            let mut outgoing = hyper::Request::builder()
                .method(request.method.as_str())
                .uri(&request.target)
                .body(Full::new(request.body.clone()))
                .with_context(|| format!("cannot be sent: {request}"))?;
            for (name, value) in &request.headers {
                let name = HeaderName::from_bytes(name.as_bytes())?;
                outgoing.headers_mut().append(name, HeaderValue::from_bytes(value.as_bytes())?);
            }
            let answer = self.sender.send_request(outgoing).await.context("no answer")?;
            let (head, body) = answer.into_parts();
            let body = body.collect().await.context("the body broke off")?.to_bytes();
            anyhow::Ok(Response { status: head.status.as_u16(), headers: head.headers, body })
        };
        let response = tokio::time::timeout(within, exchange)
            .await
            .with_context(|| format!("no answer in {within:?}"))??;
        self.answered += 1;
        Ok(response)
    }
}

/// One request on a connection of its own.
pub async fn send(address: &Address, request: &Request) -> Result<Response> {
    Connection::open(address).await?.send(request).await
}

/// Sends bytes as they are and reads answers until `count` are complete or the other side closes.
pub async fn send_raw(address: &Address, bytes: &[u8], count: usize) -> Result<Vec<Response>> {
    let exchange = async {
        let mut stream = open(address).await?.stream;
        stream.write_all(bytes).await?;
        let (mut read, mut responses) = (Vec::new(), Vec::new());
        loop {
            while let Some((response, used)) = parse_raw(&read, false)? {
                read.drain(..used);
                responses.push(response);
                if responses.len() == count {
                    return Ok(responses);
                }
            }
            if stream.read_buf(&mut read).await? == 0 {
                if let Some((response, _)) = parse_raw(&read, true)? {
                    responses.push(response);
                }
                return Ok(responses);
            }
        }
    };
    tokio::time::timeout(TIMEOUT, exchange).await.context("no answer")?
}

/// One answer at the front of `read` and its length; `None` while it is not complete.
fn parse_raw(read: &[u8], is_all: bool) -> Result<Option<(Response, usize)>> {
    let mut space = [httparse::EMPTY_HEADER; 64];
    let mut head = httparse::Response::new(&mut space);
    let httparse::Status::Complete(start) = head.parse(read)? else { return Ok(None) };
    let mut headers = HeaderMap::new();
    for header in head.headers {
        let name = HeaderName::from_bytes(header.name.as_bytes())?;
        headers.append(name, HeaderValue::from_bytes(header.value)?);
    }
    let status = head.code.context("an answer without status")?;
    let rest = read.get(start..).unwrap_or_default();
    let has_body = status >= 200 && status != 204 && status != 304;
    let (body, used) = if let Some(length) = headers.get("content-length") {
        let length = if has_body { length.to_str()?.parse()? } else { 0 };
        match rest.get(..length) {
            Some(body) => (body.to_vec(), start + length),
            None => return Ok(None),
        }
    } else if headers.contains_key("transfer-encoding") {
        match parse_chunks(rest)? {
            Some((body, used)) => (body, start + used),
            None => return Ok(None),
        }
    } else if !has_body {
        (Vec::new(), start)
    } else if is_all {
        (rest.to_vec(), read.len())
    } else {
        return Ok(None);
    };
    Ok(Some((Response { status, headers, body: body.into() }, used)))
}

fn parse_chunks(rest: &[u8]) -> Result<Option<(Vec<u8>, usize)>> {
    let (mut body, mut at) = (Vec::new(), 0);
    loop {
        let size = match httparse::parse_chunk_size(rest.get(at..).unwrap_or_default()) {
            Ok(httparse::Status::Complete((used, size))) => {
                at += used;
                usize::try_from(size)?
            }
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(_) => bail!("a malformed chunk"),
        };
        let Some(chunk) = rest.get(at..at + size) else { return Ok(None) };
        if rest.len() < at + size + 2 {
            return Ok(None);
        }
        body.extend_from_slice(chunk);
        at += size + 2;
        if size == 0 {
            return Ok(Some((body, at)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pipelined_answers_are_told_apart() {
        let read = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 404 Not Found\r\n\
            Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
        let (first, used) = parse_raw(read, false).unwrap().unwrap();
        assert_eq!((first.status, first.text().as_str()), (200, "ok"));
        let (second, rest) = parse_raw(&read[used..], false).unwrap().unwrap();
        assert_eq!((second.status, second.text().as_str()), (404, "abc"));
        assert_eq!(used + rest, read.len());
        assert!(parse_raw(&read[..used - 1], false).unwrap().is_none());
    }
}
