//! An HTTP/1.1 endpoint whose answers are as long as the request says.

use anyhow::{Context, Result};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};

/// Text that can be compressed, the same for each length.
pub fn text(bytes: usize) -> Vec<u8> {
    let mut number = 1_u64;
    let words = std::iter::from_fn(move || {
        number =
            number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        Some(format!("word{} ", number >> 56))
    });
    let mut all = Vec::with_capacity(bytes + 16);
    for word in words {
        if all.len() >= bytes {
            break;
        }
        all.extend_from_slice(word.as_bytes());
    }
    all.truncate(bytes);
    all
}

/// Bytes that cannot.
pub fn noise(bytes: usize) -> Vec<u8> {
    let mut number = 7_u64;
    let mut next = || {
        number ^= number << 13;
        number ^= number >> 7;
        number ^= number << 17;
        number
    };
    (0..bytes).map(|_| (next() >> 32) as u8).collect()
}

/// The endpoint: `/length/N`, `/chunks/N`, `/noise/N`, and `/events`, whose events a test sends.
pub struct Origin {
    pub address: SocketAddr,
    /// Bytes of bodies that its sockets took.
    pub written: Arc<AtomicUsize>,
    events: SyncSender<Option<String>>,
}

#[derive(Clone)]
struct Shared {
    written: Arc<AtomicUsize>,
    events: Arc<Mutex<Receiver<Option<String>>>>,
}

impl Origin {
    pub fn start() -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let address = listener.local_addr()?;
        let (events, received) = sync_channel(64);
        let written = Arc::new(AtomicUsize::new(0));
        let shared = Shared { written: written.clone(), events: Arc::new(Mutex::new(received)) };
        // Ends with the test.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = shared.clone();
                std::thread::spawn(move || shared.serve(stream));
            }
        });
        Ok(Origin { address, written, events })
    }

    /// Sends an event to whoever reads `/events`; `None` ends them.
    pub fn event(&self, event: Option<&str>) -> Result<()> {
        self.events.send(event.map(str::to_owned)).context("nobody reads events")
    }
}

impl Shared {
    fn serve(&self, mut stream: TcpStream) {
        let (mut read, mut buffer) = (Vec::new(), [0; 4096]);
        loop {
            while let Some(end) = read.windows(4).position(|four| four == b"\r\n\r\n") {
                let head: Vec<u8> = read.drain(..end + 4).collect();
                let head = String::from_utf8_lossy(&head).into_owned();
                if self.answer(&mut stream, &head).is_err() {
                    return;
                }
            }
            match stream.read(&mut buffer) {
                Ok(count @ 1..) => read.extend_from_slice(&buffer[..count]),
                _ => return,
            }
        }
    }

    fn answer(&self, stream: &mut TcpStream, head: &str) -> Result<()> {
        let mut words = head.split(' ');
        let (method, target) =
            (words.next().context("no method")?, words.next().context("no target")?);
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let said = |name: &str| {
            query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
        };
        let (status, kind) =
            (said("status").unwrap_or("200"), said("type").unwrap_or("text/plain"));
        let mut answer =
            format!("HTTP/1.1 {status} Said\r\nContent-Type: {kind}; charset=utf-8\r\n");
        answer += "ETag: \"one\"\r\nAccept-Ranges: bytes\r\n";
        if let Some(encoding) = said("encoding") {
            answer += &format!("Content-Encoding: {encoding}\r\n");
        }
        let (_, rest) = path.split_at(1);
        let (frame, count) = rest.split_once('/').unwrap_or((rest, "0"));
        let body = if frame == "noise" { noise(count.parse()?) } else { text(count.parse()?) };
        let is_chunked = matches!(frame, "chunks" | "events");
        answer += &match is_chunked {
            true => "Transfer-Encoding: chunked\r\n\r\n".to_owned(),
            false => format!("Content-Length: {}\r\n\r\n", body.len()),
        };
        stream.write_all(answer.as_bytes())?;
        match frame {
            _ if method == "HEAD" => return Ok(()),
            "events" => self.events(stream)?,
            "chunks" => body.chunks(3_000).try_for_each(|part| chunk(stream, part))?,
            _ => {
                for part in body.chunks(16 * 1024) {
                    stream.write_all(part)?;
                    self.written.fetch_add(part.len(), Ordering::SeqCst);
                }
            }
        }
        if is_chunked {
            stream.write_all(b"0\r\n\r\n")?;
        }
        Ok(())
    }

    fn events(&self, stream: &mut TcpStream) -> Result<()> {
        loop {
            let event = self.events.lock().expect("no panic inside").recv()?;
            match event {
                Some(event) => chunk(stream, event.as_bytes())?,
                None => return Ok(()),
            }
        }
    }
}

fn chunk(stream: &mut TcpStream, part: &[u8]) -> Result<()> {
    let mut framed = format!("{:x}\r\n", part.len()).into_bytes();
    framed.extend_from_slice(part);
    framed.extend_from_slice(b"\r\n");
    Ok(stream.write_all(&framed)?)
}
