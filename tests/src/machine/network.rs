//! A network namespace of the test process, where the addresses of pods and Services are local.
//!
//! Shape:   one a process, made by the first thread that joins. Namespaces are per thread in Linux: a keeper thread lives in
//!          it as long as the process, and threads join it one by one. What a thread starts after that, threads and
//!          processes, lives in it too; so do the tasks of [`crate::wait::runtime`], which there is once inside and once outside.
//! Addresses: 10.244.0.0/16 and fd00:10:244::/64 for pods, 10.96.0.0/16 and fd00:10:96::/112 for Services, all local: a
//!          socket may listen on any of them, and nothing leaves the machine.

use crate::wait;
use anyhow::{Context, Result, anyhow, ensure};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};
use std::fs::{self, File};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError, mpsc};
use std::thread;
use tokio::runtime::Runtime;

/// The calling thread's namespace; its link's text tells it from others.
const OWN: &str = "/proc/thread-self/ns/net";

const LOCAL: [[&str; 2]; 4] = [
    ["-4", "10.244.0.0/16"],
    ["-4", "10.96.0.0/16"],
    ["-6", "fd00:10:244::/64"],
    ["-6", "fd00:10:96::/112"],
];

type Job = Box<dyn FnOnce() + Send>;

struct Network {
    namespace: File,
    link: PathBuf,
    runtime: Runtime,
    keeper: Mutex<mpsc::Sender<Job>>,
}

static NETWORK: OnceLock<Result<Network, String>> = OnceLock::new();

/// Moves the calling thread into the namespace.
pub fn join() -> Result<()> {
    let network = network()?;
    if !network.is_of_this_thread() {
        move_into_link_name_space(network.namespace.as_fd(), Some(LinkNameSpaceType::Network))
            .context("join the test's network namespace")?;
    }
    Ok(())
}

/// The runtime inside, for threads that have joined.
pub(crate) fn runtime() -> Option<&'static Runtime> {
    let network = NETWORK.get()?.as_ref().ok()?;
    network.is_of_this_thread().then_some(&network.runtime)
}

/// Runs `job` in the thread that lives as long as the process: a child's parent-death signal comes when the thread ends
/// that started it.
pub fn keep<T: Send + 'static>(job: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    let (sender, receiver) = mpsc::sync_channel(1);
    let job = Box::new(move || drop(sender.send(job())));
    let keeper = network()?.keeper.lock().unwrap_or_else(PoisonError::into_inner);
    keeper.send(job).ok().context("the network's thread has ended")?;
    drop(keeper);
    receiver.recv().context("the network's thread has ended")
}

/// An address of a pod that nobody else in this process has.
pub fn pod_address() -> Ipv4Addr {
    let [high, low] = next_pod().to_be_bytes();
    Ipv4Addr::new(10, 244, high, low)
}

pub fn pod_address_v6() -> Ipv6Addr {
    Ipv6Addr::new(0xfd00, 0x10, 0x244, 0, 0, 0, 0, next_pod())
}

fn next_pod() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0x0101);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl Network {
    fn is_of_this_thread(&self) -> bool {
        fs::read_link(OWN).is_ok_and(|link| link == self.link)
    }
}

fn network() -> Result<&'static Network> {
    let made = NETWORK.get_or_init(|| start().map_err(|error| format!("{error:#}")));
    made.as_ref().map_err(|error| anyhow!("{error}"))
}

fn start() -> Result<Network> {
    wait::make_ready();
    let (jobs, todo) = mpsc::channel::<Job>();
    let (sender, made) = mpsc::sync_channel(1);
    let keep = move || {
        let result = enter_new()
            .and_then(|()| Ok((File::open(OWN)?, fs::read_link(OWN)?, wait::new_runtime()?)));
        let has_failed = result.is_err();
        let _ = sender.send(result);
        if !has_failed {
            todo.into_iter().for_each(|job| job());
        }
    };
    thread::Builder::new().name("network".into()).spawn(keep)?;
    let (namespace, link, runtime) = made.recv().context("the network's thread has ended")??;
    Ok(Network { namespace, link, runtime, keeper: Mutex::new(jobs) })
}

fn enter_new() -> Result<()> {
    // SAFETY: only a new table of descriptors could make others' unusable; this asks for a new network alone.
    unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.context(
        "the test cluster has a network namespace of its own, which needs root (CAP_SYS_ADMIN): \
         run the tests as root, or in a container with that right",
    )?;
    ip(&["link", "set", "lo", "up"])?;
    for [family, network] in LOCAL {
        ip(&[family, "route", "add", "local", network, "dev", "lo"])?;
    }
    // A local route is enough for sockets of IPv4 only.
    let nonlocal = Path::new("/proc/sys/net/ipv6/ip_nonlocal_bind");
    fs::write(nonlocal, "1").with_context(|| nonlocal.display().to_string())
}

/// Changes the namespace of the calling thread.
pub fn ip(arguments: &[&str]) -> Result<()> {
    let output = Command::new("ip").args(arguments).output();
    let output = output.context("run ip: install iproute2 (`make packages`)")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "ip {}: {}", arguments.join(" "), said.trim());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::{Address, Request, send};
    use crate::endpoint::{Behaviour, Endpoint};
    use std::net::TcpListener;

    #[test]
    fn addresses_of_pods_are_local_inside_and_nowhere_else() {
        let (v4, v6) = (pod_address(), pod_address_v6());
        let outside = fs::read_link(OWN).unwrap();
        let inside = move || {
            join().unwrap();
            join().unwrap();
            assert_ne!(fs::read_link(OWN).unwrap(), outside);
            for ip in [v4.into(), v6.into()] {
                let endpoint = Endpoint::with("pod", Behaviour::Ok, ip).unwrap();
                let answer =
                    wait::block_on(send(&Address::Tcp(endpoint.address), &Request::get("x", "/")));
                assert_eq!(answer.unwrap().endpoint().as_deref(), Some("pod"));
            }
            // A thread of this one is inside as well.
            thread::spawn(move || TcpListener::bind((v4, 0)).map(drop)).join().unwrap().unwrap();
        };
        thread::spawn(inside).join().unwrap();
        assert!(TcpListener::bind((v4, 0)).is_err(), "{v4} is local outside, too");
        assert!(keep(move || TcpListener::bind((v4, 0)).is_ok()).unwrap());
    }
}
