//! The nginx role: renders nginx.conf, starts nginx, keeps it running, ends it gently.
//!
//! When this role dies nginx serves on, and the next run adopts it; when nginx dies it is started again, once its workers
//! are gone, unless the new nginx of an upgrade has taken its place.
//!
//! Knows:     processes, signals, the runtime folder, and what of the ConfigMap stands in nginx.conf.
//! Does not:  know any user's object, hold a credential, or see what is published to nginx.
#![forbid(unsafe_code)]

mod conf;
mod master;
mod nginx;
mod options;
mod ports;
pub mod process;
pub mod runtime;
mod watched;

pub use options::{Journal, Options, Ports};

use anyhow::Context;
use master::{Master, Masters};
use nginx::Nginx;
use oxigress_settings::conf_input;
use process::drain::{self, Drain, ShutdownRequest};
use process::signals::Signals;
use runtime::Runtime;
use runtime::arrival::Arrival;
use rustix::process::Signal;
use std::io;
use std::process::ExitCode;
use tokio::signal::unix::{self, SignalKind};
use tokio::time::Instant;
use watched::Watched;

/// Runs until a signal ends it.
pub async fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let runtime = Runtime::open(&options.runtime_dir)?;
    let _lock = runtime.lock("nginx")?;
    let mut signals = Signals::new()?;
    let mut orders = Orders::new()?;
    master::adopt_orphans();
    let mut arrival =
        Arrival::watch(&runtime.file(conf_input::FILE)).context("watching the runtime folder")?;
    let nginx = Nginx::prepare(options, runtime)?;
    let mut watched = Watched::first(&nginx, options).await?;
    let mut drain = Drain::of(options.shutdown_grace_period);
    loop {
        tokio::select! {
            status = watched.master.ended() => tokio::select! {
                again = watched.again(status) => again?,
                () = signals.stop() => break,
            },
            () = drain.over() => break,
            () = watched.upgrade_moves() => watched.look_at_upgrade(),
            () = watched.old_ended() => watched.leaving = None,
            order = orders.next() => watched.order(order),
            () = arrival.next() => watched.take_listeners()?,
            () = watched.may_try_again() => watched.take_listeners()?,
            () = watched.may_reload() => watched.reload(),
            () = watched.reload_is_over() => watched.tell_what_is_served(),
            () = signals.stop() => match drain.ask(Instant::now()) {
                ShutdownRequest::Heard => nginx.drain(),
                ShutdownRequest::Same => {}
                ShutdownRequest::EndNow => break,
            },
        }
    }
    stop(&nginx.masters, watched.into_masters(), &mut signals).await;
    drain::linger(options.post_shutdown_grace_period, &mut signals).await;
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
            () = signals.stop() => tracing::info!("second stop signal: closing open requests"),
        }
    }
    for master in &known {
        masters.clear_workers(master).await;
    }
}
