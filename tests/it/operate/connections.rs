//! Idle connections to the ports of the controller: however many somebody holds, probes and the API server get through.

use anyhow::{Context, Result, ensure};
use openssl::ssl::{SslConnector, SslMethod, SslStream, SslVerifyMode};
use oxigress_tests::certificate::Certificate;
use oxigress_tests::client::{Address, Request, TIMEOUT, send};
use oxigress_tests::controller::{Controller, webhook_flags};
use oxigress_tests::pass;
use oxigress_tests::place::free_port;
use oxigress_tests::wait::{block_on, until};
use socket2::{Domain, SockAddr, Socket, Type};
use std::io::{ErrorKind, Read};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};

/// A connection from one of the machine's loopback addresses.
fn connect_from(client: Ipv4Addr, port: u16) -> Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.bind(&SockAddr::from(SocketAddr::from((client, 0))))?;
    socket.connect(&SockAddr::from(SocketAddr::from((Ipv4Addr::LOCALHOST, port))))?;
    let stream = TcpStream::from(socket);
    stream.set_nonblocking(true)?;
    Ok(stream)
}

/// How many of these the server has not closed.
fn count_open(streams: &mut [TcpStream]) -> usize {
    let is_open = |stream: &mut TcpStream| matches!(stream.read(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock);
    streams.iter_mut().map(is_open).filter(|is_open| *is_open).count()
}

fn probe(controller: &Controller) -> Result<()> {
    let address = Address::http(controller.health_port);
    for path in ["/healthz", "/metrics"] {
        let answer = block_on(send(&address, &Request::get("localhost", path)))?;
        ensure!(answer.status == 200, "{path}: {answer}");
    }
    Ok(())
}

#[test]
fn probes_get_through_a_flood_of_idle_connections() {
    pass("connections-health", |directory| {
        let controller = Controller::start(directory, 1, &["--enable-metrics".into()])?;
        // One client, then many, of which each holds a few.
        let one = (0..200).map(|_| Ipv4Addr::new(127, 0, 0, 1));
        let many = (0..200).map(|n| Ipv4Addr::new(127, 0, 1, 1 + n / 4));
        let mut held = Vec::new();
        for (clients, most) in [(one.collect::<Vec<_>>(), 32), (many.collect(), 128)] {
            for client in clients {
                held.push(connect_from(client, controller.health_port)?);
            }
            probe(&controller)?;
            // The newest is open, so that no timeout has closed the others.
            until("idle connections to be closed", || {
                let open = count_open(&mut held);
                ensure!(open <= most, "{open} of {} are open, at most {most} may be", held.len());
                Ok(())
            })?;
            let newest = held.last_mut().map(std::slice::from_mut).unwrap_or_default();
            ensure!(count_open(newest) == 1, "the newest was closed as well");
        }
        Ok(())
    });
}

#[test]
fn a_request_head_that_is_too_long_or_never_ends_is_given_up() {
    pass("connections-head", |directory| {
        let controller = Controller::start(directory, 1, &[])?;
        let long = Request::get("localhost", "/healthz").header("X-Long", &"x".repeat(64 << 10));
        let answer = block_on(send(&Address::http(controller.health_port), &long));
        ensure!(!matches!(&answer, Ok(answer) if answer.status == 200), "a head of 64 KiB is read");
        // It sends nothing more, and is not waited for.
        let mut held = [connect_from(Ipv4Addr::LOCALHOST, controller.health_port)?];
        std::io::Write::write_all(&mut held[0], b"GET /healthz HTTP/1.1\r\n")?;
        until("the end of a connection that never ends its request", || {
            ensure!(count_open(&mut held) == 0);
            Ok(())
        })?;
        probe_plain(&controller)
    });
}

fn probe_plain(controller: &Controller) -> Result<()> {
    let address = Address::http(controller.health_port);
    let answer = block_on(send(&address, &Request::get("localhost", "/healthz/alive")))?;
    ensure!(answer.status == 200, "{answer}");
    Ok(())
}

#[test]
fn the_webhook_answers_through_a_flood_of_idle_connections() {
    pass("connections-webhook", |directory| {
        let certificate = Certificate::new("webhook", &["localhost"])?;
        let port = free_port()?;
        let flags = webhook_flags(directory, &certificate, &format!("127.0.0.1:{port}"))?;
        let _controller = Controller::start(directory, 1, &flags)?;
        // More than there are places, and from more addresses than one.
        let mut held = Vec::new();
        for n in 0..300 {
            held.push(handshake(Ipv4Addr::new(127, 0, 0, 1 + (n % 3) as u8), port)?);
        }
        let mut probe = handshake(Ipv4Addr::new(127, 0, 9, 9), port)?;
        let body = "no JSON";
        let head = format!(
            "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        std::io::Write::write_all(&mut probe, head.as_bytes())?;
        let mut status = [0; 12];
        probe.read_exact(&mut status).context("no answer of the webhook")?;
        ensure!(&status == b"HTTP/1.1 400", "{}", String::from_utf8_lossy(&status));
        Ok(())
    });
}

/// A TLS connection; `WouldBlock` after the time of a test's client.
fn handshake(client: Ipv4Addr, port: u16) -> Result<SslStream<TcpStream>> {
    let stream = connect_from(client, port)?;
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    let mut connector = SslConnector::builder(SslMethod::tls_client())?;
    connector.set_verify(SslVerifyMode::NONE);
    connector.build().connect("localhost", stream).context("no handshake with the webhook")
}
