//! Annotations from a manifest to an answer, where a line of the table cannot say it: client certificates, TLS toward
//! endpoints, and what an auth server is asked.

use anyhow::{Context, Result, ensure};
use openssl::ssl::SslVersion;
use oxigress_tests::certificate::Certificate;
use oxigress_tests::client::{Address, Request, Response, handshake, send};
use oxigress_tests::controller::Controller;
use oxigress_tests::endpoint::{Behaviour, Endpoint};
use oxigress_tests::manifest::{secret, service};
use oxigress_tests::mutual::{Answer, Caller, Identity, Seen, TlsEndpoint, VALID};
use oxigress_tests::pass;
use oxigress_tests::place::free_port;
use oxigress_tests::variables::Variables;
use oxigress_tests::wait::block_on;
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};

/// Makes an Ingress for the host `NAME.test`.
fn ingress(name: &str, service: &str, annotations: &[(&str, &str)], secret: &str) -> String {
    let mut text = format!(
        "---\napiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata:\n  name: {name}\n  \
         namespace: default\n  annotations:\n    kubernetes.io/ingress.class: nginx\n"
    );
    for (annotation, value) in annotations {
        let _ = writeln!(text, "    nginx.ingress.kubernetes.io/{annotation}: {value:?}");
    }
    text += "spec:\n";
    if !secret.is_empty() {
        let _ = writeln!(text, "  tls: [{{ hosts: [{name}.test], secretName: {secret} }}]");
    }
    let _ = writeln!(
        text,
        "  rules:\n  - host: {name}.test\n    http:\n      paths:\n      - {{ path: /, pathType: Prefix, \
         backend: {{ service: {{ name: {service}, port: {{ number: 80 }} }} }} }}"
    );
    text
}

/// What failed, all of it.
#[derive(Default)]
struct Verdicts(Vec<String>, usize);

impl Verdicts {
    fn add(&mut self, what: &str, verdict: Result<()>) {
        self.1 += 1;
        if let Err(why) = verdict {
            self.0.push(format!("{what}: {why:#}"));
        }
    }

    fn tell(self) -> Result<()> {
        println!("annotations::tls: {} cases", self.1);
        ensure!(self.0.is_empty(), "{} of {} cases:\n{}", self.0.len(), self.1, self.0.join("\n"));
        Ok(())
    }
}

/// What is shown: nothing, a client's certificate, that of another authority, one below two intermediate ones.
#[derive(Clone, Copy, Debug)]
enum Shown {
    Nothing,
    Ours,
    Other,
    Deep,
}
use Shown::{Deep, Nothing, Other, Ours};

type Annotations<'a> = &'a [(&'a str, &'a str)];

/// What an answer holds; `!` what it does not hold.
fn check(answer: &Answer, status: u16, text: &str) -> Result<()> {
    ensure!(answer.status == status, "{} instead of {status}\n{}", answer.status, answer.head);
    let all = format!("{}{}", answer.head, answer.body);
    match text.strip_prefix('!') {
        Some(text) => ensure!(!all.contains(text), "{text:?} is in\n{all}"),
        None => ensure!(all.contains(text), "{text:?} is not in\n{all}"),
    }
    Ok(())
}

/// A kind, annotations beside `auth-tls-secret` (`/` takes its place), and what is answered to whom.
type ClientCase<'c> = (&'c str, &'c str, &'c [(&'c str, &'c str)], &'c [(Shown, u16, &'c str)]);

const CLIENTS: &[ClientCase<'_>] = &[
    (
        "auth-tls-secret default",
        "",
        &[],
        &[(Nothing, 200, "!ssl-client"), (Ours, 200, "!ssl-client")],
    ),
    (
        "auth-tls-secret valid, auth-tls-verify-client default, auth-tls-error-page default",
        "default/ca",
        &[],
        &[
            (Nothing, 400, "No required SSL"),
            (Ours, 200, "ssl-client-verify: SUCCESS"),
            (Other, 400, ""),
        ],
    ),
    (
        "auth-tls-secret invalid: missing",
        "default/nobody",
        &[],
        &[(Nothing, 403, ""), (Ours, 403, "")],
    ),
    ("auth-tls-secret invalid: no ca.crt", "default/empty", &[], &[(Ours, 403, "")]),
    ("auth-tls-secret invalid: another namespace", "other/ca", &[], &[(Ours, 403, "")]),
    ("auth-tls-secret invalid: two slashes", "a/b/c", &[], &[(Ours, 403, "")]),
    (
        "auth-tls-verify-client valid: optional",
        "default/ca",
        &[("auth-tls-verify-client", "optional")],
        &[(Nothing, 200, "ssl-client-verify: NONE"), (Ours, 200, "SUCCESS"), (Other, 400, "")],
    ),
    (
        "auth-tls-verify-client valid: optional_no_ca",
        "default/ca",
        &[("auth-tls-verify-client", "optional_no_ca")],
        &[(Nothing, 200, "NONE"), (Other, 200, "ssl-client-verify: FAILED")],
    ),
    (
        "auth-tls-verify-client valid: off",
        "default/ca",
        &[("auth-tls-verify-client", "off")],
        &[(Nothing, 200, "!ssl-client"), (Other, 200, "!ssl-client")],
    ),
    (
        "auth-tls-verify-client invalid",
        "default/ca",
        &[("auth-tls-verify-client", "maybe")],
        &[(Nothing, 400, ""), (Ours, 200, ""), (Other, 400, "")],
    ),
    ("auth-tls-verify-depth default", "default/ca", &[], &[(Deep, 400, "")]),
    (
        "auth-tls-verify-depth valid",
        "default/ca",
        &[("auth-tls-verify-depth", "2")],
        &[(Deep, 200, "SUCCESS")],
    ),
    (
        "auth-tls-verify-depth invalid",
        "default/ca",
        &[("auth-tls-verify-depth", "2x")],
        &[(Deep, 400, ""), (Ours, 200, "")],
    ),
    (
        "auth-tls-error-page valid",
        "default/ca",
        &[("auth-tls-error-page", "https://in.test/why")],
        &[(Nothing, 302, "Location: https://in.test/why"), (Other, 302, ""), (Ours, 200, "")],
    ),
    (
        "auth-tls-error-page invalid",
        "default/ca",
        &[("auth-tls-error-page", "@nowhere")],
        &[(Nothing, 400, ""), (Ours, 200, "")],
    ),
    (
        "auth-tls-pass-certificate-to-upstream default",
        "default/ca",
        &[],
        &[(Ours, 200, "!ssl-client-cert")],
    ),
    (
        "auth-tls-pass-certificate-to-upstream valid",
        "default/ca",
        &[("auth-tls-pass-certificate-to-upstream", "true")],
        &[(Ours, 200, "ssl-client-cert: -----BEGIN%20CERTIFICATE-----%0A")],
    ),
    (
        "auth-tls-pass-certificate-to-upstream invalid",
        "default/ca",
        &[("auth-tls-pass-certificate-to-upstream", "si")],
        &[(Ours, 200, "!ssl-client-cert"), (Nothing, 400, "")],
    ),
    ("auth-tls-match-cn default", "default/ca", &[], &[(Ours, 200, "CN=client")]),
    (
        "auth-tls-match-cn valid",
        "default/ca",
        &[("auth-tls-match-cn", "CN=(client|boss)$")],
        &[(Ours, 200, ""), (Nothing, 400, "")],
    ),
    (
        "auth-tls-match-cn valid: another",
        "default/ca",
        &[("auth-tls-match-cn", "CN=boss")],
        &[(Ours, 403, "")],
    ),
    (
        "auth-tls-match-cn invalid: no CN=",
        "default/ca",
        &[("auth-tls-match-cn", "client")],
        &[(Ours, 403, "")],
    ),
    (
        "auth-tls-match-cn invalid: a pattern",
        "default/ca",
        &[("auth-tls-match-cn", "CN=(client")],
        &[(Ours, 403, "")],
    ),
];

#[test]
fn clients_show_their_certificates() {
    pass("annotations-clients", |directory| {
        let endpoint = Endpoint::start("shop")?;
        let (ours, other) = (Identity::root("ours")?, Identity::root("other")?);
        let (client, stranger) = (ours.issue("client", VALID)?, other.issue("client", VALID)?);
        let deep = ours.intermediate("one")?.intermediate("two")?.issue("client", VALID)?;
        let mut controller = Controller::start(directory, 1, &[])?;
        let mut text = service("shop", endpoint.address.port());
        text += &secret("ca", &[("ca.crt", ours.pem()?)]);
        text += &secret("empty", &[("note", "none".into())]);
        for (place, (_, of, more, _)) in CLIENTS.iter().enumerate() {
            let mut all = more.to_vec();
            all.extend(Some(("auth-tls-secret", *of)).filter(|(_, of)| !of.is_empty()));
            text += &ingress(&format!("c{place}"), "shop", &all, "");
        }
        controller.serve("all.yaml", &text)?;
        let mut verdicts = Verdicts::default();
        for (place, (what, _, _, answers)) in CLIENTS.iter().enumerate() {
            let host = format!("c{place}.test");
            let caller = Caller::new(controller.https_port, &host)?;
            for (shown, status, text) in *answers {
                let caller = match shown {
                    Nothing => caller.anonymous(),
                    Ours => caller.showing(&client),
                    Other => caller.showing(&stranger),
                    Deep => caller.showing(&deep),
                };
                let answer = caller.call().and_then(|mut call| call.get(&host, "/"));
                let verdict = answer.and_then(|answer| check(&answer, *status, text));
                verdicts.add(&format!("{what}, {shown:?}"), verdict);
            }
        }
        verdicts.tell()
    });
}

const SMALL: &str = "ECDHE-ECDSA-AES128-GCM-SHA256";
const LARGE: &str = "ECDHE-ECDSA-AES256-GCM-SHA384";

#[test]
fn hosts_have_ciphers() {
    pass("annotations-ciphers", |directory| {
        let endpoint = Endpoint::start("shop")?;
        let both = format!("{LARGE}:{SMALL}");
        let both = both.as_str();
        // The client would have SMALL.
        let cases: &[(&str, Annotations<'_>, &str)] = &[
            ("ssl-ciphers default", &[("ssl-prefer-server-ciphers", "false")], SMALL),
            ("ssl-ciphers valid", &[("ssl-ciphers", LARGE)], LARGE),
            (
                "ssl-ciphers invalid",
                &[
                    ("ssl-ciphers", "ECDHE-ECDSA-AES256-GCM-SHA384;x"),
                    ("ssl-prefer-server-ciphers", "false"),
                ],
                SMALL,
            ),
            ("ssl-prefer-server-ciphers default", &[("ssl-ciphers", both)], LARGE),
            (
                "ssl-prefer-server-ciphers valid: true",
                &[("ssl-ciphers", both), ("ssl-prefer-server-ciphers", "true")],
                LARGE,
            ),
            (
                "ssl-prefer-server-ciphers valid: false",
                &[("ssl-ciphers", both), ("ssl-prefer-server-ciphers", "false")],
                SMALL,
            ),
            (
                "ssl-prefer-server-ciphers invalid",
                &[("ssl-ciphers", both), ("ssl-prefer-server-ciphers", "no")],
                LARGE,
            ),
        ];
        let mut variables = Variables::default();
        let hosts: Vec<_> = (0..cases.len()).map(|place| format!("c{place}.test")).collect();
        let names: Vec<_> = hosts.iter().map(String::as_str).collect();
        variables.certificates.insert("own".into(), Certificate::new("own", &names)?);
        let mut text = variables.expand("$SECRET(own: own)")?;
        text += &service("shop", endpoint.address.port());
        for (place, (_, annotations, _)) in cases.iter().enumerate() {
            text += &ingress(&format!("c{place}"), "shop", annotations, "own");
        }
        let mut controller = Controller::start(directory, 1, &[])?;
        controller.serve("all.yaml", &text)?;
        let mut verdicts = Verdicts::default();
        for ((what, _, expected), host) in cases.iter().zip(&hosts) {
            let mut caller = Caller::new(controller.https_port, host)?;
            caller.version = SslVersion::TLS1_2;
            caller.ciphers = Some(format!("{SMALL}:{LARGE}"));
            let verdict = caller.call().and_then(|mut call| {
                let cipher = call.cipher();
                ensure!(cipher == *expected, "{cipher} instead of {expected}");
                ensure!(call.get(host, "/")?.status == 200, "not served");
                Ok(())
            });
            verdicts.add(what, verdict);
        }
        verdicts.tell()
    });
}

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
        let in_other = |text: String| text.replace("namespace: default", "namespace: other");
        let mut text = service("up", up.address.port()) + &secret("pair", &all(&ours)?);
        text += &in_other(service("up", up.address.port()));
        text += &service("strange", strange.address.port());
        let host = "shop.test";
        text += &https_path("default", "a", (host, "/a"), &[PAIR, NAMED, ON, SNI]);
        text += &https_path("default", "b", (host, "/b"), &[]);
        text +=
            &https_path("default", "s", (host, "/s"), &[]).replace("name: up,", "name: strange,");
        text += &https_path("default", "p", (host, "/p"), &[("proxy-ssl-secret", "default/pair")]);
        text += &https_path("default", "c", ("else.test", "/"), &[]);
        text += &https_path("other", "d", (host, "/d"), &[]);
        // The other way round: a host of the other namespace, whose word does not reach the first one.
        text += &in_other(secret("pair", &all(&ours)?));
        text +=
            &https_path("other", "e", ("theirs.test", "/e"), &[("proxy-ssl-secret", "other/pair")]);
        text += &https_path("default", "f", ("theirs.test", "/f"), &[]);
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

#[test]
fn tls_is_passed_through() {
    pass("annotations-passthrough", |directory| {
        let ours = Identity::root("ours")?;
        let up = TlsEndpoint::start(&ours.issue("theirs", VALID)?)?;
        let mut variables = Variables::default();
        let hosts = ["default.test", "valid.test", "invalid.test"];
        variables.certificates.insert("own".into(), Certificate::new("own", &hosts)?);
        let mut text = variables.expand("$SECRET(own: own)")? + &service("up", up.address.port());
        let name = "ssl-passthrough";
        text += &ingress("default", "up", &[], "own");
        text += &ingress("valid", "up", &[(name, "true")], "own");
        text += &ingress("invalid", "up", &[(name, "si")], "own");
        let inside = free_port()?;
        let flags = [
            "--enable-ssl-passthrough".to_owned(),
            format!("--ssl-passthrough-proxy-port={inside}"),
        ];
        let mut controller = Controller::start(directory, 1, &flags)?;
        controller.serve("all.yaml", &text)?;
        let mut verdicts = Verdicts::default();
        for (host, expected) in hosts.into_iter().zip(["own", "theirs", "own"]) {
            let shown = block_on(handshake(&Address::https(controller.https_port, host)));
            let verdict = shown.and_then(|shown| {
                ensure!(shown == expected, "{shown} instead of {expected}");
                Ok(())
            });
            verdicts.add(&format!("{name} {host}"), verdict);
        }
        verdicts.tell()
    });
}

/// An auth server that lets everybody in, sets a cookie, and keeps what it was asked.
struct AuthServer {
    port: u16,
    heads: Arc<Mutex<Vec<String>>>,
}

impl AuthServer {
    fn start() -> Result<Self> {
        const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nSet-Cookie: who=bob\r\nX-User: bob\r\n\
            Content-Length: 0\r\nConnection: close\r\n\r\n";
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = listener.local_addr()?.port();
        let heads = Arc::new(Mutex::new(Vec::new()));
        let kept = heads.clone();
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let mut head = Vec::new();
                let mut byte = [0];
                while !head.ends_with(b"\r\n\r\n") && matches!(stream.read(&mut byte), Ok(1)) {
                    head.push(byte[0]);
                }
                let head = String::from_utf8_lossy(&head).into_owned();
                kept.lock().unwrap_or_else(PoisonError::into_inner).push(head);
                // Who asks no longer waits for it.
                let _ = stream.write_all(ANSWER);
            }
        });
        Ok(AuthServer { port, heads })
    }

    /// What it was asked about this host since the last time.
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.heads.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What two requests for `/x` bring: status, how often the auth server is asked, and texts of the last answer's head
/// and body, or, with `?`, of the first question; `!` those that are not there.
type AuthCase<'c> = (&'c str, &'c str, &'c [(&'c str, &'c str)], u16, usize, &'c [&'c str]);

const CACHED: (&str, &str) = ("auth-cache-key", "$remote_addr$http_authorization");

const AUTHS: &[AuthCase<'_>] = &[
    (
        "auth-method default, auth-proxy-set-headers default, auth-cache-key default",
        "shop",
        &[],
        200,
        2,
        &["?GET /a HTTP/1", "?!x-map", "?!x-original-uri"],
    ),
    (
        "auth-method valid",
        "shop",
        &[("auth-method", "POST")],
        200,
        2,
        &["?POST /a HTTP/1", "?x-original-uri: /x"],
    ),
    ("auth-method invalid", "shop", &[("auth-method", "post")], 503, 0, &[]),
    ("auth-request-redirect default", "shop", &[], 200, 2, &["?x-auth-request-redirect: /x\r"]),
    (
        "auth-request-redirect valid",
        "shop",
        &[("auth-request-redirect", "https://in.test/back")],
        200,
        2,
        &["?x-auth-request-redirect: https://in.test/back\r"],
    ),
    ("auth-request-redirect invalid", "shop", &[("auth-request-redirect", "a;b")], 503, 0, &[]),
    (
        "auth-proxy-set-headers valid",
        "shop",
        &[("auth-proxy-set-headers", "default/map")],
        200,
        2,
        &["?x-map: yes\r", "!x-map"],
    ),
    (
        "auth-proxy-set-headers invalid: no header",
        "shop",
        &[("auth-proxy-set-headers", "default/odd")],
        503,
        0,
        &[],
    ),
    (
        "auth-proxy-set-headers invalid: missing",
        "shop",
        &[("auth-proxy-set-headers", "default/no")],
        503,
        0,
        &[],
    ),
    ("auth-response-headers default", "shop", &[], 200, 2, &["\nx-user: root\n", "!x-user: bob"]),
    (
        "auth-response-headers valid",
        "shop",
        &[("auth-response-headers", "X-User")],
        200,
        2,
        &["\nx-user: bob\n", "!x-user: root"],
    ),
    ("auth-response-headers invalid", "shop", &[("auth-response-headers", "X-User;")], 503, 0, &[]),
    ("auth-always-set-cookie default: 200", "shop", &[], 200, 2, &["set-cookie: who=bob"]),
    ("auth-always-set-cookie default: 404", "gone", &[], 404, 2, &["!set-cookie"]),
    (
        "auth-always-set-cookie valid",
        "gone",
        &[("auth-always-set-cookie", "true")],
        404,
        2,
        &["set-cookie: who=bob"],
    ),
    ("auth-always-set-cookie invalid", "gone", &[("auth-always-set-cookie", "si")], 503, 0, &[]),
    ("auth-cache-key invalid", "shop", &[("auth-cache-key", "a;b")], 200, 2, &[]),
    (
        "auth-cache-duration valid: not of 200",
        "shop",
        &[CACHED, ("auth-cache-duration", "401 1h")],
        200,
        2,
        &[],
    ),
    (
        "auth-cache-duration invalid",
        "shop",
        &[CACHED, ("auth-cache-duration", "ever")],
        503,
        0,
        &[],
    ),
];

#[test]
fn auth_servers_are_asked() {
    pass("annotations-auth", |directory| {
        let server = AuthServer::start()?;
        let shop = Endpoint::start("shop")?;
        let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let gone = Endpoint::with("gone", Behaviour::Status(404), loopback)?;
        let no = Endpoint::with("no", Behaviour::Status(401), loopback)?;
        let mut text = service("shop", shop.address.port()) + &service("gone", gone.address.port());
        let settings =
            format!("{{ global-auth-url: \"http://127.0.0.1:{}/g\" }}", no.address.port());
        let maps =
            [("map", "{ X-Map: \"yes\" }"), ("odd", "{ \"a b\": c }"), ("settings", &settings)];
        for (name, data) in maps {
            let _ = writeln!(
                text,
                "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{ name: {name}, namespace: default }}\ndata: {data}"
            );
        }
        let url = format!("http://127.0.0.1:{}/a", server.port);
        for (place, (_, to, more, ..)) in AUTHS.iter().enumerate() {
            let mut all = more.to_vec();
            all.push(("auth-url", &url));
            text += &ingress(&format!("c{place}"), to, &all, "");
        }
        let name = "enable-global-auth";
        let globals: &[(&str, Annotations<'_>, u16)] = &[
            ("default", &[], 401),
            ("valid", &[(name, "false")], 200),
            ("invalid", &[(name, "no")], 401),
            ("enabled", &[(name, "true")], 401),
        ];
        for (host, annotations, _) in globals {
            text += &ingress(host, "shop", annotations, "");
        }
        let flags = ["--configmap=default/settings".to_owned()];
        let mut controller = Controller::start(directory, 1, &flags)?;
        controller.serve("all.yaml", &text)?;
        let address = Address::http(controller.http_port);
        let mut verdicts = Verdicts::default();
        for (host, _, expected) in globals {
            let answer = block_on(send(&address, &Request::get(&format!("{host}.test"), "/")));
            let verdict = answer.and_then(|answer| {
                ensure!(answer.status == *expected, "{} instead of {expected}", answer.status);
                Ok(())
            });
            verdicts.add(&format!("{name} {host}"), verdict);
        }
        for (place, case) in AUTHS.iter().enumerate() {
            let verdict = asked(&address, &server, &format!("c{place}.test"), case);
            verdicts.add(case.0, verdict);
        }
        verdicts.tell()
    });
}

fn asked(address: &Address, server: &AuthServer, host: &str, case: &AuthCase<'_>) -> Result<()> {
    let (_, _, _, status, count, texts) = case;
    server.take();
    let request = Request::get(host, "/x").header("X-User", "root");
    block_on(send(address, &request))?;
    let answer = block_on(send(address, &request))?;
    let questions = server.take();
    ensure!(answer.status == *status, "{} instead of {status}", answer.status);
    ensure!(questions.len() == *count, "asked {} times and not {count}", questions.len());
    let mut seen = String::new();
    for (name, value) in &answer.headers {
        let _ = writeln!(seen, "{name}: {}", value.to_str()?);
    }
    seen += &answer.text();
    for text in *texts {
        let (place, text) = match text.strip_prefix('?') {
            Some(text) => (question(questions.first().context("no question")?), text),
            None => (seen.clone(), *text),
        };
        match text.strip_prefix('!') {
            Some(text) => ensure!(!place.contains(text), "{text:?} is in\n{place}"),
            None => ensure!(place.contains(text), "{text:?} is not in\n{place}"),
        }
    }
    Ok(())
}

/// Its head, names of headers in lower case.
fn question(head: &str) -> String {
    let lower = |line: &str| match line.split_once(": ") {
        Some((name, value)) => format!("{}: {value}\r\n", name.to_ascii_lowercase()),
        None => format!("{line}\r\n"),
    };
    head.lines().map(lower).collect()
}
