//! An HTTP/2 client, and streams of either side as bytes.

use super::Stream;
use crate::client::{TIMEOUT, tcp};
use anyhow::{Context, Result, bail, ensure};
use h2::client::SendRequest;
use h2::{RecvStream, SendStream};
use hyper::body::Bytes;
use hyper::header::HeaderMap;
use hyper::{Method, Request, Response};
use openssl::ssl::{SslConnector, SslMethod, SslVerifyMode};
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::Pin;
use tokio::time::timeout;
use tokio_openssl::SslStream;

/// A connection; clones share it.
#[derive(Clone)]
pub struct Client {
    sender: SendRequest<Bytes>,
    scheme: &'static str,
}

impl Client {
    /// Over TLS when there is a server name, which must choose `h2`; otherwise with prior knowledge.
    pub async fn connect(address: SocketAddr, name: Option<&str>) -> Result<Self> {
        let stream = tcp(address).await?;
        let (stream, scheme): (Box<dyn Stream>, _) = match name {
            None => (Box::new(stream), "http"),
            Some(name) => {
                let mut connector = SslConnector::builder(SslMethod::tls_client())?;
                connector.set_verify(SslVerifyMode::NONE);
                connector.set_alpn_protos(b"\x02h2")?;
                let ssl = connector.build().configure()?.verify_hostname(false).into_ssl(name)?;
                let mut stream = SslStream::new(ssl, stream)?;
                timeout(TIMEOUT, Pin::new(&mut stream).connect()).await??;
                ensure!(
                    stream.ssl().selected_alpn_protocol() == Some(b"h2"),
                    "the server did not choose h2"
                );
                (Box::new(stream), "https")
            }
        };
        let (sender, connection) = h2::client::handshake(stream).await?;
        tokio::spawn(async move {
            // What went wrong is also told to the streams.
            let _ = connection.await;
        });
        Ok(Client { sender, scheme })
    }

    /// Opens a stream; `is_all`: no body follows.
    pub async fn open(
        &self,
        method: Method,
        host: &str,
        path: &str,
        headers: &[(&str, &str)],
        is_all: bool,
    ) -> Result<(Answering, SendStream<Bytes>)> {
        let uri = format!("{}://{host}{path}", self.scheme);
        let mut request =
            Request::builder().method(method).uri(uri).version(hyper::Version::HTTP_2);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let sender = timeout(TIMEOUT, self.sender.clone().ready()).await??;
        let (answer, body) = { sender }.send_request(request.body(())?, is_all)?;
        Ok((Answering(Box::pin(answer)), body))
    }

    /// A request with a body, and its whole answer.
    pub async fn send(
        &self,
        method: Method,
        host: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Result<Answer> {
        let body = body.into();
        let (answer, mut sender) = self.open(method, host, path, headers, body.is_empty()).await?;
        if !body.is_empty() {
            // An answer may come before all is sent, and the stream be closed for the rest.
            let sent = tokio::spawn(async move { send(&mut sender, body, true).await });
            let answer = answer.whole().await;
            sent.abort();
            return answer;
        }
        answer.whole().await
    }
}

/// An answer that has not come yet.
pub struct Answering(Pin<Box<dyn Future<Output = Result<Response<RecvStream>, h2::Error>> + Send>>);

impl Answering {
    pub async fn head(self) -> Result<Response<RecvStream>> {
        Ok(timeout(TIMEOUT, self.0).await.context("no answer in time")??)
    }

    pub async fn whole(self) -> Result<Answer> {
        let (head, mut stream) = self.head().await?.into_parts();
        let mut body = Vec::new();
        while let Some(bytes) = receive(&mut stream).await? {
            body.extend_from_slice(&bytes);
        }
        let trailers = trailers(&mut stream).await?;
        Ok(Answer { status: head.status.as_u16(), headers: head.headers, body, trailers })
    }
}

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
    /// The trailers, which come after the body.
    pub trailers: HeaderMap,
}

impl Answer {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// The next bytes of a stream, which gets room for as many more.
pub async fn receive(stream: &mut RecvStream) -> Result<Option<Bytes>> {
    let Some(bytes) = timeout(TIMEOUT, stream.data()).await.context("nothing came")? else {
        return Ok(None);
    };
    let bytes = match bytes {
        Err(error) if is_done(&error) => return Ok(None),
        bytes => bytes?,
    };
    stream.flow_control().release_capacity(bytes.len())?;
    Ok(Some(bytes))
}

/// What came behind the bytes.
pub async fn trailers(stream: &mut RecvStream) -> Result<HeaderMap> {
    match timeout(TIMEOUT, stream.trailers()).await.context("nothing came")? {
        Err(error) if is_done(&error) => Ok(HeaderMap::new()),
        trailers => Ok(trailers?.unwrap_or_default()),
    }
}

/// After a whole answer a server may ask for no more of the request (RFC 9113 §8.1).
fn is_done(error: &h2::Error) -> bool {
    error.is_remote() && error.reason() == Some(h2::Reason::NO_ERROR)
}

/// Sends bytes as the other side makes room for them.
pub async fn send(stream: &mut SendStream<Bytes>, mut bytes: Bytes, is_last: bool) -> Result<()> {
    while !bytes.is_empty() {
        stream.reserve_capacity(bytes.len());
        let granted = timeout(TIMEOUT, poll_fn(|cx| stream.poll_capacity(cx)));
        let Some(granted) = granted.await.context("no room to send")? else {
            bail!("the stream is closed");
        };
        let part = bytes.split_to(granted?.min(bytes.len()));
        let is_end = is_last && bytes.is_empty();
        stream.send_data(part, is_end)?;
        if is_end {
            return Ok(());
        }
    }
    if is_last {
        stream.send_data(Bytes::new(), true)?;
    }
    Ok(())
}
