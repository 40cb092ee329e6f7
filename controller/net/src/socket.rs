//! One `GET` over a unix socket of nginx.

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1::handshake;
use hyper::header::HOST;
use hyper::{Request, StatusCode};
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
    let stream = UnixStream::connect(socket).await?;
    let (mut sender, connection) = handshake(TokioIo::new(stream)).await?;
    // Whatever ends it, the answer says so.
    tokio::spawn(async move { drop(connection.await) });
    let request = Request::get(target).header(HOST, "localhost").body(Empty::<Bytes>::new())?;
    let answer = sender.send_request(request).await?;
    let status = answer.status();
    let body = Limited::new(answer.into_body(), MAX_BYTES).collect().await;
    let body = body.map_err(|error| anyhow::anyhow!("{error}"))?.to_bytes();
    match status {
        StatusCode::OK => Ok(body),
        _ => Err(Refusal(status, String::from_utf8_lossy(&body).into_owned()).into()),
    }
}
