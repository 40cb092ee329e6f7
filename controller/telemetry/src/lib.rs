//! Spans of requests, from nginx's queue to a collector by OTLP.
//!
//! Shape:   [`Telemetry::start`] runs one task. It takes finished requests out of nginx's queue once a second, makes spans of
//!          them, keeps so many as the settings say, and sends them in batches while it goes on taking.
//! Errors:  a collector that refuses or does not answer loses the batch, which is counted and logged once a minute; requests
//!          never wait for any of this.
//! Source:  OpenTelemetry's SDK environment (batch span processor) for the limits, its semantic conventions for HTTP.

mod export;
mod spans;
mod waiting;

use oxigress_core::telemetry::metrics::{labels, with_constant};
use oxigress_settings::tracing::Exporter;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use tokio::sync::watch;

/// The exporter, as the rest of the controller sees it.
pub struct Telemetry {
    settings: watch::Sender<Exporter>,
    counts: Arc<Counts>,
}

/// What became of spans since the program started.
#[derive(Debug, Default)]
pub struct Counts {
    exported: AtomicU64,
    /// The collector refused them or did not answer.
    failed: AtomicU64,
    /// They found no room in this program.
    queue_full: AtomicU64,
    /// Requests that found no room in nginx's queue.
    ring_full: AtomicU64,
}

impl Telemetry {
    /// Starts the exporter, which does nothing until it is told of a collector. `socket` is nginx's configuration endpoint.
    pub fn start(socket: PathBuf) -> Telemetry {
        let (settings, receiver) = watch::channel(Exporter::default());
        let counts = Arc::new(Counts::default());
        tokio::spawn(export::run(socket, receiver, counts.clone()));
        Telemetry { settings, counts }
    }

    /// Says where spans go from now on.
    pub fn apply(&self, exporter: &Exporter) {
        self.settings.send_if_modified(|now| {
            let is_new = now != exporter;
            if is_new {
                now.clone_from(exporter);
            }
            is_new
        });
    }

    /// How many spans were exported, refused or dropped until now.
    pub fn counts(&self) -> Arc<Counts> {
        self.counts.clone()
    }
}

impl Counts {
    /// The metrics, in Prometheus's text format; `constant` are labels of every series.
    pub fn text(&self, constant: &[(String, String)]) -> String {
        let reasons = [
            ("collector", &self.failed),
            ("queue_full", &self.queue_full),
            ("nginx_queue_full", &self.ring_full),
        ];
        let mut out = format!(
            "# HELP oxigress_spans_exported_total Spans that the collector took\n\
             # TYPE oxigress_spans_exported_total counter\n\
             oxigress_spans_exported_total{{{}}} {}\n\
             # HELP oxigress_spans_dropped_total Spans that were lost, and requests that found nginx's queue full\n\
             # TYPE oxigress_spans_dropped_total counter\n",
            labels(&with_constant(constant, &[])),
            self.exported.load(Relaxed)
        );
        for (reason, count) in reasons {
            let labels = labels(&with_constant(constant, &[("reason", reason)]));
            let count = count.load(Relaxed);
            out.push_str(&format!("oxigress_spans_dropped_total{{{labels}}} {count}\n"));
        }
        out
    }
}
