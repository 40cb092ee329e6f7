//! A gateway: where it listens, and how it is asked.

use crate::answer::{Answer, Certificate};
use crate::requests::Request;
use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::sha::Sha256;
use openssl::ssl::{SslConnector, SslMethod, SslVerifyMode};
use std::fmt;
use std::pin::Pin;
use std::str::FromStr;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_openssl::SslStream;

/// So much of a body is compared: a longer one is cut off here on both sides.
const MAX_BODY_BYTES: usize = 16 << 20;

/// Where a gateway listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gateway {
    /// The address or the name of the gateway.
    pub host: String,
    /// The port of plain requests.
    pub http_port: u16,
    /// The port on which the gateway speaks TLS.
    pub https_port: u16,
}

/// The text names no gateway.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is no gateway: write ADDRESS, ADDRESS:HTTP_PORT or ADDRESS:HTTP_PORT:HTTPS_PORT")]
pub struct GatewayError(String);

impl FromStr for Gateway {
    type Err = GatewayError;

    fn from_str(text: &str) -> Result<Self, GatewayError> {
        let wrong = || GatewayError(text.to_owned());
        let bare = text.strip_prefix("http://").unwrap_or(text).trim_end_matches('/');
        let (host, ports) = match bare.strip_prefix('[') {
            Some(rest) => rest.split_once(']').ok_or_else(wrong)?,
            None => bare.split_at(bare.find(':').unwrap_or(bare.len())),
        };
        let mut numbers = [80, 443];
        let ports = ports.strip_prefix(':').unwrap_or(ports);
        let given: Vec<&str> = ports.split(':').filter(|port| !port.is_empty()).collect();
        if host.is_empty() || host.contains('/') || given.len() > 2 {
            return Err(wrong());
        }
        for (number, port) in numbers.iter_mut().zip(given) {
            *number = port.parse().map_err(|_| wrong())?;
        }
        let [http_port, https_port] = numbers;
        Ok(Gateway { host: host.to_owned(), http_port, https_port })
    }
}

impl fmt::Display for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Gateway { host, http_port, https_port } = self;
        match host.contains(':') {
            true => write!(f, "[{host}]:{http_port}:{https_port}"),
            false => write!(f, "{host}:{http_port}:{https_port}"),
        }
    }
}

trait Stream: AsyncRead + AsyncWrite + Send {}
impl<T: AsyncRead + AsyncWrite + Send> Stream for T {}

impl Gateway {
    /// The answer to a request on a connection of its own; a text says why there is none.
    pub async fn ask(
        &self,
        request: &Request,
        headers: &[(String, String)],
        timeout: Duration,
    ) -> Result<Answer, String> {
        match tokio::time::timeout(timeout, self.exchange(request, headers)).await {
            Ok(answer) => answer,
            Err(_) => Err(format!("no answer within {} s", timeout.as_secs_f32())),
        }
    }

    /// Whether somebody listens there.
    pub async fn connect(&self, is_https: bool) -> Result<TcpStream, String> {
        let port = if is_https { self.https_port } else { self.http_port };
        let stream = TcpStream::connect((self.host.as_str(), port)).await;
        stream.map_err(|error| format!("port {port}: {error}"))
    }

    async fn exchange(
        &self,
        request: &Request,
        headers: &[(String, String)],
    ) -> Result<Answer, String> {
        let stream = self.connect(request.is_https).await?;
        let (stream, certificate): (Pin<Box<dyn Stream>>, _) = match request.is_https {
            false => (Box::pin(stream), None),
            true => {
                let stream = handshake(stream, request.host_name()).await?;
                let certificate = certificate(&stream);
                (Box::pin(stream), certificate)
            }
        };
        let begun = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = begun.map_err(|error| error.to_string())?;
        let exchange = async {
            let mut head = http::Request::builder()
                .method(request.method.as_str())
                .uri(request.target.as_str())
                .header("Host", &request.host)
                .header("User-Agent", "oxigress-compare")
                .header("Accept", "*/*");
            for (name, value) in headers {
                head = head.header(name, value);
            }
            let head = head.body(Empty::<Bytes>::new()).map_err(|error| error.to_string())?;
            let response = sender.send_request(head).await.map_err(|error| error.to_string())?;
            read(response, certificate).await
        };
        tokio::pin!(connection);
        tokio::pin!(exchange);
        tokio::select! {
            answer = &mut exchange => answer,
            ended = &mut connection => match ended {
                // The rest of the answer may already be there.
                Ok(()) => exchange.await,
                Err(error) => Err(error.to_string()),
            },
        }
    }
}

async fn handshake(stream: TcpStream, name: &str) -> Result<SslStream<TcpStream>, String> {
    let wrong = |error: openssl::error::ErrorStack| error.to_string();
    let mut builder = SslConnector::builder(SslMethod::tls_client()).map_err(wrong)?;
    builder.set_verify(SslVerifyMode::NONE);
    builder.set_alpn_protos(b"\x08http/1.1").map_err(wrong)?;
    let mut configuration = builder.build().configure().map_err(wrong)?;
    configuration.set_verify_hostname(false);
    configuration.set_use_server_name_indication(name.parse::<std::net::IpAddr>().is_err());
    let ssl = configuration.into_ssl(name).map_err(wrong)?;
    let mut stream = SslStream::new(ssl, stream).map_err(wrong)?;
    match Pin::new(&mut stream).connect().await {
        Ok(()) => Ok(stream),
        Err(error) => Err(format!("TLS: {error}")),
    }
}

fn certificate(stream: &SslStream<TcpStream>) -> Option<Certificate> {
    let certificate = stream.ssl().peer_certificate()?;
    let digest = certificate.digest(MessageDigest::sha256()).ok()?;
    let mut names = certificate.subject_name().entries_by_nid(Nid::COMMONNAME);
    let name = names.next().and_then(|entry| entry.data().to_string().ok());
    let name = name.unwrap_or_default();
    Some(Certificate { name, digest: hex(&digest) })
}

async fn read(
    response: http::Response<hyper::body::Incoming>,
    certificate: Option<Certificate>,
) -> Result<Answer, String> {
    let (head, mut body) = response.into_parts();
    let mut digest = Sha256::new();
    let mut length = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| format!("the body breaks off: {error}"))?;
        if let Some(data) = frame.data_ref() {
            let room = MAX_BODY_BYTES.saturating_sub(length).min(data.len());
            digest.update(data.get(..room).unwrap_or_default());
            length += room;
            if length == MAX_BODY_BYTES {
                break;
            }
        }
    }
    let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let headers = head.headers.iter().map(|(name, value)| (name.as_str().to_owned(), text(value)));
    Ok(Answer {
        status: head.status.as_u16(),
        headers: headers.collect(),
        body: format!("{length} bytes, sha256 {}", &hex(&digest.finish())[..16]),
        certificate,
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gateway_is_an_address_with_up_to_two_ports() {
        for (text, expected) in [
            ("10.0.0.1", "10.0.0.1:80:443"),
            ("gateway.test:8080", "gateway.test:8080:443"),
            ("127.0.0.1:8080:8443", "127.0.0.1:8080:8443"),
            ("[::1]:8080:8443", "[::1]:8080:8443"),
            ("http://10.0.0.1/", "10.0.0.1:80:443"),
        ] {
            let gateway: Gateway = text.parse().unwrap();
            assert_eq!(gateway.to_string(), expected, "{text}");
        }
        for text in ["", ":80", "a:b", "a:1:2:3", "https://a/b", "[::1"] {
            assert!(text.parse::<Gateway>().is_err(), "{text}");
        }
    }
}
