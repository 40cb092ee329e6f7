//! Completions and manual pages, from the same definitions as `--help`.

use crate::flags::help::command;
use anyhow::anyhow;
use clap_complete::Shell;
use std::path::Path;

/// The script that a shell reads.
pub fn completion(shell: Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command(), "oxigress", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

/// The page of the program; with a folder, a file there for each command.
pub fn pages(folder: Option<&Path>) -> anyhow::Result<String> {
    if let Some(folder) = folder {
        clap_mangen::generate_to(command(), folder).map_err(|error| {
            let folder = folder.display();
            anyhow!("cannot write to --dir {folder}: {error}: create the folder or name another")
        })?;
        return Ok(String::new());
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(command()).render(&mut page)?;
    Ok(String::from_utf8_lossy(&page).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_completed_and_have_a_page() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = completion(shell);
            for word in ["wait-shutdown", "explain", "runtime-dir"] {
                assert!(script.contains(word), "{word} for {shell}");
            }
        }
        let page = pages(None).unwrap();
        assert!(page.contains(".TH oxigress") && page.contains("explain"), "{page}");
        let folder = tempfile::tempdir().unwrap();
        pages(Some(folder.path())).unwrap();
        assert!(folder.path().join("oxigress-explain.1").exists());
    }
}
