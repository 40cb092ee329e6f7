//! Where the programs under test are.

use anyhow::{Result, bail};
use std::path::{Path, PathBuf};

/// A file of `target/dist`, or of `OXIGRESS_DIST`. What is missing is an error, never a reason to skip.
pub fn file(name: &str) -> Result<PathBuf> {
    let dist = match std::env::var_os("OXIGRESS_DIST") {
        Some(path) => PathBuf::from(path),
        None => target().join("dist"),
    };
    let path = dist.join(name);
    if !path.exists() {
        bail!("{} is missing: run `make build failpoints` first", path.display());
    }
    Ok(path)
}

pub fn nginx() -> Result<PathBuf> {
    file("sbin/nginx")
}

pub fn module() -> Result<PathBuf> {
    file("modules/ngx_ingress_module.so")
}

/// The module that can be killed at named places.
pub fn failpoints_module() -> Result<PathBuf> {
    file("modules-failpoints/ngx_ingress_module.so")
}

pub fn oxigress() -> Result<PathBuf> {
    file("bin/oxigress")
}

/// A program of the test cluster: `etcd` or `kube-apiserver`.
pub fn kubernetes(program: &str) -> Result<PathBuf> {
    let folder = match std::env::var_os("KUBEBUILDER_ASSETS").filter(|folder| !folder.is_empty()) {
        Some(folder) => PathBuf::from(folder),
        None => target().join("kubernetes"),
    };
    let path = folder.join(program);
    if !path.exists() {
        bail!(
            "{} is missing: run `make kubernetes` first, or set KUBEBUILDER_ASSETS",
            path.display()
        );
    }
    Ok(path)
}

/// What the conformance suite of the Gateway API needs.
pub fn conformance(name: &str) -> Result<PathBuf> {
    let path = target().join("conformance").join(name);
    if !path.exists() {
        bail!("{} is missing: run `make conformance`", path.display());
    }
    Ok(path)
}

/// The folder of the genuine ingress-nginx.
pub fn ingress_nginx() -> Result<PathBuf> {
    let folder = target().join("ingress-nginx");
    if !folder.join("root/nginx-ingress-controller").exists() {
        bail!("{} is not there: run `make parity`", folder.display());
    }
    Ok(folder.canonicalize()?)
}

/// The folder of the programs of `make ecosystem`.
pub fn ecosystem() -> Result<PathBuf> {
    let folder = target().join("ecosystem");
    if !folder.exists() {
        bail!("{} is not there: run `make ecosystem`", folder.display());
    }
    Ok(folder.canonicalize()?)
}

/// The top folder of the work tree.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The build folder, also of test runs.
pub fn target() -> PathBuf {
    repository().join("target")
}
