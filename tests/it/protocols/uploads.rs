//! Large uploads, whole and in pieces.

use anyhow::{Context, Result, ensure};
use oxigress_tests::certificate::Certificate;
use oxigress_tests::pass;
use oxigress_tests::place::Directory;
use oxigress_tests::protocol::upload::{Sending, UploadEndpoint, body, fingerprint};
use oxigress_tests::shipped::{Route, Shipped};
use oxigress_tests::wait::{self, block_on};
use serde_json::{Value, json};

const HOST: &str = "upload.test";
const LARGE: usize = 64 * 1024 * 1024;

fn any_size(protocol: &str, request_buffering: bool) -> Value {
    json!({"protocol": protocol, "max_body_bytes": 0, "request_buffering": request_buffering})
}

/// What nginx keeps of bodies on disk.
fn kept(nginx: &Shipped) -> Result<u64> {
    nginx.kept("client-body")
}

/// Endpoints of `upload.test` and, with TLS, of `tls.test`.
fn plain_and_secure(
    directory: &Directory,
    request_buffering: bool,
) -> Result<(Shipped, UploadEndpoint, UploadEndpoint)> {
    let nginx = Shipped::start(directory, 1)?;
    let plain = UploadEndpoint::start("plain")?;
    let secure = UploadEndpoint::tls("secure", &Certificate::new("secure", &[])?)?;
    nginx.serve(&[
        Route::with(HOST, plain.listener.address, any_size("http", request_buffering)),
        Route::with("tls.test", secure.listener.address, any_size("https", request_buffering)),
    ])?;
    Ok((nginx, plain, secure))
}

/// Begins to send `LARGE` bytes.
fn large(nginx: &Shipped, host: &str) -> Result<Sending> {
    let (host, length) = (format!("Host: {host}"), format!("Content-Length: {LARGE}"));
    block_on(Sending::begin(nginx.http, &["PUT /film HTTP/1.1", &host, &length]))
}

#[test]
fn a_buffered_upload_is_whole_before_the_endpoint_sees_any_of_it() {
    pass("upload-buffered", |directory| {
        let (nginx, plain, secure) = plain_and_secure(directory, true)?;
        let body = body(LARGE);
        let (most, last) = body.split_at(LARGE - 1);
        for (host, endpoint) in [(HOST, &plain), ("tls.test", &secure)] {
            let mut sending = large(&nginx, host)?;
            block_on(sending.send(most))?;
            // Nearly all of it: the rest may still be in nginx's buffer.
            wait::until("the body on disk", || {
                let kept = kept(&nginx)?;
                ensure!(kept > most.len() as u64 - 16_384, "{kept} of {LARGE}");
                Ok(())
            })?;
            ensure!(endpoint.requests() == 0, "the endpoint sees a request too early");
            block_on(sending.send(last))?;
            let answer = block_on(sending.answer())?;
            ensure!(answer.contains(&fingerprint(&body)), "{answer}");
            ensure!(answer.contains(&format!("content-length: {LARGE}\n")), "{answer}");
            ensure!(kept(&nginx)? == 0, "files are left");
        }
        nginx.check()
    });
}

#[test]
fn an_unbuffered_upload_reaches_the_endpoint_as_it_comes() {
    pass("upload-unbuffered", |directory| {
        let (nginx, plain, secure) = plain_and_secure(directory, false)?;
        let body = body(LARGE);
        for (host, endpoint) in [(HOST, &plain), ("tls.test", &secure)] {
            let mut sending = large(&nginx, host)?;
            block_on(sending.send(&body[..1]))?;
            endpoint.wait_for_bytes(1)?;
            block_on(sending.send(&body[1..LARGE / 2]))?;
            endpoint.wait_for_bytes(LARGE as u64 / 2)?;
            ensure!(kept(&nginx)? == 0, "it is on disk");
            block_on(sending.send(&body[LARGE / 2..]))?;
            let answer = block_on(sending.answer())?;
            ensure!(answer.contains(&fingerprint(&body)), "{answer}");
        }
        nginx.check()
    });
}

#[test]
fn chunks_arrive_with_a_length_if_buffered_and_as_chunks_if_not() {
    pass("upload-chunked", |directory| {
        let nginx = Shipped::start(directory, 1)?;
        let endpoint = UploadEndpoint::start("endpoint")?;
        nginx.serve(&[
            Route::with(HOST, endpoint.listener.address, any_size("http", true)),
            Route::with("stream.test", endpoint.listener.address, any_size("http", false)),
        ])?;
        let body = body(3_000_000);
        for (host, expected) in
            [(HOST, "content-length: 3000000\n"), ("stream.test", "transfer-encoding: chunked\n")]
        {
            let sent = block_on(async {
                let head =
                    ["POST / HTTP/1.1", &format!("Host: {host}"), "Transfer-Encoding: chunked"];
                let mut sending = Sending::begin(nginx.http, &head).await?;
                for piece in body.chunks(70_001) {
                    let piece =
                        [format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat();
                    sending.send(&piece).await?;
                }
                sending.send(b"0\r\nX-Trailer: gone\r\n\r\n").await?;
                sending.answer().await
            });
            let answer = sent.with_context(|| host.to_owned())?;
            ensure!(answer.contains(&fingerprint(&body)) && answer.contains(expected), "{answer}");
            ensure!(!answer.contains("x-trailer"), "nginx drops trailers of requests:\n{answer}");
        }
        nginx.check()
    });
}

#[test]
fn an_upload_that_breaks_off_harms_nobody() {
    pass("upload-aborted", |directory| {
        let nginx = Shipped::start(directory, 1)?;
        let endpoint = UploadEndpoint::start("endpoint")?;
        nginx.serve(&[
            Route::with(HOST, endpoint.listener.address, any_size("http", true)),
            Route::with("stream.test", endpoint.listener.address, any_size("http", false)),
        ])?;
        let half = body(1_000_000);
        let head = |host: &str| {
            ["POST / HTTP/1.1".into(), format!("Host: {host}"), "Content-Length: 2000000".into()]
        };
        let begin = |host| {
            let head = head(host);
            block_on(async {
                let mut sending =
                    Sending::begin(nginx.http, &head.each_ref().map(String::as_str)).await?;
                sending.send(&half).await?;
                anyhow::Ok(sending)
            })
        };
        let buffered = begin(HOST)?;
        wait::until("a body on disk", || {
            ensure!(kept(&nginx)? > 0, "none");
            Ok(())
        })?;
        drop(buffered);
        wait::until("its end", || {
            ensure!(kept(&nginx)? == 0, "it is there");
            Ok(())
        })?;
        ensure!(endpoint.requests() == 0, "half a request was passed on");

        let unbuffered = begin("stream.test")?;
        endpoint.wait_for_bytes(half.len() as u64)?;
        drop(unbuffered);
        wait::until("the end of half a body", || {
            ensure!(endpoint.broken() == 1, "{} broke off", endpoint.broken());
            Ok(())
        })?;
        // What has half a request on it is not kept.
        endpoint.listener.wait_for_open(0)?;
        ensure!(endpoint.whole() == 0, "half a request was taken for a whole one");

        for host in [HOST, "stream.test"] {
            let head = ["POST / HTTP/1.1", &format!("Host: {host}"), "Content-Length: 5"];
            let answer = block_on(async {
                let mut sending = Sending::begin(nginx.http, &head).await?;
                sending.send(b"whole").await?;
                sending.answer().await
            })?;
            ensure!(answer.contains(&fingerprint(b"whole")), "{answer}");
        }
        nginx.check()
    });
}

#[test]
fn a_client_that_asks_first_is_told_to_go_on_or_that_it_is_too_much() {
    pass("upload-expect", |directory| {
        let nginx = Shipped::start(directory, 1)?;
        let endpoint = UploadEndpoint::start("endpoint")?;
        nginx.serve(&[
            Route::with(HOST, endpoint.listener.address, json!({"max_body_bytes": 10})),
            Route::with(
                "stream.test",
                endpoint.listener.address,
                json!({"max_body_bytes": 10, "request_buffering": false}),
            ),
        ])?;
        for host in [HOST, "stream.test"] {
            let head = |length: &str| {
                [
                    "POST / HTTP/1.1".to_owned(),
                    format!("Host: {host}"),
                    format!("Content-Length: {length}"),
                    "Expect: 100-continue".into(),
                ]
            };
            let (fits, too_much) = (head("10"), head("11"));
            block_on(async {
                let mut sending =
                    Sending::begin(nginx.http, &fits.each_ref().map(String::as_str)).await?;
                let go_on = sending.head().await?;
                ensure!(go_on.starts_with("HTTP/1.1 100 "), "{go_on}");
                sending.send(b"0123456789").await?;
                let answer = sending.answer().await?;
                ensure!(answer.contains(&fingerprint(b"0123456789")), "{answer}");
                // nginx has answered it.
                ensure!(!answer.to_lowercase().contains("\nexpect:"), "{answer}");

                let mut sending =
                    Sending::begin(nginx.http, &too_much.each_ref().map(String::as_str)).await?;
                // nginx waits for the body that was announced, and resets the connection then.
                let refusal = sending.head().await?;
                ensure!(refusal.starts_with("HTTP/1.1 413 "), "{refusal}");
                Ok(())
            })
            .with_context(|| host.to_owned())?;
        }
        ensure!(endpoint.requests() == 2, "{} requests", endpoint.requests());
        nginx.check()
    });
}
