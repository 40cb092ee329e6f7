//! Which listeners cannot have the port that they ask for.

use super::protocol::{Protocol, Transport};
use super::state::{Gateways, Home, ListenerState, by_age};
use crate::Options;
use crate::backend::stream;
use oxigress_core::model::{HostPattern, StreamPort};
use oxigress_objects::gateway_status::Condition;
use oxigress_objects::service;
use oxigress_objects::{Kind, Name, World};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// Most ports of all Gateways together: each is a socket of every worker, and a new one is a reload.
pub const MAX_PORTS: usize = 256;

/// The ports of the ConfigMaps of TCP and UDP services, which are the operator's.
pub fn of_services(world: &World, options: &Options) -> BTreeSet<StreamPort> {
    let maps = [
        (&options.tcp_services_configmap, service::Protocol::Tcp),
        (&options.udp_services_configmap, service::Protocol::Udp),
    ];
    let maps = maps.into_iter().filter_map(|(key, protocol)| {
        let map = world.config_maps.get(key.as_ref()?)?;
        Some(stream::parse(map, protocol, options).0.into_keys())
    });
    maps.flatten().collect()
}

/// Most ports that the ListenerSets of one namespace open beside those that others have.
const MAX_PORTS_OF_SETS: usize = 16;

/// Within one Gateway nobody wins.
pub fn find_conflicts(options: &Options, listeners: &mut [ListenerState<'_>]) {
    let mut by_port: BTreeMap<StreamPort, Vec<usize>> = BTreeMap::new();
    for (index, listener) in listeners.iter().enumerate() {
        if let Some(port) = listener.at() {
            by_port.entry(port).or_default().push(index);
        }
    }
    for indexes in by_port.into_values() {
        for index in &indexes {
            let others = indexes.iter().filter(|other| *other != index);
            let others = others.filter_map(|other| listeners.get(*other));
            let Some(own) = listeners.get(*index) else { continue };
            let mut reason = None;
            for other in others {
                if transport(options, other) != transport(options, own) {
                    reason = Some("ProtocolConflict");
                } else if other.host == own.host {
                    reason = reason.or(Some("HostnameConflict"));
                }
            }
            if let (Some(reason), Some(own)) = (reason, listeners.get_mut(*index)) {
                let number = own.spec.port;
                let message = format!("another listener of the Gateway has port {number} too");
                own.conflict = Some(Condition { message, ..Condition::yes("Conflicted", reason) });
            }
        }
    }
}

fn transport(options: &Options, listener: &ListenerState<'_>) -> Option<Transport> {
    Some(listener.protocol?.transport(options, listener.port?))
}

/// What older Gateways have, and then older ListenerSets.
#[derive(Clone, Default)]
pub struct Older<'w> {
    /// Those of the ConfigMaps of TCP and UDP services.
    taken: BTreeSet<StreamPort>,
    ports: BTreeMap<StreamPort, (Transport, Home<'w>)>,
    hosts: BTreeMap<(StreamPort, Option<IpAddr>, HostPattern), (Protocol, Home<'w>)>,
    /// How many ports the ListenerSets of each namespace have opened.
    opened: BTreeMap<&'w Name, usize>,
}

/// Between Gateways a port speaks what the oldest says, and a host of it too; beyond [`MAX_PORTS`] those of the youngest are not
/// opened.
pub fn find_port_conflicts<'w>(
    options: &Options,
    taken: &BTreeSet<StreamPort>,
    gateways: &mut Gateways<'w>,
) -> Older<'w> {
    let mut older = Older { taken: taken.clone(), ..Older::default() };
    for key in by_age(gateways) {
        let Some(state) = gateways.get_mut(key) else { continue };
        let addresses = state.addresses();
        for listener in &mut state.listeners {
            older.find_conflict(options, &addresses, listener);
        }
    }
    older
}

impl<'w> Older<'w> {
    /// Refuses a listener that cannot have its port; notes it for those that come later, if it can.
    pub fn find_conflict(
        &mut self,
        options: &Options,
        addresses: &[Option<IpAddr>],
        listener: &mut ListenerState<'w>,
    ) {
        let (Some(port), true) = (listener.at(), listener.is_accepted()) else { return };
        let number = listener.spec.port;
        let refusal = match self.taken.contains(&port) {
            true => Some(format!("a ConfigMap of TCP or UDP services has port {number}")),
            false => self.refuse(options, (port, addresses), listener),
        };
        let refused = |message| Condition::no("Accepted", "PortUnavailable", message);
        listener.refusal = refusal.map(refused);
    }

    /// Why a listener cannot have its port; notes it for younger ones, if it can.
    fn refuse(
        &mut self,
        options: &Options,
        (port, addresses): (StreamPort, &[Option<IpAddr>]),
        listener: &ListenerState<'w>,
    ) -> Option<String> {
        let (protocol, own) = (listener.protocol?, transport(options, listener)?);
        let home = listener.home;
        if !self.ports.contains_key(&port) {
            if self.ports.len() >= MAX_PORTS {
                return Some(format!(
                    "the Gateways of this controller have {MAX_PORTS} ports already: use one of them, such as 443"
                ));
            }
            let opened = self.opened.entry(&home.key.namespace).or_default();
            if home.kind == Kind::ListenerSet && *opened >= MAX_PORTS_OF_SETS {
                return Some(format!(
                    "the ListenerSets of namespace {} have opened {MAX_PORTS_OF_SETS} ports already: use one of these, or one \
                     of a Gateway",
                    home.key.namespace
                ));
            }
            *opened += usize::from(home.kind == Kind::ListenerSet);
        }
        let (transport, first) = *self.ports.entry(port).or_insert((own, home));
        if transport != own {
            return Some(format!(
                "{first}, which comes first, has port {} for the other protocol",
                listener.spec.port
            ));
        }
        for address in addresses {
            let at = (port, *address, listener.host.clone());
            let (other, first) = *self.hosts.entry(at).or_insert((protocol, home));
            if other != protocol {
                return Some(format!(
                    "{first}, which comes first, has host {} of port {} for another use of TLS: write another hostname",
                    listener.host, listener.spec.port
                ));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::Built;
    use crate::gateway::gateways::gateways;
    use oxigress_objects::Key;
    use oxigress_objects::gateway::{Gateway, GatewaySpec, Listener};

    fn gateway(created: i64, listeners: Vec<Listener>) -> Gateway {
        let spec =
            GatewaySpec { gateway_class_name: "c".into(), listeners, ..GatewaySpec::default() };
        let mut gateway = Gateway { spec, ..Gateway::default() };
        gateway.meta.created = created;
        gateway
    }

    fn listener(protocol: &str, port: i64) -> Listener {
        Listener {
            name: format!("{protocol}{port}"),
            port,
            protocol: protocol.into(),
            ..Listener::default()
        }
    }

    /// The Gateways of these names in one namespace, as they stand, and what came of them.
    fn told<T>(
        all: Vec<(&str, Gateway)>,
        tell: impl Fn(&Built, &dyn Fn(&str) -> Vec<String>) -> T,
    ) -> T {
        let mut world = World::default();
        for (name, gateway) in all {
            world.gateway_api.gateways.insert(Key::new("n", name), gateway.into());
        }
        let mut built = Built::default();
        let classes = BTreeSet::from(["c".to_owned()]);
        let gateways = gateways(&world, &Options::default(), &classes, None, &mut built);
        tell(&built, &|name| {
            let accepted = gateways[&Key::new("n", name)].accepted();
            accepted.map(|listener| listener.spec.name.clone()).collect()
        })
    }

    #[test]
    fn beyond_the_most_ports_the_youngest_are_refused() {
        let of = |ports: std::ops::Range<i64>| {
            ports.map(|port| listener(["HTTP", "TCP", "UDP"][port as usize % 3], port)).collect()
        };
        // By name the younger one comes first.
        let all = vec![("b", gateway(1, of(1_000..1_200))), ("a", gateway(2, of(1_150..1_400)))];
        told(all, |built, accepted| {
            assert_eq!((accepted("b").len(), accepted("a").len()), (200, 50 + 56));
            assert_eq!(built.ports.len(), MAX_PORTS);
        });
    }

    #[test]
    fn a_port_speaks_what_the_oldest_gateway_says_and_udp_has_ports_of_its_own() {
        let all = vec![
            ("a", gateway(1, vec![listener("TCP", 53), listener("UDP", 53), listener("HTTP", 90)])),
            ("b", gateway(2, vec![listener("TCP", 90), listener("HTTP", 53), listener("UDP", 90)])),
        ];
        told(all, |_, accepted| {
            assert_eq!(accepted("a"), ["TCP53", "UDP53", "HTTP90"]);
            assert_eq!(accepted("b"), ["UDP90"]);
        });
    }
}
