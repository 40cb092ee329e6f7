//! Whatever changes in whatever order: the incremental translation equals the one from scratch, and its
//! deltas add up to it.

mod check;
mod edits;
mod gateways;
mod owners;
mod references;

use crate::*;
use crate::{HostOwnership, Options, Translation, Translator, annotation, translate};
use check::check_increments;
use openssl::asn1::Asn1Time;
use openssl::ec::{EcGroup, EcKey};
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::PKey;
use openssl::x509::X509;
use oxigress_core::model::{HostPattern, Snapshot};
use oxigress_objects::ingress::{Ingress, IngressClass, Path, PathType, Port, Rule, Target, Tls};
use oxigress_objects::secret::{Fields, Offer, Pair, Secret};
use oxigress_objects::service::external_name::{DnsAnswer, DnsName, ExternalName};
use oxigress_objects::service::{
    Condition, EndpointSlice, Hints, Nearness, Protocol, Service, ServicePort, SliceEndpoint,
    SlicePort, TargetPort,
};
use oxigress_objects::verdict::Verdicts;
use oxigress_objects::{Changed, ConfigMap, Key, Kind, Object, ObjectRef, Seen, World};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};

// Few names, so that changes meet.
const NAMES: [&str; 3] = ["a", "b", "c"];
const HOSTS: [&str; 5] = ["", "a.test", "b.test", "*.test", "www.a.test"];
const PATHS: [&str; 12] = [
    "/",
    "/x",
    "/x/",
    "/x/y",
    "/x/(.*)",
    "/[a-z/]+(.*)",
    "/x/y(/|$)(.*)",
    "/.well-known",
    "/.well-known/acme-challenge/",
    r"/\.we(.*)",
    "/[.]well-known/(.*)",
    "/(.*)",
];
/// Of Ingresses and what they name; a host has an owner among them.
const NAMESPACES: [&str; 3] = ["n", "n", "m"];

fn name() -> impl Strategy<Value = String> {
    select(&NAMES).prop_map(String::from)
}

fn target() -> impl Strategy<Value = Target> {
    let port = prop_oneof![
        Just(Port::Number(80)),
        Just(Port::Number(81)),
        Just(Port::Name("http".into()))
    ];
    prop_oneof![
        9 => (name(), port).prop_map(|(name, port)| Target::Service { name, port }),
        1 => Just(Target::Resource("Bucket x".into())),
    ]
}

const ANNOTATIONS: [(&str, &str); 41] = [
    ("ssl-redirect", "false"),
    ("force-ssl-redirect", "true"),
    ("canary", "true"),
    ("canary-weight", "10"),
    ("canary-weight", "20"),
    ("canary-by-header", "x"),
    ("affinity-canary-behavior", "legacy"),
    ("affinity", "cookie"),
    ("session-cookie-name", "x"),
    ("load-balance", "ewma"),
    ("upstream-hash-by", "$uri"),
    ("service-upstream", "true"),
    ("ssl-passthrough", "true"),
    ("auth-url", "http://x"),
    ("auth-tls-secret", "n/b"),
    ("proxy-body-size", "8m"),
    ("proxy-read-timeout", "5"),
    ("auth-type", "basic"),
    ("auth-secret", "a"),
    ("limit-rps", "5"),
    ("auth-url", "http://x.test/a"),
    ("mirror-target", "http://10.0.0.9"),
    ("default-backend", "c"),
    ("custom-headers", "n/a"),
    ("custom-http-errors", "404"),
    ("server-alias", "b.test,c.test"),
    ("server-alias", "c.test"),
    ("from-to-www-redirect", "true"),
    ("app-root", "/app"),
    ("use-regex", "true"),
    ("rewrite-target", "/x"),
    ("whitelist-source-range", "10.0.0.0/8"),
    ("server-alias", "www.a.test,a.test"),
    ("app-root", "/x"),
    ("server-snippet", "deny all;"),
    ("ssl-ciphers", "AES128-SHA"),
    ("ssl-ciphers", "AES256-SHA"),
    ("ssl-prefer-server-ciphers", "true"),
    ("auth-tls-secret", "a"),
    ("auth-tls-verify-client", "optional"),
    ("use-regex", "true"),
];

fn ingress() -> impl Strategy<Value = Object> {
    use PathType::{Exact, ImplementationSpecific, Prefix};
    let path_type = select(&[Exact, Prefix, ImplementationSpecific][..]);
    let path = (select(&PATHS), path_type, target());
    let path =
        path.prop_map(|(path, path_type, target)| Path { path: path.into(), path_type, target });
    let rule = (select(&HOSTS), vec(path, 0..3));
    let rule = rule.prop_map(|(host, paths)| Rule { host: host.into(), paths });
    let tls = (vec(select(&HOSTS[1..]), 0..2), name()).prop_map(|(hosts, secret)| Tls {
        hosts: hosts.into_iter().map(Into::into).collect(),
        secret,
    });
    let prefix = "nginx.ingress.kubernetes.io";
    let annotation = select(&ANNOTATIONS);
    let annotation = annotation.prop_map(move |(k, v)| (format!("{prefix}/{k}"), v.to_owned()));
    (
        0..3i64,
        vec(annotation, 0..5),
        option::weighted(0.8, select(&["nginx", "other"][..])),
        option::weighted(0.3, target()),
        vec(rule, 0..3),
        vec(tls, 0..2),
    )
        .prop_map(|(created, annotations, class, default_backend, rules, tls)| {
            Object::Ingress(Arc::new(Ingress {
                created,
                annotations: annotations.into_iter().collect(),
                class: class.map(Into::into),
                default_backend,
                rules,
                tls,
            }))
        })
}

fn service() -> impl Strategy<Value = Object> {
    let port = (select(&["", "http"][..]), 80..82u16).prop_map(|(name, number)| ServicePort {
        protocol: Protocol::Tcp,
        name: name.into(),
        number,
        app_protocol: None,
        target: TargetPort::Number(number + 8_000),
    });
    let cluster_ip = option::of(Just([10, 0, 0, 1].into()));
    let prefers = option::of(select(&[Nearness::Zone, Nearness::Node][..]));
    (proptest::bool::weighted(0.2), cluster_ip, vec(port, 0..3), prefers).prop_map(
        |(is_external, cluster_ip, ports, prefers)| {
            Object::Service(Arc::new(Service {
                external_name: is_external.then(|| ExternalName::parse("x.test")),
                cluster_ip,
                ports,
                prefers,
            }))
        },
    )
}

fn slice() -> impl Strategy<Value = Object> {
    let conditions = &[Condition::Ready, Condition::Draining, Condition::NotReady][..];
    let hints = (vec(name(), 0..2), vec(name(), 0..2))
        .prop_map(|(zones, nodes)| Box::new(Hints { zones, nodes }));
    let endpoint =
        (select(conditions), 1..4u8, option::of(hints)).prop_map(|(condition, last, hints)| {
            SliceEndpoint { condition, addresses: vec![[127, 0, 0, last].into()], hints }
        });
    let port =
        (select(&["", "http"][..]), option::of(8_080..8_082u16)).prop_map(|(name, number)| {
            SlicePort { protocol: Protocol::Tcp, name: name.into(), number }
        });
    (option::weighted(0.9, name()), vec(port, 0..2), vec(endpoint, 0..3)).prop_map(
        |(service, ports, endpoints)| {
            let is_without_ports = ports.is_empty();
            let odd_addresses = Vec::new();
            Object::EndpointSlice(Arc::new(EndpointSlice {
                service,
                ports,
                is_without_ports,
                endpoints,
                odd_addresses,
            }))
        },
    )
}

/// A certificate that signs others.
static AUTHORITY: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let key = PKey::from_ec_key(
        EcKey::generate(&EcGroup::from_curve_name(Nid::X9_62_PRIME256V1).unwrap()).unwrap(),
    );
    let key = key.unwrap();
    let mut certificate = X509::builder().unwrap();
    certificate.set_pubkey(&key).unwrap();
    certificate.set_not_before(&Asn1Time::days_from_now(0).unwrap()).unwrap();
    certificate.set_not_after(&Asn1Time::days_from_now(1).unwrap()).unwrap();
    certificate.sign(&key, MessageDigest::sha256()).unwrap();
    certificate.build().to_pem().unwrap()
});

fn secret() -> impl Strategy<Value = Object> {
    let usable = vec(select(&HOSTS[1..]), 0..3).prop_map(|names| {
        let names: BTreeSet<String> = names.into_iter().map(Into::into).collect();
        let chain = format!("{names:?}");
        Offer::Usable(Arc::new(Pair { chain, key: "key".into(), names, leaf: Default::default() }))
    });
    prop_oneof![
        4 => usable,
        1 => Just(Offer::WithoutPair),
        1 => Just(Offer::Unusable("tls.key is odd".into())),
    ]
    .prop_map(|offer| {
        let mut fields = BTreeMap::from([("auth".to_owned(), format!("u:{offer:?}").into_bytes())]);
        if matches!(offer, Offer::Usable(_)) {
            fields.insert("ca.crt".into(), AUTHORITY.clone());
        }
        Object::Secret(Secret { offer, fields: Arc::new(Fields::new(fields)) })
    })
}

fn config_map() -> impl Strategy<Value = Object> {
    let entry = select(
        &[
            ("ssl-redirect", "false"),
            ("http-redirect-code", "301"),
            ("global-auth-url", "http://x"),
            ("load-balance", "p2c"),
            ("service-upstream", "true"),
            ("no-tls-redirect-locations", "/x"),
        ][..],
    );
    vec(entry, 0..3).prop_map(|entries| {
        let data = entries.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
        Object::ConfigMap(Arc::new(ConfigMap { data }))
    })
}

fn seen() -> impl Strategy<Value = Seen> {
    let of = |kind, object: BoxedStrategy<Object>, names: &'static [&'static str]| {
        let namespaces = match kind {
            Kind::IngressClass => &[""][..],
            Kind::ConfigMap => &NAMESPACES[..1],
            _ => &NAMESPACES[..],
        };
        (select(namespaces), select(names), option::weighted(0.8, object)).prop_map(
            move |(namespace, name, object)| {
                (ObjectRef::new(kind, Key::new(namespace, name)), object)
            },
        )
    };
    let class = select(&["k8s.io/ingress-nginx", "other.io/x"][..]).prop_map(|controller| {
        Object::IngressClass(Arc::new(IngressClass { controller: controller.into() }))
    });
    prop_oneof![
        4 => of(Kind::Ingress, ingress().boxed(), &NAMES),
        2 => of(Kind::Service, service().boxed(), &NAMES),
        2 => of(Kind::EndpointSlice, slice().boxed(), &NAMES),
        2 => of(Kind::Secret, secret().boxed(), &NAMES),
        1 => of(Kind::ConfigMap, config_map().boxed(), &["a"]),
        1 => of(Kind::IngressClass, class.boxed(), &["nginx", "other"]),
    ]
}

fn mode() -> impl Strategy<Value = HostOwnership> {
    use HostOwnership::{Settings, Shared, Strict};
    select(&[Settings, Shared, Strict][..])
}

#[derive(Clone, Debug)]
enum Step {
    Seen(Seen),
    Answer(DnsAnswer),
}

/// An object, or what DNS says of the one name; `gateways`: so often one of the Gateway API.
fn step(gateways: u32) -> impl Strategy<Value = Step> {
    let addresses = vec((1..4u8).prop_map(|last| [127, 0, 0, last].into()), 0..3);
    let answer = (addresses, any::<bool>()).prop_map(|(addresses, is_failure)| match is_failure {
        true => DnsAnswer { failure: Some("gone".into()), ..DnsAnswer::default() },
        false => DnsAnswer { addresses, ..DnsAnswer::default() },
    });
    let of_gateways = gateways::seen().prop_map(Step::Seen);
    prop_oneof![14 => seen().prop_map(Step::Seen), gateways => of_gateways, 1 => answer.prop_map(Step::Answer)]
}

/// As many cases in `make test`; `PROPTEST_CASES` says another number, as `make soak` does.
fn cases(few: u32) -> ProptestConfig {
    let said = std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok());
    ProptestConfig::with_cases(said.unwrap_or(few))
}

proptest! {
    #![proptest_config(cases(1_000))]

    #[test]
    fn incremental_equals_from_scratch(
        mode in mode(),
        regex_per_host in any::<bool>(),
        steps in vec(vec(step(0), 1..4), 1..25),
    ) {
        check_increments(mode, regex_per_host, steps)?;
    }

    #[test]
    fn incremental_equals_from_scratch_with_gateways(
        mode in mode(),
        regex_per_host in any::<bool>(),
        steps in vec(vec(step(10), 1..4), 1..25),
    ) {
        check_increments(mode, regex_per_host, steps)?;
    }
}

/// Any annotation of the table, or another name, with a value that means something somewhere, or nothing anywhere.
fn annotations() -> impl Strategy<Value = BTreeMap<String, String>> {
    let names: Vec<&str> = annotation::table::ROWS.iter().map(|row| row.name).collect();
    let name = prop_oneof![9 => select(names).prop_map(String::from), 1 => "[a-z-]{1,12}"];
    let known = select(
        &[
            "true",
            "false",
            "on",
            "off",
            "0",
            "5",
            "-1",
            "8m",
            "1g",
            "60s",
            "/$1",
            "/x",
            "$scheme://a",
            "basic",
            "digest",
            "n/a",
            "a",
            "http://x.test/a?b=$arg_c",
            "https://$host/",
            "http://127.0.0.1:8081/",
            "10.0.0.0/8",
            "10.0.0.0/33",
            "::/0",
            "404,503",
            "GET",
            "CN=a.*",
            "CN=(",
            "https://a.test,*",
            "null",
            "deny all;",
            "200 10m",
            "error timeout",
            "a b",
            "cookie",
            "ewma",
            "$request_uri",
            "*.c.test, c.test",
            "\r\nX: y",
            "\0",
        ][..],
    );
    let value = prop_oneof![6 => known.prop_map(String::from), 2 => ".{0,12}", 1 => "[$/{}a-z0-9.:, ;=\r\n]{0,24}"];
    let prefix = "nginx.ingress.kubernetes.io/";
    let one = (name, value).prop_map(move |(name, value)| (format!("{prefix}{name}"), value));
    vec(one, 0..12).prop_map(|all| all.into_iter().collect())
}

fn alone(host: &str, name: &str, annotations: &BTreeMap<String, String>) -> Seen {
    let target = Target::Service { name: "a".into(), port: Port::Number(80) };
    let path = Path { path: "/x".into(), path_type: PathType::Prefix, target };
    let ingress = Ingress {
        annotations: annotations.clone(),
        rules: vec![Rule { host: host.into(), paths: vec![path] }],
        ..Ingress::default()
    };
    let id = ObjectRef::new(Kind::Ingress, Key::new("n", name));
    (id, Some(Object::Ingress(Arc::new(ingress))))
}

proptest! {
    #![proptest_config(cases(1_000))]

    #[test]
    fn whatever_annotations_say_the_module_takes_it_and_no_other_host_has_it(
        first in annotations(),
        second in annotations(),
        others in vec(seen(), 0..6),
    ) {
        let options = Options { watch_ingress_without_class: true, destinations: own_port(8_081), ..Options::default() };
        let mut both = World::default();
        let mut changed = Changed::default();
        for seen in others.into_iter().filter(|(id, _)| id.kind != Kind::Ingress) {
            both.apply(seen, &mut changed);
        }
        let mut only = both.clone();
        both.apply(alone("a.test", "first", &first), &mut changed);
        both.apply(alone("b.test", "second", &second), &mut changed);
        only.apply(alone("a.test", "first", &first), &mut changed);
        let both = translate(&both, &options);
        let only = translate(&only, &options);
        let json = serde_json::to_vec(&both.snapshot).unwrap();
        let read: Snapshot = serde_json::from_slice(&json).unwrap();
        prop_assert_eq!(&read, &both.snapshot);
        // What the other Ingress says about balancing one Service may hold for both, by age.
        let host = HostPattern::parse("a.test").unwrap();
        let said = |translation: &Translation| {
            let server = translation.snapshot.servers.get(&host);
            let rules = server.map(|server| server.rules.iter().map(|rule| (rule.path.clone(), rule.policies.clone(), rule.policy.clone())).collect::<Vec<_>>());
            (rules, translation.snapshot.tls.get(&host).cloned())
        };
        prop_assert_eq!(said(&both), said(&only));
        // An Ingress that is not as it was meant is told about.
        let closed = both.snapshot.policies.values().any(|policies| policies.denied.is_some());
        let is_told = |v: &oxigress_objects::verdict::Verdict| v.severity == oxigress_objects::verdict::Severity::Rejected;
        prop_assert!(!closed || both.verdicts.values().any(is_told));
    }
}

fn own_port(port: u16) -> oxigress_core::balancer::destinations::Destinations {
    let own_ports = vec![port];
    oxigress_core::balancer::destinations::Settings {
        allows_loopback: true,
        own_ports,
        denied: Vec::new(),
    }
    .destinations()
}
