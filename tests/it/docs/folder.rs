//! The whole examples of the pages: what they show is checked, explained and served as it stands, but for its port.

use super::page::Page;
use anyhow::{Context, Result, ensure};
use oxigress_tests::client::{Address, Request, send};
use oxigress_tests::controller::Controller;
use oxigress_tests::place::{Directory, free_port};
use oxigress_tests::process::Process;
use oxigress_tests::wait::{block_on, until};
use oxigress_tests::{dist, pass};
use rustix::process::Signal;
use std::fs;
use std::path::Path;
use std::process::Command;

#[test]
fn the_whole_example_of_a_folder_is_served() {
    pass("docs-folder", |directory| {
        serve(directory, "docs/folder.md", "web.example.com", "4 objects (1 Ingress): 4 served")
    });
}

#[test]
fn the_whole_example_of_the_gateway_api_is_served() {
    pass("docs-gateway", |directory| {
        serve(directory, "docs/gateway-api.md", "shop.example.com", "5 objects (1 route): 5 served")
    });
}

fn serve(directory: &Directory, page: &str, host: &str, counted: &str) -> Result<()> {
    let page = Page::read(Path::new(page))?;
    let blocks = page.blocks();
    let example = blocks.iter().find(|block| block.language == "yaml").context("an example")?;
    ensure!(example.text.contains("port: 9001"), "{}", example.text);
    let port = free_port()?;
    let text = example.text.replace("port: 9001", &format!("port: {port}"));
    let file = directory.join("example.yaml");
    fs::write(&file, &text)?;
    let oxigress = dist::oxigress()?;
    let checked = Command::new(&oxigress).arg("check").arg(&file).output()?;
    let said = String::from_utf8_lossy(&checked.stdout).into_owned();
    ensure!(checked.status.success() && said.starts_with(counted), "{checked:?}");
    ensure!(!said.contains("assumed"), "nothing is missing: {said}");

    let mut echo = Command::new(&oxigress);
    echo.arg("echo").arg(format!("--listen=127.0.0.1:{port}")).arg("--name=sample");
    let mut echo = Process::start("echo", &mut echo, &directory.join("echo.log"))?;
    let mut controller = Controller::start(directory, 1, &[])?;
    controller.serve("example.yaml", &text)?;
    let http = Address::http(controller.http_port);
    until("the example to be served", || {
        let answer = block_on(send(&http, &Request::get(host, "/")))?;
        ensure!(answer.status == 200 && answer.text().contains("sample"), "{answer}");
        Ok(())
    })?;
    echo.stop(Signal::TERM)?;
    Ok(())
}
