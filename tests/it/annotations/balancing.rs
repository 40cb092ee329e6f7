//! The annotations of balancing from a manifest to an answer: valid, invalid and by default.

mod affinity;
mod canaries;

use anyhow::{Context, Result, ensure};
use oxigress_tests::client::{Address, Connection, Request, Response, send};
use oxigress_tests::controller::Controller;
use oxigress_tests::endpoint::{Behaviour, Endpoint};
use oxigress_tests::manifest::ingress_head;
use oxigress_tests::pass;
use oxigress_tests::place::Directory;
use oxigress_tests::variables::Variables;
use oxigress_tests::wait::{self, block_on, runtime};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// An answer that nobody waits for.
const LONG: Duration = Duration::from_secs(25);
/// Slower than any endpoint seems when the machine is busy: one answer that comes late counts for seconds.
const SLOW: Duration = Duration::from_millis(700);

struct Place {
    /// Dropped first: requests that are under way end with their endpoints.
    variables: Variables,
    controller: Controller,
}

impl Place {
    fn new(directory: &Directory, endpoints: &[(&str, Behaviour)], flags: &[&str]) -> Result<Self> {
        let flags: Vec<_> = flags.iter().map(|flag| flag.to_string()).collect();
        let mut variables = Variables::default();
        for (name, behaviour) in endpoints {
            let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
            let endpoint = Endpoint::with(name, behaviour.clone(), loopback)?;
            variables.endpoints.insert((*name).into(), endpoint);
        }
        Ok(Place { variables, controller: Controller::start(directory, 2, &flags)? })
    }

    fn write(&mut self, name: &str, text: &str) -> Result<()> {
        let text = self.variables.expand(text)?;
        self.controller.serve(name, &text).with_context(|| name.to_owned())
    }

    /// Writes an Ingress for the root of `host`.
    fn ingress(&mut self, host: &str, service: &str, annotations: &[(&str, &str)]) -> Result<()> {
        let text = ingress(host, &[(host, "/", service)], annotations);
        self.write(&format!("ingress-{host}.yaml"), &text)
    }

    fn endpoint(&self, name: &str) -> Result<&Endpoint> {
        self.variables.endpoints.get(name).with_context(|| name.to_owned())
    }

    fn address(&self) -> Address {
        Address::http(self.controller.http_port)
    }

    fn get(&self, host: &str, target: &str, headers: &[(&str, &str)]) -> Result<Response> {
        let request = Request::get(host, target);
        let request = headers.iter().fold(request, |r, (name, value)| r.header(name, value));
        block_on(send(&self.address(), &request))
    }

    /// How many of so many requests each endpoint answered.
    fn spread(
        &self,
        count: usize,
        host: &str,
        target: &str,
        headers: &[(&str, &str)],
    ) -> Result<BTreeMap<String, usize>> {
        let mut spread = BTreeMap::new();
        let mut connection = block_on(Connection::open(&self.address()))?;
        for _ in 0..count {
            let request = Request::get(host, target);
            let request = headers.iter().fold(request, |r, (name, value)| r.header(name, value));
            let response = block_on(connection.send(&request))?;
            ensure!(response.status == 200, "{host}{target}: {}", response.status);
            *spread.entry(response.endpoint().context("an endpoint")?).or_default() += 1;
        }
        Ok(spread)
    }

    /// Fails unless one line of the log has all these words.
    fn warns(&self, words: &[&str]) -> Result<()> {
        wait::until("a line in the log", || {
            let log = self.controller.error_log();
            let is_told = log.lines().any(|line| words.iter().all(|word| line.contains(word)));
            ensure!(is_told, "no line with {words:?}");
            Ok(())
        })
    }
}

fn ingress(name: &str, paths: &[(&str, &str, &str)], annotations: &[(&str, &str)]) -> String {
    let mut text = ingress_head(name, annotations.iter().copied());
    text += "spec:\n  rules:\n";
    for (host, path, service) in paths {
        let _ = write!(
            text,
            "  - host: {host}\n    http:\n      paths:\n      - {{ path: {path}, pathType: Prefix, \
             backend: {{ service: {{ name: {service}, port: {{ number: 80 }} }} }} }}\n"
        );
    }
    text
}

fn ok<'n>(names: &[&'n str]) -> Vec<(&'n str, Behaviour)> {
    names.iter().map(|name| (*name, Behaviour::Ok)).collect()
}

/// Endpoints and their counts in short: `a=2 b=2`.
fn text(spread: &BTreeMap<String, usize>) -> String {
    let parts: Vec<_> = spread.iter().map(|(name, count)| format!("{name}={count}")).collect();
    parts.join(" ")
}

fn is(place: &Place, expected: &str, host: &str, headers: &[(&str, &str)]) -> Result<()> {
    let count =
        expected.split(' ').filter_map(|part| part.split('=').nth(1)?.parse::<usize>().ok());
    let spread = text(&place.spread(count.sum(), host, "/", headers)?);
    ensure!(spread == expected, "{host} {headers:?}: {spread}, not {expected}");
    Ok(())
}

#[test]
fn load_balance_chooses_the_algorithm() {
    pass("annotations-load-balance", |directory| {
        let endpoints = [
            ("a", Behaviour::Ok),
            ("b", Behaviour::Ok),
            ("slow", Behaviour::Slow(SLOW)),
            ("held", Behaviour::Slow(LONG)),
        ];
        let mut place = Place::new(directory, &endpoints, &[])?;
        for name in ["plain", "even", "odd"] {
            place.write(&format!("{name}.yaml"), &format!("$SERVICE({name}: a b)"))?;
        }
        place.ingress("plain.test", "plain", &[])?;
        is(&place, "a=10 b=10", "plain.test", &[])?;
        place.ingress("even.test", "even", &[("load-balance", "round_robin")])?;
        is(&place, "a=10 b=10", "even.test", &[])?;
        place.ingress("odd.test", "odd", &[("load-balance", "random")])?;
        is(&place, "a=10 b=10", "odd.test", &[])?;
        place.warns(&["Ingress default/odd.test", "annotation load-balance", "random"])?;

        for name in ["ewma", "p2c"] {
            place.write(&format!("{name}.yaml"), &format!("$SERVICE({name}: a slow)"))?;
            place.ingress(&format!("{name}.test"), name, &[("load-balance", name)])?;
            let spread = place.spread(30, &format!("{name}.test"), "/", &[])?;
            let to_slow = spread.get("slow").copied().unwrap_or_default();
            ensure!(to_slow <= 5, "{name}: {}", text(&spread));
        }

        place.write("least.yaml", "$SERVICE(least: a held)")?;
        place.ingress("least.test", "least", &[("load-balance", "least_conn")])?;
        // One request stays with `held`; as long as it does, `a` has fewer.
        // One after the other: several at once would go to both.
        let mut task: Option<tokio::task::JoinHandle<_>> = None;
        wait::until("a request at the endpoint that holds it", || {
            let is_held = place.endpoint("held")?.requests() > 0;
            if !is_held && task.as_ref().is_none_or(|task| task.is_finished()) {
                let address = place.address();
                let request = async move { send(&address, &Request::get("least.test", "/")).await };
                task = Some(runtime().spawn(request));
            }
            ensure!(is_held, "none");
            Ok(())
        })?;
        is(&place, "a=10", "least.test", &[])
    });
}

#[test]
fn the_configmap_has_the_default_of_load_balance_and_service_upstream() {
    pass("annotations-configmap", |directory| {
        let endpoints = [("a", Behaviour::Ok), ("slow", Behaviour::Slow(SLOW))];
        let mut place = Place::new(directory, &endpoints, &["--configmap=default/settings"])?;
        place.write("services.yaml", "$SERVICE(shop: a slow)\n$SERVICE(even: a slow)")?;
        place.ingress("shop.test", "shop", &[])?;
        place.ingress("even.test", "even", &[("load-balance", "round_robin")])?;
        is(&place, "a=5 slow=5", "shop.test", &[])?;
        let map =
            "apiVersion: v1\nkind: ConfigMap\nmetadata: { name: settings, namespace: default }\n";
        place.write("settings.yaml", &format!("{map}data: {{ load-balance: ewma }}"))?;
        let spread = place.spread(30, "shop.test", "/", &[])?;
        ensure!(spread.get("slow").copied().unwrap_or_default() <= 5, "{}", text(&spread));
        is(&place, "a=5 slow=5", "even.test", &[])?;
        place.write("settings.yaml", &format!("{map}data: {{ load-balance: random }}"))?;
        is(&place, "a=5 slow=5", "shop.test", &[])?;
        place.warns(&["ConfigMap default/settings", "load-balance", "random"])
    });
}

#[test]
fn upstream_hash_by_leads_equal_keys_to_one_endpoint() {
    pass("annotations-hash-by", |directory| {
        let mut place = Place::new(directory, &ok(&["a", "b", "c", "d", "e", "f"]), &[])?;
        for name in ["plain", "key", "odd", "subset", "pair"] {
            place.write(&format!("{name}.yaml"), &format!("$SERVICE({name}: a b c d e f)"))?;
        }
        place.ingress("plain.test", "plain", &[])?;
        is(&place, "a=2 b=2 c=2 d=2 e=2 f=2", "plain.test", &[])?;

        let by_user = ("upstream-hash-by", "$arg_user");
        place.ingress("key.test", "key", &[by_user])?;
        let mut all = BTreeMap::new();
        for user in 0..30 {
            let spread = place.spread(4, "key.test", &format!("/?user={user}"), &[])?;
            ensure!(spread.len() == 1, "user {user}: {}", text(&spread));
            all.extend(spread);
        }
        ensure!(all.len() >= 3, "all users go to {}", text(&all));

        place.ingress("odd.test", "odd", &[("upstream-hash-by", "$arg_user;")])?;
        is(&place, "a=2 b=2 c=2 d=2 e=2 f=2", "odd.test", &[])?;
        place.warns(&["Ingress default/odd.test", "annotation upstream-hash-by"])?;

        captured_groups_are_keys(&mut place)?;
        subsets_are_at_random(&mut place)
    });
}

fn captured_groups_are_keys(place: &mut Place) -> Result<()> {
    // What the path's group takes is the key, before and after a rewrite.
    let captured = ("upstream-hash-by", "$1");
    let paths = [("path.test", "\"/users/([^/]+)(/.*)?\"", "key")];
    for more in [("use-regex", "true"), ("rewrite-target", "/inner$2")] {
        place.write("path.yaml", &ingress("path", &paths, &[captured, more]))?;
        let mut all = BTreeMap::new();
        for user in 0..30 {
            let one = place.spread(2, "path.test", &format!("/users/{user}"), &[])?;
            let other = place.spread(2, "path.test", &format!("/users/{user}/x?y"), &[])?;
            ensure!(one.len() == 1 && one == other, "user {user}: {one:?}, {other:?}");
            all.extend(one);
        }
        ensure!(all.len() >= 3, "all users go to {}", text(&all));
    }
    place.ingress("nothing.test", "odd", &[captured])?;
    is(place, "a=2 b=2 c=2 d=2 e=2 f=2", "nothing.test", &[])?;
    place.warns(&["Ingress default/nothing.test", "annotation upstream-hash-by", "groups"])?;
    Ok(())
}

fn subsets_are_at_random(place: &mut Place) -> Result<()> {
    let by_user = ("upstream-hash-by", "$arg_user");
    // At random within the set: 60 requests miss an endpoint of three once in 10^10.
    let subset = ("upstream-hash-by-subset", "true");
    place.ingress("subset.test", "subset", &[by_user, subset])?;
    let spread = place.spread(60, "subset.test", "/?user=1", &[])?;
    ensure!(spread.len() == 3, "{}", text(&spread));
    let size = ("upstream-hash-by-subset-size", "2");
    place.ingress("pair.test", "pair", &[by_user, subset, size])?;
    let spread = place.spread(60, "pair.test", "/?user=1", &[])?;
    ensure!(spread.len() == 2, "{}", text(&spread));
    let odd = ("upstream-hash-by-subset-size", "two");
    place.ingress("pair.test", "pair", &[by_user, subset, odd])?;
    let spread = place.spread(60, "pair.test", "/?user=1", &[])?;
    ensure!(spread.len() == 3, "{}", text(&spread));
    place.warns(&["Ingress default/pair.test", "annotation upstream-hash-by-subset-size"])?;
    let odd = ("upstream-hash-by-subset", "maybe");
    place.ingress("pair.test", "pair", &[by_user, odd, size])?;
    let spread = place.spread(20, "pair.test", "/?user=1", &[])?;
    ensure!(spread.len() == 1, "{}", text(&spread));
    place.warns(&["Ingress default/pair.test", "annotation upstream-hash-by-subset"])
}

/// The affinity cookie of an answer: what a client sends back, and the attributes in lower case.
fn cookie(response: &Response) -> Result<(String, String)> {
    let header = response.header("set-cookie").context("no Set-Cookie")?;
    let (pair, attributes) = header.split_once(';').context("no attributes")?;
    Ok((pair.to_owned(), attributes.to_ascii_lowercase()))
}

const COOKIE: (&str, &str) = ("affinity", "cookie");

#[test]
fn service_upstream_leads_to_the_service_s_own_address() {
    pass("annotations-service-upstream", |directory| {
        let mut place =
            Place::new(directory, &ok(&["pod", "service"]), &["--configmap=default/settings"])?;
        let slice = "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\naddressType: IPv4\n\
                     ports: [{ port: $PORT_pod }]\nendpoints: [{ addresses: [127.0.0.1] }]\n\
                     metadata: { namespace: default, ";
        let mut all = String::new();
        for (name, address) in [
            ("plain", "127.0.0.1"),
            ("on", "127.0.0.1"),
            ("off", "127.0.0.1"),
            ("odd", "127.0.0.1"),
            ("bare", "None"),
        ] {
            let _ = write!(
                all,
                "---\n{slice}name: {name}, labels: {{ kubernetes.io/service-name: {name} }} }}\n---\n\
                 apiVersion: v1\nkind: Service\nmetadata: {{ name: {name}, namespace: default }}\n\
                 spec: {{ clusterIP: {address}, ports: [{{ port: $PORT_service }}] }}\n"
            );
            let value = match name {
                "off" => Some("false"),
                "odd" => Some("yes"),
                "plain" => None,
                _ => Some("true"),
            };
            let annotations: Vec<_> =
                value.map(|value| ("service-upstream", value)).into_iter().collect();
            let rules = ingress(name, &[(&format!("{name}.test"), "/", name)], &annotations);
            all += &rules.replace("number: 80", "number: $PORT_service");
        }
        place.write("all.yaml", &all)?;
        for name in ["plain", "off", "odd", "bare"] {
            is(&place, "pod=3", &format!("{name}.test"), &[])?;
        }
        is(&place, "service=3", "on.test", &[])?;
        place.warns(&["Ingress default/odd", "annotation service-upstream", "yes"])?;
        place.warns(&["Ingress default/bare", "has no cluster IP"])?;
        let map =
            "apiVersion: v1\nkind: ConfigMap\nmetadata: { name: settings, namespace: default }\n";
        place.write("settings.yaml", &format!("{map}data: {{ service-upstream: \"true\" }}"))?;
        is(&place, "service=3", "plain.test", &[])?;
        is(&place, "service=3", "odd.test", &[])?;
        is(&place, "pod=3", "off.test", &[])
    });
}

#[test]
fn a_draining_endpoint_gets_requests_only_while_no_other_is_left() {
    pass("annotations-draining", |directory| {
        let mut place = Place::new(directory, &ok(&["old", "new"]), &[])?;
        let slice = |name: &str, conditions: &str| {
            format!(
                "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\naddressType: IPv4\n\
                 metadata: {{ name: {name}, namespace: default, labels: {{ kubernetes.io/service-name: shop }} }}\n\
                 ports: [{{ name: http, port: $PORT_{name} }}]\n\
                 endpoints: [{{ addresses: [127.0.0.1], conditions: {{ {conditions} }} }}]\n"
            )
        };
        let ready = "ready: true, serving: true, terminating: false";
        let draining = "ready: false, serving: true, terminating: true";
        let ended = "ready: false, serving: false, terminating: true";
        place.write("service.yaml", "$SERVICE(shop:)")?;
        place.ingress("shop.test", "shop", &[])?;
        for (old, new, expected) in [
            (ready, ready, Some("new=2 old=2")),
            (draining, ready, Some("new=4")),
            (draining, draining, Some("new=2 old=2")),
            (draining, ended, Some("old=4")),
            (ended, ended, None),
        ] {
            place.write("slices.yaml", &(slice("old", old) + &slice("new", new)))?;
            match expected {
                Some(expected) => is(&place, expected, "shop.test", &[])?,
                None => ensure!(place.get("shop.test", "/", &[])?.status == 503),
            }
        }
        Ok(())
    });
}
