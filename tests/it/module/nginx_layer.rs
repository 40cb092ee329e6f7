//! The example module of the safe layer, on a real nginx.

use anyhow::{Context, Result, ensure};
use oxigress_tests::client::{Address, Request, send};
use oxigress_tests::dist;
use oxigress_tests::nginx::Nginx;
use oxigress_tests::pass;
use oxigress_tests::place::{Directory, free_port};
use oxigress_tests::wait::block_on;
use std::path::PathBuf;
use std::process::Command;

#[test]
fn the_example_module_serves_as_its_page_says() {
    pass("nginx-layer", serve);
}

fn serve(directory: &Directory) -> Result<()> {
    let (port, module) = (free_port()?, example()?.display().to_string());
    let logs = directory.path().display().to_string();
    let text = format!(
        "daemon off; pid {logs}/nginx.pid; load_module {module};
         events {{}}
         http {{
             access_log off;
             client_body_temp_path {logs}/b; proxy_temp_path {logs}/p; fastcgi_temp_path {logs}/f;
             uwsgi_temp_path {logs}/u; scgi_temp_path {logs}/s;
             server {{
                 listen 127.0.0.1:{port};
                 location / {{ return 200 \"agent $hello_agent\"; }}
                 location /named {{ hello reader; error_page 404 = /; }}
             }}
         }}"
    );
    let _nginx = Nginx::start(directory, &text, 1)?;
    let address = Address::http(port);
    let ask = |path: &str| {
        block_on(send(&address, &Request::get("a.test", path).header("User-Agent", "somebody")))
    };
    let plain = ask("/")?;
    ensure!(plain.status == 200 && plain.text() == "agent somebody", "{plain}");
    ensure!(plain.header("hello").is_none(), "a location without the directive: {plain}");
    let named = ask("/named")?;
    ensure!(named.header("hello").as_deref() == Some("reader"), "{named}");
    Ok(())
}

/// The module, built like the test itself.
fn example() -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo)
        .args(["build", "--quiet", "-p", "oxigress-nginx", "--example", "hello"])
        .current_dir(dist::repository())
        .status()
        .context("cargo runs")?;
    ensure!(built.success(), "the example builds");
    let here = std::env::current_exe()?;
    let profile = here.ancestors().nth(2).context("target/PROFILE/deps/PROGRAM")?;
    let module = profile.join("examples/libhello.so");
    ensure!(module.exists(), "{} is missing", module.display());
    Ok(module)
}
