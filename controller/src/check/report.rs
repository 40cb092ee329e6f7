//! What becomes of the objects, counted, and what needs a decision, grouped by its cause.
//!
//! Vocabulary: an object is served *as before*; *different*: than ingress-nginx serves it, or than it says; or *not
//! served*, as a whole or in part.

use super::assume::Assumed;
use super::differences::Shared;
use oxigress_objects::gateway::Route;
use oxigress_objects::verdict::Severity;
use oxigress_objects::{Key, Kind, ObjectRef, World};
use oxigress_provider::{Problem, ProblemKind};
use oxigress_translate::Translator;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What `oxigress check` reports, also as JSON.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The numbers of objects that are served, served differently and not served.
    pub summary: Summary,
    /// What manifests leave to the cluster, in sentences.
    pub assumed: Vec<String>,
    /// What needs a decision, the worst first.
    pub findings: Vec<Finding>,
}

/// How many objects there are of each outcome.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Summary {
    /// Of the kinds that are read.
    pub objects: usize,
    /// Of these, the Ingresses that are this controller's.
    pub ingresses: usize,
    /// Of these, the routes of the Gateway API.
    pub routes: usize,
    /// The Ingresses that are served as ingress-nginx serves them.
    pub as_before: usize,
    /// The Ingresses that are served, but differently.
    pub different: usize,
    /// Not served, or in part only.
    pub not_served: usize,
    /// Ingresses of other controllers, which are not counted as objects.
    pub of_other_controllers: usize,
    /// The same of Gateways.
    pub gateways_of_others: usize,
    /// The same of routes, which no Gateway of ours has.
    pub routes_of_others: usize,
    /// How many objects there are of each kind that is not read. They are not counted as objects either.
    pub not_read: BTreeMap<String, usize>,
}

/// What becomes of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ObjectOutcome {
    /// Not served, as a whole or in part: an error.
    NotServed,
    /// Served, but not as before or not as it says: a warning.
    Different,
}

/// A cause of differences or refusals, and the objects that it concerns.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// What becomes of its objects.
    pub outcome: ObjectOutcome,
    /// The cause and the remedy; names of one object stand as `…` where its objects differ in them.
    pub cause: String,
    /// The objects that the finding concerns.
    pub objects: Vec<Concerned>,
}

/// An object or a place in a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Concerned {
    /// Kind and name, or file and line.
    pub object: String,
    /// The cause and the remedy, with its own names.
    pub message: String,
}

/// Findings on their way into groups.
#[derive(Default)]
struct Groups {
    by_cause: BTreeMap<(ObjectOutcome, String), BTreeSet<Concerned>>,
    outcomes: BTreeMap<String, ObjectOutcome>,
    not_read: BTreeMap<String, usize>,
}

impl Groups {
    fn add(&mut self, outcome: ObjectOutcome, object: String, message: String) {
        let worst = self.outcomes.entry(object.clone()).or_insert(outcome);
        *worst = outcome.min(*worst);
        let key = (outcome, without_names(&message));
        self.by_cause.entry(key).or_default().insert(Concerned { object, message });
    }

    fn add_problem(&mut self, problem: &Problem) {
        let message = &problem.message;
        match &problem.kind {
            ProblemKind::OtherKind(kind) => *self.not_read.entry(kind.clone()).or_default() += 1,
            ProblemKind::UnknownField(object) => {
                let message = message.strip_prefix(&format!("{object}: ")).unwrap_or(message);
                self.add(ObjectOutcome::Different, object.to_string(), message.into());
            }
            ProblemKind::Unusable => {
                self.add(ObjectOutcome::NotServed, problem.place.to_string(), message.clone());
            }
        }
    }

    /// What there is to say about objects. Of manifests, what waits for an object that they lack is assumed to have it.
    fn add_notes(&mut self, world: &World, translator: &Translator, assumed: &mut Assumed) {
        for (object, note) in translator.notes() {
            let outcome = match note.severity {
                Severity::Rejected => ObjectOutcome::NotServed,
                Severity::Warning => ObjectOutcome::Different,
                Severity::Note => continue,
            };
            match &note.cause {
                Some(cause) if !world.has(cause) && assumed.is_of_manifests => {
                    assumed.objects.insert(cause.clone());
                }
                _ => self.add(outcome, object.to_string(), note.message.clone()),
            }
        }
    }

    /// The worst first, and what concerns most objects before the rest.
    fn into_findings(self) -> Vec<Finding> {
        let mut findings: Vec<_> = self
            .by_cause
            .into_iter()
            .map(|((outcome, cause), objects)| {
                let messages: BTreeSet<&String> = objects.iter().map(|one| &one.message).collect();
                let cause = match messages.first() {
                    Some(only) if messages.len() == 1 => (*only).clone(),
                    _ => cause,
                };
                Finding { outcome, cause, objects: objects.into_iter().collect() }
            })
            .collect();
        findings.sort_by_key(|finding| (finding.outcome, std::cmp::Reverse(finding.objects.len())));
        findings
    }

    fn count(&self, outcome: ObjectOutcome) -> usize {
        self.outcomes.values().filter(|found| **found == outcome).count()
    }
}

impl Report {
    /// Of everything that was read and translated.
    pub fn of(
        (world, problems): (&World, &[Problem]),
        translator: &mut Translator,
        prefix: &str,
        mut assumed: Assumed,
    ) -> Self {
        let mut groups = Groups::default();
        problems.iter().for_each(|problem| groups.add_problem(problem));
        groups.add_notes(world, translator, &mut assumed);
        let ours: BTreeSet<_> = translator.take_acceptances().into_keys().collect();
        let own = world.ingresses.iter().filter(|(key, _)| ours.contains(key));
        let own: Vec<_> = own.map(|(key, ingress)| (key, ingress.as_ref())).collect();
        let shared = Shared::among(own.iter().copied());
        for (key, ingress) in &own {
            let object = ObjectRef::new(Kind::Ingress, (*key).clone()).to_string();
            for message in shared.differences(world, (key, ingress), prefix) {
                groups.add(ObjectOutcome::Different, object.clone(), message);
            }
        }
        let mut objects = names_of_objects(world, assumed.is_of_manifests);
        objects.extend(groups.outcomes.keys().cloned());
        let is_others = |key: &&Key| {
            let name = ObjectRef::new(Kind::Ingress, (*key).clone()).to_string();
            !ours.contains(*key) && !groups.outcomes.contains_key(&name)
        };
        let of_other_controllers = world.ingresses.keys().filter(is_others).count();
        let api = &world.gateway_api;
        let is_unknown = |id: &ObjectRef| {
            !translator.statuses().contains_key(id)
                && !groups.outcomes.contains_key(&id.to_string())
        };
        let gateways = api.gateways.keys().map(|key| ObjectRef::new(Kind::Gateway, key.clone()));
        let gateways_of_others = gateways.filter(is_unknown).count();
        let foreign: Vec<_> = api.routes.iter().filter(|(id, _)| is_unknown(id)).collect();
        let routes_of_others = foreign.len();
        if assumed.is_of_manifests {
            assumed.without_parent = without_parent(world, &foreign);
        }
        let objects = objects.len() - of_other_controllers - gateways_of_others - routes_of_others;
        let (not_served, different) =
            (groups.count(ObjectOutcome::NotServed), groups.count(ObjectOutcome::Different));
        let summary = Summary {
            objects,
            ingresses: own.len(),
            routes: api.routes.len() - routes_of_others,
            as_before: objects.saturating_sub(not_served + different),
            different,
            not_served,
            of_other_controllers,
            gateways_of_others,
            routes_of_others,
            not_read: std::mem::take(&mut groups.not_read),
        };
        Report { summary, assumed: assumed.sentences(), findings: groups.into_findings() }
    }

    /// The summary, and what it rests on.
    pub fn without_findings(&self) -> Self {
        Report { findings: Vec::new(), ..self.clone() }
    }

    /// Nothing is left unserved, and if there are Ingresses or routes, some are ours.
    pub fn is_all_served(&self) -> bool {
        let Summary {
            not_served, ingresses, routes, of_other_controllers, routes_of_others, ..
        } = self.summary;
        not_served == 0 && (ingresses + routes > 0 || of_other_controllers + routes_of_others == 0)
    }
}

/// The Gateways and ListenerSets that routes name and the input does not have.
fn without_parent(world: &World, routes: &[(&ObjectRef, &Arc<Route>)]) -> BTreeSet<ObjectRef> {
    let parents = routes.iter().flat_map(|(id, route)| {
        let named = route.spec.parent_refs.iter();
        named.filter_map(|parent| parent.object(&id.key.namespace))
    });
    parents.filter(|parent| !world.has(parent)).collect()
}

/// Of the kinds that somebody writes. Manifests have the EndpointSlices that somebody wrote; in a cluster Kubernetes
/// makes them.
fn names_of_objects(world: &World, is_of_manifests: bool) -> BTreeSet<String> {
    let World { config_maps, ingresses, ingress_classes, namespaces, secrets, services, .. } =
        world;
    let slices = world.all_slices().filter(|_| is_of_manifests);
    let keys = [
        (Kind::ConfigMap, config_maps.keys().collect::<Vec<_>>()),
        (Kind::Ingress, ingresses.keys().collect()),
        (Kind::IngressClass, ingress_classes.keys().collect()),
        (Kind::Namespace, namespaces.keys().collect()),
        (Kind::Secret, secrets.keys().collect()),
        (Kind::Service, services.keys().collect()),
        (Kind::EndpointSlice, slices.collect()),
    ];
    let names = keys.into_iter().flat_map(|(kind, keys)| {
        keys.into_iter().map(move |key| ObjectRef::new(kind, key.clone()).to_string())
    });
    names.chain(world.gateway_api.names().iter().map(ObjectRef::to_string)).collect()
}

/// A message without what names one object, so that objects with the same cause meet: quoted texts, numbers in
/// brackets, and names of objects and hosts.
fn without_names(message: &str) -> String {
    const BEFORE_NAMES: [&str; 8] = [
        "Service",
        "Secret",
        "ConfigMap",
        "Ingress",
        "EndpointSlice",
        "Namespace",
        "host",
        "certificate",
    ];
    let mut words: Vec<String> = Vec::new();
    for word in quoted_out(message).split(' ') {
        let is_name = words.last().is_some_and(|last| BEFORE_NAMES.contains(&last.as_str()))
            && word.contains(['/', '.']);
        let end = word.trim_start_matches(|c: char| !matches!(c, ':' | ',' | ';' | ')'));
        words.push(if is_name { format!("…{end}") } else { word.to_owned() });
    }
    words.join(" ")
}

/// Quoted texts and numbers in brackets become `…`.
fn quoted_out(message: &str) -> String {
    let (mut text, mut until, mut is_escaped) = (String::new(), None, false);
    for c in message.chars() {
        match until {
            Some(_) if is_escaped => is_escaped = false,
            Some('"') if c == '\\' => is_escaped = true,
            Some(end) if c == end => {
                text.push('…');
                text.push(c);
                until = None;
            }
            Some(_) => {}
            None => {
                text.push(c);
                until = match c {
                    '"' => Some('"'),
                    '[' => Some(']'),
                    _ => None,
                };
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_about_different_objects_meet_if_their_cause_is_the_same() {
        for (a, b) in [
            (
                "Service shop/a does not exist, so requests get 503: create it or name another",
                "Service web/b.c does not exist, so requests get 503: create it or name another",
            ),
            (
                "annotation auth-type: \"x\" is not basic: correct it",
                "annotation auth-type: \"y \\\" z\" is not basic: correct it",
            ),
            ("spec.rules[0].http.paths[1].pathTyp: x", "spec.rules[7].http.paths[0].pathTyp: x"),
            (
                "spec.tls: host a.test gets the default certificate: x",
                "spec.tls: host b.test gets the default certificate: x",
            ),
        ] {
            assert_eq!(without_names(a), without_names(b));
        }
        assert_ne!(
            without_names("annotation auth-type: \"x\" is not basic"),
            without_names("annotation auth-url: \"x\" is not basic")
        );
    }
}
