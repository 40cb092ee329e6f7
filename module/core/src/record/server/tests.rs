use super::order::covers;
use super::*;
use crate::model::{BackendId, HttpsRedirect, Origin, Policy};
use crate::patterns::{Allowance, Patterns};
use proptest::prelude::*;

pub(super) fn rule(path: PathPattern, backend: &str) -> Rule {
    Rule {
        path,
        backend: Some(BackendId::parse(backend).unwrap()),
        origin: Origin { ingress: "shop".into(), ..Origin::default() },
        policy: Policy { https_redirect: HttpsRedirect::Always, ..Policy::default() },
        policies: None,
        selection: None,
    }
}

pub(super) fn pattern(text: &str) -> PathPattern {
    match (text.strip_prefix('='), text.strip_prefix('~')) {
        (Some(exact), _) => PathPattern::exact(exact).unwrap(),
        (_, Some(regex)) => PathPattern::regex(regex, Allowance::unlimited()).unwrap(),
        _ => PathPattern::prefix(text).unwrap(),
    }
}

fn server(paths: &[&str]) -> Vec<u8> {
    let rules = paths.iter().map(|path| rule(pattern(path), path));
    encode_server(&Server::of(rules.collect()))
}

pub(super) fn winner(value: &[u8], path: &str) -> Option<String> {
    let patterns = Patterns::default();
    let route = ServerView::new(value).rule(path.as_bytes(), &NoParts, &patterns).unwrap()?;
    let backend = String::from_utf8(route.rule.backend().unwrap().to_vec()).unwrap();
    Some(if route.lacks_slash { format!("to {backend}") } else { backend })
}

fn found<'v>(value: &'v [u8], path: &[u8]) -> Option<RuleView<'v>> {
    let patterns = Patterns::default();
    ServerView::new(value).rule(path, &NoParts, &patterns).unwrap().map(|route| route.rule)
}

#[test]
fn a_prefix_matches_whole_segments_only() {
    let value = server(&["/cart"]);
    assert_eq!(winner(&value, "/cart").as_deref(), Some("/cart"));
    assert_eq!(winner(&value, "/cart/1").as_deref(), Some("/cart"));
    assert_eq!(winner(&value, "/carts"), None);
    assert_eq!(winner(&value, "/car"), None);
}

/// Rules of `NAMESPACE PATH`; those of expressions in lower-case namespaces yield.
fn shared(rules: &[&str]) -> Vec<u8> {
    let rule = |text: &&str| {
        let (namespace, path) = text.split_once(' ').unwrap();
        let mut rule = rule(pattern(path), text);
        rule.origin.namespace = namespace.into();
        rule.policy.yields = path.starts_with('~') && namespace != "OWNER";
        rule
    };
    encode_server(&Server::of(rules.iter().map(rule).collect()))
}

#[test]
fn an_expression_that_yields_takes_only_what_lies_below_the_rules_of_others() {
    let value = shared(&[
        "OWNER /",
        "OWNER /admin",
        "OWNER /docs/secret",
        "OWNER ~/v[0-9]/(.*)",
        "other ~/.*and-a-very-long-text-that-says-nothing(.*)|/.*",
        "other ~/(admin)(/|$)(.*)()()()()()()()()()()()()()()()()()()",
        "other ~/admin/.*()()()()()()()()()()()()()()()()()()",
        "other ~/docs(/|$)(.*)",
        "other ~/v[0-9]/(.*)()()()()()()()()()",
        "third /own",
        "third ~/own/.*",
    ]);
    for (path, expected) in [
        ("/", "OWNER /"),
        ("/x", "OWNER /"),
        ("/x/and-a-very-long-text-that-says-nothing", "OWNER /"),
        ("/admin", "OWNER /admin"),
        ("/admin/x", "OWNER /admin"),
        ("/docs", "other ~/docs(/|$)(.*)"),
        ("/docs/x", "other ~/docs(/|$)(.*)"),
        ("/docs/secret/x", "OWNER /docs/secret"),
        ("/v1/x", "OWNER ~/v[0-9]/(.*)"),
        ("/own/x", "third ~/own/.*"),
        ("/own", "third /own"),
    ] {
        assert_eq!(winner(&value, path).as_deref(), Some(expected), "{path}");
        let all = ServerView::new(&value).considered(path.as_bytes(), &Patterns::default());
        assert_eq!(all[0].result, MatchResult::Wins, "{path}");
    }
    let all = ServerView::new(&value).considered(b"/admin/x", &Patterns::default());
    assert_eq!(all.iter().filter(|one| one.result == MatchResult::Yields).count(), 3, "{all:?}");
}

#[test]
fn what_lies_below_well_known_is_never_a_guests_and_its_kept_rule_counts_as_the_root() {
    for guest in ["~/(.*)", "~/\\.well(.*)", "~/(\\.well-known|x)/(.*)"] {
        let value = shared(&["OWNER /", &format!("other {guest}"), "OWNER ~/shop(.*)"]);
        let path = "/.well-known/acme-challenge/token";
        assert_eq!(winner(&value, path).as_deref(), Some("OWNER /"), "{guest}");
        let all = ServerView::new(&value).considered(path.as_bytes(), &Patterns::default());
        assert_eq!(all[0].result, MatchResult::Wins, "{guest}");
        assert!(all[1..].iter().all(|one| one.result == MatchResult::Yields), "{guest}: {all:?}");
    }
    // Where the root is unclaimed, a guest's expression has all other paths.
    let mut nobodys = rule(pattern("/"), "x");
    nobodys.backend = None;
    let mut guest = rule(pattern("~/(.*)"), "guest");
    guest.policy.yields = true;
    let value = encode_server(&Server::of(vec![nobodys, guest]));
    assert_eq!(winner(&value, "/x").as_deref(), Some("guest"));
    let found = found(&value, b"/.well-known/x").unwrap();
    assert_eq!(found.backend(), None);

    let mut kept = rule(pattern(crate::model::WELL_KNOWN), "kept");
    for (yields, expected) in [(true, "~/(.*)"), (false, "kept")] {
        kept.policy.yields = yields;
        let owners = rule(pattern("~/(.*)"), "~/(.*)");
        let value = encode_server(&Server::of(vec![kept.clone(), owners]));
        assert_eq!(winner(&value, "/.well-known/x").as_deref(), Some(expected));
    }
}

#[test]
fn an_expression_that_yields_has_what_nobody_claims_and_costs_the_others_nothing() {
    let mut nobodys = rule(pattern("/"), "x");
    nobodys.backend = None;
    let mut other = rule(pattern("~/(a|b)/.*"), "other");
    other.origin.namespace = "other".into();
    other.policy.yields = true;
    let value = encode_server(&Server::of(vec![nobodys, other.clone()]));
    assert_eq!(winner(&value, "/a/x").as_deref(), Some("other"));

    // An expression without an answer ends the search: it is not tried where it may not win.
    let costly = "~/(?=a)(a+)+(a+)+(a+)+(a+)+b";
    let mut costly = Rule { path: pattern(costly), ..other };
    let path = format!("/{}", "a".repeat(1_000));
    let patterns = Patterns::default();
    let mut answer = |yields| {
        costly.policy.yields = yields;
        let rules = vec![rule(pattern("/"), "own"), costly.clone()];
        let value = encode_server(&Server::of(rules));
        let found = ServerView::new(&value).rule(path.as_bytes(), &NoParts, &patterns);
        found.map(|route| route.map(|route| route.rule.backend().unwrap() == b"own"))
    };
    assert!(answer(false).is_err(), "the pattern is not costly enough for this test");
    assert!(matches!(answer(true), Ok(Some(true))));

    // Where it may win, the owner's rule is served in its place.
    costly.path = pattern("~/shop/(?=a)(a+)+(a+)+(a+)+(a+)+b");
    costly.policy.yields = true;
    let rules = vec![rule(pattern("/"), "own"), costly.clone()];
    let value = encode_server(&Server::of(rules));
    let path = format!("/shop/{}", "a".repeat(1_000));
    let found =
        ServerView::new(&value).rule(path.as_bytes(), &NoParts, &patterns).unwrap().unwrap();
    assert_eq!(found.rule.backend(), Some(&b"own"[..]));

    // It may protect what its own namespace serves there.
    let mut open = Rule { path: pattern("/shop"), ..costly.clone() };
    open.policy.yields = false;
    let rules = vec![rule(pattern("/"), "own"), open.clone(), costly.clone()];
    let value = encode_server(&Server::of(rules));
    assert!(ServerView::new(&value).rule(path.as_bytes(), &NoParts, &patterns).is_err());
    // An expression of a third namespace does not end the search.
    let mut third = Rule { path: pattern("~/shop/a(?=a)(a+)+(a+)+(a+)+(a+)+b"), ..costly };
    third.origin.namespace = "third".into();
    let guarded = Rule { path: pattern("~/shop/a.*"), ..third.clone() };
    let guarded = Rule { origin: open.origin.clone(), ..guarded };
    let rules = vec![rule(pattern("/"), "own"), open, third, guarded.clone()];
    let value = encode_server(&Server::of(rules));
    let found =
        ServerView::new(&value).rule(path.as_bytes(), &NoParts, &patterns).unwrap().unwrap();
    assert!(found.captures.is_some(), "the guarded one serves it");
}

#[test]
fn exact_wins_over_prefix_and_the_longer_prefix_over_the_shorter() {
    let value = server(&["/", "/a", "/a/b", "=/a/b", "/a-b", "/a/b/c"]);
    for (path, expected) in [
        ("/", "/"),
        ("/x", "/"),
        ("/a", "/a"),
        ("/a/", "/a"),
        ("/a/b", "=/a/b"),
        ("/a/b/", "/a/b"),
        ("/a/bc", "/a"),
        ("/a/b/c/d", "/a/b/c"),
        ("/a/b-c", "/a"),
        ("/a-b/c", "/a-b"),
        ("/ab", "/"),
    ] {
        assert_eq!(winner(&value, path).as_deref(), Some(expected), "{path}");
    }
}

#[test]
fn a_path_that_lacks_the_slash_of_an_exact_one_leads_there_unless_a_rule_takes_it() {
    let paths = ["=/a/", "=/a/b/", "=/c/", "=/c", "=/d/e/", "/d", "=/r/", "~/r.*", "=/"];
    let value = server(&paths);
    for (path, expected) in [
        ("/a", Some("to =/a/")),
        ("/a/", Some("=/a/")),
        ("/a/b", Some("to =/a/b/")),
        ("/c", Some("=/c")),
        ("/d/e", Some("/d")),
        ("/r", Some("~/r.*")),
        ("/a/b//", None),
        ("/A", None),
        ("/", Some("=/")),
    ] {
        assert_eq!(winner(&value, path).as_deref(), expected, "{path}");
        let all = ServerView::new(&value).considered(path.as_bytes(), &Patterns::default());
        let is_first = matches!(expected, Some(expected) if expected.starts_with("to "));
        let result = all.first().map(|one| one.result);
        assert_eq!(result == Some(MatchResult::LacksSlash), is_first, "{path}");
    }
    // A root matches every path, but not an unclaimed one.
    let value = server(&["=/a/", "/"]);
    assert_eq!(winner(&value, "/a").as_deref(), Some("/"));
    let mut nobodys = rule(pattern("/"), "x");
    nobodys.backend = None;
    let value = encode_server(&Server::of(vec![nobodys, rule(pattern("=/a/"), "=/a/")]));
    assert_eq!(winner(&value, "/a").as_deref(), Some("to =/a/"));
    assert!(
        !ServerView::new(&value)
            .rule(b"/b", &NoParts, &Patterns::default())
            .unwrap()
            .unwrap()
            .lacks_slash
    );
}

#[test]
fn a_rule_gives_back_its_texts() {
    let value = server(&["/cart"]);
    let found = found(&value, b"/cart").unwrap();
    assert_eq!(found.texts(), [&b"/cart"[..], b"", b"shop", b"", b"", b""]);
    assert_eq!(found.packed(), ([5, 0, 4, 0, 0, 0], &b"/cartshop"[..]));
    assert_eq!(found.https_redirect(), HttpsRedirect::Always);
}

#[test]
fn a_rule_keeps_its_name_while_its_policy_changes_and_no_other_has_it() {
    let exact = rule(PathPattern::exact("/a").unwrap(), "x");
    let prefix = rule(PathPattern::prefix("/a").unwrap(), "x");
    let other = rule(PathPattern::prefix("/b").unwrap(), "x");
    let value = |rules: &[&Rule]| {
        encode_server(&Server::of(rules.iter().map(|rule| (*rule).clone()).collect()))
    };
    let before = value(&[&other, &prefix, &exact]);
    let names: Vec<_> = ServerView::new(&before).names().collect();
    assert_eq!(names.iter().collect::<std::collections::BTreeSet<_>>().len(), 3);
    let policy = Policy::default();
    let after = value(&[&Rule { policy, ..exact.clone() }]);
    assert_eq!(ServerView::new(&after).names().collect::<Vec<_>>(), names[..1]);
    let rules: Vec<_> = ServerView::new(&before).rules().collect();
    assert_eq!(rules.iter().map(RuleView::index).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(found(&before, b"/b").unwrap().index(), 2);
}

#[test]
fn cut_bytes_answer_not_there() {
    let value = server(&["/", "/a", "=/a/b", "~/a/b/[a-d]", "~/a/x", "~/A.b"]);
    for cut in 0..value.len() {
        ServerView::new(&value[..cut]).names().count();
        if let Some(rule) = found(&value[..cut], b"/a/b/c") {
            rule.texts();
        }
    }
}

#[test]
fn an_exact_path_wins_then_the_longer_text_of_pattern_or_prefix() {
    let value = server(&[
        "/",
        "/app/v1/users",
        "=/app/v1/x1",
        "~/app(/|$)(.*)",
        "~/app/v[0-9]+/.*",
        "~/b.",
        "~/b?",
    ]);
    for (path, expected) in [
        ("/app/v1/x1", "=/app/v1/x1"),
        ("/app/v1/x2", "~/app/v[0-9]+/.*"),
        ("/app/v1/users/7", "~/app/v[0-9]+/.*"),
        ("/app/vx", "~/app(/|$)(.*)"),
        ("/apps", "~/b?"),
        ("/APP/V1/", "~/app/v[0-9]+/.*"),
        // As long as each other: `?` is greater than `.`.
        ("/bx", "~/b?"),
    ] {
        assert_eq!(winner(&value, path).as_deref(), Some(expected), "{path}");
    }
    let value = server(&["/app/v1/users/of/mine", "~/app/v[0-9]+/.*", "~/ab", "/ac", "~/a."]);
    assert_eq!(winner(&value, "/app/v1/users/of/mine/7").as_deref(), Some("/app/v1/users/of/mine"));
    assert_eq!(winner(&value, "/abc").as_deref(), Some("~/ab"));
    assert_eq!(winner(&value, "/ac").as_deref(), Some("/ac"));
    assert_eq!(winner(&value, "/b"), None);
}

#[test]
fn a_pattern_is_anchored_as_a_whole_and_says_what_its_groups_matched() {
    let value = server(&["~/a(/|$)(.*)|/b([0-9]*)"]);
    let patterns = Patterns::default();
    let captures = |path: &'static [u8]| {
        let route = ServerView::new(&value).rule(path, &NoParts, &patterns).unwrap()?;
        let captures = route.captures.unwrap();
        Some([0, 1, 2, 3, 9].map(|group| captures.get(group, path).escape_ascii().to_string()))
    };
    assert_eq!(captures(b"/A/x%2f\xff/").unwrap(), ["/A/x%2f\\xff/", "/", "x%2f\\xff/", "", ""]);
    assert_eq!(captures(b"/a").unwrap(), ["/a", "", "", "", ""]);
    assert_eq!(captures(b"/b12x").unwrap(), ["/b12", "", "", "12", ""]);
    assert_eq!(captures(b"/x/b12"), None);
    assert_eq!(captures(b"x/a/"), None);
}

#[test]
fn ten_thousand_patterns_with_other_beginnings_cost_nothing() {
    let all: Vec<_> = (0..10_000).map(|n| format!("~/svc-{n}(/|$)(.*)")).collect();
    let value = server(&all.iter().map(String::as_str).collect::<Vec<_>>());
    let patterns = Patterns::default();
    for n in [0, 7, 1_234, 9_999] {
        let path = format!("/SVC-{n}/x");
        let route =
            ServerView::new(&value).rule(path.as_bytes(), &NoParts, &patterns).unwrap().unwrap();
        assert_eq!(route.rule.backend().unwrap(), format!("~/svc-{n}(/|$)(.*)").as_bytes());
        assert_eq!(route.captures.unwrap().get(2, path.as_bytes()), b"x");
    }
    assert!(ServerView::new(&value).rule(b"/svd", &NoParts, &patterns).unwrap().is_none());
    assert_eq!(patterns.of_paths_kept(), 4, "no other was compiled");
}

#[test]
fn a_pattern_without_an_answer_ends_the_search() {
    let value = server(&["/", r"~/(?=a)(a|a)*b\1\1"]);
    let path = format!("/{}!", "a".repeat(900));
    let patterns = Patterns::default();
    assert!(ServerView::new(&value).rule(path.as_bytes(), &NoParts, &patterns).is_err());
    assert_eq!(winner(&value, "/b").as_deref(), Some("/"));
}

/// Small, so that rules meet.
const REGEXES: [&str; 19] = [
    "/",
    "/a",
    "/A",
    "/ab",
    "/a/b",
    "/a.*",
    "/a(/|$)(.*)",
    "/[ab]",
    "/(a|b)/?",
    "/a+b",
    "/ab?c",
    "/a|/b",
    "/(?i)AB",
    "/a\\.b",
    "/a/?b",
    "/(?!a)b",
    "/a(?=b)",
    "/ab*",
    "/a/b$",
];

proptest! {
    /// Against the definition: exact, then all patterns and the longest prefix by their strength.
    #[test]
    fn the_strongest_pattern_is_found(
        chosen in proptest::collection::btree_set(0..REGEXES.len(), 0..6),
        prefixes in proptest::collection::btree_set("(/[ab]{1,2}){0,2}", 0..4),
        exact in proptest::option::of("/[ab]/?[ab]?"),
        path in "/([abA]{1,2}(/[aB.]{0,2})?)?",
    ) {
        let mut all: Vec<String> = chosen.iter().map(|n| format!("~{}", REGEXES[*n])).collect();
        all.extend(prefixes.iter().map(|p| if p.is_empty() { "/".into() } else { p.clone() }));
        all.extend(exact.iter().map(|path| format!("={path}")));
        let value = server(&all.iter().map(String::as_str).collect::<Vec<_>>());
        let matches = |text: &str| match pattern(text) {
            PathPattern::Exact(exact) => exact == path,
            PathPattern::Prefix(prefix) => covers(prefix.as_bytes(), path.as_bytes()),
            PathPattern::Regex(regex) => {
                fancy_regex::Regex::new(&format!("(?i)^(?:{regex})")).unwrap().is_match(&*path).unwrap()
            }
        };
        let longest = all.iter().filter(|text| text.starts_with('/') && matches(text)).max_by_key(|t| t.len());
        let best = all
            .iter()
            .filter(|text| matches(text) && (!text.starts_with('/') || Some(*text) == longest))
            .max_by_key(|text| {
                let bare = text.trim_start_matches(['=', '~']);
                (text.starts_with('='), bare.len(), bare.to_owned(), text.starts_with('~'))
            });
        let slashed = format!("={path}/");
        let expected = best.cloned().or_else(|| all.contains(&slashed).then(|| format!("to {slashed}")));
        prop_assert_eq!(winner(&value, &path), expected, "{:?}", all);
    }

    /// Against the definition: among all prefixes that cover the path, the longest.
    #[test]
    fn the_longest_covering_prefix_is_found(
        prefixes in proptest::collection::btree_set("(/[ab.-]{1,2}){0,4}", 0..30),
        path in "(/[ab.-]{1,2}){1,5}/?",
    ) {
        let rules = prefixes.iter().map(|p| rule(PathPattern::Prefix(p.clone()), &format!("={p}")));
        let value = encode_server(&Server::of(rules.collect()));
        let longest = prefixes.iter().filter(|p| covers(p.as_bytes(), path.as_bytes())).max_by_key(|p| p.len());
        prop_assert_eq!(winner(&value, &path), longest.map(|p| format!("={p}")));
    }
}
