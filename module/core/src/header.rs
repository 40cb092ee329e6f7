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
