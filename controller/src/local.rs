//! The addresses of this machine, so that a route cannot lead to a listener of our own.

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// As they are now; what cannot be read is left out.
pub fn addresses() -> BTreeSet<IpAddr> {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let v4 = v4_of(&read("/proc/net/fib_trie"));
    let v6 = v6_of(&read("/proc/net/if_inet6"));
    v4.into_iter().map(IpAddr::V4).chain(v6.into_iter().map(IpAddr::V6)).collect()
}

/// The addresses before each line `/32 host LOCAL`.
fn v4_of(fib_trie: &str) -> Vec<Ipv4Addr> {
    let mut found = Vec::new();
    let mut last: Option<Ipv4Addr> = None;
    for line in fib_trie.lines() {
        if let Some(address) = line.trim().strip_prefix("|-- ") {
            last = address.parse().ok();
        } else if line.contains("/32 host LOCAL") {
            found.extend(last);
        }
    }
    found
}

/// The first column, 32 hex digits.
fn v6_of(if_inet6: &str) -> Vec<Ipv6Addr> {
    let columns = if_inet6.lines().filter_map(|line| line.split_whitespace().next());
    columns.filter_map(|hex| u128::from_str_radix(hex, 16).ok()).map(Ipv6Addr::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_addresses_are_read_from_the_kernel_s_tables() {
        let trie = "Local:\n  +-- 0.0.0.0/0 3 0 5\n        |-- 10.0.0.7\n           /32 host LOCAL\n        \
                    |-- 10.0.0.255\n           /32 link BROADCAST\n";
        assert_eq!(v4_of(trie), [Ipv4Addr::new(10, 0, 0, 7)]);
        let v6 = v6_of("fe800000000000000000000000000001 02 40 20 80 eth0\n");
        assert_eq!(v6, ["fe80::1".parse::<Ipv6Addr>().unwrap()]);
    }
}
