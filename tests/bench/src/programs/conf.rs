//! The nginx.conf texts that are compared.
//!
//! All share `request_pool_size 12k`: apart from it, the largest difference between two configurations can be
//! one more pool block. Two endpoints stand on either side: with one, stock nginx takes a shortcut.

use crate::bench::Bench;
use anyhow::{Context, Result};
use oxigress_tests::controller::Controller;
use oxigress_tests::place::Directory;
use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::Path;
use std::sync::OnceLock;

/// Where a server listens; 0: not.
#[derive(Clone, Copy, Debug)]
pub struct Ports {
    pub http: u16,
    pub https: u16,
}

/// What a request passes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// `proxy_pass` to a static upstream: the peer of everything.
    Static,
    /// The same by nginx's own `least_conn`.
    StaticLeastConn,
    /// The same with a thread pool, which every process of ours has: a process with threads pays for
    /// cancellation points in the C library at every system call.
    StaticThreads,
    /// A static location, and the balancer.
    Balancer,
    /// Router and balancer; neither log nor headers.
    Router,
    /// The skeleton of the controller, with or without its access log.
    Default {
        /// Whether the access log is on.
        has_log: bool,
    },
    /// The configuration with metrics switched on.
    Metrics {
        /// Whether the access log is on.
        has_log: bool,
    },
    /// The same without our module: a static upstream, and nginx's own variables for ours.
    Twin {
        /// Whether the access log is on.
        has_log: bool,
    },
}

/// As in the skeleton: nginx's own default is 32 threads, each with an arena of malloc's.
const THREADS: &str = "thread_pool default threads=2;\n";
const PROXY: &str = "proxy_http_version 1.1; proxy_set_header Connection \"\";";

impl Route {
    /// Whether the store has to be filled.
    pub fn has_store(self) -> bool {
        !matches!(
            self,
            Route::Static | Route::StaticLeastConn | Route::StaticThreads | Route::Twin { .. }
        )
    }

    /// What stands before all, the upstream, its location and what follows, of nginx without our module.
    fn stock(self, bench: &Bench) -> (String, String, String, String) {
        let [a, b] = bench.endpoints;
        let has_threads = self == Route::StaticThreads;
        let method = if self == Route::StaticLeastConn { "least_conn;" } else { "" };
        (
            if has_threads { THREADS.into() } else { String::new() },
            format!("{method} server 127.0.0.1:{a}; server 127.0.0.1:{b}; keepalive 32;"),
            format!("proxy_pass http://upstream; {PROXY}"),
            if has_threads { "aio threads;".into() } else { String::new() },
        )
    }

    /// The text. `main` stands before all else; `folder` is where its files are.
    pub fn text(self, bench: &Bench, folder: &Path, ports: Ports, main: &str) -> Result<String> {
        let module = bench.module.display();
        let folder_text = folder.display();
        let load = format!("load_module {module};\ningress_zone ingress 128m;\n{THREADS}");
        let socket = socket(folder);
        let (load, upstream, location, extra) = match self {
            Route::Static | Route::StaticLeastConn | Route::StaticThreads => self.stock(bench),
            Route::Balancer => (
                load,
                "server 0.0.0.1; ingress_balancer $proxy_upstream_name; keepalive 32;".into(),
                format!(
                    "set $proxy_upstream_name bench/app-0/80; proxy_pass http://upstream; {PROXY}"
                ),
                socket,
            ),
            Route::Router => (
                load,
                "server 0.0.0.1; ingress_balancer; ingress_keepalive 32;".into(),
                format!("ingress_router; proxy_pass http://upstream; {PROXY}"),
                socket,
            ),
            Route::Default { has_log } | Route::Metrics { has_log } | Route::Twin { has_log } => {
                let has_metrics = matches!(self, Route::Metrics { .. });
                let text = skeleton(folder, ports, &bench.module, main, has_log, has_metrics)?;
                return Ok(if self.has_store() { text } else { twin(&text, bench.endpoints) });
            }
        };
        let tls = tls(folder, ports.https);
        Ok(format!(
            "{main}
daemon off;
worker_processes 1;
pid {folder_text}/nginx.pid;
{load}
events {{ worker_connections 1024; }}
http {{
    access_log off;
    request_pool_size 12k;
    upstream upstream {{ {upstream} }}
    server {{
        listen 127.0.0.1:{};
        {tls}
        location / {{ {location} }}
        location = /nginx {{ return 204; }}
    }}
    {extra}
}}
",
            ports.http
        ))
    }
}

/// The server of the configuration endpoint.
fn socket(folder: &Path) -> String {
    let folder = folder.display();
    format!(
        "server {{ listen unix:{folder}/configuration.sock; keepalive_requests 1000000;
           location /configuration {{ ingress_configuration; }} }}"
    )
}

/// The part of a server that speaks TLS; 0: there is none.
fn tls(folder: &Path, port: u16) -> String {
    let folder = folder.display();
    match port {
        0 => String::new(),
        port => format!(
            "listen 127.0.0.1:{port} ssl; ssl_session_cache off; ssl_session_tickets off;
             ssl_certificate {folder}/default.crt;
             ssl_certificate_key {folder}/default.key;"
        ),
    }
}

/// nginx.conf as the controller writes it without a ConfigMap, for one process and these ports.
fn skeleton(
    folder: &Path,
    ports: Ports,
    module: &Path,
    main: &str,
    has_log: bool,
    has_metrics: bool,
) -> Result<String> {
    let (rendered, runtime) = rendered()?;
    let rendered = rendered.replace(&runtime, &folder.display().to_string());
    let log = format!("access_log {}/access.log upstreaminfo;", folder.display());
    let mut listens = [
        format!("listen 127.0.0.1:{} default_server reuseport backlog=511;", ports.http),
        format!("listen 127.0.0.1:{} default_server ssl reuseport backlog=511;", ports.https),
    ]
    .into_iter();
    let mut text = format!("{main}\n");
    for line in rendered.lines() {
        let word = line.split_whitespace().next().unwrap_or_default();
        let line = match word {
            "user" | "ingress_journal" => continue,
            "listen" if line.contains("[::]") => continue,
            "listen" if line.contains("default_server") => {
                listens.next().context("more listeners than HTTP's and HTTPS's")?
            }
            "load_module" => format!("load_module {};", module.display()),
            "worker_processes" => "worker_processes 1;".into(),
            "worker_rlimit_nofile" => "worker_rlimit_nofile 20000;".into(),
            "worker_connections" => "worker_connections 16384;".into(),
            "ingress_zone" => "ingress_zone ingress 128m;".into(),
            "ingress_metrics" if !has_metrics => continue,
            "access_log" if line.contains("upstreaminfo") && has_log => log.clone(),
            "access_log" if line.contains("upstreaminfo") => "access_log off;".into(),
            _ => line.into(),
        };
        text.push_str(&line);
        text.push('\n');
    }
    Ok(text)
}

/// What the controller writes, and the runtime folder that its paths name.
fn rendered() -> Result<(String, String)> {
    static RENDERED: OnceLock<(String, String)> = OnceLock::new();
    if let Some(known) = RENDERED.get() {
        return Ok(known.clone());
    }
    let directory = Directory::new("bench-conf")?;
    let mut controller = Controller::start(&directory, 1, &["--enable-metrics".into()])?;
    let runtime = directory.join("run");
    let text = fs::read_to_string(runtime.join("nginx.conf"))?;
    controller.stop()?;
    Ok(RENDERED.get_or_init(|| (text, runtime.display().to_string())).clone())
}

/// The skeleton as somebody would write it by hand for one static upstream. What is left of us makes nginx
/// refuse the text, so nothing is forgotten.
fn twin(skeleton: &str, [a, b]: [u16; 2]) -> String {
    let skeleton = &in_nginxs_words(skeleton);
    let mut text = String::new();
    // Locations that routes lead to are none of his.
    let mut depth = 0;
    for line in skeleton.lines().map(str::trim_end) {
        let word = line.trim_start();
        let is_target = word.starts_with("location @") && !word.starts_with("location @healthy");
        if depth > 0 || is_target || word.starts_with("location ingress-") {
            depth += line.matches('{').count();
            depth -= line.matches('}').count();
            continue;
        }
        let is_ours = word.starts_with("ingress_") && !word.starts_with("ingress_keepalive");
        if is_ours || word.starts_with("load_module") {
            continue;
        }
        text.push_str(line);
        text.push('\n');
    }
    for (ours, stock) in [
        ("server 0.0.0.1;", format!("server 127.0.0.1:{a}; server 127.0.0.1:{b};").as_str()),
        (
            "ingress_keepalive 320 time=1h timeout=60s requests=10000;",
            "keepalive 320; keepalive_time 1h; keepalive_timeout 60s; keepalive_requests 10000;",
        ),
        ("$best_http_host", "$http_host"),
        ("$ingress_upstream_host", "$http_host"),
        ("$ingress_connection", "\"\""),
        ("$ingress_cdn_loop", "oxigress"),
        ("$ingress_client_verify", "\"\""),
        ("$ingress_client_cert", "\"\""),
        ("$ingress_client_subject_dn", "\"\""),
        ("$ingress_client_issuer_dn", "\"\""),
        ("$req_id", "$request_id"),
        ("$pass_port", "$server_port"),
        ("$pass_access_scheme", "$scheme"),
        ("$proxy_alternative_upstream_name", ""),
        ("$proxy_upstream_name", "bench-app-0-80"),
    ] {
        text = text.replace(ours, stock);
    }
    text
}

/// What the module writes in one piece, as nginx's own directives say it.
fn in_nginxs_words(skeleton: &str) -> String {
    let lines = skeleton.lines().filter(|line| !line.trim_start().starts_with('#'));
    let skeleton = lines.collect::<Vec<_>>().join("\n");
    let skeleton = skeleton
        .replace("log_format upstreaminfo escape=none $ingress_access_line;", "")
        .replace("ingress_log_line $ingress_access_line", "log_format upstreaminfo");
    let Some((before, rest)) = skeleton.split_once("ingress_header_lines $ingress_proxy_head")
    else {
        return skeleton;
    };
    let (headers, after) = rest.split_once(';').unwrap_or((rest, ""));
    let mut after = after.to_owned();
    for line in headers.lines().map(str::trim) {
        let Some((name, value)) = line.split_once(' ') else { continue };
        let written = match name {
            "CDN-Loop" => "proxy_set_header CDN-Loop $ingress_proxy_head;".to_owned(),
            name => format!("proxy_set_header {name} \"\";"),
        };
        // The first: other locations have lists of their own below.
        after = after.replacen(&written, &format!("proxy_set_header {name} {value};"), 1);
    }
    format!("{before}{after}")
}

/// Two endpoints that answer 100 bytes, of which the first says which one it is.
pub fn endpoint(ports: [u16; 2]) -> String {
    endpoints(&ports.map(|port| SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)))
}

/// As [`endpoint`], one server on each address: their answers begin with A and B.
pub fn endpoints(addresses: &[SocketAddrV4]) -> String {
    let servers: String = addresses
        .iter()
        .zip(["A", "B"])
        .map(|(address, name)| {
            format!(
                "server {{ listen {address}; location / {{ return 200 \"{name}{}\"; }} }}\n",
                "x".repeat(99)
            )
        })
        .collect();
    format!(
        "daemon off;\nmaster_process off;\nerror_log error.log;\npid endpoint.pid;\n\
         events {{ worker_connections 4096; }}\n\
         http {{ access_log off; keepalive_requests 100000000; keepalive_time 24h;\n{servers}}}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_twin_has_nothing_of_ours() {
        let ours = "load_module x;\nlocation @http {\n  ingress_target http;\n}\nupstream ingress {\n  server 0.0.0.1;\n  ingress_balancer;\n}\n\
                    log_format l '[$proxy_upstream_name] $req_id';";
        let stock = twin(ours, [1, 2]);
        assert_eq!(
            stock,
            "upstream ingress {\n  server 127.0.0.1:1; server 127.0.0.1:2;\n}\n\
             log_format l '[bench-app-0-80] $request_id';\n"
        );
    }
}
