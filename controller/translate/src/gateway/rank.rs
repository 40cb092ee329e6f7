//! Routes that have written host names of different kinds and meet on one host of a listener.
//!
//! A route with the more specific host name has its requests whatever paths the others have, and leaves to these what it does not
//! match. Within a host the router asks for the path first: so a rule of a less specific name is left out where one of a more
//! specific name has all its requests, and where it has some of them, by a header, it gets that path too.

use oxigress_core::model::{PathPattern, Rule, Selection, ValueMatch};
use oxigress_objects::Key;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Creation, then name.
pub type Age = (i64, Key);

/// A match of a rule.
#[derive(Clone)]
pub struct Candidate {
    /// Its path.
    pub path: PathPattern,
    /// What else it asks for.
    pub selection: Selection,
    /// What is served, one for each share.
    pub rules: Vec<Rule>,
}

impl Candidate {
    /// The same for fewer requests.
    pub fn narrowed(&self, path: &PathPattern, selection: Selection) -> Self {
        let rules = self.rules.iter().map(|rule| {
            let weight = rule.selection.as_ref().and_then(|own| own.weight);
            let selection = Selection { weight, ..selection.clone() };
            let is_all = selection == Selection::default();
            let selection = (!is_all).then(|| Box::new(selection));
            Rule { path: path.clone(), selection, ..rule.clone() }
        });
        Candidate { path: path.clone(), rules: rules.collect(), selection }
    }

    /// Both ask for the same requests.
    pub fn is_asked_as(&self, other: &Self) -> bool {
        self.path == other.path && self.selection == other.selection
    }
}

/// How specific a host name is.
pub type Rank = (bool, usize);

/// The routes of a host, the most specific names first.
pub type Ranked = BTreeMap<Reverse<Rank>, ByAge>;

/// The rules of routes.
pub type ByAge = BTreeMap<Age, Vec<Candidate>>;

/// Puts routes together as if all had written the same name.
pub fn flatten(ranked: Ranked) -> ByAge {
    let is_one = ranked.len() < 2;
    let mut all = ByAge::new();
    // By path, those of more specific names.
    let mut above: BTreeMap<PathPattern, Vec<(Age, Candidate)>> = BTreeMap::new();
    for routes in ranked.into_values() {
        let mut kept = Vec::new();
        for (age, candidates) in routes {
            for candidate in candidates {
                let found = around(&candidate.path, &above);
                let meets = found.into_iter().filter_map(|(of, rule)| {
                    Some((of, rule, both(&rule.selection, &candidate.selection)?))
                });
                let meets: Vec<_> = meets.collect();
                if meets.iter().any(|(_, _, both)| *both == candidate.selection) {
                    continue;
                }
                for (of, rule, both) in meets {
                    let rules = all.entry(of.clone()).or_default();
                    let copy = rule.narrowed(&candidate.path, both);
                    if !rules.iter().any(|known| known.is_asked_as(&copy)) {
                        rules.push(copy);
                    }
                }
                all.entry(age.clone()).or_default().push(candidate.clone());
                kept.push((age.clone(), candidate));
            }
        }
        for (age, candidate) in kept.into_iter().filter(|_| !is_one) {
            above.entry(candidate.path.clone()).or_default().push((age, candidate));
        }
    }
    all
}

/// What the requests have that both of two rules take; `None`: there are none. It is that of the rule below where the rule above
/// takes all its requests.
fn both(above: &Selection, below: &Selection) -> Option<Selection> {
    if above.method.is_some() && below.method.is_some() && above.method != below.method {
        return None;
    }
    let join = |above: &[ValueMatch], below: &[ValueMatch]| {
        let own = above.iter().filter(|value| !below.contains(value));
        below.iter().chain(own).cloned().collect()
    };
    Some(Selection {
        method: above.method.clone().or_else(|| below.method.clone()),
        headers: join(&above.headers, &below.headers),
        query: join(&above.query, &below.query),
        weight: None,
    })
}

/// The rules whose paths contain a path.
fn around<'a>(
    path: &PathPattern,
    above: &'a BTreeMap<PathPattern, Vec<(Age, Candidate)>>,
) -> Vec<&'a (Age, Candidate)> {
    if above.is_empty() {
        return Vec::new();
    }
    let mut names = vec![path.clone()];
    if let PathPattern::Exact(text) | PathPattern::Prefix(text) = path {
        let ends = text.match_indices('/').map(|(at, _)| at).chain([text.len()]);
        let parents = ends.filter_map(|end| text.get(..end));
        names.extend(parents.map(|parent| PathPattern::Prefix(parent.into())));
    }
    names.dedup();
    names.iter().filter_map(|name| above.get(name)).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use oxigress_core::model::ValuePattern;

    fn candidate(path: &str, header: Option<&str>) -> Candidate {
        let exact = |name: &str| ValueMatch::new(name, ValuePattern::Exact("1".into())).unwrap();
        let headers = header.into_iter().map(exact).collect();
        let selection = Selection { headers, ..Selection::default() };
        Candidate { path: PathPattern::prefix(path).unwrap(), selection, rules: Vec::new() }
    }

    fn told(ranks: [&[(&str, Option<&str>)]; 2]) -> Vec<String> {
        let mut ranked = Ranked::new();
        for (rank, rules) in ranks.into_iter().enumerate() {
            let rules = rules.iter().map(|(path, header)| candidate(path, *header)).collect();
            let name = ["high", "low"][rank];
            let routes = ByAge::from([((0, Key::new("a", name)), rules)]);
            ranked.insert(Reverse((true, 9 - rank)), routes);
        }
        let tell = |((_, key), rules): (Age, Vec<Candidate>)| {
            let rules = rules.into_iter().map(move |rule| {
                let headers: Vec<_> =
                    rule.selection.headers.iter().map(|header| header.name.clone()).collect();
                format!("{} {} {}", key.name, rule.path, headers.join(" ")).trim().to_owned()
            });
            rules.collect::<Vec<_>>()
        };
        flatten(ranked).into_iter().flat_map(tell).collect()
    }

    #[test]
    fn a_less_specific_name_has_what_is_left() {
        assert_eq!(
            told([&[("/a", None)], &[("/a/b", None), ("/a/c", Some("x")), ("/ab", None)]]),
            ["high /a (Prefix)", "low /ab (Prefix)"]
        );
        assert_eq!(told([&[("/", None)], &[("/a", None)]]), ["high / (Prefix)"]);
    }

    #[test]
    fn a_condition_of_a_more_specific_name_holds_on_longer_paths_too() {
        assert_eq!(
            told([&[("/a", Some("x"))], &[("/a/b", None), ("/a/b", Some("y"))]]),
            [
                "high /a (Prefix) x",
                "high /a/b (Prefix) x",
                "high /a/b (Prefix) y x",
                "low /a/b (Prefix)",
                "low /a/b (Prefix) y",
            ]
        );
        assert_eq!(
            told([&[("/a", Some("x"))], &[("/a", Some("x")), ("/a", None)]]),
            ["high /a (Prefix) x", "low /a (Prefix)"]
        );
    }
}
