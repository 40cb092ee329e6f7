//! The last good answers, in a file of the runtime folder: a controller that starts while the name servers are
//! down serves what its predecessor served.
//!
//! Shape:   JSON, names to addresses; written at most once a second, by renaming. What cannot be read is empty.

use oxigress_objects::service::external_name::DnsName;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// The least time between two writes of the file.
const PAUSE: Duration = Duration::from_secs(1);

type Addresses = BTreeMap<String, Vec<IpAddr>>;

/// Good answers, in memory and in a file.
pub struct Kept {
    path: PathBuf,
    addresses: Mutex<Addresses>,
    changed: Notify,
}

impl Kept {
    /// Reads the answers that were kept; a file that is missing or damaged holds none.
    pub fn open(path: PathBuf) -> Self {
        let addresses = match read(&path) {
            Ok(addresses) => addresses,
            Err(error) => {
                if error.kind() != io::ErrorKind::NotFound {
                    tracing::warn!(
                        "cannot read the DNS cache {}: {error}; all names are resolved again",
                        path.display()
                    );
                }
                Addresses::new()
            }
        };
        Kept { path, addresses: Mutex::new(addresses), changed: Notify::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Addresses> {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The addresses of the last good answer.
    pub fn get(&self, name: &DnsName) -> Option<Vec<IpAddr>> {
        self.lock().get(name.as_str()).filter(|all| !all.is_empty()).cloned()
    }

    /// Keeps a good answer for the next start.
    pub fn set(&self, name: &DnsName, addresses: &[IpAddr]) {
        let mut all = self.lock();
        if all.get(name.as_str()).map(Vec::as_slice) != Some(addresses) {
            all.insert(name.as_str().into(), addresses.into());
            self.changed.notify_one();
        }
    }

    /// Nobody wants it any more.
    pub fn forget(&self, name: &DnsName) {
        if self.lock().remove(name.as_str()).is_some() {
            self.changed.notify_one();
        }
    }

    fn report(&self, error: &dyn std::fmt::Display) {
        tracing::warn!(
            "cannot write the DNS cache {}: {error}; after a restart all names are resolved again",
            self.path.display()
        );
    }

    /// Writes what changes, for ever.
    pub async fn write_changes(self: Arc<Self>) {
        loop {
            self.changed.notified().await;
            let kept = self.clone();
            let written = tokio::task::spawn_blocking(move || kept.write()).await;
            match written {
                Ok(Err(error)) => self.report(&error),
                Err(error) => self.report(&error),
                Ok(Ok(())) => {}
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    fn write(&self) -> io::Result<()> {
        let text = serde_json::to_vec(&*self.lock())?;
        let new = self.path.with_extension("new");
        fs::write(&new, text)?;
        fs::rename(&new, &self.path)
    }
}

fn read(path: &Path) -> io::Result<Addresses> {
    Ok(serde_json::from_slice(&fs::read(path)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_answer_is_read_again_and_a_broken_file_is_empty() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("names.json");
        let name = DnsName::parse("db.test").unwrap();
        let kept = Kept::open(path.clone());
        kept.set(&name, &["10.0.0.1".parse().unwrap()]);
        kept.write().unwrap();
        assert_eq!(Kept::open(path.clone()).get(&name), Some(vec!["10.0.0.1".parse().unwrap()]));
        fs::write(&path, "{").unwrap();
        assert_eq!(Kept::open(path).get(&name), None);
    }
}
