//! TLS passthrough: the server name decides between nginx's own two handlers, `proxy_pass` and `pass`.

use crate::stream::Stream;
use crate::stream::sessions::{Arrived, Tls};
use crate::system::log;
use crate::system::log::Seldom;
use crate::worker;
use crate::worker::Worker;
use nginx::EventLoop;
use nginx::stream::Session;
use nginx::stream::divide::Divide;
use oxigress_core::router::session::{RANDOM, client_random};
use rustix::net::{RecvFlags, recv};
use std::cell::RefCell;
use std::collections::HashSet;

/// The id of the backend that a session is passed through to, as nginx keeps it with the session; empty: it is closed.
pub struct SessionBackend(pub Vec<u8>);

/// More than the records that a ClientHello's `random` ends in, also where each has one byte.
const PEEKED: usize = 512;

/// The session is to end, not to be terminated here: it goes to a backend that does not exist.
static NOWHERE: SessionBackend = SessionBackend(Vec::new());

/// The sessions of servers with `ingress_passthrough`.
pub struct Passthrough;

impl Divide for Passthrough {
    type Module = Stream;
    const NAME: &'static str = "passthrough";

    fn is_proxied(session: &Session) -> bool {
        is_passed_through(session).is_some()
    }
}

/// `None`: nginx terminates it.
fn is_passed_through(session: &Session) -> Option<()> {
    let worker = worker::current(session.event_loop())?;
    // A client may have sent none.
    let name = session.variable::<Stream>(session.server_conf::<Stream>().server_name?);
    let name = name.unwrap_or_default();
    let backend = match Arrived::of(session)?.of_tls(worker, name) {
        Tls::Terminate => return None,
        Tls::Forward(backend) => backend,
        Tls::Close => {
            session.set_context::<Stream>(&NOWHERE);
            return Some(());
        }
    };
    if is_in_a_circle(session, worker) {
        let name = String::from_utf8_lossy(name);
        let line = format_args!(
            "ingress: TLS connection for \"{name}\" looped back to this nginx or ended early; closed. The Service of its \
             ssl-passthrough must point to endpoints, not to this gateway"
        );
        static SELDOM: Seldom = Seldom::new();
        if SELDOM.is_due() {
            log::write(log::ERROR, session.connection().log(), line);
        }
        session.set_context::<Stream>(&NOWHERE);
    } else if session.new_context::<Stream>(SessionBackend(backend)).is_none() {
        session.set_context::<Stream>(&NOWHERE);
    }
    Some(())
}

/// Whether the connection is one that this worker passes through already, and came back over the backend. Counts it as
/// passed through until it ends, where it is not.
fn is_in_a_circle(session: &Session, worker: &Worker) -> bool {
    // Only what begins with a ClientHello is passed through.
    let Some(random) = random(session) else { return true };
    if !worker.part::<PassedThrough>().begin(random) {
        return true;
    }
    let counted = Counted { here: session.event_loop(), random };
    session.pool().keep(counted).is_none()
}

/// The random of what has been read of the client's bytes, or lies in the socket: nginx reads ahead there, if nothing asked
/// for more.
fn random(session: &Session) -> Option<[u8; RANDOM]> {
    let connection = session.connection();
    if let Some(buffer) = connection.read_ahead().filter(|buffer| buffer.unread_bytes() > 0) {
        return buffer.look(client_random);
    }
    let mut peeked = [0; PEEKED];
    let (count, _) = recv(connection.descriptor()?, &mut peeked, RecvFlags::PEEK).ok()?;
    client_random(peeked.get(..count)?)
}

/// The TLS handshakes that a worker passes through: one that comes again has gone in a circle.
#[derive(Default)]
pub struct PassedThrough(RefCell<HashSet<[u8; RANDOM]>>);

impl PassedThrough {
    /// Notes the handshake of a connection that is to be passed through; false: one with this `random` is already.
    fn begin(&self, random: [u8; RANDOM]) -> bool {
        self.0.try_borrow_mut().is_ok_and(|mut all| all.insert(random))
    }

    /// A connection that was passed through is over.
    fn end(&self, random: &[u8; RANDOM]) {
        if let Ok(mut all) = self.0.try_borrow_mut() {
            all.remove(random);
        }
    }
}

/// A connection that is passed through, until its pool goes.
struct Counted {
    here: EventLoop,
    random: [u8; RANDOM],
}

impl Drop for Counted {
    fn drop(&mut self) {
        if let Some(worker) = worker::current(self.here) {
            worker.part::<PassedThrough>().end(&self.random);
        }
    }
}
