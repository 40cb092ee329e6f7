//! A module's part in the processing of requests: phases, content, the header filter.

use super::Request;
use super::body::{BodyHandler, body_handler};
use super::filters::NextFilters;
use crate::basic::callback::one;
use crate::basic::code::Code;
use crate::basic::guard::contain;
use crate::conf::{Conf, CoreLocation};
use crate::sys;
use crate::sys::{
    ngx_array_push, ngx_http_client_body_handler_pt, ngx_http_finalize_request,
    ngx_http_handler_pt, ngx_http_internal_redirect, ngx_http_read_client_request_body,
    ngx_http_request_t, ngx_int_t, ngx_str_t,
};
use std::marker::PhantomData;

/// The phases to which modules add handlers, in nginx's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Phase {
    /// The head has been read.
    PostRead = sys::ngx_http_phases_NGX_HTTP_POST_READ_PHASE,
    /// A location has been found.
    Rewrite = sys::ngx_http_phases_NGX_HTTP_REWRITE_PHASE,
    /// Limits.
    Preaccess = sys::ngx_http_phases_NGX_HTTP_PREACCESS_PHASE,
    /// Who may come in; subrequests have no such phase.
    Access = sys::ngx_http_phases_NGX_HTTP_ACCESS_PHASE,
    /// Let in, and not yet answered.
    Precontent = sys::ngx_http_phases_NGX_HTTP_PRECONTENT_PHASE,
    /// It has ended.
    Log = sys::ngx_http_phases_NGX_HTTP_LOG_PHASE,
}

/// What a module does with each request, in a phase or as the content handler of a location.
///
/// nginx runs the handlers of a phase that were added later first.
pub trait PhaseHandler {
    /// For the error log.
    const NAME: &'static str;
    /// The answer after a panic.
    const PANICKED: Code = Code::INTERNAL_ERROR;
    /// Looks at a request; [`Code::DECLINED`] lets it go on. What is answered in [`Phase::Log`] does not matter.
    fn run(request: &Request) -> Next<'_>;
}

/// What becomes of a request after a handler has looked at it: it is done when no handle of the request is left, since the
/// request may end by it. The lifetime is that of the request whose texts it has.
pub struct Next<'r>(Step, PhantomData<&'r Request>);

enum Step {
    Answer(Code),
    /// The body is read.
    Read(ngx_http_client_body_handler_pt),
    /// It goes on with this path and query, in its pool.
    Redirect(ngx_str_t, ngx_str_t),
}

impl From<Code> for Next<'_> {
    fn from(code: Code) -> Self {
        Next(Step::Answer(code), PhantomData)
    }
}

impl Request {
    /// Reads the body, by a handler whose answer this is. In a phase the phases go on when it has been read; elsewhere `H`
    /// says how it goes on.
    pub fn reading<H: BodyHandler>(&self) -> Next<'_> {
        Next(Step::Read(Some(body_handler::<H>)), PhantomData)
    }

    /// Goes on at another path, query included, as if the client had sent it, by a handler of a phase whose answer this is;
    /// `None` when memory is out, or there is no path.
    pub fn redirection(&self, target: &[u8]) -> Option<Next<'_>> {
        let mut parts = target.splitn(2, |byte| *byte == b'?');
        let path = parts.next().filter(|path| !path.is_empty())?;
        let query = parts.next().unwrap_or_default();
        let (path, query) = (self.pool().text(&[path])?, self.pool().text(&[query])?);
        Some(Next(Step::Redirect(path, query), PhantomData))
    }
}

/// nginx's form of a handler; `IN_PHASE`: it is of a phase, and not of a location's content.
pub(crate) unsafe extern "C" fn phase<H: PhaseHandler, const IN_PHASE: bool>(
    raw: *mut ngx_http_request_t,
) -> ngx_int_t {
    let step = contain(H::NAME, Step::Answer(H::PANICKED), || {
        // SAFETY: nginx gives a live request, on the event loop; the handle is gone when this returns.
        H::run(unsafe { Request::from_ptr(raw) }).0
    });
    // SAFETY: the live request, of which no handle is used any more; the texts lie in its pool. nginx counts it once more for
    // what follows. It gives its own count back for a content handler that answers so, and not for one of a phase: that may
    // free the request, and nothing follows.
    unsafe {
        let code = match step {
            Step::Answer(code) => return code.0,
            Step::Read(handler) => ngx_http_read_client_request_body(raw, handler),
            Step::Redirect(mut path, mut query) => {
                ngx_http_internal_redirect(raw, &raw mut path, &raw mut query)
            }
        };
        if Code(code).is_special() {
            return code;
        }
        if IN_PHASE {
            ngx_http_finalize_request(raw, Code::DONE.0);
        }
    }
    Code::DONE.0
}

/// nginx's form of a handler of [`Phase::Log`]: nginx frees the request next, whatever is answered, so nothing follows.
extern "C" fn log_phase<H: PhaseHandler>(request: &Request) -> ngx_int_t {
    contain(H::NAME, (), || {
        let _ = H::run(request);
    });
    Code::OK.0
}

/// nginx's form of a handler, for a location's content.
fn content_handler<H: PhaseHandler>() -> sys::ngx_http_handler_pt {
    Some(phase::<H, false>)
}

/// The last word on a response's head, whoever made it: a filter that runs before nginx's own.
pub trait HeaderFilter {
    /// For the error log.
    const NAME: &'static str;
    /// Where the rest of the chain is kept.
    fn next() -> &'static NextFilters;
    /// Before the head is sent; `false`: this response cannot be sent.
    fn before(request: &Request) -> bool;
    /// After it was sent, well.
    fn after(_: &Request) {}
}

extern "C" fn filter<F: HeaderFilter>(request: &Request) -> ngx_int_t {
    // A response that protects may lack a header, and is not sent without it.
    if !contain(F::NAME, false, || F::before(request)) {
        return Code::ERROR.0;
    }
    let answer = F::next().go_on(request, None);
    if answer == Code::OK {
        contain(F::NAME, (), || F::after(request));
    }
    answer.0
}

impl Conf {
    /// Has each request looked at in a phase, when `http` has been read; `None` before, and when memory is out.
    pub fn add_handler<H: PhaseHandler>(&mut self, at: Phase) -> Option<()> {
        let handler: ngx_http_handler_pt = match at {
            Phase::Log => Some(one(log_phase::<H>)),
            _ => Some(phase::<H, true>),
        };
        // SAFETY: in `http`, before nginx makes its table of handlers from these arrays, each of which has a pool from when nginx
        // has made it.
        unsafe {
            let handlers = &raw mut (*self.core_main()).phases[at as usize].handlers;
            let is_made = !(*handlers).pool.is_null();
            let place = is_made.then(|| ngx_array_push(handlers).cast::<ngx_http_handler_pt>());
            place?.as_mut().map(|place| *place = handler)
        }
    }

    /// Puts a filter in front of nginx's.
    pub fn add_header_filter<F: HeaderFilter>(&mut self) {
        F::next().stand_before(one(filter::<F>), None);
    }
}

impl CoreLocation {
    /// `H` makes its responses.
    pub fn set_content<H: PhaseHandler>(&self) {
        self.poke(|raw| raw.handler = content_handler::<H>());
    }
}
