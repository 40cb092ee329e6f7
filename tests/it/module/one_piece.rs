//! What the module writes in one piece is what nginx writes variable by variable: lines of the access log
//! (`ingress_log_line`) and headers for endpoints (`ingress_header_lines`).

use anyhow::{Context, Result, ensure};
use oxigress_tests::client::{Address, Connection, Request};
use oxigress_tests::endpoint::{Behaviour, Endpoint};
use oxigress_tests::pass;
use oxigress_tests::place::Directory;
use oxigress_tests::site::{Plan, Site};
use oxigress_tests::wait::{block_on, until};
use serde_json::json;
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};

/// The default format, and what else is read from the request or asked of nginx.
const FORMAT: &str = "$remote_addr - $remote_user [$time_local] \"$request\" $status $body_bytes_sent \"$http_referer\" \
     \"$http_user_agent\" $request_length $request_time [$proxy_upstream_name] [$proxy_alternative_upstream_name] \
     $upstream_addr $upstream_response_length $upstream_response_time $upstream_status $req_id ${http_x_Some}x \
     $arg_a $sent_http_x_endpoint $http_authorization $http_x_forwarded_for $bytes_sent $host $namespace $service_name $connection";

const HEADERS: [(&str, &str); 10] = [
    ("CDN-Loop", "$ingress_cdn_loop"),
    ("Host", "$ingress_upstream_host"),
    ("Upgrade", "$http_upgrade"),
    ("Connection", "$ingress_connection"),
    ("X-Request-ID", "$req_id"),
    ("X-Real-IP", "$remote_addr"),
    ("X-Forwarded-For", "$remote_addr, ${http_x_forwarded_for}"),
    ("X-Scheme", "$pass_access_scheme"),
    ("X-Original-URI", "$request_uri"),
    ("ssl-client-verify", "$ingress_client_verify"),
];

fn site(directory: &Directory, plan: &Plan, endpoints: &[&Endpoint]) -> Result<Site> {
    let site = Site::start(plan, directory)?;
    let origin = json!({"namespace": "ns", "service": "shop", "service_port": "80"});
    let rule = json!({"path": {"prefix": "/"}, "backend": "shop", "origin": origin});
    let all: Vec<_> = endpoints.iter().map(|endpoint| endpoint.native()).collect();
    let closed = json!({"path": {"prefix": "/"}, "backend": "shop", "policies": "closed"});
    let basic = json!({"realm": "x", "users": "jane:{PLAIN}secret"});
    let snapshot = json!({
        "servers": {"shop.test": {"rules": [rule]}, "closed.test": {"rules": [closed]},
            "_": {"rules": [{"path": {"prefix": "/nameless"}, "backend": "shop"}]}},
        "policies": {"closed": {"access": {"basic": basic}}},
        "backends": {"shop": {}}, "endpoints": {"shop": all}});
    let document = json!({"version": 1, "snapshot": snapshot}).to_string();
    let applied = block_on(site.configuration.put(document))?;
    ensure!(applied.status == 200, "{applied}");
    Ok(site)
}

/// Requests with and without what a log shows, some of them hostile.
fn requests() -> Vec<Request> {
    let get = |target: &str| Request::get("shop.test", target);
    vec![
        get("/"),
        get("/a?a=1&b=%22").header("User-Agent", "curl/8").header("Referer", "http://x.test/"),
        get("/\"quoted\\").header("User-Agent", "a\"b\\c\u{e9}").header("X-Some", "\"\\\t"),
        get("/").header("Referer", ""),
        get("/").header("X-Forwarded-For", "192.0.2.1").header("X-Forwarded-For", "192.0.2.2"),
        get("/").header("X-Forwarded-For", "192.0.2.1").header("X-Request-ID", "my\"id"),
        get("/").header("Authorization", "Basic dXNlciJ4OnA="),
        get("/").header("Authorization", "Bearer x"),
        // ACCESS takes away what it has looked at: no log shows it.
        Request::get("closed.test", "/").header("Authorization", "Basic amFuZTpzZWNyZXQ="),
        Request::get("closed.test", "/").header("Authorization", "Basic amFuZTp3cm9uZw=="),
        get("/").header("Upgrade", "websocket").header("Connection", "upgrade"),
        get("/").header("Upgrade", "a").header("Upgrade", "b"),
        get("/").header("Answer-Status", "404"),
        Request::get("else.where", "/"),
        Request::new("POST", "shop.test", "/up").body(vec![b'x'; 3_000]),
        Request::new("HEAD", "shop.test", "/head"),
    ]
}

#[test]
fn lines_of_the_access_log_are_nginxs_own() {
    pass("one-piece-log", |directory| {
        let mut plan = Plan::router(1)?;
        for escape in ["default", "json", "none"] {
            plan.http_config += &format!(
                "log_format stock_{escape} escape={escape} '{FORMAT}';
                 ingress_log_line $line_{escape} escape={escape} '{FORMAT}';
                 log_format ours_{escape} escape=none $line_{escape};
                 access_log $DIR/stock_{escape}.log stock_{escape};
                 access_log $DIR/ours_{escape}.log ours_{escape};\n"
            );
        }
        let closed = Endpoint::with("closed", Behaviour::Refuse, Ipv4Addr::LOCALHOST.into())?;
        let open = Endpoint::start("open")?;
        let site = site(directory, &plan, &[&closed, &open])?;
        let mut sent = 0;
        for address in [site.http(), Address::https(site.https_port, "shop.test")] {
            for request in requests() {
                let mut client = block_on(Connection::open(&address))?;
                // What is no request for nginx is logged too, whatever the client gets.
                let _ = block_on(client.send(&request));
                sent += 1;
            }
        }
        for escape in ["default", "json", "none"] {
            let read = |name: &str| fs::read(directory.join(format!("{name}_{escape}.log")));
            until("all lines to be written", || {
                let lines = read("ours")?.split(|byte| *byte == b'\n').count();
                ensure!(lines > sent, "{lines} of {sent}");
                Ok(())
            })?;
            let (stock, ours) = (read("stock")?, read("ours")?);
            let pairs = stock.split(|byte| *byte == b'\n').zip(ours.split(|byte| *byte == b'\n'));
            for (stock, ours) in pairs {
                let shown = |line: &[u8]| String::from_utf8_lossy(line).into_owned();
                ensure!(stock == ours, "{escape}\n{}\n{}", shown(stock), shown(ours));
            }
            ensure!(stock.len() == ours.len());
            let text = String::from_utf8_lossy(&stock);
            ensure!(text.contains(", 127.0.0.1:"), "no request had two attempts:\n{text}");
            ensure!(!text.contains("amFuZTpzZWNyZXQ="), "a password is logged:\n{text}");
            ensure!(text.contains(" jane "), "nobody was let in:\n{text}");
        }
        Ok(())
    });
}

/// The head of a request as its endpoint saw it, without what differs between two sites.
fn heads(directory: &Directory, config: &str, http_config: &str) -> Result<Vec<String>> {
    let mut plan = Plan::router(1)?;
    (plan.location_config, plan.http_config) = (config.into(), http_config.into());
    let endpoint = Endpoint::start("open")?;
    let site = site(directory, &plan, &[&endpoint])?;
    let mut heads = Vec::new();
    for request in requests() {
        let request = match request.has("X-Request-ID") {
            true => request,
            false => request.header("X-Request-ID", "the-id"),
        };
        // What the client says of these is not passed on.
        let request = request.header("X-Scheme", "client").header("SSL-Client-Verify", "SUCCESS");
        let mut client = block_on(Connection::open(&site.http()))?;
        let answer = block_on(client.send(&request))?;
        let (_, headers) = answer.text().split_once('\n').context("a head").map_or_else(
            |_| (String::new(), answer.status.to_string()),
            |(line, rest)| (line.to_owned(), rest.to_owned()),
        );
        let mut lines: Vec<_> = headers.lines().map(str::to_owned).collect();
        lines.sort();
        heads.push(lines.join("\n"));
    }
    // A client that names no host: nothing names one for it.
    let mut client = TcpStream::connect((Ipv4Addr::LOCALHOST, site.http_port))?;
    client.write_all(b"GET /nameless HTTP/1.0\r\nX-Request-ID: the-id\r\n\r\n")?;
    let mut answer = String::new();
    client.read_to_string(&mut answer)?;
    let (_, head) = answer.split_once("GET /nameless").context("the head of the request")?;
    // From 1.29.7 on nginx speaks HTTP/1.1 to endpoints unasked, which needs a host: the upstream's name.
    ensure!(!head.contains("host:") || head.starts_with(" HTTP/1.1"), "{head}");
    let mut lines: Vec<_> = head.lines().map(str::to_owned).collect();
    lines.sort();
    heads.push(lines.join("\n"));
    Ok(heads)
}

#[test]
fn headers_for_endpoints_are_nginxs_own() {
    pass("one-piece-headers", |directory| {
        let each = HEADERS.map(|(name, value)| format!("proxy_set_header {name} \"{value}\";\n"));
        let stock = heads(&directory.within("stock")?, &each.concat(), "")?;
        // From 1.31.4 on nginx puts the name of the upstream in place of an empty Host.
        let others = HEADERS.iter().filter(|(name, _)| *name != "Host");
        let all: Vec<_> = others.map(|(name, value)| format!("{name} \"{value}\"\n")).collect();
        let block = format!("ingress_header_lines $head {};", all.concat());
        let mut hidden = String::from("proxy_set_header CDN-Loop $head;\n");
        for (name, _) in &HEADERS[1..] {
            let value = if *name == "Host" { "$ingress_upstream_host" } else { "\"\"" };
            hidden += &format!("proxy_set_header {name} {value};\n");
        }
        let ours = heads(&directory.within("ours")?, &hidden, &block)?;
        for (stock, ours) in stock.iter().zip(&ours) {
            ensure!(stock == ours, "nginx:\n{stock}\nours:\n{ours}");
        }
        let all = stock.concat();
        for part in ["upgrade: websocket", "x-forwarded-for: 127.0.0.1, 192.0.2.1", "the-id"] {
            ensure!(all.contains(part), "{part} in\n{all}");
        }
        ensure!(!all.contains("client") && !all.contains("SUCCESS"), "{all}");
        Ok(())
    });
}
