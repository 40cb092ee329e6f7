//! The claims on one host to its rules: the oldest claim to a path wins.
//!
//! Source:  compat/controller.md §2. Order: creationTimestamp, then namespace and name, both ascending
//!          (security.md §2; the reference sorts equal timestamps descending).

use super::ingress::{Claim, Claims, Leads};
use super::settings::Settings;
use crate::verdict::Note;
use crate::world::{Key, Kind, ObjectRef};
use oxigress_core::model::{
    BackendId, HostPattern, HttpsRedirect, MAX_RULES, PathPattern, Policy, Rule, Server,
};
use std::collections::{BTreeMap, BTreeSet};

/// What becomes of one host.
#[derive(Debug, Default)]
pub struct Settled {
    /// Its rules.
    pub server: Server,
    /// Which backends its rules lead to, and the Ingress that says so.
    pub leads: BTreeSet<(BackendId, Key)>,
    /// The same backends as Services and ports.
    pub backends: BTreeMap<BackendId, Leads>,
    /// What there is to say to those who lost.
    pub notes: Vec<(ObjectRef, Note)>,
}

/// `claims` in their order, oldest first.
pub fn settle(host: &HostPattern, claims: &[&Claims], settings: &Settings) -> Settled {
    let mut settling = Settling { settled: Settled::default(), rules: BTreeMap::new(), settings };
    let Some(first) = claims.first() else { return settling.settled };
    for by in claims {
        for claim in by.hosts.get(host).into_iter().flatten() {
            settling.claim(host, by, claim);
        }
    }
    if *host == HostPattern::default_host() {
        for by in claims.iter().filter(|by| by.is_catch_all) {
            settling.catch_all(by);
        }
    } else if !settling.rules.contains_key(&root()) {
        // Every host has a root, with the policies of its first Ingress: what nothing else takes is
        // redirected, closed or sent on as that one says.
        let leads = first.default_backend.as_ref();
        let policy = first.policy("/", settings);
        settling.insert(first, root(), leads, "/", policy);
    }
    if let Some(by) = claims.iter().find(|by| by.closes_host()) {
        settling.close(by);
    }
    let Settling { mut settled, rules, .. } = settling;
    settled.server.rules = rules.into_values().map(|(rule, _)| rule).collect();
    settled
}

fn root() -> PathPattern {
    PathPattern::Prefix(String::new())
}

struct Settling<'a> {
    settled: Settled,
    rules: BTreeMap<PathPattern, (Rule, Key)>,
    settings: &'a Settings,
}

impl Settling<'_> {
    fn claim(&mut self, host: &HostPattern, by: &Claims, claim: &Claim) {
        let place = match host.as_str() {
            HostPattern::DEFAULT => format!("path {}", claim.pattern),
            host => format!("host {host} path {}", claim.pattern),
        };
        if let Some((_, winner)) = self.rules.get(&claim.pattern) {
            let message = match *winner == by.key {
                true => format!("{place} stands twice, the first one is served: remove the other"),
                false => format!(
                    "{place} is served by Ingress {winner}, which is older or first by name: remove \
                     one of both"
                ),
            };
            return self.say(by, Note::rejected(message));
        }
        // One place is kept for the root.
        if self.rules.len() + 1 >= MAX_RULES && claim.pattern != root() {
            let message = format!("{place} is not served: at most {MAX_RULES} paths in one host");
            return self.say(by, Note::rejected(message));
        }
        let policy = by.policy(&claim.path, self.settings);
        self.insert(by, claim.pattern.clone(), Some(&claim.leads), &claim.path, policy);
    }

    fn catch_all(&mut self, by: &Claims) {
        if let Some((_, winner)) = self.rules.get(&root()) {
            let message = format!(
                "spec.defaultBackend: requests that no host takes go to Ingress {winner}, which claims \
                 path / or is older: remove one of both"
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
        by: &Claims,
        pattern: PathPattern,
        leads: Option<&Leads>,
        path: &str,
        policy: Policy,
    ) {
        let backend = match leads {
            Some(leads) => Some(by.backend(leads)),
            None if by.is_closed() => Some(by.closed_backend()),
            None => None,
        };
        if let Some(leads) = leads.filter(|_| !by.is_closed()) {
            self.settled.leads.insert((leads.backend.clone(), by.key.clone()));
            self.settled.backends.insert(leads.backend.clone(), leads.clone());
        }
        let rule = Rule { path: pattern.clone(), backend, origin: by.origin(leads, path), policy };
        self.rules.insert(pattern, (rule, by.key.clone()));
    }

    /// A client-certificate rule holds for the whole host; while it cannot be honoured, nothing of the
    /// host is open.
    fn close(&mut self, by: &Claims) {
        let mut told = BTreeSet::new();
        if !self.rules.contains_key(&root()) {
            self.insert(by, root(), None, "/", Policy::default());
        }
        for (rule, owner) in self.rules.values_mut() {
            rule.backend = Some(by.closed_backend());
            if *owner != by.key && told.insert(owner.clone()) {
                let message = format!(
                    "host is closed by the auth-tls annotations of Ingress {}, which are not \
                     supported yet: its locations answer 503",
                    by.key
                );
                let object = ObjectRef::new(Kind::Ingress, owner.clone());
                self.settled.notes.push((object, Note::rejected(message)));
            }
        }
        self.settled.leads.clear();
        self.settled.backends.clear();
    }

    fn say(&mut self, to: &Claims, note: Note) {
        self.settled.notes.push((ObjectRef::new(Kind::Ingress, to.key.clone()), note));
    }
}
