//! What the source has to know about the nginx that it is compiled for.

fn main() {
    let version =
        std::env::var("DEP_NGINX_VERSION_NUMBER").expect("oxigress-nginx tells the version");
    let version: u32 = version.parse().expect("such as 1028003");
    println!("cargo::rustc-check-cfg=cfg(nginx_has_terminated)");
    // 1.25.4: a request that ends while a thread works for it is marked.
    if version >= 1_025_004 {
        println!("cargo::rustc-cfg=nginx_has_terminated");
    }
    println!("cargo::rustc-check-cfg=cfg(nginx_has_pass)");
    // 1.25.5: stream hands connections on to other listeners.
    if version >= 1_025_005 {
        println!("cargo::rustc-cfg=nginx_has_pass");
    }
    println!("cargo::rustc-check-cfg=cfg(nginx_has_client_hello)");
    // 1.29.2: nginx has a client-hello callback of its own.
    if version >= 1_029_002 {
        println!("cargo::rustc-cfg=nginx_has_client_hello");
    }
    println!("cargo::rerun-if-changed=build.rs");
}
