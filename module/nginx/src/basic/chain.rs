//! Buffers, and chains of them.

use crate::basic::handle::{fields, handle};
use crate::basic::pool::Pool;
use crate::basic::text::bytes;
use crate::sys::{ngx_buf_t, ngx_chain_t, ngx_str_t};
use std::cell::UnsafeCell;
use std::ptr::{from_ref, null_mut};

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

impl Default for Link {
    /// One without a buffer, that leads nowhere.
    fn default() -> Self {
        Link(UnsafeCell::new(ngx_chain_t::default()))
    }
}

impl Link {
    /// A new link in a pool; `None` when memory is out.
    pub(crate) fn new_in(pool: &Pool) -> Option<&Link> {
        pool.alloc(Link::default()).map(|link| &*link)
    }

    /// It is of this buffer, which stays as long.
    pub(crate) fn set_buffer(&self, buffer: &Buffer) {
        self.poke(|raw| raw.buf = buffer.as_ptr());
    }

    /// Another follows, or none. It stays as long.
    pub(crate) fn lead_to_link(&self, next: Option<&Link>) {
        let next = next.map_or(null_mut(), Link::as_ptr);
        self.poke(|raw| raw.next = next);
    }

    /// Puts a link between this one and what follows. It stays as long.
    pub(crate) fn hook(&self, link: &Link) {
        link.lead_to_link(self.next());
        self.lead_to_link(Some(link));
    }

    /// Takes the next link out.
    pub(crate) fn unhook(&self) -> Option<&Link> {
        let link = self.next()?;
        self.lead_to_link(link.next());
        link.lead_to_link(None);
        Some(link)
    }
}

handle! {
    /// A buffer: bytes in memory, or a part of a file.
    Buffer of ngx_buf_t
}

fields! { Buffer {
    /// It is a part of a file.
    flag is_in_file = in_file;
    /// Nothing follows.
    flag is_last = last_buf;
    /// What was sent up to here is to reach the client.
    flag is_flush = flush;
}}

/// What a buffer says of its place in a response.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Shown {
    /// What was sent up to here is to reach the client.
    pub is_flush: bool,
    /// Nothing follows.
    pub is_last: bool,
}

impl Default for Buffer {
    /// One without memory.
    fn default() -> Self {
        Buffer(UnsafeCell::new(ngx_buf_t::default()))
    }
}

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

    /// So many of the bytes that there are to read were read.
    pub(crate) fn advance(&self, count: usize) {
        let count = count.min(self.unread_bytes());
        self.poke(|raw| raw.pos = raw.pos.wrapping_add(count));
    }

    /// The first bytes of this memory are to be read. It stays where it is, and nobody writes to it, until they were.
    pub(crate) fn show(&self, memory: &mut Vec<u8>, count: usize, shown: Shown) {
        let count = count.min(memory.len());
        let (start, length) = (memory.as_mut_ptr(), memory.len());
        self.poke(|raw| {
            *raw = ngx_buf_t {
                start,
                pos: start,
                last: start.wrapping_add(count),
                end: start.wrapping_add(length),
                // Whose it is, for filters that ask.
                tag: from_ref(&OURS).cast_mut().cast(),
                ..ngx_buf_t::default()
            };
            // An empty one only says something.
            raw.set_temporary((count > 0).into());
            // It is needed again: no filter waits for more before it sends it.
            raw.set_recycled((count > 0).into());
        });
        self.mark(shown);
    }

    /// It says more of its place.
    pub(crate) fn mark(&self, shown: Shown) {
        self.poke(|raw| {
            raw.set_flush((shown.is_flush || raw.flush() != 0).into());
            raw.set_last_buf((shown.is_last || raw.last_buf() != 0).into());
            raw.set_last_in_chain(raw.last_buf());
        });
    }

    /// Other bytes in place of all that there is; they stay as long as the request whose buffer this is.
    pub(crate) fn lead_to(&self, copy: &[u8]) {
        let range = copy.as_ptr_range();
        let (start, end) = (range.start.cast_mut(), range.end.cast_mut());
        self.poke(|raw| (raw.start, raw.pos, raw.last, raw.end) = (start, start, end, end));
    }
}

/// Its address is the tag of buffers that this crate makes.
static OURS: u8 = 0;

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
