//! Regular expressions that users write, with bounded work.
//!
//! Shape:   compiled when first needed and kept, a worker each.
//! Errors:  a pattern that cannot be compiled, or that exceeds its budget on a value, gives no answer.
//! Source:  design.md §5 "Regexes": the `regex` crate, whose time is linear; look-around and back-references
//!          on `fancy-regex` with a limit. security.md §4 for the lengths.

use crate::model::Invalid;
use std::cell::RefCell;
use std::collections::HashMap;

/// Longest pattern (security.md §4).
pub const MAX_PATTERN_BYTES: usize = 1_024;
/// Longest value a pattern is tried on. A pattern that defeats the lazy automaton costs about 3 µs a byte (see
/// `the_worst_patterns_known`), and a step of a backtracking one may scan it all.
const MAX_VALUE_BYTES: usize = 1_024;
/// Steps of a backtracking pattern.
const MAX_STEPS: usize = 10_000;
/// A compiled pattern, and the automaton built while it runs.
const MAX_COMPILED_BYTES: usize = 64 * 1_024;
/// Compiled patterns of a worker. More than these begin anew: a list by age would cost every request.
const MAX_KEPT: usize = 256;

enum Compiled {
    Linear(regex::bytes::Regex),
    Backtracking(fancy_regex::Regex),
}

/// Compiled patterns by their text.
#[derive(Default)]
pub struct Patterns {
    kept: RefCell<HashMap<Vec<u8>, Option<Compiled>>>,
}

impl Patterns {
    /// Whether `pattern` is found in `value`; `None` if it cannot be told.
    pub fn is_match(&self, pattern: &[u8], value: &[u8]) -> Option<bool> {
        let mut kept = self.kept.try_borrow_mut().ok()?;
        if !kept.contains_key(pattern) {
            if kept.len() >= MAX_KEPT {
                kept.clear();
            }
            let compiled = str::from_utf8(pattern).ok().and_then(|text| compile(text).ok());
            kept.insert(pattern.to_vec(), compiled);
        }
        kept.get(pattern)?.as_ref()?.is_match(value)
    }
}

impl Compiled {
    fn is_match(&self, value: &[u8]) -> Option<bool> {
        match self {
            _ if value.len() > MAX_VALUE_BYTES => None,
            Compiled::Linear(regex) => Some(regex.is_match(value)),
            Compiled::Backtracking(regex) => regex.is_match(str::from_utf8(value).ok()?).ok(),
        }
    }
}

/// Refuses what could not be served, with the reason.
pub fn pattern_is_valid(pattern: &str) -> Result<(), Invalid> {
    compile(pattern).map(drop)
}

fn compile(pattern: &str) -> Result<Compiled, Invalid> {
    if pattern.len() > MAX_PATTERN_BYTES {
        return Err(Invalid::new(format!(
            "pattern of {} bytes, at most {MAX_PATTERN_BYTES} are served: shorten it",
            pattern.len()
        )));
    }
    // Bytes, as PCRE takes them without its UTF flag; a class of other letters needs characters.
    let linear = |is_unicode| {
        regex::bytes::RegexBuilder::new(pattern)
            .unicode(is_unicode)
            .size_limit(MAX_COMPILED_BYTES)
            .dfa_size_limit(MAX_COMPILED_BYTES)
            .nest_limit(64)
            .build()
    };
    let error = match linear(false).or_else(|_| linear(true)) {
        Ok(regex) => return Ok(Compiled::Linear(regex)),
        Err(error) => error,
    };
    if matches!(error, regex::Error::CompiledTooBig(_)) {
        return Err(Invalid::new("pattern is too large when compiled: repeat less often"));
    }
    fancy_regex::RegexBuilder::new(pattern)
        .backtrack_limit(MAX_STEPS)
        .delegate_size_limit(MAX_COMPILED_BYTES)
        .delegate_dfa_size_limit(MAX_COMPILED_BYTES)
        .max_prog_size(MAX_COMPILED_BYTES / 16)
        .build()
        .map(Compiled::Backtracking)
        .map_err(|_| {
            Invalid::new(format!("pattern is no regular expression: {}", last_line(&error)))
        })
}

/// The reason; the lines before it show the pattern.
fn last_line(error: &regex::Error) -> String {
    let text = error.to_string();
    text.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    fn found(pattern: &str, value: &[u8]) -> Option<bool> {
        Patterns::default().is_match(pattern.as_bytes(), value)
    }

    #[test]
    fn patterns_are_searched_for_in_bytes() {
        assert_eq!(found("^(beta|gamma)$", b"gamma"), Some(true));
        assert_eq!(found("^(beta|gamma)$", b"gammas"), Some(false));
        assert_eq!(found("et", b"beta"), Some(true));
        assert_eq!(found("^caf.$", b"caf\xe9"), Some(true));
        assert_eq!(found("^[äö]$", "ö".as_bytes()), Some(true));
    }

    #[test]
    fn look_around_and_back_references_are_served() {
        assert_eq!(found("^(?!old)", b"old-1"), Some(false));
        assert_eq!(found("^(?!old)", b"new-1"), Some(true));
        assert_eq!(found(r"^(\w+)-\1$", b"ab-ab"), Some(true));
        assert_eq!(found(r"^(\w+)-\1$", b"ab-ac"), Some(false));
    }

    #[test]
    fn what_cannot_be_compiled_has_no_answer_and_a_reason() {
        for pattern in ["(", "[a", "*a", "a{9999}{9999}", r"\p{nothing}", &"a".repeat(1_025)] {
            assert_eq!(found(pattern, b"a"), None, "{pattern:.20}");
            assert!(!pattern_is_valid(pattern).unwrap_err().to_string().is_empty());
        }
        assert_eq!(Patterns::default().is_match(b"\xff", b"a"), None);
        pattern_is_valid("^(?!old)").unwrap();
    }

    #[test]
    fn an_exhausted_budget_has_no_answer() {
        let value = "a".repeat(1_000) + "!";
        assert_eq!(found(r"^(?=a)(a|a)*b\1$", value.as_bytes()), None);
        assert_eq!(found("b", &[b'a'; 1_025]), None);
        assert_eq!(found("(?=b)b", &[b'a'; 1_025]), None);
    }

    #[test]
    fn a_worker_keeps_a_bounded_number() {
        let patterns = Patterns::default();
        for n in 0..1_000 {
            assert_eq!(
                patterns.is_match(format!("^{n}$").as_bytes(), n.to_string().as_bytes()),
                Some(true)
            );
            assert!(patterns.kept.borrow().len() <= MAX_KEPT);
        }
    }

    /// Not a test: `cargo test -p oxigress-core --release -- --ignored --nocapture the_worst`.
    #[test]
    #[ignore = "prints times"]
    fn the_worst_patterns_known() {
        // Bits that do not repeat, so that each byte is another state of the automaton.
        let bit = |n: u32| b'a' + (n.wrapping_mul(n).wrapping_mul(0x9e37_79b9) >> 31) as u8;
        let linear: Vec<_> = (1..MAX_VALUE_BYTES as u32).map(bit).chain([b'c']).collect();
        let backtracked = vec![b'a'; MAX_VALUE_BYTES];
        for (pattern, value) in [
            ("[ab]*a[ab]{40}[cd]x", &linear),
            ("a[ab]{60}[cd][^x]", &linear),
            ("(a|b)*a(a|b){60}c", &linear),
            ("(?i)(a*)*b", &linear),
            ("(?:a?){300}b", &linear),
            ("[ab]*a[ab]{90}c.*[ab]*a[ab]{90}c", &linear),
            (r"^(a+)+\1b", &backtracked),
            (r"(?=(a|aa)*b)a*b", &backtracked),
            (r"^(?:(?!b).)*b", &backtracked),
            (r"(?:a(?=.*b))*c", &backtracked),
            (r"(.*)(.*)(.*)\1b", &backtracked),
        ] {
            let patterns = Patterns::default();
            let first = patterns.is_match(pattern.as_bytes(), value);
            let start = Instant::now();
            let answer = patterns.is_match(pattern.as_bytes(), value);
            let took: Duration = start.elapsed();
            println!("{pattern}: {first:?} {answer:?} in {took:?}");
        }
    }
}
