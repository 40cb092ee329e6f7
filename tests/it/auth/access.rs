//! External authentication: what the auth server is told, what its answers do, and the ways around it.
//!
//! The auth server is a program of this test that says byte for byte what a step wants, and notes what it hears.

mod answers;
mod passwords;
mod questions;
mod redirects;

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
