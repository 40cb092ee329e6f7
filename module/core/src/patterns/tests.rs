//! Answers and work of the engines.

use super::*;
use proptest::prelude::*;
use std::time::Instant;

fn pattern_is_valid(pattern: &str) -> Result<(), Invalid> {
    super::pattern_is_valid(pattern, Allowance::unlimited())
}

fn path_is_valid(pattern: &str) -> Result<(), Invalid> {
    super::path_is_valid(pattern, Allowance::unlimited())
}

fn found(pattern: &str, value: &[u8]) -> Option<bool> {
    Patterns::default().is_match(pattern.as_bytes(), value)
}

#[test]
fn patterns_are_searched_for_in_bytes() {
    assert_eq!(found("^(beta|gamma)$", b"gamma"), Some(true));
    assert_eq!(found("^(beta|gamma)$", b"gammas"), Some(false));
    assert_eq!(found("et", b"beta"), Some(true));
    assert_eq!(found("^caf.$", b"caf\xe9"), Some(true));
    assert_eq!(found("^[äö]$", "ö".as_bytes()), Some(true));
}

#[test]
fn the_patterns_of_a_user_have_a_budget() {
    let (patterns, mut budget) = (Patterns::default(), Budget::OF_VALUES);
    let value = [b'1'; MAX_VALUE_BYTES];
    let mut is_match = || patterns.is_match_within(b"(1?){20}2", &value, &mut budget);
    assert_eq!(is_match(), Some(false));
    assert!((0..1_000).any(|_| is_match().is_none()), "without a budget for all calls together");
}

#[test]
fn look_around_and_back_references_are_served() {
    assert_eq!(found("^(?!old)", b"old-1"), Some(false));
    assert_eq!(found("^(?!old)", b"new-1"), Some(true));
    assert_eq!(found(r"^(\w+)-\1$", b"ab-ab"), Some(true));
    assert_eq!(found(r"^(\w+)-\1$", b"ab-ac"), Some(false));
}

/// The answers are those of libpcre2 10.42; without one it refuses the pattern, or another version reads it otherwise.
#[test]
fn flags_and_repetitions_are_those_of_pcre() {
    for (pattern, value, expected) in [
        ("^(?=a)(a(?i)b)c$", "aBc", Some(true)),
        ("^(?=a)(a(?i)b)c$", "aBC", Some(false)),
        ("^(?=[aC])(a(?i)b|c)d$", "Cd", Some(true)),
        ("^(?=[aC])(a(?i)b|c)d$", "CD", Some(false)),
        ("^(?=.)a(?i)b|c$", "C", Some(true)),
        ("^(a(?i)b)c$", "aBC", Some(false)),
        ("^a++a", "aaa", Some(false)),
        ("^a{2}+a$", "aaa", Some(true)),
        ("^a?+a$", "a", Some(false)),
        ("^(?=a)a{x}$", "a{x}", Some(true)),
        ("^(?=a)a{,}$", "a{,}", Some(true)),
        ("^(?=a)a{,}$", "aa", Some(false)),
        ("^(a{2}){3}$", "aaaaaa", Some(true)),
        ("^a{2}{3}$", "aaaaaa", None),
        ("^(?=a)a{2}{3}$", "aa{3}", None),
        ("^a**$", "aa", None),
        ("^a{,3}$", "aa", None),
        ("^(?=a)a{,3}$", "aa", None),
    ] {
        assert_eq!(found(pattern, value.as_bytes()), expected, "{pattern} {value}");
    }
    for pattern in ["/a{2}{3}", "/a{,3}"] {
        let refused = path_is_valid(pattern).unwrap_err().to_string();
        assert!(refused.contains("PCRE"), "{refused}");
    }
}

#[test]
fn an_allowance_is_spent_once() {
    let mut allowance = Allowance::of(60_000);
    let part = allowance.split(50_000).unwrap();
    assert!(allowance.split(50_000).is_none());
    super::path_is_valid("/a(b|c)", part).unwrap();
    let refused = super::path_is_valid("/a(b|c)", allowance).unwrap_err().to_string();
    assert!(refused.contains("10 are left"), "{refused}");
}

#[test]
fn what_cannot_be_compiled_has_no_answer_and_a_reason() {
    for pattern in ["(", "[a", "*a", "a{9999}{9999}", r"\p{nothing}", &"a".repeat(1_025)] {
        assert_eq!(found(pattern, b"a"), None, "{pattern:.20}");
        assert!(!pattern_is_valid(pattern).unwrap_err().to_string().is_empty());
    }
    assert_eq!(Patterns::default().is_match(b"\xff", b"a"), None);
    pattern_is_valid("^(?!old)").unwrap();
}

#[test]
fn a_group_that_cannot_be_there_takes_no_memory() {
    for group in [
        "\\g88888888888888881",
        "\\g<99999999999>",
        "\\g{99999999999}",
        "\\g'+99999999999'",
        "\\99999999999",
        "\\k<99999999999>",
        "\\k<-99999999999>",
        "(?99999999999)",
        "(?(99999999999)a|b)",
        "\\g-99999999999",
    ] {
        pattern_is_valid(&format!("(?=a){group}")).unwrap_err();
        path_is_valid(&format!("/(a){group}")).unwrap_err();
    }
    path_is_valid("/(?!old)(a)\\1/20240101-20250101").unwrap();
}

#[test]
fn a_dear_pattern_is_refused_before_it_is_compiled() {
    for dear in [
        format!("/[{}]x", r"\pL\PL".repeat(165)),
        format!("/(?u)[{}]x", r"\pL\PL".repeat(165)),
        "/(?:a{60}){60}".to_owned(),
    ] {
        let refused = path_is_valid(&dear).unwrap_err().to_string();
        assert!(refused.contains("to compile, at most"), "{dear:.40}: {refused}");
        assert!(pattern_is_valid(&dear).unwrap_err().to_string().contains("to compile"));
    }
    for fine in [r"/\p{L}+", r"/(?!old)\w+", "/(?=ä)(.*)", "/[äöü]", r"/(?i)shop(/|$)(.*)"] {
        path_is_valid(fine).unwrap();
    }
}

#[test]
fn captures_of_a_long_path_are_right_and_charged() {
    let locales: Vec<_> = (0..60).map(|n| format!("l{n}")).collect();
    let few = format!("/({})(/|$)(.*)", locales.join("|"));
    for pattern in [few.as_str(), "/(?:a|ab)(?:c|bcd)(.*)", "/(?:a|ab)*", "/(a)(b)?(.*)"] {
        for length in [0, 10, 1_000, 3_000, 5_000, 7_900, 8_100, 32_000] {
            let path = format!("/l59/{}", "ab".repeat(length / 2));
            let mut budget = Budget::of(u64::MAX);
            let patterns = Patterns::default();
            let found = patterns.captures(pattern.as_bytes(), path.as_bytes(), &mut budget);
            let other = regex::bytes::Regex::new(&format!("(?i-u)^(?:{pattern})")).unwrap();
            let other = other.captures(path.as_bytes());
            let found = found.unwrap();
            assert_eq!(found.is_some(), other.is_some(), "{pattern}");
            if let (Some(found), Some(other)) = (found, other) {
                for group in 0..10 {
                    let expected = other.get(group).map_or(&b""[..], |group| group.as_bytes());
                    assert_eq!(found.get(group as u8, path.as_bytes()), expected, "{pattern}");
                }
            }
        }
    }
    // Within the budget of a request too: few of its states are there at once.
    let path = format!("/l59/{}", "a".repeat(7_900));
    let found =
        Patterns::default().captures(few.as_bytes(), path.as_bytes(), &mut { Budget::OF_PATH });
    let found = found.expect("an answer").expect("a match");
    assert_eq!(found.get(1, path.as_bytes()), b"l59");
    assert_eq!(found.get(3, path.as_bytes()).len(), 7_900);

    let mut budget = Budget::of(u64::MAX);
    let path = format!("/{}c", "a".repeat(7_900));
    let many = b"/(?:a?){150}b";
    assert_eq!(Patterns::default().captures(many, path.as_bytes(), &mut budget), Ok(None));
    assert!(u64::MAX - budget.steps > 16_000_000, "300 states took 19 milliseconds");
}

#[test]
fn an_exhausted_budget_has_no_answer() {
    let value = "a".repeat(1_000) + "!";
    assert_eq!(found(r"^(?=a)(a|a)*b\1$", value.as_bytes()), None);
    assert_eq!(found("b", &[b'a'; 1_025]), None);
    assert_eq!(found("(?=b)b", &[b'a'; 1_025]), None);
}

#[test]
fn a_budget_is_of_all_patterns_and_counts_bytes_and_compiling() {
    let patterns = Patterns::default();
    let tried = |path: &[u8]| {
        let mut budget = Budget::OF_PATH;
        (0..10_000)
            .take_while(|n| {
                let pattern = format!("/(?:[a-y]|[b-z])*{}(x|y)?x", n % 100);
                patterns.captures(pattern.as_bytes(), path, &mut budget) == Ok(None)
            })
            .count()
    };
    let first = tried(b"/abc");
    assert!(first > 40, "{first}");
    // What the first request compiled is there for the next ones.
    while tried(b"/abc") < 100 {}
    assert!(tried(b"/abc") > 4_000);
    assert!(tried(&[b'a'; 60_000]) < 100);
}

/// Patterns with look-around and back-references, as texts; groups are referred to by what the pattern has at least.
fn extended() -> impl Strategy<Value = String> {
    let one = prop_oneof![
        "[abAB/]".prop_map(|text| text),
        Just(".".to_owned()),
        Just("[^/]".to_owned()),
        Just(r"\w".to_owned()),
        Just(r"\b".to_owned()),
        Just("^".to_owned()),
        Just("$".to_owned()),
        Just("(?:ab|a)".to_owned()),
        Just("(a|b)".to_owned()),
        Just("(?i:aB)".to_owned()),
    ];
    let nested = one.prop_recursive(3, 24, 4, |inner| {
        let times =
            prop_oneof![Just("*"), Just("+"), Just("?"), Just("*?"), Just("{1,3}"), Just("{2}")];
        let around = prop_oneof![Just("(?="), Just("(?!"), Just("("), Just("(?:"), Just("(?>"),];
        prop_oneof![
            (around, inner.clone()).prop_map(|(open, inner)| format!("{open}{inner})")),
            (inner.clone(), times).prop_map(|(inner, times)| format!("(?:{inner}){times}")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("{a}{b}")),
            (inner.clone(), inner).prop_map(|(a, b)| format!("(?:{a}|{b})")),
            prop_oneof![Just("(?<=a)"), Just("(?<!/a)"), Just("(?<=ab|ba)")]
                .prop_map(str::to_owned),
        ]
    });
    (nested.clone(), nested, any::<bool>()).prop_map(|(first, second, repeats)| {
        format!("/(?=.*)({first}){}{second}", if repeats { r"\1" } else { "" })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_096))]

    /// The engine of `fancy-regex` has the same answers, where it has one.
    #[test]
    fn look_around_is_as_in_another_engine(pattern in extended(), path in "/[abAB/]{0,12}") {
        let built = |pattern: &str| {
            fancy_regex::RegexBuilder::new(pattern)
                .bytes_mode(fancy_regex::BytesMode::Ascii)
                .case_insensitive(true)
                .backtrack_limit(100_000)
                .build()
        };
        let Ok(other) = built(&format!(r"\A(?:{pattern})")) else { return Ok(()) };
        let Ok(expected) = other.captures(path.as_bytes()) else { return Ok(()) };
        let patterns = Patterns::default();
        let found = patterns.captures(pattern.as_bytes(), path.as_bytes(), &mut Budget::of(u64::MAX));
        let Ok(found) = found else { return Ok(()) };
        prop_assert_eq!(found.is_some(), expected.is_some());
        if let (Some(found), Some(expected)) = (found, expected) {
            for group in 0..10 {
                let text = expected.get(group).map_or(&b""[..], |group| group.as_bytes());
                prop_assert_eq!(found.get(group as u8, path.as_bytes()), text, "group {}", group);
            }
        }
    }
}

#[test]
fn look_around_costs_what_it_is_charged() {
    let path = format!("/{}", "a".repeat(7_900));
    for pattern in [
        "/(?=.*b|.*c)",
        "/(?:(?=.*b)|a)*c",
        r"/(?:(?!.*b).)*c",
        "/(?:(?=(?:a(?=.*c))*b)|a)*",
        r"/(a*)*\1b",
        "/(?:a(?<=(?:a|aa)*))*b",
        r"/(?:(?=a*a*a*b)|a)*",
    ] {
        let patterns = Patterns::default();
        let mut budget = Budget::OF_PATH;
        let answer = patterns.captures(pattern.as_bytes(), path.as_bytes(), &mut budget);
        assert_eq!(answer, Err(NoAnswer), "{pattern}");
        assert!(
            Budget::OF_PATH.steps - budget.steps < MAX_STEPS * STATE_STEPS + 300_000,
            "{pattern}"
        );
    }
    for (pattern, groups) in [
        ("/(?!api|admin)(.*)", ["aaaa", ""]),
        ("/((?!api|admin).)*$", ["a", ""]),
        (r"/(?=a)(a+?)(?<!b)(a*)$", ["a", "aaa"]),
    ] {
        for length in [4, 1_000, 4_000] {
            let path = format!("/{}", "a".repeat(length));
            let found = Patterns::default()
                .captures(pattern.as_bytes(), path.as_bytes(), &mut { Budget::OF_PATH });
            let found = found.expect("an answer").expect("a match");
            if length == 4 {
                assert_eq!(found.get(1, path.as_bytes()), groups[0].as_bytes(), "{pattern}");
                assert_eq!(found.get(2, path.as_bytes()), groups[1].as_bytes(), "{pattern}");
            }
        }
    }
}

#[test]
fn what_is_not_served_is_named() {
    for (pattern, reason) in [
        (r"/(?=a)\Ka", "\\K"),
        (r"/(?=a)(a)\g<1>", "call of a group"),
        (r"/(?=a)(a)(?1)", "regular expression: "),
        (r"/(?=a)(?u:\w)\1x", "regular expression: "),
        ("/(?=a)[é-\u{10fff0}]x", "beyond ASCII"),
        (r"/(?=a)(*FAIL)", "verb"),
        (r"/(?=a)[\pL]", "beyond ASCII"),
        (r"/(a)\2(?=a)", "group 2"),
        (r"/(?=a)(a|b\1)+", "within itself"),
        (r"/(?=a)\h", "\\h"),
        ("/(?=a)(?:(?:a{60}){60}){60}", "repeat less often"),
    ] {
        let refused = path_is_valid(pattern).unwrap_err().to_string();
        assert!(refused.contains(reason), "{pattern}: {refused}");
    }
}

/// Not a test: `cargo test -p oxigress-core --release -- --ignored --nocapture the_worst`.
#[test]
#[ignore = "prints times"]
fn the_worst_patterns_known() {
    // Bits that do not repeat, so that each byte is another state of the automaton.
    let bit = |n: u32| b'a' + (n.wrapping_mul(n).wrapping_mul(0x9e37_79b9) >> 31) as u8;
    let linear: Vec<_> = (1..MAX_VALUE_BYTES as u32).map(bit).chain([b'c']).collect();
    let backtracked = vec![b'a'; MAX_VALUE_BYTES];
    for (pattern, value) in [
        ("[ab]*a[ab]{40}[cd]x", &linear),
        ("a[ab]{60}[cd][^x]", &linear),
        ("(a|b)*a(a|b){60}c", &linear),
        ("(?i)(a*)*b", &linear),
        ("(?:a?){300}b", &linear),
        ("[ab]*a[ab]{90}c.*[ab]*a[ab]{90}c", &linear),
        (r"^(a+)+\1b", &backtracked),
        (r"(?=(a|aa)*b)a*b", &backtracked),
        (r"^(?:(?!b).)*b", &backtracked),
        (r"(?:a(?=.*b))*c", &backtracked),
        (r"(.*)(.*)(.*)\1b", &backtracked),
    ] {
        let (patterns, mut budget) = (Patterns::default(), Budget::of(u64::MAX));
        let first = patterns.is_match(pattern.as_bytes(), value);
        let start = Instant::now();
        let answer = patterns.is_match_within(pattern.as_bytes(), value, &mut budget);
        let (took, charged) = (start.elapsed(), u64::MAX - budget.steps);
        println!("{pattern}: {first:?} {answer:?} in {took:?}, charged {charged}");
    }
}

/// Not a test: `cargo test -p oxigress-core --release -- --ignored --nocapture what_compiling`.
#[test]
#[ignore = "prints times"]
fn what_compiling_takes_beside_its_price() {
    let few = r"\p{L}".to_owned();
    for pattern in [
        "/shop(/|$)(.*)".to_owned(),
        "/api/(v\\d+)/([^/]+?)(?:\\.(json|xml))?$".to_owned(),
        "/a{1000}".to_owned(),
        "/(?:a{40}){40}".to_owned(),
        format!("/{}b", "a?".repeat(300)),
        format!("/({})(/|$)(.*)", (0..60).map(|n| format!("l{n}")).collect::<Vec<_>>().join("|")),
        format!("/{few}"),
        "/[äöü]".to_owned(),
        r"/\w+é".to_owned(),
        format!("/{}", "[a-z]".repeat(200)),
        "/(?!api|admin)(.*)".to_owned(),
        format!("/{}x", "(?=[a-z])".repeat(40)),
        format!("/(?=a){}", "[a]".repeat(150)),
        "/(?=a)(?:a{30}){30}".to_owned(),
        "/(?=a)(?:[^/]{30}){40}".to_owned(),
    ] {
        let start = Instant::now();
        let compiled = compile(&pattern, Meaning::Path, Allowance::unlimited());
        let took = start.elapsed();
        let price = price_of(&pattern);
        let bytes = compiled.as_ref().map_or(0, |compiled| compiled.bytes);
        println!("{pattern:.60}: {} {took:?}, price {price:?}, {bytes} bytes", compiled.is_ok());
    }
}

#[test]
fn a_namespace_that_has_used_up_its_share_has_no_answer_and_others_do() {
    let patterns = Patterns::default();
    let captures = |namespace: &[u8], path: &str| {
        let of = patterns.of(namespace);
        of.captures(b"/(a|b)*x", path.as_bytes(), &mut { Budget::OF_PATH })
    };
    let dear = format!("/{}x", "ab".repeat(3_900));
    let before = Budget::OF_PATH.steps;
    let mut budget = Budget::OF_PATH;
    patterns.of(b"dear").captures(b"/(a|b)*x", dear.as_bytes(), &mut budget).unwrap();
    let steps = before - budget.steps;
    assert!(steps > 50_000, "{steps} steps");
    // As if many requests had come at once.
    let payer = patterns.shares.payer(b"dear");
    for _ in 0..500_000_000 / steps {
        patterns.shares.charge(payer, steps, &mut Bill::empty());
    }
    assert_eq!(captures(b"dear", &dear), Err(NoAnswer));
    assert!(captures(b"dear", "/x").is_ok_and(|found| found.is_some()), "what is cheap goes on");
    assert!(captures(b"other", &dear).is_ok_and(|found| found.is_some()));
    let new = patterns.of(b"dear").is_match(b"a", b"a", &mut { Budget::OF_VALUES });
    assert_eq!(new, None, "nothing is compiled for it");
    // Together the patterns of a request get no more than little.
    let mut budget = Budget::OF_PATH;
    let tries = 0..1_000;
    let short = "/x".to_owned() + &"a".repeat(60);
    let answered = tries.filter(|_| {
        patterns.of(b"dear").captures(b"/(a|b)*x", short.as_bytes(), &mut budget).is_ok()
    });
    assert!((5..100).contains(&answered.count()));
}
