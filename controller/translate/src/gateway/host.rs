//! Host names of listeners and routes.

use oxigress_core::model::HostPattern;

/// What follows the star of the wildcards above a host, the most specific first; of a wildcard also its own.
pub fn levels(host: &HostPattern) -> impl Iterator<Item = &str> {
    let name = host.as_str().trim_start_matches('*');
    name.match_indices('.').filter_map(move |(dot, _)| name.get(dot..))
}

/// Whether every host of `inner` is one of `outer`: the star stands for one or more labels.
pub fn covers(outer: &HostPattern, inner: &HostPattern) -> bool {
    if outer.as_str() == HostPattern::DEFAULT || outer == inner {
        return true;
    }
    match outer.as_str().strip_prefix('*') {
        Some(parent) => {
            inner.as_str().strip_prefix('*').unwrap_or(inner.as_str()).ends_with(parent)
        }
        None => false,
    }
}

/// The hosts that are both a listener's and a route's; `None`: there are none.
pub fn intersection(listener: &HostPattern, route: &HostPattern) -> Option<HostPattern> {
    match () {
        () if covers(listener, route) => Some(route.clone()),
        () if covers(route, listener) => Some(listener.clone()),
        () => None,
    }
}

/// Orders patterns: what is greater is more specific than what covers it.
pub fn specificity(host: &HostPattern) -> (bool, usize) {
    match host.as_str() {
        HostPattern::DEFAULT => (false, 0),
        text => (!host.is_wildcard(), text.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_one_or_more_labels() {
        let host = |text| HostPattern::parse(text).unwrap();
        let meet = |a, b| intersection(&host(a), &host(b)).map(|found| found.to_string());
        for (listener, route, expected) in [
            ("_", "a.test", Some("a.test")),
            ("a.test", "_", Some("a.test")),
            ("a.test", "a.test", Some("a.test")),
            ("a.test", "b.test", None),
            ("*.test", "a.b.test", Some("a.b.test")),
            ("*.test", "test", None),
            ("*.test", "*.a.test", Some("*.a.test")),
            ("a.b.test", "*.test", Some("a.b.test")),
            ("*.a.test", "*.b.test", None),
            ("*.a.test", "xa.test", None),
        ] {
            assert_eq!(meet(listener, route).as_deref(), expected, "{listener} {route}");
        }
    }
}
