//! Hosts that listeners of guests leave to routes of others: told for one listener and one host, when somebody asks.
//!
//! Cost:    that of the hosts that routes name, once. What listeners leave is written down for no listener: a host may lie below
//!          many of them, and a listener above many hosts.

use crate::claim::age::Age;
use crate::gateway::work::{self, Step};
use oxigress_core::model::HostPattern;
use oxigress_objects::{Kind, Name};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The listeners of guests of one namespace with one host.
pub type Group = (Name, HostPattern);

/// A route.
type Who = (Age, Kind);

/// The hosts below listeners of guests that routes name where they are attached.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Left(BTreeMap<HostPattern, Named>);

/// Who has a host that routes name: told once, so that asking for a listener is a look or two whoever names the host.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Named {
    /// The namespace of all routes that name it, whose listeners leave it to nobody; `None`: there are several.
    only: Option<Name>,
    /// The other namespaces whose listeners leave it to nobody, by the host of these listeners.
    keepers: BTreeMap<HostPattern, BTreeSet<Name>>,
}

impl Left {
    /// Puts together what routes name, each with the listeners of guests by which it has the host.
    pub fn of(claims: impl IntoIterator<Item = (HostPattern, Who, BTreeSet<Group>)>) -> Self {
        let mut left: BTreeMap<HostPattern, Naming> = BTreeMap::new();
        for (host, who, groups) in claims {
            let naming = left.entry(host).or_default();
            for group in groups {
                naming.by.entry(group).or_default().insert(who.clone());
            }
            naming.all.entry(who.0.key.namespace.clone()).or_default().insert(who);
        }
        Left(left.into_iter().map(|(host, naming)| (host, naming.told())).collect())
    }

    /// Whether nothing is left to anybody.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The hosts that may be left.
    pub fn hosts(&self) -> impl Iterator<Item = (&HostPattern, &Named)> {
        self.0.iter()
    }

    /// Who has a host, if routes name it.
    pub fn named(&self, host: &HostPattern) -> Option<&Named> {
        work::count(Step::Named);
        self.0.get(host)
    }

    /// Whether listeners leave a host, which is theirs or below their wildcard.
    pub fn leave(&self, (namespace, listener): &Group, host: &HostPattern) -> bool {
        self.named(host).is_some_and(|named| named.is_left_by(namespace, listener))
    }
}

impl Named {
    /// Whether the listeners of a namespace with one host leave it: somebody else's route names it, and none of their own namespace
    /// that is older has it by them.
    pub fn is_left_by(&self, namespace: &Name, listener: &HostPattern) -> bool {
        let keepers = self.keepers.get(listener);
        self.only.as_ref() != Some(namespace) && keepers.is_none_or(|all| !all.contains(namespace))
    }

    /// Whether those of all these namespaces do.
    pub fn is_left_by_all(&self, namespaces: &BTreeSet<Name>, listener: &HostPattern) -> bool {
        let keepers = self.keepers.get(listener);
        self.only.as_ref().is_none_or(|only| !namespaces.contains(only))
            && keepers.is_none_or(|all| all.is_disjoint(namespaces))
    }
}

/// The routes that name a host.
#[derive(Default)]
struct Naming {
    all: BTreeMap<Name, BTreeSet<Who>>,
    /// Those that listeners of guests have by this name.
    by: BTreeMap<Group, BTreeSet<Who>>,
}

impl Naming {
    fn told(self) -> Named {
        let mut all: Vec<_> = self.all.into_iter().collect();
        // The oldest first, as their routes are.
        all.sort_by(|(_, one), (_, other)| one.first().cmp(&other.first()));
        let mut keepers: BTreeMap<HostPattern, BTreeSet<Name>> = BTreeMap::new();
        for ((namespace, listener), by) in self.by {
            if !is_left(&all, &namespace, &by) {
                keepers.entry(listener).or_default().insert(namespace);
            }
        }
        let only = match all.as_slice() {
            [(namespace, _)] => Some(namespace.clone()),
            _ => None,
        };
        Named { only, keepers }
    }
}

/// Whether the listeners of a namespace leave a host to one of those that name it, of which they have some.
fn is_left(all: &[(Name, BTreeSet<Who>)], namespace: &Name, by: &BTreeSet<Who>) -> bool {
    let own = by.iter().find(|(age, _)| age.key.namespace == *namespace);
    let mut foreign: Option<&Who> = None;
    // Whoever has it by these listeners loses nothing to them. So no more is looked at than routes that they have.
    for (of, routes) in all {
        if foreign.is_some() && foreign <= routes.first() {
            break;
        }
        if of != namespace {
            let oldest = routes.iter().find(|one| !by.contains(one));
            foreign = foreign.into_iter().chain(oldest).min();
        }
    }
    foreign.is_some_and(|(age, _)| own.is_none_or(|(own, _)| age <= own))
}

/// What a listener of a guest leaves.
#[derive(Clone)]
pub struct Leaves {
    left: Arc<Left>,
    group: Group,
}

impl Leaves {
    /// What the listeners of a group leave.
    pub fn of(left: &Arc<Left>, group: Group) -> Self {
        Leaves { left: left.clone(), group }
    }

    /// What all listeners of guests leave.
    pub fn of_all(&self) -> &Arc<Left> {
        &self.left
    }

    /// The namespace of the listeners.
    pub fn namespace(&self) -> &Name {
        &self.group.0
    }

    /// Whether it leaves a host.
    #[cfg(test)]
    pub fn has(&self, host: &HostPattern) -> bool {
        super::host::covers(&self.group.1, host) && self.left.leave(&self.group, host)
    }

    /// Whether it leaves a host below its wildcard.
    pub fn leave(&self, named: &Named) -> bool {
        named.is_left_by(&self.group.0, &self.group.1)
    }
}
