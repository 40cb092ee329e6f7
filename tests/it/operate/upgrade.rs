//! Reload, binary upgrade and another zone size under load: no request is lost, and a new worker's first answer is
//! right.
//!
//! The roles are processes of their own, since the nginx role is to come back with another flag. The controller
//! is stopped meanwhile: what the new workers have, they have from the old nginx.

use anyhow::{Context, Result, ensure};
use oxigress_tests::client::{Address, Request};
use oxigress_tests::controller::Controller;
use oxigress_tests::load::{Closes, Load, Plan};
use oxigress_tests::pass;
use oxigress_tests::place::Directory;
use oxigress_tests::process::{signal_pid, wait_for_end};
use oxigress_tests::shop::Shop;
use oxigress_tests::wait::until;
use rustix::process::Signal;
use std::sync::Arc;
use std::time::Duration;

const WORKERS: usize = 2;

#[test]
fn a_reload_an_upgrade_and_a_resize_lose_nothing() {
    pass("upgrade", |directory| change(directory, 2));
}

#[test]
#[ignore = "minutes: make soak"]
fn soak_upgrade() {
    pass("upgrade", |directory| change(directory, 50));
}

#[test]
fn a_master_that_is_killed_during_an_upgrade_leaves_the_other_alone() {
    pass("upgrade-kill", kill_during_upgrade);
}

/// Both masters are in one process group; the nginx role clears up behind the dead one.
fn kill_during_upgrade(directory: &Directory) -> Result<()> {
    let mut shop = Shop::new(Controller::start(directory, WORKERS, &[])?, &["a"], &[])?;
    shop.write("keep.yaml", "$SERVICE(keep: a)\n$INGRESS(keep: keep.test/ keep)")?;
    for kills_old in [true, false, true] {
        let old = (shop.controller.master_pid()?, shop.controller.worker_pids());
        signal_pid(old.0, Signal::USR2)?;
        let new = until("the new nginx", || {
            let new = (shop.controller.master_pid()?, shop.controller.worker_pids());
            ensure!(new.0 != old.0 && new.1.len() == WORKERS, "{new:?}");
            Ok(new)
        })?;
        let (dead, rest) = if kills_old { (old, new) } else { (new, old) };
        signal_pid(dead.0, Signal::KILL)?;
        for pid in [dead.0].into_iter().chain(dead.1) {
            wait_for_end(pid)?;
        }
        if kills_old {
            let line = format!("nginx {} has taken over: adopted", rest.0);
            until("the adoption", || {
                ensure!(shop.controller.error_log().contains(&line), "{line}");
                Ok(())
            })?;
        } else {
            until("the old nginx to be itself again", || {
                ensure!(!shop.controller.has_old_master(), "nginx.pid.oldbin");
                Ok(())
            })?;
        }
        until("a configuration", || {
            // Without one nginx answers 503, as the host does that `catch_up` asks for.
            ensure!(shop.controller.status()?.generation > 0, "nginx has none");
            Ok(())
        })?;
        shop.controller.catch_up()?;
        shop.serves("keep.test", "/", "a")?;
        let now = (shop.controller.master_pid()?, shop.controller.worker_pids());
        ensure!(now == rest, "{now:?}, not {rest:?}");
    }
    shop.controller.stop()
}

/// How nginx is made to start new workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// HUP to the nginx role.
    Reload,
    /// USR2 to the nginx role, which does the rest.
    Upgrade,
    /// nginx's own signals, by the operator's hand.
    UpgradeByHand,
    /// The nginx role is killed and comes back with another size.
    Resize,
    /// USR2 to the nginx role, which is killed at once: its next run goes on with it.
    UpgradeAndKill,
}

const WAYS: [Way; 5] =
    [Way::Reload, Way::Upgrade, Way::UpgradeByHand, Way::Resize, Way::UpgradeAndKill];

fn change(directory: &Directory, rounds: u32) -> Result<()> {
    let flags = ["--journal=on".into(), "--zone-size=8m".into()];
    let controller = Controller::start_apart(directory, WORKERS, &flags)?;
    let mut shop = Shop::new(controller, &["a", "b"], &[("first", "tls.test")])?;
    shop.write("keep.yaml", "$SERVICE(keep: a)\n$INGRESS(keep: keep.test/ keep)")?;
    shop.write(
        "tls.yaml",
        "$SECRET(tls: first)\n$SERVICE(tls: a)\n$INGRESS(tls: tls.test/ tls tls=tls)",
    )?;
    for way in WAYS {
        let loads = loads(&shop)?;
        for round in 0..rounds {
            once(&mut shop, way, round, &loads)
                .with_context(|| format!("{way:?}, round {round}"))?;
        }
        let (mut answered, mut connections, mut closed, mut again) = (0, 0, 0, 0);
        for report in loads.into_iter().map(Load::stop) {
            ensure!(report.failed == 0, "{way:?}: {} lost: {:?}", report.failed, report.failures);
            answered += report.answered;
            connections += report.connections;
            closed += report.closed_idle;
            again += report.sent_again;
        }
        println!(
            "{way:?}: {rounds} times, {answered} answers on {connections} connections, 0 lost; {closed} \
             connections closed while idle, {again} requests sent again"
        );
    }
    shop.controller.stop()?;
    ensure!(!shop.controller.error_log().contains("[emerg]"), "{}", shop.controller.output_tail());
    Ok(())
}

fn loads(shop: &Shop) -> Result<Vec<Load>> {
    let controller = &shop.controller;
    let plain = (Address::http(controller.http_port), Request::get("keep.test", "/"));
    let tls = (Address::https(controller.https_port, "tls.test"), Request::get("tls.test", "/"));
    let kinds =
        [(plain.clone(), false, 4), (tls.clone(), false, 2), (plain, true, 2), (tls, true, 1)];
    let loads = kinds.into_iter().map(|((address, request), is_fresh, connections)| {
        Load::start(Plan {
            is_fresh,
            closes: Closes::Unanswered,
            check: Some(Arc::new(|_, response| {
                let found = (response.status, response.endpoint());
                ensure!(found == (200, Some("a".into())), "{found:?}");
                Ok(())
            })),
            pace: Duration::from_millis(15),
            ..Plan::new(address, vec![request], connections)
        })
    });
    loads.collect()
}

fn once(shop: &mut Shop, way: Way, round: u32, loads: &[Load]) -> Result<()> {
    let master = shop.controller.master_pid()?;
    let workers = shop.controller.worker_pids();
    let before = shop.controller.journaled()?;
    let controller = shop.controller.role_pid("controller")?;
    signal_pid(controller, Signal::STOP)?;
    let changed = begin(shop, way, round, master).and_then(|()| {
        let has_new_master = matches!(way, Way::Upgrade | Way::UpgradeByHand | Way::UpgradeAndKill);
        until("the new workers", || {
            let now = shop.controller.worker_pids();
            ensure!(
                now.len() == WORKERS && now.iter().all(|pid| !workers.contains(pid)),
                "{now:?}"
            );
            ensure!((shop.controller.master_pid()? != master) == has_new_master, "master {master}");
            Ok(())
        })?;
        for pid in &workers {
            wait_for_end(*pid)?;
        }
        if has_new_master {
            wait_for_end(master)?;
        }
        for load in loads {
            load.wait_for(5)?;
            ensure!(load.report().failed == 0, "lost: {:?}", load.report().failures);
        }
        shop.controller.status()
    });
    signal_pid(controller, Signal::CONT)?;
    let now = changed?;
    ensure!(now.counts == before.counts, "{now:?}, before {before:?}");

    // It is the controller's again.
    let host = format!("changing-{way:?}-{round}.test").to_lowercase();
    shop.write("changing.yaml", &format!("$SERVICE(c: b)\n$INGRESS(c: {host}/ c)"))?;
    shop.serves(&host, "/", "b")?;
    shop.remove("changing.yaml")?;
    shop.answers(&host, "/", 404)
}

fn begin(shop: &mut Shop, way: Way, round: u32, master: u32) -> Result<()> {
    let role = shop.controller.role_pid("nginx")?;
    match way {
        Way::Reload => signal_pid(role, Signal::HUP),
        Way::Upgrade => signal_pid(role, Signal::USR2),
        Way::UpgradeByHand => {
            signal_pid(master, Signal::USR2)?;
            until("the new nginx", || {
                ensure!(shop.controller.master_pid()? != master, "{master}");
                ensure!(shop.controller.worker_pids().len() == WORKERS, "workers");
                Ok(())
            })?;
            signal_pid(master, Signal::QUIT)
        }
        Way::Resize => {
            signal_pid(role, Signal::KILL)?;
            wait_for_end(role)?;
            let size = if round.is_multiple_of(2) { 16 } else { 8 };
            shop.controller.start_again(&[format!("--zone-size={size}m")])
        }
        Way::UpgradeAndKill => {
            signal_pid(role, Signal::USR2)?;
            until("the upgrade's begin", || {
                let status = shop.controller.has_old_master();
                ensure!(status, "no nginx.pid.oldbin");
                Ok(())
            })?;
            signal_pid(role, Signal::KILL)?;
            wait_for_end(role)?;
            shop.controller.start_again(&[])
        }
    }
}
