//! Routes of two kinds on one host: who keeps whom out.

use super::*;

/// As [`route`], for calls of one service; empty: the route has no rules.
fn calls(namespace: &str, year: u16, parent: &str, host: &str, service: &str) -> String {
    let text = route(namespace, year, parent, host, "/");
    let (head, _) = text.split_once("rules:").unwrap();
    let head = head.replace("kind: HTTPRoute", "kind: GRPCRoute");
    match service {
        "" => format!("{head}rules: [] }}"),
        _ => format!(
            "{head}rules: [{{ matches: [{{ method: {{ service: {service} }} }}], backendRefs: [{{ name: s, port: 80 }}] }}] }}"
        ),
    }
}

#[test]
fn calls_of_a_guest_keep_nobody_from_answering_challenges() {
    let infra = || gateway("infra", 2019, &[(80, ""), (8_443, "")]);
    let shop = || route("shop", 2020, "infra/l1", "shop.test", "/");
    for service in ["", "x"] {
        let evil = calls("evil", 2025, "infra/l0", "shop.test", service);
        let solver = route("infra", 2026, "infra/l0", "shop.test", TOKEN);
        let served = Served::new(&[infra(), shop(), evil.clone(), solver]);
        assert_eq!(served.who(80, "shop.test", TOKEN), "infra", "{service:?}");
        let own = route("shop", 2026, "infra/l0", "shop.test", TOKEN);
        let served = Served::new(&[infra(), shop(), evil, own]);
        assert_eq!(served.who(80, "shop.test", TOKEN), "shop", "{service:?}");
    }
}

#[test]
fn an_owner_of_calls_has_its_challenges_answered() {
    let infra = gateway("infra", 2019, &[(80, "")]);
    let shop = calls("shop", 2020, "infra", "shop.test", "x");
    for by in ["shop", "infra"] {
        let solver = route(by, 2026, "infra", "shop.test", TOKEN);
        let served = Served::new(&[infra.clone(), shop.clone(), solver]);
        assert_eq!(served.who(80, "shop.test", TOKEN), by);
        assert_eq!(served.who(80, "shop.test", "/x/y"), "shop");
    }
}

#[test]
fn guests_keep_each_other_from_nothing_but_the_paths_that_they_name() {
    let infra = |host: &str| gateway("infra", 2019, &[(80, host)]);
    let pages = |host: &str, by: &str| route(by, 2023, "infra", host, &format!("/{by}"));
    // An Ingress has the host; a listener has it, and all routes are without hosts; nobody names one.
    for (of_listener, host, more) in [
        ("", "apps.test", Some(ingress("team", 2020, "apps.test", "/", ""))),
        ("apps.test", "", None),
        ("", "", None),
    ] {
        let evil = calls("evil", 2021, "infra", host, "x");
        let all = [infra(of_listener), evil, pages(host, "b"), pages(host, "c")];
        let served = Served::new(&[&all[..], more.as_slice()].concat());
        let at = if host.is_empty() { of_listener } else { host };
        let who = |path: &str| served.who(80, at, path);
        assert_eq!(
            [who("/b/1"), who("/c"), who("/x/y")],
            ["b", "c", "evil"],
            "{of_listener:?} {host:?}"
        );
    }
}

#[test]
fn the_kind_of_the_owner_and_of_the_oldest_of_one_namespace_is_served() {
    let infra = gateway("infra", 2019, &[(80, "")]);
    let owner = calls("shop", 2020, "infra", "shop.test", "x");
    let own = route("shop", 2021, "infra", "shop.test", "/own");
    let guest = route("guest", 2021, "infra", "shop.test", "/guest");
    let guests_calls = calls("guest", 2022, "infra", "shop.test", "y");
    let served = Served::new(&[infra.clone(), owner, own.clone(), guest, guests_calls]);
    let who = |path: &str| served.who(80, "shop.test", path);
    assert_eq!([who("/x/1"), who("/y/1"), who("/own"), who("/guest")], ["shop", "guest", "", ""]);
    // One without rules asks for nothing.
    let empty = calls("shop", 2020, "infra", "shop.test", "");
    let served = Served::new(&[infra, empty, own]);
    assert_eq!(served.who(80, "shop.test", "/own"), "shop");
}
