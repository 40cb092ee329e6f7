//! Which annotations a Policy may have: what is said of a host, or of Ingresses among each other, is nothing of a route.

#[cfg(test)]
mod definition;

use super::table::{self, Group};

/// Fields whose values are booleans in the definition of Policies.
const FLAGS: [&str; 18] = [
    "auth-always-set-cookie",
    "auth-keepalive-share-vars",
    "cors-allow-credentials",
    "disable-proxy-intercept-errors",
    "enable-access-log",
    "enable-cors",
    "enable-global-auth",
    "enable-opentelemetry",
    "enable-rewrite-log",
    "http2-push-preload",
    "opentelemetry-trust-incoming-span",
    "relative-redirects",
    "service-upstream",
    "session-cookie-change-on-failure",
    "session-cookie-conditional-samesite-none",
    "session-cookie-secure",
    "upstream-hash-by-subset",
    "use-port-in-redirects",
];

/// Whether the value of a field is a boolean in the definition of Policies.
pub fn is_flag(name: &str) -> bool {
    FLAGS.contains(&name)
}

/// Why a field of this name cannot hold for the requests of a rule, and what to use; `None`: it holds, or nobody knows it.
pub fn refusal(name: &str) -> Option<&'static str> {
    let row = table::find(name)?;
    match row.name {
        "app-root" => Some("use a rule with the path / of type Exact and a RequestRedirect"),
        "from-to-www-redirect" => Some("use a route of the other host with a RequestRedirect"),
        "server-alias" => Some("add the hosts to spec.hostnames of the route"),
        "ssl-redirect" | "force-ssl-redirect" | "preserve-trailing-slash" => Some(
            "use a route at the HTTP listener with a RequestRedirect, and this one at the HTTPS listener",
        ),
        "rewrite-target" | "use-regex" | "x-forwarded-prefix" => {
            Some("paths of routes are no regular expressions: use a URLRewrite")
        }
        "ssl-passthrough" => Some("use a TLSRoute at a listener with tls.mode: Passthrough"),
        "ssl-ciphers" | "ssl-prefer-server-ciphers" => {
            Some("it is a matter of a whole host: use the ConfigMap")
        }
        "server-snippet" | "stream-snippet" => Some("it is a matter of a whole host"),
        _ => match row.group {
            Group::Canary => Some("use weights of backendRefs, or matches with headers"),
            Group::ClientCertificates => Some(
                "client certificates are a matter of a whole host: use an Ingress for the host",
            ),
            _ => None,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_holds_for_hosts_and_canaries_is_refused_and_the_rest_is_not() {
        for name in ["canary", "canary-weight", "auth-tls-secret", "server-alias", "use-regex"] {
            assert!(refusal(name).is_some(), "{name}");
        }
        for name in ["limit-rps", "auth-url", "affinity", "enable-cors", "of-tomorrow"] {
            assert_eq!(refusal(name), None, "{name}");
        }
    }
}
