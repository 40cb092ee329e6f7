//! What a snapshot names is there.

use super::*;

/// Every alternative exists and takes a part of one backend alone; what is passed through exists.
pub fn check(served: &Snapshot) -> Result<(), TestCaseError> {
    let rules = served.servers.values().flat_map(|server| &server.rules);
    let ruled: BTreeSet<_> = rules.filter_map(|rule| rule.backend.as_ref()).collect();
    for backend in served.backends.values() {
        for id in &backend.alternatives {
            prop_assert!(served.backends.get(id).is_some_and(|b| b.split.is_some()), "{}", id);
            prop_assert!(!ruled.contains(id), "{} is a canary and has a rule of its own", id);
        }
    }
    let servers = served.servers.values().chain(served.listener_servers.values());
    let rules = servers.flat_map(|server| &server.rules);
    let named: BTreeSet<_> = rules.filter_map(|rule| rule.policies.as_ref()).collect();
    prop_assert_eq!(named, served.policies.keys().collect::<BTreeSet<_>>());
    for policies in served.policies.values() {
        for id in ingress::urls(policies).chain(&policies.fallback) {
            prop_assert!(served.backends.contains_key(id), "{}", id);
        }
    }
    let shares = served.sessions.values().flat_map(|route| &route.targets);
    let shares = shares.filter_map(|share| share.backend.as_ref());
    for id in served.passthrough.values().chain(shares) {
        prop_assert!(served.backends.contains_key(id), "{}", id);
    }
    Ok(())
}
