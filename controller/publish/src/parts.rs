//! What is too much for one write, in parts.

use super::item::written;
use oxigress_core::record::table::{Kind, Operations, RecordRef, TABLES};
use oxigress_core::wire::native::Patch;

/// Records of one part of a whole. With the smallest records it is some 200 KB, with the largest rules and certificates
/// below the endpoint's limit of 64 MiB.
const PART: usize = 1_000;

/// Parts of at most [`PART`] written records each, endpoint sets first. Removals come with the first one.
pub fn of(mut patch: Patch) -> Vec<Patch> {
    let mut keys = written(&patch);
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

/// The endpoint sets of a delta that writes other records too, which stay: nothing has to be there before them.
pub fn take_endpoints(patch: &mut Patch) -> Option<Patch> {
    let endpoints = patch.upsert.endpoints.len();
    (endpoints > 0 && patch.count().0 > endpoints).then(|| {
        let mut taken = Patch::default();
        std::mem::swap(&mut taken.upsert.endpoints, &mut patch.upsert.endpoints);
        taken
    })
}

/// A delta that cannot be halved.
pub struct Single {
    /// The part of the delta.
    pub patch: Patch,
    /// The one record that it writes; `None`: it only removes.
    pub record: Option<RecordRef>,
}

/// Two parts of a delta; endpoints apart from the rest if it has both. Where there is no room, removals come first of what
/// nothing names; all others come last, when nothing names any more what goes.
pub fn halve(mut patch: Patch, is_full: bool) -> Result<(Patch, Patch), Box<Single>> {
    let (count, removed) = patch.count();
    let endpoints = patch.upsert.endpoints.len();
    let mut first = Patch::default();
    if is_full && is_divided_by_urgency(&patch) {
        std::mem::swap(&mut first.upsert.endpoints, &mut patch.upsert.endpoints);
        shift_unnamed(&mut patch, &mut first);
        if first.is_empty() {
            // Old and new have no room beside each other: what is closed until the rest is there is what changes.
            first.remove = std::mem::take(&mut patch.remove);
        }
        return Ok((first, patch));
    }
    if endpoints > 0 && count + removed > endpoints {
        std::mem::swap(&mut first.upsert.endpoints, &mut patch.upsert.endpoints);
        return Ok((first, patch));
    }
    let keys = written(&patch);
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

/// Moves the removals of records that nothing live names while what is left of `patch` waits: a record is named by
/// those of later tables only.
fn shift_unnamed(patch: &mut Patch, first: &mut Patch) {
    for table in TABLES.iter().rev() {
        (table.shift_removals)(patch, first);
        if (table.count)(patch).0 > 0 {
            break;
        }
    }
}

fn shift(from: &mut Patch, to: &mut Patch, record: &RecordRef) {
    if let Some(table) = Operations::of_kind(record.kind) {
        (table.shift)(from, to, &record.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the parts remove and write, in their order.
    fn divided(delta: serde_json::Value) -> Vec<String> {
        let patch: Patch = serde_json::from_value(delta).unwrap();
        let (first, second) = halve(patch, true).map_err(|_| "single").unwrap();
        let shown = |patch: Patch| {
            let keys =
                written(&patch).into_iter().map(|record| format!("+{}", record.kind.label()));
            let mut gone = Vec::new();
            TABLES.iter().for_each(|table| (table.removals)(&patch, &mut gone));
            let gone = gone.into_iter().map(|change| format!("-{}", change.kind.label()));
            keys.chain(gone).collect::<Vec<_>>().join(" ")
        };
        vec![shown(first), shown(second)]
    }

    #[test]
    fn where_there_is_no_room_nothing_goes_before_what_names_it_has_changed() {
        let (old, new) = ("a".repeat(64), "b".repeat(64));
        let tls = serde_json::json!({"h.test": {"client": {"authorities": new, "verify": "on", "depth": 1}}});
        let change = |removed: serde_json::Value| serde_json::json!({"version": 1, "upsert": {"bundles": {&new: "x"}, "tls": tls}, "remove": removed});
        assert_eq!(
            divided(change(serde_json::json!({"bundles": [old], "servers": ["gone.test"]}))),
            ["-servers", "+bundles +tls -bundles"],
        );
        assert_eq!(
            divided(change(serde_json::json!({"bundles": [old]}))),
            ["-bundles", "+bundles +tls"],
            "both have no room beside each other"
        );
        let server = serde_json::json!({"version": 1,
            "upsert": {"servers": {"h.test": {"rules": []}}, "endpoints": {"e": []}},
            "remove": {"backends": ["b"], "policies": ["p"], "ports": ["tcp/1"]}});
        assert_eq!(divided(server), ["+endpoint_sets -ports", "+servers -backends -policies"],);
    }
}
