//! The addresses to which the gateway may connect, whatever object names them.
//!
//! Shape:   a few comparisons for an ordinary address; a port of the gateway itself is compared with its listeners. An
//!          IPv6 address that embeds an IPv4 one is judged as the latter, where it may embed several as each of them.
//! Source:  RFC 6890 (special addresses), RFC 6052 and RFC 8215 (NAT64), RFC 4291 §2.5.5 (mapped, compatible).

use crate::policy::networks::Networks;
use ipnet::IpNet;
use std::fmt::{self, Display, Formatter};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The arguments of the directive `ingress_destinations`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// `loopback`: this machine may be an endpoint.
    pub allows_loopback: bool,
    /// The networks of `deny=NETWORK`: no endpoint may be in one of them.
    pub denied: Vec<IpNet>,
    /// `own=PORT`: ports where other processes of the ingress listen.
    pub own_ports: Vec<u16>,
}

impl Settings {
    /// Takes a word; `None`: it is none.
    pub fn add(&mut self, word: &str) -> Option<()> {
        match word.split_once('=') {
            None if word == "loopback" => self.allows_loopback = true,
            Some(("deny", network)) => self.denied.push(network.parse().ok()?),
            Some(("own", port)) => self.own_ports.push(port.parse().ok()?),
            _ => return None,
        }
        Some(())
    }

    /// The destinations that are left.
    pub fn destinations(&self) -> Destinations {
        let everywhere = |port: &u16| SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), *port);
        Destinations::new(self.allows_loopback, &self.denied)
            .with_own(self.own_ports.iter().map(everywhere))
    }
}

impl Display for Settings {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(if self.allows_loopback { " loopback" } else { "" })?;
        self.denied.iter().try_for_each(|network| write!(f, " deny={network}"))?;
        self.own_ports.iter().try_for_each(|port| write!(f, " own={port}"))
    }
}

/// The addresses to which the gateway may open connections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Destinations {
    /// Whether addresses that cannot belong to a server are denied.
    is_strict: bool,
    allows_loopback: bool,
    denied: Networks,
    has_denied: bool,
    own: Vec<SocketAddr>,
}

/// Why a connection is not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denial {
    /// The address is a listener of the gateway itself.
    OwnListener,
    /// The address is a loopback address or one of this machine's.
    Loopback,
    /// `0.0.0.0/8` or `::`, which lead to this machine.
    Unspecified,
    /// The address is link-local, such as the metadata services of clouds.
    LinkLocal,
    /// The address is a multicast or broadcast address.
    Multicast,
    /// The address is in a network of `--deny-destinations`.
    Listed,
}

impl Display for Denial {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Denial::OwnListener => {
                "is a listener of this ingress, so requests would go in a circle: name another"
            }
            Denial::Loopback => {
                "is a loopback address of this ingress: name another, or allow it with \
                 --allow-loopback-destinations"
            }
            Denial::Unspecified => "is no address of a server: name another",
            Denial::LinkLocal => {
                "is a link-local address, where clouds keep metadata: name another"
            }
            Denial::Multicast => "is a multicast or broadcast address: name another",
            Denial::Listed => "lies in a network of --deny-destinations: name another",
        })
    }
}

impl Destinations {
    /// Special addresses are denied, loopback unless it is allowed, and these networks.
    pub fn new(allows_loopback: bool, denied: &[IpNet]) -> Self {
        Destinations {
            is_strict: true,
            allows_loopback,
            denied: Networks::new(denied),
            has_denied: !denied.is_empty(),
            own: Vec::new(),
        }
    }

    /// Also denies these listeners; an unspecified address means all addresses of this machine.
    pub fn with_own(mut self, listeners: impl IntoIterator<Item = SocketAddr>) -> Self {
        self.own.extend(listeners.into_iter().map(|l| SocketAddr::new(meant(l.ip()), l.port())));
        self.own.sort_unstable();
        self.own.dedup();
        self
    }

    /// Why no connection may be made to an address; `None` if it may. `is_local` returns whether an address is one of
    /// this machine's; it is called for the gateway's own ports only.
    #[inline]
    pub fn denial(&self, to: SocketAddr, is_local: impl Fn(IpAddr) -> bool) -> Option<Denial> {
        let own = match to.ip() {
            IpAddr::V6(v6) if is_of_own_nat64(v6) => self.denial_of_shorter(v6, to, &is_local),
            _ => None,
        };
        own.or_else(|| self.denial_of(meant(to.ip()), to, is_local))
    }

    /// The same for each address that the prefixes of other lengths embed.
    #[cold]
    fn denial_of_shorter(
        &self,
        v6: Ipv6Addr,
        to: SocketAddr,
        is_local: &impl Fn(IpAddr) -> bool,
    ) -> Option<Denial> {
        let mut all = embedded_before_end(v6).into_iter();
        all.find_map(|address| self.denial_of(address?.into(), to, is_local))
    }

    /// The same where `address` is what `to` leads to.
    #[inline]
    fn denial_of(
        &self,
        address: IpAddr,
        to: SocketAddr,
        is_local: impl FnOnce(IpAddr) -> bool,
    ) -> Option<Denial> {
        if self.is_strict
            && let Some(denial) = special(address)
            && (denial != Denial::Loopback || !self.allows_loopback)
        {
            return Some(denial);
        }
        if self.has_denied && (self.denied.contains(to.ip()) || self.denied.contains(address)) {
            return Some(Denial::Listed);
        }
        match self.own.iter().any(|own| own.port() == to.port()) {
            true => self.own_listener(address, to.port(), is_local),
            false => None,
        }
    }

    #[cold]
    fn own_listener(
        &self,
        address: IpAddr,
        port: u16,
        is_local: impl FnOnce(IpAddr) -> bool,
    ) -> Option<Denial> {
        // Linux connects to itself.
        let address = match address {
            IpAddr::V4(v4) if v4.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V6(v6) if v6.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
            other => other,
        };
        let mut own = self.own.iter().filter(|own| own.port() == port).map(SocketAddr::ip);
        let listens_everywhere = own.clone().any(|own| own.is_unspecified());
        let is_own = own.any(|own| own == address)
            || listens_everywhere && (address.is_loopback() || is_local(address));
        is_own.then_some(Denial::OwnListener)
    }
}

/// What an address leads to.
fn meant(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(v6) => embedded(v6).map_or(address, IpAddr::V4),
    }
}

/// The IPv4 address that an IPv6 address embeds.
fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let [a, b, c, d, e, f, high, low] = address.segments();
    let v4 = |high: u16, low: u16| Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low));
    match [a, b, c, d, e, f] {
        // Mapped, translated (RFC 2765), NAT64.
        [0, 0, 0, 0, 0, 0xffff] | [0, 0, 0, 0, 0xffff, 0] | [0x64, 0xff9b, 0, 0, 0, 0] => {
            Some(v4(high, low))
        }
        // NAT64 of one's own, by a prefix of 96 bits.
        [0x64, 0xff9b, 1, ..] => Some(v4(high, low)),
        // Compatible: but for `::` and `::1`.
        [0, 0, 0, 0, 0, 0] if (high, low) != (0, 0) && (high, low) != (0, 1) => Some(v4(high, low)),
        // 6to4
        [0x2002, high, low, ..] => Some(v4(high, low)),
        _ => None,
    }
}

/// Of `64:ff9b:1::/48`, in which an operator has NAT64 prefixes of one's own (RFC 8215).
#[inline]
fn is_of_own_nat64(address: Ipv6Addr) -> bool {
    matches!(address.segments(), [0x64, 0xff9b, 1, ..])
}

/// The IPv4 addresses that a NAT64 prefix of 48, 56 and 64 bits embeds, around an octet that says nothing (RFC 6052 §2.2);
/// what follows them means nothing. `None`: the prefix has another length, since no server is in `0.0.0.0/8`.
fn embedded_before_end(address: Ipv6Addr) -> [Option<Ipv4Addr>; 3] {
    let [.., a, b, _, c, d, e, f, _, _, _] = address.octets();
    let all = [[a, b, c, d], [b, c, d, e], [c, d, e, f]];
    all.map(|v4| Some(Ipv4Addr::from(v4)).filter(|_| v4[0] != 0))
}

/// What is special about an address.
#[inline]
fn special(address: IpAddr) -> Option<Denial> {
    match address {
        IpAddr::V4(v4) => match v4.octets() {
            [0, ..] => Some(Denial::Unspecified),
            [127, ..] => Some(Denial::Loopback),
            [169, 254, ..] => Some(Denial::LinkLocal),
            // Metadata of Alibaba Cloud and of Oracle Cloud, which are one machine's own as link-local addresses are.
            [100, 100, 100, 200] | [192, 0, 0, 192] => Some(Denial::LinkLocal),
            // Azure's WireServer, which gives a machine its certificates and keys.
            [168, 63, 129, 16] => Some(Denial::LinkLocal),
            [224..=239, ..] | [255, 255, 255, 255] => Some(Denial::Multicast),
            _ => None,
        },
        IpAddr::V6(v6) if v6.is_unspecified() => Some(Denial::Unspecified),
        IpAddr::V6(v6) if v6.is_loopback() => Some(Denial::Loopback),
        IpAddr::V6(v6) if v6.is_unicast_link_local() => Some(Denial::LinkLocal),
        IpAddr::V6(v6) if v6.is_multicast() => Some(Denial::Multicast),
        // Metadata of Amazon (pod identity too) and of Google, which are link-local in all but their prefix.
        IpAddr::V6(v6) if v6.segments().starts_with(&[0xfd00, 0x0ec2]) => Some(Denial::LinkLocal),
        IpAddr::V6(v6) if v6.segments() == [0xfd20, 0x00ce, 0, 0, 0, 0, 0, 0x0254] => {
            Some(Denial::LinkLocal)
        }
        IpAddr::V6(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(address: &str, port: u16) -> SocketAddr {
        SocketAddr::new(address.parse().unwrap(), port)
    }

    #[test]
    fn addresses_of_no_server_are_denied_in_every_form() {
        let strict = Destinations::new(false, &[]);
        for (address, denial) in [
            ("127.0.0.1", Denial::Loopback),
            ("127.255.0.9", Denial::Loopback),
            ("::1", Denial::Loopback),
            ("::ffff:127.0.0.1", Denial::Loopback),
            ("::127.0.0.1", Denial::Loopback),
            ("::ffff:0:127.0.0.1", Denial::Loopback),
            ("64:ff9b::127.0.0.1", Denial::Loopback),
            ("64:ff9b:1::127.0.0.1", Denial::Loopback),
            ("2002:7f00:1::", Denial::Loopback),
            ("0.0.0.0", Denial::Unspecified),
            ("0.1.2.3", Denial::Unspecified),
            ("::", Denial::Unspecified),
            ("::ffff:0.0.0.0", Denial::Unspecified),
            ("64:ff9b::", Denial::Unspecified),
            ("169.254.169.254", Denial::LinkLocal),
            ("::ffff:169.254.169.254", Denial::LinkLocal),
            ("64:ff9b::a9fe:a9fe", Denial::LinkLocal),
            ("2002:a9fe:a9fe::1", Denial::LinkLocal),
            ("fe80::1", Denial::LinkLocal),
            ("fd00:ec2::254", Denial::LinkLocal),
            ("fd20:ce::254", Denial::LinkLocal),
            ("100.100.100.200", Denial::LinkLocal),
            ("64:ff9b::100.100.100.200", Denial::LinkLocal),
            ("192.0.0.192", Denial::LinkLocal),
            ("168.63.129.16", Denial::LinkLocal),
            ("::ffff:168.63.129.16", Denial::LinkLocal),
            ("64:ff9b:1::168.63.129.16", Denial::LinkLocal),
            ("febf::1", Denial::LinkLocal),
            ("224.0.0.1", Denial::Multicast),
            ("239.255.255.255", Denial::Multicast),
            ("255.255.255.255", Denial::Multicast),
            ("ff02::1", Denial::Multicast),
        ] {
            assert_eq!(strict.denial(to(address, 80), |_| false), Some(denial), "{address}");
            assert_eq!(Destinations::default().denial(to(address, 80), |_| false), None);
        }
        for address in [
            "10.0.0.1",
            "::ffff:10.0.0.1",
            "64:ff9b::10.0.0.1",
            "fd00::1",
            "fec0::1",
            "100.100.100.201",
            "192.0.0.1",
            "168.63.129.17",
            "64:ff9b:1::10.0.0.1",
        ] {
            assert_eq!(strict.denial(to(address, 80), |_| false), None, "{address}");
        }
        let at_home = Destinations::new(true, &[]);
        for address in ["127.0.0.1", "::1", "::ffff:127.0.0.1"] {
            assert_eq!(at_home.denial(to(address, 80), |_| false), None, "{address}");
        }
        assert_eq!(at_home.denial(to("0.0.0.0", 80), |_| false), Some(Denial::Unspecified));
    }

    #[test]
    fn settings_are_read_as_they_are_written() {
        let settings = Settings {
            allows_loopback: true,
            denied: vec!["10.0.0.0/8".parse().unwrap(), "fd00::/8".parse().unwrap()],
            own_ports: vec![10254, 8443],
        };
        let mut read = Settings::default();
        let text = settings.to_string();
        assert!(text.split_whitespace().all(|word| read.add(word).is_some()), "{text}");
        assert_eq!(read, settings);
        for odd in ["loop", "deny=x", "deny=10.0.0.0/33", "own=", "own=70000", "own"] {
            assert!(Settings::default().add(odd).is_none(), "{odd}");
        }
    }

    #[test]
    fn networks_of_the_operator_are_denied_in_every_form() {
        let networks = ["10.1.0.0/16".parse().unwrap(), "fd00:1::/32".parse().unwrap()];
        let listed = Destinations::new(true, &networks);
        for address in ["10.1.2.3", "::ffff:10.1.2.3", "64:ff9b::10.1.2.3", "fd00:1::9"] {
            assert_eq!(
                listed.denial(to(address, 80), |_| false),
                Some(Denial::Listed),
                "{address}"
            );
        }
        for address in ["10.2.2.3", "fd00:2::9", "127.0.0.1"] {
            assert_eq!(listed.denial(to(address, 80), |_| false), None, "{address}");
        }
    }

    #[test]
    fn a_nat64_prefix_of_one_s_own_may_have_any_length() {
        let listed = Destinations::new(false, &["10.1.0.0/16".parse().unwrap()]);
        let own = [to("0.0.0.0", 8443)];
        let listed = listed.with_own(own);
        let machine = |address: IpAddr| address == "192.168.0.5".parse::<IpAddr>().unwrap();
        for (address, port, denial) in [
            // What follows the address looks like a harmless one.
            ("64:ff9b:1:a9fe:a9:fe00:a00:1", 80, Some(Denial::LinkLocal)),
            ("64:ff9b:1:a9:fe:a9fe:a00:1", 80, Some(Denial::LinkLocal)),
            ("64:ff9b:1:0:a9:fea9:fe00:1", 80, Some(Denial::LinkLocal)),
            ("64:ff9b:1:22:a9:fea9:fe0a:1", 80, Some(Denial::LinkLocal)),
            // The octet in the middle says nothing.
            ("64:ff9b:1:a9fe:ffa9:fe00:a00:1", 80, Some(Denial::LinkLocal)),
            ("64:ff9b:1:a01:2:300:808:808", 80, Some(Denial::Listed)),
            ("64:ff9b:1:1122:3344:5566:a01:203", 80, Some(Denial::Listed)),
            ("64:ff9b:1:c0a8:0:500:808:808", 8443, Some(Denial::OwnListener)),
            ("64:ff9b:1:c0a8:0:500:808:808", 443, None),
            ("64:ff9b:1:a02:2:300:808:808", 80, None),
            ("64:ff9b:1::8.8.8.8", 80, None),
            // Another prefix.
            ("64:ff9b:2:a9fe:a9:fe00:a00:1", 80, None),
        ] {
            assert_eq!(listed.denial(to(address, port), machine), denial, "{address}");
        }
    }

    #[test]
    fn our_own_listeners_are_denied_by_every_address_of_this_machine() {
        let own = [to("0.0.0.0", 80), to("10.0.0.5", 443), to("::", 80)];
        let destinations = Destinations::new(true, &[]).with_own(own);
        let machine = |address: IpAddr| address == "10.0.0.5".parse::<IpAddr>().unwrap();
        for address in ["127.0.0.1", "127.1.1.1", "::1", "::ffff:127.0.0.1", "10.0.0.5"] {
            let denial = destinations.denial(to(address, 80), machine);
            assert_eq!(denial, Some(Denial::OwnListener), "{address}");
        }
        let loose = Destinations::default().with_own(own);
        for address in ["0.0.0.0", "::"] {
            let denial = loose.denial(to(address, 80), machine);
            assert_eq!(denial, Some(Denial::OwnListener), "{address}");
        }
        // Somebody else's: another machine, another port, another address of a listener with one.
        assert_eq!(destinations.denial(to("10.0.0.6", 80), machine), None);
        assert_eq!(destinations.denial(to("127.0.0.1", 8080), machine), None);
        assert_eq!(destinations.denial(to("127.0.0.1", 443), machine), None);
        assert_eq!(destinations.denial(to("10.0.0.5", 443), machine), Some(Denial::OwnListener));
        let other = to("::ffff:10.0.0.5", 443);
        assert_eq!(destinations.denial(other, machine), Some(Denial::OwnListener));
    }
}
