//! The skeleton of nginx.conf with the operator's values and the TCP and UDP listeners.
//!
//! Errors:  none at run time: every value is of a type that cannot break the syntax, and a test sees to it
//!          that no placeholder is left.

pub mod certificate;
mod keys;
pub mod listeners;
mod stream;
pub mod zone;

use crate::options::{Journal, Options};
use crate::runtime::Runtime;
use oxigress_settings::StaticConfig;
use oxigress_settings::streams::Streams;
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
    /// `worker_rlimit_nofile`
    pub max_open: u64,
    /// `worker_connections`
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

/// What the machine contributes.
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
    /// Where requests are logged.
    pub access_log: PathBuf,
    /// Files in the runtime folder stay in memory.
    pub is_memory_backed: bool,
    /// What the large buffers of a worker's requests may take; 0: as much as the module lets them.
    pub buffer_bytes: u64,
    /// Of `--temp-dir`.
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
                tracing::warn!("requests are logged to {file:?}, since {stdout:?}: {error}");
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

/// linux/magic.h
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

/// The whole file.
pub fn render(
    options: &Options,
    runtime: &Runtime,
    module: &Path,
    machine: &Machine,
    streams: &Streams,
) -> String {
    let keys = &streams.settings;
    let workers = workers(options, streams);
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
        ("zone_size", format!("{}k", streams.zone_bytes.max(options.zone_bytes) >> 10)),
        ("journal", journal(options, machine)),
        ("metrics", metrics(options)),
        ("buffers", buffers(machine)),
        ("destinations", format!("ingress_destinations{};", options.destinations)),
        ("stream", stream::block(options, machine, streams)),
        ("health_check_path", options.health_check_path.clone()),
        ("listen_status", listen_status),
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
pub fn workers(options: &Options, streams: &Streams) -> usize {
    streams.settings.text("worker-processes").parse().unwrap_or(options.worker_processes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use oxigress_core::metrics::Buckets;
    use oxigress_settings::key::Key;
    use oxigress_settings::keys;

    fn rendered(options: &Options, machine: &Machine) -> String {
        let folder = tempfile::tempdir().unwrap();
        let runtime = Runtime::open(folder.path()).unwrap();
        render(options, &runtime, Path::new("/m/x.so"), machine, &Streams::default())
    }

    #[test]
    fn no_placeholder_is_left() {
        let text = rendered(&Options::default(), &Machine::default());
        assert!(!text.contains("{{") && !text.contains("}}"), "{text}");
    }

    #[test]
    fn files_last_as_long_as_connections() {
        let Files { max_open, connections } = Files::divide(1 << 20, 4);
        assert_eq!((max_open, connections), ((1 << 20) - 1024, WORKER_CONNECTIONS));
        assert_eq!(Files::divide(1 << 20, 4).warning(1 << 20), None);
        for (hard, workers) in [(20_000, 2), (4_096, 8), (1_024, 2)] {
            let files = Files::divide(hard, workers);
            assert!(files.max_open <= hard, "more than root alone may set: {files:?}");
            assert!(files.connections * 2 + 64 + 8 * workers <= files.max_open, "{files:?}");
            let warning = files.warning(hard).unwrap();
            assert!(warning.contains(&hard.to_string()) && warning.contains("ulimit"), "{warning}");
        }
        // Too few for anything: nginx starts, and says so itself.
        assert_eq!(Files::divide(64, 1), Files { max_open: 64, connections: 72 });
    }

    #[test]
    fn flags_stand_where_they_belong() {
        let machine = Machine { has_ipv6: true, ..Machine::default() };
        let text = rendered(
            &Options { http_port: 8080, status_port: Some(10246), ..Options::default() },
            &machine,
        );
        assert!(text.contains("listen 8080 default_server"));
        assert!(text.contains("listen [::]:8080 default_server"));
        assert!(text.contains("listen 127.0.0.1:10246;"));
        assert!(!rendered(&Options::default(), &Machine::default()).contains("127.0.0.1:"));
    }

    #[test]
    fn requests_are_counted_if_the_operator_says_so() {
        let line = |metrics: Option<Buckets>| {
            let options = Options { metrics, ..Options::default() };
            let text = rendered(&options, &Machine::default());
            text.lines().find(|line| line.starts_with("ingress_metrics ")).map(str::to_owned)
        };
        assert_eq!(line(None), None);
        let buckets = Buckets::default().with_time("0.5,1").unwrap();
        let buckets = buckets.with_length("9").unwrap().with_size("8").unwrap();
        assert_eq!(line(Some(buckets)).unwrap(), "ingress_metrics time=0.5,1 length=9 size=8;");
    }

    #[test]
    fn a_journal_is_kept_in_memory_unless_the_operator_says_so() {
        let memory = Machine { is_memory_backed: true, ..Machine::default() };
        let has_one = |journal, machine: &Machine| {
            let text = rendered(&Options { journal, ..Options::default() }, machine);
            text.lines().any(|line| line.starts_with("ingress_journal "))
        };
        assert!(has_one(Journal::Auto, &memory) && !has_one(Journal::Off, &memory));
        let disk = Machine::default();
        assert!(!has_one(Journal::Auto, &disk) && has_one(Journal::On, &disk));
    }

    /// nginx.conf with these values of the ConfigMap, with a TCP and a UDP listener and all else that keys say
    /// something about.
    fn with_keys(values: &[(&str, &str)]) -> String {
        let folder = tempfile::tempdir().unwrap();
        let runtime = Runtime::open(folder.path()).unwrap();
        let machine = Machine { has_ipv6: true, open_files: 1 << 20, ..Machine::default() };
        let listeners = ["tcp/9000", "udp/53"].map(|port| {
            (oxigress_core::model::StreamPort::parse(port).unwrap(), Default::default())
        });
        let mut streams = Streams { listeners: listeners.into(), ..Streams::default() };
        for (name, text) in values {
            streams.settings.put(keys::find(name).unwrap(), text);
        }
        let text = render(&Options::default(), &runtime, Path::new("/m/x.so"), &machine, &streams);
        text.replace(&folder.path().display().to_string(), "")
    }

    /// A value that is not the default.
    fn sample(key: &Key) -> &'static str {
        let samples = [
            "false",
            "true",
            "77",
            "2",
            "9k",
            "9m",
            "P-256",
            "77s",
            "/dev/null",
            "buffer=32k flush=5s",
            "/skip",
            "'$status'",
            "auto",
            "4 16k",
            "application/x-test",
            "X-Test",
            "X-Forwarded-Test",
            "all",
            "10.1.0.0/16",
            "127.0.0.9",
            "TLSv1.3",
            "AES128-SHA",
            "msie6",
            "warn",
            "logs.test",
            "3",
        ];
        let default = key.form.read(key.default).ok().map(|(value, _)| value);
        let is_other = |sample: &&&str| {
            let read = key.form.read(sample);
            read.is_ok_and(|(value, odd)| odd.is_empty() && Some(value) != default)
        };
        samples.iter().find(is_other).unwrap_or_else(|| panic!("no sample for {}", key.name))
    }

    #[test]
    fn each_key_that_stands_in_nginx_conf_changes_it() {
        let base: &[(&str, &str)] = &[
            ("use-gzip", "true"),
            ("use-forwarded-headers", "true"),
            ("server-tokens", "true"),
            ("error-log-level", "info"),
        ];
        let syslog: &[(&str, &str)] = &[("enable-syslog", "true"), ("syslog-host", "a.test")];
        let proxies = &[("use-forwarded-headers", "true"), ("use-proxy-protocol", "true")];
        for key in keys::all().filter(|key| key.how.is_conf()) {
            let base = match key.name {
                "forwarded-for-proxy-protocol-header" => proxies,
                name if name.contains("syslog") => syslog,
                _ => base,
            };
            let before: Vec<_> =
                base.iter().filter(|(name, _)| *name != key.name).copied().collect();
            let after = [&before[..], &[(key.name, sample(key))]].concat();
            assert_ne!(with_keys(&before), with_keys(&after), "{}", key.name);
        }
        // The defaults written out are the defaults.
        let defaults = keys::all().filter(|key| key.how.is_conf() && !key.default.is_empty());
        let defaults: Vec<_> = defaults.map(|key| (key.name, key.default)).collect();
        assert_eq!(with_keys(&[]), with_keys(&defaults));
    }

    #[test]
    fn html_alone_is_what_nginx_compresses_without_a_list() {
        let types = |text| {
            let text = with_keys(&[("use-gzip", "true"), ("gzip-types", text)]);
            assert!(text.contains("gzip on;"));
            let line = text.lines().find_map(|line| line.trim().strip_prefix("gzip_types "));
            line.map(str::to_owned)
        };
        assert_eq!(types("text/html"), None);
        assert_eq!(types("text/html text/css").as_deref(), Some("text/css;"));
        assert!(types("").is_some_and(|types| types.contains("text/css")), "the default");
    }

    #[test]
    fn a_long_target_that_is_not_logged_has_a_bucket() {
        let long = format!("/{}", "a".repeat(1_000));
        assert!(with_keys(&[]).contains("map_hash_bucket_size 64;"));
        let rendered = with_keys(&[("skip-access-log-urls", &long)]);
        assert!(rendered.contains("map_hash_bucket_size 1088;"), "{rendered}");
    }

    #[test]
    fn what_the_forms_do_not_take_never_gets_into_nginx_conf() {
        for key in keys::all().filter(|key| key.how.is_conf()) {
            for text in ["x; env SECRET;", "{{journal}}", "a\nb", "\"", "on; }", "${x}", "~(a+)+$"]
            {
                let rendered = with_keys(&[(key.name, text)]);
                assert!(
                    !rendered.contains("env SECRET") && !rendered.contains("(a+)+")
                        || key.name.starts_with("log-format"),
                    "{}: {text}",
                    key.name
                );
            }
        }
        let quoted = with_keys(&[("log-format-upstream", "{{journal}} '; env SECRET;")]);
        assert!(
            quoted
                .contains(r"ingress_log_line $ingress_access_line '{{journal}} \'; env SECRET;';"),
            "{quoted}"
        );
    }

    #[test]
    fn the_operator_s_numbers_count_as_far_as_files_last() {
        let line = |values: &[(&str, &str)], name: &str| {
            let text = with_keys(values);
            text.lines().find(|line| line.trim().starts_with(name)).unwrap().trim().to_owned()
        };
        let connections = "worker_connections";
        assert_eq!(line(&[], connections), "worker_connections 16384;");
        assert_eq!(
            line(&[("max-worker-connections", "1000")], connections),
            "worker_connections 1000;"
        );
        let both = [("max-worker-connections", "0"), ("max-worker-open-files", "4000")];
        assert_eq!(line(&both, connections), "worker_connections 3000;");
        assert_eq!(line(&both, "worker_rlimit_nofile"), "worker_rlimit_nofile 4000;");
        assert_eq!(line(&[("worker-processes", "7")], "worker_processes"), "worker_processes 7;");
    }
}
