//! The subrequest to an auth server, which goes through a location of nginx.conf (`ingress_auth`).
//!
//! It has the client's headers in a list of its own, no body, and a backend of its own to balance to. Its answer is
//! read by the request that waits for it, and nothing of it is sent by itself; its body is dropped (`upstream/discard.rs` of `module/nginx`).
#![allow(unsafe_code)]

use crate::access::External;
use crate::access::kept::KeptAnswers;
use crate::conf::Declared;
use crate::conf::Scheme;
use crate::request::Request;
use crate::request::route::Names;
use crate::request::route::NewRoute;
use crate::request::spans::{self, CallPlace};
use crate::route;
use nginx::ssl::sha256;
use nginx::{Code, Ended, Kind};
use oxigress_core::decision::Variable;
use oxigress_core::http::header;
use oxigress_core::own_server::OwnServer;
use oxigress_core::policy::access::Answer;
use oxigress_core::policy::auth;
use oxigress_core::policy::auth::answers::{AnswerKey, KeptAnswer};
use oxigress_core::telemetry::span::CallKind;
use oxigress_core::text::hex;
use std::borrow::Cow;
use std::cell::Cell;
use std::ptr::NonNull;
use std::rc::Rc;

/// An answer of which more is sent than this is not kept, and neither is one that does not say how long it is: it
/// would fill the disk. Nobody needs its body.
const MAX_KEPT_BYTES: i64 = 64 * 1024;

/// An auth subrequest, in the pool of the request.
pub struct AuthSubrequest {
    /// The request holds its policies as long as its pool, which has this.
    external: *const External,
    /// Null: it is not asked yet. It lives as long as its main request, whose pool has this.
    subrequest: Cell<*mut nginx::sys::ngx_http_request_t>,
    /// Empty: the answer is not kept.
    cache_key: Vec<u8>,
    /// Of the worker's own answers; `None`: it is not kept there either.
    answer_key: Option<AnswerKey>,
    /// Of the server.
    host: Vec<u8>,
    /// Of the steps before it, for its headers.
    variables: Vec<Variable>,
    status: Cell<u16>,
    is_answered: Cell<bool>,
    /// Of a traced request: its span.
    call: Cell<Option<CallPlace>>,
}

impl AuthSubrequest {
    fn external(&self) -> &External {
        // SAFETY: the request holds its policies as long as its pool, which has this.
        unsafe { &*self.external }
    }

    /// What came back.
    pub fn answer(&self) -> Answer {
        match self.is_answered.get() {
            true => Answer::Status(self.status.get()),
            false => Answer::Awaited,
        }
    }

    /// The headers that came back; none before.
    pub fn headers(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        // SAFETY: a subrequest lives as long as its main request, whose pool has this.
        let subrequest = unsafe { nginx::Request::from_nullable(self.subrequest.get()) };
        let is_there = self.is_answered.get() && self.status.get() != 0;
        let upstream = subrequest.and_then(|it| it.upstream()).filter(|_| is_there);
        let headers = upstream.into_iter().flat_map(|upstream| upstream.headers());
        headers.filter(|header| header.is_there()).map(|header| (header.name(), header.value()))
    }

    /// Its cookies reach the client whatever the status.
    pub fn always_sets_cookie(&self) -> bool {
        self.external().source.always_sets_cookie
    }

    /// Name of the server.
    pub fn host(&self) -> &[u8] {
        &self.host
    }

    /// What the answer is kept under; empty: it is not.
    pub fn cache_key(&self) -> &[u8] {
        &self.cache_key
    }

    /// Has the worker keep the answer as long as nginx's cache does, of which it is or in which it is now: other workers have
    /// it there.
    fn keep_in_worker(&self, subrequest: &nginx::Request) {
        let upstream = subrequest.upstream().filter(|it| it.is_cacheable());
        let (Some(key), Some(_)) = (self.answer_key, upstream) else { return };
        let ends = subrequest.cache_date().zip(subrequest.cache_valid_until());
        let Some((date, end)) = ends else { return };
        // nginx reads the head that it has kept as if it came now: what that says of its time counts from when it came.
        let (now, _) = nginx::wall_clock();
        let end = end.min(date.saturating_add(end.saturating_sub(now)));
        let answer = KeptAnswer::new(self.status.get(), self.headers());
        if let (Some(answer), Some(request)) = (answer, Request::of(subrequest)) {
            request.worker().part::<KeptAnswers>().put(key, end, answer);
        }
    }

    /// Says how long the answer is kept, when the header of the subrequest is about to be sent.
    pub fn keep(&self, subrequest: &nginx::Request) {
        let Some(upstream) = subrequest.upstream().filter(|it| it.is_cacheable()) else { return };
        let Some(valid_until) = subrequest.cache_valid_until() else { return };
        let (status, length) = (upstream.status(), upstream.content_length_n());
        let has_no_body = matches!(status, 204 | 304);
        if !has_no_body && !(0..=MAX_KEPT_BYTES).contains(&length) {
            upstream.keep_out_of_cache();
            return;
        }
        // Set: the auth server says it itself (Cache-Control, Expires, X-Accel-Expires).
        if valid_until == 0
            && let Some(seconds) = self.external().kept_seconds(status as u16)
        {
            let (now, _) = nginx::wall_clock();
            subrequest.set_cache_valid_until(now.saturating_add(i64::from(seconds)));
        }
    }
}

/// What comes of sending an auth subrequest.
pub enum Sent {
    /// The answer comes later.
    Waits,
    /// The worker has kept an answer.
    Kept(Rc<KeptAnswer>),
}

/// Sends an auth subrequest, unless an answer is kept; `None`: nginx.conf has no location for it, the URL has no server, or
/// memory is out. `begun` is told of it before it is sent. The request holds `external` until it ends.
pub fn send<'r>(
    request: &Request<'r>,
    external: &'r External,
    variables: Vec<Variable>,
    begun: impl FnOnce(&'r AuthSubrequest),
) -> Option<Sent> {
    let (raw, source) = (request.nginx(), &external.source);
    let server = route::server(request, &source.to, external.target(request))?;
    let location = raw.auth_location(Scheme::of(server.https))?;
    let OwnServer { backend, host, target, .. } = server;
    // Two servers may have one name: that of another port, or of a host that was routed otherwise.
    let asked = [&backend[..], b" ", &host, &target].concat();
    let tells_apart = external.tells_apart(request, &asked);
    let kept = request.worker().part::<KeptAnswers>();
    let answer_key = tells_apart.as_ref().map(|all| kept.key(all));
    if let Some(answer) = answer_key.and_then(|key| kept.get(key)) {
        return Some(Sent::Kept(answer));
    }
    let auth = AuthSubrequest {
        external,
        subrequest: Cell::new(std::ptr::null_mut()),
        cache_key: tells_apart.map(|all| hex::encode(&sha256(&all))).unwrap_or_default(),
        answer_key,
        host,
        variables,
        status: Cell::new(0),
        is_answered: Cell::new(false),
        call: Cell::new(None),
    };
    let (subrequest, auth) = raw.subrequest(location, false, Kind::Waited, auth)?;
    auth.subrequest.set(subrequest.as_ptr());
    begun(auth);
    // Where something is missing it is answered with 404 where it arrives, which is no yes.
    let _ = complete(request, subrequest, auth, (&backend, &target));
    Some(Sent::Waits)
}

/// Gives a subrequest, which runs when this callback has returned, what it asks; `None` when memory is out, or a header
/// cannot be sent.
fn complete(
    request: &Request<'_>,
    subrequest: &nginx::Request,
    auth: &AuthSubrequest,
    (backend, target): (&[u8], &[u8]),
) -> Option<()> {
    let external = auth.external();
    let source = &external.source;
    subrequest.set_method_name(source.method.as_deref().unwrap_or("GET").as_bytes())?;
    subrequest.set_target(target)?;
    // Nothing is read, and the client's own body stays the client's.
    subrequest.set_no_body()?;
    subrequest.set_header_only(true);
    let asking = Request::of(subrequest)?;
    write_headers(request, auth, subrequest)?;
    asking.set_auth(auth)?;
    let guard = asking.worker().reader().read();
    let endpoint_set = route::find_endpoint_set(&guard, backend, request.decided());
    let names = Some(Names::of_backend(backend));
    asking.set_route(NewRoute { names, endpoint_set, ..NewRoute::default() });
    Some(())
}

/// The headers of the auth subrequest, in a list of its own.
fn write_headers(
    request: &Request<'_>,
    auth: &AuthSubrequest,
    subrequest: &nginx::Request,
) -> Option<()> {
    let mut own = Vec::new();
    if let Some(trace) = spans::of(request) {
        let (place, context) = trace.begin_call(request, CallKind::Auth);
        auth.call.set(Some(place));
        own.extend(context.into_iter().map(|(name, value)| (name.as_bytes(), Cow::from(value))));
    }
    auth.external().headers(request, &auth.variables, &mut own);
    subrequest.pass_headers(|header| {
        let name = header.name();
        auth::is_passed(name) && !own.iter().any(|(own, _)| header::is_alike(own, name))
    })?;
    for (name, value) in &own {
        if value.is_empty() || header::is_reserved(name) {
            continue;
        }
        // A value that would end its line is no value: the auth subrequest is not sent.
        if !header::is_value(value) {
            return None;
        }
        subrequest.push_own_header(name, value)?;
    }
    Some(())
}

/// Where a subrequest to an auth server leads to its [`AuthSubrequest`]; `None`: it is another one.
#[derive(Default)]
pub struct AuthSlot(Cell<Option<NonNull<AuthSubrequest>>>);

impl<'r> Request<'r> {
    /// What is known of this subrequest to an auth server; `None`: it is another request.
    pub fn auth(&self) -> Option<&'r AuthSubrequest> {
        // SAFETY: in the request's pool.
        self.part::<AuthSlot>()?.0.get().map(|auth| unsafe { auth.as_ref() })
    }

    /// Notes what belongs to a subrequest to an auth server; `None` when memory is out.
    fn set_auth(&self, auth: &'r AuthSubrequest) -> Option<()> {
        self.part_or_new::<AuthSlot>().map(|asking| asking.0.set(Some(auth.into())))
    }
}

impl Ended for AuthSubrequest {
    const NAME: &'static str = "auth_answered";

    fn ended(&self, subrequest: &nginx::Request, code: Code) -> Code {
        // An auth server may send nginx elsewhere (X-Accel-Redirect), unless nginx.conf ignores that.
        let upstream = subrequest.upstream().filter(|_| subrequest.is_auth_location());
        // Only what a server said counts, and not what nginx says where none did. It has said it, whatever becomes of the
        // body.
        let status = match upstream {
            Some(upstream)
                if code == Code::OK || code == Code::ERROR && upstream.is_header_sent() =>
            {
                upstream.status()
            }
            _ => 0,
        };
        spans::end_call(subrequest, self.call.get());
        self.status.set(u16::try_from(status).unwrap_or(0));
        self.is_answered.set(true);
        if code == Code::OK && status != 0 {
            self.keep_in_worker(subrequest);
        }
        // No page of nginx's, and no end of the main request.
        Code::OK
    }
}
