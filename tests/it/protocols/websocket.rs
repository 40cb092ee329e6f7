//! WebSocket: connections that live longer than what they were opened by.

use anyhow::{Context, ensure};
use oxigress_tests::certificate::Certificate;
use oxigress_tests::pass;
use oxigress_tests::protocol::websocket::{WebSocket, WebSocketEndpoint};
use oxigress_tests::shipped::{Route, Shipped};
use oxigress_tests::wait::block_on;
use serde_json::json;

const HOST: &str = "chat.test";

#[test]
fn messages_pass_both_ways_with_and_without_tls_on_either_side() {
    pass("websocket-echo", |directory| {
        let nginx = Shipped::start(directory, 1)?;
        let plain = WebSocketEndpoint::start("plain")?;
        let secure = WebSocketEndpoint::tls("secure", &Certificate::new("secure", &[])?)?;
        nginx.serve(&[
            Route { policies: json!(null), ..Route::new(HOST, plain.listener.address, "http") },
            Route::new("wss.test", secure.listener.address, "https"),
        ])?;
        for (host, endpoint, name) in [(HOST, &plain, "plain"), ("wss.test", &secure, "secure")] {
            for (address, is_tls) in [(nginx.http, false), (nginx.https, true)] {
                let talk = async {
                    let mut socket = WebSocket::open(address, is_tls, host, "/room?x=1").await?;
                    ensure!(socket.response.status() == 101, "{:?}", socket.response);
                    for number in 0..50 {
                        let answer = socket.ask(&number.to_string()).await?;
                        ensure!(answer == format!("{name}: {number}"), "{answer}");
                    }
                    let large: Vec<_> = (0..300_000_u32).map(|n| n as u8).collect();
                    let mut answer = socket.ask_bytes(&large).await?;
                    answer.reverse();
                    ensure!(answer == large, "300,000 bytes came back otherwise");
                    socket.close().await
                };
                block_on(talk).with_context(|| format!("{name}, client with TLS: {is_tls}"))?;
                let scheme = if is_tls { "https" } else { "http" };
                let head = endpoint.last_head();
                for line in [
                    "GET /room?x=1\n",
                    "upgrade: websocket\n",
                    "connection: upgrade\n",
                    "sec-websocket-version: 13\n",
                    &format!("host: {host}\n"),
                    &format!("x-forwarded-proto: {scheme}\n"),
                ] {
                    ensure!(head.contains(line), "no {line:?} in\n{head}");
                }
                // Nothing is kept of a connection that has been upgraded.
                endpoint.listener.wait_for_open(0)?;
            }
        }
        nginx.check()
    });
}

#[test]
fn a_connection_outlives_its_endpoint_set_and_its_policies() {
    pass("websocket-lives", |directory| {
        let nginx = Shipped::start(directory, 2)?;
        let (old, new) = (WebSocketEndpoint::start("old")?, WebSocketEndpoint::start("new")?);
        nginx.serve(&[Route::new(HOST, old.listener.address, "http")])?;
        let mut socket = block_on(WebSocket::open(nginx.http, false, HOST, "/"))?;
        ensure!(block_on(socket.ask("first"))? == "old: first");
        let to_new = new.listener.address;
        let changes = [
            vec![Route::with(HOST, to_new, json!({"read_timeout_seconds": 1}))],
            vec![Route::new(HOST, to_new, "grpc")],
            vec![Route { policies: json!({"denied": 403}), ..Route::new(HOST, to_new, "http") }],
            vec![],
            vec![Route::new(HOST, to_new, "http")],
        ];
        for (number, routes) in changes.iter().enumerate() {
            nginx.serve(routes)?;
            let answer = block_on(socket.ask(&number.to_string()))?;
            ensure!(answer == format!("old: {number}"), "{answer}");
        }
        let mut next = block_on(WebSocket::open(nginx.http, false, HOST, "/"))?;
        ensure!(block_on(next.ask("now"))? == "new: now");
        ensure!(block_on(socket.ask("still"))? == "old: still");
        nginx.check()
    });
}

/// The default is 60 s, which is longer than the test waits.
#[test]
fn the_read_timeout_of_the_route_ends_a_silent_connection() {
    pass("websocket-timeout", |directory| {
        let nginx = Shipped::start(directory, 1)?;
        let chat = WebSocketEndpoint::start("chat")?;
        let address = chat.listener.address;
        nginx.serve(&[
            Route::with(
                HOST,
                address,
                json!({"read_timeout_seconds": 1, "send_timeout_seconds": 1}),
            ),
            Route::new("patient.test", address, "http"),
        ])?;
        let mut silent = block_on(WebSocket::open(nginx.http, false, HOST, "/"))?;
        let mut patient = block_on(WebSocket::open(nginx.http, false, "patient.test", "/"))?;
        ensure!(block_on(silent.ask("once"))? == "chat: once");
        let end = block_on(silent.receive());
        let error = end.err().context("a message from nowhere")?;
        ensure!(!format!("{error:#}").contains("in time"), "it is still open: {error:#}");
        ensure!(block_on(patient.ask("here"))? == "chat: here");
        chat.listener.wait_for_open(1)?;
        nginx.check()
    });
}

#[test]
fn what_the_endpoint_refuses_is_no_websocket() {
    pass("websocket-refused", |directory| {
        let nginx = Shipped::start(directory, 1)?;
        let chat = WebSocketEndpoint::start("chat")?;
        nginx.serve(&[Route::new(HOST, chat.listener.address, "http")])?;
        for (host, path, status) in [(HOST, "/refused", "403"), ("else.test", "/", "404")] {
            let refused = block_on(WebSocket::open(nginx.http, false, host, path));
            let error = refused.err().context("it was let in")?;
            ensure!(format!("{error:#}").contains(status), "{error:#}");
        }
        let mut socket = block_on(WebSocket::open(nginx.http, false, HOST, "/"))?;
        ensure!(block_on(socket.ask("after"))? == "chat: after");
        nginx.check()
    });
}
