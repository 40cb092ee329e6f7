//! What clients and endpoints speak beside HTTP/1.1: both ends of it, for tests through nginx.
//!
//! HTTP/2 is the crate `h2`; gRPC is its framing on top, by hand: a message has five bytes before it, and the call's
//! outcome is the trailer `grpc-status`. WebSocket is tungstenite. FastCGI's records are written by hand, since
//! there is no server of it to be had.

pub mod fastcgi;
pub mod grpc;
pub mod http2;
pub mod upload;
pub mod websocket;

use crate::certificate::Certificate;
use crate::wait::{self, runtime};
use anyhow::{Result, ensure};
use openssl::pkey::PKey;
use openssl::ssl::{AlpnError, Ssl, SslAcceptor, SslMethod, select_next_proto};
use openssl::x509::X509;
use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};
use tokio_openssl::SslStream;

/// A connection, with or without TLS.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// What an endpoint does about TLS.
#[derive(Clone, Copy)]
pub enum Tls<'c> {
    /// The listener speaks no TLS.
    Off,
    /// Always, and chooses no protocol.
    On(&'c Certificate),
    /// The listener speaks TLS and chooses `h2` by ALPN.
    Http2(&'c Certificate),
    /// With those who begin with a handshake.
    Either(&'c Certificate),
}

/// A listener on loopback; it and its connections end when dropped.
pub struct Listener {
    pub address: SocketAddr,
    connections: Arc<AtomicU64>,
    handshakes: Arc<AtomicU64>,
    open: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl Listener {
    pub fn start<F, S>(tls: Tls<'_>, serve: F) -> Result<Self>
    where
        F: Fn(Box<dyn Stream>) -> S + Send + Sync + 'static,
        S: Future<Output = Result<()>> + Send + 'static,
    {
        let (acceptor, is_either) = match tls {
            Tls::Off => (None, false),
            Tls::On(certificate) => (Some(acceptor(certificate, false)?), false),
            Tls::Http2(certificate) => (Some(acceptor(certificate, true)?), false),
            Tls::Either(certificate) => (Some(acceptor(certificate, true)?), true),
        };
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let _inside = runtime().enter();
        let listener = TcpListener::from_std(listener)?;
        let address = listener.local_addr()?;
        let [connections, handshakes, open] = [(); 3].map(|()| Arc::new(AtomicU64::new(0)));
        let (serve, counts) = (Arc::new(serve), [&connections, &handshakes, &open].map(Arc::clone));
        let task = runtime().spawn(async move {
            // Dropped with this task, so that connections end with the endpoint.
            let mut all = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let _ = stream.set_nodelay(true);
                let [connections, handshakes, open] = counts.each_ref().map(Arc::clone);
                connections.fetch_add(1, Ordering::SeqCst);
                open.fetch_add(1, Ordering::SeqCst);
                let (acceptor, serve) = (acceptor.clone(), serve.clone());
                all.spawn(async move {
                    // A peer that goes away ends it, which the client's side tells.
                    let _ = async {
                        let mut first = [0];
                        let is_plain =
                            is_either && stream.peek(&mut first).await? == 1 && first != [0x16];
                        let stream: Box<dyn Stream> = match acceptor.filter(|_| !is_plain) {
                            None => Box::new(stream),
                            Some(acceptor) => {
                                let ssl = Ssl::new(acceptor.context())?;
                                let mut stream = SslStream::new(ssl, stream)?;
                                Pin::new(&mut stream).accept().await?;
                                handshakes.fetch_add(1, Ordering::SeqCst);
                                Box::new(stream)
                            }
                        };
                        serve(stream).await
                    }
                    .await;
                    open.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        Ok(Listener { address, connections, handshakes, open, task })
    }

    pub fn connections(&self) -> u64 {
        self.connections.load(Ordering::SeqCst)
    }

    /// Of them, those with TLS.
    pub fn handshakes(&self) -> u64 {
        self.handshakes.load(Ordering::SeqCst)
    }

    /// Waits until so many are open on both sides.
    pub fn wait_for_open(&self, count: u64) -> Result<()> {
        wait::until("open connections", || {
            ensure!(self.open() == count, "{} instead of {count}", self.open());
            Ok(())
        })
    }

    /// Those that neither side has closed.
    pub fn open(&self) -> u64 {
        self.open.load(Ordering::SeqCst)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn acceptor(certificate: &Certificate, is_http2: bool) -> Result<SslAcceptor> {
    let mut acceptor = SslAcceptor::mozilla_intermediate_v5(SslMethod::tls_server())?;
    acceptor.set_certificate(X509::from_pem(certificate.chain.as_bytes())?.as_ref())?;
    acceptor.set_private_key(PKey::private_key_from_pem(certificate.key.as_bytes())?.as_ref())?;
    if is_http2 {
        acceptor.set_alpn_select_callback(|_, offered| {
            select_next_proto(b"\x02h2", offered).ok_or(AlpnError::ALERT_FATAL)
        });
    }
    Ok(acceptor.build())
}

/// One endpoint that speaks everything: HTTP/1.1, gRPC and FastCGI, with and without TLS, as each connection begins.
pub struct AnyEndpoint {
    /// Where it is, and what it counts.
    pub listener: Listener,
}

impl AnyEndpoint {
    pub fn start(name: &str, certificate: &Certificate) -> Result<Self> {
        let (name, seen): (Arc<str>, _) = (name.into(), Arc::default());
        let listener = Listener::start(Tls::Either(certificate), move |stream| {
            serve_any(stream, name.clone(), Arc::clone(&seen))
        })?;
        Ok(AnyEndpoint { listener })
    }
}

async fn serve_any(
    mut stream: Box<dyn Stream>,
    name: Arc<str>,
    seen: Arc<upload::Seen>,
) -> Result<()> {
    let mut first = [0; 3];
    stream.read_exact(&mut first).await?;
    let (reader, writer) = tokio::io::split(stream);
    let whole = Box::new(tokio::io::join(io::Cursor::new(first).chain(reader), writer));
    match &first {
        b"PRI" => grpc::serve(whole, name, Arc::default()).await,
        [1, ..] => fastcgi::serve(whole, name, Arc::default()).await,
        _ => upload::serve(whole, name, seen).await,
    }
}
