//! The flags that say where a command's objects come from.

use clap::Args;
use std::path::PathBuf;

/// The objects that a command is about: manifests, or those of a cluster.
#[derive(Args, Debug)]
pub struct Input {
    /// Manifests: files, folders, or - for standard input
    #[arg(
        value_name = "FILE|DIR|-",
        required_unless_present = "cluster",
        conflicts_with = "cluster"
    )]
    pub sources: Vec<PathBuf>,
    /// Read the objects of the API server once, in place of manifests
    #[arg(long)]
    pub cluster: bool,
}
