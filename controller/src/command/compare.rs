//! `oxigress compare OLD NEW`: the same requests to two gateways, and where their answers differ.

use super::{Output, print};
use crate::check::input::Source;
use crate::flags::Flags;
use anyhow::{Context, bail};
use clap::Args;
use oxigress_compare::requests::Defaults;
use oxigress_compare::{Gateway, Options, Progress, Report, Requests, Routes, compare};
use oxigress_core::text::count;
use oxigress_core::text::line::Escaped;
use oxigress_objects::{Changed, World};
use std::io::{IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// What is asked, and how.
#[derive(Args, Debug)]
pub struct Comparison {
    /// The gateway that serves today: ADDRESS[:HTTP_PORT[:HTTPS_PORT]]
    pub old: Gateway,
    /// The gateway that is to serve
    pub new: Gateway,
    /// File of requests, one a line: [METHOD] URL; - reads standard input
    #[arg(long, value_name = "FILE")]
    pub requests: Option<PathBuf>,
    /// Access log whose requests are asked: combined, vhost_combined, ingress-nginx's, or JSON; - reads standard input
    #[arg(long, value_name = "FILE", conflicts_with = "requests")]
    pub access_log: Option<PathBuf>,
    /// Folder of manifests: requests are made of its Ingresses, unless a file of them is given
    #[arg(long, value_name = "DIR", conflicts_with = "cluster")]
    pub folder: Option<PathBuf>,
    /// Read the Ingresses of the API server once, in place of a folder
    #[arg(long)]
    pub cluster: bool,
    /// Host of lines of the access log that name none
    #[arg(long)]
    pub host: Option<String>,
    /// Lines of the access log that name no scheme are HTTPS
    #[arg(long)]
    pub https: bool,
    /// Methods that may be sent, separated by commas. Others can change what endpoints hold
    #[arg(long, value_delimiter = ',', default_value = "GET,HEAD")]
    pub methods: Vec<String>,
    /// Header of every request; may be given more than once
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE", value_parser = header)]
    pub headers: Vec<(String, String)>,
    /// Header of answers that is not compared; may be given more than once
    #[arg(long, value_name = "NAME")]
    pub ignore_header: Vec<String>,
    /// Most requests, evenly chosen among all; 0: no limit
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub limit: usize,
    /// Most requests in a second to each gateway; 0: no limit
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub rate: u32,
    /// Requests at once
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub concurrency: usize,
    /// Seconds that a gateway may take for one answer
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    pub timeout: u64,
    /// Form of the report
    #[arg(short, long, value_enum, default_value = "text")]
    pub output: Output,
    /// What the controller is started with: how the API server is reached
    #[command(flatten)]
    pub flags: Flags,
}

fn header(text: &str) -> Result<(String, String), String> {
    let parts = text.split_once(':').filter(|(name, _)| !name.is_empty());
    let (name, value) = parts.ok_or("write NAME: VALUE")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

/// Prints the report. The exit code is 0 if the answers are the same or differ as documented, 1 if others differ, and 2
/// if nothing could be compared.
pub async fn run(comparison: &Comparison) -> ExitCode {
    match try_run(comparison).await {
        Ok(report) if report.different == 0 => ExitCode::SUCCESS,
        Ok(_) => ExitCode::from(1),
        Err(error) => {
            // Nobody is left who could be told that it cannot be written.
            let _ = writeln!(std::io::stderr(), "error: {}", Escaped(format!("{error:#}")));
            ExitCode::from(2)
        }
    }
}

async fn try_run(comparison: &Comparison) -> anyhow::Result<Report> {
    let routes = match (&comparison.folder, comparison.cluster) {
        (None, false) => Routes::default(),
        (folder, _) => Routes::of(&world(folder.as_deref(), &comparison.flags).await?),
    };
    let mut requests = Requests::new(&comparison.methods);
    match (&comparison.requests, &comparison.access_log) {
        (Some(file), _) => requests.add_list(&read(file)?),
        (_, Some(file)) => {
            let defaults = Defaults { host: comparison.host.clone(), is_https: comparison.https };
            requests.add_access_log(&read(file)?, &defaults, &routes);
        }
        (None, None) if routes.is_empty() && comparison.folder.is_none() && !comparison.cluster => {
            bail!("no requests to compare: give --requests, --access-log, --folder or --cluster")
        }
        (None, None) => requests.add_routes(&routes),
    }
    requests.sample(comparison.limit);
    let lower = |name: &String| name.to_ascii_lowercase();
    let options = Options {
        concurrency: comparison.concurrency,
        rate: comparison.rate,
        timeout: Duration::from_secs(comparison.timeout),
        headers: comparison.headers.clone(),
        ignored: comparison.ignore_header.iter().map(lower).collect(),
    };
    let mut bar = Bar::new();
    let gateways = (&comparison.old, &comparison.new);
    let compared = compare(gateways, requests, &routes, &options, |now| bar.show(now)).await;
    bar.clear();
    let report = compared?;
    let text = match comparison.output {
        Output::Json => serde_json::to_string_pretty(&report)? + "\n",
        Output::Text => report.text(),
    };
    print(text.as_bytes())?;
    Ok(report)
}

/// The objects of a folder, or of the cluster without one.
async fn world(folder: Option<&Path>, flags: &Flags) -> anyhow::Result<World> {
    let source = folder.map_or(Source::Cluster, |folder| Source::Path(folder.to_owned()));
    let batch = source.read(flags).await?;
    let mut world = World::default();
    let mut changed = Changed::default();
    batch.seen.into_iter().for_each(|seen| world.apply(seen, &mut changed));
    Ok(world)
}

/// The whole of a file or of standard input. Bytes that are no UTF-8 are replaced: such a request is left out later.
fn read(file: &Path) -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    let read = match file.to_str() {
        Some("-") => std::io::stdin().lock().read_to_end(&mut bytes).map(drop),
        _ => std::fs::read(file).map(|read| bytes = read),
    };
    read.with_context(|| format!("{}", file.display()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Progress on standard error: a line that is written over on a terminal, else a line now and then.
struct Bar {
    is_terminal: bool,
    next: Instant,
}

impl Bar {
    fn new() -> Self {
        let is_terminal = std::io::stderr().is_terminal();
        let mut bar = Bar { is_terminal, next: Instant::now() };
        bar.next += bar.pause();
        bar
    }

    fn pause(&self) -> Duration {
        Duration::from_millis(if self.is_terminal { 200 } else { 10_000 })
    }

    fn show(&mut self, Progress { done, all, different }: Progress) {
        let now = Instant::now();
        if now < self.next {
            return;
        }
        self.next = now + self.pause();
        let line = format!("{done} of {}, {different} differ", count(all, "request"));
        let mut out = std::io::stderr().lock();
        let _ = match self.is_terminal {
            true => write!(out, "\r\x1b[K{line}"),
            false => writeln!(out, "{line}"),
        };
        let _ = out.flush();
    }

    fn clear(&self) {
        if self.is_terminal {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}
