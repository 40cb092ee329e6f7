//! The skeleton nginx.conf with the operator's values.
//!
//! Errors:  none at run time: every value is of a type that cannot break the syntax, and a test sees to it
//!          that no placeholder is left.

use crate::flags::{Flags, Journal};
use crate::runtime::Runtime;
use std::fs;
use std::net::{Ipv6Addr, TcpListener};
use std::path::{Path, PathBuf};

const SKELETON: &str = include_str!("../../../conf/nginx.conf");

/// What the machine contributes.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    /// The user and group of workers, if the master runs as root.
    pub worker_user: Option<(String, String)>,
    /// IPv6 sockets can be made.
    pub has_ipv6: bool,
    /// Longest queue of connections to be accepted.
    pub backlog: u32,
    /// Open files a worker may have.
    pub max_open_files: u64,
    /// Where requests are logged.
    pub access_log: PathBuf,
    /// Files in the runtime folder stay in memory.
    pub is_memory_backed: bool,
}

impl Machine {
    /// Asks the machine; `runtime` takes the access log where standard output cannot be opened again.
    pub fn look(runtime: &Runtime) -> Self {
        append_to_files();
        let stdout = Path::new("/dev/stdout");
        // A socket as standard output has no file that could be opened.
        let access_log = match fs::OpenOptions::new().append(true).open(stdout) {
            Ok(_) => stdout.to_owned(),
            Err(error) => {
                let file = runtime.file("access.log");
                tracing::warn!("requests are logged to {file:?}, since {stdout:?}: {error}");
                file
            }
        };
        let somaxconn = fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap_or_default();
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        let hard = limit.maximum.unwrap_or(1 << 20).min(1 << 20);
        Machine {
            worker_user: None,
            has_ipv6: TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0)).is_ok(),
            backlog: somaxconn.trim().parse().unwrap_or(0).max(511),
            max_open_files: hard.saturating_sub(1024).max(1024),
            access_log,
            is_memory_backed: rustix::fs::statfs(runtime.folder())
                .is_ok_and(|facts| [TMPFS, RAMFS].contains(&i128::from(facts.f_type))),
        }
    }
}

/// linux/magic.h
const TMPFS: i128 = 0x0102_1994;
const RAMFS: i128 = 0x8584_58f6;

/// The journal holds private keys: nowhere but in memory unless the operator says so.
fn journal(flags: &Flags, runtime: &Runtime, machine: &Machine) -> String {
    let is_wanted = match flags.journal {
        Journal::On => true,
        Journal::Off => false,
        Journal::Auto => machine.is_memory_backed,
    };
    if flags.journal == Journal::Auto && !is_wanted {
        tracing::info!(
            "no journal, since {:?} is not memory-backed: a restarted nginx serves nothing until the controller \
             has sent everything; put --runtime-dir on a tmpfs, or keep keys on disk with --journal=on",
            runtime.folder()
        );
    }
    match is_wanted {
        true => format!("ingress_journal {}/worker/journal;", runtime.folder().display()),
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

/// The whole file.
pub fn render(flags: &Flags, runtime: &Runtime, module: &Path, machine: &Machine) -> String {
    let (http, https, backlog) = (flags.http_port, flags.https_port, machine.backlog);
    let v6 = |line: String| if machine.has_ipv6 { line } else { String::new() };
    let values = [
        (
            "user",
            match &machine.worker_user {
                Some((user, group)) => format!("user {user} {group};"),
                None => String::new(),
            },
        ),
        ("runtime", runtime.folder().display().to_string()),
        ("module", module.display().to_string()),
        ("worker_processes", flags.worker_processes.0.to_string()),
        ("max_open_files", machine.max_open_files.to_string()),
        ("zone_size", flags.zone_size.clone()),
        ("journal", journal(flags, runtime, machine)),
        ("access_log", machine.access_log.display().to_string()),
        ("http_port", http.to_string()),
        ("https_port", https.to_string()),
        ("backlog", backlog.to_string()),
        (
            "listen_http_v6",
            v6(format!("listen [::]:{http} default_server reuseport backlog={backlog};")),
        ),
        (
            "listen_https_v6",
            v6(format!("listen [::]:{https} default_server ssl reuseport backlog={backlog};")),
        ),
        ("health_check_path", flags.health_check_path.clone()),
        (
            "listen_status",
            match flags.status_port {
                Some(port) => format!("listen 127.0.0.1:{port};"),
                None => String::new(),
            },
        ),
    ];
    let filled = values.iter().fold(SKELETON.to_owned(), |text, (name, value)| {
        text.replace(&format!("{{{{{name}}}}}"), value)
    });
    // An optional line that is not there leaves no line of blanks behind.
    filled.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::Cli;
    use clap::Parser;

    fn rendered(arguments: &[&str], machine: &Machine) -> String {
        let folder = tempfile::tempdir().unwrap();
        let runtime = Runtime::open(folder.path()).unwrap();
        let flags = Cli::parse_from([&["oxigress"], arguments].concat()).flags();
        render(&flags, &runtime, Path::new("/m/x.so"), machine)
    }

    #[test]
    fn no_placeholder_is_left() {
        let text = rendered(&[], &Machine::default());
        assert!(!text.contains("{{") && !text.contains("}}"), "{text}");
    }

    #[test]
    fn flags_stand_where_they_belong() {
        let machine = Machine { has_ipv6: true, ..Machine::default() };
        let text = rendered(&["--http-port=8080", "--status-port=10246"], &machine);
        assert!(text.contains("listen 8080 default_server"));
        assert!(text.contains("listen [::]:8080 default_server"));
        assert!(text.contains("listen 127.0.0.1:10246;"));
        assert!(!rendered(&[], &Machine::default()).contains("127.0.0.1:"));
    }

    #[test]
    fn a_journal_is_kept_in_memory_unless_the_operator_says_so() {
        let memory = Machine { is_memory_backed: true, ..Machine::default() };
        let has_one = |arguments: &[&str], machine: &Machine| {
            rendered(arguments, machine).lines().any(|line| line.starts_with("ingress_journal /"))
        };
        assert!(has_one(&[], &memory) && !has_one(&["--journal=off"], &memory));
        let disk = Machine::default();
        assert!(!has_one(&[], &disk) && has_one(&["--journal=on"], &disk));
    }
}
