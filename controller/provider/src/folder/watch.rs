//! inotify events to paths that have to be looked at.

use futures_util::FutureExt;
use inotify::{EventMask, EventStream, WatchDescriptor, WatchMask};
use oxigress_net::changes;
use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use tokio_stream::StreamExt;

/// Room for about 200 events a read.
const BUFFER_BYTES: usize = 64 * 1024;

/// What has to be looked at.
#[derive(Debug, PartialEq, Eq)]
pub enum Touch {
    /// A file that was written, moved here or linked.
    File(PathBuf),
    /// A file that was removed or moved away.
    Gone(PathBuf),
    /// A folder that is new, or whose hidden link was swapped.
    Folder(PathBuf),
    /// A folder that was removed or moved away.
    FolderGone(PathBuf),
    /// Events were lost, or the watched folder itself went.
    Everything,
}

/// The folders that inotify watches.
pub struct Watch {
    /// `None`: the kernel gives no inotify instance.
    events: Option<EventStream<Vec<u8>>>,
    /// Several paths may lead to one folder, whose watch has one descriptor.
    paths: HashMap<WatchDescriptor, BTreeSet<PathBuf>>,
    descriptors: HashMap<PathBuf, WatchDescriptor>,
    /// Events that were taken to see whether there are any.
    taken: Vec<Touch>,
    /// Why not everything is watched, until it is reported.
    refusal: Option<String>,
    is_refused: bool,
}

/// Files beginning with a dot: of editors, and of the kubelet, whose `..data` link stands beside visible
/// links to the same files.
pub fn is_hidden(name: &OsStr) -> bool {
    name.as_bytes().starts_with(b".")
}

/// A name that says YAML or JSON.
pub fn is_manifest(path: &Path) -> bool {
    path.extension().is_some_and(|e| e == "yaml" || e == "yml" || e == "json")
}

impl Watch {
    /// Makes a watch without folders.
    pub fn new() -> Self {
        let events = changes::events(BUFFER_BYTES);
        let mut watch = Watch::none();
        match events {
            Ok(events) => watch.events = Some(events),
            Err(error) => watch.refuse(&error, "fs.inotify.max_user_instances"),
        }
        watch
    }

    /// Makes a watch that never reports anything.
    pub fn none() -> Self {
        Watch {
            events: None,
            paths: HashMap::new(),
            descriptors: HashMap::new(),
            taken: Vec::new(),
            refusal: None,
            is_refused: false,
        }
    }

    fn refuse(&mut self, error: &io::Error, limit: &str) {
        if !std::mem::replace(&mut self.is_refused, true) {
            let seconds = super::COMPARE.as_secs();
            self.refusal = Some(format!(
                "not everything can be watched: {error}: changes are found by a comparison every {seconds} s; \
                 raise {limit}"
            ));
        }
    }

    /// Why not everything is watched, once.
    pub fn take_refusal(&mut self) -> Option<String> {
        self.refusal.take()
    }

    /// Watches the entries of `folder`; repeating it is harmless. Answers whether that is new.
    pub fn add(&mut self, folder: &Path) -> io::Result<bool> {
        let Some(events) = &self.events else { return Ok(false) };
        let descriptor =
            match events.watches().add(folder, changes::IN_A_FOLDER | WatchMask::ONLYDIR) {
                Ok(descriptor) => descriptor,
                // The limit of watches, which is no fault of the folder.
                Err(error) if error.kind() == io::ErrorKind::StorageFull => {
                    self.refuse(&error, "fs.inotify.max_user_watches");
                    return Ok(false);
                }
                Err(error) => return Err(error),
            };
        if self.descriptors.get(folder) == Some(&descriptor) {
            return Ok(false);
        }
        self.forget(folder);
        self.paths.entry(descriptor.clone()).or_default().insert(folder.into());
        self.descriptors.insert(folder.into(), descriptor);
        Ok(true)
    }

    /// Forgets one name of a folder, and the watch with the last one.
    fn forget(&mut self, folder: &Path) {
        let Some(descriptor) = self.descriptors.remove(folder) else { return };
        let Some(paths) = self.paths.get_mut(&descriptor) else { return };
        paths.remove(folder);
        if paths.is_empty() {
            self.paths.remove(&descriptor);
            // A removed folder has lost its watch already.
            let _ = self.events.as_ref().map(|events| events.watches().remove(descriptor));
        }
    }

    /// Stops watching the folders that `stays` does not name.
    pub fn retain(&mut self, stays: impl Fn(&Path) -> bool) {
        let gone = self.descriptors.keys().filter(|path| !stays(path));
        for path in gone.cloned().collect::<Vec<_>>() {
            self.forget(&path);
        }
    }

    /// Stops watching `folder` and what is below it: a moved folder keeps its watch, under a path that is
    /// no longer true.
    pub fn forget_below(&mut self, folder: &Path) {
        self.retain(|path| !path.starts_with(folder));
    }

    /// What happened, all of it that has already happened.
    pub async fn next(&mut self) -> Vec<Touch> {
        if self.taken.is_empty() {
            let Some(events) = &mut self.events else { return std::future::pending().await };
            match events.next().await {
                Some(first) => self.note(first),
                // The stream has no end; a comparison will tell.
                None => return std::future::pending().await,
            }
        }
        self.take_all();
        let mut touches = std::mem::take(&mut self.taken);
        touches.dedup();
        touches
    }

    /// Whether something has happened that [`Watch::next`] has not told.
    pub fn has_events(&mut self) -> bool {
        self.take_all();
        !self.taken.is_empty()
    }

    fn take_all(&mut self) {
        while let Some(Some(more)) = self.events.as_mut().and_then(|it| it.next().now_or_never()) {
            self.note(more);
        }
    }

    fn note(&mut self, event: io::Result<inotify::EventOwned>) {
        let Ok(event) = event else { return self.taken.push(Touch::Everything) };
        let mask = event.mask;
        if mask.contains(EventMask::Q_OVERFLOW) {
            return self.taken.push(Touch::Everything);
        }
        if mask.contains(EventMask::IGNORED) {
            for path in self.paths.remove(&event.wd).unwrap_or_default() {
                self.descriptors.remove(&path);
            }
            return;
        }
        let Some(folders) = self.paths.get(&event.wd).cloned() else { return };
        for folder in folders {
            match &event.name {
                Some(name) => note_entry(&folder, name, mask, &mut self.taken),
                None => self.note_itself(&folder, mask),
            }
        }
    }

    fn note_itself(&mut self, folder: &Path, mask: EventMask) {
        // Of a folder below, its parent tells more exactly.
        if mask.intersects(EventMask::DELETE_SELF | EventMask::MOVE_SELF)
            && !folder.parent().is_some_and(|parent| self.descriptors.contains_key(parent))
        {
            self.forget_below(folder);
            self.taken.push(Touch::Everything);
        }
    }
}

/// What an event of an entry of `folder` means.
fn note_entry(folder: &Path, name: &OsStr, mask: EventMask, touches: &mut Vec<Touch>) {
    if is_hidden(name) {
        if name.as_bytes().starts_with(b"..") {
            touches.push(Touch::Folder(folder.into()));
        }
        return;
    }
    let path = folder.join(name);
    let is_gone = mask.intersects(EventMask::DELETE | EventMask::MOVED_FROM);
    if mask.contains(EventMask::ISDIR) {
        touches.push(match is_gone {
            true => Touch::FolderGone(path),
            false => Touch::Folder(path),
        });
        return;
    }
    if mask.contains(EventMask::CREATE) {
        // A new file is read when it is closed. Links are complete at once and have no close.
        match std::fs::symlink_metadata(&path) {
            Ok(meta) if meta.is_symlink() && path.is_dir() => touches.push(Touch::Folder(path)),
            Ok(meta) if (meta.is_symlink() || meta.nlink() > 1) && is_manifest(&path) => {
                touches.push(Touch::File(path));
            }
            _ => {}
        }
        return;
    }
    if is_gone && !is_manifest(&path) {
        // Perhaps a link to a folder.
        touches.push(Touch::FolderGone(path));
    } else if is_gone {
        touches.push(Touch::Gone(path));
    } else if is_manifest(&path) {
        touches.push(Touch::File(path));
    } else if path.is_dir() {
        touches.push(Touch::Folder(path));
    }
}
