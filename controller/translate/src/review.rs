//! What would become of an Ingress that is about to be created or changed, for the admission webhook.
//!
//! Shape:   the parts of the translation are asked, with the candidate in the place of its older self; nothing is kept.
//!          What of the candidate itself would be rejected is a denial. What another object may mend, and what would be
//!          served otherwise than written, is a warning: a Secret or a main Ingress may come a moment later.
//! Source:  ingress-nginx's controller, in its order of checks.
//! Rejected: translating a copy of the world, which costs in proportion to the cluster.

mod certificates;
mod hosts;
mod paths;
mod reserved;
mod routes;
mod rules;
mod sets;

use crate::Reviews;
use crate::Translator;
use crate::backend;
use crate::backend::Usage;
use crate::claim::backend_ref::BackendRef;
use crate::host::certificate;
use crate::host::merge;
use crate::host::owner::HostView;
use crate::ingress::class;
use crate::ingress::class::Choice;
use crate::ingress::inspect;
use crate::ingress::{self, Claims};
use crate::options::DEFAULT_PREFIX;
use crate::pace::price::Prices;
use crate::patterns::{self, Compiler};
use oxigress_core::model::{HostPattern, shorten};
use oxigress_core::patterns::is_plain;
use oxigress_objects::ingress::{Ingress, PathType};
use oxigress_objects::verdict::{Note, Severity};
use oxigress_objects::{Key, Kind, ObjectRef, World};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

/// Annotations that ingress-nginx once had.
const REMOVED: [&str; 6] = [
    "enable-influxdb",
    "influxdb-host",
    "influxdb-measurement",
    "influxdb-port",
    "influxdb-server-name",
    "secure-verify-ca-secret",
];
/// Most reasons and warnings of one outcome; the rest is counted.
const MAX_MESSAGES: usize = 20;
/// Most Services that are looked at: what is there to say of one is said of the first already.
const MAX_SERVICES: usize = 100;

/// An Ingress that somebody wants to create or change.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'c> {
    /// The Ingress that is reviewed.
    pub key: &'c Key,
    /// The field metadata.uid of the object.
    pub uid: &'c str,
    /// It is being deleted, and only its finalizers change.
    pub is_going: bool,
    /// The Ingress as it would be after the change.
    pub ingress: &'c Ingress,
}

/// What is said to who wants it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ReviewOutcome {
    /// Why it may not be; None: it may.
    pub denial: Option<String>,
    /// What is worth knowing, in both cases.
    pub warnings: Vec<String>,
    /// How many Ingresses were looked at, itself included; none: it is not served by this program.
    pub compared: usize,
}

/// What is said of hosts that were merged.
type Merged = BTreeMap<HostPattern, Vec<(ObjectRef, Note)>>;

impl Translator {
    /// Judges one that is not in `world` yet, or is there as it was. What it has compiled is charged to `reviews`.
    pub fn review(
        &self,
        world: &World,
        candidate: &Candidate<'_>,
        reviews: &mut Reviews,
        now: Instant,
    ) -> ReviewOutcome {
        let mut outcome = ReviewOutcome::default();
        if candidate.is_going {
            return outcome;
        }
        outcome.warnings.extend(self.removed(candidate.ingress));
        outcome.warnings.extend(unfit_paths(candidate.ingress));
        if let Err(denial) = self.check(world, candidate, &mut outcome, reviews, now) {
            outcome.denial = Some(denial);
        }
        bound(&mut outcome.warnings);
        outcome
    }

    fn check(
        &self,
        world: &World,
        candidate: &Candidate<'_>,
        outcome: &mut ReviewOutcome,
        reviews: &mut Reviews,
        now: Instant,
    ) -> Result<(), String> {
        let Candidate { key, uid, ingress, .. } = *candidate;
        if let Some(note) = inspect::refuse(&self.options, ingress) {
            return Err(format!("invalid object: {}", note.message));
        }
        match class::choose(world, &self.options, key, ingress) {
            Choice::Ours => {}
            Choice::Foreign => return Ok(()),
            Choice::Nobodys(note) => {
                outcome.warnings.push(note.message);
                return Ok(());
            }
        }
        outcome.compared = 1;
        if let Some(note) = ingress::refuse_catch_all(&self.options, ingress) {
            return Err(note.message);
        }
        if !is_uuid(uid) {
            return Err(format!("metadata.uid: {:?} is not a UUID", shorten(uid)));
        }
        self.check_settings(ingress).and_then(|()| self.check_paths(world, key, ingress))?;
        let parsed = self.read_candidate(world, (key, ingress), reviews, now)?;
        let merging = Prices { translator: self, world }.of_merging(key, ingress);
        if merging > 0 {
            reviews.charge(merging);
        }
        if let Some(unchecked) = reviews.refusal() {
            outcome.warnings.push(unchecked);
            return self.check_names(world, ingress, parsed.claims.as_ref(), outcome);
        }
        let (own, others): (Vec<Note>, Vec<Note>) = parsed
            .notes
            .into_iter()
            .partition(|note| note.severity == Severity::Rejected && note.cause.is_none());
        outcome.warnings.extend(others.into_iter().filter_map(|note| warning(world, note)));
        deny(own.into_iter().map(|note| note.message))?;
        let Some(claims) = parsed.claims else { return Ok(()) };
        self.check_overlap(world, ingress, &claims, outcome)?;
        let alone = self.merge_alone(&claims);
        deny(of_severity(&alone, Severity::Rejected))?;
        let (ignored, merged) = self.check_ownership(&claims, true);
        deny(of_severity(&ignored, Severity::Rejected))?;
        outcome.warnings.extend(ignored.into_iter().map(|note| note.message));
        if !self.options.disable_full_test {
            let more = self.merge_among_others(world, &claims, merged);
            let said: BTreeSet<&Note> = alone.iter().collect();
            outcome.warnings.extend(
                more.iter().filter(|note| !said.contains(note)).map(|note| note.message.clone()),
            );
        }
        outcome.warnings.extend(of_severity(&alone, Severity::Warning));
        Ok(())
    }

    /// Compares names without compiling or merging anything: a namespace that spends its budget takes nothing of another one.
    fn check_names(
        &self,
        world: &World,
        ingress: &Ingress,
        claims: Option<&Claims>,
        outcome: &mut ReviewOutcome,
    ) -> Result<(), String> {
        let Some(claims) = claims else { return Ok(()) };
        self.check_overlap(world, ingress, claims, outcome)?;
        let (ignored, _) = self.check_ownership(claims, false);
        deny(of_severity(&ignored, Severity::Rejected))
    }

    /// What it would claim. Patterns beyond what its namespace may have reviewed are not compiled, which `reviews` tells.
    fn read_candidate(
        &self,
        world: &World,
        (key, ingress): (&Key, &Ingress),
        reviews: &mut Reviews,
        now: Instant,
    ) -> Result<ingress::Parsed, String> {
        reviews.begin(&key.namespace, now);
        let prefix = &self.options.annotations_prefix;
        let price = patterns::budget::price_by(ingress, prefix, |meaning, text| {
            reviews.price(meaning, text)
        });
        if let Some(other) = self.pattern_budget.pushed_out(key, ingress.created, price) {
            return Err(format!(
                "with it the regular expressions of namespace {} take too long to compile together, and those of the newer \
                 Ingress {} would not be served: use fewer or simpler ones, or move Ingresses to another namespace",
                key.namespace, other.name
            ));
        }
        let compiler = match self.pattern_budget.would_be_over(key, ingress.created, price) {
            true => Compiler::over_budget(),
            false => {
                Compiler::new(self.claims.get(key).into_iter().flat_map(|old| old.expressions()))
            }
        };
        let compiler = compiler.reviewing(reviews);
        let object = (key, ingress);
        Ok(ingress::parse(world, &self.options, &self.settings, object, compiler))
    }

    fn removed<'i>(&'i self, ingress: &'i Ingress) -> impl Iterator<Item = String> + 'i {
        let is_removed = |key: &&String| {
            let name = key.strip_prefix(&self.options.annotations_prefix);
            name.and_then(|rest| rest.strip_prefix('/')).is_some_and(|name| REMOVED.contains(&name))
        };
        let removed = ingress.annotations.keys().filter(is_removed);
        removed.map(|key| format!("annotation {key} has no effect any more: remove it"))
    }

    fn check_settings(&self, ingress: &Ingress) -> Result<(), String> {
        let settings = &self.settings.admission;
        if settings.strict_path_type {
            deny(unfit_paths(ingress))?;
        }
        let prefix = &self.options.annotations_prefix;
        for (key, value) in &ingress.annotations {
            let is_below =
                |prefix: &str| key.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('/'));
            if prefix != DEFAULT_PREFIX && is_below(DEFAULT_PREFIX) {
                return Err(format!(
                    "annotation {key}: the controller runs with --annotations-prefix={prefix}: write {prefix}/ in \
                     place of {DEFAULT_PREFIX}/"
                ));
            }
            let mut blocked = settings.blocked_words.iter();
            if is_below(prefix)
                && let Some(word) = blocked.find(|word| value.contains(word.as_str()))
            {
                return Err(format!(
                    "annotation {key} contains {word:?}, which annotation-value-word-blocklist of the ConfigMap refuses"
                ));
            }
            if !settings.allows_snippets && key.ends_with("-snippet") {
                return Err(format!(
                    "annotation {key}: snippets are refused (allow-snippet-annotations of the ConfigMap), and never \
                     passed to nginx: use annotations for what it is about"
                ));
            }
        }
        Ok(())
    }

    /// What would be said of it if it were the only one.
    fn merge_alone(&self, claims: &Claims) -> Vec<Note> {
        // A canary is nothing without its main Ingress.
        if claims.canary().is_some() {
            return Vec::new();
        }
        let alone = HostView::of_claims(self.options.host_ownership, &[claims], None);
        let notes_of = |host| about(&claims.key, self.merge_one(host, &alone).notes);
        claims.hosts.keys().flat_map(notes_of).collect()
    }

    fn merge_one(&self, host: &HostPattern, view: &HostView<'_>) -> merge::MergedHost {
        // Who says what about balancing is as it is now: it decides nothing that is said here.
        let Translator { settings, common, spec_owners, options, .. } = self;
        let options = (options, self.unnamed_route.as_ref());
        merge::merge(host, host, view, (settings, common), spec_owners, options)
    }

    /// What others have to do with it: those on its hosts, its Services, its certificates.
    fn merge_among_others(&self, world: &World, claims: &Claims, mut merged: Merged) -> Vec<Note> {
        let mut notes = Vec::new();
        for host in claims.hosts.keys() {
            let all = self.claims_among(host, claims);
            let view = HostView::of_claims(
                self.options.host_ownership,
                &all,
                self.gateway_claims.get(host),
            );
            let merged = merged.remove(host);
            let merged = merged.unwrap_or_else(|| self.merge_one(host, &view).notes);
            notes.extend(about(&claims.key, merged));
            let chosen = certificate::choose(world, &self.options, host, &view.owner);
            // A Secret that nobody named yet may only not have been read yet.
            if chosen.secrets.iter().all(|secret| world.secrets.contains_key(secret)) {
                notes.extend(about(&claims.key, chosen.notes));
            }
        }
        let paths = claims.hosts.values().flat_map(|claims| claims.iter());
        let backend_refs = paths.filter_map(|claim| claim.backend_ref.as_ref());
        let backend_refs: BTreeSet<&BackendRef> =
            backend_refs.chain(&claims.default_backend).collect();
        for backend_ref in backend_refs.into_iter().take(MAX_SERVICES) {
            let usage = Usage::Http { service_upstream: false };
            let lack = backend::missing(world, &self.options, backend_ref, usage);
            let lack = lack.map(|lack| lack.note("requests get 503"));
            // Endpoints are ready a while after everything is created.
            notes.extend(lack.filter(|note| note.severity == Severity::Rejected));
        }
        notes.retain(|note| note.severity >= Severity::Warning);
        notes
    }
}

/// What is said of one that is admitted all the same.
fn warning(world: &World, note: Note) -> Option<String> {
    let is_known = note.cause.as_ref().is_none_or(|object| world.has(object));
    (note.severity >= Severity::Warning && is_known).then_some(note.message)
}

fn about(key: &Key, notes: Vec<(ObjectRef, Note)>) -> Vec<Note> {
    let is_it = |object: &ObjectRef| object.kind == Kind::Ingress && object.key == *key;
    notes.into_iter().filter(|(object, _)| is_it(object)).map(|(_, note)| note).collect()
}

fn of_severity(notes: &[Note], severity: Severity) -> impl Iterator<Item = String> + '_ {
    notes.iter().filter(move |note| note.severity == severity).map(|note| note.message.clone())
}

/// Paths that are no plain text, which only ImplementationSpecific is for.
fn unfit_paths(ingress: &Ingress) -> impl Iterator<Item = String> + '_ {
    let paths = ingress
        .rules
        .iter()
        .enumerate()
        .flat_map(|(r, rule)| rule.paths.iter().enumerate().map(move |(p, path)| (r, p, path)));
    let is_unfit = |path: &str| !(path.is_empty() || path.starts_with('/') && is_plain(path));
    let unfit = paths.filter(move |(_, _, path)| {
        path.path_type != PathType::ImplementationSpecific && is_unfit(&path.path)
    });
    unfit.map(|(r, p, path)| {
        format!(
            "spec.rules[{r}].http.paths[{p}].path: {:?} cannot be used with pathType {:?}: use `/`, letters, digits and \
             `._-`, or pathType ImplementationSpecific",
            shorten(&path.path),
            path.path_type
        )
    })
}

/// As the API server writes them.
fn is_uuid(text: &str) -> bool {
    let is_right = |(at, byte): (usize, u8)| match at {
        8 | 13 | 18 | 23 => byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    };
    text.len() == 36 && text.bytes().enumerate().all(is_right)
}

fn deny(reasons: impl Iterator<Item = String>) -> Result<(), String> {
    let mut reasons: Vec<String> = reasons.collect();
    bound(&mut reasons);
    if reasons.is_empty() { Ok(()) } else { Err(reasons.join("; ")) }
}

/// Each once, and not too many.
fn bound(messages: &mut Vec<String>) {
    let mut seen = BTreeSet::new();
    messages.retain(|message| seen.insert(message.clone()));
    let unsaid = messages.len().saturating_sub(MAX_MESSAGES);
    if unsaid > 0 {
        messages.truncate(MAX_MESSAGES);
        messages.push(format!("and {unsaid} more of the kind"));
    }
}

#[cfg(test)]
mod tests;
