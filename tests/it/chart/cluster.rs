//! The Helm chart against a real API server: it takes what is rendered, and the controller has the rights that it uses.

use anyhow::{Context, Result, ensure};
use oxigress_tests::chart::{RELEASE, SETS, at, find, objects};
use oxigress_tests::cluster::Cluster;
use oxigress_tests::place::Directory;
use serde_json::{Value, json};

/// Kinds of others, without what they say about their fields.
const FOREIGN: &[(&str, &str, &str, &str)] = &[
    ("monitoring.coreos.com", "v1", "ServiceMonitor", "servicemonitors"),
    ("monitoring.coreos.com", "v1", "PrometheusRule", "prometheusrules"),
    ("cert-manager.io", "v1", "Issuer", "issuers"),
    ("cert-manager.io", "v1", "Certificate", "certificates"),
    ("keda.sh", "v1alpha1", "ScaledObject", "scaledobjects"),
];

fn definition(&(group, version, kind, plural): &(&str, &str, &str, &str)) -> Value {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let names = json!({"kind": kind, "plural": plural, "singular": kind.to_lowercase()});
    let version = json!({"name": version, "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [version]},
    })
}

#[test]
fn the_api_server_takes_every_object() -> Result<()> {
    let directory = Directory::new("chart-objects")?;
    // Its own: a webhook and a default IngressClass of the chart would be other tests' too.
    let cluster = Cluster::start(&directory)?;
    for foreign in FOREIGN {
        cluster.apply(&definition(foreign).to_string())?;
    }
    oxigress_tests::wait::until("the kinds of others", || {
        FOREIGN.iter().try_for_each(|(_, _, kind, _)| cluster.list(kind, "").map(drop))
    })?;
    for (name, values) in SETS {
        let namespace = cluster.tenant("chart")?.namespace;
        let objects = objects(&namespace, values, &[])?;
        ensure!(objects.len() > 8, "{name}: {} objects", objects.len());
        for object in objects {
            let apply = cluster.apply_in(&namespace, &object.to_string());
            apply.with_context(|| format!("values {name:?}: {object:#}"))?;
        }
    }
    Ok(())
}

#[test]
fn the_webhook_s_certificate_is_for_its_service_and_is_kept() -> Result<()> {
    let cluster = Cluster::shared()?;
    let namespace = cluster.tenant("certificate")?.namespace;
    let kubeconfig = format!("--kubeconfig={}", cluster.kubeconfig().display());
    let asking = ["--dry-run=server", &kubeconfig];
    let values = "{}";
    let first = objects(&namespace, values, &asking)?;
    let secret = find(&first, "Secret", "-admission")?;
    let decode = |key: &str| openssl::base64::decode_block(at(&secret["data"], &format!("/{key}")));
    let pair = openssl::x509::X509::from_pem(&decode("tls.crt")?)?;
    let authority = openssl::x509::X509::from_pem(&decode("ca.crt")?)?;
    let key = openssl::pkey::PKey::private_key_from_pem(&decode("tls.key")?)?;
    let (public, signer) = (pair.public_key()?, authority.public_key()?);
    ensure!(pair.verify(&signer)? && key.public_eq(&public));
    let configuration = find(&first, "ValidatingWebhookConfiguration", "")?;
    let client = &configuration["webhooks"][0]["clientConfig"];
    ensure!(at(client, "/caBundle") == at(&secret["data"], "/ca.crt"), "another authority");
    let name = format!("{}.{namespace}.svc", at(client, "/service/name"));
    let names = pair.subject_alt_names().context("names")?;
    ensure!(names.iter().any(|one| one.dnsname() == Some(&name)), "{name}");
    find(&first, "Service", at(client, "/service/name"))?;

    // As Helm leaves it, which looks whose it is.
    let mut installed = secret.clone();
    installed["metadata"]["annotations"] =
        json!({"meta.helm.sh/release-name": RELEASE, "meta.helm.sh/release-namespace": namespace});
    cluster.apply_in(&namespace, &installed.to_string())?;
    let second = objects(&namespace, values, &asking)?;
    ensure!(find(&second, "Secret", "-admission")?["data"] == secret["data"], "a new certificate");
    ensure!(second == first, "something else changed");
    let other = objects(&format!("{namespace}-b"), values, &asking)?;
    ensure!(
        find(&other, "Secret", "-admission")?["data"] != secret["data"],
        "the same certificate for two releases"
    );
    Ok(())
}
