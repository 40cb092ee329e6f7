//! A lost log costs no request, no process and no change. Nobody forges a line of it.

use anyhow::{Context, Result, ensure};
use oxigress_tests::client::{Address, Request, send};
use oxigress_tests::controller::Controller;
use oxigress_tests::pass;
use oxigress_tests::place::{Directory, free_port};
use oxigress_tests::site::{Plan, Site};
use oxigress_tests::wait::{self, block_on};
use serde_json::json;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
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

/// What stands in the head of each request and answer; its last byte is a control of terminals that do not read UTF-8.
const FORGED: &[u8] = b"\x1b[2Jforged\xe2\x80\xae\xe2\x80\xa8\x9b";

/// Answers each connection with a head that nginx cannot read, and says so.
fn damaged_endpoint() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let port = listener.local_addr()?.port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 4_096]);
            let _ = stream.write_all(&[b"HTTP/1.1 200 OK\r\nX\x01", FORGED, b"\r\n\r\n"].concat());
        }
    });
    Ok(port)
}

#[test]
fn nginx_s_own_lines_repeat_no_controls_of_clients_and_endpoints() {
    pass("log-nginx", |directory| {
        let mut plan = Plan::router(1)?;
        let proxied = free_port()?;
        plan.http_config = format!("server {{ listen 127.0.0.1:{proxied} proxy_protocol; }}");
        let mut site = Site::start(&plan, directory)?;
        let endpoint = json!({"address": "127.0.0.1", "port": damaged_endpoint()?});
        let snapshot = json!({"servers": {"shop.test": {"rules": [{"path": {"prefix": "/"}, "backend": "shop"}]}},
            "backends": {"shop": {}}, "endpoints": {"shop": [endpoint]}});
        let document = json!({"version": 1, "snapshot": snapshot}).to_string();
        let applied = block_on(site.configuration.put(document))?;
        ensure!(applied.status == 200, "{applied}");

        let target = ["/\u{202e}".as_bytes(), b"\x9b"].concat();
        let request =
            [b"GET ", &*target, b" HTTP/1.1\r\nHost: shop.test\r\nReferer: ", FORGED, b"\r\n\r\n"];
        let mut client = TcpStream::connect((Ipv4Addr::LOCALHOST, site.http_port))?;
        client.write_all(&request.concat())?;
        let mut status = [0; 12];
        client.read_exact(&mut status)?;
        ensure!(&status == b"HTTP/1.1 502", "{}", status.escape_ascii());

        // Before there is a server, the line is the listener's.
        let mut stranger = TcpStream::connect((Ipv4Addr::LOCALHOST, proxied))?;
        stranger.write_all(&[FORGED, b"\r\n"].concat())?;
        let _ = stranger.read(&mut [0]);

        let log = std::fs::read(directory.join("error.log"))?;
        let text = String::from_utf8_lossy(&log);
        let line = text.lines().find(|line| line.contains("upstream sent invalid header"));
        let line = line.with_context(|| text.to_string())?;
        let escaped = r"\u{1b}[2Jforged\u{202e}\u{2028}\x9b";
        ensure!(line.contains(&format!("referrer: \"{escaped}\"")), "{line}");
        ensure!(line.contains(r"GET /\u{202e}\x9b HTTP/1.1"), "{line}");
        ensure!(text.contains(&format!("broken header: \"{escaped}")), "{text}");
        let is_control = |byte: &u8| *byte < b' ' && *byte != b'\n' || *byte == 0x9b;
        ensure!(!log.iter().any(is_control) && !text.contains('\u{202e}'), "{text}");
        site.nginx.stop()
    });
}
