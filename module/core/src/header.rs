//! Names and values of headers, as bytes of a request.
//!
//! Source:  RFC 9110 §5; security.md §7.

/// Headers that say how a message is framed or where it goes: nginx's alone.
const RESERVED: [&str; 9] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// A header that no policy sets or takes away.
pub fn is_reserved(name: &[u8]) -> bool {
    RESERVED.iter().any(|reserved| is_alike(name, reserved.as_bytes()))
}

/// Headers by which endpoints are told about the client, the route and what we found out: security.md §7. Those that
/// end with a dash have more names.
const MANAGED: [&str; 16] = [
    "content-length",
    "ssl-client-",
    "transfer-encoding",
    "x-auth-request-redirect",
    "x-code",
    "x-format",
    "x-forwarded-",
    "x-ingress-name",
    "x-namespace",
    "x-original-",
    "x-real-ip",
    "x-request-id",
    "x-scheme",
    "x-service-name",
    "x-service-port",
    "x-sent-from",
];

/// A header that endpoints take for ours, or that says what nginx has looked at under its own name.
pub fn is_managed(name: &[u8]) -> bool {
    MANAGED.iter().any(|known| match known.ends_with('-') {
        true => name.get(..known.len()).is_some_and(|start| is_alike(start, known.as_bytes())),
        false => is_alike(name, known.as_bytes()),
    })
}

/// The same name, where `-` and `_` are one: CGI and what came after it cannot tell them apart.
pub fn is_alike(a: &[u8], b: &[u8]) -> bool {
    let plain = |byte: &u8| if *byte == b'-' { b'_' } else { byte.to_ascii_lowercase() };
    a.len() == b.len() && a.iter().map(plain).eq(b.iter().map(plain))
}

/// A text that may be a header's value: nothing that ends a line or a C string.
pub fn is_value(text: &[u8]) -> bool {
    !text.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0))
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
        for name in ["X_Mine", "X_Forwarded", "Content_Type", "Cookie2"] {
            assert!(!is_managed(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn what_frames_a_message_is_not_for_policies() {
        for name in ["Content-Length", "content_length", "Transfer-Encoding", "HOST", "Te"] {
            assert!(is_reserved(name.as_bytes()), "{name}");
        }
        assert!(!is_reserved(b"Content-Type"));
    }

    #[test]
    fn a_line_break_ends_no_value_early() {
        assert!(is_value(b"a b\tc"));
        for text in [&b"a\r"[..], b"a\nb", b"\0"] {
            assert!(!is_value(text), "{text:?}");
        }
    }
}
