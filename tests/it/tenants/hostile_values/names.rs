//! Names of annotations and of the ConfigMap's keys, and values that they take, from what the controller's own tests keep
//! equal to its tables: a new one is tried here without a word.

use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// A key of the main ConfigMap.
pub struct Key {
    /// The key as users write it.
    pub name: String,
    /// Whether a change rewrites nginx.conf.
    pub is_conf: bool,
    /// While it cannot be read, every location is closed.
    pub closes: bool,
}

fn file(path: &str) -> Result<String> {
    let path = Path::new(ROOT).join(path);
    fs::read_to_string(&path).with_context(|| format!("{}", path.display()))
}

fn quoted(text: &str) -> Vec<String> {
    text.split('`').skip(1).step_by(2).map(String::from).collect()
}

/// All annotations, of the table in docs/annotations.md.
pub fn annotations() -> Result<Vec<String>> {
    let page = file("docs/annotations.md")?;
    let (_, table) = page.split_once("<!-- annotations:").context("no table")?;
    let (table, _) = table.split_once("<!-- end -->").context("no end of the table")?;
    let lines = table.lines().filter_map(|line| line.strip_prefix("| `"));
    let cells = lines.filter_map(|line| line.split(" | ").next());
    let names: Vec<_> = cells.flat_map(|cell| quoted(&format!("`{cell}"))).collect();
    ensure!(names.len() >= 138, "{} annotations are found", names.len());
    Ok(names)
}

/// Values of keys, as docs/configmap/ writes them.
pub type Written = BTreeMap<String, Vec<String>>;

/// All keys, of docs/configmap/, each with its default value if that is told.
pub fn keys() -> Result<(Vec<Key>, Written)> {
    let page = file("docs/configmap/server.md")? + &file("docs/configmap/traffic.md")?;
    let (mut keys, mut values) = (Vec::new(), BTreeMap::new());
    for line in page.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<_> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let name = cells.first().context("no name")?.trim_matches('`').to_owned();
        let here = cells.last().context("no last cell")?;
        let default = cells.get(2).copied().unwrap_or_default().replace("\\|", "|");
        values.insert(name.clone(), vec![default]);
        let (is_conf, closes) = (here.starts_with("nginx.conf"), here.contains("**closes**"));
        keys.push(Key { name, is_conf, closes });
    }
    ensure!(keys.len() >= 198, "{} keys are found", keys.len());
    add_written(&mut values, "  ")?;
    Ok((keys, values))
}

/// Values of annotations by name, of the controller's golden pairs.
pub fn written_annotations() -> Result<BTreeMap<String, Vec<String>>> {
    let mut values = BTreeMap::new();
    add_written(&mut values, "nginx.ingress.kubernetes.io/")?;
    ensure!(values.len() > 100, "{} annotations have values", values.len());
    Ok(values)
}

/// Adds each `NAME: VALUE` behind `before`.
fn add_written(values: &mut BTreeMap<String, Vec<String>>, before: &str) -> Result<()> {
    let folder = Path::new(ROOT).join("controller/testdata");
    let mut paths: Vec<_> = fs::read_dir(folder)?.map(|e| Ok(e?.path())).collect::<Result<_>>()?;
    paths.sort();
    for path in paths.iter().filter(|path| path.to_string_lossy().ends_with(".in.yaml")) {
        for line in fs::read_to_string(path)?.lines() {
            let Some((_, rest)) = line.split_once(before) else { continue };
            let Some((name, value)) = rest.trim().split_once(": ") else { continue };
            let is_name = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
            let known = values.contains_key(name) || before.ends_with('/');
            if !known || !name.bytes().all(is_name) {
                continue;
            }
            let all: &mut Vec<String> = values.entry(name.to_owned()).or_default();
            let value: String =
                serde_json::from_str(value).unwrap_or_else(|_| value.trim_matches('\'').into());
            if !all.contains(&value) {
                all.push(value);
            }
        }
    }
    Ok(())
}
