//! A file system of a few pages, to be filled.

use anyhow::{Context, Result, ensure};
use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A tmpfs of its own size; unmounted when it is dropped.
pub struct SmallDisk {
    path: PathBuf,
}

impl SmallDisk {
    /// Mounts `bytes` on a new folder `path`, open to everybody; only root can.
    pub fn mount(path: PathBuf, bytes: u64) -> Result<Self> {
        fs::create_dir(&path).with_context(|| format!("create {}", path.display()))?;
        let options = format!("size={bytes},mode=0777");
        let kind = ["-t", "tmpfs", "-o", &options, "tmpfs"].map(OsStr::new);
        run("mount", &[&kind[..], &[path.as_os_str()]].concat())?;
        Ok(SmallDisk { path })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Takes all that is left, in a file `name`: removing it makes the room free again.
    pub fn fill(&self, name: &str) -> Result<PathBuf> {
        let path = self.path.join(name);
        let mut file = fs::File::create(&path)?;
        let mut piece = vec![b'x'; 4096];
        loop {
            match file.write(&piece) {
                Ok(0) => return Ok(path),
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::StorageFull => {
                    if piece.len() == 1 {
                        return Ok(path);
                    }
                    piece.truncate(piece.len() / 2);
                }
                Err(error) => return Err(error).context("fill the disk"),
            }
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: a process that is about to end may still have a file open.
        let unmounted = run("umount", &[OsStr::new("-l"), self.path.as_os_str()]);
        if unmounted.is_ok() {
            let _ = fs::remove_dir(&self.path);
        }
    }
}

fn run(program: &str, arguments: &[&OsStr]) -> Result<()> {
    let output = Command::new(program).args(arguments).output();
    let output = output.with_context(|| format!("run {program}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program} {arguments:?}: {said}");
    Ok(())
}
