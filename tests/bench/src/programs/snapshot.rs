//! Snapshots of many hosts: each has one rule, one backend and some endpoints.

use anyhow::Result;
use oxigress_core::model::{
    Backend, BackendId, Certificate, CertificateId, Endpoint, EndpointSet, HostPattern,
    HttpsRedirect, Origin, PathPattern, Policy, Rule, Server, Snapshot,
};
use oxigress_core::wire::native::{Patch, Upsert, Whole};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroU16;
use std::ops::Range;

/// The host whose requests are measured.
pub const HOST: &str = "h0.bench.test";

/// The backend of host `number`.
pub fn backend(number: usize) -> Result<BackendId> {
    Ok(BackendId::parse(format!("bench/app-{number}/80"))?)
}

pub fn host(number: usize) -> String {
    format!("h{number}.bench.test")
}

pub fn real(ports: &[u16]) -> Result<EndpointSet> {
    let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let endpoints = ports.iter().map(|port| Ok(Endpoint::new(address, nonzero(*port)?)));
    Ok(EndpointSet::new(endpoints.collect::<Result<Vec<_>>>()?)?)
}

/// `count` endpoints of host `number` that are never asked; another `round` has other ports.
pub fn imagined(number: usize, count: usize, round: u16) -> Result<EndpointSet> {
    let [_, a, b, c] = u32::try_from(number + 256)?.to_be_bytes();
    let endpoints = (0..count).map(|place| {
        // Still loopback, so that a mistake sends nothing out.
        let address = IpAddr::V4(Ipv4Addr::new(127, 1 + a, b, c));
        Ok(Endpoint::new(address, nonzero(8000 + 100 * round + u16::try_from(place)?)?))
    });
    Ok(EndpointSet::new(endpoints.collect::<Result<Vec<_>>>()?)?)
}

fn nonzero(port: u16) -> Result<NonZeroU16> {
    Ok(NonZeroU16::try_from(port)?)
}

/// `hosts` hosts as an Ingress with default annotations makes them; the first has real endpoints, the
/// others `endpoints` imagined ones each.
pub fn hosts(hosts: usize, endpoints: usize, ports: &[u16], round: u16) -> Result<Snapshot> {
    let mut snapshot = servers(hosts)?;
    for number in 0..hosts {
        let set = if number == 0 { real(ports)? } else { imagined(number, endpoints, round)? };
        snapshot.backends.insert(backend(number)?, Backend::default());
        snapshot.endpoints.insert(backend(number)?, set);
    }
    Ok(snapshot)
}

/// The servers of [`hosts`] alone.
pub fn servers(hosts: usize) -> Result<Snapshot> {
    Ok(Snapshot { servers: servers_of(0..hosts)?, ..Snapshot::default() })
}

/// The servers of some hosts.
pub fn servers_of(numbers: Range<usize>) -> Result<BTreeMap<HostPattern, Server>> {
    let mut servers = BTreeMap::new();
    for number in numbers {
        let service = format!("app-{number}");
        let origin = Origin {
            namespace: "bench".into(),
            ingress: service.clone(),
            service,
            port: "80".into(),
            path: "/".into(),
        };
        let rule = Rule {
            path: PathPattern::prefix("/")?,
            backend: Some(backend(number)?),
            origin,
            policy: Policy { https_redirect: HttpsRedirect::WithCertificate, ..Policy::default() },
            policies: None,
            selection: None,
        };
        let server = Server::of(vec![rule]);
        servers.insert(HostPattern::parse(&host(number))?, server);
    }
    Ok(servers)
}

/// Adds `certificates` certificates, made of `pairs` in turn, which the names of `hosts` hosts share.
pub fn certify(
    snapshot: &mut Snapshot,
    hosts: usize,
    certificates: usize,
    pairs: &[Certificate],
) -> Result<()> {
    let id = |number: usize| CertificateId::parse(format!("bench/tls-{number}"));
    for (number, pair) in (0..certificates).zip(pairs.iter().cycle()) {
        snapshot.certificates.insert(id(number)?, pair.clone());
    }
    for number in 0..hosts {
        snapshot.names.insert(HostPattern::parse(&host(number))?, id(number % certificates)?);
    }
    Ok(())
}

/// The body of a `PUT`.
pub fn whole(snapshot: Snapshot) -> Result<Vec<u8>> {
    Ok(serde_json::to_vec(&Whole { snapshot, ..Whole::default() })?)
}

/// The body of a `PATCH` that replaces one endpoint set.
pub fn delta(number: usize, set: EndpointSet) -> Result<Vec<u8>> {
    let mut upsert = Upsert::default();
    upsert.endpoints.insert(backend(number)?, set);
    Ok(serde_json::to_vec(&Patch { upsert, ..Patch::default() })?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imagined_endpoints_are_loopback_and_differ_by_host_and_round() {
        let all: Vec<_> = [(1, 0), (2, 0), (9_999, 0), (9_999, 1)]
            .map(|(number, round)| imagined(number, 10, round).unwrap())
            .into();
        assert!(all.iter().flat_map(|set| set.as_slice()).all(|e| e.address.is_loopback()));
        assert!(all.iter().enumerate().all(|(place, set)| !all[..place].contains(set)));
        assert!(all.iter().all(|set| set.as_slice().len() == 10));
    }
}
