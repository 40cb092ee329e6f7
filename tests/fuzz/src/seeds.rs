//! Valid inputs from the blocks that run nginx.

use serde_json::{Value, json};
use std::fs;
use std::path::Path;

/// The JSON documents of all sections whose name `is_wanted`, with something in the place of variables.
pub fn of_blocks(is_wanted: fn(&str) -> bool) -> Vec<Value> {
    let blocks = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../blocks"));
    let mut files: Vec<_> = listed(blocks).iter().flat_map(|area| listed(area)).collect();
    files.sort();
    let mut found = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        for section in text.split("\n--- ").skip(1) {
            let (name, body) = section.split_once('\n').unwrap_or((section, ""));
            let body = body.split("\n===").next().unwrap_or_default();
            if is_wanted(name) {
                found.extend(serde_json::from_str::<Value>(&without_variables(body)));
            }
        }
    }
    found
}

fn listed(folder: &Path) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect()
}

fn without_variables(text: &str) -> String {
    let mut parts = text.split('$');
    let mut all = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let (name, rest) = part.split_at(part.find(|c| !is_name(c)).unwrap_or(part.len()));
        let value = match name.split('_').next().unwrap_or_default() {
            "ENDPOINT" | "OTHERS" => json!({"address": "10.0.0.1", "port": 8080}).to_string(),
            "COMPAT" => json!({"address": "10.0.0.1", "port": "8080"}).to_string(),
            "PORT" => "8080".into(),
            "ADDRESS" => "10.0.0.1".into(),
            _ => format!("${name}"),
        };
        all.push_str(&value);
        all.push_str(rest);
    }
    all
}
