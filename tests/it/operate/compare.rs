//! `oxigress compare` between two gateways that run: what is the same, what differs and why, and what is never sent.

use anyhow::{Context, Result, ensure};
use oxigress_tests::certificate::Certificate;
use oxigress_tests::controller::Controller;
use oxigress_tests::place::{Directory, free_port};
use oxigress_tests::shop::Shop;
use oxigress_tests::{dist, pass};
use serde_json::Value;
use std::fs;
use std::process::{Command, Output};

#[test]
fn equal_gateways_have_no_differences() {
    pass("compare-equal", |directory| {
        let pair = Pair::start(directory)?;
        let output = pair.compare(&["--folder", &pair.folder(), "-o", "json"])?;
        let report = json(&output)?;
        ensure!(output.status.code() == Some(0), "{}: {report:#}", output.status);
        let count = |name: &str| report[name].as_u64().unwrap_or_default();
        // Two hosts with `/` and `/cart`, over HTTP and HTTPS, each spelling with GET and HEAD.
        ensure!(count("requests") > 80, "{report:#}");
        ensure!(count("same") + count("documented") + count("unstable") == count("requests"));
        Ok(())
    });
}

#[test]
fn differences_are_reported_by_route_and_cause() {
    pass("compare-differ", |directory| {
        let mut pair = Pair::start(directory)?;
        // Another endpoint for the cart, which answers 404.
        pair.new.write(
            "cart.yaml",
            "$SERVICE(cart: b)\n$INGRESS(cart: shop.test/cart cart tls=shop)",
        )?;
        pair.new.behave("b", oxigress_tests::endpoint::Behaviour::Status(404))?;
        let output = pair.compare(&["--folder", &pair.folder()])?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(output.status.code() == Some(1), "{}: {text}", output.status);
        let cart = text.split("\nshop.test /cart (default/cart)\n").nth(1);
        let cart = cart.or(text.strip_prefix("shop.test /cart (default/cart)\n"));
        let cause = cart.context(text.clone())?.lines().next().unwrap_or_default();
        ensure!(cause.starts_with("  status: 200 before, 404 now: "), "{text}");
        ensure!(!text.contains("shop.test / ("), "other routes do not differ: {text}");
        ensure!(text.contains("\n    GET https://shop.test/cart\n"), "an example: {text}");

        // The same route in a log without hosts, which the objects find by the upstream.
        let log = directory.join("access.log");
        fs::write(
            &log,
            concat!(
                r#"10.0.0.1 - - [x] "GET /cart/1 HTTP/1.1" 200 5 "-" "curl" 93 0.002 [default-cart-80] [] 1.1.1.1:80 5 0.0 200 a"#,
                "\n",
                r#"10.0.0.1 - - [x] "POST /cart/1 HTTP/1.1" 200 5 "-" "curl" 93 0.002 [default-cart-80] [] 1.1.1.1:80 5 0.0 200 a"#,
                "\n",
            ),
        )?;
        let log = log.display().to_string();
        let before = (pair.old.requests("a")?, pair.new.requests("b")?);
        let arguments = ["--folder", &pair.folder(), "--access-log", &log, "--https", "-o", "json"];
        let report = json(&pair.compare(&arguments)?)?;
        ensure!(report["requests"] == 1 && report["different"] == 1, "{report:#}");
        ensure!(report["skipped"]["method POST"] == 1, "{report:#}");
        let first = &report["differences"][0];
        ensure!(first["aspect"] == "status" && first["old"] == "200" && first["new"] == "404");
        // Each was asked twice, to know whether it answers the same again: nothing was posted.
        let asked = (pair.old.requests("a")? - before.0, pair.new.requests("b")? - before.1);
        ensure!(asked == (2, 2), "{asked:?}");

        // Another certificate.
        pair.new.write("secret.yaml", "$SECRET(shop: other)")?;
        let list = directory.join("list");
        fs::write(&list, "# one request\nhttps://shop.test/\n")?;
        let report =
            json(&pair.compare(&["--requests", &list.display().to_string(), "-o", "json"])?)?;
        let found = report["differences"].as_array().context("differences")?;
        let aspects: Vec<_> = found.iter().map(|one| &one["aspect"]).collect();
        ensure!(aspects == ["certificate"], "{report:#}");
        Ok(())
    });
}

#[test]
fn a_gateway_that_is_away_is_trouble_and_no_difference() -> Result<()> {
    let directory = Directory::new("compare-away")?;
    let list = directory.join("list");
    fs::write(&list, "http://shop.test/\n")?;
    let away = format!("127.0.0.1:{}", free_port()?);
    let output = Command::new(dist::oxigress()?)
        .args(["compare", &away, &away, "--requests"])
        .arg(&list)
        .output()?;
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.code() == Some(2), "{}: {errors}", output.status);
    ensure!(errors.starts_with("error: ") && errors.lines().count() == 1, "{errors}");
    ensure!(
        errors.contains(&away) && errors.contains("check that this is the gateway's address"),
        "{errors}"
    );
    let output = Command::new(dist::oxigress()?).args(["compare", &away, &away]).output()?;
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.code() == Some(2) && errors.contains("--access-log"), "{errors}");
    Ok(())
}

/// Two products with the same objects.
struct Pair {
    old: Shop,
    new: Shop,
    folder: std::path::PathBuf,
    // Removed last.
    _apart: Directory,
}

impl Pair {
    fn start(directory: &Directory) -> Result<Self> {
        let apart = Directory::new("compare-new")?;
        let certificate = Certificate::new("shop", &["shop.test"])?;
        let data = |text: &str| openssl::base64::encode_block(text.as_bytes());
        let secret = format!(
            "{{apiVersion: v1, kind: Secret, type: kubernetes.io/tls, metadata: {{name: shop, namespace: default}}, \
             data: {{tls.crt: {}, tls.key: {}}}}}",
            data(&certificate.chain),
            data(&certificate.key)
        );
        let start = |directory: &Directory| -> Result<Shop> {
            let controller = Controller::start(directory, 1, &[])?;
            let mut shop = Shop::new(controller, &["a", "b"], &[("other", "shop.test")])?;
            shop.write("secret.yaml", &secret)?;
            shop.write(
                "cart.yaml",
                "$SERVICE(cart: a)\n$INGRESS(cart: shop.test/cart cart tls=shop)",
            )?;
            shop.write(
                "web.yaml",
                "$SERVICE(web: a)\n$INGRESS(web: shop.test/ web tls=shop, *.tenant.test/ web)",
            )?;
            Ok(shop)
        };
        let folder = directory.join("manifests");
        Ok(Pair { old: start(directory)?, new: start(&apart)?, folder, _apart: apart })
    }

    fn folder(&self) -> String {
        self.folder.display().to_string()
    }

    fn compare(&self, arguments: &[&str]) -> Result<Output> {
        let address = |shop: &Shop| {
            format!("127.0.0.1:{}:{}", shop.controller.http_port, shop.controller.https_port)
        };
        let mut command = Command::new(dist::oxigress()?);
        command.args(["compare", &address(&self.old), &address(&self.new), "--rate=0"]);
        // Each counts its own connections.
        command.args(["--ignore-header=x-endpoint-requests"]).args(arguments);
        Ok(command.output()?)
    }
}

fn json(output: &Output) -> Result<Value> {
    let errors = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).with_context(|| format!("{}: {errors}", output.status))
}
