use super::*;
use crate::Translator;
use oxigress_objects::ingress::{self, Ingress, PathType, Port, Target};
use oxigress_objects::{Changed, Object, World};

fn ingress(created: i64, paths: usize, aliases: usize) -> Object {
    let service = Target::Service { name: "web".into(), port: Port::Number(80) };
    let path = |number| ingress::Path {
        path: format!("/{created}/{number}"),
        path_type: PathType::Prefix,
        target: service.clone(),
    };
    let aliases: Vec<_> = (0..aliases).map(|number| format!("alias-{number}.test")).collect();
    let alias = ("nginx.ingress.kubernetes.io/server-alias".to_owned(), aliases.join(","));
    let paths = (0..paths).map(path).collect();
    Object::Ingress(Arc::new(Ingress {
        created,
        annotations: [alias].into(),
        class: None,
        default_backend: None,
        rules: vec![ingress::Rule { host: "shop.test".into(), paths }],
        tls: Vec::new(),
    }))
}

/// Paths of a namespace that are served.
fn served(ingresses: &[(&str, usize, usize)], namespace: &str) -> usize {
    let translator = translated(ingresses);
    let servers = translator.snapshot().servers.values();
    let rules = servers.flat_map(|server| &server.rules);
    let is_its = |rule: &&Rule| rule.origin.namespace == namespace && rule.path != root();
    rules.filter(is_its).count()
}

/// Rules that are served, and paths that were looked at for them.
fn cost(ingresses: &[(&str, usize, usize)]) -> (usize, usize) {
    WORK.set(0);
    let translator = translated(ingresses);
    let servers = translator.snapshot().servers.values();
    (servers.map(|server| server.rules.len()).sum(), WORK.get())
}

fn translated(ingresses: &[(&str, usize, usize)]) -> Translator {
    let (mut world, mut changed) = (World::default(), Changed::default());
    for (created, (namespace, paths, aliases)) in ingresses.iter().enumerate() {
        let id = ObjectRef::new(Kind::Ingress, Key::new(*namespace, "web"));
        let object = ingress(created as i64, *paths, *aliases);
        world.apply((id, Some(object)), &mut changed);
    }
    let options = Options { watch_ingress_without_class: true, ..Options::default() };
    let mut translator = Translator::new(options);
    translator.update(&world, &changed);
    translator
}

#[test]
fn an_old_guest_that_adds_many_paths_keeps_no_young_one_out() {
    let all = [("owner", 10, 0), ("evil", 9_950, 0), ("shop", 100, 0), ("more", 10, 0)];
    let (rules, _) = cost(&all);
    assert!((5_000..=5_020).contains(&rules), "{rules}");
    let served = |namespace: &str| served(&all, namespace);
    assert_eq!((served("owner"), served("shop"), served("more")), (10, 100, 10));
}

#[test]
fn refused_paths_of_a_guest_are_looked_at_no_more_than_others() {
    let paths = (0..5_000).map(|n| {
        format!(
            "{{ path: \"/{n}\\u0001\", pathType: Prefix, backend: {{ service: {{ name: s, port: {{ \
                                     number: 80 }} }} }} }}"
        )
    });
    let paths = paths.collect::<Vec<_>>().join(", ");
    for (annotation, most) in [("x: y", 10), ("whitelist-source-range: 127.0.0.1", 5_100)] {
        let ingress = |namespace: &str, annotation: &str, paths: &str| {
            format!(
                "---\napiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {{ name: i, namespace: {namespace}, \
                 annotations: {{ kubernetes.io/ingress.class: nginx, nginx.ingress.kubernetes.io/{annotation} }} }}\nspec: {{ \
                 rules: [{{ host: h.test, http: {{ paths: [{paths}] }} }}] }}\n"
            )
        };
        let one = "{ path: /, pathType: Prefix, backend: { service: { name: s, port: { number: 80 } } } }";
        let all = ingress("a", "x: y", one) + &ingress("evil", annotation, &paths);
        let (world, mut translator) =
            (crate::tests::world(&all), Translator::new(crate::tests::options("")));
        WORK.set(0);
        translator.update(&world, &world.all());
        assert!(WORK.get() <= most, "{annotation}: {}", WORK.get());
    }
}

#[test]
fn aliases_multiply_no_more_than_so_many_paths() {
    let (rules, work) = cost(&[("a", 100, 64)]);
    assert_eq!((rules, work), (65 * 101, 65 * 100), "all are served");
    for all in [
        &[("a", 9_000, 64)][..],
        &[("a", 10, 64), ("b", 9_000, 0)],
        &[("a", 700, 64), ("b", 9_000, 0), ("c", 9_000, 0)],
        &[("a", 1, 64), ("b", 10_000, 64), ("c", 10_000, 64)],
    ] {
        let (rules, work) = cost(all);
        let most = MAX_COPIED_RULES + 1_000;
        assert!(rules <= most && work <= most, "{rules} rules, {work} looked at");
        assert!(rules > 30_000, "{rules} rules");
    }
}
