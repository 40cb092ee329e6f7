//! The heads of answers, before nginx reads them.
//!
//! nginx's modules read the head of an answer by a callback that changes as they go on. A [`HeadReader`] stands before it
//! until the answer itself begins, for each attempt anew.

use crate::basic::callback::one;
use crate::basic::chain::Buffer;
use crate::basic::code::Code;
use crate::basic::guard::contain;
use crate::request::Request;
use crate::sys::{NGX_HTTP_UPSTREAM_INVALID_HEADER, ngx_http_request_t, ngx_int_t};
use std::cell::Cell;
use std::ptr::null_mut;

type Callback = unsafe extern "C" fn(*mut ngx_http_request_t) -> ngx_int_t;

/// nginx's callbacks that a reader stands before, and for which request. A module keeps it with the request.
#[derive(Clone, Copy)]
pub struct HeadCallbacks {
    request: *mut ngx_http_request_t,
    process: Option<Callback>,
    reinit: Option<Callback>,
}

impl Default for HeadCallbacks {
    fn default() -> Self {
        HeadCallbacks { request: null_mut(), process: None, reinit: None }
    }
}

/// What a reader makes of what has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    /// The answer begins: nginx reads it.
    Begins,
    /// More has to come.
    Unfinished,
    /// It is none: another endpoint may have a better one.
    Invalid,
}

/// Looks at the heads of answers.
pub trait HeadReader: 'static {
    /// For the error log.
    const NAME: &'static str;
    /// Where the module keeps what the reader stands before, with the request; `None` when memory is out.
    fn place(request: &Request) -> Option<&Cell<HeadCallbacks>>;
    /// More of an answer has come: the buffer has all that nginx has not read.
    fn come(request: &Request, buffer: &Buffer) -> Head;
    /// Another attempt is made.
    fn again(request: &Request);
    /// nginx has read a head with this status; only of what [`Request::check_heads`] is about.
    fn has_read(request: &Request, status: usize) -> Head {
        let _ = (request, status);
        Head::Begins
    }
}

impl Request {
    /// Has `H` look at what comes of an answer, until the answer begins. Nothing was sent yet. `None` when memory is out, or
    /// there is no upstream.
    pub fn read_heads<H: HeadReader>(&self) -> Option<()> {
        self.stand_before::<H>(one(process_header::<H>))?;
        self.upstream()?.poke(|raw| raw.reinit_request = Some(one(reinit_request::<H>)));
        Some(())
    }

    /// Has `H` look at all that comes of a head, at once before nginx reads it, and at the status of each head that nginx has
    /// read. [`Head::Unfinished`] has nginx wait for more, and drops nothing. Nothing was sent yet. `None` when memory is
    /// out, or there is no upstream.
    pub fn check_heads<H: HeadReader>(&self) -> Option<()> {
        self.stand_before::<H>(one(check_header::<H>))?;
        self.upstream()?.poke(|raw| raw.reinit_request = Some(one(reinit_checked::<H>)));
        Some(())
    }

    fn stand_before<H: HeadReader>(&self, ours: Callback) -> Option<()> {
        let upstream = self.upstream()?;
        let (process, reinit) = upstream.peek(|raw| (raw.process_header, raw.reinit_request));
        if process.is_some_and(|it| std::ptr::fn_addr_eq(it, ours)) {
            // Before itself it would call itself.
            return Some(());
        }
        H::place(self)?.set(HeadCallbacks { request: self.as_ptr(), process, reinit });
        upstream.poke(|raw| raw.process_header = Some(ours));
        Some(())
    }

    /// What the reader of this request stands before. What a module has kept for another request is none.
    fn reader<H: HeadReader>(&self) -> Option<(&Cell<HeadCallbacks>, HeadCallbacks)> {
        let place = H::place(self)?;
        Some((place, place.get())).filter(|(_, reader)| reader.request == self.as_ptr())
    }

    fn call(&self, callback: Option<Callback>) -> Code {
        // SAFETY: nginx's own callback for this request, as a `HeadCallbacks` has it, in whose place ours was called.
        callback.map_or(Code::ERROR, |callback| Code(unsafe { callback(self.as_ptr()) }))
    }
}

const INVALID: Code = Code(NGX_HTTP_UPSTREAM_INVALID_HEADER as ngx_int_t);

fn answered(head: Head, otherwise: impl FnOnce() -> Code) -> Code {
    match head {
        Head::Begins => otherwise(),
        Head::Unfinished => Code::AGAIN,
        Head::Invalid => INVALID,
    }
}

/// nginx's callback in which a head has been read, which nginx leaves in place for all attempts.
extern "C" fn check_header<H: HeadReader>(request: &Request) -> ngx_int_t {
    contain(H::NAME, Code::ERROR, || {
        let Some((_, reader)) = request.reader::<H>() else { return Code::ERROR };
        let Some(upstream) = request.upstream() else { return Code::ERROR };
        match H::come(request, upstream.buffer()) {
            Head::Begins => {}
            head => return answered(head, || Code::ERROR),
        }
        let answer = request.call(reader.process);
        let status = request.upstream().map_or(0, |upstream| upstream.status());
        match answer {
            Code::OK => answered(H::has_read(request, status), || answer),
            _ => answer,
        }
    })
    .0
}

/// nginx's callback before an attempt after the first, where [`check_header`] stays in place.
extern "C" fn reinit_checked<H: HeadReader>(request: &Request) -> ngx_int_t {
    contain(H::NAME, Code::ERROR, || {
        let Some((_, reader)) = request.reader::<H>() else { return Code::ERROR };
        H::again(request);
        request.call(reader.reinit)
    })
    .0
}

/// nginx's callback before an attempt after the first.
extern "C" fn reinit_request<H: HeadReader>(request: &Request) -> ngx_int_t {
    contain(H::NAME, Code::ERROR, || {
        let Some((place, reader)) = request.reader::<H>() else { return Code::ERROR };
        let answer = request.call(reader.reinit);
        let Some(upstream) = request.upstream() else { return Code::ERROR };
        // nginx's HTTP/2 callback stays in place for all attempts: then ours may still stand there.
        let ours: Callback = one(process_header::<H>);
        let is_ours = |it: &Callback| std::ptr::fn_addr_eq(*it, ours);
        let process = upstream.peek(|raw| raw.process_header).filter(|it| !is_ours(it));
        place.set(HeadCallbacks { process: process.or(reader.process), ..reader });
        H::again(request);
        upstream.poke(|raw| raw.process_header = Some(ours));
        answer
    })
    .0
}

/// nginx's callback when more of an answer has come.
extern "C" fn process_header<H: HeadReader>(request: &Request) -> ngx_int_t {
    let head = contain(H::NAME, None, || {
        let (_, reader) = request.reader::<H>()?;
        let upstream = request.upstream()?;
        let head = H::come(request, upstream.buffer());
        if head == Head::Begins {
            upstream.poke(|raw| raw.process_header = reader.process);
        }
        Some((head, reader.process))
    });
    let Some((head, process)) = head else { return Code::ERROR.0 };
    // nginx's own, for the response from its first byte on.
    answered(head, || request.call(process)).0
}
