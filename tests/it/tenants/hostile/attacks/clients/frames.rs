//! Heads and frames without an end.

use super::*;

/// More lines, longer lines and more bytes than a head may have.
pub fn heads_large(v: &Villain<'_>) -> Result<()> {
    let lines = |count: usize, length: usize| {
        let line = |n: usize| format!("X-{n}: {}\r\n", "v".repeat(length));
        format!(
            "GET / HTTP/1.1\r\nHost: {SHOP}\r\n{}\r\n",
            (0..count).map(line).collect::<String>()
        )
    };
    let heads = [
        lines(1_000, 1),
        lines(1, 60_000),
        lines(90, 600),
        format!("GET /{} HTTP/1.1\r\nHost: {SHOP}\r\n\r\n", "a".repeat(60_000)),
        format!("GET / HTTP/1.1\r\n{}\r\n", format!("Host: {SHOP}\r\n").repeat(50)),
    ];
    for head in heads {
        let answers =
            v.run(oxigress_tests::client::send_raw(&v.scene.http(), head.as_bytes(), 1))?;
        let answer = answers.first().context("no answer")?;
        ensure!([400, 414, 431].contains(&answer.status), "{answer}");
    }
    let (host, address) = (v.host(), v.scene.http());
    v.clients(300, 20, |_| {
        let request = (0..90).fold(Request::get(&host, "/"), |request, number| {
            request.header(&format!("X-{number}"), "value")
        });
        let address = &address;
        async move { send(address, &request).await.map(drop) }
    });
    Ok(())
}

/// Streams that are taken back as soon as they are opened (CVE-2023-44487).
pub fn h2_resets(v: &Villain<'_>) -> Result<()> {
    let to = v.https();
    v.clients(8, 8, |_| async move {
        let client = Client::connect(to, Some(SHOP)).await?;
        for _ in 0..1_000 {
            let (answer, mut stream) =
                client.open(hyper::Method::GET, SHOP, "/", &[], false).await?;
            stream.send_reset(h2::Reason::CANCEL);
            drop(answer);
        }
        Ok(())
    });
    Ok(())
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// Frames without an end: CONTINUATION (CVE-2024-27316), SETTINGS, PING, empty DATA, PRIORITY, windows of nothing.
pub fn h2_frames(v: &Villain<'_>) -> Result<()> {
    let to = v.https();
    v.clients(24, 12, |number| async move {
        let mut stream = tls(to, Some(SHOP), b"\x02h2").await?;
        let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        bytes.extend(frame(4, 0, 0, &[]));
        let flood = match number % 6 {
            0 => {
                bytes.extend(frame(1, 0, 1, &[0x82]));
                frame(9, 0, 1, &[0x40, 1, b'x', 1, b'y'])
            }
            1 => frame(4, 0, 0, &[0, 3, 0, 0, 0, 1]),
            2 => frame(6, 0, 0, &[0; 8]),
            3 => {
                bytes.extend(frame(1, 4, 1, &[0x82, 0x84, 0x87]));
                frame(0, 0, 1, &[])
            }
            4 => frame(2, 0, 3, &[0, 0, 0, 0, 16]),
            _ => frame(8, 0, 0, &[0, 0, 0, 1]),
        };
        stream.write_all(&bytes).await?;
        let flood = flood.repeat(500);
        for _ in 0..20 {
            stream.write_all(&flood).await?;
        }
        Ok(())
    });
    Ok(())
}
