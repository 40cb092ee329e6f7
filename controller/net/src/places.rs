//! Few places for many clients: a place that becomes free goes to the client that has the fewest.
//!
//! Why:     a place is held as long as somebody else takes: a body that arrives slowly, a server that does not answer. One client
//!          would hold all places, and the others would stand behind it. So each has its own line, and a bound.
//! Shape:   a client is whoever the bound is about: an address, a namespace.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// The places, and who waits for one.
pub struct Places<C: Ord + Clone>(Arc<Mutex<State<C>>>);

impl<C: Ord + Clone> Clone for Places<C> {
    fn clone(&self) -> Self {
        Places(self.0.clone())
    }
}

struct State<C: Ord + Clone> {
    free: usize,
    /// Most places of one client.
    of_client: usize,
    clients: BTreeMap<C, Client<C>>,
    /// The clients that wait and may have another place, each with how many it has and the number of its first waiter.
    next: BTreeSet<(usize, u64, C)>,
    /// As many as have asked for a place until now.
    asked: u64,
}

struct Client<C: Ord + Clone> {
    held: usize,
    /// Those that wait, by number.
    waiting: BTreeMap<u64, oneshot::Sender<Place<C>>>,
}

/// A place, until it is dropped.
pub struct Place<C: Ord + Clone> {
    places: Option<Places<C>>,
    client: C,
}

/// Stands in line until it is dropped.
struct Waiter<'p, C: Ord + Clone> {
    places: &'p Places<C>,
    client: C,
    number: u64,
}

impl<C: Ord + Clone> Places<C> {
    /// Makes so many places, of which one client has no more than some.
    pub fn new(all: usize, of_client: usize) -> Self {
        let (clients, next) = (BTreeMap::new(), BTreeSet::new());
        Places(Arc::new(Mutex::new(State { free: all, of_client, clients, next, asked: 0 })))
    }

    /// Waits for a place. Whoever stops waiting leaves nothing in line.
    pub async fn take(&self, client: C) -> Option<Place<C>> {
        let (sender, receiver) = oneshot::channel();
        let number = self.state().stand_in_line(&client, sender);
        let _waiter = Waiter { places: self, client, number };
        self.hand_out();
        receiver.await.ok()
    }

    /// How many wait.
    pub fn count_waiting(&self) -> usize {
        self.state().clients.values().map(|client| client.waiting.len()).sum()
    }

    /// Gives free places to those that wait.
    fn hand_out(&self) {
        loop {
            let Some((client, waiting)) = self.state().take_next() else { return };
            let place = Place { places: Some(self.clone()), client };
            // Whoever does not wait any more leaves it to the next one.
            if let Err(mut unwanted) = waiting.send(place) {
                unwanted.places = None;
                self.state().give_back(&unwanted.client);
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State<C>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<C: Ord + Clone> State<C> {
    fn stand_in_line(&mut self, client: &C, sender: oneshot::Sender<Place<C>>) -> u64 {
        let number = self.asked;
        self.asked += 1;
        self.change(client, |client| drop(client.waiting.insert(number, sender)));
        number
    }

    /// Takes a place for the one that is next: of the clients with the fewest places who has waited longest.
    fn take_next(&mut self) -> Option<(C, oneshot::Sender<Place<C>>)> {
        let left = self.free.checked_sub(1)?;
        let (.., client) = self.next.first()?.clone();
        let mut first = None;
        self.change(&client, |client| {
            first = client.waiting.pop_first();
            client.held += usize::from(first.is_some());
        });
        let (_, waiting) = first?;
        self.free = left;
        Some((client, waiting))
    }

    fn give_back(&mut self, client: &C) {
        self.free += 1;
        self.change(client, |client| client.held = client.held.saturating_sub(1));
    }

    /// Changes what a client has, and puts it where it then stands among the others.
    fn change(&mut self, client: &C, change: impl FnOnce(&mut Client<C>)) {
        let of_client = self.of_client;
        let turn = |state: &Client<C>| {
            let (number, _) = state.waiting.first_key_value()?;
            (state.held < of_client).then(|| (state.held, *number, client.clone()))
        };
        let state = self.clients.entry(client.clone());
        let state = state.or_insert_with(|| Client { held: 0, waiting: BTreeMap::new() });
        if let Some(turn) = turn(state) {
            self.next.remove(&turn);
        }
        change(state);
        self.next.extend(turn(state));
        if state.held == 0 && state.waiting.is_empty() {
            self.clients.remove(client);
        }
    }
}

impl<C: Ord + Clone> Drop for Waiter<'_, C> {
    fn drop(&mut self) {
        let mut state = self.places.state();
        state.change(&self.client, |client| drop(client.waiting.remove(&self.number)));
    }
}

impl<C: Ord + Clone> Drop for Place<C> {
    fn drop(&mut self) {
        let Some(places) = self.places.take() else { return };
        places.state().give_back(&self.client);
        places.hand_out();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::task::JoinHandle;
    use tokio::time::timeout;

    type Held = Option<Place<u8>>;

    async fn take(places: &Places<u8>, client: u8) -> Held {
        timeout(Duration::from_millis(1), places.take(client)).await.ok().flatten()
    }

    fn wait(places: &Places<u8>, client: u8) -> JoinHandle<Held> {
        let places = places.clone();
        tokio::spawn(async move { places.take(client).await })
    }

    #[tokio::test(start_paused = true)]
    async fn a_free_place_goes_to_who_has_the_fewest() {
        let places = Places::new(4, 2);
        let mut held = Vec::new();
        for client in [1, 1, 2, 2] {
            held.push(take(&places, client).await.unwrap());
        }
        assert!(take(&places, 3).await.is_none(), "there is none");
        let crowd: Vec<_> = (0..100).map(|n| wait(&places, 1 + n % 2)).collect();
        tokio::task::yield_now().await;
        let late = wait(&places, 3);
        tokio::task::yield_now().await;
        drop(held.pop());
        let place = late.await.unwrap();
        assert!(place.is_some(), "before a hundred that came first");
        crowd.iter().for_each(|waiting| waiting.abort());
        for waiting in crowd {
            assert!(waiting.await.is_err());
        }
        drop((held, place));
        // Those that went away held nothing back.
        let all = [take(&places, 1).await, take(&places, 1).await, take(&places, 2).await];
        assert!(all.iter().all(Option::is_some));
        assert!(take(&places, 1).await.is_none(), "it has two");
        drop(all);
        let again = take(&places, 1).await;
        assert!(again.is_some());
        drop(again);
        let state = places.state();
        assert_eq!((state.free, state.clients.len(), state.next.len()), (4, 0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_stops_waiting_leaves_nothing_in_line() {
        let places = Places::new(2, 1);
        let held = take(&places, 1).await.unwrap();
        for _ in 0..100 {
            let crowd: Vec<_> = (0..10).map(|_| wait(&places, 1)).collect();
            tokio::task::yield_now().await;
            assert_eq!(places.count_waiting(), 10);
            crowd.iter().for_each(JoinHandle::abort);
            for waiting in crowd {
                assert!(waiting.await.is_err());
            }
            assert_eq!(places.count_waiting(), 0);
        }
        let last = wait(&places, 1);
        tokio::task::yield_now().await;
        drop(held);
        assert!(last.await.unwrap().is_some());
    }
}
