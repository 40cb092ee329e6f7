//! inotify events of folders.

use inotify::{EventStream, Inotify, WatchMask};
use std::io;

/// What changes the entries of a folder, once they are whole, or the folder itself.
pub const IN_A_FOLDER: WatchMask = WatchMask::CLOSE_WRITE
    .union(WatchMask::CREATE)
    .union(WatchMask::DELETE)
    .union(WatchMask::MOVED_FROM)
    .union(WatchMask::MOVED_TO)
    .union(WatchMask::DELETE_SELF)
    .union(WatchMask::MOVE_SELF);

/// A stream of events without watches, which reads into a buffer of this length.
pub fn events(bytes: usize) -> io::Result<EventStream<Vec<u8>>> {
    Inotify::init()?.into_event_stream(vec![0; bytes])
}
