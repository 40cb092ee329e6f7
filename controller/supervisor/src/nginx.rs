//! The program nginx, its nginx.conf, and its files in the runtime folder.

use crate::conf::listeners::{self, Listeners};
use crate::conf::zone::Sizes;
use crate::conf::{self, Machine, Temp, certificate, tickets};
use crate::master::reload::Reload;
use crate::master::upgrade::Upgrade;
use crate::master::{Master, Masters, user};
use crate::options::Options;
use crate::ports;
use crate::runtime::{Runtime, folder_for_conf};
use anyhow::{Context, ensure};
use oxigress_settings::StaticConfig;
use oxigress_settings::conf_input::ConfInput;
use rustix::process::Signal;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// How long the ports of a killed nginx may stay busy: its workers are told at once that it is gone, but
/// one of them may be busy.
const WORKERS_MAY_END: Duration = Duration::from_secs(10);
/// `ingress_draining` of nginx.conf, in the workers' folder.
const DRAINING: &str = "draining";

/// What is started and configured.
pub struct Nginx {
    binary: PathBuf,
    options: Options,
    module: PathBuf,
    machine: Machine,
    pub runtime: Runtime,
    conf: PathBuf,
    pub masters: Masters,
    /// nginx.conf differs from the one an adopted nginx may have read.
    is_conf_new: bool,
    /// A former run of this role was asked to end, and ended before nginx did.
    was_draining: bool,
    pub listeners: Mutex<Listeners>,
}

/// Each nginx.conf names its files, also one that is only tried.
fn write_default_certificate(runtime: &Runtime) -> anyhow::Result<()> {
    let (certificate, key) = certificate::self_signed().context("self-signed certificate")?;
    write(&runtime.file("default.crt"), &certificate)?;
    write(&runtime.file("default.key"), &key)
}

impl Nginx {
    pub fn prepare(options: &Options, runtime: Runtime) -> anyhow::Result<Self> {
        let from_environment = || std::env::var_os("NGINX_BINARY").map(PathBuf::from);
        let binary = options.nginx_binary.clone().or_else(from_environment);
        let binary = find(binary, "../sbin/nginx", "--nginx-binary")?;
        let module = find(options.module.clone(), "../modules/ngx_ingress_module.so", "--module")?;
        let worker_folder = runtime.file("worker");
        let mut machine = Machine::look(&runtime, options.worker_processes);
        machine.worker_user = user::prepare(&worker_folder)?;
        if let Some(folder) = &options.temp_dir {
            // Workers pass through it, also as another user.
            let folder = folder_for_conf("--temp-dir", folder, 0o711)?.join("worker");
            user::prepare(&folder)?;
            machine.temp = Some(Temp::look(folder));
        }
        write_default_certificate(&runtime)?;
        let conf = runtime.file("nginx.conf");
        conf::name_lack_of_a_journal(options, &runtime, &machine);
        let masters = Masters::new(runtime.file("nginx.pid"), conf.clone());
        let (wanted, sizes) = (listeners::read(&runtime), Sizes::of(options));
        let mut listeners = match masters.current().or_else(|| masters.old()) {
            // One that runs may have them itself.
            Some(_) => {
                let zone_bytes = sizes.choose(wanted.zone_bytes);
                let live = ConfInput { zone_bytes, ..wanted.clone() };
                Listeners { read: wanted, live, ..Listeners::default() }
            }
            None => Listeners::default().next(wanted, machine.has_ipv6, sizes),
        };
        write_ticket_key(&runtime, &listeners.live.settings)?;
        let mut text = conf::render(options, &runtime, &module, &machine, &listeners.live);
        if listeners.live.settings != StaticConfig::default()
            && let Err(why) =
                try_out(&binary, &runtime.file("nginx.conf.tried"), &worker_folder, &text)
        {
            tracing::error!(
                "nginx refused the ConfigMap's settings: {why}: it starts with defaults and with the settings that restrict \
                 clients; the others are tried again: correct them"
            );
            listeners.reject_settings(StaticConfig::default(), why);
            text = conf::render(options, &runtime, &module, &machine, &listeners.live);
        }
        let is_conf_new = fs::read_to_string(&conf).ok().as_ref() != Some(&text);
        write(&conf, text.as_bytes())?;
        tickets::remove_others(&runtime, &listeners.live.settings);
        let was_draining = fs::remove_file(worker_folder.join(DRAINING)).is_ok();
        Ok(Nginx {
            binary,
            options: options.clone(),
            module,
            machine,
            runtime,
            conf,
            masters,
            is_conf_new,
            was_draining,
            listeners: Mutex::new(listeners),
        })
    }

    pub fn next_try(&self) -> Option<Instant> {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner).next_try()
    }

    /// Worker processes that nginx.conf asks for.
    pub fn workers(&self) -> usize {
        let listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        conf::workers(&self.options, &listeners.live)
    }

    /// Writes nginx.conf anew if there are other listeners or settings; says which. Settings that nginx refuses
    /// change nothing.
    pub fn render_again(&self) -> anyhow::Result<Option<String>> {
        let mut listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        let mut next = listeners.next(
            listeners::read(&self.runtime),
            self.machine.has_ipv6,
            Sizes::of(&self.options),
        );
        if listeners.live == next.live {
            *listeners = next;
            return Ok(None);
        }
        let Nginx { options, runtime, module, machine, .. } = self;
        let mut text = conf::render(options, runtime, module, machine, &next.live);
        let (tried, folder) = (runtime.file("nginx.conf.tried"), runtime.file("worker"));
        write_ticket_key(runtime, &next.live.settings)?;
        if next.live.settings != listeners.live.settings
            && let Err(why) = try_out(&self.binary, &tried, &folder, &text)
        {
            let live = &listeners.live.settings;
            // Told once, however often it is tried.
            if next.rejected.as_ref().is_none_or(|rejected| rejected.why != why) {
                let keys = live.differing(&next.live.settings).join(", ");
                tracing::error!(
                    "nginx refused the ConfigMap's values of {keys}: {why}: the previous values stay: correct them"
                );
            }
            next.reject_settings(live.clone(), why);
            if listeners.live == next.live {
                *listeners = next;
                return Ok(None);
            }
            text = conf::render(options, runtime, module, machine, &next.live);
        } else if next.live.settings != listeners.live.settings {
            next.rejected = None;
        }
        write(&self.conf, text.as_bytes())?;
        tickets::remove_others(runtime, &next.live.settings);
        let changes = listeners::describe(&listeners.live, &next.live);
        *listeners = next;
        Ok(Some(changes))
    }

    /// Makes nginx's health path say that it leaves, and its answers that connections end with them.
    pub fn drain(&self) {
        let file = self.runtime.file("worker").join(DRAINING);
        // Workers may write there: a new file is none of their links.
        match fs::OpenOptions::new().write(true).create_new(true).open(&file) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                tracing::error!(
                    "cannot create {}: {error}; health checks and clients are not told of the shutdown",
                    file.display()
                );
            }
            _ => {}
        }
    }

    /// What a former run of this role left behind.
    pub fn adopt(&self) -> Option<(Master, Option<Upgrade>, Option<Reload>)> {
        let (master, upgrade) = match self.masters.old() {
            Some(old) => (old, Some(Upgrade::found())),
            None => (self.masters.current()?, None),
        };
        tracing::info!("found nginx {} running; supervising it", master.pid());
        let mut reload = None;
        if upgrade.is_some() {
            tracing::info!("continuing the upgrade from nginx {}", master.pid());
        } else if self.is_conf_new {
            tracing::info!("nginx.conf has changed; reloading nginx {}", master.pid());
            reload = Some(Reload::of(master.pid()));
            master.signal(Signal::HUP);
        } else if self.was_draining {
            tracing::info!(
                "nginx {} was shutting down; reloading it so that it serves again",
                master.pid()
            );
            reload = Some(Reload::of(master.pid()));
            master.signal(Signal::HUP);
        }
        Some((master, upgrade, reload))
    }

    pub async fn check_ports(&self, options: &Options) -> anyhow::Result<()> {
        // Its pid file says that an nginx was killed: its workers may still be about to notice.
        let was_killed = self.runtime.file("nginx.pid").exists();
        let timeout = if was_killed { WORKERS_MAY_END } else { Duration::ZERO };
        if was_killed {
            tracing::debug!("a killed nginx was here: its ports may be busy for a while");
        }
        Ok(ports::check(&options.ports, self.machine.has_ipv6, timeout).await?)
    }

    pub fn start(&self) -> anyhow::Result<Master> {
        // A killed nginx leaves its sockets behind and could not bind them again.
        for socket in self.runtime.sockets().into_iter().chain([self.runtime.decrypting()]) {
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
        "{}: the path contains a character that is special in nginx.conf: install it elsewhere",
        found.display()
    );
    Ok(found)
}

/// Asks nginx whether it would take a configuration; the error is what it says.
fn try_out(binary: &Path, tried: &Path, folder: &Path, text: &str) -> Result<(), String> {
    write(tried, text.as_bytes()).map_err(|error| format!("{error:#}"))?;
    let answer = std::process::Command::new(binary)
        .args(["-t", "-q", "-e", "stderr", "-p", ".", "-c"])
        .arg(tried)
        .current_dir(folder)
        .stdin(std::process::Stdio::null())
        .output()
        .map_err(|error| format!("{}: {error}", binary.display()))?;
    let _ = fs::remove_file(tried);
    if answer.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&answer.stderr);
    let first = said.lines().find(|line| line.contains("[emerg]")).unwrap_or("nginx -t failed");
    Err(oxigress_core::text::line::one_line(first).to_string())
}

/// nginx.conf names the file, also one that is only tried.
fn write_ticket_key(runtime: &Runtime, settings: &StaticConfig) -> anyhow::Result<()> {
    match tickets::file(runtime, settings) {
        Some((path, key)) => write(&path, &key),
        None => Ok(()),
    }
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
