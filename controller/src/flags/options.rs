//! What each crate of the controller needs of the flags.

use super::{Flags, Journal, Ownership, key_of};
use oxigress_core::balancer::destinations::{self, Destinations};
use oxigress_supervisor as supervisor;
use oxigress_translate::{HostOwnership, Options};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

impl Flags {
    /// What translate needs of them. `local_addresses` are the machine's own.
    pub fn options(&self, local_addresses: BTreeSet<std::net::IpAddr>) -> Options {
        Options {
            ingress_class: self.ingress_class.clone(),
            controller_class: self.controller_class.clone(),
            ingress_class_by_name: self.ingress_class_by_name,
            watch_ingress_without_class: self.watch_ingress_without_class,
            watch_namespace: Some(self.watch_namespace.clone()).filter(|name| !name.is_empty()),
            watch_namespace_selector: self.cluster.namespace_selector().cloned(),
            disable_catch_all: self.disable_catch_all,
            deep_inspect: self.deep_inspect,
            zone: self.cluster.own_zone(),
            node: self.cluster.own_node(),
            annotations_prefix: self.annotations_prefix.clone(),
            disable_full_test: self.cluster.disable_full_test,
            configmap: key_of(&self.configmap),
            default_backend_service: key_of(&self.default_backend_service),
            default_ssl_certificate: key_of(&self.default_ssl_certificate),
            ssl_passthrough: self.enable_ssl_passthrough,
            disable_svc_external_name: self.disable_svc_external_name,
            tcp_services_configmap: key_of(&self.tcp_services_configmap),
            udp_services_configmap: key_of(&self.udp_services_configmap),
            host_ownership: match self.host_ownership {
                Ownership::Shared => HostOwnership::Shared,
                Ownership::Settings => HostOwnership::Settings,
                Ownership::Strict => HostOwnership::Strict,
            },
            regex_per_host: self.regex_per_host,
            gateway_controller_name: self.gateway_controller_name.clone(),
            gateway_addresses: self
                .gateway_addresses
                .iter()
                .flat_map(ipnet::IpNet::hosts)
                .collect(),
            http_port: self.http_port,
            https_port: self.https_port,
            tls_port: self.tls_port(),
            reserved_ports: self.reserved_ports(),
            destinations: self.own_destinations(),
            local_addresses,
        }
    }

    /// What is watched at an API server.
    pub fn provider_options(&self) -> oxigress_provider::kubernetes::Options {
        oxigress_provider::kubernetes::Options {
            watch_namespace: Some(self.watch_namespace.clone()).filter(|name| !name.is_empty()),
            gateway_api: self.gateway_api,
            watches_namespaces: self.cluster.namespace_selector().is_some(),
            configmap: key_of(&self.configmap),
            default_backend_service: key_of(&self.default_backend_service),
            default_ssl_certificate: key_of(&self.default_ssl_certificate),
            tcp_services_configmap: key_of(&self.tcp_services_configmap),
            udp_services_configmap: key_of(&self.udp_services_configmap),
        }
    }

    /// Where connections of nginx may lead, but for its own listeners, which it knows.
    pub fn destinations(&self) -> destinations::Settings {
        destinations::Settings {
            allows_loopback: self.allows_loopback(),
            denied: self.deny_destinations.clone(),
            own_ports: self.own_ports().map(|(port, _)| port).collect(),
        }
    }

    fn allows_loopback(&self) -> bool {
        self.allow_loopback_destinations.unwrap_or(self.manifests.is_some())
    }

    /// The same, with the ports for clients.
    fn own_destinations(&self) -> Destinations {
        let own_ports = self.reserved_ports().into_keys().collect();
        destinations::Settings { own_ports, ..self.destinations() }.destinations()
    }

    /// Ports of listeners that no route may reach, with their flags.
    fn own_ports(&self) -> impl Iterator<Item = (u16, &'static str)> {
        let inside = self.passthrough_port();
        let status = self.status_port.map(|port| (port, "--status-port"));
        let webhook = self.cluster.validating_webhook.0;
        let webhook = webhook.map(|address| (address.port(), "--validating-webhook"));
        let health = (self.healthz_port, "--healthz-port");
        // On loopback, where no route leads, its port is nobody else's on other addresses.
        let is_reached = |ip: IpAddr| !ip.is_loopback() || self.allows_loopback();
        let dashboard = self.dashboard_address.0.filter(|address| is_reached(address.ip()));
        let dashboard = dashboard.map(|address| (address.port(), "--dashboard-address"));
        inside.into_iter().chain(status).chain(webhook).chain(dashboard).chain([health])
    }

    fn client_ports(&self) -> [(u16, &'static str); 2] {
        [(self.http_port, "--http-port"), (self.https_port, "--https-port")]
    }

    /// The port of nginx on which requests over TLS arrive.
    pub fn tls_port(&self) -> u16 {
        self.passthrough_port().map_or(self.https_port, |(port, _)| port)
    }

    fn passthrough_port(&self) -> Option<(u16, &'static str)> {
        let inside = (self.ssl_passthrough_proxy_port, "--ssl-passthrough-proxy-port");
        self.enable_ssl_passthrough.then_some(inside)
    }

    /// What the nginx role needs of them. The buckets were parsed with their bounds, so they are good.
    pub fn supervisor_options(&self) -> supervisor::Options {
        supervisor::Options {
            runtime_dir: self.runtime_dir.clone(),
            temp_dir: self.temp_dir.clone(),
            nginx_binary: self.nginx_binary.clone(),
            module: self.module.clone(),
            worker_processes: self.worker_processes.0,
            zone_bytes: self.zone_size.0,
            zone_bytes_max: self.zone_size_max.0,
            journal: match self.journal {
                Journal::Auto => supervisor::Journal::Auto,
                Journal::On => supervisor::Journal::On,
                Journal::Off => supervisor::Journal::Off,
            },
            metrics: self.metrics.buckets().ok().filter(|_| self.metrics.enable_metrics),
            http_port: self.http_port,
            https_port: self.https_port,
            status_port: self.status_port,
            ssl_passthrough_port: self.passthrough_port().map(|(port, _)| port),
            ports: supervisor::Ports {
                nginx: self.nginx_ports().collect(),
                own: self.own_ports().collect(),
            },
            health_check_path: self.health_check_path.clone(),
            destinations: self.destinations(),
            shutdown_grace_period: self.cluster.shutdown_grace_period(),
            post_shutdown_grace_period: Duration::from_secs(
                self.cluster.post_shutdown_grace_period,
            ),
        }
    }

    /// Ports on which nginx listens for clients, and for itself, on every address, with their flags.
    fn nginx_ports(&self) -> impl Iterator<Item = (u16, &'static str)> {
        self.client_ports().into_iter().chain(self.passthrough_port())
    }

    /// Every port that a listener takes, with its flag.
    fn all_ports(&self) -> impl Iterator<Item = (u16, &'static str)> {
        self.own_ports().chain(self.client_ports())
    }

    /// The ports that the program itself listens on, each with the flag that says so.
    fn reserved_ports(&self) -> BTreeMap<u16, &'static str> {
        self.all_ports().collect()
    }
}
