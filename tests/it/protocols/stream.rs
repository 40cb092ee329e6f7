//! TCP, UDP and TLS passthrough through real sockets, with endpoints that change under load.

use anyhow::{Context, Result, ensure};
use oxigress_tests::certificate::Certificate;
use oxigress_tests::client::{Address, Connection, Request};
use oxigress_tests::endpoint::{Behaviour, Endpoint};
use oxigress_tests::place::{Directory, free_port};
use oxigress_tests::session::{LineEndpoint, Session, Sessions, datagram, exchange};
use oxigress_tests::site::{Plan, Site};
use oxigress_tests::wait::{block_on, until};
use oxigress_tests::{dist, pass};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::net::Ipv4Addr;
use std::process::Command;
use tokio::net::UdpSocket;

/// Of the endpoint sets, each while sessions come and go.
const UPDATES: usize = 100;

/// nginx with `servers` in stream, and what it is given to serve.
struct Trial {
    site: Site,
    tag: String,
}

impl Trial {
    fn start(
        directory: &Directory,
        workers: usize,
        servers: &str,
        snapshot: &Value,
    ) -> Result<Self> {
        let mut plan = Plan::router(workers)?;
        plan.location_config = "add_header X-Client $remote_addr:$remote_port always;
            add_header X-Proxied $proxy_protocol_addr always;"
            .into();
        plan.main_config = format!(
            "stream {{
    log_format sessions '$status $upstream_addr';
    access_log $DIR/sessions.log sessions;
    upstream ingress {{
        server 0.0.0.1:1;
        ingress_balancer;
    }}
    {servers}
}}"
        );
        let site = Site::start(&plan, directory)?;
        let mut trial = Trial { site, tag: String::new() };
        trial.put(snapshot)?;
        Ok(trial)
    }

    fn put(&mut self, snapshot: &Value) -> Result<()> {
        let whole = json!({"version": 1, "snapshot": snapshot}).to_string();
        let answer = block_on(self.site.configuration.put(whole))?;
        ensure!(answer.status == 200, "{answer}");
        self.tag = answer.header("etag").context("ETag")?.trim_matches('"').to_owned();
        Ok(())
    }

    fn endpoints(&mut self, backend: &str, endpoints: &[Value]) -> Result<()> {
        let patch = json!({"version": 1, "upsert": {"endpoints": {backend: endpoints}}});
        let answer = block_on(self.site.configuration.patch(&self.tag, patch.to_string()))?;
        ensure!(answer.status == 200, "{answer}");
        self.tag = answer.header("etag").context("ETag")?.trim_matches('"').to_owned();
        Ok(())
    }

    fn log_has(&self, text: &str, times: usize) -> Result<()> {
        until("a line in the error log", || {
            let found = self.site.nginx.error_log().matches(text).count();
            ensure!(found == times, "{text:?} stands {found} times, not {times}");
            Ok(())
        })
    }

    fn end(mut self) -> Result<()> {
        self.site.nginx.stop()?;
        self.site.nginx.check_error_log()
    }
}

fn natives(endpoints: &[&LineEndpoint]) -> Vec<Value> {
    endpoints.iter().map(|endpoint| endpoint.native()).collect()
}

/// Two of the endpoints, others with each step; those that leave serve the sessions they have.
fn pair(all: &[LineEndpoint], step: usize) -> [&LineEndpoint; 2] {
    [&all[step % all.len()], &all[(step + 1) % all.len()]]
}

fn is_of(pair: [&LineEndpoint; 2], name: &str) -> Result<()> {
    ensure!(pair.iter().any(|e| e.name == name), "{name} has left before this session");
    Ok(())
}

/// A session of three lines that one endpoint of this backend answers; its name.
async fn three_lines(port: u16, number: u64, backend: char) -> Result<String> {
    let mut session = Session::open(port, b"").await?;
    let first = session.ask(&format!("{number} first")).await?;
    ensure!(first.endpoint.starts_with(backend), "{first:?} is not of {backend}");
    for line in ["second", "third"] {
        let answer = session.ask(&format!("{number} {line}")).await?;
        ensure!(answer.endpoint == first.endpoint, "{answer:?} after {first:?}");
    }
    Ok(first.endpoint)
}

fn told(what: &str, updates: usize, done: u64, lost: &[String]) -> Result<()> {
    println!("{what}: {updates} updates of the endpoints, {done} sessions, {} lost", lost.len());
    let shown = lost.iter().take(5).collect::<Vec<_>>();
    ensure!(lost.is_empty(), "{} lost: {shown:#?}", lost.len());
    ensure!(done > 0, "no session was held");
    Ok(())
}

fn backends(
    prefix: &str,
    make: impl Fn(&str) -> Result<LineEndpoint>,
) -> Result<Vec<LineEndpoint>> {
    (0..4).map(|n| make(&format!("{prefix}{n}"))).collect()
}

#[test]
fn tcp_sessions_follow_their_port_while_endpoints_change() {
    pass("stream-tcp", |directory| {
        let (a_port, b_port) = (free_port()?, free_port()?);
        let servers = format!(
            "map $server_port $backend {{
        {b_port} b/by/name;
    }}
    upstream named {{
        server 0.0.0.1:1;
        ingress_balancer $backend;
    }}
    server {{ listen 127.0.0.1:{a_port} reuseport; proxy_pass ingress; }}
    server {{ listen {b_port} reuseport; proxy_pass named; }}"
        );
        let a = backends("a", LineEndpoint::tcp)?;
        let b = backends("b", LineEndpoint::tcp)?;
        let snapshot = json!({
            "ports": {format!("tcp/{a_port}"): "a/1/x", format!("udp/{a_port}"): "b/by/name"},
            "endpoints": {"a/1/x": natives(&pair(&a, 0)), "b/by/name": natives(&pair(&b, 0))}});
        let mut trial = Trial::start(directory, 2, &servers, &snapshot)?;
        let pids = trial.site.nginx.worker_pids();

        let mut long = block_on(Session::open(a_port, b""))?;
        let first = block_on(long.ask("begin"))?;
        let load = Sessions::start(4, move |number| async move {
            let (port, backend) = if number % 2 == 0 { (a_port, 'a') } else { (b_port, 'b') };
            three_lines(port, number, backend).await.map(drop)
        });
        for step in 1..=UPDATES {
            trial.endpoints("a/1/x", &natives(&pair(&a, step)))?;
            trial.endpoints("b/by/name", &natives(&pair(&b, step)))?;
            is_of(pair(&a, step), &block_on(three_lines(a_port, 0, 'a'))?)?;
            is_of(pair(&b, step), &block_on(three_lines(b_port, 0, 'b'))?)?;
        }
        let (done, lost) = load.stop()?;
        told("TCP", 2 * UPDATES, done, &lost)?;
        ensure!(a.iter().chain(&b).all(|e| e.sessions() > 0), "an endpoint got nothing");
        let last = block_on(long.ask("end"))?;
        ensure!(last.endpoint == first.endpoint, "{last:?} after {first:?}");
        ensure!(trial.site.nginx.worker_pids() == pids, "workers changed");

        // Another backend for the port, without a reload.
        let ports = json!({format!("tcp/{a_port}"): "b/by/name"});
        let whole = json!({"ports": ports, "endpoints": {"b/by/name": natives(&pair(&b, 0))}});
        trial.put(&whole)?;
        block_on(three_lines(a_port, 0, 'b'))?;
        trial.end()
    });
}

#[test]
fn each_datagram_is_answered_while_endpoints_change() {
    pass("stream-udp", |directory| {
        let (port, kept) = (free_port()?, free_port()?);
        let servers = format!(
            "server {{ listen 127.0.0.1:{port} udp reuseport; proxy_pass ingress; proxy_responses 1; }}
    server {{ listen {kept} udp reuseport; proxy_pass ingress; }}
    server {{ listen 127.0.0.1:{port}; proxy_pass ingress; }}"
        );
        let all = backends("u", LineEndpoint::udp)?;
        let tcp = LineEndpoint::tcp("tcp")?;
        let snapshot = json!({
            "ports": {format!("udp/{port}"): "dns", format!("udp/{kept}"): "dns",
                format!("tcp/{port}"): "other"},
            "endpoints": {"dns": natives(&pair(&all, 0)), "other": natives(&[&tcp])}});
        let mut trial = Trial::start(directory, 2, &servers, &snapshot)?;

        let client = block_on(async {
            let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await?;
            client.connect((Ipv4Addr::LOCALHOST, kept)).await?;
            anyhow::Ok(client)
        })?;
        let first = block_on(exchange(&client, "begin"))?;
        let load = Sessions::start(4, move |number| async move {
            datagram(Ipv4Addr::LOCALHOST, port, &format!("datagram {number}")).await.map(drop)
        });
        for step in 1..=UPDATES {
            trial.endpoints("dns", &natives(&pair(&all, step)))?;
            is_of(
                pair(&all, step),
                &block_on(datagram(Ipv4Addr::LOCALHOST, port, "now"))?.endpoint,
            )?;
        }
        let (done, lost) = load.stop()?;
        told("UDP", UPDATES, done, &lost)?;
        ensure!(all.iter().all(|endpoint| endpoint.sessions() > 0), "an endpoint got nothing");
        // Without proxy_responses a client's datagrams are one session.
        let last = block_on(exchange(&client, "end"))?;
        ensure!(last.endpoint == first.endpoint, "{last:?} after {first:?}");
        // The same number with TCP is another port.
        block_on(three_lines(port, 0, 't'))?;
        trial.end()
    });
}

#[test]
fn a_refused_connection_is_followed_by_another_endpoint_and_none_is_tried_twice() {
    pass("stream-retries", |directory| {
        let (port, once, never) = (free_port()?, free_port()?, free_port()?);
        let servers = format!(
            "server {{ listen 127.0.0.1:{port}; proxy_pass ingress; }}
    server {{ listen 127.0.0.1:{once}; proxy_pass ingress; proxy_next_upstream_tries 1; }}
    server {{ listen 127.0.0.1:{never}; proxy_pass ingress; proxy_next_upstream off; }}"
        );
        let refusing: Vec<_> = (0..3)
            .map(|n| Endpoint::with(&n.to_string(), Behaviour::Refuse, Ipv4Addr::LOCALHOST.into()))
            .collect::<Result<_>>()?;
        let dead: Vec<_> = refusing.iter().map(Endpoint::native).collect();
        let alive = LineEndpoint::tcp("alive")?;
        let ports = [port, once, never].map(|port| (format!("tcp/{port}"), json!("b")));
        let ports = Value::Object(ports.into_iter().collect());
        let snapshot = json!({"ports": ports, "endpoints": {"b": [dead[0], alive.native()]}});
        let mut trial = Trial::start(directory, 1, &servers, &snapshot)?;
        let closed = |port: u16| -> Result<bool> {
            let mut session = block_on(Session::open(port, b""))?;
            match block_on(session.ask("hello")) {
                Ok(_) => Ok(false),
                Err(_) => block_on(session.rest()).map(|rest| rest.is_empty()),
            }
        };
        let count =
            |port: u16| (0..10).map(|_| closed(port)).filter(|c| matches!(c, Ok(true))).count();
        ensure!(count(port) == 0, "sessions were lost though another endpoint was left");
        ensure!(count(once) == 5, "every other session has its one try at the dead endpoint");
        ensure!(count(never) == 5, "proxy_next_upstream off");

        // All are dead: each is tried once, then the session ends.
        trial.endpoints("b", &dead)?;
        fs::write(directory.join("sessions.log"), "")?;
        ensure!(closed(port)?, "there was nobody to answer");
        let line = until("a line of the session", || {
            let log = fs::read_to_string(directory.join("sessions.log"))?;
            log.lines().next().map(str::to_owned).context("none yet")
        })?;
        let tried: Vec<_> = line.trim_start_matches("502 ").split(", ").collect();
        let different: BTreeSet<_> = tried.iter().collect();
        ensure!(tried.len() == 3 && different.len() == 3, "{line}");
        trial.end()
    });
}

#[test]
fn endpoints_that_die_under_load_cost_no_new_session() {
    pass("stream-deaths", |directory| {
        let port = free_port()?;
        let servers =
            format!("server {{ listen 127.0.0.1:{port} reuseport; proxy_pass ingress; }}");
        let alive = LineEndpoint::tcp("a-alive")?;
        let snapshot = json!({"ports": {format!("tcp/{port}"): "b"},
            "endpoints": {"b": natives(&[&alive])}});
        let mut trial = Trial::start(directory, 2, &servers, &snapshot)?;
        // One line: an endpoint may die between two lines of a session, which nobody can mend.
        let load = Sessions::start(4, move |number| async move {
            Session::open(port, b"").await?.ask(&format!("{number}")).await.map(drop)
        });
        let mut asked = 0;
        for _ in 0..UPDATES / 2 {
            // Refuses, and still stands in the list.
            let dead = Endpoint::with("dead", Behaviour::Refuse, Ipv4Addr::LOCALHOST.into())?;
            trial.endpoints("b", &[dead.native(), alive.native()])?;
            for _ in 0..4 {
                block_on(async { Session::open(port, b"").await?.ask("now").await })?;
                asked += 1;
            }
        }
        let (done, lost) = load.stop()?;
        told("dead endpoints", UPDATES / 2, done + asked, &lost)?;
        let refused = trial.site.nginx.error_log().matches("(111: Connection refused)").count();
        ensure!(refused >= UPDATES / 2, "{refused} connections were refused");
        trial.end()
    });
}

#[test]
fn a_port_without_a_backend_or_endpoints_is_closed_with_one_line() {
    pass("stream-nobody", |directory| {
        let (unknown, empty, udp, named) = (free_port()?, free_port()?, free_port()?, free_port()?);
        let servers = format!(
            "upstream named {{ server 0.0.0.1:1; ingress_balancer $ssl_preread_server_name; }}
    server {{ listen 127.0.0.1:{unknown}; proxy_pass ingress; }}
    server {{ listen 127.0.0.1:{empty}; proxy_pass ingress; }}
    server {{ listen 127.0.0.1:{udp} udp; proxy_pass ingress; }}
    server {{ listen 127.0.0.1:{named}; proxy_pass named; }}"
        );
        let snapshot = json!({"ports": {format!("tcp/{empty}"): "nobody/at/home"}});
        let trial = Trial::start(directory, 1, &servers, &snapshot)?;
        for port in [unknown, empty, named] {
            let mut session = block_on(Session::open(port, b""))?;
            ensure!(block_on(session.rest())?.is_empty(), "bytes came from nowhere");
        }
        trial.log_has(&format!("ingress: no backend for port tcp/{unknown}"), 1)?;
        trial.log_has("ingress: no endpoint is left in backend \"nobody/at/home\"", 1)?;
        trial.log_has("ingress: no backend: the variable of \"ingress_balancer\" is empty", 1)?;
        let client = block_on(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)))?;
        block_on(client.send_to(b"x", (Ipv4Addr::LOCALHOST, udp)))?;
        trial.log_has(&format!("ingress: no backend for port udp/{udp}"), 1)?;
        let log = trial.site.nginx.error_log();
        ensure!(log.matches("[error]").count() == 4, "one line a session: {log}");
        trial.end()
    });
}

#[test]
fn sessions_in_flight_count_until_they_end_or_their_worker_dies() {
    pass("stream-in-flight", |directory| {
        let port = free_port()?;
        let servers = format!("server {{ listen 127.0.0.1:{port}; proxy_pass ingress; }}");
        let all = backends("a", LineEndpoint::tcp)?;
        let snapshot = json!({"ports": {format!("tcp/{port}"): "b"},
            "backends": {"b": {"max_in_flight": 1}}, "endpoints": {"b": natives(&pair(&all, 0))}});
        let mut trial = Trial::start(directory, 1, &servers, &snapshot)?;
        let open = || -> Result<_> {
            let mut session = block_on(Session::open(port, b""))?;
            let answer = block_on(session.ask("hello"))?;
            Ok((session, answer.endpoint))
        };
        let has_room = |session: &str| until(session, &open);
        let is_full = || ensure_closed(port);

        let (first, one) = open()?;
        let (_second, other) = open()?;
        ensure!(one != other, "{one} has two sessions");
        is_full()?;
        // A change of the endpoints changes nothing about who is busy.
        trial.endpoints("b", &natives(&[&all[1], &all[0]]))?;
        is_full()?;
        drop(first);
        let (_third, free) = has_room("the end of the first session")?;
        ensure!(free == one, "{free} is not the one that was left");
        is_full()?;

        // What a killed worker held is given back.
        let worker = trial.site.nginx.worker_pids()[0];
        trial.site.nginx.kill_worker(worker)?;
        let _again = [has_room("a session of the next worker")?, has_room("another one")?];
        is_full()?;
        let log = trial.site.nginx.error_log();
        ensure!(log.contains("ingress: no endpoint is left in backend \"b\""), "{log}");
        trial.site.nginx.stop()
    });
}

/// Nobody is there for a session to this port: it ends without a byte.
fn ensure_closed(port: u16) -> Result<()> {
    let rest = block_on(async { Session::open(port, b"").await?.rest().await })?;
    ensure!(rest.is_empty(), "{rest:?}");
    Ok(())
}

#[test]
fn a_client_address_keeps_its_endpoint() {
    pass("stream-hash", |directory| {
        let (port, udp) = (free_port()?, free_port()?);
        let servers = format!(
            "server {{ listen 127.0.0.1:{port} reuseport; proxy_pass ingress; }}
    server {{ listen 127.0.0.1:{udp} udp reuseport; proxy_pass ingress; proxy_responses 1; }}"
        );
        let (all, datagrams) =
            (backends("a", LineEndpoint::tcp)?, backends("u", LineEndpoint::udp)?);
        let every = |all: &[LineEndpoint]| natives(&all.iter().collect::<Vec<_>>());
        let backend = json!({"hash_by": {"key": "$remote_addr"}});
        let snapshot = json!({
            "ports": {format!("tcp/{port}"): "a", format!("udp/{udp}"): "u"},
            "backends": {"a": backend, "u": backend},
            "endpoints": {"a": every(&all), "u": every(&datagrams)}});
        let mut trial = Trial::start(directory, 2, &servers, &snapshot)?;
        let clients: Vec<_> = (1..=40).map(|n| Ipv4Addr::new(127, 0, 1, n)).collect();
        let ask = |ip: Ipv4Addr| -> Result<[String; 2]> {
            let tcp = block_on(async { Session::open_from(ip, port).await?.ask("who").await })?;
            Ok([tcp.endpoint, block_on(datagram(ip, udp, "who"))?.endpoint])
        };
        let first: Vec<_> = clients.iter().map(|ip| ask(*ip)).collect::<Result<_>>()?;
        for protocol in 0..2 {
            let used: BTreeSet<_> = first.iter().map(|found| &found[protocol]).collect();
            ensure!(used.len() == 4, "40 clients use {used:?}");
        }
        for _ in 0..3 {
            for (ip, found) in clients.iter().zip(&first) {
                ensure!(ask(*ip)? == *found, "{ip} has left {found:?}");
            }
        }
        // One endpoint goes: only its clients move.
        trial.endpoints("a", &every(&all[1..]))?;
        for (ip, [found, _]) in clients.iter().zip(&first) {
            let [now, _] = ask(*ip)?;
            ensure!(now == *found || *found == all[0].name, "{ip} has left {found} for {now}");
            ensure!(now != all[0].name, "{ip} uses {now}, which has left");
        }
        trial.end()
    });
}

#[test]
fn an_endpoint_that_refuses_sessions_is_left_out() {
    pass("stream-ejection", |directory| {
        let port = free_port()?;
        let servers = format!("server {{ listen 127.0.0.1:{port}; proxy_pass ingress; }}");
        let dead = Endpoint::with("dead", Behaviour::Refuse, Ipv4Addr::LOCALHOST.into())?;
        let alive = LineEndpoint::tcp("alive")?;
        let ejection = json!({"connect_failures": 2, "base_ms": 600_000, "max_ms": 600_000});
        let snapshot = json!({"ports": {format!("tcp/{port}"): "b"},
            "backends": {"b": {"ejection": ejection}},
            "endpoints": {"b": [dead.native(), alive.native()]}});
        let trial = Trial::start(directory, 1, &servers, &snapshot)?;
        for _ in 0..20 {
            block_on(three_lines(port, 0, 'a'))?;
        }
        trial.log_has("(111: Connection refused)", 2)?;
        trial.log_has("failed too often: left out for 600000 ms", 1)?;
        trial.end()
    });
}

/// A header of the PROXY protocol's version 2, TCP over IPv4.
fn version_2(from: [u8; 4], from_port: u16, to: [u8; 4], to_port: u16) -> Vec<u8> {
    let mut header = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c".to_vec();
    header.extend(from);
    header.extend(to);
    header.extend(from_port.to_be_bytes());
    header.extend(to_port.to_be_bytes());
    header
}

#[test]
fn the_proxy_protocol_goes_in_and_out() {
    pass("stream-proxy", |directory| {
        let (both, out, only_in) = (free_port()?, free_port()?, free_port()?);
        let servers = format!(
            "set_real_ip_from 127.0.0.1;
    server {{ listen 127.0.0.1:{both} proxy_protocol; proxy_pass ingress; proxy_protocol on; }}
    server {{ listen 127.0.0.1:{out}; proxy_pass ingress; proxy_protocol on; }}
    server {{ listen 127.0.0.1:{only_in} proxy_protocol; proxy_pass ingress; }}"
        );
        let all = backends("p", LineEndpoint::tcp)?;
        let ports = [both, out, only_in].map(|port| (format!("tcp/{port}"), json!("p")));
        let ports = Value::Object(ports.into_iter().collect());
        let snapshot = json!({"ports": ports, "endpoints": {"p": natives(&pair(&all, 0))}});
        let mut trial = Trial::start(directory, 2, &servers, &snapshot)?;

        let header = |port: u16, first: &[u8]| -> Result<(String, u16)> {
            let mut session = block_on(Session::open(port, first))?;
            Ok((block_on(session.ask("who"))?.header, session.local_port))
        };
        let version_1 = b"PROXY TCP4 192.0.2.7 198.51.100.1 5555 443\r\n";
        let expected = |from: &str, to: u16| format!("PROXY TCP4 192.0.2.7 127.0.0.1 {from} {to}");
        ensure!(header(both, version_1)?.0 == expected("5555", both));
        let binary = version_2([192, 0, 2, 7], 6666, [198, 51, 100, 1], 443);
        ensure!(header(both, &binary)?.0 == expected("6666", both));
        ensure!(header(only_in, version_1)?.0.is_empty(), "taken off, not passed on");
        ensure!(header(only_in, &binary)?.0.is_empty(), "taken off, not passed on");
        let (found, port) = header(out, b"")?;
        ensure!(found == format!("PROXY TCP4 127.0.0.1 127.0.0.1 {port} {out}"), "{found}");
        let broken = block_on(async {
            Session::open(both, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await?.rest().await
        })?;
        ensure!(broken.is_empty(), "no header, no session");

        // Each session has a header of its own, whatever happens to the endpoints.
        let load = Sessions::start(4, move |number| async move {
            let from = 1 + number % 60_000;
            let first = format!("PROXY TCP4 192.0.2.7 198.51.100.1 {from} 443\r\n");
            let answer = Session::open(both, first.as_bytes()).await?.ask("who").await?;
            let expected = format!("PROXY TCP4 192.0.2.7 127.0.0.1 {from} {both}");
            ensure!(answer.header == expected, "{answer:?}");
            Ok(())
        });
        for step in 1..=UPDATES {
            trial.endpoints("p", &natives(&pair(&all, step)))?;
        }
        let (done, lost) = load.stop()?;
        told("PROXY protocol", UPDATES, done, &lost)?;
        trial.end()
    });
}

/// A listener for three names, two of which are passed through, and what serves them.
struct Passthrough {
    trial: Trial,
    port: u16,
    first: Vec<LineEndpoint>,
    second: Vec<LineEndpoint>,
    _web: Endpoint,
}

impl Passthrough {
    fn start(directory: &Directory, listen: &str, proxy: &str, workers: usize) -> Result<Self> {
        let port = free_port()?;
        let servers = format!(
            "server {{
        listen 127.0.0.1:{port} reuseport {listen};
        ssl_preread on;
        proxy_pass ingress;
        {proxy}
        ingress_passthrough;
        pass 127.0.0.1:$TLS_PORT;
    }}"
        );
        let has_header = proxy.contains("proxy_protocol on");
        let certificates = [
            Certificate::new("first", &["first.test"])?,
            Certificate::new("second", &["*.second.test"])?,
            Certificate::new("third", &["third.test"])?,
        ];
        let tls = |number: usize| {
            let certificate = &certificates[number];
            move |name: &str| LineEndpoint::tls(name, certificate, has_header)
        };
        let (first, second) = (backends("f", tls(0))?, backends("s", tls(1))?);
        let web = Endpoint::start("web")?;
        let third = &certificates[2];
        let snapshot = json!({
            "servers": {
                "third.test": {"rules": [{"path": {"prefix": "/"}, "backend": "web"}]},
                "own.second.test": {"rules": [{"path": {"prefix": "/"}, "backend": "web"}]}},
            "certificates": {"third": {"chain": third.chain, "key": third.key}},
            "names": {"third.test": "third", "own.second.test": "third"},
            "passthrough": {"first.test": "first", "*.second.test": "second", "none.test": "none"},
            "endpoints": {"first": natives(&pair(&first, 0)), "second": natives(&pair(&second, 0)),
                "web": [web.native()]}});
        let trial = Trial::start(directory, workers, &servers, &snapshot)?;
        Ok(Passthrough { trial, port, first, second, _web: web })
    }
}

/// A session that this endpoint's backend terminates; the endpoint's name and the header it got.
async fn through(port: u16, first: &[u8], name: &str, expected: &str) -> Result<(String, String)> {
    let (mut session, certificate) = Session::open(port, first).await?.tls(Some(name)).await?;
    ensure!(certificate == expected, "{name} presents {certificate}, not {expected}");
    let answer = session.ask(name).await?;
    Ok((answer.endpoint, answer.header))
}

/// A request that nginx terminates, and the address it has for the client.
async fn terminated(port: u16, name: &str, expected: &str) -> Result<()> {
    let mut connection = Connection::open(&Address::https(port, name)).await?;
    let certificate = connection.certificate().unwrap_or_default();
    ensure!(certificate == expected, "{name} presents {certificate}, not {expected}");
    let answer = connection.send(&Request::get(name, "/")).await?;
    ensure!(answer.endpoint().as_deref() == Some("web"), "{answer}");
    let client = format!("127.0.0.1:{}", connection.local_port.unwrap_or_default());
    ensure!(answer.header("x-client") == Some(client), "{answer}");
    Ok(())
}

#[test]
fn server_names_are_passed_through_while_endpoints_change() {
    pass("stream-sni", |directory| {
        let mut here = Passthrough::start(directory, "", "", 2)?;
        let port = here.port;
        let load = Sessions::start(6, move |number| async move {
            match number % 3 {
                0 => through(port, b"", "First.Test", "first").await.map(drop),
                1 => through(port, b"", "a.second.test", "second").await.map(drop),
                _ => terminated(port, "third.test", "third").await,
            }
        });
        for step in 1..=UPDATES {
            let (first, second) = (pair(&here.first, step), pair(&here.second, step));
            here.trial.endpoints("first", &natives(&first))?;
            here.trial.endpoints("second", &natives(&second))?;
            is_of(first, &block_on(through(port, b"", "first.test", "first"))?.0)?;
            is_of(second, &block_on(through(port, b"", "b.second.test", "second"))?.0)?;
        }
        let (done, lost) = load.stop()?;
        told("TLS passthrough", 2 * UPDATES, done, &lost)?;
        let all = here.first.iter().chain(&here.second);
        ensure!(all.into_iter().all(|e| e.sessions() > 0), "an endpoint got nothing");

        // A host of its own is not taken by a wildcard; unknown names are nginx's.
        block_on(terminated(port, "own.second.test", "third"))?;
        for name in [Some("a.b.second.test"), Some("second.test"), Some("other.test"), None] {
            let (_, shown) = block_on(async { Session::open(port, b"").await?.tls(name).await })?;
            ensure!(shown == "static", "{name:?} presents {shown}");
        }
        // Known, and nobody there: closed, not terminated here.
        let refused = block_on(async {
            Session::open(port, b"").await?.tls(Some("none.test")).await.map(|(_, name)| name)
        });
        ensure!(refused.is_err(), "{refused:?}");
        here.trial.log_has("ingress: no endpoint is left in backend \"none\"", 1)?;
        here.trial.end()
    });
}

/// The backend of a name is this nginx itself, as over a load balancer's address, which no list of addresses knows.
#[test]
fn a_connection_that_comes_back_is_closed() {
    pass("stream-circle", |directory| {
        let mut here = Passthrough::start(directory, "", "", 2)?;
        let own = json!({"address": "127.0.0.1", "port": here.port});
        here.trial.endpoints("none", &[own])?;
        for _ in 0..5 {
            let refused = block_on(async {
                let session = Session::open(here.port, b"").await?;
                session.tls(Some("none.test")).await.map(|(_, name)| name)
            });
            ensure!(refused.is_err(), "{refused:?}");
        }
        let log = here.trial.site.nginx.error_log();
        let closed = log.matches("a TLS connection for \"none.test\" has come back").count();
        // A line in ten seconds for each worker.
        ensure!((1..=2).contains(&closed), "{closed} lines: {log}");
        // Each of two workers at most once before it comes to one again.
        let sessions = fs::read_to_string(directory.join("sessions.log"))?;
        let all = sessions.lines().count();
        ensure!(all <= 3 * 5, "{all} sessions: {sessions}");
        let (name, _) = block_on(through(here.port, b"", "first.test", "first"))?;
        is_of(pair(&here.first, 0), &name)?;
        here.trial.end()
    });
}

#[test]
fn passthrough_knows_the_client_behind_the_proxy_protocol() {
    pass("stream-sni-proxy", |directory| {
        let proxy = "proxy_protocol on; set_real_ip_from 127.0.0.1;";
        let here = Passthrough::start(directory, "proxy_protocol", proxy, 1)?;
        let header = b"PROXY TCP4 192.0.2.7 198.51.100.1 5555 443\r\n";
        let (_, found) = block_on(through(here.port, header, "first.test", "first"))?;
        ensure!(found == format!("PROXY TCP4 192.0.2.7 127.0.0.1 5555 {}", here.port), "{found}");
        let binary = version_2([192, 0, 2, 8], 6666, [198, 51, 100, 1], 443);
        let (_, found) = block_on(through(here.port, &binary, "a.second.test", "second"))?;
        ensure!(found == format!("PROXY TCP4 192.0.2.8 127.0.0.1 6666 {}", here.port), "{found}");

        // What nginx terminates has the client, too.
        let (mut session, certificate) = block_on(async {
            Session::open(here.port, header).await?.tls(Some("third.test")).await
        })?;
        ensure!(certificate == "third", "{certificate}");
        let request = "GET / HTTP/1.1\r\nHost: third.test\r\nConnection: close\r\n\r\n";
        let answer = block_on(session.send_and_read(request.as_bytes()))?;
        let answer = String::from_utf8_lossy(&answer).into_owned();
        ensure!(answer.contains("X-Client: 192.0.2.7:5555\r\n"), "{answer}");
        ensure!(answer.contains("X-Proxied: 192.0.2.7\r\n"), "{answer}");
        here.trial.end()
    });
}

#[test]
fn client_hellos_of_every_kind_end_well() {
    pass("stream-hello", |directory| {
        let here = Passthrough::start(directory, "", "preread_timeout 5s;", 1)?;
        let port = here.port;
        // In pieces, one after the other.
        for (name, expected) in [("first.test", "first"), ("third.test", "third")] {
            let shown = block_on(async {
                let session = Session::open(port, b"").await?.in_pieces(40);
                anyhow::Ok(session.tls(Some(name)).await?.1)
            })?;
            ensure!(shown == expected, "{name} presents {shown}");
        }
        // No TLS at all: nginx's TLS listener says so.
        let request = b"GET / HTTP/1.1\r\nHost: first.test\r\n\r\n";
        let answer = block_on(async { Session::open(port, request).await?.rest().await })?;
        let answer = String::from_utf8_lossy(&answer).into_owned();
        ensure!(answer.contains("400") && answer.contains("HTTPS port"), "{answer}");
        // Garbage that looks like a handshake, and an end in the middle of one.
        let mut garbage = b"\x16\x03\x01\x01\x00".to_vec();
        garbage.extend([0xff; 256]);
        block_on(async { Session::open(port, &garbage).await?.rest().await })?;
        block_on(async {
            let mut session = Session::open(port, &garbage[..50]).await?;
            session.finish().await?;
            session.rest().await
        })?;
        // One record of the longest length, more than is looked at.
        let mut long = b"\x16\x03\x01\x40\x00\x01\x00\x3f\xfc\x03\x03".to_vec();
        long.resize(20_000, 0);
        block_on(async {
            // Closed with unread bytes: a reset may come while we still write.
            match Session::open(port, &long).await {
                Ok(mut session) => session.rest().await.map(drop),
                Err(_) => Ok(()),
            }
        })?;
        here.trial.log_has("preread buffer full", 1)?;
        // Nothing: closed after preread_timeout.
        let silent = block_on(async { Session::open(port, b"").await?.rest().await })?;
        ensure!(silent.is_empty(), "an answer to nothing");
        // All of that has left the listener as it was.
        block_on(through(port, b"", "first.test", "first"))?;
        block_on(terminated(port, "third.test", "third"))?;
        here.trial.end()
    });
}

/// What stands in `stream`, and what nginx says; empty: nothing.
const CONFIGURATIONS: [(&str, &str); 14] = [
    ("upstream u { server 0.0.0.1:1; ingress_balancer; } server { listen 1; proxy_pass u; }", ""),
    ("upstream u { server 0.0.0.1:1; ingress_balancer $server_port; }", ""),
    (
        "upstream u { server 0.0.0.1:1; ingress_balancer name; }",
        "invalid variable name \"name\": it begins with \"$\" in",
    ),
    ("upstream u { server 0.0.0.1:1; ingress_balancer $nowhere; }", "unknown \"nowhere\" variable"),
    (
        "upstream u { server 0.0.0.1:1; ingress_balancer; ingress_balancer; }",
        "\"ingress_balancer\" must stand before any other balancing directive in",
    ),
    (
        "upstream u { server 0.0.0.1:1; least_conn; ingress_balancer; }",
        "\"ingress_balancer\" must stand before any other balancing directive in",
    ),
    (
        "upstream u { zone z 1m; server 0.0.0.1:1; ingress_balancer; }",
        "\"ingress_balancer\" has its own shared memory: remove \"zone\" from the upstream",
    ),
    ("upstream u { ingress_balancer; }", "no servers are inside upstream"),
    (
        "server { listen 1; ssl_preread on; proxy_pass 127.0.0.1:1; ingress_passthrough; pass 127.0.0.1:2; }",
        "",
    ),
    (
        "server { listen 1; ssl_preread on; pass 127.0.0.1:2; ingress_passthrough; proxy_pass 127.0.0.1:1; }",
        "\"ingress_passthrough\" stands behind the \"proxy_pass\" of its server in",
    ),
    (
        "server { listen 1; ssl_preread on; proxy_pass 127.0.0.1:1; ingress_passthrough; }",
        "needs a \"pass\" behind it",
    ),
    (
        "server { listen 1; ssl_preread on; proxy_pass 127.0.0.1:1; pass 127.0.0.1:2; ingress_passthrough; }",
        "needs a \"pass\" behind it",
    ),
    (
        "server { listen 1; proxy_pass 127.0.0.1:1; ingress_passthrough; pass 127.0.0.1:2; }",
        "needs \"ssl_preread on\"",
    ),
    (
        "server { listen 1; ssl_preread on; proxy_pass 127.0.0.1:1; ingress_passthrough; \
         ingress_passthrough; pass 127.0.0.1:2; }",
        "\"ingress_passthrough\" directive is duplicate in",
    ),
];

#[test]
fn what_cannot_work_is_refused_with_the_remedy() {
    pass("stream-configurations", |directory| {
        let zone = "ingress_zone ingress 1m;";
        for (stream, expected) in CONFIGURATIONS {
            said(directory, zone, stream, expected)?;
        }
        let balancer = "upstream u { server 0.0.0.1:1; ingress_balancer; }";
        let needs = "\"ingress_balancer\" needs an \"ingress_zone NAME SIZE;\" before stream";
        said(directory, "", balancer, needs)?;
        let passthrough =
            "server { listen 1; ssl_preread on; proxy_pass 127.0.0.1:1; ingress_passthrough; }";
        let needs = "\"ingress_passthrough\" needs an \"ingress_zone NAME SIZE;\" before stream";
        said(directory, "", passthrough, needs)
    });
}

fn said(directory: &Directory, zone: &str, stream: &str, expected: &str) -> Result<()> {
    let conf = directory.join("test.conf");
    let module = dist::module()?;
    let text = format!(
        "load_module {}; {zone} pid nginx.pid; events {{}} stream {{ {stream} }}",
        module.display()
    );
    fs::write(&conf, text)?;
    let mut command = Command::new(dist::nginx()?);
    command.arg("-t").arg("-p").arg(directory.path()).arg("-c").arg(&conf).args(["-e", "stderr"]);
    let output = command.output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success() == expected.is_empty(), "{stream}\n{said}");
    ensure!(said.contains(expected), "{stream}\n{said}");
    Ok(())
}

/// nginx opens modules with `RTLD_NOW`: one such symbol, and an nginx whose stream is a module of its own, or that has none,
/// could not load this one.
#[test]
fn the_module_needs_no_symbol_of_stream_to_be_loaded() {
    pass("stream-symbols", |_| {
        let output =
            Command::new("nm").args(["-D", "--undefined-only"]).arg(dist::module()?).output()?;
        let symbols = String::from_utf8(output.stdout)?;
        ensure!(symbols.contains(" ngx_http_"), "nm lists what is needed: {symbols}");
        let found: Vec<_> = symbols.lines().filter(|line| line.contains("ngx_stream_")).collect();
        ensure!(found.is_empty(), "{found:?}");
        Ok(())
    });
}
