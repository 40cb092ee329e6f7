//! Client certificates by host: every way around them that is known, with a client that decides about its handshakes
//! and sessions itself.

mod bundles;
mod hosts;

use anyhow::{Context, Result, ensure};
use openssl::ssl::SslVersion;
use oxigress_tests::client::{Request, send};
use oxigress_tests::endpoint::Endpoint;
use oxigress_tests::mutual::{Caller, EXPIRED, Identity, VALID, bundle_id, expect, take_bundles};
use oxigress_tests::pass;
use oxigress_tests::place::Directory;
use oxigress_tests::site::{Plan, Site};
use oxigress_tests::wait::block_on;
use serde_json::{Value, json};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// nginx with hosts and their TLS policies.
struct Place {
    site: Site,
    endpoint: Endpoint,
    hosts: Vec<String>,
}

const BUNDLES: [&str; 2] = ["/client/authorities", "/client/revoked"];
const HTTP: &str = "http2 on;
    ssl_session_cache shared:SSL:1m;";

impl Place {
    fn start(directory: &Directory, hosts: &[&str], more: &str) -> Result<Self> {
        let plan = Plan { http_config: format!("{HTTP}\n{more}"), ..Plan::router(1)? };
        let site = Site::start(&plan, directory)?;
        let hosts = hosts.iter().map(|host| (*host).into()).collect();
        Ok(Place { site, endpoint: Endpoint::start("shop")?, hosts })
    }

    /// `tls` holds its bundles as PEM.
    fn write(&self, tls: &Value) -> Result<(u16, String)> {
        let mut tls = tls.clone();
        let bundles = take_bundles(&mut tls, &BUNDLES);
        self.write_with(&tls, &bundles)
    }

    fn write_with(&self, tls: &Value, bundles: &Value) -> Result<(u16, String)> {
        let rule = json!({"path": {"prefix": "/"}, "backend": "shop"});
        let servers: serde_json::Map<_, _> =
            self.hosts.iter().map(|host| (host.clone(), json!({"rules": [rule]}))).collect();
        let snapshot = json!({"version": 1, "snapshot": {"servers": servers, "tls": tls,
            "bundles": bundles, "backends": {"shop": {}}, "endpoints": {"shop": [self.endpoint.native()]}}});
        let answer = block_on(self.site.configuration.put(snapshot.to_string()))?;
        Ok((answer.status, answer.text()))
    }

    fn put(&self, tls: Value) -> Result<()> {
        let (status, text) = self.write(&tls)?;
        ensure!(status == 200, "{status} {text}");
        Ok(())
    }

    fn caller(&self, name: &str) -> Result<Caller<'static>> {
        Caller::new(self.site.https_port, name)
    }

    fn plain(&self, host: &str, path: &str) -> Result<oxigress_tests::client::Response> {
        block_on(send(&self.site.http(), &Request::get(host, path)))
    }
}

fn asks(authority: &Identity, verify: &str) -> Result<Value> {
    Ok(json!({"authorities": authority.pem()?, "verify": verify, "depth": 1}))
}

fn on(authority: &Identity) -> Result<Value> {
    Ok(json!({"client": asks(authority, "on")?}))
}

#[test]
fn a_request_passes_with_a_certificate_that_the_hosts_authority_vouches_for() {
    pass("mtls-basics", |directory| {
        let place = Place::start(directory, &["a.test", "open.test"], "")?;
        let (ours, other) = (Identity::root("ours")?, Identity::root("other")?);
        let client = ours.issue("client", VALID)?;
        let intermediate = ours.intermediate("between")?;
        let (far, expired) = (intermediate.issue("far", VALID)?, ours.issue("late", EXPIRED)?);
        let (stranger, itself) = (other.issue("client", VALID)?, Identity::root("itself")?);
        let revoked = ours.issue("revoked", VALID)?;
        let policy =
            |verify| -> Result<Value> { Ok(json!({"a.test": {"client": asks(&ours, verify)?}})) };
        let caller = place.caller("a.test")?;
        let cases = |expected: [u16; 7]| -> Result<()> {
            let shown = [&client, &stranger, &itself, &expired, &revoked, &far];
            expect("nothing", caller.status("a.test")?, expected[0])?;
            for (place, identity) in shown.iter().enumerate() {
                let status = caller.showing(identity).status("a.test")?;
                expect(&format!("certificate {place}"), status, expected[place + 1])?;
            }
            Ok(())
        };
        place.put(policy("on")?)?;
        cases([400, 200, 400, 400, 400, 200, 200]).context("on")?;
        place.put(policy("optional")?)?;
        cases([200, 200, 400, 400, 400, 200, 200]).context("optional")?;
        place.put(policy("optional_no_ca")?)?;
        cases([200, 200, 200, 200, 400, 200, 200]).context("optional_no_ca")?;
        let mut with_list = policy("on")?;
        with_list["a.test"]["client"]["revoked"] = json!(ours.revoke(&[&revoked])?);
        place.put(with_list)?;
        // `far`'s own authority has no list: nobody knows, which closes too.
        cases([400, 200, 400, 400, 400, 400, 400]).context("with a list")?;
        place.put(policy("off")?)?;
        cases([200; 7]).context("off")?;
        expect("a host without a policy", place.caller("open.test")?.status("open.test")?, 200)?;

        let page = place.put(policy("on")?).and_then(|()| caller.call()?.get("a.test", "/"))?;
        ensure!(page.body.contains("No required SSL certificate was sent"), "{page:?}");
        let page = caller.showing(&stranger).call()?.get("a.test", "/")?;
        ensure!(page.body.contains("The SSL certificate error"), "{page:?}");
        place.site.nginx.check_error_log()
    });
}

#[test]
fn the_depth_bounds_the_chain() {
    pass("mtls-depth", |directory| {
        let place = Place::start(directory, &["a.test"], "")?;
        let root = Identity::root("root")?;
        let client = root.intermediate("one")?.intermediate("two")?.issue("client", VALID)?;
        let caller = place.caller("a.test")?;
        for (depth, expected) in [(1, 400), (2, 200), (0, 400)] {
            let client_policy = json!({"authorities": root.pem()?, "verify": "on", "depth": depth});
            place.put(json!({"a.test": {"client": client_policy}}))?;
            expect(&format!("depth {depth}"), caller.showing(&client).status("a.test")?, expected)?;
        }
        place.site.nginx.check_error_log()
    });
}

/// What a client sends is verified with bounded work: `ssl::authorities` of `oxigress-nginx` tests each bound, this that the
/// module uses it.
#[test]
fn a_client_sends_so_many_certificates_and_no_more() {
    pass("mtls-sent", |directory| {
        let place = Place::start(directory, &["a.test"], "")?;
        let root = Identity::root("root")?;
        let policy = json!({"authorities": root.pem()?, "verify": "on", "depth": 50});
        place.put(json!({"a.test": {"client": policy}}))?;
        let caller = place.caller("a.test")?;
        let mut issuer = root;
        for (number, expected) in
            (1..=12).map(|number| (number, if number < 10 { 200 } else { 400 }))
        {
            issuer = issuer.intermediate(&format!("authority {number}"))?;
            let client = issuer.issue("client", VALID)?;
            let status = caller.showing(&client).status("a.test")?;
            expect(&format!("{number} beside its own"), status, expected)?;
        }
        for number in 0..40 {
            issuer = issuer.intermediate(&format!("another authority {number}"))?;
        }
        let large = issuer.issue("client", VALID)?;
        ensure!(caller.showing(&large).status("a.test").is_err(), "more than 16 KiB are taken");
        expect("another one", caller.status("a.test")?, 400)
    });
}

#[test]
fn endpoints_are_told_by_nobody_else() {
    pass("mtls-headers", |directory| {
        let place = Place::start(directory, &["a.test", "open.test"], "")?;
        let ours = Identity::root("ours")?;
        let client = ours.issue("client", VALID)?;
        let mut policy = asks(&ours, "optional")?;
        place.put(json!({"a.test": {"client": policy}}))?;
        let caller = place.caller("a.test")?;
        let forged = "GET / HTTP/1.1\r\nHost: HOST\r\nssl-client-verify: SUCCESS\r\n\
            SSL-Client-Subject-DN: CN=admin\r\nssl-client-cert: forged\r\n\r\n";
        let body = caller.call()?.send(&forged.replace("HOST", "a.test"))?.body;
        ensure!(body.contains("ssl-client-verify: NONE"), "{body}");
        ensure!(!body.contains("SUCCESS") && !body.contains("admin"), "{body}");
        let body = caller.showing(&client).call()?.send(&forged.replace("HOST", "a.test"))?.body;
        ensure!(body.contains("ssl-client-verify: SUCCESS"), "{body}");
        ensure!(body.contains("ssl-client-subject-dn: CN=client"), "{body}");
        ensure!(body.contains("ssl-client-issuer-dn: CN=ours"), "{body}");
        ensure!(!body.contains("ssl-client-cert"), "{body}");
        let body =
            place.caller("open.test")?.call()?.send(&forged.replace("HOST", "open.test"))?.body;
        ensure!(!body.contains("ssl-client"), "{body}");
        policy["passes_certificate"] = json!(true);
        place.put(json!({"a.test": {"client": policy}}))?;
        let body = caller.showing(&client).call()?.get("a.test", "/")?.body;
        ensure!(body.contains("ssl-client-cert: -----BEGIN%20CERTIFICATE-----%0A"), "{body}");
        place.site.nginx.check_error_log()
    });
}

#[test]
fn a_subject_is_looked_for() {
    pass("mtls-subject", |directory| {
        let place = Place::start(directory, &["a.test"], "")?;
        let ours = Identity::root("ours")?;
        let (alice, bob) = (ours.issue("alice", VALID)?, ours.issue("bob", VALID)?);
        let mut policy = asks(&ours, "optional")?;
        policy["subject"] = json!("CN=(alice|carol)$");
        place.put(json!({"a.test": {"client": policy}}))?;
        let caller = place.caller("a.test")?;
        expect("nothing", caller.status("a.test")?, 403)?;
        expect("alice", caller.showing(&alice).status("a.test")?, 200)?;
        expect("bob", caller.showing(&bob).status("a.test")?, 403)?;
        expect("plain", place.plain("a.test", "/")?.status, 403)?;
        place.site.nginx.check_error_log()
    });
}

/// Plain HTTP shows nothing: only what goes on to HTTPS, and a rule for an authority's challenges, may come.
#[test]
fn plain_http_is_no_way_around() {
    pass("mtls-plain", |directory| {
        let place = Place::start(directory, &["a.test"], "")?;
        let ours = Identity::root("ours")?;
        place.put(json!({"a.test": on(&ours)?}))?;
        for path in ["/", "/.well-known/acme-challenge/x", "//", "/a/../b"] {
            expect(path, place.plain("a.test", path)?.status, 400)?;
        }
        expect("another case", place.plain("A.TEST.", "/")?.status, 400)?;
        let challenge = "/.well-known/acme-challenge/token";
        let rule = |path: &str, redirect: &str| {
            json!({"path": {"prefix": path}, "backend": "shop", "origin": {"path": path},
                "policy": {"https_redirect": redirect}})
        };
        let patch = json!({"version": 1, "upsert": {"servers": {"a.test": {"rules":
            [rule("/", "always"), rule(challenge, "never")]}}}});
        let tag = block_on(place.site.configuration.tag())?;
        let answer = block_on(place.site.configuration.patch(&tag, patch.to_string()))?;
        ensure!(answer.status == 200, "{answer}");
        expect("redirected", place.plain("a.test", "/")?.status, 308)?;
        expect("challenge", place.plain("a.test", challenge)?.status, 200)?;
        let aside = "/.well-known/acme-challenge/other";
        expect("another challenge", place.plain("a.test", aside)?.status, 308)?;
        // Who names no host cannot be sent to HTTPS, and so does not come either.
        let mut tls = json!({"_": on(&ours)?});
        let bundles = take_bundles(&mut tls, &BUNDLES);
        let patch = json!({"version": 1, "upsert": {"tls": tls, "bundles": bundles,
            "servers": {"_": {"rules": [rule("/", "always")]}}}});
        let tag = block_on(place.site.configuration.tag())?;
        let answer = block_on(place.site.configuration.patch(&tag, patch.to_string()))?;
        ensure!(answer.status == 200, "{answer}");
        let mut nameless = TcpStream::connect(("127.0.0.1", place.site.http_port))?;
        nameless.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
        let mut text = String::new();
        nameless.read_to_string(&mut text)?;
        ensure!(text.starts_with("HTTP/1.1 400"), "{text}");
        place.site.nginx.check_error_log()
    });
}

#[test]
fn an_error_page_is_for_those_without_a_certificate_and_for_nothing_else() {
    pass("mtls-error-page", |directory| {
        let place = Place::start(directory, &["a.test"], "")?;
        let ours = Identity::root("ours")?;
        let client = ours.issue("client", VALID)?;
        let caller = place.caller("a.test")?;
        let with = |page: &str| -> Result<Value> {
            let mut policy = asks(&ours, "on")?;
            policy["error_page"] = json!(page);
            Ok(json!({"a.test": {"client": policy}}))
        };
        place.put(with("https://login.test/?from=$host")?)?;
        let answer = caller.call()?.get("a.test", "/")?;
        expect("elsewhere", answer.status, 302)?;
        ensure!(
            answer.head.contains("Location: https://login.test/?from=a.test\r\n"),
            "{answer:?}"
        );
        place.put(with("/sorry?why=certificate")?)?;
        let answer = caller.call()?.get("a.test", "/secret")?;
        expect("internal", answer.status, 200)?;
        ensure!(answer.body.to_lowercase().contains("get /s"), "{answer:?}");
        ensure!(place.endpoint.requests() == 1, "{} requests", place.endpoint.requests());
        // The page itself is no way in for whoever names it, nor is what lies below.
        for path in ["/sorry/../secret", "/sorry/x"] {
            let answer = caller.call()?.get("a.test", path)?;
            ensure!(!answer.body.contains("/secret") || answer.body.contains("why"), "{answer:?}");
        }
        expect("with one", caller.showing(&client).status("a.test")?, 200)?;
        place.put(with("@nowhere")?)?;
        expect("named", caller.status("a.test")?, 400)?;
        let (status, text) = place.write(&with("/$arg_page")?)?;
        ensure!(status == 400 && text.contains("/snapshot/tls/a.test/client/error_page"), "{text}");
        place.site.nginx.check_error_log()
    });
}

#[test]
fn a_denied_host_answers_403_to_everybody() {
    pass("mtls-denied", |directory| {
        let place = Place::start(directory, &["a.test", "open.test"], "")?;
        place.put(json!({"a.test": {"denied": true}}))?;
        expect("TLS", place.caller("a.test")?.status("a.test")?, 403)?;
        expect("plain", place.plain("a.test", "/.well-known/acme-challenge/x")?.status, 403)?;
        expect("another name", place.caller("open.test")?.status("a.test")?, 403)?;
        expect("another host", place.caller("open.test")?.status("open.test")?, 200)?;
        place.site.nginx.check_error_log()
    });
}

#[test]
fn a_host_has_ciphers_of_its_own() {
    pass("tls-ciphers", |directory| {
        let place = Place::start(directory, &["a.test", "b.test"], "")?;
        let (first, second) = ("ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES256-GCM-SHA384");
        place.put(json!({"a.test": {"ciphers": second},
            "b.test": {"ciphers": format!("{second}:{first}"), "prefers_server_ciphers": true}}))?;
        let mut caller = place.caller("a.test")?;
        caller.version = SslVersion::TLS1_2;
        caller.ciphers = Some(format!("{first}:{second}"));
        let cipher = |name| -> Result<String> { Ok(caller.name(Some(name)).call()?.cipher()) };
        ensure!(cipher("a.test")? == second, "{}", cipher("a.test")?);
        ensure!(cipher("b.test")? == second, "{}", cipher("b.test")?);
        ensure!(cipher("c.test")? == first, "{}", cipher("c.test")?);
        // Ciphers say nothing about who may come.
        expect("another host", caller.name(None).status("a.test")?, 200)?;
        place.site.nginx.check_error_log()
    });
}
