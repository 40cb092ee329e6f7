//! The nginx role: renders nginx.conf, starts nginx, keeps it running, ends it gently.
//!
//! It knows no user's object and holds no credential. When this role dies nginx serves on, and the next
//! run adopts it; when nginx dies it is started again, once its workers are gone, unless the new nginx of
//! an upgrade has taken its place.

pub mod certificate;
mod conf;
mod listeners;
mod master;
mod output;
mod ports;
mod reload;
mod upgrade;
mod user;
mod zone;

use crate::arrival::Arrival;
use crate::flags::Flags;
use crate::grace::{self, Grace, Wish};
use crate::parent::{self, Signals};
use crate::runtime::{Runtime, folder_for_conf};
use anyhow::{Context, bail, ensure};
use conf::{Machine, Temp};
use listeners::Listeners;
use master::{Master, Masters};
use oxigress_settings::Skeleton;
use oxigress_settings::streams::{self, Streams};
use reload::Reload;
use rustix::process::Signal;
use std::fs;
use std::future::pending;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::signal::unix::{self, SignalKind};
use tokio::time::Instant;
use upgrade::{Step, Upgrade};
use zone::Sizes;

/// nginx that gives up earlier than this again and again is not started at once.
const UP: Duration = Duration::from_secs(10);
/// The same for one that is killed: after this long it did serve, and every moment without it costs requests.
const RAN: Duration = Duration::from_secs(1);
/// Pauses before the second start in a row and the later ones.
const PAUSES: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(800)..=Duration::from_secs(30);

/// Between two looks whether nginx is ready for signals.
const LOOK: Duration = Duration::from_millis(20);

/// How long the ports of a killed nginx may stay busy: its workers are told at once that it is gone, but
/// one of them may be busy.
const WORKERS_MAY_END: Duration = Duration::from_secs(10);

/// `ingress_draining` of nginx.conf, in the workers' folder.
const DRAINING: &str = "draining";

/// Runs until a signal ends it.
pub async fn run(flags: &Flags) -> anyhow::Result<ExitCode> {
    parent::name_flags_of_a_lone_role(flags);
    let runtime = Runtime::open(&flags.runtime_dir)?;
    let _lock = runtime.lock("nginx")?;
    let mut signals = Signals::new()?;
    let mut orders = Orders::new()?;
    master::adopt_orphans();
    let mut arrival =
        Arrival::watch(&runtime.file(streams::FILE)).context("watching the runtime folder")?;
    let nginx = Nginx::prepare(flags, runtime)?;
    let mut watched = Watched::first(&nginx, flags).await?;
    let mut grace = Grace::of(flags.cluster.shutdown_grace_period);
    loop {
        tokio::select! {
            status = watched.master.ended() => tokio::select! {
                again = watched.again(status) => again?,
                () = signals.stop() => break,
            },
            () = grace.over() => break,
            () = watched.upgrade_moves() => watched.look_at_upgrade(),
            () = watched.old_ended() => watched.leaving = None,
            order = orders.next() => watched.order(order),
            () = arrival.next() => watched.take_listeners()?,
            () = watched.may_try_again() => watched.take_listeners()?,
            () = watched.may_reload() => watched.reload(),
            () = watched.reload_is_over() => watched.tell_what_is_served(),
            () = signals.stop() => match grace.ask(Instant::now()) {
                Wish::Heard => nginx.drain(),
                Wish::Same => {}
                Wish::EndNow => break,
            },
        }
    }
    stop(&nginx.masters, watched.into_masters(), &mut signals).await;
    grace::linger(flags.cluster.post_shutdown_grace_period, &mut signals).await;
    Ok(ExitCode::SUCCESS)
}

/// What an operator may say to this role: nginx's own signals, with nginx's meaning.
struct Orders {
    reload: unix::Signal,
    reopen: unix::Signal,
    upgrade: unix::Signal,
}

impl Orders {
    fn new() -> io::Result<Self> {
        Ok(Orders {
            reload: unix::signal(SignalKind::hangup())?,
            reopen: unix::signal(SignalKind::user_defined1())?,
            upgrade: unix::signal(SignalKind::user_defined2())?,
        })
    }

    async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.reload.recv() => Signal::HUP,
            _ = self.reopen.recv() => Signal::USR1,
            _ = self.upgrade.recv() => Signal::USR2,
        }
    }
}

/// The master that serves, and what is going on around it.
struct Watched<'n> {
    nginx: &'n Nginx,
    master: Master,
    started: Instant,
    /// Before nginx is started again, should it end early.
    pause: Duration,
    /// This run has started it, and none before: an end says that it cannot run at all.
    is_first: bool,
    upgrade: Option<Upgrade>,
    /// nginx.conf has other listeners than those that nginx has read.
    is_behind: bool,
    /// Workers of before may still take connections.
    reload: Option<Reload>,
    /// The old one after an upgrade, while it finishes its requests.
    leaving: Option<Master>,
}

impl<'n> Watched<'n> {
    async fn first(nginx: &'n Nginx, flags: &Flags) -> anyhow::Result<Self> {
        // What was served before this run says nothing of it.
        let _ = fs::remove_file(nginx.runtime.file(streams::SERVED));
        let adopted = nginx.adopt();
        let is_first = adopted.is_none();
        let (master, upgrade, reload) = match adopted {
            Some(found) => found,
            None => {
                // Later, a port that is busy is nginx's own matter: it is tried again for ever.
                nginx.check_ports(flags).await?;
                (nginx.start()?, None, None)
            }
        };
        let mut watched = Watched {
            nginx,
            master,
            started: Instant::now(),
            pause: Duration::ZERO,
            is_first,
            upgrade,
            is_behind: false,
            reload,
            leaving: None,
        };
        watched.tell_if_settled();
        Ok(watched)
    }

    /// Unless a reload is to come or under way.
    fn tell_if_settled(&mut self) {
        if !self.is_behind && self.reload.is_none() {
            self.tell_what_is_served();
        }
    }

    /// For the controller role: data that relies on nginx.conf waits for it.
    fn tell_what_is_served(&mut self) {
        self.reload = None;
        let listeners = self.nginx.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        let path = self.nginx.runtime.file(streams::SERVED);
        if let Err(error) = listeners.read.write(&path) {
            tracing::warn!("{}: {error}: the controller role waits in vain", path.display());
        }
    }

    async fn reload_is_over(&self) {
        match &self.reload {
            Some(reload) => reload.over().await,
            None => pending().await,
        }
    }

    /// After the master has ended: its successor, or a new one.
    async fn again(&mut self, status: Option<ExitStatus>) -> anyhow::Result<()> {
        let dead = self.master.pid();
        self.nginx.masters.clear_workers(&self.master).await;
        self.upgrade = None;
        let leaving = self.leaving.as_ref().map(Master::pid);
        if let Some(next) = self.nginx.masters.current().filter(|next| Some(next.pid()) != leaving)
        {
            tracing::info!("nginx {dead} ended, nginx {} has taken over: adopted", next.pid());
            (self.master, self.started, self.is_first) = (next, Instant::now(), false);
            return Ok(());
        }
        let how = status.map_or("an unknown status".into(), |status| status.to_string());
        // A code says that nginx gave up by itself; a signal came from outside.
        let gave_up = status.is_some_and(|status| status.code().is_some());
        if self.is_first && gave_up && self.started.elapsed() < UP {
            bail!("nginx ended with {how} at its start: see its messages above");
        }
        self.is_first = false;
        tracing::error!("nginx {dead} ended with {how}: starting it again");
        if self.started.elapsed() > if gave_up { UP } else { RAN } {
            self.pause = Duration::ZERO;
        }
        loop {
            tokio::time::sleep(self.pause).await;
            self.pause = (self.pause * 2).clamp(*PAUSES.start(), *PAUSES.end());
            match self.nginx.start() {
                Ok(master) => self.master = master,
                Err(error) => {
                    tracing::error!("{error:#}: trying again");
                    continue;
                }
            }
            self.started = Instant::now();
            self.is_behind = false;
            self.tell_what_is_served();
            return Ok(());
        }
    }

    async fn upgrade_moves(&self) {
        match &self.upgrade {
            Some(_) => tokio::time::sleep(upgrade::LOOK).await,
            None => pending().await,
        }
    }

    fn look_at_upgrade(&mut self) {
        let nginx = self.nginx;
        let Some(upgrade) = &mut self.upgrade else { return };
        match upgrade.step(&nginx.masters, &self.master, nginx.workers()) {
            Step::Waiting => return,
            Step::Failed(why) => {
                let old = self.master.pid();
                tracing::error!("the new nginx does not serve, {why}: nginx {old} serves on");
            }
            Step::Ready(new) => {
                let old = self.master.pid();
                tracing::info!("nginx {} serves: nginx {old} finishes its requests", new.pid());
                self.master.signal(Signal::QUIT);
                self.leaving = Some(std::mem::replace(&mut self.master, new));
                self.started = Instant::now();
                self.is_first = false;
            }
        }
        self.upgrade = None;
    }

    /// What the controller role says of TCP and UDP listeners, into nginx.conf.
    fn take_listeners(&mut self) -> anyhow::Result<()> {
        let Some(changes) = self.nginx.render_again()? else {
            self.tell_if_settled();
            return Ok(());
        };
        tracing::info!("{changes}: nginx {} reloads once, gracefully", self.master.pid());
        self.is_behind = true;
        Ok(())
    }

    /// Waits until ports may be free, or nginx may take settings that it has refused.
    async fn may_try_again(&self) {
        match self.nginx.next_try() {
            Some(at) => tokio::time::sleep_until(at).await,
            None => pending().await,
        }
    }

    /// Waits until a reload reaches a master that is ready for it and stays.
    async fn may_reload(&self) {
        if !self.is_behind || self.upgrade.is_some() {
            return pending().await;
        }
        // Before it writes its pid file nginx has no handler, and the signal would end it.
        while self.nginx.masters.current().map(|master| master.pid()) != Some(self.master.pid()) {
            tokio::time::sleep(LOOK).await;
        }
    }

    fn reload(&mut self) {
        self.is_behind = false;
        self.reload = Some(Reload::of(self.master.pid()));
        self.master.signal(Signal::HUP);
    }

    async fn old_ended(&self) {
        match &self.leaving {
            Some(old) => {
                old.ended().await;
                tracing::info!("nginx {} has finished its requests", old.pid());
            }
            None => pending().await,
        }
    }

    fn order(&mut self, order: Signal) {
        match order {
            Signal::USR2 if self.upgrade.is_some() => {
                tracing::warn!("an upgrade is under way already")
            }
            Signal::USR2 => self.upgrade = Upgrade::start(&self.nginx.masters, &self.master),
            order => {
                let what = if order == Signal::HUP {
                    "reads nginx.conf again"
                } else {
                    "reopens its logs"
                };
                tracing::info!("nginx {} {what}", self.master.pid());
                self.master.signal(order);
            }
        }
    }

    fn into_masters(self) -> Vec<Master> {
        [self.master].into_iter().chain(self.leaving).collect()
    }
}

/// The first signal asks nginx to finish its requests, the second ends them, the third everything.
async fn stop(masters: &Masters, mut known: Vec<Master>, signals: &mut Signals) {
    // Of an upgrade that is under way.
    for other in [masters.current(), masters.old()].into_iter().flatten() {
        if known.iter().all(|master| master.pid() != other.pid()) {
            known.push(other);
        }
    }
    for signal in [Signal::QUIT, Signal::TERM, Signal::KILL] {
        let all = async {
            for master in &known {
                let status = master.ended().await;
                tracing::debug!("nginx {} ended: {status:?}", master.pid());
            }
        };
        known.iter().for_each(|master| master.signal(signal));
        tokio::select! {
            () = all => break,
            () = signals.stop() => tracing::info!("asked to stop again: ending requests"),
        }
    }
    for master in &known {
        masters.clear_workers(master).await;
    }
}

struct Nginx {
    binary: PathBuf,
    flags: Flags,
    module: PathBuf,
    machine: Machine,
    runtime: Runtime,
    conf: PathBuf,
    masters: Masters,
    /// nginx.conf differs from the one an adopted nginx may have read.
    is_conf_new: bool,
    /// A former run of this role was asked to end, and ended before nginx did.
    was_draining: bool,
    listeners: Mutex<Listeners>,
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
        if let Some(folder) = &flags.temp_dir {
            // Workers pass through it, also as another user.
            let folder = folder_for_conf("--temp-dir", folder, 0o711)?.join("worker");
            user::prepare(&folder)?;
            machine.temp = Some(Temp::look(folder));
        }
        // Each nginx.conf names them, also one that is only tried.
        let (certificate, key) = certificate::self_signed().context("self-signed certificate")?;
        write(&runtime.file("default.crt"), &certificate)?;
        write(&runtime.file("default.key"), &key)?;
        let conf = runtime.file("nginx.conf");
        conf::name_lack_of_a_journal(flags, &runtime, &machine);
        let masters = Masters::new(runtime.file("nginx.pid"), conf.clone());
        let (wanted, sizes) = (listeners::read(&runtime), Sizes::of(flags));
        let listeners = match masters.current().or_else(|| masters.old()) {
            // One that runs may have them itself.
            Some(_) => {
                let zone_bytes = sizes.choose(wanted.zone_bytes);
                let live = Streams { zone_bytes, ..wanted.clone() };
                Listeners { read: wanted, live, ..Listeners::default() }
            }
            None => Listeners::default().next(wanted, machine.has_ipv6, sizes),
        };
        let mut listeners = listeners;
        let folder = runtime.file("nginx.conf.tried");
        let mut text = conf::render(flags, &runtime, &module, &machine, &listeners.live);
        if listeners.live.settings != Skeleton::default()
            && let Err(why) = try_out(&binary, &folder, &worker_folder, &text)
        {
            tracing::error!(
                "{why}: nginx starts with the defaults, and with what keeps clients out; the ConfigMap's values are tried \
                 again: correct them"
            );
            listeners.reject_settings(Skeleton::default(), why);
            text = conf::render(flags, &runtime, &module, &machine, &listeners.live);
        }
        let is_conf_new = fs::read_to_string(&conf).ok().as_ref() != Some(&text);
        write(&conf, text.as_bytes())?;
        let was_draining = fs::remove_file(worker_folder.join(DRAINING)).is_ok();
        Ok(Nginx {
            binary,
            flags: flags.clone(),
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

    fn next_try(&self) -> Option<Instant> {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner).next_try()
    }

    /// Worker processes that nginx.conf asks for.
    fn workers(&self) -> usize {
        let listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        conf::workers(&self.flags, &listeners.live)
    }

    /// Writes nginx.conf anew if there are other listeners or settings; says which. Settings that nginx refuses
    /// change nothing.
    fn render_again(&self) -> anyhow::Result<Option<String>> {
        let mut listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        let mut next = listeners.next(
            listeners::read(&self.runtime),
            self.machine.has_ipv6,
            Sizes::of(&self.flags),
        );
        if listeners.live == next.live {
            *listeners = next;
            return Ok(None);
        }
        let Nginx { flags, runtime, module, machine, .. } = self;
        let mut text = conf::render(flags, runtime, module, machine, &next.live);
        let (tried, folder) = (runtime.file("nginx.conf.tried"), runtime.file("worker"));
        if next.live.settings != listeners.live.settings
            && let Err(why) = try_out(&self.binary, &tried, &folder, &text)
        {
            let live = &listeners.live.settings;
            // Told once, however often it is tried.
            if next.rejected.as_ref().is_none_or(|rejected| rejected.why != why) {
                let keys = live.differing(&next.live.settings).join(", ");
                tracing::error!(
                    "{why}: the ConfigMap's former values of {keys} stay: correct them"
                );
            }
            next.reject_settings(live.clone(), why);
            if listeners.live == next.live {
                *listeners = next;
                return Ok(None);
            }
            text = conf::render(flags, runtime, module, machine, &next.live);
        } else if next.live.settings != listeners.live.settings {
            next.rejected = None;
        }
        write(&self.conf, text.as_bytes())?;
        let changes = listeners::describe(&listeners.live, &next.live);
        *listeners = next;
        Ok(Some(changes))
    }

    /// Makes nginx's health path say that it leaves, and its answers that connections end with them.
    fn drain(&self) {
        let file = self.runtime.file("worker").join(DRAINING);
        // Workers may write there: a new file is none of their links.
        match fs::OpenOptions::new().write(true).create_new(true).open(&file) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                tracing::error!("{}: {error}: nginx does not tell that it ends", file.display());
            }
            _ => {}
        }
    }

    /// What a former run of this role left behind.
    fn adopt(&self) -> Option<(Master, Option<Upgrade>, Option<Reload>)> {
        let (master, upgrade) = match self.masters.old() {
            Some(old) => (old, Some(Upgrade::found())),
            None => (self.masters.current()?, None),
        };
        tracing::info!("nginx {} runs already: adopted", master.pid());
        let mut reload = None;
        if upgrade.is_some() {
            tracing::info!("nginx {} is the old one of an upgrade: going on with it", master.pid());
        } else if self.is_conf_new {
            tracing::info!("nginx.conf has changed: nginx {} reads it", master.pid());
            reload = Some(Reload::of(master.pid()));
            master.signal(Signal::HUP);
        } else if self.was_draining {
            tracing::info!("nginx {} was to end: its workers are replaced", master.pid());
            reload = Some(Reload::of(master.pid()));
            master.signal(Signal::HUP);
        }
        Some((master, upgrade, reload))
    }

    async fn check_ports(&self, flags: &Flags) -> anyhow::Result<()> {
        // Its pid file says that an nginx was killed: its workers may still be about to notice.
        let was_killed = self.runtime.file("nginx.pid").exists();
        let patience = if was_killed { WORKERS_MAY_END } else { Duration::ZERO };
        if was_killed {
            tracing::debug!("a killed nginx was here: its ports may be busy for a while");
        }
        Ok(ports::check(flags, self.machine.has_ipv6, patience).await?)
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

/// Replaces a file as a whole, readable by its owner only.
fn write(path: &Path, content: &[u8]) -> anyhow::Result<()> {
    let fresh = path.with_extension("new");
    let _ = fs::remove_file(&fresh);
    let file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fresh);
    file.and_then(|mut file| file.write_all(content))
        .and_then(|()| fs::rename(&fresh, path))
        .with_context(|| format!("{}", path.display()))
}
