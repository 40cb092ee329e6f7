//! Which objects there are: a Gateway in each namespace that owns hosts, the routes and the Policy of each Ingress.
//!
//! Shape:   whose a host is and which paths are served is what translation has decided ([`Hosts`]). What concerns a whole host
//!          is printed as its owner's Ingresses say. Its listeners stand in the owner's namespace; routes of others attach there.

mod rules;
mod told;

#[cfg(test)]
pub use rules::COPIES;

use super::hosts::{self, Hosts};
use super::object::{self, Objects};
use super::paths::RoutePath;
use super::said::{self, Said, ToHttps};
use super::tls::{Certificates, Listeners};
use super::{Notes, Served};
use oxigress_core::model::HostPattern;
use oxigress_objects::ingress::{Path, PathType};
use oxigress_objects::{Key, Name, World};
use oxigress_settings::Settings;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Most rules of a route, as the API has it.
const MAX_RULES: usize = 16;
/// Most host names of a route, likewise.
const MAX_HOSTS: usize = 16;

/// Names that the command line chooses.
pub struct Names {
    pub gateway: String,
    pub controller: String,
    pub prefix: String,
}

/// A rule of a route with the path that it is about.
#[derive(Clone, Debug, PartialEq)]
struct Rule {
    path: RoutePath,
    value: Value,
}

/// Routes of one Ingress that differ in their hosts alone.
#[derive(Debug)]
struct Group {
    rules: Vec<Rule>,
    place: Place,
    hosts: Vec<HostPattern>,
}

/// How a host is served.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    /// The namespace of the Gateway that its routes attach to.
    home: Name,
    /// It is of another namespace than the Ingress.
    is_guest: bool,
    /// Plain HTTP is redirected.
    is_redirected: bool,
}

/// A listener: the namespace and the name of its Gateway, and its own name.
type Parent = (Name, String, String);

/// The objects, those that others name first.
pub fn plan(
    world: &World,
    settings: &Settings,
    served: &Served,
    names: &Names,
    notes: &mut Notes,
) -> Objects {
    let all = world.ingresses.iter();
    let mut ours: Vec<_> = all.filter(|(key, _)| served.ingresses.contains(key)).collect();
    ours.sort_by_key(|(key, ingress)| (ingress.created, *key));
    let (mut said, mut guards) = (Vec::new(), BTreeSet::new());
    for (key, ingress) in ours {
        match Said::of(key, ingress, settings, &names.prefix, notes) {
            Some(one) => said.push(one),
            None if said::guards_host(ingress, &names.prefix) => drop(guards.insert(key)),
            None => {}
        }
    }
    let mut plan = Plan {
        world,
        settings,
        names,
        hosts: Hosts::new(&served.hosts, &guards),
        certificates: Certificates::of(&said, notes),
        canaries: canaries(&said),
        said: &said,
        listeners: BTreeMap::new(),
        taken: BTreeSet::new(),
        policies: Vec::new(),
        routes: Vec::new(),
        owned: BTreeSet::new(),
        with_guests: BTreeMap::new(),
    };
    let mains = said.iter().filter(|said| !said.is_canary);
    let guests: Vec<_> = mains.flat_map(|said| plan.add(said, notes)).collect();
    let first_guest = plan.routes.len();
    guests.into_iter().for_each(|(said, group)| plan.add_guests(said, group, notes));
    plan.name_ignored(notes);
    plan.name_lone_canaries(notes);
    plan.name_overlaps(notes);
    plan.name_open_roots(notes);
    plan.name_guests(notes);
    plan.finish(first_guest)
}

/// The canaries of a namespace's hosts, oldest first.
type Canaries<'p, 'w> = BTreeMap<(&'w Name, HostPattern), Vec<&'p Said<'w>>>;

fn canaries<'p, 'w>(all: &'p [Said<'w>]) -> Canaries<'p, 'w> {
    let mut canaries = Canaries::new();
    for said in all.iter().filter(|said| said.is_canary) {
        for host in said.hosts() {
            canaries.entry((&said.key.namespace, host)).or_default().push(said);
        }
    }
    canaries
}

struct Plan<'p, 'w> {
    world: &'w World,
    settings: &'p Settings,
    names: &'p Names,
    hosts: Hosts<'p>,
    certificates: Certificates<'w>,
    said: &'p [Said<'w>],
    canaries: Canaries<'p, 'w>,
    /// By namespace.
    listeners: BTreeMap<Name, Listeners>,
    /// Names of routes.
    taken: BTreeSet<Key>,
    policies: Vec<Value>,
    routes: Vec<Value>,
    /// The hosts that routes of their owners have.
    owned: BTreeSet<HostPattern>,
    /// The hosts that routes of other namespaces have, too.
    with_guests: BTreeMap<HostPattern, BTreeSet<Name>>,
}

impl<'p, 'w> Plan<'p, 'w> {
    /// Adds the routes of an Ingress for the hosts of its namespace; answers those for others.
    fn add(&mut self, said: &'p Said<'w>, notes: &mut Notes) -> Vec<(&'p Said<'w>, Group)> {
        let groups = self.groups(said, notes);
        if !said.policy.is_empty() && !groups.is_empty() {
            self.policies.push(object::policy(said.key, said.policy.clone()));
        }
        let (guests, own): (Vec<_>, Vec<_>) =
            groups.into_iter().partition(|group| group.place.is_guest);
        for group in own.iter().filter(|group| !group.rules.is_empty()) {
            self.owned.extend(group.hosts.iter().cloned());
        }
        own.iter().for_each(|group| self.add_group(said, group, notes));
        self.redirect_www(said, notes);
        guests.into_iter().map(|group| (said, group)).collect()
    }

    /// The hosts of an Ingress, those together that have the same rules.
    fn groups(&mut self, said: &'p Said<'w>, notes: &mut Notes) -> Vec<Group> {
        let mut groups: Vec<Group> = Vec::new();
        let mut known: BTreeMap<(Place, String), usize> = BTreeMap::new();
        for (host, rules) in self.hosts(said, notes) {
            let place = Place {
                home: self.hosts.home(&host).unwrap_or(&said.key.namespace).clone(),
                is_guest: self.hosts.is_guest(&host, said.key),
                is_redirected: self.is_redirected(said, &host),
            };
            // A route without host names has all hosts.
            if host == HostPattern::default_host() {
                groups.push(Group { rules, place, hosts: vec![host] });
                continue;
            }
            let text: String = rules.iter().map(|rule| rule.value.to_string()).collect();
            let next = groups.len();
            let at = *known.entry((place.clone(), text)).or_insert(next);
            match groups.get_mut(at) {
                Some(group) => group.hosts.push(host),
                None => groups.push(Group { rules, place, hosts: vec![host] }),
            }
        }
        groups
    }

    /// Adds the routes of an Ingress for hosts of other namespaces. A host that no route of its owner has would be theirs.
    fn add_guests(&mut self, said: &'p Said<'w>, mut group: Group, notes: &mut Notes) {
        let (owned, alone): (Vec<_>, Vec<_>) =
            group.hosts.into_iter().partition(|host| self.owned.contains(host));
        for host in alone {
            let owner = &group.place.home;
            let host = hosts::words(&host);
            let why = "it would belong to this namespace then";
            notes
                .lost(said.key, format!("{host}: no route of namespace {owner} has it, and {why}"));
        }
        for host in &owned {
            let guests = self.with_guests.entry(host.clone()).or_default();
            guests.insert(said.key.namespace.clone());
        }
        group.hosts = owned;
        self.add_group(said, &group, notes);
    }

    fn add_group(&mut self, said: &'p Said<'w>, group: &Group, notes: &mut Notes) {
        for hosts in group.hosts.chunks(MAX_HOSTS) {
            self.add_routes(said, group, hosts, notes);
        }
    }

    /// Whether plain HTTP of a host is redirected by this Ingress.
    fn is_redirected(&mut self, said: &Said<'_>, host: &HostPattern) -> bool {
        match said.to_https {
            ToHttps::Never => false,
            ToHttps::WithCertificate => self.certificates.find(&self.hosts, host).is_some(),
            ToHttps::Always => true,
        }
    }

    /// The listener for plain HTTP of a namespace's Gateway.
    fn http(&self, home: &Name) -> Parent {
        (home.clone(), self.names.gateway.clone(), "http".to_owned())
    }

    fn add_routes(
        &mut self,
        said: &'p Said<'w>,
        group: &Group,
        hosts: &[HostPattern],
        notes: &mut Notes,
    ) {
        let rules = &group.rules;
        let sections = self.sections(hosts);
        let http = self.http(&group.place.home);
        let exempt = |rule: &&Rule| {
            let mut all = self.settings.no_tls_redirect_locations.iter();
            all.any(|beginning| rule.path.value.starts_with(beginning.as_str()))
        };
        if !group.place.is_redirected {
            let sections: Vec<_> = std::iter::once(http).chain(sections).collect();
            return self.push_routes(said, rules, hosts, &sections);
        }
        let open: Vec<Rule> = rules.iter().filter(exempt).cloned().collect();
        let redirects = self.redirects(said, rules, hosts, notes);
        self.push_routes(said, &[redirects, open].concat(), hosts, &[http]);
        if !sections.is_empty() {
            return self.push_routes(said, rules, hosts, &sections);
        }
        let names: Vec<_> = hosts.iter().map(hosts::text).collect();
        let names = names.join(", ");
        let why = "no entry of spec.tls has a certificate for a listener";
        notes.lost(said.key, format!("HTTPS of {names}: {why}"));
    }

    /// The redirects to HTTPS in place of these rules.
    fn redirects(
        &self,
        said: &Said<'w>,
        rules: &[Rule],
        hosts: &[HostPattern],
        notes: &mut Notes,
    ) -> Vec<Rule> {
        if !said.keeps_slash() {
            notes.different(
                said.key,
                "its redirects to HTTPS keep a slash at the end of a path, as with preserve-trailing-slash",
            );
        }
        let root = RoutePath { kind: "PathPrefix", value: "/".into() };
        let mut paths: Vec<RoutePath> = rules.iter().map(|rule| rule.path.clone()).collect();
        // Who has the root where no path is the root also redirects what no path takes.
        let has_rest =
            |host: &HostPattern| self.hosts.source(host).root_by.as_ref() == Some(said.key);
        if hosts.iter().all(has_rest) {
            paths.push(root.clone());
        }
        if paths.contains(&root) && hosts.iter().all(|host| self.is_alone(said, host)) {
            paths = vec![root];
        }
        paths.sort();
        paths.dedup();
        let code: u16 = self.settings.http_redirect_code.into();
        let redirect = json!({"type": "RequestRedirect",
            "requestRedirect": {"scheme": "https", "statusCode": code}});
        let all = paths.into_iter().map(|path| {
            let value = json!({"matches": [{"path": path.value()}], "filters": [redirect]});
            Rule { path, value }
        });
        all.collect()
    }

    /// Whether no other Ingress has paths of a host.
    fn is_alone(&self, said: &Said<'_>, host: &HostPattern) -> bool {
        let mut served = self.hosts.source(host).served_by.iter();
        served.all(|by| by == said.key)
    }

    /// The listeners of hosts that have certificates.
    fn sections(&mut self, hosts: &[HostPattern]) -> Vec<Parent> {
        let mut all = Vec::new();
        for host in hosts {
            let Some(shown) = self.certificates.find(&self.hosts, host) else { continue };
            let home = shown.secret.namespace.clone();
            let listeners = self.listeners.entry(home.clone()).or_default();
            let (gateway, section) = listeners.section(&self.names.gateway, shown);
            all.push((home, gateway, section));
        }
        all.sort();
        all.dedup();
        all
    }

    /// Adds routes of these rules, no more in each than the API takes.
    fn push_routes(
        &mut self,
        said: &Said<'_>,
        rules: &[Rule],
        hosts: &[HostPattern],
        parents: &[Parent],
    ) {
        let own = &said.key.namespace;
        let mut references = Vec::new();
        for (home, gateway, section) in parents {
            let listeners = self.listeners.entry(home.clone()).or_default();
            let mut reference = json!({"name": gateway, "sectionName": section});
            if home != own {
                listeners.admit(section, own);
                reference["namespace"] = json!(home.as_str());
            }
            references.push(reference);
        }
        let names: Vec<_> = hosts.iter().map(hosts::text).filter(|host| !host.is_empty()).collect();
        for rules in rules.chunks(MAX_RULES) {
            let rules: Vec<_> = rules.iter().map(|rule| &rule.value).collect();
            let mut spec = json!({"parentRefs": references, "rules": rules});
            if !names.is_empty() {
                spec["hostnames"] = json!(names);
            }
            let key = self.free_name(said.key);
            self.routes.push(object::of_api("HTTPRoute", &key, spec));
        }
    }

    fn free_name(&mut self, key: &Key) -> Key {
        let numbered =
            (2..).map(|number| Key::new(&key.namespace, format!("{}-{number}", key.name)));
        let mut all = std::iter::once(key.clone()).chain(numbered);
        let is_others = |name: &Key| name != key && self.world.ingresses.contains_key(name);
        let free = all.find(|name| !is_others(name) && !self.taken.contains(name));
        let free = free.unwrap_or_else(|| key.clone());
        self.taken.insert(free.clone());
        free
    }

    /// The other names of hosts, with or without `www.`, which lead to them.
    fn redirect_www(&mut self, said: &'p Said<'w>, notes: &mut Notes) {
        for host in said.hosts() {
            let Some(other) = hosts::counterpart(&host).filter(|_| said.from_to_www) else {
                continue;
            };
            let follows = self.hosts.of(&other).follows.as_ref();
            let is_said = follows.is_some_and(|follows| {
                follows.is_redirected && follows.host == host && follows.by == *said.key
            });
            if !is_said || self.hosts.refusal(&host).is_some() {
                continue;
            }
            let code: u16 = self.settings.http_redirect_code.into();
            let redirect = json!({"type": "RequestRedirect",
                "requestRedirect": {"hostname": host.as_str(), "statusCode": code}});
            let path = RoutePath { kind: "PathPrefix", value: "/".into() };
            let value = json!({"matches": [{"path": path.value()}], "filters": [redirect]});
            let mut parents = vec![self.http(&said.key.namespace)];
            let hosts = [other];
            parents.extend(self.sections(&hosts));
            self.push_routes(said, &[Rule { path, value }], &hosts, &parents);
            notes.different(
                said.key,
                "its redirects between names with and without www. keep a slash at the end of a path",
            );
        }
    }

    /// The objects; from `first_guest` on the routes are those of other namespaces than the owners'.
    fn finish(mut self, first_guest: usize) -> Objects {
        let mut classes = self.world.gateway_api.classes.iter();
        let ours = classes.find(|(_, class)| class.spec.controller_name == self.names.controller);
        let class = ours.map_or("oxigress", |(key, _)| key.name.as_str());
        let mut all = Vec::new();
        if ours.is_none() {
            let spec = json!({"controllerName": self.names.controller});
            all.push(object::of_api("GatewayClass", &Key::new("", class), spec));
        }
        for (namespace, listeners) in &self.listeners {
            for (number, (name, https)) in
                listeners.by_gateway(&self.names.gateway).into_iter().enumerate()
            {
                let http = json!({"name": "http", "port": 80, "protocol": "HTTP"});
                let https = https.into_iter().map(|(name, host, secret)| {
                    json!({"name": name, "port": 443, "protocol": "HTTPS", "hostname": host.as_str(),
                        "tls": {"certificateRefs": [{"name": secret.name.as_str()}]}})
                });
                let here = (number == 0).then_some(http).into_iter().chain(https);
                let here = here.map(|listener| listeners.with_guests(listener, namespace));
                let here: Vec<_> = here.collect();
                let spec = json!({"gatewayClassName": class, "listeners": here});
                all.push(object::of_api("Gateway", &Key::new(namespace, name.as_str()), spec));
            }
        }
        all.extend(self.policies);
        let guests = self.routes.split_off(first_guest);
        all.extend(self.routes);
        Objects { all, guests }
    }
}

fn is_same_path(one: &Path, other: &Path) -> bool {
    let is_exact = |path: &Path| path.path_type == PathType::Exact;
    is_exact(one) == is_exact(other) && one.written() == other.written()
}
