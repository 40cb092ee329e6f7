//! The crates of the workspace depend on each other as docs/architecture.md says, in one direction.

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// The names that a crate uses, and those that its tests use besides.
#[derive(Debug, Default, PartialEq, Eq)]
struct Arrows {
    uses: BTreeSet<String>,
    tests_use: BTreeSet<String>,
}

/// A crate of the workspace, as cargo reads its manifest.
struct Package {
    folder: PathBuf,
    arrows: Arrows,
}

fn short(name: &str) -> String {
    name.strip_prefix("oxigress-").unwrap_or(name).to_owned()
}

fn text<'v>(of: &'v Value, field: &str) -> &'v str {
    of[field].as_str().unwrap_or_default()
}

fn items<'v>(of: &'v Value, field: &str) -> &'v [Value] {
    of[field].as_array().map_or(&[], Vec::as_slice)
}

fn packages() -> Result<BTreeMap<String, Package>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(ROOT)
        .output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    let packages = items(&metadata, "packages");
    let own: BTreeSet<&str> = packages.iter().map(|package| text(package, "name")).collect();
    let package = |package: &Value| {
        let mut arrows = Arrows::default();
        for dependency in items(package, "dependencies") {
            let to = text(dependency, "name");
            if own.contains(to) {
                let set = match dependency["kind"].as_str() {
                    Some("dev") => &mut arrows.tests_use,
                    _ => &mut arrows.uses,
                };
                set.insert(short(to));
            }
        }
        let manifest = Path::new(text(package, "manifest_path"));
        let folder = manifest.parent().context("a manifest stands in a folder")?.to_owned();
        Ok((short(text(package, "name")), Package { folder, arrows }))
    };
    packages.iter().map(package).collect()
}

/// The rows of the table in docs/architecture.md, in their order.
fn table() -> Result<Vec<(String, Arrows)>> {
    let page = fs::read_to_string(Path::new(ROOT).join("docs/architecture.md"))?;
    let head = "| crate | uses | its tests also |\n|---|---|---|\n";
    let (_, rows) = page.split_once(head).context("docs/architecture.md lacks the table")?;
    let row = |line: &str| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [name, uses, tests_use] = cells[..] else { bail!("{line}: it has not three cells") };
        let set = |cell: &str| {
            let names = cell.split(',').map(str::trim).filter(|name| !name.is_empty());
            names.map(str::to_owned).collect()
        };
        Ok((name.to_owned(), Arrows { uses: set(uses), tests_use: set(tests_use) }))
    };
    rows.lines().take_while(|line| line.starts_with('|')).map(row).collect()
}

/// Counts the lines of the Rust files below a folder, without those of crates further below and of what is built.
fn lines(folder: &Path) -> Result<usize> {
    let mut sum = 0;
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            if !path.join("Cargo.toml").exists() && !path.ends_with("target") {
                sum += lines(&path)?;
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            sum += fs::read_to_string(path)?.lines().count();
        }
    }
    Ok(sum)
}

#[test]
fn crates_depend_on_each_other_as_the_table_says() -> Result<()> {
    let mut packages = packages()?;
    println!("{:20} {:>7}  uses (its tests also)", "crate", "lines");
    let mut before = BTreeSet::new();
    for (name, allowed) in table()? {
        let Some(Package { folder, arrows }) = packages.remove(&name) else {
            bail!("{name}: docs/architecture.md has a crate that the workspace has not");
        };
        let joined = |names: &BTreeSet<String>| Vec::from_iter(names.clone()).join(", ");
        let (uses, tests_use) = (joined(&arrows.uses), joined(&arrows.tests_use));
        println!("{name:20} {:7}  {uses} ({tests_use})", lines(&folder)?);
        assert_eq!(
            arrows, allowed,
            "{name}: the manifest (left) is not as docs/architecture.md says"
        );
        let mut all = arrows.uses.union(&arrows.tests_use);
        let up = all.find(|used| !before.contains(*used));
        assert_eq!(up, None, "{name} uses a crate whose row does not stand before its own");
        before.insert(name);
    }
    let left: Vec<_> = packages.into_keys().collect();
    ensure!(left.is_empty(), "crates that docs/architecture.md does not have: {left:?}");
    Ok(())
}
