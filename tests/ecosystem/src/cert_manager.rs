//! cert-manager gets a certificate for an Ingress from an ACME server, by HTTP-01 through Oxigress, and renews it in time.
//!
//! Pebble is Let's Encrypt's server for tests: its certificates are valid for [`VALIDITY`], so that a renewal can be seen. It and
//! cert-manager's own check look names up in a name server of this test, and come to Oxigress on port 80.

mod kubelet;

use crate::program::{self, Start};
use crate::site::Site;
use anyhow::{Context, Result, ensure};
use kubelet::FakeKubelet;
use openssl::base64::encode_block;
use openssl::ssl::{SslConnector, SslMethod};
use openssl::x509::X509;
use oxigress_tests::certificate::{self, Issued};
use oxigress_tests::client::{Address, Request, send};
use oxigress_tests::fake_dns::FakeDns;
use oxigress_tests::load::{Closes, Load, Plan};
use oxigress_tests::place::{Directory, free_port};
use oxigress_tests::process::Process;
use oxigress_tests::wait::{block_on, until};
use serde_json::json;
use std::fs;
use std::net::{Ipv4Addr, TcpStream};
use std::thread::sleep;
use std::time::{Duration, Instant};

const HOST: &str = "shop.test";
/// cert-manager renews after two thirds; the rest must be enough for five checks of its own, two seconds apart, and Pebble's.
const VALIDITY: Duration = Duration::from_secs(120);
/// For a certificate, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);

pub fn run(directory: &Directory) -> Result<Vec<String>> {
    let site = Site::start("cert-manager", directory, &[])?;
    let names = FakeDns::start()?;
    names.set_address(HOST, Ipv4Addr::LOCALHOST.into());
    let pebble = Pebble::start(directory, &names)?;
    let crds = program::file("cert-manager.files")?;
    for file in fs::read_dir(crds)? {
        let path = file?.path();
        let text = fs::read_to_string(&path)?;
        site.tenant.cluster.apply(&text).with_context(|| path.display().to_string())?;
    }
    let kubeconfig = site.tenant.cluster.kubeconfig();
    let _manager = Start::new("cert-manager")?
        .args([kubeconfig.as_os_str()])
        .args([&site.tenant.namespace, &names.address.to_string()])
        .run(directory)?;
    let page = site.tenant.pod("shop")?;
    site.tenant.service("shop", &[&page])?;
    until("the ClusterIssuer", || site.tenant.apply(&pebble.issuer()))?;
    site.tenant.apply(INGRESS)?;
    let mut kubelet = FakeKubelet::new(&site, directory);
    let start = Instant::now();
    let first = shown(&mut kubelet, &pebble, None)?;
    let issued = start.elapsed().as_secs();
    let load = load(&site)?;
    let second = shown(&mut kubelet, &pebble, Some(&first))?;
    let (renewed, report) = (start.elapsed().as_secs(), load.stop());
    ensure!(report.failed == 0, "{} requests failed: {:?}", report.failed, report.failures);
    ensure!(kubelet.started >= 2, "{} challenges", kubelet.started);
    ensure!(second.not_after() > first.not_after(), "the second certificate ends earlier");
    let secret = site.tenant.cluster.get("Secret", &site.tenant.namespace, "shop-tls")?;
    ensure!(secret["type"] == "kubernetes.io/tls", "{secret}");
    Ok(vec![
        "an Ingress with `cert-manager.io/cluster-issuer`".into(),
        format!(
            "Pebble asked acmesolver by HTTP-01 through Oxigress on port 80; after {issued} s port 443 showed a certificate that \
             Pebble's root and the host's name verify"
        ),
        format!(
            "of {} s validity it was renewed by itself, with a new challenge, and shown after {renewed} s; {} requests over TLS \
             meanwhile, {} failed",
            VALIDITY.as_secs(),
            report.answered,
            report.failed
        ),
    ])
}

const INGRESS: &str = "
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: shop, annotations: {cert-manager.io/cluster-issuer: pebble}}
spec:
  ingressClassName: $CLASS
  tls: [{hosts: [shop.test], secretName: shop-tls}]
  rules:
    - host: shop.test
      http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: shop, port: {number: 80}}}}]}
";

fn load(site: &Site) -> Result<Load> {
    let address = Address::https(site.controller.https_port, HOST);
    let mut plan = Plan::new(address, vec![Request::get(HOST, "/")], 2);
    // Each on a connection of its own: what is shown is looked at by the handshake.
    (plan.is_fresh, plan.pace, plan.closes) = (true, Duration::from_millis(50), Closes::Never);
    Load::start(plan)
}

/// Waits until port 443 shows a certificate of Pebble's that is another one than `before`.
fn shown(kubelet: &mut FakeKubelet<'_>, pebble: &Pebble, before: Option<&X509>) -> Result<X509> {
    let start = Instant::now();
    let serial = |certificate: &X509| certificate.serial_number().to_bn();
    loop {
        kubelet.tend()?;
        let why = match pebble.handshake() {
            Ok(shown) if before.map(serial).transpose()? != Some(serial(&shown)?) => {
                return Ok(shown);
            }
            Ok(_) => "it is still the first one".into(),
            Err(why) => format!("{why:#}"),
        };
        if start.elapsed() > PATIENCE {
            let cluster = kubelet.site.tenant.cluster;
            let namespace = &kubelet.site.tenant.namespace;
            let challenges = cluster.list("Challenge", namespace)?;
            let orders = cluster.list("Order", namespace)?;
            let requests = cluster.list("CertificateRequest", namespace)?;
            anyhow::bail!(
                "no certificate in {PATIENCE:?}: {why}\n{challenges:#?}\n{orders:#?}\n{requests:#?}"
            );
        }
        sleep(Duration::from_millis(200));
    }
}

struct Pebble {
    port: u16,
    management: u16,
    authority: Issued,
    _process: Process,
}

impl Pebble {
    fn start(directory: &Directory, names: &FakeDns) -> Result<Self> {
        let authority = Issued::new(certificate::authority("pebble", 0..2)?, None)?;
        let params = certificate::params("pebble", &["localhost", "127.0.0.1"], 0..2)?;
        let own = Issued::new(params, Some(&authority))?;
        let file = |name: &str| directory.join(name);
        fs::write(file("pebble.crt"), &own.pem)?;
        fs::write(file("pebble.key"), own.key.pem()?)?;
        let (port, management) = (free_port()?, free_port()?);
        let config = json!({"pebble": {
            "listenAddress": format!("127.0.0.1:{port}"),
            "managementListenAddress": format!("127.0.0.1:{management}"),
            "certificate": file("pebble.crt"), "privateKey": file("pebble.key"),
            "httpPort": 80, "tlsPort": 443, "keyAlgorithm": "ecdsa",
            "retryAfter": {"authz": 1, "order": 1},
            "profiles": {"default": {"description": "short", "validityPeriod": VALIDITY.as_secs()}},
        }});
        fs::write(file("pebble.json"), config.to_string())?;
        let process = Start::new("pebble")?
            .args(["-strict", "-dnsserver", &names.address.to_string(), "-config"])
            .args([file("pebble.json")])
            // A renewal has a challenge too; half of them would have none.
            .env("PEBBLE_AUTHZREUSE", "0")
            .run(directory)?;
        let pebble = Pebble { port, management, authority, _process: process };
        until("Pebble", || pebble.root().map(drop))?;
        Ok(pebble)
    }

    fn issuer(&self) -> String {
        let (port, authority) = (self.port, encode_block(self.authority.pem.as_bytes()));
        format!(
            "{{apiVersion: cert-manager.io/v1, kind: ClusterIssuer, metadata: {{name: pebble}}, spec: {{acme: {{\
             server: 'https://127.0.0.1:{port}/dir', caBundle: '{authority}', privateKeySecretRef: {{name: pebble-account}}, \
             solvers: [{{http01: {{ingress: {{ingressClassName: $CLASS}}}}}}]}}}}}}\n"
        )
    }

    /// What it signs with, below.
    fn root(&self) -> Result<X509> {
        let address = Address::https(self.management, "localhost");
        let answer = block_on(send(&address, &Request::get("localhost", "/roots/0")))?;
        ensure!(answer.status == 200, "{answer}");
        Ok(X509::from_pem(&answer.body)?)
    }

    /// The certificate that port 443 shows, if Pebble's root and the name verify it, as in a browser that trusts Pebble.
    fn handshake(&self) -> Result<X509> {
        let mut connector = SslConnector::builder(SslMethod::tls_client())?;
        connector.cert_store_mut().add_cert(self.root()?)?;
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, 443))?;
        let stream =
            connector.build().connect(HOST, stream).map_err(|why| anyhow::anyhow!("{why}"))?;
        stream.ssl().peer_certificate().context("no certificate")
    }
}
