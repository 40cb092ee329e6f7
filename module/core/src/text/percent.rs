//! Percent-encoding of URLs (RFC 3986 §2.1).

use std::borrow::Cow;

/// The text in which letters, digits, `-`, `.`, `_` and the bytes of `but` stay, and all other bytes are escaped.
pub fn escaped<'t>(text: &'t [u8], but: &'t [u8]) -> impl Iterator<Item = u8> + 't {
    text.iter().flat_map(move |&byte| {
        let stays = byte.is_ascii_alphanumeric() || b"-._".contains(&byte) || but.contains(&byte);
        let (all, count) = if stays { ([byte; 3], 1) } else { (escape(byte), 3) };
        all.into_iter().take(count)
    })
}

/// The escape of one byte.
pub fn escape(byte: u8) -> [u8; 3] {
    let digit = |digit: u8| digit + if digit < 10 { b'0' } else { b'A' - 10 };
    [b'%', digit(byte >> 4), digit(byte & 15)]
}

/// The text with its escapes decoded; `None` if two digits do not follow each `%`.
pub fn decode(mut text: &[u8]) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(text.len());
    while let Some((&byte, rest)) = text.split_first() {
        let escaped = (byte == b'%').then(|| pair(rest));
        decoded.push(escaped.map_or(Some(byte), |pair| pair)?);
        text = if escaped.is_some() { rest.get(2..).unwrap_or_default() } else { rest };
    }
    Some(decoded)
}

/// As [`decode`]; `None` also where the result is not UTF-8.
pub fn decode_text(text: &[u8]) -> Option<String> {
    String::from_utf8(decode(text)?).ok()
}

/// As [`unescape`], for a part of a query as forms write it: `+` is a space.
pub fn unescape_form(text: &[u8]) -> Cow<'_, [u8]> {
    if !text.iter().any(|byte| matches!(byte, b'%' | b'+')) {
        return Cow::Borrowed(text);
    }
    let spaced: Vec<u8> =
        text.iter().map(|byte| if *byte == b'+' { b' ' } else { *byte }).collect();
    let mut all = Vec::with_capacity(text.len());
    unescape(&spaced, &mut all);
    Cow::Owned(all)
}

/// Adds the text with its escapes decoded; what is no escape stays as it is.
pub fn unescape(mut text: &[u8], to: &mut Vec<u8>) {
    while let Some((&byte, rest)) = text.split_first() {
        let decoded = if byte == b'%' { pair(rest) } else { None };
        to.push(decoded.unwrap_or(byte));
        text = if decoded.is_some() { rest.get(2..).unwrap_or_default() } else { rest };
    }
}

/// The byte of the two hexadecimal digits that the text begins with.
fn pair(text: &[u8]) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|n| u8::try_from(n).ok());
    let [high, low] = *text.first_chunk()?;
    Some(digit(high)? << 4 | digit(low)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_escaped_is_decoded() {
        let all: Vec<u8> = (0..=255).collect();
        let text: Vec<u8> = escaped(&all, b"~/").collect();
        assert!(text.is_ascii() && text.windows(3).any(|part| part == b"%AF"));
        assert_eq!(decode(&text).as_deref(), Some(&all[..]));
        assert_eq!(escaped(b"a b~/%", b"~/").map(char::from).collect::<String>(), "a%20b~/%25");
        for text in ["%", "%4", "a%4g", "%+1"] {
            assert_eq!(decode(text.as_bytes()), None, "{text}");
            assert_eq!(&*unescape_form(text.as_bytes()), text.replace('+', " ").as_bytes());
        }
        assert_eq!((decode_text(b"%ff"), decode_text(b"%c3%bc").as_deref()), (None, Some("ü")));
        assert_eq!(&*unescape_form(b"a+b%2B%zz"), b"a b+%zz");
    }
}
