//! The namespace that is to notice nothing: its hosts, the load on them, and its edits.

use super::objects::{Ingress, route, rule, secret, served, slice};
use super::scene::Scene;
use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Event;
use kube::Api;
use kube::api::ListParams;
use openssl::base64;
use oxigress_tests::certificate::Certificate;
use oxigress_tests::client::{Address, Request, Response, send};
use oxigress_tests::cluster::{Cluster, Tenant};
use oxigress_tests::controller::Controller;
use oxigress_tests::endpoint::{Behaviour, Endpoint};
use oxigress_tests::fake_dns::FakeDns;
use oxigress_tests::load::{Closes, Load, Plan, Report};
use oxigress_tests::mutual::Identity;
use oxigress_tests::wait::{DEADLINE, block_on, until};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The host with HTTPS, two paths and a canary.
pub const SHOP: &str = "shop.blue.test";
pub const SECURE: &str = "secure.blue.test";
pub const LOGIN: &str = "login.blue.test";
pub const MUTUAL: &str = "mutual.blue.test";
pub const STICKY: &str = "sticky.blue.test";
/// With a limit of requests.
pub const LIMITED: &str = "limited.blue.test";
/// Open but for `/admin`, which wants a password.
pub const PATHS: &str = "paths.blue.test";
/// With an auth server that lets nobody in, and whose answers are kept under a key that others can guess.
pub const CACHED: &str = "cached.blue.test";
/// A host that only a route names.
pub const ROUTED: &str = "routed.blue.test";
/// A path of [`MUTUAL`] that only a route has.
pub const ROUTED_PATH: &str = "/routed";
/// All names below it are of an Ingress that asks for certificates.
pub const DEEP: &str = "deep.blue.test";
const FRESH: &str = "fresh.blue.test";
pub const EDITED: &str = "edited.blue.test";

/// `blue` by sha512-crypt, 5,000 rounds.
const HASH: &str = "$6$rounds=5000$blue$oqRQ0PD6cwxHWh0t9ExS2W0Ep8rZ6a5JrkN6bMOL.PwgyIzxHskhxslDXpIQoOeIZ4TKIldlgg0un8I.2Xhfb.";
/// Users of [`SECURE`] who come once each.
const VISITORS: usize = 1_000;
/// The value of `keep-alive-requests` in the ConfigMap.
const REQUESTS_PER_CONNECTION: u64 = 1_000;
/// The time between two edits.
const PAUSE: Duration = Duration::from_millis(200);

/// It and what it serves.
pub struct Blue {
    pub namespace: String,
    class: String,
    cluster: &'static Cluster,
    /// The namespace of the Gateway.
    gateway: String,
    /// Its endpoints by name; they serve as long as this lives.
    pub pods: Vec<Endpoint>,
    visitors: AtomicUsize,
    mistakes: AtomicUsize,
}

impl Blue {
    pub fn new(tenant: &Tenant<'static>, gateway: &str, dns: &FakeDns) -> Result<Self> {
        let names = [
            "blue-a",
            "blue-b",
            "blue-cart",
            "blue-next",
            "blue-auth",
            "blue-deny",
            "blue-p",
            "blue-q",
        ];
        let pods = names.map(|name| tenant.pod(name)).into_iter().collect::<Result<Vec<_>>>()?;
        let blue = Blue {
            namespace: tenant.namespace.clone(),
            class: tenant.class.clone(),
            cluster: tenant.cluster,
            gateway: gateway.to_owned(),
            pods,
            visitors: AtomicUsize::new(0),
            mistakes: AtomicUsize::new(0),
        };
        blue.pod("blue-deny")?.change(Behaviour::Status(401));
        for (name, pod) in [("auth.blue.test", "blue-auth"), ("deny.blue.test", "blue-deny")] {
            dns.set_address(name, blue.pod(pod)?.address.ip());
        }
        for object in blue.objects()? {
            blue.apply(&object)?;
        }
        Ok(blue)
    }

    pub fn pod(&self, name: &str) -> Result<&Endpoint> {
        self.pods.iter().find(|pod| pod.name == name).with_context(|| format!("no {name}"))
    }

    fn apply(&self, object: &Value) -> Result<()> {
        self.cluster.apply_in(&self.namespace, &object.to_string())
    }

    fn objects(&self) -> Result<Vec<Value>> {
        let at = |name: &str| anyhow::Ok(self.pod(name)?.address);
        let certificate = Certificate::new("blue", &[SHOP, SECURE, MUTUAL])?;
        let authority = Identity::root("blue")?.pem()?;
        let users: String = (0..VISITORS).map(|n| format!("visitor{n}:{HASH}\n")).collect();
        let mut all = vec![
            secret("tls", &[("tls.crt", &certificate.chain), ("tls.key", &certificate.key)]),
            secret("users", &[("auth", &format!("blue:{HASH}\n{users}"))]),
            secret("authority", &[("ca.crt", &authority)]),
        ];
        for (name, pod) in [("cart", "blue-cart"), ("next", "blue-next"), ("fresh", "blue-p")] {
            all.extend(served(name, at(pod)?));
        }
        all.extend(served("web", at("blue-a")?));
        all.push(slice("web-1", "web", &[at("blue-b")?]));
        let everything = json!([rule(json!([]), "web")]);
        all.push(route("routed", &self.gateway, &[ROUTED], everything));
        let beside = json!([rule(json!([{"path": {"value": ROUTED_PATH}}]), "web")]);
        all.push(route("beside", &self.gateway, &[MUTUAL], beside));
        all.extend(self.ingresses()?);
        Ok(all)
    }

    fn ingresses(&self) -> Result<Vec<Value>> {
        let of = |name: &str, host: &str| {
            Ingress::new(&self.class, name).with("ssl-redirect", "false").host(host)
        };
        let web = |name: &str, host: &str| of(name, host).path("/", "Prefix", "web");
        let url = |name: &str, pod: &str| {
            anyhow::Ok(format!("http://{name}.blue.test:{}/", self.pod(pod)?.address.port()))
        };
        let (auth, deny) = (url("auth", "blue-auth")?, url("deny", "blue-deny")?);
        let authority = format!("{}/authority", self.namespace);
        let all = [
            web("shop", SHOP).path("/cart", "Prefix", "cart").tls(&[SHOP], "tls"),
            of("canary", SHOP)
                .path("/cart", "Prefix", "next")
                .with("canary", "true")
                .with("canary-weight", "30"),
            web("secure", SECURE)
                .with("auth-type", "basic")
                .with("auth-secret", "users")
                .tls(&[SECURE], "tls"),
            web("login", LOGIN).with("auth-url", &auth),
            web("mutual", MUTUAL).with("auth-tls-secret", &authority).tls(&[MUTUAL], "tls"),
            web("deep", &format!("*.{DEEP}")).with("auth-tls-secret", &authority),
            web("cached", CACHED)
                .with("auth-url", &deny)
                .with("auth-cache-key", "all")
                .with("auth-cache-duration", "200 401 10m"),
            web("paths", PATHS),
            of("admin", PATHS)
                .path("/admin", "Prefix", "cart")
                .with("auth-type", "basic")
                .with("auth-secret", "users"),
            web("sticky", STICKY).with("affinity", "cookie"),
            web("limited", LIMITED).with("limit-rps", "500"),
            of("fresh", FRESH).path("/", "Prefix", "fresh"),
            self.edited(0),
        ];
        Ok(all.map(Ingress::object).into())
    }

    fn edited(&self, number: usize) -> Ingress {
        let path = format!("/v{number}");
        Ingress::new(&self.class, "edited").host(EDITED).path(&path, "Prefix", "web")
    }

    /// What is asked for all the time; the Gateway listens for plain HTTP alone.
    fn requests(is_tls: bool) -> Vec<Request> {
        let right = basic("blue", "blue");
        let mut all = vec![
            Request::get(SHOP, "/"),
            Request::get(SHOP, "/cart/1"),
            Request::get(SECURE, "/").header("Authorization", &right),
            Request::get(SHOP, "/a/b?c=d").header("X-Forwarded-For", "192.0.2.1"),
            Request::get(LOGIN, "/"),
            Request::new("POST", SHOP, "/cart/form").body("a=b".repeat(500)),
            Request::get(STICKY, "/"),
            Request::get(LIMITED, "/"),
        ];
        if !is_tls {
            all.push(Request::get(ROUTED, "/path?a=1"));
        }
        all
    }

    pub fn load(controller: &Controller) -> Result<Loads> {
        let (http, https) =
            (Address::http(controller.http_port), Address::https(controller.https_port, SHOP));
        let plan = |address: &Address, connections, pace| Plan {
            pace: Duration::from_millis(pace),
            requests_per_connection: REQUESTS_PER_CONNECTION,
            closes: Closes::Never,
            check: Some(Arc::new(check)),
            ..Plan::new(
                address.clone(),
                Self::requests(matches!(address, Address::Tls(..))),
                connections,
            )
        };
        let fresh = |plan: Plan| Plan { is_fresh: true, ..plan };
        Ok(Loads(vec![
            Load::start(plan(&http, 3, 20))?,
            Load::start(plan(&https, 3, 20))?,
            Load::start(fresh(plan(&http, 1, 40)))?,
            Load::start(fresh(plan(&https, 1, 40)))?,
        ]))
    }

    /// Changes endpoints and paths until it is told to end; how long each change took to be live.
    pub fn edit(&self, scene: &Scene, is_over: &AtomicBool) -> Result<Edits> {
        let mut edits = Edits::default();
        for number in 1.. {
            if is_over.load(Ordering::SeqCst) {
                break;
            }
            let pod = if number % 2 == 0 { "blue-p" } else { "blue-q" };
            let start = Instant::now();
            self.apply(&slice("fresh-0", "fresh", &[self.pod(pod)?.address]))?;
            self.wait_for(scene, FRESH, "/", pod)
                .with_context(|| format!("endpoint edit {number}"))?;
            edits.endpoints.push(start.elapsed());
            if number % 4 == 0 {
                let start = Instant::now();
                self.apply(&self.edited(number).object())?;
                self.wait_for(scene, EDITED, &format!("/v{number}"), "blue-")
                    .with_context(|| format!("path edit {number}"))?;
                edits.paths.push(start.elapsed());
            }
            sleep(PAUSE);
        }
        Ok(edits)
    }

    fn wait_for(&self, scene: &Scene, host: &str, path: &str, pod: &str) -> Result<()> {
        let start = Instant::now();
        loop {
            let answer = block_on(send(&scene.http(), &Request::get(host, path)))?;
            if answer.endpoint().is_some_and(|name| name.starts_with(pod)) {
                return Ok(());
            }
            ensure!(start.elapsed() < DEADLINE, "after {DEADLINE:?} {host}{path} is {answer}");
            sleep(Duration::from_millis(10));
        }
    }

    /// Writes an Ingress whose Service is missing; how long it took until an Event says so.
    pub fn make_a_mistake(&self) -> Result<Duration> {
        let number = self.mistakes.fetch_add(1, Ordering::SeqCst);
        let (name, host) = (format!("mistake-{number}"), format!("mistake{number}.blue.test"));
        let ingress = Ingress::new(&self.class, &name).host(&host).path("/", "Prefix", "missing");
        let start = Instant::now();
        self.apply(&ingress.object())?;
        let events: Api<Event> = Api::namespaced(self.cluster.client()?, &self.namespace);
        let of = ListParams::default().fields(&format!("involvedObject.name={name}"));
        until("an Event of blue's", || {
            let messages = block_on(events.list(&of))?.items.into_iter().filter_map(|e| e.message);
            let messages: Vec<_> = messages.collect();
            ensure!(messages.iter().any(|text| text.contains("missing")), "{messages:?}");
            Ok(())
        })?;
        let took = start.elapsed();
        self.cluster.delete("Ingress", &self.namespace, &name)?;
        Ok(took)
    }

    /// A user whose password nobody has looked at yet, as a header.
    pub fn visitor(&self) -> String {
        let number = self.visitors.fetch_add(1, Ordering::SeqCst) % VISITORS;
        basic(&format!("visitor{number}"), "blue")
    }
}

pub fn basic(user: &str, password: &str) -> String {
    format!("Basic {}", base64::encode_block(format!("{user}:{password}").as_bytes()))
}

/// Whose answer it may be.
fn expected(host: &str, target: &str) -> &'static [&'static str] {
    match host {
        SHOP if target.starts_with("/cart") => &["blue-cart", "blue-next"],
        _ => &["blue-a", "blue-b"],
    }
}

/// An answer is blue's, and its endpoint was told the truth.
fn check(request: &Request, response: &Response) -> Result<()> {
    let host = request.headers.first().map_or("", |(_, value)| value);
    ensure!(response.status == 200, "status {}", response.status);
    let endpoint = response.endpoint().unwrap_or_default();
    ensure!(expected(host, &request.target).contains(&endpoint.as_str()), "from {endpoint:?}");
    let seen = response.text();
    let line = |text: &str| seen.lines().any(|line| line == text);
    for told in [
        format!("host: {host}"),
        format!("x-forwarded-host: {host}"),
        "x-forwarded-for: 127.0.0.1".into(),
    ] {
        ensure!(line(&told), "the endpoint is not told {told:?}: {seen}");
    }
    ensure!(seen.starts_with(&format!("{} {} ", request.method, request.target)), "{seen}");
    Ok(())
}

#[derive(Default)]
pub struct Edits {
    /// From the write of an EndpointSlice to an answer of the new endpoint.
    pub endpoints: Vec<Duration>,
    /// From the write of an Ingress, which the webhook judges, to an answer at its new path.
    pub paths: Vec<Duration>,
}

pub struct Loads(Vec<Load>);

impl Loads {
    pub fn mark(&self) -> Vec<usize> {
        self.0.iter().map(|load| load.report().times.len()).collect()
    }

    /// The times of answers since then.
    pub fn since(&self, mark: &[usize]) -> Vec<Duration> {
        let of = |(load, mark): (&Load, &usize)| load.report().times.split_off(*mark);
        self.0.iter().zip(mark).flat_map(of).collect()
    }

    pub fn stop(self) -> Vec<Report> {
        self.0.into_iter().map(Load::stop).collect()
    }
}
