//! Two hostile namespaces against a third, on a real API server: whatever they say as tenants, send as clients and answer
//! as endpoints, the third one's requests are answered, right and soon, and its edits go live.
//!
//! Shape:   [`Scene`] is the product with the third namespace, `blue`, under load; [`attacks::all`] is the list of what `red` and
//!          `grey` do, two attacks each at a time. An attack fails, too, if it gets what it is after.
//! Limits:  bounds on time are bounds of life, not of speed: attackers, API server and product share this machine's
//!          processors, so the figures are worse than those of a cluster. Hostile clients have less priority.
//! Chosen:  `OXIGRESS_ATTACKS` has the names of the attacks to run, `OXIGRESS_ATTACK_SEED` the order of the long form.

mod attacks;
mod blue;
mod course;
mod objects;
mod scene;
mod villain;

use anyhow::{Result, anyhow, ensure};
use attacks::Attack;
use blue::{Blue, Edits, Loads};
use course::Course;
use oxigress_tests::endpoint::Endpoint;
use oxigress_tests::load::Report;
use oxigress_tests::place::Directory;
use oxigress_tests::{pass, pass_alone};
use scene::Scene;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use villain::Villain;

/// Attacks of one namespace at a time.
const AT_ONCE: usize = 2;
/// Blue alone, to compare with.
const QUIET: Duration = Duration::from_secs(3);
/// A request of blue's that takes longer is not answered; an edit that takes longer is not live.
const ALIVE: Duration = Duration::from_secs(5);
/// The long form attacks at least so long.
const LONG: Duration = Duration::from_secs(300);
/// What stands in the log only if something is wrong with the product.
const BAD: [&str; 4] = ["[alert]", "[emerg]", "panicked", "exited on signal"];

#[test]
fn two_hostile_namespaces_leave_a_third_alone() {
    pass_alone("hostile", |directory| attack(directory, &Course::short()));
}

#[test]
#[ignore = "minutes: make soak"]
fn soak_hostile() {
    pass("hostile", |directory| attack(directory, &Course::long(LONG)));
}

/// What became of an attack.
struct Outcome {
    attack: Attack,
    by: String,
    took: Duration,
    /// Times of blue's answers meanwhile.
    times: Vec<Duration>,
    result: Result<()>,
}

fn attack(directory: &Directory, course: &Course) -> Result<()> {
    let scene = Scene::start(directory)?;
    let villains = ["red", "grey"].map(|name| {
        let tenant = scene.cluster.tenant(name)?;
        Villain::prepare(&scene, &tenant.namespace)
    });
    let villains = villains.into_iter().collect::<Result<Vec<_>>>()?;
    let before = scene.processes()?;
    let loads = Blue::load(&scene.controller)?;
    thread::sleep(QUIET);
    let quiet = loads.stop();

    let (loads, is_over) = (Blue::load(&scene.controller)?, AtomicBool::new(false));
    let (outcomes, edits) = thread::scope(|scope| {
        let editor = scope.spawn(|| scene.blue.edit(&scene, &is_over));
        let (scene, loads) = (&scene, &loads);
        let twice = (0..AT_ONCE).flat_map(|_| &villains);
        let workers: Vec<_> =
            twice.map(|own| scope.spawn(move || work(scene, own, course, loads))).collect();
        let outcomes = workers.into_iter().flat_map(|worker| worker.join().unwrap_or_default());
        let outcomes: Vec<_> = outcomes.collect();
        is_over.store(true, Ordering::SeqCst);
        let edits = editor.join().unwrap_or_else(|_| Err(anyhow!("the editor panicked")));
        (outcomes, edits)
    });
    let attacked = loads.stop();
    tell(&outcomes, &quiet, &attacked);
    let mut wrong = outcomes.iter().filter_map(complaint).collect::<Vec<_>>();
    let mut note = |judged: Result<()>| wrong.extend(judged.err().map(|e| format!("{e:#}")));
    note(course.is_done(outcomes.len()));
    note(requests_were_answered(&attacked));
    note(edits.and_then(|edits| edits_went_live(&edits)));
    note(nothing_forbidden_was_reached(&scene));
    note(nobody_was_restarted(&scene, &before));
    ensure!(wrong.is_empty(), "{} things are wrong:\n{}", wrong.len(), wrong.join("\n"));
    Ok(())
}

/// One attack after the other, as long as there are any.
fn work(scene: &Scene, own: &Endpoint, course: &Course, loads: &Loads) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    while let Some(attack) = course.next() {
        let namespace = own.name.clone();
        let villain = Villain { scene, namespace, attack: attack.name, own };
        let (start, mark) = (Instant::now(), loads.mark());
        let run = thread::scope(|scope| {
            let run = scope.spawn(|| (attack.run)(&villain));
            run.join().unwrap_or_else(|_| Err(anyhow!("the attack panicked")))
        });
        let result = run.and_then(|()| scene.blue_is_untouched());
        let result = result.and(villain.clean());
        let (took, times) = (start.elapsed(), loads.since(&mark));
        outcomes.push(Outcome { attack, by: villain.namespace, took, times, result });
    }
    outcomes
}

fn complaint(outcome: &Outcome) -> Option<String> {
    let error = outcome.result.as_ref().err()?;
    Some(format!("attack {} of {}: {error:#}", outcome.attack.name, outcome.by))
}

/// Half and nearly all of the times, and the longest, in milliseconds.
fn figures(mut times: Vec<Duration>) -> String {
    times.sort_unstable();
    let at = |share: f64| {
        let index = (times.len() as f64 * share) as usize;
        times.get(index.min(times.len().saturating_sub(1))).copied().unwrap_or_default()
    };
    let [half, most, all] = [0.5, 0.99, 1.0].map(|share| at(share).as_secs_f64() * 1e3);
    format!("{:6} answers, p50 {half:6.1} ms, p99 {most:6.1} ms, max {all:6.1} ms", times.len())
}

fn tell(outcomes: &[Outcome], quiet: &[Report], attacked: &[Report]) {
    for Outcome { attack, by, took, times, result } in outcomes {
        let verdict = if result.is_ok() { "missed" } else { "FAILED" };
        let (took, figures) = (took.as_secs_f64(), figures(times.clone()));
        println!(
            "§{} {:24} {by:7} {took:5.1} s {verdict}; blue: {figures}",
            attack.section, attack.name
        );
    }
    for (name, reports) in [("quiet", quiet), ("attacked", attacked)] {
        let times = reports.iter().flat_map(|report| report.times.clone()).collect();
        let failed: u64 = reports.iter().map(|report| report.failed).sum();
        println!("blue, {name}: {}, {failed} failed", figures(times));
    }
}

fn requests_were_answered(reports: &[Report]) -> Result<()> {
    for report in reports {
        let first: Vec<_> = report.failures.iter().take(5).collect();
        ensure!(report.failed == 0, "{} requests of blue failed: {first:?}", report.failed);
        ensure!(report.slowest < ALIVE, "a request of blue took {:?}", report.slowest);
    }
    Ok(())
}

fn edits_went_live(edits: &Edits) -> Result<()> {
    for (what, times) in [("endpoints", &edits.endpoints), ("paths", &edits.paths)] {
        let longest = times.iter().max().copied().unwrap_or_default();
        println!("blue's edits of {what}: {} live, the slowest after {longest:.1?}", times.len());
        ensure!(longest < ALIVE, "an edit of blue's {what} took {longest:?}");
        ensure!(what == "paths" || !times.is_empty(), "no edit of {what}");
    }
    Ok(())
}

fn nothing_forbidden_was_reached(scene: &Scene) -> Result<()> {
    for server in [&scene.metadata, &scene.inside] {
        let count = server.connections();
        ensure!(count == 0, "{count} connections to {} at {}", server.name, server.address);
    }
    Ok(())
}

/// `$request_time` of a line of the access log, if it is about a request that an endpoint of blue's answered.
fn request_time(line: &str, scene: &Scene) -> Option<Duration> {
    let (before, _) = line.split_once(&format!(" [{}-", scene.blue.namespace))?;
    let seconds = before.rsplit(' ').next()?.parse().ok()?;
    before.contains(" HTTP/1.1\" 200 ").then(|| Duration::from_secs_f64(seconds))
}

fn nobody_was_restarted(scene: &Scene, before: &scene::Processes) -> Result<()> {
    let after = scene.processes()?;
    ensure!(after == *before, "processes were {before:?} and are {after:?}");
    let log = scene.controller.error_log();
    let times: Vec<_> = log.lines().filter_map(|line| request_time(line, scene)).collect();
    println!("blue, as nginx counts: {}", figures(times));
    match log.lines().find(|line| BAD.iter().any(|bad| line.contains(bad))) {
        Some(line) => Err(anyhow!("in the log: {line}")),
        None => Ok(()),
    }
}
