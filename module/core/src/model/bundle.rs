//! Certificates of authorities and revocation lists: PEM that many hosts and policies name, and that is stored once.

use super::Invalid;
use super::text::{as_string, id};
use crate::text::hex;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// PEM certificates of authorities, or PEM revocation lists; clones share the text.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Bundle(Arc<str>);

impl Bundle {
    /// The most bytes of PEM in one bundle.
    pub const MAX_BYTES: usize = 1024 * 1024;

    /// Refuses more than [`Bundle::MAX_BYTES`]; `oxigress-validate` checks the content.
    pub fn parse(text: impl Into<Arc<str>>) -> Result<Self, Invalid> {
        let text = text.into();
        match text.len() > Bundle::MAX_BYTES {
            false => Ok(Bundle(text)),
            true => Err(Invalid::new(format!(
                "{} bytes of PEM, at most {} are taken",
                text.len(),
                Bundle::MAX_BYTES
            ))),
        }
    }

    /// The PEM text of the bundle.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Bundle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bundle({} bytes)", self.0.len())
    }
}

as_string!(Bundle, |text| Bundle::parse(text), |bundle| bundle.as_str().to_owned());

id!(
    /// The identity of a [`Bundle`]: the SHA-256 of its text, so that the text of an id never changes.
    BundleId,
    /// Reads an id of 64 lower-case hexadecimal digits.
    check_digest
);

fn check_digest(text: &str) -> Result<(), Invalid> {
    let is_digit = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    match text.len() == 64 && text.bytes().all(is_digit) {
        true => Ok(()),
        false => Err(Invalid::new(format!(
            "bundle id {:?} is not the SHA-256 of the bundle in 64 lower-case hexadecimal digits",
            super::shorten(text)
        ))),
    }
}

impl BundleId {
    /// The id of this digest.
    pub fn of_digest(digest: [u8; 32]) -> Self {
        BundleId(hex::encode(&digest).into_iter().map(char::from).collect::<String>().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_a_digest_and_a_bundle_is_bounded() {
        let id = BundleId::of_digest([0xa7; 32]);
        assert_eq!(BundleId::parse(id.as_str()), Ok(id.clone()));
        for text in ["", "a7", &"A7".repeat(32), &"g7".repeat(32), &"a7".repeat(33)] {
            assert!(BundleId::parse(text).is_err(), "{text}");
        }
        assert!(Bundle::parse("x".repeat(Bundle::MAX_BYTES)).is_ok());
        assert!(Bundle::parse("x".repeat(Bundle::MAX_BYTES + 1)).is_err());
        let shown = format!("{:?}", Bundle::parse("SECRET").unwrap());
        assert_eq!(shown, "Bundle(6 bytes)");
    }
}
