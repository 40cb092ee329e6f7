//! What a process has used, as the kernel tells it.

use anyhow::{Context, Result};
use std::fs;
use std::time::Duration;

/// CPU time of all threads of a process, exact to the nanosecond for threads that wait: `stat` has the same
/// sum in hundredths of a second, too coarse for a delta.
pub fn cpu(pid: u32) -> Result<Duration> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).context("threads of the process")?;
    let mut sum = Duration::ZERO;
    for task in tasks {
        // A thread may end meanwhile.
        if let Ok(text) = fs::read_to_string(task?.path().join("schedstat")) {
            sum += parse(&text)?;
        }
    }
    Ok(sum)
}

/// CPU time of a process's first thread: nginx's event loop.
pub fn event_loop_cpu(pid: u32) -> Result<Duration> {
    parse(&fs::read_to_string(format!("/proc/{pid}/task/{pid}/schedstat"))?)
}

fn parse(schedstat: &str) -> Result<Duration> {
    let first = schedstat.split_whitespace().next().context("schedstat")?;
    Ok(Duration::from_nanos(first.parse()?))
}

/// Bytes of memory of a process.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// Resident memory in bytes, shared pages included.
    pub resident: u64,
    /// Its own: heap and stacks, neither files nor shared memory.
    pub anonymous: u64,
}

pub fn memory(pid: u32) -> Result<Memory> {
    let text = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let field = |name: &str| field(&text, name);
    Ok(Memory { resident: field("VmRSS:")?, anonymous: field("RssAnon:")? })
}

/// Bytes of memory of a process, what it shares with others divided among them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Proportional {
    /// Proportional set size in bytes: a shared page counts by its share.
    pub all: u64,
    /// Of it, shared memory: nginx's zones.
    pub shared: u64,
}

/// Memory of a process, proportionally.
pub fn proportional(pid: u32) -> Result<Proportional> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    let field = |name: &str| field(&text, name);
    Ok(Proportional { all: field("Pss:")?, shared: field("Pss_Shmem:")? })
}

/// A line of `/proc`, in bytes.
fn field(text: &str, name: &str) -> Result<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)).context("memory")?;
    let number = line.split_whitespace().next().context("memory")?;
    Ok(number.parse::<u64>()? * 1024)
}

/// The child of a process whose command line has this argument.
pub fn child_with_argument(parent: u32, argument: &str) -> Result<u32> {
    let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"))?;
    let has = |pid: &&str| {
        fs::read(format!("/proc/{pid}/cmdline"))
            .is_ok_and(|line| line.split(|b| *b == 0).any(|word| word == argument.as_bytes()))
    };
    let pid = children.split_whitespace().find(has);
    Ok(pid.with_context(|| format!("no process {argument} below {parent}"))?.parse()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_used_time_and_memory() {
        let pid = std::process::id();
        assert!(cpu(pid).unwrap() > Duration::ZERO);
        let memory = memory(pid).unwrap();
        assert!(memory.resident >= memory.anonymous && memory.anonymous > 0);
        let proportional = proportional(pid).unwrap();
        assert!(proportional.all > 0 && proportional.all <= memory.resident + (1 << 20));
    }
}
