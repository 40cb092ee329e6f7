//! HAProxy of Debian's packages, as a peer: one thread, the same two endpoints, connections kept.

use anyhow::{Context, Result, ensure};
use oxigress_tests::process::Process;
use rustix::process::Signal;
use std::fs;
use std::path::Path;
use std::process::Command;

/// A running HAProxy; it is stopped when the value is dropped.
pub struct Haproxy {
    process: Process,
}

impl Haproxy {
    /// Starts it and waits until it listens.
    pub fn start(folder: &Path, port: u16, [a, b]: [u16; 2]) -> Result<Self> {
        fs::create_dir_all(folder)?;
        let conf = folder.join("haproxy.cfg");
        let text = format!(
            "global\n    nbthread 1\n    maxconn 4096\n\
             defaults\n    mode http\n    timeout connect 5s\n    timeout client 60s\n    timeout server 60s\n\
             \x20   option http-keep-alive\n    http-reuse always\n\
             frontend in\n    bind 127.0.0.1:{port}\n    default_backend out\n\
             backend out\n    balance roundrobin\n    server a 127.0.0.1:{a}\n    server b 127.0.0.1:{b}\n"
        );
        fs::write(&conf, text)?;
        // In the foreground, one process.
        let mut command = Command::new("haproxy");
        command.arg("-db").arg("-f").arg(&conf);
        let mut process = Process::start("haproxy", &mut command, &folder.join("output"))
            .context("haproxy (Debian's package haproxy)")?;
        let waited = crate::nginx::wait_for_port(port);
        let said = || fs::read_to_string(folder.join("output")).unwrap_or_default();
        ensure!(process.ended()?.is_none(), "haproxy did not start\n{}", said());
        waited?;
        Ok(Haproxy { process })
    }

    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Its version, as it says.
    pub fn version() -> Result<String> {
        let output = Command::new("haproxy").arg("-v").output().context("haproxy")?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        Ok(text.split_whitespace().nth(2).unwrap_or("?").to_owned())
    }

    pub fn stop(mut self) -> Result<()> {
        self.process.stop(Signal::TERM).context("stop haproxy").map(drop)
    }
}
