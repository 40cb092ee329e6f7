//! The Helm chart of `conf/helm`, rendered by a real Helm.

use crate::dist::{repository, target};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::io::Write;
use std::process::{Command, Output, Stdio};

/// The release that tests render, and its name in objects.
pub const RELEASE: &str = "oxigress";

/// Helm, with these arguments and values from its standard input, in the top folder.
pub fn helm(arguments: &[&str], values: &str) -> Result<Output> {
    let program = target().join("helm/helm");
    ensure!(program.exists(), "{} is missing: run `make helm` first", program.display());
    let mut command = Command::new(program);
    command.args(arguments).current_dir(repository());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut helm = command.spawn().context("helm")?;
    helm.stdin.take().context("helm's input")?.write_all(values.as_bytes())?;
    Ok(helm.wait_with_output()?)
}

/// The objects of the chart in `namespace` with these values, as text.
pub fn text(namespace: &str, values: &str, further: &[&str]) -> Result<String> {
    let fixed = ["template", RELEASE, "conf/helm", "--namespace", namespace, "--values", "-"];
    let output = helm(&[&fixed, further].concat(), values)?;
    let why = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "helm template: {why}");
    Ok(String::from_utf8(output.stdout)?)
}

pub fn objects(namespace: &str, values: &str, further: &[&str]) -> Result<Vec<Value>> {
    let text = text(namespace, values, further)?;
    let all: Vec<Value> = serde_saphyr::from_multiple(&text)?;
    Ok(all.into_iter().filter(|object| !object.is_null()).collect())
}

/// A text of an object.
pub fn at<'v>(object: &'v Value, pointer: &str) -> &'v str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The object of a kind whose name ends so.
pub fn find<'v>(objects: &'v [Value], kind: &str, end: &str) -> Result<&'v Value> {
    let mut of_kind = objects.iter().filter(|object| at(object, "/kind") == kind);
    of_kind
        .find(|object| at(object, "/metadata/name").ends_with(end))
        .with_context(|| format!("no {kind} …{end}"))
}

/// The pod of the Deployment or DaemonSet, and one of its containers.
pub fn pod(objects: &[Value]) -> Result<&Value> {
    let workload = find(objects, "Deployment", "-controller");
    let workload = workload.or_else(|_| find(objects, "DaemonSet", "-controller"))?;
    workload.pointer("/spec/template").context("a pod")
}

/// A container of a pod.
pub fn container<'v>(pod: &'v Value, name: &str) -> Result<&'v Value> {
    let all = pod.pointer("/spec/containers").and_then(Value::as_array).context("containers")?;
    all.iter().find(|one| at(one, "/name") == name).with_context(|| format!("no container {name}"))
}

/// The command line of a container, in a pod of `namespace`.
pub fn arguments(container: &Value, namespace: &str) -> Vec<String> {
    let all = container.get("args").and_then(Value::as_array);
    let texts = all.into_iter().flatten().filter_map(Value::as_str);
    texts.map(|text| text.replace("$(POD_NAMESPACE)", namespace)).collect()
}

/// What people set, each with a name.
pub const SETS: &[(&str, &str)] = &[
    ("default", "{}"),
    (
        "daemonset",
        "controller: {kind: DaemonSet, hostPort: {enabled: true}, updateStrategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 2}}}
tcp: {'5432': 'shop/database:5432'}
udp: {'53': 'kube-system/dns:53::PROXY'}",
    ),
    (
        "scope",
        "rbac: {scope: true}
controller:
  scope: {enabled: true, namespace: default}
  ingressClassResource: {enabled: false}",
    ),
    ("selector", "controller: {scope: {namespaceSelector: team=shop}, extraArgs: {v: 2, default-ssl-certificate: shop/tls}}"),
    ("no webhook", "controller: {admissionWebhooks: {enabled: false}}"),
    (
        "cert-manager",
        "controller: {admissionWebhooks: {failurePolicy: Fail, objectSelector: {matchLabels: {a: b}}, certManager: {enabled: true}}}",
    ),
    (
        "metrics",
        "controller:
  metrics:
    enabled: true
    dashboard: {enabled: true}
    service: {annotations: {prometheus.io/scrape: 'true'}}
    serviceMonitor: {enabled: true, additionalLabels: {release: prometheus}, metricRelabelings: [{action: labeldrop, regex: pod}]}
    prometheusRule: {enabled: true, rules: [{alert: Down, expr: up == 0, for: 5m}]}",
    ),
    (
        "autoscaling",
        "controller:
  autoscaling: {enabled: true, minReplicas: 2, behavior: {scaleDown: {stabilizationWindowSeconds: 300}}}
  maxUnavailable: 1
  resizePolicy: [{resourceName: cpu, restartPolicy: NotRequired}]
  resources: {limits: {cpu: '2', memory: 1Gi}, requests: {cpu: '1', memory: 512Mi}}
  topologySpreadConstraints:
    - {maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchLabels: {app.kubernetes.io/instance: '{{ .Release.Name }}'}}}",
    ),
    (
        "keda",
        "controller:
  allowSnippetAnnotations: true
  keda: {enabled: true, minReplicas: 2, triggers: [{type: cpu, metricType: Utilization, metadata: {value: '50'}}]}",
    ),
    (
        "host network",
        "controller:
  hostNetwork: true
  dnsPolicy: ClusterFirstWithHostNet
  reportNodeInternalIp: true
  publishService: {enabled: false}
  service: {enabled: false}",
    ),
    (
        "cloud",
        "commonLabels: {cost: shop}
imagePullSecrets: [{name: registry}]
controller:
  replicaCount: 3
  image: {registry: registry.example.com, digest: 'sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef'}
  config: {use-gzip: 'true', proxy-body-size: 8m}
  addHeaders: {X-Frame-Options: DENY}
  proxySetHeaders: {X-Cluster: a}
  networkPolicy: {enabled: true}
  ingressClassResource: {name: public, default: true, aliases: [external]}
  podAnnotations: {linkerd.io/inject: enabled}
  priorityClassName: system-cluster-critical
  service:
    externalTrafficPolicy: Local
    loadBalancerSourceRanges: [10.0.0.0/8]
    annotations: {service.beta.kubernetes.io/aws-load-balancer-type: nlb}
    internal: {enabled: true, annotations: {networking.gke.io/load-balancer-type: Internal}, type: NodePort, nodePorts: {http: 30080}}",
    ),
    (
        "default backend",
        "defaultBackend:
  enabled: true
  replicaCount: 2
  image: {repository: registry.example.com/pages, tag: '1'}
  extraEnvs: [{name: A, value: b}]
  networkPolicy: {enabled: true}
  extraConfigMaps: [{name: pages, labels: {a: b}, data: {404.html: gone}}]
  autoscaling: {enabled: true, minReplicas: 2}",
    ),
];
