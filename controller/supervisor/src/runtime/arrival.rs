//! The moment nginx makes its socket anew: then nobody waits for the end of a pause.

use inotify::{EventStream, Inotify, WatchMask};
use std::io;
use std::path::Path;
use tokio_stream::StreamExt;

/// Tells each time a socket appears.
pub struct Arrival {
    name: std::ffi::OsString,
    events: EventStream<Vec<u8>>,
}

impl Arrival {
    /// Watches the folder of `socket`, which need not be there.
    pub fn watch(socket: &Path) -> io::Result<Self> {
        let no_name = || io::Error::from(io::ErrorKind::InvalidInput);
        let folder = socket.parent().ok_or_else(no_name)?;
        let name = socket.file_name().ok_or_else(no_name)?.to_owned();
        let inotify = Inotify::init()?;
        inotify.watches().add(folder, WatchMask::CREATE | WatchMask::MOVED_TO)?;
        Ok(Arrival { name, events: inotify.into_event_stream(vec![0; 4096])? })
    }

    /// Waits until the file appears, or is replaced.
    pub async fn next(&mut self) {
        loop {
            match self.events.next().await {
                // An overflow names nothing: look rather too often.
                Some(Ok(event)) if event.name.as_ref().is_none_or(|name| *name == self.name) => {
                    return;
                }
                Some(_) => {}
                None => std::future::pending().await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_the_named_file_counts() {
        let folder = tempfile::tempdir().unwrap();
        let mut arrival = Arrival::watch(&folder.path().join("a.sock")).unwrap();
        std::fs::write(folder.path().join("b.sock"), "").unwrap();
        let timeout = std::time::Duration::from_millis(50);
        assert!(tokio::time::timeout(timeout, arrival.next()).await.is_err());
        std::fs::write(folder.path().join("a.sock"), "").unwrap();
        arrival.next().await;
    }
}
