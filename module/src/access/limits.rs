//! PREACCESS: whether a request is one too many ([`limiter`] decides), and how fast its answer may be.
//!
//! Answers of the REWRITE phase never come here.

use crate::request::Request;
use crate::request::policies::Compiled;
use crate::system::memory::monotonic_milliseconds;
use crate::system::memory::monotonic_nanoseconds;
use oxigress_core::model::policy::{Limits, Template};
use oxigress_core::policy::limits::limiter::{self, Limit, Verdict};
use oxigress_core::policy::limits::{Counts, Overload, Rates};
use oxigress_core::text::template;
use siphasher::sip::SipHasher13;
use std::cell::{Cell, OnceCell};
use std::net::IpAddr;

/// A cause is written down this often.
const LOG_PAUSE_MS: u64 = 10_000;
/// Of an owner's name in the log.
const MAX_LOGGED: usize = 256;

/// How the limits of one set of policies are counted, and when that was last told.
pub struct Limiter {
    limiter: limiter::Limiter<SipHasher13>,
    refusing: Throttle,
    forgetting: Throttle,
}

/// Of one cause: when it was logged last, and how often it was not since.
#[derive(Default)]
pub struct Throttle {
    logged_ms: Cell<u64>,
    unlogged: Cell<u64>,
}

/// nginx's request, as limits look at it.
struct Facts<'a, 'r> {
    request: &'a Request<'r>,
    counts: &'a Counts<'static>,
}

impl limiter::Facts for Facts<'_, '_> {
    fn client(&self) -> Option<IpAddr> {
        self.request.client()
    }

    fn key(&self, key: &Template) -> Vec<u8> {
        template::bytes(key.parts(), self.request)
    }

    fn rates(&self) -> Rates<'_> {
        *self.counts.rates()
    }

    fn now(&self) -> u64 {
        monotonic_nanoseconds()
    }

    fn begin(&self, key: u64, limit: u32) -> Result<u64, Overload> {
        self.request.begin_limited(key, limit)
    }
}

impl Limiter {
    fn new(limits: &Limits, counts: &Counts<'static>) -> Self {
        let [a, b] = counts.hash_key();
        let hasher = SipHasher13::new_with_keys(a, b);
        Limiter {
            limiter: limiter::Limiter::new(limits, hasher),
            refusing: Throttle::default(),
            forgetting: Throttle::default(),
        }
    }

    #[cold]
    fn log(&self, request: &Request<'_>, limits: &Limits, verdict: Verdict) {
        let owner = shown(&limits.owner);
        let log_rate = |excess: u64, unit| {
            let (whole, milli) = (excess / 1_000, excess % 1_000);
            let line = format_args!(
                "limiting requests a {unit}, excess: {whole}.{milli:03} by \"{owner}\""
            );
            self.refusing.log(request, line);
        };
        match verdict {
            Verdict::Admitted { .. } => {
                let line = format_args!(
                    "zone \"ingress_limits\" is full: the counters of the least active client were dropped for limits of \
                     \"{owner}\"; raise the size of ingress_limits"
                );
                self.forgetting.log(request, line);
            }
            Verdict::Refused { by: Limit::Second(excess), .. } => log_rate(excess, "second"),
            Verdict::Refused { by: Limit::Minute(excess), .. } => log_rate(excess, "minute"),
            Verdict::Refused { by: Limit::Connections, .. } => {
                self.refusing.log(request, format_args!("limiting connections by \"{owner}\""));
            }
        }
    }
}

impl Throttle {
    /// Writes a line, unless one was written lately.
    #[cold]
    pub fn log(&self, request: &Request<'_>, what: std::fmt::Arguments<'_>) {
        let now = monotonic_milliseconds();
        let last = self.logged_ms.get();
        if last != 0 && now.saturating_sub(last) < LOG_PAUSE_MS {
            self.unlogged.set(self.unlogged.get().saturating_add(1));
            return;
        }
        self.logged_ms.set(now.max(1));
        match self.unlogged.replace(0) {
            0 => request.log_error(what),
            more => request.log_error(format_args!("{what} ({more} similar messages suppressed)")),
        }
    }
}

/// An owner of limits as a log line has it.
fn shown(owner: &str) -> impl std::fmt::Display {
    owner.get(..MAX_LOGGED).unwrap_or(owner).escape_debug()
}

/// Applies the limits of a request's policies; the status of a refusal.
pub fn decide(request: &Request<'_>, policies: &Compiled) -> Option<u16> {
    let limits = policies.source.limits.as_ref().filter(|_| request.is_main())?;
    if limits.response_rate.is_some() || limits.response_rate_after.is_some() {
        let inner = request.if_location();
        let rate = inner.and_then(|inner| inner.response_rate).or(limits.response_rate);
        let after = inner.and_then(|inner| inner.response_rate_after);
        request.limit_response(rate, after.or(limits.response_rate_after));
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
    let limiter = policies.part::<OnceCell<Limiter>>().get_or_init(|| Limiter::new(limits, counts));
    let verdict = limiter.limiter.decide(&Facts { request, counts });
    match verdict {
        Verdict::Admitted { forgotten: 0 } => None,
        Verdict::Admitted { .. } => {
            limiter.log(request, limits, verdict);
            None
        }
        Verdict::Refused { status, .. } => {
            limiter.log(request, limits, verdict);
            Some(status)
        }
    }
}

/// The limits of a request were applied.
#[derive(Default)]
pub struct Applied(Cell<bool>);

impl Request<'_> {
    /// `true` the first time, also if it was redirected internally since.
    fn is_unlimited_yet(&self) -> bool {
        self.part::<Applied>().is_some_and(|applied| !applied.0.replace(true))
    }
}
