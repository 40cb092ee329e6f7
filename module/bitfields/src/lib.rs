//! nginx structs whose bitfields the module reads or writes.
//!
//! `nginx-sys` has these structs too, with bitfields two bits off on nginx 1.29.3 and later, silently
//! (nginx's `port` field, bindgen up to 0.72). Sizes and ordinary fields agree, so a pointer is cast; where they did not,
//! this crate would not compile (`layout.rs`). The test compares every field and bitfield with where the C compiler puts
//! it, for the nginx of this build.
//!
//! And a few structs that no header of nginx has: see `PRIVATE` in the build script.

#![allow(
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unsafe_op_in_unsafe_fn,
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    clippy::missing_safety_doc,
    reason = "generated"
)]

include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
include!(concat!(env!("OUT_DIR"), "/layout.rs"));

/// Whether nginx keeps the connections of this upstream apart by location: `keepalive N local`, and from
/// nginx 1.29.7 on what it does without the directive.
pub fn keeps_by_location(conf: &ngx_http_upstream_keepalive_srv_conf_t) -> bool {
    #[cfg(keepalive_local)]
    return conf.local != 0 || conf.max_cached == ngx_uint_t::MAX;
    #[cfg(not(keepalive_local))]
    {
        let _ = conf;
        false
    }
}

/// A place in `ngx_http_headers_in_t` that is a pointer to a header.
///
/// `ngx_http_headers_in` has an offset for each name, and not each is one of a header: `Proxy-Connection`, which nginx
/// 1.31 refuses without keeping it, has 0, where the list of all headers is. So only what the struct itself declares as
/// such a pointer becomes a value of this type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderField(usize);

impl HeaderField {
    /// The field at an offset of nginx's table, or nothing where the struct has no pointer to a header.
    pub fn at(offset: usize) -> Option<Self> {
        let is_pointer = offset.is_multiple_of(align_of::<*mut ngx_table_elt_t>())
            && IS_HEADER.get(offset / size_of::<*mut ngx_table_elt_t>()) == Some(&true);
        is_pointer.then_some(Self(offset))
    }

    /// The field of a request's headers.
    pub fn of(self, headers: *mut ngx_http_headers_in_t) -> *mut *mut ngx_table_elt_t {
        headers.wrapping_byte_add(self.0).cast()
    }
}

const HEADER_OFFSETS: &[usize] = include!(concat!(env!("OUT_DIR"), "/header_fields.rs"));

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

#[cfg(test)]
mod tests {
    use super::*;
    use core::mem::offset_of;

    /// `struct.field at OFFSET`, as the C program prints it.
    macro_rules! field {
        ($name:ident, $field:ident) => {
            format!(
                "{}.{} at {}",
                stringify!($name),
                stringify!($field).trim_end_matches('_'),
                offset_of!($name, $field)
            )
        };
    }

    /// `struct.field byte:bits …`, as the C program prints it.
    macro_rules! probe {
        ($name:ident, $field:ident, $set:ident) => {{
            // SAFETY: a C struct of numbers and pointers, for which zeroes are a value.
            let mut value: $name = unsafe { core::mem::zeroed() };
            value.$set(!0);
            let start = (&raw const value).cast::<u8>();
            let mut line = format!("{}.{}", stringify!($name), stringify!($field));
            for at in 0..size_of::<$name>() {
                // SAFETY: within the value, which was zeroed, padding included.
                let byte = unsafe { *start.add(at) };
                if byte != 0 {
                    line.push_str(&format!(" {at}:{byte:02x}"));
                }
            }
            line
        }};
    }

    #[test]
    fn a_field_of_headers_is_what_the_struct_declares_as_a_header() {
        // What nginx 1.31's table says of `Proxy-Connection`, and the list that is there.
        assert_eq!(HeaderField::at(0), None);
        assert_eq!(offset_of!(ngx_http_headers_in_t, headers), 0);
        for known in [
            offset_of!(ngx_http_headers_in_t, host),
            offset_of!(ngx_http_headers_in_t, authorization),
            offset_of!(ngx_http_headers_in_t, cookie),
        ] {
            assert_eq!(HeaderField::at(known), Some(HeaderField(known)));
            assert_eq!(HeaderField::at(known + 1), None, "within a pointer");
        }
        for other in [
            offset_of!(ngx_http_headers_in_t, user),
            offset_of!(ngx_http_headers_in_t, server),
            offset_of!(ngx_http_headers_in_t, content_length_n),
            size_of::<ngx_http_headers_in_t>(),
            usize::MAX,
        ] {
            assert_eq!(HeaderField::at(other), None, "{other} is no header");
        }
        assert!(HEADER_OFFSETS.len() > 20, "only {} headers found", HEADER_OFFSETS.len());
    }

    #[test]
    fn every_field_is_where_the_c_compiler_puts_it() {
        let ours: Vec<String> = Vec::from(include!(concat!(env!("OUT_DIR"), "/probe.rs")));
        let measured: Vec<_> =
            include_str!(concat!(env!("OUT_DIR"), "/measured.txt")).lines().collect();
        assert!(ours.len() > 300, "only {} fields found", ours.len());
        assert_eq!(ours, measured);
    }
}
