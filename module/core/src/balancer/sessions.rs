//! How many TCP, UDP and TLS sessions a worker has open at once.
//!
//! Nothing in a session says that it has come through here before, as `CDN-Loop` does in a request. One that leads over another
//! gateway, or over the address of a Service, back to its own port would open the next one, until nobody has a connection.
//!
//! Shape:   sessions have three quarters of a worker's connections, two each, so requests have a quarter. A port whose sessions
//!          no server name tells apart has half of what there is for sessions.
//! Errors:  a session that is refused is closed.

use crate::model::StreamPort;
use std::collections::BTreeMap;
use std::fmt;

/// Of `worker_connections`, one in so many is for requests alone.
const OF_REQUESTS: usize = 4;
/// The connections of a session: the client's and the endpoint's.
const OF_SESSION: usize = 2;

/// The sessions of a worker that are open.
#[derive(Debug, Default)]
pub struct OpenSessions {
    all: usize,
    by_port: BTreeMap<StreamPort, usize>,
}

/// Why a session is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TooMany {
    /// The worker has no more connections for sessions.
    All,
    /// The port has as many as one port may have.
    OnPort(StreamPort),
}

impl fmt::Display for TooMany {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TooMany::All => f.write_str("this worker has as many sessions as leave a quarter of its connections to requests")?,
            TooMany::OnPort(port) => {
                write!(f, "{port} has half of the sessions that a worker may have")?;
            }
        }
        f.write_str(": raise max-worker-connections, unless they go in a circle")
    }
}

impl OpenSessions {
    /// Counts one more; `port`: its port, if that has no server names. `connections`: those of the worker.
    pub fn begin(&mut self, connections: usize, port: Option<StreamPort>) -> Result<(), TooMany> {
        let most = (connections - connections / OF_REQUESTS) / OF_SESSION;
        if self.all >= most {
            return Err(TooMany::All);
        }
        if let Some(port) = port {
            let count = self.by_port.entry(port).or_default();
            if *count >= most.div_ceil(2) {
                return Err(TooMany::OnPort(port));
            }
            *count += 1;
        }
        self.all += 1;
        Ok(())
    }

    /// One is over.
    pub fn end(&mut self, port: Option<StreamPort>) {
        self.all = self.all.saturating_sub(1);
        let Some(port) = port else { return };
        let left = self.by_port.get(&port).map_or(0, |count| count.saturating_sub(1));
        match left {
            0 => drop(self.by_port.remove(&port)),
            left => drop(self.by_port.insert(port, left)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_leave_connections_to_requests_and_ports_leave_sessions_to_each_other() {
        let port = |text| Some(StreamPort::parse(text).unwrap());
        let (tcp, udp) = (port("tcp/53"), port("udp/53"));
        let mut open = OpenSessions::default();
        let mut begin = |port, times: usize| {
            (0..times).map(|_| open.begin(80, port)).find(Result::is_err).unwrap_or(Ok(()))
        };
        assert_eq!(begin(tcp, 15), Ok(()));
        assert_eq!(begin(tcp, 1), Err(TooMany::OnPort(tcp.unwrap())));
        assert_eq!(begin(None, 10), Ok(()), "of 60 connections, two each");
        assert_eq!(begin(udp, 5), Ok(()));
        assert_eq!([begin(udp, 1), begin(None, 1)], [Err(TooMany::All); 2]);
        open.end(tcp);
        assert_eq!(open.begin(80, tcp), Ok(()));
        open.end(None);
        assert_eq!(open.begin(80, tcp), Err(TooMany::OnPort(tcp.unwrap())));
        (0..15).for_each(|_| open.end(tcp));
        (0..5).for_each(|_| open.end(udp));
        (0..9).for_each(|_| open.end(None));
        assert_eq!((open.all, open.by_port.len()), (0, 0));
    }
}
