//! Which headers of a client are kept, before anything is decided: a request must mean the same to the gateway and to
//! endpoints.
//!
//! Shape:   [`Rules::treatment`] decides about a header by its name. Most names pass after a look at their
//!          first letter and length.
//! Source:  RFC 9110 §7.6.1 (`Connection`), RFC 9113 §3.1 (`h2c`), RFC 7239 (`Forwarded`), RFC 8586 (`CDN-Loop`).

use crate::http::header::{is_alike, is_called, is_managed, is_reserved, letter};

/// What becomes of a header of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Treatment {
    /// It is passed on; nginx.conf may replace it.
    Pass,
    /// The header is removed from the request.
    Remove,
    /// It is removed unless the peer is trusted.
    RemoveUntrusted,
    /// `Connection`: the headers that it names are removed.
    Connection,
    /// The header is `Upgrade`, which [`upgrade`] shortens.
    Upgrade,
    /// The header is `CDN-Loop`, which [`passes`] reads.
    Loop,
}

/// The headers that nginx.conf replaces by name. The client's value stays readable, for logs and for
/// `X-Original-Forwarded-For`.
const REPLACED: [&[u8]; 5] = [
    b"x-forwarded-for",
    b"x-forwarded-host",
    b"x-forwarded-port",
    b"x-forwarded-proto",
    b"x-forwarded-scheme",
];

/// Headers from which applications commonly derive the client, the method or the path: the meaning of the word
/// `common` of `strip-request-headers`.
pub const COMMON: [&str; 28] = [
    "CF-Connecting-IP",
    "CF-Connecting-IPv6",
    "Client-IP",
    "Fastly-Client-IP",
    "Fly-Client-IP",
    "Front-End-Https",
    "Remote-Email",
    "Remote-Groups",
    "Remote-Name",
    "Remote-User",
    "True-Client-IP",
    "X-Auth-Request-",
    "X-Azure-ClientIP",
    "X-Client-IP",
    "X-Client-Verify",
    "X-Cluster-Client-IP",
    "X-Envoy-External-Address",
    "X-Host",
    "X-HTTP-Method",
    "X-HTTP-Method-Override",
    "X-Method-Override",
    "X-Originating-IP",
    "X-ProxyUser-Ip",
    "X-Remote-",
    "X-Rewrite-URL",
    "X-SSL-",
    "X-User",
    "X-WebAuth-",
];

/// The operator's settings for headers of clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Bits of the first letters of names that are looked at.
    letters: u32,
    keep: Vec<Box<[u8]>>,
    strip: Vec<Box<[u8]>>,
}

/// `c`, `f`, `h`, `s`, `t`, `u`, `x`: the first letters of the names that [`Rules::treatment`] treats by itself.
const LETTERS: u32 = letter(b'c')
    | letter(b'f')
    | letter(b'h')
    | letter(b's')
    | letter(b't')
    | letter(b'u')
    | letter(b'x');

impl Rules {
    /// Nothing more is kept or removed.
    pub const NONE: Rules = Rules { letters: LETTERS, keep: Vec::new(), strip: Vec::new() };

    /// Keeps a header of the family of `Forwarded` and `X-Forwarded-` from every client.
    pub fn keep(&mut self, name: &[u8]) {
        self.keep.push(name.into());
    }

    /// Removes a header. A name that ends with a dash matches all names that begin with it, `common` those of
    /// [`COMMON`].
    pub fn strip(&mut self, name: &[u8]) {
        if name.eq_ignore_ascii_case(b"common") {
            COMMON.iter().for_each(|name| self.strip(name.as_bytes()));
            return;
        }
        self.letters |= name.first().map_or(0, |first| letter(*first));
        self.strip.push(name.into());
    }

    /// What becomes of a header of this name.
    #[inline]
    pub fn treatment(&self, name: &[u8]) -> Treatment {
        match name.first() {
            Some(first) if self.letters & letter(*first) != 0 => self.closely(name),
            _ => Treatment::Pass,
        }
    }

    fn closely(&self, name: &[u8]) -> Treatment {
        if !self.strip.is_empty() && self.strip.iter().any(|known| is_called(name, known)) {
            return Treatment::Remove;
        }
        let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
        // Lengths first: they rule out nearly all headers of browsers.
        match name.len() {
            // The shortest that matters is `x_code`.
            ..=5 => return Treatment::Pass,
            7 if is(b"upgrade") => return Treatment::Upgrade,
            8 if is(b"cdn-loop") => return Treatment::Loop,
            9 if is(b"forwarded") => return self.forwarded(name),
            10 if is(b"connection") => return Treatment::Connection,
            14 if is_alike(name, b"http2-settings") => return Treatment::Remove,
            12.. if is_called(name, b"x-forwarded-") => return self.forwarded(name),
            12.. if is_called(name, b"ssl-client-") => return Treatment::Remove,
            _ => {}
        }
        match is_managed(name) && name.contains(&b'_') {
            true => Treatment::Remove,
            false => Treatment::Pass,
        }
    }

    /// Of the family of `Forwarded` and `X-Forwarded-`.
    fn forwarded(&self, name: &[u8]) -> Treatment {
        if REPLACED.iter().any(|known| name.eq_ignore_ascii_case(known)) {
            return Treatment::Pass;
        }
        // The same in another spelling: an endpoint may read it in place of ours.
        if REPLACED.iter().any(|known| is_alike(name, known)) {
            return Treatment::Remove;
        }
        match self.keep.iter().any(|kept| is_called(name, kept)) {
            true => Treatment::Pass,
            false => Treatment::RemoveUntrusted,
        }
    }
}

/// Whether `keep-forwarded-headers` may list a name.
pub fn may_be_kept(name: &str) -> bool {
    let name = name.as_bytes();
    name.eq_ignore_ascii_case(b"forwarded") || name.len() > 12 && is_called(name, b"x-forwarded-")
}

/// Whether `strip-request-headers` may list a name.
pub fn may_be_stripped(name: &str) -> bool {
    !is_reserved(name.as_bytes()) && name.len() > 1
}

/// Whether the value of `Connection` names no header, as that of nearly all clients.
#[inline]
pub fn is_plain_connection(value: &[u8]) -> bool {
    [&b"keep-alive"[..], b"close", b"upgrade"].iter().any(|word| value.eq_ignore_ascii_case(word))
}

/// The headers that a value of `Connection` names, except for those that the gateway sets itself.
pub fn named_by_connection(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    let words = value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    words.filter(|word| {
        !word.is_empty()
            && !word.eq_ignore_ascii_case(b"close")
            && !is_reserved(word)
            && !is_managed(word)
    })
}

/// What is left of a value of `Upgrade` when no protocol is HTTP itself; `None`: all of it.
pub fn upgrade(value: &[u8]) -> Option<Vec<u8>> {
    let words = || value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    if !words().any(is_http) {
        return None;
    }
    let left: Vec<_> = words().filter(|word| !word.is_empty() && !is_http(word)).collect();
    Some(left.join(&b", "[..]))
}

/// Whether a protocol of `Upgrade` would let an endpoint serve requests that bypass the gateway's policies.
fn is_http(protocol: &[u8]) -> bool {
    let name = protocol.split(|byte| *byte == b'/').next().unwrap_or_default().trim_ascii();
    let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
    let is_draft = |known: &[u8]| {
        name.get(..known.len()).is_some_and(|start| start.eq_ignore_ascii_case(known))
    };
    is(b"h2c") || is(b"h2") || is(b"http") || is_draft(b"h2c-") || is_draft(b"h2-")
}

/// The name that the gateway adds to `CDN-Loop`.
pub const NAME: &[u8] = b"oxigress";

/// A request that has passed through here so often leads in a circle.
pub const MAX_PASSES: usize = 3;

/// The most attempts at endpoints for a request that has passed through here before. Each of them may come back and have
/// attempts of its own, so without a bound as many addresses of this gateway as a backend names would multiply at each pass.
pub const ATTEMPTS_AGAIN: usize = 3;

/// What the gateway adds for a copy of a request: one that comes back is served once, and its own copies are not. A route may have
/// many copies made, so they would multiply each time that they pass.
pub const COPY: &[u8] = b"oxigress, oxigress";

/// How often a value of `CDN-Loop` has our name. A client that writes it hurts itself only.
pub fn passes(value: &[u8]) -> usize {
    let entries = value.split(|byte| *byte == b',');
    let ids = entries.filter_map(|entry| entry.split(|byte| *byte == b';').next());
    ids.filter(|id| id.trim_ascii().eq_ignore_ascii_case(NAME)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(keep: &[&str], strip: &[&str]) -> Rules {
        let mut rules = Rules::NONE;
        keep.iter().for_each(|name| rules.keep(name.as_bytes()));
        strip.iter().for_each(|name| rules.strip(name.as_bytes()));
        rules
    }

    #[test]
    fn only_trusted_peers_say_how_a_request_was_forwarded() {
        for name in ["Forwarded", "X-Forwarded-Prefix", "x-forwarded-ssl", "X_Forwarded_User"] {
            let treatment = Rules::NONE.treatment(name.as_bytes());
            assert_eq!(treatment, Treatment::RemoveUntrusted, "{name}");
        }
        let kept = rules(&["X-Forwarded-Prefix"], &[]);
        assert_eq!(kept.treatment(b"x-forwarded-prefix"), Treatment::Pass);
        assert_eq!(kept.treatment(b"Forwarded"), Treatment::RemoveUntrusted);
        // nginx.conf replaces this name; any other spelling is removed.
        assert_eq!(kept.treatment(b"X-Forwarded-For"), Treatment::Pass);
        assert_eq!(kept.treatment(b"X_Forwarded-For"), Treatment::Remove);
    }

    #[test]
    fn what_is_ours_goes_in_any_spelling_but_the_one_that_nginx_replaces() {
        for name in
            ["X_Real_IP", "x_original-url", "SSL_Client-Verify", "content_length", "CDN_Loop"]
        {
            assert_eq!(Rules::NONE.treatment(name.as_bytes()), Treatment::Remove, "{name}");
        }
        for name in ["X-Real-IP", "User-Agent", "Host", "X_Mine", "True-Client-IP", "", "_", "Te"] {
            assert_eq!(Rules::NONE.treatment(name.as_bytes()), Treatment::Pass, "{name}");
        }
    }

    #[test]
    fn an_operator_strips_what_endpoints_believe() {
        let stripped = rules(&[], &["common", "api-key", "X-Team-"]);
        for name in [
            "True-Client-IP",
            "true_client_ip",
            "X-Auth-Request-Email",
            "API_KEY",
            "x-team-id",
            "X-HTTP-Method-Override",
        ] {
            assert_eq!(stripped.treatment(name.as_bytes()), Treatment::Remove, "{name}");
        }
        for name in ["X-Team", "api-key-2", "Authorization", "Cookie"] {
            assert_eq!(stripped.treatment(name.as_bytes()), Treatment::Pass, "{name}");
        }
        assert!(COMMON.iter().all(|name| may_be_stripped(name)));
        assert!(!may_be_stripped("Host") && !may_be_stripped("CDN-Loop") && !may_be_stripped("-"));
        assert!(may_be_kept("Forwarded") && may_be_kept("x_forwarded_ssl"));
        assert!(!may_be_kept("X-Real-IP") && !may_be_kept("X-Forwarded-"));
    }

    #[test]
    fn a_connection_header_names_headers_but_none_of_ours() {
        let named = |text: &'static str| named_by_connection(text.as_bytes()).collect::<Vec<_>>();
        assert_eq!(named("keep-alive, X-Secret ,close,,Upgrade"), [b"X-Secret"]);
        for ours in [
            "X-Real-IP",
            "x_forwarded_for",
            "Host",
            "CDN-Loop",
            "Content-Length",
            "ssl-client-cert",
        ] {
            assert!(named(ours).is_empty(), "{ours}");
        }
        assert!(is_plain_connection(b"Keep-Alive") && !is_plain_connection(b"close, x"));
    }

    #[test]
    fn no_upgrade_leads_to_requests_that_nobody_judges() {
        for (text, left) in [
            ("h2c", Some("")),
            ("H2C", Some("")),
            ("websocket, h2c", Some("websocket")),
            ("h2c-14,SPDY/3.1", Some("SPDY/3.1")),
            ("HTTP/2.0", Some("")),
            ("websocket", None),
            ("SPDY/3.1", None),
            ("h2cx", None),
        ] {
            let rest = upgrade(text.as_bytes());
            assert_eq!(rest.as_deref(), left.map(str::as_bytes), "{text}");
        }
    }

    #[test]
    fn passes_through_here_are_counted_and_others_are_not() {
        assert_eq!(passes(b"oxigress, other;a=b,Oxigress ; v=1"), 2);
        assert_eq!(passes(b"oxigress2, x;oxigress, \"oxigress\""), 0);
        assert_eq!(passes(b""), 0);
        assert_eq!((passes(NAME), passes(COPY)), (1, MAX_PASSES - 1));
    }
}
