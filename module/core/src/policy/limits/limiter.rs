//! Whether a request is one too many: requests a second, then a minute, then at once, as nginx's `limit_req` and
//! `limit_conn`. What one of the rates refuses is taken back from the other.

use super::{Admission, Bucket, Charge, Overload, Rates, client_network};
use crate::model::policy::{ConnectionLimit, Ipv6Prefix, Limits, RateLimit, Template};
use crate::policy::networks::Networks;
use std::hash::Hasher;
use std::net::IpAddr;
use std::time::Duration;

/// What the limits look at in a request, and where they count it.
pub trait Facts {
    /// The address of the client; `None` over a Unix socket.
    fn client(&self) -> Option<IpAddr>;
    /// The text that a key stands for.
    fn key(&self, key: &Template) -> Vec<u8>;
    /// The requests of all clients by time.
    fn rates(&self) -> Rates<'_>;
    /// Nanoseconds on the clock of [`Facts::rates`].
    fn now(&self) -> u64;
    /// Counts the request as under way for a key until it ends, unless `limit` are. Answers how many requests of other
    /// clients were forgotten for it.
    fn begin(&self, key: u64, limit: u32) -> Result<u64, Overload>;
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on. So many requests of other clients were forgotten for it.
    Admitted {
        /// Requests that were under way.
        forgotten: u64,
    },
    /// It is answered with this status.
    Refused {
        /// The status that a request over the limit is answered with.
        status: u16,
        /// What it is too much for.
        by: Limit,
    },
}

/// A limit that refuses a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// The rate of one second, by so many thousandths of a request above the burst.
    Second(u64),
    /// The rate of one minute, as above.
    Minute(u64),
    /// The limit is of requests at once.
    Connections,
}

/// What a key is counted for.
#[derive(Clone, Copy)]
enum Unit {
    Second = 0,
    Minute = 1,
    Connections = 2,
}

/// How the limits of one set of policies are counted.
pub struct Limiter<H> {
    /// Has read whose limits they are.
    hasher: H,
    key: Option<Template>,
    second: Option<(Bucket, u16)>,
    minute: Option<(Bucket, u16)>,
    connections: Option<ConnectionLimit>,
    exempt: Networks,
    ipv6_prefix: Ipv6Prefix,
}

impl<H: Hasher + Clone> Limiter<H> {
    /// Of these limits. `hasher` is keyed, so that nobody can choose clients that share a place.
    pub fn new(limits: &Limits, mut hasher: H) -> Self {
        hasher.write_usize(limits.owner.len());
        hasher.write(limits.owner.as_bytes());
        let bucket = |limit: RateLimit, unit| {
            (Bucket::new(limit.requests, Duration::from_secs(unit), limit.burst), limit.status)
        };
        Limiter {
            hasher,
            key: limits.key.clone(),
            second: limits.per_second.map(|limit| bucket(limit, 1)),
            minute: limits.per_minute.map(|limit| bucket(limit, 60)),
            connections: limits.connections,
            exempt: Networks::new(&limits.exempt),
            ipv6_prefix: limits.ipv6_prefix,
        }
    }

    /// Counts a request, and decides whether it is one too many.
    pub fn decide(&self, facts: &impl Facts) -> Verdict {
        let Some(client) = self.client(facts) else { return Verdict::Admitted { forgotten: 0 } };
        let key = |unit: Unit| {
            let mut hasher = client.clone();
            hasher.write_u8(unit as u8);
            hasher.finish()
        };
        let rates = facts.rates();
        let take = |unit, bucket: &Bucket| rates.take(key(unit), bucket, || facts.now());
        let mut second: Option<Charge> = None;
        if let Some((bucket, status)) = &self.second {
            match take(Unit::Second, bucket) {
                Admission::Admitted(charge) => second = Some(charge),
                Admission::Refused { excess_milli } => {
                    return Verdict::Refused { status: *status, by: Limit::Second(excess_milli) };
                }
            }
        }
        if let Some((bucket, status)) = &self.minute
            && let Admission::Refused { excess_milli } = take(Unit::Minute, bucket)
        {
            second.iter().for_each(|charge| rates.refund(charge));
            return Verdict::Refused { status: *status, by: Limit::Minute(excess_milli) };
        }
        let Some(limit) = self.connections else { return Verdict::Admitted { forgotten: 0 } };
        match facts.begin(key(Unit::Connections), limit.requests) {
            Ok(forgotten) => Verdict::Admitted { forgotten },
            Err(Overload) => Verdict::Refused { status: limit.status, by: Limit::Connections },
        }
    }

    /// The hash of a client's key; `None`: no limit holds for it.
    fn client(&self, facts: &impl Facts) -> Option<H> {
        let client = facts.client();
        if client.is_some_and(|client| self.exempt.contains(client)) {
            return None;
        }
        let mut hasher = self.hasher.clone();
        match (&self.key, client) {
            (Some(key), _) => {
                let key = facts.key(key);
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
}

#[cfg(test)]
mod tests {
    use super::super::Counts;
    use super::*;
    use serde_json::json;
    use std::hash::DefaultHasher;
    use std::sync::atomic::AtomicU64;

    struct One<'m> {
        client: Option<&'static str>,
        key: &'static str,
        counts: Counts<'m>,
        under_way: u64,
    }

    impl Facts for One<'_> {
        fn client(&self) -> Option<IpAddr> {
            self.client.map(|client| client.parse().unwrap())
        }
        fn key(&self, _: &Template) -> Vec<u8> {
            self.key.into()
        }
        fn rates(&self) -> Rates<'_> {
            *self.counts.rates()
        }
        fn now(&self) -> u64 {
            1
        }
        fn begin(&self, _: u64, limit: u32) -> Result<u64, Overload> {
            if self.under_way < u64::from(limit) { Ok(self.under_way) } else { Err(Overload) }
        }
    }

    fn limiter(limits: serde_json::Value) -> Limiter<DefaultHasher> {
        Limiter::new(&serde_json::from_value(limits).unwrap(), DefaultHasher::new())
    }

    fn with_counts(check: impl FnOnce(One<'_>)) {
        let words: Vec<_> = (0..1024).map(|_| AtomicU64::new(0)).collect();
        let counts = Counts::create(&words, [3, 4], 5).unwrap();
        check(One { client: Some("10.0.0.1"), key: "", counts, under_way: 0 });
    }

    const ADMITTED: Verdict = Verdict::Admitted { forgotten: 0 };

    fn is_refused(verdict: Verdict) -> bool {
        matches!(verdict, Verdict::Refused { .. })
    }

    #[test]
    fn what_the_minute_refuses_is_given_back_to_the_second() {
        with_counts(|one| {
            let rate = |requests| json!({"requests": requests, "burst": 0, "status": 429});
            let limits = json!({"owner": "o", "per_second": rate(1000), "per_minute": rate(0)});
            let limiter = limiter(limits.clone());
            let minute = matches!(
                limiter.decide(&one),
                Verdict::Refused { status: 429, by: Limit::Minute(_) }
            );
            assert!(minute);
            let mut second = limits;
            second["per_minute"] = serde_json::Value::Null;
            assert_eq!(self::limiter(second).decide(&one), ADMITTED, "nothing was counted");
        });
    }

    #[test]
    fn who_is_exempt_or_has_no_key_is_not_counted() {
        with_counts(|mut one| {
            let rate = json!({"requests": 0, "burst": 0, "status": 503});
            let limits = json!({"owner": "o", "per_second": rate, "exempt": ["10.0.0.0/8"]});
            let exempting = limiter(limits);
            assert_eq!(exempting.decide(&one), ADMITTED);
            one.client = Some("192.0.2.1");
            assert!(is_refused(exempting.decide(&one)));
            let keyed = limiter(json!({"owner": "o", "per_second": rate, "key": "$arg_k"}));
            assert_eq!(keyed.decide(&one), ADMITTED);
            one.key = "k";
            assert!(is_refused(keyed.decide(&one)));
        });
    }

    #[test]
    fn requests_at_once_are_counted_last() {
        with_counts(|mut one| {
            let limiter =
                limiter(json!({"owner": "o", "connections": {"requests": 2, "status": 503}}));
            one.under_way = 1;
            assert_eq!(limiter.decide(&one), Verdict::Admitted { forgotten: 1 });
            one.under_way = 2;
            let refused = Verdict::Refused { status: 503, by: Limit::Connections };
            assert_eq!(limiter.decide(&one), refused);
        });
    }
}
