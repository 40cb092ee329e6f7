//! What is too much for one write, in parts.

use oxigress_core::table::{Kind, Operations, RecordRef, TABLES};
use oxigress_core::wire::native::Patch;

/// Records of one part of a whole. With the smallest records it is some 200 KB, with the largest rules and certificates
/// below the endpoint's limit of 64 MiB.
const PART: usize = 1_000;

/// Parts of at most [`PART`] written records each, endpoint sets first. Removals come with the first one.
pub fn of(mut patch: Patch) -> Vec<Patch> {
    let mut keys = keys(&patch);
    let mut all = Vec::new();
    while keys.len() > PART {
        let rest = keys.split_off(PART);
        let mut part = Patch { remove: std::mem::take(&mut patch.remove), ..Patch::default() };
        part.upsert.settings = patch.upsert.settings.take();
        keys.iter().for_each(|record| shift(&mut patch, &mut part, record));
        all.push(part);
        keys = rest;
    }
    all.push(patch);
    all
}

/// Whether a delta has both what must not wait, endpoints and removals, and what takes more room.
pub fn is_divided_by_urgency(patch: &Patch) -> bool {
    let (written, removed) = patch.count();
    let endpoints = patch.upsert.endpoints.len();
    let is_urgent = endpoints > 0 || removed > 0;
    is_urgent && written > endpoints
}

/// A delta that cannot be halved.
pub struct Single {
    /// The delta.
    pub patch: Patch,
    /// The one record that it writes; `None`: it only removes.
    pub record: Option<RecordRef>,
}

/// Two parts of a delta; endpoints apart from the rest if it has both. Removals come first where they make room, and
/// else last, when nothing names any more what goes.
pub fn halve(mut patch: Patch, is_full: bool) -> Result<(Patch, Patch), Box<Single>> {
    let (written, removed) = patch.count();
    let endpoints = patch.upsert.endpoints.len();
    let mut first = Patch::default();
    if is_full && is_divided_by_urgency(&patch) {
        first.remove = std::mem::take(&mut patch.remove);
        std::mem::swap(&mut first.upsert.endpoints, &mut patch.upsert.endpoints);
        return Ok((first, patch));
    }
    if endpoints > 0 && written + removed > endpoints {
        std::mem::swap(&mut first.upsert.endpoints, &mut patch.upsert.endpoints);
        return Ok((first, patch));
    }
    let keys = keys(&patch);
    let settings = || RecordRef { kind: Kind::Settings, key: String::new() };
    let has_settings = patch.upsert.settings.is_some();
    let half = match (keys.as_slice(), has_settings) {
        ([], false) => return Err(Box::new(Single { patch, record: None })),
        // What is refused must not keep what goes.
        ([], true) | ([_], false) if removed > 0 => {
            std::mem::swap(&mut first.upsert, &mut patch.upsert);
            return Ok((first, patch));
        }
        ([], true) => return Err(Box::new(Single { patch, record: Some(settings()) })),
        ([record], false) => {
            let record = Some(record.clone());
            return Err(Box::new(Single { patch, record }));
        }
        // The settings alone are the first part.
        (_, true) => 0,
        (keys, false) => keys.len() / 2,
    };
    first.upsert.settings = patch.upsert.settings.take();
    keys.iter().take(half).for_each(|record| shift(&mut patch, &mut first, record));
    Ok((first, patch))
}

fn keys(patch: &Patch) -> Vec<RecordRef> {
    let mut keys = Vec::new();
    TABLES.iter().for_each(|table| (table.keys)(patch, &mut keys));
    keys
}

fn shift(from: &mut Patch, to: &mut Patch, record: &RecordRef) {
    if let Some(table) = Operations::of_kind(record.kind) {
        (table.shift)(from, to, &record.key);
    }
}
