//! Whatever annotations, ConfigMaps and Secrets say: nginx takes what the controller makes of it.
//!
//! Each annotation and each key of the main ConfigMap has each of some hundred hostile values, alone and in mixtures of
//! several Ingresses of a host. The real module refuses nothing, nothing panics, and a bystander is served all the while.
//!
//! `OXIGRESS_CASES` says how many mixtures are tried, `OXIGRESS_SEED` which.

mod names;
mod objects;
mod texts;

use anyhow::{Result, ensure};
use objects::{Ingress, list, with_companions};
use oxigress_fuzz::Random;
use oxigress_tests::client::{Address, Connection, Request, send};
use oxigress_tests::controller::Controller;
use oxigress_tests::endpoint::Endpoint;
use oxigress_tests::fake_dns::FakeDns;
use oxigress_tests::load::{Load, Plan};
use oxigress_tests::pass;
use oxigress_tests::place::{Directory, free_port};
use oxigress_tests::wait::{block_on, until};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;

/// Everything but loopback: values name addresses, and no packet is to leave the machine.
const ELSEWHERE: &str = "0.0.0.0/2,64.0.0.0/3,96.0.0.0/4,112.0.0.0/5,120.0.0.0/6,124.0.0.0/7,126.0.0.0/8,128.0.0.0/1,\
                         2000::/3,64:ff9b::/96,fc00::/7,fe80::/10,ff00::/8";

/// What no log may have.
const BAD: &[&str] = &[
    "[alert]",
    "[emerg]",
    "panicked",
    "Sanitizer: ",
    "nginx refused",
    "its requests are refused: nginx refused it",
    "exited on signal",
    "stay: correct them",
];

const PATHS: &[(&str, &str)] = &[("/", "Prefix"), ("/x(/|$)(.*)", "ImplementationSpecific")];

/// A product under hostile objects, and a bystander who is served.
struct Fixture {
    controller: Controller,
    bystander: Endpoint,
    load: Option<Load>,
    /// Bytes of the log that were looked at.
    read: usize,
    _dns: FakeDns,
}

impl Fixture {
    fn start(directory: &Directory, more: &[&str]) -> Result<Self> {
        let dns = FakeDns::start()?;
        let resolv_conf = directory.join("resolv.conf");
        fs::write(&resolv_conf, dns.line())?;
        let mut flags: Vec<String> = more.iter().map(|flag| (*flag).to_owned()).collect();
        flags.extend([
            format!("--resolv-conf={}", resolv_conf.display()),
            format!("--deny-destinations={ELSEWHERE}"),
            "--zone-size=256m".into(),
            "--enable-metrics".into(),
            "--enable-ssl-passthrough".into(),
            format!("--ssl-passthrough-proxy-port={}", free_port()?),
        ]);
        let bystander = Endpoint::start("bystander")?;
        let mut controller = Controller::start(directory, 1, &flags)?;
        let none = BTreeMap::new();
        let ingress = Ingress {
            key: ("bystander", "shop"),
            host: "bystander.test",
            annotations: &none,
            paths: &PATHS[..1],
            secrets: &[],
        };
        let mut items = objects::service("bystander", bystander.address.port());
        items.push(ingress.json());
        controller.serve("a-bystander.json", &list(items))?;
        let (names, secrets) = objects::secrets(&texts::generic())?;
        ensure!(names.len() > 20, "{names:?}");
        let (_, maps) = objects::config_maps(&texts::generic());
        let mut items = objects::service("default", bystander.address.port());
        items.extend(secrets.into_iter().chain(maps));
        controller.serve("a-named.json", &list(items))?;
        Ok(Fixture { controller, bystander, load: None, read: 0, _dns: dns })
    }

    /// Begins to ask for the bystander's host.
    fn watch_bystander(&mut self) -> Result<()> {
        let request = Request::get("bystander.test", "/");
        let plan = Plan::new(Address::http(self.controller.http_port), vec![request], 1);
        let plan = Plan { requests_per_connection: 1_000, ..plan };
        self.load = Some(Load::start(plan)?);
        Ok(())
    }

    /// Nothing of what was written so far was refused.
    fn nothing_is_refused(&mut self, after: &str) -> Result<()> {
        let status = self.controller.status()?;
        ensure!(status.last_error.is_none(), "{after}: {:?}", status.last_error);
        let log = self.controller.error_log();
        let log = log.get(self.read..).unwrap_or_default();
        self.read += log.len();
        let bad = log.lines().find(|line| BAD.iter().any(|bad| line.contains(bad)));
        ensure!(bad.is_none(), "{after}: {}", bad.unwrap_or_default());
        let address = Address::http(self.controller.health_port);
        let page = block_on(send(&address, &Request::get("x", "/metrics")))?.text();
        let errors: Vec<_> = page
            .lines()
            .filter(|line| line.starts_with("nginx_ingress_controller_errors"))
            .collect();
        ensure!(errors.len() == 1 && errors[0].ends_with(" 0"), "{after}: {errors:?}");
        Ok(())
    }

    /// The bystander had every answer, and an edit of its endpoints is live.
    fn bystander_is_fine(&mut self) -> Result<()> {
        if let Some(load) = self.load.take() {
            let report = load.stop();
            ensure!(report.failed == 0 && report.answered > 10, "{report:?}");
        }
        let other = Endpoint::start("other")?;
        let items = objects::service("bystander", other.address.port());
        let ingress = Ingress {
            key: ("bystander", "shop"),
            host: "bystander.test",
            annotations: &BTreeMap::new(),
            paths: &PATHS[..1],
            secrets: &[],
        };
        let items = items.into_iter().chain([ingress.json()]).collect();
        self.controller.write("a-bystander.json", &list(items))?;
        let address = Address::http(self.controller.http_port);
        until("the bystander's edit", || {
            let answer = block_on(send(&address, &Request::get("bystander.test", "/")))?;
            ensure!(answer.endpoint().as_deref() == Some("other"), "{answer:?}");
            Ok(())
        })?;
        drop(std::mem::replace(&mut self.bystander, other));
        Ok(())
    }

    /// Asks each of these hosts once: no answer is that of a panic.
    fn ask(&self, hosts: &[String]) -> Result<()> {
        let address = Address::http(self.controller.http_port);
        block_on(async {
            let mut connection = Connection::open(&address).await?;
            for host in hosts {
                if connection.is_closed() {
                    connection = Connection::open(&address).await?;
                }
                // Locations may close the connection, or never answer: only the log decides.
                let request = Request::get(host, "/x/a%20b?c=d").header("Origin", "https://x.test");
                let within = std::time::Duration::from_millis(500);
                if connection.send_within(&request, within).await.is_err() {
                    connection = Connection::open(&address).await?;
                }
            }
            Ok(())
        })
    }
}

fn number(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// Every annotation has values in Ingresses of their own: those near what it takes, and each `step`-th of the others.
fn one_at_a_time(directory: &Directory, seed: u64, step: usize) -> Result<()> {
    let mut fixture = Fixture::start(directory, &[])?;
    fixture.watch_bystander()?;
    let (written, mut random) = (names::written_annotations()?, Random::new(seed));
    let (generic, long) = (texts::generic(), texts::long());
    let (mut fewest, mut sum) = (usize::MAX, 0);
    for (index, name) in names::annotations()?.into_iter().enumerate() {
        let mut values = texts::near(written.get(&name).map_or(&[], Vec::as_slice), &mut random);
        values.extend(generic.iter().skip(index % step).step_by(step).chain(&long).cloned());
        (fewest, sum) = (fewest.min(values.len()), sum + values.len());
        let mut items = Vec::new();
        for (number, value) in values.iter().enumerate() {
            let host = format!("h{number}.{name}.test");
            let key = format!("{name}-{number}");
            let annotations = with_companions(&name, value);
            let mut ingress = Ingress {
                key: ("default", &key),
                host: &host,
                annotations: &annotations,
                paths: PATHS,
                secrets: &[],
            };
            items.push(ingress.json());
            if name.contains("canary") {
                let (main, none) = (format!("{key}-main"), BTreeMap::new());
                ingress.key = ("default", &main);
                ingress.annotations = &none;
                items.push(ingress.json());
            }
        }
        fixture.controller.serve("values.json", &list(items))?;
        let hosts: Vec<_> =
            (0..values.len()).step_by(5).map(|n| format!("h{n}.{name}.test")).collect();
        fixture.ask(&hosts)?;
        fixture.nothing_is_refused(&name)?;
    }
    println!("{sum} values of annotations, at least {fewest} each");
    ensure!(fewest >= 100, "an annotation has {fewest} values only");
    fixture.bystander_is_fine()
}

/// Values and names for mixtures.
struct Pool {
    names: Vec<String>,
    written: BTreeMap<String, Vec<String>>,
    generic: Vec<String>,
    long: Vec<String>,
    objects: Vec<String>,
}

impl Pool {
    fn new() -> Result<Self> {
        let generic = texts::generic();
        let (mut objects, _) = objects::secrets(&generic)?;
        objects.extend(objects::config_maps(&generic).0);
        let (names, written) = (names::annotations()?, names::written_annotations()?);
        Ok(Pool { names, written, generic, long: texts::long(), objects })
    }

    fn value(&self, name: &str, random: &mut Random) -> String {
        let of = |all: &[String], random: &mut Random| {
            all.get(random.below(all.len())).cloned().unwrap_or_default()
        };
        let is_reference =
            name.contains("secret") || name.contains("headers") || name.contains("configmap");
        if is_reference && random.below(4) > 0 {
            return format!("default/{}", of(&self.objects, random));
        }
        let written = self.written.get(name).map_or(&[][..], Vec::as_slice);
        match random.below(20) {
            0..12 if !written.is_empty() => of(written, random),
            0..16 => {
                let mut seeds: Vec<_> =
                    written.iter().map(|text| text.clone().into_bytes()).collect();
                seeds.push(b"true".to_vec());
                texts::mutated(&seeds, random)
            }
            16 if random.below(40) == 0 => of(&self.long, random),
            _ => of(&self.generic, random),
        }
    }

    /// Up to four Ingresses of two namespaces on one host.
    fn host(&self, host: &str, random: &mut Random) -> Vec<Value> {
        let mut items = Vec::new();
        for number in 0..=random.below(4) {
            let mut annotations = BTreeMap::new();
            for _ in 0..=random.below(7) {
                let name = &self.names[random.below(self.names.len())];
                annotations.extend(with_companions(name, &self.value(name, random)));
            }
            if number > 0 && random.below(3) == 0 {
                annotations.insert("canary".into(), "true".into());
            } else {
                annotations.remove("canary");
            }
            let own =
                self.generic.get(random.below(self.generic.len())).cloned().unwrap_or_default();
            let own = format!("/{own}");
            let kinds = ["Prefix", "Exact", "ImplementationSpecific"];
            let paths = [PATHS[0], PATHS[1], (own.as_str(), kinds[random.below(3)])];
            let secret = self.objects[random.below(self.objects.len())].as_str();
            let secrets: &[&str] = if random.below(3) == 0 { &[secret] } else { &[] };
            let ingress = Ingress {
                key: (["default", "other"][random.below(8) / 7], &format!("{host}-{number}")),
                host,
                annotations: &annotations,
                paths: &paths[random.below(2)..=random.below(2) + 1],
                secrets,
            };
            items.push(ingress.json());
        }
        items
    }
}

/// Random annotations of several Ingresses on each of many hosts, which change again and again.
fn mixtures(directory: &Directory, cases: u64, seed: u64) -> Result<()> {
    const BATCH: usize = 250;
    let mut fixture = Fixture::start(directory, &[])?;
    fixture.watch_bystander()?;
    let (pool, mut random) = (Pool::new()?, Random::new(seed));
    let mut tried = 0;
    for batch in 0.. {
        if tried >= cases {
            break;
        }
        // The hosts of two files, so that half of them change and half stay.
        let hosts: Vec<_> =
            (0..BATCH).map(|number| format!("m{}-{number}.test", batch % 2)).collect();
        let items = hosts.iter().flat_map(|host| pool.host(host, &mut random)).collect();
        fixture.controller.serve(&format!("mixture-{}.json", batch % 2), &list(items))?;
        fixture.ask(&hosts)?;
        fixture.nothing_is_refused(&format!("OXIGRESS_SEED={seed}, batch {batch}"))?;
        tried += BATCH as u64;
    }
    println!("{tried} mixtures on hosts, OXIGRESS_SEED={seed}");
    fixture.bystander_is_fine()
}

/// Keys whose values name what another machine has: files, addresses, a name, limits, and as many workers as
/// one likes.
const APART: &[&str] = &[
    "worker-processes",
    "bind-address",
    "access-log-path",
    "http-access-log-path",
    "stream-access-log-path",
    "error-log-path",
    "enable-syslog",
    "worker-cpu-affinity",
    "max-worker-connections",
    "max-worker-open-files",
];

/// What the nginx role was asked for is what it serves.
fn wait_for_conf(directory: &Directory) -> Result<()> {
    let read =
        |name: &str| fs::read_to_string(directory.join("run").join(name)).unwrap_or_default();
    until("the nginx role", || {
        let (wanted, served) = (read("streams.json"), read("streams.served.json"));
        ensure!(wanted.is_empty() || wanted == served, "nginx.conf is behind");
        Ok(())
    })
}

/// What tells that a version is live: it comes with a host more.
fn another_host(fixture: &Fixture, version: usize) -> Result<()> {
    let host = format!("v{version}.test");
    let next = Ingress {
        key: ("default", &host),
        host: &host,
        annotations: &BTreeMap::new(),
        paths: PATHS,
        secrets: &[],
    };
    fixture.controller.write(&format!("version-{version}.json"), &list(vec![next.json()]))
}

/// Every key of the ConfigMap has every value; `is_tried` chooses keys, which change together.
fn settings(
    directory: &Directory,
    versions: usize,
    seed: u64,
    is_tried: fn(&names::Key) -> bool,
) -> Result<()> {
    let mut fixture = Fixture::start(directory, &["--configmap=default/settings"])?;
    let pool = Pool::new()?;
    let mut random = Random::new(seed);
    let hosts: Vec<_> = (0..40).map(|number| format!("s{number}.test")).collect();
    let items = hosts.iter().flat_map(|host| pool.host(host, &mut random)).collect();
    fixture.controller.serve("hosts.json", &list(items))?;
    let (keys, written) = names::keys()?;
    let keys: Vec<_> =
        keys.iter().filter(|key| is_tried(key) && !APART.contains(&key.name.as_str())).collect();
    let (generic, long) = (texts::generic(), texts::long());
    let values: Vec<Vec<String>> = keys
        .iter()
        .map(|key| {
            let near = texts::near(written.get(&key.name).map_or(&[], Vec::as_slice), &mut random);
            near.into_iter().chain(generic.iter().cloned()).chain(long.iter().cloned()).collect()
        })
        .collect();
    let most = values.iter().map(Vec::len).max().unwrap_or(0);
    let versions = versions.min(most);
    let mut failures = Vec::new();
    let known = fixture.controller.status()?.counts["servers"];
    for version in 0..versions {
        let value = |values: &Vec<String>| {
            let at = (version * most / versions).min(most - 1);
            values[at % values.len()].clone()
        };
        let data: BTreeMap<_, _> =
            keys.iter().map(|key| &key.name).zip(values.iter().map(value)).collect();
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "settings", "namespace": "default"}, "data": data});
        fixture.controller.write("settings.json", &list(vec![map]))?;
        another_host(&fixture, version)?;
        until("the version", || {
            let counts = fixture.controller.status()?.counts;
            ensure!(counts["servers"] == known + version as u64 + 1, "{counts:?}");
            Ok(())
        })?;
        wait_for_conf(directory)?;
        // Whatever it says of clients: it answers or closes, and the log decides.
        let _ = fixture.ask(&hosts[..4]);
        let shown: String = format!("{data:?}").chars().take(2_000).collect();
        if let Err(error) = fixture.nothing_is_refused(&format!("version {version}")) {
            failures.push(format!("{error:#}\n{shown}"));
        }
    }
    let count = failures.len();
    ensure!(count == 0, "OXIGRESS_SEED={seed}: {count} versions\n{}", failures.join("\n"));
    println!("{} keys, {versions} values each, OXIGRESS_SEED={seed}", keys.len());
    fixture.controller.write("settings.json", &list(vec![]))?;
    fixture.bystander_is_fine()
}

fn of_data(key: &names::Key) -> bool {
    !key.is_conf && !key.closes
}

fn of_closing_data(key: &names::Key) -> bool {
    !key.is_conf && key.closes
}

fn of_conf(key: &names::Key) -> bool {
    key.is_conf
}

#[test]
fn every_annotation_with_every_hostile_value() {
    let seed = number("OXIGRESS_SEED", 1);
    pass("values-annotations", |directory| one_at_a_time(directory, seed, 3));
}

#[test]
fn mixtures_of_hostile_values() {
    let cases = number("OXIGRESS_CASES", 1_500);
    pass("values-mixtures", |directory| mixtures(directory, cases, number("OXIGRESS_SEED", 1)));
}

#[test]
fn every_key_of_the_configmap_with_hostile_values() {
    let seed = number("OXIGRESS_SEED", 1);
    pass("values-data", |directory| settings(directory, 110, seed, of_data));
    pass("values-closing", |directory| settings(directory, 100, seed, of_closing_data));
}

#[test]
fn every_key_of_nginx_conf_with_hostile_values() {
    let seed = number("OXIGRESS_SEED", 1);
    pass("values-conf", |directory| settings(directory, 100, seed, of_conf));
}

#[test]
#[ignore = "long"]
fn soak_hostile_values() {
    let cases = number("OXIGRESS_CASES", 100_000);
    for seed in 1..=number("OXIGRESS_SEEDS", 3) {
        pass("values-annotations", |directory| one_at_a_time(directory, seed, 1));
        pass("values-mixtures", |directory| mixtures(directory, cases / 3, seed));
        for is_tried in [of_data, of_closing_data, of_conf] {
            pass("values-settings", |directory| settings(directory, 1_000, seed, is_tried));
        }
    }
}
