//! The reviews of a namespace that are under way: its others wait for them, and take nobody else's places.
//!
//! Clients: each address has lines of its own, or whoever reaches the port would fill those of the API server.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Semaphore, SemaphorePermit};

/// Reviews of one namespace at once.
const PLACES: usize = 4;
/// Those that wait included.
pub const MAX_IN_LINE: usize = 64;

/// Who has a line: an address, for a namespace as it names it.
type Whose = (IpAddr, String);

/// The lines of those that have any.
#[derive(Default)]
pub struct Lines(Mutex<BTreeMap<Whose, Arc<Semaphore>>>);

/// A review in a line.
pub struct InLine<'l> {
    lines: &'l Lines,
    whose: Whose,
    places: Arc<Semaphore>,
}

impl Lines {
    /// Puts a review into its namespace's line; `None`: the line is full.
    pub fn join(&self, client: IpAddr, namespace: &str) -> Option<InLine<'_>> {
        let whose = (client, namespace.to_owned());
        let mut all = self.all();
        let line = all.entry(whose.clone()).or_insert_with(|| Arc::new(Semaphore::new(PLACES)));
        // The list has one, and each review in the line.
        let has_room = Arc::strong_count(line) <= MAX_IN_LINE;
        has_room.then(|| InLine { lines: self, whose, places: line.clone() })
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<Whose, Arc<Semaphore>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl InLine<'_> {
    /// Waits until the review is one of the first in the line.
    pub async fn place(&self) -> Option<SemaphorePermit<'_>> {
        self.places.acquire().await.ok()
    }
}

impl Drop for InLine<'_> {
    fn drop(&mut self) {
        let mut all = self.lines.all();
        // The list's and this one.
        if Arc::strong_count(&self.places) == 2 {
            all.remove(&self.whose);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_full_line_takes_nobody_elses_room() {
        let lines = Lines::default();
        let [client, stranger] = ["10.0.0.1", "10.0.0.2"].map(|of| of.parse().unwrap());
        let mut full: Vec<_> =
            (0..MAX_IN_LINE).map(|_| lines.join(client, "evil").unwrap()).collect();
        assert!(lines.join(client, "evil").is_none());
        drop(lines.join(stranger, "evil").unwrap());
        let other = lines.join(client, "shop").unwrap();
        assert!(other.place().await.is_some());
        let mut held = Vec::new();
        for line in &full[..PLACES] {
            held.push(line.place().await.unwrap());
        }
        let fifth = tokio::time::timeout(std::time::Duration::ZERO, full[PLACES].place());
        assert!(fifth.await.is_err());
        drop(held);
        full.pop();
        assert!(lines.join(client, "evil").is_some());
        drop((full, other));
        assert!(lines.all().is_empty());
    }
}
