//! Routes that have written host names of different kinds and meet on one host of a listener.
//!
//! A route with the more specific host name has its requests whatever paths the others have, and leaves to these what it does not
//! match. Within a host the router asks for the path first: so a rule of a less specific name is left out where one of a more
//! specific name has all its requests, and where it has some of them, by a header, it gets that path too.

use super::served::{Candidate, Served};
use crate::gateway::listeners::host::specificity;
use crate::gateway::routes::room::Room;
use oxigress_core::model::{HostPattern, PathPattern, Selection, ValueMatch, ValuePattern};
use oxigress_objects::verdict::Note;
use oxigress_objects::{Key, Kind, ObjectRef};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Creation, then name, then kind.
pub type Age = (i64, Key, Kind);

/// The object of this age.
pub fn object(age: &Age) -> ObjectRef {
    ObjectRef::new(age.2, age.1.clone())
}

/// How specific a host name is.
pub type Rank = (bool, usize);

/// The routes of a host, the most specific names first.
pub type Ranked = BTreeMap<Reverse<Rank>, ByAge>;

/// The rules of routes.
pub type ByAge = BTreeMap<Age, Arc<Served>>;

/// The routes of a host as if all had written the same name.
pub struct Flat {
    /// Their rules.
    pub routes: BTreeMap<Age, Vec<Candidate>>,
    /// What there is to say about those that are left out.
    pub notes: Vec<(ObjectRef, Note)>,
    /// Those for which there was no room.
    pub left_out: BTreeSet<ObjectRef>,
}

/// Puts routes together as if all had written the same name.
///
/// A more specific name goes first. The host's own name always does; a wildcard takes no requests of an older route of another
/// namespace that has written a wildcard too, unless hosts are shared. Rules of two namespaces are never joined, since nobody
/// could say whose they are.
pub fn flatten(host: &HostPattern, ranked: &Ranked, is_shared: bool, room: &mut Room) -> Flat {
    let is_one = ranked.len() < 2;
    let own_name = specificity(host);
    let (above, known) = (ByPath::default(), BTreeSet::new());
    let mut meeting = Meeting { own_name, is_shared, room, above, known };
    let mut flat = Flat { routes: BTreeMap::new(), notes: Vec::new(), left_out: BTreeSet::new() };
    for (Reverse(rank), routes) in ranked {
        let mut kept = Vec::new();
        for (age, served) in routes {
            for candidate in &served.candidates {
                match meeting.of(*rank, age, candidate) {
                    Ok(copies) => {
                        for (of, copy) in copies {
                            flat.routes.entry(of).or_default().push(copy);
                        }
                        flat.routes.entry(age.clone()).or_default().push(candidate.clone());
                        kept.push((age.clone(), candidate.clone()));
                    }
                    Err(LeftOut::NoRoom) => drop(flat.left_out.insert(object(age))),
                    Err(LeftOut::By(why)) => {
                        let message = format!("host {host}, path {}: {why}", candidate.path);
                        flat.notes.push((object(age), Note::warning(message)));
                    }
                }
            }
        }
        for (age, candidate) in kept.into_iter().filter(|_| !is_one) {
            meeting.above.insert(Above::new(*rank, age, candidate));
        }
    }
    flat
}

/// The oldest route that has written a host name, or else the oldest of all.
pub fn eldest<'r>(host: &HostPattern, ranked: &'r Ranked) -> Option<&'r Age> {
    let named = ranked.get(&Reverse(specificity(host)));
    let named = named.and_then(|routes| routes.keys().next());
    named.or_else(|| ranked.values().filter_map(|routes| routes.keys().next()).min())
}

/// Why a rule is left out.
enum LeftOut {
    /// The limits of its namespace; they are told once.
    NoRoom,
    By(String),
}

/// A rule of a more specific name.
struct Above {
    rank: Rank,
    age: Age,
    candidate: Candidate,
    /// See [`weight`].
    weight: usize,
}

impl Above {
    fn new(rank: Rank, age: Age, candidate: Candidate) -> Self {
        let weight = weight(&candidate.selection);
        Above { rank, age, candidate, weight }
    }
}

/// So many bytes of texts take as long to compare and to copy as all else of a comparison.
const BYTES_OF_COMPARISON: usize = 128;

/// What a text adds to the comparisons in which it has a part.
fn weight_of(text: &str) -> usize {
    text.len() / BYTES_OF_COMPARISON
}

/// What conditions add to a comparison.
fn weight(selection: &Selection) -> usize {
    let all = selection.headers.iter().chain(&selection.query);
    all.map(|one| match &one.value {
        ValuePattern::Exact(value) | ValuePattern::Regex(value) => {
            weight_of(&one.name) + weight_of(value)
        }
    })
    .sum()
}

struct Meeting<'r> {
    /// How specific the host's own name is.
    own_name: Rank,
    is_shared: bool,
    room: &'r mut Room,
    /// The rules of more specific names.
    above: ByPath,
    /// Rules of more specific names that stand for narrower paths or conditions already.
    known: BTreeSet<(Age, PathPattern, Selection)>,
}

impl Meeting<'_> {
    /// The rules of more specific names that take a part of a rule's requests, for that part.
    fn of(
        &mut self,
        rank: Rank,
        age: &Age,
        below: &Candidate,
    ) -> Result<Vec<(Age, Candidate)>, LeftOut> {
        let mut copies = Vec::new();
        let own_weight = weight(&below.selection);
        if !self.room.has_comparisons(&age.1, age.2, self.above.price_of(&below.path)) {
            return Err(LeftOut::NoRoom);
        }
        for found in self.above.around(&below.path) {
            let Above { rank: of_rank, age: of, candidate: above, weight } = found;
            if !self.room.has_comparisons(&age.1, age.2, 1 + own_weight + weight) {
                return Err(LeftOut::NoRoom);
            }
            let is_foreign = !self.is_shared && of.1.namespace != age.1.namespace;
            let is_written = rank != specificity(&HostPattern::default_host());
            let keeps = is_foreign && age < of && *of_rank != self.own_name && is_written;
            if keeps || excludes(&above.selection, &below.selection) {
                continue;
            }
            if includes(&above.selection, &below.selection) {
                let why = "whose host name is more specific, has all its requests";
                return Err(LeftOut::By(format!("{}, {why}", object(of))));
            }
            // On the same path the router asks for the conditions first.
            if above.path == below.path && below.selection == Selection::default() {
                continue;
            }
            if is_foreign {
                return Err(LeftOut::By(format!(
                    "{}, of another namespace and of a more specific host name, has conditions there: use a path of your \
                     own",
                    object(of)
                )));
            }
            let asked = (of.clone(), below.path.clone(), both(&above.selection, &below.selection));
            if self.known.contains(&asked) {
                continue;
            }
            if !self.room.has_rules(&age.1, age.2, above.rules.len().max(1)) {
                return Err(LeftOut::NoRoom);
            }
            copies.push((of.clone(), above.narrowed(&below.path, asked.2.clone())));
            self.known.insert(asked);
        }
        Ok(copies)
    }
}

/// No request is taken by both.
pub fn excludes(above: &Selection, below: &Selection) -> bool {
    above.method.is_some() && below.method.is_some() && above.method != below.method
}

/// The first takes all requests that the second takes.
fn includes(above: &Selection, below: &Selection) -> bool {
    let has = |all: &[ValueMatch], some: &[ValueMatch]| some.iter().all(|one| all.contains(one));
    (above.method.is_none() || above.method == below.method)
        && has(&below.headers, &above.headers)
        && has(&below.query, &above.query)
}

/// What the requests have that both take.
fn both(above: &Selection, below: &Selection) -> Selection {
    let join = |above: &[ValueMatch], below: &[ValueMatch]| {
        let own = above.iter().filter(|value| !below.contains(value));
        below.iter().chain(own).cloned().collect()
    };
    Selection {
        method: above.method.clone().or_else(|| below.method.clone()),
        headers: join(&above.headers, &below.headers),
        query: join(&above.query, &below.query),
        weight: None,
    }
}

/// Rules of more specific names, by path.
#[derive(Default)]
struct ByPath {
    prefixes: BTreeMap<String, Vec<Above>>,
    others: BTreeMap<PathPattern, Vec<Above>>,
}

impl ByPath {
    fn insert(&mut self, above: Above) {
        let all = match &above.candidate.path {
            PathPattern::Prefix(text) => self.prefixes.entry(text.clone()).or_default(),
            other => self.others.entry(other.clone()).or_default(),
        };
        all.push(above);
    }

    /// The rules whose paths contain a path.
    fn around<'a>(&'a self, path: &'a PathPattern) -> impl Iterator<Item = &'a Above> {
        let own = match path {
            PathPattern::Prefix(text) => self.prefixes.get(text),
            other => self.others.get(other),
        };
        let above = parents(path).filter_map(|parent| self.prefixes.get(parent));
        own.into_iter().chain(above).flatten()
    }

    /// What looking for them costs, in comparisons: a path may be all slashes.
    fn price_of(&self, path: &PathPattern) -> usize {
        match self.prefixes.is_empty() {
            true => 0,
            false => parents(path).map(|parent| 1 + weight_of(parent)).sum(),
        }
    }
}

/// The prefixes that contain a path, but for itself.
fn parents(path: &PathPattern) -> impl Iterator<Item = &str> {
    let (text, is_exact) = match path {
        PathPattern::Exact(text) => (text.as_str(), true),
        PathPattern::Prefix(text) => (text.as_str(), false),
        PathPattern::Regex(_) => ("", false),
    };
    let whole = is_exact.then_some(text.len());
    let ends = text.match_indices('/').map(|(at, _)| at).chain(whole);
    ends.filter_map(|end| text.get(..end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use oxigress_core::model::policy::HeaderName;

    fn candidate(path: &str, header: Option<&str>) -> Candidate {
        let exact = |name: &str| ValueMatch::new(name, ValuePattern::Exact("1".into())).unwrap();
        let headers = header.into_iter().map(exact).collect();
        let selection = Selection { headers, ..Selection::default() };
        Candidate { path: PathPattern::prefix(path).unwrap(), selection, rules: Vec::new() }
    }

    /// A route: its name, its namespace, its age, and its rules.
    type Route<'r> = (&'r str, &'r str, i64, &'r [(&'r str, Option<&'r str>)]);

    /// The rules of routes, each with a less specific wildcard than the one before.
    fn flat(routes: &[Route<'_>], is_shared: bool, room: &mut Room) -> Flat {
        let ranks: Vec<_> = (0..routes.len()).map(|rank| (true, 99 - rank)).collect();
        flat_of(&ranks, routes, is_shared, room)
    }

    fn flat_of(ranks: &[Rank], routes: &[Route<'_>], is_shared: bool, room: &mut Room) -> Flat {
        let mut ranked = Ranked::new();
        for (rank, (name, namespace, created, rules)) in ranks.iter().zip(routes) {
            let rules = rules.iter().map(|(path, header)| candidate(path, *header)).collect();
            let served = Served { candidates: rules, ..Served::default() };
            let route = ByAge::from([(
                (*created, Key::new(*namespace, *name), Kind::HTTPRoute),
                served.into(),
            )]);
            ranked.insert(Reverse(*rank), route);
        }
        flatten(&HostPattern::parse("a.test").unwrap(), &ranked, is_shared, room)
    }

    fn served(routes: &[Route<'_>], is_shared: bool) -> Vec<String> {
        told_of(flat(routes, is_shared, &mut Room::default()))
    }

    fn told_of(flat: Flat) -> Vec<String> {
        let tell = |((_, key, _), rules): (Age, Vec<Candidate>)| {
            let rules = rules.into_iter().map(move |rule| {
                let headers: Vec<_> =
                    rule.selection.headers.iter().map(|header| header.name.clone()).collect();
                format!("{} {} {}", key.name, rule.path, headers.join(" ")).trim().to_owned()
            });
            rules.collect::<Vec<_>>()
        };
        flat.routes.into_iter().flat_map(tell).collect()
    }

    fn told(ranks: [&[(&str, Option<&str>)]; 2]) -> Vec<String> {
        served(&[("high", "a", 0, ranks[0]), ("low", "a", 0, ranks[1])], false)
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

    #[test]
    fn a_more_specific_name_takes_nothing_of_an_older_route_of_another_namespace() {
        let root: &[_] = &[("/", None)];
        let [young, old] = [("young", "evil", 2, root), ("old", "victim", 1, root)];
        assert_eq!(served(&[young, old], false), ["old / (Prefix)", "young / (Prefix)"]);
        assert_eq!(served(&[young, old], true), ["young / (Prefix)"], "shared hosts");
        let [old, young] = [("old", "victim", 1, root), ("young", "evil", 2, root)];
        assert_eq!(served(&[old, young], false), ["old / (Prefix)"]);
        let young = ("young", "victim", 2, root);
        assert_eq!(served(&[young, old], false), ["young / (Prefix)"], "one namespace");
    }

    #[test]
    fn an_older_route_of_another_namespace_keeps_nothing_of_a_host_that_it_has_not_written() {
        let root: &[_] = &[("/", None)];
        let routes = [("young", "victim", 2, root), ("old", "evil", 1, root)];
        let (own_name, wildcard, none) = ((true, 6), (false, 6), (false, 0));
        for (ranks, expected) in [
            ([own_name, wildcard], &["young / (Prefix)"][..]),
            ([own_name, none], &["young / (Prefix)"]),
            ([wildcard, none], &["young / (Prefix)"]),
            ([(false, 9), wildcard], &["old / (Prefix)", "young / (Prefix)"]),
        ] {
            let flat = flat_of(&ranks, &routes, false, &mut Room::default());
            assert_eq!(told_of(flat), expected, "{ranks:?}");
        }
    }

    #[test]
    fn rules_of_two_namespaces_are_not_joined() {
        let old = ("old", "victim", 1, &[("/a", Some("x"))][..]);
        let young = |rules| ("young", "evil", 2, rules);
        for rules in [&[("/a/b", None)][..], &[("/a", Some("y"))]] {
            let flat = flat(&[old, young(rules)], false, &mut Room::default());
            assert_eq!(flat.routes.len(), 1, "{rules:?}");
            assert!(format!("{:?}", flat.notes).contains("use a path of your own"));
        }
        let beside = [old, young(&[("/a", None), ("/b", None)])];
        assert_eq!(
            served(&beside, false),
            ["old /a (Prefix) x", "young /a (Prefix)", "young /b (Prefix)"]
        );
    }

    /// Rules of one route that meet as many of another one, all of the namespace `a`: how many of them are served. No request is
    /// taken by two of them.
    fn met(count: usize, path: &str, value: &str) -> usize {
        let meets = |number: usize| {
            let value = ValuePattern::Exact(format!("{value}{number}"));
            let headers = vec![ValueMatch::new("h", value).unwrap()];
            let method = HeaderName::parse(if number < count { "GET" } else { "POST" }).ok();
            let selection = Selection { method, headers, ..Selection::default() };
            let path = PathPattern::prefix(path).unwrap();
            Candidate { path, selection, rules: Vec::new() }
        };
        let route = |rank: Rank, first: usize| {
            let candidates = (first..first + count).map(meets).collect();
            let served = Served { candidates, ..Served::default() };
            let name = format!("r{first}");
            let age = (0, Key::new("a", name), Kind::HTTPRoute);
            (Reverse(rank), ByAge::from([(age, served.into())]))
        };
        let ranked = Ranked::from([route((true, 6), 0), route((false, 5), count)]);
        let host = HostPattern::parse("a.test").unwrap();
        let flat = flatten(&host, &ranked, false, &mut Room::default());
        let is_below = |(age, _): &(&Age, &Vec<Candidate>)| age.1.name.as_str() != "r0";
        flat.routes.iter().filter(is_below).map(|(_, rules)| rules.len()).sum()
    }

    #[test]
    fn long_paths_and_conditions_cost_their_namespace_more_comparisons() {
        assert_eq!(met(100, "/a", "v"), 100, "10,000 comparisons");
        let long = met(100, "/a", &"v".repeat(4_000));
        assert!((50..100).contains(&long), "{long}: each comparison counts for 63");
        assert!(met(700, "/a", "v") > 690);
        let deep = met(700, &"/a".repeat(511), "v");
        assert!((100..400).contains(&deep), "{deep}: 511 parents of 4 comparisons and more each");
    }

    #[test]
    fn conditions_that_multiply_end_at_the_limits_of_the_namespace() {
        let names: Vec<_> = (0..1_000).map(|number| format!("h{number}")).collect();
        let more: Vec<_> = (0..1_000).map(|number| format!("l{number}")).collect();
        let rules = |names: &'static [String]| -> Vec<(&'static str, Option<&'static str>)> {
            names.iter().map(|name| ("/", Some(name.as_str()))).collect()
        };
        let (high, low) = (rules(names.leak()), rules(more.leak()));
        let mut room = Room::default();
        let flat = flat(&[("high", "a", 1, &high), ("low", "a", 2, &low)], false, &mut room);
        let count: usize = flat.routes.values().map(Vec::len).sum();
        assert!((2_000..=22_000).contains(&count), "{count}");
        let told: Vec<_> = room.notes().map(|(object, _)| object.key.name.to_string()).collect();
        assert_eq!(told, ["low"]);
    }
}
