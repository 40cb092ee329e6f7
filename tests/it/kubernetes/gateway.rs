//! The Gateway API on a real API server: definitions that come later, routes that come and go, and what each status says.
//!
//! The definitions are the test's own and take any field: what the API's own refuse is not looked at here.

use super::objects::secret;
use anyhow::{Context, Result, ensure};
use oxigress_tests::certificate::Certificate;
use oxigress_tests::chart;
use oxigress_tests::client::{Address, Request, send};
use oxigress_tests::cluster::{Cluster, Tenant};
use oxigress_tests::controller::Controller;
use oxigress_tests::pass;
use oxigress_tests::place::free_port;
use oxigress_tests::wait::{block_on, until};
use serde_json::{Value, json};
use std::fs;

pub const GROUP: &str = "gateway.networking.k8s.io";
/// ClusterTrustBundles are a beta feature of Kubernetes, which is off by default.
pub const TRUST_BUNDLES: [&str; 2] = [
    "--feature-gates=ClusterTrustBundle=true",
    "--runtime-config=certificates.k8s.io/v1beta1/clustertrustbundles=true",
];
const CONTROLLER: &str = "oxigress.test/gateway";

/// A definition of a kind whose status is written apart, as those of the API.
fn definition(kind: &str, plural: &str, version: &str, is_namespaced: bool) -> Value {
    let singular = kind.to_lowercase();
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": format!("{plural}.{GROUP}"),
            "annotations": {"api-approved.kubernetes.io": "unapproved, of a test"},
        },
        "spec": {
            "group": GROUP,
            "scope": if is_namespaced { "Namespaced" } else { "Cluster" },
            "names": {"kind": kind, "plural": plural, "singular": singular},
            "versions": [{
                "name": version, "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                }},
            }],
        },
    })
}

/// Defines the kinds of the Gateway API.
pub fn define(cluster: &Cluster) -> Result<()> {
    for (kind, plural, version, is_namespaced) in [
        ("GatewayClass", "gatewayclasses", "v1", false),
        ("Gateway", "gateways", "v1", true),
        ("ListenerSet", "listenersets", "v1", true),
        ("BackendTLSPolicy", "backendtlspolicies", "v1", true),
        ("HTTPRoute", "httproutes", "v1", true),
        ("GRPCRoute", "grpcroutes", "v1", true),
        ("TLSRoute", "tlsroutes", "v1", true),
        ("TCPRoute", "tcproutes", "v1", true),
        ("UDPRoute", "udproutes", "v1", true),
        ("ReferenceGrant", "referencegrants", "v1beta1", true),
    ] {
        cluster.apply(&definition(kind, plural, version, is_namespaced).to_string())?;
    }
    Ok(())
}

/// The condition of this type: its status, reason and generation.
fn condition<'v>(conditions: &'v Value, name: &str) -> Option<(&'v str, &'v str, i64)> {
    let found = conditions.as_array()?.iter().find(|condition| condition["type"] == name)?;
    let text = |field: &str| found[field].as_str();
    Some((text("status")?, text("reason")?, found["observedGeneration"].as_i64()?))
}

struct Site<'c> {
    tenant: Tenant<'c>,
    controller: Controller,
}

impl Site<'_> {
    fn get(&self, kind: &str, name: &str) -> Result<Value> {
        self.tenant.cluster.get(kind, &self.tenant.namespace, name)
    }

    /// Waits for a condition that `at` finds in an object's status.
    fn has(&self, kind: &str, name: &str, at: &str, expected: (&str, &str, &str)) -> Result<Value> {
        let (condition_name, status, reason) = expected;
        until("a condition", || {
            let object = self.get(kind, name)?;
            let conditions = object.pointer(at).cloned().unwrap_or_default();
            let generation = object["metadata"]["generation"].as_i64().context("generation")?;
            let found = condition(&conditions, condition_name);
            ensure!(
                found == Some((status, reason, generation)),
                "{kind} {name}: {}",
                object["status"]
            );
            Ok(object)
        })
    }

    fn answers(&self, host: &str, path: &str, expected: (u16, Option<&str>)) -> Result<()> {
        until("an answer", || {
            let request = Request::get(host, path);
            let answer = block_on(send(&Address::http(self.controller.http_port), &request))?;
            let found = (answer.status, answer.endpoint());
            ensure!((found.0, found.1.as_deref()) == expected, "{host}{path}: {found:?}");
            Ok(())
        })
    }
}

fn gateway(listeners: &str) -> String {
    format!(
        "{{apiVersion: {GROUP}/v1, kind: Gateway, metadata: {{name: web}}, spec: {{gatewayClassName: ours, \
         listeners: [{listeners}]}}}}"
    )
}

fn route(backend: &str, hosts: &str) -> String {
    format!(
        "{{apiVersion: {GROUP}/v1, kind: HTTPRoute, metadata: {{name: shop}}, spec: {{parentRefs: [{{name: web}}], \
         hostnames: [{hosts}], rules: [{{backendRefs: [{{name: {backend}, port: 80}}]}}]}}}}"
    )
}

#[test]
fn definitions_come_routes_are_served_and_each_status_says_so() {
    pass("kubernetes-gateway", |directory| {
        let cluster = Cluster::start_with(directory, &TRUST_BUNDLES.map(Into::into))?;
        let tenant = cluster.tenant("gateway")?;
        let mut flags = tenant.flags();
        flags.retain(|flag| !flag.starts_with("--update-status"));
        flags.extend([
            "--gateway-api".into(),
            format!("--gateway-controller-name={CONTROLLER}"),
            "--publish-status-address=192.0.2.7".into(),
            "--election-ttl=2s".into(),
        ]);
        let pod = [&*tenant.namespace, "pod"];
        let controller = Controller::start_in_pod(&cluster, pod, directory, 1, &flags)?;
        let endpoint = tenant.pod("a")?;
        tenant.service("shop", &[&endpoint])?;
        // It runs already when the kinds are defined.
        define(&cluster)?;
        until("the kinds", || {
            tenant.apply(&format!(
                "{{apiVersion: {GROUP}/v1, kind: GatewayClass, metadata: {{name: ours}}, spec: {{controllerName: {CONTROLLER}}}}}"
            ))
        })?;
        let site = Site { tenant, controller };
        let tenant = &site.tenant;
        tenant.apply(&gateway(
            "{name: http, port: 80, protocol: HTTP}, {name: sctp, port: 81, protocol: SCTP}",
        ))?;
        tenant.apply(&route("shop", "shop.test"))?;
        site.answers("shop.test", "/", (200, Some("a")))?;
        statuses_are_written(&cluster, &site)?;
        another_controllers_word_stays(&cluster, &site)?;
        tenant.apply(&route("shop", "other.test"))?;
        site.answers("other.test", "/", (200, Some("a")))?;
        site.answers("shop.test", "/", (404, None))?;
        a_bundle_of_the_cluster_is_read(&cluster, &site)?;
        a_policy_is_defined_and_counts(&cluster, &site)?;
        a_port_of_its_own(&site)
    });
}

fn statuses_are_written(cluster: &Cluster, site: &Site<'_>) -> Result<()> {
    let parent = "/status/parents/0/conditions";
    site.has("HTTPRoute", "shop", parent, ("Accepted", "True", "Accepted"))?;
    site.has("HTTPRoute", "shop", parent, ("ResolvedRefs", "True", "ResolvedRefs"))?;
    site.has("Gateway", "web", "/status/conditions", ("Accepted", "True", "ListenersNotValid"))?;
    let first = "/status/listeners/0/conditions";
    site.has("Gateway", "web", first, ("Programmed", "True", "Programmed"))?;
    let second = "/status/listeners/1/conditions";
    site.has("Gateway", "web", second, ("Accepted", "False", "UnsupportedProtocol"))?;
    // The listener may have been programmed before the route came.
    until("the route at the listener", || {
        let status = &site.get("Gateway", "web")?["status"];
        ensure!(status["addresses"][0]["value"] == "192.0.2.7", "{status}");
        ensure!(status["listeners"][0]["attachedRoutes"] == 1, "{status}");
        Ok(())
    })?;
    let class = cluster.get("GatewayClass", "", "ours")?;
    ensure!(condition(&class["status"]["conditions"], "Accepted").is_some(), "{class}");
    Ok(())
}

/// A reference cannot be used, and another controller has written something meanwhile.
fn another_controllers_word_stays(cluster: &Cluster, site: &Site<'_>) -> Result<()> {
    let tenant = &site.tenant;
    let mut others = site.get("HTTPRoute", "shop")?["status"]["parents"].clone();
    let other =
        json!({"parentRef": {"name": "x"}, "controllerName": "else.test/x", "conditions": []});
    others.as_array_mut().context("parents")?.push(other.clone());
    let namespace = &tenant.namespace;
    cluster.patch("HTTPRoute", namespace, "shop", &json!({"status": {"parents": others}}))?;
    tenant.apply(&route("lost", "shop.test"))?;
    site.answers("shop.test", "/", (500, None))?;
    until("both parents", || {
        let route = site.get("HTTPRoute", "shop")?;
        let parents = route["status"]["parents"].as_array().context("parents")?;
        let ours = parents.iter().find(|parent| parent["controllerName"] == CONTROLLER);
        let ours = ours.context("ours")?;
        let found = condition(&ours["conditions"], "ResolvedRefs").map(|(a, b, _)| (a, b));
        ensure!(found == Some(("False", "BackendNotFound")), "{route}");
        ensure!(parents.contains(&other), "{route}");
        Ok(())
    })?;
    Ok(())
}

/// A Gateway asks clients for certificates by a bundle that comes later, and goes again.
fn a_bundle_of_the_cluster_is_read(cluster: &Cluster, site: &Site<'_>) -> Result<()> {
    let shown = Certificate::new("closed.test", &["closed.test"])?;
    let authority = fs::read_to_string(cluster.authority())?;
    let reference = "{group: certificates.k8s.io, kind: ClusterTrustBundle, name: roots}";
    site.tenant.apply(&secret("shown", &shown))?;
    site.tenant.apply(&format!(
        "{{apiVersion: {GROUP}/v1, kind: Gateway, metadata: {{name: closed}}, spec: {{gatewayClassName: ours, listeners: \
         [{{name: https, port: 443, protocol: HTTPS, hostname: closed.test, tls: {{certificateRefs: [{{name: shown}}]}}}}], \
         tls: {{frontend: {{default: {{validation: {{caCertificateRefs: [{reference}]}}}}}}}}}}}}"
    ))?;
    let first = "/status/listeners/0/conditions";
    let is_closed = ("Accepted", "False", "NoValidCACertificate");
    site.has("Gateway", "closed", first, is_closed)?;
    let bundle = json!({
        "apiVersion": "certificates.k8s.io/v1beta1", "kind": "ClusterTrustBundle",
        "metadata": {"name": "roots"}, "spec": {"trustBundle": authority},
    });
    cluster.apply(&bundle.to_string())?;
    site.has("Gateway", "closed", first, ("Accepted", "True", "Accepted"))?;
    cluster.delete("ClusterTrustBundle", "", "roots")?;
    site.has("Gateway", "closed", first, is_closed)?;
    site.tenant.delete("Gateway", "closed")
}

/// The definition of Policies is the chart's, and comes after the route that names one.
fn a_policy_is_defined_and_counts(cluster: &Cluster, site: &Site<'_>) -> Result<()> {
    let tenant = &site.tenant;
    let filter = "{type: ExtensionRef, extensionRef: {group: oxigress.io, kind: Policy, name: p}}";
    let rules = format!("[{{filters: [{filter}], backendRefs: [{{name: shop, port: 80}}]}}]");
    tenant.apply(&format!(
        "{{apiVersion: {GROUP}/v1, kind: HTTPRoute, metadata: {{name: kept}}, spec: {{parentRefs: [{{name: web}}], \
         hostnames: [kept.test], rules: {rules}}}}}"
    ))?;
    site.answers("kept.test", "/", (500, None))?;
    let parent = "/status/parents/0/conditions";
    site.has("HTTPRoute", "kept", parent, ("ResolvedRefs", "False", "BackendNotFound"))?;
    let values = "oxigress: {gatewayAPI: true}";
    let rendered = chart::objects(&tenant.namespace, values, &[])?;
    let definition = chart::find(&rendered, "CustomResourceDefinition", "policies.oxigress.io")?;
    cluster.apply(&definition.to_string())?;
    let policy = |spec: &str| {
        tenant.apply(&format!(
            "{{apiVersion: oxigress.io/v1alpha1, kind: Policy, metadata: {{name: p}}, spec: {spec}}}"
        ))
    };
    until("a Policy", || policy("{denylist-source-range: 127.0.0.1, proxy-body-size: 8m}"))?;
    site.answers("kept.test", "/", (403, None))?;
    site.has("HTTPRoute", "kept", parent, ("PoliciesApplied", "True", "Applied"))?;
    for (spec, why) in [
        ("{auth-type: basic}", "auth-type requires auth-secret"),
        ("{auth-tls-secret: ca}", "client certificates are a matter of a whole host"),
        ("{auth-type: digest, auth-secret: x}", "Unsupported value"),
        ("{enable-cors: 'yes'}", "expected boolean"),
    ] {
        let refused = policy(spec).err().with_context(|| format!("{spec} was taken"))?;
        ensure!(format!("{refused:#}").contains(why), "{spec}: {refused:#}");
    }
    // What the definition does not know reaches the controller.
    policy("{limit-of-tomorrow: 5}")?;
    site.answers("kept.test", "/", (503, None))?;
    site.has("HTTPRoute", "kept", parent, ("PoliciesApplied", "False", "InvalidFields"))?;
    policy("{limit-rps: 500}")?;
    site.answers("kept.test", "/", (200, Some("a")))?;
    tenant.delete("Policy", "p")?;
    site.answers("kept.test", "/", (500, None))?;
    tenant.delete("HTTPRoute", "kept")
}

/// One reload, and nothing of it on the other port.
fn a_port_of_its_own(site: &Site<'_>) -> Result<()> {
    let tenant = &site.tenant;
    let port = free_port()?;
    tenant.apply(&gateway(&format!("{{name: own, port: {port}, protocol: HTTP}}")))?;
    until("the new port", || {
        let request = Request::get("other.test", "/");
        let answer = block_on(send(&Address::http(port), &request))?;
        ensure!(answer.endpoint().as_deref() == Some("a"), "{}", answer.status);
        Ok(())
    })?;
    site.answers("other.test", "/", (404, None))?;
    tenant.delete("HTTPRoute", "shop")?;
    until("no route", || {
        let request = Request::get("other.test", "/");
        let answer = block_on(send(&Address::http(port), &request))?;
        ensure!(answer.status == 404, "{}", answer.status);
        Ok(())
    })?;
    until("no routes", || {
        let gateway = site.get("Gateway", "web")?;
        ensure!(gateway["status"]["listeners"][0]["attachedRoutes"] == 0, "{gateway}");
        Ok(())
    })
}
