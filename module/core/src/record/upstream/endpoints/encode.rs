//! The bytes of an endpoint set's record.

use super::{Choice, Entry, Header, KeyEntry, flag};
use crate::balancer::{cookie, ring};
use crate::model::{Backend, Ejection, Endpoint, EndpointSet};
use crate::record::upstream::framed::Thresholds;
use crate::record::{flag_if, length};
use std::net::{IpAddr, SocketAddr};
use zerocopy::IntoBytes;

/// The value of the record of a backend's endpoint set; `id` is the id of the backend.
pub fn encode_endpoints(set: &EndpointSet, backend: &Backend, id: &str) -> Vec<u8> {
    let endpoints = set.as_slice();
    let names: Vec<_> = endpoints.iter().map(name).collect();
    let names_at = size_of::<Header>() + endpoints.len() * size_of::<Entry>();
    let table_at = names_at + names.iter().map(String::len).sum::<usize>();
    let table = encode_table(&names, backend, id);
    let mut value = header(endpoints, backend, table_at, table.len()).as_bytes().to_vec();
    let mut name_at = names_at;
    for (endpoint, name) in endpoints.iter().zip(&names) {
        value.extend(entry(endpoint, name, name_at).as_bytes());
        name_at += name.len();
    }
    value.extend(names.iter().flat_map(|name| name.bytes()));
    value.extend(table);
    value
}

/// The length of that value, for which no table is made.
pub fn endpoints_bytes(set: &EndpointSet, backend: &Backend) -> usize {
    let endpoints = set.as_slice();
    let names: usize = endpoints.iter().map(|endpoint| name(endpoint).len()).sum();
    let entries = endpoints.len() * size_of::<Entry>();
    let table = match Choice::of(backend) {
        Choice::Hash | Choice::Balanced => ring::encoded_bytes(endpoints.len()),
        Choice::Subset => ring::encoded_bytes(subset_count(endpoints.len(), backend)),
        Choice::Persistent => endpoints.len() * size_of::<KeyEntry>(),
        _ => 0,
    };
    size_of::<Header>() + entries + names + table
}

fn name(endpoint: &Endpoint) -> String {
    SocketAddr::new(endpoint.address, endpoint.port.get()).to_string()
}

fn subset_count(endpoints: usize, backend: &Backend) -> usize {
    let size = backend.hash_by.as_ref().map_or(1, |hash| hash.subset_size.max(1));
    ring::subset_count(endpoints, size as usize)
}

fn header(endpoints: &[Endpoint], backend: &Backend, table_at: usize, bytes: usize) -> Header {
    let has_more =
        backend.affinity.is_some() || backend.hash_by.is_some() || !backend.alternatives.is_empty();
    let ejects = backend.ejection.unwrap_or(Ejection {
        failures: 0,
        connect_failures: 0,
        base_ms: 0,
        max_ms: 0,
        panic_percent: 0,
    });
    let total_weight: u32 = endpoints.iter().map(|e| u32::from(e.weight)).sum();
    Header {
        count: length(endpoints.len()).into(),
        choice: Choice::of(backend) as u8,
        flags: flag_if(endpoints.iter().all(|e| e.weight == 1), flag::IS_EVEN)
            | flag_if(has_more, flag::HAS_MORE)
            | flag_if(backend.ejection.is_some(), flag::EJECTS),
        panic_percent: ejects.panic_percent,
        zero: 0,
        total_weight: total_weight.into(),
        active: length(endpoints.iter().filter(|e| !e.draining).count()).into(),
        max_in_flight: backend.max_in_flight.into(),
        slow_start_ms: backend.slow_start_ms.into(),
        thresholds: Thresholds::of(&ejects),
        subset_size: backend.hash_by.as_ref().map_or(0, |hash| hash.subset_size).into(),
        table_at: length(table_at).into(),
        table_bytes: length(bytes).into(),
        reserved: 0.into(),
    }
}

fn entry(endpoint: &Endpoint, name: &str, name_at: usize) -> Entry {
    let (address, family) = match endpoint.address {
        IpAddr::V4(v4) => {
            let mut padded = [0; 16];
            padded[..4].copy_from_slice(&v4.octets());
            (padded, 4)
        }
        IpAddr::V6(v6) => (v6.octets(), 6),
    };
    Entry {
        address,
        port: endpoint.port.get().into(),
        family,
        // The longest name, an IPv6 address in brackets with a port, has 47 bytes.
        name_bytes: name.len().min(usize::from(u8::MAX)) as u8,
        name_at: length(name_at).into(),
        weight: endpoint.weight.into(),
        draining: u8::from(endpoint.draining),
        zero: 0,
    }
}

fn encode_table(names: &[String], backend: &Backend, id: &str) -> Vec<u8> {
    match Choice::of(backend) {
        Choice::Hash | Choice::Balanced => {
            ring::encode(&ring::points(names.iter().map(|name| name.as_bytes())))
        }
        Choice::Subset => {
            let sets = 1..=subset_count(names.len(), backend);
            let sets: Vec<_> = sets.map(|set| format!("set{set}")).collect();
            ring::encode(&ring::points(sets.iter().map(|name| name.as_bytes())))
        }
        Choice::Persistent => {
            let backend = backend.name.as_deref().unwrap_or(id).as_bytes();
            let keys = names.iter().map(|name| cookie::persistent_key(backend, name.as_bytes()));
            let mut keys: Vec<_> = keys.zip(0_u32..).collect();
            keys.sort_unstable();
            let keys =
                keys.iter().map(|(key, index)| KeyEntry { key: *key, index: (*index).into() });
            keys.collect::<Vec<_>>().as_bytes().to_vec()
        }
        _ => Vec::new(),
    }
}
