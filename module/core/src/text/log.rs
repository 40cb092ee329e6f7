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
    /// Nothing.
    None,
}

impl Escape {
    /// Of `escape=NAME`.
    pub fn named(name: &[u8]) -> Option<Self> {
        match name {
            b"default" => Some(Escape::Default),
            b"json" => Some(Escape::Json),
            b"none" => Some(Escape::None),
            _ => None,
        }
    }

    /// Appends a value.
    #[inline]
    pub fn write(self, line: &mut Vec<u8>, value: &[u8]) {
        match self {
            Escape::None => line.extend_from_slice(value),
            _ if !value.iter().fold(false, |any, byte| any | self.is_special(*byte)) => {
                line.extend_from_slice(value);
            }
            _ => value.iter().for_each(|byte| self.write_byte(line, *byte)),
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

    #[cold]
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

/// Appends a decimal number.
#[inline]
pub fn write_number(line: &mut Vec<u8>, number: u64) {
    line.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Appends milliseconds as seconds with three digits behind the point.
#[inline]
pub fn write_seconds(line: &mut Vec<u8>, milliseconds: u64) {
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
