//! What one namespace wants of the API server keeps no other one waiting.

use super::*;

/// An Ingress of a namespace that names these Secrets.
fn ingress_of(namespace: &str, secrets: impl IntoIterator<Item = String>) -> String {
    let tls = secrets.into_iter().map(|secret| format!("{{secretName: {secret}}}, "));
    ingress("i", "")
        .replace("metadata: {name: i}", &format!("metadata: {{name: i, namespace: {namespace}}}"))
        .replace("tls: [", &format!("tls: [{}", tls.collect::<String>()))
}

fn numbered(numbers: std::ops::Range<usize>) -> impl Iterator<Item = String> {
    numbers.map(|n| format!("s{n}"))
}

fn namespaces(f: &Fixture) -> Vec<&str> {
    f.world.ingresses.keys().map(|key| key.namespace.as_str()).collect()
}

#[tokio::test(start_paused = true)]
async fn what_is_never_answered_holds_up_its_own_namespace_alone() {
    let mut f = Fixture::new(&[CLASS]).await;
    f.fake.hold_gets_of("evil");
    f.fake.apply(&ingress_of("evil", numbered(0..300)));
    f.stays(Duration::from_secs(1)).await;
    assert_eq!(f.fake.asked("/namespaces/evil/secrets/"), 4);
    f.fake.apply(&ingress_of("b", ["new".to_owned()]));
    f.until(|f| namespaces(f) == ["b"]).await;
    assert_eq!(f.fake.asked("/namespaces/b/secrets/new"), 1);
    // What it does not name any more is not asked for either.
    f.fake.apply(&ingress_of("evil", numbered(300..302)));
    f.stays(Duration::from_secs(1)).await;
    assert_eq!(f.fake.asked("/namespaces/evil/secrets/"), 6);
    // And what another one does not need any more goes when nothing of it can be served.
    f.fake.delete("ingresses", "evil/i");
    f.fake.delete("ingresses", "b/i");
    f.until(|f| namespaces(f).is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn a_replica_gets_ready_while_somebody_edits_without_end() {
    let fake = Fake::default();
    let old = secret("old", "1").replace("name: old", "name: old, namespace: evil");
    let all = [CLASS.to_owned(), ingress_of("evil", ["old".to_owned()]), old];
    fake.apply(&all.join("\n---\n"));
    // The first lists of these come late.
    fake.refuse("secrets", true);
    fake.refuse("configmaps", true);
    let mut f = Fixture::on(fake, TranslateOptions::default());
    f.stays(Duration::from_secs(1)).await;
    f.fake.hold_gets_of("evil");
    f.fake.apply(&ingress_of("evil", ["new".to_owned()]));
    f.stays(Duration::from_secs(1)).await;
    assert_eq!(f.fake.asked("/namespaces/evil/secrets/new"), 1);
    f.fake.refuse("secrets", false);
    f.fake.refuse("configmaps", false);
    f.until(|f| namespaces(f) == ["evil"]).await;
    // As it was, with what it was served from.
    assert_eq!(f.world.ingresses[&Key::new("evil", "i")].tls[0].secret, "old");
    assert_eq!(f.secrets(), ["old"]);
}

#[tokio::test(start_paused = true)]
async fn a_name_that_no_object_can_have_is_not_asked_for() {
    let mut f = Fixture::new(&[CLASS]).await;
    f.fake.hold_gets_of("evil");
    let odd = ["'a/b'", "'a?b'", "'..'", "A", "a_b", "-a"].map(str::to_owned);
    f.fake.apply(&ingress_of("evil", odd));
    f.until(|f| namespaces(f) == ["evil"]).await;
    assert_eq!(f.fake.asked("/namespaces/evil/secrets/"), 0);
}
