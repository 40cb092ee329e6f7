//! What a decision reads in nginx: the request, and the live generation.

use crate::request::Request;
use crate::request::forwarded;
use crate::request::policies;
use crate::request::policies::Compiled;
use crate::request::route::EndpointSetRef;
use crate::tls::client_certificate;
use crate::tls::client_certificate::HostPolicy;
use crate::worker::Worker;
use crate::zone::endpoints;
use crate::zone::retired;
use oxigress_core::balancer::{cookie, split};
use oxigress_core::cache::recent::Recent;
use oxigress_core::decision::{EndpointSet, Facts, Generation, Shown, Unusable};
use oxigress_core::patterns::Patterns;
use oxigress_core::record::{BackendView, EndpointsView, Kind, Records, SettingsView};
use oxigress_core::router::{ServerMatch, find_server, tls};
use oxigress_core::text::template::Values;
use oxigress_store::{Guard, KeyHash, Record, RecordPlace};
use std::borrow::Cow;
use std::cell::Cell;
use std::net::IpAddr;
use std::rc::Rc;

/// What a worker keeps for decisions.
#[derive(Default)]
pub struct DecisionCache {
    /// Compiled patterns of paths and traffic splits.
    patterns: Patterns,
    /// The last generation that was asked for blocked clients, and its answer.
    blocks: Cell<(u64, bool)>,
    /// Hosts that were asked for lately.
    servers: Recent<KnownServer>,
    certificates: Recent<bool>,
    /// Where the endpoint sets of backends stand that were asked for lately.
    endpoints: Recent<RecordPlace>,
    /// Where the records of such backends stand themselves.
    backends: Recent<RecordPlace>,
}

/// The server of a host.
#[derive(Clone, Copy)]
struct KnownServer {
    /// The record of the host's server; nowhere: the host has none.
    place: RecordPlace,
    found: ServerMatch,
    /// The host has a certificate, which a redirect to HTTPS depends on.
    has_certificate: bool,
}

/// The live generation, with what the worker keeps compiled of it.
pub struct Live<'g> {
    worker: &'static Worker,
    guard: &'g Guard<'g>,
    decided: u64,
    /// The host whose server was found, and whether it has a certificate: that is asked next.
    certificate: Cell<Option<(*const [u8], bool)>>,
}

impl<'g> Live<'g> {
    /// For a request that is decided now.
    pub fn new(worker: &'static Worker, guard: &'g Guard<'g>) -> Self {
        Live::since(worker, guard, 0)
    }

    /// For a request that generation `decided` has routed: it still finds the backends that were removed since.
    pub fn since(worker: &'static Worker, guard: &'g Guard<'g>, decided: u64) -> Self {
        Live { worker, guard, decided, certificate: Cell::new(None) }
    }
}

impl<'g> Records<'g> for Live<'g> {
    #[inline]
    fn value(&self, kind: Kind, key: &[u8]) -> Option<&'g [u8]> {
        self.guard.get(kind as u8, key).map(|record| record.value())
    }
}

impl<'g> Generation<'g> for Live<'g> {
    type Record = Record<'g>;
    type Policies = Rc<Compiled>;
    type HostPolicy = Rc<HostPolicy>;
    type Endpoints = Endpoints<'g>;

    #[inline]
    fn is_published(&self) -> bool {
        self.guard.generation() != 0
    }

    #[inline]
    fn record(&self, kind: Kind, key: &[u8]) -> Option<Record<'g>> {
        match kind {
            Kind::Backend => live_backend(self.worker, self.guard, key),
            _ => self.guard.get(kind as u8, key),
        }
    }

    #[inline]
    fn value_of(&self, record: Record<'g>) -> &'g [u8] {
        record.value()
    }

    #[inline]
    fn patterns(&self) -> &Patterns {
        &self.worker.part::<DecisionCache>().patterns
    }

    #[inline]
    fn policies(&self, id: &[u8]) -> Option<Rc<Compiled>> {
        policies::find(self.worker, self.guard, id)
    }

    #[inline]
    fn has_listeners(&self) -> bool {
        self.guard.count(Kind::Listener as u8) != 0
    }

    #[inline]
    fn has_host_policies(&self) -> bool {
        self.guard.count(Kind::Tls as u8) != 0
    }

    fn host_policy(
        &self,
        host: Option<&[u8]>,
        or_default: bool,
    ) -> Result<Option<Rc<HostPolicy>>, Unusable> {
        client_certificate::find(self.worker, self.guard, host, or_default)
    }

    fn listener_policy(&self, host: Record<'g>) -> Result<Option<Rc<HostPolicy>>, Unusable> {
        client_certificate::find_of_listener(self.worker, self.guard, &host)
    }

    #[inline]
    fn endpoints(&self, id: &[u8]) -> Endpoints<'g> {
        match live_endpoints(self.worker, self.guard, id) {
            Some(record) => Endpoints::new(self.guard, record, id, self.decided),
            None => Endpoints::of(self.guard, id, self.decided),
        }
    }

    #[inline]
    fn server(&self, host: &[u8]) -> Option<(Record<'g>, ServerMatch)> {
        let (guard, kept) = (self.guard, self.worker.part::<DecisionCache>());
        let server = kept.servers.find(guard.generation(), host, || {
            let server = find_server(host, |pattern| self.record(Kind::Server, pattern));
            let (place, found) = match server {
                Some((record, found)) => (guard.place(&record), found),
                None => (RecordPlace::default(), ServerMatch::Default),
            };
            let has_certificate = tls::has_certificate(self, host);
            KnownServer { place, found, has_certificate }
        });
        self.certificate.set(Some((host, server.has_certificate)));
        Some((guard.at(server.place)?, server.found))
    }

    #[inline]
    fn has_certificate(&self, host: &[u8]) -> bool {
        if let Some((of, has_certificate)) = self.certificate.get()
            && std::ptr::eq(of, host)
        {
            return has_certificate;
        }
        let kept = self.worker.part::<DecisionCache>();
        let generation = self.guard.generation();
        kept.certificates.find(generation, host, || tls::has_certificate(self, host))
    }

    #[inline]
    fn blocks_clients(&self) -> bool {
        let (kept, generation) =
            (&self.worker.part::<DecisionCache>().blocks, self.guard.generation());
        let (known, answer) = kept.get();
        if known == generation {
            return answer;
        }
        let answer = SettingsView::of(self).has_blocked();
        kept.set((generation, answer));
        answer
    }
}

/// The live endpoint set of the backend with this id.
#[inline]
pub fn live_endpoints<'g>(
    worker: &Worker,
    guard: &'g Guard<'_>,
    backend: &[u8],
) -> Option<Record<'g>> {
    let kept = worker.part::<DecisionCache>();
    live(guard, &kept.endpoints, Kind::Endpoints, backend)
}

/// The record of the live backend with this id.
#[inline]
fn live_backend<'g>(worker: &Worker, guard: &'g Guard<'_>, id: &[u8]) -> Option<Record<'g>> {
    live(guard, &worker.part::<DecisionCache>().backends, Kind::Backend, id)
}

/// The live record of a kind with this id, which may have been asked for lately.
#[inline]
fn live<'g>(
    guard: &'g Guard<'_>,
    recent: &Recent<RecordPlace>,
    kind: Kind,
    id: &[u8],
) -> Option<Record<'g>> {
    let place = recent.find(guard.generation(), id, || {
        let record = guard.get(kind as u8, id);
        record.map_or_else(RecordPlace::default, |record| guard.place(&record))
    });
    guard.at(place)
}

/// A backend that is live, or was removed after generation `decided`.
pub fn backend<'g>(
    worker: &Worker,
    guard: &'g Guard<'_>,
    id: &[u8],
    decided: u64,
) -> Option<BackendView<'g>> {
    match live_backend(worker, guard, id) {
        Some(live) => Some(BackendView::new(live.value())),
        None => retired::backend(guard, id, decided),
    }
}

/// The endpoint set of a backend.
#[derive(Clone, Copy)]
pub struct Endpoints<'g> {
    hash: KeyHash,
    record: Option<Record<'g>>,
    view: EndpointsView<'g>,
    /// The generation that names the backend.
    decided: u64,
}

impl<'g> Endpoints<'g> {
    /// Of the backend with this id. Where it has none, those that were removed after generation `decided`.
    fn of(guard: &'g Guard<'_>, backend: &[u8], decided: u64) -> Self {
        let kind = Kind::Endpoints as u8;
        let hash = guard.hash(kind, backend);
        if let Some(record) = guard.get_hashed(hash, kind, backend) {
            return Self::new(guard, record, backend, decided);
        }
        let view = EndpointsView::default();
        let none = Endpoints { hash, record: None, view, decided: guard.generation() };
        none.or_removed(guard, backend, decided)
    }

    /// Of the backend with this id, whose live set this is.
    #[inline]
    fn new(guard: &'g Guard<'_>, live: Record<'g>, backend: &[u8], decided: u64) -> Self {
        let (hash, view) = (live.key_hash(), EndpointsView::new(live.value()));
        let live = Endpoints { hash, record: Some(live), view, decided: guard.generation() };
        live.or_removed(guard, backend, decided)
    }

    /// Where there are none, those that were removed after generation `decided`.
    #[inline]
    fn or_removed(self, guard: &'g Guard<'_>, backend: &[u8], decided: u64) -> Self {
        if decided == 0 || !self.is_empty() {
            return self;
        }
        match retired::endpoints(guard, backend, decided) {
            Some((removed, _)) => {
                Endpoints { record: Some(removed), view: retired::view(&removed), decided, ..self }
            }
            None => self,
        }
    }

    /// How to find them again.
    #[inline]
    pub fn endpoint_set(&self, guard: &Guard<'_>) -> EndpointSetRef {
        let live = self.record.filter(|set| set.kind() == Kind::Endpoints as u8);
        let nowhere = RecordPlace::nowhere(self.decided);
        let place = live.map_or(nowhere, |set| guard.place(&set));
        EndpointSetRef { hash: Some(self.hash), place, is_plain: !self.has_more() }
    }
}

impl EndpointSet for Endpoints<'_> {
    #[inline]
    fn is_empty(&self) -> bool {
        self.view.is_empty()
    }

    #[inline]
    fn has_more(&self) -> bool {
        self.view.has_more()
    }

    #[inline]
    fn is_busy(&self) -> bool {
        self.record.is_some_and(|set| endpoints::is_busy(set, self.view))
    }
}

/// How to find the endpoints of a backend that a decision names, for a request that is made later.
pub fn find_endpoint_set(guard: &Guard<'_>, backend: &[u8], decided: u64) -> EndpointSetRef {
    Endpoints::of(guard, backend, decided).endpoint_set(guard)
}

/// nginx's request as a decision reads it.
pub struct RequestFacts<'a, 'r> {
    request: &'a Request<'r>,
    sender: Option<&'r [u8]>,
}

impl<'a, 'r> RequestFacts<'a, 'r> {
    /// Of a request that has its route, or comes from a client.
    pub fn of(request: &'a Request<'r>) -> Self {
        RequestFacts { request, sender: None }
    }

    /// Of one that the endpoint of a rule of this namespace has sent on, if any has.
    pub fn sent_by(sender: Option<&'r [u8]>, request: &'a Request<'r>) -> Self {
        RequestFacts { request, sender }
    }
}

impl split::Request for RequestFacts<'_, '_> {
    fn header(&self, name: &[u8]) -> Option<Cow<'_, [u8]>> {
        let mut values = self.request.all_headers_alike(name);
        let first = values.next()?;
        let mut all = Cow::Borrowed(first);
        for value in values {
            let all = all.to_mut();
            all.extend(b", ");
            all.extend(value);
        }
        Some(all)
    }

    fn cookie(&self, name: &[u8]) -> Option<&[u8]> {
        cookie::value(self.request.all_headers(b"cookie"), name)
    }
}

impl Facts for RequestFacts<'_, '_> {
    #[inline]
    fn host(&self) -> &[u8] {
        self.request.host()
    }

    #[inline]
    fn path(&self) -> &[u8] {
        self.request.path()
    }

    fn args(&self) -> &[u8] {
        self.request.args()
    }

    fn target(&self) -> &[u8] {
        self.request.target()
    }

    fn method(&self) -> &[u8] {
        self.request.method()
    }

    fn each_header(&self, visit: &mut dyn FnMut(&[u8], &[u8])) {
        self.request.headers().for_each(|(name, value)| visit(name, value));
    }

    fn port(&self) -> u16 {
        self.request.local_port().unwrap_or_default()
    }

    fn address(&self) -> Option<IpAddr> {
        self.request.local_address()
    }

    fn first_header(&self, name: &[u8]) -> Option<&[u8]> {
        self.request.header(name)
    }

    fn origin(&self) -> Option<Vec<u8>> {
        self.request.origin()
    }

    #[inline]
    fn client_host(&self) -> &[u8] {
        forwarded::host(self.request)
    }

    #[inline]
    fn client_scheme(&self) -> &[u8] {
        forwarded::scheme(self.request)
    }

    fn variable(&self, name: &[u8]) -> Option<Cow<'_, [u8]>> {
        Values::variable(self.request, name)
    }

    fn random(&self) -> u64 {
        self.request.worker().random()
    }

    fn is_internal(&self) -> bool {
        self.request.is_internal()
    }

    fn is_tls(&self) -> bool {
        self.request.is_https()
    }

    fn server_name(&self) -> Option<Cow<'_, [u8]>> {
        Values::variable(self.request, b"ssl_server_name").filter(|name| !name.is_empty())
    }

    fn was_asked_for(&self, asks: &[u8; 16]) -> bool {
        self.request.asked_for_certificate() == *asks
    }

    fn certificate(&self) -> Option<Shown> {
        Some(self.request.certificate_shown())
    }

    fn certificate_subject(&self) -> Option<&[u8]> {
        self.request.nginx().certificate_subject()
    }

    #[inline]
    fn sender(&self) -> Option<&[u8]> {
        self.sender
    }
}
