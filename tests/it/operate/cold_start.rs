//! 100,000 Ingresses are served from cold, also by a zone that has to grow for them.

use anyhow::{Result, ensure};
use oxigress_fuzz::Random;
use oxigress_tests::client::{Address, Request, send};
use oxigress_tests::controller::Controller;
use oxigress_tests::endpoint::Endpoint;
use oxigress_tests::manifest::service;
use oxigress_tests::pass_alone;
use oxigress_tests::wait::block_on;
use std::fmt::Write as _;
use std::fs;
use std::time::{Duration, Instant};

const INGRESSES: usize = 100_000;
const NAMESPACES: usize = 100;
/// Longer than any start that was seen on a busy machine.
const LONGEST: Duration = Duration::from_secs(300);

#[test]
#[ignore = "a minute or two"]
fn soak_100_000_ingresses_are_served_from_cold() {
    for size in ["64m", "8m"] {
        pass_alone(&format!("cold-start-{size}"), |directory| {
            let endpoint = Endpoint::start("shop")?;
            let flags = [format!("--zone-size={size}"), "--zone-size-max=512m".to_owned()];
            let mut controller = Controller::start(directory, 2, &flags)?;
            for namespace in 0..NAMESPACES {
                let text = manifests(namespace, endpoint.address.port());
                controller.write(&format!("n{namespace}.yaml"), &text)?;
            }
            controller.stop()?;
            fs::remove_dir_all(directory.join("run"))?;
            let start = Instant::now();
            controller.start_again(&flags)?;
            let http = Address::http(controller.http_port);
            let status = |number: usize| -> Result<u16> {
                let request = Request::get(&format!("h{number}.test"), "/");
                Ok(block_on(send(&http, &request))?.status)
            };
            for number in [0, INGRESSES - 1] {
                while !status(number).is_ok_and(|status| status == 200) {
                    ensure!(start.elapsed() < LONGEST, "h{number}.test is not served");
                    std::thread::sleep(Duration::from_millis(100));
                }
            }
            let took = start.elapsed().as_secs_f64();
            let mut random = Random::new(1);
            for _ in 0..500 {
                let number = random.below(INGRESSES);
                ensure!(status(number)? == 200, "h{number}.test is not served");
            }
            let zone = controller.status()?;
            println!(
                "zone of {size}: the first and the last host after {took:.1} s, then 500 of 500; {} of {} bytes free",
                zone.free_bytes, zone.capacity_bytes
            );
            Ok(())
        });
    }
}

/// The Ingresses of a namespace, a host each, and its Service.
fn manifests(namespace: usize, port: u16) -> String {
    let mut text =
        service("shop", port).replace("namespace: default", &format!("namespace: n{namespace}"));
    for number in (namespace..INGRESSES).step_by(NAMESPACES) {
        let _ = write!(
            text,
            "---\napiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {{ name: i{number}, namespace: n{namespace} }}\n\
             spec:\n  ingressClassName: nginx\n  rules:\n  - host: h{number}.test\n    http:\n      paths:\n      - {{ path: /, \
             pathType: Prefix, backend: {{ service: {{ name: shop, port: {{ number: 80 }} }} }} }}\n"
        );
    }
    text
}
