//! `make ecosystem`: programs of Kubernetes' ecosystem, as their authors wrote them, each doing its job through Oxigress on a
//! real API server. docs/ecosystem.md says what is real and what is a fake, and has the table.
//!
//! Usage:   `oxigress-ecosystem [PROGRAM...]`. `UPDATE_GOLDEN=1` writes the table into docs/ecosystem.md.
//! Exit:    0 if every program did its job or cannot be built, 1 if one did not.

mod browser;
mod oauth2_proxy;
mod program;
mod prometheus;
mod report;
mod site;

use anyhow::{Context, Result, ensure};
use oxigress_tests::place::Directory;
use oxigress_tests::{dist, nginx};
use report::{Outcome, Row};
use std::fs;
use std::process::ExitCode;

/// What a program is asked to do: the answer is what it did, a clause each.
type Job = fn(&Directory) -> Result<Vec<String>>;

/// In the order of the page.
const JOBS: [(&str, Job); 2] =
    [("oauth2-proxy", oauth2_proxy::run), ("prometheus", prometheus::run)];

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match run(&words) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(words: &[String]) -> Result<bool> {
    let is_asked = |name: &str| words.is_empty() || words.iter().any(|word| word == name);
    let jobs: Vec<_> = JOBS.iter().filter(|(name, _)| is_asked(name)).collect();
    ensure!(!jobs.is_empty(), "no program is called {words:?}");
    let mut rows = Vec::new();
    for (name, job) in jobs {
        let row = Row { program: program::pinned(name)?, outcome: outcome(name, *job) };
        println!("{}", row.line());
        rows.push(row);
    }
    if std::env::var_os("UPDATE_GOLDEN").is_some() && words.is_empty() {
        report::write(&rows)?;
    }
    Ok(!rows.iter().any(|row| matches!(row.outcome, Outcome::Failed(_))))
}

fn outcome(name: &str, job: Job) -> Outcome {
    match program::missing(name) {
        Ok(None) => {}
        Ok(Some(why)) => return Outcome::Missing(why),
        Err(error) => return Outcome::Failed(format!("{error:#}")),
    }
    let directory = match Directory::new(name) {
        Ok(directory) => directory,
        Err(error) => return Outcome::Failed(format!("{error:#}")),
    };
    match job(&directory).with_context(|| logs(&directory)) {
        Ok(done) => Outcome::Done(done),
        Err(error) => {
            let why = format!("{}\n{error:?}", error.root_cause());
            Outcome::Failed(format!("{why}\nfiles: {}", directory.keep().display()))
        }
    }
}

/// The ends of the logs in a directory.
fn logs(directory: &Directory) -> String {
    let files = fs::read_dir(directory.path()).into_iter().flatten().flatten();
    let files = files.map(|file| file.path()).filter(|path| {
        path.extension().is_some_and(|end| end == "log") || path.ends_with("output")
    });
    let end = |path: &std::path::PathBuf| {
        let text = fs::read_to_string(path).unwrap_or_default();
        format!("--- {}\n{}\n", path.display(), nginx::tail(&text, 20))
    };
    files.map(|path| end(&path)).collect()
}

/// The commit of the work tree, for the page.
fn commit() -> Result<String> {
    let mut git = std::process::Command::new("git");
    let output =
        git.args(["rev-parse", "--short", "HEAD"]).current_dir(dist::repository()).output()?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
