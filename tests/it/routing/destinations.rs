//! Where requests never lead: back to this ingress, by whichever address, and in circles.

use anyhow::{Context, Result, ensure};
use oxigress_tests::client::{self, Request};
use oxigress_tests::controller::Controller;
use oxigress_tests::endpoint::Endpoint;
use oxigress_tests::forwarder::pass_on;
use oxigress_tests::pass;
use oxigress_tests::place::free_port;
use oxigress_tests::protocol::http2::Client;
use oxigress_tests::session::{LineEndpoint, Session};
use oxigress_tests::shipped::{Route, Shipped};
use oxigress_tests::site::{Plan, Site};
use oxigress_tests::wait::{block_on, until};
use serde_json::json;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};

/// Lines of the access log about a host that no other test asks for.
fn logged(nginx: &Shipped, path: &str) -> usize {
    let is_it =
        |line: &&str| line.starts_with("127.0.0.1 - ") && line.contains(&format!(" {path} HTTP/"));
    nginx.log().lines().filter(is_it).count()
}

/// An address of this machine besides loopback, if it has one; no packet is sent.
fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9)).ok()?;
    socket.local_addr().ok().map(|address| address.ip())
}

#[test]
fn no_address_of_this_machine_leads_back_to_its_own_listeners() {
    pass("destinations-own", |directory| {
        let nginx = Shipped::start(directory, 1)?;
        let port = nginx.http.port();
        let texts = [
            "127.0.0.1",
            "127.9.9.9",
            "0.0.0.0",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "64:ff9b::7f00:1",
        ];
        let mut addresses = texts.iter().map(|t| t.parse()).collect::<Result<Vec<IpAddr>, _>>()?;
        addresses.extend(own_address());
        for (number, address) in addresses.into_iter().enumerate() {
            let (host, path) = (format!("own{number}.test"), format!("/own{number}"));
            nginx.serve(&[Route::new(&host, SocketAddr::new(address, port), "http")])?;
            let answer = block_on(client::send(&nginx.address(), &Request::get(&host, &path)))?;
            ensure!(answer.status == 502, "{address}: {answer}");
            until("the access log", || {
                ensure!(logged(&nginx, &path) == 1, "{address}: {}", logged(&nginx, &path));
                Ok(())
            })?;
        }
        ensure!(nginx.log().contains("is a listener of this ingress"), "{}", nginx.log());
        nginx.check()
    });
}

#[test]
fn servers_of_another_replica_answer_no_request_that_an_ingress_leads_there() {
    pass("destinations-replica", |directory| {
        let other = Controller::start(directory, 1, &["--enable-metrics".into()])?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, other.health_port));
        let nginx = Shipped::start(&directory.within("shipped")?, 1)?;
        nginx.serve(&[Route::new("replica.test", address, "http")])?;
        for path in ["/healthz", "/healthz/alive", "/metrics", "/else"] {
            let proxied =
                block_on(client::send(&nginx.address(), &Request::get("replica.test", path)))?;
            ensure!(proxied.status == 403 && proxied.text().contains("CDN-Loop"), "{proxied:?}");
        }
        let direct = client::Address::http(other.health_port);
        let direct = block_on(client::send(&direct, &Request::get("x", "/metrics")))?;
        ensure!(direct.status == 200, "{direct:?}");
        nginx.check()
    });
}

#[test]
fn a_circle_through_another_proxy_ends() {
    pass("destinations-circle", |directory| {
        let nginx = Shipped::start(directory, 1)?;
        nginx.serve(&[Route::new("circle.test", pass_on(nginx.http)?, "http")])?;
        let answer =
            block_on(client::send(&nginx.address(), &Request::get("circle.test", "/one")))?;
        ensure!(answer.status == 508, "{answer}");
        until("the access log", || {
            ensure!(logged(&nginx, "/one") == 4, "{}", logged(&nginx, "/one"));
            Ok(())
        })?;
        let client = block_on(Client::connect(nginx.http, None))?;
        let answer = block_on(client.send(hyper::Method::GET, "circle.test", "/two", &[], ""))?;
        ensure!(answer.status == 508, "{answer:?}");
        ensure!(nginx.log().contains("passed this gateway 3 times"), "{}", nginx.log());
        nginx.check()
    });
}

#[test]
fn neither_auth_servers_nor_mirrors_nor_sessions_lead_to_loopback() {
    pass("destinations-others", |directory| {
        let (shop, inside) = (Endpoint::start("shop")?, Endpoint::start("inside")?);
        let lines = LineEndpoint::tcp("lines")?;
        let port = free_port()?;
        let mut plan = Plan::router(1)?;
        plan.main_config = format!(
            "ingress_destinations;
stream {{ upstream ingress {{ server 0.0.0.1:1; ingress_balancer; }} server {{ listen 127.0.0.1:{port}; proxy_pass ingress; }} }}"
        );
        let site = Site::start(&plan, directory)?;
        let to = json!({"backend": "inside", "host": "inside.test"});
        let rule = |policies: &str| json!({"rules": [{"path": {"prefix": "/"}, "backend": "shop", "policies": policies}]});
        let snapshot = json!({"version": 1, "snapshot": {
            "servers": {"auth.test": rule("auth"), "mirror.test": rule("mirror")},
            "policies": {"auth": {"access": {"external": {"to": to, "target": "/"}}}, "mirror": {"mirror": {"to": to}}},
            "ports": {format!("tcp/{port}"): "lines"},
            "backends": {"shop": {}, "inside": {}, "lines": {}},
            "endpoints": {"shop": [shop.native()], "inside": [inside.native()], "lines": [lines.native()]}}});
        let answer = block_on(site.configuration.put(snapshot.to_string()))?;
        ensure!(answer.status == 200, "{answer}");
        let answer = block_on(client::send(&site.http(), &Request::get("auth.test", "/")))?;
        ensure!(answer.status == 500, "{answer}");
        let answer = block_on(client::send(&site.http(), &Request::get("mirror.test", "/")))?;
        ensure!(answer.status == 502, "{answer}");
        let session = block_on(async { Session::open(port, b"").await?.ask("hello").await });
        ensure!(session.is_err(), "{session:?}");
        until("the log", || {
            let log = site.nginx.error_log();
            ensure!(log.contains("no connection to 127.0.0.1"), "{log}");
            Ok(())
        })?;
        ensure!(inside.requests() == 0 && shop.requests() == 0, "something was connected to");
        ensure!(lines.sessions() == 0, "a session was connected");
        site.nginx.check_error_log().context("the error log")
    });
}
