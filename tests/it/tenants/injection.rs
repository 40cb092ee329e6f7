//! User text never reaches a file that nginx parses.
//!
//! One test for each way in which text of an object came into ingress-nginx's nginx.conf, or led to a file of the user's
//! choice; the numbers are those of its CVEs. Each test puts every one of the [`payloads`] into its place, waits until
//! the objects are taken up, and compares nginx.conf and the files of the runtime folder with those of before, byte by
//! byte.

use anyhow::{Result, ensure};
use oxigress_tests::certificate::Certificate;
use oxigress_tests::client::{Address, Request, send};
use oxigress_tests::controller::{Controller, webhook_flags};
use oxigress_tests::endpoint::Endpoint;
use oxigress_tests::pass;
use oxigress_tests::place::free_port;
use oxigress_tests::wait::block_on;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

/// Texts that end a value, a directive, a block, a line, a comment or a template.
const ENDS: [&str; 10] = [
    "x;\n",
    "\"; ",
    "'; ",
    "x\r\n",
    "\\\";}\\n",
    "#;\n}\n",
    "x;\n}\n}\n",
    "; } ",
    "{{end}}}; ",
    "\u{85}\u{2028};\n",
];
/// What nginx would be made to do.
const DIRECTIVES: [&str; 6] = [
    "load_module /dev/shm/pwned.so;",
    "location /pwned { return 200 pwned; }",
    "include /etc/passwd;",
    "ssl_engine pwned;",
    "server { listen 6666; }",
    "lua_code_cache off;",
];
/// Texts that name files, variables and programs.
const OTHERS: [&str; 4] = [
    "${pwned}$(id)`id`{{pwned}}{{nginx_conf}}",
    "../../../../../../etc/passwd",
    "https://pwned.test/#;\n}\nserver { listen 6666; }\n",
    "$http_x|/bin/sh",
];

/// Every end with every directive, and the others.
fn payloads() -> Vec<String> {
    let all =
        ENDS.iter().flat_map(|end| DIRECTIVES.iter().map(move |what| format!("{end}{what}\n#")));
    all.chain(OTHERS.map(str::to_owned)).collect()
}

/// Files that may differ: the journal, which nginx reads as data, locks and the pid.
const DATA: &[&str] = &["journal", "nginx.pid"];

/// The runtime folder: each path with its bytes; none for folders and sockets.
fn tree(folder: &Path) -> Result<BTreeMap<PathBuf, Option<Vec<u8>>>> {
    let mut all = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if kind.is_dir() {
                folders.push(entry.path());
            }
            let is_data = DATA.iter().any(|data| name.starts_with(data));
            let bytes = (kind.is_file() && !is_data).then(|| fs::read(entry.path())).transpose()?;
            all.insert(entry.path(), bytes);
        }
    }
    Ok(all)
}

/// An Ingress of the host `NAME.test` with `annotations` and the path `path`.
fn ingress(name: &str, annotations: &[(&str, &str)], path: &str) -> String {
    let annotations: Vec<_> = annotations
        .iter()
        .map(|(name, value)| format!("nginx.ingress.kubernetes.io/{name}: {}", quoted(value)))
        .chain(["kubernetes.io/ingress.class: nginx".into()])
        .collect();
    format!(
        "---\napiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {{ name: {name}, namespace: default, \
         annotations: {{ {} }} }}\nspec:\n  rules:\n  - host: {name}.test\n    http:\n      paths:\n      - {{ path: {}, \
         pathType: ImplementationSpecific, backend: {{ service: {{ name: shop, port: {{ number: 80 }} }} }} }}\n",
        annotations.join(", "),
        quoted(path)
    )
}

/// A text as a JSON string, which YAML takes too.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn shop(port: u16) -> String {
    format!(
        "---\napiVersion: v1\nkind: Service\nmetadata: {{ name: shop, namespace: default }}\n\
         spec: {{ ports: [{{ port: 80 }}] }}\n---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
         metadata: {{ name: shop-1, namespace: default, labels: {{ kubernetes.io/service-name: shop }} }}\n\
         addressType: IPv4\nports: [{{ port: {port} }}]\nendpoints: [{{ addresses: [127.0.0.1] }}]\n"
    )
}

/// Takes up the objects that `object` makes of each payload, all at once.
fn nothing_is_written(case: &str, object: impl Fn(&str, &str) -> String) {
    pass(case, |directory| {
        let endpoint = Endpoint::start("shop")?;
        let flags = [
            "--enable-ssl-passthrough".to_owned(),
            format!("--ssl-passthrough-proxy-port={}", free_port()?),
        ];
        let mut controller = Controller::start(directory, 1, &flags)?;
        let good = ingress("good", &[], "/") + &shop(endpoint.address.port());
        controller.serve("good.yaml", &good)?;
        let before = tree(&directory.join("run"))?;
        for (number, payload) in payloads().iter().enumerate() {
            let name = format!("bad-{number}");
            controller.write(&format!("{name}.yaml"), &object(&name, payload))?;
        }
        controller.serve("more.yaml", &ingress("more", &[], "/"))?;
        let after = tree(&directory.join("run"))?;
        let paths = |tree: &BTreeMap<PathBuf, _>| tree.keys().cloned().collect::<Vec<_>>();
        ensure!(paths(&before) == paths(&after), "{:?}\n{:?}", paths(&before), paths(&after));
        for (path, bytes) in &before {
            ensure!(after.get(path) == Some(bytes), "{} has other bytes", path.display());
        }
        let conf = before.iter().find(|(path, _)| path.ends_with("nginx.conf"));
        ensure!(conf.is_some_and(|(_, bytes)| bytes.as_ref().is_some_and(|b| b.len() > 1_000)));
        let http = Address::http(controller.http_port);
        let mut hosts = vec!["good.test".to_owned()];
        for (number, payload) in payloads().iter().enumerate() {
            let text = object(&format!("bad-{number}"), payload);
            let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-' && c != '.');
            let own = words.filter(|word| word.starts_with("bad-") && word.ends_with(".test"));
            let own: BTreeSet<_> = own.map(str::to_owned).collect();
            ensure!(!own.is_empty(), "a payload without a host: {text}");
            hosts.extend(own);
        }
        for host in &hosts {
            let answer = block_on(send(&http, &Request::get(host, "/pwned")))?;
            ensure!(answer.text() != "pwned" && !answer.text().contains("root:"), "{answer:?}");
        }
        Ok(())
    });
}

/// A test for the values of some annotations.
macro_rules! annotations {
    ($($(#[$doc:meta])* $test:ident: $([$($name:literal = $value:expr),*]),+;)*) => {$(
        $(#[$doc])*
        #[test]
        fn $test() {
            nothing_is_written(concat!("injection-", stringify!($test)), |name, payload| {
                let mut text = String::new();
                for (number, annotations) in [$(vec![$(($name, $value)),*]),+].into_iter().enumerate() {
                    let values: Vec<_> = annotations
                        .iter()
                        .map(|(name, value): &(&str, &str)| (*name, value.replace("PAYLOAD", payload)))
                        .collect();
                    let values: Vec<_> = values.iter().map(|(n, v)| (*n, v.as_str())).collect();
                    text += &ingress(&format!("{name}-{number}"), &values, "/");
                }
                text
            });
        }
    )*};
}

annotations! {
    /// Values of CVE-2021-25742 and CVE-2023-5043.
    snippets: ["configuration-snippet" = "PAYLOAD"], ["server-snippet" = "PAYLOAD"], ["stream-snippet" = "PAYLOAD"],
        ["auth-snippet" = "PAYLOAD", "auth-url" = "http://auth.test/"], ["modsecurity-snippet" = "PAYLOAD"];
    /// Values of CVE-2021-25746 and CVE-2024-7646.
    values_with_line_breaks: ["proxy-body-size" = "PAYLOAD"], ["proxy-read-timeout" = "1PAYLOAD"], ["proxy-buffer-size" = "PAYLOAD"],
        ["custom-http-errors" = "404PAYLOAD"], ["limit-rps" = "5PAYLOAD"], ["whitelist-source-range" = "10.0.0.0/8PAYLOAD"];
    /// Values of CVE-2023-5044.
    redirects: ["permanent-redirect" = "PAYLOAD"], ["permanent-redirect" = "https://x.test/PAYLOAD"], ["temporal-redirect" = "PAYLOAD"],
        ["app-root" = "/PAYLOAD"];
    /// Values of CVE-2025-24514 and CVE-2026-1580.
    external_authentication: ["auth-url" = "PAYLOAD"], ["auth-url" = "http://auth.test/PAYLOAD"], ["auth-url" = "http://a.test/", "auth-method" = "PAYLOAD"],
        ["auth-url" = "http://a.test/", "auth-signin" = "PAYLOAD"], ["auth-url" = "http://a.test/", "auth-cache-key" = "PAYLOAD"],
        ["auth-url" = "http://a.test/", "auth-response-headers" = "PAYLOAD"], ["auth-url" = "http://a.test/", "auth-request-redirect" = "PAYLOAD"];
    /// Values of CVE-2025-15566.
    header_lists_by_name: ["auth-url" = "http://a.test/", "auth-proxy-set-headers" = "PAYLOAD"], ["custom-headers" = "PAYLOAD"];
    /// Values of CVE-2025-1097.
    client_certificates: ["auth-tls-secret" = "default/none", "auth-tls-match-cn" = "CN=PAYLOAD"], ["auth-tls-secret" = "PAYLOAD"],
        ["auth-tls-secret" = "default/none", "auth-tls-error-page" = "PAYLOAD"], ["ssl-ciphers" = "PAYLOAD"];
    /// Values of CVE-2025-1098.
    mirrors: ["mirror-target" = "PAYLOAD"], ["mirror-target" = "http://m.test/", "mirror-host" = "PAYLOAD"],
        ["mirror-target" = "http://m.test/PAYLOAD"], ["mirror-request-body" = "PAYLOAD"];
    /// CVE-2025-24513: names of files made from Secrets
    password_files: ["auth-type" = "basic", "auth-secret" = "PAYLOAD"], ["auth-type" = "basic", "auth-secret" = "default/none", "auth-realm" = "PAYLOAD"],
        ["auth-type" = "PAYLOAD"], ["auth-type" = "basic", "auth-secret" = "../PAYLOAD"];
    /// Values of CVE-2026-3288.
    rewrites: ["rewrite-target" = "PAYLOAD"], ["rewrite-target" = "/PAYLOAD"], ["use-regex" = "true", "rewrite-target" = "/$1PAYLOAD"],
        ["x-forwarded-prefix" = "PAYLOAD"];
    /// Values of CVE-2026-24513.
    default_backends: ["default-backend" = "PAYLOAD"], ["custom-http-errors" = "404", "default-backend" = "PAYLOAD"];
    aliases_and_hosts: ["server-alias" = "PAYLOAD"], ["server-alias" = "~^PAYLOAD"], ["upstream-vhost" = "PAYLOAD"],
        ["from-to-www-redirect" = "PAYLOAD"], ["ssl-passthrough" = "PAYLOAD"];
    balancing: ["upstream-hash-by" = "PAYLOAD"], ["load-balance" = "PAYLOAD"], ["affinity" = "cookie", "session-cookie-name" = "PAYLOAD"],
        ["affinity" = "cookie", "session-cookie-path" = "PAYLOAD"], ["affinity" = "cookie", "session-cookie-domain" = "PAYLOAD"],
        ["canary" = "true", "canary-by-header" = "PAYLOAD"], ["canary" = "true", "canary-by-cookie" = "PAYLOAD"];
    proxying: ["proxy-redirect-from" = "PAYLOAD", "proxy-redirect-to" = "PAYLOAD"], ["proxy-cookie-domain" = "PAYLOAD"],
        ["proxy-cookie-path" = "PAYLOAD"], ["proxy-next-upstream" = "PAYLOAD"], ["backend-protocol" = "PAYLOAD"],
        ["connection-proxy-header" = "PAYLOAD"], ["fastcgi-index" = "PAYLOAD", "backend-protocol" = "FCGI"];
    upstream_tls: ["proxy-ssl-secret" = "PAYLOAD"], ["proxy-ssl-secret" = "default/none", "proxy-ssl-name" = "PAYLOAD"],
        ["proxy-ssl-secret" = "default/none", "proxy-ssl-ciphers" = "PAYLOAD"], ["proxy-ssl-secret" = "default/none", "proxy-ssl-protocols" = "PAYLOAD"];
    cross_origin: ["enable-cors" = "true", "cors-allow-origin" = "PAYLOAD"], ["enable-cors" = "true", "cors-allow-headers" = "PAYLOAD"],
        ["enable-cors" = "true", "cors-allow-methods" = "PAYLOAD"], ["enable-cors" = "true", "cors-expose-headers" = "PAYLOAD"];
    unknown_annotations: ["no-such-annotation" = "PAYLOAD"], ["enable-opentelemetry" = "PAYLOAD"], ["opentelemetry-operation-name" = "PAYLOAD"];
}

/// Values of CVE-2021-25745, CVE-2021-25748, CVE-2022-4886 and CVE-2026-24512.
#[test]
fn paths() {
    nothing_is_written("injection-paths", |name, payload| {
        ingress(&format!("{name}-0"), &[], payload)
            + &ingress(&format!("{name}-1"), &[], &format!("/{payload}"))
            + &ingress(&format!("{name}-2"), &[("use-regex", "true")], &format!("/{payload}(.*)"))
    });
}

/// CVE-2025-1098: fields of the object itself
#[test]
fn names_hosts_and_identities() {
    nothing_is_written("injection-identities", |name, payload| {
        let plain = ingress(name, &[], "/");
        let payload = quoted(payload);
        [
            plain.replace(&format!("name: {name},"), &format!("name: {name}, uid: {payload},")),
            plain.replace(&format!("name: {name},"), &format!("name: {payload},")),
            plain.replace(&format!("host: {name}.test"), &format!("host: {payload}")),
            plain.replace("name: shop", &format!("name: {payload}")),
            plain.replace("number: 80", &format!("name: {payload}")),
            plain.replace("namespace: default", &format!("namespace: {payload}")),
        ]
        .concat()
    });
}

/// Certificates of users are no files.
#[test]
fn secrets() {
    nothing_is_written("injection-secrets", |name, payload| {
        let text = quoted(payload);
        format!(
            "---\napiVersion: v1\nkind: Secret\nmetadata: {{ name: {name}, namespace: default }}\n\
             stringData: {{ tls.crt: {text}, tls.key: {text}, auth: {text}, ca.crt: {text} }}\n{}  tls: \
             [{{ hosts: [{name}.test], secretName: {name} }}]\n",
            ingress(name, &[("auth-type", "basic"), ("auth-secret", name)], "/")
        )
    });
}

/// Fields of what an Ingress leads to: names of ports and protocols, other hosts, labels, and values of ConfigMaps.
#[test]
fn services_slices_and_config_maps() {
    nothing_is_written("injection-services", |name, payload| {
        let text = quoted(payload);
        let led = ingress(name, &[("custom-headers", name)], "/")
            .replace("name: shop", &format!("name: {name}"));
        format!(
            "---\napiVersion: v1\nkind: Service\nmetadata: {{ name: {name}, namespace: default, annotations: {{ x: {text} }} }}\n\
             spec: {{ type: ExternalName, externalName: {text}, ports: [{{ port: 80, name: {text}, appProtocol: {text} }}] }}\n\
             ---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
             metadata: {{ name: {name}, namespace: default, labels: {{ kubernetes.io/service-name: {name}, x: {text} }} }}\n\
             addressType: IPv4\nports: [{{ port: 80, name: {text}, appProtocol: {text} }}]\n\
             endpoints: [{{ addresses: [{text}], hostname: {text}, zone: {text} }}]\n\
             ---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{ name: {name}, namespace: default }}\n\
             data: {{ X-Value: {text}, {text}: value }}\n\
             ---\napiVersion: networking.k8s.io/v1\nkind: IngressClass\nmetadata: {{ name: {name} }}\n\
             spec: {{ controller: {text}, parameters: {{ kind: {text}, name: {text} }} }}\n{led}"
        )
    });
}

/// Fields of the Gateway API. Listeners are of port 80: another port is the operator's, and is written as a number.
#[test]
fn gateways_and_routes() {
    nothing_is_written("injection-gateways", |name, payload| {
        let (text, group) = (quoted(payload), "gateway.networking.k8s.io");
        let value = format!("{{ name: {text}, value: {text}, type: RegularExpression }}");
        let plain = format!("{{ name: {text}, value: {text} }}");
        let filters = [
            format!(
                "type: RequestHeaderModifier, requestHeaderModifier: {{ set: [{plain}], remove: [{text}] }}"
            ),
            format!("type: ResponseHeaderModifier, responseHeaderModifier: {{ add: [{plain}] }}"),
            format!(
                "type: URLRewrite, urlRewrite: {{ hostname: {text}, path: {{ type: ReplaceFullPath, replaceFullPath: {text} }} }}"
            ),
            format!(
                "type: RequestRedirect, requestRedirect: {{ scheme: {text}, hostname: {text}, path: {{ type: ReplacePrefixMatch, replacePrefixMatch: {text} }} }}"
            ),
            format!("type: {text}, extensionRef: {{ group: {text}, kind: {text}, name: {text} }}"),
        ];
        let rules: Vec<_> = filters
            .iter()
            .map(|filter| {
                format!(
                    "{{ name: {text}, matches: [{{ path: {{ type: PathPrefix, value: {path} }}, method: {text}, headers: [{value}, {plain}], \
                     queryParams: [{value}, {plain}] }}, {{ path: {{ type: RegularExpression, value: {path} }} }}], filters: [{{ {filter} }}], \
                     backendRefs: [{{ name: shop, port: 80, namespace: {text} }}, {{ name: {text}, kind: {text}, port: 80 }}, {{ name: shop, port: 80 }}] }}",
                    path = quoted(&format!("/{payload}"))
                )
            })
            .collect();
        let rules = rules.join(", ");
        let object = |kind: &str, spec: &str| {
            format!(
                "---\napiVersion: {group}/v1\nkind: {kind}\nmetadata: {{ name: {name}, namespace: default, annotations: {{ x: {text} }} }}\nspec: {{ {spec} }}\n"
            )
        };
        let parent =
            format!("parentRefs: [{{ name: {name} }}, {{ name: {text}, sectionName: {text} }}]");
        [
            object("GatewayClass", "controllerName: oxigress.io/gateway-controller"),
            object(
                "Gateway",
                &format!(
                    "gatewayClassName: {name}, allowedListeners: {{ namespaces: {{ from: Same }} }}, addresses: [{{ value: {text} }}], listeners: [{{ name: {text}, port: 80, protocol: HTTP, hostname: {text} }}, \
                     {{ name: other, port: 80, protocol: {text} }}, {{ name: tls, port: 443, protocol: HTTPS, tls: {{ certificateRefs: [{{ name: {text}, namespace: {text} }}] }} }}, \
                     {{ name: own, port: 80, protocol: HTTP, hostname: {name}.test }}]"
                ),
            ),
            object("HTTPRoute", &format!("{parent}, hostnames: [{text}], rules: [{rules}]")),
            object("HTTPRoute", &format!("{parent}, hostnames: [{name}.test], rules: [{rules}]"))
                .replace(&format!("name: {name}, namespace"), &format!("name: {name}-2, namespace")),
            object("ListenerSet", &format!("parentRef: {{ name: {name} }}, listeners: [{{ name: {text}, hostname: {text}, port: 80, protocol: {text} }}]")),
            object("ReferenceGrant", &format!("from: [{{ group: {text}, kind: {text}, namespace: {text} }}], to: [{{ group: {text}, kind: {text} }}]")),
        ]
        .concat()
    });
}

/// CVE-2025-1974: an object that is only reviewed, and not stored, reaches no file either. The webhook is asked as anybody who
/// reaches its port may ask it.
#[test]
fn objects_under_review() {
    pass("injection-reviews", |directory| {
        let endpoint = Endpoint::start("shop")?;
        let certificate = Certificate::new("webhook", &["localhost"])?;
        let port = free_port()?;
        let flags = webhook_flags(directory, &certificate, &format!("127.0.0.1:{port}"))?;
        let mut controller = Controller::start(directory, 1, &flags)?;
        let good = ingress("good", &[], "/") + &shop(endpoint.address.port());
        controller.serve("good.yaml", &good)?;
        let before = tree(&directory.join("run"))?;
        let to = Address::Tls((Ipv4Addr::LOCALHOST, port).into(), Some("localhost".into()));
        let prefix = "nginx.ingress.kubernetes.io";
        let mut denied = 0;
        for payload in payloads() {
            for name in ["configuration-snippet", "auth-url", "mirror-target", "rewrite-target"] {
                let object = serde_json::json!({
                    "apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
                    "metadata": {
                        "name": "reviewed", "namespace": "default", "uid": payload,
                        "annotations": {
                            format!("{prefix}/{name}"): payload,
                            "kubernetes.io/ingress.class": "nginx",
                        },
                    },
                    "spec": {"rules": [{"host": "reviewed.test", "http": {"paths": [{
                        "path": format!("/{payload}"), "pathType": "ImplementationSpecific",
                        "backend": {"service": {"name": "shop", "port": {"number": 80}}},
                    }]}}]},
                });
                let review = serde_json::json!({
                    "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
                    "request": {
                        "uid": "1", "operation": "CREATE", "namespace": "default", "name": "reviewed",
                        "kind": {"group": "networking.k8s.io", "version": "v1", "kind": "Ingress"},
                        "resource": {
                            "group": "networking.k8s.io", "version": "v1", "resource": "ingresses",
                        },
                        "object": object,
                    },
                });
                let request = Request::new("POST", "localhost", "/");
                let request = request.header("Content-Type", "application/json");
                let answer = block_on(send(&to, &request.body(review.to_string())))?;
                let answer: serde_json::Value = serde_json::from_str(&answer.text())?;
                denied += usize::from(answer["response"]["allowed"] == false);
            }
        }
        ensure!(denied > payloads().len(), "{denied} were denied");
        ensure!(tree(&directory.join("run"))? == before, "the runtime folder is another one");
        Ok(())
    });
}
