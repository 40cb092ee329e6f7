//! Variables that are worked out of others, for all texts: nginx's `map`, `geo` and `split_clients`.
//!
//! Shape:   one set of policies, [`Definitions::ID`], has all of them, and no rule names it: texts have the variables under names that
//!          begin with [`OF_DEFINITIONS`]. Worked out in `decision/script/defined.rs`.
//! Source:  ngx_http_map_module, ngx_http_geo_module, ngx_http_split_clients_module.

use super::script::ScriptPattern;
use super::{HeaderValue, Template, is_false};
use crate::model::Invalid;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

crate::model::object::objects!(Definitions, Map, Geo, Split);

/// What the names of these variables begin with.
pub const OF_DEFINITIONS: &str = "snippet_h_";

/// Variables by their whole names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[serde(remote = "Self")]
pub struct Definitions {
    /// The variables.
    pub variables: BTreeMap<String, Definition>,
}

impl Definitions {
    /// The id of the policies that have them.
    pub const ID: &str = "http-snippet";
    /// Most variables.
    pub const MAX_VARIABLES: usize = 50;
    /// Most patterns of all of them.
    pub const MAX_PATTERNS: usize = 100;
    /// Longest chain of variables of which each is worked out of the next one.
    pub const MAX_DEPTH: usize = 5;

    /// The texts with variables.
    pub fn templates(&self) -> impl Iterator<Item = &Template> {
        self.variables.values().flat_map(Definition::templates)
    }

    /// What working all of them out takes at most, in microseconds: of each one value is looked up.
    pub fn cost(&self) -> u32 {
        let of_one = |definition: &Definition| {
            let values = definition.values().map(Template::cost).max();
            definition.source().cost() + values.unwrap_or_default()
        };
        self.variables.values().map(of_one).sum()
    }

    /// The patterns of maps.
    pub fn patterns(&self) -> impl Iterator<Item = &ScriptPattern> {
        self.variables.values().flat_map(|definition| {
            let patterns = match definition {
                Definition::Map(map) => &map.patterns[..],
                Definition::Geo(_) | Definition::Split(_) => &[],
            };
            patterns.iter().map(|(pattern, _)| pattern)
        })
    }
}

/// How one variable is worked out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Definition {
    /// By a text.
    Map(Map),
    /// By an address.
    Geo(Geo),
    /// By the hash of a text.
    Split(Split),
}

impl Definition {
    /// The text that it is worked out of.
    pub fn source(&self) -> &Template {
        match self {
            Definition::Map(Map { source, .. })
            | Definition::Geo(Geo { source, .. })
            | Definition::Split(Split { source, .. }) => source,
        }
    }

    /// Whether it is worked out again for each text.
    pub fn is_volatile(&self) -> bool {
        matches!(self, Definition::Map(Map { is_volatile: true, .. }))
    }

    /// Its texts with variables.
    pub fn templates(&self) -> impl Iterator<Item = &Template> {
        std::iter::once(self.source()).chain(self.values())
    }

    /// Its values, as far as they may have variables.
    fn values(&self) -> impl Iterator<Item = &Template> {
        let map = match self {
            Definition::Map(map) => Some(map),
            Definition::Geo(_) | Definition::Split(_) => None,
        };
        map.into_iter().flat_map(|map| {
            let names = map.texts.values().chain(map.heads.values()).chain(map.tails.values());
            let found = map.patterns.iter().map(|(_, value)| value);
            std::iter::once(&map.default).chain(names).chain(found)
        })
    }
}

/// Values by a text, in any case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Map {
    /// The text.
    pub source: Template,
    /// The value for all other texts.
    #[serde(default = "Template::empty", skip_serializing_if = "is_empty")]
    pub default: Template,
    /// It is worked out again for each text.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_volatile: bool,
    /// The text is the name of a host, whose last dot does not count.
    #[serde(default, skip_serializing_if = "is_false")]
    pub has_hostnames: bool,
    /// Whole texts, in lower case.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub texts: BTreeMap<String, Template>,
    /// What stands behind a first star and dot; the longest counts.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub heads: BTreeMap<String, Template>,
    /// What stands before a last dot and star; the longest counts.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tails: BTreeMap<String, Template>,
    /// Patterns, of which the first counts that is found in the text. Their values have its captures.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub patterns: Vec<(ScriptPattern, Template)>,
}

fn is_empty(template: &Template) -> bool {
    template.as_str().is_empty()
}

impl Map {
    /// The value for a text, but for patterns. `text` is in lower case.
    pub fn of_text(&self, text: &str) -> Option<&Template> {
        if let Some(found) = self.texts.get(text) {
            return Some(found);
        }
        let dots = || text.match_indices('.').map(|(at, _)| at);
        if !self.heads.is_empty()
            && let Some(found) = dots().find_map(|at| self.heads.get(text.get(at + 1..)?))
        {
            return Some(found);
        }
        if self.tails.is_empty() {
            return None;
        }
        text.rmatch_indices('.').find_map(|(at, _)| self.tails.get(text.get(..at)?))
    }
}

/// Values by an address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Geo {
    /// The address; what is none counts as [`Geo::NOWHERE`].
    pub source: Template,
    /// Ranges of addresses, in their order, none within another, with the number of their value.
    pub ranges: Ranges,
    /// The values.
    pub values: Vec<HeaderValue>,
}

impl Geo {
    /// The address of a client without one.
    pub const NOWHERE: IpAddr = IpAddr::V4(Ipv4Addr::BROADCAST);

    /// The value for an address; `None`: it is in no range.
    pub fn value(&self, address: IpAddr) -> Option<&HeaderValue> {
        let Ranges(ranges) = &self.ranges;
        let after = ranges.partition_point(|(first, _, _)| *first <= address);
        let (_, last, value) = ranges.get(after.checked_sub(1)?)?;
        self.values.get(*value as usize).filter(|_| address <= *last)
    }
}

/// The first and the last address of each range, and the number of its value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<(IpAddr, IpAddr, u32)>")]
pub struct Ranges(Vec<(IpAddr, IpAddr, u32)>);

impl TryFrom<Vec<(IpAddr, IpAddr, u32)>> for Ranges {
    type Error = Invalid;

    fn try_from(all: Vec<(IpAddr, IpAddr, u32)>) -> Result<Self, Invalid> {
        let is_whole =
            all.iter().all(|(first, last, _)| first <= last && first.is_ipv4() == last.is_ipv4());
        match is_whole && all.is_sorted_by(|(_, last, _), (first, _, _)| last < first) {
            true => Ok(Ranges(all)),
            false => Err(Invalid::new("ranges of addresses are not in their order".to_owned())),
        }
    }
}

/// Values by the hash of a text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Split {
    /// The text.
    pub source: Template,
    /// Values, each with the hash that is above all of its own; 0: it takes the rest.
    pub parts: Vec<(u32, HeaderValue)>,
}

impl Split {
    /// The value for a text; `None`: no part takes its hash.
    pub fn value(&self, text: &[u8]) -> Option<&HeaderValue> {
        let hash = murmur_hash2(text);
        let found = self.parts.iter().find(|(below, _)| hash < *below || *below == 0);
        found.map(|(_, value)| value)
    }
}

/// As `ngx_murmur_hash2`.
pub fn murmur_hash2(text: &[u8]) -> u32 {
    const M: u32 = 0x5bd1_e995;
    // nginx has a text's length in 32 bits.
    let mut hash = text.len() as u32;
    let (chunks, rest) = text.as_chunks::<4>();
    for chunk in chunks {
        let mut k = u32::from_le_bytes(*chunk).wrapping_mul(M);
        k ^= k >> 24;
        hash = hash.wrapping_mul(M) ^ k.wrapping_mul(M);
    }
    if !rest.is_empty() {
        for (at, byte) in rest.iter().enumerate() {
            hash ^= u32::from(*byte) << (8 * at);
        }
        hash = hash.wrapping_mul(M);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(M);
    hash ^ hash >> 15
}

/// Whether a name is one of these variables'.
pub fn is_defined(name: &[u8]) -> bool {
    let start = name.get(..OF_DEFINITIONS.len());
    start.is_some_and(|start| start.eq_ignore_ascii_case(OF_DEFINITIONS.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn hashes_are_nginx_s() {
        // Of MurmurHash2 with the seed 0, as its author's program prints them.
        for (text, hash) in
            [("", 0), ("a", 0x9268_5f5e), ("abc", 0x1357_7c9b), ("abcd", 0x2687_3021)]
        {
            assert_eq!(murmur_hash2(text.as_bytes()), hash, "{text}");
        }
    }

    #[test]
    fn the_longest_name_with_a_star_counts() {
        let map: Map = serde_json::from_value(json!({
            "source": "$host", "has_hostnames": true,
            "texts": {"a.test": "exact", "b.test": "dot"},
            "heads": {"test": "any", "a.test": "below", "b.test": "dot"},
            "tails": {"www": "tail", "www.a": "longer"},
        }))
        .unwrap();
        for (name, expected) in [
            ("a.test", "exact"),
            ("x.a.test", "below"),
            ("x.y.a.test", "below"),
            ("b.test", "dot"),
            ("x.b.test", "dot"),
            ("c.test", "any"),
            ("test", ""),
            ("www.b", "tail"),
            ("www.a.b", "longer"),
            ("www.a.b.c", "longer"),
            ("www", ""),
        ] {
            let found = map.of_text(name).map_or("", Template::as_str);
            assert_eq!(found, expected, "{name}");
        }
    }

    #[test]
    fn an_address_is_in_one_range() {
        let geo: Geo = serde_json::from_value(json!({
            "source": "$remote_addr", "values": ["a", "b"],
            "ranges": [["10.0.0.0", "10.0.0.9", 0], ["10.0.0.10", "10.0.0.10", 1], ["::1", "::1", 0]],
        }))
        .unwrap();
        for (address, expected) in [
            ("10.0.0.0", "a"),
            ("10.0.0.9", "a"),
            ("10.0.0.10", "b"),
            ("10.0.0.11", ""),
            ("9.9.9.9", ""),
            ("::1", "a"),
            ("::2", ""),
        ] {
            let found = geo.value(address.parse().unwrap()).map_or("", HeaderValue::as_str);
            assert_eq!(found, expected, "{address}");
        }
        for ranges in [
            json!([["10.0.0.9", "10.0.0.0", 0]]),
            json!([["10.0.0.0", "10.0.0.9", 0], ["10.0.0.9", "10.0.0.9", 0]]),
            json!([["10.0.0.0", "::1", 0]]),
        ] {
            assert!(serde_json::from_value::<Ranges>(ranges.clone()).is_err(), "{ranges}");
        }
    }
}
