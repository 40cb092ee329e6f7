//! `make bench`: measures against the budgets of the design.
//!
//! Shape:   a subject ([`instructions`], [`policies`], [`algorithms`], [`scale`], [`throughput`], [`updates`], [`churn`],
//!          [`restart`], [`memory`], [`files`], [`hostile`], [`peers`], [`cluster`], [`gateways`]) fills one
//!          [`report::Table`]: what was measured, the peer of the same run, the budget, within or not.
//! Rules:   numbers never fail a run; what could not run does. Everything is told on standard output and
//!          in `target/bench.md`, with the machine it was measured on.
//! Input:   `OXIGRESS_BENCH=instructions,policies,algorithms,scale,throughput,updates,churn,restart,memory,files,hostile,peers,cluster,gateways` chooses
//!          subjects; without it all run but `peers` and `gateways`.

mod subjects {
    pub mod algorithms;
    pub mod churn;
    pub mod cluster;
    pub mod files;
    pub mod gateways;
    pub mod hostile;
    pub mod instructions;
    pub mod memory;
    pub mod peers;
    pub mod restart;
    pub mod scale;
    pub mod throughput;
    pub mod updates;
    pub mod webhook;
}

/// The programs that run, and what they are given.
mod programs {
    pub mod callgrind;
    pub mod conf;
    pub mod configuration;
    pub mod haproxy;
    pub mod manifests;
    pub mod nginx;
    pub mod product;
    pub mod snapshot;
    pub mod wrk;
}

/// Clients, endpoints, figures and tables.
mod measures {
    pub mod bench;
    pub mod http;
    pub mod machine;
    pub mod probe;
    pub mod report;
    pub mod sample;
    pub mod slow;
    pub mod stretch;
    pub mod usage;
}

use anyhow::{Context, Result, bail};
use measures::{bench, http, machine, probe, report, sample, slow, stretch, usage};
use programs::{callgrind, conf, configuration, haproxy, manifests, nginx, product, snapshot, wrk};
use subjects::instructions::{handshakes, policies};
use subjects::{
    algorithms, churn, cluster, files, gateways, hostile, instructions, memory, peers, restart,
    scale, throughput, updates, webhook,
};

use bench::Bench;
use report::Table;
use std::fs;
use std::process::ExitCode;
use std::time::Instant;

type Run = fn(&Bench, &mut Table) -> Result<()>;

const SUBJECTS: [(&str, &str, Run); 15] = [
    ("instructions", "Instructions per request", instructions::run),
    ("policies", "Instructions of policies", policies::run),
    ("algorithms", "Algorithms of balancing", algorithms::run),
    ("scale", "Cost at 100 to 100,000 backends", scale::run),
    ("throughput", "Throughput and latency of one worker", throughput::run),
    ("updates", "Updates at 10,000 hosts × 10 endpoints", updates::run),
    ("churn", "1,000 endpoint changes a second", churn::run),
    ("restart", "A start of nginx from the journal", restart::run),
    ("memory", "Memory of nginx", memory::run),
    ("webhook", "Admission at 10,000 Ingresses", webhook::run),
    ("files", "From a file's close() to the first request served by it", files::run),
    ("hostile", "The dearest requests and changes of a tenant", hostile::run),
    ("peers", "Beside ingress-nginx, on 1,000 Ingresses", peers::run),
    ("cluster", "A Kubernetes API server with 10,000 Ingresses", cluster::run),
    ("gateways", "5,000 HTTPRoutes on 50 Gateways", gateways::run),
];

/// They need root, and an ingress-nginx or the definitions of the Gateway API, which take minutes to build.
const ON_REQUEST: [&str; 2] = ["peers", "gateways"];

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Answers whether everything could run.
fn run() -> Result<bool> {
    let chosen = chosen(std::env::var("OXIGRESS_BENCH").ok())?;
    let bench = Bench::new()?;
    let heading = machine::describe(&bench)?;
    println!("{heading}");
    let (mut markdown, mut is_complete) = (format!("# Benchmarks\n\n{heading}"), true);
    for (_, title, run) in SUBJECTS.iter().filter(|(name, ..)| chosen.iter().any(|c| c == name)) {
        let start = Instant::now();
        let mut table = Table::new(title);
        let load = machine::load();
        if let Err(error) = run(&bench, &mut table) {
            table.row(&format!("the rest of it: not measured: {error:#}"), "");
            is_complete = false;
        }
        table.note(format!(
            "other load on this machine: {load} before, {} after, own load included; took {:.0} s",
            machine::load(),
            start.elapsed().as_secs_f64()
        ));
        println!("{}", table.text());
        markdown += &table.markdown();
    }
    let file = oxigress_tests::dist::target().join("bench.md");
    fs::write(&file, markdown).with_context(|| file.display().to_string())?;
    println!("also in target/bench.md; profiles for callgrind_annotate in target/bench/");
    Ok(is_complete)
}

fn chosen(list: Option<String>) -> Result<Vec<String>> {
    let known: Vec<_> = SUBJECTS.iter().map(|(name, ..)| (*name).to_owned()).collect();
    let Some(list) = list.filter(|list| !list.trim().is_empty()) else {
        return Ok(known.into_iter().filter(|name| !ON_REQUEST.contains(&name.as_str())).collect());
    };
    let chosen: Vec<_> = list.split(',').map(|name| name.trim().to_owned()).collect();
    match chosen.iter().find(|name| !known.contains(name)) {
        Some(name) => bail!("OXIGRESS_BENCH: no subject {name:?}, there are {}", known.join(", ")),
        None => Ok(chosen),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_subject_is_refused_and_none_means_all() {
        assert_eq!(chosen(None).unwrap().len(), SUBJECTS.len() - ON_REQUEST.len());
        assert_eq!(chosen(Some(ON_REQUEST.join(","))).unwrap(), ON_REQUEST);
        assert_eq!(chosen(Some("files, updates".into())).unwrap(), ["files", "updates"]);
        assert!(chosen(Some("speed".into())).is_err());
    }
}
