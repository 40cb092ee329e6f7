//! The command line of `oxigress migrate`.

use super::input::Input;
use clap::Args;

/// What is migrated, and to what.
#[derive(Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    pub input: Input,
    /// Name of the Gateways, one in each namespace that owns hosts
    #[arg(long, value_name = "NAME", default_value = "web")]
    pub gateway: String,
}
