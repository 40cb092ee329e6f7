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

/// A position in a journal, up to which its frames have been applied.
pub struct Tail {
    path: PathBuf,
    format: Format,
    file: File,
    /// Where the next frame begins.
    at: u64,
    sequence: u32,
}

/// An allowance for the heads of changes: a file has less than this and the bytes of its records.
const HEADS: u64 = 1024 * 1024;

/// The reason why a replay ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The end of the file was reached.
    End,
    /// The rest of the file is not a complete frame: it is being written, or was cut.
    Torn {
        /// The length of the incomplete rest, in bytes.
        bytes: u64,
    },
    /// The next frame is complete and its checksum is wrong.
    Damaged {
        /// The offset of the frame in the file.
        at: u64,
    },
}

/// Why the changes of a journal could not be written to the store. The write can only be given up.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The file cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The store refused a change.
    #[error(transparent)]
    Store(#[from] WriteError),
}

impl Tail {
    /// The beginning of the journal at `path`; `None` without a file. The error of an unreadable one has the reason.
    pub fn open(path: &Path, format: Format) -> io::Result<Option<Tail>> {
        // The flags do not follow a link and do not wait for a pipe.
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

    /// Whether another file has replaced this one, which is not written to any more.
    pub fn is_replaced(&self) -> bool {
        !is_at(&self.file, &self.path)
    }

    /// Whether the file has grown beyond the position.
    pub fn has_more(&self) -> bool {
        self.file.metadata().is_ok_and(|file| file.len() > self.at)
    }

    /// Whether the base was applied, so that the store has a state.
    pub fn has_base(&self) -> bool {
        self.sequence > 0
    }

    /// Applies the changes of all complete and valid frames to the store. A base removes every record that it does
    /// not have. After an error the position is undefined: open another tail.
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

/// The changes of a frame, up to an incomplete one. They are not collected, because the file determines how many
/// there are.
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
