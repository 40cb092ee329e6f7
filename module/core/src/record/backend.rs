//! A backend's record.
//!
//! Layout: 80 bytes: `flags u8`, `algorithm u8`, `slow_start_ms u32`, `max_in_flight u32`, `subset_size u32`,
//! `failures u32`, `connect_failures u32`, `base_ms u32`, `max_ms u32`, `panic_percent u8`, one byte unused,
//! then `offset u32` and `length u32` of each [`Section`]; then the sections. A text in a section is
//! `length u32` and its bytes.
//!
//! The flags stand first: that a backend has nothing special is one comparison of one byte.

use super::{length, u32_at};
use crate::balancer::cookie;
use crate::model::{
    Affinity, AffinityMode, Algorithm, Backend, BackendId, Cookie, Ejection, HashBy, SameSite,
    Split,
};

const HEADER: usize = 80;
const SECTIONS_AT: usize = 32;

/// Bits of the first byte.
mod flag {
    pub const ALTERNATIVES: u8 = 1;
    pub const AFFINITY: u8 = 1 << 1;
    pub const HASH: u8 = 1 << 2;
    /// Any of these, and more than the algorithm decides.
    pub const SPECIAL: u8 = ALTERNATIVES | AFFINITY | HASH;
    pub const SPLIT: u8 = 1 << 3;
    pub const EJECTION: u8 = 1 << 4;
    pub const NAME: u8 = 1 << 5;
    pub const COMPATIBLE: u8 = 1 << 6;
}

/// What has no fixed length, in the order of the layout.
#[derive(Clone, Copy)]
enum Section {
    /// The name, or the id where there is none.
    Name,
    HashKey,
    /// `count u32`, then texts.
    Alternatives,
    Affinity,
    /// `weight u32`, `weight_total u32`, then four texts.
    Split,
    Compatible,
}

/// Bits of the affinity section's cookie.
mod cookie_flag {
    pub const EXPIRES: u8 = 1;
    pub const MAX_AGE: u8 = 1 << 1;
    pub const PATH: u8 = 1 << 2;
    pub const DOMAIN: u8 = 1 << 3;
    pub const SECURE_GIVEN: u8 = 1 << 4;
    pub const SECURE: u8 = 1 << 5;
    pub const CONDITIONAL_NONE: u8 = 1 << 6;
    pub const CHANGE_ON_FAILURE: u8 = 1 << 7;
}

const SAME_SITES: [Option<SameSite>; 4] =
    [None, Some(SameSite::Strict), Some(SameSite::Lax), Some(SameSite::None)];
const ALGORITHMS: [Algorithm; 4] =
    [Algorithm::RoundRobin, Algorithm::LeastConn, Algorithm::Ewma, Algorithm::P2c];

/// The record's value of a backend.
pub fn encode_backend(id: &BackendId, backend: &Backend) -> Vec<u8> {
    let name = backend.name.as_deref().unwrap_or(id.as_str());
    let when = |is: bool, bit: u8| if is { bit } else { 0 };
    let flags = when(!backend.alternatives.is_empty(), flag::ALTERNATIVES)
        | when(backend.affinity.is_some(), flag::AFFINITY)
        | when(backend.hash_by.is_some(), flag::HASH)
        | when(backend.split.is_some(), flag::SPLIT)
        | when(backend.ejection.is_some(), flag::EJECTION)
        | when(backend.name.is_some(), flag::NAME)
        | when(backend.compatible.is_some(), flag::COMPATIBLE);
    let algorithm = ALGORITHMS.iter().position(|a| *a == backend.algorithm).unwrap_or_default();
    let hash_by = backend.hash_by.as_ref();
    let ejection = backend.ejection.unwrap_or_default();

    let mut value = vec![flags, algorithm as u8];
    for number in [
        backend.slow_start_ms,
        backend.max_in_flight,
        hash_by.map_or(0, |hash_by| hash_by.subset_size),
        ejection.failures,
        ejection.connect_failures,
        ejection.base_ms,
        ejection.max_ms,
    ] {
        value.extend(number.to_le_bytes());
    }
    value.extend([ejection.panic_percent, 0]);

    let mut sections = Vec::new();
    for section in [
        name.as_bytes().to_vec(),
        hash_by.map_or_else(Vec::new, |hash_by| hash_by.key.clone().into_bytes()),
        encode_alternatives(&backend.alternatives),
        backend.affinity.as_ref().map_or_else(Vec::new, |affinity| encode_affinity(name, affinity)),
        backend.split.as_ref().map_or_else(Vec::new, encode_split),
        backend.compatible.clone().unwrap_or_default().into_bytes(),
    ] {
        value.extend(length(HEADER + sections.len()).to_le_bytes());
        value.extend(length(section.len()).to_le_bytes());
        sections.extend(section);
    }
    value.extend(sections);
    value
}

fn put(value: &mut Vec<u8>, text: &str) {
    value.extend(length(text.len()).to_le_bytes());
    value.extend(text.as_bytes());
}

fn encode_alternatives(all: &[BackendId]) -> Vec<u8> {
    let mut value = length(all.len()).to_le_bytes().to_vec();
    all.iter().for_each(|id| put(&mut value, id.as_str()));
    value
}

fn encode_split(split: &Split) -> Vec<u8> {
    let mut value = [split.weight.to_le_bytes(), split.weight_total.to_le_bytes()].concat();
    for text in [&split.header, &split.header_value, &split.header_pattern, &split.cookie] {
        put(&mut value, text);
    }
    value
}

/// `tag [32]`, `mode u8`, `flags u8`, `same_site u8`, `expires i64`, `max_age i64`, name, path, domain; then
/// `count u32` locations: host, `length u32` of its paths, `count u32`, paths.
fn encode_affinity(backend: &str, Affinity { mode, cookie }: &Affinity) -> Vec<u8> {
    let when = |is: bool, bit: u8| if is { bit } else { 0 };
    let flags = when(cookie.expires.is_some(), cookie_flag::EXPIRES)
        | when(cookie.max_age.is_some(), cookie_flag::MAX_AGE)
        | when(cookie.path.is_some(), cookie_flag::PATH)
        | when(cookie.domain.is_some(), cookie_flag::DOMAIN)
        | when(cookie.secure.is_some(), cookie_flag::SECURE_GIVEN)
        | when(cookie.secure == Some(true), cookie_flag::SECURE)
        | when(cookie.conditional_same_site_none, cookie_flag::CONDITIONAL_NONE)
        | when(cookie.change_on_failure, cookie_flag::CHANGE_ON_FAILURE);
    let same_site = SAME_SITES.iter().position(|s| *s == cookie.same_site).unwrap_or_default();
    let mut value = cookie::tag(backend.as_bytes()).to_vec();
    value.extend([u8::from(*mode == AffinityMode::Persistent), flags, same_site as u8]);
    value.extend(cookie.expires.unwrap_or_default().to_le_bytes());
    value.extend(cookie.max_age.unwrap_or_default().to_le_bytes());
    put(&mut value, &cookie.name);
    put(&mut value, cookie.path.as_deref().unwrap_or_default());
    put(&mut value, cookie.domain.as_deref().unwrap_or_default());
    value.extend(length(cookie.locations.len()).to_le_bytes());
    for (host, paths) in &cookie.locations {
        put(&mut value, host);
        let mut block = length(paths.len()).to_le_bytes().to_vec();
        paths.iter().for_each(|path| put(&mut block, path));
        value.extend(length(block.len()).to_le_bytes());
        value.extend(block);
    }
    value
}

/// Reads numbers and texts one after the other; `None` from the first that is cut.
#[derive(Clone, Copy, Debug)]
struct Reader<'g>(&'g [u8]);

impl<'g> Reader<'g> {
    #[inline]
    fn bytes<const N: usize>(&mut self) -> Option<&'g [u8; N]> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(bytes)
    }

    #[inline]
    fn number(&mut self) -> Option<u32> {
        self.bytes().map(|bytes| u32::from_le_bytes(*bytes))
    }

    #[inline]
    fn text(&mut self) -> Option<&'g [u8]> {
        let length = self.number()? as usize;
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(text)
    }

    /// `count u32` and so many texts, or fewer if they are cut.
    fn texts(mut self) -> impl Iterator<Item = &'g [u8]> + Clone {
        let count = self.number().unwrap_or_default();
        (0..count).scan(self, |reader, _| reader.text())
    }
}

/// A backend read in place.
#[derive(Clone, Copy, Debug, Default)]
pub struct BackendView<'g> {
    value: &'g [u8],
}

impl<'g> BackendView<'g> {
    /// Reads `value`, which [`encode_backend`] wrote.
    #[inline]
    pub fn new(value: &'g [u8]) -> Self {
        BackendView { value }
    }

    #[inline]
    fn has(&self, bits: u8) -> bool {
        self.value.first().is_some_and(|flags| flags & bits != 0)
    }

    #[inline]
    fn section(&self, section: Section) -> Option<&'g [u8]> {
        let at = SECTIONS_AT + 8 * section as usize;
        let (offset, length) = (u32_at(self.value, at)?, u32_at(self.value, at + 4)?);
        self.value.get(offset as usize..)?.get(..length as usize)
    }

    fn number(&self, at: usize) -> u32 {
        u32_at(self.value, at).unwrap_or_default()
    }

    /// Only the algorithm decides: no alternatives, no affinity, no hash.
    #[inline]
    pub fn is_plain(&self) -> bool {
        !self.has(flag::SPECIAL)
    }

    /// What ingress-nginx calls it; the id, if no name is given.
    pub fn name(&self) -> &'g [u8] {
        self.section(Section::Name).unwrap_or_default()
    }

    /// How an endpoint is chosen.
    #[inline]
    pub fn algorithm(&self) -> Algorithm {
        let number = self.value.get(1).copied().unwrap_or_default();
        ALGORITHMS.get(usize::from(number)).copied().unwrap_or_default()
    }

    /// Milliseconds in which a new endpoint's share grows; 0: at once.
    #[inline]
    pub fn slow_start_ms(&self) -> u32 {
        self.number(2)
    }

    /// Requests one endpoint has at the same time, at most; 0: any number.
    #[inline]
    pub fn max_in_flight(&self) -> u32 {
        self.number(6)
    }

    /// The text whose value is hashed ([`crate::balancer::hash_key`]).
    pub fn hash_key(&self) -> Option<&'g [u8]> {
        if self.has(flag::HASH) { self.section(Section::HashKey) } else { None }
    }

    /// Endpoints of a subset that the hash chooses; 0: it chooses one endpoint.
    pub fn subset_size(&self) -> u32 {
        self.number(10)
    }

    /// When a failing endpoint is left out.
    #[inline]
    pub fn ejection(&self) -> Option<Ejection> {
        if !self.has(flag::EJECTION) {
            return None;
        }
        Some(Ejection {
            failures: u32_at(self.value, 14)?,
            connect_failures: u32_at(self.value, 18)?,
            base_ms: u32_at(self.value, 22)?,
            max_ms: u32_at(self.value, 26)?,
            panic_percent: *self.value.get(30)?,
        })
    }

    /// Ids of the backends that take a part of its requests, in order.
    pub fn alternatives(&self) -> impl Iterator<Item = &'g [u8]> + Clone + use<'g> {
        Reader(self.section(Section::Alternatives).unwrap_or_default()).texts()
    }

    /// Cookie affinity.
    #[inline]
    pub fn affinity(&self) -> Option<AffinityView<'g>> {
        if !self.has(flag::AFFINITY) {
            return None;
        }
        let mut reader = Reader(self.section(Section::Affinity)?);
        let tag = reader.bytes()?;
        let &[mode, flags, same_site] = reader.bytes()?;
        let numbers = reader;
        reader.bytes::<16>()?;
        let name = reader.text()?;
        Some(AffinityView { tag, mode, flags, same_site, name, numbers, rest: reader })
    }

    /// Which requests it takes where it is an alternative.
    pub fn split(&self) -> Option<SplitView<'g>> {
        if !self.has(flag::SPLIT) {
            return None;
        }
        let mut reader = Reader(self.section(Section::Split)?);
        Some(SplitView {
            weight: reader.number()?,
            weight_total: reader.number()?,
            header: reader.text()?,
            header_value: reader.text()?,
            header_pattern: reader.text()?,
            cookie: reader.text()?,
        })
    }
}

/// [`Affinity`] read in place.
#[derive(Clone, Copy, Debug)]
pub struct AffinityView<'g> {
    tag: &'g [u8; 32],
    mode: u8,
    flags: u8,
    same_site: u8,
    name: &'g [u8],
    /// Stands before `expires`.
    numbers: Reader<'g>,
    /// Stands before the path.
    rest: Reader<'g>,
}

impl<'g> AffinityView<'g> {
    /// What the cookie's second part is when it was made for this backend.
    pub fn tag(&self) -> &'g [u8; 32] {
        self.tag
    }

    /// What the cookie says.
    pub fn mode(&self) -> AffinityMode {
        if self.mode == 0 { AffinityMode::Balanced } else { AffinityMode::Persistent }
    }

    /// The cookie's name.
    pub fn name(&self) -> &'g [u8] {
        self.name
    }

    fn has(&self, bit: u8) -> bool {
        self.flags & bit != 0
    }

    /// `Expires`, seconds from now.
    pub fn expires(&self) -> Option<i64> {
        let mut numbers = self.numbers;
        let expires = i64::from_le_bytes(*numbers.bytes()?);
        self.has(cookie_flag::EXPIRES).then_some(expires)
    }

    /// `Max-Age`, seconds.
    pub fn max_age(&self) -> Option<i64> {
        let mut numbers = self.numbers;
        numbers.bytes::<8>()?;
        let max_age = i64::from_le_bytes(*numbers.bytes()?);
        self.has(cookie_flag::MAX_AGE).then_some(max_age)
    }

    /// `Path`; absent: that of the rule.
    pub fn path(&self) -> Option<&'g [u8]> {
        let mut rest = self.rest;
        let path = rest.text()?;
        self.has(cookie_flag::PATH).then_some(path)
    }

    /// `Domain`
    pub fn domain(&self) -> Option<&'g [u8]> {
        let mut rest = self.rest;
        rest.text()?;
        let domain = rest.text()?;
        self.has(cookie_flag::DOMAIN).then_some(domain)
    }

    /// `Secure`; absent: if the request came over TLS.
    pub fn secure(&self) -> Option<bool> {
        self.has(cookie_flag::SECURE_GIVEN).then_some(self.has(cookie_flag::SECURE))
    }

    /// `SameSite`
    pub fn same_site(&self) -> Option<SameSite> {
        SAME_SITES.get(usize::from(self.same_site)).copied().flatten()
    }

    /// `SameSite=None` is left out for browsers that take it for `Strict`.
    pub fn conditional_same_site_none(&self) -> bool {
        self.has(cookie_flag::CONDITIONAL_NONE)
    }

    /// A client whose endpoint failed gets another, and a new cookie.
    pub fn change_on_failure(&self) -> bool {
        self.has(cookie_flag::CHANGE_ON_FAILURE)
    }

    /// Host patterns where a cookie is given out, each with the paths of its rules.
    pub fn locations(
        &self,
    ) -> impl Iterator<Item = (&'g [u8], impl Iterator<Item = &'g [u8]> + Clone + use<'g>)> + use<'g>
    {
        let mut rest = self.rest;
        let count = rest.text().and_then(|_| rest.text()).and_then(|_| rest.number());
        (0..count.unwrap_or_default())
            .scan(rest, |rest, _| Some((rest.text()?, Reader(rest.text()?).texts())))
    }
}

/// [`Split`] read in place.
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs, reason = "the model's")]
pub struct SplitView<'g> {
    pub weight: u32,
    pub weight_total: u32,
    pub header: &'g [u8],
    pub header_value: &'g [u8],
    pub header_pattern: &'g [u8],
    pub cookie: &'g [u8],
}

/// The backend of a record's value.
pub fn decode_backend(value: &[u8]) -> Option<Backend> {
    let view = BackendView::new(value);
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
    // Every section is there, also an empty one: a cut value is no backend.
    let compatible = text(view.section(Section::Compatible)?)?;
    let name = text(view.name())?;
    let hash_by = match view.hash_key() {
        Some(key) => Some(HashBy { key: text(key)?, subset_size: view.subset_size() }),
        None => None,
    };
    let affinity = match view.affinity() {
        Some(affinity) => Some(decode_affinity(affinity)?),
        None => None,
    };
    let split = match view.split() {
        Some(split) => Some(Split {
            weight: split.weight,
            weight_total: split.weight_total,
            header: text(split.header)?,
            header_value: text(split.header_value)?,
            header_pattern: text(split.header_pattern)?,
            cookie: text(split.cookie)?,
        }),
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
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn id(text: &str) -> BackendId {
        BackendId::parse(text).unwrap()
    }

    fn full() -> Backend {
        Backend {
            name: Some("default-http-svc-80".into()),
            algorithm: Algorithm::P2c,
            hash_by: Some(HashBy { key: "$request_uri".into(), subset_size: 3 }),
            affinity: Some(Affinity {
                mode: AffinityMode::Persistent,
                cookie: Cookie {
                    name: "route".into(),
                    expires: Some(-5),
                    max_age: Some(7_200),
                    path: Some("/x".into()),
                    domain: Some("a.test".into()),
                    secure: Some(false),
                    same_site: Some(SameSite::None),
                    conditional_same_site_none: true,
                    change_on_failure: true,
                    locations: [
                        ("a.test".into(), vec!["/".into(), "/x".into()]),
                        ("b.test".into(), vec![]),
                    ]
                    .into(),
                },
            }),
            alternatives: vec![id("canary"), id("second")],
            split: Some(Split {
                weight: 5,
                weight_total: 1_000,
                header: "x-canary".into(),
                header_value: "yes".into(),
                header_pattern: "^y".into(),
                cookie: "canary".into(),
            }),
            ejection: Some(Ejection {
                failures: 1,
                connect_failures: 2,
                base_ms: 3,
                max_ms: 4,
                panic_percent: 5,
            }),
            slow_start_ms: 6,
            max_in_flight: 7,
            compatible: Some("{}".into()),
        }
    }

    #[test]
    fn a_backend_is_read_as_it_was_written() {
        for backend in [full(), Backend::default()] {
            let value = encode_backend(&id("ns/svc/80"), &backend);
            assert_eq!(decode_backend(&value), Some(backend));
        }
    }

    #[test]
    fn only_what_decides_beside_the_algorithm_is_special() {
        let is_plain = |backend: &Backend| {
            let value = encode_backend(&id("b"), backend);
            BackendView::new(&value).is_plain()
        };
        let plain = Backend { hash_by: None, affinity: None, alternatives: vec![], ..full() };
        assert!(is_plain(&plain));
        assert!(!is_plain(&Backend { hash_by: full().hash_by, ..plain.clone() }));
        assert!(!is_plain(&Backend { affinity: full().affinity, ..plain.clone() }));
        assert!(!is_plain(&Backend { alternatives: full().alternatives, ..plain }));
    }

    #[test]
    fn the_tag_is_made_from_the_name_and_else_from_the_id() {
        let tag = |name: Option<&str>| {
            let backend = Backend { name: name.map(Into::into), ..full() };
            let value = encode_backend(&id("ns/svc/80"), &backend);
            *BackendView::new(&value).affinity().unwrap().tag()
        };
        assert_eq!(&tag(Some("default-http-svc-80")), b"5a881deec44117eee2efd3540198e203");
        assert_eq!(tag(None), cookie::tag(b"ns/svc/80"));
    }

    fn read_all(value: &[u8]) {
        let view = BackendView::new(value);
        let _ =
            (view.is_plain(), view.name(), view.algorithm(), view.hash_key(), view.subset_size());
        let _ = (view.ejection(), view.split(), view.slow_start_ms(), view.max_in_flight());
        view.alternatives().for_each(|id| drop(id.to_vec()));
        if let Some(affinity) = view.affinity() {
            let _ = (affinity.expires(), affinity.max_age(), affinity.path(), affinity.domain());
            let _ = (affinity.secure(), affinity.same_site(), affinity.tag(), affinity.mode());
            affinity.locations().for_each(|(host, paths)| drop((host.to_vec(), paths.count())));
        }
        decode_backend(value);
    }

    #[test]
    fn cut_bytes_are_not_there_instead_of_panicking() {
        let value = encode_backend(&id("b"), &full());
        for cut in 0..value.len() {
            read_all(&value[..cut]);
            assert_eq!(decode_backend(&value[..cut]), None, "{cut}");
        }
    }

    proptest! {
        #[test]
        fn damaged_bytes_do_not_panic(damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20)) {
            let mut value = encode_backend(&id("b"), &full());
            for (at, byte) in damage {
                let at = at.index(value.len());
                value[at] = byte;
            }
            read_all(&value);
        }
    }
}
