//! PREACCESS: whether a request is one too many, and how fast its answer may be.
//!
//! Requests a second, then a minute, then at once, as nginx's `limit_req` and `limit_conn`. What one of the rates
//! refuses is taken back from the other. Answers of the REWRITE phase never come here.

use crate::ffi::{Request, monotonic_milliseconds, monotonic_nanoseconds};
use crate::policy::Compiled;
use oxigress_core::model::policy::{Ipv6Prefix, Limits, RateLimit, Template};
use oxigress_core::policy::limits::{Admission, Bucket, Charge, Counts, Overload, client_network};
use oxigress_core::policy::networks::Networks;
use oxigress_core::text::template;
use siphasher::sip::SipHasher13;
use std::cell::Cell;
use std::hash::Hasher;
use std::net::IpAddr;
use std::time::Duration;

/// A cause is written down this often.
const LOG_PAUSE_MS: u64 = 10_000;
/// Of an owner's name in the log.
const MAX_LOGGED: usize = 256;

/// How the limits of one set of policies are counted.
pub struct Limiter {
    counts: Counts<'static>,
    /// Has read whose limits they are.
    hasher: SipHasher13,
    second: Option<(Bucket, u16)>,
    minute: Option<(Bucket, u16)>,
    exempt: Networks,
    ipv6_prefix: Ipv6Prefix,
    refusing: Throttle,
    forgetting: Throttle,
}

/// Of one cause: when it was logged last, and how often it was not since.
#[derive(Default)]
struct Throttle {
    logged_ms: Cell<u64>,
    unlogged: Cell<u64>,
}

/// What a key is counted for.
#[derive(Clone, Copy)]
enum Unit {
    Second = 0,
    Minute = 1,
    Connections = 2,
}

impl Limiter {
    fn new(limits: &Limits, counts: &Counts<'static>) -> Self {
        let [a, b] = counts.hash_key();
        let mut hasher = SipHasher13::new_with_keys(a, b);
        hasher.write_usize(limits.owner.len());
        hasher.write(limits.owner.as_bytes());
        let bucket = |limit: RateLimit, unit| {
            (Bucket::new(limit.requests, Duration::from_secs(unit), limit.burst), limit.status)
        };
        Limiter {
            counts: *counts,
            hasher,
            second: limits.per_second.map(|limit| bucket(limit, 1)),
            minute: limits.per_minute.map(|limit| bucket(limit, 60)),
            exempt: Networks::new(&limits.exempt),
            ipv6_prefix: limits.ipv6_prefix,
            refusing: Throttle::default(),
            forgetting: Throttle::default(),
        }
    }

    /// The hash of a client's key; `None`: no limit holds for it.
    fn hasher_of(&self, request: &Request<'_>, key: Option<&Template>) -> Option<SipHasher13> {
        let client = request.client();
        if client.is_some_and(|client| self.exempt.contains(client)) {
            return None;
        }
        let mut hasher = self.hasher;
        match (key, client) {
            (Some(key), _) => {
                let key = template::bytes(key.parts(), request);
                if key.is_empty() {
                    return None;
                }
                hasher.write(&key);
            }
            (None, Some(client)) => match client_network(client, self.ipv6_prefix) {
                IpAddr::V4(client) => hasher.write(&client.octets()),
                IpAddr::V6(client) => hasher.write(&client.octets()),
            },
            // As nginx calls it.
            (None, None) => hasher.write(b"unix:"),
        }
        Some(hasher)
    }

    /// The status of a refusal, if it is one.
    fn refuse(&self, request: &Request<'_>, limits: &Limits) -> Option<u16> {
        let client = self.hasher_of(request, limits.key.as_ref())?;
        let key = |unit: Unit| {
            let mut hasher = client;
            hasher.write_u8(unit as u8);
            hasher.finish()
        };
        let rates = self.counts.rates();
        let take = |unit, bucket: &Bucket| rates.take(key(unit), bucket, monotonic_nanoseconds);
        let mut second: Option<Charge> = None;
        if let Some((bucket, status)) = &self.second {
            match take(Unit::Second, bucket) {
                Admission::Admitted(taken) => second = Some(taken),
                Admission::Refused { excess_milli } => {
                    self.log_rate(request, limits, excess_milli, "second");
                    return Some(*status);
                }
            }
        }
        if let Some((bucket, status)) = &self.minute
            && let Admission::Refused { excess_milli } = take(Unit::Minute, bucket)
        {
            second.iter().for_each(|taken| rates.refund(taken));
            self.log_rate(request, limits, excess_milli, "minute");
            return Some(*status);
        }
        let connections = limits.connections?;
        match request.begin_limited(key(Unit::Connections), connections.requests) {
            Ok(0) => None,
            Ok(_) => {
                let what = "\"ingress_limits\" is too small: the client with the fewest requests was forgotten";
                self.forgetting.log(request, limits, format_args!("{what}, for a request limited"));
                None
            }
            Err(Overload) => {
                self.refusing.log(request, limits, format_args!("limiting connections"));
                Some(connections.status)
            }
        }
    }

    #[cold]
    fn log_rate(&self, request: &Request<'_>, limits: &Limits, excess: u64, unit: &str) {
        let (whole, milli) = (excess / 1_000, excess % 1_000);
        let line = format_args!("limiting requests a {unit}, excess: {whole}.{milli:03}");
        self.refusing.log(request, limits, line);
    }
}

impl Throttle {
    #[cold]
    fn log(&self, request: &Request<'_>, limits: &Limits, what: std::fmt::Arguments<'_>) {
        let now = monotonic_milliseconds();
        let last = self.logged_ms.get();
        if last != 0 && now.saturating_sub(last) < LOG_PAUSE_MS {
            self.unlogged.set(self.unlogged.get().saturating_add(1));
            return;
        }
        self.logged_ms.set(now.max(1));
        let shown = limits.owner.get(..MAX_LOGGED).unwrap_or(&limits.owner).escape_debug();
        match self.unlogged.replace(0) {
            0 => request.log_error(format_args!("{what} by \"{shown}\"")),
            more => request.log_error(format_args!("{what} by \"{shown}\", and {more} before")),
        }
    }
}

/// Applies the limits of a request's policies; the status of a refusal.
pub fn decide(request: &Request<'_>, policies: &Compiled) -> Option<u16> {
    let limits = policies.source.limits.as_ref().filter(|_| request.is_main())?;
    if limits.response_rate.is_some() || limits.response_rate_after.is_some() {
        request.limit_response(limits.response_rate, limits.response_rate_after);
    }
    let Limits { per_second, per_minute, connections, .. } = limits;
    let is_counted = per_second.is_some() || per_minute.is_some() || connections.is_some();
    if !is_counted || !request.is_unlimited_yet() {
        return None;
    }
    let Some(counts) = request.worker().counts() else {
        request.log_error(format_args!("limits need an \"ingress_limits SIZE;\" in nginx.conf"));
        return Some(503);
    };
    policies.limiter.get_or_init(|| Limiter::new(limits, counts)).refuse(request, limits)
}
