use super::*;
use oxigress_core::model::policy::defined::Definition;
use oxigress_objects::ConfigMap;
use std::collections::{BTreeMap, BTreeSet};

/// The settings, what all Ingresses have, and the notes.
fn said(data: &[(&str, &str)]) -> (Settings, Common, Vec<String>) {
    let data = data.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
    let (mut settings, mut notes) =
        oxigress_settings::parse(Some(&ConfigMap { data }), &BTreeMap::new());
    let common = read(&mut settings, &mut notes);
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
    assert_eq!((script.owner.as_str(), script.steps.len()), ("", 1));
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
        [("proxy_set_header A $request_filename;", true), ("return 200;", false), ("x y;", true)]
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

#[test]
fn servers_inherit_what_http_says_and_the_rest_of_it_is_named() {
    let (settings, common, notes) = said(&[(
        "http-snippet",
        "add_header X-A http always;\nmap $host $tenant {\n  include a;\n  deny all;\n}\nproxy_read_timeout 5s;\nlog_format a b;",
    )]);
    assert_eq!(settings.closing_key, None);
    let notes = notes.join("\n");
    for part in [
        "data.http-snippet: line 2: map is ignored: no files are read: write out what it has",
        "data.http-snippet: line 6: proxy_read_timeout has no effect: use the key proxy-read-timeout",
        "data.http-snippet: line 7: log_format is ignored: use the key log-format-upstream",
    ] {
        assert!(notes.contains(part), "{part}: {notes}");
    }
    assert!(path(&common, "{}").contains(r#""value":"http""#));
    let (_, host, _) = said(&[("server-snippet", "add_header X-A host always;")]);
    let found = common.of_path(&Policies::default(), host.server.as_ref()).unwrap();
    let values: Vec<_> = found.response_edits.iter().map(|edit| edit.value.as_str()).collect();
    assert_eq!(values, ["host"], "a server's replace those of http");
}

#[test]
fn what_http_says_and_may_protect_closes_all() {
    for (text, closes) in [
        ("auth_basic a;", true),
        ("ssl_protocols TLSv1.3;", true),
        ("limit_req zone=a;", true),
        ("set_real_ip_from 10.0.0.0/8;", true),
        ("deny 10.0.0.1", true),
        ("limit_req_zone $host zone=a:1m rate=1r/s;", false),
        ("server { listen 81; deny all; }", false),
        ("deny 10.0.0.1;", false),
        ("sub_filter a b;", false),
    ] {
        let (settings, ..) = said(&[("http-snippet", text)]);
        assert_eq!(settings.closing_key.is_some(), closes, "{text}");
    }
}

#[test]
fn what_is_said_of_nginx_and_of_streams_is_named_and_closes_nothing() {
    for key in ["main-snippet", "stream-snippet"] {
        let text = "worker_rlimit_nofile 9;\nserver {\n  deny all;\n}\n";
        let (settings, common, notes) = said(&[(key, text)]);
        assert!(settings.closing_key.is_none() && common.is_silent());
        assert_eq!(notes.len(), 2, "{notes:?}");
        assert!(notes[0].contains(&format!("data.{key}: line 1")), "{notes:?}");
        assert!(notes[0].contains("use the key max-worker-open-files"), "{notes:?}");
        let (_, _, notes) = said(&[(key, &"a;".repeat(60))]);
        assert_eq!(notes.len(), 51);
        let (settings, _, notes) = said(&[(key, "a")]);
        assert!(settings.closing_key.is_none() && notes.len() == 1, "{notes:?}");
    }
}

#[test]
fn what_steps_of_a_path_could_pass_by_is_no_limit_of_all_locations() {
    let text = "limit_except GET { deny all; }";
    for key in ["location-snippet", "server-snippet"] {
        let (settings, ..) = said(&[(key, text)]);
        assert!(settings.closing_key.is_some(), "{key}");
    }
    let (_, common, notes) = said(&[("location-snippet", "grpc_set_header A b;")]);
    assert_eq!(notes, Vec::<String>::new());
    assert_eq!(path(&common, "{}"), "{}");
    assert!(path(&common, r#"{"proxy":{"protocol":"grpc"}}"#).contains("request_headers"));
}

#[test]
fn what_http_defines_is_known_to_texts_and_what_it_cannot_is_named() {
    let (settings, common, notes) = said(&[
        (
            "http-snippet",
            "map $arg_a $One { default 0; ~*^b(.) $1; }\ngeo $near { 10.0.0.0/8 1; }\nadd_header A $one;\n             split_clients $near$two $three { 50% a; * b; }\nmap $host $two { include x; }\n             map $arg_a $four { a $1; }\nmap $five $five { a b; }\ngeo $six { proxy 10.0.0.0/8; }\n             split_clients a $seven { 60% a; 50% b; }\nmap $host $host { a b; }\n             map $http_upgrade $connection_upgrade { default upgrade; }\nmap a $eight { a b; A c; }",
        ),
        ("location-snippet", "if ($near) { set $x $one; }"),
    ]);
    assert_eq!(settings.closing_key, None);
    assert_eq!(settings.defaults.variables, BTreeSet::from(["near".into(), "one".into()]));
    let notes = notes.join("\n");
    for part in [
        "line 4: split_clients is ignored: variable $two cannot be used here",
        "line 5: map is ignored: no files are read",
        "line 6: map is ignored: captures are known to the values of patterns only",
        "line 7: map is ignored: it is worked out of itself",
        "line 8: geo is ignored: whom the gateway believes",
        "line 9: split_clients is ignored: its parts are more than 100%",
        "line 10: map is ignored: variable $host is nginx's own",
        "line 11: map has no effect: the gateway works this variable out itself",
        "line 12: map is ignored: it has two lines for a",
    ] {
        assert!(notes.contains(part), "{part}: {notes}");
    }
    assert!(path(&common, "{}").contains(r#""value":"$snippet_h_one""#));
    let records: BTreeMap<_, _> = common.records().collect();
    let found = common.definitions.as_ref().and_then(|all| all.definitions.as_ref()).unwrap();
    let expected = r#"{"snippet_h_near":{"geo":{"source":"$remote_addr","ranges":[["10.0.0.0","10.255.255.255",0]],"values":["1"]}},"snippet_h_one":{"map":{"source":"$arg_a","default":"0","patterns":[["(?i)^b(.)","$1"]]}}}"#;
    assert_eq!(serde_json::to_string(&found.variables).unwrap(), expected);
    let steps = records.values().find_map(|policies| policies.script.as_ref()).unwrap();
    let steps = serde_json::to_string(&steps.steps).unwrap();
    assert!(steps.contains(r#""value":"$snippet_h_near""#), "{steps}");
}

#[test]
fn what_cannot_be_defined_defines_nothing_and_what_is_slow_is_named() {
    let map = |name: &str, lines: &str| format!("map $arg_a ${name} {{ {lines} }}\n");
    let (settings, common, notes) = said(&[(
        "http-snippet",
        &[
            map("http_allowed", "default 0; b 1;"),
            map("twice", "default 0;"),
            map("Twice", "include x;"),
            "geo $deny { ranges; default 0; 0.0.0.0-9.255.255.255 1; 255.0.0.0-255.255.255.255 2; }\n".into(),
            map("dear", &(0..40).map(|n| format!("~*(bot{n}|crawl{n}|spider{n}) 1;")).collect::<String>()),
        ]
        .concat(),
    )]);
    let names: Vec<_> = settings.defaults.variables.iter().map(String::as_str).collect();
    assert_eq!(names, ["dear", "deny", "http_allowed"]);
    let notes = notes.join("\n");
    for part in [
        "line 3: map is ignored: no files are read",
        "line 2: map is ignored: another one of this name is left out",
        "the patterns of $dear together take longer than a request may for values of more than ",
    ] {
        assert!(notes.contains(part), "{part}: {notes}");
    }
    let found = common.definitions.as_ref().and_then(|all| all.definitions.as_ref()).unwrap();
    let Definition::Geo(deny) = &found.variables["snippet_h_deny"] else { panic!("{found:?}") };
    // nginx takes an address that is no IPv4 one for 255.255.255.255.
    for (address, expected) in [("1.1.1.1", "1"), ("10.0.0.1", "0"), ("2001:db8::1", "2")] {
        let value = deny.value(address.parse().unwrap()).map(|value| value.as_str());
        assert_eq!(value, Some(expected), "{address}");
    }
    // Many lines are worked out as one of them is.
    let redirects: String =
        (0..400).map(|n| format!("/old{n} https://$host/new{n}$is_args$args;")).collect();
    let (settings, _, notes) = said(&[("http-snippet", &map("to", &redirects))]);
    assert_eq!((settings.defaults.variables.len(), notes), (1, vec![]));
}
