//! Where connections to endpoints may lead: `ingress_destinations`, and what listens on this machine.

use crate::conf::Core;
use crate::conf::directive::core_conf;
use crate::conf::directive::refuse;
use crate::system::log;
use crate::system::log::Seldom;
use crate::system::memory;
use crate::worker::Worker;
use nginx::log::Log;
use nginx::{Address, Conf, Cycle, Refused};
use oxigress_core::balancer::destinations::{Denial, Destinations, Settings};
use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr};

/// How long the addresses of this machine are taken for what they were.
const REFRESH_MILLISECONDS: u64 = 30_000;

/// kube-proxy's interface in IPVS mode: it has the address of every Service, most of which lead elsewhere.
const OF_SERVICES: &str = "kube-ipvs0";

/// `ingress_destinations [loopback] [deny=NETWORK]... [own=PORT]...;`
pub fn ingress_destinations(conf: &mut Conf) -> Result<(), Refused> {
    if core_conf(conf)?.destinations.is_some() {
        return Err(Refused::DUPLICATE);
    }
    let mut settings = Settings::default();
    for word in conf.arguments().iter().skip(1) {
        let word = word.bytes();
        if str::from_utf8(word).ok().and_then(|word| settings.add(word)).is_none() {
            let shown = word.escape_ascii();
            let reason =
                format_args!("invalid value \"{shown}\": it is loopback, deny=NETWORK or own=PORT");
            return Err(refuse(conf, reason));
        }
    }
    core_conf(conf)?.destinations = Some(settings);
    Ok(())
}

/// What a worker knows about destinations.
pub struct Checked {
    destinations: Destinations,
    local: RefCell<Local>,
}

#[derive(Default)]
struct Local {
    /// The addresses of this machine, sorted for a binary search.
    addresses: Vec<IpAddr>,
    read_at: Option<u64>,
}

impl Checked {
    /// As the cycle's directive says; `None` without one: whatever is named is connected to.
    pub fn of(cycle: &Cycle) -> Option<Self> {
        let settings = cycle.core::<Core>()?.destinations.as_ref()?;
        let own = cycle.listening().filter_map(Address::ip);
        let destinations = settings.destinations().with_own(own);
        Some(Checked { destinations, local: RefCell::default() })
    }

    /// Why no connection is made to an address; `None`: it is made.
    #[inline]
    pub fn denial(&self, to: SocketAddr) -> Option<Denial> {
        self.destinations.denial(to, |address| self.is_local(address))
    }

    fn is_local(&self, address: IpAddr) -> bool {
        let Ok(mut local) = self.local.try_borrow_mut() else { return true };
        let now = memory::now_milliseconds();
        if local.read_at.is_none_or(|at| now.saturating_sub(at) > REFRESH_MILLISECONDS) {
            // Those that were known stay where the kernel does not say.
            if let Some(addresses) = local_addresses() {
                local.addresses = addresses;
            }
            local.read_at = Some(now);
        }
        local.addresses.binary_search(&address).is_ok()
    }
}

impl Worker {
    /// Why no connection is made to an endpoint's address; `None`: it is made.
    #[inline]
    pub fn denial(&self, to: SocketAddr) -> Option<Denial> {
        self.part::<Option<Checked>>().as_ref()?.denial(to)
    }
}

/// Says that a connection is not made: every ten seconds at most.
pub fn log_denial(log: &Log, backend: &[u8], to: SocketAddr, denial: Denial) {
    static SELDOM: Seldom = Seldom::new();
    if SELDOM.is_due() {
        let backend = backend.escape_ascii();
        let line =
            format_args!("ingress: backend \"{backend}\": no connection to {to}, which {denial}");
        log::write(log::ERROR, log, line);
    }
}

/// The addresses of this machine, sorted; `None` if the kernel does not say.
fn local_addresses() -> Option<Vec<IpAddr>> {
    let interfaces = if_addrs::get_if_addrs().ok()?;
    let own = interfaces.iter().filter(|interface| interface.name != OF_SERVICES);
    let mut all = own.map(|interface| interface.ip()).collect::<Vec<_>>();
    all.sort_unstable();
    Some(all)
}
