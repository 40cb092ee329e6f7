//! The nginx.conf texts that are compared.
//!
//! All share `request_pool_size 12k`: apart from it, the largest difference between two configurations can be
//! one more pool block. Two endpoints stand on either side: with one, stock nginx takes a shortcut.

use crate::bench::Bench;
use anyhow::{Result, bail};
use std::fs;
use std::path::Path;

/// Where a server listens; 0: not.
#[derive(Clone, Copy, Debug)]
pub struct Ports {
    /// Plain HTTP.
    pub http: u16,
    /// HTTPS.
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
        /// As it is.
        has_log: bool,
    },
    /// The same with metrics.
    Metrics {
        /// As it is.
        has_log: bool,
    },
    /// The same without our module: a static upstream, and nginx's own variables for ours.
    Twin {
        /// As in the skeleton.
        has_log: bool,
    },
}

impl Route {
    /// Whether the store has to be filled.
    pub fn has_store(self) -> bool {
        !matches!(
            self,
            Route::Static | Route::StaticLeastConn | Route::StaticThreads | Route::Twin { .. }
        )
    }

    /// The text. `main` stands before all else; `folder` is where its files are.
    pub fn text(self, bench: &Bench, folder: &Path, ports: Ports, main: &str) -> Result<String> {
        let (module, [a, b]) = (bench.module.display(), bench.endpoints);
        let folder_text = folder.display();
        // As in the skeleton: nginx's own default is 32 threads, each with an arena of malloc's.
        let threads = "thread_pool default threads=2;\n";
        let load = format!("load_module {module};\ningress_zone ingress 128m;\n{threads}");
        let socket = format!(
            "server {{ listen unix:{folder_text}/configuration.sock; keepalive_requests 1000000;
               location /configuration {{ ingress_configuration; }} }}"
        );
        let proxy = "proxy_http_version 1.1; proxy_set_header Connection \"\";";
        let (load, upstream, location, extra) = match self {
            Route::Static | Route::StaticLeastConn | Route::StaticThreads => (
                match self {
                    Route::StaticThreads => threads.into(),
                    _ => String::new(),
                },
                format!(
                    "{} server 127.0.0.1:{a}; server 127.0.0.1:{b}; keepalive 32;",
                    if self == Route::StaticLeastConn { "least_conn;" } else { "" }
                ),
                format!("proxy_pass http://upstream; {proxy}"),
                match self {
                    Route::StaticThreads => "aio threads;".into(),
                    _ => String::new(),
                },
            ),
            Route::Balancer => (
                load,
                "server 0.0.0.1; ingress_balancer $proxy_upstream_name; keepalive 32;".into(),
                format!(
                    "set $proxy_upstream_name bench/app-0/80; proxy_pass http://upstream; {proxy}"
                ),
                socket,
            ),
            Route::Router => (
                load,
                "server 0.0.0.1; ingress_balancer; ingress_keepalive 32;".into(),
                format!("ingress_router; proxy_pass http://upstream; {proxy}"),
                socket,
            ),
            Route::Default { has_log } | Route::Metrics { has_log } | Route::Twin { has_log } => {
                let has_metrics = matches!(self, Route::Metrics { .. });
                let text = skeleton(bench, folder, ports, main, has_log, has_metrics)?;
                return Ok(if self.has_store() { text } else { twin(&text, bench.endpoints) });
            }
        };
        let tls = match ports.https {
            0 => String::new(),
            port => format!(
                "listen 127.0.0.1:{port} ssl; ssl_session_cache off; ssl_session_tickets off;
                 ssl_certificate {folder_text}/default.crt;
                 ssl_certificate_key {folder_text}/default.key;"
            ),
        };
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

/// The controller's skeleton, filled in as the controller does.
fn skeleton(
    bench: &Bench,
    folder: &Path,
    ports: Ports,
    main: &str,
    has_log: bool,
    has_metrics: bool,
) -> Result<String> {
    let file = oxigress_tests::dist::repository().join("conf/nginx.conf");
    let folder = folder.display().to_string();
    let log = format!("{folder}/access.log");
    let values = [
        ("user", String::new()),
        ("runtime", folder),
        ("module", bench.module.display().to_string()),
        ("worker_processes", "1".into()),
        ("max_open_files", "20000".into()),
        ("worker_connections", "16384".into()),
        ("zone_size", "128m".into()),
        ("journal", String::new()),
        ("access_log", log),
        ("http_port", format!("127.0.0.1:{}", ports.http)),
        (
            "listen_https",
            format!("listen 127.0.0.1:{} default_server ssl reuseport backlog=511;", ports.https),
        ),
        ("metrics", if has_metrics { "ingress_metrics;".into() } else { String::new() }),
        ("stream", String::new()),
        ("backlog", "511".into()),
        ("listen_http_v6", String::new()),
        ("listen_https_v6", String::new()),
        ("listen_status", String::new()),
        ("health_check_path", "/healthz".into()),
    ];
    let mut text = format!("{main}\n{}", fs::read_to_string(file)?);
    for (name, value) in values {
        text = text.replace(&format!("{{{{{name}}}}}"), &value);
    }
    // The head comment speaks of double braces without a name between them.
    if let Some(line) = text.lines().find(|line| line.contains("{{") && !line.starts_with('#')) {
        bail!("conf/nginx.conf has a placeholder that the bench does not know: {}", line.trim());
    }
    Ok(match has_log {
        true => text,
        false => replace_line(&text, "access_log ", "upstreaminfo;", "access_log off;"),
    })
}

/// The skeleton as somebody would write it by hand for one static upstream. What is left of us makes nginx
/// refuse the text, so nothing is forgotten.
fn twin(skeleton: &str, [a, b]: [u16; 2]) -> String {
    let ours =
        ["load_module", "ingress_zone", "ingress_router", "ingress_balancer", "ingress_conf"];
    let is_ours = |line: &&str| ours.iter().any(|word| line.trim_start().starts_with(word));
    let text: Vec<_> = skeleton.lines().filter(|line| !is_ours(line)).collect();
    let mut text = text.join("\n");
    for (ours, stock) in [
        ("server 0.0.0.1;", format!("server 127.0.0.1:{a}; server 127.0.0.1:{b};").as_str()),
        (
            "ingress_keepalive 320 time=1h timeout=60s requests=10000;",
            "keepalive 320; keepalive_time 1h; keepalive_timeout 60s; keepalive_requests 10000;",
        ),
        ("$best_http_host", "$http_host"),
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

fn replace_line(text: &str, start: &str, end: &str, by: &str) -> String {
    let is_it = |line: &str| line.trim().starts_with(start) && line.trim().ends_with(end);
    text.lines().map(|line| if is_it(line) { by } else { line }).collect::<Vec<_>>().join("\n")
}

/// Two endpoints that answer 100 bytes, of which the first says which one it is.
pub fn endpoint(ports: [u16; 2]) -> String {
    let servers: String = ports
        .iter()
        .zip(["A", "B"])
        .map(|(port, name)| {
            format!(
                "server {{ listen 127.0.0.1:{port}; location / {{ return 200 \"{name}{}\"; }} }}\n",
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
        let ours = "load_module x;\nupstream ingress {\n  server 0.0.0.1;\n  ingress_balancer;\n}\n\
                    log_format l '[$proxy_upstream_name] $req_id';";
        let stock = twin(ours, [1, 2]);
        assert_eq!(
            stock,
            "upstream ingress {\n  server 127.0.0.1:1; server 127.0.0.1:2;\n}\n\
             log_format l '[bench-app-0-80] $request_id';"
        );
    }

    #[test]
    fn a_line_is_found_by_its_ends() {
        let text = replace_line(
            "a\n  access_log /x upstreaminfo;\nb",
            "access_log ",
            "upstreaminfo;",
            "c",
        );
        assert_eq!(text, "a\nc\nb");
    }
}
