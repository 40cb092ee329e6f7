//! One event is one line: text that comes from others is escaped before it stands in a line of ours.
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_ends_a_line_or_turns_it_round_is_escaped() {
        let text = "a\nb\r\u{1b}[31m\u{7f}\u{85}\u{2028}\u{202e}c\u{2066}\u{200f}é";
        let line = r"a\nb\r\u{1b}[31m\u{7f}\u{85}\u{2028}\u{202e}c\u{2066}\u{200f}é";
        assert_eq!(Escaped(text).to_string(), line);
    }

    proptest! {
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
