//! The client's body.

use super::Request;
use crate::basic::chain::{Buffer, Link};
use crate::basic::code::Code;
use crate::basic::guard::contain;
use crate::basic::handle::{fields, handle};
use crate::basic::text::bytes;
use crate::sys::{
    ngx_http_core_run_phases, ngx_http_finalize_request, ngx_http_request_t, ngx_str_t,
};

/// What runs when the body has been read.
pub trait BodyHandler {
    /// For the error log.
    const NAME: &'static str;
    /// What becomes of the request after a panic.
    const PANICKED: AfterBody = AfterBody::Finalize(Code::INTERNAL_ERROR);
    /// Looks at the request and its body.
    fn run(request: &Request) -> AfterBody;
}

/// How a request goes on when its body has been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterBody {
    /// It ends, as a content handler's answer says.
    Finalize(Code),
    /// It waits for somebody else, who counts as its handler.
    Wait,
    /// It goes on in the phase where it was. The body is kept until it ends.
    RunPhases,
}

impl Request {
    /// The body is to come in one buffer.
    pub fn read_body_in_single_buffer(&self) {
        self.set_request_body_in_single_buf(true);
    }

    /// nginx has read, or has begun to read, the body.
    pub fn has_read_body(&self) -> bool {
        self.body().is_some()
    }

    /// There is a body, all of which was read.
    pub fn has_body(&self) -> bool {
        self.body().and_then(Body::first).is_some()
    }

    /// What was read of the body is gone: nothing of it is sent on.
    pub fn forget_body(&self) {
        self.body().into_iter().for_each(|body| body.poke(|raw| raw.bufs = std::ptr::null_mut()));
    }

    /// The pieces of the body, in their order.
    pub fn body_pieces(&self) -> Pieces<'_> {
        Pieces { chain: self.body().and_then(Body::first) }
    }

    /// Has what came of the body, all or a part, overwritten when the request ends: neither nginx nor an allocator clears
    /// what it gives back. `None` when memory is out.
    pub fn wipe_body_at_end(&self) -> Option<()> {
        self.pool().keep(Wipe(self.as_ptr())).map(|_| ())
    }
}

handle! {
    /// What nginx keeps of a body.
    Body of ngx_http_request_body_t
}

fields! { Body {
    /// What has been read.
    option first: Link = bufs;
    /// What nginx reads into.
    option buffer: Buffer = buf;
}}

/// The pieces of a body.
#[derive(Clone)]
pub struct Pieces<'r> {
    chain: Option<&'r Link>,
}

impl<'r> Iterator for Pieces<'r> {
    /// `None`: this piece is in a file.
    type Item = Option<&'r [u8]>;

    fn next(&mut self) -> Option<Self::Item> {
        let Some((data, mut len, end)) = self.next_buffer()? else { return Some(None) };
        // nginx has a link for each piece that it received, one after the other in one buffer, whose end all of them have.
        let mut ahead = Pieces { chain: self.chain };
        while let Some(Some((next, more, next_end))) = ahead.next_buffer()
            && (more == 0 || (next == data.wrapping_add(len) && next_end == end))
        {
            len += more;
            self.chain = ahead.chain;
        }
        // SAFETY: what the buffers hold, one behind the other in one block, which stays until the request ends.
        Some(Some(unsafe { bytes(ngx_str_t { len, data }) }))
    }
}

impl Pieces<'_> {
    /// Where the next buffer's bytes are, how many, and where its memory ends; `Some(None)`: in a file.
    fn next_buffer(&mut self) -> Option<Option<(*mut u8, usize, *mut u8)>> {
        let link = self.chain?;
        self.chain = link.next();
        let buffer = link.buffer();
        let (start, last, end) = buffer.peek(|raw| (raw.pos, raw.last, raw.end));
        let length = last.addr().saturating_sub(start.addr());
        Some((!buffer.is_in_file()).then_some((start, length, end)))
    }
}

struct Wipe(*mut ngx_http_request_t);

impl Drop for Wipe {
    fn drop(&mut self) {
        // SAFETY: a pool frees nothing before its clean-ups have run, and the request is in it.
        let Some(body) = unsafe { Request::from_ptr(self.0) }.body() else { return };
        if let Some(buffer) = body.buffer() {
            wipe(buffer, buffer.peek(|raw| raw.start));
        }
        // The first may be in the connection's buffer of heads, which is freed after the request.
        let mut chain = body.first();
        while let Some(link) = chain {
            // One in a file has null pointers.
            wipe(link.buffer(), link.buffer().peek(|raw| raw.pos));
            chain = link.next();
        }
    }
}

fn wipe(buffer: &Buffer, start: *mut u8) {
    let length = buffer.peek(|raw| raw.last).addr().saturating_sub(start.addr());
    if !start.is_null() {
        // SAFETY: what was read lies between these two, in memory that goes with the request, and nobody reads it now.
        unsafe { crate::basic::wiping::wipe(start, length) };
    }
}

/// nginx's callback when the body has been read.
pub(super) unsafe extern "C" fn body_handler<H: BodyHandler>(raw: *mut ngx_http_request_t) {
    let after = contain(H::NAME, H::PANICKED, || {
        // SAFETY: nginx gives a live request, on the event loop.
        H::run(unsafe { Request::from_ptr(raw) })
    });
    // SAFETY: alive, and no handle of it is used from here on: nginx may free it.
    unsafe {
        match after {
            AfterBody::Finalize(code) => ngx_http_finalize_request(raw, code.0),
            AfterBody::Wait => {}
            AfterBody::RunPhases => {
                (*raw).set_preserve_body(1);
                (*raw).write_event_handler = Some(ngx_http_core_run_phases);
                ngx_http_core_run_phases(raw);
            }
        }
    }
}
