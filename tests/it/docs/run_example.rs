//! `make run`'s script on other ports: the curl lines that it prints, and those of the README and docs/install.md, work.

use anyhow::{Context, Result, ensure};
use oxigress_tests::place::{Directory, free_port};
use oxigress_tests::process::Process;
use oxigress_tests::wait::until;
use oxigress_tests::{dist, pass};
use rustix::process::Signal;
use std::fs;
use std::process::Command;

#[test]
fn the_curl_lines_of_the_example_and_of_the_readme_work() {
    pass("run-example", run);
}

fn run(directory: &Directory) -> Result<()> {
    // The script runs what `make build` left in target/dist.
    let script = dist::repository().join("conf/examples/run");
    let (http, https, health) = (free_port()?, free_port()?, free_port()?);
    let output = directory.join("output");
    let mut command = Command::new(&script);
    command.current_dir(dist::repository());
    command.env("HTTP_PORT", http.to_string()).env("HTTPS_PORT", https.to_string());
    command.env("HEALTHZ_PORT", health.to_string());
    command.env("RUNTIME_DIR", directory.join("run"));
    let mut shop = Process::start("conf/examples/run", &mut command, &output)?;
    let is_open = until("the shop to open", || {
        let said = fs::read_to_string(&output)?;
        let (is_open, ended) = (said.contains("Ctrl-C ends it"), shop.ended()?);
        ensure!(is_open || ended.is_some(), "it says\n{said}");
        Ok(is_open && ended.is_none())
    })?;
    ensure!(is_open, "the script ended: is there a target/dist from `make build`?");

    let printed = curl_lines(&fs::read_to_string(&output)?);
    check(&printed).context("lines that conf/examples/run prints")?;

    let mut pages = String::new();
    for page in ["README.md", "docs/install.md"] {
        pages += &fs::read_to_string(dist::repository().join(page)).context(page)?;
    }
    let pages = pages.replace("8080", &http.to_string()).replace("8443", &https.to_string());
    check(&curl_lines(&pages)).context("lines of README.md and docs/install.md")?;

    shop.stop(Signal::TERM)?;
    Ok(())
}

/// Lines that begin with `curl`.
fn curl_lines(text: &str) -> Vec<String> {
    let lines = text.lines().map(|line| line.trim().trim_start_matches("$ "));
    lines.filter(|line| line.starts_with("curl ")).map(str::to_owned).collect()
}

/// Every line answers with the status that its comment begins with, else with 200.
fn check(lines: &[String]) -> Result<()> {
    let (mut seen, mut hosts) = (Vec::new(), 0);
    for line in lines {
        let (command, comment) = line.split_once('#').unwrap_or((line, ""));
        let expected: u16 =
            comment.trim().get(..3).and_then(|word| word.parse().ok()).unwrap_or(200);
        let command = format!(
            "{command} --silent --show-error --output /dev/null --write-out '%{{http_code}}'"
        );
        let ran = Command::new("sh").arg("-c").arg(&command).output().context("sh")?;
        let found = String::from_utf8_lossy(&ran.stdout);
        ensure!(
            found == expected.to_string(),
            "{line}\nanswers {found}, not {expected}; {}",
            String::from_utf8_lossy(&ran.stderr)
        );
        if expected == 200 {
            hosts += 1;
        }
        seen.push((command.contains("https://"), expected));
    }
    for needed in [(false, 200), (true, 200), (false, 404)] {
        ensure!(seen.contains(&needed), "no line for (HTTPS, status) {needed:?} among {lines:?}");
    }
    ensure!(seen.iter().any(|(_, status)| *status == 503), "no line for a 503 among {lines:?}");
    ensure!(hosts >= 3, "two hosts and a wildcard, in {lines:?}");
    Ok(())
}
