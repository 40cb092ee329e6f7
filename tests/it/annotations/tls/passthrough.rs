//! TLS that nginx does not end.

use super::*;

#[test]
fn tls_is_passed_through() {
    pass("annotations-passthrough", |directory| {
        let ours = Identity::root("ours")?;
        let up = TlsEndpoint::start(&ours.issue("theirs", VALID)?)?;
        let mut variables = Variables::default();
        // What protects a host would have no effect on TLS that nobody reads: it is not passed through there.
        let protections: [(&str, &[(&str, &str)]); 4] = [
            ("guarded", &[("auth-tls-secret", "default/authorities")]),
            ("listed", &[("whitelist-source-range", "10.0.0.0/8")]),
            ("limited", &[("limit-rps", "5")]),
            ("private", &[("auth-type", "basic"), ("auth-secret", "default/users")]),
        ];
        let protected = protections.map(|(host, _)| format!("{host}.test"));
        let mut hosts = vec!["default.test", "valid.test", "invalid.test"];
        hosts.extend(protected.iter().map(String::as_str));
        variables.certificates.insert("own".into(), Certificate::new("own", &hosts)?);
        let mut text = variables.expand("$SECRET(own: own)")? + &service("up", up.address.port());
        let name = "ssl-passthrough";
        text += &ingress("default", "up", &[], "own");
        text += &ingress("valid", "up", &[(name, "true")], "own");
        text += &ingress("invalid", "up", &[(name, "si")], "own");
        let inside = free_port()?;
        for (host, annotations) in protections {
            text += &ingress(host, "up", &[&[(name, "true")], annotations].concat(), "own");
        }
        text += &secret("authorities", &[("ca.crt", ours.pem()?)]);
        text += &secret("users", &[("auth", "user:{PLAIN}pass".to_owned())]);
        let flags = [
            "--enable-ssl-passthrough".to_owned(),
            format!("--ssl-passthrough-proxy-port={inside}"),
        ];
        let mut controller = Controller::start(directory, 1, &flags)?;
        controller.serve("all.yaml", &text)?;
        let mut verdicts = Verdicts::default();
        let shown = hosts.iter().map(|host| if *host == "valid.test" { "theirs" } else { "own" });
        for (host, expected) in hosts.iter().zip(shown) {
            let shown = block_on(handshake(&Address::https(controller.https_port, *host)));
            let verdict = shown.and_then(|shown| {
                ensure!(shown == expected, "{shown} instead of {expected}");
                Ok(())
            });
            verdicts.add(&format!("{name} {host}"), verdict);
        }
        for (host, _) in protections {
            let named = format!("Ingress default/{host}");
            let log = controller.error_log();
            let is_told = log.lines().any(|line| line.contains(&named) && line.contains(name));
            verdicts.add(&format!("{host} is told"), is_told.then_some(()).context(log));
        }
        verdicts.tell()
    });
}
