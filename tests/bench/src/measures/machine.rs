//! Where and of what the numbers were measured.

use crate::bench::Bench;
use anyhow::Result;
use oxigress_tests::dist::repository;
use std::fs;
use std::process::Command;

/// Command, machine, nginx and commit, as markdown that can be read as it is.
pub fn describe(bench: &Bench) -> Result<String> {
    let cores = std::thread::available_parallelism()?;
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == "model name").then(|| value.trim().to_owned())
    });
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let memory = memory.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok());
    let version = Command::new(&bench.nginx).arg("-v").output()?;
    let version = String::from_utf8_lossy(&version.stderr).into_owned();
    let subjects = match std::env::var("OXIGRESS_BENCH") {
        Ok(list) if !list.is_empty() => format!("OXIGRESS_BENCH={list} "),
        _ => String::new(),
    };
    Ok(format!(
        "`{subjects}make bench` on {cores} cores of {}, {} GiB of memory; {}; commit {}, module built \
         {} minutes ago.\n\
         Instruction counts do not depend on other load; times and rates do: compare them with the peer \
         of the same run.\n",
        model.as_deref().unwrap_or("an unknown CPU"),
        memory.unwrap_or(0) >> 20,
        version.trim(),
        commit(),
        bench.module_built.elapsed().unwrap_or_default().as_secs() / 60,
    ))
}

fn commit() -> String {
    let git = |arguments: &[&str]| -> Option<String> {
        let output =
            Command::new("git").arg("-C").arg(repository()).args(arguments).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Some(id) = git(&["rev-parse", "--short", "HEAD"]) else { return "unknown".into() };
    // Folders of what is measured, not of the benches.
    let changed = git(&["status", "--porcelain", "--", "module", "controller", "conf"]);
    match changed {
        Some(changed) if !changed.is_empty() => format!("{id} with uncommitted changes"),
        _ => id,
    }
}

/// The load averages of 1, 5 and 15 minutes.
pub fn load() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    format!("loadavg {}", text.split_whitespace().take(3).collect::<Vec<_>>().join(" "))
}
