//! The Helm chart: what it renders for values that people set, and what docs/reference/chart-keys.md says of each value. What an API server says of it:
//! `cluster.rs`.

use anyhow::{Context, Result, ensure};
use oxigress_tests::chart::{SETS, arguments, at, container, helm, objects, pod, text};
use oxigress_tests::dist;
use oxigress_tests::place::Directory;
use serde_json::{Value, json};
use std::fs;
use std::process::Command;

#[test]
fn every_set_of_values_passes_helm_lint() -> Result<()> {
    for (name, values) in SETS {
        let output = helm(&["lint", "--strict", "conf/helm", "--values", "-"], values)?;
        let said = String::from_utf8_lossy(&output.stdout);
        ensure!(
            output.status.success(),
            "{name}: {said}{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(())
}

#[test]
fn each_container_has_the_least_that_it_needs() -> Result<()> {
    for (name, values) in SETS {
        check_privileges(values).with_context(|| format!("values {name:?}"))?;
    }
    Ok(())
}

fn check_privileges(values: &str) -> Result<()> {
    let objects = objects("ingress", values, &[])?;
    let pod = pod(&objects)?;
    ensure!(pod.pointer("/spec/automountServiceAccountToken") == Some(&json!(false)));
    let runtime = json!({"name": "runtime", "mountPath": "/run/oxigress"});
    for (role, capabilities) in [
        ("controller", json!({"drop": ["ALL"]})),
        ("nginx", json!({"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]})),
    ] {
        let container = container(pod, role)?;
        let context = &container["securityContext"];
        ensure!(context["capabilities"] == capabilities, "{role}: {context}");
        ensure!(
            context["runAsNonRoot"] == true && context["runAsUser"] == 101,
            "{role}: {context}"
        );
        ensure!(context["readOnlyRootFilesystem"] == true, "{role}: {context}");
        ensure!(context["allowPrivilegeEscalation"] == false, "{role}: {context}");
        ensure!(context["seccompProfile"]["type"] == "RuntimeDefault", "{role}: {context}");
        let mounts = container["volumeMounts"].as_array().context("mounts")?;
        ensure!(mounts.contains(&runtime), "{role}: {mounts:?}");
        let is_token = |mount: &Value| at(mount, "/mountPath").contains("serviceaccount");
        ensure!(mounts.iter().any(is_token) == (role == "controller"), "{role}: {mounts:?}");
        let is_secret = |mount: &Value| at(mount, "/name") == "webhook";
        ensure!(role == "controller" || !mounts.iter().any(is_secret), "{role}: {mounts:?}");
    }
    let volumes = pod.pointer("/spec/volumes").and_then(Value::as_array).context("volumes")?;
    let runtime =
        volumes.iter().find(|volume| at(volume, "/name") == "runtime").context("runtime")?;
    ensure!(
        at(runtime, "/emptyDir/medium") == "Memory"
            && runtime.pointer("/emptyDir/sizeLimit").is_some()
    );
    check_temporary_files(pod, volumes)?;
    // Its ports are below 1024: either the sysctl opens them, or it could not be had.
    let sysctls =
        pod.pointer("/spec/securityContext/sysctls").map(Value::to_string).unwrap_or_default();
    let is_on_host = pod.pointer("/spec/hostNetwork") == Some(&json!(true));
    ensure!(sysctls.contains("ip_unprivileged_port_start") != is_on_host, "{sysctls}");
    Ok(())
}

/// What clients send is buffered apart from the journal, in a volume with a limit.
fn check_temporary_files(pod: &Value, volumes: &[Value]) -> Result<()> {
    let temp = volumes.iter().find(|volume| at(volume, "/name") == "temp").context("temp")?;
    ensure!(temp.pointer("/emptyDir/sizeLimit").is_some(), "{temp}");
    let nginx = container(pod, "nginx")?;
    let folder = arguments(nginx, "ingress").into_iter();
    let folder = folder.filter_map(|flag| Some(flag.strip_prefix("--temp-dir=")?.to_owned()));
    let folder = folder.collect::<Vec<_>>().pop().context("--temp-dir")?;
    let mounts = nginx["volumeMounts"].as_array().context("mounts")?;
    let is_its = |mount: &&Value| at(mount, "/mountPath") == folder;
    let mount = mounts.iter().find(is_its).with_context(|| format!("no volume at {folder}"))?;
    ensure!(at(mount, "/name") == "temp", "{mount}");
    Ok(())
}

#[test]
fn the_program_takes_every_flag_and_both_roles_have_the_same() -> Result<()> {
    for (name, values) in SETS {
        let objects = objects("ingress", values, &[])?;
        let pod = pod(&objects)?;
        let flags = |role: &str| -> Result<Vec<String>> {
            let mut all = arguments(container(pod, role)?, "ingress");
            ensure!(!all.is_empty() && all.remove(0) == role, "{name}: {role}");
            Ok(all)
        };
        let controller = flags("controller")?;
        ensure!(controller == flags("nginx")?, "{name}: the roles differ");
        let output = Command::new(dist::oxigress()?)
            .arg("controller")
            .args(&controller)
            .arg("--version")
            .output()?;
        let why = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{name}: {why}");
    }
    Ok(())
}

#[test]
fn extra_arguments_win_and_stand_once() -> Result<()> {
    let values = "controller: {electionID: a, extraArgs: {election-id: b, update-status: false, http-port: 8080, version: ''}}";
    let objects = objects("ingress", values, &[])?;
    let all = arguments(container(pod(&objects)?, "nginx")?, "ingress");
    for expected in ["--election-id=b", "--update-status=false", "--http-port=8080", "--version"] {
        let flag = expected.split('=').next().unwrap_or_default();
        let found: Vec<_> = all.iter().filter(|one| one.split('=').next() == Some(flag)).collect();
        ensure!(found == [expected], "{flag}: {found:?}");
    }
    Ok(())
}

#[test]
fn a_wrong_key_or_type_is_an_error_that_names_it() -> Result<()> {
    for (values, word) in [
        ("controller: {replicacount: 2}", "replicacount"),
        ("controller: {keda: {enable: true}}", "enable"),
        ("controller: {admissionWebhooks: {patch: {imgae: {}}}}", "imgae"),
        ("controller: {service: {annotatoins: {}}}", "annotatoins"),
        ("controller: {hostNetwork: yes please}", "hostNetwork"),
        ("controller: {containerPort: {http: eighty}}", "/controller/containerPort/http"),
        ("replicaCount: 2", "replicaCount"),
        ("rbac: {scope: true}", "controller.scope.enabled"),
        ("defaultBackend: {enabled: true}", "defaultBackend.image"),
    ] {
        let error =
            text("ingress", values, &[]).err().with_context(|| format!("{values}: taken"))?;
        ensure!(format!("{error:#}").contains(word), "{values}: {error:#}");
    }
    Ok(())
}

#[test]
fn the_plain_manifests_are_those_of_the_chart() -> Result<()> {
    let directory = Directory::new("deploy")?;
    let script = dist::repository().join("nginx-build/cluster/deploy");
    let output = Command::new(script).arg(directory.join("deploy")).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut files = 0;
    for entry in fs::read_dir(directory.join("deploy"))? {
        let (new, old) = (entry?.path(), dist::repository().join("conf/deploy"));
        let old = old.join(new.file_name().context("a name")?);
        ensure!(
            fs::read(&new)? == fs::read(&old)?,
            "{} is old: run nginx-build/cluster/deploy",
            old.display()
        );
        files += 1;
    }
    ensure!(files == fs::read_dir(dist::repository().join("conf/deploy"))?.count());
    Ok(())
}

#[test]
fn the_chart_s_version_is_the_program_s() -> Result<()> {
    let chart = fs::read_to_string(dist::repository().join("conf/helm/Chart.yaml"))?;
    let chart: Value = serde_saphyr::from_str(&chart)?;
    ensure!(at(&chart, "/appVersion") == env!("CARGO_PKG_VERSION"), "{chart}");
    Ok(())
}
