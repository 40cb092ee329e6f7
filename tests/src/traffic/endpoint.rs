//! Sample endpoints: small HTTP servers that say who they are.
//!
//! An answer has `X-Endpoint: NAME`, `X-Endpoint-Requests: N` (the how-manieth on its connection) and, as its
//! body, the request line and headers as they arrived, header names in lower case. A request may ask for more: its
//! `Answer-Status` is the status, `Answer-Lines` how many headers `X-Line` there are, and any other `Answer-NAME` comes back
//! as a header `NAME`. With `Answer-Seen` the headers that
//! arrived come back as `Seen-NAME`, and the body is the request line alone.

use crate::wait::runtime;
use anyhow::{Context, Result, bail};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use socket2::{Domain, SockRef, Socket, Type};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// What an endpoint does with a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Behaviour {
    Ok,
    Status(u16),
    /// Answers the first so many requests with this status after this time, 200 then.
    Flaky(u16, u64, Duration),
    /// Answers 200 after this time.
    Slow(Duration),
    /// Takes requests and answers them, with 200, when it is told to do something else.
    Hold,
    /// Answers 200 with so many bytes more.
    Large(usize),
    /// Answers the first request of a connection and closes on the second without an answer.
    Stale,
    /// Takes the request and resets the connection.
    Reset,
    /// Takes the request and closes without an answer.
    Close,
    /// The port is taken but nobody listens: connections are refused.
    Refuse,
}

impl Behaviour {
    /// Reads `ok`, `status 500`, `flaky 500 2 0ms`, `slow 300ms`, `hold`, `large 100000`, `stale`, `reset`, `close` or `refuse`.
    pub fn parse(text: &str) -> Result<Self> {
        let words: Vec<_> = text.split_whitespace().collect();
        Ok(match words.as_slice() {
            [] | ["ok"] => Behaviour::Ok,
            ["status", code] => Behaviour::Status(code.parse()?),
            ["flaky", code, count, time] => {
                Behaviour::Flaky(code.parse()?, count.parse()?, milliseconds(time)?)
            }
            ["slow", time] => Behaviour::Slow(milliseconds(time)?),
            ["hold"] => Behaviour::Hold,
            ["large", bytes] => Behaviour::Large(bytes.parse()?),
            ["stale"] => Behaviour::Stale,
            ["reset"] => Behaviour::Reset,
            ["close"] => Behaviour::Close,
            ["refuse"] => Behaviour::Refuse,
            _ => bail!("unknown behaviour of an endpoint: {text}"),
        })
    }
}

fn milliseconds(text: &str) -> Result<Duration> {
    let ms = text.strip_suffix("ms").context("a time such as 300ms")?;
    Ok(Duration::from_millis(ms.parse()?))
}

/// A running endpoint; it stops when dropped.
pub struct Endpoint {
    pub name: String,
    pub address: SocketAddr,
    state: Arc<State>,
    accepting: Option<JoinHandle<()>>,
    // Keeps the port of an endpoint that refuses.
    _reserved: Option<Socket>,
}

struct State {
    name: String,
    behaviour: watch::Sender<Behaviour>,
    connections: AtomicU64,
    open: AtomicU64,
    requests: AtomicU64,
    /// Changes when connections are to be closed.
    closing: watch::Sender<()>,
}

impl Endpoint {
    /// One on IPv4 that answers 200.
    pub fn start(name: &str) -> Result<Self> {
        Self::with(name, Behaviour::Ok, Ipv4Addr::LOCALHOST.into())
    }

    /// One on a loopback address of either family.
    pub fn with(name: &str, behaviour: Behaviour, ip: IpAddr) -> Result<Self> {
        Self::at(name, behaviour, SocketAddr::new(ip, 0))
    }

    /// One on this port; 0: any.
    pub fn at(name: &str, behaviour: Behaviour, address: SocketAddr) -> Result<Self> {
        let domain = if address.is_ipv6() { Domain::IPV6 } else { Domain::IPV4 };
        let socket = Socket::new(domain, Type::STREAM, None)?;
        socket.bind(&address.into())?;
        let address = socket.local_addr()?.as_socket().context("an IP socket")?;
        let refuses = behaviour == Behaviour::Refuse;
        let state = Arc::new(State {
            name: name.into(),
            behaviour: watch::Sender::new(behaviour),
            connections: AtomicU64::new(0),
            open: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            closing: watch::Sender::new(()),
        });
        let mut endpoint = Endpoint {
            name: name.into(),
            address,
            state: state.clone(),
            accepting: None,
            _reserved: None,
        };
        if refuses {
            endpoint._reserved = Some(socket);
        } else {
            socket.listen(1024)?;
            socket.set_nonblocking(true)?;
            let _inside = runtime().enter();
            let listener = TcpListener::from_std(socket.into())?;
            endpoint.accepting = Some(runtime().spawn(accept(listener, state)));
        }
        Ok(endpoint)
    }

    pub fn ipv6(name: &str, behaviour: Behaviour) -> Result<Self> {
        Self::with(name, behaviour, Ipv6Addr::LOCALHOST.into())
    }

    /// Changes what it does from the next connection or request on; not to or from [`Behaviour::Refuse`].
    pub fn change(&self, behaviour: Behaviour) {
        let behaviour = match behaviour {
            Behaviour::Flaky(status, count, time) => {
                Behaviour::Flaky(status, self.requests() + count, time)
            }
            other => other,
        };
        self.state.behaviour.send_replace(behaviour);
    }

    pub fn connections(&self) -> u64 {
        self.state.connections.load(Ordering::SeqCst)
    }

    /// Connections that neither side has closed.
    pub fn open_connections(&self) -> u64 {
        self.state.open.load(Ordering::SeqCst)
    }

    /// Closes the connections that wait for a request, now; those with one when it is answered.
    pub fn close_idle(&self) {
        self.state.closing.send_replace(());
    }

    pub fn requests(&self) -> u64 {
        self.state.requests.load(Ordering::SeqCst)
    }

    /// As the native dialect writes it.
    pub fn native(&self) -> serde_json::Value {
        serde_json::json!({"address": self.address.ip(), "port": self.address.port()})
    }

    /// As ingress-nginx's dialect writes it.
    pub fn compatible(&self) -> serde_json::Value {
        serde_json::json!({
            "address": self.address.ip(), "port": self.address.port().to_string()
        })
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        if let Some(task) = self.accepting.take() {
            task.abort();
        }
    }
}

async fn accept(listener: TcpListener, state: Arc<State>) {
    // Dropped with this task, so that connections end with the endpoint.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    state.connections.fetch_add(1, Ordering::SeqCst);
                    state.open.fetch_add(1, Ordering::SeqCst);
                    let state = state.clone();
                    connections.spawn(async move {
                        serve(stream, &state).await;
                        state.open.fetch_sub(1, Ordering::SeqCst);
                    });
                }
                // Out of descriptors or an aborted connection: neither lasts.
                Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve(mut stream: TcpStream, state: &State) {
    let behaviour = state.behaviour();
    if matches!(behaviour, Behaviour::Reset | Behaviour::Close) {
        state.requests.fetch_add(1, Ordering::SeqCst);
        let _ = stream.read(&mut [0; 4096]).await;
        if behaviour == Behaviour::Reset {
            let _ = SockRef::from(&stream).set_linger(Some(Duration::ZERO));
        }
        return;
    }
    let _ = stream.set_nodelay(true);
    let on_connection = AtomicU64::new(0);
    let service = service_fn(|request| answer(request, state, &on_connection));
    let mut closing = state.closing.subscribe();
    let mut serving = std::pin::pin!(
        hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service)
    );
    tokio::select! {
        _ = &mut serving => return,
        _ = closing.changed() => serving.as_mut().graceful_shutdown(),
    }
    let _ = serving.await;
}

impl State {
    fn behaviour(&self) -> Behaviour {
        self.behaviour.borrow().clone()
    }

    /// The status of a connection's request of this number, when it is time to answer it. `seen` is the body.
    async fn status(&self, number: u64, seen: &mut String) -> Result<u16> {
        match self.behaviour() {
            Behaviour::Status(status) => return Ok(status),
            Behaviour::Flaky(status, count, time)
                if self.requests.load(Ordering::SeqCst) <= count =>
            {
                tokio::time::sleep(time).await;
                return Ok(status);
            }
            Behaviour::Slow(time) => tokio::time::sleep(time).await,
            Behaviour::Hold => {
                let mut behaviour = self.behaviour.subscribe();
                behaviour.wait_for(|behaviour| *behaviour != Behaviour::Hold).await?;
            }
            Behaviour::Large(bytes) => seen.extend(std::iter::repeat_n(' ', bytes)),
            // A kept-alive connection of an endpoint that has changed: an error ends it without an answer.
            Behaviour::Reset | Behaviour::Close => bail!("closed"),
            Behaviour::Stale if number > 1 => bail!("closed"),
            Behaviour::Ok | Behaviour::Stale | Behaviour::Flaky(..) | Behaviour::Refuse => {}
        }
        Ok(200)
    }
}

async fn answer(
    request: Request<Incoming>,
    state: &State,
    on_connection: &AtomicU64,
) -> Result<Response<Full<Bytes>>> {
    state.requests.fetch_add(1, Ordering::SeqCst);
    let number = on_connection.fetch_add(1, Ordering::SeqCst) + 1;
    let mut seen = format!("{} {} {:?}\n", request.method(), request.uri(), request.version());
    let mut answer = Response::builder();
    let mut asked_status = None;
    let tells_headers = request.headers().contains_key("answer-seen");
    for (name, value) in request.headers() {
        if tells_headers {
            answer = answer.header(format!("seen-{name}"), value);
        } else {
            seen += &format!("{name}: {}\n", String::from_utf8_lossy(value.as_bytes()));
        }
        match name.as_str().strip_prefix("answer-") {
            Some("status") => asked_status = value.to_str()?.parse().ok(),
            Some("lines") => {
                for number in 0..value.to_str()?.parse()? {
                    answer = answer.header("x-line", number);
                }
            }
            Some(name) => answer = answer.header(name, value),
            None => {}
        }
    }
    let body = request.into_body().collect().await?.to_bytes();
    if !body.is_empty() {
        seen += &format!("\n{}", String::from_utf8_lossy(&body));
    }
    let status = state.status(number, &mut seen).await?;
    if !answer.headers_ref().is_some_and(|headers| headers.contains_key("content-type")) {
        answer = answer.header("Content-Type", "text/plain");
    }
    Ok(answer
        .status(asked_status.unwrap_or(status))
        .header("X-Endpoint", &state.name)
        .header("X-Endpoint-Requests", number)
        .body(Full::new(seen.into()))?)
}
