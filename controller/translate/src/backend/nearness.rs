//! Endpoints that are meant for this node or zone, where their Service asks for such.
//!
//! Hints only ever narrow what is used while that leaves something: where one ready endpoint has none, or none is meant
//! for this place, all are used.
//!
//! Source:  ingress-nginx's controller; kube-proxy's topology.go, which also decides about all slices of a Service at once.
//!          The reference decides slice by slice, and knows PreferClose alone.

use crate::Options;
use oxigress_core::model::Endpoint;
use oxigress_objects::service::{Hints, Nearness};

/// For whom an endpoint is meant, seen from here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Near {
    node: Hint,
    zone: Hint,
}

/// The order is that of [`Near::or`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Hint {
    Elsewhere,
    /// Nobody says which endpoints are near.
    #[default]
    None,
    Here,
}

impl Near {
    /// By the hints of an endpoint; without `--enable-topology-aware-routing` nobody knows where here is.
    pub fn of(options: &Options, hints: Option<&Hints>) -> Self {
        let Some(hints) = hints else { return Near::default() };
        let hint = |names: &[String], own: &Option<String>| match own {
            _ if names.is_empty() => Hint::None,
            Some(own) if names.contains(own) => Hint::Here,
            _ => Hint::Elsewhere,
        };
        Near { node: hint(&hints.nodes, &options.node), zone: hint(&hints.zones, &options.zone) }
    }

    /// Of an endpoint that stands twice.
    pub fn or(self, other: Near) -> Self {
        Near { node: self.node.max(other.node), zone: self.zone.max(other.zone) }
    }
}

/// The endpoints to use. Those that drain stay: they get requests only when no other is left.
pub fn choose(all: Vec<(Endpoint, Near)>, prefers: Option<Nearness>) -> Vec<Endpoint> {
    let is_usable = |hint: fn(&Near) -> Hint| {
        let mut ready = all.iter().filter(|(endpoint, _)| !endpoint.draining);
        ready.clone().all(|(_, near)| hint(near) != Hint::None)
            && ready.any(|(_, near)| hint(near) == Hint::Here)
    };
    let node: fn(&Near) -> Hint = |near| near.node;
    let zone: fn(&Near) -> Hint = |near| near.zone;
    let hint = match prefers {
        Some(Nearness::Node) if is_usable(node) => Some(node),
        Some(_) if is_usable(zone) => Some(zone),
        _ => None,
    };
    let is_used = |(endpoint, near): &(Endpoint, Near)| {
        endpoint.draining || hint.is_none_or(|hint| hint(near) == Hint::Here)
    };
    all.into_iter().filter(is_used).map(|(endpoint, _)| endpoint).collect()
}
