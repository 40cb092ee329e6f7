//! Bindings for the nginx at hand, and a C program that says where the C compiler puts the fields of its structs.

mod headers;
mod layout;

use headers::Headers;
use std::path::PathBuf;

/// Structs that a .c file of nginx keeps to itself. A module that copies a location's settings, or asks how another
/// module was configured, needs their layout: that of this very nginx, so it is read from the file.
const PRIVATE: [&str; 8] = [
    "ngx_http_upstream_keepalive_module.c",
    "ngx_http_proxy_module.c",
    "ngx_http_grpc_module.c",
    "ngx_http_fastcgi_module.c",
    "ngx_http_log_module.c",
    "ngx_http_uwsgi_module.c",
    "ngx_stream_proxy_module.c",
    "ngx_stream_ssl_preread_module.c",
];

/// Everything of nginx's, and of OpenSSL's and the system's what nginx's interfaces are made of.
const ITEMS: [&str; 4] = [
    "(ngx|NGX|nginx|NGINX)_.*",
    "(SSL|X509|PEM|BIO|EVP|ERR|OPENSSL_(sk|thread)|TLSEXT)_.*|TLS_server_method|OPENSSL_STACK",
    "AF_(INET|INET6|UNIX)|sockaddr(_in|_in6|_un)?",
    "EPOLL.*",
];

const SIGNATURE: &str = "const char *NGX_RS_MODULE_SIGNATURE = NGX_MODULE_SIGNATURE;\n\
                         const size_t NGX_RS_ALIGNMENT = NGX_ALIGNMENT;\n";

fn main() {
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let headers = Headers::find();
    let files: String = PRIVATE.map(|file| format!("#include <{file}>\n")).concat();
    let mut bindings = bindgen::Builder::default()
        .header_contents("nginx.h", &format!("{}{files}{SIGNATURE}", headers::INCLUDES))
        .clang_args(&headers.arguments)
        .generate_cstr(true)
        .derive_default(true)
        .layout_tests(false)
        .blocklist_item("NGX_ALIGNMENT")
        // `ssl/authorities` declares those that it needs, on the types of `openssl-sys`.
        .blocklist_function("X509_(STORE|CRL|REVOKED)_.*")
        .use_core();
    for item in ITEMS {
        bindings = bindings.allowlist_item(item);
    }
    let bindings = bindings.generate().expect("nginx's headers parse").to_string();
    std::fs::write(out.join("bindings.rs"), &bindings).expect("OUT_DIR is writable");

    let version = bindings
        .lines()
        .find_map(|line| line.trim().strip_prefix("pub const nginx_version: u32 = "))
        .and_then(|rest| rest.strip_suffix(';'))
        .expect("nginx's headers have its version");
    println!("cargo::metadata=version_number={version}");

    println!("cargo::rustc-check-cfg=cfg(nginx_has_terminated)");
    // 1.25.4: a request that ends while a thread works for it is marked.
    if version.parse::<u32>().is_ok_and(|version| version >= 1_025_004) {
        println!("cargo::rustc-cfg=nginx_has_terminated");
    }

    // 1.29.2: nginx has a client-hello callback of its own.
    println!("cargo::rustc-check-cfg=cfg(nginx_has_client_hello)");
    if version.parse::<u32>().is_ok_and(|version| version >= 1_029_002) {
        println!("cargo::rustc-cfg=nginx_has_client_hello");
    }

    // nginx 1.29.7 and later.
    println!("cargo::rustc-check-cfg=cfg(keepalive_local)");
    if bindings.contains("pub local: ngx_uint_t") {
        println!("cargo::rustc-cfg=keepalive_local");
    }

    let write = |name: &str, text: String| {
        std::fs::write(out.join(name), text).expect("OUT_DIR is writable");
    };
    write("header_fields.rs", layout::header_fields(&bindings));
    let (rust, c) = layout::probes(&bindings);
    write("probe.rs", rust);
    write("measured.txt", layout::measure(&out, &headers.arguments, &c));
    println!("cargo::rerun-if-changed=build");
}
