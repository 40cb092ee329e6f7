//! The controller on a real API server: what comes, changes and goes there is served, in its scope only, and as it is from
//! a folder.

use anyhow::{Context, Result, ensure};
use oxigress_tests::certificate::Certificate;
use oxigress_tests::client::{Address, Request, send};
use oxigress_tests::cluster::{Cluster, Tenant, ingress};
use oxigress_tests::controller::Controller;
use oxigress_tests::endpoint::{Behaviour, Endpoint};
use oxigress_tests::fake_dns::FakeDns;
use oxigress_tests::pass;
use oxigress_tests::place::Directory;
use oxigress_tests::shop::{DEFAULT_CERTIFICATE, Shop};
use oxigress_tests::wait::{block_on, until};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, SocketAddr};

/// A tenant with a controller of its own.
struct Site {
    tenant: Tenant<'static>,
    shop: Shop,
}

impl Site {
    fn start(directory: &Directory, flags: &[String]) -> Result<Self> {
        Self::of(Cluster::shared()?.tenant("site")?, directory, flags)
    }

    fn of(tenant: Tenant<'static>, directory: &Directory, flags: &[String]) -> Result<Self> {
        let flags: Vec<_> = tenant.flags().iter().chain(flags).cloned().collect();
        let controller = Controller::start_on(tenant.cluster, directory, 1, &flags)?;
        Ok(Site { tenant, shop: Shop::new(controller, &[], &[])? })
    }

    /// Applies objects and returns when they are served; of kinds that [`Tenant::settle`] knows.
    fn apply(&self, yaml: &str) -> Result<()> {
        self.tenant.apply(yaml)?;
        self.settle()
    }

    fn settle(&self) -> Result<()> {
        self.tenant.settle(&self.shop.controller)
    }

    /// How many of so many requests each endpoint answers.
    fn shares(&self, host: &str, requests: usize) -> Result<BTreeMap<String, usize>> {
        let mut shares = BTreeMap::new();
        for _ in 0..requests {
            let (status, endpoint) = self.shop.get(host, "/")?;
            *shares.entry(endpoint.unwrap_or_else(|| status.to_string())).or_default() += 1;
        }
        Ok(shares)
    }

    fn expect_shares(&self, host: &str, expected: &[(&str, usize)]) -> Result<()> {
        let shares = self.shares(host, expected.iter().map(|(_, count)| count).sum())?;
        let expected = expected.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
        ensure!(shares == expected, "{host}: {shares:?} instead of {expected:?}");
        Ok(())
    }
}

/// An EndpointSlice of a Service: its endpoints are of one family and port.
fn slice(name: &str, service: &str, port: &str, endpoints: &[(&Endpoint, Value)]) -> String {
    let of = endpoints.first().map(|(endpoint, _)| endpoint.address);
    let list: Vec<_> = endpoints
        .iter()
        .map(|(endpoint, conditions)| {
            json!({"addresses": [endpoint.address.ip()], "conditions": conditions})
        })
        .collect();
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "addressType": if of.is_some_and(|of| of.is_ipv6()) { "IPv6" } else { "IPv4" },
        "metadata": {"name": name, "labels": {"kubernetes.io/service-name": service}},
        "endpoints": list,
        "ports": [{"name": port, "port": of.map(|of| of.port())}],
    })
    .to_string()
}

pub fn secret(name: &str, certificate: &Certificate) -> String {
    let data = |text: &str| openssl::base64::encode_block(text.as_bytes());
    let (crt, key) = (data(&certificate.chain), data(&certificate.key));
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "metadata": {"name": name},
        "data": {"tls.crt": crt, "tls.key": key},
    })
    .to_string()
}

fn tls_ingress(host: &str, secret: &str) -> String {
    let own = format!("tls: [{{hosts: [{host}], secretName: {secret}}}], rules");
    ingress(host, host, "shop").replace("rules", &own)
}

#[test]
fn objects_come_change_and_go() {
    pass("kubernetes-objects", |directory| {
        let site = Site::start(directory, &[])?;
        let (a, b) = (site.tenant.pod("a")?, site.tenant.pod("b")?);
        site.tenant.service("shop", &[&a])?;
        site.apply(&ingress("shop", "shop.test", "shop"))?;
        site.shop.serves("shop.test", "/", "a")?;
        site.shop.answers("cart.test", "/", 404)?;
        site.tenant.service("shop", &[&b])?;
        site.settle()?;
        site.shop.serves("shop.test", "/", "b")?;
        site.apply(&ingress("shop", "cart.test", "shop"))?;
        site.shop.serves("cart.test", "/", "b")?;
        site.shop.answers("shop.test", "/", 404)?;
        site.tenant.delete("EndpointSlice", "shop-0")?;
        site.settle()?;
        site.shop.answers("cart.test", "/", 503)?;
        site.tenant.service("shop", &[&a])?;
        site.settle()?;
        site.shop.serves("cart.test", "/", "a")?;
        site.tenant.delete("Service", "shop")?;
        site.settle()?;
        site.shop.answers("cart.test", "/", 503)?;
        site.tenant.delete("Ingress", "shop")?;
        site.settle()?;
        site.shop.answers("cart.test", "/", 404)
    });
}

#[test]
fn a_class_comes_and_goes_with_its_ingresses() {
    pass("kubernetes-class", |directory| {
        let site = Site::start(directory, &[])?;
        let pod = site.tenant.pod("pod")?;
        site.tenant.service("shop", &[&pod])?;
        let late = site
            .tenant
            .text(&ingress("late", "late.test", "shop").replace("$CLASS", "late-$CLASS"));
        site.apply(&late)?;
        site.shop.answers("late.test", "/", 404)?;
        let class = |controller: &str| {
            site.tenant.text(&format!(
                "{{apiVersion: networking.k8s.io/v1, kind: IngressClass, metadata: {{name: late-$CLASS}}, \
                 spec: {{controller: oxigress.test/{controller}}}}}"
            ))
        };
        let name = site.tenant.text("late-$CLASS");
        site.tenant.apply(&class("$CLASS"))?;
        until("the class", || site.shop.serves("late.test", "/", "pod"))?;
        site.tenant.cluster.delete("IngressClass", "", &name)?;
        until("no class", || site.shop.answers("late.test", "/", 404))?;
        // The API server lets nobody change a class's controller: it is another class of the same name.
        site.tenant.apply(&class("somebody-else"))?;
        site.tenant.apply(&late.replace("late.test", "later.test"))?;
        site.settle()?;
        site.shop.answers("later.test", "/", 404)?;
        site.tenant.cluster.delete("IngressClass", "", &name)?;
        site.tenant.apply(&class("$CLASS"))?;
        until("the class again", || site.shop.serves("later.test", "/", "pod"))?;
        // An Ingress goes from one class to another.
        site.apply(&ingress("late", "later.test", "shop").replace("$CLASS", "nobody"))?;
        site.shop.answers("later.test", "/", 404)?;
        site.apply(&ingress("late", "later.test", "shop"))?;
        site.shop.serves("later.test", "/", "pod")
    });
}

#[test]
fn secrets_come_rotate_and_go() {
    pass("kubernetes-secrets", |directory| {
        let site = Site::start(directory, &[])?;
        let other = Cluster::shared()?.tenant("other")?;
        let [first, second, foreign] = ["first", "second", "foreign"]
            .map(|name| Certificate::new(name, &["shop.test", "cart.test"]));
        let pod = site.tenant.pod("pod")?;
        site.tenant.service("shop", &[&pod])?;
        // One of another namespace by the same name is nobody's.
        other.apply(&secret("tls", &foreign?))?;
        site.apply(&tls_ingress("shop.test", "tls"))?;
        site.shop.presents("shop.test", DEFAULT_CERTIFICATE)?;
        site.tenant.apply(&secret("tls", &first?))?;
        until("the Secret", || site.shop.presents("shop.test", "first"))?;
        // Known already, and named by one more.
        site.apply(&tls_ingress("cart.test", "tls"))?;
        until("the second host", || site.shop.presents("cart.test", "first"))?;
        site.tenant.apply(&secret("tls", &second?))?;
        until("rotation", || site.shop.presents("shop.test", "second"))?;
        until("rotation", || site.shop.presents("cart.test", "second"))?;
        site.tenant.delete("Secret", "tls")?;
        until("no Secret", || site.shop.presents("shop.test", DEFAULT_CERTIFICATE))
    });
}

#[test]
fn namespaces_are_served_while_their_labels_say_so() {
    pass("kubernetes-selector", |directory| {
        let tenant = Cluster::shared()?.tenant("selected")?;
        let label = |namespace: &str, team: Option<&str>| {
            tenant.cluster.patch(
                "Namespace",
                "",
                namespace,
                &json!({"metadata": {"labels": {"team": team}}}),
            )
        };
        let team = tenant.class.clone();
        label(&tenant.namespace, Some(&team))?;
        let other = Cluster::shared()?.tenant("labelled")?;
        let flag = format!("--watch-namespace-selector=team={team}");
        let site = Site::of(tenant, directory, &[flag])?;
        let pod = site.tenant.pod("pod")?;
        for place in [&site.tenant, &other] {
            place.service("shop", &[&pod])?;
            let host = format!("{}.test", place.namespace);
            place.apply(&site.tenant.text(&ingress("shop", &host, "shop")))?;
        }
        let (own, others) =
            (format!("{}.test", site.tenant.namespace), format!("{}.test", other.namespace));
        let label = |namespace: &str, team: Option<&str>| {
            other.cluster.patch(
                "Namespace",
                "",
                namespace,
                &json!({"metadata": {"labels": {"team": team}}}),
            )
        };
        site.settle()?;
        site.shop.serves(&own, "/", "pod")?;
        site.shop.answers(&others, "/", 404)?;
        label(&other.namespace, Some(&team))?;
        until("the label", || site.shop.serves(&others, "/", "pod"))?;
        label(&other.namespace, Some("another"))?;
        until("another label", || site.shop.answers(&others, "/", 404))?;
        site.shop.serves(&own, "/", "pod")
    });
}

#[test]
fn one_namespace_is_watched_with_rights_in_it_alone() {
    pass("kubernetes-namespace", |directory| {
        let (tenant, other) =
            (Cluster::shared()?.tenant("alone")?, Cluster::shared()?.tenant("other")?);
        // All that a controller of one namespace is to need.
        tenant.apply(
            "{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: oxigress}, rules: [\
             {apiGroups: [''], resources: [configmaps, endpoints, pods, secrets, namespaces, services], verbs: [get, list, watch]}, \
             {apiGroups: [networking.k8s.io], resources: [ingresses], verbs: [get, list, watch]}, \
             {apiGroups: [networking.k8s.io], resources: [ingresses/status], verbs: [update, patch]}, \
             {apiGroups: [coordination.k8s.io], resources: [leases], verbs: [create, get, update, patch, list, watch]}, \
             {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [get, list, watch]}, \
             {apiGroups: ['', events.k8s.io], resources: [events], verbs: [create, patch, update]}]}\n---\n\
             {apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: oxigress}, \
             roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: oxigress}, \
             subjects: [{kind: ServiceAccount, name: oxigress, namespace: $NAMESPACE}]}\n---\n\
             {apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: $CLASS}, rules: [\
             {apiGroups: [networking.k8s.io], resources: [ingressclasses], verbs: [get, list, watch]}]}\n---\n\
             {apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: $CLASS}, \
             roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: $CLASS}, \
             subjects: [{kind: ServiceAccount, name: oxigress, namespace: $NAMESPACE}]}\n",
        )?;
        let user = format!("system:serviceaccount:{}:oxigress", tenant.namespace);
        let kubeconfig = tenant.cluster.kubeconfig_of(&user, &[])?;
        let flags = [
            format!("--watch-namespace={}", tenant.namespace),
            format!("--kubeconfig={}", kubeconfig.display()),
        ];
        let site = Site::of(tenant, directory, &flags)?;
        let pod = site.tenant.pod("pod")?;
        other.service("shop", &[&pod])?;
        other.apply(&site.tenant.text(&ingress("shop", "other.test", "shop")))?;
        site.tenant.service("shop", &[&pod])?;
        let certificate = Certificate::new("own", &["own.test"])?;
        site.tenant.apply(&secret("tls", &certificate))?;
        site.apply(&tls_ingress("own.test", "tls"))?;
        until("the Secret", || site.shop.presents("own.test", "own"))?;
        site.shop.answers("own.test", "/", 308)?;
        site.shop.answers("other.test", "/", 404)
    });
}

#[test]
fn endpoints_are_used_as_their_conditions_say() {
    pass("kubernetes-conditions", |directory| {
        let site = Site::start(directory, &[])?;
        let (a, b) = (site.tenant.pod("a")?, site.tenant.pod("b")?);
        let apply = |of_a: Value, of_b: Value| {
            site.tenant.apply(&slice("shop-a", "shop", "", &[(&a, of_a)]))?;
            site.apply(&slice("shop-b", "shop", "", &[(&b, of_b)]))
        };
        site.tenant.apply(
            "{apiVersion: v1, kind: Service, metadata: {name: shop}, spec: {ports: [{port: 80}]}}",
        )?;
        site.tenant.apply(&ingress("shop", "shop.test", "shop"))?;
        let ready = json!({"ready": true, "serving": true, "terminating": false});
        let starting = json!({"ready": false, "serving": false, "terminating": false});
        let ending = json!({"ready": false, "serving": true, "terminating": true});
        let ended = json!({"ready": false, "serving": false, "terminating": true});
        apply(ready.clone(), json!({}))?;
        // What says nothing is ready.
        site.expect_shares("shop.test", &[("a", 2), ("b", 2)])?;
        apply(ready.clone(), starting.clone())?;
        site.expect_shares("shop.test", &[("a", 4)])?;
        apply(ready, ending.clone())?;
        site.expect_shares("shop.test", &[("a", 4)])?;
        apply(starting.clone(), ending)?;
        site.expect_shares("shop.test", &[("b", 4)])?;
        apply(starting, ended)?;
        site.expect_shares("shop.test", &[("503", 2)])
    });
}

#[test]
fn endpoints_of_the_node_s_zone_are_used_where_the_service_asks() {
    pass("kubernetes-zones", |directory| {
        let tenant = Cluster::shared()?.tenant("site")?;
        let node = "{apiVersion: v1, kind: Node, metadata: {name: $NAMESPACE, labels: {topology.kubernetes.io/zone: here}}}";
        tenant.apply(node)?;
        let flags =
            ["--enable-topology-aware-routing".into(), format!("--node-name={}", tenant.namespace)];
        let site = Site::of(tenant, directory, &flags)?;
        let (a, b) = (site.tenant.pod("a")?, site.tenant.pod("b")?);
        let apply = |distribution: &str, of_b: Option<&str>| {
            site.tenant.apply(&format!(
                "{{apiVersion: v1, kind: Service, metadata: {{name: shop}}, spec: {{ports: [{{port: 80}}]{distribution}}}}}"
            ))?;
            for (name, pod, zone) in [("shop-a", &a, Some("here")), ("shop-b", &b, of_b)] {
                let mut slice: Value =
                    serde_json::from_str(&slice(name, "shop", "", &[(pod, json!({}))]))?;
                if let Some(zone) = zone {
                    slice["endpoints"][0]["hints"] = json!({"forZones": [{"name": zone}]});
                }
                site.tenant.apply(&slice.to_string())?;
            }
            site.settle()
        };
        site.tenant.apply(&ingress("shop", "shop.test", "shop"))?;
        let close = ", trafficDistribution: PreferClose";
        apply(close, Some("there"))?;
        site.expect_shares("shop.test", &[("a", 4)])?;
        apply(close, None)?;
        site.expect_shares("shop.test", &[("a", 2), ("b", 2)])?;
        apply("", Some("there"))?;
        site.expect_shares("shop.test", &[("a", 2), ("b", 2)])
    });
}

#[test]
fn both_families_and_named_ports_are_served() {
    pass("kubernetes-families", |directory| {
        let site = Site::start(directory, &[])?;
        let (v4, v6, metrics) =
            (site.tenant.pod("v4")?, site.tenant.pod_v6("v6")?, site.tenant.pod("metrics")?);
        site.tenant.apply(
            "{apiVersion: v1, kind: Service, metadata: {name: shop}, spec: {ipFamilyPolicy: RequireDualStack, \
             ports: [{name: http, port: 80, targetPort: web}, {name: metrics, port: 9100, targetPort: numbers}]}}",
        )?;
        let clusters = site.tenant.cluster.get("Service", &site.tenant.namespace, "shop")?;
        let families = clusters.pointer("/spec/clusterIPs").and_then(Value::as_array).map(Vec::len);
        ensure!(families == Some(2), "{clusters}");
        for (name, port, pod) in
            [("a", "http", &v4), ("b", "http", &v6), ("c", "metrics", &metrics)]
        {
            site.tenant.apply(&slice(name, "shop", port, &[(pod, json!({"ready": true}))]))?;
        }
        let named =
            |host: &str, port: &str| ingress(host, host, "shop").replace("number: 80", port);
        site.tenant.apply(&named("name.test", "name: http"))?;
        site.tenant.apply(&named("number.test", "number: 80"))?;
        site.tenant.apply(&named("metrics.test", "name: metrics"))?;
        site.tenant.apply(&named("none.test", "name: none"))?;
        site.settle()?;
        site.expect_shares("name.test", &[("v4", 2), ("v6", 2)])?;
        site.expect_shares("number.test", &[("v4", 2), ("v6", 2)])?;
        site.expect_shares("metrics.test", &[("metrics", 2)])?;
        site.shop.answers("none.test", "/", 503)
    });
}

#[test]
fn service_upstream_goes_to_the_cluster_ip() {
    pass("kubernetes-upstream", |directory| {
        let site = Site::start(directory, &[])?;
        let pod = site.tenant.pod("pod")?;
        site.tenant.service("shop", &[&pod])?;
        let service = site.tenant.cluster.get("Service", &site.tenant.namespace, "shop")?;
        let ip =
            service.pointer("/spec/clusterIP").and_then(Value::as_str).context("a cluster IP")?;
        // In the place of kube-proxy.
        let address = SocketAddr::new(ip.parse::<IpAddr>()?, 80);
        let _proxy = Endpoint::at("proxy", Behaviour::Ok, address)?;
        let annotation =
            "metadata: {annotations: {nginx.ingress.kubernetes.io/service-upstream: 'true'}, ";
        let plain = ingress("shop", "shop.test", "shop");
        site.apply(&plain)?;
        site.shop.serves("shop.test", "/", "pod")?;
        site.apply(&plain.replace("metadata: {", annotation))?;
        site.shop.serves("shop.test", "/", "proxy")?;
        // Pods do not count then.
        site.tenant.delete("EndpointSlice", "shop-0")?;
        site.settle()?;
        site.shop.serves("shop.test", "/", "proxy")
    });
}

#[test]
fn a_service_becomes_a_name_and_pods_again() {
    pass("kubernetes-name", |directory| {
        Cluster::shared()?;
        let dns = FakeDns::start()?;
        let resolv_conf = directory.join("resolv.conf");
        fs::write(&resolv_conf, dns.line())?;
        let site = Site::start(directory, &[format!("--resolv-conf={}", resolv_conf.display())])?;
        let (pod, named) = (site.tenant.pod("pod")?, site.tenant.pod("named")?);
        dns.set_address("db.test", named.address.ip());
        site.tenant.service("shop", &[&pod])?;
        site.apply(&ingress("shop", "shop.test", "shop"))?;
        site.shop.serves("shop.test", "/", "pod")?;
        // A merge patch, since the cluster IP is to go.
        let port = named.address.port();
        let name = json!({"spec": {"type": "ExternalName", "externalName": "db.test", "clusterIP": null, "clusterIPs": null,
                                   "ports": [{"port": 80, "targetPort": port}]}});
        let change = |change: &Value| {
            site.tenant.cluster.patch("Service", &site.tenant.namespace, "shop", change)
        };
        change(&name)?;
        until("the name", || site.shop.serves("shop.test", "/", "named"))?;
        change(&json!({"spec": {"type": "ClusterIP", "externalName": null}}))?;
        until("the pods", || site.shop.serves("shop.test", "/", "pod"))
    });
}

#[test]
fn a_folder_and_an_api_server_say_the_same() {
    pass("kubernetes-same", |directory| {
        let site = Site::start(directory, &[])?;
        let pods = [site.tenant.pod("a")?, site.tenant.pod("b")?, site.tenant.pod_v6("c")?];
        site.tenant.service("shop", &[&pods[0], &pods[1], &pods[2]])?;
        site.tenant.service("cart", &[&pods[1]])?;
        site.tenant.service("canary", &[&pods[2]])?;
        let certificate = Certificate::new("tls", &["shop.test"])?;
        site.tenant.apply(&secret("tls", &certificate))?;
        let annotated = |name: &str, host: &str, service: &str, annotations: Value| {
            ingress(name, host, service)
                .replace("metadata: {", &format!("metadata: {{annotations: {annotations}, "))
        };
        let prefix = |name: &str| format!("nginx.ingress.kubernetes.io/{name}");
        let canary = json!({prefix("canary"): "true", prefix("canary-by-header"): "x-canary"});
        site.tenant.apply(&tls_ingress("shop.test", "tls"))?;
        site.tenant.apply(&ingress("cart", "cart.test", "cart"))?;
        // Two for one host and path: the older wins, and within a second the first by name.
        site.tenant.apply(&ingress("cart-again", "cart.test", "shop"))?;
        site.tenant.apply(&annotated("canary", "cart.test", "canary", canary))?;
        site.apply(&annotated("bad", "bad.test", "cart", json!({prefix("limit-rps"): "many"})))?;
        until("the Secret", || site.shop.presents("shop.test", "tls"))?;

        let copy = Directory::new("kubernetes-same-folder")?;
        let folder = Controller::start(&copy, 1, &site.tenant.flags())?;
        for kind in ["Service", "EndpointSlice", "Secret", "Ingress"] {
            for object in site.tenant.cluster.list(kind, &site.tenant.namespace)? {
                let name =
                    object.pointer("/metadata/name").and_then(Value::as_str).context("a name")?;
                folder.write(&format!("{kind}-{name}.yaml"), &object.to_string())?;
            }
        }
        let class = site.tenant.cluster.get("IngressClass", "", &site.tenant.class)?;
        folder.write("class.yaml", &class.to_string())?;
        let folder = Shop::new(folder, &[], &[])?;
        let published = |shop: &Shop, what: &str| -> Result<Value> {
            let socket = Address::Unix(shop.controller.configuration_socket());
            let answer = block_on(send(&socket, &Request::get("localhost", what)))?;
            ensure!(answer.status == 200, "{what}: {answer}");
            answer.json()
        };
        let answers = |shop: &Shop| -> Result<Vec<(u16, Option<String>)>> {
            ["shop.test", "cart.test", "bad.test", "none.test"]
                .iter()
                .map(|host| shop.get(host, "/"))
                .collect()
        };
        until("the folder", || {
            for what in ["/configuration/backends", "/configuration/certs?hostname=shop.test"] {
                let (own, others) = (published(&site.shop, what)?, published(&folder, what)?);
                ensure!(own == others, "{what}: {own}\nin the folder: {others}");
            }
            let (own, others) = (site.shop.controller.status()?, folder.controller.status()?);
            ensure!(own.counts == others.counts, "{own:?}\nin the folder: {others:?}");
            Ok(())
        })?;
        ensure!(answers(&site.shop)?[1..] == answers(&folder)?[1..]);
        Ok(())
    });
}
