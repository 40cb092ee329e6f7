//! Interim responses (RFC 9110 §15.2) before the response of an HTTP/1 endpoint: nginx mistakes the first head for the last.

/// The meaning of the first bytes of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum First {
    /// The beginning of the response itself.
    Response,
    /// The beginning of a response by which another protocol is spoken from there on: 101.
    Switch,
    /// The beginning of nothing that is known here. nginx would send it to the client as it is, without a head, and keep the
    /// client's connection.
    Nothing,
    /// More bytes are needed to decide.
    Unknown,
    /// The head of an interim response, so many bytes long.
    Interim(usize),
}

/// Whether these are the first bytes of a response as nearly every one begins. Others may be one, too.
#[inline]
pub fn is_response(bytes: &[u8]) -> bool {
    let [b'H', b'T', b'T', b'P', b'/', b'1', b'.', b'0' | b'1', b' ', b'2'..=b'9', ..] = bytes
    else {
        return false;
    };
    true
}

/// Looks at the bytes that came so far.
#[inline]
pub fn first(bytes: &[u8]) -> First {
    if is_response(bytes) { First::Response } else { first_closely(bytes) }
}

#[cold]
fn first_closely(bytes: &[u8]) -> First {
    match status(bytes) {
        Status::More => First::Unknown,
        Status::Response => First::Response,
        Status::Switch => First::Switch,
        Status::None => First::Nothing,
        Status::Interim => end(bytes).map_or(First::Unknown, First::Interim),
    }
}

/// The status of a response head.
enum Status {
    More,
    /// No interim status.
    Response,
    /// 101.
    Switch,
    /// There is no status line.
    None,
    /// 100, or 102 to 199.
    Interim,
}

/// Reads the beginning of a status line as nginx does (`ngx_http_parse_status_line`), which accepts more than RFC
/// 9112 §4 allows, such as further blanks before the status: whatever nginx reads as a status counts here.
fn status(bytes: &[u8]) -> Status {
    let mut rest = bytes.iter();
    for expected in b"HTTP/" {
        match rest.next() {
            None => return Status::More,
            Some(byte) if byte == expected => {}
            Some(_) => return Status::None,
        }
    }
    for (least, end) in [(b'1', b'.'), (b'0', b' ')] {
        let mut number = match rest.next() {
            None => return Status::More,
            Some(digit) if (least..=b'9').contains(digit) => u32::from(digit - b'0'),
            Some(_) => return Status::None,
        };
        loop {
            match rest.next() {
                None => return Status::More,
                Some(byte) if *byte == end => break,
                Some(digit) if digit.is_ascii_digit() && number <= 99 => {
                    number = number * 10 + u32::from(digit - b'0');
                }
                Some(_) => return Status::None,
            }
        }
    }
    let mut digits = rest.by_ref().filter(|byte| **byte != b' ');
    let mut code = [0; 3];
    for digit in &mut code {
        match digits.next() {
            None => return Status::More,
            Some(byte) if byte.is_ascii_digit() => *digit = *byte,
            Some(_) => return Status::None,
        }
    }
    match rest.next() {
        None => Status::More,
        Some(b' ' | b'.' | b'\r' | b'\n') => match code {
            [b'1', b'0', b'1'] => Status::Switch,
            [b'1', ..] => Status::Interim,
            _ => Status::Response,
        },
        Some(_) => Status::None,
    }
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
        for head in [
            HINTS,
            b"HTTP/1.0 100\n\n",
            b"HTTP/1.1 199 \r\nA: b\n\r\n",
            b"HTTP/1.1  103 Early Hints\r\n\r\n",
            b"HTTP/1.1 1 0  3.1\n\n",
            b"HTTP/10.01 103\r\n\r\n",
        ] {
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
        for (text, place, expected) in [
            ("HTTP/1.1 200 OK\r\n", 10, First::Response),
            ("HTTP/1.1  200 OK\r\n", 14, First::Response),
            ("HTTP/2.0 600\n", 13, First::Response),
            ("HTTP/1.1 101 Switching Protocols\r\n", 13, First::Switch),
            ("HTTP/1.1  101 Switching Protocols\r\n", 14, First::Switch),
            ("HTTP/1.1 1034 Odd\r\n", 13, First::Nothing),
            ("HTTP/0.9 103 Odd\r\n", 6, First::Nothing),
            ("HTTP/1.1\t103 Odd\r\n", 9, First::Nothing),
            ("HTTP/1000.1 103 Odd\r\n", 9, First::Nothing),
            ("HTTPS", 5, First::Nothing),
            ("\r\nHTTP/1.1 200 OK\r\n", 1, First::Nothing),
            ("\u{0}\u{0}\u{12}", 1, First::Nothing),
            ("hello", 1, First::Nothing),
        ] {
            assert_eq!(first(&text.as_bytes()[..place - 1]), First::Unknown, "{text}");
            assert_eq!(first(&text.as_bytes()[..place]), expected, "{text}");
        }
    }
}
