//! One bad object affects only itself: whatever one Ingress says, those of others are served and updated.
//!
//! Each case is a folder with a good neighbour, a bad object, and then an edit of the neighbour that has to become live.

use anyhow::{Result, ensure};
use oxigress_tests::client::{Address, Request, send};
use oxigress_tests::controller::Controller;
use oxigress_tests::endpoint::Endpoint;
use oxigress_tests::mutual::{Identity, VALID};
use oxigress_tests::pass;
use oxigress_tests::wait::{block_on, until};
use std::fmt::Write as _;

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

fn service(name: &str, port: u16) -> String {
    format!(
        "---\napiVersion: v1\nkind: Service\nmetadata: {{ name: {name}, namespace: default }}\n\
         spec: {{ ports: [{{ name: http, port: 80 }}] }}\n\
         ---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
         metadata: {{ name: {name}-1, namespace: default, labels: {{ kubernetes.io/service-name: {name} }} }}\n\
         addressType: IPv4\nports: [{{ name: http, port: {port} }}]\n\
         endpoints: [{{ addresses: [\"127.0.0.1\"], conditions: {{ ready: true }} }}]\n"
    )
}

fn secret(name: &str, fields: &[(&str, String)]) -> String {
    let mut text = format!(
        "---\napiVersion: v1\nkind: Secret\nmetadata: {{ name: {name}, namespace: default }}\nstringData:\n"
    );
    for (field, value) in fields {
        let _ = writeln!(text, "  {field}: {value:?}");
    }
    text
}

/// Serves the neighbour, then `bad` (whose Ingress is `bad`), then an edit of the neighbour; `open` is what may not be
/// answered to a plain request of the bad host.
fn neighbour_is_served_beside(case: &str, bad: &[String], named: &str) {
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
        ensure!(!log.contains("nginx refuses the configuration"), "{log}");
        let answer = block_on(send(&http, &Request::get("bad.test", "/")))?;
        ensure!(answer.endpoint().is_none() || named == "ssl-ciphers", "it is open: {answer:?}");
        Ok(())
    });
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
