//! Where `ngx_http_headers_in_t` keeps a pointer to a header.

use super::{ngx_http_headers_in_t, ngx_table_elt_t};

/// A place in `ngx_http_headers_in_t` that is a pointer to a header.
///
/// `ngx_http_headers_in` has an offset for each name, and not each is one of a header: `Proxy-Connection`, which nginx
/// 1.31 refuses without keeping it, has 0, where the list of all headers is. So only what the struct itself declares as
/// such a pointer becomes a value of this type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderField(pub(super) usize);

impl HeaderField {
    /// The field at an offset of nginx's table, or nothing where the struct has no pointer to a header.
    pub fn at(offset: usize) -> Option<Self> {
        let is_pointer = offset.is_multiple_of(align_of::<*mut ngx_table_elt_t>())
            && IS_HEADER.get(offset / size_of::<*mut ngx_table_elt_t>()) == Some(&true);
        is_pointer.then_some(Self(offset))
    }

    /// All of them.
    #[inline]
    pub fn all() -> impl Iterator<Item = Self> {
        HEADER_OFFSETS.iter().copied().map(Self)
    }

    /// The field of a request's headers.
    #[inline]
    pub fn of(self, headers: *mut ngx_http_headers_in_t) -> *mut *mut ngx_table_elt_t {
        headers.wrapping_byte_add(self.0).cast()
    }
}

pub(super) const HEADER_OFFSETS: &[usize] = include!(concat!(env!("OUT_DIR"), "/header_fields.rs"));

/// For each word of the struct, whether it is a pointer to a header: it is asked for each name of nginx's table.
const IS_HEADER: [bool; size_of::<ngx_http_headers_in_t>() / size_of::<usize>()] = {
    let mut is_header = [false; size_of::<ngx_http_headers_in_t>() / size_of::<usize>()];
    let mut at = 0;
    while at < HEADER_OFFSETS.len() {
        is_header[HEADER_OFFSETS[at] / size_of::<usize>()] = true;
        at += 1;
    }
    is_header
};
