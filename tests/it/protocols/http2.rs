//! HTTP/2 clients of HTTP/1.1 endpoints.

use anyhow::{Context, Result, ensure};
use hyper::Method;
use hyper::body::Bytes;
use oxigress_tests::pass;
use oxigress_tests::protocol::http2::{self, Client};
use oxigress_tests::protocol::upload::{UploadEndpoint, body, fingerprint};
use oxigress_tests::shipped::{Route, Shipped};
use oxigress_tests::wait::{self, block_on};
use serde_json::json;

const HOST: &str = "h2.test";

#[test]
fn a_hundred_streams_at_once_are_a_hundred_requests() {
    pass("http2-streams", |directory| {
        let nginx = Shipped::start(directory, 1)?;
        let endpoint = UploadEndpoint::start("endpoint")?;
        nginx.serve(&[Route::new(HOST, endpoint.listener.address, "http")])?;
        for (address, tls) in [(nginx.https, Some(HOST)), (nginx.http, None)] {
            block_on(streams(address, tls)).with_context(|| format!("TLS: {tls:?}"))?;
        }
        ensure!(endpoint.requests() == 200, "{} requests", endpoint.requests());
        nginx.check()
    });
}

async fn streams(address: std::net::SocketAddr, tls: Option<&str>) -> Result<()> {
    let client = Client::connect(address, tls).await?;
    let mut open = Vec::new();
    for number in 0..100 {
        let path = format!("/{number}?x=1");
        open.push(client.open(Method::POST, HOST, &path, &[("x-number", "one")], false).await?);
    }
    // The bodies come in the other order.
    let mut answers = Vec::new();
    for (number, (answer, mut sender)) in open.into_iter().enumerate().rev() {
        http2::send(&mut sender, number.to_string().into(), true).await?;
        answers.push((number, answer));
    }
    let scheme = if tls.is_some() { "https" } else { "http" };
    for (number, answer) in answers {
        let answer = answer.whole().await?;
        ensure!(answer.status == 200, "{answer:?}");
        let text = answer.text();
        ensure!(text.starts_with(&format!("POST /{number}?x=1 HTTP/1.1\n")), "{text}");
        ensure!(text.ends_with(&fingerprint(number.to_string().as_bytes())), "{text}");
        for line in [
            format!("host: {HOST}\n"),
            "x-number: one\n".into(),
            format!("x-forwarded-proto: {scheme}\n"),
            format!("x-forwarded-host: {HOST}\n"),
        ] {
            ensure!(text.contains(&line), "no {line:?} in\n{text}");
        }
        ensure!(!text.contains("\nconnection:"), "{text}");
    }
    Ok(())
}

#[test]
fn a_head_means_one_thing() {
    pass("http2-head", |directory| {
        let nginx = Shipped::start(directory, 1)?;
        let endpoint = UploadEndpoint::start("endpoint")?;
        nginx.serve(&[Route::new(HOST, endpoint.listener.address, "http")])?;
        for (address, tls) in [(nginx.https, Some(HOST)), (nginx.http, None)] {
            let told = block_on(async {
                let client = Client::connect(address, tls).await?;
                // nginx itself refuses a request with two hosts.
                let other = [("host", "admin.test")];
                let refused = client.send(Method::GET, HOST, "/", &other, "").await?;
                ensure!(refused.status == 400, "{refused:?}");
                let headers = [
                    ("forwarded", "for=203.0.113.9"),
                    ("x-forwarded-prefix", "/203"),
                    ("x-forwarded-for", "203.0.113.9"),
                    ("cdn-loop", "other"),
                ];
                let upper = HOST.to_uppercase() + ":8080";
                let answer = client.send(Method::GET, &upper, "/", &headers, "").await?;
                ensure!(answer.status == 200, "{answer:?}");
                Ok(answer.text())
            })?;
            for line in ["host: H2.TEST:8080\n", "cdn-loop: other, oxigress\n"] {
                ensure!(told.contains(line), "no {line:?} in\n{told}");
            }
            for odd in ["\nforwarded:", "x-forwarded-prefix", "x-forwarded-for: 203"] {
                ensure!(!told.contains(odd), "{odd:?} in\n{told}");
            }
        }
        nginx.check()
    });
}

/// HTTP/2 need not say how long a body is.
#[test]
fn the_limit_holds_for_bodies_that_do_not_say_their_length() {
    pass("http2-limit", |directory| {
        let nginx = Shipped::start(directory, 1)?;
        let endpoint = UploadEndpoint::start("endpoint")?;
        let limit = 300_000;
        let proxy =
            |is_buffered: bool| json!({"max_body_bytes": limit, "request_buffering": is_buffered});
        nginx.serve(&[
            Route::with(HOST, endpoint.listener.address, proxy(true)),
            Route::with("stream.test", endpoint.listener.address, proxy(false)),
        ])?;
        for host in [HOST, "stream.test"] {
            let checked = block_on(async {
                let client = Client::connect(nginx.https, Some(host)).await?;
                let fits = body(limit);
                let answer = client.send(Method::POST, host, "/", &[], fits.clone()).await?;
                ensure!(answer.status == 200, "{answer:?}");
                ensure!(answer.text().ends_with(&fingerprint(&fits)), "{}", answer.text());

                let answer = client.send(Method::POST, host, "/", &[], body(limit + 1)).await?;
                ensure!(answer.status == 413, "{answer:?}");
                let length = (limit + 1).to_string();
                let said = [("content-length", length.as_str())];
                let answer = client.send(Method::POST, host, "/", &said, body(limit + 1)).await?;
                ensure!(answer.status == 413, "{answer:?}");
                // The connection and its other streams live on.
                let answer = client.send(Method::POST, host, "/", &[], "more").await?;
                ensure!(answer.status == 200, "{answer:?}");
                Ok(())
            });
            checked.with_context(|| host.to_owned())?;
        }
        ensure!(endpoint.whole() == 4, "{} whole bodies", endpoint.whole());
        nginx.check()
    });
}

#[test]
fn a_stream_that_is_reset_ends_its_request_and_no_other() {
    pass("http2-reset", |directory| {
        let nginx = Shipped::start(directory, 1)?;
        let endpoint = UploadEndpoint::start("endpoint")?;
        let proxy = json!({"request_buffering": false});
        nginx.serve(&[Route::with(HOST, endpoint.listener.address, proxy)])?;
        let client = block_on(Client::connect(nginx.https, Some(HOST)))?;
        let open = || block_on(client.open(Method::POST, HOST, "/", &[], false));
        let (answer, mut stays) = open()?;
        let (_, mut goes) = open()?;
        for sender in [&mut stays, &mut goes] {
            block_on(http2::send(sender, Bytes::from_static(b"half"), false))?;
        }
        endpoint.wait_for_bytes(8)?;
        goes.send_reset(h2::Reason::CANCEL);
        wait::until("the end of one", || {
            ensure!(endpoint.broken() == 1, "{} broke off", endpoint.broken());
            Ok(())
        })?;
        block_on(http2::send(&mut stays, Bytes::from_static(b"more"), true))?;
        let answer = block_on(answer.whole())?;
        ensure!(answer.text().ends_with(&fingerprint(b"halfmore")), "{}", answer.text());
        ensure!(endpoint.broken() == 1 && endpoint.whole() == 1);
        nginx.check()
    });
}
