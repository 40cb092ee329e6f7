//! Unsafe code stands in few places, and they become fewer.

use anyhow::{Result, ensure};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// The crates and how many unsafe blocks they may have, tests and models aside. A number may only become smaller.
const CRATES: [(&str, usize); 5] = [
    ("module/core", 0),
    ("module/store", 14),
    ("module/nginx", 254),
    ("module/pki", 0),
    ("module", 29),
];

/// The files of the module that may have unsafe code. None is added: `module/nginx` gets a safe form of what is missing.
const FILES: [&str; 12] = [
    "access/auth_subrequest.rs",
    "access/password.rs",
    "access/phase.rs",
    "configuration.rs",
    "module/table.rs",
    "request.rs",
    "request/route.rs",
    "route/location.rs",
    "route/mirror.rs",
    "worker.rs",
    "zone.rs",
    "zone/limits.rs",
];

/// The unsafe blocks of a crate's files. One in a macro counts where it is written.
fn blocks(folder: &Path, path: &str, all: &mut BTreeMap<String, usize>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if path.is_empty() { name.clone() } else { format!("{path}/{name}") };
        if entry.file_type()?.is_dir() {
            blocks(&entry.path(), &path, all)?;
        } else if name.ends_with(".rs") && !is_test(&path) {
            let count = count(&fs::read_to_string(entry.path())?);
            if count > 0 {
                all.insert(path, count);
            }
        }
    }
    Ok(())
}

/// Unit tests, and the store's model for loom, which is a test too.
fn is_test(path: &str) -> bool {
    path.split('/').any(|part| ["tests", "tests.rs"].contains(&part)) || path == "model/memory.rs"
}

fn count(text: &str) -> usize {
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let lines = code.lines().map(|line| line.split("//").next().unwrap_or_default());
    lines.map(|line| line.matches("unsafe {").count()).sum()
}

#[test]
fn unsafe_code_stands_where_it_may() -> Result<()> {
    println!("{:16} {:>13}", "crate", "unsafe blocks");
    let mut wrong = Vec::new();
    for (name, most) in CRATES {
        let mut all = BTreeMap::new();
        blocks(&Path::new(ROOT).join(name).join("src"), "", &mut all)?;
        let sum = all.values().sum::<usize>();
        println!("{name:16} {sum:13}");
        if sum > most {
            wrong.push(format!("{name} has {sum} unsafe blocks, {most} are allowed: {all:#?}"));
        }
        if name == "module" {
            let elsewhere = all.keys().filter(|file| !FILES.contains(&file.as_str()));
            wrong.extend(elsewhere.map(|file| format!("{name}/src/{file} may have none")));
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

#[test]
fn comments_and_tests_do_not_count() {
    assert_eq!(count("// unsafe { a }\nunsafe { b } + unsafe { c }"), 2);
    assert_eq!(count("unsafe fn a() {}\n#[cfg(test)]\nmod tests {\nunsafe { b }"), 0);
}
