//! The files of a crate use each other in one direction.
//!
//! An arrow goes from a file to one that it names by `crate::`, `super::` or `self::`. Each is looked at where the two files
//! part: between two modules of one folder. `foo.rs` and the files of `foo/` are one module there, so what a parent and
//! its children say to each other counts as one folder's affair. The modules of a folder are put in the order in which the
//! fewest arrows point back up; these are counted.

use anyhow::{Context, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// The crates and how many of their arrows may point back up. A number may only become smaller.
const CRATES: [(&str, usize); 15] = [
    ("controller/admission", 0),
    ("controller/net", 0),
    ("controller/objects", 0),
    ("controller/provider", 0),
    ("controller/publish", 0),
    ("controller/settings", 0),
    ("controller/status", 0),
    ("controller/supervisor", 0),
    // What an Ingress says about whole hosts is sealed by the file of their owner, which reads claims.
    ("controller/translate", 2),
    ("controller/validate", 0),
    // The command line names the tools, which are started by it.
    ("controller", 3),
    ("module/core", 5),
    ("module/store", 0),
    ("module/nginx", 0),
    ("module", 0),
];

/// A module, as the names on its way from the root of the crate.
type Module = Vec<String>;

/// The modules of a crate and their files, without those of unit tests.
fn modules(folder: &Path, above: &[String], all: &mut BTreeMap<Module, PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_stem().and_then(|name| name.to_str()).context("a name in UTF-8")?;
        if name.ends_with("tests") {
            continue;
        }
        let mut module = above.to_vec();
        if path.is_dir() {
            module.push(name.into());
            modules(&path, &module, all)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            if !(above.is_empty() && matches!(name, "lib" | "main")) {
                module.push(name.into());
            }
            all.insert(module, path);
        }
    }
    Ok(())
}

/// The text without comments, strings and what is there for unit tests only.
fn code(text: &str) -> String {
    let mut code = String::new();
    for line in text.lines() {
        let mut is_text = false;
        let mut before = ' ';
        let mut letters = line.chars().peekable();
        while let Some(letter) = letters.next() {
            match letter {
                '"' if before != '\\' && before != '\'' => is_text = !is_text,
                '/' if !is_text && letters.peek() == Some(&'/') => break,
                _ if is_text => {}
                _ => code.push(letter),
            }
            before = if before == '\\' && letter == '\\' { ' ' } else { letter };
        }
        code.push('\n');
    }
    while let Some(start) = code.find("#[cfg(test)]") {
        let mut depth = 0;
        let end = code[start..].char_indices().skip(12).find(|(_, letter)| {
            depth += match letter {
                '{' => 1,
                '}' => -1,
                _ => 0,
            };
            depth == 0 && matches!(letter, '}' | ';')
        });
        let end = end.map_or(code.len(), |(at, _)| start + at + 1);
        code.replace_range(start..end, "");
    }
    code
}

/// The paths of a tree such as `a::{b, c::d}`, at the beginning of `text`; answers what follows the tree.
fn tree<'t>(mut text: &'t str, before: &[&'t str], paths: &mut Vec<Vec<&'t str>>) -> &'t str {
    let mut path = before.to_vec();
    loop {
        text = text.trim_start();
        if let Some(inner) = text.strip_prefix('{') {
            text = inner.trim_start();
            while !text.is_empty() && !text.starts_with('}') {
                let rest = tree(text, &path, paths);
                if rest.len() == text.len() {
                    return text;
                }
                let next = rest.find([',', '}']).map_or("", |at| &rest[at..]);
                text = next.strip_prefix(',').unwrap_or(next).trim_start();
            }
            return text.strip_prefix('}').unwrap_or(text);
        }
        let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
        let (name, rest) = text.split_at(end);
        if !name.is_empty() {
            path.push(name);
        }
        text = rest;
        match text.trim_start().strip_prefix("::") {
            Some(rest) if !name.is_empty() => text = rest,
            _ => {
                paths.push(path);
                return text.strip_prefix('*').unwrap_or(text);
            }
        }
    }
}

/// The modules that a file names.
fn named(from: &Module, code: &str, all: &BTreeMap<Module, PathBuf>) -> BTreeSet<Module> {
    let mut named = BTreeSet::new();
    for (word, up) in [("crate", from.len()), ("super", 1), ("self", 0)] {
        for (at, _) in code.match_indices(&format!("{word}::")) {
            let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == '$' || c == ':';
            if code[..at].ends_with(is_word) {
                continue;
            }
            let mut rest = &code[at + word.len() + 2..];
            let mut up = up;
            while let Some(further) = rest.strip_prefix("super::") {
                (rest, up) = (further, up + 1);
            }
            let base: Vec<&str> =
                from.iter().take(from.len().saturating_sub(up)).map(String::as_str).collect();
            let mut paths = Vec::new();
            tree(rest, &base, &mut paths);
            for path in paths {
                let longest = (0..=path.len()).rev().map(|n| &path[..n]);
                let mut modules =
                    longest.map(|path| path.iter().map(|name| (*name).to_owned()).collect());
                named.extend(modules.find(|module: &Module| all.contains_key(module)));
            }
        }
    }
    named.remove(from);
    named
}

/// The pairs of modules of one folder, each with the files between which arrows go.
type Pairs = BTreeMap<(String, String), Vec<String>>;

/// How many arrows there are, and those that point back up.
fn arrows(folder: &Path) -> Result<(usize, Vec<String>)> {
    let mut all = BTreeMap::new();
    modules(&folder.join("src"), &[], &mut all)?;
    let mut folders: BTreeMap<Module, Pairs> = BTreeMap::new();
    for (from, file) in &all {
        for to in named(from, &code(&fs::read_to_string(file)?), &all) {
            let common = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
            if let (Some(a), Some(b)) = (from.get(common), to.get(common)) {
                let pairs = folders.entry(from[..common].to_vec()).or_default();
                let arrow = format!("{} -> {}", from.join("/"), to.join("/"));
                pairs.entry((a.clone(), b.clone())).or_default().push(arrow);
            }
        }
    }
    let count = folders.values().flat_map(BTreeMap::values).map(Vec::len).sum();
    Ok((count, folders.values().flat_map(back_up).collect()))
}

/// The arrows that point back up in the best order that is found: one module after the other is moved to where the fewest do.
fn back_up(pairs: &Pairs) -> Vec<String> {
    let names: BTreeSet<&String> = pairs.keys().flat_map(|(a, b)| [a, b]).collect();
    let back = |order: &[&String]| -> Vec<String> {
        let place = |name: &String| order.iter().position(|other| *other == name);
        let is_back = |(a, b): &(String, String)| place(a) > place(b);
        pairs.iter().filter(|(pair, _)| is_back(pair)).flat_map(|(_, all)| all.clone()).collect()
    };
    let mut order = first_order(names, pairs);
    let mut best = back(&order);
    let mut is_better = true;
    while std::mem::take(&mut is_better) {
        for name in order.clone() {
            let others: Vec<_> = order.iter().copied().filter(|other| *other != name).collect();
            for place in 0..=others.len() {
                let mut moved = others.clone();
                moved.insert(place, name);
                let now = back(&moved);
                if now.len() < best.len() {
                    (order, best, is_better) = (moved, now, true);
                }
            }
        }
    }
    best
}

/// An order in which no arrow points back up where there is one: first comes who is used by none of the others, and in a circle
/// who uses more than it is used.
fn first_order<'n>(mut left: BTreeSet<&'n String>, pairs: &Pairs) -> Vec<&'n String> {
    let mut order = Vec::new();
    loop {
        let count = |is: &dyn Fn(&(String, String)) -> bool| -> i64 {
            let among = pairs.iter().filter(|((a, b), _)| left.contains(a) && left.contains(b));
            among.filter(|(pair, _)| is(pair)).map(|(_, all)| all.len() as i64).sum()
        };
        let weight = |name: &String| {
            let used = count(&|pair| pair.1 == *name);
            (used > 0, used - count(&|pair| pair.0 == *name))
        };
        let Some(next) = left.iter().min_by_key(|name| weight(name)).copied() else { return order };
        left.remove(next);
        order.push(next);
    }
}

#[test]
fn files_use_each_other_in_one_direction() -> Result<()> {
    println!("{:24} {:>7} {:>8}", "crate", "arrows", "back up");
    let mut wrong = Vec::new();
    let (mut all, mut up) = (0, 0);
    for (name, most) in CRATES {
        let (count, back) = arrows(&Path::new(ROOT).join(name))?;
        println!("{name:24} {count:7} {:8}", back.len());
        if name.starts_with("controller") {
            (all, up) = (all + count, up + back.len());
        }
        if back.len() > most {
            wrong.push(format!(
                "{name}: {} arrows point back up, {most} may: {back:#?}",
                back.len()
            ));
        }
    }
    assert!(wrong.is_empty(), "move what is used below its users:\n{}", wrong.join("\n"));
    assert!(up * 50 <= all, "{up} of the controller's {all} arrows point back up: 2 % may");
    Ok(())
}

#[test]
fn an_arrow_is_found_wherever_it_stands() {
    let all = ["a", "a/b", "c", "c/d", "e"]
        .map(|module| (module.split('/').map(str::to_owned).collect::<Module>(), PathBuf::new()));
    let all = BTreeMap::from(all);
    let text = "use crate::{c::{self, d::Item}, x};\nfn f() { super::e::g(\"crate::z\") } // crate::e\n\
                #[cfg(test)]\nmod tests { use crate::e; }\n";
    let of = |from: &str, text: &str| -> Vec<String> {
        let from: Module = from.split('/').map(str::to_owned).collect();
        named(&from, &code(text), &all).iter().map(|module| module.join("/")).collect()
    };
    assert_eq!(of("a", text), ["c", "c/d", "e"]);
    assert_eq!(of("a/b", "use super::super::c;\nuse super::X;"), ["a", "c"]);
    assert_eq!(
        of("a", "#[cfg(test)]\nuse crate::c;\nlet x = my_crate::c::f();"),
        Vec::<String>::new()
    );
    let arrow = |a: &str, b: &str| ((a.to_owned(), b.to_owned()), vec![format!("{a} -> {b}")]);
    let pairs = BTreeMap::from([arrow("a", "b"), arrow("b", "c"), arrow("c", "a")]);
    assert_eq!(back_up(&pairs).len(), 1, "a circle has one arrow back");
    // Where a module alone is moved, others stand in its way.
    let pairs = [("a", "b"), ("a", "d"), ("b", "d"), ("c", "a"), ("e", "c")];
    let pairs = pairs.iter().map(|(from, to)| arrow(from, to)).collect();
    assert_eq!(back_up(&pairs), Vec::<String>::new());
}
