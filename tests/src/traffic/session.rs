//! TCP and UDP sessions: sample endpoints that answer lines, and clients that ask them.
//!
//! An answer is `NAME|HEADER|LINE`: who answers, the PROXY header that the connection began with (empty without
//! one), and what was asked. A datagram is a line of its own.

use crate::certificate::{Certificate, common_name};
use crate::client::{TIMEOUT, tcp};
use crate::wait::runtime;
use anyhow::{Context as _, Result, ensure};
use openssl::pkey::PKey;
use openssl::ssl::{Ssl, SslAcceptor, SslConnector, SslMethod, SslVerifyMode};
use openssl::x509::X509;
use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket as StdUdpSocket};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{
    AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader, ReadBuf,
};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UdpSocket};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;
use tokio_openssl::SslStream;

/// Endpoint, header and line of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub endpoint: String,
    /// The PROXY header it got, without its line end.
    pub header: String,
    pub line: String,
}

impl Answer {
    fn parse(text: &str) -> Result<Self> {
        let mut parts = text.trim_end().splitn(3, '|').map(str::to_owned);
        let mut next = || parts.next().with_context(|| format!("no answer: {text:?}"));
        Ok(Answer { endpoint: next()?, header: next()?, line: next()? })
    }
}

/// A running endpoint; it and its connections end when dropped.
pub struct LineEndpoint {
    pub name: String,
    pub address: SocketAddr,
    sessions: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl LineEndpoint {
    pub fn tcp(name: &str) -> Result<Self> {
        Self::listen(name, None)
    }

    /// One that speaks TLS, behind the PROXY header if `has_header`.
    pub fn tls(name: &str, certificate: &Certificate, has_header: bool) -> Result<Self> {
        let mut acceptor = SslAcceptor::mozilla_intermediate_v5(SslMethod::tls_server())?;
        acceptor.set_certificate(X509::from_pem(certificate.chain.as_bytes())?.as_ref())?;
        acceptor
            .set_private_key(PKey::private_key_from_pem(certificate.key.as_bytes())?.as_ref())?;
        Self::listen(name, Some((acceptor.build(), has_header)))
    }

    fn listen(name: &str, tls: Option<(SslAcceptor, bool)>) -> Result<Self> {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let _inside = runtime().enter();
        let listener = TcpListener::from_std(listener)?;
        let (address, sessions) = (listener.local_addr()?, Arc::new(AtomicU64::new(0)));
        let count = sessions.clone();
        let who: Arc<str> = name.into();
        let task = runtime().spawn(async move {
            // Dropped with this task, so that connections end with the endpoint.
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                let (who, tls) = (who.clone(), tls.clone());
                connections.spawn(async move {
                    // A client that goes away ends it, which the client's side tells.
                    let _ = serve(stream, &who, tls).await;
                });
            }
        });
        Ok(LineEndpoint { name: name.into(), address, sessions, task })
    }

    pub fn udp(name: &str) -> Result<Self> {
        let socket = StdUdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        socket.set_nonblocking(true)?;
        let _inside = runtime().enter();
        let socket = UdpSocket::from_std(socket)?;
        let (address, sessions) = (socket.local_addr()?, Arc::new(AtomicU64::new(0)));
        let (count, who) = (sessions.clone(), name.to_owned());
        let task = runtime().spawn(async move {
            let mut datagram = [0; 2048];
            // Errors are those of an answer that nobody took.
            loop {
                let Ok((length, from)) = socket.recv_from(&mut datagram).await else { continue };
                count.fetch_add(1, Ordering::SeqCst);
                let line = String::from_utf8_lossy(&datagram[..length]).into_owned();
                let _ = socket.send_to(format!("{who}||{line}").as_bytes(), from).await;
            }
        });
        Ok(LineEndpoint { name: name.into(), address, sessions, task })
    }

    /// Connections it took, or datagrams.
    pub fn sessions(&self) -> u64 {
        self.sessions.load(Ordering::SeqCst)
    }

    /// As the native dialect writes it.
    pub fn native(&self) -> serde_json::Value {
        serde_json::json!({"address": self.address.ip(), "port": self.address.port()})
    }
}

impl Drop for LineEndpoint {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(mut stream: TcpStream, who: &str, tls: Option<(SslAcceptor, bool)>) -> Result<()> {
    stream.set_nodelay(true)?;
    let Some((acceptor, has_header)) = tls else {
        return answer(stream, who, String::new()).await;
    };
    let mut header = String::new();
    while has_header && !header.ends_with('\n') {
        // Not a byte of what follows may be taken.
        header.push(char::from(stream.read_u8().await?));
    }
    let mut stream = SslStream::new(Ssl::new(acceptor.context())?, stream)?;
    Pin::new(&mut stream).accept().await?;
    answer(stream, who, header.trim_end().to_owned()).await
}

async fn answer(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    who: &str,
    mut header: String,
) -> Result<()> {
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    while stream.read_line(&mut line).await? > 0 {
        if line.starts_with("PROXY ") {
            line.trim_end().clone_into(&mut header);
        } else {
            stream.write_all(format!("{who}|{header}|{line}").as_bytes()).await?;
        }
        line.clear();
    }
    Ok(())
}

/// A client's side of a session.
pub struct Session<S> {
    stream: BufReader<S>,
    pub local_port: u16,
}

impl Session<TcpStream> {
    /// Connects to a loopback port and sends these bytes first.
    pub async fn open(port: u16, first: &[u8]) -> Result<Self> {
        let mut stream = tcp((Ipv4Addr::LOCALHOST, port).into()).await?;
        stream.write_all(first).await?;
        let local_port = stream.local_addr()?.port();
        Ok(Session { stream: BufReader::new(stream), local_port })
    }

    /// Connects from another loopback address.
    pub async fn open_from(ip: Ipv4Addr, port: u16) -> Result<Self> {
        let socket = TcpSocket::new_v4()?;
        socket.bind((ip, 0).into())?;
        let stream = socket.connect((Ipv4Addr::LOCALHOST, port).into()).await?;
        let local_port = stream.local_addr()?.port();
        Ok(Session { stream: BufReader::new(stream), local_port })
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Session<S> {
    /// The TLS handshake, with this server name; also the common name of the certificate it got.
    pub async fn tls(self, name: Option<&str>) -> Result<(Session<SslStream<S>>, String)> {
        let Session { stream, local_port } = self;
        let (stream, certificate) = handshake(stream.into_inner(), name).await?;
        Ok((Session { stream: BufReader::new(stream), local_port }, certificate))
    }

    /// Whatever is sent from now on goes in segments of so many bytes, with a pause between two.
    pub fn in_pieces(self, bytes: usize) -> Session<Pieces<S>> {
        let stream = Pieces { stream: self.stream.into_inner(), bytes, pause: None };
        Session { stream: BufReader::new(stream), local_port: self.local_port }
    }

    /// Sends bytes and reads until the other side closes.
    pub async fn send_and_read(&mut self, bytes: &[u8]) -> Result<Vec<u8>> {
        self.stream.write_all(bytes).await?;
        self.rest().await
    }

    /// Says that nothing more will come.
    pub async fn finish(&mut self) -> Result<()> {
        Ok(self.stream.shutdown().await?)
    }

    pub async fn ask(&mut self, line: &str) -> Result<Answer> {
        self.stream.write_all(format!("{line}\n").as_bytes()).await?;
        let mut text = String::new();
        let read = timeout(TIMEOUT, self.stream.read_line(&mut text)).await;
        ensure!(read.context("no answer in time")?? > 0, "the session was closed");
        let answer = Answer::parse(&text)?;
        ensure!(answer.line == line, "asked {line}, answered {answer:?}");
        Ok(answer)
    }

    /// All that comes until the other side closes or resets.
    pub async fn rest(&mut self) -> Result<Vec<u8>> {
        let mut all = Vec::new();
        let read = timeout(TIMEOUT, self.stream.read_to_end(&mut all)).await;
        let read = read.context("the session is not closed")?;
        let is_reset = |e: &io::Error| e.kind() == io::ErrorKind::ConnectionReset;
        ensure!(read.is_ok() || read.as_ref().is_err_and(is_reset), "{read:?}");
        Ok(all)
    }
}

/// A stream that writes little at a time. The pause gives the other side the chance to see each piece alone; nothing
/// waits on it.
pub struct Pieces<S> {
    stream: S,
    bytes: usize,
    pause: Option<Pin<Box<tokio::time::Sleep>>>,
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Pieces<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if let Some(pause) = &mut self.pause {
            ready!(pause.as_mut().poll(cx));
        }
        let piece = bytes.get(..self.bytes).unwrap_or(bytes);
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, piece))?;
        self.pause = Some(Box::pin(tokio::time::sleep(Duration::from_millis(3))));
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Pieces<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

/// Made once: it reads all certificate authorities of the system.
static CONNECTOR: LazyLock<SslConnector> = LazyLock::new(|| {
    let mut connector = SslConnector::builder(SslMethod::tls_client()).expect("OpenSSL has TLS");
    connector.set_verify(SslVerifyMode::NONE);
    connector.build()
});

/// A TLS handshake that trusts anybody, and the common name of the certificate.
pub async fn handshake<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    name: Option<&str>,
) -> Result<(SslStream<S>, String)> {
    let mut configuration = CONNECTOR.configure()?;
    configuration.set_use_server_name_indication(name.is_some());
    configuration.set_verify_hostname(false);
    let mut stream = SslStream::new(configuration.into_ssl(name.unwrap_or(""))?, stream)?;
    let connected = timeout(TIMEOUT, Pin::new(&mut stream).connect()).await;
    connected.context("no handshake in time")?.context("TLS handshake")?;
    let certificate = stream.ssl().peer_certificate().map(|c| common_name(&c));
    Ok((stream, certificate.context("no certificate")?))
}

/// Sends a datagram from a socket of its own, on this loopback address, and waits for the answer.
pub async fn datagram(from: Ipv4Addr, port: u16, line: &str) -> Result<Answer> {
    let socket = UdpSocket::bind((from, 0)).await?;
    socket.connect((Ipv4Addr::LOCALHOST, port)).await?;
    exchange(&socket, line).await
}

/// Sends a datagram and waits for the answer.
pub async fn exchange(socket: &UdpSocket, line: &str) -> Result<Answer> {
    socket.send(line.as_bytes()).await?;
    let mut buffer = [0; 2048];
    let length =
        timeout(TIMEOUT, socket.recv(&mut buffer)).await.context("no answer in time")??;
    let answer = Answer::parse(&String::from_utf8_lossy(&buffer[..length]))?;
    ensure!(answer.line == line, "asked {line}, answered {answer:?}");
    Ok(answer)
}

/// Sessions one after the other, several at once, until [`Sessions::stop`].
pub struct Sessions {
    is_stopped: Arc<AtomicBool>,
    tasks: Vec<JoinHandle<(u64, Vec<String>)>>,
}

impl Sessions {
    /// `session` gets a number that no other one gets.
    pub fn start<F, S>(at_once: usize, session: F) -> Self
    where
        F: Fn(u64) -> S + Clone + Send + 'static,
        S: Future<Output = Result<()>> + Send,
    {
        let is_stopped = Arc::new(AtomicBool::new(false));
        let next = Arc::new(AtomicU64::new(0));
        let tasks = (0..at_once)
            .map(|_| {
                let (session, next, is_stopped) =
                    (session.clone(), next.clone(), is_stopped.clone());
                runtime().spawn(async move {
                    let (mut done, mut lost) = (0, Vec::new());
                    while !is_stopped.load(Ordering::SeqCst) {
                        match session(next.fetch_add(1, Ordering::SeqCst)).await {
                            Ok(()) => done += 1,
                            Err(error) => lost.push(format!("{error:#}")),
                        }
                    }
                    (done, lost)
                })
            })
            .collect();
        Sessions { is_stopped, tasks }
    }

    /// How many ended well, and what became of the others.
    pub fn stop(self) -> Result<(u64, Vec<String>)> {
        self.is_stopped.store(true, Ordering::SeqCst);
        let (mut done, mut lost) = (0, Vec::new());
        for task in self.tasks {
            let (well, others) = crate::wait::block_on(task)?;
            done += well;
            lost.extend(others);
        }
        Ok((done, lost))
    }
}
