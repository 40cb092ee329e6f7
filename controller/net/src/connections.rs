//! Connections of a listener of this program: so many, so long, so that whoever holds many keeps no probe out.
//!
//! Shape:   [`serve`] accepts and never stops doing so. Each connection has a [`ConnectionSlot`]; a new one for which there is
//!          no slot takes that of the connection that [`List::victim`] names.
//! Units:   [`Bounds`] counts connections, of all clients and of one address.
//! Errors:  none: a connection over its time, or whose slot is taken, is closed without a word.

use hyper::HeaderMap;
use hyper::body::{Body, Incoming};
use hyper::service::HttpService;
use hyper_util::rt::TokioIo;
use oxigress_core::http::head;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};

/// Largest head of a request, hyper's buffer for writing included.
const MAX_HEAD_BYTES: usize = 16 << 10;

/// Before a connection takes another one's slot: 32 of one address are open so many times longer.
const PACE: Duration = Duration::from_millis(1);

/// What the connections of one listener may take.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// The most connections of all clients.
    pub all: usize,
    /// The most connections of one address.
    pub of_client: usize,
    /// A connection without a request that is worked on is closed after this time, whatever it does meanwhile: waits
    /// between requests, sends a head, reads an answer.
    pub idle: Duration,
}

/// What a request that came through an ingress gets from the program's own servers, with 403.
pub const PROXIED: &str =
    "this server answers no requests that a proxy passes on (CDN-Loop): ask it directly\n";

/// Whether an ingress of ours has passed a request on. Endpoints may be addresses of other replicas, which nobody's list of
/// own addresses has.
pub fn is_proxied(headers: &HeaderMap) -> bool {
    let said = headers.get_all("cdn-loop").iter();
    said.map(|value| head::passes(value.as_bytes())).sum::<usize>() > 0
}

/// Accepts connections until the process ends, and has each of them served by `converse`.
pub async fn serve<F: Future<Output = ()> + Send>(
    listener: TcpListener,
    bounds: Bounds,
    converse: impl Fn(TcpStream, Arc<ConnectionSlot>) -> F + Send + Sync + 'static,
) {
    let (list, converse) = (Arc::new(List::default()), Arc::new(converse));
    loop {
        let Ok((stream, client)) = listener.accept().await else {
            // Out of file descriptors, mostly: trying again at once would only burn the CPU.
            sleep(Duration::from_millis(100)).await;
            continue;
        };
        let client = client.ip().to_canonical();
        if list.open().victim(client, &bounds).is_some() {
            sleep(PACE).await;
        }
        let slot = Arc::new(list.clone().admit(client, &bounds));
        let converse = converse.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = converse(stream, slot.clone()) => {}
                () = slot.is_over(bounds.idle) => {}
            }
        });
    }
}

/// Answers the requests of one connection, in HTTP/1, until either side closes it.
pub async fn converse<T, S>(stream: T, service: S) -> hyper::Result<()>
where
    T: AsyncRead + AsyncWrite + Unpin,
    S: HttpService<Incoming, ResBody: Body<Error: Into<BoxError>> + 'static, Error: Into<BoxError>>,
{
    let mut server = hyper::server::conn::http1::Builder::new();
    server.max_buf_size(MAX_HEAD_BYTES);
    server.serve_connection(TokioIo::new(stream), service).await
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// All connections of a listener.
#[derive(Default)]
struct List(Mutex<Open>);

#[derive(Default)]
struct Open {
    last: u64,
    all: BTreeMap<u64, Entry>,
}

struct Entry {
    client: IpAddr,
    /// A request is worked on.
    is_busy: bool,
    /// When that began or ended last.
    since: Instant,
    close: Arc<Notify>,
}

impl List {
    fn open(&self) -> MutexGuard<'_, Open> {
        // Nothing panics while it is locked, and a count that is off is no reason to stop.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn admit(self: Arc<Self>, client: IpAddr, bounds: &Bounds) -> ConnectionSlot {
        let close = Arc::new(Notify::new());
        let mut open = self.open();
        if let Some(victim) = open.victim(client, bounds)
            && let Some(entry) = open.all.remove(&victim)
        {
            entry.close.notify_one();
        }
        open.last += 1;
        let number = open.last;
        let (is_busy, since) = (false, Instant::now());
        open.all.insert(number, Entry { client, is_busy, since, close: close.clone() });
        drop(open);
        ConnectionSlot { list: self, number, close }
    }
}

impl Open {
    /// The connection that makes room for a new one of `client`, if one has to: of this client where it has as many as
    /// one may have, else of the client that has most. One that waits goes before one that is worked for, and the one
    /// that has waited longest first.
    fn victim(&self, client: IpAddr, bounds: &Bounds) -> Option<u64> {
        let mut counts: BTreeMap<IpAddr, usize> = BTreeMap::new();
        for entry in self.all.values() {
            *counts.entry(entry.client).or_default() += 1;
        }
        let count = |client| counts.get(&client).copied().unwrap_or_default();
        let has_many = count(client) >= bounds.of_client;
        if !has_many && self.all.len() < bounds.all {
            return None;
        }
        let all = self.all.iter().filter(|(_, entry)| !has_many || entry.client == client);
        let rank = |entry: &Entry| (Reverse(count(entry.client)), entry.is_busy, entry.since);
        all.min_by_key(|(_, entry)| rank(entry)).map(|(number, _)| *number)
    }
}

/// A connection's entry in the list; it leaves with it.
pub struct ConnectionSlot {
    list: Arc<List>,
    number: u64,
    close: Arc<Notify>,
}

impl ConnectionSlot {
    /// A request is worked on while this is held.
    pub fn work(self: &Arc<Self>) -> Work {
        self.mark(true);
        Work(self.clone())
    }

    fn mark(&self, is_busy: bool) {
        if let Some(entry) = self.list.open().all.get_mut(&self.number) {
            (entry.is_busy, entry.since) = (is_busy, Instant::now());
        }
    }

    /// Waits until another connection has taken the slot, or until it waits longer than `idle`.
    async fn is_over(&self, idle: Duration) {
        loop {
            let now = Instant::now();
            let end = match self.list.open().all.get(&self.number) {
                None => return,
                Some(entry) if entry.is_busy => now + idle,
                Some(entry) => entry.since + idle,
            };
            if end <= now {
                return;
            }
            tokio::select! {
                () = self.close.notified() => return,
                () = sleep_until(end) => {}
            }
        }
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.list.open().all.remove(&self.number);
    }
}

/// A request is worked on.
pub struct Work(Arc<ConnectionSlot>);

impl Drop for Work {
    fn drop(&mut self) {
        self.0.mark(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    const BOUNDS: Bounds = Bounds { all: 6, of_client: 3, idle: Duration::from_secs(10) };

    fn client(last: u8) -> IpAddr {
        IpAddr::from([127, 0, 0, last])
    }

    fn numbers(list: &List) -> Vec<u64> {
        list.open().all.keys().copied().collect()
    }

    #[test]
    fn a_request_that_an_ingress_has_passed_on_is_told() {
        let mut headers = HeaderMap::new();
        assert!(!is_proxied(&headers));
        headers.append("CDN-Loop", "other.example, another; a=b".parse().unwrap());
        assert!(!is_proxied(&headers));
        headers.append("CDN-Loop", "other, Oxigress; v=1".parse().unwrap());
        assert!(is_proxied(&headers));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_at_its_bound_loses_its_own_longest_idle_connection() {
        let list = Arc::new(List::default());
        let mut places = Vec::new();
        for last in [1, 1, 2, 1] {
            places.push(Arc::new(list.clone().admit(client(last), &BOUNDS)));
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        let working = places[0].work();
        let fifth = list.clone().admit(client(1), &BOUNDS);
        assert_eq!(numbers(&list), [1, 3, 4, 5], "2 waited longest, 1 is worked for");
        places[1].is_over(BOUNDS.idle).await;
        // All of its own are worked for: the oldest goes.
        let (_fourth, fifth) = (places[3].work(), Arc::new(fifth));
        let _work = fifth.work();
        let _sixth = list.clone().admit(client(1), &BOUNDS);
        assert_eq!(numbers(&list), [3, 4, 5, 6]);
        drop(working);
        drop(places);
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_list_loses_one_of_the_client_that_has_most() {
        let list = Arc::new(List::default());
        let admit = |last| Arc::new(list.clone().admit(client(last), &BOUNDS));
        let all: Vec<_> = [2, 3, 1, 1, 4, 5].map(admit).into();
        let _new = admit(6);
        assert_eq!(numbers(&list), [1, 2, 4, 5, 6, 7]);
        let _newer = admit(7);
        assert_eq!(numbers(&list), [2, 4, 5, 6, 7, 8], "all have one: the oldest");
        drop(all);
        assert_eq!(numbers(&list), [7, 8]);
    }

    #[tokio::test]
    async fn requests_among_more_connections_than_there_are_places_for_are_answered() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        // All of them are in the kernel's queue before the first one is accepted.
        let (mut idle, mut probes) = (Vec::new(), Vec::new());
        for number in 0..120 {
            let mut stream = TcpStream::connect(address).await.unwrap();
            if number % 10 == 0 {
                stream.write_all(b"?").await.unwrap();
                probes.push(stream);
            } else {
                idle.push(stream);
            }
        }
        let bounds = Bounds { all: 30, of_client: 10, idle: Duration::from_secs(10) };
        let answer = async |mut stream: TcpStream, slot: Arc<ConnectionSlot>| {
            let mut byte = [0];
            if stream.read_exact(&mut byte).await.is_ok() {
                let _work = slot.work();
                let _ = stream.write_all(b"!").await;
            }
        };
        let serving = tokio::spawn(serve(listener, bounds, answer));
        for mut probe in probes {
            probe.read_exact(&mut [0]).await.expect("an answer");
        }
        serving.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn time_without_a_request_is_bounded() {
        let list = Arc::new(List::default());
        let slot = Arc::new(list.clone().admit(client(1), &BOUNDS));
        let start = Instant::now();
        let work = slot.work();
        let waiting = tokio::spawn({
            let slot = slot.clone();
            async move { slot.is_over(BOUNDS.idle).await }
        });
        tokio::time::sleep(Duration::from_secs(25)).await;
        assert!(!waiting.is_finished(), "it is worked for");
        drop(work);
        waiting.await.unwrap();
        assert_eq!(start.elapsed(), Duration::from_secs(35));
    }
}
