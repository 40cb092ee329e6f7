//! The main ConfigMap from a manifest to requests through a real nginx: what is data and what costs a reload.

mod clients;
mod compression;
mod names;
mod routes;
mod start;
mod tickets;

use anyhow::{Context, Result, bail, ensure};
use openssl::ssl::{SslConnector, SslMethod, SslVerifyMode};
use oxigress_tests::client::{Address, Request, Response, send, send_raw};
use oxigress_tests::controller::Controller;
use oxigress_tests::dist;
use oxigress_tests::load::{Closes, Load, Plan};
use oxigress_tests::pass;
use oxigress_tests::place::{Directory, free_port};
use oxigress_tests::shop::Shop;
use oxigress_tests::wait::{block_on, until};
use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

/// What the log says before a reload.
const RELOADS: &str = "reloads once, gracefully";

fn shop(directory: &Directory) -> Result<Shop> {
    shop_with(directory, &[])
}

fn shop_with(directory: &Directory, flags: &[String]) -> Result<Shop> {
    let flags = [&["--configmap=default/settings".to_owned()], flags].concat();
    let mut shop =
        Shop::new(Controller::start(directory, 2, &flags)?, &["a"], &[("shop", "shop.test")])?;
    shop.write("secret.yaml", "$SECRET(tls: shop)")?;
    shop.write("shop.yaml", "$SERVICE(shop: a)\n$INGRESS(shop: shop.test/ shop)")?;
    Ok(shop)
}

fn config_map(name: &str, entries: &[(&str, &str)]) -> String {
    let mut text = format!(
        "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{ name: {name}, namespace: default }}\ndata:\n"
    );
    for (key, value) in entries {
        text += &format!("  {key}: {}\n", serde_json::Value::from(*value));
    }
    text
}

fn logged(shop: &Shop, text: &str) -> usize {
    shop.controller.error_log().matches(text).count()
}

/// Writes the ConfigMap and waits for the workers of the reload that it costs.
fn reload_with(shop: &mut Shop, entries: &[(&str, &str)]) -> Result<()> {
    let (before, workers) = (logged(shop, RELOADS), shop.controller.worker_pids());
    shop.write("settings.yaml", &config_map("settings", entries))?;
    until("one announced reload", || {
        let now = logged(shop, RELOADS);
        ensure!(now == before + 1, "{} reloads\n{}", now - before, shop.controller.output_tail());
        let pids = shop.controller.worker_pids();
        ensure!(!pids.is_empty() && pids.iter().all(|pid| !workers.contains(pid)), "{pids:?}");
        Ok(())
    })
}

fn get(shop: &Shop, request: &Request) -> Result<Response> {
    block_on(send(&Address::http(shop.controller.http_port), request))
}

/// What the endpoint was told.
fn told(shop: &Shop, request: &Request) -> Result<String> {
    let response = get(shop, request)?;
    ensure!(response.status == 200, "{response}");
    Ok(String::from_utf8_lossy(&response.body).into())
}

fn has_lines(text: &str, lines: &[&str]) -> Result<()> {
    match lines.iter().find(|line| !text.lines().any(|l| l.trim_end().eq_ignore_ascii_case(line))) {
        Some(line) => bail!("no line {line:?} in\n{text}"),
        None => Ok(()),
    }
}

#[test]
fn data_costs_no_reload_and_nginx_conf_one_and_no_request_is_lost() {
    pass("configmap-load", |directory| {
        let mut shop = shop(directory)?;
        let plan = Plan {
            pace: Duration::from_millis(10),
            closes: Closes::Unanswered,
            ..Plan::new(
                Address::http(shop.controller.http_port),
                vec![Request::get("shop.test", "/").header("X-A", "b")],
                8,
            )
        };
        let load = Load::start(plan)?;
        let workers = shop.controller.worker_pids();
        let data: &[&[(&str, &str)]] = &[
            &[("hsts-max-age", "60")],
            &[
                ("http-redirect-code", "301"),
                ("proxy-body-size", "8m"),
                ("proxy-read-timeout", "90"),
            ],
            &[("block-user-agents", "bad,~*^curl/"), ("custom-http-errors", "404,503")],
            &[("no-such-key", "1"), ("worker-processes", "many"), ("http-snippet", "env A;")],
        ];
        for entries in data {
            shop.write("settings.yaml", &config_map("settings", entries))?;
            load.wait_for(20)?;
        }
        ensure!(logged(&shop, RELOADS) == 0, "data cost a reload");
        ensure!(shop.controller.worker_pids() == workers, "data cost the workers");
        for keep_alive in ["70", "65"] {
            reload_with(&mut shop, &[("keep-alive", keep_alive), ("use-gzip", "true")])?;
            load.wait_for(50)?;
        }
        let report = load.stop();
        ensure!(report.failed == 0, "{report:?}");
        ensure!(report.answered > 100, "{report:?}");
        Ok(())
    });
}

#[test]
fn the_upstream_s_name_is_the_same_in_logs_and_headers() {
    pass("configmap-names", |directory| {
        let mut shop = shop(directory)?;
        let text =
            "$proxy_host and $proxy_upstream_name, $the_real_ip and $remote_addr for $request_uri";
        let headers = config_map("headers", &[("X-Upstream", "$proxy_host at $pass_server_port")]);
        shop.write("headers.yaml", &headers)?;
        let entries = [("log-format-upstream", text), ("proxy-set-headers", "default/headers")];
        reload_with(&mut shop, &entries)?;
        let seen = told(&shop, &Request::get("shop.test", "/names"))?;
        let port = shop.controller.http_port;
        has_lines(&seen, &[&format!("x-upstream: default-shop-80 at {port}")])?;
        until("a line of the access log", || {
            let line = "default-shop-80 and default-shop-80, 127.0.0.1 and 127.0.0.1 for /names";
            ensure!(logged(&shop, line) == 1, "{}", shop.controller.output_tail());
            Ok(())
        })
    });
}

/// What routes is the target's host, so the log must not tell of another.
#[test]
fn the_access_log_has_the_host_of_an_absolute_target() {
    pass("configmap-absolute", |directory| {
        let mut shop = shop(directory)?;
        let format = "host $host, header $http_host, best $best_http_host of $namespace";
        reload_with(&mut shop, &[("log-format-upstream", format)])?;
        let request = b"GET http://shop.test/ HTTP/1.1\r\nHost: admin.test\r\n\r\n";
        let http = Address::http(shop.controller.http_port);
        let answers = block_on(send_raw(&http, request, 1))?;
        ensure!(answers.iter().map(|answer| answer.status).eq([200]), "{answers:?}");
        until("a line of the access log", || {
            let line = "host shop.test, header shop.test, best shop.test of default";
            ensure!(logged(&shop, line) == 1, "{}", shop.controller.output_tail());
            Ok(())
        })?;
        ensure!(logged(&shop, "admin.test") == 0, "{}", shop.controller.output_tail());
        Ok(())
    });
}

#[test]
fn responses_have_no_server_header_unless_server_tokens_says_so() {
    pass("configmap-server", |directory| {
        let mut shop = shop(directory)?;
        let raw = |shop: &Shop, head: &str| -> Result<String> {
            use std::io::{Read, Write};
            let mut client =
                std::net::TcpStream::connect(("127.0.0.1", shop.controller.http_port))?;
            client.write_all(head.as_bytes())?;
            let mut answer = String::new();
            client.read_to_string(&mut answer)?;
            Ok(answer.to_ascii_lowercase())
        };
        // An endpoint's answer, nginx's own page, and one to what is no request.
        let served = "GET / HTTP/1.1\r\nHost: shop.test\r\nConnection: close\r\n\r\n";
        let heads = [
            served,
            "GET / HTTP/1.1\r\nHost: none.test\r\nConnection: close\r\n\r\n",
            "GET\r\n\r\n",
        ];
        for head in heads {
            let answer = raw(&shop, head)?;
            ensure!(
                answer.starts_with("http/1.1 ") && !answer.contains("\nserver:"),
                "{head}: {answer}"
            );
        }
        reload_with(&mut shop, &[("server-tokens", "true")])?;
        let answer = raw(&shop, served)?;
        ensure!(answer.contains("\nserver: nginx/"), "{answer}");
        Ok(())
    });
}

#[test]
fn html_alone_is_compressed_where_the_key_names_nothing_else() {
    pass("configmap-gzip", |directory| {
        let mut shop = shop(directory)?;
        let compressed = |shop: &Shop, kind: &str| -> Result<bool> {
            let request = Request::get("shop.test", "/")
                .header("Accept-Encoding", "gzip")
                .header("Answer-Content-Type", kind);
            let answer = get(shop, &request)?;
            ensure!(answer.status == 200, "{answer}");
            Ok(answer.header("content-encoding").as_deref() == Some("gzip"))
        };
        let base = [("use-gzip", "true"), ("gzip-min-length", "1")];
        for (types, css) in [("text/html", false), ("text/html text/css", true)] {
            reload_with(&mut shop, &[&base[..], &[("gzip-types", types)]].concat())?;
            ensure!(compressed(&shop, "text/html")?, "{types}");
            ensure!(compressed(&shop, "text/css")? == css, "{types}");
        }
        Ok(())
    });
}

#[test]
fn a_value_that_nginx_refuses_leaves_the_last_good_ones_and_all_else() {
    pass("configmap-refused", |directory| {
        let mut shop = shop(directory)?;
        // The form takes this, and nginx does not: the hash does not fit.
        let bad = ("variables-hash-max-size", "1");
        let refused = ("access-log-path", "/var/log/no/such/folder/a.log");
        reload_with(&mut shop, &[("server-tokens", "true")])?;
        let entries = [("server-tokens", "true"), bad, refused, ("hsts-max-age", "9")];
        shop.write("settings.yaml", &config_map("settings", &entries))?;
        until("the refusal", || {
            let text = "nginx refused the ConfigMap's values of";
            ensure!(logged(&shop, text) >= 1, "{}", shop.controller.output_tail());
            Ok(())
        })?;
        let answer = get(&shop, &Request::get("shop.test", "/none"))?;
        ensure!(answer.status == 200, "{answer}");
        shop.write("late.yaml", "$SERVICE(late: a)\n$INGRESS(late: late.test/ late)")?;
        shop.serves("late.test", "/", "a")?;
        reload_with(&mut shop, &[("server-tokens", "false")])?;
        shop.serves("late.test", "/", "a")
    });
}

const SAMPLES: [(&str, &str); 68] = [
    ("access-log-path", "/dev/stdout"),
    ("access-log-params", "buffer=32k flush=1s"),
    ("skip-access-log-urls", "/healthz,/metrics?x=1"),
    (
        "log-format-upstream",
        r#"{"at": "$time_iso8601", "s": "$status", "a": {"b": "${http_x_a}"}}"#,
    ),
    ("log-format-escape-json", "true"),
    ("error-log-level", "info"),
    ("worker-processes", "2"),
    ("worker-cpu-affinity", "auto"),
    ("worker-shutdown-timeout", "1m"),
    ("max-worker-connections", "1024"),
    ("max-worker-open-files", "4096"),
    ("enable-multi-accept", "false"),
    ("enable-aio-write", "false"),
    ("keep-alive", "10"),
    ("keep-alive-requests", "9"),
    ("client-header-buffer-size", "2k"),
    ("client-header-timeout", "9"),
    ("large-client-header-buffers", "4 16k"),
    ("client-body-buffer-size", "16k"),
    ("client-body-timeout", "9"),
    ("http2-max-concurrent-streams", "99"),
    ("grpc-buffer-size-kb", "8"),
    ("map-hash-bucket-size", "128"),
    ("proxy-headers-hash-max-size", "1024"),
    ("proxy-headers-hash-bucket-size", "128"),
    ("variables-hash-bucket-size", "512"),
    ("variables-hash-max-size", "4096"),
    ("default-type", "text/plain"),
    ("server-tokens", "true"),
    ("allow-backend-server-header", "true"),
    ("hide-headers", "X-Hidden,X-Endpoint-Requests"),
    ("enable-underscores-in-headers", "true"),
    ("ignore-invalid-headers", "false"),
    ("use-forwarded-headers", "true"),
    ("proxy-real-ip-cidr", "127.0.0.0/8,::1"),
    ("forwarded-for-header", "X-Client"),
    ("forwarded-host-header", "X-Host"),
    ("compute-full-forwarded-for", "true"),
    ("generate-request-id", "false"),
    ("proxy-add-original-uri-header", "true"),
    ("ssl-protocols", "TLSv1.3"),
    ("ssl-ciphers", "ECDHE-RSA-AES128-GCM-SHA256"),
    ("ssl-ecdh-curve", "X25519:P-256"),
    ("ssl-early-data", "true"),
    ("ssl-session-cache-size", "1m"),
    ("ssl-session-timeout", "1h"),
    ("ssl-session-tickets", "true"),
    ("ssl-buffer-size", "8k"),
    ("use-http2", "false"),
    ("use-gzip", "true"),
    ("gzip-level", "3"),
    ("gzip-min-length", "1"),
    ("gzip-types", "text/html text/plain application/json"),
    ("gzip-disable", "msie6"),
    ("enable-brotli", "true"),
    ("brotli-level", "6"),
    ("brotli-min-length", "1"),
    ("brotli-types", "text/html text/plain application/json"),
    ("enable-auth-access-log", "true"),
    ("upstream-keepalive-connections", "0"),
    ("upstream-keepalive-time", "2h"),
    ("upstream-keepalive-timeout", "9"),
    ("upstream-keepalive-requests", "99"),
    ("block-cidrs", "192.0.2.0/24,2001:db8::/32"),
    ("keep-forwarded-headers", "X-Forwarded-Prefix,Forwarded"),
    ("strip-request-headers", "common,X-Team-"),
    ("refuse-ambiguous-paths", "parameters backslashes"),
    ("proxy-stream-timeout", "9s"),
];

#[test]
fn all_samples_of_all_keys_are_taken_by_nginx_together() {
    pass("configmap-all", |directory| {
        let mut shop = shop(directory)?;
        reload_with(&mut shop, &SAMPLES)?;
        let request = Request::get("shop.test", "/x?y=1")
            .header("X-Client", "203.0.113.9")
            .header("X-Request-ID", "mine")
            .header("under_score", "1");
        let text = told(&shop, &request)?;
        has_lines(
            &text,
            &[
                "x-real-ip: 203.0.113.9",
                "x-original-forwarded-for: 203.0.113.9",
                "x-original-uri: /x?y=1",
                "x-request-id: mine",
                "under_score: 1",
            ],
        )?;
        let answer = get(&shop, &Request::get("shop.test", "/"))?;
        ensure!(answer.header("X-Endpoint-Requests").is_none(), "{answer}");
        until("the log format", || {
            let line = r#""s": "200", "a": {"b": "seen"}}"#;
            get(&shop, &Request::get("shop.test", "/").header("X-A", "seen"))?;
            ensure!(logged(&shop, line) > 0, "{}", shop.controller.output_tail());
            Ok(())
        })
    });
}
