//! Changes of the head of a response, before it is sent.
//!
//! nginx keeps headers in a list, a hash of 0 takes one out, and beside it what it looks at itself: pointers to some,
//! and numbers from which it writes others.

use super::Request;
use crate::ffi::memory;
use nginx::sys::{
    ngx_http_headers_out_t, ngx_list_part_t, ngx_list_push, ngx_str_t, ngx_table_elt_t,
};
use oxigress_core::http::header;
use std::ptr::null_mut;

type Field = fn(&mut ngx_http_headers_out_t) -> &mut *mut ngx_table_elt_t;

/// The headers to which nginx keeps a pointer, and whether it keeps one to a header of ours: not to a `Location`, from
/// which nginx would make another, nor to what only an endpoint says about its body.
const FIELDS: [(&str, bool, Field); 13] = [
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

impl Request<'_> {
    /// The response has this header and no other of the name. `false` for a header that is nginx's own, a value with
    /// a line break, and when memory is out.
    pub fn set_response_header(&self, name: &[u8], value: &[u8]) -> bool {
        if header::is_reserved(name) || !header::is_value(value) {
            return false;
        }
        if name.eq_ignore_ascii_case(b"content-type") {
            return self.set_content_type(value);
        }
        self.remove_response_header(name);
        let header = self.push_response_header(name, value);
        if header.is_null() {
            return false;
        }
        // SAFETY: alive, its header was not sent, and nobody else holds a reference.
        let out = unsafe { &mut (*self.raw).headers_out };
        if let Some((_, true, field)) = field(name) {
            *field(out) = header;
        }
        true
    }

    /// The response has this header, whatever others of the name. `false` as for
    /// [`Request::set_response_header`], but for reserved names: the caller knows what it does.
    pub fn add_response_header(&self, name: &[u8], value: &[u8]) -> bool {
        header::is_value(value) && !self.push_response_header(name, value).is_null()
    }

    /// The response has no header of this name.
    pub fn remove_response_header(&self, name: &[u8]) {
        self.each_response_header(|header, key, _| {
            if key.eq_ignore_ascii_case(name) {
                header.hash = 0;
            }
        });
        // SAFETY: as above.
        let out = unsafe { &mut (*self.raw).headers_out };
        if let Some((known, _, field)) = field(name) {
            *field(out) = null_mut();
            if *known == "last-modified" {
                out.last_modified_time = -1;
            }
        }
    }

    /// One of the response's headers of this name says so.
    pub fn has_response_header(&self, name: &[u8], mut says: impl FnMut(&[u8]) -> bool) -> bool {
        let mut found = false;
        self.each_response_header(|header, key, value| {
            found |= header.hash != 0 && key.eq_ignore_ascii_case(name) && says(value);
        });
        found
    }

    fn each_response_header(&self, mut each: impl FnMut(&mut ngx_table_elt_t, &[u8], &[u8])) {
        // SAFETY: alive.
        let mut part: *mut ngx_list_part_t =
            unsafe { &raw mut (*self.raw).headers_out.headers.part };
        // SAFETY: a part of the response's header list; null after the last.
        while let Some(elements) = unsafe { part.as_ref() } {
            for place in 0..elements.nelts {
                // SAFETY: the part has `nelts` elements, and nobody else holds a reference to one.
                let header = unsafe { &mut *elements.elts.cast::<ngx_table_elt_t>().add(place) };
                let (key, value) = (self.text(header.key), self.text(header.value));
                each(header, key, value);
            }
            part = elements.next;
        }
    }

    /// nginx writes it from fields of its own, and adds a charset only to what it chose itself.
    fn set_content_type(&self, value: &[u8]) -> bool {
        // SAFETY: the request's pool is alive.
        let Some(value) = (unsafe { memory::concat(self.raw().pool, &[value]) }) else {
            return false;
        };
        // SAFETY: alive, and its header was not sent.
        let out = unsafe { &mut (*self.raw).headers_out };
        out.content_type = value;
        // What comes before the parameters, by which filters choose.
        let kind = self.text(value).split(|byte| *byte == b';').next().unwrap_or_default();
        out.content_type_len = kind.trim_ascii_end().len();
        out.content_type_lowcase = null_mut();
        out.content_type_hash = 0;
        out.charset.len = 0;
        true
    }

    /// Null when memory is out.
    fn push_response_header(&self, name: &[u8], value: &[u8]) -> *mut ngx_table_elt_t {
        // SAFETY: the request's pool is alive.
        let Some(copy) = (unsafe { memory::concat(self.raw().pool, &[name, value, b"\0"]) }) else {
            return null_mut();
        };
        // SAFETY: the list was initialised with the request.
        let header: *mut ngx_table_elt_t =
            unsafe { ngx_list_push(&raw mut (*self.raw).headers_out.headers) }.cast();
        if header.is_null() {
            return header;
        }
        // SAFETY: a new element; the copy has these parts one after the other.
        unsafe {
            header.write(ngx_table_elt_t {
                hash: 1,
                key: ngx_str_t { len: name.len(), data: copy.data },
                value: ngx_str_t { len: value.len(), data: copy.data.add(name.len()) },
                // nginx makes it where it needs it.
                lowcase_key: null_mut(),
                next: null_mut(),
            });
        }
        header
    }
}

fn field(name: &[u8]) -> Option<&'static (&'static str, bool, Field)> {
    FIELDS.iter().find(|(known, ..)| name.eq_ignore_ascii_case(known.as_bytes()))
}
