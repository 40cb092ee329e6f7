//! A folder of manifests, watched.
//!
//! Shape:   [`files::Files`] knows which file says what; [`watch::Watch`] tells which files to read again;
//!          [`walk`] lists the folder; this file reads them.
//! Units:   a change is read when its file is closed, at once. Only a *removal* waits, [`LEAVING`],
//!          because editors and `mv` replace a file by taking the old one away first.
//! Errors:  a file, object or folder that cannot be read keeps its last good version; [`super::Problem`]s say so.
//! Lost:    events may fail to come: a mount, a link whose target changes, a limit of the kernel. Every [`COMPARE`] the
//!          folder is compared with what is known of it. That reports a lost watch and watches the folder anew.
//! Rejected: the crate `notify`: it watches more than needed (each write to a file) from a thread of its
//!          own, and its one mask for all systems has no "closed after writing" as the only trigger.

mod files;
mod walk;
mod watch;

use super::{Batch, Problem, ProblemKind, ProblemPlace, Source};
use files::Files;
use oxigress_objects::document::{self, Document};
use oxigress_objects::parallel;
use oxigress_objects::small::compact;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use walk::Walk;
use watch::{Touch, Watch};

/// How long a file that was taken away still counts: longer than an editor needs between moving the old
/// file aside and creating the new one, shorter than anybody waits for a removal.
const LEAVING: Duration = Duration::from_millis(25);
/// How often the folder is compared with what is known of it.
const COMPARE: Duration = Duration::from_secs(2);
/// The same for a folder that is so large that a comparison takes long: so many times its duration.
const COMPARE_FACTOR: u32 = 100;
/// How often a folder that has vanished is looked for.
const RETRY: Duration = Duration::from_secs(1);

/// The manifests of one folder.
pub struct Folder {
    root: PathBuf,
    watch: Watch,
    files: Files,
    /// What a file was when it was last read, so that a look at the whole folder reads only what differs.
    marks: BTreeMap<Arc<Path>, Mark>,
    /// What differed when the folder was last compared: it is read when it has stayed so, since it may be half-written.
    unsettled: BTreeMap<PathBuf, Mark>,
    leaving: BTreeMap<PathBuf, Instant>,
    /// Files and folders that never could be read.
    unread: BTreeSet<PathBuf>,
    /// What cannot be read now, and why, as it was reported.
    troubles: BTreeMap<PathBuf, String>,
    /// What the last batch said of it.
    was_incomplete: bool,
    is_first: bool,
    compare_at: Instant,
    /// The folder itself, which a link may lead to.
    identity: Option<(u64, u64)>,
    /// The folders below, as they were listed last.
    folders: BTreeSet<PathBuf>,
}

/// Changes whenever the content of a file may have changed.
type Mark = (u64, u64, u64, i64, i64);

/// When a file that differs is read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pace {
    AtOnce,
    /// When it has not changed since the last comparison.
    Unchanged,
}

impl Folder {
    /// Watches `root`; refuses what is no folder.
    pub fn open(root: &Path) -> io::Result<Self> {
        Self::open_with(root, Watch::new())
    }

    fn open_with(root: &Path, watch: Watch) -> io::Result<Self> {
        if !fs::metadata(root)?.is_dir() {
            return Err(io::Error::from(io::ErrorKind::NotADirectory));
        }
        Ok(Folder {
            root: root.to_owned(),
            watch,
            files: Files::default(),
            marks: BTreeMap::new(),
            unsettled: BTreeMap::new(),
            leaving: BTreeMap::new(),
            unread: BTreeSet::new(),
            troubles: BTreeMap::new(),
            was_incomplete: false,
            is_first: true,
            compare_at: Instant::now(),
            identity: None,
            folders: BTreeSet::new(),
        })
    }

    /// Everything there is now, without watching what comes: for `check`.
    pub fn read_once(root: &Path) -> io::Result<Batch> {
        let mut folder = Folder::open(root)?;
        Ok(folder.look_at_all())
    }

    /// Everything that one file says, which need not be named as a manifest is.
    pub fn read_file_once(path: &Path) -> io::Result<Batch> {
        let (_, documents) = read_documents(path)?;
        Ok(batch_of(path, documents))
    }

    /// Everything that a text says; `name` stands for it in problems.
    pub fn read_text_once(name: &Path, text: &str) -> Batch {
        let is_json = text.trim_start().starts_with('{');
        batch_of(name, document::read(text, is_json))
    }

    fn look_at_all(&mut self) -> Batch {
        let mut batch = Batch::default();
        self.compare(Pace::AtOnce, &mut batch);
        self.finish(batch)
    }

    fn finish(&mut self, mut batch: Batch) -> Batch {
        batch.seen.extend(self.files.take_seen());
        batch.problems.extend(self.files.take_problems());
        batch.mended.extend(self.files.take_mended());
        if let Some(problem) = self.watch.take_refusal() {
            batch.problems.push(problem_of(&self.root, problem));
        }
        // Without events of a file that was never known, a look tells that it is gone.
        self.unread.retain(|path| path.exists());
        self.troubles.retain(|path, _| *path == self.root || path.symlink_metadata().is_ok());
        batch.is_incomplete = !self.unread.is_empty() || self.files.is_incomplete();
        batch
    }

    fn take(&mut self, touch: Touch, batch: &mut Batch) {
        match touch {
            Touch::File(path) => self.read(&path, batch),
            Touch::Gone(path) => self.leave(path),
            // Which of a folder's names counts is known of the whole only.
            Touch::Folder(path) if path.is_symlink() => self.look_at_root(batch),
            Touch::Folder(path) => self.look_at(&path, Pace::AtOnce, batch),
            Touch::FolderGone(path) => {
                self.watch.forget_below(&path);
                let below = self.files.paths().filter(|file| file.starts_with(&path));
                let below: Vec<_> = below.map(|file| file.to_path_buf()).collect();
                let is_known = !below.is_empty();
                below.into_iter().for_each(|file| self.leave(file));
                if is_known {
                    // It may have been one of several names of the folder.
                    self.look_at_root(batch);
                }
            }
            Touch::Everything => self.look_at_root(batch),
        }
    }

    fn leave(&mut self, path: PathBuf) {
        if self.files.leave(&path) {
            self.leaving.entry(path).or_insert_with(|| Instant::now() + LEAVING);
        }
    }

    /// Drops files that are still away; one that exists again waits for its close instead.
    fn drop_removed(&mut self, batch: &mut Batch) {
        let now = Instant::now();
        let due = self.leaving.iter().filter(|(_, at)| **at <= now).map(|(path, _)| path.clone());
        for path in due.collect::<Vec<_>>() {
            self.leaving.remove(&path);
            // A folder of several names is listed by one of them.
            let is_listed = path.parent().is_some_and(|parent| self.folders.contains(parent));
            if is_listed && path.exists() {
                self.files.stay(&path);
                // Moved back or linked: then no close follows. Half-written: the close brings the rest.
                if self.is_changed(&path) {
                    self.read(&path, batch);
                }
            } else {
                self.files.remove(&path);
                self.marks.remove(&*path);
            }
        }
    }

    fn look_at_root(&mut self, batch: &mut Batch) {
        self.look_at(&self.root.clone(), Pace::AtOnce, batch);
    }

    /// Compares the whole folder with what is known of it.
    fn compare(&mut self, pace: Pace, batch: &mut Batch) {
        let start = Instant::now();
        let identity = fs::metadata(&self.root).map(|meta| (meta.dev(), meta.ino())).ok();
        // Another folder in its place is read as a whole.
        let is_same = self.identity == identity;
        self.identity = identity;
        self.compare_at = start + COMPARE;
        self.look_at(&self.root.clone(), if is_same { pace } else { Pace::AtOnce }, batch);
        let pause = start.elapsed() * COMPARE_FACTOR;
        self.compare_at = self.compare_at.max(Instant::now() + pause);
    }

    /// Reads what is new or different in a folder, and lets go of what is no longer there.
    fn look_at(&mut self, folder: &Path, pace: Pace, batch: &mut Batch) {
        let mut walk = Walk::default();
        if let Err(error) = walk.enter(folder, 0, &mut self.watch) {
            // Of one that is gone between the event and the look its parent tells.
            if folder == self.root {
                let why =
                    format!("cannot read the folder: {error}; the last known objects stay live");
                self.report(folder, why, batch);
                self.identity = None;
                self.compare_at = self.compare_at.min(Instant::now() + RETRY);
            }
            return;
        }
        for folder in &walk.folders {
            self.end_trouble(folder, batch);
        }
        for (path, error) in std::mem::take(&mut walk.refused) {
            self.keep(&path, &error, &mut walk.files, batch);
        }
        if folder == self.root {
            self.watch.retain(|path| walk.folders.contains(path));
        }
        self.folders.retain(|path| !path.starts_with(folder));
        self.folders.extend(walk.folders);
        if pace == Pace::Unchanged && !self.watch.has_events() {
            for path in walk.watched_anew {
                let why = "the file watch was lost; the folder was rescanned and is watched again";
                batch.problems.push(problem_of(&path, why.into()));
            }
        }
        self.read_changed(&walk.files, pace, batch);
        let known = self.files.paths().filter(|path| path.starts_with(folder));
        let gone = known.filter(|path| !walk.files.contains(&***path));
        let gone: Vec<_> = gone.map(|path| path.to_path_buf()).collect();
        for path in gone {
            self.leave(path);
        }
    }

    fn read_changed(&mut self, files: &BTreeSet<PathBuf>, pace: Pace, batch: &mut Batch) {
        let mut changed: Vec<_> = files.iter().collect();
        changed.retain(|path| self.is_changed(path));
        if pace == Pace::Unchanged {
            let before = std::mem::take(&mut self.unsettled);
            changed.retain(|path| {
                let Ok(now) = fs::metadata(path).map(|meta| mark(&meta)) else { return false };
                let is_settled = before.get(*path) == Some(&now);
                if !is_settled {
                    self.unsettled.insert(path.to_path_buf(), now);
                }
                is_settled
            });
        }
        let texts = parallel::map(&changed, |path| read_documents(path));
        for (path, read) in changed.into_iter().zip(texts) {
            self.take_over(path, read, batch);
        }
    }

    /// What is known of a file or folder stays while it cannot be read.
    fn keep(
        &mut self,
        path: &Path,
        error: &io::Error,
        found: &mut BTreeSet<PathBuf>,
        batch: &mut Batch,
    ) {
        let before = found.len();
        let known = self.files.paths().filter(|file| file.starts_with(path));
        found.extend(known.map(|file| file.to_path_buf()));
        self.not_read(path, error, found.len() > before, batch);
    }

    fn not_read(&mut self, path: &Path, error: &io::Error, is_known: bool, batch: &mut Batch) {
        if !is_known {
            self.unread.insert(path.into());
        }
        let until = super::until_mended(is_known);
        self.report(path, format!("{error}: make it readable; {until}"), batch);
    }

    /// Reports a trouble, unless it was reported in the same words.
    fn report(&mut self, path: &Path, why: String, batch: &mut Batch) {
        if self.troubles.get(path) != Some(&why) {
            batch.problems.push(problem_of(path, why.clone()));
            self.troubles.insert(path.into(), why);
        }
    }

    fn end_trouble(&mut self, path: &Path, batch: &mut Batch) {
        self.unread.remove(path);
        if self.troubles.remove(path).is_some() {
            batch.mended.push(format!("{}: readable again", path.display()));
        }
    }

    /// Whether a file has to be read; one that need not is known to be there.
    fn is_changed(&mut self, path: &Path) -> bool {
        match fs::metadata(path) {
            Ok(meta) if self.marks.get(path) == Some(&mark(&meta)) => {
                self.leaving.remove(path);
                self.files.stay(path);
                false
            }
            _ => true,
        }
    }

    fn read(&mut self, path: &Path, batch: &mut Batch) {
        self.take_over(path, read_documents(path), batch);
    }

    fn take_over(
        &mut self,
        path: &Path,
        read: io::Result<(Mark, Vec<Document>)>,
        batch: &mut Batch,
    ) {
        self.leaving.remove(path);
        match read {
            Ok((mark, documents)) => {
                self.end_trouble(path, batch);
                let path: Arc<Path> = path.into();
                self.files.update(&path, documents);
                self.marks.insert(path, mark);
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.leave(path.into()),
            Err(error) => {
                let is_known = self.files.knows(path);
                self.files.stay(path);
                // Not tried again before it is another one, or has other rights.
                if let Ok(meta) = fs::metadata(path) {
                    self.marks.insert(path.into(), mark(&meta));
                }
                self.not_read(path, &error, is_known, batch);
            }
        }
    }
}

impl Source for Folder {
    async fn next(&mut self) -> Batch {
        if self.is_first {
            let batch = self.look_at_all();
            self.files.compact();
            compact(&mut self.marks);
            self.is_first = false;
            self.was_incomplete = batch.is_incomplete;
            return batch;
        }
        loop {
            let wake = self.leaving.values().copied().fold(self.compare_at, Instant::min);
            // Cancelling here loses nothing: all that was learnt is in `self` before the next await.
            let touches = tokio::select! {
                touches = self.watch.next() => touches,
                () = tokio::time::sleep_until(wake) => Vec::new(),
            };
            let mut batch = Batch::default();
            for touch in touches {
                self.take(touch, &mut batch);
            }
            self.drop_removed(&mut batch);
            if self.compare_at <= Instant::now() {
                self.compare(Pace::Unchanged, &mut batch);
            }
            let batch = self.finish(batch);
            let was_incomplete = std::mem::replace(&mut self.was_incomplete, batch.is_incomplete);
            if !batch.seen.is_empty()
                || !batch.problems.is_empty()
                || !batch.mended.is_empty()
                || was_incomplete != batch.is_incomplete
            {
                return batch;
            }
        }
    }
}

fn problem_of(path: &Path, message: String) -> Problem {
    let place = ProblemPlace::File { path: path.into(), document: None };
    Problem { place, kind: ProblemKind::Unusable, message }
}

fn batch_of(path: &Path, documents: Vec<Document>) -> Batch {
    let mut files = Files::default();
    files.update(&path.into(), documents);
    let seen = files.take_seen();
    Batch { seen, problems: files.take_problems(), ..Batch::default() }
}

fn mark(meta: &fs::Metadata) -> Mark {
    (meta.dev(), meta.ino(), meta.size(), meta.mtime() * 1_000_000_000 + meta.mtime_nsec(), {
        meta.ctime() * 1_000_000_000 + meta.ctime_nsec()
    })
}

fn read_documents(path: &Path) -> io::Result<(Mark, Vec<Document>)> {
    let (mark, text) = read_text(path)?;
    let is_json = path.extension().is_some_and(|extension| extension == "json");
    Ok((mark, document::read(&text, is_json)))
}

fn read_text(path: &Path) -> io::Result<(Mark, String)> {
    let file = fs::File::open(path)?;
    let meta = file.metadata()?;
    let mut text = String::new();
    file.take(document::MAX_FILE_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > document::MAX_FILE_BYTES {
        let message = format!("over {} bytes", document::MAX_FILE_BYTES);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    Ok((mark(&meta), text))
}

#[cfg(test)]
mod tests;
