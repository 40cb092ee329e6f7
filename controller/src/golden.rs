//! Golden pairs: `testdata/NAME.in.yaml` → `testdata/NAME.out.yaml`; the listing is the feature list. They stand in the
//! binary, because a case begins with a command line.
//!
//! The input is manifests. Comment lines say what manifests cannot: `# flags: …` the command line, `# then`
//! that what follows happens later, `# delete KIND NAMESPACE/NAME` that an object goes. The output is what is
//! served at the end and what is said about it. `UPDATE_GOLDEN=1 cargo test golden` writes it anew.

use crate::flags::Cli;
use clap::Parser;
use oxigress_core::model::Snapshot;
use oxigress_core::model::policy::PolicyId;
use oxigress_core::model::{HttpsRedirect, Rule, SessionRoute};
use oxigress_objects::document::{self, Found};
use oxigress_objects::gateway_status::{Addresses, Condition, Content, ListenerStatus, Wanted};
use oxigress_objects::verdict::Verdicts;
use oxigress_objects::{Changed, Key, Kind, ObjectRef, World};
use oxigress_settings::Settings;
use oxigress_translate::{Options, Translator, translate};
use serde_json::{Map, Value, json};
use std::fs;
use std::path::Path;

#[test]
fn golden() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
    let is_update = std::env::var_os("UPDATE_GOLDEN").is_some();
    let mut different = Vec::new();
    let mut cases = 0;
    let mut entries: Vec<_> = fs::read_dir(&folder).unwrap().map(|e| e.unwrap().path()).collect();
    entries.sort();
    for input in entries {
        let Some(name) = input.to_str().unwrap().strip_suffix(".in.yaml") else { continue };
        cases += 1;
        let got = run(&fs::read_to_string(&input).unwrap());
        let output = format!("{name}.out.yaml");
        let expected = fs::read_to_string(&output).unwrap_or_default();
        if got == expected {
        } else if is_update {
            fs::write(&output, &got).unwrap();
        } else {
            different.push(format!("--- {output}\n{expected}+++ instead\n{got}"));
        }
    }
    assert!(cases >= 25, "only {cases} cases in {}", folder.display());
    assert!(different.is_empty(), "{}", different.join("\n"));
}

/// What the command line in the comments of a case says.
fn options(input: &str) -> Options {
    let flags = input.lines().find_map(|line| line.strip_prefix("# flags: ")).unwrap_or_default();
    let flags =
        Cli::parse_from(std::iter::once("oxigress").chain(flags.split_whitespace())).flags();
    flags.options(Default::default())
}

fn run(input: &str) -> String {
    let options = options(input);
    let mut translator = Translator::new(options.clone());
    let mut world = World::default();
    let mut unread = Vec::new();
    for step in input.split("\n# then") {
        let mut changed = Changed::default();
        for document in document::read(step, false) {
            match document.found {
                Ok(found) => {
                    for found in found {
                        match found {
                            Found::Object(id, object) => {
                                world.apply((id, Some(object)), &mut changed);
                            }
                            Found::Broken(_, message)
                            | Found::OtherKind(_, message)
                            | Found::UnknownField(_, message)
                            | Found::Unusable(message) => {
                                unread.push(format!("document {}: {message}", document.number));
                            }
                        }
                    }
                }
                Err(message) => unread.push(format!("document {}: {message}", document.number)),
            }
        }
        for id in step.lines().filter_map(|line| line.strip_prefix("# delete ")) {
            world.apply((parse_ref(id), None), &mut changed);
        }
        let before = translator.snapshot().clone();
        let (patch, _) = translator.update(&world, &changed);
        let scratch = translate(&world, &options);
        assert_eq!(translator.snapshot(), &scratch.snapshot, "incremental differs from scratch");
        assert_eq!(translator.verdicts(), &scratch.verdicts);
        assert_eq!(translator.statuses(), &scratch.statuses);
        let mut patched = before;
        patch.apply(&mut patched);
        assert_eq!(&patched, translator.snapshot(), "the delta misses something");
    }
    let mut view = view(translator.snapshot(), translator.verdicts(), unread);
    let statuses = translator
        .statuses()
        .iter()
        .map(|(object, wanted)| (object.to_string(), status_view(wanted)));
    let statuses: Map<String, Value> = statuses.collect();
    if let (false, Some(all)) = (statuses.is_empty(), view.as_object_mut()) {
        all.insert("statuses".into(), statuses.into());
    }
    serde_saphyr::to_string(&view).unwrap()
}

fn parse_ref(text: &str) -> ObjectRef {
    let (kind, key) = text.split_once(' ').unwrap();
    let kind = match kind {
        "ConfigMap" => Kind::ConfigMap,
        "EndpointSlice" => Kind::EndpointSlice,
        "Gateway" => Kind::Gateway,
        "GRPCRoute" => Kind::GRPCRoute,
        "HTTPRoute" => Kind::HTTPRoute,
        "BackendTLSPolicy" => Kind::BackendTLSPolicy,
        "ListenerSet" => Kind::ListenerSet,
        "ClusterTrustBundle" => Kind::ClusterTrustBundle,
        "Policy" => Kind::Policy,
        "ReferenceGrant" => Kind::ReferenceGrant,
        "TCPRoute" => Kind::TCPRoute,
        "TLSRoute" => Kind::TLSRoute,
        "UDPRoute" => Kind::UDPRoute,
        "Ingress" => Kind::Ingress,
        "IngressClass" => Kind::IngressClass,
        "Namespace" => Kind::Namespace,
        "Secret" => Kind::Secret,
        "Service" => Kind::Service,
        other => panic!("unknown kind {other}"),
    };
    ObjectRef::new(kind, Key::parse(key).unwrap_or_else(|| Key::new("", key)))
}

/// Short, in words, without keys, and without what is as always.
fn view(snapshot: &Snapshot, verdicts: &Verdicts, unread: Vec<String>) -> Value {
    let mut all = Map::new();
    let mut put = |name: &str, value: Map<String, Value>| {
        if !value.is_empty() {
            all.insert(name.into(), value.into());
        }
    };
    put("servers", servers_view(snapshot));
    put("listener_servers", listeners_view(snapshot));
    let usual = serde_json::to_value(oxigress_core::model::Backend::default()).unwrap();
    let backends = snapshot.backends.iter().filter_map(|(id, backend)| {
        let mut backend = serde_json::to_value(backend).unwrap();
        let fields = backend.as_object_mut().unwrap();
        fields.retain(|name, value| usual.get(name) != Some(value));
        (!fields.is_empty()).then(|| (id.to_string(), backend))
    });
    put("backends", backends.collect());
    put("endpoints", endpoints_view(snapshot));
    let passthrough = snapshot.passthrough.iter();
    let passthrough = passthrough.map(|(host, id)| (host.to_string(), json!(id.as_str())));
    put("passthrough", passthrough.collect());
    let ports = snapshot.ports.iter().map(|(port, id)| (port.to_string(), json!(id.as_str())));
    put("ports", ports.collect());
    let sessions = snapshot.sessions.iter();
    let sessions = sessions.map(|(at, route)| (at.to_string(), session_view(snapshot, route)));
    put("sessions", sessions.collect());
    let certificates = snapshot.certificates.iter().map(|(id, certificate)| {
        let pem = (certificate.chain.as_bytes(), certificate.key.as_bytes());
        let pair = oxigress_objects::secret::Pair::parse(pem.0, pem.1).unwrap();
        (id.to_string(), json!(pair.names))
    });
    put("certificates", certificates.collect());
    let names = snapshot.names.iter().map(|(host, id)| (host.to_string(), json!(id.as_str())));
    put("names", names.collect());
    put("tls", tls_view(snapshot));
    put("listener_tls", listener_tls_view(snapshot));
    let fields = |settings: &oxigress_core::model::Settings| {
        serde_json::to_value(settings).unwrap().as_object().unwrap().clone()
    };
    let usual = Settings::default().published();
    let (usual, mut settings) = (fields(&usual), fields(&snapshot.settings));
    settings.retain(|name, value| usual.get(name) != Some(value));
    put("settings", settings);
    let verdicts = verdicts.iter().map(|(object, verdict)| {
        let mut lines = vec![verdict.severity.to_string()];
        lines.extend(verdict.messages.iter().cloned());
        (object.to_string(), json!(lines))
    });
    put("verdicts", verdicts.collect());
    if !unread.is_empty() {
        all.insert("unread".into(), json!(unread));
    }
    Value::Object(all)
}

fn tls_view(snapshot: &Snapshot) -> Map<String, Value> {
    let tls = snapshot.tls.iter().map(|(host, tls)| {
        let mut tls = serde_json::to_value(tls).unwrap();
        name_bundles(snapshot, &mut tls, &["/client/authorities", "/client/revoked"]);
        (host.to_string(), tls)
    });
    tls.collect()
}

/// What listeners ask of their clients, at each of their hosts.
fn listener_tls_view(snapshot: &Snapshot) -> Map<String, Value> {
    let asking = snapshot.listener_servers.iter().filter_map(|(at, server)| {
        let mut tls = serde_json::to_value(server.tls.as_ref()?).unwrap();
        name_bundles(snapshot, &mut tls, &["/client/authorities"]);
        Some((at.to_string(), tls))
    });
    asking.collect()
}

fn endpoints_view(snapshot: &Snapshot) -> Map<String, Value> {
    let endpoints = snapshot.endpoints.iter().map(|(id, set)| {
        let set = set.as_slice().iter().map(|e| {
            let address = std::net::SocketAddr::new(e.address, e.port.get());
            format!("{address}{}", if e.draining { " draining" } else { "" })
        });
        (id.to_string(), json!(set.collect::<Vec<_>>()))
    });
    endpoints.collect()
}

fn servers_view(snapshot: &Snapshot) -> Map<String, Value> {
    let servers = snapshot.servers.iter().map(|(host, server)| {
        let rules =
            server.rules.iter().map(|rule| (rule.path.to_string(), rule_view(snapshot, rule)));
        (host.to_string(), Value::Object(rules.collect()))
    });
    servers.collect()
}

fn listeners_view(snapshot: &Snapshot) -> Map<String, Value> {
    let listeners = snapshot.listener_servers.iter().map(|(at, server)| {
        let rules = server.rules.iter().map(|rule| {
            let selection = rule.selection.as_ref().map(|all| serde_json::to_value(all).unwrap());
            let selection = selection.map(|all| format!(" {all}")).unwrap_or_default();
            json!({format!("{}{selection}", rule.path): rule_view(snapshot, rule)})
        });
        (at.to_string(), json!(rules.collect::<Vec<_>>()))
    });
    listeners.collect()
}

/// The conditions, and which do not hold.
fn status_view(wanted: &Wanted) -> Value {
    let line = |condition: &Condition| {
        let Condition { name, holds, reason, .. } = condition;
        format!("{name}={holds} {reason}")
    };
    let lines = |all: &[Condition]| all.iter().map(line).collect::<Vec<_>>();
    let listeners = |all: &[ListenerStatus]| {
        let all = all.iter().map(|listener| {
            let mut all = lines(&listener.conditions);
            all.push(format!("{} routes, {:?}", listener.attached, listener.kinds));
            (listener.name.clone(), json!(all))
        });
        Value::Object(all.collect())
    };
    match &wanted.content {
        Content::Class { conditions, .. } => json!(lines(conditions)),
        Content::Gateway { conditions, listeners: all, addresses, sets } => {
            let mut view = json!({"conditions": lines(conditions), "listeners": listeners(all)});
            if let Addresses::Own(own) = addresses {
                view["addresses"] = json!(own);
            }
            if *sets > 0 {
                view["sets"] = json!(sets);
            }
            view
        }
        Content::ListenerSet { conditions, listeners: all } => {
            json!({"conditions": lines(conditions), "listeners": listeners(all)})
        }
        Content::Route { parents, .. } | Content::Policy { ancestors: parents, .. } => {
            let parents = parents.iter().map(|parent| {
                let section = parent.parent.section_name.as_deref().unwrap_or("*");
                json!({format!("{}/{section}", parent.parent.name): lines(&parent.conditions)})
            });
            json!(parents.collect::<Vec<_>>())
        }
    }
}

fn session_view(snapshot: &Snapshot, route: &SessionRoute) -> Value {
    let mut view = json!(route);
    for (place, target) in route.targets.iter().enumerate() {
        if let Some(id) = &target.policies {
            view["targets"][place]["policies"] = policies_view(snapshot, id);
        }
    }
    view
}

fn rule_view(snapshot: &Snapshot, rule: &Rule) -> Value {
    let origin = &rule.origin;
    let mut view = json!({
        "backend": rule.backend.as_ref().map_or("the default backend", |id| id.as_str()),
        "from": format!("{}/{}", origin.namespace, origin.ingress),
    });
    match rule.policy.https_redirect {
        HttpsRedirect::WithCertificate => {}
        HttpsRedirect::Always => view["https_redirect"] = "always".into(),
        HttpsRedirect::Never => view["https_redirect"] = "never".into(),
    }
    if rule.policy.yields {
        view["yields"] = true.into();
    }
    if let Some(id) = &rule.policies {
        view["policies"] = policies_view(snapshot, id);
    }
    view
}

fn policies_view(snapshot: &Snapshot, id: &PolicyId) -> Value {
    let mut policies = serde_json::to_value(&snapshot.policies[id]).unwrap();
    for secret in ["/access/basic/users", "/proxy/tls/key", "/proxy/tls/certificate"] {
        if let Some(secret) = policies.pointer_mut(secret) {
            *secret = format!("{} lines", secret.as_str().unwrap().lines().count()).into();
        }
    }
    name_bundles(snapshot, &mut policies, &["/proxy/tls/authorities"]);
    policies
}

/// Says how long bundles are in place of their digests; one that is named is there.
fn name_bundles(snapshot: &Snapshot, of: &mut Value, fields: &[&str]) {
    for field in fields {
        if let Some(id) = of.pointer_mut(field) {
            let key = oxigress_core::model::BundleId::parse(id.as_str().unwrap()).unwrap();
            let bundle = &snapshot.bundles[&key];
            *id = format!("{} lines", bundle.as_str().lines().count()).into();
        }
    }
}
