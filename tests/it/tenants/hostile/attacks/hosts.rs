//! What a stranger says about blue's hosts. [`crate::tenants::hostile::scene::Scene::blue_is_untouched`] is asked after each attack.

use super::{Attack, requests, short};
use crate::tenants::hostile::blue::{EDITED, LOGIN, SECURE, SHOP, basic};
use crate::tenants::hostile::objects::{Ingress, secret, served};
use crate::tenants::hostile::villain::{OWN, Villain};
use anyhow::{Result, ensure};
use oxigress_tests::certificate::Certificate;
use oxigress_tests::client::Request;
use oxigress_tests::mutual::Identity;

pub const ATTACKS: &[Attack] = &[
    short(3, "host-tls", tls),
    short(3, "host-app-root", app_root),
    short(3, "host-www", www),
    short(3, "host-passthrough", passthrough),
    short(3, "host-alias", alias),
    short(3, "host-auth-tls", auth_tls),
    short(3, "host-snippet", snippet),
    short(3, "host-ciphers", ciphers),
    short(3, "host-canary", canary),
    short(3, "host-patterns", patterns),
    short(3, "host-duplicates", duplicates),
    short(3, "host-wildcard", wildcard),
    short(3, "host-default", default),
    short(3, "host-crowded", crowded),
    short(3, "host-limits", limits),
    short(3, "host-errors", errors),
    short(3, "host-accel", accel),
    short(3, "references", references),
];

/// Writes a stranger's Ingress, looks whether blue's host is as it was, and whether the stranger was told whose it is.
fn is_ignored(v: &Villain<'_>, ingress: Ingress) -> Result<()> {
    v.apply_settled([ingress.object()])?;
    v.scene.blue_is_untouched()?;
    v.told("Ingress", &v.name("stranger"), &["belongs to namespace", &v.scene.blue.namespace])
}

fn tls(v: &Villain<'_>) -> Result<()> {
    let (pair, name) = (Certificate::new("villain", &[SHOP, LOGIN])?, v.name("pair"));
    v.apply([secret(&name, &[("tls.crt", &pair.chain), ("tls.key", &pair.key)])])?;
    is_ignored(v, v.stranger(SHOP).tls(&[SHOP], &name))
}

/// The root leads to the stranger's path.
fn app_root(v: &Villain<'_>) -> Result<()> {
    is_ignored(v, v.stranger(SHOP).with("app-root", "/host-app-root-path"))
}

/// The stranger's endpoint leads to blue's path, by a path of its own, which blue's auth server would be told of.
fn accel(v: &Villain<'_>) -> Result<()> {
    for (number, (host, place)) in [(SHOP, "/cart/1"), (LOGIN, "/")].into_iter().enumerate() {
        let server = v.saying(requests::accel(place).into_bytes())?;
        let (name, path) = (v.name(number), format!("/{}", v.name(number)));
        let ingress = v.bare(number).with("ssl-redirect", "false").host(host);
        v.apply(served(&name, server.address))?;
        v.apply_settled([ingress.path(&path, "Prefix", &name).object()])?;
        let answer = v.get(host, &path)?;
        ensure!(answer.status == 404 && answer.endpoint().is_none(), "{host}{place}: {answer}");
        ensure!(server.connections() == 1, "{} connections", server.connections());
    }
    Ok(())
}

/// The host leads to another name.
fn www(v: &Villain<'_>) -> Result<()> {
    is_ignored(v, v.stranger(SHOP).with("from-to-www-redirect", "true"))?;
    let answer = v.get(&format!("www.{SHOP}"), "/")?;
    let leads_there = answer.header("location").is_some_and(|to| to.contains(&format!("//{SHOP}")));
    ensure!(!leads_there, "{answer}");
    Ok(())
}

/// TLS goes to the stranger's endpoint as it comes.
fn passthrough(v: &Villain<'_>) -> Result<()> {
    is_ignored(v, v.stranger(SHOP).with("ssl-passthrough", "true"))
}

/// Blue's hosts as other names of one's own.
fn alias(v: &Villain<'_>) -> Result<()> {
    let names = [SHOP, SECURE, EDITED].join(",");
    is_ignored(v, v.ingress("stranger", &v.host()).with("server-alias", &names))?;
    let answer = v.get(SECURE, "/")?;
    ensure!(answer.status == 401, "{SECURE} is {answer}");
    Ok(())
}

/// Certificates of clients, by the stranger's authority.
fn auth_tls(v: &Villain<'_>) -> Result<()> {
    let (authority, name) = (Identity::root("villain")?.pem()?, v.name("authority"));
    v.apply([secret(&name, &[("ca.crt", &authority)])])?;
    let whole = format!("{}/{name}", v.namespace);
    is_ignored(v, v.stranger(SHOP).with("auth-tls-secret", &whole))
}

/// Directives for all of the host.
fn snippet(v: &Villain<'_>) -> Result<()> {
    v.apply_settled([v.stranger(SHOP).with("server-snippet", "deny all;").object()])?;
    v.told("Ingress", &v.name("stranger"), &["server-snippet"])
}

fn ciphers(v: &Villain<'_>) -> Result<()> {
    is_ignored(v, v.stranger(SHOP).with("ssl-ciphers", "AES128-SHA"))
}

/// All requests of blue's paths, by weight and by header.
fn canary(v: &Villain<'_>) -> Result<()> {
    let canary =
        v.bare("stranger").host(SHOP).path("/", "Prefix", OWN).path("/cart", "Prefix", OWN);
    let canary = canary.with("canary", "true").with("canary-weight", "100");
    v.apply_settled([canary.with("canary-by-header", "X-Villain").object()])?;
    let request = Request::get(SHOP, "/").header("X-Villain", "always");
    let answer = v.send(&request)?;
    ensure!(answer.endpoint().is_some_and(|name| name.starts_with("blue-")), "{answer}");
    v.told("Ingress", &v.name("stranger"), &["another namespace"])
}

/// Expressions for everything, made long, since the longest text comes first.
fn patterns(v: &Villain<'_>) -> Result<()> {
    let kind = "ImplementationSpecific";
    let ingress = v.bare("stranger").host(SHOP).with("use-regex", "true");
    let ingress =
        ingress.path("/.*", kind, OWN).path("/c[a-z]+/?.*|/a-text-that-is-long", kind, OWN);
    v.apply_settled([ingress.path("/(any|cart)(/|$)(.*)", kind, OWN).object()])
}

/// The paths that blue has.
fn duplicates(v: &Villain<'_>) -> Result<()> {
    let ingress =
        v.bare("stranger").host(SHOP).path("/", "Prefix", OWN).path("/cart", "Prefix", OWN);
    v.apply_settled([ingress.path("/cart/", "Prefix", OWN).object()])?;
    v.scene.blue_is_untouched()?;
    v.told("Ingress", &v.name("stranger"), &["/cart"])
}

/// A wildcard over all of blue's hosts, with TLS and what concerns a whole host.
fn wildcard(v: &Villain<'_>) -> Result<()> {
    let (pair, name) = (Certificate::new("wild", &["*.blue.test"])?, v.name("pair"));
    let ingress = v.bare("wild").host("*.blue.test").path("/", "Prefix", OWN);
    let ingress = ingress.tls(&["*.blue.test"], &name).with("app-root", "/villain");
    v.apply_settled([
        secret(&name, &[("tls.crt", &pair.chain), ("tls.key", &pair.key)]),
        ingress.with("ssl-passthrough", "true").object(),
    ])?;
    let answer = v.get(LOGIN, "/")?;
    ensure!(answer.status == 200, "{LOGIN} is {answer}");
    Ok(())
}

/// Rules of no host, with TLS, redirects and authentication.
fn default(v: &Villain<'_>) -> Result<()> {
    let (pair, name) = (Certificate::new("default", &[SHOP])?, v.name("pair"));
    let ingress = v.bare("default").host("").path("/", "Prefix", OWN).default_backend(OWN);
    let ingress = ingress.tls(&[], &name).tls(&[SHOP], &name).with("force-ssl-redirect", "true");
    v.apply_settled([
        secret(&name, &[("tls.crt", &pair.chain), ("tls.key", &pair.key)]),
        ingress.with("app-root", "/villain").object(),
    ])
}

/// As many paths as a host may have, and hundreds of expressions, on the host where blue adds paths all the time.
fn crowded(v: &Villain<'_>) -> Result<()> {
    let plain = (0..5).map(|part| {
        let ingress = v.bare(part).host(EDITED);
        let paths = 0..2_100;
        let add = |ingress: Ingress, n| ingress.path(&format!("/crowd{part}/{n}"), "Prefix", OWN);
        paths.fold(ingress, add).object()
    });
    let patterns = (0..300)
        .fold(v.bare("patterns").host(EDITED).with("use-regex", "true"), |ingress, n| {
            ingress.path(&format!("/v[0-9]*x{n}/.*"), "ImplementationSpecific", OWN)
        });
    v.apply_settled(plain.chain([patterns.object()]).collect::<Vec<_>>())
}

/// What keeps clients out of one's own path keeps them out of nobody else's.
fn limits(v: &Villain<'_>) -> Result<()> {
    let ingress = v.stranger(SHOP).with("limit-rps", "1").with("limit-connections", "1");
    let ingress =
        ingress.with("whitelist-source-range", "192.0.2.1/32").with("proxy-body-size", "1");
    v.apply_settled([ingress.object()])?;
    let path = format!("/{}", v.name("path"));
    v.wait_for(SHOP, &path, 403)?;
    for _ in 0..20 {
        v.scene.blue_is_untouched()?;
    }
    Ok(())
}

/// Pages for errors of one's own path are nobody else's.
fn errors(v: &Villain<'_>) -> Result<()> {
    let ingress =
        v.stranger(SHOP).with("custom-http-errors", "200,404,503").with("default-backend", OWN);
    v.apply_settled([ingress.object()])?;
    let answer = v.send(&Request::get(SHOP, "/").header("Answer-Status", "404"))?;
    ensure!(
        answer.status == 404 && answer.header("x-endpoint").is_some_and(|e| e.starts_with("blue-")),
        "{answer}"
    );
    Ok(())
}

/// Secrets, ConfigMaps and Services of blue's, by name.
fn references(v: &Villain<'_>) -> Result<()> {
    let of_blue = |name: &str| format!("{}/{name}", v.scene.blue.namespace);
    let users = of_blue("users");
    let cases = [
        vec![("auth-type", "basic".to_owned()), ("auth-secret", users.clone())],
        vec![("auth-tls-secret", of_blue("authority"))],
        vec![("proxy-ssl-secret", of_blue("tls")), ("backend-protocol", "HTTPS".into())],
        vec![("auth-type", "basic".into()), ("auth-secret", format!("../{users}"))],
    ];
    for (number, case) in cases.iter().enumerate() {
        let ingress = v.ingress(number, &v.host_of(number));
        let ingress = case.iter().fold(ingress, |ingress, (name, value)| ingress.with(name, value));
        v.apply([ingress.object()])?;
    }
    let tls = v.ingress("tls", &v.host_of("tls")).tls(&[&v.host_of("tls")], &of_blue("tls"));
    // The API server may refuse such a name by itself.
    let _ = v.apply([tls.object()]);
    v.settle()?;
    for (number, case) in cases.iter().enumerate() {
        let request =
            Request::get(&v.host_of(number), "/").header("Authorization", &basic("blue", "blue"));
        let answer = v.send(&request)?;
        ensure!(answer.endpoint().is_none(), "{:?}: {answer}", case);
    }
    v.told("Ingress", &v.name(0), &["auth-secret"])
}
