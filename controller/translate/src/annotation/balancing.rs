//! Annotations that say how a Service's endpoints are chosen.
//!
//! Source:  ingress-nginx's annotations (load-balance, upstream-hash-by*, service-upstream, affinity).
//!          An invalid value leaves the default; the reference gives up the whole Ingress for some of them.

use super::reader::value::Value;
use oxigress_core::balancer::hash_key::{self, Part};
use oxigress_core::model::{Affinity, AffinityMode, Algorithm, Cookie, HashBy, SameSite, shorten};
use oxigress_core::text::template;
use oxigress_objects::verdict::Note;
use oxigress_settings::grammar::is_plain;
use oxigress_settings::grammar::load_balance::{LOAD_BALANCE, LoadBalance};

/// What an Ingress says about balancing; what it says nothing about comes from the ConfigMap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Balancing {
    /// The annotation load-balance.
    pub algorithm: Option<Algorithm>,
    /// The annotations upstream-hash-by*.
    pub hash_by: Option<HashBy>,
    /// affinity and session-cookie-*, without the places where the cookie is given out.
    pub affinity: Option<Affinity>,
    /// The annotation service-upstream.
    pub service_upstream: Option<bool>,
}

impl Balancing {
    /// Whether no annotation says anything about balancing.
    pub fn is_silent(&self) -> bool {
        *self == Balancing::default()
    }
}

const SAME_SITE: [SameSite; 3] = [SameSite::Strict, SameSite::Lax, SameSite::None];

/// Ten digits: some 317 years of seconds, so that no date overflows.
const MOST_SECONDS: i64 = 9_999_999_999;

/// The reference's subset size where none is given.
const SUBSET_SIZE: u32 = 3;

/// The annotations as they are read, one by one.
#[derive(Default)]
pub struct Draft {
    load_balance: Option<LoadBalance>,
    hash_key: String,
    is_subset: bool,
    subset_size: Option<i64>,
    service_upstream: Option<bool>,
    affinity: Option<()>,
    mode: Option<AffinityMode>,
    cookie: Cookie,
    is_secure: bool,
    /// One of those that say nothing without affinity.
    cookie_annotation: Option<String>,
}

impl Draft {
    /// Answers whether the annotation is one of these.
    pub fn take(&mut self, value: Value<'_>) -> bool {
        match value.name {
            "load-balance" => value.choice(LOAD_BALANCE, &mut self.load_balance),
            "upstream-hash-by" => {
                let what = "text with variables such as $request_uri or ${host}";
                value.text(what, is_hash_key, &mut self.hash_key);
            }
            "upstream-hash-by-subset" => value.flag(&mut self.is_subset),
            "upstream-hash-by-subset-size" => {
                value.number(0, i64::from(u16::MAX), &mut self.subset_size);
            }
            "service-upstream" => value.flag(&mut self.service_upstream),
            "affinity" => value.choice(&[("cookie", ())], &mut self.affinity),
            name if name == "affinity-mode" || name.starts_with("session-cookie-") => {
                let name = name.to_owned();
                if !self.take_cookie(value) {
                    return false;
                }
                self.cookie_annotation.get_or_insert(name);
            }
            _ => return false,
        }
        true
    }

    fn take_cookie(&mut self, value: Value<'_>) -> bool {
        let cookie = &mut self.cookie;
        let attribute = |value: Value<'_>, more: &[u8], into: &mut Option<String>| {
            let mut text = String::new();
            let is_valid =
                |text: &str| is_plain(text, more) && Cookie::check_attribute(text).is_ok();
            if value.text("an attribute of a cookie", is_valid, &mut text) {
                *into = Some(text);
            }
        };
        let seconds = |value: Value<'_>, into: &mut Option<i64>| {
            value.number(-MOST_SECONDS, MOST_SECONDS, into);
        };
        match value.name {
            "affinity-mode" => {
                let modes = &[
                    ("balanced", AffinityMode::Balanced),
                    ("persistent", AffinityMode::Persistent),
                ];
                value.choice(modes, &mut self.mode);
            }
            "session-cookie-name" => {
                // The reference's alphabet also has `/` and `:`, which no cookie's name can have.
                let is_name = |text: &str| is_plain(text, b"") && Cookie::check_name(text).is_ok();
                let what = "a cookie's name, of letters, digits, `-`, `_`, `.` and `~`";
                value.text(what, is_name, &mut cookie.name);
            }
            "session-cookie-path" => attribute(value, b", ?&=", &mut cookie.path),
            "session-cookie-domain" => attribute(value, b" ", &mut cookie.domain),
            "session-cookie-expires" => seconds(value, &mut cookie.expires),
            "session-cookie-max-age" => seconds(value, &mut cookie.max_age),
            "session-cookie-samesite" => {
                let text = value.text.trim();
                match SAME_SITE.into_iter().find(|s| s.as_str().eq_ignore_ascii_case(text)) {
                    Some(same_site) => cookie.same_site = Some(same_site),
                    None => value.refuse("Strict, Lax or None"),
                }
            }
            "session-cookie-conditional-samesite-none" => {
                value.flag(&mut cookie.conditional_same_site_none);
            }
            "session-cookie-change-on-failure" => value.flag(&mut cookie.change_on_failure),
            "session-cookie-secure" => value.flag(&mut self.is_secure),
            _ => return false,
        }
        true
    }

    /// Puts the annotations together; notes those that have no effect.
    pub fn finish(mut self, notes: &mut Vec<Note>) -> Balancing {
        let mut balancing =
            Balancing { service_upstream: self.service_upstream, ..Balancing::default() };
        if self.affinity.is_some() {
            // `false` cannot take `Secure` off a cookie that is given out over TLS.
            self.cookie.secure = self.is_secure.then_some(true);
            let mode = self.mode.unwrap_or_default();
            balancing.affinity = Some(Affinity { mode, cookie: self.cookie });
        } else if let Some(name) = self.cookie_annotation {
            notes.push(Note::remark(format!(
                "annotation {name} has no effect without affinity: \"cookie\""
            )));
        }
        if !self.hash_key.is_empty() && has_what_differs(&self.hash_key, notes) {
            let size = self.subset_size.and_then(|size| u32::try_from(size).ok());
            let subset_size = match (self.is_subset, size) {
                (true, None | Some(0)) => SUBSET_SIZE,
                (true, Some(size)) => size,
                (false, _) => 0,
            };
            balancing.hash_by = Some(HashBy { key: self.hash_key, subset_size });
        }
        let lacks = |what: &str| {
            Note::warning(format!("annotation load-balance: {what}: the default is used"))
        };
        match self.load_balance {
            Some(LoadBalance::Algorithm(algorithm)) => balancing.algorithm = Some(algorithm),
            Some(LoadBalance::Hash) if balancing.hash_by.is_none() => {
                notes.push(lacks("it requires upstream-hash-by"));
            }
            Some(LoadBalance::Sticky) if balancing.affinity.is_none() => {
                notes.push(lacks("it requires affinity: \"cookie\""));
            }
            _ => {}
        }
        balancing
    }
}

/// Letters, digits, `-`, `_`, spaces, and variables: `$name` or `${name}`.
fn is_hash_key(text: &str) -> bool {
    let is_name = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    let is_text = |text: &str| text.bytes().all(|b| is_name(b) || matches!(b, b'-' | b' '));
    let mut parts = text.split('$');
    let is_begin = parts.next().is_some_and(is_text);
    let is_variable = |part: &str| match part.strip_prefix('{') {
        Some(rest) => rest.split_once('}').is_some_and(|(name, rest)| {
            !name.is_empty() && name.bytes().all(is_name) && is_text(rest)
        }),
        None => part.bytes().next().is_some_and(is_name) && is_text(part),
    };
    is_begin && parts.all(is_variable) && HashBy::check_key(text).is_ok()
}

/// Whether a key has something to hash; names the variables that it cannot have. Captures are the path's, which
/// [`captures_of`] is asked about when paths are known.
fn has_what_differs(key: &str, notes: &mut Vec<Note>) -> bool {
    let unknown: Vec<_> = template::parts(key.as_bytes())
        .filter_map(|part| match part {
            Part::Variable(name) if !hash_key::is_allowed(name) => str::from_utf8(name).ok(),
            _ => None,
        })
        .collect();
    if unknown.is_empty() {
        return true;
    }
    let has_known = hash_key::parse(key.as_bytes()).any(|part| !matches!(part, Part::Literal(_)));
    let what_follows = if has_known { "it counts as empty" } else { "the default is used" };
    notes.push(Note::warning(format!(
        "annotation upstream-hash-by: variable ${} is not supported here: {what_follows}",
        shorten(&unknown.join(", $"))
    )));
    has_known
}

/// The captures of a hash key, `$1` to `$9`, and whether it has nothing else that differs from request to request.
pub fn captures_of(key: &str) -> (Vec<u8>, bool) {
    let mut captures = Vec::new();
    let mut is_alone = true;
    for part in hash_key::parse(key.as_bytes()) {
        match part {
            Part::Capture(number) => captures.push(number),
            Part::Variable(_) => is_alone = false,
            Part::Literal(_) => {}
        }
    }
    (captures, is_alone)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(all: &[(&str, &str)]) -> (Balancing, Vec<Note>) {
        let (mut draft, mut notes) = (Draft::default(), Vec::new());
        for &(name, text) in all {
            assert!(draft.take(Value { name, text, notes: &mut notes }), "{name}");
        }
        let balancing = draft.finish(&mut notes);
        (balancing, notes)
    }

    fn cookie(name: &str, value: &str) -> (Cookie, usize) {
        let (balancing, notes) = read(&[("affinity", "cookie"), (name, value)]);
        (balancing.affinity.unwrap().cookie, notes.len())
    }

    #[test]
    fn without_annotations_nothing_is_said() {
        assert!(read(&[]).0.is_silent());
        let (balancing, _) = read(&[("affinity", "cookie")]);
        let affinity = balancing.affinity.unwrap();
        assert_eq!(affinity.mode, AffinityMode::Balanced);
        assert_eq!(affinity.cookie, Cookie::default());
    }

    #[test]
    fn each_algorithm_has_a_name_and_no_other_name_counts() {
        for (name, value) in LOAD_BALANCE {
            if let LoadBalance::Algorithm(algorithm) = value {
                assert_eq!(read(&[("load-balance", name)]).0.algorithm, Some(*algorithm));
            }
        }
        for text in ["", "random", "EWMA", "chash", "chashsubset", "sticky_balanced"] {
            let (balancing, notes) = read(&[("load-balance", text)]);
            assert!(balancing.is_silent() && notes.len() == 1, "{text}: {notes:?}");
        }
        let (balancing, notes) = read(&[("load-balance", "chash"), ("upstream-hash-by", "$uri")]);
        assert!(balancing.hash_by.is_some() && notes.is_empty());
    }

    #[test]
    fn a_hash_key_is_text_and_whole_variables() {
        for text in
            ["$request_uri", "${host}-$arg_a", "$remote_addr $host", "constant", "$1", "${2}-$9x"]
        {
            let (balancing, notes) = read(&[("upstream-hash-by", text)]);
            let expected = HashBy { key: text.into(), subset_size: 0 };
            assert_eq!((balancing.hash_by, notes.len()), (Some(expected), 0), "{text}");
        }
        let long = format!("$cookie_{}", "a".repeat(65));
        let many = "$cookie_a".repeat(11);
        for text in [
            "", "$", "a$", "${host", "${}", "{host}", "$host;", "a\nb", "$host\"", "é", &long,
            &many,
        ] {
            let (balancing, notes) = read(&[("upstream-hash-by", text)]);
            assert_eq!((balancing.hash_by, notes.len()), (None, 1), "{text}");
        }
        assert!(!is_hash_key(&"a".repeat(1_025)));
    }

    #[test]
    fn a_key_of_unknown_variables_would_lead_everybody_to_one_endpoint() {
        let cases = [
            ("$uri-$nothing", true),
            ("$1-$nothing", true),
            ("$nothing", false),
            ("a-${x}", false),
            ("$12", false),
        ];
        for (text, is_kept) in cases {
            let (balancing, notes) = read(&[("upstream-hash-by", text)]);
            assert_eq!((balancing.hash_by.is_some(), notes.len()), (is_kept, 1), "{text}");
        }
    }

    #[test]
    fn captures_are_told_apart_from_what_every_request_has() {
        assert_eq!(captures_of("$1-${2}x"), (vec![1, 2], true));
        assert_eq!(captures_of("$1$host"), (vec![1], false));
        assert!(captures_of("$arg_1").0.is_empty());
    }

    #[test]
    fn a_subset_has_three_endpoints_unless_another_size_is_given() {
        for (size, expected) in [(None, 3), (Some("0"), 3), (Some("5"), 5), (Some("-1"), 3)] {
            let mut all = vec![("upstream-hash-by", "$uri"), ("upstream-hash-by-subset", "true")];
            all.extend(size.map(|size| ("upstream-hash-by-subset-size", size)));
            assert_eq!(read(&all).0.hash_by.unwrap().subset_size, expected, "{size:?}");
        }
    }

    #[test]
    fn only_a_cookie_makes_affinity() {
        for text in ["", "Cookie", "ip"] {
            let (balancing, notes) = read(&[("affinity", text)]);
            assert_eq!((balancing.affinity, notes.len()), (None, 1), "{text}");
        }
        let (balancing, notes) = read(&[("session-cookie-name", "a")]);
        assert!(balancing.is_silent() && notes.len() == 1);
        let (balancing, _) = read(&[("affinity", "cookie"), ("affinity-mode", "persistent")]);
        assert_eq!(balancing.affinity.unwrap().mode, AffinityMode::Persistent);
        let (balancing, notes) = read(&[("affinity", "cookie"), ("affinity-mode", "x")]);
        assert_eq!((balancing.affinity.unwrap().mode, notes.len()), (AffinityMode::Balanced, 1));
    }

    #[test]
    fn a_cookie_s_name_is_a_token() {
        assert_eq!(cookie("session-cookie-name", " route ").0.name, "route");
        for text in ["", "a b", "a/b", "a:b", "a=b", "a;b", "a\nb", &"a".repeat(129)] {
            let (cookie, notes) = cookie("session-cookie-name", text);
            assert_eq!((cookie.name.as_str(), notes), ("INGRESSCOOKIE", 1), "{text:?}");
        }
    }

    #[test]
    fn attributes_cannot_end_themselves() {
        assert_eq!(cookie("session-cookie-path", "/a?b=c").0.path.unwrap(), "/a?b=c");
        assert_eq!(cookie("session-cookie-domain", "a.test").0.domain.unwrap(), "a.test");
        for text in ["", "/a;b", "/\r\nSet-Cookie: x", "/é", "/\"", &"a".repeat(1_025)] {
            assert_eq!(cookie("session-cookie-path", text), (Cookie::default(), 1), "{text:?}");
            assert_eq!(cookie("session-cookie-domain", text), (Cookie::default(), 1), "{text:?}");
        }
    }

    #[test]
    fn seconds_are_whole_numbers() {
        for (text, expected) in [("0", 0), ("172800", 172_800), ("-1", -1)] {
            assert_eq!(cookie("session-cookie-expires", text).0.expires, Some(expected));
            assert_eq!(cookie("session-cookie-max-age", text).0.max_age, Some(expected));
        }
        for text in ["", "abc5", "5s", "1.5", "99999999999"] {
            assert_eq!(cookie("session-cookie-expires", text), (Cookie::default(), 1), "{text}");
            assert_eq!(cookie("session-cookie-max-age", text), (Cookie::default(), 1), "{text}");
        }
    }

    #[test]
    fn same_site_has_three_values_in_any_case() {
        for text in ["Lax", "lax", "LAX"] {
            assert_eq!(cookie("session-cookie-samesite", text).0.same_site, Some(SameSite::Lax));
        }
        assert_eq!(cookie("session-cookie-samesite", "both"), (Cookie::default(), 1));
    }

    #[test]
    fn flags_of_the_cookie() {
        assert_eq!(cookie("session-cookie-secure", "true").0.secure, Some(true));
        assert_eq!(cookie("session-cookie-secure", "false").0.secure, None);
        assert!(cookie("session-cookie-change-on-failure", "true").0.change_on_failure);
        let name = "session-cookie-conditional-samesite-none";
        assert!(cookie(name, "true").0.conditional_same_site_none);
        for name in [name, "session-cookie-secure", "session-cookie-change-on-failure"] {
            assert_eq!(cookie(name, "yes"), (Cookie::default(), 1), "{name}");
        }
    }

    #[test]
    fn service_upstream_can_be_switched_off_where_the_default_is_on() {
        assert_eq!(read(&[("service-upstream", "T")]).0.service_upstream, Some(true));
        assert_eq!(read(&[("service-upstream", "false")]).0.service_upstream, Some(false));
        let (balancing, notes) = read(&[("service-upstream", "yes")]);
        assert!(balancing.is_silent() && notes.len() == 1);
    }
}
