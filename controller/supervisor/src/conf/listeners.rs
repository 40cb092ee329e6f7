//! The TCP and UDP listeners as the controller role wants them, and whether they can be had.

use super::zone::Sizes;
use crate::runtime::Runtime;
use oxigress_core::model::StreamPort;
use oxigress_settings::StaticConfig;
use oxigress_settings::conf_input::{self, ConfInput};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::ops::RangeInclusive;
use std::time::Duration;
use tokio::net::TcpSocket;
use tokio::time::Instant;

/// Between two tries at ports that somebody else has.
const PORTS_AGAIN: Duration = Duration::from_secs(5);
/// So long nginx may still listen on a port that it no longer has: its old workers close their sockets when the new ones serve.
const CLOSING: Duration = Duration::from_secs(5);
/// Between two tries at such a port.
const CLOSING_AGAIN: Duration = Duration::from_millis(50);
/// Between two tries at settings that nginx has refused: a folder or a name server may have been missing.
const SETTINGS_AGAIN: RangeInclusive<Duration> = Duration::from_secs(2)..=Duration::from_secs(300);

/// Reads the file of the controller role; one that cannot be read counts as empty, which the log says.
pub fn read(runtime: &Runtime) -> ConfInput {
    let path = runtime.file(conf_input::FILE);
    ConfInput::read(&path).unwrap_or_else(|error| {
        tracing::error!(
            "cannot read {}: {error}; TCP and UDP listeners, ConfigMap settings and zone size fall back to defaults until \
             the controller role writes it again",
            path.display()
        );
        ConfInput::default()
    })
}

/// What stands in nginx.conf, and which ports and settings are waited for.
#[derive(Default)]
pub struct Listeners {
    /// What the controller role's file said when it was last read.
    pub read: ConfInput,
    /// The listeners and settings that nginx.conf has.
    pub live: ConfInput,
    /// Somebody else has these ports.
    pub refused: BTreeSet<StreamPort>,
    /// nginx has refused the settings.
    pub rejected: Option<Rejected>,
    /// The ports that nginx had until then and may not have closed yet.
    pub closing: BTreeMap<StreamPort, Instant>,
}

/// Settings that nginx has refused.
#[derive(Clone)]
pub struct Rejected {
    settings: StaticConfig,
    /// The error lines that nginx wrote when it refused them.
    pub why: String,
    pause: Duration,
    again: Instant,
}

impl Rejected {
    fn new(settings: StaticConfig, why: String) -> Self {
        let pause = *SETTINGS_AGAIN.start();
        Rejected { settings, why, pause, again: Instant::now() + pause }
    }

    /// While they are tried once more.
    fn later(&self) -> Self {
        let pause = (self.pause * 2).min(*SETTINGS_AGAIN.end());
        Rejected { pause, again: Instant::now() + pause, ..self.clone() }
    }
}

impl Listeners {
    /// nginx refuses a whole configuration for one port that it cannot have: new ones are tried before.
    pub fn next(&self, wanted: ConfInput, has_ipv6: bool, sizes: Sizes) -> Self {
        let read = wanted.clone();
        let mut next = Listeners { read, live: wanted, ..Listeners::default() };
        next.closing = self.closing_beside(&next.live);
        if self.read.zone_bytes != next.read.zone_bytes {
            sizes.report(next.read.zone_bytes);
        }
        // A zone that shrank could not take what it holds.
        next.live.zone_bytes = sizes.choose(next.read.zone_bytes).max(self.live.zone_bytes);
        if let Some(rejected) = &self.rejected
            && rejected.settings == next.live.settings
        {
            let is_time = rejected.again <= Instant::now();
            next.rejected = Some(if is_time { rejected.later() } else { rejected.clone() });
            if !is_time {
                next.live.settings = self.live.settings.clone();
            }
        }
        next.live.listeners.retain(|port, _| {
            if self.live.listeners.contains_key(port) {
                return true;
            }
            let tried = bind(*port, has_ipv6);
            if let Err(error) = &tried {
                next.refused.insert(*port);
                let was_told = self.refused.contains(port) && !self.closing.contains_key(port);
                if !was_told && !next.closing.contains_key(port) {
                    tracing::warn!(
                        "cannot open {port}: {error}; free it, or choose another port in the ConfigMap of TCP or UDP \
                         services or in the Gateway; the next attempt is in {} s",
                        PORTS_AGAIN.as_secs()
                    );
                }
            }
            tried.is_ok()
        });
        next
    }

    /// The ports that nginx may not have closed yet, once it has these.
    fn closing_beside(&self, next: &ConfInput) -> BTreeMap<StreamPort, Instant> {
        let now = Instant::now();
        let gone = self.live.listeners.keys().filter(|port| !next.listeners.contains_key(port));
        let before = self.closing.iter().filter(|(_, since)| now < **since + CLOSING);
        let before = before.map(|(port, since)| (*port, *since));
        before.chain(gone.map(|port| (*port, now))).collect()
    }
}

impl Listeners {
    /// nginx does not take the settings: `instead` stay, and of those that keep clients out the new ones.
    pub fn reject_settings(&mut self, instead: StaticConfig, why: String) {
        let instead = instead.with_protecting(&self.live.settings);
        let settings = std::mem::replace(&mut self.live.settings, instead);
        self.rejected = Some(match self.rejected.take() {
            Some(before) if before.settings == settings => Rejected { why, ..before },
            _ => Rejected::new(settings, why),
        });
    }

    /// When what cannot be had is to be tried again.
    pub fn next_try(&self) -> Option<Instant> {
        let is_closing = self.refused.iter().any(|port| self.closing.contains_key(port));
        let pause = if is_closing { CLOSING_AGAIN } else { PORTS_AGAIN };
        let ports = (!self.refused.is_empty()).then(|| Instant::now() + pause);
        let settings = self.rejected.as_ref().map(|rejected| rejected.again);
        ports.into_iter().chain(settings).min()
    }
}

fn bind(port: StreamPort, has_ipv6: bool) -> io::Result<()> {
    let v6 = has_ipv6.then_some(IpAddr::from(Ipv6Addr::UNSPECIFIED));
    for address in std::iter::once(Ipv4Addr::UNSPECIFIED.into()).chain(v6) {
        match port {
            StreamPort::Tcp(number) => {
                let socket = match address {
                    IpAddr::V4(_) => TcpSocket::new_v4()?,
                    IpAddr::V6(_) => TcpSocket::new_v6()?,
                };
                socket.set_reuseaddr(true)?;
                socket.bind(SocketAddr::new(address, number.get()))?;
            }
            StreamPort::Udp(number) => {
                drop(UdpSocket::bind(SocketAddr::new(address, number.get()))?);
            }
        }
    }
    Ok(())
}

/// What is different, for the log.
pub fn describe(old: &ConfInput, new: &ConfInput) -> String {
    let ports = |input: &ConfInput| input.listeners.keys().copied().collect::<BTreeSet<_>>();
    let (before, after) = (ports(old), ports(new));
    let names = |ports: Vec<&StreamPort>| {
        ports.iter().map(|port| port.to_string()).collect::<Vec<_>>().join(", ")
    };
    let is_other = |port: &&StreamPort| old.listeners.get(*port) != new.listeners.get(*port);
    let groups = [
        ("new", names(after.difference(&before).collect())),
        ("gone", names(before.difference(&after).collect())),
        ("with other flags", names(before.intersection(&after).filter(is_other).collect())),
    ];
    let groups = groups.iter().filter(|(_, names)| !names.is_empty());
    let mut words: Vec<_> = groups.map(|(what, names)| format!("{what}: {names}")).collect();
    let has_ports = !words.is_empty();
    let mib = |input: &ConfInput| input.zone_bytes >> 20;
    if mib(old) != mib(new) && words.is_empty() && old.settings == new.settings {
        return format!("the zone grows from {} to {} MiB", mib(old), mib(new));
    }
    if mib(old) != mib(new) {
        words.push(format!("zone: {} MiB", mib(new)));
    }
    if old.settings != new.settings {
        let keys = old.settings.differing(&new.settings);
        words.push(format!("ConfigMap keys: {}", keys.join(", ")));
    }
    let what = if has_ports { "TCP and UDP ports change" } else { "nginx.conf changes" };
    format!("{what} ({})", words.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options;
    use oxigress_settings::keys;
    use std::num::NonZeroU16;

    fn wanted(level: &str) -> ConfInput {
        let mut input = ConfInput::default();
        input.settings.put(keys::find("error-log-level").unwrap(), level);
        input
    }

    #[tokio::test(start_paused = true)]
    async fn a_port_that_comes_back_at_once_is_tried_until_nginx_has_closed_it() {
        let sizes = Sizes::of(&Options::default());
        // Somebody has it: nginx, or another program.
        let socket = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = NonZeroU16::new(socket.local_addr().unwrap().port()).unwrap();
        let mut with = ConfInput::default();
        with.listeners.insert(StreamPort::Tcp(port), conf_input::Listener::default());
        let mut listeners = Listeners { live: with.clone(), ..Listeners::default() };
        listeners = listeners.next(ConfInput::default(), false, sizes);
        assert!(listeners.next_try().is_none());
        listeners = listeners.next(with.clone(), false, sizes);
        assert_eq!(listeners.refused.len(), 1);
        assert!(listeners.next_try().unwrap() <= Instant::now() + CLOSING_AGAIN);
        tokio::time::advance(CLOSING).await;
        listeners = listeners.next(with.clone(), false, sizes);
        let again = listeners.next_try().unwrap();
        assert!(again > Instant::now() + CLOSING_AGAIN, "it is another program's");
        drop(socket);
        listeners = listeners.next(with, false, sizes);
        assert!(listeners.refused.is_empty() && listeners.next_try().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn refused_settings_are_tried_again_ever_more_seldom_and_others_at_once() {
        let sizes = Sizes::of(&Options::default());
        let mut listeners = Listeners::default();
        assert!(listeners.next_try().is_none());
        let mut tries = Vec::new();
        let start = Instant::now();
        for _ in 0..10 {
            let mut next = listeners.next(wanted("info"), false, sizes);
            if next.live.settings == wanted("info").settings {
                tries.push(start.elapsed().as_secs());
                next.reject_settings(listeners.live.settings.clone(), "no".into());
            }
            assert_eq!(next.live.settings, StaticConfig::default());
            listeners = next;
            tokio::time::sleep_until(listeners.next_try().unwrap()).await;
        }
        assert_eq!(tries, [0, 2, 6, 14, 30, 62, 126, 254, 510, 810]);
        let other = listeners.next(wanted("warn"), false, sizes);
        assert_eq!(other.live.settings, wanted("warn").settings);
        assert!(other.next_try().is_none());
    }
}
