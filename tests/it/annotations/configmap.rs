//! The main ConfigMap from a manifest to requests through a real nginx: what is data and what costs a reload.

use anyhow::{Context, Result, bail, ensure};
use openssl::ssl::{SslConnector, SslMethod, SslVerifyMode};
use oxigress_tests::client::{Address, Request, Response, send};
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

/// Leaves a ConfigMap behind as the controller role does, before nginx was ever started.
fn known_before(directory: &Directory) -> Result<()> {
    let (manifests, runtime) = (directory.join("manifests"), directory.join("run"));
    fs::create_dir_all(&manifests)?;
    fs::create_dir_all(&runtime)?;
    fs::write(
        manifests.join("settings.yaml"),
        config_map("settings", &[("server-tokens", "true")]),
    )?;
    let streams = r#"{"settings": {"server-tokens": "true"}}"#;
    Ok(fs::write(runtime.join("streams.json"), streams)?)
}

/// The line of nginx.conf about the key.
fn has_tokens(directory: &Directory) -> Result<bool> {
    Ok(fs::read_to_string(directory.join("run/nginx.conf"))?.contains("server_tokens on;"))
}

const STARTS_WITH_DEFAULTS: &str = "nginx starts with the defaults";

#[test]
fn a_configmap_that_is_known_before_the_first_start_holds_from_it() {
    pass("configmap-first-start", |directory| {
        known_before(directory)?;
        let shop = shop(directory)?;
        ensure!(has_tokens(directory)?, "{}", shop.controller.output_tail());
        for text in [STARTS_WITH_DEFAULTS, RELOADS] {
            ensure!(logged(&shop, text) == 0, "{}", shop.controller.output_tail());
        }
        Ok(())
    });
}

#[test]
fn values_that_nginx_refused_at_its_start_are_tried_again() {
    pass("configmap-again", |directory| {
        known_before(directory)?;
        // Stands before nginx and refuses what is tried, as long as it is told to.
        let (refusal, tries) = (directory.join("refusal"), directory.join("tries"));
        let nginx = directory.join("nginx");
        let script = format!(
            "#!/bin/sh\nif [ \"$1\" = -t ] && [ -e {0} ]; then\n  echo x >> {1}\n  cat {0} >&2\n  exit 1\nfi\nexec {2} \"$@\"\n",
            refusal.display(),
            tries.display(),
            dist::nginx()?.display()
        );
        fs::write(&refusal, "nginx: [emerg] planted\n")?;
        fs::write(&nginx, script)?;
        fs::set_permissions(&nginx, Permissions::from_mode(0o755))?;
        let flag = format!("--nginx-binary={}", nginx.display());
        let mut shop = shop_with(directory, &[flag])?;
        ensure!(logged(&shop, STARTS_WITH_DEFAULTS) == 1, "{}", shop.controller.output_tail());
        ensure!(!has_tokens(directory)?);
        shop.serves("shop.test", "/", "a")?;
        until("a second try", || {
            let count = fs::read_to_string(&tries)?.lines().count();
            ensure!(count >= 2, "{count} tries");
            Ok(())
        })?;
        ensure!(logged(&shop, "planted") == 1, "{}", shop.controller.output_tail());
        let workers = shop.controller.worker_pids();
        fs::remove_file(&refusal)?;
        until("the reload", || {
            ensure!(logged(&shop, RELOADS) == 1, "{}", shop.controller.output_tail());
            let pids = shop.controller.worker_pids();
            ensure!(!pids.is_empty() && pids.iter().all(|pid| !workers.contains(pid)), "{pids:?}");
            Ok(())
        })?;
        ensure!(has_tokens(directory)?);
        reload_with(&mut shop, &[("server-tokens", "false")])?;
        shop.serves("shop.test", "/", "a")
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
            let text = "the ConfigMap's former values of";
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

#[test]
fn all_samples_of_all_keys_are_taken_by_nginx_together() {
    pass("configmap-all", |directory| {
        let mut shop = shop(directory)?;
        let entries = [
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
        reload_with(&mut shop, &entries)?;
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

#[test]
fn forwarded_headers_are_believed_from_trusted_peers_only() {
    pass("configmap-trust", |directory| {
        let mut shop = shop(directory)?;
        let request = Request::get("shop.test", "/")
            .header("X-Forwarded-For", "203.0.113.7, 198.51.100.1")
            .header("X-Forwarded-Proto", "https")
            .header("X-Forwarded-Host", "outside.test")
            .header("X-Forwarded-Port", "8443");
        let untrusted = [
            "x-real-ip: 127.0.0.1",
            "x-forwarded-for: 127.0.0.1",
            "x-forwarded-proto: http",
            "x-forwarded-host: shop.test",
            "host: shop.test",
        ];
        has_lines(&told(&shop, &request)?, &untrusted)?;
        reload_with(
            &mut shop,
            &[("use-forwarded-headers", "true"), ("proxy-real-ip-cidr", "192.0.2.0/24")],
        )?;
        has_lines(&told(&shop, &request)?, &untrusted)?;
        let trusts = ("proxy-real-ip-cidr", "127.0.0.1,198.51.100.0/24");
        reload_with(&mut shop, &[("use-forwarded-headers", "true"), trusts])?;
        let trusted = [
            "x-real-ip: 203.0.113.7",
            "x-forwarded-proto: https",
            "x-scheme: https",
            "x-forwarded-host: outside.test",
            "x-forwarded-port: 8443",
            "host: outside.test",
            "x-original-forwarded-host: outside.test",
        ];
        let text = told(&shop, &request)?;
        has_lines(&text, &trusted)?;
        has_lines(&text, &["x-forwarded-for: 203.0.113.7"])?;
        let full = ("compute-full-forwarded-for", "true");
        reload_with(&mut shop, &[("use-forwarded-headers", "true"), trusts, full])?;
        let line = "x-forwarded-for: 203.0.113.7, 198.51.100.1, 127.0.0.1";
        has_lines(&told(&shop, &request)?, &[line])?;
        has_lines(&told(&shop, &Request::get("shop.test", "/"))?, &["x-forwarded-for: 127.0.0.1"])
    });
}

#[test]
fn what_clients_may_say_is_the_operators_to_decide() {
    pass("configmap-clients", |directory| {
        let mut shop = shop(directory)?;
        let request = Request::get("shop.test", "/")
            .header("Forwarded", "for=203.0.113.9")
            .header("X-Forwarded-Prefix", "/prefix")
            .header("X-Forwarded-Ssl", "on")
            .header("True-Client-IP", "203.0.113.9")
            .header("X-Team-Id", "1")
            .header("X-Other", "1");
        let says = |shop: &Shop, lines: &[&str], others: &[&str]| {
            let text = told(shop, &request)?;
            has_lines(&text, lines)?;
            let odd = others.iter().find(|line| text.contains(*line));
            ensure!(odd.is_none(), "{odd:?} in\n{text}");
            Ok(())
        };
        let (prefix, ssl, forwarded) =
            ("x-forwarded-prefix: /prefix", "x-forwarded-ssl: on", "forwarded: for=203.0.113.9");
        let (client, team) = ("true-client-ip: 203.0.113.9", "x-team-id: 1");
        says(&shop, &[client, team, "x-other: 1"], &[prefix, ssl, forwarded])?;
        reload_with(&mut shop, &[("keep-forwarded-headers", "X-Forwarded-Prefix")])?;
        says(&shop, &[client, team, prefix], &[ssl, forwarded])?;
        let trusts = [("use-forwarded-headers", "true"), ("proxy-real-ip-cidr", "127.0.0.1")];
        reload_with(&mut shop, &trusts)?;
        says(&shop, &[client, team, prefix, ssl, forwarded], &[])?;
        let entries =
            [("strip-request-headers", "common, X-Team-"), ("refuse-ambiguous-paths", "all")];
        reload_with(&mut shop, &entries)?;
        says(&shop, &["x-other: 1"], &[client, team, prefix, ssl, forwarded])?;
        for (path, status) in [
            ("/a/..;/b", 400),
            ("/a%2fb", 400),
            ("/a%5Cb", 400),
            ("/a//b", 400),
            ("/a;v=1/b?c=//..;/", 200),
        ] {
            shop.answers("shop.test", path, status)?;
        }
        reload_with(&mut shop, &[("server-tokens", "true")])?;
        shop.answers("shop.test", "/a/..;/b", 200)
    });
}

#[test]
fn a_proxy_that_ends_tls_stops_the_redirect_if_it_is_trusted() {
    pass("configmap-redirect", |directory| {
        let mut shop = shop(directory)?;
        shop.write("shop.yaml", "$SERVICE(shop: a)\n$INGRESS(shop: shop.test/ shop tls=tls)")?;
        let request = Request::get("shop.test", "/").header("X-Forwarded-Proto", "https");
        ensure!(get(&shop, &request)?.status == 308, "nobody is trusted");
        reload_with(&mut shop, &[("use-forwarded-headers", "true")])?;
        ensure!(get(&shop, &request)?.status == 200, "the proxy ended TLS");
        let plain =
            get(&shop, &Request::get("shop.test", "/").header("X-Forwarded-Host", "o.test"))?;
        ensure!(plain.status == 308, "{plain}");
        let location = plain.header("Location");
        ensure!(location.as_deref() == Some("https://o.test"), "{location:?}");
        Ok(())
    });
}

/// A request behind a PROXY header, as it is answered; `more` are lines of its head.
fn proxied_with(port: u16, header: &str, more: &str) -> Result<String> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let request = format!("GET / HTTP/1.1\r\nHost: shop.test\r\n{more}Connection: close\r\n\r\n");
    stream.write_all(format!("{header}{request}").as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

fn proxied(port: u16, header: &str) -> Result<String> {
    proxied_with(port, header, "")
}

#[test]
fn behind_a_trusted_proxy_and_the_proxy_protocol_the_client_is_whom_the_proxy_names() {
    pass("configmap-proxy-and-forwarded", |directory| {
        let shop = shop(directory)?;
        let port = shop.controller.http_port;
        let map = config_map(
            "settings",
            &[
                ("use-proxy-protocol", "true"),
                ("use-forwarded-headers", "true"),
                // The load balancer, and the proxies in front of it.
                ("proxy-real-ip-cidr", "127.0.0.1/32,203.0.113.0/24,2001:db8::/32"),
            ],
        );
        // The folder's barriers speak plain HTTP.
        shop.write_only("settings.yaml", &map)?;
        let (trusted, other) = ("TCP4 203.0.113.9 192.0.2.1", "TCP4 192.0.2.77 192.0.2.1");
        let (trusted_v6, other_v6) = ("TCP6 2001:db8::9 ::1", "TCP6 2001:db9::7 ::1");
        let named = "X-Forwarded-For: 198.51.100.7\r\n";
        // While the reload is under way, a worker of before may still take a connection.
        let tells = |from: &str, more: &str, lines: &[&str]| {
            until("what the endpoint is told", || {
                let answer = proxied_with(port, &format!("PROXY {from}\r\n"), more)?;
                has_lines(&answer, lines).with_context(|| format!("{from} {more:?}"))
            })
        };
        let list = "X-Forwarded-For: 192.0.2.66, 198.51.100.7, 203.0.113.8\r\n";
        let lines = "X-Forwarded-For: 192.0.2.66\r\nX-Forwarded-For: 198.51.100.7\r\n";
        for (from, more, client) in [
            (trusted, named, "198.51.100.7"),
            (trusted, list, "198.51.100.7"),
            (trusted, lines, "198.51.100.7"),
            (trusted, "X-Forwarded-For: 2001:db9::1\r\n", "2001:db9::1"),
            (trusted_v6, named, "198.51.100.7"),
            (trusted, "", "203.0.113.9"),
            (trusted, "X-Forwarded-For: nobody\r\n", "203.0.113.9"),
            (other, named, "192.0.2.77"),
            (other_v6, named, "2001:db9::7"),
            (other, "X-Forwarded-For-Proxy-Protocol: 198.51.100.7\r\n", "192.0.2.77"),
            (trusted, "X-Forwarded-For-Proxy-Protocol: 198.51.100.7\r\n", "203.0.113.9"),
        ] {
            let lines = [format!("x-real-ip: {client}"), format!("x-forwarded-for: {client}")];
            tells(&format!("{from} 5000 80"), more, &lines.each_ref().map(String::as_str))?;
        }
        let says_https = "X-Forwarded-Proto: https\r\n";
        tells(&format!("{trusted} 5000 80"), says_https, &["x-forwarded-proto: https"])?;
        tells(&format!("{other} 5000 80"), says_https, &["x-forwarded-proto: http"])?;
        // Nobody is named: the load balancer itself, as it asks for health.
        tells("UNKNOWN", named, &["x-real-ip: 198.51.100.7"])
    });
}

/// Does what [`proxied_with`] does over TLS.
fn proxied_tls(port: u16, header: &str, more: &str) -> Result<String> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.write_all(header.as_bytes())?;
    let mut connector = SslConnector::builder(SslMethod::tls_client())?;
    connector.set_verify(SslVerifyMode::NONE);
    let mut stream = connector.build().connect("shop.test", stream)?;
    write!(stream, "GET / HTTP/1.1\r\nHost: shop.test\r\n{more}Connection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

#[test]
fn a_connection_that_passthrough_has_handed_over_is_the_one_that_the_proxy_protocol_names() {
    pass("configmap-proxy-and-passthrough", |directory| {
        let inside = format!("--ssl-passthrough-proxy-port={}", free_port()?);
        let shop = shop_with(directory, &["--enable-ssl-passthrough".into(), inside])?;
        let map = config_map(
            "settings",
            &[
                ("use-proxy-protocol", "true"),
                ("use-forwarded-headers", "true"),
                ("proxy-real-ip-cidr", "127.0.0.1/32,203.0.113.0/24"),
            ],
        );
        shop.write_only("settings.yaml", &map)?;
        let more = "X-Forwarded-For: 198.51.100.7\r\nX-Forwarded-Port: 8443\r\n";
        for (from, client, named) in
            [("203.0.113.9", "198.51.100.7", "8443"), ("192.0.2.77", "192.0.2.77", "443")]
        {
            let header = format!("PROXY TCP4 {from} 192.0.2.1 5000 443\r\n");
            let lines = [format!("x-real-ip: {client}"), format!("x-forwarded-port: {named}")];
            until("what the endpoint is told", || {
                let answer = proxied_tls(shop.controller.https_port, &header, more)?;
                has_lines(&answer, &lines.each_ref().map(String::as_str))
            })?;
        }
        Ok(())
    });
}

#[test]
fn the_proxy_protocol_names_the_client_and_its_port() {
    pass("configmap-proxy-protocol", |directory| {
        let shop = shop(directory)?;
        let port = shop.controller.http_port;
        let header = |port| format!("PROXY TCP4 203.0.113.9 192.0.2.1 5000 {port}\r\n");
        ensure!(proxied(port, &header(80))?.starts_with("HTTP/1.1 400"), "nobody speaks PROXY yet");
        // The folder's barriers speak plain HTTP.
        let map = config_map("settings", &[("use-proxy-protocol", "true")]);
        shop.write_only("settings.yaml", &map)?;
        // While the reload is under way, a worker of before may still take a connection.
        let speaks = |named, lines: &[&str]| {
            until("PROXY", || {
                let answer = proxied(port, &header(named))?;
                ensure!(answer.starts_with("HTTP/1.1 200"), "{answer}");
                has_lines(&answer, lines)
            })
        };
        let lines = ["x-real-ip: 203.0.113.9", "x-forwarded-proto: https", "x-forwarded-port: 443"];
        speaks(443, &lines)?;
        speaks(80, &["x-forwarded-proto: http", "x-forwarded-port: 80"])?;
        ensure!(logged(&shop, RELOADS) == 1, "{}", shop.controller.output_tail());
        Ok(())
    });
}

#[test]
fn clients_are_kept_out_by_address_and_by_what_they_say() {
    pass("configmap-blocks", |directory| {
        let mut shop = shop(directory)?;
        let by = |name: &str, value: &str| Request::get("shop.test", "/").header(name, value);
        let lists = [("block-user-agents", "Bad Bot,~*^curl/"), ("block-referers", "~spam\\.test")];
        shop.write("settings.yaml", &config_map("settings", &lists))?;
        for (request, status) in [
            (by("User-Agent", "bad bot"), 403),
            (by("User-Agent", "CURL/8"), 403),
            (by("Referer", "http://spam.test/"), 403),
            (by("User-Agent", "a bad bot"), 200),
            (by("Referer", "http://spamatest/"), 200),
        ] {
            let answer = get(&shop, &request)?;
            ensure!(answer.status == status, "{request}\n{answer}");
        }
        ensure!(logged(&shop, RELOADS) == 0, "lists are data");
        // What cannot be read closes.
        shop.write("settings.yaml", &config_map("settings", &[("block-user-agents", "~(")]))?;
        shop.answers("shop.test", "/", 503)?;
        shop.write("settings.yaml", &config_map("settings", &[("block-referers", "")]))?;
        shop.answers("shop.test", "/", 200)?;
        let map = config_map("settings", &[("block-cidrs", "127.0.0.1")]);
        shop.write_only("settings.yaml", &map)?;
        until("the block", || shop.answers("shop.test", "/", 403))
    });
}
