//! The admission webhook, asked by a real kube-apiserver.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::networking::v1::Ingress;
use kube::api::{Api, PostParams};
use kube::client::Body;
use oxigress_tests::certificate::Certificate;
use oxigress_tests::client::{Address, Request, send};
use oxigress_tests::cluster::{Cluster, Tenant, ingress};
use oxigress_tests::controller::{Controller, webhook_flags};
use oxigress_tests::pass;
use oxigress_tests::place::{Directory, free_port};
use oxigress_tests::prometheus::Page;
use oxigress_tests::wait::{self, block_on};
use serde_json::{Value, json};

/// A controller, and the API server told to ask it about the tenant's Ingresses.
fn start(directory: &Directory, tenant: &Tenant<'_>) -> Result<Controller> {
    let certificate = Certificate::new("webhook", &["localhost"])?;
    let port = free_port()?;
    let mut flags = tenant.flags();
    flags.extend(webhook_flags(directory, &certificate, &format!("127.0.0.1:{port}"))?);
    flags.push("--enable-metrics".into());
    tenant.apply(&ingress("first", "first.test", "shop"))?;
    let controller = Controller::start_on(tenant.cluster, directory, 1, &flags)?;
    tenant.settle(&controller)?;
    tenant.have_reviewed(&certificate, port)?;
    Ok(controller)
}

fn annotated(name: &str, host: &str, annotations: Value) -> Value {
    let annotations = annotations.as_object().cloned().unwrap_or_default().into_iter();
    let annotations: serde_json::Map<_, _> = annotations
        .map(|(name, value)| (format!("nginx.ingress.kubernetes.io/{name}"), value))
        .collect();
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
        "metadata": { "name": name, "annotations": annotations },
        "spec": { "rules": [{ "host": host, "http": { "paths": [{
            "path": "/", "pathType": "Prefix",
            "backend": { "service": { "name": "shop", "port": { "number": 80 } } },
        }]}}]},
    })
}

/// Creates an Ingress as `kubectl` does; answers status, text and warnings.
fn create(
    tenant: &Tenant<'_>,
    mut ingress: Value,
    dry_run: bool,
) -> Result<(u16, String, Vec<String>)> {
    ingress["spec"]["ingressClassName"] = json!(tenant.class);
    let path = format!(
        "/apis/networking.k8s.io/v1/namespaces/{}/ingresses{}",
        tenant.namespace,
        if dry_run { "?dryRun=All" } else { "" }
    );
    let request = http::Request::post(path).header("content-type", "application/json");
    let request = request.body(Body::from(serde_json::to_vec(&ingress)?))?;
    let client = tenant.cluster.client()?;
    block_on(async {
        let response = client.send(request).await?;
        let warnings = response.headers().get_all("warning").iter();
        let warnings = warnings.map(|text| Ok(text.to_str()?.to_owned())).collect::<Result<_>>()?;
        let status = response.status().as_u16();
        let body = response.into_body().collect_bytes().await?;
        Ok((status, String::from_utf8_lossy(&body).into_owned(), warnings))
    })
}

/// What no webhook lets in.
fn odd() -> Value {
    annotated("odd", "odd.test", json!({ "auth-type": "digest" }))
}

/// The API server takes a new configuration over a moment later.
fn it_asks(tenant: &Tenant<'_>) -> Result<()> {
    wait::until("the API server to ask", || {
        let (status, ..) = create(tenant, odd(), true)?;
        ensure!(status != 201, "it does not ask yet");
        Ok(())
    })
}

#[test]
fn the_api_server_asks_before_it_stores_an_ingress() {
    pass("webhook", |directory| {
        let cluster = Cluster::shared()?;
        let tenant = cluster.tenant("webhook")?;
        let controller = start(directory, &tenant)?;
        it_asks(&tenant)?;

        let (status, text, _) = create(&tenant, odd(), false)?;
        assert_eq!(status, 400, "{text}");
        let said: Value = serde_json::from_str(&text)?;
        let message = said["message"].as_str().context("a message")?;
        assert!(
            message.contains("admission webhook \"ingresses.oxigress.test\" denied the request"),
            "{message}"
        );
        assert!(
            message.contains("annotation auth-type: digest authentication is not supported"),
            "{message}"
        );
        assert_eq!(said["reason"], "BadRequest");
        assert_eq!(cluster.get("Ingress", &tenant.namespace, "odd")?, Value::Null);

        let (status, text, _) =
            create(&tenant, annotated("second", "first.test", json!({})), false)?;
        let owner = format!("is already defined in ingress {}/first", tenant.namespace);
        assert!(status == 400 && text.contains(&owner), "{status}: {text}");

        let (status, text, warnings) = create(
            &tenant,
            annotated("warned", "warned.test", json!({ "proxy-body-size": "8mb" })),
            false,
        )?;
        assert_eq!(status, 201, "{text}");
        assert!(
            warnings.iter().any(|warning| warning.contains("annotation proxy-body-size")),
            "{warnings:?}"
        );

        changes_are_judged(cluster, &tenant)?;
        let address = Address::http(controller.health_port);
        let metrics = block_on(send(&address, &Request::get("localhost", "/metrics")))?;
        let metrics = Page::parse(&metrics.text())?;
        let count = |name: &str, ingress: &str| {
            let labels = [("ingress", ingress), ("namespace", tenant.namespace.as_str())];
            metrics.sum(&format!("nginx_ingress_controller_{name}"), &labels).0
        };
        assert!(count("check_errors", "odd") >= 2.0, "{metrics:?}");
        assert_eq!((count("check_success", "warned"), count("check_errors", "warned")), (2.0, 1.0));
        Ok(())
    });
}

/// A change is judged, too; what is stored already is not.
fn changes_are_judged(cluster: &Cluster, tenant: &Tenant<'_>) -> Result<()> {
    let change =
        json!({ "metadata": { "annotations": { "nginx.ingress.kubernetes.io/auth-url": "x" } } });
    let refused = cluster.patch("Ingress", &tenant.namespace, "warned", &change);
    let refused = format!("{:#}", refused.err().context("an odd change is stored")?);
    assert!(refused.contains("annotation auth-url"), "{refused}");
    let good = json!({ "metadata": { "annotations": { "nginx.ingress.kubernetes.io/proxy-body-size": "8m" } } });
    cluster.patch("Ingress", &tenant.namespace, "warned", &good)?;

    // One that is being deleted says what it said, or is reviewed, and its finalizer goes.
    let ingresses: Api<Ingress> = Api::namespaced(cluster.client()?, &tenant.namespace);
    let mut kept = annotated("kept", "kept.test", json!({}));
    kept["metadata"]["finalizers"] = json!(["oxigress.test/kept"]);
    kept["spec"]["ingressClassName"] = json!(tenant.class);
    let kept: Ingress = serde_json::from_value(kept)?;
    block_on(ingresses.create(&PostParams::default(), &kept))?;
    tenant.delete("Ingress", "kept")?;
    let bad =
        json!({ "metadata": { "annotations": { "nginx.ingress.kubernetes.io/auth-url": "x" } } });
    let refused = cluster.patch("Ingress", &tenant.namespace, "kept", &bad);
    let refused =
        format!("{:#}", refused.err().context("an Ingress that is being deleted is reviewed")?);
    ensure!(refused.contains("annotation auth-url"), "{refused}");
    let free = json!({ "metadata": { "finalizers": null } });
    cluster.patch("Ingress", &tenant.namespace, "kept", &free)?;
    Ok(())
}

#[test]
fn what_concerns_a_host_of_another_namespace_is_denied_or_else_ignored() {
    pass("webhook-ownership", |directory| {
        let cluster = Cluster::shared()?;
        // Of Ingresses of one second the first by namespace is the oldest.
        let owner = cluster.tenant("a-owner")?;
        let tenant = cluster.tenant("webhook-ownership")?;
        let mut owned = annotated("owned", "owned.test", json!({}));
        owned["spec"]["ingressClassName"] = json!(tenant.class);
        owner.apply(&owned.to_string())?;
        let controller = start(directory, &tenant)?;
        it_asks(&tenant)?;

        let guest = |annotations: Value| {
            let mut guest = annotated("guest", "owned.test", annotations);
            guest["spec"]["rules"][0]["http"]["paths"][0]["path"] = json!("/guest");
            guest
        };
        let whose = format!("belongs to namespace {}, whose Ingress", owner.namespace);
        for (annotation, value) in
            [("app-root", "/guest"), ("server-alias", "x.test"), ("from-to-www-redirect", "true")]
        {
            let (status, text, _) = create(&tenant, guest(json!({ annotation: value })), false)?;
            let why = format!("annotation {annotation}: host owned.test {whose}");
            ensure!(status == 400 && text.contains(&why), "{status}: {text}");
        }
        let alias = annotated("alias", "alias.test", json!({ "server-alias": "owned.test" }));
        let (status, text, _) = create(&tenant, alias, false)?;
        ensure!(status == 400 && text.contains(&whose), "{status}: {text}");
        let canary = json!({ "canary": "true", "canary-weight": "100" });
        let (status, text, _) = create(&tenant, annotated("canary", "owned.test", canary), false)?;
        ensure!(status == 400 && text.contains("of another namespace"), "{status}: {text}");
        let (status, text, _) = create(&tenant, guest(json!({})), false)?;
        ensure!(status == 201, "{status}: {text}");

        // Where nobody asks before, it is ignored and told.
        let passed = cluster.tenant("passed")?;
        let mut told = guest(json!({ "app-root": "/guest" }));
        told["spec"]["ingressClassName"] = json!(tenant.class);
        told["spec"]["rules"][0]["http"]["paths"][0]["path"] = json!("/passed");
        passed.apply(&told.to_string())?;
        wait::until("a line in the log", || {
            let object = format!("Ingress {}/guest: rejected", passed.namespace);
            let why = format!("annotation app-root: host owned.test {whose}");
            let log = controller.error_log();
            let is_it = |line: &str| line.contains(&object) && line.contains(&why);
            ensure!(log.lines().any(is_it), "{object}: {why}");
            Ok(())
        })?;
        let address = Address::http(controller.http_port);
        let root = block_on(send(&address, &Request::get("owned.test", "/")))?;
        ensure!(root.status == 503, "the owner's path, whose Service is missing: {}", root.status);
        Ok(())
    });
}
