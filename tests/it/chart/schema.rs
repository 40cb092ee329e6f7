//! `values.schema.json` is made from `values.yaml`, whose keys have the type that they have there, and from `no-effect.yaml`, whose
//! keys take whatever ingress-nginx's chart takes. Any other key is refused.

use anyhow::{Context, Result, ensure};
use oxigress_tests::dist::repository;
use serde_json::{Map, Value, json};
use std::fs;

/// Objects of Kubernetes with defaults: whatever it takes.
pub const FREE: &[&str] = &[
    "lifecycle",
    "nodeSelector",
    "resources",
    "livenessProbe",
    "readinessProbe",
    "seccompProfile",
    "labels",
    "global",
];

/// Keys that take a number or a text such as `50%`.
const NUMBER_OR_TEXT: &[&str] = &[
    "http",
    "https",
    "nodePort",
    "healthCheckNodePort",
    "minAvailable",
    "maxUnavailable",
    "tag",
    "workerProcesses",
    "sizeLimit",
];

/// Those that have more than a type.
const CHOICES: &[(&str, &[&str])] = &[
    ("kind", &["Deployment", "DaemonSet"]),
    ("failurePolicy", &["Ignore", "Fail"]),
    ("hostOwnership", &["settings", "strict", "shared"]),
    ("journal", &["auto", "on", "off"]),
];

/// What the chart has by default.
pub fn values() -> Result<Value> {
    Ok(serde_saphyr::from_str(&fs::read_to_string(repository().join("conf/helm/values.yaml"))?)?)
}

/// The keys that the chart takes without an effect, each with what NOTES says of it.
pub fn without_effect() -> Result<Map<String, Value>> {
    let text = fs::read_to_string(repository().join("conf/helm/no-effect.yaml"))?;
    Ok(serde_saphyr::from_str(&text)?)
}

/// The keys of ingress-nginx's chart.
pub fn theirs() -> Result<Vec<String>> {
    let list = fs::read_to_string(repository().join("tests/tables/chart-keys.txt"))?;
    Ok(list.lines().filter(|line| !line.starts_with('#')).map(String::from).collect())
}

/// Whether `key` is `other` or stands below it.
pub fn is_below(key: &str, other: &str) -> bool {
    key.strip_prefix(other).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Permits a key of `path` in an object's schema, with any value.
fn permit(schema: &mut Value, path: &str) {
    let (name, rest) = path.split_once('.').unwrap_or((path, ""));
    let member = &mut schema["properties"][name];
    if rest.is_empty() {
        *member = json!({});
        return;
    }
    if member.is_null() {
        *member = json!({"type": "object", "additionalProperties": false, "properties": {}});
    }
    permit(member, rest);
}

fn schema(name: &str, default: &Value) -> Value {
    // An empty object by default in ingress-nginx's chart, a text in its templates.
    if name == "hostname" {
        return json!({"type": ["string", "object"], "maxProperties": 0});
    }
    if let Some((_, choices)) = CHOICES.iter().find(|(key, _)| *key == name) {
        return json!({"enum": choices});
    }
    match default {
        Value::Object(members) if !members.is_empty() && !FREE.contains(&name) => object(members),
        Value::Object(_) => json!({"type": "object"}),
        Value::Array(_) => json!({"type": "array"}),
        Value::Bool(_) => json!({"type": "boolean"}),
        Value::String(_) if NUMBER_OR_TEXT.contains(&name) => {
            json!({"type": ["integer", "number", "string"]})
        }
        Value::Number(_) if NUMBER_OR_TEXT.contains(&name) && name.starts_with("min") => {
            json!({"type": ["integer", "string"]})
        }
        Value::Number(_) => json!({"type": "integer"}),
        _ => json!({"type": "string"}),
    }
}

fn object(members: &Map<String, Value>) -> Value {
    let properties: Map<_, _> =
        members.iter().map(|(name, default)| (name.clone(), schema(name, default))).collect();
    json!({"type": "object", "additionalProperties": false, "properties": properties})
}

#[test]
fn the_schema_is_that_of_the_values() -> Result<()> {
    let values = values()?;
    let mut schema = object(values.as_object().context("values")?);
    let ignored = without_effect()?;
    for key in theirs()?.iter().filter(|key| ignored.keys().any(|one| is_below(key, one))) {
        permit(&mut schema, key);
    }
    schema["$schema"] = json!("http://json-schema.org/draft-07/schema#");
    schema["description"] = json!(
        "Made from values.yaml: UPDATE_GOLDEN=1 cargo test -p oxigress-tests --test it chart::schema"
    );
    let path = repository().join("conf/helm/values.schema.json");
    let new = format!("{}\n", serde_json::to_string_pretty(&schema)?);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, &new)?;
    }
    ensure!(
        fs::read_to_string(&path).unwrap_or_default() == new,
        "values.schema.json is old: run the test with UPDATE_GOLDEN=1"
    );
    Ok(())
}
