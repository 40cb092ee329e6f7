//! A folder of manifests, watched.
//!
//! Shape:   [`files::Files`] knows which file says what; [`watch::Watch`] tells which files to read again;
//!          this file reads them.
//! Units:   a change is read when its file is closed, at once. Only a *removal* waits, [`LEAVING`],
//!          because editors and `mv` replace a file by taking the old one away first.
//! Errors:  a file or object that cannot be read keeps its last good version; [`super::Problem`]s say so.
//! Rejected: the crate `notify`: it watches more than needed (each write to a file) from a thread of its
//!          own, and its one mask for all systems has no "closed after writing" as the only trigger.

mod files;
mod watch;

use super::document::{self, Document};
use super::{Batch, Place, Problem, Source, parallel};
use files::Files;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::Instant;
use watch::{Touch, Watch};

/// How long a file that was taken away still counts: longer than an editor needs between moving the old
/// file aside and creating the new one, shorter than anybody waits for a removal.
const LEAVING: Duration = Duration::from_millis(25);
/// How often a folder that has vanished is looked for.
const RETRY: Duration = Duration::from_secs(1);
/// Deepest nesting of folders, so that a loop of links ends.
const MAX_DEPTH: usize = 32;

/// The manifests of one folder.
pub struct Folder {
    root: PathBuf,
    watch: Watch,
    files: Files,
    /// What a file was when it was last read, so that a look at the whole folder reads only what differs.
    marks: BTreeMap<PathBuf, Mark>,
    leaving: BTreeMap<PathBuf, Instant>,
    /// Files that never could be read.
    unread: BTreeSet<PathBuf>,
    /// What the last batch said of it.
    was_incomplete: bool,
    is_first: bool,
    retry_at: Option<Instant>,
}

/// Changes whenever the content of a file may have changed.
type Mark = (u64, u64, u64, i64, i64);

impl Folder {
    /// Watches `root`; refuses what is no folder.
    pub fn open(root: &Path) -> io::Result<Self> {
        if !fs::metadata(root)?.is_dir() {
            return Err(io::Error::from(io::ErrorKind::NotADirectory));
        }
        Ok(Folder {
            root: root.to_owned(),
            watch: Watch::new()?,
            files: Files::default(),
            marks: BTreeMap::new(),
            leaving: BTreeMap::new(),
            unread: BTreeSet::new(),
            was_incomplete: false,
            is_first: true,
            retry_at: None,
        })
    }

    /// Everything there is now, without watching what comes: for `check`.
    pub fn read_once(root: &Path) -> io::Result<Batch> {
        let mut folder = Folder::open(root)?;
        Ok(folder.look_at_all())
    }

    fn look_at_all(&mut self) -> Batch {
        let mut batch = Batch::default();
        self.look_at(&self.root.clone(), &mut batch);
        self.finish(batch)
    }

    fn finish(&mut self, mut batch: Batch) -> Batch {
        batch.seen.extend(self.files.take_seen());
        batch.problems.extend(self.files.take_problems());
        batch.mended.extend(self.files.take_mended());
        // Without events of a file that was never known, a look tells that it is gone.
        self.unread.retain(|path| path.exists());
        batch.is_incomplete = !self.unread.is_empty() || self.files.is_incomplete();
        batch
    }

    fn take(&mut self, touch: Touch, batch: &mut Batch) {
        match touch {
            Touch::File(path) => self.read(&path, batch),
            Touch::Gone(path) => self.leave(path),
            Touch::Folder(path) => self.look_at(&path, batch),
            Touch::FolderGone(path) => {
                self.watch.forget_below(&path);
                let below = self.files.paths().filter(|file| file.starts_with(&path));
                for file in below.cloned().collect::<Vec<_>>() {
                    self.leave(file);
                }
            }
            Touch::Everything => self.look_at(&self.root.clone(), batch),
        }
    }

    fn leave(&mut self, path: PathBuf) {
        if self.files.leave(&path) {
            self.leaving.insert(path, Instant::now() + LEAVING);
        }
    }

    /// Drops files that are still away; one that exists again waits for its close instead.
    fn settle(&mut self, batch: &mut Batch) {
        let now = Instant::now();
        let due = self.leaving.iter().filter(|(_, at)| **at <= now).map(|(path, _)| path.clone());
        for path in due.collect::<Vec<_>>() {
            self.leaving.remove(&path);
            if path.exists() {
                self.files.stay(&path);
                // Moved back or linked: then no close follows. Half-written: the close brings the rest.
                if self.is_changed(&path) {
                    self.read(&path, batch);
                }
            } else {
                self.files.remove(&path);
                self.marks.remove(&path);
            }
        }
    }

    /// Reads what is new or different in a folder, and lets go of what is no longer there.
    fn look_at(&mut self, folder: &Path, batch: &mut Batch) {
        let mut found = BTreeSet::new();
        let mut visited = BTreeSet::new();
        match self.walk(folder, 0, &mut visited, &mut found) {
            Ok(()) => {
                if self.retry_at.take().is_some() {
                    batch.mended.push(format!("{}: readable again", folder.display()));
                }
            }
            Err(error) if folder == self.root => {
                batch.problems.push(Problem {
                    place: Place::File { path: folder.into(), document: None },
                    is_other_kind: false,
                    message: format!("{error}: all stays as it was until the folder is back"),
                });
                self.retry_at = Some(Instant::now() + RETRY);
                return;
            }
            // Gone between the event and the look: its parent tells.
            Err(_) => return,
        }
        let mut changed: Vec<_> = found.iter().collect();
        changed.retain(|path| self.is_changed(path));
        let texts = parallel::map(&changed, |path| read_documents(path));
        for (path, read) in changed.into_iter().zip(texts) {
            self.take_over(path, read, batch);
        }
        let known = self.files.paths().filter(|path| path.starts_with(folder));
        let gone: Vec<_> = known.filter(|path| !found.contains(*path)).cloned().collect();
        for path in gone {
            self.leave(path);
        }
    }

    fn walk(
        &mut self,
        folder: &Path,
        depth: usize,
        visited: &mut BTreeSet<PathBuf>,
        found: &mut BTreeSet<PathBuf>,
    ) -> io::Result<()> {
        if depth > MAX_DEPTH || !visited.insert(fs::canonicalize(folder)?) {
            return Ok(());
        }
        // Watch first, list second: a file created in between is then seen twice, not missed.
        self.watch.add(folder)?;
        let mut entries = fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>()?;
        entries.sort_by_key(|entry| entry.file_name());
        for entry in entries {
            let path = entry.path();
            if watch::is_hidden(&entry.file_name()) {
                continue;
            }
            match fs::metadata(&path) {
                Ok(meta) if meta.is_dir() => {
                    // A folder that vanishes meanwhile is told by an event of its own.
                    let _ = self.walk(&path, depth + 1, visited, found);
                }
                Ok(meta) if meta.is_file() && watch::is_manifest(&path) => {
                    found.insert(path);
                }
                _ => {}
            }
        }
        Ok(())
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
        let was_unread = self.unread.remove(path);
        match read {
            Ok((mark, documents)) => {
                if was_unread {
                    batch.mended.push(format!("{}: readable again", path.display()));
                }
                self.marks.insert(path.into(), mark);
                self.files.update(path, documents);
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.leave(path.into()),
            Err(error) => {
                let is_known = self.files.knows(path);
                if !is_known {
                    self.unread.insert(path.into());
                }
                let until = super::until_mended(is_known);
                batch.problems.push(Problem {
                    place: Place::File { path: path.into(), document: None },
                    is_other_kind: false,
                    message: format!("{error}: make it readable; {until}"),
                });
            }
        }
    }
}

impl Source for Folder {
    async fn next(&mut self) -> Batch {
        if std::mem::take(&mut self.is_first) {
            let batch = self.look_at_all();
            self.was_incomplete = batch.is_incomplete;
            return batch;
        }
        loop {
            let wake = self.leaving.values().copied().chain(self.retry_at).min();
            let asleep = async {
                match wake {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            // Cancelling here loses nothing: all that was learnt is in `self` before the next await.
            let touches = tokio::select! {
                touches = self.watch.next() => touches,
                () = asleep => Vec::new(),
            };
            let mut batch = Batch::default();
            for touch in touches {
                self.take(touch, &mut batch);
            }
            self.settle(&mut batch);
            if self.retry_at.is_some_and(|at| at <= Instant::now()) {
                let problems = batch.problems.len();
                self.look_at(&self.root.clone(), &mut batch);
                // Said once when it vanished.
                batch.problems.truncate(problems);
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
mod tests {
    use super::*;
    use crate::world::{Changed, World};

    struct Fixture {
        folder: tempfile::TempDir,
        source: Folder,
        world: World,
    }

    impl Fixture {
        async fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let source = Folder::open(folder.path()).unwrap();
            let mut fixture = Fixture { folder, source, world: World::default() };
            fixture.next().await;
            fixture
        }

        async fn next(&mut self) -> Vec<String> {
            let wait = tokio::time::timeout(Duration::from_secs(5), self.source.next());
            let batch = wait.await.expect("the source told nothing within 5 s");
            let mut changed = Changed::default();
            batch.seen.into_iter().for_each(|seen| self.world.apply(seen, &mut changed));
            batch.problems.iter().map(ToString::to_string).collect()
        }

        fn write(&self, name: &str, services: &[&str]) {
            let text: String = services
                .iter()
                .map(|name| {
                    format!("---\napiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\n")
                })
                .collect();
            fs::write(self.folder.path().join(name), text).unwrap();
        }

        fn services(&self) -> Vec<&str> {
            self.world.services.keys().map(|key| key.name.as_str()).collect()
        }

        fn rename(&self, from: &str, to: &str) {
            fs::rename(self.folder.path().join(from), self.folder.path().join(to)).unwrap();
        }
    }

    #[tokio::test]
    async fn files_are_read_when_they_are_closed_and_gone_when_removed() {
        let mut f = Fixture::new().await;
        f.write("a.yaml", &["a", "b"]);
        assert!(f.next().await.is_empty());
        assert_eq!(f.services(), ["a", "b"]);
        f.write("a.yaml", &["b"]);
        f.next().await;
        assert_eq!(f.services(), ["b"]);
        fs::remove_file(f.folder.path().join("a.yaml")).unwrap();
        f.next().await;
        assert!(f.services().is_empty());
    }

    #[tokio::test]
    async fn new_folders_are_watched_too_and_hidden_files_are_not() {
        let mut f = Fixture::new().await;
        fs::create_dir_all(f.folder.path().join("x/y")).unwrap();
        f.write(".hidden.yaml", &["hidden"]);
        f.write("notes.txt", &["text"]);
        f.write("x/y/a.yml", &["a"]);
        f.next().await;
        assert_eq!(f.services(), ["a"]);
        f.write("x/y/a.yml", &["b"]);
        f.next().await;
        assert_eq!(f.services(), ["b"]);
        f.rename("x", ".x");
        f.next().await;
        assert!(f.services().is_empty());
    }

    #[tokio::test]
    async fn an_editor_that_renames_over_never_makes_the_object_vanish() {
        let mut f = Fixture::new().await;
        f.write("a.yaml", &["a"]);
        f.next().await;
        f.rename("a.yaml", "a.yaml~");
        f.write("a.yaml", &["a", "b"]);
        f.next().await;
        assert_eq!(f.services(), ["a", "b"]);
        f.write(".a.yaml.swp", &["a", "c"]);
        f.rename(".a.yaml.swp", "a.yaml");
        f.next().await;
        assert_eq!(f.services(), ["a", "c"]);
    }

    #[tokio::test]
    async fn a_moved_file_is_no_duplicate_of_itself() {
        let mut f = Fixture::new().await;
        f.write("a.yaml", &["a"]);
        f.next().await;
        f.rename("a.yaml", "b.yaml");
        f.write("c.yaml", &["c"]);
        assert!(f.next().await.is_empty());
        tokio::time::sleep(2 * LEAVING).await;
        f.write("d.yaml", &["d"]);
        while f.services() != ["a", "c", "d"] {
            assert!(f.next().await.is_empty());
        }
    }

    #[tokio::test]
    async fn a_broken_file_keeps_its_last_good_objects() {
        let mut f = Fixture::new().await;
        f.write("a.yaml", &["a", "b"]);
        f.next().await;
        fs::write(f.folder.path().join("a.yaml"), "kind: [\n").unwrap();
        let problems = f.next().await;
        assert_eq!(problems.len(), 1);
        assert!(problems[0].contains("a.yaml document 1 (line 1): is not YAML"), "{problems:?}");
        assert_eq!(f.services(), ["a", "b"]);
        f.write("a.yaml", &["a", "b"]);
        let batch = f.source.next().await;
        assert!(batch.mended[0].ends_with("a.yaml: readable again"), "{:?}", batch.mended);
    }

    #[tokio::test]
    async fn a_file_that_is_broken_from_the_start_is_told_as_unknown() {
        let mut f = Fixture::new().await;
        fs::write(f.folder.path().join("a.yaml"), "kind: [\n").unwrap();
        let batch = f.source.next().await;
        assert!(batch.is_incomplete);
        assert!(batch.problems[0].message.contains("no good version is known"));
        f.write("a.yaml", &["a"]);
        assert!(!f.source.next().await.is_incomplete);
    }

    #[tokio::test]
    async fn one_object_in_two_files_is_told_once_and_the_first_file_is_served() {
        let mut f = Fixture::new().await;
        f.write("b.yaml", &["a"]);
        f.next().await;
        f.write("a.yaml", &["a"]);
        let problems = f.next().await;
        assert_eq!(problems.len(), 1);
        assert!(problems[0].contains("b.yaml") && problems[0].contains("a.yaml"), "{problems:?}");
        fs::remove_file(f.folder.path().join("a.yaml")).unwrap();
        f.write("c.yaml", &["c"]);
        assert!(f.next().await.is_empty());
        assert_eq!(f.services(), ["a", "c"]);
    }

    #[tokio::test]
    async fn a_config_map_mount_is_read_again_when_its_link_swaps() {
        let mut f = Fixture::new().await;
        let root = f.folder.path().to_owned();
        for (version, name) in [("..1", "a"), ("..2", "b")] {
            fs::create_dir(root.join(version)).unwrap();
            f.write(&format!("{version}/m.yaml"), &[name]);
        }
        std::os::unix::fs::symlink("..1", root.join("..data")).unwrap();
        std::os::unix::fs::symlink("..data/m.yaml", root.join("m.yaml")).unwrap();
        f.next().await;
        assert_eq!(f.services(), ["a"]);
        std::os::unix::fs::symlink("..2", root.join("..data_tmp")).unwrap();
        f.rename("..data_tmp", "..data");
        f.next().await;
        assert_eq!(f.services(), ["b"]);
    }

    #[tokio::test]
    async fn a_folder_that_vanishes_keeps_what_it_said() {
        let mut f = Fixture::new().await;
        f.write("a.yaml", &["a"]);
        f.next().await;
        let root = f.folder.path().to_owned();
        let aside = root.with_extension("aside");
        fs::rename(&root, &aside).unwrap();
        assert_eq!(f.next().await.len(), 1);
        assert_eq!(f.services(), ["a"]);
        fs::rename(&aside, &root).unwrap();
        f.write("a.yaml", &["b"]);
        f.next().await;
        assert_eq!(f.services(), ["b"]);
    }
}
