//! What was found: differences by route and cause, for people and as JSON.

use crate::answer::{Aspect, Difference};
use crate::known::Known;
use crate::requests::Request;
use oxigress_core::text::count;
use oxigress_core::text::line::one_line_within;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;

/// So many requests of a group are shown.
const EXAMPLES: usize = 3;
/// The longest value that is shown.
const VALUE_BYTES: usize = 100;

/// The result of a comparison.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    /// How many requests both gateways were asked.
    pub requests: usize,
    /// Those with the same answer.
    pub same: usize,
    /// Those whose differences are all documented.
    pub documented: usize,
    /// Those with a difference that is not documented.
    pub different: usize,
    /// Those that a gateway answers differently each time.
    pub unstable: usize,
    /// Those that neither gateway answered.
    pub unanswered: usize,
    /// What was left out, by reason.
    pub skipped: BTreeMap<String, usize>,
    /// Differences by route and cause.
    #[serde(serialize_with = "values")]
    pub differences: BTreeMap<(String, Aspect, String), Group>,
    /// The documented differences, by their names.
    pub known: BTreeMap<&'static str, Fold>,
}

/// One cause at one route.
#[derive(Debug, Serialize)]
pub struct Group {
    /// Host, path and Ingress, or host and the path's first segment.
    pub route: String,
    /// The first difference of the group.
    #[serde(flatten)]
    pub first: Difference,
    /// How many requests.
    pub count: usize,
    /// The shortest of the requests.
    pub examples: Vec<String>,
}

/// A documented difference: how often it was seen, with examples.
#[derive(Debug, Serialize)]
pub struct Fold {
    /// How many requests.
    pub count: usize,
    /// What differs, and why, as a sentence of the report.
    pub what: &'static str,
    /// The page that tells it.
    pub page: &'static str,
}

fn values<S: serde::Serializer>(
    groups: &BTreeMap<(String, Aspect, String), Group>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(groups.values())
}

impl Report {
    /// Counts a documented difference.
    pub fn add_known(&mut self, known: &'static Known) {
        let fold = Fold { count: 0, what: known.what, page: known.page };
        self.known.entry(known.name).or_insert(fold).count += 1;
    }

    /// Counts another difference. Statuses are apart; of other values the first is shown.
    pub fn add(&mut self, route: String, request: &Request, one: &Difference) {
        let pair = match one.aspect {
            Aspect::Status | Aspect::Answer => format!("{} {}", one.old, one.new),
            _ => String::new(),
        };
        let key = (route.clone(), one.aspect.clone(), pair);
        let new = || Group { route, first: one.clone(), count: 0, examples: Vec::new() };
        let group = self.differences.entry(key).or_insert_with(new);
        group.count += 1;
        group.examples.push(request.to_string());
        group.examples.sort_by(|one, other| (one.len(), one).cmp(&(other.len(), other)));
        group.examples.truncate(EXAMPLES);
    }

    /// For people. Hosts, paths and headers are others' texts: a terminal gets no control character of them.
    pub fn text(&self) -> String {
        let mut out = String::new();
        let value = |text: &str| one_line_within(text, VALUE_BYTES);
        let mut route = None;
        for group in self.differences.values() {
            if route != Some(&group.route) {
                let _ = writeln!(out, "{}", value(&group.route));
                route = Some(&group.route);
            }
            let Difference { aspect, old, new } = &group.first;
            let _ = writeln!(
                out,
                "  {}: {} before, {} now: {}",
                value(&aspect.to_string()),
                value(old),
                value(new),
                count(group.count, "request")
            );
            for example in &group.examples {
                let _ = writeln!(out, "    {}", one_line_within(example, 4 * VALUE_BYTES));
            }
        }
        for (name, Fold { count: number, what, page }) in &self.known {
            let _ =
                writeln!(out, "documented: {name}: {}: {what} ({page})", count(*number, "request"));
        }
        for (reason, number) in &self.skipped {
            let _ = writeln!(out, "left out: {number}: {}", value(reason));
        }
        let _ = writeln!(
            out,
            "{}: {} the same, {} differ as documented, {} differ",
            count(self.requests, "request"),
            self.same,
            self.documented,
            self.different
        );
        if self.unstable > 0 {
            let _ = writeln!(out, "{} give a different answer each time", self.unstable);
        }
        if self.unanswered > 0 {
            let _ = writeln!(out, "{} got no answer from either gateway", self.unanswered);
        }
        out
    }
}
