//! Oxigress and the genuine ingress-nginx beside each other: the same 1,000 Ingresses of one kube-apiserver, one worker each,
//! both with their default headers and access log.

use crate::bench::Bench;
use crate::cluster::{fill, host, in_its_network, namespace, pod, slices};
use crate::nginx::Nginx;
use crate::product::{Oxigress, Requests, edits};
use crate::report::{Table, thousands};
use crate::sample::{Sample, show};
use crate::snapshot::HOST;
use crate::wrk::Wrk;
use crate::{conf, usage};
use anyhow::{Context, Result, ensure};
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use oxigress_tests::cluster::{Cluster, Tenant, ingress};
use oxigress_tests::endpoint::Endpoint;
use oxigress_tests::genuine::Genuine;
use oxigress_tests::network::pod_address;
use oxigress_tests::place::free_port;
use oxigress_tests::process::{family, workers_below};
use oxigress_tests::wait::{self, block_on};
use serde_json::json;
use std::net::SocketAddrV4;
use std::time::{Duration, Instant};

const APPS: usize = 1_000;
const CONNECTIONS: usize = 32;
/// Rounds of load, of both in turn, and the seconds of one.
const ROUNDS: u32 = 3;
const SECONDS: u32 = 5;
const ENDPOINT_CHANGES: usize = 20;
const ADDED_HOSTS: usize = 10;

pub fn run(bench: &Bench, table: &mut Table) -> Result<()> {
    in_its_network(|| measure(bench, table))
}

fn measure(bench: &Bench, table: &mut Table) -> Result<()> {
    let cluster = Cluster::start(&bench.directory)?;
    let tenant = cluster.tenant("peers")?;
    let pods = [pod("a")?, pod("b")?];
    fill(&cluster, &pods[0], APPS, &tenant.class)?;
    let mut endpoint = serve_load(bench, &tenant)?;
    tenant.apply(
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, data: {worker-processes: '1'}}",
    )?;
    let configmap = format!("--configmap={}/settings", tenant.namespace);
    let mut flags = tenant.flags();
    flags.extend([
        format!("--kubeconfig={}", cluster.kubeconfig().display()),
        configmap.clone(),
        "--disable-leader-election".into(),
        "--disable-sync-events".into(),
    ]);

    let start = Instant::now();
    let mut oxigress = Oxigress::start(bench, &flags, "peers")?;
    let mut ours = Gateway::new(oxigress.process.pid(), oxigress.http_port, start)?;
    let start = Instant::now();
    let name = configmap.trim_start_matches("--configmap=");
    let genuine = Genuine::start(&tenant, &bench.directory, name, &[])?;
    let mut theirs = Gateway::new(genuine.pid(), genuine.http_port, start)?;
    wait::until("one worker of ingress-nginx", || genuine.has_settled())?;

    let mut both = [&mut ours, &mut theirs];
    for round in 0..=ROUNDS {
        for gateway in &mut both {
            // The first opens connections and warms the caches.
            gateway.load(if round == 0 { 1 } else { SECONDS }, round > 0)?;
        }
    }
    for gateway in &mut both {
        gateway.memory = gateway.measure_memory()?;
        gateway.changes = gateway.change_endpoints(&cluster, &pods)?;
    }
    for (number, gateway) in both.iter_mut().enumerate() {
        gateway.added = gateway.add_hosts(&tenant, &number.to_string())?;
    }
    report(table, &ours, &theirs);
    oxigress.stop()?;
    endpoint.stop()
}

/// What both send the load to: an nginx at a pod's address.
fn serve_load(bench: &Bench, tenant: &Tenant<'_>) -> Result<Nginx> {
    let address = SocketAddrV4::new(pod_address(), free_port()?);
    let folder = bench.directory.join("peers-endpoint");
    let endpoint = Nginx::start(&bench.nginx, &folder, &conf::endpoints(&[address]))?;
    let (ip, port) = (address.ip(), address.port());
    tenant.apply(&format!(
        "{{apiVersion: v1, kind: Service, metadata: {{name: load}}, spec: {{ports: [{{port: 80, targetPort: 80}}]}}}}\n---\n\
         {{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {{name: load, labels: {{kubernetes.io/service-name: load}}}}, \
         addressType: IPv4, endpoints: [{{addresses: ['{ip}'], conditions: {{ready: true}}}}], ports: [{{name: '', port: {port}}}]}}\n---\n{}",
        ingress("load", HOST, "load")
    ))?;
    Ok(endpoint)
}

/// One of both, and what was measured of it.
struct Gateway {
    root: u32,
    port: u16,
    requests: Requests,
    ready_after: Duration,
    rates: Vec<f64>,
    /// CPU time of the worker for a request, in seconds.
    cpu: Vec<f64>,
    p99: String,
    /// Bytes of all its processes.
    memory: u64,
    changes: Sample,
    added: Added,
}

#[derive(Default)]
struct Added {
    times: Sample,
    /// For how many of the hosts nginx was reloaded.
    reloads: usize,
}

impl Gateway {
    /// Waits until it serves the first, the last and the loaded host.
    fn new(root: u32, port: u16, start: Instant) -> Result<Self> {
        let mut requests = Requests::new(port)?;
        for host in [&*host(0), &*host(APPS - 1), HOST] {
            requests.until(host, "/", |answer| matches!(answer.status, 200 | 502 | 504))?;
        }
        Ok(Gateway {
            root,
            port,
            requests,
            ready_after: start.elapsed(),
            rates: Vec::new(),
            cpu: Vec::new(),
            p99: String::new(),
            memory: 0,
            changes: Sample::default(),
            added: Added::default(),
        })
    }

    fn load(&mut self, seconds: u32, is_counted: bool) -> Result<()> {
        let [worker] = workers_below(self.root)[..] else { anyhow::bail!("not one worker") };
        let before = usage::cpu(worker)?;
        let wrk = Wrk::run(self.port, CONNECTIONS, seconds)?;
        let cpu = usage::cpu(worker)? - before;
        if is_counted {
            self.rates.push(wrk.rate);
            self.cpu.push(cpu.as_secs_f64() / wrk.count.max(1.0));
            self.p99 = wrk.p99;
        }
        Ok(())
    }

    fn measure_memory(&self) -> Result<u64> {
        let processes = family(self.root);
        ensure!(processes.len() > 2, "a controller, a master and a worker");
        processes.iter().map(|pid| Ok(usage::proportional(*pid)?.all)).sum()
    }

    /// The first app's endpoint, there and back.
    fn change_endpoints(&mut self, cluster: &Cluster, pods: &[Endpoint; 2]) -> Result<Sample> {
        let api: Api<DynamicObject> =
            Api::namespaced_with(cluster.client()?, &namespace(0), &slices());
        edits(ENDPOINT_CHANGES, |turn| {
            let pod = &pods[1 - turn % 2];
            let change = json!({
                "endpoints": [{"addresses": [pod.address.ip().to_string()], "conditions": {"ready": true}}],
                "ports": [{"name": "", "port": pod.address.port()}],
            });
            let start = Instant::now();
            block_on(api.patch("app-0", &PatchParams::default(), &Patch::Merge(&change)))?;
            let name = Some(pod.name.clone());
            self.requests.until(&host(0), "/", |answer| answer.endpoint == name)?;
            Ok(start.elapsed())
        })
    }

    fn add_hosts(&mut self, tenant: &Tenant<'_>, prefix: &str) -> Result<Added> {
        let mut reloads = 0;
        let times = edits(ADDED_HOSTS, |turn| {
            let name = format!("added-{prefix}-{turn}");
            let host = format!("{name}.bench.test");
            self.requests.until(&host, "/", |answer| answer.status == 404)?;
            let before = workers_below(self.root);
            let start = Instant::now();
            tenant.apply(&ingress(&name, &host, "load"))?;
            self.requests.until(&host, "/", |answer| answer.status == 200)?;
            let time = start.elapsed();
            reloads += usize::from(workers_below(self.root) != before);
            Ok(time)
        });
        Ok(Added { times: times.context("a host added")?, reloads })
    }

    fn mean(of: &[f64]) -> f64 {
        of.iter().sum::<f64>() / of.len().max(1) as f64
    }
}

fn report(table: &mut Table, ours: &Gateway, theirs: &Gateway) {
    let mut row = |what: &str, of: &dyn Fn(&Gateway) -> String| {
        table.row(what, of(ours)).peer(of(theirs));
    };
    row("requests/s of one worker; p99", &|one| {
        format!("{}; {}", thousands(Gateway::mean(&one.rates)), one.p99)
    });
    row("CPU of the worker for a request", &|one| {
        format!("{:.1} µs", Gateway::mean(&one.cpu) * 1e6)
    });
    row("a changed endpoint, from its write to the first answer: p50, max", &|one| {
        format!("{}, {}", show(one.changes.p50()), show(one.changes.max()))
    });
    row("a host added, from its write to the first answer: p50, max", &|one| {
        format!("{}, {}", show(one.added.times.p50()), show(one.added.times.max()))
    });
    row("reloads of nginx for these hosts", &|one| format!("{}", one.added.reloads));
    row("start to the last of the Ingresses served", &|one| show(one.ready_after));
    row("memory (PSS) of controller and nginx", &|one| {
        format!("{:.0} MB", one.memory as f64 / 1e6)
    });
    table.note(format!(
        "measured: Oxigress; peer: ingress-nginx. {APPS} Ingresses and Services, one worker each, wrk with {CONNECTIONS} connections, {ROUNDS} rounds \
         of {SECONDS} s in turn, 100 B answers; {ENDPOINT_CHANGES} changes of an endpoint and {ADDED_HOSTS} added hosts each. kube-apiserver and etcd \
         share the machine's cores with what is measured; the time of a write is part of both"
    ));
}
