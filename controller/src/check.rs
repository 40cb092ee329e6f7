//! `oxigress check DIR`: what would be served of a folder, and what not.

use crate::flags::Flags;
use crate::source::folder::Folder;
use crate::translate::translate;
use crate::verdict::Severity;
use crate::world::{Changed, World};
use anyhow::Context;
use std::path::Path;
use std::process::ExitCode;

/// Prints one line an object there is something to say about; fails if something is not served.
pub fn run(folder: &Path, flags: &Flags) -> anyhow::Result<ExitCode> {
    let batch = Folder::read_once(folder).with_context(|| format!("{}", folder.display()))?;
    let mut world = World::default();
    let mut changed = Changed::default();
    batch.seen.into_iter().for_each(|seen| world.apply(seen, &mut changed));
    let translation = translate(&world, &flags.options(Default::default()));
    for problem in &batch.problems {
        println!("{problem}");
    }
    for (object, verdict) in &translation.verdicts {
        println!("{object}: {verdict}");
    }
    let snapshot = &translation.snapshot;
    println!(
        "{} hosts, {} paths, {} backends, {} certificates",
        snapshot.servers.len(),
        snapshot.servers.values().map(|server| server.rules.len()).sum::<usize>(),
        snapshot.backends.len(),
        snapshot.certificates.len()
    );
    let is_rejected = translation.verdicts.values().any(|v| v.severity == Severity::Rejected);
    Ok(if is_rejected || !batch.problems.is_empty() {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}
