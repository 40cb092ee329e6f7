//! What the test compares: fields and bitfields as the bindings have them, and as the C compiler has them.

use crate::headers::INCLUDES;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

/// The structs whose layout the test compares: those with bitfields, and those that are read and written most.
const STRUCTS: [&str; 15] = [
    "ngx_http_request_s",
    "ngx_http_headers_in_t",
    "ngx_http_headers_out_t",
    "ngx_http_upstream_s",
    "ngx_http_upstream_conf_t",
    "ngx_connection_s",
    "ngx_ssl_connection_s",
    "ngx_peer_connection_s",
    "ngx_event_s",
    "ngx_buf_s",
    "ngx_variable_value_t",
    "ngx_http_core_loc_conf_s",
    "ngx_listening_s",
    "ngx_stream_session_s",
    "ngx_cycle_s",
];

/// The offsets in `ngx_http_headers_in_t` of what is a pointer to a header.
pub fn header_fields(bindings: &str) -> String {
    let offsets: String = fields(bindings, "ngx_http_headers_in_t")
        .filter(|(_, kind)| *kind == "*mut ngx_table_elt_t")
        .map(|(name, _)| format!("core::mem::offset_of!(ngx_http_headers_in_t, {name}),\n"))
        .collect();
    format!("&[\n{offsets}]")
}

/// The fields of a struct that are no bitfields, with their types.
fn fields<'b>(bindings: &'b str, name: &str) -> impl Iterator<Item = (&'b str, &'b str)> {
    let head = format!("pub struct {name} {{\n");
    let (_, body) = bindings.split_once(&head).expect("the struct is among the bindings");
    let (body, _) = body.split_once("\n}").expect("it ends");
    let fields = body
        .lines()
        .filter_map(|line| line.trim().strip_prefix("pub ")?.strip_suffix(',')?.split_once(": "));
    fields.filter(|(name, _)| !name.starts_with('_'))
}

/// For every bitfield setter in the bindings: Rust code that sets it in a zeroed struct, and C that does. For every other
/// field, where it is.
pub fn probes(bindings: &str) -> (String, String) {
    let mut rust = String::from("[\n");
    let mut c = format!(
        "{INCLUDES}#include <stdio.h>\n#define P(n, s, f) {{ s v; unsigned char *b = (void *) &v; \
         ngx_memzero(&v, sizeof(v)); v.f = ~0u; printf(\"%s.%s\", #n, #f); \
         for (size_t i = 0; i < sizeof(v); i++) if (b[i]) printf(\" %zu:%02x\", i, b[i]); puts(\"\"); }}\n\
         #define F(n, s, f) printf(\"%s.%s at %zu\\n\", #n, #f, offsetof(s, f));\n\
         int main(void) {{\n"
    );
    for name in STRUCTS {
        for (field, _) in fields(bindings, name) {
            writeln!(rust, "    field!({name}, {field}),").expect("a string grows");
            // `type` is a word of Rust's.
            let plain = field.trim_end_matches('_');
            writeln!(c, "F({name}, {}, {plain})", typedef(name)).expect("a string grows");
        }
    }
    let mut current = None;
    for line in bindings.lines() {
        if let Some(name) = line.strip_prefix("impl ") {
            current = STRUCTS.iter().find(|s| name.starts_with(&format!("{s} ")));
        }
        let field = line.trim().strip_prefix("pub fn set_").and_then(|rest| rest.split('(').next());
        if let (Some(name), Some(field)) = (current, field) {
            writeln!(rust, "    probe!({name}, {field}, set_{field}),").expect("a string grows");
            writeln!(c, "P({name}, {}, {field})", typedef(name)).expect("a string grows");
        }
    }
    rust.push(']');
    c.push_str("return 0; }\n");
    (rust, c)
}

/// `ngx_buf_t` and the like: every struct here has this typedef.
fn typedef(name: &str) -> String {
    name.strip_suffix("_s").map_or_else(|| name.into(), |stem| format!("{stem}_t"))
}

pub fn measure(out: &Path, arguments: &[String], source: &str) -> String {
    let (file, program) = (out.join("probe.c"), out.join("probe"));
    std::fs::write(&file, source).expect("OUT_DIR is writable");
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let compiled = Command::new(&compiler)
        .args(arguments)
        .arg("-w")
        .arg("-o")
        .arg(&program)
        .arg(&file)
        .status();
    assert!(
        compiled.is_ok_and(|status| status.success()),
        "{compiler} compiles {}",
        file.display()
    );
    let output = Command::new(&program).output().expect("the probe runs");
    String::from_utf8(output.stdout).expect("the probe prints text")
}
