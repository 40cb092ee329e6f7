//! The grammar of nginx.conf, as snippets are written in it: words, quotes, escapes, comments and blocks.
//!
//! Shape:   [`parse`] answers directives with the lines on which they begin, and knows none by name. [`print`] writes
//!          them so that they are read as the same.
//! Errors:  [`Unreadable`] names the line; nginx refuses the same texts.
//! Source:  ngx_conf_read_token of nginx 1.30: a backslash before a blank stays and does not divide, `#` begins a comment
//!          only where a word could begin, quotes within a word stand for themselves, `{` after `$` is part of a word.

use std::fmt;

/// Most directives of one text, those in blocks included.
const MOST_DIRECTIVES: usize = 1_000;
/// Most words of one directive; the longest that people write are lists of headers.
const MOST_WORDS: usize = 2_000;
/// Most blocks around a directive.
const MOST_DEPTH: usize = 16;
/// nginx reads configuration through a buffer of this size, and no word may be longer.
const MOST_WORD_BYTES: usize = 4_096;

/// A directive with its arguments and its block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directive {
    /// The line on which its name stands, from 1 on.
    pub line: usize,
    /// The first word of the directive.
    pub name: String,
    /// The other words, without quotes and escapes.
    pub arguments: Vec<String>,
    /// The directives between its braces; `None`: it ends with a semicolon.
    pub block: Option<Vec<Directive>>,
}

/// The text is none that nginx would read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// The line on which it ends being readable.
    pub line: usize,
    /// What is wrong there, as the end of an error message.
    pub why: &'static str,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.why)
    }
}

impl Directive {
    /// All words of the directive, its name first.
    pub fn words(&self) -> impl Iterator<Item = &str> {
        [&self.name].into_iter().chain(&self.arguments).map(String::as_str)
    }
}

/// Calls `visit` with each directive, those of blocks behind the one around them.
pub fn each<'d>(directives: &'d [Directive], visit: &mut impl FnMut(&'d Directive)) {
    for directive in directives {
        visit(directive);
        each(directive.block.as_deref().unwrap_or_default(), visit);
    }
}

/// Reads nginx directives, blocks included; nothing is looked up or expanded.
pub fn parse(text: &str) -> Result<Vec<Directive>, Unreadable> {
    let mut reader =
        DirectiveReader { rest: text.as_bytes(), line: 1, begins: 1, words: Vec::new() };
    // The blocks around what is read, outermost first: the directive, and what stands before it beside it.
    let mut around: Vec<(Directive, Vec<Directive>)> = Vec::new();
    let (mut found, mut count) = (Vec::new(), 0);
    loop {
        let end = reader.statement()?;
        let line = reader.begins;
        let mut words = std::mem::take(&mut reader.words).into_iter();
        match (end, words.next()) {
            (End::Semicolon | End::Brace, None) => return reader.refuse("a directive has no name"),
            (End::Semicolon, Some(name)) => {
                found.push(Directive { line, name, arguments: words.collect(), block: None });
            }
            (End::Brace, Some(_)) if around.len() == MOST_DEPTH => {
                return reader.refuse("blocks are nested more than 16 deep");
            }
            (End::Brace, Some(name)) => {
                let outer = Directive { line, name, arguments: words.collect(), block: None };
                around.push((outer, std::mem::take(&mut found)));
            }
            (End::Closing | End::Text, Some(_)) => {
                return reader.refuse("a directive ends without a semicolon");
            }
            (End::Closing, None) => match around.pop() {
                Some((mut outer, before)) => {
                    outer.block = Some(std::mem::replace(&mut found, before));
                    found.push(outer);
                }
                None => return reader.refuse("a brace closes no block"),
            },
            (End::Text, None) if around.is_empty() => return Ok(found),
            (End::Text, None) => return reader.refuse("a block has no closing brace"),
        }
        count += 1;
        if count > MOST_DIRECTIVES {
            return reader.refuse("more than 1000 directives and blocks are too many");
        }
    }
}

/// What ends the words of a directive.
enum End {
    Semicolon,
    Brace,
    Closing,
    Text,
}

struct DirectiveReader<'t> {
    rest: &'t [u8],
    line: usize,
    /// The line of the statement's first word.
    begins: usize,
    words: Vec<String>,
}

impl DirectiveReader<'_> {
    fn refuse<T>(&self, why: &'static str) -> Result<T, Unreadable> {
        Err(Unreadable { line: self.line, why })
    }

    fn next(&mut self) -> Option<u8> {
        let (byte, rest) = self.rest.split_first()?;
        self.rest = rest;
        self.line += usize::from(*byte == b'\n');
        Some(*byte)
    }

    /// Reads the words up to what ends them.
    fn statement(&mut self) -> Result<End, Unreadable> {
        loop {
            let Some(byte) = self.rest.first().copied() else { return Ok(End::Text) };
            if self.words.is_empty() {
                self.begins = self.line;
            }
            match byte {
                b' ' | b'\t' | b'\r' | b'\n' => _ = self.next(),
                b'#' => while self.next().is_some_and(|byte| byte != b'\n') {},
                b';' | b'{' | b'}' => {
                    self.next();
                    return Ok(match byte {
                        b';' => End::Semicolon,
                        b'{' => End::Brace,
                        _ => End::Closing,
                    });
                }
                b'"' | b'\'' => {
                    self.next();
                    self.quoted(byte)?;
                }
                _ => self.word()?,
            }
        }
    }

    /// Reads a word up to its closing quote; what divides words has to follow.
    fn quoted(&mut self, quote: u8) -> Result<(), Unreadable> {
        let text = self.rest;
        loop {
            match self.next() {
                Some(b'\\') => _ = self.next(),
                Some(byte) if byte == quote => break,
                Some(_) => {}
                None => return self.refuse("a quote has no end"),
            }
        }
        self.keep(text.len() - 1 - self.rest.len(), text)?;
        match self.rest.first() {
            None | Some(b' ' | b'\t' | b'\r' | b'\n' | b';' | b'{' | b')') => Ok(()),
            Some(_) => self.refuse("a quote ends within a word"),
        }
    }

    /// Reads a word without quotes.
    fn word(&mut self) -> Result<(), Unreadable> {
        let (text, mut is_variable) = (self.rest, false);
        while let Some(byte) = self.rest.first().copied() {
            match byte {
                b'{' if is_variable => {}
                b' ' | b'\t' | b'\r' | b'\n' | b';' | b'{' => break,
                // What follows does not divide, and `${` is none then.
                b'\\' => _ = self.next(),
                _ => {}
            }
            // `{` may follow `${` at once.
            is_variable = byte == b'$' || is_variable && byte == b'{';
            self.next();
        }
        self.keep(text.len() - self.rest.len(), text)
    }

    /// The first `length` bytes of `text` are a word.
    fn keep(&mut self, length: usize, text: &[u8]) -> Result<(), Unreadable> {
        if length >= MOST_WORD_BYTES {
            return self.refuse("a word has more than 4095 bytes");
        }
        if self.words.len() == MOST_WORDS {
            return self.refuse("more than 2000 words of one directive are too many");
        }
        let written = text.get(..length).unwrap_or(text);
        // A word begins and ends between bytes of ASCII.
        self.words.push(String::from_utf8_lossy(&without_escapes(written)).into_owned());
        Ok(())
    }
}

/// The word that nginx makes of what is written.
fn without_escapes(written: &[u8]) -> Vec<u8> {
    let mut word = Vec::with_capacity(written.len());
    let mut rest = written;
    loop {
        let (byte, after) = match rest {
            [] => return word,
            [b'\\', b't', after @ ..] => (b'\t', after),
            [b'\\', b'r', after @ ..] => (b'\r', after),
            [b'\\', b'n', after @ ..] => (b'\n', after),
            [b'\\', quoted @ (b'"' | b'\'' | b'\\'), after @ ..] => (*quoted, after),
            [byte, after @ ..] => (*byte, after),
        };
        word.push(byte);
        rest = after;
    }
}

/// Writes directives, each on a line, so that they are read as the same.
pub fn print(directives: &[Directive]) -> String {
    let mut text = String::new();
    for directive in directives {
        let words: Vec<_> = directive.words().map(quote).collect();
        text.push_str(&words.join(" "));
        match &directive.block {
            None => text.push_str(";\n"),
            Some(block) => {
                text.push_str(" {\n");
                text.push_str(&print(block));
                text.push_str("}\n");
            }
        }
    }
    text
}

fn quote(word: &str) -> String {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"-_./:$=~^".contains(&b);
    if !word.is_empty() && word.bytes().all(is_plain) {
        return word.to_owned();
    }
    format!("\"{}\"", word.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn words(text: &str) -> Vec<Vec<String>> {
        let all = parse(text).unwrap();
        let mut found = Vec::new();
        each(&all, &mut |directive| found.push(directive.words().map(str::to_owned).collect()));
        found
    }

    #[test]
    fn words_are_what_nginx_makes_of_them() {
        for (text, expected) in [
            ("a b;", &["a", "b"][..]),
            ("a \"b; c\" 'd } e';", &["a", "b; c", "d } e"]),
            ("a \"it's\" 'say \"x\"';", &["a", "it's", "say \"x\""]),
            (r#"a "q\"q" 'q\'q' b\\c;"#, &["a", "q\"q", "q'q", "b\\c"]),
            (r"a b\ c;", &["a", r"b\ c"]),
            (r"a ^/x\.y\d+$;", &["a", r"^/x\.y\d+$"]),
            (r#"a "\t\r\n\d";"#, &["a", "\t\r\n\\d"]),
            ("a b#c; # d;\n#e;\n", &["a", "b#c"]),
            ("a b\"c\"d e'f;", &["a", "b\"c\"d", "e'f"]),
            ("a ${b}c x${d};", &["a", "${b}c", "x${d}"]),
            (r"a x\;y;", &["a", r"x\;y"]),
            ("a\tb\r\n  c\r\n;", &["a", "b", "c"]),
            ("if (\"a b\") ;", &["if", "(\"a", "b\")"]),
            ("a \"b\") ;", &["a", "b", ")"]),
            ("'deny' all;", &["deny", "all"]),
            ("a b};", &["a", "b}"]),
            ("a é \"ü \u{1f600}\";", &["a", "é", "ü \u{1f600}"]),
            ("\"\" x;", &["", "x"]),
        ] {
            assert_eq!(words(text), [expected], "{text}");
        }
    }

    #[test]
    fn blocks_and_lines_are_kept() {
        let found =
            parse("# first\nif ($a = b) {\n  set $x\n  1;\n  location /y { z; }\n}\n\nlast;")
                .unwrap();
        let mut lines = Vec::new();
        each(&found, &mut |directive| lines.push((directive.line, directive.name.as_str())));
        assert_eq!(lines, [(2, "if"), (3, "set"), (5, "location"), (5, "z"), (8, "last")]);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].block.as_ref().unwrap().len(), 2);
        assert_eq!(parse(" \n# no more"), Ok(vec![]));
    }

    #[test]
    fn what_nginx_refuses_is_refused_with_its_line() {
        for (text, line, why) in [
            ("a b", 1, "semicolon"),
            ("a;\nb }", 2, "semicolon"),
            ("a;\n}", 2, "closes no block"),
            ("a {\nb;\n", 3, "no closing brace"),
            ("a \"b;\n", 2, "quote has no end"),
            ("a \"b\"c;", 1, "within a word"),
            ("a;\n;", 2, "no name"),
            ("{ a; }", 1, "no name"),
            ("a \"b\\\"", 1, "quote has no end"),
        ] {
            let found = parse(text).unwrap_err();
            assert_eq!(found.line, line, "{text}");
            assert!(found.why.contains(why), "{text}: {found}");
        }
        assert!(parse(&"a { ".repeat(17)).unwrap_err().why.contains("16 deep"));
        assert!(parse(&"a;".repeat(1_001)).unwrap_err().why.contains("too many"));
        assert!(parse(&format!("a {};", "b".repeat(4_096))).unwrap_err().why.contains("4095"));
        assert_eq!(parse(&"a;".repeat(1_000)).unwrap().len(), 1_000);
        let words = |count| parse(&format!("{};", "a ".repeat(count)));
        assert!(words(2_001).unwrap_err().why.contains("2000 words"));
        assert_eq!(words(2_000).unwrap()[0].words().count(), 2_000);
    }

    fn directives() -> impl Strategy<Value = Vec<Directive>> {
        let word =
            || prop_oneof!["[a-z_$/.~^]{1,8}", r#"[ -~\t\r\né]{0,8}"#, r#"[\\"'{};#$ a]{0,6}"#];
        let plain = (word(), prop::collection::vec(word(), 0..4))
            .prop_map(|(name, arguments)| Directive { line: 0, name, arguments, block: None });
        let nested = plain.prop_recursive(3, 20, 4, |inner| {
            (inner.clone(), prop::collection::vec(inner, 0..4))
                .prop_map(|(outer, block)| Directive { block: Some(block), ..outer })
        });
        prop::collection::vec(nested, 0..4)
    }

    fn without_lines(all: Vec<Directive>) -> Vec<Directive> {
        let plain = |directive: Directive| Directive {
            line: 0,
            block: directive.block.map(without_lines),
            ..directive
        };
        all.into_iter().map(plain).collect()
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read_as_the_same(all in directives()) {
            let text = print(&all);
            prop_assert_eq!(without_lines(parse(&text).unwrap()), all, "{}", text);
        }

        #[test]
        fn no_text_panics_and_what_is_read_is_printed_and_read_again(
            text in r#"[a-c ;{}"'\\#$\n\ré)(]{0,40}"#
        ) {
            if let Ok(all) = parse(&text) {
                let all = without_lines(all);
                prop_assert_eq!(without_lines(parse(&print(&all)).unwrap()), all);
            }
        }
    }
}
