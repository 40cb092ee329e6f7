//! Certificates of clients, as annotations ask for them.

use super::*;

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
