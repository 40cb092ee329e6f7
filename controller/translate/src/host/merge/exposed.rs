//! What would answer requests for a path that is restricted and not served.

use super::{Merge, Winner};
use crate::ingress::{Claims, UnservedPath};
use oxigress_core::model::policy::Policies;
use oxigress_core::model::{HostPattern, PathPattern};
use oxigress_core::patterns::{leading_text, literal_prefix};
use oxigress_objects::verdict::Note;
use oxigress_objects::{Key, Kind, ObjectRef};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// Most paths of a namespace that are looked at one by one, for each alias of a host.
const MOST: usize = 256;

/// Restricted paths of a namespace that are not served on a host.
#[derive(Default)]
struct Exposed<'a> {
    /// In lower case; of an expression what all its matches begin with.
    paths: BTreeMap<Cow<'a, str>, &'a Claims>,
    /// What matches of expressions begin with, none of which begins another one.
    beginnings: BTreeMap<Cow<'a, str>, &'a Claims>,
    /// One that has paths of which nothing is known, or for which the host has no place.
    unknown: Option<&'a Claims>,
}

impl<'a> Exposed<'a> {
    fn add(&mut self, by: &'a Claims, text: Cow<'a, str>, is_regex: bool) {
        if self.paths.len() == MOST {
            self.unknown.get_or_insert(by);
        }
        if self.unknown.is_some() {
            return;
        }
        let text = match (is_regex, text) {
            (false, text) => text,
            (true, Cow::Borrowed(text)) => leading_text(text).into(),
            (true, Cow::Owned(text)) => leading_text(&text).to_owned().into(),
        };
        // An expression of which hardly a letter is known does not close a whole host.
        if is_regex && text.len() > 1 && beginning_of(&self.beginnings, &text).is_none() {
            while let Some(longer) = first_from(&self.beginnings, &text).map(|(text, _)| text) {
                let longer = longer.clone();
                self.beginnings.remove(&longer);
            }
            self.beginnings.insert(text.clone(), by);
        }
        self.paths.entry(text).or_insert(by);
    }

    /// Whose requests may come to this path.
    fn below(&self, pattern: &PathPattern) -> Option<&'a Claims> {
        if let Some(by) = self.unknown {
            return Some(by).filter(|_| !matches!(pattern, PathPattern::Exact(_)));
        }
        let (beginning, below) = match pattern {
            PathPattern::Exact(path) => (path.to_ascii_lowercase(), None),
            PathPattern::Prefix(path) => (path.to_ascii_lowercase(), Some("/")),
            PathPattern::Regex(text) => {
                let literal = String::from_utf8(literal_prefix(text));
                (literal.unwrap_or_default(), Some(""))
            }
        };
        let same = self.paths.get(beginning.as_str());
        // Between a path and what lies below it stand others, such as `/a-b`.
        let found = same.or_else(|| {
            let beginning = [&beginning, below?].concat();
            first_from(&self.paths, &beginning).map(|(_, by)| by)
        });
        found.or_else(|| beginning_of(&self.beginnings, &beginning)).copied()
    }
}

/// The first of some texts that begins with a text.
fn first_from<'m, 't, V>(
    texts: &'m BTreeMap<Cow<'t, str>, V>,
    text: &str,
) -> Option<(&'m Cow<'t, str>, &'m V)> {
    let mut from_here = texts.range::<str, _>((Bound::Included(text), Bound::Unbounded));
    from_here.next().filter(|(one, _)| one.starts_with(text))
}

/// The one of some texts that a text begins with, if none of them begins another one.
fn beginning_of<'m, V>(texts: &'m BTreeMap<Cow<'_, str>, V>, text: &str) -> Option<&'m V> {
    let mut until_here = texts.range::<str, _>((Bound::Unbounded, Bound::Included(text)));
    until_here.next_back().filter(|(one, _)| text.starts_with(&***one)).map(|(_, value)| value)
}

impl<'a> Merge<'a> {
    /// Closes what its namespace has open on the host, and what would answer requests for paths that it restricts and that are
    /// not served.
    pub(super) fn close_exposed(&mut self, source: &HostPattern) {
        let all = self.exposed(source);
        let mut told: BTreeMap<&Key, &Claims> = BTreeMap::new();
        for (pattern, winner) in self.winners.iter_mut().filter(|_| !all.is_empty()) {
            let exposed = all.get(winner.by.key.namespace.as_str()).filter(|_| winner.is_open());
            let Some(cause) = exposed.and_then(|exposed| exposed.below(pattern)) else { continue };
            winner.closer = Some(cause);
            told.entry(&winner.by.key).or_insert(cause);
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

    /// By namespace, for those that have something open on the host.
    fn exposed(&self, source: &HostPattern) -> BTreeMap<&'a str, Exposed<'a>> {
        let mut all: BTreeMap<&str, Exposed<'_>> = BTreeMap::new();
        let lacks = |by: &&Claims| {
            let is_full = || by.restricts_access() && self.full.contains(&by.key);
            by.has_unknown_paths() || by.unserved_on(source).is_some() || is_full()
        };
        let lacking: Vec<_> = self.view.mains.iter().copied().filter(lacks).collect();
        if lacking.is_empty() && self.unclosed.is_empty() {
            return all;
        }
        let open: BTreeSet<&str> = self
            .winners
            .values()
            .filter(|winner| winner.is_open())
            .map(|winner| winner.by.key.namespace.as_str())
            .collect();
        for by in lacking.into_iter().filter(|by| open.contains(by.key.namespace.as_str())) {
            let exposed = all.entry(by.key.namespace.as_str()).or_default();
            let unserved = by.unserved_on(source);
            let is_full = || by.restricts_access() && self.full.contains(&by.key);
            if by.has_unknown_paths() || unserved.is_some_and(|on| on.has_more) || is_full() {
                exposed.unknown.get_or_insert(by);
            }
            for UnservedPath { text, is_regex } in unserved.into_iter().flat_map(|on| &on.paths) {
                exposed.add(by, Cow::from(&**text), *is_regex || self.is_regex_host);
            }
        }
        for (by, claim) in self.unclosed.iter().filter(|(by, _)| by.restricts_access()) {
            let namespace = by.key.namespace.as_str();
            let is_regex = matches!(claim.pattern, PathPattern::Regex(_)) || self.is_regex_host;
            if open.contains(namespace) {
                let text = Cow::from(claim.path.to_ascii_lowercase());
                all.entry(namespace).or_default().add(by, text, is_regex);
            }
        }
        all
    }
}

impl Winner<'_> {
    /// Nobody is kept out.
    fn is_open(&self) -> bool {
        let Policies { access, denied, .. } = &*self.policies;
        let is_closed = self.closer.is_some() || self.by.is_closed();
        access.is_none() && denied.is_none() && !is_closed
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
        // What keeps nobody out is open, whatever its annotation is called.
        for open in ["limit-rps: '5'", "configuration-snippet: 'more_set_headers \"a: b\";'"] {
            let site =
                ingress("n", "site", &format!("nginx.ingress.kubernetes.io/{open}"), &[path("/")]);
            let lost = ingress("n", "lost", AUTH, &[no_service("/a")]);
            assert_eq!(closed(&(site + &lost), "").0, ["/"], "{open}");
        }
        let regex = "nginx.ingress.kubernetes.io/use-regex: 'true'";
        let expressions = ["/a/(x|y)", "/b/.*"].map(path);
        let site = ingress("n", "site", regex, &expressions);
        let lost = ingress("n", "lost", AUTH, &[no_service("/a/b")]);
        assert_eq!(closed(&(site + &lost), "").0.len(), 1, "the redirect of the root apart");
        // A lost expression would have taken what is longer than its own letters, too.
        let both = format!("{AUTH}, {regex}");
        let site = ingress("n", "site", OPEN, &["/api/v1", "/docs"].map(path));
        for (lost, expected) in [("/api/.*/secret", &["/api/v1"][..]), ("/(.*)/secret", &[])] {
            let lost = ingress(
                "n",
                "lost",
                &both,
                &[no_service(lost).replace("Prefix", "ImplementationSpecific")],
            );
            let (closed, _) = closed(&(site.clone() + &lost), "");
            let closed: Vec<_> = closed.iter().filter(|path| *path != "/").collect();
            assert_eq!(closed, expected.iter().collect::<Vec<_>>());
        }
    }

    #[test]
    fn many_lost_paths_cost_no_more_than_some() {
        let site = ingress("n", "site", OPEN, &["/", "/docs"].map(path));
        for (count, expected) in [(super::MOST, &["/"][..]), (super::MOST + 1, &["/", "/docs"])] {
            let lost: Vec<_> = (0..count).map(|n| no_service(&format!("/x/{n}"))).collect();
            assert_eq!(
                closed(&(site.clone() + &ingress("n", "lost", AUTH, &lost)), "").0,
                expected
            );
        }
    }

    #[test]
    fn hosts_behind_the_last_path_that_is_read_count_too() {
        let many: Vec<_> = (0..=MAX_RULES).map(|n| path(&format!("/{n}"))).collect();
        let site = ingress("n", "site", OPEN, &[path("/")]);
        let other = "other.test, http: { paths: [";
        let lost = ingress("n", "lost", AUTH, &[path("/admin")]);
        let (head, rule) = lost.split_once("{ host: h.test").unwrap();
        let lost =
            format!("{head}{{ host: {other}{}] }} }}, {{ host: h.test{rule}", many.join(", "));
        let (closed, told) = closed(&(site + &lost), "");
        assert_eq!((closed, told), (vec!["/".to_owned()], 1));
    }

    #[test]
    fn a_refused_ingress_that_restricts_its_host_closes_it() {
        let tls = "nginx.ingress.kubernetes.io/auth-tls-secret: n/ca";
        let exact = path("/exact").replace("ImplementationSpecific", "Exact");
        let site = ingress("n", "site", OPEN, &[exact]);
        let attack = ingress("n", "a", tls, &[path("/etc/passwd")]);
        assert!(closed(&(site + &attack), "--deep-inspect").0.contains(&"/exact".to_owned()));
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
