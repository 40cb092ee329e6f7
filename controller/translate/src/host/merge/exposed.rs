//! What would answer requests for a path that is restricted and not served.

use super::{Merge, Winner};
use crate::ingress::Claims;
use oxigress_core::model::{HostPattern, PathPattern};
use oxigress_core::patterns::{leading_text, literal_prefix};
use oxigress_objects::verdict::Note;
use oxigress_objects::{Key, Kind, ObjectRef};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Bound;

/// Restricted paths of a namespace that are not served on a host.
#[derive(Default)]
struct Exposed<'a> {
    /// In lower case.
    paths: BTreeMap<Cow<'a, str>, &'a Claims>,
    /// One that has paths of which nothing is known, or for which the host has no place.
    unknown: Option<&'a Claims>,
}

impl<'a> Exposed<'a> {
    /// Whose requests may come to this path.
    fn below(&self, pattern: &PathPattern) -> Option<&'a Claims> {
        let beginning = match pattern {
            PathPattern::Exact(_) => return None,
            PathPattern::Prefix(path) => path.to_ascii_lowercase(),
            PathPattern::Regex(text) => String::from_utf8(literal_prefix(text)).unwrap_or_default(),
        };
        let is_prefix = matches!(pattern, PathPattern::Prefix(_));
        let first = |beginning: &str| {
            let mut from_here =
                self.paths.range::<str, _>((Bound::Included(beginning), Bound::Unbounded));
            from_here.next().filter(|(path, _)| path.starts_with(beginning)).map(|(_, by)| *by)
        };
        // Between a path and what lies below it stand others, such as `/a-b`.
        let found = match is_prefix {
            true => {
                self.paths.get(beginning.as_str()).copied().or_else(|| first(&(beginning + "/")))
            }
            false => first(&beginning),
        };
        found.or(self.unknown)
    }
}

impl<'a> Merge<'a> {
    /// Closes what its namespace has open on the host, and what would answer requests for paths that it restricts and that are
    /// not served.
    pub(super) fn close_exposed(&mut self, source: &HostPattern) {
        let all = self.exposed(source);
        if all.is_empty() {
            return;
        }
        let mut told: BTreeMap<&Key, &Claims> = BTreeMap::new();
        for (pattern, winner) in &mut self.winners {
            let Winner { by, closer, .. } = winner;
            let exposed = all.get(by.key.namespace.as_str()).filter(|_| !by.protects);
            let Some(cause) = exposed.and_then(|exposed| exposed.below(pattern)) else { continue };
            *closer = closer.or(Some(cause));
            told.entry(&by.key).or_insert(cause);
        }
        for (key, cause) in told {
            let message = format!(
                "host {}: paths of this Ingress answer 503, since they would also answer requests for paths that Ingress {} \
                 restricts and that are not served: correct that one, its own messages name the paths",
                self.host, cause.key
            );
            let object = ObjectRef::new(Kind::Ingress, key.clone());
            self.merged.notes.push((object, Note::rejected(message)));
        }
    }

    fn exposed(&self, source: &HostPattern) -> BTreeMap<&'a str, Exposed<'a>> {
        let mut all: BTreeMap<&str, Exposed<'_>> = BTreeMap::new();
        for by in self.view.mains.iter().copied().filter(|by| by.protects) {
            let namespace = by.key.namespace.as_str();
            for path in by.unserved_on(source) {
                all.entry(namespace).or_default().paths.insert(Cow::from(&**path), by);
            }
            if by.has_unknown_paths() || self.full.contains(&by.key) {
                all.entry(namespace).or_default().unknown.get_or_insert(by);
            }
        }
        for (by, claim) in self.unclosed.iter().filter(|(by, _)| by.protects) {
            let path = match claim.pattern {
                PathPattern::Regex(_) => leading_text(&claim.path),
                _ => &claim.path,
            };
            let exposed = all.entry(by.key.namespace.as_str()).or_default();
            exposed.paths.insert(Cow::from(path.to_ascii_lowercase()), by);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use crate::{Translator, tests};
    use oxigress_core::model::{HostPattern, MAX_RULES, PathPattern};

    const AUTH: &str = "nginx.ingress.kubernetes.io/whitelist-source-range: 127.0.0.1";
    const OPEN: &str = "nginx.ingress.kubernetes.io/proxy-read-timeout: '5'";

    /// One Ingress in the format of manifests.
    fn ingress(namespace: &str, name: &str, annotation: &str, paths: &[String]) -> String {
        let class = "kubernetes.io/ingress.class: nginx";
        format!(
            "---\napiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {{ name: {name}, namespace: {namespace}, annotations: \
             {{ {class}, {annotation} }} }}\nspec: {{ rules: [{{ host: h.test, http: {{ paths: [{}] }} }}] }}\n",
            paths.join(", ")
        )
    }

    fn path(path: &str) -> String {
        let service = "{ service: { name: s, port: { number: 80 } } }";
        format!("{{ path: '{path}', pathType: ImplementationSpecific, backend: {service} }}")
    }

    fn no_service(path: &str) -> String {
        let resource = "{ resource: { kind: Bucket, name: b } }";
        format!("{{ path: '{path}', pathType: Prefix, backend: {resource} }}")
    }

    /// The paths of the host that answer 503, and how many Ingresses are told why.
    fn closed(all: &str, flags: &str) -> (Vec<String>, usize) {
        let (world, mut translator) = (tests::world(all), Translator::new(tests::options(flags)));
        translator.update(&world, &world.all());
        let snapshot = translator.snapshot();
        let rules = &snapshot.servers[&HostPattern::parse("h.test").unwrap()].rules;
        let plain = |path: &PathPattern| match path {
            PathPattern::Prefix(text) if text.is_empty() => "/".to_owned(),
            PathPattern::Prefix(text) | PathPattern::Exact(text) | PathPattern::Regex(text) => {
                text.to_string()
            }
        };
        let is_closed = |id| snapshot.policies[id].denied.is_some();
        let closed = rules.iter().filter(|rule| rule.policies.as_ref().is_some_and(is_closed));
        let closed = closed.map(|rule| plain(&rule.path)).collect();
        let told =
            translator.notes().filter(|(_, note)| note.message.contains("answer 503, since"));
        (closed, told.count())
    }

    #[test]
    fn a_restricted_path_that_is_not_served_is_answered_by_no_open_one() {
        let paths = ["/", "/a", "/A/b", "/a/b/c", "/ab", "/docs"].map(path);
        let site =
            ingress("n", "site", OPEN, &paths) + &ingress("other", "theirs", OPEN, &[path("/a/b")]);
        for (annotation, expected) in [(AUTH, vec!["/", "/A/b", "/a"]), (OPEN, vec![])] {
            let lost = ingress("n", "lost", annotation, &[no_service("/a/b/x")]);
            let (mut closed, told) = closed(&(site.clone() + &lost), "");
            closed.sort();
            assert_eq!(
                (closed, told),
                (expected.iter().map(|path| path.to_string()).collect(), expected.len().min(1))
            );
        }
        let regex = "nginx.ingress.kubernetes.io/use-regex: 'true'";
        let expressions = ["/a/(x|y)", "/b/.*"].map(path);
        let site = ingress("n", "site", regex, &expressions);
        let lost = ingress("n", "lost", AUTH, &[no_service("/a/b")]);
        assert_eq!(closed(&(site + &lost), "").0.len(), 1, "the redirect of the root apart");
    }

    #[test]
    fn what_has_no_place_and_is_restricted_leaves_nothing_open_but_exact_paths() {
        let exact = path("/exact").replace("ImplementationSpecific", "Exact");
        let site = ingress("n", "a-site", OPEN, &[path("/"), path("/docs"), exact]);
        let many: Vec<_> = (0..MAX_RULES).map(|n| path(&format!("/{n}"))).collect();
        for (annotation, count) in [(AUTH, 2), (OPEN, 0)] {
            let lost = ingress("n", "lost", annotation, &many);
            assert_eq!(
                closed(&(site.clone() + &lost), ""),
                (Vec::from(["/", "/docs"].map(String::from))[..count].to_vec(), count / 2)
            );
        }
        let attack = ingress("n", "lost", AUTH, &[path("/etc/passwd")]);
        assert_eq!(closed(&(site.clone() + &attack), "--deep-inspect").0.len(), 2);
        assert_eq!(closed(&(site + &attack), "--deep-inspect=false").0.len(), 0);
    }

    #[test]
    fn a_path_that_closes_nothing_of_its_own_closes_what_would_take_it() {
        let paths = ["/", "/a", "/b"].map(path);
        let lost = ingress("n", "lost", AUTH, &[path("/a").replace("'/a'", "\"/a\\u0001b\"")]);
        let site = ingress("n", "site", OPEN, &paths);
        let (closed, told) = closed(&(site + &lost), "");
        assert_eq!((closed.as_slice(), told), (&["/".to_string(), "/a".to_string()][..], 1));
    }
}
