//! What a block has around it: endpoints, certificates, nginx or a controller.

use super::parse::{Block, Section};
use crate::certificate::Certificate;
use crate::client::{Address, Connection, Response};
use crate::cluster::{Cluster, Tenant};
use crate::controller::Controller;
use crate::endpoint::{Behaviour, Endpoint};
use crate::nginx::{self, BAD_IN_ERROR_LOG, Configuration, Nginx};
use crate::place::Directory;
use crate::site::{Plan, Site};
use crate::variables::Variables;
use crate::{dist, network, wait};
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use tokio::task::JoinHandle;

use super::short::{self, Line, Url};

/// Sections that set the block up, wherever they stand.
pub const SECTIONS: &[&str] = &[
    "allow_error_log",
    "annotations",
    "backends",
    "certificates",
    "config",
    "configuration_config",
    "controller_flags",
    "endpoints",
    "http_config",
    "location_config",
    "main_config",
    "snapshot",
    "stock",
    "workers",
    "zone_size",
];

/// A block that connects as another user: only root can.
pub fn needs_root(block: &Block) -> bool {
    block.sections.iter().any(|section| section.arguments.starts_with("as "))
}

/// A block whose objects are in an API server.
fn needs_cluster(block: &Block) -> bool {
    block.sections.iter().any(|section| section.name == "kubernetes")
}

pub struct Setup {
    texts: BTreeMap<String, String>,
    endpoints: Vec<(String, String)>,
    backends: BTreeMap<String, Vec<String>>,
    certificates: Vec<(String, Vec<String>)>,
    annotations: Vec<(String, String)>,
    workers: usize,
    has_controller: bool,
    has_cluster: bool,
}

impl Setup {
    /// Reads them; endpoints that the rules of `--- ingress` name need no line of their own.
    pub fn read(block: &Block) -> Result<Self> {
        let mut setup = Setup {
            texts: BTreeMap::new(),
            endpoints: Vec::new(),
            backends: BTreeMap::new(),
            certificates: Vec::new(),
            annotations: Vec::new(),
            workers: 1,
            has_controller: false,
            has_cluster: needs_cluster(block),
        };
        for Section { name, arguments, value, line } in &block.sections {
            match name.as_str() {
                "annotations" => setup.annotations.push((arguments.clone(), value.clone())),
                "endpoints" => setup.endpoints.extend(pairs(value)?),
                "backends" => {
                    for (name, list) in pairs(value)? {
                        let list = list.split_whitespace().map(str::to_owned).collect();
                        setup.backends.insert(name, list);
                    }
                }
                "certificates" => {
                    for (name, hosts) in pairs(value)? {
                        let hosts = hosts.split_whitespace().map(str::to_owned).collect();
                        setup.certificates.push((name, hosts));
                    }
                }
                "workers" => setup.workers = value.parse().context("--- workers: a number")?,
                "manifests" => setup.has_controller = true,
                name if SECTIONS.contains(&name) => {
                    let is_first = setup.texts.insert(name.into(), value.clone()).is_none();
                    ensure!(is_first, "line {line}: a second --- {name}");
                }
                _ => {}
            }
        }
        let rules = block.sections.iter().filter(|section| section.name == "ingress");
        for rule in rules.map(|section| short::rules(&section.value)) {
            for name in rule?.into_iter().filter_map(|rule| rule.backend) {
                let is_known = setup.backends.contains_key(&name)
                    || setup.endpoints.iter().any(|(known, _)| *known == name);
                if !is_known {
                    setup.endpoints.push((name, String::new()));
                }
            }
        }
        Ok(setup)
    }
}

impl Setup {
    /// Starts the endpoints and makes the certificates. An API server takes no address of loopback: for a cluster the
    /// endpoints have addresses of pods.
    pub fn variables(&self, is_on_cluster: bool) -> Result<Variables> {
        let mut variables = Variables::default();
        for (name, behaviour) in &self.endpoints {
            let (behaviour, is_ipv6) = match behaviour.strip_prefix("ipv6") {
                Some(rest) => (rest, true),
                None => (behaviour.as_str(), false),
            };
            let behaviour = Behaviour::parse(behaviour)?;
            let ip: IpAddr = match (is_ipv6, is_on_cluster) {
                (true, true) => network::pod_address_v6().into(),
                (true, false) => Ipv6Addr::LOCALHOST.into(),
                (false, true) => network::pod_address().into(),
                (false, false) => Ipv4Addr::LOCALHOST.into(),
            };
            let endpoint = Endpoint::with(name, behaviour, ip)?;
            variables.endpoints.insert(name.clone(), endpoint);
        }
        for (name, hosts) in &self.certificates {
            let hosts: Vec<_> = hosts.iter().map(String::as_str).collect();
            variables.certificates.insert(name.clone(), Certificate::new(name, &hosts)?);
        }
        variables.annotations = self.annotations.clone();
        Ok(variables)
    }
}

/// Lines `name` or `name: value`.
pub fn pairs(text: &str) -> Result<Vec<(String, String)>> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines
        .map(|line| {
            let (name, value) = line.split_once(':').unwrap_or((line, ""));
            ensure!(!name.trim().is_empty(), "`{line}`: needs a name");
            Ok((name.trim().to_owned(), value.trim().to_owned()))
        })
        .collect()
}

pub enum Server {
    Nginx(Box<Nginx>),
    /// A controller and its nginx.
    Controller(Box<Controller>),
}

pub struct Fixture {
    pub variables: Variables,
    pub server: Server,
    /// Where the objects of `--- kubernetes` are.
    pub tenant: Option<Tenant<'static>>,
    pub configuration: Configuration,
    /// The last `epoch.generation` that a write was answered with.
    pub tag: Option<String>,
    /// Kept alive from request to request of `--- requests`.
    pub connections: BTreeMap<String, Connection>,
    pub backends: BTreeMap<String, Vec<String>>,
    /// What `--- ingress` puts beside its rules: JSON of tables of a snapshot.
    pub snapshot: String,
    /// Endpoints that a line of requests gave a name, `@x`.
    pub named: BTreeMap<String, String>,
    /// Requests of `--- held` without an answer yet.
    pub held: Vec<(Line, Vec<JoinHandle<Result<Response>>>)>,
    /// Workers at the start, or after the last action that is meant to replace them.
    pub worker_pids: Vec<u32>,
    http_port: u16,
    https_port: u16,
    allowed_in_log: Vec<String>,
}

impl Fixture {
    /// Starts what the block needs.
    pub fn start(setup: &Setup, directory: &Directory) -> Result<Self> {
        // First, since all that is started from here on is to live in the network of its pods.
        let tenant = match setup.has_cluster {
            true => Some(Cluster::shared()?.tenant("block")?),
            false => None,
        };
        let variables = setup.variables(tenant.is_some())?;
        let mut backends = setup.backends.clone();
        for (name, _) in &setup.endpoints {
            backends.entry(name.clone()).or_insert_with(|| vec![name.clone()]);
        }
        let mut fixture = match setup.has_controller || tenant.is_some() {
            true => Self::with_controller(setup, directory, variables, tenant)?,
            false => Self::with_nginx(setup, directory, variables)?,
        };
        fixture.backends = backends;
        fixture.worker_pids = fixture.current_workers();
        fixture.snapshot = setup.texts.get("snapshot").cloned().unwrap_or_default();
        let allowed = setup.texts.get("allow_error_log").map_or("", String::as_str);
        fixture.allowed_in_log = allowed.lines().map(str::to_owned).collect();
        Ok(fixture)
    }

    fn new(variables: Variables, server: Server, address: Address, ports: (u16, u16)) -> Self {
        Fixture {
            variables,
            server,
            tenant: None,
            configuration: Configuration { address },
            tag: None,
            connections: BTreeMap::new(),
            backends: BTreeMap::new(),
            snapshot: String::new(),
            named: BTreeMap::new(),
            held: Vec::new(),
            worker_pids: Vec::new(),
            http_port: ports.0,
            https_port: ports.1,
            allowed_in_log: Vec::new(),
        }
    }

    fn with_controller(
        setup: &Setup,
        directory: &Directory,
        mut variables: Variables,
        tenant: Option<Tenant<'static>>,
    ) -> Result<Self> {
        let names = tenant.as_ref().map(|tenant| (&*tenant.namespace, &*tenant.class));
        let (namespace, class) = names.unwrap_or(("default", "nginx"));
        variables.texts.insert("NAMESPACE".into(), namespace.into());
        variables.texts.insert("CLASS".into(), class.into());
        let flags = setup.texts.get("controller_flags").map_or("", String::as_str);
        let flags = variables.expand(flags)?;
        let mut flags: Vec<_> = flags.split_whitespace().map(str::to_owned).collect();
        let controller = match &tenant {
            Some(tenant) => {
                flags.extend(tenant.flags());
                Controller::start_on(tenant.cluster, directory, setup.workers, &flags)?
            }
            None => Controller::start(directory, setup.workers, &flags)?,
        };
        let ports = (controller.http_port, controller.https_port);
        variables.texts.insert("PORT".into(), ports.0.to_string());
        variables.texts.insert("TLS_PORT".into(), ports.1.to_string());
        let socket = Address::Unix(controller.configuration_socket());
        let server = Server::Controller(Box::new(controller));
        Ok(Fixture { tenant, ..Self::new(variables, server, socket, ports) })
    }

    fn with_nginx(setup: &Setup, directory: &Directory, mut variables: Variables) -> Result<Self> {
        let is_stock = setup.texts.contains_key("stock");
        let module = if is_stock { None } else { Some(dist::module()?) };
        let mut plan = Plan::with_module(setup.workers, module);
        // Ports and paths are not known yet: the site replaces them.
        for name in ["PORT", "TLS_PORT", "CONFIGURATION_PORT", "SOCKET", "DIR"] {
            variables.texts.insert(name.into(), format!("${name}"));
        }
        let text = |name: &str| match setup.texts.get(name) {
            Some(text) => variables.expand(text).map(Some),
            None => Ok(None),
        };
        plan.main_config = text("main_config")?.unwrap_or_default();
        plan.http_config = text("http_config")?.unwrap_or_default();
        plan.config = text("config")?;
        plan.location_config = text("location_config")?.unwrap_or_default();
        plan.configuration_config = text("configuration_config")?.unwrap_or_default();
        plan.zone_size = text("zone_size")?.unwrap_or(plan.zone_size);

        let Site { nginx, configuration, http_port, https_port, configuration_port, .. } =
            Site::start(&plan, directory)?;
        for (name, value) in [
            ("PORT", http_port.to_string()),
            ("TLS_PORT", https_port.to_string()),
            ("CONFIGURATION_PORT", configuration_port.to_string()),
            ("SOCKET", directory.join("configuration.sock").display().to_string()),
            ("DIR", directory.path().display().to_string()),
        ] {
            variables.texts.insert(name.into(), value);
        }
        let server = Server::Nginx(Box::new(nginx));
        Ok(Self::new(variables, server, configuration.address, (http_port, https_port)))
    }

    /// Where a URL leads to.
    pub fn address(&self, url: &Url) -> Address {
        match (url.is_tls, url.port) {
            (false, port) => Address::http(port.unwrap_or(self.http_port)),
            (true, port) => Address::https(port.unwrap_or(self.https_port), &*url.host),
        }
    }

    /// Where plain HTTP is served.
    pub fn http(&self) -> Address {
        Address::http(self.http_port)
    }

    /// Where HTTPS is served, by server name.
    pub fn https(&self, server_name: Option<&str>) -> Address {
        let to = (std::net::Ipv4Addr::LOCALHOST, self.https_port).into();
        Address::Tls(to, server_name.map(str::to_owned))
    }

    pub fn current_workers(&self) -> Vec<u32> {
        match &self.server {
            Server::Nginx(nginx) => nginx.worker_pids(),
            Server::Controller(controller) => controller.worker_pids(),
        }
    }

    /// nginx's access log so far.
    pub fn access_log(&self) -> Result<String> {
        let directory = self.variables.texts.get("DIR").context("no directory")?;
        Ok(std::fs::read_to_string(std::path::Path::new(directory).join("access.log"))?)
    }

    /// nginx's error log; a controller's output as well.
    pub fn log(&self) -> String {
        match &self.server {
            Server::Nginx(nginx) => nginx.error_log(),
            Server::Controller(controller) => controller.error_log(),
        }
    }

    pub fn log_tail(&self) -> String {
        nginx::tail(&self.log(), 40)
    }

    /// Lets a text stand in the error log that fails a block otherwise.
    pub fn allow_in_log(&mut self, text: &str) {
        self.allowed_in_log.push(text.into());
    }

    /// Stops everything and looks back: same workers, clean error log.
    pub fn finish(mut self, block: &Block) -> Result<()> {
        ensure!(self.held.is_empty(), "--- held without --- answers");
        let workers = self.current_workers();
        ensure!(
            workers == self.worker_pids,
            "worker processes were {:?} and are {workers:?}\n{}",
            self.worker_pids,
            self.log_tail()
        );
        self.connections.clear();
        match &mut self.server {
            Server::Nginx(nginx) => nginx.stop()?,
            Server::Controller(controller) => controller.stop()?,
        }
        let mut bad: Vec<String> = BAD_IN_ERROR_LOG.map(str::to_owned).into();
        for section in block.sections.iter().filter(|s| s.name == "no_error_log") {
            bad.extend(section.value.lines().map(str::to_owned));
        }
        for line in self.log().lines() {
            let is_allowed = self.allowed_in_log.iter().any(|allowed| line.contains(allowed));
            if !is_allowed && bad.iter().any(|bad| line.contains(bad)) {
                bail!("in the error log: {line}\n{}", self.log_tail());
            }
        }
        Ok(())
    }

    /// Waits until the error log has `text`.
    pub fn wait_for_log(&self, text: &str) -> Result<()> {
        wait::until("a line in the error log", || {
            ensure!(self.log().contains(text), "no `{text}`");
            Ok(())
        })
    }
}
