//! Percent-encoding of URLs (RFC 3986 §2.1).

/// Adds the text with its escapes decoded; what is no escape stays as it is.
pub fn unescape(mut text: &[u8], to: &mut Vec<u8>) {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|n| u8::try_from(n).ok());
    while let Some((&byte, rest)) = text.split_first() {
        let decoded = match rest {
            [high, low, ..] if byte == b'%' => digit(*high).zip(digit(*low)),
            _ => None,
        };
        to.push(decoded.map_or(byte, |(high, low)| high << 4 | low));
        text = if decoded.is_some() { rest.get(2..).unwrap_or_default() } else { rest };
    }
}
