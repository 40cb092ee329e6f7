//! The routes of a real kube-apiserver, with the API's own definitions.

use super::{
    ADDED, GATEWAYS, GROUP, ROUTES, class, gateway, host, load, memory, namespace, route, started,
    tell_added,
};
use crate::bench::Bench;
use crate::product::{Oxigress, Requests, edits};
use crate::report::Table;
use crate::sample::Sample;
use anyhow::{Context, Result, ensure};
use futures_util::{StreamExt, TryStreamExt};
use kube::Client as Kubernetes;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use oxigress_tests::cluster::Cluster;
use oxigress_tests::dist;
use oxigress_tests::endpoint::Endpoint;
use oxigress_tests::wait::{block_on, until};
use serde_json::{Value, json};
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

/// Until all routes have their status, with an API server that shares the cores.
const STATUSES: Duration = Duration::from_secs(180);
/// Writes at a time while the objects are made.
const WRITES: usize = 48;

/// Where everything is.
struct Site<'c> {
    cluster: &'c Cluster,
    client: Kubernetes,
    pod: &'c Endpoint,
}

pub fn measure(bench: &Bench, pod: &Endpoint, table: &mut Table) -> Result<()> {
    let cluster = Cluster::start(&bench.directory)?;
    let site = Site { cluster: &cluster, client: cluster.client()?, pod };
    let start = Instant::now();
    site.define()?;
    site.fill()?;
    table.note(format!(
        "written to the API server in {:.0} s; it, etcd and the endpoint share the machine's cores with what is measured",
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
    let mut requests = started(table, "", &oxigress)?;
    site.wait_for_statuses()?;
    memory(table, "", &oxigress)?;
    tell_added(table, "", &site.additions(&mut requests)?);
    let change = |number, turn| site.change(number, turn);
    load::under_changes(&change, "", &oxigress, &mut requests, table)?;
    memory(table, " after all changes", &oxigress)?;
    table.note("added to served: from before the route is written to the API server, whose own time is in it");
    oxigress.stop()
}

fn kind(group: &str, kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind))
}

fn routes() -> ApiResource {
    kind(GROUP, "HTTPRoute")
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
            self.cluster.apply(&class())?;
            // Each definition is served at its own time.
            ["Gateway", "HTTPRoute"]
                .into_iter()
                .try_for_each(|kind| self.cluster.list(kind, "default").map(drop))
        })
    }

    /// The objects, as their owners would write them.
    fn fill(&self) -> Result<()> {
        let of_gateways = (0..GATEWAYS).map(|number| gateway(number, self.pod));
        self.cluster.apply(&of_gateways.collect::<String>())?;
        let writes = futures_util::stream::iter(0..ROUTES).map(|number| self.create(number));
        block_on(writes.buffer_unordered(WRITES).try_collect::<()>())
    }

    fn api(&self, number: usize) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &namespace(number), &routes())
    }

    /// Creates the route of this number.
    async fn create(&self, number: usize) -> Result<()> {
        let object: DynamicObject = serde_json::from_value(route(number, 0))?;
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

    /// Changes a route.
    fn change(&self, number: usize, turn: usize) -> Result<()> {
        let change = json!({"spec": route(number, turn)["spec"]});
        let write = Patch::Merge(&change);
        let name = format!("app-{number}");
        block_on(self.api(number).patch(&name, &PatchParams::default(), &write))?;
        Ok(())
    }
}
