//! nginx structs whose bitfields the module reads or writes.
//!
//! `nginx-sys` has these structs too, with bitfields two bits off on nginx 1.29.3 and later, silently
//! (nginx's `port` field, bindgen up to 0.72). Sizes and ordinary fields agree, so a pointer is cast.
//! The test compares every bitfield with where the C compiler puts it, for the nginx of this build.
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

#[cfg(test)]
mod tests {
    use super::*;

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
    fn every_bitfield_is_where_the_c_compiler_puts_it() {
        let ours: Vec<String> = Vec::from(include!(concat!(env!("OUT_DIR"), "/probe.rs")));
        let measured: Vec<_> =
            include_str!(concat!(env!("OUT_DIR"), "/measured.txt")).lines().collect();
        assert!(ours.len() > 80, "only {} bitfields found", ours.len());
        assert_eq!(ours, measured);
    }
}
