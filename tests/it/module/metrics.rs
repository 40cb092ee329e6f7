//! Requests are counted exactly, by rule, and clients cannot make series.

use anyhow::{Context, Result, ensure};
use oxigress_tests::client::{self, Address, Connection, Request};
use oxigress_tests::controller::Controller;
use oxigress_tests::endpoint::Endpoint;
use oxigress_tests::nginx::Configuration;
use oxigress_tests::pass;
use oxigress_tests::place::Directory;
use oxigress_tests::prometheus::Page;
use oxigress_tests::shop::Shop;
use oxigress_tests::site::{Plan, Site};
use oxigress_tests::wait::{block_on, runtime, until};
use serde_json::{Value, json};

const REQUESTS: &str = "nginx_ingress_controller_requests";
const DURATION: &str = "nginx_ingress_controller_request_duration_seconds_count";

fn site(directory: &Directory, workers: usize) -> Result<(Plan, Site)> {
    let mut plan = Plan::router(workers)?;
    plan.main_config = "ingress_metrics;".into();
    plan.http_config = "keepalive_requests 1000000;".into();
    let site = Site::start(&plan, directory)?;
    Ok((plan, site))
}

fn page(configuration: &Configuration, query: &str) -> Result<Page> {
    let request = Configuration::request("GET", &format!("/metrics{query}"), "");
    let response = block_on(configuration.send(&request))?;
    ensure!(response.status == 200, "{response}");
    let kind = response.header("content-type").unwrap_or_default();
    ensure!(kind == "text/plain; version=0.0.4; charset=utf-8", "{kind}");
    Page::parse(&response.text())
}

fn put(site: &Site, snapshot: &Value) -> Result<()> {
    let whole = json!({"version": 1, "snapshot": snapshot});
    let applied = block_on(site.configuration.put(whole.to_string()))?;
    ensure!(applied.status == 200, "{applied}");
    Ok(())
}

fn rule(kind: &str, path: &str, backend: &str) -> Value {
    let origin = json!({"namespace": "default", "ingress": "shop", "service": backend,
                        "port": "80", "path": path});
    json!({"path": {kind: path}, "backend": backend, "origin": origin})
}

/// A request has ended a moment after its answer was read: waits until `name` has this sum.
fn expect(site: &Site, name: &str, labels: &[(&str, &str)], sum: u64) -> Result<Page> {
    until(&format!("{sum} of {name}{labels:?}"), || {
        let page = page(&site.configuration, "")?;
        let found = page.sum(name, labels);
        ensure!(found.0 as u64 == sum, "{found:?} of {:?}", page.all(name));
        Ok(page)
    })
}

async fn send_each(address: Address, requests: Vec<(Request, u16)>, rounds: usize) -> Result<()> {
    let mut connection = Connection::open(&address).await?;
    for _ in 0..rounds {
        for (request, status) in &requests {
            let response = connection.send(request).await?;
            ensure!(response.status == *status, "{response}");
        }
    }
    Ok(())
}

#[test]
fn four_workers_lose_no_count_while_rules_change_and_nginx_reloads() {
    pass("metrics-exact", |directory| {
        const CONNECTIONS: u64 = 16;
        const ROUNDS: u64 = 250;
        let (_, mut site) = site(directory, 4)?;
        let endpoint = Endpoint::start("a")?;
        let servers = |policy: &str| {
            let mut root = rule("prefix", "/", "web");
            root["policy"] = json!({"https_redirect": policy});
            json!({"shop.test": {"rules": [root, rule("exact", "/cart", "web")]},
                   "*.tenant.test": {"rules": [rule("prefix", "/", "web")]}})
        };
        let snapshot = json!({"servers": servers("never"), "backends": {"web": {}},
                              "endpoints": {"web": [endpoint.native()]}});
        put(&site, &snapshot)?;
        let address = site.http();
        let tasks: Vec<_> = (0..CONNECTIONS)
            .map(|_| {
                let requests = vec![
                    (Request::get("shop.test", "/x"), 200),
                    (Request::new("POST", "shop.test", "/cart").body("1234"), 200),
                    (Request::get("any.tenant.test", "/"), 200),
                    (Request::get("unknown.test", "/"), 404),
                ];
                runtime().spawn(send_each(address.clone(), requests, ROUNDS as usize))
            })
            .collect();
        // The record of the host is replaced all the time, and its rules stay.
        let mut changes = 0;
        while tasks.iter().any(|task| !task.is_finished()) {
            let policy = ["with_certificate", "never"][changes % 2];
            let delta = json!({"version": 1, "upsert": {"servers": servers(policy)}});
            let applied = block_on(site.configuration.patch("*", delta.to_string()))?;
            ensure!(applied.status == 200, "{applied}");
            changes += 1;
        }
        for task in tasks {
            block_on(task)??;
        }
        let each = CONNECTIONS * ROUNDS;
        expect_each(&site, each)?;
        println!("{} requests and {changes} changes of their rules", 4 * each);
        ensure!(changes >= 20, "only {changes} changes");
        site.nginx.reload()?;
        expect_each(&site, each)?;
        site.nginx.stop()?;
        site.nginx.check_error_log()
    });
}

/// Each of the four requests was counted so many times.
fn expect_each(site: &Site, each: u64) -> Result<()> {
    let host = |host| [("host", host), ("path", "/"), ("method", "GET"), ("status", "200")];
    expect(site, REQUESTS, &host("shop.test"), each)?;
    expect(site, REQUESTS, &host("*.tenant.test"), each)?;
    let cart = [("path", "/cart"), ("method", "POST"), ("status", "200")];
    expect(site, REQUESTS, &cart, each)?;
    expect(site, REQUESTS, &[("host", "_"), ("status", "404")], each)?;
    let page = expect(site, DURATION, &[], 4 * each)?;
    let upstream = "nginx_ingress_controller_response_duration_seconds_count";
    ensure!(page.sum(upstream, &[]) == (3.0 * each as f64, 3), "{:?}", page.all(upstream));
    ensure!(page.sum(upstream, &[("service", "web")]).1 == 3, "{:?}", page.all(upstream));
    Ok(())
}

#[test]
fn series_of_a_rule_go_with_it_and_the_others_stay() {
    pass("metrics-vanish", |directory| {
        let (_, mut site) = site(directory, 1)?;
        let endpoint = Endpoint::start("a")?;
        let with = |rules: &[Value]| {
            json!({"servers": {"shop.test": {"rules": rules}}, "backends": {"web": {}},
                   "endpoints": {"web": [endpoint.native()]}})
        };
        let (root, cart) = (rule("prefix", "/", "web"), rule("prefix", "/cart", "web"));
        put(&site, &with(&[root.clone(), cart.clone()]))?;
        let requests =
            vec![(Request::get("shop.test", "/"), 200), (Request::get("shop.test", "/cart"), 200)];
        block_on(send_each(site.http(), requests.clone(), 3))?;
        expect(&site, REQUESTS, &[], 6)?;
        put(&site, &with(std::slice::from_ref(&root)))?;
        let page = page(&site.configuration, "")?;
        ensure!(page.sum(REQUESTS, &[("path", "/")]) == (3.0, 1), "{:?}", page.all(REQUESTS));
        ensure!(page.sum(REQUESTS, &[("path", "/cart")]).1 == 0, "{:?}", page.all(REQUESTS));
        // It begins anew when it comes back.
        put(&site, &with(&[root, cart]))?;
        block_on(send_each(site.http(), requests, 1))?;
        expect(&site, REQUESTS, &[("path", "/cart")], 1)?;
        expect(&site, REQUESTS, &[("path", "/")], 4)?;
        site.nginx.stop()?;
        site.nginx.check_error_log()
    });
}

#[test]
fn a_thousand_odd_requests_make_no_series_of_their_own() {
    pass("metrics-bounded", |directory| {
        let (_, mut site) = site(directory, 2)?;
        let endpoint = Endpoint::start("a")?;
        let snapshot = json!({"servers": {"shop.test": {"rules": [rule("prefix", "/", "web")]}},
                              "backends": {"web": {}}, "endpoints": {"web": [endpoint.native()]}});
        put(&site, &snapshot)?;
        let free = || -> Result<u64> { Ok(block_on(site.configuration.status())?.free_bytes) };
        let before = free()?;
        let address = site.http();
        block_on(async {
            let mut connection = Connection::open(&address).await?;
            for number in 0..1_000_u32 {
                let letters: String = number
                    .to_string()
                    .bytes()
                    .map(|digit| char::from(digit - b'0' + b'A'))
                    .collect();
                let method = ["GET", "HEAD", "PROPFIND", letters.as_str()][number as usize % 4];
                let host = match number % 3 {
                    0 => "shop.test".to_owned(),
                    _ => format!("host-{number}.test"),
                };
                let request = Request::new(method, &host, &format!("/{number}\"\\x"));
                let response = connection.send(&request).await?;
                ensure!([200, 404].contains(&response.status), "{response}");
            }
            Ok(())
        })?;
        let page = expect(&site, REQUESTS, &[], 1_000)?;
        let all = page.all(REQUESTS);
        // GET, HEAD, PROPFIND and all others, with 200 of the rule and 404 of what has none.
        ensure!(all.len() == 8, "{all:?}");
        ensure!(page.sum(REQUESTS, &[("method", "OTHER")]).0 == 250.0, "{all:?}");
        ensure!(page.sum(REQUESTS, &[("host", "_")]).0 == 666.0, "{all:?}");
        ensure!(free()? >= before, "requests took shared memory");
        site.nginx.stop()?;
        site.nginx.check_error_log()
    });
}

#[test]
fn an_alternative_has_series_of_its_own() {
    pass("metrics-canary", |directory| {
        let (_, mut site) = site(directory, 1)?;
        let (old, new) = (Endpoint::start("old")?, Endpoint::start("new")?);
        let snapshot = json!({
            "servers": {"shop.test": {"rules": [rule("prefix", "/", "web")]}},
            "backends": {"web": {"alternatives": ["next"]},
                         "next": {"name": "default-next-80", "split": {"header": "x-canary"}}},
            "endpoints": {"web": [old.native()], "next": [new.native()]}});
        put(&site, &snapshot)?;
        let plain = Request::get("shop.test", "/");
        let requests = vec![(plain.clone(), 200), (plain.header("x-canary", "always"), 200)];
        block_on(send_each(site.http(), requests, 5))?;
        ensure!((old.requests(), new.requests()) == (5, 5), "{}", new.requests());
        let page = expect(&site, REQUESTS, &[], 10)?;
        for canary in ["", "default-next-80"] {
            let labels = [("canary", canary), ("host", "shop.test"), ("ingress", "shop")];
            ensure!(page.sum(REQUESTS, &labels) == (5.0, 1), "{:?}", page.all(REQUESTS));
            ensure!(page.sum(DURATION, &labels) == (5.0, 1), "{:?}", page.all(DURATION));
        }
        site.nginx.stop()?;
        site.nginx.check_error_log()
    });
}

#[test]
fn a_request_with_several_attempts_is_observed_once() {
    pass("metrics-attempts", |directory| {
        let (_, mut site) = site(directory, 1)?;
        let (dead, alive) = (Endpoint::start("dead")?, Endpoint::start("alive")?);
        dead.change(oxigress_tests::endpoint::Behaviour::parse("close")?);
        let snapshot = json!({"servers": {"shop.test": {"rules": [rule("prefix", "/", "web")]}},
            "backends": {"web": {}}, "endpoints": {"web": [dead.native(), alive.native()]}});
        put(&site, &snapshot)?;
        block_on(send_each(site.http(), vec![(Request::get("shop.test", "/"), 200)], 4))?;
        ensure!(dead.requests() > 0, "no request had two attempts");
        expect(&site, REQUESTS, &[("status", "200")], 4)?;
        for what in ["response", "connect", "header"] {
            let name = format!("nginx_ingress_controller_{what}_duration_seconds_count");
            expect(&site, &name, &[], 4)?;
        }
        // The dead one's part is told by /configuration/stats.
        let request = Configuration::request("GET", "/configuration/stats?backend=web", "");
        let stats: Value = block_on(site.configuration.send(&request))?.json()?;
        let of = |endpoint: &Endpoint| -> Result<Value> {
            let native = endpoint.native();
            let address =
                format!("{}:{}", native["address"].as_str().unwrap_or(""), native["port"]);
            let all = stats["endpoints"].as_array().context("endpoints")?;
            Ok(all.iter().find(|e| e["address"] == address.as_str()).context(address)?.clone())
        };
        ensure!(of(&dead)?["failures"] == dead.requests(), "{stats}");
        ensure!(of(&alive)?["requests"] == 4 && of(&alive)?["in_flight"] == 0, "{stats}");
        ensure!(of(&alive)?["ewma_seconds"].as_f64().is_some(), "{stats}");
        let missing = Configuration::request("GET", "/configuration/stats?backend=a%2Fb", "");
        ensure!(block_on(site.configuration.send(&missing))?.status == 404);
        site.nginx.stop()?;
        site.nginx.check_error_log()
    });
}

#[test]
fn other_bounds_take_a_new_zone_with_a_reload_and_lose_no_route() {
    pass("metrics-bounds", |directory| {
        let (mut plan, mut site) = site(directory, 2)?;
        let endpoint = Endpoint::start("a")?;
        let snapshot = json!({"servers": {"shop.test": {"rules": [rule("prefix", "/", "web")]}},
                              "backends": {"web": {}}, "endpoints": {"web": [endpoint.native()]}});
        put(&site, &snapshot)?;
        let request = Request::get("shop.test", "/");
        let steps = [
            ("ingress_metrics time=0.5,1;", &["+Inf", "0.5", "1"][..]),
            ("", &[]),
            ("ingress_metrics time=2;", &["+Inf", "2"][..]),
        ];
        for (directive, bounds) in steps {
            plan.main_config = directive.into();
            site.write_conf(&plan)?;
            site.nginx.reload()?;
            block_on(send_each(site.http(), vec![(request.clone(), 200)], 2))?;
            let sum = if directive.is_empty() { 0 } else { 2 };
            let page = expect(&site, REQUESTS, &[], sum)?;
            let buckets = page.all("nginx_ingress_controller_request_duration_seconds_bucket");
            let mut found: Vec<_> =
                buckets.iter().map(|(labels, _)| labels["le"].as_str()).collect();
            found.sort_unstable();
            ensure!(found == bounds, "{directive}: {found:?}");
        }
        ensure!(block_on(client::send(&site.http(), &request))?.status == 200);
        site.nginx.stop()?;
        site.nginx.check_error_log()
    });
}

const TOLD: [&str; 24] = [
    "request_duration_seconds",
    "response_duration_seconds",
    "connect_duration_seconds",
    "header_duration_seconds",
    "response_size",
    "nginx_process_connections_total",
    "nginx_process_requests_total",
    "nginx_process_connections",
    "nginx_process_num_procs",
    "nginx_process_cpu_seconds_total",
    "nginx_process_read_bytes_total",
    "nginx_process_write_bytes_total",
    "nginx_process_resident_memory_bytes",
    "nginx_process_virtual_memory_bytes",
    "nginx_process_oldest_start_time_seconds",
    "build_info",
    "config_hash",
    "config_last_reload_successful",
    "config_last_reload_successful_timestamp_seconds",
    "success",
    "errors",
    "ssl_expire_time_seconds",
    "ssl_certificate_info",
    "orphan_ingress",
];

#[test]
fn the_product_tells_all_under_the_names_of_ingress_nginx() {
    pass("metrics-product", |directory| {
        let flags = [
            "--enable-metrics",
            "--report-status-classes",
            "--time-buckets=0.5,1",
            "--exclude-socket-metrics=nginx_ingress_controller_request_size,bytes_sent",
        ];
        let controller = Controller::start(directory, 2, &flags.map(String::from))?;
        let mut shop = Shop::new(controller, &["a"], &[("shop", "shop.test")])?;
        shop.write("secret.yaml", "$SECRET(tls: shop)")?;
        shop.write(
            "shop.yaml",
            "$SERVICE(web: a)\n$INGRESS(shop: shop.test/ web, plain.test/nowhere gone tls=tls)",
        )?;
        let address = Address::http(shop.controller.health_port);
        let https = Address::https(shop.controller.https_port, "shop.test");
        block_on(send_each(https, vec![(Request::get("shop.test", "/x"), 200)], 3))?;
        let labels = [
            ("ingress", "shop"),
            ("namespace", "default"),
            ("service", "web"),
            ("host", "shop.test"),
            ("path", "/"),
            ("status", "2xx"),
            ("method", "GET"),
            ("canary", ""),
            ("controller_class", "k8s.io/ingress-nginx"),
        ];
        let page = until("three requests", || {
            let response = block_on(client::send(&address, &Request::get("x", "/metrics")))?;
            ensure!(response.status == 200, "{response}");
            let kind = response.header("content-type").unwrap_or_default();
            ensure!(kind == "text/plain; version=0.0.4; charset=utf-8", "{kind}");
            let page = Page::parse(&response.text())?;
            ensure!(page.sum(REQUESTS, &labels) == (3.0, 1), "{:?}", page.all(REQUESTS));
            Ok(page)
        })?;
        for name in TOLD {
            let name = format!("nginx_ingress_controller_{name}");
            ensure!(page.names().contains(name.as_str()), "{name}: {:?}", page.names());
        }
        ensure!(
            !page.names().iter().any(|name| name.contains("_size") && name.contains("request")
                || name.ends_with("bytes_sent")),
            "{:?}",
            page.names()
        );
        has_values(&page)?;
        let workers = shop.controller.worker_pids();
        shop.write("more.yaml", "$SERVICE(more: a)\n$INGRESS(more: more.test/ more)")?;
        ensure!(shop.controller.worker_pids() == workers, "workers changed");
        shop.controller.stop()
    });
}

/// With two workers, three requests to the shop, and no backend that is served by nobody.
fn has_values(page: &Page) -> Result<()> {
    let one = |name: &str, labels: &[(&str, &str)]| {
        page.sum(&format!("nginx_ingress_controller_{name}"), labels)
    };
    let bounds = one("request_duration_seconds_bucket", &[("ingress", "shop"), ("path", "/")]);
    ensure!(bounds.1 == 3, "0.5, 1 and +Inf: {bounds:?}");
    // nginx's cache has a manager, and at the start a loader.
    let processes = one("nginx_process_num_procs", &[]).0;
    ensure!((4.0..=5.0).contains(&processes), "{processes}: a master, two workers, the cache's");
    ensure!(one("nginx_process_requests_total", &[]).0 >= 3.0);
    ensure!(one("success", &[]).0 >= 2.0 && one("errors", &[]) == (0.0, 1));
    ensure!(one("config_last_reload_successful", &[]) == (1.0, 1));
    ensure!(one("config_hash", &[]).0 > 0.0);
    let expires = one("ssl_expire_time_seconds", &[("host", "shop.test"), ("secret_name", "tls")]);
    ensure!(expires.1 == 1 && expires.0 > 1.7e9, "{expires:?}");
    let orphan = |kind| one("orphan_ingress", &[("ingress", "shop"), ("type", kind)]).0;
    ensure!((orphan("no-service"), orphan("no-endpoint")) == (1.0, 0.0));
    Ok(())
}

#[test]
fn nothing_is_counted_unless_it_is_asked_for() {
    pass("metrics-off", |directory| {
        let mut plan = Plan::router(1)?;
        plan.main_config = String::new();
        let mut site = Site::start(&plan, directory)?;
        let endpoint = Endpoint::start("a")?;
        let rules: Vec<_> = (0..100).map(|n| rule("prefix", &format!("/{n}"), "web")).collect();
        let snapshot = json!({"servers": {"shop.test": {"rules": rules}}, "backends": {"web": {}},
                              "endpoints": {"web": [endpoint.native()]}});
        let before = block_on(site.configuration.status())?.free_bytes;
        put(&site, &snapshot)?;
        let taken = before - block_on(site.configuration.status())?.free_bytes;
        ensure!(taken < 100 * 500, "{taken} bytes for 100 rules");
        block_on(send_each(site.http(), vec![(Request::get("shop.test", "/1"), 200)], 1))?;
        let page = page(&site.configuration, "")?;
        let names: Vec<_> = page.names().into_iter().collect();
        ensure!(
            names.iter().all(|name| name.starts_with("oxigress_") || name.ends_with("config_hash")),
            "{names:?}"
        );
        for query in ["?per_host=maybe", "?host=x"] {
            let request = Configuration::request("GET", &format!("/metrics{query}"), "");
            let response = block_on(site.configuration.send(&request))?;
            ensure!(response.status == 400, "{response}");
        }
        site.nginx.stop()?;
        site.nginx.check_error_log()
    });
}
