//! Patterns that are dear to compile, dear to try, or never end.

use super::{Attack, short};
use crate::tenants::hostile::villain::{OWN, Villain};
use anyhow::{Result, ensure};
use oxigress_tests::client::{Request, send};

pub const ATTACKS: &[Attack] = &[
    short(2, "pattern-compile", compile),
    short(2, "pattern-many", many),
    short(2, "pattern-match", matching),
    short(2, "pattern-locales", locales),
    short(2, "pattern-backtrack", backtrack),
    short(2, "pattern-nested", nested),
    short(2, "pattern-canary", canary),
    short(2, "pattern-subject", subject),
];

const REGEX: &str = "ImplementationSpecific";

/// 33 ms of processor time each, when it was found.
fn dear(number: usize) -> String {
    format!("/[{}]x{number}", r"\pL\PL".repeat(165))
}

/// Everything is answered by somebody, whatever the status.
fn is_answered(v: &Villain<'_>, host: &str, target: &str, count: usize) -> Result<()> {
    for _ in 0..count {
        let status = v.get(host, target)?.status;
        ensure!([200, 404, 500, 503].contains(&status), "{host}: {status}");
    }
    Ok(())
}

/// Hundreds of dear patterns in one Ingress, and a request that would try them all.
fn compile(v: &Villain<'_>) -> Result<()> {
    let mut ingress = v.bare("dear").with("use-regex", "true").host(&v.host());
    for number in 0..300 {
        ingress = ingress.path(&dear(number), REGEX, OWN);
    }
    v.apply_settled([ingress.object()])?;
    is_answered(v, &v.host(), "/ax", 5)
}

/// The same over many Ingresses and hosts.
fn many(v: &Villain<'_>) -> Result<()> {
    let ingresses = (0..20).map(|number| {
        let mut ingress = v.bare(number).with("use-regex", "true").host(&v.host_of(number));
        for path in 0..10 {
            ingress = ingress.path(&dear(number * 10 + path), REGEX, OWN);
        }
        ingress.object()
    });
    v.apply_settled(ingresses.collect::<Vec<_>>())?;
    for number in 0..20 {
        is_answered(v, &v.host_of(number), "/ax", 1)?;
    }
    Ok(())
}

/// Small automata with many states, on the longest paths.
fn matching(v: &Villain<'_>) -> Result<()> {
    let ingress = v.bare("match").with("use-regex", "true").host(&v.host());
    let texts =
        [r"/(a?){140}a{140}$", r"/(x+x+)+y", r"/(\w+\s?)*!", r"/(.*)(.*)(.*)(.*)(.*)[0-9]z"];
    let ingress = texts.iter().fold(ingress, |ingress, text| ingress.path(text, REGEX, OWN));
    v.apply_settled([ingress.object()])?;
    let (host, paths) =
        (v.host(), [b'a', b'x'].map(|c| format!("/{}", char::from(c).to_string().repeat(7_900))));
    v.clients(60, 10, |number| {
        let request = Request::get(&host, &paths[number % 2]);
        let address = v.scene.http();
        async move { send(&address, &request).await.map(drop) }
    });
    is_answered(v, &v.host(), &paths[0], 1)
}

/// A pattern with more captures than there was room for, on a long path: no panic, and the rest is what it is.
fn locales(v: &Villain<'_>) -> Result<()> {
    let locales: Vec<_> = (b'a'..=b'z')
        .chain(b'a'..=b'z')
        .zip(0..)
        .take(60)
        .map(|(letter, number)| {
            format!("{}{}", char::from(letter), char::from(b'a' + (number % 26)))
        })
        .collect();
    let path = format!("/({})(/|$)(.*)", locales.join("|"));
    let ingress = v.bare("locales").with("use-regex", "true").with("rewrite-target", "/$3");
    v.apply_settled([ingress.host(&v.host()).path(&path, REGEX, OWN).object()])?;
    let rest = "b".repeat(7_890);
    for _ in 0..20 {
        let answer = v.get(&v.host(), &format!("/aa/{rest}"))?;
        ensure!(answer.status == 200, "{answer}");
        ensure!(answer.text().starts_with(&format!("GET /{rest} ")), "{answer}");
    }
    Ok(())
}

/// Look-around and back-references: only an engine that backtracks knows them.
fn backtrack(v: &Villain<'_>) -> Result<()> {
    let ingress = v.bare("backtrack").with("use-regex", "true").host(&v.host());
    let texts = [r"/(?=(a+)+b)x", r"/(a+)+\1$", r"/((?!b)a*)*c", r"/(?<!a)(a|aa)+$"];
    let ingress = texts.iter().fold(ingress, |ingress, text| ingress.path(text, REGEX, OWN));
    v.apply_settled([ingress.object()])?;
    for length in [30, 1_000, 7_900] {
        is_answered(v, &v.host(), &format!("/{}", "a".repeat(length)), 5)?;
    }
    Ok(())
}

/// Repetitions of repetitions: refused, and told what to do.
fn nested(v: &Villain<'_>) -> Result<()> {
    let ingress = v.bare("nested").with("use-regex", "true").host(&v.host());
    let ingress = ingress.path("/((((a{1,100}){1,100}){1,100}){1,100}){1,100}", REGEX, OWN);
    v.apply_settled([ingress.object()])?;
    let answer = v.get(&v.host(), "/aaaa")?;
    ensure!([404, 503].contains(&answer.status), "{answer}");
    v.told("Ingress", &v.name("nested"), &["path"])
}

/// A dear pattern for the value of a header, and values to try it on.
fn canary(v: &Villain<'_>) -> Result<()> {
    let canary =
        v.ingress("canary", &v.host()).with("canary", "true").with("canary-by-header", "X-Try");
    let canary = canary.with("canary-by-header-pattern", r"(\pL?){100}\pL{100}$");
    v.apply_settled([v.ingress("main", &v.host()).object(), canary.object()])?;
    for length in [10, 1_000, 6_000] {
        let request = Request::get(&v.host(), "/").header("X-Try", &"é".repeat(length / 2));
        for _ in 0..10 {
            let status = v.send(&request)?.status;
            ensure!([200, 500, 503].contains(&status), "{status}");
        }
    }
    Ok(())
}

/// A dear pattern for the subject of client certificates.
fn subject(v: &Villain<'_>) -> Result<()> {
    let authority = oxigress_tests::mutual::Identity::root("villain")?.pem()?;
    let secret = v.name("authority");
    let ingress = v.ingress("subject", &v.host());
    let ingress = ingress.with("auth-tls-secret", &format!("{}/{secret}", v.namespace));
    let ingress = ingress.with("auth-tls-match-cn", "CN=((a|a?)+)+(?!b)$");
    v.apply_settled([
        crate::tenants::hostile::objects::secret(&secret, &[("ca.crt", &authority)]),
        ingress.object(),
    ])?;
    let answer = v.get(&v.host(), "/")?;
    ensure!(answer.endpoint().is_none(), "open without a certificate: {answer}");
    Ok(())
}
