//! Requests, and answers of endpoints, that are to mean one thing here and another thing there.

use super::{Attack, short};
use crate::tenants::hostile::blue::{CACHED, MUTUAL, PATHS, SECURE, SHOP, STICKY};
use crate::tenants::hostile::objects::secret;
use crate::tenants::hostile::villain::{OWN, Villain};
use anyhow::{Context, Result, ensure};
use oxigress_tests::certificate::Certificate;
use oxigress_tests::client::{Address, Request, Response, send, send_raw};
use oxigress_tests::endpoint::{Behaviour, Endpoint};
use oxigress_tests::mutual::{Caller, Identity, VALID};
use oxigress_tests::network::pod_address;
use oxigress_tests::protocol::http2::Client;
use oxigress_tests::wait::until;

pub const ATTACKS: &[Attack] = &[
    short(4, "target-absolute", absolute),
    short(4, "forwarded", forwarded),
    short(4, "h2c", h2c),
    short(4, "connection-names", connection_names),
    short(4, "paths-odd", paths_odd),
    short(4, "smuggling", smuggling),
    short(4, "cookies-odd", cookies_odd),
    short(4, "sni-other", sni_other),
    short(4, "sessions", sessions),
    short(4, "accel-endpoint", accel_endpoint),
    short(4, "accel-auth", accel_auth),
    short(4, "auth-cache", auth_cache),
    short(4, "rewrite-large", rewrite_large),
    short(4, "header-splitting", header_splitting),
    short(4, "hosts-odd", hosts_odd),
    short(4, "h2-authority", h2_authority),
];

impl Villain<'_> {
    /// Answers to these bytes, as many as come, to a connection that is closed then.
    fn raw(&self, bytes: &str) -> Result<Vec<Response>> {
        self.run(send_raw(&self.scene.http(), bytes.as_bytes(), 10))
    }
}

fn only(answers: Vec<Response>) -> Result<Response> {
    ensure!(answers.len() == 1, "{} answers", answers.len());
    answers.into_iter().next().context("an answer")
}

/// A target with a host of its own: that is the host, for whoever decides and for whoever is asked.
fn absolute(v: &Villain<'_>) -> Result<()> {
    let host = v.host();
    v.apply_settled([v.ingress("own", &host).object()])?;
    let end = "Connection: close\r\n\r\n";
    let answer = only(v.raw(&format!("GET http://{host}/ HTTP/1.1\r\nHost: {SECURE}\r\n{end}"))?)?;
    ensure!(answer.endpoint().as_deref() == Some(v.own.name.as_str()), "{answer}");
    ensure!(
        answer.text().contains(&format!("\nhost: {host}\n")) && !answer.text().contains(SECURE),
        "{answer}"
    );
    let answer = only(v.raw(&format!("GET http://{SECURE}/ HTTP/1.1\r\nHost: {host}\r\n{end}"))?)?;
    ensure!(answer.status == 401, "{answer}");
    for odd in [
        format!("http://{SECURE}:80@{host}/"),
        format!("http://{host}\\@{SECURE}/"),
        format!("//{SECURE}/"),
    ] {
        for answer in v.raw(&format!("GET {odd} HTTP/1.1\r\nHost: {host}\r\n{end}"))? {
            let endpoint = answer.endpoint().unwrap_or_default();
            ensure!(!endpoint.starts_with("blue-"), "{odd}: {answer}");
        }
    }
    Ok(())
}

/// What only a proxy may say, in every spelling.
fn forwarded(v: &Villain<'_>) -> Result<()> {
    let names = [
        "Forwarded",
        "X-Forwarded-For",
        "X-Forwarded-Host",
        "X-Forwarded-Proto",
        "X-Forwarded-Port",
        "X-Forwarded-Prefix",
        "X-Forwarded-Scheme",
        "X-Forwarded-Server",
        "X-Forwarded-User",
        "X-Real-IP",
        "X-Scheme",
        "X-Original-URI",
        "X-Original-URL",
        "X-Original-Method",
        "X-Auth-Request-Redirect",
        "X_Forwarded_For",
        "X_Forwarded_Host",
        "X-Forwarded_For",
        "ssl-client-verify",
        "ssl-client-subject-dn",
        "ssl_client_verify",
        "Proxy",
    ];
    let own = ["x-original-forwarded-for: evil", "x-original-forwarded-host: evil"];
    let request =
        names.iter().fold(Request::get(SHOP, "/"), |request, name| request.header(name, "evil"));
    let answer = v.send(&request)?;
    let text = answer.text();
    let told = text
        .lines()
        .filter(|line| line.contains("evil") && !own.contains(line))
        .collect::<Vec<_>>();
    ensure!(answer.status == 200 && told.is_empty(), "{told:?}: {answer}");
    Ok(())
}

/// An upgrade to what nobody here judges.
fn h2c(v: &Villain<'_>) -> Result<()> {
    for protocol in ["h2c", "H2C", "websocket, h2c", "h2c, websocket", "h2"] {
        let request = Request::get(SHOP, "/").header("Connection", "Upgrade, HTTP2-Settings");
        let request = request
            .header("Upgrade", protocol)
            .header("HTTP2-Settings", "AAMAAABkAAQCAAAAAAIAAAAA");
        let answer = v.send(&request)?;
        let text = answer.text().to_lowercase();
        ensure!(
            answer.status == 200 && !text.contains("h2c") && !text.contains("http2-settings"),
            "{protocol}: {answer}"
        );
    }
    Ok(())
}

/// Headers of ours that `Connection` names.
fn connection_names(v: &Villain<'_>) -> Result<()> {
    let names =
        "close, X-Forwarded-For, X-Forwarded-Host, X-Real-IP, Host, X-Request-ID, Cdn-Loop, X-Mine";
    let request = Request::get(SHOP, "/").header("Connection", names).header("X-Mine", "1");
    let answer = v.send(&request)?;
    let text = answer.text();
    for line in
        ["x-forwarded-for: 127.0.0.1", &format!("x-forwarded-host: {SHOP}"), "x-real-ip: 127.0.0.1"]
    {
        ensure!(text.lines().any(|seen| seen == line), "{line}: {answer}");
    }
    ensure!(!text.contains("x-mine") && text.contains("cdn-loop"), "{answer}");
    let request = Request::get(SECURE, "/").header("Connection", "close, Authorization");
    ensure!(v.send(&request)?.status == 401, "open without a password");
    Ok(())
}

/// Ways to write `/admin`, which wants a password, beside `/`, which does not.
fn paths_odd(v: &Villain<'_>) -> Result<()> {
    let targets = [
        "/admin",
        "//admin",
        "/./admin",
        "/x/../admin",
        "/%61dmin",
        "/%2e/admin",
        "/x/%2e%2e/admin",
        "/x/..%2fadmin",
        "/x%2f..%2fadmin",
        "/admin/",
        "/admin/x",
        "/admin?x",
        "/admin;x/y",
        "/admin/..;/admin",
        "/admin%00",
        "/admin%3f",
        "/ADMIN",
        "/admin%5c",
        "/\\admin",
        "/x/..\\admin",
        "/admin#x",
        "/%c0%afadmin",
        "/%ef%bc%8fadmin",
        "/admin/.",
        "/%25%36%31dmin",
        "/;/admin",
        "/admin%09",
        "/admin%20",
    ];
    for target in targets {
        let head = format!("GET {target} HTTP/1.1\r\nHost: {PATHS}\r\nConnection: close\r\n\r\n");
        for answer in v.raw(&head)? {
            let endpoint = answer.endpoint();
            ensure!(endpoint.as_deref() != Some("blue-cart"), "{target}: {answer}");
        }
    }
    Ok(())
}

/// Two lengths of one body, and other ways to hide a request in another one: the endpoint sees as many as there are answers.
fn smuggling(v: &Villain<'_>) -> Result<()> {
    let endpoint = Endpoint::with("strict", Behaviour::Ok, pod_address().into())?;
    let host = v.serve_at(endpoint.address, |ingress| ingress)?;
    let hidden = format!("GET /hidden HTTP/1.1\r\nHost: {SECURE}\r\nX: ");
    let heads = [
        format!(
            "Content-Length: {}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{hidden}",
            hidden.len() + 5
        ),
        format!("Content-Length: 0\r\nContent-Length: {}\r\n\r\n{hidden}", hidden.len()),
        format!("Content-Length: +0\r\n\r\n{hidden}"),
        format!("Content-Length: 0, 0\r\n\r\n{hidden}"),
        format!("Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n{hidden}"),
        format!("Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n{hidden}"),
        format!("Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n{hidden}"),
        format!(
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n{hidden}"
        ),
        format!("Transfer-Encoding: identity, chunked\r\n\r\n0\r\n\r\n{hidden}"),
        format!("Transfer-Encoding: chunked\r\n\r\n0;\n{hidden}\r\n\r\n"),
        format!("Content_Length: {}\r\nX: y\r\n\r\n{hidden}", hidden.len()),
        format!("X: y\r\n Content-Length: {}\r\n\r\n{hidden}", hidden.len()),
        format!("Content-Length: 0\r\n\n{hidden}"),
        format!("Expect: 100-continue\r\nContent-Length: {}\r\n\r\n{hidden}", hidden.len()),
    ];
    let mut answered = 0;
    for head in heads {
        let request =
            format!("POST /seen HTTP/1.1\r\nHost: {host}\r\n{head}\r\nConnection: close\r\n\r\n");
        for answer in v.raw(&request).unwrap_or_default() {
            answered += usize::from(answer.endpoint().as_deref() == Some("strict"));
            let is_open = answer.endpoint().is_some_and(|name| name.starts_with("blue-"));
            ensure!(!is_open, "{request:?}: {answer}");
        }
    }
    let seen = endpoint.requests() as usize;
    ensure!(
        seen == answered,
        "the endpoint saw {seen} requests, of which {answered} were answered"
    );
    Ok(())
}

/// Cookies of affinity that nobody gave.
fn cookies_odd(v: &Villain<'_>) -> Result<()> {
    let cookies = [
        "INGRESSCOOKIE=1234567890.1.1|0123456789abcdef0123456789abcdef".to_owned(),
        format!("INGRESSCOOKIE={}", "a".repeat(4_000)),
        "INGRESSCOOKIE=; INGRESSCOOKIE==; INGRESSCOOKIE=\"|\"".into(),
        "INGRESSCOOKIE=10.244.1.1:80".into(),
        "INGRESSCOOKIE=169.254.169.254:80|x".into(),
        format!("{}INGRESSCOOKIE=x", "a=b; ".repeat(500)),
        ";;;;==;=;\t;INGRESSCOOKIE".into(),
    ];
    for cookie in cookies {
        let answer = v.send(&Request::get(STICKY, "/").header("Cookie", &cookie))?;
        ensure!(
            answer.status == 200 && answer.endpoint().is_some_and(|e| e.starts_with("blue-")),
            "{cookie}: {answer}"
        );
    }
    Ok(())
}

/// A handshake for one host and a request for another one that wants certificates.
fn sni_other(v: &Villain<'_>) -> Result<()> {
    let port = v.scene.controller.https_port;
    for name in [None, Some(v.host()), Some(SHOP.to_owned()), Some("mutual.blue.test.".into())] {
        let address = match name.clone() {
            Some(name) => Address::https(port, name),
            None => Address::Tls(v.https(), None),
        };
        for host in [MUTUAL, "MUTUAL.blue.test", "mutual.blue.test.", "mutual.blue.test:443"] {
            let answer = v.run(send(&address, &Request::get(host, "/")))?;
            ensure!(answer.endpoint().is_none(), "{name:?}, {host}: {answer}");
        }
    }
    let answer = v.get(MUTUAL, "/")?;
    ensure!(answer.endpoint().is_none(), "without TLS: {answer}");
    Ok(())
}

/// A session that one's own authority opened, taken along to blue's host.
fn sessions(v: &Villain<'_>) -> Result<()> {
    let (host, name) = (v.host(), v.name("tls"));
    let (authority, pair) = (Identity::root("villain")?, Certificate::new("villain", &[&host])?);
    let one = authority.issue("one", VALID)?;
    let ingress = v.ingress("sessions", &host).tls(&[&host], &name);
    let ingress = ingress.with("auth-tls-secret", &format!("{}/{name}", v.namespace));
    v.apply([
        secret(
            &name,
            &[("tls.crt", &pair.chain), ("tls.key", &pair.key), ("ca.crt", &authority.pem()?)],
        ),
        ingress.object(),
    ])?;
    let port = v.scene.controller.https_port;
    let caller = Caller::new(port, &host)?.showing(&one);
    until("the own host", || {
        let answer = caller.call()?.get(&host, "/")?;
        ensure!(answer.status == 200, "{answer:?}");
        Ok(())
    })?;
    caller.call()?.get(&host, "/")?;
    let resumed = caller.resuming()?.name(Some(MUTUAL));
    for caller in [resumed.anonymous(), caller.name(Some(MUTUAL))] {
        // A handshake that is refused opens nothing either.
        let Ok(mut call) = caller.call() else { continue };
        let Ok(answer) = call.get(MUTUAL, "/") else { continue };
        ensure!([400, 403, 421, 495, 496].contains(&answer.status), "{answer:?}");
    }
    Ok(())
}

/// Places of nginx.conf, and of the file system.
const PLACES: [&str; 12] = [
    "/",
    "/x",
    "@http",
    "@https",
    "@grpc",
    "@errors",
    "@healthy",
    "ingress-auth-http",
    "ingress-mirror-http",
    "/../../etc/passwd",
    "/healthz",
    "http://shop.blue.test/",
];

/// An answer that leads to another place.
pub fn accel(place: &str) -> String {
    format!(
        "HTTP/1.1 200 OK\r\nX-Accel-Redirect: {place}\r\nX-Accel-Buffering: yes\r\nX-Accel-Limit-Rate: 9999\r\n\
         X-Accel-Expires: 1000\r\nX-Accel-Charset: x\r\nContent-Length: 0\r\n\r\n"
    )
}

/// Answers that lead to another place: never to blue's endpoints, and not in a circle for ever.
fn accel_endpoint(v: &Villain<'_>) -> Result<()> {
    for (number, place) in PLACES.into_iter().enumerate() {
        let server = v.saying(accel(place).into_bytes())?;
        let host = v.host_of(number);
        let name = v.name(number);
        v.apply(crate::tenants::hostile::objects::served(&name, server.address))?;
        v.apply_settled([v.bare(number).host(&host).path("/", "Prefix", &name).object()])?;
        let answer = v.get(&host, "/")?;
        ensure!(
            answer.endpoint().is_none() && !answer.text().contains("root:"),
            "{place}: {answer}"
        );
        ensure!(server.connections() < 100, "{place}: {} connections", server.connections());
    }
    Ok(())
}

/// The same of auth servers and mirrors: they decide and take note, and lead nowhere.
fn accel_auth(v: &Villain<'_>) -> Result<()> {
    for (number, place) in PLACES.into_iter().enumerate() {
        let server = v.saying(accel(place).into_bytes())?;
        let url = format!("http://{}/", server.address);
        let (auth, mirror) = (v.host_of(format!("a{number}")), v.host_of(format!("m{number}")));
        v.apply([
            v.ingress(format!("a{number}"), &auth).with("auth-url", &url).object(),
            v.ingress(format!("m{number}"), &mirror).with("mirror-target", &url).object(),
        ])?;
        v.settle()?;
        for host in [auth, mirror] {
            let answer = v.get(&host, "/")?;
            ensure!(answer.endpoint().as_deref() == Some(v.own.name.as_str()), "{place}: {answer}");
        }
    }
    Ok(())
}

/// An answer that one's own auth server gave, kept under the key that blue's policy uses.
fn auth_cache(v: &Villain<'_>) -> Result<()> {
    let server =
        v.saying(*b"HTTP/1.1 200 OK\r\nCache-Control: max-age=1000\r\nContent-Length: 0\r\n\r\n")?;
    let host = v.host();
    let ingress =
        v.ingress("cache", &host).with("auth-url", &format!("http://{}/", server.address));
    let ingress = ingress.with("auth-cache-key", "all").with("auth-cache-duration", "200 401 10m");
    v.apply_settled([ingress.object()])?;
    for _ in 0..3 {
        ensure!(v.get(&host, "/")?.status == 200, "the own host");
        let answer = v.get(CACHED, "/")?;
        ensure!(answer.status == 401, "{CACHED} is {answer}");
    }
    Ok(())
}

/// Captures that are repeated a hundred times, of a long path.
fn rewrite_large(v: &Villain<'_>) -> Result<()> {
    let ingress = v.bare("rewrite").with("use-regex", "true").host(&v.host());
    let ingress = ingress.path("/(.*)", "ImplementationSpecific", OWN);
    let ingress = ingress.with("rewrite-target", &format!("/{}", "$1".repeat(400)));
    v.apply_settled([ingress.object()])?;
    let target = format!("/{}", "a".repeat(7_900));
    for _ in 0..20 {
        let status = v.get(&v.host(), &target)?.status;
        ensure!([200, 400, 414, 431, 500, 502, 503].contains(&status), "{status}");
    }
    Ok(())
}

/// Line ends in every annotation that ends up in a header.
fn header_splitting(v: &Villain<'_>) -> Result<()> {
    let names = [
        "upstream-vhost",
        "x-forwarded-prefix",
        "proxy-cookie-path",
        "permanent-redirect",
        "session-cookie-name",
        "cors-allow-headers",
        "proxy-redirect-to",
        "auth-signin",
        "auth-realm",
        "connection-proxy-header",
        "app-root",
    ];
    for (number, name) in names.into_iter().enumerate() {
        let ingress = v.ingress(number, &v.host_of(number)).with(name, "/x\r\nX-Evil: 1\r\n\r\n");
        let ingress = ingress.with("affinity", "cookie").with("enable-cors", "true");
        v.apply([ingress.object()])?;
    }
    v.settle()?;
    for (number, name) in names.iter().enumerate() {
        let answer = v.get(&v.host_of(number), "/")?;
        ensure!(
            answer.header("x-evil").is_none() && !answer.text().contains("x-evil"),
            "{}: {answer}",
            name
        );
    }
    Ok(())
}

/// Ways to write a host that wants a password, and requests without one.
fn hosts_odd(v: &Villain<'_>) -> Result<()> {
    let upper = SECURE.to_uppercase();
    let hosts = [
        format!("{SECURE}."),
        format!("{SECURE}:80"),
        format!("{SECURE}.:443"),
        upper,
        format!(" {SECURE}"),
        format!("{SECURE}\t"),
        format!("x@{SECURE}"),
        format!("{SECURE}@x"),
        format!("{SECURE}/"),
        format!("{SECURE}?"),
        format!("{SECURE}#"),
        format!("{SECURE},x"),
        format!("{SECURE}\r\nHost: {SHOP}"),
        format!("[{SECURE}]"),
        format!("{SECURE}%00"),
        "secure。blue。test".into(),
        String::new(),
        "127.0.0.1".into(),
        "[::1]".into(),
        "-".into(),
        "*.blue.test".into(),
        "a".repeat(4_000),
    ];
    for host in hosts {
        for version in ["1.1", "1.0"] {
            let request =
                format!("GET / HTTP/{version}\r\nHost: {host}\r\nConnection: close\r\n\r\n");
            for answer in v.raw(&request)? {
                let seen = answer.text();
                ensure!(
                    answer.endpoint().is_none() || !seen.to_lowercase().contains("host: secure"),
                    "{host}: {answer}"
                );
            }
        }
    }
    Ok(())
}

/// Two names of a host in a request of HTTP/2.
fn h2_authority(v: &Villain<'_>) -> Result<()> {
    let host = v.host();
    v.apply_settled([v.ingress("own", &host).object()])?;
    let to = v.https();
    v.run(async {
        for (authority, other) in [(host.as_str(), SECURE), (SECURE, host.as_str())] {
            let client = Client::connect(to, Some(SHOP)).await?;
            let asked =
                client.send(hyper::Method::GET, authority, "/", &[("host", other)], "").await;
            // A connection or stream that is refused says nothing.
            let Ok(answer) = asked else { continue };
            let (seen, is_right) = (answer.text(), answer.status == 400 || answer.status == 401);
            ensure!(is_right || !seen.contains(SECURE), "{authority}, {other}: {answer:?}");
            ensure!(is_right || seen.contains(&format!("x-forwarded-host: {host}")), "{answer:?}");
        }
        Ok(())
    })
}
