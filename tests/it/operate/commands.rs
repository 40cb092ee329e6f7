//! The commands for people, against a product that runs, and the dashboard against its metrics.

use anyhow::{Context, Result, bail, ensure};
use oxigress_tests::client::{Address, Request, send};
use oxigress_tests::cluster::Cluster;
use oxigress_tests::controller::Controller;
use oxigress_tests::endpoint::Behaviour;
use oxigress_tests::place::{Directory, free_port};
use oxigress_tests::process::is_alive;
use oxigress_tests::prometheus::Page;
use oxigress_tests::shop::Shop;
use oxigress_tests::wait::{block_on, until};
use oxigress_tests::{dist, pass};
use regex::Regex;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output};

#[test]
fn commands_tell_what_nginx_has() {
    pass("commands", tell);
}

#[test]
fn wait_shutdown_returns_when_nginx_has_finished_its_requests() {
    pass("wait-shutdown", |directory| wait_shutdown(directory, false));
}

#[test]
fn wait_shutdown_ends_roles_apart() {
    pass("wait-apart", |directory| wait_shutdown(directory, true));
}

#[test]
fn the_plugin_goes_through_kubectl() {
    pass("plugin", plugin);
}

#[test]
fn check_reads_a_cluster_as_it_reads_a_folder() {
    pass("check-cluster", check_cluster);
}

#[test]
fn the_dashboard_names_metrics_and_labels_that_there_are() {
    pass("dashboard", dashboard);
}

#[test]
fn help_is_short_and_grouped_and_a_command_shows_its_own_flags() -> Result<()> {
    let oxigress = dist::oxigress()?;
    let (short, long) = (said(&run(&oxigress, &["-h"])?)?, said(&run(&oxigress, &["--help"])?)?);
    ensure!(short.lines().count() <= 76, "{} lines: {short}", short.lines().count());
    ensure!(short.contains("Status and Events:") && !short.contains("--election-ttl"), "{short}");
    ensure!(long.contains("--election-ttl") && long.lines().count() > 150, "{long}");
    let check = said(&run(&oxigress, &["check", "--help"])?)?;
    ensure!(check.contains("--cluster") && !check.contains("--http-port"), "{check}");
    // A pod's arguments can be given to it all the same.
    let folder = dist::repository().join("conf/examples/shop").display().to_string();
    said(&run(&oxigress, &["check", "--http-port=8080", &folder])?)?;
    Ok(())
}

#[test]
fn why_a_start_fails_is_the_last_line() {
    pass("refused-start", |directory| {
        let manifests = directory.join("manifests");
        fs::create_dir(&manifests)?;
        let taken = TcpListener::bind("[::]:0")?;
        let taken_port = taken.local_addr()?.port();
        let mut command = Command::new(dist::oxigress()?);
        command.arg(format!("--manifests={}", manifests.display()));
        command.arg(format!("--runtime-dir={}", directory.join("run").display()));
        for flag in ["--http-port", "--https-port", "--status-port"] {
            command.arg(format!("{flag}={}", free_port()?));
        }
        let output = command.arg(format!("--healthz-port={taken_port}")).output()?;
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.code() == Some(1), "{}: {errors}", output.status);
        let last = errors.lines().last().unwrap_or_default();
        let cause = format!(
            "role controller failed to start: cannot listen on --healthz-port {taken_port}: Address already in use"
        );
        ensure!(last.contains(&cause) && last.ends_with("free it or choose another"), "{errors}");
        Ok(())
    });
}

#[test]
fn errors_of_the_command_line_have_no_time_and_say_what_to_do() -> Result<()> {
    let oxigress = dist::oxigress()?;
    let lines: [(&[&str], &str); 7] = [
        (&["--manifests=a", "--kubeconfig=b"], "leave out --kubeconfig"),
        (
            &["check", "/none/such"],
            "cannot read /none/such: No such file or directory (os error 2): name",
        ),
        (&["explain", "--folder=/none/such", "http://a.test/"], "cannot read /none/such: "),
        (&["explain", "a.test"], "it begins with http:// or https://"),
        (
            &["backends", "--runtime-dir=/none/such"],
            "cannot connect to nginx at /none/such/configuration.sock: No such file or directory (os error 2): check",
        ),
        (&["check", "--cluster", "--kubeconfig=/none/such"], "name a kubeconfig that can be read"),
        (&["controller", "--apiserver-host=://"], "write a URL"),
    ];
    for (arguments, remedy) in lines {
        let output = run(&oxigress, arguments)?;
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.code() == Some(1), "{arguments:?}: {}: {errors}", output.status);
        ensure!(errors.starts_with("error: ") && errors.lines().count() == 1, "{errors}");
        ensure!(errors.contains(remedy), "{arguments:?}: {errors}");
    }
    Ok(())
}

#[test]
fn an_api_server_that_does_not_answer_is_named_once() -> Result<()> {
    let url = format!("https://127.0.0.1:{}", free_port()?);
    let arguments = ["check", "--cluster", &format!("--apiserver-host={url}")];
    let output = run(&dist::oxigress()?, &arguments)?;
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(errors.lines().count() == 1 && errors.matches(&url).count() == 1, "{errors}");
    ensure!(errors.contains("Connection refused") && errors.contains("--kubeconfig"), "{errors}");
    Ok(())
}

fn shop(directory: &Directory, is_apart: bool, flags: &[&str]) -> Result<Shop> {
    let flags: Vec<_> = flags.iter().map(|flag| String::from(*flag)).collect();
    let controller = match is_apart {
        true => Controller::start_apart(directory, 1, &flags)?,
        false => Controller::start(directory, 1, &flags)?,
    };
    let mut shop = Shop::new(controller, &["a"], &[("first", "tls.test")])?;
    shop.write("keep.yaml", "$SERVICE(keep: a)\n$INGRESS(keep: keep.test/ keep)")?;
    shop.write(
        "tls.yaml",
        "$SECRET(tls: first)\n$SERVICE(tls: a)\n$INGRESS(tls: tls.test/ tls tls=tls)",
    )?;
    Ok(shop)
}

fn run(program: &Path, arguments: &[&str]) -> Result<Output> {
    Command::new(program).args(arguments).output().with_context(|| format!("{arguments:?}"))
}

fn said(output: &Output) -> Result<String> {
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {errors}", output.status);
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn tell(directory: &Directory) -> Result<()> {
    let shop = shop(directory, false, &[])?;
    let oxigress = dist::oxigress()?;
    let place = format!("--runtime-dir={}", directory.join("run").display());
    let ask = |arguments: &[&str]| run(&oxigress, &[arguments, &[&*place]].concat());
    let listed = said(&ask(&["backends"])?)?;
    let name = listed.lines().find(|name| name.contains("keep")).context(listed.clone())?;
    let one: Value = serde_json::from_str(&said(&ask(&["backends", "get", name])?)?)?;
    ensure!(
        one["name"] == name && one["endpoints"].as_array().is_some_and(|e| e.len() == 1),
        "{one}"
    );
    let all: Value = serde_json::from_str(&said(&ask(&["backends", "all"])?)?)?;
    ensure!(all.as_array().is_some_and(|all| all.contains(&one)), "{all}");
    ensure!(!ask(&["backends", "get", "none"])?.status.success(), "a backend that is not there");
    let facts: Value = serde_json::from_str(&said(&ask(&["certs", "get", "tls.test"])?)?)?;
    ensure!(facts["subject"] == "CN=first", "{facts}");
    let none = ask(&["certs", "get", "nope"])?;
    let errors = String::from_utf8_lossy(&none.stderr).into_owned();
    ensure!(!none.status.success() && errors.contains("nope has no certificate"), "{errors}");
    ensure!(errors.starts_with("error: ") && errors.lines().count() == 1, "{errors}");
    ensure!(said(&ask(&["conf"])?)?.contains("ingress_router;"), "nginx.conf");
    ensure!(said(&ask(&["general"])?)? == "{}\n", "general");

    let text = said(&ask(&["explain", "http://tls.test/x"])?)?;
    ensure!(text.contains("308 to https://tls.test/x"), "{text}");
    let json = said(&ask(&["explain", "-o", "json", "http://keep.test/x"])?)?;
    let live: Value = serde_json::from_str(&json)?;
    ensure!(live["backend"]["endpoints"][0]["eligible"] == true, "{live}");
    // The same of the folder, without nginx.
    let folder = format!("--folder={}", directory.join("manifests").display());
    let offline =
        said(&run(&oxigress, &["explain", &folder, "-o", "json", "http://keep.test/x"])?)?;
    ensure!(serde_json::from_str::<Value>(&offline)? == live, "{offline}, live {live}");

    // Under ingress-nginx's names.
    let dbg = directory.join("dbg");
    symlink(&oxigress, &dbg)?;
    let listed_by_dbg = said(&run(&dbg, &["backends", "list", "--status-port=10246", &place])?)?;
    ensure!(listed_by_dbg == listed, "{listed_by_dbg}");
    // Nothing runs there.
    let nowhere = format!("--runtime-dir={}", directory.join("nowhere").display());
    let output = run(&oxigress, &["backends", &nowhere])?;
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(!output.status.success() && errors.contains("--runtime-dir"), "{errors}");
    drop(shop);
    Ok(())
}

fn wait_shutdown(directory: &Directory, is_apart: bool) -> Result<()> {
    let mut shop = shop(directory, is_apart, &[])?;
    let http = Address::http(shop.controller.http_port);
    shop.behave("a", Behaviour::Hold)?;
    let before = shop.requests("a")?;
    let held = {
        let http = http.clone();
        // A thread of its own: those of the runtime may be in the cluster's network.
        std::thread::spawn(move || block_on(send(&http, &Request::get("keep.test", "/held"))))
    };
    until("the request to be under way", || {
        ensure!(shop.requests("a")? > before, "no request");
        Ok(())
    })?;
    let master = shop.controller.master_pid()?;
    let program = directory.join("wait-shutdown");
    symlink(dist::oxigress()?, &program)?;
    let mut waiting = Command::new(&program)
        .arg(format!("--runtime-dir={}", directory.join("run").display()))
        .spawn()?;
    until("nginx to listen no more", || {
        let answer = block_on(send(&http, &Request::get("localhost", "/healthz")));
        ensure!(answer.is_err(), "it listens");
        Ok(())
    })?;
    ensure!(waiting.try_wait()?.is_none(), "it did not wait for nginx");
    ensure!(is_alive(master), "nginx did not wait for its request");
    shop.behave("a", Behaviour::Ok)?;
    let answer = held.join().map_err(|_| anyhow::anyhow!("a panic"))??;
    ensure!(answer.status == 200, "{answer}");
    let status = waiting.wait()?;
    ensure!(status.success() && !is_alive(master), "{status}, nginx lives: {}", is_alive(master));
    shop.controller.wait_for_end()
}

/// kubectl is a fake: a script that answers `get pods` and otherwise prints its arguments.
fn plugin(directory: &Directory) -> Result<()> {
    let kubectl = directory.join("kubectl");
    fs::write(
        &kubectl,
        "#!/bin/sh\ncase \"$*\" in *'get pods'*) echo web/pod-1;; *) printf '%s|' \"$@\";; esac\n",
    )?;
    fs::set_permissions(&kubectl, fs::Permissions::from_mode(0o755))?;
    let program = directory.join("kubectl-oxigress");
    symlink(dist::oxigress()?, &program)?;
    let path = format!("{}:/usr/bin:/bin", directory.path().display());
    let ask = |arguments: &[&str]| {
        said(&Command::new(&program).args(arguments).env("PATH", &path).output()?)
    };
    let found = ask(&["explain", "-H", "X: y", "http://a.test/"])?;
    let expected = "exec|--container=controller|--namespace=web|pod-1|--|oxigress|explain|-H|X: y|http://a.test/|";
    ensure!(found == expected, "{found}");
    let found = ask(&["--context=c", "-n", "n", "--pod=p", "conf"])?;
    let expected = "--context=c|exec|--container=controller|--namespace=n|p|--|oxigress|conf|";
    ensure!(found == expected, "{found}");
    Ok(())
}

fn check_cluster(directory: &Directory) -> Result<()> {
    let tenant = Cluster::shared()?.tenant("check")?;
    let objects = tenant.text(
        "apiVersion: networking.k8s.io/v1\nkind: IngressClass\nmetadata: {name: $CLASS}\n\
         spec: {controller: oxigress.test/$CLASS}\n---\n\
         apiVersion: v1\nkind: Service\nmetadata: {name: shop, namespace: $NAMESPACE}\nspec: {ports: [{port: 80}]}\n---\n\
         apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata:\n  name: shop\n  namespace: $NAMESPACE\n\
         \x20 annotations: {nginx.ingress.kubernetes.io/ssl-redirects: 'true', nginx.ingress.kubernetes.io/ssl-redirect: 'no'}\n\
         spec:\n  ingressClassName: $CLASS\n  rules:\n  - host: shop.test\n    http:\n      paths:\n\
         \x20     - {path: /, pathType: Prefix, backend: {service: {name: shop, port: {number: 80}}}}\n",
    );
    tenant.apply(&objects)?;
    let folder = directory.join("manifests");
    fs::create_dir(&folder)?;
    fs::write(folder.join("all.yaml"), &objects)?;
    let mut flags = tenant.flags();
    flags.push(format!("--watch-namespace={}", tenant.namespace));
    let oxigress = dist::oxigress()?;
    let kubeconfig = format!("--kubeconfig={}", tenant.cluster.kubeconfig().display());
    let of_cluster =
        Command::new(&oxigress).args(["check", "--cluster", &kubeconfig]).args(&flags).output()?;
    let of_folder = Command::new(&oxigress).arg("check").arg(&folder).args(&flags).output()?;
    let text = |output: &Output| String::from_utf8_lossy(&output.stdout).into_owned();
    let told = text(&of_cluster);
    ensure!(told.contains("ssl-redirects (did you mean ssl-redirect?)"), "{told}{of_cluster:?}");
    ensure!(told.contains("annotation ssl-redirect: "), "{told}");
    // Of a cluster it is known which Services have endpoints; manifests never say so.
    let lack = "has no ready endpoint";
    ensure!(told.contains(lack) && !text(&of_folder).contains(lack), "{told}");
    let without_lack: Vec<_> = text(&of_folder).lines().map(String::from).collect();
    let differs = without_lack.iter().skip(1).filter(|line| !told.contains(line.as_str()));
    ensure!(differs.count() == 0, "{told}, of the folder {}", text(&of_folder));
    ensure!(of_cluster.status.code() == Some(0), "{of_cluster:?}");
    ensure!(of_cluster.status.code() == of_folder.status.code(), "{of_folder:?}");
    Ok(())
}

/// Words of PromQL that are no metrics.
const FUNCTIONS: [&str; 17] = [
    "sum",
    "rate",
    "by",
    "le",
    "histogram_quantile",
    "min",
    "max",
    "bottomk",
    "time",
    "stddev",
    "bool",
    "count",
    "label_values",
    "or",
    "and",
    "on",
    "unless",
];
/// Labels that Prometheus adds to what it scrapes, and those that the pod's environment gives beside `controller_class`.
const ADDED: [&str; 4] = ["job", "instance", "controller_namespace", "controller_pod"];

fn dashboard(directory: &Directory) -> Result<()> {
    let mut shop = shop(directory, false, &["--enable-metrics"])?;
    shop.write("orphan.yaml", "$INGRESS(orphan: orphan.test/ none)")?;
    shop.serves("keep.test", "/", "a")?;
    let health = Address::http(shop.controller.health_port);
    let page = until("the request to be counted", || {
        let answer = block_on(send(&health, &Request::get("x", "/metrics")))?;
        let page = Page::parse(&answer.text())?;
        ensure!(
            page.sum("nginx_ingress_controller_requests", &[("status", "200")]).0 > 0.0,
            "{answer}"
        );
        Ok(page)
    })?;
    let live = page.sum("oxigress_change_to_live_seconds_count", &[]).0;
    ensure!(live >= 1.0, "{live} changes");
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../conf/grafana/oxigress.json");
    let dashboard: Value = serde_json::from_str(&fs::read_to_string(file)?)?;
    let mut queries = Vec::new();
    collect(&dashboard, &mut queries);
    ensure!(queries.len() > 30, "{} queries", queries.len());
    for query in &queries {
        check_query(query, &page).with_context(|| query.clone())?;
    }
    println!("{} queries name what there is", queries.len());
    Ok(())
}

/// Every `expr`, and the text of every variable's query.
fn collect(value: &Value, queries: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                match value {
                    Value::String(text)
                        if name == "expr" || name == "query" && text != "prometheus" =>
                    {
                        queries.push(text.clone());
                    }
                    value => collect(value, queries),
                }
            }
        }
        Value::Array(all) => all.iter().for_each(|value| collect(value, queries)),
        _ => {}
    }
}

fn check_query(query: &str, page: &Page) -> Result<()> {
    let strings = Regex::new(r#""[^"]*""#)?;
    let bare = strings.replace_all(query, "").replace("[$__rate_interval]", "");
    let word = Regex::new(r"[a-zA-Z_][a-zA-Z0-9_]*")?;
    let list = Regex::new(r"\{[^}]*\}|by \([^)]*\)|, \w+\)$")?;
    let mut known = BTreeSet::new();
    let mut metrics = 0;
    for name in word.find_iter(&list.replace_all(&bare, "")).map(|found| found.as_str()) {
        if FUNCTIONS.contains(&name) {
            continue;
        }
        let series = page.all(name);
        if series.is_empty() {
            bail!("no metric {name}");
        }
        metrics += 1;
        known.extend(series.into_iter().flat_map(|(labels, _)| labels.into_keys()));
    }
    ensure!(metrics > 0, "no metric");
    for labels in list.find_iter(&bare) {
        for label in word.find_iter(labels.as_str()).map(|found| found.as_str()) {
            let is_there = label == "by" || ADDED.contains(&label) || known.contains(label);
            ensure!(is_there, "no label {label}");
        }
    }
    Ok(())
}
