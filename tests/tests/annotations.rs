//! Annotations from a manifest to an answer: the cases of `tables/annotations.txt`, and how many names they prove.

use anyhow::{Context, Result, ensure};
use oxigress_tests::client::{Address, Request, send};
use oxigress_tests::controller::Controller;
use oxigress_tests::endpoint::{Behaviour, Endpoint};
use oxigress_tests::load::{Load, Plan};
use oxigress_tests::pass;
use oxigress_tests::place::Directory;
use oxigress_tests::variables::Variables;
use oxigress_tests::wait::block_on;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr};

const TABLE: &str = include_str!("../tables/annotations.txt");
const README: &str = include_str!("../../README.md");

/// A line of the table.
struct Case<'t> {
    line: usize,
    proves: Vec<(&'t str, &'t str)>,
    annotations: Vec<(&'t str, &'t str)>,
    path: &'t str,
    request: &'t str,
    expected: &'t str,
}

fn cases() -> Result<Vec<Case<'static>>> {
    let lines =
        TABLE.lines().zip(1..).filter(|(text, _)| !text.is_empty() && !text.starts_with('#'));
    lines
        .map(|(text, line)| {
            let columns: Vec<_> = text.split(" | ").map(str::trim).collect();
            let [proves, annotations, path, request, expected] = columns[..] else {
                anyhow::bail!("line {line} has {} columns", columns.len());
            };
            let proves = proves.split(',').map(|pair| pair.trim().split_once(' '));
            let annotations = annotations.split(" ;; ").filter(|pair| *pair != "-");
            Ok(Case {
                line,
                proves: proves.collect::<Option<_>>().context("a name and a kind")?,
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
        format!("c{}.test", self.line)
    }

    /// The Ingress `name` with the case's annotations, for this host.
    fn manifest(&self, name: &str, host: &str) -> String {
        let (path, kind) = match self.path.rsplit_once(' ') {
            Some((path, kind)) => (path, kind),
            None => (self.path, "Prefix"),
        };
        let mut text = format!(
            "---\napiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata:\n  name: {name}\n  \
             namespace: default\n  annotations:\n    kubernetes.io/ingress.class: nginx\n"
        );
        for (annotation, value) in &self.annotations {
            let _ = writeln!(text, "    nginx.ingress.kubernetes.io/{annotation}: {value:?}");
        }
        let _ = writeln!(
            text,
            "spec:\n  rules:\n  - host: {host}\n    http:\n      paths:\n      - {{ path: {path:?}, pathType: \
             {kind}, backend: {{ service: {{ name: shop, port: {{ number: 80 }} }} }} }}"
        );
        text
    }

    fn check(&self, address: &Address, host: &str) -> Result<()> {
        let mut parts = self.request.split(" ;; ");
        let (method, target) =
            parts.next().and_then(|line| line.split_once(' ')).context("a request")?;
        let mut request = Request::new(method, host, target);
        for part in parts {
            request = match part.strip_prefix("body ") {
                Some(length) => request.body(vec![b'x'; length.parse()?]),
                None => {
                    let (name, value) = part.split_once(": ").context("a header")?;
                    request.header(name, value)
                }
            };
        }
        let answer = block_on(send(address, &request))?;
        let mut parts = self.expected.split(" ;; ");
        let status: u16 = parts.next().unwrap_or_default().parse()?;
        ensure!(
            answer.status == status,
            "{} instead of {status}\n{}",
            answer.status,
            answer.text()
        );
        let seen = answer.text();
        for part in parts {
            if let Some(text) = part.strip_prefix('~') {
                ensure!(seen.contains(text), "{text:?} is not in\n{seen}");
            } else if let Some(text) = part.strip_prefix('!') {
                ensure!(!seen.contains(text), "{text:?} is in\n{seen}");
            } else {
                let (name, value) = part.split_once(": ").context("a header")?;
                let value = value.replace("$HOST", host);
                let found = answer.header(name).unwrap_or_else(|| "-".into());
                ensure!(found == value, "{name}: {found:?} instead of {value:?}");
            }
        }
        Ok(())
    }
}

/// The names in the README's table, which the controller's unit tests keep true.
fn names() -> BTreeSet<&'static str> {
    let table = README.split("<!-- annotations").nth(1).unwrap_or_default();
    let table = table.split("<!-- end -->").next().unwrap_or_default();
    let first = table.lines().filter_map(|line| line.strip_prefix("| `")?.split(" | ").next());
    let names = first.flat_map(|names| names.split("`, `")).map(|name| name.trim_end_matches('`'));
    names.collect()
}

/// A controller with the Services and Secrets that the cases name.
struct Stage {
    controller: Controller,
    variables: Variables,
}

impl Stage {
    fn start(directory: &Directory, workers: usize) -> Result<Self> {
        let mut variables = Variables::default();
        for (name, behaviour) in
            [("shop", Behaviour::Ok), ("yes", Behaviour::Ok), ("no", Behaviour::Status(401))]
        {
            let endpoint = Endpoint::with(name, behaviour, IpAddr::V4(Ipv4Addr::LOCALHOST))?;
            variables.endpoints.insert(name.into(), endpoint);
        }
        let mut controller = Controller::start(directory, workers, &[])?;
        let mut text = String::from("$SERVICE(shop: shop)\n");
        for (name, key, value) in [("users", "auth", "u:{PLAIN}p"), ("map", "u", "{PLAIN}p")] {
            let _ = writeln!(
                text,
                "---\napiVersion: v1\nkind: Secret\nmetadata: {{ name: {name}, namespace: default }}\n\
                 stringData: {{ {key}: {value:?} }}"
            );
        }
        controller.serve("services.yaml", &variables.expand(&text)?)?;
        Ok(Stage { controller, variables })
    }

    fn fill(&self, mut manifest: String) -> String {
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
        let mut stage = Stage::start(directory, 1)?;
        let text: String = cases
            .iter()
            .map(|case| stage.fill(case.manifest(&case.host(), &case.host())))
            .collect();
        stage.controller.serve("ingresses.yaml", &text)?;
        let address = Address::http(stage.controller.http_port);
        let failed: Vec<_> = cases
            .iter()
            .filter_map(|case| Some((case, case.check(&address, &case.host()).err()?)))
            .map(|(case, why)| format!("line {}: {:?}: {why:#}", case.line, case.proves))
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
        let mut stage = Stage::start(directory, 2)?;
        let steady =
            stage.variables.expand("$INGRESS(steady: c.test/steady shop, other.test/ shop)")?;
        stage.controller.serve("steady.yaml", &steady)?;
        let address = Address::http(stage.controller.http_port);
        let workers = stage.controller.worker_pids();
        let conf = std::fs::read_to_string(directory.join("run/nginx.conf"))?;
        let requests = vec![Request::get("c.test", "/steady/1"), Request::get("other.test", "/")];
        let load = Load::start(Plan {
            requests_per_connection: REQUESTS_PER_CONNECTION,
            ..Plan::new(address.clone(), requests, 8)
        })?;
        let mut failed = Vec::new();
        for case in &cases {
            let manifest = stage.fill(case.manifest("edited", "c.test"));
            stage.controller.serve("edited.yaml", &manifest)?;
            if let Err(why) = case.check(&address, "c.test") {
                failed.push(format!("line {}: {:?}: {why:#}", case.line, case.proves));
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
        ensure!(stage.controller.worker_pids() == workers, "the workers are others");
        ensure!(
            std::fs::read_to_string(directory.join("run/nginx.conf"))? == conf,
            "nginx.conf is another"
        );
        tell(&failed, cases.len())
    });
}

/// A name is proved by a case of each kind.
fn tell_coverage(cases: &[Case<'_>]) -> Result<()> {
    let mut kinds: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (name, kind) in cases.iter().flat_map(|case| &case.proves) {
        ensure!(["default", "valid", "invalid"].contains(kind), "{name} {kind}");
        kinds.entry(name).or_default().insert(kind);
    }
    let names = names();
    ensure!(names.len() == 138, "{} names in the README", names.len());
    let (proved, missing): (Vec<&str>, Vec<&str>) =
        names.iter().partition(|name| kinds.get(**name).is_some_and(|kinds| kinds.len() == 3));
    let unknown: Vec<_> = kinds.keys().filter(|name| !names.contains(**name)).collect();
    ensure!(unknown.is_empty(), "{unknown:?} are no annotations");
    println!(
        "annotations: {} of {} names proved end to end by this table; not by it: {}",
        proved.len(),
        names.len(),
        missing.join(", ")
    );
    Ok(())
}
