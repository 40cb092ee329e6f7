//! What an auth server is asked, and how often.

use super::*;

#[test]
fn the_auth_server_is_told_what_is_asked_for_and_nothing_that_the_client_says_in_our_place() {
    pass("auth-question", |directory| {
        let fixture = fixture(directory, |_| ())?;
        let more = json!({
            "method": "POST",
            "headers": [{"name": "X-Extra", "value": "$host-$http_x_a"}, {"name": "X-Gone", "value": ""}],
        });
        fixture.put(&[
            ("a.test", json!({"external": external(json!({}))})),
            ("b.test", json!({"external": external(more)})),
        ])?;
        hears_the_request(&fixture)?;
        hears_the_policys_headers(&fixture)?;
        hears_no_body(&fixture)?;
        hears_an_absolute_target(&fixture)?;
        fixture.site.nginx.check_error_log()
    });
}

/// What stands for a client's request, and none of its headers that say the same.
fn hears_the_request(fixture: &Fixture) -> Result<()> {
    let request = Request::new("PUT", "a.test:8080", "/x/%61//a%20b?q=/../1")
        .header("Cookie", "c=1")
        .header("Authorization", "Bearer t")
        .header("X-Original-URL", "http://evil.test/")
        .header("X-Original-Method", "GET")
        .header("X-Forwarded-For", "6.6.6.6")
        .header("X-Forwarded-Host", "evil.test")
        .header("X-Real-IP", "6.6.6.6")
        .header("X-Auth-Request-Redirect", "/evil")
        .header("X-Sent-From", "evil")
        .header("X-Request-ID", "mine")
        .header("Range", "bytes=0-0")
        .header("If-None-Match", "*")
        .header("ssl-client-verify", "SUCCESS")
        .body("GET /smuggled HTTP/1.1\r\nHost: a.test\r\n\r\n");
    let response = fixture.send(&request)?;
    ensure!(response.status == 200 && response.text().contains("/smuggled"), "{response}");
    let heard = fixture.auth.heard();
    let [head] = heard.as_slice() else { anyhow::bail!("{heard:?}") };
    ensure!(head.starts_with("GET /check?x=1 HTTP/1."), "{head}");
    for (name, value) in [
        ("Host", "auth.test"),
        ("Cookie", "c=1"),
        ("Authorization", "Bearer t"),
        ("X-Original-URL", "http://a.test:8080/x/%61//a%20b?q=/../1"),
        ("X-Original-Method", "PUT"),
        ("X-Sent-From", "nginx-ingress-controller"),
        ("X-Real-IP", "127.0.0.1"),
        ("X-Forwarded-For", "127.0.0.1"),
        ("X-Auth-Request-Redirect", "/x/%61//a%20b?q=/../1"),
        ("X-Request-ID", "mine"),
    ] {
        ensure!(header(head, name) == [value], "{name}: {head}");
    }
    for name in [
        "Content-Length",
        "Transfer-Encoding",
        "X-Forwarded-Host",
        "Range",
        "If-None-Match",
        "ssl-client-verify",
        "X-Original-URI",
        "X-Scheme",
    ] {
        ensure!(header(head, name).is_empty(), "{name}: {head}");
    }
    // The endpoint still has what the client sent.
    ensure!(response.text().contains("range: bytes=0-0"), "{response}");
    Ok(())
}

fn hears_the_policys_headers(fixture: &Fixture) -> Result<()> {
    let request = Request::get("b.test", "/y")
        .header("X-A", "1")
        .header("X-Gone", "2")
        .header("x-extra", "3");
    ensure!(fixture.send(&request)?.status == 200);
    let heard = fixture.auth.heard();
    let head = heard.first().context("nothing was heard")?;
    ensure!(head.starts_with("POST /check?x=1 HTTP/1."), "{head}");
    ensure!(header(head, "X-Extra") == ["b.test-1"] && header(head, "X-Gone").is_empty(), "{head}");
    ensure!(
        header(head, "X-Original-URI") == ["/y"] && header(head, "X-Scheme") == ["http"],
        "{head}"
    );
    ensure!(header(head, "X-Original-Method") == ["GET"], "{head}");
    Ok(())
}

fn hears_no_body(fixture: &Fixture) -> Result<()> {
    // Chunked, and a body that comes late.
    let response = fixture.raw("POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n5\r\nhello\r\n0\r\n\r\n")?;
    ensure!(response.status == 200 && response.text().ends_with("hello"), "{response}");
    let heard = fixture.auth.heard();
    ensure!(heard.len() == 1 && header(&heard[0], "Transfer-Encoding").is_empty(), "{heard:?}");
    // Refused with a body: the next request of the connection is the client's, not the body.
    fixture.auth.set(say(401, ""));
    let response = block_on(async {
        let mut connection = Connection::open(&fixture.site.http()).await?;
        let request = Request::new("POST", "a.test", "/")
            .body("GET /smuggled HTTP/1.1\r\nHost: a.test\r\n\r\n");
        let first = connection.send(&request).await?;
        ensure!(first.status == 401, "{first}");
        connection.send(&Request::get("open.test", "/mine")).await
    })?;
    ensure!(response.status == 200 && response.text().starts_with("GET /mine"), "{response}");
    Ok(())
}

fn hears_an_absolute_target(fixture: &Fixture) -> Result<()> {
    // An absolute request target is what routes, so it is what the auth server hears.
    fixture.auth.heard();
    let response = fixture
        .raw("GET http://a.test/p HTTP/1.1\r\nHost: open.test\r\nConnection: close\r\n\r\n")?;
    ensure!(response.status == 401, "{response}");
    let heard = fixture.auth.heard();
    ensure!(
        header(heard.first().context("nothing")?, "X-Original-URL") == ["http://a.test/p"],
        "{heard:?}"
    );
    Ok(())
}

#[test]
fn a_client_is_sent_to_sign_in_and_cookies_come_back() {
    pass("auth-signin", |directory| {
        let fixture = fixture(directory, |_| ())?;
        let signin = |more: Value| {
            let mut all = external(json!({"signin": "https://in.test/start?a=$arg_a"}));
            for (key, value) in more.as_object().cloned().unwrap_or_default() {
                all[key] = value;
            }
            json!({"external": all})
        };
        fixture.put(&[
            ("a.test", signin(json!({}))),
            ("b.test", signin(json!({"signin_parameter": "next", "always_sets_cookie": true, "signin": "https://in.test"}))),
            ("c.test", json!({"external": external(json!({"always_sets_cookie": true}))})),
            ("d.test", json!({"external": external(json!({}))})),
        ])?;
        let cookies = "Set-Cookie: x=1; Path=/\r\nSet-Cookie: y=2\r\n";
        fixture.auth.set(say(401, cookies));
        let response = fixture
            .expect("a.test", "/p q?a=1&b=%2f", 302)
            .or_else(|_| fixture.expect("a.test", "/p%20q?a=1&b=%2f", 302))?;
        ensure!(
            response.header("location").as_deref()
                == Some("https://in.test/start?a=1&rd=http://a.test%2Fp%2520q%3Fa%3D1%26b%3D%252f"),
            "{response}"
        );
        let set = |response: &Response| -> Vec<String> {
            let all = response.headers.get_all("set-cookie").iter();
            all.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).collect()
        };
        ensure!(set(&response) == ["x=1; Path=/", "y=2"], "{response}");
        let response = fixture.expect("b.test", "/", 302)?;
        ensure!(
            response.header("location").as_deref() == Some("https://in.test?next=http://b.test%2F"),
            "{response}"
        );
        // The client's own text ends neither the line nor the URL.
        let response = fixture.get("a.test", "/?a=%0d%0aX-Evil:%201")?;
        ensure!(response.header("x-evil").is_none() && response.status == 302, "{response}");
        ensure!(set(&fixture.expect("c.test", "/", 401)?).len() == 2);
        ensure!(set(&fixture.expect("d.test", "/", 401)?).is_empty());
        // 403 is not a matter of signing in.
        fixture.auth.set(say(403, cookies));
        fixture.expect("a.test", "/", 403)?;
        // And with an answer of the endpoint.
        fixture.auth.set(say(200, cookies));
        ensure!(set(&fixture.expect("d.test", "/", 200)?).len() == 2);
        fixture.endpoint.change(oxigress_tests::endpoint::Behaviour::Status(404));
        ensure!(
            set(&fixture.get("d.test", "/")?).is_empty()
                && set(&fixture.get("c.test", "/")?).len() == 2
        );
        fixture.site.nginx.check_error_log()
    });
}

#[test]
fn nobody_gets_to_the_location_of_questions() {
    pass("auth-inside", |directory| {
        let fixture = fixture(directory, |_| ())?;
        let access = json!({"external": external(json!({}))});
        fixture.put(&[("a.test", access)])?;
        for target in [
            "/ingress-auth-http",
            "ingress-auth-http",
            "//ingress-auth-http",
            "/../ingress-auth-http",
            "/ingress-auth-https",
            "/ingress-auth",
        ] {
            let text =
                format!("GET {target} HTTP/1.1\r\nHost: open.test\r\nConnection: close\r\n\r\n");
            let response = fixture.raw(&text)?;
            ensure!(
                response.endpoint().as_deref() == Some("a") || response.status == 400,
                "{target}: {response}"
            );
        }
        ensure!(fixture.auth.heard().is_empty());
        // An endpoint sends nginx there.
        let inside = Auth::start()?;
        let servers = json!({"x.test": {"rules": [{"path": {"prefix": "/"}, "backend": "x"}]}});
        let endpoints = json!({"x": [{"address": "127.0.0.1", "port": inside.port}]});
        fixture.put_all(&servers, &json!({}), &endpoints)?;
        for place in [
            "ingress-auth-http",
            "/ingress-auth-http",
            "ingress-auth-https",
            "@ingress-auth-http",
            "ingress-auth",
        ] {
            inside.set(say(200, &format!("X-Accel-Redirect: {place}\r\n")));
            inside.heard();
            let response = fixture.get("x.test", "/");
            let heard = inside.heard();
            ensure!(
                heard.iter().all(|head| !head.contains("/check") && head.contains("Host: x.test")),
                "{place}: {heard:?} {response:?}"
            );
            if let Ok(response) = response {
                ensure!(response.status >= 400, "{place}: {response}");
            }
        }
        Ok(())
    });
}

/// A fixture of so many workers with nginx's cache for answers of auth servers.
fn with_cache(directory: &Directory, workers: usize) -> Result<Fixture> {
    fixture(directory, |plan| {
        plan.workers = workers;
        plan.http_config =
            "proxy_cache_path cache keys_zone=ingress_auth:1m use_temp_path=off;".into();
    })
}

#[test]
fn answers_are_kept_for_one_policy_and_asked_for_once() {
    pass("auth-cache", |directory| {
        let fixture = with_cache(directory, 2)?;
        let cached = |key: &str, valid: Value| json!({"external": external(json!({"cache": {"key": key, "valid": valid}, "response_headers": ["X-User"]}))});
        let long = json!([{"statuses": [200, 401], "seconds": 600}]);
        fixture.put(&[
            ("a.test", cached("$http_authorization", long.clone())),
            ("b.test", cached("$http_authorization", long.clone())),
            ("short.test", cached("$host", json!([{"statuses": [200], "seconds": 0}]))),
        ])?;
        let get = |host: &str, token: &str| get_as(&fixture, host, token);
        fixture.auth.set(say(200, "X-User: jane\r\n"));
        for _ in 0..6 {
            let response = get("a.test", "jane")?;
            ensure!(
                response.status == 200 && response.text().contains("x-user: jane"),
                "{response}"
            );
        }
        ensure!(fixture.auth.heard().len() == 1);
        // Another client, another host with the same words.
        fixture.auth.set(say(401, "WWW-Authenticate: Basic\r\n"));
        for _ in 0..3 {
            let response = get("a.test", "joe")?;
            ensure!(
                response.status == 401 && response.header("www-authenticate").is_some(),
                "{response}"
            );
        }
        ensure!(fixture.auth.heard().len() == 1);
        ensure!(get("b.test", "jane")?.status == 401 && fixture.auth.heard().len() == 1);
        ensure!(get("a.test", "jane")?.status == 200 && fixture.auth.heard().is_empty());
        asks_each_time(&fixture)?;
        many_ask_once(&fixture)?;
        // Other settings are another policy, at once.
        fixture.put(&[(
            "a.test",
            cached("$http_authorization", json!([{"statuses": [200], "seconds": 601}])),
        )])?;
        fixture.auth.set(say(401, ""));
        ensure!(get("a.test", "jane")?.status == 401 && fixture.auth.heard().len() == 1);
        fixture.site.nginx.check_error_log()
    });
}

/// What a worker has kept is answered without a look at nginx's cache, as long as that would keep it.
#[test]
fn a_worker_keeps_answers_until_their_end() {
    pass("auth-kept", |directory| {
        let cache = directory.join("cache");
        let fixture = with_cache(directory, 1)?;
        let valid = json!([{"statuses": [200, 401], "seconds": 3}]);
        let cached = json!({"cache": {"key": "$http_authorization", "valid": valid}, "response_headers": ["X-User"]});
        fixture.put(&[("a.test", json!({"external": external(cached)}))])?;
        let forget_files = || -> Result<()> {
            for file in std::fs::read_dir(&cache)? {
                std::fs::remove_file(file?.path())?;
            }
            Ok(())
        };
        for (token, status, headers) in
            [("yes", 200, "X-User: jane\r\n"), ("no", 401, "WWW-Authenticate: Basic\r\n")]
        {
            fixture.auth.set(say(status, headers));
            for asked in [1, 0] {
                let response = get_as(&fixture, "a.test", token)?;
                let told = match status {
                    200 => response.text().contains("x-user: jane"),
                    _ => response.header("www-authenticate").is_some(),
                };
                ensure!(response.status == status && told, "{response}");
                ensure!(fixture.auth.heard().len() == asked, "{token}");
                forget_files()?;
            }
            std::thread::sleep(std::time::Duration::from_secs(4));
            ensure!(get_as(&fixture, "a.test", token)?.status == status);
            ensure!(fixture.auth.heard().len() == 1, "{token}: its time is over");
        }
        // One that depends on more than the key is nginx's to keep.
        fixture.auth.set(say(200, "Vary: X-Other\r\n"));
        for _ in 0..2 {
            ensure!(get_as(&fixture, "a.test", "varies")?.status == 200);
            ensure!(fixture.auth.heard().len() == 1);
            forget_files()?;
        }
        fixture.site.nginx.check_error_log()
    });
}

/// What an answer says of its time counts from when the server gave it, also for a worker that finds it in nginx's cache later.
#[test]
fn an_answer_that_a_worker_finds_in_the_cache_grows_no_older() {
    pass("auth-kept-age", |directory| {
        let fixture = with_cache(directory, 2)?;
        let cached =
            json!({"cache": {"key": "$host", "valid": [{"statuses": [200], "seconds": 3}]}});
        fixture.put(&[("a.test", json!({"external": external(cached)}))])?;
        fixture.auth.set(say(200, "Cache-Control: max-age=3\r\n"));
        ensure!(get_as(&fixture, "a.test", "")?.status == 200);
        std::thread::sleep(std::time::Duration::from_secs(2));
        let mut asked = std::time::Instant::now() - std::time::Duration::from_secs(2);
        fixture.auth.heard();
        for _ in 0..20 {
            ensure!(get_as(&fixture, "a.test", "")?.status == 200);
            if !fixture.auth.heard().is_empty() {
                // The machine was busy.
                asked = std::time::Instant::now();
            }
        }
        fixture.auth.set(say(403, ""));
        std::thread::sleep(std::time::Duration::from_secs(4).saturating_sub(asked.elapsed()));
        for _ in 0..20 {
            ensure!(get_as(&fixture, "a.test", "")?.status == 403);
        }
        fixture.site.nginx.check_error_log()
    });
}

fn get_as(fixture: &Fixture, host: &str, token: &str) -> Result<Response> {
    fixture.send(&Request::get(host, "/").header("Authorization", token))
}

fn asks_each_time(fixture: &Fixture) -> Result<()> {
    let get = |host: &str, token: &str| get_as(fixture, host, token);
    // Statuses without a time, errors, answers that say so themselves, cookies: asked for each time.
    fixture.auth.set(say(403, ""));
    ensure!(get("a.test", "jim")?.status == 403 && get("a.test", "jim")?.status == 403);
    ensure!(fixture.auth.heard().len() == 2);
    fixture.auth.set(say(500, ""));
    ensure!(get("a.test", "jim")?.status == 500 && get("a.test", "jim")?.status == 500);
    ensure!(fixture.auth.heard().len() == 2);
    for (token, headers) in [("c1", "Cache-Control: no-store\r\n"), ("c2", "Set-Cookie: s=1\r\n")] {
        fixture.auth.set(say(200, headers));
        ensure!(get("a.test", token)?.status == 200 && get("a.test", token)?.status == 200);
        ensure!(fixture.auth.heard().len() == 2, "{token}");
    }
    fixture.auth.set(say(200, ""));
    ensure!(get("short.test", "")?.status == 200 && get("short.test", "")?.status == 200);
    ensure!(fixture.auth.heard().len() == 2);
    // A body that is long, or that does not say how long it is, is not kept.
    for (token, body) in [
        ("l1", format!("Content-Length: 70000\r\n\r\n{}", "x".repeat(70_000))),
        ("l2", "Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n".into()),
    ] {
        fixture.auth.set(Reply::Say(format!("HTTP/1.1 200 X\r\n{body}")));
        ensure!(get("a.test", token)?.status == 200 && get("a.test", token)?.status == 200);
        ensure!(fixture.auth.heard().len() == 2, "{token}");
    }
    Ok(())
}

fn many_ask_once(fixture: &Fixture) -> Result<()> {
    // Many at once ask once.
    fixture.auth.set(Reply::Hold);
    let held: Vec<_> = (0..10)
        .map(|_| {
            let (address, request) =
                (fixture.site.http(), Request::get("a.test", "/").header("Authorization", "many"));
            runtime().spawn(async move { client::send(&address, &request).await })
        })
        .collect();
    until("the question", || {
        ensure!(!fixture.auth.seen.lock().expect("no panic inside").is_empty());
        Ok(())
    })?;
    fixture.auth.set(say(200, ""));
    for one in held {
        let response = block_on(one)??;
        ensure!(response.status == 200, "{response}");
    }
    ensure!(fixture.auth.heard().len() == 1);
    Ok(())
}
