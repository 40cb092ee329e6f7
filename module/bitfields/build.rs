//! Types for the structs in `STRUCTS`, from the headers of the nginx that `nginx-sys` was built for, and
//! a C program that says where the C compiler puts each of their bitfields.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

const STRUCTS: [&str; 8] = [
    "ngx_connection_s",
    "ngx_http_request_s",
    "ngx_http_headers_in_t",
    "ngx_peer_connection_s",
    "ngx_event_s",
    "ngx_buf_s",
    "ngx_variable_value_t",
    "ngx_http_core_loc_conf_s",
];

const HEADERS: &str = "#include <ngx_config.h>\n#include <ngx_core.h>\n#include <ngx_http.h>\n";

fn main() {
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    // nginx-sys says it to the packages that depend on it.
    let includes = std::env::var_os("DEP_NGINX_INCLUDE").expect("nginx-sys names nginx's headers");
    let includes: Vec<_> =
        std::env::split_paths(&includes).map(|dir| format!("-I{}", dir.display())).collect();

    let mut bindings = bindgen::Builder::default()
        .header_contents("bitfields.h", HEADERS)
        .clang_args(&includes)
        .with_codegen_config(bindgen::CodegenConfig::TYPES)
        .layout_tests(false)
        .use_core();
    for name in STRUCTS {
        bindings = bindings.allowlist_type(name);
    }
    let bindings = bindings.generate().expect("nginx's headers parse").to_string();
    std::fs::write(out.join("bindings.rs"), &bindings).expect("OUT_DIR is writable");

    let (rust, c) = probes(&bindings);
    std::fs::write(out.join("probe.rs"), rust).expect("OUT_DIR is writable");
    let measured = measure(&out, &includes, &c);
    std::fs::write(out.join("measured.txt"), measured).expect("OUT_DIR is writable");
    println!("cargo::rerun-if-changed=build.rs");
}

/// For every bitfield setter in the bindings: Rust code that sets it in a zeroed struct, and C that does.
fn probes(bindings: &str) -> (String, String) {
    let mut rust = String::from("[\n");
    let mut c = format!(
        "{HEADERS}#include <stdio.h>\n#define P(n, s, f) {{ s v; unsigned char *b = (void *) &v; \
         ngx_memzero(&v, sizeof(v)); v.f = ~0u; printf(\"%s.%s\", #n, #f); \
         for (size_t i = 0; i < sizeof(v); i++) if (b[i]) printf(\" %zu:%02x\", i, b[i]); puts(\"\"); }}\n\
         int main(void) {{\n"
    );
    let mut current = None;
    for line in bindings.lines() {
        if let Some(name) = line.strip_prefix("impl ") {
            current = STRUCTS.iter().find(|s| name.starts_with(&format!("{s} ")));
        }
        let field = line.trim().strip_prefix("pub fn set_").and_then(|rest| rest.split('(').next());
        if let (Some(name), Some(field)) = (current, field) {
            writeln!(rust, "    probe!({name}, {field}, set_{field}),").expect("a string grows");
            // `ngx_buf_t` and the like: every struct here has this typedef.
            let typedef =
                name.strip_suffix("_s").map_or_else(|| (*name).into(), |stem| format!("{stem}_t"));
            writeln!(c, "P({name}, {typedef}, {field})").expect("a string grows");
        }
    }
    rust.push(']');
    c.push_str("return 0; }\n");
    (rust, c)
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
