//! Streams, slow clients, and what compressed answers leave to others.

use super::origin::{Origin, noise, text};
use super::{HOST, ask, ask_at, decoded, plan, start};
use anyhow::{Context, Result, ensure};
use oxigress_tests::client::{Request, send};
use oxigress_tests::pass;
use oxigress_tests::site::{Plan, Site};
use oxigress_tests::wait::{block_on, until};
use serde_json::json;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A client that reads as a test lets it.
struct Reader {
    stream: TcpStream,
    read: Vec<u8>,
}

impl Reader {
    fn ask(site: &Site, target: &str) -> Result<Self> {
        let mut stream = TcpStream::connect(("127.0.0.1", site.http_port))?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        let head = format!(
            "GET {target} HTTP/1.1\r\nHost: {HOST}\r\nAccept-Encoding: br\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(head.as_bytes())?;
        Ok(Reader { stream, read: Vec::new() })
    }

    fn read_some(&mut self) -> Result<usize> {
        let mut buffer = vec![0; 64 * 1024];
        let count = self.stream.read(&mut buffer).context("nothing came")?;
        self.read.extend_from_slice(&buffer[..count]);
        Ok(count)
    }

    /// The bytes of the body so far, out of their chunks.
    fn body(&self) -> Result<Vec<u8>> {
        let end = self.read.windows(4).position(|four| four == b"\r\n\r\n");
        let Some(end) = end else { return Ok(Vec::new()) };
        let head = String::from_utf8_lossy(&self.read[..end]).to_ascii_lowercase();
        ensure!(head.contains("content-encoding: br"), "{head}");
        let (mut rest, mut body) = (&self.read[end + 4..], Vec::new());
        while let Some(line) = rest.windows(2).position(|two| two == b"\r\n") {
            let bytes = usize::from_str_radix(std::str::from_utf8(&rest[..line])?, 16)?;
            let Some(part) = rest.get(line + 2..line + 2 + bytes) else { break };
            body.extend_from_slice(part);
            let Some(after) = rest.get(line + 4 + bytes..).filter(|_| bytes > 0) else { break };
            rest = after;
        }
        Ok(body)
    }

    fn has_encoding(&mut self) -> Result<bool> {
        while !self.read.windows(4).any(|four| four == b"\r\n\r\n") {
            ensure!(self.read_some()? > 0, "closed");
        }
        Ok(String::from_utf8_lossy(&self.read)
            .to_ascii_lowercase()
            .contains("content-encoding: br"))
    }
}

/// As far as it can be read.
fn decoded_so_far(body: &[u8]) -> String {
    use std::io::Write as _;
    let mut writer = brotli::DecompressorWriter::new(Vec::new(), 4096);
    let _ = writer.write_all(body);
    let _ = writer.flush();
    String::from_utf8_lossy(writer.get_ref()).into_owned()
}

#[test]
fn an_event_can_be_read_before_the_next_one_is_sent() {
    pass("brotli-events", |directory| {
        let origin = Origin::start()?;
        let site =
            start(directory, &plan("ingress_brotli 4 20 text/event-stream;")?, &origin, json!({}))?;
        let mut reader = Reader::ask(&site, "/events?type=text/event-stream")?;
        let mut expected = String::new();
        for number in 0..50 {
            let event = format!("data: {{\"event\": {number}, \"more\": \"of the same\"}}\n\n");
            expected += &event;
            origin.event(Some(&event))?;
            while decoded_so_far(&reader.body()?) != expected {
                ensure!(
                    reader.read_some()? > 0,
                    "closed after {}",
                    decoded_so_far(&reader.body()?)
                );
            }
        }
        origin.event(None)?;
        while reader.read_some()? > 0 {}
        ensure!(decoded(&reader.body()?)? == expected.as_bytes(), "another body");
        site.nginx.check_error_log()
    });
}

/// The head of an answer whose body has not begun, and what nginx has received of one that pauses, do not wait for more.
#[test]
fn what_has_come_is_sent_though_the_endpoint_pauses() {
    pass("brotli-pause", |directory| {
        let origin = Origin::start()?;
        let plan = plan("ingress_brotli 4 20 text/plain;")?;
        let site = start(directory, &plan, &origin, json!({}))?;
        let mut reader = Reader::ask(&site, "/events")?;
        ensure!(reader.has_encoding()?, "it is compressed");
        origin.event(None)?;
        drop((reader, site));

        let folder = oxigress_tests::place::Directory::new("brotli-pause-buffered")?;
        // nginx hands a buffer on when it is full, and looks no more at what is before that.
        let proxy = json!({"buffering": true, "buffer_bytes": 1 << 20, "buffer_count": 16});
        let site = start(&folder, &plan, &origin, proxy)?;
        let mut reader = Reader::ask(&site, "/events")?;
        let event = String::from_utf8(text(1_200_000))?;
        origin.event(Some(&event))?;
        while decoded_so_far(&reader.body()?).len() < 1_000_000 {
            ensure!(reader.read_some()? > 0, "closed");
        }
        origin.event(None)?;
        while reader.read_some()? > 0 {}
        ensure!(decoded(&reader.body()?)? == event.as_bytes(), "another body");
        site.nginx.check_error_log()
    });
}

/// Of what a client does not read, no more is taken from the endpoint than fits into the sockets
/// between them.
#[test]
fn a_client_that_does_not_read_is_waited_for() {
    pass("brotli-slow", |directory| {
        const BYTES: usize = 30_000_000;
        let origin = Origin::start()?;
        let plan = plan("ingress_brotli 1 20 text/plain;")?;
        for (round, buffering) in [false, true].into_iter().enumerate() {
            let folder = oxigress_tests::place::Directory::new(&format!("brotli-slow-{round}"))?;
            let proxy = json!({"buffering": buffering, "max_temp_file_bytes": 0});
            let site = start(&folder, &plan, &origin, proxy)?;
            let before = origin.written.load(Ordering::SeqCst);
            let mut reader = Reader::ask(&site, &format!("/noise/{BYTES}"))?;
            let mut last = 0;
            until("the endpoint to be waited for", || {
                let now = origin.written.load(Ordering::SeqCst) - before;
                let is_still = now == last && now > 0;
                last = now;
                std::thread::sleep(Duration::from_millis(300));
                ensure!(is_still, "{now} bytes");
                Ok(())
            })?;
            ensure!(
                last < BYTES / 2,
                "{last} bytes of {BYTES} were taken for a client that reads nothing"
            );
            println!("buffering {buffering}: {last} bytes taken");
            while reader.read_some()? > 0 {}
            ensure!(decoded(&reader.body()?)? == noise(BYTES), "another body");
            site.nginx.check_error_log()?;
        }
        let _ = directory;
        Ok(())
    });
}

/// Large answers at the highest level are compressed while others are answered, by one worker.
#[test]
fn compression_leaves_the_event_loop_to_others() {
    pass("brotli-loop", |directory| {
        const BYTES: usize = 3_000_000;
        let origin = Origin::start()?;
        // Buffers for much at once: what arrives in one turn could be megabytes.
        let plan = plan("ingress_brotli 11 20 text/plain;")?;
        let proxy = json!({"buffering": true, "buffer_bytes": 1 << 20, "buffer_count": 16});
        let site = start(directory, &plan, &origin, proxy)?;
        let (address, is_over) = (site.http(), AtomicBool::new(false));
        let answered = std::thread::scope(|scope| -> Result<usize> {
            let downloads: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| ask_at(&address, &format!("/length/{BYTES}"), "br")))
                .collect();
            let others = scope.spawn(|| -> Result<usize> {
                let request = Request::get("none.test", "/");
                let mut count = 0;
                while !is_over.load(Ordering::SeqCst) {
                    block_on(send(&address, &request))?;
                    count += 1;
                }
                Ok(count)
            });
            let answers: Vec<_> = downloads.into_iter().map(|it| it.join()).collect();
            // Whatever has come: the others go on until then.
            is_over.store(true, Ordering::SeqCst);
            for answer in answers {
                let answer = answer.expect("no panic")?;
                ensure!(decoded(&answer.body)? == text(BYTES), "another body");
            }
            others.join().expect("no panic")
        })?;
        println!("{answered} answers meanwhile");
        // 4 x 3 MB are more than 700 turns of 16 KB, and a request takes some turns.
        ensure!(answered >= 50, "{answered} answers while 12 MB were compressed");
        site.nginx.check_error_log()
    });
}

/// What encoders take is bounded, more is served as it is, and clients that go away give it back.
#[test]
fn memory_is_bounded_and_comes_back() {
    pass("brotli-memory", |directory| {
        let origin = Origin::start()?;
        // A quarter is for encoders, and half of that for a namespace: two of level 4.
        let plan = Plan {
            main_config: "ingress_buffers 40m;".into(),
            ..plan("ingress_brotli 4 20 text/plain;")?
        };
        let site = start(directory, &plan, &origin, json!({}))?;
        for _ in 0..20 {
            let mut first = Reader::ask(&site, "/noise/20000000")?;
            let mut second = Reader::ask(&site, "/noise/20000000")?;
            ensure!(first.has_encoding()? && second.has_encoding()?, "there is room for two");
            let answer = ask(&site, "/length/100000", "br")?;
            ensure!(answer.header("content-encoding").is_none(), "{:?}", answer.headers);
            ensure!(answer.header("vary").as_deref() == Some("Accept-Encoding"));
            ensure!(answer.body == text(100_000), "as it is");
            for reader in [first, second] {
                reader.stream.shutdown(Shutdown::Both)?;
            }
            until("the room to be given back", || {
                let answer = ask(&site, "/length/100000", "br")?;
                ensure!(answer.header("content-encoding").is_some());
                Ok(())
            })?;
        }
        site.nginx.check_error_log()
    });
}
