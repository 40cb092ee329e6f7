use super::*;
use crate::explain::{Offline, Recording};
use crate::model::Snapshot;
use crate::patterns::Patterns;
use crate::record::{Kind, snapshot_records};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;

mod guests;
mod listeners;

pub type Encoded = BTreeMap<(Kind, Vec<u8>), Vec<u8>>;
type Counting = fn(&[u8], usize) -> Option<crate::explain::Counted>;

/// The ids of a bundle of authorities that is there, and of one that is not.
pub const CA: &str = "cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc";
pub const LOST: &str = "dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd";

pub fn records(snapshot: Value) -> Encoded {
    let snapshot: Snapshot = serde_json::from_value(snapshot).unwrap();
    let all = snapshot_records(snapshot).into_iter();
    all.map(|change| ((change.kind, change.key), change.value.unwrap())).collect()
}

/// The first endpoint of `busy` has more requests than any limit.
const COUNTING: Counting = |backend, _| {
    let in_flight = if backend == b"busy" { 9 } else { 0 };
    Some(crate::explain::Counted { in_flight, ejected_ms: 0 })
};

pub fn generation(records: &Encoded) -> Offline<'_, &Encoded, Counting> {
    let records = Box::leak(Box::new(records));
    Offline { records, patterns: Box::leak(Box::default()), counted: &COUNTING }
}

/// A request with everything that a connection may say about it.
#[derive(Clone, Debug)]
pub(super) struct Generated {
    host: &'static str,
    path: String,
    args: &'static str,
    method: &'static str,
    headers: BTreeMap<&'static str, &'static str>,
    cookie: Option<&'static str>,
    is_tls: bool,
    server_name: Option<&'static str>,
    client_scheme: &'static str,
    was_asked: bool,
    shown: Shown,
    subject: &'static str,
    random: u64,
}

impl Generated {
    /// A plain request for a path of `a.test`.
    pub fn of(path: &str, args: &'static str, origin: Option<&'static str>) -> Self {
        Generated {
            host: "a.test",
            path: path.into(),
            args,
            method: "GET",
            headers: origin.map(|origin| ("origin", origin)).into_iter().collect(),
            cookie: None,
            is_tls: true,
            server_name: Some("a.test"),
            client_scheme: "https",
            was_asked: true,
            shown: Shown::Nothing,
            subject: "",
            random: 0,
        }
    }
}

impl crate::balancer::split::Request for Generated {
    fn header(&self, name: &[u8]) -> Option<Cow<'_, [u8]>> {
        self.first_header(&name.to_ascii_lowercase()).map(Cow::Borrowed)
    }

    fn cookie(&self, _: &[u8]) -> Option<&[u8]> {
        self.cookie.map(str::as_bytes)
    }
}

impl Facts for Generated {
    fn host(&self) -> &[u8] {
        self.host.as_bytes()
    }
    fn path(&self) -> &[u8] {
        self.path.as_bytes()
    }
    fn args(&self) -> &[u8] {
        self.args.as_bytes()
    }
    fn target(&self) -> &[u8] {
        self.path.as_bytes()
    }
    fn method(&self) -> &[u8] {
        self.method.as_bytes()
    }
    fn each_header(&self, visit: &mut dyn FnMut(&[u8], &[u8])) {
        self.headers.iter().for_each(|(name, value)| visit(name.as_bytes(), value.as_bytes()));
    }
    fn port(&self) -> u16 {
        if self.is_tls { 443 } else { 80 }
    }

    fn address(&self) -> Option<IpAddr> {
        None
    }
    fn first_header(&self, name: &[u8]) -> Option<&[u8]> {
        self.headers.get(str::from_utf8(name).unwrap()).map(|value| value.as_bytes())
    }
    fn origin(&self) -> Option<Vec<u8>> {
        (!self.host.is_empty()).then(|| format!("http://{}", self.host).into_bytes())
    }
    fn client_host(&self) -> &[u8] {
        self.host.as_bytes()
    }
    fn client_scheme(&self) -> &[u8] {
        self.client_scheme.as_bytes()
    }
    fn variable(&self, name: &[u8]) -> Option<Cow<'_, [u8]>> {
        (name == b"uri").then_some(Cow::Borrowed(self.path.as_bytes()))
    }
    fn random(&self) -> u64 {
        self.random
    }
    fn is_internal(&self) -> bool {
        self.path == "/refused"
    }
    fn is_tls(&self) -> bool {
        self.is_tls
    }
    fn server_name(&self) -> Option<Cow<'_, [u8]>> {
        self.server_name.map(|name| Cow::Borrowed(name.as_bytes()))
    }
    fn was_asked_for(&self, _: &[u8; 16]) -> bool {
        self.was_asked
    }
    fn certificate(&self) -> Option<Shown> {
        Some(self.shown)
    }
    fn certificate_subject(&self) -> Option<&[u8]> {
        Some(self.subject.as_bytes())
    }
    fn sender(&self) -> Option<&[u8]> {
        self.first_header(b"sender")
    }
}

fn requests() -> impl Strategy<Value = Generated> {
    let any_of = |all: &'static [&'static str]| proptest::sample::select(all);
    let header = |name: &'static str, values: &'static [&'static str]| {
        proptest::option::of(any_of(values)).prop_map(move |value| Some((name, value?)))
    };
    let headers = [
        header("origin", &["https://good.test", "https://evil.test"]),
        header("user-agent", &["curl/8", "bad"]),
        header("x-canary", &["always", "never", "maybe"]),
        header("accept", &["text/html"]),
    ];
    let shown = [Shown::Nothing, Shown::Valid, Shown::Unvouched, Shown::Invalid];
    let target = (
        any_of(&["a.test", "b.test", "x.test", "a.x.test", "", "shut.test", "lost.test"]),
        "/([ab]{0,2}(/[ab]{0,2})?|refused|[.]well-known/acme-challenge/a)",
        any_of(&["", "q=1"]),
        any_of(&["GET", "OPTIONS"]),
    );
    let connection = (
        any::<bool>(),
        any_of(&["http", "https"]),
        proptest::bool::weighted(0.9),
        proptest::sample::select(shown.to_vec()).boxed(),
        any_of(&["CN=ann", "CN=bob"]),
    );
    let cookie = proptest::option::of(any_of(&["always", "never"]));
    (target, headers, cookie, connection, any::<u64>()).prop_map(
        |((host, path, args, method), headers, cookie, connection, random)| {
            let (is_tls, client_scheme, was_asked, shown, subject) = connection;
            let headers = headers.into_iter().flatten().collect();
            Generated {
                host,
                path,
                args,
                method,
                headers,
                cookie,
                is_tls,
                server_name: Some(host),
                client_scheme,
                was_asked,
                shown,
                subject,
                random,
            }
        },
    )
}

fn rules() -> impl Strategy<Value = Vec<Value>> {
    let path = prop_oneof![
        "(/[ab]{1,2}){0,2}"
            .prop_map(|p| json!({"prefix": if p.is_empty() { "/".into() } else { p }})),
        "/[ab]{1,2}/?".prop_map(|p| json!({"exact": p})),
        Just(json!({"regex": "/a(.*)"})),
        Just(json!({"regex": "/(a|b)/.*"})),
        Just(json!({"prefix": "/.well-known/acme-challenge"})),
    ];
    let backends = ["own", "split", "halves", "empty", "missing", "busy"];
    let backend = proptest::option::weighted(0.9, proptest::sample::select(backends.to_vec()));
    let policies = [
        "moved",
        "nowhere",
        "rewrite",
        "to-url",
        "dots",
        "denied",
        "cors",
        "fallback",
        "no-fallback",
        "port",
        "missing",
        "script",
        "circle",
        "of-server",
    ];
    let policies = proptest::option::of(proptest::sample::select(policies.to_vec()));
    let https = proptest::sample::select(&["never", "with_certificate", "always"][..]);
    let rule = (path, backend, policies, https).prop_map(|(path, backend, policies, https)| {
        let named = path.as_object().and_then(|path| path.values().next()).cloned();
        let origin =
            json!({"namespace": "n", "ingress": "i", "service": "s", "port": "80", "path": named});
        let mut rule = json!({"path": path, "origin": origin, "policy": {"https_redirect": https}});
        let mut set = |key: &str, value: Option<&str>| {
            if let Some(value) = value {
                rule[key] = value.into();
            }
        };
        set("backend", backend);
        set("policies", policies);
        rule
    });
    let all = proptest::collection::vec(rule, 0..6);
    // A path stands once in a server.
    all.prop_map(|all| {
        let all = all.into_iter().map(|rule| (rule["path"].to_string(), rule));
        all.collect::<BTreeMap<_, _>>().into_values().collect()
    })
}

/// What a host asks of its clients.
fn client(verify: &str, page: Option<&str>, subject: Option<&str>) -> Value {
    let mut client = json!({"authorities": CA, "verify": verify, "depth": 1});
    for (key, value) in [("error_page", page), ("subject", subject)] {
        if let Some(value) = value {
            client[key] = value.into();
        }
    }
    json!({"client": client})
}

fn policies() -> Value {
    json!({
        "moved": {"redirect": {"code": 301, "location": "https://new.test/$1$location_path"}},
        "nowhere": {"redirect": {"code": 302, "location": "$arg_none"}},
        "rewrite": {"rewrite": {"target": "/api/$1", "forwarded_prefix": "/$ingress_name"}},
        "to-url": {"rewrite": {"target": "https://$proxy_host/$1"}},
        "dots": {"rewrite": {"target": "/../$1"}},
        "denied": {"denied": 503},
        "cors": {"cors": {
            "origins": ["https://good.test"], "methods": "GET", "headers": "X", "credentials": false,
            "max_age": 1,
        }},
        "fallback": {"fallback": "own"},
        "no-fallback": {"fallback": "empty"},
        "port": {"redirect_port": 8443, "relative_redirects": true},
        "script": {"script": {"steps": [
            {"if": {"test": {"value": "$args", "equals": "q=1"}, "then": [{"answer": {"code": 403}}]}},
            {"rewrite": {"pattern": "^/a(.*)", "target": "/b$1", "then": "last"}},
        ]}},
        "circle": {"script": {"steps": [{"rewrite": {"pattern": "^", "target": "/a/b"}}]}},
        "of-server": {"script": {"server": "server"}},
        "server": {"script": {
            "owner": "n",
            "steps": [{"rewrite": {"pattern": "^/b/a", "target": "/ab"}}],
            "locations": [{"at": {"prefix": "/a/"}, "policies": "denied"}],
        }},
    })
}

fn snapshots() -> impl Strategy<Value = Value> {
    let servers = proptest::collection::btree_map(
        proptest::sample::select(&["a.test", "*.test", "*.x.test", "_"][..]),
        rules(),
        0..4,
    );
    (servers, any::<[bool; 4]>()).prop_map(|(servers, [has_default, blocks, has_tls, named])| {
        let servers: BTreeMap<_, _> =
            servers.into_iter().map(|(host, rules)| (host, json!({"rules": rules}))).collect();
        let endpoint = json!([{"address": "10.0.0.1", "port": 1}]);
        let mut settings = json!({});
        if has_default {
            settings["default_backend"] = "own".into();
        }
        if blocks {
            settings["blocked_user_agents"] = json!(["bad"]);
        }
        let mut tls = json!({});
        if has_tls {
            tls = json!({
                "a.test": client("on", named.then_some("/refused"), None),
                "b.test": client("optional_no_ca", Some("https://login.test$uri"), Some("CN=ann")),
                "*.x.test": client("optional", Some("@page"), None),
                "shut.test": {"denied": true},
                "lost.test": {"client": {"authorities": LOST, "verify": "on", "depth": 1}},
            });
        }
        json!({
            "servers": servers,
            "settings": settings,
            "tls": tls,
            "bundles": {CA: "PEM"},
            "backends": {
                "own": {}, "empty": {}, "busy": {"max_in_flight": 1},
                "split": {"alternatives": ["canary"]},
                "halves": {"alternatives": ["half", "other"]},
                "canary": {"split": {"weight": 20, "header": "X-Canary", "cookie": "canary"}},
                "half": {"split": {"weight": 50}},
                "other": {"split": {"weight": 50}},
            },
            "endpoints": {
                "own": endpoint, "split": endpoint, "canary": endpoint, "halves": endpoint, "half": endpoint,
                "other": endpoint, "busy": endpoint,
            },
            "policies": policies(),
        })
    })
}

/// All of a decision that can be compared.
fn seen<'g, G: Generation<'g>>(decision: &Decision<'g, G>, path: &[u8]) -> String {
    let Decision { answer, edits, route, counter } = decision;
    let counter = counter.map(|counter| match counter {
        Counter::NoRule => ("none", 0),
        Counter::Rule(_, index) => ("rule", index),
        Counter::Alternative(_, index) => ("alternative", index),
    });
    let captures = route.captures.as_ref().map(|captures| [0, 1].map(|n| captures.get(n, path)));
    let policies = route.policies.as_deref().map(CompiledPolicies::source);
    let backend = route.destination.as_ref().map(|to| to.backend);
    let rest = (route.is_named, backend, route.error, counter, route.backend());
    let edits = edits.as_deref().map(|edits| Edits { pattern_steps: None, ..edits.clone() });
    format!("{answer:?} {edits:?} {:?} {captures:?} {policies:?} {rest:?}", route.rule)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    /// A recording trace and a silent one see the same decision, and what wins in an explanation is the rule of the route.
    #[test]
    fn a_trace_changes_nothing_and_tells_the_route(
        snapshot in snapshots(),
        asked in proptest::collection::vec(requests(), 1..8),
    ) {
        let records = records(snapshot);
        let (records, patterns) = (&records, Patterns::default());
        let generation = Offline { records: &records, patterns: &patterns, counted: &COUNTING };
        for request in &asked {
            let mut trace = Recording::new(request.host);
            let path = request.path.as_bytes();
            let told = decide(&generation, request, &mut trace);
            let silent = decide(&generation, request, &mut Silent);
            prop_assert_eq!(seen(&told, path), seen(&silent, path));
            prop_assert!(trace.reason.is_some(), "each answer has a reason");
            let winners: Vec<_> = trace.rules.iter().filter(|rule| rule.wins).collect();
            let rule = told.route.rule.filter(|rule| !rule.is_unclaimed());
            prop_assert_eq!(winners.len(), usize::from(rule.is_some()));
            if let Some((winner, rule)) = winners.first().zip(rule) {
                let [.., path] = rule.texts();
                let named = serde_json::to_value(&winner.path).unwrap();
                let named = named.as_object().unwrap().values().next().unwrap().clone();
                prop_assert_eq!(named.as_str().map(str::as_bytes), Some(path));
            }
            prop_assert_eq!(trace.backend.is_some(), told.route.backend().is_some());
            prop_assert_eq!(matches!(told.answer, Answer::Forward), trace.reason == Some(Reason::Served));
        }
    }
}

fn shop() -> Encoded {
    let endpoint = json!([{"address": "10.0.0.1", "port": 1}]);
    records(json!({
        "servers": {"a.test": {"rules": [
            {"path": {"prefix": "/"}, "backend": "own"},
            {"path": {"prefix": "/gone"}, "backend": "empty", "policies": "fallback",
                "origin": {"namespace": "n", "ingress": "i", "service": "s", "port": "80", "path": "/gone"}},
            {"path": {"prefix": "/split"}, "backend": "split"},
            {"path": {"regex": "/v(1|2)/(.*)"}, "backend": "own", "policies": "rewrite"},
        ]}},
        "tls": {"a.test": {"client": {"authorities": CA, "verify": "on", "depth": 1}}},
        "bundles": {CA: "PEM"},
        "backends": {
            "own": {}, "split": {"alternatives": ["canary"]}, "canary": {"split": {"header": "X-Canary"}},
        },
        "endpoints": {"own": endpoint, "split": endpoint, "canary": endpoint},
        "policies": {"fallback": {"fallback": "own"}, "rewrite": {"rewrite": {"target": "/api/$2"}}},
    }))
}

/// The answer to a request that shows a certificate.
fn decided(request: Generated) -> (Answer, Option<Box<Edits>>, Option<Vec<u8>>) {
    let records = shop();
    let request =
        Generated { is_tls: true, shown: Shown::Valid, client_scheme: "https", ..request };
    let Decision { answer, edits, route, .. } =
        decide(&generation(&records), &request, &mut Silent);
    (answer, edits, route.backend().map(<[u8]>::to_vec))
}

#[test]
fn a_request_goes_to_the_backend_of_its_rule_as_it_came() {
    let expected = (Answer::Forward, None, Some(b"own".to_vec()));
    assert_eq!(decided(request("a.test", "/x")), expected);
}

#[test]
fn a_rewrite_is_an_edit() {
    let (answer, edits, _) = decided(request("a.test", "/v2/items"));
    assert_eq!(
        (answer, edits.unwrap().uri),
        (Answer::Forward, Some((b"/api/items".to_vec(), b"".to_vec())))
    );
}

#[test]
fn a_fallback_is_told_what_happened_and_to_whom() {
    let (answer, edits, backend) = decided(request("a.test", "/gone"));
    assert_eq!((answer, backend), (Answer::Forward, Some(b"own".to_vec())));
    let told: BTreeMap<_, _> = edits.unwrap().request.into_iter().collect();
    assert_eq!((&told["X-Code"][..], &told["X-Ingress-Name"][..]), (&b"503"[..], &b"i"[..]));
}

#[test]
fn an_alternative_counts_in_the_place_of_the_rule() {
    let (records, mut canary) = (shop(), request("a.test", "/split"));
    canary.headers.insert("x-canary", "always");
    canary.is_tls = true;
    canary.shown = Shown::Valid;
    let decision = decide(&generation(&records), &canary, &mut Silent);
    assert!(matches!(decision.counter, Some(Counter::Alternative(_, 0))));
    assert!(decision.route.is_alternative() && decision.route.instead() == b"canary");
}

#[test]
fn a_connection_that_was_asked_for_something_else_ends() {
    let (records, other) = (shop(), request("a.test", "/"));
    let other = Generated { is_tls: true, was_asked: false, ..other };
    let decision = decide(&generation(&records), &other, &mut Silent);
    assert_eq!(decision.answer, Answer::Respond(421));
    assert!(decision.edits.unwrap().closes_connection && decision.route.rule.is_none());
}

fn request(host: &'static str, path: &str) -> Generated {
    Generated {
        host,
        path: path.into(),
        args: "",
        method: "GET",
        headers: BTreeMap::new(),
        cookie: None,
        is_tls: false,
        server_name: None,
        client_scheme: "http",
        was_asked: true,
        shown: Shown::Nothing,
        subject: "",
        random: 0,
    }
}

#[test]
fn a_route_beside_an_ingress_lets_nobody_in_without_a_certificate() {
    let rule = |path: &str, https: &str| json!({"path": {"prefix": path}, "backend": "own", "policy": {"https_redirect": https}});
    let records = records(json!({
        "servers": {"a.test": {"rules": [rule("/", "always")]}},
        "listener_servers": {"80/a.test": {"rules": [rule("/", "always"), rule("/api", "never")]}},
        "tls": {"a.test": {"client": {"authorities": CA, "verify": "on", "depth": 1}}},
        "bundles": {CA: "PEM"},
        "backends": {"own": {}},
        "endpoints": {"own": [{"address": "10.0.0.1", "port": 1}]},
    }));
    let answer =
        |path: &str| decide(&generation(&records), &request("a.test", path), &mut Silent).answer;
    assert!(matches!(answer("/x"), Answer::Redirect { .. }), "sent to HTTPS");
    assert_eq!(answer("/api/x"), Answer::Respond(496), "the route is not");
}
