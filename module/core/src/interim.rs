//! Interim responses (RFC 9110 §15.2) before the response of an HTTP/1 endpoint: nginx takes the first head for the last.

/// What the first bytes of an answer are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum First {
    /// The beginning of the response itself, or of nothing that is known here.
    Response,
    /// More bytes decide.
    Unknown,
    /// The head of an interim response, so many bytes long.
    Interim(usize),
}

/// Looks at the bytes that came so far. 101 is a response: another protocol follows.
pub fn first(bytes: &[u8]) -> First {
    const SHAPE: &[u8; 13] = b"HTTP/0.0 100 ";
    for (place, shape) in SHAPE.iter().enumerate() {
        let Some(byte) = bytes.get(place) else { return First::Unknown };
        let is_fine = match (place, shape) {
            // The class is one, the rest of the status any.
            (9, one) => byte == one,
            (12, _) => matches!(byte, b' ' | b'\r' | b'\n'),
            (_, b'0') => byte.is_ascii_digit(),
            (_, shape) => byte == shape,
        };
        if !is_fine {
            return First::Response;
        }
    }
    if bytes.get(9..12) == Some(b"101") {
        return First::Response;
    }
    end(bytes).map_or(First::Unknown, First::Interim)
}

/// Where the head ends: behind an empty line. Lines end as nginx reads them, with or without a carriage return.
fn end(bytes: &[u8]) -> Option<usize> {
    let mut is_empty = false;
    for (place, byte) in bytes.iter().enumerate() {
        match byte {
            b'\n' if is_empty => return Some(place + 1),
            b'\n' => is_empty = true,
            b'\r' => {}
            _ => is_empty = false,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const HINTS: &[u8] = b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n";

    #[test]
    fn an_interim_head_is_known_at_its_last_byte_and_not_before() {
        for head in [HINTS, b"HTTP/1.0 100\n\n", b"HTTP/1.1 199 \r\nA: b\n\r\n"] {
            for end in 0..head.len() {
                assert_eq!(first(&head[..end]), First::Unknown, "{end} of {head:?}");
            }
            let all = [head, b"HTTP/1.1 200 OK\r\n\r\n"].concat();
            for end in head.len()..=all.len() {
                assert_eq!(first(&all[..end]), First::Interim(head.len()));
            }
        }
    }

    #[test]
    fn a_response_is_known_at_the_first_byte_that_says_so() {
        for (text, place) in [
            ("HTTP/1.1 200 OK\r\n", 10),
            ("HTTP/1.1 101 Switching Protocols\r\n", 13),
            ("HTTP/1.1 1034 Odd\r\n", 13),
            ("HTTPS", 5),
            ("\u{0}\u{0}\u{12}", 1),
            ("hello", 1),
        ] {
            assert_eq!(first(&text.as_bytes()[..place - 1]), First::Unknown, "{text}");
            assert_eq!(first(&text.as_bytes()[..place]), First::Response, "{text}");
        }
    }
}
