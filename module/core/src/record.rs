//! Records: the bytes a generation keeps in shared memory, and views that read them in place.
//!
//! Shape:   a record has a [`Kind`], a key and a value. Values are flat, little-endian, without pointers
//!          and without alignment, so that a view needs no copy and no unsafe code.
//! Units:   offsets count bytes from the beginning of the value.
//! Errors:  a view of damaged bytes answers "not there" instead of panicking; encoding refuses nothing,
//!          since the model's types already did.
//! Rejected: structs laid over shared memory, which would put unsafe code on every read.

mod backend;
mod endpoints;
mod server;
pub mod table;

pub use crate::record::table::Kind;
pub use backend::{AffinityView, BackendView, SplitView, decode_backend, encode_backend};
pub use endpoints::{Choice, EndpointView, EndpointsView, encode_endpoints};
pub use server::{Considered, Fate, Route, RuleView, ServerView, encode_server};

use crate::model::policy::{Policies, TlsPolicy};
use crate::model::{Backend, BundleId, Certificate, RedirectCode, Settings, Snapshot};
use crate::patterns::Patterns;
use crate::record::table::TABLES;
use crate::wire::native::Patch;
use std::collections::BTreeSet;

/// Something that holds records of one generation: the store, or a map in tests and in the controller.
pub trait Records<'g> {
    /// The value of a record.
    fn value(&self, kind: Kind, key: &[u8]) -> Option<&'g [u8]>;
}

impl<'g> Records<'g> for &'g std::collections::BTreeMap<(Kind, Vec<u8>), Vec<u8>> {
    fn value(&self, kind: Kind, key: &[u8]) -> Option<&'g [u8]> {
        self.get(&(kind, key.to_vec())).map(Vec::as_slice)
    }
}

/// One record as it is to be written. No value: the record goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// What it is.
    pub kind: Kind,
    /// Its key.
    pub key: Vec<u8>,
    /// Its value; `None` removes it.
    pub value: Option<Vec<u8>>,
}

impl Change {
    /// Writes a record.
    pub fn upsert(kind: Kind, key: impl AsRef<[u8]>, value: Vec<u8>) -> Self {
        Change { kind, key: key.as_ref().to_vec(), value: Some(value) }
    }

    /// Removes a record.
    pub fn remove(kind: Kind, key: impl AsRef<[u8]>) -> Self {
        Change { kind, key: key.as_ref().to_vec(), value: None }
    }
}

/// The records of a whole snapshot.
pub fn snapshot_records(snapshot: Snapshot) -> Vec<Change> {
    delta_records(&Patch::of_whole(snapshot), |_, _| None)
}

/// The records a delta writes and removes. `live` is asked for values as they are before it: an endpoint set's
/// record depends on its backend too.
pub fn delta_records(patch: &Patch, live: impl Fn(Kind, &[u8]) -> Option<Vec<u8>>) -> Vec<Change> {
    let mut all = endpoint_records(patch, live);
    let settings = patch.upsert.settings.iter();
    all.extend(settings.map(|s| Change::upsert(Kind::Settings, "", encode_settings(s))));
    for table in &TABLES {
        (table.encode)(patch, &mut all);
    }
    for table in &TABLES {
        (table.removals)(patch, &mut all);
    }
    all
}

/// The records of the endpoint sets that a delta touches, by themselves or through their backends.
fn endpoint_records(patch: &Patch, live: impl Fn(Kind, &[u8]) -> Option<Vec<u8>>) -> Vec<Change> {
    let (upsert, remove) = (&patch.upsert, &patch.remove);
    let ids: BTreeSet<_> =
        upsert.endpoints.keys().chain(upsert.backends.keys()).chain(&remove.backends).collect();
    let mut all = Vec::with_capacity(ids.len());
    let plain = Backend::default();
    for id in ids.into_iter().filter(|id| !remove.endpoints.contains(*id)) {
        let key = id.as_str().as_bytes();
        let written = upsert.endpoints.get(id);
        let old = match written {
            Some(_) => None,
            None => live(Kind::Endpoints, key).map(|value| EndpointsView::new(&value).decode()),
        };
        let Some(set) = written.or(old.as_ref()) else { continue };
        let old_backend = match upsert.backends.contains_key(id) || remove.backends.contains(id) {
            true => None,
            false => live(Kind::Backend, key).and_then(|value| decode_backend(&value)),
        };
        let backend = upsert.backends.get(id).or(old_backend.as_ref()).unwrap_or(&plain);
        all.push(Change::upsert(Kind::Endpoints, key, encode_endpoints(set, backend, id.as_str())));
    }
    all
}

/// A record that workers read once and keep compiled: JSON, since nothing reads it per request.
pub(crate) fn encode_json(value: &impl serde::Serialize) -> Vec<u8> {
    // Strings, numbers and lists of them: nothing that JSON cannot hold.
    serde_json::to_vec(value).unwrap_or_default()
}

/// [`Policies`] of a record; `None` for damaged bytes.
pub fn decode_policies(value: &[u8]) -> Option<Policies> {
    serde_json::from_slice(value).ok()
}

/// [`Policies`] by id; `None`: they, or a bundle that they name, are not there or damaged.
pub fn policies<'g>(records: &impl Records<'g>, id: &[u8]) -> Option<Policies> {
    let policies = records.value(Kind::Policies, id).and_then(decode_policies)?;
    has_all(records, policies.bundles()).then_some(policies)
}

/// Whether all these bundles are there.
pub fn has_all<'g, 'b>(
    records: &impl Records<'g>,
    mut bundles: impl Iterator<Item = &'b BundleId>,
) -> bool {
    bundles.all(|id| records.value(Kind::Bundle, id.as_str().as_bytes()).is_some())
}

/// The [`TlsPolicy`] of a record; `None` for damaged bytes.
pub fn decode_tls(value: &[u8]) -> Option<TlsPolicy> {
    serde_json::from_slice(value).ok()
}

/// [`Settings`] read in place.
#[derive(Clone, Copy, Debug)]
pub struct SettingsView<'g>(Option<&'g [u8]>);

impl<'g> SettingsView<'g> {
    /// The settings of a generation; the defaults if it has none.
    pub fn of(records: &impl Records<'g>) -> Self {
        SettingsView(records.value(Kind::Settings, b""))
    }

    /// Status of redirects to HTTPS.
    pub fn http_redirect_code(&self) -> RedirectCode {
        let code = self.0.and_then(|value| u16_at(value, 0));
        code.and_then(|code| code.try_into().ok()).unwrap_or(RedirectCode::PermanentRedirect)
    }

    /// The backend that serves what no rule takes.
    pub fn default_backend(&self) -> Option<&'g [u8]> {
        self.texts().next().map(|(_, text)| text).filter(|id| !id.is_empty())
    }

    /// `Strict-Transport-Security` of responses that go out over TLS.
    pub fn hsts(&self) -> Option<&'g [u8]> {
        self.texts().nth(1).map(|(_, text)| text).filter(|value| !value.is_empty())
    }

    /// Some `User-Agent` or `Referer` is refused.
    #[inline]
    pub fn has_blocked(&self) -> bool {
        self.0.and_then(|value| value.get(2)).is_some_and(|flag| *flag != 0)
    }

    /// Whether a request with these two headers is refused. A pattern that cannot decide refuses: it protects.
    pub fn is_blocked(&self, patterns: &Patterns, agent: &[u8], referer: &[u8]) -> bool {
        self.texts().skip(2).any(|(role, text)| {
            let value = if role & BLOCKS_REFERER == 0 { agent } else { referer };
            match role & IS_REGEX == 0 {
                true => text.eq_ignore_ascii_case(value),
                false => patterns.is_match(text, value).unwrap_or(true),
            }
        })
    }

    /// What each text is and the text, in the order of the encoding.
    fn texts(&self) -> impl Iterator<Item = (u8, &'g [u8])> + use<'g> {
        let mut rest = self.0.and_then(|value| value.get(3..)).unwrap_or_default();
        std::iter::from_fn(move || {
            let (role, length) = (*rest.first()?, usize::from(u16_at(rest, 1)?));
            let text = rest.get(3..3 + length)?;
            rest = rest.get(3 + length..)?;
            Some((role, text))
        })
    }
}

const BLOCKS_REFERER: u8 = 1;
const IS_REGEX: u8 = 2;

/// Status, whether anything is blocked, then texts with a role and a length each: the default backend, HSTS, and
/// what is blocked.
fn encode_settings(settings: &Settings) -> Vec<u8> {
    let (agents, referers) = (&settings.blocked_user_agents, &settings.blocked_referers);
    let mut value = u16::from(settings.http_redirect_code).to_le_bytes().to_vec();
    value.push(u8::from(!agents.is_empty() || !referers.is_empty()));
    let mut put = |role: u8, text: &str| {
        let text = short(text);
        value.push(role);
        value.extend((text.len() as u16).to_le_bytes());
        value.extend(text);
    };
    put(0, settings.default_backend.as_ref().map_or("", |id| id.as_str()));
    put(0, settings.hsts.as_ref().map_or("", |hsts| hsts.as_str()));
    let referers = referers.iter().map(|pattern| (BLOCKS_REFERER, pattern));
    for (role, pattern) in agents.iter().map(|pattern| (0, pattern)).chain(referers) {
        match pattern.regex() {
            Some(regex) => put(role | IS_REGEX, &regex),
            None => put(role, pattern.as_str()),
        }
    }
    value
}

/// A [`Certificate`] read in place.
#[derive(Clone, Copy)]
pub struct CertificateView<'g>(pub &'g [u8]);

impl<'g> CertificateView<'g> {
    /// PEM: leaf first, then intermediates.
    pub fn chain(&self) -> Option<&'g [u8]> {
        self.0.get(4..)?.get(..u32_at(self.0, 0)? as usize)
    }

    /// PEM: the leaf's private key.
    pub fn key(&self) -> Option<&'g [u8]> {
        self.0.get(4..)?.get(u32_at(self.0, 0)? as usize..)
    }
}

pub(crate) fn encode_certificate(certificate: &Certificate) -> Vec<u8> {
    let mut value = length(certificate.chain.len()).to_le_bytes().to_vec();
    value.extend(certificate.chain.as_bytes());
    value.extend(certificate.key.as_bytes());
    value
}

/// The model bounds every length far below 4 GiB.
fn length(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// Texts of a rule are bounded far below 64 KiB by the Kubernetes API; a longer one is cut, since it is
/// only logged.
fn short(text: &str) -> &[u8] {
    let bytes = text.as_bytes();
    &bytes[..bytes.len().min(usize::from(u16::MAX))]
}

#[inline]
fn u16_at(value: &[u8], at: usize) -> Option<u16> {
    value.get(at..)?.first_chunk().map(|b| u16::from_le_bytes(*b))
}

#[inline]
fn u32_at(value: &[u8], at: usize) -> Option<u32> {
    value.get(at..)?.first_chunk().map(|b| u32::from_le_bytes(*b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::policy::{HeaderPattern, HeaderValue};

    struct One(Vec<u8>);

    impl<'g> Records<'g> for &'g One {
        fn value(&self, _: Kind, _: &[u8]) -> Option<&'g [u8]> {
            Some(&self.0)
        }
    }

    #[test]
    fn settings_are_read_as_they_were_written() {
        let pattern = |text: &str| {
            HeaderPattern::parse(text, crate::patterns::Allowance::unlimited()).unwrap()
        };
        let settings = Settings {
            hsts: Some(HeaderValue::parse("max-age=5").unwrap()),
            blocked_user_agents: vec![pattern("Bad Agent"), pattern("~*^curl/")],
            blocked_referers: vec![pattern("~spam")],
            ..Settings::default()
        };
        let one = One(encode_settings(&settings));
        let view = SettingsView::of(&&one);
        assert_eq!((view.default_backend(), view.hsts()), (None, Some(&b"max-age=5"[..])));
        assert!(view.has_blocked());
        let blocked = |agent: &str, referer: &str| {
            view.is_blocked(&Patterns::default(), agent.as_bytes(), referer.as_bytes())
        };
        assert!(blocked("bad agent", "") && blocked("CURL/8", "") && blocked("", "a spam b"));
        assert!(!blocked("a bad agent", "SPAM") && !blocked("", "curl/8"));
        let none = One(encode_settings(&Settings::default()));
        let view = SettingsView::of(&&none);
        assert!(!view.has_blocked() && view.hsts().is_none() && view.default_backend().is_none());
    }
}
