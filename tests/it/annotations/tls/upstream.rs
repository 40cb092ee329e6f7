//! TLS toward endpoints.

use super::*;

/// `subject`, `name`, `version` and `cipher` of what the endpoint saw; nothing: a status.
type UpstreamCase<'c> = (&'c str, &'c str, &'c [(&'c str, &'c str)], u16, &'c [(&'c str, &'c str)]);

const FAST: &str = "ECDHE-ECDSA-CHACHA20-POLY1305";
const NAMED: (&str, &str) = ("proxy-ssl-name", "up.test");
const ON: (&str, &str) = ("proxy-ssl-verify", "on");
const SNI: (&str, &str) = ("proxy-ssl-server-name", "on");

const UPSTREAMS: &[UpstreamCase<'_>] = &[
    ("proxy-ssl-secret default", "up", &[], 200, &[("subject", "")]),
    ("proxy-ssl-secret default: no other counts", "up", &[SNI, NAMED, ON], 200, &[("name", "")]),
    (
        "proxy-ssl-secret valid",
        "up",
        &[("proxy-ssl-secret", "default/pair")],
        200,
        &[("subject", "alice")],
    ),
    (
        "proxy-ssl-secret invalid: missing",
        "up",
        &[("proxy-ssl-secret", "default/nobody")],
        503,
        &[],
    ),
    (
        "proxy-ssl-secret invalid: nothing in it",
        "up",
        &[("proxy-ssl-secret", "default/empty")],
        503,
        &[],
    ),
    (
        "proxy-ssl-secret invalid: another namespace",
        "up",
        &[("proxy-ssl-secret", "other/pair")],
        503,
        &[],
    ),
    (
        "proxy-ssl-ciphers valid",
        "up",
        &[PAIR, ("proxy-ssl-ciphers", FAST)],
        200,
        &[("cipher", FAST)],
    ),
    ("proxy-ssl-ciphers default", "up", &[PAIR], 200, &[("cipher", LARGE)]),
    (
        "proxy-ssl-ciphers invalid",
        "up",
        &[PAIR, ("proxy-ssl-ciphers", "ECDHE-ECDSA-CHACHA20-POLY1305;x")],
        200,
        &[("cipher", LARGE)],
    ),
    ("proxy-ssl-protocols default", "up", &[PAIR], 200, &[("version", "TLSv1.2")]),
    (
        "proxy-ssl-protocols valid",
        "up",
        &[PAIR, ("proxy-ssl-protocols", "TLSv1.3")],
        200,
        &[("version", "TLSv1.3")],
    ),
    (
        "proxy-ssl-protocols invalid",
        "up",
        &[PAIR, ("proxy-ssl-protocols", "SSLv3")],
        200,
        &[("version", "TLSv1.2")],
    ),
    ("proxy-ssl-server-name default", "up", &[PAIR, NAMED], 200, &[("name", "")]),
    (
        "proxy-ssl-server-name valid, proxy-ssl-name valid",
        "up",
        &[PAIR, NAMED, SNI],
        200,
        &[("name", "up.test")],
    ),
    (
        "proxy-ssl-server-name invalid",
        "up",
        &[PAIR, NAMED, ("proxy-ssl-server-name", "true")],
        200,
        &[("name", "")],
    ),
    ("proxy-ssl-name default", "up", &[PAIR, SNI], 200, &[("name", "$HOST")]),
    ("proxy-ssl-name default: verified", "up", &[PAIR, ON], 502, &[]),
    (
        "proxy-ssl-name invalid",
        "up",
        &[PAIR, SNI, ("proxy-ssl-name", "a;b")],
        200,
        &[("name", "$HOST")],
    ),
    ("proxy-ssl-verify default", "up", &[STRANGE, NAMED], 200, &[]),
    ("proxy-ssl-verify valid: off", "up", &[STRANGE, NAMED, ("proxy-ssl-verify", "off")], 200, &[]),
    ("proxy-ssl-verify valid", "up", &[PAIR, NAMED, ON], 200, &[]),
    ("proxy-ssl-verify valid: another authority", "up", &[STRANGE, NAMED, ON], 502, &[]),
    ("proxy-ssl-verify invalid", "up", &[PAIR, NAMED, ("proxy-ssl-verify", "true")], 503, &[]),
    ("proxy-ssl-verify-depth default", "far", &[PAIR, NAMED, ON], 502, &[]),
    (
        "proxy-ssl-verify-depth valid",
        "far",
        &[PAIR, NAMED, ON, ("proxy-ssl-verify-depth", "2")],
        200,
        &[],
    ),
    (
        "proxy-ssl-verify-depth invalid",
        "far",
        &[PAIR, NAMED, ON, ("proxy-ssl-verify-depth", "2x")],
        502,
        &[],
    ),
    (
        "proxy-ssl-verify-depth invalid",
        "up",
        &[PAIR, NAMED, ON, ("proxy-ssl-verify-depth", "2x")],
        200,
        &[],
    ),
    ("backend-protocol valid: any case", "up", &[("backend-protocol", "https")], 200, &[]),
];
const PAIR: (&str, &str) = ("proxy-ssl-secret", "default/pair");
const STRANGE: (&str, &str) = ("proxy-ssl-secret", "default/strange");

#[test]
fn endpoints_are_spoken_to_over_tls() {
    pass("annotations-upstreams", |directory| {
        let (ours, other) = (Identity::root("ours")?, Identity::root("other")?);
        let alice = other.issue("alice", VALID)?;
        let far = ours.intermediate("one")?.intermediate("two")?.issue("up.test", VALID)?;
        let up = TlsEndpoint::start(&ours.issue("up.test", VALID)?)?;
        let far = TlsEndpoint::start(&far)?;
        let pair = |authority: &Identity| -> Result<[(&str, String); 3]> {
            let certificate = ("tls.crt", alice.pem()?);
            Ok([certificate, ("tls.key", alice.key_pem()?), ("ca.crt", authority.pem()?)])
        };
        let mut text = service("up", up.address.port()) + &service("far", far.address.port());
        text += &secret("pair", &pair(&ours)?);
        text += &secret("strange", &pair(&other)?);
        text += &secret("empty", &[("note", "none".into())]);
        for (place, (_, to, more, ..)) in UPSTREAMS.iter().enumerate() {
            let mut all = more.to_vec();
            if !more.iter().any(|(name, _)| *name == "backend-protocol") {
                all.push(("backend-protocol", "HTTPS"));
            }
            text += &ingress(&format!("c{place}"), to, &all, "");
        }
        let mut controller = Controller::start(directory, 1, &[])?;
        controller.serve("all.yaml", &text)?;
        let address = Address::http(controller.http_port);
        let mut verdicts = Verdicts::default();
        for (place, (what, _, _, status, fields)) in UPSTREAMS.iter().enumerate() {
            let host = format!("c{place}.test");
            let verdict = block_on(send(&address, &Request::get(&host, "/")))
                .and_then(|answer| saw(&answer, *status, fields, &host));
            verdicts.add(what, verdict);
        }
        verdicts.tell()
    });
}

/// A Service with a policy of this name and these authorities, and a route to it.
fn backend_tls(name: &str, port: u16, hostname: &str, authorities: &str) -> String {
    service(name, port)
        + &format!(
            "---\napiVersion: gateway.networking.k8s.io/v1\nkind: BackendTLSPolicy\n\
             metadata: {{ name: {name}, namespace: default }}\nspec:\n  \
             targetRefs: [{{ group: '', kind: Service, name: {name} }}]\n  validation: {{ hostname: {hostname}, \
             caCertificateRefs: [{{ group: '', kind: ConfigMap, name: {authorities} }}] }}\n---\n\
             apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\n\
             metadata: {{ name: {name}, namespace: default }}\nspec:\n  parentRefs: [{{ name: web }}]\n  \
             hostnames: [{name}.test]\n  rules: [{{ backendRefs: [{{ name: {name}, port: 80 }}] }}]\n"
        )
}

/// What is verified, the name and the authorities of the policy, and what comes of it.
type BackendCase<'c> = (&'c str, &'c str, &'c str, u16, &'c [(&'c str, &'c str)]);

const BACKENDS: &[BackendCase<'_>] = &[
    ("the name is sent and verified", "up.test", "ours", 200, &[("name", "up.test")]),
    ("the certificate has another name", "down.test", "ours", 502, &[]),
    ("another authority has signed it", "up.test", "other", 502, &[]),
    ("no authority is named", "up.test", "nobody", 500, &[]),
];

#[test]
fn a_policy_of_a_backend_names_and_verifies_its_endpoints() {
    pass("gateway-backend-tls", |directory| {
        let (ours, other) = (Identity::root("ours")?, Identity::root("other")?);
        let up = TlsEndpoint::start(&ours.issue("up.test", VALID)?)?;
        let mut text = String::from(
            "apiVersion: gateway.networking.k8s.io/v1\nkind: GatewayClass\nmetadata: { name: oxigress }\n\
             spec: { controllerName: oxigress.io/gateway-controller }\n---\n\
             apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: { name: web, namespace: default }\n\
             spec: { gatewayClassName: oxigress, listeners: [{ name: http, port: 80, protocol: HTTP }] }\n",
        );
        for (name, authority) in [("ours", &ours), ("other", &other)] {
            let pem = authority.pem()?.replace('\n', "\n    ");
            text += &format!(
                "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{ name: {name}, namespace: default }}\n\
                 data:\n  ca.crt: |\n    {pem}\n"
            );
        }
        for (place, (_, hostname, authorities, ..)) in BACKENDS.iter().enumerate() {
            text += &backend_tls(&format!("b{place}"), up.address.port(), hostname, authorities);
        }
        let mut controller = Controller::start(directory, 1, &[])?;
        controller.serve("all.yaml", &text)?;
        let address = Address::http(controller.http_port);
        let mut verdicts = Verdicts::default();
        for (place, (what, _, _, status, fields)) in BACKENDS.iter().enumerate() {
            let host = format!("b{place}.test");
            let verdict = block_on(send(&address, &Request::get(&host, "/")))
                .and_then(|answer| saw(&answer, *status, fields, &host));
            verdicts.add(what, verdict);
        }
        verdicts.tell()
    });
}

/// A path of a host with a Service of the namespace.
fn https_path(
    namespace: &str,
    name: &str,
    (host, path): (&str, &str),
    more: &[(&str, &str)],
) -> String {
    let mut all = more.to_vec();
    all.push(("backend-protocol", "HTTPS"));
    let text = ingress(name, "up", &all, "")
        .replace("namespace: default", &format!("namespace: {namespace}"));
    text.replace(&format!("host: {name}.test"), &format!("host: {host}"))
        .replace("path: /,", &format!("path: {path},"))
}

#[test]
fn tls_toward_endpoints_holds_for_a_host_within_one_namespace() {
    pass("annotations-upstream-host", |directory| {
        let (ours, other) = (Identity::root("ours")?, Identity::root("other")?);
        let alice = other.issue("alice", VALID)?;
        let up = TlsEndpoint::start(&ours.issue("up.test", VALID)?)?;
        let strange = TlsEndpoint::start(&other.issue("up.test", VALID)?)?;
        let all = |authority: &Identity| -> Result<[(&str, String); 3]> {
            let certificate = ("tls.crt", alice.pem()?);
            Ok([certificate, ("tls.key", alice.key_pem()?), ("ca.crt", authority.pem()?)])
        };
        let text = of_two_namespaces(&up, &strange, &all(&ours)?);
        let host = "shop.test";
        let flags = ["--configmap=default/settings".to_owned()];
        let mut controller = Controller::start(directory, 1, &flags)?;
        controller.serve("all.yaml", &text)?;
        let address = Address::http(controller.http_port);
        let check = |host: &str, path: &str, status: u16, subject: &str, name: &str| {
            let answer = block_on(send(&address, &Request::get(host, path)))?;
            saw(&answer, status, &[("subject", subject), ("name", name)], host)
                .with_context(|| format!("{host}{path}"))
        };
        check(host, "/a", 200, "alice", "up.test")?;
        check(host, "/b", 200, "alice", "up.test")?;
        check(host, "/s", 502, "", "")?;
        check(host, "/p", 200, "alice", "")?;
        check(host, "/d", 200, "", "")?;
        check("else.test", "/", 200, "", "")?;
        check("theirs.test", "/e", 200, "alice", "")?;
        check("theirs.test", "/f", 200, "", "")?;
        let log = controller.error_log();
        let is_warned =
            |who: &str| log.lines().any(|line| line.contains(who) && line.contains("not verified"));
        ensure!(is_warned("Ingress other/d"), "the owner of the host has a Secret: {log}");
        ensure!(
            !is_warned("Ingress default/f"),
            "a stranger's Secret is no advice for the owner: {log}"
        );
        // Who wants verification and cannot have it opens nothing.
        let lost = text.replace(
            "\"default/pair\"\n    nginx.ingress.kubernetes.io/proxy-ssl-name",
            "\"default/none\"\n    nginx.ingress.kubernetes.io/proxy-ssl-name",
        );
        ensure!(lost != text);
        controller.serve("all.yaml", &lost)?;
        check(host, "/a", 503, "", "")?;
        check(host, "/b", 503, "", "")?;
        check(host, "/p", 200, "alice", "")?;
        check(host, "/d", 200, "", "")?;
        // Each for itself, if the operator says so.
        let alone = "---\napiVersion: v1\nkind: ConfigMap\nmetadata: { name: settings, namespace: default }\n\
            data: { proxy-ssl-location-only: \"true\" }\n";
        controller.serve("settings.yaml", alone)?;
        check(host, "/b", 200, "", "")?;
        controller.serve("all.yaml", &text)?;
        check(host, "/b", 200, "", "")?;
        check(host, "/s", 200, "", "")
    });
}

/// Ingresses of two namespaces that name the same hosts.
fn of_two_namespaces(up: &TlsEndpoint, strange: &TlsEndpoint, pair: &[(&str, String)]) -> String {
    let in_other = |text: String| text.replace("namespace: default", "namespace: other");
    let mut text = service("up", up.address.port()) + &secret("pair", pair);
    text += &in_other(service("up", up.address.port()));
    text += &service("strange", strange.address.port());
    let host = "shop.test";
    text += &https_path("default", "a", (host, "/a"), &[PAIR, NAMED, ON, SNI]);
    text += &https_path("default", "b", (host, "/b"), &[]);
    text += &https_path("default", "s", (host, "/s"), &[]).replace("name: up,", "name: strange,");
    text += &https_path("default", "p", (host, "/p"), &[("proxy-ssl-secret", "default/pair")]);
    text += &https_path("default", "c", ("else.test", "/"), &[]);
    text += &https_path("other", "d", (host, "/d"), &[]);
    // The other way round: a host of the other namespace, whose word does not reach the first one.
    text += &in_other(secret("pair", pair));
    text += &https_path("other", "e", ("theirs.test", "/e"), &[("proxy-ssl-secret", "other/pair")]);
    text += &https_path("default", "f", ("theirs.test", "/f"), &[]);
    text
}

fn saw(answer: &Response, status: u16, fields: &[(&str, &str)], host: &str) -> Result<()> {
    ensure!(answer.status == status, "{} instead of {status}", answer.status);
    if status != 200 {
        return Ok(());
    }
    let seen = Seen::parse(&answer.text())?;
    for (field, expected) in fields {
        let found = match *field {
            "subject" => &seen.subject,
            "name" => &seen.name,
            "version" => &seen.version,
            _ => &seen.cipher,
        };
        // TLSv1.2 by default, whose first cipher is not FAST.
        ensure!(*found == expected.replace("$HOST", host), "{field} of {seen:?} is not {expected}");
    }
    Ok(())
}
