//! What a stranger says about blue's hosts by routes on a Gateway that both use, and about blue's routes by Ingresses.

use super::{Attack, short};
use crate::tenants::hostile::blue::{DEEP, MUTUAL, ROUTED, ROUTED_PATH};
use crate::tenants::hostile::objects::{route, rule, secret};
use crate::tenants::hostile::villain::{OWN, Villain};
use anyhow::{Result, ensure};
use oxigress_tests::client::{Request, send};
use oxigress_tests::mutual::Identity;
use serde_json::{Value, json};
use std::time::Duration;

pub const ATTACKS: &[Attack] = &[
    short(3, "route-part", part),
    short(3, "route-challenge", challenge),
    short(3, "route-deep", deep),
    short(3, "route-plain", plain),
    short(3, "route-ingress", ingress),
    short(3, "route-wildcard", wildcard),
    short(2, "route-conditions", conditions),
    short(2, "route-crowd", crowd),
    short(2, "route-changes", changes),
];

/// How long clients go on.
const TIME: Duration = Duration::from_secs(3);

impl Villain<'_> {
    /// A route of its own on the common Gateway.
    fn route(&self, name: impl std::fmt::Display, host: &str, rules: Value) -> Value {
        route(&self.name(name), &self.scene.gateway, &[host], rules)
    }

    /// Writes routes and returns when they are taken up.
    fn apply_routes(&self, routes: impl IntoIterator<Item = Value>) -> Result<()> {
        let host = self.host_of("route");
        let last = self.route("last", &host, json!([rule(json!([]), OWN)]));
        self.apply(routes.into_iter().chain([last]))?;
        self.wait_for(&host, "/", 200)
    }

    /// The answer is not of an endpoint of its own.
    fn is_not_reached(&self, request: &Request) -> Result<()> {
        let answer = self.send(request)?;
        let endpoint = answer.endpoint().unwrap_or_default();
        ensure!(endpoint != self.own.name, "{answer}");
        Ok(())
    }
}

fn path(kind: &str, value: &str) -> Value {
    json!({"path": {"type": kind, "value": value}})
}

/// Most requests of blue's path, by conditions that nearly all of them meet.
fn part(v: &Villain<'_>) -> Result<()> {
    let of = |field: &str, value: Value| {
        let mut one = path("PathPrefix", "/");
        one[field] = value;
        one
    };
    let all = json!([
        of("method", json!("GET")),
        of("headers", json!([{"type": "RegularExpression", "name": "host", "value": ".*"}])),
        of("queryParams", json!([{"name": "a", "value": "1"}])),
    ]);
    v.apply_routes([v.route("part", ROUTED, json!([rule(all, OWN)]))])?;
    for target in ["/", "/?a=1", "/any"] {
        v.is_not_reached(&Request::get(ROUTED, target))?;
    }
    v.scene.blue_is_untouched()
}

/// Whoever answers challenges gets certificates.
fn challenge(v: &Villain<'_>) -> Result<()> {
    let matches = json!([
        path("PathPrefix", "/.well-known"),
        path("PathPrefix", "/.well-known/acme-challenge"),
        path("Exact", "/.well-known/acme-challenge/token"),
    ]);
    v.apply_routes([v.route("challenge", ROUTED, json!([rule(matches, OWN)]))])?;
    v.is_not_reached(&Request::get(ROUTED, "/.well-known/acme-challenge/token"))
}

/// Blue's wildcard, whose Ingress asks for certificates, under deeper names, where no policy of it holds.
fn deep(v: &Villain<'_>) -> Result<()> {
    let matches = json!([path("PathPrefix", "/villain")]);
    v.apply_routes([v.route("deep", &format!("*.{DEEP}"), json!([rule(matches, OWN)]))])?;
    for host in [format!("a.{DEEP}"), format!("a.b.{DEEP}")] {
        let answer = v.get(&host, "/")?;
        ensure!(answer.endpoint().is_none(), "{host} is {answer}");
    }
    Ok(())
}

/// A route of blue's beside an Ingress that asks for certificates and redirects.
fn plain(v: &Villain<'_>) -> Result<()> {
    let answer = v.get(MUTUAL, ROUTED_PATH)?;
    ensure!(answer.status == 400, "{MUTUAL}{ROUTED_PATH} is {answer}");
    Ok(())
}

/// TLS, aliases and redirects of a host that only a route of blue's names.
fn ingress(v: &Villain<'_>) -> Result<()> {
    let (authority, name) = (Identity::root("villain")?.pem()?, v.name("authority"));
    v.apply([secret(&name, &[("ca.crt", &authority)])])?;
    let whole = format!("{}/{name}", v.namespace);
    let ingress = v.stranger(ROUTED).with("auth-tls-secret", &whole).with("app-root", "/villain");
    v.apply_settled([ingress.with("ssl-passthrough", "true").object()])?;
    v.scene.blue_is_untouched()?;
    v.told("Ingress", &v.name("stranger"), &["belongs to namespace", &v.scene.blue.namespace])
}

/// Certificates of clients for all hosts that no Ingress names.
fn wildcard(v: &Villain<'_>) -> Result<()> {
    let (authority, name) = (Identity::root("villain")?.pem()?, v.name("authority"));
    v.apply([secret(&name, &[("ca.crt", &authority)])])?;
    let whole = format!("{}/{name}", v.namespace);
    let parent = ROUTED.split_once('.').map_or(ROUTED, |(_, parent)| parent);
    let ingress = v.ingress("wild", &format!("*.{parent}"));
    v.apply_settled([ingress.with("auth-tls-secret", &whole).object()])
}

/// A thousand rules of many conditions on one path, and requests that nearly meet all of them.
fn conditions(v: &Villain<'_>) -> Result<()> {
    let condition = |name: String| json!({"name": name, "value": "1"});
    let one = |number: usize| {
        let common = (0..13).map(|n| condition(format!("a{n}")));
        let all = common.chain([condition(format!("u{number}")), condition("absent".into())]);
        json!({"path": {"value": "/"}, "queryParams": all.collect::<Vec<_>>()})
    };
    let host = v.host();
    let routes = (0..8).map(|part| {
        let rules =
            (0..16).map(|n| rule((0..8).map(|m| one(part * 128 + n * 8 + m)).collect(), OWN));
        v.route(part, &host, rules.collect())
    });
    v.apply_routes(routes)?;
    let names = (0..13).map(|n| format!("a{n}")).chain((0..900).map(|n| format!("u{n}")));
    let query: Vec<_> = names.map(|name| format!("{name}=%31")).collect();
    let request = Request::get(&host, &format!("/?{}", query.join("&")));
    let address = v.scene.http();
    let done = v.clients_for(TIME, 8, |_| async {
        let answer = send(&address, &request).await?;
        ensure!(answer.status >= 400, "{answer}");
        Ok(())
    });
    ensure!(done > 0, "no client was served");
    Ok(())
}

/// Few objects that become as many rules as a namespace can have.
fn crowd(v: &Villain<'_>) -> Result<()> {
    let backends: Vec<_> =
        (0..16).map(|weight| json!({"name": OWN, "port": 80, "weight": weight + 1})).collect();
    let routes = (0..20).map(|number| {
        let hosts: Vec<_> = (0..16).map(|n| v.host_of(format!("h{n}.r{number}"))).collect();
        let hosts: Vec<_> = hosts.iter().map(String::as_str).collect();
        let rules = (0..16).map(|n| {
            let matches: Vec<_> =
                (0..8).map(|m| path("PathPrefix", &format!("/{n}/{m}"))).collect();
            json!({"matches": matches, "backendRefs": backends})
        });
        route(&v.name(number), &v.scene.gateway, &hosts, rules.collect())
    });
    let routes: Vec<_> = routes.collect();
    v.apply(routes)?;
    v.scene.blue_is_untouched()
}

/// One route, changed as fast as the API server takes it.
fn changes(v: &Villain<'_>) -> Result<()> {
    let host = v.host();
    for number in 0..200 {
        let matches = json!([path("PathPrefix", &format!("/{number}"))]);
        v.apply([v.route("changing", &host, json!([rule(matches, OWN)]))])?;
    }
    v.wait_for(&host, "/199", 200)
}
