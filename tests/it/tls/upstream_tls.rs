//! TLS toward endpoints as policies say it: who is trusted, what is shown, and whose connection is whose.

use anyhow::{Result, ensure};
use oxigress_tests::client::{Request, Response, send};
use oxigress_tests::mutual::{
    EXPIRED, Identity, Seen, TlsEndpoint, VALID, bundle_id, take_bundles,
};
use oxigress_tests::pass;
use oxigress_tests::place::Directory;
use oxigress_tests::site::{Plan, Site};
use oxigress_tests::wait::block_on;
use serde_json::{Value, json};

/// nginx with an endpoint that speaks TLS.
struct Place {
    site: Site,
    endpoint: TlsEndpoint,
}

impl Place {
    fn start(directory: &Directory, identity: &Identity) -> Result<Self> {
        let site = Site::start(&Plan::router(1)?, directory)?;
        Ok(Place { site, endpoint: TlsEndpoint::start(identity)? })
    }

    /// Hosts with their TLS toward the endpoint, which holds bundles as PEM.
    fn write(&self, hosts: &[(&str, &Value)]) -> Result<Response> {
        let (mut servers, mut policies) = (json!({}), json!({}));
        for (host, tls) in hosts {
            let rule = json!({"path": {"prefix": "/"}, "backend": "up", "policies": host});
            servers[host] = json!({"rules": [rule]});
            policies[host] = json!({"proxy": {"protocol": "https", "tls": tls}});
        }
        let bundles = take_bundles(&mut policies, &["/proxy/tls/authorities"]);
        let snapshot = json!({"version": 1, "snapshot": {"servers": servers, "policies": policies,
            "bundles": bundles, "backends": {"up": {}}, "endpoints": {"up": [self.endpoint.native()]}}});
        block_on(self.site.configuration.put(snapshot.to_string()))
    }

    fn put(&self, hosts: &[(&str, &Value)]) -> Result<()> {
        let answer = self.write(hosts)?;
        ensure!(answer.status == 200, "{answer}");
        Ok(())
    }

    fn get(&self, host: &str) -> Result<Response> {
        block_on(send(&self.site.http(), &Request::get(host, "/")))
    }

    fn seen(&self, host: &str) -> Result<Seen> {
        let answer = self.get(host)?;
        ensure!(answer.status == 200, "{host}: {answer}");
        Seen::parse(&answer.text())
    }
}

fn showing(identity: &Identity) -> Result<Value> {
    Ok(json!({"certificate": identity.pem()?, "key": identity.key_pem()?}))
}

#[test]
fn an_endpoint_is_trusted_as_the_policy_says() {
    pass("upstream-verify", |directory| {
        let (ours, other) = (Identity::root("ours")?, Identity::root("other")?);
        let place = Place::start(directory, &ours.issue("up.test", VALID)?)?;
        let (ours, other) = (ours.pem()?, other.pem()?);
        for (tls, host, expected) in [
            (json!({}), "a.test", 200),
            (json!({"authorities": other}), "a.test", 200),
            (json!({"authorities": ours, "verify": true, "name": "up.test"}), "a.test", 200),
            (json!({"authorities": other, "verify": true, "name": "up.test"}), "a.test", 502),
            (json!({"verify": true, "name": "up.test"}), "a.test", 502),
            (json!({"authorities": ours, "verify": true, "name": "down.test"}), "a.test", 502),
            // The host of the request, where there is no other name.
            (json!({"authorities": ours, "verify": true}), "a.test", 502),
            (json!({"authorities": ours, "verify": true}), "up.test", 200),
        ] {
            place.put(&[(host, &tls)])?;
            let status = place.get(host)?.status;
            ensure!(status == expected, "{host}: {status} and not {expected} with {tls}");
        }
        place.site.nginx.check_error_log()
    });
}

/// Its bundle goes while everything else stays, and comes again.
#[test]
fn a_rule_whose_bundle_is_missing_is_closed() {
    pass("upstream-bundle", |directory| {
        let ours = Identity::root("ours")?;
        let place = Place::start(directory, &ours.issue("up.test", VALID)?)?;
        let tls = json!({"authorities": ours.pem()?, "verify": true, "name": "up.test"});
        let id = bundle_id(&ours.pem()?);
        place.put(&[("a.test", &tls), ("open.test", &json!({}))])?;
        for (bundles, expected) in [
            (json!({"upsert": {}}), 200),
            (json!({"remove": {"bundles": [id]}}), 503),
            (json!({"upsert": {"bundles": {&id: ours.pem()?}}}), 200),
        ] {
            let mut patch = bundles.clone();
            patch["version"] = json!(1);
            let tag = block_on(place.site.configuration.tag())?;
            let answer = block_on(place.site.configuration.patch(&tag, patch.to_string()))?;
            ensure!(answer.status == 200, "{answer}");
            let status = place.get("a.test")?.status;
            ensure!(status == expected, "{status} and not {expected} with {bundles}");
            ensure!(place.get("open.test")?.status == 200, "another host is closed");
        }
        place.site.nginx.check_error_log()
    });
}

#[test]
fn depth_and_dates_count() {
    pass("upstream-depth", |directory| {
        let ours = Identity::root("ours")?;
        let far = ours.intermediate("one")?.intermediate("two")?.issue("up.test", VALID)?;
        let place = Place::start(directory, &far)?;
        let tls = |depth: u32| -> Result<Value> {
            Ok(json!({"authorities": ours.pem()?, "verify": true, "name": "up.test",
                "verify_depth": depth}))
        };
        for (depth, expected) in [(1, 502), (2, 200), (0, 502)] {
            place.put(&[("a.test", &tls(depth)?)])?;
            let status = place.get("a.test")?.status;
            ensure!(status == expected, "depth {depth}: {status}");
        }
        let late = TlsEndpoint::start(&ours.issue("up.test", EXPIRED)?)?;
        let place = Place { endpoint: late, ..place };
        place.put(&[("a.test", &tls(2)?)])?;
        ensure!(place.get("a.test")?.status == 502, "an expired certificate is trusted");
        place.site.nginx.check_error_log()
    });
}

#[test]
fn name_version_and_cipher_are_the_policys() {
    pass("upstream-handshake", |directory| {
        let ours = Identity::root("ours")?;
        let place = Place::start(directory, &ours.issue("up.test", VALID)?)?;
        let cipher = "ECDHE-ECDSA-AES256-GCM-SHA384";
        place.put(&[
            ("plain.test", &json!({"ciphers": cipher})),
            ("named.test", &json!({"server_name": true, "name": "up.test"})),
            ("host.test", &json!({"server_name": true})),
            ("new.test", &json!({"protocols": ["TLSv1.3"]})),
            ("both.test", &json!({"protocols": ["TLSv1.2", "TLSv1.3"]})),
        ])?;
        let plain = place.seen("plain.test")?;
        ensure!(plain.version == "TLSv1.2" && plain.cipher == cipher, "{plain:?}");
        ensure!(plain.name.is_empty() && plain.subject.is_empty(), "{plain:?}");
        ensure!(place.seen("named.test")?.name == "up.test", "not the name");
        ensure!(place.seen("host.test")?.name == "host.test", "not the host");
        ensure!(place.seen("new.test")?.version == "TLSv1.3", "not the version");
        ensure!(place.seen("both.test")?.version == "TLSv1.3", "not the newest version");
        place.site.nginx.check_error_log()
    });
}

/// A connection that was opened with one client's certificate serves nobody else.
#[test]
fn no_connection_is_shared_by_two_identities() {
    pass("upstream-identity", |directory| {
        let ours = Identity::root("ours")?;
        let place = Place::start(directory, &ours.issue("up.test", VALID)?)?;
        let (alice, bob) = (ours.issue("alice", VALID)?, ours.issue("bob", VALID)?);
        let (alice, bob) = (showing(&alice)?, showing(&bob)?);
        let none = json!({});
        place.put(&[
            ("alice.test", &alice),
            ("too.test", &alice),
            ("bob.test", &bob),
            ("none.test", &none),
        ])?;
        let hosts = [("alice.test", "alice"), ("bob.test", "bob"), ("none.test", "")];
        for round in 1..=3 {
            for (host, subject) in hosts {
                let seen = place.seen(host)?;
                ensure!(seen.subject == subject, "round {round}, {host}: {seen:?}");
                // Else this would say nothing: its own connection is waiting.
                ensure!(seen.requests == round, "round {round}, {host}: {seen:?}");
            }
        }
        let seen = place.seen("too.test")?;
        ensure!(seen.subject == "alice" && seen.requests == 4, "not the same identity: {seen:?}");
        // Certificates that come and go: what is freed may be followed by another at its address.
        for round in 0..30 {
            let (tls, subject) = if round % 2 == 0 { (&bob, "bob") } else { (&alice, "alice") };
            place.put(&[("turns.test", tls)])?;
            let seen = place.seen("turns.test")?;
            ensure!(seen.subject == subject, "turn {round}: {seen:?}");
        }
        place.site.nginx.check_error_log()
    });
}

#[test]
fn what_could_not_be_used_is_refused_with_its_place() {
    pass("upstream-checks", |directory| {
        let ours = Identity::root("ours")?;
        let place = Place::start(directory, &ours.issue("up.test", VALID)?)?;
        let (alice, bob) = (ours.issue("alice", VALID)?, ours.issue("bob", VALID)?);
        let crossed = json!({"certificate": alice.pem()?, "key": bob.key_pem()?});
        for (field, tls) in [
            ("certificate", crossed),
            ("certificate", json!({"certificate": alice.pem()?})),
            ("certificate", json!({"key": alice.key_pem()?})),
            ("ciphers", json!({"ciphers": "NONE-SUCH"})),
            ("protocols", json!({"protocols": ["SSLv3"]})),
        ] {
            let answer = place.write(&[("a.test", &tls)])?;
            let pointer = format!("/snapshot/policies/a.test/proxy/tls/{field}");
            ensure!(answer.status == 400 && answer.text().contains(&pointer), "{field}: {answer}");
            ensure!(!answer.text().contains("PRIVATE"), "{answer}");
        }
        let answer = place.write(&[("a.test", &json!({"authorities": "hello"}))])?;
        let pointer = format!("/snapshot/bundles/{}", bundle_id("hello"));
        ensure!(answer.status == 400 && answer.text().contains(&pointer), "{answer}");
        place.site.nginx.check_error_log()
    });
}
