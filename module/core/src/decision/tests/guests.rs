//! Several namespaces have paths of one host: what one of them does leads nobody past what protects another's.

use super::*;

/// What becomes of a request for a path that the endpoint of a rule of `sender` has sent it to, and why.
fn sent(sender: Option<&'static str>, path: &str) -> (Answer, Option<Reason>) {
    let rule = |path: &str, namespace: &str, policies: Option<&str>| {
        let origin = json!({"namespace": namespace, "ingress": "i", "service": "s", "port": "80", "path": path});
        json!({"path": {"prefix": path}, "backend": "own", "policies": policies, "origin": origin})
    };
    let to_guest =
        json!([{"rewrite": {"pattern": "^/evil/back", "target": "/evil/x", "then": "last"}}]);
    let to_free = json!([{"rewrite": {"pattern": "^/evil", "target": "/free", "then": "last"}}]);
    let records = records(json!({
        "servers": {"a.test": {"rules": [
            rule("/", "shop", Some("asks")),
            rule("/free", "shop", None),
            rule("/evil", "evil", None),
            rule("/evil/led", "evil", Some("led")),
            rule("/evil/host", "evil", Some("host")),
            rule("/evil/back", "evil", Some("back")),
            json!({"path": {"prefix": "/nobody"}, "backend": "own"}),
        ]}},
        "backends": {"own": {}, "auth": {}},
        "endpoints": {"own": [{"address": "10.0.0.1", "port": 1}]},
        "policies": {
            "asks": {"access": {"external": {"to": {"backend": "auth", "host": "auth.test"}, "target": "/check"}}},
            "led": {"script": {"every_location": "all"}},
            "all": {"script": {"owner": "op", "steps": to_free}},
            "host": {"script": {"server": "server"}},
            "server": {"script": {"owner": "shop", "steps": to_free}},
            "back": {"script": {"server": "to-guest"}},
            "to-guest": {"script": {"owner": "shop", "steps": to_guest}},
        },
    }));
    let mut request = Generated::of(path, "", None);
    request.headers.extend(sender.map(|sender| ("sender", sender)));
    let mut trace = Recording::new(request.host);
    let answer = decide(&generation(&records), &request, &mut trace).answer;
    (answer, trace.reason)
}

#[test]
fn an_endpoint_sends_requests_to_rules_of_its_own_namespace_only() {
    let another = (Answer::Respond(404), Some(Reason::MovedToAnother));
    let served = (Answer::Forward, Some(Reason::Served));
    for path in ["/admin", "/free", "/nobody"] {
        assert_eq!(sent(Some("evil"), path), another, "{path}");
    }
    assert_eq!(sent(Some("shop"), "/evil/x"), another);
    for (sender, path) in [("evil", "/evil/x"), ("shop", "/admin"), ("shop", "/free")] {
        assert_eq!(sent(Some(sender), path), served, "{sender} {path}");
    }
    for path in ["/admin", "/evil/x", "/nobody"] {
        assert_eq!(sent(None, path), served, "{path}");
    }
}

/// The operator's steps lead a client's path anywhere, and the host's own to its namespace. An endpoint has it led nowhere.
#[test]
fn nobodys_steps_lead_on_to_another_namespace_what_an_endpoint_has_sent() {
    for path in ["/evil/led", "/evil/host"] {
        assert_eq!(sent(None, path), (Answer::Forward, Some(Reason::Served)), "{path}");
        for sender in ["evil", "shop"] {
            let refused = (Answer::Respond(404), Some(Reason::MovedToAnother));
            assert_eq!(sent(Some(sender), path), refused, "{sender} {path}");
        }
    }
    // Nor does the host's owner lead it to what its own namespace protects.
    assert_eq!(sent(Some("evil"), "/evil/back").0, Answer::Respond(404));
}

/// An error page of the host is no way past what protects another namespace's paths.
#[test]
fn an_error_page_is_served_by_rules_of_its_namespace_only() {
    let rule = |path: &str, namespace: &str| {
        let origin = json!({"namespace": namespace, "ingress": "i", "service": "s", "port": "80", "path": path});
        json!({"path": {"prefix": path}, "backend": "own", "origin": origin})
    };
    let answer = |path: &str, of: Option<&str>| {
        let mut tls = client("on", Some("/refused"), None);
        tls["client"]["error_page_of"] = of.into();
        let records = records(json!({
            "servers": {"a.test": {"rules": [rule("/", "shop"), rule("/refused", "guest")]}},
            "tls": {"a.test": tls}, "bundles": {CA: "PEM"},
            "backends": {"own": {}}, "endpoints": {"own": [{"address": "10.0.0.1", "port": 1}]},
        }));
        let mut request = Generated::of(path, "", None);
        request.is_tls = true;
        decide(&generation(&records), &request, &mut Recording::new(request.host)).answer
    };
    assert_eq!(answer("/x", Some("shop")), Answer::Internal(b"/refused".to_vec()));
    for of in [None, Some("guest")] {
        assert_eq!(answer("/refused", of), Answer::Forward, "{of:?}");
    }
    assert_eq!(answer("/refused", Some("shop")), Answer::Respond(496));
}

/// The auth server, or the steps in its place, look at the client's own text, and the endpoint may look at it again.
#[test]
fn no_auth_server_is_asked_about_a_path_with_dot_segments() {
    let refused = (Answer::Respond(400), Some(Reason::DotSegments));
    for path in ["/public/../admin", "/public/%2e%2E/admin", "/public/..%2fadmin", "/public/."] {
        assert_eq!(sent(None, path), refused, "{path}");
    }
    for path in ["/public/..admin", "/a.b", "/.well-known/x", "/free/../x", "/evil/%2e%2e/x"] {
        assert_eq!(sent(None, path), (Answer::Forward, Some(Reason::Served)), "{path}");
    }
}
