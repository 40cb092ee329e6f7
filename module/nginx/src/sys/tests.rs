//! The bindings against the C compiler.

use super::header_field::HEADER_OFFSETS;
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
