//! Annotations that ingress-nginx 1.15 does not know, and guides still show: those of its older versions, and keys of the
//! ConfigMap that are taken for annotations.
//!
//! Source:  ingress-nginx's changelog; what an old name meant is honoured where that opens nothing.

use oxigress_settings::keys;

/// What to do about one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Old {
    /// It stands for another annotation with this value, while that one is not there: what to write.
    For(&'static str, &'static str),
    /// It says what holds anyway: nothing is said about it.
    Anyway,
    /// It has no effect: why, and what to do.
    Gone(&'static str),
    /// It is no annotation but a key of the main ConfigMap.
    Key,
}

use Old::{Anyway, For, Gone, Key};

const OPENTRACING: Old = Gone("OpenTracing ended with 1.10: use enable-opentelemetry");
const INFLUXDB: Old = Gone("it ended with 1.0: read the metrics of Prometheus");
const GLOBAL_LIMIT: Old =
    Gone("it ended with 1.12: use limit-rps or limit-rpm, which count for all workers of a pod");
const RESTY_WAF: Old =
    Gone("lua-resty-waf ended with 0.24: put a web application firewall before the gateway");
const FAILS: Old = Gone("it ended with 0.24: use proxy-next-upstream");

/// The old annotations by their whole names.
const NAMES: [(&str, Old); 18] = [
    (
        "add-base-url",
        Gone("it ended with 0.22: let the application write its links, or use x-forwarded-prefix"),
    ),
    ("base-url-scheme", Gone("it ended with 0.22: let the application write its links")),
    ("client-max-body-size", Gone("write proxy-body-size")),
    ("enable-dynamic-tls-records", Gone("it ended with 0.20: remove it")),
    ("enable-influxdb", INFLUXDB),
    ("enable-opentracing", OPENTRACING),
    ("enable-rewrite-logs", Gone("write enable-rewrite-log")),
    ("enable-websockets", Anyway),
    ("grpc-backend", For("backend-protocol", "GRPC")),
    ("mirror-uri", Gone("it ended with 0.25: use mirror-target")),
    ("secure-backends", For("backend-protocol", "HTTPS")),
    (
        "secure-verify-ca-secret",
        Gone("it ended with 0.21: use proxy-ssl-secret with proxy-ssl-verify: \"on\""),
    ),
    ("session-cookie-hash", Gone("it ended with 0.24: remove it, cookies are always hashed")),
    ("upstream-fail-timeout", FAILS),
    ("upstream-max-fails", FAILS),
    ("use-port-in-redirect", Gone("write use-port-in-redirects")),
    ("vts-filter-key", Gone("it ended with 0.16: read the metrics of Prometheus")),
    ("websocket-services", Anyway),
];
/// The old annotations by what their names begin with.
const PREFIXES: [(&str, Old); 4] = [
    ("global-rate-limit", GLOBAL_LIMIT),
    ("influxdb-", INFLUXDB),
    ("lua-resty-waf", RESTY_WAF),
    ("opentracing-", OPENTRACING),
];

/// What is known of a name that is no annotation now; `None`: nobody has heard of it.
pub fn find(name: &str) -> Option<Old> {
    let whole = NAMES.iter().find(|(known, _)| *known == name);
    let begun = || PREFIXES.iter().find(|(known, _)| name.starts_with(known));
    whole.or_else(begun).map(|(_, old)| *old).or_else(|| keys::find(name).map(|_| Key))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::annotation::table;

    #[test]
    fn an_old_name_is_none_of_today_and_leads_to_one() {
        for (name, old) in NAMES {
            assert!(table::find(name).is_none() && !table::protects(name), "{name}");
            if let For(new, _) = old {
                assert!(table::find(new).is_some(), "{name}");
            }
        }
        assert_eq!(find("opentracing-trust-incoming-span"), Some(OPENTRACING));
        assert_eq!(find("large-client-header-buffers"), Some(Key));
        assert_eq!(find("colour"), None);
    }
}
