//! Names and values of headers, as bytes of a request.
//!
//! Shape:   one table of the headers that the gateway sets; everything that treats such headers reads it.
//! Source:  RFC 9110 §5.

/// The header frames or routes a message: policies neither set nor remove it.
const RESERVED: u8 = 1;
/// The header describes the client or the route to endpoints: only the gateway sets it.
const MANAGED: u8 = 2;
/// A client's copy never reaches an auth server: the gateway sets the header, or it describes a body that is not
/// sent, or it would make the answer a conditional one (304, 206).
const WITHHELD: u8 = 4;

/// The headers that clients may not set freely. A name that ends with a dash matches all names that begin with it.
const KNOWN: [(&str, u8); 35] = [
    ("accept-ranges", WITHHELD),
    ("cdn-loop", RESERVED | MANAGED),
    ("connection", RESERVED),
    ("content-length", RESERVED | MANAGED | WITHHELD),
    ("expect", RESERVED | WITHHELD),
    ("forwarded", MANAGED),
    ("host", RESERVED | WITHHELD),
    ("http2-settings", RESERVED | MANAGED | WITHHELD),
    ("if-match", WITHHELD),
    ("if-modified-since", WITHHELD),
    ("if-none-match", WITHHELD),
    ("if-range", WITHHELD),
    ("if-unmodified-since", WITHHELD),
    ("keep-alive", RESERVED),
    ("proxy", MANAGED | WITHHELD),
    ("proxy-connection", RESERVED),
    ("range", WITHHELD),
    ("ssl-client-", MANAGED | WITHHELD),
    ("te", RESERVED),
    ("trailer", RESERVED | WITHHELD),
    ("transfer-encoding", RESERVED | MANAGED | WITHHELD),
    ("upgrade", RESERVED),
    ("x-auth-request-redirect", MANAGED | WITHHELD),
    ("x-code", MANAGED),
    ("x-format", MANAGED),
    ("x-forwarded-", MANAGED | WITHHELD),
    ("x-ingress-name", MANAGED),
    ("x-namespace", MANAGED),
    ("x-original-", MANAGED | WITHHELD),
    ("x-real-ip", MANAGED | WITHHELD),
    ("x-request-id", MANAGED | WITHHELD),
    ("x-scheme", MANAGED | WITHHELD),
    ("x-sent-from", MANAGED | WITHHELD),
    ("x-service-name", MANAGED),
    ("x-service-port", MANAGED),
];

/// The headers that nginx.conf replaces in every request to an endpoint, or takes away from it.
const REPLACED: [&str; 23] = [
    "cdn-loop",
    "connection",
    "host",
    "proxy",
    "ssl-client-cert",
    "ssl-client-issuer-dn",
    "ssl-client-subject-dn",
    "ssl-client-verify",
    "upgrade",
    "x-auth-request-redirect",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-port",
    "x-forwarded-proto",
    "x-forwarded-scheme",
    "x-original-forwarded-for",
    "x-original-forwarded-host",
    "x-original-method",
    "x-original-uri",
    "x-original-url",
    "x-real-ip",
    "x-request-id",
    "x-scheme",
];

/// A bit for the first letter of a name, the same for both cases. Other letters share it.
pub(super) const fn letter(first: u8) -> u32 {
    1 << (first & 31)
}

/// The bits of the first letters of the names with a flag.
const fn letters(flag: u8) -> u32 {
    let (mut letters, mut at) = (0, 0);
    while at < KNOWN.len() {
        let (name, flags) = KNOWN[at];
        if flags & flag != 0 {
            letters |= letter(name.as_bytes()[0]);
        }
        at += 1;
    }
    letters
}

#[inline]
fn is_known<const FLAG: u8>(name: &[u8]) -> bool {
    // Most names are told by their first letter.
    let is_candidate =
        name.first().is_some_and(|first| const { letters(FLAG) } & letter(*first) != 0);
    is_candidate && is_known_closely(name, FLAG)
}

/// Where the names begin that start with a letter, or with a later one: they are sorted.
const BEGINNINGS: [usize; 33] = {
    let (mut beginnings, mut at, mut letter) = ([0; 33], 0, 0);
    while letter < 32 {
        while at < KNOWN.len() && ((KNOWN[at].0.as_bytes()[0] & 31) as usize) <= letter {
            at += 1;
        }
        letter += 1;
        beginnings[letter] = at;
    }
    beginnings
};

fn is_known_closely(name: &[u8], flag: u8) -> bool {
    let letter = usize::from(name.first().copied().unwrap_or_default() & 31);
    let range = BEGINNINGS.get(letter).zip(BEGINNINGS.get(letter + 1));
    let known = range.and_then(|(from, to)| KNOWN.get(*from..*to)).unwrap_or_default();
    known.iter().any(|(known, flags)| flags & flag != 0 && is_called(name, known.as_bytes()))
}

/// A name is this one, or begins with it where it ends with a dash.
pub fn is_called(name: &[u8], known: &[u8]) -> bool {
    match known.ends_with(b"-") {
        true => name.get(..known.len()).is_some_and(|start| is_alike(start, known)),
        false => is_alike(name, known),
    }
}

/// Whether policies may neither set nor remove a header.
pub fn is_reserved(name: &[u8]) -> bool {
    is_known::<RESERVED>(name)
}

/// Whether endpoints trust a header as the gateway's, or nginx has read it under its own name.
pub fn is_managed(name: &[u8]) -> bool {
    is_known::<MANAGED>(name)
}

/// Whether nginx.conf replaces a header, or takes it away, in every request to an endpoint. The other managed ones are a
/// client's own there, unless a policy says something about them.
pub fn is_replaced(name: &[u8]) -> bool {
    REPLACED.iter().any(|known| is_alike(name, known.as_bytes()))
}

/// A header of a client that an auth server does not get.
pub fn is_withheld_from_auth(name: &[u8]) -> bool {
    is_known::<WITHHELD>(name)
}

/// Whether two names are equal when `-` and `_` are the same, as CGI and its successors read them.
pub fn is_alike(a: &[u8], b: &[u8]) -> bool {
    let plain = |byte: &u8| if *byte == b'-' { b'_' } else { byte.to_ascii_lowercase() };
    a.len() == b.len() && std::iter::zip(a, b).all(|(a, b)| plain(a) == plain(b))
}

/// A text that may be a header's value: nothing that ends a line or a C string.
pub fn is_value(text: &[u8]) -> bool {
    // All bytes, sixteen at a time: a value that ends a line is rare.
    !text.iter().fold(false, |found, byte| found | matches!(byte, b'\r' | b'\n' | 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_that_endpoints_cannot_tell_apart_are_one_name() {
        assert!(is_alike(b"X-Real-IP", b"x_real_ip"));
        assert!(is_alike(b"X_Real-IP", b"x-real_ip"));
        assert!(!is_alike(b"X-Real-IP", b"x-real-ip2"));
        assert!(!is_alike(b"X-Real-IP", b"xrealip"));
    }

    #[test]
    fn only_we_say_where_a_request_came_from() {
        for name in ["X_Forwarded_For", "x-forwarded_proto", "X_Real_IP", "SSL_Client_Verify"] {
            assert!(is_managed(name.as_bytes()), "{name}");
        }
        for name in ["X_Mine", "X_Forwarded", "Content_Type", "Cookie2", "Proxy-Authorization"] {
            assert!(!is_managed(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn what_is_replaced_stands_in_nginx_conf() {
        let text = include_str!("../../../../conf/nginx.conf");
        // Of what leads to endpoints; other locations ask auth servers and pages of errors.
        let (_, text) = text.split_once("# All at once").unwrap();
        let (text, _) = text.split_once("grpc_connect_timeout").unwrap();
        let lines = text.lines().filter_map(|line| line.trim().strip_prefix("proxy_set_header "));
        let mut names: Vec<_> =
            lines.filter_map(|line| line.split(' ').next()).map(str::to_ascii_lowercase).collect();
        names.sort();
        names.dedup();
        assert_eq!(names, REPLACED);
    }

    #[test]
    fn what_frames_a_message_is_not_for_policies() {
        for name in ["Content-Length", "content_length", "Transfer-Encoding", "HOST", "Te"] {
            assert!(is_reserved(name.as_bytes()), "{name}");
        }
        assert!(!is_reserved(b"Content-Type"));
    }

    #[test]
    fn the_first_letter_hides_no_name_in_either_case() {
        for (known, flags) in KNOWN {
            for name in [known.to_owned(), known.to_ascii_uppercase()] {
                let name = name.as_bytes();
                assert_eq!(is_reserved(name), flags & RESERVED != 0, "{known}");
                assert_eq!(is_managed(name), flags & MANAGED != 0, "{known}");
                assert_eq!(is_withheld_from_auth(name), flags & WITHHELD != 0, "{known}");
            }
        }
        assert!(!is_reserved(b"") && !is_managed(b"") && !is_withheld_from_auth(b""));
    }

    #[test]
    fn a_line_break_ends_no_value_early() {
        assert!(is_value(b"a b\tc"));
        for text in [&b"a\r"[..], b"a\nb", b"\0"] {
            assert!(!is_value(text), "{text:?}");
        }
    }
}
