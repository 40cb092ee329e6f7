//! Changes of what a client's head says, before others see it.
//!
//! nginx keeps headers in a list of arrays, and beside it, for most names of `ngx_http_headers_in`, a pointer to the
//! first of each name, which links to the next ([`HeaderField`] says which). Whoever changes the one changes the other: a
//! header that goes leaves its chain, and those behind it in its array move up, with the pointers that lead to them. The
//! order of the others stays. Links of headers with other names are never read.
//!
//! The headers of a main request are changed so. A subrequest has those that it is given when it begins.

use super::Request;
use crate::basic::text::bytes;
use crate::basic::text::hash_key;
use crate::request::header::{Header, Sole};
use crate::sys::{
    HeaderField, ngx_http_header_t, ngx_http_headers_in, ngx_list_part_t, ngx_str_t,
    ngx_table_elt_t,
};
use std::ptr::null_mut;
use std::sync::OnceLock;

impl Request {
    /// Takes all headers away whose names and values are so; of a subrequest none.
    pub fn remove_headers(&self, is_it: impl Fn(&[u8], &[u8]) -> bool) {
        if !self.is_main() {
            return;
        }
        let mut from = None;
        while let Some(found) = self.find_header(from, &is_it) {
            // SAFETY: `find_header` found it in this request's list.
            from = Some(unsafe { self.take_header(found) });
        }
    }

    /// Adds a header at the end; `None` when memory is out, and of a subrequest.
    pub fn push_header(&self, name: &[u8], value: &[u8]) -> Option<()> {
        if !self.is_main() {
            return None;
        }
        let mut short = [0; 64];
        let long;
        let lower = match short.get_mut(..name.len()) {
            Some(short) => {
                short.copy_from_slice(name);
                short.make_ascii_lowercase();
                &*short
            }
            None => {
                long = name.to_ascii_lowercase();
                &long
            }
        };
        // nginx reads some values up to a NUL, as there is one behind each in its own buffers.
        let copy = self.pool().concat(&[name, lower, value, b"\0"])?;
        let (key, rest) = copy.split_at_checked(name.len())?;
        let (lower, rest) = rest.split_at_checked(name.len())?;
        let lowcase_key = lower.as_ptr().cast_mut();
        let (hash, key) = (hash_key(lower), ngx_str_t::of(key));
        let value = ngx_str_t { len: value.len(), data: rest.as_ptr().cast_mut() };
        let new = ngx_table_elt_t { hash, key, value, lowcase_key, next: null_mut() };
        let header = self.headers().push(new)?.as_ptr();
        if let Some(field) = field_of(name) {
            let mut link = self.field(field);
            // SAFETY: the pointer of a live request, or the link of one of its headers.
            unsafe {
                while !(*link).is_null() {
                    link = &raw mut (**link).next;
                }
                *link = header;
            }
        }
        Some(())
    }

    /// Puts another value in place of one of its headers'; `None` when memory is out, for another's, and of a subrequest.
    pub fn set_header_value(&self, header: &Header, value: &[u8]) -> Option<()> {
        self.headers().filter(|_| self.is_main()).find(|own| std::ptr::eq(*own, header))?;
        // nginx reads some values up to a NUL, as there is one behind each in its own buffers.
        let copy = self.pool().concat(&[value, b"\0"])?;
        let value = ngx_str_t { len: value.len(), data: copy.as_ptr().cast_mut() };
        header.put_value(value);
        Some(())
    }

    /// nginx knows the name and password in `Authorization` of a main request, and endpoints get no such header.
    pub fn hide_authorization(&self) {
        let header = self
            .authorization_header()
            .filter(|_| self.is_main())
            .map(|header| header.peek(|raw| *raw));
        self.remove_headers(|name, _| name.eq_ignore_ascii_case(b"authorization"));
        let Some(header) = header else { return };
        let copy = self.pool().alloc(ngx_table_elt_t { next: null_mut(), ..header });
        if let Some(copy) = copy {
            // The copy lies in its pool, outside of the list.
            self.poke(|raw| raw.headers_in.authorization = copy);
        }
    }

    /// The header of that name, if the client sent it at most once; `None`: it sent several.
    #[inline]
    pub fn sole_header(&self, name: Sole) -> Option<Option<&Header>> {
        let first = match name {
            Sole::Authorization => self.authorization_header(),
            Sole::ForwardedFor => self.forwarded_for_header(),
            Sole::Referer => self.referer_header(),
            Sole::Upgrade => self.upgrade_header(),
            Sole::UserAgent => self.user_agent_header(),
        };
        // nginx writes the link of a header that it keeps a pointer to, and of no other: it is looked at here, and not lent.
        let is_sole = first.is_none_or(|first| first.peek(|raw| raw.next.is_null()));
        is_sole.then_some(first)
    }

    /// The first header that is it, from a place on, or of all.
    fn find_header(
        &self,
        from: Option<Place>,
        is_it: impl Fn(&[u8], &[u8]) -> bool,
    ) -> Option<Place> {
        // SAFETY: the list of a live request: its parts, null after the last, have `nelts` elements each. A place is one of it:
        // nobody has changed the list since `take_header` has answered it.
        unsafe {
            let first = &raw mut (*self.as_ptr()).headers_in.headers.part;
            let first = Place { previous: null_mut(), part: first, at: 0 };
            let Place { mut previous, mut part, mut at } = from.unwrap_or(first);
            while !part.is_null() {
                let elements = (*part).elts.cast::<ngx_table_elt_t>();
                for at in at..(*part).nelts {
                    let header = Header::from_ptr(elements.add(at));
                    // What was asked may have taken headers away.
                    if is_it(header.name(), header.value()) && at < (*part).nelts {
                        return Some(Place { previous, part, at });
                    }
                }
                (previous, part, at) = (part, (*part).next, 0);
            }
        }
        None
    }

    /// Takes a header away; answers the place of the one behind it.
    ///
    /// # Safety
    /// The place is of this request's header list, and has a header.
    unsafe fn take_header(&self, place: Place) -> Place {
        let Place { previous, part, at } = place;
        // SAFETY: the caller promises it; links lead to headers of the list, or to a copy in the pool.
        unsafe {
            let elements = (*part).elts.cast::<ngx_table_elt_t>();
            let (victim, end) = (elements.add(at), elements.add((*part).nelts));
            for field in HeaderField::all() {
                let mut link = self.field(field);
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
            std::ptr::copy(victim.add(1), victim, (*part).nelts - at);
            // nginx takes it that every part but the first has something.
            if (*part).nelts == 0 && !previous.is_null() {
                let list = &raw mut (*self.as_ptr()).headers_in.headers;
                (*previous).next = (*part).next;
                if (*list).last == part {
                    (*list).last = previous;
                }
                return Place { previous, part: (*part).next, at: 0 };
            }
        }
        place
    }

    /// Where nginx keeps the first header of a name that it knows.
    pub(super) fn field(&self, field: HeaderField) -> *mut *mut ngx_table_elt_t {
        // SAFETY: the request is alive; only an address is taken.
        field.of(unsafe { &raw mut (*self.as_ptr()).headers_in })
    }
}

/// A place in a request's list of headers.
#[derive(Clone, Copy)]
struct Place {
    /// The part before; null for the first one.
    previous: *mut ngx_list_part_t,
    /// Null behind the last one.
    part: *mut ngx_list_part_t,
    at: usize,
}

/// Where nginx keeps the first header of a name; `None`: it keeps no pointer to headers of this name.
fn field_of(name: &[u8]) -> Option<HeaderField> {
    // For each length the first letters of the names that nginx knows: most others are told by these.
    static LETTERS: OnceLock<[u32; 32]> = OnceLock::new();
    let place = |name: &[u8]| name.len().min(31);
    let letter = |name: &[u8]| name.first().map_or(0, |first| 1 << (first & 31));
    let letters = LETTERS.get_or_init(|| {
        let mut letters = [0; 32];
        known().for_each(|(name, _)| letters[place(name)] |= letter(name));
        letters
    });
    if letters[place(name)] & letter(name) == 0 {
        return None;
    }
    let (_, offset) = known().find(|(known, _)| known.eq_ignore_ascii_case(name))?;
    HeaderField::at(offset)
}

/// The names that nginx knows, with the offsets of its table.
fn known() -> impl Iterator<Item = (&'static [u8], usize)> {
    let mut at = (&raw const ngx_http_headers_in).cast::<ngx_http_header_t>();
    std::iter::from_fn(move || {
        // SAFETY: nginx's table, which ends with an entry without a name; names are literals of nginx's own.
        let (name, offset) = unsafe { (bytes((*at).name), (*at).offset) };
        at = at.wrapping_add(usize::from(!name.is_empty()));
        (!name.is_empty()).then_some((name, offset))
    })
}
