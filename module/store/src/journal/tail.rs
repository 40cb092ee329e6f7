//! Reading a journal, and reading on when it grows.

use super::Format;
use super::frame::{Change, FILE_HEAD, FRAME_HEAD, Head, file_head};
use super::lock::is_at;
use crate::{Transaction, WriteError, WriterLock};
use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// A place in a journal: what stands before it was taken.
pub struct Tail {
    path: PathBuf,
    format: Format,
    file: File,
    /// Where the next frame begins.
    at: u64,
    /// Its sequence.
    sequence: u32,
}

/// Changes take more bytes than the records of a store by their heads: less than this and than their bytes.
const HEADS: u64 = 1024 * 1024;

/// Why a replay ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// All of the file was taken.
    End,
    /// The rest of the file is not a whole frame: it is being written, or was cut.
    Torn {
        /// What was left out.
        bytes: u64,
    },
    /// The next frame is whole and not right.
    Damaged {
        /// Where it begins.
        at: u64,
    },
}

/// Why the changes of a journal could not be written to the store. The write can only be given up.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The file cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The store does not take it.
    #[error(transparent)]
    Store(#[from] WriteError),
}

impl Tail {
    /// The beginning of the journal at `path`; `None` if there is none. One that cannot be read is an error that says
    /// why.
    pub fn open(path: &Path, format: Format) -> io::Result<Option<Tail>> {
        // A link or a pipe that somebody left there is not followed or waited for.
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        let odd = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
        if !file.metadata()?.is_file() {
            return Err(odd("it is no plain file"));
        }
        let mut head = [0; FILE_HEAD as usize];
        match file.read_exact_at(&mut head, 0) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(odd("it is cut within its first bytes"));
            }
            read => read?,
        }
        if head != file_head(format.version) {
            return Err(odd("it is of another version"));
        }
        Ok(Some(Tail { path: path.into(), format, file, at: FILE_HEAD, sequence: 0 }))
    }

    /// Another file stands at the path by now: this one is not written to any more.
    pub fn is_replaced(&self) -> bool {
        !is_at(&self.file, &self.path)
    }

    /// There is more to be taken.
    pub fn has_more(&self) -> bool {
        self.file.metadata().is_ok_and(|file| file.len() > self.at)
    }

    /// The base was taken: the store holds a state.
    pub fn has_base(&self) -> bool {
        self.sequence > 0
    }

    /// Writes the changes of all frames that are whole and right to the store. A base removes every record that
    /// does not stand in it. After an error the tail stands in the middle of nothing: open another one.
    pub fn replay<L: WriterLock>(
        &mut self,
        transaction: &mut Transaction<'_, L>,
    ) -> Result<Stop, ReplayError> {
        // Whoever could make the file longer could otherwise use up the memory of the process.
        let limit = 2 * transaction.space().capacity_bytes as u64 + HEADS;
        loop {
            let frame = match self.frame(limit)? {
                Ok(frame) => frame,
                Err(stop) => return Ok(stop),
            };
            if !is_whole(&frame) {
                return Ok(Stop::Damaged { at: self.at });
            }
            if self.sequence == 0 {
                remove_others(transaction, &frame)?;
            }
            for Change { kind, key, value } in Changes(&frame) {
                match value {
                    Some(value) => {
                        transaction.upsert(kind, key, value, self.format.cells)?;
                    }
                    None => {
                        transaction.remove(kind, key)?;
                    }
                }
            }
            self.at += FRAME_HEAD + frame.len() as u64;
            self.sequence += 1;
        }
    }

    /// The changes of the next frame, once it is whole and right.
    fn frame(&self, limit: u64) -> io::Result<Result<Zeroizing<Vec<u8>>, Stop>> {
        let left = self.file.metadata()?.len().saturating_sub(self.at);
        if left == 0 {
            return Ok(Err(Stop::End));
        }
        if left < FRAME_HEAD {
            return Ok(Err(Stop::Torn { bytes: left }));
        }
        let mut head = [0; FRAME_HEAD as usize];
        self.file.read_exact_at(&mut head, self.at)?;
        let head = Head::from_bytes(&head);
        if head.sequence != self.sequence || head.length > limit {
            return Ok(Err(Stop::Damaged { at: self.at }));
        }
        if head.length > left - FRAME_HEAD {
            return Ok(Err(Stop::Torn { bytes: left }));
        }
        // It holds private keys.
        let mut bytes = Zeroizing::new(Vec::new());
        let length = usize::try_from(head.length).map_err(io::Error::other)?;
        bytes.try_reserve_exact(length).map_err(io::Error::other)?;
        bytes.resize(length, 0);
        self.file.read_exact_at(&mut bytes, self.at + FRAME_HEAD)?;
        let mut crc = crc32fast::Hasher::new();
        crc.update(&bytes);
        match Head::seal(head.length, head.sequence, crc) == head {
            true => Ok(Ok(bytes)),
            false => Ok(Err(Stop::Damaged { at: self.at })),
        }
    }
}

/// The changes of a frame, up to one that is not whole. They are not collected: the file says how many there are.
struct Changes<'a>(&'a [u8]);

impl<'a> Iterator for Changes<'a> {
    type Item = Change<'a>;

    fn next(&mut self) -> Option<Change<'a>> {
        Change::take(&mut self.0)
    }
}

fn is_whole(frame: &[u8]) -> bool {
    let mut changes = Changes(frame);
    changes.by_ref().for_each(drop);
    changes.0.is_empty()
}

fn remove_others<L: WriterLock>(
    transaction: &mut Transaction<'_, L>,
    base: &[u8],
) -> Result<(), WriteError> {
    let mut others = HashSet::new();
    transaction.for_each(|record| {
        others.insert((record.kind(), record.key().to_vec()));
    });
    if !others.is_empty() {
        for change in Changes(base) {
            others.remove(&(change.kind, change.key.to_vec()));
        }
    }
    for (kind, key) in others {
        transaction.remove(kind, &key)?;
    }
    Ok(())
}
