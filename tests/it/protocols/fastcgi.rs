//! FastCGI: what a responder is told.

use anyhow::{Context, Result, ensure};
use oxigress_tests::client::{self, Address, Connection, Request, Response};
use oxigress_tests::pass;
use oxigress_tests::protocol::fastcgi::FastcgiEndpoint;
use oxigress_tests::protocol::upload;
use oxigress_tests::shipped::{Route, Shipped};
use oxigress_tests::wait::block_on;
use serde_json::{Value, json};

const HOST: &str = "php.test";

/// The value of a parameter that is there once; `None`: it is not there.
fn parameter(answer: &Response, name: &str) -> Result<Option<String>> {
    let text = answer.text();
    let prefix = format!("{name}=");
    let head = text.split("\n\n").next().unwrap_or_default();
    let values: Vec<_> = head.lines().filter_map(|line| line.strip_prefix(&prefix)).collect();
    ensure!(values.len() <= 1, "{name} stands {} times in\n{text}", values.len());
    Ok(values.first().map(|value| (*value).to_owned()))
}

fn expect(answer: &Response, expected: &[(&str, Option<&str>)]) -> Result<()> {
    ensure!(answer.status == 200, "{answer}");
    for (name, value) in expected {
        let found = parameter(answer, name)?;
        ensure!(found.as_deref() == *value, "{name}: {found:?}, not {value:?}, in\n{answer}");
    }
    Ok(())
}

fn send(address: &Address, request: &Request) -> Result<Response> {
    block_on(client::send(address, request))
}

#[test]
fn an_interim_status_is_no_response() {
    pass("fastcgi-interim", |directory| {
        let nginx = Shipped::start(directory, 1)?;
        let php = FastcgiEndpoint::start("php")?;
        nginx.serve(&[Route::new(HOST, php.listener.address, "fastcgi")])?;
        for status in [100, 103, 199] {
            let answer = send(&nginx.address(), &Request::get(HOST, &format!("/status/{status}")))?;
            ensure!(answer.status == 502, "{status}: {answer}");
        }
        Ok(())
    });
}

/// nginx goes through the list of such lines at each: an endpoint would keep a worker for seconds.
#[test]
fn a_head_of_more_than_2000_lines_is_not_read() {
    pass("fastcgi-lines", |directory| {
        let nginx = Shipped::start(directory, 1)?;
        let php = FastcgiEndpoint::start("php")?;
        let proxy = json!({"protocol": "fastcgi", "buffer_bytes": 1 << 20});
        nginx.serve(&[Route::with(HOST, php.listener.address, proxy)])?;
        for (lines, status) in [(90, 200), (3_000, 502), (90, 200)] {
            let answer = send(&nginx.address(), &Request::get(HOST, &format!("/lines/{lines}")))?;
            ensure!(answer.status == status, "{lines}: {answer}");
        }
        let log = nginx.log();
        ensure!(log.contains("a response head has more than 2000 lines"), "{log}");
        Ok(())
    });
}

#[test]
fn a_responder_sees_the_request_and_its_connection_is_kept() {
    pass("fastcgi-params", |directory| {
        let nginx = Shipped::start(directory, 1)?;
        let php = FastcgiEndpoint::start("php")?;
        nginx.serve(&[Route::new(HOST, php.listener.address, "fastcgi")])?;

        let request = Request::get(HOST, "/shop/./a%20b.php?x=1&y=%20")
            .header("User-Agent", "test")
            .header("Proxy", "http://evil.test")
            .header("X-Forwarded-For", "203.0.113.9")
            .header("X-Forwarded-Proto", "https")
            .header("X-Forwarded-Prefix", "/evil")
            .header("X-Real-IP", "203.0.113.9")
            .header("X-Original-URL", "/evil")
            .header("X-Many", "one")
            .header("X-Many", "two");
        let plain = send(&nginx.address(), &request)?;
        expect(
            &plain,
            &[
                ("REQUEST_METHOD", Some("GET")),
                ("REQUEST_URI", Some("/shop/./a%20b.php?x=1&y=%20")),
                ("QUERY_STRING", Some("x=1&y=%20")),
                ("SCRIPT_NAME", Some("/shop/a b.php")),
                ("DOCUMENT_URI", Some("/shop/a b.php")),
                ("CONTENT_LENGTH", Some("")),
                ("REQUEST_SCHEME", Some("http")),
                ("HTTPS", None),
                ("SERVER_PROTOCOL", Some("HTTP/1.1")),
                ("GATEWAY_INTERFACE", Some("CGI/1.1")),
                ("SERVER_NAME", Some(HOST)),
                ("REMOTE_ADDR", Some("127.0.0.1")),
                ("REDIRECT_STATUS", Some("200")),
                ("HTTP_HOST", Some(HOST)),
                ("HTTP_USER_AGENT", Some("test")),
                ("HTTP_X_MANY", Some("one, two")),
                ("HTTP_PROXY", None),
                ("HTTP_X_FORWARDED_FOR", Some("127.0.0.1")),
                ("HTTP_X_FORWARDED_PROTO", Some("http")),
                ("HTTP_X_FORWARDED_PREFIX", None),
                ("HTTP_X_REAL_IP", Some("127.0.0.1")),
                ("HTTP_X_ORIGINAL_URL", None),
                ("HTTP_CDN_LOOP", Some("oxigress")),
            ],
        )?;
        let secure = send(&nginx.tls_address(HOST), &Request::get(HOST, "/"))?;
        expect(&secure, &[("HTTPS", Some("on")), ("REQUEST_SCHEME", Some("https"))])?;

        let missing = send(&nginx.address(), &Request::get(HOST, "/status/404"))?;
        ensure!(missing.status == 404, "{missing}");
        ensure!(php.requests() == 3 && php.listener.connections() == 1, "a connection each time");
        nginx.check()
    });
}

#[test]
fn bodies_of_every_kind_arrive_as_they_were_sent() {
    pass("fastcgi-bodies", |directory| {
        let nginx = Shipped::start(directory, 1)?;
        let php = FastcgiEndpoint::start("php")?;
        let own = json!([{"name": "OWN", "value": "$request_method"}]);
        let any = |more: Value| {
            let mut proxy = json!({"protocol": "fastcgi", "max_body_bytes": 0});
            proxy
                .as_object_mut()
                .context("an object")?
                .extend(more.as_object().cloned().unwrap_or_default());
            anyhow::Ok(proxy)
        };
        nginx.serve(&[
            Route::with("a.test", php.listener.address, any(json!({}))?),
            Route::with("b.test", php.listener.address, any(json!({"request_buffering": false}))?),
            Route::with("c.test", php.listener.address, any(json!({"fastcgi_params": own}))?),
            Route::with(
                "d.test",
                php.listener.address,
                any(json!({"fastcgi_params": own, "request_buffering": false}))?,
            ),
        ])?;
        for host in ["a.test", "b.test", "c.test", "d.test"] {
            for length in [1, 7, 8, 32 * 1024, 300_001] {
                let body = upload::body(length);
                let letters: String = body.iter().map(|b| char::from(b'a' + b % 26)).collect();
                let request = Request::new("POST", host, "/form")
                    .header("Content-Type", "text/letters")
                    .body(letters.clone());
                let answer = send(&nginx.address(), &request)?;
                let described = || format!("{length} bytes for {host}");
                let length = length.to_string();
                expect(
                    &answer,
                    &[
                        ("CONTENT_LENGTH", Some(length.as_str())),
                        ("CONTENT_TYPE", Some("text/letters")),
                        ("OWN", (host > "b.test").then_some("POST")),
                    ],
                )
                .with_context(described)?;
                let text = answer.text();
                let arrived = text.split_once("\n\n").map(|(_, body)| body);
                ensure!(arrived == Some(letters.as_str()), "{} arrived otherwise", described());
            }
            let chunked = format!(
                "POST / HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\n\
                 Connection: close\r\n\r\n3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n"
            );
            let answers = block_on(client::send_raw(&nginx.address(), chunked.as_bytes(), 1))?;
            let answer = answers.first().context("an answer")?;
            ensure!(answer.status == 200 && answer.text().ends_with("\n\nabcdefg"), "{answer}");
        }
        nginx.check()
    });
}

fn own_parameters() -> Value {
    json!({
        "protocol": "fastcgi",
        "fastcgi_index": "index.php",
        "fastcgi_params": [
            {"name": "SCRIPT_FILENAME", "value": "/srv/app$fastcgi_script_name"},
            {"name": "REQUEST_METHOD", "value": "WHATEVER"},
            {"name": "HTTP_X_USER", "value": "alice"},
            {"name": "HTTP_X_GONE", "value": "$arg_none"},
            {"name": "FROM_QUERY", "value": "<${arg_q}>"},
            {"name": "FROM_PATH", "value": "$uri"},
        ]
    })
}

#[test]
fn index_and_parameters_of_a_route_take_the_places_of_others() {
    pass("fastcgi-own", |directory| {
        let nginx = Shipped::start(directory, 1)?;
        let (php, gone) = (FastcgiEndpoint::start("php")?, FastcgiEndpoint::start("gone")?);
        let gone_address = gone.listener.address;
        drop(gone);
        nginx.serve(&[
            Route {
                endpoints: vec![gone_address, php.listener.address],
                ..Route::with(HOST, php.listener.address, own_parameters())
            },
            Route::new("other.test", php.listener.address, "fastcgi"),
        ])?;
        let mut client = block_on(Connection::open(&nginx.address()))?;
        // Each endpoint gets its turn, and what one was to be told the next one is told.
        for _ in 0..4 {
            let request = Request::get(HOST, "/blog/?q=$1$uri")
                .header("X-User", "mallory")
                .header("X-Gone", "still there")
                .header("X-Other", "passes");
            let answer = block_on(client.send(&request))?;
            expect(
                &answer,
                &[
                    ("SCRIPT_NAME", Some("/blog/index.php")),
                    ("SCRIPT_FILENAME", Some("/srv/app/blog/index.php")),
                    ("REQUEST_METHOD", Some("WHATEVER")),
                    ("REQUEST_URI", Some("/blog/?q=$1$uri")),
                    ("HTTP_X_USER", Some("alice")),
                    ("HTTP_X_GONE", None),
                    ("HTTP_X_OTHER", Some("passes")),
                    // What a client says is no template.
                    ("FROM_QUERY", Some("<$1$uri>")),
                    ("FROM_PATH", Some("/blog/")),
                ],
            )?;
        }
        let file = block_on(client.send(&Request::get(HOST, "/a.php")))?;
        expect(&file, &[("SCRIPT_FILENAME", Some("/srv/app/a.php"))])?;
        // A line break in a path would end a line for whoever writes the value out.
        let broken = block_on(client.send(&Request::get(HOST, "/a%0Ab")))?;
        expect(&broken, &[("FROM_PATH", None), ("SCRIPT_FILENAME", None)])?;
        // Another route's.
        let other = block_on(client.send(&Request::get("other.test", "/blog/")))?;
        expect(
            &other,
            &[
                ("SCRIPT_NAME", Some("/blog/")),
                ("SCRIPT_FILENAME", None),
                ("REQUEST_METHOD", Some("GET")),
            ],
        )?;
        nginx.check()
    });
}
