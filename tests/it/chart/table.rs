//! The table of docs/reference/chart-keys.md against the chart, and against the names of ingress-nginx's chart.

use super::schema::{FREE, is_below, theirs, values, without_effect};
use anyhow::{Context, Result, bail, ensure};
use oxigress_tests::chart::text;
use oxigress_tests::dist::repository;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

/// What a row says of a key.
type Table = BTreeMap<String, String>;

fn table() -> Result<Table> {
    let page = fs::read_to_string(repository().join("docs/reference/chart-keys.md"))?;
    let mut table = Table::new();
    for row in page.lines().filter(|line| line.starts_with("| `")) {
        let columns: Vec<_> = row.split('|').map(str::trim).collect();
        let [_, keys, word, note, _] = columns[..] else { bail!("not three columns: {row}") };
        ensure!(["same", "different", "no effect", "own"].contains(&word), "{row}");
        ensure!(word == "same" || !note.is_empty(), "what to do instead? {row}");
        for key in keys.split('`').skip(1).step_by(2) {
            ensure!(table.insert(key.into(), word.into()).is_none(), "{key} stands twice");
        }
    }
    Ok(table)
}

/// The row that names the key, or else the nearest object that it is in.
fn word<'t>(table: &'t Table, key: &str) -> Option<&'t str> {
    let mut name = key;
    loop {
        if let Some(word) = table.get(name) {
            return Some(word);
        }
        name = name.rsplit_once('.')?.0;
    }
}

/// Whether the chart has a key, or an object that takes whatever Kubernetes takes.
fn has(values: &Value, key: &str) -> bool {
    let mut value = values;
    for name in key.split('.') {
        match value.as_object() {
            Some(members) if members.contains_key(name) => value = &members[name],
            Some(members) => return members.is_empty(),
            None => return false,
        }
    }
    true
}

/// The keys that hold something else than further keys.
fn leaves(prefix: &str, value: &Value, found: &mut Vec<String>) {
    let name = prefix.rsplit('.').next().unwrap_or_default();
    match value.as_object() {
        Some(members) if !members.is_empty() && (!FREE.contains(&name) || name == "global") => {
            for (name, value) in members {
                let key = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
                leaves(&key, value, found);
            }
        }
        _ => found.push(prefix.into()),
    }
}

#[test]
fn the_table_has_every_key_of_ingress_nginx_s_chart_and_is_right_about_it() -> Result<()> {
    let (table, values, theirs) = (table()?, values()?, theirs()?);
    let ignored = without_effect()?;
    ensure!(theirs.len() == 367, "chart-keys.md has another number than {}", theirs.len());
    for key in &theirs {
        let word = word(&table, key).with_context(|| format!("{key} is in no row"))?;
        ensure!(word != "own", "{key} is ingress-nginx's too");
        let is_ignored = ignored.keys().any(|one| is_below(key, one));
        ensure!(is_ignored == (word == "no effect"), "{key} is not {word} in no-effect.yaml");
        ensure!(has(&values, key) != is_ignored, "{key} is not {word} in values.yaml");
    }
    Ok(())
}

#[test]
fn every_key_of_the_chart_is_in_the_table() -> Result<()> {
    let (table, values, theirs) = (table()?, values()?, theirs()?);
    let mut all = Vec::new();
    leaves("", &values, &mut all);
    for key in &all {
        let word = word(&table, key).with_context(|| format!("{key} is in no row"))?;
        let is_theirs = theirs.iter().any(|one| is_below(one, key) || is_below(key, one));
        ensure!(is_theirs == (word != "own"), "{key}: {word}, but theirs: {is_theirs}");
    }
    for (key, word) in &table {
        ensure!(has(&values, key) == (word != "no effect"), "the table says {key} is {word}");
    }
    Ok(())
}

/// Puts the members of one value into another, deeply.
pub fn merge(into: &mut Value, from: &Value) {
    match (into.as_object_mut(), from.as_object()) {
        (Some(into), Some(from)) => {
            for (name, value) in from {
                merge(into.entry(name.clone()).or_insert(Value::Null), value);
            }
        }
        _ => *into = from.clone(),
    }
}

fn with(base: &Value, key: &str, value: Value) -> Value {
    let nested = key.rsplit('.').fold(value, |inner, name| json!({ name: inner }));
    let mut whole = base.clone();
    merge(&mut whole, &nested);
    whole
}

/// Something of the same type that is not the default.
fn other(key: &str, default: &Value) -> Value {
    match (key, default) {
        ("controller.kind", _) => json!("DaemonSet"),
        ("tcp" | "udp", _) => json!({"9999": "shop/probe:1"}),
        (key, _) if key.ends_with("failurePolicy") => json!("Ignore"),
        (key, _) if key.ends_with("hostOwnership") => json!("strict"),
        (key, _) if key.ends_with("journal") => json!("off"),
        ("controller.hostname", _) => json!("probe"),
        ("controller.keda.fallback", _) => json!({"replicas": 3}),
        (key, _) if key.ends_with("nodePort") || key.ends_with("healthCheckNodePort") => {
            json!(31111)
        }
        (key, _) if key.contains("nodePorts.tcp") => json!({"9000": 31111}),
        (key, _) if key.contains("nodePorts.udp") => json!({"5353": 31111}),
        (key, _) if key.contains("nodePorts.") => json!(31111),
        (key, _) if key.ends_with("internal.ports") || key.ends_with("targetPorts") => {
            json!({"http": 31111})
        }
        (key, Value::Array(_)) if key.ends_with("aliases") => json!(["probe"]),
        (_, Value::Bool(is)) => json!(!is),
        (_, Value::Number(number)) => json!(number.as_i64().unwrap_or_default() + 1),
        (_, Value::String(_)) => json!("probe"),
        (_, Value::Array(_)) => json!([{"name": "probe"}]),
        _ => json!({"probe": "probe"}),
    }
}

/// With everything on, and what hides something else off in the first and on in the others.
fn bases() -> Result<[Value; 3]> {
    let first: Value = serde_saphyr::from_str(
        "tcp: {'9000': 'shop/shop:80'}
udp: {'5353': 'kube-system/dns:53'}
controller:
  replicaCount: 2
  hostPort: {enabled: true}
  addHeaders: {A: b}
  proxySetHeaders: {A: b}
  ingressClassResource: {default: true}
  networkPolicy: {enabled: true}
  service: {internal: {enabled: true, annotations: {a: b}}}
  admissionWebhooks: {certManager: {enabled: true}}
  metrics: {enabled: true, dashboard: {enabled: true}, serviceMonitor: {enabled: true}, prometheusRule: {enabled: true}}
defaultBackend: {enabled: true, replicaCount: 2, networkPolicy: {enabled: true}, image: {image: pages, tag: '1'}}",
    )?;
    let mut second = first.clone();
    merge(
        &mut second,
        &serde_saphyr::from_str(
            "controller:
  autoscaling: {enabled: true, minReplicas: 2}
  scope: {enabled: true}
defaultBackend: {autoscaling: {enabled: true, minReplicas: 2}, serviceAccount: {create: false}}",
        )?,
    );
    let mut third = first.clone();
    let keda = "controller: {keda: {enabled: true, minReplicas: 2}}";
    merge(&mut third, &serde_saphyr::from_str(keda)?);
    Ok([first, second, third])
}

/// The keys whose values are found in one rendering, each with a word of its own; by halves where the chart refuses some.
fn found_at_once(base: &Value, keys: &[(String, Value)]) -> BTreeSet<String> {
    let mut whole = base.clone();
    let mut words = Vec::new();
    for (number, (key, value)) in keys.iter().enumerate() {
        let word = format!("probe-{number}-x");
        let text = value.to_string().replace("probe", &word);
        if let Ok(value) = serde_json::from_str(&text) {
            whole = with(&whole, key, value);
            words.push((word, key));
        }
    }
    match text("ingress", &whole.to_string(), &[]) {
        Ok(text) => {
            let shown = words.into_iter().filter(|(word, _)| text.contains(word.as_str()));
            shown.map(|(_, key)| key.clone()).collect()
        }
        Err(_) if keys.len() > 4 => {
            let (one, two) = keys.split_at(keys.len() / 2);
            &found_at_once(base, one) | &found_at_once(base, two)
        }
        Err(_) => BTreeSet::new(),
    }
}

#[test]
fn every_key_changes_what_is_rendered() -> Result<()> {
    let values = values()?;
    let bases = bases()?;
    let render = |values: &Value| text("ingress", &values.to_string(), &[]);
    let plain = [render(&bases[0])?, render(&bases[1])?, render(&bases[2])?];
    ensure!(
        plain[0] == render(&bases[0])?,
        "two renderings of the same differ: no key could be proved"
    );
    let mut keys = Vec::new();
    leaves("", &values, &mut keys);
    let of = |base: &Value, key: &str| -> Value {
        let pointer = format!("/{}", key.replace('.', "/"));
        let now = base.pointer(&pointer).or_else(|| values.pointer(&pointer));
        other(key, now.unwrap_or(&Value::Null))
    };
    // Words are looked for together; what is left, such as numbers, each by itself.
    let words: Vec<_> = keys.iter().map(|key| (key.clone(), of(&bases[0], key))).collect();
    let words: Vec<_> =
        words.into_iter().filter(|(_, value)| value.to_string().contains("\"probe\"")).collect();
    let found = found_at_once(&bases[0], &words);
    println!("{} of {} keys in one rendering", found.len(), keys.len());
    keys.retain(|key| !found.contains(key));
    let without = |key: &String| -> Result<bool> {
        let mut refused = None;
        for (base, plain) in bases.iter().zip(&plain) {
            match render(&with(base, key, of(base, key))) {
                Ok(text) if text != *plain => return Ok(false),
                Ok(_) => {}
                Err(error) => refused = Some(error),
            }
        }
        refused.map_or(Ok(true), |error| Err(error.context(key.to_owned())))
    };
    let mut dead = Vec::new();
    for key in &keys {
        if without(key)? {
            dead.push(key);
        }
    }
    ensure!(dead.is_empty(), "without an effect: {dead:?}");
    Ok(())
}
