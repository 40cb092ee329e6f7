//! Wires the parts of the controller role and starts its loop.

use super::lines::VerdictLines;
use super::ports::PortPace;
use super::{Connection, Controller};
use crate::flags::{DASHBOARD, Flags};
use crate::metrics::{ChangeToLive, Metrics};
use crate::{cluster, health, local, parent};
use anyhow::{Context, anyhow};
use oxigress_admission::{Checks, ReviewRequest, Webhook};
use oxigress_dashboard::{Access, Dashboard, DashboardQuery};
use oxigress_objects::World;
use oxigress_provider::dns::{Report, Resolver};
use oxigress_provider::folder::Folder;
use oxigress_provider::kubernetes::{Kubernetes, WatchHealth};
use oxigress_provider::{Batch, Source};
use oxigress_publish::Publisher;
use oxigress_publish::client::Client;
use oxigress_settings::conf_input;
use oxigress_status::Status;
use oxigress_supervisor::process::drain;
use oxigress_supervisor::process::signals::Signals;
use oxigress_supervisor::runtime::Runtime;
use oxigress_supervisor::runtime::arrival::Arrival;
use oxigress_telemetry::Telemetry;
use oxigress_translate::pace::{Pace, answers::Answers};
use oxigress_translate::{Options, ReferenceIndex, Reviews, Translator};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Runs until a signal ends it.
pub async fn run(flags: &Flags) -> anyhow::Result<ExitCode> {
    parent::name_flags_of_a_lone_role(flags);
    let mut options = flags.options(local::addresses());
    let Objects { batches, cluster, watch_health } = start_source(flags, &mut options).await?;
    let runtime = Runtime::open(&flags.runtime_dir)?;
    let _lock = runtime.lock("controller")?;
    let mut signals = Signals::new()?;
    let listener = listen(flags).await?;
    let arrival = Arrival::watch(&runtime.socket()).context("watching the runtime folder")?;
    let conf_served = runtime.file(conf_input::SERVED);
    let conf_arrival = Arrival::watch(&conf_served).context("watching the runtime folder")?;
    let checks = Arc::new(Checks::default());
    let reviews = start_webhook(flags, checks.clone()).await?;
    let status = start_status(flags, cluster, &options)?;
    let dashboard_queries = start_dashboard(flags, &runtime).await?;
    let telemetry = Telemetry::start(runtime.socket());
    let (metrics, scrapes) = Metrics::new(flags, &runtime, checks, telemetry.counts());
    let leadership = status.as_ref().and_then(Status::leadership);
    let metrics = metrics.with_election(&flags.cluster.election_id, leadership);
    let path = flags.health_check_path.clone();
    let is_leaving = Arc::new(AtomicBool::new(false));
    tokio::spawn(health::serve(listener, path, runtime.socket(), metrics, is_leaving.clone()));

    let translator = Translator::new(options);
    let (resolver, reports) = start_resolver(flags, &runtime)?;
    let mut controller = Controller {
        world: World::default(),
        pace: Pace::default(),
        translator,
        reviews: Reviews::default(),
        publisher: Publisher::new(flags.namespace_bytes_max.0),
        connection: Connection::Idle(Client::new(runtime.socket())),
        looked_at: Instant::now(),
        has_just_looked: false,
        wait_until: Instant::now(),
        has_all: false,
        is_incomplete: false,
        applied_at: None,
        resolver,
        external_names: BTreeMap::new(),
        answers: Answers::default(),
        conf_input: runtime.file(conf_input::FILE),
        dns_answers_by: None,
        watch_health,
        conf_served,
        conf_by: None,
        port_pace: PortPace::default(),
        live: ChangeToLive::default(),
        telemetry,
        reporter: status.as_ref().map(Status::reporter),
        lines: VerdictLines::default(),
    };
    tokio::select! {
        () = controller.run(batches, reports, (arrival, conf_arrival), scrapes, reviews, dashboard_queries) => {
            anyhow::bail!("the provider of objects stopped unexpectedly")
        }
        // The loop goes on meanwhile: endpoints may go too, and what is told of Ingresses still counts.
        () = end(flags, &mut signals, &is_leaving, status) => Ok(ExitCode::SUCCESS),
    }
}

/// The resolver of DNS names, and what it reports.
fn start_resolver(
    flags: &Flags,
    runtime: &Runtime,
) -> anyhow::Result<(Resolver, mpsc::Receiver<Report>)> {
    let (sender, reports) = mpsc::channel(64);
    let resolver = Resolver::new(&flags.resolv_conf, runtime.file("names.json"), sender)
        .with_context(|| format!("--resolv-conf {}", flags.resolv_conf.display()))?;
    Ok((resolver, reports))
}

/// Waits for a signal and the grace period after it, then gives back the Lease.
async fn end(
    flags: &Flags,
    signals: &mut Signals,
    is_leaving: &AtomicBool,
    status: Option<Status>,
) {
    let grace_period = flags.cluster.shutdown_grace_period();
    drain::until_end(grace_period, signals, || is_leaving.store(true, Ordering::Relaxed)).await;
    if let Some(status) = status {
        status.end().await;
    }
}

/// What the controller reads objects from.
struct Objects {
    batches: mpsc::Receiver<(Instant, Batch)>,
    /// The API server; none: a folder is served.
    cluster: Option<kube::Client>,
    /// Whether the API server answers the watches.
    watch_health: Option<Arc<WatchHealth>>,
}

/// Starts to read the folder, or the API server, which also knows the zone of this node.
async fn start_source(flags: &Flags, options: &mut Options) -> anyhow::Result<Objects> {
    let (sender, batches) = mpsc::channel(64);
    if let Some(folder) = flags.folder()? {
        let source = Folder::open(folder).map_err(|error| {
            let folder = folder.display();
            anyhow!("cannot read --manifests {folder}: {error}: create the folder or name another")
        })?;
        tokio::spawn(feed(source, sender));
        return Ok(Objects { batches, cluster: None, watch_health: None });
    }
    let client = cluster::connect(&flags.cluster).await?;
    if let (Some(node), None) = (&options.node, &options.zone) {
        options.zone = cluster::zone(&client, node).await;
    }
    let source = Kubernetes::watch(
        client.clone(),
        &flags.provider_options(),
        Box::new(ReferenceIndex::new(options.clone())),
    );
    let watch_health = Some(source.watch_health());
    tokio::spawn(feed(source, sender));
    Ok(Objects { batches, cluster: Some(client), watch_health })
}

/// The receiver gets nothing where there is no webhook.
async fn start_webhook(
    flags: &Flags,
    checks: Arc<Checks>,
) -> anyhow::Result<mpsc::Receiver<ReviewRequest>> {
    let (sender, questions) = mpsc::channel(1);
    let webhook = Webhook::open(&flags.cluster.admission_options(), sender, checks).await?;
    if let Some(webhook) = webhook {
        tokio::spawn(webhook.serve());
    }
    Ok(questions)
}

/// None for a folder, which has no status, and outside of a pod: replicas are told apart by its name.
fn start_status(
    flags: &Flags,
    cluster: Option<kube::Client>,
    options: &Options,
) -> anyhow::Result<Option<Status>> {
    let Some(client) = cluster else { return Ok(None) };
    let Some(pod) = cluster::pod() else {
        tracing::info!(
            "status and Events are not written because POD_NAME and POD_NAMESPACE are not set: set them by the \
             downward API"
        );
        return Ok(None);
    };
    let maps =
        [&options.configmap, &options.tcp_services_configmap, &options.udp_services_configmap];
    let maps = maps.into_iter().flatten().cloned().collect();
    Ok(Some(Status::start(
        &flags.cluster.status_options(&flags.gateway_controller_name),
        client,
        pod,
        maps,
    )?))
}

/// The receiver gets nothing where there is no dashboard.
async fn start_dashboard(
    flags: &Flags,
    runtime: &Runtime,
) -> anyhow::Result<mpsc::Receiver<DashboardQuery>> {
    let address = flags.dashboard_address.0;
    let Some(address) = address else { return Ok(mpsc::channel(1).1) };
    let access = Access::new(address, flags.dashboard_token_file.clone())?;
    let (dashboard, questions) = Dashboard::new(access, runtime.sockets());
    match TcpListener::bind(address).await {
        Ok(listener) => {
            tokio::spawn(dashboard.serve(listener));
        }
        // Nobody has asked for it: several programs on one machine are no error.
        Err(error) if address.to_string() == DASHBOARD => {
            tracing::info!(
                "dashboard not started: cannot listen on {address}: {error}: set --dashboard-address"
            );
        }
        Err(error) => {
            anyhow::bail!(
                "cannot listen on --dashboard-address {address}: {error}: free it or choose another"
            )
        }
    }
    Ok(questions)
}

async fn listen(flags: &Flags) -> anyhow::Result<TcpListener> {
    let port = flags.healthz_port;
    let bound = match flags.healthz_host.as_str() {
        "" => match TcpListener::bind(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port))).await {
            Ok(listener) => Ok(listener),
            Err(_) => TcpListener::bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))).await,
        },
        host => TcpListener::bind((host, port)).await,
    };
    bound.map_err(|error| {
        anyhow!("cannot listen on --healthz-port {port}: {error}: free it or choose another")
    })
}

/// Sends each batch to [`Controller::run`], with the time at which the source had it.
async fn feed(mut source: impl Source, batches: mpsc::Sender<(Instant, Batch)>) {
    loop {
        let batch = source.next().await;
        if batches.send((Instant::now(), batch)).await.is_err() {
            return;
        }
    }
}
