//! The PROXY protocol on both sides of a session.

use super::*;

#[test]
fn the_proxy_protocol_goes_in_and_out() {
    pass("stream-proxy", |directory| {
        let (both, out, only_in) = (free_port()?, free_port()?, free_port()?);
        let servers = format!(
            "set_real_ip_from 127.0.0.1;
    server {{ listen 127.0.0.1:{both} proxy_protocol; proxy_pass ingress; proxy_protocol on; }}
    server {{ listen 127.0.0.1:{out}; proxy_pass ingress; proxy_protocol on; }}
    server {{ listen 127.0.0.1:{only_in} proxy_protocol; proxy_pass ingress; }}"
        );
        let all = backends("p", LineEndpoint::tcp)?;
        let ports = [both, out, only_in].map(|port| (format!("tcp/{port}"), json!("p")));
        let ports = Value::Object(ports.into_iter().collect());
        let snapshot = json!({"ports": ports, "endpoints": {"p": natives(&pair(&all, 0))}});
        let mut trial = Trial::start(directory, 2, &servers, &snapshot)?;

        let header = |port: u16, first: &[u8]| -> Result<(String, u16)> {
            let mut session = block_on(Session::open(port, first))?;
            Ok((block_on(session.ask("who"))?.header, session.local_port))
        };
        let version_1 = b"PROXY TCP4 192.0.2.7 198.51.100.1 5555 443\r\n";
        let expected = |from: &str, to: u16| format!("PROXY TCP4 192.0.2.7 127.0.0.1 {from} {to}");
        ensure!(header(both, version_1)?.0 == expected("5555", both));
        let binary = version_2([192, 0, 2, 7], 6666, [198, 51, 100, 1], 443);
        ensure!(header(both, &binary)?.0 == expected("6666", both));
        ensure!(header(only_in, version_1)?.0.is_empty(), "taken off, not passed on");
        ensure!(header(only_in, &binary)?.0.is_empty(), "taken off, not passed on");
        let (found, port) = header(out, b"")?;
        ensure!(found == format!("PROXY TCP4 127.0.0.1 127.0.0.1 {port} {out}"), "{found}");
        let broken = block_on(async {
            Session::open(both, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await?.rest().await
        })?;
        ensure!(broken.is_empty(), "no header, no session");

        // Each session has a header of its own, whatever happens to the endpoints.
        let load = Sessions::start(4, move |number| async move {
            let from = 1 + number % 60_000;
            let first = format!("PROXY TCP4 192.0.2.7 198.51.100.1 {from} 443\r\n");
            let answer = Session::open(both, first.as_bytes()).await?.ask("who").await?;
            let expected = format!("PROXY TCP4 192.0.2.7 127.0.0.1 {from} {both}");
            ensure!(answer.header == expected, "{answer:?}");
            Ok(())
        });
        for step in 1..=UPDATES {
            trial.endpoints("p", &natives(&pair(&all, step)))?;
        }
        let (done, lost) = load.stop()?;
        told("PROXY protocol", UPDATES, done, &lost)?;
        trial.end()
    });
}
