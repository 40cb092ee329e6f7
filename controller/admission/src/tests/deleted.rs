//! Objects that are being deleted.

use super::*;
use oxigress_objects::gateway::MAX_SETS;

/// The API server takes changes of an object that is being deleted for as long as a finalizer holds it.
#[tokio::test]
async fn an_object_that_is_being_deleted_is_reviewed_unless_only_its_finalizers_change() {
    let running = start().await;
    let (mut client, _) = connect(running.address).await;
    let going = |host: &str| {
        review(|review| {
            let object = &mut review["request"]["object"];
            let meta = &mut object["metadata"];
            (meta["name"], meta["annotations"]) = (json!("going"), Value::Null);
            (meta["deletionTimestamp"], meta["uid"]) = (json!("2026-01-01T00:00:00Z"), json!("x"));
            object["spec"] = json!({"ingressClassName": "nginx", "rules": [{"host": host}]});
        })
    };
    assert_eq!(
        reviewed(&mut client, &going("going.test")).await["allowed"],
        true,
        "as it is stored"
    );
    let response = reviewed(&mut client, &going("other.test")).await;
    let message = response["status"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("metadata.uid"), "{response}");
}

#[test]
fn what_a_namespace_has_too_many_of_is_stored_too() {
    let mut world = World::default();
    let id = |n: usize| ObjectRef::new(Kind::ListenerSet, Key::new("a", format!("s{n:04}")));
    for n in 0..=MAX_SETS {
        let set = oxigress_objects::Object::ListenerSet(Arc::default());
        world.apply((id(n), Some(set)), &mut Changed::default());
    }
    let last = id(MAX_SETS);
    assert!(world.gateway_api.is_beyond(&last));
    assert!(Subject::ListenerSet(Arc::default()).is_stored(&last.key, &world));
}
