//! Paths that servers read in more than one way, for operators who refuse them: a segment of the router may be another
//! path to an application server.
//!
//! Source:  RFC 3986 §3.3; the option is off unless the operator turns it on, as in ingress-nginx, which has none.

use crate::text::percent;

/// The ambiguous forms of paths that an operator refuses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    /// `.` or `..` with parameters: `/a/..;/b`.
    pub parameters: bool,
    /// Refuses paths that contain `%2F`.
    pub encoded_slashes: bool,
    /// Refuses paths that contain `\` or `%5C`.
    pub backslashes: bool,
    /// Refuses paths that contain `//` outside the query.
    pub double_slashes: bool,
    /// Refuses `.` and `..` as segments: `/a/../b`, `/a/%2e%2e%2fb`.
    pub dot_segments: bool,
}

impl Refused {
    /// The words of the setting and of the directive.
    pub const WORDS: [&str; 6] =
        ["all", "parameters", "encoded-slashes", "backslashes", "double-slashes", "dot-segments"];

    /// Refuses the form that a word names; `None` if it is none of [`Refused::WORDS`].
    pub fn add(&mut self, word: &str) -> Option<()> {
        match word {
            "all" => Self::WORDS.iter().skip(1).try_for_each(|word| self.add(word))?,
            "parameters" => self.parameters = true,
            "encoded-slashes" => self.encoded_slashes = true,
            "backslashes" => self.backslashes = true,
            "double-slashes" => self.double_slashes = true,
            "dot-segments" => self.dot_segments = true,
            _ => return None,
        }
        Some(())
    }

    /// Whether every form of a path is allowed.
    #[inline]
    pub fn is_nothing(&self) -> bool {
        *self == Refused::default()
    }

    /// Whether a request target, as the client sent it, is refused. Double encoding counts as single encoding, since
    /// some endpoints decode twice.
    pub fn refuses(&self, target: &[u8]) -> bool {
        let path = target.split(|byte| *byte == b'?').next().unwrap_or_default();
        let once = decoded(path);
        let twice = decoded(&once);
        let is_hidden = |byte: u8| {
            let count = |text: &[u8]| text.iter().filter(|b| **b == byte).count();
            count(&twice) > count(path)
        };
        self.parameters && has_parameters(&twice)
            || self.encoded_slashes && is_hidden(b'/')
            || self.backslashes && twice.contains(&b'\\')
            || self.double_slashes && path.windows(2).any(|pair| pair == b"//")
            || self.dot_segments && segments(&twice).any(is_dots)
    }
}

/// Whether a request target, as the client sent it, has the segment `.` or `..` in its path, in whatever form: what is looked
/// up by the text of the target is then another path than the one that is served.
pub fn has_dot_segments(target: &[u8]) -> bool {
    // Most have none of the bytes that a dot is written with.
    target.iter().any(|byte| matches!(byte, b'.' | b'%'))
        && Refused { dot_segments: true, ..Refused::default() }.refuses(target)
}

/// As servers read them that take `\` for `/`, too.
fn segments(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|byte| matches!(byte, b'/' | b'\\'))
}

fn is_dots(segment: &[u8]) -> bool {
    matches!(segment, b"." | b"..")
}

fn has_parameters(path: &[u8]) -> bool {
    segments(path)
        .filter_map(|segment| segment.iter().position(|b| *b == b';').map(|at| &segment[..at]))
        .any(is_dots)
}

fn decoded(text: &[u8]) -> Vec<u8> {
    let mut into = Vec::with_capacity(text.len());
    percent::unescape(text, &mut into);
    into
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(word: &str) -> Refused {
        let mut refused = Refused::default();
        refused.add(word).unwrap();
        refused
    }

    #[test]
    fn each_word_refuses_its_own_and_nothing_else() {
        let cases = [
            ("parameters", vec!["/a/..;/b", "/..;x=1/b", "/%2e%2e;/b", "/.%3b/b", "/a/..%253B/"]),
            ("encoded-slashes", vec!["/a%2fb", "/a%2Fb", "/a%252fb"]),
            ("backslashes", vec!["/a\\b", "/a%5cb", "/a%255Cb"]),
            ("double-slashes", vec!["//a", "/a//b", "/a//"]),
            ("dot-segments", vec!["/a/../b", "/./a", "/a/..", "/%2e%2E/b", "/a/.%2e?c", "/%252e/"]),
        ];
        for (word, paths) in &cases {
            for path in paths {
                assert!(refused(word).refuses(path.as_bytes()), "{word} {path}");
                assert!(refused("all").refuses(path.as_bytes()), "{path}");
                let others = cases.iter().filter(|(other, _)| other != word);
                for (other, _) in others {
                    assert!(!refused(other).refuses(path.as_bytes()), "{other} {path}");
                }
            }
        }
        for path in ["/", "/a;v=1/b", "/a..;b", "/a?b=//..;/%2f\\", "/100%", "/%zz", "/a.;b"] {
            assert!(!refused("all").refuses(path.as_bytes()), "{path}");
        }
        for path in ["/a.b", "/..a", "/...", "/.well-known/a", "/a?b=/../", "/%2e%2ea", "/a/.%2e."]
        {
            assert!(!refused("all").refuses(path.as_bytes()), "{path}");
            assert!(!has_dot_segments(path.as_bytes()), "{path}");
        }
        // Of two forms at once, which each of their words refuses.
        for path in
            ["/a/..%2fb", "/a%2f.%2fb", "/a/..%252fb", "/a\\..\\b", "/a%5c%2e%2e%5cb", "/a%2f.."]
        {
            assert!(refused("dot-segments").refuses(path.as_bytes()), "{path}");
            assert!(has_dot_segments(path.as_bytes()), "{path}");
        }
        assert!(Refused::default().is_nothing() && Refused::default().add("slashes").is_none());
    }
}
