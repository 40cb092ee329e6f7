//! Endpoints that answer after a while: one thread, epoll by way of non-blocking sockets and a sorted queue.

use anyhow::{Context, Result};
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// Endpoints on loopback; their threads end with the process.
pub struct SlowEndpoints {
    ports: Vec<u16>,
    served: Vec<Arc<AtomicU64>>,
}

impl SlowEndpoints {
    /// Starts an endpoint for each delay.
    pub fn start(delays: &[Duration]) -> Result<Self> {
        let (mut ports, mut served) = (Vec::new(), Vec::new());
        for delay in delays {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            listener.set_nonblocking(true)?;
            ports.push(listener.local_addr()?.port());
            let count = Arc::new(AtomicU64::new(0));
            served.push(count.clone());
            let delay = *delay;
            std::thread::Builder::new()
                .name("slow endpoint".into())
                .spawn(move || serve(&listener, delay, &count))
                .context("a thread")?;
        }
        Ok(SlowEndpoints { ports, served })
    }

    pub fn ports(&self) -> &[u16] {
        &self.ports
    }

    /// Requests that each has answered.
    pub fn served(&self) -> Vec<u64> {
        self.served.iter().map(|count| count.load(Relaxed)).collect()
    }
}

/// Looks at all its sockets every half millisecond: few enough of them, and cheap beside what is measured.
fn serve(listener: &TcpListener, delay: Duration, served: &AtomicU64) {
    let mut connections: Vec<Option<TcpStream>> = Vec::new();
    let mut due: VecDeque<(Instant, usize)> = VecDeque::new();
    let mut buffer = [0; 4096];
    loop {
        while let Ok((stream, _)) = listener.accept() {
            let _ = stream.set_nonblocking(true);
            let _ = stream.set_nodelay(true);
            connections.push(Some(stream));
        }
        for (place, slot) in connections.iter_mut().enumerate() {
            let Some(stream) = slot else { continue };
            match stream.read(&mut buffer) {
                // nginx sends the whole head at once, and the next request after the answer.
                Ok(1..) => due.push_back((Instant::now() + delay, place)),
                Ok(0) => *slot = None,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => *slot = None,
            }
        }
        while due.front().is_some_and(|(at, _)| *at <= Instant::now()) {
            let Some((_, place)) = due.pop_front() else { break };
            if let Some(Some(stream)) = connections.get_mut(place)
                && stream.write_all(ANSWER).is_ok()
            {
                served.fetch_add(1, Relaxed);
            }
        }
        std::thread::sleep(Duration::from_micros(500));
    }
}
