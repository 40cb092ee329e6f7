//! What is to be said of Ingresses among each other.

use super::super::hosts;
use super::{Notes, Plan, Said};
use oxigress_core::model::HostPattern;
use oxigress_objects::Name;
use oxigress_objects::ingress::PathType;
use std::collections::{BTreeMap, BTreeSet};

impl Plan<'_, '_> {
    /// What Ingresses say about whole hosts, and does not hold: the host is another namespace's, or follows another one.
    pub(super) fn name_ignored(&self, notes: &mut Notes) {
        for said in self.said.iter().filter(|said| !said.is_canary) {
            self.certificates.name_unused(said, &self.hosts, notes);
            let all = said.hosts();
            for host in &all {
                let is_settled = self.hosts.is_settled_by(host, said.key);
                let whose = self.hosts.whose(host, &said.key.namespace);
                if let Some(whose) = whose.filter(|_| self.hosts.home(host).is_none()) {
                    notes.lost(said.key, format!("HTTPS, and redirects to it: {whose}"));
                }
                let by = self.hosts.of(host).app_root_by.as_ref();
                if said.app_root.is_some() && by != Some(said.key) {
                    let why = match by.filter(|_| is_settled) {
                        Some(by) => format!("Ingress {by} says it for {}", hosts::words(host)),
                        None => self.hosts.why_unsettled(host, said.key),
                    };
                    notes.lost(said.key, format!("annotation app-root: {why}"));
                }
                let other = hosts::counterpart(host).filter(|_| said.from_to_www);
                let why = other.and_then(|other| match is_settled {
                    true => self.hosts.whose(&other, &said.key.namespace),
                    false => Some(self.hosts.why_unsettled(host, said.key)),
                });
                if let Some(why) = why {
                    notes.lost(said.key, format!("annotation from-to-www-redirect: {why}"));
                }
            }
            self.name_lost_aliases(said, &all, notes);
        }
    }

    /// Names in server-alias that are no aliases; `all` are the hosts of the Ingress.
    fn name_lost_aliases(&self, said: &Said<'_>, all: &BTreeSet<HostPattern>, notes: &mut Notes) {
        let settled = all.iter().filter(|host| self.hosts.is_settled_by(host, said.key));
        let settled: BTreeSet<_> = settled.collect();
        let is_served = |alias: &HostPattern| {
            let follows = self.hosts.of(alias).follows.as_ref();
            all.contains(alias) || follows.is_some_and(|one| settled.contains(&one.host))
        };
        let mut lost = said.aliases.iter().filter(|alias| !is_served(alias));
        let Some(first) = lost.next() else { return };
        let (count, total) = (1 + lost.count(), said.aliases.len());
        let host = all.first().filter(|_| settled.is_empty()).unwrap_or(first);
        let why = self.hosts.why_unsettled(host, said.key);
        let what = format!("{count} of {total} hosts left out as aliases, such as {first}: {why}");
        notes.lost(said.key, format!("annotation server-alias: {what}"));
    }

    /// Hosts whose routes are of several namespaces.
    pub(super) fn name_guests(&self, notes: &mut Notes) {
        if self.with_guests.is_empty() {
            return;
        }
        notes.ages.push(
            "without Ingresses the oldest route or listener that names a host makes its namespace the owner, and of two \
             routes the older has a path: apply those below the comment on other namespaces a second after the rest"
                .into(),
        );
        for (host, guests) in &self.with_guests {
            let guests: Vec<_> = guests.iter().map(|guest| guest.as_str()).collect();
            let owner = self.hosts.home(host).map_or("", |owner| owner.as_str());
            let (host, guests) = (hosts::words(host), guests.join(", "));
            notes.ages.push(format!(
                "{host}: routes of namespace {owner} must be older than those of {guests}"
            ));
        }
    }

    /// Hosts of which a wildcard or a route without hosts takes the rest, and is of another namespace.
    pub(super) fn name_open_roots(&self, notes: &mut Notes) {
        for host in self.hosts.settled().filter(|host| self.owned.contains(host)) {
            let served = self.hosts.of(host);
            let mut above = hosts::above(host).filter(|above| self.owned.contains(above));
            let is_open = !served.has_root;
            let found =
                above.find(|above| is_open && self.hosts.home(above) != self.hosts.home(host));
            if let (Some(above), Some(first)) = (found, served.settled_by.first()) {
                let taker = self.hosts.home(&above).map_or("", |home| home.as_str());
                let (host, above) = (hosts::words(host), hosts::words(&above));
                notes.different(
                    first,
                    format!("{host} has no path /: what its routes leave goes to those of {above}, of namespace {taker}"),
                );
            }
        }
    }

    /// Canaries of paths that no main Ingress has.
    pub(super) fn name_lone_canaries(&self, notes: &mut Notes) {
        let (canaries, mains): (Vec<_>, Vec<_>) = self.said.iter().partition(|said| said.is_canary);
        let mains: BTreeSet<_> =
            mains.into_iter().flat_map(paths_of).map(|(_, path)| path).collect();
        for canary in canaries {
            let lone = paths_of(canary).filter(|(_, path)| !mains.contains(path));
            for ((r, p), _) in lone {
                notes.lost(
                    canary.key,
                    format!("spec.rules[{r}].http.paths[{p}]: no main Ingress of its namespace has the path"),
                );
            }
        }
    }

    /// Hosts that have requests of others: a less specific host takes what a route leaves.
    pub(super) fn name_overlaps(&self, notes: &mut Notes) {
        let mains: Vec<_> = self.said.iter().filter(|said| !said.is_canary).collect();
        let has_catch_all = |said: &Said<'_>| {
            said.ingress.rules.is_empty() && said.ingress.default_backend.is_some()
                || said.ingress.rules.iter().any(|rule| rule.host.is_empty())
        };
        let is_many = mains.len() > 1;
        for said in mains.iter().filter(|said| is_many && has_catch_all(said)) {
            notes.different(
                said.key,
                "its rules without a host also take what the routes of named hosts leave; of an Ingress that is 404",
            );
        }
        let stars = |said: &Said<'_>| {
            let hosts = said.ingress.rules.iter().map(|rule| rule.host.clone());
            hosts.filter(|host| host.starts_with("*.")).collect::<BTreeSet<_>>()
        };
        for said in &mains {
            for host in stars(said) {
                notes.different(
                    said.key,
                    format!("{host}: the star of a route stands for one label or more, and takes what routes of its names leave"),
                );
            }
        }
        let mut balanced = BTreeMap::new();
        for by in mains.iter().filter(|said| said.balances()) {
            for service in services(by) {
                balanced.entry((&by.key.namespace, service)).or_insert(by.key);
            }
        }
        for other in mains.iter().filter(|said| !said.balances()) {
            let all = services(other).into_iter();
            let mut by = all.filter_map(|name| balanced.get(&(&other.key.namespace, name)));
            if let Some(by) = by.next() {
                notes.different(
                    other.key,
                    format!("it no longer follows what Ingress {by} says about balancing of the same Service"),
                );
            }
        }
    }
}

/// A path of a namespace: host, whether it is exact, and the text.
type NamespacePath<'s> = (&'s Name, String, bool, &'s str);

/// The paths of an Ingress, with their places in it.
fn paths_of<'s>(
    said: &'s Said<'_>,
) -> impl Iterator<Item = ((usize, usize), NamespacePath<'s>)> + use<'s> {
    let namespace = &said.key.namespace;
    said.ingress.rules.iter().enumerate().flat_map(move |(r, rule)| {
        let host = rule.host.to_ascii_lowercase();
        rule.paths.iter().enumerate().map(move |(p, path)| {
            let is_exact = path.path_type == PathType::Exact;
            ((r, p), (namespace, host.clone(), is_exact, path.written()))
        })
    })
}

/// The Services that an Ingress leads to.
fn services(said: &Said<'_>) -> BTreeSet<String> {
    use oxigress_objects::ingress::Target;
    let rules = said.ingress.rules.iter().flat_map(|rule| &rule.paths);
    let targets = rules.map(|path| &path.target).chain(&said.ingress.default_backend);
    let names = targets.filter_map(|target| match target {
        Target::Service { name, .. } => Some(name.clone()),
        Target::Resource(_) => None,
    });
    names.collect()
}
