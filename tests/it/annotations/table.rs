//! Annotations from a manifest to an answer: the cases of `tables/annotations.txt`, and how many names they prove.

mod asked;

use anyhow::{Context, Result, ensure};
use asked::{Asked, arrived, expect};
use oxigress_tests::client::{Address, Request, send};
use oxigress_tests::controller::Controller;
use oxigress_tests::endpoint::{Behaviour, Endpoint};
use oxigress_tests::forwarder::pass_on;
use oxigress_tests::load::{Load, Plan};
use oxigress_tests::manifest::ingress_head;
use oxigress_tests::pass;
use oxigress_tests::place::Directory;
use oxigress_tests::variables::Variables;
use oxigress_tests::wait::{block_on, until};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

/// The tables, each with what its hosts begin with.
const TABLES: [(&str, &str); 2] = [
    ("c", include_str!("../../tables/annotations.txt")),
    ("d", include_str!("../../tables/annotations-auth.txt")),
];
/// Tests that prove names from a manifest to an answer too.
const ELSEWHERE: [(&str, &[&str]); 2] = [
    (
        "annotations::balancing",
        &[
            include_str!("balancing.rs"),
            include_str!("balancing/affinity.rs"),
            include_str!("balancing/canaries.rs"),
        ],
    ),
    (
        "annotations::tls",
        &[
            include_str!("tls/auth_servers.rs"),
            include_str!("tls/ciphers.rs"),
            include_str!("tls/clients.rs"),
            include_str!("tls/passthrough.rs"),
            include_str!("tls/upstream.rs"),
        ],
    ),
];
const PAGE: &str = include_str!("../../../docs/annotations.md");

/// A line of a table.
struct Case<'t> {
    table: &'t str,
    line: usize,
    proves: Vec<(&'t str, &'t str)>,
    /// It shows that the value is taken and answers come, and no more.
    weak: bool,
    annotations: Vec<(&'t str, &'t str)>,
    path: &'t str,
    request: &'t str,
    expected: &'t str,
}

/// The lines of all tables that are no comments, with the table's letter and their number.
fn lines() -> impl Iterator<Item = (&'static str, usize, Vec<&'static str>)> {
    TABLES.into_iter().flat_map(|(table, text)| {
        let lines =
            text.lines().zip(1..).filter(|(text, _)| !text.is_empty() && !text.starts_with('#'));
        lines.map(move |(text, line)| (table, line, text.split(" | ").map(str::trim).collect()))
    })
}

fn is_list(columns: &[&str]) -> bool {
    matches!(columns.first(), Some(&("elsewhere" | "exception")))
}

fn cases() -> Result<Vec<Case<'static>>> {
    let cases = lines().filter(|(_, _, columns)| !is_list(columns));
    cases
        .map(|(table, line, columns)| {
            let [proves, annotations, path, request, expected] = columns[..] else {
                anyhow::bail!("line {table}{line} has {} columns", columns.len());
            };
            let (proves, weak) = match proves.strip_prefix("weak: ") {
                Some(proves) => (proves, true),
                None => (proves, false),
            };
            let proves = proves.split(',').map(|pair| pair.trim().split_once(' '));
            let annotations = annotations.split(" ;; ").filter(|pair| *pair != "-");
            Ok(Case {
                table,
                line,
                proves: proves.collect::<Option<_>>().context("a name and a kind")?,
                weak,
                annotations: annotations
                    .map(|pair| pair.split_once('='))
                    .collect::<Option<_>>()
                    .context("name=value")?,
                path,
                request,
                expected,
            })
        })
        .collect()
}

impl Case<'_> {
    fn host(&self) -> String {
        format!("{}{}.test", self.table, self.line)
    }

    /// The Ingress `name` with the case's annotations, for this host.
    fn manifest(&self, name: &str, host: &str) -> String {
        let mut words = self.path.split(' ');
        let path = words.next().unwrap_or_default();
        let kind = words.next().unwrap_or("Prefix");
        let service = words.next().unwrap_or("shop");
        let annotations = self.annotations.iter();
        let annotations = annotations.map(|(name, value)| (*name, value.replace("$HOST", host)));
        let mut text = ingress_head(name, annotations);
        let _ = writeln!(
            text,
            "spec:\n  rules:\n  - host: {host}\n    http:\n      paths:\n      - {{ path: {path:?}, pathType: \
             {kind}, backend: {{ service: {{ name: {service}, port: {{ number: 80 }} }} }} }}"
        );
        text
    }

    /// What is asked for, and how often.
    fn asked(&self, fixture: &Fixture, host: &str) -> Result<Asked> {
        let request = self.request.replace("$HOST", host);
        let mut parts = request.split(" ;; ");
        let (method, target) =
            parts.next().and_then(|line| line.split_once(' ')).context("a request")?;
        let (address, target) = match target.strip_prefix("https ") {
            Some(target) => (Address::https(fixture.controller.https_port, host), target),
            None => (Address::http(fixture.controller.http_port), target),
        };
        let mut request = Request::new(method, host, target);
        let (mut times, mut at_once): (usize, usize) = (1, 1);
        for part in parts {
            if let Some(length) = part.strip_prefix("body ") {
                request = request.body(vec![b'x'; length.parse()?]);
            } else if let Some(header) = part.strip_prefix("long ") {
                let (name, length) = header.split_once(' ').context("a name and a length")?;
                request = request.header(name, &"x".repeat(length.parse()?));
            } else if let Some(number) = part.strip_prefix("times ") {
                times = number.parse()?;
            } else if let Some(number) = part.strip_prefix("at once ") {
                at_once = number.parse()?;
            } else {
                let (name, value) = part.split_once(": ").context("a header")?;
                if name == "Host" {
                    request.headers.retain(|(name, _)| name != "Host");
                }
                request = request.header(name, value);
            }
        }
        Ok(Asked { address, request, times, at_once })
    }

    fn check(&self, fixture: &Fixture, host: &str) -> Result<()> {
        let asked = self.asked(fixture, host)?;
        let Asked { address, request, .. } = &asked;
        for _ in 1..asked.times {
            block_on(send(address, request))?;
        }
        let arrived = |names: &str| arrived(fixture, names);
        let counted = self.expected.split(" ;; ").find_map(|part| part.strip_prefix('+'));
        let counted = counted.map(|part| part.split_once(' ').context("a number and endpoints"));
        let counted = counted.transpose()?;
        let before = counted.map(|(_, names)| arrived(names)).transpose()?.unwrap_or_default();
        let answer = asked.worst_answer()?;
        if let Some((number, names)) = counted {
            let number: u64 = number.parse()?;
            // Copies may come after the answer.
            until("the requests have arrived", || {
                let now = arrived(names)? - before;
                ensure!(now >= number, "{now} requests instead of {number} at {names}");
                Ok(())
            })?;
            let now = arrived(names)? - before;
            ensure!(now == number, "{now} requests instead of {number} at {names}");
        }
        let mut parts = self.expected.split(" ;; ");
        let status: u16 = parts.next().unwrap_or_default().parse()?;
        ensure!(
            answer.status == status,
            "{} instead of {status}\n{}",
            answer.status,
            answer.text()
        );
        for part in parts.filter(|part| !part.starts_with('+')) {
            expect(fixture, &answer, part, (address, host))?;
        }
        Ok(())
    }

    fn tell(&self, why: &anyhow::Error) -> String {
        format!("line {}{}: {:?}: {why:#}", self.table, self.line, self.proves)
    }
}

/// The names in the table of docs/annotations.md, which the controller's unit tests keep true.
fn names() -> BTreeSet<&'static str> {
    let table = PAGE.split("<!-- annotations").nth(1).unwrap_or_default();
    let table = table.split("<!-- end -->").next().unwrap_or_default();
    let first = table.lines().filter_map(|line| line.strip_prefix("| `")?.split(" | ").next());
    let names = first.flat_map(|names| names.split("`, `")).map(|name| name.trim_end_matches('`'));
    names.collect()
}

/// A controller with the Services and Secrets that the cases name.
struct Fixture {
    controller: Controller,
    variables: Variables,
    /// A proxy in front of the controller's nginx, which itself is no destination.
    gateway: SocketAddr,
}

impl Fixture {
    fn start(directory: &Directory, workers: usize) -> Result<Self> {
        let mut variables = Variables::default();
        let behaviours = [
            ("shop", Behaviour::Ok),
            ("yes", Behaviour::Ok),
            ("no", Behaviour::Status(401)),
            ("errors", Behaviour::Ok),
            ("copy", Behaviour::Ok),
            ("slow", Behaviour::Slow(Duration::from_millis(1500))),
            ("large", Behaviour::Large(300_000)),
            ("ill1", Behaviour::Status(503)),
            ("ill2", Behaviour::Status(503)),
            ("ill3", Behaviour::Status(503)),
            ("ill4", Behaviour::Status(503)),
        ];
        for (name, behaviour) in behaviours {
            let endpoint = Endpoint::with(name, behaviour, IpAddr::V4(Ipv4Addr::LOCALHOST))?;
            variables.endpoints.insert(name.into(), endpoint);
        }
        let flags = ["--configmap=default/settings".to_owned()];
        let mut controller = Controller::start(directory, workers, &flags)?;
        let mut text = String::from(
            "$SERVICE(shop: shop)\n$SERVICE(errors: errors)\n$SERVICE(slow: slow)\n$SERVICE(large: large)\n\
             $SERVICE(ill: ill1 ill2 ill3 ill4)\n$SERVICE(none: )\n$SERVICE(copy: copy)\n\
             $INGRESS(copies: copies.test/ copy)\n",
        );
        for (name, key, value) in [
            ("settings", "global-allowed-response-headers", "X-Custom"),
            ("headers", "X-Custom", "of the map"),
            ("other-headers", "X-Other", "not allowed"),
            ("parameters", "A", "b"),
        ] {
            let _ = writeln!(
                text,
                "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{ name: {name}, namespace: default }}\n\
                 data: {{ {key}: {value:?} }}"
            );
        }
        for (name, key, value) in [("users", "auth", "u:{PLAIN}p"), ("map", "u", "{PLAIN}p")] {
            let _ = writeln!(
                text,
                "---\napiVersion: v1\nkind: Secret\nmetadata: {{ name: {name}, namespace: default }}\n\
                 stringData: {{ {key}: {value:?} }}"
            );
        }
        controller.serve("services.yaml", &variables.expand(&text)?)?;
        let gateway = pass_on((Ipv4Addr::LOCALHOST, controller.http_port).into())?;
        Ok(Fixture { controller, variables, gateway })
    }

    fn is_logged(&self, target: &str) -> Result<()> {
        until("a line of the access log", || {
            let log = self.controller.error_log();
            ensure!(log.contains(&format!("GET {target} ")), "{target} is not in the log");
            Ok(())
        })
    }

    fn fill(&self, manifest: String) -> String {
        let gateway = self.gateway.port().to_string();
        let mut manifest = manifest.replace("$PORT_gateway", &gateway);
        for (name, endpoint) in &self.variables.endpoints {
            let port = endpoint.address.port().to_string();
            manifest = manifest.replace(&format!("$PORT_{name}"), &port);
        }
        manifest
    }
}

fn tell(failed: &[String], cases: usize) -> Result<()> {
    ensure!(failed.is_empty(), "{} of {cases} cases:\n{}", failed.len(), failed.join("\n"));
    Ok(())
}

#[test]
fn every_case_of_the_table() {
    pass("annotations", |directory| {
        let cases = cases()?;
        let mut fixture = Fixture::start(directory, 1)?;
        let text: String = cases
            .iter()
            .map(|case| fixture.fill(case.manifest(&case.host(), &case.host())))
            .collect();
        fixture.controller.serve("ingresses.yaml", &text)?;
        let failed: Vec<_> = cases
            .iter()
            .filter_map(|case| Some(case.tell(&case.check(&fixture, &case.host()).err()?)))
            .collect();
        tell_coverage(&cases)?;
        tell(&failed, cases.len())
    });
}

/// One Ingress gets the annotations of one case after the other, while others of its host and its Service are asked
/// all the time: each holds at once, nothing is reloaded, and nobody notices.
#[test]
fn every_change_holds_at_once_under_load() {
    const REQUESTS_PER_CONNECTION: u64 = 1000;
    pass("annotations-load", |directory| {
        let cases = cases()?;
        let mut fixture = Fixture::start(directory, 2)?;
        let steady =
            fixture.variables.expand("$INGRESS(steady: c.test/steady shop, other.test/ shop)")?;
        fixture.controller.serve("steady.yaml", &steady)?;
        let address = Address::http(fixture.controller.http_port);
        let workers = fixture.controller.worker_pids();
        let conf = std::fs::read_to_string(directory.join("run/nginx.conf"))?;
        let requests = vec![Request::get("c.test", "/steady/1"), Request::get("other.test", "/")];
        let load = Load::start(Plan {
            requests_per_connection: REQUESTS_PER_CONNECTION,
            ..Plan::new(address.clone(), requests, 8)
        })?;
        let mut failed = Vec::new();
        for case in &cases {
            // What was counted for one Ingress is counted for it in the next case too.
            let is_limited = case.annotations.iter().any(|(name, _)| name.starts_with("limit-"));
            let name = if is_limited {
                format!("edited-{}{}", case.table, case.line)
            } else {
                "edited".into()
            };
            // What holds for a whole host holds for the steady Ingress of it too.
            let is_of_host = |name: &str| name.starts_with("auth-tls-") || name == "server-snippet";
            let host = match case.annotations.iter().any(|(name, _)| is_of_host(name)) {
                true => "closed.test",
                false => "c.test",
            };
            let manifest = fixture.fill(case.manifest(&name, host));
            fixture.controller.serve("edited.yaml", &manifest)?;
            if let Err(why) = case.check(&fixture, host) {
                failed.push(case.tell(&why));
            }
        }
        let report = load.stop();
        println!(
            "annotations: {} changes under load, {} answers, {} lost",
            cases.len(),
            report.answered,
            report.failed
        );
        ensure!(report.failed == 0, "{:?}", report.failures.iter().take(5).collect::<Vec<_>>());
        let most = 8 + report.answered / REQUESTS_PER_CONNECTION;
        ensure!(report.connections <= most, "{} connections", report.connections);
        ensure!(fixture.controller.worker_pids() == workers, "the workers are others");
        ensure!(
            std::fs::read_to_string(directory.join("run/nginx.conf"))? == conf,
            "nginx.conf is another"
        );
        tell(&failed, cases.len())
    });
}

/// The names of the lists `elsewhere`, which that test speaks of, and `exception`, which have a reason.
fn lists() -> Result<(BTreeSet<&'static str>, BTreeSet<&'static str>)> {
    let (mut elsewhere, mut exceptions) = (BTreeSet::new(), BTreeSet::new());
    for (table, line, columns) in lines().filter(|(_, _, columns)| is_list(columns)) {
        match columns[..] {
            ["elsewhere", test, names] => {
                let (_, texts) = ELSEWHERE
                    .iter()
                    .find(|(name, _)| *name == test)
                    .with_context(|| format!("line {table}{line}: no test {test}"))?;
                for name in names.split_whitespace() {
                    let quoted = format!("\"{name}\"");
                    let is_there = texts.iter().any(|text| text.contains(&quoted));
                    ensure!(is_there, "line {table}{line}: {test} without {name}");
                    elsewhere.insert(name);
                }
            }
            ["exception", names, reason] if !reason.is_empty() => {
                exceptions.extend(names.split_whitespace());
            }
            _ => anyhow::bail!("line {table}{line}: a list and its columns"),
        }
    }
    Ok((elsewhere, exceptions))
}

/// A name is proved by a case of each kind, here or in another test.
fn tell_coverage(cases: &[Case<'_>]) -> Result<()> {
    let mut kinds: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut strong: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for case in cases {
        for (name, kind) in &case.proves {
            ensure!(["default", "valid", "invalid"].contains(kind), "{name} {kind}");
            kinds.entry(name).or_default().insert(kind);
            if !case.weak {
                strong.entry(name).or_default().insert(kind);
            }
        }
    }
    let (elsewhere, exceptions) = lists()?;
    let names = names();
    ensure!(names.len() == 138, "{} names in docs/annotations.md", names.len());
    let all = kinds.keys().chain(&elsewhere).chain(&exceptions);
    let unknown: Vec<_> = all.filter(|name| !names.contains(**name)).collect();
    ensure!(unknown.is_empty(), "{unknown:?} are no annotations");
    let has_three = |kinds: &BTreeMap<&str, BTreeSet<&str>>, name: &str| {
        elsewhere.contains(name) || kinds.get(name).is_some_and(|kinds| kinds.len() == 3)
    };
    let proved: BTreeSet<_> =
        names.iter().copied().filter(|name| has_three(&kinds, name)).collect();
    let weak: Vec<_> = proved.iter().copied().filter(|name| !has_three(&strong, name)).collect();
    let both: Vec<_> = proved.intersection(&exceptions).collect();
    ensure!(both.is_empty(), "{both:?} are proved and exceptions");
    let missing: Vec<_> = names
        .iter()
        .copied()
        .filter(|name| !proved.contains(name) && !exceptions.contains(name))
        .collect();
    println!(
        "annotations: {} of {} names proved end to end, {} of them with a weak case ({}), {} exceptions \
         (reasons in tests/tables/annotations.txt), missing {}: {}",
        proved.len(),
        names.len(),
        weak.len(),
        weak.join(", "),
        exceptions.len(),
        missing.len(),
        missing.join(", ")
    );
    Ok(())
}
