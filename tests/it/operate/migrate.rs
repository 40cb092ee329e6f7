//! `oxigress migrate`: what it prints answers requests as the Ingresses do that it was made of.
//!
//! One product serves Ingresses, another one what is printed for them; `oxigress compare` asks both the same: each host and path
//! in many spellings, with headers that annotations are about.

use anyhow::{Context, Result, ensure};
use oxigress_tests::certificate::Certificate;
use oxigress_tests::controller::Controller;
use oxigress_tests::place::Directory;
use oxigress_tests::shop::Shop;
use oxigress_tests::{dist, pass};
use serde_json::Value;
use std::fs;
use std::process::{Command, Output};

/// Ingresses of the most used annotations: name, path and its type, annotations. Each has a host `NAME.test`.
const INGRESSES: [(&str, &str, &str, &[&str]); 33] = [
    ("plain", "/", "Prefix", &[]),
    ("segments", "/cart", "Prefix", &[]),
    ("exact", "/only", "Exact", &[]),
    ("any", "/any", "ImplementationSpecific", &[]),
    ("body-size", "/", "Prefix", &["proxy-body-size: 8m", "client-body-buffer-size: 16k"]),
    (
        "timeouts",
        "/",
        "Prefix",
        &["proxy-connect-timeout: '5'", "proxy-read-timeout: '7'", "proxy-send-timeout: '8'"],
    ),
    (
        "buffers",
        "/",
        "Prefix",
        &["proxy-buffer-size: 8k", "proxy-buffers-number: '4'", "proxy-buffering: 'on'"],
    ),
    (
        "unbuffered",
        "/",
        "Prefix",
        &["proxy-buffering: 'off'", "proxy-request-buffering: 'off'", "proxy-http-version: '1.1'"],
    ),
    (
        "retries",
        "/",
        "Prefix",
        &["proxy-next-upstream: error timeout http_502", "proxy-next-upstream-tries: '2'"],
    ),
    (
        "cors",
        "/",
        "Prefix",
        &[
            "enable-cors: 'true'",
            "cors-allow-origin: https://a.test",
            "cors-allow-methods: 'GET, PUT'",
            "cors-max-age: '60'",
        ],
    ),
    ("cors-any", "/", "Prefix", &["enable-cors: 'true'", "cors-allow-credentials: 'false'"]),
    ("denied", "/", "Prefix", &["whitelist-source-range: 10.0.0.0/8"]),
    ("admitted", "/", "Prefix", &["whitelist-source-range: '127.0.0.0/8,10.0.0.0/8'"]),
    ("denylist", "/", "Prefix", &["denylist-source-range: 127.0.0.1"]),
    ("users", "/", "Prefix", &["auth-type: basic", "auth-secret: users", "auth-realm: shop"]),
    (
        "any-of",
        "/",
        "Prefix",
        &[
            "auth-type: basic",
            "auth-secret: users",
            "whitelist-source-range: 127.0.0.1",
            "satisfy: any",
        ],
    ),
    ("lost-users", "/", "Prefix", &["auth-type: basic", "auth-secret: nobody"]),
    (
        "limits",
        "/",
        "Prefix",
        &["limit-rps: '10000'", "limit-connections: '500'", "limit-rate: '10000'"],
    ),
    ("lost-limit", "/", "Prefix", &["limit-rps: many"]),
    (
        "sticky",
        "/",
        "Prefix",
        &["affinity: cookie", "session-cookie-name: route", "session-cookie-max-age: '600'"],
    ),
    ("hashed", "/", "Prefix", &["upstream-hash-by: $request_uri"]),
    ("least", "/", "Prefix", &["load-balance: ewma"]),
    ("vhost", "/", "Prefix", &["upstream-vhost: inner.test"]),
    (
        "moved",
        "/",
        "Prefix",
        &["permanent-redirect: https://new.test/x", "permanent-redirect-code: '308'"],
    ),
    ("away", "/", "Prefix", &["temporal-redirect: https://new.test/y"]),
    ("root", "/shop", "Prefix", &["app-root: /shop"]),
    ("rewritten", "/old", "Prefix", &["rewrite-target: /new"]),
    (
        "stripped",
        "/api(/|$)(.*)",
        "ImplementationSpecific",
        &["use-regex: 'true'", "rewrite-target: /$2"],
    ),
    (
        "moved-path",
        "/v1(/|$)(.*)",
        "ImplementationSpecific",
        &["use-regex: 'true'", "rewrite-target: /v2/$2"],
    ),
    ("errors", "/", "Prefix", &["custom-http-errors: '404,503'", "default-backend: b"]),
    ("alias", "/", "Prefix", &["server-alias: other-alias.test"]),
    ("named", "/", "Prefix", &["from-to-www-redirect: 'true'"]),
    (
        "unlogged",
        "/",
        "Prefix",
        &["enable-access-log: 'false'", "proxy-cookie-path: /a /b", "proxy-redirect-from: 'off'"],
    ),
];

/// Ingresses with a certificate, and a canary for each of two hosts.
const OTHERS: &str = "
---
kind: Ingress
metadata: { name: secure, annotations: { $P/preserve-trailing-slash: 'true' } }
spec:
  tls: [{ hosts: [secure.test], secretName: tls }]
  rules:
  - { host: secure.test, http: { paths: [{ path: /, pathType: Prefix, backend: { service: { name: a, port: { name: http } } } }, { path: /b, pathType: Prefix, backend: { service: { name: b, port: { number: 80 } } } }] } }
---
kind: Ingress
metadata: { name: both, annotations: { $P/ssl-redirect: 'false' } }
spec:
  tls: [{ hosts: [both.test], secretName: tls }]
  rules:
  - { host: both.test, http: { paths: [{ path: /x, pathType: Prefix, backend: { service: { name: a, port: { number: 80 } } } }] } }
---
kind: Ingress
metadata: { name: rest }
spec:
  defaultBackend: { service: { name: b, port: { number: 80 } } }
  rules:
  - { host: rest.test, http: { paths: [{ path: /a, pathType: Prefix, backend: { service: { name: a, port: { number: 80 } } } }] } }
---
kind: Ingress
metadata: { name: asked }
spec: { rules: [{ host: asked.test, http: { paths: [{ path: /, pathType: Prefix, backend: { service: { name: a, port: { number: 80 } } } }] } }] }
---
kind: Ingress
metadata: { name: asked-canary, annotations: { $P/canary: 'true', $P/canary-by-header: X-New, $P/canary-by-cookie: new } }
spec: { rules: [{ host: asked.test, http: { paths: [{ path: /, pathType: Prefix, backend: { service: { name: b, port: { number: 80 } } } }] } }] }
---
kind: Ingress
metadata: { name: whole }
spec: { rules: [{ host: whole.test, http: { paths: [{ path: /, pathType: Prefix, backend: { service: { name: a, port: { number: 80 } } } }] } }] }
---
kind: Ingress
metadata: { name: whole-canary, annotations: { $P/canary: 'true', $P/canary-weight: '100' } }
spec: { rules: [{ host: whole.test, http: { paths: [{ path: /, pathType: Prefix, backend: { service: { name: b, port: { number: 80 } } } }] } }] }
";

const PREFIX: &str = "nginx.ingress.kubernetes.io";

/// `anna` with the password `secret`.
const USERS: &str = "apiVersion: v1\nkind: Secret\nmetadata: { name: users }\n\
    stringData: { auth: 'anna:$apr1$abcdefgh$h9FWgUz3n9YxylKLlR5SQ/' }\n";

fn ingresses() -> String {
    let mut text = String::new();
    for (name, path, kind, annotations) in INGRESSES {
        text +=
            &format!("---\nkind: Ingress\nmetadata:\n  name: {name}\n  annotations:\n    x/y: z\n");
        for annotation in annotations {
            text += &format!("    {PREFIX}/{annotation}\n");
        }
        text += &format!(
            "spec: {{ rules: [{{ host: {name}.test, http: {{ paths: [{{ path: '{path}', pathType: {kind}, \
             backend: {{ service: {{ name: a, port: {{ number: 80 }} }} }} }}] }} }}] }}\n"
        );
    }
    let text = text.replace("    x/y: z\n", "").replace("  annotations:\nspec", "spec");
    let all = text + &OTHERS.replace("$P", PREFIX);
    all.replace("kind: Ingress\n", "apiVersion: networking.k8s.io/v1\nkind: Ingress\n")
}

/// Two products: one with Ingresses, one with what is made of them.
struct Pair {
    old: Shop,
    new: Shop,
    folder: std::path::PathBuf,
    // Removed last.
    _apart: Directory,
}

/// What `oxigress migrate` prints for a folder.
fn migrate(folder: &std::path::Path) -> Result<(String, String)> {
    let output = Command::new(dist::oxigress()?).arg("migrate").arg(folder).output()?;
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let yaml = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(matches!(output.status.code(), Some(0 | 1)), "{}: {errors}", output.status);
    Ok((yaml, errors))
}

impl Pair {
    /// `common` are objects that both serve, `ingresses` those that are migrated.
    fn start(
        directory: &Directory,
        endpoints: &[&str],
        common: &[(String, String)],
        ingresses: &str,
    ) -> Result<(Self, String)> {
        let apart = Directory::new("migrate-new")?;
        let start = |directory: &Directory| -> Result<Shop> {
            let flags = ["--watch-ingress-without-class".to_owned()];
            Shop::new(Controller::start(directory, 1, &flags)?, endpoints, &[])
        };
        let (mut old, mut new) = (start(directory)?, start(&apart)?);
        for shop in [&mut old, &mut new] {
            for (name, text) in common {
                shop.write_only(name, text)?;
            }
        }
        old.write("ingresses.yaml", ingresses)?;
        let folder = directory.join("source");
        fs::create_dir(&folder)?;
        for entry in fs::read_dir(directory.join("manifests"))? {
            let name = entry?.file_name();
            // The harness waits for objects of its own.
            if !name.to_string_lossy().starts_with(['.', 'z']) {
                fs::copy(directory.join("manifests").join(&name), folder.join(&name))?;
            }
        }
        let (yaml, told) = migrate(&folder)?;
        new.write("migrated.yaml", &yaml)?;
        Ok((Pair { old, new, folder, _apart: apart }, told))
    }

    fn compare(&self, arguments: &[&str]) -> Result<Value> {
        let address = |shop: &Shop| {
            format!("127.0.0.1:{}:{}", shop.controller.http_port, shop.controller.https_port)
        };
        let mut command = Command::new(dist::oxigress()?);
        command.args(["compare", &address(&self.old), &address(&self.new), "--rate=0", "-o=json"]);
        // Each has endpoints of its own, which count their own connections.
        command.args(["--ignore-header=x-endpoint-requests"]);
        command.args(arguments);
        report(&command.output()?)
    }
}

fn report(output: &Output) -> Result<Value> {
    let errors = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).with_context(|| format!("{}: {errors}", output.status))
}

/// The differences beside those that `is_told` knows, as lines.
fn differences(report: &Value, is_told: impl Fn(&Value) -> bool) -> Vec<String> {
    let all = report["differences"].as_array().into_iter().flatten();
    all.filter(|one| !is_told(one)).map(|one| format!("{one:#}")).collect()
}

fn secret(host: &[&str]) -> Result<String> {
    let certificate = Certificate::new("tls", host)?;
    let data = |text: &str| openssl::base64::encode_block(text.as_bytes());
    Ok(format!(
        "{{apiVersion: v1, kind: Secret, type: kubernetes.io/tls, metadata: {{name: tls}}, \
         data: {{tls.crt: {}, tls.key: {}}}}}",
        data(&certificate.chain),
        data(&certificate.key)
    ))
}

#[test]
fn the_most_used_annotations_answer_as_before() {
    pass("migrate", |directory| {
        let common = [
            ("services.yaml".to_owned(), "$SERVICE(a: a)\n$SERVICE(b: b)".to_owned()),
            ("users.yaml".to_owned(), USERS.to_owned()),
            ("tls.yaml".to_owned(), secret(&["secure.test", "both.test"])?),
        ];
        let (pair, told) = Pair::start(directory, &["a", "b"], &common, &ingresses())?;
        let authorized = "Authorization: Basic YW5uYTpzZWNyZXQ=";
        let mut count = 0;
        let list = directory.join("requests");
        let urls = |host: &str| format!("http://{host}.test/\nhttp://{host}.test/x/y?z=1\n");
        let hosts: String = INGRESSES.iter().map(|(name, ..)| urls(name)).collect();
        fs::write(&list, hosts + &urls("asked") + &urls("whole"))?;
        let list = list.display().to_string();
        for arguments in [
            &["--folder", &pair.folder.display().to_string()][..],
            &["--requests", &list, "-H", authorized],
            &["--requests", &list, "-H", "Origin: https://a.test"],
            &["--requests", &list, "-H", "X-New: always"],
            &["--requests", &list, "-H", "X-New: never"],
            &["--requests", &list, "-H", "Cookie: old=1; new=always"],
            &["--requests", &list, "-H", "Answer-Status: 404"],
        ] {
            let report = pair.compare(arguments)?;
            // The names of a pattern are compared in any case, those of a route in their own: it is told.
            let is_told = |one: &Value| {
                let of = |host: &str| one["route"].as_str().is_some_and(|r| r.starts_with(host));
                let examples = one["examples"].to_string();
                of("stripped.test") && examples.contains("/API")
                    || of("moved-path.test") && examples.contains("/V1")
            };
            let found = differences(&report, is_told);
            ensure!(found.is_empty(), "{arguments:?}: {}\n{told}", found.join("\n"));
            count += report["same"].as_u64().unwrap_or_default();
        }
        ensure!(count > 700, "{count} answers were the same");
        ensure!(!told.contains("not said"), "{told}");
        Ok(())
    });
}

#[test]
fn the_example_shop_answers_as_before() {
    pass("migrate-shop", |directory| {
        let folder = dist::repository().join("conf/examples/shop");
        let (mut common, mut ingresses) = (Vec::new(), String::new());
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let name = path.file_name().context("a name")?.to_string_lossy().into_owned();
            let mut text = fs::read_to_string(&path)?;
            for (port, endpoint) in
                [(9001, "a"), (9002, "b"), (9003, "c"), (9004, "d"), (9005, "e")]
            {
                text = text.replace(&port.to_string(), &format!("$PORT_{endpoint}"));
            }
            match name.as_str() {
                "ingress.yaml" => ingresses = text,
                _ => common.push((name, text)),
            }
        }
        let endpoints = ["a", "b", "c", "d", "e"];
        let (pair, told) = Pair::start(directory, &endpoints, &common, &ingresses)?;
        let folder = pair.folder.display().to_string();
        let report = pair.compare(&["--folder", &folder, "--ignore-header=x-endpoint"])?;
        // A slash at the end stays in a redirect: it is told. Two endpoints take turns.
        let is_told = |one: &Value| {
            let text = |field: &str| one[field].as_str().unwrap_or_default().to_owned();
            one["aspect"] == "location" && text("new") == format!("{}/", text("old"))
        };
        let found = differences(&report, is_told);
        ensure!(found.is_empty(), "{}\n{told}", found.join("\n"));
        ensure!(report["same"].as_u64() > Some(100), "{report:#}");
        ensure!(told.contains("keep a slash") && told.contains("the star"), "{told}");
        Ok(())
    });
}
