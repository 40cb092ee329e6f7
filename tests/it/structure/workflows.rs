//! The workflows of a public repository: what they call exists, and they ask what a supply chain is asked.

use anyhow::{Context, Result, ensure};
use oxigress_tests::dist;
use std::collections::BTreeSet;
use std::fs;

/// Each workflow's name and text.
fn workflows() -> Result<Vec<(String, String)>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(dist::repository().join(".github/workflows"))? {
        let path = entry?.path();
        let name = path.file_name().context("a name")?.to_string_lossy().into_owned();
        all.push((name, fs::read_to_string(path)?));
    }
    Ok(all)
}

/// The words after `command` on the lines that are run.
fn words_after<'t>(text: &'t str, command: &str) -> Vec<&'t str> {
    let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
    let calls = lines.filter_map(|line| line.split_once(command));
    let is_word = |word: &&str| word.chars().all(|c| c.is_ascii_lowercase() || c == '-');
    calls.flat_map(|(_, rest)| rest.split_whitespace().take_while(is_word)).collect()
}

#[test]
fn what_they_call_is_there() -> Result<()> {
    let makefile = fs::read_to_string(dist::repository().join("Makefile"))?;
    let goals = makefile.lines().filter(|line| line.starts_with(".PHONY:"));
    let goals: BTreeSet<&str> = goals.flat_map(|line| line.split_whitespace().skip(1)).collect();
    let mut count = 0;
    for (name, text) in workflows()? {
        for goal in ["run: make ", "SOURCE=${{ matrix.source }} make ", " make "]
            .into_iter()
            .flat_map(|command| words_after(&text, command))
        {
            // Debian's package of that name.
            let is_package = ["rustup", "git", "jq"].contains(&goal);
            ensure!(is_package || goals.contains(goal), "{name}: make {goal} is no goal");
            count += usize::from(!is_package);
        }
        for line in text.lines().filter(|line| !line.trim_start().starts_with('#')) {
            for word in line.split_whitespace().filter(|word| word.starts_with("nginx-build/")) {
                ensure!(dist::repository().join(word).exists(), "{name}: {word} is not there");
            }
        }
        ensure!(!text.contains("uses:"), "{name}: an action of a third party");
    }
    ensure!(count >= 8, "{count} goals were found");
    Ok(())
}

#[test]
fn a_change_passes_what_a_supply_chain_is_asked() -> Result<()> {
    let all = workflows()?;
    let text = |name: &str| {
        let found = all.iter().find(|(of, _)| of == name);
        found.map(|(_, text)| text.as_str()).with_context(|| name.to_owned())
    };
    let ci = text("ci.yml")?;
    for asked in [
        "make check",
        "make test\n",
        "source: [sid, stable, crate]",
        "cargo deny check advisories",
        "nginx-build/advisories",
        "sbom.cdx.json",
        "ubuntu-24.04-arm",
        "cron:",
    ] {
        ensure!(ci.contains(asked), "ci.yml has no {asked:?}");
    }
    // Of an nginx with known holes, or on a base that may change, nothing is released.
    let release = text("release.yml")?;
    ensure!(release.contains("make check test") && release.contains("make image\n"), "{release}");
    ensure!(!release.contains("FORCE"), "{release}");
    ensure!(release.contains("image: ${{ vars.DEBIAN_IMAGE }}\n"), "{release}");
    Ok(())
}
