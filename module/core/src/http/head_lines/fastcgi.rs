//! The lines of a FastCGI response: those of the records of its standard output.

use super::text::{Counted, TextLines};

/// The bytes before the content of a record: version, type, two of an id, two of a length, padding, and one that is reserved.
const HEADER: usize = 8;
const STDOUT: u8 = 6;

/// The lines of a FastCGI response, counted as its records come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FastCgi {
    header: [u8; HEADER],
    /// How many bytes of the header of a record have come.
    begun: usize,
    /// Bytes of the content that are to come.
    content: usize,
    /// Bytes of the padding that are to come.
    padding: usize,
    lines: TextLines,
}

impl Default for FastCgi {
    fn default() -> Self {
        let lines = TextLines { count: 0, is_empty: true };
        FastCgi { header: [0; HEADER], begun: 0, content: 0, padding: 0, lines }
    }
}

impl FastCgi {
    pub(super) fn count(&mut self, bytes: &[u8], most: usize) -> Counted {
        for byte in bytes {
            if self.content > 0 {
                self.content -= 1;
                let is_output = self.header[1] == STDOUT;
                match is_output.then(|| self.lines.count(*byte, most)) {
                    None | Some(Counted::More) => {}
                    Some(counted) => return counted,
                }
            } else if self.padding > 0 {
                self.padding -= 1;
            } else if let Some(place) = self.header.get_mut(self.begun) {
                *place = *byte;
                self.begun += 1;
                if self.begun == HEADER {
                    let [_, _, _, _, high, low, padding, _] = self.header;
                    self.begun = 0;
                    self.content = u16::from_be_bytes([high, low]).into();
                    self.padding = padding.into();
                }
            }
        }
        Counted::More
    }
}
