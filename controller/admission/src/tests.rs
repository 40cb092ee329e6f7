//! The real server over TLS, with a translator behind it.

mod bodies;
mod deleted;
mod fuzz;

use super::*;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use openssl::asn1::Asn1Time;
use openssl::hash::MessageDigest;
use openssl::pkey::PKey;
use openssl::rsa::Rsa;
use openssl::ssl::{SslConnector, SslMethod, SslVerifyMode};
use oxigress_objects::Changed;
use oxigress_objects::document::{self, Found};
use oxigress_translate::Options as TranslateOptions;
use serde_json::{Value, json};
use std::path::Path;
use tempfile::TempDir;
use tokio_stream::wrappers::ReceiverStream;

/// A self-signed certificate and its key, both PEM.
fn self_signed() -> Result<(Vec<u8>, Vec<u8>), openssl::error::ErrorStack> {
    let key = PKey::from_rsa(Rsa::generate(2048)?)?;
    let mut builder = openssl::x509::X509::builder()?;
    builder.set_pubkey(&key)?;
    builder.set_not_before(&*Asn1Time::days_from_now(0)?)?;
    builder.set_not_after(&*Asn1Time::days_from_now(1)?)?;
    builder.sign(&key, MessageDigest::sha256())?;
    Ok((builder.build().to_pem()?, key.private_key_to_pem_pkcs8()?))
}

type Part = Result<Frame<Bytes>, Infallible>;
type Upload = StreamBody<ReceiverStream<Part>>;

/// A webhook on a free port, with its files.
struct Running {
    address: SocketAddr,
    folder: TempDir,
    checks: Arc<Checks>,
    lines: Arc<Lines>,
    /// Nobody answers questions while this is held.
    loops: Arc<Mutex<()>>,
}

const WORLD: &str = "
apiVersion: networking.k8s.io/v1
kind: IngressClass
metadata: { name: nginx }
spec: { controller: k8s.io/ingress-nginx }
---
apiVersion: v1
kind: Service
metadata: { name: cart }
spec: { ports: [{ port: 80 }] }
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: { name: first, creationTimestamp: 2025-01-01T00:00:00Z }
spec:
  ingressClassName: nginx
  rules:
  - host: a.test
    http: { paths: [{ path: /x, pathType: Prefix, backend: { service: { name: cart, port: { number: 80 } } } }] }
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: { name: going }
spec: { ingressClassName: nginx, rules: [{ host: going.test }] }
---
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: { name: oxigress }
spec: { controllerName: oxigress.io/gateway-controller }
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: { name: web, namespace: infra }
spec: { gatewayClassName: oxigress, allowedListeners: { namespaces: { from: All } }, listeners: [{ name: l, port: 80, protocol: HTTP }] }
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: { name: old, namespace: other, creationTimestamp: 2020-01-01T00:00:00Z }
spec: { parentRefs: [{ kind: ListenerSet, name: set }], hostnames: [a.test] }
";

fn files(folder: &Path) -> Files {
    Files { certificate: folder.join("tls.crt"), key: folder.join("tls.key") }
}

/// As the kubelet lays out a Secret: the visible names lead through `..data` to a folder of one version.
fn mount(folder: &Path, version: &str, pair: &(Vec<u8>, Vec<u8>)) {
    let own = folder.join(format!("..{version}"));
    std::fs::create_dir(&own).unwrap();
    std::fs::write(own.join("tls.crt"), &pair.0).unwrap();
    std::fs::write(own.join("tls.key"), &pair.1).unwrap();
    std::os::unix::fs::symlink(format!("..{version}"), folder.join("..data_tmp")).unwrap();
    std::fs::rename(folder.join("..data_tmp"), folder.join("..data")).unwrap();
    for name in ["tls.crt", "tls.key"] {
        let _ = std::os::unix::fs::symlink(format!("..data/{name}"), folder.join(name));
    }
}

async fn start_when(has_all: bool) -> Running {
    let folder = TempDir::new().unwrap();
    mount(folder.path(), "1", &self_signed().unwrap());
    let (sender, mut questions) = mpsc::channel(1);
    let checks = Arc::new(Checks::default());
    let files = files(folder.path());
    let context = files.load().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let reviewer = Reviewer::new(sender, checks.clone());
    let lines = reviewer.lines.clone();
    let webhook = Webhook { listener, files, contexts: watch::Sender::new(context), reviewer };
    tokio::spawn(webhook.serve());
    let (mut world, mut changed) = (World::default(), Changed::default());
    for document in document::read(WORLD, false) {
        for found in document.found.unwrap() {
            let Found::Object(id, object) = found else { panic!("a broken object") };
            world.apply((id, Some(object)), &mut changed);
        }
    }
    let mut translator = Translator::new(TranslateOptions::default());
    translator.update(&world, &changed);
    let loops = Arc::new(Mutex::new(()));
    let turn = loops.clone();
    tokio::spawn(async move {
        while let Some(question) = questions.recv().await {
            let _turn = turn.lock().await;
            ReviewRequest::answer(
                question,
                has_all,
                (&translator, &Pace::default()),
                &mut world,
                &mut Reviews::default(),
            );
        }
    });
    Running { address, folder, checks, lines, loops }
}

async fn start() -> Running {
    start_when(true).await
}

/// A connection, and the certificate that was shown.
async fn connect(address: SocketAddr) -> (SendRequest<Upload>, Vec<u8>) {
    let mut connector = SslConnector::builder(SslMethod::tls_client()).unwrap();
    connector.set_verify(SslVerifyMode::NONE);
    connector.set_alpn_protos(b"\x02h2\x08http/1.1").unwrap();
    let ssl = connector.build().configure().unwrap().into_ssl("ingress.local").unwrap();
    let mut stream = SslStream::new(ssl, TcpStream::connect(address).await.unwrap()).unwrap();
    Pin::new(&mut stream).connect().await.unwrap();
    assert_eq!(stream.ssl().selected_alpn_protocol(), Some(&b"http/1.1"[..]));
    let shown = stream.ssl().peer_certificate().unwrap().to_pem().unwrap();
    let (sender, connection) = handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(async move { drop(connection.await) });
    (sender, shown)
}

/// A request whose body is sent through the channel.
fn upload() -> (Request<Upload>, mpsc::Sender<Part>) {
    let (sender, parts) = mpsc::channel(1);
    let body = StreamBody::new(ReceiverStream::new(parts));
    (Request::post("/networking/v1/ingresses").body(body).unwrap(), sender)
}

async fn post(client: &mut SendRequest<Upload>, body: &[u8]) -> (StatusCode, Bytes) {
    let (request, parts) = upload();
    let bytes = Bytes::copy_from_slice(body);
    tokio::spawn(async move { drop(parts.send(Ok(Frame::data(bytes))).await) });
    let response = client.send_request(request).await.unwrap();
    (response.status(), response.into_body().collect().await.unwrap().to_bytes())
}

fn review(change: impl FnOnce(&mut Value)) -> Value {
    let mut review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
            "kind": { "group": "networking.k8s.io", "version": "v1", "kind": "Ingress" },
            "namespace": "default", "operation": "CREATE",
            "object": {
                "apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
                "metadata": {
                    "name": "shop", "namespace": "default", "uid": "0c9a8d74-9cb7-44dd-b98e-09fd62def2f4",
                    "annotations": { "nginx.ingress.kubernetes.io/proxy-body-size": "8m" },
                    "managedFields": [{ "manager": "kubectl", "fieldsType": "FieldsV1", "fieldsV1": { "f:spec": {} } }],
                },
                "spec": {
                    "ingressClassName": "nginx",
                    "tls": [{ "hosts": ["shop.test"], "secretName": "shop" }],
                    "rules": [{ "host": "shop.test", "http": { "paths": [{
                        "path": "/", "pathType": "Prefix",
                        "backend": { "service": { "name": "cart", "port": { "number": 80 } } },
                    }]}}],
                },
            },
            "oldObject": null,
        },
    });
    change(&mut review);
    review
}

/// Posts a review; answers the response of one that was reviewed.
async fn reviewed(client: &mut SendRequest<Upload>, review: &Value) -> Value {
    let (status, body) = post(client, &serde_json::to_vec(review).unwrap()).await;
    assert_eq!(status, StatusCode::OK, "{}", String::from_utf8_lossy(&body));
    checked(&body, review["request"]["uid"].as_str().unwrap_or_default())
}

/// The response, if its shape is right.
fn checked(body: &[u8], uid: &str) -> Value {
    let review: Value = serde_json::from_slice(body).unwrap();
    assert_eq!(
        (&review["apiVersion"], &review["kind"]),
        (&json!("admission.k8s.io/v1"), &json!("AdmissionReview"))
    );
    let response = &review["response"];
    assert_eq!(response["uid"], uid);
    let status = &response["status"];
    match response["allowed"].as_bool().unwrap() {
        true => assert_eq!(status["status"], "Success"),
        false => {
            let said = (&status["status"], &status["code"], &status["reason"]);
            assert_eq!(said, (&json!("Failure"), &json!(400), &json!("BadRequest")));
            let message = status["message"].as_str().unwrap();
            assert!(!message.is_empty() && message.len() <= 4096, "{message:?}");
        }
    }
    let warnings = response.get("warnings").map(|all| all.as_array().unwrap().as_slice());
    for warning in warnings.unwrap_or_default() {
        let warning = warning.as_str().unwrap();
        assert!(warning.len() <= 256 && !warning.contains(|c: char| c.is_control()), "{warning:?}");
    }
    response.clone()
}

#[tokio::test]
async fn an_ingress_is_admitted_with_warnings_or_denied_with_a_reason() {
    let running = start().await;
    let (mut client, _) = connect(running.address).await;
    let response = reviewed(&mut client, &review(|_| {})).await;
    assert_eq!((&response["allowed"], response.get("warnings")), (&json!(true), None));
    let odd = review(|review| {
        review["request"]["object"]["metadata"]["annotations"] = json!({
            "nginx.ingress.kubernetes.io/proxy-body-size": "8mb",
        });
    });
    let response = reviewed(&mut client, &odd).await;
    assert_eq!(response["allowed"], true);
    assert!(response["warnings"][0].as_str().unwrap().contains("proxy-body-size"), "{response}");
    let taken = review(|review| {
        let rule = &mut review["request"]["object"]["spec"]["rules"][0];
        (rule["host"], rule["http"]["paths"][0]["path"]) = (json!("a.test"), json!("/x"));
    });
    let response = reviewed(&mut client, &taken).await;
    let message = response["status"]["message"].as_str().unwrap();
    assert!(message.contains("already defined in ingress default/first"), "{message}");
    let text = running.checks.text(&[("controller_pod".into(), "p".into())]);
    for line in [
        "check_success{controller_pod=\"p\",ingress=\"shop\",namespace=\"default\"} 2",
        "check_errors{controller_pod=\"p\",ingress=\"shop\",namespace=\"default\"} 1",
        "admission_roundtrip_duration{controller_pod=\"p\"} 0.",
    ] {
        assert!(text.contains(&format!("\nnginx_ingress_controller_{line}")), "{line} in {text}");
    }
}

#[tokio::test]
async fn what_an_ingress_has_passed_on_is_refused() {
    let running = start().await;
    let (mut client, _) = connect(running.address).await;
    let (mut request, parts) = upload();
    request.headers_mut().insert("cdn-loop", "oxigress".parse().unwrap());
    drop(parts);
    let response = client.send_request(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::FORBIDDEN);
    let text = response.into_body().collect().await.unwrap().to_bytes();
    assert!(String::from_utf8_lossy(&text).contains("CDN-Loop"), "{text:?}");
}

#[tokio::test]
async fn a_listener_set_is_reviewed() {
    let running = start().await;
    let (mut client, _) = connect(running.address).await;
    for (host, is_allowed) in [("a.test", false), ("b.test", true)] {
        let parent = json!({"name": "web", "namespace": "infra"});
        let listener = json!({"name": "l", "port": 80, "protocol": "HTTP", "hostname": host});
        let review = review(|review| {
            let request = &mut review["request"];
            request["kind"] = json!({"group": "gateway.networking.k8s.io", "version": "v1", "kind": "ListenerSet"});
            request["object"] = json!({"metadata": {"name": "set", "namespace": "other"},
                "spec": {"parentRef": parent, "listeners": [listener]}});
        });
        assert_eq!(reviewed(&mut client, &review).await["allowed"], is_allowed, "{host}");
    }
}

#[tokio::test]
async fn what_is_no_review_of_an_ingress_is_an_error() {
    let running = start().await;
    let (mut client, _) = connect(running.address).await;
    for (body, status) in [
        (b"".to_vec(), 400),
        (b"{".to_vec(), 400),
        (b"[]".to_vec(), 400),
        (b"\xff\xfe".to_vec(), 400),
        (format!("{}{}", "[".repeat(5_000), "]".repeat(5_000)).into_bytes(), 400),
        (b"{}".to_vec(), 500),
        (review(|r| r["apiVersion"] = json!("admission.k8s.io/v1beta1")).to_string().into(), 500),
        (review(|r| r["kind"] = json!("Status")).to_string().into(), 500),
        (review(|r| r["request"] = Value::Null).to_string().into(), 400),
        (review(|r| r["request"]["kind"]["kind"] = json!("Service")).to_string().into(), 500),
        (review(|r| r["request"]["kind"]["version"] = json!("v1beta1")).to_string().into(), 500),
        (review(|r| r["request"]["kind"] = Value::Null).to_string().into(), 400),
    ] {
        let (got, text) = post(&mut client, &body).await;
        let body = String::from_utf8_lossy(&body[..body.len().min(60)]).into_owned();
        assert_eq!(got.as_u16(), status, "{body}: {}", String::from_utf8_lossy(&text));
        assert!(!text.is_empty() && text.len() < 2_000, "{body}");
    }
}

#[tokio::test]
async fn an_object_that_cannot_be_read_is_denied_by_its_review() {
    let running = start().await;
    let (mut client, _) = connect(running.address).await;
    for (pointer, value, why) in [
        ("/request/object/spec/rules/0/host", json!(5), "spec.rules[0].host"),
        ("/request/object/spec/rules/0/http/paths/0/pathType", json!("Regex"), "pathType"),
        ("/request/object/metadata/name", json!("a/b"), "metadata.name"),
        ("/request/object/metadata/uid", json!("x"), "metadata.uid"),
        ("/request/object", json!("x"), "invalid object"),
        ("/request/object/kind", json!("Service"), "invalid object"),
    ] {
        let odd = review(|review| *review.pointer_mut(pointer).unwrap() = value);
        let response = reviewed(&mut client, &odd).await;
        let message = response["status"]["message"].as_str().unwrap_or_default();
        assert!(message.contains(why), "{pointer}: {response}");
    }
    let gone = review(|review| review["request"]["object"] = Value::Null);
    assert_eq!(reviewed(&mut client, &gone).await["allowed"], true);
}

#[tokio::test]
async fn before_the_first_list_nothing_is_judged() {
    let running = start_when(false).await;
    let (mut client, _) = connect(running.address).await;
    let sent = serde_json::to_vec(&review(|_| {})).unwrap();
    let (status, text) = post(&mut client, &sent).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    let text = String::from_utf8_lossy(&text);
    assert!(text.contains("not read all objects yet"), "{text}");
    let going = review(|review| review["request"]["object"] = Value::Null);
    assert_eq!(reviewed(&mut client, &going).await["allowed"], true, "what goes takes nothing");
}

/// As many requests as a client has places, whose bodies have begun and do not end.
async fn occupy(
    running: &Running,
) -> Vec<(mpsc::Sender<Part>, tokio::task::JoinHandle<StatusCode>)> {
    let mut all = Vec::new();
    for _ in 0..PLACES_OF_CLIENT {
        let (mut client, _) = connect(running.address).await;
        let (request, parts) = upload();
        parts.send(Ok(Frame::data(Bytes::from_static(&[b' '; head::BYTES])))).await.unwrap();
        let answer = tokio::spawn(async move {
            let status = client.send_request(request).await.unwrap().status();
            drop(client);
            status
        });
        all.push((parts, answer));
    }
    all
}

#[tokio::test]
async fn a_request_waits_where_its_client_has_no_place() {
    let running = start().await;
    let mut busy = occupy(&running).await;
    let (mut client, _) = connect(running.address).await;
    let text = review(|_| {}).to_string();
    let next = tokio::spawn(async move { post(&mut client, text.as_bytes()).await.0 });
    let (parts, first) = busy.pop().unwrap();
    // It cannot have an answer while all places are taken.
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!next.is_finished());
    let body = Bytes::from(review(|_| {}).to_string());
    parts.send(Ok(Frame::data(body))).await.unwrap();
    drop(parts);
    assert_eq!(first.await.unwrap(), StatusCode::OK);
    assert_eq!(next.await.unwrap(), StatusCode::OK);
}

#[tokio::test]
async fn nobody_waits_longer_than_the_time_of_a_request() {
    let running = start().await;
    let busy = occupy(&running).await;
    let (mut client, _) = connect(running.address).await;
    let text = review(|_| {}).to_string();
    let start = Instant::now();
    let (late, _) = post(&mut client, text.as_bytes()).await;
    // Its own time is over, or one of the slow ones' was just before.
    assert!(matches!(late, StatusCode::SERVICE_UNAVAILABLE | StatusCode::OK), "{late}");
    assert!(start.elapsed() < TIMEOUT * 2);
    for (_parts, answer) in busy {
        assert_eq!(answer.await.unwrap(), StatusCode::REQUEST_TIMEOUT);
    }
    // A controller that is busy with something else.
    let _turn = running.loops.lock().await;
    let (mut client, _) = connect(running.address).await;
    assert_eq!(post(&mut client, text.as_bytes()).await.0, StatusCode::SERVICE_UNAVAILABLE);
}

#[tokio::test]
async fn a_new_certificate_is_shown_and_a_broken_one_is_not() {
    let running = start().await;
    let folder = running.folder.path();
    // Requests go on meanwhile, on one connection that stays and on new ones.
    let (mut kept, first) = connect(running.address).await;
    let (good, second) = (self_signed().unwrap(), self_signed().unwrap());
    let shown = |wanted: Vec<u8>| {
        let address = running.address;
        async move {
            loop {
                let (mut client, shown) = connect(address).await;
                reviewed(&mut client, &review(|_| {})).await;
                if shown == wanted {
                    return;
                }
            }
        }
    };
    mount(folder, "2", &good);
    tokio::time::timeout(Duration::from_secs(20), shown(good.0.clone())).await.unwrap();
    assert_ne!(first, good.0);
    reviewed(&mut kept, &review(|_| {})).await;
    // A key that belongs to another certificate; text that is none; nothing.
    mount(folder, "3", &(second.0.clone(), good.1.clone()));
    mount(folder, "4", &(b"x".to_vec(), b"x".to_vec()));
    std::fs::remove_file(folder.join("..data")).unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(connect(running.address).await.1, good.0);
    mount(folder, "5", &second);
    tokio::time::timeout(Duration::from_secs(20), shown(second.0)).await.unwrap();
    reviewed(&mut kept, &review(|_| {})).await;
}

#[tokio::test]
async fn files_that_are_missing_at_start_name_their_flag() {
    let mut options = Options::default();
    let open = async |options: &Options| {
        let (sender, _questions) = mpsc::channel(1);
        Webhook::open(options, sender, Arc::default()).await.map(|webhook| webhook.is_some())
    };
    assert!(!open(&options).await.unwrap());
    options.listen = "127.0.0.1:1".parse().ok();
    let error = open(&options).await.unwrap_err().to_string();
    assert!(error.contains("needs --validating-webhook-certificate"), "{error}");
    options.certificate = Some("/nowhere/tls.crt".into());
    let error = open(&options).await.unwrap_err().to_string();
    assert!(error.contains("needs --validating-webhook-key"), "{error}");
    options.key = Some("x".into());
    let error = open(&options).await.unwrap_err().to_string();
    assert!(error.starts_with("--validating-webhook-certificate /nowhere/tls.crt: "), "{error}");
}

#[tokio::test]
async fn tls_1_1_is_refused() {
    let running = start().await;
    let mut connector = SslConnector::builder(SslMethod::tls_client()).unwrap();
    connector.set_verify(SslVerifyMode::NONE);
    connector.set_cipher_list("DEFAULT@SECLEVEL=0").unwrap();
    connector.set_min_proto_version(Some(openssl::ssl::SslVersion::TLS1)).unwrap();
    connector.set_max_proto_version(Some(openssl::ssl::SslVersion::TLS1_1)).unwrap();
    let ssl = connector.build().configure().unwrap().into_ssl("ingress.local").unwrap();
    let stream = TcpStream::connect(running.address).await.unwrap();
    let mut stream = SslStream::new(ssl, stream).unwrap();
    assert!(Pin::new(&mut stream).connect().await.is_err());
}
