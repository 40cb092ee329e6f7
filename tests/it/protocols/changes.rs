//! Endpoints whose protocol is another one from one request to the next.

use anyhow::{Context, Result, ensure};
use oxigress_tests::certificate::Certificate;
use oxigress_tests::client::{self, Request};
use oxigress_tests::pass;
use oxigress_tests::protocol::AnyEndpoint;
use oxigress_tests::protocol::grpc::Channel;
use oxigress_tests::shipped::{Route, Shipped};
use oxigress_tests::wait::block_on;

const HOST: &str = "any.test";

/// A kept connection that spoke another protocol would get bytes that it cannot read.
#[test]
fn connections_are_kept_for_their_protocol_alone() {
    pass("protocol-changes", |directory| {
        let nginx = Shipped::start(directory, 1)?;
        let any = AnyEndpoint::start("any", &Certificate::new("any", &[])?)?;
        let protocols = ["http", "https", "grpc", "grpcs", "fastcgi"];
        for round in 0..3 {
            for protocol in protocols {
                nginx.serve(&[Route::new(HOST, any.listener.address, protocol)])?;
                ask(&nginx, protocol).with_context(|| format!("{protocol}, round {round}"))?;
            }
            // One for each protocol, from the first round on.
            let made = any.listener.connections();
            ensure!(made == 5, "{made} connections after round {round}");
        }
        ensure!(any.listener.handshakes() == 2, "{} with TLS", any.listener.handshakes());
        nginx.check()
    });
}

fn ask(nginx: &Shipped, protocol: &str) -> Result<()> {
    if protocol.starts_with("grpc") {
        return block_on(async {
            let channel = Channel::connect(nginx.http, None).await?;
            let outcome = channel.ask(HOST, "Unary", &["hello"]).await?;
            ensure!(outcome.messages == ["any: hello"] && outcome.status == Some(0), "{outcome:?}");
            Ok(())
        });
    }
    let answer = block_on(client::send(&nginx.address(), &Request::get(HOST, "/")))?;
    ensure!(answer.status == 200 && answer.endpoint().as_deref() == Some("any"), "{answer}");
    let is_fastcgi = answer.text().contains("GATEWAY_INTERFACE=CGI/1.1\n");
    ensure!(is_fastcgi == (protocol == "fastcgi"), "{answer}");
    Ok(())
}

#[test]
fn auto_http_speaks_to_the_endpoint_as_the_client_does_to_nginx() {
    pass("protocol-auto", |directory| {
        let nginx = Shipped::start(directory, 1)?;
        let any = AnyEndpoint::start("any", &Certificate::new("any", &[])?)?;
        nginx.serve(&[Route::new(HOST, any.listener.address, "auto_http")])?;
        for (address, handshakes) in [
            (nginx.address(), 0),
            (nginx.tls_address(HOST), 1),
            (nginx.address(), 1),
            (nginx.tls_address(HOST), 1),
        ] {
            let answer = block_on(client::send(&address, &Request::get(HOST, "/")))?;
            ensure!(answer.status == 200, "{answer}");
            let (made, with_tls) = (any.listener.connections(), any.listener.handshakes());
            ensure!(with_tls == handshakes && made == 1 + handshakes, "{with_tls} of {made}");
        }
        nginx.check()
    });
}
