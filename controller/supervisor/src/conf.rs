//! The skeleton of nginx.conf with the operator's values and the TCP and UDP listeners.
//!
//! Errors:  none at run time: every value is of a type that cannot break the syntax, and a test sees to it
//!          that no placeholder is left.

pub mod certificate;
mod keys;
pub mod listeners;
mod stream;
pub mod tickets;
pub mod zone;

use crate::options::{Journal, Options};
use crate::runtime::Runtime;
use oxigress_settings::StaticConfig;
use oxigress_settings::conf_input::ConfInput;
use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv6Addr, TcpListener};
use std::path::{Path, PathBuf};

const SKELETON: &str = include_str!("../../../conf/nginx.conf");

/// ingress-nginx's `max-worker-connections`.
const WORKER_CONNECTIONS: u64 = 16_384;

/// Open files of a worker and its connections: in this proportion the files do not run out first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Files {
    /// The value of `worker_rlimit_nofile`: open files of one worker.
    pub max_open: u64,
    /// The value of `worker_connections`.
    pub connections: u64,
}

impl Files {
    /// Divides what the limit of open files allows.
    fn divide(hard_limit: u64, workers: u64) -> Self {
        // The reference leaves 1,024 alone. Of a small limit that would be too much.
        let max_open = if hard_limit > 4096 { hard_limit - 1024 } else { hard_limit };
        // Logs, event queues and what the module keeps back; and for each worker its four listeners, which all
        // workers inherit, and its channel.
        let own = 64 + 8 * workers;
        // A connection takes one, and one more while the body of its request lies in a temporary file.
        let connections = max_open.saturating_sub(own) / 2;
        // nginx cannot start on fewer than its listeners.
        Files { max_open, connections: connections.clamp(own, WORKER_CONNECTIONS) }
    }

    /// What the ConfigMap says instead.
    fn said(self, keys: &StaticConfig) -> Self {
        let max_open = match keys.number("max-worker-open-files") {
            0 => self.max_open,
            said => said,
        };
        // The default is as many as the files suffice for; 0 is the reference's word for three quarters of them.
        let connections = match keys.number("max-worker-connections") {
            WORKER_CONNECTIONS if max_open == self.max_open => self.connections,
            0 => max_open / 4 * 3,
            said => said.min(max_open),
        };
        Files { max_open, connections: connections.max(64) }
    }

    /// What is worth telling the operator.
    fn warning(&self, hard_limit: u64) -> Option<String> {
        let Files { connections, .. } = self;
        (*connections < WORKER_CONNECTIONS).then(|| {
            format!(
                "a process may open {hard_limit} files, so a worker takes {connections} connections instead of \
                 {WORKER_CONNECTIONS}: raise the hard limit of open files (ulimit -Hn, LimitNOFILE of systemd, \
                 the container runtime's default)"
            )
        })
    }
}

/// What nginx.conf needs to know of the machine and its folders.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    /// The user and group of workers, if the master runs as root.
    pub worker_user: Option<(String, String)>,
    /// IPv6 sockets can be made.
    pub has_ipv6: bool,
    /// Longest queue of connections to be accepted.
    pub backlog: u32,
    /// Hard limit of open files.
    pub open_files: u64,
    /// The file or device that requests are logged to.
    pub access_log: PathBuf,
    /// Files in the runtime folder stay in memory.
    pub is_memory_backed: bool,
    /// What the large buffers of a worker's requests may take; 0: as much as the module lets them.
    pub buffer_bytes: u64,
    /// The folder of `--temp-dir` and its size; `None`: the flag is absent.
    pub temp: Option<Temp>,
}

/// Where nginx buffers what does not fit into memory.
#[derive(Clone, Debug, Default)]
pub struct Temp {
    folder: PathBuf,
    /// Of its file system; 0: unknown.
    bytes: u64,
}

impl Temp {
    /// Asks how large it is.
    pub fn look(folder: PathBuf) -> Self {
        let facts = rustix::fs::statvfs(&folder);
        let bytes = facts.map_or(0, |facts| facts.f_blocks.saturating_mul(facts.f_frsize));
        Temp { folder, bytes }
    }
}

/// The beginning of the paths of temporary files; without `--temp-dir` they are relative to the folder that nginx is
/// started in.
fn temp(machine: &Machine) -> String {
    machine.temp.as_ref().map(|temp| format!("{}/", temp.folder.display())).unwrap_or_default()
}

/// Largest file of an answer that a slow client has not read yet; nginx reads no more of the answer until the client
/// has. Sixteen such clients fit into `--temp-dir`.
fn max_temp_file_size(machine: &Machine) -> String {
    let bytes = machine.temp.as_ref().map_or(0, |temp| temp.bytes);
    let share = match bytes {
        0 => MAX_TEMP_FILE_BYTES,
        bytes => (bytes / 16).clamp(1 << 20, MAX_TEMP_FILE_BYTES),
    };
    format!("{}k", share >> 10)
}

/// nginx's default of `proxy_max_temp_file_size`.
const MAX_TEMP_FILE_BYTES: u64 = 1 << 30;

impl Machine {
    /// Asks the machine; `runtime` takes the access log where standard output cannot be opened again.
    pub fn look(runtime: &Runtime, workers: usize) -> Self {
        append_to_files();
        let stdout = Path::new("/dev/stdout");
        // A socket as standard output has no file that could be opened.
        let access_log = match fs::OpenOptions::new().append(true).open(stdout) {
            Ok(_) => stdout.to_owned(),
            Err(error) => {
                let file = runtime.file("access.log");
                tracing::warn!("cannot open {stdout:?}: {error}; the access log goes to {file:?}");
                file
            }
        };
        let somaxconn = fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap_or_default();
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        let hard = limit.maximum.unwrap_or(1 << 20).min(1 << 20);
        let files = Files::divide(hard, workers as u64);
        if let Some(warning) = files.warning(hard) {
            tracing::warn!("{warning}");
        }
        Machine {
            worker_user: None,
            has_ipv6: TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0)).is_ok(),
            backlog: somaxconn.trim().parse().unwrap_or(0).max(511),
            open_files: hard,
            access_log,
            is_memory_backed: rustix::fs::statfs(runtime.folder())
                .is_ok_and(|facts| [TMPFS, RAMFS].contains(&i128::from(facts.f_type))),
            buffer_bytes: zone::buffer_bytes(workers),
            temp: None,
        }
    }
}

/// The number of tmpfs in linux/magic.h.
const TMPFS: i128 = 0x0102_1994;
const RAMFS: i128 = 0x8584_58f6;

/// Says why there is none, where the operator may wonder.
pub fn name_lack_of_a_journal(options: &Options, runtime: &Runtime, machine: &Machine) {
    if options.journal == Journal::Auto && !machine.is_memory_backed {
        tracing::info!(
            "no journal, since {:?} is not memory-backed: a restarted nginx serves nothing until the controller \
             has sent everything; put --runtime-dir on a tmpfs, or keep keys on disk with --journal=on",
            runtime.folder()
        );
    }
}

/// The journal holds private keys: nowhere but in memory unless the operator says so.
fn journal(options: &Options, machine: &Machine) -> String {
    let is_wanted = match options.journal {
        Journal::On => true,
        Journal::Off => false,
        Journal::Auto => machine.is_memory_backed,
    };
    match is_wanted {
        // In the workers' folder, where nginx is started: they cannot enter the one above.
        true => "ingress_journal journal;".into(),
        false => String::new(),
    }
}

/// nginx opens standard output once more. In a file that was opened without appending, both would write
/// over each other's lines.
fn append_to_files() {
    for fd in [rustix::stdio::stdout(), rustix::stdio::stderr()] {
        let Ok(flags) = rustix::fs::fcntl_getfl(fd) else { continue };
        // A terminal or a pipe has no position and does not care.
        let _ = rustix::fs::fcntl_setfl(fd, flags | rustix::fs::OFlags::APPEND);
    }
}

fn buffers(machine: &Machine) -> String {
    match machine.buffer_bytes {
        0 => String::new(),
        bytes => format!("ingress_buffers {}k;", bytes >> 10),
    }
}

fn metrics(options: &Options) -> String {
    match &options.metrics {
        Some(buckets) => format!("ingress_metrics {buckets};"),
        None => String::new(),
    }
}

/// Renders nginx.conf as a whole.
pub fn render(
    options: &Options,
    runtime: &Runtime,
    module: &Path,
    machine: &Machine,
    input: &ConfInput,
) -> String {
    let keys = &input.settings;
    let workers = workers(options, input);
    let files = Files::divide(machine.open_files, workers as u64).said(keys);
    let user = match &machine.worker_user {
        Some((user, group)) => format!("user {user} {group};"),
        None => String::new(),
    };
    let listen_status = match options.status_port {
        Some(port) => format!("listen 127.0.0.1:{port};"),
        None => String::new(),
    };
    let mut values = keys::values(options, machine, keys);
    values.extend([
        ("user", user),
        ("runtime", runtime.folder().display().to_string()),
        ("temp", temp(machine)),
        ("max_temp_file_size", max_temp_file_size(machine)),
        ("module", module.display().to_string()),
        ("worker_processes", workers.to_string()),
        ("max_open_files", files.max_open.to_string()),
        ("worker_connections", files.connections.to_string()),
        ("zone_size", format!("{}k", input.zone_bytes.max(options.zone_bytes) >> 10)),
        ("journal", journal(options, machine)),
        ("metrics", metrics(options)),
        ("ssl_session_ticket_key", tickets::line(runtime, keys)),
        ("buffers", buffers(machine)),
        ("destinations", format!("ingress_destinations{};", options.destinations)),
        ("stream", stream::block(options, runtime, machine, input)),
        ("health_check_path", options.health_check_path.clone()),
        ("listen_status", listen_status),
        ("listen_gateways", keys::gateway_listeners(machine, input)),
    ]);
    let values: BTreeMap<_, _> = values.into_iter().collect();
    fill(|name| match values.get(name) {
        Some(value) => value.clone(),
        None => keys.value(name).conf(),
    })
}

/// The skeleton with its placeholders filled in, each once: what a value looks like is never read again. A line that
/// held nothing but an empty value is left out.
fn fill(value_of: impl Fn(&str) -> String) -> String {
    let mut text = String::with_capacity(SKELETON.len() * 2);
    for line in SKELETON.lines() {
        let start = text.len();
        let mut rest = line;
        while let Some((before, after)) = rest.split_once("{{") {
            let (name, after) = after.split_once("}}").unwrap_or((after, ""));
            text += before;
            text += &value_of(name);
            rest = after;
        }
        text += rest;
        let written = text[start..].trim_end().len();
        text.truncate(start + written);
        if written > 0 || line.is_empty() {
            text.push('\n');
        }
    }
    text
}

/// Worker processes: the ConfigMap's number, else the flag's.
pub fn workers(options: &Options, input: &ConfInput) -> usize {
    input.settings.text("worker-processes").parse().unwrap_or(options.worker_processes)
}

#[cfg(test)]
mod tests;
