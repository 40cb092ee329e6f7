//! The task that takes spans from nginx and sends them to the collector.

use crate::waiting::Waiting;
use crate::{Counts, spans};
use opentelemetry::InstrumentationScope;
use opentelemetry_otlp::{SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SpanExporter as _;
use oxigress_core::telemetry::span::{Finished, TAKE_BYTES};
use oxigress_net::socket;
use oxigress_settings::tracing::{Exporter, Protocol};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};

/// nginx's queue holds the requests of this time at 4,000 a second.
const TAKE_EVERY: Duration = Duration::from_secs(1);
/// Answers of nginx that are read at a time: all that its queue holds.
const MAX_ANSWERS: usize = 64;
/// What a collector takes for a batch at most: OpenTelemetry's default.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);
/// The same complaint is logged once in this time.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Runs until the program ends.
pub async fn run(socket: PathBuf, mut settings: watch::Receiver<Exporter>, counts: Arc<Counts>) {
    let mut queue = Queue { waiting: Waiting::default(), sending: None, counts, logged: None };
    loop {
        let exporter = settings.borrow_and_update().clone();
        let is_over = match exporter.endpoint() {
            Some(endpoint) => {
                let collector = Collector { exporter, endpoint };
                queue.export(&socket, &collector, &mut settings).await.is_err()
            }
            None => settings.changed().await.is_err(),
        };
        if is_over {
            return;
        }
    }
}

/// The collector that spans are sent to.
struct Collector {
    exporter: Exporter,
    endpoint: String,
}

impl Collector {
    fn client(&self) -> anyhow::Result<SpanExporter> {
        let builder = SpanExporter::builder();
        let mut client = match self.exporter.protocol {
            Protocol::Grpc => {
                let tonic = builder.with_tonic().with_endpoint(&self.endpoint);
                tonic.with_timeout(SEND_TIMEOUT).build()
            }
            Protocol::Http => {
                let http = builder.with_http().with_endpoint(&self.endpoint);
                http.with_timeout(SEND_TIMEOUT).build()
            }
        }?;
        let resource = Resource::builder_empty();
        let name = self.exporter.service_name.clone();
        client.set_resource(&resource.with_service_name(name).build());
        Ok(client)
    }
}

/// Spans that wait for the collector.
struct Queue {
    waiting: Waiting,
    /// The batch that is under way, and its spans.
    sending: Option<(usize, JoinHandle<anyhow::Result<()>>)>,
    counts: Arc<Counts>,
    /// When the collector's failures were logged last.
    logged: Option<Instant>,
}

impl Queue {
    /// Exports to one collector until the settings change; an error when the program ends.
    async fn export(
        &mut self,
        socket: &Path,
        collector: &Collector,
        settings: &mut watch::Receiver<Exporter>,
    ) -> Result<(), watch::error::RecvError> {
        let (exporter, endpoint) = (&collector.exporter, &collector.endpoint);
        let client = match collector.client() {
            Ok(client) => Arc::new(client),
            Err(error) => {
                tracing::warn!(
                    "spans are not exported to {endpoint}: {error:#}: correct data.otlp-collector-host and \
                     data.otlp-collector-port of the ConfigMap"
                );
                return settings.changed().await;
            }
        };
        tracing::info!("spans of requests are exported to {endpoint}");
        let mut take = interval(TAKE_EVERY.min(exporter.delay()));
        take.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut send_at = Instant::now() + exporter.delay();
        loop {
            let is_sendable = self.sending.is_none() && !self.waiting.is_empty();
            tokio::select! {
                changed = settings.changed() => return changed,
                _ = take.tick() => {
                    if let Err(error) = self.take(socket, exporter.queue).await {
                        // nginx may be starting or be replaced: the next time tells.
                        tracing::debug!("spans cannot be taken from nginx: {error:#}");
                    }
                    if self.waiting.len() >= exporter.batch {
                        send_at = Instant::now();
                    }
                }
                () = sleep_until(send_at), if is_sendable => {
                    self.send(client.clone(), exporter.batch);
                    send_at = Instant::now() + exporter.delay();
                }
                result = ended(&mut self.sending), if self.sending.is_some() => {
                    self.note(result, endpoint);
                    if self.waiting.len() >= exporter.batch {
                        send_at = Instant::now();
                    }
                }
            }
        }
    }

    /// Takes finished requests from nginx, and keeps their spans as far as there is room for `most`.
    async fn take(&mut self, socket: &Path, most: usize) -> anyhow::Result<()> {
        let scope = InstrumentationScope::builder("oxigress").build();
        // Requests end meanwhile: a busy nginx would never answer that there are no more.
        for _ in 0..MAX_ANSWERS {
            let answer =
                timeout(TAKE_EVERY, socket::post(socket, "/configuration/spans")).await??;
            let dropped = answer.headers().get("oxigress-spans-dropped");
            let dropped = dropped.and_then(|value| value.to_str().ok()?.parse().ok());
            dropped.into_iter().for_each(|count| self.counts.ring_full.store(count, Relaxed));
            let mut records = &answer.body()[..];
            let is_last = records.len() < TAKE_BYTES || self.waiting.len() >= 2 * most;
            while !records.is_empty() {
                let Some(finished) = Finished::decode(&mut records) else {
                    self.counts.queue_full.fetch_add(1, Relaxed);
                    anyhow::bail!("a record is damaged");
                };
                let namespace: Arc<[u8]> = finished.namespace.as_slice().into();
                for span in spans::of(&finished, &scope) {
                    if !self.waiting.push(&namespace, span, most) {
                        self.counts.queue_full.fetch_add(1, Relaxed);
                    }
                }
            }
            if is_last {
                break;
            }
        }
        Ok(())
    }

    fn send(&mut self, client: Arc<SpanExporter>, most: usize) {
        let batch = self.waiting.take(most);
        let spans = batch.len();
        let sending = tokio::spawn(async move {
            // The client has a time limit of its own; a batch that hangs must not hang for ever.
            timeout(2 * SEND_TIMEOUT, client.export(batch)).await??;
            Ok(())
        });
        self.sending = Some((spans, sending));
    }

    /// Notes what became of a batch.
    fn note(&mut self, (spans, result): (usize, anyhow::Result<()>), endpoint: &str) {
        self.sending = None;
        let Err(error) = result else {
            self.counts.exported.fetch_add(spans as u64, Relaxed);
            return;
        };
        self.counts.failed.fetch_add(spans as u64, Relaxed);
        let now = Instant::now();
        if self.logged.is_none_or(|logged| now >= logged + LOG_INTERVAL) {
            self.logged = Some(now);
            tracing::warn!(
                "{spans} spans are lost, the collector at {endpoint} did not take them: {error:#}: check that it runs \
                 and speaks OTLP there"
            );
        }
    }
}

/// Waits for the end of a batch; for ever if there is none.
async fn ended(
    sending: &mut Option<(usize, JoinHandle<anyhow::Result<()>>)>,
) -> (usize, anyhow::Result<()>) {
    match sending {
        Some((spans, task)) => (*spans, task.await.map_err(Into::into).flatten()),
        None => std::future::pending().await,
    }
}
