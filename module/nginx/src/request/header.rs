//! Lists of headers.

use crate::basic::handle::{fields, handle};
use crate::sys::{ngx_list_part_t, ngx_list_t, ngx_table_elt_t};
use std::marker::PhantomData;

handle! {
    /// A header: name and value.
    Header of ngx_table_elt_t
}

fields! { Header {
    /// Its name, as it was sent.
    text name = key;
    /// Its value.
    text value = value;
    /// The next header of the same name, where nginx links them.
    option next: Header = next;
}}

impl Header {
    /// It is not taken out of its list: a response's header with a hash of 0 is not sent.
    #[inline]
    pub fn is_there(&self) -> bool {
        // SAFETY: copies a number out of a live struct.
        unsafe { (*self.as_ptr()).hash != 0 }
    }

    /// Takes it out of the response that it is of.
    #[inline]
    pub fn remove(&self) {
        // SAFETY: writes a number into a live struct that nobody else refers to.
        unsafe { (*self.as_ptr()).hash = 0 };
    }

    /// Another name or value, in nginx's own memory.
    ///
    /// # Safety
    /// The string stays as long as the request of the header.
    pub unsafe fn set_value(&self, value: crate::sys::ngx_str_t) {
        // SAFETY: writes into a live struct; strings that were lent of it before stay where they are.
        unsafe { (*self.as_ptr()).value = value };
    }
}

/// The headers of a list, in their order.
pub struct Headers<'r> {
    part: *const ngx_list_part_t,
    place: usize,
    list: PhantomData<&'r Header>,
}

impl<'r> Headers<'r> {
    /// # Safety
    /// The list has headers, and stays during `'r`.
    #[inline]
    pub unsafe fn of(list: *const ngx_list_t) -> Self {
        // SAFETY: the caller promises a live list; only an address is taken.
        let part = unsafe { &raw const (*list).part };
        Headers { part, place: 0, list: PhantomData }
    }

    /// How many there are from here on, with those that were taken out.
    #[inline]
    pub fn count_all(self) -> usize {
        let (mut part, mut count) = (self.part, 0);
        // SAFETY: a part of a live list; null after the last.
        while let Some(elements) = unsafe { part.as_ref() } {
            count += elements.nelts;
            part = elements.next;
        }
        count - self.place
    }
}

impl<'r> Iterator for Headers<'r> {
    type Item = &'r Header;

    #[inline]
    fn next(&mut self) -> Option<&'r Header> {
        // SAFETY: a part of a live list, read anew each time since headers may have gone meanwhile; null after the last.
        while let Some(part) = unsafe { self.part.as_ref() } {
            if self.place < part.nelts {
                let first: *mut ngx_table_elt_t = part.elts.cast();
                let place = self.place;
                self.place += 1;
                // SAFETY: the part has `nelts` headers, whose memory stays as long as the list.
                return Some(unsafe { Header::from_ptr(first.add(place)) });
            }
            (self.part, self.place) = (part.next, 0);
        }
        None
    }
}
