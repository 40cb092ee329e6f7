//! nginx's strings: a length and a pointer, without a NUL.

use crate::basic::handle::handle;
use crate::sys::{ngx_hash_key, ngx_str_t};

/// The bytes of a string of nginx's; none for a null one.
///
/// # Safety
/// Unless its length is 0, the string points at that many bytes, unchanged for `'a`.
#[inline]
pub unsafe fn bytes<'a>(text: ngx_str_t) -> &'a [u8] {
    if text.len == 0 || text.data.is_null() {
        return &[];
    }
    // SAFETY: the caller promises that so many bytes are there, and stay.
    unsafe { std::slice::from_raw_parts(text.data, text.len) }
}

/// nginx's hash of a name in lower case.
#[inline]
pub(crate) fn hash_key(lower: &[u8]) -> usize {
    // SAFETY: nginx reads so many bytes.
    unsafe { ngx_hash_key(lower.as_ptr().cast_mut(), lower.len()) }
}

handle! {
    /// A string of nginx's that another struct points at.
    Text of ngx_str_t
}

impl Text {
    /// Its bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: a string of the configuration or of the request's pool, which stays as long as what points at it.
        unsafe { bytes(self.peek(|raw| *raw)) }
    }
}
