//! The flags that say where a command's objects come from.

use clap::Args;
use std::path::PathBuf;

/// The objects that a command is about: one of both is given.
#[derive(Args, Debug)]
pub struct Input {
    /// Manifests: a file, a folder, or - for standard input
    #[arg(
        value_name = "FILE|DIR|-",
        required_unless_present = "cluster",
        conflicts_with = "cluster"
    )]
    pub source: Option<PathBuf>,
    /// Read the objects of the API server once, in place of manifests
    #[arg(long)]
    pub cluster: bool,
}
