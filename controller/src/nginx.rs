//! The nginx role: renders nginx.conf, starts nginx, keeps it running, ends it gently.
//!
//! It knows no user's object and holds no credential. When this role dies nginx serves on, and the next
//! run adopts it; when nginx dies it is started again, once its workers are gone.

mod certificate;
mod conf;
mod master;
mod ports;
mod user;

use crate::flags::Flags;
use crate::parent::{self, Signals};
use crate::runtime::Runtime;
use anyhow::{Context, bail, ensure};
use conf::Machine;
use master::Master;
use rustix::process::Signal;
use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use tokio::time::Instant;

/// nginx that ends earlier than this again and again is not started at once.
const UP: Duration = Duration::from_secs(10);
/// Pauses before the second start in a row and the later ones.
const PAUSES: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(800)..=Duration::from_secs(30);

/// How long the ports of a killed nginx may stay busy: its workers are told at once that it is gone, but
/// one of them may be busy.
const WORKERS_MAY_END: Duration = Duration::from_secs(10);

/// Runs until a signal ends it.
pub async fn run(flags: &Flags) -> anyhow::Result<ExitCode> {
    parent::name_flags_of_a_lone_role(flags);
    let runtime = Runtime::open(&flags.runtime_dir)?;
    let _lock = runtime.lock("nginx")?;
    let mut signals = Signals::new()?;
    master::adopt_orphans();
    let nginx = Nginx::prepare(flags, runtime)?;
    let mut pause = Duration::ZERO;
    let mut is_first = true;
    loop {
        let started = Instant::now();
        let mut master = match nginx.adopt() {
            Some(master) => master,
            None => {
                // Later, a port that is busy is nginx's own matter: it is tried again for ever.
                if is_first {
                    nginx.check_ports(flags).await?;
                }
                nginx.start()?
            }
        };
        let status = tokio::select! {
            status = master.ended() => status,
            () = signals.stop() => return stop(master, signals).await,
        };
        master.clear_workers().await;
        let how = match &status {
            Ok(Some(status)) => status.to_string(),
            Ok(None) => "an unknown status".into(),
            Err(error) => error.to_string(),
        };
        // A code says that nginx gave up by itself; a signal came from outside.
        let gave_up = matches!(status, Ok(Some(status)) if status.code().is_some());
        if is_first && gave_up && started.elapsed() < UP {
            bail!("nginx ended with {how} at its start: see its messages above");
        }
        is_first = false;
        tracing::error!("nginx {} ended with {how}: starting it again", master.pid());
        if started.elapsed() > UP {
            pause = Duration::ZERO;
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = signals.stop() => return Ok(ExitCode::SUCCESS),
        }
        pause = (pause * 2).clamp(*PAUSES.start(), *PAUSES.end());
    }
}

/// The first signal asks nginx to finish its requests, the second ends them, the third everything.
async fn stop(mut master: Master, mut signals: Signals) -> anyhow::Result<ExitCode> {
    for signal in [Signal::QUIT, Signal::TERM, Signal::KILL] {
        master.signal(signal);
        tokio::select! {
            status = master.ended() => {
                tracing::debug!("nginx ended: {status:?}");
                break;
            }
            () = signals.stop() => tracing::info!("asked to stop again: ending requests"),
        }
    }
    master.clear_workers().await;
    Ok(ExitCode::SUCCESS)
}

struct Nginx {
    binary: PathBuf,
    runtime: Runtime,
    conf: PathBuf,
    /// nginx.conf differs from the one an adopted nginx may have read.
    is_conf_new: bool,
    has_ipv6: bool,
}

impl Nginx {
    fn prepare(flags: &Flags, runtime: Runtime) -> anyhow::Result<Self> {
        let from_environment = || std::env::var_os("NGINX_BINARY").map(PathBuf::from);
        let binary = flags.nginx_binary.clone().or_else(from_environment);
        let binary = find(binary, "../sbin/nginx", "--nginx-binary")?;
        let module = find(flags.module.clone(), "../modules/ngx_ingress_module.so", "--module")?;
        let worker_folder = runtime.file("worker");
        let mut machine = Machine::look(&runtime, flags.worker_processes.0);
        machine.worker_user = user::prepare(&worker_folder)?;
        let conf = runtime.file("nginx.conf");
        let text = conf::render(flags, &runtime, &module, &machine);
        let is_conf_new = fs::read_to_string(&conf).ok().as_ref() != Some(&text);
        write(&conf, text.as_bytes())?;
        let (certificate, key) = certificate::self_signed().context("self-signed certificate")?;
        write(&runtime.file("default.crt"), &certificate)?;
        write(&runtime.file("default.key"), &key)?;
        Ok(Nginx { binary, runtime, conf, is_conf_new, has_ipv6: machine.has_ipv6 })
    }

    fn adopt(&self) -> Option<Master> {
        let master = Master::adopt(&self.runtime.file("nginx.pid"), &self.conf)?;
        tracing::info!("nginx {} runs already: adopted", master.pid());
        if self.is_conf_new {
            master.signal(Signal::HUP);
        }
        Some(master)
    }

    async fn check_ports(&self, flags: &Flags) -> anyhow::Result<()> {
        // Its pid file says that an nginx was killed: its workers may still be about to notice.
        let was_killed = self.runtime.file("nginx.pid").exists();
        let patience = if was_killed { WORKERS_MAY_END } else { Duration::ZERO };
        if was_killed {
            tracing::debug!("a killed nginx was here: its ports may be busy for a while");
        }
        Ok(ports::check(flags, self.has_ipv6, patience).await?)
    }

    fn start(&self) -> anyhow::Result<Master> {
        // A killed nginx leaves its sockets behind and could not bind them again.
        for socket in self.runtime.sockets() {
            let _ = fs::remove_file(socket);
        }
        let master = Master::start(&self.binary, &self.conf, &self.runtime.file("worker"))
            .with_context(|| format!("{}", self.binary.display()))?;
        tracing::info!("nginx {} started", master.pid());
        Ok(master)
    }
}

fn find(given: Option<PathBuf>, beside: &str, flag: &str) -> anyhow::Result<PathBuf> {
    let path = match given {
        Some(path) => path,
        None => {
            let own = std::env::current_exe().context("path of this program")?;
            own.parent().unwrap_or(Path::new("/")).join(beside)
        }
    };
    let found = fs::canonicalize(&path);
    let found =
        found.with_context(|| format!("{}: run `make build` or give {flag}", path.display()))?;
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"/-_.+@~".contains(&b);
    ensure!(
        found.as_os_str().as_encoded_bytes().iter().all(|&b| is_plain(b)),
        "{}: nginx.conf gives a character of this path a meaning: install it elsewhere",
        found.display()
    );
    Ok(found)
}

/// Replaces a file as a whole, readable by its owner only.
fn write(path: &Path, content: &[u8]) -> anyhow::Result<()> {
    let fresh = path.with_extension("new");
    let _ = fs::remove_file(&fresh);
    let file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fresh);
    file.and_then(|mut file| file.write_all(content))
        .and_then(|()| fs::rename(&fresh, path))
        .with_context(|| format!("{}", path.display()))
}
