//! `ssl-reject-handshake`: who gets no certificate.

use super::*;
use openssl::ssl::{ConnectConfiguration, HandshakeError, SslVersion};

/// The common name that a client is shown, or why its handshake failed.
fn shown(shop: &Shop, version: SslVersion, name: Option<&str>) -> Result<String> {
    let mut connector = SslConnector::builder(SslMethod::tls_client())?;
    connector.set_verify(SslVerifyMode::NONE);
    connector.set_min_proto_version(Some(version))?;
    connector.set_max_proto_version(Some(version))?;
    let connector: ConnectConfiguration = connector.build().configure()?.verify_hostname(false);
    let connector = connector.use_server_name_indication(name.is_some());
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, shop.controller.https_port))?;
    match connector.connect(name.unwrap_or_default(), stream) {
        Ok(stream) => {
            let certificate = stream.ssl().peer_certificate().context("a certificate")?;
            let mut names = certificate.subject_name().entries();
            let name = names.next().context("a common name")?;
            Ok(String::from_utf8_lossy(name.data().as_slice()).into_owned())
        }
        Err(HandshakeError::Failure(failed)) => Ok(failed.error().to_string()),
        Err(error) => Err(error.into()),
    }
}

/// Whether it was told that nobody has the name, in both versions of TLS.
fn is_refused(shop: &Shop, name: Option<&str>) -> Result<bool> {
    let answers = [shown(shop, SslVersion::TLS1_2, name)?, shown(shop, SslVersion::TLS1_3, name)?];
    let is_refused = answers.clone().map(|answer| answer.contains("unrecognized name"));
    ensure!(is_refused[0] == is_refused[1], "{name:?}: {answers:?}");
    Ok(is_refused[0])
}

fn set(shop: &mut Shop, value: &str) -> Result<()> {
    shop.write("settings.yaml", &config_map("settings", &[("ssl-reject-handshake", value)]))
}

/// Without a reload, and the log of nginx has no word that would wake an operator.
#[test]
fn a_handshake_for_no_host_of_ours_is_refused_where_the_key_says_so() {
    pass("configmap-reject-handshake", |directory| {
        let mut shop = shop(directory)?;
        shop.write("tls.yaml", "$INGRESS(tls: tls.test/ shop tls=tls)")?;
        // Its certificate is the default one, and it is a host all the same.
        shop.write("any.yaml", "$INGRESS(any: *.any.test/ shop)")?;
        shop.write("all.yaml", "$INGRESS(all: / shop)")?;
        let strangers = [Some("none.test"), Some("_"), Some("x.shop.test"), Some("any.test"), None];
        for name in strangers {
            ensure!(!is_refused(&shop, name)?, "{name:?}: the key is not set");
        }
        set(&mut shop, "true")?;
        for name in strangers {
            ensure!(is_refused(&shop, name)?, "{name:?} is nobody's");
        }
        for name in ["shop.test", "SHOP.test", "tls.test", "x.any.test"] {
            ensure!(!is_refused(&shop, Some(name))?, "{name} is a host");
        }
        ensure!(logged(&shop, RELOADS) == 0, "it is data");
        ensure!(logged(&shop, "[crit]") + logged(&shop, "[alert]") == 0);
        set(&mut shop, "false")?;
        ensure!(!is_refused(&shop, None)?, "served again");
        Ok(())
    });
}
