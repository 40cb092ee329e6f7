//! How many TCP, UDP and TLS sessions a worker has open at once.
//!
//! Nothing in a session says that it has come through here before, as `CDN-Loop` does in a request. One that leads over another
//! gateway, or over the address of a Service, back to its own port would open the next one, until nobody has a connection.
//!
//! Shape:   sessions have three quarters of a worker's connections, two each, so requests have a quarter. A port whose sessions
//!          no server name tells apart has half of what there is for sessions. A namespace has at most three times what is left,
//!          whatever its ports and server names are: so one alone has three quarters, and however many hold all that they may,
//!          something is left for another one.
//! Errors:  a session that is refused is closed.

use crate::model::StreamPort;
use std::collections::BTreeMap;
use std::fmt;

/// Of `worker_connections`, one in so many is for requests alone.
const OF_REQUESTS: usize = 4;
/// The connections of a session: the client's and the endpoint's.
const OF_SESSION: usize = 2;
/// A namespace may have so many times the sessions that are left.
const OF_LEFT: usize = 3;

/// The sessions of a worker that are open.
#[derive(Debug, Default)]
pub struct OpenSessions {
    all: usize,
    by_port: BTreeMap<StreamPort, usize>,
    by_namespace: BTreeMap<Box<[u8]>, usize>,
}

/// Whose a session is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionOwner {
    /// The port that it came to, if that has no server names.
    pub port: Option<StreamPort>,
    /// The namespace of its backend.
    pub namespace: Box<[u8]>,
}

/// Why a session is closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TooMany {
    /// The worker has no more connections for sessions.
    All,
    /// The port has as many as one port may have.
    OnPort(StreamPort),
    /// A namespace has as many as leave some to others.
    OfNamespace(String),
}

impl fmt::Display for TooMany {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TooMany::All => f.write_str("this worker has as many sessions as leave a quarter of its connections to requests")?,
            TooMany::OnPort(port) => {
                write!(f, "{port} has half of the sessions that a worker may have")?;
            }
            TooMany::OfNamespace(name) => {
                write!(f, "namespace {name} has as many sessions of this worker as leave some to others")?;
            }
        }
        f.write_str(": raise max-worker-connections, unless they go in a circle")
    }
}

impl OpenSessions {
    /// Counts one more; `connections`: those of the worker.
    pub fn begin(&mut self, connections: usize, owner: &SessionOwner) -> Result<(), TooMany> {
        let most = (connections - connections / OF_REQUESTS) / OF_SESSION;
        let left = most.saturating_sub(self.all);
        let SessionOwner { port, namespace } = owner;
        let on_port = port.and_then(|port| self.by_port.get(&port)).copied().unwrap_or_default();
        let of_namespace = self.by_namespace.get(namespace).copied().unwrap_or_default();
        match port {
            _ if left == 0 => return Err(TooMany::All),
            Some(port) if on_port >= most.div_ceil(2) => return Err(TooMany::OnPort(*port)),
            _ if of_namespace >= left.saturating_mul(OF_LEFT) => {
                return Err(TooMany::OfNamespace(namespace.escape_ascii().to_string()));
            }
            _ => {}
        }
        self.all += 1;
        if let Some(port) = port {
            self.by_port.insert(*port, on_port + 1);
        }
        self.by_namespace.insert(namespace.clone(), of_namespace + 1);
        Ok(())
    }

    /// One is over.
    pub fn end(&mut self, owner: &SessionOwner) {
        self.all = self.all.saturating_sub(1);
        if let Some(port) = owner.port {
            take_one(&mut self.by_port, &port);
        }
        take_one(&mut self.by_namespace, &owner.namespace);
    }
}

/// Counts one less; what has none is forgotten.
fn take_one<K: Ord + Clone>(all: &mut BTreeMap<K, usize>, key: &K) {
    match all.get_mut(key) {
        Some(count) if *count > 1 => *count -= 1,
        _ => drop(all.remove(key)),
    }
}

/// The namespace of a backend by its id: `NAMESPACE/SERVICE/PORT` and what comes behind `//`, or `tcp/` or `udp/` and the same.
/// Of another form the id stands for itself.
pub fn namespace_of(backend: &[u8]) -> &[u8] {
    let end = backend.windows(2).position(|two| two == b"//").unwrap_or(backend.len());
    let parts: Vec<_> =
        backend.get(..end).unwrap_or_default().split(|byte| *byte == b'/').collect();
    match parts[..] {
        [namespace, _, _] | [b"tcp" | b"udp", namespace, _, _] => namespace,
        _ => backend,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(port: &str, namespace: &str) -> SessionOwner {
        SessionOwner { port: StreamPort::parse(port).ok(), namespace: namespace.as_bytes().into() }
    }

    /// Begins so many; the error of the first that is one too many.
    fn begin(open: &mut OpenSessions, owner: &SessionOwner, times: usize) -> Result<(), TooMany> {
        (0..times).try_for_each(|_| open.begin(80, owner))
    }

    #[test]
    fn sessions_leave_connections_to_requests_and_ports_leave_sessions_to_each_other() {
        let [tcp, named] = [owner("tcp/53", "a"), owner("", "b")];
        let [udp, last] = [owner("udp/53", "c"), owner("udp/53", "d")];
        let port = tcp.port.unwrap();
        let open = &mut OpenSessions::default();
        assert_eq!(begin(open, &tcp, 15), Ok(()));
        assert_eq!(begin(open, &tcp, 1), Err(TooMany::OnPort(port)));
        assert_eq!(begin(open, &named, 10), Ok(()), "of 60 connections, two each");
        assert_eq!((begin(open, &udp, 3), begin(open, &last, 2)), (Ok(()), Ok(())));
        assert_eq!(
            [begin(open, &udp, 1), begin(open, &named, 1)],
            [const { Err(TooMany::All) }; 2]
        );
        open.end(&tcp);
        assert_eq!(open.begin(80, &tcp), Err(TooMany::OfNamespace("a".into())));
        open.end(&named);
        assert_eq!(open.begin(80, &last), Ok(()), "what others leave");
        (0..14).for_each(|_| open.end(&tcp));
        (0..3).for_each(|_| open.end(&udp));
        (0..3).for_each(|_| open.end(&last));
        (0..9).for_each(|_| open.end(&named));
        assert_eq!((open.all, open.by_port.len(), open.by_namespace.len()), (0, 0, 0));
    }

    #[test]
    fn a_namespace_leaves_sessions_to_others_however_many_ports_it_has() {
        let open = &mut OpenSessions::default();
        let taken = |open: &mut OpenSessions, ports: &[&str], namespace: &str| {
            let owners: Vec<_> = ports.iter().map(|port| owner(port, namespace)).collect();
            let all = owners.iter().cycle().take(100);
            all.filter(|owner| open.begin(80, owner).is_ok()).count()
        };
        assert_eq!(taken(open, &["tcp/1", "tcp/2", "", "udp/1"], "evil"), 23, "of 30");
        assert_eq!(taken(open, &["", "tcp/1"], "worse"), 6, "of the 7 that are left");
        assert_eq!(taken(open, &["tcp/3"], "good"), 1, "of the last one");
        let full = open.begin(80, &owner("", "evil"));
        assert_eq!(full, Err(TooMany::All));
        open.end(&owner("tcp/1", "worse"));
        let full = open.begin(80, &owner("", "evil"));
        assert_eq!(full, Err(TooMany::OfNamespace("evil".into())));
        assert_eq!(open.begin(80, &owner("tcp/3", "good")), Ok(()));
    }

    #[test]
    fn an_id_says_whose_its_backend_is() {
        for (id, namespace) in [
            ("shop/web/80", "shop"),
            ("shop/web/80//tcp", "shop"),
            ("shop/web/http//ingress/web", "shop"),
            ("tcp/shop/web/80", "shop"),
            ("udp/dns/dns/53", "dns"),
            ("tcp/web/80//tcp", "tcp"),
            ("shop-web-80", "shop-web-80"),
            ("denied//shop/web", "denied//shop/web"),
            ("", ""),
        ] {
            assert_eq!(namespace_of(id.as_bytes()), namespace.as_bytes(), "{id}");
        }
    }
}
