//! `$NAME` in a block's text.
//!
//! Shape:   names are upper case, so nginx's own variables (lower case) pass untouched.
//!          Some take arguments: `$FILL(n)` spaces, `$NEST(n)` nested arrays, `$FILLER(n)` backends, and three
//!          write manifests: `$SERVICE(shop: a b)`, `$INGRESS(shop: shop.test/ shop)`, `$SECRET(tls: c)`.
//! Errors:  an upper-case name that means nothing is an error, not an empty text.

use crate::certificate::Certificate;
use crate::endpoint::Endpoint;
use anyhow::{Context, Result, bail};
use regex::{Captures, Regex};
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// Arguments may have parentheses, as regular expressions have, but no pair in another.
static VARIABLE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"\$([A-Z][A-Z0-9]*(?:_[A-Za-z0-9-]+)*)(?:\(((?:[^()]|\([^()]*\))*)\))?")
        .expect("a pattern")
});

/// What the names of one block stand for.
#[derive(Default)]
pub struct Variables {
    /// Plain texts: `$PORT`, `$TLS_PORT`, `$CONFIGURATION_PORT`, `$SOCKET`, `$DIR`; on a cluster `$NAMESPACE`, `$CLASS`.
    pub texts: BTreeMap<String, String>,
    /// `$PORT_a`, `$ADDRESS_a`, `$ENDPOINT_a` (native JSON), `$COMPAT_a` (ingress-nginx's JSON).
    pub endpoints: BTreeMap<String, Endpoint>,
    /// `$CHAIN_c`, `$KEY_c`, `$PEM_c` (JSON strings), `$CRT64_c`, `$KEY64_c` (base64), `$SERIAL_c`.
    pub certificates: BTreeMap<String, Certificate>,
    /// Sections `--- annotations`: the name of the Ingress of `$INGRESS` or none for all, and lines `name: value`.
    pub annotations: Vec<(String, String)>,
}

impl Variables {
    /// `text` with every name replaced.
    pub fn expand(&self, text: &str) -> Result<String> {
        let mut failure = None;
        let expanded = VARIABLE.replace_all(text, |found: &Captures<'_>| {
            let argument = found.get(2).map(|m| m.as_str());
            self.value(&found[1], argument).unwrap_or_else(|error| {
                failure = Some(error.context(format!("variable {}", &found[0])));
                String::new()
            })
        });
        match failure {
            None => Ok(expanded.into_owned()),
            Some(error) => Err(error),
        }
    }

    fn value(&self, name: &str, argument: Option<&str>) -> Result<String> {
        if let Some(text) = self.texts.get(name) {
            // Parentheses behind a plain name are the block's own text.
            return Ok(text.clone() + &argument.map(|a| format!("({a})")).unwrap_or_default());
        }
        let number = || -> Result<usize> { Ok(argument.context("needs (N)")?.parse()?) };
        match name {
            "A" => return Ok("a".repeat(number()?)),
            "FILL" => return Ok(" ".repeat(number()?)),
            "FILLER" => return Ok(filler(number()?)),
            "COMPAT_FILLER" => return Ok(compatible_filler(number()?)),
            "NEST" => return Ok("[".repeat(number()?) + &"]".repeat(number()?)),
            "SERVICE" => return self.service(argument.context("needs (NAME: ENDPOINTS)")?),
            "INGRESS" => return self.ingress(argument.context("needs (NAME: RULES)")?),
            "SECRET" => return self.secret(argument.context("needs (NAME: CERTIFICATE)")?),
            _ => {}
        }
        let (kind, of) = name.split_once('_').context("is not known")?;
        let endpoint = || self.endpoints.get(of).with_context(|| format!("no endpoint {of}"));
        let certificate =
            || self.certificates.get(of).with_context(|| format!("no certificate {of}"));
        let base64 = |text: &str| openssl::base64::encode_block(text.as_bytes());
        let json = |text: &str| serde_json::Value::from(text).to_string();
        Ok(match kind {
            "PORT" => endpoint()?.address.port().to_string(),
            "ADDRESS" => endpoint()?.address.ip().to_string(),
            "ENDPOINT" => endpoint()?.native().to_string(),
            "COMPAT" => endpoint()?.compatible().to_string(),
            "CHAIN" => json(&certificate()?.chain),
            "KEY" => json(&certificate()?.key),
            "PEM" => json(&format!("{}{}", certificate()?.chain, certificate()?.key)),
            "CRT64" => base64(&certificate()?.chain),
            "KEY64" => base64(&certificate()?.key),
            "SERIAL" => certificate()?.serial.clone(),
            _ => bail!("is not known"),
        })
    }
}

impl Variables {
    /// The namespace of manifests: a block's own on a cluster.
    fn namespace(&self) -> &str {
        self.texts.get("NAMESPACE").map_or("default", String::as_str)
    }

    /// `shop: a b`: a Service and one EndpointSlice for each of its endpoints, since ports differ.
    fn service(&self, argument: &str) -> Result<String> {
        let (name, endpoints) = argument.split_once(':').context("NAME: ENDPOINTS")?;
        let (name, namespace) = (name.trim(), self.namespace());
        let mut text = format!(
            "---\napiVersion: v1\nkind: Service\nmetadata: {{ name: {name}, namespace: {namespace} }}\n\
             spec: {{ ports: [{{ name: http, port: 80 }}] }}\n"
        );
        for endpoint in endpoints.split_whitespace() {
            let address = self
                .endpoints
                .get(endpoint)
                .with_context(|| format!("no endpoint {endpoint}"))?
                .address;
            let family = if address.is_ipv6() { "IPv6" } else { "IPv4" };
            text += &format!(
                "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
                 metadata: {{ name: {name}-{endpoint}, namespace: {namespace}, \
                 labels: {{ kubernetes.io/service-name: {name} }} }}\n\
                 addressType: {family}\nports: [{{ name: http, port: {port} }}]\n\
                 endpoints: [{{ addresses: [\"{ip}\"], conditions: {{ ready: true }} }}]\n",
                port = address.port(),
                ip = address.ip(),
            );
        }
        Ok(text)
    }

    /// `shop: shop.test/ web, shop.test/cart cart tls=secret`: an Ingress. Paths that are regular expressions have the type
    /// ImplementationSpecific, others Prefix. `--- annotations` has its annotations.
    fn ingress(&self, argument: &str) -> Result<String> {
        let (name, rules) = argument.split_once(':').context("NAME: RULES")?;
        let (name, namespace) = (name.trim(), self.namespace());
        let class = self.texts.get("CLASS").map_or("nginx", String::as_str);
        let (hosts, tls) = rules_of(rules)?;
        let mut text = format!(
            "---\napiVersion: networking.k8s.io/v1\nkind: Ingress\n\
             metadata:\n  name: {name}\n  namespace: {namespace}\n\
             \x20 annotations:\n    kubernetes.io/ingress.class: {class}\n",
        );
        let of_all_or_it = |(of, _): &&(String, String)| of.is_empty() || of == name;
        for (_, lines) in self.annotations.iter().filter(of_all_or_it) {
            for line in self.expand(lines)?.lines() {
                let (key, value) =
                    line.split_once(':').context("--- annotations: `name: value`")?;
                let value = serde_json::Value::from(value.trim()).to_string();
                text += &format!("    nginx.ingress.kubernetes.io/{}: {value}\n", key.trim());
            }
        }
        text += "spec:\n";
        if !tls.is_empty() {
            text += &format!("  tls:\n{tls}");
        }
        text += "  rules:\n";
        for (host, paths) in hosts {
            text += &format!("  - host: \"{host}\"\n    http:\n      paths:\n{paths}");
        }
        Ok(text)
    }

    /// `shop: second`: a TLS Secret.
    fn secret(&self, argument: &str) -> Result<String> {
        let (name, certificate) = argument.split_once(':').context("NAME: CERTIFICATE")?;
        let (crt, key) = (
            self.value(&format!("CRT64_{}", certificate.trim()), None)?,
            self.value(&format!("KEY64_{}", certificate.trim()), None)?,
        );
        Ok(format!(
            "---\napiVersion: v1\nkind: Secret\ntype: kubernetes.io/tls\n\
             metadata: {{ name: {name}, namespace: {namespace} }}\n\
             data: {{ tls.crt: {crt}, tls.key: {key} }}\n",
            name = name.trim(),
            namespace = self.namespace()
        ))
    }
}

/// The paths of each host, and the entries of spec.tls.
fn rules_of(rules: &str) -> Result<(BTreeMap<&str, String>, String)> {
    let (mut hosts, mut tls) = (BTreeMap::<&str, String>::new(), String::new());
    for rule in rules.split(',') {
        let mut words = rule.split_whitespace();
        let url = words.next().context("HOST/PATH SERVICE")?;
        let at = url.find('/').context("HOST/PATH")?;
        let (host, path) = url.split_at(at);
        let service = words.next().context("HOST/PATH SERVICE")?;
        let is_regex = path.contains(['[', '*', '+', '?', '^', '$', '|', '{']);
        let kind = if is_regex { "ImplementationSpecific" } else { "Prefix" };
        *hosts.entry(host).or_default() += &format!(
            "      - {{ path: '{path}', pathType: {kind}, \
             backend: {{ service: {{ name: {service}, port: {{ number: 80 }} }} }} }}\n"
        );
        match words.next().map(|word| word.split_once('=')) {
            None => {}
            Some(Some(("tls", secret))) => {
                tls += &format!("  - {{ hosts: [\"{host}\"], secretName: {secret} }}\n")
            }
            Some(_) => bail!("only tls=SECRET may follow the Service"),
        }
    }
    Ok((hosts, tls))
}

/// Entries for the native dialect's `endpoints`: as many backends with one endpoint each.
fn filler(count: usize) -> String {
    let entry = |i| format!(r#""filler/{i}/80":[{{"address":"10.0.0.1","port":80}}]"#);
    (0..count).map(entry).collect::<Vec<_>>().join(",")
}

/// Elements for ingress-nginx's array: as many backends with one endpoint each.
fn compatible_filler(count: usize) -> String {
    let entry = |i| {
        format!(r#"{{"name":"filler-{i}-80","endpoints":[{{"address":"10.0.0.1","port":"80"}}]}}"#)
    };
    (0..count).map(entry).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upper_case_names_are_ours_and_lower_case_ones_nginxs() {
        let mut variables = Variables::default();
        variables.texts.insert("PORT".into(), "81".into());
        assert_eq!(variables.expand("$PORT $host $1 ${uri}$").unwrap(), "81 $host $1 ${uri}$");
        assert_eq!(variables.expand("[$FILL(3)]").unwrap(), "[   ]");
        assert!(variables.expand("$PROT").is_err());
        assert!(variables.expand("$PORT_nobody").is_err());
    }

    #[test]
    fn an_ingress_has_its_hosts_paths_and_secrets() {
        let text = "$INGRESS(shop: a.test/ web, a.test/cart cart tls=s, *.b.test/ web)";
        let text = Variables::default().expand(text).unwrap();
        assert_eq!(text.matches("- host:").count(), 2);
        assert_eq!(text.matches("path: '/").count(), 3);
        assert!(text.contains("{ hosts: [\"a.test\"], secretName: s }"), "{text}");
        assert!(Variables::default().expand("$INGRESS(shop: a.test web)").is_err());
    }

    #[test]
    fn filler_is_a_list_of_members() {
        let text = Variables::default().expand("{$FILLER(2)}").unwrap();
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value.as_object().unwrap().len(), 2);
    }
}
