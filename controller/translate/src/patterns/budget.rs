//! How much compiling of regular expressions a namespace may ask for.
//!
//! Units:   nanoseconds of CPU, told from the texts (`oxigress_core::patterns::price_of`), so every replica decides alike.
//! Errors:  the newest Ingresses of a namespace that asks for more are over the budget; the others are not touched.

use crate::claim::age::stock::Stock;
use crate::patterns::{Meaning, Searched, snippets};
use oxigress_core::model::Invalid;
use oxigress_core::patterns::{is_plain, price_of, price_of_reading};
use oxigress_objects::Key;
use oxigress_objects::ingress::{Ingress, PathType};
use std::borrow::Cow;
use std::collections::BTreeSet;

/// What the patterns of one Ingress may cost: some 3,000 ordinary ones.
pub const OF_INGRESS: u64 = 100_000_000;
/// What those of a namespace may cost.
pub const OF_NAMESPACE: u64 = 2_000_000_000;

/// What each namespace asks for.
#[derive(Debug, Default)]
pub struct PatternBudget(Stock);

/// What the patterns of an Ingress cost if all paths that could be patterns are; what is over its own budget is not
/// compiled, nor read.
pub fn price(ingress: &Ingress, prefix: &str) -> u64 {
    price_by(ingress, prefix, |_, text| price_of(text))
}

/// All that could be a pattern in an Ingress.
pub fn patterns<'i>(
    ingress: &'i Ingress,
    prefix: &str,
) -> impl Iterator<Item = (Meaning, Cow<'i, str>)> {
    let values = Searched::ALL.into_iter().filter_map(move |searched| {
        let name = format!("{prefix}/{}", searched.annotation());
        Some((Meaning::Value, Cow::Borrowed(ingress.annotations.get(&name)?.trim())))
    });
    let texts = snippets::WITH_PATTERNS
        .into_iter()
        .filter_map(move |name| ingress.annotations.get(&format!("{prefix}/{name}")));
    let found = texts.flat_map(|text| snippets::patterns(text));
    let found = found.map(|text| (Meaning::Value, Cow::Owned(text)));
    let paths = ingress.rules.iter().flat_map(|rule| &rule.paths);
    let paths = paths.filter(|path| path.path_type != PathType::Exact && !is_plain(&path.path));
    let paths = paths.map(|path| (Meaning::Path, Cow::Borrowed(path.path.as_str())));
    values.chain(found).chain(paths)
}

/// The same by the prices that `price_of` knows.
pub fn price_by(
    ingress: &Ingress,
    prefix: &str,
    mut price_of: impl FnMut(Meaning, &str) -> Result<u64, Invalid>,
) -> u64 {
    let mut all = patterns(ingress, prefix);
    let mut sum: u64 = 0;
    while sum < OF_INGRESS
        && let Some((meaning, text)) = all.next()
    {
        // What is refused is not compiled, but it was read.
        let price = price_of(meaning, &text).unwrap_or_else(|_| price_of_reading(&text));
        sum = sum.saturating_add(price);
    }
    sum.min(OF_INGRESS)
}

impl PatternBudget {
    /// Takes note of changed Ingresses; answers which are over the budget since, or no more.
    pub fn update<'c>(
        &mut self,
        prefix: &str,
        changed: impl IntoIterator<Item = (&'c Key, Option<&'c Ingress>)>,
    ) -> BTreeSet<Key> {
        let item = |ingress: &Ingress| (ingress.created, price(ingress, prefix));
        self.0.update(OF_NAMESPACE, changed.into_iter().map(|(key, one)| (key, one.map(item))))
    }

    /// Whether the patterns of an Ingress are not compiled.
    pub fn is_over(&self, key: &Key) -> bool {
        self.0.is_over(key)
    }

    /// Whether those of a candidate of this price would not be, in the place of its older self.
    pub fn would_be_over(&self, key: &Key, created: i64, price: u64) -> bool {
        self.0.would_be_over(OF_NAMESPACE, key, (created, price))
    }

    /// One of the others that would be over the budget newly with a candidate of this price.
    pub fn pushed_out(&self, key: &Key, created: i64, price: u64) -> Option<&Key> {
        self.0.pushed_out(OF_NAMESPACE, key, (created, price))
    }

    /// Which others would be over the budget, or no more, with this Ingress.
    pub fn would_turn(&self, prefix: &str, key: &Key, new: Option<&Ingress>) -> BTreeSet<&Key> {
        let item = new.map(|ingress| (ingress.created, price(ingress, prefix)));
        self.0.would_turn(OF_NAMESPACE, key, item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::translate;
    use crate::{Options, tests};
    use oxigress_core::model::policy::PolicyId;
    use oxigress_core::model::{HostPattern, PathPattern, Rule};
    use oxigress_core::patterns::Patterns;
    use oxigress_core::record::{ServerView, encode_server};
    use oxigress_objects::ingress::{Path, Port, Rule as IngressRule, Target};
    use std::fmt::Write as _;

    /// Some 100 milliseconds of patterns.
    fn dear(created: i64) -> Ingress {
        let path = |number| Path {
            path: format!(r"/{number}/\p{{L}}"),
            path_type: PathType::ImplementationSpecific,
            target: Target::Service { name: "s".into(), port: Port::Number(80) },
        };
        let paths = (0..300).map(path).collect();
        Ingress {
            created,
            rules: vec![IngressRule { host: "a.test".into(), paths }],
            ..Ingress::default()
        }
    }

    #[test]
    fn the_newest_are_over_the_budget_until_there_is_room() {
        let keys: Vec<_> = (0..25).map(|n| Key::new("a", format!("i{n:02}"))).collect();
        let all: Vec<_> = (0..25).map(dear).collect();
        let mut budget = PatternBudget::default();
        let changed = keys.iter().zip(all.iter().map(Some));
        let turned = budget.update("x.io", changed);
        let dear = |created| (created, price(&dear(created), "x.io"));
        let would_be_over = |budget: &PatternBudget, key: &Key, (created, price)| {
            budget.would_be_over(key, created, price)
        };
        assert_eq!(turned, keys.iter().skip(20).cloned().collect(), "20 times 100 milliseconds");
        assert!(budget.is_over(&keys[20]) && !budget.is_over(&keys[19]));
        assert!(!budget.is_over(&Key::new("b", "i24")), "another namespace's");
        assert!(would_be_over(&budget, &Key::new("a", "new"), dear(100)));
        assert!(!would_be_over(&budget, &Key::new("a", "new"), dear(-1)));
        assert!(!would_be_over(&budget, &keys[3], dear(3)), "in the place of its older self");
        assert!(!would_be_over(&budget, &Key::new("b", "new"), dear(100)));
        // One leaves, the next one has room.
        assert_eq!(budget.update("x.io", [(&keys[3], None)]), [keys[20].clone()].into());
        for key in &keys {
            budget.update("x.io", [(key, None)]);
        }
        assert!(budget.0.is_empty());
    }

    #[test]
    fn an_ingress_and_a_namespace_over_the_budget_close_their_own_paths_only() {
        let ingress = |name: &str, paths: usize| {
            let mut text = format!(
                "---\napiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata:\n  name: {name}\n  namespace: a\n  \
                 annotations: {{ kubernetes.io/ingress.class: nginx, nginx.ingress.kubernetes.io/use-regex: \"true\" }}\n\
                 spec:\n  rules:\n  - host: {name}.test\n    http:\n      paths:\n"
            );
            for n in 0..paths {
                let _ = writeln!(
                    text,
                    "      - {{ path: '/{n}/\\p{{L}}', pathType: ImplementationSpecific, backend: {{ service: {{ \
                     name: s, port: {{ number: 80 }} }} }} }}"
                );
            }
            text
        };
        let all: String = (0..22).map(|n| ingress(&format!("i{n:02}"), 300)).collect();
        let world = tests::world(&(all + &ingress("small", 1)));
        let translation = translate(&world, &Options::default());
        let count = |host: &str| {
            let host = HostPattern::parse(host).unwrap();
            let rules = &translation.snapshot.servers[&host].rules;
            let is = |rule: &&Rule| matches!(rule.path, PathPattern::Regex(_));
            let closed = rules.iter().filter(|rule| rule.policies.is_some()).count();
            (rules.iter().filter(is).count() - closed, closed)
        };
        let (served, closed) = count("i00.test");
        assert!((200..250).contains(&served), "{served} of 300 cost 100 milliseconds");
        assert_eq!(served + closed, 300);
        assert_eq!(count("i19.test"), (served, closed));
        assert_eq!(count("i20.test"), (0, 300), "the namespace's two seconds are used up");
        assert_eq!(count("small.test"), (0, 1));
    }

    /// Whether a request is closed where an Ingress has a path of this type, as JSON, beside `/`.
    fn is_closed(pattern: &str, path_type: &str, path: &str) -> bool {
        let text = format!(
            "---\napiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata:\n  name: i\n  namespace: a\n  annotations: \
             {{ kubernetes.io/ingress.class: nginx, nginx.ingress.kubernetes.io/use-regex: \"{}\" }}\nspec:\n  \
             rules:\n  - host: a.test\n    http:\n      paths:\n      - {{ path: \"{pattern}\", pathType: \
             {path_type}, backend: {{ service: {{ name: s, port: {{ number: 80 }} }} }} }}\n      - {{ path: /, \
             pathType: Prefix, backend: {{ service: {{ name: s, port: {{ number: 80 }} }} }} }}\n",
            path_type == "ImplementationSpecific"
        );
        let snapshot = translate(&tests::world(&text), &Options::default()).snapshot;
        let server = encode_server(&snapshot.servers[&HostPattern::parse("a.test").unwrap()]);
        let route = ServerView::new(&server).rule(
            path.as_bytes(),
            &oxigress_core::record::NoParts,
            &Patterns::default(),
        );
        let route = route.unwrap().unwrap();
        let id = str::from_utf8(route.rule.policies()).unwrap();
        PolicyId::parse(id).is_ok_and(|id| snapshot.policies[&id].denied == Some(503))
    }

    #[test]
    fn a_path_that_cannot_be_served_closes_as_much_of_it_as_can_be() {
        let long = format!("/admin/{}", "a".repeat(4_100));
        for (written, path) in [
            (r"/adm\x01in", "/adm\u{1}in"),
            (r"/adm\x01in", "/admin/x"),
            (&long, &long),
            (r"/d/<id>\x01", "/d/<id>\u{1}"),
            (r"/d/über\x7f", "/d/über/x"),
        ] {
            for path_type in ["Prefix", "Exact"] {
                assert!(is_closed(written, path_type, path), "{path_type} {written:?}");
            }
        }
        for path in ["/admin", "/a", "/x"] {
            assert!(!is_closed(r"/adm/\x01in", "Prefix", path) && !is_closed(&long, "Exact", path));
        }
        assert!(!is_closed(r"/\x01in", "Prefix", "/x"), "nothing closes a whole host");
    }

    #[test]
    fn what_is_refused_closes_what_it_begins_with_as_nginx_would_compare_it() {
        let is_closed =
            |pattern: &str, path: &str| is_closed(pattern, "ImplementationSpecific", path);
        for path in ["/Shop/x", "/SHOP/x", "/shop", "/shopping"] {
            assert!(is_closed("/Shop(/|$)(", path), "{path}");
        }
        assert!(!is_closed("/Shop(/|$)(", "/sho") && !is_closed("/shop/a|/b(", "/shop/a"));
        assert!(
            is_closed("/ab*(", "/a/x") && !is_closed("/ab*(", "/x"),
            "what is repeated may be absent"
        );
    }

    #[test]
    fn patterns_of_annotations_cost_as_paths_do() {
        let mut ingress = Ingress::default();
        for searched in Searched::ALL {
            let before = price(&ingress, "x.io");
            let name = format!("x.io/{}", searched.annotation());
            ingress.annotations.insert(name, r"CN=\p{L}".into());
            assert!(price(&ingress, "x.io") > before + 400_000, "{searched:?}");
        }
        assert_eq!(price(&ingress, "y.io"), 0);
        let paths = dear(0).rules;
        ingress.rules = [paths.clone(), paths].concat();
        let mut read = 0;
        price_by(&ingress, "x.io", |_, text| {
            read += 1;
            price_of(text)
        });
        assert!(read < 300, "{read} were read: no more than there is room for");
    }

    #[test]
    fn plain_and_exact_paths_cost_nothing() {
        let mut ingress = dear(0);
        for path in ingress.rules.iter_mut().flat_map(|rule| &mut rule.paths) {
            path.path_type = PathType::Exact;
        }
        assert_eq!(price(&ingress, "x.io"), 0);
        for path in ingress.rules.iter_mut().flat_map(|rule| &mut rule.paths) {
            (path.path_type, path.path) = (PathType::Prefix, "/a/b-c.d".into());
        }
        assert_eq!(price(&ingress, "x.io"), 0);
    }
}
