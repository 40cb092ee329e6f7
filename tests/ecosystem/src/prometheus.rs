//! Prometheus scrapes the controller while requests pass, and evaluates what is written for it: the queries of the dashboard for
//! Grafana, and the alerts of docs/observe.md, which the chart makes a PrometheusRule of.

use crate::program::Start;
use crate::site::Site;
use anyhow::{Context, Result, ensure};
use oxigress_tests::client::{Address, Request, send};
use oxigress_tests::cluster::ingress;
use oxigress_tests::load::{Load, Plan, Report};
use oxigress_tests::place::{Directory, free_port};
use oxigress_tests::wait::{DEADLINE, block_on, until};
use oxigress_tests::{chart, dist};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::time::Instant;

/// What Grafana puts in the place of its variables, when all is chosen.
const VARIABLES: [(&str, &str); 7] = [
    ("$__rate_interval", "10s"),
    ("$ingress_namespace", ".*"),
    ("$namespace", ".*"),
    ("$ingress", ".*"),
    ("$class", ".*"),
    ("$pod", ".*"),
    ("$job", ".*"),
];

pub fn run(directory: &Directory) -> Result<Vec<String>> {
    let site = Site::start("prometheus", directory, &["--enable-metrics"])?;
    let pods = [site.tenant.pod("shop")?, site.tenant.pod("canary")?];
    site.tenant.service("shop", &[&pods[0]])?;
    site.tenant.service("canary", &[&pods[1]])?;
    site.secret("shop", "shop.test")?;
    site.tenant.apply(&objects())?;
    site.tenant.settle(&site.controller)?;
    let alerts = alerts()?;
    let port = start_files(directory, &site, &alerts)?;
    let flags = [
        format!("--config.file={}", directory.join("prometheus.yml").display()),
        format!("--storage.tsdb.path={}", directory.join("data").display()),
        format!("--web.listen-address=127.0.0.1:{port}"),
    ];
    let _prometheus = Start::new("prometheus")?.args(flags).run(directory)?;
    let load = load(&site)?;
    let prometheus = Prometheus(port);
    let samples = prometheus.wait_for_scrapes(4)?;
    let queries = queries()?;
    let silent = prometheus.evaluate(&queries)?;
    let variables = prometheus.variables()?;
    let report = load.stop();
    ensure!(report.failed == 0, "requests failed: {:?}", report.failures);
    let counted = prometheus.counts(&site, &report)?;
    let states = prometheus.rules(alerts.len())?;
    let with_data = queries.len() - silent.len();
    let silent: Vec<_> = silent.iter().map(|title| format!("\"{title}\"")).collect();
    let without =
        if silent.is_empty() { String::new() } else { format!(" (none: {})", silent.join(", ")) };
    Ok(vec![
        format!("scraped `/metrics` of the controller, {samples} samples a time"),
        format!("its count of {counted} requests is what the clients sent"),
        format!(
            "{} queries of the dashboard for Grafana evaluate, {with_data} have data{without}; so have its {variables} variables",
            queries.len()
        ),
        format!(
            "{} alerts of `docs/observe.md` in the chart's PrometheusRule evaluate: {states}",
            alerts.len()
        ),
    ])
}

/// A shop with a canary and a certificate, and an Ingress that leads nowhere.
fn objects() -> String {
    let canary = ingress("canary", "shop.test", "canary").replace(
        "{name: canary}",
        "{name: canary, annotations: {nginx.ingress.kubernetes.io/canary: 'true', \
         nginx.ingress.kubernetes.io/canary-weight: '20'}}",
    );
    let shop = ingress("shop", "shop.test", "shop")
        .replace("spec: {", "spec: {tls: [{hosts: [shop.test], secretName: shop}], ");
    format!("{shop}---\n{canary}---\n{}", ingress("orphan", "orphan.test", "none"))
}

fn load(site: &Site) -> Result<Load> {
    let requests = vec![
        Request::get("shop.test", "/"),
        Request::new("POST", "shop.test", "/basket").body("apples"),
        Request::get("shop.test", "/broken").header("Answer-Status", "500"),
    ];
    let mut plan = Plan::new(Address::https(site.controller.https_port, "shop.test"), requests, 2);
    plan.pace = std::time::Duration::from_millis(20);
    plan.check = Some(std::sync::Arc::new(|request, answer| {
        let expected = if request.target == "/broken" { 500 } else { 200 };
        ensure!(answer.status == expected, "{answer}");
        Ok(())
    }));
    Load::start(plan)
}

/// The expressions of docs/observe.md, by what they tell.
fn alerts() -> Result<BTreeMap<String, String>> {
    let page = fs::read_to_string(dist::repository().join("docs/observe.md"))?;
    let (_, table) = page.split_once("\n## Alerts\n").context("no alerts in docs/observe.md")?;
    let table = table.split("\n## ").next().unwrap_or_default();
    let row = |line: &str| {
        let (what, expression) = line.strip_prefix("| ")?.split_once(" | `")?;
        let expression = expression.strip_suffix("` |")?;
        Some((what.to_owned(), expression.replace("\\|", "|")))
    };
    let alerts: BTreeMap<_, _> = table.lines().filter_map(row).collect();
    ensure!(alerts.len() >= 9, "{} alerts in docs/observe.md", alerts.len());
    Ok(alerts)
}

/// Writes Prometheus's files: the rules are those of the PrometheusRule that the chart makes.
fn start_files(
    directory: &Directory,
    site: &Site,
    alerts: &BTreeMap<String, String>,
) -> Result<u16> {
    let rules: Vec<_> =
        alerts.iter().map(|(what, expr)| json!({"alert": what, "expr": expr})).collect();
    let rule = json!({"enabled": true, "rules": rules});
    let values =
        json!({"controller": {"metrics": {"enabled": true, "prometheusRule": rule}}}).to_string();
    let objects = chart::objects("default", &values, &[])?;
    let rule = chart::find(&objects, "PrometheusRule", "")?;
    fs::write(directory.join("rules.yml"), rule["spec"].to_string())?;
    let target = format!("127.0.0.1:{}", site.controller.health_port);
    let config = json!({
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": ["rules.yml"],
        "scrape_configs": [{"job_name": "oxigress", "static_configs": [{"targets": [target]}]}],
    });
    fs::write(directory.join("prometheus.yml"), config.to_string())?;
    free_port()
}

fn dashboard() -> Result<Value> {
    let file = dist::repository().join("conf/grafana/oxigress.json");
    Ok(serde_json::from_str(&fs::read_to_string(file)?)?)
}

/// The dashboard's queries as Grafana sends them, each with its panel's title.
fn queries() -> Result<Vec<(String, String)>> {
    let mut queries = Vec::new();
    for panel in dashboard()?["panels"].as_array().into_iter().flatten() {
        let title = panel["title"].as_str().unwrap_or_default();
        for target in panel["targets"].as_array().into_iter().flatten() {
            let expr = target["expr"].as_str().with_context(|| format!("no query in {title}"))?;
            let fill = |text: String, (name, value): &(&str, &str)| text.replace(name, value);
            queries.push((title.to_owned(), VARIABLES.iter().fold(expr.to_owned(), fill)));
        }
    }
    for (title, query) in &queries {
        ensure!(!query.contains('$'), "{title}: an unknown variable in {query}");
    }
    Ok(queries)
}

/// Its HTTP API.
struct Prometheus(u16);

impl Prometheus {
    fn ask(&self, path: &str, query: &str) -> Result<Value> {
        let target = match query {
            "" => path.to_owned(),
            query => format!("{path}?query={}", escaped(query)),
        };
        let request = Request::get("localhost", &target);
        let answer = block_on(send(&Address::http(self.0), &request))?;
        ensure!(answer.status == 200, "{query}: {answer}");
        let body: Value = answer.json()?;
        ensure!(body["status"] == "success", "{query}: {body}");
        Ok(body["data"].clone())
    }

    fn query(&self, query: &str) -> Result<Vec<Value>> {
        let data = self.ask("/api/v1/query", query)?;
        data["result"].as_array().cloned().with_context(|| data.to_string())
    }

    fn number(&self, query: &str) -> Result<f64> {
        let result = self.query(query)?;
        let value = result.first().and_then(|one| one["value"][1].as_str());
        value.with_context(|| format!("no data: {query}"))?.parse().context("a number")
    }

    /// Waits for so many scrapes with requests in them; the samples of the last one.
    fn wait_for_scrapes(&self, count: u32) -> Result<f64> {
        until("Prometheus", || {
            let up = self.number("up{job=\"oxigress\"}")?;
            ensure!(up == 1.0, "the target is down: {}", self.ask("/api/v1/targets", "")?);
            let seen = "count_over_time(nginx_ingress_controller_requests{status=\"200\"}[1m])";
            let seen = self.number(&format!("max({seen})"))?;
            ensure!(seen >= f64::from(count), "{seen} scrapes");
            self.number("scrape_samples_scraped")
        })
    }

    /// Evaluates every query; the titles of those that have no data.
    fn evaluate(&self, queries: &[(String, String)]) -> Result<Vec<String>> {
        let start = Instant::now();
        loop {
            let mut silent = Vec::new();
            for (title, query) in queries {
                let result = self.query(query).with_context(|| title.clone())?;
                if result.is_empty() {
                    silent.push(title.clone());
                }
            }
            // Rates need several scrapes.
            if silent.is_empty() || start.elapsed() > DEADLINE / 2 {
                return Ok(silent);
            }
            std::thread::sleep(std::time::Duration::from_secs(1));
        }
    }

    /// Asks for what the dashboard's variables offer, as Grafana does for `label_values(METRIC, LABEL)`; how many there are.
    fn variables(&self) -> Result<usize> {
        let dashboard = dashboard()?;
        let all = dashboard["templating"]["list"].as_array().context("variables")?;
        let texts = all.iter().filter_map(|one| one["query"]["query"].as_str());
        let texts: Vec<_> = texts.collect();
        for text in &texts {
            let inner = text.strip_prefix("label_values(").and_then(|rest| rest.strip_suffix(')'));
            let (metric, label) =
                inner.and_then(|pair| pair.split_once(", ")).context((*text).to_owned())?;
            let values = self.ask(&format!("/api/v1/label/{label}/values?match[]={metric}"), "")?;
            ensure!(values.as_array().is_some_and(|all| !all.is_empty()), "{text}: {values}");
        }
        Ok(texts.len())
    }

    /// Waits until it has counted all that the clients sent.
    fn counts(&self, site: &Site, report: &Report) -> Result<u64> {
        let namespace = &site.tenant.namespace;
        let query = format!(
            "sum(nginx_ingress_controller_requests{{namespace=\"{namespace}\", host=\"shop.test\"}})"
        );
        until("the count of requests", || {
            let counted = self.number(&query)?;
            ensure!(counted == report.answered as f64, "{counted} of {}", report.answered);
            Ok(report.answered)
        })
    }

    /// Checks that every alert is evaluated, and says how many are in which state.
    fn rules(&self, count: usize) -> Result<String> {
        let rules = until("the alerts to be evaluated", || {
            let data = self.ask("/api/v1/rules", "")?;
            let groups = data["groups"].as_array().context("groups")?;
            let rules: Vec<Value> = groups
                .iter()
                .filter_map(|group| group["rules"].as_array())
                .flatten()
                .cloned()
                .collect();
            ensure!(rules.len() == count, "{} of {count} alerts", rules.len());
            ensure!(rules.iter().all(|rule| rule["health"] != "unknown"), "{data}");
            Ok(rules)
        })?;
        let mut firing = Vec::new();
        for rule in &rules {
            ensure!(rule["health"] == "ok", "{rule}");
            if rule["state"] == "firing" {
                firing.push(rule["name"].as_str().unwrap_or_default());
            }
        }
        // What the test does.
        let expected = ["an Ingress answers with errors", "an Ingress leads to nobody"];
        ensure!(expected.iter().all(|name| firing.contains(name)), "firing: {firing:?}");
        Ok(format!("{} fire (\"{}\")", firing.len(), firing.join("\", \"")))
    }
}

fn escaped(text: &str) -> String {
    let escape = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    text.bytes().map(escape).collect()
}
