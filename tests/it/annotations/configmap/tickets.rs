//! A key of TLS session tickets from the ConfigMap.

use super::*;
use openssl::ssl::SslVersion;
use oxigress_tests::mutual::Caller;

const KEY: &str = "ssl-session-ticket-key";

fn shop_with_key(directory: &Directory, key: &str) -> Result<Shop> {
    let mut shop = shop(directory)?;
    let entries = [("ssl-session-cache", "false"), ("ssl-session-tickets", "true"), (KEY, key)];
    reload_with(&mut shop, &entries)?;
    Ok(shop)
}

/// Whether a session that began at the one is resumed at the other.
fn resumes(from: &Shop, to: &Shop, version: SslVersion) -> Result<bool> {
    let mut caller = Caller::new(from.controller.https_port, "shop.test")?;
    caller.version = version;
    ensure!(caller.status("shop.test")? == 200, "the first request");
    Ok(caller.resuming()?.to(to.controller.https_port).call()?.is_resumed())
}

/// The files of the runtime folder with keys of tickets.
fn key_files(directory: &Directory) -> Result<Vec<String>> {
    let names = fs::read_dir(directory.join("run"))?;
    let names = names.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    let names: Vec<_> = names.collect::<Result<_>>()?;
    Ok(names.into_iter().filter(|name| name.starts_with("tickets-")).collect())
}

/// Two nginxes with one key resume each other's sessions, those with different keys do not. The key is in no log, and in
/// no file but its own, which goes with it.
#[test]
fn nginxes_with_one_ticket_key_resume_each_others_sessions() {
    pass("ticket-key", |one| {
        let (two, other) = (Directory::new("ticket-key-2")?, Directory::new("ticket-key-3")?);
        let key = openssl::base64::encode_block(&[7; 80]);
        let mut first = shop_with_key(one, &key)?;
        let second = shop_with_key(&two, &key)?;
        let third = shop_with_key(&other, &openssl::base64::encode_block(&[8; 48]))?;
        for version in [SslVersion::TLS1_2, SslVersion::TLS1_3] {
            ensure!(resumes(&first, &first, version)?, "{version:?}: the same nginx");
            ensure!(resumes(&first, &second, version)?, "{version:?}: another with this key");
            ensure!(!resumes(&first, &third, version)?, "{version:?}: another key");
        }
        ensure!(logged(&first, &key[..20]) == 0, "the key is in the log");
        ensure!(!fs::read_to_string(one.join("run/nginx.conf"))?.contains(&key[..20]));
        ensure!(key_files(one)?.len() == 1, "{:?}", key_files(one)?);
        reload_with(&mut first, &[("ssl-session-tickets", "true")])?;
        ensure!(key_files(one)?.is_empty(), "{:?}", key_files(one)?);
        Ok(())
    });
}
