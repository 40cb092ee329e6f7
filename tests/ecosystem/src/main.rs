//! `make ecosystem`: programs of Kubernetes' ecosystem, as their authors wrote them, each doing its job through Oxigress on a
//! real API server. docs/ecosystem.md says what is real and what is a fake, and has the table.
//!
//! Usage:   `oxigress-ecosystem [PROGRAM...]`. `UPDATE_GOLDEN=1` writes the table into docs/ecosystem.md.
//! Exit:    0 if every program did its job or cannot be built, 1 if one did not.

mod browser;
mod cert_manager;
mod external_dns;
mod oauth2_proxy;
mod program;
mod prometheus;
mod report;
mod site;

use anyhow::{Result, ensure};
use oxigress_tests::place::Directory;
use oxigress_tests::{dist, nginx};
use report::{Outcome, Row};
use std::fs;
use std::process::ExitCode;

/// A program and what it is asked to do.
struct Job {
    program: &'static str,
    /// Programs that it needs beside.
    beside: &'static [&'static str],
    /// The answer is what it did, a clause each.
    run: fn(&Directory) -> Result<Vec<String>>,
}

/// In the order of the page.
const JOBS: [Job; 4] = [
    Job { program: "oauth2-proxy", beside: &["mockoidc"], run: oauth2_proxy::run },
    Job { program: "prometheus", beside: &[], run: prometheus::run },
    Job { program: "cert-manager", beside: &["acmesolver", "pebble"], run: cert_manager::run },
    Job { program: "external-dns", beside: &[], run: external_dns::run },
];

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
    let is_asked = |job: &&Job| words.is_empty() || words.iter().any(|word| word == job.program);
    let jobs: Vec<_> = JOBS.iter().filter(is_asked).collect();
    ensure!(!jobs.is_empty(), "no program is called {words:?}");
    let mut rows = Vec::new();
    for job in jobs {
        let beside = job.beside.iter().map(|name| program::pinned(name));
        let row = Row {
            program: program::pinned(job.program)?,
            beside: beside.collect::<Result<_>>()?,
            outcome: job.outcome(),
        };
        println!("{}", row.line());
        rows.push(row);
    }
    if std::env::var_os("UPDATE_GOLDEN").is_some() && words.is_empty() {
        report::write(&rows)?;
    }
    Ok(!rows.iter().any(|row| matches!(row.outcome, Outcome::Failed(_))))
}

impl Job {
    fn outcome(&self) -> Outcome {
        for name in [self.program].iter().chain(self.beside) {
            match program::missing(name) {
                Ok(None) => {}
                Ok(Some(why)) => return Outcome::Missing(format!("{name}: {why}")),
                Err(error) => return Outcome::Failed(format!("{error:#}")),
            }
        }
        let directory = match Directory::new(self.program) {
            Ok(directory) => directory,
            Err(error) => return Outcome::Failed(format!("{error:#}")),
        };
        match (self.run)(&directory) {
            Ok(done) => Outcome::Done(done),
            Err(error) => {
                let why = format!("{error:#}\n{}", logs(&directory));
                Outcome::Failed(format!("{why}\nfiles: {}", directory.keep().display()))
            }
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
