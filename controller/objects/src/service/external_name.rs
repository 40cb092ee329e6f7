//! What an ExternalName Service stands for.
//!
//! Rejected: reading `0x7f.1` and `127.1` as addresses, as inet_aton does. No DNS name ends in a number
//!           (RFC 1123 §2.1), so they are refused, and no spelling of an address gets past the look at it.

use std::fmt;
use std::net::IpAddr;

/// What a Service of the type ExternalName stands for, as spec.externalName says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExternalName {
    /// An address needs no resolver.
    Address(IpAddr),
    /// A name that is looked up.
    Name(DnsName),
    /// Neither: as written, and why not.
    Odd(String, &'static str),
}

/// A name that DNS can be asked for, in lower case. A dot at its end keeps the search domains away.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DnsName(String);

/// Longest name in text form (RFC 1035 §2.3.4), without a dot at its end.
pub const MAX_NAME_BYTES: usize = 253;
/// Longest part of a name.
const MAX_LABEL_BYTES: usize = 63;

impl ExternalName {
    /// Tells addresses and names apart. An IPv4 address in IPv6 clothes becomes an IPv4 address.
    pub fn parse(text: &str) -> Self {
        let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let is_v6 = |address: &IpAddr| address.is_ipv6();
        let address = match bare {
            Some(bare) => bare.parse().ok().filter(is_v6),
            None => text.parse().ok(),
        };
        match address {
            Some(address) => ExternalName::Address(address.to_canonical()),
            None => match DnsName::parse(text) {
                Ok(name) => ExternalName::Name(name),
                Err(why) => ExternalName::Odd(text.into(), why),
            },
        }
    }
}

impl DnsName {
    /// Refuses what is no name of a host (RFC 1123 §2.1), and `localhost`, which is this machine.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let name = text.to_ascii_lowercase();
        let relative = name.strip_suffix('.').unwrap_or(&name);
        if relative.is_empty() || relative.len() > MAX_NAME_BYTES {
            return Err("is not a name of 1 to 253 bytes");
        }
        if !relative.split('.').all(is_label) {
            return Err("is neither an IP address nor a DNS name");
        }
        match relative.rsplit('.').next().unwrap_or_default() {
            last if is_number(last) => {
                Err("ends in a number and is no IP address in its usual form")
            }
            "localhost" => Err("is this machine"),
            _ => Ok(DnsName(name)),
        }
    }

    /// In lower case, with its dot at the end if it has one.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for DnsName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn is_label(label: &str) -> bool {
    let is_plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    (1..=MAX_LABEL_BYTES).contains(&label.len())
        && label.bytes().all(is_plain)
        && !label.starts_with('-')
        && !label.ends_with('-')
}

/// Digits, or what inet_aton takes for a hexadecimal number.
fn is_number(label: &str) -> bool {
    let hex = label.strip_prefix("0x").map(|hex| hex.bytes().all(|b| b.is_ascii_hexdigit()));
    hex.unwrap_or_else(|| label.bytes().all(|b| b.is_ascii_digit()))
}

/// What DNS says of a name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DnsAnswer {
    /// The last that were found.
    pub addresses: Vec<IpAddr>,
    /// How many more there were then.
    pub left_out: usize,
    /// Why they could not be confirmed the last time.
    pub failure: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Option<String> {
        match ExternalName::parse(text) {
            ExternalName::Address(address) => Some(address.to_string()),
            _ => None,
        }
    }

    #[test]
    fn an_address_is_one_in_every_proper_spelling() {
        assert_eq!(address("127.0.0.1").unwrap(), "127.0.0.1");
        assert_eq!(address("::1").unwrap(), "::1");
        assert_eq!(address("[::1]").unwrap(), "::1");
        assert_eq!(address("0:0:0:0:0:0:0:1").unwrap(), "::1");
        assert_eq!(address("::ffff:127.0.0.1").unwrap(), "127.0.0.1");
        assert_eq!(address("[::FFFF:7f00:1]").unwrap(), "127.0.0.1");
    }

    #[test]
    fn odd_spellings_of_an_address_are_neither_address_nor_name() {
        let odd = [
            "127.1",
            "0x7f.1",
            "0x7f000001",
            "2130706433",
            "0177.0.0.1",
            "127.0.0.1.",
            "127.0.0.0x1",
            "0x",
            "127.000.000.001",
            "[127.0.0.1]",
            "::1%lo",
            "[::1",
            "127.0.0.1:80",
            "１２７.0.0.1",
        ];
        for text in odd {
            let got = ExternalName::parse(text);
            assert!(matches!(got, ExternalName::Odd(..)), "{text}: {got:?}");
        }
    }

    #[test]
    fn a_name_is_what_rfc_1123_says() {
        for text in
            ["db", "DB.example", "a.b-c.example.", "7up.example", "xn--bcher-kva.example", "0x.a"]
        {
            assert!(DnsName::parse(text).is_ok(), "{text}");
        }
        let long = format!("{}.example", "a".repeat(64));
        let longer = format!("{}a", "a.".repeat(127));
        for text in
            ["", ".", "a..b", ".a", "-a.b", "a_b.c", "a b", "a/b", "a\n", "unix:/x", &long, &longer]
        {
            assert!(DnsName::parse(text).is_err(), "{text}");
        }
        assert_eq!(DnsName::parse("DB.Example.").unwrap().as_str(), "db.example.");
    }

    #[test]
    fn this_machine_has_no_name() {
        for text in ["localhost", "LocalHost.", "a.localhost", "a.localhost."] {
            assert!(DnsName::parse(text).is_err(), "{text}");
        }
    }
}
