//! Ciphers, authorities, revocation lists, key pairs and passwords that are damaged, large or dear.

use super::{Attack, short};
use crate::tenants::hostile::blue::{SECURE, basic};
use crate::tenants::hostile::objects::secret;
use crate::tenants::hostile::villain::Villain;
use anyhow::{Result, ensure};
use oxigress_tests::certificate::Certificate;
use oxigress_tests::client::{Address, Request, handshake, send};
use oxigress_tests::mutual::{Identity, VALID};
use oxigress_tests::wait::{block_on, until};
use std::fmt::Write as _;
use std::time::Duration;

pub const ATTACKS: &[Attack] = &[
    short(2, "ciphers", ciphers),
    short(2, "ciphers-upstream", ciphers_upstream),
    short(2, "revocations", revocations),
    short(2, "authorities-damaged", authorities_damaged),
    short(2, "authorities-large", authorities_large),
    short(2, "pairs-damaged", pairs_damaged),
    short(2, "pairs-rotate", pairs_rotate),
    short(2, "passwords-flood", passwords_flood),
    short(2, "passwords-dear", passwords_dear),
];

/// `x` by sha512-crypt with as many rounds as are allowed.
const SLOW: &str = "$6$rounds=100000$red$XAhNCL5MnpN0iBoRAsO5KD789qxw44sbJdrSvyeBgmNFEsbgYzHz5.HoXDuHNVs.MMBl9yvB/CECsy.DCRt72/";

/// Names in order that OpenSSL does not know: once they stopped every update for everybody.
fn ciphers(v: &Villain<'_>) -> Result<()> {
    let ingresses = (0..20)
        .map(|number| v.ingress(number, &v.host_of(number)).with("ssl-ciphers", "foo").object());
    v.apply_settled(ingresses.collect::<Vec<_>>())?;
    v.told("Ingress", &v.name(0), &["ssl-ciphers"])
}

fn ciphers_upstream(v: &Villain<'_>) -> Result<()> {
    let (name, authority) = (v.name("authorities"), Identity::root("villain")?.pem()?);
    let ingress = v.ingress("upstream", &v.host()).with("proxy-ssl-ciphers", "foo");
    let ingress = ingress.with("proxy-ssl-secret", &format!("{}/{name}", v.namespace));
    let ingress = ingress.with("backend-protocol", "HTTPS");
    v.apply_settled([secret(&name, &[("ca.crt", &authority)]), ingress.object()])?;
    v.told("Ingress", &v.name("upstream"), &["proxy-ssl-ciphers"])?;
    let answer = v.get(&v.host(), "/")?;
    ensure!(answer.endpoint().is_none(), "{answer}");
    Ok(())
}

fn mutual(v: &Villain<'_>, name: &str, fields: &[(&str, &str)]) -> Result<()> {
    let secret_name = v.name(name);
    let ingress = v
        .ingress(name, &v.host())
        .with("auth-tls-secret", &format!("{}/{secret_name}", v.namespace));
    v.apply_settled([secret(&secret_name, fields), ingress.object()])
}

/// One good list and one damaged.
fn revocations(v: &Villain<'_>) -> Result<()> {
    let authority = Identity::root("villain")?;
    let list = authority.revoke(&[&authority.issue("one", VALID)?])?;
    let damaged = format!("{list}{}", list.replacen("\nMI", "\nAA", 1));
    mutual(v, "list", &[("ca.crt", &authority.pem()?), ("ca.crl", &damaged)])?;
    v.told("Ingress", &v.name("list"), &["ca.crl"])?;
    let answer = v.get(&v.host(), "/")?;
    ensure!(answer.endpoint().is_none(), "open: {answer}");
    Ok(())
}

/// What begins like a certificate.
fn authorities_damaged(v: &Villain<'_>) -> Result<()> {
    let pem = Identity::root("villain")?.pem()?;
    let damaged = pem.replacen("\nMI", "\nAA", 1);
    mutual(v, "damaged", &[("ca.crt", &format!("{pem}{damaged}{}", "-----BEGIN ".repeat(5_000)))])?;
    let answer = v.get(&v.host(), "/")?;
    ensure!(answer.endpoint().is_none(), "open: {answer}");
    v.told("Ingress", &v.name("damaged"), &["ca.crt"])
}

/// One certificate and a megabyte of remarks, on many hosts.
fn authorities_large(v: &Villain<'_>) -> Result<()> {
    let mut bundle = Identity::root("villain")?.pem()?;
    while bundle.len() < 700_000 {
        bundle += "# Nothing that anybody has to know, but it has to be kept.\n";
    }
    let mut objects = Vec::new();
    for number in 0..4 {
        objects.push(secret(&v.name(number), &[("ca.crt", &format!("{bundle}# {number}\n"))]));
    }
    for number in 0..70 {
        let bundle = format!("{}/{}", v.namespace, v.name(number % 4));
        let ingress = v.ingress(number, &v.host_of(number)).with("auth-tls-secret", &bundle);
        objects.push(ingress.object());
    }
    v.apply_settled(objects)?;
    for number in [0, 35, 69] {
        let answer = v.get(&v.host_of(number), "/")?;
        ensure!(answer.endpoint().is_none(), "open: {answer}");
    }
    Ok(())
}

/// Keys of other certificates, and texts that are none: their hosts show the default certificate.
fn pairs_damaged(v: &Villain<'_>) -> Result<()> {
    let host = v.host();
    let (one, other) = (Certificate::new("one", &[&host])?, Certificate::new("other", &[&host])?);
    let long = one.chain.repeat(200);
    let pairs = [
        (&one.chain, &other.key),
        (&one.chain.replace('M', "N"), &one.key),
        (&long, &one.key),
        (&"x".repeat(500_000), &one.key),
    ];
    for (number, (chain, key)) in pairs.into_iter().enumerate() {
        let host = v.host_of(number);
        let name = v.name(number);
        v.apply([
            secret(&name, &[("tls.crt", chain), ("tls.key", key)]),
            v.ingress(number, &host).tls(&[&host], &name).object(),
        ])?;
    }
    v.settle()?;
    let address = Address::https(v.scene.controller.https_port, v.host_of(0));
    let shown = block_on(handshake(&address))?;
    ensure!(shown != "one" && shown != "other", "it shows {shown}");
    v.told("Secret", &v.name(0), &["tls.key"])
}

/// A certificate that is another one all the time; the last one is shown in the end.
fn pairs_rotate(v: &Villain<'_>) -> Result<()> {
    let (host, name) = (v.host(), v.name("pair"));
    let of =
        |pair: &Certificate| secret(&name, &[("tls.crt", &pair.chain), ("tls.key", &pair.key)]);
    let pairs = ["one", "two", "three"].map(|common| Certificate::new(common, &[&host]));
    let pairs = pairs.into_iter().collect::<Result<Vec<_>>>()?;
    v.apply([of(&pairs[0]), v.ingress("pair", &host).tls(&[&host], &name).object()])?;
    for turn in 0..30 {
        v.apply([of(&pairs[turn % 3])])?;
    }
    let address = Address::https(v.scene.controller.https_port, &host);
    until("the last certificate", || {
        let shown = block_on(handshake(&address))?;
        ensure!(shown == "three", "{shown}");
        Ok(())
    })
}

/// Wrong passwords for hashes that are as slow as is allowed, and visitors of blue's whom nobody has seen before.
fn passwords_flood(v: &Villain<'_>) -> Result<()> {
    let mut users = String::new();
    for number in 0..50 {
        let _ = writeln!(users, "user{number}:{SLOW}");
    }
    let (host, name) = (v.host(), v.name("users"));
    let ingress = v.ingress("slow", &host).with("auth-type", "basic").with("auth-secret", &name);
    v.apply([secret(&name, &[("auth", &users)]), ingress.object()])?;
    v.wait_for(&host, "/", 401)?;
    let visits = std::thread::scope(|scope| {
        let visits = scope.spawn(|| {
            let mut worst = Duration::ZERO;
            for _ in 0..5 {
                let request =
                    Request::get(SECURE, "/").header("Authorization", &v.scene.blue.visitor());
                let start = std::time::Instant::now();
                let answer = block_on(send(&v.scene.http(), &request))?;
                ensure!(answer.status == 200, "a visitor of blue's gets {answer}");
                worst = worst.max(start.elapsed());
            }
            Ok(worst)
        });
        v.clients_for(Duration::from_millis(1_200), 60, |number| {
            let right = basic(&format!("user{}", number % 50), &format!("wrong{number}"));
            let (address, request) =
                (v.scene.http(), Request::get(&host, "/").header("Authorization", &right));
            async move { send(&address, &request).await.map(drop) }
        });
        visits.join()
    });
    let worst = visits.map_err(|_| anyhow::anyhow!("a panic"))??;
    println!("beside a flood of passwords a new visitor of blue's waits at most {worst:.0?}");
    ensure!(worst < crate::tenants::hostile::ALIVE, "a visitor of blue's waited {worst:?}");
    Ok(())
}

/// Hashes that cost minutes: refused when they are read.
fn passwords_dear(v: &Villain<'_>) -> Result<()> {
    let bcrypt = format!("$2b$31${}", "a".repeat(53));
    let sha = SLOW.replace("rounds=100000", "rounds=999999999");
    let users = format!("a:{bcrypt}\nb:{sha}\nc:$y$jFT$salt$hash\n");
    let (host, name) = (v.host(), v.name("users"));
    let ingress = v.ingress("dear", &host).with("auth-type", "basic").with("auth-secret", &name);
    v.apply([secret(&name, &[("auth", &users)]), ingress.object()])?;
    until("the passwords", || {
        let answer = v.get(&host, "/")?;
        ensure!(answer.status == 401 || answer.status == 503, "{answer}");
        Ok(())
    })?;
    for user in ["a", "b", "c"] {
        let answer =
            v.send(&Request::get(&host, "/").header("Authorization", &basic(user, "x")))?;
        ensure!(answer.endpoint().is_none(), "open: {answer}");
    }
    Ok(())
}
