//! The journal: the records of a store in a file, for the next start of nginx.
//!
//! Shape:   one file of frames: first a base, which holds every record, then a delta for each step. A step writes
//!          what differs between the generation that is live and the one of the last step, however many
//!          there were between them. When the deltas outgrow the base, a new file replaces the old one.
//! Writing: no part of a write. [`Writer`] pins a generation, as a reader does, and compares indexes: time in
//!          proportion to what changed, on any thread, and nothing that a writer waits for.
//! Reading: up to the last complete and valid frame; a damaged base is no base, so half a state is
//!          never served. [`Tail`] reads on when the file grows.
//! Agent:   one process writes the journal of a store. Several stores may share a journal, those of an nginx and
//!          of the nginx that replaces it: a lock on `PATH.lock` decides which store owns it. An earlier store gives way to a
//!          later one, which claims it with a lock on `PATH.claim`, and follows it from then on; the kernel frees
//!          the locks of a process that dies.
//! Errors:  those of the file system, which leave the store unchanged.
//! Rejected: a frame for each write, by the writer: file operations on the event loop, and an order
//!          to be kept among all workers.

mod frame;
mod lock;
mod tail;
mod writer;

pub use lock::{Acquired, Claim, Ownership};
pub use tail::{ReplayError, Stop, Tail};
pub use writer::Writer;

use crate::{Cells, Store};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Whether a store accepts writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Role {
    /// This nginx accepts writes and owns the journal.
    Leader = 0,
    /// Another store has taken over, and this one applies its journal.
    Follower = 1,
}

/// How records become frames and frames records.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    /// Number of the encoding of keys and values: a journal of another one is not read.
    pub version: u64,
    /// Cells of a record, as in [`crate::Transaction::upsert`].
    pub cells: Cells,
}

/// How far the journal is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The process that keeps it; 0: none yet.
    pub agent: u32,
    /// The last generation in the file; 0: none yet.
    pub generation: u64,
}

impl Store {
    /// The time when the store was created, on the monotonic clock, which all processes share; later stores take over
    /// from earlier ones.
    pub fn birth(&self) -> u64 {
        self.memory.header().journal.birth.load(Relaxed)
    }

    /// Says when the store was made.
    pub fn set_birth(&self, birth: u64) {
        self.memory.header().journal.birth.store(birth, Relaxed);
    }

    /// Who keeps the journal, and how far it is.
    pub fn progress(&self) -> Progress {
        let journal = &self.memory.header().journal;
        Progress { agent: journal.agent.load(Relaxed), generation: journal.written.load(Relaxed) }
    }

    /// Makes process `pid` the agent, unless another one is and lives. Answers whether it is.
    pub fn become_agent(&self, pid: u32) -> bool {
        let agent = &self.memory.header().journal.agent;
        let holder = agent.load(Acquire);
        holder == pid
            || (holder == 0 || !(self.is_alive)(holder))
                && agent.compare_exchange(holder, pid, Release, Relaxed).is_ok()
    }

    /// Lets another process become the agent.
    pub fn resign(&self, pid: u32) {
        let agent = &self.memory.header().journal.agent;
        let _ = agent.compare_exchange(pid, 0, Release, Relaxed);
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests;
