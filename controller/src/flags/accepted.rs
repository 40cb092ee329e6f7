//! Flags of the reference that are taken and have no effect yet, so that a command line moves over as it
//! is. Each that is given is named in the log once.

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches};

/// Name and whether it is a boolean, which may stand without a value.
const FLAGS: &[(&str, bool)] = &[
    ("alsologtostderr", true),
    ("bucket-factor", false),
    ("default-server-port", false),
    ("dynamic-configuration-retries", false),
    ("enable-annotation-validation", true),
    ("enable-ssl-chain-completion", true),
    ("health-check-timeout", false),
    ("internal-logger-address", false),
    ("log_backtrace_at", false),
    ("log_dir", false),
    ("log_file", false),
    ("log_file_max_size", false),
    ("logtostderr", true),
    ("max-buckets", false),
    ("maxmind-edition-ids", false),
    ("maxmind-license-key", false),
    ("maxmind-mirror", false),
    ("maxmind-retries-count", false),
    ("maxmind-retries-timeout", false),
    ("metrics-per-undefined-host", true),
    ("monitor-max-batch-size", false),
    ("one_output", true),
    ("profiler-address", false),
    ("profiler-port", false),
    ("profiling", true),
    ("skip_headers", true),
    ("skip_log_headers", true),
    ("stderrthreshold", false),
    ("stream-port", false),
    ("sync-period", false),
    ("sync-rate-limit", false),
    ("vmodule", false),
];

/// The flags of ingress-nginx that were given and have no effect here.
#[derive(Clone, Debug, Default)]
pub struct Accepted(Vec<&'static str>);

impl Accepted {
    /// The names of these flags, without leading dashes.
    pub fn given(&self) -> &[&'static str] {
        &self.0
    }
}

impl Args for Accepted {
    fn augment_args(command: Command) -> Command {
        let arguments = FLAGS.iter().map(|&(name, is_boolean)| {
            let argument = Arg::new(name)
                .long(name)
                .hide(true)
                .action(ArgAction::Append)
                .allow_hyphen_values(true);
            match is_boolean {
                false => argument,
                true => argument
                    .num_args(0..=1)
                    .require_equals(true)
                    .default_missing_value("true")
                    .value_parser(super::boolean),
            }
        });
        command.args(arguments)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Accepted {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let is_given = |name: &&str| matches.value_source(name) == Some(ValueSource::CommandLine);
        Ok(Accepted(FLAGS.iter().map(|(name, _)| *name).filter(is_given).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
