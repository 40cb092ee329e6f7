//! TCP and UDP services and TLS passthrough, from ConfigMaps and annotations to sessions through real sockets.

use anyhow::{Context, Result, bail, ensure};
use openssl::pkey::PKey;
use openssl::ssl::{SslAcceptor, SslMethod};
use openssl::x509::X509;
use oxigress_tests::certificate::Certificate;
use oxigress_tests::client::{Address, Request};
use oxigress_tests::controller::Controller;
use oxigress_tests::load::{Closes, Load, Plan};
use oxigress_tests::pass;
use oxigress_tests::place::{Directory, free_port};
use oxigress_tests::shop::Shop;
use oxigress_tests::wait::until;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::Duration;

/// Longer than any answer on loopback takes.
const PATIENCE: Duration = Duration::from_secs(5);

/// Says its name and what it was told, up to a `!`: nginx ends a session when one side does. Its threads end
/// with the test's process.
pub fn tcp_echo(name: &'static str) -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let port = listener.local_addr()?.port();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            thread::spawn(move || -> Result<()> {
                let mut told = Vec::new();
                while !told.ends_with(b"!") {
                    let mut buffer = [0; 1500];
                    match stream.read(&mut buffer)? {
                        0 => return Ok(()),
                        length => told.extend(&buffer[..length]),
                    }
                }
                Ok(stream.write_all(&[name.as_bytes(), b": ", &told].concat())?)
            });
        }
    });
    Ok(port)
}

pub fn udp_echo(name: &'static str) -> Result<u16> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    let port = socket.local_addr()?.port();
    thread::spawn(move || {
        let mut buffer = [0; 1500];
        while let Ok((length, from)) = socket.recv_from(&mut buffer) {
            let answer = [name.as_bytes(), b": ", &buffer[..length]].concat();
            let _ = socket.send_to(&answer, from);
        }
    });
    Ok(port)
}

pub fn tcp(port: u16, told: &str) -> Result<String> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(told.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

pub fn udp(port: u16, told: &str) -> Result<String> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.connect((Ipv4Addr::LOCALHOST, port))?;
    socket.set_read_timeout(Some(Duration::from_secs(1)))?;
    socket.send(told.as_bytes())?;
    let mut buffer = [0; 1500];
    let length = socket.recv(&mut buffer)?;
    Ok(String::from_utf8_lossy(&buffer[..length]).into())
}

pub fn is_told(what: &str, got: Result<String>, expected: &str) -> Result<()> {
    let got = got.with_context(|| what.to_owned())?;
    ensure!(got == expected, "{what}: {got:?}, not {expected:?}");
    Ok(())
}

/// A Service with one TCP and one UDP port; each endpoint has its own ports, so each has its own slice.
pub fn service(name: &str, tcp: u16, udp: u16) -> String {
    format!(
        "---\napiVersion: v1\nkind: Service\nmetadata: {{ name: {name}, namespace: default }}\n\
         spec:\n  ports:\n  - {{ name: line, port: 7 }}\n\
         \x20 - {{ name: datagram, port: 7, protocol: UDP }}\n\
         ---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
         metadata: {{ name: {name}-1, namespace: default, labels: {{ kubernetes.io/service-name: {name} }} }}\n\
         addressType: IPv4\n\
         ports: [{{ name: line, port: {tcp} }}, {{ name: datagram, port: {udp}, protocol: UDP }}]\n\
         endpoints: [{{ addresses: [\"127.0.0.1\"] }}]\n"
    )
}

fn config_map(name: &str, entries: &[(u16, &str)]) -> String {
    let mut text = format!(
        "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{ name: {name}, namespace: default }}\ndata:\n"
    );
    for (port, value) in entries {
        text += &format!("  \"{port}\": \"{value}\"\n");
    }
    text
}

fn start(directory: &Directory) -> Result<Controller> {
    let flags = ["--tcp-services-configmap=default/tcp", "--udp-services-configmap=default/udp"];
    Controller::start(directory, 2, &flags.map(String::from))
}

pub fn logged(controller: &Controller, text: &str) -> usize {
    controller.error_log().matches(text).count()
}

#[test]
fn config_maps_open_ports_that_follow_their_endpoints() {
    pass("services-echo", |directory| {
        let (one, two) = (tcp_echo("one")?, tcp_echo("two")?);
        let (one_udp, two_udp) = (udp_echo("one")?, udp_echo("two")?);
        let ports = [free_port()?, free_port()?, free_port()?, free_port()?];
        let [plain, out, both, datagram] = ports;
        let mut controller = start(directory)?;
        controller.serve("echo.yaml", &service("echo", one, one_udp))?;
        let tcp_map = config_map(
            "tcp",
            &[
                (plain, "default/echo:7"),
                (out, "default/echo:line::PROXY"),
                (both, "default/echo:line:PROXY:PROXY"),
            ],
        );
        let udp_map = config_map("udp", &[(datagram, "default/echo:datagram")]);
        controller.serve("maps.yaml", &(tcp_map + &udp_map))?;

        until("TCP", || is_told("plain", tcp(plain, "hello!"), "one: hello!"))?;
        until("UDP", || is_told("datagram", udp(datagram, "hello!"), "one: hello!"))?;
        let from_us = tcp(out, "hello!")?;
        let head = from_us.lines().next().unwrap_or_default();
        ensure!(head.starts_with("one: PROXY TCP4 127.0.0.1 127.0.0.1 "), "{from_us:?}");
        ensure!(from_us.ends_with("\r\nhello!"), "{from_us:?}");
        let from_others = tcp(both, "PROXY TCP4 192.0.2.7 192.0.2.1 4711 443\r\nhello!")?;
        ensure!(from_others.starts_with("one: PROXY TCP4 192.0.2.7 "), "{from_others:?}");

        // Endpoints are data: no worker changes.
        let workers = until("the end of the workers before the reload", || {
            let pids = controller.worker_pids();
            ensure!(pids.len() == 2, "{pids:?}");
            Ok(pids)
        })?;
        controller.serve("echo.yaml", &service("echo", two, two_udp))?;
        is_told("plain", tcp(plain, "again!"), "two: again!")?;
        is_told("datagram", udp(datagram, "again!"), "two: again!")?;
        ensure!(controller.worker_pids() == workers, "workers changed");

        // A port that is gone is closed.
        controller.serve("maps.yaml", &config_map("tcp", &[(plain, "default/echo:7")]))?;
        until("the port to be closed", || match TcpStream::connect((Ipv4Addr::LOCALHOST, out)) {
            Ok(_) => bail!("it is open"),
            Err(_) => Ok(()),
        })?;
        until("TCP", || is_told("plain", tcp(plain, "third!"), "two: third!"))
    });
}

#[test]
fn a_new_port_costs_no_request_and_one_reload_that_the_log_announces() {
    pass("services-reload", |directory| {
        let echo = tcp_echo("echo")?;
        let ports = [free_port()?, free_port()?];
        let controller = start(directory)?;
        let mut shop = Shop::new(controller, &["a"], &[])?;
        shop.write("shop.yaml", "$SERVICE(shop: a)\n$INGRESS(shop: shop.test/ shop)")?;
        shop.write_only("echo.yaml", &service("echo", echo, 9))?;
        let load = Load::start(Plan {
            closes: Closes::Unanswered,
            ..Plan::new(
                Address::http(shop.controller.http_port),
                vec![Request::get("shop.test", "/")],
                8,
            )
        })?;
        load.wait_for(100)?;
        let announced = "reloads once, gracefully";
        for (count, port) in ports.iter().enumerate() {
            let entries: Vec<_> =
                ports[..=count].iter().map(|port| (*port, "default/echo:7")).collect();
            shop.controller.write("tcp.yaml", &config_map("tcp", &entries))?;
            until("the port", || is_told("echo", tcp(*port, "x!"), "echo: x!"))?;
            let new = format!("TCP and UDP ports change (new: tcp/{port})");
            ensure!(logged(&shop.controller, &new) == 1, "not in the log: {new}");
            ensure!(logged(&shop.controller, announced) == count + 1, "reloads");
            load.wait_for(100)?;
        }
        // The same again is no change.
        shop.controller.catch_up()?;
        ensure!(logged(&shop.controller, announced) == 2, "another reload");
        let report = load.stop();
        ensure!(report.failed == 0, "{} lost: {:?}", report.failed, report.failures);
        println!("{} requests over {} connections, none lost", report.answered, report.connections);
        Ok(())
    });
}

#[test]
fn what_cannot_be_served_is_told_and_the_rest_is_served() {
    pass("services-malformed", |directory| {
        let echo = tcp_echo("echo")?;
        let good = free_port()?;
        let busy = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        let busy_port = busy.local_addr()?.port();
        let mut controller = start(directory)?;
        let (http, missing, word, port) =
            (controller.http_port, free_port()?, free_port()?, free_port()?);
        controller.serve("echo.yaml", &service("echo", echo, 9))?;
        let map = config_map(
            "tcp",
            &[
                (good, "default/echo:7"),
                (busy_port, "default/echo:7"),
                (http, "default/echo:7"),
                (missing, "default/nobody:7"),
                (word, "default/echo:7:PROXXY"),
                (port, "default/echo:8; }"),
            ],
        );
        controller.serve("tcp.yaml", &map)?;
        until("TCP", || is_told("good", tcp(good, "x!"), "echo: x!"))?;
        for (port, said) in [
            (http, "--http-port has this port"),
            (missing, "Service default/nobody does not exist, so sessions are closed"),
            (word, "is not PROXY"),
            (port, "is not of the form NAMESPACE/SERVICE:PORT"),
        ] {
            let log = controller.error_log();
            let mut lines =
                log.lines().filter(|line| line.contains("ConfigMap default/tcp: rejected"));
            let last = lines.next_back().context("a line about the ConfigMap")?;
            let at =
                last.find(&format!("data.{port}: ")).with_context(|| format!("data.{port}"))?;
            let until = last[at..].find("; data.").map_or(last.len(), |end| at + end);
            ensure!(last[at..until].contains(said), "{}", &last[at..until]);
        }
        ensure!(tcp(missing, "x!").unwrap_or_default().is_empty(), "a session without a Service");
        ensure!(logged(&controller, &format!("cannot open tcp/{busy_port}")) == 1, "busy");
        drop(busy);
        until("the port that is free now", || is_told("busy", tcp(busy_port, "x!"), "echo: x!"))
    });
}

#[test]
fn an_endpoint_behind_a_passthrough_port_speaks_its_own_tls() {
    pass("services-passthrough", |directory| {
        let own = Certificate::new("own", &["through.test"])?;
        let backend = tls_endpoint(&own)?;
        let inside = free_port()?;
        let flags = [
            "--enable-ssl-passthrough".to_owned(),
            format!("--ssl-passthrough-proxy-port={inside}"),
        ];
        let controller = Controller::start(directory, 2, &flags)?;
        let mut shop = Shop::new(controller, &["a"], &[("first", "tls.test")])?;
        shop.write("secret.yaml", "$SECRET(tls: first)")?;
        shop.write("tls.yaml", "$SERVICE(tls: a)\n$INGRESS(tls: tls.test/ tls tls=tls)")?;
        let through = "\
            ---\napiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata:\n  name: through\n\
            \x20 namespace: default\n  annotations:\n    kubernetes.io/ingress.class: nginx\n\
            \x20   nginx.ingress.kubernetes.io/ssl-passthrough: \"true\"\nspec:\n  rules:\n\
            \x20 - host: through.test\n    http:\n      paths:\n      - path: /\n        pathType: Prefix\n\
            \x20       backend: { service: { name: through, port: { number: 7 } } }\n";
        shop.write("through.yaml", &(service("through", backend, 9) + through))?;
        shop.presents("through.test", "own")?;
        shop.presents("tls.test", "first")?;
        // Through the listener inside nginx the client's address stays what it is.
        shop.serves("tls.test", "/", "a").err().context("plain HTTP is redirected")?;
        let https = Address::https(shop.controller.https_port, "tls.test");
        let answer = oxigress_tests::wait::block_on(oxigress_tests::client::send(
            &https,
            &Request::get("tls.test", "/"),
        ))?;
        ensure!(answer.status == 200, "{answer}");
        shop.remove("through.yaml")?;
        ensure!(shop.presents("through.test", "own").is_err(), "it is still passed through");
        Ok(())
    });
}

/// Answers every handshake with this certificate, and closes.
pub fn tls_endpoint(certificate: &Certificate) -> Result<u16> {
    let mut acceptor = SslAcceptor::mozilla_intermediate_v5(SslMethod::tls())?;
    acceptor.set_private_key(&*PKey::private_key_from_pem(certificate.key.as_bytes())?)?;
    acceptor.set_certificate(&*X509::from_pem(certificate.chain.as_bytes())?)?;
    let acceptor = acceptor.build();
    let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
    let port = listener.local_addr()?.port();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            if let Ok(stream) = acceptor.accept(stream) {
                // Until the client has seen enough.
                let _ = BufReader::new(stream).read_line(&mut String::new());
            }
        }
    });
    Ok(port)
}
