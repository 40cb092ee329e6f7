//! A host has an owner: what other namespaces say about it, from manifests to the answer. `webhook.rs` has the denials.

use anyhow::{Result, ensure};
use oxigress_tests::controller::Controller;
use oxigress_tests::pass;
use oxigress_tests::place::{Directory, free_port};
use oxigress_tests::shop::{DEFAULT_CERTIFICATE, Shop};

/// The sample endpoint `ENDPOINT` as Service `web` of a namespace.
fn service(namespace: &str, endpoint: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{ name: web, namespace: {namespace} }}\n\
         spec: {{ ports: [{{ port: 80, targetPort: 80 }}] }}\n---\n\
         apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\naddressType: IPv4\n\
         metadata: {{ name: web-1, namespace: {namespace}, labels: {{ kubernetes.io/service-name: web }} }}\n\
         ports: [{{ port: $PORT_{endpoint} }}]\nendpoints: [{{ addresses: [127.0.0.1] }}]\n---\n"
    )
}

/// An Ingress to that Service, created in a year; `spec` is the rest of its spec.
fn web(
    at: (&str, &str, u16),
    host: &str,
    paths: &[&str],
    annotations: &[&str],
    spec: &str,
) -> String {
    let (namespace, name, year) = at;
    let mut text = format!(
        "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata:\n  name: {name}\n  namespace: {namespace}\n  \
         creationTimestamp: \"{year}-01-01T00:00:00Z\"\n  annotations:\n    kubernetes.io/ingress.class: nginx\n"
    );
    for annotation in annotations {
        text += &format!("    nginx.ingress.kubernetes.io/{annotation}\n");
    }
    text += &format!("spec:\n{spec}  rules:\n  - host: {host}\n    http:\n      paths:\n");
    for path in paths {
        let (path, kind) = path.split_once(' ').unwrap_or((path, "Prefix"));
        text += &format!(
            "      - {{ path: \"{path}\", pathType: {kind}, backend: {{ service: {{ name: web, port: {{ number: 80 }} }} }} }}\n"
        );
    }
    text + "---\n"
}

fn secret(namespace: &str, name: &str, certificate: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{ name: {name}, namespace: {namespace} }}\ntype: kubernetes.io/tls\n\
         data: {{ tls.crt: $CRT64_{certificate}, tls.key: $KEY64_{certificate}, ca.crt: $CRT64_{certificate} }}\n---\n"
    )
}

/// Everything that an Ingress can say about a whole host.
const ALL: [&str; 6] = [
    "server-alias: \"alias.test\"",
    "app-root: \"/trap\"",
    "from-to-www-redirect: \"true\"",
    "ssl-passthrough: \"true\"",
    "ssl-ciphers: \"AES128-SHA\"",
    "ssl-prefer-server-ciphers: \"true\"",
];

/// A younger Ingress of another namespace that says all of it.
fn stranger() -> String {
    let tls = "  tls: [{ hosts: [shop.test, alias.test], secretName: evil }]\n";
    web(("evil", "all", 2025), "shop.test", &["/trap"], &ALL, tls)
}

fn start(directory: &Directory, flags: &[&str]) -> Result<Shop> {
    let port = format!("--ssl-passthrough-proxy-port={}", free_port()?);
    let mut all = vec!["--enable-ssl-passthrough".to_owned(), port];
    all.extend(flags.iter().map(|flag| (*flag).to_owned()));
    let controller = Controller::start(directory, 1, &all)?;
    let mut shop =
        Shop::new(controller, &["cart", "trap"], &[("evil", "shop.test"), ("wild", "*.test")])?;
    shop.write("services.yaml", &(service("shop", "cart") + &service("evil", "trap")))?;
    shop.write("secret.yaml", &secret("evil", "evil", "evil"))?;
    shop.write("owner.yaml", &web(("shop", "shop", 2024), "shop.test", &["/", "/cart"], &[], ""))?;
    Ok(shop)
}

/// The owner's host answers as if nobody else had named it.
fn is_untouched(shop: &Shop) -> Result<()> {
    shop.serves("shop.test", "/", "cart")?;
    shop.serves("shop.test", "/cart", "cart")?;
    shop.answers("alias.test", "/", 404)?;
    shop.answers("www.shop.test", "/", 404)?;
    shop.presents("shop.test", DEFAULT_CERTIFICATE)
}

#[test]
fn another_namespace_changes_nothing_of_a_host_until_its_owner_goes() {
    pass("ownership-settings", |directory| {
        let mut shop = start(directory, &[])?;
        is_untouched(&shop)?;
        shop.write("stranger.yaml", &stranger())?;
        is_untouched(&shop)?;
        shop.serves("shop.test", "/trap", "trap")?;
        let log = shop.controller.error_log();
        for name in
            ["server-alias", "app-root", "from-to-www-redirect", "ssl-passthrough", "ssl-ciphers"]
        {
            let line = format!("annotation {name}: host shop.test belongs to namespace shop");
            ensure!(log.contains(&line), "{line:?} is not in the log");
        }

        shop.remove("owner.yaml")?;
        // Its redirects need the certificate that it gives.
        shop.presents("shop.test", "evil")?;
        shop.answers("shop.test", "/", 302)?;
        shop.answers("shop.test", "/trap", 308)?;
        shop.serves("alias.test", "/trap", "trap")?;
        shop.answers("www.shop.test", "/", 308)
    });
}

#[test]
fn client_certificates_of_another_namespace_close_its_own_paths_and_no_others() {
    pass("ownership-client", |directory| {
        let mut shop = start(directory, &[])?;
        let asks = ["auth-tls-secret: \"evil/evil\"", "ssl-redirect: \"false\""];
        shop.write("mtls.yaml", &web(("evil", "mtls", 2025), "shop.test", &["/trap"], &asks, ""))?;
        is_untouched(&shop)?;
        shop.answers("shop.test", "/trap", 503)?;
        let closes = ["server-snippet: \"deny all;\""];
        shop.write(
            "mtls.yaml",
            &web(("evil", "mtls", 2025), "shop.test", &["/trap"], &closes, ""),
        )?;
        is_untouched(&shop)?;
        shop.answers("shop.test", "/trap", 503)
    });
}

#[test]
fn canaries_aliases_and_expressions_of_another_namespace_take_no_requests() {
    pass("ownership-paths", |directory| {
        let mut shop = start(directory, &[])?;
        let canary = ["canary: \"true\"", "canary-weight: \"100\""];
        let alias = ["server-alias: \"shop.test\""];
        let regex = ["use-regex: \"true\""];
        let expressions = [
            "/c[a-z]+/.*|/a-text-that-is-long ImplementationSpecific",
            "/docs(/|$)(.*) ImplementationSpecific",
        ];
        shop.write(
            "stranger.yaml",
            &(web(("evil", "canary", 2023), "shop.test", &["/", "/cart"], &canary, "")
                + &web(("evil", "alias", 2025), "aaa.test", &["/"], &alias, "")
                + &web(("evil", "regex", 2025), "shop.test", &expressions, &regex, "")),
        )?;
        is_untouched(&shop)?;
        shop.serves("shop.test", "/cart/x", "cart")?;
        shop.serves("shop.test", "/docs/x", "trap")?;
        shop.serves("aaa.test", "/", "trap")
    });
}

#[test]
fn a_wildcard_of_another_namespace_redirects_nobody_below_it() {
    pass("ownership-wildcard", |directory| {
        let mut shop = start(directory, &[])?;
        let tls = "  tls: [{ hosts: ['*.test'], secretName: wild }]\n";
        shop.write(
            "wild.yaml",
            &(secret("evil", "wild", "wild")
                + &web(("evil", "wild", 2025), "'*.test'", &["/"], &[], tls)),
        )?;
        shop.presents("else.test", "wild")?;
        shop.answers("else.test", "/", 308)?;
        shop.serves("shop.test", "/", "cart")?;
        shop.presents("shop.test", DEFAULT_CERTIFICATE)
    });
}

#[test]
fn strict_refuses_paths_and_shared_lets_everything_pass() {
    pass("ownership-modes", |directory| {
        let mut shop = start(directory, &["--host-ownership=strict"])?;
        shop.write("stranger.yaml", &stranger())?;
        is_untouched(&shop)?;
        shop.serves("shop.test", "/trap", "cart")
    });
    pass("ownership-shared", |directory| {
        let mut shop = start(directory, &["--host-ownership=shared"])?;
        shop.write("stranger.yaml", &stranger())?;
        shop.presents("shop.test", "evil")?;
        shop.answers("shop.test", "/cart", 308)
    });
}
