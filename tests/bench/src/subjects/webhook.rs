//! The admission webhook of the whole product: AdmissionReviews over HTTPS, one after the other as an API server asks.

use crate::bench::Bench;
use crate::http::Client;
use crate::manifests::{Manifests, host};
use crate::product::Oxigress;
use crate::report::Table;
use crate::sample::{Sample, show};
use anyhow::{Context, Result, ensure};
use oxigress_tests::certificate::Certificate;
use oxigress_tests::place::free_port;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

const INGRESSES: usize = 10_000;
const REVIEWS: usize = 2_000;

pub fn run(bench: &Bench, table: &mut Table) -> Result<()> {
    if bench.oxigress.is_none() {
        table.row("admission", "not measured: target/dist/bin/oxigress is missing");
        return Ok(());
    }
    let manifests = Manifests::new(&bench.directory.join("webhook"))?;
    for number in 0..INGRESSES {
        manifests.app(number, bench.endpoints[0], &["/"])?;
    }
    let certificate = Certificate::new("webhook", &["localhost"])?;
    let file = |name: &str, text: &str| write(&bench.directory.join(name), text);
    let port = free_port()?;
    let source = [
        format!("--manifests={}", manifests.folder().display()),
        format!("--validating-webhook=127.0.0.1:{port}"),
        format!("--validating-webhook-certificate={}", file("webhook.crt", &certificate.chain)?),
        format!("--validating-webhook-key={}", file("webhook.key", &certificate.key)?),
    ];
    let mut oxigress = Oxigress::start(bench, &source, "webhook")?;
    let mut client = Client::tls(port)?;
    let mut measure =
        |what: &str, is_allowed: bool, review: &dyn Fn(usize) -> Value| -> Result<()> {
            let mut times = Vec::new();
            for turn in 0..REVIEWS {
                let body = serde_json::to_vec(&review(turn))?;
                let start = Instant::now();
                let answer =
                    client.send_json("POST", "/networking/v1/ingresses", None, &body)?.ok()?;
                times.push(start.elapsed());
                let answer: Value = serde_json::from_slice(&answer.body)?;
                let allowed = answer["response"]["allowed"].as_bool().context("an answer")?;
                ensure!(allowed == is_allowed, "{what}: {answer}");
            }
            let times: Sample = times.into_iter().collect();
            let p99 = times.quantile(0.99);
            table
                .row(
                    &format!("{what}: p50, p99, max of {}", times.len()),
                    format!("{}, {}, {}", show(times.p50()), show(p99), show(times.max())),
                )
                .budget("p99 ≤ 5 ms", p99 <= Duration::from_millis(5));
            Ok(())
        };
    let app = |turn: usize| turn * 7 % INGRESSES;
    measure("an Ingress changes", true, &|turn| {
        let number = app(turn);
        review(&format!("app-{number}"), &host(number), &format!("/{turn}"))
    })?;
    measure("a new one on a host of its own", true, &|turn| {
        review(&format!("new-{turn}"), &host(INGRESSES + turn), "/")
    })?;
    measure("a new one with a path that another has", false, &|turn| {
        review(&format!("new-{turn}"), &host(app(turn)), "/")
    })?;
    table.note("admission: TLS 1.3, one kept connection; each review has 20 annotations and 50 managed fields");
    oxigress.stop()
}

fn write(path: &Path, text: &str) -> Result<String> {
    fs::write(path, text)?;
    Ok(path.display().to_string())
}

/// The review of an Ingress as people have them.
fn review(name: &str, host: &str, path: &str) -> Value {
    let annotations =
        (0..14).map(|number| (format!("example.test/note-{number}"), json!("some text")));
    let ours = [
        ("proxy-body-size", "8m"),
        ("proxy-read-timeout", "120"),
        ("enable-cors", "true"),
        ("limit-rps", "100"),
        ("whitelist-source-range", "10.0.0.0/8,192.168.0.0/16"),
        ("ssl-redirect", "false"),
    ];
    let ours =
        ours.map(|(name, value)| (format!("nginx.ingress.kubernetes.io/{name}"), json!(value)));
    let annotations: serde_json::Map<_, _> = annotations.chain(ours).collect();
    let managed: serde_json::Map<_, _> =
        (0..50).map(|number| (format!("f:field-{number}"), json!({}))).collect();
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
            "kind": { "group": "networking.k8s.io", "version": "v1", "kind": "Ingress" },
            "resource": { "group": "networking.k8s.io", "version": "v1", "resource": "ingresses" },
            "namespace": "bench", "name": name, "operation": "UPDATE", "userInfo": { "username": "bench" },
            "object": {
                "apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
                "metadata": {
                    "name": name, "namespace": "bench", "uid": "0c9a8d74-9cb7-44dd-b98e-09fd62def2f4",
                    "creationTimestamp": "2026-01-01T00:00:00Z", "annotations": annotations,
                    "managedFields": [{ "manager": "bench", "operation": "Update", "fieldsV1": managed }],
                },
                "spec": {
                    "ingressClassName": "nginx",
                    "rules": [{ "host": host, "http": { "paths": [{
                        "path": path, "pathType": "Prefix",
                        "backend": { "service": { "name": "app-1", "port": { "number": 80 } } },
                    }]}}],
                },
            },
        },
    })
}
