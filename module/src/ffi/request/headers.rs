//! Changes of what a client's head says, before an endpoint sees it.
//!
//! nginx keeps headers in a list of arrays, and beside it, for most names of `ngx_http_headers_in`, a pointer to the
//! first of each name, which links to the next (`HeaderField` says which). Whoever changes the one changes the other: a header that goes leaves
//! its chain, and those behind it in its array move up, with the pointers that lead to them. The order of the
//! others stays. Links of headers with other names are never read.

use super::Request;
use crate::ffi::memory;
use nginx::sys::HeaderField;
use nginx::sys::{
    ngx_hash_key, ngx_http_header_t, ngx_http_headers_in, ngx_list_part_t, ngx_list_push,
    ngx_str_t, ngx_table_elt_t,
};
use oxigress_core::http::header;
use std::ptr::null_mut;

impl<'r> Request<'r> {
    /// Gives the endpoint this header, in place of all that the client sent alike: `-` and `_` are one, since some
    /// endpoints read them so. An empty value takes the client's away. `false`, and the client's are gone
    /// as well, for what no header may be: one that says how long a message is or where it goes, a value with a line
    /// break; and when memory is out.
    pub fn set_header(&self, name: &[u8], value: &[u8]) -> bool {
        if header::is_reserved(name) {
            return false;
        }
        self.remove_header(name);
        if value.is_empty() {
            return true;
        }
        header::is_value(value) && self.push_header(name, value).is_some()
    }

    /// Takes all headers away that are alike: `-` and `_` are one.
    pub fn remove_header(&self, name: &[u8]) {
        if header::is_reserved(name) {
            return;
        }
        self.remove_headers(|key| header::is_alike(key, name));
    }

    /// Takes all headers away whose names are so.
    pub(super) fn remove_headers(&self, is_it: impl Fn(&[u8]) -> bool) {
        self.remove_headers_with(|name, _| is_it(name));
    }

    /// Takes all headers away whose names and values are so.
    pub(super) fn remove_headers_with(&self, is_it: impl Fn(&[u8], &[u8]) -> bool) {
        // From the beginning again after each: it is rare that there is one, and rarer that there are two.
        while let Some((previous, part, place)) = self.find_header(&is_it) {
            // SAFETY: `find_header` found them in this request's list, and nobody else holds a reference.
            unsafe { self.take_header(previous, part, place) };
        }
    }

    /// The part of the list with the first header that is it, the part before it, and its place.
    fn find_header(
        &self,
        is_it: impl Fn(&[u8], &[u8]) -> bool,
    ) -> Option<(*mut ngx_list_part_t, *mut ngx_list_part_t, usize)> {
        let mut previous = null_mut();
        // SAFETY: the request is alive.
        let mut part = unsafe { &raw mut (*self.raw).headers_in.headers.part };
        while !part.is_null() {
            // SAFETY: a part of the request's header list.
            let (elements, count) =
                unsafe { ((*part).elts.cast::<ngx_table_elt_t>(), (*part).nelts) };
            for place in 0..count {
                // SAFETY: the part has `nelts` elements, with keys in the request's buffers.
                let (key, value) = unsafe {
                    let element = &*elements.add(place);
                    (memory::bytes(element.key), memory::bytes(element.value))
                };
                if is_it(key, value) {
                    return Some((previous, part, place));
                }
            }
            previous = part;
            // SAFETY: as above.
            part = unsafe { (*part).next };
        }
        None
    }

    /// # Safety
    /// `part` is of this request's header list and has an element at `place`, `previous` is the part before it;
    /// there is no reference to a header.
    unsafe fn take_header(
        &self,
        previous: *mut ngx_list_part_t,
        part: *mut ngx_list_part_t,
        place: usize,
    ) {
        // SAFETY: vouched for by the caller.
        unsafe {
            let elements = (*part).elts.cast::<ngx_table_elt_t>();
            let (victim, end) = (elements.add(place), elements.add((*part).nelts));
            for (_, field) in known() {
                let mut link = self.link(field);
                while !(*link).is_null() {
                    let header = *link;
                    if header == victim {
                        *link = (*header).next;
                        continue;
                    }
                    if header > victim && header < end {
                        *link = header.sub(1);
                    }
                    // Where it still stands: it moves below, with its link.
                    link = &raw mut (*header).next;
                }
            }
            (*part).nelts -= 1;
            std::ptr::copy(victim.add(1), victim, (*part).nelts - place);
            // nginx takes it that every part but the first has something.
            if (*part).nelts == 0 && !previous.is_null() {
                let list = &raw mut (*self.raw).headers_in.headers;
                (*previous).next = (*part).next;
                if (*list).last == part {
                    (*list).last = previous;
                }
            }
        }
    }

    fn push_header(&self, name: &[u8], value: &[u8]) -> Option<()> {
        let raw = self.raw;
        let lower = name.to_ascii_lowercase();
        // nginx reads some values up to a NUL, as there is one behind each in its own buffers.
        // SAFETY: the request's pool is alive.
        let copy = unsafe { memory::concat((*raw).pool, &[name, &lower, value, b"\0"]) }?;
        // SAFETY: the copy has these parts one after the other; the list is the request's.
        unsafe {
            let header: *mut ngx_table_elt_t =
                ngx_list_push(&raw mut (*raw).headers_in.headers).cast();
            if header.is_null() {
                return None;
            }
            let lower_at = copy.data.add(name.len());
            header.write(ngx_table_elt_t {
                hash: ngx_hash_key(lower_at, name.len()),
                key: ngx_str_t { len: name.len(), data: copy.data },
                value: ngx_str_t { len: value.len(), data: lower_at.add(name.len()) },
                lowcase_key: lower_at,
                next: null_mut(),
            });
            let is_it = |known: &[u8]| known.eq_ignore_ascii_case(name);
            if let Some((_, field)) = known().find(|(known, _)| is_it(known)) {
                let mut link = self.link(field);
                while !(*link).is_null() {
                    link = &raw mut (**link).next;
                }
                *link = header;
            }
        }
        Some(())
    }

    /// Where nginx keeps the first header of a name that it knows.
    fn link(&self, field: HeaderField) -> *mut *mut ngx_table_elt_t {
        // SAFETY: the request is alive; only an address is taken.
        let headers = unsafe { &raw mut (*self.raw).headers_in };
        field.of(headers)
    }
}

/// The names of which nginx keeps pointers, and where.
fn known() -> impl Iterator<Item = (&'static [u8], HeaderField)> {
    let mut at = (&raw const ngx_http_headers_in).cast::<ngx_http_header_t>();
    let names = std::iter::from_fn(move || {
        // SAFETY: nginx's table, which ends with an entry without a name.
        let entry = unsafe { at.read() };
        if entry.name.len == 0 {
            return None;
        }
        // SAFETY: one further, at most to that entry.
        at = unsafe { at.add(1) };
        // SAFETY: a literal of nginx's own.
        Some((unsafe { memory::bytes(entry.name) }, entry.offset))
    });
    names.filter_map(|(name, offset)| Some((name, HeaderField::at(offset)?)))
}
