//! Health and metrics of this program, on their own port: ready means that a generation is live in nginx and that every
//! worker has started.
//!
//! Anybody who reaches the port may ask, so whatever is asked at once costs one answer ([`Latest`]), and connections
//! are bounded ([`BOUNDS`]): a probe gets through while others hold as many connections as they like.

use crate::metrics::Metrics;
use crate::metrics::latest::Latest;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use oxigress_core::wire::native::Status;
use oxigress_net::connections::{self, Bounds, ConnectionSlot, PROXIED};
use oxigress_publish::client::Client;
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};

/// How long nginx may take to answer.
const TIMEOUT: Duration = Duration::from_secs(2);

/// A kubelet and a few Prometheus servers have a handful each.
const BOUNDS: Bounds = Bounds { all: 128, of_client: 32, idle: Duration::from_secs(10) };

struct Health {
    path: String,
    socket: PathBuf,
    metrics: Metrics,
    is_leaving: Arc<AtomicBool>,
    text: Latest<Bytes>,
    check: Latest<(StatusCode, String)>,
}

/// Answers until the process ends; not ready once `is_leaving`.
pub async fn serve(
    listener: TcpListener,
    path: String,
    socket: PathBuf,
    metrics: Metrics,
    is_leaving: Arc<AtomicBool>,
) {
    let (text, check) = (Latest::new(Duration::ZERO), Latest::new(Duration::ZERO));
    let health = Arc::new(Health { path, socket, metrics, is_leaving, text, check });
    let converse = move |stream, slot| converse(stream, slot, health.clone());
    connections::serve(listener, BOUNDS, converse).await;
}

async fn converse(stream: TcpStream, slot: Arc<ConnectionSlot>, health: Arc<Health>) {
    let service = service_fn(|request| async {
        let _work = slot.work();
        health.answer(request).await
    });
    // A client that hangs up is nobody's error here.
    let _ = connections::converse(stream, service).await;
}

impl Health {
    async fn answer(
        &self,
        request: Request<Incoming>,
    ) -> Result<Response<Full<Bytes>>, Infallible> {
        if connections::is_proxied(request.headers()) {
            let mut response = Response::new(Full::new(Bytes::from_static(PROXIED.as_bytes())));
            *response.status_mut() = StatusCode::FORBIDDEN;
            return Ok(response);
        }
        if request.uri().path() == "/metrics" {
            let text = self.text.get(async { Bytes::from(self.metrics.text().await) }).await;
            let mut response = Response::new(Full::new(text));
            let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
            response.headers_mut().insert(CONTENT_TYPE, kind);
            return Ok(response);
        }
        let below = request.uri().path().strip_prefix(&self.path);
        let (status, text) = match below {
            Some("" | "/ping" | "/nginx-ingress-controller") => self.check.get(self.check()).await,
            // Of this program alone, for who would start it again.
            Some("/alive") => (StatusCode::OK, "ok".into()),
            _ => (StatusCode::NOT_FOUND, "not found".into()),
        };
        let mut response = Response::new(Full::new(Bytes::from(text)));
        *response.status_mut() = status;
        Ok(response)
    }

    async fn check(&self) -> (StatusCode, String) {
        if self.is_leaving.load(Ordering::Relaxed) {
            return (StatusCode::INTERNAL_SERVER_ERROR, "shutting down".into());
        }
        let mut client = Client::new(self.socket.clone());
        let found = match tokio::time::timeout(TIMEOUT, client.status()).await {
            Ok(Ok(status)) => is_ready(&status),
            Ok(Err(error)) => Err(format!("nginx: {error}")),
            Err(_) => Err(format!("nginx does not answer within {} s", TIMEOUT.as_secs())),
        };
        match found {
            Ok(()) => (StatusCode::OK, "ok".into()),
            Err(why) => (StatusCode::INTERNAL_SERVER_ERROR, why),
        }
    }
}

/// What nginx says decides, and nothing else: neither a folder that cannot be read nor a refused write makes it
/// serve worse than before.
fn is_ready(status: &Status) -> Result<(), String> {
    let (started, all) = (status.workers.len(), status.worker_processes);
    match status.generation {
        0 => Err("no generation is live yet".into()),
        _ if started < all => Err(format!("{started} of nginx's {all} workers have started")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use oxigress_core::wire::native::WorkerStatus;

    #[test]
    fn ready_means_a_live_generation_and_all_workers_whatever_the_last_write_was() {
        let workers = vec![WorkerStatus::default(); 2];
        let last_error = Some("507".into());
        let ready =
            Status { generation: 1, worker_processes: 2, workers, last_error, ..Status::default() };
        assert_eq!(is_ready(&ready), Ok(()));
        assert!(is_ready(&Status { generation: 0, ..ready.clone() }).is_err());
        let error = is_ready(&Status { worker_processes: 3, ..ready.clone() }).unwrap_err();
        assert_eq!(error, "2 of nginx's 3 workers have started");
        // A reload: the old ones are still there. An nginx that does not say how many it wants.
        assert_eq!(is_ready(&Status { worker_processes: 1, ..ready.clone() }), Ok(()));
        assert_eq!(is_ready(&Status { worker_processes: 0, ..ready }), Ok(()));
    }
}
