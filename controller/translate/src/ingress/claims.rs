//! What an Ingress claims: paths by host, where they lead, and what holds for them.

use crate::annotation::balancing::Balancing;
use crate::annotation::canary::Canary;
use crate::annotation::{Annotations, HostSettings};
use crate::claim::age::Age;
use crate::claim::backend_ref::BackendRef;
use crate::claim::policies::SharedPolicies;
use crate::host::owner::Sealed;
use crate::ingress::unserved::{Restriction, Unserved, UnservedOn};
use oxigress_core::model::policy::Policies;
use oxigress_core::model::{BackendId, HostPattern, HttpsRedirect, Origin, PathPattern, Policy};
use oxigress_objects::Key;
use oxigress_objects::small::SortedMap;
use oxigress_settings::Settings;
use std::collections::BTreeSet;
use std::sync::Arc;

/// What the ids of backends begin with that never exist.
const CLOSED: &str = "denied//";

/// Whether a backend is one of [`Claims::closed_backend`].
pub fn is_of_closed(backend: &BackendId) -> bool {
    backend.as_str().starts_with(CLOSED)
}

/// What one Ingress claims: hosts, paths, and what holds for them.
#[derive(Clone, Debug, PartialEq)]
pub struct Claims {
    /// When the Ingress was created; the older of two claims wins.
    pub created: i64,
    /// The Ingress that has the claims.
    pub key: Key,
    /// Paths by host; a host without paths is a server all the same.
    pub hosts: SortedMap<HostPattern, Box<[Claim]>>,
    /// spec.defaultBackend, for the roots of hosts where this Ingress is the first.
    pub default_backend: Option<BackendRef>,
    /// What it says about its hosts as wholes.
    pub host_settings: Sealed,
    /// It has nothing but spec.defaultBackend, which then serves every host nobody names.
    pub is_catch_all: bool,
    pub(super) annotations: Annotations,
    /// Its locations answer 503, whatever they lead to.
    pub(super) closed: bool,
    /// One of its paths has captures.
    pub(super) has_groups: bool,
    /// Which of its paths are not served, if it may restrict access to them.
    pub unserved: Option<Box<Unserved>>,
}

/// A path of a host.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// The paths that are claimed.
    pub pattern: PathPattern,
    /// The text as the Ingress writes it.
    pub path: String,
    /// The Service's port that requests go to; `None`: access to the path is restricted and it leads to no Service, so it
    /// answers 503.
    pub backend_ref: Option<BackendRef>,
    /// It can be a regular expression too, where another Ingress makes all paths of the host such.
    pub is_valid_regex: bool,
    /// Its regular expression is not served: what it begins with answers 503, where nobody else claims that.
    pub is_refused: bool,
    /// It may lead below `/.well-known/`.
    pub is_well_known: bool,
}

impl Claim {
    pub(super) fn root(backend_ref: Option<BackendRef>) -> Self {
        let pattern = PathPattern::Prefix(String::new());
        let path = "/".into();
        Claim {
            pattern,
            path,
            backend_ref,
            is_valid_regex: true,
            is_refused: false,
            is_well_known: false,
        }
    }
}

impl Claims {
    /// Those of an Ingress that claims nothing yet.
    pub(super) fn nothing(key: &Key, created: i64) -> Self {
        Claims {
            created,
            key: key.clone(),
            hosts: SortedMap::default(),
            default_backend: None,
            host_settings: Sealed::new(HostSettings::default()),
            is_catch_all: false,
            annotations: Annotations::default(),
            closed: false,
            has_groups: false,
            unserved: None,
        }
    }

    /// Its rules if it is a canary.
    pub fn canary(&self) -> Option<&Canary> {
        self.annotations.canary.as_deref()
    }

    /// The hosts of either that are to be merged again where these claims take the place of `old`.
    pub fn hosts_changed(&self, old: &Claims) -> BTreeSet<HostPattern> {
        let hosts = old.hosts.keys().chain(self.hosts.keys());
        let is_same = self.is_same_but_for_hosts(old);
        let is_changed = |host: &&HostPattern| {
            !is_same
                || old.hosts.get(host) != self.hosts.get(host)
                || old.unserved_on(host) != self.unserved_on(host)
        };
        hosts.filter(is_changed).cloned().collect()
    }

    fn is_same_but_for_hosts(&self, other: &Claims) -> bool {
        let Claims {
            created,
            key,
            hosts: _,
            default_backend,
            host_settings,
            is_catch_all,
            annotations,
            closed,
            has_groups,
            unserved: _,
        } = self;
        let lacks = |claims: &Claims| claims.has_unknown_paths(true);
        (*created, key) == (other.created, &other.key)
            && (default_backend, is_catch_all) == (&other.default_backend, &other.is_catch_all)
            && host_settings == &other.host_settings
            && annotations == &other.annotations
            && (*closed, *has_groups) == (other.closed, other.has_groups)
            && lacks(self) == lacks(other)
    }

    /// Its paths of a host.
    pub fn claims_on(&self, host: &HostPattern) -> &[Claim] {
        self.hosts.get(host).map_or(&[], |claims| claims)
    }

    /// Its paths of a host that are not served, if it may restrict access to them.
    pub fn unserved_on(&self, host: &HostPattern) -> Option<&UnservedOn> {
        self.unserved.as_ref()?.on(host)
    }

    /// It, or the host where `or_host` is set, may restrict access to paths of all its hosts that are not served, and of which
    /// nothing is known.
    pub fn has_unknown_paths(&self, or_host: bool) -> bool {
        self.unserved.as_ref().is_some_and(|unserved| unserved.is_unknown(or_host))
    }

    /// Its paths that are regular expressions, or may be where another Ingress makes all paths of the host such.
    pub fn expressions(&self) -> impl Iterator<Item = &str> {
        let claims = self.hosts.values().flat_map(|claims| claims.iter());
        claims.filter(|claim| claim.is_valid_regex).map(|claim| claim.path.as_str())
    }

    /// What it says about balancing.
    pub fn balancing(&self) -> Option<&Arc<Balancing>> {
        self.annotations.balancing.as_ref()
    }

    /// Which of two Ingresses decides.
    pub fn age(&self) -> Age {
        Age { created: self.created, key: self.key.clone() }
    }

    /// The Services' ports whose balancing it has a say in.
    pub fn ports(&self) -> BTreeSet<&BackendId> {
        let claims = self.hosts.values().flat_map(|claims| claims.iter());
        let claims = claims.filter_map(|claim| claim.backend_ref.as_ref());
        match self.canary() {
            Some(_) => BTreeSet::new(),
            None => claims
                .chain(&self.default_backend)
                .map(|backend_ref| &backend_ref.backend)
                .collect(),
        }
    }

    /// A backend that never exists, so that its locations answer 503. Its empty second part keeps it apart
    /// from the Services of a namespace `denied`.
    pub fn closed_backend(&self) -> BackendId {
        let named = BackendId::parse(format!("{CLOSED}{}/{}", self.key.namespace, self.key.name));
        // Names have at most 253 bytes each, or the source would not have let them in.
        named.unwrap_or_else(|_| self.anonymous_closed_backend())
    }

    fn anonymous_closed_backend(&self) -> BackendId {
        BackendId::parse(CLOSED).unwrap_or_else(|_| unreachable!("a fixed text is a valid id"))
    }

    /// All locations of this Ingress answer 503.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// It says who has access to its paths, or nobody has any.
    pub fn restricts_access(&self) -> bool {
        self.closed || !self.restriction().is_none()
    }

    /// Who has access to its paths, unless it is closed.
    pub fn restriction(&self) -> Restriction<'_> {
        Restriction::of(&self.annotations.policies)
    }

    /// Policy of one of its paths, as configured.
    pub fn policy(&self, path: &str, settings: &Settings) -> Policy {
        let mut exempt = settings.no_tls_redirect_locations.iter();
        let https_redirect = if exempt.any(|beginning| path.starts_with(beginning.as_str())) {
            HttpsRedirect::Never
        } else if self.annotations.force_ssl_redirect {
            HttpsRedirect::Always
        } else if self.annotations.ssl_redirect {
            HttpsRedirect::WithCertificate
        } else {
            HttpsRedirect::Never
        };
        Policy { https_redirect, ..Policy::default() }
    }

    /// What is decided per request about one of its paths, beside [`Self::policy`].
    pub fn policies(&self, path: &str, settings: &Settings) -> Arc<Policies> {
        let all = &self.annotations.policies;
        let is_same = all.rewrite.as_ref().is_some_and(|rewrite| rewrite.target.as_str() == path);
        let is_opened = all.access.is_some() && settings.defaults.is_open(path);
        if !is_opened && !is_same {
            return all.clone();
        }
        let mut own = Policies::clone(all);
        if is_same {
            own.rewrite = None;
        }
        settings.defaults.open(path, &mut own);
        if own == **all { all.clone() } else { Arc::new(own) }
    }

    /// Has its policies in common with other Ingresses that say the same.
    pub fn share_policies(&mut self, shared: &mut SharedPolicies) {
        shared.share(&mut self.annotations.policies);
    }

    /// What its annotations say of requests, whatever the path.
    pub fn annotated(&self) -> &Policies {
        &self.annotations.policies
    }

    /// One of its paths has captures.
    pub fn has_groups(&self) -> bool {
        self.has_groups
    }

    /// Its proxy-ssl-* asks for verification and cannot be honoured.
    pub fn has_lost_upstream_tls(&self) -> bool {
        self.annotations.has_lost_upstream_tls
    }

    /// The Service of its annotation default-backend.
    pub fn fallback(&self) -> Option<&BackendRef> {
        self.annotations.default_backend.as_ref()
    }

    /// Names for logs; `backend_ref` and `path` are what the rule comes from.
    pub fn origin(&self, backend_ref: Option<&BackendRef>, path: &str) -> Origin {
        Origin {
            namespace: self.key.namespace.to_string(),
            ingress: self.key.name.to_string(),
            service: backend_ref
                .map(|backend_ref| backend_ref.service.name.to_string())
                .unwrap_or_default(),
            port: backend_ref.map(|backend_ref| backend_ref.port.to_string()).unwrap_or_default(),
            path: path.into(),
        }
    }
}
