//! A TCP or UDP session to its backend, for the stream part of nginx. Its attempts are [`crate::peer`]'s.

use crate::ffi::Worker;
use crate::records::Held;
use oxigress_core::model::StreamPort;
use oxigress_core::session;

/// The backend of the port that a session came to. `copy` takes its id out of shared memory.
pub fn backend_of_port<T>(
    worker: &Worker,
    port: StreamPort,
    copy: impl FnOnce(&[u8]) -> T,
) -> Option<T> {
    let guard = worker.reader().read();
    session::backend_of_port(&Held(&guard), port).map(copy)
}

/// The backend that connections for this server name are passed through to; `None`: nginx terminates them.
pub fn passthrough<T>(
    worker: &Worker,
    server_name: &[u8],
    copy: impl FnOnce(&[u8]) -> T,
) -> Option<T> {
    let guard = worker.reader().read();
    session::passthrough(&Held(&guard), server_name).map(copy)
}
