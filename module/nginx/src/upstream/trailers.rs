//! Trailers of gRPC answers, which nginx keeps until the end of the request, however many come and however long they are.
//!
//! Our filter stands before that of nginx's gRPC module, and looks after each read what it has kept.
//!
//! Source:  ngx_http_grpc_filter.

use super::discard::Stock;
use crate::basic::callback::{given, given_and};
use crate::basic::code::Code;
use crate::basic::guard::contain;
use crate::request::Request;
use crate::sys::ngx_int_t;
use crate::upstream::Upstream;

/// How much nginx may keep of trailers.
#[derive(Clone, Copy, Debug)]
pub struct TrailerBounds {
    /// Most of them.
    pub lines: usize,
    /// Most bytes of all names and values.
    pub bytes: usize,
    /// Says that an answer has more, which then ends.
    pub exceeded: fn(&Request),
}

/// What stands before nginx's filter, in the pool of the request.
struct Bounded<'r> {
    request: &'r Request,
    upstream: &'r Upstream,
    bounds: TrailerBounds,
    stock: Stock,
}

impl Request {
    /// Bounds the trailers of its answer. Nothing was sent yet. `None` when memory is out, or nginx has no filter for the body.
    pub fn bound_trailers(&self, bounds: TrailerBounds) -> Option<()> {
        let upstream = self.upstream()?;
        let stock = Stock::of(upstream)?;
        let bounded = Bounded { request: self, upstream, bounds, stock };
        let context = std::ptr::from_mut(self.pool().alloc(bounded)?).cast();
        upstream.poke(|raw| {
            raw.input_filter_init = Some(given(begin));
            raw.input_filter = Some(given_and(filter_part));
            raw.input_filter_ctx = context;
        });
        Some(())
    }
}

impl Bounded<'_> {
    fn is_exceeded(&self) -> bool {
        let (mut lines, mut bytes) = (0, 0_usize);
        for trailer in self.upstream.trailers() {
            lines += 1;
            bytes =
                bytes.saturating_add(trailer.name().len()).saturating_add(trailer.value().len());
            if lines > self.bounds.lines || bytes > self.bounds.bytes {
                return true;
            }
        }
        false
    }
}

/// nginx's callback before the body.
extern "C" fn begin(bounded: &Bounded<'_>) -> ngx_int_t {
    contain("begin", Code::ERROR, || bounded.stock.begin()).0
}

/// nginx's callback for a part of the body.
extern "C" fn filter_part(bounded: &Bounded<'_>, bytes: isize) -> ngx_int_t {
    contain("filter_part", Code::ERROR, || {
        let answer = bounded.stock.filter(bytes);
        if !bounded.is_exceeded() {
            return answer;
        }
        (bounded.bounds.exceeded)(bounded.request);
        Code::ERROR
    })
    .0
}
