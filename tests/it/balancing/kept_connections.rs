//! Connections to endpoints that wait for their next request: what blocks cannot arrange.

use anyhow::{Context, Result, ensure};
use oxigress_tests::client::{Connection, Request, send};
use oxigress_tests::endpoint::{Behaviour, Endpoint};
use oxigress_tests::place::Directory;
use oxigress_tests::process::{signal_pid, stop_pid};
use oxigress_tests::site::{Plan, Site};
use oxigress_tests::wait::{self, block_on, runtime};
use oxigress_tests::{dist, pass};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::fs;
use std::net::Ipv4Addr;
use std::process::Command;
use std::time::Duration;

/// One backend a host, with these endpoints.
fn snapshot(backends: &[(&str, &[&Endpoint])]) -> Value {
    let mut snapshot = json!({"servers": {}, "backends": {}, "endpoints": {}});
    for (name, endpoints) in backends {
        let rule = json!({"path": {"prefix": "/"}, "backend": name});
        snapshot["servers"][format!("{name}.test")] = json!({"rules": [rule]});
        snapshot["backends"][name] = json!({});
        let endpoints: Vec<_> = endpoints.iter().map(|endpoint| endpoint.native()).collect();
        snapshot["endpoints"][name] = json!(endpoints);
    }
    json!({"version": 1, "snapshot": snapshot})
}

fn put(site: &Site, backends: &[(&str, &[&Endpoint])]) -> Result<()> {
    let answer = block_on(site.configuration.put(snapshot(backends).to_string()))?;
    ensure!(answer.status == 200, "{answer}");
    Ok(())
}

fn get(site: &Site, host: &str) -> Result<()> {
    let answer = block_on(send(&site.http(), &Request::get(host, "/")))?;
    ensure!(answer.status == 200, "{answer}");
    Ok(())
}

fn open_connections(endpoint: &Endpoint, count: u64) -> Result<()> {
    wait::until("open connections", || {
        let open = endpoint.open_connections();
        ensure!(open == count, "{open} connections of {} are open, not {count}", endpoint.name);
        Ok(())
    })
}

/// The worker learns of the request before it learns that the connection it would use is closed. A `POST`, a request whose
/// policies let nothing be repeated, and one whose body is sent on as it comes, are not repeated by nginx, so only a look
/// at the connection saves them. A `GET` is repeated.
#[test]
fn a_close_that_is_not_yet_noticed_costs_no_request() {
    pass("kept-close", |directory| {
        let site = Site::start(&Plan::router(1)?, directory)?;
        let shop = Endpoint::start("shop")?;
        let mut whole = snapshot(&[("shop", &[&shop]), ("once", &[&shop]), ("streams", &[&shop])]);
        for (name, proxy) in [
            ("once", json!({"next_upstream": []})),
            ("streams", json!({"request_buffering": false})),
        ] {
            whole["snapshot"]["servers"][format!("{name}.test")]["rules"][0]["policies"] =
                json!(name);
            whole["snapshot"]["policies"][name] = json!({"proxy": proxy});
        }
        let answer = block_on(site.configuration.put(whole.to_string()))?;
        ensure!(answer.status == 200, "{answer}");
        let mut client = block_on(Connection::open(&site.http()))?;
        for request in [
            Request::new("POST", "shop.test", "/order").body("pay"),
            Request::new("PUT", "shop.test", "/order").body("pay"),
            Request::get("once.test", "/"),
            Request::get("streams.test", "/"),
            Request::get("shop.test", "/"),
        ] {
            for round in 0..3 {
                let name = format!("{} {:?}, round {round}", request.method, request.headers);
                client = send_over_closed(&site, &shop, client, &request).context(name)?;
            }
        }
        site.nginx.check_error_log()
    });
}

/// Sends a request that leaves a connection, and one that the worker reads when the endpoint has closed that.
fn send_over_closed(
    site: &Site,
    shop: &Endpoint,
    mut client: Connection,
    request: &Request,
) -> Result<Connection> {
    let answer = block_on(client.send(request))?;
    ensure!(answer.status == 200, "{answer}");
    open_connections(shop, 1)?;

    let worker = site.nginx.worker_pids()[0];
    stop_pid(worker)?;
    // Written to the socket, and so in the kernel's list of events, before the endpoint closes.
    let sent = runtime().spawn({
        let request = request.clone();
        async move {
            let answer = client.send(&request).await;
            (client, answer)
        }
    });
    wait_for_unread(site.http_port)?;
    shop.close_idle();
    open_connections(shop, 0)?;
    signal_pid(worker, Signal::CONT)?;

    let (client, answer) = block_on(sent)?;
    let answer = answer?;
    ensure!(answer.status == 200, "{answer}");
    ensure!(answer.header("x-endpoint-requests").as_deref() == Some("1"), "{answer}");
    shop.close_idle();
    open_connections(shop, 0)?;
    Ok(client)
}

/// Waits until a connection to this local port holds bytes that nobody has read.
fn wait_for_unread(port: u16) -> Result<()> {
    wait::until("bytes for the worker", || {
        let table = fs::read_to_string("/proc/net/tcp")?;
        let local = format!("0100007F:{port:04X}");
        let has_unread = table.lines().skip(1).any(|line| {
            let fields: Vec<_> = line.split_whitespace().collect();
            let unread = fields.get(4).and_then(|queues| queues.split(':').nth(1));
            // State 01 is an established connection.
            fields.get(1) == Some(&local.as_str())
                && fields.get(3) == Some(&"01")
                && unread.is_some_and(|unread| unread != "00000000")
        });
        ensure!(has_unread, "none");
        Ok(())
    })
}

#[test]
fn an_endpoint_that_leaves_during_a_request_is_not_kept_afterwards() {
    pass("kept-leaves", |directory| {
        let site = Site::start(&Plan::router(1)?, directory)?;
        let slow = Endpoint::with(
            "slow",
            Behaviour::Slow(Duration::from_millis(1500)),
            Ipv4Addr::LOCALHOST.into(),
        )?;
        let other = Endpoint::start("other")?;
        put(&site, &[("shop", &[&slow]), ("cart", &[&other])])?;
        let address = site.http();
        let request =
            runtime().spawn(async move { send(&address, &Request::get("shop.test", "/")).await });
        wait::until("a request", || {
            ensure!(slow.requests() == 1, "{} requests", slow.requests());
            Ok(())
        })?;
        put(&site, &[("shop", &[&other]), ("cart", &[&other])])?;
        // So that the search for endpoints that have left is over before the request is.
        get(&site, "cart.test")?;
        let answer = block_on(request)??;
        ensure!(answer.status == 200, "the request ends well: {answer}");
        open_connections(&slow, 0)?;
        open_connections(&other, 1)
    });
}

#[test]
fn a_worker_that_shuts_down_closes_its_idle_connections_at_once() {
    pass("kept-reload", |directory| {
        let mut plan = Plan::router(1)?;
        plan.main_config = "worker_shutdown_timeout 600s;".into();
        let mut site = Site::start(&plan, directory)?;
        let (shop, slow) = (
            Endpoint::start("shop")?,
            Endpoint::with(
                "slow",
                Behaviour::Slow(Duration::from_secs(8)),
                Ipv4Addr::LOCALHOST.into(),
            )?,
        );
        put(&site, &[("shop", &[&shop]), ("slow", &[&slow])])?;
        get(&site, "shop.test")?;
        open_connections(&shop, 1)?;
        // A request holds the old worker.
        let address = site.http();
        let request =
            runtime().spawn(async move { send(&address, &Request::get("slow.test", "/")).await });
        wait::until("a request", || {
            ensure!(slow.requests() == 1, "{} requests", slow.requests());
            Ok(())
        })?;
        site.nginx.reload()?;
        open_connections(&shop, 0)?;
        ensure!(slow.open_connections() == 1, "the old worker still serves");
        let answer = block_on(request)??;
        ensure!(answer.status == 200, "{answer}");
        // What it used was not kept: the worker is gone.
        open_connections(&slow, 0)?;
        site.nginx.check_error_log()
    });
}

/// The `worker_connections` that [`Site`] configures.
const WORKER_CONNECTIONS: usize = 512;

#[test]
fn idle_connections_make_room_when_worker_connections_run_out() {
    pass("kept-room", |directory| {
        let site = Site::start(&Plan::router(1)?, directory)?;
        let shop = Endpoint::start("shop")?;
        let slow = Endpoint::with(
            "slow",
            Behaviour::Slow(Duration::from_secs(60)),
            Ipv4Addr::LOCALHOST.into(),
        )?;
        put(&site, &[("shop", &[&shop]), ("slow", &[&slow])])?;
        get(&site, "shop.test")?;
        open_connections(&shop, 1)?;
        // Each takes two, nginx itself a handful: fewer than a sixteenth are left. nginx closes clients then
        // whose request has not come yet, so they come again.
        let busy = (WORKER_CONNECTIONS - WORKER_CONNECTIONS / 16) / 2;
        let requests: Vec<_> = (0..busy)
            .map(|_| {
                let address = site.http();
                runtime().spawn(async move {
                    while send(&address, &Request::get("slow.test", "/")).await.is_err() {}
                })
            })
            .collect();
        let closed = open_connections(&shop, 0);
        requests.iter().for_each(|request| request.abort());
        closed?;
        // There is room again, and what is kept stays.
        wait::until("a kept connection", || {
            get(&site, "shop.test")?;
            ensure!(shop.open_connections() == 1, "none is kept");
            Ok(())
        })
    });
}

/// An upstream's lines, a location's, and what nginx says about them; nothing: it takes them.
const CONFIGURATIONS: &[(&str, &str, &str)] = &[
    ("ingress_balancer; ingress_keepalive 8;", "ingress_router; proxy_pass http://u;", ""),
    ("ingress_keepalive 0; ingress_balancer;", "ingress_router; proxy_pass https://u;", ""),
    (
        "ingress_balancer; ingress_keepalive 8 requests=5 timeout=90s time=2h;",
        "ingress_router; grpc_pass grpcs://u;",
        "",
    ),
    ("ingress_balancer $host; keepalive 8;", "proxy_pass http://u;", ""),
    ("ingress_balancer $host;", "proxy_pass https://u;", ""),
    ("server 127.0.0.1:1; keepalive 8;", "proxy_pass https://u;", ""),
    ("ingress_balancer; keepalive 8;", "ingress_router; proxy_pass http://u;", ROUTER),
    ("ingress_balancer; keepalive_timeout 5s;", "ingress_router; proxy_pass http://u;", ROUTER),
    (
        "ingress_balancer; ingress_keepalive 8; keepalive 8;",
        "ingress_router; proxy_pass http://u;",
        ROUTER,
    ),
    (
        "ingress_balancer $host; keepalive 8;",
        "proxy_pass https://u;",
        "\"proxy_pass https://\" does",
    ),
    (
        "ingress_balancer $host; keepalive 8;",
        "if ($arg_a) { proxy_pass https://u; }",
        "\"proxy_pass https://\" does",
    ),
    (
        "ingress_balancer $host; keepalive 8;",
        "location /a/b { proxy_pass https://u/c; }",
        "\"proxy_pass https://\" does",
    ),
    ("ingress_balancer $host; keepalive 8;", "grpc_pass grpcs://u;", "\"grpc_pass grpcs://\" does"),
    (
        "ingress_balancer $host; keepalive 8;",
        "uwsgi_pass suwsgi://u;",
        "\"uwsgi_pass suwsgi://\" does",
    ),
    (
        "ingress_balancer $host; ingress_keepalive 8;",
        "proxy_pass http://u;",
        "\"ingress_keepalive\" in upstream \"u\" goes with \"ingress_balancer\" without a variable",
    ),
    (
        "ingress_keepalive 8;",
        "proxy_pass http://u;",
        "\"ingress_keepalive\" in upstream \"u\" needs \"ingress_balancer\"",
    ),
    (
        "ingress_balancer; ingress_keepalive 8; ingress_keepalive 8;",
        "proxy_pass http://u;",
        "\"ingress_keepalive\" directive is duplicate in",
    ),
    (
        "ingress_balancer; ingress_keepalive;",
        "proxy_pass http://u;",
        "invalid number of arguments in \"ingress_keepalive\" directive in",
    ),
    (
        "ingress_balancer; ingress_keepalive -1;",
        "proxy_pass http://u;",
        "invalid value \"-1\" in \"ingress_keepalive\" directive in",
    ),
    (
        "ingress_balancer; ingress_keepalive 99999999;",
        "proxy_pass http://u;",
        "invalid value \"99999999\" in \"ingress_keepalive\" directive in",
    ),
    (
        "ingress_balancer; ingress_keepalive 8 time=never;",
        "proxy_pass http://u;",
        "invalid parameter \"time=never\" in",
    ),
    (
        "ingress_balancer; ingress_keepalive 8 requests=0;",
        "proxy_pass http://u;",
        "invalid parameter \"requests=0\" in",
    ),
    (
        "ingress_balancer; ingress_keepalive 8 size=3;",
        "proxy_pass http://u;",
        "invalid parameter \"size=3\" in",
    ),
];

const ROUTER: &str = "\"ingress_balancer\" without a variable keeps connections itself: in upstream \"u\" write \
                      \"ingress_keepalive CONNECTIONS";

#[test]
fn what_cannot_be_kept_right_is_refused_with_the_remedy() {
    pass("kept-configurations", |directory| {
        for (upstream, location, expected) in CONFIGURATIONS {
            let said = test_configuration(directory, upstream, location)
                .with_context(|| format!("{upstream} {location}"))?;
            let emerg = said.lines().find(|line| line.contains("[emerg]")).unwrap_or("");
            ensure!(
                emerg.contains(expected) && emerg.is_empty() == expected.is_empty(),
                "{upstream} {location}\n{said}"
            );
        }
        Ok(())
    });
}

fn test_configuration(directory: &Directory, upstream: &str, location: &str) -> Result<String> {
    let text = format!(
        "load_module {};
         ingress_zone ingress 1m;
         pid nginx.pid;
         events {{}}
         http {{
             access_log off;
             upstream u {{ server 0.0.0.1; {upstream} }}
             server {{ listen 127.0.0.1:1; location /a {{ {location} }} }}
         }}",
        dist::module()?.display()
    );
    let conf = directory.join("test.conf");
    fs::write(&conf, text)?;
    let output = Command::new(dist::nginx()?)
        .arg("-t")
        .arg("-p")
        .arg(directory.path())
        .arg("-c")
        .arg(&conf)
        .args(["-e", "stderr"])
        .output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success() != said.contains("[emerg]"), "{said}");
    Ok(said)
}
