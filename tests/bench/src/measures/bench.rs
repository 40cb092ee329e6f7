//! What all subjects share: the programs under test, a directory, and two plain endpoints.

use crate::conf;
use crate::nginx::{Nginx, wait_for_port};
use anyhow::{Context, Result};
use oxigress_tests::dist;
use oxigress_tests::place::{Directory, free_port};
use std::fs;
use std::path::PathBuf;
use std::time::SystemTime;

/// One run of the benches.
pub struct Bench {
    /// For everything that is written.
    pub directory: Directory,
    /// Copies, so that a build that goes on meanwhile does not change what is measured.
    pub nginx: PathBuf,
    pub module: PathBuf,
    /// The time of the module's build, which tells old figures from new ones.
    pub module_built: SystemTime,
    /// As above; `None` if it was not built.
    pub oxigress: Option<PathBuf>,
    /// The folder where callgrind leaves its profiles.
    pub profiles: PathBuf,
    /// Ports of the two endpoints.
    pub endpoints: [u16; 2],
    _endpoint: Nginx,
}

impl Bench {
    /// Copies the programs and starts the endpoints: one stock nginx of its own, never under valgrind.
    pub fn new() -> Result<Self> {
        let directory = Directory::new("bench")?;
        let copy = |name: &str| -> Result<PathBuf> {
            let to = directory.join("dist").join(name);
            fs::create_dir_all(to.parent().context("a folder")?)?;
            fs::copy(dist::file(name)?, &to)?;
            Ok(to)
        };
        let nginx = copy("sbin/nginx")?;
        let module = copy("modules/ngx_ingress_module.so")?;
        let module_built = fs::metadata(dist::module()?)?.modified()?;
        let oxigress = copy("bin/oxigress").ok();
        let profiles = dist::target().join("bench");
        fs::create_dir_all(&profiles)?;

        let endpoints = [free_port()?, free_port()?];
        let folder = directory.join("endpoint");
        let endpoint = Nginx::start(&nginx, &folder, &conf::endpoint(endpoints))?;
        wait_for_port(endpoints[0])?;
        Ok(Bench {
            directory,
            nginx,
            module,
            module_built,
            oxigress,
            profiles,
            endpoints,
            _endpoint: endpoint,
        })
    }
}
