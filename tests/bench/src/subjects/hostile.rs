//! How long the dearest requests that a tenant's objects make possible keep a worker's event loop, and the changes of others.
//!
//! The patterns are those of the attacks of tests/it/tenants/hostile: dear to compile, dear to try, or without an end.

use crate::bench::Bench;
use crate::manifests::{self, Manifests, host};
use crate::nginx::worker_below;
use crate::product::{Oxigress, Requests, edits, resolution};
use crate::report::Table;
use crate::sample::show;
use crate::stretch::Watch;
use anyhow::{Context, Result};
use std::fmt::Write as _;
use std::fs;
use std::time::Duration;

/// Requests of each kind, the first of which compiles what is tried.
const REQUESTS: usize = 200;
/// Edits of another host while the dear patterns come and go.
const EDITS: usize = 30;
const BUDGET: Duration = Duration::from_millis(5);

pub fn run(bench: &Bench, table: &mut Table) -> Result<()> {
    if bench.oxigress.is_none() {
        table.row("dearest requests", "not measured: target/dist/bin/oxigress is missing");
        return Ok(());
    }
    let manifests = Manifests::new(&bench.directory.join("hostile"))?;
    let [a, b] = bench.endpoints;
    manifests.app(0, a, &["/"])?;
    manifests.write("settings", SETTINGS)?;
    let mut kinds = kinds();
    for one in &kinds {
        manifests.write(one.name, &one.text(a))?;
    }
    let source = [
        format!("--manifests={}", manifests.folder().display()),
        "--configmap=bench/settings".into(),
    ];
    let mut oxigress = Oxigress::start(bench, &source, "hostile")?;
    let master = fs::read_to_string(oxigress.runtime.join("nginx.pid"))?.trim().parse()?;
    let worker = worker_below(master).context("nginx has no worker, or several")?;
    let mut requests = Requests::new(oxigress.http_port)?;
    requests.until(&host(0), "/", |answer| answer.status == 200)?;
    for one in &kinds {
        let watch = Watch::start(worker);
        for _ in 0..REQUESTS {
            requests.until(&one.host(), &one.target, |_| true)?;
        }
        let longest = watch.stop()?;
        table
            .row(&format!("{}: longest stretch of a worker's loop, CPU", one.what), show(longest))
            .budget("≤ 5 ms", longest <= BUDGET);
    }
    let times = edits(EDITS, |turn| {
        // Others each time, so that none is known.
        kinds[0].number = turn + 1;
        manifests.write(kinds[0].name, &kinds[0].text(a))?;
        let (port, name) = [(b, b'B'), (a, b'A')][turn % 2];
        let closed = manifests.app(0, port, &["/"])?;
        requests.until(&host(0), "/", |answer| answer.body.first() == Some(&name))?;
        Ok(closed.elapsed())
    })?;
    table
        .row(
            "another namespace's endpoints edited just after 300 dear patterns: p50, max",
            format!("{}, {}", show(times.p50()), show(times.max())),
        )
        .budget("≤ 1 s", times.max() <= Duration::from_secs(1));
    table.note(resolution());
    oxigress.stop()
}

const SETTINGS: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: { name: settings, namespace: bench }\n\
    data: { allow-snippet-annotations: \"true\", annotations-risk-level: Critical }\n";

/// A tenant's Ingress, and what it is asked.
struct Kind {
    name: &'static str,
    what: &'static str,
    /// Sets this text apart from others.
    number: usize,
    annotations: &'static str,
    patterns: fn(usize) -> Vec<String>,
    target: String,
}

impl Kind {
    fn host(&self) -> String {
        format!("{}.bench.test", self.name)
    }

    /// The Ingress, a Service and an endpoint, in a namespace of their own.
    fn text(&self, port: u16) -> String {
        let Kind { name, annotations, .. } = self;
        let mut text = format!(
            "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata:\n  name: {name}\n  namespace: bench\n  annotations:\n    \
             nginx.ingress.kubernetes.io/use-regex: \"true\"\n{annotations}spec:\n  ingressClassName: nginx\n  rules:\n  \
             - host: {}\n    http:\n      paths:\n",
            self.host()
        );
        for pattern in (self.patterns)(self.number) {
            let _ = write!(
                text,
                "      - path: '{pattern}'\n        pathType: ImplementationSpecific\n        \
                 backend: {{ service: {{ name: {name}, port: {{ number: 80 }} }} }}\n"
            );
        }
        let all = [text, manifests::service(name), manifests::slice(name, port)].join("---\n");
        all.replace("namespace: bench", "namespace: tenant")
    }
}

fn kinds() -> Vec<Kind> {
    let long = |letter: &str| format!("/{}", letter.repeat(7_900));
    let kind = |name, what, annotations, patterns, target| Kind {
        name,
        what,
        number: 0,
        annotations,
        patterns,
        target,
    };
    vec![
        kind("compiled", "300 patterns of 33 ms each to compile", "", dear, "/ax".into()),
        kind("matched", "four patterns that end late, 7,900 bytes", "", late, long("a")),
        kind("tried", "the same, other letters", "", late, long("x")),
        kind(
            "locales",
            "60 locales and a rewrite, 7,900 bytes",
            "    nginx.ingress.kubernetes.io/rewrite-target: /$3\n",
            locales,
            format!("/ab/{}", "z".repeat(7_890)),
        ),
        kind(
            "steps",
            "steps of a server-snippet, 7,900 bytes",
            STEPS,
            |_| vec!["/".into()],
            long("a"),
        ),
    ]
}

/// Each step is tried, since no condition holds.
const STEPS: &str = "    nginx.ingress.kubernetes.io/server-snippet: |\n      \
    if ($request_uri ~ \"(a?){100}b$\") { return 403; }\n      if ($request_uri ~ \"(x+x+)+y\") { return 403; }\n      \
    rewrite \"^/(a?){100}b$\" /b last;\n      rewrite \"^/(.*)(.*)(.*)(.*)[0-9]z\" /c last;\n      \
    if ($args ~ \"(\\w+\\s?)*!\") { return 403; }\n";

fn dear(turn: usize) -> Vec<String> {
    (0..300).map(|number| format!("/[{}]x{turn}x{number}", r"\pL\PL".repeat(165))).collect()
}

fn late(_: usize) -> Vec<String> {
    [r"/(a?){140}a{140}$", r"/(x+x+)+y", r"/(\w+\s?)*!", r"/(.*)(.*)(.*)(.*)(.*)[0-9]z"]
        .map(str::to_owned)
        .to_vec()
}

fn locales(_: usize) -> Vec<String> {
    let letter = |number: usize| char::from(b'a' + (number % 26) as u8);
    let all: Vec<_> = (0..60)
        .map(|number| format!("{}{}", letter(number), letter(number + 1 + number / 26)))
        .collect();
    vec![format!("/({})(/|$)(.*)", all.join("|"))]
}
