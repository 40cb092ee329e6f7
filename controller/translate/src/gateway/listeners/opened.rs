//! The ports that nginx.conf has for listeners: those that ListenerSets alone ask for may have to wait, since a new port is a reload.
//!
//! Shape:   whoever has a clock says whether such ports may be opened now, and for which namespaces not. What Gateways ask for is opened
//!          and closed at once, and all that waits with it. A port that nobody asks for any more stays open until others are opened.

use super::state::{GatewayState, Gateways};
use crate::gateway::Built;
use oxigress_core::model::StreamPort;
use oxigress_objects::{Kind, Name};
use oxigress_settings::conf_input::Listener;
use std::collections::{BTreeMap, BTreeSet};

/// Which ports of ListenerSets have to wait.
#[derive(Clone, Debug, Default)]
pub struct HeldPorts {
    /// All of them.
    pub all: bool,
    /// Those that sets of these namespaces alone ask for.
    pub of: BTreeSet<Name>,
}

/// The ports that nginx.conf has, and whether others may be opened.
#[derive(Clone, Debug, Default)]
pub struct Opened {
    /// Those that it has.
    ports: BTreeMap<StreamPort, Listener>,
    /// Those of them that Gateways ask for.
    of_gateways: BTreeMap<StreamPort, Listener>,
    /// Ports that ListenerSets alone ask for and have to wait.
    pub held: HeldPorts,
    /// The namespaces that ask for each port that waits.
    waiting: BTreeMap<StreamPort, BTreeSet<Name>>,
    /// The namespaces for whose sets some were opened.
    pub for_sets_of: BTreeSet<Name>,
}

impl Opened {
    /// Opens what may be opened; listeners whose ports have to wait are told so.
    pub fn settle(&mut self, gateways: &mut Gateways<'_>, built: &mut Built) {
        let mut own = BTreeMap::new();
        let mut askers: BTreeMap<StreamPort, BTreeSet<&Name>> = BTreeMap::new();
        for listener in gateways.values().flat_map(GatewayState::accepted) {
            let asked = listener.at().and_then(|port| Some((port, *built.ports.get(&port)?)));
            match (asked, listener.home.kind) {
                (Some((port, asked)), Kind::Gateway) => drop(own.insert(port, asked)),
                (Some((port, _)), _) => {
                    askers.entry(port).or_default().insert(&listener.home.key.namespace);
                }
                (None, _) => {}
            }
        }
        let new = built.ports.iter().filter(|(port, asked)| self.ports.get(port) != Some(asked));
        let may_open = |port: &StreamPort| {
            let askers = askers.get(port).filter(|_| !self.held.all);
            askers.is_some_and(|all| all.iter().any(|one| !self.held.of.contains(*one)))
        };
        let new = new.filter(|(port, _)| may_open(port)).map(|(port, asked)| (*port, *asked));
        let new: BTreeMap<StreamPort, Listener> = new.collect();
        if own != self.of_gateways {
            self.ports.clone_from(&built.ports);
        } else if !new.is_empty() {
            let of = new.keys().filter_map(|port| askers.get(port)).flatten();
            self.for_sets_of.extend(of.map(|of| Name::clone(of)));
            self.ports.retain(|port, _| built.ports.contains_key(port));
            self.ports.extend(new);
        }
        self.of_gateways = own;
        let waiting =
            askers.into_iter().filter(|(port, _)| self.ports.get(port) != built.ports.get(port));
        self.waiting =
            waiting.map(|(port, of)| (port, of.into_iter().cloned().collect())).collect();
        built.opened = self.ports.clone();
        for listener in gateways.values_mut().flat_map(|state| &mut state.listeners) {
            let port = listener.at().filter(|_| listener.is_accepted());
            let asked = port.and_then(|port| Some((port, built.ports.get(&port)?)));
            listener.is_pending =
                asked.is_some_and(|(port, asked)| self.ports.get(&port) != Some(asked));
        }
    }

    /// Whether a port waits that is not held any more.
    pub fn has_due(&self) -> bool {
        let mut askers = self.waiting.values().flatten();
        !self.held.all && askers.any(|namespace| !self.held.of.contains(namespace))
    }
}
