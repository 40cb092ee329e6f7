//! Endpoints that send requests to paths that an auth server guards.

use super::*;

/// A rule of `shop.test`.
fn rule(path: &str, backend: &str, namespace: &str, policies: Option<&str>) -> Value {
    let origin =
        json!({"namespace": namespace, "ingress": "i", "service": "s", "port": "80", "path": path});
    json!({"path": {"prefix": path}, "backend": backend, "policies": policies, "origin": origin})
}

/// Whose path is open by the client's own text is a matter of that text: an endpoint of another namespace would have the
/// request served by another path than the one that it came for.
#[test]
fn an_endpoint_leads_to_rules_of_its_own_namespace_only() {
    pass("auth-accel", |directory| {
        let fixture = fixture(directory, |_| ())?;
        let evil = Auth::start()?;
        let open = json!({"steps": [{"if": {
            "test": {"value": "$request_uri", "pattern": "^/public/"}, "then": [{"answer": {"code": 204}}],
        }}]});
        let servers = json!({"shop.test": {"rules": [
            rule("/", "a", "shop", Some("asks")),
            rule("/unasked", "a", "shop", None),
            rule("/public/plain", "evil", "evil", None),
            rule("/public/held", "evil", "evil", Some("held")),
            rule("/public/error", "gone", "evil", Some("errors")),
            rule("/public/own", "a", "evil", None),
        ]}});
        let policies = json!({
            "asks": {"access": {"external": external(json!({"script": open}))}},
            "held": {"fallback": "evil"},
            "errors": {"errors": {"codes": [503], "backend": "evil"}},
        });
        let endpoints = json!({
            "a": [fixture.endpoint.native()],
            "auth": [{"address": "127.0.0.1", "port": fixture.auth.port}],
            "evil": [{"address": "127.0.0.1", "port": evil.port}],
            "gone": [],
        });
        fixture.put_all(&servers, &policies, &endpoints)?;
        fixture.auth.set(say(403, ""));
        fixture.expect("shop.test", "/admin", 403)?;
        fixture.auth.heard();
        for from in ["/public/plain", "/public/held", "/public/error"] {
            for place in ["/admin", "/unasked", "/public/x"] {
                evil.set(say(200, &format!("X-Accel-Redirect: {place}\r\n")));
                let answer = fixture.get("shop.test", from)?;
                ensure!(
                    answer.status == 404 && answer.endpoint().is_none(),
                    "{from} to {place}: {answer}"
                );
            }
            evil.set(say(200, "X-Accel-Redirect: /public/own\r\n"));
            // An error keeps its status.
            let answer = fixture.get("shop.test", from)?;
            ensure!(answer.endpoint().as_deref() == Some("a"), "{from}: {answer}");
        }
        ensure!(fixture.auth.heard().is_empty());
        fixture.site.nginx.check_error_log()
    });
}
