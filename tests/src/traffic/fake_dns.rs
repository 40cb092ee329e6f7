//! A fake name server on loopback, over UDP and TCP, that says what a test wants.
//!
//! Source:  RFC 1035 §4.1: header, question, answers. Names are written in full.

use crate::wait::{runtime, until};
use anyhow::Result;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::task::JoinHandle;

const A: u16 = 1;
const CNAME: u16 = 5;
const AAAA: u16 = 28;
const RCODE_NXDOMAIN: u8 = 3;

/// What it says of a name.
#[derive(Clone, Debug)]
pub enum Said {
    /// Addresses of both families, and seconds.
    Addresses(Vec<IpAddr>, u32),
    /// The same, over TCP only: the answer over UDP is cut.
    OverTcp(Vec<IpAddr>),
    /// Another name, of which it says more in the same answer.
    Alias(String),
    /// An error, such as 2: SERVFAIL.
    Error(u8),
    /// Nothing at all.
    Silence,
}

#[derive(Default)]
struct Zone {
    said: BTreeMap<String, Said>,
    asked: Vec<(String, u16)>,
}

/// A running name server; it stops when dropped.
pub struct FakeDns {
    /// Where it listens.
    pub address: SocketAddr,
    zone: Arc<Mutex<Zone>>,
    tasks: Vec<JoinHandle<()>>,
}

impl FakeDns {
    /// One that knows no name.
    pub fn start() -> Result<Self> {
        let zone = Arc::new(Mutex::new(Zone::default()));
        // A port that is free for one protocol may be taken for the other.
        let (udp, tcp, address) = until("a port for both protocols", || {
            runtime().block_on(async {
                let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
                let address = tcp.local_addr()?;
                Ok((UdpSocket::bind(address).await?, tcp, address))
            })
        })?;
        let tasks = vec![
            runtime().spawn(serve_udp(udp, zone.clone())),
            runtime().spawn(serve_tcp(tcp, zone.clone())),
        ];
        Ok(FakeDns { address, zone, tasks })
    }

    /// The line of a resolv.conf.
    pub fn line(&self) -> String {
        format!("nameserver [{}]:{}\n", self.address.ip(), self.address.port())
    }

    fn lock(&self) -> MutexGuard<'_, Zone> {
        self.zone.lock().expect("no panic inside")
    }

    /// Says this of a full name, without a dot at its end, from now on.
    pub fn say(&self, name: &str, said: Said) {
        self.lock().said.insert(name.into(), said);
    }

    /// Says that a name has this address, for a second.
    pub fn say_address(&self, name: &str, address: IpAddr) {
        self.say(name, Said::Addresses(vec![address], 1));
    }

    /// The names that were asked for, in order: those with A.
    pub fn asked(&self) -> Vec<String> {
        let zone = self.lock();
        zone.asked.iter().filter(|(_, kind)| *kind == A).map(|(name, _)| name.clone()).collect()
    }

    /// How often IPv6 addresses were asked for.
    pub fn asked_for_v6(&self, name: &str) -> usize {
        let zone = self.lock();
        zone.asked.iter().filter(|(asked, kind)| *kind == AAAA && asked == name).count()
    }
}

impl Drop for FakeDns {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

async fn serve_udp(socket: UdpSocket, zone: Arc<Mutex<Zone>>) {
    let mut buffer = [0; 1500];
    while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
        let answer = zone.lock().expect("no panic inside").answer(&buffer[..length], true);
        if let Some(answer) = answer {
            let _ = socket.send_to(&answer, from).await;
        }
    }
}

async fn serve_tcp(listener: TcpListener, zone: Arc<Mutex<Zone>>) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(serve_stream(stream, zone.clone()));
    }
}

async fn serve_stream(mut stream: TcpStream, zone: Arc<Mutex<Zone>>) {
    while let Ok(length) = stream.read_u16().await {
        let mut query = vec![0; length.into()];
        if stream.read_exact(&mut query).await.is_err() {
            return;
        }
        let answer = zone.lock().expect("no panic inside").answer(&query, false);
        let Some(answer) = answer else { continue };
        let length = u16::try_from(answer.len()).expect("a short answer");
        let message = [&length.to_be_bytes()[..], &answer].concat();
        if stream.write_all(&message).await.is_err() {
            return;
        }
    }
}

impl Zone {
    fn answer(&mut self, query: &[u8], is_udp: bool) -> Option<Vec<u8>> {
        let (name, end) = read_name(query, 12)?;
        let kind = u16::from_be_bytes(query.get(end..end + 2)?.try_into().ok()?);
        self.asked.push((name.clone(), kind));
        let mut records = Vec::new();
        let (mut owner, mut code, mut is_cut) = (name, 0, false);
        loop {
            match self.said.get(&owner) {
                None => code = RCODE_NXDOMAIN,
                Some(Said::Silence) => return None,
                Some(Said::Error(error)) => code = *error,
                Some(Said::OverTcp(_)) if is_udp => is_cut = true,
                Some(Said::OverTcp(all)) => records.extend(addresses(&owner, kind, all, 1)),
                Some(Said::Addresses(all, ttl)) => {
                    records.extend(addresses(&owner, kind, all, *ttl));
                }
                Some(Said::Alias(other)) => {
                    records.push(record(&owner, CNAME, 1, &write_name(other)));
                    owner = other.clone();
                    continue;
                }
            }
            break;
        }
        let question = query.get(12..end + 4)?;
        let mut answer = query.get(..2)?.to_vec();
        // A response to a standard query, recursion asked for and had.
        answer.extend([0x81 | if is_cut { 0x02 } else { 0 }, 0x80 | code]);
        answer.extend([0, 1]);
        answer.extend(u16::try_from(records.len()).ok()?.to_be_bytes());
        answer.extend([0, 0, 0, 0]);
        answer.extend(question);
        answer.extend(records.concat());
        Some(answer)
    }
}

fn addresses(owner: &str, kind: u16, all: &[IpAddr], ttl: u32) -> Vec<Vec<u8>> {
    let bytes = |address: &IpAddr| match address {
        IpAddr::V4(v4) if kind == A => Some(v4.octets().to_vec()),
        IpAddr::V6(v6) if kind == AAAA => Some(v6.octets().to_vec()),
        _ => None,
    };
    all.iter().filter_map(bytes).map(|data| record(owner, kind, ttl, &data)).collect()
}

fn record(owner: &str, kind: u16, ttl: u32, data: &[u8]) -> Vec<u8> {
    let mut record = write_name(owner);
    record.extend(kind.to_be_bytes());
    record.extend([0, 1]);
    record.extend(ttl.to_be_bytes());
    record.extend(u16::try_from(data.len()).expect("short data").to_be_bytes());
    record.extend(data);
    record
}

fn write_name(name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for label in name.split('.') {
        bytes.push(u8::try_from(label.len()).expect("a short label"));
        bytes.extend(label.as_bytes());
    }
    bytes.push(0);
    bytes
}

/// In lower case, and where it ends.
fn read_name(message: &[u8], mut at: usize) -> Option<(String, usize)> {
    let mut labels = Vec::new();
    loop {
        let length = usize::from(*message.get(at)?);
        at += 1;
        if length == 0 {
            return Some((labels.join("."), at));
        }
        let label = message.get(at..at + length)?;
        labels.push(String::from_utf8_lossy(label).to_ascii_lowercase());
        at += length;
    }
}
