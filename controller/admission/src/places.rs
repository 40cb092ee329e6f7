//! Reviews that are read and asked about at once: a place that becomes free goes to the client that has the fewest.
//!
//! Why:     a place is held while a body arrives. Clients that send theirs slowly would hold all places, and the API server's review
//!          would stand behind them. So it waits for one of them to end, however many they have in line.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// The places, and who waits for one.
#[derive(Clone)]
pub struct Places(Arc<Mutex<State>>);

struct State {
    free: usize,
    /// Most places of one client.
    of_client: usize,
    clients: BTreeMap<IpAddr, Client>,
    /// As many as have asked for a place until now.
    asked: u64,
}

#[derive(Default)]
struct Client {
    held: usize,
    /// Those that wait, each with its number.
    waiting: VecDeque<(u64, oneshot::Sender<Place>)>,
}

/// A place, until it is dropped.
pub struct Place {
    places: Option<Places>,
    client: IpAddr,
}

impl Places {
    /// Makes so many places, of which one client has no more than some.
    pub fn new(all: usize, of_client: usize) -> Self {
        let state = State { free: all, of_client, clients: BTreeMap::new(), asked: 0 };
        Places(Arc::new(Mutex::new(state)))
    }

    /// Waits for a place.
    pub async fn take(&self, client: IpAddr) -> Option<Place> {
        let (sender, receiver) = oneshot::channel();
        {
            let mut state = self.state();
            let number = state.asked;
            state.asked += 1;
            state.clients.entry(client).or_default().waiting.push_back((number, sender));
        }
        self.hand_out();
        receiver.await.ok()
    }

    /// Gives free places to those that wait.
    fn hand_out(&self) {
        loop {
            let Some((client, waiting)) = self.state().next() else { return };
            let place = Place { places: Some(self.clone()), client };
            // Whoever does not wait any more leaves it to the next one.
            if let Err(mut unwanted) = waiting.send(place) {
                unwanted.places = None;
                self.state().give_back(client);
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Takes a place for the one that is next: of the clients with the fewest places who has waited longest.
    fn next(&mut self) -> Option<(IpAddr, oneshot::Sender<Place>)> {
        let left = self.free.checked_sub(1)?;
        let clients = self.clients.iter_mut();
        let may_have = clients.filter(|(_, client)| client.held < self.of_client);
        let of_one = |(address, client): (&IpAddr, &Client)| {
            client.waiting.front().map(|(number, _)| (client.held, *number, *address))
        };
        let (.., address) =
            may_have.filter_map(|(address, client)| of_one((address, client))).min()?;
        let client = self.clients.get_mut(&address)?;
        let (_, waiting) = client.waiting.pop_front()?;
        client.held += 1;
        self.free = left;
        Some((address, waiting))
    }

    fn give_back(&mut self, address: IpAddr) {
        self.free += 1;
        let Some(client) = self.clients.get_mut(&address) else { return };
        client.held -= 1;
        if client.held == 0 && client.waiting.is_empty() {
            self.clients.remove(&address);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some(places) = self.places.take() else { return };
        places.state().give_back(self.client);
        places.hand_out();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::time::timeout;

    fn address(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    async fn take(places: &Places, client: u8) -> Option<Place> {
        timeout(Duration::from_millis(1), places.take(address(client))).await.ok().flatten()
    }

    #[tokio::test(start_paused = true)]
    async fn a_free_place_goes_to_who_has_the_fewest() {
        let places = Places::new(4, 2);
        let mut held = Vec::new();
        for client in [1, 1, 2, 2] {
            held.push(take(&places, client).await.unwrap());
        }
        assert!(take(&places, 3).await.is_none(), "there is none");
        let wait = |client: u8| {
            let places = places.clone();
            tokio::spawn(async move { places.take(address(client)).await })
        };
        let crowd: Vec<_> = (0..100).map(|n| wait(1 + n % 2)).collect();
        tokio::task::yield_now().await;
        let late = wait(3);
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
        assert_eq!((state.free, state.clients.len()), (4, 0));
    }
}
