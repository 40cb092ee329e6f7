//! How often ports are opened that ListenerSets alone ask for.

use oxigress_translate::Translator;
use std::time::Duration;
use tokio::time::Instant;

/// They are opened and closed no more often than this: nginx reloads for them, which closes kept connections of all tenants, and in
/// the end their sessions.
const PERIOD: Duration = Duration::from_mins(1);

/// When such ports may be opened or closed next.
pub struct PortPace {
    held_until: Instant,
}

impl PortPace {
    /// They may be now.
    pub fn new() -> Self {
        PortPace { held_until: Instant::now() }
    }

    /// When those that wait are opened.
    pub fn due_at(&self) -> Instant {
        self.held_until
    }

    /// Says for the next update whether they have to wait.
    pub fn hold(&self, translator: &mut Translator) {
        translator.hold_ports(Instant::now() < self.held_until);
    }

    /// Has the next ones wait if the last update opened some, which it does for all there are at the start.
    pub fn note(&mut self, translator: &mut Translator, is_start: bool) {
        if translator.take_opened_for_sets() && !is_start {
            self.held_until = Instant::now() + PERIOD;
        }
    }
}
