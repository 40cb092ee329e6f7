//! nginx's chains of filters, of which each calls the next.

use super::Request;
use crate::basic::chain::Link;
use crate::basic::code::Code;
use crate::sys::{
    self, ngx_chain_t, ngx_http_output_body_filter_pt, ngx_http_output_header_filter_pt,
    ngx_http_request_t, ngx_int_t,
};
use std::cell::UnsafeCell;
use std::ptr::null_mut;

type HeadFilter = unsafe extern "C" fn(*mut ngx_http_request_t) -> ngx_int_t;
type PartFilter = unsafe extern "C" fn(*mut ngx_http_request_t, *mut ngx_chain_t) -> ngx_int_t;

/// The filters that ran before a module's own were put in front of them.
pub struct NextFilters(
    UnsafeCell<(ngx_http_output_header_filter_pt, ngx_http_output_body_filter_pt)>,
);

// SAFETY: written while the configuration is read, and read on the event loop: one thread.
unsafe impl Sync for NextFilters {}

impl Default for NextFilters {
    fn default() -> Self {
        Self::new()
    }
}

impl NextFilters {
    /// None so far.
    pub const fn new() -> Self {
        NextFilters(UnsafeCell::new((None, None)))
    }

    /// Puts filters in front of those that there are, which are kept here, while a configuration is
    /// read: nginx begins its chains anew for each. The filters take what nginx's own take.
    pub(crate) fn stand_before(&self, head: HeadFilter, part: Option<PartFilter>) {
        // SAFETY: on the thread that reads the configuration, which is the event loop's; nginx's
        // pointers to the chains.
        unsafe {
            *self.0.get() = (sys::ngx_http_top_header_filter, sys::ngx_http_top_body_filter);
            sys::ngx_http_top_header_filter = Some(head);
            if part.is_some() {
                sys::ngx_http_top_body_filter = part;
            }
        }
    }

    /// Goes on with the head of a response, or with a part of its body; `Some(None)` asks for what
    /// is on its way.
    pub(crate) fn go_on(&self, request: &Request, part: Option<Option<&Link>>) -> Code {
        let request = request.as_ptr();
        // SAFETY: written by `stand_before`, before any request, and nobody writes it meanwhile;
        // nginx's own filters are there before any module's. They are called for a live request,
        // and a chain that stays until they return.
        let answer = unsafe {
            match (part, *self.0.get()) {
                (None, (Some(head), _)) => head(request),
                (Some(part), (_, Some(next))) => {
                    next(request, part.map_or(null_mut(), Link::as_ptr))
                }
                _ => Code::ERROR.0,
            }
        };
        Code(answer)
    }
}
