//! Whether an address lies in one of many networks.
//!
//! Shape:   ranges of each family, sorted and merged, so that a look-up is one binary search however long the list.
//!          An IPv4-mapped IPv6 address is the IPv4 address, in a list as in a request: a client cannot choose
//!          the list that holds for it by how it connects.
//! Source:  ngx_http_access_module, which has the same families: `::/0` is every IPv6 address and no IPv4 one.

use ipnet::IpNet;
use std::net::IpAddr;

/// A set of networks, sorted for look-ups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Networks {
    v4: Vec<(u32, u32)>,
    v6: Vec<(u128, u128)>,
}

/// The bits that come before an IPv4 address in its mapped form.
const MAPPED_BITS: u8 = 96;

impl Networks {
    /// Sorts and merges a list.
    pub fn new(list: &[IpNet]) -> Self {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for network in list {
            match network {
                IpNet::V4(network) => {
                    v4.push((network.network().to_bits(), network.broadcast().to_bits()));
                }
                IpNet::V6(network) => match network.network().to_ipv4_mapped() {
                    Some(first) if network.prefix_len() >= MAPPED_BITS => {
                        let last = network.broadcast().to_bits() as u32;
                        v4.push((first.to_bits(), last));
                    }
                    _ => v6.push((network.network().to_bits(), network.broadcast().to_bits())),
                },
            }
        }
        Networks {
            v4: merged(v4, |last| last.checked_add(1)),
            v6: merged(v6, |last| last.checked_add(1)),
        }
    }

    /// One of them has this address.
    pub fn contains(&self, address: IpAddr) -> bool {
        match address.to_canonical() {
            IpAddr::V4(address) => is_within(&self.v4, address.to_bits()),
            IpAddr::V6(address) => is_within(&self.v6, address.to_bits()),
        }
    }
}

/// Ranges that neither overlap nor touch, in order.
fn merged<N: Ord + Copy>(mut ranges: Vec<(N, N)>, next: impl Fn(N) -> Option<N>) -> Vec<(N, N)> {
    ranges.sort_unstable();
    let mut all: Vec<(N, N)> = Vec::with_capacity(ranges.len());
    for (first, last) in ranges {
        match all.last_mut() {
            Some((_, end)) if next(*end).is_none_or(|next| first <= next) => *end = last.max(*end),
            _ => all.push((first, last)),
        }
    }
    all.shrink_to_fit();
    all
}

fn is_within<N: Ord + Copy>(ranges: &[(N, N)], address: N) -> bool {
    let after = ranges.partition_point(|(first, _)| *first <= address);
    after.checked_sub(1).and_then(|at| ranges.get(at)).is_some_and(|(_, last)| address <= *last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    fn networks(list: &[&str]) -> Networks {
        Networks::new(&list.iter().map(|text| text.parse().unwrap()).collect::<Vec<_>>())
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_network_has_its_first_and_its_last_address_and_not_their_neighbours() {
        let list = networks(&["10.1.0.0/16", "192.0.2.7/32", "2001:db8::/32"]);
        for inside in ["10.1.0.0", "10.1.255.255", "192.0.2.7", "2001:db8::", "2001:db8:ffff::1"] {
            assert!(list.contains(address(inside)), "{inside}");
        }
        for outside in ["10.0.255.255", "10.2.0.0", "192.0.2.6", "192.0.2.8", "2001:db9::", "::1"] {
            assert!(!list.contains(address(outside)), "{outside}");
        }
    }

    #[test]
    fn a_mapped_address_is_the_ipv4_address_on_both_sides() {
        let list = networks(&["10.0.0.0/8", "::ffff:192.0.2.0/120"]);
        for inside in ["::ffff:10.1.2.3", "10.1.2.3", "192.0.2.255", "::ffff:192.0.2.1"] {
            assert!(list.contains(address(inside)), "{inside}");
        }
        assert!(!list.contains(address("192.0.3.0")));
        // Neither is the whole of the other family.
        assert!(!networks(&["::/0"]).contains(address("::ffff:10.1.2.3")));
        assert!(!networks(&["0.0.0.0/0"]).contains(address("::1")));
        // The compatible form of RFC 4291 §2.5.5.1 is an IPv6 address like any other.
        assert!(!networks(&["10.0.0.0/8"]).contains(address("::10.1.2.3")));
    }

    #[test]
    fn whole_families_and_their_last_addresses_are_merged_without_overflow() {
        let list = networks(&["0.0.0.0/0", "255.255.255.255/32", "::/0", "ffff::/16"]);
        assert_eq!((list.v4.len(), list.v6.len()), (1, 1));
        assert!(list.contains(address("255.255.255.255")));
        assert!(list.contains(address("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")));
    }

    #[test]
    fn nothing_is_in_an_empty_list() {
        assert!(!Networks::default().contains(address("127.0.0.1")));
        assert!(!Networks::default().contains(address("::")));
    }

    fn any_network() -> impl Strategy<Value = IpNet> {
        // Few leading bits, so that networks meet.
        let v4 = (any::<u8>(), 0_u8..=32).prop_map(|(bits, length)| {
            let address = Ipv4Addr::from_bits(u32::from(bits) << 24 | u32::from(bits & 3));
            IpNet::new(address.into(), length).unwrap()
        });
        let v6 = (any::<u8>(), 0_u8..=128).prop_map(|(bits, length)| {
            let address = Ipv6Addr::from_bits(u128::from(bits) << 120 | u128::from(bits & 3));
            IpNet::new(address.into(), length).unwrap()
        });
        let mapped = (any::<u8>(), 96_u8..=128).prop_map(|(bits, length)| {
            let address = Ipv4Addr::from_bits(u32::from(bits) << 24).to_ipv6_mapped();
            IpNet::new(address.into(), length).unwrap()
        });
        prop_oneof![v4, v6, mapped]
    }

    /// What the list means, one network after the other.
    fn is_in_one(list: &[IpNet], address: IpAddr) -> bool {
        list.iter().any(|network| match (network, address.to_canonical()) {
            (IpNet::V6(n), IpAddr::V4(a)) if n.prefix_len() >= 96 => {
                n.contains(&a.to_ipv6_mapped())
            }
            (network, address) => network.contains(&address),
        })
    }

    proptest! {
        #[test]
        fn a_list_answers_as_its_networks_do_one_by_one(
            list in proptest::collection::vec(any_network(), 0..40),
            addresses in proptest::collection::vec(any_network(), 1..40),
        ) {
            let networks = Networks::new(&list);
            let edges = list.iter().flat_map(|n| [n.network(), n.broadcast()]);
            for address in addresses.iter().map(|n| n.addr()).chain(edges) {
                prop_assert_eq!(networks.contains(address), is_in_one(&list, address), "{}", address);
            }
        }
    }
}
