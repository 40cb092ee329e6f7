//! The command line of `oxigress migrate`.

use clap::Args;
use std::path::PathBuf;

/// What is migrated, and to what.
#[derive(Args, Debug)]
pub struct Arguments {
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
    /// Name of the Gateways, one in each namespace of Ingresses
    #[arg(long, value_name = "NAME", default_value = "web")]
    pub gateway: String,
}
