//! One answer for all who ask at once: anybody may ask, and as often as they like.

use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// An answer that all get who asked before it was begun, or within `kept` after that.
pub struct Latest<T> {
    kept: Duration,
    answer: Mutex<Option<(Instant, T)>>,
}

impl<T: Clone> Latest<T> {
    /// None yet.
    pub fn new(kept: Duration) -> Self {
        Latest { kept, answer: Mutex::new(None) }
    }

    /// The latest answer, or what is found now.
    pub async fn get(&self, find: impl Future<Output = T>) -> T {
        let asked = Instant::now();
        let mut latest = self.answer.lock().await;
        if let Some((_, answer)) = latest.as_ref().filter(|(begun, _)| *begun + self.kept > asked) {
            return answer.clone();
        }
        let begun = Instant::now();
        let answer = find.await;
        *latest = Some((begun, answer.clone()));
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_found_once_in_the_time_that_it_is_kept() {
        let found = Cell::new(0);
        let find = || async {
            found.set(found.get() + 1);
            found.get()
        };
        let (kept, latest) = (Latest::new(Duration::from_secs(1)), Latest::new(Duration::ZERO));
        for _ in 0..10 {
            assert_eq!(kept.get(find()).await, 1);
            tokio::time::advance(Duration::from_millis(90)).await;
        }
        tokio::time::advance(Duration::from_millis(100)).await;
        assert_eq!(kept.get(find()).await, 2);
        for count in 3..5 {
            assert_eq!(latest.get(find()).await, count);
        }
    }
}
