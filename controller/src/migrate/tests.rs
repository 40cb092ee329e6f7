use super::*;
use oxigress_objects::document::{self, Found};
use oxigress_objects::{Changed, Kind};
use oxigress_translate::{HostOwnership, Options};

/// The objects and the notes of manifests.
fn migrated(manifests: &str) -> (String, Vec<String>, Vec<String>) {
    migrated_as(manifests, HostOwnership::Settings)
}

fn migrated_as(
    manifests: &str,
    host_ownership: HostOwnership,
) -> (String, Vec<String>, Vec<String>) {
    let (mut world, mut changed) = (World::default(), Changed::default());
    for document in document::read(manifests, false) {
        for found in document.found.unwrap() {
            let Found::Object(id, object) = found else { panic!("{found:?}") };
            world.apply((id, Some(object)), &mut changed);
        }
    }
    let options =
        Options { watch_ingress_without_class: true, host_ownership, ..Options::default() };
    let mut translator = Translator::new(options.clone());
    translator.update(&world, &world.all());
    let mut notes = Notes::default();
    let served = Served::of(&mut translator, &mut notes);
    let names = plan::Names {
        gateway: "web".into(),
        controller: oxigress_objects::gateway::CONTROLLER.into(),
        prefix: options.annotations_prefix,
    };
    let yaml = migrate(&world, &Settings::default(), &served, &names, &mut notes).unwrap();
    (yaml, notes.lost, notes.different)
}

fn ingress(name: &str, annotations: &str, spec: &str) -> String {
    let annotations: String = annotations
        .split(", ")
        .filter(|one| !one.is_empty())
        .map(|one| format!("    nginx.ingress.kubernetes.io/{one}\n"))
        .collect();
    format!(
        "---\napiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata:\n  name: {name}\n  namespace: shop\n  \
         annotations:\n    x: y\n{annotations}spec: {spec}\n"
    )
    .replace("    x: y\n", "")
    .replace("  annotations:\nspec", "spec")
}

fn path(host: &str, path: &str, service: &str) -> String {
    format!(
        "{{ rules: [{{ host: {host}, http: {{ paths: [{{ path: '{path}', pathType: Prefix, \
         backend: {{ service: {{ name: {service}, port: {{ number: 80 }} }} }} }}] }} }}] }}"
    )
}

#[test]
fn what_no_route_says_leaves_the_ingress_out_and_is_told() {
    let (yaml, lost, _) =
        migrated(&ingress("a", "auth-tls-secret: shop/ca", &path("a.test", "/", "s")));
    assert!(!yaml.contains("HTTPRoute"), "{yaml}");
    assert!(lost.iter().any(|line| line.contains("left out as a whole")), "{lost:?}");
}

#[test]
fn a_beginning_that_is_taken_away_is_a_url_rewrite_and_other_expressions_are_told() {
    let annotations = "use-regex: 'true', rewrite-target: /$2";
    let (yaml, lost, different) =
        migrated(&ingress("a", annotations, &path("a.test", "/api(/|$)(.*)", "s")));
    assert!(yaml.contains("ReplacePrefixMatch") && yaml.contains("value: /api\n"), "{yaml}");
    assert!(lost.is_empty() && different.len() == 1, "{lost:?} {different:?}");
    let (yaml, lost, _) =
        migrated(&ingress("a", annotations, &path("a.test", "/v[0-9]+/(.*)", "s")));
    assert!(!yaml.contains("HTTPRoute") && lost.len() == 1, "{yaml} {lost:?}");
}

#[test]
fn the_rest_is_a_policy_whose_booleans_are_booleans() {
    let annotations = "enable-cors: 'true', limit-rps: '5', colour: red";
    let (yaml, lost, _) = migrated(&ingress("a", annotations, &path("a.test", "/", "s")));
    assert!(yaml.contains("kind: Policy") && yaml.contains("enable-cors: true"), "{yaml}");
    assert!(yaml.contains("ExtensionRef"), "{yaml}");
    assert_eq!(lost, ["Ingress shop/a: annotation colour: it is unknown"]);
}

#[test]
fn rules_without_a_host_are_a_route_of_their_own() {
    let one = |host: &str| {
        format!(
            "{{ host: {host}, http: {{ paths: [{{ path: /, pathType: Prefix, backend: {{ service: {{ name: s, port: {{ number: 80 }} }} }} }}] }} }}"
        )
    };
    let spec = format!("{{ rules: [{}, {}, {}] }}", one("''"), one("a.test"), one("b.test"));
    let (yaml, lost, _) = migrated(&ingress("a", "", &spec));
    assert_eq!(yaml.matches("kind: HTTPRoute").count(), 2, "{yaml}");
    assert_eq!(yaml.matches("hostnames:").count(), 1, "{yaml}");
    assert!(lost.is_empty(), "{lost:?}");
}

#[test]
fn a_canary_is_a_share_and_headers_are_matches() {
    let canary = "canary: 'true', canary-weight: '30', canary-by-header: X-New";
    let manifests = [
        ingress("a", "", &path("a.test", "/", "s")),
        ingress("b", canary, &path("a.test", "/", "t")),
    ];
    let (yaml, lost, _) = migrated(&manifests.concat());
    assert!(yaml.contains("weight: 70") && yaml.contains("weight: 30"), "{yaml}");
    assert!(yaml.contains("value: always") && yaml.contains("value: never"), "{yaml}");
    assert!(lost.is_empty(), "{lost:?}");
    let (_, lost, _) = migrated(&ingress("b", canary, &path("a.test", "/", "t")));
    assert!(lost.iter().any(|line| line.contains("no main Ingress")), "{lost:?}");
}

#[test]
fn a_canary_s_cookie_may_have_any_name_and_notes_stay_one_line_each() {
    let main = ingress("a", "", &path("a.test", "/", "s"));
    let annotations = "canary: 'true', canary-by-cookie: a^b-c";
    let canary = ingress("b", annotations, &path("a.test", "/", "t"));
    let (yaml, ..) = migrated(&format!("{main}{canary}"));
    assert!(yaml.contains(r"a\^b[-]c=always"), "{yaml}");
    let notes = Notes { lost: vec!["a\nb\u{1b}[2J".to_owned()], ..Notes::default() };
    assert_eq!(notes.text(), "not said: a\\nb\\u{1b}[2J\n");
}

/// A manifest of another namespace, with the year in which it was created.
fn of(manifest: &str, namespace: &str, year: u16) -> String {
    let metadata = format!("namespace: {namespace}\n  creationTimestamp: '{year}-01-01T00:00:00Z'");
    manifest.replace("namespace: shop", &metadata)
}

/// The documents of a kind, in their order.
fn documents<'y>(yaml: &'y str, kind: &str) -> Vec<&'y str> {
    let kind = format!("kind: {kind}\n");
    yaml.split("---\n").filter(|document| document.contains(&kind)).collect()
}

fn has(lines: &[String], words: &[&str]) -> bool {
    lines.iter().any(|line| words.iter().all(|word| line.contains(word)))
}

fn with_tls(spec: &str, hosts: &str, secret: &str) -> String {
    let tls = format!("{{ tls: [{{ hosts: [{hosts}], secretName: {secret} }}], rules");
    spec.replacen("{ rules", &tls, 1)
}

#[test]
fn what_only_the_owner_of_a_host_may_say_is_not_said_for_others() {
    let own = of(&ingress("a", "", &path("shop.test", "/", "s")), "shop", 2020);
    let said = "app-root: /evil.test, from-to-www-redirect: 'true', server-alias: alias.test";
    let evil = of(&ingress("b", said, &path("shop.test", "/e", "s")), "evil", 2026);
    let (yaml, lost, _) = migrated(&[own, evil].concat());
    assert!(!yaml.contains("evil.test"), "{yaml}");
    assert!(!yaml.contains("www.shop.test") && !yaml.contains("alias.test"), "{yaml}");
    for name in ["app-root", "from-to-www-redirect", "server-alias"] {
        assert!(has(&lost, &["evil/b", name, "belongs to namespace shop"]), "{lost:?}");
    }
}

#[test]
fn a_certificate_is_that_of_the_owner_s_ingresses() {
    let own = of(&ingress("a", "", &path("shop.test", "/", "s")), "shop", 2020);
    let tls = with_tls(&path("shop.test", "/t", "s"), "shop.test, '*.test'", "evil-tls");
    let evil = of(&ingress("b", "", &tls), "evil", 2026);
    let (yaml, lost, _) = migrated(&[own, evil].concat());
    assert!(!yaml.contains("evil-tls") && !yaml.contains("RequestRedirect"), "{yaml}");
    assert!(has(&lost, &["evil/b", "spec.tls[0]", "belongs to namespace shop"]), "{lost:?}");
    // A star that nobody else has is no listener for the names of others either.
    let own = with_tls(&path("a.test", "/", "s"), "'*.test'", "tls");
    let (yaml, lost, _) = migrated(&ingress("a", "", &own));
    assert!(yaml.contains("hostname: a.test") && !yaml.contains("*.test"), "{yaml}");
    assert!(lost.is_empty(), "{lost:?}");
}

#[test]
fn a_path_that_lost_or_was_refused_is_not_printed() {
    let own = of(&ingress("a", "", &path("shop.test", "/", "s")), "shop", 2020);
    let lost_path = of(&ingress("b", "", &path("shop.test", "/", "x")), "evil", 2026);
    let refused = path("shop.test", "/.well-known/acme-challenge", "y");
    let refused = of(&ingress("c", "", &refused), "evil", 2026);
    let root = "{ defaultBackend: { service: { name: z, port: { number: 80 } } }, rules";
    let root = path("shop.test", "/z", "s").replacen("{ rules", root, 1);
    let root = of(&ingress("d", "", &root), "evil", 2026);
    let (yaml, lost, _) = migrated(&[own, lost_path, refused, root].concat());
    for service in ["x", "y", "z"] {
        assert!(!yaml.contains(&format!("name: {service}\n")), "{service}: {yaml}");
    }
    assert_eq!(documents(&yaml, "HTTPRoute").len(), 2, "{yaml}");
    let field = "spec.rules[0].http.paths[0]";
    assert!(has(&lost, &["evil/b", field, "served by Ingress shop/a"]), "{lost:?}");
    assert!(has(&lost, &["evil/c", field, "belongs to namespace shop"]), "{lost:?}");
    assert!(has(&lost, &["evil/d", "spec.defaultBackend"]), "{lost:?}");
}

#[test]
fn guests_attach_to_the_gateway_of_the_owner_and_come_after_its_routes() {
    let own = with_tls(&path("pay.test", "/", "s"), "pay.test", "pay-tls");
    let own = of(&ingress("a", "", &own), "victim", 2020);
    let guest = of(&ingress("b", "", &path("pay.test", "/e", "s")), "evil", 2026);
    let (yaml, lost, _) = migrated(&[guest, own].concat());
    assert!(!yaml.contains("ReferenceGrant"), "{yaml}");
    let gateways = documents(&yaml, "Gateway");
    assert!(gateways.len() == 1 && gateways[0].contains("namespace: victim"), "{yaml}");
    assert_eq!(gateways[0].matches("kubernetes.io/metadata.name").count(), 2, "{yaml}");
    let routes = documents(&yaml, "HTTPRoute");
    let of_guest = |route: &&str| route.contains("namespace: evil");
    let first_guest = routes.iter().position(of_guest).unwrap();
    assert!(first_guest > 0 && routes[first_guest..].iter().all(of_guest), "{yaml}");
    assert!(routes[first_guest..].iter().all(|route| route.contains("namespace: victim")));
    assert!(lost.is_empty(), "{lost:?}");
}

/// What the objects come to where those below the comment were created later.
fn served_later(yaml: &str) -> Translator {
    let (owners, guests) = yaml.split_once("---\n# Routes of other").unwrap();
    let at = |part: &str, second: u8| {
        let time = format!("metadata:\n  creationTimestamp: '2030-01-01T00:00:0{second}Z'\n");
        part.replace("metadata:\n", &time)
    };
    let all = format!("{}---\n# {}", at(owners, 0), at(guests, 1));
    let (mut world, mut changed) = (World::default(), Changed::default());
    for document in document::read(&all, false) {
        for found in document.found.unwrap() {
            let Found::Object(id, object) = found else { panic!("{found:?}") };
            world.apply((id, Some(object)), &mut changed);
        }
    }
    let mut translator = Translator::new(Options::default());
    translator.update(&world, &world.all());
    translator
}

#[test]
fn what_is_printed_has_the_same_owner_and_both_namespaces_are_served() {
    let own = with_tls(&path("pay.test", "/", "s"), "pay.test", "pay-tls");
    let own = ingress("a", "ssl-redirect: 'false'", &own);
    let guest = of(&ingress("b", "", &path("pay.test", "/e", "s")), "evil", 2026);
    let (yaml, ..) = migrated(&[guest, of(&own, "victim", 2020)].concat());
    let translator = served_later(&yaml);
    let (snapshot, name) = (translator.snapshot(), HostPattern::parse("pay.test").unwrap());
    // Without the Secret nothing is served over TLS.
    let all = snapshot.listener_servers.iter();
    let all = all.filter(|(at, server)| at.host == name && !server.rules.is_empty());
    let all: Vec<_> = all.collect();
    assert!(!all.is_empty(), "{yaml}");
    for (at, server) in all {
        let (owner, _) = translator.owner_at(at).unwrap();
        assert_eq!(owner.namespace.as_str(), "victim", "{at}");
        let has = |by: &str| server.rules.iter().any(|rule| rule.origin.namespace == by);
        assert!(has("victim") && has("evil"), "{at}: {:?}", server.rules);
    }
    // There are no Services; else nothing is said of the routes.
    let mut notes = translator.notes().filter(|(id, _)| id.kind == Kind::HTTPRoute);
    let other = notes.find(|(_, note)| !note.message.contains("BackendNotFound"));
    assert!(other.is_none(), "{other:?}");
}

#[test]
fn a_host_of_which_no_route_of_the_owner_is_printed_does_not_become_a_guest_s() {
    let regex = "use-regex: 'true'";
    let own = of(&ingress("a", regex, &path("shop.test", "/v[0-9]+/x", "s")), "shop", 2020);
    let guest = of(&ingress("b", "", &path("shop.test", "/e", "s")), "evil", 2026);
    let (yaml, lost, _) = migrated(&[own, guest].concat());
    assert!(!yaml.contains("HTTPRoute"), "{yaml}");
    assert!(has(&lost, &["evil/b", "no route of namespace shop"]), "{lost:?}");
}

#[test]
fn who_may_say_what_is_as_host_ownership_has_it() {
    let own = of(&ingress("a", "", &path("shop.test", "/", "s")), "shop", 2020);
    let guest = ingress("b", "app-root: /home", &path("shop.test", "/e", "s"));
    let all = [own, of(&guest, "guest", 2026)].concat();
    let (yaml, lost, _) = migrated_as(&all, HostOwnership::Shared);
    assert!(yaml.contains("temporal-redirect: /home") && yaml.contains("value: /e"), "{yaml}");
    assert!(lost.is_empty(), "{lost:?}");
    // Not even the owner's, where translation refuses it.
    let url = ingress("a", "app-root: https://b.test/x", &path("shop.test", "/", "s"));
    let (yaml, lost, _) = migrated(&url);
    assert!(!yaml.contains("b.test") && has(&lost, &["app-root"]), "{yaml}");
    let (yaml, lost, _) = migrated_as(&all, HostOwnership::Strict);
    assert!(!yaml.contains("temporal-redirect: /home") && !yaml.contains("value: /e"), "{yaml}");
    assert!(has(&lost, &["guest/b", "paths[0]", "belongs to namespace shop"]), "{lost:?}");
}

#[test]
fn a_wildcard_s_certificate_is_shown_below_it_unless_it_is_younger_and_another_namespace_s() {
    let tls = with_tls(&path("'*.test'", "/", "w"), "'*.test'", "star-tls");
    let star = |year: u16| of(&ingress("w", "", &tls), "infra", year);
    let below = of(&ingress("a", "", &path("app.test", "/a", "s")), "shop", 2022);
    let (yaml, lost, different) = migrated(&[star(2020), below.clone()].concat());
    let routes = documents(&yaml, "HTTPRoute");
    let of_shop = routes.iter().filter(|route| route.contains("name: a-2\n"));
    assert!(of_shop.clone().count() == 1, "{yaml}");
    assert!(of_shop.clone().all(|route| route.contains("namespace: infra")), "{yaml}");
    assert!(lost.is_empty(), "{lost:?}");
    assert!(has(&different, &["shop/a", "app.test has no path /", "namespace infra"]));
    let (yaml, ..) = migrated(&[star(2024), below].concat());
    let routes = documents(&yaml, "HTTPRoute");
    let mut of_shop = routes.iter().filter(|route| route.contains("namespace: shop"));
    assert!(of_shop.all(|route| !route.contains("https") && !route.contains("infra")), "{yaml}");
}

#[test]
fn a_host_that_a_left_out_ingress_protects_is_left_out() {
    let own = ingress("a", "auth-tls-secret: shop/ca", &path("a.test", "/", "s"));
    let other = ingress("b", "", &path("a.test", "/b", "s"));
    let (yaml, lost, _) = migrated(&[own, other].concat());
    assert!(!yaml.contains("HTTPRoute"), "{yaml}");
    assert!(has(&lost, &["shop/b", "a.test"]), "{lost:?}");
}

#[test]
fn aliases_are_those_that_are_served_and_are_copied_once() {
    let aliases = |count: usize| {
        let names: Vec<_> = (0..count).map(|n| format!("alias-{n}.test")).collect();
        names.join(",")
    };
    let rules: Vec<_> = (0..200)
        .map(|n| format!(
            "{{ host: h{n}.test, http: {{ paths: [{{ path: /, pathType: Prefix, backend: {{ service: {{ name: s, port: {{ number: 80 }} }} }} }}] }} }}"
        ))
        .collect();
    let spec = format!("{{ rules: [{}] }}", rules.join(", "));
    plan::COPIES.set(0);
    let (yaml, lost, _) =
        migrated(&ingress("a", &format!("server-alias: '{}'", aliases(60)), &spec));
    assert_eq!(yaml.matches("- alias-").count(), 60, "{lost:?}");
    assert_eq!(plan::COPIES.get(), 60);
    let many =
        ingress("a", &format!("server-alias: '{}'", aliases(100)), &path("a.test", "/", "s"));
    let (yaml, lost, _) = migrated(&many);
    assert!(!yaml.contains("- alias-"), "{yaml}");
    assert!(has(&lost, &["server-alias", "100 of 100"]), "{lost:?}");
}
