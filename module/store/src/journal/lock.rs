//! The ownership of a journal file.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Held by the process that writes the journal, until it is dropped or the process ends.
pub struct Ownership {
    lock: File,
    path: PathBuf,
}

/// The result of [`Ownership::acquire`].
pub enum Acquired {
    /// This process owns the journal for its store.
    Owned(Ownership),
    /// Another process owns the journal.
    Busy,
}

impl Ownership {
    /// Acquires the journal at `path` for a store that was created at `birth`. Never waits.
    pub fn acquire(path: &Path, birth: u64) -> io::Result<Acquired> {
        let path = beside(path, ".lock");
        let lock = open(&path)?;
        if !try_lock(&lock)? {
            return Ok(Acquired::Busy);
        }
        lock.write_all_at(&birth.to_le_bytes(), 0)?;
        Ok(Acquired::Owned(Ownership { lock, path }))
    }

    /// The lock is still where others look for it.
    pub fn is_in_place(&self) -> bool {
        is_at(&self.lock, &self.path)
    }

    /// Nobody owns it. Makes no file, so that the first owner makes it as its own user.
    pub fn is_free(path: &Path) -> io::Result<bool> {
        match options().open(beside(path, ".lock")) {
            Ok(lock) => try_lock(&lock),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// The [`crate::Store::birth`] of the last owner's store; `None` if it has not written one yet.
    pub fn birth(path: &Path) -> io::Result<Option<u64>> {
        let mut bytes = [0; 8];
        let read = options().open(beside(path, ".lock"))?.read_at(&mut bytes, 0)?;
        Ok((read == bytes.len()).then(|| u64::from_le_bytes(bytes)))
    }
}

/// Says that a later store wants the journal, until it is dropped.
pub struct Claim {
    _lock: File,
}

impl Claim {
    /// Makes the claim; `None` if it is made already.
    pub fn make(path: &Path) -> io::Result<Option<Claim>> {
        let lock = open(&beside(path, ".claim"))?;
        Ok(try_lock(&lock)?.then_some(Claim { _lock: lock }))
    }

    /// Whether a journal file exists.
    pub fn is_made(path: &Path) -> io::Result<bool> {
        Ok(Claim::make(path)?.is_none())
    }
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Whether the open file is the one at a path.
pub(super) fn is_at(file: &File, path: &Path) -> bool {
    let identity = |facts: fs::Metadata| (facts.dev(), facts.ino());
    let named = fs::symlink_metadata(path).map(identity);
    named.is_ok_and(|named| file.metadata().map(identity).is_ok_and(|open| open == named))
}

fn open(path: &Path) -> io::Result<File> {
    options().write(true).create(true).truncate(false).mode(0o600).open(path)
}

/// The flags do not follow a link and do not wait for a pipe.
fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    options
}

fn try_lock(file: &File) -> io::Result<bool> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}
