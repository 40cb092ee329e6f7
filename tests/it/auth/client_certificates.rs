//! Client certificates by host: every way around them that is known, with a client that decides about its handshakes
//! and sessions itself.

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

/// What a client sends is verified with bounded work: `oxigress-pki` tests each bound, this that the module uses it.
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

/// A session of one host is not gone on with for another: its client may have shown another certificate, or none.
#[test]
fn no_session_crosses_hosts_whose_policies_differ() {
    for (kind, tickets) in [("ids", false), ("tickets", true)] {
        pass(&format!("mtls-sessions-{kind}"), |directory| {
            let hosts = ["a.test", "same.test", "b.test", "open.test"];
            let more = format!("ssl_session_tickets {};", if tickets { "on" } else { "off" });
            let place = Place::start(directory, &hosts, &more)?;
            let (ours, other) = (Identity::root("ours")?, Identity::root("other")?);
            let client = ours.issue("client", VALID)?;
            place.put(
                json!({"a.test": on(&ours)?, "same.test": on(&ours)?, "b.test": on(&other)?}),
            )?;
            for version in [SslVersion::TLS1_2, SslVersion::TLS1_3] {
                let mut caller = Caller::with_tickets(place.site.https_port, "a.test", tickets)?;
                caller.version = version;
                let known = caller.showing(&client);
                for (name, resumes, status) in [
                    ("a.test", true, 200),
                    // Whoever may come to the one may come to the other.
                    ("same.test", true, 200),
                    ("b.test", false, 400),
                    ("open.test", false, 200),
                ] {
                    expect("first", known.status("a.test")?, 200)?;
                    let mut call = caller.name(Some(name)).resuming()?.call()?;
                    let is_resumed = call.is_resumed();
                    ensure!(is_resumed == resumes, "{version:?} to {name}: resumed {is_resumed}");
                    expect(&format!("{version:?} to {name}"), call.get(name, "/")?.status, status)?;
                }
                // The other way: a session of a host that asks for nothing.
                expect("open", caller.name(Some("open.test")).status("open.test")?, 200)?;
                let mut call = caller.name(Some("a.test")).resuming()?.call()?;
                ensure!(!call.is_resumed(), "{version:?}: resumed from an open host");
                expect("from an open host", call.get("a.test", "/")?.status, 400)?;
                // A failed one does not stick to the client.
                let mut call = known.name(Some("a.test")).call()?;
                expect("with it", call.get("a.test", "/")?.status, 200)?;
            }
            place.site.nginx.check_error_log()
        });
    }
}

/// The name of the handshake and that of the request need not be one.
#[test]
fn a_request_for_another_host_than_the_handshakes_is_misdirected() {
    pass("mtls-misdirected", |directory| {
        let hosts = ["a.test", "same.test", "b.test", "open.test", "*.wild.test"];
        let place = Place::start(directory, &hosts, "")?;
        let (ours, other) = (Identity::root("ours")?, Identity::root("other")?);
        let client = ours.issue("client", VALID)?;
        place.put(json!({"a.test": on(&ours)?, "same.test": on(&ours)?, "b.test": on(&other)?,
            "*.wild.test": on(&ours)?}))?;
        let caller = place.caller("a.test")?.showing(&client);
        let cases: [(Option<&str>, &str, u16); 22] = [
            (Some("a.test"), "a.test", 200),
            (Some("a.test"), "same.test", 200),
            (Some("a.test"), "b.test", 421),
            (Some("a.test"), "open.test", 421),
            (Some("a.test"), "none.test", 421),
            (Some("open.test"), "open.test", 200),
            (Some("open.test"), "a.test", 421),
            (Some("open.test"), "A.Test", 421),
            (Some("open.test"), "a.test.", 421),
            (Some("open.test"), "a.test:443", 421),
            (Some("open.test"), "A.TEST.:443", 421),
            (Some("none.test"), "a.test", 421),
            (Some("none.test"), "x.wild.test", 421),
            (None, "a.test", 421),
            (None, "open.test", 200),
            (Some("A.TEST"), "a.test", 200),
            (Some("a.test."), "a.test", 200),
            (Some("a.test"), "a.test:443", 200),
            (Some("a.test"), "A.Test.", 200),
            (Some("x.wild.test"), "y.wild.test", 200),
            (Some("x.y.wild.test"), "y.wild.test", 421),
            (Some("wild.test"), "y.wild.test", 421),
        ];
        for (name, host, expected) in cases {
            let what = format!("{name:?} then {host}");
            let status = caller.name(name).status(host).with_context(|| what.clone())?;
            expect(&what, status, expected)?;
        }
        // An authority in the request line goes before Host.
        let mut call = caller.name(Some("open.test")).call()?;
        let odd = "GET https://a.test/ HTTP/1.1\r\nHost: open.test\r\n\r\n";
        expect("absolute target", call.send(odd)?.status, 421)?;
        // No request of another host on a connection that has shown its certificate.
        let mut call = caller.call()?;
        expect("first", call.get("a.test", "/")?.status, 200)?;
        expect("second", call.get("same.test", "/")?.status, 200)?;
        expect("third", call.get("b.test", "/")?.status, 421)?;
        ensure!(call.is_closed()?, "the connection is kept");
        place.site.nginx.check_error_log()
    });
}

#[test]
fn requests_that_share_an_http2_connection_are_misdirected_too() {
    pass("mtls-h2", |directory| {
        let place = Place::start(directory, &["a.test", "b.test", "open.test"], "")?;
        let (ours, other) = (Identity::root("ours")?, Identity::root("other")?);
        let client = ours.issue("client", VALID)?;
        place.put(json!({"a.test": on(&ours)?, "b.test": on(&other)?}))?;
        let mut caller = place.caller("open.test")?.showing(&client);
        caller.is_h2 = true;
        let open = caller.call()?.h2_statuses(&["open.test", "a.test", "A.Test", "open.test"])?;
        ensure!(open == [200, 421, 421, 200], "{open:?}");
        let known = caller.name(Some("a.test"));
        let known = known.call()?.h2_statuses(&["a.test", "b.test", "open.test", "a.test"])?;
        ensure!(known == [200, 421, 421, 200], "{known:?}");
        place.site.nginx.check_error_log()
    });
}

/// A connection that lives through a change has not shown what is asked for now.
#[test]
fn a_kept_connection_does_not_outlive_its_policy() {
    pass("mtls-change", |directory| {
        let mut place = Place::start(directory, &["a.test"], "")?;
        let (ours, other) = (Identity::root("ours")?, Identity::root("other")?);
        let client = ours.issue("client", VALID)?;
        let revoking = json!({"client": {"authorities": ours.pem()?, "verify": "on", "depth": 1,
            "revoked": ours.revoke(&[&client])?}});
        let caller = place.caller("a.test")?.showing(&client);
        for (what, next, kept, anew) in [
            ("another authority", on(&other)?, 421, 400),
            ("revoked", revoking, 421, 400),
            ("no policy", json!({}), 421, 200),
        ] {
            place.put(json!({"a.test": on(&ours)?}))?;
            let mut call = caller.call()?;
            expect("before", call.get("a.test", "/")?.status, 200)?;
            place.put(json!({"a.test": next}))?;
            expect(&format!("{what}, kept"), call.get("a.test", "/")?.status, kept)?;
            ensure!(call.is_closed()?, "{what}: the connection is kept");
            // Nor is its session gone on with.
            let mut call = caller.resuming()?.call()?;
            ensure!(!call.is_resumed(), "{what}: resumed");
            expect(&format!("{what}, anew"), call.get("a.test", "/")?.status, anew)?;
        }
        // A policy that appears.
        let mut call = caller.call()?;
        expect("open", call.get("a.test", "/")?.status, 200)?;
        place.put(json!({"a.test": on(&ours)?}))?;
        expect("then not", call.get("a.test", "/")?.status, 421)?;
        // Sessions that outlive a reload are of the same policy.
        expect("before the reload", caller.status("a.test")?, 200)?;
        place.site.nginx.reload()?;
        let mut call = caller.resuming()?.call()?;
        ensure!(call.is_resumed(), "nginx keeps sessions over a reload");
        expect("after the reload", call.get("a.test", "/")?.status, 200)?;
        expect("nothing shown", caller.anonymous().status("a.test")?, 400)?;
        place.site.nginx.check_error_log()
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

/// What a policy names and is not there, or is no bundle of that kind, closes the host; what comes again opens it.
#[test]
fn a_host_whose_bundle_is_missing_is_closed() {
    pass("mtls-bundles", |directory| {
        let place = Place::start(directory, &["a.test", "open.test"], "")?;
        let (ours, client) = (Identity::root("ours")?, Identity::root("ours")?);
        let client = (ours.issue("client", VALID)?, client);
        let list = ours.revoke(&[])?;
        let mut tls = json!({"a.test": on(&ours)?});
        tls["a.test"]["client"]["revoked"] = json!(list);
        let whole = take_bundles(&mut tls, &BUNDLES);
        let without = |pem: &str| {
            let mut bundles = whole.clone();
            bundles.as_object_mut().and_then(|all| all.remove(&bundle_id(pem)));
            bundles
        };
        let caller = place.caller("a.test")?.showing(&client.0);
        // The parsed policy is kept by the worker, and that must not hide that a bundle has gone.
        for (what, bundles, expected) in [
            ("both", whole.clone(), 200),
            ("no authorities", without(&ours.pem()?), 503),
            ("both again", whole.clone(), 200),
            ("no revocations", without(&list), 503),
            ("none", json!({}), 503),
            ("both at last", whole.clone(), 200),
        ] {
            let (status, text) = place.write_with(&tls, &bundles)?;
            ensure!(status == 200, "{what}: {status} {text}");
            expect(what, caller.status("a.test")?, expected)?;
            expect("nothing shown", caller.anonymous().status("a.test")?, expected.max(400))?;
            expect("another host", place.caller("open.test")?.status("open.test")?, 200)?;
        }
        let mut crossed = json!({"a.test": on(&ours)?});
        crossed["a.test"]["client"]["revoked"] = json!(client.1.pem()?);
        place.put(crossed)?;
        expect("authorities as revocations", caller.status("a.test")?, 503)?;
        place.site.nginx.check_error_log()
    });
}

/// CPU that nginx's only worker has taken so far (`schedstat`, whose first field has nanoseconds).
fn worker_time(place: &Place) -> Result<Duration> {
    let pids = place.site.nginx.worker_pids();
    let text = fs::read_to_string(format!("/proc/{}/schedstat", pids[0]))?;
    let time = text.split_whitespace().next().context("schedstat")?;
    Ok(Duration::from_nanos(time.parse()?))
}

/// A bundle is read once beside any number of others, and as far as a handshake needs it; also where it cannot be used.
/// `oxigress-pki` counts what is decoded; here the worker's CPU is compared with that of handshakes for one authority.
#[test]
fn a_worker_reads_a_bundle_once_and_no_more_of_it_than_it_needs() {
    pass("mtls-parsed-once", |directory| {
        const HOSTS: u32 = 30;
        let hosts: Vec<_> = (0..HOSTS).map(|number| format!("h{number}.test")).collect();
        let names: Vec<_> = hosts.iter().map(String::as_str).collect();
        let place = Place::start(directory, &names, "")?;
        let ours = Identity::root("ours")?;
        let mut bundle = ours.pem()?;
        for number in 1..199 {
            bundle += &Identity::root(&format!("another authority {number}"))?.pem()?;
        }
        let client = ours.issue("client", VALID)?;
        let ask = |host: &str, expected: u16| -> Result<Duration> {
            let before = worker_time(&place)?;
            expect(host, place.caller(host)?.showing(&client).status(host)?, expected)?;
            Ok(worker_time(&place)? - before)
        };
        let policies = |bundle: &str| -> Result<Value> {
            let mut policies = serde_json::Map::new();
            for host in &hosts {
                let client = json!({"authorities": bundle, "revoked": ours.revoke(&[])?, "verify": "on", "depth": 1});
                policies.insert(host.clone(), json!({ "client": client }));
            }
            Ok(Value::Object(policies))
        };
        let all = || hosts.iter().map(|host| ask(host, 200)).collect::<Result<Vec<_>>>();
        place.put(policies(&ours.pem()?)?)?;
        let small = all()?.into_iter().sum::<Duration>() / HOSTS;
        place.put(policies(&bundle)?)?;
        let large = all()?;
        let (first, later) = (large[0], large[1..].iter().sum::<Duration>() / (HOSTS - 1));
        println!(
            "a handshake for 1 authority: {small:?}; for 199, the first: {first:?}, later: {later:?}"
        );
        ensure!(first < 8 * small && later < 4 * small, "{small:?} for 1, {first:?}, {later:?}");

        // Another one than the hosts share: good authorities, and no revocation lists.
        let crossed = ours.pem()? + &bundle;
        let unusable =
            json!({"authorities": crossed, "revoked": crossed, "verify": "on", "depth": 1});
        place.put(json!({"h0.test": {"client": unusable}}))?;
        ask("h0.test", 503)?;
        let again = (0..20).map(|_| ask("h0.test", 503)).sum::<Result<Duration>>()? / 20;
        ensure!(again < 4 * small, "{again:?} for a bundle that cannot be used, {small:?} for 1");
        Ok(())
    });
}

#[test]
fn what_could_not_be_served_is_refused_with_its_place() {
    pass("mtls-checks", |directory| {
        let place = Place::start(directory, &["a.test"], "")?;
        let ours = Identity::root("ours")?;
        let good = asks(&ours, "on")?;
        place.put(json!({"a.test": {"client": good}}))?;
        let damaged = ours.pem()?.replacen("MII", "MIX", 1);
        for (field, value) in [
            ("/client/authorities", json!("hello")),
            ("/client/authorities", json!("")),
            ("/client/authorities", json!(damaged)),
            ("/client/authorities", json!(ours.pem()? + &damaged)),
            ("/client/authorities", json!("#".repeat(1024 * 1024 + 1))),
            ("/client/authorities", json!(ours.pem()?.repeat(201))),
            ("/client/revoked", json!("hello")),
            ("/client/subject", json!("CN=(")),
            ("/ciphers", json!("NONE-SUCH")),
        ] {
            let mut policy = json!({"client": good});
            let mut pointer = format!("/snapshot/tls/a.test{field}");
            if BUNDLES.contains(&field) {
                pointer = format!("/snapshot/bundles/{}", bundle_id(value.as_str().unwrap_or("")));
            }
            if let Some(name) = field.strip_prefix("/client/") {
                policy["client"][name] = value;
            } else {
                policy["ciphers"] = value;
            }
            let (status, text) = place.write(&json!({"a.test": policy}))?;
            ensure!(status == 400 && text.contains(&pointer), "{field}: {status} {text}");
        }
        let id = bundle_id("another text");
        let (status, text) = place.write_with(&json!({}), &json!({&id: ours.pem()?}))?;
        ensure!(status == 400 && text.contains("SHA-256"), "not its digest: {status} {text}");
        // What was good stays.
        expect("nothing shown", place.caller("a.test")?.status("a.test")?, 400)?;
        place.site.nginx.check_error_log()
    });
}
