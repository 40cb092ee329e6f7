//! One request over a unix socket of nginx.

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1::handshake;
use hyper::header::HOST;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use std::path::Path;
use tokio::net::UnixStream;

/// Longest answer of nginx: the metrics of 10,000 busy paths are some 300 MB.
const MAX_BYTES: usize = 512 << 20;

/// An answer with another status than 200.
#[derive(Debug, thiserror::Error)]
#[error("{0}: {1}")]
pub struct Refusal(pub StatusCode, pub String);

/// The body of an answer with status 200; another one is a [`Refusal`].
pub async fn get(socket: &Path, target: &str) -> anyhow::Result<Bytes> {
    send(socket, Method::GET, target).await.map(Response::into_body)
}

/// The answer with status 200 to a `POST` without a body; another one is a [`Refusal`].
pub async fn post(socket: &Path, target: &str) -> anyhow::Result<Response<Bytes>> {
    send(socket, Method::POST, target).await
}

async fn send(socket: &Path, method: Method, target: &str) -> anyhow::Result<Response<Bytes>> {
    let stream = UnixStream::connect(socket).await?;
    let (mut sender, connection) = handshake(TokioIo::new(stream)).await?;
    // Whatever ends it, the answer says so.
    tokio::spawn(async move { drop(connection.await) });
    let request = Request::builder().method(method).uri(target).header(HOST, "localhost");
    let answer = sender.send_request(request.body(Empty::<Bytes>::new())?).await?;
    let (head, body) = answer.into_parts();
    let body = Limited::new(body, MAX_BYTES).collect().await;
    let body = body.map_err(|error| anyhow::anyhow!("{error}"))?.to_bytes();
    match head.status {
        StatusCode::OK => Ok(Response::from_parts(head, body)),
        status => Err(Refusal(status, String::from_utf8_lossy(&body).into_owned()).into()),
    }
}
