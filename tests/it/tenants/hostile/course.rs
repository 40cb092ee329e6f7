//! Which attacks, in which order, how often.

use super::attacks::{self, Attack};
use anyhow::{Result, ensure};
use oxigress_fuzz::Random;
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Attacks, one after the other, for whoever has time.
pub struct Course {
    round: Vec<Attack>,
    at_least: Duration,
    state: Mutex<State>,
}

/// So many attacks lie between two of a name, or nearly: more than are under way.
const APART: usize = 40;

struct State {
    left: VecDeque<Attack>,
    /// The names of those that were handed out last.
    last: VecDeque<&'static str>,
    start: Instant,
    random: Random,
}

impl Course {
    /// The short ones once, in their order.
    pub fn short() -> Self {
        let round: Vec<_> = chosen().into_iter().filter(|attack| attack.is_short).collect();
        Self::of(round.clone(), round, Duration::ZERO, 0)
    }

    /// All of them again and again, each time in another order, for at least this time.
    pub fn long(at_least: Duration) -> Self {
        let given = std::env::var("OXIGRESS_ATTACK_SEED").ok().and_then(|seed| seed.parse().ok());
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let seed = given.unwrap_or(now.as_secs());
        println!("OXIGRESS_ATTACK_SEED={seed}");
        Self::of(chosen(), Vec::new(), at_least, seed)
    }

    fn of(round: Vec<Attack>, first: Vec<Attack>, at_least: Duration, seed: u64) -> Self {
        let (left, last) = (first.into(), VecDeque::new());
        let state = State { left, last, start: Instant::now(), random: Random::new(seed) };
        Course { round, at_least, state: Mutex::new(state) }
    }

    pub fn next(&self) -> Option<Attack> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.left.is_empty() && state.start.elapsed() < self.at_least {
            let mut round = self.round.clone();
            state.random.shuffle(&mut round);
            // The same namespace must not do an attack twice at a time: the end of one takes the objects of the other away.
            round.sort_by_key(|attack| state.last.contains(&attack.name));
            state.left = round.into();
        }
        let next = state.left.pop_front();
        state.last.extend(next.map(|attack| attack.name));
        if state.last.len() > APART {
            state.last.pop_front();
        }
        next
    }

    /// Whether as many were run as there are at least.
    pub fn is_done(&self, count: usize) -> Result<()> {
        println!("{count} attacks, of {} kinds", self.round.len());
        ensure!(count >= self.round.len(), "{count} attacks were run, of {}", self.round.len());
        Ok(())
    }
}

/// All, or those that the environment names.
fn chosen() -> Vec<Attack> {
    let named = std::env::var("OXIGRESS_ATTACKS").unwrap_or_default();
    let named: Vec<_> = named.split_whitespace().collect();
    let is_chosen = |attack: &Attack| named.is_empty() || named.contains(&attack.name);
    attacks::all().filter(is_chosen).collect()
}
