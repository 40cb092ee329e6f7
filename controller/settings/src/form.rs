//! What the value of a key may be: a closed grammar each, and the value that it reads.
//!
//! Shape:   [`Form`] reads a text into a [`Value`]. Both roles read the same texts with the same forms, so nothing
//!          gets into nginx.conf that the role which writes it has not read itself.
//! Errors:  words that follow the value in a message: `is not …`.
//! Source:  ingress-nginx's ConfigMap.

use crate::grammar::parse_bool;
use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::general_purpose::{GeneralPurpose, PAD};
use ipnet::IpNet;
use oxigress_core::http::head;
use oxigress_core::model::policy::Proxy;
use oxigress_validate::tls;
use std::net::IpAddr;

/// What the value of a key may be.
#[derive(Clone, Copy)]
pub enum Form {
    /// A boolean as Go reads it.
    Flag,
    /// A whole number, decimal or with Go's prefixes, between the two.
    Number(u64, u64),
    /// Bytes, as nginx writes them: `8k`, `1m`.
    Size,
    /// A time, as nginx writes it: `30s`, `1h 30m`; without a unit seconds.
    Time,
    /// The value is one of these words.
    Word(&'static [&'static str]),
    /// Some of these words, with white space between.
    Words(&'static [&'static str]),
    /// What the function takes, as it is to stand in nginx.conf; the text says what it is.
    Text(&'static str, fn(&str) -> Option<String>),
    /// The same, and no message repeats what was written.
    Secret(&'static str, fn(&str) -> Option<String>),
    /// The same as `Text`, for the items of a list with commas; an item that is not taken is left out.
    List(&'static str, fn(&str) -> Option<String>),
}

/// A value of a key, read by its form.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the shapes of values")]
pub enum Value {
    Flag(bool),
    Number(u64),
    Text(String),
    List(Vec<String>),
}

impl Value {
    /// As it stands in nginx.conf.
    pub fn conf(&self) -> String {
        match self {
            Value::Flag(true) => "on".into(),
            Value::Flag(false) => "off".into(),
            Value::Number(number) => number.to_string(),
            Value::Text(text) => text.clone(),
            Value::List(items) => items.join(" "),
        }
    }

    /// The value of a flag; false for another form.
    pub fn flag(&self) -> bool {
        *self == Value::Flag(true)
    }

    /// The number; 0 for other values.
    pub fn number(&self) -> u64 {
        if let Value::Number(number) = self { *number } else { 0 }
    }

    /// The number, at most what a field takes; forms bound it.
    pub fn short(&self) -> u32 {
        u32::try_from(self.number()).unwrap_or(u32::MAX)
    }

    /// The text; empty for other values.
    pub fn text(&self) -> &str {
        if let Value::Text(text) = self { text } else { "" }
    }

    /// The items; none for other values.
    pub fn list(&self) -> &[String] {
        if let Value::List(items) = self { items } else { &[] }
    }
}

impl Form {
    /// Reads a value and the items of a list that are not taken; the error says what it is not.
    pub fn read(&self, text: &str) -> Result<(Value, Vec<String>), String> {
        let trimmed = text.trim();
        let plain = |value: Option<Value>| value.map(|value| (value, Vec::new()));
        let found = match self {
            Form::Flag if trimmed.is_empty() => plain(Some(Value::Flag(false))),
            Form::Flag => plain(parse_bool(trimmed).map(Value::Flag)),
            Form::Number(least, most) => {
                let number = number(trimmed).filter(|number| (*least..=*most).contains(number));
                plain(number.map(Value::Number))
            }
            Form::Size => plain(bytes(trimmed).map(|_| Value::Text(trimmed.to_ascii_lowercase()))),
            Form::Time => plain(milliseconds(trimmed).map(|_| Value::Text(one_word(trimmed)))),
            Form::Word(all) => {
                plain(all.contains(&trimmed).then(|| Value::Text(trimmed.to_owned())))
            }
            Form::Words(all) => {
                let words: Vec<_> = trimmed.split_whitespace().collect();
                let is_fine = !words.is_empty() && words.iter().all(|word| all.contains(word));
                plain(is_fine.then(|| Value::Text(words.join(" "))))
            }
            Form::Text(_, read) | Form::Secret(_, read) => plain(read(trimmed).map(Value::Text)),
            Form::List(_, read) => {
                let items = trimmed.split(',').map(str::trim).filter(|item| !item.is_empty());
                let (mut good, mut odd) = (Vec::new(), Vec::new());
                for item in items {
                    match read(item) {
                        Some(item) => good.push(item),
                        None => odd.push(item.to_owned()),
                    }
                }
                Some((Value::List(good), odd))
            }
        };
        found.ok_or_else(|| self.words())
    }

    /// What a value is, in words.
    pub fn words(&self) -> String {
        match self {
            Form::Flag => "true or false".into(),
            Form::Number(least, most) => format!("a number from {least} to {most}"),
            Form::Size => "a size such as 8k or 1m".into(),
            Form::Time => "a time such as 30s or 10m".into(),
            Form::Word(all) => format!("one of {}", all.join(", ")),
            Form::Words(all) => format!("some of {}", all.join(", ")),
            Form::Text(what, _) | Form::Secret(what, _) => (*what).into(),
            Form::List(what, _) => format!("a list of {what}"),
        }
    }

    /// The empty text leaves the default, as in the reference; of flags and lists it is a value.
    pub fn takes_empty(&self) -> bool {
        matches!(self, Form::Flag | Form::List(..))
    }
}

/// A whole number as Go's `ParseInt` with base 0 reads it.
fn number(text: &str) -> Option<u64> {
    let text = text.strip_prefix('+').unwrap_or(text).to_ascii_lowercase();
    let (digits, radix) = match (text.get(..2), text.get(2..)) {
        (Some("0x"), Some(digits)) => (digits, 16),
        (Some("0o"), Some(digits)) => (digits, 8),
        (Some("0b"), Some(digits)) => (digits, 2),
        (Some(_), _) if text.starts_with('0') => (&text[1..], 8),
        _ => (&*text, 10),
    };
    // Rust would take one more sign.
    digits.bytes().all(|b| b.is_ascii_alphanumeric()).then_some(())?;
    u64::from_str_radix(digits, radix).ok()
}

/// Bytes of a size as nginx writes it, below 1 TiB.
pub fn bytes(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(digits)?;
    let factor = match unit {
        "" => 1,
        "k" | "K" => 1 << 10,
        "m" | "M" => 1 << 20,
        "g" | "G" => 1 << 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor).filter(|bytes| *bytes < 1 << 40)
}

/// A time as nginx writes it, units from large to small; at most a year.
pub fn milliseconds(text: &str) -> Option<u64> {
    const UNITS: [(&str, u64); 7] = [
        ("y", 31_536_000_000),
        ("M", 2_592_000_000),
        ("w", 604_800_000),
        ("d", 86_400_000),
        ("h", 3_600_000),
        ("m", 60_000),
        ("s", 1_000),
    ];
    let (mut rest, mut sum, mut last) = (text, 0_u64, u64::MAX);
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (number, after) = rest.split_at_checked(digits)?;
        let (factor, after) = match UNITS.iter().find(|(unit, _)| after.starts_with(unit)) {
            _ if after.starts_with("ms") => (1, after.get(2..)?),
            Some((unit, factor)) => (*factor, after.get(unit.len()..)?),
            None if after.is_empty() => (1_000, after),
            None => return None,
        };
        if factor >= last {
            return None;
        }
        last = factor;
        sum = sum.checked_add(number.parse::<u64>().ok()?.checked_mul(factor)?)?;
        rest = after.trim_start();
    }
    Some(sum).filter(|sum| *sum <= 31_536_000_000)
}

fn one_word(text: &str) -> String {
    text.chars().filter(|c| !c.is_whitespace()).collect()
}

fn made_of(text: &str, more: &[u8]) -> bool {
    let is_fine = |b: u8| b.is_ascii_alphanumeric() || more.contains(&b);
    (1..=4096).contains(&text.len()) && text.bytes().all(is_fine)
}

fn plain(text: &str, more: &[u8]) -> Option<String> {
    made_of(text, more).then(|| text.to_owned())
}

/// Items without an order of their own.
pub fn network(text: &str) -> Option<String> {
    let network = text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
    network.ok().map(|network| network.trunc().to_string())
}

/// An IP address as `listen` writes it, with brackets for IPv6.
pub fn listen_address(text: &str) -> Option<String> {
    let inside = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    inside.parse().ok().map(|address| match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    })
}

/// The name of a header that also has a variable.
pub fn header_name(text: &str) -> Option<String> {
    plain(text, b"-_").filter(|name| name.len() <= 128)
}

/// The name of a header that says how a request was forwarded, in lower case.
pub fn kept_header(text: &str) -> Option<String> {
    header_name(text).filter(|name| head::may_be_kept(name)).map(|name| name.to_ascii_lowercase())
}

/// The name of a header that may be removed from requests, in lower case.
pub fn stripped_header(text: &str) -> Option<String> {
    header_name(text)
        .filter(|name| head::may_be_stripped(name))
        .map(|name| name.to_ascii_lowercase())
}

/// OpenSSL's cipher list, with a cipher that it has.
pub fn ciphers(text: &str) -> Option<String> {
    plain(text, b":+-!@=_.,").filter(|text| tls::cipher_list(text).is_ok())
}

/// Curves and groups that OpenSSL has, with colons.
pub fn curves(text: &str) -> Option<String> {
    plain(text, b":-_").filter(|text| text == "auto" || tls::groups(text).is_ok())
}

/// A size within the bounds, as it is to stand in nginx.conf: sizes of memory have no `g` there.
fn size_within(text: &str, least: u64, most: u64) -> Option<String> {
    let size = bytes(text).filter(|size| (least..=most).contains(size))?;
    let text = text.to_ascii_lowercase();
    Some(if text.ends_with('g') { format!("{}m", size >> 20) } else { text })
}

/// What a table of TLS sessions may take: nginx wants eight pages of memory.
pub fn session_cache(text: &str) -> Option<String> {
    size_within(text, 64 << 10, 1 << 30)
}

/// What each connection or request may take.
pub fn buffer(text: &str) -> Option<String> {
    size_within(text, 256, 1 << 30)
}

/// What the part of a body that is in memory may take.
pub fn body_buffer(text: &str) -> Option<String> {
    size_within(text, Proxy::LEAST_BUFFER_BYTES.into(), 1 << 30)
}

/// The type that nginx compresses whatever a list says, and the only one without a list.
pub const HTML: &str = "text/html";

/// Media types with white space or commas between, without [`HTML`] beside others.
pub fn media_types(text: &str) -> Option<String> {
    let words = text.split(|c: char| c.is_whitespace() || c == ',').filter(|word| !word.is_empty());
    let is_fine = |word: &&str| *word == "*" || word.contains('/') && made_of(word, b"/+-._");
    let (html, words): (Vec<_>, Vec<_>) = words.partition(|word| word.eq_ignore_ascii_case(HTML));
    match words.is_empty() {
        true => (!html.is_empty()).then(|| HTML.to_owned()),
        false => words.iter().all(is_fine).then(|| words.join(" ")),
    }
}

/// Reads a media type such as `text/html`; `None`: it is none.
pub fn media_type(text: &str) -> Option<String> {
    plain(text, b"/+-._").filter(|text| text.contains('/'))
}

/// A number and a size: how many buffers and how large.
pub fn buffers(text: &str) -> Option<String> {
    let words: Vec<_> = text.split_whitespace().collect();
    let &[count, size] = words.as_slice() else { return None };
    let (count, bytes) = (count.parse::<u16>().ok()?, bytes(size)?);
    // A request line and each header have to fit in one; a worker has as many as it has clients.
    ((1..=1024).contains(&count) && (256..=16 << 20).contains(&bytes))
        .then(|| format!("{count} {}", size.to_ascii_lowercase()))
}

/// `auto`, perhaps with a mask, or masks.
pub fn affinity(text: &str) -> Option<String> {
    let words: Vec<_> = text.split_whitespace().collect();
    let is_mask = |word: &&str| {
        word.len() <= 1024 && word.contains('1') && word.bytes().all(|b| b == b'0' || b == b'1')
    };
    let masks = if words.first() == Some(&"auto") { &words[1..] } else { &words[..] };
    (!words.is_empty() && masks.iter().all(is_mask)).then(|| words.join(" "))
}

/// `auto` or a number of worker processes.
pub fn workers(text: &str) -> Option<String> {
    match text.parse() {
        _ if text == "auto" => Some(text.into()),
        Ok(1..=512_u16) => Some(text.parse::<u16>().ok()?.to_string()),
        _ => None,
    }
}

/// A file that nginx may write: nothing but logs lies there.
pub fn log_file(text: &str) -> Option<String> {
    let is_device = matches!(text, "/dev/stdout" | "/dev/stderr" | "/dev/null");
    let is_below = text.strip_prefix("/var/log/").is_some_and(|rest| {
        rest.split('/').all(|part| !part.is_empty() && part != "." && part != "..")
    });
    (is_device || is_below).then(|| plain(text, b"/-_.")).flatten()
}

/// Reads parameters of a log: `buffer=SIZE`, `flush=TIME`, `gzip[=1-9]`.
pub fn log_parameters(text: &str) -> Option<String> {
    let is_fine = |word: &&str| match word.split_once('=') {
        Some(("buffer", size)) => bytes(size).is_some_and(|bytes| bytes >= 1),
        Some(("flush", time)) => milliseconds(time).is_some(),
        Some(("gzip", level)) => matches!(level.as_bytes(), [b'1'..=b'9']),
        None => *word == "gzip",
        _ => false,
    };
    let words: Vec<_> = text.split_whitespace().collect();
    words.iter().all(is_fine).then(|| words.join(" "))
}

/// A host name or IP address.
pub fn host(text: &str) -> Option<String> {
    listen_address(text).or_else(|| plain(text, b"-.").filter(|text| text.len() <= 253))
}

/// Reads `namespace/name` of another object.
pub fn reference(text: &str) -> Option<String> {
    let key = oxigress_objects::Key::parse(text)?;
    (made_of(&key.namespace, b"-.") && made_of(&key.name, b"-.")).then(|| text.to_owned())
}

/// Text of a request that stands in a `map`, quoted: none that `map` would take for a pattern or a word of its own.
pub fn exact_path(text: &str) -> Option<String> {
    let is_fine = |b: u8| b.is_ascii_graphic() && !b"\"'\\${};".contains(&b);
    (text.starts_with('/') && text.len() <= 1024 && text.bytes().all(is_fine))
        .then(|| text.to_owned())
}

/// Reads the base64 of a key of TLS session tickets: nginx takes keys of 48 and of 80 bytes. Line ends do not count, as
/// in the reference.
pub fn ticket_key(text: &str) -> Option<String> {
    let text: String = text.chars().filter(|c| !matches!(c, '\r' | '\n')).collect();
    let is_key = ticket_key_bytes(&text).is_some();
    is_key.then_some(text)
}

/// The bytes of a key that [`ticket_key`] takes.
pub fn ticket_key_bytes(text: &str) -> Option<Vec<u8>> {
    // As Go reads it, bits behind the last byte do not count.
    let engine = GeneralPurpose::new(&STANDARD, PAD.with_decode_allow_trailing_bits(true));
    let key = engine.decode(text).ok()?;
    matches!(key.len(), 48 | 80).then_some(key)
}

/// Any text without control bytes; what it has to be is said where it is used.
pub fn any(text: &str) -> Option<String> {
    (text.len() <= 64 * 1024 && !text.bytes().any(|b| b.is_ascii_control()))
        .then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_go_reads_them() {
        for (text, expected) in [
            ("10", Some(10)),
            ("0x10", Some(16)),
            ("010", Some(8)),
            ("0", Some(0)),
            ("+5", Some(5)),
            ("-5", None),
            ("5s", None),
            ("1.5", None),
            ("0x+1", None),
        ] {
            assert_eq!(number(text), expected, "{text}");
        }
    }

    #[test]
    fn sizes_and_times_are_nginx_s() {
        assert_eq!((bytes("8k"), bytes("1G"), bytes("0")), (Some(8192), Some(1 << 30), Some(0)));
        for odd in ["", "k", "8kb", "8 k", "-1", "9999999g", "8k;"] {
            assert_eq!(bytes(odd), None, "{odd}");
        }
        assert_eq!(buffer("1G").as_deref(), Some("1024m"));
        assert_eq!(buffer("8K").as_deref(), Some("8k"));
        assert_eq!((buffer("255"), buffer("2g"), session_cache("63k")), (None, None, None));
        assert_eq!(milliseconds("1h30m"), Some(5_400_000));
        assert_eq!(milliseconds("500ms"), Some(500));
        assert_eq!(milliseconds("1h 30m"), Some(5_400_000));
        assert_eq!(milliseconds("60"), Some(60_000));
        for odd in ["", "s", "1x", "30m1h", "1m 1m", "1s;", "2y"] {
            assert_eq!(milliseconds(odd), None, "{odd}");
        }
    }

    #[test]
    fn nothing_that_ends_a_directive_is_taken() {
        let readers = [
            network,
            listen_address,
            header_name,
            kept_header,
            stripped_header,
            ciphers,
            curves,
            session_cache,
            buffer,
            media_types,
            media_type,
            buffers,
            affinity,
            workers,
            log_file,
            log_parameters,
            host,
            reference,
            exact_path,
        ];
        for (number, read) in readers.iter().enumerate() {
            for text in ["a;b", "a b;", "a{", "a}", "/a\"b", "/a'b", "/a\\b", "a\nb", "/a$b", "a#;"]
            {
                assert_eq!(read(text), None, "reader {number}, {text:?}");
            }
        }
    }

    #[test]
    fn html_beside_other_types_says_nothing_and_alone_that_there_are_no_others() {
        for (text, expected) in [
            ("text/html", Some("text/html")),
            ("text/html, Text/HTML", Some("text/html")),
            ("text/html text/css,a/b", Some("text/css a/b")),
            ("text/html *", Some("*")),
            ("", None),
            ("text/html css", None),
        ] {
            assert_eq!(media_types(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn logs_are_written_where_logs_lie() {
        assert!(log_file("/var/log/nginx/a.log").is_some() && log_file("/dev/stdout").is_some());
        for odd in ["/etc/passwd", "/var/log/../x", "/var/log/", "a.log", "/var/log/a b"] {
            assert_eq!(log_file(odd), None, "{odd}");
        }
    }

    #[test]
    fn an_item_that_is_not_taken_leaves_the_others() {
        let form = Form::List("networks", network);
        let (value, odd) = form.read("10.0.0.1/8, x,,::1").unwrap();
        assert_eq!(value.list(), ["10.0.0.0/8", "::1/128"]);
        assert_eq!(odd, ["x"]);
    }
}
