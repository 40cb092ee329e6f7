//! The agent that writes a journal.

use super::Format;
use super::frame::{Change, FILE_HEAD, FRAME_HEAD, Head, file_head};
use super::lock::is_at;
use crate::Store;
use crate::reader::{Changed, Pin};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use zeroize::Zeroizing;

/// The base is written in pieces of about this size.
const PIECE: usize = 256 * 1024;
/// The bytes by which deltas may exceed the base before a new file replaces both.
const SLACK: u64 = 1024 * 1024;

/// Writes the journal of a store. It holds one generation from step to step.
pub struct Writer {
    store: Store,
    path: PathBuf,
    format: Format,
    pin: Pin,
    /// `None`: the next step begins a file.
    file: Option<Open>,
}

/// A file that is written to.
struct Open {
    file: File,
    /// Where the next frame goes.
    end: u64,
    sequence: u32,
    /// Longer than this, the file is replaced.
    limit: u64,
}

impl Writer {
    /// Starts a journal of `store` at `path`, for this process, with the first step; `None` if another process writes
    /// it.
    pub fn new(store: Store, path: &Path, format: Format, pid: u32) -> Option<Writer> {
        let pin = Pin::attach(store, pid)?;
        Some(Writer { store, path: path.into(), format, pin, file: None })
    }

    /// The generation that it holds.
    pub fn generation(&self) -> u64 {
        self.pin.generation()
    }

    /// Brings the journal up to the live generation. After an error the file ends as it did before, and the next
    /// step writes another one.
    pub fn step(&mut self) -> io::Result<()> {
        let result = self.try_step();
        if result.is_err() {
            // What could not be written is not held: the next file begins with all there is.
            self.file = None;
            self.pin.advance(|_| ());
        }
        result
    }

    fn try_step(&mut self) -> io::Result<()> {
        // Somebody may have removed it.
        let open = self.file.as_mut().filter(|open| is_at(&open.file, &self.path));
        let Some(open) = open else {
            self.pin.advance(|_| ());
            return self.replace();
        };
        if self.pin.is_newest() {
            return Ok(());
        }
        // It may hold private keys.
        let mut frame = Zeroizing::new(vec![0; FRAME_HEAD as usize]);
        let generation = self.pin.advance(|changed| match changed {
            Changed::Written(record) => Change::written(&record).push(&mut frame),
            Changed::Removed(record) => Change::removed(&record).push(&mut frame),
        });
        if frame.len() > FRAME_HEAD as usize {
            open.append(&mut frame)?;
        }
        self.store.memory.header().journal.written.store(generation, Relaxed);
        if open.end > open.limit {
            return self.replace();
        }
        Ok(())
    }

    /// Puts a file that begins with the pinned generation in the place of the one there is.
    fn replace(&mut self) -> io::Result<()> {
        let mut new = self.path.as_os_str().to_owned();
        new.push(".new");
        let new = PathBuf::from(new);
        let written = self.base(&new).and_then(|open| {
            fs::rename(&new, &self.path)?;
            Ok(open)
        });
        if written.is_err() {
            let _ = fs::remove_file(&new);
        }
        self.file = Some(written?);
        self.store.memory.header().journal.written.store(self.pin.generation(), Relaxed);
        Ok(())
    }

    fn base(&self, path: &Path) -> io::Result<Open> {
        let _ = fs::remove_file(path);
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        file.write_all_at(&file_head(self.format.version), 0)?;
        let mut crc = crc32fast::Hasher::new();
        let mut end = FILE_HEAD + FRAME_HEAD;
        let mut piece = Zeroizing::new(Vec::with_capacity(PIECE));
        let mut result = Ok(());
        let mut flush = |piece: &mut Vec<u8>| {
            crc.update(piece);
            file.write_all_at(piece, end)?;
            end += piece.len() as u64;
            piece.clear();
            io::Result::Ok(())
        };
        self.pin.for_each(|record| {
            if result.is_ok() {
                let change = Change::written(&record);
                // A vector that grows would leave a copy of what it held behind.
                if !piece.is_empty() && piece.len() + change.bytes() > PIECE {
                    result = flush(&mut piece);
                }
                change.push(&mut piece);
            }
        });
        result.and_then(|()| flush(&mut piece))?;
        let length = end - FILE_HEAD - FRAME_HEAD;
        file.write_all_at(&Head::seal(length, 0, crc).to_bytes(), FILE_HEAD)?;
        Ok(Open { file, end, sequence: 1, limit: 2 * end + SLACK })
    }
}

impl Open {
    /// `frame` has room for its head. After an error the file is as it was.
    fn append(&mut self, frame: &mut [u8]) -> io::Result<()> {
        let (head, changes) = frame.split_at_mut(FRAME_HEAD as usize);
        let mut crc = crc32fast::Hasher::new();
        crc.update(changes);
        head.copy_from_slice(&Head::seal(changes.len() as u64, self.sequence, crc).to_bytes());
        if let Err(error) = self.file.write_all_at(frame, self.end) {
            // Best effort: a frame that is not whole is not read anyway.
            let _ = self.file.set_len(self.end);
            return Err(error);
        }
        self.end += frame.len() as u64;
        self.sequence += 1;
        Ok(())
    }
}
