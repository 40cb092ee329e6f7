//! Folders have few files, and files and functions are short, those of tests too, but for those that are one table, one
//! loop or one encoder.
//!
//! Functions are found by rustfmt's layout, which `make check` keeps: a closing brace stands below the `fn` that it ends.

use anyhow::{Result, ensure};
use std::fs;
use std::path::Path;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
const MOST_FILES: usize = 15;
const MOST_LINES: usize = 500;
const MOST_LINES_OF_A_FUNCTION: usize = 60;

/// Folders that may have more files, and why. One that has no more than others is taken out.
const FULL_FOLDERS: [(&str, &str); 3] = [
    ("conf/helm/templates", "a chart's objects, which Helm reads from here"),
    ("controller/testdata", "test data"),
    ("docs", "a page for each thing that somebody wants to do"),
];

/// Files that may be longer, and why. A file that is no longer too long is taken out.
const LONG_FILES: [(&str, &str); 1] =
    [("controller/src/flags.rs", "the table of the command line's flags")];

/// Functions that may be longer, and why. One that is no longer too long is taken out.
const LONG_FUNCTIONS: [(&str, &str, &str); 2] = [
    ("controller/src/controller.rs", "run", "the table of what wakes the controller's loop"),
    ("module/core/src/patterns/program/tree.rs", "node", "one match over all forms of a pattern"),
];

/// Adds the folders below one that have too many files. What git does not have is not looked at: hidden files, and
/// what was built.
fn look_for_full_folders(folder: &Path, path: &str, full: &mut Vec<String>) -> Result<()> {
    let mut files = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if !entry.file_type()?.is_dir() {
            files += usize::from(!name.starts_with('.'));
        } else if !["target", "node_modules"].contains(&&*name) {
            look_for_full_folders(&entry.path(), &format!("{path}/{name}"), full)?;
        }
    }
    if files > MOST_FILES {
        full.push(path.to_owned());
    }
    Ok(())
}

/// A place that is too long.
#[derive(Debug, Default)]
struct Long {
    /// Paths of files.
    files: Vec<String>,
    /// Paths of files and names of functions.
    functions: Vec<(String, String)>,
}

fn look(folder: &Path, path: &str, long: &mut Long) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = format!("{path}/{name}");
        if entry.file_type()?.is_dir() {
            look(&entry.path(), &path, long)?;
        } else if name.ends_with(".rs") && !path.contains("/target/") {
            let text = fs::read_to_string(entry.path())?;
            if text.lines().count() > MOST_LINES {
                long.files.push(path.clone());
            }
            let names = long_functions(&text).into_iter();
            long.functions.extend(names.map(|name| (path.clone(), name)));
        }
    }
    Ok(())
}

/// The names of the functions that are too long.
fn long_functions(text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    let mut long = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let rest = line.trim_start();
        let indent = &line[..line.len() - rest.len()];
        let Some(name) = function(rest) else { continue };
        let end = format!("{indent}}}");
        let length = lines.iter().skip(at).position(|line| *line == end).map(|place| place + 1);
        if length.is_some_and(|length| length > MOST_LINES_OF_A_FUNCTION)
            && !rest.ends_with(';')
            && !rest.ends_with('}')
        {
            long.push(name.to_owned());
        }
    }
    long
}

/// The name, if the line begins a function.
fn function(line: &str) -> Option<&str> {
    let (before, after) = line.split_once("fn ")?;
    let mut words = before.split_whitespace();
    let is_qualifier = |word: &str| {
        word.starts_with("pub")
            || ["const", "async", "unsafe", "extern", "\"C\"", "\"C-unwind\"", "in"].contains(&word)
            || word.ends_with(')')
    };
    let name = after.split(['(', '<']).next()?;
    (words.all(is_qualifier) && !name.is_empty()).then_some(name)
}

#[test]
fn folders_have_few_files() -> Result<()> {
    let mut full = Vec::new();
    for area in ["conf", "controller", "docs", "module", "nginx-build", "tests"] {
        look_for_full_folders(&Path::new(ROOT).join(area), area, &mut full)?;
    }
    let mut wrong = Vec::new();
    for path in &full {
        if !FULL_FOLDERS.iter().any(|(known, _)| known == path) {
            wrong.push(format!("{path} has more than {MOST_FILES} files: is it one idea?"));
        }
    }
    for (path, _) in FULL_FOLDERS {
        if !full.iter().any(|found| found == path) {
            wrong.push(format!("{path} has few files now: take it out of FULL_FOLDERS"));
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

#[test]
fn files_and_functions_are_short() -> Result<()> {
    let mut long = Long::default();
    for area in ["controller", "module", "nginx-build", "tests"] {
        look(&Path::new(ROOT).join(area), area, &mut long)?;
    }
    let mut wrong = Vec::new();
    for path in &long.files {
        if !LONG_FILES.iter().any(|(known, _)| known == path) {
            wrong.push(format!("{path} has more than {MOST_LINES} lines: is it one idea?"));
        }
    }
    for (path, name) in &long.functions {
        if !LONG_FUNCTIONS.iter().any(|(file, known, _)| (file, known) == (&&**path, &&**name)) {
            wrong.push(format!(
                "{path}: {name} has more than {MOST_LINES_OF_A_FUNCTION} lines: is it one idea?"
            ));
        }
    }
    for (path, _) in LONG_FILES {
        if !long.files.iter().any(|found| found == path) {
            wrong.push(format!("{path} is short now: take it out of LONG_FILES"));
        }
    }
    for (path, name, _) in LONG_FUNCTIONS {
        if !long.functions.iter().any(|(file, found)| (&**file, &**found) == (path, name)) {
            wrong.push(format!("{path}: {name} is short now: take it out of LONG_FUNCTIONS"));
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

#[test]
fn a_long_function_is_found_by_its_layout() {
    let body = "        x();\n".repeat(60);
    let text = format!("impl A {{\n    pub(super) async fn long(&self) {{\n{body}    }}\n}}\n");
    assert_eq!(long_functions(&text), ["long"]);
    let short = text.replacen("        x();\n        x();\n", "", 1);
    assert!(long_functions(&short).is_empty());
    assert_eq!(long_functions(&format!("#[cfg(test)]\nmod tests {{\n{text}}}\n")), ["long"]);
    assert_eq!(function("pub unsafe extern \"C\" fn a<'a>("), Some("a"));
    assert_eq!(function("let hash: fn (u8) = b;"), None);
}
