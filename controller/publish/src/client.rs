//! HTTP over the unix socket of the configuration endpoint.

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{CONTENT_TYPE, HOST, IF_MATCH, RETRY_AFTER};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use oxigress_core::wire::native::Status;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::sync::Notify;

/// Longest answer that is read: a status with every worker slot is far below.
const MAX_ANSWER_BYTES: usize = 16 * 1024 * 1024;
/// nginx gives a body 30 s to arrive, and builds the largest in a few.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Why there is no answer. A write may have been applied all the same.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody listens on the socket.
    #[error("cannot connect to {socket:?}: {error}")]
    Connect {
        /// The path of the socket.
        socket: PathBuf,
        /// The error of the system.
        error: io::Error,
    },
    /// The connection broke before the answer was complete.
    #[error("{0}")]
    Broken(#[from] hyper::Error),
    /// The answer is longer than any of ours.
    #[error("the answer cannot be read: {0}")]
    Answer(String),
    /// No answer came in time.
    #[error("no answer within {} s", TIMEOUT.as_secs())]
    Timeout,
}

/// An answer of the configuration endpoint.
#[derive(Debug)]
pub struct Response {
    /// The status of the answer.
    pub status: StatusCode,
    /// When to ask again, of an nginx that cannot answer now.
    pub retry_after: Option<Duration>,
    /// The body of the answer.
    pub body: Bytes,
}

/// One connection, made anew when it is gone.
pub struct Client {
    socket: PathBuf,
    sender: Option<SendRequest<Full<Bytes>>>,
    closed: Arc<Notify>,
}

impl Client {
    /// Makes a client that connects when it is first used.
    pub fn new(socket: PathBuf) -> Self {
        Client { socket, sender: None, closed: Arc::new(Notify::new()) }
    }

    /// Told when the connection ends, which is how a dead nginx is noticed at once.
    pub fn closed(&self) -> Arc<Notify> {
        self.closed.clone()
    }

    /// Sends one request to `/configuration`.
    pub async fn send(
        &mut self,
        method: Method,
        if_match: Option<&str>,
        body: Bytes,
    ) -> Result<Response, ClientError> {
        let attempt = self.try_send(method, if_match, body);
        match tokio::time::timeout(TIMEOUT, attempt).await {
            Ok(Ok(answer)) => {
                // A worker that leaves says so for as long as it is asked; a new connection finds another. And a refusal
                // may come before a large body was sent: hyper then waits for its end, and nginx for the next request.
                if !answer.status.is_success() {
                    self.sender = None;
                }
                Ok(answer)
            }
            Ok(Err(error)) => {
                self.sender = None;
                Err(error)
            }
            Err(_) => {
                self.sender = None;
                Err(ClientError::Timeout)
            }
        }
    }

    async fn try_send(
        &mut self,
        method: Method,
        if_match: Option<&str>,
        body: Bytes,
    ) -> Result<Response, ClientError> {
        let mut request = Request::builder()
            .method(method)
            .uri("/configuration")
            .header(HOST, "localhost")
            .header(CONTENT_TYPE, "application/json");
        if let Some(value) = if_match {
            request = request.header(IF_MATCH, value);
        }
        let request = request.body(Full::new(body));
        let request = request.map_err(|error| ClientError::Answer(error.to_string()))?;
        let answer = self.connected().await?.send_request(request).await?;
        let status = answer.status();
        let retry_after = answer.headers().get(RETRY_AFTER);
        let retry_after = retry_after.and_then(|value| value.to_str().ok()?.parse().ok());
        let retry_after = retry_after.map(Duration::from_secs);
        let body = Limited::new(answer.into_body(), MAX_ANSWER_BYTES).collect().await;
        let body = body.map_err(|error| ClientError::Answer(error.to_string()))?;
        Ok(Response { status, retry_after, body: body.to_bytes() })
    }

    async fn connected(&mut self) -> Result<&mut SendRequest<Full<Bytes>>, ClientError> {
        let kept = match self.sender.take() {
            Some(mut sender) => sender.ready().await.is_ok().then_some(sender),
            None => None,
        };
        let sender = match kept {
            Some(sender) => sender,
            None => self.connect().await?,
        };
        Ok(self.sender.insert(sender))
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, ClientError> {
        let stream = UnixStream::connect(&self.socket)
            .await
            .map_err(|error| ClientError::Connect { socket: self.socket.clone(), error })?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        let closed = self.closed.clone();
        tokio::spawn(async move {
            // Whatever ended it, the next request makes a new one.
            let _ = connection.await;
            closed.notify_one();
        });
        Ok(sender)
    }

    /// Asks for the state by `GET /configuration`.
    pub async fn status(&mut self) -> Result<Status, ClientError> {
        let answer = self.send(Method::GET, None, Bytes::new()).await?;
        if answer.status != StatusCode::OK {
            return Err(ClientError::Answer(format!("status {}", answer.status)));
        }
        serde_json::from_slice(&answer.body).map_err(|error| ClientError::Answer(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::UnixListener;

    #[tokio::test]
    async fn after_a_503_another_connection_is_tried() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("s");
        let listener = UnixListener::bind(&socket).unwrap();
        // A worker that leaves says 503 for as long as it is asked; the one behind it says 200.
        tokio::spawn(async move {
            for head in ["503 Busy\r\nRetry-After: 7", "200 OK"] {
                let (mut stream, _) = listener.accept().await.unwrap();
                tokio::spawn(async move {
                    while stream.read(&mut [0; 4096]).await.unwrap_or(0) > 0 {
                        let answer = format!("HTTP/1.1 {head}\r\nContent-Length: 2\r\n\r\n{{}}");
                        stream.write_all(answer.as_bytes()).await.unwrap();
                    }
                });
            }
        });
        let mut client = Client::new(socket);
        let answer = client.send(Method::GET, None, Bytes::new()).await.unwrap();
        assert_eq!(
            (answer.status.as_u16(), answer.retry_after),
            (503, Some(Duration::from_secs(7)))
        );
        for _ in 0..3 {
            let answer = client.send(Method::GET, None, Bytes::new()).await.unwrap();
            assert_eq!((answer.status.as_u16(), answer.retry_after), (200, None));
        }
    }
}
