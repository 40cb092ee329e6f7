//! The claims on one host to its rules: the oldest claim to a path wins, canaries join the winner.
//!
//! Source:  compat/controller.md §2, annotations.md §6. Order: creationTimestamp, then namespace and name,
//!          both ascending (security.md §2; the reference sorts equal timestamps descending).

use super::ingress::{Claim, Claims, Leads};
use super::plan::{self, Lead, Own, Plan, Speakers};
use super::settings::Settings;
use crate::verdict::Note;
use crate::world::{Key, Kind, ObjectRef};
use oxigress_core::model::{
    BackendId, HostPattern, HttpsRedirect, MAX_ALTERNATIVES, MAX_RULES, PathPattern, Policy, Rule,
    Server,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What becomes of one host.
#[derive(Debug, Default)]
pub struct Settled {
    /// Its rules; None if only canaries claim it.
    pub server: Option<Server>,
    /// Where its TLS connections go unread.
    pub passthrough: Option<BackendId>,
    /// Which backends its rules lead to.
    pub leads: BTreeSet<Lead>,
    /// What makes these backends.
    pub plans: BTreeMap<BackendId, Plan>,
    /// What there is to say to those who lost.
    pub notes: Vec<(ObjectRef, Note)>,
}

/// `claims` in their order, oldest first.
pub fn settle(
    host: &HostPattern,
    claims: &[&Claims],
    settings: &Settings,
    speakers: &Speakers,
    is_passthrough_on: bool,
) -> Settled {
    let (canaries, mains): (Vec<&Claims>, Vec<&Claims>) =
        claims.iter().partition(|by| by.canary().is_some());
    let mut settling = Settling {
        settled: Settled::default(),
        host,
        winners: BTreeMap::new(),
        settings,
        speakers,
    };
    for by in &mains {
        for claim in by.hosts.get(host).into_iter().flatten() {
            settling.claim(by, claim);
        }
    }
    if let Some(first) = mains.first() {
        settling.complete(first, &mains);
    }
    for by in canaries {
        for claim in by.hosts.get(host).into_iter().flatten() {
            settling.join(by, claim);
        }
    }
    if is_passthrough_on {
        settling.pass_through(&mains);
    }
    settling.finish(!mains.is_empty())
}

fn root() -> PathPattern {
    PathPattern::Prefix(String::new())
}

struct Settling<'a> {
    settled: Settled,
    host: &'a HostPattern,
    winners: BTreeMap<PathPattern, Winner<'a>>,
    settings: &'a Settings,
    speakers: &'a Speakers,
}

/// Who has a path, and the canaries that joined.
struct Winner<'a> {
    by: &'a Claims,
    leads: Option<&'a Leads>,
    path: &'a str,
    policy: Policy,
    canaries: Vec<(&'a Claims, &'a Leads)>,
    /// The whole host is closed.
    closer: Option<&'a Claims>,
}

impl<'a> Settling<'a> {
    fn claim(&mut self, by: &'a Claims, claim: &'a Claim) {
        let place = self.place(&claim.pattern);
        if let Some(winner) = self.winners.get(&claim.pattern) {
            let message = match winner.by.key == by.key {
                true => format!("{place} stands twice, the first one is served: remove the other"),
                false => format!(
                    "{place} is served by Ingress {}, which is older or first by name: remove one \
                     of both",
                    winner.by.key
                ),
            };
            return self.say(by, Note::rejected(message));
        }
        // One place is kept for the root.
        if self.winners.len() + 1 >= MAX_RULES && claim.pattern != root() {
            let message = format!("{place} is not served: at most {MAX_RULES} paths in one host");
            return self.say(by, Note::rejected(message));
        }
        let policy = by.policy(&claim.path, self.settings);
        self.insert(by, claim.pattern.clone(), Some(&claim.leads), &claim.path, policy);
    }

    /// The root, which every host has, and what holds for the whole host.
    fn complete(&mut self, first: &'a Claims, mains: &[&'a Claims]) {
        if *self.host == HostPattern::default_host() {
            for by in mains.iter().filter(|by| by.is_catch_all) {
                self.catch_all(by);
            }
        } else if !self.winners.contains_key(&root()) {
            // With the policies of the host's first Ingress: what nothing else takes is redirected,
            // closed or sent on as that one says.
            let policy = first.policy("/", self.settings);
            self.insert(first, root(), first.default_backend.as_ref(), "/", policy);
        }
        if let Some(by) = mains.iter().find(|by| by.closes_host()) {
            self.close(by);
        }
    }

    fn catch_all(&mut self, by: &'a Claims) {
        if let Some(winner) = self.winners.get(&root()) {
            let message = format!(
                "spec.defaultBackend: requests that no host takes go to Ingress {}, which claims \
                 path / or is older: remove one of both",
                winner.by.key
            );
            return self.say(by, Note::rejected(message));
        }
        if let Some(leads) = &by.default_backend {
            // The reference applies no redirect to this root.
            let policy = Policy { https_redirect: HttpsRedirect::Never };
            self.insert(by, root(), Some(leads), "/", policy);
        }
    }

    fn insert(
        &mut self,
        by: &'a Claims,
        pattern: PathPattern,
        leads: Option<&'a Leads>,
        path: &'a str,
        policy: Policy,
    ) {
        let winner = Winner { by, leads, path, policy, canaries: Vec::new(), closer: None };
        self.winners.insert(pattern, winner);
    }

    /// A client-certificate rule holds for the whole host; while it cannot be honoured, nothing of the
    /// host is open.
    fn close(&mut self, by: &'a Claims) {
        let mut told = BTreeSet::new();
        if !self.winners.contains_key(&root()) {
            self.insert(by, root(), None, "/", Policy::default());
        }
        for winner in self.winners.values_mut() {
            winner.closer = Some(by);
            if winner.by.key != by.key && told.insert(winner.by.key.clone()) {
                let message = format!(
                    "host is closed by the auth-tls annotations of Ingress {}, which are not \
                     supported yet: its locations answer 503",
                    by.key
                );
                let object = ObjectRef::new(Kind::Ingress, winner.by.key.clone());
                self.settled.notes.push((object, Note::rejected(message)));
            }
        }
    }

    /// A canary takes a part of the requests of a path that somebody has.
    fn join(&mut self, by: &'a Claims, claim: &'a Claim) {
        let place = self.place(&claim.pattern);
        let refuse = |why: &str| Note::rejected(format!("canary: {place} {why}"));
        let Some(winner) = self.winners.get_mut(&claim.pattern).filter(|w| w.leads.is_some())
        else {
            let why = "has no main Ingress with this pathType, so no request goes to the canary: \
                       create one";
            return self.say(by, refuse(why));
        };
        let service = (&claim.leads.service, &claim.leads.port);
        let refused = if winner.canaries.iter().any(|(other, _)| other.key == by.key) {
            refuse("stands twice, the first one is served: remove the other")
        } else if winner.leads.is_some_and(|leads| (&leads.service, &leads.port) == service) {
            refuse("leads to the same Service and port as the main Ingress: name another")
        } else if winner.canaries.len() == MAX_ALTERNATIVES {
            refuse(&format!("has {MAX_ALTERNATIVES} older canaries already: remove some"))
        } else {
            return winner.canaries.push((by, &claim.leads));
        };
        self.say(by, refused);
    }

    /// Only who has the root decides: passing TLS through takes away what protects its paths.
    fn pass_through(&mut self, mains: &[&'a Claims]) {
        let host = self.host;
        let refuse =
            |why: String| Note::rejected(format!("annotation ssl-passthrough: host {host}: {why}"));
        for by in mains.iter().filter(|by| by.ssl_passthrough()) {
            let note = match self.winners.get(&root()) {
                _ if *host == HostPattern::default_host() => refuse(
                    "TLS connections are told apart by their host: name one in spec.rules".into(),
                ),
                Some(winner) if winner.by.key != by.key => refuse(format!(
                    "path / belongs to Ingress {}, which alone can pass TLS through: annotate that \
                     one",
                    winner.by.key
                )),
                Some(Winner { leads: Some(leads), by, closer: None, .. }) if !by.is_closed() => {
                    let (leads, by) = (*leads, *by);
                    let (id, plan) = self.base(by, leads);
                    self.lead(id.clone(), plan, by, "");
                    self.settled.passthrough = Some(id);
                    continue;
                }
                Some(Winner { leads: Some(_), .. }) => refuse("its locations are closed".into()),
                _ => refuse("path / leads to no Service: add one".into()),
            };
            self.say(by, note);
        }
    }

    fn finish(mut self, is_served: bool) -> Settled {
        let winners = std::mem::take(&mut self.winners);
        let rules = winners.iter().map(|(pattern, winner)| {
            let backend = match (winner.closer.unwrap_or(winner.by), winner.leads) {
                (by, _) if by.is_closed() => Some(by.closed_backend()),
                (by, Some(leads)) => Some(self.backend(by, leads, winner)),
                (_, None) => None,
            };
            let origin = winner.by.origin(winner.leads, winner.path);
            let policy = winner.policy.clone();
            Rule { path: pattern.clone(), backend, origin, policy, policies: None }
        });
        let rules = rules.collect();
        self.name_paths_without_canary(&winners);
        self.settled.server = is_served.then_some(Server { rules });
        self.settled
    }

    /// The backend of one rule.
    fn backend(&mut self, by: &'a Claims, leads: &'a Leads, winner: &Winner<'a>) -> BackendId {
        let (base, plan) = self.base(by, leads);
        let gives_cookie = by.balancing().is_some_and(|word| word.affinity.is_some());
        let path = if gives_cookie { winner.path } else { "" };
        let balancing = self.speakers.balancing_of(&base, &plan);
        let mut alternatives = Vec::new();
        for (canary, to) in &winner.canaries {
            let Some(rules) = canary.canary() else { continue };
            let affinity = balancing.affinity.clone().filter(|_| rules.is_sticky);
            let mut id = format!("{}//canary/{}", to.backend, canary.key.name);
            if affinity.is_some() {
                id = format!("{id}//{base}");
            }
            let id = match BackendId::parse(id) {
                Ok(id) => id,
                Err(why) => {
                    self.say(canary, Note::rejected(format!("canary: {why}: use shorter names")));
                    continue;
                }
            };
            let path = if affinity.is_some() { path } else { "" };
            let mut own = canary.balancing().map(|word| (**word).clone()).unwrap_or_default();
            own.affinity = affinity;
            let own = Own {
                balancing: Arc::new(own),
                split: Some(rules.split.clone()),
                ..Own::default()
            };
            self.lead(id.clone(), Plan::own(to, own), canary, path);
            alternatives.push(id);
        }
        let (id, plan) = match plan::split(&base, &alternatives) {
            _ if alternatives.is_empty() => (base, plan),
            Ok(id) => (id, Plan::own(leads, Own { balancing, alternatives, split: None })),
            Err(why) => {
                self.say(
                    by,
                    Note::warning(format!("no canary has a part: {why}: use shorter names")),
                );
                (base, plan)
            }
        };
        self.lead(id.clone(), plan, by, path);
        id
    }

    /// The backend of a Service's port for one Ingress, without canaries.
    fn base(&mut self, by: &'a Claims, leads: &Leads) -> (BackendId, Plan) {
        self.speakers.backend_of(by, leads).unwrap_or_else(|why| {
            self.say(by, Note::warning(format!(
                "its balancing annotations have no effect for Service {}: {why}: use shorter names",
                leads.service
            )));
            (leads.backend.clone(), Plan::shared(leads))
        })
    }

    fn lead(&mut self, backend: BackendId, plan: Plan, by: &Claims, path: &str) {
        self.settled.plans.insert(backend.clone(), plan);
        self.settled.leads.insert(Lead { backend, ingress: by.key.clone(), path: path.into() });
    }

    /// Where the reference would send a part of the requests to a canary that claims another path.
    fn name_paths_without_canary(&mut self, winners: &BTreeMap<PathPattern, Winner<'a>>) {
        let mut canaries: BTreeMap<&BackendId, BTreeMap<&Key, &Claims>> = BTreeMap::new();
        for winner in winners.values() {
            let Some(leads) = winner.leads else { continue };
            for (by, _) in &winner.canaries {
                canaries.entry(&leads.backend).or_default().insert(&by.key, by);
            }
        }
        for (pattern, winner) in winners {
            let Some(leads) = winner.leads else { continue };
            for by in canaries.get(&leads.backend).into_iter().flat_map(BTreeMap::values) {
                if winner.canaries.iter().any(|(here, _)| here.key == by.key) {
                    continue;
                }
                let message = format!(
                    "canary: {} leads to Service {} too and is not split, since the canary does not \
                     claim it; ingress-nginx splits it: add the path if that is meant",
                    self.place(pattern),
                    leads.service
                );
                self.say(by, Note::remark(message));
            }
        }
    }

    fn place(&self, pattern: &PathPattern) -> String {
        match self.host.as_str() {
            HostPattern::DEFAULT => format!("path {pattern}"),
            host => format!("host {host} path {pattern}"),
        }
    }

    fn say(&mut self, to: &Claims, note: Note) {
        self.settled.notes.push((ObjectRef::new(Kind::Ingress, to.key.clone()), note));
    }
}
