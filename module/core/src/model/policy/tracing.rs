//! Whether and how the requests of a rule are traced.

use super::{Template, is_false};
use serde::{Deserialize, Serialize};

crate::model::object::objects!(Tracing);

/// How the requests of a rule are traced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[serde(remote = "Self")]
pub struct Tracing {
    /// The name of the server span, with variables; absent: the method and the rule's path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation: Option<Template>,
    /// A trace that the client sends is continued; otherwise every request begins one.
    #[serde(skip_serializing_if = "is_true")]
    pub trusts_client: bool,
    /// Whether a continued trace is sampled is the client's decision.
    #[serde(skip_serializing_if = "is_true")]
    pub follows_parent: bool,
    /// How many of the other traces are sampled.
    pub sampling: Sampling,
    /// The headers that carry the trace to endpoints.
    #[serde(skip_serializing_if = "is_default")]
    pub propagation: Propagation,
}

impl Default for Tracing {
    fn default() -> Self {
        Tracing {
            operation: None,
            trusts_client: true,
            follows_parent: true,
            sampling: Sampling::ALL,
            propagation: Propagation::W3c,
        }
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's form")]
fn is_true(flag: &bool) -> bool {
    !is_false(flag)
}

fn is_default(propagation: &Propagation) -> bool {
    *propagation == Propagation::default()
}

/// Which headers carry a trace context to endpoints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Propagation {
    /// `traceparent` of W3C Trace Context.
    #[default]
    W3c,
    /// `b3`, Zipkin's single header.
    B3,
    /// `X-B3-TraceId`, `X-B3-SpanId` and `X-B3-Sampled`.
    B3Multi,
}

/// The share of traces that is sampled, in billionths: 0 to 1,000,000,000.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct Sampling(u32);

impl Sampling {
    /// Every trace is sampled.
    pub const ALL: Sampling = Sampling(1_000_000_000);
    /// No trace is sampled; contexts are sent all the same.
    pub const NONE: Sampling = Sampling(0);

    /// A ratio from 0 to 1; `None` for another number.
    pub fn ratio(ratio: f64) -> Option<Sampling> {
        (0.0..=1.0).contains(&ratio).then(|| Sampling((ratio * 1e9).round() as u32))
    }

    /// Whether a trace is sampled: decided by the lower 63 bits of its id, so that all who know the ratio decide alike.
    ///
    /// Source: OpenTelemetry's `TraceIdRatioBased` as its libraries have it.
    pub fn takes(self, low_bits: u64) -> bool {
        let bound = (u128::from(self.0) << 63) / 1_000_000_000;
        u128::from(low_bits) < bound
    }
}

impl TryFrom<u32> for Sampling {
    type Error = crate::model::Invalid;

    fn try_from(billionths: u32) -> Result<Self, Self::Error> {
        match billionths {
            0..=1_000_000_000 => Ok(Sampling(billionths)),
            _ => Err(crate::model::Invalid::new(format!(
                "sampling {billionths} is not 0 to 1000000000 billionths"
            ))),
        }
    }
}

impl From<Sampling> for u32 {
    fn from(sampling: Sampling) -> u32 {
        sampling.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_takes_its_share_of_the_traces() {
        let share = |ratio| {
            let sampling = Sampling::ratio(ratio).unwrap();
            let ids = (0..10_000u64).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 1);
            ids.filter(|id| sampling.takes(*id)).count()
        };
        assert_eq!((share(0.0), share(1.0)), (0, 10_000));
        assert!((4_900..5_100).contains(&share(0.5)), "{}", share(0.5));
        assert!((80..120).contains(&share(0.01)), "{}", share(0.01));
        assert!([-0.1, 1.1, f64::NAN].map(Sampling::ratio).iter().all(Option::is_none));
    }
}
