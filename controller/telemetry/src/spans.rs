//! A finished request as OpenTelemetry's spans.

use opentelemetry::trace::{
    SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState,
};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};
use oxigress_core::telemetry::span::{self, Call, CallKind, Finished};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The server span of a request, and the client span of each call.
pub fn of(finished: &Finished, scope: &InstrumentationScope) -> Vec<SpanData> {
    let mut all = Vec::with_capacity(1 + finished.calls.len());
    all.push(server(finished, scope));
    let mut attempts = 0;
    for call in &finished.calls {
        all.push(client(finished, call, attempts, scope));
        attempts += i64::from(call.kind == CallKind::Endpoint);
    }
    all
}

fn server(finished: &Finished, scope: &InstrumentationScope) -> SpanData {
    let [operation, method, host, target, route, address, agent] =
        finished.texts.each_ref().map(|text| String::from_utf8_lossy(text).into_owned());
    let scheme = if finished.is_https { "https" } else { "http" };
    let mut attributes = vec![
        KeyValue::new("http.request.method", method),
        KeyValue::new("url.scheme", scheme),
        KeyValue::new("url.path", target),
        KeyValue::new("http.response.status_code", i64::from(finished.status)),
    ];
    let texts = [
        ("http.route", route),
        ("server.address", host),
        ("client.address", address),
        ("user_agent.original", agent),
    ];
    let texts = texts.into_iter().filter(|(_, text)| !text.is_empty());
    attributes.extend(texts.map(|(name, text)| KeyValue::new(name, text)));
    if finished.port != 0 {
        attributes.push(KeyValue::new("server.port", i64::from(finished.port)));
    }
    let is_error = finished.status >= 500;
    if is_error {
        attributes.push(KeyValue::new("error.type", finished.status.to_string()));
    }
    let start = UNIX_EPOCH + Duration::from_millis(finished.start_ms);
    SpanData {
        parent_span_id: finished.parent.map_or(SpanId::INVALID, id),
        parent_span_is_remote: finished.parent.is_some(),
        attributes,
        status: if is_error { Status::error("") } else { Status::Unset },
        ..data(finished, finished.context.span, operation, (start, finished.duration_ms), scope)
    }
}

fn client(
    finished: &Finished,
    call: &Call,
    attempts: i64,
    scope: &InstrumentationScope,
) -> SpanData {
    let method = String::from_utf8_lossy(&finished.texts[1]).into_owned();
    let address = String::from_utf8_lossy(&call.address);
    let (host, port) = address.rsplit_once(':').unwrap_or((&address, ""));
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let mut attributes = vec![KeyValue::new("server.address", host)];
    if let Ok(port) = port.parse::<i64>() {
        attributes.push(KeyValue::new("server.port", port));
    }
    let name = match call.kind {
        CallKind::Endpoint => {
            attributes.push(KeyValue::new("http.request.method", method.clone()));
            if attempts > 0 {
                attributes.push(KeyValue::new("http.request.resend_count", attempts));
            }
            method
        }
        CallKind::Auth => "auth".into(),
        CallKind::Mirror => "mirror".into(),
    };
    let is_error = !(100..400).contains(&call.status);
    if call.status != 0 {
        attributes.push(KeyValue::new("http.response.status_code", i64::from(call.status)));
    }
    if is_error {
        attributes.push(KeyValue::new("error.type", call.status.to_string()));
    }
    let start_ms = finished.start_ms.saturating_add(call.after_ms.into());
    let start = UNIX_EPOCH + Duration::from_millis(start_ms);
    SpanData {
        parent_span_id: id(finished.context.span),
        span_kind: SpanKind::Client,
        attributes,
        status: if is_error { Status::error("") } else { Status::Unset },
        ..data(finished, call.span, name, (start, call.duration_ms), scope)
    }
}

fn data(
    finished: &Finished,
    span: span::SpanId,
    name: String,
    (start, duration_ms): (SystemTime, u32),
    scope: &InstrumentationScope,
) -> SpanData {
    let trace = TraceId::from_bytes(finished.context.trace.to_bytes());
    let state = TraceState::default();
    SpanData {
        span_context: SpanContext::new(trace, id(span), TraceFlags::SAMPLED, false, state),
        parent_span_id: SpanId::INVALID,
        parent_span_is_remote: false,
        span_kind: SpanKind::Server,
        name: name.into(),
        start_time: start,
        end_time: start + Duration::from_millis(duration_ms.into()),
        attributes: Vec::new(),
        dropped_attributes_count: 0,
        events: SpanEvents::default(),
        links: SpanLinks::default(),
        status: Status::Unset,
        instrumentation_scope: scope.clone(),
    }
}

fn id(span: span::SpanId) -> SpanId {
    SpanId::from_bytes(span.to_bytes())
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use oxigress_core::telemetry::span::Context;

    /// The server span of a request of this name.
    pub fn span(name: &str) -> SpanData {
        let trace = span::TraceId::new([1, 2]);
        let texts = [name, "GET", "", "", "", "", ""].map(|text| text.as_bytes().to_vec());
        let finished = Finished {
            context: Context { trace, span: span::SpanId::new(3), is_sampled: true },
            parent: None,
            is_https: false,
            status: 200,
            port: 80,
            start_ms: 1,
            duration_ms: 1,
            namespace: Vec::new(),
            texts,
            calls: Vec::new(),
        };
        server(&finished, &InstrumentationScope::default())
    }

    #[test]
    fn a_request_that_was_tried_again_has_a_client_span_for_each_attempt() {
        let call = |span: u64, status| Call {
            kind: CallKind::Endpoint,
            span: span::SpanId::new(span),
            after_ms: 2,
            duration_ms: 3,
            status,
            address: b"[2001:db8::1]:8080".to_vec(),
        };
        let trace = span::TraceId::new([1, 2]);
        let finished = Finished {
            context: Context { trace, span: span::SpanId::new(3), is_sampled: true },
            parent: Some(span::SpanId::new(4)),
            is_https: true,
            status: 200,
            port: 443,
            start_ms: 1_000,
            duration_ms: 10,
            namespace: b"shop".to_vec(),
            texts: ["GET /a", "GET", "shop.test", "/a/b", "/a", "192.0.2.1", ""]
                .map(|text| text.as_bytes().to_vec()),
            calls: vec![call(5, 502), call(6, 200)],
        };
        let all = of(&finished, &InstrumentationScope::default());
        let [server, first, last] = &all[..] else { panic!("{all:?}") };
        assert_eq!((&*server.name, &server.status), ("GET /a", &Status::Unset));
        assert_eq!(server.parent_span_id, id(span::SpanId::new(4)));
        for (client, status) in [(first, Status::error("")), (last, Status::Unset)] {
            assert_eq!(client.parent_span_id, server.span_context.span_id());
            assert_eq!((&client.span_kind, &client.status), (&SpanKind::Client, &status));
            assert_eq!(client.span_context.trace_id(), server.span_context.trace_id());
        }
        let has = |span: &SpanData, pair: KeyValue| span.attributes.contains(&pair);
        assert!(has(last, KeyValue::new("http.request.resend_count", 1)));
        assert!(has(first, KeyValue::new("server.address", "2001:db8::1")));
        assert!(has(first, KeyValue::new("server.port", 8080)));
        assert!(!server.attributes.iter().any(|pair| pair.key.as_str() == "user_agent.original"));
    }
}
