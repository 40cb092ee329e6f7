//! Where clients reach this controller, for the status of Ingresses.
//!
//! Source:  ingress-nginx's controller: --publish-status-address, --publish-service, else the nodes that our pods run on.
//!
//! Read when it is asked for. A [`Trigger`] says when something may have changed; what it rings for is read anew, so
//! a watch that lost something is made good by the next look.

use crate::Options;
use futures_util::stream::{BoxStream, StreamExt};
use k8s_openapi::api::core::v1::{Node, Pod, Service};
use kube::api::ListParams;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Error, Resource};
use oxigress_objects::Key;
use oxigress_objects::published::Address;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::future::ready;
use std::net::IpAddr;
use std::time::Duration;

/// Labels that tell one version of a Deployment or DaemonSet from the next.
const OF_A_VERSION: [&str; 3] =
    ["pod-template-hash", "controller-revision-hash", "pod-template-generation"];

/// Until our own pod is asked for again.
const LATER: Duration = Duration::from_secs(10);

/// What rings when addresses may have changed.
pub type Trigger = BoxStream<'static, ()>;

/// Where the addresses come from.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// The value of `--publish-status-address`.
    Fixed(Vec<Address>),
    /// The value of `--publish-service`.
    Service(Key),
    /// The nodes of our pods; of this pod the labels are.
    Nodes {
        /// The pod in which this process runs.
        pod: Key,
        /// The value of `--report-node-internal-ip-address`.
        is_internal: bool,
    },
}

/// Flags that contradict each other.
#[derive(Debug, thiserror::Error)]
#[error(
    "--publish-service and --publish-status-address exclude each other: the status is either a Service's \
     addresses or those that you name"
)]
pub struct TwoSources;

/// Why addresses cannot be told.
#[derive(Debug, thiserror::Error)]
pub enum AddressError {
    /// The object that should have the address does not exist.
    #[error("{0} {1} does not exist: create it or name another")]
    Missing(&'static str, Key),
    /// The API server refused or did not answer.
    #[error("{0}")]
    Api(String),
}

impl From<Error> for AddressError {
    fn from(error: Error) -> Self {
        AddressError::Api(crate::explain::explain(&error))
    }
}

impl Source {
    /// What the options say, and what is wrong with single addresses.
    pub fn of(options: &Options, pod: &Key) -> Result<(Self, Vec<String>), TwoSources> {
        let service = options.publish_service.as_ref();
        let (fixed, problems) = parse(&options.publish_status_address);
        match (service, options.publish_status_address.trim().is_empty()) {
            (Some(_), false) => Err(TwoSources),
            (Some(service), true) => Ok((Source::Service(service.clone()), problems)),
            (None, false) => Ok((Source::Fixed(fixed), problems)),
            (None, true) => {
                let is_internal = options.report_node_internal_ip_address;
                Ok((Source::Nodes { pod: pod.clone(), is_internal }, problems))
            }
        }
    }

    /// The addresses now, sorted, each once.
    pub async fn read(&self, client: &Client) -> Result<Vec<Address>, AddressError> {
        Ok(match self {
            Source::Fixed(addresses) => addresses.clone(),
            Source::Service(key) => {
                let services: Api<Service> = Api::namespaced(client.clone(), &key.namespace);
                let service = services.get_opt(&key.name).await?;
                of_service(&service.ok_or_else(|| AddressError::Missing("Service", key.clone()))?)
            }
            Source::Nodes { pod, is_internal } => {
                let pods = our_pods(client, pod).await?;
                let nodes: Api<Node> = Api::all(client.clone());
                let mut addresses = Vec::new();
                for name in nodes_of(&pods) {
                    let node = nodes.get_opt(&name).await?;
                    addresses.extend(node.and_then(|node| of_node(&node, *is_internal)));
                }
                sorted(addresses)
            }
        })
    }

    /// Rings when they may have changed. Errors are left to [`Source::read`], which meets them too.
    pub fn trigger(&self, client: &Client) -> Trigger {
        match self {
            Source::Fixed(_) => futures_util::stream::pending().boxed(),
            Source::Service(key) => {
                let api = Api::namespaced(client.clone(), &key.namespace);
                rings::<Service>(api, named(&key.name))
            }
            // Readiness and node stand in the status of our pods. Nodes seldom change addresses; the interval finds that.
            Source::Nodes { pod, .. } => {
                let (client, pod) = (client.clone(), pod.clone());
                let rings = async move {
                    let selector = loop {
                        match our_selector(&client, &pod).await {
                            Ok((_, selector)) => break selector,
                            Err(_) => tokio::time::sleep(LATER).await,
                        }
                    };
                    let config = match selector {
                        Some(selector) => watcher::Config::default().labels(&selector),
                        None => named(&pod.name),
                    };
                    rings::<Pod>(Api::namespaced(client, &pod.namespace), config)
                };
                futures_util::stream::once(rings).flatten().boxed()
            }
        }
    }
}

fn rings<K>(api: Api<PartialObjectMeta<K>>, config: watcher::Config) -> Trigger
where
    K: Resource<DynamicType = ()> + Clone + Debug + Send + 'static,
{
    let is_change =
        |event: &_| matches!(event, Ok(Event::Apply(_) | Event::Delete(_) | Event::InitDone));
    let events = watcher(api, config).default_backoff();
    events.filter_map(move |event| ready(is_change(&event).then_some(()))).boxed()
}

fn named(name: &str) -> watcher::Config {
    watcher::Config::default().fields(&format!("metadata.name={name}"))
}

/// This pod, and what selects all of its Deployment or DaemonSet, whatever its version; none: it has no labels, and a
/// selector of nothing would select the whole namespace.
async fn our_selector(client: &Client, pod: &Key) -> Result<(Pod, Option<String>), AddressError> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace);
    let this = pods.get_opt(&pod.name).await?;
    let this = this.ok_or_else(|| AddressError::Missing("Pod", pod.clone()))?;
    let labels = lasting(this.metadata.labels.clone().unwrap_or_default());
    let labels: Vec<_> = labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
    Ok((this, Some(labels.join(",")).filter(|selector| !selector.is_empty())))
}

async fn our_pods(client: &Client, pod: &Key) -> Result<Vec<Pod>, AddressError> {
    let (this, selector) = our_selector(client, pod).await?;
    let Some(selector) = selector else { return Ok(vec![this]) };
    let pods: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace);
    Ok(pods.list(&ListParams::default().labels(&selector)).await?.items)
}

fn lasting(mut labels: BTreeMap<String, String>) -> BTreeMap<String, String> {
    labels.retain(|name, _| !OF_A_VERSION.contains(&name.as_str()));
    labels
}

/// Whether somebody stays when this pod goes.
pub async fn has_others(client: &Client, pod: &Key) -> Result<bool, AddressError> {
    Ok(stays(&our_pods(client, pod).await?, &pod.name))
}

fn stays(pods: &[Pod], this: &str) -> bool {
    pods.iter().any(|pod| {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        let has_ended = matches!(phase, Some("Succeeded" | "Failed"));
        pod.metadata.name.as_deref() != Some(this)
            && pod.metadata.deletion_timestamp.is_none()
            && !has_ended
    })
}

/// Nodes that serve: those of pods that run and are ready.
fn nodes_of(pods: &[Pod]) -> BTreeSet<String> {
    let serving = pods.iter().filter(|pod| {
        let status = pod.status.as_ref();
        let conditions = status.and_then(|status| status.conditions.as_ref());
        let mut conditions = conditions.into_iter().flatten();
        status.and_then(|status| status.phase.as_deref()) == Some("Running")
            && conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
    });
    serving.filter_map(|pod| pod.spec.as_ref()?.node_name.clone()).collect()
}

fn of_node(node: &Node, is_internal: bool) -> Option<Address> {
    let all = node.status.as_ref()?.addresses.as_ref()?;
    let first = |kind| {
        let mut all = all.iter().filter(|a| a.type_ == kind && !a.address.is_empty());
        all.next().map(|address| of_text(&address.address))
    };
    let external = if is_internal { None } else { first("ExternalIP") };
    external.or_else(|| first("InternalIP"))
}

/// By its type; what is no address yet is left out.
fn of_service(service: &Service) -> Vec<Address> {
    let Some(spec) = &service.spec else { return Vec::new() };
    let external = spec.external_ips.iter().flatten().map(|ip| of_text(ip));
    let cluster = spec.cluster_ip.iter().filter(|ip| *ip != "None").map(|ip| of_text(ip));
    sorted(match spec.type_.as_deref() {
        Some("ExternalName") => spec.external_name.iter().map(|name| of_text(name)).collect(),
        Some("LoadBalancer") => {
            let status = service.status.as_ref().and_then(|s| s.load_balancer.as_ref());
            let entries = status.and_then(|status| status.ingress.as_ref()).into_iter().flatten();
            let entries = entries.map(|entry| Address {
                hostname: entry.hostname.clone().unwrap_or_default(),
                ip: entry.ip.clone().unwrap_or_default(),
            });
            let mut all: Vec<_> = entries.collect();
            for address in external {
                if !all.iter().any(|known| known.ip == address.ip) {
                    all.push(address);
                }
            }
            all
        }
        Some("NodePort") if spec.external_ips.iter().flatten().next().is_some() => {
            external.collect()
        }
        _ => cluster.collect(),
    })
}

fn of_text(text: &str) -> Address {
    match text.parse::<IpAddr>() {
        Ok(_) => Address { hostname: String::new(), ip: text.into() },
        Err(_) => Address { hostname: text.into(), ip: String::new() },
    }
}

/// As the status has them: by hostname, then by address.
pub fn sorted(addresses: impl IntoIterator<Item = Address>) -> Vec<Address> {
    let is_some = |address: &Address| !address.hostname.is_empty() || !address.ip.is_empty();
    let unique: BTreeSet<Address> = addresses.into_iter().filter(is_some).collect();
    unique.into_iter().collect()
}

/// The addresses of a list, and what is wrong with the others: the API server would refuse all for one.
fn parse(list: &str) -> (Vec<Address>, Vec<String>) {
    let (mut addresses, mut problems) = (Vec::new(), Vec::new());
    for text in list.split(',').map(str::trim).filter(|text| !text.is_empty()) {
        match text.parse::<IpAddr>().is_ok() || is_name(text) {
            true => addresses.push(of_text(text)),
            false => problems.push(format!(
                "--publish-status-address: {text} is neither an IP address nor a DNS name in lower case: it is \
                 left out"
            )),
        }
    }
    (sorted(addresses), problems)
}

/// As the API server wants it; one made of numbers would be a misspelt address.
fn is_name(text: &str) -> bool {
    let is_plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let is_label = |label: &str| {
        let ends = label.bytes().next().zip(label.bytes().last());
        ends.is_some_and(|(first, last)| is_plain(first) && is_plain(last))
            && label.bytes().all(|b| is_plain(b) || b == b'-')
            && label.len() <= 63
    };
    text.len() <= 253
        && text.split('.').all(is_label)
        && text.bytes().any(|b| b.is_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn service(spec: Value, status: Value) -> Vec<String> {
        let service = serde_json::from_value(json!({"spec": spec, "status": status})).unwrap();
        of_service(&service).into_iter().map(|a| format!("{}|{}", a.hostname, a.ip)).collect()
    }

    #[test]
    fn a_service_gives_addresses_by_its_type() {
        let none = json!({});
        let spec = json!({"type": "ExternalName", "externalName": "lb.test"});
        assert_eq!(service(spec, none.clone()), ["lb.test|"]);
        let spec =
            json!({"type": "ClusterIP", "clusterIP": "10.0.0.1", "externalIPs": ["192.0.2.9"]});
        assert_eq!(service(spec, none.clone()), ["|10.0.0.1"]);
        assert_eq!(service(json!({"clusterIP": "10.0.0.1"}), none.clone()), ["|10.0.0.1"]);
        // Headless.
        assert!(
            service(json!({"type": "ClusterIP", "clusterIP": "None"}), none.clone()).is_empty()
        );
        let spec = json!({"type": "NodePort", "clusterIP": "10.0.0.1"});
        assert_eq!(service(spec, none.clone()), ["|10.0.0.1"]);
        let spec = json!({"type": "NodePort", "clusterIP": "10.0.0.1", "externalIPs": ["192.0.2.9", "192.0.2.8"]});
        assert_eq!(service(spec, none.clone()), ["|192.0.2.8", "|192.0.2.9"]);
        let spec = json!({"type": "LoadBalancer", "clusterIP": "10.0.0.1", "externalIPs": ["192.0.2.7", "192.0.2.5"]});
        assert_eq!(service(spec.clone(), none), ["|192.0.2.5", "|192.0.2.7"]);
        let status = json!({"loadBalancer": {"ingress": [
            {"hostname": "b.test", "ip": "192.0.2.1"}, {"ip": "192.0.2.7"}, {"hostname": "a.test"},
        ]}});
        let all = ["|192.0.2.5", "|192.0.2.7", "a.test|", "b.test|192.0.2.1"];
        assert_eq!(service(spec, status), all);
        let waiting = json!({"type": "LoadBalancer", "clusterIP": "10.0.0.1"});
        assert!(service(waiting, json!({"loadBalancer": {}})).is_empty());
    }

    fn pod(name: &str, node: &str, phase: &str, ready: &str) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": name, "labels": {"app": "ingress"}},
            "spec": {"nodeName": node, "containers": []},
            "status": {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]},
        }))
        .unwrap()
    }

    #[test]
    fn nodes_count_while_a_pod_on_them_runs_and_is_ready() {
        let pods = [
            pod("a", "n2", "Running", "True"),
            pod("b", "n1", "Running", "True"),
            pod("c", "n1", "Running", "True"),
            pod("d", "n3", "Running", "False"),
            pod("e", "n4", "Succeeded", "True"),
        ];
        assert_eq!(nodes_of(&pods).into_iter().collect::<Vec<_>>(), ["n1", "n2"]);
    }

    #[test]
    fn a_node_has_its_external_address_unless_the_internal_one_is_wanted() {
        let node = |addresses: Value| -> Node {
            serde_json::from_value(json!({"status": {"addresses": addresses}})).unwrap()
        };
        let both = node(json!([
            {"type": "Hostname", "address": "n1"}, {"type": "InternalIP", "address": "10.0.0.1"},
            {"type": "ExternalIP", "address": "192.0.2.1"}, {"type": "ExternalIP", "address": "192.0.2.2"},
        ]));
        assert_eq!(of_node(&both, false).unwrap().ip, "192.0.2.1");
        assert_eq!(of_node(&both, true).unwrap().ip, "10.0.0.1");
        let inside = node(json!([{"type": "InternalIP", "address": "10.0.0.1"}]));
        assert_eq!(of_node(&inside, false).unwrap().ip, "10.0.0.1");
        assert_eq!(of_node(&node(json!([{"type": "Hostname", "address": "n1"}])), false), None);
    }

    #[test]
    fn who_ends_or_has_ended_does_not_stay() {
        let mut leaving = pod("b", "n1", "Running", "True");
        leaving.metadata.deletion_timestamp =
            serde_json::from_value(json!("2026-01-01T00:00:00Z")).ok();
        let gone = pod("c", "n1", "Failed", "False");
        assert!(!stays(&[pod("a", "n1", "Running", "True"), leaving, gone], "a"));
        assert!(stays(&[pod("d", "", "Pending", "False")], "a"));
    }

    #[test]
    fn another_version_of_a_deployment_counts_too() {
        let labels = ["app", "pod-template-hash", "controller-revision-hash"];
        let labels = labels.map(|name| (name.to_owned(), "x".to_owned())).into();
        assert_eq!(lasting(labels).into_keys().collect::<Vec<_>>(), ["app"]);
    }

    #[test]
    fn a_list_is_sorted_and_what_the_api_server_would_refuse_is_left_out() {
        let (addresses, problems) =
            parse(" b.test,192.0.2.1 ,, a.test,2001:db8::1,b.test,A_b,1.2.3,x..y");
        let texts: Vec<_> = addresses.iter().map(|a| format!("{}{}", a.hostname, a.ip)).collect();
        assert_eq!(texts, ["192.0.2.1", "2001:db8::1", "a.test", "b.test"]);
        assert_eq!(problems.len(), 3, "{problems:?}");
    }
}
