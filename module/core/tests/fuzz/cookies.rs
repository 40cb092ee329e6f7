//! Cookies of clients and of endpoints, and other references of endpoints to themselves.

use crate::ends_a_line;
use oxigress_core::balancer::cookie::{self, RequestView};
use oxigress_core::http::reverse;
use oxigress_core::model::policy::{CookieFlags, HeaderValue, Replacement};
use oxigress_core::model::{Backend, BackendId};
use oxigress_core::record::{BackendView, encode_backend};
use oxigress_fuzz::{check, fields, joined};

#[test]
fn fuzz_cookie() {
    let seeds = [
        joined(&[
            "route",
            "a=b; route=1700.1|tag; x",
            "route=2|b",
            r#"{"affinity": {"cookie": {"name": "route"}}}"#,
            "/a;b",
        ]),
        joined(&[
            "a",
            "a=; a=b\ta=c",
            " a=d",
            r#"{"affinity":{"cookie":{"name":"x","domain":"a.test","path":"/x","secure":true,"same_site":"None"}}}"#,
            "/",
        ]),
        joined(&[
            "INGRESSCOOKIE",
            "xINGRESSCOOKIE=1;INGRESSCOOKIE=a|b|c",
            "",
            r#"{"affinity":{"mode":"persistent","cookie":{"name":"y","expires":-1,"max_age":5}}}"#,
            "/\r\n",
        ]),
    ];
    check("cookie", &seeds, |input| {
        let [name, first, second, backend, path] = fields(input);
        let held = cookie::value([first, second], name);
        if !name.is_empty() && !name.contains(&b'=') {
            assert_eq!(held, last_value([first, second], name));
        }
        if let Some(held) = held.and_then(cookie::split) {
            assert!(!held.key.is_empty() && !held.key.contains(&b'|') && !held.tag.contains(&b'|'));
            assert!(held.key.iter().chain(held.tag).all(|byte| !b"; \t".contains(byte)));
        }
        let Ok(backend) = serde_json::from_slice::<Backend>(backend) else { return };
        let value = encode_backend(&BackendId::parse("b").unwrap(), &backend);
        let Some(affinity) = BackendView::new(&value).affinity() else { return };
        let request = RequestView {
            host: Some(b"a.test"),
            path,
            is_tls: true,
            user_agent: Some(first),
            now_seconds: 1_700_000_000,
        };
        let set = cookie::set_cookie(&affinity, &request, b"key");
        assert!(!ends_a_line(set.as_bytes()), "{set:?}");
        assert!(set.split("; ").count() <= 9, "{set:?}");
        let sent = set.split(';').next().unwrap();
        let read = cookie::value([sent.as_bytes()], affinity.name()).and_then(cookie::split);
        assert_eq!(read.map(|held| held.key), Some(&b"key"[..]), "{set:?}");
    });
}

/// The definition: the last place where the name begins, follows an end and has a `=` behind it.
fn last_value<'a>(headers: [&'a [u8]; 2], name: &[u8]) -> Option<&'a [u8]> {
    let is_end = |byte: &u8| b"; \t".contains(byte);
    let in_one = |header: &'a [u8]| {
        let places = 0..header.len();
        let mut found = places.filter_map(|at| {
            let (before, rest) = header.split_at(at);
            let value = rest.strip_prefix(name)?.strip_prefix(b"=")?;
            let is_whole = before.last().is_none_or(is_end);
            is_whole.then(|| value.split(is_end).next().unwrap())
        });
        found.next_back()
    };
    headers
        .into_iter()
        .filter_map(in_one)
        .next_back()
        .filter(|value| value.len() <= cookie::MAX_VALUE_BYTES)
}

#[test]
fn fuzz_reverse() {
    let seeds = [
        joined(&["a=b; Domain=.in.test; Path=/app/x; Secure", "in.test", "shop.test", "/app", "/"]),
        joined(&["a=b;domain=IN.test;PATH=/", ".in.test", ".shop.test", "/", "/x/"]),
        joined(&["http://10.0.0.1:8080/a?b", "10.0.0.1:8080", "x", "http://10.0.0.1:8080/", "/"]),
    ];
    check("reverse", &seeds, |input| {
        let [value, from_domain, to_domain, from_path, to_path] = fields(input);
        let replacement = |from: &[u8], to: &[u8]| {
            let text = |bytes: &[u8]| HeaderValue::parse(str::from_utf8(bytes).ok()?).ok();
            Some(Replacement { from: text(from)?, to: text(to)? })
        };
        let domain = replacement(from_domain, to_domain);
        let path = replacement(from_path, to_path);
        let own = reverse::own_path(value, &[from_domain]);
        assert!(own.is_none_or(|path| path.starts_with(b"/") && value.ends_with(path)));
        if let Some(path) = &path
            && let Some(location) = reverse::location(value, path)
        {
            assert!(location.starts_with(path.to.as_str().as_bytes()));
            assert!(ends_a_line(value) || !ends_a_line(&location));
        }
        let flags = r#"[{"cookie": "a", "secure": true, "http_only": false, "same_site": "lax"}]"#;
        let flags: Vec<CookieFlags> = serde_json::from_str(flags).unwrap();
        let changed = reverse::cookie(value, domain.as_ref(), path.as_ref(), &flags);
        let Some(changed) = changed else { return };
        assert!(ends_a_line(value) || !ends_a_line(&changed));
        let bare = |cookie: &[u8]| cookie.split(|b| *b == b';').next().unwrap().to_vec();
        let squeezed =
            |text: Vec<u8>| text.into_iter().filter(|byte| *byte != b' ').collect::<Vec<_>>();
        assert_eq!(squeezed(bare(&changed)), squeezed(bare(value)), "name and value stay");
    });
}
