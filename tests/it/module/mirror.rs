//! Copies of requests: what they say, and that nobody waits for them.

use anyhow::{Context, Result, ensure};
use oxigress_tests::client::{self, Connection, Request};
use oxigress_tests::endpoint::Endpoint;
use oxigress_tests::pass;
use oxigress_tests::place::Directory;
use oxigress_tests::site::{Plan, Site};
use oxigress_tests::wait::block_on;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

#[test]
fn a_copy_is_the_request_with_a_host_of_its_own() {
    pass("mirror", |directory| {
        let shop = Shop::start(directory)?;
        shop.put(json!({}))?;
        let request = Request::new("POST", "shop.test", "/a%20b?c=d").header("X-Test", "one");
        let answer = block_on(client::send(&shop.site.http(), &request.body("hello")))?;
        ensure!(answer.endpoint().as_deref() == Some("shop"), "{answer}");
        ensure!(answer.text().contains("hello"), "{answer}");
        let (copy, stream) = shop.copy()?;
        ensure!(copy.starts_with("POST /a%20b?c=d HTTP/1.1\r\n"), "{copy}");
        let lower = copy.to_lowercase();
        for line in ["host: mirror.test\r\n", "x-test: one\r\n", "content-length: 5\r\n"] {
            ensure!(lower.contains(line), "no {line} in {copy}");
        }
        ensure!(copy.ends_with("\r\n\r\nhello"), "{copy}");
        answer_to(stream)
    });
}

#[test]
fn a_copy_without_a_body_goes_to_a_target_of_its_own() {
    pass("mirror-target", |directory| {
        let shop = Shop::start(directory)?;
        let own =
            json!({"target": "/copy$request_uri", "host": "other.test", "without_body": true});
        shop.put(own)?;
        let request = Request::new("PUT", "shop.test", "/x").body("hello");
        let answer = block_on(client::send(&shop.site.http(), &request))?;
        ensure!(answer.text().contains("hello"), "{answer}");
        let (copy, stream) = shop.copy()?;
        ensure!(copy.starts_with("PUT /copy/x HTTP/1.1\r\n"), "{copy}");
        let lower = copy.to_lowercase();
        ensure!(lower.contains("host: other.test\r\n") && copy.ends_with("\r\n\r\n"), "{copy}");
        ensure!(!lower.contains("content-length"), "{copy}");
        answer_to(stream)
    });
}

/// The id that the controller's nginx.conf gives endpoints, in one piece with other headers.
#[test]
fn a_copy_has_the_id_of_its_request() {
    pass("mirror-id", |directory| {
        let mut plan = Plan::router(1)?;
        plan.http_config =
            "ingress_header_lines $head CDN-Loop $ingress_cdn_loop X-Request-ID $req_id;".into();
        plan.location_config =
            "proxy_set_header CDN-Loop $head; proxy_set_header X-Request-ID \"\";".into();
        let shop = Shop::start_with(directory, &plan)?;
        shop.put(json!({}))?;
        let answer = block_on(client::send(&shop.site.http(), &Request::get("shop.test", "/")))?;
        let (copy, stream) = shop.copy()?;
        let id = |head: &str| {
            let head = head.to_lowercase();
            let (_, rest) = head.split_once("x-request-id: ")?;
            Some(rest.get(..32)?.to_owned())
        };
        let (of_request, of_copy) = (id(&answer.text()), id(&copy));
        ensure!(of_request.is_some() && of_request == of_copy, "{of_request:?} {of_copy:?}");
        // A copy that comes back is served once, and copies of it are not: many copies do not multiply.
        let (request, copy) = (answer.text().to_lowercase(), copy.to_lowercase());
        let has = |head: &str, line: &str| head.lines().any(|one| one == line);
        ensure!(has(&request, "cdn-loop: oxigress"), "{request}");
        ensure!(has(&copy, "cdn-loop: oxigress, oxigress"), "{copy}");
        answer_to(stream)
    });
}

/// The host that routed is the only one that a copy may name.
#[test]
fn a_copy_of_an_absolute_target_has_the_host_of_the_target() {
    pass("mirror-absolute", |directory| {
        let shop = Shop::start(directory)?;
        shop.put(json!({"target": "/copy-for-$host"}))?;
        let request = b"GET http://shop.test/a HTTP/1.1\r\nHost: admin.test\r\n\r\n";
        let answers = block_on(client::send_raw(&shop.site.http(), request, 1))?;
        ensure!(answers.iter().map(|answer| answer.status).eq([200]), "{answers:?}");
        let (copy, stream) = shop.copy()?;
        ensure!(copy.starts_with("GET /copy-for-shop.test HTTP/1.1\r\n"), "{copy}");
        ensure!(!copy.contains("admin.test"), "{copy}");
        answer_to(stream)
    });
}

/// The server of copies never answers while clients are served.
#[test]
fn nobody_waits_for_a_copy() {
    pass("mirror-slow", |directory| {
        let shop = Shop::start(directory)?;
        shop.put(json!({}))?;
        let mut held = Vec::new();
        for _ in 0..5 {
            let request = Request::new("POST", "shop.test", "/").body("hello");
            let answer = block_on(client::send(&shop.site.http(), &request))?;
            ensure!(answer.status == 200, "{answer}");
            held.push(shop.copy()?.1);
        }
        held.into_iter().try_for_each(answer_to)?;
        shop.site.nginx.check_error_log()
    });
}

/// A copy that was led on would reach paths that nobody may ask for: a subrequest has no ACCESS phase.
#[test]
fn an_answer_to_a_copy_leads_nowhere() {
    pass("mirror-accel", |directory| {
        let shop = Shop::start(directory)?;
        let secret = Endpoint::start("secret")?;
        shop.put_with(json!({}), |snapshot| {
            let rule =
                json!({"path": {"prefix": "/secret"}, "backend": "secret", "policies": "closed"});
            if let Some(rules) = snapshot["servers"]["shop.test"]["rules"].as_array_mut() {
                rules.push(rule);
            }
            snapshot["policies"]["closed"] = json!({"access": {"allow": ["192.0.2.0/24"]}});
            snapshot["backends"]["secret"] = json!({});
            snapshot["endpoints"]["secret"] = json!([secret.native()]);
        })?;
        let mut connection = block_on(Connection::open(&shop.site.http()))?;
        let answer = block_on(connection.send(&Request::get("shop.test", "/")))?;
        ensure!(answer.endpoint().as_deref() == Some("shop"), "{answer}");
        let mut stream = shop.copy()?.1;
        stream.write_all(
            b"HTTP/1.1 200 OK\r\nX-Accel-Redirect: /secret\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        )?;
        // The connection takes this one when the copy has ended.
        let answer = block_on(connection.send(&Request::get("shop.test", "/secret")))?;
        ensure!(answer.status == 403, "{answer}");
        ensure!(secret.requests() == 0, "the copy was led to /secret");
        shop.site.nginx.check_error_log()
    });
}

struct Shop {
    site: Site,
    endpoint: Endpoint,
    port: u16,
    copies: Receiver<(String, TcpStream)>,
}

impl Shop {
    fn start(directory: &Directory) -> Result<Self> {
        Self::start_with(directory, &Plan::router(1)?)
    }

    fn start_with(directory: &Directory, plan: &Plan) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let (port, (sender, copies)) = (listener.local_addr()?.port(), channel());
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let sender = sender.clone();
                thread::spawn(move || take(stream, &sender));
            }
        });
        let site = Site::start(plan, directory)?;
        Ok(Shop { site, endpoint: Endpoint::start("shop")?, port, copies })
    }

    fn put(&self, more: Value) -> Result<()> {
        self.put_with(more, |_| {})
    }

    /// The same, with what is changed in the snapshot.
    fn put_with(&self, more: Value, change: impl FnOnce(&mut Value)) -> Result<()> {
        let mut mirror = json!({"to": {"backend": "copies", "host": "mirror.test"}});
        for (name, value) in more.as_object().context("an object")? {
            mirror[name] = value.clone();
        }
        let rule = json!({"path": {"prefix": "/"}, "backend": "shop", "policies": "p"});
        let copies = json!({"address": "127.0.0.1", "port": self.port});
        let mut snapshot = json!({
            "servers": {"shop.test": {"rules": [rule]}}, "policies": {"p": {"mirror": mirror}},
            "backends": {"shop": {}, "copies": {}},
            "endpoints": {"shop": [self.endpoint.native()], "copies": [copies]}});
        change(&mut snapshot);
        let snapshot = json!({"version": 1, "snapshot": snapshot});
        let answer = block_on(self.site.configuration.put(snapshot.to_string()))?;
        ensure!(answer.status == 200, "{answer}");
        Ok(())
    }

    /// The next copy, and the connection that waits for its answer.
    fn copy(&self) -> Result<(String, TcpStream)> {
        self.copies.recv_timeout(client::TIMEOUT).context("no copy came")
    }
}

fn take(mut stream: TcpStream, copies: &Sender<(String, TcpStream)>) -> Option<()> {
    let (mut text, mut buffer) = (String::new(), [0; 4096]);
    loop {
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| {
                let (name, value) = line.split_once(": ")?;
                name.eq_ignore_ascii_case("content-length").then(|| value.parse().ok())?
            });
            if body.len() >= length.unwrap_or(0) {
                return copies.send((text, stream)).ok();
            }
        }
        let read = stream.read(&mut buffer).ok().filter(|read| *read > 0)?;
        text.push_str(&String::from_utf8_lossy(buffer.get(..read)?));
    }
}

fn answer_to(mut stream: TcpStream) -> Result<()> {
    Ok(stream.write_all(b"HTTP/1.1 500 X\r\nContent-Length: 3\r\nConnection: close\r\n\r\nbad")?)
}
