//! The response: its head, until it is sent, and whole answers.
//!
//! nginx keeps headers in a list, a hash of 0 takes one out, and beside it what it looks at itself: pointers to some,
//! and numbers from which it writes others.

use super::Request;
use crate::basic::code::Code;
use crate::request::header::Header;
use crate::sys::{
    ngx_buf_t, ngx_chain_t, ngx_http_discard_request_body, ngx_http_headers_out_t,
    ngx_http_output_filter, ngx_http_send_header, ngx_http_set_content_type, ngx_str_t,
    ngx_table_elt_t,
};
use std::ptr::null_mut;

type Field = fn(&mut ngx_http_headers_out_t) -> &mut *mut ngx_table_elt_t;
type Known = (&'static str, bool, Field);

/// The headers to which nginx keeps a pointer, and whether it keeps one to a header of a module's: not to a `Location`,
/// from which nginx would make another, nor to what only an endpoint says about its body.
const FIELDS: [Known; 13] = [
    ("accept-ranges", false, |out| &mut out.accept_ranges),
    ("cache-control", true, |out| &mut out.cache_control),
    ("content-encoding", true, |out| &mut out.content_encoding),
    ("content-range", false, |out| &mut out.content_range),
    ("date", true, |out| &mut out.date),
    ("etag", true, |out| &mut out.etag),
    ("expires", true, |out| &mut out.expires),
    ("last-modified", true, |out| &mut out.last_modified),
    ("link", true, |out| &mut out.link),
    ("location", false, |out| &mut out.location),
    ("refresh", false, |out| &mut out.refresh),
    ("server", true, |out| &mut out.server),
    ("www-authenticate", true, |out| &mut out.www_authenticate),
];

fn field(name: &[u8]) -> Option<&'static Known> {
    FIELDS.iter().find(|(known, ..)| is_alike(name, known.as_bytes()))
}

/// Whether two names of headers are one. Most differ in length, which is told without a call.
#[inline]
fn is_alike(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && one.eq_ignore_ascii_case(other)
}

impl Request {
    /// The response has this header and no other of the name; `None` when memory is out.
    pub fn set_response_header(&self, name: &[u8], value: &[u8]) -> Option<()> {
        if is_alike(name, b"content-type") {
            return self.set_content_type(value);
        }
        let known = field(name);
        self.remove_alike(name, known);
        let header = self.push_response_header(name, value)?;
        if let Some((_, true, field)) = known {
            self.with_out(|out| *field(out) = header.as_ptr());
        }
        Some(())
    }

    /// The response has this header, whatever others of the name; `None` when memory is out.
    pub fn push_response_header(&self, name: &[u8], value: &[u8]) -> Option<&Header> {
        let copy = self.pool().concat(&[name, value, b"\0"])?;
        let (key, rest) = copy.split_at_checked(name.len())?;
        let value = ngx_str_t { len: value.len(), data: rest.as_ptr().cast_mut() };
        // nginx makes the lower-case key where it needs it.
        let key = ngx_str_t::of(key);
        self.response_headers().push(ngx_table_elt_t { hash: 1, key, value, ..Default::default() })
    }

    /// The response leads elsewhere, by a header that nginx makes absolute where its configuration says so.
    pub fn set_location(&self, location: &[u8]) -> Option<()> {
        let header = self.push_response_header(b"Location", location)?;
        self.with_out(|out| out.location = header.as_ptr());
        Some(())
    }

    /// The response asks for a password. nginx knows of it, and keeps it where `satisfy any` lets the client in.
    pub fn set_challenge(&self, challenge: &[u8]) -> Option<()> {
        let header = self.push_response_header(b"WWW-Authenticate", challenge)?;
        self.with_out(|out| out.www_authenticate = header.as_ptr());
        Some(())
    }

    /// The response has no header of this name.
    pub fn remove_response_header(&self, name: &[u8]) {
        self.remove_alike(name, field(name));
    }

    fn remove_alike(&self, name: &[u8], known: Option<&Known>) {
        self.response_headers()
            .filter(|header| is_alike(header.name(), name))
            .for_each(Header::remove);
        if let Some(known) = known {
            self.forget(known);
        }
    }

    /// The response has none of the headers whose name `is_one` takes, in one pass over its list: an endpoint says how many
    /// there are.
    pub fn remove_response_headers(&self, is_one: impl Fn(&[u8]) -> bool) {
        let mut known = [false; FIELDS.len()];
        for header in self.response_headers().filter(|header| header.is_there()) {
            if !is_one(header.name()) {
                continue;
            }
            header.remove();
            let is_of = |(name, ..): &Known| is_alike(header.name(), name.as_bytes());
            if let Some(known) = FIELDS.iter().position(is_of).and_then(|at| known.get_mut(at)) {
                *known = true;
            }
        }
        for (field, _) in FIELDS.iter().zip(known).filter(|(_, is_gone)| *is_gone) {
            self.forget(field);
        }
    }

    /// nginx knows nothing of a header that was taken away.
    fn forget(&self, (known, _, field): &Known) {
        self.with_out(|out| {
            *field(out) = null_mut();
            if *known == "last-modified" {
                out.last_modified_time = -1;
            }
        });
    }

    /// nginx writes no `Server` of its own into the response; `None` when memory is out.
    pub fn hide_server(&self) -> Option<()> {
        if self.peek(|raw| raw.headers_out.server.is_null()) {
            // nginx looks whether there is one, and sends those of the list: this one is in no list, and its hash is 0. It is
            // the request's own, since nginx writes into it where another response follows (`post_action`).
            let none = self.pool().alloc(ngx_table_elt_t::default())?;
            let none = std::ptr::from_mut(none);
            self.with_out(|out| out.server = none);
        }
        Some(())
    }

    /// The response has a body of that length, of none that nginx knew before.
    pub fn set_response_length(&self, length: u64) {
        self.length_header().into_iter().for_each(Header::remove);
        self.with_out(|out| {
            out.content_length_n = i64::try_from(length).unwrap_or(i64::MAX);
            out.content_length = null_mut();
        });
    }

    /// Nobody knows how long the body of the response will be.
    pub fn forget_response_length(&self) {
        self.length_header().into_iter().for_each(Header::remove);
        self.with_out(|out| {
            out.content_length_n = -1;
            out.content_length = null_mut();
        });
    }

    /// Another status, of three digits.
    pub fn set_status(&self, status: u16) {
        self.with_out(|out| out.status = Code::three_digits(status));
    }

    /// Another status for the error page, of three digits; 0: none is shown.
    pub fn set_error_status(&self, status: u16) {
        self.poke(|raw| raw.err_status = Code::three_digits(status));
    }

    /// Another status, whatever line an endpoint has sent for it.
    pub fn replace_status(&self, status: u16) {
        self.set_status(status);
        self.with_out(|out| out.status_line.len = 0);
    }

    /// nginx writes it from fields of its own, and adds a charset only to what it chose itself.
    pub fn set_content_type(&self, value: &[u8]) -> Option<()> {
        let copy = self.pool().concat(&[value])?;
        // What comes before the parameters, by which filters choose.
        let kind = copy.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii_end();
        self.with_out(|out| {
            out.content_type = ngx_str_t::of(copy);
            out.content_type_len = kind.len();
            out.content_type_lowcase = null_mut();
            out.content_type_hash = 0;
            out.charset.len = 0;
        });
        Some(())
    }

    /// Sends the header of the response; an error once nginx is about to free the request.
    pub fn send_header(&self) -> Code {
        if self.is_over() {
            return Code::ERROR;
        }
        // SAFETY: a live request, which nginx keeps until what is sent has been.
        Code(unsafe { ngx_http_send_header(self.as_ptr()) })
    }

    /// Sends a whole response whose status and headers are set; answers what a content handler answers.
    pub fn send(&self, body: &[u8]) -> Code {
        self.with_out(|out| out.content_length_n = body.len() as i64);
        let sent = self.send_header();
        if sent == Code::ERROR || sent.0 > Code::OK.0 || self.is_header_only() {
            return sent;
        }
        let Some(copy) = self.pool().concat(&[body]) else { return Code::ERROR };
        let mut buffer = ngx_buf_t::default();
        let bytes = copy.as_ptr_range();
        (buffer.pos, buffer.last) = (bytes.start.cast_mut(), bytes.end.cast_mut());
        // An empty body is sent as a buffer that only ends the response.
        buffer.set_memory(u32::from(!copy.is_empty()));
        // Behind the answer of a subrequest more follows.
        buffer.set_last_buf(self.is_main().into());
        buffer.set_last_in_chain(1);
        let Some(buf) = self.pool().alloc(buffer) else { return Code::ERROR };
        let Some(chain) = self.pool().alloc(ngx_chain_t { buf, next: null_mut() }) else {
            return Code::ERROR;
        };
        // SAFETY: a live request, whose header was sent just now, and a chain in its pool.
        Code(unsafe { ngx_http_output_filter(self.as_ptr(), chain) })
    }

    /// Reads the client's body and drops it, or what is left of it; an error once nginx is about to free the request.
    pub fn discard_body(&self) -> Code {
        self.begin_answer(false)
    }

    /// The same before an answer, which has the location's type (`types`, `default_type`) where that is asked for.
    pub fn begin_answer(&self, has_default_type: bool) -> Code {
        if self.is_over() {
            return Code::ERROR;
        }
        // SAFETY: a live request, whose location is known, and which nginx keeps until the body has been read. The type is written
        // to the headers of its response.
        Code(unsafe {
            match ngx_http_discard_request_body(self.as_ptr()) {
                0 if has_default_type => ngx_http_set_content_type(self.as_ptr()),
                code => code,
            }
        })
    }

    fn with_out<T>(&self, change: impl FnOnce(&mut ngx_http_headers_out_t) -> T) -> T {
        self.poke(|raw| change(&mut raw.headers_out))
    }
}
