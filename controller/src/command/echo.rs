//! A sample endpoint: answers each request with what it was.

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use tokio::net::TcpListener;

/// Serves until the process is ended.
pub async fn run(listen: SocketAddr, name: String) -> anyhow::Result<ExitCode> {
    let listener = TcpListener::bind(listen).await?;
    let name: Arc<str> = name.into();
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let name = name.clone();
        tokio::spawn(async move {
            let service = service_fn(|request| answer(&name, request));
            let server = hyper::server::conn::http1::Builder::new();
            // A client that hangs up is nobody's error here.
            let _ = server.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn answer(
    name: &str,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let mut text = format!("endpoint: {name}\n{} {}\n", request.method(), request.uri());
    for (header, value) in request.headers() {
        text.push_str(&format!("{header}: {}\n", String::from_utf8_lossy(value.as_bytes())));
    }
    let body = request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    if !body.is_empty() {
        text.push_str(&format!("\n{} bytes of body\n", body.len()));
    }
    Ok(Response::new(Full::new(text.into())))
}
