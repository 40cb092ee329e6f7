//! Which routes have the sessions of server names, for reviews: an older object that names a host newly may close what a route has
//! that has not written it.

use crate::claim::age::Age;
use crate::gateway::listeners::host::levels;
use crate::gateway::servers::rank;
use oxigress_core::model::{HostPattern, SessionPlace, SessionRoute, StreamPort};
use oxigress_objects::Kind;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// A port as clients see it, and an address.
type Port = (StreamPort, Option<IpAddr>);

/// Age and kind of a route.
type Holder = (Age, Kind);

/// The routes that have the sessions of server names, by the places of these; of a place that is closed or left to requests none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SessionHolders(BTreeMap<HostPattern, BTreeMap<Port, Option<Holder>>>);

impl SessionHolders {
    /// Those of all places, by the routes that have some.
    pub fn of(
        places: &BTreeMap<SessionPlace, SessionRoute>,
        mut routes: BTreeMap<SessionPlace, rank::Age>,
    ) -> Self {
        let mut all = SessionHolders::default();
        for place in places.keys() {
            let Some(host) = &place.host else { continue };
            let holder = routes.remove(place);
            let holder = holder.map(|(created, key, kind)| (Age { created, key }, kind));
            let of_host = all.0.entry(host.clone()).or_default();
            of_host.insert((place.port, place.address), holder);
        }
        all
    }

    /// The routes that have the places of just this host.
    pub fn at(&self, host: &HostPattern) -> impl Iterator<Item = &Holder> {
        self.0.get(host).into_iter().flatten().filter_map(|(_, holder)| holder.as_ref())
    }

    /// The routes that have its sessions: on each port that of the most specific place.
    pub fn over(&self, host: &HostPattern) -> impl Iterator<Item = &Holder> {
        let above =
            levels(host).filter_map(|parent| HostPattern::parse(&format!("*{parent}")).ok());
        let hosts = [host.clone()].into_iter().chain(above).chain([HostPattern::default_host()]);
        let mut nearest: BTreeMap<Port, Option<&Holder>> = BTreeMap::new();
        for (port, holder) in hosts.filter_map(|host| self.0.get(&host)).flatten() {
            nearest.entry(*port).or_insert(holder.as_ref());
        }
        nearest.into_values().flatten()
    }
}
