//! `oxigress check`: what a migration starts with. It needs no running program.

use anyhow::{Context, Result, ensure};
use oxigress_tests::manifest::secret;
use oxigress_tests::mutual::{Identity, VALID};
use oxigress_tests::{dist, pass};
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Lines of a terminal that nobody has made larger.
const SCREEN: usize = 24;

/// Objects as charts render them, each in a file, written from the charts' documentation.
fn charts() -> std::path::PathBuf {
    dist::repository().join("tests/charts")
}

fn check(arguments: &[&str]) -> Result<Output> {
    let oxigress = dist::oxigress()?;
    Command::new(oxigress).arg("check").args(arguments).output().context("check")
}

fn check_text(text: &str, arguments: &[&str]) -> Result<Output> {
    let mut child = Command::new(dist::oxigress()?)
        .args(["check", "-"])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    child.stdin.take().context("stdin")?.write_all(text.as_bytes())?;
    Ok(child.wait_with_output()?)
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn json(output: &Output) -> Result<Value> {
    serde_json::from_slice(&output.stdout).with_context(|| format!("{output:?}"))
}

fn numbers(report: &Value) -> [u64; 4] {
    let summary = &report["summary"];
    ["objects", "as_before", "different", "not_served"]
        .map(|name| summary[name].as_u64().unwrap_or(u64::MAX))
}

fn ingress(name: &str, annotations: &str, spec: &str) -> String {
    format!(
        "---\napiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata:\n  name: {name}\n  annotations: {{{annotations}}}\n\
         spec: {{{spec}}}\n"
    )
}

fn rules(host: &str, service: &str) -> String {
    format!(
        "rules: [{{host: {host}, http: {{paths: [{{path: /, pathType: Prefix, backend: {{service: {{name: {service}, \
         port: {{number: 80}}}}}}}}]}}}}]"
    )
}

fn service(name: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\nspec: {{ports: [{{port: 80}}]}}\n"
    )
}

fn yaml_files(folder: &Path, texts: &mut Vec<String>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        match path.is_dir() {
            true => yaml_files(&path, texts)?,
            false => texts.push(fs::read_to_string(path)?),
        }
    }
    Ok(())
}

#[test]
fn what_sixty_charts_render_is_all_served_and_the_report_fits_a_screen() -> Result<()> {
    let folder = charts();
    let output = check(&[&folder.display().to_string()])?;
    let text = stdout(&output);
    println!("{text}");
    ensure!(output.status.code() == Some(0), "{output:?}");
    ensure!(text.lines().count() <= SCREEN, "{} lines: {text}", text.lines().count());
    ensure!(text.contains("(60 Ingresses)") && text.contains(", 0 not served"), "{text}");
    ensure!(text.matches("IngressClass").count() == 1, "assumed once: {text}");
    let mut texts = Vec::new();
    yaml_files(&folder, &mut texts)?;
    ensure!(texts.len() == 60, "{} files", texts.len());
    // `helm template … | oxigress check -`
    let piped = check_text(&texts.join("\n"), &[])?;
    ensure!(stdout(&piped) == text, "{}", stdout(&piped));
    Ok(())
}

#[test]
fn a_folder_a_file_and_standard_input_are_read_alike() {
    pass("check-inputs", |directory| {
        let text =
            format!("{}{}", service("shop"), ingress("shop", "", &rules("shop.test", "shop")));
        let folder = directory.join("manifests");
        fs::create_dir(&folder)?;
        let file = folder.join("shop.yaml");
        fs::write(&file, &text)?;
        let of_folder = stdout(&check(&[&folder.display().to_string()])?);
        ensure!(of_folder.starts_with("2 objects (1 Ingress): 2 served as before"), "{of_folder}");
        ensure!(stdout(&check(&[&file.display().to_string()])?) == of_folder);
        ensure!(stdout(&check_text(&text, &[])?) == of_folder);
        let quiet = stdout(&check(&["--quiet", &file.display().to_string()])?);
        ensure!(quiet.lines().count() == 1 && of_folder.starts_with(&quiet), "{quiet}");
        // `kubectl get ingress -o json | oxigress check -`
        let json_text = r#"{"apiVersion": "v1", "kind": "List", "items": []}"#;
        ensure!(stdout(&check_text(json_text, &[])?).starts_with("0 objects"));
        let empty = check_text("", &[])?;
        ensure!(empty.status.code() == Some(1), "{empty:?}");
        ensure!(
            String::from_utf8_lossy(&empty.stderr).starts_with("error: standard input is empty")
        );
        ensure!(check(&[])?.status.code() == Some(2), "nothing to check is a wrong command line");
        Ok(())
    });
}

#[test]
fn one_cause_is_one_paragraph_whatever_number_of_objects_it_concerns() -> Result<()> {
    let annotation = |n: usize| format!("nginx.ingress.kubernetes.io/auth-type: 'odd-{n}'");
    let ingresses =
        (0..40).map(|n| ingress(&format!("a{n}"), &annotation(n), &rules("a.test", "shop")));
    let text = service("shop") + &ingresses.collect::<String>();
    let output = check_text(&text, &["--output=json"])?;
    ensure!(output.status.code() == Some(1), "{output:?}");
    let report = json(&output)?;
    ensure!(numbers(&report) == [41, 1, 0, 40], "{report}");
    let findings = report["findings"].as_array().context("findings")?;
    let closed: Vec<_> =
        findings.iter().filter(|one| one["cause"].to_string().contains("auth-type")).collect();
    ensure!(closed.len() == 1 && closed[0]["outcome"] == "not-served", "{report}");
    ensure!(closed[0]["objects"].as_array().is_some_and(|all| all.len() == 40), "{report}");
    let text = stdout(&check_text(&text, &[])?);
    ensure!(
        text.contains("Ingress default/a0, Ingress default/a1, Ingress default/a10 and 37 more"),
        "{text}"
    );
    ensure!(text.lines().count() <= SCREEN, "{text}");
    Ok(())
}

/// What OpenSSL alone can judge is judged here as nginx judges it, and named by object and field.
#[test]
fn ciphers_and_revocation_lists_that_nginx_would_refuse_are_named() -> Result<()> {
    let ca = Identity::root("ca")?;
    let list = ca.revoke(&[&ca.issue("one", VALID)?])?;
    let damaged = list.replacen("\nMI", "\nAA", 1);
    let authorities = |fields: &[(&str, String)]| secret("authorities", fields);
    let prefix = "nginx.ingress.kubernetes.io";
    let trusted = [("ca.crt", ca.pem()?)];
    let lists = [("ca.crt", ca.pem()?), ("ca.crl", list + &damaged)];
    for (annotations, fields, named) in [
        (format!("{prefix}/ssl-ciphers: foo"), &trusted[..], "ssl-ciphers"),
        (
            format!(
                "{prefix}/proxy-ssl-secret: default/authorities, {prefix}/proxy-ssl-ciphers: foo"
            ),
            &trusted,
            "proxy-ssl-ciphers",
        ),
        (format!("{prefix}/auth-tls-secret: default/authorities"), &lists, "ca.crl"),
    ] {
        let text = service("shop")
            + &ingress("shop", &annotations, &rules("shop.test", "shop"))
            + &authorities(fields);
        let output = check_text(&text, &["--output=json"])?;
        let report = json(&output)?;
        let findings = report["findings"].as_array().context("findings")?;
        let of_shop =
            findings.iter().filter(|one| one["objects"].to_string().contains("default/shop"));
        let causes: Vec<_> = of_shop.map(|one| one["cause"].to_string()).collect();
        ensure!(causes.iter().any(|cause| cause.contains(named)), "{named}: {report}");
    }
    Ok(())
}

#[test]
fn a_misspelt_field_is_a_warning_and_a_version_that_is_gone_an_error() -> Result<()> {
    let misspelt = service("shop")
        + &ingress(
            "shop",
            "",
            &rules("shop.test", "shop")
                .replace("pathType: Prefix", "pathTyp: Prefix, pathType: Prefix"),
        )
        .replace("annotations:", "annotation:");
    let output = check_text(&misspelt, &[])?;
    let text = stdout(&output);
    ensure!(output.status.code() == Some(0), "{output:?}");
    ensure!(text.starts_with("2 objects (1 Ingress): 1 served as before, 1 different"), "{text}");
    for meant in [
        "metadata.annotation: ",
        "did you mean annotations?",
        "pathTyp: ",
        "did you mean pathType?",
    ] {
        ensure!(text.contains(meant), "{meant}: {text}");
    }
    let old = ingress("old", "", &rules("old.test", "shop"))
        .replace("networking.k8s.io/v1", "extensions/v1beta1");
    let output = check_text(&(service("shop") + &old), &[])?;
    let text = stdout(&output);
    ensure!(output.status.code() == Some(1), "{output:?}");
    ensure!(text.contains("1 not served") && text.contains("Ingress default/old"), "{text}");
    ensure!(
        text.contains("extensions/v1beta1 is gone") && text.contains("service.port.number"),
        "{text}"
    );
    Ok(())
}

#[test]
fn what_a_cluster_adds_is_assumed_and_what_is_of_others_is_silent() -> Result<()> {
    let deployment = "---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: shop}\n";
    let text = String::from(deployment)
        + &ingress(
            "shop",
            "",
            &format!(
                "ingressClassName: web, {}, tls: [{{hosts: [shop.test], secretName: shop-tls}}]",
                rules("shop.test", "shop")
            ),
        )
        + &ingress(
            "other",
            "",
            &format!("ingressClassName: traefik, {}", rules("other.test", "other")),
        );
    let report = json(&check_text(&text, &["-ojson"])?)?;
    ensure!(numbers(&report) == [1, 1, 0, 0], "{report}");
    ensure!(report["summary"]["of_other_controllers"] == 1, "{report}");
    let assumed = report["assumed"].to_string();
    for sentence in [
        "IngressClass web",
        "1 Secret is assumed",
        "default/shop-tls",
        "1 Service is assumed",
        "default/shop",
    ] {
        ensure!(assumed.contains(sentence), "{sentence}: {assumed}");
    }
    ensure!(report["summary"]["not_read"] == serde_json::json!({"Deployment": 1}), "{report}");
    let summary = stdout(&check_text(&text, &["--quiet"])?);
    ensure!(
        summary.ends_with("1 Ingress of other controllers; ignored: 1 Deployment\n"),
        "{summary}"
    );
    // Nothing is ours: that is no success.
    let foreign = ingress(
        "other",
        "",
        &format!("ingressClassName: traefik, {}", rules("other.test", "other")),
    );
    ensure!(check_text(&foreign, &[])?.status.code() == Some(1));
    Ok(())
}

#[test]
fn a_difference_is_named_where_another_ingress_makes_it_one() -> Result<()> {
    let regex = "nginx.ingress.kubernetes.io/use-regex: 'true'";
    let spec =
        rules("shop.test", "shop").replace("pathType: Prefix", "pathType: ImplementationSpecific");
    let alone = service("shop") + &ingress("shop", regex, &spec.replace("path: /", "path: /a.*"));
    ensure!(numbers(&json(&check_text(&alone, &["-ojson"])?)?) == [2, 2, 0, 0]);
    let shared = alone + &ingress("plain", "", &spec);
    let report = json(&check_text(&shared, &["-ojson"])?)?;
    ensure!(numbers(&report) == [3, 2, 1, 0], "{report}");
    ensure!(
        report["findings"][0]["cause"].to_string().contains("Ingress default/plain"),
        "{report}"
    );
    Ok(())
}

#[test]
fn everything_that_is_read_is_counted() -> Result<()> {
    let class = "---\napiVersion: networking.k8s.io/v1\nkind: IngressClass\nmetadata: {name: web}\n\
                 spec: {controller: k8s.io/ingress-nginx}\n";
    let slice = "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
                 metadata: {name: shop-1, labels: {kubernetes.io/service-name: shop}}\naddressType: IPv4\n\
                 ports: [{port: 80}]\nendpoints: [{addresses: [192.0.2.7]}]\n";
    let spec = format!("ingressClassName: web, {}", rules("shop.test", "shop"));
    let four = format!("{}{}{class}{slice}", service("shop"), ingress("shop", "", &spec));
    let text = stdout(&check_text(&four, &[])?);
    ensure!(text.starts_with("4 objects (1 Ingress): 4 served as before"), "{text}");
    let routes = format!("{}{}", gateway(""), route("a", "backendRefs: [{name: a, port: 80}]"));
    let text = stdout(&check_text(&routes, &[])?);
    ensure!(text.starts_with("3 objects (1 route): 3 served as before"), "{text}");
    Ok(())
}

fn gateway(tls: &str) -> String {
    let (protocol, port) = if tls.is_empty() { ("HTTP", 80) } else { ("HTTPS", 443) };
    format!(
        "---\napiVersion: gateway.networking.k8s.io/v1\nkind: GatewayClass\nmetadata: {{name: oxigress}}\n\
         spec: {{controllerName: oxigress.io/gateway-controller}}\n---\n\
         apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {{name: web}}\n\
         spec: {{gatewayClassName: oxigress, listeners: [{{name: a, port: {port}, protocol: {protocol}{tls}}}]}}\n"
    )
}

fn route(name: &str, rule: &str) -> String {
    format!(
        "---\napiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {{name: {name}}}\n\
         spec: {{parentRefs: [{{name: web}}], rules: [{{{rule}}}]}}\n"
    )
}

/// `oxigress migrate … | oxigress check -`: what is printed names objects that it leaves where they are.
#[test]
fn what_routes_and_gateways_name_and_manifests_lack_is_assumed_to_exist() -> Result<()> {
    let policy = "---\napiVersion: oxigress.io/v1alpha1\nkind: Policy\nmetadata: {name: users}\n\
                  spec: {auth-type: basic, auth-secret: users}\n";
    let names_policy = "filters: [{type: ExtensionRef, extensionRef: {group: oxigress.io, kind: Policy, name: users}}], \
                        backendRefs: [{name: b, port: 8080}]";
    let text = gateway(", tls: {certificateRefs: [{name: web-tls}]}")
        + policy
        + &route("a", "backendRefs: [{name: a, port: 80}]")
        + &route("b", names_policy);
    let output = check_text(&text, &["-ojson"])?;
    ensure!(output.status.code() == Some(0), "{output:?}");
    let report = json(&output)?;
    ensure!(numbers(&report) == [5, 5, 0, 0], "{report}");
    let assumed = report["assumed"].to_string();
    for sentence in ["2 Services are", "default/a, default/b", "2 Secrets are", "default/web-tls"] {
        ensure!(assumed.contains(sentence), "{sentence}: {assumed}");
    }
    // What is written wrong is still told.
    let wrong = gateway("") + &route("a", "backendRefs: [{name: a, port: 80, kind: Bucket}]");
    let output = check_text(&wrong, &[])?;
    ensure!(output.status.code() == Some(1), "{output:?}");
    ensure!(stdout(&output).contains("Bucket a is no Service"), "{output:?}");
    Ok(())
}

#[test]
fn several_folders_are_one_input() {
    pass("check-several", |directory| {
        let [one, other] = ["one", "other"].map(|name| directory.join(name));
        for folder in [&one, &other] {
            fs::create_dir(folder)?;
        }
        fs::write(one.join("service.yaml"), service("shop"))?;
        fs::write(other.join("shop.yaml"), ingress("shop", "", &rules("shop.test", "shop")))?;
        let [one, other] = [one, other].map(|folder| folder.display().to_string());
        let text = stdout(&check(&[&one, &other])?);
        ensure!(text.starts_with("2 objects (1 Ingress): 2 served as before"), "{text}");
        ensure!(!text.contains("1 Service is assumed"), "{text}");
        let output = check(&[&one, &one])?;
        ensure!(output.status.code() == Some(0), "the same twice is read once: {output:?}");
        let copy = directory.join("copy.yaml");
        fs::write(&copy, service("shop"))?;
        let output = check(&[&one, &copy.display().to_string()])?;
        ensure!(output.status.code() == Some(1), "{output:?}");
        ensure!(stdout(&output).contains(&format!("that of {one} counts")), "{output:?}");
        Ok(())
    });
}

#[test]
fn a_route_without_its_gateway_is_not_said_to_be_served() -> Result<()> {
    let alone = route("a", "backendRefs: [{name: a, port: 80}]");
    let output = check_text(&alone, &[])?;
    let text = stdout(&output);
    ensure!(output.status.code() == Some(1), "{output:?}");
    ensure!(text.starts_with("0 objects (0 Ingresses): "), "{text}");
    ensure!(text.contains("; 1 route of other controllers"), "{text}");
    ensure!(text.contains("routes that name Gateway default/web are other controllers'"), "{text}");
    let foreign =
        gateway("").replace("oxigress.io/gateway-controller", "example.com/other") + &alone;
    let text = stdout(&check_text(&foreign, &[])?);
    ensure!(text.contains("; 1 Gateway, 1 route of other controllers"), "{text}");
    Ok(())
}
