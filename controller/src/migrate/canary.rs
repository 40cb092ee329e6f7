//! Canaries: shares of a rule, and rules for those who ask for the canary or for the main version.

use super::Notes;
use super::said::Said;
use serde_json::{Value, json};

/// A canary of a path, and where it leads.
pub struct Canary<'a, 'w> {
    pub said: &'a Said<'w>,
    pub backend: Value,
}

/// What requests of a rule are asked for beside their path, and who serves them.
pub type Variants = Vec<(Vec<Value>, Vec<Value>)>;

/// The variants of a rule that leads to `main`, those that ask for more first.
pub fn variants(main: &Value, canaries: &[Canary<'_, '_>], notes: &mut Notes) -> Variants {
    let Some((canary, others)) = canaries.split_first() else {
        return vec![(Vec::new(), vec![main.clone()])];
    };
    for other in others {
        notes.lost(
            other.said.key,
            "a path has several canaries, and the oldest one stands in the route",
        );
    }
    let text =
        |name: &str| canary.said.annotations.get(name).copied().filter(|text| !text.is_empty());
    let header = |name: &str, value: &str| json!({"name": name, "value": value});
    let mut all = Variants::new();
    let (own, only_main) = (vec![canary.backend.clone()], vec![main.clone()]);
    if let Some(name) = text("canary-by-header") {
        if text("canary-by-header-pattern").is_some() && text("canary-by-header-value").is_none() {
            notes.lost(
                canary.said.key,
                "annotation canary-by-header-pattern: it is found anywhere in a value, and a route's expression is the whole value",
            );
        } else if let Some(value) = text("canary-by-header-value") {
            all.push((vec![header(name, value)], own.clone()));
        } else {
            all.push((vec![header(name, "always")], own.clone()));
            all.push((vec![header(name, "never")], only_main.clone()));
        }
    }
    if let Some(name) = text("canary-by-cookie") {
        let cookie = |value: &str| {
            let value = format!("(.*; ?)?{}={value}(;.*)?", literal(name));
            json!({"name": "Cookie", "type": "RegularExpression", "value": value})
        };
        all.push((vec![cookie("always")], own));
        all.push((vec![cookie("never")], only_main));
    }
    all.push((Vec::new(), shares(main, canary, notes)));
    all
}

fn shares(main: &Value, canary: &Canary<'_, '_>, notes: &mut Notes) -> Vec<Value> {
    let number = |name: &str| {
        let text = canary.said.annotations.get(name)?;
        text.parse::<u32>().ok()
    };
    let total = number("canary-weight-total").unwrap_or(100).max(100);
    let weight = number("canary-weight").unwrap_or_default().min(total);
    if weight == 0 {
        return vec![main.clone()];
    }
    if total > 1_000_000 {
        notes.lost(
            canary.said.key,
            "annotation canary-weight-total: weights of a route are at most 1000000",
        );
        return vec![main.clone()];
    }
    let weighted = |backend: &Value, weight: u32| {
        let mut backend = backend.clone();
        backend["weight"] = json!(weight);
        backend
    };
    vec![weighted(main, total - weight), weighted(&canary.backend, weight)]
}

/// A cookie's name in an expression.
fn literal(name: &str) -> String {
    let escape = |letter: char| match letter {
        // Behind a bracket it would negate a set.
        '^' | '\\' => format!("\\{letter}"),
        '_' => letter.to_string(),
        letter if letter.is_ascii_alphanumeric() => letter.to_string(),
        letter => format!("[{letter}]"),
    };
    name.chars().map(escape).collect()
}
