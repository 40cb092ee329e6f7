//! Hosts that nobody claims and that follow another: aliases, and names with and without `www.`.
//!
//! Source:  compat/annotations.md §3: server-alias of the oldest Ingress that has any; from-to-www-redirect of any.
//!          A host that somebody claims itself follows nobody.

use super::ingress::Claims;
use oxigress_core::model::HostPattern;
use std::collections::BTreeSet;

/// A host that follows another. The order puts those of one name together, and aliases first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Follower {
    /// The host.
    pub host: HostPattern,
    /// It sends its clients there; else it has the same rules.
    pub is_redirected: bool,
}

impl Follower {
    /// The first that `host` may be.
    pub fn first_of(host: &HostPattern) -> Self {
        Follower { host: host.clone(), is_redirected: false }
    }
}

/// Who follows `host`, as the claims on it say, which are in their order.
pub fn of(host: &HostPattern, claims: &[&Claims]) -> BTreeSet<Follower> {
    let mains = || claims.iter().filter(|by| by.canary().is_none()).map(|by| by.about_hosts());
    let aliases = mains().map(|hosts| &hosts.aliases).find(|aliases| !aliases.is_empty());
    let aliases = aliases.into_iter().flatten().map(Follower::first_of);
    let www = mains().any(|hosts| hosts.from_to_www).then(|| counterpart(host)).flatten();
    let www = www.map(|host| Follower { host, is_redirected: true });
    aliases.chain(www).filter(|follower| follower.host != *host).collect()
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
