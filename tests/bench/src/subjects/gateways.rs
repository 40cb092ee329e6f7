//! 5,000 HTTPRoutes on 50 Gateways, of a real kube-apiserver ([`cluster`]) and from a folder of manifests ([`folder`]): start,
//! memory, one route added at a time, and 100 changes of routes a second under load ([`load`]).

mod cluster;
mod folder;
mod load;

use crate::bench::Bench;
use crate::cluster::{in_its_network, pod};
use crate::product::{Oxigress, Requests, resolution};
use crate::report::Table;
use crate::sample::{Sample, show};
use crate::usage::{self, Proportional};
use anyhow::Result;
use oxigress_tests::endpoint::Endpoint;
use oxigress_tests::process::{Entry, entries, family};
use serde_json::{Value, json};

const GATEWAYS: usize = 50;
const ROUTES: usize = 5_000;
/// Routes that are added one at a time, and timed.
const ADDED: usize = 300;
const MIB: f64 = (1 << 20) as f64;
const GROUP: &str = "gateway.networking.k8s.io";

pub fn run(bench: &Bench, table: &mut Table) -> Result<()> {
    in_its_network(|| {
        let pod = pod("a")?;
        table.note(format!(
            "{ROUTES} HTTPRoutes on {GATEWAYS} Gateways, each Gateway with its routes and their Service in a namespace of its own"
        ));
        table.note(resolution());
        cluster::measure(bench, &pod, table)?;
        folder::measure(bench, &pod, table)
    })
}

/// The product is started: until the first, the last and a middle route are served.
fn started(table: &mut Table, of: &str, oxigress: &Oxigress) -> Result<Requests> {
    table.row(&format!("start to ready{of}"), show(oxigress.ready_after));
    let mut requests = Requests::new(oxigress.http_port)?;
    for number in [0, ROUTES / 2, ROUTES - 1] {
        requests.until(&host(number), "/", |answer| answer.status == 200)?;
    }
    Ok(requests)
}

/// The row of routes that were added one at a time.
fn tell_added(table: &mut Table, of: &str, times: &Sample) {
    table
        .row(
            &format!("route added to served{of}: p50, p99, mean of {}", times.len()),
            [times.p50(), times.quantile(0.99), times.mean()].map(show).join(", "),
        )
        .peer("agentgateway's own report: mean 16.6 ms");
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

/// An HTTPRoute, whose endpoint is told the turn.
fn route(number: usize, turn: usize) -> Value {
    let set = json!([{"name": "X-Turn", "value": turn.to_string()}]);
    let filter = json!({"type": "RequestHeaderModifier", "requestHeaderModifier": {"set": set}});
    let rule = json!({"filters": [filter], "backendRefs": [{"name": "app", "port": 80}]});
    json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": "HTTPRoute",
        "metadata": {"name": format!("app-{number}"), "namespace": namespace(number)},
        "spec": {"parentRefs": [{"name": "web"}], "hostnames": [host(number)], "rules": [rule]},
    })
}

/// The GatewayClass of all Gateways.
fn class() -> String {
    format!(
        "{{apiVersion: {GROUP}/v1, kind: GatewayClass, metadata: {{name: bench}}, \
         spec: {{controllerName: oxigress.io/gateway-controller}}}}\n"
    )
}

/// A Gateway, and the Service and endpoint of its routes.
fn gateway(number: usize, pod: &Endpoint) -> String {
    let name = namespace(number);
    let (address, port) = (pod.address.ip(), pod.address.port());
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
}
