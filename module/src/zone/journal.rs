//! The journal's agent: one worker of an nginx keeps the journal of its zone, or follows the journal of the nginx
//! that took over.
//!
//! | zone | lock on the journal | a step |
//! |---|---|---|
//! | leader | ours | writes what changed; a claim of a later zone makes it a follower |
//! | leader | an earlier zone's | claims it, and is served without a journal until it is ours |
//! | leader | a later zone's | becomes a follower |
//! | follower | another's | claims it if this zone is the later one; applies what the other wrote |
//! | follower | nobody's | applies the rest and becomes the leader: at once if it had claimed it, else after a while, since a worker that died may only have to be replaced |
//!
//! A follower takes no writes: its workers end soon, or its nginx is about to become the leader.

use crate::zone::records;
use crate::zone::{Patience, ZoneLock};
use oxigress_store::journal::{
    Acquired, Claim, Format, Ownership, ReplayError, Stop, Tail, Writer,
};
use oxigress_store::{Role, Store};
use std::cmp::Ordering;
use std::io;
use std::path::{Path, PathBuf};

/// Steps for which an earlier zone finds the journal free before it takes it back.
const FREE_FOR: u32 = 5;

/// Steps without a look at an owner's journal that could not be taken.
const PAUSE: u32 = 25;

/// How records stand in a journal.
const FORMAT: Format = Format { version: records::JOURNAL_VERSION, cells: records::cells };

/// Why a step did nothing; the next one tries again.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    /// The file system says no.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// What another nginx wrote does not fit.
    #[error("cannot apply the journal of the other nginx: {0}")]
    Replay(#[from] ReplayError),
    /// A writer holds the store.
    #[error("the zone's write lock is held too long")]
    Busy,
}

/// One worker's part in the journal.
pub struct Agent {
    store: Store,
    lock: ZoneLock,
    path: PathBuf,
    pid: u32,
    state: State,
    /// For the error log.
    messages: Vec<String>,
    /// Why the last step did nothing.
    complaint: Option<String>,
}

enum State {
    /// The journal is not ours.
    Waiting(Waiting),
    /// It is. The writer goes before the lock does.
    Keeping { writer: Writer, ownership: Ownership },
}

#[derive(Default)]
struct Waiting {
    tail: Option<Tail>,
    claim: Option<Claim>,
    /// Steps since it was somebody's.
    free_for: u32,
    /// Steps until the owner's journal is looked at again.
    pause: u32,
}

impl Agent {
    /// For process `pid`; the file may not be there yet.
    pub fn new(store: Store, lock: ZoneLock, path: PathBuf, pid: u32) -> Self {
        let state = State::Waiting(Waiting::default());
        Agent { store, lock, path, pid, state, messages: Vec::new(), complaint: None }
    }

    /// What is to be logged: news, and why the last step did nothing.
    pub fn report(&mut self) -> (Vec<String>, Option<String>) {
        (std::mem::take(&mut self.messages), self.complaint.take())
    }

    /// One step of the zone's agent. May take as long as writing all records takes; any thread.
    pub fn step(&mut self) {
        self.complaint =
            self.try_step().err().map(|error| format!("{}: {error}", self.path.display()));
    }

    fn try_step(&mut self) -> Result<(), StepError> {
        match &mut self.state {
            State::Keeping { writer, ownership } => {
                if !ownership.is_in_place() {
                    // Somebody removed the lock, so that another nginx could not see it.
                    return self.let_go();
                }
                let claim = Claim::is_made(&self.path);
                if self.store.role() == Role::Leader && !matches!(claim, Ok(true)) {
                    // The step first: it lets go of the generation before, whatever else fails.
                    writer.step()?;
                    return Ok(claim.map(drop)?);
                }
                self.give_way()
            }
            State::Waiting(_) => self.wait(),
        }
    }

    /// Writes what is left when the worker ends, and lets another worker be the agent.
    pub fn finish(&mut self) {
        let result = self.let_go();
        self.store.resign(self.pid);
        self.complaint = result.err().map(|error| format!("{}: {error}", self.path.display()));
    }

    fn let_go(&mut self) -> Result<(), StepError> {
        let result = match &mut self.state {
            State::Keeping { writer, .. } => writer.step(),
            State::Waiting(_) => Ok(()),
        };
        self.state = State::Waiting(Waiting::default());
        Ok(result?)
    }

    /// Lets a later zone have the journal, with all that was written here.
    fn give_way(&mut self) -> Result<(), StepError> {
        self.set_role(Role::Follower)?;
        // Nothing more is written to this store but what its new owner writes.
        let result = self.let_go();
        self.messages
            .push("a newer nginx claimed the journal; this one stops accepting writes".into());
        result
    }

    fn set_role(&self, role: Role) -> Result<(), StepError> {
        let write = Patience::THREAD.write(&self.store, &self.lock);
        write.ok_or(StepError::Busy)?.set_role(role);
        Ok(())
    }

    fn wait(&mut self) -> Result<(), StepError> {
        let State::Waiting(waiting) = &mut self.state else { return Ok(()) };
        let (path, birth, role) = (&self.path, self.store.birth(), self.store.role());
        waiting.free_for = match Ownership::is_free(path)? {
            true => waiting.free_for + 1,
            false => 0,
        };
        let may_take =
            role == Role::Leader || waiting.claim.is_some() || waiting.free_for > FREE_FOR;
        if waiting.free_for > 0 {
            return match may_take {
                true => self.take(),
                false => Ok(()),
            };
        }
        match Ownership::birth(path)?.map(|owner| owner.cmp(&birth)) {
            Some(Ordering::Less) if waiting.claim.is_none() => waiting.claim = Claim::make(path)?,
            Some(Ordering::Greater) if role == Role::Leader => self.set_role(Role::Follower)?,
            _ => {}
        }
        self.follow()
    }

    /// Takes a journal that is nobody's.
    fn take(&mut self) -> Result<(), StepError> {
        let Acquired::Owned(ownership) = Ownership::acquire(&self.path, self.store.birth())? else {
            return Ok(());
        };
        if self.store.role() == Role::Follower {
            if let Err(error) = self.follow() {
                self.messages.push(format!("the end of the journal could not be applied: {error}"));
            }
            self.set_role(Role::Leader)?;
            self.messages.push("this nginx has taken over the journal and accepts writes".into());
        }
        let writer = Writer::new(self.store, &self.path, FORMAT, self.pid);
        // Another thread of this zone may be about to let it go.
        let Some(mut writer) = writer else { return Ok(()) };
        // Of the writer, which holds the generation: on this thread nothing else keeps its memory from being freed and written.
        if writer.generation() == 0 {
            // Nothing was ever written here: what stands in the file and could not be used stays.
            return Ok(());
        }
        let result = writer.step();
        self.state = State::Keeping { writer, ownership };
        Ok(result?)
    }

    /// Applies what the owner wrote.
    fn follow(&mut self) -> Result<(), StepError> {
        let State::Waiting(waiting) = &mut self.state else { return Ok(()) };
        if self.store.role() == Role::Leader {
            return Ok(());
        }
        if waiting.pause > 0 {
            waiting.pause -= 1;
            return Ok(());
        }
        if waiting.tail.as_ref().is_none_or(Tail::is_replaced) {
            waiting.tail = Tail::open(&self.path, FORMAT)?;
        }
        let Some(tail) = waiting.tail.as_mut().filter(|tail| tail.has_more()) else {
            return Ok(());
        };
        let result = replay(tail, &self.store, &self.lock);
        if result.is_err() {
            // It stands in the middle of nothing, and all of it is read again.
            (waiting.tail, waiting.pause) = (None, PAUSE);
        }
        result.map(drop)
    }
}

/// Takes all there is; a base that is not there yet changes nothing.
fn replay(tail: &mut Tail, store: &Store, lock: &ZoneLock) -> Result<Stop, StepError> {
    let mut transaction = Patience::THREAD.write(store, lock).ok_or(StepError::Busy)?;
    transaction.free_all();
    let stop = tail.replay(&mut transaction)?;
    if tail.has_base() {
        transaction.commit().map_err(ReplayError::from)?;
    }
    Ok(stop)
}

/// What a zone that was just made starts with.
pub struct Start {
    /// Something of the journal is live.
    pub is_loaded: bool,
    /// What an operator should know.
    pub warning: Option<String>,
}

/// Fills a store that was just made from the journal at `path`. Another nginx that keeps this journal goes on as
/// the leader until it gives way.
pub fn load(store: &Store, lock: &ZoneLock, path: &Path) -> Start {
    let mut start = Start { is_loaded: false, warning: None };
    let warn = |why: String| Some(format!("journal {}: {why}", path.display()));
    match Tail::open(path, FORMAT) {
        Ok(None) => {}
        Err(error) => start.warning = warn(format!("{error}; nginx starts without it")),
        Ok(Some(mut tail)) => {
            let result = replay(&mut tail, store, lock);
            start.is_loaded = result.is_ok() && tail.has_base();
            start.warning = match result {
                Err(error) => warn(format!("{error}; nginx starts without it")),
                Ok(Stop::End) => None,
                Ok(Stop::Torn { bytes }) => {
                    warn(format!("its last {bytes} bytes are incomplete and were ignored"))
                }
                Ok(Stop::Damaged { at }) => {
                    warn(format!("damaged at byte {at}, all before that is used"))
                }
            };
        }
    }
    match Ownership::is_free(path) {
        Ok(true) => {}
        Ok(false) => {
            if let Some(mut transaction) = store.try_write(lock) {
                transaction.set_role(Role::Follower);
            }
        }
        Err(error) => start.warning = warn(error.to_string()),
    }
    start
}

/// Makes `to` hold what `from` holds, for a zone of another size. `is_final`: `from` takes no more writes.
///
/// Cells begin anew.
pub fn copy(
    from: (&Store, &ZoneLock),
    to: (&Store, &ZoneLock),
    is_final: bool,
) -> Result<(), StepError> {
    let write = |(store, lock)| Patience::THREAD.write(store, lock).ok_or(StepError::Busy);
    // Nobody changes it meanwhile.
    let mut source = write(from)?;
    if is_final {
        source.set_role(Role::Follower);
    }
    let mut target = write(to)?;
    let mut result = Ok(());
    let mut stale = Vec::new();
    target.for_each(|record| {
        if source.get(record.kind(), record.key()).is_none() {
            stale.push((record.kind(), record.key().to_vec()));
        }
    });
    for (kind, key) in stale {
        target.remove(kind, &key).map_err(ReplayError::from)?;
    }
    source.for_each(|record| {
        if result.is_ok() {
            let (kind, key) = (record.kind(), record.key());
            result = target.upsert(kind, key, record.value(), FORMAT.cells).map(drop);
        }
    });
    result.map_err(ReplayError::from)?;
    target.commit().map_err(ReplayError::from)?;
    Ok(())
}
