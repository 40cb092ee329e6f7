//! The values of `load-balance`, in annotations and in the ConfigMap.
//!
//! Source:  ingress-nginx's annotations.

use oxigress_core::model::Algorithm;

/// The meaning of a value of load-balance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadBalance {
    /// The value names an algorithm.
    Algorithm(Algorithm),
    /// What upstream-hash-by asks for by itself.
    Hash,
    /// What affinity asks for by itself.
    Sticky,
}

/// The values of load-balance that ingress-nginx takes, and ours.
pub const LOAD_BALANCE: &[(&str, LoadBalance)] = &[
    ("round_robin", LoadBalance::Algorithm(Algorithm::RoundRobin)),
    ("ewma", LoadBalance::Algorithm(Algorithm::Ewma)),
    ("least_conn", LoadBalance::Algorithm(Algorithm::LeastConn)),
    ("p2c", LoadBalance::Algorithm(Algorithm::P2c)),
    ("chash", LoadBalance::Hash),
    ("chashsubset", LoadBalance::Hash),
    ("sticky_balanced", LoadBalance::Sticky),
    ("sticky_persistent", LoadBalance::Sticky),
];
