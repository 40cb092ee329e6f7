//! Which encoding of a body a client takes, and what a response says once it has another one.

/// Whether a client's `Accept-Encoding` takes an encoding, named in lower case. A weight of 0
/// refuses it, a weight that is none does too; a star does not name it (as in nginx and
/// ngx_brotli).
pub fn takes(header: &[u8], encoding: &[u8]) -> bool {
    header.split(|byte| *byte == b',').any(|item| {
        let mut parts = item.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
        let is_named = parts.next().is_some_and(|name| name.eq_ignore_ascii_case(encoding));
        is_named && parts.all(is_no_refusal)
    })
}

/// A parameter of an item that does not refuse it.
fn is_no_refusal(parameter: &[u8]) -> bool {
    let mut sides = parameter.splitn(2, |byte| *byte == b'=');
    let (name, value) = (sides.next().unwrap_or_default(), sides.next());
    if !name.trim_ascii().eq_ignore_ascii_case(b"q") {
        return true;
    }
    let value = value.unwrap_or_default().trim_ascii();
    // RFC 9110 §12.4.2: 0 or 1, and at most three digits behind a point.
    match value {
        [b'1'] | [b'0', b'.', ..] | [b'1', b'.', ..] if value.len() <= 5 => {
            let rest = value.get(2..).unwrap_or_default();
            rest.iter().all(u8::is_ascii_digit)
                && value.iter().any(|byte| matches!(byte, b'1'..=b'9'))
        }
        _ => false,
    }
}

/// Media types whose bodies are compressed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MediaTypes {
    is_all: bool,
    /// In lower case, in order.
    names: Vec<Box<[u8]>>,
}

impl MediaTypes {
    /// `text/html`, which nginx's own filters have in every list, and these; `*` stands for all.
    pub fn new<'n>(names: impl IntoIterator<Item = &'n [u8]>) -> Self {
        let mut types = MediaTypes { is_all: false, names: vec![(*b"text/html").into()] };
        for name in names {
            types.is_all |= name == b"*";
            types.names.push(name.to_ascii_lowercase().into());
        }
        types.names.sort();
        types
    }

    /// Whether a response's `Content-Type` is one of them. What is gRPC's is none: its messages are
    /// compressed one by one.
    pub fn has(&self, content_type: &[u8]) -> bool {
        let name = content_type.split(|byte| *byte == b';').next().unwrap_or_default();
        let name = name.trim_ascii().to_ascii_lowercase();
        if name.starts_with(b"application/grpc") {
            return false;
        }
        self.is_all || self.names.binary_search_by(|known| (**known).cmp(name.as_slice())).is_ok()
    }
}

/// The `ETag` of a response whose body is encoded, from that of the body as it was: a weak one,
/// since the bytes differ. `None`: what was sent is none, and goes.
pub fn weak_etag(etag: &[u8]) -> Option<Vec<u8>> {
    match etag {
        [b'W', b'/', _, ..] => Some(etag.to_vec()),
        [b'"', ..] => Some([b"W/", etag].concat()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_takes_what_it_names_with_a_weight_above_nothing() {
        let taken = [
            "br",
            "BR",
            "gzip, br",
            "gzip,br;q=1",
            "br;q=1.000",
            "br ; q=0.001",
            "br;Q=0.5, gzip",
            "gzip;q=0, br;level=4",
        ];
        for header in taken {
            assert!(takes(header.as_bytes(), b"br"), "{header}");
        }
        let refused = [
            "",
            "*",
            "gzip",
            "br;q=0",
            "br;q=0.",
            "br;q=0.000",
            "br; q = 0.0",
            "brotli",
            "xbr",
            "br2, gzip",
            "br;q=",
            "br;q",
            "br;q=x",
            "br;q=2",
            "br;q=0.0001",
            "br;q=-1",
            "br;q=1.x",
        ];
        for header in refused {
            assert!(!takes(header.as_bytes(), b"br"), "{header}");
        }
    }

    #[test]
    fn a_media_type_is_compared_without_case_and_parameters() {
        let types = MediaTypes::new([&b"Text/CSS"[..], b"application/json"]);
        for (name, expected) in [
            ("text/css", true),
            ("TEXT/CSS; charset=utf-8", true),
            ("application/json ;a=b", true),
            ("text/html", true),
            ("text/plain", false),
            ("", false),
        ] {
            assert_eq!(types.has(name.as_bytes()), expected, "{name}");
        }
        let all = MediaTypes::new([&b"*"[..]]);
        assert!(all.has(b"image/png") && all.has(b"text/event-stream"));
        assert!(!all.has(b"application/grpc") && !all.has(b"application/grpc-web+proto"));
    }

    #[test]
    fn an_etag_becomes_weak_and_what_is_none_goes() {
        assert_eq!(weak_etag(b"\"a\"").as_deref(), Some(&b"W/\"a\""[..]));
        assert_eq!(weak_etag(b"W/\"a\"").as_deref(), Some(&b"W/\"a\""[..]));
        assert_eq!((weak_etag(b"a"), weak_etag(b""), weak_etag(b"W/")), (None, None, None));
    }
}
