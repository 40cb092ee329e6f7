//! The programs that `nginx-build/cluster/ecosystem` built, and how they are started.

use anyhow::{Context, Result};
use oxigress_tests::place::Directory;
use oxigress_tests::process::Process;
use oxigress_tests::{dist, network};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// A line of tests/ecosystem/programs.
pub struct Pinned {
    pub name: String,
    pub module: String,
    pub version: String,
}

/// What is pinned under this name.
pub fn pinned(name: &str) -> Result<Pinned> {
    let text = fs::read_to_string(dist::repository().join("tests/ecosystem/programs"))?;
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let mut lines = text.lines().map(words);
    let found = lines.find_map(|line| match line.as_slice() {
        [own, module, version, _package] if own == name => {
            Some(Pinned { name: own.clone(), module: module.clone(), version: version.clone() })
        }
        _ => None,
    });
    found.with_context(|| format!("tests/ecosystem/programs has no {name}"))
}

/// Why a program is not there, if it is not.
pub fn missing(name: &str) -> Result<Option<String>> {
    let folder = dist::ecosystem()?;
    if folder.join(name).exists() {
        return Ok(None);
    }
    let why = fs::read_to_string(folder.join(format!("{name}.missing")));
    Ok(Some(why.map_or_else(|_| "it is not built".into(), |why| why.trim().to_owned())))
}

/// The file of a program, or what its module gave besides.
pub fn file(name: &str) -> Result<PathBuf> {
    let path = dist::ecosystem()?.join(name);
    path.canonicalize().with_context(|| format!("{name} is not built"))
}

/// A program before its start, in the network of the cluster. It ends with this process.
pub struct Start(Command, String);

impl Start {
    pub fn new(name: &str) -> Result<Self> {
        let mut command = Command::new("setpriv");
        command.arg("--pdeathsig=KILL").arg(file(name)?);
        Ok(Start(command, name.into()))
    }

    pub fn args<S: AsRef<std::ffi::OsStr>>(mut self, all: impl IntoIterator<Item = S>) -> Self {
        self.0.args(all);
        self
    }

    pub fn env(mut self, name: &str, value: impl AsRef<std::ffi::OsStr>) -> Self {
        self.0.env(name, value);
        self
    }

    /// Starts it with its output in `PROGRAM.log` of the directory.
    pub fn run(self, directory: &Directory) -> Result<Process> {
        let Start(mut command, name) = self;
        let log = directory.join(format!("{name}.log"));
        // One that finds no kubeconfig of its own must not find the developer's.
        command.env("HOME", directory.path()).current_dir(directory.path());
        network::keep(move || Process::start(&name, &mut command, &log))?
    }
}
