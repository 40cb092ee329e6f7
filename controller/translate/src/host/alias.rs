//! Hosts that follow another: aliases, and names with and without `www.`.
//!
//! Source:  ingress-nginx's annotations: server-alias of the oldest Ingress that has any; from-to-www-redirect of any.
//!          Who decides whether a host follows is [`crate::host::owner::hold`].

use crate::host::merge::MAX_COPIED_RULES;
use crate::host::owner::{Age, Owner};
use oxigress_core::model::HostPattern;
use oxigress_objects::Key;
use std::collections::BTreeSet;

/// A host that follows another. The order puts those of one name together, oldest first, and aliases before redirects.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Alias {
    /// The host.
    pub host: HostPattern,
    /// The Ingress that says so.
    pub age: Age,
    /// It sends its clients there; else it has the same rules.
    pub is_redirected: bool,
}

impl Alias {
    /// What comes before every other follower of this name.
    pub fn first_of(host: &HostPattern) -> Self {
        let age = Age { created: i64::MIN, key: Key::new("", "") };
        Alias { host: host.clone(), age, is_redirected: false }
    }

    /// The annotation that says so.
    pub fn annotation(&self) -> &'static str {
        if self.is_redirected { "from-to-www-redirect" } else { "server-alias" }
    }
}

/// Who follows `host`, as its owner says.
pub fn of(host: &HostPattern, owner: &Owner<'_>) -> BTreeSet<Alias> {
    let aliases = owner.aliases().into_iter().flat_map(|(by, _)| {
        let follower = |alias: &HostPattern| (alias.clone(), by.age(), false);
        served(host, owner).iter().map(follower)
    });
    let www = owner.settings().find(|(_, settings)| settings.hosts.from_to_www);
    let www = www.and_then(|(by, _)| Some((counterpart(host)?, by.age(), true)));
    let all = aliases.chain(www).filter(|(follower, ..)| follower != host);
    all.map(|(host, age, is_redirected)| Alias { host, age, is_redirected }).collect()
}

/// The aliases that are served: each has all paths of the host.
pub fn served<'a>(host: &HostPattern, owner: &Owner<'a>) -> &'a [HostPattern] {
    let aliases = owner.aliases().map_or(&[][..], |(_, aliases)| aliases);
    let copies = MAX_COPIED_RULES / owner.paths(host).max(1);
    aliases.get(..copies.saturating_sub(1)).unwrap_or(aliases)
}

/// The name with `www.`, or without it.
fn counterpart(host: &HostPattern) -> Option<HostPattern> {
    if *host == HostPattern::default_host() || host.is_wildcard() {
        return None;
    }
    match host.as_str().strip_prefix("www.") {
        Some(rest) => HostPattern::parse(rest).ok(),
        None => HostPattern::parse(&format!("www.{host}")).ok(),
    }
}
