//! `GET /metrics`, under ingress-nginx's names: what the module counted, what this program knows, and what the
//! kernel knows about nginx.
//!
//! Errors:  a part that cannot be had is left out, with a line in the log: the others are still worth having.
//! Source:  ingress-nginx's controller.

pub(super) mod latest;
mod live;
mod own;
mod process;

pub use live::ChangeToLive;
pub use own::{Scrape, pace, source, text};

use crate::flags::Flags;
use crate::metrics::latest::Latest;
use hyper::body::Bytes;
use oxigress_admission::Checks;
use oxigress_core::telemetry::metrics::Options;
use oxigress_net::socket::get;
use oxigress_status::Leadership;
use oxigress_supervisor::runtime::Runtime;
use oxigress_telemetry::Counts;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// How long it counts what the controller's loop has told, which everybody's changes wait for meanwhile.
const KEPT: Duration = Duration::from_secs(1);

/// Collects the text of `/metrics` from the controller, nginx and this process.
pub struct Metrics {
    /// Without it nothing is known but this process.
    is_enabled: bool,
    options: Options,
    configuration: PathBuf,
    status: PathBuf,
    pid_file: PathBuf,
    controller: mpsc::Sender<Scrape>,
    /// What the controller's loop has told.
    own: Latest<Bytes>,
    checks: Arc<Checks>,
    spans: Arc<Counts>,
    /// The Lease's name, and whether it is ours.
    election: Option<(String, Leadership)>,
}

impl Metrics {
    /// The controller answers what is sent to the receiver.
    pub fn new(
        flags: &Flags,
        runtime: &Runtime,
        checks: Arc<Checks>,
        spans: Arc<Counts>,
    ) -> (Self, mpsc::Receiver<Scrape>) {
        let (controller, scrapes) = mpsc::channel(1);
        let [configuration, status] = runtime.sockets();
        let metrics = Metrics {
            is_enabled: flags.metrics.enable_metrics,
            options: flags.metrics.options(constant(flags)),
            configuration,
            status,
            pid_file: runtime.file("nginx.pid"),
            controller,
            own: Latest::new(KEPT),
            checks,
            spans,
            election: None,
        };
        (metrics, scrapes)
    }

    /// Tells also whether this replica leads.
    pub fn with_election(mut self, lease: &str, leadership: Option<Leadership>) -> Self {
        self.election = leadership.map(|leadership| (lease.to_owned(), leadership));
        self
    }

    /// What the controller tells; nothing, if its loop has ended.
    async fn scrape(&self) -> Bytes {
        let (reply, own) = oneshot::channel();
        let scrape = Scrape { constant: self.options.constant.clone(), reply };
        match self.controller.send(scrape).await {
            Ok(()) => own.await.unwrap_or_default().into(),
            Err(_) => Bytes::new(),
        }
    }

    /// Collects all metrics in the text format of Prometheus.
    pub async fn text(&self) -> Vec<u8> {
        let mut out = process::this().unwrap_or_default().into_bytes();
        if !self.is_enabled {
            return out;
        }
        out.extend(self.own.get(self.scrape()).await);
        out.extend(self.checks.text(&self.options.constant).into_bytes());
        out.extend(self.spans.text(&self.options.constant).into_bytes());
        if let Some((lease, leadership)) = &self.election {
            let own = own::leadership(lease, leadership.is_held(), &self.options.constant);
            out.extend(own.into_bytes());
        }
        if let Some(nginx) = process::nginx(&self.pid_file, &self.options.constant) {
            out.extend(nginx.into_bytes());
        }
        match get(&self.status, "/nginx_status").await {
            Ok(page) => out.extend(
                process::connections(&String::from_utf8_lossy(&page), &self.options.constant)
                    .unwrap_or_default()
                    .into_bytes(),
            ),
            Err(error) => tracing::warn!(
                "/metrics is incomplete: cannot read nginx's connection counts: {error:#}"
            ),
        }
        match get(&self.configuration, &format!("/metrics?{}", self.options.to_query())).await {
            Ok(counted) => out.extend_from_slice(&counted),
            Err(error) => tracing::warn!(
                "/metrics is incomplete: cannot read nginx's request metrics: {error:#}"
            ),
        }
        out
    }
}

/// The labels that every series has.
fn constant(flags: &Flags) -> Vec<(String, String)> {
    let variable = |name| std::env::var(name).unwrap_or_default();
    vec![
        ("controller_class".into(), flags.controller_class.clone()),
        ("controller_namespace".into(), variable("POD_NAMESPACE")),
        ("controller_pod".into(), variable("POD_NAME")),
    ]
}
