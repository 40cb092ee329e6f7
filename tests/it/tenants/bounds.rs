//! What the operator's flags leave to namespaces, and what an edit costs the requests under way.

use anyhow::{Result, ensure};
use oxigress_tests::client::{Address, Request, send};
use oxigress_tests::controller::Controller;
use oxigress_tests::endpoint::Endpoint;
use oxigress_tests::load::{Load, Plan};
use oxigress_tests::manifest::service;
use oxigress_tests::pass;
use oxigress_tests::place::Directory;
use oxigress_tests::wait::{block_on, until};

fn ingress(namespace: &str, name: &str, service: &str, paths: usize) -> String {
    let path = |number: usize| {
        let path =
            if number == 0 { "/".into() } else { format!("/{number}/{}", "long".repeat(40)) };
        format!(
            "{{ path: {path}, pathType: Prefix, backend: {{ service: {{ name: {service}, port: {{ number: 80 }} }} }} }}"
        )
    };
    let paths: Vec<_> = (0..paths).map(path).collect();
    format!(
        "---\napiVersion: networking.k8s.io/v1\nkind: Ingress\n\
         metadata: {{ name: {name}, namespace: {namespace}, annotations: {{ kubernetes.io/ingress.class: nginx }} }}\n\
         spec: {{ rules: [{{ host: {name}.test, http: {{ paths: [{}] }} }}] }}\n",
        paths.join(", ")
    )
}

/// Whether an endpoint on a loopback address is asked by a product with these flags, and its log.
fn is_asked(directory: &Directory, flags: &[&str]) -> Result<(bool, String)> {
    let endpoint = Endpoint::start("shop")?;
    let flags: Vec<_> = flags.iter().map(|flag| (*flag).to_owned()).collect();
    let mut controller = Controller::start(directory, 1, &flags)?;
    let text = ingress("default", "shop", "shop", 1) + &service("shop", endpoint.address.port());
    controller.serve("shop.yaml", &text)?;
    let http = Address::http(controller.http_port);
    let answer = block_on(send(&http, &Request::get("shop.test", "/")))?;
    ensure!((answer.status == 200) == answer.endpoint().is_some(), "{answer:?}");
    ensure!([200, 502, 503].contains(&answer.status), "{answer:?}");
    let log = controller.error_log();
    controller.stop()?;
    Ok((answer.status == 200, log))
}

#[test]
fn a_folder_names_loopback_endpoints_unless_a_flag_denies_them() {
    let cases: [(&str, &[&str], bool); 3] = [
        ("destinations-default", &[], true),
        ("destinations-loopback", &["--allow-loopback-destinations=false"], false),
        ("destinations-denied", &["--deny-destinations=127.0.0.0/8"], false),
    ];
    for (case, flags, expected) in cases {
        pass(case, |directory| {
            let (is_asked, log) = is_asked(directory, flags)?;
            ensure!(is_asked == expected, "{flags:?}: {log}");
            ensure!(is_asked || log.contains("127.0.0.1"), "it is not named: {log}");
            Ok(())
        });
    }
}

/// A namespace over its limit loses what is beyond it, and another one nothing.
#[test]
fn a_namespace_has_so_many_bytes_and_others_have_theirs() {
    pass("namespace-bytes", |directory| {
        const HOSTS: usize = 300;
        let endpoint = Endpoint::start("shop")?;
        let flags = ["--namespace-bytes-max=1m".to_owned()];
        let mut controller = Controller::start(directory, 1, &flags)?;
        let large = |number: usize| ingress("large", &format!("large-{number}"), "shop", 20);
        let services = service("shop", endpoint.address.port());
        let of = |namespace: &str| {
            services.replace("namespace: default", &format!("namespace: {namespace}"))
        };
        let all: String = (0..HOSTS).map(large).collect();
        controller.serve("large.yaml", &(all + &of("large")))?;
        controller.serve("small.yaml", &(ingress("small", "small", "shop", 20) + &of("small")))?;
        let http = Address::http(controller.http_port);
        let status = |host: &str| -> Result<u16> {
            Ok(block_on(send(&http, &Request::get(host, "/")))?.status)
        };
        ensure!(status("small.test")? == 200);
        let large = (0..HOSTS).map(|number| status(&format!("large-{number}.test")));
        let large = large.collect::<Result<Vec<_>>>()?;
        let served = large.iter().filter(|status| **status == 200).count();
        let closed = large.iter().filter(|status| **status == 503).count();
        ensure!(served > 5 && closed > 5 && served + closed == HOSTS, "{large:?}");
        let log = controller.error_log();
        ensure!(log.contains("namespace large") && !log.contains("namespace small"), "{log}");
        // What it takes away makes room for the rest.
        let fewer: String =
            (0..5).map(|n| ingress("large", &format!("large-{n}"), "shop", 1)).collect();
        controller.serve("large.yaml", &(fewer + &of("large")))?;
        until("the hosts that are left", || {
            ensure!(status("large-0.test")? == 200 && status("large-4.test")? == 200, "closed");
            Ok(())
        })
    });
}

/// Router and balancer see one generation: an Ingress that leads to another Service costs no request an answer.
#[test]
fn an_ingress_moves_between_services_under_load() {
    pass("moving-ingress", |directory| {
        let (a, b) = (Endpoint::start("a")?, Endpoint::start("b")?);
        let mut controller = Controller::start(directory, 2, &[])?;
        let to = |service: &str| ingress("default", "shop", service, 1);
        let services = service("a", a.address.port()) + &service("b", b.address.port());
        controller.serve("services.yaml", &services)?;
        controller.serve("shop.yaml", &to("a"))?;
        let http = Address::http(controller.http_port);
        let load = Load::start(Plan::new(http, vec![Request::get("shop.test", "/")], 4))?;
        load.wait_for(100)?;
        for number in 0..60 {
            controller.serve("shop.yaml", &to(["b", "a"][number % 2]))?;
        }
        load.wait_for(load.answered() + 100)?;
        let report = load.stop();
        println!("{} requests, 60 moves: {:?}", report.answered, report.statuses);
        ensure!(report.failed == 0, "{report:?}");
        ensure!(report.statuses.keys().all(|status| *status == 200), "{:?}", report.statuses);
        let [from_a, from_b] =
            ["a", "b"].map(|name| report.endpoints.get(name).copied().unwrap_or(0));
        ensure!(from_a > 50 && from_b > 50, "{:?}", report.endpoints);
        Ok(())
    });
}
