//! What the operator decided, as far as translate depends on it.

use crate::host::owner::HostOwnership;
use kube::core::Selector;
use oxigress_core::balancer::destinations::Destinations;
use oxigress_objects::Key;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// What annotations begin with, unless the operator decided otherwise.
pub const DEFAULT_PREFIX: &str = "nginx.ingress.kubernetes.io";

/// What the operator decided at start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The value of `--ingress-class`.
    pub ingress_class: String,
    /// The value of `--controller-class`.
    pub controller_class: String,
    /// The value of `--ingress-class-by-name`.
    pub ingress_class_by_name: bool,
    /// The value of `--watch-ingress-without-class`.
    pub watch_ingress_without_class: bool,
    /// The value of `--watch-namespace`.
    pub watch_namespace: Option<String>,
    /// The value of `--watch-namespace-selector`.
    pub watch_namespace_selector: Option<Selector>,
    /// The value of `--disable-catch-all`.
    pub disable_catch_all: bool,
    /// The value of `--deep-inspect`.
    pub deep_inspect: bool,
    /// This node's zone, with `--enable-topology-aware-routing`.
    pub zone: Option<String>,
    /// The node that this controller runs on, for the same reason.
    pub node: Option<String>,
    /// The value of `--annotations-prefix`.
    pub annotations_prefix: String,
    /// The value of `--disable-full-test`.
    pub disable_full_test: bool,
    /// The value of `--configmap`.
    pub configmap: Option<Key>,
    /// The value of `--default-backend-service`.
    pub default_backend_service: Option<Key>,
    /// The value of `--default-ssl-certificate`.
    pub default_ssl_certificate: Option<Key>,
    /// The value of `--enable-ssl-passthrough`.
    pub ssl_passthrough: bool,
    /// The value of `--tcp-services-configmap`.
    pub tcp_services_configmap: Option<Key>,
    /// The value of `--udp-services-configmap`.
    pub udp_services_configmap: Option<Key>,
    /// The modes of `--host-ownership`: what other namespaces than a host's owner may say about it.
    pub host_ownership: HostOwnership,
    /// The value of `--regex-per-host`.
    pub regex_per_host: bool,
    /// The value of `--gateway-controller-name`.
    pub gateway_controller_name: String,
    /// The value of `--gateway-addresses`, each address.
    pub gateway_addresses: BTreeSet<IpAddr>,
    /// The value of `--http-port`.
    pub http_port: u16,
    /// The value of `--https-port`.
    pub https_port: u16,
    /// The port of nginx on which requests over TLS arrive: another one where TLS is passed through.
    pub tls_port: u16,
    /// Ports of nginx and of this program, each with the flag that says so.
    pub reserved_ports: BTreeMap<u16, &'static str>,
    /// The value of `--disable-svc-external-name`.
    pub disable_svc_external_name: bool,
    /// Where endpoints may not lead, the listeners of this program included.
    pub destinations: Destinations,
    /// Addresses of this machine besides loopback.
    pub local_addresses: BTreeSet<IpAddr>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            ingress_class: "nginx".into(),
            controller_class: "k8s.io/ingress-nginx".into(),
            ingress_class_by_name: false,
            watch_ingress_without_class: false,
            watch_namespace: None,
            watch_namespace_selector: None,
            disable_catch_all: false,
            deep_inspect: true,
            zone: None,
            node: None,
            annotations_prefix: DEFAULT_PREFIX.into(),
            disable_full_test: false,
            configmap: None,
            default_backend_service: None,
            default_ssl_certificate: None,
            ssl_passthrough: false,
            tcp_services_configmap: None,
            udp_services_configmap: None,
            host_ownership: HostOwnership::Settings,
            regex_per_host: false,
            gateway_controller_name: oxigress_objects::gateway::CONTROLLER.into(),
            gateway_addresses: BTreeSet::new(),
            http_port: 80,
            https_port: 443,
            tls_port: 443,
            reserved_ports: BTreeMap::new(),
            disable_svc_external_name: false,
            destinations: Destinations::default(),
            local_addresses: BTreeSet::new(),
        }
    }
}
