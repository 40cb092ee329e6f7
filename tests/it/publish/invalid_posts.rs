//! Posts that are invalid by construction: each gets a 400 with a JSON pointer, and nothing changes.

use anyhow::{Context, Result, ensure};
use oxigress_tests::certificate::Certificate;
use oxigress_tests::client::{Connection, Request};
use oxigress_tests::endpoint::Endpoint;
use oxigress_tests::load::{Load, Plan as LoadPlan};
use oxigress_tests::nginx::Configuration;
use oxigress_tests::pass;
use oxigress_tests::place::Directory;
use oxigress_tests::site::{Plan, Site};
use oxigress_tests::wait::block_on;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;

/// A body, why it is invalid, and the pointer of what was changed, if one value was.
struct Case {
    method: &'static str,
    path: &'static str,
    body: Vec<u8>,
    why: String,
    pointer: Option<String>,
}

#[test]
fn every_invalid_post_gets_a_pointer_and_changes_nothing() {
    pass("invalid-posts", post_all);
}

fn post_all(directory: &Directory) -> Result<()> {
    let mut plan = Plan::router(2)?;
    plan.http_config = "keepalive_requests 100000000;".into();
    let mut site = Site::start(&plan, directory)?;
    let endpoint = Endpoint::start("shop")?;
    let certificate = Certificate::new("shop.test", &["shop.test"])?;
    let documents = documents(&endpoint, &certificate);
    let served = json!({"version": 1, "snapshot": {
        "servers": {"shop.test": {"rules": [{"path": {"prefix": "/"}, "backend": "shop"}]}},
        "backends": {"shop": {}}, "endpoints": {"shop": [endpoint.native()]}}});
    let applied = block_on(site.configuration.put(served.to_string()))?;
    ensure!(applied.status == 200, "{applied}");

    let cases: Vec<Case> = documents.iter().flat_map(cases).collect();
    ensure!(cases.len() >= 1_000, "only {} cases", cases.len());
    let mut by_dialect = BTreeMap::new();
    for case in &cases {
        *by_dialect.entry((case.method, case.path)).or_insert(0) += 1;
    }
    println!("invalid posts: {by_dialect:?}");

    let load = Load::start(LoadPlan::new(site.http(), vec![Request::get("shop.test", "/")], 4))?;
    let mut tag = block_on(site.configuration.tag())?;
    let mut connection = block_on(Connection::open(&site.configuration.address))?;
    let mut failures = Vec::new();
    for (number, case) in cases.iter().enumerate() {
        if connection.is_closed() {
            connection = block_on(Connection::open(&site.configuration.address))?;
        }
        let told = || format!("{} {}, {}", case.method, case.path, case.why);
        if let Err(error) = check(&mut connection, case, &tag) {
            failures.push(format!("{}: {error:#}", told()));
            // The next cases are about what was served at first.
            block_on(site.configuration.put(served.to_string()))?;
            tag = block_on(site.configuration.tag())?;
        }
        if number % 20 == 0 || number + 1 == cases.len() {
            let now = block_on(site.configuration.tag())?;
            ensure!(now == tag, "{} or one of the 20 before it: {tag} is now {now}", told());
        }
    }
    println!("{} of {} were not refused as they should be", failures.len(), cases.len());
    ensure!(failures.is_empty(), "{}", failures.iter().take(40).cloned().collect::<String>());
    load.wait_for(20)?;
    let report = load.stop();
    ensure!(report.failures.is_empty(), "traffic: {:?}", report.failures);
    ensure!(report.endpoints.keys().eq(["shop"]), "traffic: {:?}", report.endpoints);

    are_valid(&site, &documents)?;
    site.nginx.stop()?;
    site.nginx.check_error_log()
}

/// The documents are valid before they are changed, or the cases would prove nothing.
fn are_valid(site: &Site, documents: &[Document]) -> Result<()> {
    for Document { method, path, value } in documents {
        let mut request = Configuration::request(method, path, value.to_string());
        if *method == "PATCH" {
            let tag = block_on(site.configuration.tag())?;
            request = request.header("If-Match", &format!("\"{tag}\""));
        }
        let response = block_on(site.configuration.send(&request))?;
        ensure!(response.status < 300, "{method} {path}: {response}\n{value}");
    }
    Ok(())
}

fn check(connection: &mut Connection, case: &Case, tag: &str) -> Result<()> {
    let mut request = Configuration::request(case.method, case.path, case.body.clone());
    if case.method == "PATCH" {
        request = request.header("If-Match", &format!("\"{tag}\""));
    }
    let response = block_on(connection.send(&request))?;
    ensure!(response.status == 400, "{response}");
    let problem: Value = response.json()?;
    let pointer = problem["pointer"].as_str().with_context(|| format!("no pointer: {response}"))?;
    ensure!(pointer.is_empty() || pointer.starts_with('/'), "no JSON pointer: {response}");
    ensure!(problem["error"].as_str().is_some_and(|e| !e.is_empty()), "no message: {response}");
    if let Some(changed) = &case.pointer {
        ensure!(
            changed.starts_with(pointer) || pointer.starts_with(changed.as_str()),
            "it was {changed} that changed: {response}"
        );
    }
    Ok(())
}

struct Document {
    method: &'static str,
    path: &'static str,
    value: Value,
}

/// A valid document of each kind, with every field that has a type.
fn documents(endpoint: &Endpoint, certificate: &Certificate) -> Vec<Document> {
    let pair = json!({"chain": certificate.chain, "key": certificate.key});
    let rules = json!([
        {"path": {"prefix": "/"}, "backend": "default/shop/80", "policy": {"https_redirect": "never"},
         "origin": {"namespace": "default", "ingress": "shop", "service": "shop", "port": "80", "path": "/"}},
        {"path": {"exact": "/cart~1"}, "backend": "default/shop/80"}]);
    let tables = json!({
        "settings": {"default_backend": "default/shop/80", "http_redirect_code": 308},
        "servers": {"shop.test": {"rules": rules}, "*.shop.test": {"rules": []}},
        "backends": {"default/shop/80": {"algorithm": "round_robin"}},
        "endpoints": {"default/shop/80": [endpoint.native(), {"address": "::1", "port": 8080}]},
        "certificates": {"default/tls": pair},
        "names": {"shop.test": "default/tls"}});
    let element = json!({
        "name": "default-shop-80", "port": 80, "sslPassthrough": false,
        "endpoints": [endpoint.compatible(), {"address": "2001:db8::1", "port": "8080"}],
        "sessionAffinityConfig": {"name": "cookie", "mode": "balanced", "cookieSessionAffinity":
            {"name": "C", "expires": "1", "maxage": "1", "locations": {"shop.test": ["/"]}, "secure": true,
             "path": "/", "domain": "shop.test", "samesite": "Lax", "conditional_samesite_none": true,
             "change_on_failure": true}},
        "upstreamHashByConfig": {"upstream-hash-by": "$uri", "upstream-hash-by-subset": true,
            "upstream-hash-by-subset-size": 3},
        "load-balance": "ewma", "noServer": false,
        "trafficShapingPolicy": {"weight": 1, "weightTotal": 100, "header": "a", "headerValue": "b",
            "headerPattern": "c", "cookie": "d"},
        "alternativeBackends": ["default-canary-80"]});
    vec![
        Document {
            method: "PUT",
            path: "/configuration",
            value: json!({"version": 1, "snapshot": tables}),
        },
        Document {
            method: "PATCH",
            path: "/configuration",
            value: json!({"version": 1, "upsert": tables, "remove": {
                "servers": ["old.test"], "backends": ["old"], "endpoints": ["old"],
                "certificates": ["old"], "names": ["old.test"]}}),
        },
        Document { method: "POST", path: "/configuration/backends", value: json!([element]) },
        Document {
            method: "POST",
            path: "/configuration/servers",
            value: json!({
                "certificates": {"u1": format!("{}{}", certificate.chain, certificate.key)},
                "servers": {"shop.test": "u1", "plain.test": "-1"}}),
        },
    ]
}

fn cases(document: &Document) -> Vec<Case> {
    let mut cases = Vec::new();
    let mut add = |why: String, pointer: Option<String>, body: Vec<u8>| {
        cases.push(Case { method: document.method, path: document.path, body, why, pointer });
    };
    let text = document.value.to_string();
    for at in spread(1, text.len(), 150) {
        add(format!("cut after {at} bytes"), None, text.as_bytes()[..at].to_vec());
    }
    for at in spread(0, text.len(), 60) {
        let mut body = text.clone().into_bytes();
        body.insert(at, 0xff);
        add(format!("0xff at {at}"), None, body);
    }
    for more in ["x", "{}", "]", ",", "\u{0}", "1"] {
        add(format!("{more:?} after the end"), None, (text.clone() + more).into_bytes());
    }

    let mut nodes = Vec::new();
    walk("", &document.value, &mut nodes);
    for (pointer, value) in &nodes {
        for wrong in wrong_types(value) {
            // The one field that may be a number or a text.
            if wrong.is_string() && pointer == "/0/port" {
                continue;
            }
            let mut changed = document.value.clone();
            *changed.pointer_mut(pointer).expect("a node of the document") = wrong.clone();
            let why = format!("{wrong} at {pointer}");
            add(why, Some(pointer.clone()), changed.to_string().into_bytes());
        }
        if let Some(members) = value.as_object() {
            for key in members.keys() {
                let member = format!("{pointer}/{}", escape(key));
                let body = with_duplicate(&document.value, pointer, key);
                add(format!("{member} twice"), Some(member), body.into_bytes());
            }
            let mut changed = document.value.clone();
            let deep = (0..65).fold(json!(1), |inner, _| json!([inner]));
            changed.pointer_mut(pointer).expect("a node")["future"] = deep;
            // A free-form map takes "future" for one of its own keys.
            add(format!("too deep below {pointer}"), None, changed.to_string().into_bytes());
        }
    }
    for (pointer, wrong) in out_of_range(&nodes) {
        let mut changed = document.value.clone();
        *changed.pointer_mut(&pointer).expect("a node of the document") = wrong.clone();
        add(format!("{wrong} at {pointer}"), Some(pointer), changed.to_string().into_bytes());
    }
    cases
}

/// About `count` numbers from `from` to `to`, evenly.
fn spread(from: usize, to: usize, count: usize) -> impl Iterator<Item = usize> {
    (from..to).step_by(((to - from) / count).max(1))
}

fn walk(pointer: &str, value: &Value, nodes: &mut Vec<(String, Value)>) {
    nodes.push((pointer.to_owned(), value.clone()));
    match value {
        Value::Object(members) => {
            for (key, value) in members {
                walk(&format!("{pointer}/{}", escape(key)), value, nodes);
            }
        }
        Value::Array(items) => {
            for (index, value) in items.iter().enumerate() {
                walk(&format!("{pointer}/{index}"), value, nodes);
            }
        }
        _ => {}
    }
}

fn escape(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

/// Values of every other type; `null` is left out, since it means "absent" where a value may be absent.
fn wrong_types(value: &Value) -> Vec<Value> {
    let all = [json!(true), json!(-1.5), json!("\u{1}"), json!([]), json!({}), json!([[]])];
    let is_other = |wrong: &&Value| match (value, wrong) {
        // A number as text, and a text that is a number, are other types; within a type see out_of_range.
        (Value::Number(_), Value::Number(_)) => false,
        (Value::String(_), Value::String(_)) => false,
        _ => std::mem::discriminant(value) != std::mem::discriminant(*wrong),
    };
    all.iter().filter(is_other).cloned().collect()
}

/// Values of the right type that the field cannot have.
fn out_of_range(nodes: &[(String, Value)]) -> Vec<(String, Value)> {
    let mut wrong = Vec::new();
    for (pointer, value) in nodes {
        let values: Vec<Value> = match pointer.rsplit('/').next().unwrap_or_default() {
            "port" if pointer.contains("endpoints") && value.is_number() => {
                vec![json!(0), json!(-1), json!(65_536), json!(1.5), json!(1e300)]
            }
            "port" if pointer.contains("endpoints") => {
                ["0", "-1", "65536", "", "http", "80 "].map(Value::from).into()
            }
            "address" => ["", "10.0.0", "10.0.0.256", "unix:/x", "a b", "::g", "1.2.3.4:5"]
                .map(Value::from)
                .into(),
            "http_redirect_code" => vec![json!(200), json!(-1), json!(70_000), json!(303)],
            "algorithm" | "https_redirect" => ["", "Always", "none"].map(Value::from).into(),
            "prefix" | "exact" => {
                vec![
                    json!(""),
                    json!("cart"),
                    json!("/\n"),
                    json!("/".to_owned() + &"a".repeat(4_096)),
                ]
            }
            "backend" | "default_backend" | "name"
                if value.is_string() && !pointer.contains("Config") =>
            {
                vec![json!(""), json!("a\u{0}"), json!("a".repeat(513))]
            }
            _ => Vec::new(),
        };
        wrong.extend(values.into_iter().map(|value| (pointer.clone(), value)));
    }
    wrong
}

/// The document as text, with one member of one object written twice.
fn with_duplicate(value: &Value, object: &str, key: &str) -> String {
    fn write(value: &Value, at: &str, object: &str, twice: &str, text: &mut String) {
        match value {
            Value::Object(members) => {
                text.push('{');
                for (index, (key, value)) in members.iter().enumerate() {
                    let times = if at == object && key == twice { 2 } else { 1 };
                    for time in 0..times {
                        if index + time > 0 {
                            text.push(',');
                        }
                        let _ = write!(text, "{}:", Value::from(key.as_str()));
                        write(value, &format!("{at}/{}", escape(key)), object, twice, text);
                    }
                }
                text.push('}');
            }
            Value::Array(items) => {
                text.push('[');
                for (index, value) in items.iter().enumerate() {
                    if index > 0 {
                        text.push(',');
                    }
                    write(value, &format!("{at}/{index}"), object, twice, text);
                }
                text.push(']');
            }
            other => {
                let _ = write!(text, "{other}");
            }
        }
    }
    let mut text = String::new();
    write(value, "", object, key, &mut text);
    text
}

#[test]
fn a_duplicated_member_is_written_twice() {
    let value = json!({"a": {"b": 1, "c": [2]}});
    assert_eq!(with_duplicate(&value, "/a", "c"), r#"{"a":{"b":1,"c":[2],"c":[2]}}"#);
    assert_eq!(with_duplicate(&value, "", "a").matches("\"a\"").count(), 2);
}
