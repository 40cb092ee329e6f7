//! The lines of a `map`.
//!
//! Source:  ngx_http_map, ngx_hash_add_key.

use super::Reader;
use crate::annotation::snippet::values::{Not, Result, impossible};
use oxigress_core::model::policy::Template;
use oxigress_core::model::policy::defined::Map;
use oxigress_core::model::policy::script::ScriptPattern;
use oxigress_settings::grammar::directives::Directive;
use std::collections::BTreeMap;

/// Reads the lines.
pub fn read(
    source: Template,
    block: &[Directive],
    (names, compiler, checked): Reader<'_, '_>,
) -> Result<Map> {
    let mut map = Map {
        source,
        default: Template::empty(),
        is_volatile: false,
        has_hostnames: false,
        texts: BTreeMap::new(),
        heads: BTreeMap::new(),
        tails: BTreeMap::new(),
        patterns: Vec::new(),
    };
    let mut has_default = false;
    for line in block {
        let words: Vec<&str> = line.arguments.iter().map(String::as_str).collect();
        match (line.name.as_str(), &words[..]) {
            _ if line.block.is_some() => return Err(Not::Known),
            ("hostnames", []) => map.has_hostnames = true,
            ("volatile", []) => map.is_volatile = true,
            ("include", [_]) => return impossible("no files are read: write out what it has"),
            ("default", [_]) if has_default => return impossible("it has two defaults"),
            ("default", [value]) => {
                (map.default, has_default) = (super::text(value, names)?, true);
            }
            (key, [value]) if key.starts_with('~') => {
                let (text, ignores_case) = match key.strip_prefix("~*") {
                    Some(text) => (text, true),
                    None => (key.get(1..).unwrap_or_default(), false),
                };
                let pattern = ScriptPattern::uncompiled(text, ignores_case)?;
                if !checked.contains(pattern.as_str()) {
                    compiler.snippet(pattern.as_str())?;
                    checked.insert(pattern.as_str().to_owned());
                }
                map.patterns.push((pattern, names.template(value)?));
            }
            (key, [value]) => {
                let key = key.strip_prefix('\\').unwrap_or(key).to_ascii_lowercase();
                add(&mut map, key, super::text(value, names)?)?;
            }
            _ => return impossible("a line of it has a text and a value"),
        }
    }
    Ok(map)
}

fn add(map: &mut Map, key: String, value: Template) -> Result {
    let is_second = |found: Option<Template>, key: &str| match found {
        Some(_) => {
            impossible(format!("it has two lines for {}", oxigress_core::model::shorten(key)))
        }
        None => Ok(()),
    };
    if !map.has_hostnames || !key.contains('*') && !key.starts_with('.') {
        return is_second(map.texts.insert(key.clone(), value), &key);
    }
    let name = |text: &str| -> Result<String> {
        match text.is_empty() || text.contains('*') || text.contains("..") {
            true => impossible(format!(
                "{:?} is no name with a star",
                oxigress_core::model::shorten(&key)
            )),
            false => Ok(text.to_owned()),
        }
    };
    if let Some(end) = key.strip_prefix("*.") {
        return is_second(map.heads.insert(name(end)?, value), &key);
    }
    if let Some(start) = key.strip_suffix(".*") {
        return is_second(map.tails.insert(name(start)?, value), &key);
    }
    let whole = name(key.strip_prefix('.').unwrap_or_default())?;
    is_second(map.texts.insert(whole.clone(), value.clone()), &key)?;
    is_second(map.heads.insert(whole, value), &key)
}
