//! A name server on loopback, over UDP and TCP, that answers what a test wants, wrong answers included.

use crate::wait::{runtime, until};
use anyhow::Result;
use hickory_proto::op::{Message, OpCode};
use hickory_proto::rr::rdata::CNAME;
use hickory_proto::rr::{Name, RData, Record, RecordType};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::task::JoinHandle;

pub use hickory_proto::op::ResponseCode;

/// What the server answers when a name is asked for.
#[derive(Clone, Debug)]
pub enum Reply {
    /// Addresses of both families, and seconds.
    Addresses(Vec<IpAddr>, u32),
    /// The same, over TCP only: the answer over UDP is cut.
    OverTcp(Vec<IpAddr>),
    /// Another name, whose own reply is part of the same answer.
    Alias(String),
    /// An error without records, such as SERVFAIL.
    Error(ResponseCode),
    /// The query is read and never answered.
    Silence,
}

#[derive(Default)]
struct Zone {
    replies: BTreeMap<String, Reply>,
    asked: Vec<(String, RecordType)>,
}

/// A running name server; it stops when dropped.
pub struct FakeDns {
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

    /// Sets the reply for a full name, which has no dot at its end, from now on.
    pub fn set(&self, name: &str, reply: Reply) {
        self.lock().replies.insert(name.into(), reply);
    }

    /// Gives a name this address, with a TTL of a second.
    pub fn set_address(&self, name: &str, address: IpAddr) {
        self.set(name, Reply::Addresses(vec![address], 1));
    }

    /// The names that were asked for, in order: those with A.
    pub fn asked(&self) -> Vec<String> {
        let zone = self.lock();
        zone.asked
            .iter()
            .filter(|(_, kind)| *kind == RecordType::A)
            .map(|(name, _)| name.clone())
            .collect()
    }

    /// How often IPv6 addresses were asked for.
    pub fn asked_for_v6(&self, name: &str) -> usize {
        let zone = self.lock();
        zone.asked.iter().filter(|(asked, kind)| *kind == RecordType::AAAA && asked == name).count()
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
        let query = Message::from_vec(query).ok()?;
        let question = query.queries.first()?.clone();
        let kind = question.query_type();
        let asked = question.name().to_lowercase().to_ascii();
        let mut owner = asked.trim_end_matches('.').to_owned();
        self.asked.push((owner.clone(), kind));
        let mut answer = Message::response(query.metadata.id, OpCode::Query);
        answer.metadata.recursion_desired = true;
        answer.metadata.recursion_available = true;
        answer.add_query(question);
        loop {
            match self.replies.get(&owner) {
                None => answer.metadata.response_code = ResponseCode::NXDomain,
                Some(Reply::Silence) => return None,
                Some(Reply::Error(code)) => answer.metadata.response_code = *code,
                Some(Reply::OverTcp(_)) if is_udp => answer.metadata.truncation = true,
                Some(Reply::OverTcp(all)) => {
                    answer.add_answers(addresses(&owner, kind, all, 1)?);
                }
                Some(Reply::Addresses(all, ttl)) => {
                    answer.add_answers(addresses(&owner, kind, all, *ttl)?);
                }
                Some(Reply::Alias(other)) => {
                    let data = RData::CNAME(CNAME(name(other)?));
                    answer.add_answer(Record::from_rdata(name(&owner)?, 1, data));
                    owner.clone_from(other);
                    continue;
                }
            }
            break;
        }
        answer.to_vec().ok()
    }
}

fn name(text: &str) -> Option<Name> {
    let mut name = Name::from_ascii(text).ok()?;
    name.set_fqdn(true);
    Some(name)
}

fn addresses(owner: &str, kind: RecordType, all: &[IpAddr], ttl: u32) -> Option<Vec<Record>> {
    let owner = name(owner)?;
    let of_kind = all.iter().map(|address| RData::from(*address));
    let of_kind = of_kind.filter(|data| data.record_type() == kind);
    Some(of_kind.map(|data| Record::from_rdata(owner.clone(), ttl, data)).collect())
}
