//! Ciphers of a host.

use super::*;

/// `LARGE` and `SMALL`.
const BOTH: &str = "ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-ECDSA-AES128-GCM-SHA256";

/// What is proved, the annotations, and the cipher of a client that would have `SMALL`.
const CASES: &[(&str, Annotations<'_>, &str)] = &[
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
    ("ssl-prefer-server-ciphers default", &[("ssl-ciphers", BOTH)], LARGE),
    (
        "ssl-prefer-server-ciphers valid: true",
        &[("ssl-ciphers", BOTH), ("ssl-prefer-server-ciphers", "true")],
        LARGE,
    ),
    (
        "ssl-prefer-server-ciphers valid: false",
        &[("ssl-ciphers", BOTH), ("ssl-prefer-server-ciphers", "false")],
        SMALL,
    ),
    (
        "ssl-prefer-server-ciphers invalid",
        &[("ssl-ciphers", BOTH), ("ssl-prefer-server-ciphers", "no")],
        LARGE,
    ),
];

#[test]
fn hosts_have_ciphers() {
    pass("annotations-ciphers", |directory| {
        let endpoint = Endpoint::start("shop")?;
        let mut variables = Variables::default();
        let hosts: Vec<_> = (0..CASES.len()).map(|place| format!("c{place}.test")).collect();
        let names: Vec<_> = hosts.iter().map(String::as_str).collect();
        variables.certificates.insert("own".into(), Certificate::new("own", &names)?);
        let mut text = variables.expand("$SECRET(own: own)")?;
        text += &service("shop", endpoint.address.port());
        for (place, (_, annotations, _)) in CASES.iter().enumerate() {
            text += &ingress(&format!("c{place}"), "shop", annotations, "own");
        }
        let mut controller = Controller::start(directory, 1, &[])?;
        controller.serve("all.yaml", &text)?;
        let mut verdicts = Verdicts::default();
        for ((what, _, expected), host) in CASES.iter().zip(&hosts) {
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
