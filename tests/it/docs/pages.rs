//! The documentation holds: links, anchors, file names, flags, commands and make targets exist, and shell examples run.
//!
//! A test program and not a script: it reads the pages with the harness's words for folders and programs, and runs what
//! they show. `make check` runs the tests `pages_*`, which need nothing that was built; `make test` runs all.

use anyhow::{Context, Result, ensure};
use oxigress_tests::dist;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

use super::page::{self, Page, words};

/// Pages whose text is made by a program or is a list that grows: they may be long, and their lines too.
const GROWING: [&str; 2] = ["docs/soak.md", "CHANGELOG.md"];
/// Flags in the pages that are not ours but of cargo, helm, docker, nginx's build and the commands beside.
const OTHERS: [&str; 10] = [
    "add-dynamic-module",
    "build-arg",
    "help",
    "ignored",
    "nocapture",
    "prefix",
    "test-threads",
    "ulimit",
    "with-stream",
    "with-threads",
];

/// Fails once, with everything that is wrong.
pub(super) fn nothing(wrong: &[String]) -> Result<()> {
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

#[test]
fn pages_link_to_files_and_headings_that_exist() -> Result<()> {
    let mut wrong = Vec::new();
    for page in page::all()? {
        for (line, url) in page.links() {
            if url.contains("://") || url.starts_with("mailto:") {
                continue;
            }
            let (path, anchor) = url.split_once('#').unwrap_or((&url, ""));
            let target = if path.is_empty() { page.path.clone() } else { page.beside(path) };
            if let Some(why) = broken(&target, anchor)? {
                wrong.push(format!("{}:{line}: {url}: {why}", page.path.display()));
            }
        }
    }
    nothing(&wrong)
}

/// Why a page's link leads nowhere.
fn broken(target: &Path, anchor: &str) -> Result<Option<&'static str>> {
    let file = dist::repository().join(target);
    if !file.exists() {
        return Ok(Some("no such file"));
    }
    if anchor.is_empty() {
        return Ok(None);
    }
    let is_there = Page::read(target)?.anchors().contains(anchor);
    Ok((!is_there).then_some("no such heading"))
}

#[test]
fn pages_that_code_cites_exist() -> Result<()> {
    let citation =
        regex::Regex::new(r"\b((?:docs|tests|nginx-build)/[\w./-]*\w\.md)(?:#([\w-]+))?")?;
    let (mut wrong, mut count) = (Vec::new(), 0);
    for file in page::sources()? {
        let Ok(text) = fs::read_to_string(dist::repository().join(&file)) else { continue };
        for (line, number) in text.lines().zip(1..) {
            for found in citation.captures_iter(line) {
                count += 1;
                let anchor = found.get(2).map_or("", |anchor| anchor.as_str());
                if let Some(why) = broken(Path::new(&found[1]), anchor)? {
                    wrong.push(format!("{}:{number}: {}: {why}", file.display(), &found[0]));
                }
            }
        }
    }
    ensure!(count > 20, "only {count} citations were found");
    nothing(&wrong)
}

#[test]
fn pages_name_files_that_exist() -> Result<()> {
    let tops = ["docs", "conf", "controller", "module", "tests", "nginx-build", ".github"];
    let mut wrong = Vec::new();
    for page in page::all()?.iter().filter(|page| page.path != Path::new("CHANGELOG.md")) {
        for (line, span) in page.spans() {
            let path = match span.split_once('/') {
                Some(("core" | "store" | "bitfields", _)) => format!("module/{span}"),
                _ => span.clone(),
            };
            let is_path = path.bytes().all(|b| b.is_ascii_alphanumeric() || b"/._-".contains(&b));
            let top = path.split('/').next().unwrap_or_default();
            // `GROUP.rs` stands for one of several.
            let is_upper =
                |part: &str| part.len() > 1 && part.bytes().all(|b| b.is_ascii_uppercase());
            let is_any = path.split(['/', '.']).any(|part| is_upper(part) && part != "README");
            if !is_path || is_any || !path.contains('/') || !tops.contains(&top) {
                continue;
            }
            let places = [page.beside(&path), PathBuf::from(&path)];
            if !places.iter().any(|place| dist::repository().join(place).exists()) {
                wrong.push(format!("{}:{line}: no file {span}", page.path.display()));
            }
        }
    }
    nothing(&wrong)
}

/// Every `--flag` of the pages that list flags and commands.
fn known_flags() -> Result<BTreeSet<String>> {
    let flag = regex::Regex::new(r"--([a-z][a-z0-9_-]*)")?;
    let mut known: BTreeSet<String> = OTHERS.iter().map(|name| String::from(*name)).collect();
    for path in ["docs/reference/flags.md", "docs/reference/commands.md"] {
        let page = Page::read(Path::new(path))?;
        let rows = page.text.lines().filter(|line| line.contains("--"));
        let names = rows.flat_map(|row| flag.captures_iter(row)).map(|found| found[1].to_owned());
        known.extend(names);
    }
    ensure!(known.len() > 80, "only {} flags are known", known.len());
    Ok(known)
}

#[test]
fn pages_use_flags_commands_and_targets_that_exist() -> Result<()> {
    let flags = known_flags()?;
    let commands = page::commands_of_the_program()?;
    let makefile = fs::read_to_string(dist::repository().join("Makefile"))?;
    let targets: BTreeSet<_> = makefile
        .lines()
        .filter(|line| line.starts_with(|c: char| c.is_ascii_lowercase()))
        .filter_map(|line| line.split_once(':'))
        .flat_map(|(names, _)| names.split(' '))
        .collect();
    let mut wrong = Vec::new();
    for page in page::all()?.iter().filter(|page| page.path != Path::new("CHANGELOG.md")) {
        let blocks = page.blocks().into_iter().filter(|block| block.is_shell());
        let lines = blocks.flat_map(|block| block.commands());
        for (line, text) in lines.chain(page.spans()) {
            let place = format!("{}:{line}", page.path.display());
            for part in page::simple_commands(&text) {
                let all = words(&part);
                let Some(first) = all.first() else { continue };
                let program = first.rsplit('/').next().unwrap_or_default();
                let is_ours = program == "oxigress" || first.starts_with("--");
                if is_ours {
                    let given = all.iter().filter_map(|word| word.strip_prefix("--"));
                    for flag in given.map(|flag| flag.split(['=', ',', '.']).next().unwrap_or(flag))
                    {
                        if flag.starts_with(|c: char| c.is_ascii_lowercase())
                            && !flags.contains(flag)
                        {
                            wrong.push(format!("{place}: no flag --{flag}: {part}"));
                        }
                    }
                }
                let second = all.get(1).map(String::as_str).unwrap_or_default();
                let is_word = second.starts_with(|c: char| c.is_ascii_lowercase());
                if program == "oxigress" && is_word && !commands.contains(second) {
                    wrong.push(format!("{place}: no command {second}: {part}"));
                }
                if first == "make" {
                    for target in all.iter().skip(1).filter(|word| !word.contains(['=', '-'])) {
                        if !targets.contains(target.as_str()) {
                            wrong.push(format!("{place}: no target {target}: {part}"));
                        }
                    }
                }
            }
        }
    }
    nothing(&wrong)
}

#[test]
fn pages_are_short_begin_with_an_example_and_have_lines_of_100() -> Result<()> {
    let mut wrong = Vec::new();
    for page in page::all()? {
        let (path, name) = (page.path.display(), page.path.to_string_lossy());
        if GROWING.contains(&&*name) {
            continue;
        }
        let count = page.word_count();
        let most = if name == "README.md" { 900 } else { 2_000 };
        if count > most && name != "tests/README.md" {
            wrong.push(format!("{path}: {count} words, at most {most}"));
        }
        if name.starts_with("docs/") && !page.begins_with_an_example() {
            wrong.push(format!("{path}: no example behind the heading"));
        }
        for (line, text) in page.prose() {
            let is_one_span = text.trim_start().starts_with('`') && text.matches('`').count() == 2;
            if text.chars().count() > 100 && !is_one_span {
                wrong.push(format!("{path}:{line}: {} characters", text.chars().count()));
            }
        }
    }
    nothing(&wrong)
}

/// `path` without `..` and `.`, which are not looked up on the disk.
pub(super) fn normal(path: &Path) -> PathBuf {
    let mut found = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(found.pop()),
            Component::CurDir => {}
            part => found.push(part),
        }
    }
    found
}

/// The text of a file of the repository.
pub(super) fn text(path: &Path) -> Result<String> {
    fs::read_to_string(dist::repository().join(path)).with_context(|| path.display().to_string())
}
