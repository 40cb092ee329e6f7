//! ingress-nginx's wire format, field for field.
//!
//! Shape:   `POST /configuration/backends`: an array of [`Element`]; `POST /configuration/servers`: one
//!          [`Servers`]. Both are the complete state of their kind.
//! Source:  ingress-nginx's Lua balancer. Go writes absent lists as `null`, so `null` counts as absent.

use super::null_is_default;
use crate::model::{
    self, Affinity, AffinityMode, Algorithm, Backend, BackendId, Certificate, CertificateId,
    Cookie, Endpoint, EndpointSet, HostPattern, Invalid, MAX_ALTERNATIVES, SameSite, Split,
    shorten,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::num::NonZeroU16;

super::objects!(Element, Address, SessionAffinity, CookieAffinity, HashBy, TrafficShaping, Servers);

/// One backend. `endpoints` are taken out before the rest is kept for `GET`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs, reason = "names and meanings are ingress-nginx's")]
#[serde(remote = "Self")]
pub struct Element {
    pub name: BackendId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<serde_json::Value>,
    #[serde(default)]
    pub port: Port,
    #[serde(default, deserialize_with = "null_is_default")]
    pub ssl_passthrough: bool,
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub endpoints: Vec<Address>,
    #[serde(default, deserialize_with = "null_is_default")]
    pub session_affinity_config: SessionAffinity,
    #[serde(default, deserialize_with = "null_is_default")]
    pub upstream_hash_by_config: HashBy,
    #[serde(
        rename = "load-balance",
        default,
        deserialize_with = "null_is_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub load_balance: String,
    #[serde(default, deserialize_with = "null_is_default")]
    pub no_server: bool,
    #[serde(default, deserialize_with = "null_is_default")]
    pub traffic_shaping_policy: TrafficShaping,
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub alternative_backends: Vec<String>,
}

/// A port number or name; 0 when unset.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
#[allow(missing_docs, reason = "plain")]
pub enum Port {
    Number(u16),
    Name(String),
}

impl Default for Port {
    fn default() -> Self {
        Port::Number(0)
    }
}

/// An endpoint: the port is text on this wire.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "plain")]
#[serde(remote = "Self")]
pub struct Address {
    pub address: AddressText,
    pub port: PortText,
}

/// An IP address, or the host name of an ExternalName Service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum AddressText {
    /// IPv4 or IPv6, the latter with or without brackets.
    Ip(IpAddr),
    /// To be resolved.
    Name(HostPattern),
}

impl TryFrom<String> for AddressText {
    type Error = Invalid;

    fn try_from(text: String) -> Result<Self, Invalid> {
        let bare = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or(&text);
        if let Ok(ip) = bare.parse() {
            return Ok(AddressText::Ip(ip));
        }
        match HostPattern::parse(&text) {
            // A name whose last label is a number is a mistyped IPv4 address (WHATWG URL, "ends in a number").
            Ok(name) if !name.is_wildcard() && !ends_in_a_number(name.as_str()) => {
                Ok(AddressText::Name(name))
            }
            _ => Err(Invalid::new("address is neither an IP address nor a host name")),
        }
    }
}

fn ends_in_a_number(name: &str) -> bool {
    name.rsplit('.').next().is_some_and(|label| label.bytes().all(|byte| byte.is_ascii_digit()))
}

impl From<AddressText> for String {
    fn from(address: AddressText) -> String {
        match address {
            AddressText::Ip(ip) => ip.to_string(),
            AddressText::Name(name) => name.into(),
        }
    }
}

/// A port as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PortText(pub NonZeroU16);

impl TryFrom<String> for PortText {
    type Error = Invalid;

    fn try_from(text: String) -> Result<Self, Invalid> {
        text.parse()
            .map(PortText)
            .map_err(|_| Invalid::new("port is not a number from 1 to 65535, written as text"))
    }
}

impl From<PortText> for String {
    fn from(port: PortText) -> String {
        port.0.to_string()
    }
}

/// Cookie affinity.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs, reason = "names and meanings are ingress-nginx's")]
#[serde(remote = "Self")]
pub struct SessionAffinity {
    #[serde(deserialize_with = "null_is_default")]
    pub name: String,
    #[serde(deserialize_with = "null_is_default")]
    pub mode: String,
    #[serde(deserialize_with = "null_is_default")]
    pub cookie_session_affinity: CookieAffinity,
}

/// Attributes of the affinity cookie.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "names and meanings are ingress-nginx's")]
#[serde(remote = "Self")]
pub struct CookieAffinity {
    #[serde(deserialize_with = "null_is_default")]
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub maxage: Option<String>,
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub locations: BTreeMap<String, Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secure: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub samesite: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conditional_samesite_none: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub change_on_failure: Option<bool>,
}

/// Consistent hashing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
#[allow(missing_docs, reason = "names and meanings are ingress-nginx's")]
#[serde(remote = "Self")]
pub struct HashBy {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upstream_hash_by: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upstream_hash_by_subset: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upstream_hash_by_subset_size: Option<u32>,
}

/// Canary rules.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs, reason = "names and meanings are ingress-nginx's")]
#[serde(remote = "Self")]
pub struct TrafficShaping {
    #[serde(deserialize_with = "null_is_default")]
    pub weight: i64,
    #[serde(deserialize_with = "null_is_default")]
    pub weight_total: i64,
    #[serde(deserialize_with = "null_is_default")]
    pub header: String,
    #[serde(deserialize_with = "null_is_default")]
    pub header_value: String,
    #[serde(deserialize_with = "null_is_default")]
    pub header_pattern: String,
    #[serde(deserialize_with = "null_is_default")]
    pub cookie: String,
}

/// What an element says, in the words of the model.
#[derive(Clone, Debug, PartialEq)]
pub struct Converted {
    /// The element's name.
    pub id: BackendId,
    /// How it balances.
    pub backend: Backend,
    /// Its addresses.
    pub endpoints: EndpointSet,
    /// Host names among the endpoints: left out, for the caller to resolve.
    pub names: Vec<HostPattern>,
    /// What is not served as it is written, for the log: ingress-nginx takes the whole array all the same.
    pub notes: Vec<String>,
}

impl Element {
    /// The model of this element.
    pub fn into_model(mut self) -> Result<Converted, Invalid> {
        let mut names = Vec::new();
        let mut endpoints = Vec::with_capacity(self.endpoints.len());
        for Address { address, port } in std::mem::take(&mut self.endpoints) {
            match address {
                AddressText::Ip(address) => endpoints.push(Endpoint::new(address, port.0)),
                AddressText::Name(name) => names.push(name),
            }
        }
        let kept = serde_json::to_string(&self)
            .map_err(|error| Invalid::new(format!("cannot be written back as JSON: {error}")))?;
        let mut notes = Vec::new();
        let backend = self.backend(kept, &mut notes);
        let endpoints = EndpointSet::new(endpoints)?;
        Ok(Converted { id: self.name, backend, endpoints, names, notes })
    }

    /// Affinity decides before a hash, and that before `load-balance`: the order of [`Backend`], too.
    fn backend(&self, kept: String, notes: &mut Vec<String>) -> Backend {
        let affinity = self.session_affinity_config.model(notes);
        let hash_by = self.upstream_hash_by_config.model(notes);
        let algorithm = match &*self.load_balance {
            "round_robin" => Algorithm::RoundRobin,
            "ewma" => Algorithm::Ewma,
            "least_conn" => Algorithm::LeastConn,
            "p2c" => Algorithm::P2c,
            other => {
                if !other.is_empty() && affinity.is_none() && hash_by.is_none() {
                    let other = shorten(other);
                    notes.push(format!("load-balance {other:?} is unknown: round_robin"));
                }
                Algorithm::RoundRobin
            }
        };
        Backend {
            algorithm,
            hash_by,
            affinity,
            alternatives: self.alternatives(notes),
            split: self.traffic_shaping_policy.model(),
            compatible: Some(kept),
            ..Backend::default()
        }
    }

    fn alternatives(&self, notes: &mut Vec<String>) -> Vec<BackendId> {
        let mut ids: Vec<BackendId> = Vec::new();
        for text in &self.alternative_backends {
            match BackendId::parse(&**text) {
                Ok(id) if id == self.name || ids.contains(&id) => {}
                Ok(_) if ids.len() == MAX_ALTERNATIVES => {
                    notes.push(format!(
                        "more than {MAX_ALTERNATIVES} alternatives: the rest gets nothing"
                    ));
                    break;
                }
                Ok(id) => ids.push(id),
                Err(error) => notes.push(format!("an alternative is left out: {error}")),
            }
        }
        ids
    }

    /// The element of a backend and its endpoints, as `GET /configuration/backends` gives it.
    pub fn from_model(id: &BackendId, backend: &Backend, endpoints: &EndpointSet) -> Element {
        let kept = backend.compatible.as_deref().and_then(|text| serde_json::from_str(text).ok());
        let mut element: Element = kept.unwrap_or_else(|| Element::native(id));
        element.endpoints = endpoints
            .as_slice()
            .iter()
            .map(|e| Address { address: AddressText::Ip(e.address), port: PortText(e.port) })
            .collect();
        element
    }

    /// A native backend under its own id; the port is the id's last part.
    fn native(id: &BackendId) -> Element {
        let port = id.as_str().rsplit('/').next().unwrap_or_default();
        Element {
            name: id.clone(),
            service: None,
            port: port.parse().map_or_else(|_| Port::Name(port.into()), Port::Number),
            ssl_passthrough: false,
            endpoints: Vec::new(),
            session_affinity_config: SessionAffinity::default(),
            upstream_hash_by_config: HashBy::default(),
            load_balance: String::new(),
            no_server: false,
            traffic_shaping_policy: TrafficShaping::default(),
            alternative_backends: Vec::new(),
        }
    }
}

impl SessionAffinity {
    fn model(&self, notes: &mut Vec<String>) -> Option<Affinity> {
        if self.name != "cookie" {
            return None;
        }
        let mode = match &*self.mode {
            "persistent" => AffinityMode::Persistent,
            _ => AffinityMode::Balanced,
        };
        match self.cookie_session_affinity.model(notes) {
            Ok(cookie) => Some(Affinity { mode, cookie }),
            Err(error) => {
                notes.push(format!("no affinity: {error}"));
                None
            }
        }
    }
}

impl CookieAffinity {
    /// The name ingress-nginx uses where the field is absent.
    const DEFAULT_NAME: &str = "route";

    /// A bad name is an error, a bad attribute is left out.
    fn model(&self, notes: &mut Vec<String>) -> Result<Cookie, Invalid> {
        let name = if self.name.is_empty() { Self::DEFAULT_NAME } else { &self.name };
        Cookie::check_name(name)?;
        let mut seconds = |what: &str, text: &Option<String>| {
            let text = text.as_deref().filter(|text| !text.is_empty())?;
            let number = text.parse().ok();
            if number.is_none() {
                notes.push(format!(
                    "{what} {:?} of the affinity cookie is no number",
                    shorten(text)
                ));
            }
            number
        };
        let (expires, max_age) =
            (seconds("expires", &self.expires), seconds("maxage", &self.maxage));
        let mut attribute = |what: &str, text: &Option<String>| {
            let text = text.clone().filter(|text| !text.is_empty())?;
            match Cookie::check_attribute(&text) {
                Ok(()) => Some(text),
                Err(error) => {
                    notes.push(format!("{what} of the affinity cookie is left out: {error}"));
                    None
                }
            }
        };
        let (path, domain) = (attribute("path", &self.path), attribute("domain", &self.domain));
        Ok(Cookie {
            name: name.into(),
            expires,
            max_age,
            path,
            domain,
            secure: self.secure,
            same_site: match self.samesite.as_deref() {
                Some("Strict") => Some(SameSite::Strict),
                Some("Lax") => Some(SameSite::Lax),
                Some("None") => Some(SameSite::None),
                _ => None,
            },
            conditional_same_site_none: self.conditional_samesite_none == Some(true),
            change_on_failure: self.change_on_failure == Some(true),
            locations: self.locations.clone(),
        })
    }
}

impl HashBy {
    /// What the reference's controller writes where an Ingress says nothing.
    const DEFAULT_SUBSET_SIZE: u32 = 3;

    fn model(&self, notes: &mut Vec<String>) -> Option<model::HashBy> {
        let key = self.upstream_hash_by.clone().filter(|key| !key.is_empty())?;
        if let Err(error) = model::HashBy::check_key(&key) {
            notes.push(format!("upstream-hash-by is left out: {error}"));
            return None;
        }
        let size = self.upstream_hash_by_subset_size.filter(|size| *size > 0);
        let subset_size = match self.upstream_hash_by_subset {
            Some(true) => size.unwrap_or(Self::DEFAULT_SUBSET_SIZE),
            _ => 0,
        };
        Some(model::HashBy { key, subset_size })
    }
}

impl TrafficShaping {
    fn model(&self) -> Option<Split> {
        if *self == TrafficShaping::default() {
            return None;
        }
        let number = |number: i64| number.clamp(0, i64::from(u32::MAX)) as u32;
        Some(Split {
            weight: number(self.weight),
            weight_total: number(self.weight_total),
            header: self.header.clone(),
            header_value: self.header_value.clone(),
            header_pattern: self.header_pattern.clone(),
            cookie: self.cookie.clone(),
        })
    }
}

/// Body of `POST /configuration/servers`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[serde(remote = "Self")]
pub struct Servers {
    /// PEM by uid: leaf, chain, private key.
    #[serde(deserialize_with = "super::unique_map")]
    pub certificates: BTreeMap<CertificateId, Pem>,
    /// Uid by host; [`Servers::NO_CERTIFICATE`] for a host that has none.
    #[serde(deserialize_with = "super::unique_map")]
    pub servers: BTreeMap<String, CertificateId>,
}

impl Servers {
    /// The uid that says "no certificate".
    pub const NO_CERTIFICATE: &'static str = "-1";

    /// Certificates and the names that use them. Hosts that are no DNS names (regular expressions among
    /// server aliases) are left out and returned apart.
    #[allow(clippy::type_complexity, reason = "three parts, named here")]
    pub fn into_model(
        self,
    ) -> (BTreeMap<CertificateId, Certificate>, BTreeMap<HostPattern, CertificateId>, Vec<String>)
    {
        let certificates = self.certificates.into_iter().map(|(id, pem)| (id, pem.0)).collect();
        let mut names = BTreeMap::new();
        let mut left_out = Vec::new();
        for (host, id) in self.servers {
            match HostPattern::parse(&host) {
                _ if id.as_str() == Self::NO_CERTIFICATE => {}
                Ok(name) => drop(names.insert(name, id)),
                Err(_) => left_out.push(host),
            }
        }
        (certificates, names, left_out)
    }
}

/// A certificate chain and its key in one PEM text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Pem(pub Certificate);

impl TryFrom<String> for Pem {
    type Error = Invalid;

    /// Splits at the PEM blocks (RFC 7468); the one whose label ends in `PRIVATE KEY` is the key.
    fn try_from(text: String) -> Result<Self, Invalid> {
        if text.len() > 2 * crate::model::MAX_PEM_BYTES {
            return Err(Invalid::new(format!("{} bytes of PEM: too long", text.len())));
        }
        let (mut chain, mut key, mut block, mut label) =
            (String::new(), String::new(), String::new(), None);
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("-----BEGIN ") {
                label = Some(rest.trim_end_matches('-').to_owned());
                block.clear();
            }
            if label.is_some() {
                block.push_str(line);
                block.push('\n');
            }
            if line.starts_with("-----END ") {
                match label.take() {
                    Some(label) if label.ends_with("PRIVATE KEY") => key.push_str(&block),
                    Some(label) if label.ends_with("CERTIFICATE") => chain.push_str(&block),
                    _ => {}
                }
            }
        }
        if chain.is_empty() || key.is_empty() {
            return Err(Invalid::new("PEM text needs a CERTIFICATE and a PRIVATE KEY block"));
        }
        Ok(Pem(Certificate { chain, key }))
    }
}

impl From<Pem> for String {
    fn from(Pem(Certificate { chain, key }): Pem) -> String {
        chain + &key
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::decode;

    const ELEMENT: &str = r#"[{"name":"default-shop-80","service":{"metadata":{"creationTimestamp":null},
        "spec":{"type":"ClusterIP"},"status":{"loadBalancer":{}}},"port":80,"sslPassthrough":false,
        "endpoints":[{"address":"10.0.0.1","port":"8080"},{"address":"2001:db8::1","port":"8080"}],
        "sessionAffinityConfig":{"name":"","mode":"","cookieSessionAffinity":{"name":""}},
        "upstreamHashByConfig":{"upstream-hash-by-subset-size":3},"load-balance":"ewma","noServer":false,
        "trafficShapingPolicy":{"weight":0,"weightTotal":0,"header":"","headerValue":"","headerPattern":"",
        "cookie":""}}]"#;

    #[test]
    fn what_was_posted_can_be_read_back() {
        let (posted, ignored) = decode::<Vec<Element>>(ELEMENT.as_bytes()).unwrap();
        assert_eq!(ignored, 0);
        let Converted { id, backend, endpoints, names, notes } =
            posted[0].clone().into_model().unwrap();
        assert_eq!((endpoints.as_slice().len(), names.len(), notes.len()), (2, 0, 0));
        assert_eq!(backend.algorithm, Algorithm::Ewma);
        assert_eq!((&backend.hash_by, &backend.affinity, &backend.split), (&None, &None, &None));
        let back = vec![Element::from_model(&id, &backend, &endpoints)];
        assert_eq!(back, posted);
        let value = |v: &str| serde_json::from_str::<serde_json::Value>(v).unwrap();
        assert_eq!(value(&serde_json::to_string(&back).unwrap()), value(ELEMENT));
    }

    fn converted(fields: &str) -> Converted {
        let body = format!(r#"[{{"name":"a",{fields}}}]"#);
        decode::<Vec<Element>>(body.as_bytes()).unwrap().0.remove(0).into_model().unwrap()
    }

    #[test]
    fn load_balance_is_an_algorithm_and_else_round_robin_with_a_note() {
        for (text, algorithm, notes) in [
            ("", Algorithm::RoundRobin, 0),
            ("round_robin", Algorithm::RoundRobin, 0),
            ("ewma", Algorithm::Ewma, 0),
            ("least_conn", Algorithm::LeastConn, 0),
            ("p2c", Algorithm::P2c, 0),
            ("chash", Algorithm::RoundRobin, 1),
            ("EWMA", Algorithm::RoundRobin, 1),
        ] {
            let converted = converted(&format!(r#""load-balance":"{text}""#));
            assert_eq!(converted.backend.algorithm, algorithm, "{text}");
            assert_eq!(converted.notes.len(), notes, "{text}");
        }
    }

    #[test]
    fn a_hash_chooses_an_endpoint_or_a_subset() {
        let hash_by = |fields: &str| {
            converted(&format!(r#""upstreamHashByConfig":{{{fields}}}"#)).backend.hash_by
        };
        let expected =
            |subset_size| Some(model::HashBy { key: "$request_uri".into(), subset_size });
        let key = r#""upstream-hash-by":"$request_uri""#;
        let size = r#""upstream-hash-by-subset-size""#;
        let subset = r#""upstream-hash-by-subset""#;
        assert_eq!(hash_by(&format!("{key},{size}:3")), expected(0));
        assert_eq!(hash_by(&format!("{key},{subset}:true,{size}:5")), expected(5));
        assert_eq!(hash_by(&format!("{key},{subset}:true,{size}:0")), expected(3));
        assert_eq!(hash_by(&format!("{subset}:true,{size}:5")), None);
        assert_eq!(hash_by(r#""upstream-hash-by":"a\n""#), None);
    }

    #[test]
    fn affinity_is_the_references() {
        let Converted { backend, notes, .. } = converted(
            r#""sessionAffinityConfig":{"name":"cookie","mode":"persistent","cookieSessionAffinity":{
            "name":"route","expires":"-5","maxage":"60","locations":{"a.test":["/"]},"secure":true,"path":"/x",
            "domain":"a.test","samesite":"None","conditional_samesite_none":true,"change_on_failure":true}}"#,
        );
        let cookie = Cookie {
            name: "route".into(),
            expires: Some(-5),
            max_age: Some(60),
            path: Some("/x".into()),
            domain: Some("a.test".into()),
            secure: Some(true),
            same_site: Some(SameSite::None),
            conditional_same_site_none: true,
            change_on_failure: true,
            locations: [("a.test".into(), vec!["/".into()])].into(),
        };
        let mode = AffinityMode::Persistent;
        assert_eq!((backend.affinity, notes), (Some(Affinity { mode, cookie }), vec![]));
        for other in [r#"{"name":""}"#, r#"{"name":"Cookie"}"#] {
            let converted = converted(&format!(r#""sessionAffinityConfig":{other}"#));
            assert_eq!(converted.backend.affinity, None, "{other}");
        }
    }

    #[test]
    fn bad_cookies_lose_what_is_bad_and_say_so() {
        let with = |fields: &str| {
            let Converted { backend, notes, .. } = converted(&format!(
                r#""sessionAffinityConfig":{{"name":"cookie","cookieSessionAffinity":{{{fields}}}}}"#
            ));
            (backend.affinity.map(|affinity| affinity.cookie), notes.len())
        };
        let plain = Cookie { name: "route".into(), ..Cookie::default() };
        assert_eq!(with(""), (Some(plain.clone()), 0));
        assert_eq!(with(r#""name":"a;b""#), (None, 1));
        assert_eq!(with(r#""name":"route","expires":"abc5""#), (Some(plain.clone()), 1));
        assert_eq!(with(r#""domain":"a; Path=/""#), (Some(plain.clone()), 1));
        assert_eq!(with(r#""samesite":"lax","path":"""#), (Some(plain), 0));
    }

    #[test]
    fn canary_rules_and_alternatives_are_taken_over() {
        let Converted { backend, notes, .. } = converted(
            r#""alternativeBackends":["b","c","b","a",""],"trafficShapingPolicy":{"weight":-1,
            "weightTotal":1000,"header":"h","headerValue":"v","headerPattern":"p","cookie":"c"}"#,
        );
        let ids: Vec<_> = backend.alternatives.iter().map(BackendId::as_str).collect();
        assert_eq!((ids, notes.len()), (vec!["b", "c"], 1));
        let split = Split {
            weight: 0,
            weight_total: 1_000,
            header: "h".into(),
            header_value: "v".into(),
            header_pattern: "p".into(),
            cookie: "c".into(),
        };
        assert_eq!(backend.split, Some(split));
    }

    #[test]
    fn null_and_absent_fields_are_normal() {
        let body = br#"[{"name":"a","endpoints":null,"sessionAffinityConfig":null,"alternativeBackends":null}]"#;
        assert_eq!(decode::<Vec<Element>>(body).unwrap().0[0].port, Port::Number(0));
    }

    #[test]
    fn a_bad_port_is_named_by_its_pointer() {
        for port in ["0", "65536", "-1", "http", ""] {
            let body = format!(
                r#"[{{"name":"a","endpoints":[{{"address":"10.0.0.1","port":"{port}"}}]}}]"#
            );
            let error = decode::<Vec<Element>>(body.as_bytes()).unwrap_err();
            assert_eq!(error.pointer, "/0/endpoints/0/port", "{port}");
        }
    }

    #[test]
    fn a_mistyped_address_is_no_host_name() {
        for address in ["10.0.0.256", "10.0.0", "1"] {
            assert!(AddressText::try_from(address.to_owned()).is_err(), "{address}");
        }
        assert!(AddressText::try_from("db-1.example".to_owned()).is_ok());
    }

    #[test]
    fn a_unix_socket_is_not_an_address() {
        let body = br#"[{"name":"a","endpoints":[{"address":"unix:/run/x.sock","port":"80"}]}]"#;
        assert_eq!(decode::<Vec<Element>>(body).unwrap_err().pointer, "/0/endpoints/0/address");
    }

    #[test]
    fn names_of_hosts_without_certificate_and_of_patterns_are_left_out() {
        let pem = "-----BEGIN CERTIFICATE-----\\nAA\\n-----END CERTIFICATE-----\\n\
                   -----BEGIN PRIVATE KEY-----\\nBB\\n-----END PRIVATE KEY-----\\n";
        let body = format!(
            r#"{{"certificates":{{"u1":"{pem}"}},"servers":{{"a.test":"u1","b.test":"-1","~^c$":"u1"}}}}"#
        );
        let (servers, _) = decode::<Servers>(body.as_bytes()).unwrap();
        let (certificates, names, left_out) = servers.into_model();
        assert_eq!((certificates.len(), names.len(), left_out.len()), (1, 1, 1));
        assert!(certificates.values().all(|c| c.key.contains("BB") && !c.chain.contains("BB")));
    }
}
