//! The same work for many things at once, on every CPU: reading a big folder is almost all parsing.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Fewer things are done faster by one thread.
const WORTH_IT: usize = 32;
/// More threads than this only fight for memory.
const MAX_THREADS: usize = 8;

/// `work` of each item, in their order.
pub fn map<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let cpus = thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS);
    if items.len() < WORTH_IT || cpus == 1 {
        return items.iter().map(work).collect();
    }
    let next = AtomicUsize::new(0);
    let take = || {
        let mut done = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            match items.get(index) {
                Some(item) => done.push((index, work(item))),
                None => return done,
            }
        }
    };
    let mut done = thread::scope(|scope| {
        let threads: Vec<_> = (1..cpus).map(|_| scope.spawn(take)).collect();
        let mut done = take();
        for thread in threads {
            // A panic of ours: it goes on where the results are wanted.
            done.extend(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        done
    });
    done.sort_unstable_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn results_stand_in_the_order_of_their_items() {
        let items: Vec<usize> = (0..1_000).collect();
        assert_eq!(super::map(&items, |item| item * 2), (0..2_000).step_by(2).collect::<Vec<_>>());
    }
}
