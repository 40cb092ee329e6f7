//! The lines of a `geo`, as ranges of addresses none of which is within another.
//!
//! Source:  ngx_http_geo, ngx_http_geo_cidr, ngx_http_geo_range.

use crate::annotation::snippet::values::{Not, Result, impossible};
use ipnet::IpNet;
use oxigress_core::model::policy::defined::{Geo, Ranges};
use oxigress_core::model::policy::{HeaderValue, Template};
use oxigress_core::model::shorten;
use oxigress_settings::grammar::directives::Directive;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Networks or ranges, by their first and last address, with their values.
type Lines = BTreeMap<(IpAddr, IpAddr), u32>;

/// Reads the lines.
pub fn read(source: Template, block: &[Directive]) -> Result<Geo> {
    let (mut lines, mut values, mut has_ranges) = (Lines::new(), Vec::new(), false);
    for line in block {
        let words: Vec<&str> = line.arguments.iter().map(String::as_str).collect();
        let (at, value) = match (line.name.as_str(), &words[..]) {
            _ if line.block.is_some() => return Err(Not::Known),
            ("ranges", []) if lines.is_empty() => {
                has_ranges = true;
                continue;
            }
            ("proxy" | "proxy_recursive", _) => {
                return impossible(
                    "whom the gateway believes is said by the keys use-forwarded-headers and proxy-real-ip-cidr: remove proxy",
                );
            }
            ("include", _) => return impossible("no files are read: write out what it has"),
            ("delete", [network]) if !has_ranges => {
                let whole = whole(network, false)?;
                whole.iter().for_each(|range| _ = lines.remove(range));
                continue;
            }
            ("default", [value]) => (everything(), *value),
            (network, [value]) => (whole(network, has_ranges)?, *value),
            _ => return impossible("a line of it has a network and a value"),
        };
        let value = number(value, &mut values)?;
        lines.extend(at.into_iter().map(|range| (range, value)));
    }
    if has_ranges && has_overlaps(&lines) {
        return impossible("its ranges overlap");
    }
    let mut ranges = apart(&lines);
    if has_ranges {
        // As 255.255.255.255, which is the last of them.
        ranges.retain(|(first, ..)| first.is_ipv4());
        let last = ranges.last().filter(|(_, last, _)| *last == Geo::NOWHERE).map(|(.., it)| *it);
        let all = (Ipv6Addr::UNSPECIFIED.into(), Ipv6Addr::from(u128::MAX).into());
        ranges.extend(last.map(|value| (all.0, all.1, value)));
    }
    Ok(Geo { source, ranges: Ranges::try_from(ranges)?, values })
}

fn everything() -> Vec<(IpAddr, IpAddr)> {
    vec![
        (Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::BROADCAST.into()),
        (Ipv6Addr::UNSPECIFIED.into(), Ipv6Addr::from(u128::MAX).into()),
    ]
}

/// The addresses of a line.
fn whole(text: &str, is_range: bool) -> Result<Vec<(IpAddr, IpAddr)>> {
    let refused = || impossible(format!("{:?} is no network", shorten(text)));
    if is_range {
        let ends = text.split_once('-').map(|(first, last)| (first.parse(), last.parse()));
        return match ends {
            Some((Ok(first), Ok(last))) if first <= last => {
                Ok(vec![(Ipv4Addr::into(first), Ipv4Addr::into(last))])
            }
            _ => impossible(format!("{:?} is no range of IPv4 addresses", shorten(text))),
        };
    }
    let network = match (text.parse::<IpNet>(), text.parse::<IpAddr>()) {
        (Ok(network), _) => network.trunc(),
        (_, Ok(address)) => IpNet::from(address),
        _ => return refused(),
    };
    Ok(vec![(network.network(), network.broadcast())])
}

fn number(value: &str, values: &mut Vec<HeaderValue>) -> Result<u32> {
    let value = HeaderValue::parse(value)?;
    let known = values.iter().position(|known| *known == value);
    let at = known.unwrap_or(values.len());
    if known.is_none() {
        values.push(value);
    }
    Ok(u32::try_from(at)?)
}

/// Whether two ranges have an address in common, but for all addresses.
fn has_overlaps(lines: &Lines) -> bool {
    let all = everything();
    let ranges: Vec<_> = lines.keys().filter(|range| !all.contains(range)).collect();
    !ranges.is_sorted_by(|(_, last), (first, _)| last < first)
}

/// The same as ranges that are apart: an address has the value of the smallest line that has it.
fn apart(lines: &Lines) -> Vec<(IpAddr, IpAddr, u32)> {
    let starts = lines.keys().flat_map(|(first, last)| [Some(*first), next(*last)]);
    let starts: BTreeSet<IpAddr> = starts.flatten().collect();
    let mut found: Vec<(IpAddr, IpAddr, u32)> = Vec::new();
    // What has begun and not ended, the smallest last.
    let mut open: Vec<(IpAddr, u32)> = Vec::new();
    let ends: Vec<IpAddr> = starts.iter().copied().collect();
    for (at, start) in ends.iter().enumerate() {
        open.retain(|(last, _)| last >= start && last.is_ipv4() == start.is_ipv4());
        let begun = lines.range((*start, *start)..).take_while(|((first, _), _)| first == start);
        let mut begun: Vec<_> = begun.map(|((_, last), value)| (*last, *value)).collect();
        begun.reverse();
        open.extend(begun);
        let Some((last, value)) = open.last() else { continue };
        let until = ends.get(at + 1).and_then(|next| before(*next)).filter(|until| until < last);
        let until = until.filter(|until| until.is_ipv4() == start.is_ipv4()).unwrap_or(*last);
        match found.last_mut() {
            Some((_, end, known)) if known == value && next(*end) == Some(*start) => *end = until,
            _ => found.push((*start, until, *value)),
        }
    }
    found
}

fn next(address: IpAddr) -> Option<IpAddr> {
    Some(match address {
        IpAddr::V4(address) => Ipv4Addr::from(u32::from(address).checked_add(1)?).into(),
        IpAddr::V6(address) => Ipv6Addr::from(u128::from(address).checked_add(1)?).into(),
    })
}

fn before(address: IpAddr) -> Option<IpAddr> {
    Some(match address {
        IpAddr::V4(address) => Ipv4Addr::from(u32::from(address).checked_sub(1)?).into(),
        IpAddr::V6(address) => Ipv6Addr::from(u128::from(address).checked_sub(1)?).into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_address_has_the_value_of_the_smallest_network(
            networks in prop::collection::vec((0..16_u8, 28..=32_u8), 0..8),
            client in 0..20_u8,
        ) {
            let address = |last: u8| IpAddr::V4(Ipv4Addr::new(10, 0, 0, last));
            let networks: Vec<_> = networks
                .into_iter()
                .map(|(last, length)| IpNet::new(address(last), length).unwrap().trunc())
                .collect();
            let text: String =
                networks.iter().enumerate().map(|(n, net)| format!("{net} v{n};")).collect();
            let block = oxigress_settings::grammar::directives::parse(&text).unwrap();
            let geo = read(Template::parse("$remote_addr").unwrap(), &block).unwrap();
            let client = address(client);
            // Of two lines for one network the later one counts.
            let all = networks.iter().enumerate().filter(|(_, net)| net.contains(&client));
            let expected = all.max_by_key(|(n, net)| (net.prefix_len(), *n));
            let expected = expected.map(|(n, _)| format!("v{n}"));
            let found = geo.value(client).map(|value| value.as_str().to_owned());
            prop_assert_eq!(found, expected);
        }
    }
}
