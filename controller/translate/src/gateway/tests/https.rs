//! Hosts and the listeners of HTTPS that have them.

use super::*;
use crate::pace::price::Prices;
use oxigress_core::model::policy::Policies;

const WEB: &str = "
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: { name: oxigress }
spec: { controllerName: oxigress.io/gateway-controller }
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: { name: r, namespace: n }
spec:
  parentRefs: [{ name: web }]
  hostnames: [a.b.test]
  rules: [{ filters: [{ type: RequestRedirect, requestRedirect: { path: { type: ReplaceFullPath, replaceFullPath: / } } }] }]
";

const SECRET: &str = "
apiVersion: v1
kind: Secret
metadata: { name: tls, namespace: n }
type: kubernetes.io/tls
stringData:
  tls.crt: |
    -----BEGIN CERTIFICATE-----
    MIIBkTCCATagAwIBAgIUZFYE7MnM7AZ+41cjTroQ3xFlB7swCgYIKoZIzj0EAwIw
    EzERMA8GA1UEAwwId2lsZGNhcmQwIBcNMjYxMTIxMDAyMTU5WhgPMjEyNjEwMjgw
    MDIxNTlaMBMxETAPBgNVBAMMCHdpbGRjYXJkMFkwEwYHKoZIzj0CAQYIKoZIzj0D
    AQcDQgAEaxmaWb7PWOv9J/QjRGzgS3eL9SqoXbqX8/a2wfBBv//EAWm0KqtYMpa7
    hPMAgoMqFUikQY5cH+G+8l9J5b9KvqNmMGQwHQYDVR0OBBYEFOFrvTZuYFC3R6IJ
    NKctFgTJQjwfMB8GA1UdIwQYMBaAFOFrvTZuYFC3R6IJNKctFgTJQjwfMA8GA1Ud
    EwEB/wQFMAMBAf8wEQYDVR0RBAowCIIGKi50ZXN0MAoGCCqGSM49BAMCA0kAMEYC
    IQDO8QewDOLs37BV3BvgQZfwlBLEtTRhiNsJyYWLNcFFmQIhALUPYVtfmfRkzY4f
    BtqlAktDNNpiLF9BVQ51Z90QWg3a
    -----END CERTIFICATE-----
  tls.key: |
    -----BEGIN PRIVATE KEY-----
    MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQguhCMZmHXk20I50N8
    Lholq4m1TBvDBMI4ViF1Fgq0A3qhRANCAARrGZpZvs9Y6/0n9CNEbOBLd4v1Kqhd
    upfz9rbB8EG//8QBabQqq1gylruE8wCCgyoVSKRBjlwf4b7yX0nlv0q+
    -----END PRIVATE KEY-----
";

fn gateway(listeners: &[&str]) -> String {
    let lines: String = listeners.iter().map(|line| format!("  - {{ {line} }}\n")).collect();
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {{ name: web, namespace: n }}\n\
         spec:\n  gatewayClassName: oxigress\n  listeners:\n{lines}"
    )
}

#[test]
fn a_host_names_the_most_specific_listener_of_https_also_when_only_that_changes() {
    let mut bench = Bench::new(options(""));
    bench.apply(&format!("{WEB}---\n{SECRET}"));
    let https = "protocol: HTTPS, tls: { certificateRefs: [{ name: tls }] }";
    let any = format!("name: any, port: 443, {https}");
    let wild = format!("name: wild, port: 443, hostname: '*.test', {https}");
    let plain = "name: plain, port: 80, protocol: HTTP";
    let of = |bench: &Bench, at: &str| {
        let snapshot = bench.translator.snapshot();
        let server = &snapshot.listener_servers[&ListenerHost::parse(at).unwrap()];
        server.listener.as_ref().map(ToString::to_string)
    };
    bench.apply(&gateway(&[&any, plain]));
    assert_eq!(of(&bench, "443/a.b.test").as_deref(), Some("443/_"));
    assert_eq!(of(&bench, "443/_").as_deref(), Some("443/_"));
    assert_eq!((of(&bench, "80/a.b.test"), of(&bench, "80/_")), (None, None));
    // The rules of the host stay the same.
    bench.apply(&gateway(&[&any, &wild, plain]));
    assert_eq!(of(&bench, "443/a.b.test").as_deref(), Some("443/**.test"));
    assert_eq!(of(&bench, "443/_").as_deref(), Some("443/_"));
    bench.apply(&gateway(&[&any, plain]));
    assert_eq!(of(&bench, "443/a.b.test").as_deref(), Some("443/_"));
}

/// The Secret `tls` of a namespace.
pub fn secret(namespace: &str) -> String {
    SECRET.replace("namespace: n", &format!("namespace: {namespace}"))
}

/// A BackendTLSPolicy for the Service `s`, by the authorities in the ConfigMap `ca`; another document may follow.
pub fn tls_policy(name: &str, namespace: &str) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: BackendTLSPolicy\nmetadata: {{ name: {name}, namespace: {namespace} }}\n\
         spec:\n  targetRefs: [{{ group: '', kind: Service, name: s }}]\n  validation: {{ hostname: s.test, \
         caCertificateRefs: [{{ group: '', kind: ConfigMap, name: ca }}] }}\n---\n"
    )
}

/// The ConfigMap `ca` with its certificate.
pub fn authorities(namespace: &str) -> String {
    SECRET
        .replace("Secret", "ConfigMap")
        .replace("name: tls, namespace: n", &format!("name: ca, namespace: {namespace}"))
        .replace("type: kubernetes.io/tls\nstringData:\n  tls.crt", "data:\n  ca.crt")
}

/// The same certificate as PEM by itself.
pub fn an_authority() -> String {
    let lines = SECRET.lines().map(str::trim).skip_while(|line| !line.starts_with("-----BEGIN"));
    let mut lines = lines.map(|line| format!("{line}\n"));
    let mut text = String::new();
    while !text.contains("-----END") {
        text += &lines.next().unwrap();
    }
    text
}

/// A ClusterTrustBundle by this name.
fn bundle(name: &str, text: &str) -> Seen {
    let spec = serde_json::from_value(json!({ "trustBundle": text })).unwrap();
    let bundle = Resource { meta: Meta::default(), spec };
    let id = ObjectRef::new(Kind::ClusterTrustBundle, Key::new("", name));
    (id, Some(Object::ClusterTrustBundle(Arc::new(bundle))))
}

#[test]
fn a_bundle_of_the_cluster_needs_no_grant_and_its_changes_are_taken_over() {
    let mut bench = Bench::new(options(""));
    let reference = "{ group: certificates.k8s.io, kind: ClusterTrustBundle, name: ca }";
    let https = "name: any, port: 443, protocol: HTTPS, tls: { certificateRefs: [{ name: tls }] }";
    let web = gateway(&[https])
        + &format!(
            "  tls: {{ frontend: {{ default: {{ validation: {{ caCertificateRefs: [{reference}] }} }} }} }}\n"
        );
    let policy =
        tls_policy("p", "n").replace("{ group: '', kind: ConfigMap, name: ca }", reference);
    let service = "apiVersion: v1\nkind: Service\nmetadata: { name: s, namespace: n }\nspec: { ports: [{ port: 443 }] }\n";
    let route = WEB.replace("rules: [{ filters: [{ type: RequestRedirect, requestRedirect: { path: { type: ReplaceFullPath, replaceFullPath: / } } }] }]",
        "rules: [{ backendRefs: [{ name: s, port: 443 }] }]");
    bench.apply(&format!("{route}---\n{SECRET}---\n{web}---\n{service}---\n{policy}"));
    // Whether clients are let in, whether endpoints are trusted, and how many bundles nginx has.
    let seen = |bench: &Bench| {
        let snapshot = bench.translator.snapshot();
        let server = snapshot.listener_servers.get(&ListenerHost::parse("443/a.b.test").unwrap());
        let tls = server.and_then(|server| server.tls.as_ref());
        let is_open = tls.is_some_and(|tls| !tls.denied && tls.client.is_some());
        let trusts = |policies: &Policies| {
            let tls = policies.proxy.as_ref().and_then(|proxy| proxy.tls.as_ref());
            tls.is_some_and(|tls| tls.authorities.is_some())
        };
        let spoken = snapshot.policies.values().any(trusts);
        (is_open, spoken, snapshot.bundles.len())
    };
    assert_eq!(seen(&bench), (false, false, 0));
    bench.see([bundle("ca", &an_authority())]);
    assert_eq!(seen(&bench), (true, true, 1));
    bench.see([bundle("ca", "none"), bundle("other", &an_authority())]);
    assert_eq!(seen(&bench), (false, false, 0));
    bench.see([bundle("ca", &an_authority().repeat(2))]);
    assert_eq!(seen(&bench), (true, true, 1));
    // A ConfigMap of clients' authorities is paid for by whoever writes it, a bundle by nobody.
    let web = web.replace(reference, "{ group: '', kind: ConfigMap, name: ca }");
    bench.apply(&format!("{}---\n{web}", authorities("n")));
    let prices = Prices { translator: &bench.translator, world: &bench.world };
    let (bundle, map) = (bundle("ca", "x"), ObjectRef::new(Kind::ConfigMap, Key::new("n", "ca")));
    assert!(prices.is_free(&bundle.0, &bundle.1.unwrap()));
    assert!(!prices.is_free(&map, &Object::ConfigMap(Arc::default())));
    assert!(prices.of_removal(&map).total() > 100_000);
    bench.apply(&web.replace("{ group: '', kind: ConfigMap, name: ca }", reference));
    let gone = ObjectRef::new(Kind::ClusterTrustBundle, Key::new("", "ca"));
    bench.see([(gone, None)]);
    assert_eq!(seen(&bench), (false, false, 0));
}

/// What is said about clients of listeners says nothing about hosts of others.
#[test]
fn the_host_of_an_older_ingress_is_asked_for_no_certificates_of_a_listener() {
    let ingress = |namespace: &str, created: &str| {
        format!(
            "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata:\n  name: i\n  namespace: {namespace}\n  \
             creationTimestamp: '{created}'\n  annotations: {{ kubernetes.io/ingress.class: nginx }}\nspec:\n  rules:\n  - \
             host: a.b.test\n    http: {{ paths: [{{ path: /, pathType: Prefix, backend: {{ service: {{ name: s, port: {{ \
             number: 80 }} }} }} }}] }}\n"
        )
    };
    let https = "protocol: HTTPS, tls: { certificateRefs: [{ name: tls }] }";
    let web = gateway(&[&format!("name: any, port: 443, {https}")])
        + "  tls: { frontend: { default: { validation: { caCertificateRefs: [{ group: '', kind: ConfigMap, name: ca }] } } } }\n";
    let web = web.replace("name: web,", "name: web, creationTimestamp: '2026-01-02T00:00:00Z',");
    let authorities = authorities("n");
    let route = WEB.replace("name: r,", "name: r, creationTimestamp: '2026-01-02T00:00:00Z',");
    for (namespace, created, is_left) in [
        ("other", "2026-01-01T00:00:00Z", true),
        ("other", "2026-01-03T00:00:00Z", false),
        ("n", "2026-01-01T00:00:00Z", false),
    ] {
        let mut bench = Bench::new(options(""));
        bench.apply(&format!(
            "{route}---\n{SECRET}---\n{authorities}---\n{web}---\n{}",
            ingress(namespace, created)
        ));
        let snapshot = bench.translator.snapshot();
        let server = &snapshot.listener_servers[&ListenerHost::parse("443/a.b.test").unwrap()];
        let asks = server.tls.as_ref().is_some_and(|policy| policy.client.is_some());
        assert_eq!(asks, !is_left, "{namespace} {created}");
        let of_route = server.rules.iter().any(|rule| rule.origin.namespace == "n");
        assert_eq!(of_route, !is_left || namespace == "n", "{namespace} {created}");
        assert_eq!(bench.route("n", "r").holds, !is_left, "{namespace} {created}");
    }
}
