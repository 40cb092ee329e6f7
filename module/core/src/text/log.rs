//! Values as nginx's access log writes them: `log_format`'s escapes, numbers, times.
//!
//! Source: `ngx_http_log_module` and nginx's `ngx_escape_json`.

/// What `log_format` does with a value that could end its quotes or its line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Escape {
    /// `"`, `\` and every byte that is not printable ASCII as `\xXX`.
    #[default]
    Default,
    /// As the inside of a JSON string; bytes above ASCII stay.
    Json,
    /// Values stand as they are.
    None,
}

/// A word of bytes that are not special.
const PADDING: u64 = u64::from_le_bytes([b' '; 8]);

impl Escape {
    /// The escaping that `escape=NAME` names; `None`: nginx has no such name.
    pub fn named(name: &[u8]) -> Option<Self> {
        match name {
            b"default" => Some(Escape::Default),
            b"json" => Some(Escape::Json),
            b"none" => Some(Escape::None),
            _ => None,
        }
    }

    /// Appends a value to a line of the log, escaped.
    #[inline]
    pub fn write(self, line: &mut Vec<u8>, value: &[u8]) {
        match self.is_plain(value) {
            true => line.extend_from_slice(value),
            false => self.write_closely(line, value),
        }
    }

    /// Appends a value that is in parts.
    #[inline]
    pub fn write_parts(self, line: &mut Vec<u8>, parts: &[&[u8]]) {
        let start = line.len();
        parts.iter().for_each(|part| line.extend_from_slice(part));
        if !self.is_plain(line.get(start..).unwrap_or_default()) {
            line.truncate(start);
            parts.iter().for_each(|part| self.write_closely(line, part));
        }
    }

    #[cold]
    fn write_closely(self, line: &mut Vec<u8>, value: &[u8]) {
        value.iter().for_each(|byte| self.write_byte(line, *byte));
    }

    /// Nothing in a value is escaped: it is looked at by words, of which the last overlaps the one before.
    #[inline]
    fn is_plain(self, value: &[u8]) -> bool {
        if self == Escape::None {
            return true;
        }
        if let Some(last) = value.last_chunk::<8>() {
            let words = value.as_chunks::<8>().0.iter().chain([last]);
            let found =
                words.fold(0, |found, word| found | self.specials(u64::from_le_bytes(*word)));
            return found == 0;
        }
        let short = value.iter().fold(PADDING, |word, byte| word << 8 | u64::from(*byte));
        self.specials(short) == 0
    }

    /// Not 0 if a byte of a word is special: the arithmetic carries no bit from one byte to the next unless one is.
    #[inline(always)]
    fn specials(self, word: u64) -> u64 {
        const ONES: u64 = u64::from_le_bytes([1; 8]);
        const HIGH: u64 = ONES << 7;
        let below = |word: u64, least: u64| word.wrapping_sub(ONES * least) & !word & HIGH;
        let is = |byte: u8| below(word ^ (ONES * u64::from(byte)), 1);
        let any = below(word, 0x20) | is(b'"') | is(b'\\');
        match self {
            Escape::Default => any | is(0x7f) | word & HIGH,
            _ => any,
        }
    }

    /// Appends what stands in the place of a variable without a value.
    #[inline]
    pub fn write_absent(self, line: &mut Vec<u8>) {
        if self == Escape::Default {
            line.push(b'-');
        }
    }

    #[inline]
    fn is_special(self, byte: u8) -> bool {
        let is_control = byte < 0x20 || byte == b'"' || byte == b'\\';
        is_control || (self == Escape::Default && byte > 0x7e)
    }

    fn write_byte(self, line: &mut Vec<u8>, byte: u8) {
        let digit = |nibble: u8| b"0123456789ABCDEF"[usize::from(nibble & 15)];
        match byte {
            _ if !self.is_special(byte) => line.push(byte),
            _ if self == Escape::Default => {
                line.extend_from_slice(&[b'\\', b'x', digit(byte >> 4), digit(byte)]);
            }
            b'"' | b'\\' => line.extend_from_slice(&[b'\\', byte]),
            b'\n' => line.extend_from_slice(b"\\n"),
            b'\r' => line.extend_from_slice(b"\\r"),
            b'\t' => line.extend_from_slice(b"\\t"),
            0x08 => line.extend_from_slice(b"\\b"),
            0x0c => line.extend_from_slice(b"\\f"),
            _ => line.extend_from_slice(&[b'\\', b'u', b'0', b'0', digit(byte >> 4), digit(byte)]),
        }
    }
}

/// What `use_it` makes of the decimal digits of a number.
#[inline]
pub fn with_digits<T>(number: u64, use_it: impl FnOnce(&[u8]) -> T) -> T {
    use_it(itoa::Buffer::new().format(number).as_bytes())
}

/// Appends a decimal number.
#[inline]
pub fn write_number(line: &mut Vec<u8>, number: u64) {
    match number {
        0..10 => line.push(b'0' + number as u8),
        _ => with_digits(number, |digits| line.extend_from_slice(digits)),
    }
}

/// Appends milliseconds as seconds with three digits behind the point.
#[inline]
pub fn write_seconds(line: &mut Vec<u8>, milliseconds: u64) {
    if milliseconds == 0 {
        // Most are that short.
        return line.extend_from_slice(b"0.000");
    }
    write_number(line, milliseconds / 1_000);
    let rest = milliseconds % 1_000;
    let digit = |unit: u64| b'0' + (rest / unit % 10) as u8;
    line.extend_from_slice(&[b'.', digit(100), digit(10), digit(1)]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written(escape: Escape, value: &[u8]) -> String {
        let mut line = Vec::new();
        escape.write(&mut line, value);
        String::from_utf8_lossy(&line).into_owned()
    }

    #[test]
    fn values_are_escaped_as_nginx_escapes_them() {
        let value = b"a\"b\\c\n\r\t\x08\x0c\x01\x7f\xc3\xa9";
        let as_text = r"a\x22b\x5Cc\x0A\x0D\x09\x08\x0C\x01\x7F\xC3\xA9";
        assert_eq!(written(Escape::Default, value), as_text);
        let as_json = "a\\\"b\\\\c\\n\\r\\t\\b\\f\\u0001\u{7f}é";
        assert_eq!(written(Escape::Json, value), as_json);
        assert_eq!(written(Escape::None, value).as_bytes(), value);
    }

    #[test]
    fn a_special_byte_is_seen_wherever_it_stands() {
        for length in 1..50 {
            for at in 0..length {
                let mut value = vec![b'a'; length];
                value[at] = b'"';
                assert_eq!(written(Escape::Default, &value).len(), length + 3, "{length}, {at}");
                assert_eq!(written(Escape::Json, &value).len(), length + 1, "{length}, {at}");
            }
            let plain = "a".repeat(length);
            assert_eq!(written(Escape::Default, plain.as_bytes()), plain);
        }
    }

    #[test]
    fn parts_are_escaped_as_one_value() {
        let mut line = b"\"".to_vec();
        Escape::Default.write_parts(&mut line, &[b"a", b"", b"-b"]);
        assert_eq!(line, b"\"a-b");
        Escape::Default.write_parts(&mut line, &[b" a\"", b"b"]);
        assert_eq!(line, b"\"a-b a\\x22b");
    }

    #[test]
    fn numbers_and_times_have_nginxs_form() {
        let mut line = Vec::new();
        for milliseconds in [0, 7, 70, 1_234, 61_000] {
            write_seconds(&mut line, milliseconds);
            line.push(b' ');
        }
        write_number(&mut line, u64::MAX);
        let expected = "0.000 0.007 0.070 1.234 61.000 18446744073709551615";
        assert_eq!(String::from_utf8(line).unwrap(), expected);
    }

    proptest! {
        #[test]
        fn no_value_ends_its_quotes_or_its_line(value: Vec<u8>) {
            for escape in [Escape::Default, Escape::Json] {
                let mut line = vec![b'"'];
                escape.write(&mut line, &value);
                line.push(b'"');
                prop_assert!(line.iter().all(|byte| *byte >= 0x20));
                let mut inside = line[1..line.len() - 1].iter();
                while let Some(byte) = inside.next() {
                    prop_assert!(*byte != b'"');
                    if *byte == b'\\' {
                        prop_assert!(inside.next().is_some());
                    }
                }
            }
            if let Ok(text) = std::str::from_utf8(&value) {
                let json = format!("\"{}\"", written(Escape::Json, text.as_bytes()));
                prop_assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
            }
        }
    }
}
