//! Access control: password files, networks, auth servers, origins.

use crate::{ends_a_line, ends_a_target};
use ipnet::IpNet;
use oxigress_core::http::{forwarded, header};
use oxigress_core::model::policy::{Cors, HeaderValue};
use oxigress_core::policy::auth;
use oxigress_core::policy::cors::{OriginDecision, Origins};
use oxigress_core::policy::networks::Networks;
use oxigress_core::policy::passwords::{self, Passwords};
use oxigress_fuzz::{check, fields, joined};
use std::hash::RandomState;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

#[test]
fn fuzz_passwords() {
    let seeds = [
        joined(&[
            "a",
            "a:$apr1$x$y\nb:$2y$10$abcdefghijklmnopqrstuv\r\n#c:{PLAIN}x\nd:{SHA}x:a remark\n",
        ]),
        joined(&["b", "a:$6$rounds=5000$x$y\nb:$y$j9T$x$y\nb:{PLAIN}second\nc:abJnggxhB/yWI\n"]),
        joined(&["c", "c:\nc:{PLAIN}x\n:{PLAIN}x\nd:$2y$31$x\nd:{SSHA}x\ne:$1$a$b"]),
    ];
    check("passwords", &seeds, |input| {
        let [name, file] = fields(input);
        let all = Passwords::parse(file, RandomState::new());
        let users = file
            .split(|byte| *byte == b'\n')
            .filter_map(|line| line.split(|byte| *byte == b':').next());
        for user in users.chain([name]) {
            let Some(hash) = all.of(user) else { continue };
            let hash = hash.bytes();
            is_one_that_is_taken(hash);
            assert!(!user.is_empty() && !user.starts_with(b"#"));
            // The hash is in the first line of this user, at its beginning.
            let of_user = |line: &&[u8]| {
                line.strip_prefix(user).is_some_and(|rest| rest.starts_with(b":"))
                    && !line.contains(&0)
            };
            let line = file.split(|byte| *byte == b'\n').find(of_user).unwrap();
            assert!(line[user.len() + 1..].starts_with(hash));
            assert!(all.stand_in().is_some());
        }
        if let Ok(realm) = str::from_utf8(name) {
            let challenge = passwords::challenge(realm);
            assert!(!challenge.iter().any(u8::is_ascii_control));
            let quoted =
                challenge.strip_prefix(b"Basic realm=\"").unwrap().strip_suffix(b"\"").unwrap();
            let mut bytes = quoted.iter();
            while let Some(byte) = bytes.next() {
                assert!(*byte != b'"' && (*byte != b'\\' || bytes.next().is_some()));
            }
        }
    });
}

/// A kind that is known, at a cost that is bounded.
fn is_one_that_is_taken(hash: &[u8]) {
    assert!(!hash.is_empty() && !ends_a_line(hash) && !hash.contains(&b':'));
    let text = String::from_utf8_lossy(hash);
    let parts: Vec<_> = text.split('$').collect();
    let is_number_to = |text: &str, most: u32| text.parse::<u32>().is_ok_and(|n| n <= most);
    let is_fine = match &*parts {
        ["", "apr1" | "1", ..] => true,
        ["", "2" | "2a" | "2b" | "2x" | "2y", cost, ..] => is_number_to(cost, 12),
        ["", "5" | "6", salt, ..] if salt.starts_with("rounds=") => {
            is_number_to(&salt[7..], 100_000)
        }
        ["", "5" | "6", ..] => true,
        ["", "y", parameters, _, ..] => parameters.len() == 3 && *parameters <= "j9T",
        [first, ..] if first.starts_with('{') => {
            ["{PLAIN}", "{SHA}", "{SSHA}"].iter().any(|kind| first.starts_with(kind))
        }
        [des] => des.len() == 13 && !des.starts_with(['_', '*']),
        _ => false,
    };
    assert!(is_fine, "{text}");
}

#[test]
fn fuzz_networks() {
    let seeds = [
        joined(&["10.1.2.3", "10.0.0.0/8\n192.168.0.1/32\n::ffff:10.0.0.0/104\n0.0.0.0/0"]),
        joined(&["::ffff:10.1.2.3", "2001:db8::/32\n::/0\n10.1.2.3/31\n10.1.2.4/32\n::1/128"]),
        joined(&["2001:db8::1", "2001:db8::/127\n255.255.255.255/32\n::ffff:0:0/95\nffff::/16"]),
    ];
    check("networks", &seeds, |input| {
        let [address, list] = fields(input);
        let Ok(list) = str::from_utf8(list) else { return };
        let list: Vec<IpNet> = list.lines().filter_map(|line| line.parse().ok()).collect();
        for network in &list {
            assert_eq!(network.to_string().parse::<IpNet>().unwrap(), *network);
        }
        let networks = Networks::new(&list);
        let given = str::from_utf8(address).ok().and_then(|text| text.parse::<IpAddr>().ok());
        let ends = list.iter().flat_map(|network| [network.network(), network.broadcast()]);
        let beside = ends.flat_map(|end| [end, moved(end, 1), moved(end, -1)]);
        for address in beside.chain(given) {
            assert_eq!(
                networks.contains(address),
                is_in_one(&list, address),
                "{address} in {list:?}"
            );
        }
    });
}

fn moved(address: IpAddr, by: i8) -> IpAddr {
    match address {
        IpAddr::V4(v4) => Ipv4Addr::from_bits(v4.to_bits().wrapping_add_signed(by.into())).into(),
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits().wrapping_add_signed(by.into())).into(),
    }
}

/// The definition, network by network.
fn is_in_one(list: &[IpNet], address: IpAddr) -> bool {
    let mapped = match address.to_canonical() {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    list.iter().any(|network| match (network, address.to_canonical()) {
        (IpNet::V4(network), IpAddr::V4(v4)) => network.contains(&v4),
        (IpNet::V4(_), IpAddr::V6(_)) => false,
        // A network of mapped addresses is one of IPv4; one that only has them among others is not.
        (IpNet::V6(network), canonical) => {
            let is_mapped =
                network.prefix_len() >= 96 && network.network().to_ipv4_mapped().is_some();
            is_mapped == canonical.is_ipv4() && network.contains(&mapped)
        }
    })
}

#[test]
fn fuzz_cors() {
    let seeds = [
        joined(&["https://shop.test", "https://shop.test\nhttps://*.shop.test:8443\nnull"]),
        joined(&[
            "https://a.shop.test:8443",
            "https://*.shop.test:8443\nhttp://[::1]:80\nmyapp://*.x",
        ]),
        joined(&["https://a.b.shop.test", "*\nhttps://*\nhttps://*shop.test\n https://SHOP.test "]),
    ];
    check("cors", &seeds, |input| {
        let [origin, list] = fields(input);
        let Ok(list) = str::from_utf8(list) else { return };
        let list: Vec<HeaderValue> =
            list.lines().filter_map(|line| HeaderValue::parse(line).ok()).collect();
        let value = |text: &str| HeaderValue::parse(text).unwrap();
        let is_of_route = list.len().is_multiple_of(2);
        let cors = Cors {
            origins: Some(list.clone()),
            methods: value("GET"),
            headers: value("DNT"),
            exposed: None,
            credentials: true,
            max_age: 1,
            is_of_route,
        };
        let origins = Origins::of(&cors);
        assert_eq!(origins.decide(None), OriginDecision::Unshared);
        let OriginDecision::Shared(shared) = origins.decide(Some(origin)) else { return };
        assert_eq!(shared, origin);
        assert!(!ends_a_target(shared), "{shared:?}");
        // An entry is this origin, but for its case and one label, of routes several.
        let shared = str::from_utf8(shared).unwrap().to_ascii_lowercase();
        let is_one = |entry: &HeaderValue| {
            let entry = entry.as_str().trim().to_ascii_lowercase();
            let Some((before, after)) = entry.split_once('*') else { return entry == shared };
            let label = shared.strip_prefix(before).and_then(|rest| rest.strip_suffix(after));
            before.ends_with("://")
                && after.starts_with('.')
                && label.is_some_and(|label| {
                    !label.is_empty()
                        && label.bytes().all(|b| {
                            b.is_ascii_alphanumeric() || b == b'-' || is_of_route && b == b'.'
                        })
                })
        };
        assert!(list.iter().any(is_one), "{shared} of {list:?}");
    });
}

#[test]
fn fuzz_auth() {
    let seeds = [
        joined(&[
            "https://in.test/start?a=b",
            "rd",
            "shop.test:8443",
            "shop.test",
            "/a b?x=1&y=%2F#z",
        ]),
        joined(&["/in\r\nX: y", "next", "[::1]:80", "[::1]", "/"]),
        joined(&["https://in.test/?rd=$scheme", "rd", "A.test.", "a.test", "x_forwarded-for"]),
    ];
    check("auth", &seeds, |input| {
        let [url, parameter, header, host, target] = fields(input);
        let authority = forwarded::authority(host, Some(header));
        let name = authority.to_ascii_lowercase();
        assert!(authority == host || name.starts_with(&host.to_ascii_lowercase()), "{authority:?}");
        let target = auth::target(target);
        assert!(target.starts_with(b"/") && !ends_a_target(&target));
        assert_eq!(auth::target(&target), target);
        assert!(!ends_a_target(&auth::signin(url, None)));
        // The controller accepts only such names as parameters.
        let parameter = str::from_utf8(parameter)
            .ok()
            .filter(|text| text.bytes().all(|b| b.is_ascii_alphanumeric()));
        if let Some(parameter) = parameter {
            let location = auth::signin(url, Some((parameter, [b"https", authority, &target])));
            assert!(!ends_a_target(&location));
            let plain = auth::signin(url, None);
            assert!(location.starts_with(&plain));
            // What follows is one parameter.
            let added = &location[plain.len()..];
            let specials = added.iter().filter(|byte| b"?&=#".contains(byte)).count();
            assert!(
                specials <= 2 && !added.contains(&b'#'),
                "{:?}",
                added.escape_ascii().to_string()
            );
        }
        let swapped: Vec<u8> = header
            .iter()
            .map(|byte| match byte {
                b'-' => b'_',
                b'_' => b'-',
                byte => byte.to_ascii_uppercase(),
            })
            .collect();
        assert_eq!(auth::is_passed(header), auth::is_passed(&swapped));
        assert_eq!(header::is_managed(header), header::is_managed(&swapped));
        assert_eq!(header::is_reserved(header), header::is_reserved(&swapped));
    });
}
