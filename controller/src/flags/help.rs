//! How the command line explains itself: flags in groups, the common ones in `-h`, all in `--help`, and beside a command
//! those that it reads.
//!
//! A command takes every flag of the program all the same, so that a pod's arguments can be given to `check` as they are.

use super::Cli;
use clap::{Arg, Command, CommandFactory, FromArgMatches};
use std::ffi::OsString;

/// Flags that belong together, by the ids that clap gives them.
struct Group {
    heading: &'static str,
    /// Commands that read them. The program without a command reads all.
    read_by: &'static [&'static str],
    /// `-h` shows these.
    common: &'static [&'static str],
    others: &'static [&'static str],
}

const GROUPS: [Group; 9] = [
    Group {
        heading: "What is served",
        read_by: &["controller", "check", "compare"],
        common: &["manifests", "kubeconfig", "watch_namespace"],
        others: &["apiserver_host", "certificate_authority", "watch_namespace_selector"],
    },
    Group {
        heading: "Ingresses",
        read_by: &["controller", "check", "explain"],
        common: &["ingress_class", "configmap", "default_ssl_certificate", "host_ownership"],
        others: &[
            "controller_class",
            "gateway_api",
            "gateway_controller_name",
            "gateway_addresses",
            "ingress_class_by_name",
            "watch_ingress_without_class",
            "annotations_prefix",
            "regex_per_host",
            "disable_catch_all",
            "deep_inspect",
            "default_backend_service",
            "enable_ssl_passthrough",
            "tcp_services_configmap",
            "udp_services_configmap",
            "disable_svc_external_name",
            "resolv_conf",
            "allow_loopback_destinations",
            "deny_destinations",
            "enable_topology_aware_routing",
            "zone",
            "node_name",
        ],
    },
    Group {
        heading: "nginx",
        read_by: &["controller", "nginx"],
        common: &["runtime_dir", "worker_processes", "zone_size"],
        others: &[
            "temp_dir",
            "zone_size_max",
            "namespace_bytes_max",
            "journal",
            "nginx_binary",
            "module",
        ],
    },
    Group {
        heading: "Ports",
        read_by: &["controller", "nginx"],
        common: &["http_port", "https_port", "healthz_port"],
        others: &[
            "healthz_host",
            "health_check_path",
            "status_port",
            "ssl_passthrough_proxy_port",
            "dashboard_address",
            "dashboard_token_file",
        ],
    },
    Group {
        heading: "Admission webhook",
        read_by: &["controller"],
        common: &["validating_webhook"],
        others: &["validating_webhook_certificate", "validating_webhook_key", "disable_full_test"],
    },
    Group {
        heading: "Metrics",
        read_by: &["controller", "nginx"],
        common: &["enable_metrics"],
        others: &[
            "metrics_per_host",
            "report_status_classes",
            "time_buckets",
            "length_buckets",
            "size_buckets",
            "exclude_socket_metrics",
        ],
    },
    Group {
        heading: "Status and Events",
        read_by: &["controller"],
        common: &["publish_service"],
        others: &[
            "publish_status_address",
            "report_node_internal_ip_address",
            "update_status",
            "update_status_on_shutdown",
            "status_update_interval",
            "election_id",
            "election_ttl",
            "disable_leader_election",
            "disable_sync_events",
        ],
    },
    Group {
        heading: "End of the program",
        read_by: &["controller", "nginx"],
        common: &["shutdown_grace_period"],
        others: &["post_shutdown_grace_period"],
    },
    Group {
        heading: "Help",
        read_by: &["controller", "nginx", "check", "explain", "compare"],
        common: &["verbosity", "version", "help"],
        others: &[],
    },
];
/// Flags that a command reads though their group is not its own.
const READ_BESIDES: [(&str, &str); 3] = [
    ("explain", "runtime_dir"),
    ("nginx", "deny_destinations"),
    ("nginx", "allow_loopback_destinations"),
];
/// Flags of its groups that a command does not read.
const NOT_READ: [(&str, &str); 2] = [("check", "manifests"), ("compare", "manifests")];

/// What the help of the program itself begins with.
const TEMPLATE: &str = "\
{about-with-newline}
Examples:
  oxigress --manifests DIR --http-port 8080 --https-port 8443   # serves a folder
  oxigress check DIR                                            # what becomes of it
  oxigress explain --folder DIR https://shop.example.com/cart   # where a request goes
  oxigress echo --listen 127.0.0.1:9001 --name web              # an endpoint to try with

{usage-heading} {usage}

{all-args}{after-help}";

/// The definition of the command line.
pub fn command() -> Command {
    let command = Cli::command()
        .after_help("--help shows all flags, COMMAND --help those of a command.")
        .after_long_help(
            "A boolean alone means true: --deep-inspect=false turns it off. ingress-nginx's other flags are taken \
             without an effect.",
        );
    // The template is that of this command alone, not of the others.
    let command = with_groups(command, "").help_template(TEMPLATE);
    command.mut_subcommands(|command| {
        let name = command.get_name().to_owned();
        with_groups(command, &name)
    })
}

fn with_groups(command: Command, name: &str) -> Command {
    command.mut_args(|flag| {
        let id = flag.get_id().as_str().to_owned();
        let is_in = |names: &[&str]| names.contains(&&*id);
        let group = GROUPS.iter().find(|group| is_in(group.common) || is_in(group.others));
        let Some(group) = group else { return flag };
        let is_read = name.is_empty()
            || READ_BESIDES.contains(&(name, &id))
            || group.read_by.contains(&name) && !NOT_READ.contains(&(name, &id));
        let flag = flag.help_heading(group.heading).hide(!is_read);
        readable(flag).hide_short_help(is_in(group.others))
    })
}

/// A value that may be left out is a boolean; a default that is empty says nothing.
fn readable(flag: Arg) -> Arg {
    let is_optional = flag.get_num_args().is_some_and(|range| range.min_values() == 0);
    let flag = if is_optional { flag.value_name("BOOLEAN") } else { flag };
    let is_empty = flag.get_default_values().iter().all(|value| value.is_empty());
    flag.hide_default_value(is_empty)
}

/// Reads a command line. What is wrong with it is printed and ends the process, and so do `-h` and `--help`.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Cli {
    let matches = command().get_matches_from(arguments);
    Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn help(words: &[&str]) -> String {
        let line = [&["oxigress"], words].concat();
        command().try_get_matches_from(line).unwrap_err().to_string()
    }

    #[test]
    fn every_flag_is_in_one_group() {
        let mut seen = BTreeSet::new();
        let ids = GROUPS.iter().flat_map(|group| group.common.iter().chain(group.others));
        assert!(ids.clone().all(|id| seen.insert(*id)), "twice in {seen:?}");
        let mut built = Cli::command();
        built.build();
        let all: BTreeSet<_> = built
            .get_arguments()
            .filter(|flag| !flag.is_hide_set())
            .map(|flag| flag.get_id().as_str())
            .collect();
        assert_eq!(seen, all);
    }

    #[test]
    fn short_help_fits_a_screen_and_long_help_has_everything() {
        let (short, long) = (help(&["-h"]), help(&["--help"]));
        assert!(short.lines().count() <= 76, "{} lines: {short}", short.lines().count());
        for heading in ["What is served:", "nginx:", "Status and Events:"] {
            assert!(short.contains(heading) && long.contains(heading), "{heading}");
        }
        assert!(!short.contains("--election-ttl") && long.contains("--election-ttl"));
        assert!(!long.contains("--sync-period"), "a flag without an effect");
        for text in [&short, &long] {
            let (examples, usage) = (text.find("Examples:"), text.find("Usage:"));
            assert!(examples.is_some() && examples < usage, "{text}");
            assert!(text.contains("\n  echo  "), "{text}");
        }
        assert!(!help(&["check", "-h"]).contains("Examples:"));
    }

    #[test]
    fn a_command_shows_the_flags_that_it_reads_and_takes_all() {
        let check = help(&["check", "--help"]);
        assert!(check.contains("Usage: oxigress check [OPTIONS] <FILE|DIR|->...\n"), "{check}");
        assert!(check.contains("       oxigress check [OPTIONS] --cluster\n"), "{check}");
        assert!(check.contains("--kubeconfig") && check.contains("--regex-per-host"), "{check}");
        for flag in ["--http-port", "--election-id", "--zone-size", "--manifests <DIR>"] {
            assert!(!check.contains(flag), "{flag}: {check}");
        }
        let explain = help(&["explain", "--help"]);
        assert!(
            explain.contains("--runtime-dir") && !explain.contains("--kubeconfig"),
            "{explain}"
        );
        let nginx = help(&["nginx", "--help"]);
        assert!(nginx.contains("--zone-size") && !nginx.contains("--ingress-class"), "{nginx}");
        let line = ["oxigress", "check", "--http-port=8080", "--election-id=x", "folder"];
        command().try_get_matches_from(line).unwrap();
    }

    #[test]
    fn the_pages_have_every_flag_and_every_command() {
        let page = |name: &str| {
            let path = format!("{}/../docs/reference/{name}.md", env!("CARGO_MANIFEST_DIR"));
            std::fs::read_to_string(path).unwrap()
        };
        let (flags, commands) = (page("flags"), page("commands"));
        let mut built = command();
        built.build();
        for flag in built.get_arguments().filter_map(Arg::get_long).filter(|flag| *flag != "help") {
            assert!(
                flags.contains(&format!("`--{flag}")),
                "docs/reference/flags.md lacks --{flag}"
            );
        }
        for command in built.get_subcommands().map(Command::get_name) {
            let is_role = ["controller", "nginx", "help"].contains(&command);
            assert!(
                is_role || commands.contains(&format!("`{command}")),
                "docs/reference/commands.md lacks {command}"
            );
        }
    }
}
