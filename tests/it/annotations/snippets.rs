//! Snippets mean what they mean to nginx: each of `tables/snippets.txt` is tried twice, pasted into a stock nginx.conf and
//! as snippets of an Ingress, with the same requests, and the answers are compared. Those of `tables/snippets-every.txt`
//! have the ConfigMap's snippets behind them, those of `tables/snippets-http.txt` the variables of its `http-snippet`.

use anyhow::{Context, Result, ensure};
use oxigress_tests::client::{Address, Request, Response, send};
use oxigress_tests::controller::Controller;
use oxigress_tests::endpoint::Endpoint;
use oxigress_tests::nginx::Nginx;
use oxigress_tests::pass;
use oxigress_tests::place::{Directory, free_port};
use oxigress_tests::variables::Variables;
use oxigress_tests::wait::block_on;
use std::fmt::Write as _;

const TABLE: &str = include_str!("../../tables/snippets.txt");
const WITH_CONFIGMAP: &str = include_str!("../../tables/snippets-every.txt");
const WITH_VARIABLES: &str = include_str!("../../tables/snippets-http.txt");

/// A snippet and what is asked of it.
struct Case {
    name: String,
    /// As an annotation.
    ours: String,
    /// In the stock nginx.conf, which has no headers-more.
    stock: String,
    /// Around the location, of both.
    server: String,
    /// About the auth server, which is asked where this says something.
    auth: String,
    /// The same in the stock nginx.conf.
    stock_auth: String,
    /// Method, target and headers.
    requests: Vec<String>,
}

/// What the ConfigMap says of all locations and servers.
#[derive(Default)]
struct Every {
    location: String,
    server: String,
    /// Outside all servers.
    http: String,
}

/// The ports of the stock nginx.
struct Ports {
    stock: u16,
    auth: u16,
}

fn cases(table: &str) -> Result<(Vec<Case>, Every)> {
    let (mut all, mut every): (Vec<Case>, _) = (Vec::new(), Every::default());
    let mut part = "";
    for line in table.lines().filter(|line| !line.starts_with("## ")) {
        if let Some(name) = line.strip_prefix("=== ") {
            let (name, empty) = (name.to_owned(), String::new);
            all.push(Case {
                name,
                ours: empty(),
                stock: empty(),
                server: empty(),
                auth: empty(),
                stock_auth: empty(),
                requests: Vec::new(),
            });
            part = "snippet";
            continue;
        }
        if let Some(name) = line.strip_prefix("--- ") {
            part = name;
            continue;
        }
        match part {
            "every location" => writeln!(every.location, "{line}")?,
            "every server" => writeln!(every.server, "{line}")?,
            "every http" => writeln!(every.http, "{line}")?,
            _ => {}
        }
        let Some(case) = all.last_mut() else { continue };
        match part {
            "snippet" => writeln!(case.ours, "{line}")?,
            "stock" => writeln!(case.stock, "{line}")?,
            "server" => writeln!(case.server, "{line}")?,
            "auth" => writeln!(case.auth, "{line}")?,
            "stock auth" => writeln!(case.stock_auth, "{line}")?,
            "requests" if line.is_empty() => {}
            "requests" => case.requests.push(line.to_owned()),
            part => anyhow::bail!("{}: no part {part}", case.name),
        }
    }
    for case in &mut all {
        if case.stock.is_empty() {
            case.stock = case.ours.clone();
        }
        if case.stock_auth.is_empty() {
            case.stock_auth = case.auth.clone();
        }
        if case.requests.is_empty() {
            case.requests.push("GET /a/b?c=d".into());
        }
    }
    Ok((all, every))
}

/// The stock nginx, which is the auth server of both too.
fn stock(
    directory: &Directory,
    (cases, every): &(Vec<Case>, Every),
    endpoint: &Endpoint,
    ports: &Ports,
) -> Result<Nginx> {
    let mut text =
        "daemon off;\npid nginx.pid;\nevents {}\nhttp {\naccess_log off;\nserver_tokens off;\n\
                    port_in_redirect off;\nserver_names_hash_max_size 4096;\n\
                    default_type text/html;\ntypes { text/plain txt; application/json json; }\n"
            .to_owned();
    for module in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"] {
        writeln!(text, "{module}_temp_path {module};")?;
    }
    text += &every.http;
    let (port, auth) = (ports.stock, ports.auth);
    writeln!(
        text,
        "server {{\nlisten 127.0.0.1:{auth};\nlocation / {{\nif ($http_x_door = shut) {{ return 403; }}\n\
         if ($http_x_door = unknown) {{ return 401; }}\n\
         add_header X-Seen \"$request_method [$http_x_a] [$http_x_b]\" always;\nreturn 200;\n}}\n}}"
    )?;
    for (number, case) in cases.iter().enumerate() {
        let (to, snippet, around) = (endpoint.address, &case.stock, &case.server);
        let (mut asking, mut asked) = (String::new(), String::new());
        if !case.stock_auth.is_empty() {
            asking = "auth_request /asked;\nauth_request_set $seen $upstream_http_x_seen;\n\
                      proxy_set_header X-Seen $seen;\n"
                .into();
            asked = format!(
                "location = /asked {{\ninternal;\nproxy_pass_request_body off;\nproxy_set_header Content-Length \"\";\n\
                 proxy_set_header X-Forwarded-Proto \"\";\n{}proxy_pass http://127.0.0.1:{auth}/check;\n}}\n",
                case.stock_auth
            );
        }
        let Every { location, server, http: _ } = every;
        writeln!(
            text,
            "server {{\nlisten 127.0.0.1:{port};\nserver_name s{number}.test;\nproxy_http_version 1.1;\n\
             proxy_buffering off;\n{around}{asked}location / {{\n{asking}proxy_pass http://{to};\n\
             {snippet}{location}}}\n{server}}}"
        )?;
    }
    Nginx::start(directory, &(text + "}\n"), 1)
}

fn product(
    directory: &Directory,
    (cases, every): &(Vec<Case>, Every),
    endpoint: Endpoint,
    ports: &Ports,
) -> Result<Controller> {
    let flags = ["--configmap=default/settings".to_owned()];
    let mut controller = Controller::start(directory, 1, &flags)?;
    let mut variables = Variables::default();
    variables.endpoints.insert("a".into(), endpoint);
    let mut text = variables.expand("$SERVICE(shop: a)")?;
    let data = serde_json::json!({
        "allow-snippet-annotations": "true",
        "location-snippet": every.location,
        "server-snippet": every.server,
        "http-snippet": every.http,
    });
    writeln!(
        text,
        "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{ name: settings, namespace: default }}\ndata: {data}"
    )?;
    for (number, case) in cases.iter().enumerate() {
        let snippet = serde_json::Value::from(case.ours.as_str());
        let around = serde_json::Value::from(case.server.as_str());
        let asked = match case.auth.as_str() {
            "" => String::new(),
            auth => format!(
                "    nginx.ingress.kubernetes.io/auth-url: http://127.0.0.1:{}/check\n    \
                 nginx.ingress.kubernetes.io/auth-response-headers: X-Seen\n    \
                 nginx.ingress.kubernetes.io/auth-snippet: {}\n",
                ports.auth,
                serde_json::Value::from(auth)
            ),
        };
        writeln!(
            text,
            "---\napiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata:\n  name: s{number}\n  namespace: default\n  \
             annotations:\n    kubernetes.io/ingress.class: nginx\n    \
             nginx.ingress.kubernetes.io/configuration-snippet: {snippet}\n    \
             nginx.ingress.kubernetes.io/server-snippet: {around}\n{asked}spec:\n  rules:\n  - host: s{number}.test\n    \
             http:\n      paths:\n      - {{ path: /, pathType: Prefix, backend: {{ service: {{ name: shop, port: {{ \
             number: 80 }} }} }} }}"
        )?;
    }
    controller.serve("shop.yaml", &text)?;
    // The endpoint answers until the process ends.
    std::mem::forget(variables);
    Ok(controller)
}

fn request(line: &str, host: &str) -> Result<Request> {
    let mut parts = line.split(" | ");
    let (method, target) =
        parts.next().and_then(|first| first.split_once(' ')).context("METHOD TARGET")?;
    parts.try_fold(Request::new(method, host, target), |request, header| {
        let (name, value) = header.split_once(':').context("NAME: VALUE")?;
        Ok(request.header(name, value.trim_start()))
    })
}

/// Headers that the two write differently, whatever a snippet says.
fn is_own(name: &str) -> bool {
    let own = [
        "date",
        "server",
        "connection",
        "keep-alive",
        "transfer-encoding",
        "x-endpoint-requests",
        "content-length",
        "host",
        "cdn-loop",
        "x-request-id",
        "x-real-ip",
        "x-scheme",
        "te",
    ];
    own.contains(&name) || name.starts_with("x-forwarded-") || name.starts_with("x-original-")
}

/// A date as so many seconds after the answer's own: the two are not asked at the same time.
fn dated(value: &str, answer: &Response) -> String {
    let date = |text: &str| httpdate::parse_http_date(text).ok();
    let own = answer.headers.get("date").and_then(|value| date(value.to_str().ok()?));
    let is_fixed = ["1970", "2037"].iter().any(|year| value.contains(year));
    match own.zip(date(value)).filter(|_| !is_fixed) {
        Some((own, at)) => match at.duration_since(own) {
            Ok(after) => format!("{} s after Date", after.as_secs()),
            Err(before) => format!("{} s before Date", before.duration().as_secs()),
        },
        None => value.to_owned(),
    }
}

/// What is compared of an answer.
fn shown(answer: Result<Response>) -> String {
    // A connection that is closed without an answer is one, too.
    let Ok(answer) = answer else { return "closed".into() };
    let mut headers: Vec<_> = answer
        .headers
        .iter()
        .filter(|(name, _)| !is_own(name.as_str()))
        .map(|(name, value)| match (name.as_str(), String::from_utf8_lossy(value.as_bytes())) {
            ("expires", value) => format!("expires: {}", dated(&value, &answer)),
            (name, value) => format!("{name}: {value}"),
        })
        .collect();
    headers.sort();
    let body = match answer.endpoint() {
        None => answer.text(),
        Some(_) => {
            let text = answer.text();
            let is_kept = |line: &&str| line.split_once(": ").is_none_or(|(name, _)| !is_own(name));
            let mut lines: Vec<_> = text.lines().filter(is_kept).collect();
            // Their order says nothing.
            if let Some(headers) = lines.get_mut(1..) {
                headers.sort_unstable();
            }
            lines.join("\n")
        }
    };
    format!("{}\n{}\n\n{body}", answer.status, headers.join("\n"))
}

/// Asks both the same.
fn compare(directory: &Directory, table: &str) -> Result<()> {
    let table = cases(table)?;
    let endpoint = Endpoint::start("a")?;
    let ports = Ports { stock: free_port()?, auth: free_port()? };
    let _stock = stock(&directory.within("stock")?, &table, &endpoint, &ports)?;
    let product = product(&directory.within("product")?, &table, endpoint, &ports)?;
    let (mut equal, mut different) = (0, String::new());
    let (cases, _) = &table;
    for (number, case) in cases.iter().enumerate() {
        for line in &case.requests {
            let request = request(line, &format!("s{number}.test"))?;
            let ask = |port| shown(block_on(send(&Address::http(port), &request)));
            let (expected, found) = (ask(ports.stock), ask(product.http_port));
            match expected == found {
                true => equal += 1,
                false => writeln!(
                    different,
                    "{}: {line}\nstock nginx:\n{expected}\nhere:\n{found}\n",
                    case.name
                )?,
            }
        }
    }
    let asked: usize = cases.iter().map(|case| case.requests.len()).sum();
    println!("{} snippets, {equal} of {asked} answers equal", cases.len());
    ensure!(different.is_empty(), "{different}\n{}", product.output_tail());
    Ok(())
}

#[test]
fn snippets_answer_as_in_a_stock_nginx() {
    pass("snippets", |directory| compare(directory, TABLE));
}

#[test]
fn snippets_answer_so_with_those_of_the_configmap_behind_them() {
    pass("snippets-every", |directory| compare(directory, WITH_CONFIGMAP));
}

#[test]
fn snippets_answer_so_with_variables_of_the_http_level() {
    pass("snippets-http", |directory| compare(directory, WITH_VARIABLES));
}
