//! Health of this program, on its own port: ready means that a generation is live in nginx.

use crate::publish::client::Client;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;

/// How long nginx may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);

struct Health {
    path: String,
    socket: PathBuf,
}

/// Answers until the process ends.
pub async fn serve(listener: TcpListener, path: String, socket: PathBuf) {
    let health = Arc::new(Health { path, socket });
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Out of file descriptors, mostly: trying again at once would only burn the CPU.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let health = health.clone();
        tokio::spawn(async move {
            let service = service_fn(|request| health.answer(request));
            let mut server = hyper::server::conn::http1::Builder::new();
            server.timer(TokioTimer::new()).header_read_timeout(Duration::from_secs(10));
            // A client that hangs up is nobody's error here.
            let _ = server.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

impl Health {
    async fn answer(
        &self,
        request: Request<Incoming>,
    ) -> Result<Response<Full<Bytes>>, Infallible> {
        let below = request.uri().path().strip_prefix(&self.path);
        let (status, text) = match below {
            Some("" | "/ping" | "/nginx-ingress-controller") => self.check().await,
            _ => (StatusCode::NOT_FOUND, "not found".into()),
        };
        let mut response = Response::new(Full::new(Bytes::from(text)));
        *response.status_mut() = status;
        Ok(response)
    }

    async fn check(&self) -> (StatusCode, String) {
        let sick = |why: String| (StatusCode::INTERNAL_SERVER_ERROR, why);
        let mut client = Client::new(self.socket.clone());
        match tokio::time::timeout(PATIENCE, client.status()).await {
            Ok(Ok(status)) if status.generation == 0 => sick("no generation is live yet".into()),
            Ok(Ok(_)) => (StatusCode::OK, "ok".into()),
            Ok(Err(error)) => sick(format!("nginx: {error}")),
            Err(_) => sick(format!("nginx does not answer within {} s", PATIENCE.as_secs())),
        }
    }
}
