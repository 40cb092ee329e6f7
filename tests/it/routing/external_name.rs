//! Services of type ExternalName, from a folder of manifests to the answer, with a fake name server.

use anyhow::{Context, Result, ensure};
use oxigress_tests::controller::Controller;
use oxigress_tests::endpoint::{Behaviour, Endpoint};
use oxigress_tests::fake_dns::{FakeDns, Reply, ResponseCode};
use oxigress_tests::pass;
use oxigress_tests::place::Directory;
use oxigress_tests::process::signal_pid;
use oxigress_tests::shop::Shop;
use oxigress_tests::wait::until;
use rustix::process::Signal;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// A product that asks a fake name server.
struct Named {
    shop: Shop,
    dns: FakeDns,
    resolv_conf: PathBuf,
}

const ONE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 1));
const TWO: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

impl Named {
    fn start(directory: &Directory, options: &str) -> Result<Self> {
        let dns = FakeDns::start()?;
        let resolv_conf = directory.join("resolv.conf");
        fs::write(&resolv_conf, dns.line() + options)?;
        let flag = format!("--resolv-conf={}", resolv_conf.display());
        let controller = Controller::start_apart(directory, 1, &[flag])?;
        Ok(Named { shop: Shop::new(controller, &[], &[])?, dns, resolv_conf })
    }

    /// Serves `http://HOST/` from what `name` stands for.
    fn serve(&mut self, host: &str, name: &str, port: u16) -> Result<()> {
        self.shop.write(&format!("{host}.yaml"), &manifests(host, name, port))
    }

    fn waits_for(&self, host: &str, endpoint: &str) -> Result<()> {
        until(endpoint, || self.shop.serves(host, "/", endpoint))
    }

    fn waits_for_log(&self, text: &str) -> Result<()> {
        until(text, || {
            ensure!(self.shop.controller.error_log().contains(text), "not in the log: {text:?}");
            Ok(())
        })
    }
}

fn manifests(host: &str, name: &str, port: u16) -> String {
    let service = host.replace('.', "-");
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{ name: {service}, namespace: default }}\n\
         spec: {{ type: ExternalName, externalName: \"{name}\", ports: [{{ port: 80, targetPort: {port} }}] }}\n\
         $INGRESS({service}: {host}/ {service})"
    )
}

/// Two on one port, so that a name may change from one to the other.
fn pair() -> Result<[Endpoint; 2]> {
    until("a port on two addresses", || {
        let one = Endpoint::at("one", Behaviour::Ok, SocketAddr::new(ONE, 0))?;
        let there = SocketAddr::new(TWO, one.address.port());
        Ok([one, Endpoint::at("two", Behaviour::Ok, there)?])
    })
}

#[test]
fn a_name_leads_where_dns_says_and_follows_it() {
    pass("external-name-moves", |directory| {
        let [one, _two] = pair()?;
        let mut named = Named::start(directory, "")?;
        named.dns.set_address("db.test", ONE);
        named.serve("a.test", "db.test", one.address.port())?;
        named.waits_for("a.test", "one")?;
        named.dns.set_address("db.test", TWO);
        named.waits_for("a.test", "two")?;
        named.dns.set("db.test", Reply::Alias("other.test".into()));
        named.dns.set_address("other.test", ONE);
        named.waits_for("a.test", "one")?;
        Ok(())
    });
}

#[test]
fn a_name_is_asked_for_again_when_its_ttl_has_passed_and_not_before() {
    pass("external-name-ttl", |directory| {
        let [one, _two] = pair()?;
        let mut named = Named::start(directory, "")?;
        // An hour counts as 30 s; none at all as one.
        named.dns.set("long.test", Reply::Addresses(vec![ONE], 3_600));
        named.dns.set("short.test", Reply::Addresses(vec![ONE], 0));
        named.serve("long.x.test", "long.test", one.address.port())?;
        named.serve("short.x.test", "short.test", one.address.port())?;
        named.waits_for("long.x.test", "one")?;
        named.waits_for("short.x.test", "one")?;
        let count = |name: &str| named.dns.asked().iter().filter(|asked| *asked == name).count();
        let start = Instant::now();
        let before = count("short.test");
        until("five more queries", || {
            ensure!(count("short.test") >= before + 5, "{} queries", count("short.test"));
            Ok(())
        })?;
        let took = start.elapsed();
        ensure!(took >= Duration::from_secs(4), "five queries in {took:?}");
        ensure!(count("long.test") == 1, "{} queries", count("long.test"));
        Ok(())
    });
}

#[test]
fn a_failure_keeps_the_last_good_answer_also_across_restarts() {
    pass("external-name-failure", |directory| {
        let [one, _two] = pair()?;
        let mut named = Named::start(directory, "options timeout:1 attempts:1\n")?;
        named.serve("a.test", "db.test", one.address.port())?;
        named.shop.answers("a.test", "/", 503)?;
        named.waits_for_log(
            "DNS has no address for db.test, externalName of Service default/a-test",
        )?;
        named.dns.set_address("db.test", ONE);
        named.waits_for("a.test", "one")?;
        for (said, why) in [
            (Reply::Error(ResponseCode::ServFail), "Server Failure"),
            (Reply::Error(ResponseCode::NXDomain), "no such name"),
            (Reply::Addresses(vec![], 1), "nor AAAA records"),
            (Reply::Silence, "no name server answers"),
        ] {
            named.dns.set("db.test", said);
            named.waits_for_log(&format!("{why}): the last addresses stay in use"))?;
            named.shop.serves("a.test", "/", "one").context(why)?;
        }
        // A controller that starts while no name server answers publishes what its predecessor knew.
        let kept = directory.join("run").join("names.json");
        until("the answer to be kept", || {
            ensure!(fs::read_to_string(&kept)?.contains("127.0.0.1"));
            Ok(())
        })?;
        signal_pid(named.shop.controller.pid(), Signal::KILL)?;
        named.shop.controller.start_again(&[])?;
        named.shop.controller.catch_up()?;
        named.shop.serves("a.test", "/", "one").context("after a restart")
    });
}

#[test]
fn search_domains_come_first_when_a_name_has_few_dots() {
    pass("external-name-search", |directory| {
        let [one, _two] = pair()?;
        let options = "search ns.svc.test svc.test\noptions edns0 ndots:2\n";
        let mut named = Named::start(directory, options)?;
        named.dns.set_address("db.svc.test", ONE);
        named.dns.set_address("a.b.c", TWO);
        named.serve("few.test", "db", one.address.port())?;
        named.serve("many.test", "a.b.c", one.address.port())?;
        named.serve("full.test", "db.svc.test.", one.address.port())?;
        for (host, endpoint) in [("few.test", "one"), ("many.test", "two"), ("full.test", "one")] {
            named.waits_for(host, endpoint)?;
        }
        let asked = named.dns.asked();
        let first = asked.iter().position(|name| name == "db.ns.svc.test").context("asked")?;
        let second = asked.iter().position(|name| name == "db.svc.test").context("asked")?;
        ensure!(first < second, "{asked:?}");
        for never in ["db", "a.b.c.ns.svc.test", "db.svc.test.ns.svc.test"] {
            ensure!(!asked.iter().any(|name| name == never), "{never} was asked for: {asked:?}");
        }
        // A trouble with the first domain must not lead to what another one means by the name.
        named.dns.set("db.svc.test", Reply::Error(ResponseCode::ServFail));
        named.dns.set_address("db", TWO);
        named.waits_for_log("Server Failure")?;
        named.shop.serves("few.test", "/", "one")?;
        // That it is gone is an answer.
        named.dns.set("db.svc.test", Reply::Error(ResponseCode::NXDomain));
        named.waits_for("few.test", "two")
    });
}

#[test]
fn ipv6_addresses_count_when_there_are_no_others_and_long_answers_come_over_tcp() {
    pass("external-name-families", |directory| {
        let v6 = IpAddr::V6(Ipv6Addr::LOCALHOST);
        let six = Endpoint::with("six", Behaviour::Ok, v6)?;
        let four = Endpoint::start("four")?;
        let mut named = Named::start(directory, "")?;
        named.dns.set_address("six.test", v6);
        named.dns.set("both.test", Reply::Addresses(vec![v6, ONE], 1));
        named.dns.set("long.test", Reply::OverTcp(vec![ONE]));
        named.serve("six.x.test", "six.test", six.address.port())?;
        named.serve("both.x.test", "both.test", four.address.port())?;
        named.serve("long.x.test", "long.test", four.address.port())?;
        named.waits_for("six.x.test", "six")?;
        named.waits_for("both.x.test", "four")?;
        named.waits_for("long.x.test", "four")?;
        ensure!(named.dns.asked_for_v6("both.test") == 0, "AAAA was asked for");
        Ok(())
    });
}

#[test]
fn a_name_server_that_hangs_holds_up_nothing_else() {
    pass("external-name-hang", |directory| {
        let [one, _two] = pair()?;
        let mut named = Named::start(directory, "")?;
        for number in 0..50 {
            let name = format!("hangs-{number}.test");
            named.dns.set(&name, Reply::Silence);
            let text = manifests(&format!("h{number}.x.test"), &name, 80);
            named.shop.write_only(&format!("h{number}.yaml"), &text)?;
        }
        named.dns.set_address("db.test", ONE);
        named.serve("a.test", "db.test", one.address.port())?;
        named.waits_for("a.test", "one")?;
        named.shop.answers("h1.x.test", "/", 503)?;
        named.serve("address.test", "127.0.0.2", one.address.port())?;
        named.waits_for("address.test", "two")
    });
}

#[test]
fn other_name_servers_are_asked_when_resolv_conf_changes() {
    pass("external-name-servers", |directory| {
        let [one, _two] = pair()?;
        let mut named = Named::start(directory, "")?;
        named.dns.set_address("db.test", ONE);
        named.serve("a.test", "db.test", one.address.port())?;
        named.waits_for("a.test", "one")?;
        let other = FakeDns::start()?;
        other.set_address("db.test", TWO);
        let new = directory.join("resolv.conf.new");
        fs::write(&new, other.line())?;
        fs::rename(new, &named.resolv_conf)?;
        named.waits_for("a.test", "two")
    });
}

#[test]
fn no_spelling_and_no_name_leads_to_a_listener_of_our_own() {
    pass("external-name-own", |directory| {
        let mut named = Named::start(directory, "")?;
        let health = named.shop.controller.health_port;
        named.dns.set_address("own.test", ONE);
        named.dns.set_address("own6.test", IpAddr::V6(Ipv6Addr::LOCALHOST));
        let mapped = Ipv4Addr::LOCALHOST.to_ipv6_mapped();
        named.dns.set_address("mapped.test", mapped.into());
        named.dns.set_address("any.test", Ipv4Addr::UNSPECIFIED.into());
        let literals =
            ["127.0.0.1", "127.9.9.9", "::1", "[::1]", "::ffff:127.0.0.1", "0.0.0.0", "::"];
        let refused = ["0x7f.1", "127.1", "2130706433", "localhost", "LOCALHOST.", "127.0.0.1."];
        let names = ["own.test", "own6.test", "mapped.test", "any.test"];
        let all = literals.iter().chain(&refused).chain(&names).enumerate();
        for (number, name) in all.clone() {
            named.serve(&format!("h{number}.test"), name, health)?;
        }
        for name in names {
            until("the name to be asked for", || {
                ensure!(named.dns.asked().iter().any(|asked| asked == name), "{name}");
                Ok(())
            })?;
        }
        // What was said of each tells that it was seen.
        for (number, name) in all {
            let said = format!("Ingress default/h{number}-test: rejected");
            named.waits_for_log(&said).with_context(|| (*name).to_owned())?;
            named
                .shop
                .answers(&format!("h{number}.test"), "/", 503)
                .with_context(|| (*name).to_owned())?;
        }
        Ok(())
    });
}
