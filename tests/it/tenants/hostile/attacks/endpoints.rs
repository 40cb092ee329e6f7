//! Endpoints, auth servers and mirrors that answer what no server would, or nothing.

use super::{Attack, short};
use crate::tenants::hostile::blue::basic;
use crate::tenants::hostile::objects::served;
use crate::tenants::hostile::villain::{Server, Villain, head};
use anyhow::{Result, ensure};
use oxigress_tests::client::{Connection, Request};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::time::sleep;

pub const ATTACKS: &[Attack] = &[
    short(5, "endpoint-silent", silent),
    short(5, "endpoint-drips", drips),
    short(5, "endpoint-heads", heads),
    short(5, "endpoint-interim", interim),
    short(5, "endpoint-chunks", chunks),
    short(5, "endpoint-breaks-off", breaks_off),
    short(5, "endpoint-resets", resets),
    short(5, "endpoint-endless", endless),
    short(5, "endpoint-more", more),
    short(5, "endpoint-nonsense", nonsense),
    short(5, "endpoint-protocols", protocols),
    short(5, "endpoint-gzip", gzip),
    short(5, "endpoint-cookies", cookies),
    short(5, "mirror-silent", mirror_silent),
    short(5, "auth-silent", auth_silent),
    short(5, "auth-heads", auth_heads),
];

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n";

/// How long clients of a bad endpoint wait.
const PATIENCE: Duration = Duration::from_millis(1_500);

/// So many clients at once who ask for a host and go after a while; how many had an answer with a status of these.
fn ask(v: &Villain<'_>, host: &str, count: usize, allowed: &[u16]) -> Result<usize> {
    let (answered, wrong) = (std::sync::atomic::AtomicUsize::new(0), std::sync::Mutex::new(None));
    let address = v.scene.http();
    v.clients(count, count, |number| {
        let request = Request::get(host, &format!("/{number}")).header("Accept-Encoding", "gzip");
        let request = request.header("Authorization", &basic("a", "b"));
        let (address, answered, wrong) = (&address, &answered, &wrong);
        async move {
            let mut connection = Connection::open(address).await?;
            if let Ok(answer) = connection.send_within(&request, PATIENCE).await {
                answered.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                if !allowed.contains(&answer.status) {
                    *wrong.lock().expect("no panic inside") = Some(answer);
                }
            }
            Ok(())
        }
    });
    if let Some(answer) = wrong.into_inner().expect("no panic inside") {
        anyhow::bail!("{host} answers {answer}, none of {allowed:?}");
    }
    Ok(answered.into_inner())
}

/// A server that answers each of these texts to a connection, in turn.
fn in_turn(v: &Villain<'_>, texts: Vec<Vec<u8>>) -> Result<Server> {
    let turn = std::sync::atomic::AtomicUsize::new(0);
    v.server(move |mut stream| {
        let number = turn.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        let text = texts[number % texts.len()].clone();
        async move {
            head(&mut stream).await?;
            stream.write_all(&text).await?;
            Ok(())
        }
    })
}

/// A server that takes requests and says nothing.
fn never_answers(v: &Villain<'_>) -> Result<Server> {
    v.server(|mut stream| async move {
        head(&mut stream).await?;
        sleep(Duration::from_secs(60)).await;
        Ok(())
    })
}

/// It takes requests and says nothing.
fn silent(v: &Villain<'_>) -> Result<()> {
    let server = never_answers(v)?;
    let host = v.serve_at(server.address, |ingress| ingress.with("proxy-read-timeout", "1"))?;
    let answered = ask(v, &host, 150, &[504, 502])?;
    ensure!(answered > 0, "nobody was told");
    Ok(())
}

/// A byte now and then, of the head and of the body.
fn drips(v: &Villain<'_>) -> Result<()> {
    let server = v.server(|mut stream| async move {
        head(&mut stream).await?;
        for byte in format!("{OK}Content-Length: 1000\r\n\r\n{}", "a".repeat(1_000)).bytes() {
            stream.write_all(&[byte]).await?;
            sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    })?;
    let host = v.serve_at(server.address, |ingress| ingress)?;
    ask(v, &host, 150, &[200]).map(drop)
}

/// Heads that are larger than any buffer.
fn heads(v: &Villain<'_>) -> Result<()> {
    let texts = vec![
        format!("{OK}X: {}\r\n\r\n", "v".repeat(1 << 20)).into_bytes(),
        format!("{OK}{}\r\n", "X: v\r\n".repeat(100_000)).into_bytes(),
        format!("HTTP/1.1 200 {}\r\n\r\n", "K".repeat(100_000)).into_bytes(),
        format!("{OK}{}: v\r\n\r\n", "X".repeat(100_000)).into_bytes(),
    ];
    let server = in_turn(v, texts)?;
    let host = v.serve_at(server.address, |ingress| ingress)?;
    ask(v, &host, 40, &[502]).map(drop)
}

/// Interim answers by the thousand, and without an end.
fn interim(v: &Villain<'_>) -> Result<()> {
    let early = "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n".repeat(2_000);
    let server = v.server(move |mut stream| {
        let early = early.clone();
        async move {
            let request = head(&mut stream).await?;
            let rounds = if request.starts_with(b"GET /1") { 1_000 } else { 1 };
            for _ in 0..rounds {
                stream.write_all(early.as_bytes()).await?;
            }
            stream.write_all(format!("{OK}Content-Length: 2\r\n\r\nok").as_bytes()).await?;
            Ok(())
        }
    })?;
    let host = v.serve_at(server.address, |ingress| ingress)?;
    ask(v, &host, 20, &[200, 502]).map(drop)
}

/// Bodies in chunks that are none.
fn chunks(v: &Villain<'_>) -> Result<()> {
    let of = |body: &str| format!("{OK}Transfer-Encoding: chunked\r\n\r\n{body}").into_bytes();
    let texts = [
        "fffffffffffffffff\r\nx",
        "-1\r\nx\r\n0\r\n\r\n",
        "2\r\nokay\r\n0\r\n\r\n",
        "0x2\r\nok\r\n0\r\n\r\n",
        "\r\n\r\n\r\n",
        "7fffffffffffffff\r\nx",
    ];
    let mut texts: Vec<_> = texts.map(of).into();
    texts.push(of(&format!("1;{}\r\na\r\n0\r\n\r\n", "x=y;".repeat(50_000))));
    texts.push(of(&format!("1\r\na\r\n0\r\n{}\r\n", "X: v\r\n".repeat(50_000))));
    let server = in_turn(v, texts)?;
    let host = v.serve_at(server.address, |ingress| ingress)?;
    ask(v, &host, 80, &[200, 502]).map(drop)
}

/// Less of a body than was promised.
fn breaks_off(v: &Villain<'_>) -> Result<()> {
    let texts =
        ["Content-Length: 1000000\r\n\r\nabc", "Content-Length: 99999999999\r\n\r\nabc", ""];
    let server = in_turn(v, texts.map(|text| format!("{OK}{text}").into_bytes()).into())?;
    let host = v.serve_at(server.address, |ingress| ingress.with("proxy-buffering", "on"))?;
    ask(v, &host, 100, &[200, 502]).map(drop)
}

/// Connections that are reset at once, tried again as often as may be asked for.
fn resets(v: &Villain<'_>) -> Result<()> {
    let server = v.server(|stream| async move {
        stream.set_zero_linger()?;
        Ok(())
    })?;
    let retries = "error timeout invalid_header http_500 http_502 non_idempotent";
    let host = v.serve_at(server.address, |ingress| {
        ingress.with("proxy-next-upstream", retries).with("proxy-next-upstream-tries", "1000000")
    })?;
    ask(v, &host, 100, &[502])?;
    let count = server.connections();
    ensure!(count < 10_000, "{count} connections for 100 requests");
    Ok(())
}

/// A body without an end, as fast as it goes, kept in files where that is asked for.
fn endless(v: &Villain<'_>) -> Result<()> {
    let server = v.server(|mut stream| async move {
        head(&mut stream).await?;
        stream.write_all(format!("{OK}\r\n").as_bytes()).await?;
        let body = vec![b'a'; 64 << 10];
        loop {
            stream.write_all(&body).await?;
        }
    })?;
    let host = v.serve_at(server.address, |ingress| {
        ingress.with("proxy-buffering", "on").with("proxy-max-temp-file-size", "1024m")
    })?;
    let to = v.http();
    v.clients(12, 12, |number| {
        let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
        async move {
            let mut stream = oxigress_tests::client::tcp(to).await?;
            stream.write_all(request.as_bytes()).await?;
            let mut buffer = vec![0; 16 << 10];
            let read = async {
                while tokio::io::AsyncReadExt::read(&mut stream, &mut buffer).await? > 0 {
                    sleep(Duration::from_millis(number as u64)).await;
                }
                anyhow::Ok(())
            };
            let _ = tokio::time::timeout(PATIENCE, read).await;
            Ok(())
        }
    });
    Ok(())
}

/// A second answer behind the first one: nobody may get it.
fn more(v: &Villain<'_>) -> Result<()> {
    let answer = format!("{OK}Content-Length: 2\r\n\r\n");
    let server = v.saying(format!("{answer}ok{answer}no{answer}no").into_bytes())?;
    let host = v.serve_at(server.address, |ingress| ingress)?;
    for _ in 0..30 {
        let answer = v.get(&host, "/")?;
        ensure!(answer.status == 502 || answer.text() == "ok", "{answer}");
    }
    Ok(())
}

fn nonsense(v: &Villain<'_>) -> Result<()> {
    let texts = [
        "HTTP/1.1 999 X\r\n\r\n",
        "HTTP/9.9 200 OK\r\n\r\n",
        "\0\0\0\0\0\0\0\0",
        "hello\r\n\r\n",
        "HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nGET / HTTP/1.1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nokk",
        "HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\n: v\r\nX\r\n Y: z\r\n\r\n",
        "HTTP/1.1 204 No\r\nContent-Length: 5\r\n\r\nhello",
        "HTTP/1.1 304 No\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "HTTP/1.1 302 X\r\nLocation: //\r\nRefresh: 0;url=//\r\nContent-Length: 0\r\n\r\n",
    ];
    let server = in_turn(v, texts.map(|text| text.as_bytes().to_vec()).into())?;
    let host = v.serve_at(server.address, |ingress| {
        ingress.with("proxy-redirect-from", "http://x/").with("proxy-redirect-to", "/")
    })?;
    let to = v.http();
    v.clients(96, 12, |number| {
        let request =
            format!("GET /{number} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        async move {
            let mut stream = oxigress_tests::client::tcp(to).await?;
            stream.write_all(request.as_bytes()).await?;
            let mut answer = Vec::new();
            let read = tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut answer);
            let _ = tokio::time::timeout(PATIENCE / 3, read).await;
            Ok(())
        }
    });
    Ok(())
}

/// Bytes of other protocols than those that the Ingress names.
fn protocols(v: &Villain<'_>) -> Result<()> {
    let frames =
        [&[0, 0, 0, 4, 0, 0, 0, 0, 0][..], &[0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]]
            .concat();
    let texts = vec![
        frames.repeat(1_000),
        [&[1, 6, 0, 1, 0xff, 0xff, 0, 0][..], &[b'a'; 65_535]].concat(),
        [&[0x15, 3, 3, 0, 2, 2, 40][..]; 100].concat(),
        b"HTTP/1.1 200 OK\r\n\r\n".repeat(100),
    ];
    let server = in_turn(v, texts)?;
    for (number, protocol) in ["GRPC", "GRPCS", "HTTPS", "FCGI"].into_iter().enumerate() {
        let (host, service) = (v.host_of(number), v.name(number));
        v.apply(served(&service, server.address))?;
        let ingress = v.bare(number).host(&host).path("/", "Prefix", &service);
        v.apply([ingress.with("backend-protocol", protocol).object()])?;
    }
    v.settle()?;
    for number in 0..4 {
        ask(v, &v.host_of(number), 25, &[502, 200])?;
    }
    Ok(())
}

/// Much that is easily made small.
fn gzip(v: &Villain<'_>) -> Result<()> {
    let body = "a".repeat(2 << 20);
    let server =
        v.saying(format!("{OK}Content-Length: {}\r\n\r\n{body}", body.len()).into_bytes())?;
    let host = v.serve_at(server.address, |ingress| ingress)?;
    let answered = ask(v, &host, 24, &[200])?;
    ensure!(answered > 0, "nobody was answered");
    Ok(())
}

/// Hundreds of cookies, each of which is looked at and rewritten.
fn cookies(v: &Villain<'_>) -> Result<()> {
    let cookie =
        |n: usize| format!("Set-Cookie: n{n}={}; Path=/a; Domain=a.test\r\n", "v".repeat(20));
    let cookies: String = (0..500).map(cookie).collect();
    let server = v.saying(format!("{OK}{cookies}Content-Length: 0\r\n\r\n").into_bytes())?;
    let host = v.serve_at(server.address, |ingress| {
        let ingress = ingress.with("proxy-buffer-size", "64k").with("proxy-cookie-path", "/a /b");
        ingress.with("proxy-cookie-domain", "a.test b.test").with("affinity", "cookie")
    })?;
    ask(v, &host, 100, &[200, 502]).map(drop)
}

/// Copies of requests for a server that never answers: those who sent them do not wait for it.
fn mirror_silent(v: &Villain<'_>) -> Result<()> {
    let server = never_answers(v)?;
    let host = v.serve_at(v.own.address, |ingress| {
        ingress.with("mirror-target", &format!("http://{}/", server.address))
    })?;
    let answered = ask(v, &host, 200, &[200])?;
    ensure!(answered >= 190, "{answered} of 200 were answered");
    ensure!(server.connections() > 0, "nothing was copied");
    Ok(())
}

/// An auth server that never answers.
fn auth_silent(v: &Villain<'_>) -> Result<()> {
    let server = never_answers(v)?;
    let host = v.serve_at(v.own.address, |ingress| {
        ingress.with("auth-url", &format!("http://{}/", server.address))
    })?;
    let answered = ask(v, &host, 200, &[500, 503, 504])?;
    ensure!(server.connections() > 0, "nobody was asked; {answered} were answered");
    Ok(())
}

/// An auth server whose answers are heads as large as they may be, all of which endpoints are to get.
fn auth_heads(v: &Villain<'_>) -> Result<()> {
    let names: Vec<_> = (0..100).map(|number| format!("X-Auth-{number}")).collect();
    let lines: String =
        names.iter().map(|name| format!("{name}: {}\r\n", "v".repeat(550))).collect();
    let server =
        v.saying(format!("HTTP/1.1 200 OK\r\n{lines}Content-Length: 0\r\n\r\n").into_bytes())?;
    let host = v.serve_at(v.own.address, |ingress| {
        let ingress = ingress.with("auth-url", &format!("http://{}/", server.address));
        ingress.with("auth-response-headers", &names.join(","))
    })?;
    ask(v, &host, 60, &[200, 431, 400, 500, 502]).map(drop)
}
