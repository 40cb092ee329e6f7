//! The source on a fake API server; time is tokio's own, so nothing waits.

mod shares;

use super::fake::Fake;
use super::*;
use crate::folder::Folder;
use oxigress_objects::{Changed, Key, World};
use oxigress_translate::{Options as TranslateOptions, ReferenceIndex, translate};
use std::fs;
use std::path::Path;
use std::time::Duration;

struct Fixture {
    fake: Fake,
    source: Kubernetes,
    world: World,
    problems: Vec<String>,
    mended: Vec<String>,
    published: BTreeMap<Key, Option<oxigress_objects::published::Published>>,
    is_incomplete: bool,
}

/// What is watched with options of translation.
fn watched(options: &TranslateOptions) -> Options {
    Options {
        watch_namespace: options.watch_namespace.clone(),
        gateway_api: false,
        watches_namespaces: options.watch_namespace_selector.is_some(),
        configmap: options.configmap.clone(),
        default_backend_service: options.default_backend_service.clone(),
        default_ssl_certificate: options.default_ssl_certificate.clone(),
        tcp_services_configmap: options.tcp_services_configmap.clone(),
        udp_services_configmap: options.udp_services_configmap.clone(),
    }
}

/// Those flags of a golden case that decide which objects are served from.
fn options(case: &str) -> TranslateOptions {
    let flags = case.lines().find_map(|line| line.strip_prefix("# flags: ")).unwrap_or_default();
    let mut options = TranslateOptions::default();
    for flag in flags.split_whitespace() {
        let (name, value) = flag.split_once('=').unwrap_or((flag, "true"));
        match name {
            "--annotations-prefix" => options.annotations_prefix = value.into(),
            "--configmap" => options.configmap = Key::parse(value),
            "--default-backend-service" => options.default_backend_service = Key::parse(value),
            "--default-ssl-certificate" => options.default_ssl_certificate = Key::parse(value),
            "--enable-ssl-passthrough" => options.ssl_passthrough = true,
            "--ingress-class-by-name" => options.ingress_class_by_name = true,
            "--tcp-services-configmap" => options.tcp_services_configmap = Key::parse(value),
            "--udp-services-configmap" => options.udp_services_configmap = Key::parse(value),
            "--watch-ingress-without-class" => options.watch_ingress_without_class = true,
            "--watch-namespace" => options.watch_namespace = Some(value.into()),
            _ => {}
        }
    }
    options
}

const CLASS: &str = "{apiVersion: networking.k8s.io/v1, kind: IngressClass, metadata: {name: nginx}, \
     spec: {controller: k8s.io/ingress-nginx}}\n";

fn ingress(name: &str, secret: &str) -> String {
    format!(
        "{{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {{name: {name}}}, spec: {{\
         ingressClassName: nginx, tls: [{{hosts: [{name}.test], secretName: '{secret}'}}], \
         rules: [{{host: {name}.test, http: {{paths: [{{path: /, pathType: Prefix, \
         backend: {{service: {{name: shop, port: {{number: 80}}}}}}}}]}}}}]}}}}\n"
    )
}

fn object(kind: &str, name: &str, rest: &str) -> String {
    format!("{{apiVersion: v1, kind: {kind}, metadata: {{name: {name}}}{rest}}}\n")
}

fn secret(name: &str, word: &str) -> String {
    object("Secret", name, &format!(", stringData: {{auth: '{word}'}}"))
}

impl Fixture {
    async fn with(options: TranslateOptions, manifests: &[&str]) -> Self {
        let fake = Fake::default();
        fake.apply(&manifests.join("\n---\n"));
        let mut fixture = Fixture::on(fake, options);
        fixture.next().await;
        fixture
    }

    async fn new(manifests: &[&str]) -> Self {
        Self::with(TranslateOptions::default(), manifests).await
    }

    fn on(fake: Fake, options: TranslateOptions) -> Self {
        let source = Kubernetes::watch(
            fake.client(),
            &watched(&options),
            Box::new(ReferenceIndex::new(options)),
        );
        Self::of(fake, source)
    }

    fn of(fake: Fake, source: Kubernetes) -> Self {
        Fixture {
            fake,
            source,
            world: World::default(),
            problems: Vec::new(),
            mended: Vec::new(),
            published: BTreeMap::new(),
            is_incomplete: false,
        }
    }

    async fn next(&mut self) {
        let batch = self.source.next().await;
        let mut changed = Changed::default();
        self.is_incomplete = batch.is_incomplete;
        self.world.hide_classes(batch.hides_classes, &mut changed);
        self.problems.extend(batch.problems.iter().map(Problem::to_string));
        self.mended.extend(batch.mended);
        self.published.extend(batch.published);
        for seen in batch.seen {
            self.world.apply(seen, &mut changed);
        }
    }

    /// Takes batches until it is so.
    async fn until(&mut self, what: impl Fn(&Self) -> bool) {
        let reach = async {
            while !what(self) {
                self.next().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(600), reach).await.expect("never so");
    }

    /// Nothing comes for so long.
    async fn stays(&mut self, time: Duration) {
        let until = Instant::now() + time;
        while tokio::time::timeout_at(until, self.next()).await.is_ok() {}
    }

    fn ingresses(&self) -> Vec<&str> {
        self.world.ingresses.keys().map(|key| key.name.as_str()).collect()
    }

    fn services(&self) -> Vec<&str> {
        self.world.services.keys().map(|key| key.name.as_str()).collect()
    }

    fn secrets(&self) -> Vec<&str> {
        self.world.secrets.keys().map(|key| key.name.as_str()).collect()
    }

    fn word(&self, secret: &str) -> Option<&[u8]> {
        let history = self.world.secrets.get(&Key::new("default", secret))?;
        history.secret.fields.text("auth").map(str::as_bytes)
    }
}

#[tokio::test(start_paused = true)]
async fn what_happened_while_nobody_watched_is_taken_over_and_after_410_too() {
    let mut f = Fixture::new(&[&object("Service", "a", ""), &object("Service", "b", "")]).await;
    f.fake.page(1);
    assert_eq!(f.services(), ["a", "b"]);
    f.fake.set_down(true);
    f.stays(Duration::from_secs(180)).await;
    assert_eq!(f.services(), ["a", "b"], "an outage touches nothing");
    f.fake.delete("services", "default/a");
    f.fake.apply(&object("Service", "c", ""));
    f.fake.set_down(false);
    f.until(|f| f.services() == ["b", "c"]).await;
    assert_eq!(f.fake.asked("services?{\"limit"), 1, "it went on where it stopped");

    f.fake.set_down(true);
    f.fake.delete("services", "default/b");
    f.fake.apply(&object("Service", "d", ""));
    f.fake.compact();
    f.fake.set_down(false);
    f.until(|f| f.services() == ["c", "d"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_list_that_turns_empty_is_asked_for_again() {
    let mut f = Fixture::new(&[&object("Service", "a", ""), &object("Service", "b", "")]).await;
    f.fake.lose_lists("services", 1);
    f.fake.hang_up();
    f.fake.apply(&object("Service", "c", ""));
    f.fake.compact();
    f.until(|f| f.services() == ["a", "b", "c"]).await;
    assert!(f.fake.asked("services?{\"limit\": \"1\"") == 1);

    for name in ["a", "b", "c"] {
        f.fake.delete("services", &format!("default/{name}"));
    }
    f.until(|f| f.services().is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn an_empty_list_that_is_confirmed_is_applied() {
    let mut f = Fixture::new(&[&object("Service", "a", "")]).await;
    f.fake.set_down(true);
    f.fake.delete("services", "default/a");
    f.fake.compact();
    f.fake.set_down(false);
    let before = f.fake.asked("services?");
    f.until(|f| f.services().is_empty()).await;
    assert!(f.fake.asked("services?") >= before + 3, "a watch, a list, a second list");
}

#[tokio::test(start_paused = true)]
async fn a_silent_watch_is_noticed_within_a_minute() {
    let mut f = Fixture::new(&[&object("Service", "a", "")]).await;
    let watches = f.fake.asked("services?{\"allow");
    assert_eq!(watches, 1);
    f.stays(Duration::from_secs(1)).await;
    assert!(
        f.source.watch_health().is_whole()
            && f.source.watch_health().silence() < Duration::from_secs(2)
    );
    f.stays(Duration::from_secs(59)).await;
    assert_eq!(f.fake.asked("services?{\"allow"), 2);
    assert!(f.source.watch_health().silence() < Duration::from_secs(60));
}

#[tokio::test(start_paused = true)]
async fn without_the_right_to_see_classes_everything_else_is_served() {
    let fake = Fake::default();
    fake.apply(&[ingress("a", ""), object("Service", "shop", "")].join("\n---\n"));
    fake.refuse("ingressclasses", true);
    let mut f = Fixture::on(fake, TranslateOptions::default());
    f.next().await;
    assert!(f.world.hides_classes && !f.is_incomplete);
    let served =
        |f: &Fixture| translate(&f.world, &TranslateOptions::default()).snapshot.servers.len();
    assert_eq!(served(&f), 1);
    f.fake.refuse("ingressclasses", false);
    f.until(|f| !f.world.hides_classes).await;
    assert_eq!(served(&f), 0, "there is no class of this name");
    f.fake.apply(CLASS);
    f.until(|f| !f.world.ingress_classes.is_empty()).await;
    assert_eq!(served(&f), 1);
}

#[tokio::test(start_paused = true)]
async fn a_refused_kind_that_is_needed_holds_the_first_batch_back() {
    let fake = Fake::default();
    fake.apply(&object("Service", "a", ""));
    fake.refuse("secrets", true);
    let mut f = Fixture::on(fake, TranslateOptions::default());
    let wait = tokio::time::timeout(Duration::from_secs(120), f.source.next()).await;
    assert!(wait.is_err());
    f.fake.refuse("secrets", false);
    f.until(|f| f.services() == ["a"]).await;
}

#[tokio::test(start_paused = true)]
async fn an_object_that_cannot_be_read_keeps_its_last_good_version() {
    let good = "{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {ports: [{port: 80}]}}";
    let mut f = Fixture::new(&[good]).await;
    f.fake.apply(&good.replace("80", "99999"));
    f.fake.apply(&object("Service", "b", ""));
    f.until(|f| f.services() == ["a", "b"]).await;
    assert_eq!(f.problems.len(), 1, "{:?}", f.problems);
    assert!(f.problems[0].starts_with("Service default/a: spec.ports[0].port"), "{:?}", f.problems);
    assert!(f.problems[0].contains("last good version stays") && !f.is_incomplete);
    assert_eq!(f.world.services[&Key::new("default", "a")].ports.len(), 1);
    f.fake.apply(good);
    f.until(|f| f.mended.len() == 1).await;

    f.fake.apply(&good.replace("80", "99999").replace("name: a", "name: c"));
    f.until(|f| f.is_incomplete).await;
    f.fake.delete("services", "default/c");
    f.until(|f| !f.is_incomplete && f.mended.len() == 2).await;
}

#[tokio::test(start_paused = true)]
async fn only_secrets_that_something_is_served_from_are_kept() {
    let foreign = ingress("b", "theirs").replace("ingressClassName: nginx", "ingressClassName: b");
    let class = CLASS.replace("name: nginx", "name: b").replace("k8s.io/ingress-nginx", "b");
    let secrets = [secret("ours", "1"), secret("theirs", "2"), secret("new", "3")].join("\n---\n");
    let mut f = Fixture::new(&[CLASS, &class, &ingress("a", "ours"), &foreign, &secrets]).await;
    assert_eq!(f.secrets(), ["ours"]);
    // Another one is fetched, and the Ingress waits for it.
    f.fake.apply(&ingress("a", "new"));
    let tls = |f: &Fixture| f.world.ingresses[&Key::new("default", "a")].tls[0].secret.clone();
    f.fake.hold_gets();
    f.stays(Duration::from_secs(5)).await;
    assert_eq!((tls(&f).as_str(), f.secrets()), ("ours", vec!["ours"]));
    f.fake.gets.notify_waiters();
    f.until(|f| tls(f) == "new").await;
    assert_eq!(f.secrets(), ["new"]);
    // A class decides about the Secrets of its Ingresses.
    f.fake.apply(&class.replace("controller: b", "controller: k8s.io/ingress-nginx"));
    f.stays(Duration::from_secs(1)).await;
    f.fake.gets.notify_waiters();
    f.until(|f| f.secrets() == ["new", "theirs"]).await;
    f.fake.delete("ingresses", "default/a");
    f.until(|f| f.secrets() == ["theirs"]).await;
}

#[tokio::test(start_paused = true)]
async fn an_event_of_the_watch_wins_over_the_answer_to_a_get() {
    let mut f = Fixture::new(&[CLASS, &secret("s", "old")]).await;
    assert!(f.secrets().is_empty());
    f.fake.hold_gets();
    f.fake.apply(&ingress("a", "s"));
    f.stays(Duration::from_secs(1)).await;
    assert_eq!(f.fake.asked("secrets/s"), 1);
    f.fake.apply(&secret("s", "new"));
    f.until(|f| f.ingresses() == ["a"]).await;
    assert_eq!(f.word("s"), Some(&b"new"[..]));
    f.fake.gets.notify_waiters();
    f.stays(Duration::from_secs(5)).await;
    assert_eq!(f.word("s"), Some(&b"new"[..]), "the older answer came later");
}

#[tokio::test(start_paused = true)]
async fn duplicates_and_a_secret_that_is_nowhere_change_nothing() {
    let mut f = Fixture::new(&[CLASS, &ingress("a", "nowhere"), &object("Service", "s", "")]).await;
    f.fake.repeat("ingresses", "default/a");
    f.fake.repeat("services", "default/s");
    f.fake.apply(&ingress("b", "nowhere-too"));
    f.until(|f| f.ingresses() == ["a", "b"]).await;
    assert!(f.secrets().is_empty());
    f.fake.apply(&secret("nowhere", "1"));
    f.until(|f| f.secrets() == ["nowhere"]).await;
}

#[tokio::test(start_paused = true)]
async fn what_is_published_of_an_ingress_comes_with_it() {
    let own = ingress("a", "").trim_end().trim_end_matches('}').to_owned()
        + "}, status: {loadBalancer: {ingress: [{ip: 192.0.2.1}, {hostname: lb.test}]}}}";
    let mut f = Fixture::new(&[CLASS, &own]).await;
    let published = f.published[&Key::new("default", "a")].clone().unwrap();
    assert!(!published.uid.is_empty() && !published.version.is_empty());
    let addresses = published.addresses.iter().map(|a| (a.ip.as_str(), a.hostname.as_str()));
    assert_eq!(addresses.collect::<Vec<_>>(), [("192.0.2.1", ""), ("", "lb.test")]);
    f.fake.delete("ingresses", "default/a");
    f.until(|f| f.published[&Key::new("default", "a")].is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn labels_of_namespaces_decide_at_once() {
    let selector: kube::core::Selector =
        [("team".to_owned(), "shop".to_owned())].into_iter().collect();
    let options = TranslateOptions {
        watch_namespace_selector: Some(selector),
        ..TranslateOptions::default()
    };
    let namespace = |labels: &str| {
        format!(
            "{{apiVersion: v1, kind: Namespace, metadata: {{name: default, labels: {{{labels}}}}}}}\n"
        )
    };
    let manifests = [CLASS.to_owned(), namespace(""), ingress("a", "s"), secret("s", "1")];
    let manifests: Vec<_> = manifests.iter().map(String::as_str).collect();
    let mut f = Fixture::with(options.clone(), &manifests).await;
    let served = |f: &Fixture| translate(&f.world, &options).snapshot.servers.len();
    assert_eq!((served(&f), f.secrets().len()), (0, 0));
    f.fake.apply(&namespace("team: shop"));
    f.until(|f| served(f) == 1 && f.secrets() == ["s"]).await;
    f.fake.apply(&namespace("team: other"));
    f.until(|f| served(f) == 0 && f.secrets().is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn one_namespace_is_watched_and_what_flags_name_elsewhere() {
    let options = TranslateOptions {
        watch_namespace: Some("default".into()),
        configmap: Some(Key::new("system", "settings")),
        ..TranslateOptions::default()
    };
    let elsewhere =
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: system}}\n";
    let f = Fixture::with(options, &[&object("Service", "a", ""), elsewhere]).await;
    assert_eq!(f.services(), ["a"]);
    assert!(f.world.config_maps.contains_key(&Key::new("system", "settings")));
    assert_eq!(f.fake.asked("/api/v1/services?"), 0, "no list of all namespaces");
    assert!(f.fake.asked("/api/v1/namespaces/system/configmaps?") > 0);
    assert!(f.fake.asked("metadata.name%3Dsettings") > 0);
    assert!(f.fake.asked("type%21%3Dhelm.sh%2Frelease.v1") > 0);
}

/// What is not kept is not needed either: of all golden cases and examples, both sources come to the same.
#[tokio::test(start_paused = true)]
async fn a_folder_and_an_api_server_with_the_same_objects_are_served_alike() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut cases = vec![
        fs::read_to_string(root.join("../../conf/examples/shop/shop.yaml")).unwrap_or_default(),
    ];
    for entry in fs::read_dir(root.join("../testdata")).unwrap() {
        let path = entry.unwrap().path();
        if path.to_string_lossy().ends_with(".in.yaml") {
            cases.push(fs::read_to_string(path).unwrap());
        }
    }
    let mut compared = 0;
    for text in cases {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("all.yaml"), &text).unwrap();
        let batch = Folder::read_once(folder.path()).unwrap();
        // An API server takes neither duplicates nor what it cannot read.
        if text.contains("# then")
            || batch
                .problems
                .iter()
                .any(|problem| !matches!(problem.kind, ProblemKind::OtherKind(_)))
        {
            continue;
        }
        let options = options(&text);
        let (mut world, mut changed) = (World::default(), Changed::default());
        batch.seen.into_iter().for_each(|seen| world.apply(seen, &mut changed));
        let fake = Fake::default();
        fake.apply(&text);
        let scope = Options { gateway_api: true, ..watched(&options) };
        let index = Box::new(ReferenceIndex::new(options.clone()));
        let source = Kubernetes::watch(fake.client(), &scope, index);
        let mut f = Fixture::of(fake, source);
        f.next().await;
        assert_eq!(translate(&f.world, &options), translate(&world, &options), "{text}");
        compared += 1;
    }
    assert!(compared > 50, "{compared}");
}
