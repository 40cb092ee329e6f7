//! Tracing, as the ConfigMap says it: what is sampled, and where spans go.

use oxigress_core::model::policy::Template;
use oxigress_core::model::policy::{Sampling, Tracing};
use std::time::Duration;

/// Most spans that wait in the controller.
pub const MAX_QUEUE: u64 = 65_536;
/// Most spans in one request to the collector.
pub const MAX_BATCH: u64 = 8_192;

/// What the ConfigMap says about tracing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracingSettings {
    /// enable-opentelemetry: where no Ingress says otherwise.
    pub is_enabled: bool,
    /// The collector that spans are exported to.
    pub exporter: Exporter,
    pub(crate) operation: Option<Template>,
    pub(crate) trusts_client: bool,
    pub(crate) follows_parent: bool,
    pub(crate) sampler: Sampler,
    pub(crate) ratio: Sampling,
}

/// The key otel-sampler: which traces are sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sampler {
    AlwaysOn,
    AlwaysOff,
    Ratio,
}

/// Where spans go, and how many at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exporter {
    /// A name or an address; empty: spans are exported nowhere.
    pub host: String,
    /// The port on which the collector receives OTLP.
    pub port: u16,
    /// What the collector speaks on it.
    pub protocol: Protocol,
    /// The value of `service.name` in all spans.
    pub service_name: String,
    /// Spans that wait at most. Those beyond it are dropped and counted.
    pub queue: usize,
    /// The milliseconds between two exports of spans.
    pub delay_ms: u64,
    /// Spans in one request to the collector at most.
    pub batch: usize,
}

/// The OTLP transport by which spans are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// OTLP over gRPC, without TLS.
    Grpc,
    /// OTLP over HTTP/1.1 to `/v1/traces`, without TLS.
    Http,
}

impl Default for TracingSettings {
    fn default() -> Self {
        TracingSettings {
            is_enabled: false,
            exporter: Exporter::default(),
            operation: None,
            trusts_client: true,
            follows_parent: true,
            sampler: Sampler::AlwaysOn,
            ratio: Sampling::ratio(0.01).unwrap_or(Sampling::NONE),
        }
    }
}

impl Default for Exporter {
    fn default() -> Self {
        Exporter {
            host: String::new(),
            port: 4317,
            protocol: Protocol::Grpc,
            service_name: "nginx".into(),
            queue: 2048,
            delay_ms: 5000,
            batch: 512,
        }
    }
}

impl TracingSettings {
    /// How the requests of a location are traced, if they are.
    pub fn policy(&self) -> Tracing {
        Tracing {
            operation: self.operation.clone(),
            trusts_client: self.trusts_client,
            follows_parent: self.follows_parent,
            sampling: match self.sampler {
                Sampler::AlwaysOn => Sampling::ALL,
                Sampler::AlwaysOff => Sampling::NONE,
                Sampler::Ratio => self.ratio,
            },
            ..Tracing::default()
        }
    }
}

impl Exporter {
    /// The URL of the collector; `None`: there is none.
    pub fn endpoint(&self) -> Option<String> {
        let host = match self.host.contains(':') {
            true => format!("[{}]", self.host),
            false => self.host.clone(),
        };
        let path = if self.protocol == Protocol::Http { "/v1/traces" } else { "" };
        (!self.host.is_empty()).then(|| format!("http://{host}:{}{path}", self.port))
    }

    /// The time between two exports.
    pub fn delay(&self) -> Duration {
        Duration::from_millis(self.delay_ms)
    }
}
