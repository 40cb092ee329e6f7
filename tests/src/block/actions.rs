//! Actions.

use super::Step;
use super::setup::{Fixture, Server, pairs};
use super::short::{self, Endpoints, Line, Url};
use crate::client::{self, Address, Connection, Request, Response};
use crate::endpoint::Behaviour;
use crate::nginx::Configuration;
use crate::wait::{self, block_on};
use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use tokio::task::JoinHandle;

#[derive(Default)]
pub struct Answer {
    /// The last request as it was sent.
    pub request: Option<Request>,
    pub responses: Vec<Response>,
    /// What their status is when the block does not say.
    pub default_status: u16,
}

impl Answer {
    fn of(request: Request, response: Response, default_status: u16) -> Self {
        Answer { request: Some(request), responses: vec![response], default_status }
    }
}

/// Does what the step's section says.
pub fn run(step: &Step<'_>, fixture: &mut Fixture) -> Result<Answer> {
    let arguments = fixture.variables.expand(&step.action.arguments)?;
    let value = fixture.variables.expand(&step.action.value)?;
    match step.action.name.as_str() {
        "configuration" => configure(step, fixture, "PUT", "/configuration", value),
        "ingress" => {
            let body = ingress(fixture, &value)?;
            configure(step, fixture, "PUT", "/configuration", body)
        }
        "put" => configure(step, fixture, "PUT", path(&arguments), value),
        "patch" => configure(step, fixture, "PATCH", "/configuration", value),
        "post" => configure(step, fixture, "POST", path(&arguments), value),
        "get" => configure(step, fixture, "GET", path(&arguments), value),
        "request" => request(step, fixture, &arguments, &value),
        "raw_request" => raw_request(fixture, &arguments, &value),
        "pipelined_requests" => pipelined_requests(fixture, &value),
        "requests" => requests(step, fixture, &arguments, &value),
        "held" => hold(step, fixture, &value),
        "answers" => answers(fixture),
        "tls" => tls(fixture, &value),
        "kubernetes" => kubernetes(fixture, &value),
        "manifests" | "remove_manifest" => manifests(step, fixture, &arguments, &value),
        "behaviour" => behaviour(fixture, &value),
        "close_idle" => close_idle(fixture, &value),
        "kill_worker" | "reload" => replace_workers(step, fixture),
        name => bail!("no action {name}"),
    }
}

fn path(arguments: &str) -> &str {
    if arguments.is_empty() { "/configuration" } else { arguments }
}

fn ingress(fixture: &Fixture, value: &str) -> Result<String> {
    let rules = short::rules(value)?;
    let beside = fixture.variables.expand(&fixture.snapshot)?;
    let is_named = |name: &&String| beside.contains(&format!("\"{name}\""));
    let of_rules = rules.iter().filter_map(|rule| rule.backend.as_ref());
    let mut backends: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for name in of_rules.chain(fixture.backends.keys().filter(is_named)) {
        let endpoints = fixture.backends.get(name).context("a backend without endpoints")?;
        let find = |name| fixture.variables.endpoints.get(name).map(|e| e.native());
        let list: Option<Vec<_>> = endpoints.iter().map(find).collect();
        backends.insert(name.clone(), list.with_context(|| format!("endpoints of {name}"))?);
    }
    let mut snapshot = short::snapshot(&rules, &backends);
    if !beside.is_empty() {
        let tables: BTreeMap<String, Value> =
            serde_json::from_str(&beside).context("--- snapshot")?;
        for (name, table) in tables {
            match (snapshot[&name].as_object_mut(), table) {
                (Some(all), Value::Object(more)) => all.extend(more),
                (_, table) => snapshot[&name] = table,
            }
        }
    }
    Ok(json!({"version": 1, "snapshot": snapshot}).to_string())
}

/// Endpoints close their idle connections; done when nothing of them is left.
fn close_idle(fixture: &Fixture, value: &str) -> Result<Answer> {
    for name in value.split_whitespace() {
        let endpoint = fixture.variables.endpoints.get(name).context("no such endpoint")?;
        endpoint.close_idle();
        wait::until("closed connections", || {
            let open = endpoint.open_connections();
            ensure!(open == 0, "{open} connections of {name} are open");
            Ok(())
        })?;
    }
    Ok(Answer::default())
}

/// A request to the configuration endpoint.
fn configure(
    step: &Step<'_>,
    fixture: &mut Fixture,
    method: &str,
    path: &str,
    body: String,
) -> Result<Answer> {
    let mut request = Configuration::request(method, path, body);
    if method == "PATCH" {
        if fixture.tag.is_none() {
            fixture.tag = Some(block_on(fixture.configuration.tag())?);
        }
        let tag = fixture.tag.clone().unwrap_or_default();
        request = request.header("If-Match", &format!("\"{tag}\""));
    }
    more_headers(step, fixture, &mut request)?;
    let response = block_on(fixture.configuration.send(&request))?;
    if let Some(tag) = response.header("etag").filter(|_| response.status < 300) {
        fixture.tag = Some(tag.trim_matches('"').to_owned());
    } else if response.status == 201 {
        fixture.tag = None;
    }
    Ok(Answer::of(request, response, if method == "POST" { 201 } else { 200 }))
}

/// `Name: value` sets a header in place of one of that name, `!Name` takes it away.
fn more_headers(step: &Step<'_>, fixture: &Fixture, request: &mut Request) -> Result<()> {
    let Some(section) = step.section("more_headers") else { return Ok(()) };
    let text = fixture.variables.expand(&section.value)?;
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let name = line.strip_prefix('!').or_else(|| line.split(':').next()).unwrap_or(line).trim();
        request.headers.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
    }
    for line in text.lines().filter(|line| !line.starts_with('!') && !line.trim().is_empty()) {
        let (name, value) = line.split_once(':').context("more_headers: `Name: value`")?;
        request.headers.push((name.trim().into(), value.trim().into()));
    }
    Ok(())
}

/// Request line, headers, an empty line, body.
fn request(step: &Step<'_>, fixture: &mut Fixture, arguments: &str, value: &str) -> Result<Answer> {
    let (head, body) = value.split_once("\n\n").unwrap_or((value, ""));
    let mut lines = head.lines();
    let mut words = lines.next().context("a request line")?.split_whitespace();
    let method = words.next().context("a method")?.to_owned();
    let url = Url::parse(words.next().unwrap_or("/"))?;
    let mut request =
        Request { method, target: url.target.clone(), ..Request::default() }.body(body.to_owned());
    for line in lines {
        let (name, value) = line.split_once(':').context("headers: `Name: value`")?;
        request.headers.push((name.trim().into(), value.trim().into()));
    }
    more_headers(step, fixture, &mut request)?;
    if !request.has("host") {
        request = request.header("Host", &url.authority());
    }
    let address = match arguments.split_whitespace().collect::<Vec<_>>().as_slice() {
        [] => fixture.address(&url),
        ["configuration"] => fixture.configuration.address.clone(),
        ["as", uid] => match &fixture.configuration.address {
            Address::Unix(path) => Address::UnixAs(path.clone(), uid.parse()?),
            other => bail!("{other:?} has no peer"),
        },
        other => bail!("--- request {other:?}"),
    };
    let response = block_on(client::send(&address, &request))?;
    remember_cookie(fixture, &response);
    let known = |name: &String| fixture.variables.endpoints.contains_key(name);
    if let Some(endpoint) = response.endpoint().filter(known) {
        bind(fixture, "last", &endpoint)?;
    }
    Ok(Answer::of(request, response, 200))
}

fn raw_request(fixture: &mut Fixture, arguments: &str, value: &str) -> Result<Answer> {
    let address = match arguments {
        "" => fixture.http(),
        "configuration" => fixture.configuration.address.clone(),
        other => bail!("--- raw_request {other}"),
    };
    let mut text = value.replace('\n', "\r\n");
    if !value.contains("\n\n") {
        text.push_str("\r\n\r\n");
    }
    let responses = block_on(client::send_raw(&address, text.as_bytes(), 1))?;
    ensure!(!responses.is_empty(), "closed without an answer");
    let request = Request { method: text, ..Request::default() };
    Ok(Answer { request: Some(request), responses, default_status: 200 })
}

/// Requests without body, divided by empty lines, in one write.
fn pipelined_requests(fixture: &mut Fixture, value: &str) -> Result<Answer> {
    let requests: Vec<_> = value.split("\n\n").filter(|r| !r.trim().is_empty()).collect();
    let text: String =
        requests.iter().map(|r| r.trim().replace('\n', "\r\n") + "\r\n\r\n").collect();
    let responses = block_on(client::send_raw(&fixture.http(), text.as_bytes(), requests.len()))?;
    ensure!(
        responses.len() == requests.len(),
        "{} answers to {} requests",
        responses.len(),
        requests.len()
    );
    let request = Request { method: text, ..Request::default() };
    Ok(Answer { request: Some(request), responses, default_status: 200 })
}

fn requests(
    step: &Step<'_>,
    fixture: &mut Fixture,
    arguments: &str,
    value: &str,
) -> Result<Answer> {
    for line in short::lines(value)? {
        let mut request = Request::new(&line.method, &line.url.authority(), &line.url.target);
        more_headers(step, fixture, &mut request)?;
        let responses = match arguments {
            "" => kept(fixture, &line, &request),
            "fresh" => fresh(fixture, &line, &request),
            other => bail!("--- requests {other}"),
        };
        let checked = responses.and_then(|responses| check(fixture, &line, &responses));
        checked.with_context(|| told(&line))?;
    }
    Ok(Answer::default())
}

fn told(line: &Line) -> String {
    let scheme = if line.url.is_tls { "https" } else { "http" };
    format!("{} {scheme}://{}{}", line.method, line.url.host, line.url.target)
}

/// The line's requests, one after the other, on the connection that was kept from before.
fn kept(fixture: &mut Fixture, line: &Line, request: &Request) -> Result<Vec<Response>> {
    let address = fixture.address(&line.url);
    let key = format!("{address:?}");
    let mut responses = Vec::new();
    for _ in 0..line.times {
        let mut connection = match fixture.connections.remove(&key) {
            Some(connection) if !connection.is_closed() => connection,
            _ => block_on(Connection::open(&address))?,
        };
        let response = block_on(connection.send(request))?;
        if response.header("connection").as_deref() != Some("close") {
            fixture.connections.insert(key.clone(), connection);
        }
        responses.push(response);
    }
    Ok(responses)
}

fn fresh(fixture: &Fixture, line: &Line, request: &Request) -> Result<Vec<Response>> {
    let address = fixture.address(&line.url);
    (0..line.times).map(|_| block_on(client::send(&address, request))).collect()
}

/// The line's requests, all at once, on a connection each.
fn in_background(
    fixture: &Fixture,
    line: &Line,
    request: &Request,
) -> Vec<JoinHandle<Result<Response>>> {
    let one = || {
        let (address, request) = (fixture.address(&line.url), request.clone());
        wait::runtime().spawn(async move { client::send(&address, &request).await })
    };
    (0..line.times).map(|_| one()).collect()
}

/// Sends the lines' requests and goes on when the endpoints have them all.
fn hold(step: &Step<'_>, fixture: &mut Fixture, value: &str) -> Result<Answer> {
    for line in short::lines(value)? {
        let mut request = Request::new(&line.method, &line.url.authority(), &line.url.target);
        more_headers(step, fixture, &mut request)?;
        let arrived = |fixture: &Fixture| {
            fixture.variables.endpoints.values().map(|e| e.requests()).sum::<u64>()
        };
        let goal = arrived(fixture) + u64::from(line.times);
        let tasks = in_background(fixture, &line, &request);
        wait::until("requests at the endpoints", || {
            let count = arrived(fixture);
            ensure!(count >= goal, "{count} of {goal}");
            Ok(())
        })
        .with_context(|| told(&line))?;
        fixture.held.push((line, tasks));
    }
    Ok(Answer::default())
}

/// Waits for the answers of what is held.
fn answers(fixture: &mut Fixture) -> Result<Answer> {
    for (line, tasks) in std::mem::take(&mut fixture.held) {
        let answered = tasks.into_iter().map(|task| block_on(task)?).collect::<Result<Vec<_>>>();
        let checked = answered.and_then(|responses| check(fixture, &line, &responses));
        checked.with_context(|| told(&line))?;
    }
    Ok(Answer::default())
}

fn check(fixture: &mut Fixture, line: &Line, responses: &[Response]) -> Result<()> {
    let mut counts: BTreeMap<String, u32> = BTreeMap::new();
    for response in responses {
        ensure!(response.status == line.status, "expected {}\n{response}", line.status);
        let endpoint = response.endpoint();
        match &line.endpoints {
            Endpoints::None => ensure!(endpoint.is_none(), "expected no endpoint\n{response}"),
            Endpoints::OneOf(names) => ensure!(
                endpoint.as_ref().is_some_and(|name| names.contains(name)),
                "expected endpoint {names:?}\n{response}"
            ),
            Endpoints::Named(name) => match fixture.named.get(name) {
                None => bind(fixture, name, endpoint.as_deref().context("no endpoint")?)?,
                known => ensure!(endpoint.as_ref() == known, "{name} is {known:?}\n{response}"),
            },
            Endpoints::NotNamed(name) => {
                let known = fixture.named.get(name).with_context(|| format!("nobody is {name}"))?;
                let is_other = endpoint.as_ref().is_some_and(|found| found != known);
                ensure!(is_other, "{name} is {known}\n{response}");
            }
            Endpoints::Any | Endpoints::Counts(_) => {}
        }
        if let Some(expected) = &line.location {
            let location = response.header("location");
            ensure!(location.as_ref() == Some(expected), "expected {expected}\n{response}");
        }
        remember_cookie(fixture, response);
        *counts.entry(endpoint.unwrap_or_else(|| "-".into())).or_default() += 1;
    }
    if let Endpoints::Counts(expected) = &line.endpoints {
        let total: u32 = counts.values().sum();
        ensure!(
            counts.keys().all(|name| expected.contains_key(name)),
            "{total} answers came from {counts:?}"
        );
        for (name, (count, slack)) in expected {
            let found = counts.get(name).copied().unwrap_or_default();
            ensure!(found.abs_diff(*count) <= *slack, "{total} answers came from {counts:?}");
        }
    }
    Ok(())
}

/// Gives an endpoint a name, and texts for the others.
fn bind(fixture: &mut Fixture, name: &str, endpoint: &str) -> Result<()> {
    let all = &fixture.variables.endpoints;
    let own = all.get(endpoint).context("an unknown endpoint")?;
    let others = || all.values().filter(|other| other.name != endpoint);
    let join = |all: Vec<Value>| all.iter().map(Value::to_string).collect::<Vec<_>>().join(", ");
    let texts = [
        (format!("ENDPOINT_{name}"), own.native().to_string()),
        (format!("COMPAT_{name}"), own.compatible().to_string()),
        (format!("OTHERS_{name}"), join(others().map(|e| e.native()).collect())),
        (format!("COMPAT_OTHERS_{name}"), join(others().map(|e| e.compatible()).collect())),
    ];
    fixture.variables.texts.extend(texts);
    fixture.named.insert(name.into(), endpoint.into());
    Ok(())
}

/// `$COOKIE`: what a client sends back.
fn remember_cookie(fixture: &mut Fixture, response: &Response) {
    let all = response.headers.get_all("set-cookie").iter();
    if let Some(value) = all.filter_map(|value| value.to_str().ok()).next_back() {
        let pair = value.split(';').next().unwrap_or_default();
        fixture.variables.texts.insert("COOKIE".into(), pair.to_owned());
    }
}

/// Lines `server name => common name`; `-` for a handshake without SNI.
fn tls(fixture: &mut Fixture, value: &str) -> Result<Answer> {
    for line in value.lines().filter(|line| !line.trim().is_empty()) {
        let (name, expected) = line.split_once("=>").context("tls: `name => common name`")?;
        let (name, expected) = (name.trim(), expected.trim());
        let address = fixture.https((name != "-").then_some(name));
        let look = || {
            let found = block_on(client::handshake(&address))?;
            ensure!(found == expected, "{name} got certificate `{found}`, expected `{expected}`");
            Ok(())
        };
        // A controller reads the Secrets of a cluster one by one, when it sees that they are needed.
        match fixture.tenant {
            Some(_) => wait::until("a certificate", look)?,
            None => look()?,
        }
    }
    Ok(Answer::default())
}

fn manifests(step: &Step<'_>, fixture: &mut Fixture, name: &str, value: &str) -> Result<Answer> {
    let Server::Controller(controller) = &mut fixture.server else {
        bail!("no controller in this block: it has no --- manifests");
    };
    let name = if name.is_empty() { "block.yaml" } else { name };
    match step.action.name.as_str() {
        "manifests" => controller.serve(name, value)?,
        _ => controller.remove(name)?,
    }
    Ok(Answer::default())
}

/// Applies objects to the cluster, and returns when they are served.
fn kubernetes(fixture: &mut Fixture, value: &str) -> Result<Answer> {
    let (Some(tenant), Server::Controller(controller)) = (&mut fixture.tenant, &fixture.server)
    else {
        bail!("--- kubernetes and --- manifests are for blocks of their own");
    };
    tenant.apply(value)?;
    tenant.settle(controller)?;
    Ok(Answer::default())
}

fn behaviour(fixture: &mut Fixture, value: &str) -> Result<Answer> {
    for (name, behaviour) in pairs(value)? {
        let name = match name.strip_prefix('@') {
            Some(name) => fixture.named.get(name).context("nobody has this name")?,
            None => &name,
        };
        let endpoint = fixture.variables.endpoints.get(name).context("no such endpoint")?;
        endpoint.change(Behaviour::parse(&behaviour)?);
    }
    Ok(Answer::default())
}

fn replace_workers(step: &Step<'_>, fixture: &mut Fixture) -> Result<Answer> {
    let Server::Nginx(nginx) = &mut fixture.server else {
        bail!("only without a controller");
    };
    match step.action.name.as_str() {
        "reload" => nginx.reload()?,
        _ => nginx.kill_worker(*nginx.worker_pids().first().context("no worker")?)?,
    }
    fixture.worker_pids = nginx.worker_pids();
    fixture.connections.clear();
    fixture.allow_in_log("exited on signal 9");
    Ok(Answer::default())
}
