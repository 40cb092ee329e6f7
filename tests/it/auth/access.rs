//! External authentication: what the auth server is told, what its answers do, and the ways around it.
//!
//! The auth server is a program of this test that says byte for byte what a step wants, and notes what it hears.

use anyhow::{Context, Result, ensure};
use oxigress_tests::client::{self, Connection, Request, Response};
use oxigress_tests::endpoint::Endpoint;
use oxigress_tests::pass;
use oxigress_tests::place::Directory;
use oxigress_tests::site::{Plan, Site};
use oxigress_tests::wait::{block_on, runtime, until};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::io::AsyncReadExt;
use tokio::task::JoinHandle;

/// What the auth server does with a request.
#[derive(Clone)]
enum Reply {
    /// These bytes are sent as they are.
    Say(String),
    /// These bytes, each part so many milliseconds after the one before.
    Parts(Vec<String>, u64),
    /// Nothing, until it is told something else.
    Hold,
    /// The connection is closed without an answer.
    Close,
}

/// The bytes of an answer.
fn say(status: u16, headers: &str) -> Reply {
    Reply::Say(format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\n{headers}\r\n"))
}

#[derive(Clone)]
struct Auth {
    port: u16,
    reply: Arc<Mutex<Reply>>,
    seen: Arc<Mutex<Vec<String>>>,
    connections: Arc<AtomicUsize>,
}

impl Auth {
    fn start() -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = listener.local_addr()?.port();
        let auth = Auth {
            port,
            reply: Arc::new(Mutex::new(say(200, ""))),
            seen: Arc::default(),
            connections: Arc::default(),
        };
        let served = auth.clone();
        // Ends with the test.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let served = served.clone();
                served.connections.fetch_add(1, Ordering::Relaxed);
                std::thread::spawn(move || served.serve(stream));
            }
        });
        Ok(auth)
    }

    fn serve(&self, mut stream: TcpStream) {
        let mut read = Vec::new();
        let mut buffer = [0; 4096];
        loop {
            while let Some(end) = read.windows(4).position(|four| four == b"\r\n\r\n") {
                let head: Vec<u8> = read.drain(..end + 4).collect();
                self.seen
                    .lock()
                    .expect("no panic inside")
                    .push(String::from_utf8_lossy(&head).into_owned());
                loop {
                    let reply = self.reply.lock().expect("no panic inside").clone();
                    match reply {
                        Reply::Hold => std::thread::sleep(std::time::Duration::from_millis(2)),
                        Reply::Close => return,
                        Reply::Say(bytes) => {
                            if stream.write_all(bytes.as_bytes()).is_err() {
                                return;
                            }
                            break;
                        }
                        Reply::Parts(parts, pause) => {
                            for (place, part) in parts.iter().enumerate() {
                                let pause = if place == 0 { 0 } else { pause };
                                std::thread::sleep(std::time::Duration::from_millis(pause));
                                if stream.write_all(part.as_bytes()).is_err() {
                                    return;
                                }
                            }
                            break;
                        }
                    }
                }
            }
            match stream.read(&mut buffer) {
                Ok(count @ 1..) => read.extend_from_slice(&buffer[..count]),
                _ => return,
            }
        }
    }

    fn set(&self, reply: Reply) {
        *self.reply.lock().expect("no panic inside") = reply;
    }

    /// What it heard since the last look.
    fn heard(&self) -> Vec<String> {
        std::mem::take(&mut self.seen.lock().expect("no panic inside"))
    }
}

struct Fixture {
    site: Site,
    auth: Auth,
    endpoint: Endpoint,
}

fn fixture(directory: &Directory, change: impl FnOnce(&mut Plan)) -> Result<Fixture> {
    let mut plan = Plan::router(1)?;
    change(&mut plan);
    let site = Site::start(&plan, directory)?;
    let fixture = Fixture { site, auth: Auth::start()?, endpoint: Endpoint::start("a")? };
    Ok(fixture)
}

/// The settings of an auth server, with these members more.
fn external(more: Value) -> Value {
    let mut all = json!({"to": {"backend": "auth", "host": "auth.test"}, "target": "/check?x=1"});
    for (key, value) in more.as_object().cloned().unwrap_or_default() {
        all[key] = value;
    }
    all
}

impl Fixture {
    /// Rules of hosts, each with its own policies.
    fn put(&self, rules: &[(&str, Value)]) -> Result<()> {
        let mut servers =
            json!({"open.test": {"rules": [{"path": {"prefix": "/"}, "backend": "a"}]}});
        let mut policies = json!({});
        for (host, access) in rules {
            policies[host] = json!({"access": access});
            servers[host] =
                json!({"rules": [{"path": {"prefix": "/"}, "backend": "a", "policies": host}]});
        }
        let endpoints = json!({
            "a": [self.endpoint.native()],
            "auth": [{"address": "127.0.0.1", "port": self.auth.port}],
        });
        self.put_all(&servers, &policies, &endpoints)
    }

    fn put_all(&self, servers: &Value, policies: &Value, endpoints: &Value) -> Result<()> {
        let names = endpoints.as_object().into_iter().flat_map(|all| all.keys());
        let backends: Value =
            names.map(|name| (name.clone(), json!({}))).collect::<serde_json::Map<_, _>>().into();
        let whole = json!({"version": 1, "snapshot":
            {"servers": servers, "policies": policies, "backends": backends, "endpoints": endpoints}});
        let applied = block_on(self.site.configuration.put(whole.to_string()))?;
        ensure!(applied.status == 200, "{applied}");
        Ok(())
    }

    fn send(&self, request: &Request) -> Result<Response> {
        block_on(client::send(&self.site.http(), request))
    }

    fn get(&self, host: &str, path: &str) -> Result<Response> {
        self.send(&Request::get(host, path))
    }

    /// A request and the status that its client sees.
    fn expect(&self, host: &str, path: &str, status: u16) -> Result<Response> {
        let response = self.get(host, path)?;
        ensure!(response.status == status, "{host}{path}: {status} is due: {response}");
        ensure!((status == 200) == (response.endpoint().as_deref() == Some("a")), "{response}");
        Ok(response)
    }

    fn raw(&self, bytes: &str) -> Result<Response> {
        let mut all = block_on(client::send_raw(&self.site.http(), bytes.as_bytes(), 1))?;
        all.pop().context("no answer")
    }
}

fn header<'h>(head: &'h str, name: &str) -> Vec<&'h str> {
    let lines = head.lines().skip(1).filter_map(|line| line.split_once(": "));
    lines.filter(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value).collect()
}

#[test]
fn only_the_auth_server_lets_in() {
    pass("auth-verdicts", |directory| {
        let fixture =
            fixture(directory, |plan| plan.location_config = "proxy_intercept_errors on;".into())?;
        fixture.put(&[("a.test", json!({"external": external(json!({}))}))])?;
        for (status, expected) in [
            (200, 200),
            (202, 200),
            (204, 200),
            (401, 401),
            (403, 403),
            (302, 500),
            (304, 500),
            (400, 500),
            (404, 500),
            (429, 500),
            (500, 500),
            (503, 500),
        ] {
            fixture.auth.set(say(status, "Location: /elsewhere\r\n"));
            fixture.expect("a.test", "/", expected)?;
            ensure!(fixture.auth.heard().len() == 1, "{status}");
        }
        // No rule of another host asks.
        fixture.auth.set(say(401, ""));
        fixture.expect("open.test", "/", 200)?;
        ensure!(fixture.auth.heard().is_empty());
        // The body of an answer is nobody's.
        for status in [200, 401, 403] {
            fixture.auth.set(Reply::Say(format!(
                "HTTP/1.1 {status} X\r\nContent-Length: 7\r\n\r\nSECRETS"
            )));
            let response = fixture.get("a.test", "/")?;
            ensure!(
                response.status == status && !response.text().contains("SECRETS"),
                "{response}"
            );
            fixture.auth.set(Reply::Say(format!(
                "HTTP/1.1 {status} X\r\nTransfer-Encoding: chunked\r\n\r\n7\r\nSECRETS\r\n0\r\n\r\n"
            )));
            let response = fixture.get("a.test", "/")?;
            ensure!(
                response.status == status && !response.text().contains("SECRETS"),
                "{response}"
            );
        }
        // 401 says how to come in.
        fixture
            .auth
            .set(say(401, "WWW-Authenticate: Bearer realm=\"x\"\r\nWWW-Authenticate: Basic\r\n"));
        let response = fixture.expect("a.test", "/", 401)?;
        let all: Vec<_> = response.headers.get_all("www-authenticate").iter().collect();
        ensure!(all == ["Bearer realm=\"x\"", "Basic"], "{response}");
        fixture.auth.set(say(403, "WWW-Authenticate: Basic\r\n"));
        ensure!(fixture.expect("a.test", "/", 403)?.header("www-authenticate").is_none());
        fixture.site.nginx.check_error_log()
    });
}

#[test]
fn an_auth_server_that_is_ill_lets_nobody_in() {
    pass("auth-ill", |directory| {
        let fixture = fixture(directory, |_| ())?;
        fixture.put(&[("a.test", json!({"external": external(json!({}))}))])?;
        for garbage in
            ["hello\r\n\r\n", "HTTP/1.1 200\r\n", "HTTP/1.1 20", "HTTP/1.1 200 OK\r\nA: \0\r\n\r\n"]
        {
            fixture.auth.set(Reply::Say(garbage.into()));
            fixture.expect("a.test", "/", 500)?;
        }
        fixture.auth.set(Reply::Close);
        fixture.expect("a.test", "/", 500)?;
        // More than 64 KiB of headers.
        let long = format!("X: {}\r\n", "a".repeat(1000)).repeat(70);
        fixture.auth.set(say(200, &long));
        fixture.expect("a.test", "/", 500)?;
        let long = format!("X: {}\r\n", "a".repeat(1000)).repeat(50);
        fixture.auth.set(say(200, &long));
        fixture.expect("a.test", "/", 200)?;
        // The answer of another program to nginx.
        fixture.auth.set(say(401, "X-Accel-Redirect: /open\r\n"));
        fixture.expect("a.test", "/", 401)?;
        fixture.auth.set(say(500, "X-Accel-Redirect: /open\r\nX-Accel-Expires: 100\r\n"));
        fixture.expect("a.test", "/", 500)?;
        // It takes longer than the location waits (2 s in these tests).
        fixture.auth.set(Reply::Hold);
        fixture.expect("a.test", "/", 500)?;
        fixture.auth.set(say(200, ""));
        fixture.expect("a.test", "/", 200)?;
        // Nobody listens, no endpoint, no backend.
        let rule = |host: &str, backend: &str| json!({"rules": [{"path": {"prefix": "/"}, "backend": backend, "policies": host}]});
        let servers = json!({"down.test": rule("down", "a"), "none.test": rule("none", "a"), "gone.test": rule("gone", "a")});
        let to = |backend: &str| {
            let to = json!({"to": {"backend": backend, "host": "auth.test"}});
            json!({"access": {"external": external(to)}})
        };
        let policies = json!({"down": to("down"), "none": to("none"), "gone": to("gone")});
        let closed = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let endpoints = json!({
            "a": [fixture.endpoint.native()],
            "down": [{"address": "127.0.0.1", "port": closed}],
            "none": [],
        });
        fixture.put_all(&servers, &policies, &endpoints)?;
        for host in ["down.test", "none.test", "gone.test"] {
            fixture.expect(host, "/", 500)?;
        }
        fixture.site.nginx.check_error_log()
    });
}

#[test]
fn bodies_of_answers_are_dropped_and_short_ones_end_no_connection() {
    pass("auth-bodies", |directory| {
        let fixture = fixture(directory, |plan| {
            plan.http_config =
                "proxy_cache_path cache keys_zone=ingress_auth:1m use_temp_path=off;".into();
        })?;
        let host = |more| json!({"external": external(more)});
        // One host keeps the answers that say how long they are.
        let kept =
            json!({"cache": {"key": "$arg_user", "valid": [{"statuses": [200], "seconds": 60}]}});
        fixture.put(&[("a.test", host(json!({}))), ("kept.test", host(kept))])?;
        let length = |status: u16, bytes: usize, body: &str| {
            format!("HTTP/1.1 {status} X\r\nContent-Length: {bytes}\r\n\r\n{body}")
        };
        let chunked = |status: u16, chunks: &str| {
            format!("HTTP/1.1 {status} X\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}")
        };
        let long = "b".repeat(60_000);
        let all = |text: String| vec![text];
        let parts = |head: String, rest: &str| vec![head, rest.to_owned()];
        // The status that a client sees, what the auth server says, and whether its connection is kept.
        let cases = [
            ("with its head", 200, all(length(200, 5, "hello")), true),
            ("of a refusal", 403, all(length(403, 5, "hello")), true),
            ("behind its head", 200, parts(length(200, 5, ""), "hello"), true),
            ("in two parts", 200, parts(length(200, 5, "he"), "llo"), true),
            ("long", 200, all(length(200, long.len(), &long)), true),
            ("too long", 200, all(length(200, 70_000, &long)), false),
            ("chunked", 200, all(chunked(200, "5\r\nhello\r\n0\r\n\r\n")), true),
            (
                "chunked, of a refusal",
                401,
                parts(chunked(401, "5\r\nhe"), "llo\r\n0\r\n\r\n"),
                true,
            ),
            ("chunked, behind its head", 200, parts(chunked(200, ""), "1\r\na\r\n0\r\n\r\n"), true),
            ("chunked and without an end", 200, all(chunked(200, "5\r\nhello\r\n")), false),
            ("chunked, with an odd chunk", 200, all(chunked(200, "x\r\n")), false),
            ("without an end", 200, all(length(200, 9, "hello")), false),
            ("longer than it says", 200, all(length(200, 2, "hello")), false),
            ("until the end", 200, all("HTTP/1.1 200 X\r\n\r\nhello".into()), false),
            (
                "last",
                200,
                all(format!(
                    "HTTP/1.1 200 X\r\nConnection: close\r\n{}",
                    "Content-Length: 1\r\n\r\na"
                )),
                false,
            ),
        ];
        for (what, status, parts, is_kept) in cases {
            fixture.auth.set(say(200, ""));
            fixture.expect("a.test", "/", 200)?;
            fixture.auth.set(Reply::Parts(parts, 20));
            let before = fixture.auth.connections.load(Ordering::Relaxed);
            for _ in 0..10 {
                fixture.expect("a.test", "/", status).context(what)?;
            }
            let new = fixture.auth.connections.load(Ordering::Relaxed) - before;
            ensure!(if is_kept { new == 0 } else { new >= 9 }, "{what}: {new} new connections");
        }
        // Chunked answers are not kept, and neither is their connection lost for that.
        fixture.auth.set(Reply::Say(chunked(200, "5\r\nhello\r\n0\r\n\r\n")));
        fixture.expect("kept.test", "/?user=0", 200)?;
        let before = fixture.auth.connections.load(Ordering::Relaxed);
        fixture.auth.heard();
        for _ in 0..10 {
            fixture.expect("kept.test", "/?user=1", 200)?;
        }
        let new = fixture.auth.connections.load(Ordering::Relaxed) - before;
        let asked = fixture.auth.heard().len();
        ensure!((asked, new) == (10, 0), "{asked} questions, {new} new connections");
        // Those that are kept have their bodies with them, which nobody sees either.
        fixture.auth.set(Reply::Say(length(200, 5, "hello")));
        fixture.auth.heard();
        let before = fixture.auth.connections.load(Ordering::Relaxed);
        for _ in 0..5 {
            let answer = fixture.expect("kept.test", "/?user=2", 200)?;
            ensure!(!answer.text().contains("hello"), "{answer}");
        }
        let new = fixture.auth.connections.load(Ordering::Relaxed) - before;
        let asked = fixture.auth.heard().len();
        ensure!((asked, new) == (1, 0), "{asked} questions, {new} new connections");
        // Nobody waits long for the rest of a body.
        fixture.auth.set(Reply::Parts(parts(length(200, 5, "he"), "llo"), 5_000));
        let began = std::time::Instant::now();
        fixture.expect("a.test", "/", 200)?;
        ensure!(began.elapsed().as_millis() < 2_000, "{:?}", began.elapsed());
        Ok(())
    });
}

#[test]
fn the_auth_server_is_told_what_is_asked_for_and_nothing_that_the_client_says_in_our_place() {
    pass("auth-question", |directory| {
        let fixture = fixture(directory, |_| ())?;
        let more = json!({
            "method": "POST",
            "headers": [{"name": "X-Extra", "value": "$host-$http_x_a"}, {"name": "X-Gone", "value": ""}],
        });
        fixture.put(&[
            ("a.test", json!({"external": external(json!({}))})),
            ("b.test", json!({"external": external(more)})),
        ])?;
        let request = Request::new("PUT", "a.test:8080", "/x/%2e%2e/a%20b?q=1")
            .header("Cookie", "c=1")
            .header("Authorization", "Bearer t")
            .header("X-Original-URL", "http://evil.test/")
            .header("X-Original-Method", "GET")
            .header("X-Forwarded-For", "6.6.6.6")
            .header("X-Forwarded-Host", "evil.test")
            .header("X-Real-IP", "6.6.6.6")
            .header("X-Auth-Request-Redirect", "/evil")
            .header("X-Sent-From", "evil")
            .header("X-Request-ID", "mine")
            .header("Range", "bytes=0-0")
            .header("If-None-Match", "*")
            .header("ssl-client-verify", "SUCCESS")
            .body("GET /smuggled HTTP/1.1\r\nHost: a.test\r\n\r\n");
        let response = fixture.send(&request)?;
        ensure!(response.status == 200 && response.text().contains("/smuggled"), "{response}");
        let heard = fixture.auth.heard();
        let [head] = heard.as_slice() else { anyhow::bail!("{heard:?}") };
        ensure!(head.starts_with("GET /check?x=1 HTTP/1."), "{head}");
        for (name, value) in [
            ("Host", "auth.test"),
            ("Cookie", "c=1"),
            ("Authorization", "Bearer t"),
            ("X-Original-URL", "http://a.test:8080/x/%2e%2e/a%20b?q=1"),
            ("X-Original-Method", "PUT"),
            ("X-Sent-From", "nginx-ingress-controller"),
            ("X-Real-IP", "127.0.0.1"),
            ("X-Forwarded-For", "127.0.0.1"),
            ("X-Auth-Request-Redirect", "/x/%2e%2e/a%20b?q=1"),
            ("X-Request-ID", "mine"),
        ] {
            ensure!(header(head, name) == [value], "{name}: {head}");
        }
        for name in [
            "Content-Length",
            "Transfer-Encoding",
            "X-Forwarded-Host",
            "Range",
            "If-None-Match",
            "ssl-client-verify",
            "X-Original-URI",
            "X-Scheme",
        ] {
            ensure!(header(head, name).is_empty(), "{name}: {head}");
        }
        // The endpoint still has what the client sent.
        ensure!(response.text().contains("range: bytes=0-0"), "{response}");

        let request = Request::get("b.test", "/y")
            .header("X-A", "1")
            .header("X-Gone", "2")
            .header("x-extra", "3");
        ensure!(fixture.send(&request)?.status == 200);
        let heard = fixture.auth.heard();
        let head = heard.first().context("nothing was heard")?;
        ensure!(head.starts_with("POST /check?x=1 HTTP/1."), "{head}");
        ensure!(
            header(head, "X-Extra") == ["b.test-1"] && header(head, "X-Gone").is_empty(),
            "{head}"
        );
        ensure!(
            header(head, "X-Original-URI") == ["/y"] && header(head, "X-Scheme") == ["http"],
            "{head}"
        );
        ensure!(header(head, "X-Original-Method") == ["GET"], "{head}");

        // Chunked, and a body that comes late.
        let response = fixture.raw("POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n5\r\nhello\r\n0\r\n\r\n")?;
        ensure!(response.status == 200 && response.text().ends_with("hello"), "{response}");
        let heard = fixture.auth.heard();
        ensure!(heard.len() == 1 && header(&heard[0], "Transfer-Encoding").is_empty(), "{heard:?}");
        // Refused with a body: the next request of the connection is the client's, not the body.
        fixture.auth.set(say(401, ""));
        let response = block_on(async {
            let mut connection = Connection::open(&fixture.site.http()).await?;
            let request = Request::new("POST", "a.test", "/")
                .body("GET /smuggled HTTP/1.1\r\nHost: a.test\r\n\r\n");
            let first = connection.send(&request).await?;
            ensure!(first.status == 401, "{first}");
            connection.send(&Request::get("open.test", "/mine")).await
        })?;
        ensure!(response.status == 200 && response.text().starts_with("GET /mine"), "{response}");

        // An absolute request target is what routes, so it is what the auth server hears.
        fixture.auth.heard();
        let response = fixture
            .raw("GET http://a.test/p HTTP/1.1\r\nHost: open.test\r\nConnection: close\r\n\r\n")?;
        ensure!(response.status == 401, "{response}");
        let heard = fixture.auth.heard();
        ensure!(
            header(heard.first().context("nothing")?, "X-Original-URL") == ["http://a.test/p"],
            "{heard:?}"
        );
        fixture.site.nginx.check_error_log()
    });
}

#[test]
fn a_client_is_sent_to_sign_in_and_cookies_come_back() {
    pass("auth-signin", |directory| {
        let fixture = fixture(directory, |_| ())?;
        let signin = |more: Value| {
            let mut all = external(json!({"signin": "https://in.test/start?a=$arg_a"}));
            for (key, value) in more.as_object().cloned().unwrap_or_default() {
                all[key] = value;
            }
            json!({"external": all})
        };
        fixture.put(&[
            ("a.test", signin(json!({}))),
            ("b.test", signin(json!({"signin_parameter": "next", "always_sets_cookie": true, "signin": "https://in.test"}))),
            ("c.test", json!({"external": external(json!({"always_sets_cookie": true}))})),
            ("d.test", json!({"external": external(json!({}))})),
        ])?;
        let cookies = "Set-Cookie: x=1; Path=/\r\nSet-Cookie: y=2\r\n";
        fixture.auth.set(say(401, cookies));
        let response = fixture
            .expect("a.test", "/p q?a=1&b=%2f", 302)
            .or_else(|_| fixture.expect("a.test", "/p%20q?a=1&b=%2f", 302))?;
        ensure!(
            response.header("location").as_deref()
                == Some("https://in.test/start?a=1&rd=http://a.test%2Fp%2520q%3Fa%3D1%26b%3D%252f"),
            "{response}"
        );
        let set = |response: &Response| -> Vec<String> {
            let all = response.headers.get_all("set-cookie").iter();
            all.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).collect()
        };
        ensure!(set(&response) == ["x=1; Path=/", "y=2"], "{response}");
        let response = fixture.expect("b.test", "/", 302)?;
        ensure!(
            response.header("location").as_deref() == Some("https://in.test?next=http://b.test%2F"),
            "{response}"
        );
        // The client's own text ends neither the line nor the URL.
        let response = fixture.get("a.test", "/?a=%0d%0aX-Evil:%201")?;
        ensure!(response.header("x-evil").is_none() && response.status == 302, "{response}");
        ensure!(set(&fixture.expect("c.test", "/", 401)?).len() == 2);
        ensure!(set(&fixture.expect("d.test", "/", 401)?).is_empty());
        // 403 is not a matter of signing in.
        fixture.auth.set(say(403, cookies));
        fixture.expect("a.test", "/", 403)?;
        // And with an answer of the endpoint.
        fixture.auth.set(say(200, cookies));
        ensure!(set(&fixture.expect("d.test", "/", 200)?).len() == 2);
        fixture.endpoint.change(oxigress_tests::endpoint::Behaviour::Status(404));
        ensure!(
            set(&fixture.get("d.test", "/")?).is_empty()
                && set(&fixture.get("c.test", "/")?).len() == 2
        );
        fixture.site.nginx.check_error_log()
    });
}

#[test]
fn headers_of_the_answer_reach_the_endpoint_in_place_of_the_clients() {
    pass("auth-headers", |directory| {
        let fixture = fixture(directory, |plan| {
            plan.http_config =
                "set_real_ip_from 127.0.0.1; real_ip_header X-Client; underscores_in_headers on;"
                    .into();
        })?;
        let names =
            json!({"response_headers": ["X-User", "X-Groups", "Content-Length", "X-Absent"]});
        fixture.put(&[
            ("a.test", json!({"external": external(names.clone())})),
            (
                "any.test",
                json!({"allow": ["10.0.0.0/8"], "any": true, "external": external(names)}),
            ),
        ])?;
        let request = |host: &str| {
            Request::new("POST", host, "/")
                .header("X-User", "root")
                .header("x_user", "root")
                .header("X-Absent", "root")
                .header("X-Other", "kept")
                .body("abc")
        };
        fixture.auth.set(say(200, "X-User: jane\r\nX-Groups: a\r\nX-Groups: b\r\nX-Secret: s\r\n"));
        let text = fixture.send(&request("a.test"))?.text();
        for line in ["x-user: jane\n", "x-groups: a, b\n", "x-other: kept\n", "content-length: 3\n"]
        {
            ensure!(text.contains(line), "{line}: {text}");
        }
        ensure!(
            !text.contains("root") && !text.contains("x-secret") && text.ends_with("abc"),
            "{text}"
        );
        // Let in by its address: nobody was asked, and nobody says who it is.
        fixture.auth.heard();
        let response = fixture.send(&request("any.test").header("X-Client", "10.0.0.1"))?;
        ensure!(response.status == 200 && fixture.auth.heard().is_empty(), "{response}");
        ensure!(
            !response.text().contains("root") && response.text().contains("x-other: kept"),
            "{response}"
        );
        fixture.site.nginx.check_error_log()
    });
}

#[test]
fn all_of_the_three_have_to_let_in_or_any_of_them() {
    pass("auth-satisfy", |directory| {
        let fixture = fixture(directory, |plan| {
            plan.http_config = "set_real_ip_from 127.0.0.1; real_ip_header X-Client;".into();
        })?;
        let access = |any: bool| {
            json!({"allow": ["10.0.0.0/8"], "any": any, "external": external(json!({})),
                   "basic": {"realm": "x", "users": "jane:{PLAIN}secret"}})
        };
        fixture.put(&[("all.test", access(false)), ("any.test", access(true))])?;
        // address, password, auth server; all, any
        for (address, password, status, all, any) in [
            (true, true, 200, 200, 200),
            (true, true, 403, 403, 200),
            (true, true, 500, 500, 200),
            (true, false, 200, 401, 200),
            (true, false, 403, 401, 200),
            (false, true, 200, 403, 200),
            (false, true, 403, 403, 200),
            (false, true, 500, 403, 200),
            (false, false, 200, 403, 200),
            (false, false, 401, 403, 401),
            (false, false, 403, 403, 401),
            (false, false, 500, 403, 500),
        ] {
            fixture.auth.set(say(status, ""));
            for (host, expected) in [("all.test", all), ("any.test", any)] {
                let mut request = Request::get(host, "/")
                    .header("X-Client", if address { "10.0.0.1" } else { "11.0.0.1" });
                if password {
                    request = request.header("Authorization", "Basic amFuZTpzZWNyZXQ=");
                }
                let response = fixture.send(&request)?;
                ensure!(
                    response.status == expected,
                    "{host} {address} {password} {status}: {expected} is due: {response}"
                );
                ensure!(!response.text().contains("authorization"), "{response}");
            }
        }
        fixture.site.nginx.check_error_log()
    });
}

#[test]
fn nobody_gets_to_the_location_of_questions() {
    pass("auth-inside", |directory| {
        let fixture = fixture(directory, |_| ())?;
        let access = json!({"external": external(json!({}))});
        fixture.put(&[("a.test", access)])?;
        for target in [
            "/ingress-auth-http",
            "ingress-auth-http",
            "//ingress-auth-http",
            "/../ingress-auth-http",
            "/ingress-auth-https",
            "/ingress-auth",
        ] {
            let text =
                format!("GET {target} HTTP/1.1\r\nHost: open.test\r\nConnection: close\r\n\r\n");
            let response = fixture.raw(&text)?;
            ensure!(
                response.endpoint().as_deref() == Some("a") || response.status == 400,
                "{target}: {response}"
            );
        }
        ensure!(fixture.auth.heard().is_empty());
        // An endpoint sends nginx there.
        let inside = Auth::start()?;
        let servers = json!({"x.test": {"rules": [{"path": {"prefix": "/"}, "backend": "x"}]}});
        let endpoints = json!({"x": [{"address": "127.0.0.1", "port": inside.port}]});
        fixture.put_all(&servers, &json!({}), &endpoints)?;
        for place in [
            "ingress-auth-http",
            "/ingress-auth-http",
            "ingress-auth-https",
            "@ingress-auth-http",
            "ingress-auth",
        ] {
            inside.set(say(200, &format!("X-Accel-Redirect: {place}\r\n")));
            inside.heard();
            let response = fixture.get("x.test", "/");
            let heard = inside.heard();
            ensure!(
                heard.iter().all(|head| !head.contains("/check") && head.contains("Host: x.test")),
                "{place}: {heard:?} {response:?}"
            );
            if let Ok(response) = response {
                ensure!(response.status >= 400, "{place}: {response}");
            }
        }
        Ok(())
    });
}

#[test]
fn answers_are_kept_for_one_policy_and_asked_for_once() {
    pass("auth-cache", |directory| {
        let fixture = fixture(directory, |plan| {
            plan.workers = 2;
            plan.http_config =
                "proxy_cache_path cache keys_zone=ingress_auth:1m use_temp_path=off;".into();
        })?;
        let cached = |key: &str, valid: Value| json!({"external": external(json!({"cache": {"key": key, "valid": valid}, "response_headers": ["X-User"]}))});
        let long = json!([{"statuses": [200, 401], "seconds": 600}]);
        fixture.put(&[
            ("a.test", cached("$http_authorization", long.clone())),
            ("b.test", cached("$http_authorization", long.clone())),
            ("short.test", cached("$host", json!([{"statuses": [200], "seconds": 0}]))),
        ])?;
        let get = |host: &str, token: &str| {
            fixture.send(&Request::get(host, "/").header("Authorization", token))
        };
        fixture.auth.set(say(200, "X-User: jane\r\n"));
        for _ in 0..6 {
            let response = get("a.test", "jane")?;
            ensure!(
                response.status == 200 && response.text().contains("x-user: jane"),
                "{response}"
            );
        }
        ensure!(fixture.auth.heard().len() == 1);
        // Another client, another host with the same words.
        fixture.auth.set(say(401, "WWW-Authenticate: Basic\r\n"));
        for _ in 0..3 {
            let response = get("a.test", "joe")?;
            ensure!(
                response.status == 401 && response.header("www-authenticate").is_some(),
                "{response}"
            );
        }
        ensure!(fixture.auth.heard().len() == 1);
        ensure!(get("b.test", "jane")?.status == 401 && fixture.auth.heard().len() == 1);
        ensure!(get("a.test", "jane")?.status == 200 && fixture.auth.heard().is_empty());
        // Statuses without a time, errors, answers that say so themselves, cookies: asked for each time.
        fixture.auth.set(say(403, ""));
        ensure!(get("a.test", "jim")?.status == 403 && get("a.test", "jim")?.status == 403);
        ensure!(fixture.auth.heard().len() == 2);
        fixture.auth.set(say(500, ""));
        ensure!(get("a.test", "jim")?.status == 500 && get("a.test", "jim")?.status == 500);
        ensure!(fixture.auth.heard().len() == 2);
        for (token, headers) in
            [("c1", "Cache-Control: no-store\r\n"), ("c2", "Set-Cookie: s=1\r\n")]
        {
            fixture.auth.set(say(200, headers));
            ensure!(get("a.test", token)?.status == 200 && get("a.test", token)?.status == 200);
            ensure!(fixture.auth.heard().len() == 2, "{token}");
        }
        fixture.auth.set(say(200, ""));
        ensure!(get("short.test", "")?.status == 200 && get("short.test", "")?.status == 200);
        ensure!(fixture.auth.heard().len() == 2);
        // A body that is long, or that does not say how long it is, is not kept.
        for (token, body) in [
            ("l1", format!("Content-Length: 70000\r\n\r\n{}", "x".repeat(70_000))),
            ("l2", "Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n".into()),
        ] {
            fixture.auth.set(Reply::Say(format!("HTTP/1.1 200 X\r\n{body}")));
            ensure!(get("a.test", token)?.status == 200 && get("a.test", token)?.status == 200);
            ensure!(fixture.auth.heard().len() == 2, "{token}");
        }
        // Many at once ask once.
        fixture.auth.set(Reply::Hold);
        let held: Vec<_> = (0..10)
            .map(|_| {
                let (address, request) = (
                    fixture.site.http(),
                    Request::get("a.test", "/").header("Authorization", "many"),
                );
                runtime().spawn(async move { client::send(&address, &request).await })
            })
            .collect();
        until("the question", || {
            ensure!(!fixture.auth.seen.lock().expect("no panic inside").is_empty());
            Ok(())
        })?;
        fixture.auth.set(say(200, ""));
        for one in held {
            let response = block_on(one)??;
            ensure!(response.status == 200, "{response}");
        }
        ensure!(fixture.auth.heard().len() == 1);
        // Other settings are another policy, at once.
        fixture.put(&[(
            "a.test",
            cached("$http_authorization", json!([{"statuses": [200], "seconds": 601}])),
        )])?;
        fixture.auth.set(say(401, ""));
        ensure!(get("a.test", "jane")?.status == 401 && fixture.auth.heard().len() == 1);
        fixture.site.nginx.check_error_log()
    });
}

/// `secret`, bcrypt at cost 6: some 3 ms on a machine that has nothing else to do.
const SLOW: &str = "$2b$06$abcdefghijklmnopqrstuuxLa0AkDDSrQ9VwNnETzOsObiucpMYgC";

#[test]
fn passwords_wait_in_line_and_who_leaves_leaves_the_line() {
    pass("auth-line", |directory| {
        let fixture = fixture(directory, |_| ())?;
        let users: String = (0..40).map(|n| format!("user{n}:{SLOW}\n")).collect();
        fixture.put(&[("a.test", json!({"basic": {"realm": "x", "users": users}}))])?;
        let encode = |text: String| openssl::base64::encode_block(text.as_bytes());
        let request = |user: String| {
            let credentials = format!("Basic {}", encode(format!("{user}:secret")));
            Request::get("a.test", "/").header("Authorization", &credentials)
        };
        // Some go away at once, whether a thread has their password or not.
        let gone = (0..20).map(|n| {
            let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, fixture.site.http_port))?;
            let credentials = encode(format!("nobody{n}:secret"));
            write!(
                stream,
                "GET / HTTP/1.1\r\nHost: a.test\r\nAuthorization: Basic {credentials}\r\n\r\n"
            )?;
            Ok(stream)
        });
        let gone: Result<Vec<TcpStream>> = gone.collect();
        drop(gone?);
        let all: Vec<_> = (0..40)
            .map(|n| {
                let (address, request) = (fixture.site.http(), request(format!("user{n}")));
                runtime().spawn(async move { client::send(&address, &request).await })
            })
            .collect();
        for one in all {
            let response = block_on(one)??;
            ensure!(response.status == 200, "{response}");
        }
        // Known by now: no thread has to look again.
        let response = fixture.send(&request("user1".into()))?;
        ensure!(response.status == 200, "{response}");
        ensure!(fixture.send(&request("nobody1".into()))?.status == 401);
        fixture.site.nginx.check_error_log()
    });
}

/// bcrypt at cost 11, 32 times as slow as [`SLOW`].
const SLOWER: &str = "$2b$11$abcdefghijklmnopqrstuuxLa0AkDDSrQ9VwNnETzOsObiucpMYgC";
/// More than wait in one line.
const FLOOD: usize = 300;

/// Of the answers so far.
type Statuses = Arc<Mutex<Vec<String>>>;

/// Logins of one host, more than are let wait, all with other passwords; each is counted by the status of its answer.
fn flood(port: u16, host: &str) -> Result<(Vec<JoinHandle<()>>, Statuses)> {
    let statuses = Statuses::default();
    let streams: Result<Vec<TcpStream>> = (0..FLOOD)
        .map(|n| {
            let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
            let credentials = openssl::base64::encode_block(format!("bob:wrong{n}").as_bytes());
            let head = format!(
                "GET / HTTP/1.1\r\nHost: {host}\r\nAuthorization: Basic {credentials}\r\n\r\n"
            );
            stream.write_all(head.as_bytes())?;
            stream.set_nonblocking(true)?;
            Ok(stream)
        })
        .collect();
    let tasks = streams?.into_iter().map(|stream| {
        let statuses = statuses.clone();
        runtime().spawn(async move {
            let Ok(mut stream) = tokio::net::TcpStream::from_std(stream) else { return };
            let mut status = [0; 12];
            if stream.read_exact(&mut status).await.is_ok() {
                let status = String::from_utf8_lossy(&status[9..]).into_owned();
                statuses.lock().expect("no panic inside").push(status);
            }
        })
    });
    Ok((tasks.collect(), statuses))
}

/// Counted by order: in one line for all, each of the others is answered after the whole flood.
#[test]
fn a_flood_of_passwords_delays_no_other_tenant() {
    pass("auth-turns", |directory| {
        let fixture = fixture(directory, |_| ())?;
        let file = |hash: &str| json!({"access": {"basic": {"realm": "x", "users": format!("bob:{hash}\n")}}});
        let policies = json!({"flooded": file(SLOWER), "quick": file(SLOW)});
        let rule = |namespace: &str, policy: &str| {
            let origin = json!({"namespace": namespace, "ingress": "x"});
            json!({"rules": [{"path": {"prefix": "/"}, "backend": "a", "policies": policy, "origin": origin}]})
        };
        let servers = json!({"flooded.test": rule("hostile", "flooded"), "own.test": rule("hostile", "quick"),
            "other.test": rule("other", "quick")});
        fixture.put_all(&servers, &policies, &json!({"a": [fixture.endpoint.native()]}))?;
        let (tasks, statuses) = flood(fixture.site.http_port, "flooded.test")?;
        let count = |status: &str| {
            statuses
                .lock()
                .expect("no panic inside")
                .iter()
                .filter(|other| *other == status)
                .count()
        };
        // 503 where the line is full; where it takes the whole flood, the first wrong password.
        until("an answer to the flood", || {
            ensure!(count("503") + count("401") > 0);
            Ok(())
        })?;
        // Of another namespace, and of another password file of the same one.
        for (n, host) in ["other.test", "own.test"].into_iter().enumerate() {
            let before = count("401");
            let credentials = openssl::base64::encode_block(b"bob:secret");
            let request = Request::get(host, &format!("/{n}"))
                .header("Authorization", &format!("Basic {credentials}"));
            let response = fixture.send(&request)?;
            ensure!(response.status == 200, "{response}");
            let turns = count("401") - before;
            // Eight are at work when it comes, and as many may begin before its answer is here.
            ensure!(turns <= 24, "{host} waited for {turns} of the flood");
        }
        ensure!(count("401") < FLOOD / 2, "the flood was over too early to prove anything");
        tasks.iter().for_each(JoinHandle::abort);
        fixture.site.nginx.check_error_log()
    });
}
