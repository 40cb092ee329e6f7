//! How often ports are opened that ListenerSets alone ask for.

use oxigress_translate::Translator;
use std::collections::VecDeque;
use std::time::Duration;
use tokio::time::Instant;

/// They are opened and closed no more often than [`MOST`] times in this: nginx reloads for them, which closes kept connections of
/// all tenants, and in the end their sessions.
const PERIOD: Duration = Duration::from_mins(5);
const MOST: usize = 5;

/// When such ports may be opened or closed next.
#[derive(Default)]
pub struct PortPace {
    /// When some were, in the last [`PERIOD`].
    opened: VecDeque<Instant>,
}

impl PortPace {
    /// When those that wait are opened, if they have to wait.
    pub fn due_at(&self) -> Option<Instant> {
        let first = self.opened.len().checked_sub(MOST)?;
        self.opened.get(first).map(|opened| *opened + PERIOD)
    }

    /// Says for the next update whether they have to wait.
    pub fn hold(&self, translator: &mut Translator) {
        translator.hold_ports(self.due_at().is_some_and(|due| Instant::now() < due));
    }

    /// Counts the last update if it opened some, which it does for all there are at the start.
    pub fn note(&mut self, translator: &mut Translator, is_start: bool) {
        if translator.take_opened_for_sets() && !is_start {
            self.opened.push_back(Instant::now());
            if self.opened.len() > MOST {
                self.opened.pop_front();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_sixth_time_waits_until_five_minutes_after_the_first() {
        let start = Instant::now();
        let mut pace = PortPace::default();
        for minute in 0..MOST as u64 {
            assert_eq!(pace.due_at(), None);
            pace.opened.push_back(start + Duration::from_secs(minute));
        }
        assert_eq!(pace.due_at(), Some(start + PERIOD));
    }
}
