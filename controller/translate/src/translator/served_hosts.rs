//! What the Ingresses of each host came to: whose it is, whose settings hold for it, which of its paths are served.
//!
//! Shape:   for those who make other objects of Ingresses. They print what is served, and nothing that was ignored or refused.

use crate::Translator;
use crate::host::certificate;
use crate::host::merge::root;
use crate::host::owner::{HostView, ServedFrom};
use crate::ingress::{Claim, Claims, is_of_closed};
use oxigress_core::model::{HostPattern, PathPattern, Rule};
use oxigress_objects::{Key, Kind};
use std::collections::{BTreeMap, BTreeSet};

/// What the Ingresses of one host came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServedHost {
    /// The oldest object that names the host, and its kind; where hosts have owners, its namespace is the owner.
    pub oldest: Option<(Kind, Key)>,
    /// The Ingresses whose settings of the whole host hold, oldest first.
    pub settled_by: Vec<Key>,
    /// The Ingress whose app-root holds.
    pub app_root_by: Option<Key>,
    /// The host that is served in place of this one.
    pub follows: Option<Follows>,
    /// The hosts that have all paths of this one.
    pub aliases: Vec<HostPattern>,
    /// The Ingress that has the root where no path is the root.
    pub root_by: Option<Key>,
    /// All its requests are taken: it has a root that leads to a Service.
    pub has_root: bool,
    /// The Ingresses of which a path is served.
    pub served_by: BTreeSet<Key>,
    /// The Secret whose certificate is shown for the host itself.
    pub secret: Option<Key>,
    /// The certificate of the wildcard above the host is shown, if there is one.
    pub inherits_certificate: bool,
    settlers: BTreeSet<Key>,
    paths: BTreeMap<IngressPath, PathOutcome>,
}

/// Another host that is served in place of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Follows {
    /// The other host.
    pub host: HostPattern,
    /// The Ingress that says so.
    pub by: Key,
    /// Clients are sent there; else it has the same paths.
    pub is_redirected: bool,
}

/// A path as an Ingress writes it: of two that mean the same, each has an outcome.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct IngressPath {
    by: Key,
    is_exact: bool,
    path: String,
}

/// What a path of an Ingress came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathOutcome {
    /// It is served.
    Served,
    /// It answers 503 because of what other Ingresses say, or because its own do not hold.
    Closed,
    /// This Ingress has the path.
    Lost(Key),
    /// It is not served.
    Refused,
}

impl ServedHost {
    /// Whether the settings of an Ingress hold for the whole host.
    pub fn is_settled_by(&self, by: &Key) -> bool {
        self.settlers.contains(by)
    }

    /// What a path that an Ingress writes came to.
    pub fn outcome(&self, by: &Key, path: &str, is_exact: bool) -> &PathOutcome {
        let path = IngressPath { by: by.clone(), is_exact, path: path.to_owned() };
        self.paths.get(&path).unwrap_or(&PathOutcome::Refused)
    }
}

impl Translator {
    /// The hosts that Ingresses name, also as aliases.
    pub fn served_hosts(&self) -> BTreeMap<HostPattern, ServedHost> {
        let aliases = self.aliases.rights().map(|alias| &alias.host);
        let hosts: BTreeSet<&HostPattern> = self.claimants.keys().chain(aliases).collect();
        let all = hosts.into_iter().map(|host| (host.clone(), self.served_host(host)));
        let mut all: BTreeMap<_, _> = all.collect();
        let followers = all.iter().filter_map(|(alias, served)| {
            let follows = served.follows.as_ref().filter(|follows| !follows.is_redirected)?;
            Some((follows.host.clone(), alias.clone()))
        });
        for (host, alias) in followers.collect::<Vec<_>>() {
            if let Some(served) = all.get_mut(&host) {
                served.aliases.push(alias);
            }
        }
        all
    }

    fn served_host(&self, host: &HostPattern) -> ServedHost {
        let decided = self.decide_owner(host);
        let name = self.snapshot.names.get(host);
        let mut served = ServedHost {
            oldest: decided.by.map(|by| (decided.kind, by.key)),
            secret: name.and_then(certificate::secret_behind),
            inherits_certificate: name.is_none(),
            ..ServedHost::default()
        };
        match &decided.served_from {
            ServedFrom::Alias { alias, source } => {
                served.follows = Some(Follows {
                    host: HostPattern::clone(source),
                    by: alias.age.key.clone(),
                    is_redirected: alias.is_redirected,
                });
            }
            ServedFrom::Claims(view) => self.read_served(host, view, &mut served),
        }
        served
    }

    fn read_served(&self, host: &HostPattern, view: &HostView<'_>, served: &mut ServedHost) {
        let mut settings = view.owner.settings();
        served.settled_by = settings.clone().map(|(by, _)| by.key.clone()).collect();
        served.settlers = served.settled_by.iter().cloned().collect();
        let app = settings.find(|(_, settings)| settings.hosts.app_root.is_some());
        served.app_root_by = app.map(|(by, _)| by.key.clone());
        let rules = self.snapshot.servers.get(host).into_iter().flat_map(|server| &server.rules);
        let rules: BTreeMap<&PathPattern, &Rule> = rules.map(|rule| (&rule.path, rule)).collect();
        for by in self.claims_on(host).into_iter().filter(|by| by.canary().is_none()) {
            for claim in by.claims_on(host) {
                let is_exact = matches!(claim.pattern, PathPattern::Exact(_));
                let path = IngressPath { by: by.key.clone(), is_exact, path: claim.path.clone() };
                let outcome = outcome(by, claim, &rules);
                if outcome == PathOutcome::Served {
                    served.served_by.insert(by.key.clone());
                }
                served.paths.entry(path).or_insert(outcome);
            }
        }
        let root = root();
        served.has_root = rules.get(&root).is_some_and(|rule| rule.backend.is_some());
        let by = rules.get(&root).and_then(|rule| {
            let by = self.claims.get(&origin_of(rule))?;
            let is_claimed = by.claims_on(host).iter().any(|claim| claim.pattern == root);
            (!is_claimed && !is_closed(by, rule)).then(|| by.key.clone())
        });
        served.root_by = by;
    }
}

fn outcome(by: &Claims, claim: &Claim, rules: &BTreeMap<&PathPattern, &Rule>) -> PathOutcome {
    if claim.is_refused {
        return PathOutcome::Refused;
    }
    // As the claim is, or as all paths of a host with regular expressions are.
    let as_regex =
        claim.is_valid_regex.then(|| PathPattern::uncompiled(&claim.path).ok()).flatten();
    let patterns = as_regex.iter().chain([&claim.pattern]);
    let found: Vec<_> = patterns.filter_map(|pattern| rules.get(pattern)).collect();
    let own = found.iter().find(|rule| origin_of(rule) == by.key && rule.origin.path == claim.path);
    match (own, found.first()) {
        (Some(rule), _) if is_closed(by, rule) => PathOutcome::Closed,
        (Some(_), _) => PathOutcome::Served,
        (None, Some(rule)) => PathOutcome::Lost(origin_of(rule)),
        (None, None) => PathOutcome::Refused,
    }
}

/// The Ingress that has a rule.
fn origin_of(rule: &Rule) -> Key {
    Key::new(rule.origin.namespace.as_str(), rule.origin.ingress.as_str())
}

/// Whether a rule of an Ingress is closed, and not by its own annotations, which other objects have too.
fn is_closed(by: &Claims, rule: &Rule) -> bool {
    rule.backend.as_ref().is_some_and(is_of_closed) && !by.is_closed()
}
