//! Differences that are documented: they are folded in the report, each with the page that gives its reason.

use crate::answer::{Aspect, Difference};
use crate::requests::Request;

/// A difference that the documentation names.
#[derive(Debug)]
pub struct Known {
    /// Its name in the report.
    pub name: &'static str,
    /// What differs, and why, as a sentence of the report.
    pub what: &'static str,
    /// The page that tells it.
    pub page: &'static str,
    /// Whether all the differences of a request are this one.
    is: fn(&Request, &Difference) -> bool,
}

const FAKE: &str = "Kubernetes Ingress Controller Fake Certificate";

/// All of them. Each rule looks at one difference of a request.
pub const KNOWN: &[Known] = &[
    Known {
        name: "vary-origin",
        what: "CORS with a list of origins varies by Origin, so that caches do not mix answers",
        page: "docs/differences/routes.md",
        is: |_, one| is_header(one, "vary") && without_origin(&one.new) == without_origin(&one.old),
    },
    Known {
        name: "prefix-with-slash",
        what: "Prefix /foo/ takes /foo, which ingress-nginx redirects to /foo/",
        page: "docs/differences/routes.md",
        is: |request, one| match one.aspect {
            Aspect::Status => one.old == "301" && !request.path().ends_with('/'),
            Aspect::Location => {
                one.new == "none" && path_of(&one.old) == format!("{}/", request.path())
            }
            _ => false,
        },
    },
    Known {
        name: "port-of-redirect",
        what: "from-to-www-redirect leads to the port that the client uses, not to nginx's own",
        page: "docs/differences/annotations.md",
        is: |_, one| {
            one.aspect == Aspect::Location
                && one.old != one.new
                && without_port(&one.old) == one.new
        },
    },
    Known {
        name: "default-certificate",
        what: "each gateway makes its own default certificate",
        page: "docs/tls.md",
        is: |_, one| {
            one.aspect == Aspect::Certificate
                && one.old.starts_with(FAKE)
                && one.new.starts_with(FAKE)
        },
    },
];

fn is_header(one: &Difference, name: &str) -> bool {
    matches!(&one.aspect, Aspect::Header(header) if header == name)
}

fn without_origin(value: &str) -> Vec<String> {
    let parts = value.split(',').map(|part| part.trim().to_ascii_lowercase());
    parts.filter(|part| part != "origin" && part != "none" && !part.is_empty()).collect()
}

fn path_of(url: &str) -> String {
    let rest =
        url.split_once("://").map_or(url, |(_, rest)| rest.find('/').map_or("/", |at| &rest[at..]));
    rest.split('?').next().unwrap_or_default().to_owned()
}

fn without_port(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    };
    format!("{scheme}://{host}{path}")
}

/// The documented difference that a difference is, if it is one. The redirect of `prefix-with-slash` counts only whole:
/// `all` are the differences of the request.
pub fn find(request: &Request, one: &Difference, all: &[Difference]) -> Option<&'static Known> {
    let known = KNOWN.iter().find(|known| (known.is)(request, one))?;
    let needs = |aspect: Aspect| {
        all.iter().any(|other| other.aspect == aspect && (known.is)(request, other))
    };
    let is_whole =
        known.name != "prefix-with-slash" || needs(Aspect::Status) && needs(Aspect::Location);
    is_whole.then_some(known)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn difference(aspect: Aspect, old: &str, new: &str) -> Difference {
        Difference { aspect, old: old.into(), new: new.into() }
    }

    fn name(target: &str, all: &[Difference]) -> Option<&'static str> {
        let request = Request {
            method: "GET".into(),
            is_https: false,
            host: "a.test".into(),
            target: target.into(),
        };
        find(&request, &all[0], all).map(|known| known.name)
    }

    #[test]
    fn documented_differences_are_known_and_others_are_not() {
        let header = |name: &str| Aspect::Header(name.into());
        assert_eq!(name("/", &[difference(header("server"), "none", "nginx")]), None);
        assert_eq!(name("/", &[difference(header("vary"), "none", "Origin")]), Some("vary-origin"));
        assert_eq!(name("/", &[difference(header("vary"), "Accept", "Origin")]), None);
        let redirect = |old: &str, new: &str| [difference(Aspect::Location, old, new)];
        assert_eq!(
            name("/", &redirect("http://b.test:8080/x", "http://b.test/x")),
            Some("port-of-redirect")
        );
        assert_eq!(name("/", &redirect("http://b.test:8080/x", "http://c.test/x")), None);
        let certificate = |name: &str| format!("{name} (00)");
        let both = [difference(Aspect::Certificate, &certificate(FAKE), &certificate(FAKE))];
        assert_eq!(name("/", &both), Some("default-certificate"));
        let one = [difference(Aspect::Certificate, &certificate("a.test"), &certificate(FAKE))];
        assert_eq!(name("/", &one), None);
    }

    #[test]
    fn a_redirect_to_the_slash_is_known_only_whole() {
        let status = || difference(Aspect::Status, "301", "200");
        let location = |to: &str| difference(Aspect::Location, to, "none");
        let expected = Some("prefix-with-slash");
        assert_eq!(name("/foo?a", &[status(), location("http://a.test/foo/?a")]), expected);
        assert_eq!(name("/foo", &[status(), location("http://a.test/bar/")]), None);
        assert_eq!(name("/foo", &[status()]), None);
        assert_eq!(name("/foo/", &[status(), location("/foo/")]), None);
    }

    #[test]
    fn the_pages_exist() {
        for known in KNOWN {
            let page = format!("{}/../../{}", env!("CARGO_MANIFEST_DIR"), known.page);
            assert!(std::fs::exists(&page).unwrap(), "{page}");
        }
    }
}
