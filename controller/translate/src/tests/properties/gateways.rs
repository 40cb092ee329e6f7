//! Gateways, routes and grants, whose names and hosts meet those of Ingresses.

use super::{HOSTS, NAMES, NAMESPACES};
use oxigress_objects::gateway::{
    BackendTlsPolicy, ClusterTrustBundle, GrpcRouteSpec, ListenerSet, Policy, ReferenceGrant,
    Resource, TlsRouteSpec,
};
use oxigress_objects::gateway::{
    CONTROLLER, GROUP, Gateway, GatewayClass, Meta, Route, TRUST_GROUP,
};
use oxigress_objects::{Key, Kind, Object, ObjectRef, Seen};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};
use std::sync::Arc;

fn resource<S: serde::de::DeserializeOwned>(created: i64, spec: Value) -> Arc<Resource<S>> {
    let meta = Meta { created, generation: 1 };
    Arc::new(Resource { meta, spec: serde_json::from_value(spec).unwrap() })
}

pub fn class() -> impl Strategy<Value = Object> {
    let names = prop_oneof![9 => Just(CONTROLLER), 1 => Just("other.io/x")];
    names.prop_map(|name| {
        let class: Arc<GatewayClass> = resource(0, json!({ "controllerName": name }));
        Object::GatewayClass(class)
    })
}

/// The class of the Gateways.
pub fn our_class() -> Seen {
    let class: Arc<GatewayClass> = resource(0, json!({ "controllerName": CONTROLLER }));
    (ObjectRef::new(Kind::GatewayClass, Key::new("", "c")), Some(Object::GatewayClass(class)))
}

fn listener() -> impl Strategy<Value = Value> {
    let from = option::weighted(0.8, select(&["All", "Same"][..]));
    let requests = select(&[(80, "HTTP"), (80, "HTTP"), (443, "HTTPS"), (8_080, "HTTP")][..]);
    let sessions =
        select(&[(443, "TLS"), (8_443, "TLS"), (8_443, "TLS"), (90, "TCP"), (90, "UDP")][..]);
    let speaks = prop_oneof![2 => requests, 1 => sessions];
    let mode = option::weighted(0.5, Just("Passthrough"));
    (speaks, select(&HOSTS[..]), from, select(&NAMES[..]), mode).prop_map(
        |((port, protocol), host, from, secret, mode)| {
            let mode = mode.filter(|_| protocol == "TLS");
            let tls = json!({"mode": mode, "certificateRefs": [{"name": secret}]});
            let tls = ["HTTPS", "TLS"].contains(&protocol).then_some(tls);
            json!({"port": port, "protocol": protocol, "hostname": host,
                "tls": tls,
                "allowedRoutes": {"namespaces": {"from": from}}})
        },
    )
}

/// Some listeners, each with a name.
fn listeners() -> impl Strategy<Value = Vec<Value>> {
    vec(listener(), 0..4).prop_map(|mut listeners| {
        for (number, listener) in listeners.iter_mut().enumerate() {
            listener["name"] = json!(format!("l{number}"));
        }
        listeners
    })
}

pub fn listener_set() -> impl Strategy<Value = Object> {
    let parent = (select(&NAMES[..2]), option::weighted(0.5, select(&NAMESPACES[..])));
    (0..4_i64, parent, listeners()).prop_map(|(created, (name, namespace), listeners)| {
        let spec =
            json!({"parentRef": {"name": name, "namespace": namespace}, "listeners": listeners});
        let set: Arc<ListenerSet> = resource(created, spec);
        Object::ListenerSet(set)
    })
}

pub fn gateway() -> impl Strategy<Value = Object> {
    let allowed = option::weighted(0.7, select(&["All", "Same", "None"][..]));
    (0..4_i64, listeners(), allowed).prop_map(|(created, listeners, allowed)| {
        let spec = json!({"gatewayClassName": "c", "listeners": listeners,
            "allowedListeners": {"namespaces": {"from": allowed}}});
        let gateway: Arc<Gateway> = resource(created, spec);
        Object::Gateway(gateway)
    })
}

fn reference() -> impl Strategy<Value = Value> {
    let namespace = option::weighted(0.3, select(&NAMESPACES[..]));
    (select(&NAMES[..]), namespace, select(&[80, 80, 81][..]), 0..3).prop_map(
        |(name, namespace, port, weight)| {
            json!({"name": name, "namespace": namespace, "port": port, "weight": weight})
        },
    )
}

fn one_match() -> impl Strategy<Value = Value> {
    let paths = &["/", "/x", "/x/y", "/.well-known/acme-challenge/t", "bad"][..];
    let path = (select(&["Exact", "PathPrefix"][..]), select(paths));
    let header = option::weighted(0.3, select(&["Exact", "RegularExpression"][..]));
    (path, header, option::weighted(0.2, Just("GET"))).prop_map(|((kind, path), header, method)| {
        let header = header.map(|kind| json!({"name": "x", "type": kind, "value": "a|b"}));
        json!({"path": {"type": kind, "value": path}, "method": method,
            "headers": header.into_iter().collect::<Vec<_>>()})
    })
}

fn filter() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(json!({"type": "RequestRedirect", "requestRedirect": {"statusCode": 301}})),
        Just(json!({"type": "RequestHeaderModifier",
            "requestHeaderModifier": {"set": [{"name": "x-a", "value": "1"}]}})),
        select(&NAMES[..]).prop_map(|name| json!({"type": "ExtensionRef",
            "extensionRef": {"group": "oxigress.io", "kind": "Policy", "name": name}})),
        reference()
            .prop_map(|to| json!({"type": "RequestMirror", "requestMirror": {"backendRef": to}})),
    ]
}

fn parent() -> impl Strategy<Value = Value> {
    let parent = (select(&NAMES[..2]), option::weighted(0.5, select(&NAMESPACES[..])));
    let kind = option::weighted(0.3, Just("ListenerSet"));
    (parent, kind, option::weighted(0.2, Just("l0"))).prop_map(|((name, namespace), kind, section)| {
        json!({"kind": kind, "name": name, "namespace": namespace, "sectionName": section})
    })
}

fn hosts() -> impl Strategy<Value = Vec<&'static str>> {
    vec(select(&["a.test", "b.test", "*.test", "x.a.test"][..]), 0..3)
}

pub fn route() -> impl Strategy<Value = Object> {
    let rule = (vec(one_match(), 0..3), vec(reference(), 0..3), vec(filter(), 0..2));
    let rule = rule.prop_map(|(matches, backends, filters)| {
        json!({"matches": matches, "backendRefs": backends, "filters": filters})
    });
    (0..4_i64, vec(parent(), 1..3), hosts(), vec(rule, 0..3)).prop_map(
        |(created, parents, hosts, rules)| {
            let spec = json!({"parentRefs": parents, "hostnames": hosts, "rules": rules});
            let route: Arc<Route> = resource(created, spec);
            Object::Route(route)
        },
    )
}

fn call() -> impl Strategy<Value = Value> {
    let name = || option::weighted(0.7, select(&["x", "y", "a/b", "[a-z]"][..]));
    let kind = option::weighted(0.6, select(&["Exact", "RegularExpression", "Other"][..]));
    let header = option::weighted(0.3, Just(json!({"name": "x", "value": "1"})));
    (kind, name(), name(), header).prop_map(|(kind, service, method, header)| {
        json!({"method": {"type": kind, "service": service, "method": method},
            "headers": header.into_iter().collect::<Vec<_>>()})
    })
}

pub fn grpc_route() -> impl Strategy<Value = Object> {
    let rule = (vec(call(), 0..3), vec(reference(), 0..3), vec(filter(), 0..2));
    let rule = rule.prop_map(|(matches, backends, filters)| {
        json!({"matches": matches, "backendRefs": backends, "filters": filters})
    });
    (0..4_i64, vec(parent(), 1..3), hosts(), vec(rule, 0..3)).prop_map(
        |(created, parents, hosts, rules)| {
            let spec = json!({"parentRefs": parents, "hostnames": hosts, "rules": rules});
            let route: Arc<Resource<GrpcRouteSpec>> = resource(created, spec);
            let Resource { meta, spec } = Arc::unwrap_or_clone(route);
            Object::Route(Arc::new(Resource { meta, spec: spec.into_http() }))
        },
    )
}

/// A route of sessions; of TCP and UDP nobody reads its hosts.
fn session_route(has_hosts: bool) -> impl Strategy<Value = Object> {
    let rule = vec(reference(), 0..3).prop_map(|backends| json!({"backendRefs": backends}));
    (0..4_i64, vec(parent(), 1..3), hosts(), vec(rule, 0..3)).prop_map(
        move |(created, parents, hosts, rules)| {
            let hosts = if has_hosts { hosts } else { Vec::new() };
            let spec = json!({"parentRefs": parents, "hostnames": hosts, "rules": rules});
            let route: Arc<Resource<TlsRouteSpec>> = resource(created, spec);
            let Resource { meta, spec } = Arc::unwrap_or_clone(route);
            Object::Route(Arc::new(Resource { meta, spec: spec.into_http() }))
        },
    )
}

pub fn grant() -> impl Strategy<Value = Object> {
    let from = (
        select(&["HTTPRoute", "GRPCRoute", "TLSRoute", "Gateway", "ListenerSet"][..]),
        select(&NAMESPACES[..]),
    );
    let to = (select(&["Service", "Secret"][..]), option::of(select(&NAMES[..])));
    (from, to).prop_map(|((from, namespace), (to, name))| {
        let spec = json!({"from": [{"group": GROUP, "kind": from, "namespace": namespace}],
            "to": [{"group": "", "kind": to, "name": name}]});
        let grant: Arc<ReferenceGrant> = resource(0, spec);
        Object::ReferenceGrant(grant)
    })
}

pub fn tls_policy() -> impl Strategy<Value = Object> {
    let section = option::weighted(0.3, select(&["a", "b"][..]));
    let kind = select(&[("", "ConfigMap"), (TRUST_GROUP, "ClusterTrustBundle")][..]);
    (0..4_i64, select(&NAMES[..]), section, kind, select(&NAMES[..2])).prop_map(
        |(created, service, section, (group, kind), name)| {
            let spec = json!({
                "targetRefs": [{"group": "", "kind": "Service", "name": service, "sectionName": section}],
                "validation": {"hostname": "a.test",
                    "caCertificateRefs": [{"group": group, "kind": kind, "name": name}]}});
            let policy: Arc<BackendTlsPolicy> = resource(created, spec);
            Object::BackendTlsPolicy(policy)
        },
    )
}

/// Authorities that can be read, and some that cannot.
pub fn trust_bundle() -> impl Strategy<Value = Object> {
    let texts = vec![crate::gateway::an_authority(), "none".into(), String::new()];
    select(texts).prop_map(|text| {
        let bundle: Arc<ClusterTrustBundle> = resource(0, json!({ "trustBundle": text }));
        Object::ClusterTrustBundle(bundle)
    })
}

pub fn policy() -> impl Strategy<Value = Object> {
    let field = prop_oneof![
        select(&NAMES[..]).prop_map(|name| json!({"auth-type": "basic", "auth-secret": name})),
        select(&NAMES[..]).prop_map(|name| json!({"proxy-ssl-secret": name})),
        select(&NAMES[..]).prop_map(|name| json!({"custom-headers": name})),
        select(&NAMES[..])
            .prop_map(|name| json!({"default-backend": name, "custom-http-errors": "404"})),
        Just(json!({"affinity": "cookie", "limit-rps": 5})),
        Just(json!({"canary": true, "auth-url": "http://192.0.2.1/"})),
        Just(json!({"auth-tls-secret": "a"})),
    ];
    field.prop_map(|spec| {
        let policy: Arc<Policy> = resource(0, spec);
        Object::Policy(policy)
    })
}

/// A route of requests, or that it is gone.
pub fn request_route() -> impl Strategy<Value = Seen> {
    let of_kind = prop_oneof![
        3 => (Just(Kind::HTTPRoute), option::weighted(0.8, route().boxed())),
        1 => (Just(Kind::GRPCRoute), option::weighted(0.8, grpc_route().boxed())),
    ];
    let at = (select(&NAMESPACES[..]), select(&NAMES[..]));
    (at, of_kind).prop_map(|((namespace, name), (kind, object))| {
        (ObjectRef::new(kind, Key::new(namespace, name)), object)
    })
}

/// A Gateway of the class of [`our_class`].
pub fn our_gateway() -> impl Strategy<Value = Seen> {
    (select(&NAMESPACES[..]), select(&NAMES[..2]), gateway()).prop_map(
        |(namespace, name, object)| {
            (ObjectRef::new(Kind::Gateway, Key::new(namespace, name)), Some(object))
        },
    )
}

/// A Policy that routes may name.
pub fn named_policy() -> impl Strategy<Value = Seen> {
    (select(&NAMESPACES[..]), select(&NAMES[..]), policy()).prop_map(|(namespace, name, object)| {
        (ObjectRef::new(Kind::Policy, Key::new(namespace, name)), Some(object))
    })
}

/// An object, or that it is gone.
pub fn seen() -> impl Strategy<Value = Seen> {
    let of = |kind: Kind, object: BoxedStrategy<Object>, names: &'static [&'static str]| {
        let namespaces = if kind.is_namespaced() { &NAMESPACES[..] } else { &[""][..] };
        (select(namespaces), select(names), option::weighted(0.8, object)).prop_map(
            move |(namespace, name, object)| {
                (ObjectRef::new(kind, Key::new(namespace, name)), object)
            },
        )
    };
    prop_oneof![
        2 => of(Kind::GatewayClass, class().boxed(), &["c"]),
        3 => of(Kind::Gateway, gateway().boxed(), &NAMES[..2]),
        3 => of(Kind::ListenerSet, listener_set().boxed(), &NAMES[..2]),
        4 => of(Kind::HTTPRoute, route().boxed(), &NAMES),
        2 => of(Kind::GRPCRoute, grpc_route().boxed(), &NAMES),
        3 => of(Kind::TLSRoute, session_route(true).boxed(), &NAMES),
        1 => of(Kind::TCPRoute, session_route(false).boxed(), &NAMES),
        1 => of(Kind::UDPRoute, session_route(false).boxed(), &NAMES),
        2 => of(Kind::BackendTLSPolicy, tls_policy().boxed(), &NAMES),
        1 => of(Kind::ClusterTrustBundle, trust_bundle().boxed(), &NAMES[..2]),
        2 => of(Kind::Policy, policy().boxed(), &NAMES),
        1 => of(Kind::ReferenceGrant, grant().boxed(), &NAMES[..2]),
    ]
}
