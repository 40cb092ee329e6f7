//! `oxigress check`: what becomes of manifests or of a cluster's objects, and what needs somebody's decision.
//!
//! Shape:   [`input`] reads, [`assume`] adds what manifests leave to the cluster, [`report`] counts and groups by cause,
//!          [`text`] writes it for people; serde writes it for programs.
//! Errors:  what cannot be read at all ends the command. What a manifest lacks or gets wrong is a finding.

mod assume;
mod differences;
pub mod input;
mod report;
mod text;

use crate::command::{self, Output};
use crate::flags::Flags;
use crate::flags::input::Input;
use anyhow::Context;
pub use assume::complete;
use clap::Args;
use oxigress_translate::Translator;
use report::Report;
use std::process::ExitCode;

/// What is checked, and how it is reported.
#[derive(Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    pub input: Input,
    /// Form of the report
    #[arg(short, long, value_enum, default_value = "text")]
    pub output: Output,
    /// Print the summary alone
    #[arg(short, long)]
    pub quiet: bool,
}

/// Prints the report. The exit code is 1 if something is not served.
pub async fn run(arguments: &Arguments, flags: &Flags) -> anyhow::Result<ExitCode> {
    let input::Objects { mut world, problems, flags, is_of_manifests } =
        arguments.input.read(flags).await?;
    let mut options = flags.options(Default::default());
    // What is assumed is not counted.
    let seen_world = world.clone();
    let mut assumed = assume::Assumed::default();
    if is_of_manifests {
        assumed = assume::complete(&mut world, &mut options);
    }
    let mut translator = Translator::new(options);
    translator.update(&world, &world.all());
    let prefix = &flags.annotations_prefix;
    let report = Report::of((&seen_world, &problems), &mut translator, prefix, assumed);
    let text = match arguments.output {
        Output::Json => {
            let report = if arguments.quiet { report.without_findings() } else { report.clone() };
            serde_json::to_string_pretty(&report).context("the report")? + "\n"
        }
        Output::Text => text::write(&report, arguments.quiet),
    };
    command::print(text.as_bytes())?;
    Ok(if report.is_all_served() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
