//! Bodies of answers that nobody needs, those of subrequests. Short ones are read and dropped, so that the connection can be
//! used again.
//!
//! nginx ends the exchange of a subrequest whose body is not wanted (`header_only`) with the head of its answer, and then
//! closes the connection, since the body would be taken for the next answer. Here nginx reads the body after all,
//! unbuffered, through the filter of its protocol, behind which ours drops what comes out.
//!
//! Bounds:  [`MAX_BYTES`] and [`MAX_MSEC`]. What is longer or slower ends as before: the answer counts, the connection is
//!          closed.
//! Source:  ngx_http_upstream_send_response, ngx_http_upstream_process_non_buffered_request.

use crate::basic::callback::{given, given_and};
use crate::basic::code::Code;
use crate::basic::guard::contain;
use crate::request::Request;
use crate::sys::{global, ngx_int_t, ngx_msec_t};
use crate::upstream::Upstream;
use std::cell::Cell;
use std::ffi::c_void;
use std::ptr::null_mut;

/// Longest body.
const MAX_BYTES: usize = 64 * 1024;
/// Longest wait for it: short bodies come with their head, or right behind it.
const MAX_MSEC: ngx_msec_t = 100;

type Init = unsafe extern "C" fn(*mut c_void) -> ngx_int_t;
type Filter = unsafe extern "C" fn(*mut c_void, isize) -> ngx_int_t;

/// nginx's callbacks for the body of a protocol, before which ours stand.
pub(super) struct Stock {
    init: Init,
    filter: Cell<Option<Filter>>,
    context: *mut c_void,
}

impl Stock {
    /// Those of an answer; `None`: it has none.
    pub(super) fn of(upstream: &Upstream) -> Option<Self> {
        let (init, filter, context) =
            upstream.peek(|raw| (raw.input_filter_init, raw.input_filter, raw.input_filter_ctx));
        Some(Stock { init: init?, filter: Cell::new(filter), context })
    }

    /// What nginx does before the body.
    pub(super) fn begin(&self) -> Code {
        // SAFETY: nginx's own callback, with what it expects.
        Code(unsafe { (self.init)(self.context) })
    }

    /// What it does with a part of the body.
    pub(super) fn filter(&self, bytes: isize) -> Code {
        let Some(filter) = self.filter.get() else { return Code::ERROR };
        // SAFETY: nginx's own callback, with what it expects.
        Code(unsafe { filter(self.context, bytes) })
    }
}

/// A body that is being dropped, in the pool of the request.
struct Discard<'r> {
    request: &'r Request,
    upstream: &'r Upstream,
    stock: Stock,
    bytes: Cell<usize>,
    until_msec: ngx_msec_t,
}

impl Request {
    /// Has the body of the answer to a subrequest dropped, if it is short; its header was sent a moment ago, and nginx has
    /// not looked at the body. `only_complete`: only if its length is told and all of it came with the head. For more nginx
    /// would go on to the client's connection, whose timers and turn are the main request's; where these wait for the
    /// subrequest, that does no harm.
    pub fn discard_answer(&self, only_complete: bool) {
        let Some(upstream) = self.upstream() else { return };
        // Without a connection the answer comes from nginx's cache, too.
        let is_from_cache = self.is_from_cache() || !upstream.has_connection();
        // Later the filter of the protocol would get what is ours.
        let has_begun = upstream.is_header_sent();
        if !self.is_header_only() || is_from_cache || has_begun || upstream.is_kept(self) {
            return;
        }
        let length = upstream.content_length_n();
        let is_short = usize::try_from(length).is_ok_and(|bytes| bytes <= MAX_BYTES);
        let read = upstream.buffer().unread_bytes();
        let is_all_here = i64::try_from(read).is_ok_and(|read| read >= length);
        let is_taken = match only_complete {
            true => is_short && is_all_here,
            false => is_short || upstream.is_chunked(),
        };
        // Without a body nginx keeps the connection by itself.
        let is_over = upstream.keeps_alive() || upstream.closes();
        let Some(stock) = Stock::of(upstream).filter(|_| is_taken && !is_over) else { return };
        let until_msec = global!(ngx_current_msec) + MAX_MSEC;
        let bytes = Cell::new(0);
        let discard = Discard { request: self, upstream, stock, bytes, until_msec };
        let Some(discard) = self.pool().alloc(discard) else { return };
        let context = std::ptr::from_mut(discard).cast();
        upstream.poke(|raw| {
            raw.input_filter_init = Some(given(begin_body));
            raw.input_filter_ctx = context;
            raw.set_buffering(0);
        });
        // Until nginx has looked, a few lines on.
        self.set_header_only(false);
    }
}

impl Upstream {
    /// nginx reads the body itself, to keep the answer.
    fn is_kept(&self, request: &Request) -> bool {
        if self.is_stored() || self.is_upgraded() {
            return true;
        }
        let lasts = request.cache_valid_until().is_some_and(|seconds| seconds != 0);
        if self.is_cacheable() && !lasts && self.conf().is_none_or(|conf| !conf.has_cache_times()) {
            // As nginx would find out, after it has looked whether there is a body to read.
            self.keep_out_of_cache();
        }
        self.is_cacheable()
    }
}

/// nginx's callback before the body, with what `discard_answer` has made.
extern "C" fn begin_body(discard: &Discard<'_>) -> ngx_int_t {
    contain("begin_body", Code::ERROR, || {
        // Nothing is sent, also not at the end.
        discard.request.set_header_only(true);
        let answer = discard.stock.begin();
        discard.stock.filter.set(discard.upstream.peek(|raw| raw.input_filter));
        discard.upstream.poke(|raw| raw.input_filter = Some(given_and(drop_part)));
        match answer == Code::OK && discard.upstream.buffer().unread_bytes() == 0 {
            true => discard.wait_shortly(),
            false => answer,
        }
    })
    .0
}

/// nginx's callback for a part of the body, which stands behind the end of its buffer.
extern "C" fn drop_part(discard: &Discard<'_>, bytes: isize) -> ngx_int_t {
    contain("drop_part", Code::ERROR, || {
        let answer = discard.stock.filter(bytes);
        if answer != Code::OK {
            return answer;
        }
        let upstream = discard.upstream;
        while let Some(part) = upstream.out_link() {
            let (next, free) = (part.peek(|raw| raw.next), upstream.peek(|raw| raw.free_bufs));
            part.poke(|raw| raw.next = free);
            upstream.poke(|raw| (raw.out_bufs, raw.free_bufs) = (next, part.as_ptr()));
        }
        if upstream.length_left() == 0 {
            return Code::OK;
        }
        discard.bytes.set(discard.bytes.get().saturating_add(bytes.unsigned_abs()));
        let is_late = global!(ngx_current_msec) >= discard.until_msec;
        if discard.bytes.get() > MAX_BYTES || is_late {
            return Code::ERROR;
        }
        discard.wait_shortly()
    })
    .0
}

impl Discard<'_> {
    /// Has nginx wait for what is still to come, but not as long as for an answer; an error when memory is out.
    fn wait_shortly(&self) -> Code {
        let Some(conf) = self.upstream.conf() else { return Code::ERROR };
        if conf.read_timeout() <= MAX_MSEC {
            return Code::OK;
        }
        let mut copy = conf.peek(|raw| *raw);
        copy.read_timeout = MAX_MSEC;
        let own = self.request.pool().alloc(copy).map_or(null_mut(), std::ptr::from_mut);
        if own.is_null() {
            return Code::ERROR;
        }
        // A copy of numbers and pointers, which all outlive the request.
        self.upstream.poke(|raw| raw.conf = own);
        Code::OK
    }
}
