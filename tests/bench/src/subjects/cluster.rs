//! A real kube-apiserver with 10,000 Ingresses, 10,000 Services and 50,000 endpoints: start, memory, and one endpoint
//! change at a time, idle and while others change.

use crate::bench::Bench;
use crate::http::Client;
use crate::product::{Oxigress, PAUSE, Requests, edits, resolution};
use crate::report::Table;
use crate::sample::{Sample, show};
use crate::usage;
use anyhow::{Context, Result, anyhow};
use futures_util::{StreamExt, TryStreamExt};
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use oxigress_tests::cluster::Cluster;
use oxigress_tests::endpoint::{Behaviour, Endpoint};
use oxigress_tests::network::{self, pod_address};
use oxigress_tests::wait::{block_on, runtime};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

const APPS: usize = 10_000;
const NAMESPACES: usize = 100;
/// Endpoints of one Service.
const ENDPOINTS: usize = 5;
/// Timed changes, each idle and under churn.
const CHANGES: usize = 500;
/// Changes of other endpoints a second, under churn.
const CHURN: u32 = 50;
/// Writes at a time while the objects are made.
const WRITES: usize = 48;

pub fn run(bench: &Bench, table: &mut Table) -> Result<()> {
    in_its_network(|| measure(bench, table))
}

/// Runs a measurement in the network of clusters, which a thread joins for good.
pub fn in_its_network(measure: impl FnOnce() -> Result<()> + Send) -> Result<()> {
    std::thread::scope(|scope| {
        let inside = scope.spawn(|| network::join().and_then(|()| measure()));
        inside.join().map_err(|_| anyhow!("the measuring thread has panicked"))?
    })
}

fn measure(bench: &Bench, table: &mut Table) -> Result<()> {
    let cluster = Cluster::start(&bench.directory)?;
    let pods = [pod("a")?, pod("b")?];
    let start = Instant::now();
    cluster.apply(
        "{apiVersion: networking.k8s.io/v1, kind: IngressClass, metadata: {name: bench}, \
         spec: {controller: bench.test/bench}}",
    )?;
    fill(&cluster, &pods[0], APPS, "bench")?;
    table.note(format!(
        "{APPS} Ingresses, Services and EndpointSlices of {ENDPOINTS} endpoints in {NAMESPACES} namespaces, \
         written in {:.0} s; kube-apiserver and etcd share the machine's cores with what is measured",
        start.elapsed().as_secs_f64()
    ));
    let lists = time_of_lists(&cluster)?;
    let source = [
        format!("--kubeconfig={}", cluster.kubeconfig().display()),
        "--ingress-class=bench".into(),
        "--controller-class=bench.test/bench".into(),
        "--disable-leader-election".into(),
        "--disable-sync-events".into(),
        "--zone-size=128m".into(),
    ];
    let mut oxigress = Oxigress::start(bench, &source, "cluster")?;
    let beyond = oxigress.ready_after.saturating_sub(lists);
    table
        .row("start to ready", show(oxigress.ready_after))
        .peer(format!("the same lists, one after the other, read and dropped: {}", show(lists)));
    table
        .row("start to ready without the time of the lists", show(beyond))
        .budget("≤ 3 s", beyond <= Duration::from_secs(3));
    let mut requests = Requests::new(oxigress.http_port)?;
    for number in [0, APPS / 2, APPS - 1] {
        let is_known = |status| matches!(status, 200 | 502 | 504);
        requests.until(&host(number), "/", |answer| is_known(answer.status))?;
    }
    let controller = usage::child_with_argument(oxigress.process.pid(), "controller")?;
    memory(&oxigress, controller, table)?;

    std::thread::sleep(Duration::from_secs(1));
    let before = usage::cpu(controller)?;
    let changes = changes(&cluster, &pods, &mut requests)?;
    let cpu = (usage::cpu(controller)? - before) / u32::try_from(CHANGES)?;
    tell(table, "watch event to served, idle", &changes);
    table
        .row("CPU of the controller for an endpoint change", show(cpu))
        .budget("≤ 1 ms", cpu <= Duration::from_millis(1));
    let (changes, churned) =
        under_churn(&cluster, || self::changes(&cluster, &pods, &mut requests))?;
    tell(table, &format!("the same while others change, {churned} of them meanwhile"), &changes);
    memory_after(controller, table)?;
    table.note(resolution());
    table.note("the event: when a second watch in this process gets it");
    oxigress.stop()
}

fn tell(table: &mut Table, what: &str, times: &Sample) {
    let p99 = times.quantile(0.99);
    table
        .row(
            &format!("{what}: p50, p99, max of {}", times.len()),
            format!("{}, {}, {}", show(times.p50()), show(p99), show(times.max())),
        )
        .budget("p99 ≤ 20 ms", p99 <= Duration::from_millis(20));
}

fn memory(oxigress: &Oxigress, controller: u32, table: &mut Table) -> Result<()> {
    let resident = usage::memory(controller)?.resident as f64 / 1e6;
    table
        .row("controller's resident memory", format!("{resident:.0} MB"))
        .budget("≤ 150 MB", resident <= 150.0);
    let mut client = Client::unix(&oxigress.runtime.join("configuration.sock"))?;
    let status: Value = serde_json::from_slice(&client.get("localhost", "/configuration")?.body)?;
    let bytes = |name: &str| status[name].as_u64().context("bytes of the zone");
    let used = (bytes("capacity_bytes")? - bytes("free_bytes")?) as f64 / 1e6;
    table.row("nginx's shared memory", format!("{used:.1} MB")).budget("≤ 30 MB", used <= 30.0);
    Ok(())
}

fn memory_after(controller: u32, table: &mut Table) -> Result<()> {
    let resident = usage::memory(controller)?.resident as f64 / 1e6;
    table.row("controller's resident memory after all changes", format!("{resident:.0} MB"));
    Ok(())
}

pub fn pod(name: &str) -> Result<Endpoint> {
    Endpoint::with(name, Behaviour::Ok, pod_address().into())
}

pub fn host(number: usize) -> String {
    format!("app-{number}.bench.test")
}

pub fn namespace(number: usize) -> String {
    format!("bench-{}", number % NAMESPACES)
}

fn kind(group: &str, kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind))
}

pub fn slices() -> ApiResource {
    kind("discovery.k8s.io", "EndpointSlice")
}

/// The objects of so many apps, as their owners would write them; only the first one's endpoint answers.
pub fn fill(cluster: &Cluster, pod: &Endpoint, apps: usize, class: &str) -> Result<()> {
    let namespaces = (0..NAMESPACES).map(|n| {
        format!("---\n{{apiVersion: v1, kind: Namespace, metadata: {{name: {}}}}}\n", namespace(n))
    });
    cluster.apply(&namespaces.collect::<String>())?;
    let client = cluster.client()?;
    let writes = (0..apps).flat_map(|number| {
        let (name, host) = (format!("app-{number}"), host(number));
        let backend = json!({"service": {"name": name, "port": {"number": 80}}});
        let paths = json!([{"path": "/", "pathType": "Prefix", "backend": backend}]);
        let rules = json!([{"host": host, "http": {"paths": paths}}]);
        let meta = json!({"name": name, "namespace": namespace(number)});
        let mut labelled = meta.clone();
        labelled["labels"] = json!({"kubernetes.io/service-name": name});
        [
            (
                kind("networking.k8s.io", "Ingress"),
                json!({"metadata": meta, "spec": {"ingressClassName": class, "rules": rules}}),
            ),
            (
                kind("", "Service"),
                json!({"metadata": meta, "spec": {"ports": [{"port": 80, "targetPort": 80}]}}),
            ),
            (slices(), slice(number, pod, labelled)),
        ]
        .map(|(kind, object)| (kind, number, object))
    });
    let writes = futures_util::stream::iter(writes).map(|(kind, number, mut object)| {
        let api: Api<DynamicObject> =
            Api::namespaced_with(client.clone(), &namespace(number), &kind);
        async move {
            object["apiVersion"] = kind.api_version.clone().into();
            object["kind"] = kind.kind.clone().into();
            let object: DynamicObject = serde_json::from_value(object)?;
            api.create(&PostParams::default(), &object).await?;
            anyhow::Ok(())
        }
    });
    block_on(writes.buffer_unordered(WRITES).try_collect::<()>())
}

/// Endpoints of which only the first app's is ever asked.
fn slice(number: usize, pod: &Endpoint, metadata: Value) -> Value {
    let address = |n: usize| match number {
        0 => pod.address.ip().to_string(),
        _ => {
            let n = number * ENDPOINTS + n;
            format!("10.244.{}.{}", 128 + n / 512, n % 512 / 2)
        }
    };
    let count = if number == 0 { 1 } else { ENDPOINTS };
    let endpoints: Vec<_> = (0..count)
        .map(|n| json!({"addresses": [address(n)], "conditions": {"ready": true}}))
        .collect();
    json!({
        "metadata": metadata,
        "addressType": "IPv4",
        "endpoints": endpoints,
        "ports": [{"name": "", "port": pod.address.port()}],
    })
}

/// What the API server takes to answer the lists that a start needs.
fn time_of_lists(cluster: &Cluster) -> Result<Duration> {
    let client = cluster.client()?;
    let start = Instant::now();
    for path in [
        "/apis/networking.k8s.io/v1/ingresses",
        "/apis/networking.k8s.io/v1/ingressclasses",
        "/api/v1/services",
        "/apis/discovery.k8s.io/v1/endpointslices",
        "/api/v1/secrets",
        "/api/v1/configmaps",
    ] {
        let request = http::Request::get(path).body(Vec::new())?;
        block_on(client.request_text(request)).with_context(|| path.to_owned())?;
    }
    Ok(start.elapsed())
}

/// The first app's endpoint, there and back.
fn changes(cluster: &Cluster, pods: &[Endpoint; 2], requests: &mut Requests) -> Result<Sample> {
    let api: Api<DynamicObject> = Api::namespaced_with(cluster.client()?, &namespace(0), &slices());
    let (sender, events) = mpsc::channel();
    let watching = runtime().spawn(watch(api.clone(), sender));
    // The first event tells of the slice as it is.
    events.recv_timeout(Duration::from_secs(30)).context("the bench's own watch")?;
    let times = edits(CHANGES, |turn| {
        let pod = &pods[1 - turn % 2];
        let change = json!({
            "endpoints": [{"addresses": [pod.address.ip().to_string()], "conditions": {"ready": true}}],
            "ports": [{"name": "", "port": pod.address.port()}],
        });
        block_on(api.patch("app-0", &PatchParams::default(), &Patch::Merge(&change)))?;
        let name = Some(pod.name.clone());
        requests.until(&host(0), "/", |answer| answer.endpoint == name)?;
        let served = Instant::now();
        let event = events.recv_timeout(Duration::from_secs(30)).context("an event")?;
        Ok(served.saturating_duration_since(event).max(PAUSE))
    });
    watching.abort();
    times
}

/// Tells the moment of each event.
async fn watch(api: Api<DynamicObject>, events: mpsc::Sender<Instant>) -> Result<()> {
    let parameters = WatchParams::default().fields("metadata.name=app-0");
    let mut stream = Box::pin(api.watch(&parameters, "0").await?);
    while let Some(event) = stream.try_next().await? {
        if matches!(event, WatchEvent::Added(_) | WatchEvent::Modified(_))
            && events.send(Instant::now()).is_err()
        {
            break;
        }
    }
    Ok(())
}

/// Runs `measured` while other apps' endpoints change; answers how many did.
fn under_churn<T>(cluster: &Cluster, measured: impl FnOnce() -> Result<T>) -> Result<(T, u32)> {
    let (is_over, done) = (AtomicBool::new(false), AtomicU32::new(0));
    std::thread::scope(|scope| {
        let churn = scope.spawn(|| -> Result<()> {
            let client = cluster.client()?;
            for turn in 1_usize.. {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                let number = 1 + turn * 7_919 % (APPS - 1);
                let api: Api<DynamicObject> =
                    Api::namespaced_with(client.clone(), &namespace(number), &slices());
                let address = format!("10.244.{}.{}", 1 + turn % 100, turn % 250);
                let change = json!({"endpoints": [{"addresses": [address]}]});
                let write = Patch::Merge(&change);
                block_on(api.patch(&format!("app-{number}"), &PatchParams::default(), &write))?;
                done.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(Duration::from_secs(1) / CHURN);
            }
            Ok(())
        });
        let result = measured();
        is_over.store(true, Ordering::Relaxed);
        churn.join().map_err(|_| anyhow!("the churning thread has panicked"))??;
        Ok((result?, done.load(Ordering::Relaxed)))
    })
}
