//! Which listener a host belongs to: the most specific one on its port and address.

use super::host::levels;
use super::left::Leaves;
use super::protocol::Protocol;
use super::state::{GatewayState, Gateways, ListenerState};
use super::work::{self, Step};
use oxigress_core::model::{HostPattern, ListenerHost};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::num::NonZeroU16;

/// The hosts of listeners over TCP, by port and address.
#[derive(Default)]
pub struct Listeners(BTreeMap<(NonZeroU16, Option<IpAddr>), Hosts>);

#[derive(Default)]
struct Hosts {
    all: BTreeSet<HostPattern>,
    /// The wildcards among them, by what follows the star.
    wildcards: BTreeMap<Box<str>, HostPattern>,
    /// Bytes of the longest of those.
    longest: usize,
    /// What the listeners of a wildcard leave to others, if each of them does: a host that all of them leave is left.
    left: BTreeMap<HostPattern, Vec<Leaves>>,
}

impl Hosts {
    fn insert(&mut self, ListenerState { host, leaves, .. }: &ListenerState<'_>) {
        if let Some(below) = host.as_str().strip_prefix('*') {
            self.longest = self.longest.max(below.len());
            self.wildcards.insert(below.into(), host.clone());
        }
        let is_new = self.all.insert(host.clone());
        match leaves {
            Some(leaves) if is_new => drop(self.left.insert(host.clone(), vec![leaves.clone()])),
            Some(leaves) => {
                let left = self.left.get_mut(host);
                let left = left.filter(|all| !all.iter().any(|one| one.is_of_same(leaves)));
                left.into_iter().for_each(|all| all.push(leaves.clone()));
            }
            None => drop(self.left.remove(host)),
        }
    }

    /// Whether the listeners of a wildcard leave a host to others.
    fn is_left(&self, wildcard: &HostPattern, host: &HostPattern) -> bool {
        self.left.get(wildcard).is_some_and(|left| left.iter().all(|leaves| leaves.has(host)))
    }
}

impl Listeners {
    /// Those of Gateways, as far as they stand.
    pub fn of(gateways: &Gateways<'_>) -> Self {
        let mut all = Listeners::default();
        for state in gateways.values() {
            for listener in state.listeners.iter().filter(|listener| listener.stands()) {
                let is_udp = listener.protocol == Some(Protocol::Udp);
                let Some(port) = listener.port.filter(|_| !is_udp) else { continue };
                for address in state.addresses() {
                    all.0.entry((port, address)).or_default().insert(listener);
                }
            }
        }
        all
    }

    /// Whether requests for a host come to a listener, on one of its Gateway's addresses.
    pub fn has(
        &self,
        state: &GatewayState<'_>,
        listener: &ListenerState<'_>,
        host: &HostPattern,
    ) -> bool {
        let Some(port) = listener.port else { return false };
        state.addresses().into_iter().any(|address| {
            let at = ListenerHost::deep(port, address, host.clone());
            self.is_of(listener, &at)
        })
    }

    /// Whether what comes to a host comes to a listener there.
    pub fn is_of(&self, listener: &ListenerState<'_>, at: &ListenerHost) -> bool {
        // No two listeners of UDP tell hosts apart.
        listener.protocol == Some(Protocol::Udp) || self.most_specific(at) == Some(&listener.host)
    }

    /// The most specific of the hosts that covers a host, on its port and address.
    pub fn most_specific(&self, at: &ListenerHost) -> Option<&HostPattern> {
        let hosts = self.0.get(&(at.port, at.address))?;
        if let Some(same) = hosts.all.get(&at.host) {
            return Some(same);
        }
        let mut parents = levels(&at.host).filter(|parent| parent.len() <= hosts.longest);
        let wildcard = parents.find_map(|parent| {
            work::count(Step::Level);
            hosts.wildcards.get(parent).filter(|wildcard| !hosts.is_left(wildcard, &at.host))
        });
        wildcard.or_else(|| hosts.all.get(&HostPattern::default_host()))
    }
}
