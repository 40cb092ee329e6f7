//! Buffers, and chains of them.

use crate::basic::handle::{fields, handle};
use crate::basic::text::bytes;
use crate::sys::ngx_str_t;

handle! {
    /// A link of a chain: a buffer, and what follows.
    Link of ngx_chain_t
}

fields! { Link {
    /// The next link.
    option next: Link = next;
    /// Its buffer.
    link buffer: Buffer = buf;
}}

handle! {
    /// A buffer: bytes in memory, or a part of a file.
    Buffer of ngx_buf_t
}

fields! { Buffer {
    /// It is a part of a file.
    flag is_in_file = in_file;
}}

impl Buffer {
    /// How many bytes there are to read.
    #[inline]
    pub fn unread_bytes(&self) -> usize {
        self.peek(|raw| raw.last.addr().saturating_sub(raw.pos.addr()))
    }

    /// How many bytes it has room for.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.peek(|raw| raw.end.addr().saturating_sub(raw.start.addr()))
    }

    /// Looks at the bytes that there are to read. Until `look` has returned the buffer seems to have none, so that nobody
    /// changes them.
    #[inline]
    pub fn look<T>(&self, look: impl FnOnce(&[u8]) -> T) -> T {
        let (len, (pos, last)) = (self.unread_bytes(), self.peek(|raw| (raw.pos, raw.last)));
        let taken = Taken { buffer: self, pos, last };
        self.poke(|raw| raw.last = pos);
        // SAFETY: what was written of a buffer and not read lies between the two. nginx writes nothing meanwhile, and this
        // crate only to what there seems to be.
        let seen = look(unsafe { bytes(ngx_str_t { len, data: pos }) });
        drop(taken);
        seen
    }

    /// Takes bytes away from the front of what there is to read: the rest takes their place.
    pub fn take_front(&self, count: usize) {
        let (length, start) = (self.unread_bytes(), self.peek(|raw| raw.pos));
        let left = length.saturating_sub(count);
        // SAFETY: both lie within what was written of the buffer, which is nginx's to write.
        unsafe { std::ptr::copy(start.wrapping_add(length - left), start, left) };
        self.poke(|raw| raw.last = start.wrapping_add(left));
    }

    /// Other bytes in place of all that there is; they stay as long as the request whose buffer this is.
    pub(crate) fn lead_to(&self, copy: &[u8]) {
        let range = copy.as_ptr_range();
        let (start, end) = (range.start.cast_mut(), range.end.cast_mut());
        self.poke(|raw| (raw.start, raw.pos, raw.last, raw.end) = (start, start, end, end));
    }
}

/// The bytes of a buffer while somebody looks at them; they are there again when this is dropped, after a panic too, unless
/// the buffer leads elsewhere by then.
struct Taken<'b> {
    buffer: &'b Buffer,
    pos: *mut u8,
    last: *mut u8,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let (pos, last) = (self.pos, self.last);
        self.buffer.poke(|raw| {
            if (raw.pos, raw.last) == (pos, pos) {
                raw.last = last;
            }
        });
    }
}
