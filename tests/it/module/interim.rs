//! Interim responses of endpoints (1xx) are not taken for the response, however they arrive.

use anyhow::{Result, ensure};
use oxigress_tests::client::{Connection, Request};
use oxigress_tests::pass;
use oxigress_tests::site::{Plan, Site};
use oxigress_tests::wait::block_on;
use serde_json::json;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

/// Responses before the response; every other status line as nginx reads it too, and RFC 9112 does not allow it.
const HINTS: [&str; 2] = [
    "HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n",
    "HTTP/1.1  103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n",
];
const ANSWER: &str = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nX-Real: yes\r\n\r\nbody";

fn hints(count: usize) -> String {
    HINTS.into_iter().cycle().take(count).collect()
}

/// What is no response, though nginx would send it to the client as one. A path names it by its place, from [`NONE`] on.
const RAW: [&str; 5] = [
    "\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx",
    "hello",
    "HTTP/1.1 200 OK\rX: y\r\n\r\nbody",
    "HTTP/1.1 20x OK\r\n\r\nbody",
    "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
];
const NONE: usize = 2_000;

/// Stands for an interim response that does not end.
const ENDLESS: usize = 1_000;

/// Answers each request with the pieces that its path names: how many interim responses, and where the text is cut.
fn endpoint() -> Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || serve(stream));
        }
    });
    Ok(address)
}

fn serve(mut stream: std::net::TcpStream) -> Option<()> {
    stream.set_nodelay(true).ok()?;
    let mut read = Vec::new();
    loop {
        let mut byte = [0];
        stream.read_exact(&mut byte).ok()?;
        read.push(byte[0]);
        if !read.ends_with(b"\r\n\r\n") {
            continue;
        }
        let text = String::from_utf8(std::mem::take(&mut read)).ok()?;
        let mut words = text.split(' ').nth(1)?.split('/').skip(1);
        let (count, cut) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let answer = match count {
            ENDLESS => format!("HTTP/1.1 103 Early Hints\r\nLink: {}", "a".repeat(40_000)),
            _ if count >= NONE => RAW.get(count - NONE)?.to_string(),
            _ => hints(count) + ANSWER,
        };
        let (first, rest) = answer.split_at_checked(cut).unwrap_or((&answer, ""));
        match cut {
            // Each byte by itself.
            0 => answer.bytes().try_for_each(|byte| stream.write_all(&[byte])).ok()?,
            _ => stream
                .write_all(first.as_bytes())
                .and_then(|()| stream.write_all(rest.as_bytes()))
                .ok()?,
        }
    }
}

#[test]
fn the_response_after_interim_ones_is_the_response() {
    pass("interim", |directory| {
        let mut plan = Plan::router(1)?;
        plan.location_config = "proxy_buffer_size 1k;".into();
        let site = Site::start(&plan, directory)?;
        let address = endpoint()?;
        let endpoint = json!({"address": address.ip().to_string(), "port": address.port()});
        let snapshot = json!({"servers": {"shop.test": {"rules": [{"path": {"prefix": "/"}, "backend": "shop"}]}},
            "backends": {"shop": {}}, "endpoints": {"shop": [endpoint]}});
        let applied = block_on(
            site.configuration.put(json!({"version": 1, "snapshot": snapshot}).to_string()),
        )?;
        ensure!(applied.status == 200, "{applied}");
        let mut client = block_on(Connection::open(&site.http()))?;
        let mut get = |count: usize, cut: usize| -> Result<_> {
            block_on(client.send(&Request::get("shop.test", &format!("/{count}/{cut}"))))
        };
        let length = (hints(2) + ANSWER).len();
        // All at once, each byte by itself, and cut at each place; more of them than the buffer could hold.
        let cuts = (1..length).map(|cut| (2, cut));
        for (count, cut) in
            [(0, 9_999), (1, 9_999), (16, 9_999), (1, 0), (16, 0)].into_iter().chain(cuts)
        {
            let answer = get(count, cut)?;
            let is_whole = answer.status == 200 && answer.text() == "body";
            ensure!(
                is_whole && answer.header("x-real").is_some(),
                "{count} cut at {cut}: {answer}"
            );
            ensure!(answer.header("link").is_none(), "{count} cut at {cut}: {answer}");
        }
        let answer = get(17, 9_999)?;
        ensure!(answer.status == 502, "an endpoint without end: {answer}");
        for (place, raw) in RAW.iter().enumerate() {
            for cut in 0..=raw.len() {
                let answer = get(NONE + place, cut)?;
                ensure!(
                    answer.status == 502 && answer.text() != "x",
                    "{raw:?} cut at {cut}: {answer}"
                );
                let next = get(0, 9_999)?;
                ensure!(next.text() == "body", "after {raw:?} cut at {cut}: {next}");
            }
        }
        Ok(())
    });
}

#[test]
fn an_interim_response_without_end_is_no_response() {
    pass("interim-endless", |directory| {
        let mut plan = Plan::router(1)?;
        // More than an interim head may have, so that the buffer is not what ends it.
        plan.location_config =
            "proxy_buffer_size 64k; proxy_buffers 4 64k; proxy_busy_buffers_size 64k;".into();
        let site = Site::start(&plan, directory)?;
        let address = endpoint()?;
        let endpoint = json!({"address": address.ip().to_string(), "port": address.port()});
        let snapshot = json!({"servers": {"shop.test": {"rules": [{"path": {"prefix": "/"}, "backend": "shop"}]}},
            "backends": {"shop": {}}, "endpoints": {"shop": [endpoint]}});
        let document = json!({"version": 1, "snapshot": snapshot}).to_string();
        let applied = block_on(site.configuration.put(document))?;
        ensure!(applied.status == 200, "{applied}");
        let mut client = block_on(Connection::open(&site.http()))?;
        let target = format!("/{ENDLESS}/9999");
        let answer = block_on(client.send(&Request::get("shop.test", &target)))?;
        ensure!(answer.status == 502, "{answer}");
        Ok(())
    });
}
