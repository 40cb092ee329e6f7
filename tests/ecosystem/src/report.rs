//! The line of a program, and the table of docs/ecosystem.md.

use crate::commit;
use crate::program::Pinned;
use anyhow::{Context, Result};
use oxigress_tests::dist;
use std::fs;

const BEGIN: &str = "<!-- The rest is written by UPDATE_GOLDEN=1 make ecosystem. -->";

/// What came of a program.
pub enum Outcome {
    /// It did its job: what it did, a clause each.
    Done(Vec<String>),
    /// It is not there, and why.
    Missing(String),
    /// What went wrong; the first line is for the table.
    Failed(String),
}

pub struct Row {
    pub program: Pinned,
    pub beside: Vec<Pinned>,
    pub outcome: Outcome,
}

impl Row {
    /// What the terminal shows.
    pub fn line(&self) -> String {
        let Pinned { name, version, .. } = &self.program;
        match &self.outcome {
            Outcome::Done(done) => format!("{name} {version}: {}: passed", done.join("; ")),
            Outcome::Missing(why) => format!("{name} {version}: not run: {why}"),
            Outcome::Failed(why) => format!("{name} {version}: FAILED: {why}"),
        }
    }

    /// One of the page: the module, what it did, the result.
    fn row(&self) -> String {
        let name = &self.program.name;
        let all = [&self.program].into_iter().chain(&self.beside);
        let module = |one: &Pinned| format!("`{}` {}", one.module, one.version);
        let mut modules: Vec<_> = all.map(module).collect();
        modules.dedup();
        let (done, result) = match &self.outcome {
            Outcome::Done(done) => (done.join("; "), "passed"),
            Outcome::Missing(why) => (why.clone(), "not run"),
            Outcome::Failed(why) => {
                (why.lines().next().unwrap_or_default().to_owned(), "**failed**")
            }
        };
        format!("| {name} | {} | {} | {result} |\n", modules.join(", "), done.replace('|', "\\|"))
    }
}

/// Puts the table into docs/ecosystem.md, with the commit that it is of.
pub fn write(rows: &[Row]) -> Result<()> {
    let page = dist::repository().join("docs/ecosystem.md");
    let old = fs::read_to_string(&page)?;
    let (kept, _) =
        old.split_once(BEGIN).context("docs/ecosystem.md has no place for the table")?;
    let head = format!(
        "`make ecosystem` at commit {}:\n\n| program | Go modules | what it did through Oxigress | result |\n|---|---|---|---|\n",
        commit()?
    );
    let rows: String = rows.iter().map(Row::row).collect();
    fs::write(&page, format!("{kept}{BEGIN}\n\n{head}{rows}"))?;
    Ok(())
}
