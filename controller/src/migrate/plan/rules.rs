//! The rules of an Ingress, by host.

use super::super::canary::{Canary, variants};
use super::super::paths::{self, RoutePath};
use super::super::{Notes, object};
use super::{Plan, Rule, Said, has_host, is_same_path};
use oxigress_objects::Key;
use oxigress_objects::ingress::Path;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

impl<'p, 'w> Plan<'p, 'w> {
    /// The hosts of an Ingress, each with its rules.
    pub(super) fn hosts(
        &mut self,
        said: &'p Said<'w>,
        notes: &mut Notes,
    ) -> BTreeMap<String, Vec<Rule>> {
        let mut hosts: BTreeMap<String, Vec<Rule>> = BTreeMap::new();
        for (r, rule) in said.ingress.rules.iter().enumerate() {
            let host = rule.host.to_ascii_lowercase();
            for (p, path) in rule.paths.iter().enumerate() {
                let field = format!("spec.rules[{r}].http.paths[{p}]");
                let rules = self.rules(said, &host, path, &field, notes);
                hosts.entry(host.clone()).or_default().extend(rules);
            }
        }
        if let Some(target) = &said.ingress.default_backend {
            let backend = paths::backend(self.world, said, target, "spec.defaultBackend", notes);
            let root = RoutePath { kind: "PathPrefix", value: "/".into() };
            let names = said.ingress.rules.iter().map(|rule| rule.host.to_ascii_lowercase());
            let names: BTreeSet<String> = match said.ingress.rules.is_empty() {
                true => [String::new()].into(),
                false => names.collect(),
            };
            for host in names.into_iter().filter(|host| !self.has_root(host)) {
                if let Some(backend) = &backend {
                    let value = rule_of(said, &root, None, Vec::new(), vec![backend.clone()]);
                    let rule = Rule { path: root.clone(), value };
                    hosts.entry(host).or_default().push(rule);
                }
            }
        }
        if let Some(app) = said.app_root {
            hosts.values_mut().for_each(|rules| self.add_app_root(said, app, rules));
        }
        let aliases: Vec<_> = hosts
            .iter()
            .flat_map(|(host, rules)| {
                let all = said.aliases.iter().filter(move |alias| *alias != host);
                all.map(|alias| (alias.clone(), rules.clone()))
            })
            .collect();
        for (alias, rules) in aliases {
            if self.said.iter().any(|other| other.key != said.key && has_host(other, &alias)) {
                notes.lost(
                    said.key,
                    format!("annotation server-alias: {alias} is a host of another Ingress"),
                );
                continue;
            }
            hosts.entry(alias).or_insert(rules);
        }
        hosts
    }

    /// The rules of one path.
    fn rules(
        &self,
        said: &Said<'w>,
        host: &str,
        path: &Path,
        field: &str,
        notes: &mut Notes,
    ) -> Vec<Rule> {
        let at = format!("{field}.backend");
        let matches = paths::matches(said, path, field, notes);
        let Some(main) = paths::backend(self.world, said, &path.target, &at, notes) else {
            return Vec::new();
        };
        let canaries = self
            .said
            .iter()
            .filter(|other| other.is_canary && other.key.namespace == said.key.namespace);
        let mut all = Vec::new();
        for canary in canaries {
            let paths =
                canary.ingress.rules.iter().filter(|rule| rule.host.eq_ignore_ascii_case(host));
            let same = paths.flat_map(|rule| &rule.paths).find(|other| is_same_path(other, path));
            let Some(same) = same else { continue };
            if let Some(backend) =
                paths::backend(self.world, canary, &same.target, "backend", notes)
            {
                all.push(Canary { said: canary, backend });
            }
        }
        if !all.is_empty() && said.policy.contains_key("affinity") {
            notes.different(
                said.key,
                format!("{field}: a client with a session may change between the main version and the canary"),
            );
        }
        let mut rules = Vec::new();
        for (path, rewrite) in matches {
            for (headers, backends) in variants(&main, &all, notes) {
                let value = rule_of(said, &path, rewrite.clone(), headers, backends);
                rules.push(Rule { path: path.clone(), value });
            }
        }
        rules
    }

    /// app-root, which is a redirect of the root alone. Its target has variables as annotations have them.
    fn add_app_root(&mut self, said: &Said<'w>, app: &str, rules: &mut Vec<Rule>) {
        let Some(first) = rules.first() else { return };
        let name = format!("{}-app-root", said.key.name);
        let key = Key::new(&said.key.namespace, name.as_str());
        let path = RoutePath { kind: "Exact", value: "/".into() };
        let value = json!({
            "matches": [{"path": path.value()}],
            "filters": [object::policy_filter(&name)],
            "backendRefs": first.value["backendRefs"],
        });
        rules.retain(|rule| rule.path != path);
        rules.push(Rule { path, value });
        if self.taken.insert(Key::new(&key.namespace, format!("Policy {name}"))) {
            let fields = Map::from_iter([("temporal-redirect".into(), json!(app))]);
            self.routes.push(object::policy(&key, fields));
        }
    }
}

fn rule_of(
    said: &Said<'_>,
    path: &RoutePath,
    rewrite: Option<Value>,
    headers: Vec<Value>,
    backends: Vec<Value>,
) -> Value {
    let mut filters = Vec::new();
    if let Some(path) = rewrite {
        filters.push(json!({"type": "URLRewrite", "urlRewrite": {"path": path}}));
    }
    if !said.policy.is_empty() {
        filters.push(object::policy_filter(&said.key.name));
    }
    let mut one = json!({"path": path.value()});
    if !headers.is_empty() {
        one["headers"] = headers.into();
    }
    let mut rule = json!({"matches": [one], "backendRefs": backends});
    if !filters.is_empty() {
        rule["filters"] = filters.into();
    }
    rule
}
