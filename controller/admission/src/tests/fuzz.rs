//! Reviews that nobody would send: each gets an answer of the right shape.

use super::*;
use oxigress_fuzz::Random;

/// Reviews of Ingresses with any annotation, with odd values, and broken ones.
fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = vec![review(|_| {}).to_string().into_bytes()];
    let odd: [Value; 9] = [
        Value::Null,
        json!([]),
        json!({}),
        json!(-1),
        json!(1e300),
        json!("x".repeat(20_000)),
        json!("\u{0}\r\n\u{1f600}"),
        json!(vec!["x"; 300]),
        serde_json::from_str(&format!("{}{}", "[".repeat(100), "]".repeat(100))).unwrap(),
    ];
    for pointer in [
        "/request/uid",
        "/request/object",
        "/request/namespace",
        "/request/object/metadata",
        "/request/object/metadata/name",
        "/request/object/metadata/uid",
        "/request/object/metadata/annotations",
        "/request/object/metadata/managedFields",
        "/request/object/spec",
        "/request/object/spec/tls",
        "/request/object/spec/rules",
        "/request/object/spec/rules/0/host",
        "/request/object/spec/rules/0/http/paths/0",
        "/request/object/spec/rules/0/http/paths/0/path",
    ] {
        let with = |value: &Value| {
            review(|review| *review.pointer_mut(pointer).unwrap() = value.clone()).to_string()
        };
        seeds.extend(odd.iter().map(|value| with(value).into_bytes()));
    }
    let rows = oxigress_translate::annotation::table::ROWS.iter();
    let values = ["true", "x", "n/a", "http://x/", "10.0.0.0/8", "deny all;", ""];
    seeds.extend(rows.zip(values.iter().cycle()).map(|(row, value)| {
        let all = json!({ format!("nginx.ingress.kubernetes.io/{}", row.name): value });
        let with =
            |review: &mut Value| review["request"]["object"]["metadata"]["annotations"] = all;
        review(with).to_string().into_bytes()
    }));
    seeds
}

#[tokio::test]
async fn a_thousand_odd_reviews_get_an_answer_of_the_right_shape() {
    let running = start().await;
    let (mut client, _) = connect(running.address).await;
    let (seeds, mut random) = (seeds(), Random::new(1));
    let mut by_status = std::collections::BTreeMap::new();
    for number in 0..1_000 {
        let body = match seeds.get(number) {
            Some(seed) => seed.clone(),
            None => oxigress_fuzz::mutation(&mut random, &seeds),
        };
        let (status, answer) = post(&mut client, &body).await;
        *by_status.entry(status.as_u16()).or_insert(0) += 1;
        let shown = String::from_utf8_lossy(&body[..body.len().min(400)]).into_owned();
        match status.as_u16() {
            200 => {
                // Half a surrogate pair in a text that the webhook skipped is none for this parser.
                let asked: Value = serde_json::from_slice(&body).unwrap_or_default();
                let answered: Value = serde_json::from_slice(&answer).expect(&shown);
                let uid = asked["request"]["uid"].as_str().or(answered["response"]["uid"].as_str());
                checked(&answer, uid.expect(&shown));
            }
            400 | 500 => assert!(!answer.is_empty() && answer.len() < 2_000, "{shown}"),
            other => panic!("{other}: {shown}"),
        }
    }
    // The inputs reach what they are for.
    assert!(by_status.get(&200) > Some(&100) && by_status.get(&400) > Some(&100), "{by_status:?}");
    assert_eq!(reviewed(&mut client, &review(|_| {})).await["allowed"], true);
    println!("1,000 reviews: {by_status:?}");
}

#[test]
fn fuzz_reviews() {
    oxigress_fuzz::check("reviews", &seeds(), |body| {
        let Ok(read) = review::read(body) else { return };
        let uid = read.uid;
        let denial = read.object.as_ref().err().cloned();
        let warnings = denial.iter().cloned().collect();
        let answer = review::write(&uid, &ReviewOutcome { denial, warnings, compared: 0 });
        checked(&answer, &uid);
        let Ok(Some(object)) = read.object else { return };
        assert!(!object.key.name.contains('/') && !object.key.namespace.contains('/'));
    });
}
