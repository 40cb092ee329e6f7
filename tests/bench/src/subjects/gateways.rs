//! A real kube-apiserver with 5,000 HTTPRoutes on 50 Gateways: start, memory, one route added at a time, and 100 changes of
//! routes a second under load.

use crate::bench::Bench;
use crate::cluster::{in_its_network, pod};
use crate::http::Client;
use crate::product::{Oxigress, Requests, edits, resolution};
use crate::report::Table;
use crate::sample::{Sample, show};
use crate::usage::{self, Proportional};
use anyhow::{Context, Result, anyhow, ensure};
use futures_util::{StreamExt, TryStreamExt};
use kube::Client as Kubernetes;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use oxigress_tests::cluster::Cluster;
use oxigress_tests::dist;
use oxigress_tests::endpoint::Endpoint;
use oxigress_tests::process::{Entry, entries, family};
use oxigress_tests::wait::{block_on, until};
use serde_json::{Value, json};
use std::fs;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Until all routes have their status, with an API server that shares the cores.
const STATUSES: Duration = Duration::from_secs(180);
const GATEWAYS: usize = 50;
const ROUTES: usize = 5_000;
/// Routes that are added one at a time, and timed.
const ADDED: usize = 300;
/// Changes of routes a second, and for how long.
const RATE: usize = 100;
const SECONDS: usize = 60;
/// Threads that change routes: each write waits for the API server's answer.
const WRITERS: usize = 16;
/// Connections that send requests meanwhile.
const CLIENTS: usize = 4;
/// Between two requests of a connection: without a pause they would leave the API server no processor for the changes.
const BETWEEN: Duration = Duration::from_millis(4);
/// Writes at a time while the objects are made.
const WRITES: usize = 48;
const MIB: f64 = (1 << 20) as f64;
const GROUP: &str = "gateway.networking.k8s.io";

/// The requests of clients meanwhile.
#[derive(Default)]
struct Load {
    failed: AtomicUsize,
    is_over: AtomicBool,
}

/// Where everything is.
struct Site<'c> {
    cluster: &'c Cluster,
    client: Kubernetes,
    pod: &'c Endpoint,
}

pub fn run(bench: &Bench, table: &mut Table) -> Result<()> {
    in_its_network(|| measure(bench, table))
}

fn measure(bench: &Bench, table: &mut Table) -> Result<()> {
    let (cluster, pod) = (Cluster::start(&bench.directory)?, pod("a")?);
    let site = Site { cluster: &cluster, client: cluster.client()?, pod: &pod };
    let start = Instant::now();
    site.define()?;
    site.fill()?;
    table.note(format!(
        "{ROUTES} HTTPRoutes on {GATEWAYS} Gateways, each Gateway with its routes and their Service in a namespace of its own, \
         written in {:.0} s; the API's own definitions; kube-apiserver, etcd and the endpoint share the machine's cores with what \
         is measured",
        start.elapsed().as_secs_f64()
    ));
    let source = [
        format!("--kubeconfig={}", cluster.kubeconfig().display()),
        "--gateway-api".into(),
        "--publish-status-address=127.0.0.1".into(),
        "--disable-sync-events".into(),
        "--zone-size=128m".into(),
    ];
    let mut oxigress = Oxigress::start(bench, &source, "gateways")?;
    table.row("start to ready", show(oxigress.ready_after));
    let mut requests = Requests::new(oxigress.http_port)?;
    for number in [0, ROUTES / 2, ROUTES - 1] {
        requests.until(&host(number), "/", |answer| answer.status == 200)?;
    }
    site.wait_for_statuses()?;
    memory(table, "", &oxigress)?;

    let times = site.additions(&mut requests)?;
    table
        .row(
            &format!("route added to served: p50, p99, mean of {}", times.len()),
            [times.p50(), times.quantile(0.99), times.mean()].map(show).join(", "),
        )
        .peer("agentgateway's own report: mean 16.6 ms");
    under_changes(&site, &oxigress, &mut requests, table)?;
    memory(table, " after all changes", &oxigress)?;
    table.note("added to served: from before the route is written to the API server, whose own time is in it");
    table.note(resolution());
    oxigress.stop()
}

/// PSS of the controller, and of nginx's master and workers.
fn memory(table: &mut Table, when: &str, oxigress: &Oxigress) -> Result<()> {
    let root = oxigress.process.pid();
    let controller = usage::proportional(usage::child_with_argument(root, "controller")?)?;
    let (family, mut nginx) = (family(root), Proportional::default());
    let is_nginx =
        |entry: &&Entry| family.contains(&entry.pid) && entry.title.starts_with("nginx: ");
    for entry in entries().iter().filter(is_nginx) {
        let one = usage::proportional(entry.pid)?;
        nginx = Proportional { all: nginx.all + one.all, shared: nginx.shared + one.shared };
    }
    let [controller, all, shared] =
        [controller.all, nginx.all, nginx.shared].map(|it| it as f64 / MIB);
    table
        .row(
            &format!("memory (PSS) of the controller, of nginx{when}"),
            format!("{controller:.0} MiB, {all:.0} MiB with {shared:.0} MiB of shared memory"),
        )
        .peer("agentgateway's own report: 428 MiB, 46 MiB");
    Ok(())
}

fn namespace(number: usize) -> String {
    format!("bench-{}", number % GATEWAYS)
}

fn host(number: usize) -> String {
    format!("app-{number}.{}.test", namespace(number))
}

fn kind(group: &str, kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind))
}

fn routes() -> ApiResource {
    kind(GROUP, "HTTPRoute")
}

/// What a route says; its endpoint is told the turn.
fn route(number: usize, turn: usize) -> Value {
    let set = json!([{"name": "X-Turn", "value": turn.to_string()}]);
    let filter = json!({"type": "RequestHeaderModifier", "requestHeaderModifier": {"set": set}});
    let rule = json!({"filters": [filter], "backendRefs": [{"name": "app", "port": 80}]});
    json!({"parentRefs": [{"name": "web"}], "hostnames": [host(number)], "rules": [rule]})
}

impl Site<'_> {
    /// Defines the kinds of the API, as its authors have them.
    fn define(&self) -> Result<()> {
        for file in fs::read_dir(dist::conformance("crd")?)? {
            let path = file?.path();
            let text = fs::read_to_string(&path)?;
            self.cluster.apply(&text).with_context(|| path.display().to_string())?;
        }
        until("the definitions", || {
            self.cluster.apply(&format!(
                "{{apiVersion: {GROUP}/v1, kind: GatewayClass, metadata: {{name: bench}}, \
                 spec: {{controllerName: oxigress.io/gateway-controller}}}}"
            ))?;
            // Each definition is served at its own time.
            ["Gateway", "HTTPRoute"]
                .into_iter()
                .try_for_each(|kind| self.cluster.list(kind, "default").map(drop))
        })
    }

    /// The objects, as their owners would write them.
    fn fill(&self) -> Result<()> {
        let of_gateways = (0..GATEWAYS).map(|number| {
            let name = namespace(number);
            let (address, port) = (self.pod.address.ip(), self.pod.address.port());
            format!(
                "---\n{{apiVersion: v1, kind: Namespace, metadata: {{name: {name}}}}}\n\
                 ---\n{{apiVersion: v1, kind: Service, metadata: {{name: app, namespace: {name}}}, \
                 spec: {{ports: [{{port: 80, targetPort: 80}}]}}}}\n\
                 ---\n{{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {{name: app, namespace: {name}, \
                 labels: {{kubernetes.io/service-name: app}}}}, addressType: IPv4, \
                 endpoints: [{{addresses: ['{address}'], conditions: {{ready: true}}}}], ports: [{{name: '', port: {port}}}]}}\n\
                 ---\n{{apiVersion: {GROUP}/v1, kind: Gateway, metadata: {{name: web, namespace: {name}}}, \
                 spec: {{gatewayClassName: bench, listeners: [{{name: http, port: 80, protocol: HTTP, hostname: '*.{name}.test'}}]}}}}\n"
            )
        });
        self.cluster.apply(&of_gateways.collect::<String>())?;
        let writes = futures_util::stream::iter(0..ROUTES).map(|number| self.create(number));
        block_on(writes.buffer_unordered(WRITES).try_collect::<()>())
    }

    fn api(&self, number: usize) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &namespace(number), &routes())
    }

    /// Creates the route of this number.
    async fn create(&self, number: usize) -> Result<()> {
        let kind = routes();
        let object = json!({
            "apiVersion": kind.api_version, "kind": kind.kind, "spec": route(number, 0),
            "metadata": {"name": format!("app-{number}"), "namespace": namespace(number)},
        });
        let object: DynamicObject = serde_json::from_value(object)?;
        self.api(number).create(&PostParams::default(), &object).await?;
        Ok(())
    }

    /// Until all routes are told that they are accepted: what follows is not to wait for these writes. Asked once a second, since
    /// each question costs the API server as much as many writes.
    fn wait_for_statuses(&self) -> Result<()> {
        let start = Instant::now();
        let missing = |gateway| -> Result<usize> {
            let all = self.cluster.list("HTTPRoute", &namespace(gateway))?;
            let is_told = |route: &&Value| route["status"]["parents"][0]["conditions"].is_array();
            Ok(all.len() - all.iter().filter(is_told).count())
        };
        for gateway in 0..GATEWAYS {
            while missing(gateway)? > 0 {
                ensure!(start.elapsed() < STATUSES, "routes of Gateway {gateway} say nothing");
                thread::sleep(Duration::from_secs(1));
            }
        }
        Ok(())
    }

    /// Adds routes one at a time, each of which goes before the next comes.
    fn additions(&self, requests: &mut Requests) -> Result<Sample> {
        edits(ADDED, |turn| {
            let number = ROUTES + turn;
            // Nothing is new then but the route.
            requests.until(&host(number), "/", |answer| answer.status == 404)?;
            let start = Instant::now();
            block_on(self.create(number))?;
            requests.until(&host(number), "/", |answer| answer.status == 200)?;
            let took = start.elapsed();
            let api = self.api(number);
            block_on(api.delete(&format!("app-{number}"), &DeleteParams::default()))?;
            requests.until(&host(number), "/", |answer| answer.status == 404)?;
            Ok(took)
        })
    }

    /// Changes every [`WRITERS`]th route at its part of the rate; answers how many changes there were.
    fn change(&self, writer: usize, start: Instant) -> Result<usize> {
        let (mut done, pause) = (0, Duration::from_secs(1) * WRITERS as u32 / RATE as u32);
        while start.elapsed() < Duration::from_secs(SECONDS as u64) {
            if let Some(early) = (pause * done as u32).checked_sub(start.elapsed()) {
                thread::sleep(early);
            }
            let (number, turn) = ((done * WRITERS + writer) % ROUTES, 1 + done);
            let change = json!({"spec": route(number, turn)});
            let write = Patch::Merge(&change);
            let name = format!("app-{number}");
            block_on(self.api(number).patch(&name, &PatchParams::default(), &write))?;
            done += 1;
        }
        Ok(done)
    }
}

/// Routes change while clients ask for the hosts of all of them.
fn under_changes(
    site: &Site<'_>,
    oxigress: &Oxigress,
    requests: &mut Requests,
    table: &mut Table,
) -> Result<()> {
    let (load, port) = (Load::default(), oxigress.http_port);
    let (changes, times, took) = thread::scope(|scope| -> Result<_> {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                scope.spawn({
                    let load = &load;
                    move || ask(load, port, client)
                })
            })
            .collect();
        let start = Instant::now();
        let writers: Vec<_> =
            (0..WRITERS).map(|writer| scope.spawn(move || site.change(writer, start))).collect();
        let joined = writers
            .into_iter()
            .map(|it| it.join().map_err(|_| anyhow!("a writer has panicked"))?);
        let changes = joined.collect::<Result<Vec<usize>>>();
        let took = start.elapsed();
        load.is_over.store(true, Ordering::Relaxed);
        let mut times = Vec::new();
        for client in clients {
            times.extend(client.join().map_err(|_| anyhow!("a client has panicked"))?);
        }
        Ok((changes?, times, took))
    })?;
    // The last change of the first writer: all before it are served then.
    let last = changes.first().copied().unwrap_or(1).max(1) - 1;
    let (number, seen) = (last * WRITERS % ROUTES, format!("x-turn: {}\n", last + 1));
    let start = Instant::now();
    requests.until(&host(number), "/", |answer| {
        String::from_utf8_lossy(&answer.body).contains(&seen)
    })?;
    let all: usize = changes.iter().sum();
    let times: Sample = times.into_iter().collect();
    let failed = load.failed.load(Ordering::Relaxed);
    table.row(
        "changes of routes under load",
        format!("{all} in {}: {:.0}/s", show(took), all as f64 / took.as_secs_f64()),
    );
    table.row("the last of them to served, from its answer", show(start.elapsed()));
    table
        .row("requests meanwhile; failed", format!("{}; {failed}", times.len() + failed))
        .peer(format!("p50 {}, p99.9 {}", show(times.p50()), show(times.quantile(0.999))))
        .budget("0 failed", failed == 0);
    Ok(())
}

/// Asks for hosts of all routes, one after the other, until it is over; answers how long each request took that did not fail.
fn ask(load: &Load, port: u16, client: usize) -> Vec<Duration> {
    let (mut times, mut connection, began) = (Vec::new(), None, Instant::now());
    for turn in 0.. {
        if load.is_over.load(Ordering::Relaxed) {
            break;
        }
        let host = host((turn * CLIENTS + client) % ROUTES);
        thread::sleep((BETWEEN * turn as u32).saturating_sub(began.elapsed()));
        let start = Instant::now();
        let answer = match connection.take() {
            Some(open) => Ok(open),
            None => Client::tcp(port),
        };
        let answer = answer.and_then(|mut open| {
            let answer = open.get_ok(&host, "/")?;
            Ok((open, answer))
        });
        match answer {
            Ok((open, answer)) => {
                times.push(start.elapsed());
                connection = Some(open).filter(|_| !answer.is_last);
            }
            Err(error) => {
                // All of them are counted, and the first ones tell what it is.
                if load.failed.fetch_add(1, Ordering::Relaxed) < 5 {
                    eprintln!("bench: {host}: {error:#}");
                }
            }
        }
    }
    times
}
