//! Status and Events, written to a real API server by one of several replicas, with no more rights than docs/operate/api-server.md
//! lists.
//!
//! A replica is the controller role alone: what it writes does not depend on nginx. There is no kubelet: Nodes and Pods are
//! objects that the test writes, with the status a kubelet would give them.

mod replicas;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Event;
use kube::Api;
use kube::api::ListParams;
use oxigress_tests::cluster::{Cluster, ingress};
use oxigress_tests::pass;
use oxigress_tests::place::Directory;
use oxigress_tests::wait::{block_on, until};
use replicas::{Judge, Replica, Site, TTL};
use rustix::process::Signal;
use serde_json::json;
use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

#[test]
fn when_the_leader_is_killed_the_status_is_right_soon_and_never_wrong() {
    pass("status-kills", |directory| kill_leaders(directory, 2));
}

#[test]
#[ignore = "minutes: make soak"]
fn soak_status() {
    pass("status-kills", |directory| kill_leaders(directory, 10));
}

/// Each time the addresses change at the moment of the kill, so that a status of the past is a wrong one.
fn kill_leaders(directory: &Directory, kills: u32) -> Result<()> {
    let site = Site::new(Cluster::shared()?, "status")?;
    site.load_balancer("192.0.2.1")?;
    let flags = ["--publish-service=$NAMESPACE/lb"];
    let mut replicas =
        [site.replica(directory, "r0", &flags)?, site.replica(directory, "r1", &flags)?];
    let judge = Judge::watch(&site, &["|192.0.2.1"])?;
    for name in ["a", "b", "c"] {
        site.tenant.apply(&ingress(name, &format!("{name}.test"), "none"))?;
    }
    site.statuses(&["|192.0.2.1"])?;
    let mut times = Vec::new();
    for kill in 1..=kills {
        let leader = site.leader(&mut replicas)?;
        let address = format!("192.0.2.{}", kill + 1);
        let expected = format!("|{address}");
        judge.expect(&[&expected]);
        leader.kill()?;
        let start = Instant::now();
        site.load_balancer(&address)?;
        let name = format!("new-{kill}");
        site.tenant.apply(&ingress(&name, &format!("{name}.test"), "none"))?;
        site.statuses(&[&expected])?;
        times.push(start.elapsed());
        *leader = site.replica(directory, &format!("r{}", kill + 1), &flags)?;
    }
    let versions = judge.verdict()?;
    let worst = times.iter().max().context("no kill")?;
    println!(
        "{kills} leaders killed, Lease of {TTL:?}: status right after {:.1} to {:.1} s; {versions} versions, none wrong",
        times.iter().min().context("no kill")?.as_secs_f64(),
        worst.as_secs_f64(),
    );
    ensure!(*worst <= TTL * 2, "{times:?}");
    Ok(())
}

/// With Events that wait to be written, and a Lease that it cannot renew.
#[test]
fn a_leader_without_an_api_server_waits_and_does_not_spin() {
    pass("status-idle", |directory| {
        let cluster = Cluster::start(directory)?;
        let site = Site::new(&cluster, "idle")?;
        site.load_balancer("192.0.2.1")?;
        let replica = site.replica(directory, "r0", &["--publish-service=$NAMESPACE/lb"])?;
        let mut replicas = [replica];
        site.leader(&mut replicas)?;
        for number in 0..30 {
            let host = format!("{number}.test");
            site.tenant.apply(&ingress(&format!("i{number}"), &host, "none"))?;
        }
        cluster.kill_api()?;
        sleep(TTL + TTL / 2);
        let pid = replicas[0].process.pid();
        let before = cpu_time(pid)?;
        sleep(TTL / 2);
        let took = cpu_time(pid)? - before;
        println!("{took:?} of CPU in {:?} without an API server", TTL / 2);
        ensure!(took < TTL / 20, "it took {took:?} of CPU in {:?}", TTL / 2);
        Ok(())
    });
}

/// CPU that the threads of a process have taken so far (`schedstat`, whose first field has nanoseconds).
fn cpu_time(pid: u32) -> Result<Duration> {
    let mut sum = Duration::ZERO;
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let text = fs::read_to_string(task?.path().join("schedstat"))?;
        let time = text.split_whitespace().next().context("schedstat")?;
        sum += Duration::from_nanos(time.parse()?);
    }
    Ok(sum)
}

#[test]
fn a_leader_that_was_stopped_writes_nothing_of_the_past() {
    pass("status-stopped", |directory| {
        let site = Site::new(Cluster::shared()?, "stopped")?;
        site.load_balancer("192.0.2.1")?;
        let flags = ["--publish-service=$NAMESPACE/lb"];
        let mut replicas =
            [site.replica(directory, "r0", &flags)?, site.replica(directory, "r1", &flags)?];
        let judge = Judge::watch(&site, &["|192.0.2.1"])?;
        site.tenant.apply(&ingress("a", "a.test", "none"))?;
        site.statuses(&["|192.0.2.1"])?;
        for turn in 2..4 {
            let address = format!("192.0.2.{turn}");
            let expected = format!("|{address}");
            judge.expect(&[&expected]);
            let leader = site.leader(&mut replicas)?;
            leader.process.signal(Signal::STOP)?;
            site.load_balancer(&address)?;
            site.statuses(&[&expected])?;
            leader.process.signal(Signal::CONT)?;
            // It has found out, and taken up what the other one wrote.
            until("the end of its lead", || {
                ensure!(leader.leads()? == 0.0, "it says that it leads");
                Ok(())
            })?;
            let name = format!("b{turn}");
            site.tenant.apply(&ingress(&name, &format!("{name}.test"), "none"))?;
            site.statuses(&[&expected])?;
        }
        judge.verdict()?;
        Ok(())
    });
}

#[test]
fn a_status_is_written_at_once_and_again_when_somebody_changes_it() {
    pass("status-once", |directory| {
        let site = Site::new(Cluster::shared()?, "once")?;
        let flags = ["--publish-status-address=lb.test,192.0.2.1, 2001:db8::1"];
        let replica = site.replica(directory, "r0", &flags)?;
        let expected = ["|192.0.2.1", "|2001:db8::1", "lb.test|"];
        site.tenant.apply(&ingress("a", "a.test", "none"))?;
        site.statuses(&expected)?;
        ensure!(replica.leads()? == 1.0, "leader_election_status");
        let start = Instant::now();
        site.tenant.apply(&ingress("b", "b.test", "none"))?;
        site.statuses(&expected)?;
        println!("a new Ingress has its status after {:?}", start.elapsed());
        let wrong = json!({"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.66"}]}}});
        site.tenant.cluster.patch("Ingress", &site.tenant.namespace, "a", &wrong)?;
        site.statuses(&expected)?;
        // Another class's, and nobody's, stay as they are.
        let foreign = ingress("c", "c.test", "none").replace("$CLASS", "another");
        site.tenant.apply(&foreign)?;
        site.tenant.apply(&ingress("d", "d.test", "none"))?;
        until("the status of d", || {
            ensure!(site.status("d")? == expected, "{:?}", site.status("d")?);
            Ok(())
        })?;
        ensure!(site.status("c")?.is_empty(), "a foreign Ingress has a status");
        Ok(())
    });
}

#[test]
fn a_service_gives_its_addresses_by_its_type() {
    pass("status-service", |directory| {
        let site = Site::new(Cluster::shared()?, "service")?;
        let tenant = &site.tenant;
        let service = |spec: &str| {
            format!("{{apiVersion: v1, kind: Service, metadata: {{name: lb}}, spec: {{{spec}}}}}")
        };
        let _replica = site.replica(directory, "r0", &["--publish-service=$NAMESPACE/lb"])?;
        tenant.apply(&ingress("a", "a.test", "none"))?;
        let ports = "ports: [{port: 80}]";
        tenant.apply(&service(&format!("type: ClusterIP, {ports}")))?;
        let cluster_ip = |at: &Site| -> Result<String> {
            let found = at.tenant.cluster.get("Service", &at.tenant.namespace, "lb")?;
            Ok(format!("|{}", found["spec"]["clusterIP"].as_str().context("clusterIP")?))
        };
        site.statuses(&[&cluster_ip(&site)?])?;
        for (spec, expected) in [
            (
                "type: NodePort, externalIPs: [192.0.2.9, 192.0.2.8]",
                &["|192.0.2.8", "|192.0.2.9"][..],
            ),
            ("type: ExternalName, externalName: lb.test", &["lb.test|"]),
            ("type: LoadBalancer, externalIPs: [192.0.2.7]", &["|192.0.2.7"]),
            // It waits for its addresses: there is none to tell.
            ("type: LoadBalancer", &[]),
        ] {
            let before = site.status("a")?;
            tenant.delete("Service", "lb")?;
            // While there is no Service the status stays.
            ensure!(site.status("a")? == before, "{:?}", site.status("a")?);
            tenant.apply(&service(&format!("{spec}, {ports}")))?;
            site.statuses(expected)?;
        }
        let status = json!({"status": {"loadBalancer": {"ingress": [
            {"hostname": "b.test", "ip": "192.0.2.2"}, {"ip": "192.0.2.1"}, {"hostname": "a.test"},
        ]}}});
        tenant.cluster.patch("Service", &tenant.namespace, "lb", &status)?;
        site.statuses(&["|192.0.2.1", "a.test|", "b.test|192.0.2.2"])?;
        Ok(())
    });
}

#[test]
fn nodes_give_the_addresses_of_pods_that_are_ready() {
    pass("status-nodes", |directory| {
        let site = Site::new(Cluster::shared()?, "nodes")?;
        site.node("n1", &[("InternalIP", "10.0.0.1"), ("ExternalIP", "192.0.2.1")])?;
        site.node("n2", &[("Hostname", "n2"), ("InternalIP", "10.0.0.2")])?;
        site.pod("r0", "n1", true)?;
        site.pod("r1", "n2", false)?;
        let mut replica = site.replica(directory, "r0", &[])?;
        site.tenant.apply(&ingress("a", "a.test", "none"))?;
        site.statuses(&["|192.0.2.1"])?;
        site.set_ready("r1", true)?;
        site.statuses(&["|10.0.0.2", "|192.0.2.1"])?;
        site.set_ready("r1", false)?;
        site.statuses(&["|192.0.2.1"])?;
        replica.kill()?;
        let flags = ["--report-node-internal-ip-address"];
        let _replica = site.replica(directory, "r0", &flags)?;
        site.statuses(&["|10.0.0.1"])
    });
}

#[test]
fn the_last_replica_empties_the_status_and_no_other_one_does() {
    pass("status-end", |directory| {
        let site = Site::new(Cluster::shared()?, "end")?;
        site.node("n1", &[("InternalIP", "10.0.0.1")])?;
        site.pod("r0", "n1", true)?;
        site.pod("r1", "n1", true)?;
        let flags = ["--publish-status-address=192.0.2.1"];
        let mut replicas =
            [site.replica(directory, "r0", &flags)?, site.replica(directory, "r1", &flags)?];
        let judge = Judge::watch(&site, &["|192.0.2.1"])?;
        site.tenant.apply(&ingress("a", "a.test", "none"))?;
        site.statuses(&["|192.0.2.1"])?;
        let leader = site.leader(&mut replicas)?;
        let (name, start) = (leader.name.clone(), Instant::now());
        leader.stop()?;
        // It has given the Lease back: nobody waits for its end.
        let other = site.leader(&mut replicas)?;
        println!("the Lease was taken over after {:?}", start.elapsed());
        ensure!(other.name != name, "{name} leads");
        ensure!(site.status("a")? == ["|192.0.2.1"], "{:?}", site.status("a")?);
        // A leader that has not yet looked at its addresses would leave them.
        site.tenant.apply(&ingress("b", "b.test", "none"))?;
        site.statuses(&["|192.0.2.1"])?;
        judge.verdict()?;
        // Without a kubelet the Pod stays, and is being deleted: it does not count.
        site.tenant.delete("Pod", &name)?;
        other.stop()?;
        ensure!(site.status("a")?.is_empty(), "{:?}", site.status("a")?);
        Ok(())
    });
}

#[test]
fn an_api_server_that_was_away_finds_one_leader_again_and_the_right_status() {
    pass("status-away", |directory| {
        let cluster = Cluster::start(directory)?;
        let site = Site::new(&cluster, "away")?;
        site.load_balancer("192.0.2.1")?;
        let flags = ["--publish-service=$NAMESPACE/lb"];
        let mut replicas =
            [site.replica(directory, "r0", &flags)?, site.replica(directory, "r1", &flags)?];
        site.tenant.apply(&ingress("a", "a.test", "none"))?;
        site.statuses(&["|192.0.2.1"])?;
        let leader = site.leader(&mut replicas)?.name.clone();
        let leaders = |replicas: &[Replica]| -> Result<f64> {
            Ok(replicas.iter().map(Replica::leads).collect::<Result<Vec<_>>>()?.iter().sum())
        };
        until("one leader", || {
            ensure!(leaders(&replicas)? == 1.0, "{}", leaders(&replicas)?);
            Ok(())
        })?;
        cluster.kill_api()?;
        // Who cannot renew stops, before anybody else could begin.
        until("no leader", || {
            ensure!(leaders(&replicas)? == 0.0, "{leader} leads");
            Ok(())
        })?;
        cluster.start_api()?;
        let start = Instant::now();
        site.load_balancer("192.0.2.2")?;
        site.tenant.apply(&ingress("b", "b.test", "none"))?;
        site.statuses(&["|192.0.2.2"])?;
        println!("status right {:?} after the API server's return", start.elapsed());
        ensure!(leaders(&replicas)? == 1.0, "{}", leaders(&replicas)?);
        Ok(())
    });
}

/// Type, reason, count and message of what was said about an Ingress, by reason.
fn events(site: &Site, name: &str) -> Result<Vec<(String, String, i32, String)>> {
    let api: Api<Event> = Api::namespaced(site.tenant.cluster.client()?, &site.tenant.namespace);
    let fields = format!("involvedObject.kind=Ingress,involvedObject.name={name}");
    let found = block_on(api.list(&ListParams::default().fields(&fields)))?.items;
    let mut told: Vec<_> = found
        .into_iter()
        .map(|event| {
            ensure!(
                event.source.context("source")?.component.as_deref()
                    == Some("nginx-ingress-controller"),
                "source"
            );
            ensure!(event.involved_object.uid.is_some(), "an Event without uid");
            let (kind, reason) = (event.type_.context("type")?, event.reason.context("reason")?);
            Ok((kind, reason, event.count.unwrap_or(0), event.message.unwrap_or_default()))
        })
        .collect::<Result<_>>()?;
    told.sort();
    Ok(told)
}

#[test]
fn verdicts_are_events_once_whoever_leads() {
    pass("status-events", |directory| {
        let site = Site::new(Cluster::shared()?, "events")?;
        let flags = ["--publish-status-address=192.0.2.1"];
        let mut replicas =
            [site.replica(directory, "r0", &flags)?, site.replica(directory, "r1", &flags)?];
        let bad = |name: &str, annotation: &str| {
            let good = ingress(name, &format!("{name}.test"), "none");
            let metadata =
                format!("metadata: {{annotations: {{nginx.ingress.kubernetes.io/{annotation}}}, ");
            good.replacen("metadata: {", &metadata, 1)
        };
        let warnings = |name: &str, reason: &str| -> Result<Vec<(i32, String)>> {
            let all = events(&site, name)?.into_iter();
            let of = all.filter(|(kind, of, ..)| kind == "Warning" && of == reason);
            Ok(of.map(|(_, _, count, message)| (count, message)).collect())
        };
        let wait_for = |name: &str, reason: &str, text: &str| {
            until("an Event", || {
                let found = warnings(name, reason)?;
                ensure!(found.iter().any(|(_, message)| message.contains(text)), "{found:?}");
                Ok(())
            })
        };
        site.leader(&mut replicas)?;
        site.tenant.apply(&bad("a", "limit-rps: many"))?;
        wait_for("a", "AnnotationParsingFailed", "limit-rps")?;
        // What does not concern annotations, with what to do about it.
        site.tenant.apply(&ingress("c", "c.test", "none"))?;
        wait_for("c", "Rejected", "so requests get 503: create")?;
        let before = events(&site, "a")?;
        let leader = site.leader(&mut replicas)?;
        let name = leader.name.clone();
        leader.kill()?;
        until("the next leader", || {
            ensure!(site.holder()? != name, "{name} leads");
            Ok(())
        })?;
        // Whatever the new one had to say about the first Ingress it says before this.
        site.tenant.apply(&bad("b", "limit-rps: many"))?;
        wait_for("b", "AnnotationParsingFailed", "limit-rps")?;
        let is_warning = |told: &&(String, String, i32, String)| told.0 == "Warning";
        let (after, before): (Vec<_>, Vec<_>) = (events(&site, "a")?, before);
        let (after, before) = (
            after.iter().filter(is_warning).collect::<Vec<_>>(),
            before.iter().filter(is_warning).collect::<Vec<_>>(),
        );
        ensure!(after == before, "{before:?}\nbecame\n{after:?}");
        // Another mistake is another Event; a change is told as well.
        site.tenant.apply(&bad("b", "limit-rpm: several"))?;
        wait_for("b", "AnnotationParsingFailed", "limit-rpm")?;
        until("the change", || {
            let all = events(&site, "b")?;
            let sync = all.iter().find(|told| told.1 == "Sync").context("no Sync")?;
            ensure!(sync.0 == "Normal" && sync.2 >= 2, "{sync:?}");
            Ok(())
        })
    });
}

#[test]
fn rights_are_those_of_the_documentation() {
    pass("status-rights", |_| {
        let text = std::fs::read_to_string(
            oxigress_tests::dist::repository().join("docs/operate/api-server.md"),
        )?;
        for rule in replicas::RULES.iter().chain(&replicas::OWN_RULES) {
            ensure!(text.contains(rule), "docs/operate/api-server.md does not list {rule}");
        }
        Ok(())
    });
}
