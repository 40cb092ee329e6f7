//! A FastCGI responder: what it is asked is its answer.
//!
//! Source: the FastCGI specification 1.0, §3 and §5.

use super::{Listener, Stream, Tls};
use anyhow::{Context, Result, bail, ensure};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const BEGIN_REQUEST: u8 = 1;
const END_REQUEST: u8 = 3;
const PARAMS: u8 = 4;
const STDIN: u8 = 5;
const STDOUT: u8 = 6;
const KEEP_CONN: u8 = 1;

/// A responder. It answers 200 with a line `NAME=value` for each parameter, in their order, and the body behind an
/// empty line; `/status/404` with that status, `/lines/9` with as many empty lines `Link`. It keeps a connection when it is told
/// to.
pub struct FastcgiEndpoint {
    /// Where it is, and what it counts.
    pub listener: Listener,
    requests: Arc<AtomicU64>,
}

impl FastcgiEndpoint {
    pub fn start(name: &str) -> Result<Self> {
        let requests = Arc::new(AtomicU64::new(0));
        let (name, count): (Arc<str>, _) = (name.into(), requests.clone());
        let listener =
            Listener::start(Tls::Off, move |stream| serve(stream, name.clone(), count.clone()))?;
        Ok(FastcgiEndpoint { listener, requests })
    }

    /// Requests that were read whole.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::SeqCst)
    }
}

pub(super) async fn serve(
    mut stream: Box<dyn Stream>,
    name: Arc<str>,
    requests: Arc<AtomicU64>,
) -> Result<()> {
    loop {
        let Some((id, is_kept)) = begin(&mut stream).await? else { return Ok(()) };
        let parameters = parameters(&rest(&mut stream, PARAMS).await?)?;
        let body = rest(&mut stream, STDIN).await?;
        requests.fetch_add(1, Ordering::SeqCst);
        let uri = parameters.iter().find(|(name, _)| name == "REQUEST_URI");
        let status = uri.and_then(|(_, uri)| uri.strip_prefix("/status/")).unwrap_or("200 OK");
        let lines = uri.and_then(|(_, uri)| uri.strip_prefix("/lines/")?.parse().ok());
        let lines = "Link:\r\n".repeat(lines.unwrap_or(0));
        let mut answer = format!(
            "Status: {status}\r\nContent-Type: text/plain\r\nX-Endpoint: {name}\r\n{lines}\r\n"
        );
        for (name, value) in &parameters {
            answer += &format!("{name}={value}\n");
        }
        let mut answer = answer.into_bytes();
        if !body.is_empty() {
            answer.push(b'\n');
            answer.extend_from_slice(&body);
        }
        for part in answer.chunks(32 * 1024) {
            write(&mut stream, STDOUT, id, part).await?;
        }
        write(&mut stream, STDOUT, id, &[]).await?;
        write(&mut stream, END_REQUEST, id, &[0; 8]).await?;
        stream.flush().await?;
        if !is_kept {
            return Ok(());
        }
    }
}

/// The request's number, and whether the connection is kept; `None`: there is no further request.
async fn begin(stream: &mut Box<dyn Stream>) -> Result<Option<(u16, bool)>> {
    let Some((kind, id, content)) = read(stream).await? else { return Ok(None) };
    ensure!(kind == BEGIN_REQUEST, "a record of type {kind} before a request");
    let flags = content.get(2).context("a short record")?;
    Ok(Some((id, flags & KEEP_CONN != 0)))
}

/// What the records of this type hold, to the empty one.
async fn rest(stream: &mut Box<dyn Stream>, expected: u8) -> Result<Vec<u8>> {
    let mut all = Vec::new();
    loop {
        let (kind, _, content) = read(stream).await?.context("the connection ended")?;
        ensure!(kind == expected, "a record of type {kind}, not {expected}");
        if content.is_empty() {
            return Ok(all);
        }
        all.extend_from_slice(&content);
    }
}

async fn read(stream: &mut Box<dyn Stream>) -> Result<Option<(u8, u16, Vec<u8>)>> {
    let mut head = [0; 8];
    if stream.read(&mut head[..1]).await? == 0 {
        return Ok(None);
    }
    stream.read_exact(&mut head[1..]).await?;
    let [version, kind, id @ .., _] = head;
    let [id_high, id_low, length_high, length_low, padding] = id;
    ensure!(version == 1, "version {version}");
    let length = usize::from(u16::from_be_bytes([length_high, length_low]));
    let mut content = vec![0; length + usize::from(padding)];
    stream.read_exact(&mut content).await?;
    content.truncate(length);
    Ok(Some((kind, u16::from_be_bytes([id_high, id_low]), content)))
}

async fn write(stream: &mut Box<dyn Stream>, kind: u8, id: u16, content: &[u8]) -> Result<()> {
    let [id_high, id_low] = id.to_be_bytes();
    let [length_high, length_low] = u16::try_from(content.len())?.to_be_bytes();
    stream.write_all(&[1, kind, id_high, id_low, length_high, length_low, 0, 0]).await?;
    Ok(stream.write_all(content).await?)
}

/// Names and values of a stream of them (§3.4).
fn parameters(mut bytes: &[u8]) -> Result<Vec<(String, String)>> {
    fn length(bytes: &mut &[u8]) -> Result<usize> {
        match **bytes {
            [short @ 0..=127, ref rest @ ..] => {
                *bytes = rest;
                Ok(short.into())
            }
            [a, b, c, d, ref rest @ ..] => {
                *bytes = rest;
                Ok(u32::from_be_bytes([a & 0x7f, b, c, d]) as usize)
            }
            _ => bail!("a parameter that is cut off"),
        }
    }
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let (name, value) = (length(&mut bytes)?, length(&mut bytes)?);
        ensure!(name + value <= bytes.len(), "a parameter that is longer than the stream");
        let (pair, rest) = bytes.split_at(name + value);
        let text = |part: &[u8]| String::from_utf8_lossy(part).into_owned();
        all.push((text(&pair[..name]), text(&pair[name..])));
        bytes = rest;
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_have_one_byte_or_four() {
        let long = "v".repeat(300);
        let mut bytes = vec![1, 0x80, 0, 1, 44, b'n'];
        bytes.extend_from_slice(long.as_bytes());
        bytes.extend_from_slice(&[1, 0, b'e']);
        let read = parameters(&bytes).unwrap();
        assert_eq!(read, [("n".to_owned(), long), ("e".to_owned(), String::new())]);
        assert!(parameters(&bytes[..200]).is_err());
    }
}
