//! Which listener a host belongs to: the most specific one on its port and address.

use super::host::Wildcards;
use super::left::Left;
use super::protocol::Protocol;
use super::state::{GatewayState, Gateways, ListenerState};
use oxigress_core::model::{HostPattern, ListenerHost};
use oxigress_objects::{Kind, Name, ObjectRef};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::num::NonZeroU16;
use std::sync::Arc;

/// The hosts of listeners over TCP, by port and address.
#[derive(Default)]
pub struct Listeners(BTreeMap<(NonZeroU16, Option<IpAddr>), Hosts>);

#[derive(Default)]
struct Hosts {
    /// Each with the object that has the first of its listeners.
    all: BTreeMap<HostPattern, ObjectRef>,
    wildcards: Wildcards<Box<str>, Wildcard>,
    /// What listeners of guests leave.
    left: Option<Arc<Left>>,
}

struct Wildcard {
    host: HostPattern,
    /// The namespaces of its listeners if each of them may leave hosts: what all of them leave is left. `None`: nothing is.
    leavers: Option<BTreeSet<Name>>,
}

impl Hosts {
    fn insert(&mut self, ListenerState { host, leaves, home, .. }: &ListenerState<'_>) {
        let object = || ObjectRef::new(home.kind, home.key.clone());
        self.all.entry(host.clone()).or_insert_with(object);
        let Some(below) = host.as_str().strip_prefix('*') else { return };
        let wildcard = self.wildcards.entry(below.into());
        let wildcard = wildcard
            .or_insert_with(|| Wildcard { host: host.clone(), leavers: Some(BTreeSet::new()) });
        match leaves {
            Some(leaves) => {
                self.left.get_or_insert_with(|| leaves.of_all().clone());
                wildcard.leavers.as_mut().map(|all| all.insert(leaves.namespace().clone()));
            }
            None => wildcard.leavers = None,
        }
    }
}

impl Listeners {
    /// Those of Gateways, as far as they stand.
    pub fn of(gateways: &Gateways<'_>) -> Self {
        Self::among(gateways, |_| true)
    }

    /// Those that stand in Gateways themselves.
    pub fn of_gateways(gateways: &Gateways<'_>) -> Self {
        Self::among(gateways, |listener| listener.home.kind == Kind::Gateway)
    }

    fn among(gateways: &Gateways<'_>, counts: impl Fn(&ListenerState<'_>) -> bool) -> Self {
        let mut all = Listeners::default();
        for state in gateways.values() {
            let standing = state.listeners.iter().filter(|listener| listener.stands());
            for listener in standing.filter(|listener| counts(listener)) {
                let is_udp = listener.protocol == Some(Protocol::Udp);
                let Some(port) = listener.port.filter(|_| !is_udp) else { continue };
                for address in state.addresses() {
                    all.0.entry((port, address)).or_default().insert(listener);
                }
            }
        }
        all
    }

    /// A host on each port and address.
    pub fn places(&self, host: &HostPattern) -> impl Iterator<Item = ListenerHost> {
        self.0.keys().map(|(port, address)| ListenerHost::deep(*port, *address, host.clone()))
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
        self.owner(at).map(|(_, host)| host)
    }

    /// The same, and an object that has a listener for it.
    pub fn owner(&self, at: &ListenerHost) -> Option<(&ObjectRef, &HostPattern)> {
        let hosts = self.0.get(&(at.port, at.address))?;
        let of = |host: &HostPattern| hosts.all.get_key_value(host).map(|(host, of)| (of, host));
        if let Some(same) = of(&at.host) {
            return Some(same);
        }
        let named = hosts.left.as_ref().and_then(|left| left.named(&at.host));
        let wildcard = hosts.wildcards.above(&at.host).find_map(|Wildcard { host, leavers }| {
            let is_left = match (leavers, named) {
                (Some(leavers), Some(named)) => named.is_left_by_all(leavers, host),
                _ => false,
            };
            Some(host).filter(|_| !is_left)
        });
        wildcard.and_then(of).or_else(|| of(&HostPattern::default_host()))
    }
}
