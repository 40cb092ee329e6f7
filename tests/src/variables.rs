//! `$NAME` in a block's text.
//!
//! Shape:   names are upper case, so nginx's own variables (lower case) pass untouched.
//! Errors:  an upper-case name that means nothing is an error, not an empty text.

use crate::certificate::Certificate;
use crate::endpoint::Endpoint;
use anyhow::{Context, Result, bail};
use regex::{Captures, Regex};
use std::collections::BTreeMap;
use std::sync::LazyLock;

static VARIABLE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"\$([A-Z][A-Z0-9]*(?:_[A-Za-z0-9-]+)*)(?:\(([^()]*)\))?").expect("a pattern")
});

/// What the names of one block stand for.
#[derive(Default)]
pub struct Variables {
    /// Plain texts: `$PORT`, `$TLS_PORT`, `$CONFIGURATION_PORT`, `$SOCKET`, `$DIR`.
    pub texts: BTreeMap<String, String>,
    /// `$PORT_a`, `$ADDRESS_a`, `$ENDPOINT_a` (native JSON), `$COMPAT_a` (ingress-nginx's JSON).
    pub endpoints: BTreeMap<String, Endpoint>,
    /// `$CHAIN_c`, `$KEY_c`, `$PEM_c` (JSON strings), `$CRT64_c`, `$KEY64_c` (base64), `$SERIAL_c`.
    pub certificates: BTreeMap<String, Certificate>,
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
            "FILL" => return Ok(" ".repeat(number()?)),
            "FILLER" => return Ok(filler(number()?)),
            "NEST" => return Ok("[".repeat(number()?) + &"]".repeat(number()?)),
            "A" => return Ok("a".repeat(number()?)),
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

/// Entries for the native dialect's `endpoints`: as many backends with one endpoint each.
fn filler(count: usize) -> String {
    let entry = |i| format!(r#""filler/{i}/80":[{{"address":"10.0.0.1","port":80}}]"#);
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
    fn filler_is_a_list_of_members() {
        let text = Variables::default().expand("{$FILLER(2)}").unwrap();
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value.as_object().unwrap().len(), 2);
    }
}
