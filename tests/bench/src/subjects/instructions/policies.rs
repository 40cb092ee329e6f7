//! What policies cost: instructions per request of an Ingress that says nothing, and of ones that say something.
//!
//! As in [`crate::instructions`]: one process, one connection, the controller's nginx.conf without its log. What is asked
//! of an auth server is counted, since nginx does it; the server itself is not.

use crate::bench::Bench;
use crate::conf::Route;
use crate::http::Client;
use crate::instructions::{fill, per_request, start};
use crate::report::{Table, thousands};
use crate::snapshot::{self, HOST};
use anyhow::{Context, Result};
use oxigress_core::model::policy::{Policies, PolicyId};
use oxigress_core::model::{Backend, BackendId};
use serde_json::{Value, json};

/// Instructions that each further annotation may cost.
const BUDGET: f64 = 150.0;

/// The budget of each is that of the annotations it stands for.
const CASES: [(&str, usize); 8] = [
    ("time-outs and body size", 4),
    ("CORS, an origin that may read", 5),
    ("rate limits", 2),
    ("lists of networks", 2),
    ("headers of request and response", 3),
    ("basic authentication, password known", 3),
    ("external authentication, answer kept", 4),
    ("external authentication, asked each time", 3),
];

fn policies(case: &str) -> Value {
    let external = json!({
        "to": {"backend": "bench/auth/80", "host": "auth.test"},
        "target": "/verify",
        "response_headers": ["X-User"],
    });
    match case {
        "time-outs and body size" => json!({"proxy": {
            "connect_timeout_seconds": 9, "read_timeout_seconds": 90, "send_timeout_seconds": 90,
            "max_body_bytes": 8_388_608}}),
        "CORS, an origin that may read" => json!({"cors": {
            "origins": ["https://a.test", "https://*.shop.test"], "methods": "GET, POST", "headers": "X-A",
            "exposed": "X-B", "credentials": true, "max_age": 600}}),
        "rate limits" => json!({"limits": {"owner": "bench/app-0",
            "per_second": {"requests": 1_000_000, "burst": 5_000_000, "status": 503},
            "per_minute": {"requests": 60_000_000, "burst": 300_000_000, "status": 503}}}),
        "lists of networks" => json!({"access": {
            "allow": ["127.0.0.0/8", "10.0.0.0/8"], "deny": ["10.1.0.0/16"]}}),
        "headers of request and response" => json!({
            "response_headers": [{"name": "X-Frame-Options", "value": "DENY"}],
            "request_headers": [{"name": "X-Tenant", "value": "$host"}],
            "upstream_host": "inner.test"}),
        "basic authentication, password known" => json!({"access": {"basic": {
            "realm": "bench", "users": "u:$apr1$O04r.y2H$/vEkesPhVInBByJUkXitA/\nx:{PLAIN}y\n"}}}),
        "external authentication, answer kept" => {
            let mut external = external;
            external["cache"] =
                json!({"key": "$remote_addr", "valid": [{"statuses": [200], "seconds": 3600}]});
            json!({"access": {"external": external}})
        }
        _ => json!({"access": {"external": external}}),
    }
}

/// About thirty annotations: all of the above but authentication by another server, and more of proxying.
fn thirty() -> Value {
    let mut all = json!({});
    for (case, _) in CASES.iter().take(5) {
        if let (Some(all), Value::Object(more)) = (all.as_object_mut(), policies(case)) {
            all.extend(more);
        }
    }
    for (name, value) in [
        ("buffering", json!(true)),
        ("buffer_count", json!(8)),
        ("buffer_bytes", json!(8192)),
        ("busy_buffers_bytes", json!(16384)),
        ("max_temp_file_bytes", json!(0)),
        ("request_buffering", json!(true)),
        ("next_upstream", json!(["error", "timeout", "http502"])),
        ("next_upstream_tries", json!(2)),
        ("next_upstream_timeout_seconds", json!(10)),
        ("http_version", json!("1.1")),
        ("cookie_path", json!({"from": "/", "to": "/app"})),
        ("redirect", json!("default")),
    ] {
        all["proxy"][name] = value;
    }
    all["errors"] = json!({"codes": [502, 504]});
    all["keeps_trailing_slash"] = json!(true);
    all
}

pub fn run(bench: &Bench, table: &mut Table) -> Result<()> {
    let none = count(bench, "policies-none", None)?;
    table.row("an Ingress without annotations", thousands(none));
    let mut cases: Vec<_> = CASES.iter().map(|(case, n)| (*case, *n, policies(case))).collect();
    cases.push(("some thirty annotations at once", 30, thirty()));
    for (place, (case, annotations, policies)) in cases.into_iter().enumerate() {
        let cost = count(bench, &format!("policies-{place}"), Some(policies))
            .with_context(|| case.to_owned())?
            - none;
        eprintln!("policies: {case}: + {}", thousands(cost));
        table
            .row(case, format!("+ {}", thousands(cost)))
            .peer(format!("{annotations} annotations"))
            .budget("150 each", cost <= BUDGET * annotations as f64);
    }
    table.note("the controller's nginx.conf, access log off; answers of 100 B");
    Ok(())
}

fn count(bench: &Bench, name: &str, policies: Option<Value>) -> Result<f64> {
    let (callgrind, ports, folder) = start(bench, name, Route::Default { has_log: false }, false)?;
    let mut snapshot = snapshot::hosts(1, 10, &bench.endpoints, 0)?;
    let auth = BackendId::parse("bench/auth/80")?;
    snapshot.backends.insert(auth.clone(), Backend::default());
    snapshot.endpoints.insert(auth, snapshot::real(&bench.endpoints)?);
    if let Some(policies) = policies {
        let id = PolicyId::parse("bench")?;
        let policies: Policies = serde_json::from_value(policies)?;
        snapshot.policies.insert(id.clone(), policies);
        for rule in snapshot.servers.values_mut().flat_map(|server| &mut server.rules) {
            rule.policies = Some(id.clone());
        }
    }
    fill(&folder, &snapshot::whole(snapshot)?)?;
    let mut client = Client::tcp(ports.http)?;
    let lines = "Origin: https://x.shop.test\r\nAuthorization: Basic eDp5\r\n";
    let send = |count: usize| -> Result<()> {
        (0..count)
            .try_for_each(|_| client.get_with(HOST, "/some/path?and=query", lines)?.ok().map(drop))
    };
    per_request(bench, callgrind, name, send)
}
