//! The ports that nginx.conf has for listeners: those that ListenerSets alone ask for may have to wait, since a new port is a reload.
//!
//! Shape:   whoever has a clock says whether such ports may be opened now. What Gateways ask for is opened and closed at once, and all
//!          that waits with it. A port that nobody asks for any more stays open until others are opened or closed.

use super::Built;
use super::state::{GatewayState, Gateways};
use oxigress_core::model::StreamPort;
use oxigress_objects::Kind;
use oxigress_settings::conf_input::Listener;
use std::collections::BTreeMap;

/// The ports that nginx.conf has, and whether others may be opened.
#[derive(Clone, Debug, Default)]
pub struct Opened {
    /// Those that it has.
    ports: BTreeMap<StreamPort, Listener>,
    /// Those of them that Gateways ask for.
    of_gateways: BTreeMap<StreamPort, Listener>,
    /// Ports that ListenerSets alone ask for have to wait.
    pub is_held: bool,
    /// Some were opened or closed for ListenerSets alone.
    pub is_for_sets: bool,
}

impl Opened {
    /// Opens what may be opened; listeners whose ports have to wait are told so.
    pub fn settle(&mut self, gateways: &mut Gateways<'_>, built: &mut Built) {
        let listeners = gateways.values().flat_map(GatewayState::accepted);
        let own = listeners.filter(|listener| listener.home.kind == Kind::Gateway);
        let own = own.filter_map(|listener| {
            let port = listener.at()?;
            Some((port, *built.ports.get(&port)?))
        });
        let own: BTreeMap<StreamPort, Listener> = own.collect();
        let is_of_gateways = own != self.of_gateways;
        if (is_of_gateways || !self.is_held) && self.ports != built.ports {
            self.is_for_sets |= !is_of_gateways;
            self.ports = built.ports.clone();
        }
        self.of_gateways = own;
        built.opened = self.ports.clone();
        for listener in gateways.values_mut().flat_map(|state| &mut state.listeners) {
            let port = listener.at().filter(|_| listener.is_accepted());
            let asked = port.and_then(|port| Some((port, built.ports.get(&port)?)));
            listener.is_pending =
                asked.is_some_and(|(port, asked)| self.ports.get(&port) != Some(asked));
        }
    }
}
