//! Every block of `blocks/AREA/*.test` as a test of its own: `cargo test -p oxigress-tests --test blocks
//! [words of its name]`.

use libtest_mimic::{Arguments, Trial};
use oxigress_tests::block;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Blocks at once: each has an nginx of its own, and most wait most of the time.
const THREADS: usize = 4;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(THREADS);
    match trials(&Path::new(env!("CARGO_MANIFEST_DIR")).join("blocks")) {
        Ok(trials) => libtest_mimic::run(&arguments, trials).exit_code(),
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn trials(folder: &Path) -> anyhow::Result<Vec<Trial>> {
    let mut files: Vec<PathBuf> = Vec::new();
    for area in std::fs::read_dir(folder)? {
        for file in std::fs::read_dir(area?.path())? {
            files.push(file?.path());
        }
    }
    files.retain(|file| file.extension().is_some_and(|e| e == "test"));
    files.sort();
    let mut trials = Vec::new();
    for path in files {
        let name = path.strip_prefix(folder)?.with_extension("").display().to_string();
        let file = format!("blocks/{name}.test");
        for block in block::read(&path)? {
            let title = format!("{name}: {}", block.title);
            // Another user's connection needs root: as anybody else the test is listed as ignored.
            let is_ignored = block::needs_root(&block) && !rustix::process::geteuid().is_root();
            let file = file.clone();
            let trial = Trial::test(title, move || Ok(block::run(&block, &file)?));
            trials.push(trial.with_ignored_flag(is_ignored));
        }
    }
    Ok(trials)
}
