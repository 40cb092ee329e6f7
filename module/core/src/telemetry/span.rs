//! Spans of requests: which trace a request belongs to, what is remembered of it, and the queue to the exporter.
//!
//! Shape:   [`begin`] continues the client's trace or starts one, and samples it. The module sends [`Context`]s to endpoints,
//!          auth servers and mirrors, and writes one [`Finished`] for each sampled request into a [`Ring`] in shared
//!          memory. The controller takes them out and exports them: one server span each, and a client span for each call.
//! Units:   times are milliseconds, as nginx has them; a start is counted from the Unix epoch.
//! Errors:  a context that cannot be read is none, as W3C Trace Context wants it; a full ring drops and counts.
//! Source:  W3C Trace Context 1, B3 propagation, OpenTelemetry's semantic conventions for HTTP.

mod context;
mod finished;
mod ring;

pub use context::{Context, SpanId, TraceId, is_trace_state};
pub use finished::{Call, CallKind, Finished, MAX_BYTES};
pub use ring::{Ring, TAKE_BYTES};

use crate::model::policy::Tracing;

/// The trace of a request, as decided when it arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begun {
    /// The request's own server span.
    pub own: Context,
    /// The span of the client that it belongs to; `None`: the request begins its trace.
    pub parent: Option<SpanId>,
}

/// Continues the client's trace where the policy trusts it, else begins one, and decides whether it is sampled. `random`
/// gives random numbers.
pub fn begin(policy: &Tracing, client: Option<Context>, mut random: impl FnMut() -> u64) -> Begun {
    let client = client.filter(|_| policy.trusts_client);
    let trace = client.map_or_else(|| TraceId::new([random(), random()]), |client| client.trace);
    let is_sampled = match client {
        Some(client) if policy.follows_parent => client.is_sampled,
        _ => policy.sampling.takes(trace.low_bits()),
    };
    let own = Context { trace, span: SpanId::new(random()), is_sampled };
    Begun { own, parent: client.map(|client| client.span) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::policy::Sampling;

    const CLIENT: &[u8] = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";

    fn counting() -> impl FnMut() -> u64 {
        let mut last = 0;
        move || {
            last += 1;
            last
        }
    }

    #[test]
    fn a_trusted_client_decides_and_its_trace_goes_on() {
        let policy = Tracing { sampling: Sampling::ALL, ..Tracing::default() };
        let client = Context::from_traceparent(CLIENT);
        let begun = begin(&policy, client, counting());
        assert_eq!(begun.own.trace, client.unwrap().trace);
        assert_eq!(begun.parent, Some(client.unwrap().span));
        assert!(!begun.own.is_sampled, "the client does not sample");
        let policy = Tracing { follows_parent: false, ..policy };
        assert!(begin(&policy, client, counting()).own.is_sampled);
    }

    #[test]
    fn a_client_that_is_not_trusted_is_not_heard() {
        let policy = Tracing { trusts_client: false, ..Tracing::default() };
        let client = Context::from_traceparent(CLIENT);
        let begun = begin(&policy, client, counting());
        assert_eq!(begun.parent, None);
        assert_ne!(begun.own.trace, client.unwrap().trace);
        assert!(begun.own.is_sampled);
    }
}
