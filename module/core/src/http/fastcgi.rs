//! The parameters of a FastCGI request, changed after nginx has written them.
//!
//! nginx compiles `fastcgi_param` when it reads its configuration, which has no text of users. So the request is
//! written with nginx.conf's parameters and those of the client's headers, and the route's own then replace them.
//!
//! Shape:   a record has eight bytes before its content: version, type, request (2), length (2), padding, reserved.
//!          BEGIN_REQUEST is first, then PARAMS up to an empty one, then the rest.
//! Source:  the FastCGI specification 1.0, §3.3 and §3.4.

const HEAD: usize = 8;
const VERSION: u8 = 1;
const BEGIN_REQUEST: u8 = 1;
const PARAMS: u8 = 4;
/// Of a record: a multiple of eight below 64 KiB.
const MAX_CONTENT: usize = 65_528;

/// A request as it is sent, with `own` parameters in place of those of the same names. An empty value is not sent.
///
/// `None`: it is no such request.
pub fn with_parameters<V: AsRef<[u8]>>(request: &[u8], own: &[(&[u8], V)]) -> Option<Vec<u8>> {
    let (begin, mut rest) = record(request).filter(|(begin, _)| begin.kind == BEGIN_REQUEST)?;
    let mut given = Vec::new();
    loop {
        let (params, after) = record(rest).filter(|(record, _)| record.kind == PARAMS)?;
        rest = after;
        if params.content.is_empty() {
            break;
        }
        given.extend_from_slice(params.content);
    }
    let mut parameters = Vec::with_capacity(given.len());
    let mut left = given.as_slice();
    while !left.is_empty() {
        let ((name, value), after) = pair(left)?;
        left = after;
        if own.iter().all(|(other, _)| *other != name) {
            put(&mut parameters, name, value)?;
        }
    }
    for (name, value) in own {
        if !value.as_ref().is_empty() {
            put(&mut parameters, name, value.as_ref())?;
        }
    }
    let mut written = Vec::with_capacity(request.len() + parameters.len());
    written.extend_from_slice(begin.whole);
    for content in parameters.chunks(MAX_CONTENT).chain([&[][..]]) {
        let [high, low] = u16::try_from(content.len()).ok()?.to_be_bytes();
        let [id_high, id_low] = begin.id;
        written.extend_from_slice(&[VERSION, PARAMS, id_high, id_low, high, low, 0, 0]);
        written.extend_from_slice(content);
    }
    written.extend_from_slice(rest);
    Some(written)
}

struct Record<'a> {
    kind: u8,
    id: [u8; 2],
    content: &'a [u8],
    whole: &'a [u8],
}

/// The first record, and what follows.
fn record(bytes: &[u8]) -> Option<(Record<'_>, &[u8])> {
    let [VERSION, kind, id_high, id_low, high, low, padding, _] = *bytes.first_chunk::<HEAD>()?
    else {
        return None;
    };
    let length = usize::from(u16::from_be_bytes([high, low]));
    let content = bytes.get(HEAD..HEAD + length)?;
    let (whole, rest) = bytes.split_at_checked(HEAD + length + usize::from(padding))?;
    Some((Record { kind, id: [id_high, id_low], content, whole }, rest))
}

type Pair<'a> = (&'a [u8], &'a [u8]);

/// The first parameter, and what follows.
fn pair(bytes: &[u8]) -> Option<(Pair<'_>, &[u8])> {
    let (name_length, rest) = length(bytes)?;
    let (value_length, rest) = length(rest)?;
    let (name, rest) = rest.split_at_checked(name_length)?;
    let (value, rest) = rest.split_at_checked(value_length)?;
    Some(((name, value), rest))
}

/// Reads a length of one byte, or of four bytes with the first bit set.
fn length(bytes: &[u8]) -> Option<(usize, &[u8])> {
    match *bytes {
        [short @ 0..=127, ref rest @ ..] => Some((short.into(), rest)),
        [a, b, c, d, ref rest @ ..] => {
            let length = u32::from_be_bytes([a & 0x7f, b, c, d]);
            Some((usize::try_from(length).ok()?, rest))
        }
        _ => None,
    }
}

fn put(parameters: &mut Vec<u8>, name: &[u8], value: &[u8]) -> Option<()> {
    for text in [name, value] {
        match u8::try_from(text.len()) {
            Ok(short @ 0..=127) => parameters.push(short),
            _ => {
                let length = u32::try_from(text.len()).ok().filter(|length| *length < 1 << 31)?;
                parameters.extend_from_slice(&(length | 1 << 31).to_be_bytes());
            }
        }
    }
    parameters.extend_from_slice(name);
    parameters.extend_from_slice(value);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As nginx writes it: padded, and with the head of the body's first record behind it.
    fn request(pairs: &[(&str, &str)]) -> Vec<u8> {
        let mut content = Vec::new();
        for (name, value) in pairs {
            put(&mut content, name.as_bytes(), value.as_bytes()).unwrap();
        }
        let padding = content.len().next_multiple_of(8) - content.len();
        let mut all = vec![1, 1, 0, 1, 0, 8, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0];
        let [high, low] = u16::try_from(content.len()).unwrap().to_be_bytes();
        all.extend_from_slice(&[1, 4, 0, 1, high, low, padding as u8, 0]);
        all.extend_from_slice(&content);
        all.extend(std::iter::repeat_n(0, padding));
        all.extend_from_slice(&[1, 4, 0, 1, 0, 0, 0, 0, 1, 5, 0, 1, 0, 3, 0, 0]);
        all
    }

    fn parameters(mut bytes: &[u8]) -> (Vec<(String, String)>, Vec<u8>) {
        let mut content = Vec::new();
        let (begin, rest) = record(bytes).unwrap();
        assert_eq!((begin.kind, begin.content.len()), (BEGIN_REQUEST, 8));
        bytes = rest;
        loop {
            let (params, rest) = record(bytes).unwrap();
            assert_eq!((params.kind, params.id), (PARAMS, [0, 1]));
            bytes = rest;
            if params.content.is_empty() {
                break;
            }
            content.extend_from_slice(params.content);
        }
        let (mut all, mut left) = (Vec::new(), content.as_slice());
        while !left.is_empty() {
            let ((name, value), rest) = pair(left).unwrap();
            let text = |part: &[u8]| String::from_utf8(part.to_vec()).unwrap();
            all.push((text(name), text(value)));
            left = rest;
        }
        (all, bytes.to_vec())
    }

    fn changed(given: &[(&str, &str)], own: &[(&[u8], &str)]) -> Vec<(String, String)> {
        let (all, rest) = parameters(&with_parameters(&request(given), own).unwrap());
        assert_eq!(rest, [1, 5, 0, 1, 0, 3, 0, 0], "what follows is as it was");
        all
    }

    #[test]
    fn a_parameter_of_the_same_name_is_replaced_and_all_others_stay() {
        let long = "v".repeat(500);
        let all = changed(
            &[
                ("QUERY_STRING", ""),
                ("SCRIPT_NAME", "/a"),
                ("HTTP_X_USER", "mallory"),
                ("L", &long),
            ],
            &[(b"SCRIPT_NAME", "/b.php"), (b"HTTP_X_USER", "alice"), (b"NEW", &long)],
        );
        let expected = [
            ("QUERY_STRING", ""),
            ("L", &long),
            ("SCRIPT_NAME", "/b.php"),
            ("HTTP_X_USER", "alice"),
            ("NEW", &long),
        ];
        assert_eq!(all, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    #[test]
    fn an_empty_one_is_taken_away() {
        assert_eq!(changed(&[("A", "1"), ("A", "2")], &[(b"A", "")]), []);
    }

    #[test]
    fn names_and_values_of_every_length_are_read_as_they_were_written() {
        for length in [1, 126, 127, 128, 129, 255, 256, 8_192] {
            let (name, value) = ("N".repeat(length.min(128)), "v".repeat(length));
            let all = changed(&[("A", "1")], &[(name.as_bytes(), &value)]);
            assert_eq!(all, [("A".to_owned(), "1".to_owned()), (name, value)]);
        }
    }

    #[test]
    fn more_than_one_record_holds_is_divided() {
        let value = "v".repeat(200_000);
        let all = changed(&[("A", "1")], &[(b"B", &value)]);
        assert_eq!(all.last().map(|(_, value)| value.len()), Some(200_000));
    }

    #[test]
    fn what_is_cut_off_is_refused() {
        let whole = request(&[("A", "1"), ("B", &"v".repeat(300))]);
        let own: [(&[u8], &str); 1] = [(b"C", "3")];
        // Without the body's head, which is not looked at.
        for end in 0..whole.len() - 8 {
            assert_eq!(with_parameters(&whole[..end], &own), None, "{end}");
        }
        assert_eq!(with_parameters(b"GET / HTTP/1.1\r\n", &own), None);
    }
}
