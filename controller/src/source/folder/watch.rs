//! inotify events to paths that have to be looked at.

use inotify::{EventMask, EventStream, Inotify, WatchDescriptor, WatchMask};
use std::collections::HashMap;
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

/// The watched folders.
pub struct Watch {
    events: EventStream<Vec<u8>>,
    folders: HashMap<WatchDescriptor, PathBuf>,
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
    /// Watches nothing yet.
    pub fn new() -> io::Result<Self> {
        let events = Inotify::init()?.into_event_stream(vec![0; BUFFER_BYTES])?;
        Ok(Watch { events, folders: HashMap::new() })
    }

    /// Watches the entries of `folder`; repeating it is harmless.
    pub fn add(&mut self, folder: &Path) -> io::Result<()> {
        let mask = WatchMask::CLOSE_WRITE
            | WatchMask::CREATE
            | WatchMask::DELETE
            | WatchMask::MOVED_FROM
            | WatchMask::MOVED_TO
            | WatchMask::DELETE_SELF
            | WatchMask::MOVE_SELF
            | WatchMask::ONLYDIR;
        let descriptor = self.events.watches().add(folder, mask)?;
        self.folders.insert(descriptor, folder.into());
        Ok(())
    }

    /// Stops watching `folder` and what is below it: a moved folder keeps its watch, under a path that is
    /// no longer true.
    pub fn forget_below(&mut self, folder: &Path) {
        let below = self.folders.extract_if(|_, path| path.starts_with(folder));
        for (descriptor, _) in below.collect::<Vec<_>>() {
            // A removed folder has lost its watch already.
            let _ = self.events.watches().remove(descriptor);
        }
    }

    /// What happened, all of it that has already happened.
    pub async fn next(&mut self) -> Vec<Touch> {
        let mut touches = Vec::new();
        let Some(first) = self.events.next().await else { return vec![Touch::Everything] };
        self.note(first, &mut touches);
        while let Ok(Some(more)) = poll_now(self.events.next()).await.ok_or(()) {
            self.note(more, &mut touches);
        }
        touches.dedup();
        touches
    }

    fn note(&mut self, event: io::Result<inotify::EventOwned>, touches: &mut Vec<Touch>) {
        let Ok(event) = event else { return touches.push(Touch::Everything) };
        let mask = event.mask;
        if mask.contains(EventMask::Q_OVERFLOW) {
            return touches.push(Touch::Everything);
        }
        if mask.contains(EventMask::IGNORED) {
            self.folders.remove(&event.wd);
            return;
        }
        let Some(folder) = self.folders.get(&event.wd) else { return };
        let Some(name) = event.name else {
            // Of a folder below, its parent tells more exactly.
            if mask.intersects(EventMask::DELETE_SELF | EventMask::MOVE_SELF)
                && !self.folders.values().any(|other| folder.parent() == Some(other))
            {
                let root = folder.clone();
                self.forget_below(&root);
                touches.push(Touch::Everything);
            }
            return;
        };
        if is_hidden(&name) {
            if name.as_bytes().starts_with(b"..") {
                touches.push(Touch::Folder(folder.clone()));
            }
            return;
        }
        let path = folder.join(&name);
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
}

/// The value if it is there without waiting.
async fn poll_now<F: Future>(future: F) -> Option<F::Output> {
    let mut future = std::pin::pin!(future);
    std::future::poll_fn(|context| {
        std::task::Poll::Ready(match future.as_mut().poll(context) {
            std::task::Poll::Ready(value) => Some(value),
            std::task::Poll::Pending => None,
        })
    })
    .await
}
