//! What more than one key says together: lines of nginx.conf that are not one directive a key.

use super::Machine;
use crate::options::Options;
use oxigress_core::model::StreamPort;
use oxigress_settings::StaticConfig;
use oxigress_settings::conf_input::{ConfInput, HttpListener};
use oxigress_settings::form::HTML;
use oxigress_settings::{ACCESS_LOG, ERROR_LOG};

/// Placeholders and what they stand for.
pub fn values(
    options: &Options,
    machine: &Machine,
    keys: &StaticConfig,
) -> Vec<(&'static str, String)> {
    let mut values = vec![
        ("worker_cpu_affinity", line("worker_cpu_affinity", &keys.text("worker-cpu-affinity"))),
        ("error_log", error_log(keys)),
        ("pass_server_header", pass_server_header(keys)),
        ("hide_headers", hide_headers(keys)),
        ("grpc_buffer_size", grpc_buffer_size(keys)),
        ("ssl_session_cache", ssl_session_cache(keys)),
        ("gzip", [brotli(keys), gzip(keys)].join("\n        ").trim().to_owned()),
        ("auth_access_log", auth_access_log(keys)),
        ("map_hash_bucket_size", map_hash_bucket_size(keys)),
        ("block_cidrs", each("deny", &keys.list("block-cidrs"))),
        ("client_headers", client_headers(keys)),
    ];
    values.extend(logs(machine, keys));
    values.extend(listeners(options, machine, keys));
    values.extend(trust(keys));
    values
}

/// A directive, if it has a value.
fn line(name: &str, value: &str) -> String {
    if value.is_empty() { String::new() } else { format!("{name} {value};") }
}

/// A line for each value.
fn each(name: &str, values: &[String]) -> String {
    let lines: Vec<_> = values.iter().map(|value| format!("{name} {value};")).collect();
    lines.join("\n        ")
}

fn error_log(keys: &StaticConfig) -> String {
    let level = keys.text("error-log-level");
    match keys.text("error-log-path") {
        path if path == ERROR_LOG => format!("stderr {level}"),
        path => format!("{path} {level}"),
    }
}

fn pass_server_header(keys: &StaticConfig) -> String {
    // The reference clears the header in the end unless server-tokens is on.
    match keys.flag("allow-backend-server-header") && keys.flag("server-tokens") {
        true => "proxy_pass_header Server;\n    grpc_pass_header Server;".into(),
        false => String::new(),
    }
}

fn hide_headers(keys: &StaticConfig) -> String {
    let names = keys.list("hide-headers");
    let modules = ["proxy_hide_header", "grpc_hide_header", "fastcgi_hide_header"];
    let lines: Vec<_> = modules.iter().map(|directive| each(directive, &names)).collect();
    lines.join("\n    ").trim_end().to_owned()
}

/// The directives for request headers of clients: which are kept, removed or refused.
fn client_headers(keys: &StaticConfig) -> String {
    let names = [
        line("ingress_keep_headers", &keys.list("keep-forwarded-headers").join(" ")),
        line("ingress_strip_headers", &keys.list("strip-request-headers").join(" ")),
        line("ingress_refuse_paths", &keys.text("refuse-ambiguous-paths")),
        if keys.flag("server-tokens") { String::new() } else { "ingress_hide_server;".into() },
    ];
    let lines: Vec<_> = names.into_iter().filter(|line| !line.is_empty()).collect();
    lines.join("\n        ")
}

fn grpc_buffer_size(keys: &StaticConfig) -> String {
    match keys.number("grpc-buffer-size-kb") {
        0 => "4k".into(),
        kilobytes => format!("{kilobytes}k"),
    }
}

fn ssl_session_cache(keys: &StaticConfig) -> String {
    match keys.flag("ssl-session-cache") {
        true => format!("shared:SSL:{}", keys.text("ssl-session-cache-size")),
        false => "none".into(),
    }
}

/// What the key says, and at least what the longest of `skip-access-log-urls` needs: a bucket holds its bytes, two
/// pointers and a length, in whole cache lines.
fn map_hash_bucket_size(keys: &StaticConfig) -> String {
    const LINE: u64 = 64;
    let longest = keys.list("skip-access-log-urls").iter().map(String::len).max().unwrap_or(0);
    let needed = (longest as u64 + 32).next_multiple_of(LINE);
    keys.number("map-hash-bucket-size").max(needed).to_string()
}

fn auth_access_log(keys: &StaticConfig) -> String {
    match keys.flag("enable-auth-access-log") {
        true => String::new(),
        false => "access_log off;".into(),
    }
}

fn brotli(keys: &StaticConfig) -> String {
    if !keys.flag("enable-brotli") {
        return String::new();
    }
    let (level, least) = (keys.number("brotli-level"), keys.number("brotli-min-length"));
    let directive = format!("ingress_brotli {level} {least} {};", keys.text("brotli-types"));
    // Among gzip's own, where that is on.
    let vary = if keys.flag("use-gzip") { "" } else { "\n        gzip_vary on;" };
    directive + vary
}

fn gzip(keys: &StaticConfig) -> String {
    if !keys.flag("use-gzip") {
        return String::new();
    }
    // nginx warns of its own type in the list; without a list it has that one alone.
    let types = Some(keys.text("gzip-types")).filter(|types| types != HTML);
    let lines = [
        "gzip on;".into(),
        "gzip_http_version 1.1;".into(),
        "gzip_proxied any;".into(),
        "gzip_vary on;".into(),
        format!("gzip_comp_level {};", keys.number("gzip-level")),
        format!("gzip_min_length {};", keys.number("gzip-min-length")),
        line("gzip_types", &types.unwrap_or_default()),
        line("gzip_disable", &keys.text("gzip-disable")),
    ];
    let lines: Vec<_> = lines.into_iter().filter(|line| !line.is_empty()).collect();
    lines.join("\n        ")
}

/// The file of a log: the more special key counts; the reference's own file is standard output here.
fn log_file(machine: &Machine, keys: &StaticConfig, special: &str) -> String {
    let paths = [keys.text(special), keys.text("access-log-path")];
    match paths.into_iter().find(|path| !path.is_empty()) {
        Some(path) if path != ACCESS_LOG => path,
        _ => machine.access_log.display().to_string(),
    }
}

fn logs(machine: &Machine, keys: &StaticConfig) -> Vec<(&'static str, String)> {
    let parameters = keys.text("access-log-params");
    let parameters = if parameters.is_empty() { parameters } else { format!(" {parameters}") };
    let urls = keys.list("skip-access-log-urls");
    let map = match urls.is_empty() {
        true => String::new(),
        false => {
            let lines: Vec<_> = urls.iter().map(|url| format!("        \"{url}\" 0;\n")).collect();
            format!("map $request_uri $loggable {{\n        default 1;\n{}    }}", lines.concat())
        }
    };
    let condition = if urls.is_empty() { "" } else { " if=$loggable" };
    let host = keys.text("syslog-host");
    let is_syslog = keys.flag("enable-syslog") && !host.is_empty();
    let server = format!("syslog:server={host}:{}", keys.number("syslog-port"));
    let is_off = keys.flag("disable-access-log") || keys.flag("disable-http-access-log");
    let access_log = match is_off {
        true => "off".into(),
        false if is_syslog => format!("{server} upstreaminfo{condition}"),
        false => {
            let file = log_file(machine, keys, "http-access-log-path");
            format!("{file} upstreaminfo{parameters}{condition}")
        }
    };
    let http_error_log = match is_syslog {
        true => format!("error_log {server} {};", keys.text("error-log-level")),
        false => String::new(),
    };
    let escape = match (keys.flag("log-format-escape-none"), keys.flag("log-format-escape-json")) {
        (true, _) => "escape=none ",
        (false, true) => "escape=json ",
        (false, false) => "",
    };
    let format = match keys.text("log-format-upstream") {
        text if text.is_empty() => FORMAT.to_owned(),
        text => text,
    };
    vec![
        ("loggable", map),
        ("access_log", access_log),
        ("http_error_log", http_error_log),
        ("log_format", format!("{escape}{format}")),
    ]
}

const FORMAT: &str = "'$remote_addr - $remote_user [$time_local] \"$request\" $status '
        '$body_bytes_sent \"$http_referer\" \"$http_user_agent\" $request_length $request_time '
        '[$proxy_upstream_name] [$proxy_alternative_upstream_name] $upstream_addr '
        '$upstream_response_length $upstream_response_time $upstream_status $req_id'";

/// The `access_log` directive of TCP and UDP sessions.
pub fn stream_log(machine: &Machine, keys: &StaticConfig) -> String {
    let is_off = keys.flag("disable-access-log") || keys.flag("disable-stream-access-log");
    if is_off {
        return "off".into();
    }
    let parameters = keys.text("access-log-params");
    let file = log_file(machine, keys, "stream-access-log-path");
    format!("{file} log_stream {parameters}").trim_end().to_owned()
}

/// Addresses to listen on, as `listen` has them before the port: what bind-address says for a family, else all.
pub fn addresses(machine: &Machine, keys: &StaticConfig) -> Vec<String> {
    let bound = keys.list("bind-address");
    let (v6, mut all): (Vec<_>, Vec<_>) = bound.into_iter().partition(|one| one.starts_with('['));
    if all.is_empty() {
        all.push(String::new());
    } else {
        all.iter_mut().for_each(|address| address.push(':'));
    }
    if machine.has_ipv6 && !keys.flag("disable-ipv6") {
        match v6.is_empty() {
            true => all.push("[::]:".into()),
            false => all.extend(v6.into_iter().map(|address| address + ":")),
        }
    }
    all
}

/// The listeners of Gateways beside those of the flags.
pub fn gateway_listeners(machine: &Machine, input: &ConfInput) -> String {
    let keys = &input.settings;
    let proxy = if keys.flag("use-proxy-protocol") { " proxy_protocol" } else { "" };
    let mut text = String::new();
    for (port, listener) in &input.listeners {
        let (StreamPort::Tcp(port), Some(http)) = (port, listener.http) else { continue };
        let tls = if http == HttpListener::Https { " ssl" } else { "" };
        for address in addresses(machine, keys) {
            let line = format!("listen {address}{port}{tls}{proxy} backlog={};", machine.backlog);
            text += if text.is_empty() { "" } else { "\n        " };
            text += &line;
        }
    }
    text
}

fn listeners(
    options: &Options,
    machine: &Machine,
    keys: &StaticConfig,
) -> Vec<(&'static str, String)> {
    let reuseport = if keys.flag("reuse-port") { " reuseport" } else { "" };
    let proxy = if keys.flag("use-proxy-protocol") { " proxy_protocol" } else { "" };
    let parameters = format!("{proxy}{reuseport} backlog={}", machine.backlog);
    let lines = |port: u16, tls: &str| {
        let line =
            |address: &String| format!("listen {address}{port} default_server{tls}{parameters};");
        addresses(machine, keys).iter().map(line).collect::<Vec<_>>().join("\n        ")
    };
    let https = match options.ssl_passthrough_port {
        // The stream listener hands on what it does not pass through.
        Some(port) => format!("listen 127.0.0.1:{port} default_server ssl;"),
        None => lines(options.https_port, " ssl"),
    };
    vec![("listen_http", lines(options.http_port, "")), ("listen_https", https)]
}

/// Whose word counts about who the client is.
pub fn real_ip(keys: &StaticConfig) -> String {
    let networks = keys.list("proxy-real-ip-cidr");
    each("set_real_ip_from", &networks)
}

fn trust(keys: &StaticConfig) -> Vec<(&'static str, String)> {
    let header = keys.text("forwarded-for-header");
    let Forwarded { peers, believed, forwarded_for } = forwarded(keys, &header);
    let request_id =
        if keys.flag("generate-request-id") { "$req_id" } else { "$http_x_request_id" };
    let original_uri = match keys.flag("proxy-add-original-uri-header") {
        true => "$request_uri",
        false => "\"\"",
    };
    vec![
        ("real_ip", real_ip_lines(keys, &header).trim_end().to_owned()),
        ("trusted_peers", peers),
        ("believed", believed),
        ("forwarded_for", forwarded_for),
        ("original_forwarded_for", variable_of(&header)),
        ("original_forwarded_host", variable_of(&keys.text("forwarded-host-header"))),
        ("request_id", request_id.into()),
        ("original_uri", original_uri.into()),
    ]
}

/// Where the client's address comes from; empty: the connection's is the client's.
fn real_ip_lines(keys: &StaticConfig, header: &str) -> String {
    let has_proxy = keys.flag("use-proxy-protocol");
    let is_forwarded = keys.flag("use-forwarded-headers");
    if !(is_forwarded || has_proxy || keys.flag("enable-real-ip")) {
        return String::new();
    }
    let helper = keys.text("forwarded-for-proxy-protocol-header");
    let source = match (has_proxy, is_forwarded) {
        (true, true) => &*helper,
        (true, false) => "proxy_protocol",
        (false, _) => header,
    };
    let from = real_ip(keys);
    format!("real_ip_header {source};\n        real_ip_recursive on;\n        {from}")
}

/// What is said about `X-Forwarded-*` of the peers that `proxy-real-ip-cidr` names.
struct Forwarded {
    /// Blocks of the level of `http`.
    peers: String,
    believed: String,
    /// What endpoints get as `X-Forwarded-For`.
    forwarded_for: String,
}

fn forwarded(keys: &StaticConfig, header: &str) -> Forwarded {
    let (peers, believed) = Default::default();
    let mut all = Forwarded { peers, believed, forwarded_for: "$remote_addr".into() };
    if !keys.flag("use-forwarded-headers") {
        return all;
    }
    // Behind the PROXY protocol the proxy that writes headers is the one that the PROXY header names. A connection
    // that was handed over (TLS passthrough) is that one's already.
    let has_proxy = keys.flag("use-proxy-protocol");
    let peer = if has_proxy { "$forwarding_peer" } else { "$realip_remote_addr" };
    if has_proxy {
        all.peers = "map $proxy_protocol_addr $forwarding_peer {
        '' $realip_remote_addr;
        default $proxy_protocol_addr;
    }
    "
        .into();
    }
    let networks = keys.list("proxy-real-ip-cidr");
    let networks: Vec<_> = networks.iter().map(|one| format!("        {one} 1;\n")).collect();
    all.peers += &format!("geo {peer} $has_trusted_peer {{\n{}    }}", networks.concat());
    all.believed = "ingress_forwarded_headers $has_trusted_peer;".into();
    if has_proxy {
        let helper = keys.text("forwarded-for-proxy-protocol-header");
        all.believed += &format!("\n        ingress_proxied_client {helper} {header};");
    }
    if keys.flag("compute-full-forwarded-for") {
        all.peers += &format!(
            "
    map $has_trusted_peer $forwarded_by_trusted {{
        1 $http_x_forwarded_for;
    }}
    map $forwarded_by_trusted $full_x_forwarded_for {{
        default \"$forwarded_by_trusted, {peer}\";
        '' {peer};
    }}"
        );
        all.forwarded_for = "$full_x_forwarded_for".into();
    }
    all
}

/// The variable of a request header.
fn variable_of(header: &str) -> String {
    format!("$http_{}", header.to_ascii_lowercase().replace('-', "_"))
}
