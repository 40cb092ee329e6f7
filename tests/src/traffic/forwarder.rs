//! A fake Service: a TCP forwarder that follows the health of replicas late, as endpoint controller and kube-proxy do.
//!
//! A new connection goes to one of the replicas that count as ready, in turn, and stays there whatever is found out
//! later. What is faked is the lateness and the choice; addresses are ports of loopback.

use crate::client::{self, Address, Request};
use crate::wait::{self, runtime};
use anyhow::{Result, ensure};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// Between two looks at a replica.
const PERIOD: Duration = Duration::from_millis(50);

/// A proxy that passes bytes on to one address, as long as the program runs; the answer is where it listens.
pub fn pass_on(target: SocketAddr) -> Result<SocketAddr> {
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    listener.set_nonblocking(true)?;
    let _inside = runtime().enter();
    let listener = TcpListener::from_std(listener)?;
    let address = listener.local_addr()?;
    runtime().spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            tokio::spawn(async move {
                if let Ok(mut server) = TcpStream::connect(target).await {
                    let _ = copy_bidirectional(&mut client, &mut server).await;
                }
            });
        }
    });
    Ok(address)
}

/// Forwards until it is dropped.
pub struct Forwarder {
    /// Where clients connect, one for each port of a replica.
    pub addresses: Vec<SocketAddr>,
    replicas: Arc<Mutex<Vec<Replica>>>,
    late: Duration,
    tasks: Vec<JoinHandle<()>>,
}

struct Replica {
    ports: Vec<u16>,
    is_ready: bool,
}

impl Forwarder {
    /// For replicas with so many ports each. A change of health counts `late` after it was seen.
    pub fn start(ports: usize, late: Duration) -> Result<Self> {
        let replicas: Arc<Mutex<Vec<Replica>>> = Arc::default();
        let (mut addresses, mut tasks) = (Vec::new(), Vec::new());
        let _inside = runtime().enter();
        for index in 0..ports {
            let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            listener.set_nonblocking(true)?;
            let listener = TcpListener::from_std(listener)?;
            addresses.push(listener.local_addr()?);
            tasks.push(runtime().spawn(accept(listener, replicas.clone(), index)));
        }
        Ok(Forwarder { addresses, replicas, late, tasks })
    }

    /// Looks after a replica from now on: its ports, and the one that tells its health at `/healthz`. The answer is
    /// its number.
    pub fn add(&mut self, ports: Vec<u16>, health: u16) -> usize {
        let mut all = self.replicas.lock().expect("no panic inside");
        all.push(Replica { ports, is_ready: false });
        let number = all.len() - 1;
        let follow = follow(self.replicas.clone(), number, health, self.late);
        self.tasks.push(runtime().spawn(follow));
        number
    }

    /// Waits until a replica gets connections, or none any more.
    pub fn wait_for(&self, number: usize, is_ready: bool) -> Result<()> {
        wait::until("a replica's health", || {
            let all = self.replicas.lock().expect("no panic inside");
            let found = all.get(number).is_some_and(|replica| replica.is_ready);
            ensure!(found == is_ready, "replica {number}: {found}");
            Ok(())
        })
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

async fn follow(replicas: Arc<Mutex<Vec<Replica>>>, number: usize, health: u16, late: Duration) {
    let (address, request) = (Address::http(health), Request::get("localhost", "/healthz"));
    loop {
        let answer = client::send(&address, &request).await;
        let is_ready = answer.is_ok_and(|answer| answer.status == 200);
        // Only its own task writes it.
        let was_ready = replicas.lock().expect("no panic inside")[number].is_ready;
        if is_ready != was_ready {
            tokio::time::sleep(late).await;
            replicas.lock().expect("no panic inside")[number].is_ready = is_ready;
        }
        tokio::time::sleep(PERIOD).await;
    }
}

async fn accept(listener: TcpListener, replicas: Arc<Mutex<Vec<Replica>>>, index: usize) {
    let mut turn = 0;
    while let Ok((mut client, _)) = listener.accept().await {
        let chosen = {
            let all = replicas.lock().expect("no panic inside");
            let ready: Vec<_> = all.iter().filter(|replica| replica.is_ready).collect();
            turn += 1;
            ready.get(turn % ready.len().max(1)).map(|replica| replica.ports[index])
        };
        // Nobody is ready: a Service without endpoints refuses.
        let Some(port) = chosen else { continue };
        tokio::spawn(async move {
            let _ = client.set_nodelay(true);
            // One that listens no more refuses; the client sees its connection end.
            let Ok(mut replica) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await else {
                return;
            };
            let _ = replica.set_nodelay(true);
            let _ = copy_bidirectional(&mut client, &mut replica).await;
        });
    }
}
