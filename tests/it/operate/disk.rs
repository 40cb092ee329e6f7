//! A full disk: under nginx's temporary files a request that needs one fails and all else goes on; under the
//! journal, nothing fails, and the journal stays as it was. Needs root, to mount the disk.

use anyhow::{Context, Result, ensure};
use oxigress_tests::client::{Address, Request, Response, send};
use oxigress_tests::controller::Controller;
use oxigress_tests::endpoint::{Behaviour, Endpoint};
use oxigress_tests::load::{Load, Plan as LoadPlan};
use oxigress_tests::pass;
use oxigress_tests::place::Directory;
use oxigress_tests::shop::Shop;
use oxigress_tests::site::{Plan, Site};
use oxigress_tests::small_disk::SmallDisk;
use oxigress_tests::wait::{block_on, runtime, until};
use serde_json::{Value, json};
use std::fs;
use std::net::Ipv4Addr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;

/// More than nginx keeps of a body in memory, less than it takes.
const UPLOAD: usize = 300 * 1024;
/// More than fits into nginx's buffers and the sockets'.
const DOWNLOAD: usize = 16 << 20;

#[test]
fn a_full_disk_fails_only_what_needs_it() {
    pass("disk", fill_the_disk);
}

#[test]
fn a_journal_on_a_full_disk_stays_as_it_was() {
    pass("disk", fill_the_journal);
}

#[test]
fn bodies_of_clients_fill_their_own_place_and_not_the_journal_s() {
    pass("disk", fill_with_bodies);
}

fn fill_the_disk(directory: &Directory) -> Result<()> {
    let disk = SmallDisk::mount(directory.join("disk"), 2 << 20)?;
    let mut plan = Plan::router(2)?;
    let path = disk.path().display();
    plan.http_config = format!(
        "client_body_temp_path {path}/body; proxy_temp_path {path}/proxy; keepalive_requests 1000000;"
    );
    let mut site = Site::start(&plan, directory)?;
    let pids = site.nginx.worker_pids();
    let small = [Endpoint::start("0")?, Endpoint::start("1")?];
    let large = Endpoint::with("large", Behaviour::Large(DOWNLOAD), Ipv4Addr::LOCALHOST.into())?;
    let rule = |backend: &str| json!({"rules": [{"path": {"prefix": "/"}, "backend": backend}]});
    let whole = |small: &Endpoint| {
        json!({"version": 1, "snapshot": {
            "servers": {"shop.test": rule("shop"), "large.test": rule("large")},
            "backends": {"shop": {}, "large": {}},
            "endpoints": {"shop": [small.native()], "large": [large.native()]}}})
    };
    put(&site, whole(&small[0]))?;
    ensure!(upload(&site)?.status == 200, "an upload while there is room");

    let filler = disk.fill("filler")?;
    let load = Load::start(LoadPlan::new(site.http(), vec![Request::get("shop.test", "/")], 4))?;
    for number in 0..3 {
        let refused = upload(&site)?;
        ensure!(refused.status == 500, "{refused}");
        let broken = block_on(download_slowly(site.http_port))?;
        ensure!(broken < DOWNLOAD, "an answer that needs the disk came whole");
        // A body that fits into memory needs no disk, nor does a configuration write.
        let endpoint = &small[number % 2];
        put(&site, whole(endpoint))?;
        let post = Request::new("POST", "shop.test", "/").body("x".repeat(4096));
        let response = block_on(send(&site.http(), &post))?;
        ensure!(response.endpoint().as_ref() == Some(&endpoint.name), "{response}");
    }
    load.wait_for(100)?;
    let report = load.stop();
    ensure!(report.failures.is_empty(), "under load: {:?}", report.failures);

    fs::remove_file(filler)?;
    until("uploads to work again", || {
        let response = upload(&site)?;
        ensure!(response.status == 200, "{response}");
        Ok(())
    })?;
    ensure!(site.nginx.worker_pids() == pids, "a worker was replaced");
    site.nginx.stop()?;
    let log = site.nginx.error_log();
    ensure!(log.contains("No space left on device"), "the disk was never full");
    let is_bad = |line: &&str| {
        ["[alert]", "[crit]", "[emerg]", "panicked"].iter().any(|bad| line.contains(bad))
            && !line.contains("No space left on device")
            // What nginx says when a write to a temporary file was short.
            && !line.contains("has written only")
    };
    match log.lines().find(is_bad) {
        Some(line) => anyhow::bail!("in the error log: {line}"),
        None => Ok(()),
    }
}

fn fill_the_journal(directory: &Directory) -> Result<()> {
    let disk = SmallDisk::mount(directory.join("disk"), 1 << 20)?;
    let workers = 2;
    let mut plan = Plan::router(workers)?;
    plan.main_config = format!("user root;\ningress_journal {}/journal;\n", disk.path().display());
    let mut site = Site::start(&plan, directory)?;
    let endpoints = [Endpoint::start("first")?, Endpoint::start("second")?];
    let served = |site: &Site| -> Result<Option<String>> {
        Ok(block_on(send(&site.http(), &Request::get("shop.test", "/")))?.endpoint())
    };
    let whole = |endpoint: &Endpoint| {
        json!({"version": 1, "snapshot": {
            "servers": {"shop.test": {"rules": [{"path": {"prefix": "/"}, "backend": "shop"}]}},
            "backends": {"shop": {}}, "endpoints": {"shop": [endpoint.native()]}}})
    };
    put(&site, whole(&endpoints[0]))?;
    site.wait_for_journal()?;
    let filler = disk.fill("filler")?;
    // Longer than what is left of the last page of the file.
    let many: Vec<_> = (1..=2_000)
        .map(|n| json!({"address": format!("127.1.{}.1", n % 250), "port": n}))
        .collect();
    let mut next = whole(&endpoints[1]);
    next["snapshot"]["endpoints"]["many"] = json!(many);
    next["snapshot"]["backends"]["many"] = json!({});
    put(&site, next)?;
    until("a line in the error log", || {
        ensure!(site.nginx.error_log().contains("No space left"), "{}", site.nginx.error_log());
        Ok(())
    })?;
    ensure!(served(&site)?.as_deref() == Some("second"), "a full disk changes nothing");
    site.kill_and_start(directory, workers)?;
    ensure!(served(&site)?.as_deref() == Some("first"), "what was written is used");

    put(&site, whole(&endpoints[1]))?;
    fs::remove_file(filler)?;
    site.wait_for_journal()?;
    site.kill_and_start(directory, workers)?;
    ensure!(served(&site)?.as_deref() == Some("second"), "what was written later is used");
    site.nginx.check_error_log()
}

fn put(site: &Site, whole: Value) -> Result<()> {
    let response = block_on(site.configuration.put(whole.to_string()))?;
    ensure!(response.status == 200, "{response}");
    Ok(())
}

/// The product with `--runtime-dir` and `--temp-dir` on small disks of their own, while clients upload more than both
/// together hold.
fn fill_with_bodies(directory: &Directory) -> Result<()> {
    let run = SmallDisk::mount(directory.join("run"), 4 << 20)?;
    let temp = SmallDisk::mount(directory.join("temp"), 2 << 20)?;
    let flags = ["--journal=on".into(), format!("--temp-dir={}", temp.path().display())];
    let controller = Controller::start(directory, 2, &flags)?;
    let mut shop = Shop::new(controller, &["held", "first", "second"], &[])?;
    shop.write("held.yaml", "$SERVICE(held: held)\n$INGRESS(held: held.test/ held)")?;
    shop.write("shop.yaml", "$SERVICE(shop: first)\n$INGRESS(shop: shop.test/ shop)")?;
    shop.behave("held", Behaviour::Hold)?;
    let address = Address::http(shop.controller.http_port);
    // 9 MB, which the endpoint lets wait.
    let uploads: Vec<_> = (0..30)
        .map(|_| {
            let request = Request::new("POST", "held.test", "/").body("x".repeat(UPLOAD));
            let address = address.clone();
            runtime().spawn(async move { send(&address, &request).await })
        })
        .collect();
    until("a request for which there is no room", || {
        ensure!(uploads.iter().any(tokio::task::JoinHandle::is_finished));
        Ok(())
    })?;
    // Requests, changes and the journal go on.
    shop.serves("shop.test", "/", "first")?;
    shop.write("shop.yaml", "$SERVICE(shop: second)\n$INGRESS(shop: shop.test/ shop)")?;
    shop.serves("shop.test", "/", "second")?;
    shop.controller.journaled()?;
    ensure!(!run.path().join("worker/client-body").exists(), "bodies lie beside the journal");
    shop.behave("held", Behaviour::Ok)?;
    let mut statuses = Vec::new();
    for upload in uploads {
        statuses.push(block_on(upload)??.status);
    }
    ensure!(statuses.contains(&200) && statuses.contains(&500), "{statuses:?}");
    ensure!(statuses.iter().all(|status| [200, 500].contains(status)), "{statuses:?}");
    let log = shop.controller.error_log();
    ensure!(!log.contains("journal"), "{log}");
    Ok(())
}

fn upload(site: &Site) -> Result<Response> {
    let request = Request::new("POST", "shop.test", "/").body("x".repeat(UPLOAD));
    block_on(send(&site.http(), &request))
}

/// Reads nothing until nginx has had to put the answer somewhere; the bytes that come then.
async fn download_slowly(port: u16) -> Result<usize> {
    let socket = TcpSocket::new_v4()?;
    socket.set_recv_buffer_size(4096)?;
    let mut stream = socket.connect((Ipv4Addr::LOCALHOST, port).into()).await?;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: large.test\r\nConnection: close\r\n\r\n").await?;
    let (mut total, mut piece) = (0, vec![0; 65536]);
    loop {
        let read = tokio::time::timeout(oxigress_tests::client::TIMEOUT, stream.read(&mut piece));
        match read.await.context("neither more nor an end")? {
            Ok(0) | Err(_) => return Ok(total),
            Ok(count) => total += count,
        }
        // Slower than the endpoint sends: the rest goes to the disk. Nothing waits on it.
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
}
