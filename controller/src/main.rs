//! `oxigress`: serves Kubernetes Ingress with nginx, from a Kubernetes API server or a folder of manifests.
//!
//! Data moves one way: `provider` → `World` → `translate` → `publish`; verdicts go back to the
//! person who wrote an object. `oxigress_supervisor` is the other role: it starts nginx and keeps it running.
//! [`flags`] holds what the operator says. Nothing is decided here.

mod capability;
mod check;
mod cluster;
mod command;
mod controller;
mod flags;
#[cfg(test)]
mod golden;
mod health;
mod local;
mod log;
mod metrics;
mod migrate;
mod parent;

use cluster::ClusterError;
use command::Invocation;
use flags::{Cli, Command};
use log::Audience;
use oxigress_core::text::line::Escaped;
use rustix::process::{Resource, Rlimit, setrlimit};
use std::io::{self, Write};
use std::process::ExitCode;

/// What this process and nginx know, private keys among it, is never written to a core file.
fn no_core_files() {
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    if let Err(error) = setrlimit(Resource::Core, none) {
        tracing::warn!("core files may be written: RLIMIT_CORE cannot be set to 0: {error}");
    }
}

fn main() -> ExitCode {
    let cli = match command::parse(flags::arguments()) {
        Invocation::Oxigress(cli) => *cli,
        Invocation::Plugin(arguments) => {
            log::start(0, Audience::Person);
            return ended(command::run_plugin(arguments), Audience::Person);
        }
    };
    let flags = cli.flags();
    if flags.version {
        let line = format!("{}\n", flags::version());
        return ended(
            command::print(line.as_bytes()).map(|()| ExitCode::SUCCESS),
            Audience::Person,
        );
    }
    let audience = match cli.command {
        None | Some(Command::Controller(_) | Command::Nginx(_)) => Audience::Log,
        Some(
            Command::Check { .. }
            | Command::Migrate { .. }
            | Command::Tool(_)
            | Command::Echo { .. },
        ) => Audience::Person,
    };
    if let Err(error) = flags.folder() {
        return ended(Err(error), Audience::Person);
    }
    log::start(flags.verbosity, audience);
    no_core_files();
    // While there is one thread: the others inherit it.
    if matches!(cli.command, Some(Command::Nginx(_)))
        && let Err(error) = capability::take_up()
    {
        tracing::warn!(
            "cannot raise NET_BIND_SERVICE: {error}; nginx may be unable to bind ports below 1024"
        );
    }
    ended(run(cli), audience)
}

/// The exit code. An error is reported as its reader expects it, and one of the command line as clap reports its own.
fn ended(code: anyhow::Result<ExitCode>, audience: Audience) -> ExitCode {
    let error = match code {
        Ok(code) => {
            log::finish();
            return code;
        }
        Err(error) => error,
    };
    if audience == Audience::Log && !error.is::<ClusterError>() {
        tracing::error!("{error:#}");
        parent::tell_refusal(&format!("{error:#}"));
        log::finish();
        return ExitCode::FAILURE;
    }
    log::finish();
    // Nobody is left who could be told that it cannot be written.
    let _ = writeln!(io::stderr(), "error: {}", Escaped(format!("{error:#}")));
    ExitCode::FAILURE
}

#[tokio::main(worker_threads = 2)]
async fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    match cli.command {
        None => parent::run(&cli.flags).await,
        Some(Command::Controller(flags)) => controller::run(&flags).await,
        Some(Command::Nginx(flags)) => {
            parent::name_flags_of_a_lone_role(&flags);
            oxigress_supervisor::run(&flags.supervisor_options()).await
        }
        Some(Command::Check { arguments, flags }) => check::run(&arguments, &flags).await,
        Some(Command::Migrate { arguments, flags }) => migrate::run(&arguments, &flags).await,
        Some(Command::Tool(tool)) => command::run(tool).await,
        Some(Command::Echo { listen, name }) => command::echo::run(listen, name).await,
    }
}
