//! Brotli, by the directive: what is compressed, that it is the same bytes behind, and what it
//! costs others.

mod bounds;
mod origin;

use anyhow::{Context, Result, ensure};
use hyper::Method;
use origin::{Origin, text};
use oxigress_tests::client::{Address, Request, Response, send};
use oxigress_tests::pass;
use oxigress_tests::place::Directory;
use oxigress_tests::protocol::http2::Client;
use oxigress_tests::site::{Plan, Site};
use oxigress_tests::wait::block_on;
use serde_json::json;

const HOST: &str = "br.test";

/// A router with these lines in its server.
fn plan(lines: &str) -> Result<Plan> {
    let config = "
        http2 on;
        gzip_vary on;
        proxy_http_version 1.1;
        proxy_set_header Connection \"\";
        location / { ingress_router; proxy_pass http://ingress; client_max_body_size 0; }
        location @http { ingress_target http; proxy_pass http://ingress; proxy_buffering off; }";
    Ok(Plan { config: Some(format!("{config}\n{lines}")), ..Plan::router(1)? })
}

fn start(
    directory: &Directory,
    plan: &Plan,
    origin: &Origin,
    proxy: serde_json::Value,
) -> Result<Site> {
    let site = Site::start(plan, directory)?;
    let rule = json!({"path": {"prefix": "/"}, "backend": "b", "policies": "p",
        "origin": {"namespace": "n", "ingress": "i", "service": "s", "port": "80", "path": "/"}});
    let snapshot = json!({
        "servers": {HOST: {"rules": [rule]}},
        "backends": {"b": {}},
        "endpoints": {"b": [{"address": origin.address.ip(), "port": origin.address.port()}]},
        "policies": {"p": {"proxy": proxy}},
    });
    let body = json!({"version": 1, "snapshot": snapshot}).to_string();
    let answer = block_on(site.configuration.put(body))?;
    ensure!(answer.status == 200, "{answer}");
    Ok(site)
}

fn ask(site: &Site, target: &str, encoding: &str) -> Result<Response> {
    ask_at(&site.http(), target, encoding)
}

fn ask_at(address: &Address, target: &str, encoding: &str) -> Result<Response> {
    let request = Request::get(HOST, target).header("Accept-Encoding", encoding);
    block_on(send(address, &request))
}

/// What a body was before it was compressed.
fn decoded(body: &[u8]) -> Result<Vec<u8>> {
    let mut whole = Vec::new();
    brotli::BrotliDecompress(&mut &body[..], &mut whole).context("no Brotli")?;
    Ok(whole)
}

const SIZES: [usize; 9] = [20, 21, 4_095, 4_096, 32_767, 32_768, 32_769, 100_000, 10_000_000];

/// Lengths and chunks, HTTP/1.1 and HTTP/2, with and without buffers, at the levels that differ in
/// how they work.
#[test]
fn bodies_of_all_sizes_come_back_byte_by_byte() {
    pass("brotli-sizes", |directory| {
        for (level, buffering) in [(4, false), (4, true), (0, false), (2, false), (11, true)] {
            let origin = Origin::start()?;
            let lines = format!("ingress_brotli {level} 20 text/plain;");
            let directory = Directory::new(&format!("brotli-{level}-{buffering}"))?;
            let site = start(&directory, &plan(&lines)?, &origin, json!({"buffering": buffering}))?;
            let https = ([127, 0, 0, 1], site.https_port).into();
            for bytes in SIZES {
                for frame in ["length", "chunks"] {
                    let target = format!("/{frame}/{bytes}");
                    let what = format!("level {level}, buffering {buffering}: {target}");
                    let answer = ask(&site, &target, "gzip, br").context(what.clone())?;
                    let header = |name| answer.header(name);
                    ensure!(
                        header("content-encoding").as_deref() == Some("br"),
                        "{what}: {answer}"
                    );
                    ensure!(header("vary").as_deref() == Some("Accept-Encoding"), "{what}");
                    ensure!(header("etag").as_deref() == Some("W/\"one\""), "{what}: {answer}");
                    ensure!(
                        header("content-length").is_none() && header("accept-ranges").is_none()
                    );
                    ensure!(decoded(&answer.body)? == text(bytes), "{what}: another body");
                    ensure!(bytes < 10_000 || answer.body.len() < bytes / 2, "{what}: not smaller");
                    let second = block_on(async {
                        let client = Client::connect(https, Some(HOST)).await?;
                        let headers = [("accept-encoding", "br")];
                        client.send(Method::GET, HOST, &target, &headers, "").await
                    })
                    .context(what.clone())?;
                    ensure!(second.headers.get("content-encoding").is_some(), "{what}: HTTP/2");
                    ensure!(decoded(&second.body)? == text(bytes), "{what}: another body, HTTP/2");
                }
            }
            site.nginx.check_error_log()?;
        }
        let _ = directory;
        Ok(())
    });
}

#[test]
fn what_ngx_brotli_leaves_alone_is_left_alone() {
    pass("brotli-alone", |directory| {
        let origin = Origin::start()?;
        let site = start(directory, &plan("ingress_brotli 4 20 text/plain;")?, &origin, json!({}))?;
        let encoding = |target: &str, accepted: &str| -> Result<Option<String>> {
            let answer = ask(&site, target, accepted)?;
            if answer.header("content-encoding").is_none() {
                ensure!(answer.header("etag").as_deref() == Some("\"one\""), "{target}: {answer}");
            }
            Ok(answer.header("content-encoding"))
        };
        for status in [200, 403, 404] {
            let target = format!("/length/1000?status={status}");
            ensure!(encoding(&target, "br")?.as_deref() == Some("br"), "{status}");
        }
        let html = "/length/1000?type=text/html";
        ensure!(encoding(html, "br")?.as_deref() == Some("br"), "as in nginx's own lists");
        for accepted in ["", "gzip", "*", "br;q=0", "br;q=0.000", "brx"] {
            ensure!(encoding("/length/1000", accepted)?.is_none(), "{accepted}");
        }
        for target in [
            "/length/19",
            "/length/1000?status=500",
            "/length/1000?status=201",
            "/length/1000?type=image/png",
            "/length/1000?type=application/grpc",
        ] {
            ensure!(encoding(target, "br")?.is_none(), "{target}");
        }
        let encoded = ask(&site, "/length/1000?encoding=x-own", "br")?;
        ensure!(encoded.header("content-encoding").as_deref() == Some("x-own"), "{encoded}");
        ensure!(encoded.body == text(1000), "as it was");
        // Another client would get it compressed.
        let plain = ask(&site, "/length/1000", "identity")?;
        ensure!(plain.header("vary").as_deref() == Some("Accept-Encoding"), "{plain}");
        let head = Request::new("HEAD", HOST, "/length/1000").header("Accept-Encoding", "br");
        let head = block_on(send(&site.http(), &head))?;
        ensure!(head.header("content-encoding").as_deref() == Some("br"), "{head}");
        ensure!(head.header("content-length").is_none() && head.body.is_empty(), "{head}");
        site.nginx.check_error_log()
    });
}

#[test]
fn a_client_that_takes_both_gets_brotli_and_one_that_takes_gzip_gets_that() {
    pass("brotli-gzip", |directory| {
        let origin = Origin::start()?;
        let lines =
            "ingress_brotli 4 20 text/plain;\ngzip on; gzip_proxied any; gzip_types text/plain;";
        let site = start(directory, &plan(lines)?, &origin, json!({}))?;
        for (accepted, expected) in [("gzip, br", "br"), ("br;q=0, gzip", "gzip"), ("gzip", "gzip")]
        {
            let answer = ask(&site, "/length/5000", accepted)?;
            ensure!(answer.header("content-encoding").as_deref() == Some(expected), "{answer}");
            ensure!(answer.header("vary").as_deref() == Some("Accept-Encoding"), "{answer}");
        }
        site.nginx.check_error_log()
    });
}

#[test]
fn a_server_without_the_directive_has_no_filter() {
    pass("brotli-off", |directory| {
        let origin = Origin::start()?;
        let site = start(directory, &plan("")?, &origin, json!({}))?;
        let answer = ask(&site, "/length/5000", "br")?;
        ensure!(answer.header("content-encoding").is_none() && answer.header("vary").is_none());
        ensure!(answer.body == text(5000));
        site.nginx.check_error_log()
    });
}

/// An answer of nginx's own, and that of a request to the configuration endpoint's server, which
/// has no directive.
#[test]
fn pages_of_nginx_are_compressed_too() {
    pass("brotli-pages", |directory| {
        let origin = Origin::start()?;
        let site = start(directory, &plan("ingress_brotli 4 20 *;")?, &origin, json!({}))?;
        let request = Request::get("none.test", "/").header("Accept-Encoding", "br");
        let answer = block_on(send(&site.http(), &request))?;
        ensure!(answer.status == 404, "{answer}");
        ensure!(String::from_utf8(decoded(&answer.body)?)?.contains("404 Not Found"), "{answer}");
        let metrics = Address::http(site.configuration_port);
        let request = Request::get("localhost", "/metrics").header("Accept-Encoding", "br");
        let answer = block_on(send(&metrics, &request))?;
        ensure!(answer.header("content-encoding").is_none(), "{answer}");
        site.nginx.check_error_log()
    });
}
