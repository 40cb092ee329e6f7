//! The patterns in snippets.

use oxigress_core::model::policy::Script;
use oxigress_core::model::policy::script::ScriptPattern;
use oxigress_settings::grammar::directives::{self, Directive};

/// Annotations whose patterns are compiled.
pub const WITH_PATTERNS: [&str; 3] = ["auth-snippet", "configuration-snippet", "server-snippet"];

/// Longest text that is read, as of every annotation.
const MOST_BYTES: usize = 64 * 1024;

/// The patterns of a snippet, for what compiling them costs.
pub fn patterns(text: &str) -> Vec<String> {
    if text.len() > MOST_BYTES || !text.contains('~') && !text.contains("rewrite") {
        return Vec::new();
    }
    let all = directives::parse(text).unwrap_or_default();
    patterns_of(&all)
}

fn patterns_of(directives: &[Directive]) -> Vec<String> {
    let mut all = Vec::new();
    directives::each(directives, &mut |directive| {
        let words: Vec<&str> = directive.arguments.iter().map(String::as_str).collect();
        let found = match directive.name.as_str() {
            "rewrite" => words.first().map(|text| (*text, false)),
            "if" => match within_parentheses(&words).as_deref() {
                Some([_, "~" | "!~", text]) => Some((*text, false)),
                Some([_, "~*" | "!~*", text]) => Some((*text, true)),
                _ => None,
            },
            "location" => match place_words(&words) {
                Some(("~", text)) => Some((text, false)),
                Some(("~*", text)) => Some((text, true)),
                _ => None,
            },
            _ => None,
        };
        let found = found.and_then(|(text, any)| ScriptPattern::uncompiled(text, any).ok());
        all.extend(found.map(String::from));
    });
    all.truncate(2 * Script::MAX_PATTERNS);
    all
}

/// The words of a condition without the parentheses around it, as nginx takes them away.
pub fn within_parentheses<'w>(words: &[&'w str]) -> Option<Vec<&'w str>> {
    let mut words = words.to_vec();
    let first = words.first_mut()?;
    *first = first.strip_prefix('(')?;
    if first.is_empty() {
        words.remove(0);
    }
    let last = words.last_mut()?;
    *last = last.strip_suffix(')')?;
    if last.is_empty() {
        words.pop();
    }
    Some(words)
}

/// The modifier and the path of a location, which nginx takes in one word too.
pub fn place_words<'w>(words: &[&'w str]) -> Option<(&'w str, &'w str)> {
    match words {
        [modifier @ ("=" | "^~" | "~" | "~*"), text] => Some((modifier, text)),
        [text] => {
            let mut glued = ["=", "^~", "~*", "~"].into_iter();
            let found = glued.find_map(|modifier| Some((modifier, text.strip_prefix(modifier)?)));
            Some(found.unwrap_or(("", text)))
        }
        _ => None,
    }
}
