//! The table of agreement.

use crate::case::Outcome;
use oxigress_compare::known::KNOWN;
use std::collections::BTreeMap;
use std::fmt::Write;

/// So many characters of a value are shown.
const VALUE: usize = 90;

/// Sums by area of blocks, and what is behind them.
#[derive(Default)]
pub struct Report {
    areas: BTreeMap<String, Sums>,
    known: BTreeMap<String, usize>,
    left_out: BTreeMap<String, usize>,
    /// Blocks that could not be asked, and why.
    pub failed: BTreeMap<String, String>,
    /// Block, difference, how many requests, one of them.
    different: BTreeMap<(String, String), (usize, String)>,
}

#[derive(Default)]
struct Sums {
    blocks: usize,
    requests: usize,
    same: usize,
    documented: usize,
    different: usize,
    unstable: usize,
}

impl Report {
    /// Adds a block, whose name is `AREA/FILE: TITLE`.
    pub fn add(&mut self, name: &str, outcome: Outcome) {
        let file = name.split(':').next().unwrap_or_default();
        let sums = self.areas.entry(file.to_owned()).or_default();
        sums.blocks += 1;
        sums.requests += outcome.requests;
        sums.same += outcome.same + outcome.unanswered;
        sums.documented += outcome.documented;
        sums.different += outcome.different.len();
        sums.unstable += outcome.unstable;
        for (name, count) in outcome.known {
            *self.known.entry(name).or_default() += count;
        }
        for (reason, count) in outcome.left_out {
            *self.left_out.entry(reason).or_default() += count;
        }
        for (request, differences) in outcome.different {
            for one in differences {
                let text = format!("{}: {} → {}", one.aspect, short(&one.old), short(&one.new));
                let entry = self.different.entry((name.to_owned(), text)).or_default();
                entry.0 += 1;
                if entry.1.is_empty() || entry.1.len() > request.to_string().len() {
                    entry.1 = request.to_string();
                }
            }
        }
    }

    /// Whether nothing differs but what is documented, and every block was asked.
    pub fn is_agreement(&self) -> bool {
        self.failed.is_empty() && self.different.is_empty()
    }

    /// Markdown: the table, what is documented, and what was not compared. Undocumented differences are in `differences`.
    pub fn text(&self, pages: &BTreeMap<String, String>) -> String {
        let mut out = String::from(
            "| blocks of | blocks | requests | the same | documented | undocumented | vary |\n\
             |---|--:|--:|--:|--:|--:|--:|\n",
        );
        let mut all = Sums::default();
        let row = |out: &mut String, name: &str, s: &Sums| {
            let _ = writeln!(
                out,
                "| {name} | {} | {} | {} | {} | {} | {} |",
                s.blocks, s.requests, s.same, s.documented, s.different, s.unstable
            );
        };
        for (name, sums) in &self.areas {
            row(&mut out, name, sums);
            all.blocks += sums.blocks;
            all.requests += sums.requests;
            all.same += sums.same;
            all.documented += sums.documented;
            all.different += sums.different;
            all.unstable += sums.unstable;
        }
        row(&mut out, "**all**", &all);
        let _ = writeln!(
            out,
            "\n{} of {} requests agree or differ as documented.",
            all.same + all.documented,
            all.requests
        );
        if !self.known.is_empty() {
            out += "\n| documented difference | differences met | page |\n|---|--:|---|\n";
        }
        for (name, count) in &self.known {
            let known = KNOWN.iter().find(|known| known.name == name).map(|known| known.page);
            let page = known.or(pages.get(name).map(String::as_str)).unwrap_or_default();
            let link = page.strip_prefix("docs/").unwrap_or(page);
            let _ = writeln!(out, "| {name} | {count} | [{link}]({link}) |");
        }
        if !self.left_out.is_empty() || !self.failed.is_empty() {
            out += "\n| not asked | times |\n|---|--:|\n";
        }
        for (reason, count) in &self.left_out {
            let _ = writeln!(out, "| {reason} | {count} |");
        }
        for name in self.failed.keys() {
            let _ =
                writeln!(out, "| the block \"{name}\", which one of the two did not take up | 1 |");
        }
        out
    }

    /// The undocumented differences, by block.
    pub fn differences(&self) -> String {
        let mut out = String::new();
        let mut block = "";
        for ((name, text), (count, example)) in &self.different {
            if block != name {
                let _ = writeln!(out, "{name}");
                block = name;
            }
            let _ = writeln!(out, "  {text}\n    {count} ×, such as {example}");
        }
        out
    }
}

fn short(text: &str) -> String {
    match text.char_indices().nth(VALUE) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}
