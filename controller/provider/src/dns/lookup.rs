//! One name to its addresses.
//!
//! hickory-resolver asks one full name for one type: ids and ports that cannot be guessed, retries, CNAMEs,
//! TCP when an answer was cut. Which names are asked, and what a failure means, is decided here: the library
//! would go on to the next search domain after any error, so a name server in trouble could make a
//! name lead elsewhere.

use super::configuration::Configuration;
use hickory_resolver::config::{
    NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts, ServerOrderingStrategy,
};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::{Name, RecordType};
use hickory_resolver::{Resolver, TokioResolver};
use oxigress_objects::service::external_name::DnsName;
use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// For all names that one name may mean.
const LONGEST: Duration = Duration::from_secs(30);
/// Shorter would be a flood, longer would miss a change.
const TTL_SECONDS: std::ops::RangeInclusive<u32> = 1..=30;
/// Most addresses of one name.
const MAX_ADDRESSES: usize = 64;

/// What DNS says of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// At least one, in order, so that a server that turns its answers changes nothing.
    pub addresses: Vec<IpAddr>,
    /// How many more there were.
    pub left_out: usize,
    /// How long it is true.
    pub ttl: Duration,
    /// The full name that they belong to.
    full: String,
}

/// Why a name has no addresses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// Of all that it may mean.
    #[error("there is no such name")]
    NoSuchName,
    /// The name exists and has no address.
    #[error("it has neither A nor AAAA records")]
    NoAddress,
    /// The name server knows of its trouble.
    #[error("the name server says {0}")]
    Refused(String),
    /// Or nothing that can be read.
    #[error("no name server answers")]
    NoAnswer,
}

/// Asks the name servers of a file, which is read again when it changed.
pub struct Client {
    path: PathBuf,
    current: Mutex<(Option<Stamp>, Arc<Resolving>)>,
}

struct Resolving {
    configuration: Configuration,
    resolver: TokioResolver,
}

/// Differs when a file was written or replaced.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
}

impl Stamp {
    fn of(path: &Path) -> Option<Self> {
        let meta = fs::metadata(path).ok()?;
        let modified = (meta.mtime(), meta.mtime_nsec());
        Some(Stamp { inode: meta.ino(), bytes: meta.size(), modified })
    }
}

impl Client {
    /// Reads `path`, a resolv.conf; a file that is missing says nothing.
    pub fn new(path: &Path) -> Result<Self, NetError> {
        let stamp = Stamp::of(path);
        let current = Mutex::new((stamp, Arc::new(Resolving::read(path)?)));
        Ok(Client { path: path.into(), current })
    }

    fn asked(&self) -> Arc<Resolving> {
        let stamp = Stamp::of(&self.path);
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        // A file that went away is about to be replaced.
        if stamp.is_some() && stamp != current.0 {
            match Resolving::read(&self.path) {
                Ok(asked) => {
                    tracing::info!("{} changed: {:?}", self.path.display(), asked.configuration);
                    current.1 = Arc::new(asked);
                }
                Err(error) => {
                    tracing::warn!(
                        "cannot read {}: {error}; the previous resolver configuration stays",
                        self.path.display()
                    )
                }
            }
            current.0 = stamp;
        }
        current.1.clone()
    }

    /// Asks for a name. `last` is what was found before.
    pub async fn look_up(&self, name: &DnsName, last: Option<&Found>) -> Result<Found, Failure> {
        let asked = self.asked();
        let last = last.map(|found| found.full.as_str());
        let all = tokio::time::timeout(LONGEST, asked.look_up(name, last)).await;
        all.unwrap_or(Err(Failure::NoAnswer))
    }
}

impl Resolving {
    fn read(path: &Path) -> Result<Self, NetError> {
        let text = fs::read(path).unwrap_or_default();
        let configuration = Configuration::parse(&String::from_utf8_lossy(&text));
        let servers = configuration.servers.iter().map(|server| {
            let mut config = NameServerConfig::udp_and_tcp(server.ip());
            config.connections.iter_mut().for_each(|connection| connection.port = server.port());
            config
        });
        let config = ResolverConfig::from_parts(None, Vec::new(), servers.collect());
        let provider = TokioRuntimeProvider::default();
        let mut builder = Resolver::builder_with_config(config, provider);
        *builder.options_mut() = options(&configuration);
        Ok(Resolving { configuration, resolver: builder.build()? })
    }

    async fn look_up(&self, name: &DnsName, last: Option<&str>) -> Result<Found, Failure> {
        let mut worst = Failure::NoSuchName;
        for full in self.configuration.candidates(name) {
            match self.ask(&full).await {
                Ok((addresses, ttl)) => return Ok(Found::new(addresses, ttl, full)),
                Err(Failure::NoAnswer) => return Err(Failure::NoAnswer),
                // What the name meant before may still be there: another meaning must wait until this is known.
                Err(failure @ Failure::Refused(_)) if last == Some(&full) => return Err(failure),
                Err(failure) => worst = worst.or(failure),
            }
        }
        Err(worst)
    }

    /// IPv6 addresses count when there are no others: so it is in ingress-nginx.
    async fn ask(&self, full: &str) -> Result<(Vec<IpAddr>, u32), Failure> {
        let full = Name::from_ascii(full).map_err(|_| Failure::NoSuchName)?;
        match self.ask_for(full.clone(), RecordType::A).await {
            Err(Failure::NoAddress) => self.ask_for(full, RecordType::AAAA).await,
            answer => answer,
        }
    }

    async fn ask_for(&self, full: Name, kind: RecordType) -> Result<(Vec<IpAddr>, u32), Failure> {
        let lookup = self.resolver.lookup(full, kind).await.map_err(Failure::from)?;
        let answers = lookup.answers();
        let addresses: Vec<_> = answers.iter().filter_map(|record| record.data.ip_addr()).collect();
        let ttl = answers.iter().map(|record| record.ttl).min().unwrap_or_default();
        match addresses.is_empty() {
            true => Err(Failure::NoAddress),
            false => Ok((addresses, ttl)),
        }
    }
}

fn options(configuration: &Configuration) -> ResolverOpts {
    let mut options = ResolverOpts::default();
    options.timeout = configuration.timeout;
    // The library counts what follows the first try.
    options.attempts = configuration.attempts.saturating_sub(1);
    options.edns0 = configuration.edns0;
    // Answers are asked for again when their TTL has passed, not before.
    options.cache_size = 0;
    options.use_hosts_file = ResolveHosts::Never;
    // Servers may know different things, and the first line of the file says who knows best.
    options.server_ordering_strategy = ServerOrderingStrategy::UserProvidedOrder;
    options.num_concurrent_reqs = 1;
    options
}

impl Found {
    fn new(addresses: Vec<IpAddr>, ttl: u32, full: String) -> Self {
        let mut addresses: Vec<_> = addresses.into_iter().map(|a| a.to_canonical()).collect();
        addresses.sort_unstable();
        addresses.dedup();
        let left_out = addresses.len().saturating_sub(MAX_ADDRESSES);
        addresses.truncate(MAX_ADDRESSES);
        let ttl = ttl.clamp(*TTL_SECONDS.start(), *TTL_SECONDS.end());
        Found { addresses, left_out, ttl: Duration::from_secs(ttl.into()), full }
    }
}

impl Failure {
    /// What is worth more to know of two.
    fn or(self, other: Failure) -> Failure {
        let rank = |failure: &Failure| match failure {
            Failure::NoSuchName => 0,
            Failure::NoAddress => 1,
            Failure::Refused(_) => 2,
            Failure::NoAnswer => 3,
        };
        if rank(&other) > rank(&self) { other } else { self }
    }
}

impl From<NetError> for Failure {
    fn from(error: NetError) -> Self {
        match error {
            NetError::Dns(DnsError::NoRecordsFound(none)) => match none.response_code {
                ResponseCode::NXDomain => Failure::NoSuchName,
                ResponseCode::NoError => Failure::NoAddress,
                code => Failure::Refused(code.to_string()),
            },
            NetError::Dns(DnsError::ResponseCode(code)) => Failure::Refused(code.to_string()),
            _ => Failure::NoAnswer,
        }
    }
}
