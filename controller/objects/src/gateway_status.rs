//! What the status of an object of the Gateway API is to say.

use crate::Kind;
use crate::ObjectRef;
use crate::gateway::ParentRef;
use std::net::IpAddr;

/// A condition, without the time of its last change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Its type, such as `Accepted`.
    pub name: &'static str,
    /// Whether it holds.
    pub holds: bool,
    /// Why, in a word of the specification.
    pub reason: &'static str,
    /// Why, for a reader.
    pub message: String,
    /// The object that has to come before it holds. Manifests may leave it to the cluster; the status does not have it.
    pub cause: Option<ObjectRef>,
}

impl Condition {
    /// One that holds and has nothing more to say.
    pub fn yes(name: &'static str, reason: &'static str) -> Self {
        Condition { name, holds: true, reason, message: String::new(), cause: None }
    }

    /// One that does not hold.
    pub fn no(name: &'static str, reason: &'static str, message: impl Into<String>) -> Self {
        Condition { name, holds: false, reason, message: message.into(), cause: None }
    }

    /// The same, because this object is not there.
    pub fn because_of(self, cause: impl Into<Option<ObjectRef>>) -> Self {
        Condition { cause: cause.into(), ..self }
    }
}

/// The status of an object of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The generation that it is about.
    pub generation: i64,
    /// What it says.
    pub content: Content,
}

/// What differs between the kinds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Of a GatewayClass.
    Class {
        /// The conditions.
        conditions: Vec<Condition>,
        /// Names of features, sorted.
        features: Vec<&'static str>,
    },
    /// Of a Gateway.
    Gateway {
        /// The conditions.
        conditions: Vec<Condition>,
        /// One for each listener.
        listeners: Vec<ListenerStatus>,
        /// Where it is served.
        addresses: Addresses,
        /// How many ListenerSets are attached.
        sets: usize,
    },
    /// Of a ListenerSet.
    ListenerSet {
        /// The conditions.
        conditions: Vec<Condition>,
        /// One for each listener; none where the Gateway does not allow the set.
        listeners: Vec<ListenerStatus>,
    },
    /// Of a policy: what this controller says about the Gateways by which its targets are served.
    Policy {
        /// The controller's name in the classes of these Gateways.
        controller: String,
        /// One for each Gateway.
        ancestors: Vec<ParentStatus>,
    },
    /// Of a route: what this controller says about its parents, in the order of the route.
    Route {
        /// The controller's name in the classes of these parents.
        controller: String,
        /// One for each parent of ours.
        parents: Vec<ParentStatus>,
    },
}

/// Where a Gateway is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Addresses {
    /// Where Ingresses are.
    Shared,
    /// Here alone.
    Own(Vec<IpAddr>),
}

/// What is said about a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerStatus {
    /// Its name.
    pub name: String,
    /// Kinds of routes that it takes.
    pub kinds: Vec<Kind>,
    /// How many are attached.
    pub attached: usize,
    /// The conditions.
    pub conditions: Vec<Condition>,
}

/// What is said about a route or a policy at one of its parents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParentStatus {
    /// The parent, as the route names it.
    pub parent: ParentRef,
    /// The conditions.
    pub conditions: Vec<Condition>,
}
