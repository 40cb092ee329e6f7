//! A generation that is read for one explanation: nothing of it is kept compiled.

use super::Counted;
use crate::decision::{CompiledHostPolicy, EndpointSet, Generation, PlainPolicies, Unusable};
use crate::model::policy::TlsPolicy;
use crate::patterns::Patterns;
use crate::record::{self, EndpointsView, Kind, Records, decode_tls, has_all};
use crate::router::tls;

/// Records, and what workers count of their endpoints.
pub(crate) struct Offline<'a, R, C> {
    pub records: &'a R,
    pub patterns: &'a Patterns,
    pub counted: &'a C,
}

/// What a host's TLS policy says about client certificates, read from a snapshot.
pub(crate) struct HostPolicy {
    source: TlsPolicy,
    payer: Vec<u8>,
}

/// The endpoints of a backend.
#[derive(Clone, Copy)]
pub(crate) struct Endpoints<'g> {
    pub view: EndpointsView<'g>,
    is_busy: bool,
}

impl<'g, R: Records<'g>, C> Records<'g> for Offline<'_, R, C> {
    fn value(&self, kind: Kind, key: &[u8]) -> Option<&'g [u8]> {
        self.records.value(kind, key)
    }
}

impl<'g, R, C> Generation<'g> for Offline<'_, R, C>
where
    R: Records<'g>,
    C: Fn(&[u8], usize) -> Option<Counted>,
{
    type Record = &'g [u8];
    type Policies = Box<PlainPolicies>;
    type HostPolicy = Box<HostPolicy>;
    type Endpoints = Endpoints<'g>;

    fn is_published(&self) -> bool {
        true
    }

    fn record(&self, kind: Kind, key: &[u8]) -> Option<&'g [u8]> {
        self.records.value(kind, key)
    }

    fn value_of(&self, record: &'g [u8]) -> &'g [u8] {
        record
    }

    fn patterns(&self) -> &Patterns {
        self.patterns
    }

    fn policies(&self, id: &[u8]) -> Option<Self::Policies> {
        record::policies(self.records, id).map(|policies| Box::new(policies.into()))
    }

    /// Looking costs little here.
    fn has_listeners(&self) -> bool {
        true
    }

    fn has_host_policies(&self) -> bool {
        true
    }

    fn host_policy(
        &self,
        host: Option<&[u8]>,
        or_default: bool,
    ) -> Result<Option<Self::HostPolicy>, Unusable> {
        let Some(value) = tls::policy(self.records, host, or_default) else { return Ok(None) };
        let payer = [b"host ", host.unwrap_or_default()].concat();
        self.compiled(value, payer).map(Some)
    }

    fn listener_policy(&self, host: &'g [u8]) -> Result<Option<Self::HostPolicy>, Unusable> {
        let value = record::listener_policy(host);
        value.map(|value| self.compiled(value, Vec::new())).transpose()
    }

    fn endpoints(&self, id: &[u8]) -> Endpoints<'g> {
        let value = self.records.value(Kind::Endpoints, id);
        let view = value.map_or_else(EndpointsView::default, EndpointsView::new);
        let limit = view.max_in_flight();
        let is_full =
            |place| (self.counted)(id, place).is_some_and(|counted| counted.in_flight >= limit);
        let mut all = view.iter().enumerate();
        let is_busy = limit > 0
            && all.all(|(place, one)| view.is_draining() && one.is_draining() || is_full(place));
        Endpoints { view, is_busy }
    }
}

impl<'g, R: Records<'g>, C> Offline<'_, R, C> {
    fn compiled(&self, value: &[u8], payer: Vec<u8>) -> Result<Box<HostPolicy>, Unusable> {
        let source = decode_tls(value).ok_or(Unusable)?;
        match has_all(self.records, source.bundles()) {
            true => Ok(Box::new(HostPolicy { source, payer })),
            false => Err(Unusable),
        }
    }
}

impl CompiledHostPolicy for HostPolicy {
    fn source(&self) -> &TlsPolicy {
        &self.source
    }

    fn asks(&self) -> [u8; 16] {
        [0; 16]
    }

    fn payer(&self) -> &[u8] {
        &self.payer
    }
}

impl EndpointSet for Endpoints<'_> {
    fn is_empty(&self) -> bool {
        self.view.is_empty()
    }

    fn has_more(&self) -> bool {
        self.view.has_more()
    }

    fn is_busy(&self) -> bool {
        self.is_busy
    }
}
