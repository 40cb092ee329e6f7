//! `oxigress explain`: where a request goes, of a running nginx or of a folder of manifests, readable or as JSON.

use super::{ExplainArgs, Output, read, socket};
use crate::check::input::read_path;
use anyhow::{Context, anyhow, bail};
use oxigress_core::explain::{self, Backend, ExplainRequest, Explanation, Rule};
use oxigress_core::model::StreamPort;
use oxigress_core::patterns::Patterns;
use oxigress_core::record::{Kind, snapshot_records};
use oxigress_core::text::count;
use oxigress_objects::{Changed, World};
use oxigress_settings::conf_input::{ConfInput, HttpListener};
use oxigress_translate::Translator;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::PathBuf;

/// Asks nginx, or decides from manifests, and answers the text or JSON that is printed.
pub async fn run(question: &ExplainArgs) -> anyhow::Result<String> {
    let mut asked = asked(&question.request, &question.headers)?;
    let subject = Subject::of(question)?;
    let has_port = asked.port != 0;
    if !has_port {
        let flags = &question.flags;
        asked.port = if asked.is_https { flags.tls_port() } else { flags.http_port };
    }
    let mut told = subject.explain(&asked).await?;
    let mut place = Place::Asked;
    if !has_port && is_nobodys(&told) {
        let mut found = elsewhere(&subject, question, &asked).await?;
        place = match found.len() {
            0 => Place::Asked,
            1 => Place::Only,
            _ => Place::Several(found.iter().map(|(asked, _)| asked.port).collect()),
        };
        if place == Place::Only
            && let Some(only) = found.pop()
        {
            (asked, told) = only;
        }
    }
    match question.output {
        Output::Json => {
            if let Some(note) = place.note(&asked) {
                eprintln!("note: {note}");
            }
            Ok(serde_json::to_string_pretty(&told)? + "\n")
        }
        Output::Text => Ok(text(&asked, &told, &place)),
    }
}

/// On which port the request was explained.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    /// The one of the URL, or that of its scheme.
    Asked,
    /// The only other one that has the host: the URL names none.
    Only,
    /// That of the scheme, which does not have the host; these have it.
    Several(Vec<u16>),
}

impl Place {
    fn note(&self, asked: &ExplainRequest) -> Option<String> {
        match self {
            Place::Asked => None,
            Place::Only => {
                Some(format!("{}: the URL has no port, and no other one has this host", asked.port))
            }
            Place::Several(ports) => {
                let ports: Vec<_> = ports.iter().map(u16::to_string).collect();
                Some(format!(
                    "{} have this host: write one into the URL, as in {}:{}",
                    ports.join(", "),
                    asked.host,
                    ports.first().map(String::as_str).unwrap_or_default()
                ))
            }
        }
    }
}

/// Nobody has the host on this port.
fn is_nobodys(told: &Explanation) -> bool {
    told.server.is_none() && told.outcome.status == Some(404)
}

/// What the other ports make of a request, as far as they have its host.
async fn elsewhere(
    subject: &Subject,
    question: &ExplainArgs,
    asked: &ExplainRequest,
) -> anyhow::Result<Vec<(ExplainRequest, Explanation)>> {
    let mut found = Vec::new();
    for port in subject.ports(question, asked.is_https) {
        let there = ExplainRequest { port, ..asked.clone() };
        let told = subject.explain(&there).await?;
        if told.server.as_ref().is_some_and(|server| server.found != "default") {
            found.push((there, told));
        }
    }
    Ok(found)
}

/// What is asked.
enum Subject {
    /// The nginx that runs, by its socket.
    Nginx(PathBuf),
    /// What manifests come to, and the listeners that they ask for.
    Manifests(BTreeMap<(Kind, Vec<u8>), Vec<u8>>, ConfInput),
}

impl Subject {
    fn of(question: &ExplainArgs) -> anyhow::Result<Self> {
        let folder = question.folder.as_ref().or(question.flags.manifests.as_ref());
        let Some(folder) = folder else {
            return Ok(Subject::Nginx(socket(&question.flags.runtime_dir)));
        };
        let batch = read_path(folder)?;
        let flags = question.flags.of_folder(Some(folder));
        let mut world = World::default();
        let mut changed = Changed::default();
        batch.seen.into_iter().for_each(|seen| world.apply(seen, &mut changed));
        let mut translator = Translator::new(flags.options(Default::default()));
        translator.update(&world, &world.all());
        let input = translator.take_conf_input().unwrap_or_default();
        let records = snapshot_records(translator.snapshot().clone()).into_iter();
        let records =
            records.filter_map(|change| Some(((change.kind, change.key), change.value?))).collect();
        Ok(Subject::Manifests(records, input))
    }

    async fn explain(&self, asked: &ExplainRequest) -> anyhow::Result<Explanation> {
        match self {
            Subject::Manifests(records, _) => {
                Ok(explain::explain(&records, asked, &Patterns::default(), |_, _| None))
            }
            Subject::Nginx(socket) => {
                let target = format!("/configuration/explain?{}", asked.to_query());
                let body = read::get(socket, &target).await?;
                serde_json::from_slice(&body).context("nginx's answer is no explanation")
            }
        }
    }

    /// The ports on which requests of a scheme arrive.
    fn ports(&self, question: &ExplainArgs, is_https: bool) -> BTreeSet<u16> {
        let flags = &question.flags;
        match self {
            // Of a folder nobody listens, but for what its listeners ask for.
            Subject::Manifests(_, input) => {
                let kind = if is_https { HttpListener::Https } else { HttpListener::Http };
                let of_kind = input.listeners.iter().filter(|(_, one)| one.http == Some(kind));
                of_kind.map(|(port, _)| port_of(*port)).collect()
            }
            Subject::Nginx(_) => {
                let conf = read::conf(&flags.runtime_dir).unwrap_or_default();
                ports_of_conf(&conf, is_https)
            }
        }
    }
}

fn port_of(port: StreamPort) -> u16 {
    let (StreamPort::Tcp(number) | StreamPort::Udp(number)) = port;
    number.get()
}

/// The ports of nginx.conf on which requests with or without TLS arrive.
fn ports_of_conf(conf: &str, is_https: bool) -> BTreeSet<u16> {
    let listens =
        conf.lines().filter_map(|line| line.trim().strip_prefix("listen ")?.strip_suffix(';'));
    let of_scheme = listens.filter(|listen| {
        let mut words = listen.split(' ').skip(1);
        words.any(|word| matches!(word, "ssl" | "quic")) == is_https
    });
    let addresses = of_scheme.filter_map(|listen| listen.split(' ').next());
    addresses.filter_map(|address| address.rsplit(':').next()?.parse().ok()).collect()
}

/// The request that was written on the command line.
fn asked(request: &[String], headers: &[String]) -> anyhow::Result<ExplainRequest> {
    let (method, url) = match request {
        [url] => ("GET", url),
        [method, url] => (method.as_str(), url),
        _ => bail!("write a method and a URL"),
    };
    const SUCH_AS: &str = "write one such as https://shop.example.com/cart?id=1";
    let is_https = match url.split_once("://") {
        Some(("http", _)) => false,
        Some(("https", _)) => true,
        _ => bail!("{url:?} is no URL: it begins with http:// or https://, {SUCH_AS}"),
    };
    let uri: http::Uri =
        url.parse().map_err(|error| anyhow!("{url:?} is no URL ({error}): {SUCH_AS}"))?;
    let authority = uri.authority();
    let authority = authority.with_context(|| format!("{url:?} has no host: {SUCH_AS}"))?;
    let mut host = authority.to_string();
    let port = uri.port_u16().unwrap_or_default();
    let target = uri.path_and_query().map_or("/", |target| target.as_str());
    let mut all = Vec::new();
    for header in headers {
        let parts = header.split_once(':').filter(|(name, _)| !name.is_empty());
        let (name, value) =
            parts.with_context(|| format!("header {header:?}: write NAME: VALUE"))?;
        match name.eq_ignore_ascii_case("host") {
            true => host = value.trim().into(),
            false => all.push((name.to_owned(), value.trim().to_owned())),
        }
    }
    let (method, target) = (method.into(), target.into());
    Ok(ExplainRequest { method, is_https, host, port, target, headers: all })
}

/// For people. Names and paths are users' texts: a terminal gets no control byte of them.
fn text(asked: &ExplainRequest, told: &Explanation, place: &Place) -> String {
    let scheme = if asked.is_https { "https" } else { "http" };
    let mut out = String::new();
    let mut line = |title: &str, text: &str| {
        let _ = writeln!(out, "{title:<9}{}", oxigress_core::text::line::one_line(text));
    };
    line("request", &format!("{} {scheme}://{}{}", asked.method, asked.host, asked.target));
    if let Some(note) = place.note(asked) {
        line(if *place == Place::Only { "port" } else { "ports" }, &note);
    }
    line("path", &told.path);
    match &told.server {
        Some(server) => line("host", &format!("{} ({})", server.host, server.found)),
        None if is_nobodys(told) => line("host", &nobodys(asked.port)),
        // It was answered before a server was looked for.
        None => line("host", &told.host),
    }
    for rule in &told.rules {
        let Rule { path, namespace, ingress, service, port, wins, why } = rule;
        let title = if *wins { "wins" } else { "loses" };
        line(title, &format!("{path} of {namespace}/{ingress}, to {service}:{port}: {why}"));
    }
    if told.other_rules > 0 {
        line("", &format!("{} for other paths", count(told.other_rules, "rule")));
    }
    told.conditions.iter().for_each(|condition| line("needs", condition));
    if let Some(policies) = &told.policies {
        line("policies", &policies.to_string());
    }
    let outcome = &told.outcome;
    if let Some(rewritten) = &outcome.rewritten {
        line("rewritten", &format!(" {rewritten}"));
    }
    match (outcome.status, &outcome.location) {
        (Some(status), Some(to)) => line("answer", &format!("{status} to {to}: {}", outcome.why)),
        (Some(status), None) => line("answer", &format!("{status}: {}", outcome.why)),
        (None, _) => line("answer", &outcome.why),
    }
    if let Some(backend) = &told.backend {
        write_backend(backend, &mut line);
    }
    out
}

fn nobodys(port: u16) -> String {
    format!("no server has this host on port {port}, and there is no default server")
}

fn write_backend(backend: &Backend, line: &mut impl FnMut(&str, &str)) {
    let mut how = format!("{} ({}), {:?}", backend.id, backend.why, backend.algorithm);
    if let Some(key) = &backend.hash_key {
        how += &format!(", hashed by {key}");
    }
    if let Some(cookie) = &backend.affinity_cookie {
        how += &format!(", by the cookie {cookie}");
    }
    line("backend", &how);
    for other in &backend.alternatives {
        let mut text = format!("{}: {} of {} requests", other.id, other.weight, other.weight_total);
        let ways = [("header", &other.header), ("cookie", &other.cookie)];
        for (kind, name) in ways.iter().filter_map(|(kind, name)| Some((kind, name.as_ref()?))) {
            text += &format!(", by {kind} {name}");
        }
        if !other.has_endpoints {
            text += ", without endpoints";
        }
        line("canary", &text);
    }
    for endpoint in &backend.endpoints {
        let why = endpoint.why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
        let title = if endpoint.eligible { "endpoint" } else { "closed" };
        line(title, &format!("{}{why}", endpoint.address));
    }
    if backend.more_endpoints > 0 {
        line("", &format!("and {} more", count(backend.more_endpoints, "endpoint")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(words: &[&str], headers: &[&str]) -> anyhow::Result<ExplainRequest> {
        let owned = |all: &[&str]| all.iter().map(|text| String::from(*text)).collect::<Vec<_>>();
        asked(&owned(words), &owned(headers))
    }

    #[test]
    fn a_request_is_written_as_for_curl() {
        let found =
            request(&["POST", "https://Shop.test:8443/a?b=1"], &["X-A:b:c", "Host: x.test"])
                .unwrap();
        let headers = vec![("X-A".to_owned(), "b:c".to_owned())];
        let expected = ExplainRequest {
            method: "POST".into(),
            is_https: true,
            host: "x.test".into(),
            port: 8443,
            target: "/a?b=1".into(),
            headers,
        };
        assert_eq!(found, expected);
        assert_eq!(request(&["http://a.test"], &[]).unwrap().target, "/");
        for words in [&["a.test/x"][..], &["ftp://a.test/"], &["/x"], &["GET", "x y"]] {
            let error = request(words, &[]).unwrap_err().to_string();
            assert!(error.contains("is no URL: it begins with http:// or https://"), "{error}");
        }
        let error = request(&["http://a b/"], &[]).unwrap_err();
        let error = format!("{error:#}");
        assert!(error.ends_with("write one such as https://shop.example.com/cart?id=1"), "{error}");
        assert!(request(&["http://a.test"], &["nonsense"]).is_err());
    }

    #[test]
    fn users_texts_move_no_cursor() {
        let asked = request(&["http://a.test"], &[]).unwrap();
        let told = Explanation { path: "/\u{1b}[2J".into(), ..Explanation::default() };
        assert!(!text(&asked, &told, &Place::Asked).contains('\u{1b}'));
    }

    const GATEWAY: &str = "
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: { name: oxigress }
spec: { controllerName: oxigress.io/gateway-controller }
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: { name: web }
spec: { gatewayClassName: oxigress, listeners: [LISTENERS] }
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: { name: shop }
spec: { parentRefs: [{ name: web }], hostnames: [shop.test], rules: [{ backendRefs: [] }] }
";

    async fn explained(ports: &[u16], url: &str) -> String {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("gateway.yaml");
        let listener = |port| format!("{{ name: p{port}, port: {port}, protocol: HTTP }}");
        let listeners: Vec<_> = ports.iter().map(listener).collect();
        std::fs::write(&file, GATEWAY.replace("LISTENERS", &listeners.join(", "))).unwrap();
        let folder = format!("--folder={}", file.display());
        let line = ["oxigress", "explain", &folder, url].map(Into::into);
        let Some(crate::flags::Command::Tool(crate::command::Tool::Explain(question))) =
            crate::flags::help::parse(line).command
        else {
            panic!("another command")
        };
        run(&question).await.unwrap()
    }

    #[tokio::test]
    async fn a_url_without_a_port_means_the_one_that_has_its_host() {
        let told = explained(&[8081], "http://shop.test/").await;
        assert!(told.contains("port     8081: the URL has no port"), "{told}");
        assert!(told.contains("host     shop.test (exact)"), "{told}");
        let told = explained(&[8081, 8082], "http://shop.test/").await;
        assert!(told.contains("ports    8081, 8082 have this host"), "{told}");
        assert!(told.contains("no server has this host on port 80,"), "{told}");
        let told = explained(&[8081], "http://shop.test:8082/").await;
        assert!(!told.contains("8081") && told.contains("on port 8082"), "{told}");
        let told = explained(&[80, 8081], "http://shop.test/").await;
        assert!(!told.contains("8081") && told.contains("shop.test (exact)"), "{told}");
        let told = explained(&[8081], "https://shop.test/").await;
        assert!(told.contains("on port 443") && !told.contains("8081"), "of HTTPS: {told}");
    }

    #[test]
    fn ports_are_those_of_the_listen_directives() {
        let conf = "  listen 8080 default_server reuseport;\n  listen [::]:8080 default_server;\n\
                    \x20 listen 8443 ssl;\n  listen 10.0.0.7:8081;\n  listen unix:/run/x.sock;\n";
        assert_eq!(ports_of_conf(conf, false), [8080, 8081].into());
        assert_eq!(ports_of_conf(conf, true), [8443].into());
    }

    #[test]
    fn a_host_that_is_closed_is_not_said_to_be_nobodys() {
        let asked = request(&["http://a.test"], &[]).unwrap();
        let mut told = Explanation { host: "a.test".into(), ..Explanation::default() };
        told.outcome.status = Some(403);
        assert!(text(&asked, &told, &Place::Asked).contains("host     a.test\n"));
    }
}
