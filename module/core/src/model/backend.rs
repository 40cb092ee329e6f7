//! Backends and their endpoints.
//!
//! Source: ingress-nginx's backends for the fields that it has; all others are off by default.

use super::{BackendId, Invalid, MAX_ALTERNATIVES, MAX_ENDPOINTS, checked};
use crate::text::template;
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::num::NonZeroU16;

crate::model::object::objects!(Backend, HashBy, Affinity, Cookie, Split, Ejection, Endpoint);

/// A group of endpoints that serve the same thing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[serde(remote = "Self")]
pub struct Backend {
    /// What ingress-nginx calls it, `namespace-service-port`: the affinity cookies its clients hold were made
    /// with this name. Absent: the id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// How an endpoint is chosen.
    pub algorithm: Algorithm,
    /// The key of consistent hashing; decides before the algorithm.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash_by: Option<HashBy>,
    /// Cookie affinity; decides before all else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Box<Affinity>>,
    /// Backends that serve a part of the requests, in order of precedence: at most [`MAX_ALTERNATIVES`].
    #[serde(deserialize_with = "checked_alternatives", skip_serializing_if = "Vec::is_empty")]
    pub alternatives: Vec<BackendId>,
    /// Which requests the backend serves where it is an alternative.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub split: Option<Box<Split>>,
    /// When a failing endpoint is ejected; absent: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ejection: Option<Ejection>,
    /// Milliseconds in which a new endpoint's share grows from a tenth to the whole; 0: at once.
    #[serde(skip_serializing_if = "is_zero")]
    pub slow_start_ms: u32,
    /// The most concurrent requests of one endpoint; 0: no limit. If all endpoints are at the limit the answer is
    /// 503.
    #[serde(skip_serializing_if = "is_zero")]
    pub max_in_flight: u32,
    /// The element of ingress-nginx's wire format it came from, without its endpoints, as JSON text;
    /// kept so that `GET /configuration/backends` can give it back. Native snapshots have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compatible: Option<String>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's form")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

fn checked_alternatives<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<BackendId>, D::Error> {
    checked(from, |all: &Vec<BackendId>| {
        let is_repeated = all.iter().collect::<BTreeSet<_>>().len() != all.len();
        match is_repeated || all.len() > MAX_ALTERNATIVES {
            true => Err(format!(
                "{} alternatives, each once and at most {MAX_ALTERNATIVES} are taken",
                all.len()
            )),
            false => Ok(()),
        }
    })
}

/// How an endpoint is chosen where neither a cookie nor a hash decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Algorithm {
    /// Each in turn, by weight; the turns of all workers are one.
    #[default]
    RoundRobin,
    /// The one with the fewest requests in flight for its weight.
    LeastConn,
    /// The faster of two chosen at random, by a moving average of their latency.
    Ewma,
    /// The better of two chosen at random, by requests in flight times latency.
    P2c,
}

/// Consistent hashing (ketama): equal keys lead to one endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct HashBy {
    /// Text with variables, such as `$request_uri` or `${http_x_tenant}-$host`: what is hashed. A variable that
    /// is unknown is empty.
    #[serde(deserialize_with = "checked_key")]
    pub key: String,
    /// The key chooses a subset of this many endpoints, one of which is drawn at random for each request; 0: it
    /// chooses one endpoint.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub subset_size: u32,
}

fn checked_key<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    checked(from, |key: &String| HashBy::check_key(key))
}

impl HashBy {
    /// Refuses an empty key, one over 1,024 bytes, control bytes, and more variables than a text may have.
    pub fn check_key(key: &str) -> Result<(), Invalid> {
        template::cost::of(template::parts(key.as_bytes())).map_err(Invalid::new)?;
        if (1..=1024).contains(&key.len()) && !key.bytes().any(|b| b.is_ascii_control()) {
            return Ok(());
        }
        Err(Invalid::new("a hash key has 1 to 1024 bytes, without control bytes"))
    }
}

/// Cookie affinity: a client stays with the endpoint that its cookie selects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[serde(remote = "Self")]
pub struct Affinity {
    /// Whether the cookie holds a hash key or names an endpoint.
    pub mode: AffinityMode,
    /// The name and the attributes of the cookie.
    pub cookie: Cookie,
}

/// The meaning of an affinity cookie's value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AffinityMode {
    /// A key that is hashed: new endpoints receive their share of the clients.
    #[default]
    Balanced,
    /// The name of an endpoint: a client moves only when the endpoint has left the set.
    Persistent,
}

/// An affinity cookie (RFC 6265 §4.1). Its value is `key|tag`; the tag names the backend.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[serde(remote = "Self")]
pub struct Cookie {
    /// The name of the cookie, a token of RFC 9110 §5.6.2.
    #[serde(deserialize_with = "checked_name")]
    pub name: String,
    /// `Expires`, seconds from now; negative: long ago.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires: Option<i64>,
    /// `Max-Age`, in seconds; the attribute is left out if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_age: Option<i64>,
    /// `Path`; absent: the path of the rule.
    #[serde(deserialize_with = "checked_attribute", skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// `Domain`; the attribute is left out if absent.
    #[serde(deserialize_with = "checked_attribute", skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// `Secure`; absent: if the request came over TLS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secure: Option<bool>,
    /// `SameSite`; the attribute is left out if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub same_site: Option<SameSite>,
    /// Whether `SameSite=None` is left out for browsers that treat it as `Strict`.
    #[serde(skip_serializing_if = "is_false")]
    pub conditional_same_site_none: bool,
    /// Whether a client whose endpoint failed moves to another one, with a new cookie.
    #[serde(skip_serializing_if = "is_false")]
    pub change_on_failure: bool,
    /// The host patterns on which the cookie is set, with the paths of their rules as the Ingress writes them.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub locations: BTreeMap<String, Vec<String>>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's form")]
fn is_false(is: &bool) -> bool {
    !*is
}

impl Default for Cookie {
    fn default() -> Self {
        Cookie {
            name: "INGRESSCOOKIE".into(),
            expires: None,
            max_age: None,
            path: None,
            domain: None,
            secure: None,
            same_site: None,
            conditional_same_site_none: false,
            change_on_failure: false,
            locations: BTreeMap::new(),
        }
    }
}

fn checked_name<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    checked(from, |name: &String| Cookie::check_name(name))
}

fn checked_attribute<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    checked(from, |value: &Option<String>| value.as_deref().map_or(Ok(()), Cookie::check_attribute))
}

impl Cookie {
    /// Refuses a name that is no token (RFC 9110 §5.6.2) of at most 128 bytes.
    pub fn check_name(name: &str) -> Result<(), Invalid> {
        let is_token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
        if (1..=128).contains(&name.len()) && name.bytes().all(is_token) {
            return Ok(());
        }
        Err(Invalid::new("a cookie's name is a token of 1 to 128 bytes: letters, digits, - and _"))
    }

    /// Refuses an attribute's value that would end the attribute or the line, or is over 1,024 bytes.
    pub fn check_attribute(value: &str) -> Result<(), Invalid> {
        let is_plain = |b: u8| !b.is_ascii_control() && b != b';';
        if value.len() <= 1024 && value.bytes().all(is_plain) {
            return Ok(());
        }
        Err(Invalid::new(
            "a cookie's attribute has at most 1024 bytes, without `;` and control bytes",
        ))
    }
}

/// The values of the cookie attribute `SameSite`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "RFC 6265bis")]
pub enum SameSite {
    Strict,
    Lax,
    None,
}

impl SameSite {
    /// As it is written in a header.
    pub fn as_str(self) -> &'static str {
        match self {
            SameSite::Strict => "Strict",
            SameSite::Lax => "Lax",
            SameSite::None => "None",
        }
    }
}

/// Which requests an alternative serves: the first of header, cookie and weight that is set and matches decides.
/// Empty texts are not set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[serde(remote = "Self")]
pub struct Split {
    /// The number of requests, of every `weight_total`, that the alternative serves.
    pub weight: u32,
    /// The requests among which `weight` are counted; values below 100 count as 100.
    pub weight_total: u32,
    /// The header whose value decides: it is compared with `header_value` if that is set, else with `header_pattern`,
    /// else with `always` and `never`.
    pub header: String,
    /// The value with which a request goes to the alternative.
    pub header_value: String,
    /// A regular expression; requests whose value matches go to the alternative.
    pub header_pattern: String,
    /// The name of a cookie whose value is `always` or `never`.
    pub cookie: String,
}

/// When a failing endpoint is ejected for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[serde(remote = "Self")]
pub struct Ejection {
    /// The number of consecutive failed attempts that ejects; 0: failures do not eject.
    pub failures: u32,
    /// The number of consecutive failed connections that ejects; 0: they do not eject.
    pub connect_failures: u32,
    /// The length of the first ejection, in milliseconds; each further one is longer by as much.
    pub base_ms: u32,
    /// The length of the longest ejection, in milliseconds.
    pub max_ms: u32,
    /// If less than this percentage of the endpoints is left, none is ejected: 0 to 100.
    pub panic_percent: u8,
}

impl Default for Ejection {
    fn default() -> Self {
        Ejection {
            failures: 5,
            connect_failures: 2,
            base_ms: 10_000,
            max_ms: 300_000,
            panic_percent: 50,
        }
    }
}

/// The endpoints of one backend: at most [`MAX_ENDPOINTS`], each address and port once, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<Endpoint>", into = "Vec<Endpoint>")]
pub struct EndpointSet(Vec<Endpoint>);

impl EndpointSet {
    /// Drops repeated endpoints; refuses more than [`MAX_ENDPOINTS`].
    pub fn new(endpoints: impl IntoIterator<Item = Endpoint>) -> Result<Self, Invalid> {
        let mut seen = BTreeSet::new();
        let is_new = |e: &Endpoint| seen.insert((e.address, e.port));
        let kept: Vec<_> = endpoints.into_iter().filter(is_new).collect();
        if kept.len() > MAX_ENDPOINTS {
            return Err(Invalid::new(format!(
                "{} endpoints in one backend, at most {MAX_ENDPOINTS} are served: split the Service",
                kept.len()
            )));
        }
        Ok(EndpointSet(kept))
    }

    /// The endpoints in the order in which they were given.
    pub fn as_slice(&self) -> &[Endpoint] {
        &self.0
    }
}

impl TryFrom<Vec<Endpoint>> for EndpointSet {
    type Error = Invalid;

    fn try_from(endpoints: Vec<Endpoint>) -> Result<Self, Invalid> {
        EndpointSet::new(endpoints)
    }
}

impl From<EndpointSet> for Vec<Endpoint> {
    fn from(set: EndpointSet) -> Self {
        set.0
    }
}

/// An address that serves requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Endpoint {
    /// IPv4 or IPv6; a Unix socket cannot be expressed.
    pub address: IpAddr,
    /// The TCP or UDP port that the endpoint listens on.
    pub port: NonZeroU16,
    /// The share of the endpoint relative to the others: 1 to 1,000.
    #[serde(default = "one", deserialize_with = "checked_weight", skip_serializing_if = "is_one")]
    pub weight: u16,
    /// The endpoint is about to end: it receives new requests only while all endpoints of the backend are draining.
    #[serde(default, skip_serializing_if = "is_false")]
    pub draining: bool,
}

impl Endpoint {
    /// The largest weight that an endpoint may have.
    pub const MAX_WEIGHT: u16 = 1_000;

    /// An endpoint of weight 1 that is not draining.
    pub fn new(address: IpAddr, port: NonZeroU16) -> Self {
        Endpoint { address, port, weight: 1, draining: false }
    }
}

fn one() -> u16 {
    1
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's form")]
fn is_one(weight: &u16) -> bool {
    *weight == 1
}

fn checked_weight<'de, D: Deserializer<'de>>(from: D) -> Result<u16, D::Error> {
    checked(from, |weight| match (1..=Endpoint::MAX_WEIGHT).contains(weight) {
        true => Ok(()),
        false => Err(format!(
            "weight {weight} is not from 1 to {}: leave out an endpoint that is to get nothing",
            Endpoint::MAX_WEIGHT
        )),
    })
}
