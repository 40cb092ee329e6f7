use crate::host::guests::MAX_PATHS;
use crate::{Translator, tests};
use oxigress_core::model::{HostPattern, MAX_RULES, PathPattern, Rule};

const AUTH: &str = "nginx.ingress.kubernetes.io/whitelist-source-range: 127.0.0.1";
const LIMITS: &str = "nginx.ingress.kubernetes.io/limit-rps: '5'";
const OPEN: &str = "nginx.ingress.kubernetes.io/proxy-read-timeout: '5'";

/// One Ingress in the format of manifests.
fn ingress(namespace: &str, name: &str, annotation: &str, paths: &[String]) -> String {
    let class = "kubernetes.io/ingress.class: nginx";
    format!(
        "---\napiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {{ name: {name}, namespace: {namespace}, annotations: \
         {{ {class}, {annotation} }} }}\nspec: {{ rules: [{{ host: h.test, http: {{ paths: [{}] }} }}] }}\n",
        paths.join(", ")
    )
}

fn path(path: &str) -> String {
    let service = "{ service: { name: s, port: { number: 80 } } }";
    format!("{{ path: '{path}', pathType: ImplementationSpecific, backend: {service} }}")
}

fn no_service(path: &str) -> String {
    let resource = "{ resource: { kind: Bucket, name: b } }";
    format!("{{ path: '{path}', pathType: Prefix, backend: {resource} }}")
}

/// The paths of the host that answer 503, and how many Ingresses are told why.
fn closed(all: &str, flags: &str) -> (Vec<String>, usize) {
    let (world, mut translator) = (tests::world(all), Translator::new(tests::options(flags)));
    translator.update(&world, &world.all());
    let snapshot = translator.snapshot();
    let rules = &snapshot.servers[&HostPattern::parse("h.test").unwrap()].rules;
    let plain = |path: &PathPattern| match path {
        PathPattern::Prefix(text) if text.is_empty() => "/".to_owned(),
        PathPattern::Prefix(text) | PathPattern::Exact(text) | PathPattern::Regex(text) => {
            text.to_string()
        }
    };
    let is_closed = |id| snapshot.policies[id].denied.is_some();
    let closed = rules.iter().filter(|rule| rule.policies.as_ref().is_some_and(is_closed));
    let closed = closed.map(|rule| plain(&rule.path)).collect();
    let told = translator.notes().filter(|(_, note)| note.message.contains("answer 503, since"));
    (closed, told.count())
}

#[test]
fn a_restricted_path_without_a_service_answers_503_itself() {
    let site = ingress("n", "site", OPEN, &["/", "/a", "/docs"].map(path));
    for (annotation, expected) in [(AUTH, &["/a/b/x"][..]), (OPEN, &[]), (LIMITS, &[])] {
        let lost = ingress("n", "z-lost", annotation, &["/a/b/x", "/docs"].map(no_service));
        let (closed, told) = closed(&(site.clone() + &lost), "");
        let closed: Vec<_> = closed.iter().map(String::as_str).collect();
        assert_eq!((closed.as_slice(), told), (expected, 0));
    }
    // An older one has the path, whoever the younger one belongs to.
    let lost = ingress("n", "a-lost", AUTH, &[no_service("/docs")]);
    let theirs = ingress("other", "site", OPEN, &[path("/docs")]);
    for younger in [site, theirs] {
        assert_eq!(closed(&(lost.clone() + &younger), ""), (vec!["/docs".into()], 0));
    }
}

/// The rules of the host, by what the Ingress of a namespace writes.
fn rules_of(all: &str, namespace: &str) -> Vec<Rule> {
    let (world, mut translator) = (tests::world(all), Translator::new(tests::options("")));
    translator.update(&world, &world.all());
    let server = &translator.snapshot().servers[&HostPattern::parse("h.test").unwrap()];
    let rules = server.rules.iter().filter(|rule| rule.origin.namespace == namespace);
    rules.cloned().collect()
}

#[test]
fn an_expression_of_a_guest_yields_whether_it_leads_to_a_service_or_not() {
    let owner = ingress("a", "owner", OPEN, &[path("/shop")]);
    let both = format!("{AUTH}, nginx.ingress.kubernetes.io/use-regex: 'true'");
    let written = "/(.*)()()()()()()";
    let lost = no_service(written).replace("Prefix", "ImplementationSpecific");
    for of_guest in [path(written), lost] {
        let rules = rules_of(&(owner.clone() + &ingress("n", "x", &both, &[of_guest])), "n");
        let [rule] = rules.as_slice() else { panic!("{rules:?}") };
        assert!(matches!(rule.path, PathPattern::Regex(_)) && rule.policy.yields);
    }
    // Nor does it have what lies below /.well-known/ by a path.
    let lost = ingress("n", "x", AUTH, &[no_service("/.well-known/acme-challenge")]);
    assert_eq!(rules_of(&(owner + &lost), "n"), []);
}

#[test]
fn paths_without_a_service_are_counted_as_others_are() {
    let many: Vec<_> = (0..MAX_PATHS + 100).map(|n| no_service(&format!("/{n}"))).collect();
    let owner = ingress("a", "owner", OPEN, &[path("/shop")]);
    let all = owner + &ingress("n", "x", AUTH, &many);
    assert_eq!(rules_of(&all, "n").len(), MAX_PATHS);
}

#[test]
fn what_all_ingresses_have_in_common_restricts_none() {
    let map = "---\napiVersion: v1\nkind: ConfigMap\nmetadata: { name: settings, namespace: s }\ndata: { \
               denylist-source-range: 192.0.2.0/24 }\n";
    let both = format!("{AUTH}, nginx.ingress.kubernetes.io/use-regex: 'true'");
    let site = map.to_owned() + &ingress("n", "site", OPEN, &[path("/"), path("/docs")]);
    let flags = "--configmap=s/settings";
    for (annotations, expected) in
        [(both.as_str(), &["/"][..]), ("nginx.ingress.kubernetes.io/use-regex: 'true'", &[])]
    {
        let lost = ingress("n", "lost", annotations, &[path("/(.*)/admin(")]);
        assert_eq!(closed(&(site.clone() + &lost), flags).0, expected);
    }
}

#[test]
fn what_admits_others_is_open_and_what_admits_the_same_is_not() {
    let settings = |data: &str| {
        format!(
            "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{ name: settings, namespace: s }}\ndata: {{ \
             allow-snippet-annotations: 'true', annotations-risk-level: Critical, {data} }}\n"
        )
    };
    let name = |name: &str| format!("nginx.ingress.kubernetes.io/{name}");
    let global = settings("global-auth-url: 'http://a.test/'");
    let out = name("enable-global-auth: 'false'");
    let regex = name("use-regex: 'true'");
    let both = format!("{AUTH}, {regex}");
    let bots = name("configuration-snippet: 'if ($http_user_agent ~ bot) { return 403; }'");
    let denies = name("denylist-source-range: 192.0.2.0/24");
    let all = name("whitelist-source-range: 0.0.0.0/0");
    for (map, of_site, of_lost, is_closed) in [
        // Who opts out of what the ConfigMap asks for, of all.
        (&global, &out, &regex, true),
        (&global, &regex, &regex, false),
        (&global, &out, &format!("{out}, {regex}"), false),
        // A list that keeps out others than those who have no access.
        (&settings("a: b"), &bots, &both, true),
        (&settings("a: b"), &denies, &both, true),
        (&settings("a: b"), &all, &both, true),
        (&settings("a: b"), &AUTH.to_owned(), &both, false),
        (&settings("a: b"), &format!("{AUTH}, {denies}"), &both, false),
        (&settings("a: b"), &name("configuration-snippet: 'return 404;'"), &both, false),
    ] {
        let site = ingress("n", "site", of_site, &[path("/")]);
        let lost = ingress("n", "lost", of_lost, &[path("/(.*)/admin(")]);
        let (_, told) = closed(&(map.clone() + &site + &lost), "--configmap=s/settings");
        assert_eq!(told == 1, is_closed, "{of_site} {of_lost}");
    }
    // Without a Service the same restriction is one.
    let site = ingress("n", "site", &out, &[path("/")]);
    let lost = ingress("n", "z-lost", &regex, &[no_service("/admin")]);
    let (closed, _) = closed(&(global + &site + &lost), "--configmap=s/settings");
    assert!(closed.contains(&"/admin".to_owned()), "{closed:?}");
}

#[test]
fn a_path_without_lists_of_its_own_has_those_of_its_host() {
    let map = "---\napiVersion: v1\nkind: ConfigMap\nmetadata: { name: settings, namespace: s }\ndata: { \
               allow-snippet-annotations: 'true', annotations-risk-level: Critical }\n";
    let list = "nginx.ingress.kubernetes.io/server-snippet: 'allow 127.0.0.1; deny all;'";
    let wide = "nginx.ingress.kubernetes.io/whitelist-source-range: 0.0.0.0/0";
    let regex = "nginx.ingress.kubernetes.io/use-regex: 'true'";
    // Beside another way in a list of the host's could only let in whom that keeps out.
    let any = "nginx.ingress.kubernetes.io/satisfy: any, \
               nginx.ingress.kubernetes.io/auth-url: 'http://a.test/'";
    for (of_host, of_root, expected) in
        [(list, wide, &["/"][..]), (list, any, &["/"]), (list, OPEN, &[]), (OPEN, wide, &[])]
    {
        let all = map.to_owned()
            + &ingress("n", "a-host", of_host, &[path("/docs")])
            + &ingress("n", "b-root", of_root, &[path("/")])
            + &ingress("n", "c-lost", regex, &[path("/(a(")]);
        assert_eq!(closed(&all, "--configmap=s/settings").0, expected, "{of_host} {of_root}");
    }
}

#[test]
fn many_kinds_of_restrictions_are_told_apart_no_further() {
    let site = ingress("n", "site", AUTH, &[path("/")]);
    let lost = |n: usize| {
        let list = format!("nginx.ingress.kubernetes.io/whitelist-source-range: 127.0.1.{n}");
        ingress("n", &format!("lost-{n}"), &list, &[path(&format!("no-slash-{n}"))])
    };
    let many: String = (0..super::MOST_KINDS).map(lost).collect();
    let last =
        ingress("n", "z", AUTH, &[path("/\u{1}x").replace('\u{1}', "\\u0001").replace('\'', "\"")]);
    for (all, told) in [(site.clone() + &last, 0), (site + &many + &last, 1)] {
        assert_eq!(closed(&all, "").1, told);
    }
}

#[test]
fn a_snippet_that_refuses_requests_restricts_its_paths() {
    let map = "---\napiVersion: v1\nkind: ConfigMap\nmetadata: { name: settings, namespace: s }\ndata: { \
               allow-snippet-annotations: 'true', annotations-risk-level: Critical }\n";
    let site = map.to_owned() + &ingress("n", "site", OPEN, &[path("/"), path("/b")]);
    for (text, expected) in [
        ("if ($http_x = a) { return 403; }", &["/"][..]),
        ("return 404;", &["/", "/c"]),
        // Clients that are not signed in are sent where they can.
        ("if ($cookie_session = \"\") { return 302 /b; }", &["/"]),
        ("if ($http_x = a) { rewrite ^ /b last; }", &["/"]),
        ("if ($http_x = a) { return 200 no; }", &["/"]),
        ("if ($request_method = OPTIONS) { return 204; }", &[]),
        ("if ($cookie_session) { break; } return 302 /b;", &["/"]),
        ("return 301 /b;", &[]),
        ("rewrite ^ /b last;", &[]),
    ] {
        let snippet = format!("nginx.ingress.kubernetes.io/configuration-snippet: '{text}'");
        let both = format!("{snippet}, nginx.ingress.kubernetes.io/use-regex: 'true'");
        let lost = ingress("n", "lost", &both, &[path("/(a("), path("/c")]);
        let (closed, _) = closed(&(site.clone() + &lost), "--configmap=s/settings");
        assert_eq!(closed, expected, "{text}");
    }
}

#[test]
fn an_expression_that_only_begins_like_well_known_answers_no_challenges() {
    let regex = "nginx.ingress.kubernetes.io/use-regex: 'true'";
    let paths = [r"/\.(.*)", r"/\.well-known/(.*)"].map(path);
    let site = ingress("n", "site", regex, &paths);
    let lost = path("/.git").replace("'/.git'", "\"/.git\\u0001\"");
    let lost = ingress("n", "lost", AUTH, &[lost]);
    let (closed, _) = closed(&(site + &lost), "");
    assert_eq!(closed, [r"/\.(.*)"]);
}

#[test]
fn an_expression_as_long_as_the_lost_one_may_have_its_requests() {
    let both = format!("{AUTH}, nginx.ingress.kubernetes.io/use-regex: 'true'");
    for (site, is_closed) in [("/abc/(.{9})x", true), ("/abc/(.{9})xx", false)] {
        let site =
            ingress("n", "site", "nginx.ingress.kubernetes.io/use-regex: 'true'", &[path(site)]);
        let lost = ingress("n", "lost", &both, &[path("/ab(.{10})x(")]);
        assert_eq!(closed(&(site + &lost), "").0.contains(&"/abc/(.{9})x".into()), is_closed);
    }
}

#[test]
fn an_invalid_path_that_is_restricted_is_answered_by_no_open_one() {
    let both = format!("{AUTH}, nginx.ingress.kubernetes.io/use-regex: 'true'");
    let paths = ["/", "/a", "/A/b", "/a/b/c", "/ab", "/docs"].map(path);
    let theirs = ingress("other", "theirs", OPEN, &[path("/a/b")]);
    let site = ingress("n", "site", OPEN, &paths) + &theirs;
    let lost = ingress("n", "lost", &both, &[path("/a/b/x(")]);
    // No shorter rule has requests of what is closed.
    assert_eq!(closed(&(site.clone() + &lost), ""), (vec!["/a/b/x".into()], 0));
    // Nor where two begin so.
    let two = ingress("n", "lost", &both, &[path("/a/b/x("), path("/a/b/x[")]);
    assert_eq!(closed(&(site.clone() + &two), ""), (vec!["/a/b/x".into()], 0));
    // Where another rule stands there, the shorter ones have what it does not take.
    let lost = ingress("n", "lost", &both, &[path("/a/b/c(")]);
    let (mut all, told) = closed(&(site + &lost), "");
    all.sort();
    assert_eq!((all, told), (["/", "/A/b", "/a", "/a/b/c"].map(String::from).to_vec(), 1));
    // What is longer than the expression would have its requests all the same.
    let long = "/api/v1/this/is/longer/than/the/expression";
    let site = ingress("n", "site", OPEN, &["/api/v1", "/docs", long].map(path));
    for (lost, expected) in [("/api/.*/(secret", &["/api/", "/api/v1"][..]), ("/(.*)/(secret", &[])]
    {
        let lost = ingress("n", "lost", &both, &[path(lost)]);
        let (closed, _) = closed(&(site.clone() + &lost), "");
        let mut closed: Vec<_> = closed.iter().map(String::as_str).collect();
        closed.retain(|path| *path != "/");
        closed.sort_unstable();
        assert_eq!(closed, expected);
    }
    // What keeps nobody out is open, whatever its annotation is called.
    let snippet = "nginx.ingress.kubernetes.io/configuration-snippet: 'more_set_headers \"a: b\";'";
    for open in [LIMITS, snippet] {
        let site = ingress("n", "site", open, &[path("/")]);
        let lost = ingress("n", "lost", &both, &[path("/(a")]);
        assert_eq!(closed(&(site + &lost), "").0, ["/"], "{open}");
    }
}

#[test]
fn many_lost_paths_cost_no_more_than_some() {
    let site = ingress("n", "site", OPEN, &["/", "/docs"].map(path));
    for (count, expected) in [(super::MOST, &[][..]), (super::MOST + 1, &["/", "/docs"])] {
        let lost: Vec<_> = (0..count).map(|n| path(&format!("no-slash-{n}"))).collect();
        let (closed, _) = closed(&(site.clone() + &ingress("n", "lost", AUTH, &lost)), "");
        assert_eq!(closed, expected);
    }
}

#[test]
fn a_guest_that_restricts_by_client_certificates_closes_as_well() {
    let tls = "nginx.ingress.kubernetes.io/auth-tls-secret: n/ca";
    let all = ingress("a", "owner", OPEN, &[path("/owner")])
        + &ingress("n", "lost", tls, &[no_service("/app/admin")])
        + &ingress("n", "site", OPEN, &[path("/app")]);
    let (closed, _) = closed(&all, "");
    assert_eq!(closed, ["/app/admin"]);
}

#[test]
fn hosts_behind_the_last_path_that_is_read_count_too() {
    let many: Vec<_> = (0..=MAX_RULES).map(|n| path(&format!("/{n}"))).collect();
    let site = ingress("n", "site", OPEN, &[path("/")]);
    let other = "other.test, http: { paths: [";
    let lost = ingress("n", "lost", AUTH, &[path("/admin")]);
    let (head, rule) = lost.split_once("{ host: h.test").unwrap();
    let lost = format!("{head}{{ host: {other}{}] }} }}, {{ host: h.test{rule}", many.join(", "));
    let (closed, told) = closed(&(site + &lost), "");
    assert_eq!((closed, told), (vec!["/".to_owned()], 1));
}

#[test]
fn a_refused_ingress_that_restricts_its_host_closes_it() {
    let tls = "nginx.ingress.kubernetes.io/auth-tls-secret: n/ca";
    let exact = path("/exact").replace("ImplementationSpecific", "Exact");
    let site = ingress("n", "site", OPEN, &[exact]);
    let attack = ingress("n", "a", tls, &[path("/etc/passwd")]);
    assert!(closed(&(site + &attack), "--deep-inspect").0.contains(&"/exact".to_owned()));
}

#[test]
fn what_has_no_place_and_is_restricted_leaves_nothing_open_but_exact_paths() {
    let exact = path("/exact").replace("ImplementationSpecific", "Exact");
    let site = ingress("n", "a-site", OPEN, &[path("/"), path("/docs"), exact]);
    let many: Vec<_> = (0..MAX_RULES).map(|n| path(&format!("/{n}"))).collect();
    for (annotation, count) in [(AUTH, 2), (OPEN, 0)] {
        let lost = ingress("n", "lost", annotation, &many);
        assert_eq!(
            closed(&(site.clone() + &lost), ""),
            (Vec::from(["/", "/docs"].map(String::from))[..count].to_vec(), count / 2)
        );
    }
    let attack = ingress("n", "lost", AUTH, &[path("/etc/passwd")]);
    assert_eq!(closed(&(site.clone() + &attack), "--deep-inspect").0.len(), 2);
    assert_eq!(closed(&(site + &attack), "--deep-inspect=false").0.len(), 0);
}

#[test]
fn a_path_that_closes_nothing_of_its_own_closes_what_would_take_it() {
    let paths = ["/", "/a", "/b"].map(path);
    let lost = ingress("n", "lost", AUTH, &[path("/a").replace("'/a'", "\"/a\\u0001b\"")]);
    let site = ingress("n", "site", OPEN, &paths);
    let (closed, told) = closed(&(site + &lost), "");
    assert_eq!((closed.as_slice(), told), (&["/".to_string(), "/a".to_string()][..], 1));
}
