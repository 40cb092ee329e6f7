//! The nginx that serves: its ends and successors, reloads and upgrades.

use crate::master::Master;
use crate::master::reload::Reload;
use crate::master::upgrade::{self, Step, Upgrade};
use crate::nginx::Nginx;
use crate::options::Options;
use anyhow::bail;
use oxigress_settings::conf_input;
use rustix::process::Signal;
use std::fs;
use std::future::pending;
use std::process::ExitStatus;
use std::sync::PoisonError;
use std::time::Duration;
use tokio::time::Instant;

/// nginx that gives up earlier than this again and again is not started at once.
const UP: Duration = Duration::from_secs(10);
/// The same for one that is killed: after this long it did serve, and every moment without it costs requests.
const RAN: Duration = Duration::from_secs(1);
/// Pauses before the second start in a row and the later ones.
const PAUSES: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(800)..=Duration::from_secs(30);
/// Between two looks whether nginx is ready for signals.
const LOOK: Duration = Duration::from_millis(20);

/// The master that serves, and what is going on around it.
pub struct Watched<'n> {
    nginx: &'n Nginx,
    pub master: Master,
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
    pub leaving: Option<Master>,
}

impl<'n> Watched<'n> {
    pub async fn first(nginx: &'n Nginx, options: &Options) -> anyhow::Result<Self> {
        // What was served before this run says nothing of it.
        let _ = fs::remove_file(nginx.runtime.file(conf_input::SERVED));
        let adopted = nginx.adopt();
        let is_first = adopted.is_none();
        let (master, upgrade, reload) = match adopted {
            Some(found) => found,
            None => {
                // Later, a port that is busy is nginx's own matter: it is tried again for ever.
                nginx.check_ports(options).await?;
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
    pub fn tell_what_is_served(&mut self) {
        self.reload = None;
        let listeners = self.nginx.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        let path = self.nginx.runtime.file(conf_input::SERVED);
        if let Err(error) = listeners.read.write(&path) {
            tracing::warn!(
                "cannot write {}: {error}; the first publication of the controller role is delayed",
                path.display()
            );
        }
    }

    pub async fn reload_is_over(&self) {
        match &self.reload {
            Some(reload) => reload.over().await,
            None => pending().await,
        }
    }

    /// After the master has ended: its successor, or a new one.
    pub async fn again(&mut self, status: Option<ExitStatus>) -> anyhow::Result<()> {
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
                    tracing::error!("cannot start nginx: {error:#}; trying again");
                    continue;
                }
            }
            self.started = Instant::now();
            self.is_behind = false;
            self.tell_what_is_served();
            return Ok(());
        }
    }

    pub async fn upgrade_moves(&self) {
        match &self.upgrade {
            Some(_) => tokio::time::sleep(upgrade::LOOK).await,
            None => pending().await,
        }
    }

    pub fn look_at_upgrade(&mut self) {
        let nginx = self.nginx;
        let Some(upgrade) = &mut self.upgrade else { return };
        match upgrade.step(&nginx.masters, &self.master, nginx.workers()) {
            Step::Waiting => return,
            Step::Failed(why) => {
                let old = self.master.pid();
                tracing::error!("the upgrade failed, {why}: nginx {old} keeps serving");
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
    pub fn take_listeners(&mut self) -> anyhow::Result<()> {
        let Some(changes) = self.nginx.render_again()? else {
            self.tell_if_settled();
            return Ok(());
        };
        tracing::info!("{changes}: nginx {} reloads once, gracefully", self.master.pid());
        self.is_behind = true;
        Ok(())
    }

    /// Waits until ports may be free, or nginx may take settings that it has refused.
    pub async fn may_try_again(&self) {
        match self.nginx.next_try() {
            Some(at) => tokio::time::sleep_until(at).await,
            None => pending().await,
        }
    }

    /// Waits until a reload reaches a master that is ready for it and stays.
    pub async fn may_reload(&self) {
        if !self.is_behind || self.upgrade.is_some() {
            return pending().await;
        }
        // Before it writes its pid file nginx has no handler, and the signal would end it.
        while self.nginx.masters.current().map(|master| master.pid()) != Some(self.master.pid()) {
            tokio::time::sleep(LOOK).await;
        }
    }

    pub fn reload(&mut self) {
        self.is_behind = false;
        self.reload = Some(Reload::of(self.master.pid()));
        self.master.signal(Signal::HUP);
    }

    pub async fn old_ended(&self) {
        match &self.leaving {
            Some(old) => {
                old.ended().await;
                tracing::info!("nginx {} has finished its requests", old.pid());
            }
            None => pending().await,
        }
    }

    pub fn order(&mut self, order: Signal) {
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

    pub fn into_masters(self) -> Vec<Master> {
        [self.master].into_iter().chain(self.leaving).collect()
    }
}
