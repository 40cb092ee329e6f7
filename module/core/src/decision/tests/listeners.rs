//! Connections and the listeners of Gateways.

use super::*;

/// What an Ingress without a host says about client certificates is not about the hosts of listeners.
#[test]
fn the_policy_of_all_hosts_closes_no_host_of_a_listener() {
    let served = json!({"rules": [{"path": {"prefix": "/"}, "backend": "own"}]});
    let records = records(json!({
        "servers": {"_": served},
        "tls": {"_": {"denied": true}},
        "listener_servers": {"80/**.wild.test": served, "80/a.test": served},
        "backends": {"own": {}},
        "endpoints": {"own": [{"address": "10.0.0.1", "port": 1}]},
    }));
    let of = |host: &'static str| {
        let asked = Generated { is_tls: false, server_name: None, ..request(host, "/") };
        decide(&generation(&records), &asked, &mut Silent).answer
    };
    for host in ["a.test", "x.wild.test", "x.y.wild.test"] {
        assert_eq!(of(host), Answer::Forward, "{host}");
    }
    assert_eq!(of("other.test"), Answer::Respond(403), "the Ingress's own");
}

/// On a port of a Gateway alone no host of an Ingress is served, and what Ingresses say about client certificates closes nothing.
#[test]
fn a_policy_of_an_ingress_closes_no_host_on_ports_of_gateways_alone() {
    let served = json!({"rules": [{"path": {"prefix": "/"}, "backend": "own"}]});
    let of = |listener_ports: Value, host: &'static str| {
        let records = records(json!({
            "settings": {"listener_ports": listener_ports},
            "servers": {"x.wild.test": served},
            "tls": {"x.wild.test": {"denied": true}, "*.b.wild.test": {"denied": true}},
            "listener_servers": {"80/**.wild.test": served},
            "backends": {"own": {}},
            "endpoints": {"own": [{"address": "10.0.0.1", "port": 1}]},
        }));
        let asked = Generated { is_tls: false, server_name: None, ..request(host, "/") };
        decide(&generation(&records), &asked, &mut Silent).answer
    };
    for host in ["x.wild.test", "a.b.wild.test", "other.wild.test"] {
        assert_eq!(of(json!([80]), host), Answer::Forward, "{host}");
    }
    assert_eq!(of(json!([]), "x.wild.test"), Answer::Respond(403), "where the Ingress is served");
}

#[test]
fn a_host_of_another_listener_than_the_connection_s_is_misdirected() {
    let served = |listener: Value| json!({"rules": [{"path": {"prefix": "/"}, "backend": "own"}], "listener": listener});
    let empty = |listener: &str| json!({"listener": listener});
    let records = records(json!({
        "servers": {"ingress.test": served(Value::Null)},
        "listener_servers": {
            "443/a.test": served(json!("443/_")),
            "443/_": empty("443/_"),
            "443/b.test": served(json!("443/b.test")),
            "443/**.wild.test": served(json!("443/**.wild.test")),
            "443/x.wild.test": served(json!("443/x.wild.test")),
            "80/b.test": served(Value::Null),
        },
        "backends": {"own": {}},
        "endpoints": {"own": [{"address": "10.0.0.1", "port": 1}]},
    }));
    let of = |is_tls: bool, server_name: Option<&'static str>, host: &'static str| {
        let asked = Generated { is_tls, server_name, ..request(host, "/") };
        let decision = decide(&generation(&records), &asked, &mut Silent);
        let status = match decision.answer {
            Answer::Forward => 200,
            Answer::Respond(status) => status,
            answer => panic!("{answer:?}"),
        };
        assert!(decision.edits.is_none(), "it serves the listener's own hosts");
        status
    };
    for (name, host, expected) in [
        (Some("a.test"), "a.test", 200),
        (Some("A.Test."), "a.test", 200),
        (Some("a.test"), "b.test", 421),
        (Some("a.test"), "none.test", 404),
        (Some("b.test"), "b.test", 200),
        (Some("b.test"), "a.test", 421),
        (Some("b.test"), "none.test", 421),
        (Some("b.test"), "", 421),
        (Some("none.test"), "a.test", 200),
        (Some("y.wild.test"), "z.y.wild.test", 200),
        (Some("y.wild.test"), "x.wild.test", 421),
        (Some("x.wild.test"), "y.wild.test", 421),
        (Some("*.wild.test"), "y.wild.test", 421),
        // Without a server name a connection is for the listener without a host.
        (None, "a.test", 200),
        (None, "b.test", 421),
        (None, "", 404),
        // Hosts of Ingresses may be asked for by any connection, and their names lead to a listener as others do.
        (Some("b.test"), "ingress.test", 200),
        (None, "ingress.test", 200),
        (Some("ingress.test"), "a.test", 200),
        (Some("ingress.test"), "b.test", 421),
    ] {
        assert_eq!(of(true, name, host), expected, "{name:?} {host}");
    }
    assert_eq!(of(false, None, "b.test"), 200, "without TLS");
}
