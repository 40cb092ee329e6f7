//! The rules of an Ingress, by host.

use super::super::canary::{Canary, variants};
use super::super::hosts;
use super::super::paths::{self, RoutePath};
use super::super::{Notes, object};
use super::{Plan, Rule, Said, is_same_path};
use oxigress_core::model::HostPattern;
use oxigress_objects::Key;
use oxigress_objects::ingress::Path;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

#[cfg(test)]
thread_local! {
    /// How often the rules of a host were copied for an alias.
    pub static COPIES: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// The rules of hosts.
type HostRules = BTreeMap<HostPattern, Vec<Rule>>;

impl<'p, 'w> Plan<'p, 'w> {
    /// The hosts of an Ingress, each with its rules: those that are served now.
    pub(super) fn hosts(&mut self, said: &'p Said<'w>, notes: &mut Notes) -> HostRules {
        let mut all = HostRules::new();
        for (r, rule) in said.ingress.rules.iter().enumerate() {
            let Some(host) = hosts::parse(&rule.host) else {
                notes.lost(said.key, format!("spec.rules[{r}].host: {:?} is no host", rule.host));
                continue;
            };
            if let Some(why) = self.hosts.refusal(&host) {
                notes.lost(said.key, format!("spec.rules[{r}]: {why}"));
                continue;
            }
            for (p, path) in rule.paths.iter().enumerate() {
                let field = format!("spec.rules[{r}].http.paths[{p}]");
                if let Some(why) = self.hosts.refusal_of(said.key, &host, path) {
                    notes.lost(said.key, format!("{field}: {why}"));
                    continue;
                }
                let rules = self.rules(said, &host, path, &field, notes);
                all.entry(host.clone()).or_default().extend(rules);
            }
        }
        self.add_default_backend(said, &mut all, notes);
        self.add_app_roots(said, &mut all, notes);
        self.add_aliases(&mut all);
        all
    }

    /// The root of hosts where no path is the root.
    fn add_default_backend(&self, said: &Said<'w>, all: &mut HostRules, notes: &mut Notes) {
        let Some(target) = &said.ingress.default_backend else { return };
        let backend = paths::backend(self.world, said, target, "spec.defaultBackend", notes);
        let Some(backend) = backend else { return };
        let mut named = said.hosts();
        if said.ingress.rules.is_empty() {
            named.insert(HostPattern::default_host());
        }
        let root = RoutePath { kind: "PathPrefix", value: "/".into() };
        for host in named {
            let root_by = self.hosts.of(&host).root_by.as_ref();
            if root_by == Some(said.key) && self.hosts.refusal(&host).is_none() {
                let value = rule_of(said, &root, None, Vec::new(), vec![backend.clone()]);
                all.entry(host).or_default().push(Rule { path: root.clone(), value });
            } else if let Some(whose) = self.hosts.whose(&host, &said.key.namespace) {
                notes.lost(said.key, format!("spec.defaultBackend: {whose}"));
            }
        }
    }

    /// Each alias follows one host, whose rules it has.
    fn add_aliases(&self, all: &mut HostRules) {
        let mut copies = Vec::new();
        for (host, rules) in all.iter() {
            for alias in &self.hosts.of(host).aliases {
                #[cfg(test)]
                COPIES.set(COPIES.get() + 1);
                copies.push((alias.clone(), rules.clone()));
            }
        }
        for (alias, rules) in copies {
            all.entry(alias).or_insert(rules);
        }
    }

    /// The rules of one path.
    fn rules(
        &self,
        said: &Said<'w>,
        host: &HostPattern,
        path: &Path,
        field: &str,
        notes: &mut Notes,
    ) -> Vec<Rule> {
        let at = format!("{field}.backend");
        let matches = paths::matches(said, path, field, notes);
        let Some(main) = paths::backend(self.world, said, &path.target, &at, notes) else {
            return Vec::new();
        };
        let canaries = self.canaries.get(&(&said.key.namespace, host.clone()));
        let mut all = Vec::new();
        for canary in canaries.into_iter().flatten() {
            let paths = canary.ingress.rules.iter().filter(|rule| is_of(&rule.host, host));
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
    fn add_app_roots(&mut self, said: &Said<'_>, all: &mut HostRules, notes: &mut Notes) {
        let Some(app) = said.app_root else { return };
        let name = format!("{}-app-root", said.key.name);
        let path = RoutePath { kind: "Exact", value: "/".into() };
        for host in said.hosts() {
            if self.hosts.of(&host).app_root_by.as_ref() != Some(said.key) {
                continue;
            }
            let rules = all.get_mut(&host).filter(|rules| !rules.is_empty());
            let Some(rules) = rules else {
                let host = hosts::words(&host);
                let why = "no route has a path of this Ingress";
                notes.lost(said.key, format!("annotation app-root: {host}: {why}"));
                continue;
            };
            let value = json!({
                "matches": [{"path": path.value()}],
                "filters": [object::policy_filter(&name)],
                "backendRefs": rules.first().map(|rule| rule.value["backendRefs"].clone()),
            });
            rules.retain(|rule| rule.path != path);
            rules.push(Rule { path: path.clone(), value });
            let key = Key::new(&said.key.namespace, name.as_str());
            if self.taken.insert(Key::new(&key.namespace, format!("Policy {name}"))) {
                let fields = Map::from_iter([("temporal-redirect".into(), json!(app))]);
                self.policies.push(object::policy(&key, fields));
            }
        }
    }
}

/// Whether a rule of an Ingress is about a host.
fn is_of(written: &str, host: &HostPattern) -> bool {
    let written = if written.is_empty() { HostPattern::DEFAULT } else { written };
    written.trim_end_matches('.').eq_ignore_ascii_case(host.as_str())
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
