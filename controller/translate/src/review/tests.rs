//! One test for each check of ingress-nginx's admission controller, through the same manifests and flags that people write.

use super::*;
use crate::tests;
use oxigress_objects::document::{self, Found};
use oxigress_objects::gateway::Route;
use oxigress_objects::{Changed, Object};
use std::cell::RefCell;
use std::fmt::Write as _;
use std::time::Duration;

mod owners;
mod paths;
mod prices;
mod routes;
mod sets;

const UID: &str = "0c9a8d74-9cb7-44dd-b98e-09fd62def2f4";
const CLASS: &str = "
apiVersion: networking.k8s.io/v1
kind: IngressClass
metadata: { name: nginx }
spec: { controller: k8s.io/ingress-nginx }
---
apiVersion: networking.k8s.io/v1
kind: IngressClass
metadata: { name: foreign }
spec: { controller: example.com/other }
---
apiVersion: v1
kind: Service
metadata: { name: cart }
spec: { ports: [{ port: 80 }] }
";

/// An Ingress of one path; `words` are `KEY: VALUE` annotations, and `class:`, `type:`, `host:`, `path:`, `age:`,
/// `service:`, `namespace:` and `spec:` for the rest.
fn ingress(name: &str, words: &[&str]) -> String {
    let (mut annotations, mut spec) = (String::new(), String::new());
    let (mut class, mut kind, mut host, mut path) = ("nginx", "Prefix", "a.test", "/x");
    let (mut age, mut service, mut namespace) = ("2026-01-01T00:00:00Z", "cart", "default");
    for word in words {
        let (key, value) = word.split_once(": ").unwrap();
        match key {
            "class" => class = value,
            "type" => kind = value,
            "host" => host = value,
            "path" => path = value,
            "age" => age = value,
            "service" => service = value,
            "namespace" => namespace = value,
            "spec" => spec = format!("  {value}\n"),
            key if key.contains('/') => annotations += &format!("    {key}: {value:?}\n"),
            key => annotations += &format!("    nginx.ingress.kubernetes.io/{key}: {value:?}\n"),
        }
    }
    let annotations = match annotations.as_str() {
        "" => String::new(),
        lines => format!("  annotations:\n{lines}"),
    };
    format!(
        "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata:\n  name: {name}\n  namespace: {namespace}\n  \
         creationTimestamp: {age}\n{annotations}spec:\n  ingressClassName: {class}\n{spec}  rules:\n  - host: {host:?}\n    \
         http:\n      paths:\n      - path: {path:?}\n        pathType: {kind}\n        \
         backend: {{ service: {{ name: {service}, port: {{ number: 80 }} }} }}\n"
    )
}

/// The Ingress `shop` of a namespace, which names a host and has no path there.
fn naming(namespace: &str, year: u16, host: &str) -> String {
    format!(
        "apiVersion: networking.k8s.io/v1\nkind: Ingress\n\
         metadata: {{ name: shop, namespace: {namespace}, creationTimestamp: '{year}-01-01T00:00:00Z' }}\n\
         spec: {{ ingressClassName: nginx, rules: [{{ host: {host} }}] }}"
    )
}

pub(super) fn objects(text: &str) -> Vec<(ObjectRef, Object)> {
    let found =
        document::read(text, false).into_iter().flat_map(|document| document.found.unwrap());
    let object = |found| match found {
        Found::Object(id, object) => (id, object),
        _ => panic!("a broken object in {text}"),
    };
    found.map(object).collect()
}

/// What is said in a world of these objects.
pub(super) struct Fixture {
    pub(super) translator: Translator,
    pub(super) world: World,
    reviews: RefCell<Reviews>,
    now: Instant,
}

impl Fixture {
    pub(super) fn new(flags: &str, manifests: &[String]) -> Self {
        let mut translator = Translator::new(tests::options(flags));
        let (mut world, mut changed) = (World::default(), Changed::default());
        for text in std::iter::once(CLASS).chain(manifests.iter().map(String::as_str)) {
            for (id, object) in objects(text) {
                world.apply((id, Some(object)), &mut changed);
            }
        }
        translator.update(&world, &changed);
        Fixture { translator, world, reviews: RefCell::default(), now: Instant::now() }
    }

    fn review_as(&self, manifest: &str, uid: &str, is_going: bool) -> ReviewOutcome {
        let all = objects(manifest);
        let [(id, Object::Ingress(ingress))] = &all[..] else { panic!("{manifest}") };
        let candidate = Candidate { key: &id.key, uid, is_going, ingress };
        let mut reviews = self.reviews.borrow_mut();
        self.translator.review(&self.world, &candidate, &mut reviews, self.now)
    }

    pub(super) fn review_route(&self, id: &ObjectRef, route: &Route) -> ReviewOutcome {
        let mut reviews = self.reviews.borrow_mut();
        self.translator.review_route(&self.world, (id, route), &mut reviews, self.now)
    }

    pub(super) fn review_set(&mut self, manifest: &str) -> ReviewOutcome {
        let all = objects(manifest);
        let [(id, Object::ListenerSet(set))] = &all[..] else { panic!("{manifest}") };
        let (before, mut reviews) = (self.world.clone(), self.reviews.borrow_mut());
        let translator = &self.translator;
        let set = (&id.key, set);
        let outcome = translator.review_set(&mut self.world, set, &mut reviews, self.now);
        assert_eq!(self.world, before);
        outcome
    }

    /// Spends all that the reviews of a namespace may cost in a minute.
    pub(super) fn spend_reviews_of(&self, namespace: &str) {
        let mut reviews = self.reviews.borrow_mut();
        reviews.begin(namespace, self.now);
        for part in [1_000_000, 1_000, 1] {
            while reviews.charge(part) {}
            reviews.begin(namespace, self.now);
        }
    }

    fn review(&self, name: &str, words: &[&str]) -> ReviewOutcome {
        self.review_as(&ingress(name, words), UID, false)
    }

    fn denies(&self, name: &str, words: &[&str], why: &str) {
        let denial = self.review(name, words).denial.unwrap_or_else(|| panic!("{words:?}"));
        assert!(denial.contains(why), "{denial:?} does not contain {why:?}");
    }

    fn admits(&self, name: &str, words: &[&str]) -> Vec<String> {
        let outcome = self.review(name, words);
        assert_eq!(outcome.denial, None, "{words:?}");
        outcome.warnings
    }
}

fn settings(lines: &str) -> String {
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{ name: settings }}\ndata: {{ {lines} }}\n"
    )
}

#[test]
fn an_ordinary_ingress_is_admitted_without_a_word() {
    let fixture = Fixture::new("", &[]);
    assert_eq!(fixture.admits("shop", &[]), Vec::<String>::new());
    assert_eq!(fixture.review("shop", &[]).compared, 1);
}

#[test]
fn warnings_come_with_denials_and_also_for_others() {
    let fixture = Fixture::new("", &[]);
    let words = ["enable-influxdb: true", "path: /a(b)", "type: Prefix"];
    let outcome = fixture.review("shop", &words);
    assert!(outcome.denial.is_some());
    assert!(outcome.warnings[0].contains("enable-influxdb"), "{:?}", outcome.warnings);
    assert!(outcome.warnings[1].contains("pathType Prefix"), "{:?}", outcome.warnings);
    let foreign = [&words[..], &["class: foreign"]].concat();
    let outcome = fixture.review("shop", &foreign);
    assert_eq!((outcome.denial, outcome.warnings.len(), outcome.compared), (None, 2, 0));
}

#[test]
fn one_that_is_being_deleted_is_let_go_whatever_it_says() {
    let fixture = Fixture::new("", &[]);
    let odd = ingress("shop", &["path: /etc/passwd", "auth-url: x", "enable-influxdb: true"]);
    assert!(fixture.review_as(&odd, UID, false).denial.is_some());
    assert_eq!(fixture.review_as(&odd, "", true), ReviewOutcome::default());
}

#[test]
fn deep_inspection_comes_before_the_class() {
    let words = ["path: /etc/passwd", "class: foreign", "type: ImplementationSpecific"];
    Fixture::new("", &[]).denies(
        "shop",
        &words,
        "invalid object: spec.rules[0].http.paths[0].path",
    );
    assert!(Fixture::new("--deep-inspect=false", &[]).admits("shop", &words).is_empty());
}

#[test]
fn other_classes_and_namespaces_are_not_checked() {
    let fixture = Fixture::new("--watch-namespace=default", &[]);
    let odd = ["auth-url: x", "configuration-snippet: deny all;"];
    fixture.denies("shop", &odd, "snippet");
    assert!(fixture.admits("shop", &[&odd[..], &["class: foreign"]].concat()).is_empty());
    assert!(fixture.admits("shop", &[&odd[..], &["namespace: other"]].concat()).is_empty());
    let warnings = fixture.admits("shop", &[&odd[..], &["class: nobodys"]].concat());
    assert!(warnings[0].contains("there is no IngressClass nobodys"), "{warnings:?}");
}

#[test]
fn a_catch_all_is_denied_where_it_is_switched_off() {
    let backend = ["spec: defaultBackend: { service: { name: cart, port: { number: 80 } } }"];
    let fixture = Fixture::new("--disable-catch-all", &[]);
    fixture.denies("shop", &backend, "--disable-catch-all");
    assert!(Fixture::new("", &[]).admits("shop", &backend).is_empty());
    let foreign = ["class: foreign", backend[0]];
    assert!(fixture.admits("shop", &foreign).is_empty());
}

#[test]
fn a_uid_is_a_uuid() {
    let fixture = Fixture::new("", &[]);
    for uid in ["", "x", "0c9a8d74-9cb7-44dd-b98e-09fd62def2f", &format!("{UID}0"), "}; deny all;"]
    {
        let denial = fixture.review_as(&ingress("shop", &[]), uid, false).denial.unwrap();
        assert!(denial.contains("metadata.uid"), "{denial}");
    }
    assert_eq!(fixture.review_as(&ingress("shop", &[]), &UID.to_uppercase(), false).denial, None);
}

#[test]
fn paths_that_are_no_plain_text_want_implementation_specific() {
    let fixture = Fixture::new("", &[]);
    for path in ["/a(b)", "/a b", "/a;", "/é", "x"] {
        fixture.denies("shop", &[&format!("path: {path}")], "cannot be used with pathType Prefix");
        fixture.denies("shop", &["type: Exact", &format!("path: {path}")], "pathType Exact");
    }
    fixture.admits("shop", &["type: ImplementationSpecific", "path: /a(b)"]);
    let lax = Fixture::new(
        "--configmap=default/settings",
        &[settings("strict-validate-path-type: \"false\"")],
    );
    assert_eq!(lax.admits("shop", &["path: /a(b)"]).len(), 1);
}

#[test]
fn the_default_prefix_is_denied_where_there_is_another() {
    let fixture = Fixture::new("--annotations-prefix=oxi.test", &[]);
    fixture.denies("shop", &["ssl-redirect: false"], "write oxi.test/");
    fixture.admits("shop", &["oxi.test/ssl-redirect: false"]);
}

#[test]
fn blocked_words_are_denied_in_annotations_of_the_prefix() {
    let map = settings("annotation-value-word-blocklist: \" evil, load_module,\"");
    let fixture = Fixture::new("--configmap=default/settings", &[map]);
    fixture.denies("shop", &["app-root: /an-evil-one"], "\"evil\"");
    fixture.admits("shop", &["app-root: /a-good-one"]);
    fixture.admits("shop", &["other.test/app-root: /an-evil-one"]);
}

#[test]
fn snippets_are_denied_unless_they_are_allowed_and_keep_nobody_out() {
    let fixture = Fixture::new("", &[]);
    let header = ["configuration-snippet: add_header X y;"];
    fixture.denies("shop", &header, "allow-snippet-annotations");
    fixture.denies("shop", &["other.test/a-snippet: x"], "allow-snippet-annotations");
    let map = settings("allow-snippet-annotations: \"true\"");
    let fixture = Fixture::new("--configmap=default/settings", &[map]);
    assert!(fixture.admits("shop", &header).is_empty());
    fixture.admits("shop", &["configuration-snippet: deny all;"]);
    let warnings = fixture.admits("shop", &["configuration-snippet: sub_filter a b;"]);
    assert!(warnings[0].contains("line 1: sub_filter is ignored"), "{warnings:?}");
    fixture.denies("shop", &["configuration-snippet: deny all;}"], "it is not valid nginx syntax");
    fixture.denies("shop", &["configuration-snippet: if ($x) { deny all; }"], "answer 503");
}

#[test]
fn what_translate_rejects_is_denied_and_what_it_serves_otherwise_is_a_warning() {
    let fixture = Fixture::new("", &[]);
    fixture.denies("shop", &["auth-url: x"], "annotation auth-url");
    fixture.denies("shop", &["auth-type: digest", "limit-rps: x"], "; annotation limit-rps");
    fixture.denies("shop", &["host: a_b..test"], "spec.rules[0].host");
    fixture.denies("shop", &["canary: maybe", "canary-weight: 5"], "canary");
    let warnings = fixture.admits("shop", &["proxy-body-size: 8mb"]);
    assert!(warnings[0].contains("annotation proxy-body-size"), "{warnings:?}");
    let warnings = fixture.admits("shop", &["service: later"]);
    assert!(warnings[0].contains("Service default/later does not exist"), "{warnings:?}");
}

#[test]
fn objects_that_come_later_are_no_reason_to_deny() {
    let basic = ["auth-type: basic", "auth-secret: users"];
    assert!(Fixture::new("", &[]).admits("shop", &basic).is_empty());
    let secret =
        "apiVersion: v1\nkind: Secret\nmetadata: { name: users }\nstringData: { odd: x }\n";
    let warnings = Fixture::new("", &[secret.into()]).admits("shop", &basic);
    assert!(warnings[0].contains("Secret default/users has no field auth"), "{warnings:?}");
    // Where it names nothing that could come, it is its own fault.
    Fixture::new("", &[]).denies("shop", &["auth-type: basic", "auth-secret: A_B"], "auth-secret");
    Fixture::new("", &[]).denies(
        "shop",
        &["auth-type: basic", "auth-secret: n/users"],
        "namespace",
    );
    let warnings = Fixture::new("", &[]).admits("shop", &["canary: true", "canary-weight: 5"]);
    assert!(warnings[0].contains("has no main Ingress"), "{warnings:?}");
    assert!(
        Fixture::new("", &[])
            .admits("shop", &["spec: tls: [{ hosts: [a.test], secretName: x }]"])
            .is_empty()
    );
}

#[test]
fn one_path_of_a_host_belongs_to_one_ingress() {
    let fixture = Fixture::new("", &[ingress("first", &["age: 2025-01-01T00:00:00Z"])]);
    let already = "host \"a.test\" and path \"/x\" is already defined in ingress default/first";
    fixture.denies("second", &[], already);
    // As the reference compares: the type says nothing.
    fixture.denies("second", &["type: Exact"], already);
    assert!(fixture.admits("second", &["path: /y"]).is_empty());
    assert!(fixture.admits("second", &["host: b.test"]).is_empty());
    // Itself, as it was.
    assert!(
        fixture.admits("first", &["age: 2025-01-01T00:00:00Z", "proxy-body-size: 8m"]).is_empty()
    );
    assert_eq!(fixture.review("second", &["path: /y"]).compared, 2);
}

#[test]
fn canaries_join_and_rollouts_that_rest_are_left_alone() {
    let main = ingress("main", &["age: 2025-01-01T00:00:00Z"]);
    let fixture = Fixture::new("", std::slice::from_ref(&main));
    let canary = ["canary: true", "canary-weight: 5", "service: next"];
    assert_eq!(fixture.admits("canary", &canary).len(), 1, "its Service alone is not there yet");
    // Flagger leaves a second Ingress like this one between rollouts.
    let warnings = fixture.admits("resting", &["canary: false"]);
    assert!(warnings[0].contains("is served by Ingress default/main"), "{warnings:?}");
    let resting = ingress("resting", &["canary: false"]);
    let fixture = Fixture::new("", &[main, resting, ingress("one", &canary)]);
    fixture.denies("third", &[], "default/main");
    // Several canaries of a path are served here.
    assert!(fixture.review("two", &canary).denial.is_none());
}

#[test]
fn who_has_a_path_keeps_it_and_nobody_takes_it_over_by_age() {
    let old = ["age: 2020-01-01T00:00:00Z", "path: /old"];
    let fixture = Fixture::new("", &[ingress("old", &old), ingress("owner", &[])]);
    fixture.denies(
        "old",
        &["age: 2020-01-01T00:00:00Z"],
        "already defined in ingress default/owner",
    );
    let loser = ingress("loser", &["age: 2026-02-02T00:00:00Z"]);
    let fixture = Fixture::new("", &[ingress("owner", &[]), loser]);
    assert!(fixture.admits("owner", &["proxy-body-size: 8m"]).is_empty());
    fixture.denies("loser", &["age: 2026-02-02T00:00:00Z"], "default/owner");
}

#[test]
fn without_the_full_test_nothing_is_said_about_others() {
    let fixture =
        Fixture::new("--disable-full-test", &[ingress("first", &["age: 2025-01-01T00:00:00Z"])]);
    assert!(fixture.admits("second", &["service: later", "path: /y"]).is_empty());
    fixture.denies("second", &[], "already defined");
    let fixture = Fixture::new("", &[]);
    assert_eq!(fixture.admits("second", &["service: later", "path: /y"]).len(), 1);
}

#[test]
fn the_rows_speak_in_their_order() {
    let map = settings("annotation-value-word-blocklist: evil");
    let first = ingress("first", &["age: 2025-01-01T00:00:00Z", "path: /a(b)"]);
    let flags = "--configmap=default/settings --disable-catch-all";
    let fixture = Fixture::new(flags, &[map, first]);
    let backend = "spec: defaultBackend: { service: { name: cart, port: { number: 80 } } }";
    let mut words = vec![
        ("host: /var/run/secrets", "invalid object"),
        (backend, "--disable-catch-all"),
        ("uid", "metadata.uid"),
        ("path: /a(b)", "cannot be used"),
        ("app-root: evil", "blocklist"),
        ("z-snippet: x", "snippet"),
        ("auth-url: x", "auth-url"),
    ];
    while let Some((_, why)) = words.first() {
        let is_bad_uid = words.iter().any(|(word, _)| *word == "uid");
        let all: Vec<_> =
            words.iter().map(|(word, _)| *word).filter(|word| *word != "uid").collect();
        let manifest = ingress("shop", &all);
        let uid = if is_bad_uid { "x" } else { UID };
        let denial = fixture.review_as(&manifest, uid, false).denial.unwrap();
        assert!(denial.contains(why), "{denial:?} does not contain {why:?}");
        words.remove(0);
    }
    fixture.denies("shop", &["type: ImplementationSpecific", "path: /a(b)"], "already defined");
}

#[test]
fn many_reasons_are_counted_and_told_once() {
    let names = ["auth-url", "limit-rps", "limit-rpm", "limit-connections", "auth-type"];
    let words: Vec<_> = names.iter().map(|name| format!("{name}: x")).collect();
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    let denial = Fixture::new("", &[]).review("shop", &words).denial.unwrap();
    assert_eq!(denial.matches("; ").count(), names.len() - 1, "{denial}");
    let mut messages: Vec<_> = (0..50).map(|n| (n / 2).to_string()).collect();
    bound(&mut messages);
    assert_eq!((messages.len(), messages[20].as_str()), (21, "and 5 more of the kind"));
}

/// An Ingress with so many dear patterns, which no other review has had.
fn with_patterns(namespace: &str, count: usize, series: &str) -> String {
    let words = [
        "path: /first",
        "type: ImplementationSpecific",
        "use-regex: true",
        &format!("namespace: {namespace}"),
    ];
    let mut text = ingress("dry-run", &words);
    for n in 0..count {
        let _ = writeln!(
            text,
            "      - {{ path: '/{series}{n}/\\p{{L}}', pathType: ImplementationSpecific, backend: {{ service: {{ name: cart, \
             port: {{ number: 80 }} }} }} }}"
        );
    }
    text
}

#[test]
fn reviews_compile_no_more_than_a_namespace_may_ask_for_in_a_minute() {
    let mut fixture = Fixture::new("", &[]);
    let unchecked = |fixture: &Fixture, namespace: &str, series: &str| {
        let outcome = fixture.review_as(&with_patterns(namespace, 200, series), UID, false);
        assert_eq!(
            outcome.denial, None,
            "whoever names a namespace must not keep its Ingresses out"
        );
        outcome.warnings.into_iter().find(|warning| warning.contains("was not checked"))
    };
    let compiled =
        (0..100).take_while(|n| unchecked(&fixture, "default", &format!("s{n}-")).is_none());
    let compiled = compiled.count();
    assert!((15..30).contains(&compiled), "{compiled} of 80 milliseconds each in two seconds");
    let told = unchecked(&fixture, "default", "another-").unwrap();
    assert!(told.contains("namespace default") && told.contains("send it again"), "{told}");
    assert_eq!(unchecked(&fixture, "default", "s0-"), None, "nothing new");
    assert_eq!(unchecked(&fixture, "other", "another-"), None, "another namespace's");
    fixture.now += Duration::from_secs(10);
    assert_eq!(unchecked(&fixture, "default", "another-"), None);
}
