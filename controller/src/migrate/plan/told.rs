//! What is to be said of Ingresses among each other.

use super::{Notes, Plan, Said, is_same_path};
use std::collections::BTreeSet;

impl Plan<'_, '_> {
    /// Canaries of paths that no main Ingress has.
    pub(super) fn name_lone_canaries(&self, notes: &mut Notes) {
        for canary in self.said.iter().filter(|said| said.is_canary) {
            for (r, rule) in canary.ingress.rules.iter().enumerate() {
                for (p, path) in rule.paths.iter().enumerate() {
                    let mains = self.said.iter().filter(|said| {
                        !said.is_canary && said.key.namespace == canary.key.namespace
                    });
                    let rules = mains.flat_map(|said| &said.ingress.rules);
                    let mut rules = rules.filter(|main| main.host.eq_ignore_ascii_case(&rule.host));
                    let is_split =
                        rules.any(|main| main.paths.iter().any(|other| is_same_path(other, path)));
                    if !is_split {
                        notes.lost(
                            canary.key,
                            format!("spec.rules[{r}].http.paths[{p}]: no main Ingress of its namespace has the path"),
                        );
                    }
                }
            }
        }
    }

    /// Hosts that have requests of others: a less specific host takes what a route leaves.
    pub(super) fn name_overlaps(&self, notes: &mut Notes) {
        let mains: Vec<_> = self.said.iter().filter(|said| !said.is_canary).collect();
        let has_catch_all = |said: &Said<'_>| {
            said.ingress.rules.is_empty() && said.ingress.default_backend.is_some()
                || said.ingress.rules.iter().any(|rule| rule.host.is_empty())
        };
        let is_many = mains.len() > 1;
        for said in mains.iter().filter(|said| is_many && has_catch_all(said)) {
            notes.different(
                said.key,
                "its rules without a host also take what the routes of named hosts leave; of an Ingress that is 404",
            );
        }
        let stars = |said: &Said<'_>| {
            let hosts = said.ingress.rules.iter().map(|rule| rule.host.clone());
            hosts.filter(|host| host.starts_with("*.")).collect::<BTreeSet<_>>()
        };
        for said in &mains {
            for host in stars(said) {
                notes.different(
                    said.key,
                    format!("{host}: the star of a route stands for one label or more, and takes what routes of its names leave"),
                );
            }
        }
        let balancing = mains.iter().filter(|said| said.balances());
        for by in balancing {
            for other in mains.iter().filter(|other| other.key.namespace == by.key.namespace) {
                if !other.balances() && services(other).intersection(&services(by)).next().is_some()
                {
                    notes.different(
                        other.key,
                        format!("it no longer follows what Ingress {} says about balancing of the same Service", by.key),
                    );
                }
            }
        }
    }
}

/// The Services that an Ingress leads to.
fn services(said: &Said<'_>) -> BTreeSet<String> {
    use oxigress_objects::ingress::Target;
    let rules = said.ingress.rules.iter().flat_map(|rule| &rule.paths);
    let targets = rules.map(|path| &path.target).chain(&said.ingress.default_backend);
    let names = targets.filter_map(|target| match target {
        Target::Service { name, .. } => Some(name.clone()),
        Target::Resource(_) => None,
    });
    names.collect()
}
