//! What the module keeps of its directives: for a cycle, a server or upstream, and a location.

use nginx::sys::{ngx_msec_t, ngx_shm_zone_t, ngx_uint_t};
use nginx::thread::ThreadPool;
use nginx::zone::Zone;
use nginx::{Argument, Cycle, EventLoop, Settings as LocationSettings, VariableIndex};
use oxigress_core::balancer::destinations;
use oxigress_core::http::encoding::MediaTypes;
use oxigress_core::http::head::Rules;
use oxigress_core::http::paths::Refused as RefusedPaths;
use oxigress_core::telemetry::metrics::Buckets;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::ptr::NonNull;

pub mod directive;

/// The part of the module outside of http{} and stream{}, under which nginx keeps a [`CoreConf`] for each cycle. Its table, and
/// what nginx calls of it, stand in `module/table.rs`, above all that is called.
pub struct Core;

/// The part of the module in http{}, under which nginx keeps [`SrvConf`], [`LocConf`] and the context of a request. Its table
/// stands beside that of [`Core`].
pub struct Http;

/// What the core module keeps for a cycle.
#[derive(Default)]
pub struct CoreConf {
    pub(crate) zone: Option<NonNull<ngx_shm_zone_t>>,
    /// Of `ingress_limits`.
    pub(crate) limits: Option<NonNull<ngx_shm_zone_t>>,
    /// Absolute; empty without `ingress_journal`.
    pub(crate) journal: Argument,
    /// Whose threads write the journal.
    pub(crate) journal_pool: Option<ThreadPool>,
    /// Absolute; empty without `ingress_draining`.
    pub(crate) draining: Argument,
    /// Of `ingress_destinations`.
    pub destinations: Option<destinations::Settings>,
    /// Upstreams with `ingress_balancer`.
    pub(crate) balancers: usize,
    /// Whose threads look at passwords.
    pub(crate) password_pool: Option<ThreadPool>,
    /// Of `ingress_buffers`, in bytes.
    pub(crate) buffers: Option<u64>,
    /// The bounds of `ingress_metrics`.
    pub metrics: Option<Buckets>,
}

impl CoreConf {
    /// Looks at that of the running cycle.
    pub fn with_running<T>(here: EventLoop, look: impl FnOnce(&Self) -> T) -> Option<T> {
        Cycle::with_current(here, |cycle| cycle.core::<Core>().map(look))
    }

    /// The zone of `ingress_zone`, of the cycle that this is of.
    pub fn zone<'c>(&self, cycle: &'c Cycle) -> Option<&'c Zone> {
        cycle.zones().find(|zone| Some(zone.as_ptr()) == self.zone.map(NonNull::as_ptr))
    }

    /// The zone of `ingress_limits`, of the cycle that this is of.
    pub fn limits<'c>(&self, cycle: &'c Cycle) -> Option<&'c Zone> {
        cycle.zones().find(|zone| Some(zone.as_ptr()) == self.limits.map(NonNull::as_ptr))
    }

    /// The file of `ingress_journal`.
    pub fn journal(&self) -> Option<PathBuf> {
        path(&self.journal)
    }

    /// The file of `ingress_journal`, and whose threads write it.
    pub fn journal_with_threads(&self) -> Option<(PathBuf, ThreadPool)> {
        self.journal().zip(self.journal_pool)
    }

    /// The file of `ingress_draining`.
    pub fn draining(&self) -> Option<PathBuf> {
        path(&self.draining)
    }
}

fn path(text: &Argument) -> Option<PathBuf> {
    (!text.is_empty()).then(|| PathBuf::from(OsStr::from_bytes(text.bytes())))
}

/// What nginx's own `keepalive` does in an upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeptByNginx {
    /// The directive is absent.
    #[default]
    Not,
    /// All locations share what is kept.
    ByAddress,
    /// Each location has its own.
    ByLocation,
}

/// How an upstream keeps connections.
#[derive(Clone, Copy, Debug, Default)]
pub struct Keepalive {
    /// Number of the upstream among those of the cycle.
    pub number: usize,
    /// Idle ones a worker; 0: none is kept.
    pub connections: u32,
    /// Age after which one is used no more.
    pub time_msec: ngx_msec_t,
    /// Time after which an idle one is closed.
    pub timeout_msec: ngx_msec_t,
    /// Requests after which one is used no more.
    pub requests: ngx_uint_t,
}

/// Which responses are compressed, and how.
pub struct Compression {
    /// From 0, fast, to 11, small.
    pub level: u32,
    /// Responses with fewer bytes are not.
    pub min_length: usize,
    /// Their media types.
    pub types: MediaTypes,
}

/// What the module keeps for an upstream or a server.
#[derive(Default)]
pub struct SrvConf {
    /// The variable that names the backend.
    pub(crate) variable: Option<VariableIndex>,
    /// The variable that says whether a peer is believed.
    pub(crate) trust: Option<VariableIndex>,
    /// A location of this server has `ingress_router`.
    pub(crate) has_router: bool,
    /// The settings of its `ingress_target` locations; null: it has none for that protocol.
    pub(crate) targets: [Option<LocationSettings>; Target::COUNT],
    /// The name of its `ingress_error` location; empty: it has none.
    pub(crate) error_location: Argument,
    /// The names of its `ingress_auth` locations.
    pub(crate) auth_locations: Locations,
    /// The names of its `ingress_mirror` locations.
    pub(crate) mirror_locations: Locations,
    /// A location of this server has `ingress_configuration`.
    pub(crate) has_configuration: bool,
    /// This upstream has `ingress_balancer`.
    pub has_balancer: bool,
    /// This upstream has `ingress_keepalive`.
    pub has_keepalive: bool,
    /// What nginx does about the connections of this upstream.
    pub kept_by_nginx: KeptByNginx,
    /// What the module does about them.
    pub keep: Keepalive,
    /// Which headers of clients are kept and removed; `None`: as without directives.
    pub rules: Option<Rules>,
    /// Which paths are refused.
    pub refused_paths: RefusedPaths,
    /// Responses have no `Server`.
    pub hides_server: bool,
    /// Which responses are compressed with Brotli.
    pub brotli: Option<Compression>,
    /// Of `ingress_proxied_client`: the header that says where the client is, and the one it is made of; empty without.
    pub proxied_client: [Argument; 2],
}

impl SrvConf {
    /// The variable that names the backend, if there is one.
    #[inline]
    pub fn backend_variable(&self) -> Option<VariableIndex> {
        self.variable
    }

    /// Which headers of clients are kept and removed, where directives say so.
    #[inline]
    pub fn head_rules(&self) -> Option<&Rules> {
        self.rules.as_ref()
    }

    /// The variable that says whether a peer is believed, if there is one.
    #[inline]
    pub fn trust_variable(&self) -> Option<VariableIndex> {
        self.trust
    }
}

/// What the module keeps for a location.
#[derive(Default)]
pub struct LocConf {
    pub(crate) is_router: bool,
    pub(crate) is_error: bool,
    pub(crate) is_auth: bool,
    pub(crate) is_mirror: bool,
    pub(crate) pool: Option<ThreadPool>,
}

/// What servers of URLs speak: they are asked through a location for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "names of protocols")]
pub enum Scheme {
    Http,
    Https,
}

impl Scheme {
    pub(crate) const COUNT: usize = 2;

    /// With or without TLS.
    pub fn of(https: bool) -> Self {
        if https { Scheme::Https } else { Scheme::Http }
    }
}

/// The names of such locations of a server; empty: it has none for that scheme.
pub(crate) type Locations = [Argument; Scheme::COUNT];

/// What endpoints speak: each has a location of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "names of protocols")]
pub enum Target {
    Http,
    Https,
    Grpc,
    Grpcs,
    Fastcgi,
}

impl Target {
    /// It is spoken over TLS.
    pub fn is_tls(self) -> bool {
        matches!(self, Target::Https | Target::Grpcs)
    }

    pub(crate) const COUNT: usize = 5;
    pub(crate) const ALL: [(&[u8], Target); Self::COUNT] = [
        (b"http", Target::Http),
        (b"https", Target::Https),
        (b"grpc", Target::Grpc),
        (b"grpcs", Target::Grpcs),
        (b"fastcgi", Target::Fastcgi),
    ];
}

/// What the directives say of the location and the server that a request is in.
pub trait Declared {
    /// Its location has `ingress_router`.
    fn is_router(&self) -> bool;
    /// Its location has `ingress_error`.
    fn is_error_location(&self) -> bool;
    /// Its location has `ingress_auth`.
    fn is_auth_location(&self) -> bool;
    /// Its location has `ingress_mirror`.
    fn is_mirror_location(&self) -> bool;
    /// Its server has `ingress_hide_server`.
    fn hides_server(&self) -> bool;
    /// The name of the `ingress_error` location of its server, if there is one.
    fn error_location(&self) -> Option<&[u8]>;
    /// The name of the location through which auth servers are asked.
    fn auth_location(&self, scheme: Scheme) -> Option<&[u8]>;
    /// The name of the location through which copies go.
    fn mirror_location(&self, scheme: Scheme) -> Option<&[u8]>;
    /// The settings of a target of its server.
    fn target_settings(&self, target: Target) -> Option<LocationSettings>;
    /// The threads of its `ingress_configuration`; `None` elsewhere.
    fn threads(&self) -> Option<ThreadPool>;
}

impl Declared for nginx::Request {
    #[inline]
    fn is_router(&self) -> bool {
        self.location_conf::<Http>().is_router
    }

    #[inline]
    fn is_error_location(&self) -> bool {
        self.location_conf::<Http>().is_error
    }

    #[inline]
    fn is_auth_location(&self) -> bool {
        self.location_conf::<Http>().is_auth
    }

    #[inline]
    fn is_mirror_location(&self) -> bool {
        self.location_conf::<Http>().is_mirror
    }

    #[inline]
    fn hides_server(&self) -> bool {
        self.server_conf::<Http>().hides_server
    }

    fn error_location(&self) -> Option<&[u8]> {
        Some(self.server_conf::<Http>().error_location.bytes()).filter(|name| !name.is_empty())
    }

    fn auth_location(&self, scheme: Scheme) -> Option<&[u8]> {
        let name = self.server_conf::<Http>().auth_locations.get(scheme as usize)?.bytes();
        (!name.is_empty()).then_some(name)
    }

    fn mirror_location(&self, scheme: Scheme) -> Option<&[u8]> {
        let name = self.server_conf::<Http>().mirror_locations.get(scheme as usize)?.bytes();
        (!name.is_empty()).then_some(name)
    }

    #[inline]
    fn target_settings(&self, target: Target) -> Option<LocationSettings> {
        let [http, https, grpc, grpcs, fastcgi] = self.server_conf::<Http>().targets;
        match target {
            Target::Http => http,
            Target::Https => https,
            Target::Grpc => grpc,
            Target::Grpcs => grpcs,
            Target::Fastcgi => fastcgi,
        }
    }

    fn threads(&self) -> Option<ThreadPool> {
        self.location_conf::<Http>().pool
    }
}
