//! The section of cookie affinity.
//!
//! Layout: [`Header`], then name, path and domain; then `count u32` locations: host, `length u32` of its paths, `count u32`,
//! paths.

use super::{RecordReader, put_text};
use crate::balancer::cookie;
use crate::model::{Affinity, AffinityMode, SameSite};
use crate::record::{flag_if, length};
use zerocopy::little_endian::I64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct Header {
    tag: [u8; 32],
    mode: u8,
    flags: u8,
    same_site: u8,
    expires: I64,
    max_age: I64,
}

mod flag {
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

pub(super) fn encode_affinity(backend: &str, Affinity { mode, cookie }: &Affinity) -> Vec<u8> {
    let flags = flag_if(cookie.expires.is_some(), flag::EXPIRES)
        | flag_if(cookie.max_age.is_some(), flag::MAX_AGE)
        | flag_if(cookie.path.is_some(), flag::PATH)
        | flag_if(cookie.domain.is_some(), flag::DOMAIN)
        | flag_if(cookie.secure.is_some(), flag::SECURE_GIVEN)
        | flag_if(cookie.secure == Some(true), flag::SECURE)
        | flag_if(cookie.conditional_same_site_none, flag::CONDITIONAL_NONE)
        | flag_if(cookie.change_on_failure, flag::CHANGE_ON_FAILURE);
    let same_site = SAME_SITES.iter().position(|s| *s == cookie.same_site).unwrap_or_default();
    let header = Header {
        tag: cookie::tag(backend.as_bytes()),
        mode: u8::from(*mode == AffinityMode::Persistent),
        flags,
        same_site: same_site as u8,
        expires: cookie.expires.unwrap_or_default().into(),
        max_age: cookie.max_age.unwrap_or_default().into(),
    };
    let mut value = header.as_bytes().to_vec();
    put_text(&mut value, &cookie.name);
    put_text(&mut value, cookie.path.as_deref().unwrap_or_default());
    put_text(&mut value, cookie.domain.as_deref().unwrap_or_default());
    value.extend(length(cookie.locations.len()).to_le_bytes());
    for (host, paths) in &cookie.locations {
        put_text(&mut value, host);
        let mut block = length(paths.len()).to_le_bytes().to_vec();
        paths.iter().for_each(|path| put_text(&mut block, path));
        value.extend(length(block.len()).to_le_bytes());
        value.extend(block);
    }
    value
}

/// The affinity of a backend, read in place.
#[derive(Clone, Copy, Debug)]
pub struct AffinityView<'g> {
    header: &'g Header,
    name: &'g [u8],
    /// The texts from the path on.
    rest: RecordReader<'g>,
}

impl<'g> AffinityView<'g> {
    #[inline]
    pub(super) fn new(section: &'g [u8]) -> Option<Self> {
        let (header, rest) = Header::ref_from_prefix(section).ok()?;
        let mut rest = RecordReader(rest);
        let name = rest.text()?;
        Some(AffinityView { header, name, rest })
    }

    /// The second part of a cookie's value if the cookie was made for this backend.
    pub fn tag(&self) -> &'g [u8; 32] {
        &self.header.tag
    }

    /// Whether the cookie holds a hash key or names an endpoint.
    pub fn mode(&self) -> AffinityMode {
        if self.header.mode == 0 { AffinityMode::Balanced } else { AffinityMode::Persistent }
    }

    /// The name of the cookie.
    pub fn name(&self) -> &'g [u8] {
        self.name
    }

    fn has(&self, bit: u8) -> bool {
        self.header.flags & bit != 0
    }

    /// `Expires`, in seconds from now.
    pub fn expires(&self) -> Option<i64> {
        self.has(flag::EXPIRES).then_some(self.header.expires.get())
    }

    /// `Max-Age`, in seconds; the attribute is left out if absent.
    pub fn max_age(&self) -> Option<i64> {
        self.has(flag::MAX_AGE).then_some(self.header.max_age.get())
    }

    /// `Path`; the path of the rule if absent.
    pub fn path(&self) -> Option<&'g [u8]> {
        let mut rest = self.rest;
        let path = rest.text()?;
        self.has(flag::PATH).then_some(path)
    }

    /// `Domain`; the attribute is left out if absent.
    pub fn domain(&self) -> Option<&'g [u8]> {
        let mut rest = self.rest;
        rest.text()?;
        let domain = rest.text()?;
        self.has(flag::DOMAIN).then_some(domain)
    }

    /// `Secure`; if absent, set for requests over TLS.
    pub fn secure(&self) -> Option<bool> {
        self.has(flag::SECURE_GIVEN).then_some(self.has(flag::SECURE))
    }

    /// `SameSite`; the attribute is left out if absent.
    pub fn same_site(&self) -> Option<SameSite> {
        SAME_SITES.get(usize::from(self.header.same_site)).copied().flatten()
    }

    /// Whether `SameSite=None` is left out for browsers that treat it as `Strict`.
    pub fn conditional_same_site_none(&self) -> bool {
        self.has(flag::CONDITIONAL_NONE)
    }

    /// Whether a client whose endpoint failed moves to another one, with a new cookie.
    pub fn change_on_failure(&self) -> bool {
        self.has(flag::CHANGE_ON_FAILURE)
    }

    /// The host patterns on which the cookie is set, each with the paths of its rules.
    pub fn locations(
        &self,
    ) -> impl Iterator<Item = (&'g [u8], impl Iterator<Item = &'g [u8]> + Clone + use<'g>)> + use<'g>
    {
        let mut rest = self.rest;
        let count = rest.text().and_then(|_| rest.text()).and_then(|_| rest.number());
        (0..count.unwrap_or_default())
            .scan(rest, |rest, _| Some((rest.text()?, RecordReader(rest.text()?).texts())))
    }
}
