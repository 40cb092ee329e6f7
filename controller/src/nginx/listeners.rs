//! The TCP and UDP listeners as the controller role wants them, and whether they can be had.

use super::zone::Sizes;
use crate::runtime::Runtime;
use crate::streams::{self, Streams};
use crate::translate::Skeleton;
use oxigress_core::model::StreamPort;
use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use tokio::net::TcpSocket;

/// What the file says; one that cannot be read says nothing.
pub fn read(runtime: &Runtime) -> Streams {
    let path = runtime.file(streams::FILE);
    Streams::read(&path).unwrap_or_else(|error| {
        tracing::error!(
            "{}: {error}: no TCP and UDP ports until it is written again",
            path.display()
        );
        Streams::default()
    })
}

/// What stands in nginx.conf, and what cannot be had yet.
#[derive(Default)]
pub struct Listeners {
    /// As they were last read.
    pub read: Streams,
    /// In nginx.conf.
    pub live: Streams,
    /// Somebody else has these ports.
    pub refused: BTreeSet<StreamPort>,
    /// nginx has refused these settings.
    pub rejected: Option<Skeleton>,
}

impl Listeners {
    /// nginx refuses a whole configuration for one port that it cannot have: new ones are tried before.
    pub fn next(&self, wanted: Streams, has_ipv6: bool, sizes: Sizes) -> Self {
        let read = wanted.clone();
        let mut next = Listeners { read, live: wanted, refused: BTreeSet::new(), rejected: None };
        if self.read.zone_bytes != next.read.zone_bytes {
            sizes.report(next.read.zone_bytes);
        }
        // A zone that shrank could not take what it holds.
        next.live.zone_bytes = sizes.choose(next.read.zone_bytes).max(self.live.zone_bytes);
        if self.rejected.as_ref() == Some(&next.live.settings) {
            // As they are they were tried: nobody wants to read it again each time a port is looked at.
            let wanted = std::mem::replace(&mut next.live.settings, self.live.settings.clone());
            next.rejected = Some(wanted);
        }
        next.live.listeners.retain(|port, _| {
            if self.live.listeners.contains_key(port) {
                return true;
            }
            let tried = bind(*port, has_ipv6);
            if let Err(error) = &tried {
                next.refused.insert(*port);
                if !self.refused.contains(port) {
                    tracing::warn!(
                        "{port} cannot be opened: {error}: free the port, or write another one into the ConfigMap"
                    );
                }
            }
            tried.is_ok()
        });
        next
    }
}

impl Listeners {
    /// nginx does not take the settings: `instead` stay, and of those that keep clients out the new ones.
    pub fn reject_settings(&mut self, instead: Skeleton) {
        let instead = instead.with_protecting(&self.live.settings);
        self.rejected = Some(std::mem::replace(&mut self.live.settings, instead));
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
pub fn describe(old: &Streams, new: &Streams) -> String {
    let ports = |streams: &Streams| streams.listeners.keys().copied().collect::<BTreeSet<_>>();
    let (before, after) = (ports(old), ports(new));
    let names = |ports: Vec<&StreamPort>| {
        ports.iter().map(|port| port.to_string()).collect::<Vec<_>>().join(", ")
    };
    let is_other = |port: &&StreamPort| old.listeners.get(*port) != new.listeners.get(*port);
    let groups = [
        ("new", names(after.difference(&before).collect())),
        ("gone", names(before.difference(&after).collect())),
        ("with other PROXY flags", names(before.intersection(&after).filter(is_other).collect())),
    ];
    let groups = groups.iter().filter(|(_, names)| !names.is_empty());
    let mut words: Vec<_> = groups.map(|(what, names)| format!("{what}: {names}")).collect();
    let mib = |streams: &Streams| streams.zone_bytes >> 20;
    if mib(old) != mib(new) && words.is_empty() && old.settings == new.settings {
        return format!("the zone grows from {} to {} MiB", mib(old), mib(new));
    }
    if mib(old) != mib(new) {
        words.push(format!("the zone: {} MiB", mib(new)));
    }
    if old.settings != new.settings {
        let keys = old.settings.differing(&new.settings);
        words.push(format!("keys of the ConfigMap: {}", keys.join(", ")));
        if words.len() == 1 {
            return format!("nginx.conf changes ({})", words.join("; "));
        }
    }
    format!("TCP and UDP ports change ({})", words.join("; "))
}
