//! TLS connections that are passed through by their server names.

use super::*;

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
        let closed = log.matches("TLS connection for \"none.test\" looped back").count();
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
