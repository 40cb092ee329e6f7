//! One event is one line: foreign text is escaped before it is written into a line.
//!
//! Log lines of both programs, error messages, Events and metric labels use this one list of characters.

use std::fmt::{self, Display, Write};

/// Whether a character could end the line, control a terminal, or change the order in which the line is read.
pub fn is_special(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        )
}

/// Writes a value with every special character escaped, such as `\n` and `\u{202e}`.
pub struct Escaped<T>(pub T);

impl<T: Display> Display for Escaped<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(Escaping(f), "{}", self.0)
    }
}

/// Passes text on with every special character escaped.
struct Escaping<'a, 'f>(&'a mut fmt::Formatter<'f>);

impl Write for Escaping<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        while let Some((at, special)) = rest.char_indices().find(|(_, c)| is_special(*c)) {
            let (before, after) = rest.split_at(at);
            self.0.write_str(before)?;
            write!(self.0, "{}", special.escape_default())?;
            rest = after.strip_prefix(special).unwrap_or_default();
        }
        self.0.write_str(rest)
    }
}

/// What a pipe takes at once, so that lines of two processes do not mix, but for the end of the line.
const MAX_LINE_BYTES: usize = 4_095;

/// A line of another program's log with every special character escaped, and every byte that is not UTF-8; `None`: there is
/// none. It is cut after 4,095 bytes.
pub fn escaped_line(line: &[u8]) -> Option<String> {
    if line.iter().all(|byte| (b' '..=b'~').contains(byte)) {
        return None;
    }
    let mut text = String::with_capacity(2 * line.len());
    for chunk in line.utf8_chunks() {
        // Writing into a string does not fail.
        let _ = write!(text, "{}{}", Escaped(chunk.valid()), chunk.invalid().escape_ascii());
    }
    text.truncate(text.floor_char_boundary(MAX_LINE_BYTES));
    Some(text)
}

/// The longest foreign text in a line, in bytes.
const MAX_BYTES: usize = 1_024;

/// Escapes the special characters of a foreign text and cuts it after 1,024 bytes, so that it fits into one line.
pub fn one_line(text: &str) -> String {
    one_line_within(text, MAX_BYTES)
}

/// Does the same as [`one_line`] with another bound. The ellipsis that marks the cut comes on top of `max_bytes`.
pub fn one_line_within(text: &str, max_bytes: usize) -> String {
    let mut line = String::with_capacity(text.len().min(max_bytes));
    for c in text.chars() {
        if line.len() > max_bytes {
            line.push('…');
            break;
        }
        match c {
            '\t' => line.push(' '),
            c if is_special(c) => line.extend(c.escape_default()),
            c => line.push(c),
        }
    }
    line
}

/// The words of an error with those of its causes, which say what went wrong below: a connection, a certificate.
pub fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_line_break_in_user_text_stays_in_its_line() {
        assert_eq!(one_line("a\nb\u{7f}\u{202e}"), "a\\nb\\u{7f}\\u{202e}");
        assert!(one_line(&"é".repeat(5_000)).len() < 1_100);
    }

    #[test]
    fn what_ends_a_line_or_turns_it_round_is_escaped() {
        let text = "a\nb\r\u{1b}[31m\u{7f}\u{85}\u{2028}\u{202e}c\u{2066}\u{200f}é";
        let line = r"a\nb\r\u{1b}[31m\u{7f}\u{85}\u{2028}\u{202e}c\u{2066}\u{200f}é";
        assert_eq!(Escaped(text).to_string(), line);
    }

    #[test]
    fn bytes_of_a_line_are_escaped_unless_they_are_text() {
        assert_eq!(escaped_line(b"GET / HTTP/1.1, \"a\\\""), None);
        let found = escaped_line("a\u{1b}[2J\u{202e}b é".as_bytes());
        assert_eq!(found.as_deref(), Some(r"a\u{1b}[2J\u{202e}b é"));
        // The byte is a control of terminals that do not read UTF-8.
        assert_eq!(escaped_line(b"a\x9b2J \xe2\x80").as_deref(), Some(r"a\x9b2J \xe2\x80"));
        assert_eq!(escaped_line(&[0x1b; 2_000]).map(|line| line.len()), Some(4_095));
    }

    proptest! {
        #[test]
        fn no_line_leaves_a_special_character(line: Vec<u8>) {
            if let Some(escaped) = escaped_line(&line) {
                prop_assert!(!escaped.contains(is_special) && escaped.len() <= 4_095, "{escaped:?}");
            } else {
                prop_assert!(line.iter().all(|byte| (b' '..=b'~').contains(byte)));
            }
        }

        #[test]
        fn no_text_leaves_a_special_character(parts in proptest::collection::vec(any::<String>(), 0..4)) {
            let text = parts.join("\u{202d}\n");
            let line = Escaped(format_args!("{text}")).to_string();
            prop_assert!(!line.contains(is_special), "{line:?}");
            let plain: String = text.chars().filter(|c| !is_special(*c)).collect();
            prop_assert!(!text.chars().all(|c| !is_special(c)) || line == plain);
        }
    }
}
