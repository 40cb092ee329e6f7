//! Texts with a grammar: an accepted text has no byte that ends a line, and is accepted again.

use crate::ends_a_line;
use oxigress_core::http::header;
use oxigress_core::model::policy::{HeaderName, HeaderPattern, HeaderValue, PolicyId, Template};
use oxigress_core::model::{BackendId, HostPattern, PathPattern};
use oxigress_core::patterns::Allowance;
use oxigress_core::router::tls;
use oxigress_fuzz::check;

#[test]
fn fuzz_texts() {
    let seeds = [
        "X-Name",
        "a value",
        "~*^bot",
        "/$1?$args",
        "*.shop.test",
        "default/shop/80",
        "//url/https/a.test/443",
        "",
        "/app(/|$)(.*)",
        "/(?!a)(b)\\g1\\1(?(1)c|d)",
        "\0\u{5}\0\0\u{2}ab",
    ];
    check("texts", &seeds.map(|text| text.as_bytes().to_vec()), |input| {
        if let Some(name) = tls::server_name(input) {
            assert!(!name.is_empty() && name.len() < input.len());
        }
        assert_eq!(header::is_value(input), !ends_a_line(input));
        let Ok(text) = str::from_utf8(input) else { return };
        texts_are_taken_as_they_are(text);
        hosts_and_paths_are_read_again(text);
    });
}

fn texts_are_taken_as_they_are(text: &str) {
    let mut taken = Vec::new();
    if let Ok(name) = HeaderName::parse(text) {
        assert!(
            !name.as_str().is_empty()
                && !name.as_str().bytes().any(|b| b <= b' ' || b":\"(),/;<=>?@[\\]{}".contains(&b))
        );
        taken.push(name.as_str().to_owned());
    }
    taken.extend(HeaderValue::parse(text).map(|value| value.as_str().to_owned()));
    taken.extend(
        HeaderPattern::parse(text, Allowance::unlimited()).map(|value| value.as_str().to_owned()),
    );
    taken.extend(Template::parse(text).map(|value| value.as_str().to_owned()));
    taken.extend(BackendId::parse(text).map(|value| value.as_str().to_owned()));
    taken.extend(PolicyId::parse(text).map(|value| value.as_str().to_owned()));
    for taken in taken {
        assert_eq!(taken, text);
        assert!(!ends_a_line(taken.as_bytes()), "{taken:?}");
    }
}

fn hosts_and_paths_are_read_again(text: &str) {
    if let Ok(host) = HostPattern::parse(text) {
        assert_eq!(HostPattern::parse(host.as_str()).as_ref(), Ok(&host));
        assert_eq!(host.as_str(), host.as_str().to_ascii_lowercase());
        assert!(
            host.as_str().bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.*".contains(&b)),
            "{host}"
        );
    }
    for path in [
        PathPattern::exact(text),
        PathPattern::prefix(text),
        PathPattern::regex(text, Allowance::unlimited()),
    ]
    .into_iter()
    .flatten()
    {
        let written = serde_json::to_vec(&path).unwrap();
        assert_eq!(serde_json::from_slice::<PathPattern>(&written).unwrap(), path);
        assert!(!ends_a_line(&written));
    }
}
