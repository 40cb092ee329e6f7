//! Rows of the lists: so many from an offset, of those that have a text.
//!
//! Nothing secret is in a row: of policies only the names, of certificates what every client sees.

use crate::query::{Kind, View};
use oxigress_core::model::policy::Policies;
use oxigress_core::model::{BackendId, Rule};
use oxigress_objects::verdict::Severity;
use oxigress_objects::{Key, ObjectRef};
use serde_json::{Value, json};
use std::cmp::Reverse;

/// The most rows of a page.
pub const MOST: usize = 200;

/// A page of rows, and how many there are.
pub fn page(kind: Kind, view: &View<'_>, text: &str, offset: usize, limit: usize) -> Value {
    let text = text.to_lowercase();
    let mut page = Page { text: &text, offset, limit: limit.min(MOST), total: 0, rows: Vec::new() };
    match kind {
        Kind::Routes => routes(view, &mut page),
        Kind::Backends => backends(view, &mut page),
        Kind::Certificates => certificates(view, &mut page),
        Kind::Findings => findings(view, &mut page),
    }
    json!({"total": page.total, "offset": offset, "rows": page.rows})
}

/// A page that is being filled. Rows outside of it are only counted: making them is what takes time.
struct Page<'t> {
    text: &'t str,
    offset: usize,
    limit: usize,
    total: usize,
    rows: Vec<Value>,
}

impl Page<'_> {
    fn add<'w>(&mut self, words: impl IntoIterator<Item = &'w str>, row: impl FnOnce() -> Value) {
        let has = |word: &str| word.to_lowercase().contains(self.text);
        if !self.text.is_empty() && !words.into_iter().any(has) {
            return;
        }
        self.total += 1;
        if self.total > self.offset && self.rows.len() < self.limit {
            self.rows.push(row());
        }
    }
}

fn routes(view: &View<'_>, page: &mut Page<'_>) {
    for (host, server) in &view.snapshot.servers {
        for rule in &server.rules {
            let origin = &rule.origin;
            let words =
                [host.as_str(), &origin.path, &origin.namespace, &origin.ingress, &origin.service];
            page.add(words, || {
                json!({
                    "host": host.as_str(),
                    "path": rule.path.to_string(),
                    "ingress": name(&origin.namespace, &origin.ingress),
                    "service": name(&origin.service, &origin.port).replace('/', ":"),
                    "backend": rule.backend.as_ref().map(BackendId::as_str),
                    "endpoints": rule.backend.as_ref().map(|id| endpoints(view, id)),
                    "has_certificate": view.snapshot.names.contains_key(host),
                    "chips": chips(view, rule),
                })
            });
        }
    }
}

fn name(first: &str, second: &str) -> String {
    [first, second].iter().filter(|part| !part.is_empty()).copied().collect::<Vec<_>>().join("/")
}

fn endpoints(view: &View<'_>, id: &BackendId) -> usize {
    view.snapshot.endpoints.get(id).map_or(0, |set| set.as_slice().len())
}

/// The names of the policies that a rule has.
fn chips(view: &View<'_>, rule: &Rule) -> Vec<String> {
    let Some(id) = &rule.policies else { return Vec::new() };
    match view.snapshot.policies.get(id) {
        Some(policies) => names_of(policies),
        None => vec!["closed".into()],
    }
}

fn names_of(policies: &Policies) -> Vec<String> {
    let name = |key: String| key.replace('_', " ");
    match serde_json::to_value(policies) {
        Ok(Value::Object(set)) => set.into_iter().map(|(key, _)| name(key)).collect(),
        _ => Vec::new(),
    }
}

fn backends(view: &View<'_>, page: &mut Page<'_>) {
    for (id, backend) in &view.snapshot.backends {
        page.add([id.as_str()], || {
            json!({
                "id": id.as_str(),
                "algorithm": backend.algorithm,
                "affinity": backend.affinity.is_some(),
                "endpoints": endpoints(view, id),
                "alternatives": backend.alternatives.iter().map(BackendId::as_str).collect::<Vec<_>>(),
            })
        });
    }
}

fn certificates(view: &View<'_>, page: &mut Page<'_>) {
    for (host, id) in &view.snapshot.names {
        page.add([host.as_str(), id.as_str()], || {
            let history = Key::parse(id.as_str()).and_then(|key| view.world.secrets.get(&key));
            let pair =
                history.and_then(|history| history.secret.pair().or(history.last_good.as_ref()));
            json!({
                "host": host.as_str(),
                "secret": id.as_str(),
                "expires": pair.map(|pair| pair.leaf.expires),
                "issuer": pair.map(|pair| pair.leaf.issuer_common_name.clone()),
                "algorithm": pair.map(|pair| pair.leaf.algorithm),
            })
        });
    }
}

/// Adds the findings, the most severe first.
fn findings(view: &View<'_>, page: &mut Page<'_>) {
    let mut all: Vec<_> = view.verdicts.iter().collect();
    all.sort_by_key(|(_, verdict)| Reverse(verdict.severity));
    for (object, verdict) in all {
        let ObjectRef { kind, key } = object;
        let words = [key.namespace.as_str(), &key.name].into_iter();
        page.add(words.chain(verdict.messages.iter().map(String::as_str)), || {
            let severity = match verdict.severity {
                Severity::Note => "note",
                Severity::Warning => "warning",
                Severity::Rejected => "rejected",
            };
            json!({"object": format!("{kind} {key}"), "severity": severity, "messages": verdict.messages})
        });
    }
}
