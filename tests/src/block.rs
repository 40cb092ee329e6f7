//! One declarative case: sets it up, acts from top to bottom, looks at every answer.
//!
//! Shape:   settings ([`Setup`]) hold for the whole block wherever they stand; actions run in the order of the
//!          file; an expectation is about the action above it. README.md has the list of sections.
//! Errors:  a failure tells the section's line, the request, the answer and the end of the error log.

mod actions;
mod expect;
pub mod parse;
pub mod setup;
pub mod short;

use crate::place::Directory;
use actions::Answer;
use anyhow::{Context, Result, bail};
use libtest_mimic::Trial;
use parse::Section;
use setup::{Fixture, Setup};
use std::fmt::Write;
use std::path::{Path, PathBuf};

pub use setup::needs_root;

/// Sections that act. The expectations that follow one belong to it.
const ACTIONS: &[&str] = &[
    "answers",
    "behaviour",
    "close_idle",
    "configuration",
    "get",
    "held",
    "ingress",
    "kill_worker",
    "kubernetes",
    "manifests",
    "patch",
    "pipelined_requests",
    "post",
    "put",
    "raw_request",
    "reload",
    "remove_manifest",
    "request",
    "requests",
    "tls",
];

/// Sections that look at the action above them.
const EXPECTATIONS: &[&str] = &[
    "endpoint",
    "endpoint_connections",
    "endpoint_requests",
    "error_code",
    "access_log",
    "error_log",
    "generation",
    "more_headers",
    "no_access_log",
    "no_error_log",
    "open_connections",
    "response_body",
    "response_body_like",
    "response_body_unlike",
    "response_headers",
    "response_headers_like",
    "response_json",
];

/// An action with its expectations.
struct Step<'b> {
    action: &'b Section,
    expectations: Vec<&'b Section>,
}

impl Step<'_> {
    fn section(&self, name: &str) -> Option<&Section> {
        self.expectations.iter().find(|section| section.name == name).copied()
    }
}

/// Runs a block; the message of a failure is for a developer's eyes.
pub fn run(block: &parse::Block, file: &str) -> Result<(), String> {
    let directory = Directory::new(&block.title).map_err(|error| format!("{error:#}"))?;
    match run_in(block, &directory) {
        Ok(()) => Ok(()),
        Err(error) => {
            let kept = directory.keep();
            Err(format!(
                "{file}:{}: {}\n{error:#}\nfiles: {}",
                block.line,
                block.title,
                kept.display()
            ))
        }
    }
}

fn run_in(block: &parse::Block, directory: &Directory) -> Result<()> {
    let steps = steps(block)?;
    let mut fixture = Fixture::start(&Setup::read(block)?, directory)?;
    for step in &steps {
        play(step, &mut fixture).map_err(|error| {
            let Section { line, name, .. } = step.action;
            let told = error.context(format!("--- {name} (line {line})"));
            // A worker that a sanitizer ended only shows as an answer that does not come.
            match fixture.log().lines().find(|line| line.contains("Sanitizer: ")) {
                Some(report) => told.context(report.to_owned()),
                None => told,
            }
        })?;
    }
    fixture.finish(block)
}

fn steps(block: &parse::Block) -> Result<Vec<Step<'_>>> {
    let mut steps: Vec<Step<'_>> = Vec::new();
    for section in &block.sections {
        let name = section.name.as_str();
        if ACTIONS.contains(&name) {
            steps.push(Step { action: section, expectations: Vec::new() });
        } else if EXPECTATIONS.contains(&name) {
            match steps.last_mut() {
                Some(step) => step.expectations.push(section),
                // About the whole block.
                None if name == "no_error_log" => {}
                None => bail!("line {}: --- {name} without an action above it", section.line),
            }
        } else if !setup::SECTIONS.contains(&name) {
            bail!("line {}: there is no section `{name}`", section.line);
        }
    }
    Ok(steps)
}

fn play(step: &Step<'_>, fixture: &mut Fixture) -> Result<()> {
    let before = expect::Before::take(step, fixture)?;
    let answer = actions::run(step, fixture)?;
    expect::look(step, fixture, &answer, &before).map_err(|error| {
        let mut told = format!("{error:#}");
        let _ = write!(told, "\n{}", tell(&answer));
        let _ = write!(told, "--- end of the error log\n{}", fixture.log_tail());
        anyhow::anyhow!(told)
    })
}

fn tell(answer: &Answer) -> String {
    let mut told = String::new();
    if let Some(request) = &answer.request {
        let _ = write!(told, "--- sent\n{request}");
    }
    for response in &answer.responses {
        let _ = write!(told, "--- answered\n{response}");
    }
    told
}

/// The files `blocks/AREA/*.test` in order, each with its name `AREA/FILE`.
pub fn files() -> Result<Vec<(String, PathBuf)>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("blocks");
    let mut files = Vec::new();
    for area in std::fs::read_dir(&folder)? {
        let area = area?.path();
        for file in
            if area.is_dir() { Some(std::fs::read_dir(area)?) } else { None }.into_iter().flatten()
        {
            let path = file?.path();
            if path.extension().is_some_and(|e| e == "test") {
                let name = path.strip_prefix(&folder)?.with_extension("").display().to_string();
                files.push((name, path));
            }
        }
    }
    files.sort();
    Ok(files)
}

/// Reads all blocks of a file.
pub fn read(path: &Path) -> Result<Vec<parse::Block>> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    parse::blocks(&text).with_context(|| path.display().to_string())
}

/// Those of `blocks/AREA/*.test`, each as a test of its own.
pub fn trials() -> Result<Vec<Trial>> {
    let mut trials = Vec::new();
    for (name, path) in files()? {
        let file = format!("blocks/{name}.test");
        for block in read(&path)? {
            let title = format!("{name}: {}", block.title);
            // Another user's connection needs root: as anybody else the test is listed as ignored.
            let is_ignored = needs_root(&block) && !rustix::process::geteuid().is_root();
            let file = file.clone();
            let trial = Trial::test(title, move || Ok(run(&block, &file)?));
            trials.push(trial.with_ignored_flag(is_ignored));
        }
    }
    Ok(trials)
}
