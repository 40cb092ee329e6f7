//! Tracing with OpenTelemetry.

use crate::form::{Form, Value, any};
use crate::key::{How, Key, key};
use crate::tracing::{MAX_BATCH, MAX_QUEUE, Protocol, Sampler};
use oxigress_core::model::policy::Sampling;
use oxigress_core::model::policy::Template;

const HOST: Form = Form::Text("a host name or an address", host);
const RATIO: Form = Form::Text("a number from 0 to 1", ratio);
const OPERATION: Form = Form::Text("text with variables", operation);
const SERVICE: Form = Form::Text("text", any);
const SAMPLER: Form = Form::Word(&["AlwaysOn", "AlwaysOff", "TraceIdRatioBased"]);
const PROTOCOL: Form = Form::Word(&["grpc", "http/protobuf"]);
const FILE: How = How::NoEffect(
    "no file is written: the other opentelemetry, otlp and otel keys say all there is",
);

#[rustfmt::skip]
pub const KEYS: &[Key] = &[
    key("enable-opentelemetry", Form::Flag, "false", How::Data(|to, v| { to.tracing.is_enabled = v.flag(); Ok(()) })),
    key("opentelemetry-config", Form::Text("text", any), "/etc/ingress-controller/telemetry/opentelemetry.toml", FILE),
    key("opentelemetry-operation-name", OPERATION, "", How::Data(|to, v| {
        to.tracing.operation = Template::parse(v.text()).ok();
        Ok(())
    })),
    key("opentelemetry-trust-incoming-span", Form::Flag, "true", How::Data(|to, v| { to.tracing.trusts_client = v.flag(); Ok(()) })),
    key("otlp-collector-host", HOST, "", How::Data(|to, v| { to.tracing.exporter.host = v.text().into(); Ok(()) })),
    key("otlp-collector-port", Form::Number(1, 65_535), "4317", How::Data(|to, v| {
        to.tracing.exporter.port = u16::try_from(v.number()).map_err(|error| error.to_string())?;
        Ok(())
    })),
    key("otlp-protocol", PROTOCOL, "grpc", How::Data(|to, v| {
        to.tracing.exporter.protocol = if v.text() == "grpc" { Protocol::Grpc } else { Protocol::Http };
        Ok(())
    })),
    key("otel-service-name", SERVICE, "nginx", How::Data(|to, v| { to.tracing.exporter.service_name = v.text().into(); Ok(()) })),
    key("otel-sampler", SAMPLER, "AlwaysOn", How::Data(|to, v| { to.tracing.sampler = sampler(v); Ok(()) })),
    key("otel-sampler-ratio", RATIO, "0.01", How::Data(|to, v| {
        to.tracing.ratio = v.text().parse().ok().and_then(Sampling::ratio).ok_or("is no ratio")?;
        Ok(())
    })),
    key("otel-sampler-parent-based", Form::Flag, "true", How::Data(|to, v| { to.tracing.follows_parent = v.flag(); Ok(()) })),
    key("otel-max-queuesize", Form::Number(1, MAX_QUEUE), "2048", How::Data(|to, v| { to.tracing.exporter.queue = v.number() as usize; Ok(()) })),
    key("otel-schedule-delay-millis", Form::Number(1, 600_000), "5000", How::Data(|to, v| { to.tracing.exporter.delay_ms = v.number(); Ok(()) })),
    key("otel-max-export-batch-size", Form::Number(1, MAX_BATCH), "512", How::Data(|to, v| { to.tracing.exporter.batch = v.number() as usize; Ok(()) })),
];

fn sampler(value: &Value) -> Sampler {
    match value.text() {
        "AlwaysOff" => Sampler::AlwaysOff,
        "TraceIdRatioBased" => Sampler::Ratio,
        _ => Sampler::AlwaysOn,
    }
}

/// A name or an address that can stand in a URL, IPv6 without brackets.
fn host(text: &str) -> Option<String> {
    let is_name = |b: u8| b.is_ascii_alphanumeric() || b"-._".contains(&b);
    let is_fine = text.parse::<std::net::Ipv6Addr>().is_ok()
        || (1..=253).contains(&text.len()) && text.bytes().all(is_name);
    is_fine.then(|| text.to_owned())
}

fn ratio(text: &str) -> Option<String> {
    text.parse().ok().and_then(Sampling::ratio).map(|_| text.to_owned())
}

fn operation(text: &str) -> Option<String> {
    Template::parse(text).ok().map(|_| text.to_owned())
}
