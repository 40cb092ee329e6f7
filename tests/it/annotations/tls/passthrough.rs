//! TLS that nginx does not end.

use super::*;

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
