//! gRPC through nginx as it is shipped: calls of every kind, over plain HTTP/2 and over TLS on both sides.

use anyhow::{Context, Result, anyhow, ensure};
use oxigress_tests::certificate::Certificate;
use oxigress_tests::pass;
use oxigress_tests::protocol::grpc::{Channel, GrpcEndpoint};
use oxigress_tests::shipped::{Route, Shipped};
use oxigress_tests::wait::block_on;
use serde_json::json;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::thread;

const HOST: &str = "grpc.test";

#[test]
fn every_kind_of_call_works_with_and_without_tls_on_either_side() {
    pass("grpc-calls", |directory| {
        let nginx = Shipped::start(directory, 1)?;
        let plain = GrpcEndpoint::start("plain")?;
        let secure = GrpcEndpoint::tls("secure", &Certificate::new("secure", &["grpcs.test"])?)?;
        nginx.serve(&[
            Route::new(HOST, plain.listener.address, "grpc"),
            Route::new("grpcs.test", secure.listener.address, "grpcs"),
        ])?;
        for (host, name) in [(HOST, "plain"), ("grpcs.test", "secure")] {
            for (address, tls) in [(nginx.http, None), (nginx.https, Some(host))] {
                let calls = block_on(every_kind(address, tls, host, name));
                calls.with_context(|| format!("{name} endpoint, client with TLS: {tls:?}"))?;
            }
        }
        for endpoint in [&plain, &secure] {
            // Two clients, and their calls one after the other.
            let (calls, connections) = (endpoint.calls(), endpoint.listener.connections());
            ensure!(calls == 14 && connections == 1, "{calls} calls on {connections} connections");
        }
        nginx.check()
    });
}

/// A line of HTTP/2 may take one byte, so that the smallest buffer has room for thousands; nginx goes through the list of
/// such lines at each.
#[test]
fn a_head_of_more_than_2000_lines_is_not_read() {
    pass("grpc-lines", |directory| {
        let nginx = Shipped::start(directory, 1)?;
        let endpoint = GrpcEndpoint::start("plain")?;
        let proxy = json!({"protocol": "grpc", "buffer_bytes": 1 << 20});
        nginx.serve(&[Route::with(HOST, endpoint.listener.address, proxy)])?;
        for (lines, status) in [("900", 200), ("3000", 502), ("900", 200)] {
            let outcome = block_on(async {
                let channel = Channel::connect(nginx.http, None).await?;
                channel.ask_with(HOST, "Lines", &[("lines", lines)], &[]).await
            })?;
            ensure!(outcome.http_status == status, "{lines}: {outcome:?}");
        }
        let log = nginx.log();
        ensure!(log.contains("a response head has more than 2000 lines"), "{log}");
        Ok(())
    });
}

/// Trailers that never end: nginx keeps each as long as the request lasts.
#[test]
fn an_answer_with_more_trailers_than_2000_ends() {
    pass("grpc-trailers", |directory| {
        let nginx = Shipped::start(directory, 1)?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let sent = thread::spawn(move || endless_trailers(&listener));
        nginx.serve(&[Route::new(HOST, address, "grpc")])?;
        let outcome = block_on(async {
            let channel = Channel::connect(nginx.http, None).await?;
            channel.ask(HOST, "Unary", &["hello"]).await
        });
        let sent = sent.join().map_err(|_| anyhow!("the endpoint"))??;
        println!("{sent} bytes of trailers were read; {outcome:?}");
        ensure!(sent < MANY, "nginx read {sent} bytes of trailers");
        // nginx 1.31 has a limit of its own, in bytes, which these come to first.
        let (log, limits) = (nginx.log(), ["more than 2000 trailers", "too large http2 header"]);
        ensure!(limits.iter().any(|limit| log.contains(limit)), "{log}");
        Ok(())
    });
}

/// More than nginx's buffers and the kernel's have.
const MANY: usize = 64 << 20;

/// Answers a call with a head and a block of trailers of one byte each that never ends; says how much of it was taken.
fn endless_trailers(listener: &TcpListener) -> Result<usize> {
    let frame = |kind: u8, flags: u8, stream: u32, payload: &[u8]| -> Result<Vec<u8>> {
        let length = u32::try_from(payload.len())?.to_be_bytes();
        let head = [&length[1..], &[kind, flags], &stream.to_be_bytes()].concat();
        Ok([&head[..], payload].concat())
    };
    let (mut stream, _) = listener.accept()?;
    let settings = [frame(4, 0, 0, b"")?, frame(4, 1, 0, b"")?].concat();
    stream.write_all(&settings)?;
    // `:status: 200`; then trailers, of which each is `accept-charset` of HPACK's table.
    let head = frame(1, 4, 1, b"\x88")?;
    let many = [0x8f; 16_384];
    stream.write_all(&[head, frame(1, 1, 1, &many)?].concat())?;
    let more = frame(9, 0, 1, &many)?;
    let mut sent = 0;
    while sent < MANY && stream.write_all(&more).is_ok() {
        sent += more.len();
    }
    Ok(sent)
}

async fn every_kind(address: SocketAddr, tls: Option<&str>, host: &str, name: &str) -> Result<()> {
    let channel = Channel::connect(address, tls).await?;

    let unary = channel.ask(host, "Unary", &["hello"]).await.context("unary")?;
    ensure!(unary.messages == [format!("{name}: hello")], "{unary:?}");
    ensure!(unary.http_status == 200 && unary.status == Some(0), "{unary:?}");
    ensure!(
        unary.is_in_trailers && unary.message.as_deref() == Some("told at the end"),
        "{unary:?}"
    );

    let listed = channel.ask(host, "List", &["1000"]).await.context("server stream")?;
    let expected: Vec<_> = (0..1000).map(|number| number.to_string()).collect();
    ensure!(listed.messages == expected && listed.status == Some(0), "{listed:?}");

    let counted = channel.ask(host, "Count", &["a"; 1000]).await.context("client stream")?;
    ensure!(counted.messages == ["1000"] && counted.status == Some(0), "{counted:?}");

    let mut chat = channel.call(host, "Chat", &[]).await.context("both ways")?;
    for number in 0..20 {
        chat.send(&number.to_string()).await?;
        let answer = chat.receive().await?;
        ensure!(answer == Some(format!("{name}: {number}")), "{answer:?}");
    }
    let ended = chat.end().await?;
    ensure!(ended.messages.is_empty() && ended.status == Some(0), "{ended:?}");

    let missing = channel.ask(host, "Missing", &[]).await.context("status without a message")?;
    ensure!(missing.status == Some(5) && !missing.is_in_trailers, "{missing:?}");
    ensure!(missing.message.as_deref() == Some("no such thing"), "{missing:?}");

    let late = channel.ask(host, "Late", &["x"]).await.context("status after a message")?;
    ensure!(late.messages == ["so far so good"] && late.status == Some(13), "{late:?}");
    ensure!(late.is_in_trailers, "{late:?}");

    let head = channel.ask(host, "Head", &[]).await.context("head")?;
    let head = head.messages.join("");
    let (scheme, port) = if tls.is_some() { ("https", "443") } else { ("http", "") };
    for line in [
        "POST ".to_owned(),
        format!("host: {host}\n"),
        "te: trailers\n".into(),
        "content-type: application/grpc\n".into(),
        "x-real-ip: 127.0.0.1\n".into(),
        "x-forwarded-for: 127.0.0.1\n".into(),
        format!("x-forwarded-host: {host}\n"),
        format!("x-forwarded-port: {port}"),
        format!("x-forwarded-proto: {scheme}\n"),
        format!("x-forwarded-scheme: {scheme}\n"),
        format!("x-scheme: {scheme}\n"),
        "x-request-id: ".into(),
    ] {
        ensure!(head.contains(&line), "no {line:?} in\n{head}");
    }
    Ok(())
}

/// A client sees an error of HTTP, which gRPC's libraries read as UNAVAILABLE: 502, 503 or 504.
#[test]
fn an_endpoint_that_is_not_there_is_an_error_and_the_next_one_is_asked() {
    pass("grpc-unavailable", |directory| {
        let nginx = Shipped::start(directory, 1)?;
        let well = GrpcEndpoint::start("well")?;
        let gone = GrpcEndpoint::start("gone")?;
        let gone_address = gone.listener.address;
        drop(gone);
        nginx.serve(&[
            Route::new("gone.test", gone_address, "grpc"),
            Route { endpoints: Vec::new(), ..Route::new("none.test", gone_address, "grpc") },
            Route {
                endpoints: vec![gone_address, well.listener.address],
                ..Route::new("half.test", gone_address, "grpc")
            },
        ])?;
        block_on(async {
            let channel = Channel::connect(nginx.http, None).await?;
            for (host, status) in [("gone.test", 502), ("none.test", 503), ("else.test", 404)] {
                let outcome = channel.ask(host, "Unary", &["hello"]).await?;
                ensure!(outcome.http_status == status && outcome.status.is_none(), "{outcome:?}");
            }
            for _ in 0..4 {
                let outcome = channel.ask("half.test", "Unary", &["hello"]).await?;
                ensure!(outcome.messages == ["well: hello"], "{outcome:?}");
            }
            anyhow::Ok(())
        })?;
        nginx.check()
    });
}

#[test]
fn a_stream_outlives_its_endpoint_set_and_its_policies() {
    pass("grpc-lives", |directory| {
        let nginx = Shipped::start(directory, 2)?;
        let (old, new) = (GrpcEndpoint::start("old")?, GrpcEndpoint::start("new")?);
        let (old_at, new_at) = (old.listener.address, new.listener.address);
        nginx.serve(&[Route::new(HOST, old_at, "grpc")])?;
        block_on(async {
            let channel = Channel::connect(nginx.http, None).await?;
            let mut chat = channel.call(HOST, "Chat", &[]).await?;
            chat.send("one").await?;
            ensure!(chat.receive().await?.as_deref() == Some("old: one"));

            let changes = [
                vec![Route::new(HOST, new_at, "grpc")],
                vec![Route::with(
                    HOST,
                    new_at,
                    json!({"protocol": "grpc", "read_timeout_seconds": 9}),
                )],
                vec![Route::new(HOST, new_at, "http")],
                vec![],
                vec![Route {
                    policies: json!({"denied": 403}),
                    ..Route::new(HOST, new_at, "grpc")
                }],
                vec![Route::new(HOST, new_at, "grpc")],
            ];
            for (number, routes) in changes.iter().enumerate() {
                tokio::task::block_in_place(|| nginx.serve(routes))?;
                chat.send(&number.to_string()).await?;
                let answer = chat.receive().await?;
                ensure!(answer == Some(format!("old: {number}")), "{answer:?}");
            }
            let unary = channel.ask(HOST, "Unary", &["now"]).await?;
            ensure!(unary.messages == ["new: now"], "{unary:?}");
            let ended = chat.end().await?;
            ensure!(ended.status == Some(0), "{ended:?}");
            anyhow::Ok(())
        })?;
        nginx.check()
    });
}
