use super::*;
use oxigress_objects::Changed;
use oxigress_objects::document::{self, Found};
use oxigress_translate::Options;

/// The objects and the notes of manifests.
fn migrated(manifests: &str) -> (String, Vec<String>, Vec<String>) {
    let (mut world, mut changed) = (World::default(), Changed::default());
    for document in document::read(manifests, false) {
        for found in document.found.unwrap() {
            let Found::Object(id, object) = found else { panic!("{found:?}") };
            world.apply((id, Some(object)), &mut changed);
        }
    }
    let options = Options { watch_ingress_without_class: true, ..Options::default() };
    let mut translator = Translator::new(options.clone());
    translator.update(&world, &world.all());
    let mut notes = Notes::default();
    let served = served(&mut translator, &mut notes);
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
fn a_host_with_another_namespace_s_certificate_needs_a_grant() {
    let spec = path("a.test", "/", "s").replacen(
        "{ rules",
        "{ tls: [{ hosts: [a.test], secretName: t }], rules",
        1,
    );
    let guest =
        ingress("b", "ssl-redirect: 'false'", &path("a.test", "/b", "s")).replace("shop", "other");
    let (yaml, lost, different) = migrated(&[ingress("a", "", &spec), guest].concat());
    assert!(yaml.contains("kind: ReferenceGrant") && yaml.contains("RequestRedirect"), "{yaml}");
    assert!(lost.is_empty() && different.len() == 1, "{lost:?} {different:?}");
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
    let notes = Notes { lost: vec!["a\nb\u{1b}[2J".to_owned()], different: Vec::new() };
    assert_eq!(notes.text(), "not said: a\\nb\\u{1b}[2J\n");
}
