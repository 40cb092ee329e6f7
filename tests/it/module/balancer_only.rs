//! The hand-written nginx.conf of the documentation, driven by ingress-nginx's own wire format.

use anyhow::{Context, Result, ensure};
use oxigress_tests::client::{Address, Connection, Request, Response, send};
use oxigress_tests::dist;
use oxigress_tests::endpoint::{Behaviour, Endpoint};
use oxigress_tests::load::{Load, Plan};
use oxigress_tests::nginx::Nginx;
use oxigress_tests::pass;
use oxigress_tests::place::{Directory, free_port};
use oxigress_tests::wait::block_on;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;

/// As many as `worker_processes auto` starts.
fn workers() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

#[test]
fn the_documented_nginx_conf_serves_what_ingress_nginxs_controller_posts() {
    pass("balancer-only", serve);
}

fn documented(directory: &Directory, port: u16, configuration_port: u16) -> Result<String> {
    let example = dist::repository().join("docs/examples/balancer-only.conf");
    let text = fs::read_to_string(&example).with_context(|| example.display().to_string())?;
    let text = replace(&text, "127.0.0.1:8080;", &format!("127.0.0.1:{port};"))?;
    let text = replace(&text, "127.0.0.1:10246;", &format!("127.0.0.1:{configuration_port};"))?;
    let module = dist::module()?.display().to_string();
    let text = replace(&text, "modules/ngx_ingress_module.so", &module)?;
    let text =
        replace(&text, "logs/error.log", &directory.join("error.log").display().to_string())?;
    let text = replace(&text, "http {", &format!("http {{{}", temporary_files(directory)))?;
    Ok(text)
}

fn serve(directory: &Directory) -> Result<()> {
    fs::create_dir(directory.join("logs"))?;
    let (port, configuration_port) = (free_port()?, free_port()?);
    let text = documented(directory, port, configuration_port)?;
    let mut nginx = Nginx::start(directory, &format!("daemon off;\n{text}"), workers())?;

    let (client, configuration) = (Address::http(port), Address::http(configuration_port));
    let get = |path: &str| block_on(send(&client, &Request::get("shop.example", path)));
    let post = |path: &str, body: &Value| -> Result<Response> {
        let request = Request::new("POST", &format!("127.0.0.1:{configuration_port}"), path)
            // The headers of Go's client, which the controller is.
            .header("User-Agent", "Go-http-client/1.1")
            .header("Content-Type", "application/json")
            .header("Accept-Encoding", "gzip")
            .body(body.to_string());
        block_on(send(&configuration, &request))
    };

    ensure!(get("/healthz")?.status == 200, "nginx's own locations serve");
    let before = get("/")?;
    ensure!(before.status == 502, "nothing is posted: {before}");

    let shops =
        [Endpoint::start("shop-1")?, Endpoint::start("shop-2")?, Endpoint::start("shop-3")?];
    let cart = Endpoint::start("cart")?;
    let answer = post("/configuration/backends", &payload(&[&shops[0], &shops[1]], &[&cart]))?;
    ensure!(answer.status == 201, "{answer}");
    ensure!(
        post("/configuration/servers", &json!({"servers": {}, "certificates": {}}))?.status == 201
    );
    ensure!(post("/configuration/general", &json!({}))?.status == 201);

    ensure!(get("/cart/1")?.endpoint().as_deref() == Some("cart"));
    let counts = count(&client, 8)?;
    let expected = BTreeMap::from([("shop-1".to_owned(), 4), ("shop-2".to_owned(), 4)]);
    ensure!(counts == expected, "one worker takes turns: {counts:?}");

    let pids = nginx.worker_pids();
    roll_out(&client, &shops, |pair| post("/configuration/backends", &payload(pair, &[&cart])))?;
    ensure!(nginx.worker_pids() == pids, "worker processes changed");

    // One endpoint dies: its requests go to the other.
    let dead = Endpoint::with("dead", Behaviour::Refuse, std::net::Ipv4Addr::LOCALHOST.into())?;
    ensure!(post("/configuration/backends", &payload(&[&dead, &shops[0]], &[]))?.status == 201);
    ensure!(count(&client, 6)? == BTreeMap::from([("shop-1".to_owned(), 6)]));
    ensure!(get("/cart/1")?.status == 502, "a backend without endpoints");

    is_read_back(configuration_port, &payload(&[&dead, &shops[0]], &[]))?;

    nginx.stop()?;
    nginx.check_error_log()
}

/// A rollout while requests are sent: no request fails and nothing is restarted.
fn roll_out(
    client: &Address,
    shops: &[Endpoint; 3],
    post: impl Fn(&[&Endpoint]) -> Result<Response>,
) -> Result<()> {
    let load = Load::start(Plan::new(client.clone(), vec![Request::get("shop.example", "/")], 4))?;
    for round in 0..20 {
        let pair = [&shops[round % 3], &shops[(round + 1) % 3]];
        let answer = post(&pair)?;
        ensure!(answer.status == 201, "{answer}");
        // The load takes turns on the same worker, so only who answers is known, not how often.
        let counts = count(client, 4)?;
        ensure!(
            counts.keys().all(|name| pair.iter().any(|endpoint| endpoint.name == *name)),
            "round {round}: {counts:?}"
        );
    }
    let report = load.stop();
    ensure!(report.failures.is_empty(), "{:?}", report.failures);
    Ok(())
}

/// What was posted can be read back, as ingress-nginx's debug tool does.
fn is_read_back(port: u16, posted: &Value) -> Result<()> {
    let request = Request::get(&format!("127.0.0.1:{port}"), "/configuration/backends");
    let read: Value = block_on(send(&Address::http(port), &request))?.json()?;
    let (read, posted) = (read.as_array().context("an array")?, posted.as_array().context("one")?);
    ensure!(read.len() == posted.len(), "{} backends", read.len());
    for (read, posted) in read.iter().zip(posted) {
        for (field, value) in posted.as_object().into_iter().flatten() {
            ensure!(&read[field] == value, "{field}: {} instead of {value}", read[field]);
        }
    }
    Ok(())
}

/// Distributions compile folders of the installed system in (`make test-debian`).
fn temporary_files(directory: &Directory) -> String {
    ["client_body", "proxy", "fastcgi", "scgi", "uwsgi"]
        .map(|name| format!("\n    {name}_temp_path {};", directory.join(name).display()))
        .concat()
}

fn replace(text: &str, old: &str, new: &str) -> Result<String> {
    ensure!(text.matches(old).count() == 1, "`{old}` stands once in balancer-only.conf");
    Ok(text.replace(old, new))
}

/// Endpoints that answered so many requests of one connection, hence of one worker.
fn count(address: &Address, times: u32) -> Result<BTreeMap<String, u32>> {
    let mut counts = BTreeMap::new();
    let mut connection = block_on(Connection::open(address))?;
    for _ in 0..times {
        let response = block_on(connection.send(&Request::get("shop.example", "/")))?;
        let name = response.endpoint().unwrap_or_else(|| format!("status {}", response.status));
        *counts.entry(name).or_default() += 1;
    }
    Ok(counts)
}

/// What version 1.15 of ingress-nginx's controller posts for an Ingress with two paths, field for field, sorted
/// by name. A backend without endpoints has no such field.
fn payload(shop: &[&Endpoint], cart: &[&Endpoint]) -> Value {
    let element = |name: &str, port: Value, endpoints: &[&Endpoint]| {
        let mut element = json!({
            "name": name,
            "service": {
                "metadata": {"creationTimestamp": null},
                "spec": {
                    "ports": [{"name": "http", "protocol": "TCP", "port": 80, "targetPort": 8080}],
                    "selector": {"app": name},
                    "clusterIP": "10.96.0.10", "clusterIPs": ["10.96.0.10"], "type": "ClusterIP",
                    "sessionAffinity": "None", "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
                    "internalTrafficPolicy": "Cluster"
                },
                "status": {"loadBalancer": {}}
            },
            "port": port,
            "sslPassthrough": false,
            "sessionAffinityConfig": {"name": "", "mode": "", "cookieSessionAffinity": {"name": ""}},
            "upstreamHashByConfig": {"upstream-hash-by-subset-size": 3},
            "noServer": false,
            "trafficShapingPolicy": {"weight": 0, "weightTotal": 0, "header": "", "headerValue": "",
                "headerPattern": "", "cookie": ""}
        });
        if !endpoints.is_empty() {
            element["endpoints"] = endpoints.iter().map(|e| e.compatible()).collect();
        }
        element
    };
    json!([
        element("default-cart-http", json!("http"), cart),
        element("default-shop-80", json!(80), shop),
        {
            "name": "upstream-default-backend",
            "port": 0,
            "sslPassthrough": false,
            "endpoints": [{"address": "127.0.0.1", "port": "8181"}],
            "sessionAffinityConfig": {"name": "", "mode": "", "cookieSessionAffinity": {"name": ""}},
            "upstreamHashByConfig": {},
            "noServer": false,
            "trafficShapingPolicy": {"weight": 0, "weightTotal": 0, "header": "", "headerValue": "",
                "headerPattern": "", "cookie": ""}
        }
    ])
}
