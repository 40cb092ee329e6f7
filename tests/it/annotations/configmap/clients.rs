//! What clients and proxies in front say, and who is believed.

use super::*;

#[test]
fn forwarded_headers_are_believed_from_trusted_peers_only() {
    pass("configmap-trust", |directory| {
        let mut shop = shop(directory)?;
        let request = Request::get("shop.test", "/")
            .header("X-Forwarded-For", "203.0.113.7, 198.51.100.1")
            .header("X-Forwarded-Proto", "https")
            .header("X-Forwarded-Host", "outside.test")
            .header("X-Forwarded-Port", "8443");
        let untrusted = [
            "x-real-ip: 127.0.0.1",
            "x-forwarded-for: 127.0.0.1",
            "x-forwarded-proto: http",
            "x-forwarded-host: shop.test",
            "host: shop.test",
        ];
        has_lines(&told(&shop, &request)?, &untrusted)?;
        reload_with(
            &mut shop,
            &[("use-forwarded-headers", "true"), ("proxy-real-ip-cidr", "192.0.2.0/24")],
        )?;
        has_lines(&told(&shop, &request)?, &untrusted)?;
        let trusts = ("proxy-real-ip-cidr", "127.0.0.1,198.51.100.0/24");
        reload_with(&mut shop, &[("use-forwarded-headers", "true"), trusts])?;
        let trusted = [
            "x-real-ip: 203.0.113.7",
            "x-forwarded-proto: https",
            "x-scheme: https",
            "x-forwarded-host: outside.test",
            "x-forwarded-port: 8443",
            "host: outside.test",
            "x-original-forwarded-host: outside.test",
        ];
        let text = told(&shop, &request)?;
        has_lines(&text, &trusted)?;
        has_lines(&text, &["x-forwarded-for: 203.0.113.7"])?;
        let full = ("compute-full-forwarded-for", "true");
        reload_with(&mut shop, &[("use-forwarded-headers", "true"), trusts, full])?;
        let line = "x-forwarded-for: 203.0.113.7, 198.51.100.1, 127.0.0.1";
        has_lines(&told(&shop, &request)?, &[line])?;
        has_lines(&told(&shop, &Request::get("shop.test", "/"))?, &["x-forwarded-for: 127.0.0.1"])
    });
}

#[test]
fn what_clients_may_say_is_the_operators_to_decide() {
    pass("configmap-clients", |directory| {
        let mut shop = shop(directory)?;
        let request = Request::get("shop.test", "/")
            .header("Forwarded", "for=203.0.113.9")
            .header("X-Forwarded-Prefix", "/prefix")
            .header("X-Forwarded-Ssl", "on")
            .header("True-Client-IP", "203.0.113.9")
            .header("X-Team-Id", "1")
            .header("X-Other", "1");
        let says = |shop: &Shop, lines: &[&str], others: &[&str]| {
            let text = told(shop, &request)?;
            has_lines(&text, lines)?;
            let odd = others.iter().find(|line| text.contains(*line));
            ensure!(odd.is_none(), "{odd:?} in\n{text}");
            Ok(())
        };
        let (prefix, ssl, forwarded) =
            ("x-forwarded-prefix: /prefix", "x-forwarded-ssl: on", "forwarded: for=203.0.113.9");
        let (client, team) = ("true-client-ip: 203.0.113.9", "x-team-id: 1");
        says(&shop, &[client, team, "x-other: 1"], &[prefix, ssl, forwarded])?;
        reload_with(&mut shop, &[("keep-forwarded-headers", "X-Forwarded-Prefix")])?;
        says(&shop, &[client, team, prefix], &[ssl, forwarded])?;
        let trusts = [("use-forwarded-headers", "true"), ("proxy-real-ip-cidr", "127.0.0.1")];
        reload_with(&mut shop, &trusts)?;
        says(&shop, &[client, team, prefix, ssl, forwarded], &[])?;
        let entries =
            [("strip-request-headers", "common, X-Team-"), ("refuse-ambiguous-paths", "all")];
        reload_with(&mut shop, &entries)?;
        says(&shop, &["x-other: 1"], &[client, team, prefix, ssl, forwarded])?;
        for (path, status) in [
            ("/a/..;/b", 400),
            ("/a%2fb", 400),
            ("/a%5Cb", 400),
            ("/a//b", 400),
            ("/a/../b", 400),
            ("/a;v=1/b?c=//..;/", 200),
        ] {
            shop.answers("shop.test", path, status)?;
        }
        reload_with(&mut shop, &[("server-tokens", "true")])?;
        shop.answers("shop.test", "/a/..;/b", 200)
    });
}

#[test]
fn a_proxy_that_ends_tls_stops_the_redirect_if_it_is_trusted() {
    pass("configmap-redirect", |directory| {
        let mut shop = shop(directory)?;
        shop.write("shop.yaml", "$SERVICE(shop: a)\n$INGRESS(shop: shop.test/ shop tls=tls)")?;
        let request = Request::get("shop.test", "/").header("X-Forwarded-Proto", "https");
        ensure!(get(&shop, &request)?.status == 308, "nobody is trusted");
        reload_with(&mut shop, &[("use-forwarded-headers", "true")])?;
        ensure!(get(&shop, &request)?.status == 200, "the proxy ended TLS");
        let plain =
            get(&shop, &Request::get("shop.test", "/").header("X-Forwarded-Host", "o.test"))?;
        ensure!(plain.status == 308, "{plain}");
        let location = plain.header("Location");
        ensure!(location.as_deref() == Some("https://o.test"), "{location:?}");
        Ok(())
    });
}

/// A request behind a PROXY header, as it is answered; `more` are lines of its head.
fn proxied_with(port: u16, header: &str, more: &str) -> Result<String> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let request = format!("GET / HTTP/1.1\r\nHost: shop.test\r\n{more}Connection: close\r\n\r\n");
    stream.write_all(format!("{header}{request}").as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

fn proxied(port: u16, header: &str) -> Result<String> {
    proxied_with(port, header, "")
}

#[test]
fn behind_a_trusted_proxy_and_the_proxy_protocol_the_client_is_whom_the_proxy_names() {
    pass("configmap-proxy-and-forwarded", |directory| {
        let shop = shop(directory)?;
        let port = shop.controller.http_port;
        let map = config_map(
            "settings",
            &[
                ("use-proxy-protocol", "true"),
                ("use-forwarded-headers", "true"),
                // The load balancer, and the proxies in front of it.
                ("proxy-real-ip-cidr", "127.0.0.1/32,203.0.113.0/24,2001:db8::/32"),
            ],
        );
        // The folder's barriers speak plain HTTP.
        shop.write_only("settings.yaml", &map)?;
        let (trusted, other) = ("TCP4 203.0.113.9 192.0.2.1", "TCP4 192.0.2.77 192.0.2.1");
        let (trusted_v6, other_v6) = ("TCP6 2001:db8::9 ::1", "TCP6 2001:db9::7 ::1");
        let named = "X-Forwarded-For: 198.51.100.7\r\n";
        // While the reload is under way, a worker of before may still take a connection.
        let tells = |from: &str, more: &str, lines: &[&str]| {
            until("what the endpoint is told", || {
                let answer = proxied_with(port, &format!("PROXY {from}\r\n"), more)?;
                has_lines(&answer, lines).with_context(|| format!("{from} {more:?}"))
            })
        };
        let list = "X-Forwarded-For: 192.0.2.66, 198.51.100.7, 203.0.113.8\r\n";
        let lines = "X-Forwarded-For: 192.0.2.66\r\nX-Forwarded-For: 198.51.100.7\r\n";
        for (from, more, client) in [
            (trusted, named, "198.51.100.7"),
            (trusted, list, "198.51.100.7"),
            (trusted, lines, "198.51.100.7"),
            (trusted, "X-Forwarded-For: 2001:db9::1\r\n", "2001:db9::1"),
            (trusted_v6, named, "198.51.100.7"),
            (trusted, "", "203.0.113.9"),
            (trusted, "X-Forwarded-For: nobody\r\n", "203.0.113.9"),
            (other, named, "192.0.2.77"),
            (other_v6, named, "2001:db9::7"),
            (other, "X-Forwarded-For-Proxy-Protocol: 198.51.100.7\r\n", "192.0.2.77"),
            (trusted, "X-Forwarded-For-Proxy-Protocol: 198.51.100.7\r\n", "203.0.113.9"),
        ] {
            let lines = [format!("x-real-ip: {client}"), format!("x-forwarded-for: {client}")];
            tells(&format!("{from} 5000 80"), more, &lines.each_ref().map(String::as_str))?;
        }
        let says_https = "X-Forwarded-Proto: https\r\n";
        tells(&format!("{trusted} 5000 80"), says_https, &["x-forwarded-proto: https"])?;
        tells(&format!("{other} 5000 80"), says_https, &["x-forwarded-proto: http"])?;
        // Nobody is named: the load balancer itself, as it asks for health.
        tells("UNKNOWN", named, &["x-real-ip: 198.51.100.7"])
    });
}

/// Does what [`proxied_with`] does over TLS.
fn proxied_tls(port: u16, header: &str, more: &str) -> Result<String> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.write_all(header.as_bytes())?;
    let mut connector = SslConnector::builder(SslMethod::tls_client())?;
    connector.set_verify(SslVerifyMode::NONE);
    let mut stream = connector.build().connect("shop.test", stream)?;
    write!(stream, "GET / HTTP/1.1\r\nHost: shop.test\r\n{more}Connection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

#[test]
fn a_connection_that_passthrough_has_handed_over_is_the_one_that_the_proxy_protocol_names() {
    pass("configmap-proxy-and-passthrough", |directory| {
        let inside = format!("--ssl-passthrough-proxy-port={}", free_port()?);
        let shop = shop_with(directory, &["--enable-ssl-passthrough".into(), inside])?;
        let map = config_map(
            "settings",
            &[
                ("use-proxy-protocol", "true"),
                ("use-forwarded-headers", "true"),
                ("proxy-real-ip-cidr", "127.0.0.1/32,203.0.113.0/24"),
            ],
        );
        shop.write_only("settings.yaml", &map)?;
        let more = "X-Forwarded-For: 198.51.100.7\r\nX-Forwarded-Port: 8443\r\n";
        for (from, client, named) in
            [("203.0.113.9", "198.51.100.7", "8443"), ("192.0.2.77", "192.0.2.77", "443")]
        {
            let header = format!("PROXY TCP4 {from} 192.0.2.1 5000 443\r\n");
            let lines = [format!("x-real-ip: {client}"), format!("x-forwarded-port: {named}")];
            until("what the endpoint is told", || {
                let answer = proxied_tls(shop.controller.https_port, &header, more)?;
                has_lines(&answer, &lines.each_ref().map(String::as_str))
            })?;
        }
        Ok(())
    });
}

#[test]
fn the_proxy_protocol_names_the_client_and_its_port() {
    pass("configmap-proxy-protocol", |directory| {
        let shop = shop(directory)?;
        let port = shop.controller.http_port;
        let header = |port| format!("PROXY TCP4 203.0.113.9 192.0.2.1 5000 {port}\r\n");
        ensure!(proxied(port, &header(80))?.starts_with("HTTP/1.1 400"), "nobody speaks PROXY yet");
        // The folder's barriers speak plain HTTP.
        let map = config_map("settings", &[("use-proxy-protocol", "true")]);
        shop.write_only("settings.yaml", &map)?;
        // While the reload is under way, a worker of before may still take a connection.
        let speaks = |named, lines: &[&str]| {
            until("PROXY", || {
                let answer = proxied(port, &header(named))?;
                ensure!(answer.starts_with("HTTP/1.1 200"), "{answer}");
                has_lines(&answer, lines)
            })
        };
        let lines = ["x-real-ip: 203.0.113.9", "x-forwarded-proto: https", "x-forwarded-port: 443"];
        speaks(443, &lines)?;
        speaks(80, &["x-forwarded-proto: http", "x-forwarded-port: 80"])?;
        ensure!(logged(&shop, RELOADS) == 1, "{}", shop.controller.output_tail());
        Ok(())
    });
}

#[test]
fn clients_are_kept_out_by_address_and_by_what_they_say() {
    pass("configmap-blocks", |directory| {
        let mut shop = shop(directory)?;
        let by = |name: &str, value: &str| Request::get("shop.test", "/").header(name, value);
        let lists = [("block-user-agents", "Bad Bot,~*^curl/"), ("block-referers", "~spam\\.test")];
        shop.write("settings.yaml", &config_map("settings", &lists))?;
        for (request, status) in [
            (by("User-Agent", "bad bot"), 403),
            (by("User-Agent", "CURL/8"), 403),
            (by("Referer", "http://spam.test/"), 403),
            (by("User-Agent", "a bad bot"), 200),
            (by("Referer", "http://spamatest/"), 200),
        ] {
            let answer = get(&shop, &request)?;
            ensure!(answer.status == status, "{request}\n{answer}");
        }
        ensure!(logged(&shop, RELOADS) == 0, "lists are data");
        // What cannot be read closes.
        shop.write("settings.yaml", &config_map("settings", &[("block-user-agents", "~(")]))?;
        shop.answers("shop.test", "/", 503)?;
        shop.write("settings.yaml", &config_map("settings", &[("block-referers", "")]))?;
        shop.answers("shop.test", "/", 200)?;
        let map = config_map("settings", &[("block-cidrs", "127.0.0.1")]);
        shop.write_only("settings.yaml", &map)?;
        until("the block", || shop.answers("shop.test", "/", 403))
    });
}
