//! A module's part in the processing of requests: phases, content, the header filter.

use super::Request;
use crate::basic::code::Code;
use crate::basic::guard::contain;
use crate::sys;
use crate::sys::{ngx_http_output_header_filter_pt, ngx_http_request_t, ngx_int_t};
use std::cell::UnsafeCell;

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
    /// Looks at a request; [`Code::DECLINED`] lets it go on.
    fn run(request: &Request) -> Code;
}

/// nginx's form of a handler.
pub(crate) unsafe extern "C" fn phase<H: PhaseHandler>(raw: *mut ngx_http_request_t) -> ngx_int_t {
    contain(H::NAME, H::PANICKED, || {
        // SAFETY: nginx gives a live request, on the event loop.
        H::run(unsafe { Request::from_ptr(raw) })
    })
    .0
}

/// nginx's form of a handler, for a location's content.
pub(crate) fn content_handler<H: PhaseHandler>() -> sys::ngx_http_handler_pt {
    Some(phase::<H>)
}

/// The filter that ran before a module's own was put in front of it.
pub struct NextFilter(UnsafeCell<ngx_http_output_header_filter_pt>);

// SAFETY: written while the configuration is read, and read on the event loop: one thread.
unsafe impl Sync for NextFilter {}

impl Default for NextFilter {
    fn default() -> Self {
        Self::new()
    }
}

impl NextFilter {
    /// None so far.
    pub const fn new() -> Self {
        NextFilter(UnsafeCell::new(None))
    }
}

/// The last word on a response's head, whoever made it: a filter that runs before nginx's own.
pub trait HeaderFilter {
    /// For the error log.
    const NAME: &'static str;
    /// Where the rest of the chain is kept.
    fn next() -> &'static NextFilter;
    /// Before the head is sent; `false`: this response cannot be sent.
    fn before(request: &Request) -> bool;
    /// After it was sent, well.
    fn after(_: &Request) {}
}

/// Puts a filter in front of nginx's, while a configuration is read: nginx begins a new chain for each.
pub(crate) fn install<F: HeaderFilter>() {
    // SAFETY: on the thread that reads the configuration, which is the event loop's; nginx's pointer to the chain.
    unsafe {
        *F::next().0.get() = sys::ngx_http_top_header_filter;
        sys::ngx_http_top_header_filter = Some(filter::<F>);
    }
}

unsafe extern "C" fn filter<F: HeaderFilter>(raw: *mut ngx_http_request_t) -> ngx_int_t {
    // SAFETY: nginx gives a live request, on the event loop.
    let request = unsafe { Request::from_ptr(raw) };
    // A response that protects may lack a header, and is not sent without it.
    if !contain(F::NAME, false, || F::before(request)) {
        return Code::ERROR.0;
    }
    // SAFETY: written by `install`, before any request; nginx's own filter is there before any module's.
    let answer = match unsafe { *F::next().0.get() } {
        // SAFETY: a header filter of nginx's, for a live request.
        Some(next) => unsafe { next(raw) },
        None => Code::ERROR.0,
    };
    if answer == Code::OK.0 {
        contain(F::NAME, (), || F::after(request));
    }
    answer
}
