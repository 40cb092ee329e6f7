//! Whose the hosts are and which paths are served, as translation has it: the plan prints nothing else.

use oxigress_core::model::HostPattern;
use oxigress_objects::ingress::{Path, PathType};
use oxigress_objects::{Key, Name};
use oxigress_translate::{PathOutcome, ServedHost, whose};
pub use oxigress_translate::{counterpart, words_of as words};
use std::collections::{BTreeMap, BTreeSet};

/// The hosts that Ingresses name.
pub struct Hosts<'t> {
    all: &'t BTreeMap<HostPattern, ServedHost>,
    /// The hosts that an Ingress protects which is left out.
    guarded: BTreeMap<&'t HostPattern, &'t Key>,
    nobodys: ServedHost,
}

/// The host of a rule; `None`: it is no host.
pub fn parse(written: &str) -> Option<HostPattern> {
    match written {
        "" => Some(HostPattern::default_host()),
        written => HostPattern::parse(written).ok().filter(|host| !is_default(host)),
    }
}

/// As routes and listeners have it; the default host has no name.
pub fn text(host: &HostPattern) -> String {
    if is_default(host) { String::new() } else { host.to_string() }
}

fn is_default(host: &HostPattern) -> bool {
    host.as_str() == HostPattern::DEFAULT
}

/// The wildcards of routes that a host lies below, the nearest first, and the default host.
pub fn above(host: &HostPattern) -> impl Iterator<Item = HostPattern> {
    let name = if is_default(host) { "" } else { host.as_str() };
    let name = name.strip_prefix("*.").unwrap_or(name);
    let parents = name.match_indices('.').map(|(at, _)| format!("*{}", &name[at..]));
    let stars = parents.filter_map(|star| HostPattern::parse(&star).ok());
    stars.chain((!name.is_empty()).then(HostPattern::default_host)).collect::<Vec<_>>().into_iter()
}

impl<'t> Hosts<'t> {
    /// As translation has them; `guards` are Ingresses that are left out and protect their hosts.
    pub fn new(all: &'t BTreeMap<HostPattern, ServedHost>, guards: &BTreeSet<&Key>) -> Self {
        let mut guarded = BTreeMap::new();
        if !guards.is_empty() {
            for (host, served) in all {
                let guard = served.settled_by.iter().find(|by| guards.contains(by));
                guarded.extend(guard.map(|by| (host, by)));
            }
        }
        Hosts { all, guarded, nobodys: ServedHost::default() }
    }

    /// The hosts that have settings of their own.
    pub fn settled(&self) -> impl Iterator<Item = &HostPattern> {
        self.all.iter().filter(|(_, served)| !served.settled_by.is_empty()).map(|(host, _)| host)
    }

    /// What became of a host.
    pub fn of(&self, host: &HostPattern) -> &ServedHost {
        self.all.get(host).unwrap_or(&self.nobodys)
    }

    /// What became of the host whose Ingresses say what holds for this one.
    pub fn source(&self, host: &HostPattern) -> &ServedHost {
        let served = self.of(host);
        served.follows.as_ref().map_or(served, |follows| self.of(&follows.host))
    }

    /// Whether what an Ingress says about the whole host holds.
    pub fn is_settled_by(&self, host: &HostPattern, by: &Key) -> bool {
        self.source(host).is_settled_by(by)
    }

    /// Whether an Ingress is of another namespace than the one that owns a host, and has Ingresses there.
    pub fn is_guest(&self, host: &HostPattern, by: &Key) -> bool {
        self.home(host).is_some_and(|home| *home != by.namespace) && !self.is_settled_by(host, by)
    }

    /// The namespace whose Gateway has the listeners of a host.
    pub fn home(&self, host: &HostPattern) -> Option<&Name> {
        self.source(host).settled_by.first().map(|by| &by.namespace)
    }

    /// Whose a host is, where it is not this namespace's.
    pub fn whose(&self, host: &HostPattern, namespace: &Name) -> Option<String> {
        let (kind, by) = self.of(host).oldest.as_ref()?;
        (by.namespace != *namespace).then(|| whose(host, *kind, by))
    }

    /// Why settings of the whole host that an Ingress says do not hold.
    pub fn why_unsettled(&self, host: &HostPattern, by: &Key) -> String {
        self.whose(host, &by.namespace).unwrap_or_else(|| match &self.of(host).follows {
            Some(follows) => {
                format!("{} follows {}, as Ingress {} says", words(host), follows.host, follows.by)
            }
            None => format!("it does not hold for {}: `oxigress check` says why", words(host)),
        })
    }

    /// Why no route says anything about a host; `None`: routes may.
    pub fn refusal(&self, host: &HostPattern) -> Option<String> {
        let follows = self.of(host).follows.as_ref();
        let guard = self.guarded.get(follows.map_or(host, |follows| &follows.host))?;
        Some(format!(
            "{}: Ingress {guard}, which is left out, protects all paths of it",
            words(host)
        ))
    }

    /// Why a path of an Ingress is not printed; `None`: it is served now.
    pub fn refusal_of(&self, by: &Key, host: &HostPattern, path: &Path) -> Option<String> {
        let served = self.of(host);
        let is_exact = path.path_type == PathType::Exact;
        let why = match served.outcome(by, path.written(), is_exact) {
            PathOutcome::Served => return None,
            PathOutcome::Closed => "it answers 503 today, `oxigress check` says why".into(),
            PathOutcome::Lost(winner) if winner == by => "the Ingress has it twice".into(),
            PathOutcome::Lost(winner) => {
                format!("it is served by Ingress {winner}, which is older or first by name")
            }
            PathOutcome::Refused => match (&served.follows, self.whose(host, &by.namespace)) {
                (Some(follows), _) => {
                    format!("the host follows {}, as Ingress {} says", follows.host, follows.by)
                }
                (None, Some(whose)) => format!("it is refused: {whose}"),
                (None, None) => "it is refused: `oxigress check` says why".into(),
            },
        };
        Some(format!("{} path {:?}: {why}", words(host), path.written()))
    }
}
