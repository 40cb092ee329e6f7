//! Whose records are: the namespaces that they are there for.
//!
//! Shape:   what stands under a host belongs to the namespace of the oldest object that names it, an Ingress, a route or a
//!          Gateway, but for the rules that other namespaces have added ([`item`](super::item)); what others name belongs to all
//!          those who name it, and counts in full for each of them, so nobody counts for less by sharing.
//! Every kind has its rule in [`Owners::of`]: a new one without does not compile.

use oxigress_core::model::policy::PolicyId;
use oxigress_core::model::{BackendId, HostPattern, ListenerHost, Rule, SessionRoute, Snapshot};
use oxigress_core::record::Kind;
use std::cell::RefCell;
use std::collections::HashMap;

/// Stands for the operator, whose flags and ConfigMaps say what belongs to no namespace.
pub const OPERATOR: &str = "";

/// What the publisher may know of the objects behind a snapshot.
pub struct View<'s> {
    /// Everything that is to be served.
    pub snapshot: &'s Snapshot,
    /// Answers the owner of a host; `None`: no object names the host.
    pub owner: &'s dyn Fn(OwnedHost<'_>) -> Option<HostOwner<'s>>,
}

/// A host that may have an owner: among Ingresses, or at a listener of a Gateway.
#[derive(Clone, Copy, Debug)]
pub enum OwnedHost<'p> {
    /// The host as Ingresses name it.
    Ingresses(&'p HostPattern),
    /// The host at a listener of a Gateway.
    Listener(&'p ListenerHost),
}

impl<'p> OwnedHost<'p> {
    /// The host, without its listener.
    pub fn host(self) -> &'p HostPattern {
        match self {
            OwnedHost::Ingresses(host) => host,
            OwnedHost::Listener(at) => &at.host,
        }
    }
}

/// Calls the function with a view that asks for the owner of each host once.
pub fn asking_once<T>(view: &View<'_>, act: impl FnOnce(&View<'_>) -> T) -> T {
    let (hosts, listeners) = (RefCell::new(HashMap::new()), RefCell::new(HashMap::new()));
    let owner = |place: OwnedHost<'_>| {
        let ask = || (view.owner)(place);
        match place {
            OwnedHost::Ingresses(host) => {
                *hosts.borrow_mut().entry(host.clone()).or_insert_with(ask)
            }
            OwnedHost::Listener(at) => {
                *listeners.borrow_mut().entry(at.clone()).or_insert_with(ask)
            }
        }
    };
    act(&View { snapshot: view.snapshot, owner: &owner })
}

/// The namespace that a host belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostOwner<'s> {
    /// The namespace of the oldest object that names it.
    pub namespace: &'s str,
    /// When that was created, in seconds since 1970.
    pub created: i64,
}

/// The namespaces that a record belongs to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owner<'s> {
    /// The namespaces by name, each once.
    pub namespaces: Vec<&'s str>,
    /// When the oldest host that it is there for was created.
    pub created: i64,
}

impl<'s> Owner<'s> {
    fn add(&mut self, host: HostOwner<'s>) {
        self.created = match self.namespaces.is_empty() {
            true => host.created,
            false => self.created.min(host.created),
        };
        if !self.namespaces.contains(&host.namespace) {
            self.namespaces.push(host.namespace);
        }
    }

    fn extend(&mut self, other: &Owner<'s>) {
        for namespace in &other.namespaces {
            self.add(HostOwner { namespace, created: other.created });
        }
    }
}

/// The owners of all records.
#[derive(Default)]
pub struct Owners<'s> {
    records: HashMap<(Kind, &'s str), Owner<'s>>,
    /// Those of listeners' hosts, by the key of their records.
    listeners: HashMap<String, Owner<'s>>,
    /// Those of sessions, by the same.
    sessions: HashMap<String, Owner<'s>>,
}

impl<'s> Owners<'s> {
    /// The owners of a snapshot's records.
    pub fn of(view: &View<'s>) -> Self {
        let mut all = Owners::default();
        let policies = policies(view);
        for kind in Kind::ALL {
            match kind {
                // What the operator says: see `get`.
                Kind::Settings | Kind::General | Kind::Port => {}
                Kind::Session => {
                    for (at, route) in &view.snapshot.sessions {
                        all.sessions.entry(at.to_string()).or_default().add(of_session(route));
                    }
                }
                Kind::Listener => {
                    for at in view.snapshot.listener_servers.keys() {
                        let owner = listener_owner(view, at);
                        all.listeners.entry(at.to_string()).or_default().add(owner);
                    }
                }
                Kind::Server => all.of_hosts(kind, view.snapshot.servers.keys(), view),
                Kind::Tls => all.of_hosts(kind, view.snapshot.tls.keys(), view),
                Kind::Passthrough => all.of_hosts(kind, view.snapshot.passthrough.keys(), view),
                Kind::Name => all.of_hosts(kind, named(view), view),
                Kind::Certificate => {
                    for host in named(view) {
                        if let Some(id) = view.snapshot.names.get(host) {
                            all.own(kind, id.as_str(), host_owner(view, host));
                        }
                    }
                }
                Kind::Policies => {
                    for (id, owner) in &policies {
                        all.records.insert((kind, id.as_str()), owner.clone());
                    }
                }
                Kind::Bundle => all.of_bundles(view, &policies),
                Kind::Backend => all.of_backends(kind, view, &policies),
                // Those of their backends: see `get`.
                Kind::Endpoints => {}
            }
        }
        all
    }

    /// The namespaces that a record is there for; the operator's, if no namespace needs it.
    pub fn get(&self, kind: Kind, key: &str) -> Owner<'s> {
        let operator = || Owner { namespaces: vec![OPERATOR], ..Owner::default() };
        let known = match kind {
            Kind::Listener => self.listeners.get(key),
            Kind::Session => self.sessions.get(key),
            Kind::Endpoints => self.records.get(&(Kind::Backend, key)),
            _ => self.records.get(&(kind, key)),
        };
        known.cloned().unwrap_or_else(operator)
    }

    fn own(&mut self, kind: Kind, key: &'s str, host: HostOwner<'s>) {
        self.records.entry((kind, key)).or_default().add(host);
    }

    fn extend(&mut self, kind: Kind, key: &'s str, owner: &Owner<'s>) {
        self.records.entry((kind, key)).or_default().extend(owner);
    }

    fn of_hosts(
        &mut self,
        kind: Kind,
        hosts: impl Iterator<Item = &'s HostPattern>,
        view: &View<'s>,
    ) {
        for host in hosts {
            self.own(kind, host.as_str(), host_owner(view, host));
        }
    }

    fn of_bundles(&mut self, view: &View<'s>, policies: &Policies<'s>) {
        for (host, policy) in &view.snapshot.tls {
            for id in policy.bundles() {
                self.own(Kind::Bundle, id.as_str(), host_owner(view, host));
            }
        }
        for (id, owner) in policies {
            let named = view.snapshot.policies.get(*id).into_iter().flat_map(|p| p.bundles());
            for bundle in named {
                self.extend(Kind::Bundle, bundle.as_str(), owner);
            }
        }
    }

    fn of_backends(&mut self, kind: Kind, view: &View<'s>, policies: &Policies<'s>) {
        let snapshot = view.snapshot;
        for (host, server) in &snapshot.servers {
            let by_host = host_owner(view, host);
            for rule in &server.rules {
                if let Some(id) = &rule.backend {
                    self.own(kind, id.as_str(), of_rule(&rule.origin.namespace, by_host));
                }
            }
        }
        for (by_host, rule) in of_listeners(view) {
            if let Some(id) = &rule.backend {
                self.own(kind, id.as_str(), of_rule(&rule.origin.namespace, by_host));
            }
        }
        for (host, id) in &snapshot.passthrough {
            self.own(kind, id.as_str(), host_owner(view, host));
        }
        for route in snapshot.sessions.values() {
            for id in route.targets.iter().filter_map(|target| target.backend.as_ref()) {
                self.own(kind, id.as_str(), of_session(route));
            }
        }
        for (id, owner) in policies {
            let named = snapshot.policies.get(*id).into_iter().flat_map(|p| p.backends());
            for backend in named {
                self.extend(kind, backend.as_str(), owner);
            }
        }
        let by_operator: Vec<&'s BackendId> =
            snapshot.ports.values().chain(&snapshot.settings.default_backend).collect();
        for id in by_operator {
            self.own(kind, id.as_str(), BY_OPERATOR);
        }
        // An alternative serves those of its primary.
        for (id, backend) in &snapshot.backends {
            let Some(owner) = self.records.get(&(kind, id.as_str())).cloned() else { continue };
            for alternative in &backend.alternatives {
                self.extend(kind, alternative.as_str(), &owner);
            }
        }
    }
}

/// The operator, as the owner of what belongs to no host.
pub const BY_OPERATOR: HostOwner<'static> = HostOwner { namespace: OPERATOR, created: 0 };

/// Sessions belong to the namespace of their route.
fn of_session(route: &SessionRoute) -> HostOwner<'_> {
    HostOwner { namespace: &route.namespace, created: 0 }
}

/// The rules of Gateways' listeners, each with the owner of its host there.
fn of_listeners<'s>(view: &View<'s>) -> impl Iterator<Item = (HostOwner<'s>, &'s Rule)> {
    view.snapshot.listener_servers.iter().flat_map(|(at, server)| {
        let owner = listener_owner(view, at);
        server.rules.iter().map(move |rule| (owner, rule))
    })
}

/// The owner of a listener's host, if it has a rule there; else the operator, so that the rules of each namespace are a guest's.
pub fn listener_owner<'s>(view: &View<'s>, at: &ListenerHost) -> HostOwner<'s> {
    let server = view.snapshot.listener_servers.get(at);
    let rules = server.map(|server| server.rules.as_slice()).unwrap_or_default();
    let has_rule = |owner: &HostOwner<'_>| {
        rules.is_empty() || rules.iter().any(|rule| rule.origin.namespace == owner.namespace)
    };
    (view.owner)(OwnedHost::Listener(at)).filter(has_rule).unwrap_or(BY_OPERATOR)
}

/// A host's owner; where nobody claims it, the namespace of its first rule.
pub fn host_owner<'s>(view: &View<'s>, host: &HostPattern) -> HostOwner<'s> {
    (view.owner)(OwnedHost::Ingresses(host)).unwrap_or_else(|| {
        let rule = view.snapshot.servers.get(host).and_then(|server| server.rules.first());
        let namespace = rule.map_or(OPERATOR, |rule| rule.origin.namespace.as_str());
        HostOwner { namespace, created: 0 }
    })
}

/// A rule belongs to the namespace that wrote it, and is as old as its host.
fn of_rule<'s>(namespace: &'s str, by_host: HostOwner<'s>) -> HostOwner<'s> {
    match namespace {
        "" => by_host,
        namespace => HostOwner { namespace, ..by_host },
    }
}

/// Hosts with certificates of their own; the one for all others is the operator's.
fn named<'s>(view: &View<'s>) -> impl Iterator<Item = &'s HostPattern> {
    view.snapshot.names.keys().filter(|host| host.as_str() != HostPattern::DEFAULT)
}

/// The owners of policies.
type Policies<'s> = HashMap<&'s PolicyId, Owner<'s>>;

fn policies<'s>(view: &View<'s>) -> Policies<'s> {
    let mut all = Policies::new();
    for (host, server) in &view.snapshot.servers {
        let by_host = host_owner(view, host);
        for rule in &server.rules {
            if let Some(id) = &rule.policies {
                all.entry(id).or_default().add(of_rule(&rule.origin.namespace, by_host));
            }
        }
    }
    for (by_host, rule) in of_listeners(view) {
        if let Some(id) = &rule.policies {
            all.entry(id).or_default().add(of_rule(&rule.origin.namespace, by_host));
        }
    }
    for route in view.snapshot.sessions.values() {
        for id in route.targets.iter().filter_map(|target| target.policies.as_ref()) {
            all.entry(id).or_default().add(of_session(route));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use oxigress_core::model::Snapshot;
    use oxigress_core::record::table::{RecordRef, TABLES};
    use oxigress_core::wire::native::Patch;

    const BUNDLE: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    const OTHER: &str = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";

    /// Hosts of the namespaces `a` and `b`, the first with a path of `b`'s.
    fn snapshot() -> Snapshot {
        let rule = |namespace: &str, path: &str, policies: &str| {
            serde_json::json!({"path": {"prefix": path}, "backend": format!("{namespace}/s/80"),
                "origin": {"namespace": namespace}, "policies": policies})
        };
        let to = |id: &str| serde_json::json!({"backend": id, "host": "x.test"});
        let tls =
            serde_json::json!({"client": {"authorities": BUNDLE, "verify": "on", "depth": 1}});
        serde_json::from_value(serde_json::json!({
            "servers": {
                "a.test": {"rules": [rule("a", "/", "own"), rule("a", "/x", "own"), rule("b", "/b", "shared")]},
                "b.test": {"rules": [rule("b", "/", "shared")]},
                "c.test": {"rules": [rule("c", "/", "shared")]},
            },
            "listener_servers": {
                "80/a.test": {"rules": [rule("b", "/b", "shared"), rule("a", "/", "own")]},
                "80/b.test": {"rules": [rule("a", "/", "own")]},
                "80/_": {"rules": [rule("a", "/", "own")]},
                "81/b.test": {"rules": []},
            },
            "policies": {
                "own": {"fallback": "fallback", "mirror": {"to": to("//url/http/m/80")},
                    "access": {"external": {"to": to("//url/http/x/80"), "target": "/"}}},
                "shared": {"errors": {"backend": "errors", "codes": [404]},
                    "proxy": {"tls": {"authorities": OTHER}}},
                "nobody": {},
            },
            "backends": {"a/s/80": {"alternatives": ["canary"]}, "b/s/80": {}, "canary": {}},
            "endpoints": {"a/s/80": [], "errors": [], "//url/http/m/80": [], "//url/http/x/80": []},
            "bundles": {BUNDLE: "x", OTHER: "y"},
            "tls": {"a.test": tls, "b.test": tls},
            "certificates": {"a/tls": {"chain": "x", "key": "y"}, "default": {"chain": "x", "key": "y"}},
            "names": {"a.test": "a/tls", "_": "default"},
            "passthrough": {"p.test": "p/s/443"},
            "ports": {"tcp/1": "port"},
            "sessions": {"tcp/2": {"namespace": "s", "targets": [{"weight": 1, "backend": "session"}]}},
        }))
        .unwrap()
    }

    fn owner(host: &HostPattern) -> Option<HostOwner<'static>> {
        let (namespace, created) = match host.as_str() {
            "a.test" => ("a", 1),
            "b.test" => ("b", 2),
            "p.test" => ("p", 3),
            _ => return None,
        };
        Some(HostOwner { namespace, created })
    }

    fn of(kind: Kind, key: &str) -> String {
        let snapshot = snapshot();
        let owners = Owners::of(&View { snapshot: &snapshot, owner: &|place| owner(place.host()) });
        let mut all = owners.get(kind, key).namespaces;
        all.sort();
        all.join(" ")
    }

    #[test]
    fn a_record_belongs_to_all_who_need_it() {
        assert_eq!(of(Kind::Server, "a.test"), "a", "whoever else has rules there");
        assert_eq!(of(Kind::Server, "c.test"), "c", "nobody claims the host");
        assert_eq!(of(Kind::Listener, "80/a.test"), "a");
        assert_eq!(of(Kind::Listener, "80/b.test"), "", "the owner of the host has no rule there");
        assert_eq!(of(Kind::Listener, "80/_"), "");
        assert_eq!(of(Kind::Listener, "81/b.test"), "b");
        assert_eq!(of(Kind::Tls, "a.test"), "a");
        assert_eq!(of(Kind::Policies, "own"), "a");
        assert_eq!(of(Kind::Policies, "shared"), "b c");
        assert_eq!(of(Kind::Bundle, BUNDLE), "a b");
        assert_eq!(of(Kind::Bundle, OTHER), "b c", "through policies");
        assert_eq!(of(Kind::Certificate, "a/tls"), "a");
        assert_eq!(of(Kind::Passthrough, "p.test"), "p");
        assert_eq!(of(Kind::Session, "tcp/2"), "s");
        for (key, expected) in [
            ("a/s/80", "a"),
            ("canary", "a"),
            ("fallback", "a"),
            ("//url/http/m/80", "a"),
            ("//url/http/x/80", "a"),
            ("errors", "b c"),
            ("p/s/443", "p"),
            ("port", ""),
            ("session", "s"),
        ] {
            assert_eq!(of(Kind::Backend, key), expected, "{key}");
            assert_eq!(of(Kind::Endpoints, key), expected, "{key}");
        }
    }

    #[test]
    fn a_host_of_a_listener_has_the_owner_that_it_has_there() {
        let rule = |namespace: &str| {
            let path = format!("/{namespace}");
            serde_json::json!({"path": {"prefix": path}, "origin": {"namespace": namespace}})
        };
        let server = serde_json::json!({"rules": [rule("evil"), rule("shop")]});
        let all = serde_json::json!({"servers": {"_": {"rules": [rule("evil")]}}, "listener_servers": {"80/_": server}});
        let snapshot: Snapshot = serde_json::from_value(all).unwrap();
        let owner = |place: OwnedHost<'_>| {
            let namespace = if matches!(place, OwnedHost::Listener(_)) { "shop" } else { "evil" };
            Some(HostOwner { namespace, created: 1 })
        };
        let owners = Owners::of(&View { snapshot: &snapshot, owner: &owner });
        assert_eq!(owners.get(Kind::Listener, "80/_").namespaces, ["shop"]);
        assert_eq!(owners.get(Kind::Server, "_").namespaces, ["evil"]);
    }

    #[test]
    fn what_no_namespace_needs_is_the_operators() {
        for (kind, key) in [
            (Kind::Settings, ""),
            (Kind::Port, "tcp/1"),
            (Kind::Certificate, "default"),
            (Kind::Name, "_"),
            (Kind::Policies, "nobody"),
        ] {
            assert_eq!(of(kind, key), OPERATOR, "{kind:?}");
        }
    }

    #[test]
    fn every_table_has_an_owner_in_the_sample() {
        let snapshot = snapshot();
        let owners = Owners::of(&View { snapshot: &snapshot, owner: &|place| owner(place.host()) });
        let mut records: Vec<RecordRef> = Vec::new();
        let patch = Patch::of_whole(snapshot.clone());
        TABLES.iter().for_each(|table| (table.keys)(&patch, &mut records));
        let is_operators = |kind| kind == Kind::Port;
        for table in TABLES.iter().filter(|table| !is_operators(table.kind)) {
            let mut all = records.iter().filter(|record| record.kind == table.kind);
            let is_owned = |record: &RecordRef| {
                owners.get(record.kind, &record.key).namespaces.iter().any(|name| *name != OPERATOR)
            };
            assert!(all.any(is_owned), "{} has no owner", table.name);
        }
    }
}
