//! What DNS says of the names that Services stand for, while those who lead there owe for reading endpoints.
//!
//! Reason:  an answer has the endpoints of each backend of the name read, sent and written again, as a change of an
//!          EndpointSlice has, and a name server may give another one every second.

use super::Pace;
use oxigress_objects::Name;
use oxigress_objects::service::external_name::{DnsAnswer, DnsName};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// The last answer of each name that is not taken over yet.
#[derive(Debug, Default)]
pub struct Answers {
    waiting: BTreeMap<DnsName, DnsAnswer>,
    due_at: Option<Instant>,
}

impl Answers {
    /// Takes note of what DNS says.
    pub fn put(&mut self, name: DnsName, answer: DnsAnswer) {
        self.waiting.insert(name, answer);
    }

    /// What is taken over now: the answers of names of which one user owes nothing. `users` are the namespaces that pay for
    /// the backends of a name; without one it is no longer wanted.
    pub fn due(
        &mut self,
        pace: &Pace,
        users: impl Fn(&DnsName) -> BTreeSet<Name>,
        now: Instant,
    ) -> Vec<(DnsName, DnsAnswer)> {
        let mut due = Vec::new();
        self.due_at = None;
        for (name, answer) in std::mem::take(&mut self.waiting) {
            let times = users(&name).into_iter().map(|user| pace.time_to_pay(&user, now));
            match times.min() {
                Some(Duration::ZERO) => due.push((name, answer)),
                Some(wait) => {
                    let at = now + wait;
                    self.due_at = Some(self.due_at.map_or(at, |first| first.min(at)));
                    self.waiting.insert(name, answer);
                }
                None => {}
            }
        }
        due
    }

    /// When one of those that wait may be due; `None`: none waits.
    pub fn due_at(&self) -> Option<Instant> {
        self.due_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> DnsName {
        DnsName::parse(text).unwrap()
    }

    #[test]
    fn answers_wait_while_all_who_use_the_name_owe() {
        let (mut pace, mut answers, start) = (Pace::default(), Answers::default(), Instant::now());
        pace.spend([("evil".into(), 2_500_000_000)].into(), true, start);
        let users = |of: &DnsName| match of.to_string().as_str() {
            "evil.test" => ["evil".into()].into(),
            "both.test" => ["evil".into(), "good".into()].into(),
            _ => BTreeSet::new(),
        };
        for of in ["evil.test", "both.test", "gone.test", "evil.test"] {
            answers.put(name(of), DnsAnswer::default());
        }
        let names = |answers: &mut Answers, at| -> Vec<String> {
            answers.due(&pace, users, at).into_iter().map(|(name, _)| name.to_string()).collect()
        };
        assert_eq!(names(&mut answers, start), ["both.test"]);
        let paid = answers.due_at().unwrap();
        assert_eq!(paid - start, Duration::from_secs(10), "half a second of two in forty");
        assert!(names(&mut answers, paid - Duration::from_secs(1)).is_empty());
        assert_eq!(names(&mut answers, paid), ["evil.test"]);
        assert_eq!(answers.due_at(), None);
    }
}
