//! What a decision reads: a request, and one generation of records.

pub use crate::balancer::split::Request as SplitRequest;

use crate::balancer::split;
use crate::model::policy::{Policies, TlsPolicy};
use crate::patterns::{Budget, Patterns};
use crate::policy::cors::Origins;
use crate::record::{Kind, Records, RequestParts, SettingsView};
use crate::router::{self, ServerMatch, tls};
use std::borrow::Cow;
use std::cell::Cell;
use std::net::IpAddr;
use std::ops::Deref;

/// A request, as far as a decision looks at it: nginx's own, a line of text, or a generated one.
pub trait Facts: split::Request {
    /// The host in lower case, without port and trailing dot, as nginx leaves it in `$host`; empty if the client named none.
    fn host(&self) -> &[u8];
    /// The path in nginx's normal form: decoded, without dot segments.
    fn path(&self) -> &[u8];
    /// The query as it was sent, without its question mark.
    fn args(&self) -> &[u8];
    /// Path and query as they were sent.
    fn target(&self) -> &[u8];
    /// The method as it was sent.
    fn method(&self) -> &[u8];
    /// Calls the function with the name and the value of each header line.
    fn each_header(&self, visit: &mut dyn FnMut(&[u8], &[u8]));
    /// The port of nginx on which the request arrived. Asked only where Gateways listen.
    fn port(&self) -> u16;
    /// The address of this machine on which the request arrived. Asked only where Gateways have addresses for themselves.
    fn address(&self) -> Option<IpAddr>;
    /// The value of the first header of this lower-case name.
    fn first_header(&self, name: &[u8]) -> Option<&[u8]>;
    /// `scheme://` and the `Host` header as it was sent; `None` without one.
    fn origin(&self) -> Option<Vec<u8>>;
    /// The host as the client knows it, perhaps with a port: a trusted proxy in front may name it. Empty if there is none.
    fn client_host(&self) -> &[u8];
    /// The scheme that the client used, which a trusted proxy in front may name.
    fn client_scheme(&self) -> &[u8];
    /// The value of a variable that the rule has nothing to do with, by its lower-case name; `None`: there is none.
    fn variable(&self, name: &[u8]) -> Option<Cow<'_, [u8]>>;
    /// Returns another random number at each call; all 64 bits are random.
    fn random(&self) -> u64;
    /// nginx processes the request again, for an error page.
    fn is_internal(&self) -> bool;
    /// Whether the client's connection is encrypted.
    fn is_tls(&self) -> bool;
    /// The server name that the handshake was for; `None`: the client sent none. Asked only where Gateways listen.
    fn server_name(&self) -> Option<Cow<'_, [u8]>>;
    /// The handshake asked for what this names ([`CompiledHostPolicy::asks`]). True where there is no handshake to ask.
    fn was_asked_for(&self, asks: &[u8; 16]) -> bool;
    /// What the client showed in the handshake; `None`: nobody knows, and whatever is wanted counts as shown.
    fn certificate(&self) -> Option<Shown>;
    /// The subject of that certificate.
    fn certificate_subject(&self) -> Option<&[u8]>;
    /// The namespace of the rule whose endpoint has sent the request here, by `X-Accel-Redirect`; `None`: none has, or its rule is
    /// no namespace's.
    #[inline]
    fn sender(&self) -> Option<&[u8]> {
        None
    }
    /// What is left of [`Budget::OF_MOVED_PATHS`], if a script has given it its path: it was looked at before.
    #[inline]
    fn moved_budget(&self) -> Option<&Cell<Budget>> {
        None
    }
}

/// What the client of a connection has shown in the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// The client has shown no certificate.
    Nothing,
    /// One that an authority vouches for.
    Valid,
    /// One that no authority vouches for, without another fault.
    Unvouched,
    /// One that is expired, revoked or the like.
    Invalid,
}

/// A request as its rule is selected by it.
pub(super) struct Parts<'a, F>(pub &'a F);

impl<F: Facts> RequestParts for Parts<'_, F> {
    fn method(&self) -> &[u8] {
        self.0.method()
    }

    fn args(&self) -> &[u8] {
        self.0.args()
    }

    fn each_header(&self, visit: &mut dyn FnMut(&[u8], &[u8])) {
        self.0.each_header(visit);
    }

    fn random(&self) -> u64 {
        self.0.random()
    }

    fn moved_budget(&self) -> Option<&Cell<Budget>> {
        self.0.moved_budget()
    }
}

/// The records of one generation, with what their holder keeps compiled of them.
pub trait Generation<'g>: Records<'g> + Sized {
    /// A record that was found, for finding its cells.
    type Record: Copy;
    /// The policies of a rule, with what was worked out of them.
    type Policies: Deref<Target: CompiledPolicies>;
    /// The TLS policy of a host, with what was worked out of it.
    type HostPolicy: Deref<Target: CompiledHostPolicy>;
    /// The endpoints of a backend.
    type Endpoints: EndpointSet;

    /// Whether a controller has published anything yet; before that every request is answered with 503.
    fn is_published(&self) -> bool;
    /// Finds the record of this kind and key; `None`: the generation has none.
    fn record(&self, kind: Kind, key: &[u8]) -> Option<Self::Record>;
    /// The value of a record.
    fn value_of(&self, record: Self::Record) -> &'g [u8];
    /// The compiled patterns of whoever reads.
    fn patterns(&self) -> &Patterns;
    /// The policies of this id; `None`: they, or a bundle that they name, are not there.
    fn policies(&self, id: &[u8]) -> Option<Self::Policies>;
    /// Whether any Gateway has a listener, so that the server depends on the port too.
    fn has_listeners(&self) -> bool;
    /// Some host has a TLS policy.
    fn has_host_policies(&self) -> bool;
    /// The TLS policy of a request's host; `None`: it has none.
    fn host_policy(
        &self,
        host: Option<&[u8]>,
        or_default: bool,
    ) -> Result<Option<Self::HostPolicy>, Unusable>;
    /// What the listener of HTTPS that has a host asks of its connections, by the record of that host; `None`: nothing.
    fn listener_policy(&self, host: Self::Record) -> Result<Option<Self::HostPolicy>, Unusable>;
    /// The endpoints of the backend with this id, also where there are none.
    fn endpoints(&self, id: &[u8]) -> Self::Endpoints;

    /// The server of a host, where no Gateway has listeners.
    #[inline]
    fn server(&self, host: &[u8]) -> Option<(Self::Record, ServerMatch)> {
        router::find_server(host, |pattern| self.record(Kind::Server, pattern))
    }

    /// A host has a certificate of its own or of its wildcard.
    #[inline]
    fn has_certificate(&self, host: &[u8]) -> bool {
        tls::has_certificate(self, host)
    }

    /// Some clients are refused for all hosts.
    #[inline]
    fn blocks_clients(&self) -> bool {
        SettingsView::of(self).has_blocked()
    }
}

/// A TLS policy that cannot be used: damaged, or without a bundle that it names. Its host is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unusable;

/// Policies as a decision uses them.
pub trait CompiledPolicies {
    /// The policies as they were written.
    fn source(&self) -> &Policies;
    /// Origins that may read; `None`: the policies do not say.
    fn origins(&self) -> Option<&Origins>;
    /// Some of their texts have variables that are worked out of others.
    fn uses_definitions(&self) -> bool;
}

/// A TLS policy as a decision uses it.
pub trait CompiledHostPolicy {
    /// The policy as it was written.
    fn source(&self) -> &TlsPolicy;
    /// Names what handshakes ask of clients; zeroes: nothing.
    fn asks(&self) -> [u8; 16];
    /// Who pays for the policy's patterns.
    fn payer(&self) -> &[u8];
}

/// The endpoints of a backend, as a decision looks at them.
pub trait EndpointSet: Copy {
    /// No request can be sent to any of them.
    fn is_empty(&self) -> bool;
    /// Whether the backend's record has alternatives, an affinity cookie or a hash key.
    fn has_more(&self) -> bool;
    /// Each of them is busy up to its limit.
    fn is_busy(&self) -> bool;
}

/// Policies that are compiled for one decision only.
pub struct PlainPolicies {
    source: Policies,
    origins: Option<Origins>,
}

impl From<Policies> for PlainPolicies {
    fn from(source: Policies) -> Self {
        let origins = source.cors.as_ref().map(Origins::of);
        PlainPolicies { source, origins }
    }
}

impl CompiledPolicies for PlainPolicies {
    fn source(&self) -> &Policies {
        &self.source
    }

    fn origins(&self) -> Option<&Origins> {
        self.origins.as_ref()
    }

    fn uses_definitions(&self) -> bool {
        self.source.uses_definitions()
    }
}
