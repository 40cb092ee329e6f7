//! What waits, what it is charged, and what never waits.

mod beside;
mod endpoints;
mod removals;
mod routes;

use super::*;
use crate::pace::price::price_of_lists;
use crate::{Options, Translator};
use oxigress_objects::document::{self, Found};
use oxigress_objects::gateway::{
    CONTROLLER, GatewayClassSpec, GatewaySpec, HttpRouteMatch, HttpRouteRule, HttpRouteSpec,
    HttpValueMatch, Listener, ParentRef, Resource,
};
use oxigress_objects::ingress::{Ingress, Path, PathType, Port, Rule, Target};
use oxigress_objects::secret::{Fields, Offer, Secret};
use oxigress_objects::{Changed, ConfigMap, Key, Kind, World};
use std::sync::Arc;

const PREFIX: &str = "x.io";
const CLASS: &str = "kubernetes.io/ingress.class";

/// Some 100 milliseconds of patterns, others for each `version`.
fn dear(version: usize) -> Ingress {
    let path = |number| Path {
        path: format!(r"/{version}/{number}/\p{{L}}"),
        path_type: PathType::ImplementationSpecific,
        target: Target::Service { name: "s".into(), port: Port::Number(80) },
    };
    let rules = vec![Rule { host: "a.test".into(), paths: (0..230).map(path).collect() }];
    annotated(Ingress { rules, ..Ingress::default() }, &[("x.io/use-regex", "true")])
}

fn annotated(mut ingress: Ingress, all: &[(&str, &str)]) -> Ingress {
    ingress.annotations.insert(CLASS.into(), "nginx".into());
    ingress.annotations.extend(all.iter().map(|(name, text)| ((*name).into(), (*text).into())));
    ingress
}

fn one(ingress: Ingress) -> Option<Object> {
    Some(Object::Ingress(Arc::new(ingress)))
}

fn id(namespace: &str, name: &str) -> ObjectRef {
    ObjectRef::new(Kind::Ingress, Key::new(namespace, name))
}

fn secret(fields: &[(&str, &str)]) -> Secret {
    let fields = fields.iter().map(|(name, text)| ((*name).into(), text.as_bytes().to_vec()));
    Secret { offer: Offer::WithoutPair, fields: Arc::new(Fields::new(fields.collect())) }
}

struct Bench {
    pace: Pace,
    world: World,
    translator: Translator,
    start: Instant,
}

impl Bench {
    fn new() -> Self {
        let options = Options { annotations_prefix: PREFIX.into(), ..Options::default() };
        let translator = Translator::new(options);
        Bench { pace: Pace::default(), world: World::default(), translator, start: Instant::now() }
    }

    fn at(&self, seconds: u64) -> Instant {
        self.start + Duration::from_secs(seconds)
    }

    fn prices(&self) -> Prices<'_> {
        Prices { translator: &self.translator, world: &self.world }
    }

    fn price(&self, id: &ObjectRef, object: &Object) -> u64 {
        match self.prices().is_free(id, object) {
            true => 0,
            false => {
                self.prices().of_reading(id, object).total() + self.prices().of_rest(id, object)
            }
        }
    }

    /// Takes it over whatever it costs; how long that took.
    fn apply(&mut self, seen: impl IntoIterator<Item = Seen>) -> Duration {
        let mut changed = Changed::default();
        seen.into_iter().for_each(|seen| self.world.apply(seen, &mut changed));
        let start = Instant::now();
        self.translator.update(&self.world, &changed);
        start.elapsed()
    }

    /// Takes it over without translating it.
    fn keep(&mut self, seen: impl IntoIterator<Item = Seen>) {
        seen.into_iter().for_each(|seen| self.world.apply(seen, &mut Changed::default()));
    }

    /// Whether it is taken over at once.
    fn see(&mut self, id: &ObjectRef, object: Option<Object>, seconds: u64) -> bool {
        let at = self.at(seconds);
        let prices = Prices { translator: &self.translator, world: &self.world };
        let admitted = self.pace.admit((id.clone(), object), &prices, at);
        let is_admitted = admitted.is_some();
        self.keep(admitted);
        is_admitted
    }

    /// Takes it over if it does not wait, and translates it; whether it did not.
    fn edit(&mut self, (id, object): Seen, seconds: u64) -> bool {
        let at = self.at(seconds);
        let prices = Prices { translator: &self.translator, world: &self.world };
        let admitted = self.pace.admit((id, object), &prices, at);
        let is_admitted = admitted.is_some();
        self.translate(admitted.into_iter().collect(), at);
        is_admitted
    }

    /// Takes over and translates what has waited; how many changes.
    fn catch_up(&mut self, seconds: u64) -> usize {
        let at = self.at(seconds);
        let prices = Prices { translator: &self.translator, world: &self.world };
        let due = self.pace.due(&prices, at);
        let count = due.len();
        self.translate(due, at);
        count
    }

    fn translate(&mut self, seen: Vec<Seen>, at: Instant) {
        self.apply(seen);
        self.pace.spend(self.translator.take_endpoint_work(), true, at);
    }

    /// Forgets what was read until now, as of what is there at the start.
    fn forget_work(&mut self) {
        self.translator.take_endpoint_work();
    }

    fn due(&mut self, seconds: u64) -> Vec<String> {
        let at = self.at(seconds);
        let prices = Prices { translator: &self.translator, world: &self.world };
        let due = self.pace.due(&prices, at);
        let names = due.iter().map(|(id, _)| id.key.name.to_string()).collect();
        self.keep(due);
        names
    }
}

#[test]
fn a_namespace_that_changes_much_waits_and_others_do_not() {
    let mut bench = Bench::new();
    let first = id("a", "one");
    let taken = (0..40).take_while(|version| bench.see(&first, one(dear(*version)), 0)).count();
    assert!((17..=24).contains(&taken), "{taken} in two seconds of some 100 milliseconds each");
    assert!(bench.see(&id("b", "other"), one(dear(0)), 0), "another namespace");
    assert!(!bench.see(&id("a", "two"), one(dear(1)), 0));
    assert!(bench.see(&id("a", "plain"), one(Ingress::default()), 0));
    assert_eq!(bench.pace.waiting(), 2);
    let news = bench.pace.take_news();
    let due_in = bench.pace.due_at().unwrap().duration_since(bench.start);
    assert_eq!(news, [(first.clone(), Some(due_in)), (id("a", "two"), Some(due_in))].into());
    assert!(bench.pace.take_news().is_empty());
    assert!(bench.due(0).is_empty());
    assert!(due_in > Duration::ZERO && due_in < Duration::from_secs(5), "{due_in:?}");
    // The latest form counts, and whoever came first is first.
    assert!(!bench.see(&first, one(dear(99)), 0));
    let due: Vec<_> = (1..20).flat_map(|second| bench.due(second)).collect();
    assert_eq!(due, ["one", "two"]);
    assert!(bench.world.ingresses[&first.key].rules[0].paths[0].path.starts_with("/99/"));
    assert_eq!((bench.pace.waiting(), bench.pace.delayed()), (0, 2));
    assert_eq!(bench.pace.due_at(), None);
    let news = [(first, None), (id("a", "two"), None)];
    assert_eq!(bench.pace.take_news(), news.into());
}

#[test]
fn expressions_of_a_route_are_charged_unless_it_had_them() {
    let route = |version: usize| {
        let value = |number| {
            let regex = Some("RegularExpression".into());
            let value = format!("{version}{number}\\p{{L}}");
            HttpValueMatch { r#type: regex, name: "x".into(), value }
        };
        let headers = (0..300).map(value).collect();
        let one = HttpRouteMatch { headers, ..HttpRouteMatch::default() };
        let rule = HttpRouteRule { matches: vec![one], ..HttpRouteRule::default() };
        let parent = ParentRef { name: "g".into(), ..ParentRef::default() };
        let spec = HttpRouteSpec {
            parent_refs: vec![parent],
            rules: vec![rule],
            ..HttpRouteSpec::default()
        };
        Object::Route(Arc::new(Resource { spec, ..Resource::default() }))
    };
    let mut bench = Bench::new();
    let id = ObjectRef::new(Kind::HTTPRoute, Key::new("a", "one"));
    assert_eq!(bench.price(&id, &route(0)), 0, "none of its parents is a Gateway of ours");
    bench.apply(gateway("a"));
    let taken = (0..60).take_while(|version| bench.see(&id, Some(route(*version)), 0)).count();
    assert!((10..50).contains(&taken), "{taken}");
    assert_eq!(bench.price(&id, &route(taken - 1)), 0, "the same again");
}

/// The Gateway `g` of a namespace, and its class.
fn gateway(namespace: &str) -> [Seen; 2] {
    let class = GatewayClassSpec { controller_name: CONTROLLER.into(), ..Default::default() };
    let class = Object::GatewayClass(Arc::new(Resource { spec: class, ..Resource::default() }));
    [
        (ObjectRef::new(Kind::GatewayClass, Key::new("", "c")), Some(class)),
        (ObjectRef::new(Kind::Gateway, Key::new(namespace, "g")), Some(listeners(1))),
    ]
}

fn listeners(count: usize) -> Object {
    let listeners = vec![Listener::default(); count];
    let spec = GatewaySpec { gateway_class_name: "c".into(), listeners, ..Default::default() };
    Object::Gateway(Arc::new(Resource { spec, ..Resource::default() }))
}

#[test]
fn rules_of_routes_and_listeners_of_gateways_are_charged() {
    let route = |rules: usize, name: &str| {
        let parent = ParentRef { name: name.into(), ..ParentRef::default() };
        let rules = vec![HttpRouteRule::default(); rules];
        let spec = HttpRouteSpec { parent_refs: vec![parent], rules, ..HttpRouteSpec::default() };
        Object::Route(Arc::new(Resource { spec, ..Resource::default() }))
    };
    let mut bench = Bench::new();
    bench.apply(gateway("a"));
    let id = ObjectRef::new(Kind::HTTPRoute, Key::new("a", "one"));
    assert!(bench.price(&id, &route(1_000, "g")) > 500 * bench.price(&id, &route(1, "g")) / 10);
    assert_eq!(bench.price(&id, &route(1_000, "other")), 0, "another controller's");
    let id = ObjectRef::new(Kind::Gateway, Key::new("a", "h"));
    assert!(bench.price(&id, &listeners(60)) > 1_000_000);
    let edits = (0..100_000).take_while(|count| {
        let route = route(count % 2 + 100, "g");
        let id = ObjectRef::new(Kind::HTTPRoute, Key::new("a", "edited"));
        bench.see(&id, Some(route), 0)
    });
    let edits = edits.count();
    assert!((100..2_000).contains(&edits), "{edits} edits of a hundred rules in a minute");
    let id = ObjectRef::new(Kind::HTTPRoute, Key::new("b", "one"));
    assert!(bench.see(&id, Some(route(100, "g")), 0), "another namespace");
}

#[test]
fn a_removal_and_what_costs_nothing_never_wait_and_take_what_waits_with_them() {
    let mut bench = Bench::new();
    let first = id("a", "one");
    for nothing in [None, one(Ingress::default())] {
        let mut version = 0;
        while bench.see(&first, one(dear(version)), 0) {
            version += 1;
            assert!(bench.see(&first, None, 0));
        }
        assert_eq!((bench.pace.waiting(), bench.pace.take_news().len()), (1, 1));
        assert!(bench.see(&first, nothing, 0));
        assert_eq!(bench.pace.take_news(), [(first.clone(), None)].into());
        assert!(bench.pace.due_at().is_none() && bench.due(600).is_empty());
    }
    // What cannot be paid before is not even asked about before.
    assert!(!bench.see(&first, one(dear(0)), 0));
    assert!(bench.pace.due_at().unwrap() > bench.start);
    assert_eq!(bench.due(60), ["one"]);
}

#[test]
fn what_waits_in_many_namespaces_is_looked_at_when_it_is_due() {
    let mut bench = Bench::new();
    let large = "-----BEGIN X\n".repeat(8_000);
    for number in 0..40 {
        let namespace = format!("n{number}");
        let object = |text: &str| Some(Object::Secret(secret(&[("ca.crt", text)])));
        let id = |name| ObjectRef::new(Kind::Secret, Key::new(&namespace, name));
        assert!(bench.see(&id("first"), object(&large), number), "one second of two");
        assert!(bench.see(&id("second"), object(&large), number));
        assert!(!bench.see(&id("third"), object(&large.replace("X", "Y")), number));
    }
    assert_eq!(bench.pace.by_time.len(), 40);
    let due = bench.due(31);
    assert_eq!(due.len(), 2, "the first namespaces, half a minute later: {due:?}");
    assert_eq!(bench.pace.take_news().len(), 40);
    assert_eq!(bench.due(32).len(), 1);
    assert_eq!(bench.pace.take_news().len(), 1, "news are of what has changed");
    assert_eq!(bench.pace.waiting(), 37);
}

#[test]
fn what_was_compiled_before_costs_its_reading_only() {
    let mut bench = Bench::new();
    let first = id("a", "one");
    bench.apply([(first.clone(), one(dear(0)))]);
    let price = |bench: &Bench, ingress| bench.price(&first, &one(ingress).unwrap());
    assert_eq!(price(&bench, dear(0)), 0, "the same again");
    let same = annotated(dear(0), &[("x.io/app-root", "/x")]);
    let (again, new) = (price(&bench, same), price(&bench, dear(1)));
    assert!(0 < again && again < new / 3, "{again} {new}");
    // Whatever made the translator forget its patterns, they are compiled and charged anew.
    for forgets in [("x.io/use-regex", "false"), (CLASS, "other")] {
        bench.apply([(first.clone(), one(annotated(dear(0), &[forgets])))]);
        let anew = price(&bench, dear(0));
        assert!(anew > new * 9 / 10, "{forgets:?}: {anew} of {new}");
        bench.apply([(first.clone(), one(dear(0)))]);
    }
    assert_eq!(price(&bench, annotated(dear(2), &[(CLASS, "other")])), 0, "somebody else's");
    let without = price(&bench, annotated(dear(2), &[("x.io/use-regex", "false")]));
    assert!(without > new / 2, "an annotation that may mean patterns counts");
    let mut plain = dear(2);
    plain.annotations.remove("x.io/use-regex");
    assert!(price(&bench, plain) < new / 10, "nothing is compiled");
}

#[test]
fn certificates_of_a_secret_are_charged_when_they_change() {
    let secret = |count: usize, password: &str| {
        let text = "-----BEGIN CERTIFICATE-----\n".repeat(count);
        secret(&[("ca.crt", text.as_str()), ("auth", password)])
    };
    assert_eq!(price_of_lists(None, &secret(200, "")), 25_000_000);
    assert_eq!(price_of_lists(Some(&secret(200, "a")), &secret(200, "b")), 0);
    assert_eq!(price_of_lists(Some(&secret(199, "")), &secret(200, "")), 25_000_000);
}

/// So many Ingresses of namespace `a` that name one object of each kind.
fn readers(count: usize) -> impl Iterator<Item = Seen> {
    let basic = [
        ("x.io/auth-type", "basic"),
        ("x.io/auth-secret", "users"),
        ("x.io/custom-headers", "headers"),
        ("x.io/default-backend", "errors"),
    ];
    (0..count).map(move |number| {
        let path = |path: String| Path {
            path,
            path_type: PathType::Prefix,
            target: Target::Service { name: "s".into(), port: Port::Number(80) },
        };
        let paths = (0..10).map(|n| path(format!("/{n}"))).collect();
        let rules = vec![Rule { host: format!("h{number}.test"), paths }];
        let ingress = annotated(Ingress { rules, ..Ingress::default() }, &basic);
        (id("a", &format!("i{number}")), one(ingress))
    })
}

fn users(bytes: usize, first: &str) -> (ObjectRef, Option<Object>) {
    let text = format!("{first}:$apr1$x$y\n{}", "# \n".repeat(bytes / 3));
    let id = ObjectRef::new(Kind::Secret, Key::new("a", "users"));
    (id, Some(Object::Secret(secret(&[("auth", &text)]))))
}

fn headers(value: &str) -> (ObjectRef, Option<Object>) {
    let data = [("X-One".to_owned(), value.to_owned())].into();
    let id = ObjectRef::new(Kind::ConfigMap, Key::new("a", "headers"));
    (id, Some(Object::ConfigMap(Arc::new(ConfigMap { data }))))
}

fn service(number: u16) -> (ObjectRef, Option<Object>) {
    let text = format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{ name: errors, namespace: a }}\nspec: {{ ports: [{{ port: {number} }}] }}\n"
    );
    let found = document::read(&text, false).remove(0).found.unwrap();
    let Some(Found::Object(id, object)) = found.into_iter().next() else { panic!("a Service") };
    (id, Some(object))
}

#[test]
fn an_object_that_many_ingresses_name_costs_what_reading_them_costs() {
    let mut bench = Bench::new();
    for (id, object) in [users(0, "a"), headers("a"), service(80)] {
        assert_eq!(bench.price(&id, &object.unwrap()), 0, "{id}: nobody names it");
    }
    bench.apply(readers(1_000).chain([users(0, "a"), headers("a"), service(80)]));
    for (id, object) in [users(0, "b"), headers("b"), service(81)] {
        let price = bench.price(&id, object.as_ref().unwrap());
        assert!((150_000_000..190_000_000).contains(&price), "{id}: {price}");
        assert!(bench.see(&id, object, 0));
    }
    let (large, text) = users(1_000_000, "c");
    assert!(bench.price(&large, text.as_ref().unwrap()) > 4_000_000_000, "copied for each");
    // Until the namespace has no share left.
    let edits = (0..100).take_while(|n| {
        let (id, object) = users(0, &format!("u{n}"));
        bench.see(&id, object, 0)
    });
    assert!((8..13).contains(&edits.count()));
    let slice = Object::EndpointSlice(Arc::default());
    let id = ObjectRef::new(Kind::EndpointSlice, Key::new("a", "errors-1"));
    assert!(bench.see(&id, Some(slice), 0), "endpoints never wait");
    assert!(bench.see(&self::id("b", "other"), one(dear(0)), 0));
}

#[test]
fn the_operator_s_objects_never_wait() {
    let mut bench = Bench::new();
    bench.translator.options.configmap = Some(Key::new("a", "headers"));
    bench.translator.options.default_ssl_certificate = Some(Key::new("a", "users"));
    bench.apply(readers(10).chain([users(0, "a"), headers("a")]));
    for (id, object) in [users(1_000_000, "b"), headers("b")] {
        assert_eq!(bench.price(&id, &object.unwrap()), 0, "{id}");
    }
}

/// A change of endpoints reads no Ingress again that names their Service.
#[test]
fn endpoints_cost_no_reading() {
    let mut bench = Bench::new();
    bench.apply(readers(10).chain([service(80)]));
    let mut changed = Changed::default();
    changed.services.insert(Key::new("a", "errors"));
    assert!(bench.translator.touched_by(&bench.world, &changed).is_empty());
    changed.service_specs.insert(Key::new("a", "errors"));
    assert_eq!(bench.translator.touched_by(&bench.world, &changed).len(), 10);
}

/// An Ingress of `namespace` on one host, with so many plain paths below `/prefix`.
fn plain(namespace: &str, name: &str, prefix: &str, paths: usize) -> Seen {
    let path = |number| Path {
        path: format!("/{prefix}/{number}"),
        path_type: PathType::Prefix,
        target: Target::Service { name: "s".into(), port: Port::Number(80) },
    };
    let rules = vec![Rule { host: "large.test".into(), paths: (0..paths).map(path).collect() }];
    (id(namespace, name), one(annotated(Ingress { rules, ..Ingress::default() }, &[])))
}

#[test]
fn plain_paths_cost_too_and_those_that_others_have_on_the_same_host() {
    let mut bench = Bench::new();
    let small = |prefix: &str| plain("b", "small", prefix, 1);
    let price = |bench: &Bench, (id, object): Seen| bench.price(&id, &object.unwrap());
    let alone = price(&bench, small("x"));
    assert!((50_000..150_000).contains(&alone), "{alone}");
    bench.apply([plain("a", "large", "x", 5_000)]);
    let large = price(&bench, plain("a", "large", "y", 5_000));
    assert!(large > 24_000_000, "{large}: all of its paths are read and merged again");
    let beside = price(&bench, small("x"));
    assert!(beside > alone + 19_000_000, "{beside}: the host is merged with all its rules");
    let edits = (0..300).take_while(|n| {
        let (id, object) = plain("a", "large", &n.to_string(), 5_000);
        bench.see(&id, object, 0)
    });
    let count = edits.count();
    assert!((60..90).contains(&count), "{count}");
    let (id, object) = plain("c", "other", "x", 1);
    assert!(bench.see(&id, object, 0), "another namespace");
}

#[test]
fn a_server_snippet_costs_its_bytes_for_each_ingress_of_the_host() {
    let mut bench = Bench::new();
    let named = |number: usize| plain("a", &format!("i{number}"), &number.to_string(), 1);
    bench.apply((1..100).map(named));
    let (id, object) = plain("a", "small", "x", 1);
    let object = object.unwrap();
    let before = bench.price(&id, &object);
    let Some(Object::Ingress(ingress)) = named(0).1 else { panic!("an Ingress") };
    let text = "add_header A b;\n".repeat(1_000);
    let first = annotated((*ingress).clone(), &[("x.io/server-snippet", &text)]);
    let own = bench.price(&named(0).0, one(first.clone()).as_ref().unwrap());
    bench.apply([(named(0).0, one(first))]);
    let after = bench.price(&id, &object);
    let copied = 16_000 * 100 * 10;
    assert!(after >= before + copied, "{after}: {before} and 16,000 bytes a hundred times");
    assert!(own >= copied, "{own}: whoever writes it pays it too");
}

/// Prints what reading takes beside what is charged: `cargo test --release -- --ignored --nocapture`.
#[test]
#[ignore = "measures"]
fn what_is_charged_is_what_it_takes() {
    let mut bench = Bench::new();
    bench.apply(readers(1_000).chain([users(0, "a"), headers("a"), service(80)]));
    for (id, object) in [users(0, "b"), users(100_000, "c"), headers("b"), service(81)] {
        let price = bench.price(&id, object.as_ref().unwrap());
        let took = bench.apply([(id.clone(), object)]);
        println!("{id}: charged {:?}, took {took:?}", Duration::from_nanos(price));
    }
    for (what, (id, object)) in [
        ("new", plain("a", "large", "x", 10_000)),
        ("all paths", plain("a", "large", "y", 10_000)),
        ("a guest", plain("b", "guest", "x", 1)),
        ("one path beside", plain("b", "guest", "y", 1)),
        ("a small one", plain("c", "small", "z", 1)),
    ] {
        let price = bench.price(&id, object.as_ref().unwrap());
        let took = bench.apply([(id, object)]);
        println!("{what}: charged {:?}, took {took:?}", Duration::from_nanos(price));
    }
}

#[test]
fn what_building_everything_takes_is_its_namespace_s_debt() {
    let mut bench = Bench::new();
    let at = bench.at(0);
    bench.pace.spend_build(BTreeMap::from([("a".into(), OF_NAMESPACE.full)]), false, at);
    assert!(bench.see(&id("a", "one"), one(dear(0)), 0), "at the start nobody pays");
    bench.pace.spend_build(BTreeMap::from([("a".into(), OF_NAMESPACE.full)]), true, at);
    assert!(!bench.see(&id("a", "two"), one(dear(0)), 0));
    assert!(bench.see(&id("b", "other"), one(dear(0)), 0), "another namespace");
}
