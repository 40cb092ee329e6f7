use super::*;
use crate::model::{Affinity, Backend, BackendId, Cookie, Split};
use crate::patterns::Patterns;
use crate::record::encode_backend;
use std::collections::BTreeMap;

#[derive(Default)]
struct TestRequest {
    headers: BTreeMap<&'static str, &'static str>,
    cookies: BTreeMap<&'static str, String>,
}

impl Request for TestRequest {
    fn header(&self, name: &[u8]) -> Option<Cow<'_, [u8]>> {
        let name = str::from_utf8(name).unwrap().to_ascii_lowercase();
        self.headers.get(&*name).map(|value| Cow::Borrowed(value.as_bytes()))
    }
    fn cookie(&self, name: &[u8]) -> Option<&[u8]> {
        self.cookies.get(str::from_utf8(name).unwrap()).map(String::as_bytes)
    }
}

fn request(
    headers: &[(&'static str, &'static str)],
    cookies: &[(&'static str, &str)],
) -> TestRequest {
    let cookies = cookies.iter().map(|(name, value)| (*name, (*value).to_owned()));
    TestRequest { headers: headers.iter().copied().collect(), cookies: cookies.collect() }
}

fn record(id: &str, split: Split, is_sticky: bool) -> Vec<u8> {
    let cookie = Cookie { name: "route".into(), ..Cookie::default() };
    let affinity = is_sticky.then(|| Affinity { cookie, ..Affinity::default() });
    let affinity = affinity.map(Box::new);
    let backend = Backend { split: Some(split.into()), affinity, ..Backend::default() };
    encode_backend(&BackendId::parse(id).unwrap(), &backend)
}

fn held(id: &str) -> String {
    format!("key|{}", str::from_utf8(&cookie::tag(id.as_bytes())).unwrap())
}

fn decide_at(records: &[Vec<u8>], request: &TestRequest, random: u64) -> Option<usize> {
    let all = records.iter().map(|record| Some(BackendView::new(record)));
    decide(None, all, request, &Patterns::default().of(b"n"), random).place
}

/// The number of every 1,000 requests that each gets, the primary last.
fn parts(records: &[Vec<u8>]) -> Vec<u32> {
    let mut parts = vec![0; records.len() + 1];
    let all: Vec<_> = records.iter().map(|record| Some(BackendView::new(record))).collect();
    let all_patterns = Patterns::default();
    let patterns = all_patterns.of(b"n");
    for n in 0..1_000u64 {
        let random = (n << 1 | 1) * (u64::MAX / 2_000);
        let choice = decide(None, all.iter().copied(), &TestRequest::default(), &patterns, random);
        parts[choice.place.unwrap_or(records.len())] += 1;
    }
    parts
}

fn weight(weight: u32, weight_total: u32) -> Split {
    Split { weight, weight_total, ..Split::default() }
}

fn rules(header_value: &str, header_pattern: &str) -> Split {
    Split {
        header: "X-Canary".into(),
        header_value: header_value.into(),
        header_pattern: header_pattern.into(),
        cookie: "canary".into(),
        ..Split::default()
    }
}

/// The table of ingress-nginx's canary rules, with the weight at 0 and at the whole: what it leaves to the weight
/// changes with it.
#[test]
fn one_alternative_is_decided_as_in_the_reference() {
    const NEXT: &str = "what follows";
    let plain = || rules("", "");
    for (case, split, headers, cookies, expected) in [
        ("no rule speaks", plain(), vec![], vec![], NEXT),
        ("4 always", plain(), vec![("x-canary", "always")], vec![], "canary"),
        ("4 never", plain(), vec![("x-canary", "never")], vec![], "primary"),
        ("4 other", plain(), vec![("x-canary", "Always")], vec![], NEXT),
        ("4 joined", plain(), vec![("x-canary", "always, always")], vec![], NEXT),
        ("4 value", rules("eu", ""), vec![("x-canary", "eu")], vec![], "canary"),
        ("4 other value", rules("eu", ""), vec![("x-canary", "us")], vec![], NEXT),
        ("4 value, not never", rules("eu", ""), vec![("x-canary", "never")], vec![], NEXT),
        ("4 value before pattern", rules("eu", "us"), vec![("x-canary", "us")], vec![], NEXT),
        ("4 pattern", rules("", "^e"), vec![("x-canary", "eu")], vec![], "canary"),
        ("4 no match", rules("", "^e"), vec![("x-canary", "us")], vec![], NEXT),
        (
            "4 bad pattern",
            rules("", "("),
            vec![("x-canary", "eu")],
            vec![("canary", "always")],
            "primary",
        ),
        ("5 always", plain(), vec![], vec![("canary", "always")], "canary"),
        ("5 never", plain(), vec![], vec![("canary", "never")], "primary"),
        ("5 other", plain(), vec![], vec![("canary", "1")], NEXT),
        ("4 before 5", plain(), vec![("x-canary", "never")], vec![("canary", "always")], "primary"),
        ("4 before 5", plain(), vec![("x-canary", "always")], vec![("canary", "never")], "canary"),
        (
            "4 then 5",
            rules("eu", ""),
            vec![("x-canary", "us")],
            vec![("canary", "always")],
            "canary",
        ),
        ("no names", Split::default(), vec![("", "always")], vec![("", "always")], NEXT),
    ] {
        let request = request(&headers, &cookies);
        for (weight, then) in [(0, "primary"), (100, "canary")] {
            let records = [record("c", Split { weight, ..split.clone() }, false)];
            for random in [0, u64::MAX / 2, u64::MAX] {
                let expected = if expected == NEXT { then } else { expected };
                let got = decide_at(&records, &request, random).map_or("primary", |_| "canary");
                assert_eq!(got, expected, "{case}, weight {weight}");
            }
        }
    }
}

#[test]
fn affinity_stands_before_every_rule() {
    let primary = record("p", Split::default(), true);
    let affinity = BackendView::new(&primary).affinity();
    let always = [("x-canary", "always")];
    let never = [("x-canary", "never")];
    let weighted = Split { weight: 100, ..rules("", "") };
    let records = [record("c", weighted.clone(), true), record("d", weighted, true)];
    let all = || records.iter().map(|record| Some(BackendView::new(record)));
    let decide = |request: &TestRequest| {
        decide(affinity, all(), request, &Patterns::default().of(b"n"), 0).place
    };
    let with = |headers, id: &str| request(headers, &[("route", &held(id))]);
    assert_eq!(decide(&with(&always, "p")), None);
    assert_eq!(decide(&with(&never, "c")), Some(0));
    assert_eq!(decide(&with(&always, "d")), Some(1));
    // A cookie of another backend is ignored.
    assert_eq!(decide(&with(&[], "x")), Some(0));
    assert_eq!(decide(&request(&[], &[("route", "key")])), Some(0));
    assert_eq!(decide(&with(&never, "x")), None);
}

#[test]
fn never_leaves_one_out_and_the_next_is_asked() {
    let second = Split { header: "x-second".into(), weight: 100, ..Split::default() };
    let records =
        [record("c", Split { weight: 100, ..rules("", "") }, false), record("d", second, false)];
    assert_eq!(decide_at(&records, &request(&[("x-canary", "never")], &[]), 0), Some(1));
    assert_eq!(
        decide_at(&records, &request(&[("x-second", "always")], &[("canary", "always")]), 0),
        Some(1)
    );
    let both = request(&[("x-canary", "always"), ("x-second", "always")], &[]);
    assert_eq!(decide_at(&records, &both, 0), Some(0));
    let neither = request(&[("x-canary", "never"), ("x-second", "never")], &[]);
    assert_eq!(decide_at(&records, &neither, 0), None);
}

#[test]
fn an_alternative_that_cannot_serve_takes_nothing() {
    let first = record("c", Split { weight: 100, ..rules("", "") }, true);
    let second = record("d", weight(25, 0), false);
    let request = request(&[("x-canary", "always")], &[("route", &held("c"))]);
    let decide = |alternatives: [Option<BackendView<'_>>; 2], random| {
        decide(None, alternatives, &request, &Patterns::default().of(b"n"), random).place
    };
    let second = Some(BackendView::new(&second));
    assert_eq!(decide([None, second], 0), Some(1));
    assert_eq!(decide([None, second], u64::MAX / 2), None);
    assert_eq!(decide([Some(BackendView::new(&first)), second], 0), Some(0));
}

#[test]
fn weights_are_parts_of_their_total() {
    let one = |weight_, total| parts(&[record("c", weight(weight_, total), false)]);
    assert_eq!(one(0, 0), [0, 1_000]);
    assert_eq!(one(25, 0), [250, 750]);
    assert_eq!(one(25, 50), [250, 750]); // A total below 100 is 100.
    assert_eq!(one(25, 1_000), [25, 975]);
    assert_eq!(one(100, 100), [1_000, 0]);
    assert_eq!(one(u32::MAX, 100), [1_000, 0]);
    assert_eq!(one(u32::MAX, u32::MAX), [1_000, 0]);
}

#[test]
fn weights_of_several_add_up_and_never_to_more_than_the_whole() {
    let many = |weights: &[(u32, u32)]| {
        let records = weights.iter().map(|&(w, total)| record("c", weight(w, total), false));
        parts(&records.collect::<Vec<_>>())
    };
    assert_eq!(many(&[(10, 0), (20, 0), (30, 0)]), [100, 200, 300, 400]);
    assert_eq!(many(&[(10, 100), (200, 1_000)]), [100, 200, 700]);
    assert_eq!(many(&[(0, 0), (50, 0), (0, 0), (50, 0)]), [0, 500, 0, 500, 0]);
    assert_eq!(many(&[(100, 0), (100, 0), (200, 0), (50, 0)]), [286, 285, 286, 143, 0]);
    let thirds = many(&[(1, 3_000), (1_000, 3_000), (1_000, 3_000), (999, 3_000)]);
    assert_eq!(thirds.last(), Some(&0), "{thirds:?}");
}

#[test]
fn the_most_alternatives_there_can_be_are_all_asked() {
    let records: Vec<_> =
        (0..MAX_ALTERNATIVES).map(|_| record("c", weight(50, 0), false)).collect();
    let parts = parts(&records);
    assert!(parts[..MAX_ALTERNATIVES].iter().all(|part| (15..=16).contains(part)), "{parts:?}");
}
