//! An nginx that runs as fast as it can, or under callgrind.

use anyhow::{Context, Result, ensure};
use oxigress_tests::nginx::tail;
use oxigress_tests::process::{Process, workers_below};
use rustix::process::Signal;
use std::fs;
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// valgrind takes seconds to start.
const DEADLINE: Duration = Duration::from_secs(60);

/// A running nginx; it is stopped when the value is dropped.
pub struct Nginx {
    process: Process,
    folder: PathBuf,
}

impl Nginx {
    /// Starts `program` on this text in `folder`, which is made.
    pub fn start(program: &Path, folder: &Path, text: &str) -> Result<Self> {
        Self::start_by(Command::new(program), folder, text)
    }

    /// As [`Self::start`], with a command that takes nginx's arguments.
    pub fn start_by(mut command: Command, folder: &Path, text: &str) -> Result<Self> {
        fs::create_dir_all(folder)?;
        let conf = folder.join("nginx.conf");
        fs::write(&conf, text)?;
        command.arg("-p").arg(folder).arg("-c").arg(&conf).arg("-e").arg(folder.join("error.log"));
        let process = Process::start("nginx", &mut command, &folder.join("output"))?;
        Ok(Nginx { process, folder: folder.into() })
    }

    pub fn wait_for_port(&mut self, port: u16) -> Result<()> {
        let start = Instant::now();
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            let ended = self.process.ended()?;
            ensure!(ended.is_none(), "nginx did not start\n{}", self.said());
            ensure!(start.elapsed() < DEADLINE, "nginx does not listen\n{}", self.said());
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// The end of what it logged.
    pub fn said(&self) -> String {
        let read = |name| fs::read_to_string(self.folder.join(name)).unwrap_or_default();
        tail(&(read("output") + &read("error.log")), 20)
    }

    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// The process id of its only worker.
    pub fn worker(&self) -> Result<u32> {
        let start = Instant::now();
        loop {
            if let Some(worker) = worker_below(self.pid()) {
                return Ok(worker);
            }
            ensure!(start.elapsed() < DEADLINE, "no worker of nginx\n{}", self.said());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn kill(&mut self) -> Result<()> {
        self.process.stop(Signal::KILL).context("kill nginx").map(drop)
    }

    pub fn stop(&mut self) -> Result<()> {
        let status = self.process.stop(Signal::TERM).context("stop nginx")?;
        ensure!(status.success(), "nginx ended with {status}\n{}", self.said());
        Ok(())
    }
}

/// Waits until something listens on a loopback port.
pub fn wait_for_port(port: u16) -> Result<()> {
    oxigress_tests::nginx::wait_for_port(port)
}

/// The only worker of a master; `None`: there are none or several.
pub fn worker_below(master: u32) -> Option<u32> {
    match workers_below(master)[..] {
        [worker] => Some(worker),
        _ => None,
    }
}
