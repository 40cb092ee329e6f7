//! Which objects there are: a Gateway in each namespace of Ingresses, the routes and the Policy of each Ingress.

mod rules;
mod told;

use super::paths::RoutePath;
use super::said::{Said, ToHttps};
use super::tls::{Certificates, Listeners};
use super::{Notes, object};
use oxigress_objects::gateway::GROUP;
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

/// The objects, those that others name first.
pub fn plan(
    world: &World,
    settings: &Settings,
    served: &BTreeSet<Key>,
    names: &Names,
    notes: &mut Notes,
) -> Vec<Value> {
    let mut ours: Vec<_> = world.ingresses.iter().filter(|(key, _)| served.contains(key)).collect();
    ours.sort_by_key(|(key, ingress)| (ingress.created, *key));
    let said = ours.into_iter();
    let said =
        said.filter_map(|(key, ingress)| Said::of(key, ingress, settings, &names.prefix, notes));
    let said: Vec<Said<'_>> = said.collect();
    let mut plan = Plan {
        world,
        settings,
        names,
        certificates: Certificates::of(&said, notes),
        said: &said,
        listeners: BTreeMap::new(),
        grants: BTreeSet::new(),
        taken: BTreeSet::new(),
        routes: Vec::new(),
    };
    let mains = said.iter().filter(|said| !said.is_canary);
    mains.for_each(|said| plan.add(said, notes));
    plan.name_lone_canaries(notes);
    plan.name_overlaps(notes);
    plan.finish()
}

struct Plan<'p, 'w> {
    world: &'w World,
    settings: &'p Settings,
    names: &'p Names,
    certificates: Certificates,
    said: &'p [Said<'w>],
    /// By namespace.
    listeners: BTreeMap<Name, Listeners>,
    /// Namespaces of Gateways, and the Secrets of others that they show.
    grants: BTreeSet<(Name, Key)>,
    /// Names of routes.
    taken: BTreeSet<Key>,
    routes: Vec<Value>,
}

impl<'p, 'w> Plan<'p, 'w> {
    /// Adds the routes of an Ingress.
    fn add(&mut self, said: &'p Said<'w>, notes: &mut Notes) {
        self.listeners.entry(said.key.namespace.clone()).or_default();
        if !said.policy.is_empty() {
            self.routes.push(object::policy(said.key, said.policy.clone()));
        }
        let mut groups: Vec<(Vec<Rule>, bool, Vec<String>)> = Vec::new();
        for (host, rules) in self.hosts(said, notes) {
            let is_redirected = self.is_redirected(said, &host);
            // A route without host names has all hosts.
            let mut named = groups
                .iter_mut()
                .filter(|(_, _, hosts)| !host.is_empty() && !hosts.iter().any(String::is_empty));
            match named.find(|(known, by, _)| *known == rules && *by == is_redirected) {
                Some((_, _, hosts)) => hosts.push(host),
                None => groups.push((rules, is_redirected, vec![host])),
            }
        }
        for (rules, is_redirected, hosts) in groups {
            for hosts in hosts.chunks(MAX_HOSTS) {
                self.add_routes(said, &rules, is_redirected, hosts, notes);
            }
        }
        if said.from_to_www {
            self.redirect_www(said, notes);
        }
    }

    /// Whether plain HTTP of a host is redirected by this Ingress.
    fn is_redirected(&self, said: &Said<'_>, host: &str) -> bool {
        match said.to_https {
            ToHttps::Never => false,
            ToHttps::WithCertificate => self.certificates.find(host).is_some(),
            ToHttps::Always => true,
        }
    }

    /// Whether an Ingress has the root of a host.
    fn has_root(&self, host: &str) -> bool {
        let mains = self.said.iter().filter(|said| !said.is_canary);
        let rules = mains.flat_map(|said| &said.ingress.rules);
        let mut rules = rules.filter(|rule| rule.host.eq_ignore_ascii_case(host));
        rules.any(|rule| rule.paths.iter().any(is_root))
    }

    fn add_routes(
        &mut self,
        said: &'p Said<'w>,
        rules: &[Rule],
        is_redirected: bool,
        hosts: &[String],
        notes: &mut Notes,
    ) {
        let sections = self.sections(said, hosts);
        let http = (self.names.gateway.clone(), "http".to_owned());
        let exempt = |rule: &&Rule| {
            let mut all = self.settings.no_tls_redirect_locations.iter();
            all.any(|beginning| rule.path.value.starts_with(beginning.as_str()))
        };
        if !is_redirected {
            let sections: Vec<_> = std::iter::once(http).chain(sections).collect();
            return self.push_routes(said, rules, hosts, &sections);
        }
        let open: Vec<Rule> = rules.iter().filter(exempt).cloned().collect();
        let redirects = self.redirects(said, rules, hosts, notes);
        self.push_routes(said, &[redirects, open].concat(), hosts, &[http]);
        match sections.is_empty() {
            true => notes.lost(
                said.key,
                format!(
                    "HTTPS of {}: no entry of spec.tls has a certificate for a listener",
                    hosts.join(", ")
                ),
            ),
            false => self.push_routes(said, rules, hosts, &sections),
        }
    }

    /// The redirects to HTTPS in place of these rules.
    fn redirects(
        &self,
        said: &Said<'w>,
        rules: &[Rule],
        hosts: &[String],
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
        // The oldest Ingress of a host also redirects what no path takes.
        let is_first = hosts.iter().all(|host| {
            let mut all = self.said.iter().filter(|said| !said.is_canary);
            !self.has_root(host)
                && all.find(|said| has_host(said, host)).is_none_or(|first| first.key == said.key)
        });
        if is_first {
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
    fn is_alone(&self, said: &Said<'_>, host: &str) -> bool {
        !self.said.iter().any(|other| other.key != said.key && has_host(other, host))
    }

    /// The Gateways and listeners of hosts that have certificates.
    fn sections(&mut self, said: &Said<'_>, hosts: &[String]) -> Vec<(String, String)> {
        let namespace = &said.key.namespace;
        let mut all = Vec::new();
        for host in hosts {
            let Some((shown, secret)) = self.certificates.find(host) else { continue };
            if secret.namespace != *namespace {
                self.grants.insert((namespace.clone(), secret.clone()));
            }
            let listeners = self.listeners.entry(namespace.clone()).or_default();
            all.push(listeners.section(&self.names.gateway, shown, secret));
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
        hosts: &[String],
        sections: &[(String, String)],
    ) {
        let parents: Vec<_> = sections
            .iter()
            .map(|(gateway, section)| json!({"name": gateway, "sectionName": section}))
            .collect();
        let hosts: Vec<_> = hosts.iter().filter(|host| !host.is_empty()).collect();
        for rules in rules.chunks(MAX_RULES) {
            let rules: Vec<_> = rules.iter().map(|rule| &rule.value).collect();
            let mut spec = json!({"parentRefs": parents, "rules": rules});
            if !hosts.is_empty() {
                spec["hostnames"] = json!(hosts);
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

    /// The other name of a host, with or without `www.`, which leads to it.
    fn redirect_www(&mut self, said: &'p Said<'w>, notes: &mut Notes) {
        let hosts: BTreeSet<String> =
            said.ingress.rules.iter().map(|rule| rule.host.to_ascii_lowercase()).collect();
        for host in hosts.iter().filter(|host| !host.is_empty() && !host.starts_with('*')) {
            let other = match host.strip_prefix("www.") {
                Some(rest) => rest.to_owned(),
                None => format!("www.{host}"),
            };
            if self.said.iter().any(|said| has_host(said, &other)) {
                continue;
            }
            let code: u16 = self.settings.http_redirect_code.into();
            let redirect = json!({"type": "RequestRedirect",
                "requestRedirect": {"hostname": host, "statusCode": code}});
            let path = RoutePath { kind: "PathPrefix", value: "/".into() };
            let value = json!({"matches": [{"path": path.value()}], "filters": [redirect]});
            let hosts = [other];
            let mut sections = vec![(self.names.gateway.clone(), "http".to_owned())];
            sections.extend(self.sections(said, &hosts));
            self.push_routes(said, &[Rule { path, value }], &hosts, &sections);
            notes.different(
                said.key,
                "its redirects between names with and without www. keep a slash at the end of a path",
            );
        }
    }

    fn finish(self) -> Vec<Value> {
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
                    let mut reference = json!({"name": secret.name.as_str()});
                    if secret.namespace != *namespace {
                        reference["namespace"] = json!(secret.namespace.as_str());
                    }
                    json!({"name": name, "port": 443, "protocol": "HTTPS", "hostname": host,
                        "tls": {"certificateRefs": [reference]}})
                });
                let all_of_it: Vec<_> =
                    (number == 0).then_some(http).into_iter().chain(https).collect();
                let spec = json!({"gatewayClassName": class, "listeners": all_of_it});
                all.push(object::of_api("Gateway", &Key::new(namespace, name.as_str()), spec));
            }
        }
        for (namespace, secret) in &self.grants {
            let key = Key::new(&secret.namespace, format!("{namespace}-{}", secret.name));
            let spec = json!({
                "from": [{"group": GROUP, "kind": "Gateway", "namespace": namespace.as_str()}],
                "to": [{"group": "", "kind": "Secret", "name": secret.name.as_str()}]});
            all.push(object::grant(&key, spec));
        }
        all.extend(self.routes);
        all
    }
}

fn is_root(path: &Path) -> bool {
    path.path_type != PathType::Exact && path.written() == "/"
}

fn is_same_path(one: &Path, other: &Path) -> bool {
    let is_exact = |path: &Path| path.path_type == PathType::Exact;
    is_exact(one) == is_exact(other) && one.written() == other.written()
}

fn has_host(said: &Said<'_>, host: &str) -> bool {
    said.ingress.rules.iter().any(|rule| rule.host.eq_ignore_ascii_case(host))
}
