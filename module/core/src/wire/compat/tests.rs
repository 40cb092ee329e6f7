use super::*;
use crate::model::{self, Affinity, AffinityMode, Algorithm, Cookie, SameSite, Split};
use crate::wire::decode;

const ELEMENT: &str = r#"[{"name":"default-shop-80","service":{"metadata":{"creationTimestamp":null},
    "spec":{"type":"ClusterIP"},"status":{"loadBalancer":{}}},"port":80,"sslPassthrough":false,
    "endpoints":[{"address":"10.0.0.1","port":"8080"},{"address":"2001:db8::1","port":"8080"}],
    "sessionAffinityConfig":{"name":"","mode":"","cookieSessionAffinity":{"name":""}},
    "upstreamHashByConfig":{"upstream-hash-by-subset-size":3},"load-balance":"ewma","noServer":false,
    "trafficShapingPolicy":{"weight":0,"weightTotal":0,"header":"","headerValue":"","headerPattern":"",
    "cookie":""}}]"#;

#[test]
fn what_was_posted_can_be_read_back() {
    let (posted, ignored) = decode::<Vec<Element>>(ELEMENT.as_bytes()).unwrap();
    assert_eq!(ignored, 0);
    let Converted { id, backend, endpoints, names, notes } =
        posted[0].clone().into_model().unwrap();
    assert_eq!((endpoints.as_slice().len(), names.len(), notes.len()), (2, 0, 0));
    assert_eq!(backend.algorithm, Algorithm::Ewma);
    assert_eq!((&backend.hash_by, &backend.affinity, &backend.split), (&None, &None, &None));
    let back = vec![Element::from_model(&id, &backend, &endpoints)];
    assert_eq!(back, posted);
    let value = |v: &str| serde_json::from_str::<serde_json::Value>(v).unwrap();
    assert_eq!(value(&serde_json::to_string(&back).unwrap()), value(ELEMENT));
}

fn converted(fields: &str) -> Converted {
    let body = format!(r#"[{{"name":"a",{fields}}}]"#);
    decode::<Vec<Element>>(body.as_bytes()).unwrap().0.remove(0).into_model().unwrap()
}

#[test]
fn load_balance_is_an_algorithm_and_else_round_robin_with_a_note() {
    for (text, algorithm, notes) in [
        ("", Algorithm::RoundRobin, 0),
        ("round_robin", Algorithm::RoundRobin, 0),
        ("ewma", Algorithm::Ewma, 0),
        ("least_conn", Algorithm::LeastConn, 0),
        ("p2c", Algorithm::P2c, 0),
        ("chash", Algorithm::RoundRobin, 1),
        ("EWMA", Algorithm::RoundRobin, 1),
    ] {
        let converted = converted(&format!(r#""load-balance":"{text}""#));
        assert_eq!(converted.backend.algorithm, algorithm, "{text}");
        assert_eq!(converted.notes.len(), notes, "{text}");
    }
}

#[test]
fn a_hash_chooses_an_endpoint_or_a_subset() {
    let hash_by = |fields: &str| {
        converted(&format!(r#""upstreamHashByConfig":{{{fields}}}"#)).backend.hash_by
    };
    let expected = |subset_size| Some(model::HashBy { key: "$request_uri".into(), subset_size });
    let key = r#""upstream-hash-by":"$request_uri""#;
    let size = r#""upstream-hash-by-subset-size""#;
    let subset = r#""upstream-hash-by-subset""#;
    assert_eq!(hash_by(&format!("{key},{size}:3")), expected(0));
    assert_eq!(hash_by(&format!("{key},{subset}:true,{size}:5")), expected(5));
    assert_eq!(hash_by(&format!("{key},{subset}:true,{size}:0")), expected(3));
    assert_eq!(hash_by(&format!("{subset}:true,{size}:5")), None);
    assert_eq!(hash_by(r#""upstream-hash-by":"a\n""#), None);
}

#[test]
fn affinity_is_the_references() {
    let Converted { backend, notes, .. } = converted(
        r#""sessionAffinityConfig":{"name":"cookie","mode":"persistent","cookieSessionAffinity":{
        "name":"route","expires":"-5","maxage":"60","locations":{"a.test":["/"]},"secure":true,"path":"/x",
        "domain":"a.test","samesite":"None","conditional_samesite_none":true,"change_on_failure":true}}"#,
    );
    let cookie = Cookie {
        name: "route".into(),
        expires: Some(-5),
        max_age: Some(60),
        path: Some("/x".into()),
        domain: Some("a.test".into()),
        secure: Some(true),
        same_site: Some(SameSite::None),
        conditional_same_site_none: true,
        change_on_failure: true,
        locations: [("a.test".into(), vec!["/".into()])].into(),
    };
    let mode = AffinityMode::Persistent;
    assert_eq!((backend.affinity, notes), (Some(Affinity { mode, cookie }.into()), vec![]));
    for other in [r#"{"name":""}"#, r#"{"name":"Cookie"}"#] {
        let converted = converted(&format!(r#""sessionAffinityConfig":{other}"#));
        assert_eq!(converted.backend.affinity, None, "{other}");
    }
}

#[test]
fn bad_cookies_lose_what_is_bad_and_say_so() {
    let with = |fields: &str| {
        let Converted { backend, notes, .. } = converted(&format!(
            r#""sessionAffinityConfig":{{"name":"cookie","cookieSessionAffinity":{{{fields}}}}}"#
        ));
        (backend.affinity.map(|affinity| affinity.cookie), notes.len())
    };
    let plain = Cookie { name: "route".into(), ..Cookie::default() };
    assert_eq!(with(""), (Some(plain.clone()), 0));
    assert_eq!(with(r#""name":"a;b""#), (None, 1));
    assert_eq!(with(r#""name":"route","expires":"abc5""#), (Some(plain.clone()), 1));
    assert_eq!(with(r#""domain":"a; Path=/""#), (Some(plain.clone()), 1));
    assert_eq!(with(r#""samesite":"lax","path":"""#), (Some(plain), 0));
}

#[test]
fn canary_rules_and_alternatives_are_taken_over() {
    let Converted { backend, notes, .. } = converted(
        r#""alternativeBackends":["b","c","b","a",""],"trafficShapingPolicy":{"weight":-1,
        "weightTotal":1000,"header":"h","headerValue":"v","headerPattern":"p","cookie":"c"}"#,
    );
    let ids: Vec<_> = backend.alternatives.iter().map(BackendId::as_str).collect();
    assert_eq!((ids, notes.len()), (vec!["b", "c"], 1));
    let split = Split {
        weight: 0,
        weight_total: 1_000,
        header: "h".into(),
        header_value: "v".into(),
        header_pattern: "p".into(),
        cookie: "c".into(),
    };
    assert_eq!(backend.split, Some(split.into()));
}

#[test]
fn null_and_absent_fields_are_normal() {
    let body = br#"[{"name":"a","endpoints":null,"sessionAffinityConfig":null,"alternativeBackends":null}]"#;
    assert_eq!(decode::<Vec<Element>>(body).unwrap().0[0].port, Port::Number(0));
}

#[test]
fn a_bad_port_is_named_by_its_pointer() {
    for port in ["0", "65536", "-1", "http", ""] {
        let body =
            format!(r#"[{{"name":"a","endpoints":[{{"address":"10.0.0.1","port":"{port}"}}]}}]"#);
        let error = decode::<Vec<Element>>(body.as_bytes()).unwrap_err();
        assert_eq!(error.pointer, "/0/endpoints/0/port", "{port}");
    }
}

#[test]
fn a_mistyped_address_is_no_host_name() {
    for address in ["10.0.0.256", "10.0.0", "1"] {
        assert!(AddressText::try_from(address.to_owned()).is_err(), "{address}");
    }
    assert!(AddressText::try_from("db-1.example".to_owned()).is_ok());
}

#[test]
fn a_unix_socket_is_not_an_address() {
    let body = br#"[{"name":"a","endpoints":[{"address":"unix:/run/x.sock","port":"80"}]}]"#;
    assert_eq!(decode::<Vec<Element>>(body).unwrap_err().pointer, "/0/endpoints/0/address");
}

#[test]
fn names_of_hosts_without_certificate_and_of_patterns_are_left_out() {
    let pem = "-----BEGIN CERTIFICATE-----\\nAA\\n-----END CERTIFICATE-----\\n\
               -----BEGIN PRIVATE KEY-----\\nBB\\n-----END PRIVATE KEY-----\\n";
    let body = format!(
        r#"{{"certificates":{{"u1":"{pem}"}},"servers":{{"a.test":"u1","b.test":"-1","~^c$":"u1"}}}}"#
    );
    let (servers, _) = decode::<Servers>(body.as_bytes()).unwrap();
    let (certificates, names, left_out) = servers.into_model();
    assert_eq!((certificates.len(), names.len(), left_out.len()), (1, 1, 1));
    assert!(certificates.values().all(|c| c.key.contains("BB") && !c.chain.contains("BB")));
}
