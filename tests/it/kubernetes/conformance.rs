//! The conformance suite of the Gateway API, as its authors wrote it, on a real API server.
//!
//! kube-apiserver, etcd, kube-controller-manager, the definitions, the suite and the echo in the Pods are of pinned Go modules
//! (`make conformance`); the kubelet is a stand-in. The suite runs each test whose features the GatewayClass has, whatever profiles
//! it reports: one run is for all of them.

use anyhow::{Context, Result, ensure};
use oxigress_tests::cluster::Cluster;
use oxigress_tests::cluster::kubelet::{HOST, StandInKubelet};
use oxigress_tests::controller::Controller;
use oxigress_tests::place::Directory;
use oxigress_tests::process::Process;
use oxigress_tests::wait::until;
use oxigress_tests::{dist, network, pass};
use std::collections::BTreeSet;
use std::process::Command;
use std::time::{Duration, Instant};
use std::{fs, thread};

const CLASS: &str = "oxigress";
const PROFILES: &str = "GATEWAY-HTTP,GATEWAY-GRPC,GATEWAY-TLS,GATEWAY-TCP,GATEWAY-UDP";
/// Set in the process of a test that has a process of its own.
const ALONE: &str = "CONFORMANCE_ALONE";
/// What Gateways may have for themselves.
const ADDRESSES: &str = "10.246.0.0/24";
/// One of them, and one that is none.
const STATIC: [&str; 2] = ["10.246.0.250", "10.247.0.1"];

/// Everything at its place; ends with the value.
struct Site {
    cluster: Cluster,
    _parts: (Process, StandInKubelet, Controller),
}

fn start(directory: &Directory) -> Result<Site> {
    let cluster = Cluster::start(directory)?;
    let controllers = cluster.start_controllers()?;
    let kubelet = StandInKubelet::start(&cluster, directory, dist::conformance("echo")?)?;
    for file in fs::read_dir(dist::conformance("crd")?)? {
        let path = file?.path();
        let text = fs::read_to_string(&path)?;
        cluster.apply(&text).with_context(|| path.display().to_string())?;
    }
    cluster.apply("{apiVersion: v1, kind: Namespace, metadata: {name: oxigress}}")?;
    let flags = [
        "--gateway-api".into(),
        "--http-port=80".into(),
        "--https-port=443".into(),
        "--enable-ssl-passthrough".into(),
        format!("--publish-status-address={HOST}"),
        format!("--gateway-addresses={ADDRESSES}"),
    ];
    network::ip(&["route", "add", "local", ADDRESSES, "dev", "lo"])?;
    let controller = Controller::start_in_pod(&cluster, ["oxigress", "pod"], directory, 2, &flags)?;
    until("the definitions", || {
        cluster.apply(&format!(
            "{{apiVersion: gateway.networking.k8s.io/v1, kind: GatewayClass, metadata: {{name: {CLASS}}}, \
             spec: {{controllerName: oxigress.io/gateway-controller}}}}"
        ))
    })?;
    until("the class", || {
        let class = cluster.get("GatewayClass", "", CLASS)?;
        ensure!(class["status"]["supportedFeatures"].is_array(), "{class}");
        Ok(())
    })?;
    Ok(Site { cluster, _parts: (controllers, kubelet, controller) })
}

/// Runs the suite; `CONFORMANCE` has further flags for it, `CONFORMANCE_COMMIT` asks for the report in docs/conformance.
fn run(site: &Site, directory: &Directory) -> Result<()> {
    let (log, written) = (directory.join("suite.log"), directory.join("report.yaml"));
    let commit = std::env::var("CONFORMANCE_COMMIT").unwrap_or_default();
    let mut command = Command::new("setpriv");
    command.arg("--pdeathsig=KILL").arg(dist::conformance("suite")?);
    command.args(["-test.run=^TestConformance$", "-test.v", "-test.timeout=60m"]);
    command.args([
        format!("-gateway-class={CLASS}"),
        format!("-conformance-profiles={PROFILES}"),
        format!("-report-output={}", written.display()),
        format!("-version={}+{commit}", env!("CARGO_PKG_VERSION")),
        format!("-usable-address={}", STATIC[0]),
        format!("-unusable-address={}", STATIC[1]),
    ]);
    command.args(["-organization=oxigress", "-project=oxigress", "-url=https://oxigress.io"]);
    command.arg("-contact=https://oxigress.io");
    let more = std::env::var("CONFORMANCE").unwrap_or_default();
    command.args(more.split_whitespace()).env("KUBECONFIG", site.cluster.kubeconfig());
    let output = log.clone();
    let mut suite = network::keep(move || Process::start("the suite", &mut command, &output))??;
    let start = Instant::now();
    let status = loop {
        if let Some(status) = suite.ended()? {
            break status;
        }
        ensure!(start.elapsed() < Duration::from_secs(3600), "the suite does not end");
        thread::sleep(Duration::from_millis(100));
    };
    let said = fs::read_to_string(&log)?;
    let report = fs::read_to_string(&written).unwrap_or_default();
    println!("{:?}\n{report}", start.elapsed());
    if more.is_empty() && !commit.is_empty() && !report.is_empty() {
        fs::write(dist::repository().join("docs/conformance/gateway-api.yaml"), report)?;
    }
    ensure!(status.success(), "{}\n{}", failures(&said), log.display());
    Ok(())
}

/// The names of tests that failed, and what their assertions say.
fn failures(said: &str) -> String {
    let lines: Vec<&str> = said.lines().collect();
    let lines = lines.as_slice();
    let at = |text: &'static str| (0..lines.len()).filter(move |n| lines[*n].contains(text));
    let errors = at("Error Trace:").flat_map(|n| n..lines.len().min(n + 12));
    let told: BTreeSet<_> = errors.chain(at("--- FAIL")).collect();
    told.into_iter().map(|n| lines[n].to_owned() + "\n").collect()
}

/// Runs this test in a process of its own, whose network namespace nobody else has: Gateways listen on port 80 of all its addresses.
fn alone(name: &str) -> Result<()> {
    let mut command = Command::new("setpriv");
    command.arg("--pdeathsig=KILL").arg(std::env::current_exe()?);
    command.args(["--exact", name, "--nocapture"]).env(ALONE, name);
    let output = command.output()?;
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    println!("{said}");
    ensure!(output.status.success(), "{name}: {}\n{}", output.status, failures(&said));
    Ok(())
}

#[test]
fn the_suite_of_the_gateway_api_passes() {
    if std::env::var_os(ALONE).is_none() {
        return alone("kubernetes::conformance::the_suite_of_the_gateway_api_passes")
            .expect("the suite passes");
    }
    pass("conformance", |directory| run(&start(directory)?, directory));
}
