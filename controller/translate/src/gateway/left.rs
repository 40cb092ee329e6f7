//! Hosts that listeners of guests leave to routes of others: told for one listener and one host, when somebody asks.
//!
//! Cost:    that of the hosts that routes name. What listeners leave is written down for no listener: a host may lie below many of
//!          them, and a listener above many hosts.

use super::host::covers;
use crate::age::Age;
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

/// The routes that name a host.
#[derive(Clone, Debug, Default, PartialEq)]
struct Named {
    /// By namespace, and both these and their routes the oldest first.
    all: Vec<(Name, BTreeSet<Who>)>,
    /// Those that listeners of guests have by this name.
    by: BTreeMap<Group, BTreeSet<Who>>,
}

impl Left {
    /// Puts together what routes name, each with the listeners of guests by which it has the host.
    pub fn of(claims: impl IntoIterator<Item = (HostPattern, Who, BTreeSet<Group>)>) -> Self {
        let mut all: BTreeMap<HostPattern, BTreeMap<Name, BTreeSet<Who>>> = BTreeMap::new();
        let mut left: BTreeMap<HostPattern, Named> = BTreeMap::new();
        for (host, who, groups) in claims {
            let named = left.entry(host.clone()).or_default();
            for group in groups {
                named.by.entry(group).or_default().insert(who.clone());
            }
            let of_host = all.entry(host).or_default();
            of_host.entry(who.0.key.namespace.clone()).or_default().insert(who);
        }
        for (host, named) in &mut left {
            named.all = all.remove(host).into_iter().flatten().collect();
            named.all.sort_by(|(_, one), (_, other)| one.first().cmp(&other.first()));
        }
        Left(left)
    }

    /// Whether nothing is left to anybody.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The hosts that may be left.
    pub fn hosts(&self) -> impl Iterator<Item = &HostPattern> {
        self.0.keys()
    }

    /// Whether listeners leave a host, which is theirs or below their wildcard: somebody else's route names it, and none of their
    /// own namespace that is older has it by them.
    pub fn leave(&self, group: &Group, host: &HostPattern) -> bool {
        self.0.get(host).is_some_and(|named| named.is_left_by(group))
    }
}

impl Named {
    fn is_left_by(&self, group: &Group) -> bool {
        let by = self.by.get(group);
        let own = by.into_iter().flatten().find(|(age, _)| age.key.namespace == group.0);
        let mut foreign: Option<&Who> = None;
        // Whoever has it by these listeners loses nothing to them. So no more is looked at than routes that they have.
        for (namespace, routes) in &self.all {
            if foreign.is_some() && foreign <= routes.first() {
                break;
            }
            if *namespace != group.0 {
                let oldest = routes.iter().find(|one| by.is_none_or(|by| !by.contains(one)));
                foreign = foreign.into_iter().chain(oldest).min();
            }
        }
        foreign.is_some_and(|(age, _)| own.is_none_or(|(own, _)| age <= own))
    }
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

    /// Whether it leaves a host.
    pub fn has(&self, host: &HostPattern) -> bool {
        covers(&self.group.1, host) && self.left.leave(&self.group, host)
    }

    /// Whether it is of the same listeners.
    pub fn is_of_same(&self, other: &Leaves) -> bool {
        self.group == other.group
    }
}
