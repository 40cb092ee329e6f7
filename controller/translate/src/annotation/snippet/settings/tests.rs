use super::*;
use oxigress_objects::ConfigMap;
use std::collections::BTreeMap;

/// The settings, what all Ingresses have, and the notes.
fn said(data: &[(&str, &str)]) -> (Settings, Common, Vec<String>) {
    let data = data.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
    let (mut settings, mut notes) =
        oxigress_settings::parse(Some(&ConfigMap { data }), &BTreeMap::new());
    let common = read(&mut settings, "ingress", &mut notes);
    let notes = notes.into_iter().map(|note| format!("{note:?}")).collect();
    (settings, common, notes)
}

fn policies(json: &str) -> Policies {
    serde_json::from_str(json).unwrap()
}

/// A path's policies as JSON.
fn path(common: &Common, own: &str) -> String {
    let own = policies(own);
    serde_json::to_string(&common.of_path(&own, None).unwrap_or(own)).unwrap()
}

#[test]
fn what_is_said_of_all_locations_stands_behind_what_one_says() {
    let (settings, common, notes) = said(&[(
        "location-snippet",
        "more_set_headers 'A: all'; proxy_set_header X-B all; set $c d; proxy_set_header X-C $c;",
    )]);
    assert_eq!((settings.closing_key, notes), (None, vec![]));
    let found = path(
        &common,
        r#"{"request_headers":[{"name":"X-B","value":"own"}],"response_edits":[{"name":"Z","action":"set","value":"own"}]}"#,
    );
    let [(id, record)] = &common.records().collect::<Vec<_>>()[..] else { panic!() };
    let script = record.script.as_ref().unwrap();
    assert_eq!((script.owner.as_str(), script.steps.len()), ("ingress", 1));
    let expected = format!(
        r#"{{"script":{{"every_location":"{}"}},"request_headers":[{{"name":"X-B","value":"own"}},{{"name":"X-C","value":"$snippet_g_c"}}],"added_request_headers":[{{"name":"X-B","value":"all"}}],"response_edits":[{{"name":"Z","action":"set","value":"own"}},{{"name":"A","action":"set","value":"all"}}]}}"#,
        id.as_str()
    );
    let parsed = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
    assert_eq!(parsed(&found), parsed(&expected), "{found}");
}

#[test]
fn what_is_said_of_all_servers_is_inherited_and_their_variables_are_known_to_locations_of_the_same_author()
 {
    let (_, common, notes) = said(&[
        (
            "server-snippet",
            "set $where all; add_header X-A $where always; location /shut { return 403; }",
        ),
        ("location-snippet", "proxy_set_header X-Where $where;"),
    ]);
    assert_eq!(notes, Vec::<String>::new());
    let found = path(&common, "{}");
    for part in [r#""every_server":""#, r#""value":"$snippet_c_where""#, r#""name":"X-Where""#] {
        assert!(found.contains(part), "{part}: {found}");
    }
    let own = r#"{"response_edits":[{"name":"B","action":"add","value":"own"}]}"#;
    assert!(!path(&common, own).contains("X-A"), "an add_header drops those above it");
    assert_eq!(common.records().count(), 2);
}

#[test]
fn a_host_s_lists_come_before_those_of_all_servers() {
    let (_, common, _) =
        said(&[("server-snippet", "add_header X-A all always; allow 10.0.0.0/8; deny all;")]);
    let (_, host, _) = said(&[("server-snippet", "add_header X-A host always; deny 10.0.0.1;")]);
    let found = common.of_path(&Policies::default(), host.server.as_ref()).unwrap();
    let values: Vec<_> = found.response_edits.iter().map(|edit| edit.value.as_str()).collect();
    assert_eq!(values, ["host", "all"]);
    let access = found.access.unwrap();
    assert_eq!((access.deny.len(), access.allow.map(|all| all.len())), (1, Some(1)));
}

#[test]
fn no_list_of_all_locations_lets_in_whom_a_path_keeps_out() {
    for text in [
        ("location-snippet", "allow 10.0.0.0/8; deny all;"),
        ("server-snippet", "allow 10.0.0.0/8; deny all;"),
    ] {
        let (_, common, _) = said(&[text]);
        let own = r#"{"access":{"basic":{"realm":"r","users":""},"any":true}}"#;
        assert!(!path(&common, own).contains("allow"), "{text:?}");
        assert!(path(&common, "{}").contains(r#""allow":["10.0.0.0/8"]"#), "{text:?}");
        let own = r#"{"access":{"allow":["192.168.0.0/16"]}}"#;
        assert!(!path(&common, own).contains("10.0.0.0"), "{text:?}");
    }
}

#[test]
fn what_protects_and_cannot_be_honoured_closes_all() {
    for (key, text, closes) in [
        ("location-snippet", "auth_basic x;", true),
        ("location-snippet", "sub_filter a b;", false),
        ("location-snippet", "deny 10.0.0.1", true),
        ("location-snippet", "satisfy any;", true),
        ("location-snippet", "if (-f /x) { return 403; }", true),
        ("location-snippet", "rewrite ^/a /b;", false),
        ("server-snippet", "limit_req zone=a;", true),
        ("server-snippet", "ssl_protocols TLSv1.3;", true),
        ("server-snippet", "proxy_set_header A b;", false),
        ("server-snippet", "location /a { proxy_pass http://b; }", false),
        ("global-auth-snippet", "proxy_set_header A b;", false),
    ] {
        let (settings, _, notes) = said(&[(key, text)]);
        assert_eq!(notes.len(), 1, "{text}");
        assert!(notes[0].contains(&format!("data.{key}")), "{notes:?}");
        let expected = (closes.then_some(key), closes.then_some(503));
        let found = (settings.closing_key.as_deref(), settings.defaults.policies.denied);
        assert_eq!(found, expected, "{text}");
    }
    let url = ("global-auth-url", "http://auth.test/");
    for (text, closes) in
        [("proxy_set_header A $uri;", true), ("return 200;", false), ("x y;", true)]
    {
        let (settings, ..) = said(&[url, ("global-auth-snippet", text)]);
        assert_eq!(settings.closing_key.is_some(), closes, "{text}");
    }
}

#[test]
fn headers_of_what_is_left_out_are_not_the_client_s() {
    let (_, common, _) = said(&[("location-snippet", "if ($host) { proxy_set_header X-User a; }")]);
    assert!(path(&common, "{}").contains(r#"{"name":"X-User","value":""}"#));
}
