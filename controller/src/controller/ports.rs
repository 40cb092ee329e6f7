//! How often ports are opened that ListenerSets alone ask for.

use oxigress_objects::Name;
use oxigress_translate::{HeldPorts, Translator};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use tokio::time::Instant;

/// They are opened no more often than so in this time: nginx reloads for them, which closes kept connections of all tenants, and in the
/// end their sessions.
const OF_ALL: Rate = Rate { most: 5, period: Duration::from_mins(5) };
/// For the sets of one namespace, which would else have all of that for itself.
const OF_NAMESPACE: Rate = Rate { most: 6, period: Duration::from_hours(1) };

struct Rate {
    most: usize,
    period: Duration,
}

/// When something was done that has a rate.
#[derive(Default)]
struct Times(VecDeque<Instant>);

impl Times {
    /// When it may be done again, if it has to wait.
    fn due_at(&self, rate: &Rate) -> Option<Instant> {
        let first = self.0.len().checked_sub(rate.most)?;
        self.0.get(first).map(|done| *done + rate.period)
    }

    /// The same, if that is later than `now`.
    fn waits_until(&self, rate: &Rate, now: Instant) -> Option<Instant> {
        self.due_at(rate).filter(|due| now < *due)
    }

    fn note(&mut self, rate: &Rate, now: Instant) {
        self.0.push_back(now);
        if self.0.len() > rate.most {
            self.0.pop_front();
        }
    }
}

/// When such ports may be opened next.
#[derive(Default)]
pub struct PortPace {
    all: Times,
    by_namespace: BTreeMap<Name, Times>,
}

impl PortPace {
    /// When some that wait may be opened: all of them, or those of a namespace.
    pub fn due_at(&self) -> Option<Instant> {
        let now = Instant::now();
        let of_one =
            self.by_namespace.values().filter_map(|times| times.waits_until(&OF_NAMESPACE, now));
        self.all.waits_until(&OF_ALL, now).or_else(|| of_one.min())
    }

    /// Says for the next update which have to wait.
    pub fn hold(&mut self, translator: &mut Translator) {
        let now = Instant::now();
        self.by_namespace.retain(|_, times| {
            times.0.back().is_some_and(|last| now < *last + OF_NAMESPACE.period)
        });
        let of = self.by_namespace.iter();
        let of = of.filter(|(_, times)| times.waits_until(&OF_NAMESPACE, now).is_some());
        let of = of.map(|(namespace, _)| namespace.clone()).collect();
        let all = self.all.waits_until(&OF_ALL, now).is_some();
        translator.hold_ports(HeldPorts { all, of });
    }

    /// Counts the last update if it opened some, which it does for all there are at the start.
    pub fn note(&mut self, translator: &mut Translator, is_start: bool) {
        let namespaces = translator.take_opened_for_sets();
        if namespaces.is_empty() || is_start {
            return;
        }
        let now = Instant::now();
        self.all.note(&OF_ALL, now);
        for namespace in namespaces {
            self.by_namespace.entry(namespace).or_default().note(&OF_NAMESPACE, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_sixth_time_waits_until_five_minutes_after_the_first() {
        let start = Instant::now();
        let mut times = Times::default();
        for second in 0..OF_ALL.most as u64 {
            assert_eq!(times.due_at(&OF_ALL), None);
            times.note(&OF_ALL, start + Duration::from_secs(second));
        }
        assert_eq!(times.due_at(&OF_ALL), Some(start + OF_ALL.period));
        times.note(&OF_ALL, start + OF_ALL.period);
        assert_eq!(times.due_at(&OF_ALL), Some(start + OF_ALL.period + Duration::from_secs(1)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_namespace_waits_longer_than_the_others() {
        let mut pace = PortPace::default();
        let evil = Name::from("evil");
        for _ in 0..OF_NAMESPACE.most {
            pace.by_namespace.entry(evil.clone()).or_default().note(&OF_NAMESPACE, Instant::now());
        }
        assert_eq!(pace.due_at(), Some(Instant::now() + OF_NAMESPACE.period));
        tokio::time::advance(OF_NAMESPACE.period).await;
        assert_eq!(pace.due_at(), None);
    }
}
