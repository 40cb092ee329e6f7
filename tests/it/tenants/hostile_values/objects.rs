//! Objects with hostile values: Ingresses, and what they name, damaged.

use anyhow::Result;
use oxigress_tests::mutual::{Identity, VALID};
use serde_json::{Value, json};
use std::collections::BTreeMap;

const PREFIX: &str = "nginx.ingress.kubernetes.io";

/// Annotations without which others have no effect, by the beginning of those.
const COMPANIONS: &[(&str, &[(&str, &str)])] = &[
    ("affinity", &[("affinity", "cookie")]),
    ("auth-realm", &[("auth-type", "basic"), ("auth-secret", "default/passwords")]),
    ("auth-secret", &[("auth-type", "basic"), ("auth-secret", "default/passwords")]),
    ("auth-tls", &[("auth-tls-secret", "default/authorities")]),
    ("auth-type", &[("auth-secret", "default/passwords")]),
    ("auth-", &[("auth-url", "http://auth.test/")]),
    ("canary", &[("canary", "true"), ("canary-weight", "10"), ("canary-by-header", "X-Canary")]),
    ("connection-proxy", &[("connection-proxy-header", "keep-alive")]),
    ("cors-", &[("enable-cors", "true")]),
    ("custom-http", &[("default-backend", "shop")]),
    ("default-backend", &[("custom-http-errors", "404,503")]),
    ("fastcgi", &[("backend-protocol", "FCGI")]),
    ("limit-", &[("limit-rps", "5"), ("limit-rate", "100")]),
    ("mirror-", &[("mirror-target", "http://mirror.test/")]),
    ("permanent-redirect-code", &[("permanent-redirect", "https://x.test/")]),
    ("proxy-redirect-from", &[("proxy-redirect-to", "https://x.test/")]),
    ("proxy-redirect-to", &[("proxy-redirect-from", "http://x.test/")]),
    ("proxy-ssl", &[("proxy-ssl-secret", "default/authorities"), ("backend-protocol", "HTTPS")]),
    ("satisfy", &[("auth-type", "basic"), ("auth-secret", "default/passwords")]),
    ("session-cookie", &[("affinity", "cookie")]),
    ("temporal-redirect-code", &[("temporal-redirect", "https://x.test/")]),
    ("upstream-hash-by", &[("upstream-hash-by", "$request_uri")]),
    ("x-forwarded-prefix", &[("rewrite-target", "/x/$2")]),
];

/// With those without which `name` has no effect.
pub fn with_companions(name: &str, value: &str) -> BTreeMap<String, String> {
    let companions = COMPANIONS.iter().find(|(begin, _)| name.starts_with(begin));
    let companions = companions.into_iter().flat_map(|(_, all)| *all);
    let companions = companions.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    companions.chain([(name.to_owned(), value.to_owned())]).collect()
}

pub struct Ingress<'a> {
    pub key: (&'a str, &'a str),
    pub host: &'a str,
    /// Annotations by their names without the prefix.
    pub annotations: &'a BTreeMap<String, String>,
    /// Paths, each with its pathType.
    pub paths: &'a [(&'a str, &'a str)],
    pub secrets: &'a [&'a str],
}

impl Ingress<'_> {
    /// As an API server has it.
    pub fn json(&self) -> Value {
        let named = |(name, value)| (format!("{PREFIX}/{name}"), Value::from(value));
        let annotations: BTreeMap<String, Value> = self
            .annotations
            .iter()
            .map(|(name, value)| named((name, value.as_str())))
            .chain([("kubernetes.io/ingress.class".to_owned(), "nginx".into())])
            .collect();
        let backend = json!({"service": {"name": "shop", "port": {"number": 80}}});
        let path = |(path, kind): &(&str, &str)| json!({"path": path, "pathType": kind, "backend": backend});
        let paths: Vec<_> = self.paths.iter().map(path).collect();
        let tls = |secret: &&str| json!({"hosts": [self.host], "secretName": secret});
        let tls: Vec<_> = self.secrets.iter().map(tls).collect();
        json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
            "metadata": {"name": self.key.1, "namespace": self.key.0, "annotations": annotations},
            "spec": {"rules": [{"host": self.host, "http": {"paths": paths}}], "tls": tls},
        })
    }
}

/// A file of these objects.
pub fn list(items: Vec<Value>) -> String {
    json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string()
}

/// The Service `shop` of a namespace, on a loopback port.
pub fn service(namespace: &str, port: u16) -> Vec<Value> {
    let labels = json!({"kubernetes.io/service-name": "shop"});
    vec![
        json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "shop", "namespace": namespace}, "spec": {"ports": [{"port": 80}]},
        }),
        json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"name": "shop-1", "namespace": namespace, "labels": labels},
            "ports": [{"port": port}], "endpoints": [{"addresses": ["127.0.0.1"]}],
        }),
    ]
}

pub fn fields(kind: &str, name: &str, fields: &[(&str, String)]) -> Value {
    let data: BTreeMap<_, _> = fields.iter().map(|(name, text)| (*name, text.as_str())).collect();
    let metadata = json!({"name": name, "namespace": "default"});
    let field = if kind == "Secret" { "stringData" } else { "data" };
    json!({"apiVersion": "v1", "kind": kind, "metadata": metadata, field: data})
}

/// Secrets `passwords`, `authorities` and `damaged-N`; the names, and the objects.
pub fn secrets(texts: &[String]) -> Result<(Vec<String>, Vec<Value>)> {
    let ca = Identity::root("ca")?;
    let leaf = ca.issue("leaf.test", VALID)?;
    let (crt, key, root) = (leaf.pem()?, leaf.key_pem()?, ca.pem()?);
    let crl = ca.revoke(&[&leaf])?;
    let whole = |crt: &str, key: &str, root: &str, crl: &str, auth: &str| {
        let pairs =
            [("tls.crt", crt), ("tls.key", key), ("ca.crt", root), ("ca.crl", crl), ("auth", auth)];
        pairs.map(|(name, text)| (name, text.to_owned()))
    };
    let cut = |text: &str| text.get(..text.len() / 2).unwrap_or_default().to_owned();
    let broken = |text: &str| text.replacen("\nMI", "\nAA", 1);
    let auth = "a:$apr1$x$y\nb:{SHA}x\n:\nc\n\n#\n\u{e4}:\u{e4}\nd:$6$rounds=99999999$x$y\n";
    let mut all = vec![
        whole(&cut(&crt), &key, &root, &crl, auth),
        whole(&crt, &cut(&key), &cut(&root), &crl, "a"),
        whole(&crt, &root, &broken(&root), "", ":"),
        whole(&root, &key, &format!("{root}{}", broken(&root)), "", ""),
        whole(&crt, &key, &root, &format!("{crl}{}", broken(&crl)), auth),
        whole(&crt, &key, &root, &cut(&crl), "a:$2y$99$x"),
        whole(&crt.repeat(11), &key, &root.repeat(300), &crl.repeat(300), &"a:b\n".repeat(9_000)),
        whole(&format!("{crt}junk"), &format!("junk{key}"), &format!("#{root}"), "junk", "\0"),
        whole(&format!("{crt}{root}"), &key, &format!("{root}{root}{crt}"), &crl, auth),
        whole(
            &crt.replace('\n', "\r\n"),
            &key.replace('\n', "\r\n"),
            &root.replace('\n', ""),
            &crl,
            "",
        ),
        whole(&crt, &format!("{key}{key}"), &key, &key, &root),
        whole("", "", "", "", ""),
    ];
    let odd = texts.iter().step_by(25);
    all.extend(odd.map(|text| whole(text, &key, text, text, text)));
    let mut names = vec!["passwords".to_owned(), "authorities".to_owned()];
    let good = whole(&crt, &key, &root, &crl, "a:{PLAIN}b\n");
    let mut objects: Vec<_> = names.iter().map(|name| fields("Secret", name, &good)).collect();
    for (number, damaged) in all.iter().enumerate() {
        names.push(format!("damaged-{number}"));
        objects.push(fields("Secret", &format!("damaged-{number}"), damaged));
    }
    Ok((names, objects))
}

/// ConfigMaps of header names and values; the names, and the objects.
pub fn config_maps(texts: &[String]) -> (Vec<String>, Vec<Value>) {
    let one = |number: usize| {
        let at = |index: usize| texts.get((number * 7 + index) % texts.len().max(1));
        let data: BTreeMap<String, String> = (0..6)
            .filter_map(|n| Some((at(n * 3)?, at(n * 5 + 1)?)))
            .map(|(name, value)| {
                (
                    if number.is_multiple_of(2) { "X-A".to_owned() + name } else { name.clone() },
                    value.clone(),
                )
            })
            .chain([("X-B".to_owned(), at(9).cloned().unwrap_or_default())])
            .collect();
        let metadata = json!({"name": format!("headers-{number}"), "namespace": "default"});
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
    };
    let count = 24;
    ((0..count).map(|number| format!("headers-{number}")).collect(), (0..count).map(one).collect())
}
