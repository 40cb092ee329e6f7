//! The annotations of balancing from a manifest to an answer: valid, invalid and by default.

use anyhow::{Context, Result, ensure};
use oxigress_tests::client::{Address, Connection, Request, Response, send};
use oxigress_tests::controller::Controller;
use oxigress_tests::endpoint::{Behaviour, Endpoint};
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
    let mut text = format!(
        "---\napiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata:\n  name: {name}\n  \
         namespace: default\n  annotations:\n    kubernetes.io/ingress.class: nginx\n"
    );
    for (name, value) in annotations {
        let _ = writeln!(text, "    nginx.ingress.kubernetes.io/{name}: {value:?}");
    }
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
        let slow = Behaviour::Slow(Duration::from_millis(150));
        let endpoints = [
            ("a", Behaviour::Ok),
            ("b", Behaviour::Ok),
            ("slow", slow),
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
        let slow = Behaviour::Slow(Duration::from_millis(150));
        let endpoints = [("a", Behaviour::Ok), ("slow", slow)];
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
        is(&place, "a=2 b=2 c=2 d=2 e=2 f=2", "nothing.test", &[])?;
        place.warns(&["Ingress default/nothing.test", "annotation upstream-hash-by", "groups"])?;

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
    });
}

/// The affinity cookie of an answer: what a client sends back, and the attributes in lower case.
fn cookie(response: &Response) -> Result<(String, String)> {
    let header = response.header("set-cookie").context("no Set-Cookie")?;
    let (pair, attributes) = header.split_once(';').context("no attributes")?;
    Ok((pair.to_owned(), attributes.to_ascii_lowercase()))
}

const COOKIE: (&str, &str) = ("affinity", "cookie");

#[test]
fn affinity_keeps_a_client_with_its_endpoint() {
    pass("annotations-affinity", |directory| {
        let mut place = Place::new(directory, &ok(&["a", "b", "c"]), &[])?;
        place.write(
            "services.yaml",
            "$SERVICE(plain: a b c)\n$SERVICE(shop: a b c)\n$SERVICE(kept: a b c)",
        )?;
        place.ingress("plain.test", "plain", &[("affinity", "ip")])?;
        is(&place, "a=2 b=2 c=2", "plain.test", &[])?;
        place.warns(&["Ingress default/plain.test", "annotation affinity", "ip"])?;

        let paths = [("shop.test", "/", "shop"), ("shop.test", "/cart", "shop")];
        place.write("shop.yaml", &ingress("shop", &paths, &[COOKIE]))?;
        // Says nothing about balancing: the cookie counts, and none is given out.
        place.ingress("silent.test", "shop", &[])?;
        place.ingress("kept.test", "kept", &[COOKIE, ("affinity-mode", "persistent")])?;
        for (host, target, path) in [
            ("shop.test", "/", "path=/;"),
            ("shop.test", "/cart/1", "path=/cart;"),
            ("kept.test", "/", "path=/;"),
        ] {
            let first = place.get(host, target, &[])?;
            let (pair, attributes) = cookie(&first)?;
            ensure!(pair.starts_with("INGRESSCOOKIE="), "{pair}");
            ensure!(attributes.contains(path), "{attributes}");
            ensure!(attributes.contains("httponly"), "{attributes}");
            for absent in ["expires", "max-age", "domain", "secure", "samesite"] {
                ensure!(!attributes.contains(absent), "{attributes}");
            }
            let endpoint = first.endpoint().context("an endpoint")?;
            is(&place, &format!("{endpoint}=12"), host, &[("Cookie", &pair)])?;
            ensure!(place.get(host, target, &[("Cookie", &pair)])?.header("set-cookie").is_none());
            if host == "shop.test" {
                is(&place, &format!("{endpoint}=12"), "silent.test", &[("Cookie", &pair)])?;
            }
        }
        ensure!(place.get("silent.test", "/", &[])?.header("set-cookie").is_none());
        Ok(())
    });
}

#[test]
fn session_cookie_annotations_are_its_attributes() {
    pass("annotations-session-cookie", |directory| {
        let mut place = Place::new(directory, &ok(&["a", "b"]), &[])?;
        place.write("services.yaml", "$SERVICE(shop: a b)\n$SERVICE(odd: a b)")?;
        let all = [
            COOKIE,
            ("session-cookie-name", "route"),
            ("session-cookie-path", "/shop"),
            ("session-cookie-domain", "shop.test"),
            ("session-cookie-expires", "172800"),
            ("session-cookie-max-age", "172801"),
            ("session-cookie-samesite", "none"),
            ("session-cookie-conditional-samesite-none", "true"),
            ("session-cookie-secure", "true"),
        ];
        place.ingress("shop.test", "shop", &all)?;
        let modern = "Mozilla/5.0 Firefox/140.0";
        let (pair, attributes) =
            cookie(&place.get("shop.test", "/", &[("User-Agent", modern)])?)?;
        ensure!(pair.starts_with("route="), "{pair}");
        for part in [
            "path=/shop",
            "domain=shop.test",
            "max-age=172801",
            "secure",
            "httponly",
            "samesite=none",
            "expires=",
        ] {
            ensure!(attributes.contains(part), "{part} is not in {attributes}");
        }
        let old = "Mozilla/5.0 Chrome/55.0";
        let (_, attributes) = cookie(&place.get("shop.test", "/", &[("User-Agent", old)])?)?;
        ensure!(!attributes.contains("samesite"), "{attributes}");

        let odd = [
            COOKIE,
            ("affinity-mode", "sticky"),
            ("session-cookie-name", "a=b"),
            ("session-cookie-path", "/;x"),
            ("session-cookie-domain", "x;y"),
            ("session-cookie-expires", "abc5"),
            ("session-cookie-max-age", "5s"),
            ("session-cookie-samesite", "both"),
            ("session-cookie-conditional-samesite-none", "yes"),
            ("session-cookie-secure", "yes"),
            ("session-cookie-change-on-failure", "yes"),
        ];
        place.ingress("odd.test", "odd", &odd)?;
        let (pair, attributes) = cookie(&place.get("odd.test", "/", &[])?)?;
        ensure!(pair.starts_with("INGRESSCOOKIE="), "{pair}");
        ensure!(attributes.trim() == "path=/; httponly", "{attributes}");
        for (name, _) in &odd[1..] {
            place.warns(&["Ingress default/odd.test", &format!("annotation {name}:")])?;
        }
        Ok(())
    });
}

#[test]
fn change_on_failure_gives_a_client_another_endpoint_for_good() {
    pass("annotations-change-on-failure", |directory| {
        let mut place = Place::new(directory, &ok(&["a", "b", "c"]), &[])?;
        place.write("services.yaml", "$SERVICE(change: a b c)\n$SERVICE(stay: a b c)")?;
        place.ingress("stay.test", "stay", &[COOKIE])?;
        place.ingress(
            "change.test",
            "change",
            &[COOKIE, ("session-cookie-change-on-failure", "true")],
        )?;
        for (host, changes) in [("stay.test", false), ("change.test", true)] {
            let first = place.get(host, "/", &[])?;
            let (pair, _) = cookie(&first)?;
            let endpoint = first.endpoint().context("an endpoint")?;
            place.endpoint(&endpoint)?.change(Behaviour::Close);
            let next = place.get(host, "/", &[("Cookie", &pair)])?;
            ensure!(next.endpoint().as_ref() != Some(&endpoint), "{next:?}");
            let is_given = next.header("set-cookie").is_some();
            ensure!(is_given == changes, "{host}: {:?}", next.header("set-cookie"));
            place.endpoint(&endpoint)?.change(Behaviour::Ok);
        }
        Ok(())
    });
}

const CANARY: (&str, &str) = ("canary", "true");

/// A main Service with endpoint `main` and one for the canary on the same host.
fn with_canary(place: &mut Place, rules: &[(&str, &str)]) -> Result<()> {
    let text = ingress("canary", &[("shop.test", "/", "next")], &[&[CANARY], rules].concat());
    place.write("canary.yaml", &text)
}

fn canary_place(directory: &Directory) -> Result<Place> {
    let mut place = Place::new(directory, &ok(&["main", "next", "third"]), &[])?;
    place.write(
        "services.yaml",
        "$SERVICE(main: main)\n$SERVICE(next: next)\n$SERVICE(third: third)",
    )?;
    place.ingress("shop.test", "main", &[])?;
    Ok(place)
}

#[test]
fn a_canary_takes_its_weight() {
    pass("annotations-canary-weight", |directory| {
        let mut place = canary_place(directory)?;
        is(&place, "main=20", "shop.test", &[])?;
        with_canary(&mut place, &[])?;
        is(&place, "main=20", "shop.test", &[])?;
        place.warns(&["Ingress default/canary", "a canary without a rule"])?;
        for (weight, total, expected) in [
            ("0", "100", "main=20"),
            ("100", "100", "next=20"),
            ("100", "50", "next=20"),
            ("1000", "1000", "next=20"),
            ("20%", "100", "main=20"),
        ] {
            let total = ("canary-weight-total", total);
            with_canary(&mut place, &[("canary-weight", weight), total])?;
            is(&place, expected, "shop.test", &[]).with_context(|| weight.to_owned())?;
        }
        place.warns(&["Ingress default/canary", "annotation canary-weight", "20%"])?;
        with_canary(&mut place, &[("canary-weight", "100"), ("canary-weight-total", "lots")])?;
        is(&place, "next=20", "shop.test", &[])?;
        place.warns(&["Ingress default/canary", "annotation canary-weight-total", "lots"])?;

        // 400 draws of one half are within 120 and 280 but for once in 10^15.
        with_canary(&mut place, &[("canary-weight", "50")])?;
        let spread = place.spread(400, "shop.test", "/", &[])?;
        ensure!(spread.values().all(|count| (120..=280).contains(count)), "{}", text(&spread));

        // Weights of several canaries add up.
        let third =
            ingress("third", &[("shop.test", "/", "third")], &[CANARY, ("canary-weight", "50")]);
        place.write("third.yaml", &third)?;
        let spread = place.spread(400, "shop.test", "/", &[])?;
        ensure!(!spread.contains_key("main") && spread.len() == 2, "{}", text(&spread));
        ensure!(spread.values().all(|count| (120..=280).contains(count)), "{}", text(&spread));

        place.controller.remove("third.yaml")?;
        place.controller.remove("canary.yaml")?;
        is(&place, "main=20", "shop.test", &[])
    });
}

#[test]
fn a_canary_is_asked_for_by_header_and_cookie() {
    pass("annotations-canary-rules", |directory| {
        let mut place = canary_place(directory)?;
        let by_header = ("canary-by-header", "X-Next");
        let full = ("canary-weight", "100");
        with_canary(&mut place, &[by_header, ("canary-by-cookie", "next")])?;
        for (name, value, expected) in [
            ("X-Next", "always", "next=3"),
            ("X-Next", "never", "main=3"),
            ("X-Next", "other", "main=3"),
            ("X-Other", "always", "main=3"),
            ("Cookie", "next=always", "next=3"),
            ("Cookie", "next=never", "main=3"),
            ("Cookie", "other=always", "main=3"),
        ] {
            is(&place, expected, "shop.test", &[(name, value)])?;
        }
        with_canary(&mut place, &[by_header, full])?;
        is(&place, "main=3", "shop.test", &[("X-Next", "never")])?;
        is(&place, "next=3", "shop.test", &[("X-Next", "other")])?;

        with_canary(&mut place, &[by_header, ("canary-by-header-value", "v 2")])?;
        is(&place, "next=3", "shop.test", &[("X-Next", "v 2")])?;
        is(&place, "main=3", "shop.test", &[("X-Next", "always")])?;
        with_canary(&mut place, &[by_header, ("canary-by-header-pattern", "^v[23]$")])?;
        is(&place, "next=3", "shop.test", &[("X-Next", "v3")])?;
        is(&place, "main=3", "shop.test", &[("X-Next", "v4")])?;

        // What cannot be read is no rule at all.
        for (name, value) in [("canary-by-header-value", "a;b"), ("canary-by-header-pattern", "(")]
        {
            with_canary(&mut place, &[by_header, (name, value)])?;
            is(&place, "main=3", "shop.test", &[("X-Next", "always")])?;
            is(&place, "main=3", "shop.test", &[("X-Next", value)])?;
            place.warns(&["Ingress default/canary", &format!("annotation {name}")])?;
        }
        let odd = [("canary-by-header", "X Next"), ("canary-by-cookie", "a b")];
        with_canary(&mut place, &odd)?;
        is(&place, "main=3", "shop.test", &[("Cookie", "a b=always")])?;
        for (name, _) in odd {
            place.warns(&["Ingress default/canary", &format!("annotation {name}")])?;
        }
        Ok(())
    });
}

#[test]
fn a_canary_belongs_to_the_paths_that_it_claims() {
    pass("annotations-canary-paths", |directory| {
        let mut place = canary_place(directory)?;
        let full = ("canary-weight", "100");
        let paths = [
            ("shop.test", "/", "main"),
            ("shop.test", "/cart", "main"),
            ("next.test", "/", "next"),
        ];
        place.write("ingress-shop.test.yaml", &ingress("shop.test", &paths, &[]))?;
        let claims = [
            ("shop.test", "/cart", "next"),
            ("shop.test", "/none", "next"),
            ("other.test", "/", "next"),
        ];
        place.write("canary.yaml", &ingress("canary", &claims, &[CANARY, full]))?;
        for (host, target, endpoint) in [
            ("shop.test", "/", "main"),
            ("shop.test", "/cart", "next"),
            ("shop.test", "/none", "main"),
            ("next.test", "/", "next"),
        ] {
            let response = place.get(host, target, &[])?;
            ensure!(
                response.endpoint().as_deref() == Some(endpoint),
                "{host}{target}: {response:?}"
            );
        }
        ensure!(place.get("other.test", "/", &[])?.status == 404);
        place.warns(&["Ingress default/canary", "host other.test path /"])?;
        place.warns(&[
            "Ingress default/canary",
            "path / (Prefix) leads to Service default/main too",
        ])?;

        // Nobody knows what it is: it is neither.
        place.write("canary.yaml", &ingress("canary", &claims, &[("canary", "yes"), full]))?;
        ensure!(place.get("shop.test", "/cart", &[])?.endpoint().as_deref() == Some("main"));
        ensure!(place.get("other.test", "/", &[])?.status == 404);
        place.warns(&["Ingress default/canary", "annotation canary:"])?;
        // Without `canary` the rules say nothing.
        place.write("canary.yaml", &ingress("canary", &claims, &[full]))?;
        ensure!(place.get("other.test", "/", &[])?.endpoint().as_deref() == Some("next"));
        place.warns(&["Ingress default/canary", "no effect of canary-weight"])
    });
}

#[test]
fn sessions_stay_with_a_canary_unless_it_is_legacy() {
    pass("annotations-canary-affinity", |directory| {
        let mut place = canary_place(directory)?;
        place.ingress("shop.test", "main", &[COOKIE])?;
        let by_header = ("canary-by-header", "X-Next");
        // The last one is invalid, which is the default.
        let behaviors =
            [(None, true), (Some("sticky"), true), (Some("legacy"), false), (Some("odd"), true)];
        for (behavior, is_sticky) in behaviors {
            let behavior = behavior.map(|behavior| ("affinity-canary-behavior", behavior));
            let rules: Vec<_> = [by_header].into_iter().chain(behavior).collect();
            with_canary(&mut place, &rules)?;
            let first = place.get("shop.test", "/", &[("X-Next", "always")])?;
            ensure!(first.endpoint().as_deref() == Some("next"), "{first:?}");
            ensure!(first.header("set-cookie").is_some() == is_sticky, "{behavior:?}: {first:?}");
            if is_sticky {
                let (pair, _) = cookie(&first)?;
                is(&place, "next=5", "shop.test", &[("Cookie", &pair)])?;
            }
        }
        // Who is with the main Service stays there.
        let (pair, _) = cookie(&place.get("shop.test", "/", &[])?)?;
        is(&place, "main=5", "shop.test", &[("Cookie", &pair), ("X-Next", "always")])
    });
}

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
