//! Log lines of verdicts, of which an object and a namespace have so many: else one who edits all the time would have the lines of
//! all others rotate away.
//!
//! Shape:   what is left out is counted. When there may be lines again, one of them tells how many there were, and of an object
//!          what the last one said. What there is at the start is told as a whole.
//! Apart:   lines that tell a change of state have a bucket of their own: who makes an object and removes it again and again
//!          would else not be told what is wrong with it.

use oxigress_objects::bucket::{Bucket, Rate};
use oxigress_objects::verdict::{ONE_TOLD, Severity, TOLD_OF_OBJECT, Verdict, VerdictChanges};
use oxigress_objects::{Kind, Name, ObjectRef};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tracing::Level;

/// Objects may come and go under ever new names.
const OF_NAMESPACE: Rate = Rate { full: 1_000 * ONE_TOLD, period: Duration::from_mins(5) };
/// So many buckets are kept without a look whether they are full again.
const FEW: usize = 1_000;

/// A line of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    level: Level,
    text: String,
}

impl Line {
    fn of(object: &ObjectRef, verdict: Option<&Verdict>, is_there: bool) -> Self {
        let (level, text) = match verdict {
            None if is_there => (Level::INFO, format!("{object}: accepted")),
            None if object.kind == Kind::Ingress => (Level::INFO, format!("{object}: removed")),
            // Gone, or it never was and nothing asks for it any more.
            None => (Level::DEBUG, format!("{object}: no findings")),
            Some(verdict) if verdict.severity == Severity::Note => {
                (Level::INFO, format!("{object}: {verdict}"))
            }
            // The level of the line says that it is a warning.
            Some(verdict) if verdict.severity == Severity::Warning => {
                (Level::WARN, format!("{object}: {}", verdict.text()))
            }
            Some(verdict) => (Level::WARN, format!("{object}: {verdict}")),
        };
        Line { level, text }
    }

    /// Writes the line.
    pub fn log(&self) {
        let text = &self.text;
        match self.level {
            Level::WARN => tracing::warn!("{text}"),
            Level::INFO => tracing::info!("{text}"),
            _ => tracing::debug!("{text}"),
        }
    }
}

/// Decides which lines are written.
#[derive(Default)]
pub struct VerdictLines {
    objects: BTreeMap<(ObjectRef, Level), Bucket>,
    namespaces: BTreeMap<Name, Bucket>,
    /// How many lines of an object were left out, and the last of them.
    left_out: BTreeMap<ObjectRef, (usize, Line)>,
    /// How many of a namespace that had no more.
    left_out_of: BTreeMap<Name, usize>,
}

impl VerdictLines {
    /// The lines of some verdicts. `is_there`: the object has not gone.
    pub fn of(
        &mut self,
        verdicts: &VerdictChanges,
        is_there: impl Fn(&ObjectRef) -> bool,
        now: Instant,
    ) -> Vec<Line> {
        let mut lines = self.due(now);
        for (object, verdict) in verdicts {
            let line = Line::of(object, verdict.as_ref(), is_there(object));
            if line.level == Level::DEBUG || self.has_more(object, &line, now) {
                lines.push(line);
            }
        }
        lines
    }

    /// The same at the start, when all are told.
    pub fn of_start(
        &self,
        verdicts: &VerdictChanges,
        is_there: impl Fn(&ObjectRef) -> bool,
    ) -> Vec<Line> {
        let all = verdicts.iter();
        all.map(|(object, verdict)| Line::of(object, verdict.as_ref(), is_there(object))).collect()
    }

    /// Draws a line, or counts it as left out. Until that was told nothing else is.
    fn has_more(&mut self, object: &ObjectRef, line: &Line, now: Instant) -> bool {
        let namespace = &object.key.namespace;
        let of_namespace = bucket(&mut self.namespaces, namespace, OF_NAMESPACE, now);
        if self.left_out_of.contains_key(namespace) || of_namespace.left(now) < ONE_TOLD {
            *self.left_out_of.entry(namespace.clone()).or_default() += 1;
            // What is told of the object later is the last that there was.
            if let Some((_, last)) = self.left_out.get_mut(object) {
                last.clone_from(line);
            }
            return false;
        }
        // What is wrong does not wait for what was left out before it of another level.
        let is_behind = self.left_out.get(object).is_some_and(|(_, last)| last.level == line.level);
        let of_object =
            bucket(&mut self.objects, &(object.clone(), line.level), TOLD_OF_OBJECT, now);
        if is_behind || !of_object.draw(ONE_TOLD, now) {
            let left_out = self.left_out.entry(object.clone()).or_insert((0, line.clone()));
            *left_out = (left_out.0 + 1, line.clone());
            return false;
        }
        // The last word about the object is this one.
        self.left_out.remove(object);
        of_namespace.draw(ONE_TOLD, now)
    }

    /// Lines that tell how many others were left out.
    pub fn due(&mut self, now: Instant) -> Vec<Line> {
        let mut lines = Vec::new();
        let is_due = |bucket: Option<&mut Bucket>| {
            // A tenth, so that the next ones are not left out again at once.
            bucket.is_none_or(|bucket| {
                bucket.left(now) >= bucket.rate().full / 10 && bucket.draw(ONE_TOLD, now)
            })
        };
        self.left_out_of.retain(|namespace, count| {
            let is_due = is_due(self.namespaces.get_mut(namespace));
            if is_due {
                let lines_of = oxigress_core::text::count(*count, "line");
                let text = format!(
                    "namespace {namespace}: {lines_of} about its objects left out: \
                     `oxigress check --cluster` tells all there is to say now"
                );
                lines.push(Line { level: Level::WARN, text });
            }
            !is_due
        });
        self.left_out.retain(|object, (count, last)| {
            let is_due = is_due(self.objects.get_mut(&(object.clone(), last.level)));
            if is_due {
                let left_out = oxigress_core::text::count(*count, "line");
                let text = format!("{} ({left_out} left out, this is the last)", last.text);
                lines.push(Line { level: last.level, text });
            }
            !is_due
        });
        self.prune(now);
        lines
    }

    /// Who may have as many lines as anybody need not be known.
    fn prune(&mut self, now: Instant) {
        // Of each of its two levels an object has a bucket.
        if self.objects.len() > 2 * (FEW + self.left_out.len()) {
            let left_out = &self.left_out;
            self.objects.retain(|(object, _), bucket| {
                left_out.contains_key(object) || !bucket.is_full(now)
            });
        }
        if self.namespaces.len() > FEW {
            let left_out = &self.left_out_of;
            self.namespaces.retain(|n, bucket| left_out.contains_key(n) || !bucket.is_full(now));
        }
    }
}

fn bucket<'b, K: Ord + Clone>(
    all: &'b mut BTreeMap<K, Bucket>,
    key: &K,
    rate: Rate,
    now: Instant,
) -> &'b mut Bucket {
    all.entry(key.clone()).or_insert_with(|| Bucket::full(rate, now))
}

#[cfg(test)]
mod tests {
    use super::*;
    use oxigress_objects::Key;

    fn object(namespace: &str, name: &str) -> ObjectRef {
        ObjectRef::new(Kind::Ingress, Key { namespace: namespace.into(), name: name.into() })
    }

    fn verdict(object: &ObjectRef, text: &str) -> VerdictChanges {
        let messages = vec![text.to_owned()];
        let verdict = Verdict { severity: Severity::Warning, messages };
        [(object.clone(), Some(verdict))].into()
    }

    #[test]
    fn an_object_has_ten_lines_and_then_one_that_tells_of_the_others() {
        let (start, mut lines) = (Instant::now(), VerdictLines::default());
        let at = |seconds| start + Duration::from_secs(seconds);
        let evil = object("evil", "i");
        let mut written = Vec::new();
        for edit in 0..200 {
            written.extend(lines.of(&verdict(&evil, &format!("edit {edit}")), |_| true, start));
        }
        assert_eq!(written.len(), 10);
        assert!(written[9].text.ends_with("edit 9"), "{written:?}");
        assert_eq!(lines.of(&verdict(&object("evil", "other"), "x"), |_| true, start).len(), 1);
        assert_eq!(lines.due(at(29)), []);
        let told = lines.of(&verdict(&evil, "edit 200"), |_| true, at(30));
        assert_eq!(told.len(), 1);
        assert!(
            told[0].text.ends_with("edit 199 (190 lines left out, this is the last)"),
            "{told:?}"
        );
        let told = lines.due(at(60));
        assert!(told[0].text.ends_with("edit 200 (1 line left out, this is the last)"), "{told:?}");
        assert_eq!(lines.due(at(90)), []);
    }

    #[test]
    fn lines_about_a_removal_hide_no_error() {
        let (start, mut lines) = (Instant::now(), VerdictLines::default());
        let shop = object("a", "shop");
        for _ in 0..30 {
            lines.of(&[(shop.clone(), None)].into(), |_| false, start);
        }
        let told = lines.of(&verdict(&shop, "wrong"), |_| true, start);
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].text.ends_with("wrong"), "{told:?}");
        // What was left out before is no news any more.
        assert_eq!(lines.due(start + Duration::from_mins(1)), []);
    }

    #[test]
    fn a_line_says_once_that_it_is_a_warning() {
        let told = VerdictLines::default().of_start(&verdict(&object("a", "i"), "x"), |_| true);
        assert_eq!((told[0].level, &*told[0].text), (Level::WARN, "Ingress a/i: x"));
    }

    #[test]
    fn objects_under_ever_new_names_have_no_more_lines_than_their_namespace() {
        let (start, mut lines) = (Instant::now(), VerdictLines::default());
        let mut count = 0;
        for number in 0..5_000 {
            let new = object("evil", &number.to_string());
            count += lines.of(&verdict(&new, "x"), |_| true, start).len();
            count += lines.of(&[(new, None)].into(), |_| false, start).len();
        }
        assert_eq!(count, 1_000);
        assert_eq!(lines.of(&verdict(&object("b", "i"), "x"), |_| true, start).len(), 1);
        assert!(lines.left_out.is_empty() && lines.objects.len() <= 2 * FEW);
        let told = lines.due(start + Duration::from_secs(30));
        let text = "namespace evil: 9000 lines about its objects left out: `oxigress check --cluster` tells";
        assert!(told.len() == 1 && told[0].text.starts_with(text), "{told:?}");
        lines.due(start + Duration::from_mins(10));
        assert!(lines.left_out_of.is_empty());
    }

    #[test]
    fn what_there_is_at_the_start_is_told_as_a_whole() {
        let all: VerdictChanges = (0..5_000).map(|n| (object("a", &n.to_string()), None)).collect();
        let mut lines = VerdictLines::default();
        assert_eq!(lines.of_start(&all, |_| true).len(), 5_000);
        assert_eq!(lines.of(&all, |_| true, Instant::now()).len(), 1_000);
    }
}
