//! Rows of the lists: so many from an offset, of those that have a text.
//!
//! Nothing secret is in a row: of policies only the names, of certificates what every client sees.

use crate::query::{Kind, View};
use oxigress_core::model::policy::Policies;
use oxigress_core::model::{
    Algorithm, Backend, BackendId, CertificateId, Endpoint, PathPattern, Rule,
};
use oxigress_objects::verdict::Severity;
use oxigress_objects::{Key, ObjectRef};
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::net::SocketAddr;

/// The most rows of a page.
pub const MOST: usize = 200;

/// A page of rows, and how many there are.
pub fn page(kind: Kind, view: &View<'_>, text: &str, offset: usize, limit: usize) -> Value {
    let terms = text.split_whitespace().map(str::to_lowercase).collect();
    let mut page = Page { terms, offset, limit: limit.min(MOST), total: 0, rows: Vec::new() };
    match kind {
        Kind::Routes => routes(view, &mut page),
        Kind::Backends => backends(view, &mut page),
        Kind::Certificates => certificates(view, &mut page),
        Kind::Findings => findings(view, &mut page),
    }
    json!({"total": page.total, "offset": offset, "rows": page.rows})
}

/// A page that is being filled. Rows outside of it are only counted: making them is what takes time.
struct Page {
    /// In lower case; a row has all of them.
    terms: Vec<String>,
    offset: usize,
    limit: usize,
    total: usize,
    rows: Vec<Value>,
}

impl Page {
    /// Adds a row if its text, written as the page shows it, has every term.
    fn add(&mut self, text: impl FnOnce() -> String, row: impl FnOnce() -> Value) {
        if !self.terms.is_empty() {
            let text = text().to_lowercase();
            if !self.terms.iter().all(|term| text.contains(term.as_str())) {
                return;
            }
        }
        self.total += 1;
        if self.total > self.offset && self.rows.len() < self.limit {
            self.rows.push(row());
        }
    }
}

fn routes(view: &View<'_>, page: &mut Page) {
    for (host, server) in &view.snapshot.servers {
        for rule in &server.rules {
            let (path, path_type) = written(&rule.path);
            let ingress = || joined(&rule.origin.namespace, '/', &rule.origin.ingress);
            let service = || joined(&rule.origin.service, ':', &rule.origin.port);
            let text = || format!("{host}{path} {path_type} {} {}", ingress(), service());
            page.add(text, || {
                json!({
                    "host": host.as_str(),
                    "path": path,
                    "path_type": path_type,
                    "ingress": ingress(),
                    "service": service(),
                    "backend": rule.backend.as_ref().map(BackendId::as_str),
                    "endpoints": rule.backend.as_ref().map(|id| endpoints(view, id).len()),
                    "has_certificate": view.snapshot.names.contains_key(host),
                    "chips": chips(view, rule),
                })
            });
        }
    }
}

/// A path and its type, as an Ingress writes them.
fn written(path: &PathPattern) -> (&str, &'static str) {
    match path {
        PathPattern::Exact(path) => (path.as_str(), "Exact"),
        PathPattern::Prefix(path) if path.is_empty() => ("/", "Prefix"),
        PathPattern::Prefix(path) => (path.as_str(), "Prefix"),
        PathPattern::Regex(pattern) => (pattern.as_str(), "regular expression"),
    }
}

fn joined(first: &str, mark: char, second: &str) -> String {
    match (first.is_empty(), second.is_empty()) {
        (false, false) => format!("{first}{mark}{second}"),
        _ => format!("{first}{second}"),
    }
}

fn endpoints<'v>(view: &View<'v>, id: &BackendId) -> &'v [Endpoint] {
    view.snapshot.endpoints.get(id).map(|set| set.as_slice()).unwrap_or_default()
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

fn backends(view: &View<'_>, page: &mut Page) {
    for (id, backend) in &view.snapshot.backends {
        let endpoints = endpoints(view, id);
        let text = || {
            let addresses = endpoints
                .iter()
                .map(|endpoint| SocketAddr::new(endpoint.address, endpoint.port.get()).to_string());
            let words = [id.as_str().to_owned(), balancing(backend)].into_iter().chain(addresses);
            words.collect::<Vec<_>>().join(" ")
        };
        page.add(text, || {
            json!({
                "id": id.as_str(),
                "balancing": balancing(backend),
                "endpoints": endpoints.len(),
                "alternatives": backend.alternatives.iter().map(BackendId::as_str).collect::<Vec<_>>(),
            })
        });
    }
}

/// How one of a backend's endpoints is chosen.
fn balancing(backend: &Backend) -> String {
    let algorithm = match (&backend.hash_by, backend.algorithm) {
        (Some(_), _) => "consistent hash",
        (None, Algorithm::RoundRobin) => "round robin",
        (None, Algorithm::LeastConn) => "least connections",
        (None, Algorithm::Ewma) => "EWMA",
        (None, Algorithm::P2c) => "power of two choices",
    };
    let affinity = if backend.affinity.is_some() { ", cookie affinity" } else { "" };
    format!("{algorithm}{affinity}")
}

/// Adds the certificates, the next to expire first.
fn certificates(view: &View<'_>, page: &mut Page) {
    let leaf = |id: &CertificateId| {
        let history = view.world.secrets.get(&Key::parse(id.as_str())?)?;
        Some(&history.secret.pair().or(history.last_good.as_ref())?.leaf)
    };
    let mut all: Vec<_> =
        view.snapshot.names.iter().map(|(host, id)| (host, id, leaf(id))).collect();
    all.sort_by_key(|(.., leaf)| leaf.map_or(i64::MAX, |leaf| leaf.expires));
    for (host, id, leaf) in all {
        let issuer = leaf.map(|leaf| match leaf.issuer_common_name.as_str() {
            "" => leaf.issuer_organization.as_str(),
            name => name,
        });
        let text = || format!("{host} {} {}", id.as_str(), issuer.unwrap_or_default());
        page.add(text, || {
            json!({
                "host": host.as_str(),
                "secret": id.as_str(),
                "expires": leaf.map(|leaf| leaf.expires),
                "issuer": issuer,
                "algorithm": leaf.map(|leaf| leaf.algorithm),
            })
        });
    }
}

/// Adds the findings, the most severe first.
fn findings(view: &View<'_>, page: &mut Page) {
    let mut all: Vec<_> = view.verdicts.iter().collect();
    all.sort_by_key(|(_, verdict)| Reverse(verdict.severity));
    for (object, verdict) in all {
        let ObjectRef { kind, key } = object;
        let severity = match verdict.severity {
            Severity::Note => "note",
            Severity::Warning => "warning",
            Severity::Rejected => "rejected",
        };
        let text = || format!("{kind} {key} {severity} {}", verdict.messages.join(" "));
        page.add(text, || {
            json!({"object": format!("{kind} {key}"), "severity": severity, "messages": verdict.messages})
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn total(search: &str, texts: &[&str]) -> usize {
        let terms = search.split_whitespace().map(str::to_lowercase).collect();
        let mut page = Page { terms, offset: 0, limit: 1, total: 0, rows: Vec::new() };
        for text in texts {
            page.add(|| (*text).to_owned(), || Value::Null);
        }
        assert!(page.rows.len() <= 1);
        page.total
    }

    #[test]
    fn a_search_finds_what_a_row_shows_in_any_order_of_its_words() {
        let rows = ["shop.test/cart Prefix shop/web cart:80", "api.test/ Prefix shop/api api:http"];
        for (search, expected) in [
            ("", 2),
            ("shop.test/cart", 1),
            ("SHOP/", 2),
            ("api:http", 1),
            ("cart shop.test", 1),
            ("cart api.test", 0),
        ] {
            assert_eq!(total(search, &rows), expected, "{search}");
        }
    }

    #[test]
    fn the_root_is_written_as_a_slash_and_empty_parts_take_no_mark() {
        assert_eq!(written(&PathPattern::prefix("/").unwrap()), ("/", "Prefix"));
        assert_eq!(written(&PathPattern::exact("/a").unwrap()), ("/a", "Exact"));
        assert_eq!(joined("web", ':', "80"), "web:80");
        assert_eq!((joined("web", ':', ""), joined("", '/', "")), ("web".into(), String::new()));
    }
}
