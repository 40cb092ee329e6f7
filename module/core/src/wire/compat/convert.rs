//! Elements as backends of the model, and back.

use super::{
    Address, AddressText, CookieAffinity, Element, HashBy, Port, PortText, SessionAffinity,
    TrafficShaping,
};
use crate::model::{
    self, Affinity, AffinityMode, Algorithm, Backend, BackendId, Cookie, Endpoint, EndpointSet,
    HostPattern, Invalid, MAX_ALTERNATIVES, SameSite, Split, shorten,
};

/// An element as a backend of the model.
#[derive(Clone, Debug, PartialEq)]
pub struct Converted {
    /// The name of the element, which becomes the id.
    pub id: BackendId,
    /// The settings of the element without its addresses.
    pub backend: Backend,
    /// The IP addresses among the element's endpoints.
    pub endpoints: EndpointSet,
    /// Host names among the endpoints: left out, for the caller to resolve.
    pub names: Vec<HostPattern>,
    /// Deviations from what is written, for the log: ingress-nginx accepts the whole array all the same.
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
    fn model(&self, notes: &mut Vec<String>) -> Option<Box<Affinity>> {
        if self.name != "cookie" {
            return None;
        }
        let mode = match &*self.mode {
            "persistent" => AffinityMode::Persistent,
            _ => AffinityMode::Balanced,
        };
        match self.cookie_session_affinity.model(notes) {
            Ok(cookie) => Some(Box::new(Affinity { mode, cookie })),
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
    /// The size that ingress-nginx's controller writes for an Ingress without one.
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
    fn model(&self) -> Option<Box<Split>> {
        if *self == TrafficShaping::default() {
            return None;
        }
        let number = |number: i64| number.clamp(0, i64::from(u32::MAX)) as u32;
        Some(Box::new(Split {
            weight: number(self.weight),
            weight_total: number(self.weight_total),
            header: self.header.clone(),
            header_value: self.header_value.clone(),
            header_pattern: self.header_pattern.clone(),
            cookie: self.cookie.clone(),
        }))
    }
}
