//! One bad object affects only itself: whatever one Ingress says, those of others are served and updated.
//!
//! Each case is a folder with a good neighbour, a bad object, and then an edit of the neighbour that has to become live.

use anyhow::{Result, ensure};
use openssl::asn1::Asn1Time;
use openssl::bn::BigNum;
use openssl::ec::{EcGroup, EcKey};
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{PKey, PKeyRef, Private};
use openssl::x509::extension::{BasicConstraints, SubjectAlternativeName};
use openssl::x509::{X509, X509NameBuilder};
use oxigress_tests::client::{Address, Request, send};
use oxigress_tests::controller::Controller;
use oxigress_tests::endpoint::Endpoint;
use oxigress_tests::manifest::{secret, service};
use oxigress_tests::mutual::{Identity, VALID};
use oxigress_tests::pass;
use oxigress_tests::wait::{block_on, until};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::time::{Duration, Instant};

fn ingress(name: &str, annotations: &[(&str, &str)]) -> String {
    let mut text = format!(
        "---\napiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata:\n  name: {name}\n  \
         namespace: default\n  annotations:\n    kubernetes.io/ingress.class: nginx\n"
    );
    for (annotation, value) in annotations {
        let _ = writeln!(text, "    nginx.ingress.kubernetes.io/{annotation}: {value:?}");
    }
    let _ = writeln!(
        text,
        "spec:\n  rules:\n  - host: {name}.test\n    http:\n      paths:\n      - {{ path: /, pathType: Prefix, \
         backend: {{ service: {{ name: {name}, port: {{ number: 80 }} }} }} }}"
    );
    text
}

/// Serves the neighbour, then `bad` (whose Ingress is `bad`), then an edit of the neighbour, and then starts again beside both.
fn neighbour_is_served_beside(case: &str, bad: &[String], named: &str) {
    neighbour_and(case, bad, named, &[]);
}

/// The same; `statuses` are those of paths of the bad host.
fn neighbour_and(case: &str, bad: &[String], named: &str, statuses: &[(&str, u16)]) {
    pass(case, |directory| {
        let (first, second) = (Endpoint::start("first")?, Endpoint::start("second")?);
        let mut controller = Controller::start(directory, 1, &[])?;
        controller
            .serve("good.yaml", &(ingress("good", &[]) + &service("good", first.address.port())))?;
        let text = bad.concat() + &service("bad", first.address.port());
        // It may never be served: only the neighbour is waited for.
        controller.write("bad.yaml", &text)?;
        controller.serve(
            "good.yaml",
            &(ingress("good", &[]) + &service("good", second.address.port())),
        )?;
        let http = Address::http(controller.http_port);
        let answer = block_on(send(&http, &Request::get("good.test", "/")))?;
        ensure!(answer.endpoint().as_deref() == Some("second"), "{answer:?}");
        let log = until("a line about the object", || {
            let log = controller.error_log();
            ensure!(log.contains("default/bad") && log.contains(named), "{log}");
            Ok(log)
        })?;
        ensure!(!log.contains("nginx refused the configuration"), "{log}");
        let answer = block_on(send(&http, &Request::get("bad.test", "/")))?;
        ensure!(answer.endpoint().is_none() || named == "ssl-ciphers", "it is open: {answer:?}");
        let check = |when: &str| -> Result<()> {
            for (path, status) in statuses {
                let answer = block_on(send(&http, &Request::get("bad.test", path)))?;
                ensure!(answer.status == *status, "{when}: {path} {answer:?}");
            }
            Ok(())
        };
        check("served")?;
        // A pod that starts beside the bad object is ready, and serves the neighbour from what it reads alone.
        controller.stop()?;
        fs::remove_dir_all(directory.join("run"))?;
        controller.start_again(&[])?;
        controller.is_ready()?;
        let answer = block_on(send(&http, &Request::get("good.test", "/")))?;
        ensure!(answer.endpoint().as_deref() == Some("second"), "started again: {answer:?}");
        check("started again")
    });
}

/// 580 expressions that cost 33 ms each to compile, and 580 that are served each but cost too much together. What is not served
/// is closed from its plain beginning on.
#[test]
fn beside_regular_expressions_that_take_seconds_to_compile() {
    for (case, pattern, named, statuses) in [
        (
            "isolation-dear",
            format!("[{}]x", r"\pL\PL".repeat(165)),
            "to compile, at most",
            [("/0/ax", 503), ("/579/ax", 503), ("/root", 200)],
        ),
        (
            "isolation-many",
            r"\p{L}+".to_owned(),
            "take more than 100 ms to compile",
            [("/0/ax", 200), ("/579/ax", 503), ("/root", 200)],
        ),
    ] {
        let mut bad = ingress("bad", &[("use-regex", "true")]);
        for n in 0..580 {
            let _ = writeln!(
                bad,
                "      - {{ path: '/{n}/{pattern}', pathType: ImplementationSpecific, \
                 backend: {{ service: {{ name: bad, port: {{ number: 80 }} }} }} }}"
            );
        }
        let bad = bad.replace("path: /, pathType: Prefix", "path: /root, pathType: Exact");
        neighbour_and(case, &[bad], named, &statuses);
    }
}

#[test]
fn beside_a_cipher_that_openssl_does_not_know() {
    let bad = ingress("bad", &[("ssl-ciphers", "foo")]);
    neighbour_is_served_beside("isolation-ciphers", &[bad], "ssl-ciphers");
}

#[test]
fn beside_a_cipher_toward_endpoints_that_openssl_does_not_know() {
    let ca = Identity::root("ca").unwrap();
    let authorities = [("ca.crt", ca.pem().unwrap())];
    let annotations = [
        ("proxy-ssl-secret", "default/authorities"),
        ("proxy-ssl-ciphers", "foo"),
        ("backend-protocol", "HTTPS"),
    ];
    let bad = [ingress("bad", &annotations), secret("authorities", &authorities)];
    neighbour_is_served_beside("isolation-upstream-ciphers", &bad, "proxy-ssl-ciphers");
}

#[test]
fn beside_one_good_and_one_damaged_revocation_list() {
    let ca = Identity::root("ca").unwrap();
    let one = ca.issue("one", VALID).unwrap();
    let list = ca.revoke(&[&one]).unwrap();
    let damaged = list.replacen("\nMI", "\nAA", 1);
    assert_ne!(list, damaged, "{list}");
    let fields = [("ca.crt", ca.pem().unwrap()), ("ca.crl", list + &damaged)];
    let annotations = [("auth-tls-secret", "default/authorities")];
    let bad = [ingress("bad", &annotations), secret("authorities", &fields)];
    neighbour_is_served_beside("isolation-revocations", &bad, "ca.crl");
}

/// Ingresses of the Service `host-0` that together need several MiB of the zone.
fn many() -> String {
    let mut text = String::new();
    for number in 0..HOSTS {
        let one = ingress(&format!("host-{number}"), &[])
            .replace(&format!("name: host-{number}, port"), "name: host-0, port");
        let (before, path) = one.split_at(one.find("      - { path").unwrap_or(one.len()));
        text += before;
        for path_number in 0..40 {
            let deep = format!("path: /{path_number}/{},", "long".repeat(20));
            text += &path.replace("path: /,", &deep);
        }
        text += path;
    }
    text
}

const HOSTS: usize = 400;

#[test]
fn a_zone_that_is_too_small_grows_and_everything_is_served() {
    pass("isolation-zone", |directory| {
        let endpoint = Endpoint::start("first")?;
        let flags = ["--zone-size=1m".to_owned(), "--zone-size-max=64m".to_owned()];
        let mut controller = Controller::start(directory, 1, &flags)?;
        let text = service("host-0", endpoint.address.port()) + &many();
        controller.write("many.yaml", &text)?;
        let http = Address::http(controller.http_port);
        for number in [0, HOSTS / 2, HOSTS - 1] {
            until("the host", || {
                let answer =
                    block_on(send(&http, &Request::get(&format!("host-{number}.test"), "/")))?;
                ensure!(answer.status == 200, "{answer:?}");
                Ok(())
            })?;
        }
        let log = controller.error_log();
        ensure!(log.contains("the zone grows from 1 to"), "{log}");
        controller.serve("one.yaml", &ingress("one-more", &[]))?;
        Ok(())
    });
}

#[test]
fn a_zone_that_may_not_grow_serves_the_small_namespace() {
    pass("isolation-zone-limit", |directory| {
        let endpoint = Endpoint::start("first")?;
        let flags = ["--zone-size=1m".to_owned(), "--zone-size-max=1m".to_owned()];
        let controller = Controller::start(directory, 1, &flags)?;
        let text = service("host-0", endpoint.address.port()) + &many();
        controller.write("many.yaml", &text)?;
        until("a full zone", || {
            ensure!(controller.error_log().contains("raise --zone-size-max"), "not full");
            Ok(())
        })?;
        let small = ingress("small", &[]) + &service("small", endpoint.address.port());
        let small = small.replace("namespace: default", "namespace: small");
        controller.write("small.yaml", &small)?;
        let http = Address::http(controller.http_port);
        until("the small namespace", || {
            let answer = block_on(send(&http, &Request::get("small.test", "/")))?;
            ensure!(answer.status == 200, "{answer:?}");
            Ok(())
        })?;
        // Closed, not open and not another host's.
        let statuses = (0..HOSTS).step_by(20).map(|number| {
            block_on(send(&http, &Request::get(&format!("host-{number}.test"), "/")))
                .map(|a| a.status)
        });
        let statuses = statuses.collect::<Result<Vec<_>>>()?;
        ensure!(statuses.iter().all(|s| [200, 503].contains(s)), "{statuses:?}");
        ensure!(statuses.contains(&503) && statuses.contains(&200), "{statuses:?}");
        Ok(())
    });
}

/// A namespace adds paths to its neighbour's host until the zone is full: it loses these, and the neighbour nothing.
#[test]
fn a_guest_that_fills_the_zone_does_not_close_the_host() {
    pass("isolation-guest", |directory| {
        let endpoint = Endpoint::start("first")?;
        let flags = ["--zone-size=1m".to_owned(), "--zone-size-max=1m".to_owned()];
        let mut controller = Controller::start(directory, 1, &flags)?;
        let good = ingress("good", &[]) + &service("good", endpoint.address.port());
        controller.serve("good.yaml", &good)?;
        let mut guest = ingress("guest", &[]).replace("host: guest.test", "host: good.test");
        for number in 0..6_000 {
            let _ = writeln!(
                guest,
                "      - {{ path: /guest/{number}/{}, pathType: Prefix, \
                 backend: {{ service: {{ name: guest, port: {{ number: 80 }} }} }} }}",
                "long".repeat(40)
            );
        }
        let guest = guest.replace("namespace: default", "namespace: guest");
        let guest = guest.replace("path: /, pathType", "path: /guest, pathType");
        controller.write("guest.yaml", &guest)?;
        until("a full zone", || {
            let log = controller.error_log();
            ensure!(
                log.contains("rules of namespace guest in servers good.test are not served"),
                "{log}"
            );
            Ok(())
        })?;
        let http = Address::http(controller.http_port);
        let answer = block_on(send(&http, &Request::get("good.test", "/guest")))?;
        ensure!(
            answer.endpoint().as_deref() == Some("first"),
            "the guest's rules are gone: {answer:?}"
        );
        let small = small_goes_live(&controller, &endpoint, "small")?;
        println!("another namespace's host is live after {small:?}");
        // What the guest has is served as soon as it fits.
        let short = guest.lines().filter(|line| !line.contains("longlong"));
        let short: String = short.map(|line| format!("{line}\n")).collect();
        controller.write("guest.yaml", &short)?;
        until("the guest's path", || {
            let answer = block_on(send(&http, &Request::get("good.test", "/guest")))?;
            ensure!(answer.status == 503, "it has no endpoint: {answer:?}");
            Ok(())
        })
    });
}

/// Certificates of authorities that together have about a MiB of PEM, none of which is in another bundle.
fn bulky_bundle(key: &PKeyRef<Private>, number: u32) -> Result<String> {
    let mut text = String::new();
    for serial in 0..BULKY_CERTIFICATES {
        let mut name = X509NameBuilder::new()?;
        name.append_entry_by_nid(Nid::COMMONNAME, &format!("authority {number}.{serial}"))?;
        let name = name.build();
        let mut builder = X509::builder()?;
        builder.set_version(2)?;
        let serial = BigNum::from_u32(number * 1_000 + serial + 1)?;
        builder.set_serial_number(serial.to_asn1_integer()?.as_ref())?;
        builder.set_subject_name(&name)?;
        builder.set_issuer_name(&name)?;
        builder.set_pubkey(key)?;
        builder.set_not_before(Asn1Time::days_from_now(0)?.as_ref())?;
        builder.set_not_after(Asn1Time::days_from_now(30)?.as_ref())?;
        builder.append_extension(BasicConstraints::new().critical().ca().build()?)?;
        let mut names = SubjectAlternativeName::new();
        for place in 0..150 {
            names.dns(&format!("a-long-name-number-{place}.of-an-authority.test"));
        }
        let names = names.build(&builder.x509v3_context(None, None))?;
        builder.append_extension(names)?;
        builder.sign(key, MessageDigest::sha256())?;
        text += &String::from_utf8(builder.build().to_pem()?)?;
    }
    Ok(text)
}

const BULKY_CERTIFICATES: u32 = 105;
/// Hosts with client certificates.
const GUARDED: u32 = 70;

/// Writes an Ingress of the namespace `small` and waits for it; how long that takes.
fn small_goes_live(controller: &Controller, endpoint: &Endpoint, name: &str) -> Result<Duration> {
    let small = ingress(name, &[]) + &service(name, endpoint.address.port());
    let start = Instant::now();
    controller
        .write(&format!("{name}.yaml"), &small.replace("namespace: default", "namespace: small"))?;
    let http = Address::http(controller.http_port);
    until("the small namespace", || {
        let answer = block_on(send(&http, &Request::get(&format!("{name}.test"), "/")))?;
        ensure!(answer.status == 200, "{answer:?}");
        Ok(())
    })?;
    Ok(start.elapsed())
}

/// What a namespace changes at once may take two seconds to compile; the rest waits, and nobody else does.
#[test]
fn a_namespace_whose_changes_take_long_waits_alone() {
    pass("isolation-pace", |directory| {
        let endpoint = Endpoint::start("first")?;
        let mut controller = Controller::start(directory, 1, &[])?;
        let good = ingress("good", &[]) + &service("good", endpoint.address.port());
        controller.serve("good.yaml", &good)?;
        let mut dear = service("good", endpoint.address.port());
        for number in 0..23 {
            let name = format!("dear{number}");
            dear += &ingress(&name, &[("use-regex", "true")])
                .replace(&format!("service: {{ name: {name},"), "service: { name: good,");
            for path in 0..240 {
                let _ = writeln!(
                    dear,
                    "      - {{ path: '/{path}/\\p{{L}}', pathType: ImplementationSpecific, \
                     backend: {{ service: {{ name: good, port: {{ number: 80 }} }} }} }}"
                );
            }
        }
        controller.write("dear.yaml", &dear.replace("namespace: default", "namespace: dear"))?;
        until("a change that waits", || {
            let log = controller.error_log();
            ensure!(log.contains("its last change is not served yet"), "{log}");
            Ok(())
        })?;
        let small = small_goes_live(&controller, &endpoint, "small")?;
        println!("another namespace's host is live after {small:?}");
        let http = Address::http(controller.http_port);
        for number in [0, 22] {
            until("every host of the namespace", || {
                let request = Request::get(&format!("dear{number}.test"), "/");
                let answer = block_on(send(&http, &request))?;
                ensure!(answer.status == 200, "{answer:?}");
                Ok(())
            })?;
        }
        Ok(())
    });
}

#[test]
fn seventy_hosts_with_one_padded_bundle_fill_nothing() {
    pass("isolation-padded-bundle", |directory| {
        let endpoint = Endpoint::start("first")?;
        let controller = Controller::start(directory, 1, &["--zone-size-max=64m".to_owned()])?;
        let ca = Identity::root("ca")?.pem()?;
        let padded = format!("{}{ca}{ca}", "# this is a comment\n".repeat(52_000));
        ensure!(padded.len() > 1_000_000 && padded.len() <= 1 << 20, "{} bytes", padded.len());
        let mut text = service("guarded-0", endpoint.address.port());
        for number in 0..GUARDED {
            // Different policies, so that these are not one record.
            let host = ingress(
                &format!("guarded-{number}"),
                &[
                    ("auth-tls-secret", "default/authorities"),
                    ("proxy-ssl-secret", "default/authorities"),
                    ("backend-protocol", "AUTO_HTTP"),
                    ("proxy-body-size", &format!("{}k", number + 1)),
                ],
            );
            text +=
                &host.replace(&format!("name: guarded-{number}, port"), "name: guarded-0, port");
        }
        controller.write("many.yaml", &(secret("authorities", &[("ca.crt", padded)]) + &text))?;
        let http = Address::http(controller.http_port);
        for number in [0, GUARDED - 1] {
            until("a guarded host", || {
                let host = format!("guarded-{number}.test");
                let answer = block_on(send(&http, &Request::get(&host, "/")))?;
                ensure!(answer.status == 400, "{answer:?}");
                Ok(())
            })?;
        }
        for name in ["small", "smaller"] {
            let took = small_goes_live(&controller, &endpoint, name)?;
            println!("{name} is live after {took:?}");
        }
        let log = controller.error_log();
        ensure!(
            !log.contains("left out")
                && !log.contains("not published")
                && !log.contains("in parts"),
            "{log}"
        );
        let status = controller.status()?;
        let used = status.capacity_bytes - status.free_bytes;
        println!("{used} bytes of the zone are used");
        ensure!(status.counts.get("bundles") == Some(&1), "{status:?}");
        ensure!(used < 1 << 20, "{used} bytes are used");
        Ok(())
    });
}

#[test]
fn seventy_bundles_that_exceed_the_zone_keep_nobody_out() {
    pass("isolation-bulky-bundles", |directory| {
        let endpoint = Endpoint::start("first")?;
        let controller = Controller::start(directory, 1, &["--zone-size-max=64m".to_owned()])?;
        let key = PKey::from_ec_key(EcKey::generate(
            EcGroup::from_curve_name(Nid::X9_62_PRIME256V1)?.as_ref(),
        )?)?;
        let mut total = 0;
        controller.write("service.yaml", &service("guarded-0", endpoint.address.port()))?;
        for number in 0..GUARDED {
            let bundle = bulky_bundle(&key, number)?;
            total += bundle.len();
            let name = format!("authorities-{number}");
            let annotation = format!("default/{name}");
            let host =
                ingress(&format!("guarded-{number}"), &[("auth-tls-secret", annotation.as_str())]);
            let host =
                host.replace(&format!("name: guarded-{number}, port"), "name: guarded-0, port");
            let text = secret(&name, &[("ca.crt", bundle)]) + &host;
            controller.write(&format!("guarded-{number}.yaml"), &text)?;
        }
        ensure!(total > 66 << 20, "the bundles have {total} bytes");
        until("a full zone", || {
            ensure!(controller.error_log().contains("raise --zone-size-max"), "not full");
            Ok(())
        })?;
        for name in ["small", "smaller", "smallest"] {
            let took = small_goes_live(&controller, &endpoint, name)?;
            println!("{name} is live after {took:?}");
        }
        // Guarded or closed, never open.
        let http = Address::http(controller.http_port);
        let mut statuses = BTreeMap::new();
        for number in 0..GUARDED {
            let host = format!("guarded-{number}.test");
            let status = block_on(send(&http, &Request::get(&host, "/")))?.status;
            *statuses.entry(status).or_insert(0) += 1;
        }
        println!("{statuses:?}");
        ensure!(statuses.keys().all(|status| [400, 403, 503].contains(status)), "{statuses:?}");
        ensure!(statuses.get(&400).is_some_and(|count| *count > 50), "{statuses:?}");
        Ok(())
    });
}
