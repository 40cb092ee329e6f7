//! Request metrics: the counters of each rule, and their text for Prometheus.
//!
//! * [`observe`]: one request, into the cell of its rule.
//! * [`Buckets`]: the bounds of the histograms.
//! * [`Exposition`]: the text of many cells, formatted by [`Options`].
//!
//! Series are bounded by what is configured: a rule has one cell of [`WORDS`] words, whatever clients send.
//! Source: ingress-nginx's metrics.

mod buckets;
mod cell;
mod query;
mod text;

pub use buckets::{Buckets, InvalidBuckets, MAX_LENGTH_BOUNDS, MAX_SIZE_BOUNDS, MAX_TIME_BOUNDS};
pub use cell::{Attempts, Method, Observation, WORDS, observe};
pub use query::InvalidQuery;
pub use text::{
    Exposition, FAMILIES, Labels, Options, PREFIX, labels, number, sample, title, with_constant,
};
