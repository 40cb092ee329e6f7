//! Directives of nginx.conf's other levels: each is named with what says the same.
//!
//! Source:  ingress-nginx's template, which has keys of the ConfigMap for most of them.

use oxigress_settings::grammar::directives::Directive;
use oxigress_settings::key::How;
use oxigress_settings::keys;

/// What stands in place of directives whose names are not those of keys.
const REMEDIES: [(&str, &str); 38] = [
    ("allow", "TCP and UDP services stay open to all: use a NetworkPolicy"),
    ("access_log", "use the keys http-access-log-path and access-log-params"),
    ("client_max_body_size", "use the key proxy-body-size"),
    ("deny", "TCP and UDP services stay open to all: use a NetworkPolicy"),
    ("env", "nothing here reads the environment: remove it"),
    ("error_log", "use the keys error-log-path and error-log-level"),
    ("events", "use the key max-worker-connections"),
    ("geo", "use allow and deny, or if with $remote_addr, in server-snippet"),
    ("gzip", "use the key use-gzip"),
    ("gzip_comp_level", "use the key gzip-level"),
    ("include", "no files are read: write out what it has"),
    ("keepalive_requests", "use the key keep-alive-requests"),
    ("keepalive_timeout", "use the key keep-alive"),
    ("limit_conn", "use the annotation limit-connections"),
    ("limit_conn_zone", "use the annotation limit-connections"),
    ("limit_req", "use the annotations limit-rps and limit-rpm"),
    ("limit_req_zone", "use the annotations limit-rps and limit-rpm"),
    ("load_module", "no other module is loaded: remove it"),
    ("log_format", "use the key log-format-upstream, or log-format-stream"),
    ("map", "use set and if in server-snippet"),
    ("proxy_cache_path", "nothing is cached: remove it"),
    ("proxy_responses", "use the key proxy-stream-responses"),
    ("proxy_timeout", "use the key proxy-stream-timeout"),
    ("real_ip_header", "use the keys use-forwarded-headers and forwarded-for-header"),
    ("real_ip_recursive", "use the key use-forwarded-headers"),
    ("resolver", "the controller looks names up: remove it"),
    ("resolver_timeout", "the controller looks names up: remove it"),
    ("server", "use an Ingress, or a port of the ConfigMap of TCP or UDP services"),
    ("server_names_hash_bucket_size", "use the key server-name-hash-bucket-size"),
    ("server_names_hash_max_size", "use the key server-name-hash-max-size"),
    ("set_real_ip_from", "use the key proxy-real-ip-cidr"),
    ("split_clients", "use an Ingress with canary-weight"),
    ("underscores_in_headers", "use the key enable-underscores-in-headers"),
    ("upstream", "use a Service"),
    ("worker_connections", "use the key max-worker-connections"),
    ("worker_priority", "set the priority of the container: remove it"),
    ("worker_rlimit_core", "set the limit of the container: remove it"),
    ("worker_rlimit_nofile", "use the key max-worker-open-files"),
];

/// Directives of the http level that keep nobody out by themselves: what defines something, and how nginx works.
const DEFINITIONS: [&str; 39] = [
    "aio",
    "aio_write",
    "client_body_temp_path",
    "directio",
    "env",
    "geo",
    "init_by_lua_block",
    "init_worker_by_lua_block",
    "limit_conn_log_level",
    "limit_conn_status",
    "limit_conn_zone",
    "limit_req_log_level",
    "limit_req_status",
    "limit_req_zone",
    "log_format",
    "lua_package_cpath",
    "lua_package_path",
    "lua_shared_dict",
    "map",
    "merge_slashes",
    "open_file_cache",
    "open_file_cache_valid",
    "output_buffers",
    "postpone_output",
    "proxy_cache_path",
    "proxy_temp_path",
    "real_ip_recursive",
    "reset_timedout_connection",
    "resolver",
    "resolver_timeout",
    "sendfile",
    "server",
    "split_clients",
    "ssl_buffer_size",
    "ssl_session_cache",
    "ssl_session_timeout",
    "tcp_nodelay",
    "tcp_nopush",
    "upstream",
];

/// What says the same as a directive.
pub fn remedy(name: &str) -> String {
    if let Some((_, remedy)) = REMEDIES.iter().find(|(known, _)| *known == name) {
        return (*remedy).to_owned();
    }
    let key = name.replace('_', "-");
    let is_served = |key: &&oxigress_settings::key::Key| {
        !matches!(key.how, How::Unsupported(_)) && !key.name.ends_with("-snippet")
    };
    match keys::find(&key).filter(is_served) {
        Some(key) => format!("use the key {}", key.name),
        None => "no key says it: remove it".to_owned(),
    }
}

/// A directive of the http level without what stands in its block, if that says nothing about requests by itself.
pub fn bare(directive: &Directive) -> Directive {
    match DEFINITIONS.contains(&&*directive.name) || directive.name == "types" {
        true => Directive { block: None, ..directive.clone() },
        false => directive.clone(),
    }
}

/// Whether a directive of the http level only defines something, or is about nginx itself.
pub fn is_definition(name: &str) -> bool {
    DEFINITIONS.contains(&name)
        || name.ends_with("_hash_max_size")
        || name.ends_with("_hash_bucket_size")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directive_has_the_key_that_says_it() {
        for (name, expected) in [
            ("worker_processes", "use the key worker-processes"),
            ("ssl_protocols", "use the key ssl-protocols"),
            ("keepalive_timeout", "use the key keep-alive"),
            ("map", "use set and if in server-snippet"),
            ("brotli_types", "use the key brotli-types"),
            ("http_snippet", "no key says it: remove it"),
            ("perl_modules", "no key says it: remove it"),
        ] {
            assert_eq!(remedy(name), expected, "{name}");
        }
        let keys = REMEDIES.iter().flat_map(|(_, remedy)| remedy.split([' ', ',', ':']));
        let keys = keys.filter(|word| word.contains('-') && !word.contains("-snippet"));
        let others = ["limit-connections", "limit-rps", "limit-rpm", "canary-weight"];
        for key in keys.filter(|word| !others.contains(word)) {
            assert!(keys::find(key).is_some(), "{key}");
        }
    }
}
