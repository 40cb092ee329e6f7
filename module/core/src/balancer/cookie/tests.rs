use super::*;
use crate::model::{Affinity, Backend, BackendId};
use crate::record::{BackendView, encode_backend};

fn record(cookie: Cookie) -> Vec<u8> {
    let affinity = Some(Affinity { cookie, ..Affinity::default() }.into());
    let name = Some("default-http-svc-80".into());
    let id = BackendId::parse("default/http-svc/80").unwrap();
    encode_backend(&id, &Backend { name, affinity, ..Backend::default() })
}

const REQUEST: RequestView<'static> = RequestView {
    host: Some(b"shop.test"),
    path: b"/cart",
    is_tls: false,
    user_agent: None,
    now_seconds: 1_136_214_245, // Mon, 02-Jan-06 15:04:05 GMT
};

fn given(cookie: Cookie, request: RequestView<'_>) -> String {
    let record = record(cookie);
    set_cookie(&BackendView::new(&record).affinity().unwrap(), &request, b"k")
}

const TAG: &str = "5a881deec44117eee2efd3540198e203";

#[test]
fn tags_and_keys_are_those_of_the_reference() {
    assert_eq!(tag(b"default-http-svc-80"), TAG.as_bytes());
    let key = persistent_key(b"default-http-svc-80", b"10.0.0.1:8080");
    assert_eq!(&key, b"5527bcca0bd221fcb9f44d85ffc6cc19");
    assert_eq!(balanced_key(1_700_000_000_042, 3, 77, 0), "1700000003.042.77.1");
    assert_eq!(balanced_key(1_700_000_000_042, 3, 77, u64::MAX), "1700000003.042.77.999999");
}

#[test]
fn the_cookie_is_found_where_it_stands() {
    for (headers, expected) in [
        (vec!["route=a"], Some("a")),
        (vec!["x=1; route=a; y=2"], Some("a")),
        (vec!["route=a; route=b"], Some("b")),
        (vec!["route=a", "x=1", "route=c"], Some("c")),
        (vec!["route=a\tb"], Some("a")),
        (vec!["route=a b"], Some("a")),
        (vec!["bare; route=a=b"], Some("a=b")),
        (vec!["route="], Some("")),
        (vec!["Route=a"], None),
        (vec!["xroute=a"], None),
        (vec!["routes=a"], None),
        (vec!["route"], None),
        (vec![""], None),
        (vec![], None),
    ] {
        let found = value(headers.iter().map(|header| header.as_bytes()), b"route");
        assert_eq!(found, expected.map(str::as_bytes), "{headers:?}");
    }
}

#[test]
fn a_value_over_256_bytes_is_none() {
    let header = |length| format!("route=a; route={}", "x".repeat(length));
    assert!(value([header(256).as_bytes()], b"route").is_some());
    assert_eq!(value([header(257).as_bytes()], b"route"), None);
}

#[test]
fn a_value_has_a_key_and_perhaps_a_tag() {
    let held = |key: &'static str, tag: &'static str| {
        Some(Value { key: key.as_bytes(), tag: tag.as_bytes() })
    };
    assert_eq!(split(b"a|b"), held("a", "b"));
    assert_eq!(split(b"a"), held("a", ""));
    assert_eq!(split(b"a|b|c"), held("a", "b"));
    assert_eq!(split(b"|b"), None);
    assert_eq!(split(b""), None);
}

#[test]
fn attributes_stand_in_the_references_order() {
    let cookie = Cookie {
        name: "route".into(),
        expires: Some(0),
        max_age: Some(172_800),
        path: Some("/x".into()),
        domain: Some("shop.test".into()),
        secure: Some(true),
        same_site: Some(SameSite::Lax),
        ..Cookie::default()
    };
    assert_eq!(
        given(cookie, REQUEST),
        format!(
            "route=k|{TAG}; Expires=Mon, 02-Jan-06 15:04:05 GMT; Max-Age=172800; Domain=shop.test; Path=/x; \
             Secure; HttpOnly; SameSite=Lax"
        )
    );
    assert_eq!(
        given(Cookie::default(), REQUEST),
        format!("INGRESSCOOKIE=k|{TAG}; Path=/cart; HttpOnly")
    );
}

#[test]
fn a_cookie_is_secure_if_it_is_said_or_else_over_tls() {
    for (secure, is_tls, expected) in [
        (None, false, false),
        (None, true, true),
        (Some(true), false, true),
        (Some(false), false, false),
        (Some(false), true, false),
    ] {
        let text = given(Cookie { secure, ..Cookie::default() }, RequestView { is_tls, ..REQUEST });
        assert_eq!(text.contains("; Secure"), expected, "{secure:?} {is_tls}");
    }
}

#[test]
fn a_rules_path_cannot_begin_an_attribute() {
    for (path, expected) in
        [(&b"/a;Domain=evil.test"[..], "; Path=/;"), (b"", "; Path=/;"), (b"/\xff", "; Path=/;")]
    {
        let text = given(Cookie::default(), RequestView { path, ..REQUEST });
        assert!(text.contains(expected), "{text}");
    }
}

#[test]
fn dates_are_written_as_nginx_writes_them() {
    for (seconds, expected) in [
        (0, "Thu, 01-Jan-70 00:00:00 GMT"),
        (951_868_799, "Tue, 29-Feb-00 23:59:59 GMT"),
        (2_145_916_799, "Thu, 31-Dec-37 23:59:59 GMT"),
        (2_145_916_800, "Fri, 01-Jan-2038 00:00:00 GMT"),
        (u64::MAX, "Fri, 31-Dec-9999 23:59:59 GMT"),
    ] {
        assert_eq!(cookie_time(seconds), expected);
    }
    // Long ago is not before 1970.
    let text = given(Cookie { expires: Some(i64::MIN), ..Cookie::default() }, REQUEST);
    assert!(text.contains("Expires=Thu, 01-Jan-70 00:00:00 GMT"), "{text}");
}

#[test]
fn none_is_left_out_for_browsers_that_take_it_for_strict() {
    let mac = "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_14_5) Version/12.1 Safari/605";
    let mac_chrome = "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_14_5) Chrome/99.0 Safari/537";
    for (agent, is_left_out) in [
        (Some("Mozilla/5.0 Chrome/51.0.2704 Safari/537"), true),
        (Some("Mozilla/5.0 Chrome/66.0 Safari/537"), true),
        (Some("Mozilla/5.0 Chrome/79.0 Safari/537"), false),
        (Some("(iPhone; CPU iPhone OS 12_4 like Mac OS X)"), true),
        (Some("(iPad; CPU OS 12_4 like Mac OS X)"), true),
        (Some(mac), true),
        (Some(mac_chrome), false),
        (Some(""), false),
        (None, false),
    ] {
        let none = Cookie {
            same_site: Some(SameSite::None),
            conditional_same_site_none: true,
            ..Cookie::default()
        };
        let request = RequestView { user_agent: agent.map(str::as_bytes), ..REQUEST };
        let text = given(none.clone(), request);
        assert_eq!(!text.contains("SameSite"), is_left_out, "{agent:?}");
        let always = given(Cookie { conditional_same_site_none: false, ..none.clone() }, request);
        assert!(always.ends_with("; SameSite=None"));
        let lax = given(Cookie { same_site: Some(SameSite::Lax), ..none }, request);
        assert!(lax.ends_with("; SameSite=Lax"));
    }
}

#[test]
fn a_cookie_is_given_out_at_its_locations_only() {
    let record = record(Cookie {
        locations: [
            ("shop.test", vec!["/cart", "/"]),
            ("*.shop.test", vec!["/wild"]),
            ("own.shop.test", vec!["/own"]),
            ("_", vec!["/all"]),
        ]
        .map(|(host, paths)| (host.into(), paths.into_iter().map(Into::into).collect()))
        .into(),
        ..Cookie::default()
    });
    let affinity = BackendView::new(&record).affinity().unwrap();
    for (host, path, expected) in [
        (Some("shop.test"), "/cart", true),
        (Some("shop.test"), "", true),
        (Some("shop.test"), "/cart/", false),
        (Some("a.shop.test"), "/wild", true),
        (Some("a.shop.test"), "/cart", false),
        (Some("a.b.shop.test"), "/wild", false),
        (Some("own.shop.test"), "/own", true),
        (Some("own.shop.test"), "/wild", false),
        (Some("other.test"), "/all", false),
        (None, "/all", true),
        (Some("localhost"), "/all", false),
    ] {
        let request =
            RequestView { host: host.map(str::as_bytes), path: path.as_bytes(), ..REQUEST };
        assert_eq!(is_given(&affinity, &request), expected, "{host:?} {path}");
    }
}

#[test]
fn keys_are_drawn_until_one_leads_to_an_open_endpoint_at_most_twenty_times() {
    let mut drawn = 0;
    let mut random = || 1;
    let third = draw_balanced_key(1_000, 7, &mut random, |hash| {
        drawn += 1;
        (drawn == 3).then_some(hash)
    });
    let (key, hash) = third.unwrap();
    assert_eq!((key.as_str(), hash), ("4.000.7.1", crate::balancer::ring::hash(b"4.000.7.1")));
    drawn = 0;
    let none: Option<(String, ())> = draw_balanced_key(1_000, 7, &mut random, |_| {
        drawn += 1;
        None
    });
    assert_eq!((none, drawn), (None, 20));
}
