//! Lines of text, as HTTP/1 and FastCGI have them.

use memchr::memchr;

/// What is known of the lines of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// The bytes until now end within the head.
    More,
    /// The head is here as a whole.
    End,
    /// The head has more lines than are taken.
    TooMany,
}

/// Lines of text that end at an empty one, with or without carriage returns, as nginx reads them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TextLines {
    pub(super) count: usize,
    /// The line that was begun has nothing yet.
    pub(super) is_empty: bool,
}

impl TextLines {
    pub(super) fn count(&mut self, byte: u8, most: usize) -> Counted {
        match byte {
            b'\n' if self.is_empty => return Counted::End,
            b'\n' if self.count == most => return Counted::TooMany,
            b'\n' => (self.count, self.is_empty) = (self.count + 1, true),
            b'\r' => {}
            _ => self.is_empty = false,
        }
        Counted::More
    }
}

/// The lines of a head of HTTP/1, its status line among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Http1 {
    /// How many bytes of the head were looked at.
    read: usize,
    lines: TextLines,
}

impl Default for Http1 {
    fn default() -> Self {
        Http1 { read: 0, lines: TextLines { count: 0, is_empty: false } }
    }
}

impl Http1 {
    /// What does not begin as a head of HTTP/1 has no lines.
    pub(super) fn count(&mut self, bytes: &[u8], most: usize) -> Counted {
        let begun = bytes.len().min(b"HTTP/".len());
        if !b"HTTP/".starts_with(bytes.get(..begun).unwrap_or_default()) {
            return Counted::End;
        }
        let is_blank = |line: &[u8]| line.iter().all(|byte| *byte == b'\r');
        let mut rest = bytes.get(self.read..).unwrap_or_default();
        // Nearly every response has a line of ten bytes or more, so lines are looked for and not bytes.
        while let Some((line, after)) = memchr(b'\n', rest).and_then(|end| {
            let (line, after) = rest.split_at_checked(end)?;
            Some((line, after.get(1..)?))
        }) {
            self.lines.is_empty &= is_blank(line);
            self.read += line.len() + 1;
            match self.lines.count(b'\n', most) {
                Counted::More => rest = after,
                counted => return counted,
            }
        }
        self.lines.is_empty &= is_blank(rest);
        self.read += rest.len();
        Counted::More
    }
}
