//! The values of a release of ingress-nginx, as they are: every key of its chart is taken, and NOTES names those without an effect.

use super::schema::{is_below, theirs, values, without_effect};
use anyhow::{Context, Result, ensure};
use oxigress_tests::chart::{at, container, find, helm, objects, pod, text};
use serde_json::{Value, json};

/// What Helm prints after an installation with these values.
fn notes(values: &str) -> Result<String> {
    let arguments = ["install", "oxigress", "conf/helm", "--dry-run=client", "--values", "-"];
    let output = helm(&arguments, values)?;
    let why = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "helm install: {why}");
    let text = String::from_utf8(output.stdout)?;
    Ok(text.split_once("\nNOTES:\n").context("no NOTES")?.1.to_owned())
}

fn nested(key: &str, value: Value) -> Value {
    key.rsplit('.').fold(value, |inner, name| json!({ name: inner }))
}

/// What ingress-nginx's chart has by default where this one has something else or nothing.
const THEIR_DEFAULTS: &str = "
global: {image: {registry: registry.k8s.io}}
controller:
  enableAnnotationValidations: true
  image: {chroot: false, image: ingress-nginx/controller, tag: v1.15.1, digest: 'sha256:00', runAsGroup: 82, readOnlyRootFilesystem: false}
  hostname: {}
  maxmindLicenseKey: ''
  extraModules: []
  enableMimalloc: true
  customTemplate: {configMapName: '', configMapKey: ''}
  livenessProbe: {httpGet: {path: /healthz}, timeoutSeconds: 1}
  admissionWebhooks:
    failurePolicy: Fail
    certificate: /usr/local/certificates/cert
    key: /usr/local/certificates/key
    patch: {enabled: true, image: {image: ingress-nginx/kube-webhook-certgen}}
  lifecycle: {preStop: {exec: {command: [/wait-shutdown]}}}
serviceAccount: {automountServiceAccountToken: true}
dhParam: ''
";

#[test]
fn every_key_of_ingress_nginx_s_chart_is_taken() -> Result<()> {
    let (values, ignored) = (values()?, without_effect()?);
    let mut whole = json!({});
    for key in theirs()? {
        let own = values.pointer(&format!("/{}", key.replace('.', "/")));
        let is_ignored = ignored.keys().any(|one| is_below(&key, one));
        let value = match own {
            _ if is_ignored => json!("probe"),
            Some(own) => own.clone(),
            // Below an object that takes whatever Kubernetes takes.
            None => continue,
        };
        super::table::merge(&mut whole, &nested(&key, value));
    }
    text("ingress", &whole.to_string(), &[])?;
    Ok(())
}

#[test]
fn notes_warn_of_containers_that_see_each_other() -> Result<()> {
    let warned = |values: &str| Ok::<_, anyhow::Error>(notes(values)?.contains("private keys"));
    ensure!(!warned("{}")?);
    ensure!(warned("controller: {shareProcessNamespace: true}")?);
    Ok(())
}

#[test]
fn notes_name_each_value_that_has_no_effect() -> Result<()> {
    ensure!(!notes("{}")?.contains("no effect"), "{}", notes("{}")?);
    for (key, entry) in without_effect()? {
        let why = at(&entry, "/why");
        ensure!(!why.is_empty(), "{key}: no reason");
        let below = theirs()?.into_iter().find(|one| is_below(one, &key)).context(key.clone())?;
        let said = notes(&nested(&below, json!("probe")).to_string())?;
        ensure!(said.contains(&format!("* {key}: {why}.")), "{key}: {said}");
    }
    Ok(())
}

#[test]
fn the_defaults_of_ingress_nginx_s_chart_are_served_by_this_image() -> Result<()> {
    let rendered = objects("ingress", THEIR_DEFAULTS, &[])?;
    let pod = pod(&rendered)?;
    let version = env!("CARGO_PKG_VERSION");
    for name in ["controller", "nginx"] {
        let container = container(pod, name)?;
        ensure!(at(container, "/image") == format!("oxigress:{version}"), "{container}");
        ensure!(container.get("lifecycle").is_none(), "{container}");
        ensure!(container.pointer("/securityContext/runAsGroup") == Some(&json!(82)));
    }
    let webhook = find(&rendered, "ValidatingWebhookConfiguration", "")?;
    ensure!(at(webhook, "/webhooks/0/failurePolicy") == "Fail", "{webhook}");
    let said = notes(THEIR_DEFAULTS)?;
    let named: Vec<_> = said.lines().filter_map(|line| line.strip_prefix("* ")).collect();
    let keys: Vec<_> =
        named.iter().map(|line| line.split([':', ' ']).next().unwrap_or_default()).collect();
    let expected = [
        "controller.admissionWebhooks.patch",
        "controller.enableMimalloc",
        "controller.lifecycle.preStop",
        "controller.image",
    ];
    ensure!(keys == expected, "{said}");
    Ok(())
}

#[test]
fn a_mirror_of_ingress_nginx_s_image_is_a_mirror_of_this_one() -> Result<()> {
    let version = env!("CARGO_PKG_VERSION");
    for (image, expected) in [
        (
            "{registry: mirror.test, image: ingress-nginx/controller, digest: 'sha256:00'}",
            "mirror.test/oxigress",
        ),
        ("{repository: mirror.test/ingress-nginx/controller-chroot, tag: v1}", "oxigress"),
        ("{repository: mirror.test/own/oxigress}", "mirror.test/own/oxigress"),
    ] {
        let rendered = objects("ingress", &format!("controller: {{image: {image}}}"), &[])?;
        let container = container(pod(&rendered)?, "nginx")?;
        ensure!(at(container, "/image") == format!("{expected}:{version}"), "{container}");
    }
    Ok(())
}

#[test]
fn what_scales_by_keda_has_no_replicas_of_its_own() -> Result<()> {
    let values = "controller: {keda: {enabled: true, minReplicas: 2, maxReplicas: 5}}";
    let rendered = objects("ingress", values, &[])?;
    let scaled = find(&rendered, "ScaledObject", "-controller")?;
    ensure!(scaled.pointer("/spec/maxReplicaCount") == Some(&json!(5)), "{scaled}");
    let workload = find(&rendered, "Deployment", "-controller")?;
    ensure!(at(scaled, "/spec/scaleTargetRef/name") == at(workload, "/metadata/name"), "{scaled}");
    ensure!(workload.pointer("/spec/replicas").is_none(), "{workload}");
    find(&rendered, "PodDisruptionBudget", "-controller")?;
    Ok(())
}

#[test]
fn the_switch_of_snippets_is_the_configmap_s_key() -> Result<()> {
    for (values, expected) in [
        ("controller: {allowSnippetAnnotations: true}", "true"),
        (
            "controller: {allowSnippetAnnotations: true, config: {allow-snippet-annotations: 'false'}}",
            "false",
        ),
    ] {
        let rendered = objects("ingress", values, &[])?;
        let map = find(&rendered, "ConfigMap", "-controller")?;
        ensure!(at(map, "/data/allow-snippet-annotations") == expected, "{map}");
    }
    Ok(())
}
