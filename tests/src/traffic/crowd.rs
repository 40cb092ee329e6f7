//! Clients that take what nginx has: connections that are held and never finish a request.

use crate::client::TIMEOUT;
use crate::wait::runtime;
use anyhow::{Context, Result, bail, ensure};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

/// How nginx took a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// It waits for the rest of the request. nginx does not close such a connection to make room.
    Held,
    /// It closed the connection without an answer.
    Refused,
}

/// Connections whose requests lack their body. They end when it is dropped.
pub struct Crowd {
    address: SocketAddr,
    /// nginx asks for the body of a request to this host.
    host: String,
    held: Vec<TcpStream>,
}

impl Crowd {
    /// Nobody yet. `host` is one that is routed.
    pub fn new(port: u16, host: &str) -> Self {
        Crowd { address: (Ipv4Addr::LOCALHOST, port).into(), host: host.into(), held: Vec::new() }
    }

    async fn knock(&self) -> std::io::Result<TcpStream> {
        let mut stream = TcpStream::connect(self.address).await?;
        let head = format!(
            "POST / HTTP/1.1\r\nHost: {}\r\nContent-Length: 1000\r\nExpect: 100-continue\r\n\r\n",
            self.host
        );
        stream.write_all(head.as_bytes()).await?;
        Ok(stream)
    }

    /// One client more, once nginx has taken or refused it.
    pub async fn join(&mut self) -> Result<Entry> {
        let Ok(mut stream) = self.knock().await else { return Ok(Entry::Refused) };
        let mut answer = [0; 256];
        let read = tokio::time::timeout(TIMEOUT, stream.read(&mut answer)).await;
        match read.context("nginx neither takes nor refuses a client")? {
            Ok(0) | Err(_) => Ok(Entry::Refused),
            Ok(count) if answer[..count].starts_with(b"HTTP/1.1 100 ") => {
                self.held.push(stream);
                Ok(Entry::Held)
            }
            Ok(count) => bail!("{}", String::from_utf8_lossy(&answer[..count])),
        }
    }

    /// Clients until so many in a row were refused.
    pub async fn fill(&mut self, refusals: usize) -> Result<()> {
        let mut in_a_row = 0;
        while in_a_row < refusals {
            ensure!(self.held.len() < 5_000, "there is no end of connections");
            in_a_row = if self.join().await? == Entry::Refused { in_a_row + 1 } else { 0 };
        }
        Ok(())
    }

    /// Clients that wait at the door until nginx can take them.
    pub async fn queue(&mut self, count: usize) -> Result<()> {
        for _ in 0..count {
            let stream = self.knock().await?;
            self.held.push(stream);
        }
        Ok(())
    }

    pub fn len(&self) -> usize {
        self.held.len()
    }

    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }
}

/// Clients that come all the time and take whatever becomes free, as a [`Crowd`] does.
pub struct Rush {
    tried: Arc<AtomicU64>,
    tasks: Vec<JoinHandle<()>>,
}

impl Rush {
    /// Begins; each of `clients` tries again when it was refused.
    pub fn start(port: u16, host: &str, clients: usize) -> Self {
        let tried = Arc::new(AtomicU64::new(0));
        let tasks = (0..clients).map(|_| {
            let (tried, mut crowd) = (tried.clone(), Crowd::new(port, host));
            runtime().spawn(async move {
                loop {
                    let _ = crowd.join().await;
                    tried.fetch_add(1, Ordering::SeqCst);
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            })
        });
        let tasks = tasks.collect();
        Rush { tried, tasks }
    }

    /// How often they have tried.
    pub fn tried(&self) -> u64 {
        self.tried.load(Ordering::SeqCst)
    }
}

impl Drop for Rush {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}
