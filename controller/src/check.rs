//! `oxigress check DIR`: what would be served of a folder, and what not.

use crate::flags::Flags;
use crate::source::folder::Folder;
use crate::translate::{Translation, translate};
use crate::verdict::Severity;
use crate::world::{Changed, World};
use anyhow::Context;
use std::fmt::Display;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

/// Prints one line an object there is something to say about; fails if something is not served. Objects
/// of kinds that are not read are only told.
pub fn run(folder: &Path, flags: &Flags) -> anyhow::Result<ExitCode> {
    let batch = Folder::read_once(folder).with_context(|| format!("{}", folder.display()))?;
    let mut world = World::default();
    let mut changed = Changed::default();
    batch.seen.into_iter().for_each(|seen| world.apply(seen, &mut changed));
    let translation = translate(&world, &flags.options(Default::default()));
    match write(&mut io::stdout().lock(), &batch.problems, &translation) {
        // `| head` has read enough. What was found decides all the same.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        written => written.context("standard output")?,
    }
    let is_rejected = translation.verdicts.values().any(|v| v.severity == Severity::Rejected);
    let is_problem = batch.problems.iter().any(|problem| !problem.is_other_kind);
    let is_none_served = !world.ingresses.is_empty() && translation.snapshot.servers.is_empty();
    Ok(if is_rejected || is_problem || is_none_served {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

fn write(
    out: &mut impl Write,
    problems: &[impl Display],
    translation: &Translation,
) -> io::Result<()> {
    for problem in problems {
        writeln!(out, "{problem}")?;
    }
    for (object, verdict) in &translation.verdicts {
        writeln!(out, "{object}: {verdict}")?;
    }
    let snapshot = &translation.snapshot;
    writeln!(
        out,
        "{} hosts, {} paths, {} backends, {} certificates",
        snapshot.servers.len(),
        snapshot.servers.values().map(|server| server.rules.len()).sum::<usize>(),
        snapshot.backends.len(),
        snapshot.certificates.len()
    )
}
