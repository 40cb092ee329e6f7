//! OpenTelemetry: which trace every hop of a request is told, and what a real OTLP server is sent.

use anyhow::{Context, Result, ensure};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use oxigress_tests::client::{Address, Request, Response, send};
use oxigress_tests::controller::Controller;
use oxigress_tests::endpoint::Behaviour;
use oxigress_tests::pass;
use oxigress_tests::place::Directory;
use oxigress_tests::shop::Shop;
use oxigress_tests::wait::{block_on, runtime, until};
use prost::Message;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use tokio_stream::wrappers::TcpListenerStream;

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const CLIENT_SPAN: &str = "b7ad6b7169203331";

/// Spans as they arrive, over gRPC or HTTP.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<(String, Span)>>>);

impl Collector {
    fn take(&self, request: ExportTraceServiceRequest) {
        let mut all = self.0.lock().expect("no test panics here");
        for resource in request.resource_spans {
            let attributes = resource.resource.map(|resource| resource.attributes);
            let service = attributes.and_then(|all| text(&all, "service.name")).unwrap_or_default();
            let spans = resource.scope_spans.into_iter().flat_map(|scope| scope.spans);
            all.extend(spans.map(|span| (service.clone(), span)));
        }
    }

    /// The spans of a trace, once there are so many.
    fn of(&self, trace: &str, most: usize) -> Result<Vec<Span>> {
        until("the spans", || {
            let all = self.0.lock().expect("no test panics here");
            let all = all.iter().filter(|(_, span)| hex(&span.trace_id) == trace);
            let all: Vec<_> = all.map(|(_, span)| span.clone()).collect();
            ensure!(all.len() >= most, "{all:?}");
            Ok(all)
        })
    }

    fn services(&self) -> Vec<String> {
        self.0.lock().expect("no test panics here").iter().map(|(name, _)| name.clone()).collect()
    }

    fn grpc(&self) -> Result<u16> {
        let service = TraceServiceServer::new(self.clone());
        let listener = block_on(tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))?;
        let port = listener.local_addr()?.port();
        let server = tonic::transport::Server::builder().add_service(service);
        runtime().spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
        Ok(port)
    }

    fn http(&self) -> Result<u16> {
        let collector = self.clone();
        answer_all(move |head, body| {
            assert!(head.starts_with("POST /v1/traces HTTP/1.1"), "{head}");
            collector.take(ExportTraceServiceRequest::decode(body).expect("protobuf"));
        })
    }
}

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: tonic::Request<ExportTraceServiceRequest>,
    ) -> Result<tonic::Response<ExportTraceServiceResponse>, tonic::Status> {
        self.take(request.into_inner());
        Ok(tonic::Response::new(ExportTraceServiceResponse::default()))
    }
}

/// A server that answers every request with 200 and hands its head and body over; its port.
fn answer_all(take: impl Fn(&str, &[u8]) + Clone + Send + 'static) -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let port = listener.local_addr()?.port();
    let converse = move |stream: TcpStream| -> Result<()> {
        let mut reader = BufReader::new(stream);
        loop {
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                if reader.read_line(&mut head)? == 0 {
                    return Ok(());
                }
            }
            let lower = head.to_lowercase();
            let length = lower.lines().find_map(|line| line.strip_prefix("content-length: "));
            let mut body = vec![0; length.map_or(Ok(0), str::parse)?];
            reader.read_exact(&mut body)?;
            take(&head, &body);
            reader.get_mut().write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")?;
        }
    };
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let converse = converse.clone();
            // A connection that breaks shows in what is missing.
            std::thread::spawn(move || drop(converse(stream)));
        }
    });
    Ok(port)
}

/// A server that remembers the trace context of each request; its port, and they.
fn remembering() -> Result<(u16, Arc<Mutex<Vec<String>>>)> {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let told = seen.clone();
    let port = answer_all(move |head, _| {
        told.lock().expect("no test panics here").push(parent_in(head).unwrap_or_default());
    })?;
    Ok((port, seen))
}

/// The value of `traceparent` in a head.
fn parent_in(head: &str) -> Option<String> {
    let mut lines = head.lines().map(str::to_lowercase);
    lines.find_map(|line| Some(line.strip_prefix("traceparent: ")?.trim().to_owned()))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn text(all: &[opentelemetry_proto::tonic::common::v1::KeyValue], name: &str) -> Option<String> {
    use opentelemetry_proto::tonic::common::v1::any_value::Value;
    let value = all.iter().find(|pair| pair.key == name)?.value.clone()?.value?;
    Some(match value {
        Value::StringValue(text) => text,
        Value::IntValue(number) => number.to_string(),
        other => format!("{other:?}"),
    })
}

fn shop(directory: &Directory, settings: &[(&str, &str)]) -> Result<Shop> {
    shop_with(directory, settings, &[])
}

fn shop_with(directory: &Directory, settings: &[(&str, &str)], flags: &[&str]) -> Result<Shop> {
    let flags = [&["--configmap=default/settings"], flags].concat();
    let flags: Vec<_> = flags.into_iter().map(str::to_owned).collect();
    let mut shop = Shop::new(Controller::start(directory, 2, &flags)?, &["a", "broken"], &[])?;
    configure(&mut shop, settings)?;
    shop.write("shop.yaml", "$SERVICE(shop: a)\n$INGRESS(shop: shop.test/ shop)")?;
    Ok(shop)
}

fn configure(shop: &mut Shop, settings: &[(&str, &str)]) -> Result<()> {
    let mut text =
        "apiVersion: v1\nkind: ConfigMap\nmetadata: { name: settings, namespace: default }\ndata:\n"
            .to_owned();
    let fixed = [("enable-opentelemetry", "true"), ("otel-schedule-delay-millis", "100")];
    for (key, value) in fixed.iter().filter(|(key, _)| !settings.iter().any(|(k, _)| k == key)) {
        text += &format!("  {key}: {value:?}\n");
    }
    for (key, value) in settings {
        text += &format!("  {key}: {value:?}\n");
    }
    shop.write("settings.yaml", &text)
}

fn get(shop: &Shop, request: &Request) -> Result<Response> {
    block_on(send(&Address::http(shop.controller.http_port), request))
}

fn traced() -> Request {
    let parent = format!("00-{TRACE}-{CLIENT_SPAN}-01");
    Request::get("shop.test", "/a/b?secret=1").header("traceparent", &parent)
}

#[test]
fn every_hop_of_a_request_has_its_span_and_the_right_parent() {
    pass("tracing-hops", |directory| {
        let collector = Collector::default();
        let port = collector.grpc()?.to_string();
        let settings = [
            ("otlp-collector-host", "127.0.0.1"),
            ("otlp-collector-port", &port),
            ("otel-service-name", "front-door"),
        ];
        let mut shop = shop(directory, &settings)?;
        shop.behave("broken", Behaviour::Reset)?;
        let ((auth, asked), (mirror, copied)) = (remembering()?, remembering()?);
        let (auth, mirror) =
            (format!("http://127.0.0.1:{auth}/"), format!("http://127.0.0.1:{mirror}/"));
        let annotations = [("auth-url", &*auth), ("mirror-target", &*mirror)];
        shop.write("shop.yaml", &format!("$SERVICE(shop: a broken)\n{}", ingress(&annotations)))?;
        // The broken endpoint's turn comes by the second request.
        let mut parents = Vec::new();
        for _ in 0..2 {
            let answer = get(&shop, &traced().header("tracestate", "vendor=1"))?;
            ensure!(answer.status == 200, "{answer}");
            let text = answer.text();
            ensure!(text.to_lowercase().contains("tracestate: vendor=1"), "{text}");
            parents.push(parent_in(&text).context("the endpoint has no traceparent")?);
        }
        // Two requests: a server span, an auth, a mirror and an endpoint each; one more attempt.
        let spans = collector.of(TRACE, 9)?;
        ensure!(spans.len() == 9, "{spans:#?}");
        let servers: Vec<_> = of_kind(&spans, SpanKind::Server);
        for server in &servers {
            is_of_a_request(server, &spans)?;
        }
        ensure!(servers.len() == 2, "{servers:?}");
        let sent = |name: &str| -> Vec<String> {
            let spans = spans.iter().filter(|span| span.name == name);
            let mut all: Vec<_> =
                spans.map(|span| format!("00-{TRACE}-{}-01", hex(&span.span_id))).collect();
            all.sort();
            all
        };
        for (name, seen) in [("auth", asked), ("mirror", copied)] {
            let mut seen = seen.lock().expect("no test panics here").clone();
            seen.sort();
            ensure!(seen == sent(name), "{name}: {seen:?}, not {:?}", sent(name));
        }
        ensure!(parents.iter().all(|parent| sent("GET").contains(parent)), "{parents:?}");
        let again: Vec<_> = spans
            .iter()
            .filter(|span| text(&span.attributes, "http.request.resend_count").is_some())
            .collect();
        let [again] = &again[..] else { anyhow::bail!("{again:?}") };
        ensure!(parents.iter().any(|parent| parent.contains(&hex(&again.span_id))), "{again:?}");
        ensure!(collector.services().iter().all(|name| name == "front-door"));
        Ok(())
    });
}

fn is_of_a_request(server: &Span, spans: &[Span]) -> Result<()> {
    ensure!(hex(&server.parent_span_id) == CLIENT_SPAN, "{server:?}");
    ensure!(server.name == "GET /" && server.end_time_unix_nano >= server.start_time_unix_nano);
    let has = |name, value: &str| text(&server.attributes, name).as_deref() == Some(value);
    ensure!(has("http.request.method", "GET") && has("url.path", "/a/b"), "{server:?}");
    ensure!(has("http.response.status_code", "200") && has("http.route", "/"), "{server:?}");
    let children = of_kind(spans, SpanKind::Client);
    let mut children: Vec<_> =
        children.iter().filter(|child| child.parent_span_id == server.span_id).collect();
    children.retain(|child| child.name != "GET");
    ensure!(children.len() == 2, "{children:?}");
    Ok(())
}

/// The shop's Ingress with annotations.
fn ingress(annotations: &[(&str, &str)]) -> String {
    let prefix = "nginx.ingress.kubernetes.io";
    let annotations: Vec<_> = annotations
        .iter()
        .map(|(name, value)| format!("    {prefix}/{name}: {value:?}\n"))
        .collect();
    format!(
        "---\napiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata:\n  name: shop\n  namespace: default\n  \
         annotations:\n    kubernetes.io/ingress.class: nginx\n{}spec:\n  rules:\n  - host: shop.test\n    http:\n      \
         paths:\n      - {{ path: /, pathType: Prefix, backend: {{ service: {{ name: shop, port: {{ number: 80 }} }} }} \
         }}\n",
        annotations.concat()
    )
}

fn of_kind(spans: &[Span], kind: SpanKind) -> Vec<&Span> {
    spans.iter().filter(|span| span.kind == kind as i32).collect()
}

#[test]
fn what_is_sampled_and_whom_to_believe_is_a_matter_of_settings_and_annotations() {
    pass("tracing-settings", |directory| {
        let collector = Collector::default();
        let port = collector.http()?.to_string();
        let settings = [
            ("otlp-collector-host", "127.0.0.1"),
            ("otlp-collector-port", &*port),
            ("otlp-protocol", "http/protobuf"),
            ("opentelemetry-trust-incoming-span", "false"),
        ];
        let mut shop = shop(directory, &settings)?;
        // A client that is not believed begins no trace here, and its state goes too.
        let answer = get(&shop, &traced().header("tracestate", "vendor=1"))?.text();
        let parent = parent_in(&answer).context("no traceparent")?;
        ensure!(!parent.contains(TRACE) && parent.ends_with("-01"), "{parent}");
        ensure!(!answer.contains("vendor=1"), "{answer}");
        let trace = parent.get(3..35).context("a trace id")?.to_owned();
        let spans = collector.of(&trace, 2)?;
        let [server] = &of_kind(&spans, SpanKind::Server)[..] else { anyhow::bail!("{spans:?}") };
        ensure!(server.parent_span_id.is_empty(), "{server:?}");
        // An Ingress that believes its clients, and names its spans.
        let own = [
            ("enable-opentelemetry", "true"),
            ("opentelemetry-trust-incoming-span", "true"),
            ("opentelemetry-operation-name", "shop-front"),
        ];
        shop.write("shop.yaml", &format!("$SERVICE(shop: a)\n{}", ingress(&own)))?;
        get(&shop, &traced())?;
        let spans = collector.of(TRACE, 2)?;
        let [server] = &of_kind(&spans, SpanKind::Server)[..] else { anyhow::bail!("{spans:?}") };
        ensure!(server.name == "shop-front", "{server:?}");
        ensure!(hex(&server.parent_span_id) == CLIENT_SPAN, "{server:?}");
        // One that is not traced passes on what its client says.
        let off = [("enable-opentelemetry", "false")];
        shop.write("shop.yaml", &format!("$SERVICE(shop: a)\n{}", ingress(&off)))?;
        let parent = parent_in(&get(&shop, &traced())?.text());
        ensure!(parent == Some(format!("00-{TRACE}-{CLIENT_SPAN}-01")), "{parent:?}");
        // Nothing is sampled, and the endpoint is told.
        shop.write("shop.yaml", "$SERVICE(shop: a)\n$INGRESS(shop: shop.test/ shop)")?;
        let settings = [&settings[..], &[("otel-sampler", "AlwaysOff")]].concat();
        configure(&mut shop, &settings)?;
        let parent = parent_in(&get(&shop, &traced())?.text()).context("no traceparent")?;
        ensure!(parent.ends_with("-00"), "{parent}");
        Ok(())
    });
}

#[test]
fn a_collector_that_is_gone_costs_no_request_and_is_counted() {
    pass("tracing-dead", |directory| {
        let closed = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port().to_string();
        let settings = [("otlp-collector-host", "127.0.0.1"), ("otlp-collector-port", &*closed)];
        let shop = shop_with(directory, &settings, &["--enable-metrics"])?;
        let lost = || -> Result<f64> {
            let health = Address::http(shop.controller.health_port);
            let metrics = block_on(send(&health, &Request::get("x", "/metrics")))?.text();
            let name = "spans_dropped_total";
            let mut lines = metrics.lines().filter(|line| line.contains("spans_dropped_total{"));
            let line = lines.find(|line| line.contains("reason=\"collector\"")).context(name)?;
            Ok(line.rsplit(' ').next().context(name)?.parse()?)
        };
        for _ in 0..20 {
            let answer = get(&shop, &traced())?;
            ensure!(answer.status == 200, "{answer}");
        }
        until("the lost spans", || {
            let lost = lost()?;
            ensure!(lost >= 40.0, "{lost}");
            Ok(())
        })
    });
}
