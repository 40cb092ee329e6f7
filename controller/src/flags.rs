//! The command line: ingress-nginx's names and meanings, and a few of our own.
//!
//! Source:  ingress-nginx's controller. [`accepted`] holds the flags that have no effect yet.

pub mod accepted;
mod arguments;
pub mod cluster;
pub mod help;
pub mod input;
pub mod metrics;
pub mod migrate;
mod options;
mod selector;

use crate::check;
use crate::command::Tool;
pub use arguments::arguments;

use accepted::Accepted;
use clap::builder::RangedI64ValueParser;
use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
use cluster::ClusterFlags;
use ipnet::IpNet;
use metrics::MetricsFlags;
use oxigress_objects::Key;
use oxigress_settings::grammar::parse_bool;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

/// Serves Kubernetes Ingress with stock nginx and one Rust module, without reloads.
#[derive(Debug, Parser)]
#[command(name = "oxigress", args_conflicts_with_subcommands = true, disable_version_flag = true)]
pub struct Cli {
    /// One role alone, or a tool. Without one, both roles run.
    #[command(subcommand)]
    pub command: Option<Command>,
    #[command(flatten)]
    #[allow(missing_docs, reason = "clap would show it")]
    pub flags: Flags,
}

#[derive(Debug, Subcommand)]
#[allow(missing_docs, reason = "clap shows the texts below")]
pub enum Command {
    /// Watch the API server or manifests, and publish them to nginx
    Controller(Box<Flags>),
    /// Start nginx and keep it running
    Nginx(Box<Flags>),
    /// Print what becomes of manifests or of a cluster's objects: served as before, differently, or not
    ///
    /// It needs no running program, writes nothing, and takes the controller's flags. It exits with 0 if everything is
    /// served, with 1 if something is not or cannot be read, and with 2 if the command line is wrong.
    #[command(
        override_usage = "oxigress check [OPTIONS] <FILE|DIR|->...\n       oxigress check [OPTIONS] --cluster"
    )]
    Check {
        #[command(flatten)]
        arguments: check::Arguments,
        #[command(flatten)]
        flags: Box<Flags>,
    },
    /// Print the objects of the Gateway API that mean what Ingresses mean
    ///
    /// Standard error gets what these objects cannot express, or do differently. It needs no running program, writes
    /// nothing, and takes the controller's flags. It exits with 0 if nothing is missing, with 1 if something is.
    #[command(
        override_usage = "oxigress migrate [OPTIONS] <FILE|DIR|->...\n       oxigress migrate [OPTIONS] --cluster"
    )]
    Migrate {
        #[command(flatten)]
        arguments: migrate::Arguments,
        #[command(flatten)]
        flags: Box<Flags>,
    },
    #[command(flatten)]
    Tool(Tool),
    /// Answer each request with what it was: a sample endpoint
    ///
    /// For example `oxigress echo --listen 127.0.0.1:9001 --name web`, with an EndpointSlice that names 127.0.0.1 and 9001.
    Echo {
        /// Address and port to listen on, such as 127.0.0.1:9001
        #[arg(long, value_name = "ADDRESS")]
        listen: SocketAddr,
        /// Name that each answer has
        #[arg(long)]
        name: String,
    },
}

impl Cli {
    /// The flags, wherever they stand.
    pub fn flags(&self) -> Flags {
        match &self.command {
            Some(Command::Controller(flags) | Command::Nginx(flags)) => flags.as_ref().clone(),
            Some(Command::Check { flags, .. } | Command::Migrate { flags, .. }) => {
                flags.as_ref().clone()
            }
            Some(Command::Tool(Tool::Explain(question))) => question.flags.clone(),
            Some(Command::Tool(Tool::Compare(comparison))) => comparison.flags.clone(),
            Some(Command::Tool(_) | Command::Echo { .. }) | None => self.flags.clone(),
        }
    }
}

/// The flags of the command line.
#[derive(Args, Clone, Debug)]
pub struct Flags {
    /// Serve a folder of manifests in place of a cluster: *.yaml, *.yml, *.json
    ///
    /// Subfolders are read too. What is saved is served. The folder needs an IngressClass, and an EndpointSlice for
    /// each Service.
    #[arg(long, value_name = "DIR")]
    pub manifests: Option<PathBuf>,
    /// Connect to endpoints on loopback addresses; by default only with --manifests
    #[arg(long, value_name = "BOOLEAN", default_missing_value = "true", num_args = 0..=1,
          require_equals = true, value_parser = boolean)]
    pub allow_loopback_destinations: Option<bool>,
    /// Networks that no endpoint, auth server or mirror may be in, separated by commas
    #[arg(long, value_name = "NETWORKS", value_delimiter = ',', value_parser = network)]
    pub deny_destinations: Vec<IpNet>,
    /// Folder for sockets, the pid file and the rendered nginx.conf
    ///
    /// All other output goes to --temp-dir, standard output, and log files that the ConfigMap names below /var/log.
    #[arg(long, value_name = "DIR", default_value = "/run/oxigress")]
    pub runtime_dir: PathBuf,
    /// Folder for requests and responses that nginx buffers; by default the runtime folder
    ///
    /// On a file system of its own, clients cannot fill the runtime folder with what they send.
    #[arg(long, value_name = "DIR")]
    pub temp_dir: Option<PathBuf>,
    /// Worker processes of nginx, 1 to 512; auto: one for each CPU that the container may use
    #[arg(long, value_name = "N", default_value = "auto", value_parser = worker_processes)]
    pub worker_processes: WorkerProcesses,
    /// Shared memory for routes, endpoints and certificates, 1m to 1024g
    #[arg(long, value_name = "SIZE", default_value = "64m", value_parser = zone_size)]
    pub zone_size: ZoneSize,
    /// Size to which the shared memory grows when it lacks room; auto: a quarter of the memory limit
    ///
    /// Each growth is one reload of nginx that loses no request.
    #[arg(long, value_name = "SIZE", default_value = "auto", value_parser = zone_size_max)]
    pub zone_size_max: ZoneSizeMax,
    /// Most bytes of shared memory for the objects of one namespace; 0: no limit
    ///
    /// Objects beyond it are withheld: their paths answer 503. Without a limit namespaces share the memory. When it is
    /// full, the newest objects of the largest namespace wait.
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = namespace_bytes_max)]
    pub namespace_bytes_max: NamespaceBytesMax,
    /// Keep a file from which a restarted nginx serves at once; auto: if the runtime folder is memory-backed
    ///
    /// The file stands in the runtime folder and holds private keys.
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub journal: Journal,
    /// nginx; by default $NGINX_BINARY, then ../sbin/nginx beside this program
    #[arg(long, value_name = "FILE")]
    pub nginx_binary: Option<PathBuf>,
    /// The nginx module; by default ../modules/ngx_ingress_module.so beside this program
    #[arg(long, value_name = "FILE")]
    pub module: Option<PathBuf>,

    /// Port for HTTP
    #[arg(long, value_name = "PORT", default_value_t = 80, value_parser = port())]
    pub http_port: u16,
    /// Port for HTTPS
    #[arg(long, value_name = "PORT", default_value_t = 443, value_parser = port())]
    pub https_port: u16,
    /// Loopback port that serves the configuration endpoint too, at /configuration
    ///
    /// Any local process may then change what is served.
    #[arg(long, value_name = "PORT", value_parser = port())]
    pub status_port: Option<u16>,
    /// Port for health checks and metrics
    #[arg(long, value_name = "PORT", default_value_t = 10254, value_parser = port())]
    pub healthz_port: u16,
    /// Address for health checks and metrics; by default all addresses
    #[arg(long, value_name = "ADDRESS", default_value = "")]
    pub healthz_host: String,
    /// Address of the dashboard, a page about what is served; off: none
    ///
    /// An address other than loopback requires --dashboard-token-file.
    #[arg(long, value_name = "ADDRESS", default_value = DASHBOARD, value_parser = dashboard_address)]
    pub dashboard_address: DashboardAddress,
    /// File with the token that readers of the dashboard send as `Authorization: Bearer TOKEN`
    #[arg(long, value_name = "FILE")]
    pub dashboard_token_file: Option<PathBuf>,
    /// Path of health checks, also on the HTTP and HTTPS ports
    #[arg(long, value_name = "PATH", default_value = "/healthz", value_parser = url_path)]
    pub health_check_path: String,

    /// Also serve the Gateway API from the API server; a folder's objects are always served
    ///
    /// The CustomResourceDefinitions may be installed later.
    #[arg(long, default_value = "false", default_missing_value = "true", num_args = 0..=1,
          require_equals = true, value_parser = boolean, action = ArgAction::Set)]
    pub gateway_api: bool,
    /// Serve Gateways of GatewayClasses with this controller name
    #[arg(long, value_name = "NAME", default_value = oxigress_objects::gateway::CONTROLLER)]
    pub gateway_controller_name: String,
    /// Addresses of this machine to give to Gateways, one each
    ///
    /// Networks have at most 1024 addresses. A Gateway that gets none is served on all other addresses.
    #[arg(long, value_name = "ADDRESSES", value_delimiter = ',', value_parser = small_network)]
    pub gateway_addresses: Vec<IpNet>,
    /// Serve Ingresses whose annotation kubernetes.io/ingress.class has this value
    #[arg(long, value_name = "NAME", default_value = "nginx")]
    pub ingress_class: String,
    /// Serve IngressClasses whose spec.controller has this value
    #[arg(long, value_name = "NAME", default_value = "k8s.io/ingress-nginx")]
    pub controller_class: String,
    /// Serve the IngressClass that --ingress-class names, whatever its spec.controller
    #[arg(long, default_value = "false", default_missing_value = "true", num_args = 0..=1,
          require_equals = true, value_parser = boolean, action = ArgAction::Set)]
    pub ingress_class_by_name: bool,
    /// Serve Ingresses that name no class
    #[arg(long, default_value = "false", default_missing_value = "true", num_args = 0..=1,
          require_equals = true, value_parser = boolean, action = ArgAction::Set)]
    pub watch_ingress_without_class: bool,
    /// Serve Ingresses of this namespace only; by default those of all
    ///
    /// Of other namespaces only the objects that flags name are read.
    #[arg(long, value_name = "NAMESPACE", default_value = "")]
    pub watch_namespace: String,
    /// Ignore Ingresses with spec.defaultBackend
    #[arg(long, default_value = "false", default_missing_value = "true", num_args = 0..=1,
          require_equals = true, value_parser = boolean, action = ArgAction::Set)]
    pub disable_catch_all: bool,
    /// Refuse Ingresses whose texts look like attacks on nginx.conf
    #[arg(long, default_value = "true", default_missing_value = "true", num_args = 0..=1,
          require_equals = true, value_parser = boolean, action = ArgAction::Set)]
    pub deep_inspect: bool,
    /// Prefix of the annotations that are read
    #[arg(long, value_name = "PREFIX", default_value = "nginx.ingress.kubernetes.io")]
    pub annotations_prefix: String,
    /// ConfigMap with global settings
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = optional_key)]
    pub configmap: Option<MaybeKey>,
    /// Service for requests that no Ingress takes; by default they get 404
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = optional_key)]
    pub default_backend_service: Option<MaybeKey>,
    /// Honour the annotation ssl-passthrough
    #[arg(long, default_value = "false", default_missing_value = "true", num_args = 0..=1,
          require_equals = true, value_parser = boolean, action = ArgAction::Set)]
    pub enable_ssl_passthrough: bool,
    /// Loopback port inside nginx for TLS that is not passed through
    #[arg(long, value_name = "PORT", default_value_t = 442, value_parser = port())]
    pub ssl_passthrough_proxy_port: u16,
    /// ConfigMap with TCP ports: NAMESPACE/SERVICE:PORT[:PROXY[:PROXY]] for each
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = optional_key)]
    pub tcp_services_configmap: Option<MaybeKey>,
    /// ConfigMap with UDP ports: NAMESPACE/SERVICE:PORT for each
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = optional_key)]
    pub udp_services_configmap: Option<MaybeKey>,
    /// Secret with the certificate for names that have none; by default self-signed
    ///
    /// It serves HTTPS for every name. Plain HTTP is redirected to HTTPS only for hosts that an Ingress lists in spec.tls,
    /// also without a secretName, which then have this certificate.
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = optional_key)]
    pub default_ssl_certificate: Option<MaybeKey>,

    #[command(flatten)]
    #[allow(missing_docs, reason = "clap would show it")]
    pub metrics: MetricsFlags,
    #[command(flatten)]
    #[allow(missing_docs, reason = "clap would show it")]
    pub cluster: ClusterFlags,
    /// Answer 503 where an Ingress leads to a Service of type ExternalName
    #[arg(long, default_value = "false", default_missing_value = "true", num_args = 0..=1,
          require_equals = true, value_parser = boolean, action = ArgAction::Set)]
    pub disable_svc_external_name: bool,
    /// What namespaces may do with a host of another one: the oldest Ingress or route makes the owner
    #[arg(long, value_name = "MODE", default_value = "settings")]
    pub host_ownership: Ownership,
    /// use-regex or rewrite-target turns all paths of the host into regular expressions
    ///
    /// As in ingress-nginx. By default only the paths of that Ingress become regular expressions.
    #[arg(long, default_value = "false", default_missing_value = "true", num_args = 0..=1,
          require_equals = true, value_parser = boolean, action = ArgAction::Set)]
    pub regex_per_host: bool,
    /// Name servers and search domains for Services of type ExternalName
    ///
    /// The file is read again when it changes.
    #[arg(long, value_name = "FILE", default_value = "/etc/resolv.conf")]
    pub resolv_conf: PathBuf,

    /// Print the version
    #[arg(long, default_value = "false", default_missing_value = "true", num_args = 0..=1,
          require_equals = true, value_parser = boolean, action = ArgAction::Set)]
    pub version: bool,
    /// Log more: 2 adds reasons, 5 everything
    #[arg(short = 'v', long = "v", value_name = "LEVEL", default_value_t = 0)]
    pub verbosity: u8,
    #[command(flatten)]
    #[allow(missing_docs, reason = "clap would show it")]
    pub accepted: Accepted,
}

/// Whether there is a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs, reason = "clap would show it")]
pub enum Journal {
    Auto,
    On,
    Off,
}

/// The values of --host-ownership, which [`HostOwnership`](oxigress_translate::HostOwnership) explains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Ownership {
    /// Every namespace may set everything, as in ingress-nginx
    Shared,
    /// Every namespace may add paths; settings of the host are its owner's
    Settings,
    /// Paths of other namespaces are refused too
    Strict,
}

/// A number of worker processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerProcesses(pub usize);

/// A key, or nothing for the empty text, which turns a flag off in the reference's charts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MaybeKey(Option<Key>);

fn key_of(flag: &Option<MaybeKey>) -> Option<Key> {
    flag.as_ref().and_then(|key| key.0.clone())
}

impl Flags {
    /// The flags as they hold for a folder of manifests, also where it is not named by `--manifests`.
    pub fn of_folder(&self, folder: Option<&Path>) -> Self {
        let manifests = folder.map(Path::to_owned).or_else(|| self.manifests.clone());
        Flags { manifests, ..self.clone() }
    }

    /// The folder of manifests; none: the objects of a cluster are served. Flags that exclude each other are an error.
    pub fn folder(&self) -> anyhow::Result<Option<&PathBuf>> {
        if !self.watch_namespace.is_empty() && self.cluster.namespace_selector().is_some() {
            anyhow::bail!(
                "--watch-namespace and --watch-namespace-selector exclude each other: give one of them"
            );
        }
        let Some(folder) = &self.manifests else { return Ok(None) };
        let cluster = [
            ("--kubeconfig", cluster::path_of(&self.cluster.kubeconfig).is_some()),
            ("--apiserver-host", !self.cluster.apiserver_host.is_empty()),
        ];
        if let Some((flag, _)) = cluster.into_iter().find(|(_, is_given)| *is_given) {
            anyhow::bail!(
                "--manifests and {flag} name two sources: leave out {flag} to serve the folder, or \
                 --manifests to serve the cluster"
            );
        }
        Ok(Some(folder))
    }
}

/// Name and version, as `--version` prints it, and which nginx it was shipped with.
pub fn version() -> String {
    let own = format!("oxigress {}", env!("CARGO_PKG_VERSION"));
    // Where `make build` leaves it, and the image.
    let beside = std::env::current_exe().ok().and_then(|own| Some(own.parent()?.join("../NGINX")));
    let shipped = beside.into_iter().chain([PathBuf::from("/usr/share/doc/oxigress/NGINX")]);
    let nginx = shipped.filter_map(|file| std::fs::read_to_string(file).ok()).next();
    match nginx.as_deref().and_then(|text| text.lines().next()) {
        Some(nginx) => format!("{own}\n{nginx}"),
        None => own,
    }
}

/// Port 0 would be another one at each start.
fn port() -> RangedI64ValueParser<u16> {
    clap::value_parser!(u16).range(1..)
}

fn network(text: &str) -> Result<IpNet, String> {
    let network = text.parse().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
    network.map_err(|_| "write networks such as 10.0.0.0/8 or fd00::/8".into())
}

fn small_network(text: &str) -> Result<IpNet, String> {
    let network = network(text)?;
    match network.max_prefix_len() - network.prefix_len() {
        0..=10 => Ok(network),
        _ => Err("write addresses, or networks of at most 1024 of them".into()),
    }
}

/// Where the dashboard listens if nobody says.
pub const DASHBOARD: &str = "127.0.0.1:10253";

/// Where the dashboard listens; none: nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DashboardAddress(pub Option<SocketAddr>);

fn dashboard_address(text: &str) -> Result<DashboardAddress, String> {
    match text {
        "off" => Ok(DashboardAddress(None)),
        _ => text
            .parse()
            .map(|address| DashboardAddress(Some(address)))
            .map_err(|_| format!("write an address with a port, such as {DASHBOARD}, or off")),
    }
}

fn boolean(text: &str) -> Result<bool, String> {
    parse_bool(text).ok_or_else(|| "write true or false".into())
}

fn optional_key(text: &str) -> Result<MaybeKey, String> {
    match text {
        "" => Ok(MaybeKey(None)),
        text => match Key::parse(text) {
            Some(key) => Ok(MaybeKey(Some(key))),
            None => Err("write NAMESPACE/NAME".into()),
        },
    }
}

fn worker_processes(text: &str) -> Result<WorkerProcesses, String> {
    let cpus = || std::thread::available_parallelism().map_or(1, usize::from);
    match text.parse() {
        _ if text == "auto" => Ok(WorkerProcesses(cpus())),
        Ok(number @ 1..=512) => Ok(WorkerProcesses(number)),
        _ => Err("write auto or a number from 1 to 512".into()),
    }
}

/// A number of bytes of shared memory, such as `64m`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneSize(pub u64);

/// Most bytes of shared memory; `None`: the memory limit decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneSizeMax(pub Option<u64>);

/// Most bytes of shared memory for one namespace; 0: any number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamespaceBytesMax(pub u64);

fn namespace_bytes_max(text: &str) -> Result<NamespaceBytesMax, String> {
    match text {
        "0" => Ok(NamespaceBytesMax(0)),
        _ => zone_size(text).map(|size| NamespaceBytesMax(size.0)).map_err(|error| {
            format!("write 0 for no limit, or {}", error.trim_start_matches("write "))
        }),
    }
}

fn zone_size(text: &str) -> Result<ZoneSize, String> {
    let (digits, unit) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 1 << 10),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 1 << 20),
        Some(b'g' | b'G') => (&text[..text.len() - 1], 1 << 30),
        _ => (text, 1),
    };
    let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    let bytes = digits.parse::<u64>().ok().and_then(|n| n.checked_mul(unit));
    match bytes.filter(|_| is_number) {
        Some(bytes) if (1 << 20..=1 << 40).contains(&bytes) => Ok(ZoneSize(bytes)),
        _ => Err("write a size from 1m to 1024g, such as 64m".into()),
    }
}

fn zone_size_max(text: &str) -> Result<ZoneSizeMax, String> {
    match text {
        "auto" => Ok(ZoneSizeMax(None)),
        _ => zone_size(text).map(|size| ZoneSizeMax(Some(size.0))),
    }
}

/// A path that can stand in nginx.conf.
fn url_path(text: &str) -> Result<String, String> {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"/-_.".contains(&b);
    match text.starts_with('/') && text.bytes().all(is_plain) {
        true => Ok(text.into()),
        false => Err("write a path of letters, digits, `-`, `_`, `.` and `/`".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<Flags, clap::Error> {
        Cli::try_parse_from([&["oxigress"], arguments].concat()).map(|cli| cli.flags())
    }

    #[test]
    fn booleans_are_written_as_go_writes_them() {
        assert!(parse(&["--disable-catch-all"]).unwrap().disable_catch_all);
        assert!(!parse(&["--deep-inspect=false"]).unwrap().deep_inspect);
        assert!(parse(&["--deep-inspect=maybe"]).is_err());
    }

    #[test]
    fn flags_stand_with_and_without_a_role() {
        assert_eq!(parse(&["--http-port=8080"]).unwrap().http_port, 8080);
        assert_eq!(parse(&["nginx", "--http-port", "8080"]).unwrap().http_port, 8080);
        assert_eq!(parse(&["-v=5", "--v=3"]).map(|f| f.verbosity).ok(), None);
        assert_eq!(parse(&["-v=5"]).unwrap().verbosity, 5);
    }

    #[test]
    fn port_0_is_refused_and_the_flag_is_named() {
        for flag in ["--http-port", "--https-port", "--status-port", "--healthz-port"] {
            let error = parse(&[flag, "0"]).unwrap_err().to_string();
            assert!(error.contains(flag), "{error}");
            assert!(parse(&[flag, "65536"]).is_err() && parse(&[flag, "65535"]).is_ok(), "{flag}");
        }
    }

    #[test]
    fn every_flag_of_the_reference_is_accepted() {
        let flags = parse(&[
            "--profiling=false",
            "--sync-period=1h",
            "--metrics-per-undefined-host",
            "--publish-service=",
            "--default-backend-service=",
            "--configmap=a/b",
        ])
        .unwrap();
        assert_eq!(flags.accepted.given().len(), 3);
        assert_eq!(flags.options(Default::default()).configmap, Some(Key::new("a", "b")));
    }

    #[test]
    fn a_folder_or_a_cluster_is_served_and_not_both() {
        assert_eq!(parse(&[]).unwrap().folder().unwrap(), None);
        assert!(parse(&["--manifests=a", "--kubeconfig="]).unwrap().folder().unwrap().is_some());
        for flags in [
            &["--manifests=a", "--kubeconfig=b"],
            &["--manifests=a", "--apiserver-host=b"],
            &["--watch-namespace=a", "--watch-namespace-selector=b"],
        ] {
            let error = parse(flags).unwrap().folder().unwrap_err().to_string();
            let [first, second] = flags.map(|flag| flag.split('=').next().unwrap());
            assert!(error.contains(first) && error.contains(second), "{error}");
        }
    }

    #[test]
    fn a_size_is_bounded_and_becomes_kilobytes() {
        assert_eq!(zone_size("64m").unwrap(), ZoneSize(64 << 20));
        assert_eq!(namespace_bytes_max("0").unwrap(), NamespaceBytesMax(0));
        assert_eq!(namespace_bytes_max("8m").unwrap(), NamespaceBytesMax(8 << 20));
        assert!(namespace_bytes_max("1").unwrap_err().contains("0 for no limit"));
        for text in ["64", "m", "-1m", "99999999999999999999g", "1m;"] {
            assert!(zone_size(text).is_err(), "{text}");
        }
    }
}
