//! Annotations that limit how often and how fast.
//!
//! Source:  ingress-nginx's annotations. A limit that cannot be read closes; its multiplier, exemptions and the rate of
//!          responses have defaults that let nobody in more often.

use crate::annotation::reader::{Reader, networks};
use oxigress_core::model::policy::{ConnectionLimit, Ipv6Prefix, Limits, Policies, RateLimit};

/// The reference's burst, in multiples of the rate.
const BURST: u32 = 5;
const MOST: i64 = 1_000_000_000;

/// Reads the annotations of this group; what is invalid is noted.
pub fn read(reader: &mut Reader<'_>, policies: &mut Policies) {
    let mut limits = policies.limits.take().unwrap_or_default();
    let statuses = (
        reader.context.defaults.limit_request_status,
        reader.context.defaults.limit_connection_status,
    );
    let burst = reader.number("limit-burst-multiplier", 1, MOST).unwrap_or(BURST);
    let number = |text: &str| text.parse::<u32>().ok().filter(|n| i64::from(*n) <= MOST);
    let mut limit = |name| {
        let limit = reader.parsed_or_closed(name, "a number from 0 on", number);
        limit.filter(|limit| *limit > 0)
    };
    let (refused, too_many) = statuses;
    let rate = |requests: u32| RateLimit {
        requests,
        burst: requests.saturating_mul(burst),
        status: refused,
    };
    limits.per_second = limit("limit-rps").map(rate);
    limits.per_minute = limit("limit-rpm").map(rate);
    limits.connections =
        limit("limit-connections").map(|requests| ConnectionLimit { requests, status: too_many });
    let name = reader.name_or_alias("limit-allowlist", "limit-whitelist");
    let exempt = reader.parsed(name, "a list of addresses and networks", networks);
    limits.exempt = exempt.unwrap_or_default();
    let kib = |number: u64| number.checked_mul(1_024);
    for (name, into) in [
        ("limit-rate", &mut limits.response_rate),
        ("limit-rate-after", &mut limits.response_rate_after),
    ] {
        if let Some(number) = reader.number(name, 0, MOST) {
            *into = kib(number).filter(|bytes| *bytes > 0);
        }
    }
    let counts =
        limits.per_second.is_some() || limits.per_minute.is_some() || limits.connections.is_some();
    if !counts {
        limits.exempt.clear();
        limits.key = None;
        limits.ipv6_prefix = Ipv6Prefix::default();
    } else {
        limits.owner = reader.context.ingress.to_string();
    }
    policies.limits = Some(limits).filter(|limits| *limits != Limits::default());
}
