//! What stands in nginx.conf.

use super::*;

/// What stands in `stream`, and what nginx says; empty: nothing.
const CONFIGURATIONS: [(&str, &str); 14] = [
    ("upstream u { server 0.0.0.1:1; ingress_balancer; } server { listen 1; proxy_pass u; }", ""),
    ("upstream u { server 0.0.0.1:1; ingress_balancer $server_port; }", ""),
    (
        "upstream u { server 0.0.0.1:1; ingress_balancer name; }",
        "invalid variable name \"name\": it begins with \"$\" in",
    ),
    ("upstream u { server 0.0.0.1:1; ingress_balancer $nowhere; }", "unknown \"nowhere\" variable"),
    (
        "upstream u { server 0.0.0.1:1; ingress_balancer; ingress_balancer; }",
        "\"ingress_balancer\" must stand before any other balancing directive in",
    ),
    (
        "upstream u { server 0.0.0.1:1; least_conn; ingress_balancer; }",
        "\"ingress_balancer\" must stand before any other balancing directive in",
    ),
    (
        "upstream u { zone z 1m; server 0.0.0.1:1; ingress_balancer; }",
        "\"ingress_balancer\" has its own shared memory: remove \"zone\" from the upstream",
    ),
    ("upstream u { ingress_balancer; }", "no servers are inside upstream"),
    (
        "server { listen 1; ssl_preread on; proxy_pass 127.0.0.1:1; ingress_passthrough; pass 127.0.0.1:2; }",
        "",
    ),
    (
        "server { listen 1; ssl_preread on; pass 127.0.0.1:2; ingress_passthrough; proxy_pass 127.0.0.1:1; }",
        "\"ingress_passthrough\" stands behind the \"proxy_pass\" of its server in",
    ),
    (
        "server { listen 1; ssl_preread on; proxy_pass 127.0.0.1:1; ingress_passthrough; }",
        "needs a \"pass\" behind it",
    ),
    (
        "server { listen 1; ssl_preread on; proxy_pass 127.0.0.1:1; pass 127.0.0.1:2; ingress_passthrough; }",
        "needs a \"pass\" behind it",
    ),
    (
        "server { listen 1; proxy_pass 127.0.0.1:1; ingress_passthrough; pass 127.0.0.1:2; }",
        "needs \"ssl_preread on\"",
    ),
    (
        "server { listen 1; ssl_preread on; proxy_pass 127.0.0.1:1; ingress_passthrough; \
         ingress_passthrough; pass 127.0.0.1:2; }",
        "\"ingress_passthrough\" directive is duplicate in",
    ),
];

#[test]
fn what_cannot_work_is_refused_with_the_remedy() {
    pass("stream-configurations", |directory| {
        let zone = "ingress_zone ingress 1m;";
        for (stream, expected) in CONFIGURATIONS {
            said(directory, zone, stream, expected)?;
        }
        let balancer = "upstream u { server 0.0.0.1:1; ingress_balancer; }";
        let needs = "\"ingress_balancer\" needs an \"ingress_zone NAME SIZE;\" before stream";
        said(directory, "", balancer, needs)?;
        let passthrough =
            "server { listen 1; ssl_preread on; proxy_pass 127.0.0.1:1; ingress_passthrough; }";
        let needs = "\"ingress_passthrough\" needs an \"ingress_zone NAME SIZE;\" before stream";
        said(directory, "", passthrough, needs)
    });
}

fn said(directory: &Directory, zone: &str, stream: &str, expected: &str) -> Result<()> {
    let conf = directory.join("test.conf");
    let module = dist::module()?;
    let text = format!(
        "load_module {}; {zone} pid nginx.pid; events {{}} stream {{ {stream} }}",
        module.display()
    );
    fs::write(&conf, text)?;
    let mut command = Command::new(dist::nginx()?);
    command.arg("-t").arg("-p").arg(directory.path()).arg("-c").arg(&conf).args(["-e", "stderr"]);
    let output = command.output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success() == expected.is_empty(), "{stream}\n{said}");
    ensure!(said.contains(expected), "{stream}\n{said}");
    Ok(())
}

/// nginx opens modules with `RTLD_NOW`: one such symbol, and an nginx whose stream is a module of its own, or that has none,
/// could not load this one.
#[test]
fn the_module_needs_no_symbol_of_stream_to_be_loaded() {
    pass("stream-symbols", |_| {
        let output =
            Command::new("nm").args(["-D", "--undefined-only"]).arg(dist::module()?).output()?;
        let symbols = String::from_utf8(output.stdout)?;
        ensure!(symbols.contains(" ngx_http_"), "nm lists what is needed: {symbols}");
        let found: Vec<_> = symbols.lines().filter(|line| line.contains("ngx_stream_")).collect();
        ensure!(found.is_empty(), "{found:?}");
        Ok(())
    });
}
