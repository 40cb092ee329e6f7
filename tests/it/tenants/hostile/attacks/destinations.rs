//! Connections to where none may lead: metadata, loopback, the product itself, and round in circles.
//! That [`crate::tenants::hostile::scene::Scene::metadata`] and `inside` were never connected to is looked at in the end, too.

use super::{Attack, short};
use crate::tenants::hostile::objects::{external, served};
use crate::tenants::hostile::scene::{METADATA, POD};
use crate::tenants::hostile::villain::{Server, Villain};
use anyhow::{Result, ensure};
use oxigress_tests::client::tcp;
use oxigress_tests::fake_dns::Reply;
use std::net::IpAddr;
use std::time::{Duration, Instant};
use tokio::io::copy_bidirectional;

pub const ATTACKS: &[Attack] = &[
    short(5, "external-metadata", external_metadata),
    short(5, "external-loopback", external_loopback),
    short(5, "auth-url-inside", auth_url_inside),
    short(5, "mirror-inside", mirror_inside),
    short(5, "rebinding", rebinding),
    short(5, "own-listeners", own_listeners),
    short(5, "own-name", own_name),
    short(5, "circle", circle),
    short(5, "circle-auth", circle_auth),
    short(5, "circle-mirror", circle_mirror),
];

/// Nobody who may not be was connected to.
fn nobody_was_reached(v: &Villain<'_>) -> Result<()> {
    for server in [&v.scene.metadata, &v.scene.inside] {
        ensure!(server.connections() == 0, "{} was connected to", server.name);
    }
    Ok(())
}

/// The name server says these addresses of a name of this attack.
fn say(v: &Villain<'_>, name: &str, addresses: &[&str]) -> Result<String> {
    let name = format!("{name}.{}.{}.out.test", v.attack, v.namespace);
    let addresses =
        addresses.iter().map(|text| text.parse()).collect::<Result<Vec<IpAddr>, _>>()?;
    v.scene.dns.set(&name, Reply::Addresses(addresses, 1));
    Ok(name)
}

/// Services that are other names: none leads anywhere.
fn lead_nowhere(v: &Villain<'_>, names: &[String], port: u16) -> Result<()> {
    for (number, name) in names.iter().enumerate() {
        let service = v.name(number);
        let ingress = v.bare(number).host(&v.host_of(number)).path("/", "Prefix", &service);
        v.apply([external(&service, name, port), ingress.object()])?;
    }
    v.settle()?;
    for (number, name) in names.iter().enumerate() {
        for _ in 0..3 {
            let answer = v.get(&v.host_of(number), "/")?;
            ensure!([502, 503].contains(&answer.status), "{name}: {answer}");
        }
    }
    nobody_was_reached(v)
}

/// The metadata service, by its address and by names.
fn external_metadata(v: &Villain<'_>) -> Result<()> {
    let names = [
        METADATA.to_string(),
        say(v, "plain", &["169.254.169.254"])?,
        say(v, "mapped", &["::ffff:169.254.169.254"])?,
        say(v, "nat64", &["64:ff9b::a9fe:a9fe"])?,
        say(v, "six-to-four", &["2002:a9fe:a9fe::1"])?,
        say(v, "link", &["fe80::1"])?,
        say(v, "both", &["169.254.169.254", "127.0.0.1"])?,
    ];
    lead_nowhere(v, &names, 80)
}

fn external_loopback(v: &Villain<'_>) -> Result<()> {
    let names = [
        "127.0.0.1".to_owned(),
        "0.0.0.0".into(),
        "localhost".into(),
        say(v, "plain", &["127.0.0.1"])?,
        say(v, "other", &["127.9.9.9"])?,
        say(v, "none", &["0.0.0.0"])?,
        say(v, "six", &["::1"])?,
        say(v, "unspecified", &["::"])?,
        say(v, "mapped", &["::ffff:127.0.0.1"])?,
    ];
    lead_nowhere(v, &names, v.scene.inside.address.port())
}

/// Addresses that no server has, as URLs.
fn urls(v: &Villain<'_>) -> Result<Vec<String>> {
    let port = v.scene.inside.address.port();
    let name = say(v, "url", &["169.254.169.254", "127.0.0.1"])?;
    Ok(vec![
        "http://169.254.169.254/latest/meta-data/".into(),
        format!("http://127.0.0.1:{port}/"),
        format!("http://[::1]:{port}/"),
        format!("http://[::ffff:127.0.0.1]:{port}/"),
        format!("http://2130706433:{port}/"),
        format!("http://0x7f.1:{port}/"),
        format!("http://0:{port}/"),
        format!("http://{name}:{port}/"),
        format!("http://{name}/"),
        format!("http://x@127.0.0.1:{port}/"),
    ])
}

/// Auth servers there: their locations stay closed.
fn auth_url_inside(v: &Villain<'_>) -> Result<()> {
    let urls = urls(v)?;
    for (number, url) in urls.iter().enumerate() {
        v.apply([v.ingress(number, &v.host_of(number)).with("auth-url", url).object()])?;
    }
    v.settle()?;
    for (number, url) in urls.iter().enumerate() {
        let answer = v.get(&v.host_of(number), "/")?;
        ensure!(answer.endpoint().is_none(), "{url}: {answer}");
    }
    nobody_was_reached(v)
}

fn mirror_inside(v: &Villain<'_>) -> Result<()> {
    let urls = urls(v)?;
    for (number, url) in urls.iter().enumerate() {
        v.apply([v.ingress(number, &v.host_of(number)).with("mirror-target", url).object()])?;
    }
    v.settle()?;
    for (number, url) in urls.iter().enumerate() {
        let status = v.get(&v.host_of(number), "/")?.status;
        ensure!([200, 502, 503].contains(&status), "{url}: {status}");
    }
    nobody_was_reached(v)
}

/// A name that is a pod's when it is looked at and loopback when it is connected to.
fn rebinding(v: &Villain<'_>) -> Result<()> {
    let good = v.own.address.ip().to_string();
    let name = say(v, "rebinding", &[&good])?;
    let service = v.name("rebinding");
    let ingress = v.bare("rebinding").host(&v.host()).path("/", "Prefix", &service);
    v.apply_settled([external(&service, &name, v.scene.inside.address.port()), ingress.object()])?;
    let start = Instant::now();
    for turn in 0.. {
        say(v, "rebinding", &[if turn % 2 == 0 { "127.0.0.1" } else { &good }])?;
        for _ in 0..10 {
            let answer = v.get(&v.host(), "/")?;
            ensure!(answer.endpoint().as_deref() != Some("inside"), "{answer}");
            std::thread::sleep(Duration::from_millis(20));
        }
        if start.elapsed() > Duration::from_millis(2_500) {
            break;
        }
    }
    nobody_was_reached(v)
}

/// The product's own ports at its own address, as endpoints.
fn own_listeners(v: &Villain<'_>) -> Result<()> {
    let controller = &v.scene.controller;
    let ports =
        [controller.http_port, controller.https_port, controller.health_port, v.scene.webhook_port];
    for (number, port) in ports.into_iter().enumerate() {
        for protocol in ["HTTP", "HTTPS"] {
            let name = v.name(format!("{number}-{}", protocol.to_lowercase()));
            let host = v.host_of(format!("{number}{}", protocol.to_lowercase()));
            v.apply(served(&name, (POD, port).into()))?;
            let ingress = v.bare(format!("{number}-{}", protocol.to_lowercase()));
            let ingress = ingress.with("backend-protocol", protocol).host(&host);
            v.apply([ingress.path("/", "Prefix", &name).object()])?;
        }
    }
    v.settle()?;
    for (number, port) in ports.iter().enumerate() {
        for protocol in ["http", "https"] {
            for path in ["/metrics", "/healthz", "/"] {
                let answer = v.get(&v.host_of(format!("{number}{protocol}")), path)?;
                ensure!([502, 503].contains(&answer.status), "{}{path}: {answer}", port);
            }
        }
    }
    Ok(())
}

/// The same by a name.
fn own_name(v: &Villain<'_>) -> Result<()> {
    let name = say(v, "own", &[&POD.to_string()])?;
    lead_nowhere(v, std::slice::from_ref(&name), v.scene.controller.http_port)?;
    let service = v.name("health");
    let ingress = v.bare("health").host(&v.host()).path("/", "Prefix", &service);
    v.apply_settled([external(&service, &name, v.scene.controller.health_port), ingress.object()])?;
    let answer = v.get(&v.host(), "/metrics")?;
    ensure!([502, 503].contains(&answer.status), "{answer}");
    Ok(())
}

/// A pod that hands everything back to the product.
fn back(v: &Villain<'_>) -> Result<Server> {
    let to = v.http();
    v.server(move |mut stream| async move {
        copy_bidirectional(&mut stream, &mut tcp(to).await?).await?;
        Ok(())
    })
}

/// Requests that come back come back three times.
fn circle(v: &Villain<'_>) -> Result<()> {
    let server = back(v)?;
    let host = v.serve_at(server.address, |ingress| ingress)?;
    for count in 1..=10 {
        let answer = v.get(&host, "/")?;
        ensure!(answer.status == 508, "{answer}");
        ensure!(server.connections() <= count * 4, "{} connections", server.connections());
    }
    Ok(())
}

/// An auth server that is the host itself.
fn circle_auth(v: &Villain<'_>) -> Result<()> {
    let server = back(v)?;
    let name = say(v, "self", &[&server.address.ip().to_string()])?;
    let url = format!("http://{name}:{}/", server.address.port());
    // The name is a host here, too: each question is a request that is asked about.
    v.apply_settled([v.ingress("auth", &name).with("auth-url", &url).object()])?;
    for count in 1..=10 {
        let answer = v.get(&name, "/")?;
        ensure!(answer.endpoint().is_none(), "{answer}");
        ensure!(server.connections() <= count * 6, "{} connections", server.connections());
    }
    Ok(())
}

/// A mirror that is the host itself: copies of copies come to an end.
fn circle_mirror(v: &Villain<'_>) -> Result<()> {
    let server = back(v)?;
    let name = say(v, "self", &[&server.address.ip().to_string()])?;
    let url = format!("http://{name}:{}/", server.address.port());
    v.apply_settled([v.ingress("mirror", &name).with("mirror-target", &url).object()])?;
    for _ in 0..10 {
        v.get(&name, "/")?;
    }
    std::thread::sleep(Duration::from_millis(500));
    let count = server.connections();
    ensure!(count <= 60, "{count} connections for 10 requests");
    Ok(())
}
