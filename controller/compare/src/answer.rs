//! What a gateway answers, and in what two answers differ.

use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// An answer, as far as it is compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// The status code of the answer.
    pub status: u16,
    /// Names in lower case and values, in their order.
    pub headers: Vec<(String, String)>,
    /// Length and digest of the body.
    pub body: String,
    /// The certificate that the gateway showed; `None`: the request went without TLS.
    pub certificate: Option<Certificate>,
}

/// The certificate of a handshake.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Certificate {
    /// The common name of the certificate.
    pub name: String,
    /// The SHA-256 of the certificate in hexadecimal digits.
    pub digest: String,
}

impl Answer {
    /// The values of a header, joined; `None` where there is none.
    pub fn header(&self, name: &str) -> Option<String> {
        let values = self.headers.iter().filter(|(one, _)| one == name);
        let values: Vec<&str> = values.map(|(_, value)| value.as_str()).collect();
        (!values.is_empty()).then(|| values.join(", "))
    }

    /// What is compared of each cookie that is set, by its name. Its value and its time of expiry differ anyway.
    fn cookies(&self) -> BTreeMap<String, String> {
        let all = self.headers.iter().filter(|(name, _)| name == "set-cookie");
        all.map(|(_, value)| {
            let (cookie, attributes) = value.split_once(';').unwrap_or((value, ""));
            let (name, value) = cookie.split_once('=').unwrap_or((cookie, ""));
            let attributes = attributes.split(';').map(|one| one.trim().to_ascii_lowercase());
            let attributes =
                attributes.filter(|one| !one.is_empty() && !one.starts_with("expires"));
            let attributes: BTreeSet<String> = attributes.collect();
            let attributes: Vec<String> = attributes.into_iter().collect();
            let value = if value.is_empty() { "empty" } else { "set" };
            (name.trim().to_owned(), [&[value.to_owned()], &*attributes].concat().join("; "))
        })
        .collect()
    }
}

/// In what two answers differ.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(tag = "aspect", content = "name", rename_all = "lowercase")]
pub enum Aspect {
    /// One gateway gave no answer.
    Answer,
    /// The status codes differ.
    Status,
    /// The `Location` headers differ.
    Location,
    /// The certificate of the handshake.
    Certificate,
    /// The header with this name.
    Header(String),
    /// Attributes of the cookie with this name, or whether it is set.
    Cookie(String),
    /// The bodies differ.
    Body,
}

impl fmt::Display for Aspect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Aspect::Answer => f.write_str("answer"),
            Aspect::Status => f.write_str("status"),
            Aspect::Location => f.write_str("location"),
            Aspect::Certificate => f.write_str("certificate"),
            Aspect::Header(name) => write!(f, "header {name}"),
            Aspect::Cookie(name) => write!(f, "cookie {name}"),
            Aspect::Body => f.write_str("body"),
        }
    }
}

/// A difference between two answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// The part of the answers that differs.
    #[serde(flatten)]
    pub aspect: Aspect,
    /// What the old gateway said.
    pub old: String,
    /// What the new gateway said.
    pub new: String,
}

/// Headers of the connection or the moment, which say nothing about the answer.
const IGNORED: &[&str] = &[
    "age",
    "connection",
    "content-length",
    "date",
    "keep-alive",
    "set-cookie",
    "transfer-encoding",
];

const NONE: &str = "none";

/// The differences of two answers. Where the status differs, headers and body follow from it and are not compared.
pub fn differences(
    old: &Result<Answer, String>,
    new: &Result<Answer, String>,
    ignored: &BTreeSet<String>,
) -> Vec<Difference> {
    let mut found = Vec::new();
    let mut note = |aspect, old: String, new: String| {
        if old != new {
            found.push(Difference { aspect, old, new });
        }
    };
    let (old, new) = match (old, new) {
        (Ok(old), Ok(new)) => (old, new),
        (Err(_), Err(_)) => return Vec::new(),
        (old, new) => {
            let text = |one: &Result<Answer, String>| match one {
                Ok(answer) => answer.status.to_string(),
                Err(why) => why.clone(),
            };
            note(Aspect::Answer, text(old), text(new));
            return found;
        }
    };
    let or_none = |value: Option<String>| value.unwrap_or_else(|| NONE.into());
    note(Aspect::Status, old.status.to_string(), new.status.to_string());
    note(Aspect::Location, or_none(old.header("location")), or_none(new.header("location")));
    let shown = |answer: &Answer| {
        let certificate = answer.certificate.as_ref();
        or_none(
            certificate
                .map(|one| format!("{} ({})", one.name, one.digest.get(..16).unwrap_or_default())),
        )
    };
    note(Aspect::Certificate, shown(old), shown(new));
    if old.status != new.status {
        return found;
    }
    let names: BTreeSet<&String> =
        [old, new].iter().flat_map(|one| &one.headers).map(|(name, _)| name).collect();
    for name in names {
        if !IGNORED.contains(&name.as_str()) && name != "location" && !ignored.contains(name) {
            note(
                Aspect::Header(name.clone()),
                or_none(old.header(name)),
                or_none(new.header(name)),
            );
        }
    }
    let (mut before, mut now) = (old.cookies(), new.cookies());
    let names: BTreeSet<String> = before.keys().chain(now.keys()).cloned().collect();
    for name in names {
        let (old, new) = (before.remove(&name), now.remove(&name));
        note(Aspect::Cookie(name), or_none(old), or_none(new));
    }
    note(Aspect::Body, old.body.clone(), new.body.clone());
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, headers: &[(&str, &str)], body: &str) -> Result<Answer, String> {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let headers = headers.iter().map(owned).collect();
        Ok(Answer { status, headers, body: body.into(), certificate: None })
    }

    fn texts(old: &Result<Answer, String>, new: &Result<Answer, String>) -> Vec<String> {
        let all = differences(old, new, &BTreeSet::from(["x-ignored".to_owned()]));
        all.iter().map(|one| format!("{}: {} {}", one.aspect, one.old, one.new)).collect()
    }

    #[test]
    fn what_matters_is_compared() {
        let old = answer(200, &[("x-a", "1"), ("date", "x"), ("x-ignored", "1")], "a");
        let new = answer(200, &[("x-b", "2"), ("date", "y"), ("x-ignored", "2")], "b");
        assert_eq!(texts(&old, &new), ["header x-a: 1 none", "header x-b: none 2", "body: a b"]);
        assert!(texts(&old, &old).is_empty());
    }

    #[test]
    fn another_status_is_one_difference() {
        let old = answer(301, &[("location", "/a/"), ("x-a", "1")], "a");
        let new = answer(200, &[], "b");
        assert_eq!(texts(&old, &new), ["status: 301 200", "location: /a/ none"]);
    }

    #[test]
    fn cookies_are_compared_without_value_and_expiry() {
        let cookie = |text: &str| answer(200, &[("set-cookie", text)], "");
        let old = cookie("route=abc; Path=/; HttpOnly; Expires=Thu");
        assert!(texts(&old, &cookie("route=def; HttpOnly; Path=/; Expires=Fri")).is_empty());
        assert_eq!(
            texts(&old, &cookie("route=abc; Path=/")),
            ["cookie route: set; httponly; path=/ set; path=/"]
        );
        assert_eq!(
            texts(&old, &answer(200, &[], "")),
            ["cookie route: set; httponly; path=/ none"]
        );
    }

    #[test]
    fn no_answer_is_an_answer_of_its_own() {
        let refused = || Err("connection refused".to_owned());
        assert_eq!(texts(&answer(200, &[], ""), &refused()), ["answer: 200 connection refused"]);
        assert!(texts(&refused(), &Err("no answer within 10 s".into())).is_empty());
    }
}
