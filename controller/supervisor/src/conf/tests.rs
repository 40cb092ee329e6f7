//! What is rendered, for flags and keys.

use super::*;
use oxigress_core::telemetry::metrics::Buckets;
use oxigress_settings::key::Key;
use oxigress_settings::keys;

fn rendered(options: &Options, machine: &Machine) -> String {
    let folder = tempfile::tempdir().unwrap();
    let runtime = Runtime::open(folder.path()).unwrap();
    render(options, &runtime, Path::new("/m/x.so"), machine, &ConfInput::default())
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
    let listeners = ["tcp/9000", "udp/53"]
        .map(|port| (oxigress_core::model::StreamPort::parse(port).unwrap(), Default::default()));
    let mut input = ConfInput { listeners: listeners.into(), ..ConfInput::default() };
    for (name, text) in values {
        input.settings.put(keys::find(name).unwrap(), text);
    }
    let text = render(&Options::default(), &runtime, Path::new("/m/x.so"), &machine, &input);
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
        "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
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
    let brotli = &[("enable-brotli", "true")];
    for key in keys::all().filter(|key| key.how.is_conf()) {
        let base = match key.name {
            "forwarded-for-proxy-protocol-header" => proxies,
            name if name.contains("syslog") => syslog,
            name if name.starts_with("brotli-") => brotli,
            _ => base,
        };
        let before: Vec<_> = base.iter().filter(|(name, _)| *name != key.name).copied().collect();
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
        for text in ["x; env SECRET;", "{{journal}}", "a\nb", "\"", "on; }", "${x}", "~(a+)+$"] {
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
        quoted.contains(r"ingress_log_line $ingress_access_line '{{journal}} \'; env SECRET;';"),
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

#[test]
fn a_ticket_key_is_a_file_of_the_runtime_folder_and_never_text_of_nginx_conf() {
    let line = |key: &str| {
        let text = with_keys(&[("ssl-session-ticket-key", key)]);
        assert!(!text.contains("AAAA") && !text.contains("BBBB"), "{text}");
        text.lines().find(|line| line.contains("ticket_key")).map(str::to_owned)
    };
    let (a, b) = (line(&"A".repeat(64)), line(&"B".repeat(64)));
    let is_file = |line: &String| line.trim().starts_with("ssl_session_ticket_key /tickets-");
    assert!(a.as_ref().is_some_and(is_file), "{a:?}");
    assert_ne!(a, b, "another key is another nginx.conf");
    assert_eq!((line(""), line("AAAA")), (None, None));
}
