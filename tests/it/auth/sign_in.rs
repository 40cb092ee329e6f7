//! The pattern of every oauth2-proxy guide: `auth-url: https://$host/oauth2/auth`, with the sign-in below the same host.
//!
//! The sign-in server is a program of this test. No name server exists: a name that would be looked up fails.

use anyhow::{Context, Result, ensure};
use oxigress_tests::client::{Address, Request, Response, send};
use oxigress_tests::controller::Controller;
use oxigress_tests::pass;
use oxigress_tests::shop::Shop;
use oxigress_tests::wait::{block_on, until};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// What a signed-in browser has.
const COOKIE: &str = "_oauth2_proxy=signed-in";

/// Heads of the requests that the sign-in server had.
type Heard = Arc<Mutex<Vec<String>>>;

/// `/oauth2/auth` says who the cookie is of, `/oauth2/start` gives it out.
fn sign_in_server() -> Result<(u16, Heard)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let port = listener.local_addr()?.port();
    let heard = Heard::default();
    let notes = heard.clone();
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let notes = notes.clone();
            std::thread::spawn(move || serve(client, &notes));
        }
    });
    Ok((port, heard))
}

fn serve(mut client: TcpStream, heard: &Heard) {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while client.read(&mut byte).is_ok_and(|read| read == 1) {
        head.push(byte[0]);
        if !head.ends_with(b"\r\n\r\n") {
            continue;
        }
        let text = String::from_utf8_lossy(&head).into_owned();
        head.clear();
        let target = text.split(' ').nth(1).unwrap_or_default();
        let answer = match target.split('?').next().unwrap_or_default() {
            "/oauth2/auth" if text.contains(COOKIE) => "202 Accepted\r\nX-Auth-Request-User: alice",
            "/oauth2/auth" => "401 Unauthorized",
            "/oauth2/start" => {
                "302 Found\r\nLocation: https://provider.test/\r\nSet-Cookie: _oauth2_proxy=signed-in"
            }
            _ => "404 Not Found",
        };
        heard.lock().expect("heard").push(text);
        let answer = format!("HTTP/1.1 {answer}\r\nContent-Length: 0\r\n\r\n");
        if client.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

/// Service and endpoint of a server of this test.
fn service(name: &str, port: u16) -> String {
    format!(
        "---\napiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\nspec: {{ports: [{{port: 80, targetPort: {port}}}]}}\n\
         ---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: {name}, labels: \
         {{kubernetes.io/service-name: {name}}}}}\naddressType: IPv4\nports: [{{port: {port}}}]\n\
         endpoints: [{{addresses: [127.0.0.1]}}]\n"
    )
}

fn ingress(
    name: &str,
    host: &str,
    path: &str,
    service: &str,
    annotations: &[(&str, &str)],
) -> String {
    let annotations: String = annotations
        .iter()
        .map(|(name, value)| format!("    nginx.ingress.kubernetes.io/{name}: '{value}'\n"))
        .collect();
    format!(
        "---\napiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata:\n  name: {name}\n  annotations:\n    kubernetes.io/ingress.class: nginx\n{annotations}\
         spec:\n  rules:\n  - host: {host}\n    http:\n      paths:\n      - path: {path}\n        \
         pathType: Prefix\n        backend: {{service: {{name: {service}, port: {{number: 80}}}}}}\n"
    )
}

fn ask(shop: &Shop, host: &str, target: &str, cookie: &str) -> Result<Response> {
    let address = Address::http(shop.controller.http_port);
    block_on(send(&address, &Request::get(host, target).header("Cookie", cookie)))
}

const GUIDE: [(&str, &str); 3] = [
    ("auth-url", "https://$host/oauth2/auth"),
    ("auth-signin", "https://$host/oauth2/start?rd=$escaped_request_uri"),
    ("auth-response-headers", "X-Auth-Request-User"),
];

#[test]
fn a_host_of_the_request_leads_to_the_sign_in_of_the_same_gateway() {
    pass("sign-in", |directory| {
        let mut shop = Shop::new(Controller::start(directory, 1, &[])?, &["app", "copies"], &[])?;
        let (port, heard) = sign_in_server()?;
        shop.write("guide.yaml", &guide(port))?;

        let away = ask(&shop, "app.test", "/page?x=1", "a=b")?;
        ensure!(away.status == 302, "{away}");
        let place = away.header("location").context("no Location")?;
        ensure!(place == "https://app.test/oauth2/start?rd=%2Fpage%3Fx%3D1", "{place}");
        let asked = heard.lock().expect("heard").last().cloned().context("nobody was asked")?;
        ensure!(asked.starts_with("GET /oauth2/auth HTTP/1.1\r\n"), "{asked}");
        let lower = asked.to_ascii_lowercase();
        for header in
            ["host: app.test\r\n", "x-original-url: http://app.test/page?x=1\r\n", "cdn-loop: "]
        {
            ensure!(lower.contains(header), "{header}: {asked}");
        }
        let start = ask(&shop, "app.test", "/oauth2/start?rd=%2Fpage", "a=b")?;
        ensure!(
            start.status == 302 && start.header("set-cookie").as_deref() == Some(COOKIE),
            "{start}"
        );
        let page = ask(&shop, "app.test", "/page?x=1", COOKIE)?;
        ensure!(page.status == 200 && page.endpoint().as_deref() == Some("app"), "{page}");
        ensure!(page.text().contains("alice"), "the endpoint is not told who it is: {page}");

        answers_by_status(&shop)?;
        until("a copy", || {
            let copies = shop.requests("copies")?;
            ensure!(copies == 1, "{copies}");
            Ok(())
        })
    });
}

/// The manifests of all hosts.
fn guide(port: u16) -> String {
    let mut text = String::from("$SERVICE(app: app)\n$SERVICE(copies: copies)\n")
        + &service("oauth2-proxy", port);
    text += &ingress("app", "app.test", "/", "app", &GUIDE);
    text += &ingress("oauth2-proxy", "app.test", "/oauth2", "oauth2-proxy", &[]);
    // The same by the name of the Service, of the Ingress's own namespace.
    let by_service = "http://oauth2-proxy.$namespace.svc.cluster.local/oauth2/auth";
    text += &ingress("service", "service.test", "/", "app", &[("auth-url", by_service)]);
    // What leads back to what it protects, and names that the client chooses.
    text += &ingress("circle", "circle.test", "/", "app", &[("auth-url", "https://$host/auth")]);
    text +=
        &ingress("free", "free.test", "/", "app", &[("auth-url", "https://$arg_to/oauth2/auth")]);
    text += &ingress(
        "copied",
        "copied.test",
        "/",
        "app",
        &[("mirror-target", "http://$host/copies$request_uri")],
    );
    text += &ingress("copies", "copied.test", "/copies", "copies", &[]);
    text += &ingress("strange", "strange.test", "/", "app", &GUIDE);
    text += &(service("oauth2-proxy", port)
        + &ingress("oauth2-proxy", "strange.test", "/oauth2/auth", "oauth2-proxy", &[]))
        .replace("metadata: {name: oauth2-proxy", "metadata: {namespace: other, name: oauth2-proxy")
        .replace(
            "name: oauth2-proxy\n  annotations",
            "name: oauth2-proxy\n  namespace: other\n  annotations",
        );
    let any = [("auth-url", "http://$host/oauth2/auth")];
    text += &ingress("any", "'*.default.svc'", "/", "app", &any);
    text
}

fn answers_by_status(shop: &Shop) -> Result<()> {
    ensure!(ask(shop, "service.test", "/", "a=b")?.status == 401);
    ensure!(ask(shop, "service.test", "/", COOKIE)?.status == 200);
    ensure!(ask(shop, "circle.test", "/", COOKIE)?.status == 500, "it asks itself");
    // What a client could choose at will is refused with the annotation.
    ensure!(ask(shop, "free.test", "/?to=app.test", COOKIE)?.status == 503);
    // Another namespace's rule says nothing about who may see this one's pages.
    ensure!(ask(shop, "strange.test", "/", COOKIE)?.status == 500, "a stranger was asked");
    // A wildcard host takes it, and what the client has sent as Host names a Service.
    ensure!(ask(shop, "oauth2-proxy.default.svc", "/", COOKIE)?.status == 500);
    ensure!(ask(shop, "copied.test", "/x", "a=b")?.status == 200);
    Ok(())
}
