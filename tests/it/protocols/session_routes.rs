//! TCPRoutes, UDPRoutes and TLSRoutes from a folder to sessions through real sockets.

use super::services::{is_told, logged, service, tcp, tcp_echo, tls_endpoint, udp, udp_echo};
use anyhow::{Context, Result, ensure};
use openssl::ssl::{SslConnector, SslMethod, SslVerifyMode};
use oxigress_tests::certificate::Certificate;
use oxigress_tests::controller::Controller;
use oxigress_tests::pass;
use oxigress_tests::place::{Directory, free_port};
use oxigress_tests::shop::Shop;
use oxigress_tests::wait::until;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

const CLASS: &str = "---\napiVersion: gateway.networking.k8s.io/v1\nkind: GatewayClass\n\
    metadata: { name: oxigress }\nspec: { controllerName: oxigress.io/gateway-controller }\n";

/// A Gateway with these listeners, each a line of YAML.
fn gateway(listeners: &[String]) -> String {
    let lines: String = listeners.iter().map(|line| format!("  - {{ {line} }}\n")).collect();
    format!(
        "{CLASS}---\napiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {{ name: web, namespace: default }}\n\
         spec:\n  gatewayClassName: oxigress\n  listeners:\n{lines}"
    )
}

/// A route to a listener, with more of its spec and its references.
fn route(kind: &str, name: &str, listener: &str, more: &str, backends: &str) -> String {
    route_in("default", kind, name, listener, more, backends)
}

fn route_in(
    namespace: &str,
    kind: &str,
    name: &str,
    listener: &str,
    more: &str,
    backends: &str,
) -> String {
    format!(
        "---\napiVersion: gateway.networking.k8s.io/v1\nkind: {kind}\nmetadata: {{ name: {name}, namespace: {namespace} }}\n\
         spec:\n  parentRefs: [{{ name: web, namespace: default, sectionName: {listener} }}]\n{more}  rules:\n\
         \x20 - backendRefs: [{backends}]\n"
    )
}

fn start(directory: &Directory) -> Result<Controller> {
    let inside = format!("--ssl-passthrough-proxy-port={}", free_port()?);
    Controller::start(directory, 2, &["--enable-ssl-passthrough".into(), inside])
}

#[test]
fn ports_lead_where_their_routes_say_and_an_edit_is_data() {
    pass("session-routes-ports", |directory| {
        let (one, two) = (tcp_echo("one")?, tcp_echo("two")?);
        let (one_udp, two_udp) = (udp_echo("one")?, udp_echo("two")?);
        let (line, datagram) = (free_port()?, free_port()?);
        let mut controller = start(directory)?;
        let services = service("one", one, one_udp) + &service("two", two, two_udp);
        let listeners = [
            format!("name: line, port: {line}, protocol: TCP"),
            format!("name: datagram, port: {datagram}, protocol: UDP"),
        ];
        controller.serve("web.yaml", &(services + &gateway(&listeners)))?;
        let to = |tcp: &str, udp: &str| {
            route("TCPRoute", "line", "line", "", tcp)
                + &route("UDPRoute", "datagram", "datagram", "", udp)
        };
        let first = "{ name: one, port: 7 }";
        controller.serve("routes.yaml", &to(first, first))?;
        until("TCP", || is_told("line", tcp(line, "hello!"), "one: hello!"))?;
        until("UDP", || is_told("datagram", udp(datagram, "hello!"), "one: hello!"))?;
        let workers = until("the end of the workers before the reload", || {
            let pids = controller.worker_pids();
            ensure!(pids.len() == 2, "{pids:?}");
            Ok(pids)
        })?;
        let reloads = logged(&controller, "reloads once, gracefully");

        let second = "{ name: two, port: 7 }";
        controller.serve("routes.yaml", &to(second, second))?;
        is_told("line", tcp(line, "again!"), "two: again!")?;
        is_told("datagram", udp(datagram, "again!"), "two: again!")?;

        // Shares by weight; that of a reference that cannot be used is closed.
        let shared =
            format!("{first}, {{ name: two, port: 7, weight: 2 }}, {{ name: gone, port: 7 }}");
        controller.serve("routes.yaml", &to(&shared, &shared))?;
        let mut seen = [0; 3];
        for _ in 0..200 {
            match tcp(line, "x!").unwrap_or_default().as_str() {
                "one: x!" => seen[0] += 1,
                "two: x!" => seen[1] += 1,
                "" => seen[2] += 1,
                other => anyhow::bail!("{other}"),
            }
        }
        ensure!(seen.iter().zip([50, 100, 50]).all(|(n, share)| share / 2 < *n), "{seen:?}");
        println!("of 200 sessions: {seen:?}");

        controller
            .serve("routes.yaml", &to("{ name: gone, port: 7 }", "{ name: gone, port: 7 }"))?;
        ensure!(tcp(line, "x!").unwrap_or_default().is_empty(), "a session without a Service");
        ensure!(udp(datagram, "x!").is_err(), "a datagram without a Service");
        controller.remove("routes.yaml")?;
        ensure!(tcp(line, "x!").unwrap_or_default().is_empty(), "a session without a route");
        ensure!(udp(datagram, "x!").is_err(), "a datagram without a route");
        ensure!(controller.worker_pids() == workers, "workers changed");
        ensure!(logged(&controller, "reloads once, gracefully") == reloads, "another reload");
        Ok(())
    });
}

/// A set of another namespace's Gateway, with one port and the route that is attached to it.
fn set_of_a_guest(port: u16) -> String {
    format!(
        "---\napiVersion: gateway.networking.k8s.io/v1\nkind: ListenerSet\nmetadata: {{ name: ports, namespace: guest }}\n\
         spec:\n  parentRef: {{ name: web, namespace: default }}\n  listeners: [{{ name: line, port: {port}, protocol: TCP }}]\n\
         ---\napiVersion: gateway.networking.k8s.io/v1\nkind: TCPRoute\nmetadata: {{ name: line, namespace: guest }}\n\
         spec:\n  parentRefs: [{{ kind: ListenerSet, name: ports }}]\n  rules: [{{ backendRefs: [{{ name: one, port: 7 }}] }}]\n"
    )
}

#[test]
fn a_set_that_keeps_changing_its_port_reloads_nginx_few_times() {
    pass("session-routes-ports-of-sets", |directory| {
        let (one, datagrams) = (tcp_echo("one")?, udp_echo("one")?);
        let own = free_port()?;
        let mut controller = start(directory)?;
        let served = service("one", one, datagrams).replace("default", "guest");
        let gateway = |port: u16| {
            let listeners = [format!("name: own, port: {port}, protocol: TCP")];
            let allowed = "  allowedListeners: { namespaces: { from: All } }\n";
            served.clone() + &gateway(&listeners) + allowed
        };
        controller.serve("web.yaml", &gateway(own))?;
        let reloads = logged(&controller, "reloads once, gracefully");
        let ports = (0..8).map(|_| free_port()).collect::<Result<Vec<_>>>()?;
        // Each costs half a second of the two that a namespace has in a minute.
        for (n, port) in ports.iter().enumerate() {
            controller.serve("guest.yaml", &set_of_a_guest(*port))?;
            if n < 4 {
                until("the port", || is_told("guest", tcp(*port, "hello!"), "one: hello!"))?;
            }
        }
        let waits = "a port that waits is not open";
        ensure!(ports[5..].iter().all(|port| tcp(*port, "hello!").is_err()), "{waits}");
        let all = logged(&controller, "reloads once, gracefully") - reloads;
        ensure!((4..=5).contains(&all), "{all} reloads for 8 changes of a ListenerSet's port");
        Ok(())
    });
}

/// One worker, which has few connections.
fn with_256_connections(directory: &Directory) -> Result<Controller> {
    let mut controller = Controller::start(directory, 1, &["--configmap=default/settings".into()])?;
    controller.serve(
        "settings.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: { name: settings, namespace: default }\n\
         data: { max-worker-connections: '256' }\n",
    )?;
    Ok(controller)
}

/// A route that leads back to its own port, over another gateway or the address of a Service, opens one session after the other.
#[test]
fn sessions_leave_connections_to_requests_and_a_port_leaves_them_to_other_ports() {
    pass("session-routes-many", |directory| {
        let (one, two) = (tcp_echo("one")?, tcp_echo("two")?);
        let (evil, good) = (free_port()?, free_port()?);
        let mut controller = with_256_connections(directory)?;
        let services = service("one", one, 9) + &service("two", two, 9);
        let listeners = [
            format!("name: evil, port: {evil}, protocol: TCP"),
            format!("name: good, port: {good}, protocol: TCP"),
        ];
        let routes = route("TCPRoute", "evil", "evil", "", "{ name: one, port: 7 }")
            + &route("TCPRoute", "good", "good", "", "{ name: two, port: 7 }");
        controller.serve("web.yaml", &(services + &gateway(&listeners) + &routes))?;
        until("evil", || is_told("evil", tcp(evil, "hello!"), "one: hello!"))?;
        until("good", || is_told("good", tcp(good, "hello!"), "two: hello!"))?;
        let open = || -> Result<TcpStream> {
            let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, evil))?;
            stream.write_all(b"x")?;
            Ok(stream)
        };
        let held = (0..200).map(|_| open()).collect::<Result<Vec<_>>>()?;
        until("the log", || {
            let log = controller.error_log();
            ensure!(log.contains("has half of the sessions that a worker may have"), "{log}");
            Ok(())
        })?;
        is_told("good", tcp(good, "again!"), "two: again!")?;
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, controller.http_port))?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        stream.write_all(b"GET / HTTP/1.1\r\nHost: x.test\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        ensure!(answer.starts_with("HTTP/1.1 404"), "{answer:?}");
        drop(held);
        until("evil", || is_told("evil", tcp(evil, "again!"), "one: again!"))?;
        Ok(())
    });
}

/// A namespace that has several ports, each within its half, leaves sessions to other namespaces.
#[test]
fn a_namespace_of_many_ports_leaves_sessions_to_others() {
    pass("session-routes-namespaces", |directory| {
        let (one, two) = (tcp_echo("one")?, tcp_echo("two")?);
        let evil = [free_port()?, free_port()?, free_port()?];
        let good = free_port()?;
        let mut controller = with_256_connections(directory)?;
        let of_good = |manifest: String| manifest.replace("namespace: default", "namespace: good");
        let services = service("one", one, 9) + &of_good(service("two", two, 9));
        let listener = |name: &str, port: u16| {
            format!(
                "name: {name}, port: {port}, protocol: TCP, allowedRoutes: {{ namespaces: {{ from: All }} }}"
            )
        };
        let names = ["evil", "worse", "worst"];
        let mut listeners = vec![listener("good", good)];
        listeners.extend(names.iter().zip(evil).map(|(name, port)| listener(name, port)));
        let mut routes = route_in("good", "TCPRoute", "good", "good", "", "{ name: two, port: 7 }");
        for name in names {
            routes += &route("TCPRoute", name, name, "", "{ name: one, port: 7 }");
        }
        controller.serve("web.yaml", &(services + &gateway(&listeners) + &routes))?;
        until("good", || is_told("good", tcp(good, "hello!"), "two: hello!"))?;
        for (name, port) in names.iter().zip(evil) {
            until(name, || is_told(name, tcp(port, "hello!"), "one: hello!"))?;
        }
        let open = |port: u16| -> Result<TcpStream> {
            let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
            stream.write_all(b"x")?;
            Ok(stream)
        };
        // No port has its half, which are 48 of 96.
        let held = (0..47).flat_map(|_| evil).map(open).collect::<Result<Vec<_>>>()?;
        until("the log", || {
            let log = controller.error_log();
            ensure!(log.contains("namespace default has as many sessions"), "{log}");
            Ok(())
        })?;
        is_told("good", tcp(good, "again!"), "two: again!")?;
        drop(held);
        until("evil", || is_told("evil", tcp(evil[0], "again!"), "one: again!"))?;
        Ok(())
    });
}

#[test]
fn a_route_that_no_listener_allows_is_not_served() {
    pass("session-routes-tenants", |directory| {
        let echo = tcp_echo("evil")?;
        let (line, names) = (free_port()?, free_port()?);
        let mut controller = start(directory)?;
        let listeners = [
            format!("name: line, port: {line}, protocol: TCP"),
            format!("name: names, port: {names}, protocol: TLS, tls: {{ mode: Passthrough }}"),
        ];
        controller.serve("web.yaml", &gateway(&listeners))?;
        let services = service("evil", echo, 9).replace("namespace: default", "namespace: evil");
        let to = "{ name: evil, port: 7 }";
        let routes = route_in("evil", "TCPRoute", "line", "line", "", to)
            + &route_in("evil", "TLSRoute", "names", "names", "  hostnames: [a.test]\n", to);
        controller.serve("evil.yaml", &(services + &routes))?;
        until("the port", || Ok(TcpStream::connect((Ipv4Addr::LOCALHOST, line)).map(drop)?))?;
        until("the port", || Ok(TcpStream::connect((Ipv4Addr::LOCALHOST, names)).map(drop)?))?;
        ensure!(tcp(line, "x!").unwrap_or_default().is_empty(), "a route of another namespace");
        ensure!(tls(names, "a.test", "x!").is_err(), "a TLSRoute of another namespace");
        for kind in ["TCPRoute evil/line", "TLSRoute evil/names"] {
            let log = controller.error_log();
            let told = log.lines().find(|line| line.contains(kind)).context(kind)?;
            ensure!(told.contains("NotAllowedByListeners"), "{told}");
        }
        Ok(())
    });
}

/// What is answered to `told` over TLS, behind the name of the certificate that is shown.
fn tls(port: u16, name: &str, told: &str) -> Result<String> {
    let mut connector = SslConnector::builder(SslMethod::tls())?;
    connector.set_verify(SslVerifyMode::NONE);
    let configuration = connector.build().configure()?.verify_hostname(false);
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut stream = configuration.connect(name, stream)?;
    let shown = stream.ssl().peer_certificate().context("no certificate")?;
    let shown = shown.subject_name().entries().next().context("no name")?.data().to_string()?;
    stream.write_all(told.as_bytes())?;
    let mut answer = Vec::new();
    // The endpoint that has its own TLS closes without a word.
    let _ = stream.read_to_end(&mut answer);
    Ok(format!("{shown}: {}", String::from_utf8_lossy(&answer)))
}

/// A Gateway whose port is passed through for some server names and decrypted for another, and its routes.
fn names_of_one_port(names: u16) -> String {
    let passthrough = "protocol: TLS, tls: { mode: Passthrough }";
    let listeners = [
        format!("name: through, port: {names}, hostname: '*.through.test', {passthrough}"),
        format!("name: any, port: 443, {passthrough}"),
        format!(
            "name: plain, port: {names}, hostname: plain.test, protocol: TLS, \
             tls: {{ certificateRefs: [{{ name: plain }}] }}"
        ),
    ];
    let hostnames = |all: &str| format!("  hostnames: [{all}]\n");
    let routes = [
        route(
            "TLSRoute",
            "through",
            "through",
            &hostnames("a.through.test"),
            "{ name: through, port: 7 }",
        ),
        route("TLSRoute", "plain", "plain", "", "{ name: plain, port: 7 }"),
        route(
            "TLSRoute",
            "any",
            "any",
            &hostnames("'*.test', web.test"),
            "{ name: through, port: 7 }",
        ),
    ];
    gateway(&listeners) + &routes.concat()
}

#[test]
fn server_names_of_one_port_are_passed_through_or_decrypted() {
    pass("session-routes-names", |directory| {
        let own = Certificate::new("own", &["through.test"])?;
        let (through, plain) = (tls_endpoint(&own)?, tcp_echo("plain")?);
        let names = free_port()?;
        let controller = start(directory)?;
        let https = controller.https_port;
        let mut shop =
            Shop::new(controller, &["a"], &[("first", "plain.test"), ("web", "own.test")])?;
        shop.write("secrets.yaml", "$SECRET(plain: first)\n$SECRET(web: web)")?;
        let services = service("through", through, 9) + &service("plain", plain, 9);
        shop.write("web.yaml", &(services + &names_of_one_port(names)))?;
        until("what is passed through", || {
            is_told("through", tls(names, "a.through.test", "x!\n"), "own: ")
        })?;
        is_told("decrypted", tls(names, "plain.test", "x!"), "first: plain: x!")?;
        for name in ["b.through.test", "other.test"] {
            ensure!(tls(names, name, "x!").is_err(), "{name} on the port of sessions");
        }
        // Beside Ingresses: their hosts are more specific than a wildcard.
        is_told("through", tls(https, "any.test", "x!\n"), "own: ")?;
        is_told("through", tls(https, "web.test", "x!\n"), "own: ")?;
        shop.write("shop.yaml", "$SERVICE(shop: a)\n$INGRESS(shop: own.test/ shop tls=web)")?;
        shop.presents("own.test", "web")?;
        is_told("through", tls(https, "any.test", "x!\n"), "own: ")?;
        shop.remove("web.yaml")?;
        // Until nginx has closed the port its handshake succeeds; no endpoint answers behind it.
        let told = tls(names, "plain.test", "x!").unwrap_or_default();
        ensure!(!told.contains("plain"), "it still leads to an endpoint: {told}");
        until("the end of the port", || {
            ensure!(tls(names, "plain.test", "x!").is_err(), "it is still decrypted");
            Ok(())
        })?;
        Ok(())
    });
}
