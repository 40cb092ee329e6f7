//! Where connections to endpoints may lead: `ingress_destinations`, and what listens on this machine.

use super::directives::{Answer, OK, arguments, core_conf, refuse, refused};
use super::log::Seldom;
use super::{guard, log, memory};
use nginx::sys::{
    AF_INET, AF_INET6, ngx_command_t, ngx_conf_t, ngx_cycle_t, ngx_listening_t, ngx_log_t,
    ngx_pool_cleanup_add, sockaddr, sockaddr_in, sockaddr_in6,
};
use oxigress_core::balancer::destinations::{Denial, Destinations, Settings};
use std::cell::RefCell;
use std::ffi::{CStr, c_void};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ptr::null_mut;

/// How long the addresses of this machine are taken for what they were.
const REFRESH_MILLISECONDS: u64 = 30_000;

/// kube-proxy's interface in IPVS mode: it has the address of every Service, most of which lead elsewhere.
const OF_SERVICES: &CStr = c"kube-ipvs0";

/// `ingress_destinations [loopback] [deny=NETWORK]... [own=PORT]...;`
pub unsafe extern "C" fn ingress_destinations(
    cf: *mut ngx_conf_t,
    _: *mut ngx_command_t,
    _: *mut c_void,
) -> Answer {
    // SAFETY: nginx runs one directive at a time, with the configuration it reads.
    guard::contain("ingress_destinations", refused(), || unsafe {
        let conf = core_conf((*cf).cycle);
        if !(*conf).destinations.is_null() {
            return c"is duplicate".as_ptr().cast_mut();
        }
        let mut settings = Settings::default();
        for word in arguments(cf).iter().skip(1) {
            let word = memory::bytes(*word);
            if str::from_utf8(word).ok().and_then(|word| settings.add(word)).is_none() {
                let shown = word.escape_ascii();
                return refuse(
                    cf,
                    format_args!(
                        "invalid value \"{shown}\": it is loopback, deny=NETWORK or own=PORT"
                    ),
                );
            }
        }
        let Some(cleanup) = ngx_pool_cleanup_add((*cf).pool, 0).as_mut() else { return refused() };
        (*conf).destinations = Box::into_raw(Box::new(settings));
        cleanup.data = (*conf).destinations.cast();
        cleanup.handler = Some(release);
        OK
    })
}

/// nginx's callback when a configuration goes.
unsafe extern "C" fn release(settings: *mut c_void) {
    guard::contain("release_destinations", (), || {
        // SAFETY: what the directive made, released once.
        drop(unsafe { Box::from_raw(settings.cast::<Settings>()) });
    });
}

/// What a worker knows about destinations.
pub struct Checked {
    destinations: Destinations,
    local: RefCell<Local>,
}

#[derive(Default)]
struct Local {
    /// Sorted.
    addresses: Vec<IpAddr>,
    read_at: Option<u64>,
}

impl Checked {
    /// As the cycle's directive says; `None` without one: whatever is named is connected to.
    ///
    /// # Safety
    /// `cycle` is the running cycle.
    pub unsafe fn of(cycle: *mut ngx_cycle_t) -> Option<Self> {
        // SAFETY: vouched for by the caller; null, or made by the directive and only read since.
        let settings = unsafe { core_conf(cycle).as_ref().and_then(|c| c.destinations.as_ref()) }?;
        // SAFETY: vouched for by the caller; nginx fills the array with its listeners.
        let listening = unsafe { (*cycle).listening.as_slice::<ngx_listening_t>() };
        let own = listening.iter().filter_map(|listener| {
            // SAFETY: a listener has an address, as long as its family says.
            unsafe { socket_address(listener.sockaddr) }
        });
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

/// Says that a connection is not made: every ten seconds at most.
///
/// # Safety
/// `log` is a log of nginx.
pub unsafe fn log_denial(log: *mut ngx_log_t, backend: &[u8], to: SocketAddr, denial: Denial) {
    static SELDOM: Seldom = Seldom::new();
    if SELDOM.is_due() {
        let backend = backend.escape_ascii();
        let line =
            format_args!("ingress: backend \"{backend}\": no connection to {to}, which {denial}");
        // SAFETY: vouched for by the caller.
        unsafe { log::write(log::ERROR, log, line) };
    }
}

/// An address of nginx's; `None` for a Unix socket.
///
/// # Safety
/// `address` is null or an address as long as its family says.
unsafe fn socket_address(address: *const sockaddr) -> Option<SocketAddr> {
    // SAFETY: vouched for by the caller.
    unsafe {
        match u32::from(address.as_ref()?.sa_family) {
            AF_INET => {
                let v4 = &*address.cast::<sockaddr_in>();
                let ip = Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes());
                Some(SocketAddr::new(ip.into(), u16::from_be(v4.sin_port)))
            }
            AF_INET6 => {
                let v6 = &*address.cast::<sockaddr_in6>();
                let ip = Ipv6Addr::from(*(&raw const v6.sin6_addr).cast::<[u8; 16]>());
                Some(SocketAddr::new(ip.into(), u16::from_be(v6.sin6_port)))
            }
            _ => None,
        }
    }
}

/// The addresses of this machine, sorted; `None` if the kernel does not say.
fn local_addresses() -> Option<Vec<IpAddr>> {
    let mut first: *mut libc::ifaddrs = null_mut();
    // SAFETY: writes the pointer it is given.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return None;
    }
    let (mut all, mut next) = (Vec::new(), first);
    // SAFETY: a list that ends with null, freed below.
    while let Some(interface) = unsafe { next.as_ref() } {
        // SAFETY: the kernel's names end with a NUL.
        let is_of_services = unsafe { CStr::from_ptr(interface.ifa_name) } == OF_SERVICES;
        // SAFETY: null, or an address as long as its family says.
        let address = unsafe { socket_address(interface.ifa_addr.cast()) };
        all.extend(address.filter(|_| !is_of_services).map(|address| address.ip()));
        next = interface.ifa_next;
    }
    // SAFETY: what `getifaddrs` made, freed once.
    unsafe { libc::freeifaddrs(first) };
    all.sort_unstable();
    Some(all)
}
