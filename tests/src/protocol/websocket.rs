//! WebSocket: tungstenite's client, and an endpoint.

use super::{Listener, Stream, Tls};
use crate::certificate::Certificate;
use crate::client::{TIMEOUT, tcp};
use crate::session;
use anyhow::{Context, Result, bail};
use futures_util::{SinkExt, StreamExt};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::handshake::client::Response;
use tokio_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request};
use tokio_tungstenite::tungstenite::{self, Message, client::IntoClientRequest};
use tokio_tungstenite::{WebSocketStream, accept_hdr_async, client_async};

/// An endpoint that answers `NAME: text` to a text, and bytes backwards. `/refused` is no WebSocket: 403.
pub struct WebSocketEndpoint {
    /// Where it is, and what it counts.
    pub listener: Listener,
    heads: Arc<Mutex<Vec<String>>>,
}

impl WebSocketEndpoint {
    pub fn start(name: &str) -> Result<Self> {
        Self::with(name, Tls::Off)
    }

    pub fn tls(name: &str, certificate: &Certificate) -> Result<Self> {
        Self::with(name, Tls::On(certificate))
    }

    fn with(name: &str, tls: Tls<'_>) -> Result<Self> {
        let heads = Arc::new(Mutex::new(Vec::new()));
        let (name, seen): (Arc<str>, _) = (name.into(), heads.clone());
        let listener =
            Listener::start(tls, move |stream| serve(stream, name.clone(), seen.clone()))?;
        Ok(WebSocketEndpoint { listener, heads })
    }

    /// The head of the last handshake: a header a line.
    pub fn last_head(&self) -> String {
        self.heads
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .last()
            .cloned()
            .unwrap_or_default()
    }
}

pub(super) async fn serve(
    stream: Box<dyn Stream>,
    name: Arc<str>,
    heads: Arc<Mutex<Vec<String>>>,
) -> Result<()> {
    #[allow(clippy::result_large_err, reason = "tungstenite's own types")]
    let look = |request: &Request, response| {
        let mut head = format!("{} {}\n", request.method(), request.uri());
        for (name, value) in request.headers() {
            head += &format!("{name}: {}\n", String::from_utf8_lossy(value.as_bytes()));
        }
        heads.lock().unwrap_or_else(PoisonError::into_inner).push(head);
        match request.uri().path() {
            "/refused" => {
                let mut refusal = ErrorResponse::new(Some("not you".into()));
                *refusal.status_mut() = hyper::StatusCode::FORBIDDEN;
                Err(refusal)
            }
            _ => Ok(response),
        }
    };
    let mut socket = accept_hdr_async(stream, look).await?;
    while let Some(message) = socket.next().await {
        match message? {
            Message::Text(text) => socket.send(Message::text(format!("{name}: {text}"))).await?,
            Message::Binary(bytes) => {
                let backwards: Vec<u8> = bytes.iter().rev().copied().collect();
                socket.send(Message::binary(backwards)).await?;
            }
            _ => {}
        }
    }
    Ok(())
}

pub struct WebSocket {
    socket: WebSocketStream<Box<dyn Stream>>,
    /// What the handshake was answered with.
    pub response: Response,
}

impl WebSocket {
    /// Opens one; over TLS if `is_tls`. An answer that is no upgrade is an error with its status.
    pub async fn open(address: SocketAddr, is_tls: bool, host: &str, path: &str) -> Result<Self> {
        let stream = tcp(address).await?;
        let stream: Box<dyn Stream> = match is_tls {
            false => Box::new(stream),
            true => Box::new(session::handshake(stream, Some(host)).await?.0),
        };
        let request = format!("ws://{host}{path}").into_client_request()?;
        match timeout(TIMEOUT, client_async(request, stream)).await.context("no handshake")? {
            Ok((socket, response)) => Ok(WebSocket { socket, response }),
            Err(tungstenite::Error::Http(response)) => bail!("status {}", response.status()),
            Err(error) => Err(error.into()),
        }
    }

    /// Sends a text and waits for the answer.
    pub async fn ask(&mut self, text: &str) -> Result<String> {
        self.socket.send(Message::text(text)).await?;
        Ok(self.receive().await?.into_text()?.to_string())
    }

    pub async fn ask_bytes(&mut self, bytes: &[u8]) -> Result<Vec<u8>> {
        self.socket.send(Message::binary(bytes.to_vec())).await?;
        Ok(self.receive().await?.into_data().to_vec())
    }

    /// The next message; an error when the other side has gone.
    pub async fn receive(&mut self) -> Result<Message> {
        let message = timeout(TIMEOUT, self.socket.next()).await.context("no message in time")?;
        Ok(message.context("the connection is closed")??)
    }

    /// Closes it as the protocol wants.
    pub async fn close(mut self) -> Result<()> {
        self.socket.close(None).await?;
        while let Some(message) = timeout(TIMEOUT, self.socket.next()).await? {
            message?;
        }
        Ok(())
    }
}
