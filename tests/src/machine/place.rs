//! What a case has for itself: a directory and ports.

use crate::dist;
use anyhow::{Context, Result, bail};
use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};

/// A directory that goes away after a success and stays for the developer after a failure.
pub struct Directory {
    path: PathBuf,
    /// Another one contains it, and takes it along.
    is_inside: bool,
}

impl Directory {
    /// A new directory `target/test-run/NAME.PID.N`; under the system's temporary folder when a unix socket
    /// in it would have too long a path (107 bytes).
    pub fn new(name: &str) -> Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name: String = name
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
            .take(30)
            .collect();
        let leaf =
            format!("{name}.{}.{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let target = dist::target();
        let run = fs::canonicalize(&target).unwrap_or(target).join("test-run");
        let mut path = run.join(&leaf);
        if path.as_os_str().len() > 75 {
            path = std::env::temp_dir().join("oxigress-tests").join(leaf);
        }
        fs::create_dir_all(&path).with_context(|| format!("create {}", path.display()))?;
        Ok(Directory { path, is_inside: false })
    }

    /// A new directory in it, which goes and stays with it.
    pub fn within(&self, name: &str) -> Result<Self> {
        let path = self.path.join(name);
        fs::create_dir(&path).with_context(|| format!("create {}", path.display()))?;
        Ok(Directory { path, is_inside: true })
    }

    /// Removes directories of this name whose process is gone: what a static owns nobody drops.
    pub fn sweep(name: &str) {
        let places = [dist::target().join("test-run"), std::env::temp_dir().join("oxigress-tests")];
        let entries = places.iter().flat_map(fs::read_dir).flatten().flatten();
        for entry in entries {
            let leaf = entry.file_name().to_string_lossy().into_owned();
            let pid =
                leaf.strip_prefix(name).and_then(|rest| rest.strip_prefix('.')?.split('.').next());
            if pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Leaves it where it is, for the developer.
    pub fn keep(self) -> PathBuf {
        let path = self.path.clone();
        std::mem::forget(self);
        path
    }

    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path.join(name)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if !std::thread::panicking() && !self.is_inside {
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// A port that nothing uses, with TCP or UDP, on loopback of both families.
///
/// Asked for below the range from which the kernel takes the ports of outgoing connections: a port of that
/// range can be gone again by the time nginx binds it. The kernel's word that it is free is a bind.
pub fn free_port() -> Result<u16> {
    const FIRST: u16 = 10_240;
    const LAST: u16 = 32_000;
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Test programs that run at the same time start at different places.
    let start = std::process::id().wrapping_mul(2_654_435_761) >> 16;
    for _ in FIRST..LAST {
        let step = u32::from(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = FIRST + ((start + step) % u32::from(LAST - FIRST)) as u16;
        let is_free = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok()
            && TcpListener::bind((Ipv6Addr::LOCALHOST, port)).is_ok()
            && UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok();
        if is_free {
            return Ok(port);
        }
    }
    bail!("no free TCP port from {FIRST} to {LAST}")
}
