//! A small blocking HTTP/1.1 client: one connection, one request at a time, little of its own to measure.

use anyhow::{Context, Result, bail, ensure};
use openssl::ssl::{SslConnector, SslMethod, SslVerifyMode};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// An answer that takes longer is a failure; valgrind and a full machine are slow.
const TIMEOUT: Duration = Duration::from_secs(120);

trait Stream: Read + Write + Send {}
impl<T: Read + Write + Send> Stream for T {}

/// What a client sends at once when it sends slowly, and its pause after it: 60 MB a second.
const PIECE: (usize, Duration) = (128 * 1024, Duration::from_millis(2));

pub struct Client {
    stream: BufReader<Box<dyn Stream>>,
    is_slow: bool,
    line: Vec<u8>,
    out: Vec<u8>,
}

#[derive(Debug, Default)]
pub struct Answer {
    pub status: u16,
    /// The value of `ETag` without its quotes.
    pub etag: Option<String>,
    /// Name and value of `Set-Cookie`.
    pub cookie: Option<String>,
    pub endpoint: Option<String>,
    pub body: Vec<u8>,
    /// The server closes the connection after it.
    pub is_last: bool,
}

impl Answer {
    /// Fails unless the status is 200.
    pub fn ok(self) -> Result<Self> {
        ensure!(self.status == 200, "answered with {}", self.status);
        Ok(self)
    }
}

impl Client {
    /// To a port on loopback.
    pub fn tcp(port: u16) -> Result<Self> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))
            .with_context(|| format!("connect to port {port}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        Ok(Self::on(stream))
    }

    /// To a port on loopback, with TLS, whoever answers.
    pub fn tls(port: u16) -> Result<Self> {
        let mut connector = SslConnector::builder(SslMethod::tls_client())?;
        connector.set_verify(SslVerifyMode::NONE);
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        Ok(Self::on(connector.build().connect("localhost", stream)?))
    }

    pub fn unix(path: &Path) -> Result<Self> {
        let stream =
            UnixStream::connect(path).with_context(|| format!("connect to {}", path.display()))?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        Ok(Self::on(stream))
    }

    fn on(stream: impl Read + Write + Send + 'static) -> Self {
        let stream = BufReader::new(Box::new(stream) as Box<dyn Stream>);
        Client { stream, is_slow: false, line: Vec::new(), out: Vec::new() }
    }

    /// Sends long bodies in pieces with pauses, so that the receiver has nothing left to read after each.
    pub fn set_slow(&mut self, is_slow: bool) {
        self.is_slow = is_slow;
    }

    /// `GET` with the headers a plain client has.
    pub fn get(&mut self, host: &str, target: &str) -> Result<Answer> {
        self.get_with(host, target, "")
    }

    /// The same with more header lines.
    pub fn get_with(&mut self, host: &str, target: &str, lines: &str) -> Result<Answer> {
        let head = format!(
            "GET {target} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: oxigress-bench\r\nAccept: */*\r\n{lines}\r\n"
        );
        self.exchange(head.as_bytes(), b"")
    }

    /// `GET` that must be answered with 200.
    pub fn get_ok(&mut self, host: &str, target: &str) -> Result<Answer> {
        let answer = self.get(host, target)?;
        ensure!(answer.status == 200, "{host}{target} answers {}", answer.status);
        Ok(answer)
    }

    /// Any method, with a JSON body.
    pub fn send_json(
        &mut self,
        method: &str,
        target: &str,
        if_match: Option<&str>,
        body: &[u8],
    ) -> Result<Answer> {
        let condition = if_match.map(|tag| format!("If-Match: \"{tag}\"\r\n")).unwrap_or_default();
        let head = format!(
            "{method} {target} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
             {condition}Content-Length: {}\r\n\r\n",
            body.len()
        );
        self.exchange(head.as_bytes(), body)
    }

    fn exchange(&mut self, head: &[u8], body: &[u8]) -> Result<Answer> {
        self.out.clear();
        self.out.extend_from_slice(head);
        self.out.extend_from_slice(body);
        let (piece, pause) = if self.is_slow { PIECE } else { (self.out.len(), Duration::ZERO) };
        for part in self.out.chunks(piece) {
            self.stream.get_mut().write_all(part).context("send")?;
            if part.len() == piece && self.is_slow {
                std::thread::sleep(pause);
            }
        }
        self.answer()
    }

    fn answer(&mut self) -> Result<Answer> {
        let mut answer = Answer::default();
        let status = self.read_line()?;
        ensure!(!status.is_empty(), "the connection was closed without an answer");
        answer.status = status.split(' ').nth(1).context("a status")?.parse()?;
        let mut length = 0;
        loop {
            let line = self.read_line()?;
            if line.is_empty() {
                break;
            }
            let (name, value) = line.split_once(':').context("a header")?;
            let value = value.trim();
            if name.eq_ignore_ascii_case("content-length") {
                length = value.parse()?;
            } else if name.eq_ignore_ascii_case("etag") {
                answer.etag = Some(value.trim_matches('"').into());
            } else if name.eq_ignore_ascii_case("x-endpoint") {
                answer.endpoint = Some(value.into());
            } else if name.eq_ignore_ascii_case("set-cookie") {
                answer.cookie = value.split(';').next().map(str::to_owned);
            } else if name.eq_ignore_ascii_case("connection") {
                answer.is_last = value.eq_ignore_ascii_case("close");
            } else if name.eq_ignore_ascii_case("transfer-encoding") {
                bail!("an answer in chunks, which this client cannot read");
            }
        }
        answer.body.resize(length, 0);
        self.stream.read_exact(&mut answer.body).context("the body broke off")?;
        Ok(answer)
    }

    fn read_line(&mut self) -> Result<String> {
        self.line.clear();
        self.stream.read_until(b'\n', &mut self.line).context("no answer")?;
        Ok(String::from_utf8_lossy(&self.line).trim_end().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    struct Fixed(Cursor<Vec<u8>>);

    impl Read for Fixed {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            self.0.read(buffer)
        }
    }

    impl Write for Fixed {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn answers_end_where_their_length_says() {
        let two = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nETag: \"a.1\"\r\n\r\nok\
                   HTTP/1.1 503 No\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
        let mut client = Client::on(Fixed(Cursor::new(two.into())));
        let first = client.get_ok("a", "/").unwrap();
        assert_eq!((first.body.as_slice(), first.etag.as_deref()), (&b"ok"[..], Some("a.1")));
        let second = client.get("a", "/").unwrap();
        assert!(second.status == 503 && second.is_last);
        assert!(client.get("a", "/").is_err());
    }
}
