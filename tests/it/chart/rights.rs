//! The rights that the chart gives, against the API server's audit log of a controller that has no others: nothing is refused, and each is used.

use crate::kubernetes::gateway::TRUST_BUNDLES;
use anyhow::{Context, Result, bail, ensure};
use oxigress_tests::chart::{RELEASE, arguments, at, container, find, objects, pod};
use oxigress_tests::client::{self, Address, Request};
use oxigress_tests::cluster::{Cluster, ingress, service};
use oxigress_tests::dist;
use oxigress_tests::endpoint::{Behaviour, Endpoint};
use oxigress_tests::network::pod_address;
use oxigress_tests::place::{Directory, free_port};
use oxigress_tests::process::Process;
use oxigress_tests::wait::{block_on, until};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

const OWN: &str = "ingress";
const POD: &str = "oxigress-controller-1";

/// One right: where (empty: in the cluster), group, resource, its name if it has to have one, verb.
type Right = (String, String, String, String, String);

fn texts(value: &Value, key: &str) -> Vec<String> {
    let all = value.get(key).and_then(Value::as_array).into_iter().flatten();
    all.filter_map(Value::as_str).map(String::from).collect()
}

/// What the rendered roles give.
fn granted(objects: &[Value]) -> BTreeSet<Right> {
    let mut rights = BTreeSet::new();
    for role in
        objects.iter().filter(|object| ["Role", "ClusterRole"].contains(&at(object, "/kind")))
    {
        let namespace = at(role, "/metadata/namespace");
        for rule in role["rules"].as_array().into_iter().flatten() {
            let mut names = texts(rule, "resourceNames");
            if names.is_empty() {
                names.push(String::new());
            }
            for group in texts(rule, "apiGroups") {
                for resource in texts(rule, "resources") {
                    for (name, verb) in names.iter().flat_map(|name| {
                        texts(rule, "verbs").into_iter().map(move |verb| (name, verb))
                    }) {
                        rights.insert((
                            namespace.into(),
                            group.clone(),
                            resource.clone(),
                            name.clone(),
                            verb,
                        ));
                    }
                }
            }
        }
    }
    rights
}

/// A request of the controller's, as the audit log has it.
struct Asked {
    right: Right,
    is_allowed: bool,
}

/// The requests of the ServiceAccount.
fn asked(log: &str, user: &str) -> Result<Vec<Asked>> {
    let mut all = Vec::new();
    for line in log.lines() {
        // The last line may be half written.
        let Ok(entry) = serde_json::from_str::<Value>(line) else { continue };
        if at(&entry, "/user/username") != user || entry.get("objectRef").is_none() {
            continue;
        }
        let text = |key: &str| at(&entry["objectRef"], key).to_owned();
        let resource = match text("/subresource") {
            sub if sub.is_empty() => text("/resource"),
            sub => format!("{}/{sub}", text("/resource")),
        };
        let right = (
            text("/namespace"),
            text("/apiGroup"),
            resource,
            text("/name"),
            at(&entry, "/verb").to_owned(),
        );
        let is_allowed =
            match entry["annotations"].get("authorization.k8s.io/decision").and_then(Value::as_str)
            {
                Some("allow") => true,
                Some("forbid") => false,
                other => bail!("no decision in the audit log: {other:?}: {entry}"),
            };
        all.push(Asked { right, is_allowed });
    }
    Ok(all)
}

/// Whether a request needs a right.
fn needs(asked: &Right, right: &Right) -> bool {
    (right.0.is_empty() || right.0 == asked.0)
        && right.1 == asked.1
        && right.2 == asked.2
        && (right.3.is_empty() || right.3 == asked.3)
        && right.4 == asked.4
}

/// A cluster that writes down who asked what, with the chart's objects, and both roles with the rendered command lines.
struct Installed {
    cluster: Cluster,
    objects: Vec<Value>,
    audit: PathBuf,
    controller: Process,
    nginx: Process,
    http_port: u16,
}

const USER: &str = "system:serviceaccount:ingress:oxigress";

/// A cluster, and the file in which it writes down who asked what.
fn audited(directory: &Directory) -> Result<(Cluster, PathBuf)> {
    let (audit, policy) = (directory.join("audit.log"), directory.join("policy.json"));
    let rules = json!([{"level": "Metadata", "omitStages": ["RequestReceived"]}]);
    fs::write(
        &policy,
        json!({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": rules}).to_string(),
    )?;
    let mut flags = vec![
        format!("--audit-log-path={}", audit.display()),
        format!("--audit-policy-file={}", policy.display()),
    ];
    flags.extend(TRUST_BUNDLES.map(Into::into));
    let cluster = Cluster::start_with(directory, &flags)?;
    Ok((cluster, audit))
}

/// The pod is ready on a node with an address.
fn is_ready(cluster: &Cluster, pod: &Value) -> Result<()> {
    let labels = &pod["metadata"]["labels"];
    let containers = json!([{"name": "nginx", "image": "nginx"}]);
    let own = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": POD, "labels": labels},
                     "spec": {"nodeName": "node-1", "containers": containers}});
    cluster.apply_in(OWN, &own.to_string())?;
    cluster.apply("{apiVersion: v1, kind: Node, metadata: {name: node-1}}")?;
    let ready = json!([{"type": "Ready", "status": "True"}]);
    cluster.patch(
        "Pod",
        OWN,
        POD,
        &json!({"status": {"phase": "Running", "conditions": ready}}),
    )?;
    let addresses = json!([{"type": "ExternalIP", "address": "192.0.2.1"}]);
    cluster.patch("Node", "", "node-1", &json!({"status": {"addresses": addresses}}))?;
    Ok(())
}

fn install(directory: &Directory, values: &str) -> Result<Installed> {
    let (cluster, audit) = audited(directory)?;
    let groups = ["system:serviceaccounts", "system:serviceaccounts:ingress"];
    let kubeconfig = cluster.kubeconfig_of(USER, &groups)?;
    for namespace in [OWN, "shop"] {
        cluster.apply(&format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {namespace}, labels: {{team: shop}}}}}}"))?;
    }
    // A default backend that has no endpoints is an Event of its Service.
    cluster.apply_in("shop", &service("nobody", &[]))?;
    let (http_port, https_port, health_port) = (free_port()?, free_port()?, free_port()?);
    let mut all: Value = serde_saphyr::from_str(values)?;
    let fixed = json!({"controller": {
        "containerPort": {"http": http_port, "https": https_port},
        "metrics": {"port": health_port},
        "electionTTL": "4s",
        "admissionWebhooks": {"enabled": false},
        "service": {"type": "ClusterIP"},
        "config": {"global-allowed-response-headers": "X-Late"},
        "extraArgs": {
            "kubeconfig": kubeconfig, "runtime-dir": directory.join("run"), "worker-processes": 1,
            "shutdown-grace-period": 0, "post-shutdown-grace-period": 0, "status-update-interval": 5,
        },
    }});
    merge(&mut all, &fixed);
    let objects = objects(OWN, &all.to_string(), &[])?;
    for object in &objects {
        cluster.apply_in(OWN, &object.to_string())?;
    }
    let pod = pod(&objects)?;
    is_ready(&cluster, pod)?;
    let start = |role: &str| -> Result<Process> {
        let mut command = Command::new(dist::oxigress()?);
        command
            .args(arguments(container(pod, role)?, OWN))
            .env("POD_NAME", POD)
            .env("POD_NAMESPACE", OWN);
        Process::start(role, &mut command, &directory.join(role))
    };
    let (nginx, controller) = (start("nginx")?, start("controller")?);
    Ok(Installed { cluster, objects, audit, controller, nginx, http_port })
}

fn merge(into: &mut Value, from: &Value) {
    match (into.as_object_mut(), from.as_object()) {
        (Some(into), Some(from)) => {
            for (name, value) in from {
                merge(into.entry(name.clone()).or_insert(Value::Null), value);
            }
        }
        _ => *into = from.clone(),
    }
}

impl Installed {
    /// An Ingress of the class nginx in `shop` is served, and its status is written.
    fn serve(&self, name: &str, pod: &Endpoint, annotations: &Value, tls: &Value) -> Result<()> {
        let host = format!("{name}.test");
        let mut object: Value =
            serde_saphyr::from_str(&ingress(name, &host, "shop").replace("$CLASS", "nginx"))?;
        object["metadata"]["annotations"] = annotations.clone();
        object["spec"]["tls"] = tls.clone();
        self.cluster.apply_in("shop", &service("shop", &[pod]))?;
        self.cluster.apply_in("shop", &object.to_string())?;
        until("the Ingress to be served", || {
            let answer =
                block_on(client::send(&Address::http(self.http_port), &Request::get(&host, "/")))?;
            ensure!(
                answer.endpoint().is_some() || answer.status == 308,
                "{host}: {}",
                answer.status
            );
            Ok(())
        })?;
        until("the status of the Ingress", || {
            let object = self.cluster.get("Ingress", "shop", name)?;
            let addresses =
                object.pointer("/status/loadBalancer/ingress").and_then(Value::as_array);
            ensure!(addresses.is_some_and(|all| !all.is_empty()), "{object}");
            Ok(())
        })
    }

    /// The same mistake made again and again is one Event that counts: of an Ingress and of the chart's ConfigMap.
    fn err_again(&self) -> Result<()> {
        let is_counted = |namespace: &str, kind: &str| -> Result<bool> {
            let events = self.cluster.list("Event", namespace)?;
            let of = |event: &&Value| at(event, "/involvedObject/kind") == kind;
            Ok(events.iter().filter(of).any(|event| event["count"].as_u64() > Some(1)))
        };
        let first = "nginx.ingress.kubernetes.io/proxy-connect-timeout";
        let config = format!("{RELEASE}-controller");
        let mut is_wrong = false;
        until("Events that count", || {
            is_wrong = !is_wrong;
            let value = if is_wrong { "soon" } else { "5" };
            let change = json!({"metadata": {"annotations": {first: value}}});
            self.cluster.patch("Ingress", "shop", "first", &change)?;
            let value = if is_wrong { "75s" } else { "75" };
            self.cluster.patch(
                "ConfigMap",
                OWN,
                &config,
                &json!({"data": {"keep-alive": value}}),
            )?;
            ensure!(is_counted("shop", "Ingress")? && is_counted(OWN, "ConfigMap")?, "not yet");
            Ok(())
        })
    }

    /// Waits until every right was used, and looks that nothing was refused.
    fn judge(mut self, directory: &Directory) -> Result<()> {
        let granted = granted(&self.objects);
        ensure!(granted.len() > 15, "{granted:?}");
        let unused = |log: &str| -> Result<Vec<Right>> {
            let all = asked(log, USER)?;
            let refused: BTreeSet<_> =
                all.iter().filter(|asked| !asked.is_allowed).map(|asked| &asked.right).collect();
            ensure!(refused.is_empty(), "refused: {refused:?}");
            let is_unused = |right: &&Right| !all.iter().any(|asked| needs(&asked.right, right));
            Ok(granted.iter().filter(is_unused).cloned().collect())
        };
        // Whether another replica goes on is asked at the end.
        let is_of_the_end = |right: &Right| right.2 == "pods";
        let used = until("every right to be used", || {
            let mut left = unused(&fs::read_to_string(&self.audit)?)?;
            left.retain(|right| !is_of_the_end(right));
            ensure!(left.is_empty(), "never used: {left:?}");
            Ok(())
        });
        let said = || fs::read_to_string(directory.join("controller")).unwrap_or_default();
        used.with_context(said)?;
        self.controller.stop(Signal::TERM)?;
        self.nginx.stop(Signal::TERM)?;
        let left = unused(&fs::read_to_string(&self.audit)?)?;
        ensure!(left.is_empty(), "never used, also not at the end: {left:?}\n{}", said());
        Ok(())
    }

    /// A Secret and a ConfigMap that exist before anything needs them, then an Ingress that does.
    fn need_what_was_there(&self, pod: &Endpoint) -> Result<()> {
        let pair = oxigress_tests::certificate::Certificate::new("late.test", &["late.test"])?;
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
            "metadata": {"name": "late"}, "stringData": {"tls.crt": pair.chain, "tls.key": pair.key}});
        self.cluster.apply_in("shop", &secret.to_string())?;
        let headers =
            "{apiVersion: v1, kind: ConfigMap, metadata: {name: headers}, data: {X-Late: a}}";
        self.cluster.apply_in("shop", headers)?;
        let annotations = json!({"nginx.ingress.kubernetes.io/custom-headers": "shop/headers"});
        self.serve("first", pod, &Value::Null, &Value::Null)?;
        self.serve(
            "late",
            pod,
            &annotations,
            &json!([{"hosts": ["late.test"], "secretName": "late"}]),
        )
    }
}

#[test]
fn a_controller_of_the_whole_cluster_has_the_rights_that_it_uses() -> Result<()> {
    let directory = Directory::new("rights")?;
    let values =
        "{tcp: {'9000': 'shop/missing:80'}, controller: {scope: {namespaceSelector: team=shop}}}";
    let installed = install(&directory, values)?;
    find(&installed.objects, "ClusterRole", &format!("{RELEASE}-{OWN}"))?;
    let pod = Endpoint::with("shop", Behaviour::Ok, pod_address().into())?;
    installed.need_what_was_there(&pod)?;
    installed.err_again()?;
    installed.judge(&directory)
}

#[test]
fn a_controller_of_one_namespace_has_the_rights_that_it_uses() -> Result<()> {
    let directory = Directory::new("rights-scope")?;
    let values = "controller: {scope: {enabled: true, namespace: shop}, publishService: {enabled: false}, \
                  extraArgs: {default-backend-service: shop/nobody}}";
    let installed = install(&directory, values)?;
    let pod = Endpoint::with("shop", Behaviour::Ok, pod_address().into())?;
    installed.need_what_was_there(&pod)?;
    installed.err_again()?;
    installed.judge(&directory)
}
