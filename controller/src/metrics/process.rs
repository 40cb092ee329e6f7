//! What the kernel and `stub_status` know.

use oxigress_core::telemetry::metrics::{number, sample, title, with_constant};
use oxigress_supervisor::process::table;
use rustix::process::Pid;
use std::fmt::Write;
use std::path::Path;

/// The kernel's unit of times in `stat`, 1/100 s on every machine that Linux calls one of ours.
const TICKS: f64 = 100.0;

/// The resources of one process, or of several together.
#[derive(Debug, Default, PartialEq)]
struct Usage {
    processes: u64,
    cpu_seconds: f64,
    resident_bytes: u64,
    virtual_bytes: u64,
    read_bytes: u64,
    write_bytes: u64,
    /// The start of the oldest process, in seconds since 1970.
    oldest_start: Option<f64>,
}

impl Usage {
    fn add(&mut self, pid: Pid, boot: f64) -> Option<()> {
        let folder = format!("/proc/{}", pid.as_raw_nonzero());
        let stat = std::fs::read_to_string(format!("{folder}/stat")).ok()?;
        let fields: Vec<&str> = stat.rsplit(')').next()?.split_whitespace().collect();
        // proc(5), from the third field on.
        let field = |number: usize| fields.get(number - 3)?.parse::<f64>().ok();
        self.processes += 1;
        self.cpu_seconds += (field(14)? + field(15)?) / TICKS;
        let start = boot + field(22)? / TICKS;
        self.oldest_start = Some(self.oldest_start.map_or(start, |oldest| oldest.min(start)));
        self.virtual_bytes += field(23)? as u64;
        let status = std::fs::read_to_string(format!("{folder}/status")).unwrap_or_default();
        self.resident_bytes += value(&status, "VmRSS:") * 1024;
        // Of another user's process only root may read it.
        let io = std::fs::read_to_string(format!("{folder}/io")).unwrap_or_default();
        self.read_bytes += value(&io, "rchar:");
        self.write_bytes += value(&io, "wchar:");
        Some(())
    }
}

fn value(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or_default()
}

fn boot_seconds() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/stat").ok()?;
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

/// This process, under the names that every Go program has.
pub fn this() -> Option<String> {
    let mut usage = Usage::default();
    usage.add(rustix::process::getpid(), boot_seconds()?)?;
    let files = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    let mut out = String::new();
    for (name, kind, help, value) in [
        ("cpu_seconds_total", "counter", "CPU time, user and system", usage.cpu_seconds),
        ("open_fds", "gauge", "Open file descriptors", files as f64),
        ("resident_memory_bytes", "gauge", "Resident memory", usage.resident_bytes as f64),
        ("virtual_memory_bytes", "gauge", "Virtual memory", usage.virtual_bytes as f64),
        ("start_time_seconds", "gauge", "When it started", usage.oldest_start.unwrap_or_default()),
    ] {
        let value = number(value);
        let _ = writeln!(
            out,
            "# HELP process_{name} {help}\n# TYPE process_{name} {kind}\nprocess_{name} {value}"
        );
    }
    Some(out)
}

/// nginx's processes together; `None` where they cannot be seen, as from another container.
pub fn nginx(pid_file: &Path, constant: &[(String, String)]) -> Option<String> {
    let pid: i32 = std::fs::read_to_string(pid_file).ok()?.trim().parse().ok()?;
    let all: Vec<_> = table::all().filter(|process| !process.is_zombie).collect();
    // The supervisor gives nginx a process group of its own, which both masters of an upgrade are in.
    let group = all.iter().find(|process| process.pid.as_raw_nonzero().get() == pid)?.group;
    let boot = boot_seconds()?;
    let mut usage = Usage::default();
    for process in all.iter().filter(|process| process.group == group) {
        // One that ends meanwhile is not there.
        let _ = usage.add(process.pid, boot);
    }
    let mut out = String::new();
    for (name, kind, help, value) in [
        ("num_procs", "gauge", "nginx's processes", usage.processes as f64),
        ("cpu_seconds_total", "counter", "CPU time, user and system", usage.cpu_seconds),
        ("read_bytes_total", "counter", "Bytes read", usage.read_bytes as f64),
        ("write_bytes_total", "counter", "Bytes written", usage.write_bytes as f64),
        ("resident_memory_bytes", "gauge", "Resident memory", usage.resident_bytes as f64),
        ("virtual_memory_bytes", "gauge", "Virtual memory", usage.virtual_bytes as f64),
        (
            "oldest_start_time_seconds",
            "gauge",
            "When the oldest process started",
            usage.oldest_start.unwrap_or_default(),
        ),
    ] {
        let name = format!("nginx_process_{name}");
        title(&mut out, &name, kind, help);
        sample(&mut out, &name, &with_constant(constant, &[]), value);
    }
    Some(out)
}

/// What the page of `stub_status` says.
pub fn connections(page: &str, constant: &[(String, String)]) -> Option<String> {
    let mut lines = page.lines();
    let active = lines.next()?.strip_prefix("Active connections:")?.trim().parse().ok()?;
    let mut totals = lines.nth(1)?.split_whitespace().map(str::parse::<f64>);
    let mut total = || totals.next()?.ok();
    let (accepted, handled, requests) = (total()?, total()?, total()?);
    let mut states = lines.next()?.split_whitespace().skip(1).step_by(2).map(str::parse::<f64>);
    let mut state = || states.next()?.ok();
    let (reading, writing, waiting) = (state()?, state()?, state()?);

    let mut out = String::new();
    let name = "nginx_process_connections_total";
    title(&mut out, name, "counter", "Connections of clients");
    for (state, value) in [("accepted", accepted), ("handled", handled)] {
        sample(&mut out, name, &with_constant(constant, &[("state", state)]), value);
    }
    let name = "nginx_process_requests_total";
    title(&mut out, name, "counter", "Requests of clients");
    sample(&mut out, name, &with_constant(constant, &[]), requests);
    let name = "nginx_process_connections";
    title(&mut out, name, "gauge", "Connections of clients that are open");
    for (state, value) in
        [("active", active), ("reading", reading), ("writing", writing), ("waiting", waiting)]
    {
        sample(&mut out, name, &with_constant(constant, &[("state", state)]), value);
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stub_status_is_read() {
        let page = "Active connections: 2 \nserver accepts handled requests\n 7 6 31 \nReading: 0 Writing: 1 Waiting: 3 \n";
        let text = connections(page, &[("controller_pod".into(), "p".into())]).unwrap();
        for line in [
            "nginx_ingress_controller_nginx_process_connections_total{controller_pod=\"p\",state=\"handled\"} 6",
            "nginx_ingress_controller_nginx_process_requests_total{controller_pod=\"p\"} 31",
            "nginx_ingress_controller_nginx_process_connections{controller_pod=\"p\",state=\"active\"} 2",
            "nginx_ingress_controller_nginx_process_connections{controller_pod=\"p\",state=\"waiting\"} 3",
        ] {
            assert!(text.lines().any(|there| there == line), "{line}\n{text}");
        }
        assert_eq!(connections("404 Not Found", &[]), None);
    }

    #[test]
    fn a_process_has_used_something() {
        let mut usage = Usage::default();
        usage.add(rustix::process::getpid(), boot_seconds().unwrap()).unwrap();
        assert_eq!(usage.processes, 1);
        assert!(usage.resident_bytes > 1 << 20 && usage.virtual_bytes > usage.resident_bytes);
        assert!(usage.oldest_start.unwrap() > 1.5e9, "{usage:?}");
    }
}
