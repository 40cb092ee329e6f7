//! All annotations of ingress-nginx, and what becomes of each: the one table behind verdicts, `oxigress check` and
//! docs/annotations.md.
//!
//! Source:  ingress-nginx's annotations.

pub(super) mod old;

/// An annotation of ingress-nginx and what becomes of it.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The name of the annotation without its prefix.
    pub name: &'static str,
    /// The table of docs/annotations.md in which the row stands.
    pub group: Group,
    /// What becomes of the annotation.
    pub status: Status,
}

/// The tables of docs/annotations.md.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "titles of the table in docs/annotations.md")]
pub enum Group {
    Paths,
    Proxying,
    Responses,
    Balancing,
    Canary,
    BasicAuth,
    ExternalAuth,
    ClientCertificates,
    Networks,
    Limits,
    Cors,
    Tls,
    Observability,
    Snippets,
}

/// What becomes of an annotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The annotation means what it means in ingress-nginx.
    Same,
    /// Honoured, and this is different.
    Different(&'static str),
    /// Not honoured: why, and what instead.
    Unsupported(&'static str),
}

use Group::*;
use Status::{Different, Same, Unsupported};

const fn row(name: &'static str, group: Group, status: Status) -> Row {
    Row { name, group, status }
}

const WAF: Status =
    Unsupported("no web application firewall: put one before or behind the gateway");
const SHARED: Status = Different("each Ingress keeps what it says about a Service");
const CLOSES: Status =
    Different("an invalid value closes the locations, in place of the whole Ingress or nothing");
const SNIPPET: Status = Unsupported(
    "directives are not passed to nginx: served without them, or closed with 503 if they may restrict access; use annotations",
);
const OWNED: Status =
    Different("only the host's owner, the namespace of its oldest Ingress, has it");
const KEPT: Status =
    Different("accepted without effect: connections to auth servers are always kept");

/// All of them, by group.
pub const ROWS: &[Row] = &[
    row("app-root", Paths, OWNED),
    row("force-ssl-redirect", Paths, Same),
    row(
        "from-to-www-redirect",
        Paths,
        Different("the target has no port; only the host's owner has it"),
    ),
    row("permanent-redirect", Paths, Different("an invalid URL closes the locations")),
    row("permanent-redirect-code", Paths, Different("an invalid code is 301")),
    row("preserve-trailing-slash", Paths, Same),
    row("relative-redirects", Paths, Same),
    row(
        "rewrite-target",
        Paths,
        Different("regular expressions hold for the Ingress's own paths, not for the whole host"),
    ),
    row(
        "server-alias",
        Paths,
        Different(
            "no regular expressions; `*.` stands for one label; only the host's owner gives any",
        ),
    ),
    row("ssl-redirect", Paths, Same),
    row(
        "temporal-redirect",
        Paths,
        Different("an invalid URL closes the locations; a path is taken, as in permanent-redirect"),
    ),
    row("temporal-redirect-code", Paths, Different("an invalid code is 302")),
    row("upstream-vhost", Paths, Different("an invalid value is the client's Host")),
    row("use-port-in-redirects", Paths, Same),
    row(
        "use-regex",
        Paths,
        Different(
            "holds for the Ingress's own paths, not for the whole host; Exact paths stay exact",
        ),
    ),
    row("x-forwarded-prefix", Paths, Same),
    row("backend-protocol", Proxying, Different("any case means the same")),
    row("client-body-buffer-size", Proxying, Same),
    row("connection-proxy-header", Proxying, Same),
    row("fastcgi-index", Proxying, Same),
    row(
        "fastcgi-params-configmap",
        Proxying,
        Different("another namespace closes the locations; edits of the ConfigMap count at once"),
    ),
    row(
        "http2-push-preload",
        Proxying,
        Different("accepted without effect, as with current nginx"),
    ),
    row("proxy-body-size", Proxying, Same),
    row("proxy-buffer-size", Proxying, Different("with `proxy-buffers-number` at most 16m")),
    row("proxy-buffering", Proxying, Same),
    row(
        "proxy-buffers-number",
        Proxying,
        Different("2 to 1024, with `proxy-buffer-size` at most 16m"),
    ),
    row("proxy-busy-buffers-size", Proxying, Different("at most 64m")),
    row("proxy-connect-timeout", Proxying, Same),
    row("proxy-cookie-domain", Proxying, Same),
    row("proxy-cookie-path", Proxying, Same),
    row("proxy-http-version", Proxying, Same),
    row("proxy-max-temp-file-size", Proxying, Same),
    row("proxy-next-upstream", Proxying, Same),
    row("proxy-next-upstream-timeout", Proxying, Same),
    row("proxy-next-upstream-tries", Proxying, Same),
    row("proxy-read-timeout", Proxying, Same),
    row("proxy-redirect-from", Proxying, Same),
    row("proxy-redirect-to", Proxying, Same),
    row("proxy-request-buffering", Proxying, Same),
    row("proxy-send-timeout", Proxying, Same),
    row(
        "custom-headers",
        Responses,
        Different(
            "edits of the ConfigMap count at once; other namespaces only with allow-cross-namespace-resources; names in any case",
        ),
    ),
    row("custom-http-errors", Responses, Same),
    row("default-backend", Responses, Same),
    row("disable-proxy-intercept-errors", Responses, Same),
    row("affinity", Balancing, SHARED),
    row("affinity-mode", Balancing, SHARED),
    row(
        "load-balance",
        Balancing,
        Different("also least_conn and p2c; an invalid value is the default"),
    ),
    row("service-upstream", Balancing, SHARED),
    row("session-cookie-change-on-failure", Balancing, SHARED),
    row("session-cookie-conditional-samesite-none", Balancing, SHARED),
    row("session-cookie-domain", Balancing, SHARED),
    row("session-cookie-expires", Balancing, SHARED),
    row("session-cookie-max-age", Balancing, SHARED),
    row("session-cookie-name", Balancing, Different("a name that no cookie can have is refused")),
    row("session-cookie-path", Balancing, SHARED),
    row("session-cookie-samesite", Balancing, Different("any case is honoured")),
    row("session-cookie-secure", Balancing, SHARED),
    row(
        "upstream-hash-by",
        Balancing,
        Different("a key without a variable or a capture of one of its paths is refused"),
    ),
    row("upstream-hash-by-subset", Balancing, SHARED),
    row("upstream-hash-by-subset-size", Balancing, SHARED),
    row("affinity-canary-behavior", Canary, Same),
    row(
        "canary",
        Canary,
        Different(
            "splits the host and path that it claims, of its own namespace; any number of canaries",
        ),
    ),
    row("canary-by-cookie", Canary, Same),
    row("canary-by-header", Canary, Same),
    row(
        "canary-by-header-pattern",
        Canary,
        Different("a pattern that cannot be read takes the header's rule away"),
    ),
    row(
        "canary-by-header-value",
        Canary,
        Different("a value that cannot be read takes the header's rule away"),
    ),
    row("canary-weight", Canary, Same),
    row("canary-weight-total", Canary, Same),
    row("auth-realm", BasicAuth, Different("an invalid realm is ignored")),
    row("auth-secret", BasicAuth, Same),
    row("auth-secret-type", BasicAuth, Same),
    row("auth-type", BasicAuth, Different("basic only: digest and all else close the locations")),
    row("satisfy", BasicAuth, Same),
    row("auth-always-set-cookie", ExternalAuth, CLOSES),
    row("auth-cache-duration", ExternalAuth, CLOSES),
    row("auth-cache-key", ExternalAuth, Same),
    row("auth-keepalive", ExternalAuth, KEPT),
    row("auth-keepalive-requests", ExternalAuth, KEPT),
    row("auth-keepalive-share-vars", ExternalAuth, KEPT),
    row("auth-keepalive-timeout", ExternalAuth, KEPT),
    row("auth-method", ExternalAuth, Same),
    row(
        "auth-proxy-set-headers",
        ExternalAuth,
        Different("an invalid value closes the locations; edits of the ConfigMap count at once"),
    ),
    row("auth-request-redirect", ExternalAuth, CLOSES),
    row("auth-response-headers", ExternalAuth, Same),
    row("auth-signin", ExternalAuth, Same),
    row("auth-signin-redirect-param", ExternalAuth, Same),
    row(
        "auth-url",
        ExternalAuth,
        Different(
            "a host with variables is looked up among the gateway's own rules and Services; others the controller resolves, with search domains",
        ),
    ),
    row("enable-global-auth", ExternalAuth, Same),
    row("auth-tls-error-page", ClientCertificates, Different("no named locations")),
    row("auth-tls-match-cn", ClientCertificates, Different("an invalid pattern closes the host")),
    row(
        "auth-tls-pass-certificate-to-upstream",
        ClientCertificates,
        Different("an invalid value is false"),
    ),
    row(
        "auth-tls-secret",
        ClientCertificates,
        Different(
            "a Secret without ca.crt closes the host; only the host's owner asks for certificates",
        ),
    ),
    row("auth-tls-verify-client", ClientCertificates, Same),
    row("auth-tls-verify-depth", ClientCertificates, Same),
    row("allowlist-source-range", Networks, Same),
    row("denylist-source-range", Networks, Same),
    row("whitelist-source-range", Networks, Same),
    row("limit-allowlist", Limits, Different("an invalid list exempts nobody")),
    row("limit-burst-multiplier", Limits, Different("0 or less means 5")),
    row(
        "limit-connections",
        Limits,
        Different("one count for all workers; an invalid value closes the locations"),
    ),
    row("limit-rate", Limits, Same),
    row("limit-rate-after", Limits, Same),
    row(
        "limit-rpm",
        Limits,
        Different("one count for all workers; an invalid value closes the locations"),
    ),
    row(
        "limit-rps",
        Limits,
        Different("one count for all workers; an invalid value closes the locations"),
    ),
    row("limit-whitelist", Limits, Different("an invalid list exempts nobody")),
    row("cors-allow-credentials", Cors, Same),
    row("cors-allow-headers", Cors, Same),
    row("cors-allow-methods", Cors, Same),
    row(
        "cors-allow-origin",
        Cors,
        Different("whole origins are compared; a list of which nothing can be read allows nobody"),
    ),
    row("cors-expose-headers", Cors, Same),
    row("cors-max-age", Cors, Same),
    row("enable-cors", Cors, Same),
    row("proxy-ssl-ciphers", Tls, Same),
    row("proxy-ssl-name", Tls, Different("absent: the Host that the endpoint sees")),
    row("proxy-ssl-protocols", Tls, Same),
    row(
        "proxy-ssl-secret",
        Tls,
        Different("for the host's other HTTPS paths it holds within its namespace"),
    ),
    row("proxy-ssl-server-name", Tls, Same),
    row("proxy-ssl-verify", Tls, Different("neither on nor off closes the locations")),
    row("proxy-ssl-verify-depth", Tls, Same),
    row(
        "ssl-ciphers",
        Tls,
        Different("an invalid list is the default; only the host's owner sets it"),
    ),
    row(
        "ssl-passthrough",
        Tls,
        Different(
            "the Ingress that has `/` decides, if its namespace owns the host; refused beside client certificates, lists and limits of the host",
        ),
    ),
    row("ssl-prefer-server-ciphers", Tls, OWNED),
    row("enable-access-log", Observability, Same),
    row("enable-modsecurity", Observability, WAF),
    row("enable-opentelemetry", Observability, Same),
    row("enable-owasp-core-rules", Observability, WAF),
    row(
        "enable-rewrite-log",
        Observability,
        Different("accepted without effect: `explain` tells why a rule won"),
    ),
    row("mirror-host", Observability, Different("no variables")),
    row("mirror-request-body", Observability, Same),
    row(
        "mirror-target",
        Observability,
        Different(
            "a host with variables is looked up as auth-url's is; an invalid target is no mirror",
        ),
    ),
    row("modsecurity-transaction-id", Observability, WAF),
    row(
        "opentelemetry-operation-name",
        Observability,
        Different("an invalid value is ignored, with a warning"),
    ),
    row("opentelemetry-trust-incoming-span", Observability, Same),
    row(
        "auth-snippet",
        Snippets,
        Different(
            "where snippets are allowed, a dialect becomes headers of the auth request and steps before it; else it closes",
        ),
    ),
    row(
        "configuration-snippet",
        Snippets,
        Different(
            "where snippets are allowed, a dialect becomes policies; nothing else of it holds",
        ),
    ),
    row("modsecurity-snippet", Snippets, SNIPPET),
    row(
        "server-snippet",
        Snippets,
        Different(
            "where snippets are allowed, a dialect becomes policies of all paths of the hosts that its namespace owns",
        ),
    ),
    row(
        "stream-snippet",
        Snippets,
        Unsupported("each directive is named, with the key of the ConfigMap that says it"),
    ),
];

/// What is said of an annotation of this name; `None`: the reference knows it neither.
pub fn find(name: &str) -> Option<&'static Row> {
    ROWS.iter().find(|row| row.name == name)
}

/// The annotation that somebody who wrote this name may have meant.
pub fn nearest(name: &str) -> Option<&'static str> {
    // As clap does for words of the command line.
    const ALIKE: f64 = 0.85;
    let near = ROWS.iter().map(|row| (strsim::jaro_winkler(row.name, name), row.name));
    let (alike, nearest) = near.max_by(|a, b| a.0.total_cmp(&b.0))?;
    (alike > ALIKE).then_some(nearest)
}

/// Whether an annotation of this name, also an unknown one, keeps somebody out.
pub fn protects(name: &str) -> bool {
    name.starts_with("auth-")
        || name.starts_with("limit-")
        || name.contains("source-range")
        || name.starts_with("whitelist-")
        || name.starts_with("allowlist-")
        || name.starts_with("denylist-")
        || name.ends_with("-snippet")
        || name == "proxy-ssl-verify"
}

/// Whether an annotation of this name, also an unknown one, says who has access; limits do not.
pub fn restricts_access(name: &str) -> bool {
    protects(name) && !name.starts_with("limit-") && name != "proxy-ssl-verify"
}

#[cfg(test)]
impl Group {
    /// The title of the group.
    pub fn title(self) -> &'static str {
        match self {
            Paths => "redirects and rewriting",
            Proxying => "proxying",
            Responses => "headers and error pages",
            Balancing => "balancing",
            Canary => "canary",
            BasicAuth => "basic authentication",
            ExternalAuth => "external authentication",
            ClientCertificates => "client certificates",
            Networks => "networks",
            Limits => "limits",
            Cors => "CORS",
            Tls => "TLS",
            Observability => "logs, tracing, mirror, WAF",
            Snippets => "snippets",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::fmt::Write as _;

    #[test]
    fn a_name_that_is_almost_one_is_known() {
        for (wrong, meant) in [
            ("rewrite-targt", Some("rewrite-target")),
            ("ssl-redirects", Some("ssl-redirect")),
            ("proxy-body-sise", Some("proxy-body-size")),
            ("colour", None),
        ] {
            assert_eq!(nearest(wrong), meant, "{wrong}");
        }
    }

    /// The table of docs/annotations.md: names that share what is said stand in one line.
    fn markdown() -> String {
        let mut text = String::from(
            "| annotations | | | what is different, or what to do instead |\n|---|---|---|---|\n",
        );
        let mut lines: Vec<(Group, &str, &str, Vec<&str>)> = Vec::new();
        for row in ROWS {
            let (word, how) = match row.status {
                Status::Same => ("same", ""),
                Status::Different(how) => ("different", how),
                Status::Unsupported(how) => ("absent", how),
            };
            let line =
                lines.iter_mut().find(|line| (line.0, line.1, line.2) == (row.group, word, how));
            match line {
                Some(line) => line.3.push(row.name),
                None => lines.push((row.group, word, how, vec![row.name])),
            }
        }
        for (group, word, how, names) in lines {
            let names: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
            let _ = writeln!(text, "| {} | {} | {word} | {how} |", names.join(", "), group.title());
        }
        text
    }

    #[test]
    fn annotations_page_has_this_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/annotations.md");
        let page = std::fs::read_to_string(path).unwrap();
        let (begin, end) = (
            "<!-- annotations: UPDATE_GOLDEN=1 cargo test -p oxigress-translate annotations_page -->\n",
            "<!-- end -->",
        );
        let (before, rest) = page.split_once(begin).unwrap();
        let (table, after) = rest.split_once(end).unwrap();
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(path, format!("{before}{begin}{}{end}{after}", markdown())).unwrap();
        } else {
            assert_eq!(table, markdown(), "UPDATE_GOLDEN=1 writes it anew");
        }
    }

    #[test]
    fn all_annotations_and_both_aliases_are_there_once() {
        let names: BTreeSet<_> = ROWS.iter().map(|row| row.name).collect();
        assert_eq!((ROWS.len(), names.len()), (138, 138));
    }
}
