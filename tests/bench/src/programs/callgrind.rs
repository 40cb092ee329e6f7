//! Counts the instructions of one nginx process while something is done with it.
//!
//! callgrind runs without counting until it is told to: start-up and the filling of the store neither cost
//! time nor enter the numbers. A count lies between two dumps of one process, each of which begins at zero,
//! so the difference of two run lengths is what is counted directly.

use crate::nginx::Nginx;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub struct Callgrind {
    pub nginx: Nginx,
    folder: PathBuf,
    dumps: u32,
}

impl Callgrind {
    /// Starts it; `text` must say `master_process off`, since one process is counted.
    pub fn start(program: &Path, folder: &Path, text: &str) -> Result<Self> {
        fs::create_dir_all(folder)?;
        let mut command = Command::new("valgrind");
        command
            .args(["--tool=callgrind", "--instr-atstart=no"])
            .arg(format!("--callgrind-out-file={}", folder.join("out").display()))
            .arg(format!("--vgdb-prefix={}", folder.join("vgdb").display()))
            .arg(program);
        let nginx = Nginx::start_by(command, folder, text).context("valgrind")?;
        Ok(Callgrind { nginx, folder: folder.into(), dumps: 0 })
    }

    /// From now on instructions are counted, which makes everything some ten times slower still.
    pub fn begin(&self) -> Result<()> {
        self.say(&["instrumentation", "on"])
    }

    /// The instructions of `work`; their profile is left in `profile`.
    pub fn count(&mut self, profile: &Path, work: impl FnOnce() -> Result<()>) -> Result<u64> {
        self.dump()?;
        work()?;
        let file = self.dump()?;
        let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        fs::copy(&file, profile)?;
        let total = text.lines().find_map(|line| line.strip_prefix("totals: "));
        Ok(total.context("no totals in callgrind's file")?.trim().parse()?)
    }

    /// Ends it. By SIGKILL: another signal that meets vgdb's ptrace can be lost.
    pub fn stop(mut self) -> Result<()> {
        self.nginx.kill()
    }

    fn dump(&mut self) -> Result<PathBuf> {
        self.say(&["dump"])?;
        self.dumps += 1;
        Ok(self.folder.join(format!("out.{}", self.dumps)))
    }

    /// Speaks to valgrind's gdb server, as `callgrind_control` does.
    fn say(&self, words: &[&str]) -> Result<()> {
        let output = Command::new("vgdb")
            .arg(format!("--vgdb-prefix={}", self.folder.join("vgdb").display()))
            .arg(format!("--pid={}", self.nginx.pid()))
            .args(words)
            .stdin(Stdio::null())
            .output()
            .context("vgdb, which comes with valgrind")?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success(), "vgdb {words:?}: {said}");
        Ok(())
    }
}
