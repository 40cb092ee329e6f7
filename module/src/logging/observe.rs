//! Metrics: the directive, and the LOG phase, where a request has ended and is counted.

use crate::conf::directive::core_conf;
use crate::conf::directive::refuse;
use crate::request::Request;
use crate::request::spans;
use crate::zone::counters::{self, Counter};
use nginx::{Code, Conf, Next, PhaseHandler, Refused, State};
use oxigress_core::telemetry::metrics::{Attempts, Buckets, Observation};

/// `ingress_metrics [time=SECONDS,...] [length=BYTES,...] [size=BYTES,...];`
pub fn ingress_metrics(conf: &mut Conf) -> Result<(), Refused> {
    if core_conf(conf)?.metrics.is_some() {
        return Err(Refused::DUPLICATE);
    }
    match buckets(conf.arguments().iter().skip(1).map(|argument| argument.bytes())) {
        Ok(buckets) => core_conf(conf)?.metrics = Some(buckets),
        Err(reason) => return Err(refuse(conf, reason)),
    }
    Ok(())
}

fn buckets<'a>(arguments: impl Iterator<Item = &'a [u8]>) -> Result<Buckets, String> {
    let mut buckets = Buckets::default();
    for argument in arguments {
        let text = String::from_utf8_lossy(argument);
        let taken = match text.split_once('=') {
            Some(("time", bounds)) => buckets.with_time(bounds),
            Some(("length", bounds)) => buckets.with_length(bounds),
            Some(("size", bounds)) => buckets.with_size(bounds),
            _ => {
                let shown = text.escape_debug();
                return Err(format!(
                    "invalid parameter \"{shown}\": write time=, length= or size="
                ));
            }
        };
        buckets = taken.map_err(|error| error.to_string())?;
    }
    Ok(buckets)
}

/// Counts a request that has ended.
pub struct Log;

impl PhaseHandler for Log {
    const NAME: &'static str = "log";
    const PANICKED: Code = Code::OK;

    fn run(request: &nginx::Request) -> Next<'_> {
        let Some(seen) = Request::of(request) else { return Code::OK.into() };
        let worker = seen.worker();
        if let (Some(counter), Some(buckets)) = (seen.counter(), worker.buckets()) {
            observe(&seen, buckets, &counter);
        }
        if seen.is_traced() {
            spans::finish(&seen);
        }
        Code::OK.into()
    }
}

/// Not in line: without metrics nobody pays for its frame.
#[inline(never)]
fn observe(request: &Request<'_>, buckets: &Buckets, counter: &Counter) {
    counters::observe(request.worker().reader(), buckets, counter, &observation(request));
}

#[inline]
fn observation(request: &Request<'_>) -> Observation {
    let seen = request.nginx();
    Observation {
        method_mask: seen.method_bit(),
        status: request.status().unwrap_or(0),
        request_ms: request.elapsed_ms(),
        request_bytes: request.length(),
        response_bytes: u64::try_from(seen.connection().sent()).unwrap_or(0),
        attempts: attempts(seen.upstream_states()),
    }
}

#[inline]
fn attempts<'r>(states: impl Iterator<Item = &'r State>) -> Attempts {
    let mut all = Attempts::default();
    let add = |sum: &mut Option<u64>, time: Option<u64>| {
        if let Some(time) = time {
            *sum = Some(sum.unwrap_or(0).saturating_add(time));
        }
    };
    for state in states.filter(|state| state.has_peer()) {
        add(&mut all.response_ms, state.response_milliseconds());
        add(&mut all.connect_ms, state.connect_milliseconds());
        add(&mut all.header_ms, state.header_milliseconds());
    }
    all
}
