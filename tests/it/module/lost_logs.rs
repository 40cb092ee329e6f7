//! A lost log costs no request, no process and no change. Nobody forges a line of it.

use anyhow::{Context, Result, ensure};
use oxigress_tests::client::{Address, Request, send};
use oxigress_tests::controller::Controller;
use oxigress_tests::pass;
use oxigress_tests::place::Directory;
use oxigress_tests::wait::{self, block_on};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::process::Command;

/// Everybody who must not end.
fn pids(controller: &Controller) -> Result<Vec<u32>> {
    let mut pids = vec![controller.pid(), controller.master_pid()?];
    pids.extend([controller.role_pid("controller")?, controller.role_pid("nginx")?]);
    pids.extend(controller.worker_pids());
    Ok(pids)
}

/// Log lines of nginx and of the controller: requests, a file that is no manifest, and changes.
fn log_much(controller: &mut Controller) -> Result<()> {
    let address = Address::http(controller.http_port);
    for round in 0..40 {
        for _ in 0..10 {
            let answer = block_on(send(&address, &Request::get("nobody.test", "/")))?;
            ensure!(answer.status == 404, "{answer}");
        }
        controller
            .serve("broken.yaml", &format!("kind: [{round}"))
            .with_context(|| format!("round {round}"))?;
    }
    Ok(())
}

fn lose(directory: &Directory, output: OwnedFd, begin: impl FnOnce()) -> Result<Controller> {
    let mut controller = Controller::start_into(directory, 2, output)?;
    let before = pids(&controller)?;
    begin();
    log_much(&mut controller)?;
    ensure!(pids(&controller)? == before, "a process has ended");
    Ok(controller)
}

#[test]
fn the_reader_of_the_log_may_go_away() {
    pass("log-closed", |directory| {
        let (reader, writer) = std::io::pipe()?;
        lose(directory, writer.into(), || drop(reader))?.stop()
    });
}

#[test]
fn the_reader_of_the_log_may_stall() {
    pass("log-stalled", |directory| {
        let (mut reader, writer) = std::io::pipe()?;
        // The smallest there is.
        rustix::pipe::fcntl_setpipe_size(&writer, 4_096)?;
        let mut controller = lose(directory, writer.into(), || {})?;
        // It goes on.
        let (lines, read) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 4_096];
            while let Ok(length @ 1..) = reader.read(&mut bytes) {
                let _ = lines.send(String::from_utf8_lossy(&bytes[..length]).into_owned());
            }
        });
        let mut text = String::new();
        wait::until("the controller's lines", || {
            text.extend(read.try_iter());
            let end = text.lines().filter(|line| line.contains("applied generation")).count();
            ensure!(end >= 30, "{end} lines about changes: {text}");
            Ok(())
        })?;
        controller.stop()
    });
}

#[test]
fn the_disk_of_the_log_may_be_full() {
    pass("log-full", |directory| {
        let full = std::fs::File::options().write(true).open("/dev/full")?;
        lose(directory, full.into(), || {})?.stop()
    });
}

#[test]
fn check_ends_quietly_when_its_reader_has_read_enough() {
    pass("log-head", |directory| {
        let folder = directory.join("manifests");
        std::fs::create_dir_all(&folder)?;
        for file in 0..2_000 {
            std::fs::write(folder.join(format!("{file}.yaml")), "kind: [")?;
        }
        for arguments in [vec!["check"], vec!["--version"], vec!["man"]] {
            let (reader, writer) = std::io::pipe()?;
            drop(reader);
            let mut command = Command::new(oxigress_tests::dist::oxigress()?);
            command.args(&arguments).stdout(writer);
            if arguments == ["check"] {
                command.arg(&folder);
            }
            let output =
                command.stderr(std::process::Stdio::piped()).spawn()?.wait_with_output()?;
            ensure!(output.status.code().is_some_and(|code| code < 2), "{:?}", output.status);
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            ensure!(said.is_empty(), "{arguments:?}: {said}");
        }
        Ok(())
    });
}

#[test]
fn a_name_forges_no_line_and_turns_none_round() {
    pass("log-forged", |directory| {
        let mut controller = Controller::start(directory, 1, &[])?;
        let name = "a\nZ ERROR forged\u{1b}[2J\u{202e}\u{2028}.yaml";
        controller.serve(name, "kind: [")?;
        let object = "apiVersion: networking.k8s.io/v1\nkind: Ingress\n\
                      metadata: {name: \"b\\nZ ERROR forged\\u202e\", namespace: default}\nspec: {}\n";
        controller.serve("b.yaml", object)?;
        controller.remove(name)?;
        let log = controller.error_log();
        let forged: Vec<_> = log.lines().filter(|line| line.starts_with("Z ERROR")).collect();
        ensure!(forged.is_empty() && log.contains("forged"), "{log}");
        ensure!(!log.contains(['\u{1b}', '\u{202e}', '\u{2028}']), "{log}");
        let check = Command::new(oxigress_tests::dist::oxigress()?)
            .args(["check".as_ref(), directory.join("manifests").as_os_str()])
            .output()?;
        let told = String::from_utf8_lossy(&check.stdout).into_owned();
        let is_whole = told.lines().all(|line| !line.starts_with("Z ERROR"));
        ensure!(is_whole && !told.contains('\u{202e}'), "{told}");
        controller.stop()
    });
}
