//! The names of a bundle, decoded: they are told to clients, and a chain's names are compared with them.

use crate::der;
use openssl::stack::Stack;
use openssl::x509::{X509Name, X509NameRef};

/// The most bytes that all names of a bundle take together, as DER. Those of 150 public authorities take 14,000. A
/// handshake's message has no room for more than 65,535.
pub const MAX_NAME_BYTES: usize = 32 * 1024;
/// The most attributes, such as a country, that all names of a bundle have together: a handshake copies them, a
/// microsecond each. Those of 150 public authorities have some 600.
pub const MAX_NAME_PARTS: usize = 1_500;

/// Names in the order of what they belong to.
pub struct Names(Stack<X509Name>);

impl Names {
    /// Decodes them; `what` they belong to stands in the error.
    pub fn new<'d>(
        all: impl Iterator<Item = Option<&'d [u8]>>,
        what: &str,
    ) -> Result<Self, String> {
        let unreadable = || format!("a {what} cannot be read: send PEM");
        let mut names = Stack::new().map_err(|_| "out of memory")?;
        let (mut bytes, mut parts) = (0, 0);
        for name in all {
            let name = name.ok_or_else(unreadable)?;
            bytes += name.len();
            parts += der::name_parts(name).ok_or_else(unreadable)?;
            if bytes > MAX_NAME_BYTES || parts > MAX_NAME_PARTS {
                return Err(format!(
                    "the names in all {what}s have more than {MAX_NAME_PARTS} parts or {MAX_NAME_BYTES} bytes, the most \
                     that is accepted: remove some"
                ));
            }
            let name = X509Name::from_der(name).map_err(|_| unreadable())?;
            names.push(name).map_err(|_| "out of memory")?;
        }
        Ok(Names(names))
    }

    /// The names, for OpenSSL.
    pub fn stack(&self) -> &Stack<X509Name> {
        &self.0
    }

    /// The places of what has this name, as RFC 5280 §7.1 compares names.
    pub fn places(&self, name: &X509NameRef) -> impl Iterator<Item = usize> {
        let is_it = |known: &X509NameRef| known.try_cmp(name).is_ok_and(|order| order.is_eq());
        let all = self.0.iter().enumerate();
        all.filter(move |(_, known)| is_it(known)).map(|(place, _)| place)
    }
}
