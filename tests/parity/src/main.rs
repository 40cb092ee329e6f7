//! `make parity`: every block of tests that has objects of Kubernetes is asked of ingress-nginx and of Oxigress, on the same
//! objects of a real API server. docs/parity.md says what is compared, and has the table.
//!
//! Usage:   `oxigress-parity [WORDS OF A BLOCK'S NAME]`. `UPDATE_GOLDEN=1` writes the table into docs/parity.md.
//! Exit:    0 if all agree or differ as documented, 1 if not.

mod case;
mod documented;
mod manifests;
mod report;

use anyhow::{Context, Result, ensure};
use documented::Table;
use oxigress_tests::block::{self, parse::Block};
use oxigress_tests::dist;
use report::Report;
use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

/// Blocks at once: each has an Oxigress and an ingress-nginx, and most wait most of the time.
const THREADS: usize = 3;
const BEGIN: &str = "<!-- The rest is written by UPDATE_GOLDEN=1 make parity. -->";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match run(&words.join(" ")) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(words: &str) -> Result<bool> {
    let mut cases = VecDeque::new();
    for (name, path) in block::files()? {
        for block in block::read(&path)? {
            let name = format!("{name}: {}", block.title);
            if case::is_case(&block) && name.contains(words) {
                cases.push_back((name, block));
            }
        }
    }
    ensure!(!cases.is_empty(), "no block has {words:?} in its name, and objects of Kubernetes");
    let table = Table::read(&dist::repository().join("tests/parity/documented.yaml"))?;
    let count = cases.len();
    println!("asking {count} blocks of {} and of Oxigress", version()?);
    let report = ask_all(cases, &table);
    let pages = table.pages().map(|(name, page)| (name.to_owned(), page.to_owned()));
    let text = report.text(&pages.collect::<BTreeMap<_, _>>());
    println!("{text}\n{}", report.differences());
    if std::env::var_os("UPDATE_GOLDEN").is_some() && words.is_empty() {
        write(&text, &report.differences())?;
    }
    Ok(report.is_agreement())
}

fn ask_all(cases: VecDeque<(String, Block)>, table: &Table) -> Report {
    let (cases, report) = (Mutex::new(cases), Mutex::new(Report::default()));
    let next = || cases.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while let Some((name, block)) = next() {
                    // Under load ingress-nginx may miss the endpoints that came while it started, until something else
                    // changes: such a block is tried once more.
                    let ask = || case::run(&name, &block, table);
                    let outcome = ask().or_else(|_| ask());
                    let mut report = report.lock().unwrap_or_else(PoisonError::into_inner);
                    match outcome {
                        Ok(outcome) => {
                            let different = outcome.different.len();
                            println!("  {name}: {} requests, {different} differ", outcome.requests);
                            report.add(&name, outcome);
                        }
                        Err(error) => {
                            println!("  {name}: not asked: {error:#}");
                            report.failed.insert(name, format!("{error:#}"));
                        }
                    }
                }
            });
        }
    });
    report.into_inner().unwrap_or_else(PoisonError::into_inner)
}

fn version() -> Result<String> {
    let text = fs::read_to_string(dist::ingress_nginx()?.join("VERSION"))?;
    Ok(format!("ingress-nginx {}", text.split_whitespace().next().context("VERSION is empty")?))
}

/// Puts the table into docs/parity.md, with the commit that it is of and the differences that are not documented.
fn write(text: &str, differences: &str) -> Result<()> {
    let page = dist::repository().join("docs/parity.md");
    let old = fs::read_to_string(&page)?;
    let (kept, _) = old.split_once(BEGIN).context("docs/parity.md has no place for the table")?;
    let commit =
        std::process::Command::new("git").args(["rev-parse", "--short", "HEAD"]).output()?;
    let commit = String::from_utf8_lossy(&commit.stdout);
    let undocumented = match differences {
        "" => String::new(),
        all => format!("\nNot documented yet:\n\n```text\n{all}```\n"),
    };
    let told = format!("`make parity` at commit {}, {}:", commit.trim(), version()?);
    fs::write(&page, format!("{kept}{BEGIN}\n\n{told}\n\n{text}{undocumented}"))?;
    Ok(())
}
