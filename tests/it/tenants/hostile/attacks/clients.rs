//! Clients that hold connections, send slowly, much or nonsense, and never read.

mod frames;

use super::{Attack, long, short};
use crate::tenants::hostile::blue::{SECURE, SHOP};
use crate::tenants::hostile::objects::served;
use crate::tenants::hostile::scene::POD;
use crate::tenants::hostile::villain::{
    OWN, Villain, connect_from, head, next_client, next_client_v6, tls,
};
use anyhow::{Context, Result, ensure};
use oxigress_tests::client::{Address, Request, send, tcp};
use oxigress_tests::protocol::http2::Client;
use serde_json::json;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::sleep;

use frames::{h2_frames, h2_resets, heads_large};

pub const ATTACKS: &[Attack] = &[
    short(2, "health-idle", health_idle),
    short(2, "health-slow", health_slow),
    short(2, "webhook-idle", webhook_idle),
    short(2, "webhook-bodies", webhook_bodies),
    short(2, "limits-v6", limits_v6),
    short(2, "limits-many", limits_many),
    short(2, "bodies-large", bodies_large),
    short(2, "bodies-slow", bodies_slow),
    short(2, "heads-slow", heads_slow),
    short(2, "heads-large", heads_large),
    short(2, "h2-resets", h2_resets),
    short(2, "h2-frames", h2_frames),
    short(2, "handshakes", handshakes),
    short(2, "garbage", garbage),
    short(2, "never-reads", never_reads),
    short(2, "pipelines", pipelines),
    short(2, "upgrades-idle", upgrades_idle),
    long(2, "connections-many", connections_many),
    short(2, "metrics-flood", metrics_flood),
    short(2, "webhook-reviews", webhook_reviews),
    short(2, "passthrough-silent", passthrough_silent),
];

/// How long connections are held.
const HELD: Duration = Duration::from_millis(1_500);

/// So many connections to a port of the product, half of them from addresses of their own, that say nothing.
async fn idle(to: SocketAddr, count: usize) -> Vec<TcpStream> {
    let mut all = Vec::new();
    for number in 0..count {
        let connected = match number % 2 {
            0 => tcp(to).await,
            _ => connect_from(next_client(), to).await,
        };
        all.extend(connected);
    }
    all
}

fn pod(port: u16) -> SocketAddr {
    (POD, port).into()
}

/// The product says that it is well.
async fn is_well(port: u16) -> Result<()> {
    let answer = send(&Address::Tcp(pod(port)), &Request::get("pod", "/healthz")).await?;
    ensure!(answer.status == 200, "{answer}");
    Ok(())
}

/// Hundreds of connections to the health port, and a probe that has to get through.
fn health_idle(v: &Villain<'_>) -> Result<()> {
    let port = v.scene.controller.health_port;
    v.run(async {
        let held = idle(pod(port), 600).await;
        for _ in 0..5 {
            is_well(port).await?;
            sleep(HELD / 5).await;
        }
        ensure!(held.len() > 500, "{} connections", held.len());
        Ok(())
    })
}

/// Heads that never end on the health port.
fn health_slow(v: &Villain<'_>) -> Result<()> {
    let port = v.scene.controller.health_port;
    v.run(async {
        let mut held = idle(pod(port), 200).await;
        for turn in 0..10 {
            for stream in &mut held {
                let _ = stream
                    .write_all(if turn == 0 { b"GET /metrics HTTP/1.1\r\nX: " } else { b"x" })
                    .await;
            }
            is_well(port).await?;
            sleep(HELD / 10).await;
        }
        Ok(())
    })
}

/// The same on the webhook's port, while blue's Ingresses have to be judged.
fn webhook_idle(v: &Villain<'_>) -> Result<()> {
    v.run(async {
        let held = idle(pod(v.scene.webhook_port), 600).await;
        sleep(HELD).await;
        ensure!(held.len() > 500, "{} connections", held.len());
        Ok(())
    })
}

/// Bodies for the webhook that come slowly, and such as are no reviews.
fn webhook_bodies(v: &Villain<'_>) -> Result<()> {
    let to = pod(v.scene.webhook_port);
    v.clients(40, 40, |number| async move {
        let mut stream = tls(to, Some("localhost"), b"").await?;
        let head = "POST /networking/v1/ingresses HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n";
        stream.write_all(format!("{head}Content-Length: 8000000\r\n\r\n").as_bytes()).await?;
        if number % 2 == 0 {
            stream.write_all("[".repeat(7_000_000).as_bytes()).await?;
        }
        for _ in 0..10 {
            stream.write_all(b"[").await?;
            sleep(HELD / 10).await;
        }
        Ok(())
    });
    Ok(())
}

async fn status_from(from: IpAddr, to: SocketAddr, host: &str) -> Result<u16> {
    let mut stream = connect_from(from, to).await?;
    let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    let status = answer.get(9..12).context("a status line")?;
    Ok(std::str::from_utf8(status)?.parse()?)
}

/// Many addresses of one /64, which is one client.
fn limits_v6(v: &Villain<'_>) -> Result<()> {
    let host = v.host();
    v.apply_settled([v.ingress("limit", &host).with("limit-rpm", "10").object()])?;
    // Any local address does.
    let to = SocketAddr::from((Ipv6Addr::new(0xfd00, 0x10, 0x244, 0, 0, 0, 0, 1), v.http().port()));
    let mut answered = 0;
    for _ in 0..200 {
        let status = v.run(status_from(next_client_v6(), to, &host))?;
        answered += usize::from(status == 200);
    }
    // The burst is five times the rate.
    ensure!((1..=60).contains(&answered), "{answered} of 200 requests of one /64 were let in");
    Ok(())
}

/// Thousands of clients at limits of rates and of connections.
fn limits_many(v: &Villain<'_>) -> Result<()> {
    let (host, to) = (v.host(), v.http());
    let ingress = v.ingress("limit", &host).with("limit-rps", "1").with("limit-connections", "1");
    v.apply_settled([ingress.object()])?;
    v.clients(2_000, 40, |_| {
        let host = host.clone();
        async move { status_from(next_client(), to, &host).await.map(drop) }
    });
    Ok(())
}

/// Large bodies for an endpoint that takes its time, and for blue's, which want none.
fn bodies_large(v: &Villain<'_>) -> Result<()> {
    let slow = v.server(|mut stream| async move {
        // The beginning of the body may come with the head, which is much shorter than this.
        let read = head(&mut stream).await?.len();
        let (mut buffer, mut left) = (vec![0; 64 << 10], (8 << 20) - read);
        while left > 0 {
            let count = stream.read(&mut buffer).await?;
            ensure!(count > 0, "the body ended");
            left = usize::saturating_sub(left, count);
        }
        sleep(HELD / 5).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await?;
        Ok(())
    })?;
    let host = v.serve_at(slow.address, |ingress| ingress.with("proxy-body-size", "0"))?;
    let (address, body) = (v.scene.http(), "b".repeat(8 << 20));
    v.clients(16, 8, |_| {
        let request = Request::new("POST", &host, "/").body(body.clone());
        let address = &address;
        async move { send(address, &request).await.map(drop) }
    });
    let refused = Request::new("POST", SHOP, "/").header("Expect", "100-continue");
    let answer = v.send(&refused.header("Content-Length", "2000000"))?;
    ensure!(answer.status == 413, "{answer}");
    Ok(())
}

/// Sends a text now and a byte ten times while it is held.
async fn drip(mut stream: impl AsyncWriteExt + Unpin, text: String) -> Result<()> {
    stream.write_all(text.as_bytes()).await?;
    for _ in 0..10 {
        sleep(HELD / 10).await;
        stream.write_all(b"a").await?;
    }
    Ok(())
}

/// Bodies that come a byte at a time, for blue's hosts. No endpoint hears of them.
fn bodies_slow(v: &Villain<'_>) -> Result<()> {
    let to = v.http();
    v.clients(200, 200, |_| async move {
        let head =
            format!("POST /never HTTP/1.1\r\nHost: {SHOP}\r\nContent-Length: 100000\r\n\r\n");
        drip(tcp(to).await?, head).await
    });
    Ok(())
}

/// Heads that come a byte at a time, on both ports.
fn heads_slow(v: &Villain<'_>) -> Result<()> {
    let (http, https) = (v.http(), v.https());
    v.clients(400, 400, |number| async move {
        let head = format!("GET / HTTP/1.1\r\nHost: {SHOP}\r\nX: ");
        match number % 4 {
            0 => drip(tls(https, Some(SHOP), b"").await?, head).await,
            _ => drip(tcp(http).await?, head).await,
        }
    });
    Ok(())
}

/// Handshakes without a name, with a wrong one, half of one, and none.
fn handshakes(v: &Villain<'_>) -> Result<()> {
    let to = v.https();
    v.clients(400, 30, |number| async move {
        match number % 4 {
            0 => drop(tls(to, None, b"").await?),
            1 => drop(tls(to, Some("nobody.test"), b"\x02h2").await?),
            2 => {
                // The beginning of a client hello that is told to be 16 KiB.
                tcp(to).await?.write_all(b"\x16\x03\x01\x40\x00\x01\x00\x3f\xfc\x03\x03").await?;
            }
            _ => drop(tcp(to).await?),
        }
        Ok(())
    });
    Ok(())
}

/// Bytes that are no requests, TLS where none is spoken, and the other way round.
fn garbage(v: &Villain<'_>) -> Result<()> {
    let (http, https, port) = (v.http(), v.https(), pod(v.scene.controller.health_port));
    let texts: [&[u8]; 8] = [
        b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03",
        b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\nGET / HTTP/1.1\r\n\r\n",
        b"\r\n\r\n\0\0\0\0\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"CONNECT shop.blue.test:443 HTTP/1.1\r\nHost: shop.blue.test\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0",
        b"GET / HTTP/1.1\r\nHost: \xff\xfe\r\n\r\n",
        b"\x80\x80\x80\x80 \x80\x80 \x80",
    ];
    v.clients(240, 24, |number| async move {
        let to = [http, https, port][number % 3];
        let mut stream = tcp(to).await?;
        stream.write_all(texts[number % texts.len()]).await?;
        sleep(Duration::from_millis(50)).await;
        Ok(())
    });
    Ok(())
}

/// Large answers that are asked for and not taken.
fn never_reads(v: &Villain<'_>) -> Result<()> {
    let body = "a".repeat(4 << 20);
    let large = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let server = v.saying(large.into_bytes())?;
    let host = v.serve_at(server.address, |ingress| ingress.with("proxy-buffering", "on"))?;
    let to = v.http();
    v.clients(60, 60, |_| {
        let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
        async move {
            let mut stream = tcp(to).await?;
            stream.write_all(request.as_bytes()).await?;
            sleep(HELD).await;
            Ok(())
        }
    });
    Ok(())
}

/// Hundreds of requests on a connection before an answer is read, for blue's host with passwords too.
fn pipelines(v: &Villain<'_>) -> Result<()> {
    let (host, to) = (v.host(), v.http());
    v.apply_settled([v.ingress("pipeline", &host).object()])?;
    v.clients(40, 20, |number| {
        let host = if number % 2 == 0 { host.as_str() } else { SECURE };
        let requests = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n").repeat(400);
        async move {
            let mut stream = tcp(to).await?;
            stream.write_all(requests.as_bytes()).await?;
            let mut buffer = vec![0; 64 << 10];
            let read =
                async { while stream.read(&mut buffer).await.is_ok_and(|count| count > 0) {} };
            let _ = tokio::time::timeout(HELD / 2, read).await;
            Ok(())
        }
    });
    Ok(())
}

/// Connections that were upgraded and say nothing any more.
fn upgrades_idle(v: &Villain<'_>) -> Result<()> {
    let server =
        v.saying(*b"HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n")?;
    let name = v.name("sockets");
    v.apply(served(&name, server.address))?;
    let host = v.host();
    v.apply_settled([v.bare("sockets").host(&host).path("/", "Prefix", &name).object()])?;
    let to = v.http();
    v.clients(200, 200, |_| {
        let request = format!(
            "GET / HTTP/1.1\r\nHost: {host}\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"
        );
        async move {
            let mut stream = tcp(to).await?;
            stream.write_all(request.as_bytes()).await?;
            let mut answer = [0; 12];
            stream.read_exact(&mut answer).await?;
            sleep(HELD).await;
            Ok(())
        }
    });
    ensure!(server.connections() >= 190, "{} connections", server.connections());
    Ok(())
}

/// Thousands of connections that say nothing, on both ports.
fn connections_many(v: &Villain<'_>) -> Result<()> {
    let (http, https) = (v.http(), v.https());
    v.run(async {
        let held = [idle(http, 1_500).await, idle(https, 1_500).await];
        sleep(HELD / 3).await;
        let count = held.iter().flatten().count();
        ensure!(count > 2_500, "{count} connections");
        Ok(())
    })
}

/// Everybody asks for all metrics, all the time.
fn metrics_flood(v: &Villain<'_>) -> Result<()> {
    let address = Address::Tcp(pod(v.scene.controller.health_port));
    let count = v.clients_for(HELD, 20, |_| {
        let address = &address;
        async move { send(address, &Request::get("pod", "/metrics")).await.map(drop) }
    });
    ensure!(count > 0, "nobody asked");
    Ok(())
}

/// Reviews that no API server sent, of Ingresses that take long to judge.
fn webhook_reviews(v: &Villain<'_>) -> Result<()> {
    let (to, host) = (pod(v.scene.webhook_port), v.host());
    let dear = format!("/[{}]x", r"\pL\PL".repeat(165));
    let mut ingress = v.bare("review").with("use-regex", "true").host(&host);
    for number in 0..700 {
        ingress = ingress.path(&format!("{dear}{number}"), "ImplementationSpecific", OWN);
    }
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "1", "operation": "CREATE", "namespace": v.namespace, "name": "review",
            "kind": {"group": "networking.k8s.io", "version": "v1", "kind": "Ingress"},
            "resource": {"group": "networking.k8s.io", "version": "v1", "resource": "ingresses"},
            "object": ingress.object(),
        },
    });
    let address = Address::Tls(to, Some("localhost".into()));
    let request = Request::new("POST", "localhost", "/").header("Content-Type", "application/json");
    let request = request.body(review.to_string());
    v.clients(60, 30, |_| {
        let (address, request) = (&address, &request);
        async move { send(address, request).await.map(drop) }
    });
    Ok(())
}

/// TLS that is passed through to an endpoint that never answers, and hellos that never end.
fn passthrough_silent(v: &Villain<'_>) -> Result<()> {
    let server = v.server(|mut stream| async move {
        while stream.read_buf(&mut Vec::new()).await? > 0 {}
        Ok(())
    })?;
    let host = v.serve_at(server.address, |ingress| ingress.with("ssl-passthrough", "true"))?;
    let to = v.https();
    v.clients(200, 200, |number| {
        let host = host.clone();
        async move {
            let held = async {
                match number % 2 {
                    0 => drop(tls(to, Some(&host), b"").await?),
                    _ => {
                        let mut stream = tcp(to).await?;
                        stream.write_all(b"\x16\x03\x01\x40\x00\x01\x00\x3f\xfc\x03\x03").await?;
                        sleep(HELD).await;
                    }
                }
                anyhow::Ok(())
            };
            let _ = tokio::time::timeout(HELD, held).await;
            Ok(())
        }
    });
    ensure!(server.connections() > 0, "nothing was passed through");
    Ok(())
}
