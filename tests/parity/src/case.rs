//! One block, asked of both.

use crate::documented::Table;
use crate::manifests::Manifests;
use anyhow::{Context, Result, ensure};
use oxigress_compare::answer::Difference;
use oxigress_compare::requests::Request;
use oxigress_compare::{Gateway, Options, Requests, ask_both, known};
use oxigress_tests::block::parse::{Block, Section};
use oxigress_tests::block::setup::{Setup, pairs};
use oxigress_tests::block::short;
use oxigress_tests::client::{self, Address};
use oxigress_tests::cluster::{Cluster, Tenant, ingress};
use oxigress_tests::controller::Controller;
use oxigress_tests::endpoint::{Behaviour, Endpoint};
use oxigress_tests::genuine::Genuine;
use oxigress_tests::place::Directory;
use oxigress_tests::variables::Variables;
use oxigress_tests::wait::{self, block_on};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Headers that every request has: the endpoint answers with those that it got, and one identifier is for both.
const HEADERS: [(&str, &str); 2] =
    [("Answer-Seen", "all"), ("X-Request-ID", "0123456789abcdef0123456789abcdef")];
/// Headers of answers that are not compared: how often a connection was used, and the mark of passes through Oxigress,
/// which docs/differences/routes.md has.
const IGNORED: [&str; 2] = ["x-endpoint-requests", "seen-cdn-loop"];
const PORT: &str = "seen-x-forwarded-port";
const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"];

/// What came of a block.
#[derive(Default)]
pub struct Outcome {
    pub requests: usize,
    pub same: usize,
    /// Requests whose differences are all documented.
    pub documented: usize,
    /// Requests that one gateway answers differently each time.
    pub unstable: usize,
    pub unanswered: usize,
    /// Requests with a difference that is not documented.
    pub different: Vec<(Request, Vec<Difference>)>,
    /// How often each documented difference was met.
    pub known: BTreeMap<String, usize>,
    /// What was not asked, by reason.
    pub left_out: BTreeMap<String, usize>,
}

struct Case<'c> {
    name: &'c str,
    table: &'c Table,
    tenant: Tenant<'c>,
    variables: Variables,
    manifests: Manifests,
    controller: Controller,
    genuine: Genuine,
    settled: Endpoint,
    settlements: u32,
    outcome: Outcome,
}

/// Whether a block has what can be asked of both.
pub fn is_case(block: &Block) -> bool {
    block.sections.iter().any(|section| matches!(&*section.name, "manifests" | "kubernetes"))
}

/// Starts both for the block and asks its requests of them, and those that its Ingresses suggest.
pub fn run(name: &str, block: &Block, table: &Table) -> Result<Outcome> {
    let directory = Directory::new("parity")?;
    let outcome = run_in(name, block, table, &directory);
    if outcome.is_err() {
        let kept = directory.keep();
        return outcome.with_context(|| format!("files: {}", kept.display()));
    }
    outcome
}

fn run_in(name: &str, block: &Block, table: &Table, directory: &Directory) -> Result<Outcome> {
    let mut case = Case::start(name, block, table, Cluster::shared()?, directory)?;
    for (index, section) in block.sections.iter().enumerate() {
        let rest = block.sections.get(index + 1..).unwrap_or_default();
        let headers = rest.first().filter(|next| next.name == "more_headers");
        let acted = case.act(section, headers);
        if acted.is_err() && case.genuine.log().contains("[emerg]") {
            case.leave_out("objects of which ingress-nginx makes what its nginx refuses");
            break;
        }
        acted.with_context(|| format!("--- {}", section.name))?;
    }
    let Case { outcome, .. } = case;
    Ok(outcome)
}

impl<'c> Case<'c> {
    fn start(
        name: &'c str,
        block: &Block,
        table: &'c Table,
        cluster: &'c Cluster,
        directory: &Directory,
    ) -> Result<Self> {
        let tenant = cluster.tenant("parity")?;
        let mut variables = Setup::read(block)?.variables(true)?;
        let settings = |name: &str, data: &str| {
            tenant.apply(&format!(
                "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}}}, data: {{{data}}}}}"
            ))
        };
        // The defaults of 1.12 and newer, where 1.11 has others.
        settings(
            "ingress-nginx",
            "worker-processes: '1', disable-access-log: 'true', annotations-risk-level: High, \
             strict-validate-path-type: 'true', allow-cross-namespace-resources: 'false'",
        )?;
        let controller = Controller::start_on(cluster, directory, 1, &tenant.flags())?;
        let configmap = format!("{}/ingress-nginx", tenant.namespace);
        let genuine = Genuine::start(&tenant, directory, &configmap, &["--sync-rate-limit=10"])?;
        for (name, value) in [
            ("NAMESPACE", tenant.namespace.clone()),
            ("CLASS", tenant.class.clone()),
            ("PORT", controller.http_port.to_string()),
            ("TLS_PORT", controller.https_port.to_string()),
        ] {
            variables.texts.insert(name.into(), value);
        }
        let settled = tenant.pod("settled")?;
        tenant.service("settled", &[&settled])?;
        Ok(Case {
            name,
            table,
            tenant,
            variables,
            manifests: Manifests::default(),
            controller,
            genuine,
            settled,
            settlements: 0,
            outcome: Outcome::default(),
        })
    }

    /// Does what a section says, as far as it can be asked of both.
    fn act(&mut self, section: &Section, more: Option<&Section>) -> Result<()> {
        let value = match &*section.name {
            "manifests" | "kubernetes" | "remove_manifest" | "request" | "requests"
            | "behaviour" => self.variables.expand(&section.value)?,
            "raw_request" | "pipelined_requests" | "held" => {
                self.leave_out("requests as bytes, or several at once");
                return Ok(());
            }
            _ => return Ok(()),
        };
        match &*section.name {
            "manifests" | "kubernetes" => {
                let file = format!("{} {}", section.name, section.arguments);
                match self.manifests.apply(&self.tenant, &file, &value) {
                    Ok(refused) if refused.is_empty() => {}
                    Ok(_) => self.leave_out("objects that the API server refuses"),
                    Err(_) => self.leave_out("manifests that only a folder can have"),
                }
                self.settle()?;
                let routes = self.manifests.routes();
                let mut requests = Requests::new(&["GET".into(), "HEAD".into()]);
                requests.add_routes(&routes);
                self.ask(requests, &[]);
            }
            "remove_manifest" => {
                let file = format!("manifests {}", section.arguments);
                self.manifests.remove(&self.tenant, &file)?;
                self.settle()?;
            }
            "behaviour" => {
                for (name, behaviour) in pairs(&value)? {
                    if let Some(endpoint) = self.variables.endpoints.get(&name) {
                        endpoint.change(Behaviour::parse(&behaviour)?);
                    }
                }
            }
            _ => self.requests(section, &value, more)?,
        }
        Ok(())
    }

    fn requests(&mut self, section: &Section, value: &str, more: Option<&Section>) -> Result<()> {
        if !matches!(&*section.arguments, "" | "fresh") {
            return Ok(());
        }
        let mut headers = Vec::new();
        let mut list = String::new();
        if section.name == "requests" {
            for line in short::lines(value)? {
                list += &format!("{} {}\n", line.method, absolute(&line.url, None));
            }
        } else {
            let (head, body) = value.split_once("\n\n").unwrap_or((value, ""));
            if !body.trim().is_empty() {
                self.leave_out("requests with a body");
                return Ok(());
            }
            let mut lines = head.lines();
            let mut words = lines.next().context("a request line")?.split_whitespace();
            let (method, target) = (words.next().context("a method")?, words.next().unwrap_or("/"));
            headers = lines.filter_map(header).collect();
            let host = headers.iter().position(|(name, _)| name.eq_ignore_ascii_case("host"));
            let host = host.map(|at| headers.remove(at).1);
            list = format!("{method} {}\n", absolute(&short::Url::parse(target)?, host.as_deref()));
        }
        if let Some(more) = more {
            let more = self.variables.expand(&more.value)?;
            headers.extend(more.lines().filter(|line| !line.starts_with('!')).filter_map(header));
        }
        let mut requests = Requests::new(&METHODS.map(String::from));
        requests.add_list(&list);
        self.ask(requests, &headers);
        Ok(())
    }

    fn ask(&mut self, requests: Requests, more: &[(String, String)]) {
        for (reason, count) in requests.skipped {
            *self.outcome.left_out.entry(reason).or_default() += count;
        }
        let gateway =
            |http_port, https_port| Gateway { host: "127.0.0.1".into(), http_port, https_port };
        let old = gateway(self.genuine.http_port, self.genuine.https_port);
        let new = gateway(self.controller.http_port, self.controller.https_port);
        let given = |name: &str| more.iter().any(|(given, _)| given.eq_ignore_ascii_case(name));
        let common = HEADERS.iter().filter(|(name, _)| !given(name));
        let common = common.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let mut options = Options {
            concurrency: 1,
            rate: 0,
            timeout: Duration::from_secs(10),
            headers: common.chain(more.iter().cloned()).collect(),
            ignored: BTreeSet::from(IGNORED.map(String::from)),
        };
        for request in requests.all {
            // Each has a port of its own, of which it tells; over TLS both say 443.
            match request.is_https {
                true => options.ignored.remove(PORT),
                false => options.ignored.insert(PORT.to_owned()),
            };
            let asked = block_on(ask_both(&old, &new, &request, &options));
            self.count(request, asked);
        }
    }

    fn count(&mut self, request: Request, asked: oxigress_compare::ComparedRequest) {
        let all = asked.differences;
        let outcome = &mut self.outcome;
        outcome.requests += 1;
        let mut unknown = Vec::new();
        for one in &all {
            let name = match known::find(&request, one, &all) {
                Some(known) => Some(known.name),
                None => self.table.find(self.name, &request, one),
            };
            match name {
                Some(name) => *outcome.known.entry(name.to_owned()).or_default() += 1,
                None => unknown.push(one.clone()),
            }
        }
        if !unknown.is_empty() {
            outcome.different.push((request, unknown));
        } else if asked.is_unstable {
            outcome.unstable += 1;
        } else if asked.is_unanswered {
            outcome.unanswered += 1;
        } else if all.is_empty() {
            outcome.same += 1;
        } else {
            outcome.documented += 1;
        }
    }

    fn leave_out(&mut self, reason: &str) {
        *self.outcome.left_out.entry(reason.to_owned()).or_default() += 1;
    }

    /// Returns when both serve the objects as they are now: an Ingress that came after all others is served, and then
    /// another one, since ingress-nginx reads each kind of object by itself.
    fn settle(&mut self) -> Result<()> {
        let old = match self.settlements {
            0 => None,
            number => Some(format!("settled-{number}")),
        };
        for _ in 0..2 {
            self.settlements += 1;
            let name = format!("settled-{}", self.settlements);
            let host = format!("{name}.test");
            self.tenant.apply(&ingress(&name, &host, "settled"))?;
            let ours = Address::http(self.controller.http_port);
            for (who, address) in
                [("oxigress", ours), ("ingress-nginx", Address::http(self.genuine.http_port))]
            {
                wait::until(who, || {
                    let request = client::Request::get(&host, "/");
                    let answer = block_on(client::send(&address, &request))?;
                    ensure!(answer.endpoint().as_deref() == Some(&*self.settled.name), "{answer}");
                    self.genuine.has_settled()
                })
                .with_context(|| self.genuine.log_tail())?;
            }
        }
        if let Some(old) = old {
            self.tenant.delete("Ingress", &old)?;
        }
        Ok(())
    }
}

/// The URL with the host that the request names.
fn absolute(url: &short::Url, host: Option<&str>) -> String {
    let scheme = if url.is_tls { "https" } else { "http" };
    let host = host.map_or_else(|| url.authority(), str::to_owned);
    format!("{scheme}://{host}{}", url.target)
}

fn header(line: &str) -> Option<(String, String)> {
    let (name, value) = line.split_once(':')?;
    Some((name.trim().to_owned(), value.trim().to_owned()))
}
