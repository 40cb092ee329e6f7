//! Many objects, large ones, and objects that never stay the same.

use super::{Attack, short};
use crate::tenants::hostile::ALIVE;
use crate::tenants::hostile::objects::{config_map, served, service, slice};
use crate::tenants::hostile::villain::{OWN, Villain};
use anyhow::{Result, ensure};
use oxigress_tests::client::Request;
use oxigress_tests::wait::until;
use serde_json::json;
use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};

pub const ATTACKS: &[Attack] = &[
    short(2, "ingresses", ingresses),
    short(2, "ingress-flickers", flickers),
    short(2, "paths", paths),
    short(2, "endpoints", endpoints),
    short(2, "endpoints-move", endpoints_move),
    short(2, "events", events),
    short(2, "annotations-large", annotations_large),
    short(2, "networks", networks),
    short(2, "config-maps", config_maps),
    short(2, "snippets", snippets),
];

/// Hundreds of Ingresses at once, and all of them gone at once.
fn ingresses(v: &Villain<'_>) -> Result<()> {
    let all = (0..300).map(|number| v.ingress(number, &v.host_of(number)).object());
    v.apply_settled(all.collect::<Vec<_>>())?;
    v.wait_for(&v.host_of(299), "/", 200)?;
    v.clean()?;
    v.wait_for(&v.host_of(299), "/", 404)
}

/// One that comes and goes all the time.
fn flickers(v: &Villain<'_>) -> Result<()> {
    let ingress = v.ingress("flicker", &v.host()).object();
    for _ in 0..25 {
        v.apply([ingress.clone()])?;
        v.delete("Ingress", &v.name("flicker"))?;
    }
    v.settle()?;
    v.wait_for(&v.host(), "/", 404)
}

/// Thousands of paths in one Ingress.
fn paths(v: &Villain<'_>) -> Result<()> {
    let mut ingress = v.bare("paths").with("ssl-redirect", "false").host(&v.host());
    for number in 0..2_500 {
        let path = format!("/{number}/{}", "long".repeat(25));
        ingress = ingress.path(&path, if number % 2 == 0 { "Prefix" } else { "Exact" }, OWN);
    }
    v.apply_settled([ingress.object()])?;
    v.wait_for(&v.host(), &format!("/2499/{}", "long".repeat(25)), 200)
}

/// Thousands of endpoints that nobody listens at.
fn endpoints(v: &Villain<'_>) -> Result<()> {
    let (name, mut objects) = (v.name("crowd"), Vec::new());
    for part in 0..6_u8 {
        let addresses: Vec<_> = (0..1_000_u16)
            .map(|number| {
                let [high, low] = number.to_be_bytes();
                SocketAddr::from((Ipv4Addr::new(10, 244, 200 + part * 4 + high, low), 9))
            })
            .collect();
        objects.push(slice(&format!("{name}-{part}"), &name, &addresses));
    }
    objects.push(service(&name));
    objects.push(v.bare("crowd").host(&v.host()).path("/", "Prefix", &name).object());
    v.apply_settled(objects)?;
    for _ in 0..20 {
        let status = v.get(&v.host(), "/")?.status;
        ensure!(status == 502, "nobody answered {status}");
    }
    Ok(())
}

/// An endpoint that is somewhere else all the time; the last place is where it is found.
fn endpoints_move(v: &Villain<'_>) -> Result<()> {
    let name = v.name("moving");
    v.apply(served(&name, v.own.address))?;
    v.apply([v.bare("moving").host(&v.host()).path("/", "Prefix", &name).object()])?;
    for number in 1..=100 {
        let away = SocketAddr::from((Ipv4Addr::new(10, 244, 199, number), 9));
        let at = if number == 100 { v.own.address } else { away };
        v.apply([slice(&format!("{name}-0"), &name, &[at])])?;
    }
    v.wait_for(&v.host(), "/", 200)
}

/// Hundreds of refused objects, and one that is refused for another reason each time, while blue makes a mistake and has to be
/// told.
fn events(v: &Villain<'_>) -> Result<()> {
    let bad = |name: usize, value: &str| {
        v.ingress(name, &v.host_of(name)).with("limit-rps", value).object()
    };
    v.apply((0..150).map(|number| bad(number, "many")).collect::<Vec<_>>())?;
    let took = std::thread::scope(|scope| {
        let mistake = scope.spawn(|| v.scene.blue.make_a_mistake());
        for turn in 0..3 {
            v.apply((0..40).map(|number| bad(number, &format!("many{turn}"))).collect::<Vec<_>>())?;
        }
        mistake.join().map_err(|_| anyhow::anyhow!("a panic"))?
    })?;
    println!("beside a flood of Events blue is told of a mistake after {took:.0?}");
    ensure!(took < ALIVE, "blue was told of a mistake after {took:?}");
    Ok(())
}

/// Values as large as the API server takes them.
fn annotations_large(v: &Villain<'_>) -> Result<()> {
    let large = "x".repeat(200_000);
    for (number, name) in ["proxy-body-size", "auth-url", "server-alias"].into_iter().enumerate() {
        let ingress = v.ingress(number, &v.host_of(number)).with(name, &large);
        v.apply([ingress.object()])?;
    }
    v.settle()?;
    let answer = v.get(&v.host_of(1), "/")?;
    ensure!(answer.status == 503, "an auth server that cannot be read: {answer}");
    v.told("Ingress", &v.name(1), &["auth-url"])
}

/// Lists with thousands of networks, on many hosts.
fn networks(v: &Villain<'_>) -> Result<()> {
    let mut list = String::from("10.0.0.0/8");
    for number in 0..3_900 {
        let _ = write!(list, ",{}.{}.{}.0/24", 11 + number / 1_000, number / 250 % 4, number % 250);
    }
    let all = (0..20).map(|number| {
        v.ingress(number, &v.host_of(number)).with("whitelist-source-range", &list).object()
    });
    v.apply_settled(all.collect::<Vec<_>>())?;
    for number in 0..20 {
        let status = v.get(&v.host_of(number), "/")?.status;
        ensure!([403, 503].contains(&status), "{status}");
    }
    Ok(())
}

/// Headers to be set that fill a ConfigMap.
fn config_maps(v: &Villain<'_>) -> Result<()> {
    let mut data = serde_json::Map::new();
    for number in 0..3_000 {
        data.insert(format!("X-Header-{number}"), json!("value".repeat(40)));
    }
    let name = v.name("headers");
    let ingress = v.ingress("headers", &v.host());
    let ingress = ingress.with("custom-headers", &format!("{}/{name}", v.namespace));
    v.apply_settled([config_map(&name, data.into()), ingress.object()])?;
    until("an answer", || v.get(&v.host(), "/").map(drop))
}

/// Configuration for nginx as text: in every place where it was once pasted.
fn snippets(v: &Villain<'_>) -> Result<()> {
    let text = format!("return 200 pwned;\n}}\n}}\n{}", "# x\n".repeat(10_000));
    for (number, name) in [
        "configuration-snippet",
        "server-snippet",
        "auth-snippet",
        "stream-snippet",
        "modsecurity-snippet",
    ]
    .into_iter()
    .enumerate()
    {
        v.apply([v.ingress(number, &v.host_of(number)).with(name, &text).object()])?;
    }
    v.settle()?;
    for number in 0..5 {
        let answer = v.send(&Request::get(&v.host_of(number), "/"))?;
        ensure!(answer.text() != "pwned", "{answer}");
    }
    Ok(())
}
