//! Cross-origin resource sharing: which origins may read responses, and the headers that permit it.
//!
//! Shape:   [`Origins`] is read once from a policy; [`Origins::decide`] runs once a request.
//! Source:  ingress-nginx's annotations; the Fetch standard for what an origin is. Unlike in ingress-nginx a text is
//!          compared from both ends, an empty list allows no origin, and answers have `Vary` if they depend on
//!          the origin.

use crate::model::policy::Cors;

/// The origins that may read responses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origins {
    /// Every origin may read responses.
    Any,
    /// Only origins that match one of these patterns may.
    Listed(Vec<Pattern>),
}

/// One entry of a list, in lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Matches this origin and no other.
    Exact(Vec<u8>),
    /// One label, of letters, digits and `-`, or several, between two texts.
    AnyLabel {
        /// The scheme with its separator, such as `https://`.
        before: Vec<u8>,
        /// The rest of the origin, such as `.shop.test:8443`.
        after: Vec<u8>,
        /// Whether the wildcard takes several labels, as in `https://*.example.com` for `a.b.example.com`.
        is_deep: bool,
    },
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OriginDecision<'r> {
    /// The response has no headers of sharing.
    Unshared,
    /// The response permits the client; the value is that of `Access-Control-Allow-Origin`.
    Shared(&'r [u8]),
}

impl Origins {
    /// Of a policy. An entry that is no origin matches none.
    pub fn of(cors: &Cors) -> Self {
        match &cors.origins {
            None => Origins::Any,
            Some(list) => Origins::Listed(
                list.iter()
                    .filter_map(|text| Pattern::parse(text.as_str(), cors.is_of_route))
                    .collect(),
            ),
        }
    }

    /// Whether the answer depends on the `Origin` of the request.
    pub fn vary(&self) -> bool {
        matches!(self, Origins::Listed(_))
    }

    /// The decision about a client with this `Origin`.
    pub fn decide<'r>(&self, origin: Option<&'r [u8]>) -> OriginDecision<'r> {
        match (self, origin) {
            (Origins::Any, _) => OriginDecision::Shared(b"*"),
            (Origins::Listed(list), Some(origin)) if list.iter().any(|p| p.matches(origin)) => {
                OriginDecision::Shared(origin)
            }
            _ => OriginDecision::Unshared,
        }
    }
}

impl Pattern {
    /// `scheme://host[:port]`, where the host may begin with `*.`, or `null`.
    fn parse(text: &str, is_deep: bool) -> Option<Self> {
        let text = text.trim().to_ascii_lowercase();
        if text == "null" {
            return Some(Pattern::Exact(text.into()));
        }
        let (scheme, rest) = text.split_once("://")?;
        let is_scheme = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
        let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte);
        let name = rest.strip_prefix('*').unwrap_or(rest);
        let is_fine = !scheme.is_empty()
            && scheme.bytes().all(is_scheme)
            && name.bytes().all(is_host)
            && !name.is_empty();
        match (is_fine, rest.starts_with('*')) {
            (true, false) => Some(Pattern::Exact(text.into())),
            // `*` matches a whole label: `https://*shop.test` would match a part of one.
            (true, true) if name.starts_with('.') && name.len() > 1 => Some(Pattern::AnyLabel {
                before: format!("{scheme}://").into(),
                after: name.into(),
                is_deep,
            }),
            _ => None,
        }
    }

    fn matches(&self, origin: &[u8]) -> bool {
        match self {
            Pattern::Exact(text) => is_same(origin, text),
            Pattern::AnyLabel { before, after, is_deep } => {
                let label = origin.len().checked_sub(before.len() + after.len()).filter(|n| *n > 0);
                let Some((start, rest)) = label.and_then(|_| origin.split_at_checked(before.len()))
                else {
                    return false;
                };
                let Some((label, end)) = rest.split_at_checked(rest.len() - after.len()) else {
                    return false;
                };
                is_same(start, before)
                    && is_same(end, after)
                    && label.iter().all(|byte| {
                        byte.is_ascii_alphanumeric() || *byte == b'-' || (*is_deep && *byte == b'.')
                    })
            }
        }
    }
}

/// Whether a text is that of a pattern in any case: browsers send it in the pattern's.
#[inline]
fn is_same(text: &[u8], lower: &[u8]) -> bool {
    text == lower || text.eq_ignore_ascii_case(lower)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::policy::HeaderValue;

    fn listed(list: &[&str]) -> Origins {
        listed_as(list, false)
    }

    fn listed_as(list: &[&str], is_of_route: bool) -> Origins {
        let value = |text: &&str| HeaderValue::parse(*text).unwrap();
        let header = || HeaderValue::parse("GET").unwrap();
        Origins::of(&Cors {
            origins: Some(list.iter().map(value).collect()),
            methods: header(),
            headers: header(),
            exposed: None,
            credentials: false,
            max_age: 0,
            is_of_route,
        })
    }

    #[test]
    fn the_star_of_a_route_stands_for_several_labels() {
        let origin = b"https://a.b.shop.test";
        let decide =
            |is_of_route| listed_as(&["https://*.shop.test"], is_of_route).decide(Some(origin));
        assert_eq!(decide(true), OriginDecision::Shared(origin));
        assert_eq!(decide(false), OriginDecision::Unshared);
        let origins = listed_as(&["https://*.shop.test"], true);
        for other in ["https://shop.test", "https://a/.shop.test", "http://a.shop.test"] {
            assert_eq!(origins.decide(Some(other.as_bytes())), OriginDecision::Unshared, "{other}");
        }
    }

    fn allows(list: &[&str], origin: &str) -> bool {
        listed(list).decide(Some(origin.as_bytes())) == OriginDecision::Shared(origin.as_bytes())
    }

    #[test]
    fn an_origin_is_compared_from_both_ends() {
        assert!(allows(&["https://good.test"], "https://good.test"));
        for origin in [
            "https://evil.test/https://good.test",
            "https://good.test.evil.test",
            "xhttps://good.test",
            "https://good.test:8443",
            "https://good.test/",
            "https://agood.test",
            "http://good.test",
            "good.test",
            "null",
            "",
        ] {
            assert!(!allows(&["https://good.test"], origin), "{origin}");
        }
    }

    #[test]
    fn case_says_nothing() {
        assert!(allows(&["HTTPS://Good.test"], "https://gOOd.TEST"));
        assert!(allows(&["https://*.Good.test"], "HTTPS://A.good.TEST"));
    }

    #[test]
    fn a_star_is_one_label() {
        let list = ["https://*.good.test:8443"];
        assert!(allows(&list, "https://a-1.good.test:8443"));
        for origin in [
            "https://good.test:8443",
            "https://.good.test:8443",
            "https://a.b.good.test:8443",
            "https://evil.test/.good.test:8443",
            "https://evil.test?.good.test:8443",
            "https://a.good.test",
            "https://a.good.test:84430",
        ] {
            assert!(!allows(&list, origin), "{origin}");
        }
        // `before` and `after` do not share bytes.
        assert!(!allows(&["https://*./"], "https://./"));
    }

    #[test]
    fn what_is_no_origin_matches_nobody() {
        for entry in
            ["good.test", "https://", "https://*", "https://*good.test", "https://a b", "://a"]
        {
            assert_eq!(listed(&[entry]), Origins::Listed(vec![]), "{entry}");
        }
        assert!(!allows(&["good.test"], "good.test"));
    }

    #[test]
    fn a_list_with_nothing_in_it_allows_nobody() {
        assert!(!allows(&[], "https://good.test"));
        assert!(!allows(&[], ""));
        assert_eq!(listed(&[]).decide(None), OriginDecision::Unshared);
    }

    #[test]
    fn null_is_an_origin_where_it_is_listed() {
        assert!(allows(&["null"], "null"));
        assert!(!allows(&["https://good.test"], "null"));
    }

    #[test]
    fn everybody_may_is_said_with_a_star() {
        assert_eq!(Origins::Any.decide(Some(b"https://a.test")), OriginDecision::Shared(b"*"));
        assert_eq!(Origins::Any.decide(None), OriginDecision::Shared(b"*"));
    }
}
