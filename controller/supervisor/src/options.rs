//! What the operator decided, as far as the nginx role depends on it.

use oxigress_core::balancer::destinations;
use oxigress_core::telemetry::metrics::Buckets;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// What the operator decided at start.
#[derive(Clone, Debug)]
pub struct Options {
    /// `--runtime-dir`
    pub runtime_dir: PathBuf,
    /// `--temp-dir`
    pub temp_dir: Option<PathBuf>,
    /// `--nginx-binary`; without it `$NGINX_BINARY`, then a path beside this program.
    pub nginx_binary: Option<PathBuf>,
    /// `--module`; without it a path beside this program.
    pub module: Option<PathBuf>,
    /// `--worker-processes`
    pub worker_processes: usize,
    /// `--zone-size` in bytes.
    pub zone_bytes: u64,
    /// `--zone-size-max` in bytes; without it a quarter of the memory limit.
    pub zone_bytes_max: Option<u64>,
    /// `--journal`
    pub journal: Journal,
    /// The bounds of the histograms, with `--enable-metrics`.
    pub metrics: Option<Buckets>,
    /// `--http-port`
    pub http_port: u16,
    /// `--https-port`
    pub https_port: u16,
    /// `--status-port`
    pub status_port: Option<u16>,
    /// `--ssl-passthrough-proxy-port`, with `--enable-ssl-passthrough`.
    pub ssl_passthrough_port: Option<u16>,
    /// The ports of all listeners, with the flags that name them.
    pub ports: Ports,
    /// `--health-check-path`
    pub health_check_path: String,
    /// Where connections of nginx may lead, but for its own listeners.
    pub destinations: destinations::Settings,
    /// `--shutdown-grace-period`
    pub shutdown_grace_period: Duration,
    /// `--post-shutdown-grace-period`
    pub post_shutdown_grace_period: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            runtime_dir: "/run/oxigress".into(),
            temp_dir: None,
            nginx_binary: None,
            module: None,
            worker_processes: 1,
            zone_bytes: 64 << 20,
            zone_bytes_max: None,
            journal: Journal::Auto,
            metrics: None,
            http_port: 80,
            https_port: 443,
            status_port: None,
            ssl_passthrough_port: None,
            ports: Ports::default(),
            health_check_path: "/healthz".into(),
            destinations: destinations::Settings::default(),
            shutdown_grace_period: Duration::ZERO,
            post_shutdown_grace_period: Duration::ZERO,
        }
    }
}

/// Whether nginx keeps a journal, which holds private keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Journal {
    /// If the runtime folder is memory-backed.
    Auto,
    /// Whatever the runtime folder is.
    On,
    /// The journal is never written.
    Off,
}

/// Ports of listeners, each with the flag that names it.
#[derive(Clone, Debug, Default)]
pub struct Ports {
    /// Those on which nginx listens on every address, for clients and for itself.
    pub nginx: Vec<(u16, &'static str)>,
    /// Those of listeners that no route may reach.
    pub own: Vec<(u16, &'static str)>,
}

impl Ports {
    /// Finds a port that two flags name, and these flags.
    pub fn named_twice(&self) -> Option<(u16, &'static str, &'static str)> {
        let mut named = BTreeMap::new();
        let mut ports = self.all().filter(|(port, _)| *port != 0);
        ports.find_map(|(port, flag)| {
            let first = named.insert(port, flag).filter(|first| *first != flag);
            first.map(|first| (port, first, flag))
        })
    }

    /// Lists every port that a listener takes. One that is nginx's and the program's own comes twice.
    pub fn all(&self) -> impl Iterator<Item = (u16, &'static str)> {
        self.own.iter().chain(&self.nginx).copied()
    }
}
