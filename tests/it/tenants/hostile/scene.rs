//! The product on a cluster with blue's hosts, and what hostile tenants would like to reach.

use super::blue::{Blue, ROUTED, SHOP};
use crate::kubernetes::gateway::{GROUP, define};
use anyhow::{Context, Result, ensure};
use oxigress_tests::certificate::Certificate;
use oxigress_tests::client::{Address, Request, Response, handshake, send};
use oxigress_tests::cluster::{Cluster, Tenant};
use oxigress_tests::controller::{Controller, webhook_flags};
use oxigress_tests::endpoint::{Behaviour, Endpoint};
use oxigress_tests::fake_dns::FakeDns;
use oxigress_tests::place::{Directory, free_port};
use oxigress_tests::wait::{block_on, until};
use rustix::process::setpriority_process;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::Command;
use tokio::runtime::{Builder, Runtime};

/// Where clouds keep the credentials of machines.
pub const METADATA: Ipv4Addr = Ipv4Addr::new(169, 254, 169, 254);
/// The product's own address, as a pod.
pub const POD: Ipv4Addr = Ipv4Addr::new(10, 244, 255, 1);
const WORKERS: usize = 2;

pub struct Scene {
    pub cluster: &'static Cluster,
    /// The class of all Ingresses.
    pub class: String,
    /// Who is to notice nothing.
    pub blue: Blue,
    pub controller: Controller,
    /// The name server of ExternalNames, auth servers and mirrors.
    pub dns: FakeDns,
    /// Where hostile clients and endpoints run, with less priority: they would have machines of their own.
    pub hostile: Runtime,
    pub webhook_port: u16,
    /// The namespace of the Gateway that everybody may use.
    pub gateway: String,
    pub metadata: Endpoint,
    pub inside: Endpoint,
}

/// The ids of all processes of the product.
#[derive(Debug, PartialEq, Eq)]
pub struct Processes {
    roles: [u32; 3],
    master: u32,
    workers: Vec<u32>,
}

impl Scene {
    /// Starts everything; returns when blue is served.
    pub fn start(directory: &Directory) -> Result<Self> {
        let cluster = Cluster::shared()?;
        ip(&["route", "add", "local", &format!("{METADATA}/32"), "dev", "lo"])?;
        ip(&["address", "add", &format!("{POD}/32"), "dev", "lo"])?;
        let (tenant, own) = (cluster.tenant("blue")?, cluster.tenant("ingress")?);
        let dns = FakeDns::start()?;
        let resolv_conf = directory.join("resolv.conf");
        fs::write(&resolv_conf, dns.line())?;
        let gateway_class = common_gateway(cluster, &own)?;
        let blue = Blue::new(&tenant, &own.namespace, &dns)?;
        let certificate = Certificate::new("webhook", &["localhost"])?;
        let webhook_port = free_port()?;
        let mut flags = webhook_flags(directory, &certificate, &format!(":{webhook_port}"))?;
        flags.extend(tenant.flags());
        flags.extend([
            format!("--resolv-conf={}", resolv_conf.display()),
            "--enable-metrics".into(),
            "--enable-ssl-passthrough".into(),
            format!("--ssl-passthrough-proxy-port={}", free_port()?),
            "--publish-status-address=192.0.2.1".into(),
            "--journal=on".into(),
            "--gateway-api".into(),
            format!("--gateway-controller-name={gateway_class}"),
        ]);
        let pod = [own.namespace.as_str(), "pod"];
        let controller = Controller::start_in_pod(cluster, pod, directory, WORKERS, &flags)?;
        tenant.settle(&controller)?;
        // Blue's Ingresses are reviewed, or not stored. Those of hostile namespaces are not: as if the webhook let
        // everything pass.
        tenant.have_reviewed(&certificate, webhook_port)?;
        let scene = Scene {
            cluster,
            class: tenant.class,
            blue,
            controller,
            dns,
            hostile: hostile_runtime()?,
            webhook_port,
            gateway: own.namespace.clone(),
            metadata: at("metadata", METADATA.into(), 80)?,
            inside: at("inside", Ipv4Addr::LOCALHOST.into(), 0)?,
        };
        until("blue's certificate", || scene.blue_is_untouched())?;
        Ok(scene)
    }

    pub fn http(&self) -> Address {
        Address::http(self.controller.http_port)
    }

    /// One request of a bystander.
    pub fn get(&self, host: &str, target: &str) -> Result<Response> {
        block_on(send(&self.http(), &Request::get(host, target)))
    }

    pub fn processes(&self) -> Result<Processes> {
        let role = |name| self.controller.role_pid(name);
        Ok(Processes {
            roles: [self.controller.pid(), role("controller")?, role("nginx")?],
            master: self.controller.master_pid()?,
            workers: self.controller.worker_pids(),
        })
    }

    /// Blue's host is served as blue says, and by nobody else.
    pub fn blue_is_untouched(&self) -> Result<()> {
        for (path, names) in [
            ("/", ["blue-a", "blue-b"]),
            ("/cart", ["blue-cart", "blue-next"]),
            ("/any/path", ["blue-a", "blue-b"]),
        ] {
            let answer = self.get(SHOP, path)?;
            let endpoint = answer.endpoint().unwrap_or_default();
            ensure!(names.contains(&endpoint.as_str()), "{SHOP}{path} is {answer}");
        }
        let answer = self.get(ROUTED, "/")?;
        let endpoint = answer.endpoint().unwrap_or_default();
        ensure!(["blue-a", "blue-b"].contains(&endpoint.as_str()), "{ROUTED} is {answer}");
        let port = self.controller.https_port;
        let shown = block_on(handshake(&Address::https(port, SHOP)))?;
        ensure!(shown == "blue", "{SHOP} shows the certificate {shown}");
        Ok(())
    }
}

/// A Gateway of the operator's on the HTTP port, for routes of all namespaces; the name of its controller.
fn common_gateway(cluster: &Cluster, own: &Tenant<'_>) -> Result<String> {
    define(cluster)?;
    let controller = format!("oxigress.test/gateway-{}", own.namespace);
    let class = format!(
        "{{apiVersion: {GROUP}/v1, kind: GatewayClass, metadata: {{name: $NAMESPACE}}, spec: {{controllerName: {controller}}}}}"
    );
    let gateway = format!(
        "{{apiVersion: {GROUP}/v1, kind: Gateway, metadata: {{name: web}}, spec: {{gatewayClassName: $NAMESPACE, \
         listeners: [{{name: http, port: 80, protocol: HTTP, allowedRoutes: {{namespaces: {{from: All}}}}}}]}}}}"
    );
    for text in [class, gateway] {
        until("the Gateway", || own.apply(&text))?;
    }
    Ok(controller)
}

fn at(name: &str, ip: IpAddr, port: u16) -> Result<Endpoint> {
    Endpoint::at(name, Behaviour::Ok, SocketAddr::new(ip, port))
}

fn hostile_runtime() -> Result<Runtime> {
    let yield_to_others = || {
        let _ = setpriority_process(None, 10);
    };
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().on_thread_start(yield_to_others);
    Ok(builder.build()?)
}

/// In the network of the calling thread.
fn ip(arguments: &[&str]) -> Result<()> {
    let output = Command::new("ip").args(arguments).output().context("run ip")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "ip {}: {}", arguments.join(" "), said.trim());
    Ok(())
}
