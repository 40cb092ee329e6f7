//! A backend from its record, to encode the endpoints again that depend on it.

use super::affinity::AffinityView;
use super::{BackendView, Header, Section, flag};
use crate::model::{Affinity, Backend, BackendId, Cookie, HashBy, Split};
use zerocopy::FromBytes;

/// The backend of a record's value; `None` for damaged bytes.
pub fn decode_backend(value: &[u8]) -> Option<Backend> {
    Header::ref_from_prefix(value).ok()?;
    let view = BackendView::new(value);
    // Every section is there, even if it is empty, so a cut value is no backend.
    let compatible = text(view.section(Section::Compatible)?)?;
    let name = text(view.name())?;
    let hash_by = match view.hash_key() {
        Some(key) => Some(HashBy { key: text(key)?, subset_size: view.subset_size() }),
        None => None,
    };
    let affinity = match view.affinity() {
        Some(affinity) => Some(Box::new(decode_affinity(affinity)?)),
        None => None,
    };
    let split = match view.split() {
        Some(split) => Some(Box::new(Split {
            weight: split.weight,
            weight_total: split.weight_total,
            header: text(split.header)?,
            header_value: text(split.header_value)?,
            header_pattern: text(split.header_pattern)?,
            cookie: text(split.cookie)?,
        })),
        None => None,
    };
    let alternatives = view.alternatives().map(|id| BackendId::parse(text(id)?).ok());
    Some(Backend {
        name: view.has(flag::NAME).then_some(name),
        algorithm: view.algorithm(),
        hash_by,
        affinity,
        alternatives: alternatives.collect::<Option<_>>()?,
        split,
        ejection: view.ejection(),
        slow_start_ms: view.slow_start_ms(),
        max_in_flight: view.max_in_flight(),
        compatible: view.has(flag::COMPATIBLE).then_some(compatible),
    })
}

fn decode_affinity(view: AffinityView<'_>) -> Option<Affinity> {
    let locations = view
        .locations()
        .map(|(host, paths)| Some((text(host)?, paths.map(text).collect::<Option<_>>()?)));
    let cookie = Cookie {
        name: text(view.name())?,
        expires: view.expires(),
        max_age: view.max_age(),
        path: view.path().and_then(text),
        domain: view.domain().and_then(text),
        secure: view.secure(),
        same_site: view.same_site(),
        conditional_same_site_none: view.conditional_same_site_none(),
        change_on_failure: view.change_on_failure(),
        locations: locations.collect::<Option<_>>()?,
    };
    Some(Affinity { mode: view.mode(), cookie })
}

fn text(bytes: &[u8]) -> Option<String> {
    String::from_utf8(bytes.to_vec()).ok()
}
