//! The text of a pattern, where PCRE reads it otherwise than the parsers here do.
//!
//! Shape:   one pass over brackets, flags and repetitions; what they mean is left to the parsers.
//! Source:  pcre2pattern(3), tried with libpcre2 10.42, which nginx is linked with.

use crate::text::invalid::Invalid;

/// Flags within one group: each is written again at each of its alternatives.
const MAX_FLAGS: usize = 8;

/// The result of scanning a pattern.
#[derive(Debug)]
pub struct Scanned {
    /// The same pattern for `fancy-regex`: flags of the rest of a group are groups of their own, and a brace that repeats
    /// nothing is escaped.
    pub text: String,
    /// Why PCRE refuses it, or not every PCRE reads it alike.
    pub refusal: Option<Invalid>,
    /// It has a repetition that gives nothing back, such as `a++`.
    pub is_possessive: bool,
    /// Its whole is divided by `|`.
    pub has_alternatives: bool,
    /// The groups that capture, without the whole match.
    pub captures: usize,
}

/// A group that is open, or the whole.
#[derive(Clone, Default)]
struct Level {
    /// Flags that were set in it, as beginnings of groups.
    flags: Vec<String>,
    /// White space and comments are no part of the pattern.
    is_extended: bool,
}

/// The item before the current place.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Last {
    Nothing,
    Item,
    Repetition,
}

struct Scanner<'p> {
    rest: &'p str,
    level: Level,
    outer: Vec<Level>,
    last: Last,
    scanned: Scanned,
}

/// Rewrites flags and escapes so that both engines read a pattern as PCRE does.
pub fn scan(pattern: &str) -> Scanned {
    let mut scanner = Scanner {
        rest: pattern,
        level: Level::default(),
        outer: Vec::new(),
        last: Last::Nothing,
        scanned: Scanned {
            text: String::with_capacity(pattern.len()),
            refusal: None,
            is_possessive: false,
            has_alternatives: false,
            captures: 0,
        },
    };
    while let Some(c) = scanner.rest.chars().next() {
        scanner.step(c);
    }
    scanner.close_flags();
    scanner.scanned
}

/// How many bytes of a text are a repetition in braces.
#[derive(Debug, PartialEq, Eq)]
enum Braces {
    Repetition(usize),
    /// Text before PCRE 10.43, a repetition since.
    Unclear,
    Text,
}

fn braces(text: &str) -> Braces {
    let Some(end) = text.find('}') else { return Braces::Text };
    let inner = text.get(1..end).unwrap_or_default();
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let is_number_or_none = |part: &str| part.is_empty() || is_number(part);
    let parts: Vec<&str> = inner.split(',').collect();
    match *parts.as_slice() {
        [times] if is_number(times) => return Braces::Repetition(end + 1),
        [least, most] if is_number(least) && is_number_or_none(most) => {
            return Braces::Repetition(end + 1);
        }
        _ => {}
    }
    let blank = |part: &&str| is_number_or_none(part.trim_matches([' ', '\t']));
    let has_number = inner.bytes().any(|b| b.is_ascii_digit());
    match parts.len() <= 2 && parts.iter().all(blank) && has_number {
        true => Braces::Unclear,
        false => Braces::Text,
    }
}

impl Scanner<'_> {
    /// Takes so many bytes over as they are.
    fn copy(&mut self, bytes: usize) {
        let (text, rest) = self.rest.split_at_checked(bytes).unwrap_or((self.rest, ""));
        self.scanned.text.push_str(text);
        self.rest = rest;
    }

    /// The same, to the end of the first `end` or of the pattern.
    fn copy_through(&mut self, end: char) {
        let bytes = self.rest.find(end).map_or(self.rest.len(), |at| at + end.len_utf8());
        self.copy(bytes);
    }

    fn refuse(&mut self, why: &str) {
        self.scanned.refusal.get_or_insert_with(|| Invalid::new(why));
    }

    fn step(&mut self, c: char) {
        match c {
            '\\' => self.escape(),
            '[' => self.class(),
            '(' => self.open(),
            ')' => {
                self.close_flags();
                match self.outer.pop() {
                    Some(outer) => self.level = outer,
                    None => self.refuse("pattern has a `)` without its `(`: write \\) for text"),
                }
                self.copy(1);
                self.last = Last::Item;
            }
            '|' => {
                self.scanned.has_alternatives |= self.outer.is_empty();
                self.close_flags();
                self.copy(1);
                self.level.flags.iter().for_each(|flags| self.scanned.text.push_str(flags));
                self.last = Last::Nothing;
            }
            '*' | '+' | '?' => self.repeat(1),
            '{' => match braces(self.rest) {
                Braces::Repetition(bytes) => self.repeat(bytes),
                kind => {
                    if kind == Braces::Unclear {
                        self.refuse(
                            "pattern has a repetition such as {,3} or { 3 }, which is text before PCRE 10.43: write \
                             {0,3}, or \\{ for text",
                        );
                    }
                    self.scanned.text.push('\\');
                    self.copy(1);
                    self.last = Last::Item;
                }
            },
            '#' if self.level.is_extended => self.copy_through('\n'),
            c if self.level.is_extended && c.is_ascii_whitespace() => self.copy(1),
            c => {
                self.copy(c.len_utf8());
                self.last = Last::Item;
            }
        }
    }

    fn escape(&mut self) {
        self.copy(1);
        if let Some(escaped) = self.rest.chars().next() {
            self.copy(escaped.len_utf8());
            if "xpPgkoNu".contains(escaped) && self.rest.starts_with('{') {
                self.copy_through('}');
            }
        }
        self.last = Last::Item;
    }

    fn class(&mut self) {
        self.copy(1);
        if self.rest.starts_with('^') {
            self.copy(1);
        }
        if self.rest.starts_with(']') {
            self.copy(1);
        }
        while let Some(c) = self.rest.chars().next() {
            match c {
                '\\' => self.escape(),
                '[' if self.rest.starts_with("[:") && self.rest.contains(":]") => {
                    self.copy_through(']');
                }
                c => self.copy(c.len_utf8()),
            }
            if c == ']' {
                break;
            }
        }
        self.last = Last::Item;
    }

    fn repeat(&mut self, bytes: usize) {
        match self.last {
            Last::Repetition => self.refuse(
                "pattern repeats a repetition, which PCRE refuses: put brackets around the inner one",
            ),
            Last::Nothing if self.rest.starts_with('{') => {
                self.refuse("pattern repeats nothing: write \\{ for text");
            }
            Last::Nothing | Last::Item => {}
        }
        self.copy(bytes);
        if self.rest.starts_with('+') {
            self.scanned.is_possessive = true;
        }
        if self.rest.starts_with(['+', '?']) {
            self.copy(1);
        }
        self.last = Last::Repetition;
    }

    fn open(&mut self) {
        if self.rest.starts_with("(?#") {
            return self.copy_through(')');
        }
        if let Some((flags, end)) = flags(self.rest) {
            let is_group = end == ':';
            let outer = self.level.clone();
            if let Some(is_extended) = sets_extended(flags) {
                self.level.is_extended = is_extended;
            }
            self.rest = self.rest.get("(?".len() + flags.len() + 1..).unwrap_or_default();
            let begin = format!("(?{flags}:");
            self.scanned.text.push_str(&begin);
            if is_group {
                self.outer.push(outer);
                self.level.flags.clear();
            } else {
                self.level.flags.push(begin);
                if self.level.flags.len() > MAX_FLAGS {
                    self.refuse("pattern sets flags too often in one group: set them once");
                }
            }
            self.last = Last::Nothing;
            return;
        }
        self.outer.push(self.level.clone());
        self.level.flags.clear();
        let rest = self.rest;
        let named = ["(?<", "(?P<", "(?'"].into_iter().find(|begin| rest.starts_with(begin));
        match named {
            Some(begin) => {
                self.copy(begin.len());
                // `(?<=` and `(?<!` have no name.
                if self.rest.starts_with(['=', '!']) {
                    self.copy(1);
                } else {
                    self.copy_through(if begin == "(?'" { '\'' } else { '>' });
                    self.scanned.captures += 1;
                }
            }
            None if rest.starts_with("(?(") => self.copy(2),
            None if rest.starts_with("(?") => self.copy(3),
            None => {
                self.copy(1);
                // A verb, such as `(*COMMIT)`, is no group.
                self.scanned.captures += usize::from(!self.rest.starts_with('*'));
            }
        }
        self.last = Last::Nothing;
    }

    /// Ends the groups that stand for flags.
    fn close_flags(&mut self) {
        self.level.flags.iter().for_each(|_| self.scanned.text.push(')'));
    }
}

/// The flags of `(?FLAGS)` or `(?FLAGS:`, and what ends them.
fn flags(text: &str) -> Option<(&str, char)> {
    let inner = text.strip_prefix("(?")?;
    let is_flag = |c: char| "imsxnJUuR-^".contains(c);
    let end = inner.find(|c| !is_flag(c))?;
    let (flags, rest) = inner.split_at_checked(end)?;
    let ends = rest.chars().next().filter(|c| *c == ')' || *c == ':' && !flags.is_empty())?;
    (!flags.is_empty()).then_some((flags, ends))
}

/// Whether flags make white space insignificant; `None` if they do not mention it.
fn sets_extended(flags: &str) -> Option<bool> {
    let (set, unset) = flags.split_once('-').unwrap_or((flags, ""));
    match (set.contains('x'), unset.contains('x')) {
        (_, true) => Some(false),
        (true, false) => Some(true),
        (false, false) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_end_with_their_group() {
        for (pattern, text) in [
            ("(a(?i)b)c", "(a(?i:b))c"),
            ("(a(?i)b|c)d", "(a(?i:b)|(?i:c))d"),
            ("a(?i)b|c", "a(?i:b)|(?i:c)"),
            ("(?i)a(?-i)b", "(?i:a(?-i:b))"),
            ("(?i:a)b", "(?i:a)b"),
            ("(?=a(?i)b)(?<n>c)(?<!d)e", "(?=a(?i:b))(?<n>c)(?<!d)e"),
            ("(?(1)a(?i)b|c)", "(?(1)a(?i:b)|(?i:c))"),
            (r"[(?i)]\(?i\)(?#(?i|)a", r"[(?i)]\(?i\)(?#(?i|)a"),
            ("a{x}b{2}{,}", r"a\{x}b{2}\{,}"),
        ] {
            assert_eq!(scan(pattern).text, text);
        }
    }

    #[test]
    fn what_pcre_refuses_or_does_not_read_alike_is_refused() {
        for pattern in
            ["a{2}{3}", "a**", "a+{2}", "a?{2}", "a{2}+{2}", "a{,3}", "a{ 2 }", "a{2, 3}", "a|{2}"]
        {
            assert!(scan(pattern).refusal.is_some(), "{pattern}");
        }
        for pattern in [
            "a{2}",
            "a{2,}",
            "a{2,3}?",
            "(a{2}){3}",
            "a{x}",
            "a{,}",
            "a{",
            r"\x{41}{2}",
            r"\p{L}+",
            "[a{2}{3}]",
            r"\{,3}",
            "(?:a*)*",
            "[]*]+",
            "[[:alpha:]*+]+",
            "a{2}+",
            "(?x) a + # **",
        ] {
            assert!(scan(pattern).refusal.is_none(), "{pattern}");
        }
        assert!(scan("a++").is_possessive && scan("a{2}+b").is_possessive);
        assert!(!scan(r"a+[++]\++").is_possessive);
    }

    #[test]
    fn alternatives_of_the_whole_are_seen() {
        for pattern in ["/a|/b", r"/a\(|/b", "/[(]|/b", "/(a)|b", "/(?#()|b", "/[]|(]|b"] {
            assert!(scan(pattern).has_alternatives, "{pattern}");
        }
        for pattern in ["/(a|b)", r"/a\|b", "/[|]", "/(?:a|b)(?=c|d)"] {
            assert!(!scan(pattern).has_alternatives, "{pattern}");
        }
    }

    #[test]
    fn groups_that_capture_are_counted() {
        for (pattern, captures) in [
            ("/b", 0),
            ("/b(/|$)(.*)", 2),
            (r"/b\(c\)(d)", 1),
            ("/b[(](c)", 1),
            ("/b[](](c)", 1),
            (r"/b[^\](](c)", 1),
            ("/[[:alpha:](](c)", 1),
            ("/(?:a|b)(?<name>c)(?P<other>d)(?'third'e)", 3),
            ("/(?i)a(?i:b)(?=c)(?!d)(?<=e)(?<!f)(?>g)", 0),
            ("/(?#(a)b", 0),
            ("(?x)/(a) # (b)\n", 1),
            ("/((a)b)", 2),
        ] {
            assert_eq!(scan(pattern).captures, captures, "{pattern}");
        }
    }

    #[test]
    fn what_closes_no_group_is_refused() {
        for pattern in ["a)|(?:b", ")", "(a))(", "(?i)a)|(b"] {
            assert!(scan(pattern).refusal.is_some(), "{pattern}");
        }
        for pattern in ["(a)|(?:b)", r"\)", "[)]", "(?#a)b", "(?x)(a # )\n)"] {
            assert!(scan(pattern).refusal.is_none(), "{pattern}");
        }
    }
}
