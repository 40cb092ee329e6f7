//! What an auth server answers, and what becomes of the request.

use super::*;

#[test]
fn only_the_auth_server_lets_in() {
    pass("auth-verdicts", |directory| {
        let fixture =
            fixture(directory, |plan| plan.location_config = "proxy_intercept_errors on;".into())?;
        fixture.put(&[("a.test", json!({"external": external(json!({}))}))])?;
        for (status, expected) in [
            (200, 200),
            (202, 200),
            (204, 200),
            (401, 401),
            (403, 403),
            (302, 500),
            (304, 500),
            (400, 500),
            (404, 500),
            (429, 500),
            (500, 500),
            (503, 500),
        ] {
            fixture.auth.set(say(status, "Location: /elsewhere\r\n"));
            fixture.expect("a.test", "/", expected)?;
            ensure!(fixture.auth.heard().len() == 1, "{status}");
        }
        // No rule of another host asks.
        fixture.auth.set(say(401, ""));
        fixture.expect("open.test", "/", 200)?;
        ensure!(fixture.auth.heard().is_empty());
        // The body of an answer is nobody's.
        for status in [200, 401, 403] {
            for said in [length(status, 7, "SECRETS"), chunked(status, "7\r\nSECRETS\r\n0\r\n\r\n")]
            {
                fixture.auth.set(Reply::Say(said));
                let answer = fixture.get("a.test", "/")?;
                ensure!(answer.status == status && !answer.text().contains("SECRETS"), "{answer}");
            }
        }
        // 401 says how to come in.
        fixture
            .auth
            .set(say(401, "WWW-Authenticate: Bearer realm=\"x\"\r\nWWW-Authenticate: Basic\r\n"));
        let response = fixture.expect("a.test", "/", 401)?;
        let all: Vec<_> = response.headers.get_all("www-authenticate").iter().collect();
        ensure!(all == ["Bearer realm=\"x\"", "Basic"], "{response}");
        fixture.auth.set(say(403, "WWW-Authenticate: Basic\r\n"));
        ensure!(fixture.expect("a.test", "/", 403)?.header("www-authenticate").is_none());
        fixture.site.nginx.check_error_log()
    });
}

#[test]
fn an_auth_server_that_is_ill_lets_nobody_in() {
    pass("auth-ill", |directory| {
        let fixture = fixture(directory, |_| ())?;
        fixture.put(&[("a.test", json!({"external": external(json!({}))}))])?;
        for garbage in
            ["hello\r\n\r\n", "HTTP/1.1 200\r\n", "HTTP/1.1 20", "HTTP/1.1 200 OK\r\nA: \0\r\n\r\n"]
        {
            fixture.auth.set(Reply::Say(garbage.into()));
            fixture.expect("a.test", "/", 500)?;
        }
        fixture.auth.set(Reply::Close);
        fixture.expect("a.test", "/", 500)?;
        // More than 64 KiB of headers.
        let long = format!("X: {}\r\n", "a".repeat(1000)).repeat(70);
        fixture.auth.set(say(200, &long));
        fixture.expect("a.test", "/", 500)?;
        let long = format!("X: {}\r\n", "a".repeat(1000)).repeat(50);
        fixture.auth.set(say(200, &long));
        fixture.expect("a.test", "/", 200)?;
        // The answer of another program to nginx.
        fixture.auth.set(say(401, "X-Accel-Redirect: /open\r\n"));
        fixture.expect("a.test", "/", 401)?;
        fixture.auth.set(say(500, "X-Accel-Redirect: /open\r\nX-Accel-Expires: 100\r\n"));
        fixture.expect("a.test", "/", 500)?;
        // It takes longer than the location waits (2 s in these tests).
        fixture.auth.set(Reply::Hold);
        fixture.expect("a.test", "/", 500)?;
        fixture.auth.set(say(200, ""));
        fixture.expect("a.test", "/", 200)?;
        // Nobody listens, no endpoint, no backend.
        let rule = |host: &str, backend: &str| json!({"rules": [{"path": {"prefix": "/"}, "backend": backend, "policies": host}]});
        let servers = json!({"down.test": rule("down", "a"), "none.test": rule("none", "a"), "gone.test": rule("gone", "a")});
        let to = |backend: &str| {
            let to = json!({"to": {"backend": backend, "host": "auth.test"}});
            json!({"access": {"external": external(to)}})
        };
        let policies = json!({"down": to("down"), "none": to("none"), "gone": to("gone")});
        let closed = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let endpoints = json!({
            "a": [fixture.endpoint.native()],
            "down": [{"address": "127.0.0.1", "port": closed}],
            "none": [],
        });
        fixture.put_all(&servers, &policies, &endpoints)?;
        for host in ["down.test", "none.test", "gone.test"] {
            fixture.expect(host, "/", 500)?;
        }
        fixture.site.nginx.check_error_log()
    });
}

#[test]
fn bodies_of_answers_are_dropped_and_short_ones_end_no_connection() {
    pass("auth-bodies", |directory| {
        let fixture = fixture(directory, |plan| {
            plan.http_config =
                "proxy_cache_path cache keys_zone=ingress_auth:1m use_temp_path=off;".into();
        })?;
        let host = |more| json!({"external": external(more)});
        // One host keeps the answers that say how long they are.
        let kept =
            json!({"cache": {"key": "$arg_user", "valid": [{"statuses": [200], "seconds": 60}]}});
        fixture.put(&[("a.test", host(json!({}))), ("kept.test", host(kept))])?;
        for (what, status, parts, is_kept) in said() {
            fixture.auth.set(say(200, ""));
            fixture.expect("a.test", "/", 200)?;
            fixture.auth.set(Reply::Parts(parts, 20));
            let before = fixture.auth.connections.load(Ordering::Relaxed);
            for _ in 0..10 {
                fixture.expect("a.test", "/", status).context(what)?;
            }
            let new = fixture.auth.connections.load(Ordering::Relaxed) - before;
            ensure!(if is_kept { new == 0 } else { new >= 9 }, "{what}: {new} new connections");
        }
        bodies_are_kept_with_answers(&fixture)?;
        // Nobody waits long for the rest of a body.
        fixture.auth.set(Reply::Parts(vec![length(200, 5, "he"), "llo".into()], 5_000));
        let began = std::time::Instant::now();
        fixture.expect("a.test", "/", 200)?;
        ensure!(began.elapsed().as_millis() < 2_000, "{:?}", began.elapsed());
        Ok(())
    });
}

fn length(status: u16, bytes: usize, body: &str) -> String {
    format!("HTTP/1.1 {status} X\r\nContent-Length: {bytes}\r\n\r\n{body}")
}

fn chunked(status: u16, chunks: &str) -> String {
    format!("HTTP/1.1 {status} X\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}")
}

/// The status that a client sees, what the auth server says, and whether its connection is kept.
fn said() -> Vec<(&'static str, u16, Vec<String>, bool)> {
    let long = "b".repeat(60_000);
    let all = |text: String| vec![text];
    let parts = |head: String, rest: &str| vec![head, rest.to_owned()];
    vec![
        ("with its head", 200, all(length(200, 5, "hello")), true),
        ("of a refusal", 403, all(length(403, 5, "hello")), true),
        ("behind its head", 200, parts(length(200, 5, ""), "hello"), true),
        ("in two parts", 200, parts(length(200, 5, "he"), "llo"), true),
        ("long", 200, all(length(200, long.len(), &long)), true),
        ("too long", 200, all(length(200, 70_000, &long)), false),
        ("chunked", 200, all(chunked(200, "5\r\nhello\r\n0\r\n\r\n")), true),
        ("chunked, of a refusal", 401, parts(chunked(401, "5\r\nhe"), "llo\r\n0\r\n\r\n"), true),
        ("chunked, behind its head", 200, parts(chunked(200, ""), "1\r\na\r\n0\r\n\r\n"), true),
        ("chunked and without an end", 200, all(chunked(200, "5\r\nhello\r\n")), false),
        ("chunked, with an odd chunk", 200, all(chunked(200, "x\r\n")), false),
        ("without an end", 200, all(length(200, 9, "hello")), false),
        ("longer than it says", 200, all(length(200, 2, "hello")), false),
        ("until the end", 200, all("HTTP/1.1 200 X\r\n\r\nhello".into()), false),
        (
            "last",
            200,
            all(format!("HTTP/1.1 200 X\r\nConnection: close\r\n{}", "Content-Length: 1\r\n\r\na")),
            false,
        ),
    ]
}

fn bodies_are_kept_with_answers(fixture: &Fixture) -> Result<()> {
    // Chunked answers are not kept, and neither is their connection lost for that.
    fixture.auth.set(Reply::Say(chunked(200, "5\r\nhello\r\n0\r\n\r\n")));
    fixture.expect("kept.test", "/?user=0", 200)?;
    let before = fixture.auth.connections.load(Ordering::Relaxed);
    fixture.auth.heard();
    for _ in 0..10 {
        fixture.expect("kept.test", "/?user=1", 200)?;
    }
    let new = fixture.auth.connections.load(Ordering::Relaxed) - before;
    let asked = fixture.auth.heard().len();
    ensure!((asked, new) == (10, 0), "{asked} questions, {new} new connections");
    // Those that are kept have their bodies with them, which nobody sees either.
    fixture.auth.set(Reply::Say(length(200, 5, "hello")));
    fixture.auth.heard();
    let before = fixture.auth.connections.load(Ordering::Relaxed);
    for _ in 0..5 {
        let answer = fixture.expect("kept.test", "/?user=2", 200)?;
        ensure!(!answer.text().contains("hello"), "{answer}");
    }
    let new = fixture.auth.connections.load(Ordering::Relaxed) - before;
    let asked = fixture.auth.heard().len();
    ensure!((asked, new) == (1, 0), "{asked} questions, {new} new connections");
    Ok(())
}

#[test]
fn headers_of_the_answer_reach_the_endpoint_in_place_of_the_clients() {
    pass("auth-headers", |directory| {
        let fixture = fixture(directory, |plan| {
            plan.http_config =
                "set_real_ip_from 127.0.0.1; real_ip_header X-Client; underscores_in_headers on;"
                    .into();
        })?;
        let names =
            json!({"response_headers": ["X-User", "X-Groups", "Content-Length", "X-Absent"]});
        fixture.put(&[
            ("a.test", json!({"external": external(names.clone())})),
            (
                "any.test",
                json!({"allow": ["10.0.0.0/8"], "any": true, "external": external(names)}),
            ),
        ])?;
        let request = |host: &str| {
            Request::new("POST", host, "/")
                .header("X-User", "root")
                .header("x_user", "root")
                .header("X-Absent", "root")
                .header("X-Other", "kept")
                .body("abc")
        };
        fixture.auth.set(say(200, "X-User: jane\r\nX-Groups: a\r\nX-Groups: b\r\nX-Secret: s\r\n"));
        let text = fixture.send(&request("a.test"))?.text();
        for line in ["x-user: jane\n", "x-groups: a, b\n", "x-other: kept\n", "content-length: 3\n"]
        {
            ensure!(text.contains(line), "{line}: {text}");
        }
        ensure!(
            !text.contains("root") && !text.contains("x-secret") && text.ends_with("abc"),
            "{text}"
        );
        // Let in by its address: nobody was asked, and nobody says who it is.
        fixture.auth.heard();
        let response = fixture.send(&request("any.test").header("X-Client", "10.0.0.1"))?;
        ensure!(response.status == 200 && fixture.auth.heard().is_empty(), "{response}");
        ensure!(
            !response.text().contains("root") && response.text().contains("x-other: kept"),
            "{response}"
        );
        fixture.site.nginx.check_error_log()
    });
}
