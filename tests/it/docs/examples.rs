//! Shell examples of the pages, run as they stand against a product that runs, a real API server and Helm.
//!
//! `oxigress` on the PATH is a script that adds the runtime folder of the test's product. Numbers of ports and
//! `/run/oxigress` are replaced by the test's. What is not run stands in [`NOT_RUN`], with the reason; its flags, targets
//! and files are checked by the tests `pages_*`.

use super::page::{self, words};
use anyhow::{Context, Result, ensure};
use oxigress_tests::cluster::Cluster;
use oxigress_tests::controller::Controller;
use oxigress_tests::nginx::Nginx;
use oxigress_tests::place::Directory;
use oxigress_tests::shop::Shop;
use oxigress_tests::{dist, pass};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;

/// Programs whose lines are not run here, and why.
const NOT_RUN: [(&str, &str); 26] = [
    ("make", "builds, or runs what tests run elsewhere"),
    ("cargo", "builds"),
    ("podman", "needs podman and an image"),
    ("docker", "needs a daemon"),
    ("kubectl", "needs a cluster with nodes"),
    ("oxigress compare", "needs two gateways: compare.rs has them"),
    ("oxigress dashboard", "opens a browser: dashboard.rs reads the page"),
    ("kill", "run by kills.rs and upgrade.rs"),
    ("htpasswd", "apache2-utils"),
    ("sed", "changes the example shop or needs a cluster: run_example.rs serves the shop"),
    ("rm", "with the `sed` above it"),
    ("mkdir", "run by balancer_only.rs in its own way"),
    ("tar", "unpacks a release"),
    ("cd", "into a release"),
    ("bin/oxigress", "of a release: folder.rs serves what the page shows"),
    ("ln", "changes the user's folders"),
    ("cp", "run by balancer_only.rs in its own way"),
    ("target/dist/sbin/nginx", "run by balancer_only.rs in its own way"),
    ("oxigress --", "starts another product"),
    ("target/dist/bin/oxigress --", "starts another product: run_example.rs does"),
    ("OXIGRESS_BENCH", "measures for minutes"),
    ("NGINX_SECOND_SOURCE", "builds another nginx"),
    ("ECOSYSTEM", "programs of others, built for minutes"),
    ("PARITY", "asks ingress-nginx for minutes"),
    ("helm get", "needs a release in a cluster"),
    ("helm u", "`upgrade` and `uninstall` need a release in a cluster"),
];
/// Pages whose shell examples need an nginx of their own. Those of the endpoint run below; `balancer_only.rs` serves what
/// the page of that name shows, and the bench measures sizes.
const OWN_NGINX: [&str; 5] = [
    "docs/module/endpoint.md",
    "docs/module/endpoint-snapshot.md",
    "docs/module/endpoint-read.md",
    "docs/module/standalone.md",
    "docs/size-and-tune.md",
];

/// The command lines of all pages of docs/ and of the README, with their places.
fn lines() -> Result<Vec<(String, String)>> {
    let mut found = Vec::new();
    for page in page::all()? {
        let name = page.path.to_string_lossy().into_owned();
        let is_read = name == "README.md" || name.starts_with("docs/");
        if !is_read || OWN_NGINX.contains(&&*name) {
            continue;
        }
        for block in page.blocks().iter().filter(|block| block.is_shell()) {
            let lines = block.commands().into_iter();
            found.extend(lines.map(|(number, line)| (format!("{name}:{number}"), line)));
        }
    }
    Ok(found)
}

fn is_run_by_hand(line: &str) -> bool {
    NOT_RUN.iter().any(|(start, _)| line.starts_with(start))
}

fn needs_a_cluster(line: &str) -> bool {
    line.contains("--cluster")
}

fn is_of_the_example_shop(line: &str) -> bool {
    line.starts_with("curl ") && (line.contains(":8080") || line.contains(":8443"))
}

#[test]
fn shell_examples_run() {
    pass("docs-examples", |directory| {
        let controller = Controller::start(directory, 1, &["--enable-metrics".to_owned()])?;
        let mut shop = Shop::new(controller, &["a"], &[("first", "shop.example.com")])?;
        shop.write(
            "shop.yaml",
            "$SECRET(tls: first)\n$SERVICE(shop: a)\n$INGRESS(shop: shop.example.com/ shop tls=tls)",
        )?;
        let place = folder(directory)?;
        let (runtime, health) = (directory.join("run"), shop.controller.health_port.to_string());
        let (mut count, mut wrong) = (0, Vec::new());
        for (at, line) in lines()? {
            if is_run_by_hand(&line) || needs_a_cluster(&line) || is_of_the_example_shop(&line) {
                continue;
            }
            let here = line.replace("/run/oxigress", &runtime.display().to_string());
            let here = here.replace("127.0.0.1:10254", &format!("127.0.0.1:{health}"));
            // What installs is rendered.
            let here =
                here.replace("helm install", "helm template").replace("--create-namespace", "");
            count += 1;
            if let Err(error) = run(&place, &here, &[]) {
                wrong.push(format!("{at}: {line}\n{error:#}"));
            }
        }
        super::pages::nothing(&wrong)?;
        ensure!(count > 20, "only {count} examples were run");
        println!("{count} examples run");
        Ok(())
    });
}

#[test]
fn shell_examples_of_a_cluster_run() {
    pass("docs-cluster", |directory| {
        let tenant = Cluster::shared()?.tenant("docs")?;
        let objects = tenant.text(
            "apiVersion: networking.k8s.io/v1\nkind: IngressClass\nmetadata: {name: nginx}\n\
             spec: {controller: k8s.io/ingress-nginx}\n---\n\
             apiVersion: v1\nkind: Service\nmetadata: {name: shop, namespace: $NAMESPACE}\nspec: {ports: [{port: 80}]}\n---\n\
             apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: shop, namespace: $NAMESPACE}\n\
             spec:\n  ingressClassName: nginx\n  rules:\n  - host: shop.example.com\n    http:\n      paths:\n\
             \x20     - {path: /, pathType: Prefix, backend: {service: {name: shop, port: {number: 80}}}}\n",
        );
        tenant.apply(&objects)?;
        let place = folder(directory)?;
        let kubeconfig = tenant.cluster.kubeconfig().display().to_string();
        let mut count = 0;
        for (at, line) in
            lines()?.iter().filter(|(_, line)| needs_a_cluster(line) && !is_run_by_hand(line))
        {
            let here = line.replace("~/.kube/config", &kubeconfig);
            let said = run(&place, &here, &[("KUBECONFIG", &kubeconfig)])?;
            ensure!(said.contains("(1 Ingress): "), "{at}: {line}: {said}");
            count += 1;
        }
        ensure!(count >= 3, "only {count} examples were run");
        Ok(())
    });
}

#[test]
fn pages_have_no_example_that_is_neither_run_nor_excused() -> Result<()> {
    let programs = ["oxigress", "target/dist/bin/oxigress", "helm", "curl"];
    let is_known = |line: &str| {
        let first = words(line).first().cloned().unwrap_or_default();
        is_run_by_hand(line) || programs.contains(&&*first)
    };
    let unknown = lines()?.into_iter().filter(|(_, line)| !is_known(line));
    super::pages::nothing(&unknown.map(|(at, line)| format!("{at}: {line}")).collect::<Vec<_>>())
}

#[test]
fn answers_of_the_endpoint_have_the_members_that_are_printed() {
    pass("docs-endpoint", |directory| {
        let page = |name: &str| page::Page::read(std::path::Path::new(name));
        let endpoint = page("docs/module/endpoint.md")?;
        let snapshot = page("docs/module/endpoint-snapshot.md")?;
        let read = page("docs/module/endpoint-read.md")?;
        let blocks = endpoint.blocks();
        let conf = blocks
            .iter()
            .find(|block| block.text.starts_with("load_module"))
            .context("nginx.conf")?;
        let module = dist::module()?.display().to_string();
        let conf = conf.text.replace("modules/ngx_ingress_module.so", &module);
        // nginx looks for it in the folder that it is started in, the reader's.
        let socket = format!("unix:{}", directory.join("configuration.sock").display());
        let conf = conf.replace("unix:configuration.sock", &socket);
        let mut nginx = Nginx::start(directory, &format!("daemon off;\n{conf}"), 2)?;
        let shop = snapshot.blocks().into_iter().find(|block| block.language == "json");
        fs::write(directory.join("shop.json"), shop.context("shop.json")?.text)?;
        let variables =
            blocks.iter().find(|block| block.text.starts_with("S='--unix")).context("S")?;
        let mut script = variables.text.clone();
        let mut expected = Vec::new();
        for page in [&snapshot, &read, &endpoint] {
            for block in page.blocks().iter().filter(|block| block.language == "console") {
                let mut lines = block.text.lines().peekable();
                while let Some(line) = lines.next() {
                    let Some(command) = line.strip_prefix("$ ") else { continue };
                    let mut command = command.to_owned();
                    while let Some(more) = lines.next_if(|more| more.starts_with("    ")) {
                        command = format!("{command}\n{more}");
                    }
                    let answer =
                        lines.next_if(|answer| !answer.starts_with("$ ")).unwrap_or_default();
                    // Needs a certificate of the reader's.
                    if command.contains("servers.json") || command.contains("certs?") {
                        continue;
                    }
                    script += &format!("echo @@@\n{command}\necho\n");
                    expected
                        .push((format!("{}: {command}", page.path.display()), answer.to_owned()));
                }
            }
        }
        ensure!(expected.len() > 12, "{} examples", expected.len());
        let ran =
            Command::new("bash").args(["-c", &script]).current_dir(directory.path()).output()?;
        let said = String::from_utf8_lossy(&ran.stdout).into_owned();
        let answers: Vec<_> = said.split("@@@\n").skip(1).collect();
        ensure!(answers.len() == expected.len(), "{said}{}", String::from_utf8_lossy(&ran.stderr));
        let mut wrong = Vec::new();
        for ((what, expected), answer) in expected.iter().zip(answers) {
            if members(expected) != members(answer.trim()) {
                wrong.push(format!("{what}\nis said to answer {expected}\nand answers {answer}"));
            }
        }
        nginx.stop()?;
        super::pages::nothing(&wrong)
    });
}

/// The names in a JSON object, or in the first one of an array; none of what is not JSON.
fn members(text: &str) -> Vec<String> {
    let value: serde_json::Value = serde_json::from_str(text).unwrap_or_default();
    let value = value.get(0).unwrap_or(&value);
    value.as_object().map(|all| all.keys().cloned().collect()).unwrap_or_default()
}

/// A folder that looks like the repository, with `oxigress` and `helm` to be put on the PATH, and files that pages write.
fn folder(directory: &Directory) -> Result<Directory> {
    let place = directory.within("repository")?;
    let repository = dist::repository().canonicalize()?;
    for name in ["conf", "docs", "Makefile"] {
        symlink(repository.join(name), place.join(name))?;
    }
    fs::create_dir_all(place.join("target"))?;
    symlink(
        dist::oxigress()?.parent().and_then(|bin| bin.parent()).context("dist")?,
        place.join("target/dist"),
    )?;
    fs::create_dir(place.join("bin"))?;
    let program = place.join("bin/oxigress");
    let (oxigress, run) = (dist::oxigress()?, directory.join("run"));
    let script = format!(
        "#!/bin/sh\ncase \"$*\" in *--folder*) ;; backends*|certs*|conf*|general*|explain*) set -- \"$@\" --runtime-dir={} ;; esac\nexec {} \"$@\"\n",
        run.display(),
        oxigress.display()
    );
    fs::write(&program, script)?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    symlink(dist::target().canonicalize()?.join("helm/helm"), place.join("bin/helm"))?;
    // Files that the pages have readers write.
    symlink(repository.join("conf/examples/shop"), place.join("manifests"))?;
    fs::write(place.join("values.yaml"), "controller: {replicaCount: 2}\n")?;
    let page = page::Page::read(std::path::Path::new("docs/migrate.md"))?;
    let beside =
        page.blocks().into_iter().find(|block| block.language == "yaml").context("beside.yaml")?;
    fs::write(place.join("beside.yaml"), beside.text)?;
    Ok(place)
}

/// Runs a line by a shell; answers what it printed. An exit code is a failure.
fn run(place: &Directory, line: &str, variables: &[(&str, &str)]) -> Result<String> {
    let path = format!("{}:/usr/bin:/bin", place.join("bin").display());
    let mut shell = Command::new("sh");
    shell
        .args(["-c", line])
        .current_dir(place.path())
        .env("PATH", path)
        .envs(variables.iter().copied());
    let output = shell.output().context("sh")?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    ensure!(
        output.status.success(),
        "{}: {}{}",
        output.status,
        text(&output.stdout),
        text(&output.stderr)
    );
    Ok(text(&output.stdout))
}
