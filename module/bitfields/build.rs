//! Types for the structs in `STRUCTS`, from the headers of the nginx that `nginx-sys` was built for, and
//! a C program that says where the C compiler puts each of their fields.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

const STRUCTS: [&str; 10] = [
    "ngx_http_request_s",
    "ngx_http_headers_in_t",
    "ngx_http_upstream_s",
    "ngx_connection_s",
    "ngx_ssl_connection_s",
    "ngx_peer_connection_s",
    "ngx_event_s",
    "ngx_buf_s",
    "ngx_variable_value_t",
    "ngx_http_core_loc_conf_s",
];

/// Structs that a .c file keeps to itself: the module copies a location's settings and changes some, asks whether it
/// speaks TLS to its endpoints, whether nginx keeps connections, and whether a stream server has what passthrough
/// needs. From the file, so that the layout is that of this very nginx.
const PRIVATE: [(&str, &str); 8] = [
    ("ngx_http_upstream_keepalive_module.c", "ngx_http_upstream_keepalive_srv_conf_t"),
    ("ngx_http_proxy_module.c", "ngx_http_proxy_loc_conf_t"),
    ("ngx_http_grpc_module.c", "ngx_http_grpc_loc_conf_t"),
    ("ngx_http_fastcgi_module.c", "ngx_http_fastcgi_loc_conf_t"),
    ("ngx_http_log_module.c", "ngx_http_log_loc_conf_t"),
    ("ngx_http_uwsgi_module.c", "ngx_http_uwsgi_loc_conf_t"),
    ("ngx_stream_proxy_module.c", "ngx_stream_proxy_srv_conf_t"),
    ("ngx_stream_ssl_preread_module.c", "ngx_stream_ssl_preread_srv_conf_t"),
];

const HEADERS: &str = "#include <ngx_config.h>\n#include <ngx_core.h>\n#include <ngx_http.h>\n";

fn main() {
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    // nginx-sys says it to the packages that depend on it.
    let includes = std::env::var_os("DEP_NGINX_INCLUDE").expect("nginx-sys names nginx's headers");
    let includes: Vec<_> =
        std::env::split_paths(&includes).map(|dir| format!("-I{}", dir.display())).collect();

    let files: String = PRIVATE.map(|(file, _)| format!("#include <{file}>\n")).concat();
    let mut bindings = bindgen::Builder::default()
        .header_contents("bitfields.h", &format!("{HEADERS}{files}"))
        .clang_args(&includes)
        .with_codegen_config(bindgen::CodegenConfig::TYPES)
        .layout_tests(false)
        .use_core();
    for name in STRUCTS.into_iter().chain(PRIVATE.map(|(_, name)| name)) {
        bindings = bindings.allowlist_type(name);
    }
    let bindings = bindings.generate().expect("nginx's headers parse").to_string();
    std::fs::write(out.join("bindings.rs"), &bindings).expect("OUT_DIR is writable");

    // nginx 1.29.7 and later.
    println!("cargo::rustc-check-cfg=cfg(keepalive_local)");
    if bindings.contains("pub local: ngx_uint_t") {
        println!("cargo::rustc-cfg=keepalive_local");
    }

    std::fs::write(out.join("header_fields.rs"), header_fields(&bindings))
        .expect("OUT_DIR is writable");
    std::fs::write(out.join("layout.rs"), layout(&bindings)).expect("OUT_DIR is writable");
    let (rust, c) = probes(&bindings);
    std::fs::write(out.join("probe.rs"), rust).expect("OUT_DIR is writable");
    let measured = measure(&out, &includes, &c);
    std::fs::write(out.join("measured.txt"), measured).expect("OUT_DIR is writable");
    println!("cargo::rerun-if-changed=build.rs");
}

/// The offsets in `ngx_http_headers_in_t` of what is a pointer to a header.
fn header_fields(bindings: &str) -> String {
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

/// Fails to compile where `nginx-sys` has a field elsewhere: the module reads these structs through both.
fn layout(bindings: &str) -> String {
    let mut text = String::new();
    for name in STRUCTS {
        let own = format!("size_of::<{name}>()");
        writeln!(text, "const _: () = assert!(size_of::<nginx_sys::{name}>() == {own});")
            .expect("a string grows");
        for (field, _) in fields(bindings, name) {
            let own = format!("core::mem::offset_of!({name}, {field})");
            let theirs = format!("core::mem::offset_of!(nginx_sys::{name}, {field})");
            writeln!(text, "const _: () = assert!({theirs} == {own});").expect("a string grows");
        }
    }
    text
}

/// For every bitfield setter in the bindings: Rust code that sets it in a zeroed struct, and C that does. For every other
/// field, where it is.
fn probes(bindings: &str) -> (String, String) {
    let mut rust = String::from("[\n");
    let mut c = format!(
        "{HEADERS}#include <stdio.h>\n#define P(n, s, f) {{ s v; unsigned char *b = (void *) &v; \
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

fn measure(out: &Path, includes: &[String], source: &str) -> String {
    let (file, program) = (out.join("probe.c"), out.join("probe"));
    std::fs::write(&file, source).expect("OUT_DIR is writable");
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let compiled = Command::new(&compiler)
        .args(includes)
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
