//! Bodies that are long, and many of one namespace.

use super::*;

/// A review as the API server writes it, of so many bytes; `oldObject` fills it up.
fn written(namespace: &str, operation: &str, bytes: usize) -> Vec<u8> {
    let object = review(|_| {})["request"]["object"].to_string();
    let text = format!(
        r#"{{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{{"uid":"of-{operation}","kind":{{"group":"networking.k8s.io","version":"v1","kind":"Ingress"}},"name":"cart","namespace":"{namespace}","operation":"{operation}","object":{object},"oldObject":"#
    );
    let filled = bytes - text.len() - 4;
    (text + "\"" + &"<".repeat(filled) + "\"}}").into_bytes()
}

#[tokio::test]
async fn a_body_over_the_limit_is_denied_by_its_review() {
    let running = start().await;
    let (mut client, _) = connect(running.address).await;
    let mut long = vec![b' '; MAX_BYTES - 2_000];
    long.extend(review(|_| {}).to_string().into_bytes());
    assert!(long.len() <= MAX_BYTES);
    assert_eq!(post(&mut client, &long).await.0, StatusCode::OK);
    // Whose it is is not known, which is no review of an API server's.
    long.resize(MAX_BYTES + 1, b' ');
    assert_eq!(post(&mut client, &long).await.0, StatusCode::PAYLOAD_TOO_LARGE);
    // After a status of an error the API server would store the object if its webhook's failurePolicy is Ignore.
    let (mut client, _) = connect(running.address).await;
    for (operation, bytes, is_allowed) in [
        ("CREATE", MAX_BYTES, true),
        ("CREATE", MAX_BYTES + 1, false),
        ("UPDATE", 5 * MAX_BYTES, false),
        ("DELETE", MAX_BYTES + 1, true),
    ] {
        let (status, body) = post(&mut client, &written("default", operation, bytes)).await;
        assert_eq!(status, StatusCode::OK, "{operation}, {bytes}");
        let response = checked(&body, &format!("of-{operation}"));
        assert_eq!(response["allowed"], is_allowed, "{operation}, {bytes}: {response}");
        let message = response["status"]["message"].as_str().unwrap_or_default();
        assert_eq!(message.contains("make the object smaller"), !is_allowed, "{message}");
    }
}

#[tokio::test]
async fn a_namespace_that_sends_many_at_once_is_denied_and_others_are_not() {
    let running = start().await;
    let client = IpAddr::from([127, 0, 0, 1]);
    let under_way: Vec<_> =
        (0..lines::MAX_IN_LINE).map(|_| running.lines.join(client, "evil").unwrap()).collect();
    let (mut client, _) = connect(running.address).await;
    let (_, body) = post(&mut client, &written("evil", "CREATE", 1 << 20)).await;
    let denied = checked(&body, "of-CREATE");
    let message = denied["status"]["message"].as_str().unwrap_or_default();
    assert!(message.starts_with("namespace evil has 64 objects reviewed at once"), "{denied}");
    let (mut other, _) = connect(running.address).await;
    let (status, body) = post(&mut other, &written("default", "CREATE", 10_000)).await;
    assert_eq!((status, &checked(&body, "of-CREATE")["allowed"]), (StatusCode::OK, &json!(true)));
    drop(under_way);
    let (_, body) = post(&mut client, &written("evil", "CREATE", 10_000)).await;
    assert_eq!(checked(&body, "of-CREATE")["allowed"], true);
}
