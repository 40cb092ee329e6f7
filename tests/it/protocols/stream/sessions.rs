//! Sessions of TCP and UDP, while endpoints change and fail.

use super::*;

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
