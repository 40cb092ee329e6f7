//! The bytes of a backend's record.

use super::affinity::encode_affinity;
use super::{ALGORITHMS, Header, SECTIONS, SectionBounds, flag, put_text};
use crate::model::{Backend, BackendId, Split};
use crate::record::upstream::framed::Thresholds;
use crate::record::{flag_if, length};
use zerocopy::IntoBytes;
use zerocopy::little_endian::U32;

/// The value of a backend's record.
pub fn encode_backend(id: &BackendId, backend: &Backend) -> Vec<u8> {
    let name = backend.name.as_deref().unwrap_or(id.as_str());
    let flags = flag_if(!backend.alternatives.is_empty(), flag::ALTERNATIVES)
        | flag_if(backend.affinity.is_some(), flag::AFFINITY)
        | flag_if(backend.hash_by.is_some(), flag::HASH)
        | flag_if(backend.split.is_some(), flag::SPLIT)
        | flag_if(backend.ejection.is_some(), flag::EJECTION)
        | flag_if(backend.name.is_some(), flag::NAME)
        | flag_if(backend.compatible.is_some(), flag::COMPATIBLE);
    let algorithm = ALGORITHMS.iter().position(|a| *a == backend.algorithm).unwrap_or_default();
    let hash_by = backend.hash_by.as_ref();
    let ejection = backend.ejection.unwrap_or_default();

    let sections: [Vec<u8>; SECTIONS] = [
        name.as_bytes().to_vec(),
        hash_by.map_or_else(Vec::new, |hash_by| hash_by.key.clone().into_bytes()),
        encode_alternatives(&backend.alternatives),
        backend.affinity.as_ref().map_or_else(Vec::new, |affinity| encode_affinity(name, affinity)),
        backend.split.as_deref().map_or_else(Vec::new, encode_split),
        backend.compatible.clone().unwrap_or_default().into_bytes(),
    ];
    let mut at = size_of::<Header>();
    let places = sections.each_ref().map(|section| {
        let place = SectionBounds { at: length(at).into(), bytes: length(section.len()).into() };
        at += section.len();
        place
    });
    let header = Header {
        flags,
        algorithm: algorithm as u8,
        slow_start_ms: backend.slow_start_ms.into(),
        max_in_flight: backend.max_in_flight.into(),
        subset_size: hash_by.map_or(0, |hash_by| hash_by.subset_size).into(),
        thresholds: Thresholds::of(&ejection),
        panic_percent: ejection.panic_percent,
        unused: 0,
        sections: places,
    };
    [header.as_bytes(), &sections.concat()].concat()
}

fn encode_alternatives(all: &[BackendId]) -> Vec<u8> {
    let mut value = length(all.len()).to_le_bytes().to_vec();
    all.iter().for_each(|id| put_text(&mut value, id.as_str()));
    value
}

fn encode_split(split: &Split) -> Vec<u8> {
    let weights = [split.weight, split.weight_total].map(U32::new);
    let mut value = weights.as_bytes().to_vec();
    for text in [&split.header, &split.header_value, &split.header_pattern, &split.cookie] {
        put_text(&mut value, text);
    }
    value
}
