//! What was decided about an object, in words for the person who wrote it.

pub mod acceptance;

use crate::ObjectRef;
use crate::bucket::Rate;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// What one Event or log line takes from its bucket: a million, so that a bucket fills steadily.
pub const ONE_TOLD: u64 = 1_000_000;
/// The Events about one object, and the log lines.
pub const TOLD_OF_OBJECT: Rate = Rate { full: 10 * ONE_TOLD, period: Duration::from_mins(5) };

/// How much of an object is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// All of it; there is something worth knowing.
    Note,
    /// It is served, perhaps not as its author meant.
    Warning,
    /// It, or a part of it, is not served.
    Rejected,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Severity::Note => "accepted",
            Severity::Warning => "warning",
            Severity::Rejected => "rejected",
        })
    }
}

/// One thing to say: how bad it is, the field and the remedy.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Note {
    /// How severe the matter is.
    pub severity: Severity,
    /// Lower case, names the field and the remedy.
    pub message: String,
    /// The object that has to come or to change; None: the one that this is about.
    pub cause: Option<ObjectRef>,
}

impl Note {
    fn new(severity: Severity, message: impl Into<String>) -> Self {
        Note { severity, message: without_credentials(message.into()), cause: None }
    }

    /// The object, or a part of it, is not served.
    pub fn rejected(message: impl Into<String>) -> Self {
        Note::new(Severity::Rejected, message)
    }

    /// Served, perhaps not as meant.
    pub fn warning(message: impl Into<String>) -> Self {
        Note::new(Severity::Warning, message)
    }

    /// Makes a note about what is served and worth knowing.
    pub fn remark(message: impl Into<String>) -> Self {
        Note::new(Severity::Note, message)
    }
}

/// The text without users and passwords of URLs in it: notes stand in logs, Events and the dashboard.
fn without_credentials(text: String) -> String {
    let mut rest = text.as_str();
    let mut kept = String::new();
    while let Some((before, after)) = rest.split_once("://") {
        kept.extend([before, "://"]);
        // A password may have any character that ends it elsewhere: that may be what the note is about.
        let word = after.split(char::is_whitespace).next().unwrap_or_default();
        rest = match word.rfind('@').and_then(|at| after.get(at..)) {
            Some(host) => {
                kept.push_str("(hidden)");
                host
            }
            None => after,
        };
    }
    if kept.is_empty() {
        return text;
    }
    kept + rest
}

/// All there is to say about one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The worst of its notes.
    pub severity: Severity,
    /// In a fixed order, each once.
    pub messages: Vec<String>,
}

/// Longest list of messages about one object; the rest is counted.
const MAX_MESSAGES: usize = 20;

impl Verdict {
    /// None if there is nothing to say.
    pub fn of<'n>(notes: impl IntoIterator<Item = &'n Note>) -> Option<Verdict> {
        let mut messages: Vec<String> = Vec::new();
        let mut severity = Severity::Note;
        let mut unsaid = 0;
        for note in notes {
            severity = severity.max(note.severity);
            if messages.contains(&note.message) {
            } else if messages.len() < MAX_MESSAGES {
                messages.push(note.message.clone());
            } else {
                unsaid += 1;
            }
        }
        if unsaid > 0 {
            messages.push(format!("and {unsaid} more of the kind"));
        }
        (!messages.is_empty()).then_some(Verdict { severity, messages })
    }

    /// Its messages in one line, without the severity.
    pub fn text(&self) -> String {
        let messages: Vec<_> =
            self.messages.iter().map(|m| oxigress_core::text::line::one_line(m)).collect();
        messages.join("; ")
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.severity, self.text())
    }
}

/// The verdict of every object there is something to say about.
pub type Verdicts = BTreeMap<ObjectRef, Verdict>;

/// Verdicts that changed; `None`: there is nothing to say any more.
pub type VerdictChanges = BTreeMap<ObjectRef, Option<Verdict>>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_has_no_credentials_of_urls() {
        for (text, expected) in [
            ("auth-url: \"http://a:SECRET@h/x\" is", "auth-url: \"http://(hidden)@h/x\" is"),
            ("http://a:SECRET@h and https://b@c/d@e", "http://(hidden)@h and https://(hidden)@e"),
            ("http://a:S@CRET@h", "http://(hidden)@h"),
            (r#"http://a:S/CR?E\"T@h/x"#, "http://(hidden)@h/x"),
            ("http://h/x and a@b://", "http://h/x and a@b://"),
            ("nothing: a@b", "nothing: a@b"),
        ] {
            assert_eq!(Note::warning(text).message, expected);
        }
    }
}
