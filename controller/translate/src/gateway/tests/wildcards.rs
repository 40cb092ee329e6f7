//! What an Ingress says about TLS of a wildcard, and hosts below it that routes of another namespace name.

use super::*;
use oxigress_core::model::{CertificateId, StreamPort};
use oxigress_core::record::{Kind as Record, snapshot_records};
use oxigress_core::router::session::{Arrival, Verdict, of_tls};
use oxigress_core::router::tls;
use std::collections::BTreeMap;

const HOST: &str = "pay.shop.test";

impl Bench {
    /// The certificate that clients of the host are shown, and whether its TLS is passed through.
    fn shown(&self) -> (String, bool) {
        let all = snapshot_records(self.translator.snapshot().clone()).into_iter();
        let records: BTreeMap<(Record, Vec<u8>), Vec<u8>> =
            all.filter_map(|change| Some(((change.kind, change.key), change.value?))).collect();
        let id = tls::certificate_id(&&records, Some(HOST.as_bytes())).unwrap_or_default();
        let arrival =
            Arrival { port: StreamPort::parse("tcp/443").unwrap(), address: &|| None, random: 0 };
        let verdict = of_tls(&&records, &arrival, HOST.as_bytes());
        (String::from_utf8(id.to_vec()).unwrap(), matches!(verdict, Verdict::Forward(_)))
    }
}

/// A Secret `pair` whose certificate is for these names.
fn certificate(namespace: &str, name: &str) -> Seen {
    let names = [name.to_owned()].into_iter().collect();
    let (chain, key) = ("c".into(), "k".into());
    let pair = Pair { chain, key, names, leaf: Default::default() };
    let fields = Arc::new(Fields::new(Default::default()));
    let secret = Object::Secret(Secret { offer: Offer::Usable(Arc::new(pair)), fields });
    (ObjectRef::new(Kind::Secret, Key::new(namespace, "pair")), Some(secret))
}

/// A Gateway with an HTTPS listener of all hosts, and perhaps one of the host itself.
fn web(has_own: bool) -> Seen {
    let listener = |name: &str, host: &str| {
        json!({"name": name, "port": 443, "protocol": "HTTPS", "hostname": host,
            "tls": {"certificateRefs": [{"name": "pair"}]},
            "allowedRoutes": {"namespaces": {"from": "All"}}})
    };
    let own = has_own.then(|| listener("own", HOST));
    let listeners: Vec<_> = [listener("all", "")].into_iter().chain(own).collect();
    let spec = json!({"gatewayClassName": "c", "listeners": listeners});
    (
        ObjectRef::new(Kind::Gateway, Key::new("infra", "g0")),
        Some(Object::Gateway(resource(0, spec))),
    )
}

/// An Ingress of a wildcard, with a certificate, or with TLS that is passed through.
fn wild(namespace: &str, created: u8, says: &str) -> String {
    let (annotation, tls) = match says {
        "passed" => (", nginx.ingress.kubernetes.io/ssl-passthrough: 'true'", ""),
        _ => ("", "tls: [{ hosts: ['*.shop.test'], secretName: pair }], "),
    };
    format!(
        "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {{ name: w, namespace: {namespace}, annotations: \
         {{ kubernetes.io/ingress.class: nginx{annotation} }}, creationTimestamp: '1970-01-01T00:00:{created:02}Z' }}\n\
         spec: {{ {tls}rules: [{{ host: '*.shop.test', http: {{ paths: [{{ path: /, pathType: Prefix, \
         backend: {{ service: {{ name: s, port: {{ number: 80 }} }} }} }}] }} }}] }}"
    )
}

#[test]
fn a_younger_wildcard_has_no_tls_of_hosts_that_routes_of_others_name() {
    let pay = || http_route(("shop", "pay"), 20, 1, &[HOST.to_owned()], &json!([{}]));
    for says in ["shown", "passed"] {
        for has_own in [false, true] {
            let mut bench = Bench::new(options("--enable-ssl-passthrough"));
            bench.see([class(), web(has_own), pay(), certificate("infra", "*.test")]);
            bench.see([certificate("evil", "*.shop.test"), certificate("shop", "*.shop.test")]);
            let own = ("infra/pair".to_owned(), false);
            assert_eq!(bench.shown(), own, "{says} {has_own}");
            bench.apply(&wild("evil", 30, says));
            assert_eq!(bench.shown(), own, "{says} {has_own}: a younger one");
            // Whoever names the host first, and what is the wildcard's own.
            let (id, route) = pay();
            bench.see([(id.clone(), None)]);
            let takes = bench.shown();
            assert!(
                has_own && says == "shown" || takes != own,
                "{says} {has_own}: without the route"
            );
            bench.see([(id, route)]);
            assert_eq!(bench.shown(), own, "{says} {has_own}: the route again");
            bench.apply(&wild("evil", 10, says));
            assert_eq!(bench.shown(), takes, "{says} {has_own}: an older one");
            bench.apply(&wild("shop", 30, says));
            let id = ObjectRef::new(Kind::Ingress, Key::new("evil", "w"));
            bench.see([(id, None)]);
            let (shown, is_passed) = bench.shown();
            let expected = if has_own || says == "passed" { "infra/pair" } else { "shop/pair" };
            assert_eq!(
                (&*shown, is_passed),
                (expected, says == "passed"),
                "{says} {has_own}: its own"
            );
        }
    }
}

#[test]
fn what_is_kept_from_a_wildcard_has_no_record_without_need() {
    let mut bench = Bench::new(options("--enable-ssl-passthrough"));
    let pay = http_route(("shop", "pay"), 20, 1, &[HOST.to_owned()], &json!([{}]));
    bench.see([class(), web(false), pay]);
    let host = HostPattern::parse(HOST).unwrap();
    let names = |bench: &Bench| bench.translator.snapshot().names.get(&host).cloned();
    assert_eq!(names(&bench), None);
    assert!(bench.translator.snapshot().sessions.is_empty());
    bench.see([certificate("evil", "*.shop.test")]);
    bench.apply(&wild("evil", 30, "shown"));
    assert_eq!(names(&bench).as_ref().map(CertificateId::as_str), Some(CertificateId::NONE));
    assert!(bench.translator.snapshot().sessions.is_empty());
    // The listener has no certificate, so that nothing is served there, and the route names the host all the same.
    bench.apply(&wild("evil", 30, "passed"));
    assert!(!bench.shown().1);
}
