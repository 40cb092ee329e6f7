//! The dashboard of a product that runs: rows and pages of them, what nginx says, who may read, and that nothing secret
//! is in any answer.

use anyhow::{Context, Result, ensure};
use oxigress_tests::client::{Address, Request, Response, send};
use oxigress_tests::controller::Controller;
use oxigress_tests::place::free_port;
use oxigress_tests::shop::Shop;
use oxigress_tests::wait::{block_on, until};
use oxigress_tests::{dist, pass};
use serde_json::Value;
use std::fmt::Write;
use std::fs;
use std::io::{Read, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

fn ask(port: u16, target: &str) -> Result<Response> {
    block_on(send(&Address::http(port), &Request::get("localhost", target)))
}

fn json(port: u16, target: &str) -> Result<Value> {
    let answer = ask(port, target)?;
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    ensure!(answer.status == 200, "{target}: {}: {text}", answer.status);
    serde_json::from_str(&text).with_context(|| format!("{target}: {text}"))
}

#[test]
fn the_dashboard_shows_what_is_served_and_nothing_secret() {
    pass("dashboard-rows", |directory| {
        let port = free_port()?;
        let flags = [format!("--dashboard-address=127.0.0.1:{port}")];
        let controller = Controller::start(directory, 1, &flags)?;
        let mut shop = Shop::new(controller, &["a"], &[("shop", "shop.test")])?;
        shop.write("secret.yaml", "$SECRET(shop: shop)")?;
        let limited =
            "$SERVICE(shop: a)\n$INGRESS(shop: shop.test/ shop, shop.test/none gone tls=shop)";
        shop.write("shop.yaml", limited)?;

        let overview = json(port, "/api/overview")?;
        ensure!(overview["nginx"]["generation"].as_u64() > Some(0), "{overview}");
        ensure!(overview["controller"]["certificates"] == 1, "{overview}");
        ensure!(overview["controller"]["changes"][0]["seconds"].as_f64() > Some(0.0), "{overview}");

        let found = json(port, "/api/routes?q=SHOP.test")?;
        ensure!(found["total"] == 2, "{found}");
        let row = &found["rows"][0];
        ensure!(row["host"] == "shop.test" && row["has_certificate"] == true, "{row}");
        let rows = found["rows"].as_array().context("rows")?;
        let backend = rows.iter().filter_map(|row| row["backend"].as_str());
        let backend = backend.min_by_key(|id| id.contains("gone")).context("a backend")?.to_owned();
        shop.answers("shop.test", "/", 308)?;
        let statistics = json(port, &format!("/api/backend?id={backend}"))?;
        ensure!(statistics["endpoints"][0]["address"].is_string(), "{statistics}");
        let certificate = json(port, "/api/certificates")?;
        ensure!(certificate["rows"][0]["expires"].as_i64() > Some(0), "{certificate}");
        let findings = json(port, "/api/findings?q=gone")?;
        ensure!(findings["rows"][0]["object"] == "Ingress default/shop", "{findings}");
        let explained = json(port, "/api/explain?host=shop.test&path=/none/x&scheme=https")?;
        ensure!(explained["rules"][0]["wins"] == true && explained["rules"][1]["wins"] == false);

        let pages = ["/", "/app.css", "/app.js", "/dom.js", "/lists.js"];
        let answers = ["/api/overview", "/api/certificates", "/api/routes"];
        for page in pages.into_iter().chain(answers) {
            let answer = ask(port, page)?;
            let text = String::from_utf8_lossy(&answer.body).into_owned();
            ensure!(answer.status == 200 && !text.contains("PRIVATE KEY"), "{page}");
            ensure!(!text.contains("://") || pages.contains(&page), "{page}: {text}");
            let policy = answer.header("content-security-policy").unwrap_or_default();
            ensure!(policy.starts_with("default-src 'none'"), "{page}: {policy}");
        }
        ensure!(ask(port, "/api/routes?offset=x")?.status == 400);
        ensure!(ask(port, "/none")?.status == 404);
        let post = Request::new("POST", "localhost", "/api/routes");
        ensure!(block_on(send(&Address::http(port), &post))?.status == 405);
        let rebound = Request::get("evil.test", "/api/routes");
        ensure!(block_on(send(&Address::http(port), &rebound))?.status == 401);

        let output = Command::new(dist::oxigress()?)
            .args(["dashboard", "--no-browser", &format!("--address=127.0.0.1:{port}")])
            .output()?;
        ensure!(output.stdout == format!("http://127.0.0.1:{port}/\n").as_bytes(), "{output:?}");
        Ok(())
    });
}

#[test]
fn a_list_of_thousands_comes_in_pages_and_events_tell_of_changes() {
    pass("dashboard-pages", |directory| {
        let port = free_port()?;
        let flags = [format!("--dashboard-address=127.0.0.1:{port}")];
        let controller = Controller::start(directory, 1, &flags)?;
        let mut shop = Shop::new(controller, &["a"], &[])?;
        shop.write("service.yaml", "$SERVICE(shop: a)")?;
        let mut text = String::new();
        for n in 0..3_000 {
            writeln!(text, "$INGRESS(n{n:04}: n{n:04}.test/ shop)")?;
        }
        shop.write("many.yaml", &text)?;
        let page = json(port, "/api/routes?q=.test&offset=1990&limit=1000")?;
        let rows = page["rows"].as_array().context("rows")?;
        ensure!(rows.len() == 200, "{} rows of a page", rows.len());
        ensure!(page["total"].as_u64() >= Some(3_000), "{}", page["total"]);

        let mut events = TcpStream::connect(("127.0.0.1", port))?;
        events.set_read_timeout(Some(Duration::from_secs(10)))?;
        events.write_all(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
        let (mut seen, mut buffer) = (String::new(), [0; 65_536]);
        let mut wait_for = |wanted: &str| {
            until(wanted, || {
                let read = events.read(&mut buffer)?;
                seen += &String::from_utf8_lossy(buffer.get(..read).unwrap_or_default());
                ensure!(seen.contains(wanted), "{seen}");
                Ok(())
            })
        };
        wait_for("text/event-stream")?;
        let findings = json(port, "/api/findings?limit=0")?["total"].clone();
        shop.write("bad.yaml", "$INGRESS(bad: bad.test/ nothing)")?;
        let after = findings.as_u64().context("a number")? + 1;
        wait_for(&format!("\"findings\":{after}"))?;
        Ok(())
    });
}

#[test]
fn elsewhere_than_on_loopback_a_token_is_needed() {
    pass("dashboard-token", |directory| {
        let port = free_port()?;
        let open = Command::new(dist::oxigress()?)
            .arg(format!("--manifests={}", directory.join("none").display()))
            .arg(format!("--dashboard-address=0.0.0.0:{port}"))
            .arg("controller")
            .output()?;
        ensure!(!open.status.success(), "{open:?}");
        let token = directory.join("token");
        fs::write(&token, "open-sesame\n")?;
        let flags = [
            format!("--dashboard-address=127.0.0.1:{port}"),
            format!("--dashboard-token-file={}", token.display()),
        ];
        let _controller = Controller::start(directory, 1, &flags)?;
        ensure!(ask(port, "/api/overview")?.status == 401);
        ensure!(ask(port, "/api/overview?token=open")?.status == 401);
        let bearer =
            Request::get("any.test", "/api/overview").header("Authorization", "Bearer open-sesame");
        ensure!(block_on(send(&Address::http(port), &bearer))?.status == 200);
        let signed_in = ask(port, "/?token=open-sesame")?;
        let cookie = signed_in.header("set-cookie").unwrap_or_default();
        ensure!(
            signed_in.status == 303 && cookie.contains("HttpOnly; SameSite=Strict"),
            "{cookie}"
        );
        let cookie = cookie.split(';').next().unwrap_or_default();
        let with_cookie = Request::get("any.test", "/").header("Cookie", cookie);
        ensure!(block_on(send(&Address::http(port), &with_cookie))?.status == 200);
        Ok(())
    });
}
