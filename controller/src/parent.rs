//! Both roles as children of one small process: `oxigress` without a subcommand.
//!
//! A role that dies is started again; a role that refuses its first start ends the program. Both end with it. Why it refuses
//! is the last line of the program too: the other role and nginx say much while they end. The role tells it through a socket,
//! which is its standard input.

use crate::cluster;
use crate::flags::{self, Flags};
use anyhow::Context;
use oxigress_supervisor::process::signals::{self, LISTENS, PARENT, Signals};
use oxigress_supervisor::process::table;
use rustix::process::{
    Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, waitpid,
};
use std::io::{self, Read};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{ExitCode, Stdio};
use std::time::Duration;
use tokio::process::{Child, Command};
use tokio::signal::unix::{self, SignalKind};
use tokio::time::Instant;

/// A role that dies again and again is started once in this time; one that refuses to start again, ever
/// more seldom.
const PAUSES: std::ops::RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(30);
/// A role that ends with code 1 later than this did not refuse to start: nginx's ports are waited for 10 s,
/// and its own end counts as a refusal for another 10 s.
const REFUSES_WITHIN: Duration = Duration::from_secs(30);
/// A role that has not said so long after its start that it can be asked to end is asked all the same.
const LISTENS_WITHIN: Duration = Duration::from_secs(10);
/// After a refused start the other role is asked again when it has not ended by then.
const ASKED_AGAIN_AFTER: Duration = Duration::from_secs(5);
/// The longest text about that which is told again: a line of the log has no more.
const MAX_REFUSAL_BYTES: usize = 4_096;

/// Names the flags that were given and have no effect.
fn name_flags_without_effect(flags: &Flags) {
    for flag in flags.accepted.given() {
        tracing::info!("--{flag} is accepted and has no effect yet");
    }
}

/// The same for a role, which leaves it to the parent that gave it its own flags.
pub fn name_flags_of_a_lone_role(flags: &Flags) {
    if !signals::has_parent() {
        name_flags_without_effect(flags);
    }
}

/// Tells the parent of a role why it does not start. A role that was started alone has told it to standard error.
pub fn tell_refusal(why: &str) {
    if signals::has_parent() {
        let bytes = why.as_bytes();
        let bytes = bytes.get(..MAX_REFUSAL_BYTES).unwrap_or(bytes);
        // The parent may be gone; then nobody is left who could be told.
        let _ = rustix::io::write(rustix::stdio::stdin(), bytes);
    }
}

/// Runs both roles until a signal ends them.
pub async fn run(flags: &Flags) -> anyhow::Result<ExitCode> {
    // Said once here rather than by a role that is then tried again.
    if flags.folder()?.is_none() {
        cluster::connect(&flags.cluster).await?;
    }
    name_flags_without_effect(flags);
    let mut signals = Signals::new()?;
    let mut children = unix::signal(SignalKind::child())?;
    let mut hangup = unix::signal(SignalKind::hangup())?;
    let mut reopen = unix::signal(SignalKind::user_defined1())?;
    let mut upgrade = unix::signal(SignalKind::user_defined2())?;
    // An nginx whose role was killed becomes our child, so that it is waited for when it ends.
    if let Err(error) = set_child_subreaper(Some(getpid())) {
        tracing::warn!(
            "cannot become a child subreaper: {error}; processes of a killed role are reparented to PID 1"
        );
    }
    let mut nginx = Role::start("nginx")?;
    let mut controller = Role::start("controller")?;
    let refusal = loop {
        tokio::select! {
            refusal = nginx.step() => if refusal.is_some() { break refusal },
            refusal = controller.step() => if refusal.is_some() { break refusal },
            _ = children.recv() => reap_strangers(&[nginx.id(), controller.id()]),
            // For nginx: its log files, its upgrade.
            _ = reopen.recv() => nginx.signal(Signal::USR1),
            _ = upgrade.recv() => nginx.signal(Signal::USR2),
            // The terminal is gone.
            _ = hangup.recv() => break None,
            () = signals.stop() => break None,
        }
    };
    while nginx.is_running() || controller.is_running() {
        let both = async { tokio::join!(nginx.end(), controller.end()) };
        tokio::select! {
            _ = both => {}
            () = signals.stop_again() => {}
            // Nothing is served that a second signal could cut off, and a role may have lost the first.
            () = tokio::time::sleep(ASKED_AGAIN_AFTER), if refusal.is_some() => {}
        }
    }
    let Some(refusal) = refusal else { return Ok(ExitCode::SUCCESS) };
    tracing::error!("{refusal}");
    Ok(ExitCode::FAILURE)
}

/// Waits for dead children that are not the roles, which are waited for elsewhere.
fn reap_strangers(roles: &[Option<u32>]) {
    let own = getpid().as_raw_nonzero().get();
    for process in table::all().filter(|process| process.is_zombie && process.parent == own) {
        let id = process.pid.as_raw_nonzero().get().cast_unsigned();
        if !roles.contains(&Some(id)) {
            let _ = waitpid(Some(process.pid), WaitOptions::NOHANG);
        }
    }
}

struct Role {
    name: &'static str,
    child: Option<Child>,
    /// Where it says that it can be asked to end ([`LISTENS`]), and why it does not start.
    word: UnixStream,
    started: Instant,
    /// It has not been started again yet.
    is_first: bool,
    /// Between this start and the next one, at least.
    pause: Duration,
}

impl Role {
    fn start(name: &'static str) -> anyhow::Result<Self> {
        let (child, word) = spawn(name)?;
        let (child, started) = (Some(child), Instant::now());
        Ok(Role { name, child, word, started, is_first: true, pause: *PAUSES.start() })
    }

    /// Waits until it has ended, or until it has been started again; if it refused to start, what is to be said about that.
    async fn step(&mut self) -> Option<String> {
        let Some(child) = &mut self.child else {
            tokio::time::sleep_until(self.started + self.pause).await;
            self.start_again();
            return None;
        };
        let Ok(status) = child.wait().await else { return None };
        self.child = None;
        let ran = self.started.elapsed();
        let has_refused = status.code() == Some(1);
        if has_refused && self.is_first && ran < REFUSES_WITHIN {
            tracing::error!("role {} failed to start; stopping", self.name);
            let why = self.refusal();
            return Some(format!("role {} failed to start: {why}", self.name));
        }
        tracing::error!("role {} ended with {status}: starting it again", self.name);
        // What once ran is not given up: the other role and nginx serve on meanwhile.
        self.pause = match has_refused && ran < REFUSES_WITHIN {
            true => (self.pause * 2).min(*PAUSES.end()),
            false => *PAUSES.start(),
        };
        None
    }

    /// What it has told, which has come whole, since it has ended.
    fn refusal(&mut self) -> String {
        let mut bytes = vec![0; MAX_REFUSAL_BYTES];
        match self.word.read(&mut bytes) {
            // More than that it listened.
            Ok(length @ 2..) => {
                bytes.truncate(length);
                let bytes = bytes.strip_prefix(&[LISTENS]).unwrap_or(&bytes);
                String::from_utf8_lossy(bytes).into_owned()
            }
            _ => "see its error above".into(),
        }
    }

    fn start_again(&mut self) {
        self.started = Instant::now();
        self.is_first = false;
        match spawn(self.name) {
            Ok((child, word)) => (self.child, self.word) = (Some(child), word),
            Err(error) => {
                tracing::error!("cannot start role {}: {error:#}; trying again", self.name);
                self.pause = (self.pause * 2).min(*PAUSES.end());
            }
        }
    }

    fn id(&self) -> Option<u32> {
        self.child.as_ref().and_then(Child::id)
    }

    /// Asks it to end once it can be asked, and waits until it has.
    async fn end(&mut self) {
        let Some(child) = &mut self.child else { return };
        tokio::select! {
            _ = child.wait() => {}
            _ = tokio::time::timeout_at(self.started + LISTENS_WITHIN, told(&self.word)) => {}
        }
        self.signal(Signal::TERM);
        if let Some(child) = &mut self.child {
            let _ = child.wait().await;
        }
    }

    fn is_running(&mut self) -> bool {
        self.child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }

    fn signal(&self, signal: Signal) {
        let pid = self.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        if let Some(pid) = pid {
            // Gone already is what is wanted.
            let _ = kill_process(pid, signal);
        }
    }
}

/// Waits until there is something to read in `word`: that a role can be asked to end, or why it does not start.
async fn told(word: &UnixStream) -> io::Result<()> {
    tokio::net::UnixStream::from_std(word.try_clone()?)?.readable().await
}

/// The same program with the same flags. In a process group of its own: Ctrl-C in a terminal reaches this
/// process alone, which then asks once.
fn spawn(role: &'static str) -> anyhow::Result<(Child, UnixStream)> {
    let (own, of_role) = UnixStream::pair().context("a socket for a role")?;
    own.set_nonblocking(true).context("a socket for a role")?;
    // What it starts and reads its standard input finds the end there, as of a file that is empty.
    own.shutdown(Shutdown::Write).context("a socket for a role")?;
    // This very file, also after another one was installed in its place.
    let child = Command::new("/proc/self/exe")
        .arg0("oxigress")
        .arg(role)
        .args(flags::arguments().skip(1))
        .env(PARENT, std::process::id().to_string())
        .stdin(Stdio::from(OwnedFd::from(of_role)))
        .process_group(0)
        .spawn()
        .with_context(|| format!("role {role}"))?;
    Ok((child, own))
}
