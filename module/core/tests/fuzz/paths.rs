//! Paths of clients under rules of users: router, regular expressions, rewrites, redirects.

use crate::{ends_a_line, ends_a_target};
use oxigress_core::decision::redirect;
use oxigress_core::decision::rewrite::{self, Rewritten};
use oxigress_core::model::policy::{Redirect, Rewrite, Template};
use oxigress_core::model::{BackendId, Origin, PathPattern, Policy, Rule, Server};
use oxigress_core::patterns::{Allowance, Budget, Patterns};
use oxigress_core::record::{ServerView, encode_server};
use oxigress_core::text::template::{self, Part, Values};
use oxigress_fuzz::{check, fields, joined};
use std::borrow::Cow;

#[test]
fn fuzz_router() {
    let seeds = [
        joined(&["/app/v1/x", "/\n=/app/v1\n~/app(/|$)(.*)\n~/app/v[0-9]+/.*\n/app/v1"]),
        joined(&["/Ab/C", "~/ab?c\n~/a|/b\n~/(?i)AB\n/a\n~/a/?b\n~/(?!a)b\n=/Ab/C"]),
        joined(&["/x", "~/[^/]*\n~/x$\n~/(x|y)z?\n/x\n~/x\n~/\\x41\n~/a{0,3}b"]),
        joined(&["/straße", "~/stra(ß|ss)e\n~/\\w+\n~/[a-ü]+"]),
    ];
    check("router", &seeds, |input| {
        let [path, rules] = fields(input);
        let Ok(rules) = str::from_utf8(rules) else { return };
        let mut all: Vec<PathPattern> = Vec::new();
        for text in rules.lines().take(12) {
            let pattern = match (text.strip_prefix('='), text.strip_prefix('~')) {
                (Some(exact), _) => PathPattern::exact(exact),
                (_, Some(regex)) => PathPattern::regex(regex, Allowance::unlimited()),
                _ => PathPattern::prefix(text),
            };
            all.extend(pattern.ok().filter(|pattern| !all.contains(pattern)));
        }
        let rules = all.iter().enumerate().map(|(number, path)| Rule {
            path: path.clone(),
            backend: BackendId::parse(format!("{number}")).ok(),
            origin: Origin::default(),
            policy: Policy::default(),
            policies: None,
            selection: None,
        });
        let value = encode_server(&Server::of(rules.collect()));
        let Ok(found) = ServerView::new(&value).rule(
            path,
            &oxigress_core::record::NoParts,
            &Patterns::default(),
        ) else {
            return;
        };
        let lacks_slash = found.as_ref().is_some_and(|route| route.lacks_slash);
        let found = found.map(|route| {
            let number: usize =
                str::from_utf8(route.rule.backend().unwrap()).unwrap().parse().unwrap();
            &all[number]
        });
        let Some(mut expected) = strongest(&all, path) else { return };
        let slashed = [path, b"/"].concat();
        let is_slashed =
            |p: &&PathPattern| matches!(p, PathPattern::Exact(p) if p.as_bytes() == slashed);
        assert_eq!(lacks_slash, expected.is_none() && all.iter().any(|p| is_slashed(&p)));
        if lacks_slash {
            expected = all.iter().find(is_slashed);
        }
        assert_eq!(found, expected, "{:?} of {all:?}", path.escape_ascii().to_string());
    });
}

/// The definition: exact, then all patterns and the longest prefix by their texts. `None`: a pattern has no answer.
fn strongest<'a>(all: &'a [PathPattern], path: &[u8]) -> Option<Option<&'a PathPattern>> {
    let mut best: Option<&PathPattern> = None;
    for pattern in all {
        let matches = match pattern {
            PathPattern::Exact(exact) => exact.as_bytes() == path,
            PathPattern::Prefix(prefix) => path
                .strip_prefix(prefix.as_bytes())
                .is_some_and(|rest| rest.is_empty() || rest[0] == b'/'),
            PathPattern::Regex(regex) => {
                let found =
                    Patterns::default().captures(regex.as_bytes(), path, &mut { Budget::OF_PATH });
                found.ok()?.is_some()
            }
        };
        if matches {
            best = best.filter(|best| rank(best) > rank(pattern)).or(Some(pattern));
        }
    }
    Some(best)
}

fn rank(pattern: &PathPattern) -> (u8, usize, &str, bool) {
    match pattern {
        PathPattern::Exact(path) => (1, path.len(), path, false),
        PathPattern::Prefix(path) if path.is_empty() => (0, 1, "/", false),
        PathPattern::Prefix(path) => (0, path.len(), path, false),
        PathPattern::Regex(path) => (0, path.len(), path, true),
    }
}

/// All engines have the same results, for short paths and for the longest that nginx accepts: one-pass automata,
/// automata that record positions, automata that do not, and the backtracking matcher.
#[test]
fn fuzz_patterns() {
    let seeds = [
        joined(&["/app/x/y", "/app(/|$)(.*)"]),
        joined(&["/api/v12/user-7.json", "/api/(v\\d+)/([^/]+?)(?:\\.(json|xml))?$"]),
        joined(&["/aab", "/(a+)(b|ab)?|/(c)"]),
        joined(&["/stra\u{df}e", "/stra(\u{df}|ss)e\\b"]),
        joined(&["/AbC", "(?-i)/A(?i:b)[[:alpha:]]"]),
        joined(&["/abab", "/(?!api|admin)(a|ab)(?=b|$)(.*)"]),
        joined(&["/aa-aa", r"/((?:(?!b).)+)-\1(?<=a)$"]),
        joined(&["/aBc", "/(?=a)(a(?-i)b|(?i)B)c{1,2}+(?#x)"]),
        joined(&["/l7/x", "/(l0|l1|l2|l3|l4|l5|l6|l7)(/|$)(.*)"]),
    ];
    check("patterns", &seeds, |input| {
        let [path, pattern] = fields(input);
        let Ok(pattern) = str::from_utf8(pattern) else { return };
        if PathPattern::regex(pattern, Allowance::unlimited()).is_err() || pattern.len() > 200 {
            return;
        }
        engines_agree(pattern, path);
        let long: Vec<_> = path.iter().copied().cycle().take(7_900).collect();
        engines_agree(pattern, &long);
    });
}

fn engines_agree(pattern: &str, path: &[u8]) {
    let patterns = Patterns::default();
    let first = patterns.captures(pattern.as_bytes(), path, &mut { Budget::OF_PATH });
    // Compiled by now, so that there may be an answer where the budget did not suffice for both.
    let found = patterns.captures(pattern.as_bytes(), path, &mut { Budget::OF_PATH });
    assert!(first.is_err() || first == found);
    let (Ok(found), Some(expected)) = (found, second_opinion(pattern, path)) else { return };
    assert_eq!(found.is_some(), expected.is_some());
    let (Some(found), Some(expected)) = (found, expected) else { return };
    for (group, text) in expected.into_iter().enumerate() {
        assert_eq!(found.get(group as u8, path), text, "group {group}");
    }
}

/// What each group holds according to another engine; `None` where none understands the pattern.
fn second_opinion(pattern: &str, path: &[u8]) -> Option<Option<Vec<Vec<u8>>>> {
    let linear = |unicode| {
        regex::bytes::RegexBuilder::new(pattern).unicode(unicode).build().ok()?;
        let mut whole = regex::bytes::RegexBuilder::new(&format!("\\A(?:{pattern})"));
        whole.case_insensitive(true).unicode(unicode).build().ok()
    };
    // `regex` reads `a++` as `(?:a+)+`.
    let is_possessive = ["*+", "++", "?+", "}+"].iter().any(|end| pattern.contains(end));
    if let Some(regex) = linear(false).or_else(|| linear(true)).filter(|_| !is_possessive) {
        let found = regex.captures(path);
        let group = |found: &regex::bytes::Captures<'_>, group| {
            found.get(group).map_or(Vec::new(), |found| found.as_bytes().to_vec())
        };
        return Some(found.map(|found| (0..10).map(|number| group(&found, number)).collect()));
    }
    let other = |pattern: &str| {
        let mut builder = fancy_regex::RegexBuilder::new(pattern);
        let builder = builder.bytes_mode(fancy_regex::BytesMode::Ascii).case_insensitive(true);
        builder.backtrack_limit(1_000).build().ok()
    };
    // Flags go on behind their group there, and `{,}` repeats.
    let has_flags = pattern.split("(?").skip(1).any(|rest| {
        rest.trim_start_matches(|c: char| c.is_ascii_alphabetic() || c == '-').starts_with(')')
    });
    if has_flags || pattern.contains("{,}") {
        return None;
    }
    other(pattern)?;
    let found = other(&format!(r"\A(?:{pattern})"))?.captures(path).ok()?;
    // `(.*)+` ends with an empty round, as in PCRE; the other engine undoes the round together with the group's
    // content.
    let groups = if [")*", ")+", "){"].iter().any(|end| pattern.contains(end)) { 1 } else { 10 };
    let group = |found: &fancy_regex::Captures<'_, [u8]>, group| {
        found.get(group).map_or(Vec::new(), |found| found.as_bytes().to_vec())
    };
    Some(found.map(|found| (0..groups).map(|number| group(&found, number)).collect()))
}

/// The values of a client, from which nginx has excluded control bytes and spaces in the query.
struct Client<'a> {
    uri: &'a [u8],
    args: Vec<u8>,
    captures: [&'a [u8]; 2],
}

impl Values for Client<'_> {
    fn variable(&self, name: &[u8]) -> Option<Cow<'_, [u8]>> {
        match name {
            b"uri" | b"document_uri" => Some(self.uri.into()),
            b"args" | b"query_string" => Some((&*self.args).into()),
            b"request_uri" => Some([b"/", &*self.args].concat().into()),
            b"scheme" => Some((&b"https"[..]).into()),
            b"host" => Some((&b"shop.test"[..]).into()),
            // nginx accepts any byte but CR, LF and NUL in a header's value.
            _ if name.starts_with(b"http_") => Some(self.uri.into()),
            _ => None,
        }
    }

    fn capture(&self, number: u8) -> &[u8] {
        self.captures.get(usize::from(number)).copied().unwrap_or_default()
    }
}

fn client<'a>([uri, args, first, second]: [&'a [u8]; 4]) -> Client<'a> {
    let args =
        args.iter().copied().filter(|byte| !byte.is_ascii_control() && *byte != b' ').collect();
    Client { uri, args, captures: [first, second] }
}

fn templates() -> Vec<Vec<u8>> {
    [
        ["/$1", "/app/x", "a=b", "/app/x", "x"],
        ["/x/$1$2?id=$1&q=$arg_q", "/app/../x", "", "..", "a b"],
        ["/new%20place/$uri?", "/a\r\nX: y", "a", "%0d%0a", "/"],
        ["https://$host/$1?$args", "/a", "x=%2e", "//evil.test", "x"],
        ["$scheme://b.test$uri", "/\u{e4}", "", "", ""],
        ["//$1/${host}$http_x", "/", "", "..", ""],
    ]
    .iter()
    .map(|texts| joined(texts))
    .collect()
}

#[test]
fn fuzz_rewrite() {
    check("rewrite", &templates(), |input| {
        let [target, uri, args, first, second] = fields(input);
        let Some(target) = str::from_utf8(target).ok().and_then(|text| Template::parse(text).ok())
        else {
            return;
        };
        let client = client([uri, args, first, second]);
        let rewrite = Rewrite { target, forwarded_prefix: None };
        match rewrite::apply(&rewrite, &client.args, &client) {
            Ok(Rewritten::Uri { path, args }) => {
                assert!(path.starts_with(b"/") && !path.starts_with(b"//"), "{path:?}");
                assert!(!path.iter().any(u8::is_ascii_control), "{path:?}");
                let is_dots = |segment: &[u8]| [&b"."[..], b".."].contains(&segment);
                assert!(!path.split(|byte| *byte == b'/').any(is_dots), "{path:?}");
                assert!(!ends_a_target(&args), "{:?}", args.escape_ascii().to_string());
            }
            Ok(Rewritten::Elsewhere(url)) => assert!(!ends_a_line(&url), "{url:?}"),
            Err(rewrite::Refused) => {}
        }
    });
}

#[test]
fn fuzz_redirect() {
    check("redirect", &templates(), |input| {
        let [location, uri, args, first, second] = fields(input);
        let client = client([uri, args, first, second]);
        let target = [b"/", &*client.args].concat();
        let host = client.args.get(..client.args.len().min(20)).unwrap_or_default();
        let https = redirect::location(host, Some(8443), &target, first.is_empty());
        assert!(https.starts_with(b"https://") && !ends_a_target(&https));
        let Some(location) =
            str::from_utf8(location).ok().and_then(|text| Template::parse(text).ok())
        else {
            return;
        };
        let is_path = location.as_str().starts_with('/');
        let redirect = Redirect { code: 302, location, appends_target: second.is_empty() };
        let origin = &b"https://shop.test:8443"[..];
        for is_relative in [false, true] {
            let url = redirect::elsewhere(&redirect, Some(origin), is_relative, &target, &client);
            let Some(url) = url else { return };
            assert!(!ends_a_line(&url), "{url:?}");
            let is_here = url.starts_with(b"https://shop.test:8443/")
                || is_relative && url.starts_with(b"/") && !url.starts_with(b"//");
            assert!(!is_path || is_here, "{url:?}");
        }
    });
}

#[test]
fn fuzz_template() {
    check("template", &templates(), |input| {
        let [text, uri, args, first, second] = fields(input);
        // Its parts are the text, in order and without a gap.
        let mut rest = text;
        for part in template::parts(text) {
            let written = match part {
                Part::Literal(literal) => vec![literal.to_vec()],
                Part::Variable(name) => vec![[b"$", name].concat(), [b"${", name, b"}"].concat()],
                Part::Capture(number) => {
                    vec![format!("${number}").into(), format!("${{{number}}}").into()]
                }
            };
            let part = written.iter().find(|written| rest.starts_with(written)).unwrap();
            assert!(!part.is_empty());
            rest = &rest[part.len()..];
        }
        assert!(rest.is_empty());
        let Some(text) = str::from_utf8(text).ok().and_then(|text| Template::parse(text).ok())
        else {
            return;
        };
        let client = client([uri, args, first, second]);
        let expanded = template::expand(text.parts(), &client);
        assert!(
            !expanded.is_some_and(
                |value| ends_a_line(&value) || value.len() > template::MAX_EXPANDED_BYTES
            )
        );
    });
}
