//! Commands for people: what nginx has, why a request goes where it goes, how to end. They find the program by its
//! runtime folder, and change nothing but `wait-shutdown`; [`echo`] is an endpoint to try routes with.
//!
//! Names:   called as `dbg`, `wait-shutdown` or `nginx-ingress-controller` the program is ingress-nginx's tool of that
//!          name, and as `kubectl-oxigress` a plugin of kubectl.
//! Source:  ingress-nginx's controller.

mod compare;
mod dashboard;
pub(super) mod echo;
mod explain;
mod manual;
mod plugin;
mod read;
mod shutdown;

use crate::flags::{Cli, Command, Flags, help};
use anyhow::Context;
use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// A command that reads from, or checks, what the program would serve or serves.
#[derive(Debug, Subcommand)]
#[allow(missing_docs, reason = "clap shows the texts below")]
pub enum Tool {
    /// Print backends and their endpoints, as nginx has them
    Backends {
        #[command(flatten)]
        runtime: RuntimeArgs,
        #[command(subcommand)]
        which: Option<Which>,
    },
    /// Print facts about the certificate of a host, never its key
    Certs {
        #[command(flatten)]
        runtime: RuntimeArgs,
        #[command(subcommand)]
        which: OfHost,
    },
    /// Print nginx.conf. It holds no routes: `explain` and `backends` show those
    Conf {
        #[command(flatten)]
        runtime: RuntimeArgs,
    },
    /// Print what was posted to /configuration/general
    General {
        #[command(flatten)]
        runtime: RuntimeArgs,
    },
    /// Print where a request goes, and why: rules that win and lose, policies, backend, endpoints
    ///
    /// It asks the nginx that runs, or with --folder translates a folder of manifests.
    #[command(override_usage = "oxigress explain [OPTIONS] [METHOD] URL")]
    Explain(Box<ExplainArgs>),
    /// Ask two gateways the same requests, and print where their answers differ
    ///
    /// It sends GET and HEAD only, unless --methods says otherwise. It exits with 0 if all answers are the same or differ
    /// as docs/differences.md says, with 1 if others differ, and with 2 if nothing could be compared.
    Compare(Box<compare::Comparison>),
    /// Open the dashboard of the program that runs on this machine in a browser
    ///
    /// `kubectl oxigress dashboard` opens that of a pod.
    Dashboard(dashboard::DashboardArgs),
    /// Ask the program to end, and wait until nginx has finished: for a preStop hook
    WaitShutdown {
        #[command(flatten)]
        runtime: RuntimeArgs,
    },
    /// Print completions for a shell
    Completion {
        /// bash, zsh, fish, elvish or powershell
        shell: Shell,
    },
    /// Print the manual page, or write one for each command
    Man {
        /// Folder for a page of each command
        #[arg(long, value_name = "DIR")]
        dir: Option<PathBuf>,
    },
}

/// Where the runtime folder of the running program is.
#[derive(Args, Debug)]
pub struct RuntimeArgs {
    /// Runtime folder of the program
    #[arg(long, value_name = "DIR", default_value = "/run/oxigress", global = true)]
    pub runtime_dir: PathBuf,
}

impl RuntimeArgs {
    /// The socket of nginx's configuration endpoint.
    fn socket(&self) -> PathBuf {
        socket(&self.runtime_dir)
    }
}

fn socket(runtime_dir: &Path) -> PathBuf {
    runtime_dir.join("configuration.sock")
}

/// Which backends `oxigress backends` prints.
#[derive(Debug, Subcommand)]
#[allow(missing_docs, reason = "clap shows the texts below")]
pub enum Which {
    /// Print their names
    List,
    /// Print all, as JSON
    All,
    /// Print one, as JSON
    Get {
        /// Name of the backend, such as default-shop-80
        name: String,
    },
}

/// Which certificate `oxigress certs` prints.
#[derive(Debug, Subcommand)]
#[allow(missing_docs, reason = "clap shows the texts below")]
pub enum OfHost {
    /// Print the certificate of one host, as JSON
    Get {
        /// The host, or a wildcard such as *.example.com
        host: String,
    },
}

/// The request that `oxigress explain` is about.
#[derive(Args, Debug)]
pub struct ExplainArgs {
    /// Method, GET if left out, and URL such as https://shop.example.com/cart?id=1
    #[arg(required = true, num_args = 1..=2, value_names = ["METHOD", "URL"])]
    pub request: Vec<String>,
    /// Header of the request; may be given more than once
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE")]
    pub headers: Vec<String>,
    /// Folder of manifests to explain, in place of what a running nginx has
    #[arg(long, value_name = "DIR")]
    pub folder: Option<PathBuf>,
    /// Form of the output
    #[arg(short, long, value_enum, default_value = "text")]
    pub output: Output,
    /// What the controller is started with
    #[command(flatten)]
    pub flags: Flags,
}

/// How an answer is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
#[allow(missing_docs, reason = "clap shows the names")]
pub enum Output {
    Text,
    Json,
}

/// ingress-nginx's `dbg`.
#[derive(Debug, Parser)]
#[command(
    name = "dbg",
    about = "ingress-nginx's debug tool, of oxigress",
    disable_version_flag = true
)]
struct Dbg {
    /// Taken for ingress-nginx's sake: a socket in the runtime folder is asked
    #[arg(long, value_name = "PORT", global = true)]
    #[allow(dead_code, reason = "only taken")]
    status_port: Option<u16>,
    #[command(subcommand)]
    tool: Tool,
}

/// What a command line asks for.
pub enum Invocation {
    /// The program was called under its own name.
    Oxigress(Box<Cli>),
    /// The plugin of kubectl, with its arguments.
    Plugin(Vec<OsString>),
}

/// Reads the command line; ends the process where clap does.
pub fn parse(arguments: impl Iterator<Item = OsString>) -> Invocation {
    let mut arguments: Vec<_> = arguments.collect();
    let name = arguments.first().map(PathBuf::from).unwrap_or_default();
    let name = name.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    match name {
        "kubectl-oxigress" => Invocation::Plugin(arguments.split_off(1)),
        "dbg" => {
            let tool = Dbg::parse_from(arguments).tool;
            let command = Some(Command::Tool(tool));
            Invocation::Oxigress(Box::new(Cli { command, ..help::parse(["oxigress".into()]) }))
        }
        "wait-shutdown" => {
            arguments.insert(1, "wait-shutdown".into());
            Invocation::Oxigress(Box::new(help::parse(arguments)))
        }
        _ => Invocation::Oxigress(Box::new(help::parse(arguments))),
    }
}

/// Runs kubectl with the plugin's arguments.
pub fn run_plugin(arguments: Vec<OsString>) -> anyhow::Result<ExitCode> {
    plugin::run(arguments)
}

/// Runs a command and prints its result to standard output.
pub async fn run(tool: Tool) -> anyhow::Result<ExitCode> {
    let text = match tool {
        Tool::Compare(comparison) => return Ok(compare::run(&comparison).await),
        Tool::Backends { runtime, which } => {
            read::backends(&runtime.socket(), which.unwrap_or(Which::List)).await?
        }
        Tool::Certs { runtime, which: OfHost::Get { host } } => {
            read::certificate(&runtime.socket(), &host).await?
        }
        Tool::Conf { runtime } => read::conf(&runtime.runtime_dir)?,
        Tool::General { runtime } => read::general(&runtime.socket()).await?,
        Tool::Dashboard(arguments) => dashboard::open(&arguments).await?,
        Tool::Explain(question) => explain::run(&question).await?,
        Tool::WaitShutdown { runtime } => {
            shutdown::wait(&runtime.runtime_dir).await?;
            String::new()
        }
        Tool::Completion { shell } => manual::completion(shell),
        Tool::Man { dir } => manual::pages(dir.as_deref())?,
    };
    print(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// Prints to standard output. A reader that has read enough, such as `| head`, is no error.
pub fn print(text: &[u8]) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.context("standard output"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(line: &str) -> Option<Command> {
        match parse(line.split(' ').map(OsString::from)) {
            Invocation::Oxigress(cli) => cli.command,
            Invocation::Plugin(arguments) => panic!("a plugin's: {arguments:?}"),
        }
    }

    #[test]
    fn the_name_says_which_tool_it_is() {
        let dbg = command("/dbg --status-port=10246 backends get default-shop-80");
        let Some(Command::Tool(Tool::Backends { which: Some(Which::Get { name }), .. })) = dbg
        else {
            panic!("{dbg:?}")
        };
        assert_eq!(name, "default-shop-80");
        let wait = command("/wait-shutdown --runtime-dir /r");
        let Some(Command::Tool(Tool::WaitShutdown { runtime })) = wait else { panic!("{wait:?}") };
        assert_eq!(runtime.runtime_dir, PathBuf::from("/r"));
        assert!(command("/nginx-ingress-controller --configmap=a/b").is_none());
        let backends = command("oxigress backends --runtime-dir=/r");
        assert!(matches!(backends, Some(Command::Tool(Tool::Backends { which: None, .. }))));
        let plugin = ["/usr/bin/kubectl-oxigress", "-n", "web", "conf"].map(OsString::from);
        let Invocation::Plugin(arguments) = parse(plugin.into_iter()) else { panic!("no plugin") };
        assert_eq!(arguments.len(), 3);
    }
}
