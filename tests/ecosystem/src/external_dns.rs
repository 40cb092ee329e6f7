//! external-dns writes the records of hosts, whose addresses are those that Oxigress writes into the status of Ingresses.
//!
//! Its provider is CoreDNS's, which keeps records in etcd: the test reads there what CoreDNS would serve. The etcd is the
//! cluster's, a real one.

use crate::program::Start;
use crate::site::Site;
use anyhow::{Context, Result, ensure};
use openssl::base64::{decode_block, encode_block};
use oxigress_tests::cluster::ingress;
use oxigress_tests::place::{Directory, free_port};
use oxigress_tests::wait::until;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Where CoreDNS looks for `shop.test`, by default.
const KEY: &str = "/skydns/test/shop/";
const OWNER: &str = "heritage=external-dns";

pub fn run(directory: &Directory) -> Result<Vec<String>> {
    let site = Site::start("external-dns", directory, &["--publish-service=$NAMESPACE/lb"])?;
    let cluster = site.tenant.cluster;
    site.tenant.apply(
        "{apiVersion: v1, kind: Service, metadata: {name: lb}, spec: {type: LoadBalancer, ports: [{port: 80}]}}",
    )?;
    load_balancer(&site, &json!([{"ip": "192.0.2.1"}]))?;
    let flags = [
        "--source=ingress".into(),
        format!("--kubeconfig={}", cluster.kubeconfig().display()),
        format!("--namespace={}", site.tenant.namespace),
        format!("--ingress-class={}", site.tenant.class),
        "--provider=coredns".into(),
        "--domain-filter=test".into(),
        "--policy=sync".into(),
        "--txt-owner-id=oxigress".into(),
        "--interval=1s".into(),
        format!("--metrics-address=127.0.0.1:{}", free_port()?),
    ];
    let _external_dns = Start::new("external-dns")?
        .args(flags)
        .env("ETCD_URLS", cluster.etcd_url())
        .run(directory)?;
    let page = site.tenant.pod("shop")?;
    site.tenant.service("shop", &[&page])?;
    site.tenant.apply(&ingress("shop", "shop.test", "shop"))?;
    follows(&site, &["192.0.2.1"])?;
    load_balancer(&site, &json!([{"ip": "192.0.2.7"}, {"ip": "192.0.2.8"}]))?;
    follows(&site, &["192.0.2.7", "192.0.2.8"])?;
    load_balancer(&site, &json!([{"hostname": "lb.cloud.example"}]))?;
    follows(&site, &["lb.cloud.example"])?;
    site.tenant.delete("Ingress", "shop")?;
    follows(&site, &[])?;
    Ok(vec![
        "A records of a host from the status of its Ingress, into etcd as CoreDNS reads it".into(),
        "of the load balancer's Service 192.0.2.1, then 192.0.2.7 and 192.0.2.8, then a host name (CNAME): the record followed"
            .into(),
        "the Ingress was deleted, and the record with it".into(),
    ])
}

/// What a cloud's controller would write.
fn load_balancer(site: &Site, addresses: &Value) -> Result<()> {
    let status = json!({"status": {"loadBalancer": {"ingress": addresses}}});
    site.tenant.cluster.patch("Service", &site.tenant.namespace, "lb", &status)
}

/// Waits until the host has these records and no other.
fn follows(site: &Site, expected: &[&str]) -> Result<()> {
    let expected: BTreeSet<String> = expected.iter().map(|text| (*text).to_owned()).collect();
    until("the record", || {
        let records = records(site)?;
        let ingress = site.tenant.cluster.get("Ingress", &site.tenant.namespace, "shop")?;
        let status = &ingress["status"]["loadBalancer"];
        ensure!(records == expected, "{records:?} instead of {expected:?}; status: {status}");
        Ok(())
    })
}

/// The targets in etcd, each of which external-dns owns.
fn records(site: &Site) -> Result<BTreeSet<String>> {
    let end = KEY.replace("shop/", "shop0");
    let range =
        json!({"key": encode_block(KEY.as_bytes()), "range_end": encode_block(end.as_bytes())});
    let found = site.tenant.cluster.etcd_call("range", &range)?;
    let mut targets = BTreeSet::new();
    for pair in found["kvs"].as_array().into_iter().flatten() {
        let value = decode_block(pair["value"].as_str().context("a value")?)?;
        let record: Value = serde_json::from_slice(&value)?;
        if let Some(host) = record["host"].as_str() {
            let text = record["text"].as_str().unwrap_or_default();
            ensure!(text.contains(OWNER) || text.is_empty(), "{record}");
            targets.insert(host.to_owned());
        }
    }
    Ok(targets)
}
